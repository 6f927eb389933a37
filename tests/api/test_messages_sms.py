"""`POST /messages` with `channel: sms`: what is refused, what is kept, and what is told (docs/decisions.md#7)."""

from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

TO = "+12025550143"
HI = {"channel": "sms", "to": TO, "body": "Your code is 1234"}


def ask(api: Client, **more: Any) -> Any:
    """Ask for an SMS, and answer what came back."""
    return api.post("/messages", HI | more)


def test_one_is_kept_with_what_it_costs(api: Client) -> None:
    """It is queued for the number as it is written to, linked to whoever has it, and says its parts at once."""
    who = api.post("/contacts", {"phone": TO, "first_name": "Ann"}).expect(201)["id"]
    kept = ask(api, to="+1 (202) 555-0143", body="Hi {{ first_name }} " + "x" * 160, tags={"kind": "code"}).expect(201)
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
        ({"body": "{{ data.code }}"}, {"body": "it says nothing"}),
        ({"body": "{{ data.code }}", "data": {"code": "x" * 1_601}},
         {"body": "it is too long (maximum is 1600 characters)"}),
        ({"body": "{{ data.code }}", "data": {"code": "Ж" * 671}}, {"body": "it takes 11 parts (maximum is 10)"}),
        ({"to": "+1202555"}, {"to": "is no number that a network has"}),
        ({"to": "+19005550143"}, {"to": "is a number that costs extra: premium or shared cost"}),
        ({"to": "x", "body": ""}, {"to": "is invalid", "body": "can't be blank"}),
        ({"template_id": 424_242}, {"template_id": "must exist"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_it_is_kept(api: Client, more: dict[str, Any], where: dict[str, str]) -> None:
    """All faults at once, each at its field; nothing is kept."""
    before = api.get("/messages").headers["X-Total-Count"]
    refused = ask(api, **more).expect(422)
    assert refused["validation_errors"] == {name: [words] for name, words in where.items()}
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_what_only_a_mail_has_is_named(api: Client) -> None:
    """Fields of mail mean nothing in an SMS: they are ignored, and the caller is told which, again when it repeats."""
    mail = {"subject": "s", "from_email": "a@bakery.example", "headers": {"X-A": "1"}, "reply_to": "b@bakery.example",
            "shiny": 1}  # fmt: skip
    first = ask(api, **mail, idempotency_key="once")
    kept = first.expect(201)
    assert first.headers["X-Ignored-Fields"] == "shiny, subject, from_email, reply_to, headers"
    again = ask(api, **mail, idempotency_key="once")
    assert again.expect(200)["id"] == kept["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Ignored-Fields"] == first.headers["X-Ignored-Fields"]
    assert ask(api, idempotency_key="once").expect(409)["code"] == "idempotency_conflict"


def test_the_words_may_be_those_of_a_template(api: Client) -> None:
    """A template's text does where none is sent; a text that is sent comes first."""
    made = {"name": "Code", "channel": "sms", "body": "Code: {{ data.code }}"}
    words = api.post("/templates", made).expect(201)["id"]
    asked = {"channel": "sms", "to": TO, "template_id": words, "data": {"code": 7}}
    kept = api.post("/messages", asked).expect(201)
    assert api.get(f"/messages/{kept['id']}").json["text"] == "Code: 7"
    assert kept["template_id"] == words
    own = api.post("/messages", asked | {"body": "Mine"}).expect(201)
    assert api.get(f"/messages/{own['id']}").json["text"] == "Mine"
    letter = api.post("/templates", {"subject": "Code", "body": "<p>{{ data.code }}</p>"}).expect(201)["id"]
    refused = api.post("/messages", asked | {"template_id": letter}).expect(422)
    assert refused["validation_errors"] == {"template_id": ["is for email"]}
    mail = {"to": "ann@example.org", "subject": "s", "body": "b", "template_id": words}
    assert api.post("/messages", mail).expect(422)["validation_errors"] == {"template_id": ["is for sms"]}


def test_a_later_one_is_held(api: Client) -> None:
    """With `send_at` it is held until then; whoever asked may take it back."""
    held = ask(api, send_at="2099-01-01T08:00:00Z").expect(201)
    assert (held["status"], held["next_attempt_at"]) == ("held", "2099-01-01T08:00:00.000Z")
    assert api.post(f"/messages/{held['id']}/cancel").expect(200)["status"] == "cancelled"


def test_marketing_needs_consent(api: Client) -> None:
    """A stranger gets none; who opted out gets none, but what they asked for; who opted in gets it."""
    stranger = ask(api, to="+12025550144", transactional=False).expect(422)
    assert (stranger["reason"], stranger["skip_reason"]) == ("recipient_suppressed", "no_consent")
    row = api.get(f"/messages/{stranger['message_id']}").expect(200)
    assert (row["status"], row["channel"], row["skip_reason"]) == ("skipped", "sms", "no_consent")
    (event,) = api.get("/events", resource_uid=f"message:{row['id']}").expect(200)
    assert (event["event"], event["data"]["reason"]) == ("sms_skipped", "no_consent")
    one = api.post("/contacts", {"phone": "+12025550145"}).expect(201)["id"]
    assert ask(api, to="+12025550145", transactional=False).expect(201)["status"] == "queued"
    api.patch(f"/contacts/{one}", {"subscribed_phone": False}).expect(200)
    refused = ask(api, to="+12025550145", transactional=False).expect(422)
    assert refused["skip_reason"] == "unsubscribed"
    assert ask(api, to="+12025550145").expect(201)["transactional"]


def test_who_is_suppressed_gets_nothing(api: Client) -> None:
    """A suppressed number gets no SMS at all; the refusal names the row that was kept."""
    api.post("/suppressions", {"address": "+12025550146"}).expect(201)
    refused = ask(api, to="+1 202 555 0146").expect(422)
    assert (refused["reason"], refused["skip_reason"]) == ("recipient_suppressed", "suppressed_manual")


def test_the_hint_counts(api: Client) -> None:
    """What a marketing SMS costs includes how to opt out; a service message has no such words."""
    api.patch("/account", {"sms_opt_out_hint": "Reply STOP to end"}).expect(200)
    api.post("/contacts", {"phone": "+12025550147"}).expect(201)
    body = "x" * 150
    sold = ask(api, to="+12025550147", body=body, transactional=False).expect(201)
    service = ask(api, to="+12025550147", body=body).expect(201)
    api.patch("/account", {"sms_opt_out_hint": None}).expect(200)
    assert (sold["segments"], service["segments"]) == (2, 1)


def test_they_are_found_by_their_number(api: Client) -> None:
    """List and export take a number as people write it, a plus lost on the way too; channels are told apart."""
    kept = ask(api, to="+12025550148").expect(201)["id"]
    for written in ("+12025550148", "+1 202 555-0148", " 12025550148"):
        assert [one["id"] for one in api.get("/messages", to=written, channel="sms").expect(200)] == [kept]
        (line,) = api.get("/exports/messages.csv", to=written).text.splitlines()[1:]
        assert line.startswith(f'"{kept}",') and ',"+12025550148",' in line
    assert api.get("/messages", to="+12025550148", channel="email").expect(200) == []
    assert set(api.get("/messages", channel="fax").expect(422)["validation_errors"]) == {"channel"}


def test_who_somebody_is_may_stand_in_it(api: Client) -> None:
    """The number is the person's phone, not their address; who has none has none."""
    api.post("/contacts", {"phone": "+12025550151", "first_name": "Ann"}).expect(201)
    kept = ask(api, to="+12025550151", body="{{ contact.phone }}{{ contact.email }}{{ email }}").expect(201)
    assert api.get(f"/messages/{kept['id']}").json["text"] == "+12025550151"
    assert ask(api, to="+12025550151", body="{{ contact.email }}{{ email }}").expect(422)["validation_errors"] == {
        "body": ["it says nothing"]
    }


def test_a_test_key_sends_none_into_the_world(api: Client, server: Any) -> None:
    """What a test key asks for is a test, for the inbox."""
    kept = server.client(server.new_key("try", "--test")).post("/messages", HI).expect(201)
    assert (kept["test"], kept["provider"]) == (True, "capture")


def test_another_account_knows_nobody_of_it(api: Client, server: Any) -> None:
    """A number that two accounts know is a person of each: names, consent and bans of one are not the other's."""
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
def real(fresh_server: FreshServer) -> Server:
    """A server whose SMS go to a provider that is not there, from nobody."""
    return fresh_server(env={
        "CAMPANERO_SMS__TRANSPORT": "twilio", "CAMPANERO_SMS__TWILIO__BASE_URL": "http://127.0.0.1:9",
        "CAMPANERO_SMS__TWILIO__ACCOUNT_SID": "AC1", "CAMPANERO_SMS__TWILIO__AUTH_TOKEN": "t",
        "CAMPANERO_SMS__COUNTRIES": "US,GB", "CAMPANERO_SMS__REQUIRE_EVIDENCE": "true",
    })  # fmt: skip


def test_on_a_real_transport_it_is_from_somebody(real: Server) -> None:
    """Without a sender it is refused in words, and the account says so too; a test stays at home and needs none."""
    api = real.client()
    account = api.get("/account").expect(200)
    assert [one["severity"] for one in account["blockers"] if one["code"] == "sms_sender_missing"] == ["warning"]
    assert (account["transport"]["sms"], account["capabilities"]["sms"]) == ("twilio", True)
    refused = ask(api).expect(422)
    assert (refused["reason"], refused["blockers"][0]["code"]) == ("sender_not_ready", "sender_not_ready")
    tried = real.client(real.new_key("try", "--test"))
    kept = ask(tried).expect(201)
    api.wait(f"/messages/{kept['id']}", lambda row: row["status"] == "sent" and row["from"] == "Campanero")
    api.patch("/account", {"sms_from": "Bakery"}).expect(200)
    assert "US needs a number" in ask(api).expect(422)["validation_errors"]["base"][0]
    assert ask(api, to="+447700900123").expect(201)["from"] == "Bakery"
    elsewhere = ask(api, to="+4917012345678").expect(422)["validation_errors"]
    assert elsewhere == {"to": ["is in DE, which is not among sms.countries"]}
    api.post("/contacts", {"phone": "+447700900124"}).expect(201)
    unproven = ask(api, to="+447700900124", transactional=False).expect(422)
    assert unproven["skip_reason"] == "no_consent"
