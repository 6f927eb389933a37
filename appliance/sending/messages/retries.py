"""Messages in doubt: their stored bytes, recovery after a crash, SMS lookups, and the decisions of users.

A user can send a failed or uncertain message again, count an uncertain message as sent, or cancel an open message. The
delays between automatic attempts are in `outcomes`.
"""

import json
import logging
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from appliance.core import clock, signals
from appliance.core.errors import (
    ConnectionFailed,
    CurrentState,
    DeliveryError,
    Invalid,
    LookupUnsupported,
    Postponed,
    Transition,
    Uncertain,
    possible_actions,
    refuse_transition,
)
from appliance.core.i18n import gettext, gettext_noop, gettext_stored
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.messages import ledger, outcomes, queue, sent_journal
from appliance.sending.messages.ledger import COLUMNS, RETRY_NOW, LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.sms.segments import AcceptedSms
from appliance.settings import config, transports
from appliance.settings.config import parse_seconds
from appliance.storage.database import connection, fetch_one, rows, run
from appliance.storage.models import Message
from appliance.storage.models.message import CANCEL_OPEN
from appliance.storage.transactions import after_commit, require_write_transaction

# Messages are queried campaign by campaign, because the index by status begins with the campaign. Otherwise each start
# would scan the whole ledger.
_INTERRUPTED = (
    "SELECT id FROM message WHERE campaign_id IS NULL AND status = 'sending' UNION ALL "
    "SELECT m.id FROM campaign c CROSS JOIN message m ON m.campaign_id = c.id WHERE m.status = 'sending'"
)


def has_interrupted() -> bool:
    """Return whether there are messages that an earlier process was sending when it died."""
    return fetch_one(f"{_INTERRUPTED} LIMIT 1") is not None


# The exact bytes of uncertain messages are stored for their retry, whether it is automatic or started by a person (P3).

log = logging.getLogger("campanero.messages")
# Rows pruned in one transaction.
_MAX_PRUNED_ROWS = 100
_CANNOT_ASK = gettext_stored("unconfirmed, and its provider cannot be asked: %(reason)s")
_NO_ANSWER = gettext_stored("delivery is unknown, and its provider does not say: %(reason)s")
STOPPED_WHILE_SENDING = gettext_noop("the service stopped while this message was being sent")


# zlib gives up the interpreter lock for more bytes than this, and then waits for it much longer than the CRC takes.
_CRC_BYTES = 5_000


def hash_body(prepared: OutgoingMessage) -> int:
    """Return a CRC-32 of a message, which is stored when it is claimed, before the message is sent.

    For an SMS, the CRC includes the sender, which is not part of the text and which a lookup at the provider needs.
    """
    sender = prepared.sender.encode() if prepared.parts is not None else b""
    checksum, content = zlib.crc32(sender), memoryview(prepared.envelope.content)
    for start in range(0, len(content), _CRC_BYTES):
        checksum = zlib.crc32(content[start : start + _CRC_BYTES], checksum)
    return checksum


def load_payload(message_id: int) -> OutgoingMessage | None:
    """Return an uncertain message with the bytes that were sent, or None if its bytes are not stored."""
    row = fetch_one(
        "SELECT mail_from, rcpt_to, content, subject, sender, internet_message_id, parts, has_opt_out_hint, "
        "lookup_count FROM retry_payload WHERE message_id = ?",
        (message_id,),
    )
    if row is None:
        return None
    mail_from, rcpt_to, content, subject, sender, internet_message_id, parts, has_hint, lookup_count = row
    is_stuffed = content.endswith(b"\r\n") and not content.startswith(b".") and b"\n." not in content
    envelope = Envelope(mail_from, rcpt_to, content, is_stuffed, content.isascii())
    return OutgoingMessage(envelope, subject, sender, internet_message_id, parts, bool(has_hint), lookup_count)


def find_interrupted() -> list[tuple[LedgerRow, OutgoingMessage | None]]:
    """Return (ledger row, message or None) for each message that an earlier process was sending when it died.

    The message is the stored one, or is rendered again. It is None if rendering fails, or if its bytes do not match
    the hash stored when it was claimed, because a contact or a condition has changed since then.
    """
    preparer = MessagePreparer()
    interrupted = []
    for columns in rows(f"SELECT {COLUMNS} FROM message WHERE id IN ({_INTERRUPTED})"):
        row = LedgerRow._make(columns)
        prepared: OutgoingMessage | None = None
        try:
            prepared = load_payload(row.id) or preparer.prepare(row)
        except Exception as error:
            # An error in one message must not keep the service from starting.
            log.warning("recovery: preparing message %s again failed: %r", row.id, error)
        interrupted.append((row, prepared if prepared is not None and hash_body(prepared) == row.body_hash else None))
    return interrupted


