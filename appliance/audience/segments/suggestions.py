"""Suggestions for the segment builder: fields, predicates, paths and values of custom data, and event names.

In large accounts, counts are estimated from a sample. Suggestions are cached for a minute, because the builder requests
them after each change.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from appliance.audience.filters import compiler, fields, predicates
from appliance.audience.filters.compiler import GROUP_MODES
from appliance.audience.filters.fields import FIELDS, Field, FilterPlace
from appliance.audience.filters.predicates import PREDICATES_BY_TYPE
from appliance.audience.segments import members, query_plan
from appliance.storage import masking
from appliance.storage.database import rows, scalar

T = TypeVar("T")

_MAX_KEYS = 100
_SAMPLE_FOR_KEYS = 2_000
_SAMPLE_FOR_VALUES = 5_000
_SAMPLE_EVENTS = 200
_MAX_NAMES = 300
_CACHE_SECONDS = 60
_MAX_DEPTH = 4
_MAX_TARGETS = 500
_TARGETS = {
    "list": "SELECT id, name FROM contact_list WHERE account_id = ? ORDER BY name_order(name), id LIMIT ?",
    "segment": "SELECT id, name FROM segment WHERE account_id = ? ORDER BY name_order(name), id LIMIT ?",
    "flow": "SELECT id, name FROM flow WHERE account_id = ? AND hidden = 0 AND deleted_at IS NULL "
            "ORDER BY name_order(name), id LIMIT ?",
    "campaign": "SELECT id, name FROM campaign WHERE account_id = ? AND deleted_at IS NULL ORDER BY id DESC LIMIT ?",
}  # fmt: skip
_TYPES = {str: "text", bool: "boolean", int: "number", float: "number", list: "list"}
DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d")
_suggestions: dict[tuple[Any, ...], tuple[float, Any]] = {}


class Key(Struct):
    """A path in custom data or in the data of events, with statistics of its values and an example.

    `types` has the number of sampled values by type: `text`, `date` (a text such as 2026-01-31), `number`, `boolean`
    and `list`. `people` is the number of contacts with a value, or for the data of events the number of sampled events
    with a value. `estimated` says whether that number was projected from a sample.
    """

    path: str
    types: dict[str, int]
    people: int
    estimated: bool
    example: Any

    @property
    def type(self) -> str:
        """Return the type of most of the values."""
        return max(self.types, key=lambda name: self.types[name])


class Value(Struct):
    """A value of a field, the number of contacts who have it, and whether that number was projected from a sample."""

    value: Any
    people: int
    estimated: bool


def suggest_data_keys(account_id: int) -> list[Key]:
    """Return up to `_MAX_KEYS` paths in the custom data of an account's contacts, the most common first."""
    return _cached(("keys", account_id), lambda: _keys(account_id))


def suggest_values(account_id: int, name: str, limit: int = 20) -> list[Value]:
    """Return up to `limit` values of a field, at most 50, the most common first.

    Values that differ only in case are one value, as for the predicate `eq`, in the spelling that most contacts have.
    Returns an empty list for unknown fields, for fields of types other than text, code, tags and custom data, and for
    addresses, whose values are mostly unique.
    """
    field = fields.find_field(name, FilterPlace.SPLIT, "NULL")
    if (
        field is None
        or field.type not in ("text", "code", "tags", "json")
        or field.normalize
        or name.startswith("event.")
    ):
        return []
    values = _cached(("values", account_id, field.name), lambda: _values(account_id, field))
    return values[:limit]


def list_event_names(account_id: int) -> list[str]:
    """Return up to `_MAX_NAMES` names of recorded events of an account, sorted; cached for `_CACHE_SECONDS`."""
    return _cached(("events", account_id), lambda: _events(account_id))


def suggest_event_keys(account_id: int, event: str) -> list[Key]:
    """Return the paths in the data of the latest `_SAMPLE_EVENTS` events named `event`, the most common path first."""
    return _cached(("event", account_id, event), lambda: _event_keys(account_id, event))


def list_targets(account_id: int, kind: str) -> list[tuple[int, str]]:
    """Return (id, name) of up to `_MAX_TARGETS` objects of a kind: `list`, `segment`, `flow` or `campaign`.

    Campaigns are sorted newest first, and all other objects by name.
    """
    return [(row[0], row[1]) for row in rows(_TARGETS[kind], (account_id, _MAX_TARGETS))]


def _cached(key: tuple[Any, ...], compute: Callable[[], list[T]]) -> list[T]:
    # Results read by a user who sees contact data must not be returned to a user for whom it is masked.
    key, now = (*key, masking.is_active()), time.monotonic()
    entry = _suggestions.get(key)
    if entry is None or now - entry[0] > _CACHE_SECONDS:
        if len(_suggestions) > 500:
            _suggestions.clear()
        entry = _suggestions[key] = (now, compute())
    suggestions: list[T] = entry[1]
    return suggestions


def _sample_condition(account_id: int, size: int) -> tuple[str, float]:
    """Return (SQL condition on `c` that selects a sample of contacts, number of contacts that each of them represents).

    The sample has about `size` contacts. In an account with up to `size` contacts, the condition selects all of them
    and the number is 1.0.
    """
    total = members.count_contacts(account_id)
    if total <= size:
        return "1", 1.0
    condition = f"c.id IN ({query_plan.spread_ids(size)})"
    sampled = int(scalar(f"SELECT count(*) FROM contact c WHERE c.account_id = ? AND {condition}", (account_id,)))
    return condition, total / max(1, sampled)


def _keys(account_id: int) -> list[Key]:
    condition, weight = _sample_condition(account_id, _SAMPLE_FOR_KEYS)
    documents = rows(
        f"SELECT c.data FROM contact c WHERE c.account_id = ? AND c.data <> '{{}}' AND {condition}", (account_id,)
    )
    return _summarize(documents, weight)


