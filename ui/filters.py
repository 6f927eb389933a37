"""Filters in forms: rows as a browser posts them, the filters of the contract that they mean, and back.

A row's fields are named `<prefix>.<key>.<what>`; `<prefix>.row` names the keys in their order, `<prefix>.<key>.row`
those of the rows inside a row (of a group, or of what an event was like). So rows may be moved in the page without
being renamed, and a form reads the same with and without a script.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from appliance.audience.filters import fields
from appliance.audience.filters.fields import Field
from appliance.audience.filters.predicates import BY_TYPE
from appliance.audience.filters.read import GROUPS, MAX_DEPTH
from appliance.audience.filters.scope import Place
from appliance.core import errors
from ui import filter_values
from ui.forms import sentence

# One rule as it stands in a form: what was chosen so far, what goes with it, and the filter that it means.

ANY_DATA = "contact_data.*"
ANY_EVENT = "event:*"
ANY_EVENT_DATA = "event.*"
# What a row may say besides field, predicate and values
MORE = ("often", "times", "times_to", "when", "days", "since", "machine", "path", "kind", "was", "as")
_FIRST = {"time": "within_days", "number": "gteq", "tags": "cont", "history": "performed", "group": "any",
          "boolean": "true", "text": "eq", "code": "eq", "json": "eq", "id": "eq"}  # fmt: skip


class Row:
    """One rule as it stands in a form; `rows` are the rules of a group, or of the data of an event."""

    def __init__(self, key: str, name: str = "", predicate: str = "", values: list[str] | None = None) -> None:
        self.key = key
        self.name = name
        self.predicate = predicate
        self.values = values or []
        self.more: dict[str, str] = {}
        self.rows: list[Row] = []
        self.error = ""
        self.path = ""
        # For the page: what is offered here, and how many people the rule alone lets through
        self.offer: Any = None
        self.share: Any = None

    def __getitem__(self, name: str) -> str:
        return self.more.get(name, "")

    @property
    def field(self) -> Field | None:
        """Return the field that is meant, or None as long as none is chosen."""
        if self.name.startswith("event:"):
            return fields.BY_NAME["event"]
        if self.name in (ANY_DATA, ANY_EVENT_DATA):
            return fields.find(self.name[:-1] + (self["path"] or "?"), Place.SPLIT, "x")
        return fields.BY_NAME["group"] if self.name == "group" else fields.find(self.name, Place.SPLIT, "x")

    @property
    def type(self) -> str:
        """Return the type of the field, or nothing."""
        return self.field.type if self.field else ""

    @property
    def takes(self) -> str:
        """Return what the value is: a text, numbers, days …"""
        return filter_values.takes(self.type, self.predicate)

    @property
    def is_blank(self) -> bool:
        """Return whether nothing was chosen here yet."""
        return not self.name or (self.type == "group" and all(row.is_blank for row in self.rows))

    @property
    def is_complete(self) -> bool:
        """Return whether a filter can be made of it; a group needs one complete rule."""
        if self.field is None or not self.predicate:
            return False
        if self.type == "group":
            return any(row.is_complete for row in self.rows)
        if self.type == "history":
            return bool(self.event)
        if self.name in (ANY_DATA, ANY_EVENT_DATA) and not self["path"]:
            return False
        return filter_values.is_complete(self.takes, self.values)

    @property
    def event(self) -> str:
        """Return the event that a history is about."""
        return self["path"] if self.name == ANY_EVENT else self.name.partition(":")[2]

    def settle(self) -> None:
        """Choose what goes with the field: a predicate that it has, and values of the predicate's sort."""
        changed = bool(self["was"]) and self["was"] != self.name
        known = (*BY_TYPE.get(self.type, ()), "performed", "not_performed", *GROUPS)
        if self.type and (changed or self.predicate not in known or not self.takes):
            self.predicate = _FIRST[self.type]
        if changed:
            self.values = []
        elif self["as"] and self["as"] != self.takes:
            self.values = filter_values.carried(self["as"], self.takes, self.values)
        if not self.values and self.takes == "days":
            self.values = ["30"]
        if self.type == "group" and not self.rows:
            self.rows = [Row(f"{self.key}-a"), Row(f"{self.key}-b")]

    def filter(self) -> dict[str, Any]:
        """Return the filter that it means; rules inside that are not complete are left out."""
        name = self.name
        if name in (ANY_DATA, ANY_EVENT_DATA):
            name = name[:-1] + self["path"]
        if self.type == "group":
            return {"name": "group", "predicate": self.predicate, "value": parts(self.rows)}
        if self.type == "history":
            where = parts(self.rows)
            value = {"event": self.event, **filter_values.history(self), **({"where": where} if where else {})}
            return {"name": "event", "predicate": self.predicate, "value": value}
        return {"name": name, "predicate": self.predicate, "value": filter_values.value(self)}


