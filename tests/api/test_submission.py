"""SMTP submission: what programs send arrives as it is, who may send, and what is refused (docs/decisions.md#7)."""

import base64
import smtplib
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer
from tests.kit.submission import KEY_NAME, Ports, RawSession, create_key

SENDER = "shop@bakery.example"


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


def test_an_account_delays_large_messages_of_no_other(server: Server, ports: Ports, relay: SmtpServer) -> None:
    """Unfinished messages of an account delay its own large ones, until its connections end (T07)."""
    other = server.cli("account", "add", "Other").stdout.split()[-1]
    key = create_key(server, "One", "--test")
    other_key = create_key(server, "Two", "--test", "--account", other)
    large = (compose("Large").as_string().replace("\n", "\r\n") + ("a" * 76 + "\r\n") * 40_000).encode()
    with ports.connect(key, "One") as own, ports.connect(other_key, "Two") as of_other, ExitStack() as stack:
        # A session that has to wait gives its bytes back, so that how many are needed depends on who comes first.
        for _ in range(12):
            send_unfinished(stack.enter_context(RawSession(ports.tls)), key)
            if submit_to_ann(own, large) == 452:
                break
        relay.wait_until(lambda: submit_to_ann(own, large) == 452)
        assert submit_to_ann(of_other, large) == 250
        stack.close()
        relay.wait_until(lambda: submit_to_ann(own, large) == 250)


def send_unfinished(session: RawSession, key: str) -> None:
    """Send 24 MB of an email that does not end."""
    session.start_tls()
    begin(session, key, "One")
    for command in (b"MAIL FROM:<shop@bakery.example>", b"RCPT TO:<ann@example.org>", b"DATA"):
        assert session.ask(command + b"\r\n")[:1] in "23"
    session.send(b"Subject: unfinished\r\n\r\n" + (b"a" * 76 + b"\r\n") * 320_000)


def submit_to_ann(client: smtplib.SMTP, content: bytes) -> int:
    """Submit an email on an open connection and return the code of the reply."""
    client.ehlo_or_helo_if_needed()
    client.mail("shop@bakery.example")
    client.rcpt("ann@example.org")
    return client.data(content)[0]


def test_a_refused_message_ends_its_transaction(ports: Ports, key: str) -> None:
    """A slow To header, an ambiguous From header, and a file that mail servers reject, are refused for good."""
    own = b"From: shop@bakery.example\r\n"
    spoofed = b'From: (") <ceo@bank.example> (") <shop@bakery.example>\r\n'
    file = own + b"Content-Disposition: attachment; filename=setup.exe\r\n"
    with ports.connect(key) as client:
        client.ehlo()
        for content, code in ((own + b"To: " + b"(" * 3_000 + b"\r\n", 554), (spoofed, 554), (file, 552)):
            assert client.mail("shop@bakery.example")[0] == 250
            for name in ("ann", "bea"):
                assert client.rcpt(f"{name}@example.org")[0] == 250
            assert client.data(content + b"\r\nHi\r\n")[0] == code


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


def test_the_log_has_no_key(relay: SmtpServer) -> None:
    """No key is in the log, whatever its level and the mechanism are, and signing in warns of nothing (T39)."""
    ports = Ports()
    with Server(relay=relay.port, env=ports.env | {"CAMPANERO_LOG__LEVEL": "debug"}).set_up().start() as server:
        key = create_key(server)
        for mechanism in ("PLAIN", "LOGIN"):
            with ports.connect(key) as client:
                client.send_message(compose(mechanism))
            with RawSession(ports.tls) as session:
                session.start_tls()
                assert session.reply().startswith("220") and session.ask(b"EHLO test\r\n").startswith("250")
                assert session.ask(f"AUTH {mechanism.lower()}\r\n".encode()).startswith("334")
                name, token = (base64.b64encode(text.encode()) for text in (KEY_NAME, f"\0{KEY_NAME}\0{key}"))
                if mechanism == "LOGIN":
                    assert session.ask(name + b"\r\n").startswith("334")
                    token = base64.b64encode(key.encode())
                assert session.ask(token + b"\r\n").startswith("235")
        server.stop()
        output = server.output
    assert key not in output and token.decode() not in output and "deprecated" not in output


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
    owner = server.client(api.post("/login", {"email": EMAIL, "password": PASSWORD}).json["token"])
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


@pytest.mark.full
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


