"""Uncertain SMS beside others: each is looked up under its own id, and look-ups delay no other message (P13)."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.faults.test_sms_provider_faults import Bakery, open_bakery, send_sms, wait_until_settled
from tests.kit import sms_recipients
from tests.kit.clock import TestClock
from tests.kit.fake_sms import post


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """A service with four requests at a time."""
    home = tmp_path_factory.mktemp("stall")
    with open_bakery(home, connections="4", request_timeout="15s", probe_after="0s", retry_after="1,1,1") as bakery:
        yield bakery


def test_a_look_up_does_not_match_another_sms(stall: Bakery) -> None:
    """An identical SMS that is sent during the look-up of the first is not taken for it."""
    api, sms, clock, _ = stall
    to = "+12125550301"
    sms.reset(to, times=1)
    first = send_sms(api, to)
    api.wait(f"/messages/{first}", lambda row: row["attempts"] == 1)
    sms.control(rules=[{"look_ups": True, "to": to, "gate": "asked", "times": 1}])
    sms.hold("answer", to, times=1)
    clock.advance(6)
    sms.wait_reached("asked")
    second = send_sms(api, to)
    sms.wait_reached("answer")
    now = api.get(f"/messages/{first}").expect(200)["updated_at"]
    sms.release("asked")
    api.wait(f"/messages/{first}", lambda row: row["status"] == "sent" or row["updated_at"] > now)
    sms.release("answer")
    rows = wait_until_settled(api, clock, first, second)
    assert [row["status"] for row in rows] == ["uncertain", "sent"]
    assert len(sms.to(to)) == 1


@pytest.mark.full
def test_hanging_look_ups_delay_no_other_sms(stall: Bakery) -> None:
    """While look-ups of several uncertain SMS hang, new SMS leave at once."""
    api, sms, clock, _ = stall
    sms.reset("+1212555032*")
    uncertain = []
    for n in range(6):
        uncertain.append(send_sms(api, f"+1212555032{n}"))
        api.wait(f"/messages/{uncertain[-1]}", lambda row: row["attempts"] == 1)
    sms.control(rules=[{"look_ups": True, "gate": "never"}])
    clock.advance(6)
    sms.wait_reached("never")
    started = time.monotonic()
    for n in range(8):
        send_sms(api, f"+1212555033{n}")
    sms.wait(lambda accepted: sum(sms_message.to.startswith("+1212555033") for sms_message in accepted) == 8, 30)
    assert time.monotonic() - started < 14, "they wait for a question of 15 s"
    sms.clear_rules()
    sms.release("never")
    rows = wait_until_settled(api, clock, *uncertain)
    assert {row["status"] for row in rows} == {"uncertain"}


def test_a_receipt_prevents_a_second_copy(stall: Bakery) -> None:
    """A delivery receipt for the first copy, while a resend waits, prevents the second copy."""
    api, sms, clock, _ = stall
    to = "+12125550340"
    sms.hide(100_000, to, times=1)
    message_id = send_sms(api, to)
    [row] = wait_until_settled(api, clock, message_id)
    assert row["status"] == "uncertain"
    sms.control(rules=[{"to": to, "gate": "again", "status": 429, "times": 1, "headers": {"Retry-After": "2"}}])
    api.post(f"/messages/{message_id}/retry").expect(200)
    sms.wait_reached("again")
    [copy] = sms.to(to)
    assert post(sms.receipt(copy, "delivered")).status == 200
    sms.release("again")
    row = api.wait(f"/messages/{message_id}", lambda row: row["status"] not in ("queued", "held", "sending"), 20)
    assert row["status"] == "delivered" and len(sms.to(to)) == 1, row


@pytest.mark.full
def test_a_resend_respects_quiet_hours(stall: Bakery) -> None:
    """An uncertain marketing SMS that a user resends in the recipient's quiet hours is held."""
    api, sms, clock, _ = stall
    to = "+12125550350"
    api.post("/contacts", {"phone": to}).expect(201)
    sms.reset(to, times=1)
    offer = {"channel": "sms", "to": to, "body": "Only today", "transactional": False}
    [row] = wait_until_settled(api, clock, api.post("/messages", offer).expect(201)["id"])
    assert row["status"] == "uncertain"
    api.patch("/account", {"sms_quiet_hours": _current_quiet_hours(clock, "America/New_York")}).expect(200)
    api.post(f"/messages/{row['id']}/retry").expect(200)
    row = api.wait(f"/messages/{row['id']}", lambda row: row["status"] in ("held", "sent"))
    assert row["status"] == "held" and not sms.to(to)


def _current_quiet_hours(clock: TestClock, zone: str) -> dict[str, str]:
    """Return quiet hours that began two hours ago and end in four."""
    now = datetime.fromtimestamp(clock.now(), ZoneInfo(zone))
    begin, end = (f"{(now + timedelta(hours=hours)):%H:%M}" for hours in (-2, 4))
    return {"from": begin, "to": end}


def test_a_changed_sender_leaves_the_sms_uncertain(stall: Bakery) -> None:
    """After the sender setting changed, a look-up cannot tell that the provider lacks the SMS: it stays uncertain."""
    api, sms, _, server = stall
    api.patch("/account", {"sms_quiet_hours": None}).expect(200)
    sms.hold("dead", times=1)
    path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, 1, "s", 360))
    sms.wait_reached("dead")
    to, [row] = sms_recipients.phone(360), api.get("/messages", campaign_id=int(path.rpartition("/")[2])).expect(200)
    message_id = row["id"]
    server.kill()
    server.env["CAMPANERO_SMS__TWILIO__FROM"] = "+15550008888"
    server.start()
    row = api.wait(f"/messages/{message_id}", lambda row: row["status"] != "sending")
    assert row["status"] == "uncertain" and "does not have" not in row["error"]["text"], row
    [copy] = sms.to(to)
    assert post(sms.receipt(copy, "delivered")).status == 200
    assert api.get(f"/messages/{message_id}").expect(200)["status"] == "delivered"


@pytest.mark.full
def test_missing_provider_settings_pause_the_campaign(stall: Bakery) -> None:
    """A campaign whose provider settings are removed pauses with the reason, and no message fails."""
    api, sms, _, server = stall
    sms.hold("gone", times=4)
    path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, 6, "g", 370))
    sms.wait_reached("gone", 4)
    server.kill()
    for name in sms.env:
        del server.env[name]
    server.env["CAMPANERO_SMS__COUNTRY_SENDERS"] = "US +15550008888"
    server.start()
    row = api.wait(path, lambda row: row["status"] == "paused", 20)
    assert row["pause_reason"] == "transport" and "sms.twilio.account_sid" in row["data"]["pause_detail"]
    assert (row["stats"]["pending"], row["stats"]["failed"]) == (6, 0)