def parts(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the filters of the rows that are complete."""
    return [row.filter() for row in rows if row.is_complete]


PREFIX = "f"
MAX_ROWS = 120
_KEY = re.compile(r"[a-z0-9-]{1,40}")


class Rows:
    """All rules of one form."""

    def __init__(self, rows: list[Row], prefix: str = PREFIX) -> None:
        self.rows = rows
        self.prefix = prefix
        self.error = ""
        # Whose counts these are, so that a newer question of the same page ends the older; and which sample is shown
        self.asker = secrets.token_hex(8)
        self.seed = 0
        # In a flow: the event that begins it, whose data can be asked about
        self.event = ""

    @classmethod
    def of(cls, raw: Any, prefix: str = PREFIX) -> "Rows":
        """Make rows of stored filters."""
        return cls(list(_rows_of(raw, "")), prefix)

    @classmethod
    def blank(cls, prefix: str = PREFIX) -> "Rows":
        """Make one row in which nothing is chosen yet."""
        return cls([Row("n0")], prefix)

    @classmethod
    def posted(cls, posted: Mapping[str, list[str]], prefix: str = PREFIX) -> "Rows":
        """Read rows from what a form posted (`Form.lists`) or a query says, and choose what goes with each field."""
        made = cls(_read(posted, prefix, f"{prefix}.row", 1, set()), prefix)
        asker, seed, made.event = (
            next(iter(posted.get(f"{prefix}.{what}", ())), "") for what in ("asker", "seed", "event")
        )  # fmt: skip
        made.asker = asker if _KEY.fullmatch(asker) else made.asker
        made.seed = int(seed) if seed.isdecimal() and len(seed) < 9 else 0
        return made

    def __iter__(self) -> Iterator[Row]:
        """Return every row, those inside others too."""
        return _all(self.rows)

    def filters(self) -> list[dict[str, Any]]:
        """Return the filters of the contract, of every row in which a field was chosen."""
        _place(self.rows, "filters", strict=True)
        return _strict(self.rows)

    def complete(self) -> list[dict[str, Any]]:
        """Return the filters of the rows that are complete: what can be counted while others are being written."""
        _place(self.rows, "filters", strict=False)
        return parts(self.rows)

    def take(self, refused: errors.Invalid, path: str = "filters") -> None:
        """Show the faults of filters at their rows; `path` is where the filters stood in what was refused."""
        by_path = {row.path: row for row in self if row.path}
        for place, messages in refused.fields.items():
            here = "filters" + place.removeprefix(path) if place.startswith(path) else place
            while here and here not in by_path:
                here = _shorter(here)
            said = sentence(messages[0])
            if here:
                by_path[here].error = by_path[here].error or said
            else:
                self.error = self.error or said

    def act(self, posted: Mapping[str, list[str]]) -> bool:
        """Do what a button of the rows says (add, remove, move, copy); returns whether one was pressed."""
        said = next(iter(posted.get(f"{self.prefix}.act", ())), "")
        verb, _, key = said.partition(":")
        key, _, value = key.partition(":")
        act = _ACTS.get(verb)
        if act is None:
            return False
        act(self, key, value)
        return True

    def parent(self, row: Row) -> str:
        """Return the key of the row that a row stands in, or nothing."""
        return next((one.key for one in self if any(row is inner for inner in one.rows)), "")

    def siblings(self, key: str) -> tuple[list[Row], int] | None:
        """Return the rows among which a row stands, and its place there."""
        for among in _levels(self.rows):
            for index, row in enumerate(among):
                if row.key == key:
                    return among, index
        return None

    def fresh(self) -> Iterator[str]:
        """Return keys that no row has."""
        taken = {row.key for row in self}
        return (key for key in (f"n{number}" for number in count()) if key not in taken)


def _shorter(path: str) -> str:
    """Return a path without its last step: `a.value[1]` is inside `a.value`, and that inside `a`."""
    return path[: max(path.rfind("["), path.rfind("."), 0)]


def _all(rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        yield row
        yield from _all(row.rows)


def _levels(rows: list[Row]) -> Iterator[list[Row]]:
    yield rows
    for row in rows:
        yield from _levels(row.rows)


def _place(rows: list[Row], path: str, strict: bool) -> None:
    """Note at each row that becomes a filter the path that faults of it will have."""
    index = 0
    for row in rows:
        row.path = ""
        if (not row.is_blank) if strict else row.is_complete:
            row.path = f"{path}[{index}]"
            index += 1
            _place(row.rows, f"{row.path}.value" + (".where" if row.type == "history" else ""), strict)


def _strict(rows: list[Row]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        if row.is_blank:
            continue
        made = row.filter()
        if row.type == "group":
            made["value"] = _strict(row.rows)
        elif row.type == "history" and _strict(row.rows):
            made["value"]["where"] = _strict(row.rows)
        found.append(made)
    return found


def _read(posted: Mapping[str, list[str]], prefix: str, name: str, depth: int, seen: set[str]) -> list[Row]:
    found = []
    for key in posted.get(name, ()):
        if depth > MAX_DEPTH + 1 or key in seen or not _KEY.fullmatch(key) or len(seen) >= MAX_ROWS:
            continue
        seen.add(key)
        here = f"{prefix}.{key}."

        def first(what: str, here: str = here) -> str:
            return next(iter(posted.get(here + what, ())), "").strip()

        row = Row(key, first("name"), first("predicate"))
        row.more = {what: text for what in MORE if (text := first(what))}
        row.values = [text.replace("\r\n", "\n") for text in posted.get(f"{here}value", ())]
        row.rows = _read(posted, prefix, f"{here}row", depth + 1, seen)
        row.values = filter_values.tidy(row)
        row.settle()
        found.append(row)
    return found


def _rows_of(raw: Any, key: str) -> Iterator[Row]:
    for index, one in enumerate(raw if isinstance(raw, list) else []):
        row = Row(f"{key}{'-' if key else ''}{index}", one["name"], one["predicate"])
        value = one.get("value")
        if row.name == "group":
            row.rows = list(_rows_of(value, row.key))
        elif row.name == "event":
            row.name = f"event:{value['event']}"
            row.more = filter_values.of_history(value)
            row.rows = list(_rows_of(value.get("where") or [], row.key))
        else:
            filter_values.put(row, value)
        yield row


def _add(rows: Rows, key: str, name: str) -> None:
    found = rows.siblings(key)
    row = Row(next(rows.fresh()), name)
    row.settle()
    if key and found is None:
        return
    (found[0][found[1]].rows if found else rows.rows).append(row)


def _remove(rows: Rows, key: str, _: str) -> None:
    if found := rows.siblings(key):
        del found[0][found[1]]


def _move(step: int) -> Any:
    def move(rows: Rows, key: str, _: str) -> None:
        if found := rows.siblings(key):
            among, index = found
            among.insert(max(0, index + step), among.pop(index))

    return move


def _copy(rows: Rows, key: str, _: str) -> None:
    if found := rows.siblings(key):
        keys = rows.fresh()
        found[0].insert(found[1] + 1, _twin(keys, found[0][found[1]]))


def _twin(keys: Iterator[str], row: Row) -> Row:
    made = Row(next(keys), row.name, row.predicate, list(row.values))
    made.more = dict(row.more)
    made.rows = [_twin(keys, one) for one in row.rows]
    return made


def _pick(rows: Rows, key: str, value: str) -> None:
    """Put a value that was seen into a row, or take it out again where several may stand."""
    if found := rows.siblings(key):
        row = found[0][found[1]]
        many = row.takes in filter_values.MANY
        row.values = [one for one in row.values if one != value] + ([] if many and value in row.values else [value])
        if not many:
            row.values = [value]


def _shuffle(rows: Rows, _key: str, _value: str) -> None:
    """Show others of those who match."""
    rows.seed += 1


_ACTS = {
    "shuffle": _shuffle,
    "add": _add,
    "remove": _remove,
    "up": _move(-1),
    "down": _move(1),
    "copy": _copy,
    "pick": _pick,
}
