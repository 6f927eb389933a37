"""Requests of people to be erased: asked on their page, confirmed by mail, then done at once.

Where no mail can be sent the request stays in the activity and the audit for the team, who erase over the API.
"""

from typing import Literal

from appliance.audience.contacts import consent, erase
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CHANNELS
from appliance.core import client_ip, clock
from appliance.core.addresses import Address
from appliance.core.errors import NotFound
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.messages import links, system
from appliance.sending.messages.system import Letter
from appliance.storage.models import Account, Audit, Channel, Confirmation, Message
from appliance.storage.work import writing
from appliance.tracking import unsubscribes, words
from appliance.tracking.unsubscribes import channel_of

DAY_MS = 86_400_000
Asked = Literal["mailed", "noted"]


def ask(token: str, evidence: Evidence) -> Asked | None:
    """Note that somebody wants to be erased and ask them to confirm it by mail, once a day; None: not ours."""
    writing()
    message = unsubscribes.find_sheet(token)
    own = channel_of(message) if message is not None else None
    if message is None or own is None:
        return None
    evidence.message_id, evidence.test = message.id, message.test
    account = Account.get_by_id(own.account_id)
    before = _asked_lately(own)
    if before is not None:
        return "mailed" if before.mailed_at else "noted"
    now, ip = clock.now_ms(), client_ip.kept(evidence.ip, account.privacy_ip)
    asked = Confirmation.create(
        account=account, purpose="erase", kind=own.kind, value=own.value, key=own.key, ip=ip,
        user_agent=(evidence.user_agent or "")[:400] or None, text=evidence.text, created_at=now,
    )  # fmt: skip
    consent.record(account.id, (own.kind, own.key), "erase_requested", "recipient", evidence, own.contact_id)
    log.record(Happened(account.id, "erase_requested", own.contact_id, {"source": evidence.source}, test=evidence.test))
    _audit(account.id, own.contact_id, "erase_requested", ip)
    to = _mailbox(own)
    if to is None:
        return "noted"
    mail = _mail(account, to, asked.id)
    asked.message_id, asked.mailed_at = mail.id, now if mail.status == "queued" else None
    asked.save()
    return "mailed" if asked.mailed_at else "noted"


def _asked_lately(channel: Channel) -> Confirmation | None:
    found: Confirmation | None = (
        Confirmation.select()
        .where(
            Confirmation.account == channel.account_id, Confirmation.purpose == "erase",
            Confirmation.kind == channel.kind, Confirmation.key == channel.key,
            Confirmation.created_at > clock.now_ms() - DAY_MS,
        )
        .first()
    )  # fmt: skip
    return found


def _mailbox(own: Channel) -> Channel | None:
    """Return where the question goes: the address the link came to, else one of theirs that mail still reaches."""
    mine = CHANNELS.find("contact_id = ? AND kind = 'email' ORDER BY id <> ?, id", (own.contact_id, own.id))
    return next((one for one in mine if one.suppression is None), None)


def _mail(account: Account, to: Channel, number: int) -> Message:
    said = words.of(words.language(account.locale))
    letter = Letter(
        said["mail_erase_subject"], said["mail_erase_heading"], said["mail_erase_text"], said["mail_erase_button"],
        links.confirm(number), said["mail_erase_note"],
    )  # fmt: skip
    return system.put(account, Address("email", to.value, to.key), to.contact_id, letter, {})


def confirmed(asked: Confirmation, evidence: Evidence) -> None:
    """Erase whoever asked for it; nobody is left to be erased where the team was quicker."""
    writing()
    channel = Channel.get_or_none(
        Channel.account == asked.account_id, Channel.kind == asked.kind, Channel.key == asked.key
    )
    now = clock.now_ms()
    Confirmation.update(confirmed_at=now).where(Confirmation.id == asked.id).execute()
    if channel is None:
        return
    account = Account.get_by_id(asked.account_id)
    try:
        erase.erase(asked.account_id, channel.contact_id, Evidence(evidence.source, "recipient"))
    except NotFound:
        return
    _audit(account.id, channel.contact_id, "erase", client_ip.kept(evidence.ip, account.privacy_ip))


def _audit(account_id: int, contact_id: int, action: str, ip: str | None) -> None:
    Audit.create(
        account=account_id, actor="recipient", action=action, subject=f"contact:{contact_id}", ip=ip,
        created_at=clock.now_ms(),
    )  # fmt: skip


def is_open(account_id: int, contact_id: int) -> bool:
    """Return whether a person has asked to be erased and is still here."""
    return (
        Confirmation.select()
        .join(Channel, on=(Channel.kind == Confirmation.kind) & (Channel.key == Confirmation.key))
        .where(
            Confirmation.account == account_id, Confirmation.purpose == "erase", Confirmation.confirmed_at.is_null(),
            Channel.account == account_id, Channel.contact == contact_id,
        )
        .exists()
    )  # fmt: skip
