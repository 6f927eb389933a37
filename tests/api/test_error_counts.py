"""Every operation reports exactly the independent errors of a request, generated from its declaration."""

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
from appliance.core.aliases import list_aliases
from appliance.imports.store import ImportOptions
from tests.api.test_all_errors import owner
from tests.kit.client import Client
from tests.kit.invalid_requests import (
    INVALID_TEMPLATE,
    REMOVED,
    InvalidChange,
    apply_changes,
    changes_of_ids,
    changes_of_struct,
    changes_of_type,
    format_path,
)
from tests.kit.openapi_document import validation_errors
from tests.kit.sampling import examples
from tests.kit.server import EMAIL, Server
from tests.kit.tenants import MISSING_ID, Tenant
from tests.kit.uploads import multipart_form

__all__ = ["owner"]
_FILTER = {"name": "contact_first_name", "predicate": "eq", "value": "x"}
_FILTERS, _STEPS = [_FILTER] * 3, [{"duration": 5}] * 5
# A valid body for each operation; changes make it invalid
RIGHT: dict[str, dict[str, Any]] = {
    "POST /messages": {
        "to": "ann@example.org",
        "subject": "x",
        "body": "x",
        "attachments": [{"filename": "a.txt", "content": "YQ=="}],
    },
    "POST /campaigns": {
        "name": "x",
        "repeat": {"every": "day", "at": "09:00"},
        "utm": {"source": "news"},
        "experiment": {"variants": [{}, {"subject": "b"}]},
    },
    "PATCH /campaigns/{id}": {
        "repeat": {"every": "day", "at": "09:00"},
        "utm": {"source": "news"},
        "experiment": {"variants": [{}, {"subject": "b"}]},
    },
    "PUT /templates/{id}/translations/{language}": {"texts": {}},
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
    "POST /sign_in_providers": {"name": "Counted", "issuer": "https://idp.example", "client_id": "counted"},
    "PATCH /sign_in": {"password": True},
    "POST /roles": {"name": "Counted", "scopes": ["flows:read"]},
    "PATCH /roles/{id}": {"scopes": ["flows:read"]},
    "POST /invitations": {"email": "counted@example.org", "role": "viewer"},
    "POST /proposals": {"kind": "change_segment", "subject_id": 1, "changes": {"name": "Counted"}},
    "POST /proposals/{id}/approve": {"version": "counted"},
    "PATCH /account": {
        "frequency_cap": {"messages": 1, "days": 1},
        "utm": {"source": "news"},
        "sms_quiet_hours": {"from": "21:00", "to": "08:00"},
        "marketing_calendar": {"days": ["mon"], "from": "08:00", "to": "20:00"},
    },
    "PUT /brand": {"links": [{"url": "https://example.org"}]},
    "POST /capture/{id}/simulate": {"action": "open"},
    "POST /events": {"event": "counted", "contact_email": "alpha@example.org"},
    "POST /events/batch": {"events": []},
    "POST /webhooks": {"url": "https://counted.example/hook"},
    "POST /flows": {"steps": _STEPS},
    "PATCH /flows/{id}": {"steps": _STEPS},
    "POST /flows/{id}/enroll": {"contact_ids": [1]},
    "POST /flows/{id}/winner": {"step": 4},
    "POST /flows/{id}/simulate": {
        "steps": _STEPS,
        "events": [{"event": "counted"}],
        "contact": {"channels_attributes": [{"value": "more@example.org"}]},
    },
    "POST /flows/{id}/runs/move_on": {"run_ids": [1]},
    "POST /flows/{id}/runs/take_out": {"run_ids": [1]},
    "POST /flows/{id}/simulate_all": {"steps": _STEPS, "events": [{"event": "counted"}]},
    "POST /flows/{id}/replay": {"steps": _STEPS, "order_event": "counted"},
}
# Only one field of each pair is allowed; two valid ones are another error
EITHER = (("contact_ids", "segment_id"), ("run_ids", "step"), ("contact_id", "contact"))
# Values that another object has already
TAKEN = {
    "POST /contacts": [
        InvalidChange(("channels_attributes", 0, "value"), "bela@example.org", "channels_attributes[0].value"),
    ],
    "PATCH /contacts/{id}": [InvalidChange(("email",), "bela@example.org", "email"),
                             InvalidChange(("phone",), "+14155559999", "phone")],
    "POST /lists": [InvalidChange(("name",), "alpha list", "name")],
    "PATCH /lists/{id}": [InvalidChange(("name",), "alpha mirror", "name")],
    "POST /domains": [InvalidChange(("domain", "name"), "alpha.example", "domain.name")],
    "POST /users": [InvalidChange(("email",), EMAIL, "email"), InvalidChange(("role",), "king", "role")],
    "POST /roles": [InvalidChange(("name",), "agency", "name")],
    "POST /invitations": [InvalidChange(("email",), EMAIL, "email"), InvalidChange(("role",), "king", "role")],
}  # fmt: skip
# Unknown runs are reported in a 200 response, since a run may have ended in the meantime
TOLD_OTHERWISE = {"POST /flows/{id}/runs/move_on", "POST /flows/{id}/runs/take_out"}
# Parts of requests with their own parsers, and a few invalid changes of each
OPAQUE: dict[str, list[InvalidChange]] = {
    "filters": [
        InvalidChange(("filters",), 5, "filters"),
        InvalidChange(("filters", 0), {**_FILTER, "name": "contact_age"}, "filters[0].name"),
        InvalidChange(
            ("filters", 1), {"name": "contact_list", "predicate": "eq", "value": MISSING_ID}, "filters[1].value"
        ),
        InvalidChange(("filters", 2), {**_FILTER, "no_such_key": 1}, "filters[2].no_such_key"),
    ],
    "steps": [
        InvalidChange(("steps",), 5, "steps"),
        InvalidChange(("steps", 0), {"subject": INVALID_TEMPLATE, "body": "x"}, "steps[0].subject"),
        InvalidChange(("steps", 1), {"type": "sms", "body": INVALID_TEMPLATE}, "steps[1].body"),
        InvalidChange(("steps", 2), {"duration": -5}, "steps[2].duration"),
        InvalidChange(("steps", 3), {"duration": 5, "no_such_key": 1}, "steps[3].no_such_key"),
        InvalidChange(("steps", 4), {"type": "list_add", "contact_list_id": MISSING_ID}, "steps[4].contact_list_id"),
    ],
    "trigger": [
        InvalidChange(("trigger",), 5, "trigger"),
        InvalidChange(("trigger", "event"), "A b", "trigger.event"),
        InvalidChange(("trigger", "contact_list_id"), MISSING_ID, "trigger.contact_list_id"),
        InvalidChange(("trigger", "segment_id"), MISSING_ID, "trigger.segment_id"),
        InvalidChange(("trigger", "no_such_key"), 1, "trigger.no_such_key"),
        InvalidChange(
            ("trigger", "data"), {"where": [{**_FILTER, "name": "contact_age"}]}, "trigger.data.where[0].name"
        ),
    ],
    "trigger_attributes": [
        InvalidChange(("trigger_attributes", "data", name), value, f"trigger_attributes.data.{name}{index}")
        for name, value, index in (("contact_list_ids", [MISSING_ID], "[0]"), ("exclude_segment_ids", 5, ""))
    ],
    "add": [
        InvalidChange(("add",), 5, "add"), InvalidChange(("add", 0), True, "add[0]"),
        InvalidChange(("add", 1), "", "add[1]"),
    ],
    "remove": [InvalidChange(("remove",), 5, "remove"), InvalidChange(("remove", 1), None, "remove[1]")],
}  # fmt: skip
LIQUID = ("subject", "preheader", "from_name", "body", "text")


