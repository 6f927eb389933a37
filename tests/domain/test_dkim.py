"""DKIM signing: two verifiers accept every signature, signing is deterministic, and any change breaks a signature."""

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
from tests.kit.dkim import VerificationFailed

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
# White space and line ends, which canonicalization changes
RAW = st.lists(
    st.sampled_from([b" ", b"\t", b"\r\n", b"  ", b" \t ", b"a", b".", b"=", b"\xff", b"b c"]), max_size=30
).map(b"".join)  # fmt: skip


def lookup_txt(name: str) -> list[str]:
    """Return the TXT records of a name."""
    return [RECORDS[name]] if name in RECORDS else []


def is_signature_valid(message: bytes) -> bool:
    """Return whether all signatures verify, after a check that both verifiers agree."""
    verdicts = set()
    reader = dkimpy.DKIM(message)
    for number, signature in enumerate(kit.signatures(message)):
        if signature.tags["a"] == "rsa-sha256":
            verdicts.add(_dkimpy_verifies(reader, number))
    try:
        kit.verify(message, lookup_txt)
        verdicts.add(True)
    except VerificationFailed:
        verdicts.add(False)
    assert len(verdicts) == 1, verdicts
    return verdicts.pop()


def _dkimpy_verifies(reader: dkimpy.DKIM, number: int) -> bool:
    try:
        return bool(reader.verify(idx=number, dnsfunc=lambda name, timeout=5: _lookup_for_dkimpy(name)))
    except dkimpy.DKIMException:
        return False


def _lookup_for_dkimpy(name: bytes) -> bytes:
    return "".join(lookup_txt(name.decode().rstrip("."))).encode()


@given(subject=ANY, name=ANY, text=BODY, html=BODY)
@example(subject="", name="", text="", html="")
@example(subject=" a  b ", name="x" * 90, text="a \n\n\n\n", html="<p>\n\n   \n<b>\t\t x</b>   \n\n\n")
@example(subject="é" * 99, name='O"B, <x>', text="a\n", html=" ")
def test_every_message_verifies(subject: str, name: str, text: str, html: str) -> None:
    """Any subject, From name and bodies are signed with two signatures that both verifiers accept."""
    mail = BASE._replace(
        subject=subject, sender=(name, "news@bakery.example"), text=text, html=html, headers=MARKETING,
        reply_to="desk@bakery.example" if name else None,
    )  # fmt: skip
    signed = dkim.sign(mime.write(mail), SIGNERS)
    assert len(kit.signatures(signed)) == 2 and is_signature_valid(signed)


@given(body=RAW)
@example(body=b"")
@example(body=b"\r\n")
@example(body=b" \r\n \t\r\n\r\n")
@example(body=b"a \t b \r\n\r\n")
@example(body=b"a ")
@example(body=b"a\r\n ")
@example(body=b" ")
def test_any_body_is_canonicalized(body: bytes) -> None:
    """White space and empty lines are canonicalized as RFC 6376, 3.4.2 and 3.4.4, say."""
    head = b"From: a@bakery.example\r\nTo: b@example.net\r\nSubject:  x \t y\r\n\tz\r\n \t.\r\nDate: d \r\n\r\n"
    lines = body + b"\r\n" if body else b""
    assert is_signature_valid(dkim.sign(head + lines, SIGNERS))
    # A body without a final line end is read as if it had one (3.4.4); dkimpy differs if it ends in a space
    kit.verify(dkim.sign(head + body, SIGNERS[:1]), lookup_txt)


@given(body=RAW)
def test_single_spaced_bodies_have_the_same_canonical_form(body: bytes) -> None:
    """For a single-spaced body the fast canonicalization gives the same bytes as the full one."""
    if mime.is_single_spaced(body + b"\r\n"):
        assert dkim.canonicalize_body(body + b"\r\n") == dkim.canonicalize_body(body + b"\r\n", is_single_spaced=True)


def test_the_example_of_rfc_8463() -> None:
    """Canonical form, body hash and Ed25519 signature are byte for byte those of RFC 8463, appendix A."""
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
    public_record = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    kit.verify(start + expected.encode() + b"\r\n" + head + b"\r\n\r\n" + body, lambda name: [public_record])
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode("nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="))
    data = b"\r\n".join((*dkim.canonicalize_headers(head), *dkim.canonicalize_headers(start)))
    assert base64.b64encode(dkim.sign_data(key, data)).decode() == expected
    body_hash = base64.b64encode(hashlib.sha256(dkim.canonicalize_body(body)).digest())
    assert b" bh=" + body_hash + b";" in start


