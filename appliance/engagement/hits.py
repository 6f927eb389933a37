"""Writes who asked for the pictures and links of messages, many at a time, with all that follows from it.

Each is kept as it came. What it tells is told once: an event for the first open of a message and for the first click of
each of its links, one by people and one by machines; fifty looks at a mail are one open. Who chose `aggregate` is
counted and not known; who chose `none` leaves no trace, also in mail that was sent before.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from appliance import clients
from appliance.db.open import connection, rows
from appliance.db.work import after_commit, writing
from appliance.engagement import corrections, counters, robots, telling
from appliance.engagement.robots import MACHINE, Seen, Verdict
from appliance.engagement.telling import Told
from appliance.messages.targets import Found
from appliance.work import bell

# More of one message in a minute is nobody's reading, and is not kept
MOST_A_MINUTE = 100
_kept = lru_cache(maxsize=4_096)(clients.kept)
_INSERT = (
    "INSERT INTO hit (account_id, campaign_id, message_id, kind, number, method, ip, user_agent, referrer, verdict, "
    "reason, event_id, test, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PAST = (
    "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id FROM hit "
    "WHERE message_id IN ({ids}) AND at > ? ORDER BY at, id"
)


class Asked(NamedTuple):
    """A picture or a link that was asked for, as it came over the wire; its words are cut to a bearable length."""

    number: int | None
    method: str
    ip: str | None
    agent: str | None
    referrer: str | None
    at: int


class Hit(NamedTuple):
    """What was asked for, and the message it belongs to."""

    asked: Asked
    found: Found


class _New(NamedTuple):
    """A hit that is to be written: as it is kept, and what became of it."""

    found: Found
    seen: Seen
    referrer: str | None
    verdict: Verdict


def is_kept(found: Found) -> bool:
    """Say whether a hit of a message is written at all."""
    return found.tracking != "none"


def record(batch: Sequence[Hit]) -> int:
    """Write hits in one transaction; answers how many were too many of their message and are not kept."""
    writing()
    nobodys = [hit for hit in batch if hit.found.tracking == "aggregate"]
    of_message: dict[int, list[Hit]] = {}
    for hit in batch:
        if hit.found.tracking == "full":
            of_message.setdefault(hit.found.message_id, []).append(hit)
    past = _past(of_message)
    new: list[_New] = []
    changed: list[tuple[Found, list[corrections.Change]]] = []
    for number, hits in of_message.items():
        known = past.get(number, [])
        hits = sorted(hits, key=lambda one: one.asked.at)[: max(0, MOST_A_MINUTE - len(known))]
        if hits:
            _judged(hits, known, new, changed)
    _write([*new, *map(_nobodys, nobodys)])
    for found, changes in changed:
        corrections.correct(found, changes)
    if new:
        after_commit(lambda: bell.ring("flows"))
    return len(batch) - len(new) - len(nobodys)


def _past(messages: Iterable[int]) -> dict[int, list[corrections.Kept]]:
    """Answer what was asked of messages shortly before, as far as it bears on what is asked now."""
    ids = ",".join(map(str, messages))
    found: dict[int, list[corrections.Kept]] = {}
    if ids:
        since = counters.now() - robots.COMPANY_MS
        for row in rows(_PAST.format(ids=ids), (since,)):
            found.setdefault(row[1], []).append(corrections.kept(row))
    return found


def _judged(
    hits: list[Hit], known: list[corrections.Kept], new: list[_New], changed: list[tuple[Found, list[Any]]]
) -> None:
    """Judge the hits of one message together with those before them."""
    found = hits[0].found
    fresh = [_seen(hit) for hit in hits]
    if not known and len(fresh) == 1:
        new.append(_New(found, fresh[0], hits[0].asked.referrer, robots.alone(fresh[0], found.handed_over_at)))
        return
    seen = [*(one.seen for one in known), *fresh]
    order = sorted(range(len(seen)), key=lambda index: seen[index].at)
    judged = robots.judge([seen[index] for index in order], found.handed_over_at, found.links)
    verdicts = dict(zip(order, judged, strict=True))
    changes = corrections.changes(known, [verdicts[index] for index in range(len(known))])
    if changes:
        changed.append((found, changes))
    for index, hit in enumerate(hits):
        new.append(_New(hit.found, fresh[index], hit.asked.referrer, verdicts[len(known) + index]))


def _seen(hit: Hit) -> Seen:
    asked = hit.asked
    kind = "open" if asked.number is None else "click"
    ip = _kept(asked.ip, hit.found.privacy_ip)
    return Seen(asked.at, kind, asked.number, asked.method, ip, asked.agent)


def _nobodys(hit: Hit) -> _New:
    """Judge a hit of somebody who is not to be known by what it says itself, and keep nothing of them."""
    seen = _seen(hit)
    verdict = robots.alone(seen, hit.found.handed_over_at)
    return _New(hit.found, seen._replace(ip=None, agent=None), None, verdict)


def _write(new: list[_New]) -> None:
    """Write hits with the events and counts that follow from them."""
    known = [one for one in new if one.found.tracking == "full"]
    told = telling.told({one.found.message_id for one in known})
    first: list[_New] = []
    for one in known:
        key = (one.found.message_id, one.seen.kind, one.seen.number, one.verdict.verdict == MACHINE)
        if key not in told:
            told.add(key)
            first.append(one)
    ids = telling.tell([Told(one.found, one.seen, one.referrer, one.verdict) for one in first])
    events = {id(one): event for one, event in zip(first, ids, strict=True)}
    connection().executemany(_INSERT, [_row(one, events.get(id(one))) for one in new])
    counters.count([(one.found, one.seen, one.verdict) for one in known if one.verdict.verdict != MACHINE])


def _row(one: _New, event_id: int | None) -> tuple[Any, ...]:
    found, seen = one.found, one.seen
    return (
        found.account_id, found.campaign_id, found.message_id if found.tracking == "full" else None, seen.kind,
        seen.number, seen.method, seen.ip, seen.agent, one.referrer, one.verdict.verdict, one.verdict.reason, event_id,
        found.test, seen.at,
    )  # fmt: skip