def recover_interrupted(interrupted: list[tuple[LedgerRow, OutgoingMessage | None]]) -> int:
    """Requeue each message of `find_interrupted` or set it to `uncertain`, and return their number.

    Call it once at the start of the service.
    """
    require_write_transaction()
    now = clock.now_ms()
    for row, prepared in interrupted:
        if row.body_hash is None:
            # Without a hash the message was never rendered, so nothing of it was sent.
            outcomes.record_failure(Outcome(row, Postponed(STOPPED_WHILE_SENDING, 0)))
        elif prepared is None and row.uncertain_count == 0 and outcomes.get_channel_settings(row).in_doubt == "resend":
            # The message would be sent with other bytes, or can no longer be rendered.
            sent_journal.record_sent([row], is_doubtful=True)
            connection().execute("UPDATE message SET attempts = attempts + 1 WHERE id = ?", (row.id,))
            ledger.mark_uncertain(
                row,
                gettext_noop(
                    "the service stopped while this message was being sent, and its content has changed since"
                ),
                now,
            )
        else:
            outcomes.handle_uncertain(row, Uncertain(STOPPED_WHILE_SENDING), now, prepared)
    return len(interrupted)


def prune_payloads() -> int:
    """Delete the stored bytes of up to `_MAX_PRUNED_ROWS` uncertain messages of cancelled campaigns.

    Return the number of messages.
    """
    require_write_transaction()
    return run(
        "DELETE FROM retry_payload WHERE id IN (SELECT r.id FROM retry_payload r JOIN message m ON m.id = r.message_id "
        "JOIN campaign c ON c.id = m.campaign_id WHERE m.status = 'uncertain' AND c.phase = 'cancelled' LIMIT ?)",
        (_MAX_PRUNED_ROWS,),
    )


# Lookups of uncertain SMS at their provider (P13). The provider is asked three times, because an SMS may appear in its
# list late. An SMS that it does not have is then held for a person's decision, or sent once more. A lookup sends
# nothing, so the row is not claimed, and a process that dies during a lookup does not change it.

# Delays after the first lookup (`outcomes.handle_uncertain`).
_LOOKUP_DELAYS_SECONDS = (30.0, 120.0)
_BELONGS_TO_OTHER = "SELECT 1 FROM message WHERE provider_id = ? AND provider = ? AND id <> ?"
_NOT_FOUND = gettext_noop("unconfirmed: its provider has no record of it after three checks")


def settle_lookup(row: LedgerRow, prepared: OutgoingMessage, accepted: Sequence[AcceptedSms]) -> None:
    """Record an uncertain SMS as sent if the provider has accepted it, else schedule or end its lookups.

    `accepted` are the SMS with the same recipient, sender and text that the provider has accepted since the attempt.
    An accepted SMS that belongs to another message does not count. A message that is no longer being looked up is left
    as it is.
    """
    require_write_transaction()
    lookup_count = _get_lookup_count(row)
    if lookup_count is None:
        return None
    match = next(
        (
            candidate
            for candidate in accepted
            if fetch_one(_BELONGS_TO_OTHER, (candidate.provider_id, row.provider, row.id)) is None
        ),
        None,
    )
    if match is not None:
        return _record_found(row, prepared, match)
    now = clock.now_ms()
    if lookup_count < len(_LOOKUP_DELAYS_SECONDS):
        connection().execute(
            "UPDATE retry_payload SET lookup_count = ? WHERE message_id = ?", (lookup_count + 1, row.id)
        )
        return _set_due_at(row, now + int(_LOOKUP_DELAYS_SECONDS[lookup_count] * 1000))
    return _end_lookup(row, _NOT_FOUND, now)


def _end_lookup(row: LedgerRow, reason: str, now: int) -> None:
    """End the lookups of an SMS that was not found.

    If `in_doubt` is `resend`, an SMS with one uncertain attempt is requeued. Any other SMS becomes `uncertain`, with
    `reason` as its error text.
    """
    connection().execute("UPDATE retry_payload SET lookup_count = NULL WHERE message_id = ?", (row.id,))
    if outcomes.get_channel_settings(row).in_doubt == "resend" and row.uncertain_count == 1:
        return _set_due_at(row, ledger.RETRY_NOW)
    return ledger.mark_uncertain(row, reason, now)


