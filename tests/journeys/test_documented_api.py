"""The API used as its documentation describes it, by a client that knows nothing else."""

import time
from typing import Any
from uuid import uuid4

import pytest

from tests.kit.resource_fields import Client, check_fields
from tests.kit.server import EMAIL, PASSWORD, Server


@pytest.fixture
def api(server: Server) -> Client:
    """A client with the account's key."""
    return Client(server)


def unused_address() -> str:
    """Return an email address that was not used before."""
    return f"reader-{uuid4().hex[:12]}@example.org"


def wait_for_values(api: Client, path: str, **expected: Any) -> Any:
    """Return the resource once it has these values."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        resource = api.get(path)
        if expected.items() <= resource.items():
            return resource
        time.sleep(0.02)
    pytest.fail(f"{path} never showed {expected}: {resource}")


def test_contacts(api: Client) -> None:
    """A contact is created with its channels, updated by its address, found by search and changed by PATCH."""
    email = unused_address()
    fields = {"first_name": "Blanche", "email": email, "phone": "+14155550123", "source": "shop", "data": {"tier": 1}}
    contact = check_fields(api.request(201, "POST", "/contacts", fields), "contact")
    assert [check_fields(channel, "channel")["contact_id"] for channel in contact["channels"]] == [contact["id"]] * 2
    assert (contact["subscribed_email"], contact["subscribed_phone"], contact["country_code"]) == (True, True, "US")
    assert (contact["verification_status"], contact["enrichment_status"]) == ("unverified", "not_enriched")
    updated = api.request(200, "POST", "/contacts", {"email": email.upper(), "data": {"size": "m"}})
    assert (updated["id"], updated["data"]) == (contact["id"], {"tier": 1, "size": "m"})
    matches = api.get("/contacts/search", q=email)
    assert [check_fields(contact, "contact")["uuid"] for contact in matches] == [contact["uuid"]]
    phone = next(channel for channel in contact["channels"] if channel["value"] == "+14155550123")
    change = {
        "last_name": "Noir",
        "first_name": None,
        "data": {},
        "channels_attributes": [{"id": phone["id"], "_destroy": True}],
    }
    changed = check_fields(api.request(200, "PATCH", f"/contacts/{contact['id']}", change), "contact")
    assert (changed["first_name"], changed["last_name"], changed["data"]) == (None, "Noir", {})
    assert [channel["value"] for channel in changed["channels"]] == [email]


def test_lists_and_segments(api: Client) -> None:
    """A list takes contacts by id or mirrors a segment, whose filters are returned as they were sent."""
    tier = uuid4().hex
    contact = api.request(201, "POST", "/contacts", {"email": unused_address(), "data": {"tier": tier}})
    created = check_fields(api.request(201, "POST", "/lists", {"name": f"Readers {tier}"}), "list")
    assert (created["contacts_count"], created["segment_id"], created["stale"], created["last_populated_at"]) == (
        0,
        None,
        False,
        None,
    )
    updated = check_fields(
        api.request(200, "PATCH", f"/lists/{created['id']}", {"contact_ids": [contact["id"]]}), "list"
    )
    assert updated["contacts_count"] == 1
    assert [member["list_ids"] for member in api.get("/contacts", list_id=created["id"])] == [[created["id"]]]
    filters = [{"name": "contact_data.tier", "predicate": "eq", "value": tier}]
    segment = check_fields(
        api.request(201, "POST", "/segments", {"name": f"Tier {tier}", "filters": filters}), "segment"
    )
    assert segment["filters"] == filters
    assert [match["id"] for match in api.get("/contacts", segment_id=segment["id"])] == [contact["id"]]
    assert (
        check_fields(api.request(200, "PATCH", f"/lists/{created['id']}", {"segment_id": segment["id"]}), "list")[
            "segment_id"
        ]
        == segment["id"]
    )
    assert created["id"] in [check_fields(row, "list")["id"] for row in api.get("/lists")]
    assert segment["id"] in [check_fields(row, "segment")["id"] for row in api.get("/segments")]


def test_templates(api: Client) -> None:
    """A design is stored, rendered by the preview, and sent as a test with a result for each address."""
    created = check_fields(api.request(201, "POST", "/templates", {}), "template")
    assert (created["name"], created["design"]) == ("Untitled template", {"sections": [], "theme": {}})
    section = {
        "props": {"text": "Hello {{ contact.first_name }}", "level": 1},
        "styles": {"background_color": "#ffffff", "padding": "8px"},
    }
    design = {"sections": [section], "theme": {"brand_color": "#102030"}}
    change = {"subject": "A try", "from_email": "us@example.org", "design": design}
    changed = check_fields(api.request(200, "PATCH", f"/templates/{created['id']}", change), "template")
    assert section.items() <= changed["design"]["sections"][0].items() and changed["design"]["theme"] == design["theme"]
    assert api.get(f"/templates/{created['id']}") == changed
    assert "contact.first_name" in changed["variables"]
    assert "<html" in api.request(200, "POST", "/templates/preview", {"document": design})["html"]
    assert "document" in api.expect_error(422, "POST", "/templates/preview", {})["validation_errors"]
    tester = unused_address()
    result = api.request(200, "POST", f"/templates/{created['id']}/send_test", {"email": tester})
    assert [(row["email"], row["success"], row["error"]) for row in result["results"]] == [(tester, True, None)]
    message = check_fields(api.get(f"/messages/{result['results'][0]['message_id']}"), "message")
    assert (message["subject"], message["test"], message["campaign_id"]) == ("[Test] A try", True, None)


def test_brand_domains_and_account(api: Client) -> None:
    """A brand is complete with colour and name, a domain has DNS records, and the account shows its status."""
    fields = {
        "brand_color": "#1A2b3c",
        "company_name": "Blind & Co",
        "links": [{"url": "https://example.org", "icon": "web", "title": "Us"}],
    }
    brand = check_fields(api.request(200, "PUT", "/brand", fields), "brand")
    assert brand["complete"] is True and fields.items() <= brand.items()
    assert api.expect_error(422, "PUT", "/brand", {"text_color": "#abc"})["validation_errors"] == {
        "text_color": ["is invalid"]
    }
    name = f"{uuid4().hex[:12]}.example.org"
    domain = check_fields(api.request(201, "POST", "/domains", {"domain": {"name": name.upper()}}), "domain")
    assert (domain["name"], domain["status"], domain["provider"], domain["verified_at"]) == (
        name,
        "pending",
        "smtp",
        None,
    )
    record_types = [check_fields(record, "record")["record_type"] for record in domain["dns_records"]]
    assert record_types == ["TXT", "TXT", "MX", "TXT", "TXT", "CNAME"]
    assert "domain.name" in api.expect_error(422, "POST", "/domains", {"domain": {"name": name}})["validation_errors"]
    account = check_fields(api.get("/account"), "account")
    assert (account["id"], account["using_sandbox"], account["brand"]["id"]) == (brand["account_id"], True, brand["id"])


def test_campaigns(api: Client) -> None:
    """A draft is sent with its audience and content in one request, completes, and has messages and events."""
    contact = api.request(201, "POST", "/contacts", {"email": unused_address()})
    contact_list = api.request(201, "POST", "/lists", {"name": uuid4().hex, "contact_ids": [contact["id"]]})
    created = check_fields(api.request(201, "POST", "/campaigns", {"name": "Spring"}), "campaign")
    assert (created["status"], created["approval_state"], created["channel"]) == ("draft", "pending_review", "email")
    assert check_fields(created["trigger"], "trigger")["event"] == "manual"
    assert created["templates"] == [check_fields(created["template"], "template")]
    path = f"/campaigns/{created['id']}"
    refusal = api.expect_error(422, "POST", f"{path}/send")
    assert refusal["reason"] == "audience_required"
    assert {blocker["code"] for blocker in refusal["blockers"]} == {"audience_required", "content_required"}
    content = {"subject": "Spring", "body": "<p>Hello</p>", "from_email": "us@example.org"}
    request = {"trigger_attributes": {"contact_list_id": contact_list["id"]}, "template_attributes": content}
    sent = check_fields(api.request(200, "POST", f"{path}/send", request), "campaign")
    assert (sent["status"], sent["approval_state"]) == ("active", "approved")
    assert sent["trigger"]["contact_list_id"] == contact_list["id"]
    assert content.items() <= sent["template"].items()
    completed = check_fields(wait_for_values(api, path, status="completed"), "campaign")
    assert (completed["sent_count"], completed["stats"]["audience"], completed["stats"]["pending"]) == (1, 1, 0)
    (message,) = [check_fields(row, "message") for row in api.get("/messages", campaign_id=created["id"])]
    assert (message["to"], message["contact_id"]) == (contact["channels"][0]["value"], contact["id"])
    (event,) = [check_fields(row, "event") for row in api.get("/events", event="email_sent", contact_id=contact["id"])]
    assert (event["resource_uid"], event["generated"]) == (f"message:{message['id']}", True)
    assert api.expect_error(422, "POST", f"{path}/send")["reason"] == "campaign_locked"
    assert check_fields(api.request(200, "DELETE", path), "campaign")["id"] == created["id"]
    api.expect_error(404, "GET", path)


def test_flows(api: Client) -> None:
    """Steps are returned in the response form, an event starts a run, and DELETE returns the flow."""
    name = f"bought_{uuid4().hex[:8]}"
    branch = {
        "filters": [{"name": "event.total", "predicate": "gt", "value": 10}],
        "yes": [{"subject": "Thank you", "body": "<p>Thanks</p>", "from_email": "us@example.org"}],
        "no": [{"duration": 3600}, {"event_name": "cart_small", "forward_event_data": True}],
    }
    created = check_fields(
        api.request(201, "POST", "/flows", {"name": "Buyers", "trigger": {"event": name}, "steps": [branch]}), "flow"
    )
    assert (created["status"], created["trigger"]["event"]) == ("draft", name)
    assert {"event", "segment_id", "contact_list_id", "data"} <= created["trigger"].keys()
    (split,) = [check_fields(step, "step") for step in created["steps"]]
    kinds = [check_fields(step, "step")["type"] for step in [split, *split["yes"], *split["no"]]]
    assert kinds == ["split", "email", "wait", "emit_event"]
    assert [template["action_id"] for template in created["templates"]] == [split["yes"][0]["id"]]
    path = f"/flows/{created['id']}"
    assert check_fields(api.request(200, "POST", f"{path}/activate"), "flow")["status"] == "active"
    email = unused_address()
    api.request(201, "POST", "/contacts", {"email": email})
    check_fields(
        api.request(201, "POST", "/events", {"event": name, "contact_email": email, "data": {"total": 12}}), "event"
    )
    wait_for_values(api, path, sent_count=1)
    assert [check_fields(row, "message")["to"] for row in api.get("/messages", flow_id=created["id"])] == [email]
    assert created["id"] in [check_fields(row, "flow")["id"] for row in api.get("/flows")]
    assert check_fields(api.request(200, "DELETE", path), "flow")["id"] == created["id"]
    api.expect_error(404, "DELETE", path)


def test_pagination_of_events(api: Client) -> None:
    """Filters and pages select events, newest first; headers have the total and the neighbouring pages."""
    contact = api.request(201, "POST", "/contacts", {"email": unused_address()})["id"]
    event = {"event": "order_paid", "contact_id": contact, "amount": 9.5, "resource_name": "order"}
    ids = [api.request(201, "POST", "/events", event | {"resource_uid": f"o{n}"})["id"] for n in range(3)]
    query = f"/my/events?event=order_paid&contact_id={contact}&resource_name=order&test=false&created_after=2020-01-01"
    first, last = (api.call("GET", f"{query}&{page}") for page in ("limit=2", "page=2&per_page=2"))
    assert [row["id"] for row in first.body + last.body] == ids[::-1]
    assert [check_fields(row, "event")["amount"] for row in first.body] == [9.5, 9.5]
    names = [f"X-{name}" for name in ("Total-Count", "Total-Pages", "Page-Number", "Next-Page", "Prev-Page")]
    assert [first.headers[name] for name in names] == ["3", "2", "1", "2", None]
    assert [last.headers[name] for name in names] == ["3", "2", "2", None, "1"]
    assert [row["id"] for row in api.get("/events", contact_id=contact, resource_uid="o1")] == [ids[1]]
    assert api.get("/events", page=9, limit=1000) == []
    assert {"page", "limit"} <= api.expect_error(422, "GET", "/events?page=0&limit=x")["validation_errors"].keys()
    assert "evnt" in api.expect_error(422, "GET", "/events?evnt=order_paid")["validation_errors"]


def test_errors(api: Client, server: Server) -> None:
    """422 names each field, unknown paths are 404, bad credentials 401; unknown fields are ignored and named."""
    rejection = api.expect_error(422, "POST", "/contacts", {"email": "nobody", "phone": "12"})
    assert rejection["code"] == "validation_error"
    assert rejection["validation_errors"].keys() == {"email", "phone"}
    assert api.expect_error(422, "POST", "/segments", {})["validation_errors"] == {"name": ["can't be blank"]}
    for path in ("/campaigns/999999999", "/templates/abc", "/nothing"):
        assert api.expect_error(404, "GET", path)["code"] == "not_found"
    assert api.expect_error(405, "DELETE", "/account")["code"] == "method_not_allowed"
    for credential in ("", "camp_live_unknown", "a.b.c"):
        response = Client(server, credential).call("GET", "/my/account")
        assert (response.status, check_fields(response.body, "error")["code"]) == (401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == "Bearer"
    response = api.call("POST", "/my/segments", {"name": uuid4().hex, "colour": "red"})
    assert (response.status, response.headers["X-Ignored-Fields"]) == (201, "colour")


def test_idempotency(api: Client) -> None:
    """The same key and payload return the first message with 200; another payload under the key is a conflict."""
    key = uuid4().hex
    message = {
        "channel": "email",
        "to": unused_address(),
        "subject": "Receipt",
        "body": "<p>Paid</p>",
        "from_email": "us@example.org",
    }
    first, repeated = (api.call("POST", "/my/messages", message, Idempotency_Key=key) for _ in range(2))
    assert (first.status, check_fields(first.body, "message")["status"], first.body["contact_id"]) == (
        201,
        "queued",
        None,
    )
    assert (repeated.status, repeated.body["id"], repeated.headers["Idempotent-Replayed"]) == (
        200,
        first.body["id"],
        "true",
    )
    conflict = api.call("POST", "/my/messages", message | {"subject": "Other"}, Idempotency_Key=key)
    assert (conflict.status, check_fields(conflict.body, "error")["code"]) == (409, "idempotency_conflict")
    assert [row["id"] for row in api.get("/messages", to=message["to"])] == [first.body["id"]]


def test_login_and_logout(server: Server) -> None:
    """Email and password give a JWT that works like a key until logout; a wrong password is a 401."""
    visitor = Client(server, "")
    response = visitor.call("POST", "/login", {"email": EMAIL, "password": PASSWORD})
    assert response.status == 200
    assert response.headers["Authorization"] == f"Bearer {response.body['token']}"
    assert (response.body["user"]["email"], response.body["user"]["role"]) == (EMAIL, "owner")
    signed_in = Client(server, response.body["token"])
    check_fields(signed_in.get("/account"), "account")
    assert signed_in.call("DELETE", "/logout").status == 204
    signed_in.expect_error(401, "GET", "/account")
    wrong = visitor.call("POST", "/my/login", {"user": {"email": EMAIL, "password": "not this one"}})
    assert (wrong.status, check_fields(wrong.body, "error")["code"]) == (401, "invalid_credentials")
