"""The links of the document: each leads from an answer to an operation that exists, with what the answer says."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import Tenant

BASE = "/v1/my"
PEOPLES = ("user", "users", "api_keys", "audit")


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """An account with one of everything."""
    found = Tenant(server.client()).create_objects("alpha")
    found.object_ids |= {"users": 1, "user": 1, "api_keys": 1}
    return found


@pytest.fixture(scope="module")
def person(server: Server) -> Client:
    """The owner, signed in."""
    token = server.client().post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    return server.client(token)


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Walk the operations as (method, path, operation)."""
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield method, path, one


def noun(path: str) -> str:
    """Return what a path is about."""
    return path.removeprefix(BASE).strip("/").partition("/")[0]


def said(expression: str, number: int, answer: Any) -> Any:
    """Return what an expression of a link means for a request about `number` and its answer."""
    if expression == "$request.path.id":
        return number
    found = answer
    for name in expression.removeprefix("$response.body#/").split("/"):
        found = found[int(name)] if isinstance(found, list) else found[name]
    return found


def test_every_link_leads_to_what_is_there(mine: Tenant, person: Client) -> None:
    """From one of everything and from every list: what a link reads is there, and what it asks for with it is, too."""
    document = mine.api.contract().document
    known = {one["operationId"]: (method, path) for method, path, one in operations(document)}
    followed = set()
    for method, path, one in operations(document):
        links = {name: link for answer in one["responses"].values() for name, link in answer.get("links", {}).items()}
        if not links:
            continue
        number = mine.object_ids.get(noun(path), 0)
        api = person if noun(path) in PEOPLES else mine.api
        # A thing reads as it read when it was made
        is_list = method == "get"
        asked = path.replace("{id}", str(number)) if is_list or "{id}" in path else f"{path}/{number}"
        # These are listed, and not shown one by one
        is_shown = is_list or any(one[:2] == ("get", f"{path}/{{id}}") for one in operations(document)) or "{" in path
        answer = api.get(asked).expect(200) if is_shown else {"id": number}
        for link in links.values():
            target_method, target = known[link["operationId"]]
            values = {name: said(expression, number, answer) for name, expression in link["parameters"].items()}
            named = {name for name in values if f"{{{name}}}" in target}
            for name in named:
                target = target.replace(f"{{{name}}}", str(values[name]))
            assert "{" not in target, (path, link)
            if target_method == "get":
                query = {name: value for name, value in values.items() if name not in named}
                query |= {"contact_id": mine.object_ids["contacts"]} if target.endswith("/explain") else {}
                found = (person if noun(target) in PEOPLES else mine.api).get(target, **query)
                assert found.status == 200, (path, link, found.text)
            followed.add(link["operationId"])
    assert len(followed) >= 105


def test_every_thing_is_reached(mine: Tenant) -> None:
    """Every operation on one thing is where some link leads: who follows them puts no path together."""
    document = mine.api.contract().document
    led = {
        link["operationId"]
        for _, _, one in operations(document)
        for answer in one["responses"].values()
        for link in answer.get("links", {}).values()
    }
    on_things = {one["operationId"] for _, path, one in operations(document) if "{" in path}
    assert on_things - led == set()
