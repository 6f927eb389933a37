"""Signatures of requests as standardwebhooks.com describes them: over the id, the time and the body."""

import base64
import hashlib
import hmac


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
