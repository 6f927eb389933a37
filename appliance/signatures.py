"""Signatures of requests as standardwebhooks.com describes them: over the id, the time and the body."""

import base64
import binascii
import hashlib
import hmac


def signature(secret: str, name: str, sent: str, body: bytes) -> str:
    """Sign a request: `v1,` and the base64 HMAC-SHA256 of id, time and body with points between them."""
    made = hmac.new(_key(secret), f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode()


def is_signed(secret: str, name: str, sent: str, body: bytes, given: str) -> bool:
    """Say whether one of the signatures of a request, with spaces between them, is right."""
    right = signature(secret, name, sent, body).encode()
    return any(hmac.compare_digest(one.encode(), right) for one in given.split(" "))


def _key(secret: str) -> bytes:
    """Answer the key of a secret: what follows `whsec_` is base64, anything else is the key itself."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
