"""P13: SMS in doubt beside others: each finds its own, and nobody waits for what is looked for."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.faults.test_f32_sms import Bakery, opened, settled, text
from tests.kit import sms_crowd
from tests.kit.clock import TestClock
from tests.kit.fake_sms import post


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """One with four requests at once."""
    home = tmp_path_factory.mktemp("stall")
    with opened(home, connections="4", request_timeout="15s", probe_after="0s", retry_after="1,1,1") as found:
        yield found


def test_one_that_leaves_during_a_look_up_is_not_taken_for_another(stall: Bakery) -> None:
    """The same words to the same number again while the first is looked for: the second's name is the second's."""
    api, sms, clock, _ = stall
    to = "+12125550301"
    sms.reset(to, times=1)
    first = text(api, to)
    api.wait(f"/messages/{first}", lambda row: row["attempts"] == 1)
    sms.control(rules=[{"look_ups": True, "to": to, "gate": "asked", "times": 1}])
    sms.hold("answer", to, times=1)
    clock.advance(6)
    sms.wait_reached("asked")
    second = text(api, to)
    sms.wait_reached("answer")
    now = api.get(f"/messages/{first}").expect(200)["updated_at"]
    sms.release("asked")
    api.wait(f"/messages/{first}", lambda row: row["status"] == "sent" or row["updated_at"] > now)
    sms.release("answer")
    rows = settled(api, clock, first, second)
    assert [row["status"] for row in rows] == ["uncertain", "sent"]
    assert len(sms.to(to)) == 1


def test_look_ups_that_hang_keep_nobody_waiting(stall: Bakery) -> None:
    """Many are looked for at a provider that does not answer that: a new message leaves at once."""
    api, sms, clock, _ = stall
    sms.reset("+1212555032*")
    doubtful = []
    for n in range(6):
        doubtful.append(text(api, f"+1212555032{n}"))
        api.wait(f"/messages/{doubtful[-1]}", lambda row: row["attempts"] == 1)
    sms.control(rules=[{"look_ups": True, "gate": "never"}])
    clock.advance(6)
    sms.wait_reached("never")
    begun = time.monotonic()
    for n in range(8):
        text(api, f"+1212555033{n}")
    sms.wait(lambda found: sum(one.to.startswith("+1212555033") for one in found) == 8, 30)
    assert time.monotonic() - begun < 14, "they wait for a question of 15 s"
    sms.behave()
    sms.release("never")
    rows = settled(api, clock, *doubtful)
    assert {row["status"] for row in rows} == {"uncertain"}


def test_what_was_told_of_a_first_copy_counts_before_a_second_leaves(stall: Bakery) -> None:
    """A receipt for the first comes while a person's second is asked to wait: no second goes."""
    api, sms, clock, _ = stall
    to = "+12125550340"
    sms.hide(100_000, to, times=1)
    one = text(api, to)
    [row] = settled(api, clock, one)
    assert row["status"] == "uncertain"
    sms.control(rules=[{"to": to, "gate": "again", "status": 429, "times": 1, "headers": {"Retry-After": "2"}}])
    api.post(f"/messages/{one}/retry").expect(200)
    sms.wait_reached("again")
    [copy] = sms.to(to)
    assert post(sms.receipt(copy, "delivered")).status == 200
    sms.release("again")
    row = api.wait(f"/messages/{one}", lambda row: row["status"] not in ("queued", "held", "sending"), 20)
    assert row["status"] == "delivered" and len(sms.to(to)) == 1, row


def test_one_that_a_person_sends_again_rests_at_night_too(stall: Bakery) -> None:
    """Marketing in doubt that a person sends again in the night of whoever gets it waits for their morning."""
    api, sms, clock, _ = stall
    to = "+12125550350"
    api.post("/contacts", {"phone": to}).expect(201)
    sms.reset(to, times=1)
    offer = {"channel": "sms", "to": to, "body": "Only today", "transactional": False}
    [row] = settled(api, clock, api.post("/messages", offer).expect(201)["id"])
    assert row["status"] == "uncertain"
    api.patch("/account", {"sms_quiet_hours": _now(clock, "America/New_York")}).expect(200)
    api.post(f"/messages/{row['id']}/retry").expect(200)
    row = api.wait(f"/messages/{row['id']}", lambda row: row["status"] in ("held", "sent"))
    assert row["status"] == "held" and not sms.to(to)


def _now(clock: TestClock, zone: str) -> dict[str, str]:
    """Return quiet hours that have begun and go on for some hours."""
    now = datetime.fromtimestamp(clock.now(), ZoneInfo(zone))
    begin, end = (f"{(now + timedelta(hours=away)):%H:%M}" for away in (-2, 4))
    return {"from": begin, "to": end}


def test_a_doubt_of_another_sender_is_not_called_absent(stall: Bakery) -> None:
    """Who sent it is changed while the service is dead: nobody can say any more that the provider does not have it."""
    api, sms, _, server = stall
    api.patch("/account", {"sms_quiet_hours": None}).expect(200)
    sms.hold("dead", times=1)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 1, "s", 360))
    sms.wait_reached("dead")
    to, [row] = sms_crowd.phone(360), api.get("/messages", campaign_id=int(path.rpartition("/")[2])).expect(200)
    one = row["id"]
    server.kill()
    server.env["CAMPANERO_SMS__TWILIO__FROM"] = "+15550008888"
    server.start()
    row = api.wait(f"/messages/{one}", lambda row: row["status"] != "sending")
    assert row["status"] == "uncertain" and "does not have" not in row["error"]["text"], row
    [copy] = sms.to(to)
    assert post(sms.receipt(copy, "delivered")).status == 200
    assert api.get(f"/messages/{one}").expect(200)["status"] == "delivered"


def test_a_provider_whose_settings_are_gone_is_asked_nothing(stall: Bakery) -> None:
    """Taken out of the settings while a campaign was at work: it pauses in words, and nobody is blamed."""
    api, sms, _, server = stall
    sms.hold("gone", times=4)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 6, "g", 370))
    sms.wait_reached("gone", 4)
    server.kill()
    for name in sms.env:
        del server.env[name]
    server.env["CAMPANERO_SMS__COUNTRY_SENDERS"] = "US +15550008888"
    server.start()
    row = api.wait(path, lambda row: row["status"] == "paused", 20)
    assert row["pause_reason"] == "transport" and "sms.twilio.account_sid" in row["data"]["pause_detail"]
    assert (row["stats"]["pending"], row["stats"]["failed"]) == (6, 0)
