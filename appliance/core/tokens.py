"""Signed tokens and random secrets.

A link token is a message id and a keyed BLAKE2b MAC over purpose and id, so that no row is needed for a link and a
token of one purpose never opens another door. The key lives in the data directory (`secret.key`, mode 0600).
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from appliance.core import data_dir


class WrongKey(Exception):
    """The key file of the data directory is missing, unreadable, or not the one of this installation."""


class KeyMissing(WrongKey):
    """There is no key file."""


FILE = "secret.key"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_KEY_BYTES = 32
_MAX_KEY_FILE_BYTES = 1024
_PUT_BACK = "put back the secret.key that belongs to this database (guide: Back up, restore, upgrade)"
_key = b""


def load_key(directory: Path) -> None:
    """Read the installation's key from its directory; raises WrongKey, or KeyMissing. It is never made here."""
    global _key
    _key = _read_key(directory / FILE)


def loaded_key() -> bytes:
    """Return the installation's key, for a child process of this one (`use_key`)."""
    return _key


def use_key(key: bytes) -> None:
    """Use the key of the parent process: the file may have been lost or replaced since the service read it."""
    global _key
    _key = key


def create_key(directory: Path) -> None:
    """Read the installation's key, made with mode 0600 if there is none: only where no data needs another one."""
    path = directory / FILE
    if not os.path.lexists(path):
        # Whoever else makes one at this moment may be first, and theirs counts
        with contextlib.suppress(FileExistsError), data_dir.new_file(path) as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
    load_key(directory)


def _read_key(path: Path) -> bytes:
    try:
        kind = data_dir.other_kind(path)
    except FileNotFoundError:
        raise KeyMissing(f"{path} is missing: {_PUT_BACK}") from None
    if kind:
        raise WrongKey(f"{path} is {kind}, not a key file: {_PUT_BACK}")
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_KEY_FILE_BYTES).decode("ascii").strip()
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise WrongKey(f"{path} is not a key of Campanero: {_PUT_BACK}")
    return key


def fingerprint() -> str:
    """Return what tells one key from another and nothing else about it: 64 bits of a keyed hash of a fixed word."""
    return derive("backup").hex()[:16]


def check_key(expected: str, path: Path) -> None:
    """Raise WrongKey unless the loaded key has this fingerprint, which was stored with the database."""
    if fingerprint() != expected:
        raise WrongKey(f"{path} is the key of another installation: {_PUT_BACK}")


def derive(purpose: str) -> bytes:
    """Return a 32-byte key for one purpose, derived from the installation's key."""
    if not _key:
        raise RuntimeError("the installation's key is not loaded")
    return hashlib.blake2b(purpose.encode(), key=_key, digest_size=32).digest()


def sign(purpose: str, number: int, mac_bytes: int = 16) -> str:
    """Make a URL-safe token for a number (below 2^48): 128-bit MAC by default, 64 bit where it only counts."""
    body = number.to_bytes(6, "big")
    # As base64.urlsafe_b64encode without its padding, at a third of the time: each message has half a dozen of them
    return binascii.b2a_base64(body + _mac(purpose, body, mac_bytes), newline=False).translate(_URL_SAFE, b"=").decode()


def _mac(purpose: str, body: bytes, size: int) -> bytes:
    made = _begun(_key, purpose, size).copy()
    made.update(body)
    return made.digest()


@lru_cache(maxsize=32)
def _begun(key: bytes, purpose: str, size: int) -> "hashlib.blake2b":
    """Return a MAC that is ready for its message; to begin one costs more than to copy it."""
    return hashlib.blake2b(key=derive("link:" + purpose), digest_size=size)


def read(purpose: str, token: str, mac_bytes: int = 16) -> int | None:
    """Return the number inside a token of this purpose, or None if it is not ours."""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (ValueError, UnicodeEncodeError):
        return None
    if len(raw) != 6 + mac_bytes:
        return None
    if not hmac.compare_digest(_mac(purpose, raw[:6], mac_bytes), raw[6:]):
        return None
    number = int.from_bytes(raw[:6], "big")
    # base64 has several spellings of the last bits; only the one we made is ours
    return number if sign(purpose, number, mac_bytes) == token else None


def address_hash(kind: str, key: str) -> bytes:
    """Return the keyed hash under which an address is remembered after its contact is gone."""
    return address_hasher()(kind, key)


def address_hasher() -> Callable[[str, str], bytes]:
    """Return `address_hash` with its key at hand, for a million addresses."""
    begun = hashlib.blake2b(key=derive("address"), digest_size=20)

    def hashed(kind: str, key: str) -> bytes:
        made = begun.copy()
        made.update(f"{kind}:{key}".encode())
        return made.digest()

    return hashed


def digest(secret: str) -> str:
    """Return the SHA-256 under which a random secret of full strength is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def random_base62(length: int) -> str:
    """Return that many random characters of 0-9, A-Z and a-z."""
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def sign_hex(purpose: str, number: int, mac_bytes: int = 8) -> str:
    """Make a token that survives lower-casing, for the local part of an address: id and MAC (64 bit) as hex."""
    body = number.to_bytes(6, "big")
    return (body + _mac(purpose, body, mac_bytes)).hex()


def read_hex(purpose: str, token: str, mac_bytes: int = 8) -> int | None:
    """Return the number inside a token of `sign_hex`, in whatever case it comes back, or None if it is not ours."""
    if len(token) != 2 * (6 + mac_bytes) or not token.isascii() or not token.isalnum():
        return None
    try:
        raw = bytes.fromhex(token)
    except ValueError:
        return None
    good = hmac.compare_digest(_mac(purpose, raw[:6], mac_bytes), raw[6:])
    return int.from_bytes(raw[:6], "big") if good else None
