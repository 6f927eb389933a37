"""Returned mail: each kind has its effect, and forged, late or repeated mail has none."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from appliance.sending.delivery import bounce_classes
from tests.kit.bounces import EXPECTED_CLASSES, Placeholders, hostile_emails, sample
from tests.kit.certificates import self_signed
from tests.kit.client import Client
from tests.kit.dns import DnsServer
from tests.kit.recipients import NO_RATE_LIMITS, create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.server import Server, free_port
from tests.kit.smtp import Message, SmtpServer
from tests.kit.smtp_client import SmtpClient
from tests.kit.timeouts import extend_timeout

DOMAIN = "bakery.example"
SAMPLES = sorted(EXPECTED_CLASSES)
GENUINE = [name for name in SAMPLES if EXPECTED_CLASSES[name] != "nothing"]
FORGED = [name for name in SAMPLES if EXPECTED_CLASSES[name] == "nothing"]
COUNT = len(SAMPLES) + 20
BOMBS = hostile_emails()
FEEDBACK = f"fbl@bounce.{DOMAIN}"


class World(NamedTuple):
    """A server that has sent a campaign, and the way to return mail to it."""

    api: Client
    post: SmtpClient
    path: str
    mail: dict[str, Message]
    relay: SmtpServer
    server: Server

    def marks(self, index: int) -> Placeholders:
        """Return the identifiers of the message to the contact with this index."""
        message = self.mail[recipient_address(index)]
        assert message.mail_from is not None
        return Placeholders(
            recipient_address(index), message.mail_from, (message.header("Message-ID") or "").strip("<>"),
            (message.header("List-Unsubscribe") or "").partition(">")[0].strip("<"),
            (message.header("List-Unsubscribe") or "").partition("<mailto:")[2].partition(">")[0],
        )  # fmt: skip

    def rows(self) -> dict[str, Any]:
        """Return the messages of the campaign, by recipient."""
        return {row["to"]: row for row in self.api.all("/messages", campaign_id=self.path.rpartition("/")[2])}

    def state(self) -> list[Any]:
        """Return everything that returned mail could change."""
        paths = ("/suppressions", "/contacts", "/messages", "/events")
        return [self.api.all(path) for path in paths] + [self.api.get(self.path).expect(200)["stats"]]


def verified(api: Client, dns: DnsServer) -> None:
    """Add the domain, publish its DNS records and verify it."""
    domain = api.post("/domains", {"domain": {"name": DOMAIN}}).expect(201)
    for record in domain["dns_records"]:
        value = f"{record['priority']} {record['value']}" if record["record_type"] == "MX" else record["value"]
        dns.set(record["name"], record["record_type"], value)
    assert api.post(f"/domains/{domain['id']}/verify").expect(200)["status"] == "verified"


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A completed campaign to more contacts than there are samples."""
    post, certificate = SmtpClient(free_port()), self_signed()
    pem = tmp_path_factory.mktemp("tls") / "both.pem"
    pem.write_bytes(certificate.certificate + certificate.key)
    with SmtpServer() as relay, DnsServer() as dns:
        settings = {"CAMPANERO_EMAIL__DIRECT__HELO": f"mail.{DOMAIN}", "CAMPANERO_INBOUND__TLS_CERTIFICATE": str(pem)}
        with Server(relay=relay.port, env={**post.env, **dns.env, **settings, **NO_RATE_LIMITS}).set_up() as server:
            server.set_postal_address()
            api = server.client()
            verified(api, dns)
            path = send_campaign(api, create_list(api, COUNT))
            wait_until_completed(api, path)
            yield World(api, post, path, {message.to: message for message in relay.messages}, relay, server)
            server.stop()


