"""Where the mail of a domain goes: its mail servers in their order, and whose they are (RFC 5321, 5.1; RFC 7505).

What name servers said is kept for a while, for all threads. Looking up waits for the network.
"""

import asyncio
import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from appliance.core import clock
from appliance.core.errors import DeliveryError, Permanent, Temporary
from appliance.sending.delivery import groups, resolver, safe_http
from appliance.sending.delivery.groups import domain_of
from appliance.settings import config

# Whose machines a mail server is one of: what is limited, refused or spared holds for all mail that an organisation
# takes, whatever the domains of the recipients are.

# By the end of a server's name; large providers have the names that `groups` gives to their domains
_ENDS = {
    "google": "google.com googlemail.com psmtp.com",
    "microsoft": "outlook.com hotmail.com office365.us outlook.cn",
    "yahoo": "yahoodns.net yahoo.com aol.com",
    "apple": "icloud.com apple.com",
    "gmx": "gmx.net gmx.com web.de mail.com",
    "ionos": "kundenserver.de ionos.com ionos.co.uk perfora.net ui-dns.com",
    "telekom": "t-online.de",
    "proton": "protonmail.ch proton.me",
    "mail.ru": "mail.ru",
    "yandex": "yandex.ru yandex.net yandex.com",
    "orange": "orange.fr",
    "sfr": "sfr.fr sfr.net",
    "libero": "libero.it",
    "seznam": "seznam.cz",
    "wp": "wp.pl",
    "onet": "onet.pl",
    "tencent": "qq.com exmail.qq.com",
    "netease": "163.com 126.com netease.com",
    "zoho": "zoho.com zoho.eu zoho.in zohomail.com",
    "fastmail": "messagingengine.com",
    "bt": "btinternet.com bt.com",
    "mimecast": "mimecast.com mimecast.co.za",
    "proofpoint": "pphosted.com ppe-hosted.com gpphosted.com",
    "symantec": "messagelabs.com",
    "cisco": "iphmx.com",
    "trendmicro": "trendmicro.com trendmicro.eu",
    "sophos": "sophos.com hydra.sophos.com",
    "amazon": "amazonaws.com amazonses.com",
    "strato": "rzone.de strato.de",
    "hetzner": "your-server.de",
    "godaddy": "secureserver.net",
    "rackspace": "emailsrvr.com",
    "comcast": "comcast.net",
}
_ORGANISATION = {end: name for name, ends in _ENDS.items() for end in ends.split()}
# Labels under which countries give names away: there it takes one more to name somebody
_SHARED = frozenset(
    ("ac", "co", "com", "edu", "gob", "go", "gouv", "gov", "gv", "ltd", "me", "mil", "ne", "net", "nhs", "nom", "or",
     "org", "plc", "sch")
)  # fmt: skip


def organisation(host: str) -> str:
    """Return the name of whoever runs a mail server: a provider that is known, or the domain it stands in."""
    labels = host.lower().rstrip(".").split(".")
    for first in range(len(labels)):
        known = _ORGANISATION.get(".".join(labels[first:]))
        if known is not None:
            return known
    if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED:
        return ".".join(labels[-3:])
    return ".".join(labels[-2:])


DIRECT = "direct"
_MAX_KEPT = 20_000
# Names are believed this long at least and at most, whatever their TTL; what was not found is asked for again sooner
_MIN_SECONDS, _MAX_SECONDS, _NOTHING, _FAILED = 60.0, 3600.0, 300.0, 30.0

Kept = TypeVar("Kept")
Found = TypeVar("Found")


class Route(NamedTuple):
    """The servers of a domain as (preference, name), the best first, and whose they are; or why there are none."""

    hosts: tuple[tuple[int, str], ...]
    group: str
    error: DeliveryError | None = None

    @property
    def key(self) -> str:
        """The name of this set of servers: domains that share it share conversations."""
        return " ".join(f"{preference}:{name}" for preference, name in self.hosts)


class Addresses(NamedTuple):
    """The addresses of a server that we may connect to, and what is wrong where there are none."""

    found: tuple[str, ...]
    words: str = ""
    is_private: bool = False


class _Cache(Generic[Kept]):
    """So many things by name, each until its time is over."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Kept]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> Kept | None:
        with self._lock:
            found = self._kept.get(name)
            return found[1] if found is not None and found[0] > clock.steady() else None

    def put(self, name: str, value: Kept, seconds: float) -> Kept:
        with self._lock:
            self._kept[name] = (clock.steady() + seconds, value)
            self._kept.move_to_end(name)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return value

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


_routes: _Cache[Route] = _Cache()
_addresses: _Cache[Addresses] = _Cache()
_threads = ThreadPoolExecutor(16, thread_name_prefix="dns")
_heard = float("-inf")  # when a name server last answered anything


def forget() -> None:
    """Forget all that name servers said."""
    _routes.clear()
    _addresses.clear()


def heard() -> float:
    """Return when a name server last answered anything, by `clock.steady`."""
    return _heard


def names_of(provider: str, address: str) -> tuple[str, ...]:
    """Return the groups whose limits an address keeps to by a way out: first whose servers take its mail, then its own.

    Where we deliver ourselves that is by its mail server, once that is known.
    """
    named = groups.group_of(address)
    if provider != DIRECT:
        return (named,)
    route = _routes.get(domain_of(address))
    return (named,) if route is None or route.group == named else (route.group, named)


def group_of(provider: str, address: str) -> str:
    """Return whose servers take an address's mail, as far as that is known."""
    return names_of(provider, address)[0]


