"""Test sends of a template: the message as it will be, marked, to a few people, never counted (docs/decisions.md#11).

A test goes through the outbox like any message. It needs no consent, but who may not be written to gets none. It is
linked to no contact, so that it shows in nobody's figures; whose values it shows is kept beside its words.
"""

import contextlib
from collections import deque
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.contacts import consent
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs.merge import MergeError
from appliance.content.templates import store
from appliance.content.templates.requests import Content
from appliance.core import addresses, clock, tokens, wake_ups
from appliance.core.errors import Faults, Invalid, NotFound, TooMany
from appliance.core.fields import Data, EmailText, Id, Phone
from appliance.core.validation import SEND_TIMES, RefusedKeys, of_content, unsupported, use_instead
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.messages import compose, sample_render, senders, sms_rules, sms_senders, texts
from appliance.sending.messages.compose import Source
from appliance.sending.messages.ledger import AT_ONCE
from appliance.sending.messages.sample_render import PreviewWarning
from appliance.settings import config
from appliance.storage.models import Account, Campaign, Channel, Contact, Message, MessageContent, Template, User
from appliance.storage.work import after_commit, writing

# Tests to people nobody here knows: few an hour, so that nobody writes to the world by them (a list bomb).

MAX_AN_HOUR = 20
_HOUR_MS = 3_600_000
# By account, when tests went to strangers in the last hour; a restart forgets them
_sent: dict[int, deque[int]] = {}


