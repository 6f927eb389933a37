"""SMS providers against the fake provider of the test kit: what is sent, and what each response means."""

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
from appliance.sending.delivery import bounce_classes, http_client
from appliance.sending.sms import error_codes
from appliance.sending.sms.segments import AcceptedSms
from tests.domain.sms_asked import HTTP, TO, TWILIO, build_sms, configure_sms, fake, run_calls, send_all
from tests.kit.certificates import self_signed
from tests.kit.fake_sms import NUMBER, FakeSms

__all__ = ["fake"]


def test_sending_through_twilio(fake: FakeSms) -> None:
    """Each field arrives unchanged, over one connection, and the provider's id is returned."""
    count_before, bodies = len(fake.accepted), ["Zażółć & co=1+1?", " a\nb\t😀 ", "%41%0d%0a"]
    connections = fake.control()["connections"]
    results = send_all(*(build_sms(number, body) for number, body in enumerate(bodies)))
    accepted = fake.accepted[count_before:]
    assert [item.body for item in accepted] == bodies
    assert [item.provider_id for item in results] == [item.sid for item in accepted]
    assert accepted[1].fields == {
        "To": TO, "From": NUMBER, "Body": bodies[1], "StatusCallback": "http://127.0.0.1:8080/hooks?m=1",
    }  # fmt: skip
    assert (
        fake.control()["connections"] - connections == 2
    )  # one of all three messages, and one of the request for the count


def test_sending_through_an_http_gateway(fake: FakeSms) -> None:
    """The fields arrive as signed JSON; without an id in the response our message id is used."""
    [result] = send_all(build_sms(7), by=HTTP)
    request = fake.accepted[-1]
    assert request.fields == {
        "id": 7,
        "to": TO,
        "from": NUMBER,
        "body": "Hello €",
        "callback_url": build_sms(7).callback_url,
    }
    assert result == AcceptedSms(request.sid, "sent")
    fake.respond(202, times=1, raw="taken")
    assert send_all(build_sms(8), by=HTTP) == [AcceptedSms("8", "sent")]


def test_a_messaging_service_as_sender(fake: FakeSms) -> None:
    """A messaging service is sent in its own field, and messages are looked up without a sender."""
    service, since = "MG" + "a" * 32, clock.now_ms()
    [result, accepted] = run_calls(
        lambda: TWILIO.send(build_sms(sender=service)), lambda: TWILIO.find_accepted(build_sms(sender=service), since)
    )
    assert fake.accepted[-1].fields["MessagingServiceSid"] == service
    assert [item.provider_id for item in accepted] == [result.provider_id]


