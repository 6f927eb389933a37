"""Response Structs that several endpoints share, and functions that create them from rows of the database."""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from msgspec import Meta, Struct

from appliance.audience.contacts.store import is_sendable
from appliance.campaigns.variants import Setup, has_own_content
from appliance.content.templates.store import is_editable
from appliance.content.templates.variant_content import TEXT_FIELDS
from appliance.core.clock import iso
from appliance.core.validation import schema_name
from appliance.events import listing
from appliance.events.listing import Event as Event
from appliance.events.listing import Moment as Moment
from appliance.sending.messages.ledger import Status
from appliance.storage import models

Json = dict[str, Any]
Design = Annotated[Json, schema_name("Design")]


class Channel(Struct):
    """An email address or phone number of a contact."""

    id: int
    contact_id: Annotated[int, Meta(description="id of the contact")]
    kind: Annotated[Literal["email", "phone"], Meta(description="kind")]
    value: Annotated[str, Meta(description="email address or phone number")]
    subscribed: Annotated[bool, Meta(description="whether the contact has consented to marketing at this address")]
    verified: Annotated[
        bool, Meta(description="whether the address was verified: by confirmation, click, reply or import")
    ]
    opt_in_at: Annotated[Moment, Meta(description="when the contact last opted in; null for never")] | None
    opt_out_at: Annotated[Moment, Meta(description="when the contact opted out; null if opted in")] | None
    opted_out_by: (
        Annotated[
            Literal["recipient", "operator"],
            Meta(description="who opted the address out; null if it was not opted out"),
        ]
        | None
    )
    suppression_reason: Annotated[str, Meta(description="why the address is suppressed; null if it is not")] | None
    sent_count: Annotated[int, Meta(description="number of messages to the address accepted by the next hop")]
    fail_count: Annotated[int, Meta(description="number of messages that failed or bounced")]
    data: Annotated[Json, Meta(description="custom data of the address")]
    created_at: Moment
    updated_at: Moment


class Contact(Struct):
    """A person with email addresses and phone numbers, consent, and custom data."""

    id: int
    uuid: Annotated[
        str,
        Meta(extra_json_schema={"format": "uuid"}),
        Meta(description="random unique identifier that reveals nothing about the contact"),
    ]
    first_name: Annotated[str, Meta(description="first name")] | None
    last_name: Annotated[str, Meta(description="last name")] | None
    source: Annotated[str, Meta(description="origin of the contact, as free text")] | None
    country_code: Annotated[str, Meta(description="two-letter country code; default: that of the phone number")] | None
    language: Annotated[str, Meta(description="language tag such as de or pt-BR; null if it is not known")] | None
    data: Annotated[Json, Meta(description="custom data as JSON of at most 32 KiB; `tags` is a list of strings")]
    subscribed_phone: Annotated[
        bool, Meta(description="true if any phone number of the contact is subscribed; a write applies to all of them")
    ]
    subscribed_email: Annotated[
        bool, Meta(description="true if any email address of the contact is subscribed; a write applies to all of them")
    ]
    sendable_phone: Annotated[bool, Meta(description="true if the contact can be sent marketing SMS")]
    sendable_email: Annotated[
        bool,
        Meta(
            description="true if the contact can be sent marketing email: subscribed, not suppressed, and "
            "confirmed if a list requires it"
        ),
    ]
    verification_status: Annotated[
        Literal["verified", "suppressed", "unverified"],
        Meta(description="verification status of the first email address, or of the phone number if there is none"),
    ]
    enrichment_status: Annotated[
        Literal["enriched", "not_enriched"], Meta(description="`enriched` if `data.enrichment` is not empty")
    ]
    tracking: Annotated[
        Literal["full", "aggregate", "none"],
        Meta(description="tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none`"),
    ]
    list_ids: Annotated[list[int], Meta(description="lists of which the contact is a member")]
    last_interacted_at: (
        Annotated[
            Moment,
            Meta(
                description="when the contact last opened, clicked, replied, submitted a form or had another "
                "event; automated activity does not count"
            ),
        ]
        | None
    )
    created_at: Moment
    updated_at: Moment
    channels: Annotated[list[Channel], Meta(description="email addresses and phone numbers of the contact")]


