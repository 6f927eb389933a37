"""Parsing of bounces and complaints: formats of real servers, forged reports and hostile mail."""

import asyncio
import base64
import random
import time
from pathlib import Path

import pytest

from appliance.core import crypto
from appliance.inbound import bounce_mail
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.inbound.smtp_servers import InboundHandler
from appliance.inbound.smtp_sessions import ConnectionLimiter, SmtpSession
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages import links
from appliance.settings import config
from tests.kit.bounces import EXPECTED_CLASSES, SAMPLES, Placeholders, hostile_emails, sample
from tests.kit.timeouts import extend_timeout

NUMBER = 4711
RECIPIENT = "reader@example.org"


@pytest.fixture(autouse=True)
def installation(tmp_path: Path) -> None:
    """Create a key and a configuration, which signed links need."""
    crypto.create_key(tmp_path)
    config.set_current(config.load({"data_dir": str(tmp_path)}, {}).config)


def build_marks(number: int = NUMBER) -> Placeholders:
    """Return the signed addresses and ids of a message."""
    return Placeholders(
        RECIPIENT, links.build_return_path(number, "example.com"), links.build_message_id(number, "example.com"),
        links.build_unsubscribe_url("https://example.com", number),
        links.build_unsubscribe_address(number, "bounce.example.com"),
    )  # fmt: skip


def classify_facts(facts: list[list[DeliveryReport]]) -> str:
    """Return the class of the facts about our message and its recipient, or `nothing`."""
    own_facts = [fact for alternatives in facts for fact in alternatives if fact.recipient in (RECIPIENT, None)]
    if not own_facts:
        return "nothing"
    assert len({fact.kind for fact in own_facts}) == 1 and {fact.message_id for fact in own_facts} == {NUMBER}
    first = own_facts[0]
    if first.kind in ("delivered", "complained", "unverified_complaint"):
        return {"delivered": "delivered", "complained": "complaint"}.get(first.kind, "unverified")
    bounce_class = bounce_classes.classify(first.smtp, first.enhanced, first.text)
    assert (first.kind == "bounced") is (bounce_class is bounce_classes.HARD), "`kind` must agree with the class"
    return bounce_class.name


@pytest.mark.parametrize("name", sorted(EXPECTED_CLASSES))
def test_each_sample_is_classified(name: str) -> None:
    """Each sample is a bounce of the expected class, a delivery, a complaint, or nothing."""
    message_id = NUMBER if not name.startswith("arf") else None
    assert classify_facts(bounce_mail.parse_reports(sample(name, build_marks()), message_id)) == EXPECTED_CLASSES[name]


def test_the_samples_cover_all_classes() -> None:
    """There are at least 40 bounces and 5 complaints, each in the table, and every email class except one."""
    assert {path.stem for path in SAMPLES.glob("*.eml")} == set(EXPECTED_CLASSES)
    kinds = list(EXPECTED_CLASSES.values())
    assert sum(kind in bounce_classes.CLASSES_BY_NAME for kind in kinds) >= 40 and kinds.count("complaint") >= 5
    sms_classes = {
        bounce_class.name
        for bounce_class in (
            bounce_classes.UNREACHABLE,
            bounce_classes.OPTED_OUT,
            bounce_classes.FILTERED,
            bounce_classes.UNREGISTERED,
            bounce_classes.COUNTRY,
        )
    }
    missing = bounce_classes.CLASSES_BY_NAME.keys() - set(kinds)
    assert len(missing - sms_classes) == 1 and sms_classes < missing, "every class of mail but the unknown one"


def test_a_report_about_another_message_is_ignored() -> None:
    """A report sent to the return path of one message that names another one gives no facts."""
    other_marks = build_marks()._replace(message_id=links.build_message_id(99, "example.com"))
    assert bounce_mail.parse_reports(sample("postfix_user_unknown", other_marks), NUMBER) == []


