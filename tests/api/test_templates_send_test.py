"""Test sends of a template: recipients, values, and their exclusion from all counts (docs/decisions.md#11)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.api_users import add_user
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer

SECTION = {"type": "text", "props": {"content": "<p>Hi {{ contact.first_name | default: 'you' }}, {{ data.code }}</p>"}}


@pytest.fixture(scope="module")
def template(api: Client) -> int:
    """Return the id of a template with a design."""
    body = {"name": "T", "subject": "For {{ contact.first_name | default: 'you' }}", "design": {"sections": [SECTION]},
            "preheader": "Preview {{ data.code }}", "reply_to": "back@example.org"}  # fmt: skip
    return int(api.post("/templates", body).expect(201)["id"])


@pytest.fixture(scope="module")
def contact_id(api: Client) -> int:
    """Return the id of a contact with a name."""
    return int(api.post("/contacts", {"email": "zoe@example.org", "first_name": "Zoë"}).expect(201)["id"])


def send_test(api: Client, template: int, **body: Any) -> list[dict[str, Any]]:
    """Send tests and return their messages once they are sent."""
    response = api.post(f"/templates/{template}/send_test", body).expect(200)
    assert response["sent"] == len(response["results"])
    assert all((result["success"], result["error"]) == (True, None) for result in response["results"])
    return [
        api.wait(f"/messages/{result['message_id']}", lambda row: row["status"] == "sent")
        for result in response["results"]
    ]


def test_a_test_without_a_body_goes_to_the_owner(api: Client, template: int) -> None:
    """It is marked in subject and record, and belongs to no campaign or contact."""
    response = api.request(
        "POST", f"/v1/my/templates/{template}/send_test", b"", {"Authorization": f"Bearer {api.key}"}
    )
    (result,) = response.expect(200)["results"]
    message = api.wait(f"/messages/{result['message_id']}", lambda row: row["status"] == "sent")

    assert (result["email"], message["to"], message["subject"]) == (EMAIL, EMAIL, "[Test] For you")
    assert (message["test"], message["source_type"], message["template_id"]) == (True, "test", template)
    assert (message["campaign_id"], message["contact_id"], message["provider"]) == (None, None, "capture")
    assert message["reply_to"] == "back@example.org"


def test_a_test_to_given_addresses(api: Client, template: int, contact_id: int) -> None:
    """Each address gets one message with the given data; addresses of contacts get the contacts' values."""
    (message,) = send_test(api, template, email="a@example.org", data={"code": "<QED>"})
    both = send_test(api, template, emails=["a@example.org", "zoe@example.org", "A@example.org"])

    assert message["to"] == "a@example.org" and "Hi you, <QED>" in message["text"] and "&lt;QED&gt;" in message["html"]
    assert [row["to"] for row in both] == ["a@example.org", "zoe@example.org"]
    assert [row["subject"] for row in both] == ["[Test] For you", "[Test] For Zoë"]


def test_a_test_with_values_of_a_contact(api: Client, template: int, contact_id: int) -> None:
    """It goes to the contact, or to a given address with the contact's values."""
    (theirs,) = send_test(api, template, contact_id=contact_id)
    (ours,) = send_test(api, template, contact_id=contact_id, email="me@example.org")

    assert (theirs["to"], theirs["subject"]) == ("zoe@example.org", "[Test] For Zoë")
    assert (ours["to"], ours["subject"]) == ("me@example.org", "[Test] For Zoë")
    assert "Hi Zoë" in ours["html"]


def test_conditional_sections_in_a_test(api: Client, contact_id: int) -> None:
    """A section for other contacts is left out; without a contact it is shown."""
    for_ben = {"props": {"content": "<p>For Ben</p>",
                         "show_if": [{"name": "contact_first_name", "predicate": "eq", "value": "Ben"}]}}  # fmt: skip
    body = {"subject": "s", "design": {"sections": [SECTION, for_ben]}}
    template_id = api.post("/templates", body).expect(201)["id"]

    assert "For Ben" not in send_test(api, template_id, contact_id=contact_id)[0]["html"]
    assert "For Ben" in send_test(api, template_id, email="nobody@example.org")[0]["html"]


def test_a_test_has_the_compliance_footer(api: Client, template: int) -> None:
    """Address and unsubscribe link are added, without headers for mail programs."""
    (message,) = send_test(api, template, email="look@example.org")
    caught = next(row for row in api.all("/messages", to="look@example.org"))

    assert "/u/" in message["text"] and "Unsubscribe" in message["html"]
    assert "Preview " in message["html"]
    assert message["headers"] == {} and caught["transactional"] is True


