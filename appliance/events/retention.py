"""Deletes events for their age, where the configuration wants that; never one that somebody still has to see.

Kept are events that no reader of the log has come to, those on their way to a webhook, and all that happened to people
since they came into a flow that they are still in, with what brought them there.
"""

import logging
import threading
import time
from typing import Any, NamedTuple

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.core.rested import Rested
from appliance.settings import config
from appliance.storage import work
from appliance.storage.open import rows, run
from appliance.storage.work import writing

log = logging.getLogger("campanero.events")

# So many go in one transaction, which takes a few milliseconds
_CHUNK = 400
_BY_FLOWS = "coalesce((SELECT event_id FROM cursor WHERE name = 'flows'), 0)"
_BY_ALL = "coalesce((SELECT min(event_id) FROM cursor), 0)"
_SEEN = f"e.id <= min({_BY_FLOWS}, {_BY_ALL})"
_NEEDED = (
    "(EXISTS (SELECT 1 FROM run r WHERE r.contact_id = e.contact_id AND r.status = 'live' "
    "AND (r.created_at <= e.created_at OR r.event_id = e.id)) "
    "OR EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.event_id = e.id AND d.status = 'pending'))"
)
_NEXT = (
    f"SELECT e.id, e.created_at FROM event e INDEXED BY event_listed WHERE e.account_id = :account "
    "AND (e.created_at, e.id) > (:at, :last) AND e.created_at < :before "
    f"AND {_SEEN} AND NOT {_NEEDED} ORDER BY e.created_at, e.id LIMIT {_CHUNK}"
)
_working = threading.Lock()


def tend(stopping: threading.Event) -> None:
    """Delete what is old enough; one thread at a time, in small transactions that let others go first."""
    days = config.seconds(config.current().events.keep)
    if not days or not _working.acquire(blocking=False):
        return
    try:
        before = clock.now_ms() - int(days * 1000)
        for (account_id,) in rows("SELECT id FROM account"):
            gone = _account(account_id, before, stopping)
            if gone:
                log.info("%d events of account %d were older than %s", gone, account_id, config.current().events.keep)
    finally:
        _working.release()


def _account(account_id: int, before: int, stopping: threading.Event) -> int:
    """Delete an account's events from before a moment; returns how many went."""
    asked: dict[str, Any] = {"account": account_id, "before": before, "at": -1, "last": 0}
    gone = 0
    while not stopping.is_set() and (found := rows(_NEXT, asked)):
        begun = time.perf_counter()
        try:
            gone += work.write(_delete, account_id, before, [row[0] for row in found])
        except Unavailable:
            if work.is_stopped():
                break
            raise
        asked |= {"last": found[-1][0], "at": found[-1][1]}
        stopping.wait(time.perf_counter() - begun)
    return gone


def _delete(account_id: int, before: int, ids: list[int]) -> int:
    """Delete events, unless they are needed by now, and note from when on events are whole."""
    writing()
    run(
        "UPDATE account SET events_since = :before WHERE id = :account AND coalesce(events_since, 0) < :before",
        {"account": account_id, "before": before},
    )
    return run(f"DELETE FROM event AS e WHERE e.id IN ({','.join(map(str, ids))}) AND NOT {_NEEDED}")


# What mailbox providers judge a sender by: how much came back, and how much was called spam.

_DAY_MS = 86_400_000
_SQL = (
    "SELECT event, count(*) FROM event INDEXED BY event_of_name WHERE account_id = ? AND event IN "
    "('email_sent', 'email_bounced', 'email_complained', 'sms_sent', 'sms_failed') AND created_at >= ? AND test = 0 "
    "GROUP BY event"
)
_known: Rested["Health"] = Rested(least=10)


class Health(NamedTuple):
    """What was handed over in so many days, and what became of it."""

    days: int
    sent: int
    bounced: int
    complained: int
    texts: int
    texts_failed: int


def mail_health(account_id: int, days: int = 30) -> Health:
    """Return how the mail of an account fared lately."""

    def count() -> Health:
        found: dict[str, int] = dict(rows(_SQL, (account_id, clock.now_ms() - days * _DAY_MS)))
        names = ("email_sent", "email_bounced", "email_complained", "sms_sent", "sms_failed")
        return Health(days, *(found.get(name, 0) for name in names))

    return _known.get((account_id, days), count)
