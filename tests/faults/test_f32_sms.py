"""F32: what a provider of SMS may do to us between a request and its answer; nothing is sent twice unless it is known."""

import time
from typing import Any

import pytest

from tests.faults.conftest import Texting
from tests.kit import sms_crowd
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.server import Server


def text(api: Client, to: str, body: str = "Your table is ready") -> int:
    """Send one and return its id."""
    return int(api.post("/messages", {"to": to, "channel": "sms", "body": body}).expect(201)["id"])


def settled(api: Client, clock: TestClock, *numbers: int, timeout: float = 60) -> list[Any]:
    """Let time pass until none of these is open, and return them."""
    end = time.monotonic() + timeout
    while True:
        found = [api.get(f"/messages/{number}").expect(200) for number in numbers]
        if all(row["status"] not in ("queued", "held", "sending") for row in found):
            return found
        assert time.monotonic() < end, [(row["to"], row["status"], row["error"]) for row in found]
        if all(row["status"] != "sending" for row in found):
            clock.advance(10)
        time.sleep(0.1)


@pytest.mark.parametrize("in_doubt", ["hold", "resend"])
def test_what_was_taken_is_found_and_what_was_not_is_decided(
    in_doubt: str, texting: Texting, fake_sms: FakeSms, clock: TestClock
) -> None:
    """However the answer gets lost: who has it gets no second one; who has not is held, or sent it once more."""
    reset, failed, cut, late, twice, lost, broken = (f"+1212555010{n}" for n in range(7))
    fake_sms.accept_then_reset(reset)
    fake_sms.accept_then_fail(500, failed)
    fake_sms.accept_then_cut(cut)
    fake_sms.delay(4, late, times=1)
    fake_sms.accept_then_reset(twice, times=2)
    fake_sms.fail(503, lost, times=1)
    fake_sms.reset(broken, times=1)
    server = texting(in_doubt=in_doubt, request_timeout="2s")
    api = server.client(validate=False)
    numbers = [text(api, to) for to in (reset, failed, cut, late, twice, twice, lost, broken)]
    rows = settled(api, clock, *numbers)

    taken = fake_sms.accepted
    for row in rows[:6]:
        assert row["status"] == "sent" and row["attempts"] == 1, row
        assert row["provider_id"] in [one.sid for one in taken if one.to == row["to"]]
    assert len({row["provider_id"] for row in rows[:6]}) == 6, "two that say the same are two"
    assert sorted(one.to for one in taken[:6]) == sorted([reset, failed, cut, late, twice, twice])
    for row in rows[6:]:
        assert row["status"] == ("uncertain" if in_doubt == "hold" else "sent"), row
        assert len(fake_sms.to(row["to"])) == (0 if in_doubt == "hold" else 1)
    assert len(taken) == (6 if in_doubt == "hold" else 8)


def test_a_provider_that_cannot_be_asked_leaves_it_to_a_person(
    texting: Texting, fake_sms: FakeSms, clock: TestClock
) -> None:
    """Nothing is sent again by itself; who is sent it again by a person gets one."""
    fake_sms.accept_then_fail(500, "+12125550100", times=1)
    fake_sms.fail(500, "+12125550101", times=1)
    api = texting(fake_sms.env_http).client(validate=False)
    taken, lost = settled(api, clock, text(api, "+12125550100"), text(api, "+12125550101"))

    assert (taken["status"], lost["status"]) == ("uncertain", "uncertain")
    api.post(f"/messages/{taken['id']}/assume_sent").expect(200)
    api.post(f"/messages/{lost['id']}/retry").expect(200)
    [again] = settled(api, clock, lost["id"])
    assert (again["status"], again["segments"]) == ("sent", 1)
    assert [one.to for one in fake_sms.accepted] == ["+12125550100", "+12125550101"]


def test_who_is_asked_to_wait_waits_alone(texting: Texting, fake_sms: FakeSms, clock: TestClock) -> None:
    """429 with Retry-After: that sender waits as long, which is nobody's attempt; another sender goes on meanwhile."""
    fake_sms.throttle(4, sender="+15550009999", times=1)
    server = texting(country_senders="DE +4930123456")
    api = server.client(validate=False)
    begun = time.time()
    first = text(api, "+12125550100")
    api.wait("/delivery/status", lambda row: row["sms"]["senders"], 10)
    others = [text(api, f"+4915112345{n:02}") for n in range(20)]
    second = text(api, "+12125550101")
    fake_sms.wait_for(20, 10)
    assert time.time() - begun < 4, "the other sender did not wait"

    [spared] = api.get("/delivery/status").expect(200)["sms"]["senders"]
    assert spared["sender"] == "+15550009999" and "Too Many" in spared["text"]
    taken = fake_sms.wait_for(22, 20)
    assert {one.sender for one in taken[:20]} == {"+4930123456"}
    assert min(one.at for one in taken[20:]) - begun >= 4
    rows = [api.wait(f"/messages/{number}", lambda row: row["status"] == "sent") for number in (first, second, *others)]
    assert {row["attempts"] for row in rows} == {1}


