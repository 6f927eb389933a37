"""`date_reached`: on its day, at its hour, everybody whose date comes round is told of as an event for the flow.

Each trigger remembers the day it has looked at, and of a day it is at the person it has come to, in the transaction of
the events: nobody is told of twice, and none is forgotten when the process ends in the middle. A day that was missed by
more than `limits.max_lateness` is over; one that was begun is finished.
"""

import logging
from datetime import date, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from appliance.audience.filters.scope import Binder
from appliance.audience.segments import people
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.events.log import Happened
from appliance.flows import date_fields, triggers
from appliance.flows.date_fields import Wanted
from appliance.flows.triggers import DATE, Start
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.storage import work
from appliance.storage.disk_guard import storage_error
from appliance.storage.open import rows, run, scalar
from appliance.storage.work import writing

log = logging.getLogger("campanero.flows")
_BITE = 200
_DAY = timedelta(days=1)
# Who has looked at days so far ahead did so by a wrong clock; a day may be one that was put right
_AHEAD = timedelta(days=7)


class _Dated(NamedTuple):
    """A trigger on dates of an active flow, and how far it has looked."""

    id: int
    account_id: int
    flow_id: int
    flow_name: str
    zone: ZoneInfo
    start: Start
    scanned: str | None

    @property
    def at(self) -> str:
        """The time of day at which it looks."""
        return str(self.start.data.get("at") or triggers.AT)

    @property
    def asks(self) -> list[Any]:
        """What it looks for; another question begins anew."""
        data = self.start.data
        return [data.get("path"), bool(data.get("yearly")), data.get("offset_days") or 0]


class _Scanned(msgspec.Struct):
    """The day that was looked at last; `contact` is the last person of the day after it, while that is under way."""

    asks: list[Any]
    day: date
    contact: int | None = None


# Triggers that could not be looked at, and until when they are left alone (`clock.steady`)
_failed: dict[int, float] = {}
_PATIENCE_SECONDS = 60.0


def is_due() -> bool:
    """Return whether a day of some trigger is to be looked at."""
    now = clock.now_ms()
    return any(_next(one, _seen(one), now) is not None for one in _dated())


def look() -> bool:
    """Take one bite of the people of a day that has come; says if there was any."""
    now, found = clock.now_ms(), False
    for one in _dated():
        seen = _seen(one)
        day = _next(one, seen, now)
        if day is None:
            continue
        try:
            if seen is None or _begins(one, seen, now):
                _step(one, _Scanned(one.asks, date_fields.last_before(now, one.at, one.zone)), [])
            else:
                _look(one, seen, day, now)
            found = True
        except Exception as error:
            # One that cannot be asked keeps no other flow from going on
            if isinstance(error, Unavailable) or storage_error(error) is not None:
                raise
            _failed[one.id] = clock.steady() + _PATIENCE_SECONDS
            log.exception("the dates of flow %s cannot be looked at", one.flow_id)
    return found


def _dated() -> list[_Dated]:
    found = rows(
        "SELECT t.id, f.account_id, f.id, f.name, a.time_zone, t.segment_id, t.contact_list_id, t.data, t.scanned "
        f"FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id JOIN account a ON a.id = f.account_id "
        f"WHERE f.status = 'active' AND f.hidden = 0 AND f.test = 0 AND f.deleted_at IS NULL AND t.event = '{DATE}'"
    )
    return [
        _Dated(trigger_id, account_id, flow_id, name, ZoneInfo(zone), Start(DATE, segment_id, list_id, said), scanned)
        for trigger_id, account_id, flow_id, name, zone, segment_id, list_id, data, scanned in found
        if (said := msgspec.json.decode(data)).get("path") and _failed.get(trigger_id, 0.0) <= clock.steady()
    ]


def _seen(one: _Dated) -> _Scanned | None:
    return None if one.scanned is None else msgspec.json.decode(one.scanned, type=_Scanned)


