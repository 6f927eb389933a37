"""The queue of messages, which is the ledger itself: claim messages before they are sent, and record their outcomes.

The senders call `record_and_claim`. Before a message is sent, its claim is committed: its row is set to `sending`, or,
for most emails, a row of the send log is written. A message is therefore sent once, unless the connection or this
process dies between the final dot of SMTP and the commit of the reply. Such a message is uncertain: it is sent once
more with the same Message-ID, or held for a user's decision (P3).
"""

import itertools
import logging
from typing import Any

import msgspec

from appliance.audience import consent
from appliance.core import clock, crypto
from appliance.core.errors import OutcomeLost, Uncertain
from appliance.core.i18n import gettext_noop
from appliance.sending.messages import ledger, marketing_calendar, outcomes, restored_sends, sms_rules
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.storage import disk_guard, send_lease
from appliance.storage.database import connection, fetch_one, rows, run, run_set, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.sender")

# Automatic replies to SMS need no consent. They are sent within this time or not at all.
MAX_AUTO_REPLY_AGE_MS = 5 * 60 * 1000
# Suppression reasons that do not prevent an automatic reply, because the recipient has just written to us. A
# suppression by an operator (`manual`) does.
AUTO_REPLY_ALLOWED_REASONS = ("stop_keyword", "complaint", "erased", "hard_bounce", "soft_bounce")


def is_auto_reply(row: LedgerRow) -> bool:
    """Return whether a row is an automatic reply to an SMS: the confirmation of STOP or START, or the text of HELP."""
    if row.channel != "sms" or row.source_type != "system":
        return False
    return fetch_one("SELECT 1 FROM incoming WHERE reply_id = ?", (row.id,)) is not None


def is_stale_auto_reply(row: LedgerRow, now: int) -> bool:
    """Return whether a row is an automatic reply older than `MAX_AUTO_REPLY_AGE_MS`, which is no longer sent."""
    return now - row.created_at > MAX_AUTO_REPLY_AGE_MS and is_auto_reply(row)


# The frequency cap of an account limits how many marketing messages one contact gets in a number of days, counted over
# all campaigns and flows.

# Delay before a message is read again whose cap depends on messages that are being sent.
_RECHECK_MS = 5_000

_FREQUENCY_CAP = (
    "SELECT json_extract(frequency_cap, '$.messages'), json_extract(frequency_cap, '$.days') FROM account "
    "WHERE id = ? AND frequency_cap IS NOT NULL"
)

COUNT_MARKETING = (
    "SELECT count(*) FILTER (WHERE sent_at >= ?), count(*) FILTER (WHERE status = 'sending') FROM message "
    "WHERE contact_id = ? AND transactional = 0 AND test = 0 AND id != ?"
)


def reaches_frequency_cap(row: LedgerRow, now: int) -> bool | None:
    """Return whether the account's frequency cap keeps this message from being sent.

    Return None if that depends on messages that are being sent to the contact now; the row then becomes due again
    after `_RECHECK_MS`.
    """
    if row.transactional or row.test or row.contact_id is None:
        return False
    cap = fetch_one(_FREQUENCY_CAP, (row.account_id,))
    if cap is None:
        return False
    got, sending = _count_marketing(row, now - cap[1] * clock.DAY_MS)
    if got < cap[0] <= got + sending:
        connection().execute("UPDATE message SET due_at = ? WHERE id = ?", (now + _RECHECK_MS, row.id))
        return None
    return bool(got >= cap[0])


def _count_marketing(row: LedgerRow, since: int) -> tuple[int, int]:
    """Return (sent since `since`, being sent now): the numbers of other marketing messages to the row's contact."""
    counts = fetch_one(COUNT_MARKETING, (since, row.contact_id, row.id))
    return (int(counts[0]), int(counts[1])) if counts else (0, 0)


_LIVE_CAMPAIGN = (
    "SELECT 1 FROM campaign c JOIN account a ON a.id = c.account_id "
    "WHERE c.id = ? AND c.phase IN ('sending', 'holding') AND a.sending_stopped = 0"
)

_FLOW_STATE = "SELECT nullif(status = 'active' AND deleted_at IS NULL, 0), drop_before FROM flow WHERE id = ?"
_QUIET_HOURS = (
    "SELECT json_extract(f.data, '$.quiet_hours'), a.time_zone FROM flow f JOIN account a ON a.id = f.account_id "
    "WHERE f.id = ?"
)


