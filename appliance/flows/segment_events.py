"""`segment_enter` and `segment_exit`: who came into a watched segment and who went, told of by the difference.

Segments follow from rules, so nobody can be told of at the moment itself: those that a flow or a webhook asks about are
compared with who was in them before, a minute after people changed at the latest (large ones less often: a tenth of the
time at most). Whoever was in when the watch began, or is in since the segment asks something else, did not enter.
"""

import json
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.audience.filters import compile, read
from appliance.audience.segments import people, store
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.events.log import Happened
from appliance.flows.triggers import SEGMENT_EVENTS
from appliance.storage import sql, work
from appliance.storage.disk_guard import storage_error
from appliance.storage.models import Segment
from appliance.storage.open import connection, rows, run, scalar
from appliance.storage.work import writing
from appliance.webhooks import store as webhooks

log = logging.getLogger("campanero.flows")

EVERY_SECONDS, _SHARE = 60.0, 10
_TOLD_AT_ONCE, _KEPT_AT_ONCE = 100, 1_000
_NAMES = tuple(sorted(SEGMENT_EVENTS))

_OF_FLOWS = (
    f"SELECT f.account_id, t.segment_id FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id "
    f"WHERE f.status = 'active' AND f.hidden = 0 AND f.test = 0 AND f.deleted_at IS NULL AND t.event IN {_NAMES} "
    "AND t.segment_id IS NOT NULL"
)


class _Watch(NamedTuple):
    """A watched segment, and what it asked when its people were kept."""

    account_id: int
    segment_id: int
    asks: str | None


class _Look(NamedTuple):
    at: float  # `clock.steady`
    newest: int  # the last event before it; what came later may be why somebody came or went
    took: float
    version: tuple[int, int]


class _Cause(NamedTuple):
    """What happened to somebody meanwhile: how deep in a chain, and whether all of it starts nothing (an import)."""

    depth: int
    quiet: bool


_looked: dict[int, _Look] = {}
# Found due by the pulse, with the version its connection saw: other connections count in numbers of their own
_pending: dict[int, tuple[int, int]] = {}
# Those that could not be looked at, and until when they are left alone (`clock.steady`)
_failed: dict[int, float] = {}
_one_at_a_time = threading.Lock()


def is_due() -> bool:
    """Return whether some segment should be looked at now; called once a second, always from the same thread."""
    watched = _watched()
    if {one[:2] for one in watched} != _wanted():
        return True
    for watch in watched:
        version = (sql.changes_elsewhere(), int(connection().total_changes()))
        if watch.segment_id not in _pending and _is_due(watch, version):
            _pending[watch.segment_id] = version
    return bool(_pending)


def tend() -> None:
    """Begin and end watches, and look at the segments that were found due; a second caller leaves at once."""
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        _settle()
        watched = _watched()
        _forget_all_but({watch.segment_id for watch in watched})
        for watch in watched:
            known = watch.asks is not None or _rests(watch.segment_id)
            if known and watch.segment_id not in _pending:
                continue
            started, newest = time.monotonic(), int(scalar("SELECT max(id) FROM event") or 0)
            since, done = _since(watch), False
            try:
                done = look(watch, since)
            except Exception as error:
                if isinstance(error, Unavailable) or storage_error(error) is not None:
                    raise
                _failed[watch.segment_id] = clock.steady() + EVERY_SECONDS
                log.exception("segment %s cannot be looked at", watch.segment_id)
            finally:
                # One that was broken off is due again though nobody writes, and begins where it began
                version, took = _pending.pop(watch.segment_id, (0, 0)), time.monotonic() - started
                since, version = (newest, version) if done else (since, (0, 0))
                _looked[watch.segment_id] = _Look(clock.steady(), since, took, version)
    finally:
        _one_at_a_time.release()


def _since(watch: _Watch) -> int:
    """Return the last event before the last look that told of everybody; in a new process, one of a minute ago."""
    seen = _looked.get(watch.segment_id)
    if seen is not None:
        return seen.newest
    lately = clock.now_ms() - int(EVERY_SECONDS * 1000)
    first = scalar("SELECT min(id) FROM event WHERE account_id = ? AND created_at >= ?", (watch.account_id, lately))
    return int(first) - 1 if first is not None else int(scalar("SELECT max(id) FROM event") or 0)


