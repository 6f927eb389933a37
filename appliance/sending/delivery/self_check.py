"""Whether the world would take mail from this machine: whether it can be reached, and what our own name says of us.

Servers hold the name we greet with against DNS, there and back (D18): the name leads to an address, and the address
has that name (PTR). Who fails that is taken for a machine that was broken into.
"""

import asyncio
from typing import Literal, NamedTuple

from appliance.core.errors import DeliveryError, Unreachable
from appliance.sending.delivery import resolver, routing, safe_http
from appliance.sending.delivery.providers import direct
from appliance.sending.delivery.providers.direct import Way
from appliance.settings import config

_PROBE_SECONDS = 20.0


class Finding(NamedTuple):
    """What a check found: how bad it is, in words, and the record to enter where one is missing."""

    level: Literal["ok", "warn", "fail"]
    words: str
    record: str = ""


def is_full_name(name: str) -> bool:
    """Return whether a name can be that of a machine on the internet: no address, and no name of a local network."""
    return "." in name and not name.startswith("[") and name.rpartition(".")[2].lower() not in ("local", "localhost")


def greeting() -> list[Finding]:
    """Check the name we greet with; waits for name servers."""
    name = direct.name()
    if not is_full_name(name):
        return [Finding("fail", f"{name} is no full name of a machine; set email.direct.helo to one that DNS knows")]
    found = resolver.lookup(name, "A")
    if found.state == "failed":
        return [Finding("warn", f"{name} cannot be looked up: {found.words}")]
    if found.state != "found":
        return [Finding("fail", f"{name} leads nowhere: {found.words}", f"{name}. A <address of this machine>")]
    return [_named(name, address) for address in found.records]


def _named(name: str, address: str) -> Finding:
    if not safe_http.is_public(address):
        return Finding("warn", f"{name} leads to {address}, an address that servers outside do not see")
    found = resolver.reverse(address)
    if found.state == "failed":
        return Finding("warn", f"the name of {address} (PTR) cannot be looked up: {found.words}")
    if name.lower() in (one.lower() for one in found.records):
        return Finding("ok", f"{name} is {address}, and {address} is {name}")
    there = f"is named {', '.join(found.records)}" if found.records else "has no name"
    words = f"{address} {there} in reverse DNS (PTR), not {name}; whoever gives you the address can change that"
    return Finding("fail", words, f"{'.'.join(reversed(address.split('.')))}.in-addr.arpa. PTR {name}.")


async def nothing_answers() -> str | None:
    """Return the words for it if no mail server at all can be reached from here; None if one can, or nobody knows.

    Well-known servers are asked: those are never all away.
    """
    names = config.current().email.direct.probes
    found = await asyncio.gather(*map(_answers, names))
    if not found or any(found) or all(one is None for one in found):
        return None
    return (
        f"no mail server answers on port {config.current().email.direct.port}, not even those of {', '.join(names)}: "
        "outgoing connections to this port seem to be blocked here. Ask whoever runs the network to open it, or send "
        "through a relay"
    )  # fmt: skip


async def _answers(domain: str) -> bool | None:
    """Return whether a server of a domain answers; None if there is none to ask."""
    route = await routing.routed(domain)
    if route.error is not None:
        return None
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            dialogue = await direct.connect(Way(domain, route.hosts, route.group))
    except (Unreachable, TimeoutError):
        return False
    except DeliveryError as error:
        return None if error.smtp is None else True
    await dialogue.close()
    return True
