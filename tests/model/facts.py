"""What the appliance did, read from its database while it runs or is dead."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.kit.clock import TestClock

HOUR = 3_600_000
_OVER = """
SELECT NOT EXISTS (SELECT 1 FROM event e WHERE e.event IN (
    SELECT t.event FROM trigger t JOIN flow f ON f.id = t.flow_id WHERE f.status = 'active' AND f.deleted_at IS NULL
    UNION SELECT goal FROM flow WHERE deleted_at IS NULL
) AND e.id > (SELECT coalesce(max(event_id), 0) FROM cursor WHERE name = 'flows'))
AND NOT EXISTS (SELECT 1 FROM flow WHERE pending_end NOT NULL)
AND NOT EXISTS (SELECT 1 FROM run r JOIN flow f ON f.id = r.flow_id
                WHERE r.status = 'live' AND f.status = 'active' AND f.deleted_at IS NULL AND r.due_at <= ?1)
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
_GONE = {"sent": "sent", "delivered": "sent"}


class Facts:
    """Reads what is true; hours are counted from the moment at which it was made."""

    def __init__(self, database: Path, clock: TestClock) -> None:
        self._database, self._clock = database, clock
        # The minute before keeps what happens now within the hour 0
        self._begun = clock.now_ms() - 60_000

    @property
    def hour(self) -> int:
        """The hour that the clock shows."""
        return (self._clock.now_ms() - self._begun) // HOUR

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        here = apsw.Connection(str(self._database), flags=apsw.SQLITE_OPEN_READONLY)
        here.set_busy_timeout(5000)
        try:
            yield here
        finally:
            here.close()

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask the database."""
        with self._reading() as here:
            return here.execute(sql, values).fetchall()

    def wait_until_over(self, timeout: float = 60, why: Callable[[], str] = str) -> None:
        """Wait until no event is unread, no run and no message due."""
        end = time.monotonic() + timeout
        # A second ahead, for a run may begin between this look at the clock and that at the rows
        while not self.ask(_OVER, self._clock.now_ms() + 1000)[0][0]:
            assert time.monotonic() < end, f"still not at rest after {timeout} s: {self.left()}\n{why()}"
            time.sleep(0.02)

    def left(self) -> str:
        """Return what is still to be done."""
        cursor = self.ask("SELECT max(event_id), (SELECT max(id) FROM event) FROM cursor WHERE name = 'flows'")
        now = self._clock.now_ms()
        runs = self.ask("SELECT id, flow_id, action_id, due_at - ? FROM run WHERE status = 'live'", now)
        mails = self.ask(
            "SELECT id, flow_id, status, due_at - ? FROM message WHERE status IN ('queued', 'held', 'sending')", now
        )
        return f"cursor {cursor}, runs {runs[:20]}, messages {mails[:20]}"

    def outline(self, contact_id: int, flows: Iterable[int], names: Iterable[str], since: int) -> dict[str, Any]:
        """Return what can be seen of a person, in the words of the interpreter; events are those after an id."""
        wanted = str(list(flows))
        with self._reading() as here, here:
            runs = []
            for number, flow, status, reason, step, passage in here.execute(_RUNS, (contact_id, wanted)).fetchall():
                trail = here.execute(_TRAIL, (number,)).fetchall()
                open_ones = [(one[0], self._hour(one[3])) for one in trail if one[1] is None]
                assert len(open_ones) == (passage is not None), (number, trail, passage)
                closed = tuple(
                    (*one[:3], self._hour(one[3]), self._hour(one[4])) for one in trail if one[1] is not None
                )
                assert not open_ones or open_ones[0][0] == step
                runs.append((flow, status, reason, closed, open_ones[0] if open_ones else None))
            mails = [
                (*one[:2], _GONE.get(one[2], one[2]), one[3]) for one in here.execute(_MAILS, (contact_id, wanted))
            ]
            marks = ", ".join(f"'{name}'" for name in names)
            past = Counter(here.execute(
                f"SELECT event, chain_depth, data ->> 'flow_id' FROM event WHERE contact_id = ? AND id > ? "
                f"AND event IN ({marks})", (contact_id, since)
            ).fetchall())  # fmt: skip
            lists = here.execute(
                "SELECT contact_list_id FROM membership WHERE contact_id = ?", (contact_id,)
            ).fetchall()
        return {
            "runs": sorted(runs, key=repr),
            "mails": sorted(mails, key=repr),
            "events": sorted(past.items()),
            "lists": sorted(one[0] for one in lists),
        }

    def _hour(self, ms: int) -> int:
        return (ms - self._begun) // HOUR
