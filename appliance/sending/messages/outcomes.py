"""Record the outcomes of claimed messages with their counters and events, in the caller's transaction.

Accepted messages are recorded together, with one statement for each table; all other outcomes are recorded one by one.
"""

import itertools
import random
from collections import Counter
from functools import partial
from typing import Any

import msgspec

from appliance.audience import suppressions
from appliance.audience.consent import Evidence
from appliance.audience.suppressions import SuppressionCause
from appliance.core import clock, crypto, signals
from appliance.core.addresses import Address
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    OutcomeLost,
    Postponed,
    RateLimited,
    RecipientRejected,
    SenderRejectedByMx,
    Uncertain,
)
from appliance.core.signals import Signal
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.delivery import bounce_classes
from appliance.sending.delivery.bounce_classes import BounceClass
from appliance.sending.messages import ledger, senders, sent_journal, sms_rules
from appliance.sending.messages.ledger import LedgerRow, Outcome, OutgoingMessage
from appliance.sending.sms import error_codes
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.transports import TRANSPORTS
from appliance.settings import config, transports
from appliance.settings.config import parse_seconds
from appliance.settings.schema import Email, Sms
from appliance.settings.transports import ALL_KINDS, DIRECT
from appliance.storage.database import connection, fetch_one, rows, run, run_set, scalar
from appliance.storage.transactions import after_commit, require_write_transaction

# Items: (id, subject, sender, Message-ID, provider's id, parts).
_MARK_SENT = (
    "UPDATE message SET status = 'sent', sent_at = :now, attempts = attempts + 1, due_at = NULL, claimed_by = NULL, "
    "subject = CASE WHEN recipient_key IS NULL THEN NULL ELSE item.value ->> 1 END, sender = item.value ->> 2, "
    "internet_message_id = item.value ->> 3, provider_id = coalesce(item.value ->> 4, provider_id), "
    "segments = coalesce(item.value ->> 5, segments), error_code = NULL, error_smtp = NULL, error_enhanced = NULL, "
    "error_text = NULL, updated_at = :now "
    "FROM json_each(:items) AS item WHERE message.id = item.value ->> 0 AND message.status = 'sending'"
)
_FETCH_SENDING = (
    "SELECT json_group_array(json_array(id, contact_id)) FROM message "
    "WHERE id IN (SELECT value FROM json_each(?)) AND status = 'sending'"
)
# Items: (id, number of messages).
_COUNT_SOURCE = (
    "UPDATE {table} SET sent_count = sent_count + (item.value ->> 1) FROM json_each(:items) AS item "
    "WHERE {table}.id = item.value ->> 0"
)

# Items: (contact, number of emails, number of SMS, time of the last one).
_COUNT_CONTACT = (
    "UPDATE contact SET email_sent_count = email_sent_count + (item.value ->> 1), "
    "sms_sent_count = sms_sent_count + (item.value ->> 2), "
    "email_last_sent_at = CASE WHEN item.value ->> 1 THEN max(coalesce(email_last_sent_at, 0), item.value ->> 3) "
    "ELSE email_last_sent_at END "
    "FROM json_each(:items) AS item WHERE contact.id = item.value ->> 0"
)

_STORE_HINT_TIME = "UPDATE channel SET opt_out_hint_sent_at = ? WHERE account_id = ? AND kind = 'phone' AND key = ?"
# Sent with the outcomes of accepted SMS, in the transaction that records them.
sms_accepted = Signal[[list[Outcome]]]()
# Sent with the ids of SMS whose attempt failed, if this or an earlier attempt was uncertain.
sms_uncertain = Signal[[list[int]]]()
# Items: (account, kind of address, key, number of messages).
_COUNT_CHANNEL = (
    "UPDATE channel SET sent_count = sent_count + (item.value ->> 3) FROM json_each(:items) AS item "
    "WHERE channel.account_id = item.value ->> 0 AND channel.kind = item.value ->> 1 AND channel.key = item.value ->> 2"
)


def record_accepted(outcomes: list[Outcome]) -> None:
    """Mark accepted messages as sent and record their counters and events (`record_sent`).

    A message that is no longer `sending` was recorded before and is left out.
    """
    now, ids = clock.now_ms(), [outcome.row.id for outcome in outcomes]
    # The contact as read may have been merged into another, or deleted, since then, so the row's contact is used.
    contacts: dict[int, int | None] = dict(
        msgspec.json.decode(scalar(_FETCH_SENDING, (msgspec.json.encode(ids).decode(),)))
    )
    written = [
        msgspec.structs.replace(outcome, row=outcome.row._replace(contact_id=contacts[outcome.row.id]))
        for outcome in outcomes
        if outcome.row.id in contacts
    ]
    run_set(_MARK_SENT, [_list_sent_columns(outcome) for outcome in written], now=now)
    record_sent(written, now)


