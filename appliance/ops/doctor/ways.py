"""The ways out and in: transport, ports, the address of links."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from appliance.core.certificates import EXPIRES_SOON_DAYS
from appliance.core.errors import DeliveryError
from appliance.ops.doctor import ground
from appliance.ops.doctor.findings import Line
from appliance.sending.delivery import causes, providers, self_check
from appliance.sending.delivery.routing import DIRECT
from appliance.settings import config

_ANSWER_SECONDS = 15
_CONNECT_SECONDS = 5.0


def way_out(_: Path) -> Iterator[Line]:
    """Check that what is sent can leave."""
    name = config.current().email.transport
    if name == "capture":
        yield Line("ok", "way out", "capture: what is sent stays in the built-in inbox")
        return
    if name == DIRECT:
        words = asyncio.run(self_check.nothing_answers())
        yield Line("fail", "way out", words) if words else Line("ok", "way out", "direct: mail servers can be reached")
        for found in self_check.greeting():
            yield Line(found.level, "own name", found.words, found.record)
        return
    try:
        asyncio.run(asyncio.wait_for(_greet(name), _ANSWER_SECONDS))
    except DeliveryError as error:
        yield Line("fail", "way out", f"{name}: {error}{f'; {error.help}' if error.help else ''}")
    except TimeoutError:
        yield Line("fail", "way out", f"{name}: no answer within {_ANSWER_SECONDS} s")
    else:
        login = " and accepts the login" if config.current().email.relay.username else ""
        yield Line("ok", "way out", f"{name}: answers{login}")


async def _greet(name: str) -> None:
    await (await providers.connect(name)).close()


def doors(directory: Path) -> Iterator[Line]:
    """Check that pages and returned mail have an open door here."""
    here = config.current()
    yield from _door("listen", here.listen, directory, b"")
    if here.inbound.listen:
        yield from _door("inbound.listen", here.inbound.listen, directory, b"220")
    elif here.email.transport == DIRECT:
        words = "off: nobody hears of mail that comes back, and it keeps going to addresses that are gone"
        yield Line("warn", "inbound.listen", words, '[inbound]\nlisten = "0.0.0.0:25"')
    else:
        yield Line("ok", "inbound.listen", "off; bounces come by the hooks of the relay, or not at all")


def _door(name: str, address: str, directory: Path, greeting: bytes) -> Iterator[Line]:
    target, port = config.reached(address)
    try:
        with socket.create_connection((target, port), _CONNECT_SECONDS) as door:
            said = door.recv(100) if greeting else b""
    except OSError as error:
        if ground.runs(directory):
            yield Line("fail", name, f"nothing answers at {address}, though the service runs: {causes.of(error).words}")
        else:
            yield from _free(name, address, target, port)
        return
    if not said.startswith(greeting):
        yield Line("fail", name, f"what answers at {address} is not ours: {said[:60]!r}")
    elif not ground.runs(directory):
        yield Line("fail", name, f"something else answers at {address}; the service could not start")
    else:
        yield Line("ok", name, f"{address} answers")


def _free(name: str, address: str, target: str, port: int) -> Iterator[Line]:
    try:
        with socket.create_server((target, port), family=socket.AF_INET6 if ":" in target else socket.AF_INET):
            yield Line("ok", name, f"{address} is free for the service")
    except OSError as error:
        yield Line("fail", name, f"{address} cannot be taken: {error.strerror or error}")


def links(_: Path) -> Iterator[Line]:
    """Check the address that all links lead to."""
    here = config.current()
    base = config.base_url(here)
    parts = urlsplit(base)
    if parts.scheme == "https":
        yield from _certificate(base, parts.hostname or "", parts.port or 443)
        return
    if here.email.transport == "capture":
        yield Line("ok", "links", f"{base}; mail that leaves wants https")
        return
    words = f"{base} is not https: mailbox providers want that for one-click unsubscribing (RFC 8058)"
    yield Line("warn", "links", words, 'base_url = "https://mail.example.com"')


def _certificate(base: str, host: str, port: int) -> Iterator[Line]:
    """Look at the certificate as a reader's browser would."""
    try:
        with (
            socket.create_connection((host, port), _CONNECT_SECONDS) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as safe,
        ):
            found = safe.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        yield Line("fail", "links", f"{base}: no browser trusts its certificate: {error.verify_message}")
        return
    except OSError as error:
        yield Line("warn", "links", f"{base} cannot be reached from this machine: {causes.of(error).words}")
        return
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)
    days = (ends - datetime.now(UTC)).days
    yield Line(
        "warn" if days < EXPIRES_SOON_DAYS else "ok", "links", f"{base}, its certificate is good for {days} days"
    )