def test_a_provider_in_trouble_brings_few_into_doubt(texting: Texting, fake_sms: FakeSms, clock: TestClock) -> None:
    """5xx to everybody: a few in a row and it is left alone, then tried with one at a time; then all go out."""
    fake_sms.fail(503)
    server = texting(connections="4")
    api = server.client(validate=False)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 60))
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    told = api.get(path).expect(200)["waiting"]
    assert told["reason"] == "unreachable" and "provider of SMS" in told["text"]
    api.wait("/delivery/status", lambda row: row["sms"]["open"], 20)
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    fake_sms.behave()
    doubtful(api, clock, path)
    books = sms_crowd.balance(api, path, fake_sms.accepted)
    assert books.accepted + books.uncertain == 60 and books.copies == books.missing == 0
    assert 3 <= books.uncertain <= 10, books


def doubtful(api: Client, clock: TestClock, path: str) -> None:
    """Wait until a campaign is completed, letting time pass while it waits to look for what is in doubt."""
    end = time.monotonic() + 60
    while (row := api.get(path).expect(200))["status"] != "completed":
        assert time.monotonic() < end, row
        if row["waiting"] is not None and row["waiting"]["reason"] == "retries":
            clock.advance(30)
        time.sleep(0.1)


def test_a_provider_that_is_away_costs_nobody_an_attempt(texting: Texting, fake_sms: FakeSms, clock: TestClock) -> None:
    """No connection: told, probed, and all go out when it is back, once."""
    server = texting()
    api = server.client(validate=False)
    fake_sms.down()
    path = sms_crowd.send(api, sms_crowd.crowd(api, 30))
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    fake_sms.up()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    books = sms_crowd.balance(api, path, fake_sms.accepted)
    assert (books.accepted, books.copies, books.missing) == (30, 0, 0)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=1)} == {1}


def test_an_open_request_finishes_before_the_end(texting: Texting, fake_sms: FakeSms) -> None:
    """SIGTERM waits for the provider's answer and begins nothing new; nothing is in doubt."""
    fake_sms.hold("door", accept=False)
    server: Server = texting(connections="2")
    api = server.client(validate=False)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 6))
    fake_sms.wait_reached("door", 2)
    server.process.send_signal(15)
    with pytest.raises(OSError):
        while True:
            api.get(path)
            time.sleep(0.05)
    fake_sms.release("door")
    assert server.process.wait(30) == 0
    assert len(fake_sms.accepted) == 2
    server._gone()
    server.start()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    books = sms_crowd.balance(api, path, fake_sms.accepted)
    assert (books.accepted, books.copies, books.uncertain) == (6, 0, 0)


def test_pause_stop_and_opt_out_are_heard(texting: Texting, fake_sms: FakeSms) -> None:
    """After a pause, the stop switch and the STOP file no more leave than were at work; who opts out gets nothing."""
    fake_sms.hold("door")
    server = texting(connections="2")
    api = server.client(validate=False)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 12))
    fake_sms.wait_reached("door", 2)
    api.post(f"{path}/pause").expect(200)
    fake_sms.release("door")
    api.wait("/delivery/status", lambda row: row["sms"]["queue"]["in_hand"] == 0, 10)
    assert len(fake_sms.accepted) == 2
    gone = next(row for row in api.all("/messages", campaign_id=1) if row["status"] == "queued")
    api.patch(f"/contacts/{gone['contact_id']}", {"subscribed_phone": False}).expect(200)
    (server.data / "STOP").touch()
    api.post(f"{path}/resume").expect(200)
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 10)
    time.sleep(1.5)  # nothing happens, which has no sign
    assert len(fake_sms.accepted) == 2
    (server.data / "STOP").unlink()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    assert len(fake_sms.accepted) == 11 and not fake_sms.to(gone["to"])
    assert api.get(f"/messages/{gone['id']}").expect(200)["skip_reason"] == "unsubscribed"
