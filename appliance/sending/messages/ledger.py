"""The ledger: one row for each recipient and message, the small writes that all senders share, lists and counters."""

import collections
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from appliance.core import addresses, signals
from appliance.core.errors import Deferred, DeliveryError, NotFound, Postponed, RecipientRejected, Uncertain
from appliance.core.metrics import Counter, Histogram
from appliance.core.validation import CampaignId, ContactId, DayOrWhen, FlowId, PageQuery, Short
from appliance.events import log
from appliance.events.log import NewEvent, parse_time_filters
from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.smtp_client import Envelope
from appliance.storage.database import Page, connection, fetch_one, paginate, rows, scalar
from appliance.storage.models import Account, Campaign, Flow, Message, MessageContent
from appliance.storage.transactions import after_commit, require_write_transaction

# `due_at` of messages that may go at once: a time in the past, so that a clock that steps back delays nothing.
DUE_NOW = 0
# The same for retries, behind messages not tried yet and still ahead of the position of the queue reader.
RETRY_NOW = 1
# The same for messages of flows, behind single messages that a program sends.
FLOWS_DUE_NOW = 2


class Claim(NamedTuple):
    """A message row that a worker has claimed, or is about to claim."""

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

    @property
    def is_single(self) -> bool:
        """Return whether the message belongs neither to a campaign nor to a flow."""
        return self.campaign_id is None and self.run_id is None

    @property
    def address_kind(self) -> str:
        """The kind of the recipient's address: `email` or `phone`."""
        return "phone" if self.channel == "sms" else "email"


# Key in the `data` of a system email whose link opens something for one user alone.
RESET_USER_KEY = "reset_user_id"

_HAS_SECRET_LINK = (
    "SELECT 1 FROM message m JOIN message_content c ON c.message_id = m.id WHERE m.id = ? AND m.source_type = 'system' "
    f"AND json_extract(c.data, '$.{RESET_USER_KEY}') IS NOT NULL"
)


def has_secret_link(row: Claim | Message) -> bool:
    """Return whether a message contains a link that only its recipient may see."""
    return row.source_type == "system" and fetch_one(_HAS_SECRET_LINK, (row.id,)) is not None


class PreparedMessage(NamedTuple):
    """A rendered message with its envelope, and what its row records about it.

    An SMS is its text in UTF-8, from a sender to a number, without subject and Message-ID.
    """

    envelope: Envelope
    subject: str
    sender: str
    internet_message_id: str
    parts: int | None = None  # of an SMS, as it is billed
    has_opt_out_hint: bool = False  # whether the text tells how to opt out
    lookup_count: int | None = None  # failed lookups of an uncertain SMS; None for all other messages


class Outcome(msgspec.Struct):
    """The outcome of a claimed message; without an error it was accepted."""

    claim: Claim
    error: DeliveryError | None = None
    skip_reason: str | None = None
    subject: str | None = None
    sender: str | None = None
    internet_message_id: str | None = None
    reply: str | None = None
    prepared: PreparedMessage | None = None  # what was sent, in case it has to be sent again
    delivered_via: dict[str, str] | None = None  # the server that accepted it and the encryption, in direct delivery
    provider_id: str | None = None  # the provider's id of an SMS
    first_status: str = "sent"  # the provider's first status of it (`error_codes.STATUSES`)


COLUMNS = ", ".join(Claim._fields)


def mark_skipped(row: Claim, reason: str, now: int) -> None:
    """End a row without an attempt; one that may have been accepted before stays uncertain."""
    if row.uncertain_count:
        return mark_uncertain(row, f"not repeated: {reason}", now)
    connection().execute(
        "UPDATE message SET status = 'skipped', skip_reason = ?, due_at = NULL, claimed_by = NULL, updated_at = ? "
        "WHERE id = ?",
        (reason, now, row.id),
    )
    count_attempt(row, "skipped")
    return record_event(row, f"{row.channel}_skipped", {"reason": reason})


def mark_uncertain(row: Claim, text: str, now: int) -> None:
    """End a row whose message may have been accepted."""
    connection().execute(
        "UPDATE message SET status = 'uncertain', uncertain_count = max(uncertain_count, 1), due_at = NULL, "
        "claimed_by = NULL, error_code = 'in_doubt', "
        "error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END, updated_at = ? WHERE id = ?",
        (text, now, row.id),
    )
    count_attempt(row, "uncertain")


