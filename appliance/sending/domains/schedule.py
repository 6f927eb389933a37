"""When a domain is looked at next (docs/decisions.md#14)."""

_MINUTE, _HOUR = 60_000, 3_600_000
_EARLY = (1 * _MINUTE, 5 * _MINUTE, 15 * _MINUTE)
_EVERY, _SETTLED_EVERY = _HOUR, 6 * _HOUR
GIVES_UP_AFTER = 72 * _HOUR  # without success since it was added
FAILS_AFTER = 3  # checks in a row that found a required record wrong


def first(now: int) -> int:
    """Return when something new is looked for the first time."""
    return now + _EARLY[0]


def following(status: str, created_at: int, now: int, in_transit: bool = False) -> int:
    """Return the next check of a domain; one that waits for a new key's record is looked at hourly."""
    if status != "pending":
        return now + (_EVERY if in_transit else _SETTLED_EVERY)
    age = now - created_at
    early = next((step for step in _EARLY if step > age), None)
    # Never later than that, even where the clock went back
    return min(created_at + (early or (max(age, 0) // _EVERY + 1) * _EVERY), now + _EVERY)
