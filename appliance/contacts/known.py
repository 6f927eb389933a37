"""What is known about people: how many have a name, which keys their data have, with an example of each.

It is shown beside merge tags, so that nobody is called by a name they never gave.
"""

import re
import time
from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from appliance.contacts import store
from appliance.db.open import one as first
from appliance.db.open import rows
from appliance.tables import Contact

# So many of the last added are looked at for what their data hold
_LOOKED_AT = 1_000
_MAX_KEYS = 60
_MAX_CHARACTERS = 40
# No merge tag can say them
_UNNAMED = re.compile(r"""["'{}.\[\]]|^_""")
# Counts of a moment ago do
_SECONDS = 30
_COLUMNS = ("first_name", "last_name", "source", "country_code")


class Key(NamedTuple):
    """Something known of people: its name in a merge tag, an example, and the share of people who lack it."""

    name: str
    example: str
    lacking: float


def nameless(account_id: int) -> Contact | None:
    """Return the last one added of those without a first name."""
    if not columns(account_id)["first_name"].lacking:
        return None
    found = first(
        "SELECT id FROM contact WHERE account_id = ? AND coalesce(first_name, '') = '' "
        "ORDER BY created_at DESC, id DESC LIMIT 1", (account_id,),
    )  # fmt: skip
    return store.get(account_id, found[0]) if found else None


def columns(account_id: int) -> dict[str, Key]:
    """Return what every contact has a place for, of everybody."""
    return _columns(account_id, int(time.monotonic() // _SECONDS))


@lru_cache(maxsize=32)
def _columns(account_id: int, moment: int) -> dict[str, Key]:
    counted = ", ".join(f"count(nullif({name}, ''))" for name in _COLUMNS)
    total, *having = first(f"SELECT count(*), {counted} FROM contact WHERE account_id = ?", (account_id,)) or (0,)
    last = rows(
        f"SELECT {', '.join(_COLUMNS)} FROM contact WHERE account_id = ? ORDER BY created_at DESC LIMIT 50",
        (account_id,),
    )
    return {
        name: Key(name, next((row[at] for row in last if row[at]), ""), 1 - having[at] / total if total else 0.0)
        for at, name in enumerate(_COLUMNS)
    }


def keys(account_id: int) -> list[Key]:
    """Return the keys of people's data, those that most have first, by whoever was added last."""
    return _keys(account_id, int(time.monotonic() // _SECONDS))


@lru_cache(maxsize=32)
def _keys(account_id: int, moment: int) -> list[Key]:
    found = rows(
        "SELECT data FROM contact WHERE account_id = ? ORDER BY created_at DESC, id DESC LIMIT ?",
        (account_id, _LOOKED_AT),
    )
    return counted([msgspec.json.decode(text) if text else None for (text,) in found])


def counted(objects: list[Any]) -> list[Key]:
    """Return the keys of some objects, those that most have first, with the first value of each."""
    many, examples = Counter[str](), dict[str, str]()
    for one in objects:
        for name, value in _flat(one, ""):
            many[name] += 1
            examples.setdefault(name, str(value)[:_MAX_CHARACTERS])
    return [Key(name, examples[name], 1 - count / len(objects)) for name, count in many.most_common(_MAX_KEYS)]


def _flat(value: Any, before: str) -> list[tuple[str, Any]]:
    """Return the plain values of an object, and of objects in it, by their way there."""
    found = []
    for name, inner in (value or {}).items() if isinstance(value, dict | None) else ():
        if isinstance(inner, dict) and not before:
            found += _flat(inner, f"{name}.")
        elif inner not in (None, "") and not isinstance(inner, dict | list) and not _UNNAMED.search(name):
            found.append((f"{before}{name}", inner))
    return found
