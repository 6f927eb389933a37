"""The queue of messages, which is the ledger itself: claimed one at a time, finished with the next claim.

A row is marked `sending` and on disk before its message is written to anybody; its outcome and the mark of the next
share one commit. A row therefore goes out once, unless the connection or this process dies between the final dot and
the stored reply: such a row is in doubt and is sent once more with the same Message-ID, or held (P3).
"""

import random
from typing import NamedTuple

from appliance import clock, tokens
from appliance.contacts import consent
from appliance.db.open import connection, one, rows
from appliance.db.work import writing
from appliance.errors import Uncertain
from appliance.messages import ledger, outcomes
from appliance.messages.ledger import COLUMNS, Claim, Outcome

# How many rows that may no longer be written to are skipped in one commit
_MOST_SKIPPED = 100


class Turn(NamedTuple):
    """The next message in hand, if any, and whether asking again at once may bring one."""

    claim: Claim | None
    again: bool


def turn(
    outcome: Outcome | None, process: str, want: bool, closed: tuple[str, ...] = (), held: tuple[int, ...] = ()
) -> Turn:
    """Write the outcome of one message and mark the next, in one transaction."""
    writing()
    if outcome is not None:
        outcomes.finish(outcome)
    return claim(process, closed, held) if want else Turn(None, False)


def claim(process: str, closed: tuple[str, ...] = (), held: tuple[int, ...] = ()) -> Turn:
    """Mark the next due message as in hand; single messages go before campaigns, campaigns take turns.

    What would leave by a provider that is closed waits, and so do campaigns that are held back.
    """
    writing()
    now = clock.now_ms()
    skipped = 0
    for campaign_id in (None, *(one_id for one_id in _live_campaigns() if one_id not in held)):
        while skipped < _MOST_SKIPPED:
            row = _next(campaign_id, now, closed)
            if row is None:
                break
            reason = _refusal(row)
            if reason is None:
                # Its Date is that of the first attempt, so that a repeat is the same message
                dated = row.dated_at or now
                connection().execute(
                    "UPDATE message SET status = 'sending', claimed_by = ?, dated_at = ?, updated_at = ? WHERE id = ?",
                    (process, dated, now, row.id),
                )
                return Turn(row._replace(dated_at=dated), True)
            ledger.skip(row, reason, now)
            skipped += 1
    return Turn(None, skipped >= _MOST_SKIPPED)


def _live_campaigns() -> list[int]:
    found = [
        row[0]
        for row in rows(
            "SELECT c.id FROM campaign c JOIN account a ON a.id = c.account_id "
            "WHERE c.phase IN ('sending', 'holding') AND a.sending_stopped = 0"
        )
    ]
    random.shuffle(found)
    return found


def _next(campaign_id: int | None, now: int, closed: tuple[str, ...] = ()) -> Claim | None:
    more = ""
    if campaign_id is None:
        more = " AND account_id NOT IN (SELECT id FROM account WHERE sending_stopped = 1)"
        more += f" AND provider NOT IN ({','.join('?' * len(closed))})" if closed else ""
    found = one(
        f"SELECT {COLUMNS} FROM message WHERE campaign_id IS ? AND status IN ('queued', 'held') AND due_at <= ?"
        f"{more} ORDER BY due_at, id LIMIT 1",
        (campaign_id, now, *(closed if campaign_id is None else ())),
    )
    # All rows of a campaign leave by the same provider: its first one answers for all
    row = Claim._make(found) if found else None
    return None if row is not None and row.provider in closed else row


def is_due(closed: tuple[str, ...] = ()) -> bool:
    """Say whether an open row of a live source may move now, by a provider that is not closed."""
    now = clock.now_ms()
    return any(_next(campaign_id, now, closed) is not None for campaign_id in (None, *_live_campaigns()))


def _refusal(row: Claim) -> str | None:
    """Say why a message may not go out now, looked at again right before it would (P4)."""
    if row.recipient_key is None or (row.campaign_id is not None and row.contact_id is None):
        return "contact_deleted"
    if row.transactional:
        hashed = tokens.address_hash(row.kind, row.recipient_key)
        reason = consent.suppression(row.account_id, row.kind, hashed)
        return f"suppressed_{reason}" if reason else None
    # The address must still be this person's: what is written for one is never sent to another
    state = one(
        "SELECT subscribed, suppression, opt_out_at FROM channel WHERE account_id = ? AND kind = ? AND key = ? "
        "AND contact_id IS ?",
        (row.account_id, row.kind, row.recipient_key, row.contact_id),
    )
    if state is None:
        return "no_channel"
    if state[1] is not None:
        return f"suppressed_{state[1]}"
    if not state[0]:
        return "unsubscribed" if state[2] is not None else "no_consent"
    return None


def recover() -> int:
    """Decide about every row that an earlier process had in hand when it died; run once at start."""
    writing()
    now = clock.now_ms()
    found = [Claim._make(row) for row in rows(f"SELECT {COLUMNS} FROM message WHERE status = 'sending'")]
    for row in found:
        outcomes.doubt(row, Uncertain("the service stopped while this message was in hand"), now)
    return len(found)
