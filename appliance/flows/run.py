"""Takes runs that are due from step to step, each effect in the transaction that moves the run.

So a step is done once, whatever dies: either its effects and the move are on disk, or neither is, and the run is still
due. Nothing waits in memory.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import apsw
import msgspec

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.flows import document, run_ends
from appliance.flows.document import Plan
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.kind import Going, Here, Move, Node, left
from appliance.storage import work
from appliance.storage.disk_guard import storage_error
from appliance.storage.open import connection, fetch_one, rows
from appliance.storage.work import writing

# Takes runs of one version through its steps, as far as they go at this moment, inside the running transaction.
#
# A rehearsal takes the same way: here is nothing but rows, this thread's connection and the clock.

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


# What one transaction should take of the writer, who serves everybody
_AIM_SECONDS = 0.012
_MAX_SECONDS = 0.02
_FEWEST, _FIRST, _MOST = 10, 50, 500
_MAX_KNOWN = 1_000
_ACTIVE = (
    "SELECT id, account_id, name, drop_before FROM flow WHERE {where} AND status = 'active' AND deleted_at IS NULL"
)
_IS_DUE = "EXISTS (SELECT 1 FROM run r WHERE r.flow_id = flow.id AND r.status = 'live' AND r.due_at <= ?)"
_GOING = (
    "id, account_id, flow_id, version, contact_id, event_id, event_data, chain_depth, test, created_at, action_id, "
    "passage_id, due_at"
)
_DUE = f"SELECT {_GOING} FROM run WHERE flow_id = ? AND status = 'live' AND due_at <= ? ORDER BY due_at, id LIMIT ?"
_BY_ID = f"SELECT {_GOING} FROM run WHERE id IN (SELECT value FROM json_each(?)) AND +status = 'live'"
_decode = msgspec.json.Decoder(dict).decode


class _Sizes:
    """How many runs of each flow are taken in one transaction, so that it lasts as long as it may."""

    def __init__(self) -> None:
        self._runs: dict[int, int] = {}

    def of(self, flow_id: int) -> int:
        """Return how many are taken next."""
        return self._runs.get(flow_id, _FIRST)

    def took(self, flow_id: int, taken: int, seconds: float) -> None:
        """Learn from a transaction; one that was not full says only that fewer would do."""
        size = self.of(flow_id)
        if seconds <= _AIM_SECONDS and taken < size:
            return
        if len(self._runs) >= _MAX_KNOWN:
            self._runs.clear()
        fitting = int(taken * _AIM_SECONDS / max(seconds, 0.0005))
        self._runs[flow_id] = min(max(fitting, size // 4, _FEWEST), size * 2, _MOST)


_sizes = _Sizes()


def advance() -> bool:
    """Take a bite of due runs of each flow as far as they go now; says if there were any."""
    moved = False
    for flow_id in due_flows():
        try:
            taken, seconds = work.write(take_on, flow_id, _sizes.of(flow_id))
        except Unavailable:
            raise
        except Exception:
            # Nothing of it was done. Others go on; the pulse will ask for this one again
            log.exception("the runs of flow %s cannot go on", flow_id)
            continue
        _sizes.took(flow_id, taken, seconds)
        moved = True
    return moved


def due_flows() -> list[int]:
    """Return the active flows that have due runs."""
    return [row[0] for row in rows(_ACTIVE.format(where=f"hidden = 0 AND {_IS_DUE}"), (clock.now_ms(),))]


def is_due() -> bool:
    """Return whether a run of an active flow is due."""
    return bool(rows(_ACTIVE.format(where=f"hidden = 0 AND {_IS_DUE}") + " LIMIT 1", (clock.now_ms(),)))


def take_on(flow_id: int, most: int) -> tuple[int, float]:
    """Take so many due runs of an active flow on; returns how many, and the seconds that it took."""
    writing()
    begun, now = time.perf_counter(), clock.now_ms()
    flow = fetch_one(_ACTIVE.format(where="id = ?"), (flow_id,))
    if flow is None:
        return 0, 0.0
    goings = [Going(*row) for row in rows(_DUE, (flow_id, now, most))]
    drop_before = flow[3] or 0
    late = [going.id for going in goings if going.due_at < drop_before]
    run_ends.end(late, "exited", "overdue_on_resume", now)
    on_time = [going for going in goings if going.due_at >= drop_before]
    _travel(on_time, flow[2], now, None, begun + _MAX_SECONDS)
    return len(goings), time.perf_counter() - begun


def go_on(run_ids: Iterable[int], flow_name: str, steps: Plan, watch: Watch | None = None) -> None:
    """Take live runs on at once, all of one version of a flow, whatever its state and theirs; for rehearsals."""
    writing()
    goings = [Going(*row) for row in rows(_BY_ID, (msgspec.json.encode(list(run_ids)).decode(),))]
    _travel(goings, flow_name, clock.now_ms(), watch, None, steps)


def _travel(
    goings: list[Going], flow_name: str, now: int, watch: Watch | None, until: float | None, steps: Plan | None = None
) -> None:
    by_version: dict[int, list[Going]] = {}
    unreadable = [going.id for going in goings if not _read(going)]
    run_ends.end(unreadable, "exited", "failed", now)
    for going in goings:
        if isinstance(going.event_data, dict):
            by_version.setdefault(going.version, []).append(going)
    for version, together in by_version.items():
        first = together[0]
        here = Here(first.account_id, first.flow_id, flow_name, version, now)
        travel = Travel(steps or document.load_plan(first.flow_id, version), here, watch)
        travel.go(together, until)
        travel.save()


def _read(going: Going) -> bool:
    """Read the data of the event that started a run; says whether that is possible."""
    try:
        going.event_data = _decode(going.event_data or "{}")  # type: ignore[arg-type]  # as it is stored
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.exception("what started run %s cannot be read", going.id)
        return False
    return True


# Whoever rings `flows` gets this: events become runs, due runs go on, until nothing is left to do.

# Each takes one bite of its work, in transactions of its own, and says whether it found any
Bite = Callable[[], bool]


class Tender:
    """Works on flows in one thread at a time; a ring meanwhile is answered by the one at work."""

    def __init__(self, bites: tuple[Bite, ...]) -> None:
        self.stopping = threading.Event()
        self._bites = bites
        self._working = threading.Lock()
        self._rung = threading.Event()

    def tend(self) -> None:
        """Work until there is nothing to do, or the process ends."""
        self._rung.set()
        while self._rung.is_set() and self._working.acquire(blocking=False):
            try:
                self._rung.clear()
                self._all()
            finally:
                self._working.release()

    def _all(self) -> None:
        able = list(self._bites)
        while not self.stopping.is_set():
            # Every kind of work gets its bite in each round, so that none waits for the end of another
            found = [self._bite(bite, able) for bite in self._bites if bite in able]
            if not any(found):
                return

    @staticmethod
    def _bite(bite: Bite, able: list[Bite]) -> bool:
        """Take a bite; a kind of work that breaks is left alone until somebody rings again."""
        try:
            return bite()
        except Exception as error:
            if isinstance(error, Unavailable) or storage_error(error) is not None:
                raise
            log.exception("a part of the work on flows cannot go on")
            able.remove(bite)
            return False
