"""What was said between an account and a person by SMS, both ways in one row, and what came in for somebody to read."""

from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType
from peewee import SQL

from appliance.audience.contacts import store
from appliance.content.designs.merge import MergeError
from appliance.core import addresses, clock
from appliance.core.errors import NotFound
from appliance.core.fields import ContactId, DayOrWhen, PageQuery
from appliance.core.pagination import Page, paginate
from appliance.events.log import moments
from appliance.inbound.conversations import leaving
from appliance.inbound.conversations.leaving import Said
from appliance.sending.messages import ledger as messages
from appliance.sending.messages.prepare import Workshop
from appliance.storage.models import Account, Incoming, Message
from appliance.storage.open import rows, scalar
from appliance.storage.work import writing

Kind = Literal["message", "keyword", "stop", "start", "help", "refusal"]
_FARTHEST = 2**53
_UNSEEN = (
    "SELECT id FROM incoming INDEXED BY incoming_refusals WHERE account_id = ? AND kind = 'refusal' AND seen_at IS NULL"
)
# Theirs, and what came from or went to their number when it was nobody's
_KEYS = "(SELECT key FROM channel WHERE contact_id = :contact AND kind = 'phone')"
_SAID = (
    "SELECT 'incoming' AS sort, id, created_at AS at FROM incoming WHERE contact_id = :contact "
    "UNION ALL SELECT 'incoming', id, created_at FROM incoming WHERE account_id = :account AND contact_id IS NULL "
    f"AND sender IN {_KEYS} "
    "UNION ALL SELECT 'message', id, coalesce(sent_at, created_at) FROM message WHERE contact_id = :contact "
    "AND channel = 'sms' AND status NOT IN ('skipped', 'cancelled') "
    "UNION ALL SELECT 'message', id, coalesce(sent_at, created_at) FROM message WHERE contact_id IS NULL "
    f"AND account_id = :account AND channel = 'sms' AND status NOT IN ('skipped', 'cancelled') "
    f"AND recipient_key IN {_KEYS}"
)


class IncomingQuery(PageQuery, rename={"from_": "from"}):
    """Filters of what came in; `unseen` are refusals in other words that nobody has looked at."""

    kind: Kind | UnsetType = UNSET
    contact_id: ContactId | UnsetType = UNSET
    from_: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    unseen: bool | UnsetType = UNSET
    created_after: DayOrWhen | UnsetType = UNSET
    created_before: DayOrWhen | UnsetType = UNSET


class Seen(Struct):
    """That somebody has looked at a message; `opt_out` where it was a refusal indeed."""

    opt_out: bool = False


class Line(NamedTuple):
    """One thing that was said: what they wrote, or a message of ours with its words (None: they never rendered)."""

    incoming: Incoming | None
    message: Message | None
    body: str | None
    at: int
    source_name: str | None = None


def conversation(account_id: int, contact_id: int, number: int = 1, limit: int = 50) -> Page:
    """List what was said, the newest first; what was not sent was not said. Raises NotFound."""
    store.get(account_id, contact_id)
    ids = {"account": account_id, "contact": contact_id}
    total = int(scalar(f"SELECT count(*) FROM ({_SAID})", ids))
    # An answer is written in the moment of what it answers
    found = rows(
        f"{_SAID} ORDER BY at DESC, sort DESC, id DESC LIMIT :limit OFFSET :offset",
        {**ids, "limit": limit, "offset": min((number - 1) * limit, _FARTHEST)},
    )
    heard = {row.id: row for row in Incoming.select().where(Incoming.id.in_(_ids(found, "incoming")))}
    sent = {row.id: row for row in messages.by_ids(_ids(found, "message"))}
    workshop, lines = Workshop(), []
    for sort, one, at in found:
        if sort == "incoming":
            lines.append(Line(heard[one], None, heard[one].body, at))
        else:
            lines.append(Line(None, sent[one], _words(workshop, sent[one]), at, sent[one].source_name))
    return Page(lines, total, number, limit)


def _ids(found: list[tuple[Any, ...]], sort: str) -> list[int]:
    return [row[1] for row in found if row[0] == sort]


def _words(workshop: Workshop, message: Message) -> str | None:
    try:
        return workshop.view(message).text
    except (MergeError, ValueError):
        return None  # its words cannot be made any more: its run is gone, or they never could


def page(account_id: int, query: IncomingQuery) -> Page:
    """List what came in, the newest first."""
    found = Incoming.select().where(Incoming.account == account_id)
    if query.kind is not UNSET:
        found = found.where(Incoming.kind == query.kind)
    if query.contact_id is not UNSET:
        found = found.where(Incoming.contact == query.contact_id)
    if isinstance(query.from_, str):
        found = found.where(Incoming.sender == _number(query.from_))
    if query.unseen is not UNSET:
        found = found.where(SQL(f"id {'IN' if query.unseen else 'NOT IN'} ({_UNSEEN})", (account_id,)))
    after, before = moments(query.created_after, query.created_before, Account.get_by_id(account_id).time_zone)
    if after is not None:
        found = found.where(Incoming.created_at >= after)
    if before is not None:
        found = found.where(Incoming.created_at < before)
    return paginate(found.order_by(Incoming.id.desc()), query.page, query.size())


def _number(text: str) -> str:
    try:
        return addresses.phone(text).key
    except ValueError:
        return text.strip()


def from_contact(account_id: int, contact_id: int) -> list[Incoming]:
    """Return all that a contact wrote, the newest first, also from their number when it was nobody's."""
    contact = store.get(account_id, contact_id)
    keys = [channel.key for channel in contact.channels if channel.kind == "phone"]
    theirs = Incoming.contact == contact_id
    if keys:
        theirs |= (Incoming.account == account_id) & Incoming.contact.is_null() & Incoming.sender.in_(keys)
    return list(Incoming.select().where(theirs).order_by(Incoming.id.desc()))


def get(account_id: int, incoming_id: int) -> Incoming:
    """Return what came in; raises NotFound."""
    found = Incoming.get_or_none(Incoming.account == account_id, Incoming.id == incoming_id)
    if found is None:
        raise NotFound
    return found


def see(account_id: int, incoming_id: int, seen: Seen, actor: str) -> Incoming:
    """Note that somebody has looked at a message, and take its sender at it where it was a refusal; raises NotFound.

    They are opted out as by STOP. Nothing is answered: that time has passed.
    """
    writing()
    row = get(account_id, incoming_id)
    if seen.opt_out and row.sender is not None:
        try:
            address = addresses.phone(row.sender)
        except ValueError:
            address = None
        if address is not None:
            leaving.leave(account_id, Said(address, row.body or "", row.answered_id, row.test, actor))
            row.opted_out = True
    row.seen_at = row.seen_at or clock.now_ms()
    row.save()
    return row
