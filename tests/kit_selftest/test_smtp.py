"""The SMTP server of the kit, against the client of the standard library and raw sockets."""

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
    """A server that behaves well."""
    with SmtpServer() as server:
        yield server


def client(server: SmtpServer) -> smtplib.SMTP:
    """Connect with the standard library."""
    return smtplib.SMTP("127.0.0.1", server.port, timeout=5)


def send(server: SmtpServer, *to: str, body: str = BODY) -> dict[str, tuple[int, bytes]]:
    """Send one message and quit."""
    with client(server) as connection:
        return connection.sendmail("me@example.com", list(to) or ["anna@example.org"], body)


def test_message_is_stored_as_sent(smtp: SmtpServer) -> None:
    """Dots are un-stuffed, headers decoded, the envelope kept."""
    send(smtp)
    (message,) = smtp.messages
    assert message.raw == BODY.encode()
    assert (message.mail_from, message.to, message.subject) == ("me@example.com", "anna@example.org", "Hello é")
    assert message.text() == "First\n..dots\n.\nlast\n"
    assert message.html() is None
    assert [p.phase for p in smtp.log] == ["connect", "ehlo", "mail", "rcpt", "data", "body"]


@pytest.mark.parametrize("body", ["", ".\r\n", "a\r\n", "\r\n", ".a\r\n..\r\n", "bare\nlf\n.\nstill\r\n"])
def test_odd_bodies_survive(smtp: SmtpServer, body: str) -> None:
    """The end is CRLF.CRLF and nothing else."""
    stuffed = "\r\n".join("." + line if line.startswith(".") else line for line in body.split("\r\n"))
    answers = talk(smtp, f"EHLO x\r\nMAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nDATA\r\n{stuffed}.\r\nQUIT\r\n".encode())
    assert answers.rstrip().splitlines()[-1].startswith("221")
    assert smtp.messages[0].raw == body.encode()


def talk(server: SmtpServer, data: bytes, size: int = 0) -> str:
    """Send bytes in pieces of `size` (0: at once) and return all that is answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size or len(data)):
            raw.sendall(data[start : start + (size or len(data))])
        answer = b""
        while chunk := raw.recv(65536):
            answer += chunk
    return answer.decode()


def test_pipelined_in_single_bytes(smtp: SmtpServer) -> None:
    """A pipelined conversation split anywhere is the same conversation."""
    one = "MAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nRCPT TO:<g@h.i>\r\nDATA\r\nSubject: x\r\n\r\nHi\r\n.\r\n"
    answers = talk(smtp, f"EHLO x\r\n{one}{one}QUIT\r\n".encode(), size=1)
    codes = [line[:3] for line in answers.splitlines() if line[3] == " "]
    assert codes == ["220", "250", *["250", "250", "250", "354", "250"] * 2, "221"]
    assert [m.rcpt_to for m in smtp.messages] == [["d@e.f", "g@h.i"]] * 2


@pytest.mark.parametrize(
    ("phase", "error"),
    [("connect", smtplib.SMTPConnectError), ("ehlo", smtplib.SMTPHeloError), ("mail", smtplib.SMTPSenderRefused),
     ("rcpt", smtplib.SMTPRecipientsRefused), ("data", smtplib.SMTPDataError), ("body", smtplib.SMTPDataError)],
)  # fmt: skip
def test_refuses_at_each_phase(smtp: SmtpServer, phase: str, error: type[Exception]) -> None:
    """The given code and text are answered, nothing is stored, and the phase is in the log."""
    smtp.rules.reject(phase, code=451, text="4.3.0 first\nsecond")
    with pytest.raises(error) as caught:
        send(smtp)
    assert "second" in str(caught.value)
    assert not smtp.messages
    assert smtp.phases(phase)


def test_refusal_by_recipient_and_count(smtp: SmtpServer) -> None:
    """A pattern selects recipients; `times` limits a rule."""
    smtp.rules.reject("rcpt", "gone@*", code=550, text="5.1.1 No such user")
    smtp.rules.reject("body", "busy@*", code=450, times=1)
    assert list(send(smtp, "GONE@example.org", "here@example.org")) == ["GONE@example.org"]
    with pytest.raises(smtplib.SMTPDataError):
        send(smtp, "busy@example.org")
    send(smtp, "busy@example.org")
    assert [m.rcpt_to for m in smtp.messages] == [["here@example.org"], ["busy@example.org"]]


def test_delay(smtp: SmtpServer) -> None:
    """The answer comes later, and only for the phase and recipient asked for."""
    smtp.rules.delay("body", 3, "slow@*")
    begin = time.monotonic()
    send(smtp)
    assert time.monotonic() - begin < 3
    begin = time.monotonic()
    send(smtp, "slow@example.org")
    assert time.monotonic() - begin >= 3


@pytest.mark.parametrize("phase", ["connect", "mail", "rcpt", "data", "body"])
def test_drop_before_answering(smtp: SmtpServer, phase: str) -> None:
    """The connection ends without an answer and nothing is stored; once, then all is well."""
    smtp.rules.drop(phase, times=1)
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        send(smtp)
    assert not smtp.messages
    assert smtp.phases(phase)
    send(smtp)
    assert len(smtp.messages) == 1


def test_store_then_close(smtp: SmtpServer) -> None:
    """The message is taken, the client never hears of it."""
    smtp.rules.store_then_close("anna@*", times=1)
    with pytest.raises(smtplib.SMTPServerDisconnected):
        send(smtp)
    assert len(smtp.to("anna@example.org")) == 1


def test_hold(smtp: SmtpServer) -> None:
    """A held conversation goes on after the release, not before."""
    gate = smtp.rules.hold("body", times=1)
    thread = threading.Thread(target=send, args=(smtp,))
    thread.start()
    gate.wait_reached()
    assert not smtp.messages
    assert smtp.open_now == 1
    gate.release()
    thread.join(5)
    smtp.wait_for(1)


def test_stop_and_start_on_the_same_port(smtp: SmtpServer) -> None:
    """A stopped server refuses connections; started again it listens where it did."""
    smtp.stop()
    with pytest.raises(ConnectionRefusedError):
        send(smtp)
    smtp.start()
    send(smtp)
    assert len(smtp.messages) == 1


def test_log_file_has_every_phase(tmp_path: Path) -> None:
    """The file is complete at every moment."""
    with SmtpServer(log_file=tmp_path / "log") as server:
        send(server)
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["phase"] for line in lines] == ["connect", "ehlo", "mail", "rcpt", "data", "body"]
    assert lines[-1]["rcpt_to"] == ["anna@example.org"]


def test_starttls_and_login() -> None:
    """STARTTLS and AUTH work as offered; without login nothing is taken."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with SmtpServer(starttls=True, users={"me": "secret"}) as server, client(server) as connection:
        with pytest.raises(smtplib.SMTPSenderRefused):
            connection.sendmail("a@b.c", ["d@e.f"], BODY)
        connection.starttls(context=context)
        with pytest.raises(smtplib.SMTPAuthenticationError):
            connection.login("me", "wrong")
        connection.login("me", "secret")
        connection.sendmail("a@b.c", ["d@e.f"], BODY)
        assert (server.messages[0].tls, server.messages[0].user) == (True, "me")


