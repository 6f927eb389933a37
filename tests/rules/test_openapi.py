"""The published document: valid, complete, and in step with the endpoints that exist and that were agreed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator

from appliance.api.routes import ROUTES
from tests.kit.server import ROOT
from tests.rules.agreed import ENDPOINTS

BASE = "/v1/my"
# Whoever has the key of a form may submit it
OPEN = ("POST", "/v1/public/forms/{public_key}")
METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}


def publish(**environment: str) -> bytes:
    """Answer the document as the command line prints it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAMPANERO_")}
    command = [sys.executable, "-m", "appliance", "openapi"]
    return subprocess.run(
        command, cwd=ROOT, env={**clean, **environment}, capture_output=True, check=True, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def document() -> Any:
    """The document, parsed."""
    return yaml.safe_load(publish())


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Walk every operation as (method, path, operation)."""
    for path, methods in document["paths"].items():
        for method in methods.keys() & METHODS:
            yield method.upper(), path, methods[method]


def test_it_is_valid(document: Any) -> None:
    """The document is valid OpenAPI 3.1, and its first line says so."""
    OpenAPIV31SpecValidator(document).validate()
    assert publish().startswith(b"openapi: 3.1")


def test_it_has_every_route_and_no_other(document: Any) -> None:
    """Documented are exactly the declared routes, each once, and the two that want no credential."""
    declared = [(route.method, BASE + route.path) for route in ROUTES]
    assert len(declared) == len(set(declared))
    assert {found[:2] for found in operations(document)} == {*declared, ("GET", "/healthz"), OPEN}


@pytest.mark.parametrize(("method", "path", "statuses"), ENDPOINTS)
def test_what_was_agreed_is_there(method: str, path: str, statuses: tuple[int, ...], document: Any) -> None:
    """Every agreed endpoint is documented with the statuses of success it was agreed with."""
    responses = document["paths"][BASE + path][method.lower()]["responses"]
    assert tuple(sorted(int(status) for status in responses if status.startswith("2"))) == statuses


def test_every_operation_tells_of_its_refusals(document: Any) -> None:
    """Every operation with a credential documents 401, 403, 429, 503; those with an id 404, with a body 422."""
    for method, path, operation in operations(document):
        if path == "/healthz":
            assert operation["security"] == [] and set(operation["responses"]) == {"200", "503"}
            continue
        told = set(operation["responses"])
        if (method, path) == OPEN:
            assert operation["security"] == [] and {"404", "413", "415", "422", "429", "503"} <= told
            continue
        wanted = {"401", "403", "429", "500", "503"}
        wanted |= {"404"} if "{id}" in path else set()
        wanted |= {"400", "413", "415", "422"} if "requestBody" in operation else set()
        assert wanted <= told, (method, path)
        assert operation.get("security", document["security"]) == [{"bearer": []}]


def test_every_refusal_has_the_one_shape(document: Any) -> None:
    """Every status of 400 and above answers the same shape, with its four keys required."""
    shape = {"$ref": "#/components/schemas/Error"}
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert response["content"]["application/json"]["schema"] == shape, (method, path, status)
    error = document["components"]["schemas"]["Error"]
    assert set(error["required"]) == {"error", "code", "message", "request_id"}
    assert {"validation_errors", "reason", "hint"} <= set(error["properties"])


def test_every_list_is_paged(document: Any) -> None:
    """Every operation that answers an array takes page and limit with its aliases, and documents the five headers."""
    names = {"X-Total-Count", "X-Total-Pages", "X-Page-Number", "X-Next-Page", "X-Prev-Page"}
    found = 0
    for _, path, operation in operations(document):
        response = next(response for status, response in operation["responses"].items() if status.startswith("2"))
        if response.get("content", {}).get("application/json", {}).get("schema", {}).get("type") == "array":
            assert set(response["headers"]) == names, path
            parameters = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
            assert {"page", "limit", "per_page", "per"} <= parameters, path
            found += 1
    assert found >= 7


def test_ids_and_references_are_whole(document: Any) -> None:
    """Operation ids differ, every reference leads somewhere, every parameter of a path is declared."""
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for reference in re.findall(r"#/components/schemas/([^'\"]+)", str(document)):
        assert reference in document["components"]["schemas"]
    for _, path, operation in operations(document):
        declared = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))
        assert operation["summary"] and not operation["summary"].endswith(".")


def test_moments_are_text(document: Any) -> None:
    """No schema calls a moment a number: on the wire it is text with an offset."""

    def walk(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            yield node
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from walk(inner)

    moments = [node for node in walk(document) if node.get("format") == "date-time"]
    assert moments and all(node["type"] in ("string", ["string", "null"]) for node in moments)


def test_the_server_is_the_base_url() -> None:
    """The address in the document is the configured one, never one of the request."""
    document = yaml.safe_load(publish(CAMPANERO_BASE_URL="https://news.example.org/"))
    assert document["servers"] == [{"url": "https://news.example.org"}]


def test_idempotent_operations_name_their_header(document: Any) -> None:
    """Message, send and event take an Idempotency-Key and document its conflict; nothing else does."""
    found = set()
    for method, path, operation in operations(document):
        names = {one["name"] for one in operation.get("parameters", []) if one["in"] == "header"}
        if names:
            assert names == {"Idempotency-Key"} and "409" in operation["responses"]
            found.add((method, path))
    assert found == {("POST", f"{BASE}{path}") for path in ("/messages", "/campaigns/{id}/send", "/events")}
