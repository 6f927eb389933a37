"""A week of use with a simulated clock: memory, file handles, threads, temporary files and WAL stay bounded."""

import http.client
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit import process_metrics
from tests.kit.clock import TestClock
from tests.kit.pictures import encode_image, photo
from tests.kit.process_metrics import ProcessMetrics
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import upload, upload_image, wait_for_import
from tests.ui.test_roles import session_cookie

_MB = 1_000_000
# `journal_size_limit` of a WAL that a long read held open, and the need of a usual day
_MAX_WAL_BYTES = 24 * _MB
LETTER = {"from_email": "ana@bakery.example", "from_name": "Ana"}
PAGES = (
    "/", "/contacts", "/contacts?search=p1", "/campaigns", "/templates", "/flows", "/inbox", "/activity", "/lists",
    "/segments", "/settings", "/docs", "/docs/guides/import",
)  # fmt: skip


class Week:
    """A team at work: imports, campaigns, a flow, recipients, an online shop, open pages."""

    def __init__(self, server: Server, clock: TestClock, people: int, hours: int) -> None:
        self.server, self.clock, self.people, self.hours = server, clock, people, hours
        # Responses are validated in other tests; here that would be most of the work
        self.api = server.client(keep_alive=True, validate=False)
        steps = [
            {"subject": "Thank you", "body": "<p>For your order</p>", **LETTER},
            {"duration": 86_400},
            {"subject": "How was it?", "body": "<p>Tell us <a href='https://bakery.example/t'>here</a></p>", **LETTER},
        ]
        flow = {"name": "Orders", "trigger": {"event": "order_paid"}, "steps": steps}
        flow_response = self.api.post("/flows", flow)
        self.api.post(f"/flows/{flow_response.expect(201)['id']}/activate").expect(200)

    def day(self, number: int) -> None:
        """Simulate a day."""
        list_id = self.api.post("/lists", {"name": f"Newcomers {number}"}).expect(201)["id"]
        self._import(number, list_id)
        self._campaign(number, list_id)
        self._orders(number)
        self._visit_pages()
        for _ in range(4):
            self.clock.advance(hours=self.hours)
            self._wait_until_idle()

    def _import(self, number: int, list_id: int) -> None:
        lines = "".join(f"p{number}-{index}@example.org,Name{index},{index}\n" for index in range(self.people))
        file = f"email,first_name,about\n{lines}"
        dry = upload(self.api, file, dry_run=True, opt_in=True)
        assert wait_for_import(self.api, dry)["status"] == "complete"
        job = wait_for_import(self.api, upload(self.api, file, opt_in=True, list_ids=[list_id]))
        assert (job["status"], job["created"]) == ("complete", self.people)

    def _campaign(self, number: int, list_id: int) -> None:
        content = {"subject": f"Letter {number} for {{{{ first_name }}}}", **LETTER}
        content["body"] = "<p>Bread <a href='https://bakery.example/{{ first_name }}'>today</a></p>"
        flow_response = self.api.post(
            "/campaigns", {"name": f"Letter {number}", "template_attributes": content}
        ).expect(201)
        path = f"/campaigns/{flow_response['id']}"
        self.api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
        self.clock.advance(60)
        self.api.wait(path, lambda row: row["status"] == "completed", timeout=300)
        for message in self.api.get("/capture", limit=20).expect(200):
            for action in ("open", "click"):
                self.api.post(f"/capture/{message['id']}/simulate", {"action": action})
        for part in ("report", "recipients"):
            self.api.get(f"{path}/{part}")

    def _orders(self, number: int) -> None:
        for _ in range(3):
            order = {"event": "order_paid", "amount": 4.5, "data": {"bread": "rye"}}
            events = [order | {"email": f"p{number}-{index}@example.org"} for index in range(min(100, self.people))]
            self.api.post("/events/batch", {"events": events}).expect(200)
        for index in range(20):
            self.api.get("/contacts", page=index + 1, limit=20).expect(200)
            body = {"email": f"q{number}-{index}@example.org", "data": {"n": index}}
            self.api.post("/contacts", body, headers={"Idempotency-Key": f"{number}-{index}"}).expect(201)
            self.api.post("/contacts", {"email": "no"}, headers={"Idempotency-Key": f"x{number}-{index}"}).expect(422)
        upload_image(self.api, encode_image(photo(400 + number, 300), "PNG")).expect(201)

    def _visit_pages(self) -> None:
        cookie = session_cookie(self.server, EMAIL)
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as browser:
            for _ in range(2):
                for path in PAGES:
                    browser.request("GET", path, headers={"Cookie": cookie})
                    response = browser.getresponse()
                    response.read()
                    assert response.status == 200, (path, response.status)
        for _ in range(30):
            # Clients that disconnect before the response
            with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as lost:
                lost.request("GET", "/v1/my/contacts?limit=100", headers={"Authorization": f"Bearer {self.api.key}"})

    def _wait_until_idle(self) -> None:
        self.api.wait("/messages", lambda waiting: not waiting, timeout=300, status="queued", limit=1)


def check_bounds(days: list[ProcessMetrics]) -> None:
    """Check the last days against the first ones, when everything had been used once."""
    early, late = days[1:3], days[-2:]
    table = process_metrics.format_table(days)
    # Mapped database pages do not count as own memory
    early_memory, late_memory = (
        max(vitals_row.anonymous_memory for vitals_row in early),
        min(vitals_row.anonymous_memory for vitals_row in late),
    )
    assert late_memory < 1.1 * early_memory + 8 * _MB, table
    assert min(vitals_row.handles for vitals_row in late) <= max(vitals_row.handles for vitals_row in early) + 5, table
    assert min(vitals_row.threads for vitals_row in late) <= max(vitals_row.threads for vitals_row in early) + 3, table
    assert late[-1].temporary <= early[0].temporary, table
    assert max(vitals_row.log for vitals_row in days) < _MAX_WAL_BYTES, table


@pytest.mark.full
def test_a_week_of_use_leaks_nothing(
    fresh_server: FreshServer, clock: TestClock, tmp_path: Path, full: bool, capsys: Any
) -> None:  # fmt: skip
    """A week of a small team; with `--full` six weeks of a larger one, whose events are deleted after 30 days."""
    count, people, hours = (21, 1_000, 12) if full else (7, 100, 6)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "CAMPANERO_EVENTS__KEEP": "30d"}
    server = fresh_server(clock=clock, cold=True, env=env)
    week, days = Week(server, clock, people, hours), [process_metrics.measure(server, temporary)]
    for number in range(count):
        week.day(number)
        days.append(process_metrics.measure(server, temporary))
    if full:
        with capsys.disabled():
            print(f"\n{process_metrics.format_table(days)}")
    check_bounds(days)
    assert "Traceback" not in server.output, server.output[-3000:]
    assert server.client().get("/contacts", limit=1).status == 200
    server.stop()
