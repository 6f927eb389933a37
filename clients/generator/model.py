"""What the clients need to know of the OpenAPI document: operations by resource, and types."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

METHODS = ("get", "post", "put", "patch", "delete")
BASE = "/v1/my"
# Signed requests of providers, and second addresses of other operations
_LEFT_OUT_TAGS = {"hooks"}
_LEFT_OUT = {"loginMy", "logoutMy"}
# The words for a resource in the names of its operations, where they are not its own name in singular or plural
_NOUNS = {"capture": ("captured",), "user": ("own_user", "own"), "audit": ("audit_entries",)}
_JSON = "application/json"
_FORM = "multipart/form-data"

# A type, independent of the language: ("name", N), ("literal", [values]), ("array", T), ("map", T), ("union", [T]),
# ("string",), ("integer",), ("number",), ("boolean",), ("null",), ("any",)
Type = tuple[Any, ...]


@dataclass(frozen=True)
class Property:
    """A property of an object or a parameter of a query."""

    name: str
    type: Type
    is_required: bool
    description: str = ""


@dataclass(frozen=True)
class ObjectType:
    """An object with known properties. `is_open` if it may have further ones."""

    name: str
    description: str
    properties: list[Property]
    is_open: bool = False


@dataclass(frozen=True)
class Alias:
    """A type that is not an object."""

    name: str
    description: str
    type: Type


@dataclass(frozen=True)
class Operation:
    """An operation. `method_name` is in snake case; `body`, `query`, `form` and `result` are names of types."""

    resource: str
    method_name: str
    operation_id: str
    http_method: str
    path: str
    path_parameters: list[tuple[str, Literal["integer", "string"]]]
    summary: str
    description: str
    query: str | None
    body: str | None
    is_body_required: bool
    form: str | None
    kind: Literal["list", "object", "file", "nothing"]
    result: str | None
    is_idempotent: bool
    has_key_in_body: bool
    query_properties: list[Property]


@dataclass
class Api:
    """The API: its version, resources with their descriptions, operations and types."""

    version: str
    resources: dict[str, str] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    types: dict[str, ObjectType | Alias] = field(default_factory=dict)

    def operations_of(self, resource: str) -> list[Operation]:
        """Return the operations of a resource in the order of the document."""
        return [operation for operation in self.operations if operation.resource == resource]


def read(document: dict[str, Any]) -> Api:
    """Return the API that an OpenAPI document describes."""
    return _Reader(document).read()


class _Reader:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._api = Api(document["info"]["version"])

    def read(self) -> Api:
        for name, schema in self._document["components"]["schemas"].items():
            self._add_type(name, schema)
        names: dict[tuple[str, str], str] = {}
        for path, item in self._document["paths"].items():
            for method in METHODS:
                if method in item and not self._is_left_out(item[method]):
                    operation = self._operation(method.upper(), path, item[method])
                    other = names.setdefault((operation.resource, operation.method_name), operation.operation_id)
                    if other != operation.operation_id:
                        raise ValueError(f"{other} and {operation.operation_id} would get the same name")
                    self._api.operations.append(operation)
        used = {operation.resource for operation in self._api.operations}
        tags = {tag["name"]: tag["description"] for tag in self._document["tags"]}
        if missing := used - tags.keys():
            raise ValueError(f"the tags {sorted(missing)} are not declared")
        self._api.resources = {name: text for name, text in tags.items() if name in used}
        return self._api

    @staticmethod
    def _is_left_out(operation: dict[str, Any]) -> bool:
        return operation["operationId"] in _LEFT_OUT or bool(_LEFT_OUT_TAGS & {*operation["tags"]})

    # -- operations ----------------------------------------------------------------------------------------------

    def _operation(self, method: str, path: str, node: dict[str, Any]) -> Operation:
        parameters = [self._resolve(parameter) for parameter in node.get("parameters", ())]
        title = _capitalize(node["operationId"])
        query = self._query(f"{title}Query", node, [item for item in parameters if item["in"] == "query"])
        body, is_body_required, form = self._body(title, node)
        if body and query and not {*self._names(query)} - {*self._names(body)}:
            query = None  # the same values may be sent in the body or in the query
        kind, result = self._result(title, node)
        path_parameters: list[tuple[str, Literal["integer", "string"]]] = [
            (item["name"], "integer" if item["schema"]["type"] == "integer" else "string")
            for item in parameters
            if item["in"] == "path"
        ]
        resource = node["tags"][0]
        return Operation(
            resource=resource,
            method_name=method_name(resource, path, node["operationId"]),
            operation_id=node["operationId"],
            http_method=method,
            path=path,
            path_parameters=path_parameters,
            summary=node["summary"],
            description=node.get("description", ""),
            query=query,
            body=body,
            is_body_required=is_body_required,
            form=form,
            kind=kind,
            result=result,
            is_idempotent=any(item["name"] == "Idempotency-Key" for item in parameters),
            has_key_in_body=body is not None and "idempotency_key" in self._names(body),
            query_properties=self._object(query).properties if query else [],
        )

    def _query(self, name: str, node: dict[str, Any], parameters: list[dict[str, Any]]) -> str | None:
        if not parameters:
            return None
        properties = [
            Property(
                item["name"],
                self._type(f"{name}{_capitalize(item['name'])}", item["schema"]),
                item.get("required", False),
                item.get("description", ""),
            )
            for item in parameters
        ]
        self._api.types[name] = ObjectType(name, f"Parameters of `{node['operationId']}`.", properties)
        return name

    def _body(self, title: str, node: dict[str, Any]) -> tuple[str | None, bool, str | None]:
        """Return the types of the JSON body, whether it is required, and the type of the fields of a form."""
        body = node.get("requestBody")
        if body is None:
            return None, False, None
        if _FORM in body["content"]:
            parts = body["content"][_FORM]["schema"]["allOf"]
            return None, True, _name_of(next(part for part in parts if "$ref" in part))
        schema = body["content"][_JSON]["schema"]
        schema = schema["anyOf"][0] if "anyOf" in schema else schema  # a login may be nested, too
        kind = self._type(f"{title}Body", schema)
        is_required = body["required"] and bool(self._required(kind[1]))
        return kind[1], is_required, None

    def _required(self, name: str) -> list[str]:
        return [item.name for item in self._object(name).properties if item.is_required]

    def _result(self, title: str, node: dict[str, Any]) -> tuple[Any, str | None]:
        response = next(item for status, item in node["responses"].items() if status.startswith("2"))
        content = response.get("content")
        if not content:
            return "nothing", None
        if _JSON not in content:
            return "file", None
        schema = content[_JSON]["schema"]
        if schema.get("type") == "array":
            return "list", _name_of(schema["items"])
        return "object", self._type(f"{title}Result", schema)[1]

    def _names(self, name: str) -> Iterator[str]:
        return (item.name for item in self._object(name).properties)

    def _object(self, name: str) -> ObjectType:
        if name not in self._api.types:
            self._add_type(name, self._document["components"]["schemas"][name])
        item = self._api.types[name]
        assert isinstance(item, ObjectType), f"{name} is not an object"
        return item

    # -- types ---------------------------------------------------------------------------------------------------

    def _resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in node:
            return node
        target: Any = self._document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return dict(target)

    def _add_type(self, name: str, schema: dict[str, Any]) -> None:
        text = _first_sentence(schema.get("description", ""))
        if "properties" in schema or schema.get("type") == "object":
            # The name is taken before the properties are read, because they may contain the object itself
            self._api.types[name] = ObjectType(name, text, [], bool(schema.get("additionalProperties")))
            self._api.types[name].properties.extend(self._properties(name, schema))  # type: ignore[union-attr]  # above
        else:
            self._api.types[name] = Alias(name, text, self._type(name, schema))

    def _properties(self, owner: str, schema: dict[str, Any]) -> list[Property]:
        required = {*schema.get("required", ())}
        return [
            Property(name, self._type(owner + _capitalize(name), child), name in required, child.get("description", ""))
            for name, child in schema.get("properties", {}).items()
        ]

    def _type(self, name: str, schema: dict[str, Any]) -> Type:
        """Return the type of a schema; an object within another gets a type called `name`."""
        if "$ref" in schema:
            return "name", _name_of(schema)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return union([self._type(name, part) for part in schema[key]])
        if "enum" in schema:
            return "literal", tuple(schema["enum"])
        if "const" in schema:
            return "literal", (schema["const"],)
        kinds = schema.get("type", "any")
        return union(
            [self._type_of_kind(name, kind, schema) for kind in (kinds if isinstance(kinds, list) else [kinds])]
        )

    def _type_of_kind(self, name: str, kind: str, schema: dict[str, Any]) -> Type:
        if kind == "array":
            return "array", self._type(name.removesuffix("s"), schema.get("items", {}))
        if kind != "object":
            return (kind,)
        if "properties" in schema:
            if name in self._api.types:
                raise ValueError(f"two types would be called {name}")
            self._add_type(name, schema | {"description": schema.get("description", "")})
            return "name", name
        extra = schema.get("additionalProperties")
        return "map", self._type(name, extra) if isinstance(extra, dict) else ("any",)


def union(parts: list[Type]) -> Type:
    """Return the union of types: each of them once, null at the end."""
    flat: list[Type] = []
    for part in parts:
        flat += part[1] if part[0] == "union" else [part]
    literals = tuple(dict.fromkeys(value for part in flat if part[0] == "literal" for value in part[1]))
    others = list(dict.fromkeys(part for part in flat if part[0] != "literal"))
    if ("any",) in others:
        return ("any",)
    if ("string",) in others:
        literals = tuple(value for value in literals if not isinstance(value, str))
    every = [*([("literal", literals)] if literals else []), *sorted(others, key=lambda part: part == ("null",))]
    return every[0] if len(every) == 1 else ("union", tuple(every))


def method_name(resource: str, path: str, operation_id: str) -> str:
    """Return the name of an operation within its resource, such as `list_timeline` for `listContactTimeline`.

    The words for the resource are left out. An operation on several objects that would get the name of that on one of
    them is called after the last part of its path.
    """
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", operation_id).lower()
    verb, _, rest = name.partition("_")
    if resource == "exports":
        return rest
    singular = resource.removesuffix("s")
    for noun in (*_NOUNS.get(resource, ()), f"{singular}s", singular):
        rest = re.sub(rf"(?:^|_){noun}(?=_|$)", "", rest, count=1).strip("_") if noun else rest
    short = f"{verb}_{rest}".strip("_")
    return f"{short}_batch" if path.endswith("/batch") else short


def _name_of(reference: dict[str, Any]) -> str:
    return str(reference["$ref"].rpartition("/")[2])


def _capitalize(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _first_sentence(text: str) -> str:
    line = " ".join(text.split("\n")[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z])", line)[0]
