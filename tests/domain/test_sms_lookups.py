"""What providers of SMS are asked beside sending: whether they have a message, and whether they can be used."""

import json
import time
from pathlib import Path

from appliance.core import clock
from appliance.core.errors import ClientRejected, ConnectionFailed, Deferred, LookupUnsupported, RateLimited, Uncertain
from appliance.sending.sms.providers import PROVIDERS, capture
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config
from tests.domain.sms_asked import HTTP, TWILIO, fake, provider, run, sent, text, use
from tests.kit.fake_sms import NUMBER, FakeSms

__all__ = ["fake", "provider"]


def test_a_look_up_finds_what_is_alike(fake: FakeSms) -> None:
    """All messages that say the same to the same number from the same sender since then, the oldest first."""
    number, began = "+15551230100", clock.now_ms()
    wanted = text(1, "Look me up", number)
    fake.accept_then_reset(number, times=1)
    sent(wanted, text(2, "Something else", number), text(3, "Look me up", "+15551230101"), wanted,
         text(4, "Look me up", number, sender="Bakery"))  # fmt: skip
    [found] = run(lambda: TWILIO.find_accepted(wanted, began))
    own = [one.sid for one in fake.to(number) if (one.body, one.sender) == ("Look me up", NUMBER)]
    assert [one.provider_id for one in found] == own
    assert len(own) == 2
    assert run(lambda: TWILIO.find_accepted(wanted, clock.now_ms() + 60_000)) == [()]
    assert run(lambda: TWILIO.find_accepted(text(9, "Nobody wrote this", number), began)) == [()]


def test_a_look_up_turns_pages(fake: FakeSms) -> None:
    """What stands on the second page is found, and reading ends where all is too old."""
    number, began = "+15551230200", clock.now_ms()
    wanted = text(1, "First of many", number)
    sent(wanted, *(text(n, f"Later {n}", number) for n in range(100)))
    asked = fake.control()["look_up"]
    [[found], nothing] = run(
        lambda: TWILIO.find_accepted(wanted, began), lambda: TWILIO.find_accepted(wanted, clock.now_ms() + 60_000)
    )
    assert found.provider_id == fake.to(number)[0].sid
    assert nothing == ()
    assert fake.control()["look_up"] - asked == 3


def test_a_look_up_lives_by_the_providers_clock(fake: FakeSms, tmp_path: Path) -> None:
    """A clock of ours that is days ahead or behind finds the same."""
    (tmp_path / "clock").write_text("0")
    clock.use_offset_file(str(tmp_path / "clock"))
    for days in (3, -3):
        (tmp_path / "clock").write_text(str(days * 86_400))
        wanted, began = text(1, f"At {days}", "+15551230300"), clock.now_ms()
        [_, found] = run(
            lambda one=wanted: TWILIO.send(one), lambda one=wanted, at=began: TWILIO.find_accepted(one, at)
        )
        assert len(found) == 1


def test_a_look_up_by_a_clock_that_fell_behind(fake: FakeSms, tmp_path: Path) -> None:
    """A machine that comes back from a power cut is behind until somebody tells it the time; it finds what left."""
    wanted, began = text(1, "Before the cut", "+15551230301"), clock.now_ms()
    sent(wanted)
    (tmp_path / "clock").write_text("-600")
    clock.use_offset_file(str(tmp_path / "clock"))
    [found] = run(lambda: TWILIO.find_accepted(wanted, began))
    assert len(found) == 1


def test_a_look_up_reads_every_kind_of_time(fake: FakeSms) -> None:
    """Whoever speaks Twilio's interface may write times in its way or as everybody does; what says none is new."""
    days = ("Fri, 20 Nov 2026 10:00:00 +0000", "2026-11-20T10:00:00Z", "2026-11-20T10:00:00.123+00:00", None, "?")
    alike = {"to": "+15551230001", "from": NUMBER, "body": "Hello €", "direction": "outbound-api"}
    said = [{**alike, "sid": f"SM{number}", "date_created": day} for number, day in enumerate(days)]
    fake.control(rules=[{"look_ups": True, "status": 200, "raw": json.dumps({"messages": said})}])
    began = clock.parse("2026-11-20T10:00:00Z")
    now, later = run(
        lambda: TWILIO.find_accepted(text(), began), lambda: TWILIO.find_accepted(text(), began + 86_400_000)
    )
    assert sorted(one.provider_id for one in now) == ["SM0", "SM1", "SM2", "SM3", "SM4"]
    assert sorted(one.provider_id for one in later) == ["SM3", "SM4"]


