"""DKIM: whatever mail we write is signed so that two verifiers agree, the same each time, and nothing can be added."""

import base64
import hashlib
import re
from email import message_from_bytes
from email.utils import getaddresses

import dkim as dkimpy
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.sending.delivery import dkim, mime
from appliance.sending.delivery.dkim import Signer
from appliance.sending.delivery.mime import Mail
from appliance.sending.domains import keys
from tests.domain.test_mime import BODY
from tests.kit import dkim as kit
from tests.kit.dkim import NotSigned

RSA, ED = keys.generate_keys(("rsa", "ed25519"))
SIGNERS = (Signer("bakery.example", "c1", RSA.private_key), Signer("bakery.example", "e1", ED.private_key))
RECORDS = {
    "c1._domainkey.bakery.example": f"v=DKIM1; k=rsa; p={RSA.public_key}",
    "e1._domainkey.bakery.example": f"v=DKIM1; k=ed25519; p={ED.public_key}",
}
MARKETING = (
    ("List-Unsubscribe", "<https://bakery.example/u/abc>"),
    ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
    ("List-Id", "News <list-1.bakery.example>"),
    ("Feedback-ID", "c1:a1:campaign:campanero"),
)
FROM = ("Bakery", "news@bakery.example")
BASE = Mail("x1@bakery.example", 1_780_000_000.0, FROM, "ann@example.net", "Hi", "Hi", "<p>Hi</p>")
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
# What canonicalisation is about
RAW = st.lists(
    st.sampled_from([b" ", b"\t", b"\r\n", b"  ", b" \t ", b"a", b".", b"=", b"\xff", b"b c"]), max_size=30
).map(b"".join)  # fmt: skip


def text_of(name: str) -> list[str]:
    """Return as DNS does."""
    return [RECORDS[name]] if name in RECORDS else []


def holds(message: bytes) -> bool:
    """Verify every signature; both verifiers have to agree (dkimpy reads Ed25519 only with a library of its own)."""
    verdicts = set()
    reader = dkimpy.DKIM(message)
    for number, one in enumerate(kit.signatures(message)):
        if one.tags["a"] == "rsa-sha256":
            verdicts.add(_dkimpy_holds(reader, number))
    try:
        kit.verify(message, text_of)
        verdicts.add(True)
    except NotSigned:
        verdicts.add(False)
    assert len(verdicts) == 1, verdicts
    return verdicts.pop()


def _dkimpy_holds(reader: dkimpy.DKIM, number: int) -> bool:
    try:
        return bool(reader.verify(idx=number, dnsfunc=lambda name, timeout=5: _found(name)))
    except dkimpy.DKIMException:
        return False


def _found(name: bytes) -> bytes:
    return "".join(text_of(name.decode().rstrip("."))).encode()


@given(subject=ANY, name=ANY, text=BODY, html=BODY)
@example(subject="", name="", text="", html="")
@example(subject=" a  b ", name="x" * 90, text="a \n\n\n\n", html="<p>\n\n   \n<b>\t\t x</b>   \n\n\n")
@example(subject="é" * 99, name='O"B, <x>', text="a\n", html=" ")
def test_whatever_is_written_verifies(subject: str, name: str, text: str, html: str) -> None:
    """Any subject, sender and bodies are signed so that both verifiers accept both signatures."""
    mail = BASE._replace(
        subject=subject, sender=(name, "news@bakery.example"), text=text, html=html, headers=MARKETING,
        reply_to="desk@bakery.example" if name else None,
    )  # fmt: skip
    signed = dkim.sign(mime.write(mail), SIGNERS)
    assert len(kit.signatures(signed)) == 2 and holds(signed)


@given(body=RAW)
@example(body=b"")
@example(body=b"\r\n")
@example(body=b" \r\n \t\r\n\r\n")
@example(body=b"a \t b \r\n\r\n")
@example(body=b"a ")
@example(body=b"a\r\n ")
@example(body=b" ")
def test_any_body_is_canonical(body: bytes) -> None:
    """Blanks and empty lines are read by the rule, whoever wrote the mail (RFC 6376, 3.4.2 and 3.4.4)."""
    head = b"From: a@bakery.example\r\nTo: b@example.net\r\nSubject:  x \t y\r\n\tz\r\n \t.\r\nDate: d \r\n\r\n"
    lines = body + b"\r\n" if body else b""
    assert holds(dkim.sign(head + lines, SIGNERS))
    # What has no end of a line at its end is read as if it had (3.4.4); dkimpy thinks otherwise of a space there
    kit.verify(dkim.sign(head + body, SIGNERS[:1]), text_of)


@given(body=RAW)
def test_what_is_single_spaced_is_canonical(body: bytes) -> None:
    """A body that is said to need no change has the same canonical form whether it is looked through or not."""
    if mime.is_single_spaced(body + b"\r\n"):
        assert dkim.canonicalize_body(body + b"\r\n") == dkim.canonicalize_body(body + b"\r\n", is_single_spaced=True)


