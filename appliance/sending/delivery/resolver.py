"""Asks DNS: one look-up with a time limit, whose answer tells what is not there from what could not be asked."""

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

from appliance.settings import config

State = Literal["found", "none", "nxdomain", "failed"]
Cause = Literal["", "loop", "name", "servfail", "timeout", "unreachable"]

TIMEOUT_SECONDS = 6.0  # seconds for one question, all servers and TCP together


class Answer(NamedTuple):
    """What DNS said of one name and kind.

    `none`: the name is there, nothing of that kind is; `nxdomain`: no such name; `failed`: nobody can say, and `cause`
    and `words` tell why. Strings of a TXT are joined, MX reads `10 host` (`0 .`: takes no mail), names have no final
    dot, and `canonical` is where a chain of CNAMEs ended.
    """

    state: State
    records: tuple[str, ...]
    words: str
    ttl: int
    cause: Cause = ""
    canonical: str = ""


class Failed(Exception):
    """A question without an answer: why, and in words."""

    def __init__(self, cause: Cause, words: str) -> None:
        super().__init__(words)
        self.cause, self.words = cause, words


def lookup(name: str, kind: str, patience: float = TIMEOUT_SECONDS) -> Answer:
    """Ask for the records of a name; blocks for at most `patience` seconds."""
    pass

    return ask(name, kind, patience)


def reverse(address: str) -> Answer:
    """Ask for the names of an IP address."""
    return lookup(ipaddress.ip_address(address).reverse_pointer, "PTR")


def configured() -> tuple[tuple[str, int], ...]:
    """Return the servers of `network.dns_servers` as (address, port); empty means those of the system."""
    found = []
    for server in config.current().network.dns_servers:
        host, port = split(server)
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise Failed("unreachable", f"the DNS server {host} of network.dns_servers is not known: {error}") from None
        found.append((str(infos[0][4][0]), port))
    return tuple(found)


def split(server: str) -> tuple[str, int]:
    """Read `host`, `host:port`, `[v6]:port` or a bare IPv6 address; ValueError for anything else."""
    host, port = server, "53"
    if server.startswith("["):
        host, _, rest = server[1:].partition("]")
        if rest and not rest.startswith(":"):
            raise ValueError(f"{server!r} is not host:port")
        port = rest[1:] if rest else port
    elif server.count(":") == 1:
        host, _, port = server.partition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{server!r} is not host:port")
    return host, int(port)


# Asks DNS by its library and puts what comes back in words; `resolver` is the way here.

_TRIES = 3  # within that patience, so that a lost datagram or a dead server is no failure
_MAX_CNAMES = 12  # CNAME after CNAME; resolvers of the field give up between 8 and 16
_UDP_SIZE = 1232  # what passes everywhere without fragments (DNS flag day 2020)
_CAUSES: dict[str, Cause] = {"SERVFAIL": "servfail", "REFUSED": "servfail"}


