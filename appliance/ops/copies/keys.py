"""The keys of copies: which keys read them, and which key has signed them (docs/decisions.md#31).

A copy is encrypted with age to the operator's recipients (public keys), whose identities (private keys) are not on this
machine. It is signed with an Ed25519 key that is derived from the installation's key. A recovery key is a file with an
identity and the public key of the signature, which the operator stores elsewhere.
"""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.core import crypto, data_dir

_SIGNER_PREFIX = "ed25519:"
SIGNER_BYTES, SIGNATURE_BYTES = 32, 64
_SIGNER = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=")
_IDENTITY = re.compile(r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{50,}")
MIN_PASSPHRASE_CHARACTERS = 12
_MAX_RECOVERY_BYTES = 65_536
# Files of the folder of copies: the recovery key that the passphrase protects, and its public key.
_RECOVERY_FILE, _RECIPIENT_FILE = "recovery.age", "recovery.pub"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


class UnusableKey(Exception):
    """A recipient, an identity or a passphrase cannot be used; the message is the reason."""


class ReadingKeys(NamedTuple):
    """The keys of a reader of copies: identities of age, and the public keys whose signatures are trusted.

    `by_object` has identities that read only one object each, by the key of the object.
    """

    identities: list[str]
    signers: list[bytes]
    by_object: dict[str, str] = {}


def parse_recipients(texts: list[str]) -> list[Any]:
    """Return the recipients of age public keys. Raises UnusableKey for the first invalid key."""
    import pyrage

    recipients = []
    for text in texts:
        kinds = {"age1pq1": "tagpq", "age1tag1": "tag"}
        if any(text.startswith(prefix) for prefix in kinds) or not text.startswith("age1"):
            raise UnusableKey(f"{text[:80]!r} is not the public key of an age identity: it must begin with age1")
        try:
            recipients.append(pyrage.x25519.Recipient.from_str(text))
        except pyrage.RecipientError as error:
            raise UnusableKey(f"{text[:80]!r} is not the public key of an age identity: {error}") from None
    return recipients


def parse_identities(texts: list[str]) -> list[Any]:
    """Return the identities of age private keys. Raises UnusableKey without quoting a key."""
    import pyrage

    try:
        return [pyrage.x25519.Identity.from_str(text) for text in texts]
    except pyrage.IdentityError as error:
        raise UnusableKey(f"this is not the private key of an age identity: {error}") from None


def create_identity() -> tuple[str, str]:
    """Return a new age identity and its public key."""
    import pyrage

    identity = pyrage.x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def public_key(identity: str) -> str:
    """Return the public key of an age identity. Raises UnusableKey."""
    return str(parse_identities([identity])[0].to_public())


def catalog_identity() -> str:
    """Return the age identity with which this installation reads the manifests of its copies, but not their data."""
    return _encode_bech32("age-secret-key-", crypto.derive_key("copies catalog")).upper()


def catalog_reader() -> ReadingKeys:
    """Return the keys with which this installation reads the manifests of its own copies."""
    return ReadingKeys([catalog_identity()], [own_signer()])


def _encode_bech32(prefix: str, content: bytes) -> str:
    """Return 32 bytes in Bech32 (BIP 173), the form of age keys."""
    number, bits = int.from_bytes(content, "big"), len(content) * 8
    padded = number << (-bits % 5)
    values = [padded >> shift & 31 for shift in range((bits + 4) // 5 * 5 - 5, -1, -5)]
    checked = [*(ord(letter) >> 5 for letter in prefix), 0, *(ord(letter) & 31 for letter in prefix), *values]
    checksum = 1
    for value in [*checked, 0, 0, 0, 0, 0, 0]:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            checksum ^= generator if top >> bit & 1 else 0
    checksum ^= 1
    return f"{prefix}1{''.join(_BECH32[v] for v in [*values, *(checksum >> 5 * (5 - i) & 31 for i in range(6))])}"


def _signing_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(crypto.derive_key("copies signature"))


def own_signer() -> bytes:
    """Return the public key of this installation's signatures."""
    return _signing_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def sign(content: bytes) -> bytes:
    """Return a signature of some content with the key of this installation."""
    return _signing_key().sign(content)


def has_valid_signature(signer: bytes, content: bytes, signature: bytes) -> bool:
    """Return whether a signature of some content was made with the private key of `signer`."""
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def format_signer(signer: bytes) -> str:
    """Return the public key of signatures as text: `ed25519:` and base64."""
    return _SIGNER_PREFIX + base64.b64encode(signer).decode()


def parse_signer(text: str) -> bytes:
    """Return the public key in a text that `format_signer` returned. Raises UnusableKey."""
    if not _SIGNER.fullmatch(text.strip()):
        raise UnusableKey("the signer must have the form ed25519:… with 44 characters of base64")
    return base64.b64decode(text.strip().removeprefix(_SIGNER_PREFIX))


def format_recovery_key(identity: str) -> str:
    """Return a recovery key of this installation: an identity file of age with the signer in a comment."""
    return (
        "# Recovery key of Campanero. Whoever has it can read all copies: keep it away from the machine.\n"
        f"# signer: {format_signer(own_signer())}\n"
        f"{identity}\n"
    )


def parse_recovery_key(text: str) -> ReadingKeys:
    """Return the keys in a recovery key, or in an identity file of age, which names no signer. Raises UnusableKey."""
    identities, signers = [], []
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        if line.startswith("#") and name.lstrip("# ").lower() == "signer":
            signers.append(parse_signer(value))
        elif line.strip() and not line.startswith("#"):
            if not _IDENTITY.fullmatch(line.strip()):
                raise UnusableKey("this is not a recovery key: its key line must begin with AGE-SECRET-KEY-1")
            identities.append(line.strip())
    if not identities:
        raise UnusableKey("this is not a recovery key: it has no line that begins with AGE-SECRET-KEY-1")
    parse_identities(identities)
    return ReadingKeys(identities, signers)


def set_passphrase(folder: Path, passphrase: str) -> str:
    """Create a recovery key that a passphrase protects, for all later copies, and return its public key.

    `folder` is the folder of copies. Only the encrypted recovery key and its public key are stored. Raises UnusableKey
    for a passphrase of less than 12 characters.
    """
    import pyrage

    if len(passphrase) < MIN_PASSPHRASE_CHARACTERS:
        raise UnusableKey(f"the passphrase must have at least {MIN_PASSPHRASE_CHARACTERS} characters")
    identity, recipient = create_identity()
    protected = pyrage.passphrase.encrypt(format_recovery_key(identity).encode(), passphrase)
    folder.mkdir(mode=0o700, exist_ok=True)
    # The public key is written last, so that copies are never encrypted to a key whose encrypted form was not stored.
    for name, content in ((_RECOVERY_FILE, protected), (_RECIPIENT_FILE, recipient.encode())):
        data_dir.replace_file(folder / name, content)
    return recipient


def open_protected_key(protected: bytes, passphrase: str) -> ReadingKeys | None:
    """Return the keys in a recovery key that a passphrase protects, or None if the passphrase is wrong."""
    import pyrage

    try:
        text = pyrage.passphrase.decrypt(protected[:_MAX_RECOVERY_BYTES], passphrase).decode()
    except (pyrage.DecryptError, UnicodeDecodeError):
        return None
    return parse_recovery_key(text)


def read_protected_key(folder: Path) -> tuple[str, bytes] | None:
    """Return (public key, encrypted form) of the recovery key that a passphrase protects, or None if there is none.

    Raises UnusableKey if the two files do not belong together.
    """
    try:
        recipient = (folder / _RECIPIENT_FILE).read_text().strip()
        return recipient, (folder / _RECOVERY_FILE).read_bytes()
    except FileNotFoundError:
        return None


def protected_key_name(protected: bytes) -> str:
    """Return the key of the object in which a store has an encrypted recovery key."""
    return f"recovery/{hashlib.sha256(protected).hexdigest()[:32]}"
