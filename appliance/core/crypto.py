"""Seals secrets that lie in the database, with a key that does not: a copy of the file alone tells none of them."""

import base64
import hashlib
import hmac
import os

_NONCE_BYTES = 12


def seal(key: bytes, label: str, plain: bytes) -> bytes:
    """Encrypt a secret; `label` says what it belongs to, so that none opens in the place of another."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, label.encode())


def opened(key: bytes, label: str, sealed: bytes) -> bytes | None:
    """Decrypt a secret, or answer None if it was sealed with another key or for something else."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode())
    except (InvalidTag, ValueError):
        return None


# Signatures of requests as standardwebhooks.com describes them: over the id, the time and the body.


def signature(secret: str, name: str, sent: str, body: bytes) -> str:
    """Sign a request: `v1,` and the base64 HMAC-SHA256 of id, time and body with points between them."""
    return _made(_keys(secret)[0], name, sent, body)


def _made(key: bytes, name: str, sent: str, body: bytes) -> str:
    made = hmac.new(key, f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode()


def is_signed(secret: str, name: str, sent: str, body: bytes, given: str) -> bool:
    """Return whether one of the signatures of a request, with spaces between them, is right."""
    rights = [_made(key, name, sent, body).encode() for key in _keys(secret)]
    return any(hmac.compare_digest(one.encode(), right) for one in given.split(" ") for right in rights)


def _keys(secret: str) -> list[bytes]:
    """Return the keys of a secret: what follows `whsec_` is base64, anything else is the key itself.

    Some take the secret for the key with all its letters, so what they sign is right too; we sign with the first.
    """
    kept = [secret.encode()]
    try:
        meant = base64.b64decode(secret.removeprefix("whsec_"), validate=True) if secret.startswith("whsec_") else b""
    except ValueError:
        return kept
    # No key is none that everybody has
    return [meant, *kept] if meant else kept
