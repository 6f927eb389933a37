"""The people behind the numbers of a report: messages of a campaign by what became of them."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType, json
from peewee import SQL

from appliance.campaigns import report, store
from appliance.core.fields import ContactId, PageQuery, Short
from appliance.core.pagination import Page, paginate
from appliance.sending.delivery import groups
from appliance.sending.messages import ledger as messages
from appliance.sending.messages.ledger import Status
from appliance.sending.sms import numbers
from appliance.storage.models import Hit, Message
from appliance.storage.models.message import OPEN
from appliance.storage.open import rows, scalar

# By people (that is not known to be machines), seen by machines and nobody else, or by no person though it was accepted
By = Literal["people", "machines", "nobody"]
# Whom a message of the campaign led to opt out; the evidence names the message. Who called it spam is counted as that
UNSUBSCRIBED = (
    "SELECT DISTINCT m.id FROM consent c INDEXED BY consent_of_message "
    "JOIN message m ON m.id = json_extract(c.data, '$.message_id') "
    "WHERE json_extract(c.data, '$.message_id') BETWEEN ? AND ? AND c.act = 'opt_out' AND c.by = 'recipient' "
    "AND m.campaign_id = ? AND m.status != 'complained'"
)
# What a number begins with: enough to tell its country, the area code in America, and few enough to look at each
NUMBER_PREFIX = "substr(recipient_key, 1, CASE WHEN recipient_key GLOB '+1*' THEN 5 ELSE 7 END)"
UNKNOWN = "unknown"
_NUMBERS = (
    f"SELECT {NUMBER_PREFIX}, max(recipient_key) FROM message NOT INDEXED "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND channel = 'sms' AND recipient_key IS NOT NULL GROUP BY 1"
)
_ACCEPTED = ("sent", "delivered", "bounced", "complained")
_AT = {"open": Message.opened_at, "click": Message.clicked_at}


class RecipientQuery(PageQuery):
    """Filters of a campaign's recipients; they add up."""

    status: Status | UnsetType = UNSET
    opened: By | UnsetType = UNSET
    clicked: By | UnsetType = UNSET
    link: int | UnsetType = UNSET
    domain: Short | UnsetType = UNSET
    country: Short | UnsetType = UNSET
    problem: Short | UnsetType = UNSET
    pending: bool | UnsetType = UNSET
    accepted: bool | UnsetType = UNSET
    unsubscribed: bool | UnsetType = UNSET
    contact_id: ContactId | UnsetType = UNSET


_FILTERS = tuple(name for name in RecipientQuery.__struct_fields__ if name not in PageQuery.__struct_fields__)
# So many times more rows between the first and the last than the campaign has
_SCATTERED = 4


def page(account_id: int, campaign_id: int, query: RecipientQuery) -> Page:
    """List a campaign's messages, newest first; raises NotFound."""
    if not any(getattr(query, name) is not UNSET for name in _FILTERS):
        return _everybody(store.row(account_id, campaign_id).id, query)
    # Sorted by their ids alone, which the index holds; sorting whole rows of a large campaign takes a second
    found = _chosen(account_id, campaign_id, query).select(Message.id)
    result = paginate(found.order_by(Message.id.desc()), query.page, query.size())
    return result._replace(rows=messages.by_ids([row.id for row in result.rows]))


def _everybody(campaign_id: int, query: RecipientQuery) -> Page:
    """List all of a campaign's messages: they stand together, so a page is met on the way from the nearer end."""
    total = int(scalar("SELECT count(*) FROM message WHERE campaign_id = ?", (campaign_id,)))
    size, (first, last) = query.size(), bounds(campaign_id)
    skip = (query.page - 1) * size
    take = min(size, total - skip)
    if take <= 0 or first is None or last is None:
        return Page([], total, query.page, size)
    turned = skip > total // 2
    order, skip = ("ASC", total - skip - take) if turned else ("DESC", skip)
    # Rows of others in between are passed too; among many of those the index is quicker
    source = "message NOT INDEXED" if last - first < total * _SCATTERED else "message"
    found = rows(
        f"SELECT id FROM {source} WHERE campaign_id = ? AND id BETWEEN ? AND ? ORDER BY id {order} LIMIT ? OFFSET ?",
        (campaign_id, first, last, take, skip),
    )
    return Page(messages.by_ids([row[0] for row in found]), total, query.page, size)


