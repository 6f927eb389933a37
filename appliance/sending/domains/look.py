"""Looks records up and judges what is there: right, wrong and what was found instead, or not to be known now."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from appliance.core import clock
from appliance.sending.delivery import resolver
from appliance.sending.delivery.resolver import Answer
from appliance.sending.domains import spf
from appliance.sending.domains.records import DKIM, Record, Valid
from appliance.sending.domains.spf import Ask as spf_Ask

# Reads the DMARC policy that holds for a domain: its own, or the one it inherits (RFC 9989).

_POLICIES = ("none", "quarantine", "reject")
_MAX_STEPS = 8  # of the walk up the tree
Judged = tuple[Valid, tuple[str, ...], str | None]


def judge_dmarc(name: str, answer: Answer, ask: spf_Ask) -> Judged:
    """Judge what is at `_dmarc.<domain>`: any policy that can be read is right, a stricter one too."""
    found = _policies(answer)
    if found:
        return _read(found, "p", None)
    domain = name.removeprefix("_dmarc.")
    for parent in _above(domain):
        answer = ask(f"_dmarc.{parent}", "TXT")
        if answer.state == "failed":
            return "unknown", (), answer.words
        if found := _policies(answer):
            return _read(found, "sp", parent)
    return "invalid", (), "there is no DMARC record yet"


def _read(found: tuple[str, ...], tag: str, parent: str | None) -> Judged:
    if len(found) > 1:
        return "invalid", found, f"there are {len(found)} DMARC records, which count as none: keep one"
    tags = {
        part.partition("=")[0].strip().lower(): part.partition("=")[2].strip().lower() for part in found[0].split(";")
    }
    policy = tags.get(tag) or tags.get("p", "")
    if policy not in _POLICIES:
        words = f"its policy is {policy}" if policy else "it has no policy"
        return "invalid", found, f"{words}: take p=none, p=quarantine or p=reject"
    notes = [f"it is the one of {parent}"] if parent else []
    if "pct" in tags:
        notes.append("pct means nothing any more")
    return "valid", found, "; ".join(notes) or None


def _policies(answer: Answer) -> tuple[str, ...]:
    """Return the records that claim to be a policy; others at that name do not count."""
    return tuple(one for one in answer.records if "".join(one[:20].lower().split()).startswith("v=dmarc1"))


def _above(domain: str) -> list[str]:
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(1, len(labels) - 1)][-_MAX_STEPS:]


Ask = Callable[[str, str], Answer]

PATIENCE = 15.0  # seconds for all look-ups of a domain
_MAX_SHOWN, _LONGEST_SHOWN = 10, 1000


class Verdict(NamedTuple):
    """What became of one record."""

    valid: Valid
    found: tuple[str, ...] = ()
    problem: str | None = None


class Asked:
    """The look-ups of one check, each name and kind asked once, and all of them within a time.

    What a domain includes, others decide: however slow their servers are, a check comes to its end.
    """

    def __init__(self, seconds: float = PATIENCE) -> None:
        self._end = time.monotonic() + seconds
        self._answers: dict[tuple[str, str], Answer] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str, kind: str) -> Answer:
        """Return a look-up, from before where it was made."""
        with self._lock:
            known = self._answers.get((name, kind))
        if known is None:
            left = self._end - time.monotonic()
            if left <= 0:
                return Answer("failed", (), "its DNS servers are too slow", 0, "timeout")
            known = resolver.lookup(name, kind, min(left, resolver.TIMEOUT_SECONDS))
            with self._lock:
                self._answers[name, kind] = known
        return known


def look(wanted: list[Record], domain: str, patience: float = PATIENCE) -> list[Record]:
    """Return records as they are in DNS now, asked for at once; blocks for `patience` seconds at most."""
    asked = Asked(patience)
    with ThreadPoolExecutor(max(1, len(wanted)), "dns") as pool:
        verdicts = list(pool.map(lambda record: judge(record, domain, asked), wanted))
    now = clock.now_ms()
    return [
        msgspec.structs.replace(
            record, valid=verdict.valid, problem=verdict.problem and _plain(verdict.problem), checked_at=now,
            found=[_plain(one) for one in sorted(verdict.found)[:_MAX_SHOWN]],
        )
        for record, verdict in zip(wanted, verdicts, strict=True)
    ]  # fmt: skip


def _plain(text: str) -> str:
    """Return what strangers wrote so that it stands on one line of a page or a log."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:_LONGEST_SHOWN])


def judge(record: Record, domain: str, ask: Ask) -> Verdict:
    """Judge one record of a domain; one without a value to enter yet is not looked up."""
    if not record.value:
        return Verdict("unknown", (), record.problem)
    if record.purpose == "tracking":
        return _tracking(record, ask)
    answer = ask(record.name, record.record_type)
    if answer.state == "failed":
        # A circle is in the domain's own records; anything else is no fault of theirs
        return Verdict("invalid" if answer.cause == "loop" else "unknown", (), answer.words)
    if record.purpose == "dmarc":
        return Verdict(*judge_dmarc(record.name, answer, ask))
    if not answer.records:
        return Verdict("invalid", (), _missing(record, domain, ask))
    if record.purpose == "return_path":
        return _return_path(record, answer)
    if record.purpose == "spf":
        return _spf(record, answer, ask)
    return _signature(record, answer) if record.purpose in DKIM else _ownership(record, answer)


