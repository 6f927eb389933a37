"""Look up DNS records with a time limit; a missing record and a failed look-up have different states."""

import ipaddress
import socket
import time
from typing import Any, Literal, NamedTuple

import dns.edns
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.resolver

from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.settings import config

LookupState = Literal["found", "none", "nxdomain", "failed"]
FailureCause = Literal["", "loop", "name", "servfail", "timeout", "unreachable"]

# Errors are stored in English, and translated where they are shown.
_NO_ANSWER = gettext_stored("no DNS server answered within %(seconds)s s")
_NO_SERVER = gettext_noop("this machine has no DNS server configured")
_UNREACHABLE = gettext_stored("the DNS server cannot be reached: %(error)s")
_UNREADABLE = gettext_stored("the DNS server's answer cannot be read: %(error)s")
_ERROR_CODE = gettext_stored("the DNS server answered %(code)s")
_LONG_NAME = gettext_stored("%(name)s is redirected to a name that is too long")
_LOOP = gettext_stored("the CNAME records form a loop: %(names)s")
_LOOP_OR_MANY = gettext_noop("the CNAME records form a loop, or there are too many of them")
_LONG_CHAIN = gettext_stored("more than %(limit)s CNAME records follow each other: %(names)s …")

TIMEOUT_SECONDS = 6.0  # for one look-up with all its queries, servers and retries over TCP


class DnsAnswer(NamedTuple):
    """The answer of DNS for one name and record type.

    The state `none` means that the name exists without records of that type, `nxdomain` that the name does not exist,
    and `failed` that there is no usable answer, for the reason in `cause` and `error`. In `records`, the strings of a
    TXT record are joined, MX records read `10 host` (`0 .` if the domain accepts no mail), and host names have no final
    dot. `ttl` is in seconds, and `canonical_name` is the last name of the chain of CNAMEs.
    """

    state: LookupState
    records: tuple[str, ...]
    error: str
    ttl: int
    cause: FailureCause = ""
    canonical_name: str = ""


class LookupFailed(Exception):
    """A DNS look-up failed; `cause` and `message` say why."""

    def __init__(self, cause: FailureCause, message: str) -> None:
        super().__init__(message)
        self.cause, self.message = cause, message


def get_configured_servers() -> tuple[tuple[str, int], ...]:
    """Return the servers of `network.dns_servers` as (IP address, port), or an empty tuple to use the system's.

    Raises LookupFailed if the host name of a server cannot be resolved, ValueError if an entry is not `host:port`.
    """
    addresses = []
    for server in config.current().network.dns_servers:
        host, port = parse_server(server)
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise LookupFailed(
                "unreachable", f"the DNS server {host} of network.dns_servers cannot be resolved: {error}"
            ) from None
        addresses.append((str(infos[0][4][0]), port))
    return tuple(addresses)


def parse_server(server: str) -> tuple[str, int]:
    """Parse `host`, `host:port`, `[IPv6]`, `[IPv6]:port` or a bare IPv6 address; return (host, port).

    The default port is 53. Raises ValueError if the host is empty or the port is not a number from 1 to 65535.
    """
    host, port = server, "53"
    if server.startswith("["):
        host, _, suffix = server[1:].partition("]")
        if suffix and not suffix.startswith(":"):
            raise ValueError(f"{server!r} is not host:port")
        port = suffix[1:] if suffix else port
    elif server.count(":") == 1:
        host, _, port = server.partition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{server!r} is not host:port")
    return host, int(port)


# Queries use dnspython; its answers and exceptions are converted into a DnsAnswer.

_MAX_TRIES = 3  # within the time limit, so that a lost datagram or one dead server does not fail the look-up
_MAX_CNAMES = 12  # in a chain; other resolvers stop between 8 and 16
_MAX_UDP_BYTES = 1232  # is not fragmented in practice (DNS flag day 2020)
_CAUSES: dict[str, FailureCause] = {"SERVFAIL": "servfail", "REFUSED": "servfail"}


