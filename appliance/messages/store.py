"""The ledger read: messages listed and shown, and the sums that always hold."""

from typing import Literal, get_args

from msgspec import UNSET, UnsetType

from appliance import addresses
from appliance.db.dialect.hints import by_index
from appliance.db.open import rows
from appliance.errors import NotFound
from appliance.events.log import moments
from appliance.fields import CampaignId, ContactId, DayOrWhen, FlowId, PageQuery, Short
from appliance.pages import Page, paginate
from appliance.tables import Account, Campaign, Flow, Message, MessageContent

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
    index = {"campaign_id": by_index("message_campaign_id_status"), "flow_id": ""}[column]
    counted: dict[str, int] = dict(
        rows(f"SELECT status, count(*) FROM message {index} WHERE {column} = ? GROUP BY status", (number,))
    )
    found: dict[str, int] = {name: counted.get(name, 0) for name in STATUSES}
    pending = found["queued"] + found["held"] + found["sending"]
    terms = {name: found[name] for name in FINAL}
    accepted = sum(found[name] for name in ("sent", "delivered", "bounced", "complained"))
    return {"audience": pending + sum(terms.values()), "pending": pending, **terms, "accepted": accepted}
