"""As many independent faults as a request has, so many are told: of every operation, by its declaration."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from appliance.api.endpoints import Route
from appliance.api.routes import ROUTES
from appliance.content.templates.validation import Content
from appliance.imports.store import ImportOptions
from tests.kit.breaking import BROKEN, GONE, Break, apply, ids, of_struct, of_type, text_of
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import NEVER, Tenant
from tests.kit.uploads import form
from tests.kit.walk import faults

_FILTER = {"name": "contact_first_name", "predicate": "eq", "value": "x"}
_FILTERS, _STEPS = [_FILTER] * 3, [{"duration": 5}] * 5
# What is right of each operation; each break stands over it
RIGHT: dict[str, dict[str, Any]] = {
    "POST /messages": {"to": "ann@example.org", "subject": "x", "body": "x"},
    "POST /campaigns": {"name": "x"},
    "POST /contacts": {"email": "alpha@example.org", "channels_attributes": [{"value": "more@example.org"}]},
    "PATCH /contacts/{id}": {"channels_attributes": [{"value": "more@example.org"}]},
    "POST /suppressions": {"address": "no@example.org"},
    "POST /lists": {"name": "Counted"},
    "POST /lists/{id}/contacts/bulk": {"add": [1, 2], "remove": [1, 2]},
    "POST /segments": {"name": "Counted", "filters": _FILTERS},
    "PATCH /segments/{id}": {"filters": _FILTERS},
    "POST /segments/count": {"filters": _FILTERS},
    "POST /templates/preview": {"document": {"sections": [{"type": "text"}, {"type": "text"}]}},
    "POST /forms": {"name": "Counted", "fields": [{"name": "email"}]},
    "PATCH /forms/{id}": {"fields": [{"name": "email"}]},
    "POST /domains": {"domain": {"name": "counted.example"}},
    "POST /users": {"email": "counted@example.org", "role": "viewer"},
    "POST /api_keys": {"name": "Counted"},
    "PATCH /account": {
        "frequency_cap": {"messages": 1, "days": 1},
        "sms_quiet_hours": {"from": "21:00", "to": "08:00"},
    },
    "PUT /brand": {"links": [{"url": "https://example.org"}]},
    "POST /capture/{id}/simulate": {"action": "open"},
    "POST /events": {"event": "counted", "contact_email": "alpha@example.org"},
    "POST /events/batch": {"events": []},
    "POST /webhooks": {"url": "https://counted.example/hook"},
    "POST /flows": {"steps": _STEPS},
    "PATCH /flows/{id}": {"steps": _STEPS},
    "POST /flows/{id}/enroll": {"contact_ids": [1]},
    "POST /flows/{id}/simulate": {
        "steps": _STEPS,
        "events": [{"event": "counted"}],
        "contact": {"channels_attributes": [{"value": "more@example.org"}]},
    },
    "POST /flows/{id}/runs/move_on": {"run_ids": [1]},
    "POST /flows/{id}/runs/take_out": {"run_ids": [1]},
    "POST /flows/{id}/simulate_all": {"steps": _STEPS, "events": [{"event": "counted"}]},
}
# Of these only one may be there; two that are well formed are a fault of their own
EITHER = (("contact_ids", "segment_id"), ("run_ids", "step"), ("contact_id", "contact"))
# What somebody else has already; `alpha` and `bela` are there
TAKEN = {
    "POST /contacts": [Break(("channels_attributes", 0, "value"), "bela@example.org", "channels_attributes[0].value")],
    "PATCH /contacts/{id}": [Break(("email",), "bela@example.org", "email"),
                             Break(("phone",), "+14155559999", "phone")],
    "POST /lists": [Break(("name",), "alpha list", "name")],
    "PATCH /lists/{id}": [Break(("name",), "alpha mirror", "name")],
    "POST /domains": [Break(("domain", "name"), "alpha.example", "domain.name")],
    "POST /users": [Break(("email",), EMAIL, "email")],
}  # fmt: skip
# Runs that are not there are told in an answer of 200; who is to be moved may have gone on meanwhile
TOLD_OTHERWISE = {"POST /flows/{id}/runs/move_on", "POST /flows/{id}/runs/take_out"}
# Parts of requests that are read by readers of their own, each by a few ways to break it
OPAQUE: dict[str, list[Break]] = {
    "filters": [
        Break(("filters",), 5, "filters"),
        Break(("filters", 0), {**_FILTER, "name": "contact_age"}, "filters[0].name"),
        Break(("filters", 1), {"name": "contact_list", "predicate": "eq", "value": NEVER}, "filters[1].value"),
        Break(("filters", 2), {**_FILTER, "no_such_key": 1}, "filters[2].no_such_key"),
    ],
    "steps": [
        Break(("steps",), 5, "steps"),
        Break(("steps", 0), {"subject": BROKEN, "body": "x"}, "steps[0].subject"),
        Break(("steps", 1), {"type": "sms", "body": BROKEN}, "steps[1].body"),
        Break(("steps", 2), {"duration": -5}, "steps[2].duration"),
        Break(("steps", 3), {"duration": 5, "no_such_key": 1}, "steps[3].no_such_key"),
        Break(("steps", 4), {"type": "list_add", "contact_list_id": NEVER}, "steps[4].contact_list_id"),
    ],
    "trigger": [
        Break(("trigger",), 5, "trigger"),
        Break(("trigger", "event"), "A b", "trigger.event"),
        Break(("trigger", "contact_list_id"), NEVER, "trigger.contact_list_id"),
        Break(("trigger", "segment_id"), NEVER, "trigger.segment_id"),
        Break(("trigger", "no_such_key"), 1, "trigger.no_such_key"),
        Break(("trigger", "data"), {"where": [{**_FILTER, "name": "contact_age"}]}, "trigger.data.where[0].name"),
    ],
    "trigger_attributes": [
        Break(("trigger_attributes", "data", name), value, f"trigger_attributes.data.{name}{index}")
        for name, value, index in (("contact_list_ids", [NEVER], "[0]"), ("exclude_segment_ids", 5, ""))
    ],
    "add": [Break(("add",), 5, "add"), Break(("add", 0), True, "add[0]"), Break(("add", 1), "", "add[1]")],
    "remove": [Break(("remove",), 5, "remove"), Break(("remove", 1), None, "remove[1]")],
}  # fmt: skip
LIQUID = ("subject", "preheader", "from_name", "body", "text")


def body_breaks(route: Route) -> list[Break]:
    """Return the ways to break the body of an operation: by its declaration, and what is looked into beyond it."""
    assert route.body_type is not None
    found = list(of_struct(route.body_type))
    if name_of(route) not in TOLD_OTHERWISE:
        found += ids(route.body_type)
    names = {info.encode_name for info in fields(route.body_type)}
    for prefix, inner in (((), names), (("template_attributes",), set(Content.__struct_fields__))):
        if prefix and prefix[0] not in names:
            continue
        if "subject" in inner:
            found += [Break((*prefix, name), BROKEN, text_of((*prefix, name))) for name in LIQUID if name in inner]
        found += [one for name in ("design", "document") if name in inner for one in _designs((*prefix, name))]
    # The trigger of an event is no trigger of a flow
    opaque = names if "steps" in names else names - {"trigger"}
    found += [one for name in sorted(opaque) for one in OPAQUE.get(name, [])]
    return found + TAKEN.get(name_of(route), [])


def _designs(place: tuple[str | int, ...]) -> list[Break]:
    text = {"type": "text", "props": {"content": BROKEN}}
    button = {"type": "button", "props": {"text": BROKEN, "href": "https://example.org"}}
    return [
        Break((*place, "sections"), 5, f"{text_of(place)}.sections"),
        Break((*place, "sections", 0), text, f"{text_of(place)}.sections[0].props.content"),
        Break((*place, "sections", 1), button, f"{text_of(place)}.sections[1].props.text"),
    ]


def query_breaks(route: Route) -> list[Break]:
    """Return the ways to break the query of an operation; what is not known to it too."""
    found = [Break(("no_such_parameter",), "1", "no_such_parameter")]
    for info in fields(route.query_type) if route.query_type is not None else ():
        if info.required:
            found.append(Break((info.encode_name,), GONE, info.encode_name))
        found += [
            one for one in of_type(info.type, (info.encode_name,))
            if isinstance(one.value, str | int) and one.value != 5 and not isinstance(one.value, bool)
        ]  # fmt: skip
        if info.encode_name.endswith("_id"):
            found.append(Break((info.encode_name,), NEVER, info.encode_name))
    return found


def name_of(route: Route) -> str:
    """Return an operation's name."""
    return f"{route.method} {route.path}"