def record_sent(outcomes: list[Outcome], now: int) -> None:
    """Record the counters and events of messages that were marked as sent, and delete the bytes stored for a retry.

    The messages are also written to the journal, so that a restored database does not send them again. `now` (ms) is
    when those without an `accepted_at` were accepted. It must be the `sent_at` of the SMS among them, because
    `sms_rules.is_hint_due` compares it with the time of the last opt-out hint. The contacts of the outcomes must be the
    present contacts of the messages.
    """
    require_write_transaction()
    ledger_rows = [outcome.row for outcome in outcomes]
    warm_ups = Counter(
        (name, (outcome.accepted_at or now) // clock.DAY_MS)
        for outcome in outcomes
        if (name := senders.get_warm_up_name(outcome.row, outcome.sender or "")) is not None
    )
    senders.count_warm_up_sent(warm_ups)
    repeated = [row.id for row in ledger_rows if row.uncertain_count]
    if repeated:
        run_set("DELETE FROM retry_payload WHERE message_id IN (SELECT value FROM json_each(:items))", repeated)
    _count_sent([outcome for outcome in outcomes if not outcome.row.test], now)
    names: dict[tuple[int | None, int | None], str | None] = {}
    depths = ledger.get_chain_depths(ledger_rows)
    log.record_many([_build_sent_event(outcome, names, depths.get(outcome.row.id, 0)) for outcome in outcomes])
    sms = [outcome for outcome in outcomes if outcome.row.channel == "sms"]
    if sms:
        _record_accepted_sms(sms, now)
    # These are last, because a caller that rolls back to a savepoint after an error keeps what was registered for the
    # commit: lines of the journal, and counters in memory.
    sent_journal.record_sent(ledger_rows)
    ledger.count_accepted(ledger_rows)


def _list_sent_columns(outcome: Outcome) -> tuple[Any, ...]:
    parts = outcome.prepared.parts if outcome.prepared is not None else None
    row = (outcome.row.id, outcome.subject, outcome.sender, outcome.internet_message_id)
    return (*row, outcome.provider_id, parts)


def _count_sent(outcomes: list[Outcome], now: int) -> None:
    """Add accepted messages to the counters of campaigns, flows, contacts and channels."""
    sent = [outcome.row for outcome in outcomes]
    for table, ids in (
        ("campaign", [row.campaign_id for row in sent if row.campaign_id is not None]),
        ("flow", [row.flow_id for row in sent if row.run_id is not None]),
    ):
        if ids:
            run_set(_COUNT_SOURCE.format(table=table), [*Counter(ids).items()])
    emails = Counter(row.contact_id for row in sent if row.contact_id and row.channel == "email")
    sms = Counter(row.contact_id for row in sent if row.contact_id and row.channel == "sms")
    last_at: dict[int | None, int] = {}
    for outcome in outcomes:
        contact_id = outcome.row.contact_id
        last_at[contact_id] = max(last_at.get(contact_id, 0), outcome.accepted_at or now)
    run_set(_COUNT_CONTACT, [(key, emails[key], sms[key], last_at[key]) for key in emails.keys() | sms.keys()])
    channels = Counter((row.account_id, row.address_kind, row.recipient_key) for row in sent)
    run_set(_COUNT_CHANNEL, [(*key, count) for key, count in channels.items()])


def _record_accepted_sms(outcomes: list[Outcome], now: int) -> None:
    connection().executemany(
        _STORE_HINT_TIME,
        [(now, outcome.row.account_id, outcome.row.recipient_key) for outcome in outcomes
         if outcome.prepared is not None and outcome.prepared.has_opt_out_hint and not outcome.row.test],
    )  # fmt: skip
    sms_rules.count_sms_parts(outcome for outcome in outcomes if not outcome.row.test)
    sms_accepted.send(outcomes)


def _build_sent_event(outcome: Outcome, names: dict[tuple[int | None, int | None], str | None], depth: int) -> NewEvent:
    row, via = outcome.row, outcome.delivered_via or {}
    source = (row.campaign_id, row.flow_id)
    if source not in names:
        names[source] = ledger.get_source_name(row)
    return NewEvent(
        row.account_id, f"{row.channel}_sent", row.contact_id, ledger.build_event_data(row) | via,
        resource_uid=f"message:{row.id}", resource_name=names[source], test=row.test, chain_depth=depth,
        happened_at=outcome.accepted_at,
    )  # fmt: skip


# A bounce is stored with its class, and the address is suppressed after a number of bounces that depends on the class.
# The rules are the same whether a server rejected the message during delivery or a report arrived later (`inbound`).
# Bounces about size, content, policy, reputation or our own setup never count against a recipient
# (docs/decisions.md#9).

# How long a bounce counts.
_BOUNCE_WINDOW_MS = 30 * clock.DAY_MS
# An accepted message counts as delivered if no bounce arrived for this long.
_ASSUMED_DELIVERED_MS = 2 * clock.DAY_MS
# By suppression rule (`bounce_classes`): how many bounces suppress an address, and the rules of the classes that count.
_BOUNCE_LIMITS = {"second": (2, ("second",)), "third": (3, ("third",)), "fifth": (5, ("second", "fifth"))}
# Bounce classes of rejections because of the sender, by the reason for a pause.
_SENDER_CLASSES = {"unauthenticated": "authentication", "unregistered": "unregistered", "filtered": "filtered"}
_WATCHED_CLASSES = tuple(_SENDER_CLASSES.values())
_DELIVERED_AT = "CASE WHEN status = 'sent' AND sent_at <= ?1 THEN sent_at ELSE 0 END"

_LAST_SUCCESS = (
    f"SELECT max(max(coalesce(delivered_at, 0), coalesce(clicked_at, 0), {_DELIVERED_AT})) FROM message "
    "WHERE account_id = ?2 AND recipient_key = ?3 AND test = 0 AND status IN ('sent', 'delivered', 'complained') "
)


def apply_bounce(row: LedgerRow, bounce_class: BounceClass, source: str, text: str) -> BounceClass:
    """Store a message's bounce, suppress the address if the rule of its class requires that, and return the class.

    `source` is the reporter of the bounce (`smtp` or a provider), and `text` its diagnostic text. If the rule `second`
    has suppressed the address, `HARD` is returned instead of `bounce_class`. Bounces of test messages and of erased
    recipients are not stored.
    """
    require_write_transaction()
    stored = fetch_one("SELECT contact_id, recipient_key FROM message WHERE id = ?", (row.id,))
    if row.test or stored is None or stored[1] is None:
        return bounce_class
    contact_id, rule = stored[0], bounce_class.suppression_rule
    now, hashed = clock.now_ms(), crypto.hash_address(row.address_kind, row.recipient_key)
    run(
        "INSERT INTO bounce (account_id, message_id, campaign_id, address_hash, kind, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (message_id) DO UPDATE SET kind = excluded.kind, "
        "created_at = excluded.created_at",
        (row.account_id, row.id, row.campaign_id, hashed, bounce_class.name, now),
    )
    ledger.count_bounce(row, bounce_class.name)
    if bounce_class.name in _WATCHED_CLASSES and row.campaign_id is not None:
        after_commit(lambda: signals.wake("campaigns"))
    if bounce_class is bounce_classes.HARD:
        senders.count_warm_up_failure(row, "hard")
    if rule == "never":
        return bounce_class
    if rule in ("at_once", "opted_out"):
        _suppress(row, "hard_bounce" if rule == "at_once" else "stop_keyword", source, text)
        return bounce_class
    if row.channel == "email":
        run("UPDATE contact SET email_soft_bounce_count = email_soft_bounce_count + 1 WHERE id = ?", (contact_id,))
    since = max(now - _BOUNCE_WINDOW_MS, _get_last_success(row, contact_id, now))
    reaches_limit = partial(_reaches_limit, row.account_id, hashed, since)
    if rule == "second" and reaches_limit(rule):
        _suppress(row, "hard_bounce", source, text)
        return bounce_classes.HARD
    if (rule == "third" and reaches_limit(rule)) or reaches_limit("fifth"):
        _suppress(row, "soft_bounce", source, text)
    return bounce_class


def count_sender_rejections(campaign_id: int) -> dict[str, int]:
    """Return the number of a campaign's messages that were rejected because of the sender, by reason.

    The reasons, which are always all present, are `unauthenticated` (the email is not authenticated), `unregistered`
    (the sender of the SMS is not registered) and `filtered` (a network filtered the SMS as unwanted).
    """
    sql = f"SELECT kind, count(*) FROM bounce WHERE campaign_id = ? AND kind IN {_WATCHED_CLASSES!r} GROUP BY kind"
    counts = dict(rows(sql, (campaign_id,)))
    return {name: counts.get(kind, 0) for name, kind in _SENDER_CLASSES.items()}


def get_last_sender_rejection(campaign_id: int) -> tuple[str, str | None, str | None] | None:
    """Return (class, enhanced status code, text) of a campaign's last rejection because of the sender, or None."""
    matches = rows(
        f"SELECT r.kind, m.error_enhanced, m.error_text FROM bounce r JOIN message m ON m.id = r.message_id "
        f"WHERE r.campaign_id = ? AND r.kind IN {_WATCHED_CLASSES!r} ORDER BY r.created_at DESC, r.id DESC LIMIT 1",
        (campaign_id,),
    )
    return matches[0] if matches else None


def _reaches_limit(account_id: int, address_hash: bytes, since: int, rule: str) -> bool:
    """Return whether an address has so many bounces since `since` that a suppression rule suppresses it."""
    limit, rules = _BOUNCE_LIMITS[rule]
    names = [kind.name for kind in bounce_classes.ALL_CLASSES if kind.suppression_rule in rules]
    sql = (
        "SELECT count(*) FROM bounce WHERE account_id = ? AND address_hash = ? AND created_at > ? "
        f"AND kind IN ({','.join('?' * len(names))})"
    )
    return bool(scalar(sql, (account_id, address_hash, since, *names)) >= limit)


def _get_last_success(row: LedgerRow, contact_id: int | None, now: int) -> int:
    # Messages with and without a contact are found by different indexes, so each case has its own statement.
    values = (now - _ASSUMED_DELIVERED_MS, row.account_id, row.recipient_key)
    if contact_id is None:
        return int(scalar(f"{_LAST_SUCCESS} AND contact_id IS NULL", values) or 0)
    return int(scalar(f"{_LAST_SUCCESS} AND contact_id = ?4", (*values, contact_id)) or 0)


def _suppress(row: LedgerRow, reason: str, source: str, text: str) -> None:
    suppressions.suppress(
        row.account_id, Address(row.address_kind, row.recipient, row.recipient_key),
        SuppressionCause(reason, source=source, diagnostic=text[:1000] or None),
        Evidence(source=source, actor="system", message_id=row.id),
    )  # fmt: skip


# Delay of the first lookup of an uncertain SMS; the delays of later lookups are in `retries`.
_FIRST_LOOKUP_SECONDS = 5.0

# Selects a row if the message's campaign was cancelled, or if its run was ended in a way that cancels its messages.
# Runs that ended by a merge of contacts or by reaching the goal still send their transactional messages.
_CANCELLED = (
    "SELECT 1 FROM campaign WHERE id = ? AND phase = 'cancelled' UNION ALL SELECT 1 FROM run r JOIN flow f "
    "ON f.id = r.flow_id WHERE r.id = ? AND (f.deleted_at IS NOT NULL OR f.pending_end IS NOT NULL "
    "OR r.exit_reason IN ('taken_out', 'flow_archived') OR r.exit_reason IN ('contact_merged', 'goal') AND NOT ?)"
)


def is_cancelled(row: LedgerRow) -> bool:
    """Return whether the campaign or the run of a message ended in a way that cancels the message."""
    return fetch_one(_CANCELLED, (row.campaign_id, row.run_id, row.transactional)) is not None


def record_failure(outcome: Outcome) -> None:
    """Record the outcome of a message that was not accepted: skipped, retried later, uncertain or failed.

    An outcome that was recorded before is ignored. Raises ValueError if the outcome has neither an error nor a reason
    to skip.
    """
    require_write_transaction()
    row, error, now = outcome.row, outcome.error, clock.now_ms()
    if scalar("SELECT status FROM message WHERE id = ?", (row.id,)) != "sending":
        return None  # recorded before
    if outcome.skip_reason is not None:
        _store_sent_headers(outcome, now)
        ledger.record_error(row, error)
        return ledger.mark_skipped(row, outcome.skip_reason, now)
    if error is None:
        raise ValueError("accepted messages are recorded by record_accepted")
    if (error.enhanced or "").startswith(("4.7.", "5.7.")):
        senders.count_warm_up_failure(row, "refused", outcome.sender)
    attempted = isinstance(error, Deferred | MailUnauthenticated)
    if (
        isinstance(error, ConnectionFailed | ClientRejected)
        and not attempted
        and not (row.campaign_id is None and has_expired(row, now))
    ):
        if row.uncertain_count and _is_transport_deleted(row):
            # The message would wait forever, because no other transport may repeat it.
            return ledger.mark_uncertain(row, error.text, now)
        ledger.record_error(row, error)
        # No attempt is counted, because the transport failed and not this recipient. Messages of a campaign wait until
        # the transport works or a user cancels the campaign; all others expire.
        delay = 0.0 if outcome.falls_over else parse_seconds(get_channel_settings(row).probe_after)
        return _reschedule(row, now, delay, attempts=row.attempts, uncertain_count=row.uncertain_count)
    if isinstance(error, Postponed) and not (isinstance(error, RateLimited) and has_expired(row, now)):
        ledger.record_error(row, error if isinstance(error, RateLimited) else None)
        delay = 0.0 if isinstance(error, RateLimited) and outcome.falls_over else error.seconds
        return _reschedule(row, now, delay, attempts=row.attempts, uncertain_count=row.uncertain_count)
    _store_sent_headers(outcome, now)
    if isinstance(error, OutcomeLost):
        sent_journal.record_sent([row], is_doubtful=True)
        return _end_uncertain(row, error, now)
    if isinstance(error, Uncertain):
        return handle_uncertain(row, error, now, outcome.prepared)
    ledger.record_error(row, error)
    if attempted and not has_expired(row, now):
        return _reschedule(
            row, now, get_retry_delay(row), attempts=row.attempts + 1, uncertain_count=row.uncertain_count
        )
    return _mark_failed(row, error, now)


def _store_sent_headers(outcome: Outcome, now: int) -> None:
    # The subject may contain personal data, so it is not stored if the recipient was erased while the message was sent.
    connection().execute(
        "UPDATE message SET subject = CASE WHEN recipient_key IS NULL THEN NULL ELSE coalesce(?, subject) END, "
        "sender = coalesce(?, sender), "
        "internet_message_id = coalesce(?, internet_message_id), updated_at = ? WHERE id = ?",
        (outcome.subject, outcome.sender, outcome.internet_message_id, now, outcome.row.id),
    )


def _reschedule(row: LedgerRow, now: int, delay: float, attempts: int, uncertain_count: int) -> None:
    # Without a delay, the due time is in the past, so that a clock that steps back does not delay the message.
    due = now + int(delay * 1000) if delay else ledger.RETRY_NOW
    cancelled = is_cancelled(row)
    if cancelled and uncertain_count:
        connection().execute("UPDATE message SET attempts = ? WHERE id = ?", (attempts, row.id))
        return ledger.mark_uncertain(row, "not repeated: cancelled", now)
    # The message of a campaign has no first attempt yet if only the transport failed: its retry period begins later.
    is_tried = attempts > 0 or uncertain_count > 0 or row.campaign_id is None
    connection().execute(
        "UPDATE message SET status = ?, due_at = ?, attempts = ?, uncertain_count = ?, claimed_by = NULL, "
        "first_attempt_at = iif(?, first_attempt_at, NULL), provider = ?, updated_at = ? WHERE id = ?",
        ("cancelled" if cancelled else "queued", None if cancelled else due, attempts, uncertain_count, is_tried,
         row.provider if uncertain_count or cancelled else _get_queued_transport(row), now, row.id),
    )  # fmt: skip
    ledger.count_attempt(row, "cancelled" if cancelled else "deferred")
    return None


def _is_transport_deleted(row: LedgerRow) -> bool:
    """Return whether the transport of an email was a further one that has been deleted."""
    return row.channel == "email" and transports.get_kind(row.provider, config.current().email) not in ALL_KINDS


def _get_queued_transport(row: LedgerRow) -> str:
    """Return the transport to store for a message that is queued again, until another one is chosen.

    It is the key of the message's transport, except for direct delivery as a further transport: its key does not show
    whether direct delivery was the default one, so after its deletion a queued message would not get the default
    transport. The key of the default transport is stored instead.
    """
    email = config.current().email
    is_further = row.provider == DIRECT and transports.find_named(DIRECT, email) is not None
    return email.transport if is_further and row.channel == "email" else row.provider


def handle_uncertain(row: LedgerRow, error: DeliveryError, now: int, prepared: OutgoingMessage | None) -> None:
    """Schedule a lookup or a resend of a message that may have been accepted, else set it to `uncertain` (P3).

    An SMS is looked up if its provider supports that, and sent again, even with `in_doubt = hold`, if its provider is
    idempotent. If `in_doubt` is `resend`, an email is sent again: once, or as long as its transport recognizes a
    repeated request, with growing delays. The bytes in `prepared` are stored, so that every retry, even one that a user
    starts, sends the same message.
    """
    sent_journal.record_sent([row], is_doubtful=True)
    _store_payload(row, prepared)
    if _start_lookup(row):
        ledger.record_error(row, error)
        return _reschedule(
            row, now, _FIRST_LOOKUP_SECONDS, attempts=row.attempts + 1, uncertain_count=row.uncertain_count + 1
        )
    delay = get_retry_delay(row) if row.uncertain_count else 0
    if get_channel_settings(row).in_doubt == "resend" and _is_idempotent_email(row, now + int(delay * 1000)):
        ledger.record_error(row, error)
        return _reschedule(row, now, delay, attempts=row.attempts + 1, uncertain_count=row.uncertain_count + 1)
    if _should_resend(row):
        ledger.record_error(row, error)
        # The count stays 1 after further attempts: only an idempotent provider gets them, and it accepts one of them.
        return _reschedule(row, now, 0, attempts=row.attempts + 1, uncertain_count=1)
    return _end_uncertain(row, error, now)


def _end_uncertain(row: LedgerRow, error: DeliveryError, now: int) -> None:
    connection().execute(
        "UPDATE message SET attempts = attempts + 1, uncertain_count = uncertain_count + 1 WHERE id = ?", (row.id,)
    )
    return ledger.mark_uncertain(row, error.text, now)


def _is_idempotent_email(row: LedgerRow, at: int) -> bool:
    """Return whether the transport of an email sends it only once even if its request is repeated at `at` (ms)."""
    kind = transports.get_kind(row.provider, config.current().email)
    transport = TRANSPORTS.get(kind) if row.channel == "email" else None
    return transport is not None and at - (row.first_attempt_at or at) < transport.idempotent_seconds * 1000


def _should_resend(row: LedgerRow) -> bool:
    """Return whether an uncertain message is sent again automatically.

    An SMS is sent again each time if its provider is idempotent, so that a repeated request sends it only once. Any
    other message is sent again once, and only if the setting `in_doubt` is `resend`.
    """
    if row.channel == "sms" and row.provider in PROVIDERS and PROVIDERS[row.provider].is_idempotent:
        return True
    return get_channel_settings(row).in_doubt == "resend" and row.uncertain_count == 0


def _start_lookup(row: LedgerRow) -> bool:
    """Mark an SMS for a lookup at its provider, and return whether it was marked.

    It is not marked if the provider has no lookup or the text of the SMS is not stored.
    """
    if row.channel != "sms" or row.provider not in PROVIDERS or not PROVIDERS[row.provider].can_look_up:
        return False
    updated = connection().execute(
        "UPDATE retry_payload SET lookup_count = 0 WHERE message_id = ? RETURNING 1", (row.id,)
    )
    return updated.fetchone() is not None


def _store_payload(row: LedgerRow, prepared: OutgoingMessage | None) -> None:
    """Store the bytes of a message for its retry, unless it contains a secret link or its recipient was erased."""
    if prepared is None or ledger.has_secret_link(row):
        return
    envelope, *other_fields = prepared[:4]
    connection().execute(
        "INSERT INTO retry_payload (message_id, mail_from, rcpt_to, content, subject, sender, "
        "internet_message_id, parts, has_opt_out_hint) "
        "SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM message WHERE id = ? AND recipient_key IS NOT NULL "
        "ON CONFLICT (message_id) DO UPDATE SET mail_from = excluded.mail_from, rcpt_to = excluded.rcpt_to, "
        "content = excluded.content, subject = excluded.subject, sender = excluded.sender, "
        "internet_message_id = excluded.internet_message_id, parts = excluded.parts, "
        "has_opt_out_hint = excluded.has_opt_out_hint, lookup_count = NULL",
        (*envelope[:3], *other_fields, prepared.parts, prepared.has_opt_out_hint, row.id),
    )


def _mark_failed(row: LedgerRow, error: DeliveryError, now: int) -> None:
    """Set a message to `failed` and record its bounce.

    If an earlier attempt may have been accepted, set it to `uncertain` instead: a rejection of the second copy does not
    show that nobody got the first (P3).
    """
    code = "refused" if isinstance(error, RecipientRejected) else "expired"
    if row.uncertain_count:
        connection().execute("UPDATE message SET attempts = attempts + 1 WHERE id = ?", (row.id,))
        ledger.mark_uncertain(row, error.text[:1000], now)
    else:
        connection().execute(
            "UPDATE message SET status = 'failed', attempts = attempts + 1, due_at = NULL, claimed_by = NULL, "
            "error_code = ?, updated_at = ? WHERE id = ?",
            (code, now, row.id),
        )
        ledger.count_attempt(row, "failed")
    if not row.test:
        connection().execute(
            "UPDATE channel SET fail_count = fail_count + 1 WHERE account_id = ? AND kind = ? AND key = ?",
            (row.account_id, row.address_kind, row.recipient_key),
        )
    # The server's text may contain the address of an erased recipient, so their event has no text.
    erased = scalar("SELECT recipient_key FROM message WHERE id = ?", (row.id,)) is None
    classified, source = (
        (error_codes.classify_failure(error), row.provider) if row.channel == "sms" else (classify_error(error), "smtp")
    )
    bounce_class = apply_bounce(row, classified, source, error.text)
    data = {"reason": code, "class": bounce_class.name, "smtp": error.smtp, "enhanced": error.enhanced}
    event = bounce_class.event_name if row.channel == "email" else f"{row.channel}_failed"
    ledger.record_event(row, event, data if erased else {**data, "text": error.text[:1000]})
    if bounce_class is bounce_classes.HARD and not row.test and row.campaign_id is not None:
        ledger.increment_campaign(row.campaign_id, "refused")


def classify_error(error: DeliveryError) -> BounceClass:
    """Return the bounce class of an email that failed: it was rejected permanently, or its retries expired."""
    if error.smtp is None and error.enhanced == "5.1.2":
        # DNS reported it and not a server. A domain may be missing for a day, so one such failure does not suppress.
        return bounce_classes.DOMAIN_NOT_FOUND
    bounce_class = bounce_classes.classify(error.smtp, error.enhanced, error.text)
    if isinstance(error, SenderRejectedByMx):
        # The server rejected the sender before it was given the recipient, so an "unknown user" in its reply is the
        # sender.
        return bounce_class if bounce_class.suppression_rule == "never" else bounce_classes.SETUP
    if isinstance(error, RecipientRejected) or (
        bounce_class.suppression_rule == "never" and bounce_class is not bounce_classes.REFUSED
    ):
        return bounce_class
    # The transport failed and not the mailbox: the connection broke, or the server throttles or rejects us.
    if (error.smtp is None and error.enhanced is None) or not isinstance(error, Deferred):
        return bounce_classes.SETUP
    return bounce_class if bounce_class in (bounce_classes.FULL, bounce_classes.EXPIRED) else bounce_classes.TEMPORARY


def get_channel_settings(row: LedgerRow) -> Email | Sms:
    """Return the current settings of a message's channel."""
    settings = config.current()
    return settings.sms if row.channel == "sms" else settings.email


def get_retry_delay(row: LedgerRow, elapsed: float | None = None) -> float:
    """Return the seconds until the next attempt: the configured delay for this attempt, with 20 % jitter.

    docs/promises.md#p6 promises the delays. For a lookup, which is not an attempt, `elapsed` are the seconds since the
    first attempt, and the delay is the one before the attempt that would follow them.
    """
    delays = get_channel_settings(row).retry_after or [300.0]
    number = row.attempts if elapsed is None else sum(end <= elapsed for end in itertools.accumulate(delays))
    return delays[min(number, len(delays) - 1)] * random.uniform(0.8, 1.2)


def has_expired(row: LedgerRow, now: int) -> bool:
    """Return whether the retry period of a message is over (settings `give_up` and `give_up_transactional`)."""
    settings = get_channel_settings(row)
    limit = settings.give_up_transactional if row.transactional else settings.give_up
    # The period begins with the first attempt: time in the queue, in a pause or before a scheduled time does not count.
    return now - (row.first_attempt_at or row.created_at) > parse_seconds(limit) * 1000
