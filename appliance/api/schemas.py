"""Response Structs that several endpoints share, and functions that create them from rows of the database."""

from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from appliance.audience.contacts.store import is_sendable
from appliance.campaigns import repeats
from appliance.campaigns.variants import Setup, has_own_content
from appliance.content.designs import utm
from appliance.content.templates.store import is_editable
from appliance.content.templates.variant_content import TEXT_FIELDS
from appliance.core import clock
from appliance.core.clock import iso
from appliance.core.validation import schema_name
from appliance.events import listing
from appliance.events.listing import Moment as Moment
from appliance.events.listing import RecordedEvent as RecordedEvent
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


class SendableCount(Struct):
    """The number of members that may receive marketing, by channel."""

    email: Annotated[int, Meta(description="number of contacts that can be sent email")]
    sms: Annotated[int, Meta(description="number of contacts that can be sent SMS")]


class ContactList(Struct):
    """A list of contacts."""

    id: int
    account_id: int
    name: Annotated[str, Meta(description="name of the list, unique in the account regardless of case")]
    contacts_count: Annotated[int, Meta(description="number of contacts in the list")]
    sendable_count: Annotated[
        SendableCount, Meta(description="number of contacts in the list that can be sent marketing")
    ]
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
    data: Annotated[Json, schema_name("CampaignTriggerData"), Meta(description="further parts of the audience")]
    triggered_count: Annotated[int, Meta(description="number of times that it was triggered")]
    last_triggered_at: Annotated[Moment, Meta(description="when it was last triggered; null for never")] | None
    created_at: Moment
    updated_at: Moment


class CampaignStats(Struct):
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


class CampaignWait(Struct):
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


class Utm(Struct):
    """The UTM parameters of links; one that is null is not added."""

    source: Annotated[str, Meta(description="`utm_source`, such as `newsletter`")] | None
    medium: Annotated[str, Meta(description="`utm_medium`, such as `email`")] | None
    campaign: Annotated[str, Meta(description="`utm_campaign`, such as `{{ campaign.name }}`")] | None
    term: Annotated[str, Meta(description="`utm_term`")] | None
    content: Annotated[str, Meta(description="`utm_content`")] | None


def serialize_utm(stored: dict[str, str] | None) -> Utm | None:
    """Return the API representation of stored UTM parameters, None for none."""
    return None if stored is None else Utm(*(stored.get(name) for name in utm.NAMES))


class Repeat(Struct):
    """When a campaign repeats, in the time zone of the account."""

    every: Annotated[Literal["day", "week", "month"], Meta(description="how often it repeats")]
    at: Annotated[str, Meta(description="time of day")]
    weekdays: Annotated[list[str], Meta(description="days of the week, or the one day of `week_of_month`")]
    day_of_month: Annotated[int, Meta(description="day of the month, or the last day of a shorter month")] | None
    week_of_month: Annotated[str, Meta(description="which of the days in `weekdays` of a month")] | None
    ends_at: Annotated[Moment, Meta(description="time after which it does not repeat")] | None
    only_if_changed: Annotated[
        bool, Meta(description="whether a date is skipped if the content was not changed since the last send")
    ]
    next_at: Annotated[list[Moment], Meta(description="the next dates, at most three")]


def serialize_repeat(repeat: repeats.Repeat | None) -> Repeat | None:
    """Return the API representation of a repetition, None for none."""
    if repeat is None:
        return None
    dates = [iso(moment) or "" for moment in repeat.list_dates(clock.now_ms(), repeats.SHOWN_DATES)]
    rule = repeat.rule
    return Repeat(
        rule.every, rule.at, list(rule.weekdays), rule.day_of_month, rule.week_of_month, iso(repeat.ends_at),
        repeat.only_if_changed, dates,
    )  # fmt: skip


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
    utm: Annotated[Utm, Meta(description="UTM parameters of the links; null for those of the account")] | None
    scheduled_at: Annotated[Moment, Meta(description="when to send, kept afterwards; null if no time was set")] | None
    local_time: (
        Annotated[
            str,
            Meta(
                description="time on the clock of each recipient at which it is sent, such as `2026-12-01T09:00`; null "
                "if all get it at the same moment"
            ),
        ]
        | None
    )
    best_hour_until: (
        Annotated[
            int,
            Meta(
                description="until which hour of that day each recipient gets it, at the best hour of their own from "
                "`local_time` on; null if all get it at `local_time`"
            ),
        ]
        | None
    )
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
    stats: Annotated[CampaignStats, Meta(description="number of recipients by status")]
    editable: Annotated[bool, Meta(description="whether content, audience, channel and time can still be changed")]
    pause_reason: (
        Annotated[str, Meta(description="why the campaign was paused automatically; null if a user paused it")] | None
    )
    waiting: Annotated[CampaignWait, Meta(description="why sending waits; null if it does not")] | None
    cancelled_at: Annotated[Moment, Meta(description="when the campaign was cancelled")] | None
    created_at: Moment
    updated_at: Moment
    trigger: Annotated[Trigger, Meta(description="audience of the campaign")]
    template: Annotated[Template, Meta(description="content of the campaign")]
    templates: Annotated[list[Template], Meta(description="list with the one template")]
    experiment: Annotated[Experiment, Meta(description="A/B test or holdout; null for none")] | None
    repeat: Annotated[Repeat, Meta(description="dates at which a copy is sent; null for none")] | None
    series_id: (
        Annotated[int, Meta(description="id of the repeating campaign that this one is a copy of; null for others")]
        | None
    )


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
    return build_from_row(ContactList, row, sendable_count=SendableCount(**sendable))


def serialize_template(row: models.Template) -> Template:
    """Return the API representation of a template."""
    return build_from_row(Template, row, languages=sorted(row.translations or {}))


def serialize_trigger(row: models.Trigger) -> Trigger:
    """Return the API representation of a campaign's trigger."""
    return build_from_row(Trigger, row)


def serialize_experiment(setup: Setup | None) -> Experiment | None:
    """Return the API representation of the A/B test or holdout of a campaign, or None if it has none."""
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
        Campaign, row, waiting=reason and CampaignWait(reason.reason, reason.text, iso(reason.until)),
        stats=CampaignStats(**row.stats), editable=is_editable(row), trigger=serialize_trigger(row.trigger),
        template=content, templates=[content], experiment=serialize_experiment(row.setup),
        utm=serialize_utm(row.utm),
        repeat=serialize_repeat(row.repeat), series_id=repeats.find_series_campaign(row.id),
        freezing=SnapshotProgress(snapshot["done"], snapshot["total"]) if (snapshot := row.pending_snapshot) else None,
    )  # fmt: skip


serialize_event = listing.shape_event
