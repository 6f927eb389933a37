"""People write back over SMS, to the real server with real signatures: leave, come back, ask for help."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import NUMBER, FakeSms, post
from tests.kit.server import Server
from tests.kit.sms_signing import twilio_form

STOP = (
    "STOP", "stop", " Stop! ", "STOPALL", "stop all", "UNSUBSCRIBE", "Cancel", "END", "quit", "revoke", "OPTOUT",
    "opt-out", "Opt Out", "REMOVE", "Arrêt", "ARRET", "TD", "stop 🙂", "alto", "BAJA", "parar", "STOPP",
    "please stop texting me",
)  # fmt: skip
NOISE = ("please stop by", "the end", "I love it", "🙂", "yes", "cancel my order, please", "Stopwatch")
_numbers = count(14155550200)


@pytest.fixture(scope="module")
def sms(tmp_path_factory: pytest.TempPathFactory, clock: TestClock) -> Iterator[FakeSms]:
    """A provider in a process of its own."""
    with FakeSms(tmp_path_factory.mktemp("sms"), clock) as running:
        yield running


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """The clock of both."""
    return TestClock(tmp_path_factory.mktemp("clock") / "offset")


@pytest.fixture(scope="module")
def server(sms: FakeSms, clock: TestClock) -> Iterator[Server]:
    """A server that sends through it."""
    with Server(env=sms.env, clock=clock).set_up() as running:
        yield running
        running.stop()


def somebody(api: Client, **more: Any) -> tuple[str, int]:
    """Make somebody who agreed to SMS, and return their number and id."""
    number = f"+{next(_numbers)}"
    return number, api.post("/contacts", {"phone": number, "opt_in": True, **more}).expect(201)["id"]


def state(api: Client, contact_id: int) -> tuple[bool, str | None]:
    """Return whether a phone may be written to, and what keeps it from that."""
    channels = api.get(f"/contacts/{contact_id}").json["channels"]
    [channel] = [one for one in channels if one["kind"] == "phone"]
    return channel["subscribed"], channel["suppression_reason"]


def replied(sms: FakeSms, numbers: list[str], each: int) -> None:
    """Wait until each of these has got so many answers, and none more after that."""
    sms.wait(lambda taken: all(sum(one.to == number for one in taken) >= each for number in numbers))
    assert [len(sms.to(number)) for number in numbers] == [each] * len(numbers)


def test_every_way_to_leave(server: Server, api: Client, sms: FakeSms) -> None:
    """Each keyword and clear refusal opts out at once and is confirmed exactly once; noise changes nothing."""
    gone = [(*somebody(api), words) for words in STOP]
    for number, _, words in gone:
        for _ in range(3):
            assert sms.write(server.url, number, words).status == 200
    kept = [(*somebody(api), words) for words in NOISE]
    for number, _, words in kept:
        assert sms.write(server.url, number, words).status == 200
    for _, contact_id, words in gone:
        assert state(api, contact_id) == (False, "stop_keyword"), words
    for _, contact_id, words in kept:
        assert state(api, contact_id) == (True, None), words
        [said] = api.get("/events", contact_id=contact_id, event="message").json
        assert said["data"]["body"] == words
    replied(sms, [number for number, *_ in gone], 1)
    assert not [one for number, *_ in kept for one in sms.to(number)]
    assert {one.sender for number, *_ in gone for one in sms.to(number)} == {NUMBER}
    unseen = {row["body"] for row in api.get("/incoming", unseen=True).json}
    assert unseen == {"please stop by", "cancel my order, please", "please stop texting me"}


def test_there_and_back(server: Server, api: Client, sms: FakeSms, clock: TestClock) -> None:
    """START and UNSTOP bring back, YES after a STOP; HELP is answered once an hour, also to who has left."""
    for word in ("START", "unstop.", "Yes"):
        number, contact_id = somebody(api)
        sms.write(server.url, number, "STOP")
        sms.write(server.url, number, word)
        replied(sms, [number], 2)
        assert state(api, contact_id) == (True, None)
        assert "subscribed again" in sms.to(number)[1].body
    number, contact_id = somebody(api)
    for word in ("STOP", "HELP", "info?", "help"):
        sms.write(server.url, number, word)
    replied(sms, [number], 2)
    clock.advance(3601)
    sms.write(server.url, number, "Info")
    replied(sms, [number], 3)
    assert "STOP" in sms.to(number)[1].body and state(api, contact_id) == (False, "stop_keyword")


def test_what_the_provider_answered_itself(server: Server, api: Client, sms: FakeSms) -> None:
    """Where it says so, STOP counts and is not answered by us too."""
    number, contact_id = somebody(api)
    assert sms.write(server.url, number, "STOP", OptOutType="STOP").status == 200
    other, _ = somebody(api)
    sms.write(server.url, other, "STOP")
    replied(sms, [other], 1)
    assert (sms.to(number), state(api, contact_id)) == ([], (False, "stop_keyword"))


def test_forged_messages_change_nothing(server: Server, api: Client, sms: FakeSms) -> None:
    """No signature, an empty, a wrong one, one for another address or with a field too many: 403, and nothing else."""
    number, contact_id = somebody(api)
    good = sms.writing(server.url, number, "STOP")
    fields = {"From": number, "To": NUMBER, "Body": "STOP", "MessageSid": "SM1"}
    wrong = twilio_form("another token", good.url, fields)
    elsewhere = twilio_form("a-token-of-twilio", good.url, fields, signed="http://elsewhere.example/hooks")
    bare = {"Content-Type": "application/x-www-form-urlencoded"}
    for forged in (
        good._replace(headers=bare), good._replace(headers=bare | {"X-Twilio-Signature": ""}), wrong, elsewhere,
        good._replace(body=good.body + b"&OptOutType=STOP"),
    ):  # fmt: skip
        assert post(forged).status == 403
    assert post(sms.writing_http(server.url, number, "STOP")).status == 404, "that door has no secret"
    assert (state(api, contact_id), api.get("/incoming", contact_id=contact_id).json) == ((True, None), [])


def test_told_twice_counts_once(server: Server, api: Client, sms: FakeSms) -> None:
    """A message that the provider brings again, as it does after an answer it did not hear, is known."""
    number, contact_id = somebody(api)
    again = sms.writing(server.url, number, "hello", sid="SM" + "7" * 32)
    assert [post(again).status for _ in range(3)] == [200] * 3
    assert len(api.get("/incoming", contact_id=contact_id).json) == 1


def test_stop_reaches_what_waits(server: Server, api: Client, sms: FakeSms) -> None:
    """Who wrote STOP to one number gets nothing from another any more, be it a campaign or a single message."""
    number, contact_id = somebody(api)
    list_id = api.post("/lists", {"name": "Spring", "contact_ids": [contact_id]}).expect(201)["id"]
    campaign = {"name": "Spring", "channel": "sms", "template_attributes": {"body": "Hello"},
                "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    made = api.post("/campaigns", campaign).expect(201)["id"]
    sms.write(server.url, number, "STOP", to="+15550008888")
    api.post(f"/campaigns/{made}/send").expect(200)
    [row] = api.wait("/messages", lambda found: bool(found), campaign_id=made)
    assert (row["status"], row["skip_reason"]) == ("skipped", "suppressed_stop_keyword")
    refused = api.post("/messages", {"channel": "sms", "to": number, "body": "x"})
    assert refused.expect(422)["skip_reason"] == "suppressed_stop_keyword"


def test_a_stop_counts_for_what_it_answers(server: Server, api: Client, sms: FakeSms) -> None:
    """Whoever answers a campaign with STOP is counted among those it made leave."""
    number, contact_id = somebody(api)
    list_id = api.post("/lists", {"name": "Summer", "contact_ids": [contact_id]}).expect(201)["id"]
    campaign = {"name": "Summer", "channel": "sms", "template_attributes": {"body": "Hello"},
                "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    made = api.post("/campaigns", campaign).expect(201)["id"]
    api.post(f"/campaigns/{made}/send").expect(200)
    api.wait(f"/campaigns/{made}", lambda row: row["status"] == "completed")
    sms.write(server.url, number, "STOP")
    assert api.get(f"/campaigns/{made}/report").json["unsubscribes"]["count"] == 1
    [heard] = api.get("/incoming", contact_id=contact_id).json
    assert api.get(f"/messages/{heard['answered_message_id']}").json["campaign_id"] == made


def test_a_keyword_starts_a_flow(server: Server, api: Client, sms: FakeSms) -> None:
    """What somebody writes starts the flow that waits for it, whose answer goes back; both are one conversation."""
    number, contact_id = somebody(api, first_name="Ann")
    trigger = {"event": "keyword", "data": {"keywords": ["JOIN"]}}
    steps = [{"body": "Welcome, {{ contact.first_name }}: you wrote {{ event.body }}"}]
    flow = api.post("/flows", {"name": "Joining", "trigger": trigger, "steps": steps, "status": "active"}).expect(201)
    sms.write(server.url, number, "Join, please")
    [answer] = sms.wait(lambda taken: bool(sms.to(number))) and sms.to(number)
    assert answer.body.startswith("Welcome, Ann: you wrote Join, please")
    found = api.wait(
        f"/contacts/{contact_id}/conversation", lambda rows: len(rows) == 2 and rows[0]["status"] == "sent"
    )
    assert [(one["direction"], one["kind"], one["source_name"]) for one in found] == [
        ("out", None, "Joining"), ("in", "keyword", None),
    ]  # fmt: skip
    api.delete(f"/flows/{flow['id']}").expect(200)


def test_the_link_in_an_sms_leaves_sms_alone(server: Server, api: Client, sms: FakeSms) -> None:
    """The page of a link in an SMS speaks of SMS, opts the phone out and not the mail, and STOP is heard on it too."""
    number, contact_id = somebody(api, email="ann@example.org")
    words = {
        "channel": "sms",
        "to": number,
        "transactional": False,
        "body": "{{ unsubscribe_url }} {{ preferences_url }}",
    }
    api.post("/messages", words).expect(201)
    [taken] = sms.wait(lambda _: bool(sms.to(number))) and sms.to(number)
    leave, preferences = (one.removeprefix(server.url) for one in taken.body.split()[:2])
    browser = server.client(None, validate=False)
    page = browser.request("GET", leave).text
    assert "Stop these text messages?" in page and number not in page
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert "news by SMS" in browser.request("POST", leave, b"confirm=1", form).text
    person = api.get(f"/contacts/{contact_id}").json
    assert (person["subscribed_phone"], person["subscribed_email"]) == (False, True)
    sheet = browser.request("GET", preferences).text
    assert "Email to a" in sheet and "Text messages to +14" in sheet
    back = browser.request("POST", preferences, b"act=undo", form).text
    assert "gets SMS from" in back and state(api, contact_id) == (True, None)
    sms.write(server.url, number, "STOP")
    assert 'type="checkbox"' in (sheet := browser.request("GET", preferences).text) and sheet.count("checked>") == 2