def some_of(all_breaks: list[Break]) -> st.SearchStrategy[list[Break]]:
    """Draw some breaks of which none stands within another, and no two are a fault together."""

    def apart(drawn: list[Break]) -> list[Break]:
        kept: list[Break] = []
        for one in drawn:
            rivals = {name for pair in EITHER if one.place[0] in pair for name in pair} - {one.place[0]}
            if not any(one.clashes(other) or other.place[0] in rivals for other in kept):
                kept.append(one)
        return kept

    return st.lists(st.sampled_from(all_breaks), min_size=1, max_size=6).map(apart)


READING = [route for route in ROUTES if route.body_type is not None and route.path != "/events/batch"]
ASKING = [route for route in ROUTES if route.query_type is not None and route.form_type is None]
_settings = settings(
    max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """An account with one of everything, and a flow that lets people in."""
    found = Tenant(server.client()).furnish("alpha")
    found.things["users"] = 1
    found.api.post("/contacts", {"email": "bela@example.org", "phone": "+14155559999"}).expect(201)
    flow = {"name": "Open", "trigger": {"event": "opened"}, "steps": [{"duration": 5}], "status": "active"}
    found.things["open_flow"] = found.api.post("/flows", flow).expect(201)["id"]
    return found


@pytest.fixture(scope="module")
def person(server: Server) -> Client:
    """The owner, signed in: some things are for people alone."""
    token = server.client().post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    return server.client(token)


def at(route: Route, mine: Tenant, person: Client) -> tuple[Client, str]:
    """Return who asks for an operation, and its path."""
    noun = route.path.strip("/").partition("/")[0]
    is_persons = noun in ("users", "user", "api_keys", "audit")
    number = mine.things.get("open_flow" if route.path.endswith("/enroll") else noun)
    return person if is_persons else mine.api, route.path.replace("{id}", str(number))


@pytest.mark.parametrize("route", READING, ids=name_of)
def test_every_fault_of_a_body_is_told(route: Route, mine: Tenant, person: Client) -> None:
    """Each field that is wrong is named, and no other, whatever is wrong with it."""
    client, path = at(route, mine, person)

    @_settings
    @given(drawn=some_of(body_breaks(route)), extra=st.booleans())
    def ask(drawn: list[Break], extra: bool) -> None:
        rivals = {name for one in drawn for pair in EITHER if one.place[0] in pair for name in pair}
        rivals -= {str(one.place[0]) for one in drawn}
        right = {key: value for key, value in RIGHT.get(name_of(route), {}).items() if key not in rivals}
        body = apply(right, drawn)
        told = {one.blamed for one in drawn}
        headers = {}
        if extra and route.idempotent:
            headers["Idempotency-Key"] = "x" * 256
            told.add("Idempotency-Key")
        elif extra and route.query_type is None:
            path_asked = f"{path}?no_such_parameter=1"
            told.add("no_such_parameter")
        answer = client.send(route.method, path_asked if "no_such_parameter" in told else path, body, headers)
        assert set(faults(answer)) == told, (body, answer.text)

    ask()


@pytest.mark.parametrize("route", ASKING, ids=name_of)
def test_every_fault_of_a_query_is_told(route: Route, mine: Tenant, person: Client) -> None:
    """A parameter that nobody knows hides none that is missing or wrong, nor an id that is not there."""
    client, path = at(route, mine, person)

    @_settings
    @given(drawn=some_of(query_breaks(route)))
    def ask(drawn: list[Break]) -> None:
        right = (
            {"q": "x"}
            if route.path.endswith("/search")
            else {"contact_id": mine.things["contacts"]}
            if route.path.endswith("/explain")
            else {}
        )
        query = apply(right, drawn)
        answer = client.send(route.method, f"{path}?{urlencode(query)}", {} if route.body_type else None)
        assert set(faults(answer)) == {one.blamed for one in drawn}, (query, answer.text)

    ask()


OPTIONS = [*of_struct(ImportOptions, ("options",)), Break(("options", "list_ids"), [NEVER], "options.list_ids")]
BESIDE = [Break((name,), "x", name) for name in ("resource", "dry_run", "no_such_parameter")]
BESIDE += [Break(("file",), GONE, "file"), Break(("file",), b"", "file")]


@_settings
@given(drawn=some_of(OPTIONS + BESIDE * 4))
def test_every_fault_of_an_import_is_told(mine: Tenant, drawn: list[Break]) -> None:
    """The file, the texts beside it, what stands within one of them and the query are looked at together."""
    right: dict[str, Any] = {"file": b"email\na@example.org\n", "resource": "contacts"}
    asked = apply(right, drawn)
    query = {name: asked.pop(name) for name in ("dry_run", "no_such_parameter") if name in asked}
    file = asked.pop("file", None)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in asked.items()}
    body, kind = form(file, **texts)
    headers = {"Authorization": f"Bearer {mine.api.key}", "Content-Type": kind}
    answer = mine.api.request("POST", f"/v1/my/imports?{urlencode(query)}", body, headers)
    assert set(faults(answer)) == {one.blamed for one in drawn}, (asked, answer.text)
