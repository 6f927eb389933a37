"""Events that the service itself finds for triggers: `date_reached`, `segment_enter` and `segment_exit`.

`date_reached`: at the trigger's time of day, an event is recorded for each contact whose date is that day. The trigger
stores the last day that it has checked, and within a day the last contact, in the transaction that records the events,
so that no contact gets the event twice and none is missed if the process stops. A day that is late by more than
`limits.max_lateness` is skipped, but a day whose check has begun is finished.

`segment_enter`, `segment_exit`: filters decide who is in a segment, so nothing is recorded at the moment when that
changes. Segments that a flow or webhook listens to are therefore compared with their stored members about a minute
after data has changed, and large ones less often: checks take at most a tenth of the time. Contacts who are in the
segment when the watch begins, or right after its filters were edited, cause no event.
"""

import json
import logging
import threading
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from time import monotonic
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from appliance.audience.filters import compiler, parse
from appliance.audience.filters.fields import Binder
from appliance.audience.segments import members, store
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.flows import triggers
from appliance.flows.triggers import DATE, SEGMENT_EVENTS, TriggerSpec
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.storage import database, transactions
from appliance.storage.database import connection, rows, run, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.models import Segment
from appliance.storage.transactions import require_write_transaction
from appliance.webhooks import subscriptions as webhooks

log = logging.getLogger("campanero.flows")

_DAY = timedelta(days=1)


class DateQuery(NamedTuple):
    """A search for contacts with a date on `day`, in the account's time zone `zone`.

    A `yearly` search ignores the year, as for birthdays.
    """

    day: date
    yearly: bool
    zone: ZoneInfo


def get_due_moment(day: date, time_of_day: str, zone: ZoneInfo) -> int:
    """Return when it is `time_of_day` (`HH:MM`) on a day in a time zone, in Unix milliseconds."""
    hour, minute = time_of_day.split(":")
    return int(datetime.combine(day, time(int(hour), int(minute)), zone).timestamp() * 1000)


def get_last_due_day(now: int, time_of_day: str, zone: ZoneInfo) -> date:
    """Return today, or yesterday if `now` (Unix milliseconds) is before `time_of_day` (`HH:MM`) in the time zone."""
    today = datetime.fromtimestamp(now / 1000, zone).date()
    return today if get_due_moment(today, time_of_day, zone) <= now else today - _DAY


def compile_candidates(source: triggers.DateSource, query: DateQuery, binder: Binder) -> str:
    """Return an SQL condition on contact `c` that is true for all contacts whose date is on the day, and few others.

    `falls_on` decides which of them match. The neighbouring days are included, because a date stored as text with a UTC
    offset may be the day before or after in the account's time zone.
    """
    days = [query.day - _DAY, query.day, query.day + _DAY]
    if source.is_moment and not query.yearly:
        first, last = (datetime.combine(day, time(), query.zone) for day in (query.day, query.day + _DAY))
        bounds = [binder.add(int(day.timestamp() * 1000)) for day in (first, last)]
        return f"({source.sql} >= {bounds[0]} AND {source.sql} < {bounds[1]})"
    if not query.yearly:
        day_values = ", ".join(binder.add(day.isoformat()) for day in days)
        return f"substr({source.sql}, 1, 10) IN ({day_values})"
    ends = {f"{day:%m-%d}" for day in days}
    if "02-28" in ends or "03-01" in ends:
        ends.add("02-29")
    texts = ", ".join(binder.add(day) for day in sorted(ends))
    if source.is_moment:
        return f"strftime('%m-%d', {source.sql} / 1000, 'unixepoch') IN ({texts})"
    # Birthdays are also stored without a year: 05-12, or --05-12 as in address books.
    return (
        f"(substr({source.sql}, 6, 5) IN ({texts}) OR {source.sql} IN ({texts}) "
        f"OR (substr({source.sql}, 1, 2) = '--' AND substr({source.sql}, 3) IN ({texts})))"
    )