class _Patience:
    """How long one look-up may take, with all that it leads to."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; raises Failed once none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.over()
        return left

    def over(self) -> Failed:
        return Failed("timeout", f"no DNS server answered within {self.seconds:g} s")


def ask(name: str, kind: str, patience: float) -> Answer:
    """Ask for the records of a name; blocks for at most `patience` seconds."""
    try:
        asked = dns.name.from_text(name, idna_codec=dns.name.IDNA_2008_Practical)
    except (dns.exception.DNSException, UnicodeError, ValueError):
        return Answer("failed", (), f"{name} cannot be a name in DNS", 0, "name")
    try:
        return _follow(asked, dns.rdatatype.from_text(kind), _Patience(patience))
    except Failed as failed:
        return Answer("failed", (), failed.words, 0, failed.cause)
    except (dns.exception.DNSException, UnicodeError, ValueError) as error:
        # Whatever this is, it is no fault of the name, whose mail would be refused for good
        return Answer("failed", (), f"DNS cannot be asked: {error}", 0, "servfail")


def _follow(name: dns.name.Name, kind: dns.rdatatype.RdataType, patience: _Patience) -> Answer:
    """Ask until a chain of CNAMEs ends: a server may answer with its first links only."""
    seen = [name]
    while True:
        try:
            answer = _ask(seen[-1], kind, patience)
        except dns.resolver.NXDOMAIN as gone:
            return _nxdomain(seen, gone)
        except dns.resolver.NoNameservers as nobody:
            raise _why(name, nobody, patience) from None
        except dns.resolver.LifetimeTimeout:
            raise patience.over() from None
        except dns.resolver.YXDOMAIN:
            raise Failed("loop", f"{_text(name)} is redirected to a name that is too long") from None
        if answer.rrset is not None or answer.canonical_name == seen[-1]:
            return _read(answer, kind)
        if kind == dns.rdatatype.CNAME:
            return _read(answer, kind)
        seen.append(answer.canonical_name)
        if seen[-1] in seen[:-1] or len(seen) > _MAX_CNAMES:
            raise _looped(seen)


def _ask(name: dns.name.Name, kind: dns.rdatatype.RdataType, patience: _Patience) -> dns.resolver.Answer:
    resolver = _resolver()
    resolver.timeout = patience.seconds / _TRIES
    return resolver.resolve(name, kind, raise_on_no_answer=False, search=False, lifetime=patience.left())


def _nxdomain(seen: list[dns.name.Name], gone: dns.resolver.NXDOMAIN) -> Answer:
    end = gone.canonical_name
    words = f"{_text(end)} does not exist"
    if end != seen[0]:
        words += f"; {_text(seen[0])} points there"
    return Answer("nxdomain", (), words, _negative_ttl(gone), "", _text(end))


def _negative_ttl(gone: dns.resolver.NXDOMAIN) -> int:
    responses: dict[Any, dns.message.QueryMessage] = gone.kwargs["responses"]
    return max((int(one.resolve_chaining().minimum_ttl) for one in responses.values()), default=0) % 86400


def _read(answer: dns.resolver.Answer, kind: dns.rdatatype.RdataType) -> Answer:
    canonical = _text(answer.canonical_name)
    ttl = int(answer.chaining_result.minimum_ttl)
    if answer.rrset is None:
        return Answer("none", (), f"{canonical} has no {dns.rdatatype.to_text(kind)} record", ttl, "", canonical)
    return Answer("found", tuple(_record(one) for one in answer.rrset), "", ttl, "", canonical)


def _record(record: Any) -> str:
    """Write one record as people compare it."""
    match record.rdtype:
        case dns.rdatatype.TXT:
            return b"".join(record.strings).decode("utf-8", "backslashreplace")
        case dns.rdatatype.MX:
            return f"{record.preference} {_text(record.exchange)}"
        case dns.rdatatype.CNAME | dns.rdatatype.NS | dns.rdatatype.PTR:
            return _text(record.target)
    return str(record.to_text())


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()


def _why(name: dns.name.Name, nobody: dns.resolver.NoNameservers, patience: _Patience) -> Failed:
    """Return why no server gave an answer; a loop makes resolvers fail too, and only its links, one by one, show it."""
    seen = [name]
    while len(seen) <= _MAX_CNAMES:
        try:
            step = _ask(seen[-1], dns.rdatatype.CNAME, patience)
        except dns.exception.DNSException:
            break
        if step.rrset is None:
            break
        seen.append(step.rrset[0].target)
        if seen[-1] in seen[:-1]:
            raise _looped(seen)
    if len(seen) > _MAX_CNAMES:
        return _looped(seen)
    return _refusal(nobody)


def _looped(seen: list[dns.name.Name]) -> Failed:
    chain = " → ".join(_text(one) for one in seen[:4])
    if seen[-1] in seen[:-1]:
        return Failed("loop", f"the CNAME records go in a circle: {chain}")
    return Failed("loop", f"more than {_MAX_CNAMES} CNAME records follow each other: {chain} …")


def _refusal(nobody: dns.resolver.NoNameservers) -> Failed:
    """Put the last server's refusal in words."""
    errors = nobody.kwargs["errors"]
    if not errors:
        return Failed("unreachable", "this machine names no DNS server")
    *_, error, response = errors[-1]
    if isinstance(error, OSError):
        return Failed("unreachable", f"the DNS server cannot be reached: {error.strerror or error}")
    if response is None:
        return Failed("servfail", f"the DNS server's answer cannot be read: {error}")
    if isinstance(error, dns.message.ChainTooLong):
        return Failed("loop", "the CNAME records go in a circle, or there are too many of them")
    code = dns.rcode.to_text(response.rcode())
    return Failed(_CAUSES.get(code, "servfail"), f"the DNS server answered {code}")


def _resolver() -> dns.resolver.Resolver:
    servers = configured()
    if servers:
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in servers]
    else:
        try:
            resolver = dns.resolver.Resolver()
        except (dns.resolver.NoResolverConfiguration, OSError):
            raise Failed("unreachable", "this machine names no DNS server") from None
        except ValueError as error:
            # Half written, or by hand
            raise Failed("unreachable", f"what this machine says of its DNS servers cannot be read: {error}") from None
    resolver.use_edns(0, 0, _UDP_SIZE)
    return resolver
