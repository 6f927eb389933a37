"""Find the mail servers of a domain, the recipient group they belong to, and the domain's MTA-STS policy.

Routes and addresses are cached for all threads. Without a cached answer a look-up blocks on the network; the async
functions run it in a thread pool.
"""

import asyncio
import ipaddress
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from appliance.core import clock
from appliance.core.errors import Deferred, DeliveryError, RecipientRejected
from appliance.sending.delivery import dns_lookup, safe_http
from appliance.settings import config

# Recipient groups: a large mailbox provider serves many domains and limits the mail to all of them together. Our rate
# limits, and rejections because of the rate, therefore apply to a group, and sending to other groups continues.

# The domains of each group; any other domain is a group by itself
_DOMAINS = {
    "google": "gmail.com googlemail.com",
    "microsoft": (
        "outlook.com hotmail.com live.com msn.com windowslive.com passport.com hotmail.co.uk hotmail.fr hotmail.de "
        "hotmail.it hotmail.es hotmail.nl hotmail.be hotmail.se hotmail.ca hotmail.com.br hotmail.com.ar hotmail.co.jp "
        "live.co.uk live.fr live.de live.it live.nl live.be live.se live.dk live.no live.ca live.com.au live.com.mx "
        "outlook.de outlook.fr outlook.es outlook.it outlook.be outlook.at outlook.dk outlook.pt outlook.jp outlook.in "
        "outlook.ie outlook.com.br outlook.com.au"
    ),
    "yahoo": (
        "yahoo.com ymail.com rocketmail.com myyahoo.com aol.com aim.com netscape.net verizon.net yahoo.co.uk yahoo.fr "
        "yahoo.de yahoo.it yahoo.es yahoo.ca yahoo.ie yahoo.se yahoo.no yahoo.dk yahoo.pl yahoo.ro yahoo.gr yahoo.at "
        "yahoo.be yahoo.in yahoo.co.in yahoo.co.id yahoo.co.th yahoo.co.nz yahoo.com.au yahoo.com.br yahoo.com.ar "
        "yahoo.com.mx yahoo.com.hk yahoo.com.sg yahoo.com.tw yahoo.com.ph yahoo.com.vn yahoo.com.tr aol.co.uk aol.de "
        "aol.fr aol.it"
    ),
    "apple": "icloud.com me.com mac.com",
    "gmx": "gmx.de gmx.net gmx.at gmx.ch gmx.com gmx.eu gmx.info gmx.org gmx.co.uk gmx.fr gmx.us web.de mail.com",
    "telekom": "t-online.de magenta.de",
    "proton": "proton.me protonmail.com protonmail.ch pm.me",
    "mail.ru": "mail.ru bk.ru inbox.ru list.ru internet.ru",
    "yandex": "yandex.ru yandex.com yandex.by yandex.kz yandex.ua ya.ru",
    "orange": "orange.fr wanadoo.fr",
    "sfr": "sfr.fr neuf.fr cegetel.net club-internet.fr",
    "libero": "libero.it virgilio.it iol.it inwind.it blu.it giallo.it",
    "seznam": "seznam.cz email.cz post.cz spoluzaci.cz",
    "wp": "wp.pl o2.pl tlen.pl",
    "onet": "onet.pl onet.eu op.pl poczta.onet.pl vp.pl",
    "tencent": "qq.com foxmail.com vip.qq.com",
    "netease": "163.com 126.com yeah.net vip.163.com",
    "zoho": "zoho.com zohomail.com zoho.eu zoho.in",
    "fastmail": "fastmail.com fastmail.fm",
    "bt": "btinternet.com btopenworld.com talk21.com",
}
LARGE_GROUPS = frozenset(_DOMAINS)
_GROUP_OF = {domain: name for name, domains in _DOMAINS.items() for domain in domains.split()}


def get_address_group(address: str) -> str:
    """Return the recipient group of an address by its domain, without looking up its mail servers."""
    domain = domain_of(address)
    return _GROUP_OF.get(domain, domain)


def domain_of(address: str) -> str:
    """Return the domain of an email address in lower case."""
    return address[address.rfind("@") + 1 :].lower()


def is_mailbox_provider(domain: str) -> bool:
    """Return whether a domain belongs to a large mailbox provider, so that its users cannot change its DNS."""
    return domain in _GROUP_OF