def body_changes(route: Route) -> list[InvalidChange]:
    """Return the invalid changes of an operation's body, from its declaration and its nested documents."""
    assert route.body_type is not None
    # The responses of a simulation name steps that are stored, of which there are none here
    changes = [change for change in changes_of_struct(route.body_type) if change[0][:1] != ("responses",)]
    if operation_name(route) not in TOLD_OTHERWISE:
        changes += changes_of_ids(route.body_type)
    names = {info.encode_name for info in fields(route.body_type)}
    for prefix, inner in (((), names), (("template_attributes",), set(Content.__struct_fields__))):
        if prefix and prefix[0] not in names:
            continue
        if "subject" in inner:
            changes += [
                InvalidChange((*prefix, name), INVALID_TEMPLATE, format_path((*prefix, name)))
                for name in LIQUID
                if name in inner
            ]
        changes += [design for name in ("design", "document") if name in inner for design in _designs((*prefix, name))]
    # The field `trigger` of an event is not the trigger of a flow
    opaque = names if "steps" in names else names - {"trigger"}
    changes += [change for name in sorted(opaque) for change in OPAQUE.get(name, [])]
    return changes + TAKEN.get(operation_name(route), [])


def _designs(place: tuple[str | int, ...]) -> list[InvalidChange]:
    text = {"type": "text", "props": {"content": INVALID_TEMPLATE}}
    button = {"type": "button", "props": {"text": INVALID_TEMPLATE, "href": "https://example.org"}}
    return [
        InvalidChange((*place, "sections"), 5, f"{format_path(place)}.sections"),
        InvalidChange((*place, "sections", 0), text, f"{format_path(place)}.sections[0].props.content"),
        InvalidChange((*place, "sections", 1), button, f"{format_path(place)}.sections[1].props.text"),
    ]


