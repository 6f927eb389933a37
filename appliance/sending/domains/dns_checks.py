"""Look up the DNS records of a sending domain and check each one: valid, invalid with the reason, or unknown."""

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from appliance.core import clock
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.sending.delivery import dns_lookup
from appliance.sending.delivery.dns_lookup import DnsAnswer
from appliance.sending.domains.records import DKIM, Record, Validity

# Problems are stored in English.
_INCLUDE_NONE = gettext_stored("%(term)s: there is no SPF record, which receivers treat as an error")
_INCLUDE_MANY = gettext_stored("%(term)s: there are %(count)s SPF records, which receivers treat as an error")
_MANY_SPF = gettext_stored("there are %(count)s SPF records, and receivers treat more than one as an error: keep one")
_MANY_DMARC = gettext_stored("there are %(count)s DMARC records, which count as no record: keep one")
_UNKNOWN_POLICY = gettext_stored("its policy is %(policy)s: use p=none, p=quarantine or p=reject")
_NO_POLICY = gettext_noop("it has no policy: use p=none, p=quarantine or p=reject")
_INHERITED = gettext_stored("inherited from %(parent)s")
_REPEATED_DOMAIN = gettext_stored("it is at %(name)s: your DNS provider appends the domain, so enter only %(short)s")
_NO_RECORD = gettext_stored("there is no %(type)s record yet")
_MANY_RECORDS = gettext_stored("there are %(count)s records: keep one")
_OTHER_VERSION = gettext_stored("it begins with v=%(version)s, not v=DKIM1")
_CUT_OFF = gettext_stored("the key is cut off after %(count)s of %(length)s characters")
_OTHER_KIND = gettext_stored("it says k=%(found)s, not k=%(expected)s")
_LACKS_TERM = gettext_stored("it does not have %(term)s")


Lookup = Callable[[str, str], DnsAnswer]

# SPF (RFC 7208): only what is needed to find which senders a record allows and whether receivers can evaluate it.

_MAX_LOOKUPS = 10  # then receivers give up (RFC 7208, 4.6.4)
_LOOKUP_TERMS = ("include", "a", "mx", "ptr", "exists", "redirect")


class SpfResult(NamedTuple):
    """The result of evaluating a domain's SPF record with all its includes.

    `records` are the domain's own SPF records, `terms` the terms that allow senders, including terms of included
    records, and `lookups` the DNS look-ups that a receiver needs. `problem` describes the fault, or is None for a
    usable record.
    """

    records: tuple[str, ...]
    terms: frozenset[str] = frozenset()
    lookups: int = 0
    problem: str | None = None
    is_unknown: bool = False  # the look-up of an included record failed


