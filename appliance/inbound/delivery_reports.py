"""Record reports about messages that were sent: deliveries, bounces, complaints and SMS receipts.

A report is accepted if it names one of our messages and its recipient, up to two weeks after the message was sent. A
complaint is accepted up to 90 days after that, because people read their email late. The status only advances: sent,
delivered, bounced, complained. Reports from returned mail, provider webhooks and simulations have the same rules. A
report about a test message is accepted only from a simulation or, for an SMS, from the provider, and changes only that
message.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from appliance.audience import suppressions
from appliance.audience.consent import Evidence
from appliance.audience.suppressions import SuppressionCause
from appliance.core import addresses, clock
from appliance.core.addresses import Address
from appliance.core.errors import Unavailable
from appliance.sending.delivery import bounce_classes
from appliance.sending.delivery.bounce_classes import BounceClass
from appliance.sending.messages import ledger, outcomes, retries, senders
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome, OutgoingMessage
from appliance.sending.sms import error_codes
from appliance.sending.sms.error_codes import STATUSES, Receipt
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.transactions import require_write_transaction

ReportKind = Literal["delivered", "bounced", "soft_bounced", "complained", "unverified_complaint"]


class DeliveryReport(NamedTuple):
    """A report about one message, not verified yet (see `record_report`).

    `smtp` and `enhanced` are the codes of the server, and `text` is its text. `recipient` is the reported address, or
    None if the source reports none (see `_is_recipient`). `key` is the reporter's id of the report, so that a repeated
    report counts only once. `at` is the time of the event in Unix milliseconds, None for now. For an SMS, `code` is the
    provider's code. `bounce_class` is set if the reporter has classified the bounce.
    """

    message_id: int
    kind: ReportKind
    source: str  # dsn, arf, smtp, hook, capture, or a provider of email or SMS
    text: str = ""
    smtp: int | None = None
    enhanced: str | None = None
    recipient: str | None = None
    key: str | None = None
    at: int | None = None
    code: str | None = None
    bounce_class: BounceClass | None = None


_MAX_AGE_MS, _MAX_COMPLAINT_AGE_MS = 14 * clock.DAY_MS, 90 * clock.DAY_MS
# Keys of reports are stored for longer than reports about a message are accepted.
_KEY_TTL_MS = 100 * clock.DAY_MS
_RANK = {"uncertain": 0, "sent": 0, "delivered": 1, "bounced": 2, "complained": 3}
_STATUS_OF_KIND = {
    "delivered": "delivered",
    "bounced": "bounced",
    "soft_bounced": "bounced",
    "complained": "complained",
    "unverified_complaint": "complained",
}
# Reports from these sources need no recipient, because one of our signatures proves them (see `bounce_mail.py`).
_PROVEN_SOURCES = ("arf",)
# Reports from these sources contain the text of the receiving server. All other sources classify the bounce themselves.
_OWN_SOURCES = ("dsn", "smtp")


class MessageInFlight(Unavailable):
    """Raised if the outcome of the message is not recorded yet, so that the reporter must repeat the report."""

    def __init__(self) -> None:
        super().__init__("this message is still being sent; repeat the report in 30 seconds", "unavailable", 30)


class _ReportedMessage(NamedTuple):
    """A reported message with its status. `left_at` is when it was sent or, if unknown, last updated (Unix ms)."""

    row: LedgerRow
    status: str
    left_at: int


def record_report(report: DeliveryReport) -> bool:
    """Record a report with its consequences, and return whether it changed anything.

    It changes nothing if the message or its recipient is wrong, if the report is too late or was recorded before, or if
    the message already has this status or a later one. Raises MessageInFlight if the message is being sent; the
    reporter must then repeat the report.
    """
    require_write_transaction()
    message = _find_message(report)
    if (
        message is None
        or _RANK.get(message.status, 0) >= _RANK[_STATUS_OF_KIND[report.kind]]
        or not (report.key is None or mark_processed(report.source, report.key))
    ):
        return False
    if report.kind == "unverified_complaint":
        # Anybody who got a reply can forge such a complaint, so it is only shown to users.
        data = {"source": report.source, "text": report.text[:1000]}
        ledger.record_event(message.row, "email_complaint_unverified", data)
        return True
    if message.status == "uncertain" or message.status not in _RANK:
        retries.confirm_arrival(message.row.id)
    match report.kind:
        case "delivered":
            _record_delivery(message, report)
        case "complained":
            _record_complaint(message, report)
        case _:
            _record_bounce(message, report)
    return True


def _find_message(report: DeliveryReport) -> _ReportedMessage | None:
    """Return the message of a report, or None if the report is not accepted.

    It is not accepted if the message is unknown or was not sent, if the report names another recipient, or if it is too
    late. Raises MessageInFlight if the message is being sent.
    """
    row = fetch_one(
        f"SELECT {COLUMNS}, status, coalesce(sent_at, updated_at) FROM message WHERE id = ? "
        "AND recipient_key IS NOT NULL AND (test = 0 OR channel = 'sms' OR ? = 'capture')",
        (report.message_id, report.source),
    )
    if row is None:
        return None
    message = _ReportedMessage(LedgerRow._make(row[:-2]), *row[-2:])
    if not _is_recipient(message.row, report):
        return None
    if message.status == "sending":
        raise MessageInFlight
    is_complaint = report.kind in ("complained", "unverified_complaint")
    max_age = _MAX_COMPLAINT_AGE_MS if is_complaint else _MAX_AGE_MS
    is_late = clock.now_ms() - message.left_at > max_age
    can_be_reported = message.status in _RANK or _may_have_arrived(message, report)
    return message if can_be_reported and not is_late else None


def _may_have_arrived(message: _ReportedMessage, report: DeliveryReport) -> bool:
    """Return whether a message without an accepted attempt may have arrived nevertheless.

    An uncertain message that waits for its retry may have arrived. An email that was rejected after its final dot may
    have, too: some servers deliver it all the same. So a complaint about such an email, or a hard bounce before its
    retry, is accepted. It prevents the retry and all other messages to the address (docs/promises.md#p4).
    """
    is_waiting = message.status in ("queued", "held")
    if is_waiting and message.row.uncertain_count > 0:
        return True
    if message.row.channel != "email" or not message.row.attempts:
        return False
    return report.kind == "complained" or (report.kind == "bounced" and is_waiting)


def _is_recipient(row: LedgerRow, report: DeliveryReport) -> bool:
    """Return whether a report names the recipient of its message.

    A report about an SMS, or from one of `_PROVEN_SOURCES`, needs no recipient.
    """
    if report.recipient is None:
        return row.address_kind == "phone" or report.source in _PROVEN_SOURCES
    return _is_same_address(row.address_kind, report.recipient, row.recipient_key)


def _is_same_address(kind: str, reported: str, recipient_key: str | None) -> bool:
    """Return whether a reported address, in any spelling, is the recipient with this normalized address."""
    if kind == "email":
        reported = addresses.address_in_header(reported)
    try:
        return addresses.parse(kind, reported).key == recipient_key
    except ValueError:
        return False


def is_recipient(message_id: int, reported: str | None) -> bool:
    """Return whether a reported email address is the recipient of a message."""
    row = fetch_one("SELECT recipient_key FROM message WHERE id = ?", (message_id,))
    return row is not None and reported is not None and _is_same_address("email", reported, row[0])


def mark_processed(source: str, key: str) -> bool:
    """Store the key of a report as processed, and return False if it was processed before."""
    require_write_transaction()
    now = clock.now_ms()
    run(
        "DELETE FROM processed_notification WHERE (source, key) IN (SELECT source, key FROM processed_notification "
        "WHERE created_at < ? LIMIT 10)",
        (now - _KEY_TTL_MS,),
    )
    return (
        run("INSERT INTO processed_notification VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (source, key[:400], now)) == 1
    )


def _record_delivery(message: _ReportedMessage, report: DeliveryReport) -> None:
    run(
        "UPDATE message SET status = 'delivered', delivered_at = ?, updated_at = ? WHERE id = ?",
        (_event_time(message, report), clock.now_ms(), message.row.id),
    )
    ledger.record_event(message.row, f"{message.row.channel}_delivered", {"source": report.source})


def _record_bounce(message: _ReportedMessage, report: DeliveryReport) -> None:
    row = message.row
    run(
        "UPDATE message SET status = 'bounced', bounced_at = ?, updated_at = ?, error_code = 'returned', "
        "error_smtp = ?, error_enhanced = ?, error_text = ? WHERE id = ?",
        (_event_time(message, report), clock.now_ms(), report.smtp, report.enhanced, report.text[:1000], row.id),
    )
    if not row.test:
        run(
            "UPDATE channel SET fail_count = fail_count + 1 WHERE account_id = ? AND kind = ? AND key = ?",
            (row.account_id, row.address_kind, row.recipient_key),
        )
    bounce_class = outcomes.apply_bounce(row, classify_bounce(report), report.source, report.text)
    event = bounce_class.event_name if row.channel == "email" else f"{row.channel}_failed"
    codes = {"smtp": report.smtp, "enhanced": report.enhanced} if row.channel == "email" else {"code": report.code}
    data = {
        "reason": "returned",
        "class": bounce_class.name,
        **codes,
        "text": report.text[:1000],
        "source": report.source,
    }
    ledger.record_event(row, event, data)
    if bounce_class is bounce_classes.HARD and row.campaign_id is not None and not row.test:
        ledger.increment_campaign(row.campaign_id, "bounced")


def classify_bounce(report: DeliveryReport) -> BounceClass:
    """Return the class of a bounce: the class in the report, else the class of its codes and text.

    A source outside of `_OWN_SOURCES` has classified the bounce by the kind of the report: HARD for `bounced`, else
    TEMPORARY. Codes and text overrule the kind only if they give FULL, DISABLED or EXPIRED, or a class that never
    suppresses other than REFUSED.
    """
    if report.bounce_class is not None:
        return report.bounce_class
    bounce_class = bounce_classes.classify(report.smtp, report.enhanced, report.text)
    if report.source in _OWN_SOURCES or bounce_class in (
        bounce_classes.FULL,
        bounce_classes.DISABLED,
        bounce_classes.EXPIRED,
    ):
        return bounce_class
    if bounce_class.suppression_rule == "never" and bounce_class is not bounce_classes.REFUSED:
        return bounce_class
    return bounce_classes.HARD if report.kind == "bounced" else bounce_classes.TEMPORARY


def _record_complaint(message: _ReportedMessage, report: DeliveryReport) -> None:
    row = message.row
    senders.count_warm_up_failure(row, "complaints")
    run(
        "UPDATE message SET status = 'complained', updated_at = ? WHERE id = ?",
        (clock.now_ms(), row.id),
    )
    ledger.count_complaint(row)
    ledger.record_event(row, f"{row.channel}_complained", {"source": report.source, "text": report.text[:1000]})
    if row.test:
        return  # A complaint about a test message suppresses no address.
    suppressions.suppress(
        row.account_id, Address(row.address_kind, row.recipient, row.recipient_key),
        SuppressionCause("complaint", source=report.source, diagnostic=report.text[:1000] or None),
        Evidence(source=report.source, actor="recipient", message_id=row.id),
    )  # fmt: skip
    if row.campaign_id is not None:
        ledger.increment_campaign(row.campaign_id, "complained")


def _event_time(message: _ReportedMessage, report: DeliveryReport) -> int:
    """Return the reported time of the event, or now if none is reported.

    The result is neither before the message was sent nor in the future.
    """
    now = clock.now_ms()
    return min(max(report.at, message.left_at), now) if report.at is not None else now


# Each SMS receipt counts once, and receipts may arrive in any order (docs/decisions.md#15).
# A receipt may arrive before the provider's response is recorded, or although the response was lost. Such a receipt is
# stored, and applied in the transaction that records the outcome of the message. If a receipt names an uncertain
# message by our token, the message was accepted, because a provider only reports about messages that it accepted.

# Stored receipts are kept as long as reports about a message are accepted.
_RECEIPT_TTL_MS = 14 * clock.DAY_MS
_SELECT_SMS = "SELECT id, status, uncertain_count, provider_id FROM message WHERE channel = 'sms' AND provider = ? AND"
_RECEIPT_COLUMNS = "id, provider, provider_id, message_id, status, code, text"


class _SmsRow(NamedTuple):
    """The SMS that a receipt is about, with its current status."""

    id: int
    status: str
    uncertain_count: int
    provider_id: str | None

    @property
    def is_in_doubt(self) -> bool:
        """Return whether it is unknown if the provider has accepted the SMS, also before a retry or a look-up."""
        return self.status == "uncertain" or (self.status in ("queued", "held") and self.uncertain_count > 0)


def apply_receipt(provider: str, receipt: Receipt) -> bool:
    """Record a delivery receipt of an SMS with its consequences, and return whether it changed the message.

    A receipt is stored for later if its SMS is being sent, or if it names an unknown id of the provider and no token.
    """
    require_write_transaction()
    if receipt.status not in STATUSES:
        return False
    receipt, row = _find_sms(provider, receipt)
    if row is None:
        if receipt.message_id is None:
            _store_receipt(
                provider, receipt
            )  # The response with the provider's id of this SMS may not be recorded yet.
        return False
    if row.status == "sending":
        _store_receipt(provider, receipt)
        return False
    has_failed = receipt.status in ("undelivered", "failed")
    if has_failed and receipt.provider_id and row.provider_id not in (None, receipt.provider_id):
        return False  # This is a second copy of an uncertain SMS. Its delivery would count, but its failure does not.
    is_settled = row.is_in_doubt
    if is_settled:
        retries.confirm_arrival(row.id, receipt.provider_id or None)
    if receipt.status == "sent":
        return is_settled
    return record_report(_to_report(provider, receipt, row.id)) or is_settled


def apply_receipts_of_uncertain(message_ids: list[int]) -> None:
    """Apply the stored receipts of SMS that may have been accepted although their attempt failed."""
    _apply_stored_receipts(message_ids, [])


def apply_early_receipts(outcomes: list[Outcome]) -> None:
    """Apply the stored receipts of SMS that were just recorded as accepted.

    Then apply the status in the provider's response, if it is a later status than `sent`.
    """
    _apply_stored_receipts(
        [outcome.row.id for outcome in outcomes], [outcome.provider_id for outcome in outcomes if outcome.provider_id]
    )
    for accepted in outcomes:
        if accepted.first_status != "sent":
            apply_receipt(
                accepted.row.provider, Receipt(accepted.provider_id or "", accepted.first_status, accepted.row.id)
            )


def recover_with_receipts(interrupted: list[tuple[LedgerRow, OutgoingMessage | None]]) -> int:
    """Decide about interrupted messages as `retries.recover_interrupted` does, and apply the stored receipts of SMS.

    Return the number of messages.
    """
    count = retries.recover_interrupted(interrupted)
    _apply_stored_receipts([row.id for row, _ in interrupted if row.channel == "sms"], [])
    return count


def _find_sms(provider: str, receipt: Receipt) -> tuple[Receipt, _SmsRow | None]:
    """Return (receipt, its SMS), or (receipt, None) if no SMS matches.

    The SMS is found by the provider's id, or by our id in the token of the callback URL. Without a token, a numeric id
    in the receipt may be our id. This is assumed only if the SMS with that id has a provider's id that is not numeric;
    the returned receipt then contains the provider's id.
    """
    row = None
    if receipt.provider_id:
        # If a gateway uses one id for several messages, our token distinguishes them.
        row = fetch_one(
            f"{_SELECT_SMS} provider_id = ? ORDER BY id IS NOT DISTINCT FROM ? DESC, id DESC LIMIT 1",
            (provider, receipt.provider_id, receipt.message_id),
        )
    if row is None and receipt.message_id is not None:
        row = fetch_one(f"{_SELECT_SMS} id = ?", (provider, receipt.message_id))
    if row is None and receipt.message_id is None and re.fullmatch(r"[1-9][0-9]{0,14}", receipt.provider_id):
        row = fetch_one(f"{_SELECT_SMS} id = ? AND provider_id GLOB '*[^0-9]*'", (provider, int(receipt.provider_id)))
        if row is not None:
            receipt = receipt._replace(provider_id=row[3])
    return receipt, _SmsRow(*row) if row is not None else None


def _store_receipt(provider: str, receipt: Receipt) -> None:
    now = clock.now_ms()
    run(
        "DELETE FROM receipt WHERE id IN (SELECT id FROM receipt WHERE created_at < ? ORDER BY created_at LIMIT 10)",
        (now - _RECEIPT_TTL_MS,),
    )
    name = receipt.provider_id or f"#{receipt.message_id}"
    run(
        "INSERT INTO receipt (provider, provider_id, message_id, status, code, text, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (provider_id, provider, status) DO UPDATE SET "
        "message_id = coalesce(excluded.message_id, message_id)",
        (provider, name[:200], receipt.message_id, receipt.status, receipt.code, receipt.text[:1000], now),
    )


def _apply_stored_receipts(numbers: Sequence[int], names: Sequence[str]) -> None:
    """Apply the stored receipts of messages by our ids (`numbers`) or the provider's ids (`names`).

    Receipts that cannot be applied yet are stored again.
    """
    if not numbers or scalar("SELECT 1 FROM receipt LIMIT 1") is None:
        return
    encode = msgspec.json.encode
    stored = rows(
        f"SELECT {_RECEIPT_COLUMNS} FROM receipt WHERE message_id IN (SELECT value FROM json_each(?)) UNION "
        f"SELECT {_RECEIPT_COLUMNS} FROM receipt WHERE provider_id IN (SELECT value FROM json_each(?)) ORDER BY 1",
        (encode(numbers).decode(), encode(names).decode()),
    )
    for receipt_id, provider, *fields in stored:
        run("DELETE FROM receipt WHERE id = ?", (receipt_id,))
        apply_receipt(provider, _to_receipt(*fields))


def _to_receipt(provider_id: str, message_id: int | None, status: str, code: str | None, text: str | None) -> Receipt:
    name = "" if provider_id.startswith("#") else provider_id
    return Receipt(name, status, message_id, code, text or "")


def apply_receipts(provider: str, receipts: Iterable[Receipt]) -> None:
    """Record the delivery receipts of SMS from one provider (see `apply_receipt`)."""
    for receipt in receipts:
        apply_receipt(provider, receipt)


def _to_report(provider: str, receipt: Receipt, message_id: int) -> DeliveryReport:
    if receipt.status == "delivered":
        return DeliveryReport(message_id, "delivered", provider)
    bounce_class = error_codes.classify_code(receipt.code or receipt.text)
    text = error_codes.describe_code(receipt.code, receipt.text)
    kind: Any = "soft_bounced" if bounce_class.suppression_rule in ("third", "fifth") else "bounced"
    return DeliveryReport(message_id, kind, provider, text, code=receipt.code, bounce_class=bounce_class)
