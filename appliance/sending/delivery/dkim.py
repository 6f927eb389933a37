"""Signs mail (RFC 6376, 8301, 8463): relaxed/relaxed, our own list of headers, nothing that changes from one attempt to
the next, so that a repeat is the same bytes.

A header that is named once more than it stands in the mail cannot be added to it on its way (RFC 6376, 8.15).
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256

    PrivateKey = RSAPrivateKey | Ed25519PrivateKey


# What a reader goes by; nobody may add one, whether the mail has it or not
_ALWAYS = (b"from", b"to", b"subject", b"date", b"reply-to")
# Signed where the mail has it, and then nobody may add another
_PRESENT = (
    b"message-id", b"mime-version", b"content-type", b"content-transfer-encoding",
    b"list-unsubscribe", b"list-unsubscribe-post", b"list-id", b"feedback-id",
)  # fmt: skip
_WIDTH = 75


class Signer(NamedTuple):
    """One signature of a mail: for which domain, with which key, and where a reader finds its public half."""

    domain: str
    selector: str
    key: "PrivateKey"


def sign(content: bytes, signers: Sequence[Signer], is_single_spaced: bool = False) -> bytes:
    """Return a mail with a signature of each signer above it; lines end in CRLF.

    `is_single_spaced` says so of its body (`mime.is_single_spaced`), which then is not looked through.
    """
    if not signers:
        return content
    head, _, body = content.partition(b"\r\n\r\n")
    names, data = _signed(head)
    body_hash = b64encode(hashlib.sha256(canonical_body(body, is_single_spaced)).digest()).decode()
    return b"".join([*(_signature(one, names, data, body_hash) for one in signers), content])


def _signature(signer: Signer, names: tuple[bytes, ...], data: bytes, body_hash: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    short = isinstance(signer.key, Ed25519PrivateKey)
    value = (
        f"v=1; a={'ed25519' if short else 'rsa'}-sha256; c=relaxed/relaxed;\r\n d={signer.domain}; "
        f"s={signer.selector};\r\n h={_listed(names)};\r\n bh={body_hash};\r\n b="
    )
    # The header itself is signed last, without its own signature and without the end of its line (RFC 6376, 3.7)
    data += b"dkim-signature:" + value.replace("\r\n ", " ").encode()
    text = b64encode(signature(signer.key, data)).decode()
    written = "\r\n ".join(text[at : at + _WIDTH - 3] for at in range(0, len(text), _WIDTH - 3))
    return f"DKIM-Signature: {value}{written}\r\n".encode()


def signature(key: "PrivateKey", data: bytes) -> bytes:
    """Sign data; the same key and data make the same signature each time."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(key, Ed25519PrivateKey):
        return key.sign(hashlib.sha256(data).digest())  # RFC 8463, 3
    return key.sign(data, *_scheme())


@cache
def _scheme() -> "tuple[PKCS1v15, SHA256]":
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return PKCS1v15(), SHA256()


def _signed(head: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """Return the names of the headers to be signed, and these headers in their canonical form, in that order."""
    found: dict[bytes, list[bytes]] = {}
    for line in canonical_head(head):
        name, _, _ = line.partition(b":")
        found.setdefault(name, []).append(line)
    names: list[bytes] = []
    data: list[bytes] = []
    for name in (*_ALWAYS, *_PRESENT):
        lines = found.get(name, [])
        if lines or name in _ALWAYS:
            names += [name] * (len(lines) + 1)
            data += reversed(lines)  # from the last one up (RFC 6376, 5.4.2)
    return tuple(names), b"".join(line + b"\r\n" for line in data)


@lru_cache(maxsize=64)
def _listed(names: tuple[bytes, ...]) -> str:
    """Write the list of signed headers, folded behind colons."""
    lines, line = [], ""
    for name in names:
        word = f"{name.decode()}:"
        if len(line) + len(word) > _WIDTH - 3:
            lines.append(line)
            line = ""
        line += word
    return "\r\n ".join((*lines, line))[:-1]


def canonical_head(head: bytes) -> list[bytes]:
    """Return the headers in relaxed form (RFC 6376, 3.4.2), without the ends of their lines."""
    plain = _single_spaces(head.replace(b"\r\n ", b" ").replace(b"\r\n\t", b" "))
    lines = []
    for line in plain.split(b"\r\n"):
        name, _, value = line.partition(b":")
        lines.append(name.rstrip(b" ").lower() + b":" + value.strip(b" "))
    return lines


def canonical_body(body: bytes, is_single_spaced: bool = False) -> bytes:
    """Return a body in relaxed form (RFC 6376, 3.4.4): what is that already, as most of it is, is only looked at."""
    if not is_single_spaced:
        body = _single_spaces(body)
        if b" \r\n" in body:
            body = body.replace(b" \r\n", b"\r\n")
    end = len(body) - body.endswith(b" ")
    while body.endswith(b"\r\n", 0, end):
        end -= 2
    if not end:
        return b""
    return body if end == len(body) - 2 else body[:end] + b"\r\n"


def _single_spaces(text: bytes) -> bytes:
    if b"\t" in text:
        text = text.replace(b"\t", b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    return text
