"""Texts that made regular expressions take quadratic time: nobody else waits for such a request (T22)."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.test_threats_loop import ATTEMPTS, Probe
from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.uploads import import_results, upload, wait_for_import

# The texts stopped the process for 2 to 50 seconds; on a busy machine anybody may wait for a few tenths.
MAX_WAIT_SECONDS = 0.5
PHONE = "1" + " " * 20_000 + "x"


def measure_wait(server: Server, work: Callable[[], Any]) -> Any:
    """Return the result of `work`, during which no other client may wait; the best of some attempts counts."""
    waits = []
    for _ in range(ATTEMPTS):
        with Probe(server) as probe:
            result = work()
        waits.append(probe.longest)
        if not MAX_WAIT_SECONDS <= probe.longest < 2:
            break
    assert min(waits) < MAX_WAIT_SECONDS, waits
    return result


def test_long_phone_number_in_forms(server: Server, api: Client, user: ScriptlessBrowser) -> None:
    """A long text in a phone field is an error of the field, and nobody waits for it."""
    template = api.post("/templates", {"name": "code", "channel": "sms", "body": "Hi"}).expect(201)["id"]
    for path, form in (
        ("/contacts", {"email": "ann@example.org", "phone": PHONE}),
        ("/contacts", {"email": "ann@example.org", "phone": "(" * 20_000}),
        ("/contacts/suppressions", {"address": PHONE, "reason": "manual"}),
        (f"/templates/{template}/test", {"emails": PHONE}),
        (f"/templates/{template}/test", {"emails": "+49 89 1234567," * 4_000}),
    ):
        assert measure_wait(server, lambda path=path, form=form: user.submit(path, **form)).status == 422, path
    assert user.submit("/contacts", email="ann@example.org", phone="+44 (0)20 7946 0018 x12").status == 303
    assert [row["value"] for row in api.get("/contacts", search="ann@").expect(200)[0]["channels"]] == [
        "ann@example.org", "+442079460018",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("email", "a" * 60_000),
        ("email", " a" * 30_000),
        ("email", "<a" * 30_000),
        ("phone", "1" + " " * 60_000 + "x"),
        ("phone", "1;" * 30_000),
        ("name", "Dr. " * 15_000),
        ("country", "a" + "\u0301" * 30_000 + "\u0316" * 30_000),
        ("status", "a" + "\u0301" * 30_000 + "\u0316" * 30_000),
    ],
)
def test_long_cell_of_an_import(column: str, cell: str, server: Server, api: Client) -> None:
    """A row with a long cell is imported without its value, or rejected, and nobody waits for it."""
    columns, row = ("email", cell) if column == "email" else (f"email,{column}", f"ben@example.org,{cell}")
    other = "cleo@example.org" + ("" if column == "email" else ",")
    file = f"{columns}\n{other}\n{row}\n"
    job = measure_wait(server, lambda: wait_for_import(api, upload(api, file, dry_run=True)))
    assert job["status"] == "complete"
    results = import_results(api, job["id"])
    assert len(results) == 2 and results[0]["result"] != "rejected", results


def test_style_sheet_with_many_imports(server: Server, api: Client) -> None:
    """A message whose style sheet has thousands of unfinished statements is rendered, and nobody waits for it."""
    body = "<style>" + "@import" * 14_000 + "{</style><p>hi</p>"
    message = {"to": "ann@example.org", "subject": "Hi", "body": body}

    def send() -> Any:
        sent = api.post("/messages", message).expect(201)
        return api.wait(f"/messages/{sent['id']}", lambda row: row["status"] not in ("queued", "sending"))

    assert measure_wait(server, send)["status"] == "sent"


def test_data_of_a_simulation(server: Server, api: Client, user: ScriptlessBrowser) -> None:
    """A line of two thousand spaces in the data of a simulation is an error, and nobody waits for it."""
    flow = api.post("/flows", {"name": "Welcome"}).expect(201)["id"]
    data = "a: b\n" + " " * 1_980 + "x"
    assert measure_wait(server, lambda: user.status("GET", f"/flows/{flow}/try?data={quote(data)}")) == 422
    assert measure_wait(server, lambda: user.submit(f"/flows/{flow}/try", event=data, name="a")).status == 422


def test_rich_text_with_many_empty_elements(server: Server, api: Client, user: ScriptlessBrowser) -> None:
    """A rich text of empty paragraphs and nested empty elements is stored, and nobody waits for it."""
    design = {"sections": [{"type": "text", "props": {"content": "<p>a</p>"}}]}
    template = api.post("/templates", {"name": "News", "subject": "Hi", "design": design}).expect(201)
    section = template["design"]["sections"][0]["id"]
    for text in ("<p></p>" * 4_000 + "x", ("<u>" * 200 + "</u>" * 200 + "x") * 100):
        path = f"/templates/{template['id']}/sections/{section}"
        assert (
            measure_wait(server, lambda path=path, text=text: user.submit(path, **{"props.content": text})).status < 400
        )