def test_the_hourly_limit_of_a_key_stops_a_hacked_site(
    server: Server, api: Client, relay: SmtpServer, ports: Ports
) -> None:
    """Recipients over the limit of a key are deferred, after a restart too, and the owners get one email (T38)."""
    owner = server.client(api.post("/login", {"email": EMAIL, "password": PASSWORD}).json["token"])
    limited = owner.post("/api_keys", {"name": "Blog", "scope": "send", "smtp_hourly_limit": 3}).expect(201)
    assert limited["smtp_hourly_limit"] == 3 and limited["smtp_count"] == 0
    before = len(relay.messages)
    with ports.connect(limited["key"], "blog") as client:
        client.send_message(compose("Blog", "a@example.org, b@example.org"))
        refused = client.send_message(compose("Blog", "c@example.org, d@example.org"))
        code, words = refused["d@example.org"]
        assert code == 450 and words.startswith(b"4.7.1 The API key reached its limit of 3 recipients per hour")
    server.stop()
    server.start()
    with ports.connect(limited["key"], "blog") as client, pytest.raises(smtplib.SMTPDataError) as stopped:
        client.send_message(compose("Blog", "e@example.org"))
    assert stopped.value.smtp_code == 450
    received = [message for message in wait_for_mail(relay, before, 4) if message.to != "e@example.org"]
    assert sorted(message.to for message in received) == ["a@example.org", "b@example.org", "c@example.org", EMAIL]
    assert "SMTP limit reached: Blog" in [message.subject for message in received]
    [row] = [row for row in owner.get("/api_keys").expect(200) if row["name"] == "Blog"]
    assert row["smtp_count"] == 2 and row["smtp_last_at"] is not None


# No relay: what strangers and signed-in programs try in order to send where, or as whom, they may not.

FORBIDDEN_COMMANDS = (
    b"MAIL FROM:<a@bakery.example>\r\n", b"RCPT TO:<a@example.org>\r\n", b"DATA\r\n", b"VRFY root\r\n", b"EXPN all\r\n",
    b"ETRN example.org\r\n", b"TURN\r\n", b"SEND FROM:<a@bakery.example>\r\n", b"SAML FROM:<a@bakery.example>\r\n",
    b"BDAT 10 LAST\r\n", b"AUTH\r\n", b"AUTH ANONYMOUS\r\n", b"AUTH CRAM-MD5\r\n", b"AUTH EXTERNAL =\r\n",
    b"AUTH PLAIN AGEAYg==\r\n", b"AUTH LOGIN !!\r\n", b"AUTH PLAIN " + b"A" * 600 + b"\r\n",
    b"XCLIENT ADDR=127.0.0.1 LOGIN=Shop\r\n", b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
)  # fmt: skip


@pytest.mark.parametrize("is_tls_first", [False, True])
@pytest.mark.parametrize("command", FORBIDDEN_COMMANDS, ids=repr)
def test_strangers_can_do_nothing(
    server: Server, ports: Ports, relay: SmtpServer, command: bytes, is_tls_first: bool
) -> None:
    """Without signing in nothing is accepted, with TLS or without (T32)."""
    before = len(relay.messages)
    with RawSession(ports.tls if is_tls_first else ports.starttls) as session:
        if is_tls_first:
            session.start_tls()
        assert session.reply().startswith("220")
        greeting = session.ask(b"EHLO stranger\r\n")
        assert ("AUTH" in greeting) == is_tls_first and ("STARTTLS" in greeting) == (not is_tls_first)
        reply = session.ask(command)
        assert reply[:1] in "45" or (command.startswith(b"VRFY") and reply[:3] == "252"), reply
        assert session.ask(b"DATA\r\n")[:1] in ("4", "5", "")
    assert len(relay.messages) == before


BAD_RECIPIENTS = (
    "user%elsewhere.example@bakery.example", "elsewhere.example!user@bakery.example",
    '"user@elsewhere.example"@bakery.example',
    "@bakery.example:user@elsewhere.example", "user@[127.0.0.1]", "user@localhost", "user", "@example.org", "user@",
    "user@example.org@bakery.example", "user/elsewhere@bakery.example", "user:x@bakery.example", "u\tx@example.org",
    "user@example.org>\r<x@example.org", "user@-example.org", "a b@example.org", "user@exa_mple..org",
)  # fmt: skip


