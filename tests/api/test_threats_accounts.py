"""Two accounts on one installation: whose id it is not, for them it never was (T09).

Driven by the published document: an operation, a query or a body that names a thing by its id and has no case here
fails the tests.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Response
from tests.kit.openapi_document import OpenApiDocument, Operation, body_with, validation_errors
from tests.kit.server import Server
from tests.kit.tenants import MISSING_ID, Tenant, comparable_response, two_tenants
from tests.kit.uploads import upload

# What a request needs beside the id in its path, where an empty body would be refused for another reason
BODIES: dict[str, dict[str, Any]] = {
    "PATCH /campaigns/{id}": {"name": "taken"},
    "POST /campaigns/{id}/send": {"confirm_send_to_all": True},
    "PATCH /contacts/{id}": {"first_name": "taken"},
    "POST /capture/{id}/simulate": {"action": "complain"},
    "POST /contacts/{id}/merge": {"contact_id": MISSING_ID},
    "POST /incoming/{id}/seen": {"opt_out": True},
    "DELETE /suppressions/{id}": {"reason": "taken"},
    "PATCH /lists/{id}": {"name": "taken"},
    "POST /lists/{id}/contacts/bulk": {"add": ["taken@example.org"]},
    "PATCH /segments/{id}": {"name": "taken", "filters": []},
    "PATCH /templates/{id}": {"subject": "taken"},
    "PATCH /forms/{id}": {"name": "taken"},
    "PATCH /flows/{id}": {"name": "taken", "steps": []},
    "POST /flows/{id}/activate": {},
    "POST /flows/{id}/simulate": {"steps": [{"duration": 60}]},
    "POST /flows/{id}/simulate_all": {"days": 30},
    "POST /flows/{id}/archive": {"take_out": True},
    "POST /flows/{id}/reject": {"note": "taken"},
    "POST /campaigns/{id}/duplicate": {"name": "taken"},
    "POST /campaigns/{id}/reject": {"note": "taken"},
    "POST /flows/{id}/enroll": {"contact_ids": []},
    "POST /flows/{id}/runs/move_on": {"step": 1},
    "POST /flows/{id}/runs/take_out": {"step": 1},
    "POST /templates/{id}/send_test": {"email": "taken@example.org"},
    "PATCH /webhooks/{id}": {"enabled": True},
    "POST /webhooks/{id}/test": {},
    "POST /webhooks/{id}/replay_failed": {},
}
QUERIES: dict[str, dict[str, Any]] = {
    "GET /segments/{id}/explain": {"contact_id": 1}, "GET /campaigns/{id}/explain": {"contact_id": 1},
}  # fmt: skip

# Which of A's things an id in a body or a query names
NAMES = {
    "contact_list_id": "lists", "list_id": "lists", "list_ids": "lists", "options.list_ids": "lists",
    "segment_id": "segments", "contact_id": "contacts", "contact_ids": "contacts", "add": "contacts",
    "remove": "contacts", "channels_attributes[].id": "channels",
    "contact.channels_attributes[].id": "channels", "template_id": "templates",
    "campaign_id": "campaigns", "flow_id": "flows", "message_id": "messages",
    "run_ids": "runs",
}  # fmt: skip
# Ids that are nobody's but those of parts of the thing itself
OWN = ("steps[].id",)
# A whole body for each operation whose body names things; the id is put into it
WHOLE: dict[str, dict[str, Any]] = {
    "POST /messages": {"to": "b@example.org", "subject": "s", "body": "<p>x</p>"},
    "POST /campaigns": {"name": "theirs"},
    "PATCH /campaigns/{id}": {},
    "POST /campaigns/{id}/send": {"template_attributes": {"subject": "s", "body": "<p>x</p>"}},
    "POST /contacts": {"email": "fresh@example.org"},
    "PATCH /contacts/{id}": {},
    "POST /contacts/{id}/merge": {},
    "POST /lists": {"name": "fresh"},
    "PATCH /lists/{id}": {},
    "POST /lists/{id}/contacts/bulk": {},
    "POST /events": {"event": "fresh_event"},
    "POST /events/batch": {"events": [{"event": "fresh_event"}]},
    "POST /forms": {"name": "fresh"},
    "PATCH /forms/{id}": {},
    "POST /flows": {"name": "theirs"},
    "PATCH /flows/{id}": {},
    "POST /flows/{id}/enroll": {},
    "POST /flows/{id}/simulate": {},
    "POST /flows/{id}/simulate_all": {},
    "POST /flows/{id}/runs/move_on": {},
    "POST /flows/{id}/runs/take_out": {},
    "POST /templates/preview": {"document": {"sections": []}},
    "POST /templates/{id}/send_test": {},
}
ABSENT = (404, 422)


@pytest.fixture(scope="module")
def tenants(server: Server) -> tuple[Tenant, Tenant]:
    """A with one of everything, B with nothing."""
    return two_tenants(server)


def kind_of(where: str) -> str:
    """Return which noun an id is of; a KeyError says that a new one has no case here."""
    return NAMES[where] if where in NAMES else NAMES[where.rpartition(".")[2]]


def test_lists_and_searches_of_others_are_empty(tenants: tuple[Tenant, Tenant]) -> None:
    """Whoever has nothing finds nothing: no row, a count of zero, an export without lines, whatever is searched."""
    ours, theirs = tenants
    counted = 0
    for one in OpenApiDocument(theirs.api).operations():
        if one.method != "GET" or one.has_id:
            continue
        for words in ({}, {"search": "alpha"}, {"q": "alpha"}):
            if not set(words) <= set(one.queries) or (one.path.endswith("/search") and "q" not in words):
                continue
            answer = theirs.api.get(one.path, **words)
            assert b"alpha" not in answer.body, (one, words)
            if "X-Total-Count" in answer.headers:
                assert (answer.headers["X-Total-Count"], answer.json) == ("0", []), (one, words)
                seen = ours.api.get(one.path, **words)
                assert seen.headers["X-Total-Count"] != "0" or words or one.noun == "flows", one
                counted += 1
    assert counted >= 10
    counts = theirs.api.get("/account").json["counts"]
    assert set(counts.values()) == {0}, counts


def ask(api: Client, one: Operation, number: object, inner: object, whole: bool) -> Response:
    """Ask for one thing by the id in the path (and one within it), with a good body or with none."""
    body = BODIES.get(str(one)) if whole else {}
    if one.media_types == []:
        body = None
    elif str(one) not in BODIES:
        raise AssertionError(f"{one} reads a body and has no case in BODIES")
    return api.send(one.method, one.path_with_id(number, inner), body, query=QUERIES.get(str(one)))


def test_an_id_of_another_account_never_was(tenants: tuple[Tenant, Tenant]) -> None:
    """Every operation with an id in its path answers 404, as for an id that never existed, and does nothing."""
    ours, theirs = tenants
    before = ours.read_all()
    walked = 0
    for one in OpenApiDocument(theirs.api).operations():
        if not one.has_id:
            continue
        for whole in (True, False):
            number = ours.object_ids[one.noun]
            inner = ours.object_ids[one.nested_noun] if one.nested_noun else None
            got = ask(theirs.api, one, number, inner, whole)
            assert got.status == 404, (one, got.text)
            assert comparable_response(got, number) == comparable_response(
                ask(theirs.api, one, MISSING_ID, inner, whole), number
            ), one
            walked += 1
    assert walked >= 50
    assert ours.read_all() == before


def test_a_thing_of_another_account_cannot_be_explained_or_merged(tenants: tuple[Tenant, Tenant]) -> None:
    """A contact of A is none for a segment of B."""
    ours, theirs = tenants
    mine = theirs.api.post("/segments", {"name": "mine"}).expect(201)["id"]
    found = [
        theirs.api.get(f"/segments/{mine}/explain", contact_id=one) for one in (ours.object_ids["contacts"], MISSING_ID)
    ]
    assert found[0].status in ABSENT
    assert comparable_response(found[0], ours.object_ids["contacts"]) == comparable_response(
        found[1], ours.object_ids["contacts"]
    )


def test_an_id_in_a_query_never_was(tenants: tuple[Tenant, Tenant]) -> None:
    """A filter by a thing of A finds what a filter by nothing finds."""
    ours, theirs = tenants
    walked = 0
    for one in OpenApiDocument(theirs.api).operations():
        for name in one.queries if not one.has_id else ():
            if not name.endswith("_id"):
                continue
            number = ours.object_ids[kind_of(name)]
            got, never = (theirs.api.get(one.path, **{name: each}) for each in (number, MISSING_ID))
            assert comparable_response(got, number) == comparable_response(never, number), (one, name)
            assert b"alpha" not in got.body
            walked += 1
    assert walked >= 12


def nested(walk: OpenApiDocument) -> list[tuple[Operation, str]]:
    """Return every place of every JSON body where a thing is named by its id."""
    return [
        (one, where)
        for one in walk.operations()
        if (schema := walk.request_schema(one)) is not None
        for where, leaf in walk.leaves(schema)
        if walk.contains_ids(where, leaf) and where not in OWN
    ]


def test_an_id_in_a_body_never_was(tenants: tuple[Tenant, Tenant], server: Server) -> None:
    """Every nested id of A is refused B in the words of one that never existed; nothing is made and nothing changed."""
    ours, theirs = tenants
    mine = Tenant(theirs.api).create_objects("beta")
    before, own = ours.read_all(), mine.read_all()
    places = nested(OpenApiDocument(theirs.api))
    for one, where in places:
        number = ours.object_ids[kind_of(where)]
        path = mine.path(one) if one.has_id else one.path
        many = where.endswith("_ids") or where in ("add", "remove")
        answers = []
        for each in (number, MISSING_ID):
            body = body_with(where, [each] if many else each, json.loads(json.dumps(WHOLE[str(one)])))
            answers.append(mine.api.send(one.method, path, body))
        if where in ("add", "remove"):
            assert answers[0].expect(200)["unknown"] == [number]
        elif where == "run_ids":
            assert answers[0].expect(200) == {"changed": 0, "unchanged": [number]}
        else:
            assert answers[0].status in ABSENT or validation_errors(answers[0]), (one, where, answers[0].text)
        assert comparable_response(answers[0], number) == comparable_response(answers[1], number), (one, where)
    assert len(places) >= 15
    assert ours.read_all() == before
    assert mine.read_all() == own


def test_a_list_named_by_an_import_never_was(tenants: tuple[Tenant, Tenant]) -> None:
    """The options of an import are JSON within a form; the document knows their ids too."""
    ours, theirs = tenants
    walk = OpenApiDocument(theirs.api)
    options = walk.document["components"]["schemas"]["ImportOptions"]
    found = [where for where, leaf in walk.leaves(options) if walk.contains_ids(where, leaf)]
    assert [where for where in found if f"options.{where}" not in NAMES] == []
    number = ours.object_ids["lists"]
    got, never = (upload(theirs.api, "email\nx@example.org\n", list_ids=[each]) for each in (number, MISSING_ID))
    assert got.status == 422 and comparable_response(got, number) == comparable_response(never, number)


def linked(spec: Any) -> list[tuple[str, str]]:
    """Return the fields of filters whose values are ids, with what they are ids of."""
    return [(one["name"], one["of"]) for one in spec["fields"] if one["type"] == "id"]


def test_an_id_in_a_filter_never_was(tenants: tuple[Tenant, Tenant]) -> None:
    """A condition on a thing of A says what a condition on nothing says."""
    ours, theirs = tenants
    nouns: dict[str, Callable[[Tenant], int]] = {
        "list": lambda one: one.object_ids["lists"], "segment": lambda one: one.object_ids["segments"],
        "campaign": lambda one: one.object_ids["campaigns"], "flow": lambda one: one.object_ids["campaigns"],
    }  # fmt: skip
    spec = theirs.api.get("/segments/spec").expect(200)
    fields = linked(spec)
    assert len(fields) >= 5
    for name, of in fields:
        number = nouns[of](ours)
        for each in spec["types"]["id"]:
            takes = {"id": lambda one: one, "ids": lambda one: [one]}.get(each["takes"])
            if takes is None:
                continue
            got, never = (
                theirs.api.post("/segments/count", {"filters": [leaf(name, each["predicate"], takes(one))]})
                for one in (number, MISSING_ID)
            )
            assert comparable_response(got, number) == comparable_response(never, number), (name, each)
            assert b"alpha" not in got.body


def leaf(name: str, predicate: str, value: Any) -> dict[str, Any]:
    """Return one condition."""
    return {"name": name, "predicate": predicate, "value": value}


def test_every_case_is_of_an_operation_that_exists(api: Client) -> None:
    """The cases name operations in the words of the document, so that none is left over unnoticed."""
    walk = OpenApiDocument(api)
    assert {*BODIES, *WHOLE, *QUERIES} <= {str(one) for one in walk.operations()}
    assert set(WHOLE) == {str(one) for one, _ in nested(walk)}
