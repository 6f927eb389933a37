"""Apply requests of recipients: unsubscribes, preferences and erasures.

An unsubscribe comes from a page, a one-click POST (RFC 8058) or an email.
"""

from typing import Literal, NamedTuple

from appliance.accounts.public_urls import base_url_of
from appliance.audience import consent
from appliance.audience.consent import Evidence, ListOffer, Tracking
from appliance.audience.contacts import removal, write
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import ContactPatch
from appliance.content import brand as brands
from appliance.content.brand import PageStyle
from appliance.core import addresses, clock, crypto, i18n, recipient_texts, validation
from appliance.core.addresses import Address
from appliance.core.errors import NotFound
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import links, system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.storage.models import Account, Audit, Channel, Confirmation, Contact, Message, OptOut
from appliance.storage.models.account import CHANNELS
from appliance.storage.transactions import require_write_transaction


class UnsubscribePage(NamedTuple):
    """The data of an unsubscribe page; it does not contain the full address."""

    message_id: int
    kind: str  # of the address: email or phone
    masked_address: str | None  # None if the recipient was erased
    style: PageStyle
    subscribed: bool
    can_undo: bool  # a contact has the address, and no complaint or erasure prevents a new opt-in


def find_message(token: str) -> Message | None:
    """Return the message of an unsubscribe link's token, or None if the token is invalid."""
    message_id = crypto.read_token(links.UNSUBSCRIBE, token)
    return Message.get_or_none(Message.id == message_id) if message_id is not None else None


def find_message_by_address(token: str) -> Message | None:
    """Return the message of a token from an unsubscribe address (`unsubscribe+<token>@…`), or None if it is invalid."""
    message_id = crypto.read_hex_token(links.LEAVE, token, 16)
    return Message.get_or_none(Message.id == message_id) if message_id is not None else None


def get_unsubscribe_page(token: str) -> UnsubscribePage | None:
    """Return the data of the unsubscribe page for a token, or None if it is invalid. Changes nothing."""
    message = find_message(token)
    if message is None:
        return None
    channel = find_channel(message)
    return UnsubscribePage(
        message.id, channel_kind(message), addresses.mask_address(message.recipient) if message.recipient else None,
        brands.get_page_style(message.account_id, contacts.fetch_language(channel.contact_id) if channel else None),
        channel.subscribed if channel else False,
        channel is not None and channel.suppression not in consent.BLOCKING_REASONS,
    )  # fmt: skip


def opt_out(
    token: str, source: str, ip: str | None = None, user_agent: str | None = None, text: str | None = None
) -> bool:
    """Opt the address of a message out of all marketing; this may be repeated.

    Returns False for an invalid token. `source` is `one_click`, `link`, `mailto` (with the token of an unsubscribe
    address), or the name of the provider or simulation that reported the opt-out. The opt-out of an address without a
    contact is stored too.
    """
    require_write_transaction()
    message = find_message_by_address(token) if source == "mailto" else find_message(token)
    if message is None:
        return False
    evidence = Evidence(source, "recipient", ip, user_agent, text, message.id, message.test)
    channel = find_channel(message)
    if channel is not None:
        consent.opt_out(channel, "recipient", evidence)
    elif message.recipient_key is not None:
        _remember_opt_out(message, evidence)
    return True


def find_channel(message: Message) -> Channel | None:
    """Return the channel with the address that a message was sent to, or None if no contact has the address.

    The address may have moved to another contact since; the links in the message then apply to that contact.
    """
    if message.recipient_key is None:
        return None
    return Channel.get_or_none(
        Channel.account == message.account_id,
        Channel.kind == channel_kind(message),
        Channel.key == message.recipient_key,
    )


def channel_kind(message: Message) -> str:
    """Return the kind of address that a message was sent to: `phone` or `email`."""
    return "phone" if message.channel == "sms" else "email"


def _remember_opt_out(message: Message, evidence: Evidence) -> None:
    """Store the opt-out of an address without a contact, in case the address is added again."""
    assert message.recipient_key is not None
    kind = channel_kind(message)
    hashed = crypto.hash_address(kind, message.recipient_key)
    remembered = consent.find_remembered_opt_out(message.account_id, kind, hashed)
    if remembered is None or remembered[0] != "recipient":
        consent.record_evidence(message.account_id, (kind, hashed), "opt_out", "recipient", evidence)
    OptOut.insert(
        account=message.account_id, kind=kind, address_hash=hashed,
        by="recipient", created_at=clock.now_ms(),
    ).on_conflict_replace().execute()  # fmt: skip


