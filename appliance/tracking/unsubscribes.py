"""Opt-outs by the recipient's own act: a link's page, a mailbox's one click, a mail to the address in the header."""

from typing import NamedTuple

from appliance.audience.contacts import consent
from appliance.audience.contacts.consent import Evidence, Offer, Tracking
from appliance.audience.contacts.records import CHANNELS
from appliance.core import clock, tokens
from appliance.sending.messages import links
from appliance.storage.models import Channel, Contact, Message, OptOut
from appliance.storage.work import writing
from appliance.tracking import account_look
from appliance.tracking.account_look import Face


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


# What a person wants to get, said by themselves on the page that every message leads to.


class Line(NamedTuple):
    """An address of theirs on the page."""

    id: int
    kind: str
    masked: str
    subscribed: bool
    blocked: bool
    reachable: bool  # a mail of ours would still go there


class Sheet(NamedTuple):
    """What the page of preferences shows; without a contact there is nothing to choose."""

    message_id: int
    kind: str  # of the address that the link came to: email, phone
    account_id: int
    face: Face
    contact_id: int | None
    masked: str | None
    channels: list[Line]
    lists: list[Offer]
    tracking: Tracking

    @property
    def has_mailbox(self) -> bool:
        """Return whether there is where to ask by mail if it was themselves who asked for something."""
        return any(one.kind == "email" and one.reachable for one in self.channels)


class Chosen(NamedTuple):
    """What somebody wants, for those channels and lists that their page showed; None leaves tracking as it is."""

    channels: dict[int, bool]
    lists: dict[int, bool]
    tracking: Tracking | None


class Change(NamedTuple):
    """Something that is different now: `channel`, `list` or `tracking`, what, and whether it is on."""

    what: str
    name: str
    on: bool


def find_sheet(token: str) -> Message | None:
    """Return the message of a preferences token, or None if it is not ours."""
    number = tokens.read(links.PREFERENCES, token)
    return Message.get_or_none(Message.id == number) if number is not None else None


def preferences_sheet(token: str) -> Sheet | None:
    """Return what the page of a token shows, or None; reading changes nothing."""
    message = find_sheet(token)
    if message is None:
        return None
    own = channel_of(message)
    shown = account_look.of(message.account_id)
    if own is None:
        return Sheet(message.id, kind_of(message), message.account_id, shown, None, None, [], [], "none")
    contact = Contact.get_by_id(own.contact_id)
    return Sheet(
        message.id, kind_of(message), message.account_id, shown, contact.id, account_look.mask(own.value),
        [_line(one) for one in _channels(contact.id)], consent.list_offers(message.account_id, contact.id),
        _tracking(contact),
    )  # fmt: skip


def _tracking(contact: Contact) -> Tracking:
    found: Tracking = contact.tracking  # type: ignore[assignment]  # no other is ever written
    return found


def _channels(contact_id: int) -> list[Channel]:
    return CHANNELS.find("contact_id = ? ORDER BY kind, id", (contact_id,))


def _line(channel: Channel) -> Line:
    blocked = channel.suppression in consent.KEEPS_OUT
    shown = account_look.mask(channel.value)
    return Line(
        channel.id, channel.kind, shown, channel.subscribed and not blocked, blocked, channel.suppression is None
    )


def save_preferences(token: str, chosen: Chosen, evidence: Evidence) -> list[Change] | None:
    """Do what somebody chose and answer what is different now; None if the token is not ours or nobody has it."""
    writing()
    message = find_sheet(token)
    own = channel_of(message) if message is not None else None
    if message is None or own is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
    changes = [change for one in _channels(own.contact_id) if (change := _switch(one, chosen, evidence)) is not None]
    # Said anew, for what was just written to it
    own = CHANNELS.find("id = ?", (own.id,))[0]
    for offer in consent.list_offers(own.account_id, own.contact_id):
        wanted = chosen.lists.get(offer.id, offer.inside)
        if wanted != offer.inside:
            (consent.join_list if wanted else consent.leave_list)(own, offer.id, evidence)
            changes.append(Change("list", offer.name, wanted))
    if chosen.tracking is not None and consent.set_tracking(own, chosen.tracking, evidence):
        changes.append(Change("tracking", chosen.tracking, True))
    _proved(own)
    consent.note_own_act(own.contact_id)
    return changes


def _switch(channel: Channel, chosen: Chosen, evidence: Evidence) -> Change | None:
    before = _line(channel)
    wanted = chosen.channels.get(channel.id, before.subscribed)
    if wanted == before.subscribed or before.blocked:
        return None
    if wanted:
        consent.returned(channel, evidence)
    else:
        consent.opt_out(channel, "recipient", evidence)
    return Change("channel", f"{channel.kind} {before.masked}", wanted)


def undo_opt_out(token: str, evidence: Evidence) -> bool | None:
    """Take an opt-out back by an act of its own; False where only a new sign-up helps, None if the token is not ours.

    Repeating it changes nothing.
    """
    writing()
    message = find_sheet(token)
    own = channel_of(message) if message is not None else None
    if message is None or own is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
    if not consent.returned(own, evidence):
        return False
    _proved(own)
    consent.note_own_act(own.contact_id)
    return True


def _proved(channel: Channel) -> None:
    """Note that whoever reads mail at an address has answered it: that is all a confirmation could show."""
    if channel.verified_at is None:
        channel.verified_at = channel.updated_at = clock.now_ms()
        CHANNELS.save(channel)