def test_tests_are_not_counted(api: Client, template: int, contact_id: int) -> None:
    """No counter of contact, channel or account changes, and its events are marked as tests."""
    before = api.get("/account").expect(200)["usage"]["email_sent"]
    (message,) = send_test(api, template, contact_id=contact_id)
    contact = api.get(f"/contacts/{contact_id}").expect(200)

    assert api.get("/account").expect(200)["usage"]["email_sent"] == before
    assert [channel["sent_count"] for channel in contact["channels"]] == [0]
    assert contact["last_interacted_at"] is None
    events = api.get("/events", resource_uid=f"message:{message['id']}").expect(200)
    assert [(event["event"], event["test"], event["contact_id"]) for event in events] == [("email_sent", True, None)]
    assert message["id"] not in [row["id"] for row in api.all("/messages", contact_id=contact_id)]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"email": "nobody"}, {"email"}),
        ({"email": ""}, {"email"}),
        ({"emails": ["a@example.org", "x", "y@"]}, {"emails[1]", "emails[2]"}),
        ({"emails": [f"p{n}@example.org" for n in range(6)]}, {"emails"}),
        ({"email": "six@example.org", "emails": [f"p{n}@example.org" for n in range(5)]}, {"emails"}),
        ({"contact_id": 10**9}, {"contact_id"}),
        ({"contact_id": "x", "data": []}, {"contact_id", "data"}),
        ({"email": "a@example.org\r\nBcc: b@example.org"}, {"email"}),
    ],
)
def test_invalid_test_sends_are_rejected(body: dict[str, Any], fields: set[str], api: Client, template: int) -> None:
    """All errors are reported at once, and nothing is sent."""
    before = api.get("/messages").headers["X-Total-Count"]

    assert set(api.post(f"/templates/{template}/send_test", body).expect(422)["validation_errors"]) == fields
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_a_test_for_a_contact_without_an_address(api: Client, template: int) -> None:
    """The error is at `contact_id`."""
    silent = api.post("/contacts", {"first_name": "No address"}).expect(201)["id"]

    error = api.post(f"/templates/{template}/send_test", {"contact_id": silent}).expect(422)

    assert set(error["validation_errors"]) == {"contact_id"}


def test_consent_and_suppressions_of_tests(api: Client, template: int) -> None:
    """Unsubscribed addresses get a test; for a suppressed one the message is skipped with the reason."""
    api.post("/contacts", {"email": "out@example.org", "opt_in": False}).expect(201)
    api.post("/suppressions", {"address": "never@example.org", "reason": "manual"}).expect(201)
    response = api.post(f"/templates/{template}/send_test", {"emails": ["out@example.org", "never@example.org"]})
    good, bad = response.expect(200)["results"]

    assert response.json["sent"] == 1 and good["success"]
    assert (bad["email"], bad["success"], bad["error"]) == ("never@example.org", False, "suppressed_manual")
    row = api.get(f"/messages/{bad['message_id']}").expect(200)
    assert (row["status"], row["skip_reason"], row["test"]) == ("skipped", "suppressed_manual", True)


def test_a_test_of_an_incomplete_template(api: Client) -> None:
    """A template without a subject can be tested, one without content cannot."""
    empty = api.post("/templates", {"subject": "s"}).expect(201)["id"]
    bare = api.post("/templates", {"name": "Bare", "body": "<p>x</p>"}).expect(201)["id"]

    assert api.post(f"/templates/{empty}/send_test").expect(422)["reason"] == "content_required"
    assert send_test(api, bare)[0]["subject"] == "[Test] Bare"


@pytest.fixture
def relay_server(fresh_server: FreshServer, smtp_server: SmtpServer) -> Iterator[Server]:
    """Yield a server that sends through a relay."""
    yield fresh_server(relay=smtp_server.port)


def test_the_transport_of_tests(relay_server: Server, smtp_server: SmtpServer) -> None:
    """A test of a live key uses the relay, one of a test key the inbox."""
    live, tried = relay_server.client(), relay_server.client(relay_server.new_key("try", "--test"))
    body = {"subject": "Way", "from_email": "us@example.net", "design": {"sections": [SECTION]}}
    template_id = live.post("/templates", body).expect(201)["id"]
    (left,) = send_test(live, template_id, email="far@example.org")
    (stayed,) = send_test(tried, template_id, email="near@example.org")

    assert (left["provider"], stayed["provider"]) == ("relay", "capture")
    assert left["test"] and stayed["test"]
    (mail,) = smtp_server.messages
    assert (mail.to, mail.subject, mail.header("List-Unsubscribe")) == ("far@example.org", "[Test] Way", None)