def test_each_sample_has_its_effect(world: World) -> None:
    """Each sample, sent to its message's return path, gives the right status, event and suppression."""
    assert world.api.get("/account").expect(200)["capabilities"]["inbound"] is True
    for index, name in enumerate(SAMPLES):
        marks = world.marks(index)
        assert marks.return_path.endswith(f"@bounce.{DOMAIN}")
        if name in GENUINE:
            to = FEEDBACK if name.startswith("arf") else marks.return_path
            assert world.post.deliver(sample(name, marks), to) == [250], name
    rows = world.rows()
    reasons = {row["address"]: row["reason"] for row in world.api.all("/suppressions")}
    events: dict[str, list[str]] = {}
    for event in world.api.all("/events"):
        if event["event"] not in ("email_sent", "contact_add", "list_add", "opt_in"):
            events.setdefault(event["resource_uid"] or "", []).append(event["event"])
    for index, name in enumerate(SAMPLES):
        row, kind = rows[recipient_address(index)], EXPECTED_CLASSES[name]
        message_events = events.get(f"message:{row['id']}", [])
        if kind == "nothing":
            assert (row["status"], message_events, reasons.get(recipient_address(index))) == ("sent", [], None), name
        elif kind == "unverified":
            assert (row["status"], reasons.get(recipient_address(index))) == ("sent", None), name
            assert message_events == ["email_complaint_unverified"], name
        elif kind in ("delivered", "complaint"):
            complained = kind == "complaint"
            assert row["status"] == ("complained" if complained else "delivered"), name
            assert sorted(message_events) == (["email_complained", "opt_out"] if complained else ["email_delivered"]), (
                name
            )
            assert reasons.get(recipient_address(index)) == ("complaint" if complained else None), name
        else:
            bounce_class = bounce_classes.CLASSES_BY_NAME[kind]
            assert (row["status"], message_events) == ("bounced", [bounce_class.event_name]), name
            assert reasons.get(recipient_address(index)) == ("hard_bounce" if kind == "hard" else None), name
            assert row["error"]["text"] and row["bounced_at"], name


def test_forged_returns_change_nothing(world: World) -> None:
    """Forged tokens, wrong recipients, delay notices, auto-replies and repeats change nothing."""
    first, second = (world.marks(len(SAMPLES) + number) for number in (0, 1))
    hard = sample("postfix_user_unknown", first)
    repeated = SAMPLES.index("postfix_user_unknown")
    repeated_sample = sample(SAMPLES[repeated], world.marks(repeated))
    assert world.post.deliver(repeated_sample, world.marks(repeated).return_path) == [250]
    before = world.state()

    token = first.return_path.split("@")[0].removeprefix("b+")
    flipped = token[:-1] + ("0" if token[-1] != "0" else "1")
    for wrong_token in (flipped, f"{(int(token[:12], 16) + 5000):012x}{token[12:]}", "0" * 28, "", token[:12]):
        assert world.post.deliver(hard, f"b+{wrong_token}@bounce.{DOMAIN}") == [550]
    assert world.post.deliver(hard, second.return_path) == [250], "taken, and not believed"
    for name in FORGED:
        to = FEEDBACK if name.startswith("arf") else first.return_path
        assert world.post.deliver(sample(name, first), to, sender="somebody@example.org") == [250]
    assert world.post.deliver(sample("gmail_not_found", first), FEEDBACK) == [250], "a bounce belongs to a return path"
    assert world.post.deliver(repeated_sample, world.marks(repeated).return_path, times=100) == [250] * 100
    assert world.state() == before
    assert len(world.relay.messages) == COUNT, "nothing was passed on"


def test_a_report_to_two_return_paths(world: World) -> None:
    """A bounce to two return paths counts for the message it is about, whatever the case of the address."""
    index = len(SAMPLES) + 2
    marks, other = world.marks(index), world.marks(index + 1)
    raw = sample("qmail_no_mailbox", marks)
    assert world.post.deliver(raw, marks.return_path.upper(), other.return_path) == [250]
    rows = world.rows()
    assert (rows[recipient_address(index)]["status"], rows[recipient_address(index + 1)]["status"]) == (
        "bounced",
        "sent",
    )


