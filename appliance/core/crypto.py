"""Signed tokens, random secrets, encrypted secrets, webhook signatures and TLS certificates.

A link token is a message id and a BLAKE2b MAC of that id, keyed by purpose: a link needs no row in the database, and a
token of one purpose is not valid for another. The installation's key is `secret.key` (mode 0600) in the data directory.
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
import tempfile
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from appliance.core import clock, data_dir, logs


class WrongKey(Exception):
    """The key file of the data directory is missing, unreadable, or not the key of this installation."""


class MissingKey(WrongKey):
    """The data directory has no key file."""


KEY_FILE = "secret.key"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_KEY_BYTES = 32
_MAX_KEY_FILE_BYTES = 1024
_KEY_ADVICE = "put back the secret.key that belongs to this database (guide: Back up, restore, upgrade)"
_UNREADABLE_KEY = "{path} cannot be read ({reason}): it must belong to the user of the service, with mode 0600"
_key = b""


def load_key(directory: Path) -> None:
    """Read the installation's key from its data directory. Raises MissingKey or WrongKey; never creates a key."""
    global _key
    _key = _read_key(directory / KEY_FILE)


def loaded_key() -> bytes:
    """Return the installation's key, or empty bytes before it is loaded. A child process passes it to `use_key`."""
    return _key


def use_key(key: bytes) -> None:
    """Use the key of the parent process instead of the file, which may have been replaced since the service started."""
    global _key
    _key = key


def create_key(directory: Path) -> None:
    """Create the installation's key with mode 0600 if there is none, and load the key.

    Call this only for a new installation: existing data needs the key that it was encrypted with. Raises WrongKey if
    an existing key file cannot be used.
    """
    path = directory / KEY_FILE
    if not os.path.lexists(path):
        # Another process may create the key at the same time; both use the file that was created first.
        with contextlib.suppress(FileExistsError), data_dir.create_file(path) as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
    load_key(directory)


def _read_key(path: Path) -> bytes:
    try:
        kind = data_dir.irregular_kind(path)
    except FileNotFoundError:
        raise MissingKey(f"{path} is missing: {_KEY_ADVICE}") from None
    except OSError as error:
        raise WrongKey(_UNREADABLE_KEY.format(path=path, reason=error.strerror)) from None
    if kind:
        raise WrongKey(f"{path} is {kind}, not a key file: {_KEY_ADVICE}")
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_KEY_FILE_BYTES).decode("ascii").strip()
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    except OSError as error:
        raise WrongKey(_UNREADABLE_KEY.format(path=path, reason=error.strerror)) from None
    if len(key) != _KEY_BYTES:
        raise WrongKey(f"{path} is not a key of Campanero: {_KEY_ADVICE}")
    return key


def key_fingerprint() -> str:
    """Return 64 bits of a keyed hash of a constant as hex, which identify the key without revealing it."""
    return derive_key("backup").hex()[:16]


def check_key(expected: str, path: Path) -> None:
    """Raise WrongKey unless the loaded key has the fingerprint `expected`; `path` is named in the error."""
    if key_fingerprint() != expected:
        raise WrongKey(f"{path} is the key of another installation: {_KEY_ADVICE}")


def derive_key(purpose: str) -> bytes:
    """Return a 32-byte key for one purpose, derived from the installation's key.

    Raises RuntimeError if that key is not loaded.
    """
    if not _key:
        raise RuntimeError("the installation's key is not loaded")
    return hashlib.blake2b(purpose.encode(), key=_key, digest_size=32).digest()


_NUMBER_CHARACTERS = 8  # of base64, for the six bytes of a number in a token


def sign_token(purpose: str, number: int, mac_bytes: int = 16) -> str:
    """Return a URL-safe token for a number below 2^48.

    `mac_bytes` is 16, or 8 for short tokens whose forgery could only distort a count. Pass the same size to
    `read_token`.
    """
    body = number.to_bytes(6, "big")
    # This is base64.urlsafe_b64encode without padding in a third of the time, which matters because each message has
    # half a dozen tokens.
    return binascii.b2a_base64(body + _mac(purpose, body, mac_bytes), newline=False).translate(_URL_SAFE, b"=").decode()


