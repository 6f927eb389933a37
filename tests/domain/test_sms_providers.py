"""Providers of SMS against that of the kit: what is handed over, and what each answer means."""

import asyncio
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    RateLimited,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import bounce_classes
from appliance.sending.sms import error_codes
from appliance.sending.sms.providers import base
from appliance.sending.sms.segments import AcceptedSms
from tests.domain.sms_asked import HTTP, TO, TWILIO, fake, provider, run, sent, text, use
from tests.kit.certificates import self_signed
from tests.kit.fake_sms import NUMBER, FakeSms

__all__ = ["fake", "provider"]


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
    assert answer == AcceptedSms(last.sid, "sent")
    fake.answer(202, times=1, raw="taken")
    assert sent(text(8), by=HTTP) == [AcceptedSms("8", "sent")]


def test_a_messaging_service_is_no_number(fake: FakeSms) -> None:
    """A sender that is a messaging service goes into the field for it, and is looked up without a sender."""
    service, began = "MG" + "a" * 32, clock.now_ms()
    [answer, found] = run(
        lambda: TWILIO.send(text(sender=service)), lambda: TWILIO.find_accepted(text(sender=service), began)
    )
    assert fake.accepted[-1].fields["MessagingServiceSid"] == service
    assert [one.provider_id for one in found] == [answer.provider_id]


@pytest.mark.parametrize(
    ("code", "status", "kind", "means"),
    [
        (21211, 400, RecipientRejected, bounce_classes.HARD),
        (21614, 400, RecipientRejected, bounce_classes.HARD),
        (21610, 400, RecipientRejected, bounce_classes.OPTED_OUT),
        (21408, 403, RecipientRejected, bounce_classes.COUNTRY),
        (30007, 400, RecipientRejected, bounce_classes.FILTERED),
        (30003, 400, RecipientRejected, bounce_classes.UNREACHABLE),
        (21617, 400, RecipientRejected, bounce_classes.SIZE),
        (77777, 400, RecipientRejected, bounce_classes.REFUSED),
        (30034, 400, SenderRejected, bounce_classes.UNREGISTERED),
        (21606, 400, SenderRejected, bounce_classes.SETUP),
        (20003, 401, ClientRejected, bounce_classes.SETUP),
        (20404, 404, ClientRejected, bounce_classes.SETUP),
        (20429, 429, RateLimited, bounce_classes.SETUP),
        (21611, 400, RateLimited, bounce_classes.SETUP),
        (20503, 503, Uncertain, bounce_classes.SETUP),
    ],
)
def test_each_code_means_one_thing(
    fake: FakeSms, code: int, status: int, kind: type, means: bounce_classes.BounceClass
) -> None:
    """An error of Twilio is of the kind that its code says, and its words begin with the code."""
    fake.refuse(code, status=status, times=1)
    [error] = sent(text())
    assert type(error) is kind
    assert error.text.startswith(str(code))
    assert error.smtp == status
    assert error_codes.classify_failure(error) is means
    assert error_codes.classify_code(code) is (
        means if kind in (RecipientRejected, SenderRejected) else error_codes.classify_code(code)
    )


def test_what_helps_is_said_along() -> None:
    """Words end with what to do, unless they are about the person who gets nothing any more."""
    assert error_codes.describe_code(21408, "not enabled").startswith("21408 not enabled - Allow the country")
    assert (
        error_codes.describe_code("30007", "")
        == f"30007 {bounce_classes.FILTERED.meaning} - {bounce_classes.FILTERED.help}"
    )
    assert error_codes.describe_code(21211, "invalid") == "21211 invalid"
    assert error_codes.describe_code(None, "") == bounce_classes.REFUSED.meaning


def test_bare_answers(fake: FakeSms) -> None:
    """What has no code is judged by its status: a login is ours, 5xx is a doubt, a redirect leads nowhere."""
    for status in (302, 403, 404, 418, 502):
        fake.answer(status, times=1, raw="<html>sorry</html>", Location=f"{fake.url}/elsewhere")
    assert [type(one) for one in sent(*[text()] * 5)] == [
        ClientRejected,
        ClientRejected,
        ClientRejected,
        RecipientRejected,
        Uncertain,
    ]
    fake.answer(400, times=1, raw='{"code": "21211", "message": "no such number"}')
    fake.answer(400, times=1, raw='{"code": true}')
    fake.answer(201, times=1, raw='{"sid": "SM1", "status": "Failed", "error_code": "30005"}')
    assert [error_codes.classify_failure(one) for one in sent(*[text()] * 3)] == [
        bounce_classes.HARD,
        bounce_classes.REFUSED,
        bounce_classes.HARD,
    ]
    for status in (302, 401, 404, 422, 500):
        fake.answer(status, times=1, raw='{"error": "no"}')
    found = sent(*[text()] * 5, by=HTTP)
    assert [type(one) for one in found] == [
        ClientRejected,
        ClientRejected,
        RecipientRejected,
        RecipientRejected,
        Uncertain,
    ]
    assert found[3].text == "no (HTTP 422)"
    fake.answer(400, times=1, raw='{"error": {"code": "opted_out", "message": "left"}}')
    fake.answer(400, times=1, raw='{"error": "21614: no mobile"}')
    assert [error_codes.classify_failure(one) for one in sent(text(), text(), by=HTTP)] == [
        bounce_classes.OPTED_OUT,
        bounce_classes.HARD,
    ]


