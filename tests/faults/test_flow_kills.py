"""The power goes in the middle of many runs that are due at once: none is lost, and no step is done twice."""

import random
import time

import apsw

from tests.faults.conftest import Figures, Relayed
from tests.kit.clock import TestClock
from tests.kit.recipients import crowd
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4
STEPS = [
    {"duration": 3600},
    {"filters": [{"name": "event.n", "predicate": "blank"}],
     "yes": [{"event_name": "halfway"}], "no": [{"duration": 1}]},
    {"type": "contact_update", "data_merge": {"been": True}},
    {"subject": "For {{ first_name }}", "body": "<p>Now</p>", "from_email": "ana@bakery.example"},
]  # fmt: skip


class Rows:
    """Reads the database of a server, whether it runs or is dead."""

    def __init__(self, server: Server, clock: TestClock) -> None:
        self._path, self._clock = str(server.data / "campanero.db"), clock

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        """Ask the database."""
        here = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY)
        here.set_busy_timeout(5000)
        try:
            return here.execute(sql).fetchall()
        finally:
            here.close()

    def number(self, sql: str) -> int:
        """Return a count."""
        found = self.ask(f"SELECT count(*) FROM {sql}")[0][0]
        assert isinstance(found, int)
        return found

    def wait_for(self, number: int, sql: str, timeout: float = 90) -> int:
        """Wait until there are so many rows, and answer how many there are."""
        end = time.monotonic() + timeout
        while (found := self.number(sql)) < number:
            assert time.monotonic() < end, f"{found} of {number} after {timeout} s: {sql}"
            time.sleep(0.005)
        return found


def test_kills_in_the_middle_of_due_runs(
    relayed: Relayed, smtp_server: SmtpServer, clock: TestClock, full: bool, figures: Figures, seed: int,
) -> None:  # fmt: skip
    """Each run ends once, with each of its steps once; a message is one row, and comes once but for those in doubt."""
    count, kills = (5_000, 10) if full else (500, 3)
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    group = crowd(api, count)
    segment = api.post("/segments", {"name": "All", "filters": [
        {"name": "contact_list", "predicate": "eq", "value": group}]}).expect(201)["id"]  # fmt: skip
    flow = api.post("/flows", {"name": "Due", "trigger": {"event": "started"}, "steps": STEPS}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
    rows.wait_for(count, "run WHERE step_visit_id NOT NULL")

    clock.advance(hours=1, minutes=1)
    dice = random.Random(seed)
    through, doubtful = [], list[str]()
    for at in sorted(dice.sample(range(count // 50, count * 19 // 20), kills)):
        rows.wait_for(at, "run WHERE status = 'completed'")
        # A second doubt about the same message would leave it to a person (P3)
        rows.wait_for(len(doubtful), f"message WHERE status = 'sent' AND id IN ({', '.join(doubtful)})")
        server.kill()
        doubtful = [str(one) for (one,) in rows.ask("SELECT id FROM message WHERE status = 'sending'")]
        through.append(rows.number("run WHERE status = 'completed'"))
        server.start()
    rows.wait_for(count, "run WHERE status = 'completed'")
    smtp_server.wait_until(lambda: len({one.to for one in smtp_server.messages}) == count, "a message for each", 120)
    rows.wait_for(count, "message WHERE status = 'sent'")

    assert rows.ask("SELECT status, count(*) FROM run GROUP BY 1") == [("completed", count)]
    passages = rows.ask(
        "SELECT run_id, count(*), count(DISTINCT action_id), sum(left_at IS NULL) FROM step_visit GROUP BY 1"
    )
    assert {one[1:] for one in passages} == {(5, 5, 0)} and len(passages) == count
    names = ("email_sent", "flow_enter", "flow_exit", "halfway")
    told = rows.ask(f"SELECT event, count(*) FROM event WHERE event IN {names} GROUP BY 1 ORDER BY 1")
    assert told == [(one, count) for one in names]
    copies = len(smtp_server.messages) - count
    figures.note(size=count, kills=kills, copies=copies, missing=0, through_at_each_kill=through)
    assert through[0] < count
    assert 0 <= copies <= kills * CONNECTIONS
    stats = api.get(f"/flows/{flow}").expect(200)["stats"]
    assert (stats["entered"], stats["completed"], stats["active"]) == (count, count, 0)
