"""Indexes on the paths of custom data that segments ask for, made when they are first needed and dropped after.

A bounded number: each one costs every write of a contact a little.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from appliance.db import work
from appliance.db.open import connection, rows, scalar
from appliance.db.work import writing
from appliance.filters import fields
from appliance.filters.scope import Place

MOST = 8
# A smaller table is read faster than an index on it pays for itself
_WORTH_IT = 5_000
_PREFIX = "contact_data_"
_TESTS = ("eq", "in")


def tend() -> None:
    """Make the indexes that segments now need and drop the others, one at a time on the writer."""
    wanted = _wanted()
    present = _present()
    for name in present - set(wanted):
        work.write(_drop, name)
    if int(scalar("SELECT coalesce(max(id), 0) FROM contact")) < _WORTH_IT:
        return
    for name in set(wanted) - present:
        # Once through on this thread, so that the writer finds the pages in memory and is held for less
        rows(f"SELECT count({wanted[name]}) FROM contact")
        work.write(_make, name, wanted[name])


def has(expression: str) -> bool:
    """Say whether an expression over `data` has an index."""
    return bool(scalar("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?", (_name(expression),)))


def _name(expression: str) -> str:
    return _PREFIX + hashlib.sha256(expression.encode()).hexdigest()[:16]


def _present() -> set[str]:
    found = rows("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'contact'")
    return {row[0] for row in found if row[0].startswith(_PREFIX)}


def _wanted() -> dict[str, str]:
    """Answer name and expression of the paths that most segments compare whole."""
    import msgspec

    counted: Counter[str] = Counter()
    for (text,) in rows("SELECT filters FROM segment ORDER BY id"):
        counted.update(set(_expressions(msgspec.json.decode(text))))
    return {_name(expression): expression for expression, _ in counted.most_common(MOST)}


def _expressions(filters: Any) -> Iterator[str]:
    for one in filters if isinstance(filters, list) else []:
        if one.get("name") == "group":
            yield from _expressions(one.get("value"))
        elif one.get("predicate") in _TESTS:
            field = fields.find(one["name"], Place.SEGMENT)
            if field is not None and field.type == "json":
                yield field.operand.value.replace("c.data", "data", 1)


def _make(name: str, expression: str) -> None:
    writing()
    connection().execute(
        f"CREATE INDEX IF NOT EXISTS {name} ON contact (account_id, {expression} COLLATE NOCASE) "
        f"WHERE {expression} IS NOT NULL"
    )


def _drop(name: str) -> None:
    writing()
    connection().execute(f"DROP INDEX IF EXISTS {name}")
