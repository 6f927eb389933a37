"""Judges hits when they are old enough that what came with them is there: a scanner has shown itself by then.

So nobody acts on a click that is taken back a second later. What waits is in the table; a process that dies leaves it
to the next.
"""

import logging
import threading
import time

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.events import agents
from appliance.sending.messages.link_targets import Targets, Wanted
from appliance.storage import work
from appliance.storage.open import fetch_one, rows, run
from appliance.storage.work import writing
from appliance.tracking import bot_detection, corrections, hits
from appliance.tracking.hits import Case

# What a machine asks for at once is asked for by then
WAIT_MS = bot_detection.MANY_MS + 500
# A clock that was set back leaves hits of the future, which wait for nothing
_FUTURE_MS = 60_000
_AT_ONCE = 50
_GIVEN_UP = (
    "UPDATE hit SET verdict = 'unsure', reason = 'not_judged' WHERE verdict IS NULL AND message_id = ? AND at <= ?"
)
log = logging.getLogger("campanero.tracking")
_DUE = "verdict IS NULL AND (at <= ? OR at > ?)"


def is_due() -> bool:
    """Return whether hits wait to be judged."""
    return fetch_one(f"SELECT 1 FROM hit WHERE {_DUE} LIMIT 1", _bounds(clock.now_ms())) is not None


def _bounds(now: int) -> tuple[int, int]:
    return now - WAIT_MS, now + _FUTURE_MS


class Settler:
    """Judges what is due; one thread at a time, and a ring meanwhile is answered by the one at work."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._working = threading.Lock()

    def tend(self) -> None:
        """Judge until nothing is due, in transactions that keep nobody waiting."""
        if not self._working.acquire(blocking=False):
            return
        try:
            targets = Targets()
            while not self.stopping.is_set():
                begun = time.perf_counter()
                if not _some(targets):
                    return
                # Who asks meanwhile is answered first
                self.stopping.wait(time.perf_counter() - begun)
        finally:
            self._working.release()


def _some(targets: Targets) -> int:
    now = clock.now_ms()
    due = rows(
        f"SELECT message_id, number, at, user_agent FROM hit WHERE {_DUE} ORDER BY at LIMIT {_AT_ONCE}", _bounds(now)
    )
    if not due:
        return 0
    # Read here and kept, so that the writer finds it read
    for agent in {row[3] for row in due}:
        agents.device(agent)
    cases: dict[int, Case] = {}
    for wanted, found in targets.find(Wanted(row[0], row[1]) for row in due if row[0] is not None).items():
        before = cases.get(wanted.message_id, Case(found, {}))
        cases[wanted.message_id] = Case(found, {**before.urls, wanted.number: found.url})
    moments = [row[2] for row in due]
    first, last = min(moments), max(moments)
    for number in {row[0] for row in due if row[0] is not None} - cases.keys():
        work.write(run, _GIVEN_UP, (number, last))
    try:
        return work.write(_settle, [*cases.values()], first, last)
    except Unavailable:
        raise
    except Exception:
        log.exception("hits cannot be judged together")
    return sum([_alone(case, first, last) for case in cases.values()])


def _alone(case: Case, first: int, last: int) -> int:
    """Judge the hits of one message; of one that cannot be judged nothing is counted, and it keeps no other waiting."""
    try:
        return work.write(_settle, [case], first, last)
    except Unavailable:
        raise
    except Exception:
        log.exception("the hits of message %s cannot be judged", case.found.message_id)
    return work.write(run, _GIVEN_UP, (case.found.message_id, last))


def _settle(cases: list[Case], first: int, last: int) -> int:
    writing()
    count = hits.settle(cases, first, last) if cases else 0
    # Erased since: whose it was is gone, and with it what could tell
    return count + run(
        "UPDATE hit SET verdict = 'unsure', reason = 'erased' WHERE verdict IS NULL AND message_id IS NULL "
        "AND at BETWEEN ? AND ?",
        (first, last),
    )


# Judges all hits again by today's rules: what is learned about machines later corrects what was counted before.

# Messages in one transaction, and hits of one that are looked at, the latest first
_REJUDGED_AT_ONCE, _MOST = 50, 1_000
_HITS = (
    "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id FROM "
    "(SELECT * FROM hit WHERE message_id = ? AND verdict IS NOT NULL ORDER BY at DESC, id DESC LIMIT ?) ORDER BY at, id"
)


def judge_all(since: int = 0) -> tuple[int, int]:
    """Judge the hits of all messages that were asked for since a moment; returns how many messages, and changed hits.

    What was counted for nobody in particular stays as it was judged: nothing is kept by which it could be judged again.
    """
    targets = Targets()
    looked = changed = last = 0
    while True:
        ids = [
            row[0]
            for row in rows(
                "SELECT DISTINCT message_id FROM hit WHERE message_id > ? AND at >= ? ORDER BY message_id LIMIT ?",
                (last, since, _REJUDGED_AT_ONCE),
            )
        ]
        if not ids:
            return looked, changed
        changed += work.write(_judge, targets, ids)
        looked, last = looked + len(ids), ids[-1]


def _judge(targets: Targets, ids: list[int]) -> int:
    writing()
    count = 0
    for wanted, found in targets.find(Wanted(number, None) for number in ids).items():
        known = [corrections.kept(row) for row in rows(_HITS, (wanted.message_id, _MOST))]
        verdicts = bot_detection.judge([hit.seen for hit in known], found.handed_over_at, found.links)
        changes = corrections.changes(zip(known, verdicts, strict=True))
        if changes:
            corrections.correct(found, changes)
            count += len(changes)
    return count