def claim_one(row: LedgerRow, process: str, rendered: LedgerRow, now: int) -> bool:
    """Claim an open row for `process` if its message may be sent now (P4, P5), and return whether it was claimed.

    A message that may never be sent is skipped. A message that has to wait stays open, if necessary with a later due
    time. `row` is the row as stored. `rendered` is the same row as it was read before rendering: its
    `first_attempt_at`, `body_hash` and `provider` are stored.
    """
    require_write_transaction()
    if not _is_source_live(row):
        return False
    due_row = fetch_one(
        "SELECT due_at FROM message WHERE id = ? AND status IN ('queued', 'held') AND due_at <= ?", (row.id, now)
    )
    if due_row is None or not _keeps_transport(row, rendered):
        return False
    if row.run_id is not None and not _flow_allows(row, due_row[0], now):
        return False
    reason = get_refusal(row) or ("too_late" if is_stale_auto_reply(row, now) else None)
    if reason is None and row.channel == "sms" and sms_rules.hold_if_required(row, now):
        return False
    if reason is None and marketing_calendar.hold_if_required(row, now):
        return False
    if reason is None:
        is_capped = reaches_frequency_cap(row, now)
        if is_capped is None:
            return False
        reason = "frequency_cap" if is_capped else None
    if reason is not None:
        ledger.mark_skipped(row, reason, now)
        return False
    # The Date header is the time of the first attempt, so that a retry sends the same bytes.
    connection().execute(
        "UPDATE message SET status = 'sending', claimed_by = ?, first_attempt_at = coalesce(first_attempt_at, ?), "
        "body_hash = ?, provider = ?, updated_at = ? WHERE id = ?",
        (process, rendered.first_attempt_at or now, rendered.body_hash, rendered.provider, now, row.id),
    )
    return True


def _list_permitted(candidates: list[LedgerRow]) -> list[LedgerRow]:
    """Return the candidates that neither a problem of the storage nor the lease keeps from being sent now."""
    if not candidates or disk_guard.send_blocker() is not None or not send_lease.is_held():
        return []
    return [row for row in candidates if send_lease.is_reserved(row.id)]


def _keeps_transport(row: LedgerRow, rendered: LedgerRow) -> bool:
    """Return whether a message may be sent with the transport of `rendered`; `row` has the stored transport.

    It may if both are the same, or if no attempt had an unknown outcome. Otherwise the other transport would not
    recognize the message, so its recipient might get a second copy (P3).
    """
    return rendered.provider == row.provider or (row.channel == "email" and not row.uncertain_count)


def _is_source_live(row: LedgerRow) -> bool:
    """Return whether a message's campaign is being sent, and sending of its account is not stopped."""
    if row.campaign_id is not None:
        return fetch_one(_LIVE_CAMPAIGN, (row.campaign_id,)) is not None
    return fetch_one("SELECT 1 FROM account WHERE id = ? AND sending_stopped = 1", (row.account_id,)) is None


def _find_flow_refusal(row: LedgerRow, due_at: int) -> str | None:
    """Return `not_live` for a message of a paused or deleted flow, `overdue_on_resume` if it is too old, or None.

    Too old is a message that was due before the flow's `drop_before`, which a resume may set.
    """
    if row.run_id is None:
        return None
    flow = fetch_one(_FLOW_STATE, (row.flow_id,))
    if flow is None or flow[0] is None:
        return "not_live"
    drop_before = flow[1]
    return "overdue_on_resume" if drop_before is not None and max(due_at, row.created_at) < drop_before else None


def _flow_allows(row: LedgerRow, due_at: int, now: int) -> bool:
    """Return whether a flow allows one of its messages to be sent now.

    A paused or deleted flow does not. A message in quiet hours is held until they end. A message that was due before
    the flow's `drop_before`, which a resume may set, is skipped.
    """
    refusal = _find_flow_refusal(row, due_at)
    if refusal == "overdue_on_resume":
        ledger.mark_skipped(row, refusal, now)
    if refusal is not None:
        return False
    hours, zone = fetch_one(_QUIET_HOURS, (row.flow_id,)) or (None, None)
    if hours is None or row.transactional or row.test:
        return True
    end = sms_rules.get_quiet_end(msgspec.json.decode(hours), zone, now)
    if end is not None:
        values = (end, now, row.id)
        connection().execute("UPDATE message SET status = 'held', due_at = ?, updated_at = ? WHERE id = ?", values)
    return end is None


