"""Checks that a campaign's stored counters agree with its rows in the ledger; the two must never differ.

The sums that pages show are counted from the rows and cannot be wrong, but the counters stored in the campaign can. The
quick check costs one count and is repeated while a campaign is live. The thorough check reads every row, in batches,
when a campaign has ended and when `doctor` runs.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from appliance.campaigns import store, variants
from appliance.core.errors import NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.experiments.assignment import HELD_OUT
from appliance.storage.database import rows, scalar
from appliance.storage.models import Campaign

log = logging.getLogger("campanero.books")

_BATCH_ROWS = 5_000
# The running service looks for duplicate addresses only in campaigns of up to this many contacts, because sorting more
# addresses takes memory that other work needs.
_MAX_SORTED = 100_000
# The largest share of the time that the checks of one campaign may take.
_MAX_SHARE_OF_TIME = 0.02
_MISSING_EVENTS = (
    "SELECT count(*), min(id) FROM message m WHERE id > ? AND id <= ? AND campaign_id = ? "
    "AND status IN ('sent', 'delivered', 'bounced', 'complained') AND recipient_key IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM event e WHERE e.account_id = m.account_id AND e.resource_uid = 'message:' || m.id "
    "AND e.event = m.channel || '_sent') "
    # Earlier events were deleted by retention.
    "AND m.sent_at >= coalesce((SELECT events_since FROM account WHERE id = m.account_id), 0)"
)
# The ids of a campaign can be far apart: new ids after a restore continue at the time (`restore._skip_used_ids`).
_BATCH_END = (
    "SELECT max(id) FROM (SELECT id FROM message NOT INDEXED WHERE id > ? AND id <= ? AND campaign_id = ? "
    "ORDER BY id LIMIT ?)"
)
_DUPLICATE_ADDRESSES = (
    "SELECT count(*), min(id) FROM (SELECT recipient_key, min(id) AS id FROM message WHERE campaign_id = ? "
    "AND recipient_key IS NOT NULL GROUP BY recipient_key HAVING count(*) > 1)"
)
_NEVER_DUE = (
    "SELECT count(*), min(id) FROM message WHERE campaign_id = ? AND status IN ('queued', 'held') AND due_at IS NULL "
    "AND (variant IS NOT 0 OR EXISTS (SELECT 1 FROM experiment x WHERE x.campaign_id = message.campaign_id "
    "AND x.state IN ('draft', 'decided')))"
)
_CLAIMED_BY_ENDED_PROCESS = (
    "SELECT count(*), min(id) FROM message WHERE campaign_id = ? AND status = 'sending' "
    "AND claimed_by IS DISTINCT FROM ?"
)
_COUNT_VARIANTS = (
    "SELECT variant, variant_batch, count(*) FROM message WHERE campaign_id = ? AND variant NOT NULL GROUP BY 1, 2"
)
_SENT_WITHOUT_EVENT = gettext_noop("%(count)s sent messages have no event; the first is %(first)s")
_SENT_TWICE = gettext_noop("%(count)s addresses have more than one message; the first is %(first)s")
_OPEN_AND_NEVER_DUE = gettext_noop("%(count)s open messages are never due; the first is %(first)s")
_ABANDONED = gettext_noop("%(count)s messages were being sent by a process that has ended; the first is %(first)s")


def check_quickly(campaign: Campaign) -> list[str]:
    """Return the differences between a campaign's counters and its messages as texts; `campaign.stats` must be set."""
    stats, differences = campaign.stats, []
    if stats["audience"] != campaign.audience_count:
        differences.append(
            gettext(
                "the counter of recipients is %(counter)s, but %(actual)s have a message",
                counter=campaign.audience_count, actual=stats["audience"],
            )
        )  # fmt: skip
    accepted = 0 if campaign.test else stats["accepted"]
    if campaign.sent_count != accepted:
        differences.append(
            gettext(
                "the counter of sent messages is %(counter)s, but %(actual)s were sent",
                counter=campaign.sent_count, actual=accepted,
            )
        )  # fmt: skip
    if campaign.phase == "completed" and stats["pending"]:
        differences.append(gettext("it is completed, but %(count)s messages are open", count=stats["pending"]))
    return differences


def check_thoroughly(
    campaign: Campaign, process: str | None = None, max_sorted: int | None = None
) -> Iterator[list[str]]:
    """Check every row of a campaign; after each query, yield the differences it found as texts (usually none).

    `process` is the id of the only process that may be sending; with None, rows of ended processes are not looked for.
    Duplicate addresses are not looked for in an audience of more than `max_sorted` contacts (None: no limit).
    """
    start, last_id = rows("SELECT min(id) - 1, max(id) FROM message WHERE campaign_id = ?", (campaign.id,))[0]
    if start is None:
        return
    while (end := scalar(_BATCH_END, (start, last_id, campaign.id, _BATCH_ROWS))) is not None:
        yield _describe_rows(_MISSING_EVENTS, (start, end, campaign.id), _SENT_WITHOUT_EVENT)
        start = end
    if max_sorted is None or campaign.audience_count <= max_sorted:
        yield _describe_rows(_DUPLICATE_ADDRESSES, (campaign.id,), _SENT_TWICE)
    yield _describe_rows(_NEVER_DUE, (campaign.id,), _OPEN_AND_NEVER_DUE)
    yield _compare_variants(campaign)
    if process is not None:
        yield _describe_rows(_CLAIMED_BY_ENDED_PROCESS, (campaign.id, process), _ABANDONED)


