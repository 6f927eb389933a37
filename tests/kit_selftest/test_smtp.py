"""The SMTP server of the test kit, tested with smtplib and raw sockets."""

import json
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.certificates import expired, self_signed
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout

BODY = "Subject: Hello =?utf-8?q?=C3=A9?=\r\nTo: anna@example.org\r\n\r\nFirst\r\n..dots\r\n.\r\nlast\r\n"


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    """Yield a server without faults."""
    with SmtpServer() as server:
        yield server


def connect(server: SmtpServer) -> smtplib.SMTP:
    """Return a connection of smtplib."""
    return smtplib.SMTP("127.0.0.1", server.port, timeout=5)


def send_mail(server: SmtpServer, *to: str, body: str = BODY) -> dict[str, tuple[int, bytes]]:
    """Send one message and quit."""
    with connect(server) as connection:
        return connection.sendmail("me@example.com", list(to) or ["anna@example.org"], body)


def test_messages_are_stored_as_sent(smtp: SmtpServer) -> None:
    """Dot-stuffing is removed, headers are decoded, the envelope is stored."""
    send_mail(smtp)
    (message,) = smtp.messages
    assert message.raw == BODY.encode()
    assert (message.mail_from, message.to, message.subject) == ("me@example.com", "anna@example.org", "Hello é")
    assert message.text() == "First\n..dots\n.\nlast\n"
    assert message.html() is None
    assert [p.phase for p in smtp.log] == ["connect", "ehlo", "mail", "rcpt", "data", "body"]


@pytest.mark.parametrize("body", ["", ".\r\n", "a\r\n", "\r\n", ".a\r\n..\r\n", "bare\nlf\n.\nstill\r\n"])
def test_unusual_bodies_are_stored(smtp: SmtpServer, body: str) -> None:
    """Only CRLF.CRLF ends a message."""
    stuffed = "\r\n".join("." + line if line.startswith(".") else line for line in body.split("\r\n"))
    responses = exchange(
        smtp, f"EHLO x\r\nMAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nDATA\r\n{stuffed}.\r\nQUIT\r\n".encode()
    )
    assert responses.rstrip().splitlines()[-1].startswith("221")
    assert smtp.messages[0].raw == body.encode()


def exchange(server: SmtpServer, data: bytes, size: int = 0) -> str:
    """Send bytes in pieces of `size` (0: at once) and return all replies."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size or len(data)):
            raw.sendall(data[start : start + (size or len(data))])
        response = b""
        while chunk := raw.recv(65536):
            response += chunk
    return response.decode()


def test_pipelined_commands_in_single_bytes(smtp: SmtpServer) -> None:
    """Pipelined commands work however they are split."""
    dialogue = "MAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nRCPT TO:<g@h.i>\r\nDATA\r\nSubject: x\r\n\r\nHi\r\n.\r\n"
    responses = exchange(smtp, f"EHLO x\r\n{dialogue}{dialogue}QUIT\r\n".encode(), size=1)
    codes = [line[:3] for line in responses.splitlines() if line[3] == " "]
    assert codes == ["220", "250", *["250", "250", "250", "354", "250"] * 2, "221"]
    assert [m.rcpt_to for m in smtp.messages] == [["d@e.f", "g@h.i"]] * 2


@pytest.mark.parametrize(
    ("phase", "error"),
    [("connect", smtplib.SMTPConnectError), ("ehlo", smtplib.SMTPHeloError), ("mail", smtplib.SMTPSenderRefused),
     ("rcpt", smtplib.SMTPRecipientsRefused), ("data", smtplib.SMTPDataError), ("body", smtplib.SMTPDataError)],
)  # fmt: skip
def test_rejections_at_each_phase(smtp: SmtpServer, phase: str, error: type[Exception]) -> None:
    """The given code and text are the reply, nothing is stored, and the phase is logged."""
    smtp.rules.reject(phase, code=451, text="4.3.0 first\nsecond")
    with pytest.raises(error) as caught:
        send_mail(smtp)
    assert "second" in str(caught.value)
    assert not smtp.messages
    assert smtp.phases(phase)


def test_rejections_by_recipient_and_count(smtp: SmtpServer) -> None:
    """A pattern selects recipients, and `times` limits a rule."""
    smtp.rules.reject("rcpt", "gone@*", code=550, text="5.1.1 No such user")
    smtp.rules.reject("body", "busy@*", code=450, times=1)
    assert list(send_mail(smtp, "GONE@example.org", "here@example.org")) == ["GONE@example.org"]
    with pytest.raises(smtplib.SMTPDataError):
        send_mail(smtp, "busy@example.org")
    send_mail(smtp, "busy@example.org")
    assert [m.rcpt_to for m in smtp.messages] == [["here@example.org"], ["busy@example.org"]]


def test_delayed_replies(smtp: SmtpServer) -> None:
    """The reply is delayed only at the given phase and for the given recipient."""
    smtp.rules.delay("body", 3, "slow@*")
    begin = time.monotonic()
    send_mail(smtp)
    assert time.monotonic() - begin < 3
    begin = time.monotonic()
    send_mail(smtp, "slow@example.org")
    assert time.monotonic() - begin >= 3


@pytest.mark.parametrize("phase", ["connect", "mail", "rcpt", "data", "body"])
def test_dropped_connections(smtp: SmtpServer, phase: str) -> None:
    """The connection ends without a reply and nothing is stored; the next one works."""
    smtp.rules.drop(phase, times=1)
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        send_mail(smtp)
    assert not smtp.messages
    assert smtp.phases(phase)
    send_mail(smtp)
    assert len(smtp.messages) == 1


def test_store_then_close(smtp: SmtpServer) -> None:
    """The message is stored and the client gets no reply."""
    smtp.rules.store_then_close("anna@*", times=1)
    with pytest.raises(smtplib.SMTPServerDisconnected):
        send_mail(smtp)
    assert len(smtp.to("anna@example.org")) == 1


def test_hold_and_release(smtp: SmtpServer) -> None:
    """A held session continues after the release."""
    gate = smtp.rules.hold("body", times=1)
    thread = threading.Thread(target=send_mail, args=(smtp,))
    thread.start()
    gate.wait_reached()
    assert not smtp.messages
    assert smtp.open_now == 1
    gate.release()
    thread.join(5)
    smtp.wait_for(1)


def test_stop_and_start_on_the_same_port(smtp: SmtpServer) -> None:
    """A stopped server refuses connections; started again it uses the same port."""
    smtp.stop()
    with pytest.raises(ConnectionRefusedError):
        send_mail(smtp)
    smtp.start()
    send_mail(smtp)
    assert len(smtp.messages) == 1


def test_the_log_file_has_every_phase(tmp_path: Path) -> None:
    """Each phase is in the file before its reply."""
    with SmtpServer(log_file=tmp_path / "log") as server:
        send_mail(server)
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["phase"] for line in lines] == ["connect", "ehlo", "mail", "rcpt", "data", "body"]
    assert lines[-1]["rcpt_to"] == ["anna@example.org"]


def test_starttls_and_login() -> None:
    """STARTTLS and AUTH work; without login no message is accepted."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with SmtpServer(starttls=True, users={"me": "secret"}) as server, connect(server) as connection:
        with pytest.raises(smtplib.SMTPSenderRefused):
            connection.sendmail("a@b.c", ["d@e.f"], BODY)
        connection.starttls(context=context)
        with pytest.raises(smtplib.SMTPAuthenticationError):
            connection.login("me", "wrong")
        connection.login("me", "secret")
        connection.sendmail("a@b.c", ["d@e.f"], BODY)
        assert (server.messages[0].tls, server.messages[0].user) == (True, "me")


