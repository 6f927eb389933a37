"""Faults of an SMS provider between a request and its response: no SMS is blindly sent twice."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit import sms_recipients
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import NUMBER, FakeSms
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.server import Server
from tests.kit.slow_tls import SlowTls

GERMAN = "+4930123456"


def send_sms(api: Client, to: str, body: str = "Your table is ready") -> int:
    """Send an SMS and return its message id."""
    return int(api.post("/messages", {"to": to, "channel": "sms", "body": body}).expect(201)["id"])


def wait_until_settled(api: Client, clock: TestClock, *numbers: int, timeout: float = 60) -> list[Any]:
    """Advance the clock until none of these messages is open, and return them."""
    end = time.monotonic() + timeout
    while True:
        rows = [api.get(f"/messages/{number}").expect(200) for number in numbers]
        if all(row["status"] not in ("queued", "held", "sending") for row in rows):
            return rows
        assert time.monotonic() < end, [(row["to"], row["status"], row["error"]) for row in rows]
        if all(row["status"] != "sending" for row in rows):
            clock.advance(10)
        time.sleep(0.1)


class Bakery(NamedTuple):
    """A service, its SMS provider and its clock."""

    api: Client
    sms: FakeSms
    clock: TestClock
    server: Server


@contextmanager
def open_bakery(home: Path, **settings: str) -> Iterator[Bakery]:
    """Start a service with these SMS settings."""
    clock = TestClock(home / "clock")
    with FakeSms(home) as sms:
        env = sms.env | NO_RATE_LIMITS | {f"CAMPANERO_SMS__{name.upper()}": value for name, value in settings.items()}
        with Server(env=env, clock=clock).set_up() as server:
            server.set_postal_address()
            server.client().patch("/account", {"sms_opt_out_hint": "Reply STOP to opt out"}).expect(200)
            yield Bakery(server.client(validate=False), sms, clock, server)
            server.stop()


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """A service with a request timeout of a second."""
    home = tmp_path_factory.mktemp("bakery")
    with open_bakery(home, request_timeout="1s", probe_after="0s", country_senders=f"DE {GERMAN}") as running:
        yield running


@pytest.fixture(scope="module")
def kiosk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """A service with two requests at a time."""
    with open_bakery(tmp_path_factory.mktemp("kiosk"), connections="2", probe_after="1s") as running:
        yield running


def test_lost_responses_are_resolved_by_look_ups(bakery: Bakery) -> None:
    """After a lost response, an SMS that the provider has is not sent again, and one that it lacks waits for a user."""
    api, sms, clock, _ = bakery
    reset, failed, cut, late, twice, lost, broken = (f"+1212555010{n}" for n in range(7))
    sms.accept_then_reset(reset)
    sms.accept_then_fail(500, failed)
    sms.accept_then_cut(cut)
    sms.delay(1.5, late, times=1)
    sms.accept_then_reset(twice, times=2)
    sms.fail(503, lost, times=1)
    sms.reset(broken, times=1)
    numbers = (reset, failed, cut, late, twice, twice, lost, broken)
    rows = wait_until_settled(api, clock, *(send_sms(api, to) for to in numbers))

    for row in rows[:6]:
        assert row["status"] == "sent" and row["attempts"] == 1, row
        assert row["provider_id"] in [accepted.sid for accepted in sms.to(row["to"])]
    assert len({row["provider_id"] for row in rows[:6]}) == 6, "two identical SMS have two provider ids"
    assert [len(sms.to(to)) for to in numbers] == [1, 1, 1, 1, 2, 2, 0, 0]
    assert {row["status"] for row in rows[6:]} == {"uncertain"}
    api.post(f"/messages/{rows[6]['id']}/retry").expect(200)
    [again] = wait_until_settled(api, clock, rows[6]["id"])
    assert (again["status"], again["segments"], len(sms.to(lost))) == ("sent", 1, 1)


def test_a_throttled_sender_waits_alone(bakery: Bakery) -> None:
    """After a 429 with Retry-After that sender waits, no attempt is counted, and another sender goes on."""
    api, sms, _, _ = bakery
    sms.throttle(2, sender=NUMBER)
    started, accepted_before = time.time(), len(sms.accepted)
    waiting = [send_sms(api, f"+121255501{n:02}") for n in range(50, 52)]
    [throttled] = api.wait("/delivery/status", lambda row: row["sms"]["senders"], 10)["sms"]["senders"]
    others = [send_sms(api, f"+4915112345{n:02}") for n in range(20)]
    sms.wait_for(accepted_before + 20, 20)

    assert throttled["sender"] == NUMBER and "Too Many" in throttled["text"]
    sms.clear_rules()
    taken = sms.wait_for(accepted_before + 22, 30)[accepted_before:]
    assert {sms_message.sender for sms_message in taken[:20]} == {GERMAN}
    assert min(sms_message.at for sms_message in taken[20:]) - started >= 2
    rows = [api.wait(f"/messages/{number}", lambda row: row["status"] == "sent") for number in (*waiting, *others)]
    assert {row["attempts"] for row in rows} == {1}


@pytest.mark.full
def test_a_failing_provider_leaves_few_uncertain(kiosk: Bakery) -> None:
    """A few 5xx in a row close the provider; an unreachable provider leaves no SMS uncertain."""
    api, sms, clock, _ = kiosk
    sms.fail(503)
    path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, 60))
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    waiting = api.get(path).expect(200)["waiting"]
    assert waiting["reason"] == "unreachable" and "SMS provider" in waiting["text"]
    api.wait("/delivery/status", lambda row: row["sms"]["open"], 20)
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    sms.clear_rules()
    wait_for_look_ups(api, clock, path)
    books = sms_recipients.reconcile(api, path, sms.accepted)
    assert books.accepted + books.uncertain == 60 and books.copies == books.missing == 0
    assert 3 <= books.uncertain < 30, books

    sms.down()
    path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, 30, "q", 100))
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 20)
    sms.up()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    rows = api.all("/messages", campaign_id=int(path.rpartition("/")[2]))
    assert {(row["status"], row["attempts"]) for row in rows} == {("sent", 1)}, "an attempt was counted"
    assert len(sms.accepted) == books.accepted + 30


def wait_for_look_ups(api: Client, clock: TestClock, path: str) -> None:
    """Wait until a campaign is completed, advancing the clock while it waits for look-ups."""
    end = time.monotonic() + 60
    while (row := api.get(path).expect(200))["status"] != "completed":
        assert time.monotonic() < end, row
        if row["waiting"] is not None and row["waiting"]["reason"] == "retries":
            clock.advance(30)
        time.sleep(0.1)


def test_pause_stop_file_opt_out_and_sigterm(kiosk: Bakery) -> None:
    """After each of them only SMS in flight leave; later all others are sent once, except the opted-out one."""
    api, sms, _, server = kiosk
    sms.clear_rules()
    sms.hold("first", times=2)
    accepted_before = len(sms.accepted)
    path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, 12, "r", 200))
    campaign_id = int(path.rpartition("/")[2])
    sms.wait_reached("first", 2)
    api.post(f"{path}/pause").expect(200)
    sms.release("first")
    api.wait("/delivery/status", lambda row: row["sms"]["queue"]["in_hand"] == 0, 30)
    opted_out = next(row for row in api.all("/messages", campaign_id=campaign_id) if row["status"] == "queued")
    api.patch(f"/contacts/{opted_out['contact_id']}", {"subscribed_phone": False}).expect(200)
    (server.data / "STOP").touch()
    time.sleep(0.2)  # the sender checks the file every 50 ms, the status at each request
    api.wait("/delivery/status", lambda row: not row["sms"]["open"], 30)
    api.post(f"{path}/resume").expect(200)
    time.sleep(1.2)  # there is no event to wait for if nothing happens
    assert len(sms.accepted) == accepted_before + 2

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
    assert len(sms.accepted) == accepted_before + 4, "only the SMS in flight were sent"
    server.start()
    api.wait(path, lambda row: row["status"] == "completed", 30)
    books = sms_recipients.reconcile(api, path, sms.accepted[accepted_before:])
    assert (books.accepted, books.copies, books.missing, books.uncertain) == (11, 0, 0, 0)
    assert not sms.to(opted_out["to"])
    assert api.get(f"/messages/{opted_out['id']}").expect(200)["skip_reason"] == "unsubscribed"


def test_an_opt_out_beats_a_slow_connection(tmp_path: Path) -> None:
    """A claimed SMS is not sent if its recipient opts out before the connection to the provider is open (P4)."""
    with FakeSms(tmp_path) as sms, SlowTls(sms.port, tmp_path) as front:
        env = sms.env | front.trust | {"CAMPANERO_SMS__TWILIO__BASE_URL": front.url, "CAMPANERO_SMS__CONNECTIONS": "2"}
        with Server(env=env | NO_RATE_LIMITS, cold=True).set_up() as server:
            api = server.set_postal_address().client(validate=False)
            api.patch("/account", {"sms_opt_out_hint": "Reply STOP to opt out"}).expect(200)
            path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, 2))
            front.wait_reached()
            api.wait("/messages", lambda rows: len(rows) == 2, status="sending")
            stopped, other = (sms_recipients.phone(index) for index in (0, 1))
            assert sms.send_incoming(server.url, stopped, "STOP").status == 200
            front.release()
            sms.wait(lambda accepted: other in {message.to for message in accepted})
            campaign_id = int(path.rpartition("/")[2])
            [skipped] = api.wait("/messages", lambda rows: len(rows) == 1, campaign_id=campaign_id, status="skipped")
            assert (skipped["to"], skipped["skip_reason"]) == (stopped, "suppressed_stop_keyword")
            assert skipped["attempts"] == 0
            texts = {message.body for message in sms.to(stopped)}
            assert not any("we bake" in text for text in texts), texts
            server.stop()
