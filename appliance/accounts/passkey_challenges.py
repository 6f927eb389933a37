"""Challenges of passkeys: random values that a passkey signs, so that a signature cannot be used again.

A challenge is for one purpose and one browser, expires after `LIFETIME_MS`, and is accepted once. Nothing is stored
when it is issued, so requests for challenges cannot fill the memory: it carries its expiry and a MAC, whose key
ends with the process. Only challenges that came back are remembered, until they expire.

Web Authentication Level 3, section 13.4.3: at least 16 random bytes, verified by the service that issued them.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from functools import cache
from typing import Literal

from appliance.core import clock
from appliance.core.errors import RateLimitExceeded
from appliance.core.i18n import gettext

LIFETIME_MS = 10 * 60 * 1000
Purpose = Literal["register", "sign-in", "second factor"]
_NONCE_BYTES, _EXPIRY_BYTES, _MAC_BYTES = 16, 6, 32
_MAX_USED = 20_000

_lock = threading.Lock()
_used: "OrderedDict[bytes, int]" = OrderedDict()  # nonces of used challenges with their expiry in milliseconds


def issue(purpose: Purpose, browser: str) -> str:
    """Return a new challenge in base64url; `browser` identifies the session or the browser that may use it."""
    body = secrets.token_bytes(_NONCE_BYTES) + (clock.now_ms() + LIFETIME_MS).to_bytes(_EXPIRY_BYTES, "big")
    return base64.urlsafe_b64encode(body + _mac(purpose, browser, body)).decode().rstrip("=")


def use(challenge: str, purpose: Purpose, browser: str) -> bool:
    """Use up a challenge; return False if it is forged, expired, used, or of another purpose or browser.

    Raises RateLimitExceeded if too many challenges are in use, because forgetting one would let it be used again.
    """
    try:
        raw = base64.urlsafe_b64decode(challenge + "=" * (-len(challenge) % 4))
    except (binascii.Error, ValueError):
        return False
    body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
    if len(body) != _NONCE_BYTES + _EXPIRY_BYTES or not hmac.compare_digest(_mac(purpose, browser, body), mac):
        return False
    nonce, expires_at = body[:_NONCE_BYTES], int.from_bytes(body[_NONCE_BYTES:], "big")
    now = clock.now_ms()
    if not now < expires_at <= now + LIFETIME_MS:
        return False
    with _lock:
        while _used and next(iter(_used.values())) <= now:
            _used.popitem(last=False)
        if nonce in _used:
            return False
        if len(_used) >= _MAX_USED:
            raise RateLimitExceeded(gettext("Too many sign-ins at once."), retry_after=60)
        _used[nonce] = expires_at
    return True


@cache
def _process_key() -> bytes:
    return secrets.token_bytes(32)


def _mac(purpose: str, browser: str, body: bytes) -> bytes:
    label = hashlib.sha256(f"{purpose}\n{browser}".encode("utf-8", "replace")).digest()
    return hashlib.blake2b(label + body, key=_process_key(), digest_size=_MAC_BYTES).digest()
