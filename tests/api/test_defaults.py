"""The default of each request field is that of the OpenAPI document, and so are the limits of pages."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.openapi_document import OpenApiDocument, Operation
from tests.kit.tenants import Tenant

# The smallest valid body of each operation that creates an object
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
    "POST /sign_in_providers": {"name": "Least", "issuer": "https://idp.example", "client_id": "least"},
    "POST /roles": {"name": "Least", "scopes": ["flows:read"]},
    "POST /events": {"event": "least", "contact_email": "alpha@example.org"},
    "POST /webhooks": {"url": "https://least.example/hook"},
}
# Fields whose default depends on the account, on another field, or on stored data
FOLLOWS = {
    "POST /contacts": {"subscribed_email", "subscribed_phone", "tracking"},
    "POST /suppressions": {"channel"},
    "POST /users": {"name", "password"},
    "POST /flows": {"trigger"},
    "POST /templates": {"updated_at", "design"},
    "POST /events": {"contact_id", "created_at"},
    "POST /messages": {"from"},
    "POST /api_keys": {"smtp_hourly_limit", "scope"},
}


def documented_properties(api: Client, name: str) -> dict[str, dict[str, Any]]:
    """Return the properties of an operation's body in the document, with references resolved."""
    document = api.contract().document
    method, _, path = name.partition(" ")
    operation = Operation(method, f"/v1/my{path}", document["paths"][f"/v1/my{path}"][method.lower()])
    schema = OpenApiDocument(api).request_schema(operation)
    assert schema is not None
    properties: dict[str, dict[str, Any]] = schema["properties"]
    return properties


@pytest.mark.parametrize("name", LEAST)
def test_defaults_match_the_document(name: str, mine: Tenant, owner: Client) -> None:
    """An absent field has the documented default in the response."""
    client = owner if name.split("/")[1] in ("users", "api_keys", "roles", "sign_in_providers") else mine.api
    created = client.post(name.partition(" ")[2], LEAST[name]).expect(201)
    for key, schema in documented_properties(client, name).items():
        if key in LEAST[name] or key not in created or key in FOLLOWS.get(name, ()):
            continue
        response = schema.get("default", {} if created[key] == {} else [] if created[key] == [] else None)
        assert created[key] == response, f"{key} is {created[key]!r}, and the document says {response!r}"


def test_page_size_limits_match_the_document(api: Client) -> None:
    """`limit` and its aliases are 1 to 100 in the document, and larger values count as 100."""
    parameters = api.contract().document["components"]["parameters"]
    for name in ("limit", "per_page", "per"):
        schema = parameters[name]["schema"]
        assert (schema["minimum"], schema["maximum"]) == (1, 100), name
    event = {"event": "counted", "contact_email": "counted@example.org", "create_contact": True}
    api.post("/events/batch", {"events": [event] * 101}).expect(200)
    for name in ("limit", "per_page", "per"):
        assert len(api.get("/events", event="counted", **{name: 101}).expect(200)) == 100
    assert "counts as 100" in parameters["limit"]["description"]
