"""The events `segment_enter` and `segment_exit`, for the segments that start a flow or are sent to a webhook.

Filters decide who is in a segment, so nothing is recorded at the moment when that changes. Instead, a segment is
compared with its stored members about a minute after data has changed; a large one less often, so that checks take at
most a tenth of the time. Contacts who are in the segment when the watch begins, or right after its filters were edited,
get no event.
"""

import json
import logging
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple

from appliance.audience.filters import compiler
from appliance.audience.segments import members, store
from appliance.audience.segments.condition_budget import MAX_SEGMENT, ConditionsTooSlow
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.core.limited_process import FairShares
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.flows.condition_limits import Budget, pause_slow_flow
from appliance.flows.triggers import SEGMENT_EVENTS
from appliance.storage import database, transactions
from appliance.storage.database import connection, rows, run, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.models import Segment
from appliance.storage.transactions import require_write_transaction
from appliance.webhooks import subscriptions as webhooks

log = logging.getLogger("campanero.flows")

CHECK_INTERVAL_SECONDS, _REST_FACTOR = 60.0, 10
_EVENT_BATCH_SIZE, _MEMBER_BATCH_SIZE = 100, 1_000

_SEGMENT_EVENT_NAMES = tuple(sorted(SEGMENT_EVENTS))

_SELECT_FLOW_SEGMENTS = (
    f"SELECT f.account_id, t.segment_id FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id "
    "WHERE f.status = 'active' AND f.hidden = 0 AND f.test = 0 AND f.deleted_at IS NULL "
    f"AND t.event IN {_SEGMENT_EVENT_NAMES} AND t.segment_id IS NOT NULL"
)

_SELECT_FLOWS_OF_SEGMENT = (
    "SELECT f.id FROM trigger t CROSS JOIN flow f ON f.id = t.flow_id WHERE t.segment_id = ? "
    f"AND t.event IN {_SEGMENT_EVENT_NAMES} AND f.status = 'active' AND f.hidden = 0 AND f.deleted_at IS NULL"
)


class _SegmentWatch(NamedTuple):
    """A watched segment; `definition` is the hash of the filters of its stored members, None if none are stored."""

    account_id: int
    segment_id: int
    definition: str | None


class _LastCheck(NamedTuple):
    at: float  # `clock.monotonic`
    newest: int  # id of the last event before the check; later events may have caused a change
    took: float  # seconds
    version: tuple[int, int]  # data version of the database, and writes of the checking thread's connection


class _Cause(NamedTuple):
    """The events of a contact since the last check: their greatest chain depth, and whether all of them were quiet."""

    depth: int
    quiet: bool


_last_checks: dict[int, _LastCheck] = {}
# The segments that `is_segment_check_due` found due, by id, with the data version that its connection saw. Data
# versions of different connections cannot be compared.
_due_segments: dict[int, tuple[int, int]] = {}
# When a segment whose check failed is tried again (`clock.monotonic`), by segment id.
_segment_retry_at: dict[int, float] = {}
_segment_lock = threading.Lock()
_shares = FairShares()


def is_segment_check_due() -> bool:
    """Return whether any segment must be checked, or any watch started or stopped; store the ids of due segments.

    Call it once a second, always on the same thread, because it compares data versions of the thread's connection.
    """
    watched = _load_watches()
    if {watch[:2] for watch in watched} != _load_wanted_segments():
        return True
    for watch in watched:
        version = (database.data_version(), int(connection().total_changes()))
        if watch.segment_id not in _due_segments and _is_segment_due(watch, version):
            _due_segments[watch.segment_id] = version
    return bool(_due_segments)


