"""Mail that comes back: every kind has its effect, and what is forged, late, repeated or meant otherwise has none."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from appliance.sending.delivery import bounce_classes
from tests.kit.bounces import MEANS, Marks, bombs, sample
from tests.kit.certificates import self_signed
from tests.kit.client import Client
from tests.kit.dns import DnsServer
from tests.kit.patience import soon
from tests.kit.post import Post
from tests.kit.recipients import UNLIMITED, address, completed, crowd, send
from tests.kit.server import Server, free_port
from tests.kit.smtp import Message, SmtpServer

DOMAIN = "bakery.example"
SAMPLES = sorted(MEANS)
GENUINE = [name for name in SAMPLES if MEANS[name] != "nothing"]
FORGED = [name for name in SAMPLES if MEANS[name] == "nothing"]
COUNT = len(SAMPLES) + 20
BOMBS = bombs()
FEEDBACK = f"fbl@bounce.{DOMAIN}"


class World(NamedTuple):
    """A server that has sent a campaign to many, and the way back to it."""

    api: Client
    post: Post
    path: str
    mail: dict[str, Message]
    relay: SmtpServer
    server: Server

    def marks(self, index: int) -> Marks:
        """Return what names the message to one of the crowd."""
        one = self.mail[address(index)]
        assert one.mail_from is not None
        return Marks(
            address(index), one.mail_from, (one.header("Message-ID") or "").strip("<>"),
            (one.header("List-Unsubscribe") or "").partition(">")[0].strip("<"),
            (one.header("List-Unsubscribe") or "").partition("<mailto:")[2].partition(">")[0],
        )  # fmt: skip

    def rows(self) -> dict[str, Any]:
        """Return the messages of the campaign by their recipient."""
        return {row["to"]: row for row in self.api.all("/messages", campaign_id=self.path.rpartition("/")[2])}

    def state(self) -> list[Any]:
        """Return all that returned mail could change."""
        paths = ("/suppressions", "/contacts", "/messages", "/events")
        return [self.api.all(path) for path in paths] + [self.api.get(self.path).expect(200)["stats"]]


def verified(api: Client, dns: DnsServer) -> None:
    """Enter the domain and put its records into DNS."""
    domain = api.post("/domains", {"domain": {"name": DOMAIN}}).expect(201)
    for record in domain["dns_records"]:
        value = f"{record['priority']} {record['value']}" if record["record_type"] == "MX" else record["value"]
        dns.set(record["name"], record["record_type"], value)
    assert api.post(f"/domains/{domain['id']}/verify").expect(200)["status"] == "verified"


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Ask again until it holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A campaign to more people than there are samples, all of it accepted."""
    post, shown = Post(free_port()), self_signed()
    pem = tmp_path_factory.mktemp("tls") / "both.pem"
    pem.write_bytes(shown.certificate + shown.key)
    with SmtpServer() as relay, DnsServer() as dns:
        more = {"CAMPANERO_EMAIL__DIRECT__HELO": f"mail.{DOMAIN}", "CAMPANERO_INBOUND__TLS_CERTIFICATE": str(pem)}
        with Server(relay=relay.port, env={**post.env, **dns.env, **more, **UNLIMITED}).set_up() as server:
            server.give_address()
            api = server.client()
            verified(api, dns)
            path = send(api, crowd(api, COUNT))
            completed(api, path)
            yield World(api, post, path, {one.to: one for one in relay.messages}, relay, server)
            server.stop()


def test_every_kind_of_return_has_its_effect(world: World) -> None:
    """Each sample brought to the return path of its message: class, status, event and suppression are right."""
    assert world.api.get("/account").expect(200)["capabilities"]["inbound"] is True
    for index, name in enumerate(SAMPLES):
        marks = world.marks(index)
        assert marks.return_path.endswith(f"@bounce.{DOMAIN}")
        if name in GENUINE:
            to = FEEDBACK if name.startswith("arf") else marks.return_path
            assert world.post.bring(sample(name, marks), to) == [250], name
    rows = world.rows()
    reasons = {row["address"]: row["reason"] for row in world.api.all("/suppressions")}
    events: dict[str, list[str]] = {}
    for event in world.api.all("/events"):
        if event["event"] not in ("email_sent", "contact_add", "list_add", "opt_in"):
            events.setdefault(event["resource_uid"] or "", []).append(event["event"])
    for index, name in enumerate(SAMPLES):
        row, kind = rows[address(index)], MEANS[name]
        told = events.get(f"message:{row['id']}", [])
        if kind == "nothing":
            assert (row["status"], told, reasons.get(address(index))) == ("sent", [], None), name
        elif kind in ("delivered", "complaint"):
            complained = kind == "complaint"
            assert row["status"] == ("complained" if complained else "delivered"), name
            assert sorted(told) == (["email_complained", "opt_out"] if complained else ["email_delivered"]), name
            assert reasons.get(address(index)) == ("complaint" if complained else None), name
        else:
            found = bounce_classes.CLASSES_BY_NAME[kind]
            assert (row["status"], told) == ("bounced", [found.get_event_name]), name
            assert reasons.get(address(index)) == ("hard_bounce" if kind == "hard" else None), name
            assert row["error"]["text"] and row["bounced_at"], name


