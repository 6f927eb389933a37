"""The OpenAPI document of a server: its operations, their parameters, and where they contain ids of other objects."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.kit.client import Client, Response

WRITES = ("POST", "PUT", "PATCH", "DELETE")
JSON = "application/json"


@dataclass(frozen=True)
class Operation:
    """An operation of the document."""

    method: str
    path: str
    description: dict[str, Any]

    @property
    def has_id(self) -> bool:
        """Whether the path contains an id."""
        return "{id}" in self.path

    @property
    def noun(self) -> str:
        """The kind of object in the path, such as `contacts`."""
        return self.path.removeprefix("/v1/my/").partition("/")[0]

    @property
    def queries(self) -> list[str]:
        """The names of the query parameters."""
        return [parameter["name"] for parameter in self.description.get("parameters", []) if parameter["in"] == "query"]

    @property
    def media_types(self) -> list[str]:
        """The media types of the body."""
        return list(self.description.get("requestBody", {}).get("content", {}))

    @property
    def nested_noun(self) -> str | None:
        """The kind of nested object in the path, such as `runs`."""
        match = re.search(r"/(\w+)/\{\w+_id\}", self.path)
        return match[1] if match else None

    def path_with_id(self, number: object, inner: object = None) -> str:
        """Return the path with an id, and a second id for the nested object if there is one; a language is German."""
        second = number if inner is None else inner
        path = self.path.replace("{id}", str(number)).replace("{language}", "de")
        return re.sub(r"\{\w+_id\}", str(second), path)

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix('/v1/my')}"


class OpenApiDocument:
    """The OpenAPI document of a running server."""

    def __init__(self, api: Client) -> None:
        self.document = api.contract().document

    def operations(self) -> list[Operation]:
        """Return every operation under `/v1/my` that an API key can use."""
        return [
            Operation(
                method.upper(),
                path,
                {**description, "parameters": [self.resolve_part(each) for each in description.get("parameters", [])]},
            )
            for path, methods in self.document["paths"].items()
            for method, description in methods.items()
            if path.startswith("/v1/my/") and "security" not in description
        ]

    def resolve_part(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return a shared parameter, header or response with its reference resolved."""
        while "$ref" in node:
            _, _, kind, name = node["$ref"].split("/")
            node = self.document["components"][kind][name]
        return node

    def request_schema(self, operation: Operation) -> dict[str, Any] | None:
        """Return the schema of an operation's JSON body, or None if it has none."""
        content = operation.description.get("requestBody", {}).get("content", {})
        return self.resolve(content[JSON]["schema"]) if JSON in content else None

    def response_schema(self, operation: Operation) -> dict[str, Any]:
        """Return the schema of an operation's success response."""
        good = next(value for status, value in operation.description["responses"].items() if status.startswith("2"))
        schema = good["content"].get(JSON, {}).get("schema", {})
        return self.resolve(schema.get("items", schema))

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema with its references resolved; of alternatives, the first that is not null."""
        while True:
            if "$ref" in schema:
                schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            elif "anyOf" in schema:
                schema = next(
                    (variant for variant in schema["anyOf"] if variant.get("type") != "null"), schema["anyOf"][0]
                )
            else:
                return schema

    def properties(self, schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the properties of an object schema, each resolved."""
        return {name: self.resolve(field) for name, field in self.resolve(schema).get("properties", {}).items()}

    def leaves(
        self, schema: dict[str, Any], path: str = "", above: tuple[int, ...] = ()
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (path, schema) of every value of a body, such as `a.b[].c`; recursive types are entered once."""
        above = (*above, id(self.resolve(schema)))
        for name, inner in self.properties(schema).items():
            where = f"{path}.{name}" if path else name
            item = self.resolve(inner.get("items", {}))
            if "properties" in inner:
                yield from self.leaves(inner, where, above)
            elif "properties" in item and id(item) not in above:
                yield from self.leaves(item, f"{where}[]", above)
            else:
                yield where, inner

    def contains_ids(self, where: str, schema: dict[str, Any]) -> bool:
        """Return whether a value of a body contains ids, by its name or because it is a list of integers.

        A value that may be a string is an identifier chosen by the client, and not an id.
        """
        if "string" in schema.get("type", []):
            return False
        items = schema.get("items", {})
        kinds = items.get("type", [])
        numbers = "integer" in ([kinds] if isinstance(kinds, str) else kinds)
        last = where.rpartition(".")[2]
        return last == "id" or last.endswith(("_id", "_ids")) or numbers


def body_with(where: str, value: Any, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a body with a value at a path such as `a.b[].c`."""
    body = {} if body is None else body
    target: Any = body
    *parents, last = where.split(".")
    for name in parents:
        if name.endswith("[]"):
            entries = target.setdefault(name[:-2], [])
            entries[:] = entries or [{}]
            target = entries[0]
        else:
            target = target.setdefault(name, {})
    target[last] = value
    return body


def validation_errors(response: Response) -> dict[str, list[str]]:
    """Return the errors of a body by path, also for batches whose errors have an index."""
    if response.status != 200:
        errors: dict[str, list[str]] = response.expect(422)["validation_errors"]
        return errors
    if "results" in response.json:
        return {
            f"messages[{index}].{name}": messages
            for index, result in enumerate(response.json["results"])
            for name, messages in result["errors"].items()
        }
    return {
        f"events[{row['index']}].{name}": messages
        for row in response.json["errors"]
        for name, messages in row["validation_errors"].items()
    }
