"""Record the event `date_reached` for the contacts of each trigger on a date, once a day at its time of day.

A contact gets the event on its date plus the offset of the trigger in days; a yearly trigger ignores the year. The
trigger stores the last day that it has checked, and within a day the last contact, in the transaction that records the
events. So no contact gets the event twice, and none is missed if the process stops. A day that is late by more than
`limits.max_lateness` is skipped, but a day whose check has begun is finished.

Steps that wait for a date or an hour of the day use `get_due_moment` and `get_next_moment`, too.
"""

import logging
from collections.abc import Collection
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from appliance.audience.filters.fields import Binder
from appliance.audience.segments import members
from appliance.audience.segments.condition_budget import ConditionsTooSlow
from appliance.core import clock, time_zones
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.flows import triggers
from appliance.flows.condition_limits import MAX_FLOW, Budget, pause_slow_flow
from appliance.flows.triggers import DATE, TriggerSpec
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.flows")

_DAY = timedelta(days=1)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEK_DAYS = 7


class DateQuery(NamedTuple):
    """A search for contacts with a date on `day`, in the account's time zone `zone`.

    With `yearly`, the year is ignored, as for birthdays.
    """

    day: date
    yearly: bool
    zone: ZoneInfo


def get_due_moment(day: date, time_of_day: str, zone: ZoneInfo) -> int:
    """Return the Unix milliseconds of a time of day (`HH:MM`) on a day in a time zone, by `time_zones.find_moment`."""
    hour, minute = time_of_day.split(":")
    return time_zones.find_moment(datetime.combine(day, time(int(hour), int(minute))), zone)


def get_last_due_day(now: int, time_of_day: str, zone: ZoneInfo) -> date:
    """Return today, or yesterday if `now` (Unix milliseconds) is before `time_of_day` (`HH:MM`) in the time zone."""
    today = datetime.fromtimestamp(now / 1000, zone).date()
    return today if get_due_moment(today, time_of_day, zone) <= now else today - _DAY


def compile_candidates(source: triggers.DateSource, query: DateQuery, binder: Binder) -> str:
    """Return an SQL condition on contact `c` that is true for all contacts with a date on the day, and for few others.

    `falls_on` then decides exactly. The neighbouring days are included, because a date stored as text with a UTC offset
    may be the day before or after in the account's time zone.
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

    `value` is text, with or without a time or a year, or Unix milliseconds. In a yearly query, a date after the day
    does not match, and a time in Unix milliseconds matches only from the following year on. A value that is not a date
    does not match.
    """
    if isinstance(value, str) and query.yearly and len(value.removeprefix("--")) == 5:
        return _is_same_day(f"2000-{value.removeprefix('--')}", query.day)
    day = parse_day(value, query.zone)
    if day is None:
        return False
    if not query.yearly:
        return day == query.day
    if isinstance(value, int) and day.year >= query.day.year:
        return False
    return day <= query.day and _is_same_day(day.isoformat(), query.day)


def _is_same_day(text: str, day: date) -> bool:
    """Return whether an ISO date has the month and day of `day`; in common years 29 February counts as the 28th."""
    month_day = text[5:]
    if month_day == "02-29" and not _is_leap(day.year):
        month_day = "02-28"
    return month_day == f"{day:%m-%d}"


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def parse_day(value: Any, zone: ZoneInfo) -> date | None:
    """Return the day of a date in a time zone, from text with or without a time, or Unix milliseconds; else None."""
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value / 1000, zone).date()
        if not isinstance(value, str):
            return None
        if len(value) == 10:
            return date.fromisoformat(value)
        moment = datetime.fromisoformat(value)
        # Converted to another time zone, a time on the first or last day of the calendar may be outside of the calendar
        # (OverflowError).
        return (moment if moment.tzinfo is None else moment.astimezone(zone)).date()
    except (ValueError, OverflowError, OSError):
        return None


_DATE_BATCH_SIZE = 200
# The range of contact ids in a batch, and a smaller range for triggers whose conditions cost too much for the first.
_ID_RANGE, _SMALL_ID_RANGE = 50_000, 500
# If the stored day is further ahead than this, it was stored under a wrong clock, and the scan starts over. If it is
# less far ahead, the clock may only have been corrected.
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
    """The progress of the scan of a trigger.

    `query` is that of the trigger at its last scan, stored as `asks`. `day` is the last day that was checked
    completely. While the following day is being checked, `contact` is the id of the last contact checked.
    """

    query: list[Any] = msgspec.field(name="asks")
    day: date
    contact: int | None = None


