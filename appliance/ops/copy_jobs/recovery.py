"""The recovery passphrase: a random text that opens copies on any machine, and that this machine does not keep.

It protects a key that is kept beside the copies (`copies/keys.py`). Whoever has the passphrase and the store can
restore. This machine cannot read its old copies, because it forgets the passphrase as soon as it was shown.
"""

import hmac
import secrets
import time
from pathlib import Path

import msgspec

from appliance.core import crypto
from appliance.ops.copies import keys, local

# Crockford's alphabet, without letters that look alike: 25 of 32 characters are 125 bits.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_GROUPS, _GROUP_CHARACTERS = 5, 5
_PURPOSE = "recovery passphrase of copies"
# The time in which the user confirms that the passphrase is kept.
_MAX_AGE_SECONDS = 3_600


class _Pending(msgspec.Struct):
    passphrase: str
    created_at: float


def generate() -> str:
    """Return a new recovery passphrase."""
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_CHARACTERS)) for _ in range(_GROUPS))
    return "-".join(groups)


def seal(passphrase: str, owner: str) -> str:
    """Return a new passphrase as an encrypted text for a hidden field, which only `unseal` with this owner reads."""
    plain = msgspec.json.encode(_Pending(passphrase, time.time()))
    return crypto.seal(crypto.derive_key(_PURPOSE), owner, plain).hex()


def unseal(text: str, owner: str) -> str | None:
    """Return the passphrase of a hidden field; None if it is not ours, of another owner, or older than an hour."""
    try:
        plain = crypto.unseal(crypto.derive_key(_PURPOSE), owner, bytes.fromhex(text))
    except ValueError:
        return None
    if plain is None:
        return None
    pending = msgspec.json.decode(plain, type=_Pending)
    return pending.passphrase if 0 <= time.time() - pending.created_at <= _MAX_AGE_SECONDS else None


def is_confirmed(passphrase: str, entered: str) -> bool:
    """Return whether a text is the last group of the passphrase, in any case and with the rest before it or not."""
    text = "".join(entered.lower().split()).rpartition("-")[2]
    return hmac.compare_digest(text.encode(), passphrase.rpartition("-")[2].encode())


def use(directory: Path, passphrase: str) -> str:
    """Encrypt all further copies so that the passphrase opens them, and return the public key of its key.

    It takes a second of processor time, so call it on a thread.
    """
    return keys.set_passphrase(local.folder_of(directory), passphrase)


def is_set(directory: Path) -> bool:
    """Return whether a recovery passphrase opens the copies of this installation."""
    return keys.read_protected_key(directory / local.FOLDER) is not None
