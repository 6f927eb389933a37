"""The queue of messages, which is the ledger itself: claimed one at a time, finished with the next claim.

A row is marked `sending` and on disk before its message is written to anybody; its outcome and the mark of the next
share one commit. A row therefore goes out once, unless the connection or this process dies between the final dot and
the stored reply: such a row is in doubt and is sent once more with the same Message-ID, or held (P3).
"""

import random
from collections import deque
from collections.abc import Container, Sized

from appliance import clock, tokens
from appliance.contacts import consent
from appliance.db.open import connection, one, rows
from appliance.db.work import writing
from appliance.messages import capping, ledger
from appliance.messages.ledger import COLUMNS, Claim


def candidates(
    most: int, taken: Container[int] = (), closed: tuple[str, ...] = (), held: tuple[int, ...] = ()
) -> list[Claim]:
    """Answer what may be taken in hand next, in this order: single messages first, then campaigns in turns.

    Left out is what is taken already, what would leave by a provider that is closed, and campaigns that are held back.
    Nothing is marked: whoever takes one marks it before its message leaves (`mark`, `hot.step`).
    """
    now = clock.now_ms()
    singles = _due(None, now, most + _size(taken), closed)
    found = [row for row in singles if row.id not in taken][:most]
    queues = [
        deque(row for row in _due(one_id, now, most + _size(taken), closed) if row.id not in taken)
        for one_id in _live_campaigns() if one_id not in held
    ]  # fmt: skip
    while len(found) < most and any(queues):
        found += [queue.popleft() for queue in queues if queue][: most - len(found)]
    return found


def _size(taken: Container[int]) -> int:
    return len(taken) if isinstance(taken, Sized) else 0


def mark(row: Claim, process: str, wanted: Claim, now: int) -> bool:
    """Mark an open row as in hand, if it may go out now (P4, P5); one that may never again is skipped.

    `row` is as it stands, `wanted` as it was made ready: its date and the digest of its bytes are kept.
    """
    writing()
    if row.campaign_id is not None and row.campaign_id not in _live_campaigns():
        return False
    if row.campaign_id is None and one("SELECT 1 FROM account WHERE id = ? AND sending_stopped = 1", (row.account_id,)):
        return False
    due = one("SELECT 1 FROM message WHERE id = ? AND status IN ('queued', 'held') AND due_at <= ?", (row.id, now))
    if due is None:
        return False
    reason = refusal(row)
    if reason is None:
        full = capping.is_full(row, now)
        if full is None:
            return False
        reason = "frequency_cap" if full else None
    if reason is not None:
        ledger.skip(row, reason, now)
        return False
    # Its Date is that of the first attempt, so that a repeat is the same message
    connection().execute(
        "UPDATE message SET status = 'sending', claimed_by = ?, dated_at = coalesce(dated_at, ?), digest = ?, "
        "updated_at = ? WHERE id = ?",
        (process, wanted.dated_at or now, wanted.digest, now, row.id),
    )
    return True


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


def _due(campaign_id: int | None, now: int, most: int, closed: tuple[str, ...] = ()) -> list[Claim]:
    more = ""
    if campaign_id is None:
        more = " AND account_id NOT IN (SELECT id FROM account WHERE sending_stopped = 1)"
        more += f" AND provider NOT IN ({','.join('?' * len(closed))})" if closed else ""
    found = rows(
        f"SELECT {COLUMNS} FROM message WHERE campaign_id IS ? AND status IN ('queued', 'held') AND due_at <= ?"
        f"{more} ORDER BY due_at, id LIMIT ?",
        (campaign_id, now, *(closed if campaign_id is None else ()), most),
    )
    claims = [Claim._make(row) for row in found]
    # All rows of a campaign leave by the same provider: its first one answers for all
    return [] if claims and claims[0].provider in closed else claims


def is_due(closed: tuple[str, ...] = ()) -> bool:
    """Say whether an open row of a live source may move now, by a provider that is not closed."""
    now = clock.now_ms()
    return any(_due(campaign_id, now, 1, closed) for campaign_id in (None, *_live_campaigns()))


def refusal(row: Claim) -> str | None:
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
