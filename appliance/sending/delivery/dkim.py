"""Sign mail with DKIM (RFC 6376, 8301, 8463).

Signatures use relaxed/relaxed canonicalization over a fixed list of headers and contain no time, so that all attempts
to send a message have the same bytes. Each signed header is listed once more than it occurs, so that adding another one
in transit breaks the signature (RFC 6376, 8.15).
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


# Headers that recipients rely on are listed even if the mail does not have them, so that none can be added
_ALWAYS_SIGNED = (b"from", b"to", b"subject", b"date", b"reply-to")
# Headers that are listed only if the mail has them; a second one cannot be added then
_SIGNED_IF_PRESENT = (
    b"message-id", b"mime-version", b"content-type", b"content-transfer-encoding",
    b"list-unsubscribe", b"list-unsubscribe-post", b"list-id", b"feedback-id", b"cc", b"in-reply-to", b"references",
)  # fmt: skip
_MAX_LINE_CHARACTERS = 75


class Signer(NamedTuple):
    """A signing key; its public key is in DNS at `<selector>._domainkey.<domain>`."""

    domain: str
    selector: str
    key: "PrivateKey"


def sign(content: bytes, signers: Sequence[Signer], is_single_spaced: bool = False) -> bytes:
    """Return a mail with a DKIM-Signature header of each signer put before it; lines must end in CRLF.

    `is_single_spaced` means that the body has no whitespace to reduce (`mime.is_single_spaced`), which saves a pass.
    """
    if not signers:
        return content
    head, _, body = content.partition(b"\r\n\r\n")
    names, data = _headers_to_sign(head)
    body_hash = b64encode(hashlib.sha256(canonicalize_body(body, is_single_spaced)).digest()).decode()
    return b"".join([*(_write_signature(signer, names, data, body_hash) for signer in signers), content])


def _write_signature(signer: Signer, names: tuple[bytes, ...], data: bytes, body_hash: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    is_ed25519 = isinstance(signer.key, Ed25519PrivateKey)
    value = (
        f"v=1; a={'ed25519' if is_ed25519 else 'rsa'}-sha256; c=relaxed/relaxed;\r\n d={signer.domain}; "
        f"s={signer.selector};\r\n h={_fold_header_names(names)};\r\n bh={body_hash};\r\n b="
    )
    # The DKIM-Signature header is signed last, without the signature value and its line end (RFC 6376, 3.7)
    data += b"dkim-signature:" + value.replace("\r\n ", " ").encode()
    text = b64encode(sign_data(signer.key, data)).decode()
    signature = "\r\n ".join(
        text[start : start + _MAX_LINE_CHARACTERS - 3] for start in range(0, len(text), _MAX_LINE_CHARACTERS - 3)
    )
    return f"DKIM-Signature: {value}{signature}\r\n".encode()


def sign_data(key: "PrivateKey", data: bytes) -> bytes:
    """Return the signature of `data`: PKCS #1 v1.5 with SHA-256, or Ed25519 of the SHA-256 hash.

    Both are deterministic: the same key and data give the same signature.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(key, Ed25519PrivateKey):
        return key.sign(hashlib.sha256(data).digest())  # RFC 8463, 3
    return key.sign(data, *_rsa_scheme())


@cache
def _rsa_scheme() -> "tuple[PKCS1v15, SHA256]":
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return PKCS1v15(), SHA256()


def _headers_to_sign(head: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """Return (names to list in `h=`, canonical header lines to sign), both in the same order.

    Each name is listed once more than its header occurs.
    """
    lines_by_name: dict[bytes, list[bytes]] = {}
    for line in canonicalize_headers(head):
        name, _, _ = line.partition(b":")
        lines_by_name.setdefault(name, []).append(line)
    names: list[bytes] = []
    data: list[bytes] = []
    for name in (*_ALWAYS_SIGNED, *_SIGNED_IF_PRESENT):
        lines = lines_by_name.get(name, [])
        if lines or name in _ALWAYS_SIGNED:
            names += [name] * (len(lines) + 1)
            data += reversed(lines)  # from the last one up (RFC 6376, 5.4.2)
    return tuple(names), b"".join(line + b"\r\n" for line in data)


@lru_cache(maxsize=64)
def _fold_header_names(names: tuple[bytes, ...]) -> str:
    """Return header names joined by colons, folded so that no line exceeds `_MAX_LINE_CHARACTERS`."""
    lines, line = [], ""
    for name in names:
        word = f"{name.decode()}:"
        if len(line) + len(word) > _MAX_LINE_CHARACTERS - 3:
            lines.append(line)
            line = ""
        line += word
    return "\r\n ".join((*lines, line))[:-1]


def canonicalize_headers(head: bytes) -> list[bytes]:
    """Return the headers in relaxed form (RFC 6376, 3.4.2): unfolded lines without line breaks, in the same order."""
    plain = _single_spaces(head.replace(b"\r\n ", b" ").replace(b"\r\n\t", b" "))
    lines = []
    for line in plain.split(b"\r\n"):
        name, _, value = line.partition(b":")
        lines.append(name.rstrip(b" ").lower() + b":" + value.strip(b" "))
    return lines


def canonicalize_body(body: bytes, is_single_spaced: bool = False) -> bytes:
    """Return a body in relaxed form (RFC 6376, 3.4.4); a body that is in that form already is not copied.

    `is_single_spaced` means that the body has no whitespace to reduce, so that only empty lines at the end are removed.
    """
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
