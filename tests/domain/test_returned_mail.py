"""What comes back is understood as it is meant, in the formats of real servers, and nothing hostile disturbs it."""

import asyncio
import base64
import random
import time
from pathlib import Path

import pytest

from appliance.core import crypto
from appliance.inbound import bounce_mail
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.inbound.smtp_servers import ConnectionLimiter, InboundHandler, SmtpSession
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages import links
from appliance.settings import config
from tests.kit.bounces import FOLDER, MEANS, Marks, bombs, sample
from tests.kit.patience import soon

NUMBER = 4711
RECIPIENT = "reader@example.org"


@pytest.fixture(autouse=True)
def installation(tmp_path: Path) -> None:
    """A key and a configuration, which links are made with."""
    crypto.create_key(tmp_path)
    config.set_current(config.load({"data_dir": str(tmp_path)}, {}).config)


def marks(number: int = NUMBER) -> Marks:
    """Return what names a message of ours."""
    return Marks(
        RECIPIENT, links.build_return_path(number, "example.com"), links.build_message_id(number, "example.com"),
        links.build_unsubscribe_url(number), links.build_unsubscribe_address(number, "bounce.example.com"),
    )  # fmt: skip


def meant(facts: list[list[DeliveryReport]]) -> str:
    """Return what facts come to for our message and its recipient."""
    mine = [fact for ways in facts for fact in ways if fact.recipient in (RECIPIENT, None)]
    if not mine:
        return "nothing"
    assert len({fact.kind for fact in mine}) == 1 and {fact.message_id for fact in mine} == {NUMBER}
    told = mine[0]
    if told.kind in ("delivered", "complained"):
        return {"delivered": "delivered", "complained": "complaint"}[told.kind]
    found = bounce_classes.classify(told.smtp, told.enhanced, told.text)
    assert (told.kind == "bounced") is (found is bounce_classes.HARD), "told as it is judged"
    return found.name


@pytest.mark.parametrize("name", sorted(MEANS))
def test_each_sample_means_what_its_sender_meant(name: str) -> None:
    """Every bounce gets its class, a delivery and a complaint are known, all else is left alone."""
    to = NUMBER if not name.startswith("arf") else None
    assert meant(bounce_mail.parse_reports(sample(name, marks()), to)) == MEANS[name]


def test_the_samples_are_many_and_of_nobody() -> None:
    """Forty bounces and six complaints at least, each file in the table, with addresses that belong to nobody."""
    assert {path.stem for path in FOLDER.glob("*.eml")} == set(MEANS)
    kinds = list(MEANS.values())
    assert sum(kind in bounce_classes.CLASSES_BY_NAME for kind in kinds) >= 40 and kinds.count("complaint") >= 6
    of_numbers = {
        one.name
        for one in (
            bounce_classes.UNREACHABLE,
            bounce_classes.OPTED_OUT,
            bounce_classes.FILTERED,
            bounce_classes.UNREGISTERED,
            bounce_classes.COUNTRY,
        )
    }
    left = bounce_classes.CLASSES_BY_NAME.keys() - set(kinds)
    assert len(left - of_numbers) == 1 and of_numbers < left, "every class of mail but the unknown one"


def test_a_report_about_another_message_is_not_believed() -> None:
    """A report sent back for one message that brings another of ours along says nothing about either."""
    odd = marks()._replace(message_id=links.build_message_id(99, "example.com"))
    assert bounce_mail.parse_reports(sample("postfix_user_unknown", odd), NUMBER) == []


def report(*recipients: str, original: str = "", kind: str = "delivery-status", fields: str = "") -> bytes:
    """Return a delivery report that names these recipients, or a complaint, with an original message's headers."""
    blocks = [f"Final-Recipient: rfc822; {one}\nAction: failed\nStatus: 5.1.1\n" for one in recipients]
    part = "\n".join(["Reporting-MTA: dns; mx.example.net\n", *blocks]) if kind == "delivery-status" else fields
    text = (
        f'Content-Type: multipart/report; report-type={kind}; boundary="x"\n\n--x\nContent-Type: text/plain\n\n'
        f"{RECIPIENT} is unknown here\n--x\nContent-Type: message/{kind}\n\n{part}\n"
        f"--x\nContent-Type: text/rfc822-headers\n\n{original}\n--x--\n"
    )
    return text.replace("\n", "\r\n").encode()


