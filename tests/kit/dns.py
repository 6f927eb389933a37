"""A DNS server for tests on loopback, UDP and TCP on one port, with records and faults that a test sets.

    with DnsServer() as dns:
        dns.set("example.com", "TXT", "v=spf1 -all")
        Server(env=dns.env)   # a server process that uses this DNS server

Names that were never set do not exist (NXDOMAIN). The server follows CNAMEs as a resolver does; its response to a chain
or loop contains all its CNAME records.
"""

import os
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from appliance.settings import config
from appliance.settings.schema import Config, Network

Values = tuple["str | tuple[str, ...]", ...]
TTL = 300
_PLAIN_UDP = 512
_MAX_STRING_BYTES = 255
_MAX_BYTES = 65535


class DnsServer:
    """A stub DNS server; use it as a context manager. Changes apply from the next query on."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.queries: list[tuple[str, str, str]] = []  # (name, record type, "udp" or "tcp")
        self._answers: dict[tuple[str, str], list[Values]] = {}
        self._rcodes: dict[str, str] = {}
        self._delays: dict[str, float] = {}
        self._silent: set[str] = set()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.follows_cnames = True  # whether a response contains the whole CNAME chain, or only its first record
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._udp, self._tcp = _bind_udp_and_tcp(family, host, self)
        self.port: int = self._udp.server_address[1]

    @property
    def address(self) -> str:
        """Return `host:port` in the form of settings."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """Return the environment with which a server process uses this DNS server: `fresh_server(env=dns.env)`."""
        return {"CAMPANERO_NETWORK__DNS_SERVERS": self.address}

    # -- the zone -------------------------------------------------------------------------------------------------

    def set(self, name: str, kind: str, *values: str | tuple[str, ...]) -> None:
        """Set the records of a name and type, replacing others of that type.

        The text of a TXT longer than 255 octets is split; a tuple of strings is split as given. MX reads `10 host`.
        """
        self.set_sequence(name, kind, values)

    def set_sequence(self, name: str, kind: str, *answers: Values) -> None:
        """Set the records for successive queries of a name and type, a tuple each; the last one is repeated."""
        with self._lock:
            self._answers[_key(name), kind] = list(answers)

    def publish(self, domain: Mapping[str, Any], *purposes: str) -> None:
        """Set the DNS records of a domain returned by the API: all, or those of some purposes."""
        for record in domain["dns_records"]:
            # Without a public host name some records have no value yet
            if record["value"] and (not purposes or record["purpose"] in purposes):
                kind = record["record_type"]
                value = record["value"] if kind == "TXT" else f"{record['priority']} {record['value']}.".strip()
                self.set(record["name"], kind, value)

    def remove(self, name: str, kind: str | None = None) -> None:
        """Remove the records of one type, or all records and faults of a name."""
        with self._lock:
            for known in [key for key in self._answers if key[0] == _key(name) and kind in (None, key[1])]:
                del self._answers[known]
            if kind is None:
                self._clear_faults(name)

    def clear(self) -> None:
        """Remove all names, faults and recorded queries."""
        with self._lock:
            self._answers, self._rcodes, self._delays = {}, {}, {}
            self._silent, self.queries, self.follows_cnames = set(), [], True

    def clear_faults(self, name: str) -> None:
        """Remove the faults of a name."""
        with self._lock:
            self._clear_faults(name)

    def _clear_faults(self, name: str) -> None:
        self._rcodes.pop(_key(name), None)
        self._delays.pop(_key(name), None)
        self._silent.discard(_key(name))

    def fail(self, name: str, rcode: str = "SERVFAIL") -> None:
        """Respond to every query of a name with this response code."""
        with self._lock:
            self._rcodes[_key(name)] = rcode

    def delay(self, name: str, seconds: float) -> None:
        """Respond to queries of a name after a delay."""
        with self._lock:
            self._delays[_key(name)] = seconds

    def silence(self, name: str) -> None:
        """Never respond to queries of a name."""
        with self._lock:
            self._silent.add(_key(name))

    def query_count(self, name: str | None = None, kind: str | None = None) -> int:
        """Return the number of queries so far, optionally of a name and type."""
        with self._lock:
            return sum(
                n for (queried, queried_kind, _), n in Counter(self.queries).items()
                if (name is None or queried == _key(name)) and kind in (None, queried_kind)
            )  # fmt: skip

    # -- responses ------------------------------------------------------------------------------------------------

    def respond(self, wire: bytes, over: str) -> bytes | None:
        """Return the response to a query, or None to stay silent."""
        try:
            query = dns.message.from_wire(wire)
        except dns.exception.DNSException:
            return None
        question = query.question[0]
        name, kind = _key(question.name.to_text()), dns.rdatatype.to_text(question.rdtype)
        with self._lock:
            self.queries.append((name, kind, over))
            wait, silent = self._delays.get(name, 0), name in self._silent
        if silent or self._ended.wait(wait):
            return None
        response = dns.message.make_response(query, recursion_available=True, our_payload=1232)
        with self._lock:
            self._fill(response, name, kind)
        return _to_udp_wire(query, response) if over == "udp" else response.to_wire(max_size=_MAX_BYTES)

    def _fill(self, response: dns.message.Message, name: str, kind: str) -> None:
        visited: set[str] = set()
        while name not in visited:
            visited.add(name)
            if name in self._rcodes:
                response.set_rcode(dns.rcode.from_text(self._rcodes[name]))
                return
            if self._add_records(response, name, kind) or not (target := self._add_records(response, name, "CNAME")):
                break
            if not self.follows_cnames or kind == "CNAME":
                return
            name = _key(target)
        if not any(known == name or known.endswith(f".{name}") for known, _ in self._answers):
            response.set_rcode(dns.rcode.NXDOMAIN)

    def _add_records(self, response: dns.message.Message, name: str, kind: str) -> str:
        """Add the records of a name to the response; return the last of them, or an empty text."""
        answers = self._answers.get((name, kind))
        values = () if not answers else answers.pop(0) if len(answers) > 1 else answers[0]
        if not values:
            return ""
        owner = dns.name.from_text(name)
        response.answer.append(dns.rrset.from_rdata_list(owner, TTL, [_rdata(kind, value) for value in values]))
        return str(values[-1])

    def __enter__(self) -> Self:
        for server in (self._udp, self._tcp):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for server in (self._udp, self._tcp):
            server.shutdown()
            server.server_close()


@contextmanager
def use_dns_servers(*servers: str) -> Iterator[None]:
    """Make this process use these DNS servers until the context ends."""
    before = config._current
    config.set_current(Config(network=Network(dns_servers=list(servers))))
    yield
    config._current = before


def system_has_ipv6() -> bool:
    """Return whether this machine has the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return os.name == "posix"