class ContactWritten(Contact):
    """A created or updated contact; `kept_opt_out` names the opt-outs that the request did not lift."""

    kept_opt_out: Annotated[
        list[str],
        Meta(
            description="opt-outs that the write did not lift, because the contact made them: addresses, and "
            "lists such as `list:5`"
        ),
    ]


class Sendable(Struct):
    """The number of members that may receive marketing, by channel."""

    email: Annotated[int, Meta(description="number of contacts that can be sent email")]
    sms: Annotated[int, Meta(description="number of contacts that can be sent SMS")]


class ContactList(Struct):
    """A list of contacts."""

    id: int
    account_id: int
    name: Annotated[str, Meta(description="name of the list, unique in the account regardless of case")]
    contacts_count: Annotated[int, Meta(description="number of contacts in the list")]
    sendable_count: Annotated[Sendable, Meta(description="number of contacts in the list that can be sent marketing")]
    segment_id: (
        Annotated[int, Meta(description="id of the segment that the list follows; null for a static list")] | None
    )
    stale: Annotated[bool, Meta(description="true while the list is being updated after a change of its segment")]
    double_opt_in: Annotated[
        bool, Meta(description="whether members must confirm their address before they are sent marketing")
    ]
    public: Annotated[bool, Meta(description="whether the list is shown on the preference page")]
    last_populated_at: (
        Annotated[Moment, Meta(description="when the list was last filled from its segment; null for a static list")]
        | None
    )
    created_at: Moment
    updated_at: Moment


class Template(Struct):
    """The content of an email or SMS: subject, body and design."""

    id: int
    name: str | None
    flow_id: (
        Annotated[
            int,
            Meta(
                description="id of the flow to whose step the template belongs; null for a standalone template or "
                "one of a campaign"
            ),
        ]
        | None
    )
    action_id: (
        Annotated[int, Meta(description="id of the step to which the template belongs; null if there is none")] | None
    )
    channel: Annotated[Literal["email", "sms"], Meta(description="channel; cannot be changed")]
    subject: str | None
    body: str | None
    preheader: str | None
    from_name: str | None
    from_email: str | None
    reply_to: str | None
    design: Annotated[Design, Meta(description="design: sections from top to bottom, and the theme")]
    variables: Annotated[Json, Meta(description="merge tags in the template, by name: `default`, `sample`, `required`")]
    languages: Annotated[list[str], Meta(description="languages that it is translated into, besides the original")]
    created_at: Moment
    updated_at: Moment


class Trigger(Struct):
    """The trigger and audience of a campaign."""

    id: int
    flow_id: Annotated[int, Meta(description="id of the hidden flow that belongs to the campaign")]
    event: Annotated[str, Meta(description="event that triggers it; `manual` for a campaign")]
    segment_id: Annotated[int, Meta(description="id of the segment to send to")] | None
    contact_list_id: (
        Annotated[int, Meta(description="id of the list to send to; with a segment, only contacts in both")] | None
    )
    data: Annotated[
        Json,
        Meta(
            description="further parts of the audience: `contact_list_ids`, `exclude_contact_list_ids`, "
            "`exclude_segment_ids`; `audience_type: all_contacts` with `confirm_send_to_all: "
            "true` for all contacts"
        ),
    ]
    triggered_count: Annotated[int, Meta(description="number of times that it was triggered")]
    last_triggered_at: Annotated[Moment, Meta(description="when it was last triggered; null for never")] | None
    created_at: Moment
    updated_at: Moment