def test_what_is_not_offered_is_refused() -> None:
    """Parameters and sizes beyond the offer are refused at MAIL."""
    with SmtpServer(eight_bit=False, smtputf8=False, size_limit=1000) as server, client(server) as connection:
        connection.ehlo()
        assert connection.mail("a@b.c", ["BODY=8BITMIME"])[0] == 555
        assert connection.mail("a@b.c", ["SIZE=1001"])[0] == 552
        assert connection.mail("a@b.c")[0] == 250
        assert connection.rcpt("d@e.f")[0] == 250
        assert connection.data(b"x\r\n" * 400)[0] == 552
        assert not server.messages


def test_thousands_of_messages_are_quick(smtp: SmtpServer) -> None:
    """Two thousand messages of 20 KB over one connection take a few seconds at most."""
    body = ("x" * 76 + "\r\n") * 263
    one = f"MAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nDATA\r\n{body}.\r\n".encode()
    thread = threading.Thread(target=talk, args=(smtp, b"EHLO x\r\n" + one * 2000 + b"QUIT\r\n"))
    thread.start()
    thread.join(extend_timeout(5))
    assert len(smtp.messages) == 2000


def test_store_then_hold(smtp: SmtpServer) -> None:
    """The message is taken at once, the 250 comes after the release."""
    gate = smtp.rules.store_then_hold(times=1)
    thread = threading.Thread(target=send, args=(smtp,))
    thread.start()
    smtp.wait_for(1)
    assert thread.is_alive()
    gate.release()
    thread.join(5)
    assert len(smtp.messages) == 1


def test_reset_within_the_message(smtp: SmtpServer) -> None:
    """The connection is reset after so many bytes of the message, and nothing is stored."""
    smtp.rules.reset(10, times=1)
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        send(smtp)
    send(smtp)
    assert len(smtp.messages) == 1


def test_says_what_it_is_told(smtp: SmtpServer) -> None:
    """Other bytes than usual are said, and all goes on as usual."""
    smtp.rules.reply_raw("rcpt", b"251-2.1.5 will\r\n251 2.1.5 forward\r\n")
    smtp.rules.reply_raw("body", "250 gespeichert für später\r\n".encode())
    with client(smtp) as connection:
        connection.ehlo()
        connection.mail("me@example.com")
        assert connection.rcpt("anna@example.org") == (251, b"2.1.5 will\n2.1.5 forward")
        assert connection.data("x") == (250, "gespeichert für später".encode())
    assert len(smtp.messages) == 1


def test_greylists_by_a_clock(smtp: SmtpServer) -> None:
    """A recipient is refused until so long after it was first named; each has a time of its own."""
    now = [1000.0]
    smtp.rules.greylist(900, lambda: now[0])
    for at, fine in ((1000, False), (1899, False), (1900, True)):
        now[0] = at
        if fine:
            send(smtp)
        else:
            with pytest.raises(smtplib.SMTPRecipientsRefused):
                send(smtp)
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        send(smtp, "ben@example.org")


def test_replies_in_single_bytes() -> None:
    """Replies that come in pieces are the same replies."""
    with SmtpServer(piece=1) as smtp:
        send(smtp)
        assert len(smtp.messages) == 1


def test_certificates_are_trusted_until_they_run_out() -> None:
    """A self-signed certificate is good for whoever knows it; one of the same key that ran out is not."""
    good = self_signed()
    for certificate, fine in ((good, True), (expired(good), False)):
        context = ssl.create_default_context(cadata=certificate.certificate.decode())
        with SmtpServer(starttls=True, certificate=certificate) as smtp, client(smtp) as connection:
            if fine:
                connection.starttls(context=context)
                continue
            with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
                connection.starttls(context=context)