def postpone_lookup(row: LedgerRow, error: DeliveryError) -> None:
    """Schedule the lookup of an SMS again after a lookup failed with `error`.

    The delay is the one that a Postponed error gives, `probe_after` if the provider could not be reached, else the
    delay of a retry. When the retry period of the message is over, the message becomes `uncertain`, unless the provider
    was not asked (Postponed). If the provider has no lookup (LookupUnsupported), the lookups end at once.
    """
    require_write_transaction()
    if _get_lookup_count(row) is None:
        return None
    now = clock.now_ms()
    if isinstance(error, LookupUnsupported):
        return _end_lookup(row, _CANNOT_ASK % {"reason": error.text}, now)
    if isinstance(error, Postponed):  # the provider was not asked
        return _set_due_at(row, now + int(error.seconds * 1000))
    if outcomes.has_expired(row, now):
        connection().execute("UPDATE retry_payload SET lookup_count = NULL WHERE message_id = ?", (row.id,))
        return ledger.mark_uncertain(row, _NO_ANSWER % {"reason": error.text}, now)
    if isinstance(error, ConnectionFailed):
        return _set_due_at(row, now + int(parse_seconds(outcomes.get_channel_settings(row).probe_after) * 1000))
    delay = outcomes.get_retry_delay(row, (now - (row.first_attempt_at or now)) / 1000)
    return _set_due_at(row, now + int(delay * 1000))


def _get_lookup_count(row: LedgerRow) -> int | None:
    """Return the number of lookups of an SMS so far, or None if it is no longer being looked up."""
    result = fetch_one(
        "SELECT r.lookup_count FROM retry_payload r JOIN message m ON m.id = r.message_id "
        "WHERE m.id = ? AND m.status IN ('queued', 'held')",
        (row.id,),
    )
    return result[0] if result is not None else None


def _record_found(row: LedgerRow, prepared: OutgoingMessage, accepted: AcceptedSms) -> None:
    # `queue.record` expects a row that is being sent, and counts an attempt. The uncertain attempt was counted
    # before.
    connection().execute(
        "UPDATE message SET status = 'sending', attempts = max(attempts - 1, 0) WHERE id = ?", (row.id,)
    )
    outcome = Outcome(row, sender=prepared.sender, prepared=prepared, provider_id=accepted.provider_id)
    outcome.first_status = accepted.status
    queue.record([outcome])


def _set_due_at(row: LedgerRow, due_at: int) -> None:
    connection().execute("UPDATE message SET due_at = ?, updated_at = ? WHERE id = ?", (due_at, clock.now_ms(), row.id))


# Decisions of people. A failed or uncertain message can be sent again, an uncertain one can be counted as sent
# (docs/decisions.md#7), and a queued or held one can be cancelled.

RETRIABLE_STATUSES = ("failed", "uncertain")

# What people can do with a message, and from which statuses.
ACTIONS = {
    "retry": Transition(
        gettext_noop("A message with the status %(status)s cannot be sent again."), "queued", RETRIABLE_STATUSES
    ),
    "assume_sent": Transition(
        gettext_noop("A message with the status %(status)s cannot be counted as sent."), "sent", ("uncertain",)
    ),
    "cancel": Transition(
        gettext_noop("A message with the status %(status)s cannot be cancelled."), "cancelled", ("queued", "held")
    ),
}

# The number of messages that one call of `retry_selection` or `assume_sent_selection` changes.
_MAX_ROWS_PER_WRITE = 500


class MessageSelection(NamedTuple):
    """A selection of a campaign's messages: those with a status, an id above `after_id` and, unless None, in `ids`."""

    status: str
    after_id: int = 0
    ids: tuple[int, ...] | None = None


def retry(account_id: int, message_id: int, actor: str) -> Message:
    """Requeue a failed or uncertain message and return it; it will be sent with the same Message-ID.

    A completed campaign returns to the phase `sending`. `actor` is written to the log. Raises NotFound, or Invalid with
    the reason `invalid_transition` (wrong status, or the campaign was cancelled) or `recipient_suppressed` (consent or
    a suppression does not allow the message).
    """
    require_write_transaction()
    row = ledger.get(account_id, message_id)
    _require_action(row, "retry")
    reason = queue.get_refusal(ledger.get_row(row.id))
    if reason is not None:
        raise Invalid(
            {"to": [gettext("may not be written to")]},
            reason="recipient_suppressed",
            message_id=row.id,
            skip_reason=reason,
        )
    _requeue([row.id], row.campaign_id)
    log.info("messages: retry actor=%s message=%s", actor, row.id)
    return ledger.get(account_id, message_id)