class Stats(Struct):
    """Message counts by status. `audience` is the sum of `pending` and all final statuses."""

    audience: Annotated[
        int, Meta(description="number of recipients in the audience: the sum of `pending` and every final status")
    ]
    pending: Annotated[int, Meta(description="not yet final: queued, held or sending")]
    sent: Annotated[int, Meta(description="accepted by the next hop, with no report since")]
    delivered: Annotated[int, Meta(description="reported as delivered")]
    bounced: int
    complained: Annotated[int, Meta(description="reported as spam")]
    failed: int
    skipped: Annotated[int, Meta(description="skipped, each for a reason")]
    cancelled: Annotated[int, Meta(description="cancelled before they were sent")]
    uncertain: Annotated[int, Meta(description="unconfirmed: it cannot be known whether the next hop accepted them")]
    accepted: int


class Variant(Struct):
    """A variant of an A/B test. Texts that are null are those of the campaign, which variant 1 has itself."""

    id: int
    number: Annotated[int, Meta(description="number from 1; variant 1 is the campaign's own content")]
    name: str | None
    template_id: Annotated[int, Meta(description="id of the template with its own texts; for variant 1 the campaign's")]
    subject: str | None
    preheader: str | None
    from_name: str | None
    from_email: str | None
    reply_to: str | None
    has_own_content: Annotated[bool, Meta(description="whether it has a body or design of its own")]
    send_after_minutes: Annotated[int, Meta(description="minutes from the start of the campaign to its first message")]


class Experiment(Struct):
    """The A/B test or holdout of a campaign."""

    state: Annotated[
        Literal["draft", "testing", "releasing", "decided"],
        Meta(description="`releasing`: the winner is being given to those who wait"),
    ]
    variants: Annotated[list[Variant], Meta(description="variants in order of their numbers; one for a holdout alone")]
    test_share: Annotated[float, Meta(description="share of the audience that gets the variants")]
    metric: Annotated[Literal["clicks", "opens", "event"], Meta(description="what decides")]
    event: Annotated[str, Meta(description="name of the event that is counted")] | None
    by_amount: Annotated[bool, Meta(description="whether the amounts of the events are compared")]
    decide_after_minutes: Annotated[int, Meta(description="minutes from the first message to the end of the test")]
    decided_by: Annotated[Literal["service", "person"], Meta(description="who decides")]
    too_close: Annotated[
        Literal["leader", "person"], Meta(description="what the service does at the end without a winner")
    ]
    uneven: Annotated[bool, Meta(description="whether better variants get more of the later batches")]
    holdout: Annotated[float, Meta(description="share of the audience that gets nothing and is measured")]
    ends_at: Annotated[Moment, Meta(description="when the test ends; null before the send")] | None
    winner: Annotated[int, Meta(description="number of the variant that those who waited get")] | None
    chosen_by: Annotated[str, Meta(description="`service`, or the user or API key that chose the winner")] | None
    chosen_at: Annotated[Moment, Meta(description="when it was decided")] | None


class SnapshotProgress(Struct):
    """Progress of the audience snapshot; `total` is null until the audience is counted."""

    done: Annotated[int, Meta(description="number of recipients stored so far")]
    total: Annotated[int, Meta(description="total number of recipients; null until they are counted")] | None


class Waiting(Struct):
    """The reason why all or some messages of a campaign wait."""

    reason: Annotated[
        str,
        Meta(
            description="reason code: sending_stopped, stop_file, paused, scheduled, held, storage, "
            "unreachable, warm_up, hour_limit, group, retries, quiet_hours, parts_per_day; more "
            "may follow"
        ),
    ]
    text: Annotated[str, Meta(description="the same as a sentence")]
    until: Annotated[Moment, Meta(description="when sending resumes by itself; null if unknown")] | None