def test_what_is_forged_changes_nothing(world: World) -> None:
    """Forged tokens, other recipients, what was never sent, delays, answers and repeats: not a thing changes."""
    first, second = (world.marks(len(SAMPLES) + number) for number in (0, 1))
    hard = sample("postfix_user_unknown", first)
    repeated = SAMPLES.index("postfix_user_unknown")
    before = world.state()

    token = first.return_path.split("@")[0].removeprefix("b+")
    flipped = token[:-1] + ("0" if token[-1] != "0" else "1")
    for wrong in (flipped, f"{(int(token[:12], 16) + 5000):012x}{token[12:]}", "0" * 28, "", token[:12]):
        assert world.post.bring(hard, f"b+{wrong}@bounce.{DOMAIN}") == [550]
    assert world.post.bring(hard, second.return_path) == [250], "taken, and not believed"
    for name in FORGED:
        to = FEEDBACK if name.startswith("arf") else first.return_path
        assert world.post.bring(sample(name, first), to, sender="somebody@example.org") == [250]
    assert world.post.bring(sample("gmail_not_found", first), FEEDBACK) == [250], "a bounce belongs to a return path"
    again = sample(SAMPLES[repeated], world.marks(repeated))
    assert world.post.bring(again, world.marks(repeated).return_path, times=100) == [250] * 100
    assert world.state() == before
    assert len(world.relay.messages) == COUNT, "nothing was passed on"


def test_several_reports_in_one_conversation(world: World) -> None:
    """One mail to the return paths of two messages tells of the one it is about; in any case of letters."""
    number = len(SAMPLES) + 2
    one, other = world.marks(number), world.marks(number + 1)
    raw = sample("qmail_no_mailbox", one)
    assert world.post.bring(raw, one.return_path.upper(), other.return_path) == [250]
    rows = world.rows()
    assert (rows[address(number)]["status"], rows[address(number + 1)]["status"]) == ("bounced", "sent")


def test_a_mail_to_leave_opts_out(world: World) -> None:
    """Any mail to the unsubscribe address of a message opts its recipient out, once, and nobody else (RFC 2369)."""
    number = len(SAMPLES) + 10
    one, other = address(number), address(number + 1)
    (to,) = re.findall(r"<mailto:([^>?]+)", world.mail[one].header("List-Unsubscribe") or "")
    raw = b"From: reader@example.org\r\nSubject: unsubscribe\r\n\r\n"
    assert world.post.bring(raw, to, sender=one, times=2) == [250, 250]
    assert world.post.bring(raw, to.replace("+", "+0")) == world.post.bring(raw, to.replace("@", "0@")) == [550]
    (mine,), (theirs,) = (world.api.get("/contacts/search", q=who).expect(200) for who in (one, other))
    assert (mine["subscribed_email"], theirs["subscribed_email"]) == (False, True)
    acts = [row for row in world.api.get(f"/contacts/{mine['id']}/consents").expect(200) if row["act"] == "opt_out"]
    assert [(row["by"], row["source"]) for row in acts] == [("recipient", "mailto")]


def test_nothing_is_relayed(world: World) -> None:
    """Whatever form an address has, only our own are taken; nobody logs in, nobody is told who exists (T32)."""
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
        answers = {probe: smtp.docmd("RCPT", f"TO:<{probe}>")[0] for probe in probes}
        assert all(code >= 500 for code in answers.values()), answers
        assert smtp.docmd("RCPT", "TO:<>")[0] >= 500 and smtp.docmd("DATA")[0] >= 500
        assert {smtp.docmd("RCPT", f"TO:<v{number}@gmail.example>")[0] for number in range(200)} == {550}
        assert [smtp.docmd("RCPT", f"TO:<{path}>")[0] for _ in range(12)] == [250] * 10 + [452] * 2
    assert len(world.relay.messages) == COUNT


@pytest.mark.parametrize(
    "end", [b"\n.\r\n", b"\n.\n", b"\r.\r", b"\r\n.\r", b"\r\n.\n", b"\r.\r\n", b"\nX-Evil: 1\r\n"]
)
def test_no_message_is_hidden_in_another(world: World, end: bytes) -> None:
    """What other programs may take for the end of a message is none, and refuses all of it (T33)."""
    first, second = (world.marks(len(SAMPLES) + number) for number in (5, 6))
    inner = sample("postfix_user_unknown", second)
    hidden = b"MAIL FROM:<>\r\nRCPT TO:<%s>\r\nDATA\r\n%s" % (second.return_path.encode(), inner)
    said = world.post.say(
        b"EHLO mx.example.net\r\n", b"MAIL FROM:<>\r\n", f"RCPT TO:<{first.return_path}>\r\n".encode(), b"DATA\r\n",
        sample("postfix_user_unknown", first).rstrip() + end + hidden + b"\r\n.\r\n", b"QUIT\r\n",
    )  # fmt: skip
    after = said.partition("354 ")[2].split("\r\n")[1:]
    assert [line[:3] for line in after if line] == ["554", "221"], said
    rows = world.rows()
    assert {rows[one.recipient]["status"] for one in (first, second)} == {"sent"}