def _key(name: str) -> str:
    return dns.name.from_text(name, idna_codec=dns.name.IDNA_2008_Practical).to_text().lower()


def _rdata(kind: str, value: str | tuple[str, ...]) -> dns.rdata.Rdata:
    """Build a record from a value that was set. Raises TypeError for several strings in a record other than TXT."""
    if kind == "TXT":
        strings = value if isinstance(value, tuple) else _split_text(value)
        value = " ".join('"' + string.replace("\\", "\\\\").replace('"', '\\"') + '"' for string in strings)
    elif isinstance(value, tuple):
        raise TypeError("only a TXT has several strings")
    return dns.rdata.from_text(
        dns.rdataclass.IN, dns.rdatatype.from_text(kind), value, origin=dns.name.root, relativize=False
    )


def _split_text(text: str) -> tuple[str, ...]:
    return tuple(text[at : at + _MAX_STRING_BYTES] for at in range(0, max(len(text), 1), _MAX_STRING_BYTES))


def _to_udp_wire(query: dns.message.Message, response: dns.message.Message) -> bytes:
    """Return a response for UDP, truncated and marked as such if it is too long."""
    limit = query.payload if query.edns >= 0 else _PLAIN_UDP
    try:
        return response.to_wire(max_size=limit)
    except dns.exception.TooBig:
        response.answer.clear()
        response.flags |= dns.flags.TC
        return response.to_wire()


class _Udp(socketserver.ThreadingUDPServer):
    daemon_threads = True


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _UdpHandler(socketserver.BaseRequestHandler):
    dns: DnsServer

    def handle(self) -> None:
        wire, sock = self.request
        answer = self.dns.respond(wire, "udp")
        if answer is not None:
            sock.sendto(answer, self.client_address)


class _TcpHandler(socketserver.StreamRequestHandler):
    dns: DnsServer

    def handle(self) -> None:
        while len(head := self.rfile.read(2)) == 2:
            answer = self.dns.respond(self.rfile.read(int.from_bytes(head)), "tcp")
            if answer is None:
                return
            self.wfile.write(len(answer).to_bytes(2) + answer)


_Kind = TypeVar("_Kind", _Udp, _Tcp)


def _bind(
    kind: type[_Kind],
    handler: type[_UdpHandler] | type[_TcpHandler],
    family: socket.AddressFamily,
    host: str,
    port: int,
    stub: DnsServer,
) -> _Kind:
    """Bind a server whose handlers have access to the stub."""
    server_class = type(kind.__name__, (kind,), {"address_family": family})
    return server_class((host, port), type(handler.__name__, (handler,), {"dns": stub}))


def _bind_udp_and_tcp(family: socket.AddressFamily, host: str, stub: DnsServer) -> tuple[_Udp, _Tcp]:
    """Bind both servers to one port, which must be free for UDP and TCP."""
    for _ in range(50):
        tcp = _bind(_Tcp, _TcpHandler, family, host, 0, stub)
        try:
            return _bind(_Udp, _UdpHandler, family, host, tcp.server_address[1], stub), tcp
        except OSError:
            tcp.server_close()
    raise AssertionError("no port is free for both UDP and TCP")