class Campaign(Struct):
    """A message to many contacts."""

    id: int
    account_id: int
    status: Annotated[Literal["draft", "active", "paused", "completed"], Meta(description="status")]
    phase: Annotated[
        Literal["draft", "scheduled", "holding", "sending", "paused", "completed", "cancelled"],
        Meta(description="status in finer detail"),
    ]
    approval_state: Annotated[
        Literal["pending_review", "approved", "rejected"], Meta(description="approval state of the current content")
    ]
    approval_note: Annotated[str, Meta(description="note of the user who rejected it")] | None
    asked_at: Annotated[Moment, Meta(description="since when it waits for approval; null if it does not")] | None
    channel: Literal["email", "sms"]
    name: str
    data: Annotated[Json, Meta(description="custom data as JSON of at most 32 KiB; a write replaces all of it")]
    tracking: bool
    scheduled_at: Annotated[Moment, Meta(description="when to send, kept afterwards; null if no time was set")] | None
    sent_count: Annotated[
        int, Meta(description="number of messages ever accepted by the next hop, without tests; it never decreases")
    ]
    audience_count: Annotated[int, Meta(description="number of recipients stored when the campaign was sent")]
    freezing: (
        Annotated[
            SnapshotProgress,
            Meta(description="progress of storing a large audience; null if completed or not started"),
        ]
        | None
    )
    stats: Annotated[Stats, Meta(description="number of recipients by status")]
    editable: Annotated[bool, Meta(description="whether content, audience, channel and time can still be changed")]
    pause_reason: (
        Annotated[str, Meta(description="why the campaign was paused automatically; null if a user paused it")] | None
    )
    waiting: Annotated[Waiting, Meta(description="why sending waits; null if it does not")] | None
    cancelled_at: Annotated[Moment, Meta(description="when the campaign was cancelled")] | None
    created_at: Moment
    updated_at: Moment
    trigger: Annotated[Trigger, Meta(description="audience of the campaign")]
    template: Annotated[Template, Meta(description="content of the campaign")]
    templates: Annotated[list[Template], Meta(description="list with the one template")]
    experiment: Annotated[Experiment, Meta(description="A/B test or holdout; null for none")] | None


# They are stored by `sending/messages/ledger.py` (`DeliveryError.kind`), `outcomes.py` beside it, and
# `inbound/delivery_reports.py`.
_ERROR_CODES = (
    "last failure of the message: `temporary`, `throttled` or `unreachable` (tried again); `client_rejected`, "
    "`sender_rejected` or `unauthenticated` (login, sender or authentication rejected); `refused` or `permanent` "
    "(recipient or message rejected), `expired` (retries ended), `returned` (bounced later), `uncertain` or `in_doubt` "
    "(reply lost)"
)


class MessageError(Struct):
    """The last error that a mail server or SMS provider reported for a message."""

    code: Annotated[str, Meta(description=_ERROR_CODES)]
    smtp: Annotated[int, Meta(description="SMTP reply code")] | None
    enhanced: Annotated[str, Meta(description="enhanced status code (RFC 3463)")] | None
    text: Annotated[str, Meta(description="response of the server")] | None


