"""List SMS conversations and incoming SMS, mark possible refusals in free text as reviewed, and reply to contacts."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType
from peewee import SQL

from appliance.accounts import request_limits
from appliance.audience.contacts import store
from appliance.content.designs.merge_limits import MergeError
from appliance.core import addresses, clock
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import ContactId, CreatedAfter, CreatedBefore, PageQuery
from appliance.events.log import parse_time_filters
from appliance.inbound import incoming_sms
from appliance.inbound.incoming_sms import ConsentMessage
from appliance.sending.messages import compose, ledger, links, preview, transactional
from appliance.sending.messages.compose import SmsPreview
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage.database import Page, paginate, rows, scalar
from appliance.storage.models import Account, Channel, Contact, Incoming, Message
from appliance.storage.transactions import require_write_transaction

IncomingKind = Literal["message", "keyword", "stop", "start", "help", "refusal"]
_MAX_OFFSET = 2**53
_UNSEEN = (
    "SELECT id FROM incoming INDEXED BY incoming_refusals WHERE account_id = ? AND kind = 'refusal' AND seen_at IS NULL"
)
# A conversation has the messages of a contact, and those from and to its numbers while no contact had these numbers.
_PHONE_KEYS = "(SELECT key FROM channel WHERE contact_id = :contact AND kind = 'phone')"
_CONVERSATION = (
    "SELECT 'incoming' AS sort, id, created_at AS at FROM incoming WHERE contact_id = :contact "
    "UNION ALL SELECT 'incoming', id, created_at FROM incoming WHERE account_id = :account AND contact_id IS NULL "
    f"AND sender IN {_PHONE_KEYS} "
    "UNION ALL SELECT 'message', id, coalesce(sent_at, created_at) FROM message WHERE contact_id = :contact "
    "AND channel = 'sms' AND status NOT IN ('skipped', 'cancelled') "
    "UNION ALL SELECT 'message', id, coalesce(sent_at, created_at) FROM message WHERE contact_id IS NULL "
    f"AND account_id = :account AND channel = 'sms' AND status NOT IN ('skipped', 'cancelled') "
    f"AND recipient_key IN {_PHONE_KEYS}"
)


class IncomingQuery(PageQuery, rename={"from_": "from"}):
    """Filters of incoming SMS.

    `unseen=True` selects the SMS that may be refusals in free text and that no user has reviewed, `unseen=False` all
    others.
    """

    kind: Annotated[IncomingKind, Meta(description="only messages of this kind")] | UnsetType = UNSET
    contact_id: Annotated[ContactId, Meta(description="only those of this contact")] | UnsetType = UNSET
    from_: (
        Annotated[str, Meta(max_length=64), Meta(description="only messages from exactly this number")] | UnsetType
    ) = UNSET
    unseen: (
        Annotated[
            bool, Meta(description="true: only refusals in free text that no user has reviewed; false: all others")
        ]
        | UnsetType
    ) = UNSET
    created_after: CreatedAfter | UnsetType = UNSET
    created_before: CreatedBefore | UnsetType = UNSET


class OptOutReview(Struct):
    """A user's decision whether an incoming SMS is an opt-out."""

    opt_out: Annotated[bool, Meta(description="true if the message is an opt-out; opts its sender out")] = False


class ConversationLine(NamedTuple):
    """An entry of a conversation: an incoming SMS, or one of our messages; the other field is None.

    `body` is the text, or None if the text of our message cannot be rendered. `at` is the time in Unix milliseconds.
    """

    incoming: Incoming | None
    message: Message | None
    body: str | None
    at: int
    source_name: str | None = None


def list_conversation(account_id: int, contact_id: int, page: int = 1, limit: int = 50) -> Page:
    """Return a page of the conversation with a contact as ConversationLines, newest first; raises NotFound.

    `page` is its number, from 1, and `limit` its size. Skipped and cancelled messages are left out.
    """
    store.get(account_id, contact_id)
    ids = {"account": account_id, "contact": contact_id}
    total = int(scalar(f"SELECT count(*) FROM ({_CONVERSATION})", ids))
    # An automatic answer may have the same time as the incoming SMS, so `sort` puts the answer after it.
    entries = rows(
        f"{_CONVERSATION} ORDER BY at DESC, sort DESC, id DESC LIMIT :limit OFFSET :offset",
        {**ids, "limit": limit, "offset": min((page - 1) * limit, _MAX_OFFSET)},
    )
    incoming_by_id = {row.id: row for row in Incoming.select().where(Incoming.id.in_(_ids_of(entries, "incoming")))}
    message_by_id = {row.id: row for row in ledger.get_by_ids(_ids_of(entries, "message"))}
    preparer, lines = MessagePreparer(), []
    for sort, row_id, at in entries:
        if sort == "incoming":
            lines.append(ConversationLine(incoming_by_id[row_id], None, incoming_by_id[row_id].body, at))
        else:
            lines.append(
                ConversationLine(
                    None,
                    message_by_id[row_id],
                    _message_text(preparer, message_by_id[row_id]),
                    at,
                    message_by_id[row_id].source_name,
                )
            )
    return Page(lines, total, page, limit)


def hide_links(lines: Sequence[ConversationLine]) -> list[ConversationLine]:
    """Return lines without the tokens of recipients' links in their texts (see `links.hide_recipient_links`)."""
    return [line._replace(body=links.hide_recipient_links(line.body)) if line.body else line for line in lines]


