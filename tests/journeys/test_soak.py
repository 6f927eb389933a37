"""A week of use, driven by the clock: memory, file handles, threads, temporary files and the log stay bounded."""

import http.client
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.conftest import FreshServer
from tests.kit import vitals
from tests.kit.clock import TestClock
from tests.kit.pictures import photo, saved
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import done, upload, upload_picture
from tests.kit.vitals import Vitals
from tests.ui.test_roles import signed_in

_MB = 1_000_000
# What is set aside for a log that a long look held open (`journal_size_limit`), and what a usual day needs of it
_MAX_LOG = 24 * _MB
LETTER = {"from_email": "ana@bakery.example", "from_name": "Ana"}
PAGES = (
    "/", "/contacts", "/contacts?search=p1", "/campaigns", "/templates", "/flows", "/inbox", "/activity", "/lists",
    "/segments", "/settings", "/docs", "/docs/guides/import",
)  # fmt: skip


class Week:
    """A team that works: a file of newcomers each day, a campaign, a flow, readers, a shop that tells, open pages."""

    def __init__(self, server: Server, clock: TestClock, people: int, hours: int) -> None:
        self.server, self.clock, self.people, self.hours = server, clock, people, hours
        # Whether answers are as they should be is said elsewhere; here that would be most of the work
        self.api = server.client(keep_alive=True, validate=False)
        steps = [
            {"subject": "Thank you", "body": "<p>For your order</p>", **LETTER},
            {"duration": 86_400},
            {"subject": "How was it?", "body": "<p>Tell us <a href='https://bakery.example/t'>here</a></p>", **LETTER},
        ]
        flow = {"name": "Orders", "trigger": {"event": "order_paid"}, "steps": steps}
        made = self.api.post("/flows", flow)
        self.api.post(f"/flows/{made.expect(201)['id']}/activate").expect(200)

    def day(self, number: int) -> None:
        """Let a day pass, with all that happens on it."""
        group = self.api.post("/lists", {"name": f"Newcomers {number}"}).expect(201)["id"]
        self._import(number, group)
        self._campaign(number, group)
        self._orders(number)
        self._look()
        for _ in range(4):
            self.clock.advance(hours=self.hours)
            self._rest()

    def _import(self, number: int, group: int) -> None:
        lines = "".join(f"p{number}-{one}@example.org,Name{one},{one}\n" for one in range(self.people))
        file = f"email,first_name,about\n{lines}"
        dry = upload(self.api, file, dry_run=True, opt_in=True)
        assert done(self.api, dry)["status"] == "complete"
        found = done(self.api, upload(self.api, file, opt_in=True, list_ids=[group]))
        assert (found["status"], found["created"]) == ("complete", self.people)

    def _campaign(self, number: int, group: int) -> None:
        words = {"subject": f"Letter {number} for {{{{ first_name }}}}", **LETTER}
        words["body"] = "<p>Bread <a href='https://bakery.example/{{ first_name }}'>today</a></p>"
        made = self.api.post("/campaigns", {"name": f"Letter {number}", "template_attributes": words}).expect(201)
        path = f"/campaigns/{made['id']}"
        self.api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
        self.clock.advance(60)
        self.api.wait(path, lambda row: row["status"] == "completed", timeout=300)
        for one in self.api.get("/capture", limit=20).expect(200):
            for action in ("open", "click"):
                self.api.post(f"/capture/{one['id']}/simulate", {"action": action})
        for part in ("report", "recipients"):
            self.api.get(f"{path}/{part}")

    def _orders(self, number: int) -> None:
        for _ in range(3):
            order = {"event": "order_paid", "amount": 4.5, "data": {"bread": "rye"}}
            some = [order | {"email": f"p{number}-{one}@example.org"} for one in range(min(100, self.people))]
            self.api.post("/events/batch", {"events": some}).expect(200)
        for one in range(20):
            self.api.get("/contacts", page=one + 1, limit=20).expect(200)
            body = {"email": f"q{number}-{one}@example.org", "data": {"n": one}}
            self.api.post("/contacts", body, headers={"Idempotency-Key": f"{number}-{one}"}).expect(201)
            self.api.post("/contacts", {"email": "no"}, headers={"Idempotency-Key": f"x{number}-{one}"}).expect(422)
        upload_picture(self.api, saved(photo(400 + number, 300), "PNG")).expect(201)

    def _look(self) -> None:
        cookie = signed_in(self.server, EMAIL)
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as browser:
            for _ in range(2):
                for path in PAGES:
                    browser.request("GET", path, headers={"Cookie": cookie})
                    answer = browser.getresponse()
                    answer.read()
                    assert answer.status == 200, (path, answer.status)
        for _ in range(30):
            # Who goes away in the middle
            with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as lost:
                lost.request("GET", "/v1/my/contacts?limit=100", headers={"Authorization": f"Bearer {self.api.key}"})

    def _rest(self) -> None:
        self.api.wait("/messages", lambda waiting: not waiting, timeout=300, status="queued", limit=1)


def bounded(days: list[Vitals]) -> None:
    """Hold what the last days took against the first ones, when all had been used once."""
    early, late = days[1:3], days[-2:]
    table = vitals.told(days)
    # The pages of the database that are mapped count to nobody's memory
    most, now = max(one.own for one in early), min(one.own for one in late)
    assert now < 1.1 * most + 8 * _MB, table
    assert min(one.handles for one in late) <= max(one.handles for one in early) + 5, table
    assert min(one.threads for one in late) <= max(one.threads for one in early) + 3, table
    assert late[-1].temporary <= early[0].temporary, table
    assert max(one.log for one in days) < _MAX_LOG, table


def test_a_week_leaves_nothing_behind(
    fresh_server: FreshServer, clock: TestClock, tmp_path: Path, full: bool, capsys: Any
) -> None:  # fmt: skip
    """Seven days of a small team; with `--full` six weeks of a larger one, whose events go after thirty days."""
    count, people, hours = (21, 1_000, 12) if full else (7, 100, 6)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "CAMPANERO_EVENTS__KEEP": "30d"}
    server = fresh_server(clock=clock, cold=True, env=env)
    week, days = Week(server, clock, people, hours), [vitals.look(server, temporary)]
    for number in range(count):
        week.day(number)
        days.append(vitals.look(server, temporary))
    if full:
        with capsys.disabled():
            print(f"\n{vitals.told(days)}")
    bounded(days)
    assert "Traceback" not in server.output, server.output[-3000:]
    assert server.client().get("/contacts", limit=1).status == 200
    server.stop()
