"""The schemas of the document: what the Structs declare, with words for every property."""

from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from msgspec import Struct

from appliance import refused_keys
from appliance.api.document import typed, words
from appliance.reader import declared, is_cleared_by_empty


def all_schemas(kinds: Iterable[type[Struct]]) -> dict[str, Any]:
    """Return `components.schemas`: those of some Structs, of all that they hold, and those written by hand."""
    found = reach(kinds)
    _, components = msgspec.json.schema_components(
        sorted(found, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    classes = {kind.__name__: kind for kind in found}
    schemas = {name: _described(_mend(schema), classes.get(name)) for name, schema in components.items()}
    return dict(sorted({**schemas, **typed.schemas()}.items()))


def reach(kinds: Iterable[type[Struct]]) -> set[type[Struct]]:
    """Return some Structs and every Struct within them."""
    found: set[type[Struct]] = set()
    waiting: list[Any] = list(kinds)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, Struct):
            if kind not in found:
                found.add(kind)
                waiting += [info.type for info in declared(kind)]
        else:
            waiting += [one for one in get_args(kind) if not isinstance(one, str | int | float | msgspec.Meta)]
    return found


def _mend(schema: Any) -> Any:
    """Say of moments that they are text: inside they are whole numbers, on the wire they never are."""
    if isinstance(schema, list):
        return [_mend(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    mended = {key: _mend(value) for key, value in schema.items()}
    if mended.get("format") == "date-time":
        mended["type"] = "string"
    if "$ref" in mended:
        mended.pop("type", None)
    return mended


def _allow_empty(schema: dict[str, Any]) -> None:
    """Let a pattern take an empty text, which clears as null does."""
    for part in (schema, *schema.get("anyOf", ())):
        if "pattern" in part:
            part["pattern"] = f"^$|{part['pattern']}"


def _described(schema: dict[str, Any], kind: type[Struct] | None) -> dict[str, Any]:
    """Give every property its words: those that stand at its declaration, or else those kept for its name."""
    if refused := getattr(kind, "REFUSED", {}):
        schema["description"] += f" These keys are refused (422): {refused_keys.listed(refused)}."
    cleared = {info.encode_name for info in declared(kind) if is_cleared_by_empty(info.type)} if kind else set()
    for name, one in schema.get("properties", {}).items():
        if name in cleared:
            _allow_empty(one)
        for part in one.get("anyOf", ()):
            one |= {"default": part.pop("default")} if "default" in part else {}
        if "description" in one:
            continue
        within = [part.pop("description") for part in one.get("anyOf", ()) if "description" in part]
        said = within[0] if within else words.of_property(kind, name)
        if said is not None:
            one["description"] = said
    return schema