def _mac(purpose: str, body: bytes, size: int) -> bytes:
    mac = _keyed_mac(_key, purpose, size).copy()
    mac.update(body)
    return mac.digest()


@lru_cache(maxsize=32)
def _keyed_mac(key: bytes, purpose: str, size: int) -> "hashlib.blake2b":
    """Return a keyed MAC object that has hashed nothing yet; callers copy it, which is faster than a new object."""
    return hashlib.blake2b(key=derive_key("link:" + purpose), digest_size=size)


def read_token(purpose: str, token: str, mac_bytes: int = 16) -> int | None:
    """Return the number in a token of `sign_token`; None if the token is not valid for this purpose and MAC size."""
    try:
        number = int.from_bytes(base64.urlsafe_b64decode(token[:_NUMBER_CHARACTERS]), "big")
        # Several base64 texts decode to the same bytes; only the one that `sign_token` returns is valid.
        is_valid = hmac.compare_digest(sign_token(purpose, number, mac_bytes), token)
    except (ValueError, TypeError):  # a TypeError for a text that is not ASCII
        return None
    return number if is_valid else None


def hash_address(kind: str, key: str) -> bytes:
    """Return the keyed 20-byte hash under which an address remains known after its contact was erased.

    `kind` is `email` or `phone`, `key` the normal form of the address.
    """
    return make_address_hasher()(kind, key)


def make_address_hasher() -> Callable[[str, str], bytes]:
    """Return a function like `hash_address` that derives its key only once, for hashing millions of addresses."""
    keyed_hash = hashlib.blake2b(key=derive_key("address"), digest_size=20)

    def hash_one(kind: str, key: str) -> bytes:
        address_hash = keyed_hash.copy()
        address_hash.update(f"{kind}:{key}".encode())
        return address_hash.digest()

    return hash_one


def hash_secret(secret: str) -> str:
    """Return the SHA-256 of a random secret as hex, for storage; only passwords need a slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def random_base62(length: int) -> str:
    """Return `length` random characters of 0-9, A-Z and a-z."""
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def sign_hex_token(purpose: str, number: int, mac_bytes: int = 8) -> str:
    """Return a token for a number below 2^48 as hex: the number and its MAC.

    Unlike base64, hex survives a change of case, as may happen to the local part of an email address.
    """
    body = number.to_bytes(6, "big")
    return (body + _mac(purpose, body, mac_bytes)).hex()


def read_hex_token(purpose: str, token: str, mac_bytes: int = 8) -> int | None:
    """Return the number in a token of `sign_hex_token`, in upper or lower case; None if the token is not valid."""
    if len(token) != 2 * (6 + mac_bytes) or not token.isascii() or not token.isalnum():
        return None
    try:
        raw = bytes.fromhex(token)
    except ValueError:
        return None
    is_valid = hmac.compare_digest(_mac(purpose, raw[:6], mac_bytes), raw[6:])
    return int.from_bytes(raw[:6], "big") if is_valid else None


_NONCE_BYTES = 12


def seal(key: bytes, label: str, plain: bytes) -> bytes:
    """Encrypt a secret with AES-GCM for the database.

    `label` names the owner of the secret; `unseal` needs the same label, so a value copied to another row is useless.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, label.encode())


