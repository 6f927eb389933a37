"""Asks web servers whose address somebody else named, without being their hand inside our network (trust, T28, T29).

A name is resolved once, all its addresses must be public, and the connection goes to one of those that were checked.
There are no redirects, no proxies from the environment, little time and little room. Whatever went wrong is one and
the same error, so that nobody learns from it which ports of which machines are open.
"""

import asyncio
import ipaddress
import json
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from appliance.sending.delivery import causes, resolver
from appliance.settings import config

if TYPE_CHECKING:
    import httpx


log = logging.getLogger("campanero.http")

# More than ask at once, and of our own: a look-up that nobody waits for any more keeps its thread, and no name that
# never answers shall keep the others from being looked up
_lookups = ThreadPoolExecutor(128, thread_name_prefix="look-up")

MAX_BYTES = 2_097_152
SECONDS = 5.0
_IDLE_SECONDS = 2.0
# What may come beside a body
_HEADERS_BYTES = 131_072
_PORTS = (80, 443)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL = tuple(
    ipaddress.ip_network(text)
    for text in ("64:ff9b:1::/48", "100.64.0.0/10", "192.88.99.0/24", "fec0::/10", "::/96", "2001::/32", "3fff::/20")
)
# An interface that carries an IPv4 address inside (ISATAP, RFC 5214, 6.1)
_ISATAP = (0x00005EFE, 0x02005EFE)
# The last part of a name has a letter and is no number of any spelling; all else is an address
_NAME = re.compile(r"(?:^|\.)(?!0x[0-9a-f]*\.?$)[^.:]*[a-z][^.:]*\.?$", re.IGNORECASE)


class Unreached(Exception):
    """The server was not asked, or did not answer as it should; why stands in the log alone."""

    def __init__(self) -> None:
        super().__init__("the address cannot be reached")


class _Refused(Exception):
    """The address is none that may be asked."""


