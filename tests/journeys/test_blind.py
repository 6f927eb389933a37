"""The interface used as its pages describe it, by a client that knows nothing else."""

import time
from typing import Any
from uuid import uuid4

import pytest

from tests.kit.pages import Client, fits
from tests.kit.server import EMAIL, PASSWORD, Server


@pytest.fixture
def api(server: Server) -> Client:
    """A client with the account's key."""
    return Client(server)


def address() -> str:
    """An e-mail address nobody has used before."""
    return f"reader-{uuid4().hex[:12]}@example.org"


def until(api: Client, path: str, **expected: Any) -> Any:
    """The resource once it shows these values."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = api.get(path)
        if expected.items() <= found.items():
            return found
        time.sleep(0.02)
    pytest.fail(f"{path} never showed {expected}: {found}")


def test_a_contact_is_created_found_and_changed(api: Client) -> None:
    """A contact and its channels have every field; a known address updates; search finds; PATCH changes."""
    email = address()
    fields = {"first_name": "Blanche", "email": email, "phone": "+14155550123", "source": "shop", "data": {"tier": 1}}
    made = fits(api.ask(201, "POST", "/contacts", fields), "contact")
    assert [fits(channel, "channel")["contact_id"] for channel in made["channels"]] == [made["id"]] * 2
    assert (made["subscribed_email"], made["subscribed_phone"], made["country_code"]) == (True, True, "US")
    assert (made["verification_status"], made["enrichment_status"]) == ("unverified", "not_enriched")
    again = api.ask(200, "POST", "/contacts", {"email": email.upper(), "data": {"size": "m"}})
    assert (again["id"], again["data"]) == (made["id"], {"tier": 1, "size": "m"})
    found = api.get("/contacts/search", q=email)
    assert [fits(contact, "contact")["uuid"] for contact in found] == [made["uuid"]]
    phone = next(channel for channel in made["channels"] if channel["value"] == "+14155550123")
    change = {
        "last_name": "Noir",
        "first_name": None,
        "data": {},
        "channels_attributes": [{"id": phone["id"], "_destroy": True}],
    }
    changed = fits(api.ask(200, "PATCH", f"/contacts/{made['id']}", change), "contact")
    assert (changed["first_name"], changed["last_name"], changed["data"]) == (None, "Noir", {})
    assert [channel["value"] for channel in changed["channels"]] == [email]


def test_a_list_follows_its_contacts_or_a_segment(api: Client) -> None:
    """A list takes contacts by id or becomes the view of a segment, whose filters come back as they were sent."""
    tier = uuid4().hex
    contact = api.ask(201, "POST", "/contacts", {"email": address(), "data": {"tier": tier}})
    made = fits(api.ask(201, "POST", "/lists", {"name": f"Readers {tier}"}), "list")
    assert (made["contacts_count"], made["segment_id"], made["stale"], made["last_populated_at"]) == (
        0,
        None,
        False,
        None,
    )
    filled = fits(api.ask(200, "PATCH", f"/lists/{made['id']}", {"contact_ids": [contact["id"]]}), "list")
    assert filled["contacts_count"] == 1
    assert [member["list_ids"] for member in api.get("/contacts", list_id=made["id"])] == [[made["id"]]]
    filters = [{"name": "contact_data.tier", "predicate": "eq", "value": tier}]
    segment = fits(api.ask(201, "POST", "/segments", {"name": f"Tier {tier}", "filters": filters}), "segment")
    assert segment["filters"] == filters
    assert [found["id"] for found in api.get("/contacts", segment_id=segment["id"])] == [contact["id"]]
    assert (
        fits(api.ask(200, "PATCH", f"/lists/{made['id']}", {"segment_id": segment["id"]}), "list")["segment_id"]
        == segment["id"]
    )
    assert made["id"] in [fits(row, "list")["id"] for row in api.get("/lists")]
    assert segment["id"] in [fits(row, "segment")["id"] for row in api.get("/segments")]


def test_a_template_is_edited_rendered_and_tried(api: Client) -> None:
    """A design is kept as sent, rendered to HTML by preview, and sent to a tester with the answer of each address."""
    made = fits(api.ask(201, "POST", "/templates", {}), "template")
    assert (made["name"], made["design"]) == ("Untitled template", {"sections": [], "theme": {}})
    section = {
        "props": {"text": "Hello {{ contact.first_name }}", "level": 1},
        "styles": {"background_color": "#ffffff", "padding": "8px"},
    }
    design = {"sections": [section], "theme": {"brand_color": "#102030"}}
    change = {"subject": "A try", "from_email": "us@example.org", "design": design}
    changed = fits(api.ask(200, "PATCH", f"/templates/{made['id']}", change), "template")
    assert section.items() <= changed["design"]["sections"][0].items() and changed["design"]["theme"] == design["theme"]
    assert api.get(f"/templates/{made['id']}") == changed
    assert "contact.first_name" in changed["variables"]
    assert "<html" in api.ask(200, "POST", "/templates/preview", {"document": design})["html"]
    assert "document" in api.refused(422, "POST", "/templates/preview", {})["validation_errors"]
    tester = address()
    tried = api.ask(200, "POST", f"/templates/{made['id']}/send_test", {"email": tester})
    assert [(row["email"], row["success"], row["error"]) for row in tried["results"]] == [(tester, True, None)]
    message = fits(api.get(f"/messages/{tried['results'][0]['message_id']}"), "message")
    assert (message["subject"], message["test"], message["campaign_id"]) == ("[Test] A try", True, None)


def test_brand_domain_and_account_say_who_sends(api: Client) -> None:
    """The brand is complete with a colour and a name, a domain brings its DNS records, the account shows its status."""
    colours = {
        "brand_color": "#1A2b3c",
        "company_name": "Blind & Co",
        "links": [{"url": "https://example.org", "icon": "web", "title": "Us"}],
    }
    brand = fits(api.ask(200, "PUT", "/brand", colours), "brand")
    assert brand["complete"] is True and colours.items() <= brand.items()
    assert api.refused(422, "PUT", "/brand", {"text_color": "#abc"})["validation_errors"] == {
        "text_color": ["is invalid"]
    }
    name = f"{uuid4().hex[:12]}.example.org"
    domain = fits(api.ask(201, "POST", "/domains", {"domain": {"name": name.upper()}}), "domain")
    assert (domain["name"], domain["status"], domain["provider"], domain["verified_at"]) == (
        name,
        "pending",
        "smtp",
        None,
    )
    kinds = [fits(record, "record")["record_type"] for record in domain["dns_records"]]
    assert kinds == ["TXT", "TXT", "MX", "TXT", "TXT", "CNAME"]
    assert "domain.name" in api.refused(422, "POST", "/domains", {"domain": {"name": name}})["validation_errors"]
    account = fits(api.get("/account"), "account")
    assert (account["id"], account["using_sandbox"], account["brand"]["id"]) == (brand["account_id"], True, brand["id"])


def test_a_campaign_goes_out_and_tells_what_became_of_it(api: Client) -> None:
    """A draft is sent with its audience and content in one request, completes, and shows in messages and events."""
    contact = api.ask(201, "POST", "/contacts", {"email": address()})
    readers = api.ask(201, "POST", "/lists", {"name": uuid4().hex, "contact_ids": [contact["id"]]})
    made = fits(api.ask(201, "POST", "/campaigns", {"name": "Spring"}), "campaign")
    assert (made["status"], made["approval_state"], made["channel"]) == ("draft", "pending_review", "email")
    assert fits(made["trigger"], "trigger")["event"] == "manual"
    assert made["templates"] == [fits(made["template"], "template")]
    path = f"/campaigns/{made['id']}"
    refusal = api.refused(422, "POST", f"{path}/send")
    assert refusal["reason"] == "audience_required"
    assert {blocker["code"] for blocker in refusal["blockers"]} == {"audience_required", "content_required"}
    content = {"subject": "Spring", "body": "<p>Hello</p>", "from_email": "us@example.org"}
    order = {"trigger_attributes": {"contact_list_id": readers["id"]}, "template_attributes": content}
    sent = fits(api.ask(200, "POST", f"{path}/send", order), "campaign")
    assert (sent["status"], sent["approval_state"]) == ("active", "approved")
    assert sent["trigger"]["contact_list_id"] == readers["id"]
    assert content.items() <= sent["template"].items()
    done = fits(until(api, path, status="completed"), "campaign")
    assert (done["sent_count"], done["stats"]["audience"], done["stats"]["pending"]) == (1, 1, 0)
    (message,) = [fits(row, "message") for row in api.get("/messages", campaign_id=made["id"])]
    assert (message["to"], message["contact_id"]) == (contact["channels"][0]["value"], contact["id"])
    (event,) = [fits(row, "event") for row in api.get("/events", event="email_sent", contact_id=contact["id"])]
    assert (event["resource_uid"], event["generated"]) == (f"message:{message['id']}", True)
    assert api.refused(422, "POST", f"{path}/send")["reason"] == "campaign_locked"
    assert fits(api.ask(200, "DELETE", path), "campaign")["id"] == made["id"]
    api.refused(404, "GET", path)


def test_a_flow_is_made_started_and_deleted(api: Client) -> None:
    """Steps sent in the request form come back in the response form; an event enters the contact; DELETE answers it."""
    name = f"bought_{uuid4().hex[:8]}"
    branch = {
        "filters": [{"name": "event.total", "predicate": "gt", "value": 10}],
        "yes": [{"subject": "Thank you", "body": "<p>Thanks</p>", "from_email": "us@example.org"}],
        "no": [{"duration": 3600}, {"event_name": "cart_small", "forward_event_data": True}],
    }
    made = fits(
        api.ask(201, "POST", "/flows", {"name": "Buyers", "trigger": {"event": name}, "steps": [branch]}), "flow"
    )
    assert (made["status"], made["trigger"]["event"]) == ("draft", name)
    assert {"event", "segment_id", "contact_list_id", "data"} <= made["trigger"].keys()
    (split,) = [fits(step, "step") for step in made["steps"]]
    kinds = [fits(step, "step")["type"] for step in [split, *split["yes"], *split["no"]]]
    assert kinds == ["split", "email", "wait", "emit_event"]
    assert [template["action_id"] for template in made["templates"]] == [split["yes"][0]["id"]]
    path = f"/flows/{made['id']}"
    assert fits(api.ask(200, "POST", f"{path}/activate"), "flow")["status"] == "active"
    email = address()
    api.ask(201, "POST", "/contacts", {"email": email})
    fits(api.ask(201, "POST", "/events", {"event": name, "contact_email": email, "data": {"total": 12}}), "event")
    until(api, path, sent_count=1)
    assert [fits(row, "message")["to"] for row in api.get("/messages", flow_id=made["id"])] == [email]
    assert made["id"] in [fits(row, "flow")["id"] for row in api.get("/flows")]
    assert fits(api.ask(200, "DELETE", path), "flow")["id"] == made["id"]
    api.refused(404, "DELETE", path)


def test_lists_of_events_are_turned_page_by_page(api: Client) -> None:
    """Filters and pages choose the rows, newest first; headers count them and name the neighbours; 100 is the most."""
    contact = api.ask(201, "POST", "/contacts", {"email": address()})["id"]
    event = {"event": "order_paid", "contact_id": contact, "amount": 9.5, "resource_name": "order"}
    ids = [api.ask(201, "POST", "/events", event | {"resource_uid": f"o{n}"})["id"] for n in range(3)]
    query = f"/my/events?event=order_paid&contact_id={contact}&resource_name=order&test=false&created_after=2020-01-01"
    first, last = (api.call("GET", f"{query}&{page}") for page in ("limit=2", "page=2&per_page=2"))
    assert [row["id"] for row in first.body + last.body] == ids[::-1]
    assert [fits(row, "event")["amount"] for row in first.body] == [9.5, 9.5]
    names = [f"X-{name}" for name in ("Total-Count", "Total-Pages", "Page-Number", "Next-Page", "Prev-Page")]
    assert [first.headers[name] for name in names] == ["3", "2", "1", "2", None]
    assert [last.headers[name] for name in names] == ["3", "2", "2", None, "1"]
    assert [row["id"] for row in api.get("/events", contact_id=contact, resource_uid="o1")] == [ids[1]]
    assert api.get("/events", page=9, limit=1000) == []
    assert {"page", "limit"} <= api.refused(422, "GET", "/events?page=0&limit=x")["validation_errors"].keys()
    assert "evnt" in api.refused(422, "GET", "/events?evnt=order_paid")["validation_errors"]


def test_every_refusal_has_one_shape(api: Client, server: Server) -> None:
    """422 names each field, 404 any unknown id or path, 401 any bad credential; unknown keys are named, not refused."""
    refusal = api.refused(422, "POST", "/contacts", {"email": "nobody", "phone": "12"})
    assert refusal["code"] == "validation_error"
    assert refusal["validation_errors"].keys() == {"email", "phone"}
    assert api.refused(422, "POST", "/segments", {})["validation_errors"] == {"name": ["can't be blank"]}
    for path in ("/campaigns/999999999", "/templates/abc", "/nothing"):
        assert api.refused(404, "GET", path)["code"] == "not_found"
    assert api.refused(405, "DELETE", "/account")["code"] == "method_not_allowed"
    for credential in ("", "camp_live_unknown", "a.b.c"):
        answer = Client(server, credential).call("GET", "/my/account")
        assert (answer.status, fits(answer.body, "error")["code"]) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    answer = api.call("POST", "/my/segments", {"name": uuid4().hex, "colour": "red"})
    assert (answer.status, answer.headers["X-Ignored-Fields"]) == (201, "colour")


def test_a_repeated_submission_sends_once(api: Client) -> None:
    """The same key and payload answer 200 with the first message; another payload under the key is a conflict."""
    key = uuid4().hex
    letter = {
        "channel": "email",
        "to": address(),
        "subject": "Receipt",
        "body": "<p>Paid</p>",
        "from_email": "us@example.org",
    }
    first, again = (api.call("POST", "/my/messages", letter, Idempotency_Key=key) for _ in range(2))
    assert (first.status, fits(first.body, "message")["status"], first.body["contact_id"]) == (201, "queued", None)
    assert (again.status, again.body["id"], again.headers["Idempotent-Replayed"]) == (200, first.body["id"], "true")
    other = api.call("POST", "/my/messages", letter | {"subject": "Other"}, Idempotency_Key=key)
    assert (other.status, fits(other.body, "error")["code"]) == (409, "idempotency_conflict")
    assert [row["id"] for row in api.get("/messages", to=letter["to"])] == [first.body["id"]]


def test_a_login_is_a_credential_until_logout(server: Server) -> None:
    """E-mail and password give a JWT that opens what a key opens; logout ends it; a wrong password is a 401."""
    visitor = Client(server, "")
    answer = visitor.call("POST", "/login", {"email": EMAIL, "password": PASSWORD})
    assert answer.status == 200
    assert answer.headers["Authorization"] == f"Bearer {answer.body['token']}"
    assert (answer.body["user"]["email"], answer.body["user"]["role"]) == (EMAIL, "owner")
    person = Client(server, answer.body["token"])
    fits(person.get("/account"), "account")
    assert person.call("DELETE", "/logout").status == 204
    person.refused(401, "GET", "/account")
    wrong = visitor.call("POST", "/my/login", {"user": {"email": EMAIL, "password": "not this one"}})
    assert (wrong.status, fits(wrong.body, "error")["code"]) == (401, "invalid_credentials")
