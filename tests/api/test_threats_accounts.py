"""Two accounts on one installation: an id of another account is treated as unknown (T09).

The tests read the OpenAPI document: an operation, query or body with an id and without a case here fails them.
"""

import json
from collections.abc import Callable
from typing import Any

from tests.kit.api_users import login
from tests.kit.client import Client, Response
from tests.kit.openapi_document import OpenApiDocument, Operation, body_with, validation_errors
from tests.kit.server import PASSWORD, Server
from tests.kit.tenants import MISSING_ID, Tenant, comparable_response
from tests.kit.uploads import upload

BOTH = "both@example.org"
# Bodies of operations for which an empty body would be another error
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
    "PUT /templates/{id}/translations/{language}": {"texts": {"subject": "taken"}},
    "PATCH /forms/{id}": {"name": "taken"},
    "PATCH /flows/{id}": {"name": "taken", "steps": []},
    "POST /flows/{id}/activate": {},
    "POST /flows/{id}/approve": {},
    "POST /campaigns/{id}/approve": {},
    "POST /flows/{id}/simulate": {"steps": [{"duration": 60}]},
    "POST /flows/{id}/simulate_all": {"days": 30},
    "POST /flows/{id}/replay": {"days": 30},
    "POST /flows/{id}/archive": {"take_out": True},
    "POST /flows/{id}/reject": {"note": "taken"},
    "POST /campaigns/{id}/duplicate": {"name": "taken"},
    "POST /campaigns/{id}/reject": {"note": "taken"},
    "POST /campaigns/{id}/experiment/winner": {"variant": 1},
    "POST /flows/{id}/enroll": {"contact_ids": []},
    "POST /flows/{id}/winner": {"step": 4, "branch": None},
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

# The resource of an id in a body or a query
NAMES = {
    "contact_list_id": "lists", "list_id": "lists", "list_ids": "lists", "topic_ids": "lists",
    "options.list_ids": "lists", "contact_list_ids": "lists", "exclude_contact_list_ids": "lists",
    "exclude_segment_ids": "segments",
    "segment_id": "segments", "contact_id": "contacts", "contact_ids": "contacts", "add": "contacts",
    "remove": "contacts", "channels_attributes[].id": "channels",
    "contact.channels_attributes[].id": "channels", "template_id": "templates",
    "campaign_id": "campaigns", "flow_id": "flows", "message_id": "messages", "subject_id": "templates",
    "run_ids": "runs", "experiment.variants[].id": "variants",
}  # fmt: skip
# The owner of account A, whom the set-up of the server creates
OWNER_ID = 1
# Ids of parts of an object, which belong to no resource
OWN = ("steps[].id", "steps[].step_id")
# A valid body for each operation whose body contains ids; the id is put into it
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
    "POST /messages/batch": {"messages": [{"to": "b@example.org", "subject": "s", "body": "<p>x</p>"}]},
    "POST /events/batch": {"events": [{"event": "fresh_event"}]},
    "POST /forms": {"name": "fresh"},
    "PATCH /forms/{id}": {},
    "POST /flows": {"name": "theirs"},
    "PATCH /flows/{id}": {},
    "POST /flows/{id}/enroll": {},
    "POST /flows/{id}/simulate": {},
    "POST /flows/{id}/simulate_all": {},
    "POST /flows/{id}/replay": {},
    "POST /flows/{id}/runs/move_on": {},
    "POST /flows/{id}/runs/take_out": {},
    "POST /templates/preview": {"document": {"sections": []}},
    "POST /templates/{id}/send_test": {},
    "POST /proposals": {"kind": "change_template", "changes": {"subject": "taken"}},
}
ABSENT = (404, 422)


def resource_of(where: str) -> str:
    """Return the resource of an id. Raises KeyError for an id without a case here."""
    return NAMES[where] if where in NAMES else NAMES[where.rpartition(".")[2]]


def test_lists_of_an_empty_account_are_empty(tenants: tuple[Tenant, Tenant]) -> None:
    """Each list, search, count and export of account B has no row of account A."""
    ours, theirs = tenants
    counted = 0
    for operation in OpenApiDocument(theirs.api).operations():
        if operation.method != "GET" or operation.has_id:
            continue
        for words in ({}, {"search": "alpha"}, {"q": "alpha"}):
            if not set(words) <= set(operation.queries) or (operation.path.endswith("/search") and "q" not in words):
                continue
            response = theirs.api.get(operation.path, **words)
            assert b"alpha" not in response.body, (operation, words)
            if "X-Total-Count" in response.headers:
                assert (response.headers["X-Total-Count"], response.json) == ("0", []), (operation, words)
                seen = ours.api.get(operation.path, **words)
                assert seen.headers["X-Total-Count"] != "0" or words or operation.noun == "flows", operation
                counted += 1
    assert counted >= 10
    counts = theirs.api.get("/account").json["counts"]
    assert set(counts.values()) == {0}, counts


