"""Distinguish opens and clicks by people from those by machines: by the request, its time, and its client.

A hit is judged together with all other hits of its message, so that the behaviour of a scanner at its fourth link also
counts for its first. Emails contain no hidden links to detect machines, because spam filters penalise them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from appliance.events import user_agents

HUMAN, MACHINE, UNSURE = "human", "machine", "unsure"
# A hit within this time after the mail server accepted the email is not by a person.
TOO_SOON_MS = 3_000
# Clicks on more than MAX_BURST_LINKS different links within BURST_MS are by a machine.
MAX_BURST_LINKS, BURST_MS = 3, 2_000
# Clicks on all links of an email within TOUR_MS are by a machine, if it has at least MIN_TOUR_LINKS links.
MIN_TOUR_LINKS, TOUR_MS = 3, 10_000
# Hits with the same user agent and IP address within this time are by the same client.
SAME_CLIENT_MS = 60_000

_REASON_OF_AGENT = {"scanner": "scanner_agent", "tool": "bare_agent"}
_REASON_OF_METHOD = {"HEAD": "head", "PREFETCH": "prefetch"}


class ObservedHit(NamedTuple):
    """A hit as it was received.

    `kind` is `open` or `click`, `number` the number of the link (None for an open), `at` a time in milliseconds.
    `method` is the HTTP method, or `PREFETCH` if the browser announced a prefetch.
    """

    at: int
    kind: str
    number: int | None
    method: str
    ip: str | None
    agent: str | None


class Verdict(NamedTuple):
    """The judgement of a hit: HUMAN, MACHINE or UNSURE, and a code of the reason (None for HUMAN)."""

    verdict: str
    reason: str | None


def judge_hits(hits: Sequence[ObservedHit], sent_at: int | None, links: int) -> list[Verdict]:
    """Return the verdict of each hit of a message, in order.

    `hits` must be all hits of the message, ordered by time. `sent_at` is the time in milliseconds at which the message
    was accepted, or None if it is unknown, and `links` the number of links in the message.
    """
    verdicts = [judge_hit(hit, sent_at) for hit in hits]
    for reason, group in (*_find_bursts(hits), *_find_tours(hits, links)):
        for index in group:
            if verdicts[index].verdict != MACHINE:
                verdicts[index] = Verdict(MACHINE, reason)
    machine_clients = [
        (hit.ip, hit.agent, hit.at)
        for hit, verdict in zip(hits, verdicts, strict=True)
        if _identifies_machine(hit, verdict)
    ]
    if machine_clients:
        for index, hit in enumerate(hits):
            if verdicts[index].verdict != MACHINE and _is_same_client(hit, machine_clients):
                verdicts[index] = Verdict(MACHINE, "same_client")
    return verdicts


def judge_hit(hit: ObservedHit, sent_at: int | None) -> Verdict:
    """Return the verdict for a hit without regard to other hits of its message.

    `sent_at` is the time in milliseconds at which the message was accepted, or None if it is unknown.
    """
    method = _REASON_OF_METHOD.get(hit.method)
    if method is not None:
        return Verdict(MACHINE, method)
    agent_class = user_agents.classify(hit.agent)
    if agent_class == "apple":
        return Verdict(MACHINE, "apple_prefetch" if hit.kind == "open" else "bare_agent")
    if agent_class in _REASON_OF_AGENT:
        return Verdict(MACHINE, _REASON_OF_AGENT[agent_class])
    if sent_at is not None and hit.at < sent_at + TOO_SOON_MS:
        return Verdict(MACHINE, "too_soon")
    if agent_class == "proxy":
        # The image proxy of a mailbox provider fetches images when the email is opened, but never follows links.
        return Verdict(UNSURE, "image_proxy") if hit.kind == "open" else Verdict(MACHINE, "scanner_agent")
    return Verdict(HUMAN, None) if agent_class == "reader" else Verdict(UNSURE, "unknown_agent")


def _click_indexes(hits: Sequence[ObservedHit]) -> list[int]:
    return [index for index, hit in enumerate(hits) if hit.kind == "click"]


def _iterate_windows(hits: Sequence[ObservedHit], clicks: list[int], span: int) -> Iterator[list[int]]:
    """Yield, for each click, its index and the indexes of the clicks up to `span` milliseconds after it.

    `clicks` are the indexes of the clicks among the hits.
    """
    end = 0
    for start, index in enumerate(clicks):
        while end < len(clicks) and hits[clicks[end]].at <= hits[index].at + span:
            end += 1
        yield clicks[start:end]


def _find_bursts(hits: Sequence[ObservedHit]) -> Iterator[tuple[str, list[int]]]:
    clicks = _click_indexes(hits)
    if len(clicks) <= MAX_BURST_LINKS or len({hits[index].number for index in clicks}) <= MAX_BURST_LINKS:
        return
    for group in _iterate_windows(hits, clicks, BURST_MS):
        if len({hits[index].number for index in group}) > MAX_BURST_LINKS:
            yield "many_links", group


def _find_tours(hits: Sequence[ObservedHit], links: int) -> Iterator[tuple[str, list[int]]]:
    if links < MIN_TOUR_LINKS or len(hits) < links:
        return
    clicks = _click_indexes(hits)
    if len({hits[index].number for index in clicks}) < links:
        return
    for group in _iterate_windows(hits, clicks, TOUR_MS):
        if len({hits[index].number for index in group}) >= links:
            yield "every_link", group


def _identifies_machine(hit: ObservedHit, verdict: Verdict) -> bool:
    """Return whether a hit shows that its client is a machine.

    A hit by Apple's prefetching does not, because people have the same user agent.
    """
    return verdict.verdict == MACHINE and verdict.reason != "apple_prefetch" and hit.agent is not None


def _is_same_client(hit: ObservedHit, machine_clients: list[tuple[str | None, str | None, int]]) -> bool:
    """Return whether the client of a machine's hit also made this hit, within SAME_CLIENT_MS before or after.

    `machine_clients` are the IP address, user agent and time of each such hit.
    """
    return any(
        ip == hit.ip and agent == hit.agent and abs(at - hit.at) <= SAME_CLIENT_MS for ip, agent, at in machine_clients
    )
