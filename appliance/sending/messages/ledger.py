"""Rows of the ledger in hand, and the small writes that every step of theirs shares."""

import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, UnsetType

from appliance.core import addresses
from appliance.core.errors import DeliveryError, NotFound
from appliance.core.fields import CampaignId, ContactId, DayOrWhen, FlowId, PageQuery, Short
from appliance.core.pagination import Page, paginate
from appliance.events import log
from appliance.events.log import Happened, moments
from appliance.sending.delivery.send import Envelope
from appliance.sending.messages import message_counters
from appliance.storage.models import Account, Campaign, Flow, Message, MessageContent
from appliance.storage.open import connection, rows, scalar

# Due at once, and still so when the clock steps back
AT_ONCE = 0
# So too, and behind what has not gone yet, where whoever reads the rows in their order still comes by
AGAIN_AT_ONCE = 1
# So too what flows send, behind what a program sends to one person
BY_FLOWS_AT_ONCE = 2


class Claim(NamedTuple):
    """A message in hand."""

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
    doubts: int
    created_at: int
    template_id: int | None
    flow_id: int | None
    dated_at: int | None
    digest: int | None
    run_id: int | None
    step_id: int | None

    @property
    def is_single(self) -> bool:
        """Return whether it is nobody's but its recipient's: neither of a campaign nor of a flow."""
        return self.campaign_id is None and self.run_id is None

    @property
    def kind(self) -> str:
        """The kind of address it goes to."""
        return "phone" if self.channel == "sms" else "email"


class Prepared(NamedTuple):
    """A message ready to be handed over, and what its row shall say about it.

    An SMS is its text in UTF-8, from a sender to a number, without subject and Message-ID.
    """

    envelope: Envelope
    subject: str
    sender: str
    internet_message_id: str
    parts: int | None = None  # of an SMS, as it is paid for
    hinted: bool = False  # it says how to opt out
    looked: int | None = None  # may have been taken, and is looked for: how often that was in vain


class Outcome(msgspec.Struct):
    """What became of a claimed message; without an error it was accepted."""

    claim: Claim
    error: DeliveryError | None = None
    skip_reason: str | None = None
    subject: str | None = None
    sender: str | None = None
    internet_message_id: str | None = None
    reply: str | None = None
    prepared: Prepared | None = None  # what was handed over, where it may have to be repeated
    via: dict[str, str] | None = None  # whose server took it and how, where we deliver ourselves
    provider_id: str | None = None  # what the provider of an SMS calls it
    first_status: str = "sent"  # its first word on what became of that (`sms.told.STATUSES`)


COLUMNS = ", ".join(Claim._fields)


def skip(row: Claim, reason: str, now: int) -> None:
    """End a row without an attempt; one that may have been taken before stays uncertain, for that is what is known."""
    if row.doubts:
        return uncertain(row, f"not repeated: {reason}", now)
    connection().execute(
        "UPDATE message SET status = 'skipped', skip_reason = ?, due_at = NULL, claimed_by = NULL, updated_at = ? "
        "WHERE id = ?",
        (reason, now, row.id),
    )
    message_counters.ended(row, "skipped")
    return record(row, f"{row.channel}_skipped", {"reason": reason})


def uncertain(row: Claim, text: str, now: int) -> None:
    """End a row of which nobody knows whether it was taken."""
    connection().execute(
        "UPDATE message SET status = 'uncertain', doubts = max(doubts, 1), due_at = NULL, claimed_by = NULL, "
        "error_code = 'in_doubt', error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END, updated_at = ? "
        "WHERE id = ?",
        (text, now, row.id),
    )
    message_counters.ended(row, "uncertain")


def fault(row: Claim, error: DeliveryError | None) -> None:
    """Keep the other side's words with the row; they may name the recipient, so not with one who was erased."""
    if error is None:
        return
    connection().execute(
        "UPDATE message SET error_code = ?, error_smtp = ?, error_enhanced = ?, "
        "error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END WHERE id = ?",
        (type(error).__name__.lower(), error.smtp, error.enhanced, error.text[:1000], row.id),
    )