class Message(Struct, rename={"from_": "from"}):
    """An email or SMS to one address."""

    id: int
    account_id: int
    attempts: Annotated[int, Meta(description="number of attempts")]
    contact_id: Annotated[int, Meta(description="id of the contact; null if there is none or it was deleted")] | None
    campaign_id: Annotated[int, Meta(description="id of the campaign; null if there is none")] | None
    flow_id: Annotated[int, Meta(description="id of the flow; null if there is none")] | None
    step_id: Annotated[int, Meta(description="id of the flow step that sent the message; null if there is none")] | None
    template_id: (
        Annotated[
            int, Meta(description="id of the template of the message; null if its content was given in the request")
        ]
        | None
    )
    segments: int | None
    channel: Literal["email", "sms"]
    status: Annotated[
        Status,
        Meta(
            description="status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may "
            "still change a final status"
        ),
    ]
    provider: Annotated[str, Meta(description="transport of the message")]
    source_type: Annotated[
        Literal["transactional", "campaign", "flow", "test", "system"],
        Meta(description="kind of source of the message"),
    ]
    to: Annotated[str, Meta(description="recipient; null once erased")] | None
    from_: Annotated[str, Meta(description="sender; null until the message is rendered")] | None
    reply_to: str | None
    subject: (
        Annotated[
            str,
            Meta(
                description="subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its "
                "merge tags, and null for campaigns and flows"
            ),
        ]
        | None
    )
    skip_reason: (
        Annotated[
            str,
            Meta(
                description="why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; "
                "more may follow"
            ),
        ]
        | None
    )
    source_name: Annotated[str, Meta(description="name of the campaign or flow")] | None
    provider_id: Annotated[str, Meta(description="id of the message at the provider")] | None
    idempotency_key: Annotated[str, Meta(description="`Idempotency-Key` of the request")] | None
    internet_message_id: Annotated[str, Meta(description="Message-ID header")] | None
    transactional: Annotated[
        bool, Meta(description="whether the message is sent without consent, footer and tracking, as receipts are")
    ]
    test: bool
    tags: Annotated[Json, Meta(description="tags of the message")]
    error: Annotated[MessageError, Meta(description="last rejection; null if there is none")] | None
    next_attempt_at: Annotated[Moment, Meta(description="time of the next attempt; null if there is none")] | None
    sent_at: Annotated[Moment, Meta(description="when the message was sent")] | None
    delivered_at: Annotated[Moment, Meta(description="when the message was reported as delivered")] | None
    opened_at: Annotated[Moment, Meta(description="when a person first opened the message")] | None
    clicked_at: Annotated[Moment, Meta(description="when a person first clicked a link")] | None
    variant: (
        Annotated[
            int,
            Meta(
                description="number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: "
                "held out; null without a test"
            ),
        ]
        | None
    )
    bounced_at: Annotated[Moment, Meta(description="when the message was reported as undeliverable")] | None
    created_at: Moment
    updated_at: Moment


class MessageRecipient(Struct):
    """One recipient of a message to several recipients. Each of them has a message of its own, with its own outcome."""

    id: Annotated[int, Meta(description="id of the message to this recipient")]
    kind: Annotated[Literal["to", "cc", "bcc"], Meta(description="how the recipient was given")]
    address: Annotated[str, Meta(description="address of the recipient; null once erased")] | None
    status: Annotated[Status, Meta(description="status of the message to this recipient")]
    skip_reason: (
        Annotated[str, Meta(description="why the recipient gets no message, such as `suppressed_hard_bounce`")] | None
    )


class MessageAttachment(Struct):
    """A file that is attached to a message."""

    filename: Annotated[str, Meta(description="file name")]
    content_type: Annotated[str, Meta(description="MIME type")]
    content_id: Annotated[str, Meta(description="id of an inline image in the HTML; null for other files")] | None
    size: Annotated[int, Meta(description="size in bytes")]


class SentMessage(Message, rename={"from_": "from"}):
    """The message to the recipient `to` of a request, with all recipients of the request."""

    recipients: Annotated[list[MessageRecipient], Meta(description="all recipients, that of `to` first")]
    attachments: Annotated[list[MessageAttachment], Meta(description="attached files")]


class MessageDetail(SentMessage, rename={"from_": "from"}):
    """A message with its content and events, and all recipients of its request."""

    html: (
        Annotated[
            str,
            Meta(
                description="HTML content as sent; null for SMS, for messages that were never rendered, and, without "
                "the scope `contacts:read`, for messages to a contact"
            ),
        ]
        | None
    )
    text: (
        Annotated[
            str,
            Meta(
                description="plain text content as sent; null, without the scope `contacts:read`, for messages to a "
                "contact"
            ),
        ]
        | None
    )
    headers: Annotated[dict[str, str], Meta(description="custom headers")]
    events: Annotated[list[Event], Meta(description="latest events of the message, newest first, at most 100")]


