"""An audience as of a moment ago: what pages of a draft ask with each change of it, and of very many takes long.

Of few people it is always as now. What decides whom to write to asks `audience` itself.
"""

from collections.abc import Hashable

from appliance.campaigns import audience
from appliance.campaigns.audience import Arithmetic
from appliance.db.open import rows
from appliance.rested import Rested
from appliance.tables import Campaign

# In seconds of the processor; an audience that is counted as fast is counted each time
_CHEAP = 0.03
_counted: Rested[Arithmetic] = Rested(cheap=_CHEAP)
_first: Rested[list[int]] = Rested(cheap=_CHEAP)
_mailed: Rested[tuple[int, int | None]] = Rested(cheap=_CHEAP)


def arithmetic(campaign: Campaign) -> Arithmetic:
    """Count the audience."""
    return _counted.get(_key(campaign), lambda: audience.arithmetic(campaign))


def first(campaign: Campaign) -> int | None:
    """Return somebody who would get it, who may be gone since; None if there is nobody."""
    found = _first.get(_key(campaign), lambda: audience.sample(campaign, 1))
    return found[0] if found else None


def mailed(campaign: Campaign) -> tuple[int, int | None]:
    """Return when anybody of the audience got mail last (0 for never), and was added last (None for an empty one)."""

    def find() -> tuple[int, int | None]:
        people = audience.of(campaign)
        [(sent, added)] = rows(
            f"SELECT max(coalesce(email_last_sent_at, 0)), max(created_at) FROM contact WHERE id IN ({people.sql})",
            people.parameters,
        )
        return sent or 0, added

    return _mailed.get(_key(campaign), find)


def _key(campaign: Campaign) -> Hashable:
    """Return what says who is meant, so that another audience is another one at once."""
    people = audience.of(campaign)
    return people.sql, repr(sorted(people.parameters.items())), people.double_opt_in, audience.kind(campaign)