def falls_on(value: Any, query: DateQuery) -> bool:
    """Return whether a date is on the day of the query.

    `value` is text, with or without a time or a year, or Unix milliseconds. In a yearly query, a date that is later
    than the day does not match, and a time in Unix milliseconds matches from the following year on. A value that is no
    date does not match.
    """
    if isinstance(value, str) and query.yearly and len(value.removeprefix("--")) == 5:
        return _is_same_day(f"2000-{value.removeprefix('--')}", query.day)
    day = _parse_day(value, query.zone)
    if day is None:
        return False
    if not query.yearly:
        return day == query.day
    if isinstance(value, int) and day.year >= query.day.year:
        return False
    return day <= query.day and _is_same_day(day.isoformat(), query.day)


def _is_same_day(text: str, day: date) -> bool:
    """Return whether an ISO date has the month and day of `day`; 29 February is 28 February in common years."""
    month_day = text[5:]
    if month_day == "02-29" and not _is_leap(day.year):
        month_day = "02-28"
    return month_day == f"{day:%m-%d}"


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _parse_day(value: Any, zone: ZoneInfo) -> date | None:
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value / 1000, zone).date()
        if not isinstance(value, str):
            return None
        if len(value) == 10:
            return date.fromisoformat(value)
        moment = datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        return None
    return (moment if moment.tzinfo is None else moment.astimezone(zone)).date()


_DATE_BATCH_SIZE = 200
# If the stored day is further ahead than this, it was stored under a wrong clock and the scan starts over. A day that
# is ahead by less may only mean that the clock was corrected.
_MAX_AHEAD = timedelta(days=7)


class _DateTrigger(NamedTuple):
    """A date trigger of an active flow; `scanned` is its `_ScanState` as JSON, or None before the first check."""

    id: int
    account_id: int
    flow_id: int
    flow_name: str
    zone: ZoneInfo
    spec: TriggerSpec
    scanned: str | None

    @property
    def time_of_day(self) -> str:
        """Return the time of day at which the trigger is due, as `HH:MM`."""
        return str(self.spec.data.get("at") or triggers.DEFAULT_TIME_OF_DAY)

    @property
    def query(self) -> list[Any]:
        """Return [path of the date, yearly, offset in days]; if one of them changes, the scan starts over."""
        data = self.spec.data
        return [data.get("path"), bool(data.get("yearly")), data.get("offset_days") or 0]


class _ScanState(msgspec.Struct):
    """How far a trigger has scanned.

    `asks` is the trigger's `query` for which it scanned, and `day` the last day that was checked completely. While the
    following day is being checked, `contact` is the id of the last contact checked.
    """

    asks: list[Any]
    day: date
    contact: int | None = None


# By trigger id: when a trigger whose check failed is tried again (`clock.monotonic`).
_date_retry_at: dict[int, float] = {}
_DATE_RETRY_SECONDS = 60.0


def is_date_check_due() -> bool:
    """Return whether any date trigger has a day to check."""
    now = clock.now_ms()
    return any(_get_next_day(trigger, _get_scan_state(trigger), now) is not None for trigger in _load_date_triggers())


def check_dates() -> bool:
    """Check the next batch of contacts for each date trigger that has a day to check; return whether any has.

    A trigger that fails is logged and tried again after `_DATE_RETRY_SECONDS`. Raises Unavailable and storage errors.
    """
    now, has_checked = clock.now_ms(), False
    for trigger in _load_date_triggers():
        state = _get_scan_state(trigger)
        day = _get_next_day(trigger, state, now)
        if day is None:
            continue
        try:
            if state is None or _starts_over(trigger, state, now):
                _save_scan_state(
                    trigger, _ScanState(trigger.query, get_last_due_day(now, trigger.time_of_day, trigger.zone)), []
                )
            else:
                _check_day(trigger, state, day, now)
            has_checked = True
        except Exception as error:
            # A trigger that fails must not block other flows.
            if isinstance(error, Unavailable) or to_storage_error(error) is not None:
                raise
            _date_retry_at[trigger.id] = clock.monotonic() + _DATE_RETRY_SECONDS
            log.exception("flows: date check failed flow=%s", trigger.flow_id)
    return has_checked