def assume_sent(account_id: int, message_id: int, actor: str) -> Message:
    """Record an uncertain message as sent and return it. Raises NotFound, or Invalid (`invalid_transition`)."""
    require_write_transaction()
    row = ledger.get(account_id, message_id)
    _require_action(row, "assume_sent")
    _record_as_sent([row.id])
    log.info("messages: assume_sent actor=%s message=%s", actor, row.id)
    return ledger.get(account_id, message_id)


def confirm_arrival(message_id: int, provider_id: str | None = None) -> None:
    """Record a message as sent; call it when a bounce, complaint or receipt shows that an ended attempt was accepted.

    This also cancels the retry of the message. `provider_id` is the provider's id of an SMS.
    """
    require_write_transaction()
    _record_as_sent([message_id], provider_id)


def cancel(account_id: int, message_id: int, actor: str) -> Message:
    """Cancel a queued or held message and return it.

    If an earlier attempt may have been accepted, the status becomes `uncertain` instead of `cancelled`. Raises
    NotFound, or Invalid (`invalid_transition`).
    """
    require_write_transaction()
    row = ledger.get(account_id, message_id)
    _require_action(row, "cancel")
    connection().execute(f"UPDATE message SET {CANCEL_OPEN}, updated_at = ? WHERE id = ?", (clock.now_ms(), row.id))
    log.info("messages: cancel actor=%s message=%s", actor, row.id)
    return ledger.get(account_id, message_id)


def retry_selection(campaign_id: int, selection: MessageSelection, actor: str) -> tuple[int, int]:
    """Requeue the failed or uncertain messages among the first `_MAX_ROWS_PER_WRITE` of a selection.

    Return (number of requeued messages, `after_id` of the next call; 0 if there is none). Messages whose recipients may
    no longer get them (`queue.get_refusal`) and messages of a cancelled campaign are left as they are.
    """
    require_write_transaction()
    selected = (
        _fetch_selection(campaign_id, selection)
        if selection.status in RETRIABLE_STATUSES and not _is_campaign_cancelled(campaign_id)
        else []
    )
    retriable_ids = [row.id for row in selected if queue.get_refusal(row) is None]
    _requeue(retriable_ids, campaign_id)
    log.info("messages: retry actor=%s count=%s campaign=%s", actor, len(retriable_ids), campaign_id)
    return len(retriable_ids), selected[-1].id if len(selected) == _MAX_ROWS_PER_WRITE else 0


def retry_by_ids(account_id: int, message_ids: Sequence[int], actor: str) -> int:
    """Requeue the failed or uncertain messages with these ids, and return the number of requeued messages.

    Messages of other accounts, of cancelled campaigns, with another status, or whose recipients may no longer get them
    (`queue.get_refusal`) are left as they are.
    """
    require_write_transaction()
    sql = f"SELECT {COLUMNS} FROM message WHERE account_id = ? AND id = ? AND status IN ('failed', 'uncertain')"
    selected = [
        LedgerRow._make(columns) for message_id in message_ids for columns in rows(sql, (account_id, message_id))
    ]
    ids_by_campaign: dict[int | None, list[int]] = {}
    for row in selected:
        if not _is_campaign_cancelled(row.campaign_id) and queue.get_refusal(row) is None:
            ids_by_campaign.setdefault(row.campaign_id, []).append(row.id)
    for campaign_id, ids in ids_by_campaign.items():
        _requeue(ids, campaign_id)
    count = sum(map(len, ids_by_campaign.values()))
    log.info("messages: retry actor=%s count=%s", actor, count)
    return count


def assume_sent_selection(campaign_id: int, selection: MessageSelection, actor: str) -> tuple[int, int]:
    """Record the first `_MAX_ROWS_PER_WRITE` uncertain messages of a selection as sent, whatever status it selects.

    Return (number of messages, `after_id` of the next call; 0 if there is none).
    """
    require_write_transaction()
    selected = _fetch_selection(campaign_id, selection._replace(status="uncertain"))
    _record_as_sent([row.id for row in selected])
    log.info("messages: assume_sent actor=%s count=%s campaign=%s", actor, len(selected), campaign_id)
    return len(selected), selected[-1].id if len(selected) == _MAX_ROWS_PER_WRITE else 0


