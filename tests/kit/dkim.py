"""A DKIM verifier, written from RFC 6376, 8301 and 8463 alone; it shares no code with the signer.

It works character by character where the RFC does, because it has to be correct and not fast.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

TxtLookup = Callable[[str], list[str]]


class VerificationFailed(Exception):
    """A message has no signature, or an invalid one; the text gives the reason."""


@dataclass(frozen=True)
class Signature:
    """A DKIM-Signature header: its tags, and the raw header."""

    tags: dict[str, str]
    name: str
    raw: str

    @property
    def domain(self) -> str:
        """Return the signing domain."""
        return self.tags["d"].lower()

    @property
    def headers(self) -> list[str]:
        """Return the header names in `h=`, in lower case."""
        return [name.strip().lower() for name in self.tags["h"].split(":")]


def signatures(message: bytes) -> list[Signature]:
    """Return the signatures of a message, the topmost first."""
    fields, _ = _parts(message)
    return [Signature(tag_list(value), name, value) for name, value in fields if name.lower() == "dkim-signature"]


def verify(message: bytes, lookup_txt: TxtLookup) -> list[Signature]:
    """Verify all signatures of a message with the keys that `lookup_txt` returns; at least one is required."""
    dkim_signatures = signatures(message)
    if not dkim_signatures:
        raise VerificationFailed("no DKIM-Signature")
    for dkim_signature in dkim_signatures:
        _verify(message, dkim_signature, lookup_txt)
    return dkim_signatures


def tag_list(text: str) -> dict[str, str]:
    """Parse `a=b; c=d` (RFC 6376, 3.2). Raises NotSigned for a repeated or malformed tag."""
    tags: dict[str, str] = {}
    parts = text.split(";")
    if not parts[-1].strip():
        parts.pop()
    for part in parts:
        name, sign, value = part.partition("=")
        name = name.strip(" \t\r\n")
        if not sign or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in tags:
            raise VerificationFailed(f"not a tag list: {part!r}")
        tags[name] = value.strip(" \t\r\n")
    return tags


def _verify(message: bytes, signature: Signature, lookup_txt: TxtLookup) -> None:
    tags = signature.tags
    for name in ("v", "a", "b", "bh", "d", "h", "s"):
        if name not in tags:
            raise VerificationFailed(f"{name}= is missing")
    if tags["v"] != "1" or tags["a"] not in ("rsa-sha256", "ed25519-sha256") or "l" in tags:
        raise VerificationFailed("not a signature that may be accepted today")
    if "from" not in signature.headers:
        raise VerificationFailed("From is not signed")
    fields, body = _parts(message)
    how = (tags.get("c", "simple/simple") + "/simple").split("/")
    if how[:2] != ["relaxed", "relaxed"]:
        raise VerificationFailed(f"canonicalization {tags.get('c')} is not what we make")
    if hashlib.sha256(_relaxed_body(body)).digest() != _base64(tags["bh"]):
        raise VerificationFailed("the body has changed")
    _check(_public_key(tags, lookup_txt), _signed_data(fields, signature), _base64(tags["b"]))


def _signed_data(fields: list[tuple[str, str]], signature: Signature) -> bytes:
    remaining = list(fields)
    lines = []
    for header_name in signature.headers:
        for place in range(len(remaining) - 1, -1, -1):
            if remaining[place][0].lower() == header_name:
                lines.append(_relaxed_header(*remaining.pop(place)) + "\r\n")
                break
    without = re.sub(r"((?:^|;)[ \t\r\n]*b[ \t\r\n]*=)[^;]*", r"\1", signature.raw)
    return ("".join(lines) + _relaxed_header(signature.name, without)).encode("utf-8", "surrogateescape")


def _relaxed_header(name: str, value: str) -> str:
    relaxed = ""
    for character in value.replace("\r\n", ""):
        if character in " \t":
            relaxed += "" if relaxed.endswith(" ") else " "
        else:
            relaxed += character
    return f"{name.lower().rstrip()}:{relaxed.strip(' ')}"


def _relaxed_body(body: bytes) -> bytes:
    lines = body.split(b"\r\n")
    plain = [re.sub(rb"[ \t]+", b" ", line).rstrip(b" ") for line in lines]
    while plain and plain[-1] == b"":
        plain.pop()
    return b"".join(line + b"\r\n" for line in plain)


def _parts(message: bytes) -> tuple[list[tuple[str, str]], bytes]:
    head, _, body = message.partition(b"\r\n\r\n")
    fields: list[tuple[str, str]] = []
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        if line[:1] in (" ", "\t"):
            name, value = fields.pop()
            fields.append((name, f"{value}\r\n{line}"))
        else:
            name, colon, value = line.partition(":")
            if not colon:
                raise VerificationFailed(f"not a header: {line!r}")
            fields.append((name, value))
    return fields, body


def _public_key(tags: dict[str, str], lookup_txt: TxtLookup) -> RSAPublicKey | Ed25519PublicKey:
    name = f"{tags['s']}._domainkey.{tags['d']}"
    records = lookup_txt(name)
    if len(records) != 1:
        raise VerificationFailed(f"{len(records)} keys at {name}")
    record = tag_list(records[0])
    kind = tags["a"].partition("-")[0]
    if record.get("v", "DKIM1") != "DKIM1" or record.get("k", "rsa") != kind or not record.get("p"):
        raise VerificationFailed(f"no key for {tags['a']} at {name}: {records[0]!r}")
    raw = _base64(record["p"])
    if kind == "ed25519":
        return Ed25519PublicKey.from_public_bytes(raw)
    key = serialization.load_der_public_key(raw)
    if not isinstance(key, RSAPublicKey) or key.key_size < 1024:
        raise VerificationFailed("not an RSA key of 1024 bits or more (RFC 8301)")
    return key


def _check(key: RSAPublicKey | Ed25519PublicKey, data: bytes, signature: bytes) -> None:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, hashlib.sha256(data).digest())
        else:
            key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise VerificationFailed("the signature does not hold: a signed header has changed") from None


def _base64(text: str) -> bytes:
    return base64.b64decode(re.sub(r"[ \t\r\n]", "", text), validate=True)
