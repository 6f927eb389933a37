"""Test sends of a template: messages to a few people that are not counted in statistics (docs/decisions.md#11).

Tests are marked and queued like any message. They need no consent, but none is sent to a suppressed address. Their
rows have no contact, so that they appear in no statistics; the contact whose values a test shows is stored with its
content.
"""

from collections import deque
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import members
from appliance.audience import consent
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import placeholders, revisions, store, translations, variant_content
from appliance.content.templates.validation import Content
from appliance.core import addresses, clock, crypto, signals
from appliance.core.aliases import Alias, Aliases
from appliance.core.errors import (
    SEND_TIMES,
    Faults,
    Invalid,
    NotAllowed,
    NotFound,
    RateLimitExceeded,
    RefusedKeys,
    content_keys,
    unsupported,
    use_instead,
)
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EmailText, Id, LanguageTag, Phone
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import compose, languages, preview, senders, shared_content, sms_rules, utm_links
from appliance.sending.messages.compose import NOT_PREPARED, MessageSource, PreparedMessage
from appliance.sending.messages.ledger import DUE_NOW
from appliance.sending.messages.preview import PreviewWarning
from appliance.settings import config
from appliance.storage.models import (
    Account,
    Campaign,
    Channel,
    Contact,
    Message,
    MessageContent,
    TeamMember,
    Template,
    User,
)
from appliance.storage.transactions import after_commit, require_write_transaction

# Tests to unknown addresses are limited, so that they cannot be used to flood strangers with mail (a list bomb). A test
# needs no consent, so for callers who may not send, contacts count as unknown: tests must not replace a campaign.

MAX_UNKNOWN_PER_HOUR = 20
_HOUR_MS = 3_600_000
# By account id: the times of tests to unknown addresses in the last hour (Unix milliseconds). A restart clears them.
_sent_to_unknown: dict[int, deque[int]] = {}


