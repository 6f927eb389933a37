"""The ledger: one row for each recipient and message, with the updates that all senders share, lists and metrics.

A row has the type `LedgerRow` for the senders and `Message` for all other code.
"""

import collections
import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from appliance.core import addresses, signals
from appliance.core.errors import Deferred, DeliveryError, NotFound, Postponed, RecipientRejected, Uncertain
from appliance.core.metrics import Counter, Histogram
from appliance.core.validation import CampaignId, ContactId, CreatedAfter, CreatedBefore, FlowId, PageQuery, Short
from appliance.events import log
from appliance.events.log import NewEvent, parse_time_filters
from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.smtp_client import Envelope
from appliance.storage.database import Page, connection, fetch_one, paginate, rows, scalar
from appliance.storage.models import Account, BulkContent, Campaign, Flow, Message, MessageContent
from appliance.storage.models.message import NO_CONTACT_ID
from appliance.storage.transactions import after_commit, require_write_transaction

# `due_at` of messages without a delay. It is in the past, so that a clock that steps back delays no message.
DUE_NOW = 0
# `due_at` of messages of flows without a delay: they come after single messages that a program sends (`DUE_NOW`).
FLOWS_DUE_NOW = 1
# `due_at` of retries without a delay: they come after all messages that were not tried yet. A reader that has read
# those goes on behind them (`queue_reader.py`), so a retry before them would be found late.
RETRY_NOW = 2


class LedgerRow(NamedTuple):
    """The columns of a ledger row that a worker needs to send its message.

    A worker reads the row while it is queued; the message is claimed once `queue.record_and_claim` has returned its id.

    `provider` is the transport: for email the key of one (`settings/transports.py`) or `capture`, the name of a
    provider for SMS. Which one an email gets is chosen when its row is read (`transport_choice.py`), and stored by the
    claim. `sender` is the From address, and `variant` the variant of a campaign with an A/B test. `attempts` counts
    ended attempts, and `uncertain_count` the attempts among them that may have been accepted. `body_hash` is the CRC of
    the bytes to send (`retries.hash_body`), by which the next start knows whether it can repeat them; it is None if the
    message could not be rendered, so that nothing was sent.
    `created_at` and `first_attempt_at` are milliseconds since 1970 UTC.
    """

    id: int
    account_id: int
    contact_id: int | None
    campaign_id: int | None
    channel: str
    recipient: str
    recipient_key: str
    provider: str
    source_type: str
    transactional: bool
    test: bool
    attempts: int
    uncertain_count: int
    created_at: int
    template_id: int | None
    flow_id: int | None
    first_attempt_at: int | None
    body_hash: int | None
    run_id: int | None
    step_id: int | None
    sender: str | None = None
    variant: int | None = None

    def with_first_attempt(self, at_ms: int) -> "LedgerRow":
        """Return the row with a time of its first attempt; `_replace` takes four times as long."""
        return LedgerRow._make((*self[:_FIRST_ATTEMPT], at_ms, *self[_FIRST_ATTEMPT + 1 :]))

    def with_body_hash(self, body_hash: int | None) -> "LedgerRow":
        """Return the row with the hash of the bytes to send; `_replace` takes four times as long."""
        return LedgerRow._make((*self[:_BODY_HASH], body_hash, *self[_BODY_HASH + 1 :]))

    @property
    def is_single(self) -> bool:
        """Return whether the message belongs neither to a campaign nor to a flow."""
        return self.campaign_id is None and self.run_id is None

    @property
    def address_kind(self) -> str:
        """Return the kind of the recipient's address: `email` or `phone`."""
        return "phone" if self.channel == "sms" else "email"


_FIRST_ATTEMPT, _BODY_HASH = (LedgerRow._fields.index(name) for name in ("first_attempt_at", "body_hash"))

# Keys in the `data` of system emails with a link that only the recipient may see: the id of the user whose password it
# resets, or of the invitation that it accepts.
RESET_USER_KEY, INVITATION_KEY = "reset_user_id", "invitation_id"

_HAS_SECRET_LINK = (
    "SELECT 1 FROM message m JOIN message_content c ON c.message_id = m.id WHERE m.id = ? AND m.source_type = 'system' "
    f"AND coalesce(json_extract(c.data, '$.{RESET_USER_KEY}'), json_extract(c.data, '$.{INVITATION_KEY}')) IS NOT NULL"
)


