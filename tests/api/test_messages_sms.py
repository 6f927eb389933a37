"""`POST /messages` with `channel: sms`: validation, storage and consent (docs/decisions.md#7)."""

from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

TO = "+12025550143"
HI = {"channel": "sms", "to": TO, "body": "Your code is 1234"}


def send_sms(api: Client, **more: Any) -> Any:
    """Send an SMS and return the response."""
    return api.post("/messages", HI | more)


def test_send_a_single_sms(api: Client) -> None:
    """It is stored with normalized number, contact and number of segments."""
    who = api.post("/contacts", {"phone": TO, "first_name": "Ann"}).expect(201)["id"]
    kept = send_sms(api, to="+1 (202) 555-0143", body="Hi {{ first_name }} " + "x" * 160, tags={"kind": "code"}).expect(
        201
    )
    assert {name: kept[name] for name in ("channel", "to", "segments", "contact_id", "transactional", "provider")} == {
        "channel": "sms", "to": TO, "segments": 2, "contact_id": who, "transactional": True, "provider": "capture",
    }  # fmt: skip
    assert (kept["subject"], kept["reply_to"], kept["tags"]) == (None, None, {"kind": "code"})
    assert kept["from"]
    shown = api.get(f"/messages/{kept['id']}").expect(200)
    assert (shown["html"], shown["headers"]) == (None, {})
    assert shown["text"] == "Hi Ann " + "x" * 160


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"to": "ann@example.org"}, {"to": "is invalid"}),
        ({"to": "0151 1234567"}, {"to": "is invalid"}),
        ({"to": ""}, {"to": "can't be blank"}),
        ({"body": ""}, {"body": "can't be blank"}),
        ({"body": " \n"}, {"body": "can't be blank"}),
        ({"body": "x" * 1_601}, {"body": "is too long (maximum is 1600 characters)"}),
        ({"body": "Ж" * 671}, {"body": "is too long (11 parts in UCS-2, maximum is 10)"}),
        ({"body": "{{ first_name"}, {"body": "expected '}}' (line 1, column 1)"}),
        ({"body": "{{ data.code }}"}, {"body": "the text is empty"}),
        ({"body": "{{ data.code }}", "data": {"code": "x" * 1_601}},
         {"body": "the text is too long (maximum is 1600 characters)"}),
        ({"body": "{{ data.code }}", "data": {"code": "Ж" * 671}}, {"body": "the text takes 11 parts (maximum is 10)"}),
        ({"to": "+1202555"}, {"to": "is not a number of a phone network"}),
        ({"to": "+19005550143"}, {"to": "is a premium-rate or shared-cost number"}),
        ({"to": "x", "body": ""}, {"to": "is invalid", "body": "can't be blank"}),
        ({"template_id": 424_242}, {"template_id": "must exist"}),
    ],
)  # fmt: skip
def test_invalid_sms_are_rejected(api: Client, more: dict[str, Any], where: dict[str, str]) -> None:
    """All errors are reported at their fields, and nothing is stored."""
    before = api.get("/messages").headers["X-Total-Count"]
    error = send_sms(api, **more).expect(422)
    assert error["validation_errors"] == {name: [words] for name, words in where.items()}
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_email_fields_of_an_sms_are_ignored(api: Client) -> None:
    """They are listed in `X-Ignored-Fields`, also by a repeat."""
    mail = {"subject": "s", "from_email": "a@bakery.example", "headers": {"X-A": "1"}, "reply_to": "b@bakery.example",
            "shiny": 1}  # fmt: skip
    first = send_sms(api, **mail, idempotency_key="once")
    kept = first.expect(201)
    assert first.headers["X-Ignored-Fields"] == "shiny, subject, from_email, reply_to, headers"
    again = send_sms(api, **mail, idempotency_key="once")
    assert again.expect(200)["id"] == kept["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Ignored-Fields"] == first.headers["X-Ignored-Fields"]
    assert send_sms(api, idempotency_key="once").expect(409)["code"] == "idempotency_conflict"


