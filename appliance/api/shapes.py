"""What the API answers, as Structs: the same declarations make the bodies and the published document."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.core.fields import named
from appliance.events.shape import Event as Event
from appliance.events.shape import Moment as Moment
from appliance.sending.messages.ledger import Status

Json = dict[str, Any]
Design = Annotated[Json, named("Design")]


class Channel(Struct):
    """An address of a contact."""

    id: int
    contact_id: int
    kind: Literal["email", "phone"]
    value: str
    subscribed: bool
    verified: bool
    opt_in_at: Moment | None
    opt_out_at: Moment | None
    opted_out_by: Literal["recipient", "operator"] | None
    suppression_reason: str | None
    sent_count: int
    fail_count: int
    data: Json
    created_at: Moment
    updated_at: Moment


class Contact(Struct):
    """A person."""

    id: int
    uuid: Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
    first_name: str | None
    last_name: str | None
    source: str | None
    country_code: str | None
    data: Json
    subscribed_phone: bool
    subscribed_email: bool
    sendable_phone: bool
    sendable_email: bool
    verification_status: Literal["verified", "suppressed", "unverified"]
    enrichment_status: Literal["enriched", "not_enriched"]
    tracking: Literal["full", "aggregate", "none"]
    list_ids: list[int]
    last_interacted_at: Moment | None
    created_at: Moment
    updated_at: Moment
    channels: list[Channel]


class ContactWritten(Contact):
    """A contact just written; `kept_opt_out` names what a write did not lift."""

    kept_opt_out: list[str]


class Sendable(Struct):
    """How many members marketing may go to, by channel."""

    email: int
    sms: int


class ContactList(Struct):
    """A list of contacts."""

    id: int
    account_id: int
    name: str
    contacts_count: int
    sendable_count: Sendable
    segment_id: int | None
    stale: bool
    double_opt_in: bool
    public: bool
    last_populated_at: Moment | None
    created_at: Moment
    updated_at: Moment


class Template(Struct):
    """What one message says."""

    id: int
    name: str | None
    flow_id: int | None
    action_id: int | None
    channel: Literal["email", "sms"]
    subject: str | None
    body: str | None
    preheader: str | None
    from_name: str | None
    from_email: str | None
    reply_to: str | None
    design: Design
    variables: Json
    created_at: Moment
    updated_at: Moment


class Trigger(Struct):
    """What starts a campaign, and for whom."""

    id: int
    flow_id: int
    event: str
    segment_id: int | None
    contact_list_id: int | None
    data: Json
    triggered_count: int
    last_triggered_at: Moment | None
    created_at: Moment
    updated_at: Moment


class Stats(Struct):
    """The ledger's sums: audience is the sum of pending and every final status."""

    audience: int
    pending: int
    sent: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    skipped: int
    cancelled: int
    uncertain: int
    accepted: int


class Freezing(Struct):
    """How many people of a large audience have their row already; `total` is null until they are counted."""

    done: int
    total: int | None


class Waiting(Struct):
    """Why a campaign does not move, or not all of it."""

    reason: Annotated[
        str,
        Meta(
            description="sending_stopped, stop_file, paused, scheduled, held, storage, unreachable, warm_up, "
            "hour_limit, group, retries, quiet_hours, parts_per_day; more may follow"
        ),
    ]
    text: str
    until: Moment | None


class Campaign(Struct):
    """One message to many people."""

    id: int
    account_id: int
    status: Literal["draft", "active", "paused", "completed"]
    phase: Literal["draft", "scheduled", "holding", "sending", "paused", "completed", "cancelled"]
    approval_state: Literal["pending_review", "approved", "rejected"]
    approval_note: str | None
    asked_at: Moment | None
    channel: Literal["email", "sms"]
    name: str
    data: Json
    tracking: bool
    scheduled_at: Moment | None
    sent_count: int
    audience_count: int
    freezing: Freezing | None
    stats: Stats
    editable: bool
    pause_reason: str | None
    waiting: Waiting | None
    cancelled_at: Moment | None
    created_at: Moment
    updated_at: Moment
    trigger: Trigger
    template: Template
    templates: list[Template]


class MessageError(Struct):
    """The other side's words."""

    code: str
    smtp: int | None
    enhanced: str | None
    text: str | None


class Message(Struct, rename={"from_": "from"}):
    """One message to one address."""

    id: int
    account_id: int
    attempts: int
    contact_id: int | None
    campaign_id: int | None
    flow_id: int | None
    step_id: int | None
    template_id: int | None
    segments: int | None
    channel: Literal["email", "sms"]
    status: Status
    provider: str
    source_type: Literal["transactional", "campaign", "flow", "test", "system"]
    to: str | None
    from_: str | None
    reply_to: str | None
    subject: str | None
    skip_reason: str | None
    source_name: str | None
    provider_id: str | None
    idempotency_key: str | None
    internet_message_id: str | None
    transactional: bool
    test: bool
    tags: Json
    error: MessageError | None
    next_attempt_at: Moment | None
    sent_at: Moment | None
    delivered_at: Moment | None
    opened_at: Moment | None
    clicked_at: Moment | None
    bounced_at: Moment | None
    created_at: Moment
    updated_at: Moment


class MessageDetail(Message, rename={"from_": "from"}):
    """A message with what it said and what happened to it."""

    html: str | None
    text: str | None
    headers: dict[str, str]
    events: list[Event]
