"""The published OpenAPI document for tests: resolved references, types in one notation."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from tests.kit.fork_server import fork_server
from tests.kit.server import ROOT

BASE = "/v1/my"
# Aliases of login and logout, which are not part of the account's paths
OUTSIDE = (f"{BASE}/login", f"{BASE}/logout")
METHODS = ("get", "put", "post", "delete", "patch")
_FORMATS = ("date-time", "uuid", "email")


@cache
def publish(**environment: str) -> bytes:
    """Return the document as the command line prints it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAMPANERO_")}
    done = fork_server().run(["openapi"], clean | environment, ROOT, "", 60)
    assert done.returncode == 0, done.stderr
    return done.stdout.encode()


def parse(text: bytes) -> Any:
    """Return the document that a YAML text holds; the loader in Python takes ten times as long as that in C."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def document() -> dict[str, Any]:
    """Return the document that the command line prints."""
    read: dict[str, Any] = parse(publish())
    return read


def resolve(node: Any) -> Any:
    """Return the target of a node that is a reference, or the node itself."""
    while isinstance(node, dict) and "$ref" in node:
        spec: Any = document()
        for part in node["$ref"].removeprefix("#/").split("/"):
            spec = spec[part.replace("~1", "/").replace("~0", "~")]
        node = spec
    return node


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (method, path, operation) for all operations, with paths relative to `/v1/my`."""
    for path, methods in document()["paths"].items():
        for method in METHODS:
            if method in methods:
                yield method.upper(), path.removeprefix(BASE) if path not in OUTSIDE else path, methods[method]


def operation(name: str) -> dict[str, Any]:
    """Return an operation by `METHOD /path`."""
    return next(operation for method, path, operation in operations() if f"{method} {path}" == name)


def parameters(operation: dict[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of an operation in `query`, `header` or `path`, by name."""
    every = map(resolve, operation.get("parameters", []))
    return {parameter["name"]: parameter for parameter in every if parameter["in"] == where}


def body(operation: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of an operation's body, or None if it has none."""
    if "requestBody" not in operation:
        return None
    content = resolve(operation["requestBody"])["content"]
    return merge_all_of(next(iter(content.values()))["schema"])


def merge_all_of(node: Any) -> dict[str, Any]:
    """Return an object's schema with all of its `allOf` merged."""
    schema = resolve(node)
    whole = {"properties": dict(schema.get("properties", {})), "required": list(schema.get("required", []))}
    for part in map(merge_all_of, schema.get("allOf", ())):
        whole["properties"] |= part["properties"]
        whole["required"] += part["required"]
    return schema | whole


def notation(node: Any) -> str:
    """Return a type in the notation of the tables."""
    if "$ref" in node:
        schema = resolve(node)
        return str(node["$ref"].rpartition("/")[2]) if _is_object(schema) else notation(schema)
    only = node["allOf"] if len(node.get("allOf", ())) == 1 else None
    if parts := node.get("anyOf") or node.get("oneOf") or only:
        names = [notation(part) for part in parts]
        plain = [name for name in names if name != "null"]
        return (plain[0] if len(plain) == 1 else "any") + "?" * ("null" in names)
    kind = node.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or ())
    null = "?" * ("null" in kinds or (None in node.get("enum", ())))
    if "enum" in node or "const" in node:
        if kinds == ["boolean"]:
            return "boolean"
        values = [str(row) for row in node.get("enum", [node.get("const")]) if row is not None]
        return f"enum({','.join(sorted(values))})" + null
    plain = [kind for kind in kinds if kind != "null"]
    if len(plain) != 1:
        return "null" if kinds == ["null"] else "any" + null
    if plain[0] == "array":
        return f"[{notation(node.get('items', {}))}]" + null
    return (node["format"] if plain[0] == "string" and node.get("format") in _FORMATS else plain[0]) + null


def _is_object(schema: Any) -> bool:
    return "properties" in schema or "allOf" in schema or schema.get("type") == "object"


def sorted_enum(type_: str) -> str:
    """Return a type of a table with its choices sorted, as `notation` returns them."""
    if not type_.startswith("enum("):
        return type_
    inner, _, null = type_.removeprefix("enum(").rpartition(")")
    return f"enum({','.join(sorted(inner.split(',')))}){null}"


def agrees(promised: str, actual: str) -> bool:
    """Return whether a published type is the expected one. An object without fields in the tables may be any object."""
    promised, actual = sorted_enum(promised), sorted_enum(actual)
    if promised == actual:
        return True
    if promised.startswith("[") and actual.startswith("["):
        return promised[-1] == actual[-1] and agrees(promised[1:].rstrip("?")[:-1], actual[1:].rstrip("?")[:-1])
    if promised.rstrip("?") == "any":
        return True
    bare, have = promised.rstrip("?"), actual.rstrip("?")
    if promised.endswith("?") != actual.endswith("?"):
        return False
    return bare == "object" and have in document()["components"]["schemas"]
