"""All errors of a request are reported in one response.

Each operation that reads a body gets at least two of: wrong types, unknown ids, broken rules, query parameters.
"""

import json
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client
from tests.kit.openapi_document import validation_errors
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import MISSING_ID, Tenant
from tests.kit.uploads import multipart_form

_BROKEN = "{{ contact.first_name"
_ODD = [{"name": "contact_age", "predicate": "eq", "value": 1}]
TAKEN = "+14155559999"
_WAIT = {"duration": -5}


class Invalid(NamedTuple):
    """An invalid request, and the paths of all errors that must be reported."""

    operation: str
    body: dict[str, Any]
    error_paths: set[str]
    query: str = ""
    headers: dict[str, str] = {}


WRONG = (
    Invalid("POST /messages", {"to": "nobody", "subject": 5, "body": "x", "template_id": MISSING_ID},
          {"to", "subject", "template_id"}),
    Invalid("POST /messages", {"to": "nobody", "subject": "x", "body": _BROKEN, "template_id": MISSING_ID},
          {"to", "body", "template_id"}),
    Invalid("POST /messages", {"channel": "sms", "to": "12", "body": _BROKEN, "tags": 5, "template_id": MISSING_ID},
          {"to", "body", "tags", "template_id"}),
    Invalid("POST /messages", {"subject": "x", "headers": {"Bad": "x"}, "send_at": "soon"},
          {"to", "body", "headers.Bad", "send_at", "Idempotency-Key"}, headers={"Idempotency-Key": "x" * 256}),
    Invalid("POST /messages", {"to": "nobody", "idempotency_key": "a\u00adb"},
          {"to", "subject", "body", "idempotency_key"}),
    Invalid("POST /campaigns", {"name": 5, "trigger_attributes": {"contact_list_id": MISSING_ID},
                              "template_attributes": {"subject": _BROKEN}},
          {"name", "trigger_attributes.contact_list_id", "template_attributes.subject"}),
    Invalid("PATCH /campaigns/{id}", {"scheduled_at": "soon", "trigger_attributes": {"segment_id": MISSING_ID}},
          {"scheduled_at", "trigger_attributes.segment_id"}),
    Invalid("PATCH /campaigns/{id}",
          {"experiment": {"metric": "luck", "variants": [{}, {"name": 5, "subject": _BROKEN}]}},
          {"experiment.metric", "experiment.variants[1].name", "experiment.variants[1].subject"}),
    Invalid("POST /campaigns", {"name": 5, "local_time": "2026-02-30T09:00"}, {"name", "local_time"}),
    Invalid("PATCH /campaigns/{id}", {"name": 5, "local_time": "2031-12-01T09:30", "best_hour_until": 9},
          {"name", "local_time", "best_hour_until"}),
    Invalid("PATCH /campaigns/{id}",
          {"name": 5, "repeat": {"every": "week", "at": "09:00", "day_of_month": 3, "ends_at": "soon"}},
          {"name", "repeat.ends_at", "repeat.weekdays", "repeat.day_of_month"}),
    Invalid("PATCH /campaigns/{id}", {"utm": {"source": 5, "term": "{{ first_name }}", "medium": "x\ny"}},
          {"utm.source", "utm.term", "utm.medium"}),
    Invalid("POST /campaigns/{id}/experiment/winner", {"variant": 9}, {"variant", "no"}, "no=1"),
    Invalid("POST /campaigns/{id}/send", {"hold_seconds": "x", "trigger_attributes": {"segment_id": MISSING_ID}},
          {"hold_seconds", "trigger_attributes.segment_id", "Idempotency-Key"},
          headers={"Idempotency-Key": "x" * 256}),
    Invalid("POST /campaigns/{id}/duplicate", {"name": ""}, {"name", "no"}, "no=1"),
    Invalid("POST /campaigns/{id}/reject", {"note": 5}, {"note", "no"}, "no=1"),
    Invalid("POST /contacts", {"first_name": 5, "email": "x", "list_ids": [MISSING_ID]},
          {"first_name", "email", "list_ids"}),
    Invalid("POST /contacts",
          {"email": "alpha@example.org", "phone": TAKEN, "list_ids": [MISSING_ID], "data": {"tags": 5}},
          {"phone", "list_ids", "data.tags"}),
    Invalid("POST /messages",
            {"to": "ann@example.org", "subject": _BROKEN, "body": "x\n" + _BROKEN, "from_name": _BROKEN,
             "text": _BROKEN}, {"subject", "body", "from_name", "text"}),
    Invalid("POST /messages",
            {"to": "nobody", "subject": "x", "html": _BROKEN, "cc": ["x"], "bcc": 5, "from": "x",
             "template_id": MISSING_ID, "headers": {"To": "x"}},
            {"to", "html", "cc[0]", "bcc", "from", "template_id", "headers.To"}),
    Invalid("POST /messages", {"channel": "fax", "to": "+14155550123", "body": _BROKEN}, {"channel", "body"}),
    Invalid("POST /campaigns", {"name": "x", "trigger_attributes": {"contact_list_id": MISSING_ID, "unknown": 1},
                              "template_attributes": {"subject": 5, "body": _BROKEN}},
          {"trigger_attributes.contact_list_id", "trigger_attributes.unknown", "template_attributes.subject",
           "template_attributes.body"}),
    Invalid("POST /webhooks", {"url": "https://x.example/", "events": [5, "order_paid", "A b"]},
          {"events[0]", "events[2]"}),
    Invalid("POST /messages", {"to": "ann@example.org", "subject": "x", "body": "x",
                             "headers": {"X-A": 5, "Bad": "x"}}, {"headers.X-A", "headers.Bad"}),
    Invalid("PATCH /contacts/{id}", {"data": 5, "list_ids": [MISSING_ID]}, {"data", "list_ids"}),
    Invalid("POST /contacts/{id}/merge", {"contact_id": MISSING_ID}, {"contact_id", "no"}, "no=1"),
    Invalid("POST /incoming/{id}/seen", {"opt_out": 5}, {"opt_out", "no"}, "no=1"),
    Invalid("POST /suppressions", {"address": "x", "reason": "x"}, {"address", "reason"}),
    Invalid("DELETE /suppressions/{id}", {"reason": 5}, {"reason", "no"}, "no=1"),
    Invalid("POST /lists", {"name": 5, "segment_id": MISSING_ID, "contact_ids": [MISSING_ID]},
          {"name", "segment_id", "contact_ids"}),
    Invalid("PATCH /lists/{id}", {"public": 5, "segment_id": MISSING_ID}, {"public", "segment_id"}),
    Invalid("POST /lists/{id}/contacts/bulk", {"add": [True]}, {"add[0]", "no"}, "no=1"),
    Invalid("POST /segments", {"name": 5, "filters": _ODD}, {"name", "filters[0].name"}),
    Invalid("PATCH /segments/{id}", {"name": 5, "filters": _ODD}, {"name", "filters[0].name"}),
    Invalid("POST /segments/count", {"filters": _ODD}, {"filters[0].name", "no"}, "no=1"),
    Invalid("POST /forms", {"name": 5, "list_ids": [MISSING_ID], "origins": ["x"]}, {"name", "list_ids", "origins[0]"}),
    Invalid("PATCH /forms/{id}", {"name": 5, "list_ids": [MISSING_ID]}, {"name", "list_ids"}),
    Invalid("POST /templates", {"name": 5, "subject": _BROKEN, "design": {"sections": 5}},
          {"name", "subject", "design.sections"}),
    Invalid("PATCH /templates/{id}", {"name": 5, "body": _BROKEN}, {"name", "body"}),
    Invalid("POST /templates/preview", {"subject": _BROKEN, "contact_id": MISSING_ID, "channel": "x"},
          {"document", "subject", "contact_id", "channel"}),
    Invalid("POST /templates/preview", {"document": {"sections": 5}, "data": 5}, {"document.sections", "data"}),
    Invalid("POST /templates/preview", {"document": {}, "channel": "sms", "body": _BROKEN, "contact_id": MISSING_ID},
          {"body", "contact_id"}),
    Invalid("PUT /templates/{id}/translations/{language}", {"texts": {"nothing": "x", "subject": "x" * 999}},
          {"texts.nothing", "texts.subject"}),
    Invalid("POST /templates/{id}/send_test", {"contact_id": MISSING_ID, "data": 5, "phone": "+14155550123"},
          {"contact_id", "data", "phone"}),
    Invalid("POST /flows", {"name": 5, "steps": [_WAIT], "trigger": {"event": "A b"}, "starter": "none"},
          {"name", "steps[0].duration", "trigger.event", "starter"}),
    Invalid("POST /flows", {"goal": 5, "starter": "none"}, {"goal", "starter"}),
    Invalid("PATCH /flows/{id}", {"status": "x", "steps": [_WAIT], "data": {"scripts": 5}},
          {"status", "steps[0].duration", "data.scripts"}),
    Invalid("POST /flows/{id}/enroll", {"contact_ids": "x", "segment_id": MISSING_ID}, {"contact_ids", "segment_id"}),
    Invalid("POST /flows/{id}/winner", {"step": 0, "branch": 5}, {"step", "branch"}),
    Invalid("POST /flows/{id}/simulate", {"start_at": "soon", "contact_id": MISSING_ID, "steps": [_WAIT],
                                        "events": [{"event": "A b"}]},
          {"start_at", "contact_id", "steps[0].duration", "events[0].event"}),
    Invalid("POST /flows/{id}/simulate", {"contact": {"email": "ann@example.org", "list_ids": [MISSING_ID]},
                                        "events": [{"event": "A b"}]},
          {"contact.list_ids", "events[0].event"}),
    Invalid("POST /flows/{id}/simulate",
          {"contact": {"channels_attributes": [{"value": "x"}], "data": {"tags": 5}, "list_ids": [MISSING_ID]},
           "start_at": "2001-01-01T00:00:00Z"},
          {"contact.channels_attributes[0].value", "contact.data.tags", "contact.list_ids", "start_at"}),
    Invalid("POST /flows/{id}/simulate_all", {"days": 0, "steps": [_WAIT], "start_at": "2001-01-01T00:00:00Z"},
          {"days", "steps[0].duration", "start_at"}),
    Invalid("POST /flows/{id}/replay", {"days": 0, "steps": [_WAIT], "until": "2001-01-01T00:00:00Z"},
          {"days", "steps[0].duration", "until"}),
    Invalid("POST /flows/{id}/activate", {"skip_overdue_seconds": -1}, {"skip_overdue_seconds", "no"}, "no=1"),
    Invalid("POST /flows/{id}/approve", {"updated_at": "yesterday"}, {"updated_at", "no"}, "no=1"),
    Invalid("POST /campaigns/{id}/approve", {"updated_at": "yesterday"}, {"updated_at", "no"}, "no=1"),
    Invalid("POST /flows/{id}/archive", {"take_out": 5}, {"take_out", "no"}, "no=1"),
    Invalid("POST /flows/{id}/reject", {"note": 5}, {"note", "no"}, "no=1"),
    Invalid("POST /flows/{id}/runs/move_on", {}, {"run_ids", "no"}, "no=1"),
    Invalid("POST /flows/{id}/runs/take_out", {"run_ids": [1], "step": 1}, {"step", "no"}, "no=1"),
    Invalid("PUT /brand", {"company_name": 5, "logo": "nothing", "brand_color": "red"},
          {"company_name", "logo", "brand_color"}),
    Invalid("POST /domains", {"domain": {"name": "no domain"}}, {"domain.name", "no"}, "no=1"),
    Invalid("PATCH /account", {"name": 5, "time_zone": "Nowhere", "email_from_email": "x"},
          {"name", "time_zone", "email_from_email"}),
    Invalid("POST /users", {"email": EMAIL, "role": "king", "password": "short"}, {"email", "role", "password"}),
    Invalid("POST /users", {"email": EMAIL, "role": "viewer", "password": "short"}, {"email", "password"}),
    Invalid("PATCH /users/{id}", {"name": 5, "disabled": True, "password": "short", "role": "viewer"},
          {"name", "disabled", "password", "role"}),
    Invalid("PATCH /users/{id}", {"disabled": True, "password": "short", "role": "viewer"},
          {"disabled", "password", "role"}),
    Invalid("POST /roles", {"name": "Owner", "scopes": ["admin"], "contact_data": "some"},
          {"name", "scopes", "contact_data"}),
    Invalid("POST /roles", {"name": "Owner", "scopes": ["admin"]}, {"name", "scopes"}),
    Invalid("PATCH /roles/{id}", {"name": " ", "scopes": ["admin"], "contact_data": 5},
          {"name", "scopes", "contact_data"}),
    Invalid("POST /invitations", {"email": EMAIL, "role": "king", "days": 0}, {"email", "role", "days"}),
    Invalid("PATCH /user", {"name": 5, "password": "short"}, {"name", "password", "current_password"}),
    Invalid("PATCH /user", {"name": 5, "password": "long enough", "current_password": "wrong"},
          {"name", "current_password"}),
    Invalid("PATCH /user/sessions/{id}", {"name": 5}, {"name", "no"}, "no=1"),
    Invalid("PATCH /user/passkeys/{id}", {"name": " "}, {"name", "no"}, "no=1"),
    Invalid("DELETE /user/passkeys/{id}", {}, {"current_password", "no"}, "no=1"),
    Invalid("POST /proposals", {"kind": "fly", "subject_id": 0, "changes": [], "note": 5},
          {"kind", "subject_id", "changes", "note", "no"}, "no=1"),
    Invalid("POST /proposals", {"kind": "change_segment", "subject_id": 1, "changes": {"filters": 5, "wings": 2}},
          {"changes.wings"}),
    Invalid("POST /proposals/{id}/approve", {"version": 5}, {"version", "no"}, "no=1"),
    Invalid("POST /proposals/{id}/return", {"note": 5}, {"note", "no"}, "no=1"),
    Invalid("POST /sign_in_providers",
          {"name": " ", "issuer": "http://127.0.0.1", "client_id": 5, "domains": ["x", "a.example"], "role": "owner"},
          {"name", "issuer", "client_id", "domains[0]", "role"}),
    Invalid("POST /sign_in_providers", {"trust_mfa": 5, "enabled": "no", "client_secret": 5},
          {"name", "issuer", "client_id", "trust_mfa", "enabled", "client_secret", "no"}, "no=1"),
    Invalid("PATCH /sign_in_providers/{id}", {"name": 5, "domains": ["no domain"], "role": "king"},
          {"name", "domains[0]", "role"}),
    Invalid("PATCH /sign_in", {"password": 5}, {"password", "no"}, "no=1"),
    Invalid("PATCH /sign_in", {"password": False}, {"password"}),
    Invalid("POST /api_keys", {"name": 5, "scope": "everything", "smtp_hourly_limit": -1},
          {"name", "scope", "smtp_hourly_limit"}),
    Invalid("POST /capture/{id}/simulate", {"action": "stop", "text": 5}, {"action", "text"}),
    Invalid("POST /capture/{id}/simulate", {"action": "click", "link": 99}, {"link", "no"}, "no=1"),
    Invalid("POST /events", {"event": "A b", "contact_id": MISSING_ID, "ip": "x"}, {"event", "contact_id", "ip"}),
    Invalid("POST /events", {"event": "a", "contact_id": MISSING_ID}, {"contact_id", "Idempotency-Key"},
          headers={"Idempotency-Key": "x" * 256}),
    Invalid("POST /messages",
            {"to": "ann@example.org", "subject": "x", "body": "x", "reply_to": "x",
             "attachments": [{"filename": "a.exe", "content": "eA=="}, {"filename": "a.txt", "content": "?"}]},
            {"reply_to", "attachments[0].filename", "attachments[1].content"}),
    Invalid("POST /messages/batch", {"messages": 5}, {"messages", "no"}, "no=1"),
    Invalid("POST /events/batch", {"events": 5}, {"events", "no"}, "no=1"),
    Invalid("POST /webhooks", {"url": 5, "events": ["A b"]}, {"url", "events[0]"}),
    Invalid("PATCH /webhooks/{id}", {"enabled": 5, "url": "http://127.0.0.1/x"}, {"enabled", "url"}),
    Invalid("POST /webhooks/{id}/test", {"event": "A b"}, {"event", "no"}, "no=1"),
    Invalid("POST /webhooks/{id}/replay_failed", {"since": "soon"}, {"since", "no"}, "no=1"),
)  # fmt: skip
# Uploads: path, text fields, file, and the paths of all errors
FILES: tuple[tuple[str, dict[str, str], bytes | None, set[str]], ...] = (
    ("/imports?no=1", {"resource": "x", "options": json.dumps({"map": {"none": "email"}, "list_ids": [MISSING_ID]})},
     b"email\na@example.org\n", {"no", "resource", "options.map.none", "options.list_ids"}),
    ("/imports", {"options": json.dumps({"map": {"email": "x"}, "list_ids": [MISSING_ID], "opt_in": 5})},
     b"email\na@example.org\n", {"options.map.email", "options.list_ids", "options.opt_in", "file"}),
    ("/imports?dry_run=x", {"options": json.dumps({"list_ids": [MISSING_ID]})}, b"",
     {"dry_run", "options.list_ids", "file"}),
    ("/imports", {"resource": "x", "options": "{"}, None, {"resource", "options", "file"}),
    ("/uploads?no=1", {"full_size": "x"}, b"no picture", {"no", "full_size", "file"}),
    ("/uploads", {"full_size": "x"}, None, {"full_size", "file"}),
)  # fmt: skip


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """Return an account with one object of every kind."""
    result = Tenant(server.client()).create_objects("alpha")
    result.object_ids |= {"users": 1, "user": 1, "sign_in_providers": 1}
    result.api.post("/contacts", {"email": "bela@example.org", "phone": TAKEN}).expect(201)
    return result


