"""Mass assignment: read-only keys in a request change nothing (T10).

The tests read the OpenAPI document: they send hostile values for every key that an operation returns and does not read.
A writing operation without a case here fails them.
"""

from typing import Any

from tests.kit.client import Client
from tests.kit.openapi_document import WRITES, OpenApiDocument, Operation
from tests.kit.tenants import Tenant

FILTERS = [{"name": "contact_first_name", "predicate": "eq", "value": "x"}]
# A valid body for each operation that reads JSON
BODIES: dict[str, dict[str, Any]] = {
    "POST /messages": {"to": "hostile@example.org", "subject": "s", "body": "<p>x</p>"},
    "POST /campaigns": {"name": "hostile"},
    "PATCH /campaigns/{id}": {"name": "renamed"},
    "POST /campaigns/{id}/send": {"confirm_send_to_all": False},
    "POST /contacts": {"email": "hostile2@example.org"},
    "PATCH /contacts/{id}": {"last_name": "renamed"},
    "POST /contacts/{id}/merge": {},
    "POST /incoming/{id}/seen": {},
    "POST /suppressions": {"address": "hostile3@example.org"},
    "DELETE /suppressions/{id}": {"reason": "asked"},
    "POST /lists": {"name": "hostile"},
    "PATCH /lists/{id}": {"name": "renamed"},
    "POST /lists/{id}/contacts/bulk": {"add": []},
    "POST /segments": {"name": "hostile", "filters": FILTERS},
    "POST /segments/count": {"filters": FILTERS},
    "PATCH /segments/{id}": {"name": "renamed", "filters": FILTERS},
    "POST /templates": {"name": "hostile"},
    "PATCH /templates/{id}": {"name": "renamed"},
    "PUT /templates/{id}/translations/{language}": {"texts": {"subject": "Umbenannt"}},
    "POST /capture/{id}/simulate": {"action": "reply"},
    "POST /templates/preview": {"document": {"sections": []}},
    "POST /templates/{id}/send_test": {"email": "hostile4@example.org"},
    "POST /domains": {"domain": {"name": "hostile.example"}},
    "POST /forms": {"name": "hostile"},
    "PATCH /forms/{id}": {"name": "renamed"},
    "POST /flows": {"name": "hostile"},
    "PATCH /flows/{id}": {"name": "renamed"},
    "POST /flows/{id}/activate": {},
    "POST /flows/{id}/approve": {},
    "POST /campaigns/{id}/approve": {},
    "POST /flows/{id}/simulate": {},
    "POST /flows/{id}/simulate_all": {},
    "POST /flows/{id}/replay": {},
    "POST /flows/{id}/archive": {},
    "POST /flows/{id}/reject": {},
    "POST /campaigns/{id}/duplicate": {},
    "POST /campaigns/{id}/reject": {},
    "POST /campaigns/{id}/experiment/winner": {"variant": 1},
    "POST /proposals": {"kind": "change_template", "subject_id": 1, "changes": {"subject": "renamed"}},
    "POST /webhooks": {"url": "https://hostile.example/", "enabled": False},
    "PATCH /webhooks/{id}": {"events": ["renamed"]},
    "POST /webhooks/{id}/test": {},
    "POST /webhooks/{id}/replay_failed": {},
    "POST /flows/{id}/enroll": {"contact_ids": []},
    "POST /flows/{id}/winner": {"step": 4, "branch": None},
    "POST /flows/{id}/runs/move_on": {"run_ids": []},
    "POST /flows/{id}/runs/take_out": {"run_ids": []},
    "PUT /brand": {"company_name": "renamed"},
    "PATCH /account": {"name": "renamed"},
    "POST /events": {"event": "hostile_event", "contact_email": "alpha@example.org"},
    "POST /messages/batch": {"messages": [{"to": "hostile@example.org", "subject": "s", "body": "<p>x</p>"}]},
    "POST /events/batch": {"events": [{"event": "hostile_event", "contact_email": "alpha@example.org"}]},
}
# Keys of the threat table that no response has, or has under another name
ALWAYS = {
    "account_id": 2, "id": 424242, "uuid": "00000000-0000-7000-8000-000000000000", "approval_state": "approved",
    "sent_count": 424242, "verification_status": "verified", "verified_at": "2001-02-03T04:05:06Z",
    "verified": True, "editable": False, "sendable_email": False,
    "provider": "hostile", "opt_in_at": "2001-02-03T04:05:06Z", "generated": True,
    "created_at": "2001-02-03T04:05:06Z", "updated_by": "hostile", "is_admin": True, "role": "owner", "channel": "sms",
}  # fmt: skip
# Keys of responses that are rejected, because ignoring them would change what is sent; and the state that an approval
# gives, which is one of the hostile values
REFUSED = {
    "POST /messages": {"recipients"}, "POST /campaigns/{id}/approve": {"approval_state"},
    "POST /flows/{id}/approve": {"approval_state"},
}  # fmt: skip
# Objects that have one name in requests and another in responses
NESTED = {"trigger_attributes": "trigger", "template_attributes": "template", "channels_attributes": "channels"}
# Resources with a single object
SINGLE = ("brand", "account")