def query_changes(route: Route) -> list[InvalidChange]:
    """Return the invalid changes of an operation's query, including an unknown parameter."""
    changes = [InvalidChange(("no_such_parameter",), "1", "no_such_parameter")]
    for info in fields(route.query_type) if route.query_type is not None else ():
        if info.required:
            changes.append(InvalidChange((info.encode_name,), REMOVED, info.encode_name))
        changes += [
            change for change in changes_of_type(info.type, (info.encode_name,))
            if isinstance(change.value, str | int) and change.value != 5 and not isinstance(change.value, bool)
        ]  # fmt: skip
        if info.encode_name.endswith("_id"):
            changes.append(InvalidChange((info.encode_name,), MISSING_ID, info.encode_name))
    return changes


def operation_name(route: Route) -> str:
    """Return an operation's method and path."""
    return f"{route.method} {route.path}"


def are_one_field(change: InvalidChange, other: InvalidChange) -> bool:
    """Return whether one of two changes is at an alias, and the other at its field or around it."""
    paths = [(*ALIASES.get(item.path[0], item.path[:1]), *item.path[1:]) for item in (change, other)]
    length = min(map(len, paths))
    return paths[0][:length] == paths[1][:length]


def independent_changes(all_breaks: list[InvalidChange]) -> st.SearchStrategy[list[InvalidChange]]:
    """Draw some changes that neither overlap nor are an error together."""

    def apart(drawn: list[InvalidChange]) -> list[InvalidChange]:
        kept: list[InvalidChange] = []
        for change in drawn:
            rivals = {name for pair in EITHER if change.path[0] in pair for name in pair} - {change.path[0]}
            if not any(
                change.overlaps(other) or are_one_field(change, other) or other.path[0] in rivals for other in kept
            ):
                kept.append(change)
        return kept

    return st.lists(st.sampled_from(all_breaks), min_size=1, max_size=6).map(apart)