def get_group_domains(group: str) -> tuple[str, ...]:
    """Return the domains of a recipient group; any other name is returned as the only domain."""
    return tuple(_DOMAINS.get(group, group).split())


# Operators of mail servers: direct delivery groups recipients by the organisation whose servers receive their mail,
# whatever their domains are.

# Organisations by the domain suffixes of their servers; large providers have the same names as in `_DOMAINS`
_MX_DOMAINS = {
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
_ORGANISATION_OF_DOMAIN = {end: name for name, ends in _MX_DOMAINS.items() for end in ends.split()}
# Second-level labels such as `co` in `co.uk`: the registered domain has three labels there
_SECOND_LEVEL_LABELS = frozenset(
    ("ac", "co", "com", "edu", "gob", "go", "gouv", "gov", "gv", "ltd", "me", "mil", "ne", "net", "nhs", "nom", "or",
     "org", "plc", "sch")
)  # fmt: skip


def get_organisation(host: str) -> str:
    """Return the operator of a mail server: the name of a known provider, or the registered domain of the host."""
    labels = host.lower().rstrip(".").split(".")
    for start in range(len(labels)):
        name = _ORGANISATION_OF_DOMAIN.get(".".join(labels[start:]))
        if name is not None:
            return name
    return get_registered_domain(host)


def get_registered_domain(host: str) -> str:
    """Return the registered domain of a host, such as `bakery.co.uk` for `mail.bakery.co.uk`.

    Three labels are kept below common second-level labels such as `co`, else two; there is no public suffix list.
    """
    labels = host.lower().rstrip(".").split(".")
    if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL_LABELS:
        return ".".join(labels[-3:])
    return ".".join(labels[-2:])


DIRECT = "direct"
# The enhanced code of an error because no name server could say which mail servers a domain has (RFC 3463, 3.5)
DNS_FAILED = "4.4.3"
_MAX_CACHED = 20_000
# Limits of the time that answers are cached, whatever their TTL; missing names and failed look-ups have a fixed time
_MIN_TTL_SECONDS, _MAX_TTL_SECONDS, _NOT_FOUND_TTL_SECONDS, _FAILED_TTL_SECONDS = 60.0, 3600.0, 300.0, 30.0

Value = TypeVar("Value")
Result = TypeVar("Result")


class Route(NamedTuple):
    """The mail servers of a domain as (preference, name), in the order to try them, and their recipient group.

    `error` is set if there are no servers: it is then the error of each message to the domain.
    """

    hosts: tuple[tuple[int, str], ...]
    group: str
    error: DeliveryError | None = None


class Addresses(NamedTuple):
    """The usable IP addresses of a mail server; if there are none, `error` may say why.

    `is_private` means that the server has private addresses only. An empty `error` without addresses means that the
    server certainly has none.
    """

    addresses: tuple[str, ...]
    error: str = ""
    is_private: bool = False


class _TtlCache(Generic[Value]):
    """A thread-safe cache of at most `_MAX_CACHED` entries, each with its own time to live."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, tuple[float, Value]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> Value | None:
        with self._lock:
            entry = self._entries.get(name)
            return entry[1] if entry is not None and entry[0] > clock.monotonic() else None

    def put(self, name: str, value: Value, seconds: float) -> Value:
        with self._lock:
            self._entries[name] = (clock.monotonic() + seconds, value)
            self._entries.move_to_end(name)
            while len(self._entries) > _MAX_CACHED:
                self._entries.popitem(last=False)
        return value

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


_routes: _TtlCache[Route] = _TtlCache()
_addresses: _TtlCache[Addresses] = _TtlCache()
_threads = ThreadPoolExecutor(16, thread_name_prefix="dns")
_last_answer_at = float("-inf")  # monotonic time of the last answer of any name server


def get_last_dns_answer_at() -> float:
    """Return when a name server last answered, in seconds of `clock.monotonic`; minus infinity if none did yet."""
    return _last_answer_at


def get_group_names(provider: str, address: str) -> tuple[str, ...]:
    """Return the recipient groups whose limits apply to an address: its mail servers' group, then its domain's.

    Only the domain's group is returned if both are the same, if the provider is not direct delivery, or if the route is
    not cached.
    """
    domain_group = get_address_group(address)
    if provider != DIRECT:
        return (domain_group,)
    route = _routes.get(domain_of(address))
    return (domain_group,) if route is None or route.group == domain_group else (route.group, domain_group)


def get_recipient_group(provider: str, address: str) -> str:
    """Return the recipient group of the mail servers for an address, or of its domain while the servers are unknown."""
    return get_group_names(provider, address)[0]


def find_route(domain: str) -> Route:
    """Return the route of a domain; blocks on name servers unless it is cached."""
    route = _routes.get(domain)
    return route if route is not None else _routes.put(domain, *_lookup_route(domain))


async def run_lookup(function: Callable[[str], Result], name: str) -> Result:
    """Run `function(name)`, a blocking look-up, in the thread pool for DNS, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, name)