class Answer(NamedTuple):
    """What a web server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_public(address: str) -> bool:
    """Return whether an IP address is public, also behind the IPv6 forms that carry an IPv4 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(ip.version == network.version and ip in network for network in _LOCAL):
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = _inside(ip)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _inside(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to: mapped, 6to4, NAT64 or ISATAP."""
    if ip.ipv4_mapped or ip.sixtofour:
        return ip.ipv4_mapped or ip.sixtofour
    if ip in _NAT64 or (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


def fault(url: str) -> str | None:
    """Return what is wrong with an address that can never be asked, or None; where its name leads is seen later."""

    try:
        parts = urlsplit(url)
        # As it is asked for in DNS, so that no other script hides a number
        host = parts.hostname or ""
        host = host if ":" in host else host.encode("idna").decode()
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return "it cannot be read"
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or not host:
        return "it is no plain address of the web"
    if host in config.current().network.allow_private_hosts:
        return None
    if port not in _PORTS:
        return f"port {port} is not of the web"
    return None if _NAME.search(host) or is_public(host) else "it is not public"


def load() -> None:
    """Load what asking needs, which takes a moment; for whoever asks on a loop that others use."""
    _trusted()


async def get(url: str, *, schemes: tuple[str, ...] = ("https",), most: int = MAX_BYTES) -> Answer:
    """GET what somebody named; raises Unreached."""
    return await ask("GET", url, schemes=schemes, most=most)


async def ask(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None,
    schemes: tuple[str, ...] = ("http", "https"), most: int = MAX_BYTES, seconds: float = SECONDS, cut: bool = False,
    kept: "Kept | None" = None,
) -> Answer:  # fmt: skip
    """Ask a web server once; raises Unreached.

    `most` bounds the answer's body: what is longer is an error, or is `cut`. `seconds` bounds the whole of it. Through
    `kept` connections are used again; where a name leads is asked and checked each time all the same.
    """
    import httpx

    try:
        async with asyncio.timeout(seconds):
            return await _ask(method, httpx.URL(url), dict(headers or {}), content, schemes, most, cut, kept)
    except (_Refused, httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError, UnicodeError, ValueError) as error:
        log.info("%.200s was not reached: %s", _place(url), str(error) or type(error).__name__)
        raise Unreached from None


def _place(url: str) -> str:
    """Return an address for the log without what may be secret of it: who it is for, path and query."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest)[0].rpartition('@')[2]}"


async def _ask(
    method: str, url: "httpx.URL", headers: dict[str, str], content: bytes | None, schemes: tuple[str, ...],
    most: int, cut: bool, kept: "Kept | None",
) -> Answer:  # fmt: skip
    import httpx

    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    if url.scheme not in schemes or url.userinfo or not url.host:
        raise _Refused("not an address that is asked")
    allowed = url.host in config.current().network.allow_private_hosts
    if port not in _PORTS and not allowed:
        raise _Refused(f"port {port} is not of the web")
    stand_in = _rehearsal().get("hosts", {}).get(url.host)
    found = [("127.0.0.1", stand_in)] if stand_in else [(ip, port) for ip in await _addresses(url.host, port, allowed)]
    headers = {"Host": url.netloc.decode(), "Accept-Encoding": "identity", "User-Agent": "Campanero", **headers}
    async with _client(url.host, kept, most) as client:
        for ip, number in found:
            there = url.copy_with(host=ip, port=number)
            extensions = {"sni_hostname": url.host}
            try:
                async with client.stream(
                    method, there, headers=headers, content=content, extensions=extensions
                ) as answer:
                    return Answer(answer.status_code, answer.headers, await _body(answer, most, cut))
            except httpx.ConnectError as error:
                log.info("connection to %s (%s) failed: %s", url.host, ip, causes.of(error).words)
    raise _Refused("none of its addresses could be reached")


class Kept:
    """Connections that stay open from one question to the next, for each name its own, in one loop; to be closed."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx.AsyncClient] = {}

    def client(self, host: str, most: int) -> "httpx.AsyncClient":
        """Return what asks this name."""
        if host not in self._clients:
            self._clients[host] = _fresh(most)
        return self._clients[host]

    async def close(self) -> None:
        """Close them all; what is asked afterwards opens new ones."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()


@asynccontextmanager
async def _client(host: str, kept: Kept | None, most: int) -> "AsyncIterator[httpx.AsyncClient]":
    if kept is not None:
        yield kept.client(host, most)
        return
    async with _fresh(most) as client:
        yield client


def _fresh(most: int) -> "httpx.AsyncClient":

    from appliance.sending.delivery import bounded

    # Servers close what is idle after five seconds or more: we do it earlier, so that nothing is posted into the void
    client = bounded.client(_trusted(), _IDLE_SECONDS, most + _HEADERS_BYTES)
    # Each question is one of its own: no server makes us carry what it said to the next
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
    return client


async def _addresses(host: str, port: int, allowed: bool) -> list[str]:
    """Return the addresses of a name; one that is not public refuses them all, unless the operator named the host."""
    addresses = await asyncio.get_running_loop().run_in_executor(_lookups, _resolved, host, port, allowed)
    if not addresses or not (allowed or all(map(is_public, addresses))):
        raise _Refused("an address of it is not public")
    return addresses


def _resolved(host: str, port: int, allowed: bool) -> list[str]:
    """Resolve a name by the servers of the settings, if there are any, else as this machine does.

    What this machine alone knows (`localhost`, /etc/hosts) counts where the operator named the host.
    """
    if resolver.configured() and _NAME.search(host):
        end = time.monotonic() + SECONDS
        answers = [resolver.lookup(host, kind, end - time.monotonic()) for kind in ("A", "AAAA")]
        records = [record for answer in answers for record in answer.records]
        if records or not allowed:
            return records
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _body(answer: "httpx.Response", most: int, cut: bool) -> bytes:
    body = b""
    # As it came: what is small when packed may be huge when it is not
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > most and cut:
            return body[:most]
        if len(body) > most:
            raise _Refused(f"more than {most} bytes")
    return body


def _rehearsal() -> dict[str, Any]:
    """Return who plays which server in a rehearsal: {"ca": file, "hosts": {name: port on this machine}}.

    The configuration refuses it unless all our own links lead to this machine.
    """
    path = os.environ.get("CAMPANERO_TEST_HOSTS")
    return json.loads(Path(path).read_text()) if path else {}


@cache
def _trusted() -> ssl.SSLContext:
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    if _rehearsal():
        context.load_verify_locations(_rehearsal()["ca"])
    return context
