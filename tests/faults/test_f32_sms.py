"""What a provider of SMS may do to us between a request and its answer; nothing is sent twice blindly."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit import sms_crowd
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import NUMBER, FakeSms
from tests.kit.recipients import UNLIMITED
from tests.kit.server import Server

GERMAN = "+4930123456"


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


class Bakery(NamedTuple):
    """A service and its provider."""

    api: Client
    sms: FakeSms
    clock: TestClock
    server: Server


@contextmanager
def opened(home: Path, **settings: str) -> Iterator[Bakery]:
    """Open one with these settings of SMS."""
    clock = TestClock(home / "clock")
    with FakeSms(home) as sms:
        env = sms.env | UNLIMITED | {f"CAMPANERO_SMS__{name.upper()}": value for name, value in settings.items()}
        with Server(env=env, clock=clock).set_up() as server:
            server.give_address()
            server.client().patch("/account", {"sms_opt_out_hint": "Reply STOP to opt out"}).expect(200)
            yield Bakery(server.client(validate=False), sms, clock, server)
            server.stop()


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """One whose requests wait for a second at most."""
    home = tmp_path_factory.mktemp("bakery")
    with opened(home, request_timeout="1s", probe_after="0s", country_senders=f"DE {GERMAN}") as found:
        yield found


@pytest.fixture(scope="module")
def kiosk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """One with two requests at once."""
    with opened(tmp_path_factory.mktemp("kiosk"), connections="2", probe_after="1s") as found:
        yield found


def test_what_was_taken_is_found_and_what_was_not_is_held(bakery: Bakery) -> None:
    """However the answer gets lost: who has it gets no second one, and who has not waits for a person."""
    api, sms, clock, _ = bakery
    reset, failed, cut, late, twice, lost, broken = (f"+1212555010{n}" for n in range(7))
    sms.accept_then_reset(reset)
    sms.accept_then_fail(500, failed)
    sms.accept_then_cut(cut)
    sms.delay(1.5, late, times=1)
    sms.accept_then_reset(twice, times=2)
    sms.fail(503, lost, times=1)
    sms.reset(broken, times=1)
    asked = (reset, failed, cut, late, twice, twice, lost, broken)
    rows = settled(api, clock, *(text(api, to) for to in asked))

    for row in rows[:6]:
        assert row["status"] == "sent" and row["attempts"] == 1, row
        assert row["provider_id"] in [one.sid for one in sms.to(row["to"])]
    assert len({row["provider_id"] for row in rows[:6]}) == 6, "two that say the same are two"
    assert [len(sms.to(to)) for to in asked] == [1, 1, 1, 1, 2, 2, 0, 0]
    assert {row["status"] for row in rows[6:]} == {"uncertain"}
    api.post(f"/messages/{rows[6]['id']}/retry").expect(200)
    [again] = settled(api, clock, rows[6]["id"])
    assert (again["status"], again["segments"], len(sms.to(lost))) == ("sent", 1, 1)


def test_who_is_asked_to_wait_waits_alone(bakery: Bakery) -> None:
    """429 with Retry-After: that sender waits so long, which is nobody's attempt; another sender goes on meanwhile."""
    api, sms, _, _ = bakery
    sms.throttle(2, sender=NUMBER)
    begun, known = time.time(), len(sms.accepted)
    waiting = [text(api, f"+121255501{n:02}") for n in range(50, 52)]
    [spared] = api.wait("/delivery/status", lambda row: row["sms"]["senders"], 10)["sms"]["senders"]
    others = [text(api, f"+4915112345{n:02}") for n in range(20)]
    sms.wait_for(known + 20, 20)

    assert spared["sender"] == NUMBER and "Too Many" in spared["text"]
    sms.behave()
    taken = sms.wait_for(known + 22, 30)[known:]
    assert {one.sender for one in taken[:20]} == {GERMAN}
    assert min(one.at for one in taken[20:]) - begun >= 2
    rows = [api.wait(f"/messages/{number}", lambda row: row["status"] == "sent") for number in (*waiting, *others)]
    assert {row["attempts"] for row in rows} == {1}


def test_a_provider_in_trouble_brings_few_into_doubt(kiosk: Bakery) -> None:
    """5xx to everybody: a few in a row and it is left alone, then tried with one at a time. One that is away: none."""
    api, sms, clock, _ = kiosk
    sms.fail(503)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 60))
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    told = api.get(path).expect(200)["waiting"]
    assert told["reason"] == "unreachable" and "provider of SMS" in told["text"]
    api.wait("/delivery/status", lambda row: row["sms"]["open"], 20)
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    sms.behave()
    doubtful(api, clock, path)
    books = sms_crowd.balance(api, path, sms.accepted)
    assert books.accepted + books.uncertain == 60 and books.copies == books.missing == 0
    assert 3 <= books.uncertain < 30, books

    sms.down()
    path = sms_crowd.send(api, sms_crowd.crowd(api, 30, "q", 100))
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    sms.up()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    rows = api.all("/messages", campaign_id=int(path.rpartition("/")[2]))
    assert {(row["status"], row["attempts"]) for row in rows} == {("sent", 1)}, "nobody's attempt"
    assert len(sms.accepted) == books.accepted + 30


def doubtful(api: Client, clock: TestClock, path: str) -> None:
    """Wait until a campaign is completed, letting time pass while it waits to look for what is in doubt."""
    end = time.monotonic() + 60
    while (row := api.get(path).expect(200))["status"] != "completed":
        assert time.monotonic() < end, row
        if row["waiting"] is not None and row["waiting"]["reason"] == "retries":
            clock.advance(30)
        time.sleep(0.1)


def test_pause_stop_opt_out_and_the_end_are_heard(kiosk: Bakery) -> None:
    """No more leave than were at work: after a pause, an opt-out, a STOP file, SIGTERM; then all others, once."""
    api, sms, _, server = kiosk
    sms.behave()
    sms.hold("first", times=2)
    known = len(sms.accepted)
    path = sms_crowd.send(api, sms_crowd.crowd(api, 12, "r", 200))
    campaign = int(path.rpartition("/")[2])
    sms.wait_reached("first", 2)
    api.post(f"{path}/pause").expect(200)
    sms.release("first")
    api.wait("/delivery/status", lambda row: row["sms"]["queue"]["in_hand"] == 0, 30)
    gone = next(row for row in api.all("/messages", campaign_id=campaign) if row["status"] == "queued")
    api.patch(f"/contacts/{gone['contact_id']}", {"subscribed_phone": False}).expect(200)
    (server.data / "STOP").touch()
    api.post(f"{path}/resume").expect(200)
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 30)
    time.sleep(1.2)  # nothing happens, which has no sign
    assert len(sms.accepted) == known + 2

    sms.hold("last", accept=False, times=2)
    (server.data / "STOP").unlink()
    sms.wait_reached("last", 2)
    process = server.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    while api.get(path).status != 503:
        time.sleep(0.02)
    sms.release("last")
    server.stop()
    assert len(sms.accepted) == known + 4, "what was at work was finished, and nothing new begun"
    server.start()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    books = sms_crowd.balance(api, path, sms.accepted[known:])
    assert (books.accepted, books.copies, books.missing, books.uncertain) == (11, 0, 0, 0)
    assert not sms.to(gone["to"])
    assert api.get(f"/messages/{gone['id']}").expect(200)["skip_reason"] == "unsubscribed"