def _forget_all_but(watched: set[int]) -> None:
    """Forget what is known of segments that nobody watches any more, or that are gone: none of them is due."""
    for known in (_looked, _pending, _failed):
        for segment_id in [*known]:
            if segment_id not in watched:
                known.pop(segment_id, None)


def _is_due(watch: _Watch, version: tuple[int, int]) -> bool:
    look = _looked.get(watch.segment_id)
    if _rests(watch.segment_id):
        return False
    if watch.asks is None or look is None:
        return True
    if clock.steady() - look.at < max(EVERY_SECONDS, look.took * _SHARE):
        return False
    # Where nobody wrote, only time itself can have changed who is in
    return look.version != version or bool(
        rows("SELECT 1 FROM segment WHERE account_id = ? AND filters LIKE '%within_days%' LIMIT 1", (watch.account_id,))
    )


def _rests(segment_id: int) -> bool:
    return _failed.get(segment_id, 0.0) > clock.steady()


def _watched() -> list[_Watch]:
    return [_Watch(*row) for row in rows("SELECT account_id, segment_id, asks FROM segment_watch ORDER BY segment_id")]


def _wanted() -> set[tuple[Any, ...]]:
    """Return the segments that active flows start by, and all of an account with a webhook that names these events."""
    found = set(rows(_OF_FLOWS))
    for account_id in webhooks.watching_segments():
        found |= set(rows("SELECT account_id, id FROM segment WHERE account_id = ?", (account_id,)))
    return found


def _settle() -> None:
    """Begin the watches that are wanted, and forget the people of those that are not."""
    wanted, watched = _wanted(), {one[:2] for one in _watched()}
    for account_id, segment_id in sorted(wanted - watched):
        work.write(_begin, account_id, segment_id)
    for _, segment_id in sorted(watched - wanted):
        # First that they are not all kept: a watch that begins again meanwhile begins anew
        work.write(run, "UPDATE segment_watch SET asks = NULL WHERE segment_id = ?", (segment_id,))
        while work.write(_forget, segment_id):
            pass


def _begin(account_id: int, segment_id: int) -> None:
    writing()
    run(
        "INSERT INTO segment_watch (account_id, segment_id, created_at) "
        "SELECT account_id, id, ? FROM segment WHERE account_id = ? AND id = ? ON CONFLICT DO NOTHING",
        (clock.now_ms(), account_id, segment_id),
    )


def _forget(segment_id: int) -> int:
    """Drop some of the people that were kept, and then the watch; returns how many there were."""
    writing()
    number = run(
        "DELETE FROM segment_member WHERE (segment_id, contact_id) IN "
        "(SELECT segment_id, contact_id FROM segment_member WHERE segment_id = ? LIMIT ?)",
        (segment_id, _KEPT_AT_ONCE),
    )
    if not number:
        run("DELETE FROM segment_watch WHERE segment_id = ? AND asks IS NULL", (segment_id,))
    return number


def look(watch: _Watch, since: int) -> bool:
    """Tell of everybody who came into a segment or went; those of a new question are kept and not told of.

    What happened `since` an event may be why. Says whether all were told of.
    """
    before = _changed_at(watch.account_id)
    asks = store.definition(watch.account_id, watch.segment_id)
    told = watch.asks == asks
    if not told and watch.asks is not None:
        work.write(run, "UPDATE segment_watch SET asks = NULL WHERE segment_id = ?", (watch.segment_id,))
    joining, leaving = _difference(watch)
    name = str(scalar("SELECT name FROM segment WHERE id = ?", (watch.segment_id,)))
    size = _TOLD_AT_ONCE if told else _KEPT_AT_ONCE
    for event, ids in (("segment_enter", joining), ("segment_exit", leaving)):
        for start in range(0, len(ids), size):
            part = ids[start : start + size]
            causes = _causes(part, since) if told else {}
            if not work.write(_move, watch, before, event, part, name if told else None, causes):
                return False  # it asks something else by now: begin again
    if not told:
        work.write(_kept, watch, before, asks)
    return True