async def find_route_async(domain: str) -> Route:
    """Return the route of a domain without blocking the event loop."""
    route = _routes.get(domain)
    if route is not None:
        return route
    return await run_lookup(find_route, domain)


async def find_addresses_async(host: str) -> Addresses:
    """Return the addresses of a mail server without blocking the event loop."""
    addresses = _addresses.get(host)
    if addresses is not None:
        return addresses
    return await run_lookup(find_addresses, host)


async def fetch_mx_error(domain: str) -> str:
    """Look up the MX records of a domain without the cache; return the error, or an empty string if there is none.

    A domain without MX records has an error, too.
    """
    return (await run_lookup(lambda name: _lookup(name, "MX"), domain)).error


def _lookup(name: str, kind: str) -> dns_lookup.DnsAnswer:
    global _last_answer_at
    answer = dns_lookup.lookup(name, kind)
    if answer.state != "failed":
        _last_answer_at = clock.monotonic()
    return answer


def _lookup_route(domain: str) -> tuple[Route, float]:
    group = get_address_group(f"@{domain}")
    answer = _lookup(domain, "MX")
    if answer.cause == "name":
        return Route((), group, RecipientRejected(answer.error, None, "5.1.2")), _NOT_FOUND_TTL_SECONDS
    if answer.state == "failed":
        return Route((), group, Deferred(f"the mail servers of {domain} cannot be looked up: {answer.error}",
                                         None, DNS_FAILED)), _FAILED_TTL_SECONDS  # fmt: skip
    if answer.state == "nxdomain":
        return Route(
            (), group, RecipientRejected(f"the domain {domain} does not exist", None, "5.1.2")
        ), _NOT_FOUND_TTL_SECONDS
    if answer.state == "none":
        return _route_without_mx(domain, group)
    hosts = sorted(_parse_mx(record) for record in answer.records)
    servers = tuple((preference, name) for preference, name in hosts if name)
    if not servers:
        return Route((), group, RecipientRejected(f"{domain} takes no mail (null MX)", None, "5.1.10")), _clamp_ttl(
            answer.ttl
        )
    return Route(servers, get_organisation(servers[0][1])), _clamp_ttl(answer.ttl)


def _parse_mx(record: str) -> tuple[int, str]:
    preference, _, name = record.strip().partition(" ")
    return int(preference) if preference.isdigit() else 65_535, name.strip().rstrip(".").lower()


def _route_without_mx(domain: str, group: str) -> tuple[Route, float]:
    """Return the route of a domain without MX records, and the seconds to cache it.

    The domain itself is the mail server if it has an address (RFC 5321, 5.1).
    """
    addresses = find_addresses(domain)
    if addresses.addresses or addresses.is_private:
        return Route(((0, domain),), group if group != domain else get_organisation(domain)), _MIN_TTL_SECONDS
    if addresses.error:
        return Route((), group, Deferred(addresses.error, None, DNS_FAILED)), _FAILED_TTL_SECONDS
    return Route((), group, RecipientRejected(f"{domain} has no mail server", None, "5.4.4")), _NOT_FOUND_TTL_SECONDS


def find_addresses(host: str) -> Addresses:
    """Return the addresses of a mail server to which mail may be sent; blocks on name servers unless they are cached.

    Private addresses are left out, except those in `network.allow_private_hosts`.
    """
    addresses = _addresses.get(host)
    return addresses if addresses is not None else _addresses.put(host, *_lookup_addresses(host))


