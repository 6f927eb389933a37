"""Who has an email open, and at which section: kept in memory, for as long as their browser says so."""

from typing import NamedTuple

from appliance.core import clock

# A browser says so every 20 seconds
_FRESH_MS = 45_000
_seen: dict[int, dict[str, "Other"]] = {}


class Other(NamedTuple):
    """Somebody who is here too."""

    user: int
    name: str
    key: str
    at: int


def here(template_id: int, who: str, user: int, name: str, key: str) -> None:
    """Note that somebody is here; `who` tells their browsers apart."""
    now = clock.now_ms()
    found = _seen.setdefault(template_id, {})
    found[who] = Other(user, name, key, now)
    for one in [one for one, other in found.items() if now - other.at > _FRESH_MS]:
        del found[one]


def others(template_id: int, user: int) -> list[Other]:
    """Return who else is here, each once, where they were last."""
    now = clock.now_ms()
    found = sorted(_seen.get(template_id, {}).values(), key=lambda other: other.at)
    return list({one.user: one for one in found if one.user != user and now - one.at <= _FRESH_MS}.values())


def gone(template_id: int, who: str) -> None:
    """Note that somebody left."""
    found = _seen.get(template_id, {})
    found.pop(who, None)
    if not found:
        _seen.pop(template_id, None)
