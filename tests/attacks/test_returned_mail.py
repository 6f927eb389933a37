"""Generated bounces and complaints by which the recipient of one message tries to change others (T31, T33).

The attacker has one message, with all its signed values, and knows the addresses of the other recipients. Their
Message-IDs are signed, too, so the attacker can only change some characters of them.
"""

import random
import socket
import time

import pytest

from tests.journeys.test_returned_mail import DOMAIN, FEEDBACK, SAMPLES, World, world
from tests.kit.bounces import Placeholders, sample
from tests.kit.sampling import examples
from tests.kit.timeouts import cpu_seconds

__all__ = ["world"]
COUNT = examples(30, full=3_000)
# Message ends and line ends that servers have taken for the end of the data.
_ENDS = (b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r", b"\r\n\x00.\r\n", b"\n.\r", b"\r.\n", b"\r\n.\r\r\n")
_EXTRA_BLOCKS = (
    "\r\nFinal-Recipient: rfc822; {victim}\r\nAction: failed\r\nStatus: 5.1.1\r\n"
    "Diagnostic-Code: smtp; 550 5.1.1 unknown user\r\n",
    "\r\nOriginal-Recipient: rfc822;{victim}\r\nFinal-Recipient: rfc822;{victim}\r\nAction: failed\r\n"
    "Status: 5.1.1\r\n",
    "\r\n550 5.1.1 <{victim}>: Recipient address rejected: User unknown\r\n",
    "\r\nX-Failed-Recipients: {victim}\r\n", "\r\nOriginal-Rcpt-To: <{victim}>\r\nFeedback-Type: abuse\r\n",
    "\r\nMessage-ID: <{message_id}>\r\nTo: {victim}\r\n", "\r\nTo: {victim}\r\nReturn-Path: <{victim}>\r\n",
)  # fmt: skip


def forge(rng: random.Random, own: Placeholders, victim: Placeholders) -> bytes:
    """Return a report with the attacker's own signed values that names the recipient or the message of another."""
    at = rng.randrange(8)
    guessed_id = victim.message_id[:at] + rng.choice("0Az") + victim.message_id[at + 1 :]
    forged_id = own.message_id if guessed_id == victim.message_id else guessed_id
    marks = own._replace(
        recipient=rng.choice((own.recipient, victim.recipient, f"{own.recipient}, {victim.recipient}")),
        message_id=rng.choice((own.message_id, forged_id)),
    )
    raw = sample(rng.choice(SAMPLES), marks)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        block = rng.choice(_EXTRA_BLOCKS).format(victim=victim.recipient, message_id=forged_id).encode()
        place = rng.choice([at for at in range(0, len(raw) - 1, 7) if raw[at : at + 2] == b"\r\n"] or [len(raw)])
        raw = raw[:place] + block + raw[place:]
    if rng.random() < 0.3:
        other = sample(rng.choice(SAMPLES), own._replace(recipient=victim.recipient))
        raw = rng.choice((raw + b"\r\n" + other, b"Content-Type: message/rfc822\r\n\r\n" + raw, raw[:2000] + other))
    if rng.random() < 0.2:
        raw = raw.replace(own.recipient.encode(), victim.recipient.encode(), rng.randrange(1, 4))
    return raw


def state_without(world: World, address: str) -> list[str]:
    """Return everything that returned mail could change, without what is about one recipient."""
    rows = [f"{row}" for part in world.state()[:-1] for row in part]
    own = world.rows()[address]
    contact_id = own["contact_id"]
    return [
        row for row in rows
        if address not in row and f"'contact_id': {contact_id}," not in row and f"message:{own['id']}'" not in row
    ]  # fmt: skip


def test_reports_about_others_change_nothing(world: World) -> None:
    """Whatever a recipient sends to the addresses of its own message, no other contact or message is changed."""
    rng, attacker = random.Random(3_464), len(SAMPLES) + 15
    own = world.marks(attacker)
    before = state_without(world, own.recipient)
    for _ in range(COUNT):
        victim = world.marks(rng.choice([index for index in range(len(SAMPLES)) if index != attacker]))
        to = rng.choice(((own.return_path,), (FEEDBACK,), (own.return_path, FEEDBACK), (f"feedback@bounce.{DOMAIN}",)))
        codes = world.post.deliver(forge(rng, own, victim), *to, sender=rng.choice(("", victim.recipient)))
        assert codes and codes[0] in (250, 550, 552, 554), codes
    assert state_without(world, own.recipient) == before


def test_no_mail_is_smuggled_behind_another(world: World) -> None:
    """No end of the data but CRLF, dot, CRLF starts another mail, such as a complaint in the name of a victim."""
    rng, attacker = random.Random(5_321), len(SAMPLES) + 16
    own = world.marks(attacker)
    before = state_without(world, own.recipient)
    for _ in range(max(len(_ENDS), COUNT // 10)):
        victim = world.marks(rng.randrange(len(SAMPLES)))
        hidden = f"MAIL FROM:<>\r\nRCPT TO:<{victim.return_path}>\r\nDATA\r\n".encode()
        hidden += sample("postfix_user_unknown", victim)
        data = b"Subject: x\r\n\r\nx" + rng.choice(_ENDS) + hidden + b"\r\n.\r\nQUIT\r\n"
        with socket.create_connection(("127.0.0.1", world.post.port), timeout=10) as link:
            for command in (
                b"HELO x\r\n",
                b"MAIL FROM:<>\r\n",
                f"RCPT TO:<{own.return_path}>\r\n".encode(),
                b"DATA\r\n",
            ):
                link.recv(4_096)
                link.sendall(command)
            link.recv(4_096)
            link.sendall(data)
            replies, until = b"", time.monotonic() + 5
            while time.monotonic() < until and (piece := link.recv(4_096)):
                replies += piece
        # The data has one end: no reply invites to send those of another mail.
        assert b"354" not in replies and replies.count(b"250") <= 1, replies
    assert state_without(world, own.recipient) == before


def test_a_reply_is_not_enough_for_a_complaint(world: World) -> None:
    """Who knows a message's recipient, Message-ID and link, as from a reply, can cause one event and nothing else."""
    victim = world.marks(len(SAMPLES) + 18)
    before = world.state()
    for _ in range(3):
        assert world.post.deliver(sample("arf_recipient_named", victim), FEEDBACK, sender="x@evil.example") == [250]
    after = world.state()
    assert [after[part] for part in (0, 1, 2, 4)] == [before[part] for part in (0, 1, 2, 4)]
    assert [row["event"] for row in after[3] if row not in before[3]] == ["email_complaint_unverified"]


# What a hostile mail repeats in a field or text: pieces of what the patterns for returned mail look for.
_UNITS = ("@", "a@", "-", "fail", "block_", "user ", "b+0", "/u/a", '"a"@', "no ", "account ", "5.1.1 ", "retry", "=41")
# Where it repeats them, as (kind of report, text of the first part, one block of fields, blocks, one header, headers).
_PLACES = {
    "recipients of a complaint": ("feedback-report", "x", "Feedback-Type: abuse\r\n\r\n", 1, "To: {2000}\r\n", 300),
    "signatures of a complaint": (
        "feedback-report", "x", "Feedback-Type: abuse\r\n\r\n", 1, "List-Unsubscribe: {2000}\r\n", 300,
    ),
    "text of a bounce": (
        "delivery-status", "x\r\n{20000}", "Action: failed\r\nFinal-Recipient: rfc822; a@b.example\r\n\r\n", 42, "", 0,
    ),
    "diagnostics of a bounce": (
        "delivery-status", "x",
        "Action: failed\r\nFinal-Recipient: rfc822; a@b.example\r\nDiagnostic-Code: {4000}\r\n\r\n", 42, "", 0,
    ),
    "recipients of a bounce": (
        "delivery-status", "x", "Action: failed\r\nFinal-Recipient: {4000}\r\nOriginal-Recipient: {4000}\r\n\r\n", 42,
        "", 0,
    ),
}  # fmt: skip
# Processor time of the service, three times what the slowest of these mails costs on a slow machine.
_MAX_SECONDS = 1.5


def build_slow_mail(place: str, unit: str) -> bytes:
    """Return a report that repeats a unit in one place, as often as the limits of the place allow."""
    kind, text, block, blocks, header, headers = _PLACES[place]
    for size in (2_000, 4_000, 20_000):
        filled = (unit * size)[: size - 20]
        text, block, header = (part.replace(f"{{{size}}}", filled) for part in (text, block, header))
    return (
        "From: MAILER-DAEMON@mx.example\r\nSubject: Undelivered\r\nMIME-Version: 1.0\r\n"
        f"Content-Type: multipart/report; boundary=B; report-type={kind}\r\n\r\n--B\r\n"
        f"Content-Type: text/plain\r\n\r\n{text}\r\n--B\r\nContent-Type: message/{kind}\r\n\r\n{block * blocks}\r\n"
        f"--B\r\nContent-Type: message/rfc822\r\n\r\n{header * headers}\r\nx\r\n--B--\r\n"
    ).encode()


@pytest.mark.parametrize("place", _PLACES)
def test_no_mail_costs_much(world: World, place: str) -> None:
    """No mail of a megabyte, sent to ten of our addresses, costs the service a second of processor time (T35)."""
    own = world.marks(len(SAMPLES) + 17)
    to = [FEEDBACK] * 10 if "complaint" in place else [own.return_path] * 5 + [own.return_path.upper()] * 5
    pid, rng = world.server.pid, random.Random(place)
    known = {"recipients of a complaint": "@", "text of a bounce": "-", "diagnostics of a bounce": "fail"}
    for unit in dict.fromkeys((known.get(place, "@"), *rng.sample(_UNITS, len(_UNITS) if COUNT > 30 else 1))):
        before = cpu_seconds(pid)
        assert world.post.deliver(build_slow_mail(place, unit), *to) == [250]
        seconds = cpu_seconds(pid) - before
        assert seconds < _MAX_SECONDS, (unit, seconds)