def build_report(*recipients: str, original: str = "", kind: str = "delivery-status", fields: str = "") -> bytes:
    """Return a delivery report with these recipients, or a complaint, with the headers of an original message."""
    blocks = [f"Final-Recipient: rfc822; {recipient}\nAction: failed\nStatus: 5.1.1\n" for recipient in recipients]
    part = "\n".join(["Reporting-MTA: dns; mx.example.net\n", *blocks]) if kind == "delivery-status" else fields
    text = (
        f'Content-Type: multipart/report; report-type={kind}; boundary="x"\n\n--x\nContent-Type: text/plain\n\n'
        f"{RECIPIENT} is unknown here\n--x\nContent-Type: message/{kind}\n\n{part}\n"
        f"--x\nContent-Type: text/rfc822-headers\n\n{original}\n--x--\n"
    )
    return text.replace("\n", "\r\n").encode()


def test_nul_is_removed_from_reports() -> None:
    """NUL, which some programs cannot store, is in no text of a report, whatever the encoding of its part."""
    block = b"Diagnostic-Code: smtp; 550 5.1.1 no\x00such user\r\n\r\n--x\r\nContent-Type: text/rfc822"
    raw = build_report(RECIPIENT).replace(b"\r\n--x\r\nContent-Type: text/rfc822", block)
    encoded = raw.replace(b"no\x00", b"no=00").replace(
        b"message/delivery-status\r\n", b"message/delivery-status\r\nContent-Transfer-Encoding: quoted-printable\r\n"
    )
    head = b"From: MAILER-DAEMON@mx.example\r\nSubject: failure notice\r\n\r\n"
    text = head + f"<{RECIPIENT}>: 550 5.1.1 no\0such user".encode()
    for mail in (raw, encoded, text):
        [[fact]] = bounce_mail.parse_reports(mail, NUMBER)
        assert "nosuch user" in fact.text, mail


BARE = (
    "Action: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 user unknown\n",
    "Final-Recipient: rfc822;\nAction: failed\nStatus: 5.1.1\n",
    "Final-Recipient: x-local; reader\nAction: failed\nStatus: 5.1.1\n",
    "Original-Envelope-Id: 1\nAction: failed\nStatus: 5.1.1\n",
)


@pytest.mark.parametrize("block", BARE)
def test_a_bounce_without_a_recipient_is_ignored(block: str) -> None:
    """A report whose fields name no recipient gives no facts, even at the message's return path."""
    raw = build_report().replace(
        b"Reporting-MTA: dns; mx.example.net\r\n", b"Reporting-MTA: dns; a\r\n\r\n" + block.encode()
    )
    assert bounce_mail.parse_reports(raw, NUMBER) == []


def test_a_text_bounce_without_a_recipient_is_ignored() -> None:
    """A bounce without report fields counts only if its text names the recipient."""
    head = "From: MAILER-DAEMON@mx.example.net\r\nSubject: failure notice\r\n\r\n"
    raw = f"{head}Hi. This is the qmail-send program.\r\nI wasn't able to deliver it: permanent error, 550 5.1.1.\r\n"
    assert bounce_mail.parse_reports(raw.encode(), NUMBER) == []
    assert classify_facts(bounce_mail.parse_reports(f"{raw}<{RECIPIENT}>: no such user\r\n".encode(), NUMBER)) == "hard"


def test_a_bounce_gives_a_fact_for_each_recipient() -> None:
    """Each recipient that a report names is a fact, in the report's order."""
    facts = bounce_mail.parse_reports(build_report("a@example.org", RECIPIENT, "b@example.org"), NUMBER)
    assert [[fact.recipient for fact in alternatives] for alternatives in facts] == [
        ["a@example.org"],
        [RECIPIENT],
        ["b@example.org"],
    ]


@pytest.mark.parametrize("mark", ["Message-ID: <{0.message_id}>", "Return-Path: <{0.return_path}>",
                                  "List-Unsubscribe: <{0.unsubscribe}>", "List-Unsubscribe: <mailto:{0.leave}>",
                                  "Message-ID: <{1.message_id}>\nReturn-Path: <{0.return_path}>"])  # fmt: skip
def test_a_bounce_with_another_original_message_is_ignored(mark: str) -> None:
    """One signed id or address of another message is enough, even beside one of the right message."""
    assert (
        bounce_mail.parse_reports(build_report(RECIPIENT, original=mark.format(build_marks(99), build_marks())), NUMBER)
        == []
    )
    assert (
        classify_facts(
            bounce_mail.parse_reports(
                build_report(RECIPIENT, original=mark.format(build_marks(), build_marks())), NUMBER
            )
        )
        == "hard"
    )