def ids(account_id: int, campaign_id: int, query: RecipientQuery) -> list[int]:
    """Return the messages that a query names, newest first, all of them; raises NotFound."""
    return [
        row[0]
        for row in _chosen(account_id, campaign_id, query).select(Message.id).order_by(Message.id.desc()).tuples()
    ]


def people(account_id: int, campaign_id: int, query: RecipientQuery) -> list[int]:
    """Return the contacts that a query names, each once, those who are gone left out; raises NotFound."""
    asked = _chosen(account_id, campaign_id, query).where(Message.contact.is_null(False))
    return list(dict.fromkeys(row[0] for row in asked.select(Message.contact).order_by(Message.id).tuples()))


def _chosen(account_id: int, campaign_id: int, query: RecipientQuery) -> Any:
    campaign = store.row(account_id, campaign_id)
    found = Message.select().where(Message.campaign == campaign_id)
    if query.status is not UNSET:
        found = found.where(Message.status == query.status)
    if query.contact_id is not UNSET:
        found = found.where(Message.contact == query.contact_id)
    for wanted, statuses in ((query.pending, OPEN), (query.accepted, _ACCEPTED)):
        if wanted is not UNSET:
            within = Message.status.in_(statuses)
            found = found.where(within if wanted else ~within)
    for kind, by in (("open", query.opened), ("click", query.clicked)):
        if isinstance(by, str):
            found = _engaged(found, campaign_id, kind, by)
    if isinstance(query.link, int):
        found = found.where(Message.id.in_(_hits(campaign_id, "click").where(
            Hit.number == query.link, Hit.verdict != "machine"
        )))  # fmt: skip
    if isinstance(query.domain, str):
        found = found.where(_at(query.domain))
    if isinstance(query.country, str):
        found = found.where(_in(campaign_id, query.country.strip()))
    if isinstance(query.problem, str):
        found = found.where(_among(report.troubled(campaign, query.problem)))
    if query.unsubscribed is not UNSET:
        among = _among(unsubscribed(campaign_id))
        found = found.where(among if query.unsubscribed else ~among)
    return found


def unsubscribed(campaign_id: int) -> list[int]:
    """Return the messages of a campaign whose own links people used to opt out."""
    return [row[0] for row in rows(UNSUBSCRIBED, (*bounds(campaign_id), campaign_id))]


def bounds(campaign_id: int) -> tuple[int | None, int | None]:
    """Return the first and the last message of a campaign; each status has its own in the index."""
    ends = [
        scalar(f"SELECT {what}(id) FROM message WHERE campaign_id = ? AND status = ?", (campaign_id, status))
        for status in messages.STATUSES
        for what in ("min", "max")
    ]
    known = [number for number in ends if number is not None]
    return min(known, default=None), max(known, default=None)


def _engaged(found: Any, campaign_id: int, kind: str, by: str) -> Any:
    if by == "people":
        return found.where(_AT[kind].is_null(False))
    if by == "nobody":
        return found.where(_AT[kind].is_null(), Message.status.in_(_ACCEPTED))
    machines = _hits(campaign_id, kind).where(Hit.verdict == "machine")
    return found.where(_AT[kind].is_null(), Message.id.in_(machines))


def _hits(campaign_id: int, kind: str) -> Any:
    return Hit.select(Hit.message).where(Hit.campaign == campaign_id, Hit.kind == kind, Hit.message.is_null(False))


def _at(name: str) -> Any:
    """Return who has a mailbox at a provider, or at a domain by itself."""
    wanted = None
    for domain in groups.domains_of(name.strip().lower()):
        tail = Message.recipient_key.endswith(f"@{domain}")
        wanted = tail if wanted is None else wanted | tail
    return wanted


def _in(campaign_id: int, country: str) -> Any:
    """Return who has a number of a country (its two letters), or one that is of none (`UNKNOWN`)."""
    wanted = None if country.lower() == UNKNOWN else country.upper()
    found = rows(_NUMBERS, (*bounds(campaign_id), campaign_id))
    prefixes = [prefix for prefix, number in found if numbers.look(number).country == wanted]
    return SQL(f"{NUMBER_PREFIX} IN (SELECT value FROM json_each(?))", [json.encode(prefixes).decode()])


def _among(ids: list[int]) -> Any:
    # Numbers of our own, written out: there may be more of them than a statement takes parameters
    return Message.id.in_(SQL("(SELECT value FROM json_each(?))", [str(ids)]))