def test_a_look_up_that_fails_says_so(fake: FakeSms) -> None:
    """What is not known now is never "it is not there"."""
    fake.look_ups_fail(503, times=1)
    fake.look_ups_fail(429, times=1)
    fake.look_ups_fail(401, times=1)
    for raw in ("", "[]", '{"messages": 1}', '{"messages": [{}]}'):
        fake.control(rules=[{"look_ups": True, "times": 1, "status": 200, "raw": raw}])
    kinds = [type(one) for one in run(*[lambda: TWILIO.find_accepted(text(), 0)] * 7)]
    assert kinds == [Deferred, RateLimited, ClientRejected, *[Deferred] * 4]
    # The account of the settings may be put right; a page that is not there stays away
    fake.control(rules=[{"look_ups": True, "times": 1, "status": 404, "code": 20404}])
    for status in (404, 405, 501):
        fake.control(rules=[{"look_ups": True, "times": 1, "status": status, "raw": "<h1>no such page</h1>"}])
    assert [type(one) for one in run(*[lambda: TWILIO.find_accepted(text(), 0)] * 4)] == [
        ClientRejected,
        *[LookupUnsupported] * 3,
    ]


def test_a_hidden_message_is_not_found_yet(fake: FakeSms) -> None:
    """A provider that is slow to know has it later."""
    wanted, began = text(1, "Slow to know", "+15551230400"), clock.now_ms()
    fake.hide(0.6, times=1)
    assert [type(one) for one in run(lambda: TWILIO.send(wanted))] == [Uncertain]
    assert run(lambda: TWILIO.find_accepted(wanted, began)) == [()]
    end = time.monotonic() + 10
    while not (found := run(lambda: TWILIO.find_accepted(wanted, began))[0]):
        assert time.monotonic() < end
    assert found[0].provider_id == fake.to("+15551230400")[0].sid


# -- settings ----------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named(fake: FakeSms) -> None:
    """Each provider names the settings that it cannot be used with."""
    assert [one.find_setting_faults() for one in PROVIDERS.values()] == [[], [], []]
    config.set_current(config.load({}, {}).config)
    assert [name for name, _ in TWILIO.find_setting_faults()] == ["sms.twilio.account_sid", "sms.twilio.auth_token"]
    assert [name for name, _ in HTTP.find_setting_faults()] == ["sms.http.url", "sms.http.secret"]
    for url in ("ftp://x", "http://", "http://a b", "http://u:p@x", "http://x:0", "http://x:99999", "http://ü.de", "x"):
        use(fake, sms__twilio__base_url=url, sms__http__url=url)
        assert [name for one in (TWILIO, HTTP) for name, _ in one.find_setting_faults()] == [
            "sms.twilio.base_url",
            "sms.http.url",
        ]
    use(fake, sms__twilio__account_sid="a/b", sms__twilio__auth_token="a b")
    assert [name for name, _ in TWILIO.find_setting_faults()] == ["sms.twilio.account_sid", "sms.twilio.auth_token"]


def test_greeting_tells_whether_we_are_let_in(fake: FakeSms) -> None:
    """A login is tried without sending anything."""
    assert run(TWILIO.check_login, HTTP.check_login)[0] == "answers and accepts the login"
    fake.control(rules=[{"look_ups": True, "times": 1, "status": 501, "raw": "?"}])
    assert "lists no messages" in str(run(TWILIO.check_login)[0])
    use(fake, sms__twilio__auth_token="wrong", sms__http__url="http://127.0.0.1:9/")
    assert [type(one) for one in run(TWILIO.check_login, HTTP.check_login)] == [ClientRejected, ConnectionFailed]


def test_what_can_be_read_on_the_way_is_said(fake: FakeSms) -> None:
    """Without encryption into the world: advice. To a server of this network it may be meant so."""
    assert TWILIO.list_warnings() + HTTP.list_warnings() + PROVIDERS["capture"].list_warnings() == []
    use(fake, sms__twilio__base_url="http://sms.example.org", sms__http__url="http://203.0.114.7/x")
    [one], [other] = TWILIO.list_warnings(), HTTP.list_warnings()
    assert "sms.twilio.base_url" in one and "sms.http.url" in other
    use(fake, sms__twilio__base_url="https://sms.example.org", sms__http__url="http://sms.internal/x")
    assert TWILIO.list_warnings() + HTTP.list_warnings() == []


def test_nobody_is_told_an_address_they_cannot_call(fake: FakeSms) -> None:
    """A provider of the world gets no address of this machine; one that is here does."""
    assert TWILIO.build_callback_url(5).startswith("http://127.0.0.1:8080/hooks/twilio/status?m=")
    use(fake, sms__twilio__base_url="https://api.twilio.com")
    assert TWILIO.build_callback_url(5) == ""
    use(fake, sms__twilio__base_url="https://api.twilio.com", base_url="https://mail.example.org/x/")
    assert TWILIO.build_callback_url(5).startswith("https://mail.example.org/x/hooks/twilio/status?m=")


def test_capture_keeps(fake: FakeSms) -> None:
    """The built-in inbox is given the message; without one it is our fault, not the recipient's."""
    kept: list[OutgoingSms] = []

    async def keep(one: OutgoingSms) -> None:
        kept.append(one)

    capture.set_inbox(keep)
    try:
        assert sent(text(4), by=PROVIDERS["capture"]) == [AcceptedSms("capture-4", "sent")]
    finally:
        capture.set_inbox(None)
    assert kept == [text(4)]
    assert isinstance(sent(text(), by=PROVIDERS["capture"])[0], ClientRejected)
