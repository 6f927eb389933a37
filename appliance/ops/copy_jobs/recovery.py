"""The recovery passphrase: a random text that opens copies on any machine, and that is not stored on this machine.

It protects a private key that is stored beside the copies (`copies/keys.py`). With the passphrase and access to the
store, anybody can restore. This machine cannot read its old copies, because it does not store the passphrase after
showing it.
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
# The time within which the user must confirm that the passphrase is stored.
_MAX_AGE_SECONDS = 3_600


class _Pending(msgspec.Struct):
    passphrase: str
    created_at: float


def generate() -> str:
    """Return a new recovery passphrase."""
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_CHARACTERS)) for _ in range(_GROUPS))
    return "-".join(groups)


def seal(passphrase: str, owner: str) -> str:
    """Return a new passphrase as an encrypted text for a hidden field; only `unseal` with the same `owner` reads it."""
    plain = msgspec.json.encode(_Pending(passphrase, time.time()))
    return crypto.seal(crypto.derive_key(_PURPOSE), owner, plain).hex()


def unseal(text: str, owner: str) -> str | None:
    """Return the passphrase of a hidden field; None if the text is invalid, of another owner, or older than an hour."""
    try:
        plain = crypto.unseal(crypto.derive_key(_PURPOSE), owner, bytes.fromhex(text))
    except ValueError:
        return None
    if plain is None:
        return None
    pending = msgspec.json.decode(plain, type=_Pending)
    return pending.passphrase if 0 <= time.time() - pending.created_at <= _MAX_AGE_SECONDS else None


def is_confirmed(passphrase: str, entered: str) -> bool:
    """Return whether a text is the last group of the passphrase, or ends in it after a hyphen; case does not matter."""
    text = "".join(entered.lower().split()).rpartition("-")[2]
    return hmac.compare_digest(text.encode(), passphrase.rpartition("-")[2].encode())


def use(directory: Path, passphrase: str) -> str:
    """Set the passphrase for all later copies, and return the public key to which they are encrypted.

    It takes a second of processor time, so call it on a thread.
    """
    return keys.set_passphrase(local.folder_of(directory), passphrase)


def is_set(directory: Path) -> bool:
    """Return whether a recovery passphrase opens the copies of this installation."""
    return keys.read_protected_key(directory / local.FOLDER) is not None
