"""Providers of SMS against that of the kit: what is handed over, what each answer means, what a look-up finds."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance import clock, config, tokens
from appliance.delivery import classes
from appliance.errors import (
    DeliveryError,
    Ours,
    Permanent,
    SenderRefused,
    Temporary,
    Throttled,
    Uncertain,
    Unreachable,
)
from appliance.sms import client, codes
from appliance.sms.providers import PROVIDERS, capture
from appliance.sms.text import Accepted, Text
from tests.kit.fake_sms import NUMBER, SECRET, SID, TOKEN, FakeSms

TWILIO, HTTP = PROVIDERS["twilio"], PROVIDERS["http"]
TO = "+15551230001"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSms]:
    """One provider for the module; each test begins with one that behaves well."""
    with FakeSms(tmp_path_factory.mktemp("sms")) as running:
        yield running


@pytest.fixture
def fake(provider: FakeSms, tmp_path: Path) -> Iterator[FakeSms]:
    """The provider, in the settings of this process."""
    provider.behave()
    tokens.load_key(tmp_path)
    use(provider)
    yield provider
    config._current, tokens._key = None, b""
    clock.follow(None)


def use(fake: FakeSms, **more: Any) -> None:
    """Set this process up to send through it."""
    options = {
        "sms.transport": "twilio", "sms.twilio.base_url": fake.url, "sms.twilio.account_sid": SID,
        "sms.twilio.auth_token": TOKEN, "sms.http.url": f"{fake.url}/send", "sms.http.secret": SECRET,
    }  # fmt: skip
    config.use(config.load(options | {name.replace("__", "."): value for name, value in more.items()}, {}).config)


def text(number: int = 1, body: str = "Hello €", to: str = TO, sender: str = NUMBER) -> Text:
    """Write an SMS."""
    return Text(number, to, sender, body, f"http://127.0.0.1:8080/hooks?m={number}")


def run(*asked: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Ask one after the other over the same connections; answer what came or was raised."""

    async def all_of_them() -> list[Any]:
        found: list[Any] = []
        for one in asked:
            try:
                found.append(await one())
            except DeliveryError as error:
                found.append(error)
        await client.close()
        return found

    return asyncio.run(all_of_them())


def sent(*texts: Text, by: Any = TWILIO) -> list[Any]:
    """Hand over, one after the other."""
    return run(*(lambda one=one: by.send(one) for one in texts))


def test_it_hands_over_what_was_written(fake: FakeSms) -> None:
    """Each field arrives as it is, whatever is in it, over one connection; the answer's name is kept."""
    before, bodies = len(fake.accepted), ["Zażółć & co=1+1?", " a\nb\t😀 ", "%41%0d%0a"]
    connections = fake.control()["connections"]
    answers = sent(*(text(number, body) for number, body in enumerate(bodies)))
    taken = fake.accepted[before:]
    assert [one.body for one in taken] == bodies
    assert [one.provider_id for one in answers] == [one.sid for one in taken]
    assert taken[1].fields == {
        "To": TO, "From": NUMBER, "Body": bodies[1], "StatusCallback": "http://127.0.0.1:8080/hooks?m=1",
    }  # fmt: skip
    assert fake.control()["connections"] - connections == 2  # that of all three, and that of what asks for the count


def test_it_hands_over_the_generic_way(fake: FakeSms) -> None:
    """The fields of the contract as JSON, signed so that the other side believes it, which names the message."""
    [answer] = sent(text(7), by=HTTP)
    last = fake.accepted[-1]
    assert last.fields == {"id": 7, "to": TO, "from": NUMBER, "body": "Hello €", "callback_url": text(7).callback_url}
    assert answer == Accepted(last.sid, "sent")
    fake.answer(202, times=1, raw="taken")
    assert sent(text(8), by=HTTP) == [Accepted("8", "sent")]


def test_a_messaging_service_is_no_number(fake: FakeSms) -> None:
    """A sender that is a messaging service goes into the field for it, and is looked up without a sender."""
    service, began = "MG" + "a" * 32, clock.now_ms()
    [answer, found] = run(lambda: TWILIO.send(text(sender=service)), lambda: TWILIO.find(text(sender=service), began))
    assert fake.accepted[-1].fields["MessagingServiceSid"] == service
    assert [one.provider_id for one in found] == [answer.provider_id]