def test_an_unsubscribe_email_opts_out(world: World) -> None:
    """Any mail to the List-Unsubscribe address opts out its recipient once, and no one else (RFC 2369)."""
    index = len(SAMPLES) + 10
    recipient, other = recipient_address(index), recipient_address(index + 1)
    (to,) = re.findall(r"<mailto:([^>?]+)", world.mail[recipient].header("List-Unsubscribe") or "")
    raw = b"From: reader@example.org\r\nSubject: unsubscribe\r\n\r\n"
    assert world.post.deliver(raw, to, sender=recipient, times=2) == [250, 250]
    assert world.post.deliver(raw, to.replace("+", "+0")) == world.post.deliver(raw, to.replace("@", "0@")) == [550]
    (contact,), (other_contact,) = (
        world.api.get("/contacts/search", q=address_of_contact).expect(200) for address_of_contact in (recipient, other)
    )
    assert (contact["subscribed_email"], other_contact["subscribed_email"]) == (False, True)
    opt_outs = [
        row for row in world.api.get(f"/contacts/{contact['id']}/consents").expect(200) if row["act"] == "opt_out"
    ]
    assert [(row["by"], row["source"]) for row in opt_outs] == [("recipient", "mailto")]


def test_the_inbound_server_is_no_open_relay(world: World) -> None:
    """Only our own addresses are accepted, in any form; there is no AUTH, and VRFY reveals nothing (T32)."""
    path = world.marks(len(SAMPLES) + 4).return_path
    local = path.partition("@")[0]
    probes = (
        "victim@gmail.example", "x%y.example@bounce.bakery.example", "@a.example,@b.example:c@d.example",
        '"x@y.example"@bounce.bakery.example', "c!d@bounce.bakery.example", "postmaster", "root@localhost",
        "fbl@bounce.other.example", "fbl@bakery.example", f"{local}@bakery.example", f"{local}@[127.0.0.1]",
        f"b+@bounce.{DOMAIN}", f"unsubscribe+@bounce.{DOMAIN}",
    )  # fmt: skip
    with world.post.connect() as smtp:
        assert smtp.ehlo()[0] == 250 and "auth" not in smtp.esmtp_features and "starttls" in smtp.esmtp_features
        assert smtp.docmd("AUTH", "PLAIN AHgAeQ==")[0] >= 500 and smtp.docmd("EXPN", "staff")[0] >= 500
        assert smtp.docmd("VRFY", path) == smtp.docmd("VRFY", "nobody@example.org")
        smtp.docmd("MAIL", "FROM:<spammer@example.org>")
        codes = {probe: smtp.docmd("RCPT", f"TO:<{probe}>")[0] for probe in probes}
        assert all(code >= 500 for code in codes.values()), codes
        assert smtp.docmd("RCPT", "TO:<>")[0] >= 500 and smtp.docmd("DATA")[0] >= 500
        assert {smtp.docmd("RCPT", f"TO:<v{number}@gmail.example>")[0] for number in range(200)} == {550}
        assert [smtp.docmd("RCPT", f"TO:<{path}>")[0] for _ in range(12)] == [250] * 10 + [452] * 2
    assert len(world.relay.messages) == COUNT


def test_recipients_that_are_no_text_are_rejected_for_good(world: World) -> None:
    """Bytes that are not UTF-8 get 550 like any other unknown address, and nothing is logged as an error."""
    rcpt = b"RCPT TO:<fbl@bounce.\xff\xfe>\r\n"
    replies = world.post.send_raw(b"EHLO mx.example.net\r\n", b"MAIL FROM:<> SMTPUTF8\r\n", rcpt)
    assert replies.splitlines()[-1].startswith("550 5.7.1"), replies
    assert "session failed" not in world.server.output