def build_complaint(original: str, fields: str = "") -> bytes:
    """Return a complaint about a message with these headers."""
    return build_report(original=original, kind="feedback-report", fields=f"Feedback-Type: abuse\n{fields}")


QUOTED = "Message-ID: <{0.message_id}>\nReferences: <{0.message_id}>\nList-Unsubscribe: <{0.unsubscribe}>"


def test_a_complaint_needs_proof() -> None:
    """A Message-ID and unsubscribe link prove nothing: any reply may quote them."""
    assert bounce_mail.parse_reports(build_complaint(QUOTED.format(build_marks())), None) == []
    assert (
        bounce_mail.parse_reports(build_complaint(QUOTED.format(build_marks()), "Original-Rcpt-To: redacted\n"), None)
        == []
    )


@pytest.mark.parametrize(
    ("original", "fields"),
    [("Return-Path: <{0.return_path}>", ""), ("List-Unsubscribe: <mailto:{0.leave}>", ""),
     ("Received: from us (envelope-from <{0.return_path}>) by mx", ""), ("", "Original-Mail-From: {0.return_path}\n")],
)  # fmt: skip
def test_a_complaint_is_proven_by_the_return_path(original: str, fields: str) -> None:
    """The return path or unsubscribe address of the message is proof, unless another message's is there too."""
    own_marks, other_marks = build_marks(), build_marks(99)
    assert (
        classify_facts(
            bounce_mail.parse_reports(build_complaint(original.format(own_marks), fields.format(own_marks)), None)
        )
        == "complaint"
    )
    conflicting = f"{QUOTED.format(other_marks)}\n{original.format(own_marks)}"
    assert bounce_mail.parse_reports(build_complaint(conflicting, fields.format(own_marks)), None) == []


@pytest.mark.parametrize(
    ("original", "fields"),
    [("", "Original-Rcpt-To: <{rcpt}>\n"), ("To: Reader <{rcpt}>", ""), ("Delivered-To: {rcpt}", ""),
     ("X-HmXmrOriginalRecipient: {rcpt}", "")],
)  # fmt: skip
def test_a_complaint_that_only_names_the_recipient_is_unverified(original: str, fields: str) -> None:
    """A reply discloses the recipient, the Message-ID and the link, so these prove no complaint."""
    raw = f"{QUOTED.format(build_marks())}\n{original.format(rcpt=RECIPIENT)}"
    [alternatives] = bounce_mail.parse_reports(build_complaint(raw, fields.format(rcpt=RECIPIENT)), None)
    assert [fact.recipient for fact in alternatives] == [RECIPIENT] and classify_facts([alternatives]) == "unverified"


@pytest.mark.parametrize("attached", [build_report(RECIPIENT), build_complaint("")], ids=["bounce", "complaint"])
def test_a_forwarded_report_is_ignored(attached: bytes) -> None:
    """A report inside an attached message gives no facts, even at the return path."""
    raw = (
        f'From: {RECIPIENT}\r\nSubject: look at this\r\nContent-Type: multipart/mixed; boundary="o"\r\n\r\n--o\r\n'
        "Content-Type: text/plain\r\n\r\nWhat is this?\r\n--o\r\nContent-Type: message/rfc822\r\n\r\n"
    ).encode() + attached + b"\r\n--o--\r\n"  # fmt: skip
    assert classify_facts(bounce_mail.parse_reports(attached, NUMBER)) in ("hard", "complaint")
    assert bounce_mail.parse_reports(raw, NUMBER) == []


BOUNCE_WORDS = f"This is the mail system. It could not be delivered to\r\n<{RECIPIENT}>: 550 5.1.1 no such user\r\n"


