"""What a person wants to get, said by themselves on the page that every message leads to."""

from typing import NamedTuple

from appliance import clock, tokens
from appliance.contacts import choices, consent
from appliance.contacts.choices import Offer, Tracking
from appliance.contacts.consent import Evidence
from appliance.contacts.records import CHANNELS
from appliance.db.work import writing
from appliance.engagement import account_look
from appliance.engagement.account_look import Face
from appliance.engagement.unsubscribes import channel_of, kind_of
from appliance.messages import links
from appliance.tables import Channel, Contact, Message


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


def find(token: str) -> Message | None:
    """Return the message of a preferences token, or None if it is not ours."""
    number = tokens.read(links.PREFERENCES, token)
    return Message.get_or_none(Message.id == number) if number is not None else None


def sheet(token: str) -> Sheet | None:
    """Return what the page of a token shows, or None; reading changes nothing."""
    message = find(token)
    if message is None:
        return None
    own = channel_of(message)
    shown = account_look.of(message.account_id)
    if own is None:
        return Sheet(message.id, kind_of(message), message.account_id, shown, None, None, [], [], "none")
    contact = Contact.get_by_id(own.contact_id)
    return Sheet(
        message.id, kind_of(message), message.account_id, shown, contact.id, account_look.mask(own.value),
        [_line(one) for one in _channels(contact.id)], choices.offers(message.account_id, contact.id),
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


def save(token: str, chosen: Chosen, evidence: Evidence) -> list[Change] | None:
    """Do what somebody chose and answer what is different now; None if the token is not ours or nobody has it."""
    writing()
    message = find(token)
    own = channel_of(message) if message is not None else None
    if message is None or own is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
    changes = [change for one in _channels(own.contact_id) if (change := _switch(one, chosen, evidence)) is not None]
    # Said anew, for what was just written to it
    own = CHANNELS.find("id = ?", (own.id,))[0]
    for offer in choices.offers(own.account_id, own.contact_id):
        wanted = chosen.lists.get(offer.id, offer.inside)
        if wanted != offer.inside:
            (choices.join if wanted else choices.leave)(own, offer.id, evidence)
            changes.append(Change("list", offer.name, wanted))
    if chosen.tracking is not None and choices.track(own, chosen.tracking, evidence):
        changes.append(Change("tracking", chosen.tracking, True))
    _proved(own)
    choices.seen(own.contact_id)
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


def undo(token: str, evidence: Evidence) -> bool | None:
    """Take an opt-out back by an act of its own; False where only a new sign-up helps, None if the token is not ours.

    Repeating it changes nothing.
    """
    writing()
    message = find(token)
    own = channel_of(message) if message is not None else None
    if message is None or own is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
    if not consent.returned(own, evidence):
        return False
    _proved(own)
    choices.seen(own.contact_id)
    return True


def _proved(channel: Channel) -> None:
    """Note that whoever reads mail at an address has answered it: that is all a confirmation could show."""
    if channel.verified_at is None:
        channel.verified_at = channel.updated_at = clock.now_ms()
        CHANNELS.save(channel)
