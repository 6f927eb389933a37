"""Signed tokens, random secrets, sealed secrets, webhook signatures and TLS certificates.

A link token is a message id and a keyed BLAKE2b MAC over purpose and id, so that no row is needed for a link and a
token of one purpose never opens another door. The key lives in the data directory (`secret.key`, mode 0600).
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from appliance.core import clock, data_dir


class WrongKey(Exception):
    """The key file of the data directory is missing, unreadable, or not the one of this installation."""


class MissingKey(WrongKey):
    """There is no key file."""


KEY_FILE = "secret.key"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_KEY_BYTES = 32
_MAX_KEY_FILE_BYTES = 1024
_PUT_BACK = "put back the secret.key that belongs to this database (guide: Back up, restore, upgrade)"
_key = b""


def load_key(directory: Path) -> None:
    """Read the installation's key from its directory; raises WrongKey, or KeyMissing. It is never made here."""
    global _key
    _key = _read_key(directory / KEY_FILE)


def loaded_key() -> bytes:
    """Return the installation's key, for a child process of this one (`use_key`)."""
    return _key


def use_key(key: bytes) -> None:
    """Use the key of the parent process: the file may have been lost or replaced since the service read it."""
    global _key
    _key = key


def create_key(directory: Path) -> None:
    """Read the installation's key, made with mode 0600 if there is none: only where no data needs another one."""
    path = directory / KEY_FILE
    if not os.path.lexists(path):
        # Another process may create the key at the same time; the first file counts.
        with contextlib.suppress(FileExistsError), data_dir.create_file(path) as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
    load_key(directory)


def _read_key(path: Path) -> bytes:
    try:
        kind = data_dir.irregular_kind(path)
    except FileNotFoundError:
        raise MissingKey(f"{path} is missing: {_PUT_BACK}") from None
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


def key_fingerprint() -> str:
    """Return what tells one key from another and nothing else about it: 64 bits of a keyed hash of a fixed word."""
    return derive_key("backup").hex()[:16]


def check_key(expected: str, path: Path) -> None:
    """Raise WrongKey unless the loaded key has this fingerprint, which was stored with the database."""
    if key_fingerprint() != expected:
        raise WrongKey(f"{path} is the key of another installation: {_PUT_BACK}")


def derive_key(purpose: str) -> bytes:
    """Return a 32-byte key for one purpose, derived from the installation's key."""
    if not _key:
        raise RuntimeError("the installation's key is not loaded")
    return hashlib.blake2b(purpose.encode(), key=_key, digest_size=32).digest()


def sign_token(purpose: str, number: int, mac_bytes: int = 16) -> str:
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
    return hashlib.blake2b(key=derive_key("link:" + purpose), digest_size=size)


def read_token(purpose: str, token: str, mac_bytes: int = 16) -> int | None:
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
    return number if sign_token(purpose, number, mac_bytes) == token else None


def hash_address(kind: str, key: str) -> bytes:
    """Return the keyed hash under which an address is remembered after its contact is gone."""
    return make_address_hasher()(kind, key)


def make_address_hasher() -> Callable[[str, str], bytes]:
    """Return `address_hash` with its key at hand, for a million addresses."""
    begun = hashlib.blake2b(key=derive_key("address"), digest_size=20)

    def hashed(kind: str, key: str) -> bytes:
        made = begun.copy()
        made.update(f"{kind}:{key}".encode())
        return made.digest()

    return hashed


def hash_secret(secret: str) -> str:
    """Return the SHA-256 under which a random secret of full strength is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def random_base62(length: int) -> str:
    """Return that many random characters of 0-9, A-Z and a-z."""
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def sign_hex_token(purpose: str, number: int, mac_bytes: int = 8) -> str:
    """Make a token that survives lower-casing, for the local part of an address: id and MAC (64 bit) as hex."""
    body = number.to_bytes(6, "big")
    return (body + _mac(purpose, body, mac_bytes)).hex()


def read_hex_token(purpose: str, token: str, mac_bytes: int = 8) -> int | None:
    """Return the number inside a token of `sign_hex`, in whatever case it comes back, or None if it is not ours."""
    if len(token) != 2 * (6 + mac_bytes) or not token.isascii() or not token.isalnum():
        return None
    try:
        raw = bytes.fromhex(token)
    except ValueError:
        return None
    good = hmac.compare_digest(_mac(purpose, raw[:6], mac_bytes), raw[6:])
    return int.from_bytes(raw[:6], "big") if good else None


_NONCE_BYTES = 12


def seal(key: bytes, label: str, plain: bytes) -> bytes:
    """Encrypt a secret for the database; `label` names its owner, so that it cannot be decrypted as another's."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, label.encode())


