"""Tests of a template: the mail as it will be, to whoever shall look at it, marked and never counted (decisions, 11).

A test goes through the outbox like any message. It needs no consent, but who may not be written to gets none. It is
linked to no contact, so that it shows in nobody's figures; whose values it shows is kept beside its words.
"""

import contextlib
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import addresses, clock, config, tokens
from appliance import brand as brands
from appliance.contacts import consent
from appliance.contacts import store as contacts
from appliance.db.work import after_commit, writing
from appliance.designs import document as designs
from appliance.designs.merge import MergeError
from appliance.errors import Faults, Invalid, NotFound
from appliance.events import log
from appliance.events.log import Happened
from appliance.fields import Data, EmailText, Id
from appliance.messages import compose, senders
from appliance.messages.compose import Source
from appliance.messages.ledger import AT_ONCE
from appliance.tables import Account, Channel, Contact, Message, MessageContent, Template, User
from appliance.templates import store
from appliance.work import bell

MOST = 5
PREFIX = "[Test] "


class TestRequest(Struct):
    """To whom a test goes: addresses, else the contact whose values it shows, else the account's owner."""

    email: EmailText | None | UnsetType = UNSET
    emails: Annotated[list[EmailText], Meta(max_length=MOST)] | None | UnsetType = UNSET
    contact_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET


class TestResult(Struct):
    """What became of a test to one address: in the outbox, or why not."""

    email: str
    success: bool
    message_id: int | None
    error: str | None


class TestsSent(Struct):
    """How many tests went to the outbox, and what became of each."""

    sent: int
    results: list[TestResult]


def warm(account_id: int, template_id: int) -> None:
    """Compile a template's message before the writer has to; what is wrong with it is said there."""
    with contextlib.suppress(MergeError):
        template = store.get(account_id, template_id)
        compose.compile_source(_source(_said(template), Account.get_by_id(account_id)))


def send(account_id: int, template_id: int, request: TestRequest, test_key: bool = False) -> TestsSent:
    """Queue a test for each address; raises NotFound, or Invalid with all faults."""
    writing()
    template = store.get(account_id, template_id)
    account = Account.get_by_id(account_id)
    faults = Faults()
    contact = _contact(account_id, request, faults)
    recipients = _recipients(account_id, request, contact, faults)
    faults.check()
    _refuse_unready(account, template, test_key)
    data = request.data if isinstance(request.data, dict) else {}
    results = [_put(account, template, address, contact, data, test_key) for address in recipients]
    after_commit(lambda: bell.ring("outbox"))
    return TestsSent(sum(one.success for one in results), results)


def _contact(account_id: int, request: TestRequest, faults: Faults) -> Contact | None:
    if not isinstance(request.contact_id, int):
        return None
    try:
        return contacts.get(account_id, request.contact_id)
    except NotFound:
        faults.add("contact_id", "must exist")
        return None


def _recipients(
    account_id: int, request: TestRequest, contact: Contact | None, faults: Faults
) -> list[addresses.Address]:
    given: list[tuple[str, str]] = []
    if isinstance(request.email, str):
        given.append(("email", request.email))
    if isinstance(request.emails, list):
        given += [(f"emails[{index}]", text) for index, text in enumerate(request.emails)]
    if not given and isinstance(request.contact_id, int):
        channels = contact.channels if contact is not None else []
        given = [("contact_id", one.value) for one in channels if one.kind == "email"][:1]
        if contact is not None and not given:
            faults.add("contact_id", "has no e-mail address")
    elif not given:
        given = [("email", text) for text in _owner(account_id, faults)]
    found: dict[str, addresses.Address] = {}
    for path, text in given:
        if not text:
            faults.add(path, "can't be blank")
            continue
        address = addresses.email(text)
        found.setdefault(address.key, address)
    if len(found) > MOST:
        faults.add("emails", f"is too long (maximum is {MOST} entries)")
    return list(found.values())


def _owner(account_id: int, faults: Faults) -> list[str]:
    owner = User.select().where(User.account == account_id, User.role == "owner").order_by(User.id).first()
    if owner is None:
        faults.add("email", "can't be blank")
    return [owner.email] if owner is not None else []


def _refuse_unready(account: Account, template: Template, test_key: bool) -> None:
    """Raise Invalid where there is nothing to send, it cannot be rendered, or its sender may not be used."""
    said = _said(template)
    if not (said["body"] or said["design"]):
        raise Invalid({"base": ["write the message first"]}, reason="content_required")
    try:
        compose.compile_source(_source(said, account))
    except MergeError as error:
        raise Invalid({"base": [f"does not render: {error.words()}"]}, reason="preflight_failed") from None
    if test_key:
        return
    sender = senders.resolve(account, template.from_email)
    found = senders.problems(account, sender, config.current().email.transport, marketing=False)
    if found:
        raise Invalid(
            {field: [words] for field, words in found}, reason="sender_not_ready",
            blockers=[{"code": "sender_not_ready", "message": words, "field": field} for field, words in found],
        )  # fmt: skip


def _said(template: Template) -> dict[str, Any]:
    """Answer what a test says; a draft without a subject can be looked at too."""
    said: dict[str, Any] = {name: getattr(template, name) for name in ("body", "preheader", "from_name")}
    said["subject"] = PREFIX + (template.subject or template.name or "without a subject")
    return said | {"design": template.design if designs.sections(template.design) else None}


def _source(said: dict[str, Any], account: Account) -> Source:
    return compose.source_of(said, brands.look(brands.get(account.id)), account.locale, marketing=True)


def _put(
    account: Account, template: Template, address: addresses.Address, contact: Contact | None, data: dict[str, Any],
    test_key: bool,
) -> TestResult:  # fmt: skip
    now = clock.now_ms()
    said = _said(template)
    suppressed = consent.suppression(account.id, address.kind, tokens.address_hash(address.kind, address.key))
    message = Message.create(
        account=account, template=template, channel="email", recipient=address.value, recipient_key=address.key,
        sender=senders.resolve(account, template.from_email), reply_to=template.reply_to, subject=said["subject"],
        status="skipped" if suppressed else "queued", skip_reason=f"suppressed_{suppressed}" if suppressed else None,
        source_type="test", transactional=True, test=True,
        provider="capture" if test_key else config.current().email.transport,
        due_at=None if suppressed else AT_ONCE, created_at=now, updated_at=now,
    )  # fmt: skip
    MessageContent.create(message=message, data=data, shown_as=_shown_as(account.id, address, contact), **said)
    if suppressed:
        told = {"message_id": message.id, "reason": message.skip_reason}
        log.record(Happened(account.id, "email_skipped", None, told, f"message:{message.id}", test=True))
    return TestResult(address.value, not suppressed, message.id, message.skip_reason)


def _shown_as(account_id: int, address: addresses.Address, contact: Contact | None) -> int | None:
    """Answer whose values a test shows: the contact's that was asked for, else those of who gets it, if known."""
    if contact is not None:
        return int(contact.id)
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    return channel.contact_id if channel is not None else None