def limit_unknown_recipients(account: Account, recipients: list[addresses.Address], can_send: bool) -> None:
    """Count the recipients who are unknown, and raise RateLimitExceeded above `MAX_UNKNOWN_PER_HOUR` in an hour.

    Known are testers and users of the account and, with `can_send`, contacts. If the limit would be exceeded, none of
    these recipients is counted.
    """
    require_write_transaction()
    unknown = [address for address in recipients if not _is_known(account, address, can_send)]
    if not unknown:
        return
    now, times = clock.now_ms(), _sent_to_unknown.setdefault(account.id, deque())
    while times and times[0] <= now - _HOUR_MS:
        times.popleft()
    if len(times) + len(unknown) > MAX_UNKNOWN_PER_HOUR:
        limit = MAX_UNKNOWN_PER_HOUR
        message = (
            gettext(
                "At most %(limit)s tests an hour can go to addresses outside of your contacts and team.", limit=limit
            )
            if can_send
            else gettext("At most %(limit)s tests an hour can go to addresses outside of your team.", limit=limit)
        )
        raise RateLimitExceeded(message, max(1, -(-(times[0] + _HOUR_MS - now) // 1000)) if times else 3600)
    times.extend(now for _ in unknown)


MAX_AGENT_TESTS_PER_HOUR = 10
# By account id: the times of tests that agents sent in the last hour (Unix milliseconds). A restart clears them.
_sent_by_agents: dict[int, deque[int]] = {}


def limit_agent_tests(account: Account, recipients: list[addresses.Address]) -> None:
    """Count the tests of an agent, and raise RateLimitExceeded above `MAX_AGENT_TESTS_PER_HOUR` in an hour.

    Raises NotAllowed for a recipient who is not an enabled user of the account.
    """
    require_write_transaction()
    team = {addresses.parse("email", user.email).key for user in members.list_active(account.id)}
    if any(address.kind != "email" or address.key not in team for address in recipients):
        raise NotAllowed(gettext("An agent sends tests only to the email addresses of users of this account."))
    now, times = clock.now_ms(), _sent_by_agents.setdefault(account.id, deque())
    while times and not now - _HOUR_MS < times[0] <= now:
        times.popleft()
    if len(times) + len(recipients) > MAX_AGENT_TESTS_PER_HOUR:
        message = gettext("Agents send at most %(limit)s tests an hour.", limit=MAX_AGENT_TESTS_PER_HOUR)
        raise RateLimitExceeded(message, max(1, -(-(times[0] + _HOUR_MS - now) // 1000)) if times else 3600)
    times.extend(now for _ in recipients)


def _is_known(account: Account, address: addresses.Address, can_send: bool) -> bool:
    if address.kind == "email":
        team = [user.email for user in members.select(account.id)]
        team_addresses: list[Any] = [*team, *(account.test_email_recipients or ())]
        if address.key in {addresses.parse("email", text).key for text in team_addresses}:
            return True
    return can_send and bool(
        Channel.select()
        .where(Channel.account == account.id, Channel.kind == address.kind, Channel.key == address.key)
        .exists()
    )


MAX_RECIPIENTS = 5
SUBJECT_PREFIX = "[Test] "
_FIELDS = ("subject", "body", "preheader", "from_name", "design")


class TestRequest(Struct):
    """The recipients of a test, and the values to show in it.

    Without an address, the test is sent to the contact whose values are shown; without a contact either, to the
    account's testers or else its owner. A test SMS needs a phone number or a contact.
    """

    REFUSED: ClassVar[RefusedKeys] = {
        **unsupported("a test shows the template as it is stored", *content_keys(), *Content.__struct_fields__),
        **use_instead(
            "`emails`, of an SMS `phones`", "to", "recipient", "recipients", "address", "addresses", "test_emails"
        ),
        **use_instead("`contact_id`, which takes one contact", "contact", "contact_ids", "contacts"),
        **unsupported("a test is sent at once", "send_at", "scheduled_at", *SEND_TIMES),
    }

    ALIASES: ClassVar[Aliases] = {"email": Alias("emails", is_list=True), "phone": Alias("phones", is_list=True)}

    # An empty address is an error, because it does not mean that the default recipients are wanted.
    email: Annotated[EmailText, Meta(min_length=1), Meta(description="one email address")] | None | UnsetType = UNSET
    emails: (
        Annotated[list[EmailText], Meta(max_length=MAX_RECIPIENTS), Meta(description="up to five email addresses")]
        | None
        | UnsetType
    ) = UNSET
    phone: Annotated[Phone, Meta(min_length=1), Meta(description="one phone number")] | None | UnsetType = UNSET
    phones: (
        Annotated[list[Phone], Meta(max_length=MAX_RECIPIENTS), Meta(description="up to five phone numbers")]
        | None
        | UnsetType
    ) = UNSET
    contact_id: (
        Annotated[
            Id,
            Meta(
                description="id of the contact whose values are shown, and who is the recipient if no address is given"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    data: Annotated[Data, Meta(description="values for merge tags such as `{{ data.order }}`")] | None | UnsetType = (
        UNSET
    )
    language: (
        Annotated[LanguageTag, Meta(description="language of the test; absent for the language of the contact")]
        | None
        | UnsetType
    ) = UNSET


class TestResult(Struct):
    """The result of a test for one recipient: the id of the queued message, or the error."""

    to: Annotated[str, Meta(description="recipient")]
    email: Annotated[str, Meta(description="email address; null for SMS")] | None
    phone: Annotated[str, Meta(description="phone number; null for email")] | None
    success: Annotated[bool, Meta(description="true if the test was queued")]
    message_id: int | None
    error: Annotated[str, Meta(description="error; null if there is none")] | None


class TestSendResult(Struct):
    """The results of a test by recipient, and warnings about unfinished content."""

    sent: Annotated[int, Meta(description="number of tests queued")]
    results: Annotated[list[TestResult], Meta(description="results by recipient")]
    warnings: Annotated[list[PreviewWarning], Meta(description="warnings, which do not block")]


def prepare(account_id: int, template_id: int, request: TestRequest | None = None) -> PreparedMessage:
    """Compile the test email of a template; call it outside of the write transaction. Raises NotFound.

    It is compiled in the language of the request, else of its contact. A compile error is stored in the result and
    raised later by `send`.
    """
    template = variant_content.complete_if_variant(store.get(account_id, template_id))
    if template.channel == "sms":  # An SMS compiles in microseconds.
        return NOT_PREPARED
    placeholders.load_known_texts()  # for the warnings of `send`
    account, contact = Account.get_by_id(account_id), None
    if request is not None:
        contact = _find_contact(account_id, request, Faults())
    translation = _choose_translation(account, template, _read_language(request), contact)
    return compose.prepare_message(_build_source(_build_fields(template, translation), account))


def _read_language(request: TestRequest | None) -> str | None:
    """Return the language of a request, or None if the request names none."""
    language = request.language if request is not None else None
    return language if isinstance(language, str) else None


def _choose_translation(
    account: Account, template: Template, language: str | None, contact: Contact | None
) -> str | None:
    """Return the language of the texts of a test, None for the original: `language`, else the contact's."""
    if not template.translations:
        return None
    document, own_language = revisions.to_document(template), contact.language if contact is not None else None
    choice = languages.choose_for_preview(document, own_language, account.locale, language, template.channel)
    return choice.translation


def send(
    account_id: int, template_id: int, request: TestRequest, test_key: bool = False,
    prepared: PreparedMessage = NOT_PREPARED, can_read_contacts: bool = True, can_send: bool = True,
    is_agent: bool = False,
) -> TestSendResult:  # fmt: skip
    """Queue a test for each recipient of the request.

    With `test_key`, the request has a test API key, and the messages are captured. `prepared` is the result of
    `prepare`. Without `can_read_contacts`, a test to a contact's address shows sample values, because the caller could
    read the message. Without `can_send`, contacts count as unknown recipients, of whom only `MAX_UNKNOWN_PER_HOUR` get
    a test. With `is_agent`, only users of the account get one. Raises NotFound, NotAllowed, RateLimitExceeded, or
    Invalid with all errors of the request, or if the template or its sender is not ready.
    """
    require_write_transaction()
    template = variant_content.complete_if_variant(store.get(account_id, template_id))
    account = Account.get_by_id(account_id)
    contact, recipients = _resolve_request(template, request)
    language = _read_language(request)
    _require_ready(account, template, test_key, prepared, _choose_translation(account, template, language, contact))
    if is_agent:
        limit_agent_tests(account, recipients)
    if _get_transport(template, test_key) != "capture":
        limit_unknown_recipients(account, recipients, can_send)
    data = request.data if isinstance(request.data, dict) else {}
    results = [
        _queue_test(
            account, template, address, data, test_key,
            _pick_sample_contact(account.id, address, contact) if can_read_contacts else None, language,
        )
        for address in recipients
    ]  # fmt: skip
    after_commit(lambda: signals.wake("outbox"))
    warnings = (
        preview.find_unfinished(account_id, revisions.to_document(template)) if template.channel == "email" else []
    )
    return TestSendResult(sum(result.success for result in results), results, warnings)


def validate(account_id: int, request: TestRequest, template_id: int) -> None:
    """Raise NotFound, or Invalid with all errors of a request, without sending anything."""
    _resolve_request(store.get(account_id, template_id), request)


def _resolve_request(template: Template, request: TestRequest) -> tuple[Contact | None, list[addresses.Address]]:
    """Return (contact whose values are shown, or None; recipients) of a request. Raises Invalid with all errors."""
    faults = Faults()
    contact = _find_contact(template.account_id, request, faults)
    recipients = _read_recipients(template.account_id, template, request, contact, faults)
    faults.check()
    return contact, recipients


def _find_contact(account_id: int, request: TestRequest, faults: Faults) -> Contact | None:
    if not isinstance(request.contact_id, int):
        return None
    try:
        return contacts.get(account_id, request.contact_id)
    except NotFound:
        faults.add("contact_id", gettext("must exist"))
        return None


def _read_recipients(
    account_id: int, template: Template, request: TestRequest, contact: Contact | None, faults: Faults
) -> list[addresses.Address]:
    name, kind = ("phone", "phone") if template.channel == "sms" else ("email", "email")
    _check_other_kind(name, request, faults)
    recipients: list[tuple[str, str]] = []
    single, several = getattr(request, name), getattr(request, f"{name}s")
    if isinstance(single, str):
        recipients.append((name, single))
    if isinstance(several, list):
        recipients += [(f"{name}s[{index}]", text) for index, text in enumerate(several)]
    if not recipients and isinstance(request.contact_id, int):
        channels = contact.channels if contact is not None else []
        recipients = [("contact_id", channel.value) for channel in channels if channel.kind == kind][:1]
        if contact is not None and not recipients:
            faults.add(
                "contact_id", gettext("has no phone number") if kind == "phone" else gettext("has no email address")
            )
    elif not recipients and kind == "email":
        recipients = [("email", text) for text in _get_default_recipients(account_id, faults)]
    elif not recipients:
        # Only the email address of an owner is known.
        faults.add("phone", gettext("can't be blank"))
    by_key: dict[str, addresses.Address] = {}
    for path, text in recipients:
        if not text:
            faults.add(path, gettext("can't be blank"))
            continue
        address = addresses.parse(kind, text)
        by_key.setdefault(address.key, address)
    if len(by_key) > MAX_RECIPIENTS:
        faults.add(f"{name}s", gettext("is too long (maximum is %(limit)s entries)", limit=MAX_RECIPIENTS))
    return list(by_key.values())


def _check_other_kind(name: str, request: TestRequest, faults: Faults) -> None:
    """Add an error for phone numbers in a request for an email, or email addresses in one for an SMS.

    `name` is the field for the template's channel, `email` or `phone`.
    """
    for other_field in ("email", "emails") if name == "phone" else ("phone", "phones"):
        if getattr(request, other_field):
            faults.add(other_field, gettext("is not allowed for this template: use `%(name)s`", name=name))


def _get_default_recipients(account_id: int, faults: Faults) -> list[str]:
    """Return the email addresses of the account's testers, or else of its owner; add an error if there are none."""
    if testers := Account.get_by_id(account_id).test_email_recipients:
        return list(testers)
    owner = members.select(account_id).where(TeamMember.role == "owner").order_by(User.id).first()
    if owner is None:
        faults.add("email", gettext("can't be blank"))
    return [owner.email] if owner is not None else []


def _require_ready(
    account: Account, template: Template, test_key: bool, prepared: PreparedMessage, translation: str | None
) -> None:
    """Raise Invalid if the template is empty or does not render, or its sender is not ready.

    The sender is not checked for a test key.
    """
    fields = _build_fields(template, translation)
    if not _is_written(template):
        blocker = {"code": "content_required", "message": gettext("write the message first"), "field": "base"}
        raise Invalid({"base": [gettext("write the message first")]}, reason="content_required", blockers=[blocker])
    try:
        if template.channel == "sms":
            compose.compile_sms(fields["body"])
        else:
            prepared.compile(_build_source(fields, account))
    except MergeError as error:
        raise Invalid(
            {"base": [gettext("does not render: %(error)s", error=error.describe())]}, reason="preflight_failed"
        ) from None
    if test_key:
        return
    if template.channel == "sms":
        problems = senders.find_sms_problems(account, _get_transport(template, test_key))
    else:
        sender = senders.resolve_email(account, template.from_email)
        problems = senders.find_email_problems(account, sender, _get_transport(template, test_key), marketing=False)
    if problems:
        raise Invalid(
            {field: [message] for field, message in problems}, reason="sender_not_ready",
            blockers=[{"code": "sender_not_ready", "message": message, "field": field} for field, message in problems],
        )  # fmt: skip


def _is_written(template: Template) -> bool:
    if template.channel == "sms":
        return bool((template.body or "").strip())
    return bool(template.body or designs.get_sections(template.design))


def _get_transport(template: Template, test_key: bool) -> str:
    settings = config.current()
    if test_key:
        return "capture"
    return settings.sms.transport if template.channel == "sms" else settings.email.transport


def _build_fields(template: Template, translation: str | None) -> dict[str, Any]:
    """Return the content fields of a test, marked as a test in the subject or, for an SMS, in the text.

    `translation` is the language of the texts, None for the original. A template without a subject can be tested too.
    """
    document = translations.translate_document(revisions.to_document(template), translation, template.channel)
    if template.channel == "sms":
        # An SMS has no subject that could mark it as a test.
        return dict.fromkeys(_FIELDS) | {"body": SUBJECT_PREFIX + (document["body"] or ""), "language": translation}
    fields: dict[str, Any] = {name: document[name] for name in ("body", "preheader", "from_name")}
    fields["subject"] = SUBJECT_PREFIX + (document["subject"] or template.name or "without a subject")
    design = document["design"] if designs.get_sections(document["design"]) else None
    return fields | {"design": design, "language": translation}


def _build_source(fields: dict[str, Any], account: Account) -> MessageSource:
    locale = fields["language"] or account.locale
    return compose.build_source(fields, brands.build_look(brands.get(account.id)), locale, marketing=True)


def _queue_test(
    account: Account, template: Template, address: addresses.Address, data: dict[str, Any], test_key: bool,
    shown_as: int | None, language: str | None,
) -> TestResult:  # fmt: skip
    now, transport = clock.now_ms(), _get_transport(template, test_key)
    contact = Contact.get_or_none(Contact.id == shown_as) if shown_as is not None else None
    fields = _build_fields(template, _choose_translation(account, template, language, contact))
    is_sms = template.channel == "sms"
    sender = senders.resolve_email(account, template.from_email)
    reason = _get_refusal_reason(account, address, transport)
    message = Message.create(
        account=account, template=template, channel=template.channel, recipient=address.value,
        recipient_key=address.key, reply_to=None if is_sms else template.reply_to, subject=fields["subject"],
        sender=senders.resolve_sms(account, address.key, transport) if is_sms else sender,
        status="skipped" if reason else "queued", skip_reason=reason,
        source_type="test", transactional=True, test=True, provider=transport,
        due_at=None if reason else DUE_NOW, created_at=now, updated_at=now,
    )  # fmt: skip
    # Links are shortened as they will be, so that the length of the SMS is right; clicks in a test are not counted.
    links = None
    if is_sms and _is_tracked(template):
        fields["body"] = shared_content.tag_sms(fields["body"], utm_links.find_template_tagger(template))
        links = [link.href for link in compose.find_sms_links(fields["body"])]
    MessageContent.create(message=message, data=data, shown_as=shown_as, links=links, **fields)
    if reason:
        event_data = {"message_id": message.id, "reason": message.skip_reason}
        event = f"{template.channel}_skipped"
        log.record(NewEvent(account.id, event, None, event_data, f"message:{message.id}", test=True))
    email, phone = (None, address.value) if is_sms else (address.value, None)
    return TestResult(address.value, email, phone, not reason, message.id, reason)


def _get_refusal_reason(account: Account, address: addresses.Address, transport: str) -> str | None:
    """Return the skip reason if an address may not get even a test, or None."""
    suppressed = consent.find_suppression_reason(
        account.id, address.kind, crypto.hash_address(address.kind, address.key)
    )
    if suppressed or address.kind == "email":
        return f"suppressed_{suppressed}" if suppressed else None
    refusal = sms_rules.get_number_refusal(address.key)
    if refusal is not None:
        return refusal[0]
    return "sender_not_allowed" if senders.find_sms_fault(account, address.key, transport) else None


def _is_tracked(template: Template) -> bool:
    """Return whether the links of a template will be tracked: unless it belongs to a campaign without tracking."""
    campaign = Campaign.get_or_none(Campaign.flow == template.flow_id) if template.flow_id is not None else None
    return campaign is None or bool(campaign.tracking)


def _pick_sample_contact(account_id: int, address: addresses.Address, contact: Contact | None) -> int | None:
    """Return the id of the contact whose values a test shows: the requested one, else the recipient's, or None."""
    if contact is not None:
        return int(contact.id)
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    return channel.contact_id if channel is not None else None