def unseal(key: bytes, label: str, sealed: bytes) -> bytes | None:
    """Decrypt a value that `seal` returned.

    Return None if the value was encrypted with another key or label, or is damaged.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode())
    except (InvalidTag, ValueError):
        return None


def sign_webhook(secret: str, name: str, sent: str, body: bytes) -> str:
    """Return the signature of a webhook request (standardwebhooks.com): `v1,` and a base64 HMAC-SHA256.

    The signed text is `{name}.{sent}.{body}`; `name` is the webhook id, `sent` the timestamp in seconds, as in the
    headers.
    """
    return _webhook_signature(_webhook_keys(secret)[0], name, sent, body)


def _webhook_signature(key: bytes, name: str, sent: str, body: bytes) -> str:
    mac = hmac.new(key, f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(mac).decode()


def has_valid_signature(secret: str, name: str, sent: str, body: bytes, signatures: str) -> bool:
    """Return whether one of the space-separated signatures of a webhook request is valid (see `sign_webhook`)."""
    valid_signatures = [_webhook_signature(key, name, sent, body).encode() for key in _webhook_keys(secret)]
    return any(
        hmac.compare_digest(signature.encode(), valid_signature)
        for signature in signatures.split(" ")
        for valid_signature in valid_signatures
    )


def _webhook_keys(secret: str) -> list[bytes]:
    """Return the HMAC keys of a secret: the decoded base64 after `whsec_`, if it is valid, and the secret as bytes.

    Some senders use the whole secret as the key, so either is accepted; signing uses the first.
    """
    whole_secret = [secret.encode()]
    try:
        decoded = base64.b64decode(secret.removeprefix("whsec_"), validate=True) if secret.startswith("whsec_") else b""
    except ValueError:
        return whole_secret
    # Anyone could sign with an empty key.
    return [decoded, *whole_secret] if decoded else whole_secret


log = logging.getLogger("campanero.certificates")
RELOAD_INTERVAL_SECONDS = 2.0
EXPIRES_SOON_DAYS = 14
# TLS 1.2 cipher suites with AEAD and forward secrecy; all suites of TLS 1.3 have both.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class CertificateInfo(NamedTuple):
    """The validity, lower-case host names and DER bytes of a certificate."""

    not_before_ms: int
    not_after_ms: int
    host_names: tuple[str, ...]
    der: bytes

    @property
    def days_left(self) -> int:
        """Return the days until the certificate expires, rounded down; negative once it has expired."""
        return (self.not_after_ms - clock.now_ms()) // clock.DAY_MS

    @property
    def validity_error(self) -> str:
        """Return why the certificate is not valid now ("it expired on 2026-01-31"), or an empty text."""
        if clock.now_ms() >= self.not_after_ms:
            return f"it expired on {_format_day(self.not_after_ms)}"
        return (
            f"it is not valid before {_format_day(self.not_before_ms)}" if clock.now_ms() < self.not_before_ms else ""
        )

    def covers(self, host: str) -> bool:
        """Return whether the certificate names a host (in lower case), or has a wildcard that covers the host."""
        parent_domain = host.partition(".")[2]
        return host in self.host_names or (bool(parent_domain) and f"*.{parent_domain}" in self.host_names)


def _format_day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def read_certificate(setting: str, certificate: str) -> CertificateInfo:
    """Read the first certificate of a PEM file.

    Raises OSError if the file cannot be read or has no certificate. The message is one line that names the setting.
    """
    return parse_certificate(setting, certificate, _read_file(setting, certificate))


def parse_certificate(setting: str, description: str, pem: bytes) -> CertificateInfo:
    """Parse the first certificate of a PEM text. Raises OSError with the setting and the description if it has none."""
    # Imported here, because the module is large and an installation may have no certificate.
    from cryptography import x509

    try:
        leaf = x509.load_pem_x509_certificates(pem)[0]
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names_of_leaf = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    except x509.ExtensionNotFound:
        names_of_leaf = ()
    except ValueError:
        raise OSError(f"{setting}: {description} is not a certificate") from None
    not_before_ms, not_after_ms = (
        int(moment.timestamp() * 1000) for moment in (leaf.not_valid_before_utc, leaf.not_valid_after_utc)
    )
    return CertificateInfo(not_before_ms, not_after_ms, tuple(name.lower() for name in names_of_leaf), _der(leaf))


def _der(leaf: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(leaf.public_bytes(Encoding.DER))


def _read_file(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"{setting}: {path} cannot be read: {error.strerror}") from None


def load_tls_context(setting: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return a server context with a certificate, its chain and its key.

    An empty `key` means that the key is in the file of the certificate. Raises OSError if a file cannot be used. The
    message is one line that names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    passphrase_errors: list[str] = []

    def refuse_passphrase() -> str:
        # Without a callback OpenSSL would prompt for the passphrase at the terminal and block.
        passphrase_errors.append("its key is encrypted with a passphrase; use a key without one")
        return ""

    for path in filter(None, (certificate, key)):
        _read_file(setting, path)
    try:
        context.load_cert_chain(certificate, key or None, refuse_passphrase)
    except ssl.SSLError as error:
        key_error = {"KEY_VALUES_MISMATCH": "does not belong to its key"}.get(error.reason or "", "")
        reason = (
            passphrase_errors[0]
            if passphrase_errors
            else f"{key_error}: {error}"
            if key_error
            else f"is not a certificate: {error}"
        )
        raise OSError(f"{setting}: {certificate}{':' if passphrase_errors else ''} {reason}") from None
    return context


def build_web_context(pem: str) -> ssl.SSLContext:
    """Return the context of a web listener with a certificate, its chain and its key. Raises OSError."""
    with tempfile.NamedTemporaryFile("w") as file:  # OpenSSL reads certificates only from files.
        file.write(pem)
        file.flush()
        context = load_tls_context("tls.certificate", file.name, "")
    _restrict_to_web(context)
    return context


def _restrict_to_web(context: ssl.SSLContext) -> None:
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])


class ServedCertificate:
    """The TLS certificate of a listener: `reload_if_changed` replaces the certificate that `context` serves.

    A web listener (`is_web`) allows only strong ciphers and HTTP/1.1, and rejects a certificate that has expired or is
    not valid yet. A mail listener serves such a certificate, because sending mail servers accept any. If a changed file
    cannot be used, because it is half-written or its key does not match, the previous certificate stays in use. The
    constructor raises OSError if the certificate cannot be used.
    """

    def __init__(self, setting: str, certificate: str, key: str, is_web: bool) -> None:
        self._setting, self._certificate, self._key, self._is_web = setting, certificate, key, is_web
        self._last_stamps = self._file_stamps()
        self._last_error = ""
        self._current = self.context = self._read()
        self._others: Mapping[str, ssl.SSLContext] = {}
        self.context.sni_callback = self._select_context

    def reload_if_changed(self) -> None:
        """Read the files again if they have changed or the last attempt failed, and log the result."""
        stamps = self._file_stamps()
        if stamps == self._last_stamps and not self._last_error:
            return
        self._last_stamps = stamps
        try:
            context, certificate = self._read(), read_certificate(self._setting, self._certificate)
        except OSError as error:
            if str(error) != self._last_error:
                log.error("certificates: reload failed, still serving the previous certificate: %s", error)
            self._last_error = str(error)
            return
        self._current, self._last_error = context, ""
        if certificate.validity_error:
            log.warning("certificates: reloaded setting=%s, although %s", self._setting, certificate.validity_error)
        else:
            log.info("certificates: reloaded setting=%s days_left=%s", self._setting, certificate.days_left)

    def _read(self) -> ssl.SSLContext:
        context = load_tls_context(self._setting, self._certificate, self._key)
        if self._is_web:
            _restrict_to_web(context)
            if validity_error := read_certificate(self._setting, self._certificate).validity_error:
                raise OSError(f"{self._setting}: {self._certificate}: {validity_error}")
        return context

    def serve_others(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        """Serve other certificates to clients that ask for these host names, in place of those set before."""
        self._others = contexts

    def _select_context(self, connection: Any, name: str | None, first: Any) -> None:
        # OpenSSL calls this for each client, even for those that send no SNI.
        connection.context = self._others.get((name or "").lower(), self._current)

    def _file_stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_file_stamp(path) for path in (self._certificate, self._key) if path)


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class CertificateWatcher:
    """A thread that checks certificates for changes every `RELOAD_INTERVAL_SECONDS` and reloads changed certificates.

    A slow disk delays nothing but this thread.
    """

    def __init__(self, *certificates: ServedCertificate | None) -> None:
        self._certificates = [certificate for certificate in certificates if certificate is not None]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def start(self) -> None:
        """Start the thread if there are certificates."""
        if self._certificates:
            self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stopping.set()

    def _run(self) -> None:
        errors = logs.RepeatedErrors(log, "certificates: reload failed")
        while not self._stopping.wait(RELOAD_INTERVAL_SECONDS):
            for certificate in self._certificates:
                try:
                    certificate.reload_if_changed()
                except Exception as error:
                    # If the thread ended, no certificate would be reloaded any more.
                    errors.log(error)
