"""Small requests that would grow while they are read: refused at once, and the event loop goes on."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doors.posting import Fields, authorize, find_messages, post_form
from tests.doors.test_json_doors import MAILS, POSTMARK, RESEND, SENDGRID, post
from tests.kit.client import Client, Response
from tests.kit.sampling import every_nth
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout

MAILGUN = "/v3/bakery.example/messages"
NESTED = "<" + "(" * 3_000
FORM = (("from", "ana@bakery.example"), ("subject", "S"), ("text", "t"))


def send(server: Server, path: str, change: dict[str, Any] | Fields) -> Response:
    """Post a message with changed fields, as JSON or as a form."""
    if isinstance(change, dict):
        return post(server, path, MAILS[path] | change)
    names = {name for name, _ in change}
    return post_form(server, path, [*(field for field in FORM if field[0] not in names), *change])


def personalize(count: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """Return personalizations of SendGrid, each for one recipient."""
    return [{"to": [{"email": f"p{number}@example.org"}], **fields} for number in range(count)]


def to_many(variables: dict[str, str], count: int) -> list[tuple[str, str]]:
    """Return the fields of a message for Mailgun to many recipients, who all have the same values."""
    addresses = [f"r{number}@example.org" for number in range(count)]
    values = json.dumps(dict.fromkeys(addresses, variables))
    return [("recipient-variables", values), *(("to", address) for address in addresses)]


MANY = {f"n{number}": "" for number in range(60_000)}
BOMBS: dict[str, tuple[str, Any, str]] = {
    "nested Postmark": (POSTMARK, {"To": NESTED}, "To is invalid"),
    "nested Resend": (RESEND, {"to": [NESTED]}, "to is invalid"),
    "nested Mailgun": (MAILGUN, [("to", NESTED)], "to is invalid"),
    "nested Reply-To": (MAILGUN, [("to", "a@example.org"), ("h:reply-to", NESTED)], "h:reply-to is invalid"),
    "addresses": (POSTMARK, {"To": "a@b.co, " * 240_000}, "To is too long"),
    "one letter": (
        SENDGRID,
        {"content": [{"type": "text/plain", "value": "a" * 1_000_000}],
         "personalizations": personalize(substitutions={"a": "z"})},
        "substitutions must have names",
    ),
    "two letters": (
        SENDGRID,
        {"content": [{"type": "text/plain", "value": "a" * 1_000_000}],
         "personalizations": personalize(substitutions={"aa": "z"})},
        "content is too long",
    ),
    "braces": (SENDGRID, {"content": [{"type": "text/plain", "value": "{{" * 500_000}]}, "content is too long"),
    "names": (SENDGRID, {"personalizations": personalize(substitutions=MANY)}, "substitutions is too long"),
    "arguments": (SENDGRID, {"personalizations": personalize(500), "custom_args": MANY}, "custom_args is too long"),
    "headers": (SENDGRID, {"personalizations": personalize(500), "headers": MANY}, "headers is too long"),
    "values in a header": (
        MAILGUN, [("h:X-A", "%recipient.x%" * 1_000), *to_many({"x": "z" * 50_000}, 20)], "recipient-variables has too",
    ),
    "short values in a header": (
        MAILGUN, [("h:X-A", "%recipient.x%" * 60), *to_many({"x": "z" * 8_000}, 20)], "h:X-A is too long",
    ),
    "placeholders": (
        MAILGUN,
        [("text", "".join(f"%recipient.n{number}%" for number in range(2_000))),
         *to_many({f"n{number}": "" for number in range(2_000)}, 50)],
        "text has too many placeholders",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", every_nth(BOMBS, 4))
def test_bombs_are_refused_at_once(server: Server, name: str) -> None:
    """The error names the field, nothing is queued, and other requests are answered in between."""
    path, change, text = BOMBS[name]
    before, waits, is_over = len(find_messages(server)), [0.0], threading.Event()

    def probe() -> None:
        client = Client(server.url)
        while not is_over.wait(0.01):
            begun = time.monotonic()
            client.request("GET", "/healthz", None, {})
            waits.append(time.monotonic() - begun)

    probing = threading.Thread(target=probe)
    probing.start()
    try:
        response = send(server, path, change)
    finally:
        is_over.set()
        probing.join()

    assert response.status in (400, 422), response.body[:500]
    assert text in json.dumps(response.json), response.body[:500]
    assert max(waits) < extend_timeout(1), "the event loop was stopped"
    assert len(find_messages(server)) == before


def read_peak_memory(process: Path) -> int:
    """Return the largest RSS of a process since its peak was reset, in bytes."""
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def test_file_of_many_messages_is_in_memory_once(server: Server) -> None:
    """A file of all personalizations is decoded and stored once, and each message has it."""
    content = base64.b64encode(b"x" * 2_000_000).decode()
    mail = MAILS[SENDGRID] | {"attachments": [{"filename": "a.txt", "content": content}]}
    sandbox = {"mail_settings": {"sandbox_mode": {"enable": True}}, "personalizations": personalize(100)}
    process = Path(f"/proc/{server.pid}")
    (process / "clear_refs").write_text("5")  # resets the peak (proc(5))
    before = read_peak_memory(process)
    assert post(server, SENDGRID, mail | sandbox).status == 200
    peak = read_peak_memory(process)
    assert post(server, SENDGRID, mail | {"personalizations": personalize(2)}).status == 202

    assert peak - before < 80 * 1_048_576
    for row in find_messages(server)[:2]:
        [file] = server.client().get(f"/messages/{row['id']}").expect(200)["attachments"]
        assert (file["filename"], file["size"]) == ("a.txt", 2_000_000)
    assert post(server, SENDGRID, mail | {"attachments": [{"filename": "a.exe", "content": "!"}]}).status == 400


@pytest.mark.parametrize(("path", "header"), [(POSTMARK, {}), (RESEND, {"X_Batch_Validation": "permissive"})])
def test_hostile_message_of_a_batch_fails_alone(server: Server, path: str, header: dict[str, str]) -> None:
    """The others are queued and reported, so that a program does not repeat them."""
    name = "To" if path == POSTMARK else "to"
    hostile: list[Any] = [NESTED, "a@b.co, " * 20_000]
    batch = [MAILS[path] | {name: f"batch{number}@example.org"} for number in range(28)]
    batch += [MAILS[path] | {name: value} for value in hostile]
    before = len(find_messages(server))
    result = post(server, f"{path}/batch", batch, **header).expect(200)

    if path == POSTMARK:
        assert [item["ErrorCode"] for item in result] == [0] * 28 + [300, 300]
    else:
        assert (len(result["data"]), [error["index"] for error in result["errors"]]) == (28, [28, 29])
    assert len(find_messages(server)) == min(before + 28, 100)


def test_page_of_events_beyond_all_times_is_invalid(server: Server) -> None:
    """A time or an id that the database cannot store is an error of the client."""
    for at, number in ((2**63, 1), (1, 2**63), (10**30, 10**30), (-1, 1)):
        page = base64.urlsafe_b64encode(json.dumps({"query": {}, "at": at, "id": number}).encode()).decode()
        url = f"/v3/bakery.example/events/{page.rstrip('=')}"
        assert Client(server.url).request("GET", url, None, authorize(str(server.key))).status == 400, (at, number)