def get_refusal(row: LedgerRow) -> str | None:
    """Return the code of the reason why a message may not be sent to its recipient, or None.

    The present state of consent, suppressions and the rules of SMS decides, so call this right before sending (P4).
    """
    reason = _get_recipient_refusal(row)
    return sms_rules.get_sms_refusal(row) if reason is None and row.channel == "sms" else reason


# Whether the list of a row {0} is one of the lists in the trigger of the campaign.
_IS_ITS_LIST = (
    "(t.contact_list_id = {0}.contact_list_id OR {0}.contact_list_id IN "
    "(SELECT value FROM json_each(t.data, '$.contact_list_ids')))"
)
# Whether the contact of a campaign's message has left a list of the campaign and is not a member of another one.
# A contact who leaves a list is skipped for that list only (docs/deliverability.md#d36).
_HAS_LEFT_LISTS = (
    "EXISTS (SELECT 1 FROM list_opt_out o CROSS JOIN campaign c ON c.id = {campaign} CROSS JOIN trigger t "
    f"ON t.id = c.trigger_id WHERE o.contact_id = {{contact}} AND {_IS_ITS_LIST.format('o')} AND NOT EXISTS "
    f"(SELECT 1 FROM membership m WHERE m.contact_id = {{contact}} AND {_IS_ITS_LIST.format('m')}))"
)

# The same for lists that have been deleted since then. Deleting a list deletes its members and opt-outs, but not the
# evidence of the opt-outs. It also removes the id of the list from a campaign that has no other; for such a campaign,
# every list counts that the contact has left since the campaign was started.
_HAS_LEFT_DELETED_LIST = (
    "EXISTS (SELECT 1 FROM consent e CROSS JOIN campaign c ON c.id = :campaign CROSS JOIN trigger t "
    "ON t.id = c.trigger_id WHERE e.contact_id = :contact AND e.act = 'list_left' "
    "AND (e.list_id IN (SELECT value FROM json_each(t.data, '$.contact_list_ids')) "
    "OR (t.contact_list_id IS NULL AND t.data ->> '$.audience_deleted' AND e.created_at >= c.started_at)) "
    "AND NOT EXISTS (SELECT 1 FROM consent j WHERE j.contact_id = :contact AND j.act = 'list_joined' "
    "AND j.list_id = e.list_id AND j.id > e.id) "
    f"AND NOT EXISTS (SELECT 1 FROM membership m WHERE m.contact_id = :contact AND {_IS_ITS_LIST.format('m')}))"
)


def _has_left_lists(row: LedgerRow) -> bool:
    values = {"campaign": row.campaign_id, "contact": row.contact_id}
    has_left = _HAS_LEFT_LISTS.format(campaign=":campaign", contact=":contact")
    return bool(scalar(f"SELECT {has_left} OR {_HAS_LEFT_DELETED_LIST}", values))


def _get_recipient_refusal(row: LedgerRow) -> str | None:
    """Return the code of the reason why consent, a suppression or a deleted contact prevents a message, or None."""
    needs_contact = row.campaign_id is not None or row.run_id is not None
    if row.recipient_key is None or (needs_contact and row.contact_id is None):
        return "contact_deleted"
    if row.transactional:
        hashed = crypto.hash_address(row.address_kind, row.recipient_key)
        reason = consent.find_suppression_reason(row.account_id, row.address_kind, hashed)
        if reason in consent.BLOCKING_REASONS and _is_opt_in_request(row):
            reason = consent.find_suppression_reason(
                row.account_id, row.address_kind, hashed, ignored=consent.BLOCKING_REASONS
            )
        if reason and is_auto_reply(row):
            reason = consent.find_suppression_reason(
                row.account_id, row.address_kind, hashed, ignored=AUTO_REPLY_ALLOWED_REASONS
            )
        if reason:
            return f"suppressed_{reason}"
        # The address of an API request is used as it is. The address that a flow took from a contact must still belong
        # to that contact.
        return "no_channel" if row.run_id is not None and _get_channel_state(row) is None else None
    state = _get_channel_state(row)
    if state is None:
        return "no_channel"
    if state[1] is not None:
        return f"suppressed_{state[1]}"
    if not state[0]:
        return "unsubscribed" if state[2] is not None else "no_consent"
    return "unsubscribed" if row.campaign_id is not None and _has_left_lists(row) else None


