"""Reads the DMARC policy that holds for a domain: its own, or the one it inherits (RFC 9989)."""

from appliance.delivery.resolver import Answer
from appliance.sending_domains.records import Valid
from appliance.sending_domains.spf import Ask

_POLICIES = ("none", "quarantine", "reject")
_MAX_STEPS = 8  # of the walk up the tree
Judged = tuple[Valid, tuple[str, ...], str | None]


def judge(name: str, answer: Answer, ask: Ask) -> Judged:
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
