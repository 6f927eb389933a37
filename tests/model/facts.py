"""The observed results of flows, read from the database of the service while it runs or is down."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.kit.clock import TestClock

HOUR = 3_600_000
# A run that waits for its own message to be sent looks again within seconds; all other waits are whole hours
_IS_IDLE = """
SELECT NOT EXISTS (SELECT 1 FROM event e WHERE e.event IN (
    SELECT t.event FROM trigger t JOIN flow f ON f.id = t.flow_id WHERE f.status = 'active' AND f.deleted_at IS NULL
    UNION SELECT goal FROM flow WHERE deleted_at IS NULL
) AND e.id > (SELECT coalesce(max(event_id), 0) FROM cursor WHERE name = 'flows'))
AND NOT EXISTS (SELECT 1 FROM flow WHERE pending_end NOT NULL)
AND NOT EXISTS (SELECT 1 FROM step_visit v JOIN run r ON r.id = v.run_id AND r.status = 'live'
                JOIN flow f ON f.id = r.flow_id AND f.status = 'active' AND f.deleted_at IS NULL
                JOIN step s ON s.flow_id = r.flow_id AND s.version = r.version AND s.action_id = v.action_id
                JOIN event e ON e.contact_id = r.contact_id AND e.event = s.data ->> 'event_name'
                WHERE v.outcome IS NULL AND s.kind = 'wait_until' AND e.updated_at >= v.entered_at
                AND e.id > coalesce(r.event_id, 0))
AND NOT EXISTS (SELECT 1 FROM run r JOIN flow f ON f.id = r.flow_id
                WHERE r.status = 'live' AND f.status = 'active' AND f.deleted_at IS NULL AND r.due_at <= ?1 + 20000)
AND NOT EXISTS (SELECT 1 FROM flow_request q JOIN flow f ON f.id = q.flow_id
                WHERE q.status = 'pending' AND f.status = 'active' AND f.deleted_at IS NULL)
AND NOT EXISTS (SELECT 1 FROM message m LEFT JOIN flow f ON f.id = m.flow_id
                WHERE m.status IN ('queued', 'held', 'sending') AND coalesce(m.due_at, 0) <= ?1
                AND (f.id IS NULL OR f.status = 'active'))
"""
_RUNS = (
    "SELECT id, flow_id, status, exit_reason, action_id, step_visit_id FROM run "
    "WHERE contact_id = ? AND flow_id IN (SELECT value FROM json_each(?))"
)
_TRAIL = "SELECT action_id, outcome, reason, entered_at, left_at, id FROM step_visit WHERE run_id = ? ORDER BY id"
_MAILS = (
    "SELECT flow_id, step_id, status, skip_reason FROM message "
    "WHERE contact_id = ? AND flow_id IN (SELECT value FROM json_each(?))"
)
_STATUSES = {"sent": "sent", "delivered": "sent"}


class Facts:
    """Reads the database; hours are counted from the creation of this object."""

    def __init__(self, database: Path, clock: TestClock) -> None:
        self._database, self._clock = database, clock
        # One minute less, so that the present is within hour 0
        self.begun = clock.now_ms() - 60_000

    @property
    def hour(self) -> int:
        """The current hour of the clock."""
        return (self._clock.now_ms() - self.begun) // HOUR

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        connection = apsw.Connection(str(self._database), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(5000)
        try:
            yield connection
        finally:
            connection.close()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._reading() as connection:
            return connection.execute(sql, values).fetchall()

    def wait_until_idle(self, timeout: float = 60, why: Callable[[], str] = str) -> None:
        """Wait until no event is unread, and no run or message is due."""
        end = time.monotonic() + timeout
        # One second ahead, since a run may start between reading the clock and the query
        while not self.query(_IS_IDLE, self._clock.now_ms() + 1000)[0][0]:
            assert time.monotonic() < end, f"still not idle after {timeout} s: {self.pending_work()}\n{why()}"
            time.sleep(0.02)

    def pending_work(self) -> str:
        """Return a text about the work that is still to be done."""
        cursor = self.query("SELECT max(event_id), (SELECT max(id) FROM event) FROM cursor WHERE name = 'flows'")
        now = self._clock.now_ms()
        runs = self.query("SELECT id, flow_id, action_id, due_at - ? FROM run WHERE status = 'live'", now)
        mails = self.query(
            "SELECT id, flow_id, status, due_at - ? FROM message WHERE status IN ('queued', 'held', 'sending')", now
        )
        return f"cursor {cursor}, runs {runs[:20]}, messages {mails[:20]}"

    def outline(self, contact_id: int, flows: Iterable[int], names: Iterable[str], since: int) -> dict[str, Any]:
        """Return what is visible of a contact, in the terms of the interpreter; only events after the id `since`."""
        wanted = str(list(flows))
        with self._reading() as connection, connection:
            runs = []
            for number, flow, status, reason, step, visit in connection.execute(_RUNS, (contact_id, wanted)).fetchall():
                trail = connection.execute(_TRAIL, (number,)).fetchall()
                open_visits = [(row[0], self._hour(row[3])) for row in trail if row[1] is None]
                assert len(open_visits) == (visit is not None), (number, trail, visit)
                closed = tuple(
                    (*row[:3], self._hour(row[3]), self._hour(row[4])) for row in trail if row[1] is not None
                )
                assert not open_visits or open_visits[0][0] == step
                runs.append((flow, status, reason, closed, open_visits[0] if open_visits else None))
            mails = [
                (*row[:2], _STATUSES.get(row[2], row[2]), row[3])
                for row in connection.execute(_MAILS, (contact_id, wanted))
            ]
            marks = ", ".join(f"'{name}'" for name in names)
            past = Counter(connection.execute(
                f"SELECT event, chain_depth, data ->> 'flow_id' FROM event WHERE contact_id = ? AND id > ? "
                f"AND event IN ({marks})", (contact_id, since)
            ).fetchall())  # fmt: skip
            lists = connection.execute(
                "SELECT contact_list_id FROM membership WHERE contact_id = ?", (contact_id,)
            ).fetchall()
        return {
            "runs": sorted(runs, key=repr),
            "mails": sorted(mails, key=repr),
            "events": sorted(past.items(), key=repr),
            "lists": sorted(row[0] for row in lists),
        }

    def _hour(self, ms: int) -> int:
        return (ms - self.begun) // HOUR
