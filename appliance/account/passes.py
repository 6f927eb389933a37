"""Short-lived passes for one person and one purpose: a MAC over who, until when, and their sign-in as it is now.

Nothing of them is stored. Each ends by itself, and as soon as password or second factor of the person changes: a
link to choose a new password is good for one change, whoever finds it afterwards.
"""

import base64
import hashlib
import hmac

from appliance import clock, tokens
from appliance.tables import User

_LONG = 80


def make(purpose: str, user: User, until_ms: int) -> str:
    """Make a pass of a purpose for somebody; whoever has it is taken for them there."""
    body = user.id.to_bytes(6, "big") + (until_ms // 1000).to_bytes(6, "big")
    return base64.urlsafe_b64encode(body + _mac(purpose, body, user)).decode().rstrip("=")


def holder(purpose: str, text: str) -> User | None:
    """Return whose pass it is, if it is one of ours for this purpose and of now; None for all else."""
    if len(text) > _LONG or not text.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    body, mac = raw[:12], raw[12:]
    if len(raw) != 44 or int.from_bytes(body[6:], "big") * 1000 <= clock.now_ms():
        return None
    user = User.get_or_none(User.id == int.from_bytes(body[:6], "big"), User.disabled_at.is_null())
    return user if user is not None and hmac.compare_digest(_mac(purpose, body, user), mac) else None


def _mac(purpose: str, body: bytes, user: User) -> bytes:
    made = hashlib.blake2b(body, key=tokens.derive(f"pass:{purpose}"), digest_size=32)
    made.update(hashlib.sha256(user.password_hash.encode()).digest())
    made.update(hashlib.sha256((user.otp_secret or "").encode()).digest())
    return made.digest()