def check_segments() -> None:
    """Start and stop watches, and check new watches and the segments that `is_segment_check_due` found due.

    The accounts take turns, so that one with many slow segments delays another account by one segment only. Returns at
    once if another thread is checking. A segment that fails is logged and checked again after `CHECK_INTERVAL_SECONDS`;
    if its check costs too much, its flows are paused. Raises Unavailable and storage errors.
    """
    if not _segment_lock.acquire(blocking=False):
        return
    try:
        _update_watches()
        watched = _load_watches()
        _forget_unwatched({watch.segment_id for watch in watched})
        due = [watch for watch in watched if _is_check_due(watch)]
        while due:
            account_id = _shares.next({watch.account_id for watch in due})
            watch = next(watch for watch in due if watch.account_id == account_id)
            due.remove(watch)
            started_at, newest_event = monotonic(), int(scalar("SELECT max(id) FROM event") or 0)
            since, is_done = _get_start_event(watch), False
            try:
                is_done = check_segment(watch, since)
            except ConditionsTooSlow:
                rest = max(CHECK_INTERVAL_SECONDS, (monotonic() - started_at) * _REST_FACTOR)
                _segment_retry_at[watch.segment_id] = clock.monotonic() + rest
                log.warning("flows: segment check cost too much segment=%s", watch.segment_id)
                for (flow_id,) in rows(_SELECT_FLOWS_OF_SEGMENT, (watch.segment_id,)):
                    transactions.write(pause_slow_flow, flow_id)
            except Exception as error:
                if isinstance(error, Unavailable) or to_storage_error(error) is not None:
                    raise
                _segment_retry_at[watch.segment_id] = clock.monotonic() + CHECK_INTERVAL_SECONDS
                log.exception("flows: segment check failed segment=%s", watch.segment_id)
            finally:
                # After a failure the segment is due again even without any write, and starts from the same event.
                version, seconds = _due_segments.pop(watch.segment_id, (0, 0)), monotonic() - started_at
                since, version = (newest_event, version) if is_done else (since, (0, 0))
                _last_checks[watch.segment_id] = _LastCheck(clock.monotonic(), since, seconds, version)
                _shares.charge(account_id, seconds)
    finally:
        _segment_lock.release()


def _is_check_due(watch: _SegmentWatch) -> bool:
    """Return whether a segment was found due, or is new and has not just failed."""
    is_new = watch.definition is None and not _is_segment_resting(watch.segment_id)
    return is_new or watch.segment_id in _due_segments


def _get_start_event(watch: _SegmentWatch) -> int:
    """Return the id of the last event before the last complete check of a segment.

    In a new process, return the id of the last event that is older than `CHECK_INTERVAL_SECONDS`.
    """
    last_check = _last_checks.get(watch.segment_id)
    if last_check is not None:
        return last_check.newest
    since_ms = clock.now_ms() - int(CHECK_INTERVAL_SECONDS * 1000)
    first_event = scalar(
        "SELECT min(id) FROM event WHERE account_id = ? AND created_at >= ?", (watch.account_id, since_ms)
    )
    return int(first_event) - 1 if first_event is not None else int(scalar("SELECT max(id) FROM event") or 0)


def _forget_unwatched(watched: set[int]) -> None:
    """Delete what is stored in memory about the checks of segments that are no longer watched."""
    for memory in (_last_checks, _due_segments, _segment_retry_at):
        for segment_id in [*memory]:
            if segment_id not in watched:
                memory.pop(segment_id, None)


def _is_segment_due(watch: _SegmentWatch, version: tuple[int, int]) -> bool:
    last_check = _last_checks.get(watch.segment_id)
    if _is_segment_resting(watch.segment_id):
        return False
    if watch.definition is None or last_check is None:
        return True
    if clock.monotonic() - last_check.at < max(CHECK_INTERVAL_SECONDS, last_check.took * _REST_FACTOR):
        return False
    # Without writes, the members can only have changed through filters that depend on the current time.
    return last_check.version != version or bool(
        rows("SELECT 1 FROM segment WHERE account_id = ? AND filters LIKE '%within_days%' LIMIT 1", (watch.account_id,))
    )


def _is_segment_resting(segment_id: int) -> bool:
    return _segment_retry_at.get(segment_id, 0.0) > clock.monotonic()


def _load_watches() -> list[_SegmentWatch]:
    return [
        _SegmentWatch(*row)
        for row in rows("SELECT account_id, segment_id, definition FROM segment_watch ORDER BY segment_id")
    ]