def test_routed_and_invalid_recipients_are_refused(server: Server, ports: Ports, relay: SmtpServer, key: str) -> None:
    """Source routes, `%`, `!` and quoted addresses are refused for signed-in programs too (T08)."""
    before = len(relay.messages)
    for bad in BAD_RECIPIENTS:
        with RawSession(ports.tls) as session:
            session.start_tls()
            begin(session, key)
            assert session.ask(f"MAIL FROM:<{SENDER}>\r\n".encode()).startswith("250")
            assert session.ask(f"RCPT TO:<{bad}>\r\n".encode())[:1] == "5", bad
            assert session.ask(b"DATA\r\n")[:1] in ("5", ""), bad
    assert len(relay.messages) == before


def test_commands_before_tls_are_not_run_after_it(ports: Ports, key: str) -> None:
    """Commands that follow STARTTLS in the clear are dropped, as a stranger could have added them (T34)."""
    with RawSession(ports.starttls) as session:
        assert session.reply().startswith("220") and session.ask(b"EHLO test\r\n").startswith("250")
        assert session.ask(b"STARTTLS\r\nEHLO stranger\r\nNOOP\r\nQUIT\r\n").startswith("220")
        session.start_tls()
        assert session.ask(b"MAIL FROM:<a@bakery.example>\r\n")[:3] in ("503", "530")
        assert session.ask(b"EHLO test\r\n").startswith("250")
        token = base64.b64encode(f"\0{KEY_NAME}\0{key}".encode())
        assert session.ask(b"AUTH PLAIN " + token + b"\r\n").startswith("235")


