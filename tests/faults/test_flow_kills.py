"""Kills in the middle of many due runs: no run is lost, and no step is done twice."""

import random
import time

import apsw

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list
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
    """Reads the database of a server, whether it runs or is down."""

    def __init__(self, server: Server, clock: TestClock) -> None:
        self._path, self._clock = str(server.data / "campanero.db"), clock

    def query(self, sql: str) -> list[tuple[object, ...]]:
        """Return all rows of a query."""
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(5000)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def count(self, sql: str) -> int:
        """Return a count."""
        result = self.query(f"SELECT count(*) FROM {sql}")[0][0]
        assert isinstance(result, int)
        return result

    def wait_for(self, number: int, sql: str, timeout: float = 90) -> int:
        """Wait until there are `number` rows, and return how many there are."""
        end = time.monotonic() + timeout
        while (current := self.count(sql)) < number:
            assert time.monotonic() < end, f"{current} of {number} after {timeout} s: {sql}"
            time.sleep(0.005)
        return current


def test_kills_during_due_runs(
    relayed: StartRelayed, smtp_server: SmtpServer, clock: TestClock, full: bool, figures: Figures, seed: int,
) -> None:  # fmt: skip
    """Each run ends once with each step done once; each message is sent once, except copies of uncertain ones."""
    count, kills = (5_000, 10) if full else (250, 2)
    server = relayed(clock=clock)
    api, rows = server.client(validate=False), Rows(server, clock)
    list_id = create_list(api, count)
    segment = api.post("/segments", {"name": "All", "filters": [
        {"name": "contact_list", "predicate": "eq", "value": list_id}]}).expect(201)["id"]  # fmt: skip
    flow = api.post("/flows", {"name": "Due", "trigger": {"event": "started"}, "steps": STEPS}).expect(201)["id"]
    api.post(f"/flows/{flow}/activate").expect(200)
    api.post(f"/flows/{flow}/enroll", {"segment_id": segment}).expect(200)
    rows.wait_for(count, "run WHERE step_visit_id NOT NULL")

    clock.advance(hours=1, minutes=1)
    rng = random.Random(seed)
    completed_at_kills, uncertain = [], list[str]()
    for completed_count in sorted(rng.sample(range(count // 50, count * 19 // 20), kills)):
        rows.wait_for(completed_count, "run WHERE status = 'completed'")
        # A second lost reply of the same message would hold it for a user (P3)
        rows.wait_for(len(uncertain), f"message WHERE status = 'sent' AND id IN ({', '.join(uncertain)})")
        server.kill()
        uncertain = [
            str(item)
            for (item,) in rows.query(
                "SELECT id FROM message WHERE status = 'sending' "
                "UNION SELECT message_id FROM send_log WHERE sent_at IS NULL"
            )
        ]
        completed_at_kills.append(rows.count("run WHERE status = 'completed'"))
        server.start()
    rows.wait_for(count, "run WHERE status = 'completed'")
    smtp_server.wait_until(lambda: len({item.to for item in smtp_server.messages}) == count, "a message for each", 120)
    rows.wait_for(count, "message WHERE status = 'sent'")

    assert rows.query("SELECT status, count(*) FROM run GROUP BY 1") == [("completed", count)]
    visits = rows.query(
        "SELECT run_id, count(*), count(DISTINCT action_id), sum(left_at IS NULL) FROM step_visit GROUP BY 1"
    )
    assert {item[1:] for item in visits} == {(5, 5, 0)} and len(visits) == count
    names = ("email_sent", "flow_enter", "flow_exit", "halfway")
    events = rows.query(f"SELECT event, count(*) FROM event WHERE event IN {names} GROUP BY 1 ORDER BY 1")
    assert events == [(item, count) for item in names]
    copies = len(smtp_server.messages) - count
    figures.note(size=count, kills=kills, copies=copies, missing=0, through_at_each_kill=completed_at_kills)
    assert completed_at_kills[0] < count
    assert 0 <= copies <= kills * 2 * CONNECTIONS
    stats = api.get(f"/flows/{flow}").expect(200)["stats"]
    assert (stats["entered"], stats["completed"], stats["active"]) == (count, count, 0)
