"""What is there to ask for: the keys of custom data, the values of a field, the names of events, with how many.

Told from people spread evenly over all where there are many, and kept for a minute: a builder asks at each change.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from appliance.audience.filters import fields
from appliance.audience.filters.fields import Field
from appliance.audience.filters.scope import Place
from appliance.audience.segments import indexes, people
from appliance.storage.open import rows, scalar

T = TypeVar("T")

_MAX_KEYS = 100
_LOOKED_AT = 2_000
_FOR_VALUES = 5_000
_EVENTS = 200
_MAX_NAMES = 300
_KEEP_SECONDS = 60
_MAX_DEPTH = 4
_MAX_THINGS = 500
_THINGS = {
    "list": "SELECT id, name FROM contact_list WHERE account_id = ? ORDER BY name_key, id LIMIT ?",
    "segment": "SELECT id, name FROM segment WHERE account_id = ? ORDER BY name COLLATE NOCASE, id LIMIT ?",
    "flow": "SELECT id, name FROM flow WHERE account_id = ? AND hidden = 0 AND deleted_at IS NULL "
            "ORDER BY name COLLATE NOCASE, id LIMIT ?",
    "campaign": "SELECT id, name FROM campaign WHERE account_id = ? AND deleted_at IS NULL ORDER BY id DESC LIMIT ?",
}  # fmt: skip
_TYPES = {str: "text", bool: "boolean", int: "number", float: "number", list: "list"}
_kept: dict[tuple[Any, ...], tuple[float, Any]] = {}


class Key(Struct):
    """A path in custom data: the type that most values have, how many people have one, and one of them."""

    path: str
    type: str
    people: int
    estimated: bool
    example: Any


class Value(Struct):
    """A value that is there, and how many people have it."""

    value: Any
    people: int
    estimated: bool


def keys(account_id: int) -> list[Key]:
    """Return the paths of custom data that people of an account have, the commonest first."""
    return _once(("keys", account_id), lambda: _keys(account_id))


def values(account_id: int, name: str, limit: int = 20) -> list[Value]:
    """Return what stands in a field, the commonest first; nothing for fields whose values are nearly all different."""
    field = fields.find(name, Place.SPLIT, "NULL")
    if field is None or field.type not in ("text", "code", "tags", "json") or field.normal or name.startswith("event."):
        return []
    found = _once(("values", account_id, field.name), lambda: _values(account_id, field))
    return found[:limit]


def events(account_id: int) -> list[str]:
    """Return the names of all events that were ever recorded here, in their order."""
    return _once(("events", account_id), lambda: _events(account_id))


def event_keys(account_id: int, event: str) -> list[Key]:
    """Return the paths of the data that the latest events of a name had."""
    return _once(("event", account_id, event), lambda: _event_keys(account_id, event))


def things(account_id: int, kind: str) -> list[tuple[int, str]]:
    """Return lists, segments and flows by name, or campaigns, newest first, with their ids."""
    return [(row[0], row[1]) for row in rows(_THINGS[kind], (account_id, _MAX_THINGS))]


def _once(asked: tuple[Any, ...], find: Callable[[], list[T]]) -> list[T]:
    now = time.monotonic()
    known = _kept.get(asked)
    if known is None or now - known[0] > _KEEP_SECONDS:
        if len(_kept) > 500:
            _kept.clear()
        known = _kept[asked] = (now, find())
    found: list[T] = known[1]
    return found


def _some(account_id: int, size: int) -> tuple[str, float]:
    """Return a condition on `c` that leaves so many people at most, and how many each of them stands for."""
    everybody = people.total(account_id)
    if everybody <= size:
        return "1", 1.0
    condition = f"c.id IN ({indexes.spread_ids(size)})"
    looked_at = int(scalar(f"SELECT count(*) FROM contact c WHERE c.account_id = ? AND {condition}", (account_id,)))
    return condition, everybody / max(1, looked_at)


def _keys(account_id: int) -> list[Key]:
    whom, each = _some(account_id, _LOOKED_AT)
    found = rows(f"SELECT c.data FROM contact c WHERE c.account_id = ? AND c.data <> '{{}}' AND {whom}", (account_id,))
    return _told(found, each)


def _event_keys(account_id: int, event: str) -> list[Key]:
    sql = "SELECT data FROM event WHERE account_id = ? AND event = ? ORDER BY created_at DESC LIMIT ?"
    return _told(rows(sql, (account_id, event, _EVENTS)), 1.0)


def _told(documents: list[tuple[Any, ...]], each: float) -> list[Key]:
    counted: Counter[str] = Counter()
    types: dict[str, Counter[str]] = {}
    examples: dict[str, Any] = {}
    for (text,) in documents:
        for path, value in _walk(msgspec.json.decode(text), "", 1):
            counted[path] += 1
            types.setdefault(path, Counter())[_TYPES[type(value)]] += 1
            examples.setdefault(path, value)
    return [
        Key(path, types[path].most_common(1)[0][0], round(number * each), each > 1, examples[path])
        for path, number in counted.most_common(_MAX_KEYS)
    ]


def _walk(document: Any, before: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in document.items() if isinstance(document, dict) else ():
        path = before + key
        if "." in key or fields.json_path(path) is None or path == "tags":
            continue
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from _walk(value, f"{path}.", depth + 1)
        elif type(value) in _TYPES:
            yield path, value


def _values(account_id: int, field: Field) -> list[Value]:
    whom, each = _some(account_id, _FOR_VALUES)
    of, value, there = "", field.operand.value, f"{field.operand.value} <> ''"
    if field.type == "tags":
        of, value, there = ", json_each(c.data, '$.tags') t", "t.value", "json_type(c.data, '$.tags') = 'array'"
    elif field.type == "json":
        value = f"CASE {field.operand.type} WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE {value} END"
        there = f"{field.operand.type} IN ('text', 'integer', 'real', 'true', 'false') AND {field.operand.value} <> ''"
    elif field.around != "{}":
        of, value = ", channel h", field.operand.value
        there = f"h.contact_id = c.id AND {value} IS NOT NULL"
    found = rows(
        f"SELECT {value}, count(*) FROM contact c{of} WHERE c.account_id = ? AND {whom} AND {there} "
        "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 50", (account_id,),
    )  # fmt: skip
    return [Value(one, round(number * each), each > 1) for one, number in found]


def _events(account_id: int) -> list[str]:
    # From name to name in the index: however many events there are, each name costs one step
    found = rows(
        "WITH RECURSIVE name(n) AS (SELECT min(event) FROM event WHERE account_id = :account UNION ALL SELECT "
        "(SELECT min(event) FROM event WHERE account_id = :account AND event > n) FROM name WHERE n IS NOT NULL LIMIT "
        f"{_MAX_NAMES}) SELECT n FROM name WHERE n IS NOT NULL",
        {"account": account_id},
    )
    return [row[0] for row in found]
