"""Queue single messages of the API, such as receipts and notices.

Emails of the service itself are in `system_emails`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import request_limits
from appliance.audience import consent
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import merge, merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import revisions, translations
from appliance.core import addresses, clock, crypto, signals
from appliance.core.errors import SEND_TIMES, Faults, Invalid, RefusedKeys, unsupported, use_instead
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EmailText, Id, Line, Short, Subject, Text, When
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import compose, languages, links, merge_tags, senders, sms_rules
from appliance.sending.messages.compose import NOT_PREPARED, MessageSource, PreparedMessage, SmsText
from appliance.sending.messages.ledger import DUE_NOW
from appliance.sending.sms import segments as gsm
from appliance.settings import config
from appliance.storage.database import fetch_one, scalar
from appliance.storage.models import Account, Channel, Contact, Message, MessageContent, Template
from appliance.storage.models.message import NO_CONTACT_ID
from appliance.storage.transactions import after_commit, require_write_transaction

# A single SMS is checked completely before it is queued: the client gets all errors, because nobody sees the SMS later.

# The fields that only emails have. They are ignored in an SMS, and the response lists them.
EMAIL_ONLY_FIELDS = ("subject", "text", "from_email", "from_name", "reply_to", "headers")


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
        | links.get_link_values(0)
        | compose.build_link_tokens()
    )
    hint = languages.choose_opt_out_hint(
        account.sms_opt_out_hint, account.sms_opt_out_hints, contact.language if contact else None, account.locale
    )
    text = compose.compile_sms(request.body, urls, account.locale)
    return compose.fill_sms(text, values, hint if request.marketing else None)


_HEADER = re.compile(r"X-[A-Za-z0-9-]{1,60}")
_VALUE = re.compile(r"[\x20-\x7e]{0,900}")

_REFUSED_KEYS: RefusedKeys = {
    **use_instead("`body` for the HTML", "html", "html_body", "body_html", "content"),
    **use_instead("`from_email` and `from_name`", "from", "from_address", "sender"),
    **use_instead("`text`", "plain_text", "text_body", "body_text"),
    **unsupported("send one message to each recipient", "cc", "bcc", "recipients", "emails"),
    **unsupported("put a link into the body", "attachments", "attachment", "files"),
    **unsupported("set it in a template", "design"),
    **use_instead("`send_at`", "scheduled_at", *SEND_TIMES),
    **unsupported("use `send_at`", "delay", "delay_seconds", "hold_seconds"),
    **use_instead("`template_id`", "template", "template_name"),
    **use_instead(
        "`data`", "variables", "merge_vars", "merge_tags", "substitutions", "template_data", "dynamic_template_data"
    ),
    **unsupported("send with a test key", "test_mode", "sandbox", "dry_run", neutral=False),
}

_TEMPLATED: dict[str, merge_limits.Context] = {
    "subject": "header", "preheader": "header", "from_name": "header", "body": "html", "text": "text",
}  # fmt: skip


class MessageWrite(Struct):
    """A request to send a single message. A `transactional` message, the default, needs no consent and has no footer.

    An SMS needs `body` or a template for SMS; fields that only emails have are ignored.
    """

    REFUSED: ClassVar[RefusedKeys] = _REFUSED_KEYS

    to: Annotated[
        str,
        Meta(
            max_length=254,
            description="email address; for SMS, a phone number with country code, such as +44 7700 900123",
            extra={"filled": True, "line": True},
        ),
    ]  # fmt: skip
    channel: Annotated[Literal["email", "sms"], Meta(description="channel; default: `email`")] = "email"
    subject: Subject | None | UnsetType = UNSET
    body: (
        Annotated[Text, Meta(description="HTML content; for SMS, text of up to 1,600 characters")] | None | UnsetType
    ) = UNSET
    text: (
        Annotated[Text, Meta(description="plain text content; default: generated from the body")] | None | UnsetType
    ) = UNSET
    template_id: (
        Annotated[Id, Meta(description="id of a template to use instead of subject and body")] | None | UnsetType
    ) = UNSET
    data: Annotated[Data, Meta(description="values for merge tags such as `{{ data.order }}`")] | None | UnsetType = (
        UNSET
    )
    from_email: EmailText | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    reply_to: EmailText | None | UnsetType = UNSET
    tags: Annotated[Data, Meta(description="tags for the message")] | None | UnsetType = UNSET
    headers: (
        Annotated[
            dict[str, Short], Meta(max_length=20), Meta(description="custom headers, whose names begin with `X-`")
        ]
        | None
        | UnsetType
    ) = UNSET
    send_at: Annotated[When, Meta(description="when to send; the message is `held` until then")] | None | UnsetType = (
        UNSET
    )
    idempotency_key: (
        Annotated[
            str,
            Meta(min_length=1, max_length=255, extra={"line": True}),
            Meta(description="same as the header `Idempotency-Key`, which takes precedence"),
        ]
        | None
        | UnsetType
    ) = UNSET
    transactional: Annotated[
        bool,
        Meta(
            description="default: true; false makes it a marketing message, with consent check, footer, list "
            "headers and tracking"
        ),
    ] = True


class _ValidatedRequest(NamedTuple):
    """A validated request: the template, if any, the content fields with their merge tags, and the checked message."""

    template: Template | None
    fields: dict[str, Any]
    checked: CheckedMessage


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
    _validate_request(Account.get_by_id(account_id), request, faults, can_read_contacts=can_read_contacts)
    faults.check()


def queue_message(
    account_id: int, request: MessageWrite, key: str | None = None, test: bool = False,
    prepared: PreparedMessage = NOT_PREPARED, can_read_contacts: bool = True,
) -> Message:  # fmt: skip
    """Queue one message and return its row.

    If the recipient may not get it, the row is stored and returned as `skipped`, and `get_refusal` returns the error
    for the client. `key` is the idempotency key. With `test`, the message is captured and its sender not checked;
    without `can_read_contacts`, such a message shows no values of its contact. Raises RateLimitExceeded
    (`sms_rules.limit_unknown_numbers`), or Invalid: with all errors, as `transactional_disabled`, or as
    `sender_not_ready`.
    """
    require_write_transaction()
    account = Account.get_by_id(account_id)
    faults = Faults()
    template, fields, checked = _validate_request(account, request, faults, prepared, can_read_contacts)
    if not account.transactional_allowed and request.transactional:
        raise Invalid(
            {"base": [gettext("single messages are disabled in this account")]}, reason="transactional_disabled"
        )
    faults.check()
    if not test:
        _require_sender(account, request, template, checked.address)
    address, is_sms = checked.address, request.channel == "sms"
    now = clock.now_ms()
    is_held = isinstance(request.send_at, int) and request.send_at > now
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    reason = _get_refusal_reason(account_id, address, channel, request.transactional)
    transport = _get_transport(request, test)
    if is_sms and reason is None and transport != "capture":
        sms_rules.limit_unknown_numbers(account_id, address.key)
    message = Message.create(
        account=account_id, contact=channel.contact_id if channel else None, template=template, channel=request.channel,
        recipient=address.value, recipient_key=address.key,
        sender=_get_sender(account, request, template, address, transport),
        reply_to=None if is_sms else _text_or_none(request.reply_to),
        subject=fields["subject"], segments=checked.segments,
        status="skipped" if reason else "held" if is_held else "queued", skip_reason=reason,
        source_type="transactional", transactional=request.transactional, test=test,
        provider=transport, idempotency_key=key, tags=_value_or_none(request.tags),
        due_at=None if reason else (request.send_at if is_held else DUE_NOW), created_at=now, updated_at=now,
    )  # fmt: skip
    MessageContent.create(
        message=message,
        headers={} if is_sms else _value_or_none(request.headers) or {},
        data=_value_or_none(request.data) or {},
        links=checked.links,
        shown_as=NO_CONTACT_ID if test and not can_read_contacts else None,
        **fields,
    )
    if reason:
        data, event = {"message_id": message.id, "reason": reason}, f"{request.channel}_skipped"
        log.record(NewEvent(account_id, event, message.contact_id, data, f"message:{message.id}", test=test))
    else:
        after_commit(lambda: signals.wake("outbox"))
    return message


def get_refusal(message: Message) -> RecipientSuppressed | None:
    """Return the error to raise for a message that `queue_message` skipped, or None."""
    if message.status != "skipped":
        return None
    return RecipientSuppressed(
        {"to": [gettext("may not be written to")]}, reason="recipient_suppressed", message_id=message.id,
        skip_reason=message.skip_reason,
    )  # fmt: skip


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value != "" else None


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
    return template


def list_ignored_fields(request: MessageWrite) -> list[str]:
    """Return the names of the fields in a request for an SMS that are ignored; for an email, return an empty list."""
    if request.channel == "email":
        return []
    return [name for name in EMAIL_ONLY_FIELDS if getattr(request, name) not in (UNSET, None)]


def _get_transport(request: MessageWrite, test: bool) -> str:
    settings = config.current()
    return "capture" if test else settings.sms.transport if request.channel == "sms" else settings.email.transport


def _get_sender(
    account: Account, request: MessageWrite, template: Template | None, to: addresses.Address, transport: str
) -> str:
    if request.channel == "sms":
        return senders.resolve_sms(account, to.key, transport)
    return senders.resolve_email(
        account, _text_or_none(request.from_email) or (template.from_email if template else None)
    )


def _validate_request(
    account: Account, request: MessageWrite, faults: Faults, prepared: PreparedMessage = NOT_PREPARED,
    can_read_contacts: bool = True,
) -> _ValidatedRequest:  # fmt: skip
    """Validate a request and return the result; add all errors to `faults`."""
    template = _find_template(account.id, request, faults)
    is_template_missing = isinstance(request.template_id, int) and template is None
    translation = _choose_translation(account, request, template) if can_read_contacts else None
    message_fields, field_faults = _resolve_fields(request, template, translation), Faults()
    if request.channel == "sms":
        checked = validate_sms(account, _build_sms_request(request, message_fields, can_read_contacts), field_faults)
    else:
        checked = _validate_email(account, request, message_fields, field_faults, prepared)
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
    return _ValidatedRequest(template, message_fields, checked)


def _build_sms_request(request: MessageWrite, fields: dict[str, Any], shows_contact: bool) -> SmsRequest:
    return SmsRequest(
        _text_or_none(request.to) or "", fields["body"], _value_or_none(request.data) or {}, not request.transactional,
        shows_contact,
    )  # fmt: skip


def _validate_email(
    account: Account, request: MessageWrite, fields: dict[str, Any], faults: Faults, prepared: PreparedMessage
) -> CheckedMessage:
    """Validate an email; add all errors to `faults`."""
    if not fields["subject"]:
        faults.add("subject", gettext("can't be blank"))
    if not (fields["body"] or fields["design"]):
        faults.add("body", gettext("can't be blank"))
    for name, value in (_value_or_none(request.headers) or {}).items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            faults.add(f"headers.{name}", gettext("is invalid"))
    try:
        address = addresses.parse_email(_text_or_none(request.to) or "")
    except ValueError:
        faults.add("to", gettext("is invalid"))
        address = addresses.Address("email", "", "")
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
        faults.add(name if _text_or_none(getattr(request, name, None)) else "template_id", message)
    return CheckedMessage(address, links, None)


def _require_sender(account: Account, request: MessageWrite, template: Template | None, to: addresses.Address) -> None:
    """Raise Invalid (`sender_not_ready`) if the sender may not be used, by the rules that apply to campaigns.

    If the transport is `capture`, any sender may be used.
    """
    transport = _get_transport(request, test=False)
    if request.channel == "sms":
        fault = senders.find_sms_fault(account, to.key, transport)
        problems = [("base", fault)] if fault else []
    else:
        address = _get_sender(account, request, template, to, transport)
        problems = senders.find_email_problems(account, address, transport, marketing=not request.transactional)
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
        address = addresses.parse("phone" if request.channel == "sms" else "email", _text_or_none(request.to) or "")
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
    own_body = _text_or_none(request.body)
    # A body of the request is in the language of the account, as far as is known.
    language = None if own_body else translation
    if request.channel == "sms":
        body = own_body or document.get("body")
        return {"body": body, "language": language,
                **dict.fromkeys(("subject", "text", "preheader", "from_name", "design"))}  # fmt: skip
    fields: dict[str, Any] = {"text": _text_or_none(request.text), "language": language}
    for name in ("subject", "body", "preheader", "from_name"):
        fields[name] = _text_or_none(getattr(request, name, None)) or document.get(name)
    has_sections = not own_body and designs.get_sections(document.get("design"))
    return fields | {"design": document["design"] if has_sections else None}


def _build_source(fields: dict[str, Any], account: Account, marketing: bool) -> MessageSource:
    look = brands.build_look(brands.get(account.id))
    return compose.build_source(fields, look, fields["language"] or account.locale, marketing, fields["text"])


def _get_refusal_reason(
    account_id: int, address: addresses.Address, channel: Channel | None, transactional: bool
) -> str | None:
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