@pytest.mark.parametrize(("code", "status", "kind", "means"), [
    (21211, 400, Permanent, classes.HARD), (21614, 400, Permanent, classes.HARD),
    (21610, 400, Permanent, classes.LEFT), (21408, 403, Permanent, classes.COUNTRY),
    (30007, 400, Permanent, classes.FILTERED), (30003, 400, Permanent, classes.UNREACHABLE),
    (21617, 400, Permanent, classes.SIZE), (77777, 400, Permanent, classes.REFUSED),
    (30034, 400, SenderRefused, classes.UNREGISTERED), (21606, 400, SenderRefused, classes.SETUP),
    (20003, 401, Ours, classes.SETUP), (20404, 404, Ours, classes.SETUP), (20429, 429, Throttled, classes.SETUP),
    (21611, 400, Throttled, classes.SETUP), (20503, 503, Uncertain, classes.SETUP),
])  # fmt: skip
def test_each_code_means_one_thing(fake: FakeSms, code: int, status: int, kind: type, means: classes.Class) -> None:
    """An error of Twilio is of the kind that its code says, and its words begin with the code."""
    fake.refuse(code, status=status, times=1)
    [error] = sent(text())
    assert type(error) is kind
    assert error.text.startswith(str(code))
    assert error.smtp == status
    assert codes.judged(error) is means
    assert codes.kind(code) is (means if kind in (Permanent, SenderRefused) else codes.kind(code))


def test_what_helps_is_said_along() -> None:
    """Words end with what to do, unless they are about the person who gets nothing any more."""
    assert codes.words(21408, "not enabled").startswith("21408 not enabled - Allow the country")
    assert codes.words("30007", "") == f"30007 {classes.FILTERED.words} - {classes.FILTERED.help}"
    assert codes.words(21211, "invalid") == "21211 invalid"
    assert codes.words(None, "") == classes.REFUSED.words


def test_bare_answers(fake: FakeSms) -> None:
    """What has no code is judged by its status: a login is ours, 5xx is a doubt, a redirect leads nowhere."""
    for status in (302, 403, 404, 418, 502):
        fake.answer(status, times=1, raw="<html>sorry</html>", Location=f"{fake.url}/elsewhere")
    assert [type(one) for one in sent(*[text()] * 5)] == [Ours, Ours, Ours, Permanent, Uncertain]
    for status in (302, 401, 404, 422, 500):
        fake.answer(status, times=1, raw='{"error": "no"}')
    found = sent(*[text()] * 5, by=HTTP)
    assert [type(one) for one in found] == [Ours, Ours, Permanent, Permanent, Uncertain]
    assert found[3].text == "no (HTTP 422)"
    fake.answer(400, times=1, raw='{"error": {"code": "opted_out", "message": "left"}}')
    fake.answer(400, times=1, raw='{"error": "21614: no mobile"}')
    assert [codes.judged(one) for one in sent(text(), text(), by=HTTP)] == [classes.LEFT, classes.HARD]


