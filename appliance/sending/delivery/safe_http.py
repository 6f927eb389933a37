"""Send HTTP requests to URLs that users chose, without letting them reach internal networks (docs/threats.md).

A host name is resolved once for each request, all its addresses must be public, and the connection goes to one of the
addresses that were checked. Redirects are not followed, proxies from the environment are not used, and time and size
are limited. Every failure raises the same error, so that it does not reveal which ports of which machines are open.
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

from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.sending.delivery import connection_errors, dns_lookup
from appliance.settings import config

if TYPE_CHECKING:
    import httpx


log = logging.getLogger("campanero.http")

# Look-ups have their own pool with more threads than there are concurrent requests. A look-up that timed out keeps its
# thread, and a name whose servers never answer must not block other look-ups
_lookup_pool = ThreadPoolExecutor(128, thread_name_prefix="look-up")

MAX_BYTES = 2_097_152
TIMEOUT_SECONDS = 5.0
_IDLE_SECONDS = 2.0
# Bytes allowed for the response headers, in addition to the body
_MAX_HEADER_BYTES = 131_072
_ALLOWED_PORTS = (80, 443)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "64:ff9b:1::/48", "100.64.0.0/10", "192.88.99.0/24", "fec0::/10", "::/96", "2001::/32", "3fff::/20",
        "192.0.0.0/24", "168.63.129.16/32",  # with the metadata services of Oracle Cloud (192.0.0.192) and Azure
    )
)  # fmt: skip
# Interface identifiers that contain an IPv4 address (ISATAP, RFC 5214, 6.1)
_ISATAP_PREFIXES = (0x00005EFE, 0x02005EFE)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]*", re.IGNORECASE)


class RequestFailed(Exception):
    """A request was not allowed or failed; only the log contains the reason."""

    def __init__(self) -> None:
        super().__init__("the address cannot be reached")


class _AddressRefused(Exception):
    """A URL, an address or a response that is not allowed; also a host that cannot be reached."""


class HttpResponse(NamedTuple):
    """The response of a web server; `headers` has case-insensitive names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_public(address: str) -> bool:
    """Return whether an IP address is public.

    An IPv6 address that contains an IPv4 address is judged by the IPv4 address. Text that is not an IP address is not
    public.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(ip.version == network.version and ip in network for network in _LOCAL_NETWORKS):
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = _embedded_ipv4(ip)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _embedded_ipv4(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a mapped, 6to4, NAT64 or ISATAP address contains, or None for other addresses."""
    if ip.ipv4_mapped or ip.sixtofour:
        return ip.ipv4_mapped or ip.sixtofour
    if ip in _NAT64 or (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP_PREFIXES:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


_PORT_REFUSED = gettext_stored("port %(port)s is not allowed")


def find_url_fault(url: str) -> str | None:
    """Return why a URL can never be requested, or None if it may be requested.

    The reason is an English clause for `gettext`, such as `it is not public`.
    The IP addresses of the host are checked later, by each request.
    """
    try:
        parts = urlsplit(url)
        # The ASCII form that DNS uses, so that digits of other scripts cannot hide an IP address
        host = parts.hostname or ""
        host = host if ":" in host else host.encode("idna").decode()
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return gettext_noop("it cannot be read")
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or not host:
        return gettext_noop("it is not a plain http or https URL")
    if host in config.current().network.allow_private_hosts:
        return None
    if port not in _ALLOWED_PORTS:
        return _PORT_REFUSED % {"port": port}
    return None if _is_hostname(host) or is_public(host) else gettext_noop("it is not public")


def _is_hostname(host: str) -> bool:
    """Return whether a host is a name: its last label has a letter and is not a hexadecimal number.

    Anything else is an IP address.
    """
    label = host.removesuffix(".").rpartition(".")[2]
    has_letter = any(character.isascii() and character.isalpha() for character in label)
    return has_letter and ":" not in label and not _HEXADECIMAL.fullmatch(label)


def preload() -> None:
    """Load httpx and the root certificates now, because loading them during a request would block the event loop."""
    _ssl_context()


async def get(url: str, *, schemes: tuple[str, ...] = ("https",), max_bytes: int = MAX_BYTES) -> HttpResponse:
    """Send a GET request and return the response, whatever its status.

    Raises RequestFailed if the request is not allowed or fails.
    """
    return await request("GET", url, schemes=schemes, max_bytes=max_bytes)


async def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    schemes: tuple[str, ...] = ("http", "https"),
    max_bytes: int = MAX_BYTES,
    timeout_seconds: float = TIMEOUT_SECONDS,
    truncate: bool = False,
    pool: "ConnectionPool | None" = None,
) -> HttpResponse:
    """Send a request and return the response, whatever its status.

    `max_bytes` limits the response body: a longer body is an error, or is cut off if `truncate` is set.
    `timeout_seconds` limits the whole request. Connections of `pool` are reused, but the host is resolved and checked
    for each request. Raises RequestFailed if the request is not allowed or fails.
    """
    import httpx

    try:
        async with asyncio.timeout(timeout_seconds):
            return await _request(
                method, httpx.URL(url), dict(headers or {}), content, schemes, max_bytes, truncate, pool
            )
    except (
        _AddressRefused,
        httpx.HTTPError,
        httpx.InvalidURL,
        OSError,
        TimeoutError,
        UnicodeError,
        ValueError,
    ) as error:
        log.info("http: request to %.200s failed: %s", _origin(url), str(error) or type(error).__name__)
        raise RequestFailed from None


