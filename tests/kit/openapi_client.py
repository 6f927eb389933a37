"""A client whose methods are generated from the published OpenAPI document, with arguments checked against it.

`api = open_api_client(client)`; then `api.campaigns.send(7, {"hold_seconds": 15}, idempotency_key="k")`. The resource
is the first part of a path; the method is the rest of it, or else `list get create update replace delete`. Arguments
are the path parameters, then the body; query parameters and headers are keywords. A request that is not in the document
raises NotInDocument, and a response that is not in it raises AssertionError.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.kit.client import Client, Response
from tests.kit.contract import Contract

BASE = "/v1/my"
_VERBS = {"get": "get", "post": "create", "patch": "update", "put": "replace", "delete": "delete"}
_ALIASES = (f"{BASE}/login", f"{BASE}/logout")
_SENT_BY_CLIENT = {"authorization", "content-type"}


class NotInDocument(Exception):
    """The requested operation or its arguments are not in the OpenAPI document."""


class ApiError(Exception):
    """The service returned an error to a request."""

    def __init__(self, response: Response):
        self.response, self.body = response, response.json
        self.status, self.code = response.status, self.body["code"]
        super().__init__(f"{self.status} {self.code}: {response.text[:1000]}")


class Operation(NamedTuple):
    """An operation of the document."""

    method: str
    path: str
    names: tuple[str, ...]  # path parameters
    queries: dict[str, Any]  # parameter -> schema
    headers: dict[str, str]  # keyword -> name
    body: str | None  # pointer to the schema of a JSON body
    required: bool
    required_queries: tuple[str, ...]  # query parameters that are required


class OperationCaller:
    """The operations with one method name, distinguished by the number of path parameters."""

    def __init__(self, client: Client, name: str, operations_: dict[int, Operation]):
        self._client, self._name, self._operations = client, name, operations_

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """Send a request and return the JSON of a success, or its text. Raises ApiError for an error."""
        response = self.response(*arguments, **more)
        if response.status >= 400:
            raise ApiError(response)
        kind = (response.headers.get("Content-Type") or "").partition(";")[0]
        return response.json if kind == "application/json" else response.text or None

    def response(self, *arguments: Any, **more: Any) -> Response:
        """Send a request and return the response. Raises NotInDocument for unknown arguments."""
        ids = [argument for argument in arguments if isinstance(argument, int | str)]
        rest = [argument for argument in arguments if not isinstance(argument, int | str)]
        operation = self._operations.get(len(ids))
        if operation is None or len(rest) > 1 or arguments[: len(ids)] != tuple(ids):
            raise NotInDocument(
                f"{self._name}{arguments}: takes {sorted(self._operations)} names of the path, then a body"
            )
        body = self._body(operation, rest)
        query, headers = self._keywords(operation, more)
        path = re.sub(r"\{\w+\}", "{}", operation.path).format(*(quote(str(id_), safe="") for id_ in ids))
        return self._client.send(operation.method.upper(), path, body, headers, query)

    def all(self, *ids: Any, **query: Any) -> list[Any]:
        """Return all rows of a list, page by page, following the X-Next-Page header."""
        rows: list[Any] = []
        page: str | None = "1"
        while page is not None:
            response = self.response(*ids, page=int(page), limit=100, **query)
            if response.status >= 400:
                raise ApiError(response)
            rows += response.json
            page = response.headers.get("X-Next-Page")
        return rows

    def wait(self, *arguments: Any, until: Callable[[Any], Any], timeout: float = 90, **more: Any) -> Any:
        """Repeat a request until the response satisfies a condition, and return it."""
        end = time.monotonic() + timeout
        while not until(result := self(*arguments, **more)):
            if time.monotonic() > end:
                raise AssertionError(f"{self._name} did not become so in {timeout} s: {json.dumps(result)[:3000]}")
            time.sleep(0.05)
        return result

    def _body(self, operation: Operation, rest: list[Any]) -> Any:
        if operation.body is None:
            if rest:
                raise NotInDocument(f"{operation.method} {operation.path} takes no body")
            return None
        if not rest:
            if operation.required:
                raise NotInDocument(f"{operation.method} {operation.path} wants a body")
            return None
        problem = self._client.contract().problem(operation.body, rest[0])
        if problem is not None:
            raise NotInDocument(f"{operation.method} {operation.path}: {problem}")
        return rest[0]

    def _keywords(self, operation: Operation, more: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        if unknown := set(more) - set(operation.queries) - set(operation.headers):
            raise NotInDocument(f"{operation.method} {operation.path} does not know {sorted(unknown)}")
        if missing := set(operation.required_queries) - set(more):
            raise NotInDocument(f"{operation.method} {operation.path} wants {sorted(missing)}")
        for name in set(more) & set(operation.queries):
            problem = self._client.contract().problem(operation.queries[name], more[name])
            if problem is not None:
                raise NotInDocument(f"{operation.method} {operation.path}: {name}: {problem}")
        query = {name: _to_query_value(value) for name, value in more.items() if name in operation.queries}
        return query, {operation.headers[name]: str(value) for name, value in more.items() if name in operation.headers}


class ResourceCaller:
    """The methods of one resource."""

    def __init__(self, name: str, methods_: dict[str, OperationCaller]):
        self._name, self._methods = name, methods_

    def __getattr__(self, name: str) -> OperationCaller:
        if name not in self._methods:
            raise NotInDocument(f"{self._name} has no {name}; it has {sorted(self._methods)}")
        return self._methods[name]

    def __dir__(self) -> list[str]:
        return sorted(self._methods)


class OpenApiClient:
    """All resources of a service."""

    def __init__(self, client: Client):
        self.client = client
        operations: dict[str, dict[str, dict[int, Operation]]] = defaultdict(lambda: defaultdict(dict))
        for resource, method_name, operation in _named_operations(client.contract()):
            if len(operation.names) in operations[resource][method_name]:
                raise NotInDocument(f"two operations would be {resource}.{method_name}: {operation.path}")
            operations[resource][method_name][len(operation.names)] = operation
        self._resources = {
            resource: ResourceCaller(
                resource,
                {
                    method_name: OperationCaller(client, f"{resource}.{method_name}", operations_)
                    for method_name, operations_ in methods_.items()
                },
            )
            for resource, methods_ in operations.items()
        }

    def __getattr__(self, name: str) -> ResourceCaller:
        if name not in self._resources:
            raise NotInDocument(f"there is no {name}; there are {sorted(self._resources)}")
        return self._resources[name]

    def __dir__(self) -> list[str]:
        return sorted(self._resources)


def open_api_client(client: Client) -> OpenApiClient:
    """Return a client built from the OpenAPI document of the service of another client."""
    return OpenApiClient(client)


def _to_query_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _named_operations(contract: Contract) -> Iterator[tuple[str, str, Operation]]:
    """Yield (resource, method, operation) for each operation of the document."""
    for path, methods in contract.document["paths"].items():
        for method in _VERBS.keys() & methods:
            operation = _operation(contract, path, method, methods[method])
            resource, *rest = _path_parts(path)
            words = "_".join(part for part in rest if not part.startswith("{"))
            if not words:
                is_list = method == "get" and {"page", "limit"} <= set(operation.queries)
                yield resource, "list" if is_list else _VERBS[method], operation
            elif method in ("get", "post") and len(methods.keys() & _VERBS.keys()) == 1:
                yield resource, words, operation
            else:
                yield resource, f"{_VERBS[method]}_{words}", operation


def _path_parts(path: str) -> list[str]:
    # The aliases of login and logout are resources of their own
    bare = path.removeprefix("/v1") if path in _ALIASES else path.removeprefix(BASE).removeprefix("/v1")
    bare = bare.strip("/").replace("my/", "my_")
    return [part.replace(".", "_").replace("-", "_") for part in bare.split("/")]


def _operation(contract: Contract, path: str, method: str, description: dict[str, Any]) -> Operation:
    place = contract.pointer_to("paths", path, method)
    queries, headers, required_queries = {}, {}, []
    for number, raw in enumerate(description.get("parameters", ())):
        parameter = contract.resolve(raw)
        pointer = raw.get("$ref", f"{place}/parameters/{number}")
        if parameter["in"] == "query":
            queries[parameter["name"]] = f"{pointer}/schema"
            required_queries += [parameter["name"]] * bool(parameter.get("required"))
        elif parameter["in"] == "header" and parameter["name"].lower() not in _SENT_BY_CLIENT:
            headers[parameter["name"].lower().replace("-", "_")] = parameter["name"]
    body, required = None, False
    if "requestBody" in description:
        raw = description["requestBody"]
        request_body = contract.resolve(raw)
        required = bool(request_body.get("required"))
        if "application/json" in request_body["content"]:
            start = raw.get("$ref", f"{place}/requestBody")
            body = f"{start}/content/application~1json/schema"
    names = tuple(re.findall(r"\{(\w+)\}", path))
    return Operation(method, path, names, queries, headers, body, required, tuple(required_queries))
