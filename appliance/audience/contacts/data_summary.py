"""Summaries of the fields and custom data of contacts, shown next to merge tags: examples and gaps."""

import re
import time
from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from appliance.audience.contacts import store as contacts
from appliance.storage.database import fetch_one as first
from appliance.storage.database import rows
from appliance.storage.models import Contact

# The number of newest contacts whose custom data is summarized.
_SAMPLED_CONTACTS = 1_000
_MAX_KEYS = 60
_MAX_EXAMPLE_CHARACTERS = 40
# Keys that match this pattern cannot be used in a merge tag.
_NOT_NAMEABLE = re.compile(r"""["'{}.\[\]]|^_""")
# Summaries are cached for this number of seconds.
_CACHE_SECONDS = 30
_COLUMNS = ("first_name", "last_name", "source", "country_code", "language")


class DataKey(NamedTuple):
    """A standard field or a key of custom data, as the list of merge tags shows it.

    `name` is its name in a merge tag, `example` a value, and `missing_share` the share of contacts without a value (0
    to 1).
    """

    name: str
    example: str
    missing_share: float


def find_contact_without_name(account_id: int) -> Contact | None:
    """Return the newest contact without a first name, or None; a contact added in the last 30 seconds may be missed."""
    if not summarize_columns(account_id)["first_name"].missing_share:
        return None
    row = first(
        "SELECT id FROM contact WHERE account_id = ? AND coalesce(first_name, '') = '' "
        "ORDER BY created_at DESC, id DESC LIMIT 1", (account_id,),
    )  # fmt: skip
    return contacts.get(account_id, row[0]) if row else None


def summarize_columns(account_id: int) -> dict[str, DataKey]:
    """Return summaries of the standard fields of all contacts by field name, at most `_CACHE_SECONDS` old."""
    return _summarize_columns(account_id, int(time.monotonic() // _CACHE_SECONDS))


@lru_cache(maxsize=32)
def _summarize_columns(account_id: int, moment: int) -> dict[str, DataKey]:
    count_columns = ", ".join(f"count(nullif({name}, ''))" for name in _COLUMNS)
    total, *filled_counts = first(
        f"SELECT count(*), {count_columns} FROM contact WHERE account_id = ?", (account_id,)
    ) or (0,)
    newest = rows(
        f"SELECT {', '.join(_COLUMNS)} FROM contact WHERE account_id = ? ORDER BY created_at DESC LIMIT 50",
        (account_id,),
    )
    return {
        name: DataKey(
            name,
            next((row[index] for row in newest if row[index]), ""),
            1 - filled_counts[index] / total if total else 0.0,
        )
        for index, name in enumerate(_COLUMNS)
    }


def summarize_data_keys(account_id: int) -> list[DataKey]:
    """Return summaries of the keys in custom data of the newest contacts, the most common first.

    The summaries are at most `_CACHE_SECONDS` old.
    """
    return _summarize_data_keys(account_id, int(time.monotonic() // _CACHE_SECONDS))


@lru_cache(maxsize=32)
def _summarize_data_keys(account_id: int, moment: int) -> list[DataKey]:
    data_rows = rows(
        "SELECT data FROM contact WHERE account_id = ? ORDER BY created_at DESC, id DESC LIMIT ?",
        (account_id, _SAMPLED_CONTACTS),
    )
    return summarize_objects([msgspec.json.decode(text) if text else None for (text,) in data_rows])


def summarize_objects(objects: list[Any]) -> list[DataKey]:
    """Return summaries of up to `_MAX_KEYS` keys of `objects`, the most common key first.

    The example of a key is its first value.
    """
    counts, examples = Counter[str](), dict[str, str]()
    for data in objects:
        for name, value in _flatten(data, ""):
            counts[name] += 1
            examples.setdefault(name, str(value)[:_MAX_EXAMPLE_CHARACTERS])
    return [DataKey(name, examples[name], 1 - count / len(objects)) for name, count in counts.most_common(_MAX_KEYS)]


def _flatten(value: Any, prefix: str) -> list[tuple[str, Any]]:
    """Return (path, value) of the scalar values of an object and of the objects directly within it.

    Empty values, and keys that cannot be used in a merge tag, are left out.
    """
    values = []
    for name, inner in (value or {}).items() if isinstance(value, dict | None) else ():
        if isinstance(inner, dict) and not prefix:
            values += _flatten(inner, f"{name}.")
        elif inner not in (None, "") and not isinstance(inner, dict | list) and not _NOT_NAMEABLE.search(name):
            values.append((f"{prefix}{name}", inner))
    return values
