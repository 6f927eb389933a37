"""The certificates of our own doors: whether they can be shown, how long they are good, and whether they are."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from appliance.core import certificates
from appliance.core.errors import ConfigError
from appliance.ops.doctor.findings import Line
from appliance.settings import config

_SECONDS = 5.0


def own(_: Path) -> Iterator[Line]:
    """Look at each certificate that is set; nothing where a proxy encrypts."""
    here = config.current()
    if here.tls.certificate:
        yield _judged("tls.certificate", here.tls.certificate, here.tls.key, here.listen)
    if here.inbound.tls_certificate:
        yield _judged("inbound.tls_certificate", here.inbound.tls_certificate, here.inbound.tls_key, "")


def _judged(setting: str, certificate: str, key: str, listen: str) -> Line:
    """Judge one; `listen` is where it is shown to browsers."""
    try:
        certificates.context(setting, certificate, key)
        found = certificates.facts(setting, certificate)
    except (OSError, ConfigError) as error:
        return Line("fail", setting, str(error).removeprefix(f"{setting}: "))
    if found.fault:
        return Line("fail", setting, f"{certificate}: {found.fault}")
    words, host = f"good for {found.days} days", config.host(config.current())
    if listen and not found.is_of(host):
        names = ", ".join(found.names) or "nobody"
        return Line("warn", setting, f"{words}, but it is of {names}: browsers that go to {host} refuse it")
    if listen and _is_another(listen, found.binary):
        return Line("warn", setting, f"{words}, but the service shows another: its log says why")
    if found.days < certificates.EXPIRES_SOON_DAYS:
        return Line("warn", setting, f"{words}; put a new one in its place, it is read without a restart")
    return Line("ok", setting, f"{words}; a new one is read without a restart")


def _is_another(listen: str, binary: bytes) -> bool:
    """Return whether another certificate is shown than the file holds; not where nobody answers."""
    look = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    look.check_hostname, look.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(config.reached(listen), _SECONDS) as plain,
            look.wrap_socket(plain) as safe,
        ):
            return safe.getpeercert(binary_form=True) != binary
    except OSError:
        return False