@pytest.mark.parametrize(
    "prefix", ["Re:", "AW:", "Antw:", "SV:", "RV:", "Fwd:", "FW:", "WG:", "TR:", "Re[2]:", "回复："]
)
def test_a_reply_or_forward_of_a_bounce_is_ignored(prefix: str) -> None:
    """A subject with a prefix of replies or forwards makes a text bounce worthless."""
    head = f"From: {RECIPIENT}\r\nContent-Type: text/plain; charset=utf-8\r\nSubject: "
    raw = f"{head}{{}}Undelivered Mail Returned to Sender\r\n\r\n{BOUNCE_WORDS}"
    assert classify_facts(bounce_mail.parse_reports(raw.format("").encode(), NUMBER)) == "hard"
    quoted = raw.format(f"=?utf-8?b?{base64.b64encode(f'{prefix} '.encode()).decode()}?= ")
    assert bounce_mail.parse_reports(quoted.encode(), NUMBER) == []


@pytest.mark.parametrize("header", ["X-Autoreply: yes", "X-Autorespond: out", "Precedence: auto_reply"])
def test_an_auto_reply_is_ignored(header: str) -> None:
    """Headers of auto-replies make mail from a person worthless, but not from a mail system."""
    raw = f"From: {{}}\r\n{header}\r\nSubject: Undelivered mail\r\n\r\n{BOUNCE_WORDS}"
    assert bounce_mail.parse_reports(raw.format(RECIPIENT).encode(), NUMBER) == []
    assert (
        classify_facts(bounce_mail.parse_reports(raw.format("MAILER-DAEMON@mx.example.net").encode(), NUMBER)) == "hard"
    )


def test_quoted_printable_report_fields_are_decoded() -> None:
    """No standard allows them, but gateways write them."""
    raw = build_report(RECIPIENT).replace(b"rfc822; reader@", b"rfc822;=20reader=40").replace(
        b"Content-Type: message/delivery-status\r\n",
        b"Content-Type: message/delivery-status\r\nContent-Transfer-Encoding: quoted-printable\r\n",
    )  # fmt: skip
    assert classify_facts(bounce_mail.parse_reports(raw, NUMBER)) == "hard"


def test_a_bounce_of_a_message_full_of_links_is_parsed() -> None:
    """URLs that contain names of MIME types are not taken for parts of the mail."""
    link = "<https://shop.example/message/1?next=multipart/mixed>\n"
    assert (
        classify_facts(
            bounce_mail.parse_reports(build_report(RECIPIENT, original=f"Subject: links\n\n{link * 200}"), NUMBER)
        )
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
def test_a_bounce_with_a_large_original_is_parsed(name: str) -> None:
    """The report before the original message is read, whatever the original contains."""
    raw = build_report(RECIPIENT, original=f"Subject: large\n\n{LARGE[name]}")
    assert (
        classify_facts(bounce_mail.parse_reports(raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), NUMBER)) == "hard"
    )


@pytest.mark.parametrize("spelling", ['"reader"@example.org', '<"reader"@example.org>', '"Reader"@EXAMPLE.ORG'])
def test_unneeded_quotes_in_a_recipient_are_removed(spelling: str) -> None:
    """RFC 5321, section 4.1.2: such quotes are not part of the address."""
    [alternatives] = bounce_mail.parse_reports(build_report(spelling), NUMBER)
    assert RECIPIENT in [str(fact.recipient).lower() for fact in alternatives]


def test_a_complaint_at_a_return_path_is_proven() -> None:
    """Arriving at the return path is proof; a complaint there that names another message is ignored."""
    assert (
        classify_facts(bounce_mail.parse_reports(build_complaint(f"Message-ID: <{build_marks().message_id}>"), NUMBER))
        == "complaint"
    )
    assert bounce_mail.parse_reports(build_complaint(f"Message-ID: <{build_marks(99).message_id}>"), NUMBER) == []
    assert bounce_mail.parse_reports(build_complaint(f"Return-Path: <{build_marks(99).return_path}>"), NUMBER) == []


def test_a_complaint_with_conflicting_signatures_is_ignored() -> None:
    """A complaint with signed tokens of two messages, or with none, gives no facts."""
    conflicting = build_marks()._replace(unsubscribe=links.build_unsubscribe_url("https://example.com", 99))
    assert bounce_mail.parse_reports(sample("arf_rfc5965", conflicting), None) == []
    assert bounce_mail.parse_reports(sample("arf_rfc5965", build_marks()._replace(
        return_path="b+0@bounce.example.com", message_id="1@example.com", unsubscribe="https://example.com/u/x",
    )), None) == []  # fmt: skip