def _get_channel_state(row: LedgerRow) -> tuple[Any, ...] | None:
    """Return (subscribed, suppression, opt-out time) of the row's address, or None if its contact no longer has it.

    Without this check, a message could reach another contact who has the address now.
    """
    return fetch_one(
        "SELECT subscribed, suppression, opt_out_at FROM channel WHERE account_id = ? AND kind = ? AND key = ? "
        "AND contact_id IS NOT DISTINCT FROM ?",
        (row.account_id, row.address_kind, row.recipient_key, row.contact_id),
    )


def _is_opt_in_request(row: LedgerRow) -> bool:
    """Return whether an email asks its recipient to confirm a sign-up by a form.

    Only such an email may be sent to an address suppressed by a complaint or an erasure (docs/decisions.md#9).
    """
    sql = "SELECT 1 FROM confirmation WHERE message_id = ? AND purpose = 'opt_in' AND form_id IS NOT NULL"
    return row.source_type == "system" and fetch_one(sql, (row.id,)) is not None


def list_accepted_since(since: int, channel: str = "email") -> list[tuple[int, str, str | None, str]]:
    """Return (time, provider, sender, recipient) of the messages of a channel accepted since `since`, oldest first.

    Times are milliseconds since 1970 UTC. Messages of all accounts are included, test messages are not.
    """
    return rows(
        "SELECT e.created_at, m.provider, m.sender, m.recipient_key FROM account a JOIN event e ON e.account_id = a.id "
        "AND e.event = ? AND e.created_at >= ? AND e.test = 0 "
        "JOIN message m ON m.id = json_extract(e.data, '$.message_id') ORDER BY e.created_at",
        (f"{channel}_sent", since),
    )


# A message may be sent if its campaign or flow is live and consent allows it (P4, P5). This condition is sufficient,
# not necessary: `claim_one` would claim every message for which it holds, and decides about all others, such as SMS to
# contacts with a time zone of their own, in which their quiet hours are. Deleted lists do not matter here: no list of a
# campaign with open messages can be deleted, and later retries call `get_refusal`.
_SURELY_ALLOWED = (
    "transactional = 0 AND EXISTS (SELECT 1 FROM account a WHERE a.id = message.account_id "
    "AND a.sending_stopped = 0 AND a.frequency_cap IS NULL "
    "AND (a.marketing_calendar IS NULL OR message.channel = 'sms')) AND CASE WHEN run_id IS NULL THEN EXISTS "
    "(SELECT 1 FROM campaign c WHERE c.id = message.campaign_id AND c.phase IN ('sending', 'holding')) "
    f"AND NOT {_HAS_LEFT_LISTS.format(campaign='message.campaign_id', contact='message.contact_id')} "
    "ELSE EXISTS (SELECT 1 FROM flow f WHERE f.id = message.flow_id AND f.status = 'active' AND f.deleted_at IS NULL "
    "AND f.drop_before IS NULL AND json_extract(f.data, '$.quiet_hours') IS NULL) "
    "AND EXISTS (SELECT 1 FROM run r WHERE r.id = message.run_id AND r.exit_reason IS NULL) END "
    "AND EXISTS (SELECT 1 FROM channel h "
    "WHERE h.account_id = message.account_id AND h.kind = CASE WHEN message.channel = 'sms' THEN 'phone' "
    "ELSE 'email' END AND h.key = message.recipient_key AND h.contact_id = message.contact_id AND h.subscribed = 1 "
    "AND h.suppression IS NULL) AND (channel = 'email' OR NOT EXISTS (SELECT 1 FROM contact p "
    "WHERE p.id = message.contact_id AND json_extract(p.data, '$.time_zone') IS NOT NULL))"
)
# Whether a message is claimed with its stored transport, or may be claimed with another (`_keeps_transport`).
_KEEPS_TRANSPORT = (
    "(message.provider = item.value ->> 3 OR (message.uncertain_count = 0 AND message.channel = 'email'))"
)
# Items: (id, time of the first attempt, hash of the body, transport).
_CLAIM = (
    "UPDATE message SET status = 'sending', claimed_by = :process, "
    "first_attempt_at = coalesce(first_attempt_at, item.value ->> 1), body_hash = item.value ->> 2, "
    "provider = item.value ->> 3, updated_at = :now FROM json_each(:items) AS item "
    "WHERE message.id = item.value ->> 0 AND status IN ('queued', 'held') AND due_at <= :now AND "
    f"{_KEEPS_TRANSPORT} AND {_SURELY_ALLOWED} RETURNING message.id"
)
_CLAIMED = (
    "FROM message WHERE id = ? AND (status = 'sending' OR EXISTS "
    "(SELECT 1 FROM send_log l WHERE l.message_id = message.id))"
)