def test_send_an_sms_from_a_template(api: Client) -> None:
    """The text of the template is used, unless the request has its own; templates of another channel are rejected."""
    template = {"name": "Code", "channel": "sms", "body": "Code: {{ data.code }}"}
    words = api.post("/templates", template).expect(201)["id"]
    asked = {"channel": "sms", "to": TO, "template_id": words, "data": {"code": 7}}
    kept = api.post("/messages", asked).expect(201)
    assert api.get(f"/messages/{kept['id']}").json["text"] == "Code: 7"
    assert kept["template_id"] == words
    own = api.post("/messages", asked | {"body": "Mine"}).expect(201)
    assert api.get(f"/messages/{own['id']}").json["text"] == "Mine"
    letter = api.post("/templates", {"subject": "Code", "body": "<p>{{ data.code }}</p>"}).expect(201)["id"]
    error = api.post("/messages", asked | {"template_id": letter}).expect(422)
    assert error["validation_errors"] == {"template_id": ["is for the other channel"]}
    mail = {"to": "ann@example.org", "subject": "s", "body": "b", "template_id": words}
    assert api.post("/messages", mail).expect(422)["validation_errors"] == {"template_id": ["is for the other channel"]}


def test_an_sms_for_later_is_held(api: Client) -> None:
    """With `send_at` it is held until then, and can be cancelled."""
    held = send_sms(api, send_at="2099-01-01T08:00:00Z").expect(201)
    assert (held["status"], held["next_attempt_at"]) == ("held", "2099-01-01T08:00:00.000Z")
    assert api.post(f"/messages/{held['id']}/cancel").expect(200)["status"] == "cancelled"


def test_marketing_sms_need_consent(api: Client) -> None:
    """Strangers and unsubscribed contacts get no marketing SMS; unsubscribed ones get transactional SMS."""
    stranger = send_sms(api, to="+12025550144", transactional=False).expect(422)
    assert (stranger["reason"], stranger["skip_reason"]) == ("recipient_suppressed", "no_consent")
    row = api.get(f"/messages/{stranger['message_id']}").expect(200)
    assert (row["status"], row["channel"], row["skip_reason"]) == ("skipped", "sms", "no_consent")
    (event,) = api.get("/events", resource_uid=f"message:{row['id']}").expect(200)
    assert (event["event"], event["data"]["reason"]) == ("sms_skipped", "no_consent")
    contact_id = api.post("/contacts", {"phone": "+12025550145"}).expect(201)["id"]
    assert send_sms(api, to="+12025550145", transactional=False).expect(201)["status"] == "queued"
    api.patch(f"/contacts/{contact_id}", {"subscribed_phone": False}).expect(200)
    error = send_sms(api, to="+12025550145", transactional=False).expect(422)
    assert error["skip_reason"] == "unsubscribed"
    assert send_sms(api, to="+12025550145").expect(201)["transactional"]


def test_a_suppressed_number_gets_no_sms(api: Client) -> None:
    """Even a transactional SMS is rejected with the reason."""
    api.post("/suppressions", {"address": "+12025550146"}).expect(201)
    error = send_sms(api, to="+1 202 555 0146").expect(422)
    assert (error["reason"], error["skip_reason"]) == ("recipient_suppressed", "suppressed_manual")


def test_the_opt_out_hint_counts_as_text(api: Client) -> None:
    """The segments of a marketing SMS include the hint; a transactional SMS has none."""
    api.patch("/account", {"sms_opt_out_hint": "Reply STOP to end"}).expect(200)
    api.post("/contacts", {"phone": "+12025550147"}).expect(201)
    body = "x" * 150
    sold = send_sms(api, to="+12025550147", body=body, transactional=False).expect(201)
    service = send_sms(api, to="+12025550147", body=body).expect(201)
    api.patch("/account", {"sms_opt_out_hint": None}).expect(200)
    assert (sold["segments"], service["segments"]) == (2, 1)


def test_sms_are_found_by_number(api: Client) -> None:
    """List and export accept any format of the number; the channel is a filter."""
    kept = send_sms(api, to="+12025550148").expect(201)["id"]
    for written in ("+12025550148", "+1 202 555-0148", " 12025550148"):
        assert [row["id"] for row in api.get("/messages", to=written, channel="sms").expect(200)] == [kept]
        (line,) = api.get("/exports/messages.csv", to=written).text.splitlines()[1:]
        assert line.startswith(f'"{kept}",') and ',"+12025550148",' in line
    assert api.get("/messages", to="+12025550148", channel="email").expect(200) == []
    assert set(api.get("/messages", channel="fax").expect(422)["validation_errors"]) == {"channel"}