def test_commands_end_in_both(world: World) -> None:
    """A command that ends in LF alone ends the conversation."""
    assert world.post.say(b"EHLO a\nMAIL FROM:<>\n").partition("\r\n")[2].startswith("554")
    said = world.post.say(b"EHLO a\r\n", b"\nMAIL FROM:<>\r\n").splitlines()
    assert said[-1].startswith("554"), said
    with socket.create_connection(("127.0.0.1", world.post.port), timeout=5) as here:
        here.recv(1000)
        for piece in (b"NOOP\r", b"\n"):
            here.sendall(piece)
            time.sleep(0.1)
        assert here.recv(1000).startswith(b"250")


def test_what_is_too_much_is_refused(world: World) -> None:
    """More than a megabyte, an endless line, mail made to slow down its reader: each has its bound (T35)."""
    path = world.marks(len(SAMPLES) + 7).return_path
    assert world.post.bring(b"Subject: x\r\n\r\n" + (b"y" * 70 + b"\r\n") * 20_000, path) == [552]
    with world.post.connect() as smtp:
        smtp.ehlo()
        assert smtp.docmd("MAIL", "FROM:<> SIZE=99999999")[0] == 552
    begun = [b"EHLO a\r\n", b"MAIL FROM:<>\r\n", f"RCPT TO:<{path}>\r\n".encode(), b"DATA\r\n"]
    said = world.post.say(*begun, b"z" * 8_000_000, timeout=60)
    assert "354 " in said and "250 2.0.0" not in said, "hung up on; whether 421 is still read depends on the network"
    for raw in BOMBS.values():
        assert set(world.post.bring(raw, path)) <= {250, 500, 552, 554}


def test_a_crowd_at_the_door_disturbs_nobody(world: World, full: bool) -> None:
    """So many of one address are let in, the others are turned away; meanwhile the API answers (T35)."""
    many: list[socket.socket] = []
    greetings = []
    try:
        for number in range(1_000 if full else 120):
            here = socket.create_connection(("127.0.0.1", world.post.port), timeout=20)
            many.append(here)
            greetings.append(here.recv(200)[:3])
            if number % 20 == 0:
                begun = time.perf_counter()
                world.api.get("/account").expect(200)
                assert time.perf_counter() - begun < soon(1)
    finally:
        for here in many:
            here.close()
    assert greetings.count(b"220") <= 5 and set(greetings) == {b"220", b"421"}
    marks = world.marks(len(SAMPLES) + 8)
    wait_until(lambda: world.post.bring(sample("exim_text_quota", marks), marks.return_path) == [250])
    row = world.rows()[marks.recipient]
    assert (row["status"], row["error"]["enhanced"]) == ("bounced", "5.2.2")


def test_a_report_may_come_encrypted(world: World) -> None:
    """With a certificate STARTTLS is offered, and nothing said before the handshake counts after it."""
    marks = world.marks(len(SAMPLES) + 9)
    with world.post.connect() as smtp:
        smtp.starttls(context=ssl._create_unverified_context())
        smtp.ehlo()
        assert "starttls" not in smtp.esmtp_features and "auth" not in smtp.esmtp_features
        assert world.post._once(smtp, sample("ses_unknown", marks), (marks.return_path,), "") == 250
    assert world.rows()[marks.recipient]["status"] == "bounced"


def test_what_was_answered_outlives_a_kill(world: World) -> None:
    """Killed while reports come in: what was answered with 250 is written, what was not may be brought again."""
    numbers = range(len(SAMPLES) + 12, COUNT)
    answered: list[str] = []

    def bring() -> None:
        for number in numbers:
            marks = world.marks(number)
            if world.post.bring(sample("zimbra_quota", marks), marks.return_path) == [250]:
                answered.append(marks.recipient)

    bringing = threading.Thread(target=bring)
    bringing.start()
    wait_until(lambda: len(answered) >= 2)
    world.server.kill()
    known = list(answered)
    world.server.start()
    bringing.join()
    rows = world.rows()
    assert {rows[who]["status"] for who in known} == {"bounced"}
    bring()
    rows = world.rows()
    assert {rows[address(number)]["status"] for number in numbers} == {"bounced"}
    stats = world.api.get(world.path).expect(200)["stats"]
    assert stats["audience"] == stats["accepted"] == COUNT
