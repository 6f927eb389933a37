"""The request for a single message: its fields, and the rules for its custom headers, sender and recipients."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, json

from appliance.core import addresses
from appliance.core.addresses import Address
from appliance.core.aliases import Alias, Aliases
from appliance.core.errors import SEND_TIMES, Faults, RefusedKeys, unsupported, use_instead
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EmailText, Id, Line, Subject, Text, When
from appliance.sending.messages import attachments, links
from appliance.sending.messages.attachments import MAX_FILES, AttachmentWrite

# The recipients of one message: `to`, `cc` and `bcc` together.
MAX_RECIPIENTS = 50
# The content is stored with the message of each recipient, so that one can be erased without the others. Without this
# limit a request of 2 MB would write 100 MB in one transaction, for which all other accounts wait.
MAX_COPIED_BYTES = 5_000_000
MAX_HEADER_CHARACTERS = 900

# The fields of an email that are ignored in an SMS; the response lists them.
EMAIL_ONLY_FIELDS = ("subject", "html", "text", "from_", "from_email", "from_name", "reply_to", "headers")
# Fields of an email that an SMS may not have, because recipients or files would silently be missing.
_REFUSED_IN_SMS = ("cc", "bcc", "attachments")

# Custom headers may be `X-…`, `List-…` (of transactional messages; those of marketing are ours) and these. All others
# have a field of their own, or receivers would take them for ours (T07 in docs/threats.md).
_OTHER_HEADERS = ("in-reply-to", "references", "importance", "auto-submitted")
_FIELDS_BY_HEADER = {
    "from": "from", "to": "to", "cc": "cc", "bcc": "bcc", "reply-to": "reply_to", "subject": "subject",
    # With these, SparkPost and Mandrill send copies to addresses that are neither counted nor checked here.
    "x-msys-api": "bcc", "x-mc-bccaddress": "bcc",
}  # fmt: skip
# Headers that mail services act on and that the service sets itself (`links.build_provider_headers`).
_SERVICE_HEADERS = ("x-smtpapi", "x-pm-metadata-campanero")
# Headers that show which message returned mail is about (`inbound.bounce_mail`). With the address of another message in
# one of them, a sender could hide bounces and complaints.
_HEADERS_OF_RETURNED_MAIL = ("x-original-to", "x-hmxmroriginalrecipient")
# A submitted email (`raw_mime`) loses these: with them, services would send copies or file its returned mail wrongly.
UNSAFE_HEADERS = frozenset(("x-msys-api", "x-mc-bccaddress", *_SERVICE_HEADERS, *_HEADERS_OF_RETURNED_MAIL))
_HEADER_NAME = re.compile(r"(?:X|List)-[A-Za-z0-9-]{1,60}", re.IGNORECASE)
_HEADER_VALUE = re.compile(rf"[\x20-\x7e]{{0,{MAX_HEADER_CHARACTERS}}}")
# RFC 5322, section 3.4: a display name, as a quoted string or as it is written, before the address.
_MAILBOX = re.compile(r'(?:"((?:[^"\\]|\\.)*)" *|([^<>",]*))<([^<>]{1,254})>')
_MAX_NAME_CHARACTERS = 255

_REFUSED_KEYS: RefusedKeys = {
    **use_instead("`html`", "html_body", "body_html", "content"),
    **use_instead("`from`", "from_address", "sender"),
    **use_instead("`text`", "plain_text", "text_body", "body_text"),
    **unsupported("use `cc` and `bcc`, or send one message to each recipient", "recipients", "emails"),
    **use_instead("`attachments`", "attachment", "files"),
    **unsupported("set it in a template", "design"),
    **use_instead("`send_at`", "scheduled_at", *SEND_TIMES),
    **unsupported("use `send_at`", "delay", "delay_seconds", "hold_seconds"),
    **use_instead("`template_id`", "template", "template_name"),
    **use_instead(
        "`data`", "variables", "merge_vars", "merge_tags", "substitutions", "template_data", "dynamic_template_data"
    ),
    **unsupported("send with a test key", "test_mode", "sandbox", "dry_run", neutral=False),
}

Recipients = Annotated[list[EmailText], Meta(max_length=MAX_RECIPIENTS - 1)]
RecipientKind = Literal["to", "cc", "bcc"]


class MessageWrite(Struct, rename={"from_": "from"}):
    """A request to send a single message. A `transactional` message, the default, needs no consent and has no footer.

    An email has `html` or `text` or both, or `body` (HTML or plain text), or a template. An SMS needs `body` or a
    template for SMS; fields that only emails have are ignored, except `cc`, `bcc` and `attachments`, which it
    may not have.
    """

    REFUSED: ClassVar[RefusedKeys] = _REFUSED_KEYS
    ALIASES: ClassVar[Aliases] = {"channelType": Alias("channel")}

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
    html: (
        Annotated[Text, Meta(description="HTML content, with merge tags; instead of `body`, and not with a template")]
        | None
        | UnsetType
    ) = UNSET
    text: (
        Annotated[Text, Meta(description="plain text content; default: generated from the HTML")] | None | UnsetType
    ) = UNSET
    template_id: (
        Annotated[Id, Meta(description="id of a template to use instead of subject and body")] | None | UnsetType
    ) = UNSET
    data: Annotated[Data, Meta(description="values for merge tags such as `{{ data.order }}`")] | None | UnsetType = (
        UNSET
    )
    cc: (
        Annotated[
            Recipients,
            Meta(
                description="addresses that get a copy and that all recipients see; together with `to` and `bcc` at "
                f"most {MAX_RECIPIENTS}, and fewer if the content has more than 100 KB; only for transactional messages"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    bcc: (
        Annotated[Recipients, Meta(description="addresses that get a copy and that no other recipient sees; as `cc`")]
        | None
        | UnsetType
    ) = UNSET
    from_: (
        Annotated[
            str,
            Meta(
                max_length=600,
                description="sender, such as `ana@example.com` or `Ana Cruz <ana@example.com>`; instead of "
                "`from_email` and `from_name`",
                extra={"line": True},
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    from_email: EmailText | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    reply_to: EmailText | None | UnsetType = UNSET
    tags: Annotated[Data, Meta(description="tags for the message")] | None | UnsetType = UNSET
    headers: (
        Annotated[
            dict[str, Annotated[str, Meta(max_length=MAX_HEADER_CHARACTERS)]],
            Meta(max_length=20),
            Meta(
                description="custom headers: `X-…`, `In-Reply-To`, `References`, `Importance`, `Auto-Submitted`, and "
                "of transactional messages `List-…`"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    attachments: (
        Annotated[
            list[AttachmentWrite],
            Meta(max_length=MAX_FILES),
            Meta(description="files of at most 25 MB together; only for email"),
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


class MessageRequest(MessageWrite):
    """A single message of a program that uses the API of another service (`appliance/api/doors`).

    It has two fields that only those APIs have: further recipients in `to`, and whether opens of a message that is not
    marketing are tracked.
    """

    other_to: Recipients = []
    tracks_opens: bool = False


MAX_BATCH = 500


class MessageBatch(Struct):
    """A batch of messages, each of which is checked and queued on its own; an invalid one does not stop the others."""

    messages: Annotated[
        list[Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/MessageWrite"})] | None],
        Meta(max_length=MAX_BATCH),
        Meta(description="up to 500 messages, with files of at most 25 MB together"),
    ]


class Sender(NamedTuple):
    """The sender that a request names: address and name, None if the request names none."""

    email: str | None
    name: str | None


class Recipient(NamedTuple):
    """One recipient of a message; the address of an invalid `to` has an empty value."""

    kind: RecipientKind
    address: Address


def get_text(value: object) -> str | None:
    """Return a text field of a request, or None if it was not sent, or is null or empty."""
    return value if isinstance(value, str) and value != "" else None


def list_ignored_fields(request: MessageWrite) -> list[str]:
    """Return the names of the fields in a request for an SMS that are ignored; for an email, return an empty list."""
    if request.channel == "email":
        return []
    return [name.rstrip("_") for name in EMAIL_ONLY_FIELDS if getattr(request, name) not in (UNSET, None)]


def find_content_faults(request: MessageWrite, faults: Faults) -> None:
    """Add errors for attached files, and for fields of an email that exclude each other."""
    attachments.find_faults(list_attachments(request), faults)
    if get_text(request.html) and get_text(request.body):
        faults.add("html", gettext("give either `html` or `body`, not both"))
    if isinstance(request.template_id, int):
        for name in ("html", "text"):
            if get_text(getattr(request, name)):
                faults.add(name, gettext("give either this or `template_id`, not both"))


def list_attachments(request: MessageWrite) -> list[AttachmentWrite]:
    """Return the files of a request, an empty list if it has none."""
    return request.attachments if isinstance(request.attachments, list) else []


def find_sms_faults(request: MessageWrite, faults: Faults) -> None:
    """Add errors for fields that an SMS may not have."""
    for name in _REFUSED_IN_SMS:
        if getattr(request, name) not in (UNSET, None, []):
            faults.add(name, gettext("is not supported for SMS"))


def parse_sender(request: MessageWrite, faults: Faults) -> Sender:
    """Return the sender of an email; add errors for an invalid `from`, or one beside `from_email` or `from_name`."""
    email, name = get_text(request.from_email), get_text(request.from_name)
    text = get_text(request.from_)
    if text is None:
        return Sender(email, name)
    if email or name:
        faults.add("from", gettext("give either `from`, or `from_email` and `from_name`"))
        return Sender(email, name)
    match = _MAILBOX.fullmatch(text.strip())
    quoted, plain, written = match.groups() if match else (None, "", text)
    display_name = plain.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    try:
        address = addresses.parse_email(written)
    except ValueError as error:
        faults.add("from", str(error))
        return Sender(None, None)
    if len(display_name) > _MAX_NAME_CHARACTERS:
        faults.add("from", gettext("is too long (maximum is %(limit)s characters)", limit=_MAX_NAME_CHARACTERS))
    return Sender(address.value, display_name or None)


def parse_recipients(request: MessageWrite, faults: Faults) -> list[Recipient]:
    """Return the recipients of an email, that of `to` first; add errors for invalid, repeated and too many ones."""
    try:
        to = addresses.parse_email(get_text(request.to) or "")
    except ValueError:
        faults.add("to", gettext("is invalid"))
        to = Address("email", "", "")
    recipients = [Recipient("to", to)]
    fields: tuple[tuple[RecipientKind, str], ...] = (("to", "other_to"), ("cc", "cc"), ("bcc", "bcc"))
    for kind, field in fields:
        values = getattr(request, field, None)
        if values in (UNSET, None, []):
            continue
        if not request.transactional:
            faults.add(field, gettext("is only for transactional messages: send marketing to each recipient alone"))
        for index, value in enumerate(values):
            address = addresses.parse_email(value)
            if any(address.key == other.address.key for other in recipients):
                faults.add(f"{field}[{index}]", gettext("is already a recipient"))
            elif addresses.to_ascii(address.value) is None:
                # All recipients see it, and not all of their servers support SMTPUTF8.
                faults.add(f"{field}[{index}]", gettext("must have only ASCII characters before the @"))
            recipients.append(Recipient(kind, address))
        if len(recipients) > MAX_RECIPIENTS:
            faults.add(field, gettext("is too long (maximum is %(limit)s recipients)", limit=MAX_RECIPIENTS))
    if len(recipients) > 1 and to.value and addresses.to_ascii(to.value) is None:
        faults.add("to", gettext("must have only ASCII characters before the @"))
    return recipients


def find_size_fault(request: MessageWrite, fields: Mapping[str, Any], recipient_count: int, faults: Faults) -> None:
    """Add an error if the content of all recipients together has more than `MAX_COPIED_BYTES`.

    `fields` are the content fields of the message, its template's included.
    """
    if recipient_count < 2:
        return
    content = (fields, request.data, request.headers, request.tags)
    size = len(json.encode([part for part in content if part is not UNSET]))
    if size * recipient_count > MAX_COPIED_BYTES:
        limit = max(1, MAX_COPIED_BYTES // size)
        named = [name for name in ("other_to", "cc", "bcc") if getattr(request, name, None) not in (UNSET, None, [])]
        field = named[0]
        faults.add(field, gettext("is too long (maximum is %(limit)s recipients)", limit=limit))


def find_header_faults(request: MessageWrite, faults: Faults) -> None:
    """Add errors for custom headers that a message may not have, and for values.

    A value must be printable ASCII. `List-Unsubscribe` may not name another message of this service.
    """
    headers = request.headers if isinstance(request.headers, dict) else {}
    for name, value in headers.items():
        fault = find_header_name_fault(name.lower(), not request.transactional)
        if fault := fault or find_header_value_fault(name.lower(), value):
            faults.add(f"headers.{name}", fault)


def find_header_value_fault(name: str, value: str) -> str | None:
    """Return the error of a custom header's value, None if it is valid; `name` is in lower case."""
    is_foreign = name == "list-unsubscribe" and links.may_name_message(value)
    return gettext("is invalid") if is_foreign or not _HEADER_VALUE.fullmatch(value) else None


def find_header_name_fault(name: str, is_marketing: bool) -> str | None:
    """Return the error of a custom header's name, None if a message may have it; `name` is in lower case."""
    if field := _FIELDS_BY_HEADER.get(name):
        return gettext("is not allowed as a header: use the field `%(field)s`", field=field)
    if name in _HEADERS_OF_RETURNED_MAIL:
        return gettext("is reserved")
    if name in _SERVICE_HEADERS or (is_marketing and name.startswith("list-")):
        return gettext("is not allowed: the service sets this header")
    if name in _OTHER_HEADERS or _HEADER_NAME.fullmatch(name):
        return None
    return gettext("is not allowed: use X-…, List-…, In-Reply-To, References, Importance or Auto-Submitted")