def send_request(api: Client, operation: Operation, number: object, inner: object, whole: bool) -> Response:
    """Send a request for an object by the id in the path, with a valid body or an empty one."""
    body = BODIES.get(str(operation)) if whole else {}
    if operation.media_types == []:
        body = None
    elif str(operation) not in BODIES:
        raise AssertionError(f"{operation} reads a body and has no case in BODIES")
    return api.send(operation.method, operation.path_with_id(number, inner), body, query=QUERIES.get(str(operation)))


def test_ids_of_another_account_in_paths(tenants: tuple[Tenant, Tenant]) -> None:
    """Every operation with an id of A in its path is the same 404 as for an unknown id, without effect."""
    ours, theirs = tenants
    before = ours.read_all()
    walked = 0
    for operation in OpenApiDocument(theirs.api).operations():
        if not operation.has_id:
            continue
        for whole in (True, False):
            number = ours.object_ids[operation.noun]
            inner = ours.object_ids[operation.nested_noun] if operation.nested_noun else None
            got = send_request(theirs.api, operation, number, inner, whole)
            assert got.status == 404, (operation, got.text)
            assert comparable_response(got, number) == comparable_response(
                send_request(theirs.api, operation, MISSING_ID, inner, whole), number
            ), operation
            walked += 1
    assert walked >= 50
    assert ours.read_all() == before


def test_a_person_in_both_accounts_reaches_one_at_a_time(tenants: tuple[Tenant, Tenant], server: Server) -> None:
    """A token is for one account, the first or that of `account_id`: an id of the other one is unknown to it."""
    ours, theirs = tenants
    server.cli("user", "add", "--email", BOTH, stdin=f"{PASSWORD}\n")
    server.cli("user", "add", "--email", BOTH, "--account", str(theirs.account))
    third = int(server.cli("account", "add", "Third").stdout)
    for given, account in ((None, 1), (1, 1), (theirs.account, theirs.account)):
        api = Client(server.url, login(server, BOTH, account_id=given).expect(200)["token"])
        assert api.get("/account").expect(200)["id"] == account
        assert api.get("/user").expect(200)["account_id"] == account
    for wrong in (third, MISSING_ID):
        refused = login(server, BOTH, account_id=wrong)
        assert refused.status == 422 and set(refused.json["validation_errors"]) == {"account_id"}
    api = Client(server.url, login(server, BOTH, account_id=theirs.account).expect(200)["token"])
    walked = 0
    for operation in OpenApiDocument(api).operations():
        if not operation.has_id or operation.method != "GET" or operation.noun not in ours.object_ids:
            continue
        number = ours.object_ids[operation.noun]
        inner = ours.object_ids[operation.nested_noun] if operation.nested_noun else None
        got, never = (send_request(api, operation, each, inner, True) for each in (number, MISSING_ID))
        assert got.status == 404 and comparable_response(got, number) == comparable_response(never, number), operation
        walked += 1
    assert walked >= 20


def test_a_contact_of_another_account_is_not_explained(tenants: tuple[Tenant, Tenant]) -> None:
    """The response is the same as for an unknown contact."""
    ours, theirs = tenants
    mine = theirs.api.post("/segments", {"name": "mine"}).expect(201)["id"]
    results = [
        theirs.api.get(f"/segments/{mine}/explain", contact_id=contact_id)
        for contact_id in (ours.object_ids["contacts"], MISSING_ID)
    ]
    assert results[0].status in ABSENT
    assert comparable_response(results[0], ours.object_ids["contacts"]) == comparable_response(
        results[1], ours.object_ids["contacts"]
    )


def test_ids_of_another_account_in_queries(tenants: tuple[Tenant, Tenant]) -> None:
    """A filter by an id of A has the same result as one by an unknown id."""
    ours, theirs = tenants
    walked = 0
    for operation in OpenApiDocument(theirs.api).operations():
        for name in operation.queries if not operation.has_id else ():
            if not name.endswith("_id"):
                continue
            number = ours.object_ids[resource_of(name)]
            got, never = (theirs.api.get(operation.path, **{name: each}) for each in (number, MISSING_ID))
            assert comparable_response(got, number) == comparable_response(never, number), (operation, name)
            assert b"alpha" not in got.body
            walked += 1
    assert walked >= 12