BARE = (
    "Action: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 user unknown\n",
    "Final-Recipient: rfc822;\nAction: failed\nStatus: 5.1.1\n",
    "Final-Recipient: x-local; reader\nAction: failed\nStatus: 5.1.1\n",
    "Original-Envelope-Id: 1\nAction: failed\nStatus: 5.1.1\n",
)


@pytest.mark.parametrize("block", BARE)
def test_a_bounce_that_names_nobody_tells_nothing(block: str) -> None:
    """It came to the return path of the message, but no recipient stands in its fields: whose mailbox is it about?"""
    raw = report().replace(b"Reporting-MTA: dns; mx.example.net\r\n", b"Reporting-MTA: dns; a\r\n\r\n" + block.encode())
    assert bounce_mail.parse_reports(raw, NUMBER) == []


def test_a_bounce_in_words_that_names_nobody_tells_nothing() -> None:
    """The same for reports without fields: the words of a mail system alone are not enough."""
    head = "From: MAILER-DAEMON@mx.example.net\r\nSubject: failure notice\r\n\r\n"
    raw = f"{head}Hi. This is the qmail-send program.\r\nI wasn't able to deliver it: permanent error, 550 5.1.1.\r\n"
    assert bounce_mail.parse_reports(raw.encode(), NUMBER) == []
    assert meant(bounce_mail.parse_reports(f"{raw}<{RECIPIENT}>: no such user\r\n".encode(), NUMBER)) == "hard"


def test_a_bounce_tells_of_those_it_names() -> None:
    """Each recipient of a report is one thing told; who is not the recipient of the message is not believed later."""
    facts = bounce_mail.parse_reports(report("a@example.org", RECIPIENT, "b@example.org"), NUMBER)
    assert [[fact.recipient for fact in ways] for ways in facts] == [["a@example.org"], [RECIPIENT], ["b@example.org"]]


@pytest.mark.parametrize("mark", ["Message-ID: <{0.message_id}>", "Return-Path: <{0.return_path}>",
                                  "List-Unsubscribe: <{0.unsubscribe}>", "List-Unsubscribe: <mailto:{0.leave}>",
                                  "Message-ID: <{1.message_id}>\nReturn-Path: <{0.return_path}>"])  # fmt: skip
def test_a_bounce_that_brings_another_message_is_not_believed(mark: str) -> None:
    """Whichever signature of ours names the other message, and also beside one that names the right one."""
    assert bounce_mail.parse_reports(report(RECIPIENT, original=mark.format(marks(99), marks())), NUMBER) == []
    assert meant(bounce_mail.parse_reports(report(RECIPIENT, original=mark.format(marks(), marks())), NUMBER)) == "hard"


def complaint(original: str, fields: str = "") -> bytes:
    """Return a complaint about a message with these headers."""
    return report(original=original, kind="feedback-report", fields=f"Feedback-Type: abuse\n{fields}")


QUOTED = "Message-ID: <{0.message_id}>\nReferences: <{0.message_id}>\nList-Unsubscribe: <{0.unsubscribe}>"


def test_a_complaint_needs_more_than_what_replies_quote() -> None:
    """Message-ID and unsubscribe link say which message is meant, and prove nothing."""
    assert bounce_mail.parse_reports(complaint(QUOTED.format(marks())), None) == []
    assert bounce_mail.parse_reports(complaint(QUOTED.format(marks()), "Original-Rcpt-To: redacted\n"), None) == []