@pytest.fixture(scope="module")
def owner(server: Server, mine: Tenant) -> Client:
    """Return a client of the owner, signed in, for operations that need a user; the account has an own role."""
    token = server.client().post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    client = server.client(token)
    provider = {"name": "Alpha", "issuer": "https://idp.example", "client_id": "alpha"}
    assert client.post("/sign_in_providers", provider).expect(201)["id"] == 1
    mine.object_ids["roles"] = client.post("/roles", {"name": "Agency", "scopes": ["flows:read"]}).expect(201)["id"]
    return client


@pytest.mark.parametrize("wrong", WRONG, ids=lambda case: f"{case.operation} {','.join(sorted(case.error_paths))}")
def test_all_errors_of_a_body_are_reported(wrong: Invalid, mine: Tenant, owner: Client) -> None:
    """Every error is reported, and no valid field."""
    method, _, path = wrong.operation.partition(" ")
    noun = path.strip("/").partition("/")[0]
    of_persons = ("users", "user", "api_keys", "roles", "invitations", "sign_in", "sign_in_providers")
    is_persons = noun in of_persons or path.endswith(("/return", "}/approve"))
    path = path.replace("{id}", str(mine.object_ids.get(noun))).replace("{language}", "de") + (
        f"?{wrong.query}" if wrong.query else ""
    )
    response = (owner if is_persons else mine.api).send(method, path, wrong.body, wrong.headers)
    assert set(validation_errors(response)) == wrong.error_paths, response.text


