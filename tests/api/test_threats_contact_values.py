"""A key without `contacts:read` sends to contacts, and reads none of their values back (T45)."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server

ADDRESS, PHONE = "sofia@example.org", "+12025550147"
SECRETS = ("Sofia", "Secret", "DE00")
SUBJECT = "To {{ contact.last_name }} {{ contact.data.iban }}"
BODY = (
    "<p>{{ contact.first_name }} {{ contact.phone }} {{ contact.data.iban }} <a href='{{ view_url }}'>View</a>"
    "<a href='https://example.com/?i={{ contact.data.iban }}'>Go</a></p>"
)
MAIL = {"to": ADDRESS, "subject": SUBJECT, "body": BODY}
SMS = {"channel": "sms", "to": PHONE, "body": "Hello {{ contact.last_name }}, {{ contact.data.iban }}"}
SENDING = "messages:send,messages:read,events:read,campaigns:read"


@pytest.fixture(scope="module")
def contact(api: Client) -> Any:
    """Return a contact with values in every field that a merge tag can show."""
    values = {"first_name": "Sofia", "last_name": "Secret", "data": {"iban": "DE00"}}
    return api.post("/contacts", {"email": ADDRESS, "phone": PHONE, **values}).expect(201)


@pytest.fixture(scope="module", params=["live", "test"])
def narrow(request: pytest.FixtureRequest, server: Server, contact: Any) -> Iterator[Client]:
    """Yield a client that may send and read messages, and may not read contacts, with a live and with a test key."""
    yield server.client(server.new_key("narrow", "--scope", SENDING, *(["--test"] if request.param == "test" else [])))


def secrets_in(text: str) -> list[str]:
    """Return the values of the contact that a text has."""
    return [secret for secret in SECRETS if secret in text]


def sent(client: Client, **body: Any) -> Any:
    """Send a message, wait until it is sent, and return it as the full key sees it."""
    message = client.post("/messages", body).expect(201)
    return client.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")


def test_a_narrow_key_sends_what_it_cannot_read_back(narrow: Client, api: Client, contact: Any) -> None:
    """Lists, details, exports, repeats and decisions show the subject as submitted, and no rendered content."""
    key = {"Idempotency-Key": f"once {narrow.key}"}
    first = narrow.post("/messages", MAIL, key)
    message_id = first.expect(201)["id"]
    detail = narrow.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")
    is_test = detail["test"]
    shown = "To" if is_test else SUBJECT  # A test key's message was rendered without the contact.
    assert detail["subject"] == shown and not secrets_in(str(detail))
    assert (detail["html"] is None, detail["text"] is None) == (not is_test, not is_test)
    for web_version in re.findall(r"/v/[^\"]+", str(detail["html"])):
        assert not secrets_in(narrow.request("GET", web_version).text)
    assert (detail["contact_id"], detail["to"]) == (contact["id"], ADDRESS)
    repeat = narrow.post("/messages", MAIL, key)
    assert repeat.expect(200)["subject"] == shown and repeat.headers["Idempotent-Replayed"] == "true"
    responses = [
        first, repeat, narrow.get(f"/messages/{message_id}"), narrow.get("/messages"),
        narrow.get("/messages", to=ADDRESS), narrow.get("/exports/messages.csv"),
        narrow.get("/exports/messages.jsonl", contact_id=contact["id"]),
        narrow.get("/events", resource_uid=f"message:{message_id}"),
    ]  # fmt: skip
    for response in responses:
        assert response.status in (200, 201) and not secrets_in(response.text), response.text
    lines = [json.loads(line) for line in narrow.get("/exports/messages.jsonl").text.splitlines()]
    assert [line["subject"] for line in lines if line["id"] == message_id] == [shown]
    assert {line["id"]: line["subject"] for line in lines} == {
        row["id"]: row["subject"] for row in narrow.get("/messages", limit=100).expect(200)
    }


def test_a_live_message_reaches_the_contact_with_the_values(server: Server, api: Client, contact: Any) -> None:
    """The email of a live key is filled for the contact, and a key that may read contacts sees it as sent."""
    narrow = server.client(server.new_key("live", "--scope", SENDING))
    message = sent(narrow, **MAIL)
    detail = api.get(f"/messages/{message['id']}").expect(200)
    assert detail["subject"] == "To Secret DE00" and "Sofia" in detail["html"] and "DE00" in detail["text"]
    assert "To Secret DE00" in api.get("/exports/messages.csv").text
    [captured] = api.wait("/capture", bool, message_id=message["id"])
    assert captured["subject"] == "To Secret DE00"


def test_a_test_key_without_the_scope_tries_no_values(server: Server, api: Client, contact: Any) -> None:
    """Its emails and SMS are rendered as for an address of no contact, so that no length or error tells a value."""
    narrow = server.client(server.new_key("tries", "--scope", SENDING, "--test"))
    wider = server.client(server.new_key("wider", "--scope", f"{SENDING},contacts:read", "--test"))
    guess = "{% if contact.data.iban contains 'DE0' %}" + "x" * 200 + "{% endif %}Hello"
    for body in ({**MAIL, "subject": guess}, {**SMS, "body": guess}):
        lengths = []
        for client in (narrow, wider):
            message = sent(client, **body)
            [captured] = api.wait("/capture", bool, message_id=message["id"])
            shown = captured["subject"] or captured["preview"]
            lengths.append((len(shown) > 100, message["segments"]))
        assert lengths == ([(False, 1), (True, 2)] if "channel" in body else [(False, None), (True, None)])


@pytest.mark.parametrize("other_error", [{}, {"tags": 1}])
def test_errors_of_an_sms_tell_no_value(narrow: Client, api: Client, other_error: dict[str, Any]) -> None:
    """Whether the SMS would be too long is not checked with the values of the contact (a guess that nobody sees)."""
    pages = []
    for guess in ("Secret", "Wrong"):
        body = "Hi{% if contact.last_name == '" + guess + "' %}{{ data.long }}{% endif %}"
        response = narrow.post("/messages", {**SMS, "body": body, "data": {"long": "x" * 1_700}, **other_error})
        pages.append((response.status, response.json.get("validation_errors"), response.json.get("segments")))
    assert pages[0] == pages[1]
    response = api.post("/messages", {**SMS, "body": body.replace("Wrong", "Secret"), "data": {"long": "x" * 1_700}})
    assert response.status == 422


def test_a_message_to_no_contact_is_read_as_sent(narrow: Client, contact: Any) -> None:
    """What was rendered without a contact is shown, so that a program reads its own receipts."""
    message = sent(narrow, to="nobody@example.net", subject="Order {{ data.n }}", body="<p>No {{ data.n }}</p>",
                   data={"n": "4711"})  # fmt: skip
    assert message["contact_id"] is None
    assert "4711" in message["html"] and "4711" in message["text"]


def test_deleting_the_contact_shows_no_value(narrow: Client, api: Client) -> None:
    """The subject of a message whose contact was deleted stays as submitted."""
    contact = api.post("/contacts", {"email": "gone@example.org", "last_name": "Vanished"}).expect(201)
    message = sent(narrow, to="gone@example.org", subject="To {{ contact.last_name }}", body="<p>x {{ last_name }}</p>")
    api.delete(f"/contacts/{contact['id']}").expect(200)
    detail, listed = narrow.get(f"/messages/{message['id']}"), narrow.get("/messages")
    for response in (detail, listed):
        assert "Vanished" not in response.text
    shown = "To" if message["test"] else "To {{ contact.last_name }}"
    assert detail.json["subject"] == listed.json[0]["subject"] == shown


def test_a_campaign_shows_no_value_to_a_narrow_key(narrow: Client, api: Client, contact: Any) -> None:
    """Messages of a campaign have no subject in lists, and no content."""
    list_id = api.post("/lists", {"name": f"Readers {narrow.key}"}).expect(201)["id"]
    api.patch(f"/contacts/{contact['id']}", {"list_ids": [list_id]}).expect(200)
    content = {"subject": SUBJECT, "body": BODY}
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    [row] = narrow.get(f"/campaigns/{campaign}/recipients").expect(200)
    detail = narrow.get(f"/messages/{row['id']}").expect(200)
    assert row["subject"] is detail["subject"] is detail["html"] is detail["text"] is None
    assert api.get(f"/messages/{row['id']}").expect(200)["subject"] == "To Secret DE00"
    for path in ("/messages", "/exports/messages.csv", f"/messages/{row['id']}"):
        assert not secrets_in(narrow.get(path).text), path


def test_a_decision_shows_no_value(narrow: Client) -> None:
    """The response to `cancel` shows the subject as submitted."""
    held = narrow.post("/messages", {**MAIL, "send_at": "2099-01-01T00:00:00Z"}).expect(201)
    assert narrow.post(f"/messages/{held['id']}/cancel").expect(200)["subject"] == SUBJECT


def test_a_test_shown_as_a_contact_is_hidden(narrow: Client, api: Client, contact: Any) -> None:
    """A test that somebody else sent with the values of a contact to an address of no contact shows none of them."""
    template = api.post("/templates", {"name": "Test", "subject": SUBJECT, "body": BODY}).expect(201)["id"]
    request = {"email": "team@example.net", "contact_id": contact["id"]}
    [result] = api.post(f"/templates/{template}/send_test", request).expect(200)["results"]
    full = api.wait(f"/messages/{result['message_id']}", lambda row: row["status"] == "sent")
    assert "DE00" in full["subject"] and "Sofia" in full["html"]
    detail = narrow.get(f"/messages/{result['message_id']}")
    assert detail.expect(200)["subject"] == f"[Test] {SUBJECT}" and not secrets_in(detail.text)


def test_explaining_a_campaign_needs_the_scope_to_read_contacts(server: Server, api: Client, contact: Any) -> None:
    """Whether a contact is in a list or segment of a campaign is a value of the contact (T45)."""
    members = api.post("/lists", {"name": "Patients"}).expect(201)["id"]
    api.patch(f"/contacts/{contact['id']}", {"list_ids": [members]}).expect(200)
    campaign = api.post("/campaigns", {"name": "Own", "trigger_attributes": {"contact_list_id": members}}).expect(201)
    path = f"/campaigns/{campaign['id']}/explain"
    narrow = server.client(server.new_key("reports", "--scope", "campaigns:write"))
    assert narrow.get(path, contact_id=contact["id"]).expect(403)["required_scope"] == "contacts:read"
    wider = server.client(server.new_key("support", "--scope", "campaigns:read,contacts:read"))
    assert wider.get(path, contact_id=contact["id"]).expect(200)["in_audience"] is True


def test_captured_content_needs_the_scope_to_read_contacts(server: Server, api: Client, contact: Any) -> None:
    """The built-in inbox needs `contacts:read` besides `account:read`, also for simulated events."""
    message = sent(api, **MAIL)
    [captured] = api.wait("/capture", bool, message_id=message["id"])
    path = f"/capture/{captured['id']}"
    narrow = server.client(server.new_key("account", "--scope", "account:write"))
    wider = server.client(server.new_key("account", "--scope", "account:read,contacts:read"))
    for response in (
        narrow.get("/capture"), narrow.get("/capture", search="DE00"), narrow.get(path), narrow.get(f"{path}/raw"),
        narrow.post(f"{path}/simulate", {"action": "open"}), narrow.post(f"{path}/simulate", {"action": 1}),
    ):  # fmt: skip
        assert response.expect(403)["required_scope"] == "contacts:read" and not secrets_in(response.text)
    for allowed in ("/capture", path, f"{path}/raw"):
        assert "DE00" in wider.get(allowed).text


def test_a_webhook_tells_what_happened_and_no_content(server: Server, api: Client, contact: Any) -> None:
    """Events of a message, which webhooks deliver, name the message and have no subject or content."""
    message = sent(api, **MAIL)
    reader = server.client(server.new_key("events", "--scope", "events:read"))
    events = reader.get("/events", resource_uid=f"message:{message['id']}")
    assert [event["event"] for event in events.expect(200)] == ["email_sent"]
    assert not secrets_in(events.text)


def test_a_preflight_names_no_contacts_to_a_narrow_key(api: Client, server: Server) -> None:
    """Without `contacts:read`, a preflight has no rehearsal, which names contacts by what their values are (T45)."""
    list_id = api.post("/lists", {"name": "Preflight"}).expect(201)["id"]
    for index, value in enumerate("ab"):
        contact = {"email": f"preflight{index}@example.org", "list_ids": [list_id], "data": {"code": value}}
        api.post("/contacts", contact).expect(201)
    loop = "{% for i in (1..1000) %}x{% endfor %}"
    body = f"<p>{{% if contact.data.code == 'a' %}}{loop}{{% endif %}}{{{{ contact.data.none }}}}</p>"
    audience = {"trigger_attributes": {"contact_list_id": list_id}}
    narrow = server.client(server.new_key("campaigns", "--scope", "campaigns:write"))
    campaign = narrow.post(
        "/campaigns", {"name": "Guess", "template_attributes": {"subject": "Hello", "body": body}, **audience}
    ).expect(201)["id"]
    path = f"/campaigns/{campaign}/preflight"
    assert "rehearsal" not in narrow.get(path).expect(200)["facts"]
    deadline = time.monotonic() + 60
    while (rehearsal := api.get(path).expect(200)["facts"]["rehearsal"])["status"] != "complete":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert rehearsal["failed"] == 1 and rehearsal["lacking"]
    narrow_codes, codes = (
        {finding["code"] for finding in client.get(path).expect(200)["warnings"]} for client in (narrow, api)
    )
    assert "rehearsal" not in narrow.get(path).expect(200)["facts"] and narrow_codes < codes
