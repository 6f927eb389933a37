"""The recipients of a campaign: lists of its messages, filtered so that each figure of the report has its list."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, json
from peewee import SQL

from appliance.campaigns import report, store
from appliance.core import addresses
from appliance.core.validation import ContactId, PageQuery, Short
from appliance.sending.delivery import mx_routes
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import Status
from appliance.storage.database import Page, paginate, rows, scalar
from appliance.storage.models import Campaign, Hit, Message
from appliance.storage.models.message import OPEN

# Who opened or clicked a message. `people`: at least one hit that is not known to come from a machine; `machines`: only
# hits from machines; `never`: the message was delivered (sent, and not bounced) and has no hit from a person.
EngagedBy = Literal["people", "machines", "never"]
# Messages whose recipients opted out through them; the consent evidence names the message. Complaints are not included.
UNSUBSCRIBED = (
    "SELECT DISTINCT m.id FROM consent c INDEXED BY consent_of_message "
    "JOIN message m ON m.id = json_extract(c.data, '$.message_id') "
    "WHERE json_extract(c.data, '$.message_id') BETWEEN ? AND ? AND c.act = 'opt_out' AND c.by = 'recipient' "
    "AND m.campaign_id = ? AND m.status != 'complained'"
)
# Emails with a recorded reply. The events of a name are few compared with the messages of a campaign.
_REPLIED = (
    "SELECT DISTINCT m.id FROM event e INDEXED BY event_of_name "
    "JOIN message m ON m.id = CAST(substr(e.resource_uid, 9) AS INTEGER) "
    "WHERE e.account_id = ? AND e.event = 'email_replied' AND e.created_at >= ? AND m.campaign_id = ?"
)
# What the recipients of some messages did besides opens and clicks, as (message id, kind, time of the first).
_REACTIONS = (
    "SELECT m.id, CASE e.event WHEN 'email_replied' THEN 'replied' ELSE 'complained' END, min(e.created_at) "
    "FROM message m JOIN event e INDEXED BY event_resource "
    "ON e.account_id = m.account_id AND e.resource_uid = 'message:' || m.id "
    "WHERE m.id IN (SELECT value FROM json_each(?1)) AND e.event IN ('email_replied', 'email_complained') "
    "GROUP BY 1, 2 "
    "UNION ALL SELECT json_extract(c.data, '$.message_id'), 'unsubscribed', min(c.created_at) "
    "FROM consent c INDEXED BY consent_of_message WHERE json_extract(c.data, '$.message_id') IN "
    "(SELECT value FROM json_each(?1)) AND c.act = 'opt_out' AND c.by = 'recipient' GROUP BY 1 "
    "UNION ALL SELECT id, 'bounced', bounced_at FROM message WHERE id IN (SELECT value FROM json_each(?1)) "
    "AND bounced_at NOT NULL AND status = 'bounced'"
)
# The prefix of a phone number: long enough to determine the country (in North America with the area code), and short
# enough that a campaign has few different ones, each of which is checked once.
NUMBER_PREFIX = "substr(recipient_key, 1, CASE WHEN recipient_key GLOB '+1*' THEN 5 ELSE 7 END)"
UNKNOWN = "unknown"
_SAMPLE_NUMBERS = (
    f"SELECT {NUMBER_PREFIX}, max(recipient_key) FROM message NOT INDEXED "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND channel = 'sms' AND recipient_key IS NOT NULL GROUP BY 1"
)
_DELIVERED = ("sent", "delivered", "complained")
_ACCEPTED = (*_DELIVERED, "bounced")
_ENGAGED_COLUMNS = {"open": Message.opened_at, "click": Message.clicked_at}


class RecipientQuery(PageQuery):
    """Filters of the recipients of a campaign; a message must match all of them."""

    status: Annotated[Status, Meta(description="only those with this status")] | UnsetType = UNSET
    opened: (
        Annotated[
            EngagedBy,
            Meta(description="only messages opened by people, only by machines, or never opened though delivered"),
        ]
        | UnsetType
    ) = UNSET
    clicked: (
        Annotated[
            EngagedBy,
            Meta(description="only messages clicked by people, only by machines, or never clicked though delivered"),
        ]
        | UnsetType
    ) = UNSET
    link: (
        Annotated[int, Meta(description="only messages in which the link with this number was clicked")] | UnsetType
    ) = UNSET
    domain: Annotated[Short, Meta(description="only recipients at this mailbox provider")] | UnsetType = UNSET
    country: (
        Annotated[Short, Meta(description="only recipients in the country with this two-letter code")] | UnsetType
    ) = UNSET
    problem: Annotated[Short, Meta(description="only messages with this problem, by its `key`")] | UnsetType = UNSET
    pending: (
        Annotated[bool, Meta(description="true: only messages that are not yet final; false: only final ones")]
        | UnsetType
    ) = UNSET
    accepted: (
        Annotated[bool, Meta(description="true: only messages accepted by the next hop; false: only others")]
        | UnsetType
    ) = UNSET
    unsubscribed: (
        Annotated[bool, Meta(description="true: only messages that led to an opt-out; false: only others")] | UnsetType
    ) = UNSET
    replied: (
        Annotated[bool, Meta(description="true: only emails with a recorded reply; false: only others")] | UnsetType
    ) = UNSET
    contact_id: Annotated[ContactId, Meta(description="only those of this contact")] | UnsetType = UNSET
    variant: (
        Annotated[
            int,
            Meta(description="only those of this variant of an A/B test; 0: waiting for the winner, -1: held out"),
        ]
        | UnsetType
    ) = UNSET


_FILTERS = tuple(name for name in RecipientQuery.__struct_fields__ if name not in PageQuery.__struct_fields__)
# A scan by id replaces the index if the ids from the first to the last message are fewer than this times the campaign's
# messages.
_MAX_ID_SPREAD = 4


def list_recipients(account_id: int, campaign_id: int, query: RecipientQuery) -> Page:
    """Return a page of a campaign's messages that match the query, newest first; raises NotFound."""
    if not any(getattr(query, name) is not UNSET for name in _FILTERS):
        return _list_all(store.get_row(account_id, campaign_id).id, query)
    # Only ids are sorted, which the index contains; sorting the whole rows of a large campaign takes a second.
    matches = _select_matching(account_id, campaign_id, query).select(Message.id)
    page = paginate(matches.order_by(Message.id.desc()), query.page, query.size())
    return page._replace(rows=ledger.get_by_ids([row.id for row in page.rows]))


