"""The queue of messages, which is the ledger itself: claim what goes out, and record the outcomes of what did.

A row is marked `sending` and on disk before its message is sent; its outcome and the claim of the next share one
commit. A row therefore goes out once, unless the connection or this process dies between the final dot and the stored
reply: such a row is uncertain and is sent once more with the same Message-ID, or held (P3).
"""

from typing import Any

import msgspec

from appliance.audience import consent
from appliance.core import clock, crypto
from appliance.sending.messages import ledger, outcomes, sms_rules
from appliance.sending.messages.ledger import COLUMNS, RETRY_NOW, Claim, Outcome
from appliance.storage import disk_guard, transactions
from appliance.storage.database import connection, fetch_one, rows, run, scalar
from appliance.storage.transactions import require_write_transaction

# Automatic replies to SMS need no consent, and go out soon or not at all.

MAX_AUTO_REPLY_AGE_MS = 5 * 60 * 1000
# An operator's own suppression stands; all other reasons allow a reply to a contact who has just written.
AUTO_REPLY_ALLOWED_REASONS = ("stop_keyword", "complaint", "erased", "hard_bounce", "soft_bounce")


def is_auto_reply(row: Claim) -> bool:
    """Return whether a row replies to what its recipient wrote: the confirmation of a STOP, or help."""
    if row.channel != "sms" or row.source_type != "system":
        return False
    return fetch_one("SELECT 1 FROM incoming WHERE reply_id = ?", (row.id,)) is not None


def is_stale_auto_reply(row: Claim, now: int) -> bool:
    """Return whether a row is an automatic reply that is too old to be sent."""
    return now - row.created_at > MAX_AUTO_REPLY_AGE_MS and is_auto_reply(row)


# The frequency cap: how many marketing messages one contact gets in how many days, over all campaigns together.

_DAY_MS = 86_400_000
_RECHECK_MS = 5_000

_FREQUENCY_CAP = (
    "SELECT json_extract(frequency_cap, '$.messages'), json_extract(frequency_cap, '$.days') FROM account "
    "WHERE id = ? AND frequency_cap IS NOT NULL"
)

COUNT_MARKETING = (
    "SELECT count(*) FILTER (WHERE sent_at >= ?), count(*) FILTER (WHERE status = 'sending') FROM message "
    "WHERE contact_id = ? AND transactional = 0 AND test = 0 AND id != ?"
)


def reaches_frequency_cap(row: Claim, now: int) -> bool | None:
    """Return whether a contact got all messages that the account allows, or None if messages in progress decide it.

    If it is None, the row stays in the queue and is checked again soon.
    """
    if row.transactional or row.test or row.contact_id is None:
        return False
    cap = fetch_one(_FREQUENCY_CAP, (row.account_id,))
    if cap is None:
        return False
    got, sending = _count_marketing(row, now - cap[1] * _DAY_MS)
    if got < cap[0] <= got + sending:
        connection().execute("UPDATE message SET due_at = ? WHERE id = ?", (now + _RECHECK_MS, row.id))
        return None
    return bool(got >= cap[0])


def _count_marketing(row: Claim, since: int) -> tuple[int, int]:
    """Return how many other marketing messages the contact was sent since then, and how many are in progress."""
    counts = fetch_one(COUNT_MARKETING, (since, row.contact_id, row.id))
    return (int(counts[0]), int(counts[1])) if counts else (0, 0)


_LIVE_CAMPAIGN = (
    "SELECT 1 FROM campaign c JOIN account a ON a.id = c.account_id "
    "WHERE c.id = ? AND c.phase IN ('sending', 'holding') AND a.sending_stopped = 0"
)

_FLOW_STATE = (
    "SELECT nullif(f.status = 'active' AND f.deleted_at IS NULL, 0), f.drop_before, "
    "json_extract(f.data, '$.quiet_hours'), a.time_zone FROM flow f JOIN account a ON a.id = f.account_id "
    "WHERE f.id = ?"
)


def claim_one(row: Claim, process: str, rendered: Claim, now: int) -> bool:
    """Claim an open row if it may go out now (P4, P5); one that may never go again is skipped.

    `row` is the row as stored, `wanted` as rendered: its date and its body hash are stored.
    """
    require_write_transaction()
    if row.campaign_id is not None and fetch_one(_LIVE_CAMPAIGN, (row.campaign_id,)) is None:
        return False
    if row.campaign_id is None and fetch_one(
        "SELECT 1 FROM account WHERE id = ? AND sending_stopped = 1", (row.account_id,)
    ):
        return False
    due_row = fetch_one(
        "SELECT due_at FROM message WHERE id = ? AND status IN ('queued', 'held') AND due_at <= ?", (row.id, now)
    )
    if due_row is None:
        return False
    if row.run_id is not None and not _flow_allows(row, due_row[0], now):
        return False
    reason = get_refusal(row) or ("too_late" if is_stale_auto_reply(row, now) else None)
    if reason is None and row.channel == "sms" and sms_rules.hold_if_required(row, now):
        return False
    if reason is None:
        is_capped = reaches_frequency_cap(row, now)
        if is_capped is None:
            return False
        reason = "frequency_cap" if is_capped else None
    if reason is not None:
        ledger.mark_skipped(row, reason, now)
        return False
    # The Date is that of the first attempt, so that a retry is the same message.
    connection().execute(
        "UPDATE message SET status = 'sending', claimed_by = ?, first_attempt_at = coalesce(first_attempt_at, ?), "
        "body_hash = ?, updated_at = ? WHERE id = ?",
        (process, rendered.first_attempt_at or now, rendered.body_hash, now, row.id),
    )
    return True