@pytest.mark.parametrize(("path", "texts", "file", "error_paths"), FILES)
def test_all_errors_of_an_upload_are_reported(
    path: str, texts: dict[str, str], file: bytes | None, error_paths: set[str], mine: Tenant
) -> None:
    """Errors of the file, the text fields and the query are reported together."""
    body, kind = multipart_form(file, **texts)
    headers = {"Authorization": f"Bearer {mine.api.key}", "Content-Type": kind}
    response = mine.api.request("POST", f"/v1/my{path}", body, headers)
    assert set(validation_errors(response)) == error_paths, response.text


def test_errors_of_mirrors_are_reported_with_others(mine: Tenant) -> None:
    """That a mirror has no members of its own is reported together with other errors."""
    segment = mine.api.post("/segments", {"name": "Everybody", "filters": []}).expect(201)["id"]
    view = mine.api.post("/lists", {"name": "View", "segment_id": segment}).expect(201)["id"]
    response = mine.api.post(f"/lists/{view}/contacts/bulk?no=1", {"add": [True]})
    assert set(validation_errors(response)) == {"add[0]", "no", "base"}, response.text
    response = mine.api.post("/contacts", {"email": "ann@example.net", "list_ids": [MISSING_ID, view]})
    assert validation_errors(response)["list_ids"] == ["must exist", "is a view of a segment"], response.text


def test_every_operation_with_a_body_is_tested(mine: Tenant) -> None:
    """Every operation of the document that reads a body is in the lists above."""
    asked = {case.operation for case in WRONG} | {f"POST {path.partition('?')[0]}" for path, *_ in FILES}
    document = mine.api.contract().document
    reading = {
        f"{method.upper()} {path.removeprefix('/v1/my')}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1/my/") and "requestBody" in operation
    }
    # Two texts without rules of their own
    assert reading - asked == {"POST /login"}
    assert asked <= reading
