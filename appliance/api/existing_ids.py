"""Whether the things that a query names by their ids are there: a filter by another id is a mistake, and is told."""

from functools import cache
from typing import Any

from msgspec import UNSET, Struct

from appliance import reader
from appliance.db.open import one
from appliance.db.work import call


@cache
def _references(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a query that name a thing (`fields.ContactId` and its like), each with its table."""
    return tuple(
        (info.name, table) for info in reader.declared(kind) if (table := reader.extras(info.type).get("table"))
    )


async def faults(account_id: int, query: Any) -> dict[str, list[str]]:
    """Return the faults of a query that was read: things that are not there, or are another account's.

    What was deleted, and is kept because others belong to it, is there: its messages are still found by its id.
    """
    kind: type[Struct] = type(query)
    named = [(name, table, getattr(query, name)) for name, table in _references(kind)]
    named = [(name, table, number) for name, table, number in named if number is not UNSET]
    return await call(_faults, account_id, named) if named else {}


def _faults(account_id: int, named: list[tuple[str, str, int]]) -> dict[str, list[str]]:
    return {
        name: ["must exist"]
        for name, table, number in named
        if one(f"SELECT 1 FROM {table} WHERE account_id = ? AND id = ?", (account_id, number)) is None
    }