def _begins(one: _Dated, seen: _Scanned, now: int) -> bool:
    """Return whether a trigger begins anew: it looks for something else now, or waits for a day that is far away."""
    return seen.asks != one.asks or seen.day > date_fields.last_before(now, one.at, one.zone) + _AHEAD


def _next(one: _Dated, seen: _Scanned | None, now: int) -> date | None:
    """Return the day to look at now; the day it is, where nothing was looked at yet."""
    if seen is None or _begins(one, seen, now):
        return date_fields.last_before(now, one.at, one.zone)
    day = seen.day + _DAY
    return day if date_fields.moment(day, one.at, one.zone) <= now else None


def _look(one: _Dated, seen: _Scanned, day: date, now: int) -> None:
    latest = now - int(seconds(config.current().limits.max_lateness) * 1000)
    if seen.contact is None and date_fields.moment(day, one.at, one.zone) < latest:
        # All days that are over at once: the last of them is the last whose moment is too long ago
        over = max(day, date_fields.last_before(latest, one.at, one.zone))
        log.warning("flow %s: its people of %s to %s were missed while the service was down", one.flow_id, day, over)
        _step(one, _Scanned(one.asks, over), [])
        return
    found, last = _people(one, seen, day)
    more = last is not None
    _step(one, _Scanned(one.asks, seen.day if more else day, last), found)


def _people(one: _Dated, seen: _Scanned, day: date) -> tuple[list[Happened], int | None]:
    """Return what is to be told of the next people of a day, and the last who was looked at if there are more."""
    path, yearly, offset = one.asks
    where = date_fields.source(path)
    if where is None:
        return [], None
    wanted = Wanted(day - timedelta(days=offset), yearly, one.zone)
    binder = Binder("d", triggers.scope(one.account_id))
    parts = [date_fields.possible(where, wanted, binder)]
    values = binder.values
    if one.start.contact_list_id is not None:
        parts.append("EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = :list AND m.contact_id = c.id)")
    if one.start.segment_id is not None:
        held = people.of_segment(one.account_id, one.start.segment_id, "ds")
        parts.append(f"({held.sql})")
        values = values | held.parameters
    found = rows(
        f"SELECT c.id, {where.sql} FROM contact c WHERE c.account_id = :account AND c.id > :after "
        f"AND {' AND '.join(parts)} ORDER BY c.id LIMIT {_BITE}",
        {**values, "account": one.account_id, "after": seen.contact or 0, "list": one.start.contact_list_id},
    )
    told = [
        Happened(
            one.account_id, DATE, contact_id,
            {"flow_id": one.flow_id, "path": path, "date": clock.iso(value) if isinstance(value, int) else value,
             "day": wanted.day.isoformat()},
            resource_uid=f"flow:{one.flow_id}", resource_name=one.flow_name,
        )
        for contact_id, value in found
        if date_fields.comes_round(value, wanted)
    ]  # fmt: skip
    return told, found[-1][0] if len(found) == _BITE else None


def _step(one: _Dated, after: _Scanned, told: list[Happened]) -> None:
    work.write(_keep, one, msgspec.json.encode(after).decode(), told)


def _keep(one: _Dated, after: str, told: list[Happened]) -> None:
    """Keep how far a trigger has looked, with what is told of it; nothing if it changed or stands still meanwhile."""
    writing()
    still = scalar(
        "SELECT 1 FROM trigger t JOIN flow f ON f.id = t.flow_id WHERE t.id = ? AND t.scanned IS NOT DISTINCT FROM ? "
        "AND f.status = 'active' AND f.deleted_at IS NULL",
        (one.id, one.scanned),
    )
    if not still:
        return
    run("UPDATE trigger SET scanned = ? WHERE id = ?", (after, one.id))
    here = {
        row[0]
        for row in rows(
            "SELECT id FROM contact WHERE id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode([happened.contact_id for happened in told]).decode(),),
        )
    }
    events.record_many([happened for happened in told if happened.contact_id in here])
