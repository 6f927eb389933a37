"""Asks DNS: one look-up with a time limit, whose answer tells what is not there from what could not be asked."""

import ipaddress
import socket
from typing import Literal, NamedTuple

from appliance import config

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
    from appliance.delivery import questions

    return questions.ask(name, kind, patience)


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