def _origin(url: str) -> str:
    """Return the scheme, host and port of a URL for the log, without user name, password, path and query."""
    scheme, _, remainder = url.partition("://")
    return f"{scheme}://{re.split('[/?#]', remainder)[0].rpartition('@')[2]}"


async def _request(
    method: str, url: "httpx.URL", headers: dict[str, str], content: bytes | None, schemes: tuple[str, ...],
    max_bytes: int, cut: bool, pool: "ConnectionPool | None",
) -> HttpResponse:  # fmt: skip
    import httpx

    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    if url.scheme not in schemes or url.userinfo or not url.host:
        raise _AddressRefused("scheme or host is not allowed")
    allowed = url.host in config.current().network.allow_private_hosts
    if port not in _ALLOWED_PORTS and not allowed:
        raise _AddressRefused(f"port {port} is not allowed")
    stand_in = _test_hosts().get("hosts", {}).get(url.host)
    endpoints = (
        [("127.0.0.1", stand_in)]
        if stand_in
        else [(ip, port) for ip in await _resolve_checked(url.host, port, allowed)]
    )
    headers = {"Host": url.netloc.decode(), "Accept-Encoding": "identity", "User-Agent": "Campanero", **headers}
    async with _client_for(url.host, pool, max_bytes) as client:
        for ip, endpoint_port in endpoints:
            target = url.copy_with(host=ip, port=endpoint_port)
            extensions = {"sni_hostname": url.host}
            try:
                async with client.stream(
                    method, target, headers=headers, content=content, extensions=extensions
                ) as response:
                    return HttpResponse(
                        response.status_code, response.headers, await _read_body(response, max_bytes, cut)
                    )
            except httpx.ConnectError as error:
                log.info(
                    "http: connection failed host=%s address=%s: %s",
                    url.host,
                    ip,
                    connection_errors.explain_failure(error).message,
                )
    raise _AddressRefused("none of its addresses can be reached")


class ConnectionPool:
    """Connections that stay open between requests, with a separate client for each host.

    A pool belongs to one event loop; call `close` when done with it.
    """

    def __init__(self) -> None:
        self._clients: dict[str, httpx.AsyncClient] = {}

    def get_client(self, host: str, max_bytes: int) -> "httpx.AsyncClient":
        """Return the client for a host; `max_bytes` applies only if this call creates the client."""
        if host not in self._clients:
            self._clients[host] = _new_client(max_bytes)
        return self._clients[host]

    async def close(self) -> None:
        """Close all connections; the pool may still be used, with new connections."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()


@asynccontextmanager
async def _client_for(host: str, pool: ConnectionPool | None, max_bytes: int) -> "AsyncIterator[httpx.AsyncClient]":
    if pool is not None:
        yield pool.get_client(host, max_bytes)
        return
    async with _new_client(max_bytes) as client:
        yield client


def _new_client(max_bytes: int) -> "httpx.AsyncClient":
    from appliance.sending.delivery import limited_http

    # Servers close idle connections after five seconds or more. Closing them earlier here avoids writing a request to a
    # connection that the server has just closed
    client = limited_http.build_limited_client(_ssl_context(), _IDLE_SECONDS, max_bytes + _MAX_HEADER_BYTES)
    # Requests are independent of each other: cookies of a response are not sent with the next request
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
    return client


async def _resolve_checked(host: str, port: int, allowed: bool) -> list[str]:
    """Return the IP addresses of a host; `allowed` is whether they may be private.

    Raises _AddressRefused if there are none, or if one is not public and that is not allowed.
    """
    addresses = await asyncio.get_running_loop().run_in_executor(_lookup_pool, _resolve, host, port, allowed)
    if not addresses or not (allowed or all(map(is_public, addresses))):
        raise _AddressRefused("one of its addresses is not public")
    return addresses


def _resolve(host: str, port: int, allowed: bool) -> list[str]:
    """Return the IP addresses of a host by the servers of `network.dns_servers`, or by the system if there are none.

    A name that these servers do not know, such as `localhost`, is resolved by the system if the host is allowed to have
    private addresses. Raises OSError if the system cannot resolve the name.
    """
    if dns_lookup.get_configured_servers() and _is_hostname(host):
        end = time.monotonic() + TIMEOUT_SECONDS
        answers = [dns_lookup.lookup(host, kind, end - time.monotonic()) for kind in ("A", "AAAA")]
        records = [record for answer in answers for record in answer.records]
        if records or not allowed:
            return records
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def _read_body(response: "httpx.Response", max_bytes: int, cut: bool) -> bytes:
    body = b""
    # The body is not decompressed, because a small compressed body may be huge when it is decompressed
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > max_bytes and cut:
            return body[:max_bytes]
        if len(body) > max_bytes:
            raise _AddressRefused(f"more than {max_bytes} bytes")
    return body


def _test_hosts() -> dict[str, Any]:
    """Return the hosts that tests redirect to this machine, as {"ca": file, "hosts": {name: port}}, or {}.

    They are in the JSON file that the environment variable CAMPANERO_TEST_HOSTS names. The configuration refuses this
    variable unless `base_url` leads to this machine.
    """
    path = os.environ.get("CAMPANERO_TEST_HOSTS")
    return json.loads(Path(path).read_text()) if path else {}


@cache
def _ssl_context() -> ssl.SSLContext:
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    if _test_hosts():
        context.load_verify_locations(_test_hosts()["ca"])
    return context