# The preferences page, to which messages link.


class ChannelChoice(NamedTuple):
    """A channel of the recipient on the preferences page.

    `blocked` means that a complaint or erasure prevents opting in on this page.
    """

    id: int
    kind: str
    masked_address: str
    subscribed: bool
    blocked: bool
    reachable: bool  # not suppressed for any reason


class PreferencesPage(NamedTuple):
    """The data of the preferences page; if there is no contact, `contact_id` is None and nothing can be chosen."""

    message_id: int
    kind: str  # of the address that the message was sent to: email or phone
    account_id: int
    style: PageStyle
    contact_id: int | None
    masked_address: str | None
    channels: list[ChannelChoice]
    lists: list[ListOffer]
    tracking: Tracking
    is_test: bool = False

    @property
    def has_mailbox(self) -> bool:
        """Return whether a confirmation email can be sent to one of the channels."""
        return any(channel.kind == "email" and channel.reachable for channel in self.channels)


class PreferenceChoices(NamedTuple):
    """The choices submitted on the preferences page: whether subscribed, by channel id and by list id.

    Channels and lists that are missing stay as they are. None leaves tracking or the language unchanged. `language` is
    one of `recipient_texts.LANGUAGE_NAMES`.
    """

    channels: dict[int, bool]
    lists: dict[int, bool]
    tracking: Tracking | None
    language: str | None = None


class PreferenceChange(NamedTuple):
    """A change of preferences.

    `kind` is `channel`, `list`, `tracking` or `language`. `name` is the kind of the channel and its masked address, the
    name of the list, the new tracking, or the new language. `is_on` is whether the recipient is subscribed now (True
    for tracking and language).
    """

    kind: str
    name: str
    is_on: bool


def find_preferences_message(token: str) -> Message | None:
    """Return the message of a preferences link's token, or None if the token is invalid."""
    message_id = crypto.read_token(links.PREFERENCES, token)
    return Message.get_or_none(Message.id == message_id) if message_id is not None else None


def _find_preferences_channel(token: str, evidence: Evidence) -> Channel | None:
    """Return the channel of a preferences link, or None if the token is invalid or the contact no longer exists.

    Sets `message_id` and `test` of the evidence from the message.
    """
    message = find_preferences_message(token)
    channel = find_channel(message) if message is not None else None
    if message is None or channel is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
    return channel


def get_preferences_page(token: str) -> PreferencesPage | None:
    """Return the data of the preferences page for a token, or None if it is invalid. Changes nothing."""
    message = find_preferences_message(token)
    if message is None:
        return None
    channel = find_channel(message)
    if channel is None:
        style = brands.get_page_style(message.account_id)
        kind = channel_kind(message)
        return PreferencesPage(message.id, kind, message.account_id, style, None, None, [], [], "none", message.test)
    contact = Contact.get_by_id(channel.contact_id)
    style = brands.get_page_style(message.account_id, contact.language)
    return PreferencesPage(
        message.id,
        channel_kind(message),
        message.account_id,
        style,
        contact.id,
        addresses.mask_address(channel.value),
        [_channel_choice(row) for row in _fetch_channels(contact.id) if row.subscribed or _may_opt_in(row, channel)],
        consent.fetch_list_offers(message.account_id, contact.id),
        _tracking_of(contact),
    )


def _tracking_of(contact: Contact) -> Tracking:
    tracking: Tracking = contact.tracking  # type: ignore[assignment]  # the column contains only these values
    return tracking


def _fetch_channels(contact_id: int) -> list[Channel]:
    return CHANNELS.find("contact_id = ? ORDER BY kind, id", (contact_id,))


def _may_opt_in(channel: Channel, own: Channel) -> bool:
    """Return whether the recipient of a message to `own` may opt in another channel of the contact on the page.

    An address that was never opted in nor verified may belong to another person: a form takes any phone number.
    """
    return channel.id == own.id or channel.opt_in_at is not None or channel.verified_at is not None


def _channel_choice(channel: Channel) -> ChannelChoice:
    is_blocked = channel.suppression in consent.BLOCKING_REASONS
    masked = addresses.mask_address(channel.value)
    return ChannelChoice(
        channel.id, channel.kind, masked, channel.subscribed and not is_blocked, is_blocked, channel.suppression is None
    )