def _fetch_selection(campaign_id: int, selection: MessageSelection) -> list[LedgerRow]:
    id_condition = "" if selection.ids is None else f"AND id IN ({','.join('?' * len(selection.ids))}) "
    stored_rows = rows(
        f"SELECT {COLUMNS} FROM message WHERE campaign_id = ? AND status = ? AND id > ? {id_condition}"
        "ORDER BY id LIMIT ?",
        (campaign_id, selection.status, selection.after_id, *(selection.ids or ()), _MAX_ROWS_PER_WRITE),
    )
    return [LedgerRow._make(columns) for columns in stored_rows]


def _is_campaign_cancelled(campaign_id: int | None) -> bool:
    """Return whether a campaign was cancelled, so that its messages must not be sent again; false for None."""
    return fetch_one("SELECT 1 FROM campaign WHERE id = ? AND phase = 'cancelled'", (campaign_id,)) is not None


def _require_action(row: Message, action: str) -> None:
    """Raise Invalid (`invalid_transition`) if a person may not do this action with a message now."""
    is_cancelled = _is_campaign_cancelled(row.campaign_id)
    names = [name for name in possible_actions(ACTIONS, row.status) if name != "retry" or not is_cancelled]
    if action not in names:
        current = CurrentState(row.status, [ACTIONS[name].target for name in names], names)
        reason = (
            gettext("Its campaign was cancelled.") if is_cancelled and row.status in ACTIONS[action].sources else ""
        )
        raise refuse_transition(current, action, ACTIONS[action], reason)


def _requeue(message_ids: list[int], campaign_id: int | None) -> None:
    """Set messages of one campaign (or of none) to `queued` and due at once.

    `uncertain_count` is not reset, so that a message which is uncertain again is not sent again automatically. The time
    of the first attempt is not reset either, because it is the Date of the message: if its retry period is over, the
    message is tried once (docs/promises.md#p6). Emails whose transport has been deleted are sent with the default one.
    """
    if not message_ids:
        return
    now = clock.now_ms()
    # A person has decided, so the result of a lookup at the provider is no longer needed.
    connection().executemany(
        "UPDATE retry_payload SET lookup_count = NULL WHERE message_id = ?",
        [(message_id,) for message_id in message_ids],
    )
    email = config.current().email
    known = json.dumps([*transports.ALL_KINDS, *transports.list_keys(email)])
    connection().executemany(
        "UPDATE message SET status = 'queued', due_at = ?, updated_at = ?, provider = CASE WHEN channel = 'email' "
        "AND provider NOT IN (SELECT value FROM json_each(?)) THEN ? ELSE provider END WHERE id = ?",
        [(RETRY_NOW, now, known, email.transport, message_id) for message_id in message_ids],
    )
    if campaign_id is not None:
        # Only the phase of a completed campaign changes: it is `sending` until the campaign has no open messages.
        connection().execute(
            "UPDATE campaign SET phase = CASE WHEN phase = 'completed' THEN 'sending' ELSE phase END, "
            "updated_at = max(?, updated_at + 1) WHERE id = ?",
            (now, campaign_id),
        )
    after_commit(lambda: signals.wake("outbox"))


def _record_as_sent(message_ids: list[int], provider_id: str | None = None) -> None:
    """Record messages as accepted, with all counters and events; `provider_id` is the provider's id of an SMS."""
    stored_rows = rows(
        f"SELECT {COLUMNS}, subject, sender, internet_message_id FROM message "
        f"WHERE id IN ({','.join('?' * len(message_ids))})",
        message_ids,
    )
    # `queue.record` expects rows that are being sent, and counts an attempt. The one that arrived was counted before.
    connection().executemany(
        "UPDATE message SET status = 'sending', skip_reason = NULL, attempts = max(attempts - 1, 0) WHERE id = ?",
        [(message_id,) for message_id in message_ids],
    )
    sent_rows = [(LedgerRow._make(columns[:-3]), columns[-3:]) for columns in stored_rows]
    queue.record(
        [
            Outcome(
                row, subject=subject, sender=sender, internet_message_id=internet_message_id, provider_id=provider_id,
                prepared=load_payload(row.id) if row.channel == "sms" else None,
            )
            for row, (subject, sender, internet_message_id) in sent_rows
        ]
    )  # fmt: skip