def _flow_allows(row: Claim, due_at: int, now: int) -> bool:
    """Return whether a flow lets its message go now; an overdue one is skipped if the flow drops those."""
    flow = fetch_one(_FLOW_STATE, (row.flow_id,))
    if flow is None or flow[0] is None:
        return False
    drop_before, hours, zone = flow[1:]
    if drop_before is not None and max(due_at, row.created_at) < drop_before:
        ledger.mark_skipped(row, "overdue_on_resume", now)
        return False
    if hours is None or row.transactional or row.test:
        return True
    end = sms_rules.get_quiet_end(msgspec.json.decode(hours), zone, now)
    if end is not None:
        values = (end, now, row.id)
        connection().execute("UPDATE message SET status = 'held', due_at = ?, updated_at = ? WHERE id = ?", values)
    return end is None


def get_refusal(row: Claim) -> str | None:
    """Return why a message may not go out now, checked right before it would (P4), or None."""
    reason = _get_recipient_refusal(row)
    return sms_rules.get_sms_refusal(row) if reason is None and row.channel == "sms" else reason


def _get_recipient_refusal(row: Claim) -> str | None:
    """Return why the recipient may not, or does not want to, get a message, or None."""
    needs_contact = row.campaign_id is not None or row.run_id is not None
    if row.recipient_key is None or (needs_contact and row.contact_id is None):
        return "contact_deleted"
    if row.transactional:
        hashed = crypto.hash_address(row.address_kind, row.recipient_key)
        reason = consent.find_suppression_reason(row.account_id, row.address_kind, hashed)
        if reason in consent.BLOCKING_REASONS and _is_opt_in_request(row):
            reason = consent.find_suppression_reason(
                row.account_id, row.address_kind, hashed, but=consent.BLOCKING_REASONS
            )
        if reason and is_auto_reply(row):
            reason = consent.find_suppression_reason(
                row.account_id, row.address_kind, hashed, but=AUTO_REPLY_ALLOWED_REASONS
            )
        if reason:
            return f"suppressed_{reason}"
        # An address that a program named is used as it is; one that a flow found must still belong to its contact.
        return "no_channel" if row.run_id is not None and _get_channel_state(row) is None else None
    state = _get_channel_state(row)
    if state is None:
        return "no_channel"
    if state[1] is not None:
        return f"suppressed_{state[1]}"
    if not state[0]:
        return "unsubscribed" if state[2] is not None else "no_consent"
    return None


def _get_channel_state(row: Claim) -> tuple[Any, ...] | None:
    """Return the state of the address if it still belongs to this contact: no other may get the message."""
    return fetch_one(
        "SELECT subscribed, suppression, opt_out_at FROM channel WHERE account_id = ? AND kind = ? AND key = ? "
        "AND contact_id IS NOT DISTINCT FROM ?",
        (row.account_id, row.address_kind, row.recipient_key, row.contact_id),
    )


def _is_opt_in_request(row: Claim) -> bool:
    """Return whether an email asks to confirm a sign-up, which alone may follow a complaint (docs/decisions.md#9)."""
    sql = "SELECT 1 FROM confirmation WHERE message_id = ? AND purpose = 'opt_in' AND form_id IS NOT NULL"
    return row.source_type == "system" and fetch_one(sql, (row.id,)) is not None


def list_accepted_since(since: int, channel: str = "email") -> list[tuple[int, str, str | None, str]]:
    """Return (time, provider, sender, recipient) of messages accepted since then, oldest first, without tests."""
    return rows(
        "SELECT e.created_at, m.provider, m.sender, m.recipient_key FROM account a JOIN event e ON e.account_id = a.id "
        "AND e.event = ? AND e.created_at >= ? AND e.test = 0 "
        "JOIN message m ON m.id = json_extract(e.data, '$.message_id') ORDER BY e.created_at",
        (f"{channel}_sent", since),
    )


# SMS held for quiet hours are checked again when an account changes its quiet hours or its time zone: each is due at
# once and held again if it is still quiet. Single messages keep their time, as a program may have asked for it.

_MAX_BATCH_ROWS = 1_000
_LIVE_CAMPAIGNS = "SELECT id FROM campaign WHERE channel = 'sms' AND phase = 'sending'"
_OPEN = "status IN ('queued', 'held')"  # as in the partial indexes of due messages

