"""Store requests for tracking pixels and links, and judge later whether a person or a machine made them.

A hit is stored at once as it was received, and judged a moment later together with the other hits of its message
(`HitJudge`). Judging records an event for the first open of a message and for the first click of each link, separately
for people and machines, so that fifty opens of an email give one event. Hits of a contact with `aggregate` tracking are
stored without the contact and client. Hits of a contact with `none` are not stored, even if the email was sent before
that choice.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from appliance.core import addresses, clock, signals
from appliance.core.errors import Unavailable
from appliance.events import user_agents
from appliance.sending.messages.links import LinkRequest, LinkResolver, TrackedMessage
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, run_set
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.tracking import bot_detection, engagement
from appliance.tracking.bot_detection import MACHINE, ObservedHit, Verdict
from appliance.tracking.engagement import HitEvent, StoredHit

# The limit of stored hits for a message, more than a person causes, and the maximum number of messages whose hits are
# counted in memory.
MAX_HITS_PER_MESSAGE, _MAX_COUNTED_MESSAGES = 1_000, 100_000
_stored_ip = lru_cache(maxsize=4_096)(addresses.anonymize_ip)
_HIT_COLUMNS = (
    "account_id", "campaign_id", "message_id", "kind", "number", "method", "ip", "user_agent", "referrer", "verdict",
    "reason", "test", "at",
)  # fmt: skip
# For `run_set`; each item is a row of these columns.
_INSERT_HITS = (
    f"INSERT INTO hit ({', '.join(_HIT_COLUMNS)}) "
    f"SELECT {', '.join(f'value ->> {place}' for place in range(len(_HIT_COLUMNS)))} FROM json_each(:items)"
)
_SELECT_HITS = (
    "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id, referrer FROM hit "
    "WHERE message_id IN ({ids}) AND at > ? ORDER BY at, id"
)
# For `run_set`; an item is (verdict, reason, id of the event, id of the hit).
_UPDATE_VERDICTS = (
    "UPDATE hit SET verdict = value ->> 0, reason = value ->> 1, event_id = value ->> 2 FROM json_each(:items) "
    "WHERE hit.id = value ->> 3"
)
# For hits of contacts who chose anonymous tracking after the hit was stored.
_ANONYMIZE = (
    "UPDATE hit SET message_id = NULL, ip = NULL, user_agent = NULL, referrer = NULL, verdict = ?, reason = ? "
    "WHERE id = ?"
)


class HitRequest(NamedTuple):
    """A request for a tracking pixel or link, with its texts already truncated.

    `number` is the number of the link, or None for the pixel. `agent` is the user agent, `at` the time in milliseconds.
    `method` is the HTTP method, or `PREFETCH` for a prefetch that the browser announced.
    """

    number: int | None
    method: str
    ip: str | None
    agent: str | None
    referrer: str | None
    at: int


class Hit(NamedTuple):
    """A request for a tracking pixel or link of a known message."""

    request: HitRequest
    message: TrackedMessage


class MessageHits(NamedTuple):
    """A message whose hits are to be judged; `urls` are the targets of its links by number (None for the pixel)."""

    message: TrackedMessage
    urls: Mapping[int | None, str | None]


class HitLimiter:
    """A counter of the hits of each message, which limits stored hits to `MAX_HITS_PER_MESSAGE`; for use by one thread.

    The counts are kept in memory. They start again at zero when `_MAX_COUNTED_MESSAGES` messages were counted.
    """

    def __init__(self) -> None:
        self._counts = Counter[int]()

    def allows(self, message_id: int) -> bool:
        """Count a hit of a message and return whether it may be stored."""
        if len(self._counts) >= _MAX_COUNTED_MESSAGES:
            self._counts.clear()
        self._counts[message_id] += 1
        return self._counts[message_id] <= MAX_HITS_PER_MESSAGE


def is_tracked(message: TrackedMessage) -> bool:
    """Return whether hits of a message are stored: the contact's tracking is not `none`."""
    return message.tracking != "none"


def store_hits(batch: Sequence[Hit]) -> None:
    """Store hits without judging them, in the current write transaction; anonymous hits get their verdict at once."""
    require_write_transaction()
    run_set(_INSERT_HITS, [_hit_row(hit) for hit in batch])