@pytest.mark.parametrize(
    ("original", "fields"),
    [("Return-Path: <{0.return_path}>", ""), ("List-Unsubscribe: <mailto:{0.leave}>", ""),
     ("Received: from us (envelope-from <{0.return_path}>) by mx", ""), ("", "Original-Mail-From: {0.return_path}\n")],
)  # fmt: skip
def test_a_complaint_is_proven_by_what_replies_do_not_quote(original: str, fields: str) -> None:
    """Our return path or unsubscribe address of that very message; with another's beside it nothing is believed."""
    mine, other = marks(), marks(99)
    assert meant(bounce_mail.parse_reports(complaint(original.format(mine), fields.format(mine)), None)) == "complaint"
    torn = f"{QUOTED.format(other)}\n{original.format(mine)}"
    assert bounce_mail.parse_reports(complaint(torn, fields.format(mine)), None) == []


@pytest.mark.parametrize(
    ("original", "fields"),
    [("", "Original-Rcpt-To: <{rcpt}>\n"), ("To: Reader <{rcpt}>", ""), ("Delivered-To: {rcpt}", ""),
     ("X-HmXmrOriginalRecipient: {rcpt}", "")],
)  # fmt: skip
def test_a_complaint_names_the_recipient_instead(original: str, fields: str) -> None:
    """Then it tells of that address alone, which has to be the recipient of the message."""
    raw = f"{QUOTED.format(marks())}\n{original.format(rcpt=RECIPIENT)}"
    [ways] = bounce_mail.parse_reports(complaint(raw, fields.format(rcpt=RECIPIENT)), None)
    assert [fact.recipient for fact in ways] == [RECIPIENT] and meant([ways]) == "complaint"


@pytest.mark.parametrize("attached", [report(RECIPIENT), complaint("")], ids=["bounce", "complaint"])
def test_a_report_that_somebody_forwards_is_not_believed(attached: bytes) -> None:
    """What an attached message reports is not what the mail says, even where it came to the return path."""
    raw = (
        f'From: {RECIPIENT}\r\nSubject: look at this\r\nContent-Type: multipart/mixed; boundary="o"\r\n\r\n--o\r\n'
        "Content-Type: text/plain\r\n\r\nWhat is this?\r\n--o\r\nContent-Type: message/rfc822\r\n\r\n"
    ).encode() + attached + b"\r\n--o--\r\n"  # fmt: skip
    assert meant(bounce_mail.parse_reports(attached, NUMBER)) in ("hard", "complaint")
    assert bounce_mail.parse_reports(raw, NUMBER) == []


BOUNCE_WORDS = f"This is the mail system. It could not be delivered to\r\n<{RECIPIENT}>: 550 5.1.1 no such user\r\n"


@pytest.mark.parametrize(
    "prefix", ["Re:", "AW:", "Antw:", "SV:", "RV:", "Fwd:", "FW:", "WG:", "TR:", "Re[2]:", "回复："]
)
def test_a_bounce_that_somebody_quotes_is_not_believed(prefix: str) -> None:
    """A reply or a forwarded bounce says what a bounce says, in its subject and in its words."""
    head = f"From: {RECIPIENT}\r\nContent-Type: text/plain; charset=utf-8\r\nSubject: "
    raw = f"{head}{{}}Undelivered Mail Returned to Sender\r\n\r\n{BOUNCE_WORDS}"
    assert meant(bounce_mail.parse_reports(raw.format("").encode(), NUMBER)) == "hard"
    quoted = raw.format(f"=?utf-8?b?{base64.b64encode(f'{prefix} '.encode()).decode()}?= ")
    assert bounce_mail.parse_reports(quoted.encode(), NUMBER) == []