def _list_all(campaign_id: int, query: RecipientQuery) -> Page:
    """Return a page of all messages of a campaign, newest first.

    The ids of a campaign are close together, so the page is found by a scan from the nearer end of their range.
    """
    total = int(scalar("SELECT count(*) FROM message WHERE campaign_id = ?", (campaign_id,)))
    size, (first, last) = query.size(), get_id_range(campaign_id)
    skip = (query.page - 1) * size
    count = min(size, total - skip)
    if count <= 0 or first is None or last is None:
        return Page([], total, query.page, size)
    is_ascending = skip > total // 2
    order, skip = ("ASC", total - skip - count) if is_ascending else ("DESC", skip)
    # The scan also reads rows of other campaigns in the range; if there are many, the index is faster.
    source = "message NOT INDEXED" if last - first < total * _MAX_ID_SPREAD else "message"
    ids = rows(
        f"SELECT id FROM {source} WHERE campaign_id = ? AND id BETWEEN ? AND ? ORDER BY id {order} LIMIT ? OFFSET ?",
        (campaign_id, first, last, count, skip),
    )
    return Page(ledger.get_by_ids([row[0] for row in ids]), total, query.page, size)


def list_message_ids(account_id: int, campaign_id: int, query: RecipientQuery) -> list[int]:
    """Return the ids of all messages of a campaign that match the query, newest first; raises NotFound."""
    return [
        row[0]
        for row in _select_matching(account_id, campaign_id, query)
        .select(Message.id)
        .order_by(Message.id.desc())
        .tuples()
    ]


def list_contact_ids(account_id: int, campaign_id: int, query: RecipientQuery) -> list[int]:
    """Return the ids of the contacts whose messages match the query, each once and without deleted contacts.

    Raises NotFound.
    """
    matches = _select_matching(account_id, campaign_id, query).where(Message.contact.is_null(False))
    return list(dict.fromkeys(row[0] for row in matches.select(Message.contact).order_by(Message.id).tuples()))