def _ids_of(entries: list[tuple[Any, ...]], sort: str) -> list[int]:
    return [row[1] for row in entries if row[0] == sort]


def _message_text(preparer: MessagePreparer, message: Message) -> str | None:
    try:
        return preparer.fill_again(message).text
    except (MergeError, ValueError):
        return None  # The flow run was deleted, or the text has an invalid merge tag.


def list_incoming(account_id: int, query: IncomingQuery) -> Page:
    """Return a page of the incoming SMS that match the query, newest first."""
    incoming = Incoming.select().where(Incoming.account == account_id)
    if query.kind is not UNSET:
        incoming = incoming.where(Incoming.kind == query.kind)
    if query.contact_id is not UNSET:
        incoming = incoming.where(Incoming.contact == query.contact_id)
    if isinstance(query.from_, str):
        incoming = incoming.where(Incoming.sender == _number_key(query.from_))
    if query.unseen is not UNSET:
        incoming = incoming.where(SQL(f"id {'IN' if query.unseen else 'NOT IN'} ({_UNSEEN})", (account_id,)))
    after, before = parse_time_filters(
        query.created_after, query.created_before, Account.get_by_id(account_id).time_zone
    )
    if after is not None:
        incoming = incoming.where(Incoming.created_at >= after)
    if before is not None:
        incoming = incoming.where(Incoming.created_at < before)
    return paginate(incoming.order_by(Incoming.id.desc()), query.page, query.size())


def _number_key(text: str) -> str:
    try:
        return addresses.parse_phone(text).key
    except ValueError:
        return text.strip()


def fetch_from_contact(account_id: int, contact_id: int) -> list[Incoming]:
    """Return all SMS from a contact, newest first, including those received while no contact had the number.

    Raises NotFound.
    """
    contact = store.get(account_id, contact_id)
    keys = [channel.key for channel in contact.channels if channel.kind == "phone"]
    condition = Incoming.contact == contact_id
    if keys:
        condition |= (Incoming.account == account_id) & Incoming.contact.is_null() & Incoming.sender.in_(keys)
    return list(Incoming.select().where(condition).order_by(Incoming.id.desc()))


def get_incoming(account_id: int, incoming_id: int) -> Incoming:
    """Return an incoming SMS; raises NotFound."""
    incoming = Incoming.get_or_none(Incoming.account == account_id, Incoming.id == incoming_id)
    if incoming is None:
        raise NotFound
    return incoming


def mark_seen(account_id: int, incoming_id: int, review: OptOutReview, actor: str) -> Incoming:
    """Mark an incoming SMS as reviewed and return it; if it is an opt-out, opt its sender out as STOP does.

    No automatic answer is sent, because the SMS may be old. Raises NotFound.
    """
    require_write_transaction()
    row = get_incoming(account_id, incoming_id)
    if review.opt_out and row.sender is not None:
        try:
            address = addresses.parse_phone(row.sender)
        except ValueError:
            address = None
        if address is not None:
            incoming_sms.opt_out_number(
                account_id, ConsentMessage(address, row.body or "", row.answered_id, row.test, actor)
            )
            row.opted_out = True
    row.seen_at = row.seen_at or clock.now_ms()
    row.save()
    return row


# Replies of users to one contact.


def find_phone_channel(contact: Contact) -> Channel | None:
    """Return the first phone channel of a contact, to which replies are sent, or None."""
    return next((channel for channel in contact.channels if channel.kind == "phone"), None)


# The user's text is inserted as the value of a merge tag, so that tags within the text are not replaced.
_BODY = "{{ data.text }}"


def measure_text(account_id: int, text: str) -> SmsPreview:
    """Return the size and the alphabet of a text as an SMS, and the character that requires UCS-2, if any."""
    return compose.describe_sms(preview.fill_sms_preview(account_id, _BODY, {"data": {"text": text}}, marketing=False))


def send_reply(account_id: int, contact_id: int, text: str, key: str | None = None) -> Message:
    """Queue an SMS with exactly this text to a contact; raises NotFound, or Invalid with the reason.

    A reply needs no consent, but is refused if the number is suppressed, as after STOP. A repeated call with the same
    `key` and text queues nothing and returns the first message.
    """
    require_write_transaction()
    channel = find_phone_channel(store.get(account_id, contact_id))
    if channel is None:
        raise Invalid({"text": [gettext("there is no number to write to")]})
    if not text.strip():
        raise Invalid({"text": [gettext("can't be blank")]})
    request = MessageWrite(to=channel.value, channel="sms", body=_BODY, data={"text": text})
    key = f"{key}:{request_limits.hash_payload(text)}" if key else None
    reply = request_limits.run_once(
        account_id, f"/contacts/{contact_id}/conversation", key, text, lambda: _queue_message(account_id, request)
    )
    return Message.get_by_id(reply.resource_id)


def _queue_message(account_id: int, request: MessageWrite) -> int:
    try:
        queued = transactional.queue_message(account_id, request)
    except Invalid as error:
        # The user only entered the text, so all other errors are reported as errors of sending in general.
        faults = [message for messages in error.fields.values() for message in messages]
        name = "text" if "body" in error.fields else "base"
        raise Invalid({name: faults}, error.reason) from None
    if (refusal := transactional.get_refusal(queued)) is not None:
        raise Invalid({"base": [gettext("may not be written to")]}, refusal.reason)
    return int(queued.id)