def _load_wanted_segments() -> set[tuple[Any, ...]]:
    """Return (account id, segment id) of the segments that must be watched.

    They are the segments that trigger active flows, and all segments of accounts with a webhook for segment events.
    """
    segments = set(rows(_SELECT_FLOW_SEGMENTS))
    for account_id in webhooks.fetch_accounts_watching_segments():
        segments |= set(rows("SELECT account_id, id FROM segment WHERE account_id = ?", (account_id,)))
    return segments


def _update_watches() -> None:
    """Start the watches that a flow or webhook needs, and delete all other watches with their stored members."""
    wanted_segments, current = _load_wanted_segments(), {watch[:2] for watch in _load_watches()}
    for account_id, segment_id in sorted(wanted_segments - current):
        transactions.write(_start_watch, account_id, segment_id)
    for _, segment_id in sorted(current - wanted_segments):
        # The definition is deleted first, so that a watch that is needed again meanwhile starts over.
        transactions.write(run, "UPDATE segment_watch SET definition = NULL WHERE segment_id = ?", (segment_id,))
        while transactions.write(_delete_members, segment_id):
            pass


def _start_watch(account_id: int, segment_id: int) -> None:
    require_write_transaction()
    run(
        "INSERT INTO segment_watch (account_id, segment_id, created_at) "
        "SELECT account_id, id, ? FROM segment WHERE account_id = ? AND id = ? ON CONFLICT DO NOTHING",
        (clock.now_ms(), account_id, segment_id),
    )


def _delete_members(segment_id: int) -> int:
    """Delete a batch of a segment's stored members and return their number; if none are left, delete the watch."""
    require_write_transaction()
    deleted = run(
        "DELETE FROM segment_member WHERE (segment_id, contact_id) IN "
        "(SELECT segment_id, contact_id FROM segment_member WHERE segment_id = ? LIMIT ?)",
        (segment_id, _MEMBER_BATCH_SIZE),
    )
    if not deleted:
        run("DELETE FROM segment_watch WHERE segment_id = ? AND definition IS NULL", (segment_id,))
    return deleted


def check_segment(watch: _SegmentWatch, since: int) -> bool:
    """Compare a segment with its stored members, store the differences, and record an event for each of them.

    If the filters are new, the members are stored without events. The contact's events with an id above `since` are
    taken as the cause of a change. Returns False if a segment of the account was edited meanwhile; then the check must
    be repeated.
    """
    changed_at = _get_segments_changed_at(watch.account_id)
    definition = store.hash_definition(watch.account_id, watch.segment_id)
    is_same = watch.definition == definition
    if not is_same and watch.definition is not None:
        transactions.write(run, "UPDATE segment_watch SET definition = NULL WHERE segment_id = ?", (watch.segment_id,))
    joining, leaving = _find_differences(watch)
    name = str(scalar("SELECT name FROM segment WHERE id = ?", (watch.segment_id,)))
    size = _EVENT_BATCH_SIZE if is_same else _MEMBER_BATCH_SIZE
    for event, ids in (("segment_enter", joining), ("segment_exit", leaving)):
        for start in range(0, len(ids), size):
            batch = ids[start : start + size]
            causes = _find_causes(batch, since) if is_same else {}
            if not transactions.write(
                _save_changes, watch, changed_at, event, batch, name if is_same else None, causes
            ):
                return False
    if not is_same:
        transactions.write(_save_definition, watch, changed_at, definition)
    return True


def _get_segments_changed_at(account_id: int) -> int:
    return int(scalar("SELECT max(updated_at) FROM segment WHERE account_id = ?", (account_id,)) or 0)


