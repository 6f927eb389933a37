"""Where a request comes from, and how much of that is kept."""

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Hops that are looked at; nobody has more proxies, and a stranger may send any number
_MAX_HOPS = 20


@lru_cache(maxsize=8)
def networks(trusted: tuple[str, ...]) -> tuple[Network, ...]:
    """Read addresses and networks (`10.0.0.0/8`); raises ValueError for what is neither."""
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in trusted)


def address(peer: str, forwarded: Iterable[str], trusted: Sequence[str]) -> str:
    """Return the client of a request: who is connected, or whom the proxies that we trust name in X-Forwarded-For.

    The header is read from its end, for only what a trusted proxy added is true; what is before may be anybody's.
    """
    if not trusted:
        return peer
    known = networks(tuple(trusted))
    hops = [hop for line in forwarded for hop in line.split(",")][-_MAX_HOPS:]
    here = peer
    while (found := _read(here)) is not None and any(found in one for one in known) and hops:
        before = _read(hops.pop())
        if before is None:
            break
        here = str(before)
    return here


def _read(text: str) -> Address | None:
    """Read an address with or without a port, in brackets or not; None for anything else."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def is_near(peer: str) -> bool:
    """Return whether an address is of this machine or its network, as that of a proxy mostly is."""
    found = _read(peer)
    return found is not None and found.is_private


def kept(ip: str | None, how: str) -> str | None:
    """Return what is kept of an address: `full`, its network (`truncated`: /24 and /48), or nothing (`none`)."""
    found = _read(ip) if ip and how != "none" else None
    if found is None:
        return None
    if how == "full":
        return str(found)
    size = 24 if found.version == 4 else 48
    return str(ipaddress.ip_network((found, size), strict=False).network_address)


def household(ip: str) -> str:
    """Return what counts as one client for a rate: an address, of IPv6 the /64 that one line has."""
    found = _read(ip)
    if found is None or found.version == 4:
        return ip
    return str(ipaddress.ip_network((found, 64), strict=False))