def is_still_allowed(message_id: int) -> bool:
    """Return whether a claimed message may still be sent (P4, P5); read-only.

    Quiet hours, the calendar and the frequency cap were checked when it was claimed, and are not checked again.
    """
    if fetch_one(f"SELECT 1 {_CLAIMED} AND {_SURELY_ALLOWED}", (message_id,)) is not None:
        return True
    current = fetch_one(f"SELECT {COLUMNS}, due_at {_CLAIMED}", (message_id,))
    if current is None:
        return False
    row, due_at = LedgerRow._make(current[:-1]), current[-1] or 0
    is_live = _is_source_live(row) and _find_flow_refusal(row, due_at) is None and not outcomes.is_cancelled(row)
    return is_live and get_refusal(row) is None


def record(new_outcomes: list[Outcome]) -> None:
    """Record outcomes in the ledger: accepted messages together, all others one by one (`outcomes`).

    An outcome that was recorded before is ignored.
    """
    require_write_transaction()
    accepted = {
        outcome.row.id: outcome for outcome in new_outcomes if outcome.error is None and outcome.skip_reason is None
    }
    if accepted:
        outcomes.record_accepted([*accepted.values()])
    for outcome in new_outcomes:
        if outcome.error is not None or outcome.skip_reason is not None:
            outcomes.record_failure(outcome)


def claim(candidates: list[LedgerRow], process: str) -> set[int]:
    """Claim messages for `process` in the ledger, and return the ids of those that were claimed.

    The caller must not send the others. Nothing is claimed while the disk guard or the lease stops sending. The result
    equals calling `claim_one` for each message (a test compares them).
    """
    require_write_transaction()
    candidates = _list_permitted(candidates)
    if not candidates:
        return set()
    now = clock.now_ms()
    candidates_by_id = {row.id: row for row in candidates}
    suspects = sms_rules.find_suspects(candidates, now)
    items = [
        (row.id, row.first_attempt_at, row.body_hash, row.provider) for row in candidates if row.id not in suspects
    ]
    values = {"items": msgspec.json.encode(items).decode(), "process": process, "now": now}
    claimed = {row[0] for row in rows(_CLAIM, values)}
    for message_id in candidates_by_id.keys() - claimed:
        current = rows(f"SELECT {COLUMNS} FROM message WHERE id = ? AND status IN ('queued', 'held')", (message_id,))
        if current and claim_one(LedgerRow._make(current[0]), process, candidates_by_id[message_id], now):
            claimed.add(message_id)
    return claimed


# The send log: claims and acceptances of emails, written at once and moved into the ledger hundreds at a time. Updating
# the rows of the ledger, its indexes, counters and events in every commit of the email sender would change ten times as
# many pages; `settle_log` does it for hundreds of messages in one transaction. Every other write that reads or changes
# messages calls `settle_log` first (`storage/writer.py`), so only the functions below read the log. Code that only
# reads sees a message as queued for some tenths of a second after it was sent.
#
# A row is a claim, on disk before the body of its message is sent (docs/promises.md#p3). Its `sent_at` is set when the
# server has accepted the message. After a crash, the first `settle_log` moves both into the ledger.
#
# The log contains only claims that `_SURELY_ALLOWED` allows, and plain acceptances. All others are rare and change the
# ledger at once: other claims and outcomes, every SMS, and acceptances in direct delivery and by an HTTP API, whose
# server, encryption and id have no column here.