def test_merge_tags_of_a_phone_contact(api: Client) -> None:
    """`contact.phone` is the number, and the email of a contact without one is empty."""
    api.post("/contacts", {"phone": "+12025550151", "first_name": "Ann"}).expect(201)
    kept = send_sms(api, to="+12025550151", body="{{ contact.phone }}{{ contact.email }}{{ email }}").expect(201)
    assert api.get(f"/messages/{kept['id']}").json["text"] == "+12025550151"
    assert send_sms(api, to="+12025550151", body="{{ contact.email }}{{ email }}").expect(422)["validation_errors"] == {
        "body": ["the text is empty"]
    }


def test_sms_of_a_test_key_are_captured(api: Client, server: Any) -> None:
    """An SMS of a test key is a test and goes to the inbox."""
    kept = server.client(server.new_key("try", "--test")).post("/messages", HI).expect(201)
    assert (kept["test"], kept["provider"]) == (True, "capture")


def test_accounts_share_no_phone_data(api: Client, server: Any) -> None:
    """Names, consent, suppressions and messages of a number are separate for each account."""
    number = "+12025550149"
    ours = api.post("/contacts", {"phone": number, "first_name": "Ann"}).expect(201)["id"]
    theirs = server.client(
        server.new_key("theirs", "--account", server.cli("account", "add", "Elsewhere").stdout.strip())
    )
    theirs.patch("/account", {"sms_from": "Elsewhere", "sms_opt_out_hint": "Elsewhere: STOP"}).expect(200)
    words = {"channel": "sms", "to": number, "body": "Hi {{ first_name }}!"}
    stranger = theirs.post("/messages", words).expect(201)
    assert (stranger["contact_id"], stranger["from"]) == (None, "Elsewhere")
    assert theirs.get(f"/messages/{stranger['id']}").json["text"] == "Hi !"
    assert api.get(f"/messages/{stranger['id']}").status == 404
    assert api.post(f"/messages/{stranger['id']}/cancel").status == 404
    assert api.get("/messages", to=number).expect(200) == []
    assert theirs.post("/messages", words | {"transactional": False}).expect(422)["skip_reason"] == "no_consent"
    theirs.post("/suppressions", {"address": number}).expect(201)
    known = api.post("/messages", words | {"transactional": False}).expect(201)
    assert known["contact_id"] == ours and known["from"] != "Elsewhere"
    assert api.get(f"/messages/{known['id']}").json["text"] == "Hi Ann!"


@pytest.fixture
def twilio_server(fresh_server: FreshServer) -> Server:
    """Return a server whose SMS transport is Twilio, without a sender."""
    return fresh_server(env={
        "CAMPANERO_SMS__TRANSPORT": "twilio", "CAMPANERO_SMS__TWILIO__BASE_URL": "http://127.0.0.1:9",
        "CAMPANERO_SMS__TWILIO__ACCOUNT_SID": "AC1", "CAMPANERO_SMS__TWILIO__AUTH_TOKEN": "t",
        "CAMPANERO_SMS__COUNTRIES": "US,GB", "CAMPANERO_SMS__REQUIRE_EVIDENCE": "true",
    })  # fmt: skip


def test_a_real_transport_needs_a_sender(twilio_server: Server) -> None:
    """Without a valid sender for the country an SMS is rejected; test SMS need none."""
    api = twilio_server.client()
    account = api.get("/account").expect(200)
    assert [blocker["severity"] for blocker in account["blockers"] if blocker["code"] == "sms_sender_missing"] == [
        "warning"
    ]
    assert (account["transport"]["sms"], account["capabilities"]["sms"]) == ("twilio", True)
    error = send_sms(api).expect(422)
    assert (error["reason"], error["blockers"][0]["code"]) == ("sender_not_ready", "sender_not_ready")
    tried = twilio_server.client(twilio_server.new_key("try", "--test"))
    kept = send_sms(tried).expect(201)
    api.wait(f"/messages/{kept['id']}", lambda row: row["status"] == "sent" and row["from"] == "Campanero")
    api.patch("/account", {"sms_from": "Bakery"}).expect(200)
    assert "US needs a number" in send_sms(api).expect(422)["validation_errors"]["base"][0]
    assert send_sms(api, to="+447700900123").expect(201)["from"] == "Bakery"
    elsewhere = send_sms(api, to="+4917012345678").expect(422)["validation_errors"]
    assert elsewhere == {"to": ["is in DE, which is not among sms.countries"]}
    api.post("/contacts", {"phone": "+447700900124"}).expect(201)
    unproven = send_sms(api, to="+447700900124", transactional=False).expect(422)
    assert unproven["skip_reason"] == "no_consent"
