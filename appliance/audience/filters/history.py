"""Event leaves: what happened to a person, how often, when, and with which data."""

from typing import Any, NamedTuple

from appliance.audience.filters import values
from appliance.audience.filters.scope import Asked, Place

KEYS = ("event", "at_least", "at_most", "within_days", "since", "where", "include_machine")
_MAX_TIMES = 1_000_000
# Written by the service with a verdict; programs that open and click do not count unless asked for
_JUDGED = ("email_", "sms_")


class History(NamedTuple):
    """What an event leaf asks."""

    event: str
    at_least: int
    at_most: int | None
    within_days: int | None
    since: int | str | None  # a moment, or "flow_start"
    include_machine: bool
    where_raw: Any = None
    where: Any = None


def history(raw: Any, asked: Asked) -> History | None:
    """Read the value of an event leaf, all but its `where`; notes faults at their paths."""
    if raw is None:
        return asked.fault("can't be blank")
    if not isinstance(raw, dict):
        return asked.fault("is invalid")
    for key in raw:
        if key not in KEYS:
            asked.fault("is not a known field", f".{values._UNWRITABLE.sub('?', str(key))[:100]}")
    event = _event(raw.get("event"), asked)
    at_least = _times(raw, "at_least", asked)
    at_most = _times(raw, "at_most", asked)
    at_least = 1 if at_least is None else at_least
    if at_most is not None and at_most < at_least:
        asked.fault(f"must be greater than or equal to {at_least}", ".at_most")
    within = raw.get("within_days")
    machine = raw.get("include_machine")
    if machine is not None and not isinstance(machine, bool):
        asked.fault("is invalid", ".include_machine")
    days = None if within is None else values.days(within, asked, ".within_days")
    return History(event or "", at_least, at_most, days, _since(raw, asked), machine is True, raw.get("where"))


def _event(name: Any, asked: Asked) -> str | None:
    if name in (None, ""):
        return asked.fault("can't be blank", ".event")
    good = isinstance(name, str) and len(name) <= 64 and name.isascii() and name.replace("_", "a").isalnum()
    return name if good else asked.fault("is invalid", ".event")


def _times(raw: dict[str, Any], key: str, asked: Asked) -> int | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        return asked.fault("is not a number", f".{key}")
    if value < 0:
        return asked.fault("must be greater than or equal to 0", f".{key}")
    return value if value <= _MAX_TIMES else asked.fault(f"must be less than or equal to {_MAX_TIMES}", f".{key}")


def _since(raw: dict[str, Any], asked: Asked) -> int | str | None:
    value = raw.get("since")
    if value is None:
        return None
    if value == "flow_start" and asked.scope.place is Place.SPLIT:
        return "flow_start"
    found = values.span(value, asked, ".since")
    return found.start if found else None


def is_judged(event: str) -> bool:
    """Return whether events of a name carry a verdict on who caused them."""
    return event.startswith(_JUDGED)