def known(domain: str) -> Route | None:
    """Return the route of a domain, if it was asked for lately."""
    return _routes.get(domain)


def route(domain: str) -> Route:
    """Return the route of a domain; waits for name servers."""
    found = _routes.get(domain)
    return found if found is not None else _routes.put(domain, *_asked(domain))


async def in_thread(function: Callable[[str], Found], name: str) -> Found:
    """Let a thread wait for name servers."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, name)


async def routed(domain: str) -> Route:
    """Return the route of a domain, on an event loop."""
    found = _routes.get(domain)
    if found is not None:
        return found
    return await in_thread(route, domain)


async def located(host: str) -> Addresses:
    """Return where a server is, on an event loop."""
    found = _addresses.get(host)
    if found is not None:
        return found
    return await in_thread(addresses, host)


async def asked_now(domain: str) -> str:
    """Ask for the servers of a domain whatever is known of them; returns what is wrong with the answer."""
    return (await in_thread(lambda name: _ask(name, "MX"), domain)).words


def _ask(name: str, kind: str) -> resolver.Answer:
    global _heard
    answer = resolver.lookup(name, kind)
    if answer.state != "failed":
        _heard = clock.steady()
    return answer


def _asked(domain: str) -> tuple[Route, float]:
    here = groups.group_of(f"@{domain}")
    answer = _ask(domain, "MX")
    if answer.cause == "name":
        return Route((), here, Permanent(answer.words, None, "5.1.2")), _NOTHING
    if answer.state == "failed":
        return Route((), here, Temporary(f"the mail servers of {domain} cannot be looked up: {answer.words}",
                                         None, "4.4.3")), _FAILED  # fmt: skip
    if answer.state == "nxdomain":
        return Route((), here, Permanent(f"there is no domain {domain}", None, "5.1.2")), _NOTHING
    if answer.state == "none":
        return _without_mx(domain, here)
    hosts = sorted(_read(record) for record in answer.records)
    named = tuple((preference, name) for preference, name in hosts if name)
    if not named:
        return Route((), here, Permanent(f"{domain} takes no mail (null MX)", None, "5.1.10")), _span(answer.ttl)
    return Route(named, organisation(named[0][1])), _span(answer.ttl)


def _read(record: str) -> tuple[int, str]:
    preference, _, name = record.strip().partition(" ")
    return int(preference) if preference.isdigit() else 65_535, name.strip().rstrip(".").lower()


def _without_mx(domain: str, here: str) -> tuple[Route, float]:
    """A domain without MX is its own mail server, if it has an address."""
    found = addresses(domain)
    if found.found or found.is_private:
        return Route(((0, domain),), here if here != domain else organisation(domain)), _MIN_SECONDS
    if found.words:
        return Route((), here, Temporary(found.words, None, "4.4.3")), _FAILED
    return Route((), here, Permanent(f"{domain} has no mail server", None, "5.4.4")), _NOTHING


def addresses(host: str) -> Addresses:
    """Return where a server is; waits for name servers.

    Without `words` there is certainly nothing; with them it may be there and cannot be found or reached.
    """
    found = _addresses.get(host)
    return found if found is not None else _addresses.put(host, *_located(host))


def _located(host: str) -> tuple[Addresses, float]:
    if _is_literal(host):
        return Addresses((), f"{host} is no name of a mail server"), _NOTHING
    here = config.current()
    kinds = ("A", "AAAA") if here.email.direct.ipv6 else ("A",)
    answers = [_ask(host, kind) for kind in kinds]
    there = [record for answer in answers if answer.state == "found" for record in answer.records]
    allowed = [name.lower() for name in here.network.allow_private_hosts]
    usable = tuple(one for one in there if safe_http.is_public(one) or host in allowed or one in allowed)
    span = _span(min((answer.ttl for answer in answers if answer.state == "found"), default=0))
    if usable:
        return Addresses(usable), span
    if there:
        return Addresses((), f"{host} is at {there[0]}, an address of a private network", is_private=True), span
    failed = [answer.words for answer in answers if answer.state == "failed"]
    if failed:
        return Addresses((), f"{host} cannot be looked up: {failed[0]}"), _FAILED
    return Addresses(()), _NOTHING


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _span(ttl: int) -> float:
    return min(max(float(ttl), _MIN_SECONDS), _MAX_SECONDS)