def test_who_is_too_fast_waits_as_long_as_told(fake: FakeSms) -> None:
    """Retry-After in seconds and as a date; at least a second, at most an hour."""
    for wait in (7, 0, 99_999, None, "soon"):
        fake.throttle(wait, times=1)
    fake.answer(429, times=1, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")
    answers = sent(*[text()] * 6)
    assert {type(one) for one in answers} == {RateLimited}
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
    assert [type(one) for one in answers] == [Uncertain] * 4 + [AcceptedSms]
    assert len(fake.accepted) - before == 4


def test_who_does_not_answer_in_time_is_a_doubt(fake: FakeSms) -> None:
    """The time of the settings is for the whole answer; who was not even reached is no doubt."""
    use(fake, sms__request_timeout="1s")
    fake.delay(30, times=1)
    [error] = sent(text())
    assert isinstance(error, Uncertain) and error.text.endswith(": timed out")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    use(fake, sms__twilio__base_url=f"http://127.0.0.1:{port}", sms__http__url=f"https://127.0.0.1:{port}/x")
    assert [type(one) for one in sent(text(), text())] == [ConnectionFailed] * 2
    assert [type(one) for one in sent(text(), by=HTTP)] == [ConnectionFailed]
    use(fake, sms__request_timeout="1s", sms__http__url=fake.url.replace("http:", "https:"))  # it speaks no TLS
    assert [type(one) for one in sent(text(), by=HTTP)] == [ConnectionFailed]


def test_only_a_server_with_its_name_is_believed(
    fake: FakeSms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A certificate that this machine trusts will do, of an authority of one's own too; any other will not."""
    made, trusted = self_signed(), tmp_path / "trusted.pem"
    trusted.write_bytes(made.certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taking)
    server.socket = made.context().wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    base._ssl_context.cache_clear()
    try:
        use(fake, sms__http__url=f"https://127.0.0.1:{server.server_port}/send?from=us")
        [stranger] = sent(text(), by=HTTP)
        assert isinstance(stranger, ConnectionFailed) and "certificate" in stranger.text.lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        base._ssl_context.cache_clear()
        assert sent(text(), text(), by=HTTP) == [AcceptedSms("/send?from=us")] * 2
        assert isinstance(run(HTTP.check_login)[0], str)
    finally:
        base._ssl_context.cache_clear()
        server.shutdown()
        server.server_close()


class _Taking(BaseHTTPRequestHandler):
    """Takes everything under the name of the path it was asked for, over connections that it keeps."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"id": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


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
        await base.close_connections()
        return [first, second]

    assert [type(one) for one in asyncio.run(ask())] == [AcceptedSms, AcceptedSms]


def test_an_answer_too_many_is_none_to_the_next(fake: FakeSms) -> None:
    """Whoever answers twice is not believed of what has not left yet: each message arrives, under its own name."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as twice:

        def serve() -> None:
            for _ in range(3):
                there, _ = twice.accept()
                asked.append(json.loads(there.recv(65536).rpartition(b"\r\n\r\n")[2])["body"])
                answer = json.dumps({"id": asked[-1]})
                there.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n{answer}".encode() * 2)
                open_ones.append(there)

        open_ones: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        use(fake, sms__http__url=f"http://127.0.0.1:{twice.getsockname()[1]}/")
        answers = sent(text(1, "one"), text(2, "two"), text(3, "three"), by=HTTP)
        thread.join(10)
        for each in open_ones:
            each.close()
    assert answers == [AcceptedSms("one"), AcceptedSms("two"), AcceptedSms("three")] and asked == [
        "one",
        "two",
        "three",
    ]


def test_no_connection_is_left_behind(fake: FakeSms) -> None:
    """Whatever becomes of requests, what is open afterwards is no more than there were places."""

    async def ask() -> int:
        for what in (fake.accept_then_reset, fake.accept_then_cut, fake.fail):
            what(times=8)
        fake.delay(5, times=4)
        fake.answer(201, times=8, raw='{"sid": "1"}', Connection="close")
        use(fake, sms__request_timeout="1s")
        for _ in range(10):
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
    assert isinstance(failed, RecipientRejected)
    assert error_codes.classify_failure(failed) is bounce_classes.HARD
    assert [delivered.status, other.status] == ["delivered", "sent"]
    fake.answer(201, times=1, raw="{}")
    assert isinstance(sent(text())[0], Uncertain)