def _lookup_addresses(host: str) -> tuple[Addresses, float]:
    if _is_literal(host):
        return Addresses((), f"{host} is not the name of a mail server"), _NOT_FOUND_TTL_SECONDS
    settings = config.current()
    kinds = ("A", "AAAA") if settings.email.direct.ipv6 else ("A",)
    answers = [_lookup(host, kind) for kind in kinds]
    records = [record for answer in answers if answer.state == "found" for record in answer.records]
    allowed = [name.lower() for name in settings.network.allow_private_hosts]
    usable = tuple(
        address for address in records if safe_http.is_public(address) or host in allowed or address in allowed
    )
    seconds = _clamp_ttl(min((answer.ttl for answer in answers if answer.state == "found"), default=0))
    if usable:
        return Addresses(usable), seconds
    if records:
        return Addresses((), f"{host} has the private address {records[0]}", is_private=True), seconds
    failed = [answer.error for answer in answers if answer.state == "failed"]
    if failed:
        return Addresses((), f"{host} cannot be looked up: {failed[0]}"), _FAILED_TTL_SECONDS
    return Addresses(()), _NOT_FOUND_TTL_SECONDS


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _clamp_ttl(ttl: int) -> float:
    return min(max(float(ttl), _MIN_TTL_SECONDS), _MAX_TTL_SECONDS)


# MTA-STS (RFC 8461): a domain's policy that its incoming mail must be encrypted.
#
# Mail to a domain without a policy, or whose policy cannot be fetched, is sent with opportunistic TLS. DANE is not
# supported, because it needs DNS answers verified with DNSSEC, which most machines do not have.

_MAX_POLICY_BYTES = 65_536
_POLICY_TIMEOUT_SECONDS = 10.0
_MAX_AGE_SECONDS = 31_557_600  # a year (RFC 8461, 3.2)
_POLICY_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_MX_PATTERN = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9])?")
_POLICY_MODES = ("enforce", "testing", "none")


class MtaStsPolicy(NamedTuple):
    """An MTA-STS policy: its id in DNS, its mode, the host patterns of allowed servers, and its lifetime in seconds."""

    id: str
    mode: str
    hosts: tuple[str, ...]
    max_age: int

    def allows(self, host: str) -> bool:
        """Return whether the policy allows a mail server; `*.` matches exactly one label (RFC 8461, 4.1)."""
        host = host.lower().rstrip(".")
        return any(
            host.partition(".")[2] == pattern[2:] if pattern.startswith("*.") else host == pattern
            for pattern in self.hosts
        )


def find_policy_id(domain: str) -> str | None:
    """Return the id of the policy that a domain announces in DNS, or None. Blocks on name servers."""
    answer = dns_lookup.lookup(f"_mta-sts.{domain}", "TXT")
    policies = [record for record in answer.records if re.match(r"v=STSv1\s*;", record)]
    if answer.state != "found" or len(policies) != 1:
        return None
    parts = dict(part.strip().partition("=")[::2] for part in policies[0].split(";") if part.strip())
    policy_id = parts.get("id", "")
    return policy_id if _POLICY_ID.fullmatch(policy_id) else None


async def fetch_policy(domain: str, policy_id: str) -> MtaStsPolicy | None:
    """Fetch the policy of a domain from its web server; return None if the request fails or the policy is invalid.

    The certificate must be valid, redirects are not followed, and no request is sent to a private network.
    """
    url = f"https://mta-sts.{domain}/.well-known/mta-sts.txt"
    try:
        response = await safe_http.request(
            "GET", url, schemes=("https",), max_bytes=_MAX_POLICY_BYTES, timeout_seconds=_POLICY_TIMEOUT_SECONDS
        )
    except safe_http.RequestFailed:
        return None
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return parse_policy(policy_id, response.body) if response.status == 200 and media_type == "text/plain" else None


def parse_policy(policy_id: str, body: bytes) -> MtaStsPolicy | None:
    """Parse the file of a policy (RFC 8461, 3.2); return None if it is invalid. `max_age` is at most a year."""
    try:
        lines = body.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), []).append(value.strip())
    mode, age = (fields.get(name, [""])[0] for name in ("mode", "max_age"))
    hosts = tuple(host.lower().rstrip(".") for host in fields.get("mx", ()))
    if fields.get("version", [""])[0] != "STSv1" or mode not in _POLICY_MODES or not re.fullmatch(r"[0-9]{1,10}", age):
        return None
    if not all(map(_MX_PATTERN.fullmatch, hosts)) or (mode != "none" and not hosts):
        return None
    return MtaStsPolicy(policy_id, mode, hosts, min(int(age), _MAX_AGE_SECONDS))
