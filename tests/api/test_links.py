"""Links in the OpenAPI document: each leads from a response to an existing operation, with values of the response."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.oidc_provider import CLIENT_ID, CLIENT_SECRET, HostileProviders, Person
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import Tenant
from tests.oidc.conftest import providers

__all__ = ["providers"]
BASE = "/v1/my"
PEOPLES = ("user", "users", "api_keys", "audit", "sign_in", "sign_in_providers", "roles", "invitations")


@pytest.fixture(scope="module")
def server(providers: HostileProviders) -> Iterator[Server]:
    """Yield a server that reaches the providers."""
    with Server(env=providers.env).set_up() as running:
        yield running


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """Return an account with one object of every kind."""
    result = Tenant(server.client()).create_objects("alpha")
    result.object_ids |= {"users": 1, "user": 1, "api_keys": 1, "sign_in_providers": 1}
    return result


@pytest.fixture(scope="module")
def owner(server: Server, providers: HostileProviders, mine: Tenant) -> Client:
    """Return a client of the owner, signed in, who has a provider and an identity there."""
    token = server.client().post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    body = {"name": "A", "issuer": "https://idp.example", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    provider, person = server.client(token).post("/sign_in_providers", body).expect(201), Person(server.url)
    path = person.sign_in(provider, providers["idp.example"]).headers["location"]
    assert person.post(path, email=EMAIL, password=PASSWORD).status == 303
    role = {"name": "Agency", "scopes": ["flows:read"]}
    mine.object_ids["roles"] = server.client(token).post("/roles", role).expect(201)["id"]
    return server.client(token)


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (method, path, operation) for each operation of the document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def resource_of(path: str) -> str:
    """Return the resource of a path, such as `contacts`."""
    return path.removeprefix(BASE).strip("/").partition("/")[0]


def evaluate(expression: str, number: int, answer: Any) -> Any:
    """Return the value of a link expression for a request about the id `number` and its response."""
    if expression == "$request.path.id":
        return number
    value = answer
    for name in expression.removeprefix("$response.body#/").split("/"):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def test_every_link_works(mine: Tenant, owner: Client) -> None:
    """The values of each link are in the response, and a linked GET succeeds with them."""
    document = mine.api.contract().document
    known = {operation["operationId"]: (method, path) for method, path, operation in operations(document)}
    followed = set()
    for method, path, operation in operations(document):
        links = {
            name: link
            for response in operation["responses"].values()
            for name, link in response.get("links", {}).items()
        }
        if not links:
            continue
        number = mine.object_ids.get(resource_of(path), 0)
        api = owner if resource_of(path) in PEOPLES else mine.api
        # An object is read with the response of its creation
        is_list = method == "get"
        asked = path.replace("{id}", str(number)) if is_list or "{id}" in path else f"{path}/{number}"
        # Some resources have a list and no operation that returns one object
        is_shown = (
            is_list
            or any(operation[:2] == ("get", f"{path}/{{id}}") for operation in operations(document))
            or "{" in path
        )
        response = api.get(asked).expect(200) if is_shown else {"id": number}
        if is_list and response == []:
            # Only a browser adds a passkey, and this server sends no invitations; other tests follow their ids.
            assert resource_of(path) in ("user", "invitations"), path
            continue
        for link in links.values():
            target_method, target = known[link["operationId"]]
            values = {name: evaluate(expression, number, response) for name, expression in link["parameters"].items()}
            named = {name for name in values if f"{{{name}}}" in target}
            for name in named:
                target = target.replace(f"{{{name}}}", str(values[name]))
            assert "{" not in target, (path, link)
            if target_method == "get":
                query = {name: value for name, value in values.items() if name not in named}
                query |= {"contact_id": mine.object_ids["contacts"]} if target.endswith("/explain") else {}
                page = (owner if resource_of(target) in PEOPLES else mine.api).get(target, **query)
                assert page.status == 200, (path, link, page.text)
            followed.add(link["operationId"])
    assert len(followed) >= 105


def test_every_operation_on_an_object_is_linked(mine: Tenant) -> None:
    """Each operation with an id in its path is the target of a link."""
    document = mine.api.contract().document
    led = {
        link["operationId"]
        for _, _, operation in operations(document)
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    }
    on_things = {operation["operationId"] for _, path, operation in operations(document) if "{" in path}
    assert on_things - led == set()
