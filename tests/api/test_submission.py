"""SMTP submission: what programs send arrives as it is, who may send, and what is refused (docs/decisions.md#7)."""

import base64
import smtplib
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.submission import KEY_NAME, Ports, RawSession, create_key

SENDER = "shop@bakery.example"


@pytest.fixture(scope="module")
def relay() -> Iterator[SmtpServer]:
    """Yield the SMTP server that all messages leave through."""
    with SmtpServer() as smtp:
        yield smtp


@pytest.fixture(scope="module")
def ports() -> Ports:
    """Return the ports of SMTP submission."""
    return Ports()


@pytest.fixture(scope="module")
def server(relay: SmtpServer, ports: Ports) -> Iterator[Server]:
    """Yield a server with SMTP submission that sends through the relay."""
    with Server(relay=relay.port, env=ports.env | {"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "4"}).set_up() as running:
        running.set_postal_address()
        yield running
        running.stop()


@pytest.fixture(scope="module")
def key(server: Server) -> str:
    """Return the API key of a shop."""
    return create_key(server)


@pytest.fixture(scope="module")
def test_key(server: Server) -> str:
    """Return a test key with the same name."""
    return create_key(server, KEY_NAME, "--test")


def compose(subject: str = "Your order", to: str = "ann@example.org", **headers: str) -> EmailMessage:
    """Return an email with an attached file."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = f"Shop <{SENDER}>", to, subject
    for name, value in headers.items():
        mail[name.replace("_", "-")] = value
    mail.set_content("Thank you: Grüße\n.\n..\n")
    mail.add_attachment(bytes(range(256)) * 50, maintype="application", subtype="pdf", filename="invoice.pdf")
    return mail


def wait_for_mail(relay: SmtpServer, before: int, count: int) -> list[Any]:
    """Return the messages that the relay got since it had `before`, once there are `count`."""
    relay.wait_for(before + count)
    return relay.messages[before:]


@pytest.mark.parametrize("is_tls_first", [False, True])
def test_a_message_with_attachment_and_bcc(
    api: Client, relay: SmtpServer, ports: Ports, key: str, is_tls_first: bool
) -> None:
    """Each recipient of the envelope gets the MIME as it came without Bcc, and has a row of the ledger."""
    before, recipients = len(relay.messages), ["ann@example.org", "bea@example.org", "hidden@example.org"]
    mail = compose(
        to="ann@example.org", Cc="bea@example.org", Bcc="hidden@example.org", X_Campanero_Tag="order",
        Message_ID=f"<{is_tls_first}@shop>",
    )  # fmt: skip
    with ports.connect(key, is_tls_first=is_tls_first) as client:
        assert client.sendmail("www-data@localhost", recipients, mail.as_bytes(policy=SMTP)) == {}
    received = wait_for_mail(relay, before, 3)
    assert sorted(message.to for message in received) == recipients
    body = mail.as_bytes(policy=SMTP).partition(b"\r\n\r\n")[2]
    for message in received:
        assert message.raw.partition(b"\r\n\r\n")[2] == body
        assert message.header("Bcc") is None and message.header("X-Campanero-Tag") is None
        assert message.header("Message-ID") == f"<{is_tls_first}@shop>" and message.mail_from != "www-data@localhost"
    rows = {row["to"]: row for row in api.get("/messages", limit=3).expect(200)}
    assert sorted(rows) == recipients and rows["ann@example.org"]["tags"] == {"tag": "order"}
    detail = api.wait(f"/messages/{rows['ann@example.org']['id']}", lambda row: row["status"] == "sent")
    assert {copy["address"]: copy["kind"] for copy in detail["recipients"]} == {
        "ann@example.org": "to", "bea@example.org": "cc", "hidden@example.org": "bcc",
    }  # fmt: skip
    assert [file["filename"] for file in detail["attachments"]] == ["invoice.pdf"]
    assert "Grüße" in detail["text"] and detail["subject"] == "Your order"


def test_the_same_message_id_is_sent_once(relay: SmtpServer, ports: Ports, key: str, api: Client) -> None:
    """A program that repeats an email after a lost answer gets 250, and its recipients get one."""
    before, mail = len(relay.messages), compose("Once", Message_ID="<once@shop>")
    with ports.connect(key) as client:
        for _ in range(3):
            client.send_message(mail)
    for _ in range(2):
        with ports.connect(key) as client:
            client.send_message(mail)
            client.send_message(compose("Last", "last@example.org"))
    assert [message.subject for message in wait_for_mail(relay, before, 3)].count("Once") == 1
    assert len([row for row in api.get("/messages", limit=20).expect(200) if row["subject"] == "Once"]) == 1


def test_a_large_message_is_sent_byte_for_byte(relay: SmtpServer, ports: Ports, key: str) -> None:
    """An email of 20 MB is stored on disk, and leaves with the same bytes; one over the limit is refused."""
    before = len(relay.messages)
    content = b"From: shop@bakery.example\r\nMessage-ID: <l@shop>\r\nDate: x\r\n\r\n" + (b".a" * 37 + b"\r\n") * 270_000
    with ports.connect(key) as client:
        client.sendmail(SENDER, ["big@example.org"], content)
        [message] = wait_for_mail(relay, before, 1)
        assert message.raw == content
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            client.sendmail(SENDER, ["big@example.org"], content * 2)
        assert refused.value.smtp_code == 552
    with RawSession(ports.tls) as session:
        session.start_tls()
        begin(session, key)
        assert session.ask(f"MAIL FROM:<{SENDER}>\r\n".encode()).startswith("250")
        assert session.ask(b"RCPT TO:<big@example.org>\r\n").startswith("250")
        assert session.ask(b"DATA\r\n").startswith("354")
        assert session.ask(content * 2 + b".\r\n").startswith("552")
        assert session.ask(b"NOOP\r\n").startswith("250")


def begin(session: RawSession, key: str, name: str = KEY_NAME) -> None:
    """Greet the server on an encrypted connection, and sign in."""
    assert session.reply().startswith("220")
    assert session.ask(b"EHLO test\r\n").startswith("250")
    token = base64.b64encode(f"\0{name}\0{key}".encode())
    assert session.ask(b"AUTH PLAIN " + token + b"\r\n").startswith("235")


def test_a_test_key_sends_to_the_test_inbox(api: Client, relay: SmtpServer, ports: Ports, test_key: str) -> None:
    """Mail of a test key is captured with its own Message-ID, from any sender, and leaves to nobody."""
    before, mail = len(relay.messages), compose("Captured", Message_ID="<captured@shop>")
    mail.replace_header("From", "anybody@elsewhere.example")
    with ports.connect(test_key) as client:
        client.send_message(mail)
    [captured] = api.wait("/capture", lambda rows: [row for row in rows if row["subject"] == "Captured"])[:1]
    assert captured["subject"] == "Captured" and len(relay.messages) == before
    assert api.get("/messages", limit=1).expect(200)[0]["test"] is True


def test_suppressed_recipients_are_refused_one_by_one(api: Client, relay: SmtpServer, ports: Ports, key: str) -> None:
    """A suppressed recipient is refused at RCPT with the reason and since when; the others get the message."""
    api.post("/suppressions", {"address": "gone@example.org", "reason": "hard_bounce"}).expect(201)
    before = len(relay.messages)
    with ports.connect(key) as client:
        refused = client.send_message(compose("Partly", "gone@example.org, here@example.org"))
        code, words = refused["gone@example.org"]
        assert code == 550 and words.startswith(b"5.1.1 gone@example.org is suppressed since 20")
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            client.send_message(compose("Nobody", "gone@example.org"))
    assert [message.to for message in wait_for_mail(relay, before, 1)] == ["here@example.org"]


def test_marketing_needs_consent(api: Client, relay: SmtpServer, ports: Ports, key: str) -> None:
    """Opt-outs stop marketing but no receipts, and marketing has our unsubscribe links."""
    api.post("/contacts", {"email": "fan@example.org"}).expect(201)
    before = len(relay.messages)
    with ports.connect(key) as client:
        with pytest.raises(smtplib.SMTPDataError) as refused:
            client.send_message(compose("Sale", "stranger@example.org", X_Campanero_Class="marketing"))
        assert refused.value.smtp_code == 550 and b"no consent" in refused.value.smtp_error
        client.send_message(compose("Sale", "fan@example.org", X_Campanero_Class="marketing"))
        client.send_message(compose("Receipt", "stranger@example.org"))
    received = {message.subject: message for message in wait_for_mail(relay, before, 2)}
    assert "/u/" in (received["Sale"].header("List-Unsubscribe") or "")
    assert received["Receipt"].header("List-Unsubscribe") is None


def test_a_revoked_key_sends_nothing_more(server: Server, api: Client, ports: Ports) -> None:
    """A session that is signed in ends with its key, and so does every new one."""
    key = create_key(server, "Revoked")
    owner = server.client(
        api.post("/login", {"email": "owner@example.com", "password": "correct horse battery"}).json["token"]
    )
    with ports.connect(key, "revoked") as client:
        client.send_message(compose("Before"))
        [row] = [row for row in owner.get("/api_keys").expect(200) if row["name"] == "Revoked"]
        owner.delete(f"/api_keys/{row['id']}").expect(200)
        with pytest.raises(smtplib.SMTPDataError, match="revoked"):
            client.send_message(compose("After"))
    with pytest.raises(smtplib.SMTPAuthenticationError):
        ports.connect(key, "Revoked")


@pytest.mark.parametrize(("name", "scope"), [("Other", "send"), (KEY_NAME, "contacts:read")])
def test_sign_in_needs_name_scope_and_key(server: Server, ports: Ports, name: str, scope: str) -> None:
    """A key signs in with its own name only, and only if it may send messages."""
    key = server.cli("key", "create", name, "--scope", scope).stdout.split()[-1]
    with pytest.raises(smtplib.SMTPAuthenticationError) as refused:
        ports.connect(key)
    assert refused.value.smtp_code == 535


def test_guessing_is_slowed_and_stopped_by_client_and_name(server: Server, ports: Ports) -> None:
    """Failures with a name are answered later each time, and at the limit not checked; other names go on (T14)."""
    guess = base64.b64encode(b"\0guessed\0camp_live_" + b"x" * 36)
    times: list[float] = []
    with RawSession(ports.tls) as session:
        session.start_tls()
        assert session.reply().startswith("220") and session.ask(b"EHLO test\r\n").startswith("250")
        for _ in range(4):
            started = time.monotonic()
            assert session.ask(b"AUTH PLAIN " + guess + b"\r\n").startswith("535 5.7.8")
            times.append(time.monotonic() - started)
        assert session.ask(b"AUTH PLAIN " + guess + b"\r\n").startswith("454 4.7.0 Too many failed attempts")
    assert max(times) > 1.5
    ports.connect(create_key(server, "Another"), "another").quit()