@pytest.mark.parametrize("address", [b"<", b"<@", b"<=@[", b"<\t\t\xff\t\\?\x00@[ ", b"[" * 200, b'<"@x>'])
def test_malformed_addresses_are_rejected_for_good(world: World, address: bytes) -> None:
    """An address that cannot be parsed is never a reason to try again, and nothing is logged as an error."""
    begin = b"EHLO mx.example.net\r\n"
    replies = world.post.send_raw(begin, b"MAIL FROM:" + address + b" SMTPUTF8\r\n")
    assert replies.splitlines()[-1][:3] in ("250", "501", "553"), replies
    replies = world.post.send_raw(begin, b"MAIL FROM:<> SMTPUTF8\r\n", b"RCPT TO:" + address + b"\r\n")
    assert replies.splitlines()[-1][:3] in ("501", "550", "553"), replies
    assert "session failed" not in world.server.output


def test_signed_addresses_outlive_their_domain(world: World) -> None:
    """A return path and an unsubscribe address need a valid signature, at `bounce.` of any domain (T32).

    Mail of a deleted domain can thus still bounce and be unsubscribed; feedback addresses are known domains only.
    """
    mail = world.mail[recipient_address(len(SAMPLES) + 11)]
    (unsubscribe,) = re.findall(r"<mailto:([^>?]+)", mail.header("List-Unsubscribe") or "")
    signed = [address.partition("@")[0] for address in (world.marks(len(SAMPLES) + 11).return_path, unsubscribe)]
    with world.post.connect() as smtp:
        smtp.ehlo()
        smtp.docmd("MAIL", "FROM:<reader@example.org>")
        for local in signed:
            kind, _, token = local.partition("+")
            forged = f"{kind}+{'0' if token[0] != '0' else '1'}{token[1:]}"
            addresses = (
                f"{local}@bounce.deleted.example",
                f"{forged}@bounce.deleted.example",
                f"{local}@deleted.example",
            )
            assert [smtp.docmd("RCPT", f"TO:<{address}>")[0] for address in addresses] == [250, 550, 550]
        codes = [smtp.docmd("RCPT", f"TO:<fbl@bounce.{domain}>")[0] for domain in (DOMAIN, "deleted.example")]
        assert codes == [250, 550]


@pytest.mark.parametrize(
    "end", [b"\n.\r\n", b"\n.\n", b"\r.\r", b"\r\n.\r", b"\r\n.\n", b"\r.\r\n", b"\nX-Evil: 1\r\n"]
)
def test_smtp_smuggling_is_rejected(world: World, end: bytes) -> None:
    """A message with a line end that other servers may take for its end is rejected as a whole (T33)."""
    first, second = (world.marks(len(SAMPLES) + number) for number in (5, 6))
    inner = sample("postfix_user_unknown", second)
    smuggled = b"MAIL FROM:<>\r\nRCPT TO:<%s>\r\nDATA\r\n%s" % (second.return_path.encode(), inner)
    replies = world.post.send_raw(
        b"EHLO mx.example.net\r\n", b"MAIL FROM:<>\r\n", f"RCPT TO:<{first.return_path}>\r\n".encode(), b"DATA\r\n",
        sample("postfix_user_unknown", first).rstrip() + end + smuggled + b"\r\n.\r\n", b"QUIT\r\n",
    )  # fmt: skip
    replies_after_data = replies.partition("354 ")[2].split("\r\n")[1:]
    assert [line[:3] for line in replies_after_data if line] == ["554", "221"], replies
    rows = world.rows()
    assert {rows[marks.recipient]["status"] for marks in (first, second)} == {"sent"}


def test_commands_end_in_cr_lf(world: World) -> None:
    """A command that ends in LF alone ends the connection."""
    assert world.post.send_raw(b"EHLO a\nMAIL FROM:<>\n").partition("\r\n")[2].startswith("554")
    replies = world.post.send_raw(b"EHLO a\r\n", b"\nMAIL FROM:<>\r\n").splitlines()
    assert replies[-1].startswith("554"), replies
    with socket.create_connection(("127.0.0.1", world.post.port), timeout=5) as connection:
        connection.recv(1000)
        for piece in (b"NOOP\r", b"\n"):
            connection.sendall(piece)
            time.sleep(0.1)
        assert connection.recv(1000).startswith(b"250")