def record_hits(batch: Sequence[Hit]) -> None:
    """Store hits and judge them at once, in the current write transaction, without waiting for later hits."""
    store_hits(batch)
    hits_by_message: dict[int, MessageHits] = {}
    for hit in batch:
        if hit.message.tracking == "full":
            previous = hits_by_message.get(hit.message.message_id, MessageHits(hit.message, {}))
            hits_by_message[hit.message.message_id] = MessageHits(
                hit.message, {**previous.urls, hit.request.number: hit.message.url}
            )
    if hits_by_message:
        judge_stored_hits(
            [*hits_by_message.values()], min(hit.request.at for hit in batch), max(hit.request.at for hit in batch)
        )


def judge_stored_hits(cases: Sequence[MessageHits], first: int, last: int) -> int:
    """Judge the stored hits of some messages, write the verdicts, and return the number of new hits.

    `first` and `last` are times in milliseconds. New hits after `last` stay unjudged. Hits that already have a verdict
    are judged again if they are at most SAME_CLIENT_MS older than `first`; verdicts that change are corrected. New hits
    of contacts whose tracking is no longer `full` are deleted or anonymised.
    """
    require_write_transaction()
    stored: dict[int, list[tuple[StoredHit, str | None]]] = {case.message.message_id: [] for case in cases}
    ids = ",".join(map(str, stored))
    for row in rows(_SELECT_HITS.format(ids=ids), (first - bot_detection.SAME_CLIENT_MS,)):
        stored[row[1]].append((engagement.read_stored_hit(row), row[11]))
    judged: list[tuple[int, HitEvent]] = []
    changed: list[tuple[TrackedMessage, list[engagement.VerdictChange]]] = []
    count = 0
    for case in cases:
        stored_hits = stored[case.message.message_id]
        if case.message.tracking == "full":
            count += _judge_message(case, stored_hits, last, judged, changed)
        else:
            count += _drop_withdrawn(case.message, [hit for hit, _ in stored_hits], last)
    _write_verdicts(judged)
    for message, changes in changed:
        engagement.apply_changes(message, changes)
    if judged:
        after_commit(lambda: signals.wake("flows"))
    return count


def _judge_message(
    case: MessageHits, stored_hits: list[tuple[StoredHit, str | None]], last: int, new: list[tuple[int, HitEvent]],
    changed: list[tuple[TrackedMessage, list[engagement.VerdictChange]]],
) -> int:  # fmt: skip
    """Judge the hits of a message together, and return the number of new ones up to the time `last`.

    Adds the new hits with their verdicts to `new`, and changed verdicts of earlier hits to `changed`.
    """
    message = case.message
    verdicts = bot_detection.judge_hits([hit.observed for hit, _ in stored_hits], message.accepted_at, message.links)
    judged_before, new_count = [], 0
    for (hit, referrer), verdict in zip(stored_hits, verdicts, strict=True):
        if hit.verdict is not None:
            judged_before.append((hit, verdict))
        elif hit.observed.at <= last:
            new_count += 1
            with_url = message._replace(url=case.urls.get(hit.observed.number))
            new.append((hit.id, HitEvent(with_url, hit.observed, referrer, verdict)))
    changes = engagement.find_changes(judged_before)
    if changes:
        changed.append((message, changes))
    return new_count


def _drop_withdrawn(message: TrackedMessage, stored_hits: Iterable[StoredHit], last: int) -> int:
    """Delete or anonymise the unjudged hits, up to the time `last`, of a contact whose tracking is no longer `full`.

    They are deleted if the tracking is `none`, and anonymised if it is `aggregate`. Returns their number.
    """
    pending = [hit for hit in stored_hits if hit.verdict is None and hit.observed.at <= last]
    for hit in pending:
        if is_tracked(message):
            run(_ANONYMIZE, (*bot_detection.judge_hit(hit.observed, message.accepted_at), hit.id))
        else:
            run("DELETE FROM hit WHERE id = ?", (hit.id,))
    return len(pending)