READING = [route for route in ROUTES if route.body_type is not None and route.path != "/events/batch"]
# The path of the field for each alias
ALIASES: dict[str | int, tuple[str | int, ...]] = {
    name: tuple(alias.path.split("."))
    for route in READING
    for name, alias in list_aliases(route.body_type).items()
    if not alias.is_list
}
ASKING = [route for route in ROUTES if route.query_type is not None and route.form_type is None]
_settings = settings(
    max_examples=examples(4, full=40),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """Return an account with one object of every kind, and an active flow."""
    result = Tenant(server.client()).create_objects("alpha")
    result.object_ids |= {"users": 1, "user": 1, "sign_in_providers": 1}
    result.api.post("/contacts", {"email": "bela@example.org", "phone": "+14155559999"}).expect(201)
    flow = {"name": "Open", "trigger": {"event": "opened"}, "steps": [{"duration": 5}], "status": "active"}
    result.object_ids["open_flow"] = result.api.post("/flows", flow).expect(201)["id"]
    return result


def client_and_path(route: Route, mine: Tenant, owner: Client) -> tuple[Client, str]:
    """Return the client and the path for an operation."""
    noun = route.path.strip("/").partition("/")[0]
    of_persons = ("users", "user", "api_keys", "audit", "roles", "invitations", "sign_in", "sign_in_providers")
    is_persons = noun in of_persons or (noun == "proposals" and route.path.endswith(("/approve", "/return")))
    number = mine.object_ids.get("open_flow" if route.path.endswith("/enroll") else noun)
    return owner if is_persons else mine.api, route.path.replace("{id}", str(number)).replace("{language}", "de")


@pytest.mark.parametrize("route", READING, ids=operation_name)
def test_all_errors_of_generated_bodies(route: Route, mine: Tenant, owner: Client) -> None:
    """The response reports exactly the invalid fields."""
    client, path = client_and_path(route, mine, owner)

    @_settings
    @given(drawn=independent_changes(body_changes(route)), extra=st.booleans())
    def ask(drawn: list[InvalidChange], extra: bool) -> None:
        rivals = {name for change in drawn for pair in EITHER if change.path[0] in pair for name in pair}
        rivals -= {str(change.path[0]) for change in drawn}
        right = {key: value for key, value in RIGHT.get(operation_name(route), {}).items() if key not in rivals}
        body = apply_changes(right, drawn)
        error_paths = {change.error_path for change in drawn}
        headers = {}
        if extra and route.idempotent:
            headers["Idempotency-Key"] = "x" * 256
            error_paths.add("Idempotency-Key")
        elif extra and route.query_type is None:
            path_asked = f"{path}?no_such_parameter=1"
            error_paths.add("no_such_parameter")
        response = client.send(route.method, path_asked if "no_such_parameter" in error_paths else path, body, headers)
        assert set(validation_errors(response)) == error_paths, (body, response.text)

    ask()


@pytest.mark.parametrize("route", ASKING, ids=operation_name)
def test_all_errors_of_generated_queries(route: Route, mine: Tenant, owner: Client) -> None:
    """An unknown parameter hides no other error of the query."""
    client, path = client_and_path(route, mine, owner)

    @_settings
    @given(drawn=independent_changes(query_changes(route)))
    def ask(drawn: list[InvalidChange]) -> None:
        right = (
            {"q": "x"}
            if route.path.endswith("/search")
            else {"contact_id": mine.object_ids["contacts"]}
            if route.path.endswith("/explain")
            else {}
        )
        query = apply_changes(right, drawn)
        response = client.send(route.method, f"{path}?{urlencode(query)}", {} if route.body_type else None)
        assert set(validation_errors(response)) == {change.error_path for change in drawn}, (query, response.text)

    ask()


OPTIONS = [
    *changes_of_struct(ImportOptions, ("options",)),
    InvalidChange(("options", "list_ids"), [MISSING_ID], "options.list_ids"),
]
BESIDE = [InvalidChange((name,), "x", name) for name in ("resource", "dry_run", "no_such_parameter")]
BESIDE += [InvalidChange(("file",), REMOVED, "file"), InvalidChange(("file",), b"", "file")]


@_settings
@given(drawn=independent_changes(OPTIONS + BESIDE * 4))
def test_all_errors_of_generated_imports(mine: Tenant, drawn: list[InvalidChange]) -> None:
    """Errors of the file, the text fields, their contents and the query are reported together."""
    right: dict[str, Any] = {"file": b"email\na@example.org\n", "resource": "contacts"}
    asked = apply_changes(right, drawn)
    query = {name: asked.pop(name) for name in ("dry_run", "no_such_parameter") if name in asked}
    file = asked.pop("file", None)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in asked.items()}
    body, kind = multipart_form(file, **texts)
    headers = {"Authorization": f"Bearer {mine.api.key}", "Content-Type": kind}
    response = mine.api.request("POST", f"/v1/my/imports?{urlencode(query)}", body, headers)
    assert set(validation_errors(response)) == {change.error_path for change in drawn}, (asked, response.text)
