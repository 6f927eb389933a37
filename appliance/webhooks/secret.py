"""Secrets of webhooks, and what is signed with them (Standard Webhooks, standardwebhooks.com)."""

import base64
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from appliance.core import clock, crypto, tokens

_PREFIX = "whsec_"
_BYTES = 32
_PURPOSE = "webhook secret"
# So long an earlier secret signs along, that whoever listens has time to take the new one over
OVERLAP_MS = 24 * 3600 * 1000


def fresh() -> str:
    """Make a secret as it is shown, once."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def seal(account_id: int, secret: str) -> bytes:
    """Encrypt a secret for its row."""
    return crypto.seal(tokens.derive(_PURPOSE), f"account:{account_id}", secret.encode())


class Sealed(NamedTuple):
    """What a webhook signs with, as its row has it."""

    account_id: int
    secret: bytes
    old_secret: bytes | None = None
    old_secret_until: int | None = None


def usable(sealed: Sealed) -> list[str]:
    """Return the secrets that sign now, the present one first; none if they were sealed with another key."""
    kept = [sealed.secret]
    if sealed.old_secret is not None and clock.now_ms() < (sealed.old_secret_until or 0):
        kept.append(sealed.old_secret)
    label = f"account:{sealed.account_id}"
    found = [crypto.opened(tokens.derive(_PURPOSE), label, bytes(one)) for one in kept]
    return [] if found[0] is None else [one.decode() for one in found if one is not None]


def headers(signing: Sequence[str], name: str, body: bytes) -> dict[str, str]:
    """Return the headers that say which message this is, when it was sent, and that it is ours."""
    sent = str(int(clock.now()))
    return {
        "Content-Type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": sent,
        "webhook-signature": " ".join(crypto.signature(secret, name, sent, body) for secret in signing),
    }
