"""Who has an email open, and at which section: kept in memory, for as long as their browser says so."""

from typing import NamedTuple

from appliance import clock

# A browser says so every 20 seconds
_FRESH_MS = 45_000
_seen: dict[int, dict[str, "Other"]] = {}


class Other(NamedTuple):
    """Somebody who is here too."""

    name: str
    key: str
    at: int


def here(template_id: int, who: str, name: str, key: str) -> list[Other]:
    """Note that somebody is here, and answer who else is; `who` tells their browsers apart."""
    now = clock.now_ms()
    found = _seen.setdefault(template_id, {})
    found[who] = Other(name, key, now)
    for one in [one for one, other in found.items() if now - other.at > _FRESH_MS]:
        del found[one]
    return [other for one, other in found.items() if one != who]


def others(template_id: int, who: str) -> list[Other]:
    """Answer who else is here."""
    now = clock.now_ms()
    found = _seen.get(template_id, {})
    return [other for one, other in found.items() if one != who and now - other.at <= _FRESH_MS]


def gone(template_id: int, who: str) -> None:
    """Note that somebody left."""
    found = _seen.get(template_id, {})
    found.pop(who, None)
    if not found:
        _seen.pop(template_id, None)