def save_preferences(token: str, choices: PreferenceChoices, evidence: Evidence) -> list[PreferenceChange] | None:
    """Apply the choices in the current write transaction and return the changes.

    Returns None if the token is invalid or the contact no longer exists. Sets `message_id` and `test` of the evidence.
    """
    require_write_transaction()
    channel = _find_preferences_channel(token, evidence)
    if channel is None:
        return None
    changes = [
        change
        for contact_channel in _fetch_channels(channel.contact_id)
        if (change := _apply_channel_choice(contact_channel, channel, choices, evidence)) is not None
    ]
    # Fetch the channel again, because the choices applied above may have changed its row.
    channel = CHANNELS.find("id = ?", (channel.id,))[0]
    for offer in consent.fetch_list_offers(channel.account_id, channel.contact_id):
        is_wanted = choices.lists.get(offer.id, offer.is_member)
        if is_wanted != offer.is_member:
            (consent.join_list if is_wanted else consent.leave_list)(channel, offer.id, evidence)
            changes.append(PreferenceChange("list", offer.name, is_wanted))
    if choices.tracking is not None and consent.set_tracking(channel, choices.tracking, evidence):
        changes.append(PreferenceChange("tracking", choices.tracking, True))
    if choices.language is not None and _set_language(channel, choices.language, evidence):
        changes.append(PreferenceChange("language", choices.language, True))
    _mark_verified(channel)
    consent.touch_last_interaction(channel.contact_id)
    return changes


def _set_language(channel: Channel, language: str, evidence: Evidence) -> bool:
    """Store the language that a contact chose, unless pages are in it already; return whether it changed."""
    contact = contacts.get(channel.account_id, channel.contact_id)
    if contact.language and i18n.match_language(contact.language) == language:
        return False
    tag = language.replace("_", "-")
    write.update(channel.account_id, contact.id, validation.read(ContactPatch, {"language": tag}), evidence)
    return True


def _apply_channel_choice(
    channel: Channel, own: Channel, choices: PreferenceChoices, evidence: Evidence
) -> PreferenceChange | None:
    current = _channel_choice(channel)
    is_wanted = choices.channels.get(channel.id, current.subscribed)
    if choices.channels.get(channel.id) is False and not current.subscribed:
        consent.repeat_opt_out(channel, "recipient", evidence)
    if is_wanted == current.subscribed or current.blocked or (is_wanted and not _may_opt_in(channel, own)):
        return None
    if is_wanted:
        consent.opt_in_by_recipient(channel, evidence)
    else:
        consent.opt_out(channel, "recipient", evidence)
    return PreferenceChange("channel", f"{channel.kind} {current.masked_address}", is_wanted)


def undo_opt_out(token: str, evidence: Evidence) -> bool | None:
    """Opt the address of a message in again after an opt-out, mark it as verified, and return True.

    Returns False if a complaint or erasure prevents the opt-in, so that only a new sign-up helps. Returns None if the
    token is invalid or the contact no longer exists.
    """
    require_write_transaction()
    channel = _find_preferences_channel(token, evidence)
    if channel is None:
        return None
    if not consent.opt_in_by_recipient(channel, evidence):
        return False
    _mark_verified(channel)
    consent.touch_last_interaction(channel.contact_id)
    return True


def _mark_verified(channel: Channel) -> None:
    """Mark a channel as verified, because its owner has acted on a message to it."""
    if channel.verified_at is None:
        channel.verified_at = channel.updated_at = clock.now_ms()
        CHANNELS.save(channel)


# An erasure that a recipient requests on the preferences page is confirmed by email and then carried out at once. If no
# confirmation can be sent, the request is only recorded in the contact's activity and the audit log, and the team has
# to erase the contact.
RequestState = Literal["mailed", "noted"]


