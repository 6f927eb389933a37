"""Receipts of an SMS provider: in any order and repeated they have one result, one event each, one consequence."""

import random
from pathlib import Path

import pytest

from tests.api.sms_world import World, world
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms, post
from tests.kit.server import Server
from tests.kit.webhook_receiver import Receiver

__all__ = ["world"]

STATUSES = ["queued", "sending", "sent", "delivered"]


def test_shuffled_and_repeated_receipts(world: World) -> None:
    """Receipts of all statuses in any order, each twice, end in `delivered` with one event."""
    orders = [random.Random(seed).sample(STATUSES * 2, 8) for seed in range(4)]
    for order in orders:
        message, taken = world.send_sms()
        responses = {world.sms.send_receipt(taken, status).status for status in order}
        assert responses == {200} and world.state(message) == ("delivered", ["sms_delivered"], None, True)
        assert world.api.get(f"/messages/{message['id']}").expect(200)["delivered_at"] is not None


# code: class, suppression, subscribed
MEANINGS = {
    30003: ("unreachable", None, True), 30005: ("hard", "hard_bounce", True), 30006: ("hard", "hard_bounce", True),
    30007: ("filtered", None, True), 30008: ("refused", None, True), 30034: ("unregistered", None, True),
    21610: ("opted_out", "stop_keyword", False), 99999: ("refused", None, True), None: ("refused", None, True),
}  # fmt: skip


@pytest.mark.parametrize("code", MEANINGS)
def test_error_codes_of_receipts(code: int | None, world: World) -> None:
    """A failed SMS is `bounced`; its code decides on suppression and opt-out."""
    kind, suppression, subscribed = MEANINGS[code]
    message, taken = world.send_sms()
    for status in ("undelivered", "sent", "undelivered", "delivered"):
        assert world.sms.send_receipt(taken, status, code if status == "undelivered" else None).status == 200
    status, events, reason, consent = world.state(message)
    assert (status, reason, consent) == ("bounced", suppression, subscribed)
    assert events == (["opt_out", "sms_failed"] if kind == "opted_out" else ["sms_failed"])
    [event] = world.api.get("/events", event="sms_failed", resource_uid=f"message:{message['id']}").expect(200)
    texts = event["data"]
    assert (texts["reason"], texts["class"], texts["source"]) == ("returned", kind, "twilio")
    assert texts["code"] == (None if code is None else str(code))
    now = world.api.get(f"/messages/{message['id']}").expect(200)
    assert now["error"]["code"] == "returned" and now["bounced_at"] is not None
    again = world.api.post("/messages", {"channel": "sms", "to": message["to"], "body": "Again"})
    assert again.status == (422 if suppression else 201)


def test_an_unreachable_number_is_suppressed(world: World) -> None:
    """The third failure in a row within a month suppresses the number; a delivery resets the count."""
    number = world.number()
    for receipt in ("undelivered", "undelivered", "delivered", "undelivered", "undelivered"):
        message, taken = world.send_sms(number)
        world.sms.send_receipt(taken, receipt, None if receipt == "delivered" else 30003)
        assert world.state(message)[2] is None
        world.clock.advance(1)
    message, taken = world.send_sms(number)
    world.sms.send_receipt(taken, "undelivered", 30003)
    assert world.state(message)[2] == "soft_bounce"


def test_a_receipt_settles_a_lost_response(world: World) -> None:
    """A receipt for a message whose response was lost sets its status, and nothing is sent twice."""
    number = world.number()
    world.sms.accept_then_reset(to=number, times=1)
    message = world.api.post("/messages", {"channel": "sms", "to": number, "body": "Hello"}).expect(201)
    [taken] = world.sms.wait(lambda all_taken: any(message.to == number for message in all_taken)) and world.sms.to(
        number
    )
    assert world.sms.send_receipt(taken, "delivered").status == 200
    row = world.api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "delivered")
    assert row["provider_id"] == taken.sid and world.sms.to(number) == [taken]
    assert sorted(event["event"] for event in row["events"]) == ["sms_delivered", "sms_sent"]


def test_receipts_before_the_response(world: World) -> None:
    """Receipts that arrive before the response of the send are applied once."""
    number = world.number()
    world.sms.hold("receipts", to=number)
    message = world.api.post("/messages", {"channel": "sms", "to": number, "body": "Hello"}).expect(201)
    world.sms.wait_reached("receipts")
    [taken] = world.sms.to(number)
    for status in ("delivered", "sent"):
        assert world.sms.send_receipt(taken, status).status == 200
    assert world.api.get(f"/messages/{message['id']}").expect(200)["status"] == "sending"
    world.sms.release("receipts")
    row = world.api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "delivered")
    assert sorted(event["event"] for event in row["events"]) == ["sms_delivered", "sms_sent"]