# In these statements a plus sign before a column keeps SQLite from using its index, so that it reads the log first, and
# then the messages by id.
_UNFINISHED = "('queued', 'held', 'sending')"
_LOST_ACCEPTANCE = gettext_noop("it was accepted, but this could not be recorded")
_LOST_OUTCOME = gettext_noop("it was tried, but the outcome could not be recorded")
# Items: (id, time of the first attempt, hash of the body, transport).
_LOG_CLAIM = (
    "INSERT INTO send_log (message_id, batch, process, first_attempt_at, body_hash, provider) "
    "SELECT message.id, :batch, :process, item.value ->> 1, item.value ->> 2, item.value ->> 3 "
    "FROM json_each(:items) AS item JOIN message ON message.id = item.value ->> 0 "
    f"WHERE +status IN ('queued', 'held') AND due_at <= :now AND {_KEEPS_TRANSPORT} "
    f"AND NOT EXISTS (SELECT 1 FROM send_log l WHERE l.message_id = message.id) AND {_SURELY_ALLOWED}"
)
# Items: (id, subject, sender, Message-ID). If the claim has been settled already, the acceptance gets a row of its own.
_LOG_ACCEPTED = (
    "INSERT INTO send_log (message_id, sent_at, subject, sender, internet_message_id) "
    "SELECT item.value ->> 0, :now, item.value ->> 1, item.value ->> 2, item.value ->> 3 "
    "FROM json_each(:items) AS item JOIN message m ON m.id = item.value ->> 0 "
    "WHERE m.status = 'sending' OR EXISTS (SELECT 1 FROM send_log l WHERE l.message_id = m.id) "
    "ON CONFLICT (message_id) DO UPDATE SET sent_at = excluded.sent_at, subject = excluded.subject, "
    "sender = excluded.sender, internet_message_id = excluded.internet_message_id WHERE sent_at IS NULL"
)
_SHOW_CLAIMS = (
    "UPDATE message SET status = 'sending', claimed_by = l.process, "
    "first_attempt_at = coalesce(message.first_attempt_at, l.first_attempt_at), body_hash = l.body_hash, "
    "provider = coalesce(l.provider, message.provider), updated_at = :now "
    "FROM send_log l WHERE message.id = +l.message_id AND l.sent_at IS NULL "
    "AND +message.status IN ('queued', 'held')"
)
_ACCEPTED_COLUMNS = {"provider": "coalesce(l.provider, m.provider)"}
_ACCEPTED = f"l.sent_at IS NOT NULL AND +m.status IN {_UNFINISHED} AND (:id IS NULL OR m.id = :id)"
_LIST_ACCEPTED = (
    "SELECT json_group_array(json_array("
    f"{', '.join(_ACCEPTED_COLUMNS.get(name, f'm.{name}') for name in LedgerRow._fields)}, l.sender, l.sent_at)) "
    f"FROM send_log l JOIN message m ON m.id = +l.message_id WHERE {_ACCEPTED}"
)
_MARK_LOGGED_AS_SENT = (
    "UPDATE message AS m SET status = 'sent', sent_at = l.sent_at, attempts = attempts + 1, due_at = NULL, "
    "claimed_by = NULL, first_attempt_at = coalesce(m.first_attempt_at, l.first_attempt_at), "
    "body_hash = coalesce(l.body_hash, m.body_hash), provider = coalesce(l.provider, m.provider), "
    "subject = CASE WHEN recipient_key IS NULL THEN NULL ELSE l.subject END, sender = l.sender, "
    "internet_message_id = l.internet_message_id, error_code = NULL, error_smtp = NULL, error_enhanced = NULL, "
    f"error_text = NULL, updated_at = :now FROM send_log l WHERE m.id = +l.message_id AND {_ACCEPTED}"
)
# Numbers of the transactions that claim messages (`batch`). Each process counts from 1, because the log is emptied when
# a process starts.
_batch_numbers = itertools.count(1)


def record_and_claim(new_outcomes: list[Outcome], candidates: list[LedgerRow], process: str) -> set[int]:
    """Record the outcomes of the sender and claim its next messages; return the ids of the claimed ones.

    The caller must not send a message whose id is not returned. Consent and suppressions are checked as messages are
    claimed, so that an opt-out also takes effect on queued messages (P4). Accepted emails and claims that
    are certainly allowed (`_SURELY_ALLOWED`) are logged; all others are recorded and claimed in the ledger. A message
    that was sent before a restore is not claimed.
    """
    require_write_transaction()
    accepted = [outcome for outcome in new_outcomes if _can_be_logged(outcome)]
    others = [outcome for outcome in new_outcomes if not _can_be_logged(outcome)]
    if others:
        settle_log()
        record(others)
    if accepted:
        items = [(outcome.row.id, outcome.subject, outcome.sender, outcome.internet_message_id) for outcome in accepted]
        run_set(_LOG_ACCEPTED, items, now=clock.now_ms())
    permitted = _list_permitted(candidates)
    if permitted and restored_sends.has_rows():
        settle_log()
        permitted = restored_sends.withhold(permitted)
    claimed = _claim_in_log(permitted, process) if permitted else set()
    # After an uncertain attempt, an SMS stays uncertain even if a second attempt fails.
    uncertain_ids = [
        outcome.row.id
        for outcome in others
        if outcome.row.channel == "sms"
        and outcome.error is not None
        and (outcome.row.uncertain_count or isinstance(outcome.error, Uncertain))
    ]
    if uncertain_ids:
        outcomes.sms_uncertain.send(uncertain_ids)
    return claimed


