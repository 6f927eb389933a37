"""How fast SMS may go: each sender by itself, and a provider that leaves us in doubt with one at a time."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, RateLimited, RecipientRejected, Uncertain
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.rate_limits import MAX_UNCERTAIN, SmsRateLimits
from appliance.sending.workers.sms_sender import SenderLimitNames
from appliance.settings import config
from tests.domain.home import Home
from tests.domain.test_prepare_sms import campaign

US, DE = "+15550009999", "Acme"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that is kept to, to be moved."""
    moment = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: moment[0])
    return moment


def claim(number: int, provider: str = "twilio") -> Claim:
    """Return a message in hand."""
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    return Claim(**values | {"id": number, "provider": provider, "channel": "sms"})


def pace(home: Home, **settings: Any) -> SmsRateLimits:
    """Make the pace of an installation."""
    home.configure(sms__transport="twilio", sms__twilio__account_sid="AC1", sms__twilio__auth_token="t", **settings)
    return SmsRateLimits(config.current().sms)


def test_a_sender_keeps_to_its_limit_and_others_do_not(home: Home, now: list[float]) -> None:
    """Two a second for one; whoever else sends, and what stays in the inbox, waits for nothing."""
    here = pace(home, sms__sender_limits=[f"{US} 2/s 3/h"])
    assert here.admit(claim(1), US) is None
    blocked = here.admit(claim(2), US)
    assert (
        blocked is not None
        and blocked.name == f"from {US}"
        and 1000 < here.get_opening_time([blocked.name], False) <= 1000.5
    )
    assert here.admit(claim(3), DE) is None and here.admit(claim(4, "capture"), US) is None
    for number in (5, 6):
        now[0] += 0.5
        assert here.admit(claim(number), US) is None
    now[0] += 60
    assert here.admit(claim(7), US) is not None and here.get_status().exhausted_limits[0].per_hour == 3
    assert here.get_room({}) == {f"from {US}": 0}


def test_who_asks_for_less_gets_less(home: Home, now: list[float]) -> None:
    """A pause as long as was asked for, then half as many at once; all of it back after some went well."""
    here = pace(home, sms__connections="2")
    error = here.record_answer(claim(1), US, RateLimited("20429 slow down", 40.0, 429))
    assert isinstance(error, RateLimited) and 40 <= error.seconds <= 44
    assert here.admit(claim(2), US) is not None and here.admit(claim(3), DE) is None
    [spared] = here.get_status().throttled_groups
    assert (spared.group, spared.connections, spared.text) == (f"from {US}", 1, "20429 slow down")
    now[0] += 40
    assert here.admit(claim(4), US) is None
    blocked = here.admit(claim(5), US)
    assert blocked is not None, "one at a time"
    here.release(4)
    for _ in range(60):
        here.record_answer(claim(4), US, None)
    assert here.get_status().throttled_groups == () and here.is_free


def test_doubts_in_a_row_are_few(home: Home, now: list[float]) -> None:
    """The third says that nothing should go; then one at a time, twice as many with each answer, until all may."""
    here = pace(home, sms__connections="4")
    error = Uncertain("HTTP 503")
    told = []
    for number in range(MAX_UNCERTAIN):
        here.record_answer(claim(number), US, error)
        told.append(here.record_uncertain())
    assert told == [False, False, True] and not here.is_free
    assert here.admit(claim(10), US) is None
    blocked = here.admit(claim(11), US)
    assert blocked is not None and blocked.name == "*"
    assert here.record_answer(claim(10), US, error) is error and here.record_uncertain(), "one more is enough now"
    here.release(10)
    here.record_answer(claim(12), US, ConnectionFailed("gone"))
    assert not here.is_free, "that says nothing"
    here.record_answer(claim(12), US, RecipientRejected("21211 no number", 400))
    assert here.admit(claim(13), US) is None and here.admit(claim(14), US) is None
    assert here.admit(claim(15), US) is not None
    here.record_answer(claim(13), US, None)
    assert here.is_free
    assert [here.record_uncertain() for _ in range(MAX_UNCERTAIN)][-1]


def test_a_slow_sender_keeps_no_other_waiting(home: Home) -> None:
    """Of a campaign from several numbers the line steps over those whose sender has no room."""
    people = [home.upsert(phone=f"+1212555{n:04}").contact.id for n in range(30)]
    people += [home.upsert(phone=f"+49151123456{n:02}").contact.id for n in range(3)]
    here = pace(home, sms__sender_limits=[f"{US} 1/s"], sms__twilio__from=US, sms__country_senders=[f"DE {DE}"])
    home.send(campaign(home, people, "Hi, STOP to leave"))
    line = QueueReader("sms", SenderLimitNames())
    found = line.fetch_candidates(10, room=here.get_room({}))
    assert [row.recipient[:3] for row in found] == ["+12", "+12", "+49", "+49", "+49"]
    assert line.get_blocked_groups() == {f"from {US}"}