def test_parameters_that_are_not_offered_are_rejected() -> None:
    """Unsupported parameters and too large sizes are rejected at MAIL."""
    with SmtpServer(eight_bit=False, smtputf8=False, size_limit=1000) as server, connect(server) as connection:
        connection.ehlo()
        assert connection.mail("a@b.c", ["BODY=8BITMIME"])[0] == 555
        assert connection.mail("a@b.c", ["SIZE=1001"])[0] == 552
        assert connection.mail("a@b.c")[0] == 250
        assert connection.rcpt("d@e.f")[0] == 250
        assert connection.data(b"x\r\n" * 400)[0] == 552
        assert not server.messages


def test_thousands_of_messages_are_fast(smtp: SmtpServer) -> None:
    """Two thousand messages of 20 KB on one connection take a few seconds."""
    body = ("x" * 76 + "\r\n") * 263
    dialogue = f"MAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nDATA\r\n{body}.\r\n".encode()
    thread = threading.Thread(target=exchange, args=(smtp, b"EHLO x\r\n" + dialogue * 2000 + b"QUIT\r\n"))
    thread.start()
    thread.join(extend_timeout(5))
    assert len(smtp.messages) == 2000


def test_store_then_hold(smtp: SmtpServer) -> None:
    """The message is stored at once, and the reply comes after the release."""
    gate = smtp.rules.store_then_hold(times=1)
    thread = threading.Thread(target=send_mail, args=(smtp,))
    thread.start()
    smtp.wait_for(1)
    assert thread.is_alive()
    gate.release()
    thread.join(5)
    assert len(smtp.messages) == 1


def test_reset_during_the_message(smtp: SmtpServer) -> None:
    """The connection is reset after a number of bytes, and nothing is stored."""
    smtp.rules.reset(10, times=1)
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        send_mail(smtp)
    send_mail(smtp)
    assert len(smtp.messages) == 1


def test_raw_replies(smtp: SmtpServer) -> None:
    """The given bytes replace the usual reply, and the session continues."""
    smtp.rules.reply_raw("rcpt", b"251-2.1.5 will\r\n251 2.1.5 forward\r\n")
    smtp.rules.reply_raw("body", "250 gespeichert für später\r\n".encode())
    with connect(smtp) as connection:
        connection.ehlo()
        connection.mail("me@example.com")
        assert connection.rcpt("anna@example.org") == (251, b"2.1.5 will\n2.1.5 forward")
        assert connection.data("x") == (250, "gespeichert für später".encode())
    assert len(smtp.messages) == 1


def test_greylisting_by_a_clock(smtp: SmtpServer) -> None:
    """A recipient is rejected until the time after its first attempt has passed, separately for each recipient."""
    now = [1000.0]
    smtp.rules.greylist(900, lambda: now[0])
    for at, fine in ((1000, False), (1899, False), (1900, True)):
        now[0] = at
        if fine:
            send_mail(smtp)
        else:
            with pytest.raises(smtplib.SMTPRecipientsRefused):
                send_mail(smtp)
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        send_mail(smtp, "ben@example.org")


def test_replies_in_single_bytes() -> None:
    """Replies that are sent in pieces are understood."""
    with SmtpServer(piece=1) as smtp:
        send_mail(smtp)
        assert len(smtp.messages) == 1


def test_self_signed_and_expired_certificates() -> None:
    """A client that trusts a self-signed certificate accepts it, and rejects an expired one."""
    good = self_signed()
    for certificate, fine in ((good, True), (expired(good), False)):
        context = ssl.create_default_context(cadata=certificate.certificate.decode())
        with SmtpServer(starttls=True, certificate=certificate) as smtp, connect(smtp) as connection:
            if fine:
                connection.starttls(context=context)
                continue
            with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
                connection.starttls(context=context)
