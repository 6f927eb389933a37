"""How many people of an audience lack what a message says about them: one look at all of them together."""

from collections.abc import Iterable
from typing import Any

from appliance.campaigns.audience import Audience
from appliance.db.dialect.documents import field_at, type_at
from appliance.db.open import one

_COLUMNS = ("first_name", "last_name", "country_code", "source")
_BARE = ("first_name", "last_name", "email")
_CHANNELS = ("phone", "email")
# Beyond it a statement would be longer than SQLite reads
_MAX_VARIABLES = 200


def counts(audience: Audience, names: Iterable[str]) -> dict[str, int]:
    """Return for each variable about a contact how many lack it: those for whom a `default` would be shown.

    Variables about anything else are left out, for they are the same for everybody.
    """
    parameters: dict[str, Any] = dict(audience.parameters)
    asked: dict[str, str] = {}
    for name in sorted(set(names)):
        sql = _lacks(name, f"lack{len(asked)}", parameters)
        if sql is not None and len(asked) < _MAX_VARIABLES:
            asked[name] = sql
    if not asked:
        return {}
    sums = ", ".join(f"count(*) FILTER (WHERE {sql})" for sql in asked.values())
    found = one(f"SELECT {sums} FROM contact c WHERE c.id IN ({audience.sql})", parameters)
    return {name: int(value) for name, value in zip(asked, found or [0] * len(asked), strict=True)}


def _lacks(name: str, placeholder: str, parameters: dict[str, Any]) -> str | None:
    """Return as SQL whether the contact `c` lacks a variable; None for one that is not about contacts."""
    root, _, rest = name.partition(".")
    if root != "contact":
        rest = root if root in _BARE and not rest else ""
    if rest in _COLUMNS:
        return f"coalesce(c.{rest}, '') = ''"
    if rest in _CHANNELS:
        return f"NOT EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.kind = '{rest}')"
    head, _, path = rest.partition(".")
    if head != "data" or not path or '"' in path:
        return None
    steps = (f"[{one_step}]" if one_step.isascii() and one_step.isdigit() else f'."{one_step}"'
             for one_step in path.split("."))  # fmt: skip
    parameters[placeholder] = f"${''.join(steps)}"
    empty = f"{field_at('c.data', ':' + placeholder)} IN ('', '[]', '{{}}')"
    return f"(coalesce({type_at('c.data', ':' + placeholder)}, 'null') IN ('null', 'false') OR {empty} IS TRUE)"