def record_error(row: Claim, error: DeliveryError | None) -> None:
    """Store the server's reply with the row, unless its recipient was erased: the text may name them."""
    if error is None:
        return
    connection().execute(
        "UPDATE message SET error_code = ?, error_smtp = ?, error_enhanced = ?, "
        "error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END WHERE id = ?",
        (error.kind, error.smtp, error.enhanced, error.text[:1000], row.id),
    )


def get_source_name(row: Claim) -> str | None:
    """Return the name of the campaign or flow a row belongs to."""
    table, number = ("campaign", row.campaign_id) if row.campaign_id is not None else ("flow", row.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None


def build_event_data(row: Claim) -> dict[str, Any]:
    """Return the data that every event of a message has: its id and its source."""
    return {"message_id": row.id, "campaign_id": row.campaign_id, "flow_id": row.flow_id, "step_id": row.step_id}


def get_chain_depths(claims: Iterable[Claim]) -> dict[int, int]:
    """Return by message id how deep in a chain of flows its events are: one below the run that sent it."""
    run_ids = {claim.id: claim.run_id for claim in claims if claim.run_id is not None}
    if not run_ids:
        return {}
    sql = "SELECT id, chain_depth FROM run WHERE id IN (SELECT value FROM json_each(?))"
    depths = dict(rows(sql, (json.dumps(list(run_ids.values())),)))
    return {message_id: depths.get(run_id, 0) + 1 for message_id, run_id in run_ids.items()}


def record_event(row: Claim, event: str, data: dict[str, Any]) -> None:
    """Record an event of a message for the contact that its row belongs to now."""
    # The contact may have been merged into another, or deleted, since the claim.
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
    created_after: (
        Annotated[
            DayOrWhen,
            Meta(
                description="only those created at or after this time; a date begins at 00:00 in the account's "
                "time zone"
            ),
        ]
        | UnsetType
    ) = UNSET
    created_before: (
        Annotated[
            DayOrWhen,
            Meta(description="only those created before this time; a date begins at 00:00 in the account's time zone"),
        ]
        | UnsetType
    ) = UNSET


def list_messages(account_id: int, query: MessageQuery) -> Page:
    """Return a page of messages of every kind and status, newest first."""
    query_rows = Message.select().where(Message.account == account_id)
    for name in ("source_type", "channel", "status", "test"):
        if getattr(query, name) is not UNSET:
            query_rows = query_rows.where(getattr(Message, name) == getattr(query, name))
    for name, column in (("contact_id", Message.contact), ("campaign_id", Message.campaign), ("flow_id", Message.flow)):
        if getattr(query, name) is not UNSET:
            query_rows = query_rows.where(column == getattr(query, name))
    if query.flow_id is not UNSET and not Flow.select().where(Flow.id == query.flow_id, Flow.hidden).exists():
        # Messages of a flow belong to a run and have an index; rows of campaigns name a hidden flow and have another.
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
    """Return a message; raises NotFound."""
    message = Message.get_or_none(Message.account == account_id, Message.id == message_id)
    if message is None:
        raise NotFound
    return _add_source_names([message])[0]


def get_by_ids(ids: list[int]) -> list[Message]:
    """Return messages by their ids, newest first."""
    return (
        _add_source_names(list(Message.select().where(Message.id.in_(ids)).order_by(Message.id.desc()))) if ids else []
    )


def get_content(message: Message) -> MessageContent | None:
    """Return the content of a single message, or None for a campaign's, whose content is a revision."""
    return MessageContent.get_or_none(MessageContent.message == message.id)


def _add_source_names(messages: list[Message]) -> list[Message]:
    """Add the name of the campaign or flow to each message."""
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
    """Return the number of messages of a campaign or flow by status, with sums (docs/decisions.md#7).

    Every term is counted from the rows themselves in one statement, so the sum cannot drift from them.
    """
    # Of the two indexes on campaigns only one holds the status; with the other each row would be looked up.
    index = {"campaign_id": "INDEXED BY message_campaign_id_status", "flow_id": ""}[column]
    counted: dict[str, int] = dict(
        rows(f"SELECT status, count(*) FROM message {index} WHERE {column} = ? GROUP BY status", (number,))
    )
    counts: dict[str, int] = {name: counted.get(name, 0) for name in STATUSES}
    pending = counts["queued"] + counts["held"] + counts["sending"]
    terms = {name: counts[name] for name in FINAL_STATUSES}
    accepted = sum(counts[name] for name in ("sent", "delivered", "bounced", "complained"))
    return {"audience": pending + sum(terms.values()), "pending": pending, **terms, "accepted": accepted}


# Metrics of outcomes, counted by this process once they are on disk; test messages are not counted.

SENDS = Counter(
    "sends_total",
    "Messages whose attempt ended, by what became of it: accepted, put_off (tried again later), failed, skipped, "
    "uncertain, cancelled.",
    ("channel", "provider", "group", "result"),
)

BOUNCES = Counter("bounces_total", "Messages that were refused or came back, by what that means.", ("channel", "class"))
COMPLAINTS = Counter("complaints_total", "Messages that their recipients called spam.", ("channel",))

TRANSACTIONS = Histogram(
    "smtp_transaction_seconds",
    "From the envelope to the server's last word on a message, by what that was: accepted, refused, put_off, "
    "uncertain, broken.",
    ("provider", "result"),
)

_RESULTS = ((RecipientRejected, "refused"), (Uncertain, "uncertain"), (Deferred | Postponed, "put_off"))


class CountedMessage(Protocol):
    """The fields of a message that metrics need."""

    @property
    def account_id(self) -> int:
        """The account of the message."""

    @property
    def channel(self) -> str:
        """`email` or `sms`."""

    @property
    def provider(self) -> str:
        """The provider that sends it."""

    @property
    def recipient_key(self) -> str:
        """The normalized address."""

    @property
    def test(self) -> bool:
        """Whether it is a test message."""


def count_attempt(row: CountedMessage, result: str) -> None:
    """Count an attempt that was not accepted, after the commit."""
    if not row.test:
        labels = (row.channel, row.provider, _group_label(row), result)
        after_commit(lambda: SENDS.increment(*labels, account_id=row.account_id))


def count_accepted(rows: Iterable[CountedMessage]) -> None:
    """Count accepted messages, after the commit."""
    counts = collections.Counter(
        (row.account_id, row.channel, row.provider, _group_label(row)) for row in rows if not row.test
    )

    def count() -> None:
        for (account_id, *labels), number in counts.items():
            SENDS.increment(*labels, "accepted", account_id=account_id, number=number)

    after_commit(count)


def count_bounce(row: CountedMessage, name: str) -> None:
    """Count a bounce by its class, after the commit."""
    after_commit(lambda: BOUNCES.increment(row.channel, name, account_id=row.account_id))


def count_complaint(row: CountedMessage) -> None:
    """Count a complaint, after the commit."""
    if not row.test:
        after_commit(lambda: COMPLAINTS.increment(row.channel, account_id=row.account_id))


def observe_transaction(provider: str, error: DeliveryError | None, seconds: float) -> None:
    """Record how long a server took over one message, and its result."""
    label = next((name for kind, name in _RESULTS if isinstance(error, kind)), "broken")
    TRANSACTIONS.observe(seconds, provider, "accepted" if error is None else label)


def _group_label(row: CountedMessage) -> str:
    """Return the recipient group if it is a large one, else `other`, so that labels stay few."""
    if row.channel != "email":
        return row.channel
    # An erased recipient has no address any more.
    group = mx_routes.get_recipient_group(row.provider, row.recipient_key or "")
    return group if group in mx_routes.LARGE_GROUPS else "other"


# Rejected as a nonexistent address, bounced after it was accepted, reported as spam.
CampaignCounter = Literal["refused", "bounced", "complained"]

_INCREMENT_CAMPAIGN = {
    name: f"UPDATE campaign SET {name}_count = {name}_count + 1 WHERE id = ?"
    for name in ("refused", "bounced", "complained")
}


def increment_campaign(campaign_id: int, what: CampaignCounter) -> None:
    """Add one to a counter of a campaign, and wake the check for auto-pause (`campaigns.states`)."""
    require_write_transaction()
    connection().execute(_INCREMENT_CAMPAIGN[what], (campaign_id,))
    after_commit(lambda: signals.wake("campaigns"))
