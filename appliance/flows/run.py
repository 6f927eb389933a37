"""Takes runs that are due from step to step, each effect in the transaction that moves the run.

So a step is done once, whatever dies: either its effects and the move are on disk, or neither is, and the run is still
due. Nothing waits in memory.
"""

import logging
import time
from collections.abc import Iterable

import msgspec

from appliance import clock
from appliance.db import work
from appliance.db.dialect.documents import among
from appliance.db.dialect.hints import aside
from appliance.db.open import one, rows
from appliance.db.work import writing
from appliance.errors import Unavailable
from appliance.flows import plan, run_ends
from appliance.flows.plan import Plan
from appliance.flows.step_executor import Travel, Watch
from appliance.flows.steps.kind import Going, Here

log = logging.getLogger("campanero.flows")
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
_BY_ID = f"SELECT {_GOING} FROM run WHERE id {among('?')} AND {aside('status')} = 'live'"
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
    flow = one(_ACTIVE.format(where="id = ?"), (flow_id,))
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
        travel = Travel(steps or plan.load(first.flow_id, version), here, watch)
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
