"""SMS in the built-in inbox, and simulated events of captured SMS."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server


def send_captured(api: Client, number: str, **body: Any) -> tuple[Any, Any]:
    """Send an SMS and return it once it is sent, with the captured message."""
    api.post("/contacts", {"phone": number})
    message = api.post("/messages", {"channel": "sms", "to": number, "body": f"Hello {number}", **body}).expect(201)
    [row] = api.wait("/capture", bool, message_id=message["id"])
    return api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent"), row


def simulate(api: Client, row: Any, action: str, **more: Any) -> Any:
    """Simulate an event and return the message afterwards."""
    return api.post(f"/capture/{row['id']}/simulate", {"action": action, **more}).expect(200)["message"]


def events_after_sending(api: Client, contact_id: int) -> list[str]:
    """Return the sorted names of a contact's events, without those of creating it and sending."""
    result = api.get("/events", contact_id=contact_id).expect(200)
    return sorted(row["event"] for row in result if row["event"] not in ("sms_sent", "contact_add", "opt_in"))


def test_read_captured_sms(api: Client) -> None:
    """Captured SMS are listed by channel, searched, and read with text, segments and alphabet."""
    created, row = send_captured(api, "+15550200001", body="Ein schönes Stück: 5 €")
    assert (row["channel"], row["to"], row["subject"], row["preview"]) == (
        "sms", created["to"], None, "Ein schönes Stück: 5 €")  # fmt: skip
    other = send_captured(api, "+15550200002", body="Ж" * 71)[1]
    [mail] = api.wait("/capture", bool, message_id=api.post(
        "/messages", {"to": "m@example.org", "subject": "s", "body": "b"}).expect(201)["id"])  # fmt: skip
    assert [row["id"] for row in api.get("/capture", channel="sms", limit=2).expect(200)] == [other["id"], row["id"]]
    assert mail["id"] in [row["id"] for row in api.get("/capture", channel="email").expect(200)]
    assert [row["id"] for row in api.get("/capture", search="schönes").expect(200)] == [row["id"]]
    whole = api.get(f"/capture/{row['id']}").expect(200)
    assert (whole["text"], whole["html"], whole["headers"]) == ("Ein schönes Stück: 5 €", None, [])
    assert (whole["segments"], whole["alphabet"], whole["characters"]) == (1, "GSM-7", 22)
    assert (whole["message"]["id"], whole["message"]["segments"]) == (created["id"], 1)
    whole = api.get(f"/capture/{other['id']}").expect(200)
    assert (whole["segments"], whole["alphabet"], whole["characters"]) == (2, "UCS-2", 71)
    raw = api.get(f"/capture/{row['id']}/raw")
    assert (raw.headers["Content-Type"], raw.body.decode()) == ("text/plain; charset=utf-8", "Ein schönes Stück: 5 €")
    assert api.get(f"/capture/{mail['id']}").expect(200)["segments"] is None


# action: status, events, (subscribed, suppression)
PLAYS: dict[str, tuple[str, list[str], tuple[bool, str | None]]] = {
    "deliver": ("delivered", ["sms_delivered"], (True, None)),
    "fail": ("bounced", ["sms_failed"], (True, None)),
    "bounce": ("bounced", ["sms_failed"], (True, "hard_bounce")),
    "soft_bounce": ("bounced", ["sms_failed"], (True, None)),
    "stop": ("sent", ["opt_out"], (False, "stop_keyword")),
    "help": ("sent", [], (True, None)),
    "unsubscribe": ("sent", ["opt_out"], (False, None)),
}


@pytest.mark.parametrize("action", PLAYS)
def test_simulated_sms_events(action: str, api: Client) -> None:
    """Each simulated event has the effects of the real one, and a repeated one is recorded once."""
    status, events, address = PLAYS[action]
    created, row = send_captured(api, f"+155502100{list(PLAYS).index(action):02}")
    for _ in range(2):
        assert simulate(api, row, action)["status"] == status
    assert events_after_sending(api, created["contact_id"]) == events
    [channel] = api.get(f"/contacts/{created['contact_id']}").expect(200)["channels"]
    assert (channel["subscribed"], channel["suppression_reason"]) == address


def test_simulated_sms_replies(api: Client) -> None:
    """A reply is an event, keywords opt out and in, and the replies of the service are captured too."""
    number = "+15550200100"
    created, row = send_captured(api, number)
    simulate(api, row, "reply", text="When do you open?")
    [heard] = api.get("/events", event="message", contact_id=created["contact_id"]).expect(200)
    assert heard["data"]["body"] == "When do you open?" and heard["data"]["message_id"] == created["id"]
    simulate(api, row, "stop")
    mine = api.wait("/capture", lambda rows: len(rows) == 2, channel="sms", search=number)
    assert api.post("/messages", {"channel": "sms", "to": number, "body": "x"}).status == 422
    simulate(api, row, "stop")
    simulate(api, row, "start")
    api.wait("/capture", lambda rows: len(rows) == 3, channel="sms", search=number)
    assert {row["channel"] for row in mine} == {"sms"}
    assert send_captured(api, number)[0]["status"] == "sent"


def test_impossible_events_are_rejected(api: Client) -> None:
    """An event that the channel does not have, and a reply without text, are 422 at their field."""
    row = send_captured(api, "+15550200200")[1]
    [mail] = api.wait("/capture", bool, message_id=api.post(
        "/messages", {"to": "n@example.org", "subject": "s", "body": "b"}).expect(201)["id"])  # fmt: skip
    error = [(row, {"action": action}, "action") for action in ("open", "complain")]
    error += [(mail, {"action": action}, "action") for action in ("fail", "stop", "start", "help")]
    error += [(row, {"action": "reply", "text": " \n"}, "text"), (row, {"action": "click"}, "link"),
                (row, {"action": "reply", "text": "x" * 1601}, "text")]  # fmt: skip
    for captured, body, field in error:
        fault = api.post(f"/capture/{captured['id']}/simulate", body).expect(422)
        assert list(fault["validation_errors"]) == [field], body


def test_simulated_events_of_test_sms(api: Client, server: Server) -> None:
    """Events of a test SMS are marked as tests, and nothing is suppressed."""
    tester = server.client(server.new_key("sms tests", "--test"))
    created, row = send_captured(tester, "+15550200300")
    simulate(tester, row, "bounce")
    events = api.get("/events", resource_uid=f"message:{created['id']}").expect(200)
    assert {event["event"] for event in events} == {"sms_sent", "sms_failed"} and all(event["test"] for event in events)
    [channel] = api.get(f"/contacts/{created['contact_id']}").expect(200)["channels"]
    assert channel["suppression_reason"] is None