@pytest.mark.parametrize("name", sorted(hostile_emails()))
def test_hostile_mail_is_parsed_quickly(name: str) -> None:
    """Hostile mail raises no error, takes less than a second, and is at most an unclassified rejection."""
    started = time.perf_counter()
    facts = bounce_mail.parse_reports(hostile_emails()[name], NUMBER)
    assert time.perf_counter() - started < extend_timeout(1)
    assert classify_facts(facts) in ("nothing", "refused")


@pytest.mark.parametrize("name", sorted(EXPECTED_CLASSES)[::6])
def test_truncated_samples_raise_no_error(name: str) -> None:
    """A sample that is cut at any place, or has a damaged byte, raises no error."""
    raw = sample(name, build_marks())
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


@pytest.mark.parametrize("name", ["courier_unknown", "arf_rfc5965"])
def test_bytes_above_127_are_read(name: str) -> None:
    """Fields of a report in UTF-8 or in another encoding give facts that can be stored (T31)."""
    raw = sample(name, build_marks())
    for text, expected in (("später".encode(), "später"), ("später".encode("latin-1"), "sp\ufffdter")):
        for field in (b"Diagnostic-Code: smtp; 550", b"User-Agent:", b"To:", b"Original-Rcpt-To:"):
            [[fact, *_]] = bounce_mail.parse_reports(raw.replace(field, field + b" " + text), NUMBER)
            assert fact.text.encode() and (fact.recipient or "").encode()
            assert expected in fact.text or field not in raw or b"To" in field


def test_mutated_samples_raise_no_error() -> None:
    """Samples with bytes changed, cut, doubled or replaced by unusual values raise no error."""
    rng = random.Random(11)
    samples = [sample(name, build_marks()) for name in sorted(EXPECTED_CLASSES)]
    for _ in range(1_000):
        raw = rng.choice(samples)
        for _ in range(rng.randrange(1, 10)):
            start, end = sorted((rng.randrange(len(raw) + 1), rng.randrange(len(raw) + 1)))
            raw = rng.choice((
                raw[:start] + bytes([rng.randrange(256)]) + raw[start + 1 :], raw[:start] + raw[end:],
                raw[:start] + rng.choice(SPLINTERS) + raw[start:],
                raw[:start] + rng.choice(samples)[:400] + raw[start:],
                raw.replace(rng.choice(SWAPS), rng.choice(STRANGE)),
            ))  # fmt: skip
        bounce_mail.parse_reports(raw, NUMBER)


def test_a_signed_unsubscribe_address_proves_a_complaint() -> None:
    """The signed address is enough without other marks; a forged one gives no facts."""
    genuine = build_marks()._replace(unsubscribe=f"mailto:{build_marks().leave}")
    forged = genuine._replace(unsubscribe=genuine.unsubscribe.replace("@", "0@"))
    results = [
        bounce_mail.parse_reports(sample("arf_unsubscribe_link_alone", message_marks), None)
        for message_marks in (genuine, forged)
    ]
    assert classify_facts(results[0]) == "complaint" and results[1] == []


class FakeTransport(asyncio.Transport):
    """A transport with a peer address; `received` keeps what is written to it."""

    def __init__(self, ip: str) -> None:
        super().__init__({"peername": (ip, 4711, 0, 0)})
        self.received = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.received += data

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def test_an_ipv6_prefix_is_one_client() -> None:
    """The addresses of an IPv6 /64 share the connections of one client; other prefixes are still accepted."""

    async def run() -> list[bytes]:
        limiter, handler = ConnectionLimiter(), InboundHandler()
        transports = [FakeTransport(f"2001:db8:0:{number // 8}::{number}") for number in range(16)]
        sessions = [SmtpSession(handler, limiter, "mx.example.org", None) for _ in transports]
        for session, transport in zip(sessions, transports, strict=True):
            session.connection_made(transport)
        replies = [transport.received[:3] for transport in transports]
        for session in sessions:
            session.connection_lost(None)
        assert limiter.size == 0
        handler.close()
        return replies

    first, second = [b""] * 5 + [b"421"] * 3, [b""] * 5 + [b"421"] * 3
    assert asyncio.run(run()) == first + second