def body_ids(walk: OpenApiDocument) -> list[tuple[Operation, str]]:
    """Return (operation, path) of every id in a JSON body."""
    return [
        (operation, where)
        for operation in walk.operations()
        if (schema := walk.request_schema(operation)) is not None
        for where, leaf in walk.leaves(schema)
        if walk.contains_ids(where, leaf) and where not in OWN
    ]


def test_ids_of_another_account_in_bodies(tenants: tuple[Tenant, Tenant], server: Server) -> None:
    """Every id of A in a body of B gets the same error as an unknown one, and nothing changes."""
    ours, theirs = tenants
    mine = Tenant(theirs.api).create_objects("beta")
    before, own = ours.read_all(), mine.read_all()
    places = body_ids(OpenApiDocument(theirs.api))
    for operation, where in places:
        number = OWNER_ID if where == "steps[].user_id" else ours.object_ids[resource_of(where)]
        path = mine.path(operation) if operation.has_id else operation.path
        many = where.endswith("_ids") or where in ("add", "remove")
        responses = []
        for each in (number, MISSING_ID):
            body = body_with(where, [each] if many else each, json.loads(json.dumps(WHOLE[str(operation)])))
            responses.append(mine.api.send(operation.method, path, body))
        if where in ("add", "remove"):
            assert responses[0].expect(200)["unknown"] == [number]
        elif where == "run_ids":
            assert responses[0].expect(200) == {"changed": 0, "unchanged": [number]}
        else:
            assert responses[0].status in ABSENT or validation_errors(responses[0]), (
                operation,
                where,
                responses[0].text,
            )
        assert comparable_response(responses[0], number) == comparable_response(responses[1], number), (
            operation,
            where,
        )
    assert len(places) >= 15
    assert ours.read_all() == before
    assert mine.read_all() == own


def test_ids_of_another_account_in_import_options(tenants: tuple[Tenant, Tenant]) -> None:
    """A list of A gets the same error as an unknown list."""
    ours, theirs = tenants
    walk = OpenApiDocument(theirs.api)
    options = walk.document["components"]["schemas"]["ImportOptions"]
    results = [where for where, leaf in walk.leaves(options) if walk.contains_ids(where, leaf)]
    assert [where for where in results if f"options.{where}" not in NAMES] == []
    number = ours.object_ids["lists"]
    got, never = (upload(theirs.api, "email\nx@example.org\n", list_ids=[each]) for each in (number, MISSING_ID))
    assert got.status == 422 and comparable_response(got, number) == comparable_response(never, number)


def id_fields(spec: Any) -> list[tuple[str, str]]:
    """Return (name, resource) of the filter fields whose values are ids."""
    return [(field["name"], field["of"]) for field in spec["fields"] if field["type"] == "id"]


def test_ids_of_another_account_in_filters(tenants: tuple[Tenant, Tenant]) -> None:
    """A condition on an object of A gets the same response as one on an unknown id."""
    ours, theirs = tenants
    nouns: dict[str, Callable[[Tenant], int]] = {
        "list": lambda tenant: tenant.object_ids["lists"], "segment": lambda tenant: tenant.object_ids["segments"],
        "campaign": lambda tenant: tenant.object_ids["campaigns"],
        "flow": lambda tenant: tenant.object_ids["campaigns"],
    }  # fmt: skip
    spec = theirs.api.get("/segments/spec").expect(200)
    fields = id_fields(spec)
    assert len(fields) >= 5
    for name, of in fields:
        number = nouns[of](ours)
        for each in spec["types"]["id"]:
            takes = {"id": lambda value: value, "ids": lambda value: [value]}.get(each["takes"])
            if takes is None:
                continue
            got, never = (
                theirs.api.post("/segments/count", {"filters": [leaf(name, each["predicate"], takes(object_id))]})
                for object_id in (number, MISSING_ID)
            )
            assert comparable_response(got, number) == comparable_response(never, number), (name, each)
            assert b"alpha" not in got.body


def leaf(name: str, predicate: str, value: Any) -> dict[str, Any]:
    """Return a filter."""
    return {"name": name, "predicate": predicate, "value": value}


def test_every_case_is_in_the_document(api: Client) -> None:
    """The cases name existing operations, and all bodies with ids have a case."""
    walk = OpenApiDocument(api)
    assert {*BODIES, *WHOLE, *QUERIES} <= {str(operation) for operation in walk.operations()}
    assert set(WHOLE) == {str(body_id) for body_id, _ in body_ids(walk)}
