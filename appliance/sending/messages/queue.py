"""The queue of messages, which is the ledger itself: marked one at a time, finished with the next mark.

A row is marked `sending` and on disk before its message is written to anybody; its outcome and the mark of the next
share one commit. A row therefore goes out once, unless the connection or this process dies between the final dot and
the stored reply: such a row is in doubt and is sent once more with the same Message-ID, or held (P3).
"""

from typing import Any

import msgspec

from appliance.audience.contacts import consent
from appliance.core import clock, tokens
from appliance.sending.messages import ledger, quiet, sms_rules
from appliance.sending.messages.ledger import AGAIN_AT_ONCE, Claim
from appliance.storage import work
from appliance.storage.open import connection, fetch_one, rows, run, scalar
from appliance.storage.work import writing

# Answers to what people write us: they go out whatever the person's consent is, soon or not at all.

LASTS_MS = 5 * 60 * 1000
# An operator's own word is kept; everything else does not forbid to answer who has just written
LETS_PASS = ("stop_keyword", "complaint", "erased", "hard_bounce", "soft_bounce")


def is_auto_reply(row: Claim) -> bool:
    """Return whether a row answers what its recipient wrote: the confirmation of a STOP, help."""
    if row.channel != "sms" or row.source_type != "system":
        return False
    return fetch_one("SELECT 1 FROM incoming WHERE reply_id = ?", (row.id,)) is not None


def is_late(row: Claim, now: int) -> bool:
    """Return whether it is too late for a row to answer anything; of no other row it ever is."""
    return now - row.created_at > LASTS_MS and is_auto_reply(row)


# The frequency cap: how many marketing messages one person gets in how many days, over all campaigns together.

_DAY_MS = 86_400_000
_LOOK_AGAIN_MS = 5_000
_CAP = (
    "SELECT json_extract(frequency_cap, '$.messages'), json_extract(frequency_cap, '$.days') FROM account "
    "WHERE id = ? AND frequency_cap IS NOT NULL"
)
MARKETING_TO = (
    "SELECT count(*) FILTER (WHERE sent_at >= ?), count(*) FILTER (WHERE status = 'sending') FROM message "
    "WHERE contact_id = ? AND transactional = 0 AND test = 0 AND id != ?"
)


def is_full(row: Claim, now: int) -> bool | None:
    """Return whether the person of a row got all that the account allows; None if what is in hand now decides about it.

    A row that has to wait for that waits in the queue.
    """
    if row.transactional or row.test or row.contact_id is None:
        return False
    cap = fetch_one(_CAP, (row.account_id,))
    if cap is None:
        return False
    got, in_hand = _marketing_to(row, now - cap[1] * _DAY_MS)
    if got < cap[0] <= got + in_hand:
        connection().execute("UPDATE message SET due_at = ? WHERE id = ?", (now + _LOOK_AGAIN_MS, row.id))
        return None
    return bool(got >= cap[0])


def _marketing_to(row: Claim, since: int) -> tuple[int, int]:
    """Count the other marketing messages that the person of a row got since then, and those in hand now."""
    found = fetch_one(MARKETING_TO, (since, row.contact_id, row.id))
    return (int(found[0]), int(found[1])) if found else (0, 0)


_LIVE = (
    "SELECT 1 FROM campaign c JOIN account a ON a.id = c.account_id "
    "WHERE c.id = ? AND c.phase IN ('sending', 'holding') AND a.sending_stopped = 0"
)
_FLOW = (
    "SELECT nullif(f.status = 'active' AND f.deleted_at IS NULL, 0), f.drop_before, "
    "json_extract(f.data, '$.quiet_hours'), a.time_zone FROM flow f JOIN account a ON a.id = f.account_id "
    "WHERE f.id = ?"
)


def mark(row: Claim, process: str, wanted: Claim, now: int) -> bool:
    """Mark an open row as in hand, if it may go out now (P4, P5); one that may never again is skipped.

    `row` is as it stands, `wanted` as it was made ready: its date and the digest of its bytes are kept.
    """
    writing()
    if row.campaign_id is not None and fetch_one(_LIVE, (row.campaign_id,)) is None:
        return False
    if row.campaign_id is None and fetch_one(
        "SELECT 1 FROM account WHERE id = ? AND sending_stopped = 1", (row.account_id,)
    ):
        return False
    due = fetch_one(
        "SELECT due_at FROM message WHERE id = ? AND status IN ('queued', 'held') AND due_at <= ?", (row.id, now)
    )
    if due is None:
        return False
    if row.run_id is not None and not _may_leave_flow(row, due[0], now):
        return False
    reason = refusal(row) or ("too_late" if is_late(row, now) else None)
    if reason is None and row.channel == "sms" and sms_rules.is_kept_back(row, now):
        return False
    if reason is None:
        full = is_full(row, now)
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