def has_secret_link(row: LedgerRow | Message) -> bool:
    """Return whether a message contains a password reset link or an invitation, which only its recipient may see."""
    return row.source_type == "system" and fetch_one(_HAS_SECRET_LINK, (row.id,)) is not None


class OutgoingMessage(NamedTuple):
    """A rendered message with its envelope, and the values that its ledger row stores.

    The envelope of an SMS contains the sender, the number and the text in UTF-8; its subject and Message-ID are empty.
    """

    envelope: Envelope
    subject: str
    sender: str
    internet_message_id: str
    parts: int | None = None  # of an SMS, as it is billed
    has_opt_out_hint: bool = False  # whether the text of an SMS says how to opt out
    lookup_count: int | None = None  # look-ups of an uncertain SMS that found nothing; None: no SMS in doubt


class Outcome(msgspec.Struct):
    """The outcome of a claimed message. It was accepted if `error` and `skip_reason` are None."""

    row: LedgerRow
    error: DeliveryError | None = None
    skip_reason: str | None = None
    subject: str | None = None
    sender: str | None = None
    internet_message_id: str | None = None
    prepared: OutgoingMessage | None = None  # the message as it was sent, for a retry with the same bytes
    delivered_via: dict[str, str] | None = None  # in direct delivery: `mx` (host that accepted) and `tls` (encryption)
    provider_id: str | None = None  # the provider's id of an SMS, or of an email sent over an HTTP API
    first_status: str = "sent"  # the provider's first status of an SMS (`error_codes.STATUSES`)
    accepted_at: int | None = None  # Unix milliseconds, for an acceptance of the send log; None: now
    # Whether another transport may take it at once, because its own takes no messages now
    falls_over: bool = False


COLUMNS = ", ".join(LedgerRow._fields)


def get_row(message_id: int) -> LedgerRow:
    """Return the ledger row of a message that exists."""
    return LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (message_id,))[0])


def mark_skipped(row: LedgerRow, reason: str, now: int) -> None:
    """Set a message to `skipped` and record an event.

    If an earlier attempt may have been accepted, set it to `uncertain` instead. `now` is in milliseconds since 1970
    UTC.
    """
    if row.uncertain_count:
        return mark_uncertain(row, f"not repeated: {reason}", now)
    connection().execute(
        "UPDATE message SET status = 'skipped', skip_reason = ?, due_at = NULL, claimed_by = NULL, updated_at = ? "
        "WHERE id = ?",
        (reason, now, row.id),
    )
    count_attempt(row, "skipped")
    batch = None if row.campaign_id is None else f"campaign:{row.campaign_id}"
    return record_event(row, f"{row.channel}_skipped", {"reason": reason}, batch)


def mark_uncertain(row: LedgerRow, text: str, now: int) -> None:
    """Set a message to `uncertain`, because it may have been accepted; `text` is stored as the reason.

    Afterwards `uncertain_count` is at least 1, even if the uncertain attempt was not counted before.
    """
    connection().execute(
        "UPDATE message SET status = 'uncertain', uncertain_count = max(uncertain_count, 1), due_at = NULL, "
        "claimed_by = NULL, error_code = 'in_doubt', "
        "error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END, updated_at = ? WHERE id = ?",
        (text, now, row.id),
    )
    count_attempt(row, "uncertain")


def record_error(row: LedgerRow, error: DeliveryError | None) -> None:
    """Store the error of the last attempt in the row; without an error, do nothing.

    If the recipient was erased, the text of the server's reply is not stored, because it may contain their address.
    """
    if error is None:
        return
    connection().execute(
        "UPDATE message SET error_code = ?, error_smtp = ?, error_enhanced = ?, "
        "error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END WHERE id = ?",
        (error.kind, error.smtp, error.enhanced, error.text[:1000], row.id),
    )