# By trigger id: the triggers that check `_SMALL_ID_RANGE` contacts at once.
_slow_triggers: set[int] = set()
# By trigger id: when a trigger whose check failed is tried again (`clock.monotonic`).
_date_retry_at: dict[int, float] = {}
_DATE_RETRY_SECONDS = 60.0


def is_date_check_due() -> bool:
    """Return whether any date trigger has a day to check now."""
    now = clock.now_ms()
    return any(_get_next_day(trigger, _get_scan_state(trigger), now) is not None for trigger in _load_date_triggers())


def check_dates() -> bool:
    """Check the next batch of contacts for each date trigger that has a day to check; return whether any has.

    A trigger that fails is logged and tried again after `_DATE_RETRY_SECONDS`; a flow whose conditions cost too much is
    paused. Raises Unavailable and storage errors.
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
        except ConditionsTooSlow:
            if trigger.id in _slow_triggers:
                _slow_triggers.discard(trigger.id)
                transactions.write(pause_slow_flow, trigger.flow_id)
            else:
                _slow_triggers.add(trigger.id)
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
        state.query != trigger.query
        or state.day > get_last_due_day(now, trigger.time_of_day, trigger.zone) + _MAX_AHEAD
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
        # All days that are too late are skipped at once.
        last_missed = max(day, get_last_due_day(latest, trigger.time_of_day, trigger.zone))
        log.warning(
            "flows: dates missed while the service was down flow=%s from=%s to=%s", trigger.flow_id, day, last_missed
        )
        _save_scan_state(trigger, _ScanState(trigger.query, last_missed), [])
        return
    new_events, last = _find_contacts(trigger, state, day)
    has_more = last is not None
    _save_scan_state(trigger, _ScanState(trigger.query, state.day if has_more else day, last), new_events)


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
    after = state.contact or 0
    until = after + (_SMALL_ID_RANGE if trigger.id in _slow_triggers else _ID_RANGE)
    with Budget(MAX_FLOW, MAX_FLOW).charge(trigger.flow_id):
        contact_rows = rows(
            f"SELECT c.id, {source.sql} FROM contact c WHERE c.account_id = :account AND c.id > :after "
            f"AND c.id <= :until AND {' AND '.join(parts)} ORDER BY c.id LIMIT {_DATE_BATCH_SIZE}",
            {**values, "account": trigger.account_id, "after": after, "until": until,
             "list": trigger.spec.contact_list_id},
        )  # fmt: skip
    new_events = [
        NewEvent(
            trigger.account_id, DATE, contact_id,
            {"flow_id": trigger.flow_id, "path": path, "date": clock.iso(value) if isinstance(value, int) else value,
             "day": query.day.isoformat()},
            resource_uid=f"flow:{trigger.flow_id}", resource_name=trigger.flow_name,
        )
        for contact_id, value in contact_rows
        if falls_on(value, query)
    ]  # fmt: skip
    if len(contact_rows) == _DATE_BATCH_SIZE:
        return new_events, contact_rows[-1][0]
    has_more = rows("SELECT 1 FROM contact WHERE account_id = ? AND id > ? LIMIT 1", (trigger.account_id, until))
    return new_events, until if has_more else None


def _save_scan_state(trigger: _DateTrigger, state: _ScanState, new_events: list[NewEvent]) -> None:
    transactions.write(_write_scan_state, trigger, msgspec.json.encode(state).decode(), new_events)


def _write_scan_state(trigger: _DateTrigger, state_json: str, events_to_record: list[NewEvent]) -> None:
    """Save the progress of the scan of a trigger, and record the events of contacts that still exist.

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
            (msgspec.json.encode([event.contact_id for event in events_to_record]).decode(),),
        )
    }
    events.record_many([event for event in events_to_record if event.contact_id in contact_ids])


def get_next_moment(now: int, time_of_day: str, weekdays: Collection[str], zone: ZoneInfo) -> int:
    """Return the next Unix milliseconds at which it is `time_of_day` (`HH:MM`) in a time zone; it may be `now`.

    Only the days in `weekdays` count, or all if it is empty. Changes of daylight saving time do not shift the hour on
    the clock; an hour that is skipped or repeated is resolved as for campaigns (`time_zones.find_moment`).
    """
    today = datetime.fromtimestamp(now / 1000, zone).date()
    days = [today + timedelta(days=number) for number in range(_WEEK_DAYS + 1)]
    moments = [
        get_due_moment(day, time_of_day, zone) for day in days if not weekdays or WEEKDAYS[day.weekday()] in weekdays
    ]
    return next(moment for moment in moments if moment >= now)
