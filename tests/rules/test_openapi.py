"""The OpenAPI document: valid, complete, and in agreement with the endpoints."""

import gzip
import re
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.api import openapi
from appliance.api.routes import ROUTES
from tests.rules.contract.endpoints import ENDPOINTS
from tests.rules.published import parse, publish

BASE = "/v1/my"
# Operations without a credential
FORM = ("POST", "/v1/public/forms/{public_key}")
LOGIN = {("POST", "/v1/login"), ("POST", "/v1/my/login")}
HOOKS = {("POST", "/hooks/email"), ("POST", "/hooks/sms")}
OPEN = {FORM, ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.yaml"), *HOOKS, *LOGIN}
# Operations that need a session
DECISIONS = {("POST", f"/v1/my/proposals/{{id}}/{name}") for name in ("approve", "return")}
LOGOUT = {("DELETE", "/v1/logout"), ("DELETE", "/v1/my/logout")}
# Operations with a credential outside of the account's paths
SERVICE = {("GET", "/metrics")}
METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}
# Operations that accept an Idempotency-Key
PATHS_WITH_KEYS = ("/messages", "/messages/batch", "/campaigns/{id}/send", "/events")


def resolve(document: Any, node: Any) -> Any:
    """Return the target of a reference within the document."""
    while "$ref" in node:
        target = document
        for name in node["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        node = target
    return node


def walk_nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object within a document, and the document itself."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk_nodes(inner)


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (method, path, operation) with resolved parameters and responses."""
    for path, methods in document["paths"].items():
        for method in methods.keys() & METHODS:
            operation = methods[method]
            parameters = [resolve(document, row) for row in operation.get("parameters", [])]
            responses = {status: resolve(document, each) for status, each in operation["responses"].items()}
            yield method.upper(), path, {**operation, "parameters": parameters, "responses": responses}


def test_the_document_is_valid(document: Any) -> None:
    """It is valid OpenAPI 3.1, and its first line has the version."""
    # Imported here, because each process of pytest imports this module, which would take it half a second
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(document).validate()
    assert publish().startswith(b"openapi: 3.1")


def test_exactly_the_routes_are_documented(document: Any) -> None:
    """Each declared route is documented once, and no other except those without a credential."""
    declared = [(route.method, BASE + route.path) for route in ROUTES]
    assert len(declared) == len(set(declared))
    assert {operation[:2] for operation in operations(document)} == {*declared, *OPEN, *LOGOUT, *SERVICE}


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [(endpoint.method, endpoint.path, endpoint.statuses) for endpoint in ENDPOINTS if endpoint.origin != "L"],
)
def test_endpoints_have_the_agreed_statuses(method: str, path: str, statuses: tuple[int, ...], document: Any) -> None:
    """Every endpoint of the table has its success statuses."""
    responses = document["paths"][BASE + path][method.lower()]["responses"]
    assert tuple(sorted(int(status) for status in responses if status.startswith("2"))) == statuses


def test_every_operation_documents_its_errors(document: Any) -> None:
    """Operations document 401, 403, 422, 429 and 503, those with an id 404, and those with a body 415."""
    for method, path, operation in operations(document):
        result = set(operation["responses"])
        if (method, path) in OPEN:
            assert operation["security"] == [] and "503" in result
            assert (method, path) != FORM or {"404", "413", "415", "422", "429"} <= result
            assert (method, path) not in LOGIN or {"400", "401", "413", "415", "422", "429"} <= result
            continue
        wanted = {"401", "403", "422", "429", "500", "503"}
        wanted |= {"404"} if "{id}" in path else set()
        wanted |= {"400", "413", "415"} if "requestBody" in operation else set()
        assert wanted <= result, (method, path)
        is_persons = (method, path) in LOGOUT | DECISIONS or operation["x-required-scope"] in ("admin", "self")
        ways = [{"jwt": []}] if is_persons else [{"apiKey": []}, {"jwt": []}]
        assert operation.get("security", document["security"]) == ways
    assert set(document["components"]["securitySchemes"]) == {"apiKey", "jwt"}


def test_all_errors_have_one_schema(document: Any) -> None:
    """Every status from 400 has the schema ErrorResponse with its four required keys."""
    shape = {"$ref": "#/components/schemas/ErrorResponse"}
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if status.isdecimal() and int(status) >= 400:
                assert response["content"]["application/json"]["schema"] == shape, (method, path, status)
    error = document["components"]["schemas"]["ErrorResponse"]
    assert set(error["required"]) == {"error", "code", "message", "request_id"}
    assert {"validation_errors", "reason", "hint"} <= set(error["properties"])


def test_generated_class_names_are_unique(document: Any) -> None:
    """Names that client generators derive for nested schemas are unique, and each choice has a type."""
    schemas, names = document["components"]["schemas"], []
    for kind, schema in schemas.items():
        for name, field in schema.get("properties", {}).items():
            for part in (field, *field.get("anyOf", ())):
                if "enum" in part or "properties" in part:
                    names.append((kind + "".join(word.capitalize() for word in name.split("_")), part.get("enum")))
                assert "type" in part or not {True, False} & {*part.get("enum", ())}, (kind, name)
    assert len(names) > 50
    assert {name for name, _ in names} & set(schemas) == set()


def test_lists_document_their_paging(document: Any) -> None:
    """Every operation that returns an array documents page parameters and the five headers."""
    names = {"X-Total-Count", "X-Total-Pages", "X-Page-Number", "X-Next-Page", "X-Prev-Page"}
    count = 0
    for _, path, operation in operations(document):
        response = next(response for status, response in operation["responses"].items() if status.startswith("2"))
        if response.get("content", {}).get("application/json", {}).get("schema", {}).get("type") == "array":
            assert names <= set(response["headers"]), path
            parameters = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
            assert {"page", "limit", "per_page", "per"} <= parameters, path
            count += 1
    assert count >= 7


def test_operation_ids_and_references(document: Any) -> None:
    """Operation ids are unique, references resolve, and path parameters are declared."""
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    # They are the names of methods in generated clients, such as listContacts
    assert {name for name in ids if not re.fullmatch(r"[a-z]+([A-Z][a-z0-9]+)*", name)} == set()
    assert {"listContacts", "createContact", "updateContact", "sendCampaign", "askFlowApproval", "moveRunOn"} <= {*ids}
    for kind, name in re.findall(r"#/components/(\w+)/([^'\"]+)", str(document)):
        assert name in document["components"][kind]
    for _, path, operation in operations(document):
        declared = {row["name"] for row in operation.get("parameters", []) if row["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))
        assert operation["summary"] and not operation["summary"].endswith(".")


def test_schemas_are_usable_in_typed_languages(document: Any) -> None:
    """No object is declared without saying which keys it has, and no schema has the name of a type of TypeScript.

    Some generators of clients read `{"type": "object"}` as an object that can have no key at all.
    """
    bare = [
        node
        for node in walk_nodes(document)
        if node.get("type") == "object" and node.keys().isdisjoint(("properties", "additionalProperties", "allOf"))
    ]
    assert bare == []
    arrays = [node for node in walk_nodes(document) if "array" in node.get("type", ()) and "format" not in node]
    assert arrays and all({"items", "prefixItems"} & node.keys() for node in arrays)
    global_types = {
        "Array",
        "Blob",
        "Boolean",
        "Cache",
        "Comment",
        "Date",
        "Document",
        "Element",
        "Error",
        "Event",
        "File",
        "Function",
        "Headers",
        "Location",
        "Lock",
        "Map",
        "Node",
        "Notification",
        "Number",
        "Object",
        "Option",
        "Promise",
        "Range",
        "Record",
        "Report",
        "Request",
        "Response",
        "Selection",
        "Set",
        "Storage",
        "String",
        "Symbol",
        "Text",
    }
    assert global_types & document["components"]["schemas"].keys() == set()
    section = document["components"]["schemas"]["KnownSection"]
    assert set(section["discriminator"]["mapping"].values()) == {part["$ref"] for part in section["oneOf"]}


def test_the_compressed_document_is_small() -> None:
    """The document has at most 300 KB as clients get it."""
    assert len(gzip.compress(publish())) < 300_000


def test_times_are_strings(document: Any) -> None:
    """No schema declares a time as a number."""

    moments = [node for node in walk_nodes(document) if node.get("format") == "date-time"]
    assert moments and all(node["type"] in ("string", ["string", "null"]) for node in moments)


def test_the_server_is_the_base_url() -> None:
    """The server URL is the configured base URL."""
    document = parse(publish(CAMPANERO_BASE_URL="https://news.example.org/"))
    assert document["servers"] == [{"url": "https://news.example.org"}]


def test_idempotent_operations_document_their_header(document: Any) -> None:
    """Messages, sends and events take an Idempotency-Key and document the conflict; other operations do not."""
    result = set()
    for method, path, operation in operations(document):
        names = {row["name"] for row in operation.get("parameters", []) if row["in"] == "header"}
        if names and (method, path) not in HOOKS:
            assert names == {"Idempotency-Key"} and "409" in operation["responses"]
            result.add((method, path))
    assert result == {("POST", f"{BASE}{path}") for path in PATHS_WITH_KEYS}


def test_everything_has_a_description(document: Any) -> None:
    """Every operation, parameter, header, response, property and tag has a description.

    It is declared with `Meta(description=...)`, a docstring or `openapi.COMMON_DESCRIPTIONS`.
    """
    silent = []
    for method, path, operation in operations(document):
        silent += [f"{method} {path}"] * (not operation.get("description") or not operation["tags"])
        silent += [
            f"{method} {path} {parameter['name']}"
            for parameter in operation["parameters"]
            if not parameter.get("description")
        ]
        silent += [
            f"{method} {path} {status}"
            for status, response in operation["responses"].items()
            if not response["description"]
        ]
    for kind, schema in document["components"]["schemas"].items():
        silent += [] if schema.get("description") else [kind]
        silent += [
            f"{kind}.{name}" for name, field in schema.get("properties", {}).items() if not field.get("description")
        ]
    silent += [name for name, header in document["components"]["headers"].items() if not header.get("description")]
    assert silent == []
    tags = [tag["name"] for tag in document["tags"] if tag["description"]]
    assert {tag for _, _, operation in operations(document) for tag in operation["tags"]} == set(tags)


def test_common_descriptions_are_used(document: Any) -> None:
    """Every common description is that of a property of some schema."""
    properties = [
        row for schema in document["components"]["schemas"].values() for row in schema.get("properties", {}).items()
    ]
    published = {(name, field.get("description")) for name, field in properties}
    assert sorted(set(openapi.COMMON_DESCRIPTIONS.items()) - published) == []
