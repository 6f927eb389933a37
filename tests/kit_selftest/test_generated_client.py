"""The client that is generated from the OpenAPI document: its operations and its errors."""

import pytest

from tests.kit.client import Client
from tests.kit.openapi_client import BASE, ApiError, NotInDocument, OpenApiClient, open_api_client


@pytest.fixture(scope="module")
def client(api: Client) -> OpenApiClient:
    """Return a generated client of the shared server."""
    return open_api_client(api)


def test_every_operation_has_one_method(client: OpenApiClient, api: Client) -> None:
    """The methods of the client are exactly the documented operations."""
    every = [
        (way.method, way.path)
        for noun in dir(client)
        for verb in dir(getattr(client, noun))
        for way in getattr(getattr(client, noun), verb)._operations.values()
    ]
    documented = [
        (method, path)
        for path, methods in api.contract().document["paths"].items()
        for method in methods.keys() & {"get", "post", "put", "patch", "delete"}
    ]
    assert sorted(every) == sorted(documented) and len(every) > 100
    assert {"list", "get", "create", "update", "delete", "send", "pause", "explain"} <= set(dir(client.campaigns))
    assert any(path.startswith(BASE) for _, path in every)


def test_use_the_generated_client(client: OpenApiClient) -> None:
    """Objects are created, read, listed, changed and deleted; an error is raised with its body."""
    contacts = [client.contacts.create({"email": f"n{number}@spoken.example"}) for number in range(3)]
    assert client.contacts.get(contacts[0]["id"])["id"] == contacts[0]["id"]
    assert client.contacts.update(contacts[0]["id"], {"first_name": "Ana"})["first_name"] == "Ana"
    result = client.contacts.list.all(search="spoken")
    assert [row["id"] for row in result] == [contact["id"] for contact in reversed(contacts)]
    assert client.contacts.list.response(limit=2, search="spoken").headers["X-Next-Page"] == "2"
    assert client.contacts.delete(contacts[0]["id"], erase=False)["id"] == contacts[0]["id"]
    with pytest.raises(ApiError) as error:
        client.contacts.get(contacts[0]["id"])
    assert (error.value.status, error.value.code) == (404, "not_found")
    event = {"event": "checkout", "contact_id": contacts[1]["id"]}
    first = client.events.create.response(event, idempotency_key="once")
    again = client.events.create.response(event, idempotency_key="once")
    assert (first.status, again.status) == (201, 200) and first.json["id"] == again.json["id"]
    assert "email" in client.exports.contacts_csv().splitlines()[0]
    assert client.healthz.get() == {"status": "ok"}


def test_undocumented_requests_raise(client: OpenApiClient) -> None:
    """Unknown resources, methods, parameters and bodies raise NotInDocument before a request is sent."""
    for wrong in (
        lambda: client.pigeons.list(),
        lambda: client.contacts.fly(1),
        lambda: client.contacts.get(),
        lambda: client.contacts.list(colour="red"),
        lambda: client.contacts.list(page="first"),
        lambda: client.contacts.get(1, {"x": 1}),
        lambda: client.lists.create(),
        lambda: client.lists.create({"name": 7}),
        lambda: client.lists.create({}),
        lambda: client.campaigns.send(1, {"trigger_attributes": {"colour": "red"}}),
    ):
        with pytest.raises(NotInDocument):
            wrong()
