"""Reads filters as they were sent into nodes, with every fault at its path."""

from typing import Any, NamedTuple

from appliance.audience.filters import fields, values
from appliance.audience.filters.fields import Field
from appliance.audience.filters.history import History, history
from appliance.audience.filters.predicates import BY_TYPE, Test
from appliance.audience.filters.scope import Asked, Place, Scope
from appliance.core.errors import Faults, Invalid

MAX_FILTERS = 100
MAX_IN_GROUP = 25
MAX_DEPTH = 5
KEYS = ("name", "predicate", "value")
GROUPS = ("any", "all", "none")


class Leaf(NamedTuple):
    """One condition: a field, a test or its opposite, a value."""

    field: Field
    test: Test
    negative: bool
    value: Any
    raw: dict[str, Any]


class Lived(NamedTuple):
    """Something that happened to a person, or did not."""

    field: Field
    history: History
    negative: bool
    raw: dict[str, Any]


class Group(NamedTuple):
    """Conditions of which any, all or none must hold."""

    mode: str
    parts: "list[Node]"
    raw: dict[str, Any]


Node = Leaf | Lived | Group


def filters(raw: Any, scope: Scope, path: str = "filters") -> list[Node]:
    """Read an array of filters; raises Invalid with all faults."""
    faults = Faults()
    reader = _Reader(scope, faults)
    nodes = reader.all(raw, path, MAX_FILTERS, 1)
    if reader.count > MAX_FILTERS:
        faults.add(path, f"is too long (maximum is {MAX_FILTERS} filters)")
    if faults.fields:
        raise Invalid(faults.fields)
    return nodes


class _Reader:
    def __init__(self, scope: Scope, faults: Faults) -> None:
        self.scope = scope
        self.faults = faults
        self.count = 0

    def all(self, raw: Any, path: str, most: int, depth: int) -> list[Node]:
        if not isinstance(raw, list):
            self.faults.add(path, "is invalid")
            return []
        if len(raw) > most:
            self.faults.add(path, f"is too long (maximum is {most} filters)")
            return []
        found = [self.one(item, f"{path}[{index}]", depth) for index, item in enumerate(raw)]
        return [node for node in found if node is not None]

    def one(self, raw: Any, path: str, depth: int) -> Node | None:
        self.count += 1
        if not isinstance(raw, dict):
            self.faults.add(path, "is invalid")
            return None
        for key in raw:
            if key not in KEYS:
                self.faults.add(f"{path}.{_shown(key)}", "is not a known field")
        field = self._field(raw, path)
        if field is None:
            return None
        if field.type == "group":
            return self._group(raw, path, depth)
        if field.type == "history":
            return self._lived(field, raw, path)
        return self._leaf(field, raw, path)

    def _field(self, raw: dict[str, Any], path: str) -> Field | None:
        """Read name and say of the predicate's presence; both faults are told at once."""
        if raw.get("predicate") in (None, ""):
            self.faults.add(f"{path}.predicate", "can't be blank")
        name = raw.get("name")
        if name in (None, ""):
            self.faults.add(f"{path}.name", "can't be blank")
            return None
        field = fields.find(name, self.scope.place, self.scope.document) if isinstance(name, str) else None
        if field is None:
            self.faults.add(f"{path}.name", "is not included in the list")
        return field

    def _predicate(self, raw: dict[str, Any], path: str, known: Any) -> str | None:
        key = raw.get("predicate")
        if key in (None, ""):
            return None
        if not isinstance(key, str) or key not in known:
            self.faults.add(f"{path}.predicate", "is not included in the list")
            return None
        return key

    def _leaf(self, field: Field, raw: dict[str, Any], path: str) -> Leaf | None:
        known = BY_TYPE[field.type]
        if field.of == "segment":
            # Every segment would be a part of the question, this one too
            known = {key: found for key, found in known.items() if found[0].key != "present"}
        key = self._predicate(raw, path, known)
        if key is None:
            return None
        test, negative = known[key]
        value = test.read(raw.get("value"), Asked(self.scope, self.faults, f"{path}.value", field))
        if test.takes == "flag" and value is False:
            value, negative = True, not negative
        return Leaf(field, test, negative, value, raw)

    def _lived(self, field: Field, raw: dict[str, Any], path: str) -> Lived | None:
        key = self._predicate(raw, path, ("performed", "not_performed"))
        asked = Asked(self.scope, self.faults, f"{path}.value", field)
        found = history(raw.get("value"), asked)
        if found is None:
            return None
        if found.where_raw is not None:
            inner = _Reader(self.scope._replace(place=Place.WHERE), self.faults)
            found = found._replace(where=inner.all(found.where_raw, f"{path}.value.where", MAX_IN_GROUP, 2))
            self.count += inner.count
        return Lived(field, found, key == "not_performed", raw)

    def _group(self, raw: dict[str, Any], path: str, depth: int) -> Group | None:
        mode = self._predicate(raw, path, GROUPS)
        where = f"{path}.value"
        if raw.get("value") in (None, []):
            self.faults.add(where, "can't be blank")
            return None
        if depth >= MAX_DEPTH:
            self.faults.add(where, f"is nested too deeply (maximum is {MAX_DEPTH} levels)")
            return None
        parts = self.all(raw["value"], where, MAX_IN_GROUP, depth + 1)
        return Group(mode, parts, raw) if mode else None


def _shown(key: Any) -> str:
    """Make a key fit for a path in an answer."""
    return values._UNWRITABLE.sub("?", str(key))[:100]