def test_tests_to_strangers_are_limited(relay_server: Server) -> None:
    """Twenty tests an hour may go to unknown addresses, and to contacts of those who may not send; not so the team."""
    api = relay_server.client()
    template = api.post("/templates", {"name": "B", "subject": "Bomb", "body": "<p>x</p>"}).expect(201)["id"]
    path = f"/templates/{template}/send_test"
    for start in range(0, 20, 5):
        api.post(path, {"emails": [f"victim{start + more}@example.org" for more in range(5)]}).expect(200)
    error = api.post(path, {"email": "victim21@example.org"})
    assert error.status == 429 and 3500 < int(error.headers["Retry-After"]) <= 3600
    assert error.json["code"] == "rate_limited"
    api.post("/contacts", {"email": "known@example.org"}).expect(201)
    assert api.patch("/account", {"test_email_recipients": ["tester@example.org"]}).status == 200
    for body in ({"email": "Known@Example.org"}, {"email": EMAIL}, {"email": "tester@example.org"}):
        assert api.post(path, body).expect(200)["sent"] == 1
    (result,) = api.post(path, {}).expect(200)["results"]
    assert result["email"] == "tester@example.org"
    # Those who may not send reach no contacts by tests, whether by key or as an author.
    narrow = relay_server.client(relay_server.new_key("designer", "--scope", "templates:write,contacts:read"))
    contact_id = api.get("/contacts").expect(200)[0]["id"]
    for caller in (narrow, add_user(relay_server, "author")):
        for body in ({"email": "Known@Example.org"}, {"contact_id": contact_id}):
            assert caller.post(path, body).expect(429)["message"].endswith("outside of your team.")
        assert caller.post(path, {"emails": [EMAIL, "tester@example.org"]}).expect(200)["sent"] == 2
    page = Visitor(relay_server, "author@example.org")
    assert page.send("POST", f"{path.removesuffix('/send_test')}/test", {"emails": "known@example.org"}).status == 429
    campaign = api.post("/campaigns", {"name": "C", "template_attributes": {"subject": "s", "body": "<p>x</p>"}})
    form = {"addresses": "known@example.org"}
    assert page.send("POST", f"/campaigns/{campaign.expect(201)['id']}/test", form).status == 429


@pytest.mark.parametrize("scopes", ["templates:read", "templates:write", "templates:write,messages:read"])
def test_a_contact_is_shown_only_with_the_scope_to_read_contacts(
    api: Client, server: Server, contact_id: int, template: int, scopes: str
) -> None:
    """Previews and tests that name a contact need `contacts:read`, before anything else is checked (T45)."""
    narrow = server.client(server.new_key("narrow", "--scope", scopes))
    wider = server.client(server.new_key("wider", "--scope", f"{scopes},contacts:read"))
    body = "{{ contact.email }} {{ contact.data.note }}"
    for named_id in (contact_id, 10**6):
        named = {"document": {}, "body": body, "contact_id": named_id}
        assert narrow.post("/templates/preview", named).expect(403)["required_scope"] == "contacts:read"
        assert narrow.post("/templates/preview", {**named, "body": 1}).expect(403)["required_scope"] == "contacts:read"
    shown = wider.post("/templates/preview", {**named, "contact_id": contact_id}).expect(200)
    assert "zoe@example.org" in shown["text"]
    assert "anna@example.org" in narrow.post("/templates/preview", {**named, "contact_id": None}).expect(200)["text"]
    if "write" in scopes:
        emails = ({}, {"email": "x@example.org"}, {"email": 1})
        for request in ({"contact_id": 10**6}, *({**email, "contact_id": contact_id} for email in emails)):
            refused = narrow.post(f"/templates/{template}/send_test", request)
            assert refused.expect(403)["required_scope"] == "contacts:read"
        assert wider.post(f"/templates/{template}/send_test", {"contact_id": contact_id}).expect(200)["sent"] == 1


def test_a_test_to_a_contacts_address_shows_nothing_of_the_contact_to_a_narrow_key(
    api: Client, server: Server, contact_id: int, template: int
) -> None:
    """Without `contacts:read` a test shows sample values, also to the address of a contact (T45)."""
    narrow = server.client(server.new_key("tester", "--scope", "templates:write,messages:read"))
    (message,) = send_test(narrow, template, email="zoe@example.org")
    assert message["subject"] == "[Test] For you"
    (message,) = send_test(api, template, email="zoe@example.org")
    assert message["subject"] == "[Test] For Zoë"
