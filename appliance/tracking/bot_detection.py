"""Tells people from machines by what was asked for, when, and by whom; the same rules for one hit and for all of them.

A hit is judged with all others of its message, so what a scanner does at its fourth link is held against its first.
Nothing invisible is put into mails to trap machines: hidden links cost reputation with the very filters that are meant.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from appliance.events import agents

HUMAN, MACHINE, UNSURE = "human", "machine", "unsure"
# Nobody has read a mail so soon after it was handed over
SOON_MS = 3_000
# More different links than a person follows in that time
MANY, MANY_MS = 3, 2_000
# All links of a mail, if it has so many, one right after the other
EVERY, EVERY_MS = 3, 10_000
# For so long the same program at the same address is taken for the same
COMPANY_MS = 60_000

_OF_AGENT = {"scanner": "scanner_agent", "tool": "bare_agent"}
_OF_METHOD = {"HEAD": "head", "PREFETCH": "prefetch"}


class Seen(NamedTuple):
    """A hit as it was seen; a fetch ahead of the reader, by the browser's own word, has the method `PREFETCH`."""

    at: int
    kind: str
    number: int | None
    method: str
    ip: str | None
    agent: str | None


class Verdict(NamedTuple):
    """Who we think it was, and why if there is something to say."""

    verdict: str
    reason: str | None


def judge(seen: Sequence[Seen], sent_at: int | None, links: int) -> list[Verdict]:
    """Judge the hits of one message, which come in the order of their time; `links` is how many it could lead to."""
    found = [alone(one, sent_at) for one in seen]
    for reason, group in (*_bursts(seen), *_tours(seen, links)):
        for index in group:
            if found[index].verdict != MACHINE:
                found[index] = Verdict(MACHINE, reason)
    known = [(one.ip, one.agent, one.at) for one, told in zip(seen, found, strict=True) if _tells(one, told)]
    if known:
        for index, one in enumerate(seen):
            if found[index].verdict != MACHINE and _in_company(one, known):
                found[index] = Verdict(MACHINE, "same_client")
    return found


def alone(one: Seen, sent_at: int | None) -> Verdict:
    """Judge a hit by itself."""
    method = _OF_METHOD.get(one.method)
    if method is not None:
        return Verdict(MACHINE, method)
    sort = agents.sort(one.agent)
    if sort == "apple":
        return Verdict(MACHINE, "apple_prefetch" if one.kind == "open" else "bare_agent")
    if sort in _OF_AGENT:
        return Verdict(MACHINE, _OF_AGENT[sort])
    if sent_at is not None and one.at < sent_at + SOON_MS:
        return Verdict(MACHINE, "too_soon")
    if sort == "proxy":
        # It fetches what its reader looks at, and never follows a link for them
        return Verdict(UNSURE, "image_proxy") if one.kind == "open" else Verdict(MACHINE, "scanner_agent")
    return Verdict(HUMAN, None) if sort == "reader" else Verdict(UNSURE, "unknown_agent")


def _clicks(seen: Sequence[Seen]) -> list[int]:
    return [index for index, one in enumerate(seen) if one.kind == "click"]


def _windows(seen: Sequence[Seen], clicks: list[int], span: int) -> Iterator[list[int]]:
    """Yield, for each click, the clicks from it until so many milliseconds later."""
    end = 0
    for start, first in enumerate(clicks):
        while end < len(clicks) and seen[clicks[end]].at <= seen[first].at + span:
            end += 1
        yield clicks[start:end]


def _bursts(seen: Sequence[Seen]) -> Iterator[tuple[str, list[int]]]:
    clicks = _clicks(seen)
    if len(clicks) <= MANY or len({seen[index].number for index in clicks}) <= MANY:
        return
    for group in _windows(seen, clicks, MANY_MS):
        if len({seen[index].number for index in group}) > MANY:
            yield "many_links", group


def _tours(seen: Sequence[Seen], links: int) -> Iterator[tuple[str, list[int]]]:
    if links < EVERY or len(seen) < links:
        return
    clicks = _clicks(seen)
    if len({seen[index].number for index in clicks}) < links:
        return
    for group in _windows(seen, clicks, EVERY_MS):
        if len({seen[index].number for index in group}) >= links:
            yield "every_link", group


def _tells(one: Seen, told: Verdict) -> bool:
    """Return whether a hit gives away who made it; Apple asks in a name that everybody has."""
    return told.verdict == MACHINE and told.reason != "apple_prefetch" and one.agent is not None


def _in_company(one: Seen, known: list[tuple[str | None, str | None, int]]) -> bool:
    """Return whether the program of a machine's hit made this one too, at about that time."""
    return any(ip == one.ip and agent == one.agent and abs(at - one.at) <= COMPANY_MS for ip, agent, at in known)
