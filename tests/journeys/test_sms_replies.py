"""Incoming SMS with real signatures: STOP, START, HELP, keywords and conversations."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import NUMBER, FakeSms, post
from tests.kit.server import Server
from tests.kit.shared_clock import clock
from tests.kit.sms_signing import twilio_form

__all__ = ["clock"]
STOP = (
    "STOP", "stop", " Stop! ", "STOPALL", "stop all", "UNSUBSCRIBE", "Cancel", "END", "quit", "revoke", "OPTOUT",
    "opt-out", "Opt Out", "REMOVE", "Arrêt", "ARRET", "TD", "stop 🙂", "alto", "BAJA", "parar", "STOPP",
    "please stop texting me",
)  # fmt: skip
NOISE = ("please stop by", "the end", "I love it", "🙂", "yes", "cancel my order, please", "Stopwatch")
_numbers = count(14155550200)


@pytest.fixture(scope="module")
def sms(tmp_path_factory: pytest.TempPathFactory, clock: TestClock) -> Iterator[FakeSms]:
    """An SMS test provider in its own process."""
    with FakeSms(tmp_path_factory.mktemp("sms"), clock) as running:
        yield running


@pytest.fixture(scope="module")
def server(sms: FakeSms, clock: TestClock) -> Iterator[Server]:
    """A server that sends through the provider."""
    with Server(env=sms.env, clock=clock).set_up() as running:
        yield running
        running.stop()


def create_contact(api: Client, **fields: Any) -> tuple[str, int]:
    """Create a contact that agreed to SMS; return its number and id."""
    number = f"+{next(_numbers)}"
    return number, api.post("/contacts", {"phone": number, "opt_in": True, **fields}).expect(201)["id"]


def phone_state(api: Client, contact_id: int) -> tuple[bool, str | None]:
    """Return whether the phone channel is subscribed, and its suppression reason."""
    channels = api.get(f"/contacts/{contact_id}").json["channels"]
    [channel] = [channel for channel in channels if channel["kind"] == "phone"]
    return channel["subscribed"], channel["suppression_reason"]


def wait_for_replies(sms: FakeSms, numbers: list[str], each: int) -> None:
    """Wait until each number got `each` replies, and check that it got no more."""
    sms.wait(lambda accepted: all(sum(reply.to == number for reply in accepted) >= each for number in numbers))
    assert [len(sms.to(number)) for number in numbers] == [each] * len(numbers)


def test_stop_keywords(server: Server, api: Client, sms: FakeSms) -> None:
    """Each STOP keyword or clear refusal opts out and is confirmed once; other texts change nothing."""
    opted_out = [(*create_contact(api), text) for text in STOP]
    for number, _, text in opted_out:
        for _ in range(3):
            assert sms.send_incoming(server.url, number, text).status == 200
    others = [(*create_contact(api), text) for text in NOISE]
    for number, _, text in others:
        assert sms.send_incoming(server.url, number, text).status == 200
    for _, contact_id, text in opted_out:
        assert phone_state(api, contact_id) == (False, "stop_keyword"), text
    for _, contact_id, text in others:
        assert phone_state(api, contact_id) == (True, None), text
        [message] = api.get("/events", contact_id=contact_id, event="message").json
        assert message["data"]["body"] == text
    wait_for_replies(sms, [number for number, *_ in opted_out], 1)
    assert not [reply for number, *_ in others for reply in sms.to(number)]
    assert {reply.sender for number, *_ in opted_out for reply in sms.to(number)} == {NUMBER}
    unseen = {row["body"] for row in api.get("/incoming", unseen=True).json}
    assert unseen == {"please stop by", "cancel my order, please", "please stop texting me"}


def test_replies_are_in_the_language_of_the_contact(server: Server, api: Client, sms: FakeSms) -> None:
    """A German contact of an English account reads the answer in German."""
    number, _ = create_contact(api, language="de")
    sms.send_incoming(server.url, number, "STOP")
    wait_for_replies(sms, [number], 1)
    assert "Nachrichten" in sms.to(number)[0].body or "SMS" in sms.to(number)[0].body
    assert "unsubscribed" not in sms.to(number)[0].body


def test_start_and_help_keywords(server: Server, api: Client, sms: FakeSms, clock: TestClock) -> None:
    """START, UNSTOP and a YES after a STOP subscribe again; HELP is answered once an hour."""
    for word in ("START", "unstop.", "Yes"):
        number, contact_id = create_contact(api)
        sms.send_incoming(server.url, number, "STOP")
        sms.send_incoming(server.url, number, word)
        wait_for_replies(sms, [number], 2)
        assert phone_state(api, contact_id) == (True, None)
        assert "subscribed again" in sms.to(number)[1].body
    number, contact_id = create_contact(api)
    for word in ("STOP", "HELP", "info?", "help"):
        sms.send_incoming(server.url, number, word)
    wait_for_replies(sms, [number], 2)
    clock.advance(3601)
    sms.send_incoming(server.url, number, "Info")
    wait_for_replies(sms, [number], 3)
    assert "STOP" in sms.to(number)[1].body and phone_state(api, contact_id) == (False, "stop_keyword")


def test_a_stop_that_the_provider_answered(server: Server, api: Client, sms: FakeSms) -> None:
    """If the provider says that it handled a STOP, the opt-out counts and no reply is sent."""
    number, contact_id = create_contact(api)
    assert sms.send_incoming(server.url, number, "STOP", OptOutType="STOP").status == 200
    other, _ = create_contact(api)
    sms.send_incoming(server.url, other, "STOP")
    wait_for_replies(sms, [other], 1)
    assert (sms.to(number), phone_state(api, contact_id)) == ([], (False, "stop_keyword"))


def test_forged_incoming_sms_are_rejected(server: Server, api: Client, sms: FakeSms) -> None:
    """Missing, empty and wrong signatures, other URLs and added fields return 403."""
    number, contact_id = create_contact(api)
    good = sms.incoming_request(server.url, number, "STOP")
    fields = {"From": number, "To": NUMBER, "Body": "STOP", "MessageSid": "SM1"}
    wrong = twilio_form("another token", good.url, fields)
    elsewhere = twilio_form("a-token-of-twilio", good.url, fields, signed="http://elsewhere.example/hooks")
    bare = {"Content-Type": "application/x-www-form-urlencoded"}
    for forged in (
        good._replace(headers=bare), good._replace(headers=bare | {"X-Twilio-Signature": ""}), wrong, elsewhere,
        good._replace(body=good.body + b"&OptOutType=STOP"),
    ):  # fmt: skip
        assert post(forged).status == 403
    assert post(sms.incoming_http_request(server.url, number, "STOP")).status == 404, (
        "the generic provider has no secret"
    )
    assert (phone_state(api, contact_id), api.get("/incoming", contact_id=contact_id).json) == ((True, None), [])


def test_a_repeated_callback_counts_once(server: Server, api: Client, sms: FakeSms) -> None:
    """A message that the provider delivers again is stored once."""
    number, contact_id = create_contact(api)
    again = sms.incoming_request(server.url, number, "hello", sid="SM" + "7" * 32)
    assert [post(again).status for _ in range(3)] == [200] * 3
    assert len(api.get("/incoming", contact_id=contact_id).json) == 1


def test_a_stop_applies_to_all_senders(server: Server, api: Client, sms: FakeSms) -> None:
    """A STOP to one of our numbers also ends campaigns and single messages from another."""
    number, contact_id = create_contact(api)
    list_id = api.post("/lists", {"name": "Spring", "contact_ids": [contact_id]}).expect(201)["id"]
    campaign = {"name": "Spring", "channel": "sms", "template_attributes": {"body": "Hello"},
                "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    campaign_id = api.post("/campaigns", campaign).expect(201)["id"]
    sms.send_incoming(server.url, number, "STOP", to="+15550008888")
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    [row] = api.wait("/messages", lambda rows: bool(rows), campaign_id=campaign_id)
    assert (row["status"], row["skip_reason"]) == ("skipped", "suppressed_stop_keyword")
    rejection = api.post("/messages", {"channel": "sms", "to": number, "body": "x"})
    assert rejection.expect(422)["skip_reason"] == "suppressed_stop_keyword"


def test_a_stop_counts_for_its_campaign(server: Server, api: Client, sms: FakeSms) -> None:
    """A STOP in reply to a campaign is counted as an unsubscribe of that campaign."""
    number, contact_id = create_contact(api)
    list_id = api.post("/lists", {"name": "Summer", "contact_ids": [contact_id]}).expect(201)["id"]
    campaign = {"name": "Summer", "channel": "sms", "template_attributes": {"body": "Hello"},
                "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    campaign_id = api.post("/campaigns", campaign).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
    sms.send_incoming(server.url, number, "STOP")
    assert api.get(f"/campaigns/{campaign_id}/report").json["unsubscribes"]["count"] == 1
    [reply] = api.get("/incoming", contact_id=contact_id).json
    assert api.get(f"/messages/{reply['answered_message_id']}").json["campaign_id"] == campaign_id


def test_a_keyword_starts_a_flow(server: Server, api: Client, sms: FakeSms) -> None:
    """An incoming keyword triggers its flow, and both messages are in the conversation."""
    number, contact_id = create_contact(api, first_name="Ann")
    trigger = {"event": "keyword", "data": {"keywords": ["JOIN"]}}
    steps = [{"body": "Welcome, {{ contact.first_name }}: you wrote {{ event.body }}"}]
    flow = api.post("/flows", {"name": "Joining", "trigger": trigger, "steps": steps, "status": "active"}).expect(201)
    sms.send_incoming(server.url, number, "Join, please")
    [reply] = sms.wait(lambda accepted: bool(sms.to(number))) and sms.to(number)
    assert reply.body.startswith("Welcome, Ann: you wrote Join, please")
    conversation = api.wait(
        f"/contacts/{contact_id}/conversation", lambda rows: len(rows) == 2 and rows[0]["status"] == "sent"
    )
    assert [(message["direction"], message["kind"], message["source_name"]) for message in conversation] == [
        ("out", None, "Joining"), ("in", "keyword", None),
    ]  # fmt: skip
    api.delete(f"/flows/{flow['id']}").expect(200)


def test_the_unsubscribe_link_of_an_sms(server: Server, api: Client, sms: FakeSms) -> None:
    """The page behind the link opts out the phone and not the email; STOP is shown on the preferences page."""
    number, contact_id = create_contact(api, email="ann@example.org")
    message = {
        "channel": "sms",
        "to": number,
        "transactional": False,
        "body": "{{ unsubscribe_url }} {{ preferences_url }}",
    }
    api.post("/messages", message).expect(201)
    [sent] = sms.wait(lambda _: bool(sms.to(number))) and sms.to(number)
    unsubscribe_path, preferences = (link_url.removeprefix(server.url) for link_url in sent.body.split()[:2])
    browser = server.client(None, validate=False)
    page = browser.request("GET", unsubscribe_path).text
    assert "Stop these text messages?" in page and number not in page
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert "news by SMS" in browser.request("POST", unsubscribe_path, b"confirm=1", form).text
    contact_row = api.get(f"/contacts/{contact_id}").json
    assert (contact_row["subscribed_phone"], contact_row["subscribed_email"]) == (False, True)
    preferences_page = browser.request("GET", preferences).text
    assert "Email to a" in preferences_page and "Text messages to +14" in preferences_page
    back = browser.request("POST", preferences, b"act=undo", form).text
    assert "will receive SMS from" in back and phone_state(api, contact_id) == (True, None)
    sms.send_incoming(server.url, number, "STOP")
    assert (
        'type="checkbox"' in (preferences_page := browser.request("GET", preferences).text)
        and preferences_page.count("checked>") == 2
    )