@pytest.mark.parametrize(
    ("code", "status", "kind", "bounce_class"),
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
def test_error_codes_of_twilio(
    fake: FakeSms, code: int, status: int, kind: type, bounce_class: bounce_classes.BounceClass
) -> None:
    """Each code is an error of its type, with the code at the start of its text and its bounce class."""
    fake.reject(code, status=status, times=1)
    [error] = send_all(build_sms())
    assert type(error) is kind
    assert error.text.startswith(str(code))
    assert error.smtp == status
    assert error_codes.classify_failure(error) is bounce_class
    assert error_codes.classify_code(code) is (
        bounce_class if kind in (RecipientRejected, SenderRejected) else error_codes.classify_code(code)
    )


def test_describe_code() -> None:
    """The description ends with what to do, except for errors of the recipient."""
    assert error_codes.describe_code(21408, "not enabled").startswith("21408 not enabled - Allow the country")
    assert (
        error_codes.describe_code("30007", "")
        == f"30007 {bounce_classes.FILTERED.meaning} - {bounce_classes.FILTERED.help}"
    )
    assert error_codes.describe_code(21211, "invalid") == "21211 invalid"
    assert error_codes.describe_code(None, "") == bounce_classes.REFUSED.meaning


def test_responses_without_a_code(fake: FakeSms) -> None:
    """The HTTP status decides: a login error is ours, 5xx is uncertain, a redirect is not followed."""
    for status in (302, 403, 404, 418, 502):
        fake.respond(status, times=1, raw="<html>sorry</html>", Location=f"{fake.url}/elsewhere")
    assert [type(result) for result in send_all(*[build_sms()] * 5)] == [
        ClientRejected,
        ClientRejected,
        ClientRejected,
        RecipientRejected,
        Uncertain,
    ]
    fake.respond(400, times=1, raw='{"code": "21211", "message": "no such number"}')
    fake.respond(400, times=1, raw='{"code": true}')
    fake.respond(201, times=1, raw='{"sid": "SM1", "status": "Failed", "error_code": "30005"}')
    assert [error_codes.classify_failure(result) for result in send_all(*[build_sms()] * 3)] == [
        bounce_classes.HARD,
        bounce_classes.REFUSED,
        bounce_classes.HARD,
    ]
    for status in (302, 401, 404, 422, 500):
        fake.respond(status, times=1, raw='{"error": "no"}')
    results = send_all(*[build_sms()] * 5, by=HTTP)
    assert [type(result) for result in results] == [
        ClientRejected,
        ClientRejected,
        RecipientRejected,
        RecipientRejected,
        Uncertain,
    ]
    assert results[3].text == "no (HTTP 422)"
    fake.respond(400, times=1, raw='{"error": {"code": "opted_out", "message": "left"}}')
    fake.respond(400, times=1, raw='{"error": "21614: no mobile"}')
    assert [error_codes.classify_failure(result) for result in send_all(build_sms(), build_sms(), by=HTTP)] == [
        bounce_classes.OPTED_OUT,
        bounce_classes.HARD,
    ]


def test_retry_after_of_rate_limits(fake: FakeSms) -> None:
    """`Retry-After` in seconds or as a date, limited to between one second and one hour."""
    for seconds in (7, 0, 99_999, None, "soon"):
        fake.throttle(seconds, times=1)
    fake.respond(429, times=1, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")
    results = send_all(*[build_sms()] * 6)
    assert {type(result) for result in results} == {RateLimited}
    assert [result.seconds for result in results] == [7, 1, 3600, 1, 1, 3600]


def test_lost_responses_are_uncertain(fake: FakeSms) -> None:
    """A connection that breaks after the request is uncertain; the next request is sent normally."""
    count_before = len(fake.accepted)
    fake.accept_then_reset(times=1)
    fake.accept_then_cut(times=1)
    fake.accept_then_fail(times=1)
    fake.reset(times=1)
    fake.accept_with_status("queued", times=1)
    results = send_all(*[build_sms()] * 5)
    assert [type(result) for result in results] == [Uncertain] * 4 + [AcceptedSms]
    assert len(fake.accepted) - count_before == 4


def test_timeouts_are_uncertain(fake: FakeSms) -> None:
    """The timeout is for the whole response; a failed connection is ConnectionFailed instead."""
    configure_sms(fake, sms__request_timeout="1s")
    fake.delay(30, times=1)
    [error] = send_all(build_sms())
    assert isinstance(error, Uncertain) and error.text.endswith(": timed out")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    configure_sms(fake, sms__twilio__base_url=f"http://127.0.0.1:{port}", sms__http__url=f"https://127.0.0.1:{port}/x")
    assert [type(result) for result in send_all(build_sms(), build_sms())] == [ConnectionFailed] * 2
    assert [type(result) for result in send_all(build_sms(), by=HTTP)] == [ConnectionFailed]
    configure_sms(
        fake, sms__request_timeout="1s", sms__http__url=fake.url.replace("http:", "https:")
    )  # the fake provider has no TLS
    assert [type(result) for result in send_all(build_sms(), by=HTTP)] == [ConnectionFailed]


def test_server_certificates_are_checked(fake: FakeSms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A certificate that this machine trusts is accepted, also of a private authority; others are not."""
    certificate, trusted = self_signed(), tmp_path / "trusted.pem"
    trusted.write_bytes(certificate.certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _AcceptingHandler)
    server.socket = certificate.context().wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    http_client._ssl_context.cache_clear()
    try:
        configure_sms(fake, sms__http__url=f"https://127.0.0.1:{server.server_port}/send?from=us")
        [error] = send_all(build_sms(), by=HTTP)
        assert isinstance(error, ConnectionFailed) and "certificate" in error.text.lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        http_client._ssl_context.cache_clear()
        assert send_all(build_sms(), build_sms(), by=HTTP) == [AcceptedSms("/send?from=us")] * 2
        assert isinstance(run_calls(HTTP.check_login)[0], str)
    finally:
        http_client._ssl_context.cache_clear()
        server.shutdown()
        server.server_close()


class _AcceptingHandler(BaseHTTPRequestHandler):
    """Accepts every request, with the path as the id, over persistent connections."""

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


def test_endless_responses_are_cut_off(fake: FakeSms) -> None:
    """The result is uncertain, as the request was sent."""
    with socket.create_server(("127.0.0.1", 0)) as endless:

        def serve() -> None:
            connection, _ = endless.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
            try:
                while True:
                    connection.sendall(b"x" * 65536)
            except OSError:
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        configure_sms(fake, sms__http__url=f"http://127.0.0.1:{endless.getsockname()[1]}/")
        [error] = send_all(build_sms(), by=HTTP)
        thread.join(10)
    assert isinstance(error, Uncertain)
    assert "more than" in error.text


def test_closed_idle_connections_are_replaced(fake: FakeSms) -> None:
    """If the provider closed an idle connection, the next message uses a new one."""

    async def send_two() -> list[Any]:
        first_result = await TWILIO.send(build_sms())
        fake.down()
        fake.up()
        second_result = await TWILIO.send(build_sms())
        await http_client.close_connections()
        return [first_result, second_result]

    assert [type(result) for result in asyncio.run(send_two())] == [AcceptedSms, AcceptedSms]


def test_surplus_responses_are_discarded(fake: FakeSms) -> None:
    """A second response to a request is not taken for that of the next one."""
    bodies: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                bodies.append(json.loads(connection.recv(65536).rpartition(b"\r\n\r\n")[2])["body"])
                response = json.dumps({"id": bodies[-1]})
                connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(response)}\r\n\r\n{response}".encode() * 2)
                connections.append(connection)

        connections: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        configure_sms(fake, sms__http__url=f"http://127.0.0.1:{server.getsockname()[1]}/")
        results = send_all(build_sms(1, "one"), build_sms(2, "two"), build_sms(3, "three"), by=HTTP)
        thread.join(10)
        for connection in connections:
            connection.close()
    assert results == [AcceptedSms("one"), AcceptedSms("two"), AcceptedSms("three")] and bodies == [
        "one",
        "two",
        "three",
    ]


def test_connections_are_not_leaked(fake: FakeSms) -> None:
    """After failed and slow requests no more connections are open than may be used at a time."""

    async def send_many() -> int:
        for misbehave in (fake.accept_then_reset, fake.accept_then_cut, fake.fail):
            misbehave(times=8)
        fake.delay(5, times=4)
        fake.respond(201, times=8, raw='{"sid": "1"}', Connection="close")
        configure_sms(fake, sms__request_timeout="1s")
        for _ in range(10):
            await asyncio.gather(*(TWILIO.send(build_sms()) for _ in range(4)), return_exceptions=True)
        return len(list(Path("/proc/self/fd").iterdir()))

    asyncio.run(send_many())  # opens files that stay open
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    assert asyncio.run(send_many()) - open_before <= 4 + 3  # the connections, and the files of the event loop


def test_statuses_in_the_response(fake: FakeSms) -> None:
    """A status `failed` in a 201 response is a rejection with its code; `delivered` is kept."""
    fake.accept_with_status("failed", times=1, code=30005)
    fake.accept_with_status("delivered", times=1)
    fake.accept_with_status("unheard-of", times=1)
    failed, delivered, unknown = send_all(build_sms(), build_sms(), build_sms())
    assert isinstance(failed, RecipientRejected)
    assert error_codes.classify_failure(failed) is bounce_classes.HARD
    assert [delivered.status, unknown.status] == ["delivered", "sent"]
    fake.respond(201, times=1, raw="{}")
    assert isinstance(send_all(build_sms())[0], Uncertain)