@pytest.mark.parametrize("header", ["X-Autoreply: yes", "X-Autorespond: out", "Precedence: auto_reply"])
def test_an_answering_machine_is_not_believed(header: str) -> None:
    """Of a person's machine; a mail system that marks its bounces so is believed."""
    raw = f"From: {{}}\r\n{header}\r\nSubject: Undelivered mail\r\n\r\n{BOUNCE_WORDS}"
    assert bounce_mail.parse_reports(raw.format(RECIPIENT).encode(), NUMBER) == []
    assert meant(bounce_mail.parse_reports(raw.format("MAILER-DAEMON@mx.example.net").encode(), NUMBER)) == "hard"


def test_a_bounce_whose_fields_are_quoted_printable_is_read() -> None:
    """No standard allows it, gateways do it."""
    raw = report(RECIPIENT).replace(b"rfc822; reader@", b"rfc822;=20reader=40").replace(
        b"Content-Type: message/delivery-status\r\n",
        b"Content-Type: message/delivery-status\r\nContent-Transfer-Encoding: quoted-printable\r\n",
    )  # fmt: skip
    assert meant(bounce_mail.parse_reports(raw, NUMBER)) == "hard"


def test_a_bounce_of_a_mail_full_of_links_is_read() -> None:
    """Words of a link that headers of MIME hold too are no parts of a mail."""
    link = "<https://shop.example/message/1?next=multipart/mixed>\n"
    assert (
        meant(bounce_mail.parse_reports(report(RECIPIENT, original=f"Subject: links\n\n{link * 200}"), NUMBER))
        == "hard"
    )


LARGE: dict[str, str] = {
    "many lines": "word\n" * 40_000,
    "many blank lines": "\n" * 10_000,
    "many rules of dashes": "-- \n" * 1_000,
    "a long type": "Content-Type: text/plain; name=" + "x" * 3_000 + "\n\nword\n",
    "many types": "Content-Type: multipart/mixed\n\nword\n" * 300,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_bounce_that_brings_a_large_message_back_is_read(name: str) -> None:
    """What the report says stands before the message, whatever that is full of."""
    raw = report(RECIPIENT, original=f"Subject: large\n\n{LARGE[name]}")
    assert meant(bounce_mail.parse_reports(raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), NUMBER)) == "hard"


@pytest.mark.parametrize("spelling", ['"reader"@example.org', '<"reader"@example.org>', '"Reader"@EXAMPLE.ORG'])
def test_a_recipient_in_quotes_that_it_does_not_need_is_the_same(spelling: str) -> None:
    """RFC 5321, section 4.1.2: quotes are no part of an address."""
    [ways] = bounce_mail.parse_reports(report(spelling), NUMBER)
    assert RECIPIENT in [str(fact.recipient).lower() for fact in ways]


def test_a_complaint_at_a_return_path_is_about_that_message() -> None:
    """That it came there is proof; what names another message is not believed."""
    assert meant(bounce_mail.parse_reports(complaint(f"Message-ID: <{marks().message_id}>"), NUMBER)) == "complaint"
    assert bounce_mail.parse_reports(complaint(f"Message-ID: <{marks(99).message_id}>"), NUMBER) == []
    assert bounce_mail.parse_reports(complaint(f"Return-Path: <{marks(99).return_path}>"), NUMBER) == []


def test_a_complaint_needs_signatures_that_agree() -> None:
    """Tokens of two messages in one complaint, or none, and nobody complained."""
    torn = marks()._replace(unsubscribe=links.build_unsubscribe_url(99))
    assert bounce_mail.parse_reports(sample("arf_rfc5965", torn), None) == []
    assert bounce_mail.parse_reports(sample("arf_rfc5965", marks()._replace(
        return_path="b+0@bounce.example.com", message_id="1@example.com", unsubscribe="https://example.com/u/x",
    )), None) == []  # fmt: skip


@pytest.mark.parametrize("name", sorted(bombs()))
def test_hostile_mail_is_read_at_once_or_not_at_all(name: str) -> None:
    """Whatever comes in, nothing is raised, nothing is believed of us, and it takes a moment."""
    begun = time.perf_counter()
    facts = bounce_mail.parse_reports(bombs()[name], NUMBER)
    assert time.perf_counter() - begun < soon(1)
    assert meant(facts) in ("nothing", "refused")


