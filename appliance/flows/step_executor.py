"""Takes runs of one version through its steps, as far as they go at this moment, inside the running transaction.

A rehearsal takes the same way: here is nothing but rows, this thread's connection and the clock.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import apsw

from appliance.db.disk_guard import storage_error
from appliance.db.open import connection
from appliance.db.work import writing
from appliance.events import log as events
from appliance.flows import run_ends
from appliance.flows.plan import Plan
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.kind import Going, Here, Move, Node, left

log = logging.getLogger("campanero.flows")
# Sees where each run goes from each step; a rehearsal tells of it
Watch = Callable[[Node, Going, Move], None]

_CLOSED = (
    "INSERT INTO passage (run_id, flow_id, action_id, test, entered_at, left_at, outcome, reason) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_LEFT = "UPDATE passage SET left_at = ?, outcome = ?, reason = ? WHERE id = ?"
_OPENED = "INSERT INTO passage (run_id, flow_id, action_id, test, entered_at) VALUES (?, ?, ?, ?, ?) RETURNING id"
_STANDS = "UPDATE run SET action_id = ?, passage_id = ?, due_at = ?, updated_at = ? WHERE id = ?"
_STOOD = "UPDATE run SET action_id = ? WHERE id = ?"


class Travel:
    """One stretch of the way of some runs; `go` it once, then `save` it in the same transaction."""

    def __init__(self, plan: Plan, here: Here, watch: Watch | None = None) -> None:
        self._plan, self._here, self._watch = plan, here, watch
        self._standing: dict[int, list[Going]] = {}  # by step: those who go on in this stretch
        self._closed: list[tuple[object, ...]] = []
        self._left: list[tuple[object, ...]] = []
        self._waiting: list[Going] = []
        self._ended: dict[tuple[run_ends.Ended, str | None], list[Going]] = {}

    def go(self, goings: Sequence[Going], until: float | None = None) -> None:
        """Take runs on until each waits or has ended, or until that moment of `time.perf_counter`."""
        writing()
        for going in goings:
            self._stand(going, going.action_id)
        # Every way leads to a step that stands behind in the document, so each is done once for all who come to it
        for node in self._plan.nodes.values():
            come = self._standing.pop(node.id, None)
            if come is None:
                continue
            for going, move in self._done(node, come, until):
                self._follow(node, going, move)
            if not self._standing or _is_over(until):
                break

    def save(self) -> None:
        """Write where everybody stands now, what they passed, and who has ended."""
        writing()
        here, now = connection(), self._here.now
        here.executemany(_LEFT, self._left)
        here.executemany(_CLOSED, self._closed)
        come = [one for one in self._waiting if one.passage_id is None]
        opened = here.executemany(_OPENED, [(one.id, one.flow_id, one.action_id, one.test, now) for one in come])
        for going, (passage_id,) in zip(come, opened.fetchall(), strict=True):
            going.passage_id = passage_id
        stopped = [one for goings in self._standing.values() for one in goings]
        here.executemany(
            _STANDS,
            [(one.action_id, one.passage_id, one.due_at, now, one.id) for one in [*self._waiting, *stopped]],
        )
        for (status, reason), goings in self._ended.items():
            here.executemany(_STOOD, [(one.action_id, one.id) for one in goings])
            run_ends.end([one.id for one in goings], status, reason, now)

    def _stand(self, going: Going, action_id: int | None) -> None:
        """Let a run stand at its next step; behind the last one it is completed."""
        if action_id is None:
            self._end(going, "completed", None)
        elif going.contact_id is None:
            going.action_id = action_id
            self._end(going, "exited", "contact_deleted")
        elif action_id not in self._plan.nodes:
            log.error("run %s of flow %s stands at step %s, which is none", going.id, going.flow_id, action_id)
            self._end(going, "exited", "failed")
        else:
            going.action_id = action_id
            self._standing.setdefault(action_id, []).append(going)

    def _end(self, going: Going, status: run_ends.Ended, reason: str | None) -> None:
        self._ended.setdefault((status, reason), []).append(going)

    def _follow(self, node: Node, going: Going, move: Move) -> None:
        if self._watch is not None:
            self._watch(node, going, move)
        now = self._here.now
        if move.to == "wait" and move.until > now:
            going.due_at = move.until
            self._waiting.append(going)
            return
        outcome = move.outcome or "on"
        if going.passage_id is not None:
            self._left.append((now, outcome, move.reason, going.passage_id))
            going.passage_id = None
        else:
            self._closed.append((going.id, going.flow_id, node.id, going.test, now, now, outcome, move.reason))
        going.due_at = now
        if move.to == "exit":
            self._end(going, "exited", move.reason)
        else:
            self._stand(going, {"yes": node.yes, "no": node.no}.get(move.to, node.next))

    def _done(self, node: Node, goings: list[Going], until: float | None) -> list[tuple[Going, Move]]:
        """Do a step for all who stand at it; what it records stands one deeper than what started them, tests apart."""
        goings.sort(key=_chain)
        done: list[tuple[Going, Move]] = []
        for (depth, test), some in groupby(goings, key=_chain):
            together = list(some)
            size = BY_TYPE[node.kind].at_once or len(together)
            # All inside: whatever becomes of the others, what this thread records next is not of this chain
            with events.chained(depth + 1, test):
                for start in range(0, len(together), size):
                    if start and _is_over(until):
                        self._stay(node, together[start:])
                        break
                    part = together[start : start + size]
                    moves = _tried(node, part, self._here)
                    done += zip(part, moves, strict=True) if moves else self._singly(node, part, until)
        return done

    def _stay(self, node: Node, goings: list[Going]) -> None:
        """Let some stand at a step for another time."""
        self._standing[node.id] = goings + self._standing.get(node.id, [])

    def _singly(self, node: Node, goings: list[Going], until: float | None) -> Iterator[tuple[Going, Move]]:
        """Do a step that fails for some for each alone: only whoever fails then ends here.

        That takes longer, so whoever comes after that moment stands here for another time.
        """
        for number, going in enumerate(goings):
            if number and _is_over(until):
                return self._stay(node, goings[number:])
            moves = _tried(node, [going], self._here)
            if not moves:
                log.error("run %s of flow %s failed at step %s", going.id, going.flow_id, node.id)
            yield going, moves[0] if moves else left("failed")


def _chain(going: Going) -> tuple[int, bool]:
    return going.chain_depth, bool(going.test)


def _is_over(until: float | None) -> bool:
    return until is not None and time.perf_counter() > until


def _tried(node: Node, goings: list[Going], here: Here) -> list[Move]:
    """Do a step for runs; nothing of it is done where that fails, and no move is answered."""
    try:
        with _undone_if_it_fails():
            moves = BY_TYPE[node.kind].run(node, goings, here)
            if len(moves) != len(goings):
                raise RuntimeError(f"{len(moves)} moves of {len(goings)} runs")
            return moves
    except Exception as error:
        if storage_error(error) is not None or not connection().in_transaction:
            raise  # nobody's fault who is on the way: all of this is tried again
        log.warning("step %s of flow %s failed for %s runs", node.id, here.flow_id, len(goings), exc_info=error)
        return []


@contextmanager
def _undone_if_it_fails() -> Iterator[None]:
    here = connection()
    here.execute("SAVEPOINT step")
    try:
        yield
    except BaseException:
        _undo(here)
        raise
    here.execute("RELEASE step")


def _undo(here: apsw.Connection) -> None:
    if here.in_transaction:
        here.execute("ROLLBACK TO step")
        here.execute("RELEASE step")