def _changed_at(account_id: int) -> int:
    return int(scalar("SELECT max(updated_at) FROM segment WHERE account_id = ?", (account_id,)) or 0)


def _difference(watch: _Watch) -> tuple[list[int], list[int]]:
    here = people.scope(watch.account_id)
    nodes = read.filters(Segment.get_by_id(watch.segment_id).filters, here)
    chosen = people.select(watch.account_id, nodes, here)
    exact = compile.condition(nodes, here)
    with work.snapshot():
        joining = rows(
            f"SELECT c.id {chosen.sql} AND NOT EXISTS "
            "(SELECT 1 FROM segment_member m WHERE m.segment_id = :segment AND m.contact_id = c.id) ORDER BY c.id",
            {**chosen.parameters, "segment": watch.segment_id},
        )
        leaving = rows(
            f"SELECT m.contact_id FROM segment_member m CROSS JOIN contact c ON c.id = m.contact_id "
            f"WHERE m.segment_id = :segment AND ({exact.sql}) IS NOT TRUE ORDER BY c.id",
            {**exact.parameters, "segment": watch.segment_id},
        )
    return [row[0] for row in joining], [row[0] for row in leaving]


def _move(
    watch: _Watch, before: int, event: str, contact_ids: Sequence[int], name: str | None, causes: dict[int, _Cause]
) -> bool:
    """Keep that some came or went, with what is told of it if the segment has a `name`; no if it changed since."""
    writing()
    if _changed_at(watch.account_id) != before or not scalar(
        "SELECT 1 FROM segment_watch WHERE segment_id = ?", (watch.segment_id,)
    ):
        return False
    parameters = {"id": watch.segment_id, "ids": json.dumps(list(contact_ids))}
    if event == "segment_enter":
        moved = rows(
            "INSERT INTO segment_member (segment_id, contact_id) SELECT :id, c.id FROM contact c "
            "WHERE c.id IN (SELECT value FROM json_each(:ids)) ON CONFLICT DO NOTHING RETURNING contact_id",
            parameters,
        )
    else:
        moved = rows(
            "DELETE FROM segment_member WHERE segment_id = :id AND contact_id IN (SELECT value FROM "
            "json_each(:ids)) RETURNING contact_id",
            parameters,
        )
    if name is not None:
        _tell(watch, event, [row[0] for row in moved], name, causes)
    return True


def _causes(contact_ids: Sequence[int], since: int) -> dict[int, _Cause]:
    """Return what happened to some people since an event: that may be why they came or went.

    By the order of events and not by their time: a clock may be set back, and a click is told of after it was made.
    """
    found = rows(
        "SELECT e.contact_id, max(e.chain_depth), min(e.quiet) FROM json_each(?) one CROSS JOIN event e "
        "ON e.contact_id = one.value WHERE e.id > ? GROUP BY e.contact_id",
        (json.dumps(list(contact_ids)), since),
    )
    return {contact_id: _Cause(depth, bool(quiet)) for contact_id, depth, quiet in found}


def _tell(watch: _Watch, event: str, contact_ids: Sequence[int], name: str, causes: dict[int, _Cause]) -> None:
    """Tell of them: as deep in a chain as what caused it, for flows may lead in circles, and as quietly."""
    why = {contact_id: causes.get(contact_id, _Cause(0, False)) for contact_id in contact_ids}
    events.record_many(
        [
            Happened(
                watch.account_id, event, contact_id, {"segment_id": watch.segment_id}, chain_depth=cause.depth,
                resource_uid=f"segment:{watch.segment_id}", resource_name=name, quiet=cause.quiet,
            )
            for contact_id, cause in why.items()
        ]
    )  # fmt: skip


def _kept(watch: _Watch, before: int, asks: str) -> None:
    writing()
    if _changed_at(watch.account_id) == before:
        run("UPDATE segment_watch SET asks = ? WHERE segment_id = ?", (asks, watch.segment_id))