class _Deadline:
    """The common time limit of all queries of one look-up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def get_remaining_seconds(self) -> float:
        """Return the remaining seconds, more than 0. Raises LookupFailed after the deadline."""
        seconds_left = self._end - time.monotonic()
        if seconds_left <= 0:
            raise self.build_timeout_error()
        return seconds_left

    def build_timeout_error(self) -> LookupFailed:
        return LookupFailed("timeout", _NO_ANSWER % {"seconds": f"{self.seconds:g}"})


def lookup(name: str, kind: str, timeout_seconds: float = TIMEOUT_SECONDS) -> DnsAnswer:
    """Look up the records of type `kind`, such as `MX`, of a name, following its CNAMEs.

    May block for `timeout_seconds`. A failure is an answer with the state `failed`, not an exception.
    """
    try:
        query_name = dns.name.from_text(name, idna_codec=dns.name.IDNA_2008_Practical)
    except (dns.exception.DNSException, UnicodeError, ValueError):
        return DnsAnswer("failed", (), f"{name} cannot be a name in DNS", 0, "name")
    try:
        return _resolve_chain(query_name, dns.rdatatype.from_text(kind), _Deadline(timeout_seconds))
    except LookupFailed as failed:
        return DnsAnswer("failed", (), failed.message, 0, failed.cause)
    except (dns.exception.DNSException, UnicodeError, ValueError) as error:
        # An unexpected error is not blamed on the name, because its mail would then be rejected permanently
        return DnsAnswer("failed", (), f"the DNS query failed: {error}", 0, "servfail")


def lookup_ptr(address: str) -> DnsAnswer:
    """Look up the host names of an IP address (PTR). Raises ValueError if it is not an IP address."""
    return lookup(ipaddress.ip_address(address).reverse_pointer, "PTR")


def _resolve_chain(name: dns.name.Name, kind: dns.rdatatype.RdataType, deadline: _Deadline) -> DnsAnswer:
    """Query a name and follow its CNAMEs to the last one, because a server may return only the first ones of a chain.

    Raises LookupFailed if no server answers, or if the CNAMEs form a loop or are more than `_MAX_CNAMES`.
    """
    chain = [name]
    while True:
        try:
            answer = _query(chain[-1], kind, deadline)
        except dns.resolver.NXDOMAIN as error:
            return _nxdomain_answer(chain, error)
        except dns.resolver.NoNameservers as no_servers:
            raise _diagnose(name, no_servers, deadline) from None
        except dns.resolver.LifetimeTimeout:
            raise deadline.build_timeout_error() from None
        except dns.resolver.YXDOMAIN:
            raise LookupFailed("loop", _LONG_NAME % {"name": _name_text(name)}) from None
        if answer.rrset is not None or answer.canonical_name == chain[-1]:
            return _to_answer(answer, kind)
        if kind == dns.rdatatype.CNAME:
            return _to_answer(answer, kind)
        chain.append(answer.canonical_name)
        if chain[-1] in chain[:-1] or len(chain) > _MAX_CNAMES:
            raise _loop_error(chain)


def _query(name: dns.name.Name, kind: dns.rdatatype.RdataType, deadline: _Deadline) -> dns.resolver.Answer:
    resolver = _resolver()
    resolver.timeout = deadline.seconds / _MAX_TRIES
    return resolver.resolve(
        name, kind, raise_on_no_answer=False, search=False, lifetime=deadline.get_remaining_seconds()
    )


def _nxdomain_answer(chain: list[dns.name.Name], error: dns.resolver.NXDOMAIN) -> DnsAnswer:
    end = error.canonical_name
    message = f"{_name_text(end)} does not exist"
    if end != chain[0]:
        message += f"; {_name_text(chain[0])} points there"
    return DnsAnswer("nxdomain", (), message, _negative_ttl(error), "", _name_text(end))


def _negative_ttl(error: dns.resolver.NXDOMAIN) -> int:
    responses: dict[Any, dns.message.QueryMessage] = error.kwargs["responses"]
    return max((int(response.resolve_chaining().minimum_ttl) for response in responses.values()), default=0) % 86400


def _to_answer(answer: dns.resolver.Answer, kind: dns.rdatatype.RdataType) -> DnsAnswer:
    canonical = _name_text(answer.canonical_name)
    ttl = int(answer.chaining_result.minimum_ttl)
    if answer.rrset is None:
        return DnsAnswer("none", (), f"{canonical} has no {dns.rdatatype.to_text(kind)} record", ttl, "", canonical)
    return DnsAnswer("found", tuple(_record_text(record) for record in answer.rrset), "", ttl, "", canonical)


def _record_text(record: Any) -> str:
    """Return the text of a record in the form that `DnsAnswer` describes."""
    match record.rdtype:
        case dns.rdatatype.TXT:
            return b"".join(record.strings).decode("utf-8", "backslashreplace")
        case dns.rdatatype.MX:
            return f"{record.preference} {_name_text(record.exchange)}"
        case dns.rdatatype.CNAME | dns.rdatatype.NS | dns.rdatatype.PTR:
            return _name_text(record.target)
    return str(record.to_text())


def _name_text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()


def _diagnose(name: dns.name.Name, error: dns.resolver.NoNameservers, deadline: _Deadline) -> LookupFailed:
    """Return the error to raise if no server answered a query.

    Resolvers also fail on CNAME loops, which are found here by querying each CNAME of the chain alone. The error of a
    loop may be raised here; the caller raises the returned error.
    """
    chain = [name]
    while len(chain) <= _MAX_CNAMES:
        try:
            answer = _query(chain[-1], dns.rdatatype.CNAME, deadline)
        except dns.exception.DNSException:
            break
        if answer.rrset is None:
            break
        chain.append(answer.rrset[0].target)
        if chain[-1] in chain[:-1]:
            raise _loop_error(chain)
    if len(chain) > _MAX_CNAMES:
        return _loop_error(chain)
    return _server_error(error)


def _loop_error(chain: list[dns.name.Name]) -> LookupFailed:
    links = " → ".join(_name_text(link) for link in chain[:4])
    if chain[-1] in chain[:-1]:
        return LookupFailed("loop", _LOOP % {"names": links})
    return LookupFailed("loop", _LONG_CHAIN % {"limit": _MAX_CNAMES, "names": links})


def _server_error(failure: dns.resolver.NoNameservers) -> LookupFailed:
    """Return the error of the last server that was queried."""
    errors = failure.kwargs["errors"]
    if not errors:
        return LookupFailed("unreachable", _NO_SERVER)
    *_, error, response = errors[-1]
    if isinstance(error, OSError):
        return LookupFailed("unreachable", _UNREACHABLE % {"error": error.strerror or error})
    if response is None:
        return LookupFailed("servfail", _UNREADABLE % {"error": error})
    if isinstance(error, dns.message.ChainTooLong):
        return LookupFailed("loop", _LOOP_OR_MANY)
    code = dns.rcode.to_text(response.rcode())
    return LookupFailed(_CAUSES.get(code, "servfail"), _ERROR_CODE % {"code": code})


def _resolver() -> dns.resolver.Resolver:
    servers = get_configured_servers()
    if servers:
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in servers]
    else:
        try:
            resolver = dns.resolver.Resolver()
        except (dns.resolver.NoResolverConfiguration, OSError):
            raise LookupFailed("unreachable", _NO_SERVER) from None
        except ValueError as error:
            # The resolver configuration of the system was edited by hand, or another program is just writing it
            raise LookupFailed(
                "unreachable", f"the DNS configuration of this machine cannot be read: {error}"
            ) from None
    resolver.use_edns(0, 0, _MAX_UDP_BYTES)
    return resolver
