"""What is not sent has the value that the document says; and bounds that hold are in the document."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.openapi_document import OpenApiDocument, Operation
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import Tenant

# The least that makes one of each thing
LEAST: dict[str, dict[str, Any]] = {
    "POST /messages": {"to": "ann@example.org", "subject": "x", "body": "x"},
    "POST /campaigns": {"name": "Least"},
    "POST /contacts": {"email": "least@example.org"},
    "POST /suppressions": {"address": "gone@example.org"},
    "POST /lists": {"name": "Least"},
    "POST /segments": {"name": "Least"},
    "POST /forms": {"name": "Least"},
    "POST /templates": {},
    "POST /flows": {},
    "POST /domains": {"domain": {"name": "least.example"}},
    "POST /users": {"email": "least@example.org", "role": "viewer"},
    "POST /api_keys": {"name": "Least"},
    "POST /events": {"event": "least", "contact_email": "alpha@example.org"},
    "POST /webhooks": {"url": "https://least.example/hook"},
}
# What follows from other things than a fixed value: the account, another key, what was there before
FOLLOWS = {
    "POST /contacts": {"subscribed_email", "subscribed_phone", "tracking"},
    "POST /suppressions": {"channel"},
    "POST /users": {"name", "password"},
    "POST /flows": {"trigger"},
    "POST /templates": {"updated_at"},
    "POST /events": {"contact_id", "created_at"},
}


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """An account with one of everything."""
    return Tenant(server.client()).create_objects("alpha")


@pytest.fixture(scope="module")
def person(server: Server) -> Client:
    """The owner, signed in."""
    token = server.client().post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    return server.client(token)


def described(api: Client, name: str) -> dict[str, dict[str, Any]]:
    """Return the properties of an operation's body as the document has them, solved but with their own default."""
    document = api.contract().document
    method, _, path = name.partition(" ")
    one = Operation(method, f"/v1/my{path}", document["paths"][f"/v1/my{path}"][method.lower()])
    schema = OpenApiDocument(api).request_schema(one)
    assert schema is not None
    found: dict[str, dict[str, Any]] = schema["properties"]
    return found


@pytest.mark.parametrize("name", LEAST)
def test_what_is_not_sent_is_as_the_document_says(name: str, mine: Tenant, person: Client) -> None:
    """A key with a default has that value in the answer; one that has a value there has a default."""
    client = person if name.split("/")[1] in ("users", "api_keys") else mine.api
    made = client.post(name.partition(" ")[2], LEAST[name]).expect(201)
    for key, schema in described(client, name).items():
        if key in LEAST[name] or key not in made or key in FOLLOWS.get(name, ()):
            continue
        told = schema.get("default", {} if made[key] == {} else [] if made[key] == [] else None)
        assert made[key] == told, f"{key} is {made[key]!r}, and the document says {told!r}"


def test_the_document_has_the_most_of_a_page(api: Client) -> None:
    """`limit` and its other names are 1 to 100; what is above counts as 100."""
    parameters = api.contract().document["components"]["parameters"]
    for name in ("limit", "per_page", "per"):
        schema = parameters[name]["schema"]
        assert (schema["minimum"], schema["maximum"]) == (1, 100), name
    for number in range(101):
        assert api.post("/lists", {"name": f"List {number}"}).status == 201
    for name in ("limit", "per_page", "per"):
        assert len(api.get("/lists", **{name: 101}).expect(200)) == 100
    assert "counts as 100" in parameters["limit"]["description"]
