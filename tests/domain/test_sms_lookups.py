"""Requests to SMS providers other than sending: lookup of messages, login check and settings."""

import json
import time
from pathlib import Path

from appliance.core import clock
from appliance.core.errors import ClientRejected, ConnectionFailed, Deferred, LookupUnsupported, RateLimited, Uncertain
from appliance.sending.sms.providers import PROVIDERS, capture
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config
from tests.domain.sms_asked import HTTP, TWILIO, build_sms, configure_sms, fake, run_calls, send_all
from tests.kit.fake_sms import NUMBER, FakeSms

__all__ = ["fake"]


def test_a_lookup_finds_equal_messages(fake: FakeSms) -> None:
    """All messages with the same text, recipient and sender since the given time, the oldest first."""
    number, since = "+15551230100", clock.now_ms()
    sms = build_sms(1, "Look me up", number)
    fake.accept_then_reset(number, times=1)
    send_all(sms, build_sms(2, "Something else", number), build_sms(3, "Look me up", "+15551230101"), sms,
         build_sms(4, "Look me up", number, sender="Bakery"))  # fmt: skip
    [accepted] = run_calls(lambda: TWILIO.find_accepted(sms, since))
    expected = [message.sid for message in fake.to(number) if (message.body, message.sender) == ("Look me up", NUMBER)]
    assert [item.provider_id for item in accepted] == expected
    assert len(expected) == 2
    assert run_calls(lambda: TWILIO.find_accepted(sms, clock.now_ms() + 60_000)) == [()]
    assert run_calls(lambda: TWILIO.find_accepted(build_sms(9, "Nobody wrote this", number), since)) == [()]


def test_a_lookup_reads_further_pages(fake: FakeSms) -> None:
    """A message on the second page is found; reading ends where messages are too old."""
    number, since = "+15551230200", clock.now_ms()
    sms = build_sms(1, "First of many", number)
    send_all(sms, *(build_sms(index, f"Later {index}", number) for index in range(100)))
    requests_before = fake.control()["look_up"]
    [[accepted], later_result] = run_calls(
        lambda: TWILIO.find_accepted(sms, since), lambda: TWILIO.find_accepted(sms, clock.now_ms() + 60_000)
    )
    assert accepted.provider_id == fake.to(number)[0].sid
    assert later_result == ()
    assert fake.control()["look_up"] - requests_before == 3


def test_a_lookup_uses_the_providers_clock(fake: FakeSms, tmp_path: Path) -> None:
    """A local clock that is days ahead or behind makes no difference."""
    (tmp_path / "clock").write_text("0")
    clock.use_offset_file(str(tmp_path / "clock"))
    for days in (3, -3):
        (tmp_path / "clock").write_text(str(days * 86_400))
        sms, since = build_sms(1, f"At {days}", "+15551230300"), clock.now_ms()
        [_, accepted] = run_calls(
            lambda message=sms: TWILIO.send(message),
            lambda message=sms, moment=since: TWILIO.find_accepted(message, moment),
        )
        assert len(accepted) == 1


def test_a_lookup_after_the_clock_was_set_back(fake: FakeSms, tmp_path: Path) -> None:
    """A message sent before the clock was set back by ten minutes is found."""
    sms, since = build_sms(1, "Before the cut", "+15551230301"), clock.now_ms()
    send_all(sms)
    (tmp_path / "clock").write_text("-600")
    clock.use_offset_file(str(tmp_path / "clock"))
    [accepted] = run_calls(lambda: TWILIO.find_accepted(sms, since))
    assert len(accepted) == 1


def test_a_lookup_accepts_several_time_formats(fake: FakeSms) -> None:
    """RFC 2822 and ISO 8601 times are read; a message without a valid time counts as new."""
    times = ("Fri, 20 Nov 2026 10:00:00 +0000", "2026-11-20T10:00:00Z", "2026-11-20T10:00:00.123+00:00", None, "?")
    fields = {"to": "+15551230001", "from": NUMBER, "body": "Hello €", "direction": "outbound-api"}
    messages = [{**fields, "sid": f"SM{number}", "date_created": time_} for number, time_ in enumerate(times)]
    fake.control(rules=[{"look_ups": True, "status": 200, "raw": json.dumps({"messages": messages})}])
    since = clock.parse("2026-11-20T10:00:00Z")
    first_day, second_day = run_calls(
        lambda: TWILIO.find_accepted(build_sms(), since), lambda: TWILIO.find_accepted(build_sms(), since + 86_400_000)
    )
    assert sorted(message.provider_id for message in first_day) == ["SM0", "SM1", "SM2", "SM3", "SM4"]
    assert sorted(message.provider_id for message in second_day) == ["SM3", "SM4"]