def test_who_is_too_fast_waits_as_long_as_told(fake: FakeSms) -> None:
    """Retry-After in seconds and as a date; at least a second, at most an hour."""
    for wait in (7, 0, 99_999, None, "soon"):
        fake.throttle(wait, times=1)
    fake.answer(429, times=1, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")
    answers = sent(*[text()] * 6)
    assert {type(one) for one in answers} == {Throttled}
    assert [one.seconds for one in answers] == [7, 1, 3600, 1, 1, 3600]


def test_what_may_have_been_taken_is_a_doubt(fake: FakeSms) -> None:
    """A broken connection or answer after the request has left says nothing; the next request goes on."""
    before = len(fake.accepted)
    fake.accept_then_reset(times=1)
    fake.accept_then_cut(times=1)
    fake.accept_then_fail(times=1)
    fake.reset(times=1)
    fake.say("queued", times=1)
    answers = sent(*[text()] * 5)
    assert [type(one) for one in answers] == [Uncertain] * 4 + [Accepted]
    assert len(fake.accepted) - before == 4


def test_who_does_not_answer_in_time_is_a_doubt(fake: FakeSms) -> None:
    """The time of the settings is for the whole answer; who was not even reached is no doubt."""
    use(fake, sms__request_timeout="1s")
    fake.delay(30, times=1)
    [error] = sent(text())
    assert isinstance(error, Uncertain)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    use(fake, sms__twilio__base_url=f"http://127.0.0.1:{port}", sms__http__url=f"https://127.0.0.1:{port}/x")
    assert [type(one) for one in sent(text(), text())] == [Unreachable] * 2
    assert [type(one) for one in sent(text(), by=HTTP)] == [Unreachable]
    use(fake, sms__request_timeout="1s", sms__http__url=fake.url.replace("http:", "https:"))  # it speaks no TLS
    assert [type(one) for one in sent(text(), by=HTTP)] == [Unreachable]


def test_an_answer_without_end_is_cut_off(fake: FakeSms) -> None:
    """Whoever answers and answers is not read for ever; it is a doubt, for the request has left."""
    with socket.create_server(("127.0.0.1", 0)) as endless:

        def flood() -> None:
            there, _ = endless.accept()
            there.recv(65536)
            there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
            try:
                while True:
                    there.sendall(b"x" * 65536)
            except OSError:
                there.close()

        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        use(fake, sms__http__url=f"http://127.0.0.1:{endless.getsockname()[1]}/")
        [error] = sent(text(), by=HTTP)
        thread.join(10)
    assert isinstance(error, Uncertain)
    assert "more than" in error.text


def test_an_idle_connection_that_was_closed_is_not_used(fake: FakeSms) -> None:
    """A provider that closed what was idle costs nothing: the next message goes over a connection of its own."""

    async def ask() -> list[Any]:
        first = await TWILIO.send(text())
        fake.down()
        fake.up()
        second = await TWILIO.send(text())
        await client.close()
        return [first, second]

    assert [type(one) for one in asyncio.run(ask())] == [Accepted, Accepted]


def test_no_connection_is_left_behind(fake: FakeSms) -> None:
    """Whatever becomes of requests, what is open afterwards is no more than there were places."""

    async def ask() -> int:
        wrong = (fake.accept_then_reset, fake.accept_then_cut, fake.fail, lambda times: fake.delay(5, times=times))
        for what in wrong:
            what(times=10)
        fake.answer(201, times=10, raw='{"sid": "1"}', Connection="close")
        use(fake, sms__request_timeout="1s")
        for _ in range(15):
            await asyncio.gather(*(TWILIO.send(text()) for _ in range(4)), return_exceptions=True)
        return len(list(Path("/proc/self/fd").iterdir()))

    asyncio.run(ask())  # what is loaded once
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert asyncio.run(ask()) - before <= 4 + 3  # the connections, and those of the loop itself


def test_a_refusal_in_the_answer_is_one(fake: FakeSms) -> None:
    """201 with `failed` is a refusal with its code; a delivery told at once is kept."""
    fake.say("failed", times=1, code=30005)
    fake.say("delivered", times=1)
    fake.say("unheard-of", times=1)
    failed, delivered, other = sent(text(), text(), text())
    assert isinstance(failed, Permanent)
    assert codes.judged(failed) is classes.HARD
    assert [delivered.status, other.status] == ["delivered", "sent"]
    fake.answer(201, times=1, raw="{}")
    assert isinstance(sent(text())[0], Uncertain)


# -- look-ups ----------------------------------------------------------------------------------------------------------


def test_a_look_up_finds_what_is_alike(fake: FakeSms) -> None:
    """All messages that say the same to the same number from the same sender since then, the oldest first."""
    number, began = "+15551230100", clock.now_ms()
    wanted = text(1, "Look me up", number)
    fake.accept_then_reset(number, times=1)
    sent(wanted, text(2, "Something else", number), text(3, "Look me up", "+15551230101"), wanted,
         text(4, "Look me up", number, sender="Bakery"))  # fmt: skip
    [found] = run(lambda: TWILIO.find(wanted, began))
    own = [one.sid for one in fake.to(number) if (one.body, one.sender) == ("Look me up", NUMBER)]
    assert [one.provider_id for one in found] == own
    assert len(own) == 2
    assert run(lambda: TWILIO.find(wanted, clock.now_ms() + 60_000)) == [()]
    assert run(lambda: TWILIO.find(text(9, "Nobody wrote this", number), began)) == [()]


def test_a_look_up_turns_pages(fake: FakeSms) -> None:
    """What stands on the second page is found, and reading ends where all is too old."""
    number, began = "+15551230200", clock.now_ms()
    wanted = text(1, "First of many", number)
    sent(wanted, *(text(n, f"Later {n}", number) for n in range(100)))
    asked = fake.control()["look_up"]
    [[found], nothing] = run(lambda: TWILIO.find(wanted, began), lambda: TWILIO.find(wanted, clock.now_ms() + 60_000))
    assert found.provider_id == fake.to(number)[0].sid
    assert nothing == ()
    assert fake.control()["look_up"] - asked == 3


def test_a_look_up_lives_by_the_providers_clock(fake: FakeSms, tmp_path: Path) -> None:
    """A clock of ours that is days ahead or behind finds the same."""
    (tmp_path / "clock").write_text("0")
    clock.follow(str(tmp_path / "clock"))
    for days in (3, -3):
        (tmp_path / "clock").write_text(str(days * 86_400))
        wanted, began = text(1, f"At {days}", "+15551230300"), clock.now_ms()
        [_, found] = run(lambda one=wanted: TWILIO.send(one), lambda one=wanted, at=began: TWILIO.find(one, at))
        assert len(found) == 1


def test_a_look_up_that_fails_says_so(fake: FakeSms) -> None:
    """What is not known now is never "it is not there"."""
    fake.look_ups_fail(503, times=1)
    fake.look_ups_fail(429, times=1)
    fake.look_ups_fail(401, times=1)
    for raw in ("", "[]", '{"messages": 1}', '{"messages": [{}]}'):
        fake.control(rules=[{"look_ups": True, "times": 1, "status": 200, "raw": raw}])
    kinds = [type(one) for one in run(*[lambda: TWILIO.find(text(), 0)] * 7)]
    assert kinds == [Temporary, Throttled, Ours, *[Temporary] * 4]


def test_a_hidden_message_is_not_found_yet(fake: FakeSms) -> None:
    """A provider that is slow to know has it later."""
    wanted, began = text(1, "Slow to know", "+15551230400"), clock.now_ms()
    fake.hide(0.6, times=1)
    assert [type(one) for one in run(lambda: TWILIO.send(wanted))] == [Uncertain]
    assert run(lambda: TWILIO.find(wanted, began)) == [()]
    end = time.monotonic() + 10
    while not (found := run(lambda: TWILIO.find(wanted, began))[0]):
        assert time.monotonic() < end
    assert found[0].provider_id == fake.to("+15551230400")[0].sid


# -- settings ----------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named(fake: FakeSms) -> None:
    """Each provider names the settings that it cannot be used with."""
    assert [one.lacks() for one in PROVIDERS.values()] == [[], [], []]
    config.use(config.load({}, {}).config)
    assert [name for name, _ in TWILIO.lacks()] == ["sms.twilio.account_sid", "sms.twilio.auth_token"]
    assert [name for name, _ in HTTP.lacks()] == ["sms.http.url", "sms.http.secret"]
    for url in ("ftp://x", "http://", "http://a b", "http://u:p@x", "http://x:0", "http://x:99999", "http://ü.de", "x"):
        use(fake, sms__twilio__base_url=url, sms__http__url=url)
        assert [name for one in (TWILIO, HTTP) for name, _ in one.lacks()] == ["sms.twilio.base_url", "sms.http.url"]
    use(fake, sms__twilio__account_sid="a/b", sms__twilio__auth_token="a b")
    assert [name for name, _ in TWILIO.lacks()] == ["sms.twilio.account_sid", "sms.twilio.auth_token"]


def test_greeting_tells_whether_we_are_let_in(fake: FakeSms) -> None:
    """A login is tried without sending anything."""
    assert run(TWILIO.greet, HTTP.greet)[0] == "answers and lets us in"
    use(fake, sms__twilio__auth_token="wrong", sms__http__url="http://127.0.0.1:9/")
    assert [type(one) for one in run(TWILIO.greet, HTTP.greet)] == [Ours, Unreachable]


def test_nobody_is_told_an_address_they_cannot_call(fake: FakeSms) -> None:
    """A provider of the world gets no address of this machine; one that is here does."""
    assert TWILIO.callback_url(5).startswith("http://127.0.0.1:8080/hooks/twilio/status?m=")
    use(fake, sms__twilio__base_url="https://api.twilio.com")
    assert TWILIO.callback_url(5) == ""
    use(fake, sms__twilio__base_url="https://api.twilio.com", base_url="https://mail.example.org/x/")
    assert TWILIO.callback_url(5).startswith("https://mail.example.org/x/hooks/twilio/status?m=")


def test_capture_keeps(fake: FakeSms) -> None:
    """The built-in inbox is given the message; without one it is our fault, not the recipient's."""
    kept: list[Text] = []

    async def keep(one: Text) -> None:
        kept.append(one)

    capture.keep_with(keep)
    try:
        assert sent(text(4), by=PROVIDERS["capture"]) == [Accepted("capture-4", "sent")]
    finally:
        capture.keep_with(None)
    assert kept == [text(4)]
    assert isinstance(sent(text(), by=PROVIDERS["capture"])[0], Ours)
