"""Verify the requests that Campanero sends to webhooks (Standard Webhooks, standardwebhooks.com)."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable
from typing import Any, Protocol

from campanero_client.errors import InvalidSignature

MAX_AGE_SECONDS = 300


class Headers(Protocol):
    """The headers of a request: a dict, or the headers of any framework."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return names and values."""
        ...


def verify(
    body: bytes | str, headers: Headers, secret: str, *, max_age_seconds: float = MAX_AGE_SECONDS
) -> dict[str, Any]:
    """Return the event of a webhook request as a dict. Raises InvalidSignature if the request is not from Campanero.

    `body` is the body exactly as it was received. `headers` may have names in any case. `secret` is the secret of the
    webhook, `whsec_…`. A request that was signed more than `max_age_seconds` ago, or later than now by as much, is
    invalid too, so that a recorded request cannot be sent again later. A delivery may arrive more than once; its header
    `webhook-id` stays the same.
    """
    content = body.encode() if isinstance(body, str) else bytes(body)
    lower = {name.lower(): value for name, value in headers.items()}
    values = [lower.get(f"webhook-{name}") for name in ("id", "timestamp", "signature")]
    if not all(values):
        raise InvalidSignature("webhook-id, webhook-timestamp or webhook-signature is missing")
    delivery_id, timestamp, signatures = map(str, values)
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        raise InvalidSignature("webhook-timestamp is not a number of seconds")
    signed = f"{delivery_id}.{timestamp}.".encode() + content
    expected = b"v1," + base64.b64encode(hmac.new(_decode_secret(secret), signed, hashlib.sha256).digest())
    if not any(
        hmac.compare_digest(expected, signature.encode("utf-8", "replace")) for signature in signatures.split(" ")
    ):
        raise InvalidSignature("no signature was made with this secret")
    if abs(time.time() - int(timestamp)) > max_age_seconds:
        raise InvalidSignature(f"the request was not signed within {max_age_seconds:g} seconds")
    event = json.loads(content)
    if not isinstance(event, dict):
        raise InvalidSignature("the body is not an event")
    return event


def _decode_secret(secret: str) -> bytes:
    """Return the key of a secret. Raises ValueError if the secret is not `whsec_` and base64."""
    try:
        key = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("the secret of a webhook is whsec_ and base64")
    return key