def _can_be_logged(outcome: Outcome) -> bool:
    """Return whether an outcome is the plain acceptance of an email."""
    return (
        outcome.error is None
        and outcome.skip_reason is None
        and outcome.row.channel == "email"
        and not outcome.row.uncertain_count
        and not outcome.delivered_via
        and outcome.provider_id is None
    )


def _claim_in_log(candidates: list[LedgerRow], process: str) -> set[int]:
    # The log also has rows of other transactions, so the number shows which rows this one has inserted.
    number = next(_batch_numbers)
    items = [
        (row.id, row.first_attempt_at, row.body_hash, row.provider) for row in candidates if row.channel == "email"
    ]
    claimed = {row[0] for row in items}
    if run_set(_LOG_CLAIM, items, batch=number, process=process, now=clock.now_ms()) < len(items):
        claimed = {row[0] for row in rows("SELECT message_id FROM send_log WHERE batch = ?", (number,))}
    others = [row for row in candidates if row.id not in claimed]
    if others:
        settle_log()
        claimed |= claim(others, process)
    return claimed


def replace_lost(outcome: Outcome) -> Outcome:
    """Return the outcome to record in place of one that cannot be recorded, so that a person decides (`uncertain`)."""
    is_accepted = outcome.error is None and outcome.skip_reason is None
    error = OutcomeLost(_LOST_ACCEPTANCE if is_accepted else _LOST_OUTCOME)
    return msgspec.structs.replace(outcome, error=error, skip_reason=None)


def is_log_empty() -> bool:
    """Return whether the log has no rows."""
    return fetch_one("SELECT 1 FROM send_log LIMIT 1") is None


def settle_log() -> None:
    """Mark the messages of the log as sent or being sent in the ledger, and empty the log.

    A message that cannot be recorded as sent is logged as an error and becomes `uncertain`, so that the others are
    recorded, its campaign can be completed, and it is not sent a second time.
    """
    require_write_transaction()
    if is_log_empty():
        return
    handle = connection()
    handle.execute("SAVEPOINT settle")
    lost: list[Outcome] = []
    try:
        _record_sent(None)
    except Exception as error:
        handle.execute("ROLLBACK TO settle")
        if to_storage_error(error) is not None:
            raise
        lost = _record_one_by_one(handle)
    run(_SHOW_CLAIMS, {"now": clock.now_ms()})
    for outcome in lost:
        outcomes.record_failure(replace_lost(outcome))
    run("DELETE FROM send_log")
    handle.execute("RELEASE settle")


def _record_one_by_one(handle: Any) -> list[Outcome]:
    """Record each accepted message of the log alone, and return the outcomes of those for which that failed.

    Their rows of the log become claims again.
    """
    lost = []
    logged = rows("SELECT message_id, subject, sender, internet_message_id FROM send_log WHERE sent_at IS NOT NULL")
    for message_id, *headers in logged:
        handle.execute("SAVEPOINT settle_one")
        try:
            _record_sent(message_id)
        except Exception as error:
            handle.execute("ROLLBACK TO settle_one")
            if to_storage_error(error) is not None:
                raise
            log.exception("sender: recording message %s as sent failed", message_id)
            run("UPDATE send_log SET sent_at = NULL WHERE message_id = ?", (message_id,))
            lost.append(Outcome(ledger.get_row(message_id), None, None, *headers))
        handle.execute("RELEASE settle_one")
    return lost


def _record_sent(message_id: int | None) -> None:
    """Record the accepted messages of the log as sent, or only the one with this id."""
    now = clock.now_ms()
    values = {"id": message_id, "now": now}
    accepted = msgspec.json.decode(scalar(_LIST_ACCEPTED, values))
    if not accepted:
        return
    run(_MARK_LOGGED_AS_SENT, values)
    outcomes.record_sent(
        [Outcome(LedgerRow._make(columns), sender=sender, accepted_at=at) for *columns, sender, at in accepted], now
    )