def _select_matching(account_id: int, campaign_id: int, query: RecipientQuery) -> Any:
    campaign = store.get_row(account_id, campaign_id)
    messages = Message.select().where(Message.campaign == campaign_id)
    if query.status is not UNSET:
        messages = messages.where(Message.status == query.status)
    if query.contact_id is not UNSET:
        messages = messages.where(Message.contact == query.contact_id)
    if query.variant is not UNSET:
        messages = messages.where(Message.variant == query.variant)
    for is_wanted, statuses in ((query.pending, OPEN), (query.accepted, _ACCEPTED)):
        if is_wanted is not UNSET:
            within = Message.status.in_(statuses)
            messages = messages.where(within if is_wanted else ~within)
    for kind, engaged_by in (("open", query.opened), ("click", query.clicked)):
        if isinstance(engaged_by, str):
            messages = _filter_engaged(messages, campaign_id, kind, engaged_by)
    if isinstance(query.link, int):
        messages = messages.where(Message.id.in_(_select_hits(campaign_id, "click").where(
            Hit.number == query.link, Hit.verdict != "machine"
        )))  # fmt: skip
    if isinstance(query.domain, str):
        messages = messages.where(_filter_domain(query.domain))
    if isinstance(query.country, str):
        messages = messages.where(_filter_country(campaign_id, query.country.strip()))
    if isinstance(query.problem, str):
        messages = messages.where(_filter_ids(report.list_affected_messages(campaign, query.problem)))
    if query.unsubscribed is not UNSET:
        is_unsubscribed = _filter_ids(list_unsubscribed(campaign_id))
        messages = messages.where(is_unsubscribed if query.unsubscribed else ~is_unsubscribed)
    if query.replied is not UNSET:
        is_replied = _filter_ids(list_replied(campaign))
        messages = messages.where(is_replied if query.replied else ~is_replied)
    return messages


def list_unsubscribed(campaign_id: int) -> list[int]:
    """Return the ids of a campaign's messages through which recipients opted out, without complaints."""
    return [row[0] for row in rows(UNSUBSCRIBED, (*get_id_range(campaign_id), campaign_id))]


def list_replied(campaign: Campaign) -> list[int]:
    """Return the ids of a campaign's emails with a recorded reply.

    Only the built-in inbox records replies; other replies go to the reply address, of which the service knows nothing.
    """
    return [row[0] for row in rows(_REPLIED, (campaign.account_id, campaign.started_at or 0, campaign.id))]


def load_reactions(message_ids: list[int]) -> dict[int, list[tuple[str, int]]]:
    """Return what the recipients of messages did besides opens and clicks, by message id and in order of time.

    Each reaction is (`replied`, `unsubscribed`, `complained` or `bounced`, time of the first one in Unix milliseconds).
    """
    reactions: dict[int, list[tuple[str, int]]] = {}
    for message_id, kind, at in sorted(rows(_REACTIONS, (json.encode(message_ids).decode(),)), key=lambda row: row[2]):
        reactions.setdefault(message_id, []).append((kind, at))
    return reactions


def get_id_range(campaign_id: int) -> tuple[int | None, int | None]:
    """Return the first and last message id of a campaign, or (None, None) if it has no messages.

    Each status is looked up at both ends of the index, which is faster than reading all ids.
    """
    ends = [
        scalar(f"SELECT {function}(id) FROM message WHERE campaign_id = ? AND status = ?", (campaign_id, status))
        for status in ledger.STATUSES
        for function in ("min", "max")
    ]
    ids = [number for number in ends if number is not None]
    return min(ids, default=None), max(ids, default=None)


def _filter_engaged(messages: Any, campaign_id: int, kind: str, engaged_by: str) -> Any:
    if engaged_by == "people":
        return messages.where(_ENGAGED_COLUMNS[kind].is_null(False))
    if engaged_by == "never":
        return messages.where(_ENGAGED_COLUMNS[kind].is_null(), Message.status.in_(_DELIVERED))
    machines = _select_hits(campaign_id, kind).where(Hit.verdict == "machine")
    return messages.where(_ENGAGED_COLUMNS[kind].is_null(), Message.id.in_(machines))


def _select_hits(campaign_id: int, kind: str) -> Any:
    return Hit.select(Hit.message).where(Hit.campaign == campaign_id, Hit.kind == kind, Hit.message.is_null(False))


def _filter_domain(name: str) -> Any:
    """Return the condition for messages to addresses at a mailbox provider, or at a single domain."""
    condition = None
    for domain in mx_routes.get_group_domains(name.strip().lower()):
        at_domain = Message.recipient_key.endswith(f"@{domain}")
        condition = at_domain if condition is None else condition | at_domain
    return condition


def _filter_country(campaign_id: int, country: str) -> Any:
    """Return the condition for messages to numbers of a country (two letters), or of no known country (`UNKNOWN`)."""
    code = None if country.lower() == UNKNOWN else country.upper()
    samples = rows(_SAMPLE_NUMBERS, (*get_id_range(campaign_id), campaign_id))
    prefixes = [prefix for prefix, number in samples if addresses.inspect_number(number).country == code]
    return SQL(f"{NUMBER_PREFIX} IN (SELECT value FROM json_each(?))", [json.encode(prefixes).decode()])


def _filter_ids(ids: list[int]) -> Any:
    # The ids are one JSON parameter, because there may be more of them than a statement may have parameters.
    return Message.id.in_(SQL("(SELECT value FROM json_each(?))", [str(ids)]))