def count_strangers(account: Account, recipients: list[addresses.Address]) -> None:
    """Count those of a test who are no contact, no tester and nobody of the team; raises TooMany past the bound."""
    writing()
    unknown = [one for one in recipients if not _is_known(account, one)]
    if not unknown:
        return
    now, times = clock.now_ms(), _sent.setdefault(account.id, deque())
    while times and times[0] <= now - _HOUR_MS:
        times.popleft()
    if len(times) + len(unknown) > MAX_AN_HOUR:
        words = f"at most {MAX_AN_HOUR} tests an hour go to addresses that are no contacts and nobody of the team"
        raise TooMany(words, max(1, -(-(times[0] + _HOUR_MS - now) // 1000)) if times else 3600)
    times.extend(now for _ in unknown)


def _is_known(account: Account, address: addresses.Address) -> bool:
    if address.kind == "email":
        team = [row.email for row in User.select(User.email).where(User.account == account.id)]
        known: list[Any] = [*team, *(account.test_email_recipients or ())]
        if address.key in {addresses.read("email", one).key for one in known}:
            return True
    return bool(
        Channel.select()
        .where(Channel.account == account.id, Channel.kind == address.kind, Channel.key == address.key)
        .exists()
    )


MAX_RECIPIENTS = 5
PREFIX = "[Test] "
_FIELDS = ("subject", "body", "preheader", "from_name", "design")


class TestRequest(Struct):
    """To whom a test goes: addresses, else the contact whose values it shows, else those whom the account names
    for tests, else its owner.

    Of a template for SMS the addresses are phone numbers.
    """

    REFUSED: ClassVar[RefusedKeys] = {
        **unsupported("a test shows the template as it is stored", *of_content(), *Content.__struct_fields__),
        **use_instead(
            "`emails`, of an SMS `phones`", "to", "recipient", "recipients", "address", "addresses", "test_emails"
        ),
        **use_instead("`contact_id`, which takes one contact", "contact", "contact_ids", "contacts"),
        **unsupported("a test is sent at once", "send_at", "scheduled_at", *SEND_TIMES),
    }

    # An empty address is a mistake, and no wish to have the test sent to somebody else
    email: Annotated[EmailText, Meta(min_length=1)] | None | UnsetType = UNSET
    emails: Annotated[list[EmailText], Meta(max_length=MAX_RECIPIENTS)] | None | UnsetType = UNSET
    phone: Annotated[Phone, Meta(min_length=1)] | None | UnsetType = UNSET
    phones: Annotated[list[Phone], Meta(max_length=MAX_RECIPIENTS)] | None | UnsetType = UNSET
    contact_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET


class TestResult(Struct):
    """What became of a test to one address: in the outbox, or why not."""

    to: str
    email: str | None
    phone: str | None
    success: bool
    message_id: int | None
    error: str | None


class TestsSent(Struct):
    """How many tests went to the outbox, what became of each, and what is still unfinished in the message."""

    sent: int
    results: list[TestResult]
    warnings: list[PreviewWarning]


def warm(account_id: int, template_id: int) -> None:
    """Compile a template's message before the writer has to; what is wrong with it is said there."""
    with contextlib.suppress(MergeError):
        template = store.get(account_id, template_id)
        _compile(template, _said(template), Account.get_by_id(account_id))


def send(account_id: int, template_id: int, request: TestRequest, test_key: bool = False) -> TestsSent:
    """Queue a test for each address; raises NotFound, Invalid with all faults, or TooMany (see `test_recipients`)."""
    writing()
    template = store.get(account_id, template_id)
    account = Account.get_by_id(account_id)
    contact, recipients = _who(template, request)
    _refuse_unready(account, template, test_key)
    if _transport(template, test_key) != "capture":
        count_strangers(account, recipients)
    data = request.data if isinstance(request.data, dict) else {}
    results = [_put(account, template, address, contact, data, test_key) for address in recipients]
    after_commit(lambda: wake_ups.ring("outbox"))
    warnings = sample_render.unfinished(account_id, store.document(template)) if template.channel == "email" else []
    return TestsSent(sum(one.success for one in results), results, warnings)


def check(account_id: int, request: TestRequest, template_id: int) -> None:
    """Raise Invalid with all that is wrong with a request for a test, beyond its types."""
    _who(store.get(account_id, template_id), request)


def _who(template: Template, request: TestRequest) -> tuple[Contact | None, list[addresses.Address]]:
    """Return whose values are shown and to whom; raises Invalid with all faults."""
    faults = Faults()
    contact = _contact(template.account_id, request, faults)
    recipients = _recipients(template.account_id, template, request, contact, faults)
    faults.check()
    return contact, recipients


def _contact(account_id: int, request: TestRequest, faults: Faults) -> Contact | None:
    if not isinstance(request.contact_id, int):
        return None
    try:
        return contacts.get(account_id, request.contact_id)
    except NotFound:
        faults.add("contact_id", "must exist")
        return None


def _recipients(
    account_id: int, template: Template, request: TestRequest, contact: Contact | None, faults: Faults
) -> list[addresses.Address]:
    name, kind = ("phone", "phone") if template.channel == "sms" else ("email", "email")
    _refuse_other_kind(name, request, faults)
    given: list[tuple[str, str]] = []
    one, many = getattr(request, name), getattr(request, f"{name}s")
    if isinstance(one, str):
        given.append((name, one))
    if isinstance(many, list):
        given += [(f"{name}s[{index}]", text) for index, text in enumerate(many)]
    if not given and isinstance(request.contact_id, int):
        channels = contact.channels if contact is not None else []
        given = [("contact_id", one.value) for one in channels if one.kind == kind][:1]
        if contact is not None and not given:
            faults.add("contact_id", f"has no {'phone number' if kind == 'phone' else 'e-mail address'}")
    elif not given and kind == "email":
        given = [("email", text) for text in _usual(account_id, faults)]
    elif not given:
        # Of an owner only the mail address is known
        faults.add("phone", "can't be blank")
    found: dict[str, addresses.Address] = {}
    for path, text in given:
        if not text:
            faults.add(path, "can't be blank")
            continue
        address = addresses.read(kind, text)
        found.setdefault(address.key, address)
    if len(found) > MAX_RECIPIENTS:
        faults.add(f"{name}s", f"is too long (maximum is {MAX_RECIPIENTS} entries)")
    return list(found.values())


def _refuse_other_kind(name: str, request: TestRequest, faults: Faults) -> None:
    """Note addresses of the kind that this template is not for."""
    for other in ("email", "emails") if name == "phone" else ("phone", "phones"):
        if getattr(request, other):
            faults.add(other, f"is not where this goes: name a {'phone' if name == 'phone' else 'mail address'}")


def _usual(account_id: int, faults: Faults) -> list[str]:
    """Return who gets a test that names nobody: those whom the account names for it, else its owner."""
    if testers := Account.get_by_id(account_id).test_email_recipients:
        return list(testers)
    owner = User.select().where(User.account == account_id, User.role == "owner").order_by(User.id).first()
    if owner is None:
        faults.add("email", "can't be blank")
    return [owner.email] if owner is not None else []


def _refuse_unready(account: Account, template: Template, test_key: bool) -> None:
    """Raise Invalid where there is nothing to send, it cannot be rendered, or its sender may not be used."""
    said = _said(template)
    if not _is_written(template):
        blocker = {"code": "content_required", "message": "write the message first", "field": "base"}
        raise Invalid({"base": ["write the message first"]}, reason="content_required", blockers=[blocker])
    try:
        _compile(template, said, account)
    except MergeError as error:
        raise Invalid({"base": [f"does not render: {error.words()}"]}, reason="preflight_failed") from None
    if test_key:
        return
    if template.channel == "sms":
        found = sms_senders.problems(account, _transport(template, test_key))
    else:
        sender = senders.resolve(account, template.from_email)
        found = senders.problems(account, sender, _transport(template, test_key), marketing=False)
    if found:
        raise Invalid(
            {field: [words] for field, words in found}, reason="sender_not_ready",
            blockers=[{"code": "sender_not_ready", "message": words, "field": field} for field, words in found],
        )  # fmt: skip


def _is_written(template: Template) -> bool:
    if template.channel == "sms":
        return bool((template.body or "").strip())
    return bool(template.body or designs.sections(template.design))


def _compile(template: Template, said: dict[str, Any], account: Account) -> None:
    """Compile what a test says; raises MergeError."""
    if template.channel == "sms":
        texts.compiled(said["body"])
    else:
        compose.compile_source(_source(said, account))


def _transport(template: Template, test_key: bool) -> str:
    here = config.current()
    if test_key:
        return "capture"
    return here.sms.transport if template.channel == "sms" else here.email.transport


def _said(template: Template) -> dict[str, Any]:
    """Return what a test says; a draft without a subject can be looked at too."""
    if template.channel == "sms":
        # An SMS has no subject that could say what it is
        return dict.fromkeys(_FIELDS) | {"body": PREFIX + (template.body or "")}
    said: dict[str, Any] = {name: getattr(template, name) for name in ("body", "preheader", "from_name")}
    said["subject"] = PREFIX + (template.subject or template.name or "without a subject")
    return said | {"design": template.design if designs.sections(template.design) else None}


def _source(said: dict[str, Any], account: Account) -> Source:
    return compose.source_of(said, brands.look(brands.get(account.id)), account.locale, marketing=True)


def _put(
    account: Account, template: Template, address: addresses.Address, contact: Contact | None, data: dict[str, Any],
    test_key: bool,
) -> TestResult:  # fmt: skip
    now, transport = clock.now_ms(), _transport(template, test_key)
    said, is_sms = _said(template), template.channel == "sms"
    sender = senders.resolve(account, template.from_email)
    reason = _refusal(account, address, transport)
    message = Message.create(
        account=account, template=template, channel=template.channel, recipient=address.value,
        recipient_key=address.key, reply_to=None if is_sms else template.reply_to, subject=said["subject"],
        sender=sms_senders.resolve(account, address.key, transport) if is_sms else sender,
        status="skipped" if reason else "queued", skip_reason=reason,
        source_type="test", transactional=True, test=True, provider=transport,
        due_at=None if reason else AT_ONCE, created_at=now, updated_at=now,
    )  # fmt: skip
    # As long as what people get, whose links are shortened; nothing about a test is counted
    links = [one.href for one in texts.links(said["body"])] if is_sms and _is_tracked(template) else None
    shown_as = _shown_as(account.id, address, contact)
    MessageContent.create(message=message, data=data, shown_as=shown_as, links=links, **said)
    if reason:
        told = {"message_id": message.id, "reason": message.skip_reason}
        happened = f"{template.channel}_skipped"
        log.record(Happened(account.id, happened, None, told, f"message:{message.id}", test=True))
    mail, phone = (None, address.value) if is_sms else (address.value, None)
    return TestResult(address.value, mail, phone, not reason, message.id, reason)


def _refusal(account: Account, address: addresses.Address, transport: str) -> str | None:
    """Return why nothing may go to an address, a test too."""
    suppressed = consent.suppression(account.id, address.kind, tokens.address_hash(address.kind, address.key))
    if suppressed or address.kind == "email":
        return f"suppressed_{suppressed}" if suppressed else None
    refused = sms_rules.refused(address.key)
    if refused is not None:
        return refused[0]
    return "sender_not_allowed" if sms_senders.fault(account, address.key, transport) else None


def _is_tracked(template: Template) -> bool:
    """Return whether the links of a template will lead through us; those of its campaign may not."""
    campaign = Campaign.get_or_none(Campaign.template == template.id) if template.flow_id is not None else None
    return campaign is None or bool(campaign.tracking)


def _shown_as(account_id: int, address: addresses.Address, contact: Contact | None) -> int | None:
    """Return whose values a test shows: the contact's that was asked for, else those of who gets it, if known."""
    if contact is not None:
        return int(contact.id)
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    return channel.contact_id if channel is not None else None