class _SpfEvaluation:
    """The evaluation of one SPF record, with the attributes of `SpfResult`, added up over all includes."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.terms: set[str] = set()
        self.lookups = 0
        self.problem: str | None = None
        self.is_unknown = False

    def evaluate_record(self, domain: str, text: str) -> None:
        """Add the terms and look-ups of a record and its includes; above `_MAX_LOOKUPS`, set `problem` and stop."""
        terms = [term.lower() for term in text.split()[1:]]
        has_all = any(_split_term(term)[0] == "all" for term in terms)
        for term in terms:
            name, value = _split_term(term)
            passes = term[0] not in "-~?"
            if passes:
                self.terms.add(f"{name}:{value or domain}" if name in ("a", "mx") else term.lstrip("+"))
            if name == "redirect" and has_all:
                continue
            if name in _LOOKUP_TERMS:
                self.lookups += 1
                if self.lookups > _MAX_LOOKUPS:
                    self.problem = gettext_noop("needs more than 10 DNS lookups, the limit of receivers")
                    return
            if name in ("include", "redirect") and passes and value and "%" not in value and not self.problem:
                self.evaluate_include(name, value)

    def evaluate_include(self, modifier: str, domain: str) -> None:
        """Evaluate the SPF record of a domain that an `include` or `redirect` refers to.

        Set `problem` unless the domain has exactly one SPF record.
        """
        answer = self.lookup(domain, "TXT")
        if answer.state == "failed":
            self.is_unknown = self.is_unknown or answer.cause != "loop"
            self.problem = f"{modifier} {domain}: {answer.error}"
            return
        records = _spf_records(answer)
        if len(records) != 1:
            text = _INCLUDE_MANY if records else _INCLUDE_NONE
            self.problem = text % {"term": f"{modifier} {domain}", "count": len(records)}
            return
        self.evaluate_record(domain, records[0])


def evaluate_spf(domain: str, answer: DnsAnswer, lookup: Lookup) -> SpfResult:
    """Evaluate the SPF record in a domain's TXT answer, looking up its includes.

    `problem` is also set if there is no record, if there are several, or if the record allows every sender (`+all`).
    """
    records = _spf_records(answer)
    if not records:
        return SpfResult((), problem=gettext_noop("there is no SPF record"))
    if len(records) > 1:
        problem = _MANY_SPF % {"count": len(records)}
        return SpfResult(tuple(records), problem=problem)
    evaluation = _SpfEvaluation(lookup)
    evaluation.evaluate_record(domain, records[0])
    if not evaluation.problem and "all" in evaluation.terms:
        evaluation.problem = gettext_noop("+all allows every server to send from this domain")
    return SpfResult(
        tuple(records), frozenset(evaluation.terms), evaluation.lookups, evaluation.problem, evaluation.is_unknown
    )


def allows_term(spf: SpfResult, term: str, lookup: Lookup) -> bool:
    """Return whether an SPF record contains a term, or allows all IP addresses of an `ip4`, `ip6` or `a` term."""
    if term in spf.terms:
        return True
    name, _, value = term.partition(":")
    networks = [parsed for parsed in map(_parse_network, spf.terms) if parsed is not None]
    hosts = [value] if name in ("ip4", "ip6") else _host_addresses(value, lookup) if name == "a" else []
    return bool(hosts) and all(any(_is_in_network(host, network) for network in networks) for host in hosts)


def _host_addresses(name: str, lookup: Lookup) -> list[str]:
    answers = (lookup(name, "A"), lookup(name, "AAAA"))
    return [record for answer in answers for record in answer.records]


def _is_in_network(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    address = ipaddress.ip_address(host)
    return address.version == network.version and address in network


def _parse_network(term: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    name, _, value = term.partition(":")
    if name not in ("ip4", "ip6"):
        return None
    try:
        return ipaddress.ip_network(value, strict=False)
    except ValueError:
        return None


def _spf_records(answer: DnsAnswer) -> list[str]:
    return [record for record in answer.records if record.lower() == "v=spf1" or record.lower().startswith("v=spf1 ")]


def _split_term(term: str) -> tuple[str, str]:
    """Return the name and value of an SPF term without its qualifier; only `ip4` and `ip6` keep a prefix length."""
    bare = term.lstrip("+-~?")
    name, value = bare, ""
    for separator in (":", "="):
        if separator in bare:
            name, _, value = bare.partition(separator)
            break
    return name.partition("/")[0], value if name.startswith(("ip4", "ip6")) else value.partition("/")[0]


# DMARC (RFC 9989): the policy of a domain is its own, or else the one of the nearest parent domain that has one.

_POLICIES = ("none", "quarantine", "reject")
_MAX_PARENT_DOMAINS = 8  # parent domains whose policies are looked up
DmarcResult = tuple[Validity, tuple[str, ...], str | None]


def check_dmarc(name: str, answer: DnsAnswer, lookup: Lookup) -> DmarcResult:
    """Return (validity, records, problem or note) of the DMARC policy at `name`, which is `_dmarc.<domain>`.

    Any valid policy is accepted, also one inherited from a parent domain.
    """
    records = _dmarc_records(answer)
    if records:
        return _check_policy(records, "p", None)
    domain = name.removeprefix("_dmarc.")
    for parent in _parent_domains(domain):
        answer = lookup(f"_dmarc.{parent}", "TXT")
        if answer.state == "failed":
            return "unknown", (), answer.error
        if records := _dmarc_records(answer):
            return _check_policy(records, "sp", parent)
    return "invalid", (), gettext_noop("there is no DMARC record yet")


def _check_policy(records: tuple[str, ...], tag: str, parent: str | None) -> DmarcResult:
    if len(records) > 1:
        return "invalid", records, _MANY_DMARC % {"count": len(records)}
    tags = {
        tag_text.partition("=")[0].strip().lower(): tag_text.partition("=")[2].strip().lower()
        for tag_text in records[0].split(";")
    }
    policy = tags.get(tag) or tags.get("p", "")
    if policy not in _POLICIES:
        return "invalid", records, _UNKNOWN_POLICY % {"policy": policy} if policy else _NO_POLICY
    notes = [_INHERITED % {"parent": parent}] if parent else []
    if "pct" in tags:
        notes.append(gettext_noop("pct is obsolete and ignored"))
    return "valid", records, "; ".join(notes) or None


def _dmarc_records(answer: DnsAnswer) -> tuple[str, ...]:
    """Return the TXT records of an answer that begin with `v=DMARC1`, in any case and spacing."""
    return tuple(record for record in answer.records if "".join(record[:20].lower().split()).startswith("v=dmarc1"))


def _parent_domains(domain: str) -> list[str]:
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(1, len(labels) - 1)][-_MAX_PARENT_DOMAINS:]


TIMEOUT_SECONDS = 15.0  # for all look-ups of a domain together
_MAX_SHOWN_RECORDS, _MAX_SHOWN_CHARACTERS = 10, 1000


class RecordCheck(NamedTuple):
    """The result of checking one record.

    `found` are the values in DNS, and `problem` is the problem, a note on a valid record, or None.
    """

    valid: Validity
    found: tuple[str, ...] = ()
    problem: str | None = None


class CachedLookups:
    """The DNS look-ups of one check: cached by name and record type, with a common time limit of `seconds`.

    The time limit is needed because an SPF record includes domains of other owners, whose servers may be slow.
    """

    def __init__(self, seconds: float = TIMEOUT_SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self._answers: dict[tuple[str, str], DnsAnswer] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str, kind: str) -> DnsAnswer:
        """Return the answer for a name and record type; once the time limit is reached, a failed answer."""
        with self._lock:
            answer = self._answers.get((name, kind))
        if answer is None:
            seconds_left = self._end - time.monotonic()
            if seconds_left <= 0:
                return DnsAnswer("failed", (), "its DNS servers are too slow", 0, "timeout")
            answer = dns_lookup.lookup(name, kind, min(seconds_left, dns_lookup.TIMEOUT_SECONDS))
            with self._lock:
                self._answers[name, kind] = answer
        return answer


def check_records(
    expected_records: list[Record], domain: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[Record]:
    """Return the expected records with the results of looking them up now; may block for `timeout_seconds`.

    Each record gets at most `_MAX_SHOWN_RECORDS` values in `found`, each of at most `_MAX_SHOWN_CHARACTERS`.
    """
    lookups = CachedLookups(timeout_seconds)
    with ThreadPoolExecutor(max(1, len(expected_records)), "dns") as pool:
        verdicts = list(pool.map(lambda record: check_record(record, domain, lookups), expected_records))
    now = clock.now_ms()
    return [
        msgspec.structs.replace(
            record, valid=verdict.valid, problem=verdict.problem and _printable(verdict.problem), checked_at=now,
            found=[_printable(value) for value in sorted(verdict.found)[:_MAX_SHOWN_RECORDS]],
        )
        for record, verdict in zip(expected_records, verdicts, strict=True)
    ]  # fmt: skip


def _printable(text: str) -> str:
    """Return at most `_MAX_SHOWN_CHARACTERS` of a text from DNS, with U+FFFD for each unprintable character.

    The text is thus on one line, even in a log.
    """
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text[:_MAX_SHOWN_CHARACTERS]
    )


def check_record(record: Record, domain: str, lookup: Lookup) -> RecordCheck:
    """Look up and check one record of a domain; a record without an expected value is unknown and not looked up."""
    if not record.value:
        return RecordCheck("unknown", (), record.problem)
    if record.purpose == "tracking":
        return _check_tracking(record, lookup)
    answer = lookup(record.name, record.record_type)
    if answer.state == "failed":
        # A CNAME loop is a fault of the domain's own records; any other failure may be a fault of the DNS servers
        return RecordCheck("invalid" if answer.cause == "loop" else "unknown", (), answer.error)
    if record.purpose == "dmarc":
        return RecordCheck(*check_dmarc(record.name, answer, lookup))
    if not answer.records:
        return RecordCheck("invalid", (), _explain_missing(record, domain, lookup))
    if record.purpose == "return_path":
        return _check_return_path(record, answer)
    if record.purpose == "spf":
        return _check_spf(record, answer, lookup)
    return _check_dkim(record, answer) if record.purpose in DKIM else _check_ownership(record, answer)


def _explain_missing(record: Record, domain: str, lookup: Lookup) -> str:
    """Return why a record is missing: it was not entered, or it was entered with the domain repeated in its name.

    Many DNS providers append the domain to the entered name.
    """
    if lookup(f"{record.name}.{domain}", record.record_type).records:
        short = record.name.removesuffix(f".{domain}")
        return _REPEATED_DOMAIN % {"name": f"{record.name}.{domain}", "short": short}
    return _NO_RECORD % {"type": record.record_type}


def _check_ownership(record: Record, answer: DnsAnswer) -> RecordCheck:
    if record.value in (text.strip() for text in answer.records):
        return RecordCheck("valid", answer.records)
    if record.value in (text.strip().strip('"') for text in answer.records):
        return RecordCheck("invalid", answer.records, gettext_noop("the value is in quotation marks: remove them"))
    return RecordCheck("invalid", answer.records, gettext_noop("the value differs"))


def _check_dkim(record: Record, answer: DnsAnswer) -> RecordCheck:
    """Check the DKIM key that was found against the expected one, as a verifier reads it (RFC 6376, 3.6.1)."""
    if len(answer.records) > 1:
        return RecordCheck("invalid", answer.records, _MANY_RECORDS % {"count": len(answer.records)})
    expected, actual = _parse_tags(record.value), _parse_tags(answer.records[0])
    problem = None
    if actual.get("v", "DKIM1") != "DKIM1":
        problem = _OTHER_VERSION % {"version": actual["v"]}
    elif "p" not in actual:
        problem = gettext_noop("it has no p=")
    elif not actual["p"]:
        problem = gettext_noop("its p= is empty, which means that the key is revoked")
    elif actual["p"] != expected["p"]:
        is_truncated = len(actual["p"]) >= 8 and expected["p"].startswith(actual["p"])
        problem = (
            _CUT_OFF % {"count": len(actual["p"]), "length": len(expected["p"])}
            if is_truncated
            else gettext_noop("the key differs")
        )
    elif actual.get("k", "rsa") != expected["k"]:
        problem = _OTHER_KIND % {"found": actual["k"], "expected": expected["k"]}
    elif "sha256" not in actual.get("h", "sha256").split(":"):
        problem = gettext_noop("its h= does not allow sha256")
    elif not {"*", "email"} & set(actual.get("s", "*").split(":")):
        problem = gettext_noop("its s= does not allow email")
    return RecordCheck("invalid" if problem else "valid", answer.records, problem)


def _parse_tags(text: str) -> dict[str, str]:
    """Parse a DKIM tag list into lower-case names and values; whitespace in a value is removed (RFC 6376, 3.2)."""
    pairs = (part.partition("=") for part in text.split(";") if "=" in part)
    return {name.strip().lower(): "".join(value.split()) for name, _, value in pairs}


def _check_return_path(record: Record, answer: DnsAnswer) -> RecordCheck:
    if record.value not in {mx_record.partition(" ")[2] for mx_record in answer.records}:
        return RecordCheck("invalid", answer.records, gettext_noop("email to it goes to another server"))
    if not is_only_primary_mx(record.value, answer.records):
        return RecordCheck(
            "invalid", answer.records, gettext_noop("another server has the same or a better preference")
        )
    return RecordCheck("valid", answer.records)


def is_only_primary_mx(host: str, records: Iterable[str]) -> bool:
    """Return whether `host` alone has the lowest preference in MX records such as `10 mx.example.com`.

    Without records, the result is False.
    """
    hosts = sorted((int(preference), name) for preference, name in (record.split(" ", 1) for record in records))
    return {name for preference, name in hosts if preference == hosts[0][0]} == {host}


def _check_spf(record: Record, answer: DnsAnswer, lookup: Lookup) -> RecordCheck:
    domain = record.name
    spf = evaluate_spf(domain, answer, lookup)
    if spf.is_unknown:
        return RecordCheck("unknown", spf.records, spf.problem)
    for term in record.value.split()[1:-1]:  # between the version and the result for all other servers
        if spf.problem is None and not allows_term(spf, term, lookup):
            return RecordCheck("invalid", spf.records, _LACKS_TERM % {"term": term})
    return RecordCheck("invalid" if spf.problem else "valid", spf.records or answer.records, spf.problem)


def _check_tracking(record: Record, lookup: Lookup) -> RecordCheck:
    """Check that the tracking name is a CNAME of the expected host or has one of that host's IPv4 addresses.

    Some DNS providers answer with the addresses instead of the CNAME.
    """
    answer = lookup(record.name, "CNAME")
    if answer.state == "failed":
        return RecordCheck("invalid" if answer.cause == "loop" else "unknown", (), answer.error)
    if record.value in answer.records:
        return RecordCheck("valid", answer.records)
    found_addresses, own_addresses = (lookup(name, "A") for name in (record.name, record.value))
    if found_addresses.canonical_name == record.value and found_addresses.state == "found":
        return RecordCheck("valid", answer.records or found_addresses.records)
    if found_addresses.cause == "loop":
        return RecordCheck("invalid", answer.records, found_addresses.error)
    if set(found_addresses.records) & {*own_addresses.records, record.value}:
        return RecordCheck("valid", found_addresses.records)
    if not (answer.records or found_addresses.records):
        return RecordCheck("invalid", (), gettext_noop("there is no CNAME record yet"))
    return RecordCheck("invalid", answer.records or found_addresses.records, gettext_noop("it points to another host"))