def _load_date_triggers() -> list[_DateTrigger]:
    trigger_rows = rows(
        "SELECT t.id, f.account_id, f.id, f.name, a.time_zone, t.segment_id, t.contact_list_id, t.data, t.scanned "
        f"FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id JOIN account a ON a.id = f.account_id "
        f"WHERE f.status = 'active' AND f.hidden = 0 AND f.test = 0 AND f.deleted_at IS NULL AND t.event = '{DATE}'"
    )
    return [
        _DateTrigger(
            trigger_id,
            account_id,
            flow_id,
            name,
            ZoneInfo(zone),
            TriggerSpec(DATE, segment_id, list_id, spec_data),
            scanned,
        )
        for trigger_id, account_id, flow_id, name, zone, segment_id, list_id, data, scanned in trigger_rows
        if (spec_data := msgspec.json.decode(data)).get("path")
        and _date_retry_at.get(trigger_id, 0.0) <= clock.monotonic()
    ]


def _get_scan_state(trigger: _DateTrigger) -> _ScanState | None:
    return None if trigger.scanned is None else msgspec.json.decode(trigger.scanned, type=_ScanState)


def _starts_over(trigger: _DateTrigger, state: _ScanState, now: int) -> bool:
    """Return whether a scan starts over, because the trigger's query has changed or the stored day is far ahead."""
    return (
        state.asks != trigger.query or state.day > get_last_due_day(now, trigger.time_of_day, trigger.zone) + _MAX_AHEAD
    )


def _get_next_day(trigger: _DateTrigger, state: _ScanState | None, now: int) -> date | None:
    """Return the day to check now, or None if the next day is not due; a new scan begins with the last due day."""
    if state is None or _starts_over(trigger, state, now):
        return get_last_due_day(now, trigger.time_of_day, trigger.zone)
    day = state.day + _DAY
    return day if get_due_moment(day, trigger.time_of_day, trigger.zone) <= now else None


def _check_day(trigger: _DateTrigger, state: _ScanState, day: date, now: int) -> None:
    latest = now - int(parse_seconds(config.current().limits.max_lateness) * 1000)
    if state.contact is None and get_due_moment(day, trigger.time_of_day, trigger.zone) < latest:
        # All missed days are skipped at once, up to the last one that is too late.
        last_missed = max(day, get_last_due_day(latest, trigger.time_of_day, trigger.zone))
        log.warning(
            "flows: dates missed while the service was down flow=%s from=%s to=%s", trigger.flow_id, day, last_missed
        )
        _save_scan_state(trigger, _ScanState(trigger.query, last_missed), [])
        return
    happened, last = _find_contacts(trigger, state, day)
    has_more = last is not None
    _save_scan_state(trigger, _ScanState(trigger.query, state.day if has_more else day, last), happened)


def _find_contacts(trigger: _DateTrigger, state: _ScanState, day: date) -> tuple[list[NewEvent], int | None]:
    """Return (events, id of the last contact) for the next batch of contacts of a day.

    The id is None if no contacts are left after the batch.
    """
    path, yearly, offset = trigger.query
    source = triggers.find_date_source(path)
    if source is None:
        return [], None
    query = DateQuery(day - timedelta(days=offset), yearly, trigger.zone)
    binder = Binder("d", triggers.get_condition_scope(trigger.account_id))
    parts = [compile_candidates(source, query, binder)]
    values = binder.values
    if trigger.spec.contact_list_id is not None:
        parts.append("EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = :list AND m.contact_id = c.id)")
    if trigger.spec.segment_id is not None:
        segment = members.compile_segment(trigger.account_id, trigger.spec.segment_id, "ds")
        parts.append(f"({segment.sql})")
        values = values | segment.parameters
    contact_rows = rows(
        f"SELECT c.id, {source.sql} FROM contact c WHERE c.account_id = :account AND c.id > :after "
        f"AND {' AND '.join(parts)} ORDER BY c.id LIMIT {_DATE_BATCH_SIZE}",
        {**values, "account": trigger.account_id, "after": state.contact or 0, "list": trigger.spec.contact_list_id},
    )
    happened = [
        NewEvent(
            trigger.account_id, DATE, contact_id,
            {"flow_id": trigger.flow_id, "path": path, "date": clock.iso(value) if isinstance(value, int) else value,
             "day": query.day.isoformat()},
            resource_uid=f"flow:{trigger.flow_id}", resource_name=trigger.flow_name,
        )
        for contact_id, value in contact_rows
        if falls_on(value, query)
    ]  # fmt: skip
    return happened, contact_rows[-1][0] if len(contact_rows) == _DATE_BATCH_SIZE else None