def test_the_example_of_the_rfc() -> None:
    """Canonical form, body hash and Ed25519 signature are those of RFC 8463, appendix A, to the byte."""
    head = (
        b"From: Joe SixPack <joe@football.example.com>\r\nTo: Suzie Q <suzie@shopping.example.net>\r\n"
        b"Subject: Is dinner ready?\r\nDate: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n"
        b"Message-ID: <20030712040037.46341.5F8J@football.example.com>"
    )
    body = b"Hi.\r\n\r\nWe lost the game.  Are you hungry yet?\r\n\r\nJoe.\r\n"
    start = (
        b"DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n d=football.example.com; "
        b"i=@football.example.com;\r\n q=dns/txt; s=brisbane; t=1528637909; h=from : to :\r\n"
        b" subject : date : message-id : from : subject : date;\r\n"
        b" bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n b="
    )
    expected = "/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11BusFa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw=="
    public = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    kit.verify(start + expected.encode() + b"\r\n" + head + b"\r\n\r\n" + body, lambda name: [public])
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode("nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="))
    data = b"\r\n".join((*dkim.canonicalize_headers(head), *dkim.canonicalize_headers(start)))
    assert base64.b64encode(dkim.sign_data(key, data)).decode() == expected
    body_hash = base64.b64encode(hashlib.sha256(dkim.canonicalize_body(body)).digest())
    assert b" bh=" + body_hash + b";" in start


def test_what_is_signed() -> None:
    """The signature is RSA with SHA-256 in relaxed form, has no length or time, and lists what a reader goes by."""
    (one, short) = kit.signatures(dkim.sign(mime.write(BASE._replace(headers=MARKETING)), SIGNERS))
    assert (one.tags["a"], one.tags["c"], one.tags["d"], one.tags["s"]) == (
        "rsa-sha256", "relaxed/relaxed", "bakery.example", "c1",
    )  # fmt: skip
    assert one.tags.keys() == {"v", "a", "c", "d", "s", "h", "bh", "b"} == short.tags.keys()
    assert short.tags["a"] == "ed25519-sha256" and len(base64.b64decode(re.sub(r"\s", "", one.tags["b"]))) == 256
    twice = ("from", "to", "subject", "date", "message-id", "mime-version", "content-type", "list-unsubscribe",
             "list-unsubscribe-post", "list-id", "feedback-id")  # fmt: skip
    assert {name: one.headers.count(name) for name in one.headers} == dict.fromkeys(twice, 2) | {"reply-to": 1}


@pytest.mark.parametrize("name", [
    "From", "To", "Subject", "Date", "Reply-To", "Message-ID", "MIME-Version", "Content-Type", "List-Unsubscribe",
    "List-Unsubscribe-Post", "List-Id", "Feedback-ID",
])  # fmt: skip
def test_nothing_can_be_added_or_taken_away(name: str) -> None:
    """A second header of a kind that a reader goes by ends the signature, above as below; so does its absence."""
    mail = BASE._replace(headers=MARKETING, reply_to="desk@bakery.example")
    signed = dkim.sign(mime.write(mail), SIGNERS)
    assert holds(signed)
    more = f"{name}: <https://evil.example/u>\r\n".encode()
    assert not holds(more + signed)
    assert not holds(signed.replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n", 1))
    line = re.search(rb"(?m)^" + name.encode() + rb": .*\r\n(?: .*\r\n)*", signed)
    assert line is not None and not holds(signed.replace(line[0], b"", 1))


def test_a_reply_to_cannot_be_added_where_there_is_none() -> None:
    """A mail without Reply-To keeps its answers: to add one ends the signature; a list's own headers do not."""
    signed = dkim.sign(mime.write(BASE), SIGNERS)
    assert not holds(b"Reply-To: x@evil.example\r\n" + signed)
    assert holds(b"List-Id: <friends.example>\r\nReceived: by x\r\n" + signed)


def test_a_body_cannot_be_changed() -> None:
    """One character more in the body, or a part behind it, ends the signature; white space alone does not."""
    signed = dkim.sign(mime.write(BASE), SIGNERS)
    assert not holds(signed + b"more\r\n") and not holds(signed.replace(b"<p>Hi", b"<p>Ho"))
    assert holds(signed + b"\r\n \r\n")


@given(subject=ANY)
def test_a_signature_is_the_same_each_time(subject: str) -> None:
    """The same message signed again is the same bytes, with either kind of key."""
    content = mime.write(BASE._replace(subject=subject))
    assert dkim.sign(content, SIGNERS) == dkim.sign(content, SIGNERS)


@given(domain=st.from_regex(r"[a-z]{1,63}(\.[a-z]{1,63}){1,3}", fullmatch=True))
@example(domain=".".join(["x" * 63] * 3 + ["y" * 61]))
def test_lines_fit(domain: str) -> None:
    """The lines of a signature are short; only a long domain makes one longer, and none reaches 998 bytes."""
    signed = dkim.sign(mime.write(BASE._replace(headers=MARKETING)), (SIGNERS[0]._replace(domain=domain),))
    head = signed.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert all(len(line) <= 78 or (domain.encode() in line and len(line) < 300) for line in head)
    assert message_from_bytes(signed)["DKIM-Signature"] and getaddresses([message_from_bytes(signed)["From"]])


def test_nobody_signs_nothing() -> None:
    """Without a key the bytes stay as they are."""
    assert dkim.sign(b"From: a\r\n\r\nx", ()) == b"From: a\r\n\r\nx"
