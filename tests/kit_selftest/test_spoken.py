"""The client that is made from the document: what it says, and what it refuses to say."""

import pytest

from tests.kit.client import Client
from tests.kit.openapi_client import BASE, ApiError, NotInDocument, OpenApiClient, open_api_client


@pytest.fixture(scope="module")
def spoken(api: Client) -> OpenApiClient:
    """A client of the shared server, made from its document."""
    return open_api_client(api)


def test_every_operation_has_a_word_of_its_own(spoken: OpenApiClient, api: Client) -> None:
    """The words reach each operation of the document once."""
    every = [
        (way.method, way.path)
        for noun in dir(spoken)
        for verb in dir(getattr(spoken, noun))
        for way in getattr(getattr(spoken, noun), verb)._operations.values()
    ]
    documented = [
        (method, path)
        for path, methods in api.contract().document["paths"].items()
        for method in methods.keys() & {"get", "post", "put", "patch", "delete"}
    ]
    assert sorted(every) == sorted(documented) and len(every) > 100
    assert {"list", "get", "create", "update", "delete", "send", "pause", "explain"} <= set(dir(spoken.campaigns))
    assert any(path.startswith(BASE) for _, path in every)


def test_a_whole_conversation(spoken: OpenApiClient) -> None:
    """What is made can be read, listed page by page, changed and deleted; a refusal is told with its body."""
    made = [spoken.contacts.create({"email": f"n{number}@spoken.example"}) for number in range(3)]
    assert spoken.contacts.get(made[0]["id"])["id"] == made[0]["id"]
    assert spoken.contacts.update(made[0]["id"], {"first_name": "Ana"})["first_name"] == "Ana"
    found = spoken.contacts.list.all(search="spoken")
    assert [one["id"] for one in found] == [one["id"] for one in reversed(made)]
    assert spoken.contacts.list.response(limit=2, search="spoken").headers["X-Next-Page"] == "2"
    assert spoken.contacts.delete(made[0]["id"], erase=False)["id"] == made[0]["id"]
    with pytest.raises(ApiError) as refused:
        spoken.contacts.get(made[0]["id"])
    assert (refused.value.status, refused.value.code) == (404, "not_found")
    event = {"event": "checkout", "contact_id": made[1]["id"]}
    first = spoken.events.create.response(event, idempotency_key="once")
    again = spoken.events.create.response(event, idempotency_key="once")
    assert (first.status, again.status) == (201, 200) and first.json["id"] == again.json["id"]
    assert "email" in spoken.exports.contacts_csv().splitlines()[0]
    assert spoken.healthz.get() == {"status": "ok"}


def test_what_is_not_in_the_document_is_never_sent(spoken: OpenApiClient) -> None:
    """Unknown words, names, queries and bodies are refused here, not there."""
    for wrong in (
        lambda: spoken.pigeons.list(),
        lambda: spoken.contacts.fly(1),
        lambda: spoken.contacts.get(),
        lambda: spoken.contacts.list(colour="red"),
        lambda: spoken.contacts.list(page="first"),
        lambda: spoken.contacts.get(1, {"x": 1}),
        lambda: spoken.lists.create(),
        lambda: spoken.lists.create({"name": 7}),
        lambda: spoken.lists.create({}),
        lambda: spoken.campaigns.send(1, {"trigger_attributes": {"colour": "red"}}),
    ):
        with pytest.raises(NotInDocument):
            wrong()