def _find_differences(watch: _SegmentWatch) -> tuple[list[int], list[int]]:
    scope = members.build_scope(watch.account_id)
    nodes = compiler.parse_filters(Segment.get_by_id(watch.segment_id).filters, scope)
    selection = members.select_members(watch.account_id, nodes, scope)
    condition = compiler.compile_filters(nodes, scope)
    budget = Budget(MAX_SEGMENT, MAX_SEGMENT)
    with transactions.snapshot():
        with budget.charge(watch.segment_id):
            joining = rows(
                f"SELECT c.id {selection.sql} AND NOT EXISTS "
                "(SELECT 1 FROM segment_member m WHERE m.segment_id = :segment AND m.contact_id = c.id) ORDER BY c.id",
                {**selection.parameters, "segment": watch.segment_id},
            )
        with budget.charge(watch.segment_id):
            leaving = rows(
                f"SELECT m.contact_id FROM segment_member m CROSS JOIN contact c ON c.id = m.contact_id "
                f"WHERE m.segment_id = :segment AND ({condition.sql}) IS NOT TRUE ORDER BY c.id",
                {**condition.parameters, "segment": watch.segment_id},
            )
    return [row[0] for row in joining], [row[0] for row in leaving]


def _save_changes(
    watch: _SegmentWatch,
    changed_at: int,
    event: str,
    contact_ids: Sequence[int],
    name: str | None,
    causes: dict[int, _Cause],
) -> bool:
    """Store a batch of contacts that entered or left a segment; also record events if the segment's `name` is given.

    Return False, and store nothing, if a segment of the account has been edited since `changed_at`, or if this segment
    is no longer watched.
    """
    require_write_transaction()
    if _get_segments_changed_at(watch.account_id) != changed_at or not scalar(
        "SELECT 1 FROM segment_watch WHERE segment_id = ?", (watch.segment_id,)
    ):
        return False
    parameters = {"id": watch.segment_id, "ids": json.dumps(list(contact_ids))}
    if event == "segment_enter":
        changed = rows(
            "INSERT INTO segment_member (segment_id, contact_id) SELECT :id, c.id FROM contact c "
            "WHERE c.id IN (SELECT value FROM json_each(:ids)) ON CONFLICT DO NOTHING RETURNING contact_id",
            parameters,
        )
    else:
        changed = rows(
            "DELETE FROM segment_member WHERE segment_id = :id AND contact_id IN (SELECT value FROM "
            "json_each(:ids)) RETURNING contact_id",
            parameters,
        )
    if name is not None:
        _record_segment_events(watch, event, [row[0] for row in changed], name, causes)
    return True


def _find_causes(contact_ids: Sequence[int], since: int) -> dict[int, _Cause]:
    """Return the possible cause of a change for each contact that has events with an id above `since`.

    Events are compared by id, not by time: a clock may be set back, and a click is recorded later than it happened.
    """
    cause_rows = rows(
        "SELECT e.contact_id, max(e.chain_depth), min(e.quiet) FROM json_each(?) one CROSS JOIN event e "
        "ON e.contact_id = one.value WHERE e.id > ? GROUP BY e.contact_id",
        (json.dumps(list(contact_ids)), since),
    )
    return {contact_id: _Cause(depth, bool(quiet)) for contact_id, depth, quiet in cause_rows}


def _record_segment_events(
    watch: _SegmentWatch, event: str, contact_ids: Sequence[int], name: str, causes: dict[int, _Cause]
) -> None:
    """Record an event for each contact, with the chain depth of its cause; the event is quiet if its cause is.

    The depth stops flows that start each other in a cycle.
    """
    cause_by_contact = {contact_id: causes.get(contact_id, _Cause(0, False)) for contact_id in contact_ids}
    events.record_many(
        [
            NewEvent(
                watch.account_id, event, contact_id, {"segment_id": watch.segment_id}, chain_depth=cause.depth,
                resource_uid=f"segment:{watch.segment_id}", resource_name=name, quiet=cause.quiet,
            )
            for contact_id, cause in cause_by_contact.items()
        ]
    )  # fmt: skip


def _save_definition(watch: _SegmentWatch, changed_at: int, definition: str) -> None:
    require_write_transaction()
    if _get_segments_changed_at(watch.account_id) == changed_at:
        run("UPDATE segment_watch SET definition = ? WHERE segment_id = ?", (definition, watch.segment_id))