def hostile_value(name: str, schema: dict[str, Any]) -> Any:
    """Return a value of the right type that no object here has."""
    if name in ALWAYS:
        return ALWAYS[name]
    if "enum" in schema:
        return sorted(schema["enum"])[0]
    values = {"integer": 424242, "number": 424242.5, "boolean": True, "array": ["hostile"], "object": {"hostile": 1}}
    return values.get(schema.get("type", ""), "2001-02-03T04:05:06Z" if name.endswith("_at") else "hostile")


def hostile_keys(walk: OpenApiDocument, operation: Operation) -> dict[str, Any]:
    """Return a hostile value for each key that an operation returns and does not read."""
    reads, responses = walk.request_schema(operation), walk.properties(walk.response_schema(operation))
    assert reads is not None
    read = walk.properties(reads)
    keys = {name: hostile_value(name, schema) for name, schema in responses.items() if name not in read}
    keys |= {name: value for name, value in ALWAYS.items() if name not in read}
    return {name: value for name, value in keys.items() if name not in REFUSED.get(str(operation), ())}


def inner_keys(walk: OpenApiDocument, operation: Operation) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, hostile keys) for each object that an operation reads within its body."""
    read, responses = (
        walk.properties(walk.request_schema(operation) or {}),
        walk.properties(walk.response_schema(operation)),
    )
    results = []
    for inner, outer in NESTED.items():
        if inner in read and outer in responses:
            entry = [
                walk.resolve(each[name].get("items", each[name])) for each, name in ((read, inner), (responses, outer))
            ]
            taken, shown = (walk.properties(each) for each in entry)
            keys = {name: hostile_value(name, schema) for name, schema in shown.items() if name not in taken}
            results.append((inner, keys))
    return results


def taken_over(before: Any, after: Any, ours: dict[str, Any]) -> list[str]:
    """Return the hostile keys whose values are in a response."""
    return [name for name, value in ours.items() if name in after and after[name] == value != before.get(name)]


def test_read_only_keys_change_nothing(tenants: tuple[Tenant, Tenant]) -> None:
    """Each hostile key is ignored and listed in the header, or rejected, and its value is never stored."""
    ours, theirs = tenants
    walk, walked = OpenApiDocument(ours.api), 0
    elsewhere = theirs.api.get("/account").expect(200)
    for operation in walk.operations():
        if operation.method not in WRITES or walk.request_schema(operation) is None or operation.method == "DELETE":
            continue
        keys = hostile_keys(walk, operation)
        number = ours.object_ids.get(operation.noun)
        path = ours.path(operation) if operation.has_id else operation.path
        before = ours.api.get(f"/{operation.noun}/{number}").expect(200) if operation.has_id else {}
        if operation.method in ("PUT", "PATCH") and not operation.has_id:
            before = ours.api.get(f"/{operation.noun}").expect(200)
        body = {**keys, **BODIES[str(operation)]}
        response = ours.api.send(operation.method, path, body)
        if "id}/" in operation.path and response.status == 422:
            continue
        assert response.status in (200, 201), (operation, response.text)
        ignored = set(response.headers["X-Ignored-Fields"].split(", "))
        assert set(keys) <= ignored | set(BODIES[str(operation)]), operation
        shown = response.json if isinstance(response.json, dict) else {}
        assert taken_over(before, shown, keys) == [], (operation, shown)
        if "id" in shown and "id}/" not in operation.path:
            stored = ours.api.get(
                f"/{operation.noun}/{shown['id']}" if operation.noun not in SINGLE else f"/{operation.noun}"
            )
            assert stored.status == 404 or taken_over(before, stored.json, keys) == [], (operation, stored.text)
        walked += 1
    assert walked >= 15
    assert theirs.api.get("/account").expect(200)["counts"] == elsewhere["counts"]
    assert theirs.api.get("/contacts").json == []


def test_read_only_keys_of_nested_objects_change_nothing(tenants: tuple[Tenant, Tenant]) -> None:
    """Hostile keys in a trigger, template or channel are rejected or ignored."""
    ours, _ = tenants
    walk, walked = OpenApiDocument(ours.api), 0
    for operation in walk.operations():
        for inner, keys in inner_keys(walk, operation) if operation.method in WRITES else ():
            entry = {**keys, **({"value": f"inner{walked}@example.org"} if inner.startswith("channels") else {})}
            body = {**BODIES[str(operation)], inner: [entry] if inner.startswith("channels") else entry}
            path = ours.path(operation) if operation.has_id else operation.path
            before = ours.api.get(f"/{operation.noun}/{ours.object_ids[operation.noun]}").expect(200)
            response = ours.api.send(operation.method, path, body)
            if response.status == 422:
                assert any(name.startswith(inner) for name in response.json["validation_errors"]), (
                    operation,
                    response.text,
                )
                after = ours.api.get(f"/{operation.noun}/{ours.object_ids[operation.noun]}").expect(200)
                assert after == before, (operation, inner)
            else:
                new = response.json[NESTED[inner]]
                new = next(each for each in new if each["value"] == entry["value"]) if isinstance(new, list) else new
                assert taken_over({}, new, keys) == [], (operation, inner, new)
            walked += 1
    assert walked >= 6


def test_every_writing_operation_has_a_case(api: Client) -> None:
    """`BODIES` has exactly the operations that read JSON."""
    walk = OpenApiDocument(api)
    assert set(BODIES) == {
        str(operation) for operation in walk.operations() if walk.request_schema(operation) is not None
    }


def test_internal_states_cannot_be_set(tenants: tuple[Tenant, Tenant]) -> None:
    """Status, verification, consent times and counters cannot be set by a request."""
    ours, _ = tenants
    campaign = ours.api.post("/campaigns", {
        "name": "still", "status": "completed", "phase": "sending", "approval_state": "approved", "sent_count": 9,
    }).expect(201)  # fmt: skip
    assert (campaign["status"], campaign["phase"], campaign["approval_state"], campaign["sent_count"]) == (
        "draft", "draft", "pending_review", 0,
    )  # fmt: skip
    assert campaign["scheduled_at"] is None and campaign["audience_count"] == 0
    entry = {"value": "still@example.org", "verified": True, "sent_count": 9, "opt_in_at": "2001-02-03T04:05:06Z",
             "opted_out_by": "recipient", "suppression_reason": "complaint", "contact_id": 1}  # fmt: skip
    contact = ours.api.post("/contacts", {"account_id": 2, "verification_status": "verified",
                                          "channels_attributes": [entry]}).expect(201)  # fmt: skip
    (channel,) = contact["channels"]
    assert contact["verification_status"] == "unverified" and channel["contact_id"] == contact["id"]
    assert (channel["verified"], channel["sent_count"], channel["suppression_reason"], channel["opted_out_by"]) == (
        False, 0, None, None,
    )  # fmt: skip
    assert channel["opt_in_at"] is None or channel["opt_in_at"] > "2020"
    message = {"to": "still@example.org", "subject": "s", "body": "<p>x</p>", "status": "delivered", "test": True,
               "source_type": "campaign", "campaign_id": campaign["id"]}  # fmt: skip
    created = ours.api.post("/messages", message).expect(201)
    assert (created["source_type"], created["campaign_id"], created["test"]) == ("transactional", None, False)
    assert created["status"] in ("queued", "sending", "sent")
