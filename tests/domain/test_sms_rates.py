"""The sending rate of SMS: limits of each sender, and slow start of a provider with lost responses."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, RateLimited, RecipientRejected, Uncertain
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.rate_limits import MAX_UNCERTAIN, SmsRateLimits
from appliance.sending.workers.sms_sender import SenderLimitNames
from appliance.settings import config
from tests.domain.home import Home
from tests.domain.test_prepare_sms import create_sms_campaign

US, DE = "+15550009999", "Acme"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time, which tests can change."""
    moment = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: moment[0])
    return moment


def build_claim(number: int, provider: str = "twilio") -> LedgerRow:
    """Return a claim of an SMS."""
    values: dict[str, Any] = dict.fromkeys(LedgerRow._fields)
    return LedgerRow(**values | {"id": number, "provider": provider, "channel": "sms"})


def create_limits(home: Home, **settings: Any) -> SmsRateLimits:
    """Configure Twilio and return the rate limits."""
    home.configure(sms__transport="twilio", sms__twilio__account_sid="AC1", sms__twilio__auth_token="t", **settings)
    return SmsRateLimits(config.current().sms)


def test_a_sender_limit_does_not_affect_others(home: Home, now: list[float]) -> None:
    """A limit of 2/s and 3/h delays its sender, but no other sender and no captured SMS."""
    limits = create_limits(home, sms__sender_limits=[f"{US} 2/s 3/h"])
    assert limits.admit(build_claim(1), US) is None
    blocked = limits.admit(build_claim(2), US)
    assert (
        blocked is not None
        and blocked.name == f"from {US}"
        and 1000 < limits.get_opening_time([blocked.name], False) <= 1000.5
    )
    assert limits.admit(build_claim(3), DE) is None and limits.admit(build_claim(4, "capture"), US) is None
    for number in (5, 6):
        now[0] += 0.5
        assert limits.admit(build_claim(number), US) is None
    now[0] += 60
    assert limits.admit(build_claim(7), US) is not None and limits.get_status().exhausted_limits[0].per_hour == 3
    assert limits.get_room({}) == {f"from {US}": 0}


def test_a_throttled_sender_recovers(home: Home, now: list[float]) -> None:
    """After a rate-limit response the sender pauses, then has half its connections, and recovers with successes."""
    limits = create_limits(home, sms__connections="2")
    error = limits.handle_answer(build_claim(1), US, RateLimited("20429 slow down", 40.0, 429))
    assert isinstance(error, RateLimited) and 40 <= error.seconds <= 44
    assert limits.admit(build_claim(2), US) is not None and limits.admit(build_claim(3), DE) is None
    [throttled] = limits.get_status().throttled_groups
    assert (throttled.group, throttled.connections, throttled.text) == (f"from {US}", 1, "20429 slow down")
    now[0] += 40
    assert limits.admit(build_claim(4), US) is None
    blocked = limits.admit(build_claim(5), US)
    assert blocked is not None, "only one message at a time is allowed"
    limits.release(4)
    for _ in range(60):
        limits.handle_answer(build_claim(4), US, None)
    assert limits.get_status().throttled_groups == () and limits.is_unlimited


def test_uncertain_responses_reduce_the_rate(home: Home, now: list[float]) -> None:
    """After `MAX_UNCERTAIN` in a row one message at a time is sent, twice as many after each response."""
    limits = create_limits(home, sms__connections="4")
    error = Uncertain("HTTP 503")
    results = []
    for number in range(MAX_UNCERTAIN):
        limits.handle_answer(build_claim(number), US, error)
        results.append(limits.record_uncertain())
    assert results == [False, False, True] and not limits.is_unlimited
    assert limits.admit(build_claim(10), US) is None
    blocked = limits.admit(build_claim(11), US)
    assert blocked is not None and blocked.name == "*"
    assert limits.handle_answer(build_claim(10), US, error) is error and limits.record_uncertain(), (
        "one more must be enough now"
    )
    limits.release(10)
    limits.handle_answer(build_claim(12), US, ConnectionFailed("gone"))
    assert not limits.is_unlimited, "a failed connection must change nothing"
    limits.handle_answer(build_claim(12), US, RecipientRejected("21211 no number", 400))
    assert limits.admit(build_claim(13), US) is None and limits.admit(build_claim(14), US) is None
    assert limits.admit(build_claim(15), US) is not None
    limits.handle_answer(build_claim(13), US, None)
    assert limits.is_unlimited
    assert [limits.record_uncertain() for _ in range(MAX_UNCERTAIN)][-1]


def test_a_limited_sender_does_not_block_others(home: Home) -> None:
    """The queue reader skips messages whose sender has no room."""
    contact_ids = [home.upsert(phone=f"+1212555{number:04}").contact.id for number in range(30)]
    contact_ids += [home.upsert(phone=f"+49151123456{number:02}").contact.id for number in range(3)]
    limits = create_limits(
        home, sms__sender_limits=[f"{US} 1/s"], sms__twilio__from=US, sms__country_senders=[f"DE {DE}"]
    )
    home.send(create_sms_campaign(home, contact_ids, "Hi, STOP to leave"))
    reader = QueueReader("sms", SenderLimitNames())
    candidates = reader.fetch_candidates(10, room=limits.get_room({}))
    assert [row.recipient[:3] for row in candidates] == ["+12", "+12", "+49", "+49", "+49"]
    assert reader.get_parked_groups() == {f"from {US}"}