SMUGGLED = (
    b"MAIL FROM:<shop@bakery.example>\r\nRCPT TO:<smuggled@example.org>\r\nDATA\r\n"
    b"From: shop@bakery.example\r\n\r\nx\r\n.\r\n"
)
ENDS = (b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r", b"\r.\r\n", b"\n\n.\r\n", b"\0\r\n.\n")


@pytest.mark.parametrize("end", ENDS)
def test_no_second_message_is_smuggled(ports: Ports, relay: SmtpServer, key: str, end: bytes) -> None:
    """Only CRLF, dot, CRLF ends a message, and one with another line end is refused as a whole (T33)."""
    before = len(relay.messages)
    with RawSession(ports.tls) as session:
        session.start_tls()
        begin(session, key)
        session.ask(b"MAIL FROM:<shop@bakery.example>\r\n")
        session.ask(b"RCPT TO:<ann@example.org>\r\n")
        session.ask(b"DATA\r\n")
        reply = session.ask(b"From: shop@bakery.example\r\n\r\nhello" + end + SMUGGLED)
        assert reply.startswith("554 5.6.0"), reply
        assert session.ask(b"NOOP\r\n").startswith("250")
    assert len(relay.messages) == before


@pytest.mark.parametrize("line_end", [b"\n", b"\r"])
def test_commands_end_in_crlf(ports: Ports, line_end: bytes) -> None:
    """A command with another line end ends the session."""
    with RawSession(ports.starttls) as session:
        session.reply()
        session.send(b"EHLO a" + line_end + b"NOOP\r\n")
        assert session.reply()[:3] in ("554", "")


def test_only_verified_domains_may_send(relay: SmtpServer) -> None:
    """From and Sender must be of a verified domain of the account; the reply names the page to go to (T37)."""
    ports = Ports()
    strict = ports.env | {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false"}
    with Server(relay=relay.port, env=strict).set_up().start() as server:
        key, before = create_key(server), len(relay.messages)
        with ports.connect(key) as client:
            for headers in ({}, {"Sender": "other@elsewhere.example"}):
                with pytest.raises(smtplib.SMTPDataError) as refused:
                    client.send_message(compose(**headers))
                assert refused.value.smtp_code == 550
                assert refused.value.smtp_error.startswith(b"5.7.1 bakery.example is not a verified domain")
                assert b"/settings/domains" in refused.value.smtp_error
        assert len(relay.messages) == before
        server.stop()


def test_connections_of_an_address_are_limited(server: Server, ports: Ports) -> None:
    """The 21st connection of an address is told to come back later, and gets in once another one has ended."""
    with ExitStack() as stack:
        for _ in range(20):
            session = stack.enter_context(RawSession(ports.starttls))
            assert session.reply().startswith("220")
        with RawSession(ports.starttls) as turned_away:
            assert turned_away.reply().startswith("421 4.7.0")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with RawSession(ports.starttls) as session:
            if session.reply().startswith("220"):
                return
    raise AssertionError("no connection was released")


def test_an_account_has_half_of_the_sessions(server: Server, ports: Ports) -> None:
    """The 101st session of an account cannot sign in until another one ends; those of other accounts can."""
    other = server.cli("account", "add", "Quiet").stdout.split()[-1]
    key = create_key(server, "Busy", "--test")
    other_key = create_key(server, "Calm", "--test", "--account", other)
    with ExitStack() as stack:
        sessions = [stack.enter_context(RawSession(ports.tls, f"127.0.1.{1 + n // 20}")) for n in range(102)]
        for session in sessions:
            session.start_tls()
        for session in sessions[:100]:
            begin(session, key, "Busy")
        begin(sessions[101], other_key, "Calm")
        late = sessions[100]
        assert late.reply().startswith("220") and late.ask(b"EHLO test\r\n").startswith("250")
        sign_in = b"AUTH PLAIN " + base64.b64encode(f"\0Busy\0{key}".encode()) + b"\r\n"
        assert late.ask(sign_in).startswith("454 4.7.0")
        sessions[0].socket.close()
        for _ in range(4):
            time.sleep(0.1)
            reply = late.ask(sign_in)
            if reply.startswith("235"):
                break
        assert reply.startswith("235")


def test_a_failed_tls_handshake_is_logged_in_words(server: Server, ports: Ports) -> None:
    """The log says for a client without TLS, for one that distrusts the certificate, and for one that leaves, why."""
    with RawSession(ports.starttls) as session:
        session.reply()
        assert session.ask(b"EHLO client\r\n").startswith("250") and session.ask(b"STARTTLS\r\n").startswith("220")
        session.ask(b"this is no handshake\r\n")
    server.wait_for_line(r"submission: TLS failed client=127\.0\.0\.1: what the client sent is no TLS handshake")
    with pytest.raises(ssl.SSLCertVerificationError):
        smtplib.SMTP_SSL("localhost", ports.tls, context=ssl.create_default_context(), timeout=30)
    server.wait_for_line(r"submission: TLS failed client=.*: the client does not trust the certificate")
    with RawSession(ports.tls) as leaving:
        leaving.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        time.sleep(0.5)
    server.wait_for_line(r"submission: TLS failed client=.*: the client closed the connection during the handshake")
    assert "TLSSetupException" not in server.output


def test_tls_begins_once(server: Server, ports: Ports) -> None:
    """STARTTLS inside of TLS is refused (RFC 3207, 4.2), and the session goes on."""
    with RawSession(ports.tls) as session:
        session.start_tls()
        assert session.reply().startswith("220") and session.ask(b"EHLO client\r\n").startswith("250")
        assert session.ask(b"STARTTLS\r\n").startswith("503") and session.ask(b"NOOP\r\n").startswith("250")
    assert "Fatal error" not in server.output


@pytest.mark.full
def test_a_client_must_sign_in_within_a_minute(ports: Ports, key: str) -> None:
    """NOOP does not keep a connection open for a client that has not signed in; one that has may wait (T07)."""
    with RawSession(ports.tls) as idle, RawSession(ports.tls) as signed_in:
        for session in (idle, signed_in):
            session.start_tls()
        assert idle.reply().startswith("220")
        begin(signed_in, key)
        for _ in range(4):
            time.sleep(16)
            assert signed_in.ask(b"NOOP\r\n").startswith("250")
            last = idle.ask(b"NOOP\r\n")
        assert last.startswith("421") or last == ""


def test_captured_mail_may_be_unreadable(api: Client, ports: Ports, test_key: str) -> None:
    """The test inbox has an email whose parts cannot be decoded, and the messages behind it on the connection."""
    kinds = (b"charset=iso-8859-8-i", b"charset=hex", b"<\xff<;\t0*", b"charset*=utf-8''x%")
    mails = [b"Content-Type: text/plain; %s\r\n\r\nshalom" % kind for kind in kinds]
    mails[2] = mails[2].replace(b"text/plain; ", b"\t")
    mails.append(b"\r\n" + b"x" * 70_000)
    with ports.connect(test_key) as client:
        for number, mail in enumerate(mails):
            head = f"From: {SENDER}\r\nSubject: Odd {number}\r\n"
            client.sendmail(SENDER, ["ann@example.org"], head.encode() + mail)
    captured = api.wait("/capture", lambda rows: len(rows) == len(mails) and rows, search="Odd ")
    assert {row["subject"] for row in captured} == {f"Odd {number}" for number in range(len(mails))}
    texts = [api.get(f"/capture/{row['id']}").expect(200)["text"] for row in captured]
    assert sum("shalom" in (text or "") for text in texts) >= 3
