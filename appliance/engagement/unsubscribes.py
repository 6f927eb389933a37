"""Opt-outs by the recipient's own act: a link's page, a mailbox's one click, a mail to the address in the header."""

from typing import NamedTuple

from appliance import clock, tokens
from appliance.contacts import consent
from appliance.contacts.consent import Evidence
from appliance.db.work import writing
from appliance.engagement import account_look
from appliance.engagement.account_look import Face
from appliance.messages import links
from appliance.tables import Channel, Message, OptOut


class Door(NamedTuple):
    """What an unsubscribe page may show: nothing that names the person in full."""

    message_id: int
    kind: str  # of the address: email, phone
    masked: str | None  # None: erased since
    face: Face
    subscribed: bool
    may_return: bool


def find(token: str) -> Message | None:
    """Return the message of an unsubscribe token, or None if it is not ours."""
    number = tokens.read(links.UNSUBSCRIBE, token)
    return Message.get_or_none(Message.id == number) if number is not None else None


def find_by_address(token: str) -> Message | None:
    """Return the message of the token in an unsubscribe address (`links.leave_address`), or None."""
    number = tokens.read_hex(links.LEAVE, token, 16)
    return Message.get_or_none(Message.id == number) if number is not None else None


def door(token: str) -> Door | None:
    """Return what the page of a token shows, or None; reading changes nothing."""
    message = find(token)
    if message is None:
        return None
    channel = channel_of(message)
    return Door(
        message.id, kind_of(message), account_look.mask(message.recipient) if message.recipient else None,
        account_look.of(message.account_id),
        channel.subscribed if channel else False,
        channel is not None and channel.suppression not in consent.KEEPS_OUT,
    )  # fmt: skip


def opt_out(
    token: str, source: str, ip: str | None = None, user_agent: str | None = None, text: str | None = None
) -> bool:
    """Opt the address of a message out of all marketing, for good; repeating it changes nothing. False: not ours.

    `source` is `one_click`, `link`, or `mailto` with the token of an unsubscribe address.
    """
    writing()
    message = find_by_address(token) if source == "mailto" else find(token)
    if message is None:
        return False
    evidence = Evidence(source, "recipient", ip, user_agent, text, message.id, message.test)
    channel = channel_of(message)
    if channel is not None:
        consent.opt_out(channel, "recipient", evidence)
    elif message.recipient_key is not None:
        _remember(message)
    return True


def channel_of(message: Message) -> Channel | None:
    """Return the address that a message went to, if somebody has it: whose links are in it is whoever has it now."""
    if message.recipient_key is None:
        return None
    return Channel.get_or_none(
        Channel.account == message.account_id, Channel.kind == kind_of(message), Channel.key == message.recipient_key
    )


def kind_of(message: Message) -> str:
    """Return the kind of address that a message went to."""
    return "phone" if message.channel == "sms" else "email"


def _remember(message: Message) -> None:
    """Keep the opt-out of somebody whose contact is gone, in case the address comes back."""
    assert message.recipient_key is not None
    kind = kind_of(message)
    OptOut.insert(
        account=message.account_id, kind=kind, address_hash=tokens.address_hash(kind, message.recipient_key),
        by="recipient", created_at=clock.now_ms(),
    ).on_conflict_replace().execute()  # fmt: skip