_HELD_SMS = (
    "FROM message WHERE {whose} AND channel = 'sms' AND due_at > ?1 AND status = 'held' AND attempts = 0 "
    "AND updated_at <= ?1"
)


def recheck_held_sms() -> None:
    """Make all held SMS due again, in batches; a row that is held again meanwhile is not touched twice."""
    now = clock.now_ms()
    sources: list[tuple[str, tuple[int, ...]]] = [(f"run_id IS NOT NULL AND {_OPEN}", ())]
    sources += [(f"campaign_id = ?2 AND run_id IS NULL AND {_OPEN}", (row[0],)) for row in rows(_LIVE_CAMPAIGNS)]
    for whose, values in sources:
        waiting = _HELD_SMS.format(whose=whose)
        count = int(scalar(f"SELECT count(*) {waiting}", (now, *values)))
        # The number of batches is fixed, so that a clock that steps back cannot cause an endless loop.
        for _ in range(-(-count // _MAX_BATCH_ROWS)):
            transactions.write(_release_batch, waiting, (now, *values))


def _release_batch(waiting: str, values: tuple[int, ...]) -> None:
    require_write_transaction()
    run(f"UPDATE message SET due_at = {RETRY_NOW} WHERE id IN (SELECT id {waiting} LIMIT {_MAX_BATCH_ROWS})", values)


# The hot path: outcomes of many messages and the claims of the next ones, in one transaction. Acceptances are written
# together, statement by statement; all else one by one (`outcomes`). A batch has the same result as its parts one after
# the other (a test compares them).

# A row may be claimed if it is still open and due, its source is live, and its recipient may still be written to (P4,
# P5). Rows that are not claimed here are checked one by one, so this may refuse too many and never too few.
_CLAIM = (
    "UPDATE message SET status = 'sending', claimed_by = ?, first_attempt_at = coalesce(first_attempt_at, ?), "
    "body_hash = ?, updated_at = ? WHERE id = ? AND status IN ('queued', 'held') AND due_at <= ? AND transactional = 0 "
    "AND EXISTS (SELECT 1 FROM account a WHERE a.id = message.account_id "
    "AND a.sending_stopped = 0 AND a.frequency_cap IS NULL) AND CASE WHEN run_id IS NULL THEN EXISTS "
    "(SELECT 1 FROM campaign c WHERE c.id = message.campaign_id AND c.phase IN ('sending', 'holding')) "
    "ELSE EXISTS (SELECT 1 FROM flow f WHERE f.id = message.flow_id AND f.status = 'active' AND f.deleted_at IS NULL "
    "AND f.drop_before IS NULL AND json_extract(f.data, '$.quiet_hours') IS NULL) END "
    "AND EXISTS (SELECT 1 FROM channel h "
    "WHERE h.account_id = message.account_id AND h.kind = CASE WHEN message.channel = 'sms' THEN 'phone' "
    "ELSE 'email' END AND h.key = message.recipient_key AND h.contact_id = message.contact_id AND h.subscribed = 1 "
    "AND h.suppression IS NULL) AND (channel = 'email' OR NOT EXISTS (SELECT 1 FROM contact p "
    "WHERE p.id = message.contact_id AND json_extract(p.data, '$.time_zone') IS NOT NULL)) RETURNING id"
)


def record_and_claim(new_outcomes: list[Outcome], claims: list[Claim], process: str) -> set[int]:
    """Record the outcomes, claim the next messages, and return the ids that were claimed.

    Messages that were not claimed may not go out now. An outcome may be passed twice: it is written once.
    """
    require_write_transaction()
    accepted = {
        outcome.claim.id: outcome for outcome in new_outcomes if outcome.error is None and outcome.skip_reason is None
    }
    if accepted:
        outcomes.record_accepted([*accepted.values()])
    for outcome in new_outcomes:
        if outcome.error is not None or outcome.skip_reason is not None:
            outcomes.record_failure(outcome)
    return _claim_batch(claims, process) if claims and disk_guard.send_blocker() is None else set()


def _claim_batch(claims: list[Claim], process: str) -> set[int]:
    now = clock.now_ms()
    claims_by_id = {row.id: row for row in claims}
    suspects = sms_rules.find_suspects(claims, now)
    parameters = [
        (process, row.first_attempt_at, row.body_hash, now, row.id, now) for row in claims if row.id not in suspects
    ]
    claimed = {claimed_row[0] for claimed_row in connection().executemany(_CLAIM, parameters)}
    for message_id in claims_by_id.keys() - claimed:
        current = rows(f"SELECT {COLUMNS} FROM message WHERE id = ? AND status IN ('queued', 'held')", (message_id,))
        if current and claim_one(Claim._make(current[0]), process, claims_by_id[message_id], now):
            claimed.add(message_id)
    return claimed
