"""Reads a domain's SPF as a receiving server does (RFC 7208), far enough to say who may send and what breaks it."""

import ipaddress
from collections.abc import Callable
from typing import NamedTuple

from appliance.sending.delivery.resolver import Answer

Ask = Callable[[str, str], Answer]

_MAX_LOOKUPS = 10  # RFC 7208, 4.6.4
_ASKING = ("include", "a", "mx", "ptr", "exists", "redirect")


class Spf(NamedTuple):
    """What an SPF record comes to, with all that it includes."""

    records: tuple[str, ...]
    terms: frozenset[str] = frozenset()
    lookups: int = 0
    problem: str | None = None
    unknown: bool = False  # DNS could not be asked for a part of it


class _Walk:
    """One evaluation: the terms that let somebody send, and how many look-ups a receiver would need for all."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.terms: set[str] = set()
        self.lookups = 0
        self.problem: str | None = None
        self.unknown = False

    def record(self, domain: str, text: str) -> None:
        """Go through the terms of one record, and into those it includes."""
        terms = [term.lower() for term in text.split()[1:]]
        has_all = any(_plain(term)[0] == "all" for term in terms)
        for term in terms:
            name, value = _plain(term)
            passes = term[0] not in "-~?"
            if passes:
                self.terms.add(f"{name}:{value or domain}" if name in ("a", "mx") else term.lstrip("+"))
            if name == "redirect" and has_all:
                continue
            if name in _ASKING:
                self.lookups += 1
                if self.lookups > _MAX_LOOKUPS:
                    self.problem = "needs more than 10 DNS look-ups; receivers give up there"
                    return
            if name in ("include", "redirect") and passes and value and "%" not in value and not self.problem:
                self.follow(name, value)

    def follow(self, how: str, domain: str) -> None:
        """Read the record that another one names."""
        answer = self.ask(domain, "TXT")
        if answer.state == "failed":
            self.unknown = self.unknown or answer.cause != "loop"
            self.problem = f"{how} {domain}: {answer.words}"
            return
        found = _records(answer)
        if len(found) != 1:
            count = "no SPF record" if not found else f"{len(found)} SPF records"
            self.problem = (
                f"{how} {domain}: there {'is' if not found else 'are'} {count}, which receivers take for an error"
            )
            return
        self.record(domain, found[0])


def read(domain: str, answer: Answer, ask: Ask) -> Spf:
    """Read the SPF of a domain from what its TXT look-up answered; the problem, if any, is in words."""
    found = _records(answer)
    if not found:
        return Spf((), problem="there is no SPF record")
    if len(found) > 1:
        words = f"there are {len(found)} SPF records, and receivers take more than one for an error: keep one"
        return Spf(tuple(found), problem=words)
    walk = _Walk(ask)
    walk.record(domain, found[0])
    if not walk.problem and "all" in walk.terms:
        walk.problem = "+all lets everybody send in this name"
    return Spf(tuple(found), frozenset(walk.terms), walk.lookups, walk.problem, walk.unknown)


def allows(spf: Spf, term: str, ask: Ask) -> bool:
    """Return whether a record allows what a term of ours would: by that term, or by the addresses it stands for."""
    if term in spf.terms:
        return True
    name, _, value = term.partition(":")
    networks = [one for one in map(_network, spf.terms) if one is not None]
    hosts = [value] if name in ("ip4", "ip6") else _hosts(value, ask) if name == "a" else []
    return bool(hosts) and all(any(_within(host, network) for network in networks) for host in hosts)


def _hosts(name: str, ask: Ask) -> list[str]:
    answers = (ask(name, "A"), ask(name, "AAAA"))
    return [record for answer in answers for record in answer.records]


def _within(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    address = ipaddress.ip_address(host)
    return address.version == network.version and address in network


def _network(term: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    name, _, value = term.partition(":")
    if name not in ("ip4", "ip6"):
        return None
    try:
        return ipaddress.ip_network(value, strict=False)
    except ValueError:
        return None


def _records(answer: Answer) -> list[str]:
    return [one for one in answer.records if one.lower() == "v=spf1" or one.lower().startswith("v=spf1 ")]


def _plain(term: str) -> tuple[str, str]:
    """Part a term into its name and its value, without qualifier and prefix length of `a` and `mx`."""
    bare = term.lstrip("+-~?")
    name, value = bare, ""
    for mark in (":", "="):
        if mark in bare:
            name, _, value = bare.partition(mark)
            break
    return name.partition("/")[0], value if name.startswith(("ip4", "ip6")) else value.partition("/")[0]