def source_name(row: Claim) -> str | None:
    """Return the name of the campaign or flow a row belongs to."""
    table, number = ("campaign", row.campaign_id) if row.campaign_id is not None else ("flow", row.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None


def about(row: Claim) -> dict[str, Any]:
    """Return what every event of a message says: which it is, and what sent it."""
    return {"message_id": row.id, "campaign_id": row.campaign_id, "flow_id": row.flow_id, "step_id": row.step_id}


def depths(claims: Iterable[Claim]) -> dict[int, int]:
    """Return by message id how deep in a chain of flows its events stand: one below the run that sent it."""
    sent = {claim.id: claim.run_id for claim in claims if claim.run_id is not None}
    if not sent:
        return {}
    asked = "SELECT id, chain_depth FROM run WHERE id IN (SELECT value FROM json_each(?))"
    known = dict(rows(asked, (json.dumps(list(sent.values())),)))
    return {message_id: known.get(run_id, 0) + 1 for message_id, run_id in sent.items()}


def record(row: Claim, event: str, data: dict[str, Any]) -> None:
    """Write the event of what happened to a row, for whom the row belongs to now."""
    # While it was in hand its contact may have been merged into another, or deleted
    contact_id = scalar("SELECT contact_id FROM message WHERE id = ?", (row.id,))
    log.record(
        Happened(
            row.account_id, event, contact_id,
            about(row) | data, resource_uid=f"message:{row.id}", resource_name=source_name(row), test=row.test,
            chain_depth=depths([row]).get(row.id, 0),
        )
    )  # fmt: skip


# The ledger read: messages listed and shown, and the sums that always hold.

Status = Literal[
    "queued", "held", "sending", "sent", "delivered", "bounced", "complained", "failed", "skipped", "cancelled",
    "uncertain",
]  # fmt: skip
SourceType = Literal["transactional", "campaign", "flow", "test", "system"]
STATUSES: tuple[str, ...] = get_args(Status)
FINAL = tuple(status for status in STATUSES if status not in ("queued", "held", "sending"))


class MessageQuery(PageQuery):
    """Filters of the message list."""

    source_type: SourceType | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    to: Short | UnsetType = UNSET
    contact_id: ContactId | UnsetType = UNSET
    campaign_id: CampaignId | UnsetType = UNSET
    flow_id: FlowId | UnsetType = UNSET
    test: bool | UnsetType = UNSET
    created_after: DayOrWhen | UnsetType = UNSET
    created_before: DayOrWhen | UnsetType = UNSET


def page(account_id: int, query: MessageQuery) -> Page:
    """List messages of every kind and status, newest first."""
    found = Message.select().where(Message.account == account_id)
    for name in ("source_type", "channel", "status", "test"):
        if getattr(query, name) is not UNSET:
            found = found.where(getattr(Message, name) == getattr(query, name))
    for name, column in (("contact_id", Message.contact), ("campaign_id", Message.campaign), ("flow_id", Message.flow)):
        if getattr(query, name) is not UNSET:
            found = found.where(column == getattr(query, name))
    if query.flow_id is not UNSET and not Flow.select().where(Flow.id == query.flow_id, Flow.hidden).exists():
        # What a flow sent belongs to a run, and has an index; rows of campaigns name a hidden flow, and have another
        found = found.where(Message.run.is_null(False))
    if isinstance(query.to, str):
        found = found.where(Message.recipient_key == addresses.sought(query.to))
    after, before = moments(query.created_after, query.created_before, Account.get_by_id(account_id).time_zone)
    if after is not None:
        found = found.where(Message.created_at >= after)
    if before is not None:
        found = found.where(Message.created_at < before)
    result = paginate(found.order_by(Message.created_at.desc(), Message.id.desc()), query.page, query.size())
    return result._replace(rows=_named(list(result.rows)))


def get(account_id: int, message_id: int) -> Message:
    """Return a message; raises NotFound."""
    found = Message.get_or_none(Message.account == account_id, Message.id == message_id)
    if found is None:
        raise NotFound
    return _named([found])[0]


def by_ids(ids: list[int]) -> list[Message]:
    """Load messages by their ids, newest first."""
    return _named(list(Message.select().where(Message.id.in_(ids)).order_by(Message.id.desc()))) if ids else []


def content(message: Message) -> MessageContent | None:
    """Return what a single message says; None for a campaign's, whose content is a revision."""
    return MessageContent.get_or_none(MessageContent.message == message.id)


def _named(messages: list[Message]) -> list[Message]:
    """Add the name of the campaign or flow each message came from."""
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


def stats(column: Literal["campaign_id", "flow_id"], number: int) -> dict[str, int]:
    """Sum the ledger of a campaign or flow (`campaign_id` or `flow_id`); the identity of docs/decisions.md#7, holds.

    Every term is counted from the rows themselves in one statement, so the sum cannot drift from them.
    """
    # Of two indexes on a campaign only one holds the status; with the other each row would be looked up
    index = {"campaign_id": "INDEXED BY message_campaign_id_status", "flow_id": ""}[column]
    counted: dict[str, int] = dict(
        rows(f"SELECT status, count(*) FROM message {index} WHERE {column} = ? GROUP BY status", (number,))
    )
    found: dict[str, int] = {name: counted.get(name, 0) for name in STATUSES}
    pending = found["queued"] + found["held"] + found["sending"]
    terms = {name: found[name] for name in FINAL}
    accepted = sum(found[name] for name in ("sent", "delivered", "bounced", "complained"))
    return {"audience": pending + sum(terms.values()), "pending": pending, **terms, "accepted": accepted}