def test_a_receipt_of_an_unknown_message(world: World) -> None:
    """A signed receipt of an unknown message is a 200 without effect, so that the provider does not retry it."""
    message, taken = world.send_sms()
    stranger = taken.__class__(
        **{**taken.__dict__, "sid": "SM" + "f" * 32, "callback": taken.callback.partition("?")[0]}
    )
    assert post(world.sms.receipt(stranger, "delivered")).status == 200
    assert world.state(message) == ("sent", [], None, True)


def test_many_faults_of_the_provider(world: World) -> None:
    """With lost responses, 500, 429 and shuffled receipts each contact gets one SMS.

    Every message ends as in its last receipt, with one event each.
    """
    numbers = [world.number() for _ in range(24)]
    world.sms.accept_then_reset(to=numbers[0], times=1)
    world.sms.accept_then_cut(to=numbers[7], times=1)
    world.sms.accept_then_fail(to=numbers[14], times=1)
    world.sms.throttle(1, to=numbers[21], times=1)
    world.sms.send_receipts_for_all("queued", "sent", "delivered", repeat=2, shuffled=True, failed=0.3, code=30008)
    try:
        message = [
            world.api.post("/messages", {"channel": "sms", "to": number, "body": "Hello"}).expect(201)
            for number in numbers
        ]
        world.clock.advance(2)
        ended = ("delivered", "bounced")
        rows = [world.api.wait(f"/messages/{part['id']}", lambda row: row["status"] in ended) for part in message]
        result = world.sms.wait_for_receipts()
    finally:
        world.sms.send_receipts_for_all()
    assert all(row["answered"] == 200 for row in result)
    # By now all receipts have been processed
    rows = [world.api.get(f"/messages/{row['id']}").expect(200) for row in rows]
    for number, row in zip(numbers, rows, strict=True):
        [taken] = world.sms.to(number)
        failed = {row["status"] for row in result if row["sid"] == taken.sid} >= {"undelivered"}
        assert (row["provider_id"], row["status"]) == (taken.sid, "bounced" if failed else "delivered")
        assert sorted(event["event"] for event in row["events"]) == [
            "sms_failed" if failed else "sms_delivered",
            "sms_sent",
        ]


def test_webhooks_for_sms_events(world: World, tmp_path: Path) -> None:
    """Webhooks get each delivery, failure and incoming message once."""
    names = ["message", "sms_delivered", "sms_failed"]
    with Receiver(tmp_path) as receiver:
        hook = world.api.post("/webhooks", {"url": receiver.url, "events": names}).expect(201)
        for status in ("delivered", "undelivered"):
            message, taken = world.send_sms()
            for _ in range(2):
                world.sms.send_receipt(taken, status)
        assert world.sms.send_incoming(world.server.url, message["to"], "Good morning").status == 200
        arrived = receiver.wait(lambda requests: len(requests) >= 3)
        world.api.send("DELETE", f"/webhooks/{hook['id']}").expect(200)
    assert sorted(event_request.event["event"] for event_request in arrived) == names
    assert {event_request.event["contact_id"] is not None for event_request in arrived} == {True}


def test_receipts_of_the_generic_provider(tmp_path: Path) -> None:
    """The generic provider reports deliveries, failures, and messages whose response was lost."""
    with FakeSms(tmp_path) as sms, Server(env=sms.env_http).set_up() as server:
        api = server.client()
        own_world = World(server, api, sms, TestClock(tmp_path / "clock"))
        message, taken = own_world.send_sms()
        # Without a sender in the account the provider uses its own number
        assert (message["from"], taken.fields["from"]) == (None, None)
        api.patch("/account", {"sms_from": "+15550009999"}).expect(200)
        for status, code in (("sent", None), ("undelivered", 30005), ("delivered", None)):
            assert sms.send_receipt(taken, status, code).status == 200
        assert own_world.state(message) == ("bounced", ["sms_failed"], "hard_bounce", True)
        number = own_world.number()
        sms.accept_then_reset(to=number, times=1)
        created = api.post("/messages", {"channel": "sms", "to": number, "body": "Hello"}).expect(201)
        # This provider has no look-up, so the message stays uncertain
        api.wait(f"/messages/{created['id']}", lambda row: row["status"] == "uncertain")
        [taken] = sms.to(number)
        assert sms.send_receipt(taken, "delivered").status == 200
        row = api.get(f"/messages/{created['id']}").expect(200)
        assert (row["status"], row["provider_id"], row["segments"]) == ("delivered", taken.sid, 1)
        server.stop()