def _compare_variants(campaign: Campaign) -> list[str]:
    """Return the differences between the counters of an A/B test, by which variants are compared, and the messages."""
    setup = variants.find(campaign.id)
    if setup is None or not setup.experiment.batches:
        return []
    expected: dict[tuple[int, int | None], int] = {(HELD_OUT, None): setup.experiment.held_out_count}
    for batch, stored in enumerate(setup.experiment.batches, 1):
        expected |= {(number, batch): size for number, size in enumerate(stored["sizes"], 1)}
    actual = {(row[0], row[1]): row[2] for row in rows(_COUNT_VARIANTS, (campaign.id,))}
    compared = expected.keys() | {key for key in actual if key[1] is not None}
    return [
        gettext(
            "the counter of variant %(variant)s is %(counter)s, but %(actual)s have a message",
            variant=number, counter=expected.get((number, batch), 0), actual=actual.get((number, batch), 0),
        )
        for number, batch in sorted(compared, key=str)
        if expected.get((number, batch), 0) != actual.get((number, batch), 0)
    ]  # fmt: skip


def _describe_rows(sql: str, values: tuple[Any, ...], text: str) -> list[str]:
    """Return `text` with the number of rows and the first id that a query finds, or nothing if it finds none."""
    count, first = rows(sql, values)[0]
    return [gettext(text, count=count, first=first)] if count else []


def check_contacts(account_id: int) -> list[str]:
    """Return a text if any contact of the account has more accepted emails in the ledger than in `email_sent_count`.

    Imports and merges may be the cause.
    """
    count = scalar(
        "SELECT count(*) FROM contact c JOIN (SELECT contact_id, count(*) AS accepted FROM message "
        "WHERE account_id = ?1 AND contact_id IS NOT NULL AND channel = 'email' AND test = 0 "
        "AND status IN ('sent', 'delivered', 'bounced', 'complained') GROUP BY contact_id) m ON m.contact_id = c.id "
        "WHERE c.account_id = ?1 AND c.email_sent_count < m.accepted",
        (account_id,),
    )
    return [gettext("%(count)s contacts have more sent emails than their counter says", count=count)] if count else []


class _CheckedCampaign(NamedTuple):
    """The state of a campaign at its last check, and the earliest time of the next check in monotonic seconds."""

    state: tuple[Any, ...]
    again: float


class LedgerChecker:
    """The periodic check of all campaigns in one process, which logs differences when they change."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._busy = threading.Lock()
        self._last_checks: dict[int, _CheckedCampaign] = {}
        self._reported: dict[int, list[str]] = {}

    def check_changed(self) -> None:
        """Check live campaigns that changed since the last call, and every row of campaigns that have ended since.

        Return at once if another thread is already checking.
        """
        if not self._busy.acquire(blocking=False):
            return
        try:
            live = {row[1]: row for row in rows(
                "SELECT account_id, id, sent_count, audience_count, phase, updated_at FROM campaign "
                "WHERE phase IN ('sending', 'holding', 'paused') AND deleted_at IS NULL"
            )}  # fmt: skip
            for campaign_id, row in live.items():
                self._check(row[0], campaign_id, row[2:])
            for campaign_id in [known_id for known_id in self._last_checks if known_id not in live]:
                self._check_finished(campaign_id)
        finally:
            self._busy.release()

    def _check(self, account_id: int, campaign_id: int, state: tuple[Any, ...]) -> None:
        started = time.monotonic()
        last_check = self._last_checks.get(campaign_id)
        if last_check is not None and (last_check.state == state or last_check.again > started):
            return
        try:
            differences = check_quickly(store.get(account_id, campaign_id))
        except NotFound:
            differences = []
        now = time.monotonic()
        self._last_checks[campaign_id] = _CheckedCampaign(state, now + max(1.0, (now - started) / _MAX_SHARE_OF_TIME))
        self._report(campaign_id, differences)

    def _check_finished(self, campaign_id: int) -> None:
        """Check every row of a campaign that has ended, and stop tracking the campaign."""
        del self._last_checks[campaign_id]
        campaign = store.find_with_sums(campaign_id)
        differences: list[str] = []
        if campaign is not None and campaign.pending_end is None and campaign.started_at is not None:
            differences += check_quickly(campaign)
            for batch in check_thoroughly(campaign, self._process, _MAX_SORTED):
                differences += batch
                time.sleep(0.002)  # Lets requests run meanwhile.
        self._report(campaign_id, differences)
        self._reported.pop(campaign_id, None)

    def _report(self, campaign_id: int, differences: list[str]) -> None:
        if differences and differences != self._reported.get(campaign_id):
            log.error(
                "campaigns: counters of campaign %s differ from its messages: %s", campaign_id, "; ".join(differences)
            )
        self._reported[campaign_id] = differences