def get_source_name(row: LedgerRow) -> str | None:
    """Return the name of the campaign that a message belongs to, else of its flow; None if it belongs to neither."""
    table, number = ("campaign", row.campaign_id) if row.campaign_id is not None else ("flow", row.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None


def build_event_data(row: LedgerRow) -> dict[str, Any]:
    """Return the data that all events of a message have in common: the ids of the message, campaign, flow and step."""
    return {"message_id": row.id, "campaign_id": row.campaign_id, "flow_id": row.flow_id, "step_id": row.step_id}


def get_chain_depths(ledger_rows: Iterable[LedgerRow]) -> dict[int, int]:
    """Return the chain depth of each message's events by message id: the depth of the message's run plus one.

    Messages without a run are left out; the depth of their events is 0.
    """
    run_ids = {row.id: row.run_id for row in ledger_rows if row.run_id is not None}
    if not run_ids:
        return {}
    sql = "SELECT id, chain_depth FROM run WHERE id IN (SELECT value FROM json_each(?))"
    depths = dict(rows(sql, (json.dumps(list(run_ids.values())),)))
    return {message_id: depths.get(run_id, 0) + 1 for message_id, run_id in run_ids.items()}


def record_event(row: LedgerRow, event: str, data: dict[str, Any], batch: str | None = None) -> None:
    """Record an event of a message for the contact to which the message's row refers now.

    `data` is added to the data of `build_event_data`. `batch` is as in `NewEvent`.
    """
    # The contact of the row may have been merged into another, or deleted, since then.
    contact_id = scalar("SELECT contact_id FROM message WHERE id = ?", (row.id,))
    log.record(
        NewEvent(
            row.account_id,
            event,
            contact_id,
            build_event_data(row) | data,
            resource_uid=f"message:{row.id}",
            resource_name=get_source_name(row),
            test=row.test,
            chain_depth=get_chain_depths([row]).get(row.id, 0),
            batch=batch,
        )
    )


Status = Literal[
    "queued", "held", "sending", "sent", "delivered", "bounced", "complained", "failed", "skipped", "cancelled",
    "uncertain",
]  # fmt: skip

SourceType = Literal["transactional", "campaign", "flow", "test", "system"]
STATUSES: tuple[str, ...] = get_args(Status)
FINAL_STATUSES = tuple(status for status in STATUSES if status not in ("queued", "held", "sending"))


class MessageQuery(PageQuery):
    """Filters of the message list."""

    source_type: Annotated[SourceType, Meta(description="only messages from this kind of source")] | UnsetType = UNSET
    channel: Annotated[Literal["email", "sms"], Meta(description="only those of this channel")] | UnsetType = UNSET
    status: Annotated[Status, Meta(description="only those with this status")] | UnsetType = UNSET
    to: Annotated[Short, Meta(description="only messages to exactly this recipient")] | UnsetType = UNSET
    contact_id: Annotated[ContactId, Meta(description="only messages to this contact")] | UnsetType = UNSET
    campaign_id: Annotated[CampaignId, Meta(description="only messages of this campaign")] | UnsetType = UNSET
    flow_id: Annotated[FlowId, Meta(description="only messages of this flow")] | UnsetType = UNSET
    test: Annotated[bool, Meta(description="true: only tests; false: no tests")] | UnsetType = UNSET
    created_after: CreatedAfter | UnsetType = UNSET
    created_before: CreatedBefore | UnsetType = UNSET


def list_messages(account_id: int, query: MessageQuery) -> Page:
    """Return a page of an account's messages that match the query, newest first, each with its `source_name`.

    Raises Invalid if a time filter cannot be parsed.
    """
    query_rows = Message.select().where(Message.account == account_id)
    for name in ("source_type", "channel", "status", "test"):
        if getattr(query, name) is not UNSET:
            query_rows = query_rows.where(getattr(Message, name) == getattr(query, name))
    for name, column in (("contact_id", Message.contact), ("campaign_id", Message.campaign), ("flow_id", Message.flow)):
        if getattr(query, name) is not UNSET:
            query_rows = query_rows.where(column == getattr(query, name))
    if query.flow_id is not UNSET and not Flow.select().where(Flow.id == query.flow_id, Flow.hidden).exists():
        # Messages of a visible flow belong to a run, and a partial index covers rows with a run. Messages of a campaign
        # refer to a hidden flow instead and have no run.
        query_rows = query_rows.where(Message.run.is_null(False))
    if isinstance(query.to, str):
        query_rows = query_rows.where(Message.recipient_key == addresses.normalize_query(query.to))
    after, before = parse_time_filters(
        query.created_after, query.created_before, Account.get_by_id(account_id).time_zone
    )
    if after is not None:
        query_rows = query_rows.where(Message.created_at >= after)
    if before is not None:
        query_rows = query_rows.where(Message.created_at < before)
    page = paginate(query_rows.order_by(Message.created_at.desc(), Message.id.desc()), query.page, query.size())
    return page._replace(rows=_add_source_names(list(page.rows)))


def get(account_id: int, message_id: int) -> Message:
    """Return a message of an account with its `source_name`. Raises NotFound."""
    message = Message.get_or_none(Message.account == account_id, Message.id == message_id)
    if message is None:
        raise NotFound
    return _add_source_names([message])[0]


def get_by_ids(ids: list[int]) -> list[Message]:
    """Return the messages with these ids, newest first, each with its `source_name`; unknown ids are left out."""
    return (
        _add_source_names(list(Message.select().where(Message.id.in_(ids)).order_by(Message.id.desc()))) if ids else []
    )


def get_content(message: Message) -> MessageContent | None:
    """Return the stored content of a message, or None for a message of a campaign or flow, which has none."""
    content = MessageContent.get_or_none(MessageContent.message == message.id)
    return None if content is None else add_bulk_texts([content])[0]


def add_bulk_texts(contents: list[MessageContent]) -> list[MessageContent]:
    """Set `body` and `text` of contents whose messages share them (`BulkContent`), and return the contents."""
    ids = {content.bulk_id for content in contents if content.bulk_id is not None}
    shared = {bulk.id: bulk for bulk in BulkContent.select().where(BulkContent.id.in_(ids))} if ids else {}
    for content in contents:
        if bulk := shared.get(content.bulk_id):
            content.body, content.text = bulk.body, bulk.text
    return contents


def list_copies(message: Message, is_single: bool = False) -> list[Message]:
    """Return the rows of all recipients of a message, that of `to` first, each with its `kind` (to, cc, bcc).

    `is_single` means that it is known to have only one recipient, which saves the query.
    """
    copies = (
        []
        if is_single
        else list(
            Message.select(Message, MessageContent.kind)
            .join(MessageContent, on=MessageContent.message == Message.id)
            .where(
                MessageContent.first_message_id
                == MessageContent.select(MessageContent.first_message_id).where(MessageContent.message == message.id)
            )
            .order_by(Message.id)
            .objects()
        )
    )
    if not copies:
        message.kind = "to"
    return copies or [message]


def restore_submitted_subjects(messages: Sequence[Message]) -> Sequence[Message]:
    """Set `subject` of each message to the submitted subject, with its merge tags, and return the messages.

    It is None for a message of a campaign or flow. A caller who may not read contacts sees subjects in this form,
    because the subject as sent shows values of the contact (docs/decisions.md#2). The subject of a test stays if the
    test was rendered without a contact.
    """
    ids = [message.id for message in messages]
    contents = MessageContent.select(MessageContent.message, MessageContent.subject, MessageContent.shown_as)
    by_id = {content.message_id: content for content in contents.where(MessageContent.message.in_(ids))} if ids else {}
    for message in messages:
        content = by_id.get(message.id)
        if content is None:
            message.subject = None
        elif not is_test_without_contact(message, content):
            message.subject = content.subject
    return messages


def is_test_without_contact(message: Message, content: MessageContent) -> bool:
    """Return whether a message is a test that was rendered without the values of a contact.

    Of any other message this is unknown later, because a deleted contact is no longer linked to it.
    """
    return content.shown_as == NO_CONTACT_ID or (message.source_type == "test" and content.shown_as is None)


def may_show_contact(message: Message, content: MessageContent | None) -> bool:
    """Return whether the rendered content of a message may show values of a contact; `content` is its stored content.

    A message of a campaign or flow, which has no stored content, always may.
    """
    if content is None:
        return True
    return bool(message.contact_id if content.shown_as is None else content.shown_as)


def _add_source_names(messages: list[Message]) -> list[Message]:
    """Set `source_name` of each message to the name of its campaign or flow, or None, and return the messages."""
    campaigns = {message.campaign_id for message in messages if message.campaign_id}
    flows = {message.flow_id for message in messages if message.flow_id and not message.campaign_id}
    names: dict[tuple[str, int], str] = {}
    for kind, table, ids in (("campaign", Campaign, campaigns), ("flow", Flow, flows)):
        if ids:
            names |= {(kind, row.id): row.name for row in table.select(table.id, table.name).where(table.id.in_(ids))}
    for message in messages:
        key = ("campaign", message.campaign_id) if message.campaign_id else ("flow", message.flow_id)
        message.source_name = names.get(key)
    return messages


def count_by_status(column: Literal["campaign_id", "flow_id"], number: int) -> dict[str, int]:
    """Return the numbers of a campaign's or flow's messages by final status, with three sums, as a dict.

    The sums are `audience` (all messages), `pending` (not final yet) and `accepted` (docs/decisions.md#7). All numbers
    come from one statement, so that they agree with each other.
    """
    # Only one of the two indexes on campaigns contains the status; with the other, SQLite would read each row.
    index = {"campaign_id": "INDEXED BY message_campaign_id_status", "flow_id": ""}[column]
    counted: dict[str, int] = dict(
        rows(f"SELECT status, count(*) FROM message {index} WHERE {column} = ? GROUP BY status", (number,))
    )
    counts: dict[str, int] = {name: counted.get(name, 0) for name in STATUSES}
    pending = counts["queued"] + counts["held"] + counts["sending"]
    terms = {name: counts[name] for name in FINAL_STATUSES}
    accepted = sum(counts[name] for name in ("sent", "delivered", "bounced", "complained"))
    return {"audience": pending + sum(terms.values()), "pending": pending, **terms, "accepted": accepted}


# Metrics of outcomes, counted by this process after the outcomes are committed. Test messages are not counted.

SENDS = Counter(
    "sends_total",
    "Messages whose attempt ended, by result: accepted, deferred (tried again later), failed, skipped, uncertain, "
    "cancelled.",
    ("channel", "provider", "group", "result"),
)

BOUNCES = Counter("bounces_total", "Messages that were rejected or bounced, by bounce class.", ("channel", "class"))
COMPLAINTS = Counter("complaints_total", "Messages that recipients reported as spam.", ("channel",))

TRANSACTIONS = Histogram(
    "smtp_transaction_seconds",
    "Time from the envelope or HTTP request to the server's final reply, by result: accepted, rejected, deferred, "
    "uncertain, failed (any other error).",
    ("provider", "result"),
)

_RESULTS = ((RecipientRejected, "rejected"), (Uncertain, "uncertain"), (Deferred | Postponed, "deferred"))


def count_attempt(row: LedgerRow, result: str) -> None:
    """Count an attempt with this result in `SENDS` once the transaction commits; test messages are not counted."""
    if not row.test:
        labels = (row.channel, row.provider, _group_label(row), result)
        after_commit(lambda: SENDS.increment(*labels, account_id=row.account_id))


def count_accepted(rows: Iterable[LedgerRow]) -> None:
    """Count messages in `SENDS` as accepted once the transaction commits; test messages are not counted."""
    counts = collections.Counter(
        (row.account_id, row.channel, row.provider, _group_label(row)) for row in rows if not row.test
    )

    def count() -> None:
        for (account_id, *labels), number in counts.items():
            SENDS.increment(*labels, "accepted", account_id=account_id, number=number)

    after_commit(count)


def count_bounce(row: LedgerRow, name: str) -> None:
    """Count a bounce in `BOUNCES` once the transaction commits; `name` is the name of its bounce class."""
    after_commit(lambda: BOUNCES.increment(row.channel, name, account_id=row.account_id))


def count_complaint(row: LedgerRow) -> None:
    """Count a spam complaint in `COMPLAINTS` once the transaction commits; test messages are not counted."""
    if not row.test:
        after_commit(lambda: COMPLAINTS.increment(row.channel, account_id=row.account_id))


def observe_transaction(provider: str, error: DeliveryError | None, seconds: float) -> None:
    """Record how long an SMTP transaction or a request took, in `TRANSACTIONS`; without an error it was accepted."""
    if error is None:
        label = "accepted"
    else:
        label = next((name for kind, name in _RESULTS if isinstance(error, kind)), "failed")
    TRANSACTIONS.observe(seconds, provider, label)


def _group_label(row: LedgerRow) -> str:
    """Return the metric label of a message's recipient group: its name if it is in `LARGE_GROUPS`, else `other`.

    This keeps the number of labels small. The label of an SMS is `sms`.
    """
    if row.channel != "email":
        return row.channel
    # The address of an erased recipient is None.
    group = mx_routes.get_recipient_group(row.provider, row.recipient_key or "")
    return group if group in mx_routes.LARGE_GROUPS else "other"


# `refused`: rejected because the address does not exist. `bounced`: bounced after it was accepted. `complained`:
# reported as spam.
CampaignCounter = Literal["refused", "bounced", "complained"]

_INCREMENT_CAMPAIGN = {
    name: f"UPDATE campaign SET {name}_count = {name}_count + 1 WHERE id = ?"
    for name in ("refused", "bounced", "complained")
}


def increment_campaign(campaign_id: int, counter: CampaignCounter) -> None:
    """Add one to a counter of a campaign and, after the commit, wake the job that may pause it (`campaigns.states`)."""
    require_write_transaction()
    connection().execute(_INCREMENT_CAMPAIGN[counter], (campaign_id,))
    after_commit(lambda: signals.wake("campaigns"))
