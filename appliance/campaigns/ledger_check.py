"""Holds what is counted of a campaign against the rows of its ledger; they must never differ.

The sums that are shown are counted from the rows, so they cannot drift; what can are the counts kept beside them. The
quick look costs one count and is taken again and again while a campaign moves; the thorough one reads every row, in
stretches, when a campaign has ended and when `doctor` is asked.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from appliance.campaigns import store
from appliance.core.errors import NotFound
from appliance.storage.models import Campaign
from appliance.storage.open import fetch_one, rows, scalar

log = logging.getLogger("campanero.books")

_STRETCH = 5_000
# In the service; sorting more addresses than this takes memory that belongs to others
_MAX_SORTED = 100_000
# A look may take this share of the time
_SHARE = 0.02
_NO_EVENT = (
    "SELECT count(*), min(id) FROM message m WHERE id > ? AND id <= ? AND campaign_id = ? "
    "AND status IN ('sent', 'delivered', 'bounced', 'complained') AND recipient_key IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM event e WHERE e.account_id = m.account_id AND e.resource_uid = 'message:' || m.id "
    "AND e.event = m.channel || '_sent') "
    # Before that moment events were deleted for their age
    "AND m.sent_at >= coalesce((SELECT events_since FROM account WHERE id = m.account_id), 0)"
)
_TWICE = (
    "SELECT count(*), min(id) FROM (SELECT recipient_key, min(id) AS id FROM message WHERE campaign_id = ? "
    "AND recipient_key IS NOT NULL GROUP BY recipient_key HAVING count(*) > 1)"
)


def quick(campaign: Campaign) -> list[str]:
    """Compare a campaign, loaded with its sums at one moment, with its rows; returns what differs, in words."""
    stats, found = campaign.stats, []
    if stats["audience"] != campaign.audience_count:
        found.append(f"{campaign.audience_count} people were written down, {stats['audience']} have a row")
    accepted = 0 if campaign.test else stats["accepted"]
    if campaign.sent_count != accepted:
        found.append(f"{campaign.sent_count} messages were counted as sent, {accepted} rows say so")
    if campaign.phase == "completed" and stats["pending"]:
        found.append(f"it is completed, and {stats['pending']} rows are open")
    return found


def thorough(campaign: Campaign, process: str | None = None, most_sorted: int | None = None) -> Iterator[list[str]]:
    """Read every row of a campaign, a stretch each time; yields what is wrong, in words.

    `process` is the one that may have rows in hand; None where that is not known.
    """
    first, last = fetch_one("SELECT min(id) - 1, max(id) FROM message WHERE campaign_id = ?", (campaign.id,)) or (
        None,
        None,
    )
    if first is None:
        return
    for begin in range(first, last, _STRETCH):
        yield _wrong(
            "rows are sent and have no event", _NO_EVENT, (begin, min(begin + _STRETCH, last), campaign.id)
        )  # fmt: skip
    if most_sorted is None or campaign.audience_count <= most_sorted:
        yield _wrong("addresses have more than one row", _TWICE, (campaign.id,))
    yield _wrong(
        "rows are open and never due", "SELECT count(*), min(id) FROM message WHERE campaign_id = ? "
        "AND status IN ('queued', 'held') AND due_at IS NULL", (campaign.id,),
    )  # fmt: skip
    if process is not None:
        yield _wrong(
            "rows are in the hands of a process that is gone", "SELECT count(*), min(id) FROM message "
            "WHERE campaign_id = ? AND status = 'sending' AND claimed_by IS DISTINCT FROM ?", (campaign.id, process),
        )  # fmt: skip


def _wrong(words: str, sql: str, values: tuple[Any, ...]) -> list[str]:
    count, first = rows(sql, values)[0]
    return [f"{count} {words}, the first is {first}"] if count else []


def of_people(account_id: int) -> list[str]:
    """Compare what is counted with people and rows of an account; imports and merged people may explain it."""
    found = scalar(
        "SELECT count(*) FROM contact c JOIN (SELECT contact_id, count(*) AS accepted FROM message "
        "WHERE account_id = ?1 AND contact_id IS NOT NULL AND channel = 'email' AND test = 0 "
        "AND status IN ('sent', 'delivered', 'bounced', 'complained') GROUP BY contact_id) m ON m.contact_id = c.id "
        "WHERE c.account_id = ?1 AND c.email_sent_count < m.accepted",
        (account_id,),
    )
    return [f"{found} people have more messages than are counted with them"] if found else []


class _Seen(NamedTuple):
    """How a campaign was when it was last looked at, and when to look again."""

    state: tuple[Any, ...]
    again: float


class Keeper:
    """Looks at the books of campaigns that move, in one process, and says in the log what does not balance."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._busy = threading.Lock()
        self._seen: dict[int, _Seen] = {}
        self._said: dict[int, list[str]] = {}

    def look(self) -> None:
        """Look at what has moved since; a second call meanwhile does nothing."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            live = {row[1]: row for row in rows(
                "SELECT account_id, id, sent_count, audience_count, phase, updated_at FROM campaign "
                "WHERE phase IN ('sending', 'holding', 'paused') AND deleted_at IS NULL"
            )}  # fmt: skip
            for campaign_id, row in live.items():
                self._look(row[0], campaign_id, row[2:])
            for campaign_id in [number for number in self._seen if number not in live]:
                self._ended(campaign_id)
        finally:
            self._busy.release()

    def _look(self, account_id: int, campaign_id: int, state: tuple[Any, ...]) -> None:
        begun = time.monotonic()
        seen = self._seen.get(campaign_id)
        if seen is not None and (seen.state == state or seen.again > begun):
            return
        try:
            found = quick(store.get(account_id, campaign_id))
        except NotFound:
            found = []
        now = time.monotonic()
        self._seen[campaign_id] = _Seen(state, now + max(1.0, (now - begun) / _SHARE))
        self._say(campaign_id, found)

    def _ended(self, campaign_id: int) -> None:
        """Look at every row of a campaign that has ended, once."""
        del self._seen[campaign_id]
        campaign = store.summed(campaign_id)
        found: list[str] = []
        if campaign is not None and campaign.closing is None and campaign.started_at is not None:
            found += quick(campaign)
            for wrong in thorough(campaign, self._process, _MAX_SORTED):
                found += wrong
                time.sleep(0.002)  # requests go first
        self._say(campaign_id, found)
        self._said.pop(campaign_id, None)

    def _say(self, campaign_id: int, found: list[str]) -> None:
        if found and found != self._said.get(campaign_id):
            log.error("the books of campaign %s do not balance: %s", campaign_id, "; ".join(found))
        self._said[campaign_id] = found