def unseal(key: bytes, label: str, sealed: bytes) -> bytes | None:
    """Decrypt a secret; return None if it was sealed with another key or label."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode())
    except (InvalidTag, ValueError):
        return None


def sign_webhook(secret: str, name: str, sent: str, body: bytes) -> str:
    """Sign a request (standardwebhooks.com): `v1,` and the base64 HMAC-SHA256 of `id.time.body`."""
    return _made(_keys(secret)[0], name, sent, body)


def _made(key: bytes, name: str, sent: str, body: bytes) -> str:
    made = hmac.new(key, f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode()


def has_valid_signature(secret: str, name: str, sent: str, body: bytes, given: str) -> bool:
    """Return whether one of the space-separated signatures of a request is valid."""
    rights = [_made(key, name, sent, body).encode() for key in _keys(secret)]
    return any(hmac.compare_digest(one.encode(), right) for one in given.split(" ") for right in rights)


def _keys(secret: str) -> list[bytes]:
    """Return the keys of a secret: the base64 text after `whsec_`, and the whole secret as bytes.

    Some senders use the whole secret as the key, so both are accepted; signing uses the first.
    """
    kept = [secret.encode()]
    try:
        meant = base64.b64decode(secret.removeprefix("whsec_"), validate=True) if secret.startswith("whsec_") else b""
    except ValueError:
        return kept
    # An empty key would be known to everyone.
    return [meant, *kept] if meant else kept


log = logging.getLogger("campanero.certificates")
RELOAD_INTERVAL_SECONDS = 2.0
EXPIRES_SOON_DAYS = 14
# TLS 1.2 with AEAD and forward secrecy; TLS 1.3 offers nothing else.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class CertificateInfo(NamedTuple):
    """The validity, host names and DER bytes of a certificate; times in milliseconds."""

    not_before_ms: int
    not_after_ms: int
    host_names: tuple[str, ...]
    der: bytes

    @property
    def days_left(self) -> int:
        """Return the whole days until it expires; negative once it has expired."""
        return (self.not_after_ms - clock.now_ms()) // 86_400_000

    @property
    def fault(self) -> str:
        """Return why no client trusts it today, or an empty text."""
        if clock.now_ms() >= self.not_after_ms:
            return f"its time was over on {_day(self.not_after_ms)}"
        return f"its time begins only on {_day(self.not_before_ms)}" if clock.now_ms() < self.not_before_ms else ""

    def covers(self, host: str) -> bool:
        """Return whether the certificate is valid for a host."""
        above = host.partition(".")[2]
        return host in self.host_names or (bool(above) and f"*.{above}" in self.host_names)


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def read_certificate(setting: str, certificate: str) -> CertificateInfo:
    """Read a certificate. Raises OSError with a line that names the setting."""
    # The heavy import is not needed without a certificate.
    from cryptography import x509

    try:
        leaf = x509.load_pem_x509_certificates(_read_file(setting, certificate))[0]
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        said = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    except x509.ExtensionNotFound:
        said = ()
    except ValueError:
        raise OSError(f"{setting}: {certificate} is no certificate") from None
    begins, ends = (int(one.timestamp() * 1000) for one in (leaf.not_valid_before_utc, leaf.not_valid_after_utc))
    return CertificateInfo(begins, ends, tuple(name.lower() for name in said), _der(leaf))


def _der(leaf: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(leaf.public_bytes(Encoding.DER))


def _read_file(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"{setting}: {path} cannot be read: {error.strerror}") from None


def load_tls_context(setting: str, certificate: str, key: str) -> ssl.SSLContext:
    """Load a certificate, its chain and its key (in the same file if not given). Raises OSError with one line."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    locked: list[str] = []

    def ask() -> str:
        # Without this the library would ask at the terminal, and wait
        locked.append("its key needs a passphrase, which nobody could type: leave the key without one")
        return ""

    for path in filter(None, (certificate, key)):
        _read_file(setting, path)
    try:
        made.load_cert_chain(certificate, key or None, ask)
    except ssl.SSLError as error:
        told = {"KEY_VALUES_MISMATCH": "does not belong to its key"}.get(error.reason or "", "")
        why = locked[0] if locked else f"{told}: {error}" if told else f"is no certificate: {error}"
        raise OSError(f"{setting}: {certificate}{':' if locked else ''} {why}") from None
    return made


class ServedCertificate:
    """A certificate of a listener: `context` stays, `reload_if_changed` replaces the certificate that it serves.

    A `web` listener uses strong ciphers and HTTP/1.1 only and refuses a certificate out of its validity; mail servers
    accept any certificate, so a mail listener serves it anyway. A file that cannot be read yet, as half-written or with
    a key that does not match, leaves the previous certificate in place. Raises OSError at the start.
    """

    def __init__(self, setting: str, certificate: str, key: str, web: bool) -> None:
        self._setting, self._certificate, self._key, self._web = setting, certificate, key, web
        self._seen = self._state()
        self._refused = ""
        self._now = self.context = self._read()
        self.context.sni_callback = self._show

    def reload_if_changed(self) -> None:
        """Read the files again if they have changed."""
        state = self._state()
        if state == self._seen and not self._refused:
            return
        self._seen = state
        try:
            made, found = self._read(), read_certificate(self._setting, self._certificate)
        except OSError as error:
            if str(error) != self._refused:
                log.error("%s; the previous certificate is still served", error)
            self._refused = str(error)
            return
        self._now, self._refused = made, ""
        if found.fault:
            log.warning("%s: a new certificate is served, although %s", self._setting, found.fault)
        else:
            log.info("%s: a new certificate is served, valid for %s days", self._setting, found.days_left)

    def _read(self) -> ssl.SSLContext:
        made = load_tls_context(self._setting, self._certificate, self._key)
        if self._web:
            made.set_ciphers(_CIPHERS)
            made.set_alpn_protocols(["http/1.1"])
            if fault := read_certificate(self._setting, self._certificate).fault:
                raise OSError(f"{self._setting}: {self._certificate}: {fault}")
        return made

    def _show(self, connection: Any, name: Any, first: Any) -> None:
        # Called for each client, also without SNI.
        connection.context = self._now

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._certificate, self._key) if path)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class CertificateWatcher:
    """A thread that reloads changed certificates every few seconds, so that a slow disk delays nothing else."""

    def __init__(self, *shown: ServedCertificate | None) -> None:
        self._shown = [one for one in shown if one is not None]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def start(self) -> None:
        """Start the thread if there are certificates."""
        if self._shown:
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(RELOAD_INTERVAL_SECONDS):
            for one in self._shown:
                try:
                    one.reload_if_changed()
                except Exception:
                    # The thread must go on, or no certificate would be renewed.
                    log.exception("certificates: reload failed")