S = TypeVar("S", bound=Struct)


@cache
def _list_fields(kind: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Return (name, is_time) for each field of a Struct. A field whose name ends in `_at` is a time."""
    return tuple((name, name.endswith("_at")) for name in kind.__struct_fields__)


def build_from_row(kind: type[S], row: Any, **values: Any) -> S:
    """Build a Struct whose fields are taken from `values`, or else from the row's attributes of the same names.

    Times of the row, in milliseconds, become ISO texts.
    """
    # Peewee's `__data__` is a plain dict of the columns. Reading it avoids thousands of descriptor calls per page.
    stored = getattr(row, "__data__", values)
    for name, is_time in _list_fields(kind):
        if name not in values:
            value = stored[name] if name in stored else getattr(row, name)
            values[name] = iso(value) if is_time and value is not None else value
    return kind(**values)


def serialize_channel(row: models.Channel) -> Channel:
    """Return the API representation of a channel."""
    stored = row.__data__.get
    return Channel(
        id=row.id, contact_id=row.contact_id, kind=stored("kind"), value=stored("value"),
        subscribed=stored("subscribed"), verified=stored("verified_at") is not None,
        opt_in_at=iso(stored("opt_in_at")), opt_out_at=iso(stored("opt_out_at")), opted_out_by=stored("opted_out_by"),
        suppression_reason=stored("suppression"), sent_count=stored("sent_count"), fail_count=stored("fail_count"),
        data=stored("data"), created_at=iso(stored("created_at")) or "", updated_at=iso(stored("updated_at")) or "",
    )  # fmt: skip


def _contact_values(row: models.Contact) -> dict[str, Any]:
    emails = [channel for channel in row.channels if channel.kind == "email"]
    phones = [channel for channel in row.channels if channel.kind == "phone"]
    first = (emails or phones or [None])[0]
    status = "unverified"
    if first is not None:
        status = "suppressed" if first.suppression else "verified" if first.verified_at else "unverified"
    stored = row.__data__.get
    data = stored("data")
    enrichment = (data or {}).get("enrichment")
    return {
        "id": row.id, "uuid": stored("uuid"), "first_name": stored("first_name"), "last_name": stored("last_name"),
        "source": stored("source"), "country_code": stored("country_code"),
        "language": stored("language"), "data": data,
        "subscribed_email": any(channel.subscribed for channel in emails),
        "subscribed_phone": any(channel.subscribed for channel in phones),
        "sendable_email": any(is_sendable(channel) for channel in emails),
        "sendable_phone": any(is_sendable(channel) for channel in phones),
        "verification_status": status,
        "enrichment_status": "enriched" if isinstance(enrichment, dict) and enrichment else "not_enriched",
        "tracking": stored("tracking"), "list_ids": row.list_ids,
        "last_interacted_at": iso(stored("last_interacted_at")), "created_at": iso(stored("created_at")),
        "updated_at": iso(stored("updated_at")), "channels": [serialize_channel(channel) for channel in row.channels],
    }  # fmt: skip


def serialize_contact(row: models.Contact) -> Contact:
    """Return the API representation of a contact, which must be loaded with its channels and lists."""
    return Contact(**_contact_values(row))


def serialize_written_contact(row: models.Contact, kept_opt_out: list[str]) -> ContactWritten:
    """Return the API representation of a created or updated contact.

    `kept_opt_out` are the addresses and lists (`list:5`) whose opt-outs the request did not lift.
    """
    return ContactWritten(**_contact_values(row), kept_opt_out=kept_opt_out)


def serialize_list(row: models.ContactList, sendable: dict[str, int]) -> ContactList:
    """Return the API representation of a list; `sendable` has its number of sendable members by channel."""
    return build_from_row(ContactList, row, sendable_count=Sendable(**sendable))


def serialize_template(row: models.Template) -> Template:
    """Return the API representation of a template."""
    return build_from_row(Template, row, languages=sorted(row.translations or {}))


def serialize_trigger(row: models.Trigger) -> Trigger:
    """Return the API representation of a campaign's trigger."""
    return build_from_row(Trigger, row)


def serialize_experiment(setup: Setup | None) -> Experiment | None:
    """Return the API representation of the test of a campaign."""
    if setup is None:
        return None
    row = setup.experiment
    return build_from_row(
        Experiment, row, variants=[_serialize_variant(variant) for variant in setup.variants],
        ends_at=iso(row.decide_at), chosen_at=iso(row.decided_at),
    )  # fmt: skip


def _serialize_variant(variant: models.Variant) -> Variant:
    own = {name: getattr(variant.template, name) if variant.number > 1 else None for name in TEXT_FIELDS}
    return build_from_row(Variant, variant, has_own_content=has_own_content(variant), **own)


def serialize_campaign(row: models.Campaign) -> Campaign:
    """Return the API representation of a campaign, which must be loaded with its trigger, template and counts."""
    content, reason = serialize_template(row.template), row.waiting
    return build_from_row(
        Campaign, row, waiting=reason and Waiting(reason.reason, reason.text, iso(reason.until)),
        stats=Stats(**row.stats), editable=is_editable(row), trigger=serialize_trigger(row.trigger),
        template=content, templates=[content], experiment=serialize_experiment(row.setup),
        freezing=SnapshotProgress(snapshot["done"], snapshot["total"]) if (snapshot := row.pending_snapshot) else None,
    )  # fmt: skip


def _message_values(row: models.Message) -> dict[str, Any]:
    error = None
    if row.error_code is not None:
        error = MessageError(row.error_code, row.error_smtp, row.error_enhanced, row.error_text)
    is_open = row.status in ("queued", "held")
    return {
        "to": row.recipient, "from_": row.sender or None, "tags": row.tags or {}, "error": error,
        # A queued message without a due time belongs to a paused flow and waits until the flow is resumed.
        "next_attempt_at": iso(max(row.due_at, row.created_at)) if is_open and row.due_at is not None else None,
        "source_name": getattr(row, "source_name", None),
    }  # fmt: skip


def serialize_message(row: models.Message) -> Message:
    """Return the API representation of a message without its content."""
    return build_from_row(Message, row, **_message_values(row))


class MessageParts(NamedTuple):
    """The rows of all recipients of a message, and of its attached files."""

    copies: Iterable[models.Message]
    files: Iterable[models.Attachment]


def serialize_sent_message(row: models.Message, parts: MessageParts) -> SentMessage:
    """Return the API representation of a message with its recipients and attached files."""
    return build_from_row(SentMessage, row, **_serialize_parts(parts), **_message_values(row))


def _serialize_parts(parts: MessageParts) -> dict[str, Any]:
    attachments = [build_from_row(MessageAttachment, file) for file in parts.files]
    return {"recipients": _serialize_recipients(parts.copies), "attachments": attachments}


def _serialize_recipients(copies: Iterable[models.Message]) -> list[MessageRecipient]:
    statuses: list[tuple[models.Message, Any]] = [(copy, copy.status) for copy in copies]
    return [MessageRecipient(copy.id, copy.kind, copy.recipient, status, copy.skip_reason) for copy, status in statuses]


def serialize_message_detail(
    row: models.Message, content: Any, events: list[models.Event], parts: MessageParts
) -> MessageDetail:
    """Return the API representation of a message with its content, events, recipients and attached files.

    `content` has the keys `html`, `text` and `headers`.
    """
    return build_from_row(
        MessageDetail, row, html=content["html"], text=content["text"], headers=content["headers"],
        events=[serialize_event(event) for event in events], **_serialize_parts(parts), **_message_values(row),
    )  # fmt: skip


serialize_event = listing.shape_event