def _write_verdicts(new: list[tuple[int, HitEvent]]) -> None:
    """Write the verdicts of new hits and record the events of first opens and clicks.

    Also counts the hits that are not by machines. `new` contains (id of the hit, its event).
    """
    recorded = engagement.fetch_recorded_keys({hit_event.message.message_id for _, hit_event in new})
    first_events: list[HitEvent] = []
    positions: list[int | None] = []
    for _, hit_event in new:
        key = (
            hit_event.message.message_id,
            hit_event.hit.kind,
            hit_event.hit.number,
            hit_event.verdict.verdict == MACHINE,
        )
        is_first = key not in recorded
        positions.append(len(first_events) if is_first else None)
        if is_first:
            recorded.add(key)
            first_events.append(hit_event)
    events = engagement.record_hit_events(first_events)
    judged = [
        (*hit_event.verdict, None if position is None else events[position], hit_id)
        for (hit_id, hit_event), position in zip(new, positions, strict=True)
    ]
    run_set(_UPDATE_VERDICTS, judged)
    engagement.count_engagement(
        [
            (hit_event.message, hit_event.hit, hit_event.verdict)
            for _, hit_event in new
            if hit_event.verdict.verdict != MACHINE
        ]
    )


def _hit_row(hit: Hit) -> tuple[Any, ...]:
    request, message = hit
    kind = "open" if request.number is None else "click"
    if message.tracking == "full":
        client: tuple[Any, ...] = (_stored_ip(request.ip, message.privacy_ip), request.agent, request.referrer)
        return (
            message.account_id, message.campaign_id, message.message_id, kind, request.number, request.method, *client,
            None, None, message.test, request.at,
        )  # fmt: skip
    verdict = _judge_anonymous_hit(request, kind, message)
    return (
        message.account_id, message.campaign_id, None, kind, request.number, request.method, None, None, None,
        *verdict, message.test, request.at,
    )  # fmt: skip


def _judge_anonymous_hit(request: HitRequest, kind: str, message: TrackedMessage) -> Verdict:
    """Return the verdict of an anonymous hit.

    The hit is judged without regard to other hits when it is stored, because its client is not stored.
    """
    return bot_detection.judge_hit(
        ObservedHit(request.at, kind, request.number, request.method, None, request.agent), message.accepted_at
    )


# Judging waits for WAIT_MS after a hit, because scanners are recognised by the hits that follow.
#
# Otherwise flows would react to clicks that turn out to be by machines a second later. Waiting hits are rows of the
# table `hit`, so that they are judged after a crash too.

# After this time, all hits of a machine's burst have arrived.
WAIT_MS = bot_detection.BURST_MS + 500
# A hit further in the future was stored before the clock was set back, and is judged at once.
_FUTURE_MS = 60_000
_BATCH_SIZE = 50
_GIVE_UP = (
    "UPDATE hit SET verdict = 'unsure', reason = 'not_judged' WHERE verdict IS NULL AND message_id = ? AND at <= ?"
)
log = logging.getLogger("campanero.tracking")
_IS_DUE = "verdict IS NULL AND (at <= ? OR at > ?)"


def has_due_hits() -> bool:
    """Return whether stored hits are due to be judged."""
    return fetch_one(f"SELECT 1 FROM hit WHERE {_IS_DUE} LIMIT 1", _due_bounds(clock.now_ms())) is not None


def _due_bounds(now: int) -> tuple[int, int]:
    return now - WAIT_MS, now + _FUTURE_MS


