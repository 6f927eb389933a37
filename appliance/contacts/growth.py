"""How lists grow: who joined lately and is still there, by day."""

from typing import NamedTuple

from appliance import clock
from appliance.db.open import rows
from appliance.rested import Rested

_DAY_MS = 86_400_000
_LARGEST_LISTS = (
    "SELECT id, name, contacts_count FROM contact_list WHERE account_id = ? ORDER BY contacts_count DESC, id LIMIT ?"
)
_JOINED = (
    "SELECT (created_at - ?1) / ?2, count(*) FROM membership WHERE contact_list_id = ?3 AND created_at >= ?1 GROUP BY 1"
)
_known: Rested[list["Growth"]] = Rested(least=5)


class Growth(NamedTuple):
    """A list, how many are in it, and how many of them joined on each of the last days, the oldest first."""

    id: int
    name: str
    size: int
    joined: tuple[int, ...]
    since: int


def of(account_id: int, most: int = 4, days: int = 30) -> list[Growth]:
    """Return how the largest lists grew."""
    return _known.get((account_id, most, days), lambda: _of(account_id, most, days))


def _of(account_id: int, most: int, days: int) -> list[Growth]:
    since = clock.now_ms() - days * _DAY_MS
    made = []
    for number, name, size in rows(_LARGEST_LISTS, (account_id, most)):
        found: dict[int, int] = dict(rows(_JOINED, (since, _DAY_MS, number)))
        # Who joined this very moment stands behind the last day
        joined = [found.get(day, 0) for day in range(days)]
        joined[-1] += sum(count for day, count in found.items() if day >= days)
        made.append(Growth(number, name, size, tuple(joined), since))
    return made