def test_a_failed_lookup_is_an_error(fake: FakeSms) -> None:
    """An error of the provider is never returned as an empty result."""
    fake.fail_look_ups(503, times=1)
    fake.fail_look_ups(429, times=1)
    fake.fail_look_ups(401, times=1)
    for raw in ("", "[]", '{"messages": 1}', '{"messages": [{}]}'):
        fake.control(rules=[{"look_ups": True, "times": 1, "status": 200, "raw": raw}])
    types = [type(error) for error in run_calls(*[lambda: TWILIO.find_accepted(build_sms(), 0)] * 7)]
    assert types == [Deferred, RateLimited, ClientRejected, *[Deferred] * 4]
    # A wrong account can be corrected in the settings; a missing endpoint means that lookups are not supported
    fake.control(rules=[{"look_ups": True, "times": 1, "status": 404, "code": 20404}])
    for status in (404, 405, 501):
        fake.control(rules=[{"look_ups": True, "times": 1, "status": status, "raw": "<h1>no such page</h1>"}])
    assert [type(error) for error in run_calls(*[lambda: TWILIO.find_accepted(build_sms(), 0)] * 4)] == [
        ClientRejected,
        *[LookupUnsupported] * 3,
    ]


def test_a_lookup_may_be_too_early(fake: FakeSms) -> None:
    """A provider that lists messages with a delay returns the message later."""
    sms, since = build_sms(1, "Slow to know", "+15551230400"), clock.now_ms()
    fake.hide(0.6, times=1)
    assert [type(error) for error in run_calls(lambda: TWILIO.send(sms))] == [Uncertain]
    assert run_calls(lambda: TWILIO.find_accepted(sms, since)) == [()]
    deadline = time.monotonic() + 10
    while not (accepted := run_calls(lambda: TWILIO.find_accepted(sms, since))[0]):
        assert time.monotonic() < deadline
    assert accepted[0].provider_id == fake.to("+15551230400")[0].sid


# -- settings ----------------------------------------------------------------------------------------------------------


def test_setting_faults_name_their_settings(fake: FakeSms) -> None:
    """Each provider names missing and invalid settings."""
    assert [service.find_setting_faults() for service in PROVIDERS.values()] == [[], [], []]
    config.set_current(config.load({}, {}).config)
    assert [name for name, _ in TWILIO.find_setting_faults()] == ["sms.twilio.account_sid", "sms.twilio.auth_token"]
    assert [name for name, _ in HTTP.find_setting_faults()] == ["sms.http.url", "sms.http.secret"]
    for url in ("ftp://x", "http://", "http://a b", "http://u:p@x", "http://x:0", "http://x:99999", "http://ü.de", "x"):
        configure_sms(fake, sms__twilio__base_url=url, sms__http__url=url)
        assert [name for service in (TWILIO, HTTP) for name, _ in service.find_setting_faults()] == [
            "sms.twilio.base_url",
            "sms.http.url",
        ]
    configure_sms(fake, sms__twilio__account_sid="a/b", sms__twilio__auth_token="a b")
    assert [name for name, _ in TWILIO.find_setting_faults()] == ["sms.twilio.account_sid", "sms.twilio.auth_token"]


def test_check_login(fake: FakeSms) -> None:
    """The login is checked without sending a message."""
    assert run_calls(TWILIO.check_login, HTTP.check_login)[0] == "answers and accepts the login"
    fake.control(rules=[{"look_ups": True, "times": 1, "status": 501, "raw": "?"}])
    assert "lists no messages" in str(run_calls(TWILIO.check_login)[0])
    configure_sms(fake, sms__twilio__auth_token="wrong", sms__http__url="http://127.0.0.1:9/")
    assert [type(error) for error in run_calls(TWILIO.check_login, HTTP.check_login)] == [
        ClientRejected,
        ConnectionFailed,
    ]


def test_warnings_about_unencrypted_urls(fake: FakeSms) -> None:
    """An http URL of a public host is a warning; one of a private network is not."""
    assert TWILIO.list_warnings() + HTTP.list_warnings() + PROVIDERS["capture"].list_warnings() == []
    configure_sms(fake, sms__twilio__base_url="http://sms.example.org", sms__http__url="http://203.0.114.7/x")
    [twilio_warning], [http_warning] = TWILIO.list_warnings(), HTTP.list_warnings()
    assert "sms.twilio.base_url" in twilio_warning and "sms.http.url" in http_warning
    configure_sms(fake, sms__twilio__base_url="https://sms.example.org", sms__http__url="http://sms.internal/x")
    assert TWILIO.list_warnings() + HTTP.list_warnings() == []


def test_callback_urls_must_be_reachable(fake: FakeSms) -> None:
    """A public provider gets no callback URL of this machine, a local provider does."""
    assert TWILIO.build_callback_url(5).startswith("http://127.0.0.1:8080/hooks/twilio/status?m=")
    configure_sms(fake, sms__twilio__base_url="https://api.twilio.com")
    assert TWILIO.build_callback_url(5) == ""
    configure_sms(fake, sms__twilio__base_url="https://api.twilio.com", base_url="https://mail.example.org/x/")
    assert TWILIO.build_callback_url(5).startswith("https://mail.example.org/x/hooks/twilio/status?m=")


def test_the_capture_inbox_stores_sms(fake: FakeSms) -> None:
    """A message goes to the inbox; without an inbox it raises ClientRejected."""
    stored: list[OutgoingSms] = []

    async def store(sms: OutgoingSms) -> None:
        stored.append(sms)

    capture.set_inbox(store)
    try:
        assert send_all(build_sms(4), by=PROVIDERS["capture"]) == [AcceptedSms("capture-4", "sent")]
    finally:
        capture.set_inbox(None)
    assert stored == [build_sms(4)]
    assert isinstance(send_all(build_sms(), by=PROVIDERS["capture"])[0], ClientRejected)