def _missing(record: Record, domain: str, ask: Ask) -> str:
    """Say that nothing is there; many DNS pages add the domain to what is typed, which leaves it there twice."""
    if ask(f"{record.name}.{domain}", record.record_type).records:
        short = record.name.removesuffix(f".{domain}")
        return f"it is at {record.name}.{domain}: your DNS page adds the domain itself, so enter only {short}"
    return f"there is no {record.record_type} record yet"


def _ownership(record: Record, answer: Answer) -> Verdict:
    if record.value in (one.strip() for one in answer.records):
        return Verdict("valid", answer.records)
    if record.value in (one.strip().strip('"') for one in answer.records):
        return Verdict("invalid", answer.records, "the value has quotation marks around it: leave them out")
    return Verdict("invalid", answer.records, "the value is another one")


def _signature(record: Record, answer: Answer) -> Verdict:
    """Compare a DKIM key as a verifier reads it (RFC 6376, 3.6.1)."""
    if len(answer.records) > 1:
        return Verdict("invalid", answer.records, f"there are {len(answer.records)} records, keep one")
    wanted, there = _tags(record.value), _tags(answer.records[0])
    problem = None
    if there.get("v", "DKIM1") != "DKIM1":
        problem = f"it begins with v={there['v']}, not v=DKIM1"
    elif "p" not in there:
        problem = "it has no p="
    elif not there["p"]:
        problem = "its p= is empty, which tells everybody that the key is revoked"
    elif there["p"] != wanted["p"]:
        cut = len(there["p"]) >= 8 and wanted["p"].startswith(there["p"])
        problem = (
            f"the key is cut off after {len(there['p'])} of {len(wanted['p'])} characters"
            if cut
            else "the key is another one"
        )
    elif there.get("k", "rsa") != wanted["k"]:
        problem = f"it says k={there['k']}, not k={wanted['k']}"
    elif "sha256" not in there.get("h", "sha256").split(":"):
        problem = "its h= does not allow sha256"
    elif not {"*", "email"} & set(there.get("s", "*").split(":")):
        problem = "its s= does not allow e-mail"
    return Verdict("invalid" if problem else "valid", answer.records, problem)


def _tags(text: str) -> dict[str, str]:
    """Read a list of tags; white space within a value means nothing."""
    pairs = (part.partition("=") for part in text.split(";") if "=" in part)
    return {name.strip().lower(): "".join(value.split()) for name, _, value in pairs}


def _return_path(record: Record, answer: Answer) -> Verdict:
    if record.value not in {one.partition(" ")[2] for one in answer.records}:
        return Verdict("invalid", answer.records, "mail to it goes elsewhere")
    if not leads_only_to(record.value, answer.records):
        return Verdict("invalid", answer.records, "another server comes before ours or beside it")
    return Verdict("valid", answer.records)


def leads_only_to(host: str, records: Iterable[str]) -> bool:
    """Return whether MX records, written as `10 host`, lead mail to one server first."""
    hosts = sorted((int(number), name) for number, name in (one.split(" ", 1) for one in records))
    return {name for number, name in hosts if number == hosts[0][0]} == {host}


def _spf(record: Record, answer: Answer, ask: Ask) -> Verdict:
    domain = record.name
    found = spf.read(domain, answer, ask)
    if found.unknown:
        return Verdict("unknown", found.records, found.problem)
    term = record.value.split()[1]
    if found.problem is None and not spf.allows(found, term, ask):
        return Verdict("invalid", found.records, f"it does not have {term}")
    return Verdict("invalid" if found.problem else "valid", found.records or answer.records, found.problem)


def _tracking(record: Record, ask: Ask) -> Verdict:
    """Follow a name for links; some DNS services answer a CNAME with the addresses behind it."""
    answer = ask(record.name, "CNAME")
    if answer.state == "failed":
        return Verdict("invalid" if answer.cause == "loop" else "unknown", (), answer.words)
    if record.value in answer.records:
        return Verdict("valid", answer.records)
    theirs, ours = (ask(name, "A") for name in (record.name, record.value))
    if theirs.canonical == record.value and theirs.state == "found":
        return Verdict("valid", answer.records or theirs.records)
    if theirs.cause == "loop":
        return Verdict("invalid", answer.records, theirs.words)
    if set(theirs.records) & {*ours.records, record.value}:
        return Verdict("valid", theirs.records)
    if not (answer.records or theirs.records):
        return Verdict("invalid", (), "there is no CNAME record yet")
    return Verdict("invalid", answer.records or theirs.records, "it leads elsewhere")