def _save_scan_state(trigger: _DateTrigger, state: _ScanState, happened: list[NewEvent]) -> None:
    transactions.write(_write_scan_state, trigger, msgspec.json.encode(state).decode(), happened)


def _write_scan_state(trigger: _DateTrigger, state_json: str, events_to_record: list[NewEvent]) -> None:
    """Save how far a trigger has scanned and record the events of contacts that still exist.

    Do nothing if the trigger's stored state has changed since it was loaded, or if its flow is no longer active.
    """
    require_write_transaction()
    is_current = scalar(
        "SELECT 1 FROM trigger t JOIN flow f ON f.id = t.flow_id WHERE t.id = ? AND t.scanned IS NOT DISTINCT FROM ? "
        "AND f.status = 'active' AND f.deleted_at IS NULL",
        (trigger.id, trigger.scanned),
    )
    if not is_current:
        return
    run("UPDATE trigger SET scanned = ? WHERE id = ?", (state_json, trigger.id))
    contact_ids = {
        row[0]
        for row in rows(
            "SELECT id FROM contact WHERE id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode([happened.contact_id for happened in events_to_record]).decode(),),
        )
    }
    events.record_many([happened for happened in events_to_record if happened.contact_id in contact_ids])


CHECK_INTERVAL_SECONDS, _REST_FACTOR = 60.0, 10
_EVENT_BATCH_SIZE, _MEMBER_BATCH_SIZE = 100, 1_000
_SEGMENT_EVENT_NAMES = tuple(sorted(SEGMENT_EVENTS))

_SELECT_FLOW_SEGMENTS = (
    f"SELECT f.account_id, t.segment_id FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id "
    "WHERE f.status = 'active' AND f.hidden = 0 AND f.test = 0 AND f.deleted_at IS NULL "
    f"AND t.event IN {_SEGMENT_EVENT_NAMES} AND t.segment_id IS NOT NULL"
)


class _SegmentWatch(NamedTuple):
    """A watched segment; `definition` is the hash of its filters when its members were stored, None before that."""

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
# By segment id: the segments that `is_segment_check_due` found due, with the data version that its connection saw. Data
# versions of different connections cannot be compared.
_due_segments: dict[int, tuple[int, int]] = {}
# By segment id: when a segment whose check failed is tried again (`clock.monotonic`).
_segment_retry_at: dict[int, float] = {}
_segment_lock = threading.Lock()


def is_segment_check_due() -> bool:
    """Return whether any segment must be checked, or any watch started or stopped.

    Called once a second, always from the same thread, because it compares data versions of the thread's connection.
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

    Return at once if another thread is doing so. A segment that fails is logged and tried again later. Raises
    Unavailable and storage errors.
    """
    if not _segment_lock.acquire(blocking=False):
        return
    try:
        _update_watches()
        watched = _load_watches()
        _forget_unwatched({watch.segment_id for watch in watched})
        for watch in watched:
            is_known = watch.definition is not None or _is_segment_resting(watch.segment_id)
            if is_known and watch.segment_id not in _due_segments:
                continue
            started_at, newest_event = monotonic(), int(scalar("SELECT max(id) FROM event") or 0)
            since, is_done = _get_start_event(watch), False
            try:
                is_done = check_segment(watch, since)
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
    finally:
        _segment_lock.release()


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
    """Forget the checks of segments that are no longer watched."""
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

    If the filters are new, the members are stored without events. The cause of a change is looked for in the contact's
    events with an id above `since`. Returns False if a segment of the account was edited meanwhile; then the check must
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
    nodes = parse.parse_filters(Segment.get_by_id(watch.segment_id).filters, scope)
    selection = members.select_members(watch.account_id, nodes, scope)
    condition = compiler.compile_filters(nodes, scope)
    with transactions.snapshot():
        joining = rows(
            f"SELECT c.id {selection.sql} AND NOT EXISTS "
            "(SELECT 1 FROM segment_member m WHERE m.segment_id = :segment AND m.contact_id = c.id) ORDER BY c.id",
            {**selection.parameters, "segment": watch.segment_id},
        )
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

    Return False, and store nothing, if a segment of the account was edited since `changed_at`, or if this segment is no
    longer watched.
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
    """Record an event for each contact, with the chain depth of its cause, and quiet if the cause is.

    The depth stops flows that trigger each other in a cycle.
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
