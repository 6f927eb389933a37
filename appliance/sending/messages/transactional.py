"""Queue single messages of the API, such as receipts and notices.

Emails of the service itself are in `system_emails`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from appliance.accounts import limits, request_limits
from appliance.accounts.public_urls import base_url_of
from appliance.audience import consent
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import markup, merge, merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import agent_drafts, revisions, translations
from appliance.core import addresses, clock, crypto, signals
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import (
    attachments,
    compose,
    languages,
    ledger,
    links,
    merge_tags,
    message_request,
    senders,
    sms_rules,
)
from appliance.sending.messages.attachments import StoredFile
from appliance.sending.messages.compose import NOT_PREPARED, MessageSource, PreparedMessage, SmsText
from appliance.sending.messages.ledger import DUE_NOW
from appliance.sending.messages.message_request import MessageRequest, Recipient, RecipientKind, get_text
from appliance.sending.messages.message_request import MessageWrite as MessageWrite
from appliance.sending.sms import segments as gsm
from appliance.settings import config
from appliance.storage.database import Records, fetch_one, scalar
from appliance.storage.models import Account, Channel, Contact, Message, MessageContent, Template
from appliance.storage.models.message import NO_CONTACT_ID
from appliance.storage.transactions import after_commit, require_write_transaction

# A single SMS is checked completely before it is queued: the client gets all errors, because nobody sees the SMS later.


class SmsRequest(NamedTuple):
    """An SMS to validate: recipient, text, values for merge tags, and whether it is marketing.

    Without `shows_contact` it is validated with empty contact values, even if its recipient is a contact.
    """

    to: str
    body: str | None
    data: Mapping[str, Any]
    marketing: bool
    shows_contact: bool


class CheckedMessage(NamedTuple):
    """The results of validating a message.

    `address` is the normalized recipient, with an empty value if it is invalid. `links` are the URLs to track (None
    for a transactional message). `segments` is the number of parts of an SMS with the present values, None for email.
    """

    address: addresses.Address
    links: list[str] | None
    segments: int | None


def validate_sms(account: Account, request: SmsRequest, faults: Faults) -> CheckedMessage:
    """Validate an SMS as it would be sent now; add all errors to `faults`."""
    address = _parse_phone(request.to, faults)
    links, segments = None, 0
    if not (request.body or "").strip():
        faults.add("body", gettext("can't be blank"))
    elif fault := gsm.find_length_fault(request.body):
        faults.add("body", fault)
    else:
        try:
            links = [link.href for link in compose.find_sms_links(request.body)] if request.marketing else None
            sms = _fill_sms(account, request, links, address)
        except MergeError as error:
            faults.add("body", error.describe())
        else:
            segments = sms.size.parts
            if problem := sms.find_problem():
                faults.add("body", problem)
    return CheckedMessage(address, links, segments)


def _parse_phone(text: str, faults: Faults) -> addresses.Address:
    try:
        address = addresses.parse_phone(text)
    except ValueError:
        faults.add("to", gettext("is invalid"))
        return addresses.Address("phone", "", "")
    if refused := sms_rules.get_number_refusal(address.key):
        faults.add("to", refused[1])
    return address


def _fill_sms(account: Account, request: SmsRequest, urls: list[str] | None, address: addresses.Address) -> SmsText:
    """Fill an SMS with the recipient's current values; raises MergeError if a value cannot be filled in.

    A marketing SMS has the opt-out hint, whether it is due or not. `urls` are the links to track.
    """
    channel = None
    if request.shows_contact:
        channel = Channel.get_or_none(
            Channel.account == account.id, Channel.kind == address.kind, Channel.key == address.key
        )
    contact = Contact.get_by_id(channel.contact_id) if channel is not None else None
    if contact is not None:
        contacts.load_relations([contact])
    values = merge_tags.get_account_values(account, brands.get(account.id)) | {"data": request.data}
    values |= (
        merge_tags.get_contact_values(contact, address.value, "phone")
        | links.get_link_values(base_url_of(account), 0)
        | compose.build_link_tokens()
    )
    hint = languages.choose_opt_out_hint(
        account.sms_opt_out_hint, account.sms_opt_out_hints, contact.language if contact else None, account.locale
    )
    text = compose.compile_sms(request.body, urls, account.locale, base_url_of(account))
    return compose.fill_sms(text, values, hint if request.marketing else None)


_TEMPLATED: dict[str, merge_limits.Context] = {
    "subject": "header", "preheader": "header", "from_name": "header", "body": "html", "text": "text",
}  # fmt: skip
_MADE_BY_AGENT = gettext_noop("was made by an agent, which can still change it: a user takes it over first")
# The fields of a request that a content field may come from, in the order in which they are looked for.
_SOURCE_FIELDS = {"body": ("html", "body"), "from_name": ("from_", "from_name")}


class ValidatedRequest(NamedTuple):
    """A validated request: the template, if any, the content fields with their merge tags, and the checked message.

    `recipients` are all recipients, that of `to` first.
    """

    template: Template | None
    fields: dict[str, Any]
    checked: CheckedMessage
    recipients: list[Recipient]


class RecipientSuppressed(Invalid):
    """The recipient may not get a message; its row is kept as `skipped`.

    The reason is `recipient_suppressed` (docs/decisions.md#3).
    """


def prepare(account_id: int, request: MessageWrite) -> PreparedMessage:
    """Compile the email of a request; call it outside of the write transaction.

    An error is not raised here but by `queue_message`. An SMS is not prepared, because it compiles in microseconds.
    """
    if request.channel == "sms":
        return NOT_PREPARED
    template = None
    if isinstance(request.template_id, int):
        template = Template.get_or_none(Template.account == account_id, Template.id == request.template_id)
    account = Account.get_by_id(account_id)
    fields = _resolve_fields(request, template, _choose_translation(account, request, template))
    return compose.prepare_message(_build_source(fields, account, not request.transactional))


def validate(
    account_id: int, request: MessageWrite, _: int | None = None, can_read_contacts: bool = True
) -> None:  # fmt: skip
    """Raise Invalid with all errors of a message, without writing anything.

    Without `can_read_contacts`, the errors do not depend on the values of the contact with the recipient's address.
    """
    faults = Faults()
    validate_request(Account.get_by_id(account_id), request, faults, can_read_contacts=can_read_contacts)
    faults.check()


def check_sender(account_id: int, request: MessageWrite) -> None:
    """Raise Invalid (`sender_not_ready`) if the sender of a valid email without a template may not be used now."""
    address = addresses.parse_email(get_text(request.to) or "")
    require_sender(Account.get_by_id(account_id), request, None, address)


def queue_message(
    account_id: int, request: MessageWrite, key: str | None = None, test: bool = False,
    prepared: PreparedMessage = NOT_PREPARED, can_read_contacts: bool = True, files: Sequence[StoredFile] = (),
) -> Message:  # fmt: skip
    """Queue one message and return its row; an email has a row for each recipient, and the first one is returned.

    The row of a recipient who may not get it is stored as `skipped`. If that is so for all recipients, `get_refusal`
    returns the error for the client. `key` is the idempotency key. With `test`, the message is captured and its sender
    not checked. A copy shows the values of the contact of `to`; without `can_read_contacts`, neither a copy nor a
    message with `test` shows values of a contact. `files` are the attachments of the request, stored on disk
    (`attachments.store`). Raises RateLimitExceeded (`sms_rules.limit_unknown_numbers`, or at a limit of the account),
    and Invalid with all errors, or with the reason `transactional_disabled` or `sender_not_ready`.
    """
    require_write_transaction()
    account = Account.get_by_id(account_id)
    faults = Faults()
    validated = validate_request(account, request, faults, prepared, can_read_contacts)
    if not account.transactional_allowed and request.transactional:
        raise Invalid(
            {"base": [gettext("single messages are disabled in this account")]}, reason="transactional_disabled"
        )
    faults.check()
    if not test:
        require_sender(account, request, validated.template, validated.checked.address)
        limits.require_messages(account_id, len(validated.recipients))
    first: Message | None = None
    ids: list[int] = []
    for recipient in validated.recipients:
        message = _queue_to_recipient(account, request, validated, recipient, key, test)
        if first is None:
            first, shown_as = message, None if can_read_contacts or not test else NO_CONTACT_ID
        else:
            shown_as = (first.contact_id if can_read_contacts else None) or NO_CONTACT_ID
        ids += [] if message.status == "skipped" else [message.id]
        _store_content(message, first, request, validated, recipient.kind, shown_as, bool(files))
    assert first is not None
    if not test:
        limits.note_messages(account_id, len(ids))
    if files:
        attachments.attach(ids, files)
    after_commit(lambda: signals.wake("outbox"))
    return first


def _queue_to_recipient(
    account: Account, request: MessageWrite, validated: ValidatedRequest, recipient: Recipient, key: str | None,
    test: bool,
) -> Message:  # fmt: skip
    """Insert the row of one recipient, as `skipped` if the recipient may not get the message."""
    address, is_sms, now = recipient.address, request.channel == "sms", clock.now_ms()
    is_held = isinstance(request.send_at, int) and request.send_at > now
    channel = find_channel(account.id, address)
    reason = find_refusal_reason(account.id, address, channel, request.transactional)
    transport = get_transport(request, test)
    if is_sms and reason is None and transport != "capture":
        sms_rules.limit_unknown_numbers(account.id, address.key)
    message = Message(
        account=account.id, contact=channel.contact_id if channel else None, template=validated.template,
        channel=request.channel, recipient=address.value, recipient_key=address.key,
        sender=get_sender(account, request, validated.template, address, transport),
        reply_to=None if is_sms else get_text(request.reply_to),
        subject=validated.fields["subject"], segments=validated.checked.segments,
        status="skipped" if reason else "held" if is_held else "queued", skip_reason=reason,
        source_type="transactional", transactional=request.transactional, test=test,
        provider=transport, idempotency_key=key, tags=_value_or_none(request.tags),
        due_at=None if reason else (request.send_at if is_held else DUE_NOW), created_at=now, updated_at=now,
    )  # fmt: skip
    insert_single(message)
    return message


_MESSAGES, _CHANNELS = Records(Message), Records(Channel)


def find_channel(account_id: int, address: addresses.Address) -> Channel | None:
    """Return the channel of the contact with an address, or None."""
    channels = _CHANNELS.find("account_id = ? AND kind = ? AND key = ?", (account_id, address.kind, address.key))
    return channels[0] if channels else None


def insert_single(message: Message) -> None:
    """Insert the row of a single message and set its id; record an event if it is `skipped`."""
    require_write_transaction()
    _MESSAGES.insert(message)
    if message.skip_reason:
        data, event = {"message_id": message.id, "reason": message.skip_reason}, f"{message.channel}_skipped"
        log.record(
            NewEvent(message.account_id, event, message.contact_id, data, f"message:{message.id}", test=message.test)
        )


def _store_content(
    message: Message, first: Message, request: MessageWrite, validated: ValidatedRequest, kind: RecipientKind,
    shown_as: int | None, has_attachments: bool,
) -> None:  # fmt: skip
    """Store the content of a recipient's row; `first` is the row of `to`, `shown_as` that of `MessageContent`."""
    MessageContent.create(
        message=message,
        headers={} if request.channel == "sms" else _value_or_none(request.headers) or {},
        data=_value_or_none(request.data) or {},
        links=validated.checked.links,
        shown_as=shown_as,
        kind=kind if len(validated.recipients) > 1 else None,
        first_message_id=first.id if len(validated.recipients) > 1 else None,
        has_attachments=has_attachments and message.status != "skipped",
        tracks_opens=isinstance(request, MessageRequest) and request.tracks_opens,
        **validated.fields,
    )


def get_refusal(message: Message) -> RecipientSuppressed | None:
    """Return the error to raise for a message that `queue_message` skipped for all of its recipients, or None."""
    if message.status != "skipped" or any(copy.status != "skipped" for copy in ledger.list_copies(message)):
        return None
    return RecipientSuppressed(
        {"to": [gettext("may not be written to")]}, reason="recipient_suppressed", message_id=message.id,
        skip_reason=message.skip_reason,
    )  # fmt: skip


def _value_or_none(value: Any) -> Any:
    return None if value is UNSET else value


def _find_template(account_id: int, request: MessageWrite, faults: Faults) -> Template | None:
    if not isinstance(request.template_id, int):
        return None
    template: Template | None = Template.get_or_none(Template.account == account_id, Template.id == request.template_id)
    if template is None:
        faults.add("template_id", gettext("must exist"))
    elif template.channel != request.channel:
        faults.add("template_id", gettext("is for the other channel"))
        return None
    elif agent_drafts.is_open_to_agents(template):
        # The agent may have changed it a moment ago, so no user has seen what would be sent.
        faults.add("template_id", gettext(_MADE_BY_AGENT))
    return template


def get_transport(request: MessageWrite, test: bool) -> str:
    """Return the transport of a message by its name; that of a message of a test key is `capture`."""
    settings = config.current()
    return "capture" if test else settings.sms.transport if request.channel == "sms" else settings.email.transport


def get_sender(
    account: Account, request: MessageWrite, template: Template | None, to: addresses.Address, transport: str
) -> str:
    """Return the sender that a message of a valid request has."""
    if request.channel == "sms":
        return senders.resolve_sms(account, to.key, transport)
    chosen = message_request.parse_sender(request, Faults()).email
    return senders.resolve_email(account, chosen or (template.from_email if template else None))


def validate_request(
    account: Account, request: MessageWrite, faults: Faults, prepared: PreparedMessage = NOT_PREPARED,
    can_read_contacts: bool = True,
) -> ValidatedRequest:  # fmt: skip
    """Validate a request and return the result; add all errors to `faults`."""
    template = _find_template(account.id, request, faults)
    is_template_missing = isinstance(request.template_id, int) and template is None
    translation = _choose_translation(account, request, template) if can_read_contacts else None
    message_fields, field_faults = _resolve_fields(request, template, translation), Faults()
    if request.channel == "sms":
        checked = validate_sms(account, _build_sms_request(request, message_fields, can_read_contacts), field_faults)
        recipients = [Recipient("to", checked.address)]
        message_request.find_sms_faults(request, field_faults)
    else:
        recipients = message_request.parse_recipients(request, field_faults)
        message_request.find_size_fault(request, message_fields, len(recipients), field_faults)
        links = _validate_email(account, request, message_fields, field_faults, prepared)
        checked = CheckedMessage(recipients[0].address, links, None)
    # A field is not reported as missing if the template that does not exist might have had it.
    faults.merge(
        {
            path: messages
            for path, messages in field_faults.fields.items()
            if not (is_template_missing and messages == [gettext("can't be blank")])
        }
    )
    if isinstance(request.idempotency_key, str):
        faults.collect(request_limits.validate_idempotency_key, request.idempotency_key, "idempotency_key")
    return ValidatedRequest(template, message_fields, checked, recipients)


def _build_sms_request(request: MessageWrite, fields: dict[str, Any], shows_contact: bool) -> SmsRequest:
    return SmsRequest(
        get_text(request.to) or "", fields["body"], _value_or_none(request.data) or {}, not request.transactional,
        shows_contact,
    )  # fmt: skip


def _validate_email(
    account: Account, request: MessageWrite, fields: dict[str, Any], faults: Faults, prepared: PreparedMessage
) -> list[str] | None:
    """Validate an email apart from its recipients; add all errors to `faults`.

    Return its URLs to track, None for a transactional message.
    """
    if not fields["subject"]:
        faults.add("subject", gettext("can't be blank"))
    if not (fields["body"] or fields["design"] or fields["text"]):
        faults.add("body", gettext("can't be blank"))
    message_request.find_content_faults(request, faults)
    message_request.find_header_faults(request, faults)
    message_request.parse_sender(request, faults)
    links = None
    broken = {
        name: message for name, context in _TEMPLATED.items() if (message := merge.find_error(fields[name], context))
    }
    try:
        content = prepared.compile(_build_source(fields, account, not request.transactional))
        links = None if request.transactional else [link.href for link in content.links]
    except MergeError as error:
        broken = broken or {"body": error.describe()}
    for name, message in broken.items():
        # The error is in the template if the request does not have the field.
        sent = [key for key in _SOURCE_FIELDS.get(name, (name,)) if get_text(getattr(request, key, None))]
        faults.add(sent[0].rstrip("_") if sent else "template_id", message)
    return links


def require_sender(account: Account, request: MessageWrite, template: Template | None, to: addresses.Address) -> None:
    """Raise Invalid (`sender_not_ready`) if the sender may not be used, by the rules that apply to campaigns.

    If the transport is `capture`, any sender may be used.
    """
    transport = get_transport(request, test=False)
    if request.channel == "sms":
        fault = senders.find_sms_fault(account, to.key, transport)
        problems = [("base", fault)] if fault else []
    else:
        address = get_sender(account, request, template, to, transport)
        problems = [
            ("from" if field == "from_email" and get_text(request.from_) else field, message)
            for field, message in senders.find_email_problems(
                account, address, transport, marketing=not request.transactional
            )
        ]
    if problems:
        raise Invalid(
            {field: [message] for field, message in problems}, reason="sender_not_ready",
            blockers=[{"code": "sender_not_ready", "message": message, "field": field} for field, message in problems],
        )  # fmt: skip


def _choose_translation(account: Account, request: MessageWrite, template: Template | None) -> str | None:
    """Return which translation of a template the contact with the recipient's address gets, None for the original."""
    if template is None or not template.translations:
        return None
    try:
        address = addresses.parse("phone" if request.channel == "sms" else "email", get_text(request.to) or "")
    except ValueError:
        return None
    language = scalar(
        "SELECT c.language FROM channel h JOIN contact c ON c.id = h.contact_id "
        "WHERE h.account_id = ? AND h.kind = ? AND h.key = ?",
        (account.id, address.kind, address.key),
    )
    document = revisions.to_document(template)
    return languages.choose_for_document(document, language, account.locale, request.channel).translation


def _resolve_fields(request: MessageWrite, template: Template | None, translation: str | None) -> dict[str, Any]:
    """Return the content fields of a message: the request's, and the template's for fields that it lacks.

    `translation` is the language of the template's texts, None for the original. The fields are stored with the
    message, because the template may change later. The template's design is used only if the request has no body. An
    SMS has only a body.
    """
    document: dict[str, Any] = {}
    if template is not None:
        document = translations.translate_document(revisions.to_document(template), translation, request.channel)
    own_body = get_text(request.html) or get_text(request.body)
    # A body of the request is in the language of the account, as far as is known.
    language = None if own_body else translation
    if request.channel == "sms":
        body = own_body or document.get("body")
        return {"body": body, "language": language,
                **dict.fromkeys(("subject", "text", "preheader", "from_name", "design"))}  # fmt: skip
    if get_text(request.html) and own_body and not markup.is_html(own_body):
        own_body = f"<div>{own_body}</div>"  # HTML without a tag would count as plain text
    fields: dict[str, Any] = {"text": get_text(request.text), "language": language}
    fields["subject"] = get_text(request.subject) or document.get("subject")
    fields["body"], fields["preheader"] = own_body or document.get("body"), document.get("preheader")
    fields["from_name"] = message_request.parse_sender(request, Faults()).name or document.get("from_name")
    has_sections = not own_body and designs.get_sections(document.get("design"))
    return fields | {"design": document["design"] if has_sections else None}


def _build_source(fields: dict[str, Any], account: Account, marketing: bool) -> MessageSource:
    look = brands.build_look(brands.get(account.id))
    return compose.build_source(fields, look, fields["language"] or account.locale, marketing, fields["text"])


def find_refusal_reason(
    account_id: int, address: addresses.Address, channel: Channel | None, transactional: bool
) -> str | None:
    """Return why an address may not get a message, as `skip_reason`, or None; `channel` is that of the address."""
    hashed = crypto.hash_address(address.kind, address.key)
    reason = consent.find_suppression_reason(account_id, address.kind, hashed)
    if reason:
        return f"suppressed_{reason}"
    if transactional:
        return None
    if channel is None:
        opt_out = fetch_one("SELECT 1 FROM opt_out WHERE account_id = ? AND address_hash = ?", (account_id, hashed))
        return "unsubscribed" if opt_out else "no_consent"
    if not contacts.is_sendable(channel):
        return "unsubscribed" if channel.opt_out_at else "no_consent"
    if address.kind == "phone" and not sms_rules.has_consent_evidence(channel.contact_id):
        return "no_consent"
    return None
