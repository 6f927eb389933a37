"""Answers as examples: one of every shape that a success has, made from its schema, the story and words kept for it.

Each fits its schema, which `tests/rules/test_examples.py` looks at: a property that is new has a value at once.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from appliance.api.declare import Route
from appliance.api.document import examples
from appliance.api.document.sampled import FILLED, KINDS, NAMES, WHOLE

# Shapes lie in shapes; below this lists are empty and what may be null is
_MAX_DEPTH = 4
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
_PLAIN: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}}


class Samples:
    """Makes values of the schemas of a document."""

    def __init__(self, schemas: dict[str, Any], routes: Iterable[Route]) -> None:
        self._schemas = schemas
        self._told = _told(routes)

    def all(self, kinds: set[str], lists: set[str]) -> dict[str, Any]:
        """Return `components.examples`: by the names of kinds, and of lists of a kind."""
        found = {kind: {"value": self.of(kind)} for kind in kinds}
        return dict(sorted({**found, **{f"ListOf{kind}": {"value": [self.of(kind)]} for kind in lists}}.items()))

    def of(self, kind: str, level: int = 0) -> Any:
        """Return a value of a named schema."""
        schema = self._schemas[kind]
        if kind in WHOLE:
            return WHOLE[kind]
        return self._object(schema, kind, level)

    def _object(self, schema: dict[str, Any], kind: str, level: int) -> Any:
        if "properties" not in schema:
            return self._value(schema, kind, level)
        own = {**self._told.get(kind, {}), **KINDS.get(kind, {})}
        wanted = schema.get("required", ())
        found = {}
        for name, one in schema["properties"].items():
            for kept in (own, NAMES):
                if name in kept and self._fits(one, kept[name]):
                    found[name] = kept[name]
                    break
            else:
                if name in wanted:
                    one = one["anyOf"][0] if name in FILLED.get(kind, ()) else one
                    found[name] = self._value(one, name, level + 1)
        return found

    def _value(self, schema: dict[str, Any], name: str, level: int) -> Any:
        if "$ref" in schema:
            return self.of(schema["$ref"].rpartition("/")[2], level)
        for one in ("const", "enum"):
            if one in schema:
                return schema[one][0] if one == "enum" else schema[one]
        if parts := schema.get("anyOf"):
            plain = [part for part in parts if part.get("type") != "null"]
            return None if len(plain) < len(parts) else self._value(plain[0], name, level)
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "array":
            is_shape = "$ref" in schema.get("items", {}) and level < _MAX_DEPTH
            return [self._value(schema["items"], name, level + 1)] if is_shape else []
        return schema.get("minimum", 0) if kind == "integer" else _PLAIN.get(str(kind))

    def _fits(self, schema: dict[str, Any], value: Any) -> bool:
        """Return whether a value that is kept for a name is of the type that the name has here."""
        if "$ref" in schema:
            return self._fits(self._schemas[schema["$ref"].rpartition("/")[2]], value)
        if "anyOf" in schema:
            return any(self._fits(part, value) for part in schema["anyOf"])
        if "enum" in schema:
            return value in schema["enum"]
        if isinstance(value, dict) and not set(schema.get("required", ())) <= set(value):
            return False
        kinds = schema.get("type", "null")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)):
                return not isinstance(value, list) or all(self._fits(schema.get("items", {}), one) for one in value)
        return False


def _told(routes: Iterable[Route]) -> dict[str, dict[str, Any]]:
    """Return what the story says of a shape: the plain values of the body by which one is made."""
    found: dict[str, dict[str, Any]] = {}
    for route in routes:
        shown = examples.of(f"{route.method} {route.path}")
        if route.returns is None or route.status != 201 or not shown:
            continue
        said = {name: value for name, value in shown["1"]["value"].items() if not isinstance(value, dict)}
        kinds: tuple[type, ...] = route.returns.__mro__
        for kind in kinds:
            if kind is not Struct and issubclass(kind, Struct):
                found.setdefault(kind.__name__, said)
    return found
