"""A client that knows nothing but the published document: its words are made from it, and it holds itself to it.

`api = speak(client)`; then `api.campaigns.send(7, {"hold_seconds": 15}, idempotency_key="k")`. The noun is the first
part of a path; the verb is the rest of it, else `list get create update replace delete`. First come what the path
names, then the body; queries and headers are keywords. What the document does not know is refused before it is sent,
what it does not promise is refused when it comes back.
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
    """The service refused a request with an error of the document."""

    def __init__(self, response: Response):
        self.response, self.body = response, response.json
        self.status, self.code = response.status, self.body["code"]
        super().__init__(f"{self.status} {self.code}: {response.text[:1000]}")


class Operation(NamedTuple):
    """An operation of the document."""

    method: str
    path: str
    names: tuple[str, ...]  # of what the path names
    queries: dict[str, Any]  # parameter -> schema
    headers: dict[str, str]  # keyword -> name
    body: str | None  # pointer to the schema of a JSON body
    required: bool
    wanted: tuple[str, ...]  # queries that must be sent


class OperationCaller:
    """The operations with one name, distinguished by the number of path parameters."""

    def __init__(self, client: Client, name: str, ways: dict[int, Operation]):
        self._client, self._name, self._ways = client, name, ways

    def __call__(self, *given: Any, **more: Any) -> Any:
        """Send a request and return the JSON of a success, or its text. Raises Refused for an error."""
        response = self.response(*given, **more)
        if response.status >= 400:
            raise ApiError(response)
        kind = (response.headers.get("Content-Type") or "").partition(";")[0]
        return response.json if kind == "application/json" else response.text or None

    def response(self, *given: Any, **more: Any) -> Response:
        """Send a request and return the response. Raises Unspoken for unknown arguments."""
        ids = [one for one in given if isinstance(one, int | str)]
        rest = [one for one in given if not isinstance(one, int | str)]
        way = self._ways.get(len(ids))
        if way is None or len(rest) > 1 or given[: len(ids)] != tuple(ids):
            raise NotInDocument(f"{self._name}{given}: takes {sorted(self._ways)} names of the path, then a body")
        body = self._body(way, rest)
        query, headers = self._keywords(way, more)
        path = re.sub(r"\{\w+\}", "{}", way.path).format(*(quote(str(one), safe="") for one in ids))
        return self._client.send(way.method.upper(), path, body, headers, query)

    def all(self, *ids: Any, **query: Any) -> list[Any]:
        """Return all rows of a list, page by page, following the headers."""
        rows: list[Any] = []
        page: str | None = "1"
        while page is not None:
            answer = self.response(*ids, page=int(page), limit=100, **query)
            if answer.status >= 400:
                raise ApiError(answer)
            rows += answer.json
            page = answer.headers.get("X-Next-Page")
        return rows

    def wait(self, *given: Any, until: Callable[[Any], Any], timeout: float = 90, **more: Any) -> Any:
        """Repeat a request until the response satisfies a condition, and return it."""
        end = time.monotonic() + timeout
        while not until(found := self(*given, **more)):
            if time.monotonic() > end:
                raise AssertionError(f"{self._name} did not become so in {timeout} s: {json.dumps(found)[:3000]}")
            time.sleep(0.05)
        return found

    def _body(self, way: Operation, rest: list[Any]) -> Any:
        if way.body is None:
            if rest:
                raise NotInDocument(f"{way.method} {way.path} takes no body")
            return None
        if not rest:
            if way.required:
                raise NotInDocument(f"{way.method} {way.path} wants a body")
            return None
        problem = self._client.contract().problem(way.body, rest[0])
        if problem is not None:
            raise NotInDocument(f"{way.method} {way.path}: {problem}")
        return rest[0]

    def _keywords(self, way: Operation, more: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        if unknown := set(more) - set(way.queries) - set(way.headers):
            raise NotInDocument(f"{way.method} {way.path} does not know {sorted(unknown)}")
        if missing := set(way.wanted) - set(more):
            raise NotInDocument(f"{way.method} {way.path} wants {sorted(missing)}")
        for name in set(more) & set(way.queries):
            problem = self._client.contract().problem(way.queries[name], more[name])
            if problem is not None:
                raise NotInDocument(f"{way.method} {way.path}: {name}: {problem}")
        query = {name: _to_query_value(value) for name, value in more.items() if name in way.queries}
        return query, {way.headers[name]: str(value) for name, value in more.items() if name in way.headers}


class ResourceCaller:
    """The verbs of one noun."""

    def __init__(self, name: str, verbs: dict[str, OperationCaller]):
        self._name, self._verbs = name, verbs

    def __getattr__(self, name: str) -> OperationCaller:
        if name not in self._verbs:
            raise NotInDocument(f"{self._name} has no {name}; it has {sorted(self._verbs)}")
        return self._verbs[name]

    def __dir__(self) -> list[str]:
        return sorted(self._verbs)


class OpenApiClient:
    """All nouns of a service."""

    def __init__(self, client: Client):
        self.client = client
        found: dict[str, dict[str, dict[int, Operation]]] = defaultdict(lambda: defaultdict(dict))
        for noun, verb, operation in _named_operations(client.contract()):
            if len(operation.names) in found[noun][verb]:
                raise NotInDocument(f"two operations would be {noun}.{verb}: {operation.path}")
            found[noun][verb][len(operation.names)] = operation
        self._nouns = {
            noun: ResourceCaller(
                noun, {verb: OperationCaller(client, f"{noun}.{verb}", ways) for verb, ways in verbs.items()}
            )
            for noun, verbs in found.items()
        }

    def __getattr__(self, name: str) -> ResourceCaller:
        if name not in self._nouns:
            raise NotInDocument(f"there is no {name}; there are {sorted(self._nouns)}")
        return self._nouns[name]

    def __dir__(self) -> list[str]:
        return sorted(self._nouns)


def open_api_client(client: Client) -> OpenApiClient:
    """Return a client built from the OpenAPI document of the service of another client."""
    return OpenApiClient(client)


def _to_query_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _named_operations(contract: Contract) -> Iterator[tuple[str, str, Operation]]:
    """Yield (noun, verb, operation) of the document."""
    for path, methods in contract.document["paths"].items():
        for method in _VERBS.keys() & methods:
            operation = _operation(contract, path, method, methods[method])
            noun, *rest = _path_parts(path)
            words = "_".join(part for part in rest if not part.startswith("{"))
            if not words:
                is_list = method == "get" and {"page", "limit"} <= set(operation.queries)
                yield noun, "list" if is_list else _VERBS[method], operation
            elif method in ("get", "post") and len(methods.keys() & _VERBS.keys()) == 1:
                yield noun, words, operation
            else:
                yield noun, f"{_VERBS[method]}_{words}", operation


def _path_parts(path: str) -> list[str]:
    # Another name of the same login is a noun of its own
    bare = path.removeprefix("/v1") if path in _ALIASES else path.removeprefix(BASE).removeprefix("/v1")
    bare = bare.strip("/").replace("my/", "my_")
    return [part.replace(".", "_").replace("-", "_") for part in bare.split("/")]


def _operation(contract: Contract, path: str, method: str, found: dict[str, Any]) -> Operation:
    place = contract.pointer_to("paths", path, method)
    queries, headers, wanted = {}, {}, []
    for number, raw in enumerate(found.get("parameters", ())):
        one = contract.resolve(raw)
        pointer = raw.get("$ref", f"{place}/parameters/{number}")
        if one["in"] == "query":
            queries[one["name"]] = f"{pointer}/schema"
            wanted += [one["name"]] * bool(one.get("required"))
        elif one["in"] == "header" and one["name"].lower() not in _SENT_BY_CLIENT:
            headers[one["name"].lower().replace("-", "_")] = one["name"]
    body, required = None, False
    if "requestBody" in found:
        raw = found["requestBody"]
        said = contract.resolve(raw)
        required = bool(said.get("required"))
        if "application/json" in said["content"]:
            start = raw.get("$ref", f"{place}/requestBody")
            body = f"{start}/content/application~1json/schema"
    names = tuple(re.findall(r"\{(\w+)\}", path))
    return Operation(method, path, names, queries, headers, body, required, tuple(wanted))