def test_signature_tags_and_signed_headers() -> None:
    """Signatures are SHA-256 and relaxed, without length or time; most headers are listed twice, Reply-To once."""
    (rsa_signature, ed25519_signature) = kit.signatures(
        dkim.sign(mime.write(BASE._replace(headers=MARKETING)), SIGNERS)
    )
    assert (rsa_signature.tags["a"], rsa_signature.tags["c"], rsa_signature.tags["d"], rsa_signature.tags["s"]) == (
        "rsa-sha256", "relaxed/relaxed", "bakery.example", "c1",
    )  # fmt: skip
    assert rsa_signature.tags.keys() == {"v", "a", "c", "d", "s", "h", "bh", "b"} == ed25519_signature.tags.keys()
    assert (
        ed25519_signature.tags["a"] == "ed25519-sha256"
        and len(base64.b64decode(re.sub(r"\s", "", rsa_signature.tags["b"]))) == 256
    )
    twice = ("from", "to", "subject", "date", "message-id", "mime-version", "content-type", "list-unsubscribe",
             "list-unsubscribe-post", "list-id", "feedback-id")  # fmt: skip
    assert {name: rsa_signature.headers.count(name) for name in rsa_signature.headers} == dict.fromkeys(twice, 2) | {
        "reply-to": 1
    }


@pytest.mark.parametrize("name", [
    "From", "To", "Subject", "Date", "Reply-To", "Message-ID", "MIME-Version", "Content-Type", "List-Unsubscribe",
    "List-Unsubscribe-Post", "List-Id", "Feedback-ID",
])  # fmt: skip
def test_adding_or_removing_a_header_breaks_the_signature(name: str) -> None:
    """A second header of a signed kind, above or below, breaks the signature; so does removing the header."""
    mail = BASE._replace(headers=MARKETING, reply_to="desk@bakery.example")
    signed = dkim.sign(mime.write(mail), SIGNERS)
    assert is_signature_valid(signed)
    extra_header = f"{name}: <https://evil.example/u>\r\n".encode()
    assert not is_signature_valid(extra_header + signed)
    assert not is_signature_valid(signed.replace(b"\r\n\r\n", b"\r\n" + extra_header + b"\r\n", 1))
    line = re.search(rb"(?m)^" + name.encode() + rb": .*\r\n(?: .*\r\n)*", signed)
    assert line is not None and not is_signature_valid(signed.replace(line[0], b"", 1))


def test_a_reply_to_cannot_be_added_where_there_is_none() -> None:
    """An added Reply-To breaks the signature; List-Id and Received do not."""
    signed = dkim.sign(mime.write(BASE), SIGNERS)
    assert not is_signature_valid(b"Reply-To: x@evil.example\r\n" + signed)
    assert is_signature_valid(b"List-Id: <friends.example>\r\nReceived: by x\r\n" + signed)


def test_changing_the_body_breaks_the_signature() -> None:
    """Added or changed text in the body breaks the signature; trailing white space does not."""
    signed = dkim.sign(mime.write(BASE), SIGNERS)
    assert not is_signature_valid(signed + b"more\r\n") and not is_signature_valid(signed.replace(b"<p>Hi", b"<p>Ho"))
    assert is_signature_valid(signed + b"\r\n \r\n")


@given(subject=ANY)
def test_signing_is_deterministic(subject: str) -> None:
    """Signing the same message again gives the same bytes."""
    content = mime.write(BASE._replace(subject=subject))
    assert dkim.sign(content, SIGNERS) == dkim.sign(content, SIGNERS)


@given(domain=st.from_regex(r"[a-z]{1,63}(\.[a-z]{1,63}){1,3}", fullmatch=True))
@example(domain=".".join(["x" * 63] * 3 + ["y" * 61]))
def test_signature_lines_are_short(domain: str) -> None:
    """Lines have at most 78 bytes, except those with a long domain, which stay below 300."""
    signed = dkim.sign(mime.write(BASE._replace(headers=MARKETING)), (SIGNERS[0]._replace(domain=domain),))
    head = signed.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert all(len(line) <= 78 or (domain.encode() in line and len(line) < 300) for line in head)
    assert message_from_bytes(signed)["DKIM-Signature"] and getaddresses([message_from_bytes(signed)["From"]])


def test_signing_without_keys_changes_nothing() -> None:
    """Without a signer the message is returned unchanged."""
    assert dkim.sign(b"From: a\r\n\r\nx", ()) == b"From: a\r\n\r\nx"