@pytest.mark.parametrize("name", sorted(MEANS)[::6])
def test_a_sample_cut_anywhere_is_read(name: str) -> None:
    """A mail that ends in the middle, or lost a byte, never raises."""
    raw = sample(name, marks())
    for end in range(0, len(raw), 97):
        bounce_mail.parse_reports(raw[:end], NUMBER)
        bounce_mail.parse_reports(raw[:end] + b"\xff" + raw[end + 1 :], None)


SPLINTERS = (
    b"\r\n\r\n", b"\n", b"\x00", b"\xff" * 50, b"=?utf-8?b?x?=", b"Content-Type: message/rfc822\r\n\r\n",
    b'charset="\x00"', b"boundary=", b";charset*=utf-8''%", b"\xed\xa0\x80", b"<" * 300, b"@" * 100,
)  # fmt: skip
SWAPS = (b"7bit", b"8bit", b"text/plain", b"us-ascii", b"utf-8", b"delivery-status", b"rfc822")
STRANGE = (
    b"base64", b"quoted-printable", b"x-uuencode", b"\xe9", b"message/delivery-status", b"", b"idna", b"punycode",
    b"utf-7", b"unknown-8bit", b"message/external-body",
)  # fmt: skip


def test_mutants_of_samples_are_read() -> None:
    """Samples with bytes changed, cut, doubled and swapped for what the library stumbles over never raise."""
    dice = random.Random(11)
    whole = [sample(name, marks()) for name in sorted(MEANS)]
    for _ in range(1_000):
        raw = dice.choice(whole)
        for _ in range(dice.randrange(1, 10)):
            at, other = sorted((dice.randrange(len(raw) + 1), dice.randrange(len(raw) + 1)))
            raw = dice.choice((
                raw[:at] + bytes([dice.randrange(256)]) + raw[at + 1 :], raw[:at] + raw[other:],
                raw[:at] + dice.choice(SPLINTERS) + raw[at:], raw[:at] + dice.choice(whole)[:400] + raw[at:],
                raw.replace(dice.choice(SWAPS), dice.choice(STRANGE)),
            ))  # fmt: skip
        bounce_mail.parse_reports(raw, NUMBER)


def test_a_complaint_names_its_message_by_the_address_to_leave_too() -> None:
    """Where all else was taken out of it, the unsubscribe address that we signed is enough; a forged one is nothing."""
    leaving = marks()._replace(unsubscribe=f"mailto:{marks().leave}")
    forged = leaving._replace(unsubscribe=leaving.unsubscribe.replace("@", "0@"))
    told = [bounce_mail.parse_reports(sample("arf_unsubscribe_link_alone", one), None) for one in (leaving, forged)]
    assert meant(told[0]) == "complaint" and told[1] == []


class Line(asyncio.Transport):
    """The end of a connection from an address; it keeps what is written to it."""

    def __init__(self, ip: str) -> None:
        super().__init__({"peername": (ip, 4711, 0, 0)})
        self.heard = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += data

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def test_a_line_with_many_addresses_is_one_client() -> None:
    """Of IPv6 a line has more addresses than we have places: all of a /64 have as many as one, and then others come."""

    async def run() -> list[bytes]:
        crowd, desk = ConnectionLimiter(), InboundHandler()
        lines = [Line(f"2001:db8:0:{number // 8}::{number}") for number in range(16)]
        sessions = [SmtpSession(desk, crowd, "mx.example.org", None) for _ in lines]
        for session, line in zip(sessions, lines, strict=True):
            session.connection_made(line)
        turned_away = [line.heard[:3] for line in lines]
        for session in sessions:
            session.connection_lost(None)
        assert crowd.size == 0
        desk.close()
        return turned_away

    first, second = [b""] * 5 + [b"421"] * 3, [b""] * 5 + [b"421"] * 3
    assert asyncio.run(run()) == first + second
