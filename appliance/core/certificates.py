"""Certificates that our doors show: read together with their key, and read anew when the files change.

A renewed certificate is shown to whoever connects next; who is connected notices nothing. What cannot be read yet, as a
file that is half written, or a certificate whose key is still the old one, leaves what was shown before in its place.
"""

import logging
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from appliance.core import clock

log = logging.getLogger("campanero.certificates")
LOOK_SECONDS = 2.0
EXPIRES_SOON_DAYS = 14
# Of TLS 1.2 what encrypts and signs at once, with a key that is made anew each time; of 1.3 there is nothing else
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class Facts(NamedTuple):
    """What a certificate says of itself; times in milliseconds."""

    begins: int
    ends: int
    names: tuple[str, ...]
    binary: bytes

    @property
    def days(self) -> int:
        """How many whole days it is still good; negative when it is over."""
        return (self.ends - clock.now_ms()) // 86_400_000

    @property
    def fault(self) -> str:
        """Return why nobody trusts it today; nothing if somebody may."""
        if clock.now_ms() >= self.ends:
            return f"its time was over on {_day(self.ends)}"
        return f"its time begins only on {_day(self.begins)}" if clock.now_ms() < self.begins else ""

    def is_of(self, host: str) -> bool:
        """Return whether a browser that goes to this host takes it."""
        above = host.partition(".")[2]
        return host in self.names or (bool(above) and f"*.{above}" in self.names)


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def facts(setting: str, certificate: str) -> Facts:
    """Read what a certificate says. Raises OSError, with the setting's name in one line."""
    # Not needed by whoever has none
    from cryptography import x509

    try:
        leaf = x509.load_pem_x509_certificates(_bytes(setting, certificate))[0]
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        said = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    except x509.ExtensionNotFound:
        said = ()
    except ValueError:
        raise OSError(f"{setting}: {certificate} is no certificate") from None
    begins, ends = (int(one.timestamp() * 1000) for one in (leaf.not_valid_before_utc, leaf.not_valid_after_utc))
    return Facts(begins, ends, tuple(name.lower() for name in said), _der(leaf))


def _der(leaf: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(leaf.public_bytes(Encoding.DER))


def _bytes(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"{setting}: {path} cannot be read: {error.strerror}") from None


def context(setting: str, certificate: str, key: str) -> ssl.SSLContext:
    """Read a certificate, its chain and its key (in the same file if none is named). Raises OSError in one line."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    locked: list[str] = []

    def ask() -> str:
        # Without this the library would ask at the terminal, and wait
        locked.append("its key needs a passphrase, which nobody could type: leave the key without one")
        return ""

    for path in filter(None, (certificate, key)):
        _bytes(setting, path)
    try:
        made.load_cert_chain(certificate, key or None, ask)
    except ssl.SSLError as error:
        told = {"KEY_VALUES_MISMATCH": "does not belong to its key"}.get(error.reason or "", "")
        why = locked[0] if locked else f"{told}: {error}" if told else f"is no certificate: {error}"
        raise OSError(f"{setting}: {certificate}{':' if locked else ''} {why}") from None
    return made


class Shown:
    """A certificate as a door shows it: `context` is the door's for good, what it shows is changed by `look`.

    Of `web` doors: sound ciphers and HTTP/1.1 alone, and nothing that is out of its time; mail servers take what they
    get, so a door for mail shows it all the same. Raises OSError for what cannot be shown.
    """

    def __init__(self, setting: str, certificate: str, key: str, web: bool) -> None:
        self._setting, self._certificate, self._key, self._web = setting, certificate, key, web
        self._seen = self._state()
        self._refused = ""
        self._now = self.context = self._read()
        self.context.sni_callback = self._show

    def look(self) -> None:
        """Read the files again if they are not as they were."""
        state = self._state()
        if state == self._seen and not self._refused:
            return
        self._seen = state
        try:
            made, found = self._read(), facts(self._setting, self._certificate)
        except OSError as error:
            if str(error) != self._refused:
                log.error("%s; the certificate from before is shown on", error)
            self._refused = str(error)
            return
        self._now, self._refused = made, ""
        if found.fault:
            log.warning("%s: a new certificate is shown, though %s", self._setting, found.fault)
        else:
            log.info("%s: a new certificate is shown, good for %s days", self._setting, found.days)

    def _read(self) -> ssl.SSLContext:
        made = context(self._setting, self._certificate, self._key)
        if self._web:
            made.set_ciphers(_CIPHERS)
            made.set_alpn_protocols(["http/1.1"])
            if fault := facts(self._setting, self._certificate).fault:
                raise OSError(f"{self._setting}: {self._certificate}: {fault}")
        return made

    def _show(self, connection: Any, name: Any, first: Any) -> None:
        # Called for each client, also for one that names no host
        connection.context = self._now

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._certificate, self._key) if path)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Watch:
    """Looks at certificates every few seconds, on a thread of its own: a slow disk holds up nobody else."""

    def __init__(self, *shown: Shown | None) -> None:
        self._shown = [one for one in shown if one is not None]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def start(self) -> None:
        """Begin; without a certificate there is nothing to do."""
        if self._shown:
            self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            for one in self._shown:
                try:
                    one.look()
                except Exception:
                    # Without this thread no certificate would ever be renewed
                    log.exception("a certificate cannot be looked at")
