"""Keeps who asked for the pictures and links of messages, and writes what follows once it is known who that was.

A hit is kept as it came, at once. It is judged a moment later, with all that came with it (`settling`), and what it
tells is told once: an event for the first open of a message and for the first click of each of its links, one by people
and one by machines; fifty looks at a mail are one open. Who chose `aggregate` is counted and not known; who chose
`none` leaves no trace, also in mail that was sent before.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from appliance.core import client_ip, wake_ups
from appliance.sending.messages.link_targets import Found
from appliance.storage.open import connection, rows, run
from appliance.storage.work import after_commit, writing
from appliance.tracking import bot_detection, corrections, counters
from appliance.tracking.bot_detection import MACHINE, Seen, Verdict
from appliance.tracking.corrections import Kept
from appliance.tracking.counters import Told

# Nobody looks at a mail so often; and messages of which that is known
MAX_OF_A_MESSAGE, _MAX_KNOWN = 1_000, 100_000
_kept = lru_cache(maxsize=4_096)(client_ip.kept)
_INSERT = (
    "INSERT INTO hit (account_id, campaign_id, message_id, kind, number, method, ip, user_agent, referrer, verdict, "
    "reason, test, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OF_MESSAGES = (
    "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id, referrer FROM hit "
    "WHERE message_id IN ({ids}) AND at > ? ORDER BY at, id"
)
_JUDGED = "UPDATE hit SET verdict = ?, reason = ?, event_id = ? WHERE id = ?"
# Of somebody who meanwhile chose not to be known
_NOBODYS = (
    "UPDATE hit SET message_id = NULL, ip = NULL, user_agent = NULL, referrer = NULL, verdict = ?, reason = ? "
    "WHERE id = ?"
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


class Case(NamedTuple):
    """A message whose hits are to be judged, as it is known by now, and where each of its links leads."""

    found: Found
    urls: Mapping[int | None, str | None]


class Limit:
    """How often a message may be asked for; used by one thread. What asks again and again is led on and not kept."""

    def __init__(self) -> None:
        self._asked = Counter[int]()

    def allows(self, message_id: int) -> bool:
        """Count once more, and say whether that may be kept."""
        if len(self._asked) >= _MAX_KNOWN:
            self._asked.clear()
        self._asked[message_id] += 1
        return self._asked[message_id] <= MAX_OF_A_MESSAGE


def is_kept(found: Found) -> bool:
    """Return whether a hit of a message is written at all."""
    return found.tracking != "none"


def keep(batch: Sequence[Hit]) -> None:
    """Write hits as they came."""
    writing()
    connection().executemany(_INSERT, [_row(hit) for hit in batch])


def record(batch: Sequence[Hit]) -> None:
    """Write hits with all that follows from them, at once, without waiting for what may still come."""
    keep(batch)
    known: dict[int, Case] = {}
    for hit in batch:
        if hit.found.tracking == "full":
            before = known.get(hit.found.message_id, Case(hit.found, {}))
            known[hit.found.message_id] = Case(hit.found, {**before.urls, hit.asked.number: hit.found.url})
    if known:
        settle([*known.values()], min(hit.asked.at for hit in batch), max(hit.asked.at for hit in batch))


def settle(cases: Sequence[Case], first: int, last: int) -> int:
    """Judge the hits of messages from one moment to another, and write what follows; returns how many they were.

    What later hits say about those judged before is corrected.
    """
    writing()
    stored: dict[int, list[tuple[Kept, str | None]]] = {case.found.message_id: [] for case in cases}
    ids = ",".join(map(str, stored))
    for row in rows(_OF_MESSAGES.format(ids=ids), (first - bot_detection.COMPANY_MS,)):
        stored[row[1]].append((corrections.kept(row), row[11]))
    new: list[tuple[int, Told]] = []
    changed: list[tuple[Found, list[corrections.Change]]] = []
    count = 0
    for case in cases:
        known = stored[case.found.message_id]
        if case.found.tracking == "full":
            count += _judged(case, known, last, new, changed)
        else:
            count += _withdrawn(case.found, [hit for hit, _ in known], last)
    _write(new)
    for found, changes in changed:
        corrections.correct(found, changes)
    if new:
        after_commit(lambda: wake_ups.ring("flows"))
    return count


def _judged(
    case: Case, known: list[tuple[Kept, str | None]], last: int, new: list[tuple[int, Told]],
    changed: list[tuple[Found, list[corrections.Change]]],
) -> int:  # fmt: skip
    """Judge the hits of one message together; returns how many of them had no verdict yet."""
    found = case.found
    verdicts = bot_detection.judge([hit.seen for hit, _ in known], found.handed_over_at, found.links)
    before, fresh = [], 0
    for (hit, referrer), verdict in zip(known, verdicts, strict=True):
        if hit.verdict is not None:
            before.append((hit, verdict))
        elif hit.seen.at <= last:
            fresh += 1
            led = found._replace(url=case.urls.get(hit.seen.number))
            new.append((hit.id, Told(led, hit.seen, referrer, verdict)))
    changes = corrections.changes(before)
    if changes:
        changed.append((found, changes))
    return fresh


def _withdrawn(found: Found, known: Iterable[Kept], last: int) -> int:
    """Forget the hits of somebody who meanwhile chose not to be counted, or count them for nobody."""
    waiting = [hit for hit in known if hit.verdict is None and hit.seen.at <= last]
    for hit in waiting:
        if is_kept(found):
            run(_NOBODYS, (*bot_detection.alone(hit.seen, found.handed_over_at), hit.id))
        else:
            run("DELETE FROM hit WHERE id = ?", (hit.id,))
    return len(waiting)


def _write(new: list[tuple[int, Told]]) -> None:
    """Write verdicts with the events and counts that follow from them."""
    told = counters.events_told({one.found.message_id for _, one in new})
    first: list[Told] = []
    places: list[int | None] = []
    for _, one in new:
        key = (one.found.message_id, one.seen.kind, one.seen.number, one.verdict.verdict == MACHINE)
        is_first = key not in told
        places.append(len(first) if is_first else None)
        if is_first:
            told.add(key)
            first.append(one)
    events = counters.tell_hits(first)
    judged = [
        (*one.verdict, None if place is None else events[place], number)
        for (number, one), place in zip(new, places, strict=True)
    ]
    connection().executemany(_JUDGED, judged)
    counters.count([(one.found, one.seen, one.verdict) for _, one in new if one.verdict.verdict != MACHINE])


def _row(hit: Hit) -> tuple[Any, ...]:
    asked, found = hit
    kind = "open" if asked.number is None else "click"
    if found.tracking == "full":
        who: tuple[Any, ...] = (_kept(asked.ip, found.privacy_ip), asked.agent, asked.referrer)
        return (
            found.account_id, found.campaign_id, found.message_id, kind, asked.number, asked.method, *who, None, None,
            found.test, asked.at,
        )  # fmt: skip
    verdict = _nobodys(asked, kind, found)
    return (
        found.account_id, found.campaign_id, None, kind, asked.number, asked.method, None, None, None, *verdict,
        found.test, asked.at,
    )  # fmt: skip


def _nobodys(asked: Asked, kind: str, found: Found) -> Verdict:
    """Judge a hit of somebody who is not to be known by what it says itself, for nothing of them is kept."""
    return bot_detection.alone(
        Seen(asked.at, kind, asked.number, asked.method, None, asked.agent), found.handed_over_at
    )