class HitJudge:
    """The job that judges due hits; only one thread at a time runs it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Judge due hits in batches, each in a transaction, until none is due or `stopping` is set.

        Returns at once if another thread is already judging.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            targets = LinkResolver()
            while not self.stopping.is_set():
                started = time.perf_counter()
                if not _judge_batch(targets):
                    return
                # A pause as long as the batch leaves half of the writer's time to other jobs.
                self.stopping.wait(time.perf_counter() - started)
        finally:
            self._lock.release()


def _judge_batch(targets: LinkResolver) -> int:
    now = clock.now_ms()
    due = rows(
        f"SELECT message_id, number, at, user_agent FROM hit WHERE {_IS_DUE} ORDER BY at LIMIT {_BATCH_SIZE}",
        _due_bounds(now),
    )
    if not due:
        return 0
    # Fill the cache of parsed user agents now, so that parsing does not prolong the write transaction.
    for agent in {row[3] for row in due}:
        user_agents.parse_device(agent)
    cases: dict[int, MessageHits] = {}
    for link_request, message in targets.resolve(
        LinkRequest(row[0], row[1]) for row in due if row[0] is not None
    ).items():
        previous = cases.get(link_request.message_id, MessageHits(message, {}))
        cases[link_request.message_id] = MessageHits(message, {**previous.urls, link_request.number: message.url})
    times = [row[2] for row in due]
    first, last = min(times), max(times)
    for message_id in {row[0] for row in due if row[0] is not None} - cases.keys():
        transactions.write(run, _GIVE_UP, (message_id, last))
    try:
        return transactions.write(_judge_cases, [*cases.values()], first, last)
    except Unavailable:
        raise
    except Exception:
        log.exception("tracking: hits could not be judged together; judging each message alone")
    return sum([_judge_separately(case, first, last) for case in cases.values()])


def _judge_separately(case: MessageHits, first: int, last: int) -> int:
    """Judge the hits of one message in a transaction of their own, and return their number.

    If that fails, the hits get the verdict `unsure` and are not counted, so that they do not block others. Only
    Unavailable is raised, so that the hits are judged later.
    """
    try:
        return transactions.write(_judge_cases, [case], first, last)
    except Unavailable:
        raise
    except Exception:
        log.exception("tracking: hits could not be judged message=%s", case.message.message_id)
    return transactions.write(run, _GIVE_UP, (case.message.message_id, last))


def _judge_cases(cases: list[MessageHits], first: int, last: int) -> int:
    require_write_transaction()
    count = judge_stored_hits(cases, first, last) if cases else 0
    # Hits lose their message when the contact is erased, and cannot be judged after that.
    return count + run(
        "UPDATE hit SET verdict = 'unsure', reason = 'erased' WHERE verdict IS NULL AND message_id IS NULL "
        "AND at BETWEEN ? AND ?",
        (first, last),
    )


# Judging all stored hits again after a change of the rules, to correct verdicts and counts.

# The number of messages in a transaction, and the maximum of hits of a message that are judged again, the latest ones.
_REJUDGE_BATCH_SIZE, _MAX_REJUDGED_HITS = 50, 1_000
_SELECT_JUDGED = (
    "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id FROM "
    "(SELECT * FROM hit WHERE message_id = ? AND verdict IS NOT NULL ORDER BY at DESC, id DESC LIMIT ?) ORDER BY at, id"
)


def rejudge_all(since: int = 0) -> tuple[int, int]:
    """Judge again, by the current rules, the hits of all messages with a hit since `since` (milliseconds).

    Returns (number of messages, number of changed verdicts). Only the last `_MAX_REJUDGED_HITS` hits of a message are
    judged. Anonymous hits keep their verdicts, because their clients are not stored. Each batch of messages is a
    transaction.
    """
    targets = LinkResolver()
    message_count = changed = last = 0
    while True:
        ids = [
            row[0]
            for row in rows(
                "SELECT DISTINCT message_id FROM hit WHERE message_id > ? AND at >= ? ORDER BY message_id LIMIT ?",
                (last, since, _REJUDGE_BATCH_SIZE),
            )
        ]
        if not ids:
            return message_count, changed
        changed += transactions.write(_rejudge_messages, targets, ids)
        message_count, last = message_count + len(ids), ids[-1]


def _rejudge_messages(targets: LinkResolver, ids: list[int]) -> int:
    require_write_transaction()
    count = 0
    for link_request, message in targets.resolve(LinkRequest(number, None) for number in ids).items():
        stored_hits = [
            engagement.read_stored_hit(row)
            for row in rows(_SELECT_JUDGED, (link_request.message_id, _MAX_REJUDGED_HITS))
        ]
        verdicts = bot_detection.judge_hits([hit.observed for hit in stored_hits], message.accepted_at, message.links)
        changes = engagement.find_changes(zip(stored_hits, verdicts, strict=True))
        if changes:
            engagement.apply_changes(message, changes)
            count += len(changes)
    return count