def request_erasure(token: str, evidence: Evidence) -> RequestState | None:
    """Record an erasure request and queue the confirmation email, at most once a day for an address.

    Returns "mailed" if the email was queued, and "noted" if no email can be sent. A request that is repeated within a
    day returns what the first one returned. Returns None if the token is invalid or the contact no longer exists.
    """
    require_write_transaction()
    channel = _find_preferences_channel(token, evidence)
    if channel is None:
        return None
    account = Account.get_by_id(channel.account_id)
    previous = _find_recent_request(channel)
    if previous is not None:
        return "mailed" if previous.mailed_at else "noted"
    now, ip = clock.now_ms(), addresses.anonymize_ip(evidence.ip, account.privacy_ip)
    confirmation = Confirmation.create(
        account=account, purpose="erase", kind=channel.kind, value=channel.value, key=channel.key, ip=ip,
        user_agent=(evidence.user_agent or "")[:400] or None, text=evidence.text, created_at=now,
    )  # fmt: skip
    consent.record_evidence(
        account.id, (channel.kind, channel.key), "erase_requested", "recipient", evidence, channel.contact_id
    )
    log.record(
        NewEvent(account.id, "erase_requested", channel.contact_id, {"source": evidence.source}, test=evidence.test)
    )
    _audit(account.id, channel.contact_id, "erase_requested", ip)
    mailbox = _find_mailbox(channel)
    if mailbox is None:
        return "noted"
    mail = _send_confirmation(account, mailbox, confirmation.id)
    confirmation.message_id, confirmation.mailed_at = mail.id, now if mail.status == "queued" else None
    confirmation.save()
    return "mailed" if confirmation.mailed_at else "noted"


def _find_recent_request(channel: Channel) -> Confirmation | None:
    confirmation: Confirmation | None = (
        Confirmation.select()
        .where(
            Confirmation.account == channel.account_id, Confirmation.purpose == "erase",
            Confirmation.kind == channel.kind, Confirmation.key == channel.key,
            Confirmation.created_at > clock.now_ms() - clock.DAY_MS,
        )
        .first()
    )  # fmt: skip
    return confirmation


def _find_mailbox(channel: Channel) -> Channel | None:
    """Return the email channel that gets the confirmation of an erasure request, or None if all are suppressed.

    It is `channel` itself if possible, else the first email channel of the contact that is not suppressed.
    """
    channels = CHANNELS.find("contact_id = ? AND kind = 'email' ORDER BY id <> ?, id", (channel.contact_id, channel.id))
    return next((candidate for candidate in channels if candidate.suppression is None), None)


def _send_confirmation(account: Account, to: Channel, confirmation_id: int) -> Message:
    language = recipient_texts.choose_language(contacts.fetch_language(to.contact_id), account.locale)
    texts = recipient_texts.get_texts(language)
    letter = SystemEmail(
        texts["mail_erase_subject"], texts["mail_erase_heading"], texts["mail_erase_text"], texts["mail_erase_button"],
        links.build_confirmation_url(base_url_of(account), confirmation_id), texts["mail_erase_note"],
        language.replace("_", "-"),
    )  # fmt: skip
    return system_emails.queue_system_email(account, Address("email", to.value, to.key), to.contact_id, letter, {})


def confirm_erasure(confirmation: Confirmation, evidence: Evidence) -> None:
    """Erase the contact of an erasure request and mark the request as confirmed; a deleted contact is not an error."""
    require_write_transaction()
    channel = Channel.get_or_none(
        Channel.account == confirmation.account_id, Channel.kind == confirmation.kind, Channel.key == confirmation.key
    )
    now = clock.now_ms()
    Confirmation.update(confirmed_at=now).where(Confirmation.id == confirmation.id).execute()
    if channel is None:
        return
    account = Account.get_by_id(confirmation.account_id)
    try:
        removal.erase(confirmation.account_id, channel.contact_id, Evidence(evidence.source, "recipient"))
    except NotFound:
        return
    _audit(account.id, channel.contact_id, "erase", addresses.anonymize_ip(evidence.ip, account.privacy_ip))


def _audit(account_id: int, contact_id: int, action: str, ip: str | None) -> None:
    Audit.create(
        account=account_id, actor="recipient", action=action, subject=f"contact:{contact_id}", ip=ip,
        created_at=clock.now_ms(),
    )  # fmt: skip


def has_open_request(account_id: int, contact_id: int) -> bool:
    """Return whether a contact has an erasure request that is not confirmed."""
    return (
        Confirmation.select()
        .join(Channel, on=(Channel.kind == Confirmation.kind) & (Channel.key == Confirmation.key))
        .where(
            Confirmation.account == account_id, Confirmation.purpose == "erase", Confirmation.confirmed_at.is_null(),
            Channel.account == account_id, Channel.contact == contact_id,
        )
        .exists()
    )  # fmt: skip