def test_inbound_size_limits(world: World) -> None:
    """Messages over a megabyte, endless lines and decompression bombs are rejected (T35)."""
    path = world.marks(len(SAMPLES) + 7).return_path
    assert world.post.deliver(b"Subject: x\r\n\r\n" + (b"y" * 70 + b"\r\n") * 20_000, path) == [552]
    with world.post.connect() as smtp:
        smtp.ehlo()
        assert smtp.docmd("MAIL", "FROM:<> SIZE=99999999")[0] == 552
    commands = [b"EHLO a\r\n", b"MAIL FROM:<>\r\n", f"RCPT TO:<{path}>\r\n".encode(), b"DATA\r\n"]
    replies = world.post.send_raw(*commands, b"z" * 8_000_000, timeout=60)
    assert "354 " in replies and "250 2.0.0" not in replies, (
        "disconnected; whether the 421 still arrives depends on the network"
    )
    for raw in BOMBS.values():
        assert set(world.post.deliver(raw, path)) <= {250, 500, 552, 554}


def test_many_connections_of_one_address(world: World, full: bool) -> None:
    """Five connections of one address are accepted and others get a 421; meanwhile the API responds quickly (T35)."""
    connections: list[socket.socket] = []
    greetings = []
    try:
        for number in range(1_000 if full else 120):
            connection = socket.create_connection(("127.0.0.1", world.post.port), timeout=20)
            connections.append(connection)
            greetings.append(connection.recv(200)[:3])
            if number % 20 == 0:
                started = time.perf_counter()
                world.api.get("/account").expect(200)
                assert time.perf_counter() - started < extend_timeout(1)
    finally:
        for connection in connections:
            connection.close()
    assert greetings.count(b"220") <= 5 and set(greetings) == {b"220", b"421"}
    marks = world.marks(len(SAMPLES) + 8)
    wait_until(lambda: world.post.deliver(sample("exim_text_quota", marks), marks.return_path) == [250])
    row = world.rows()[marks.recipient]
    assert (row["status"], row["error"]["enhanced"]) == ("bounced", "5.2.2")


def test_inbound_starttls(world: World) -> None:
    """With a certificate STARTTLS is offered, and a bounce is accepted over it."""
    marks = world.marks(len(SAMPLES) + 9)
    with world.post.connect() as smtp:
        smtp.starttls(context=ssl._create_unverified_context())
        smtp.ehlo()
        assert "starttls" not in smtp.esmtp_features and "auth" not in smtp.esmtp_features
        assert world.post._send_once(smtp, sample("ses_unknown", marks), (marks.return_path,), "") == 250
    assert world.rows()[marks.recipient]["status"] == "bounced"


def test_acknowledged_bounces_survive_a_kill(world: World) -> None:
    """Bounces that were accepted with 250 are recorded after a kill; others can be sent again."""
    numbers = range(len(SAMPLES) + 12, COUNT)
    accepted: list[str] = []

    def deliver() -> None:
        for number in numbers:
            marks = world.marks(number)
            if world.post.deliver(sample("zimbra_quota", marks), marks.return_path) == [250]:
                accepted.append(marks.recipient)

    thread = threading.Thread(target=deliver)
    thread.start()
    wait_until(lambda: len(accepted) >= 2)
    world.server.kill()
    accepted_before = list(accepted)
    world.server.start()
    thread.join()
    rows = world.rows()
    assert {rows[recipient]["status"] for recipient in accepted_before} == {"bounced"}
    deliver()
    rows = world.rows()
    assert {rows[recipient_address(number)]["status"] for number in numbers} == {"bounced"}
    stats = world.api.get(world.path).expect(200)["stats"]
    assert stats["audience"] == stats["accepted"] == COUNT
