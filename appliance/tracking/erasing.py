"""Erasure requests of recipients: made on the preferences page, confirmed by email, then carried out at once.

If no confirmation email can be sent, the request is only recorded in the contact's activity and the audit log, and the
team has to erase the contact.
"""

from typing import Literal

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.audience.contacts import store as contacts
from appliance.core import addresses, clock, recipient_texts
from appliance.core.addresses import Address
from appliance.core.errors import NotFound
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import links, system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.storage.models import Account, Audit, Channel, Confirmation, Message
from appliance.storage.models.account import CHANNELS
from appliance.storage.transactions import require_write_transaction
from appliance.tracking import unsubscribes
from appliance.tracking.unsubscribes import find_channel

DAY_MS = 86_400_000
RequestState = Literal["mailed", "noted"]


def request_erasure(token: str, evidence: Evidence) -> RequestState | None:
    """Record an erasure request and queue the confirmation email, at most once a day for an address.

    Returns "mailed" if the email was queued, and "noted" if no email can be sent. A request that is repeated within a
    day returns what the first one returned. Returns None if the token is invalid or the contact no longer exists.
    """
    require_write_transaction()
    message = unsubscribes.find_preferences_message(token)
    channel = find_channel(message) if message is not None else None
    if message is None or channel is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
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
            Confirmation.created_at > clock.now_ms() - DAY_MS,
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
        links.build_confirmation_url(confirmation_id), texts["mail_erase_note"], language.replace("_", "-"),
    )  # fmt: skip
    return system_emails.queue_system_email(account, Address("email", to.value, to.key), to.contact_id, letter, {})


def confirm_erasure(confirmation: Confirmation, evidence: Evidence) -> None:
    """Erase the contact of an erasure request and mark the request as confirmed; a deleted contact is no error."""
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