def _event_keys(account_id: int, event: str) -> list[Key]:
    sql = "SELECT data FROM event WHERE account_id = ? AND event = ? ORDER BY created_at DESC LIMIT ?"
    return _summarize(rows(sql, (account_id, event, _SAMPLE_EVENTS)), 1.0)


def _summarize(documents: list[tuple[Any, ...]], weight: float) -> list[Key]:
    path_counts: Counter[str] = Counter()
    types: dict[str, Counter[str]] = {}
    examples: dict[str, Any] = {}
    for (text,) in documents:
        for path, value in _iter_paths(msgspec.json.decode(text), "", 1):
            path_counts[path] += 1
            is_date = isinstance(value, str) and DATE_PATTERN.fullmatch(value)
            types.setdefault(path, Counter())["date" if is_date else _TYPES[type(value)]] += 1
            examples.setdefault(path, value)
    return [
        Key(path, dict(types[path]), round(number * weight), weight > 1, examples[path])
        for path, number in path_counts.most_common(_MAX_KEYS)
    ]


def _iter_paths(document: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in document.items() if isinstance(document, dict) else ():
        path = prefix + key
        if "." in key or fields.json_path(path) is None or path == "tags":
            continue
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from _iter_paths(value, f"{path}.", depth + 1)
        elif type(value) in _TYPES:
            yield path, value


def _values(account_id: int, field: Field) -> list[Value]:
    condition, weight = _sample_condition(account_id, _SAMPLE_FOR_VALUES)
    join, value, is_present = "", field.operand.value, f"{field.operand.value} <> ''"
    if field.type == "tags":
        join, value, is_present = ", json_each(c.data, '$.tags') t", "t.value", "json_type(c.data, '$.tags') = 'array'"
    elif field.type == "json":
        value = f"CASE {field.operand.type} WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE {value} END"
        is_present = (
            f"{field.operand.type} IN ('text', 'integer', 'real', 'true', 'false') AND {field.operand.value} <> ''"
        )
    elif field.sql_template != "{}":
        join, value = ", channel h", field.operand.value
        is_present = f"h.contact_id = c.id AND {value} IS NOT NULL"
    # With the single aggregate max(), SQLite takes `value` from the row with the largest count.
    value_counts = rows(
        "SELECT value, sum(number), max(number) FROM "
        f"(SELECT {value} AS value, count(*) AS number FROM contact c{join} "
        f"WHERE c.account_id = ? AND {condition} AND {is_present} GROUP BY 1 ORDER BY 2 DESC, 1) "
        "GROUP BY coalesce(folded(value), value), typeof(value) ORDER BY 2 DESC, 1 LIMIT 50", (account_id,),
    )  # fmt: skip
    return [
        Value(
            int(example) if isinstance(example, float) and example.is_integer() else example,
            round(number * weight),
            weight > 1,
        )
        for example, number, _ in value_counts
    ]


def _events(account_id: int) -> list[str]:
    # The query jumps from one name to the next in the index, so its cost does not depend on the number of events.
    names = rows(
        "WITH RECURSIVE name(n) AS (SELECT min(event) FROM event WHERE account_id = :account UNION ALL SELECT "
        "(SELECT min(event) FROM event WHERE account_id = :account AND event > n) FROM name WHERE n IS NOT NULL LIMIT "
        f"{_MAX_NAMES}) SELECT n FROM name WHERE n IS NOT NULL",
        {"account": account_id},
    )
    return [row[0] for row in names]


_GROUPS = (
    ("contact_list", "audience"), ("contact_segment", "audience"), ("contact_flow", "audience"),
    ("contact_", "person"), ("campaign_", "activity"), ("email_", "activity"), ("sms_", "activity"),
)  # fmt: skip


@cache
def describe_builder() -> dict[str, Any]:
    """Return what the segment builder offers, as a dict with the keys `fields`, `types` and `limits`.

    `fields` is a list of fields, `types` maps each field type to its predicates, and `limits` are the limits of the
    parser.
    """
    types = {
        kind: [
            {"predicate": key, "takes": test.value_kind, "negative": negative,
             "words": (test.opposite_phrase if negative else test.phrase).replace("{}", "").strip()}
            for key, (test, negative) in tests.items()
        ]
        for kind, tests in PREDICATES_BY_TYPE.items()
    }  # fmt: skip
    types["history"] = [
        {"predicate": key, "takes": "event", "negative": key != "performed", "words": words}
        for key, words in (("performed", "did"), ("not_performed", "did not do"))
    ]
    types["group"] = [
        {"predicate": mode, "takes": "filters", "negative": mode == "none", "words": f"{mode} of"}
        for mode in GROUP_MODES
    ]
    fields = [
        {"name": field.name, "type": field.type, "label": field.label, "section": _section(field.name),
         "aliases": list(field.aliases), "choices": list(field.choices), "of": field.id_kind or None}
        for field in FIELDS if field.listed
    ]  # fmt: skip
    fields.insert(9, {"name": "contact_data.<path>", "type": "json", "label": "custom data", "section": "person",
                      "aliases": ["data.<path>"], "choices": [], "of": None})  # fmt: skip
    limits = {
        "filters": compiler.MAX_FILTERS,
        "group": compiler.MAX_IN_GROUP,
        "depth": compiler.MAX_DEPTH,
        "in": predicates.MAX_IN_VALUES,
    }
    return {"fields": fields, "types": types, "limits": limits}


def _section(name: str) -> str:
    return next((section for start, section in _GROUPS if name.startswith(start)), "activity")