def _may_leave_flow(row: Claim, due_at: int, now: int) -> bool:
    """Return whether a flow lets a message of its go now; one that is overdue where those are dropped is skipped."""
    flow = fetch_one(_FLOW, (row.flow_id,))
    if flow is None or flow[0] is None:
        return False
    drop_before, hours, zone = flow[1:]
    if drop_before is not None and max(due_at, row.created_at) < drop_before:
        ledger.skip(row, "overdue_on_resume", now)
        return False
    if hours is None or row.transactional or row.test:
        return True
    end = quiet.until(msgspec.json.decode(hours), zone, now)
    if end is not None:
        values = (end, now, row.id)
        connection().execute("UPDATE message SET status = 'held', due_at = ?, updated_at = ? WHERE id = ?", values)
    return end is None


def refusal(row: Claim) -> str | None:
    """Return why a message may not go out now, looked at again right before it would (P4)."""
    reason = _unwanted(row)
    return sms_rules.refusal(row) if reason is None and row.channel == "sms" else reason


def _unwanted(row: Claim) -> str | None:
    """Return why whoever a message is for may not, or does not want to, get it."""
    is_about_somebody = row.campaign_id is not None or row.run_id is not None
    if row.recipient_key is None or (is_about_somebody and row.contact_id is None):
        return "contact_deleted"
    if row.transactional:
        hashed = tokens.address_hash(row.kind, row.recipient_key)
        reason = consent.suppression(row.account_id, row.kind, hashed)
        if reason in consent.KEEPS_OUT and _asks_to_come_back(row):
            reason = consent.suppression(row.account_id, row.kind, hashed, but=consent.KEEPS_OUT)
        if reason and is_auto_reply(row):
            reason = consent.suppression(row.account_id, row.kind, hashed, but=LETS_PASS)
        if reason:
            return f"suppressed_{reason}"
        # An address that a program named is meant as it is; one that a flow found is meant as its person's
        return "no_channel" if row.run_id is not None and _channel(row) is None else None
    state = _channel(row)
    if state is None:
        return "no_channel"
    if state[1] is not None:
        return f"suppressed_{state[1]}"
    if not state[0]:
        return "unsubscribed" if state[2] is not None else "no_consent"
    return None


def _channel(row: Claim) -> tuple[Any, ...] | None:
    """Return the state of the address while it is this person's: what is written for one is never sent to another."""
    return fetch_one(
        "SELECT subscribed, suppression, opt_out_at FROM channel WHERE account_id = ? AND kind = ? AND key = ? "
        "AND contact_id IS NOT DISTINCT FROM ?",
        (row.account_id, row.kind, row.recipient_key, row.contact_id),
    )


def _asks_to_come_back(row: Claim) -> bool:
    """Return whether a mail is a form's question, which alone may go to who complained (docs/decisions.md#9)."""
    asks = "SELECT 1 FROM confirmation WHERE message_id = ? AND purpose = 'opt_in' AND form_id IS NOT NULL"
    return row.source_type == "system" and fetch_one(asks, (row.id,)) is not None


def handed_over(since: int, channel: str = "email") -> list[tuple[int, str, str | None, str]]:
    """Return (when, provider, sender, recipient) of what was accepted since then, the oldest first; tests left out."""
    return rows(
        "SELECT e.created_at, m.provider, m.sender, m.recipient_key FROM account a JOIN event e ON e.account_id = a.id "
        "AND e.event = ? AND e.created_at >= ? AND e.test = 0 "
        "JOIN message m ON m.id = json_extract(e.data, '$.message_id') ORDER BY e.created_at",
        (f"{channel}_sent", since),
    )


# Looks again at SMS that wait for a morning, when an account says other quiet hours, or lives by other clocks.
#
# Each is due at once and judged like any other: whose night it still is waits for its new end. Single messages keep
# their time, for it may be one that a program asked for.

_SOME = 1_000
_LIVE_CAMPAIGNS = "SELECT id FROM campaign WHERE channel = 'sms' AND phase = 'sending'"
_OPEN = "status IN ('queued', 'held')"  # as the indexes of what is due have it
_WAITING = (
    "FROM message WHERE {whose} AND channel = 'sms' AND due_at > ?1 AND status = 'held' AND attempts = 0 "
    "AND updated_at <= ?1"
)


def look_again() -> None:
    """Let all that wait be looked at, some at a time; what is put back meanwhile is not looked at twice."""
    now = clock.now_ms()
    sources: list[tuple[str, tuple[int, ...]]] = [(f"run_id IS NOT NULL AND {_OPEN}", ())]
    sources += [(f"campaign_id = ?2 AND run_id IS NULL AND {_OPEN}", (row[0],)) for row in rows(_LIVE_CAMPAIGNS)]
    for whose, values in sources:
        waiting = _WAITING.format(whose=whose)
        count = int(scalar(f"SELECT count(*) {waiting}", (now, *values)))
        # So often at most, that a clock which steps back meanwhile keeps nobody here
        for _ in range(-(-count // _SOME)):
            work.write(_some, waiting, (now, *values))


def _some(waiting: str, values: tuple[int, ...]) -> None:
    writing()
    run(f"UPDATE message SET due_at = {AGAIN_AT_ONCE} WHERE id IN (SELECT id {waiting} LIMIT {_SOME})", values)
