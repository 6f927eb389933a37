"""Find out which SMTP ports of a relay can be reached from this machine, and which to use if the configured one cannot.

Many hosting companies block outgoing SMTP: DigitalOcean 25, 465 and 587, Hetzner 25 and 465. Most email services also
take mail on 2525 or 2587, which are rarely blocked.
"""

import asyncio
from collections.abc import Mapping

from appliance.core.i18n import gettext

PORTS = (25, 465, 587, 2525, 2587)
# With these ports, TLS begins with the connection (RFC 8314, section 3.3; 2465 is that of Amazon SES and Resend).
_TLS_PORTS = (465, 2465)
# The causes of a failed connection for which another port may help (see `connection_errors.Cause`).
SHUT_CAUSES = ("refused", "timed_out", "no_route")
_PROBE_SECONDS = 4.0


async def probe_ports(host: str, *more: int) -> dict[int, bool]:
    """Return for each of `PORTS` and of `more` whether a TCP connection to the host opens within `_PROBE_SECONDS`.

    All are tried at the same time, and nothing is sent.
    """
    ports = sorted({*PORTS, *more})
    return dict(zip(ports, await asyncio.gather(*(_is_open(host, port) for port in ports)), strict=True))


async def _is_open(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError, TimeoutError):  # a ValueError is about a host name that cannot be encoded
        return False
    writer.transport.abort()
    return True


def choose_port(states: Mapping[int, bool], configured: int) -> int | None:
    """Return the open port to use instead of the configured one, or None if no other port is open.

    Ports for submission come before 25, which is for mail between servers.
    """
    order = (587, 465, 2525, 2587, 25)
    return next((port for port in order if port != configured and states.get(port)), None)


def encryption_of(port: int) -> str:
    """Return the value of `email.relay.tls` that belongs to a port."""
    return "tls" if port in _TLS_PORTS else "starttls"


async def suggest_port(host: str, configured: int) -> str:
    """Return a translated sentence that says what to use instead of a port of a relay that cannot be reached."""
    port = choose_port(await probe_ports(host), configured)
    if port is None:
        return gettext("No other SMTP port of this server can be reached either: use an email service over HTTPS.")
    encryption = encryption_of(port).upper()
    return gettext(
        "Port %(port)s of this server can be reached: use it with %(encryption)s.", port=port, encryption=encryption
    )
