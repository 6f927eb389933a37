"""The types of requests and responses, which are plain dicts at run time.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class Account(TypedDict):
    """An account with its settings, capabilities and usage, and what blocks sending."""

    id: int
    """Unique id; ids ascend and are never reused."""

    base_url: str
    """URL of the installation: of its interface and of the API."""

    public_url: str
    """URL with which links in messages, forms and images begin: the address that the operator has set for this
    account, else `base_url`.
    """

    version: str
    """Version of the service."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    name: str
    """Name of the account."""

    time_zone: str
    """Time zone for dates without a time and for times of day, such as `Europe/Berlin`."""

    locale: str
    """Language of the pages for recipients, such as `en`."""

    country_code: str | None
    """Two-letter country code that applies to phone numbers without a country code in imports, forms and pages."""

    email_from_name: str | None
    """Default sender name of emails."""

    email_from_email: str | None
    """Default sender address of emails."""

    email_reply_to: str | None
    """Default address for replies to emails."""

    sms_from: str | None
    """Sender number or name of SMS."""

    test_email_recipients: list[str]
    """Recipients of test emails for which no address is given."""

    can_send: bool
    """True if nothing blocks sending."""

    blockers: list[Blocker]
    """Problems that block sending or need attention."""

    using_sandbox: bool
    """True if email is captured and does not leave the machine."""

    domain_verified: bool
    """True if at least one sending domain is verified."""

    transport: Transports
    """Transports for `email` and `sms`."""

    capabilities: Capabilities
    """Features of this installation: `email`, `sms`, `tracking`, `inbound`."""

    onboarding: Onboarding
    """Onboarding steps and progress."""

    approval_required: bool
    """Whether campaigns and flows need approval before they are sent."""

    approval_by_another: bool
    """Whether a user other than author and requester must approve, if there is one."""

    block_on_missing_variable: bool
    """Whether a merge tag without a value blocks a campaign."""

    transactional_allowed: bool
    """Whether messages that need no consent, such as receipts, may be sent."""

    sending_stopped: bool
    """Whether a user, or the restore of a backup, has stopped all sending; new sends are accepted and wait."""

    stop_reason: str | None
    """Reason; `restored` after a restore; null if none was given."""

    frequency_cap: FrequencyCap | None
    """Maximum number of marketing messages per contact; null for no limit."""

    control_share: float | None
    """Share of contacts who get no campaigns, to be measured; null for none."""

    attribution_days: int
    """Attribution window: for how many days after a click orders and other custom events count as its result; in a
    replay of a flow, after a message.
    """

    utm: Utm | None
    """UTM parameters of the links in campaigns and flows; null for none."""

    sms_quiet_hours: QuietHours | None
    """Hours in which no marketing SMS is sent; null for none."""

    marketing_calendar: MarketingCalendar | None
    """When marketing email may be sent; null for any time."""

    sms_opt_out_hint: str | None
    """Text appended to marketing SMS, such as `STOP to opt out`; null for none."""

    sms_opt_out_hints: dict[str, str]
    """The same text in other languages, by language tag, for contacts with them."""

    privacy_ip: Literal["full", "none", "truncated"]
    """How visitors' IP addresses are stored."""

    counts: dict[str, int]
    """Number of objects of each kind."""

    usage: AccountUsage
    """Recent sending volume."""

    brand: Brand
    """Brand of the account."""


class AccountUsage(TypedDict):
    """Messages sent in the last 30 days, without tests."""

    since: str
    """Start of the period."""

    email_sent: int
    """Number of emails sent."""

    sms_sent: int
    """Number of SMS sent."""

    sms_parts: int
    """Number of SMS parts sent."""


class AccountWrite(TypedDict):
    """The writable fields of an account; fields that are not given stay unchanged."""

    name: NotRequired[str]
    """Name of the account."""

    time_zone: NotRequired[str]
    """Time zone for dates without a time and for times of day, such as `Europe/Berlin`."""

    locale: NotRequired[str]
    """Language of the pages for recipients, such as `en`."""

    country_code: NotRequired[str | None]
    """Two-letter country code that applies to phone numbers without a country code in imports, forms and pages."""

    email_from_name: NotRequired[str | None]
    """Default sender name of emails."""

    email_from_email: NotRequired[str | None]
    """Default sender address of emails."""

    email_reply_to: NotRequired[str | None]
    """Default address for replies to emails."""

    approval_required: NotRequired[bool]
    """Whether campaigns and flows need approval before they are sent."""

    approval_by_another: NotRequired[bool]
    """Whether a user other than author and requester must approve, if there is one."""

    sending_stopped: NotRequired[bool]
    """Whether all sending is stopped; new sends are accepted and wait. The restore of a backup stops it, too; false
    lets everything go out that waits.
    """

    stop_reason: NotRequired[str | None]
    """Reason; null if none was given."""

    frequency_cap: NotRequired[FrequencyCap | None]
    """Maximum number of marketing messages per contact; null for no limit."""

    sms_from: NotRequired[str | None]
    """Phone number in E.164, short code, sender name of up to 11 letters and digits, or SID of a messaging service."""

    sms_quiet_hours: NotRequired[QuietHours | None]
    """Hours in which no marketing SMS is sent; null for none."""

    marketing_calendar: NotRequired[MarketingCalendar | None]
    """When marketing email may be sent; null for any time."""

    sms_opt_out_hint: NotRequired[str | None]
    """Text appended to marketing SMS, such as `STOP to opt out`; null for none."""

    sms_opt_out_hints: NotRequired[dict[str, str]]
    """The same text in other languages, by language tag (`{"de": "STOP zum Abmelden"}`), for contacts with that
    language.
    """

    control_share: NotRequired[float | None]
    """Share of contacts who get no campaigns, so that all campaigns together can be measured; null for none. A
    larger share only adds contacts.
    """

    attribution_days: NotRequired[int]
    """Attribution window: for how many days after a click orders and other custom events count as its result; in a
    replay of a flow, after a message.
    """

    utm: NotRequired[UtmWrite | None]
    """UTM parameters of the links in campaigns and flows; null for none."""

    privacy_ip: NotRequired[Literal["full", "none", "truncated"]]
    """How visitors' IP addresses are stored."""

    test_email_recipients: NotRequired[list[str] | None]
    """Recipients of test emails for which no address is given."""

    block_on_missing_variable: NotRequired[bool]
    """Whether a merge tag without a value blocks a campaign."""

    transactional_allowed: NotRequired[bool]
    """Whether messages that need no consent, such as receipts, may be sent."""


class ActivateRequest(TypedDict):
    """Options for activating a flow: the version that was read, and what happens to messages of a pause."""

    skip_overdue_seconds: NotRequired[int | None]
    """Messages that were due longer ago than this number of seconds are dropped; null to drop none."""

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the object has been changed since then, the response is 409."""


class Agent(TypedDict):
    """An agent: an active API key of this kind, with what it did in the last hour."""

    api_key_id: int
    """Id of its API key."""

    name: str
    """Name of its API key."""

    acts: int
    """Changes and proposals that it made in the last hour."""

    last_used_at: str | None
    """When it made the last request; null for never."""


class Agents(TypedDict):
    """The agents of an account, and whether they are stopped."""

    stopped_at: str | None
    """Since when all agents are stopped; null if they are not."""

    acts_per_hour: int
    """Changes and proposals that each agent may make in an hour."""

    agents: list[Agent]
    """Active agents, newest first."""


class ApiKey(TypedDict):
    """An API key without its secret; `hint` is its last four characters."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name of the key, such as the program that uses it."""

    hint: str
    """Last four characters of the key."""

    scope: str
    """`full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as `contacts:write,events:write`."""

    test: bool
    """True for a test key: everything that it sends is captured and counted nowhere."""

    agent: bool
    """True for the key of an AI agent, which reads, drafts and proposes."""

    created_by: int | None
    """Id of the user who created the key; null if it was created on the command line or the user was deleted."""

    last_used_at: str | None
    """When the key was last used; null for never."""

    smtp_count: int
    """Number of emails that SMTP submission accepted with the key."""

    smtp_last_at: str | None
    """When the last one was accepted; null for never."""

    smtp_hourly_limit: int
    """Recipients of SMTP submission within an hour; 0: no limit."""

    created_at: str
    """When the object was created."""


class ApiKeyWithSecret(TypedDict):
    """A new API key. `key` is shown once."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name of the key, such as the program that uses it."""

    hint: str
    """Last four characters of the key."""

    scope: str
    """`full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as `contacts:write,events:write`."""

    test: bool
    """True for a test key: everything that it sends is captured and counted nowhere."""

    agent: bool
    """True for the key of an AI agent, which reads, drafts and proposes."""

    created_by: int | None
    """Id of the user who created the key; null if it was created on the command line or the user was deleted."""

    last_used_at: str | None
    """When the key was last used; null for never."""

    smtp_count: int
    """Number of emails that SMTP submission accepted with the key."""

    smtp_last_at: str | None
    """When the last one was accepted; null for never."""

    smtp_hourly_limit: int
    """Recipients of SMTP submission within an hour; 0: no limit."""

    created_at: str
    """When the object was created."""

    key: str
    """Key to send after `Bearer`, shown in this response only."""


class ApproveProposal(TypedDict):
    """The approval of a proposal as it was read."""

    version: str
    """`version` as last read."""


class ApproveRequest(TypedDict):
    """The request body of an approval, with the version that was read."""

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the object has been changed since then, the response is 409."""


class ArchiveRequest(TypedDict):
    """Options for archiving a flow: contacts in it stay at their step, unless `take_out` ends their runs."""

    take_out: NotRequired[bool]
    """Whether active runs exit."""


class Assumption(TypedDict):
    """An event that is assumed to happen: at a time, or `after` a number of seconds; by default at the start."""

    event: str
    """Name of the assumed event."""

    after: NotRequired[int]
    """Seconds after the start or, with `step`, after the message of that step was sent."""

    at: NotRequired[str]
    """Time of the event."""

    step: NotRequired[int]
    """Id of the step to whose message the event refers; default: that of the last message sent."""

    data: NotRequired[dict[str, Any]]
    """Data of the event."""

    amount: NotRequired[float]
    """Amount of the event."""


class AttachmentWrite(TypedDict):
    """A file to attach to an email."""

    filename: str
    """File name; types that mail servers reject, such as `.exe`, are rejected."""

    content: str
    """Content in base64; all files together have at most 25 MB."""

    content_type: NotRequired[str | None]
    """MIME type; default: by the file name."""

    content_id: NotRequired[str | None]
    """Id of an inline image, such as `logo` for `<img src="cid:logo">`."""


class AudienceExplanation(TypedDict):
    """Why one contact gets, got or does not get a campaign."""

    campaign_id: int
    """Id of the campaign."""

    contact_id: int
    """Id of the contact."""

    in_audience: bool
    """Whether the contact is in the audience."""

    skip_reason: str | None
    """Why a message to the contact would be skipped; null if it would not."""

    message_id: int | None
    """Id of the message; null if there is none."""

    status: str | None
    """Status of the contact's message; null if there is none."""

    sentence: str
    """Description as a sentence."""

    parts: list[AudiencePart]
    """Results for each list and segment of the audience."""


class AudiencePart(TypedDict):
    """A list or segment of the audience, and whether the contact is in it now."""

    kind: Literal["excluded_list", "excluded_segment", "list", "segment"]
    """Kind."""

    id: int
    """Id of the list or segment."""

    name: str
    """Name."""

    matches: bool
    """Whether the contact belongs to it now."""


class AuditEntry(TypedDict):
    """An entry of the audit log: what an actor, such as `user:7`, did to a subject, such as `campaign:3`."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    actor: str
    """Who did it: `user:7`, `key:3`, `cli`, `recipient`, or `system`."""

    actor_name: str | None
    """Name of the user or key; null if there is none."""

    action: str
    """Action, such as `campaign_send`."""

    subject: str | None
    """Object of the action, such as `campaign:3`; null if there is none."""

    data: dict[str, Any]
    """Details of the action: names and numbers, never a secret or an address."""

    ip: str | None
    """Full IP address; null if unknown."""

    created_at: str
    """When the action happened."""


class BackupFile(TypedDict):
    """A backup on this machine."""

    name: str
    """Name of the file in the directory `backups`."""

    created_at: str
    """When the object was created."""

    size: int
    """Size in bytes."""

    scheduled: bool
    """Whether the service created it, and deletes it when it is old."""


class Backups(TypedDict):
    """The backups of the installation."""

    running: bool
    """Whether a backup on this machine is being created."""

    error: str | None
    """Why the last backup on this machine failed; null if it did not."""

    files: list[BackupFile]
    """Backups on this machine, newest first."""

    copies: CopiesState
    """Copies on another machine."""


class BatchResult(TypedDict):
    """The result of one message of a batch: the message, or the errors that a single request would have got."""

    status: int
    """201: queued; 200: queued before; 409, 422, 429, 500, 503: not queued."""

    message: SentMessage | None
    """The message; null if it was not queued."""

    code: str | None
    """Error code; null if the message was queued."""

    reason: str | None
    """Reason of the error, such as `recipient_suppressed`; often null."""

    errors: dict[str, list[str]]
    """Errors by field; empty if the message was queued."""


class Blocker(TypedDict):
    """A problem that prevents sending (`severity` is `error`), or a warning."""

    code: str
    """Code for programs."""

    severity: str
    """`error` blocks sending, `warning` does not."""

    message: str
    """Explanation for people."""


class BranchCount(TypedDict):
    """The number of contacts that continued with one branch of a step."""

    key: str
    """Key of the branch."""

    label: str
    """Label of the branch."""

    count: NotRequired[int]
    """Number."""


class BranchFigures(TypedDict):
    """The visits of a step that continued with one of its branches."""

    key: str
    """Key of the branch, which is also the outcome of its visits."""

    label: str
    """Label of the branch."""

    count: int
    """Number."""

    people: str
    """Path of the list of these contacts."""


class Brand(TypedDict):
    """The brand of an account: colours, fonts, logo, company and postal address."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    brand_color: str | None
    """Colour of buttons and links, such as `#0a7d52`."""

    text_color: str | None
    """Text colour."""

    bg_color: str | None
    """Background colour."""

    font_heading: str | None
    """Font of headings."""

    font_body: str | None
    """Font of text."""

    style_notes: str | None
    """Description of the visual style."""

    tone: str | None
    """Tone of voice."""

    company_description: str | None
    """Description of the company."""

    industry: str | None
    """Industry of the company."""

    example_copy: list[str] | None
    """Sample texts in the brand's tone."""

    default_header: dict[str, Any]
    """Default properties of headers."""

    default_footer: dict[str, Any]
    """Default properties of footers."""

    default_theme: dict[str, Any]
    """Default theme of designs."""

    physical_address: str | None
    """Postal address, included in every marketing email."""

    company_name: str | None
    """Name of the company."""

    source_url: str | None
    """Always null: no website is read."""

    last_scraped_at: str | None
    """Always null: no website is read."""

    links: list[BrandLink]
    """Links to websites and social profiles."""

    logo: str | None
    """URL of the logo."""

    complete: bool
    """True if `brand_color` and `company_name` are set."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class BrandLink(TypedDict):
    """A link of the brand."""

    url: str
    """URL of the link: http, https or mailto."""

    icon: str
    """Name of the icon."""

    title: str
    """Title of the link."""


class BrandLinkWrite(TypedDict):
    """A link of the brand in a request."""

    url: str
    """URL of the link: http, https or mailto."""

    icon: NotRequired[str | None]
    """Name of the icon."""

    title: NotRequired[str | None]
    """Title of the link."""


class BrandWrite(TypedDict):
    """The writable fields of a brand; an absent field is left unchanged, null clears it."""

    brand_color: NotRequired[str | None]
    """Colour of buttons and links, such as `#0a7d52`."""

    text_color: NotRequired[str | None]
    """Text colour."""

    bg_color: NotRequired[str | None]
    """Background colour."""

    font_heading: NotRequired[str | None]
    """Font of headings."""

    font_body: NotRequired[str | None]
    """Font of text."""

    style_notes: NotRequired[str | None]
    """Description of the visual style."""

    tone: NotRequired[str | None]
    """Tone of voice."""

    company_description: NotRequired[str | None]
    """Description of the company."""

    industry: NotRequired[str | None]
    """Industry of the company."""

    physical_address: NotRequired[str | None]
    """Postal address, included in every marketing email."""

    company_name: NotRequired[str | None]
    """Name of the company."""

    logo: NotRequired[str | None]
    """URL of the image, or `signed_id` of an upload."""

    example_copy: NotRequired[list[str] | None]
    """Sample texts in the brand's tone."""

    links: NotRequired[list[BrandLinkWrite] | None]
    """Links to websites and social profiles."""

    default_header: NotRequired[dict[str, Any] | None]
    """Default properties of headers."""

    default_footer: NotRequired[dict[str, Any] | None]
    """Default properties of footers."""

    default_theme: NotRequired[dict[str, Any] | None]
    """Default theme of designs."""


_BucketKeywords = TypedDict("_BucketKeywords", {"from": "str"})


class Bucket(_BucketKeywords):
    """The number of first opens and first clicks in one hour (in the first two days of a campaign) or one day."""

    until: str
    """End of the interval, exclusive."""

    opened: int
    """Number of recipients who first opened in the interval."""

    clicked: int
    """Number of recipients who first clicked in the interval."""


class BulkAssumption(TypedDict):
    """An event that is assumed to happen to a share of the contacts, by default to all."""

    event: str
    """Name of the assumed event."""

    after: NotRequired[int]
    """Seconds after the start or, with `step`, after the message of that step was sent."""

    at: NotRequired[str]
    """Time of the event."""

    step: NotRequired[int]
    """Id of the step to whose message the event refers; default: that of the last message sent."""

    data: NotRequired[dict[str, Any]]
    """Data of the event."""

    amount: NotRequired[float]
    """Amount of the event."""

    share: NotRequired[float]
    """Share of contacts to which the event happens, from 0 to 1; default: 1."""


class BulkDone(TypedDict):
    """The result of adding contacts to a list and removing contacts from it."""

    added: int
    """Number of contacts added."""

    removed: int
    """Number of contacts removed."""

    unknown: list[int | str]
    """Values that match no contact, as sent."""

    kept_opt_out: list[str]
    """Contacts that had left the list themselves and were not added again."""


class BulkSimulateRequest(TypedDict):
    """A bulk simulation with the contacts that matched the trigger in the last `days` days (default: 90)."""

    days: NotRequired[int]
    """Number of past days whose triggers are simulated."""

    events: NotRequired[list[BulkAssumption] | None]
    """Assumed events."""

    start_at: NotRequired[str | None]
    """Start of the simulation; default: now."""

    until: NotRequired[str | None]
    """Latest end of the simulation."""

    steps: NotRequired[list[FlowStepWrite]]
    """Steps to simulate instead of the stored ones."""


class BulkSimulation(TypedDict):
    """The result of a bulk simulation: how many contacts matched the trigger, and how their simulated runs went."""

    flow_id: int
    """Id of the flow."""

    version: int | None
    """Live version that was simulated; null if the flow is not active or other steps were tried."""

    days: int
    """Number of past days whose triggers are simulated."""

    met: int
    """Number of contacts that met the trigger."""

    rehearsed: int
    """Number of contacts simulated."""

    sampled: bool
    """Whether the simulated contacts are a sample."""

    completed: int
    """Completed runs."""

    exited: int
    """Runs that ended early."""

    live: int
    """Runs that were still active at the end."""

    reasons: dict[str, int]
    """Why contacts exited, with counts."""

    steps: list[StepCount]
    """Results by step."""

    notes: list[str]
    """Limits of the simulation."""

    text: NotRequired[str]
    """Whole result as text."""


class BulkWrite(TypedDict):
    """The contacts to add to and to remove from a list, each by id or email address."""

    add: NotRequired[list[int | str]]
    """Contacts to add, by id or email address."""

    remove: NotRequired[list[int | str]]
    """Contacts to remove, by id or email address."""


class ButtonSection(TypedDict):
    """A section of the type `button`."""

    type: Literal["button"]
    """Section type."""

    props: NotRequired[ButtonSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[ButtonSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class ButtonSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    text_color: NotRequired[str | float | bool | None]
    """Text colour."""

    border_radius: NotRequired[str | float | bool | None]
    """Corner radius."""

    inner_padding: NotRequired[str | float | bool | None]
    """Padding."""

    style: NotRequired[str | float | bool | None]
    """Style."""

    width: NotRequired[str | float | bool | None]
    """Width."""

    note: NotRequired[str | float | bool | None]
    """Text below the button."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class ButtonSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class Campaign(TypedDict):
    """A message to many contacts."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    status: Literal["active", "completed", "draft", "paused"]
    """Status."""

    phase: Literal["cancelled", "completed", "draft", "holding", "paused", "scheduled", "sending"]
    """Status in finer detail."""

    approval_state: Literal["approved", "pending_review", "rejected"]
    """Approval state of the current content."""

    approval_note: str | None
    """Note of the user who rejected it."""

    asked_at: str | None
    """Since when it waits for approval; null if it does not."""

    channel: Literal["email", "sms"]
    """`email` or `sms`."""

    name: str
    """Name."""

    data: dict[str, Any]
    """Custom data as JSON of at most 32 KiB; a write replaces all of it."""

    tracking: bool
    """Whether opens and clicks are tracked."""

    utm: Utm | None
    """UTM parameters of the links; null for those of the account."""

    scheduled_at: str | None
    """When to send, kept afterwards; null if no time was set."""

    local_time: str | None
    """Time on the clock of each recipient at which it is sent, such as `2026-12-01T09:00`; null if all get it at
    the same moment.
    """

    best_hour_until: int | None
    """Until which hour of that day each recipient gets it, at the best hour of their own from `local_time` on; null
    if all get it at `local_time`.
    """

    sent_count: int
    """Number of messages ever accepted by the next hop, without tests; it never decreases."""

    audience_count: int
    """Number of recipients stored when the campaign was sent."""

    freezing: SnapshotProgress | None
    """Progress of storing a large audience; null if completed or not started."""

    stats: CampaignStats
    """Number of recipients by status."""

    editable: bool
    """Whether content, audience, channel and time can still be changed."""

    pause_reason: str | None
    """Why the campaign was paused automatically; null if a user paused it."""

    waiting: CampaignWait | None
    """Why sending waits; null if it does not."""

    cancelled_at: str | None
    """When the campaign was cancelled."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    trigger: Trigger
    """Audience of the campaign."""

    template: Template
    """Content of the campaign."""

    templates: list[Template]
    """List with the one template."""

    experiment: Experiment | None
    """A/B test or holdout; null for none."""

    repeat: Repeat | None
    """Dates at which a copy is sent; null for none."""

    series_id: int | None
    """Id of the repeating campaign that this one is a copy of; null for others."""


class CampaignCopy(TypedDict):
    """The duplicate of a campaign; its default name is the original name with "(copy)" appended."""

    name: NotRequired[str]
    """Name."""


class CampaignCreate(TypedDict):
    """A new campaign; only `name` is required."""

    name: str
    """Name."""

    channel: NotRequired[Literal["email", "sms"]]
    """Channel; default: `email`."""

    scheduled_at: NotRequired[str | None]
    """When to send; it takes effect when the draft is sent."""

    local_time: NotRequired[str | None]
    """When to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and
    `scheduled_at`, which is then the first moment at which it is that time anywhere. null: no local time.
    """

    best_hour_until: NotRequired[int | None]
    """Until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best hour of
    their own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same request.
    null: all get it at `local_time`.
    """

    data: NotRequired[dict[str, Any] | None]
    """Custom data as JSON of at most 32 KiB; a write replaces all of it."""

    tracking: NotRequired[bool]
    """Whether opens and clicks are tracked."""

    utm: NotRequired[UtmWrite | None]
    """UTM parameters of the links; null for those of the account."""

    trigger_attributes: NotRequired[TriggerWrite]
    """Audience of the campaign."""

    template_attributes: NotRequired[Content]
    """Content of the campaign."""

    experiment: NotRequired[ExperimentWrite | None]
    """A/B test or holdout; null for none."""

    repeat: NotRequired[RepeatWrite | None]
    """Dates at which a copy is sent; replaces `local_time` and `scheduled_at`, which is then the next date. null:
    no repetition.
    """

    contact_list_id: NotRequired[int | None]
    """Alias of `trigger_attributes.contact_list_id`; beside it, both must be the same."""

    segment_id: NotRequired[int | None]
    """Alias of `trigger_attributes.segment_id`; beside it, both must be the same."""

    contact_list_ids: NotRequired[list[int]]
    """Alias of `trigger_attributes.data.contact_list_ids`; beside it, both must be the same."""

    exclude_contact_list_ids: NotRequired[list[int]]
    """Alias of `trigger_attributes.data.exclude_contact_list_ids`; beside it, both must be the same."""

    exclude_segment_ids: NotRequired[list[int]]
    """Alias of `trigger_attributes.data.exclude_segment_ids`; beside it, both must be the same."""

    audience_type: NotRequired[Literal["all_contacts", None]]
    """Alias of `trigger_attributes.data.audience_type`; beside it, both must be the same."""

    channelType: NotRequired[Literal["email", "sms"]]
    """Alias of `channel`; beside it, both must be the same."""


class CampaignPatch(TypedDict):
    """A change of a campaign."""

    name: NotRequired[str]
    """Name."""

    channel: NotRequired[Literal["email", "sms"]]
    """`email` or `sms`."""

    scheduled_at: NotRequired[str | None]
    """When to send; null makes a scheduled campaign a draft."""

    local_time: NotRequired[str | None]
    """When to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and
    `scheduled_at`, which is then the first moment at which it is that time anywhere. null: no local time.
    """

    best_hour_until: NotRequired[int | None]
    """Until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best hour of
    their own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same request.
    null: all get it at `local_time`.
    """

    data: NotRequired[dict[str, Any] | None]
    """Custom data as JSON of at most 32 KiB; a write replaces all of it."""

    tracking: NotRequired[bool]
    """Whether opens and clicks are tracked."""

    utm: NotRequired[UtmWrite | None]
    """UTM parameters of the links; null for those of the account."""

    status: NotRequired[Literal["active", "cancelled", "completed", "draft", "live", "paused", "scheduled"]]
    """Changes the status, as the actions do: `live` is `active`, `cancelled` cancels, `scheduled` schedules for
    `scheduled_at`.
    """

    trigger_attributes: NotRequired[TriggerWrite]
    """Audience of the campaign."""

    template_attributes: NotRequired[Content]
    """Content of the campaign."""

    experiment: NotRequired[ExperimentWrite | None]
    """A/B test or holdout; null removes it."""

    repeat: NotRequired[RepeatWrite | None]
    """Dates at which a copy is sent; replaces `local_time` and `scheduled_at`, which is then the next date. null:
    no repetition.
    """

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the object has been changed since then, the response is 409."""


class CampaignReport(TypedDict):
    """The report of a campaign; all figures are from the same moment."""

    campaign_id: int
    """Id of the campaign."""

    tracking: bool
    """Whether opens and clicks are tracked."""

    ledger: LedgerFigures
    """All recipients of the audience, each counted in one term."""

    opens: EngagementFigures
    """Opens."""

    clicks: EngagementFigures
    """Clicks."""

    unsubscribes: RecipientCount
    """Unsubscribes."""

    complaints: RecipientCount
    """Spam complaints."""

    bounces: RecipientCount
    """Bounces."""

    links: list[LinkFigures]
    """Links in the order of the content."""

    domains: list[DomainFigures]
    """Mailbox providers, largest first."""

    transports: list[TransportFigures]
    """Transports that took emails of the campaign, largest first."""

    sms: SmsFigures | None
    """Results for SMS only; null for email."""

    problems: list[ProblemFigures]
    """Reasons why messages were not delivered, most frequent first."""

    over_time: list[Bucket]
    """First opens and first clicks over time."""


class CampaignStats(TypedDict):
    """Message counts by status. `audience` is the sum of `pending` and all final statuses."""

    audience: int
    """Number of recipients in the audience: the sum of `pending` and every final status."""

    pending: int
    """Not yet final: queued, held or sending."""

    sent: int
    """Accepted by the next hop, with no report since."""

    delivered: int
    """Reported as delivered."""

    bounced: int
    """Accepted, and later reported as undeliverable."""

    complained: int
    """Reported as spam."""

    failed: int
    """Rejected permanently, or given up after retries."""

    skipped: int
    """Skipped, each for a reason."""

    cancelled: int
    """Cancelled before they were sent."""

    uncertain: int
    """Unconfirmed: it cannot be known whether the next hop accepted them."""

    accepted: int
    """Accepted by the next hop: sent, delivered, bounced and complained."""


CampaignTriggerData: TypeAlias = dict[str, Any]
"""Further parts of a campaign's audience. Among its keys are `contact_list_ids`, `exclude_contact_list_ids`,
`exclude_segment_ids`, `audience_type`, `confirm_send_to_all`.
"""


class CampaignWait(TypedDict):
    """The reason why all or some messages of a campaign wait."""

    reason: str
    """Reason code: sending_stopped, stop_file, paused, scheduled, held, storage, unreachable, warm_up, hour_limit,
    group, retries, quiet_hours, parts_per_day; more may follow.
    """

    text: str
    """The same as a sentence."""

    until: str | None
    """When sending resumes by itself; null if unknown."""


class Capabilities(TypedDict):
    """What the installation can do with its current configuration."""

    email: bool
    """Whether email can be sent."""

    sms: bool
    """Whether SMS can be sent."""

    tracking: bool
    """Whether opens and clicks are tracked."""

    inbound: bool
    """Whether this installation receives bounces, spam complaints and unsubscribe requests by email."""


class CaptureCleared(TypedDict):
    """The result of deleting all captured messages."""

    deleted: int
    """Number of deleted messages."""


class CapturedHeader(TypedDict):
    """A header of a captured email, decoded."""

    name: str
    """Header name."""

    value: str
    """Decoded header value."""


_CapturedMessageKeywords = TypedDict("_CapturedMessageKeywords", {"from": "str | None"})


class CapturedMessage(_CapturedMessageKeywords):
    """An email or SMS in the built-in inbox; `message_id` is the `id` of its Message."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    channel: Literal["email", "sms"]
    """`email` or `sms`."""

    message_id: int | None
    """Id of the message; null if it was not sent by this installation."""

    to: str
    """Recipient."""

    mail_from: str
    """Return path."""

    subject: str | None
    """Subject line, with merge tags."""

    preview: str | None
    """Beginning of the text."""

    bytes: int
    """Size in bytes."""

    created_at: str
    """When the object was created."""


_CapturedMessageDetailKeywords = TypedDict("_CapturedMessageDetailKeywords", {"from": "str | None"})


class CapturedMessageDetail(_CapturedMessageDetailKeywords):
    """A captured email or SMS with its content; `message` is the current state of the Message that was captured."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    channel: Literal["email", "sms"]
    """`email` or `sms`."""

    message_id: int | None
    """Id of the message; null if it was not sent by this installation."""

    to: str
    """Recipient."""

    mail_from: str
    """Return path."""

    subject: str | None
    """Subject line, with merge tags."""

    preview: str | None
    """Beginning of the text."""

    bytes: int
    """Size in bytes."""

    created_at: str
    """When the object was created."""

    headers: list[CapturedHeader]
    """Headers in their original order."""

    html: str | None
    """HTML content; null if there is none."""

    text: str | None
    """Content as plain text."""

    segments: int | None
    """Number of SMS parts; null for email."""

    alphabet: Literal["GSM-7", "UCS-2"] | None
    """Alphabet of the SMS; null for email."""

    characters: int | None
    """Number of characters of the SMS; null for email."""

    message: Message | None
    """Current state of the message; null if it was deleted."""


class Channel(TypedDict):
    """An email address or phone number of a contact."""

    id: int
    """Unique id; ids ascend and are never reused."""

    contact_id: int
    """Id of the contact."""

    kind: Literal["email", "phone"]
    """Kind."""

    value: str
    """Email address or phone number."""

    subscribed: bool
    """Whether the contact has consented to marketing at this address."""

    verified: bool
    """Whether the address was verified: by confirmation, click, reply or import."""

    opt_in_at: str | None
    """When the contact last opted in; null for never."""

    opt_out_at: str | None
    """When the contact opted out; null if opted in."""

    opted_out_by: Literal["operator", "recipient"] | None
    """Who opted the address out; null if it was not opted out."""

    suppression_reason: str | None
    """Why the address is suppressed; null if it is not."""

    sent_count: int
    """Number of messages to the address accepted by the next hop."""

    fail_count: int
    """Number of messages that failed or bounced."""

    data: dict[str, Any]
    """Custom data of the address."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class ChannelWrite(TypedDict):
    """An address in a request: with `id` it is changed, without `id` added, and with `_destroy` removed."""

    id: NotRequired[int]
    """Id of the address to change; absent for a new one."""

    value: NotRequired[str]
    """Email address or phone number."""

    kind: NotRequired[Literal["email", "phone"]]
    """Kind of the address, which stays as it is; default: email if it contains an @."""

    subscribed: NotRequired[bool]
    """Whether marketing may be sent to the address; true lifts an opt-out."""

    _destroy: NotRequired[bool]
    """True to remove the address."""


class CheckedLink(TypedDict):
    """A link of the message that is broken or was not checked, and why."""

    href: str
    """URL of the link."""

    why: str
    """Description of the problem."""


class ChooseBranch(TypedDict):
    """The choice of the branch of a random split that all contacts take from now on."""

    step: int
    """Id of the random split."""

    branch: NotRequired[str | None]
    """Key of the branch; null goes on with the test."""


class ChooseWinner(TypedDict):
    """The choice of a variant for all recipients who wait."""

    variant: int
    """Number of the variant, from 1."""


class ClickHour(TypedDict):
    """How often a contact clicks at an hour of the day, from which campaigns take their best hour."""

    hour: int
    """Hour of the day on the contact's clock, 0 to 23."""

    clicks: int
    """Number of messages that the contact first clicked in that hour."""


class ColumnsSection(TypedDict):
    """A section of the type `columns`."""

    type: Literal["columns"]
    """Section type."""

    props: NotRequired[ColumnsSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[ColumnsSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class ColumnsSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    columns: NotRequired[list[ColumnsSectionPropsColumn | None] | None]
    """Columns."""

    preset: NotRequired[str | float | bool | None]
    """Column widths."""

    gap: NotRequired[str | float | bool | None]
    """Gap."""

    stack_on_phone: NotRequired[str | float | bool | None]
    """Stack on phones."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class ColumnsSectionPropsColumn(TypedDict):
    """ColumnsSectionPropsColumn."""

    width: NotRequired[str | float | bool | None]
    """Width."""

    sections: NotRequired[list[DesignSection] | None]
    """Sections."""


class ColumnsSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class ConfidenceInterval(TypedDict):
    """An estimate with an interval that holds however often one looks (95 %); null while there is no figure yet."""

    estimate: float | None
    """Estimate."""

    low: float | None
    """Lower end of the interval."""

    high: float | None
    """Upper end of the interval."""


class ConnectionCount(TypedDict):
    """The number of open connections and its limit."""

    open: int
    """Number of open connections."""

    limit: int
    """Maximum number of connections."""


class ConsentRow(TypedDict):
    """A consent record: who agreed or refused, how, when, from where and to which text."""

    id: int
    """Unique id; ids ascend and are never reused."""

    contact_id: int | None
    """Id of the contact; null if there is none or it was deleted."""

    kind: Literal["email", "phone"]
    """Kind of the address."""

    address: str | None
    """Address; null once the contact is erased."""

    act: Literal[
        "confirmed",
        "erase_requested",
        "import_undone",
        "lifted",
        "list_joined",
        "list_left",
        "opt_in",
        "opt_out",
        "requested",
        "suppressed",
        "tracking",
    ]
    """What changed."""

    by: Literal["operator", "recipient", "service"]
    """Who made the change."""

    source: str
    """How the change was made, such as `api`, `form`, `import` or `link`."""

    actor: str | None
    """Who made the change, such as `key:3`, `user:7` or `recipient`; null if not recorded."""

    list_id: int | None
    """Id of the list; null if there is none."""

    ip: str | None
    """IP address of the request, stored as the account's `privacy_ip` says."""

    user_agent: str | None
    """User-Agent header of the request."""

    text: str | None
    """Consent text that the contact saw or is recorded to have agreed to."""

    data: dict[str, Any]
    """Further data."""

    created_at: str
    """When the object was created."""


class Contact(TypedDict):
    """A person with email addresses and phone numbers, consent, and custom data."""

    id: int
    """Unique id; ids ascend and are never reused."""

    uuid: str
    """Random unique identifier that reveals nothing about the contact."""

    first_name: str | None
    """First name."""

    last_name: str | None
    """Last name."""

    source: str | None
    """Origin of the contact, as free text."""

    country_code: str | None
    """Two-letter country code; default: that of the phone number."""

    language: str | None
    """Language tag such as de or pt-BR; null if it is not known."""

    data: dict[str, Any]
    """Custom data as JSON of at most 32 KiB; `tags` is a list of strings."""

    subscribed_phone: bool
    """True if any phone number of the contact is subscribed; a write applies to all of them."""

    subscribed_email: bool
    """True if any email address of the contact is subscribed; a write applies to all of them."""

    sendable_phone: bool
    """True if the contact can be sent marketing SMS."""

    sendable_email: bool
    """True if the contact can be sent marketing email: subscribed, not suppressed, and confirmed if a list requires
    it.
    """

    verification_status: Literal["suppressed", "unverified", "verified"]
    """Verification status of the first email address, or of the phone number if there is none."""

    enrichment_status: Literal["enriched", "not_enriched"]
    """`enriched` if `data.enrichment` is not empty."""

    tracking: Literal["aggregate", "full", "none"]
    """Tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none`."""

    list_ids: list[int]
    """Lists of which the contact is a member."""

    last_interacted_at: str | None
    """When the contact last opened, clicked, replied, submitted a form or had another event; automated activity
    does not count.
    """

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    channels: list[Channel]
    """Email addresses and phone numbers of the contact."""


class ContactCount(TypedDict):
    """The number of contacts that match filters, some of these contacts, and the number that each filter matches."""

    count: int
    """Number."""

    sample: list[Contact]
    """Sample of the contacts."""

    rows: list[FilterShare]
    """Number of contacts per filter, in the order of the request."""

    sentence: str
    """Description as a sentence."""


class ContactExport(TypedDict):
    """All stored data about a contact."""

    exported_at: str
    """When the export was created."""

    contact: Contact
    """The contact."""

    time_zone: str
    """Time zone by which campaigns and flows are sent to the contact."""

    click_hours: list[ClickHour]
    """Hours at which the contact clicks."""

    lists: list[ListName]
    """Lists of which the contact is a member."""

    left_lists: list[ListName]
    """Lists that the contact left."""

    suppressions: list[Suppression]
    """Suppressions of the contact's addresses."""

    consents: list[ConsentRow]
    """Consent records."""

    messages: list[Message]
    """Messages sent to the contact."""

    message_texts: list[MessageText]
    """Content of the single messages sent to the contact."""

    incoming: list[IncomingMessage]
    """Messages that the contact wrote."""

    events: list[RecordedEvent]
    """Events of the contact."""

    flow_runs: list[FlowRunDetail]
    """Flow runs of the contact."""


class ContactList(TypedDict):
    """A list of contacts."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name of the list, unique in the account regardless of case."""

    contacts_count: int
    """Number of contacts in the list."""

    sendable_count: SendableCount
    """Number of contacts in the list that can be sent marketing."""

    segment_id: int | None
    """Id of the segment that the list follows; null for a static list."""

    stale: bool
    """True while the list is being updated after a change of its segment."""

    double_opt_in: bool
    """Whether members must confirm their address before they are sent marketing."""

    public: bool
    """Whether the list is shown on the preference page."""

    last_populated_at: str | None
    """When the list was last filled from its segment; null for a static list."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class ContactPatch(TypedDict):
    """The changes of an existing contact; `data_merge` is a JSON merge patch (RFC 7396) of `data`."""

    first_name: NotRequired[str | None]
    """First name."""

    last_name: NotRequired[str | None]
    """Last name."""

    email: NotRequired[str | None]
    """Email address to create or change, which is opted in."""

    phone: NotRequired[str | None]
    """Phone number (E.164) to create or change, which is opted in."""

    source: NotRequired[str | None]
    """Origin of the contact, as free text."""

    country_code: NotRequired[str | None]
    """Two-letter country code; default: that of the phone number."""

    language: NotRequired[str | None]
    """Language tag such as de or pt-BR; messages and pages follow it."""

    list_ids: NotRequired[list[int] | None]
    """Ids of the lists to join; in PATCH, they replace the static lists of the contact."""

    data: NotRequired[dict[str, Any] | None]
    """Custom data; POST merges it into the existing data, PATCH replaces it."""

    channels_attributes: NotRequired[list[ChannelWrite] | None]
    """Addresses to add, change or remove."""

    opt_in: NotRequired[bool | None]
    """True lifts an opt-out, false withdraws consent; if absent, new addresses are opted in."""

    consent_source: NotRequired[str | None]
    """Where the contact consented and to which text, stored as evidence."""

    subscribed_email: NotRequired[bool]
    """True if any email address of the contact is subscribed; a write applies to all of them."""

    subscribed_phone: NotRequired[bool]
    """True if any phone number of the contact is subscribed; a write applies to all of them."""

    tracking: NotRequired[Literal["aggregate", "full", "none"]]
    """Tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none`."""

    data_merge: NotRequired[dict[str, Any]]
    """JSON merge patch (RFC 7396) for `data`."""


class ContactWrite(TypedDict):
    """The fields of a contact to create or change: absent fields stay unchanged, and null clears a field."""

    first_name: NotRequired[str | None]
    """First name."""

    last_name: NotRequired[str | None]
    """Last name."""

    email: NotRequired[str | None]
    """Email address to create or change, which is opted in."""

    phone: NotRequired[str | None]
    """Phone number (E.164) to create or change, which is opted in."""

    source: NotRequired[str | None]
    """Origin of the contact, as free text."""

    country_code: NotRequired[str | None]
    """Two-letter country code; default: that of the phone number."""

    language: NotRequired[str | None]
    """Language tag such as de or pt-BR; messages and pages follow it."""

    list_ids: NotRequired[list[int] | None]
    """Ids of the lists to join; in PATCH, they replace the static lists of the contact."""

    data: NotRequired[dict[str, Any] | None]
    """Custom data; POST merges it into the existing data, PATCH replaces it."""

    channels_attributes: NotRequired[list[ChannelWrite] | None]
    """Addresses to add, change or remove."""

    opt_in: NotRequired[bool | None]
    """True lifts an opt-out, false withdraws consent; if absent, new addresses are opted in."""

    consent_source: NotRequired[str | None]
    """Where the contact consented and to which text, stored as evidence."""

    subscribed_email: NotRequired[bool]
    """True if any email address of the contact is subscribed; a write applies to all of them."""

    subscribed_phone: NotRequired[bool]
    """True if any phone number of the contact is subscribed; a write applies to all of them."""

    tracking: NotRequired[Literal["aggregate", "full", "none"]]
    """Tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none`."""


class ContactWritten(TypedDict):
    """A created or updated contact; `kept_opt_out` names the opt-outs that the request did not lift."""

    id: int
    """Unique id; ids ascend and are never reused."""

    uuid: str
    """Random unique identifier that reveals nothing about the contact."""

    first_name: str | None
    """First name."""

    last_name: str | None
    """Last name."""

    source: str | None
    """Origin of the contact, as free text."""

    country_code: str | None
    """Two-letter country code; default: that of the phone number."""

    language: str | None
    """Language tag such as de or pt-BR; null if it is not known."""

    data: dict[str, Any]
    """Custom data as JSON of at most 32 KiB; `tags` is a list of strings."""

    subscribed_phone: bool
    """True if any phone number of the contact is subscribed; a write applies to all of them."""

    subscribed_email: bool
    """True if any email address of the contact is subscribed; a write applies to all of them."""

    sendable_phone: bool
    """True if the contact can be sent marketing SMS."""

    sendable_email: bool
    """True if the contact can be sent marketing email: subscribed, not suppressed, and confirmed if a list requires
    it.
    """

    verification_status: Literal["suppressed", "unverified", "verified"]
    """Verification status of the first email address, or of the phone number if there is none."""

    enrichment_status: Literal["enriched", "not_enriched"]
    """`enriched` if `data.enrichment` is not empty."""

    tracking: Literal["aggregate", "full", "none"]
    """Tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none`."""

    list_ids: list[int]
    """Lists of which the contact is a member."""

    last_interacted_at: str | None
    """When the contact last opened, clicked, replied, submitted a form or had another event; automated activity
    does not count.
    """

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    channels: list[Channel]
    """Email addresses and phone numbers of the contact."""

    kept_opt_out: list[str]
    """Opt-outs that the write did not lift, because the contact made them: addresses, and lists such as `list:5`."""


class Content(TypedDict):
    """The content of one message in a request: subject, body, sender and design."""

    subject: NotRequired[str | None]
    """Subject line, with merge tags."""

    body: NotRequired[str | None]
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    preheader: NotRequired[str | None]
    """Preview text that mailboxes show after the subject line."""

    from_name: NotRequired[str | None]
    """Sender name; null for that of the account."""

    from_email: NotRequired[str | None]
    """Sender address; null for that of the account."""

    reply_to: NotRequired[str | None]
    """Address for replies; null for the sender."""

    design: NotRequired[Design | None]
    """Design; replaces the whole existing design."""


_ConversationMessageKeywords = TypedDict("_ConversationMessageKeywords", {"from": "str | None"})


class ConversationMessage(_ConversationMessageKeywords):
    """An SMS of a conversation. `id` is the id of an Incoming (direction `in`) or of a Message (direction `out`)."""

    direction: Literal["in", "out"]
    """`in` for messages from the contact, `out` for messages to the contact."""

    id: int
    """Id of the Incoming or the Message."""

    at: str
    """When the message was sent or received."""

    to: str | None
    """Recipient."""

    body: str | None
    """Text of the message."""

    kind: Literal["help", "keyword", "message", "refusal", "start", "stop"] | None
    """Classification of the message; null for messages to the contact."""

    keyword: str | None
    """Keyword with which the message begins."""

    status: (
        Literal[
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
        | None
    )
    """Status of the message; null for messages from the contact."""

    segments: int | None
    """Number of SMS parts; null for email."""

    source_type: Literal["campaign", "flow", "system", "test", "transactional"] | None
    """Source of the message; null for messages from the contact."""

    source_name: str | None
    """Name of the campaign or flow."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""


class CopiesState(TypedDict):
    """The state of copies on another machine."""

    configured: bool
    """Whether there is a store, and a key or passphrase that reads copies."""

    last_at: str | None
    """Moment that the data in the last good copy has."""

    late: bool
    """Whether the last good copy is older than twice the interval."""

    next_at: str | None
    """When the next copy is due; null if none is planned."""

    proven: bool | None
    """Whether the last test restore succeeded; null if there was none."""

    proven_at: str | None
    """When a test restore succeeded last."""

    stored: list[StoredCopy]
    """Copies in the store after the last good one, newest first."""

    runs: list[CopyRun]
    """Latest copies and test restores, newest first."""


class CopyRun(TypedDict):
    """A copy on another machine that was made or attempted, or a test restore of the newest copy."""

    id: int
    """Unique id; ids ascend and are never reused."""

    kind: Literal["copy", "proof"]
    """`proof` is a test restore."""

    state: Literal["failed", "interrupted", "running", "succeeded", "waiting"]
    """`interrupted` if the service ended meanwhile; it is repeated by itself."""

    step: str
    """What is being done while it runs; empty otherwise."""

    progress: float
    """How much of the step is done, from 0 to 1."""

    copy: str | None
    """Name of the copy; null if it is not known."""

    taken_at: str | None
    """Moment that the data in the copy has."""

    size: int | None
    """Size of the copy in bytes."""

    error_code: str | None
    """Kind of failure, such as `unreachable` or `damaged`."""

    error: str | None
    """Reason of a failure; null without one."""

    started_at: str
    """When it was begun, or asked for while it waits."""

    ended_at: str | None
    """When it ended; null while it waits or runs."""


class CountWrite(TypedDict):
    """The request body for counting the contacts that match filters, without storing a segment."""

    filters: list[Filter]
    """Filters, all of which must match; without filters, the segment holds all contacts."""


class CountryFigures(TypedDict):
    """The results of the SMS to one country, or to numbers without a known country."""

    country: str | None
    """Two-letter country code; null for unknown countries."""

    people: str
    """Path of the list of these contacts."""

    audience: int
    """Number of recipients."""

    accepted: int
    """Accepted by the next hop: sent, delivered, bounced and complained."""

    delivered: int
    """Reported as delivered."""

    bounced: int
    """Accepted, and later reported as undeliverable."""

    failed: int
    """Rejected permanently, or given up after retries."""

    skipped: int
    """Skipped, each for a reason."""

    clicked: int
    """Number of people who clicked a link."""

    parts: int
    """Number of accepted SMS parts."""


class CouponSection(TypedDict):
    """A section of the type `coupon`."""

    type: Literal["coupon"]
    """Section type."""

    props: NotRequired[CouponSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[CouponSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class CouponSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    code: NotRequired[str | float | bool | None]
    """Code."""

    text: NotRequired[str | float | bool | None]
    """Offer."""

    expires_at: NotRequired[str | float | bool | None]
    """Expiry date. Shown as entered. A date such as 2026-12-31 is shown in the language of the email."""

    expires_text: NotRequired[str | float | bool | None]
    """Expiry label."""

    button: NotRequired[CouponSectionPropsButton | str | None]
    """Button."""

    border: NotRequired[str | float | bool | None]
    """Border."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class CouponSectionPropsButton(TypedDict):
    """Button."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class CouponSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class CurrentUserPatch(TypedDict):
    """Changes to the signed-in user."""

    name: NotRequired[str]
    """Name shown to other users."""

    password: NotRequired[str]
    """New password of at least 10 characters; ends all your sessions, including this one."""

    current_password: NotRequired[str]
    """Current password, required to change it."""


class DeliveryStatus(TypedDict):
    """The delivery status of email, with the status of SMS in `sms`."""

    transport: str
    """Transport for email."""

    open: bool
    """True unless an obstacle stops all email."""

    obstacles: list[SendingObstacle]
    """Reasons why all or some email waits."""

    sending_stopped: bool
    """Whether a user, or the restore of a backup, has stopped all sending of the account. `PATCH /account` with
    `sending_stopped: false` resumes it; after a restore, first decide at `/restored` about what waits, because
    it may have gone out since the backup.
    """

    stop_reason: str | None
    """Reason; `restored` after a restore; null if none was given."""

    stop_file: bool
    """Whether a STOP file in the data directory stops the whole installation."""

    rate: SendingRate
    """Sending rate."""

    connections: ConnectionCount
    """Connections to mail servers."""

    queue: SendQueue
    """Queued messages."""

    groups: list[ThrottledGroup]
    """Groups of recipient domains with a reduced rate, because their servers asked for it."""

    warm_up: list[WarmUp]
    """Sending domains that are being warmed up."""

    transports: list[TransportState]
    """Transports of email, the default one first."""

    storage: StorageUsage
    """Whether results of sending can be recorded."""

    sms: SmsStatus
    """Delivery status of SMS."""


class Design(TypedDict):
    """An email design."""

    sections: NotRequired[list[DesignSection]]
    """Sections from top to bottom."""

    theme: NotRequired[DesignTheme | None]
    """Colours, fonts and logo; default: those of the brand."""


DesignSection: TypeAlias = "KnownSection | OtherSection"
"""A section of a design."""


class DesignTheme(TypedDict):
    """Default look of the sections of a design."""

    brand_color: NotRequired[str | float | bool | None]
    """Brand colour. Buttons, links and symbols."""

    text_color: NotRequired[str | float | bool | None]
    """Text colour."""

    bg_color: NotRequired[str | float | bool | None]
    """Background colour. Around the sections."""

    font_heading: NotRequired[str | float | bool | None]
    """Heading font."""

    font_body: NotRequired[str | float | bool | None]
    """Body font."""

    button_shape: NotRequired[str | float | bool | None]
    """Button shape."""

    logo_url: NotRequired[str | float | bool | None]
    """Logo."""

    width: NotRequired[str | float | bool | None]
    """Width."""


class Difference(TypedDict):
    """A value that a proposal changes: its name, and its texts before and after; empty for no value."""

    label: str
    """Name of the value."""

    before: str
    """The value now; empty if there is none."""

    after: str
    """The value once the proposal is approved; empty if there is none."""


class DividerSection(TypedDict):
    """A section of the type `divider`."""

    type: Literal["divider"]
    """Section type."""

    props: NotRequired[DividerSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[DividerSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class DividerSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    color: NotRequired[str | float | bool | None]
    """Colour."""

    width: NotRequired[str | float | bool | None]
    """Width."""

    padding: NotRequired[str | float | bool | None]
    """Padding."""

    thickness: NotRequired[str | float | bool | None]
    """Thickness."""

    style: NotRequired[str | float | bool | None]
    """Style."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class DividerSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class DnsRecord(TypedDict):
    """A DNS record of a sending domain: what to enter, and what the last check found."""

    record_type: Literal["CNAME", "MX", "TXT"]
    """Type."""

    name: str
    """Full name of the record."""

    value: str
    """Value to enter."""

    priority: str
    """Priority of an MX record; empty for others."""

    valid: Literal["invalid", "unknown", "valid"]
    """`valid` if the last check found the record in DNS, `unknown` before a check."""

    purpose: Literal[
        "dkim", "dkim_next", "dkim_previous", "dkim_second", "dmarc", "ownership", "return_path", "spf", "tracking"
    ]
    """Purpose of the record."""

    required: bool
    """Whether the record is required for verification."""

    found: list[str]
    """Values found in DNS."""

    problem: str | None
    """Problem; null if there is none."""

    checked_at: str | None
    """When the record was last checked."""


class DomainCreate(TypedDict):
    """A request to create a sending domain."""

    domain: DomainName
    """Domain name."""


class DomainFigures(TypedDict):
    """The results at one mailbox provider, or, with a null `name`, at all providers that are too small to be
    listed.
    """

    name: str | None
    """Name of the provider; null for all smaller ones together."""

    domains: list[str]
    """Domains of the provider to which messages were sent."""

    people: str | None
    """Path of the list of recipients; null for several providers together."""

    audience: int
    """Number of recipients."""

    accepted: int
    """Accepted by the next hop: sent, delivered, bounced and complained."""

    bounced: int
    """Accepted, and later reported as undeliverable."""

    failed: int
    """Rejected permanently, or given up after retries."""

    complained: int
    """Reported as spam."""

    opened: int
    """Number of people who opened."""

    clicked: int
    """Number of people who clicked a link."""


class DomainName(TypedDict):
    """The object `domain` of a request to create a sending domain."""

    name: str
    """Domain name without scheme and port; internationalised names are allowed."""


class EmailStarter(TypedDict):
    """A predefined email in the style of the account's brand."""

    name: str
    """Key of the starter."""

    label: str
    """Label in the user interface."""

    description: str
    """Description."""

    subject: str
    """Subject line, with merge tags."""

    preheader: str
    """Preview text that mailboxes show after the subject line."""

    design: Design
    """Design."""


class EngagementFigures(TypedDict):
    """Opens or clicks: the number of recipients with at least one, and the total number of opens or clicks."""

    people: RecipientCount
    """Number of people."""

    machines: RecipientCount
    """Number of recipients with automated activity only."""

    total: int
    """Total number."""

    total_human: int
    """Number by people."""

    total_machine: int
    """Number by machines, such as mailbox scanners."""

    unnamed: int
    """Number by contacts that are counted anonymously."""


class EnrollWrite(TypedDict):
    """Contacts to enroll in a flow: either `contact_ids`, or all current members of a segment."""

    contact_ids: NotRequired[list[int] | None]
    """Ids of the contacts to add."""

    segment_id: NotRequired[int | None]
    """Id of the segment whose current contacts are added."""

    confirm_send_to_all: NotRequired[bool]
    """Confirms that all contacts are meant, if nothing narrows the audience."""


class EnrollmentResult(TypedDict):
    """The result of an enrollment: how many contacts entered, and how many could not, by reason."""

    enrolled: NotRequired[int]
    """Number of contacts added."""

    already_inside: NotRequired[int]
    """Number of contacts already in the flow."""

    frequency: NotRequired[int]
    """Number of contacts that were in the flow before and cannot enter again."""

    held_out: NotRequired[int]
    """Number of contacts in the holdout group of the flow."""

    control_group: NotRequired[int]
    """Number of contacts in the control group of the account."""


_ErrorResponseKeywords = TypedDict("_ErrorResponseKeywords", {"from": "NotRequired[str]"})


class ErrorResponse(_ErrorResponseKeywords):
    """The body of every response with status 400 or above."""

    error: Literal[True]
    """Always true."""

    code: Literal[
        "bad_request",
        "conflict",
        "forbidden",
        "idempotency_conflict",
        "internal_error",
        "invalid_credentials",
        "invalid_json",
        "method_not_allowed",
        "not_found",
        "otp_required",
        "password_sign_in_off",
        "payload_too_large",
        "rate_limited",
        "storage_unavailable",
        "unauthorized",
        "unavailable",
        "unsupported_media_type",
        "validation_error",
    ]
    """Error code for programs."""

    message: str
    """Explanation for people."""

    request_id: str
    """Same as in the header `X-Request-Id`."""

    validation_errors: NotRequired[dict[str, list[str]]]
    """Errors by field: a name as it was sent, or a path such as `steps[1].yes[0].subject`; `base` for errors of no
    single field.
    """

    reason: NotRequired[str]
    """Reason of a 422 whose fields are all valid; for a 429, the limit that was reached: `burst` or `minute`; more
    may follow.
    """

    hint: NotRequired[str]
    """Where to find more information."""

    required_scope: NotRequired[str]
    """403: scope that the credential lacks and that a key can have."""

    required_role: NotRequired[Literal["admin", "author", "editor", "owner", "viewer"]]
    """403: lowest role whose users may do it, if no scope is sufficient."""

    blockers: NotRequired[list[SendBlocker]]
    """Problems that block sending, most important first."""

    status: NotRequired[str]
    """`campaign_locked`: current status."""

    to: NotRequired[str]
    """`invalid_transition`: requested status."""

    allowed: NotRequired[list[str]]
    """`invalid_transition`: allowed statuses."""

    action: NotRequired[str]
    """`invalid_transition`: requested action, the last part of its path."""

    allowed_actions: NotRequired[list[str]]
    """`invalid_transition` of an action: actions that are allowed now."""

    limit: NotRequired[int]
    """429: number of requests that the limit allows."""

    message_id: NotRequired[int]
    """`recipient_suppressed`: id of the message, which is stored as skipped."""

    skip_reason: NotRequired[str]
    """`recipient_suppressed`: why the message is skipped."""

    used_by: NotRequired[list[dict[str, Any]]]
    """`in_use`: objects that use it, each with its id, such as `campaign_id`, and its `name`; of an image also the
    number of `messages`.
    """

    updated_at: NotRequired[str]
    """`conflict`: when the object was last changed."""


class EventBatch(TypedDict):
    """A batch of events."""

    events: list[EventWrite | None]
    """Up to 1,000 events; each is validated on its own."""


class EventBatchResult(TypedDict):
    """The result of a batch of events."""

    created: int
    """Number of recorded events."""

    repeated: int
    """Number of events already known by their `idempotency_key`."""

    errors: list[RejectedEvent]
    """Events that were not recorded."""


class EventWrite(TypedDict):
    """An event that a client submits."""

    event: str
    """Name of the event: `^[a-z][a-z0-9_]{0,63}$`, not a name that the service records itself."""

    contact_id: NotRequired[int | None]
    """Id of the contact; this or `contact_email`."""

    contact_email: NotRequired[str | None]
    """Email address of the contact."""

    create_contact: NotRequired[bool]
    """Create the contact of an unknown `contact_email`, without opt-in."""

    amount: NotRequired[float | None]
    """Value of the event, such as the total of an order."""

    data: NotRequired[dict[str, Any] | None]
    """Further data, as JSON of at most 32 KiB."""

    resource_uid: NotRequired[str | None]
    """Your id of the object that the event concerns, such as `order:4711`."""

    resource_name: NotRequired[str | None]
    """Name of that object."""

    resource_url: NotRequired[str | None]
    """URL of that object."""

    ip: NotRequired[str | None]
    """IP address of the person, not of your server; stored as `privacy_ip` of the account says."""

    user_agent: NotRequired[str | None]
    """User-Agent of the person's program; `browser`, `os` and `device_type` are read from it."""

    referrer: NotRequired[str | None]
    """URL of the page that the contact came from."""

    utm_source: NotRequired[str | None]
    """`utm_source` of the visited URL."""

    utm_medium: NotRequired[str | None]
    """`utm_medium` of the visited URL."""

    utm_term: NotRequired[str | None]
    """`utm_term` of the visited URL."""

    utm_content: NotRequired[str | None]
    """`utm_content` of the visited URL."""

    utm_campaign: NotRequired[str | None]
    """`utm_campaign` of the visited URL."""

    test: NotRequired[bool]
    """Whether it is a test; tests are captured and never counted."""

    trigger: NotRequired[bool]
    """Whether the event starts flows; default: true unless it happened over an hour ago."""

    idempotency_key: NotRequired[str | None]
    """Key that identifies repeated requests with the same event name."""

    created_at: NotRequired[str | None]
    """When the event happened, up to 365 days ago; default: now."""


class Experiment(TypedDict):
    """The A/B test or holdout of a campaign."""

    state: Literal["decided", "draft", "releasing", "testing"]
    """`releasing`: the winner is being given to those who wait."""

    variants: list[Variant]
    """Variants in order of their numbers; one for a holdout alone."""

    test_share: float
    """Share of the audience that gets the variants."""

    metric: Literal["clicks", "event", "opens"]
    """What decides."""

    event: str | None
    """Name of the event that is counted."""

    by_amount: bool
    """Whether the amounts of the events are compared."""

    decide_after_minutes: int
    """Minutes from the first message to the end of the test."""

    decided_by: Literal["person", "service"]
    """Who decides."""

    too_close: Literal["leader", "person"]
    """What the service does at the end without a winner."""

    uneven: bool
    """Whether better variants get more of the later batches."""

    holdout: float
    """Share of the audience that gets nothing and is measured."""

    ends_at: str | None
    """When the test ends; null before the send."""

    winner: int | None
    """Number of the variant that those who waited get."""

    chosen_by: str | None
    """`service`, or the user or API key that chose the winner."""

    chosen_at: str | None
    """When it was decided."""


class ExperimentDecision(TypedDict):
    """What the counts say now."""

    code: Literal["needs_more", "too_close", "too_early", "winner"]
    """`winner`: the leader is better; `too_close`: the difference is under 5 %, or the test is over; `too_early`:
    too few conversions; `needs_more`: not clear yet.
    """

    leader: int
    """Number of the best variant so far."""

    runner_up: int
    """Number of the variant that is hardest to beat."""

    difference: ConfidenceInterval
    """Leader minus runner-up, per recipient."""

    ratio: ConfidenceInterval
    """The same as a part of the runner-up's value."""


class ExperimentResult(TypedDict):
    """The state of an A/B test or holdout: counts that add up, and the conclusion."""

    state: Literal["decided", "draft", "releasing", "testing"]
    """`releasing`: messages are being given to those who wait."""

    metric: Literal["clicks", "event", "opens"]
    """What decides."""

    event: str | None
    """Name of the event that is counted."""

    by_amount: bool
    """Whether the amounts of the events are compared."""

    ends_at: str | None
    """When the test ends; null before the send."""

    is_waiting_for_person: bool
    """Whether a person has to choose the winner now."""

    winner: int | None
    """Number of the variant that those who waited get."""

    chosen_by: str | None
    """`service`, or the user or API key that chose the winner."""

    chosen_at: str | None
    """When it was decided."""

    decision: ExperimentDecision | None
    """What the counts say; null without a comparison."""

    variants: list[VariantResult]
    """Counts of each variant."""

    waiting: int
    """Number of recipients who wait for the winner."""

    held_out: int
    """Number of contacts who are held out."""

    skipped: int
    """Number of contacts who could not get the campaign when it was sent."""

    audience: int
    """Number of contacts in the audience: the sum of all of them, and of those who waited when the campaign was
    cancelled.
    """

    adds_up: bool
    """Whether all sums are right."""

    holdout: HoldoutFigures | None
    """The effect of sending; null without a holdout."""

    sample_size: SampleSize | None
    """What the test can find; null for a holdout alone."""


class ExperimentWrite(TypedDict):
    """An A/B test or a holdout in a request."""

    variants: NotRequired[list[VariantWrite]]
    """The variants in order; replaces the list. Two to five for an A/B test, none or one for a holdout alone."""

    test_share: NotRequired[float]
    """Share of the audience that gets the variants; the rest, without the holdout, waits for the winner."""

    metric: NotRequired[Literal["clicks", "event", "opens"]]
    """What decides: recipients who clicked, opened (estimated, so with a warning), or have an event."""

    event: NotRequired[str | None]
    """Name of the counted event; required for `event` and for a holdout."""

    by_amount: NotRequired[bool]
    """Compare amounts of events, not how many recipients have one."""

    decide_after_minutes: NotRequired[int]
    """Minutes from the first message to the end of the test."""

    decided_by: NotRequired[Literal["person", "service"]]
    """`service`: sends the winner as soon as it is clear; `person`: waits for a decision."""

    too_close: NotRequired[Literal["leader", "person"]]
    """At the end without a winner, `leader` sends the best variant, `person` waits."""

    uneven: NotRequired[bool]
    """Send the test in batches, and give better variants more of the later ones."""

    holdout: NotRequired[float]
    """Share of the audience that gets nothing and is measured."""


class Filter(TypedDict):
    """A condition on contacts."""

    name: str
    """Name of the field: contact_first_name, contact_last_name, contact_email, contact_phone_number,
    contact_source, contact_country, contact_language, contact_verification_status, contact_suppression_reason,
    contact_data.<path>, contact_tag, contact_subscribed_email, contact_subscribed_phone, contact_verified,
    contact_enriched, contact_suppressed, contact_created_at, contact_updated_at, contact_last_interacted_at,
    contact_unsubscribed_at, email_last_sent_at, email_last_opened_at, email_last_clicked_at, contact_list,
    contact_segment, contact_flow, campaign_sent, campaign_opened, campaign_clicked, email_sent_count,
    email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, event, group, or a field of
    Contact.
    """

    predicate: Literal[
        "all",
        "any",
        "between",
        "blank",
        "cont",
        "end",
        "eq",
        "false",
        "gt",
        "gteq",
        "in",
        "lt",
        "lteq",
        "none",
        "not_cont",
        "not_end",
        "not_eq",
        "not_in",
        "not_performed",
        "not_start",
        "not_within_days",
        "performed",
        "present",
        "start",
        "true",
        "within_days",
    ]
    """Predicate."""

    value: NotRequired[str | float | bool | list[Any] | dict[str, Any] | None]
    """Value to compare with, of the type that the field and the predicate require."""


class FilterField(TypedDict):
    """A field of contacts that a filter can test."""

    name: str
    """Name."""

    type: str
    """Type of the field, which determines its predicates."""

    label: str
    """Label in the user interface."""

    section: str
    """Section in which the field is offered."""

    aliases: list[str]
    """Aliases of the field."""

    choices: list[str]
    """Allowed values, if there are few."""

    of: str | None
    """Kind of objects whose ids are the values."""


class FilterResult(TypedDict):
    """A filter as sent, whether it matches the contact, and the contact's value."""

    name: str
    """Name of the filter."""

    predicate: str
    """Predicate."""

    value: Any
    """Value as sent."""

    sentence: str
    """Description as a sentence."""

    matches: bool
    """Whether the filter matches."""

    actual: Any
    """Actual value of the contact."""

    rows: list[FilterResult]
    """Filters of the group."""


class FilterShare(TypedDict):
    """The number of contacts that match one filter."""

    count: int
    """Number of contacts that match this filter alone."""

    estimated: bool
    """True if the number is an estimate."""


class FilterSpec(TypedDict):
    """All fields and predicates from which filters can be built, and their limits."""

    fields: list[FilterField]
    """Fields that filters can use."""

    types: dict[str, list[PredicateSpec]]
    """Predicates by type."""

    limits: dict[str, int]
    """Limits."""


class Finding(TypedDict):
    """A blocker or warning of preflight; docs/decisions.md#3 lists the codes."""

    code: str
    """Reason code, as in errors."""

    message: str
    """Explanation for people."""

    field: str
    """Path of the field with the problem."""


class Flow(TypedDict):
    """An automation: a trigger and steps."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    status: Literal["active", "archived", "draft", "paused"]
    """Status."""

    approval_state: Literal["approved", "pending_review", "rejected"]
    """Approval state of the current content."""

    approval_note: str | None
    """Note of the user who rejected it."""

    asked_at: str | None
    """Since when it waits for approval; null if it does not."""

    name: str
    """Name."""

    goal: str | None
    """Goal of the flow; the name of an event ends a run when that event happens to the contact."""

    data: dict[str, Any]
    """Custom data; `scripts` are test scripts saved with the flow."""

    test: bool
    """True if the flow was activated by a test key; its messages never leave the machine."""

    version: int
    """Version of the flow; every change of an active flow creates a new one."""

    trigger: FlowTrigger
    """Trigger and audience of the flow."""

    triggered_count: int
    """Number of times that it was triggered."""

    last_triggered_at: str | None
    """When it was last triggered; null for never."""

    steps: list[FlowStep]
    """Steps in order."""

    sent_count: int
    """Number of messages ever accepted by the next hop, without tests; it never decreases."""

    stats: FlowStats
    """Runs and messages of all time, without tests."""

    paused_at: str | None
    """When the flow was paused; null if it is not paused."""

    pause_reason: Literal["slow_conditions"] | None
    """Why the service paused the flow: `slow_conditions`: checking its conditions on events took too long; null if
    a user paused it, or if it is not paused.
    """

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    templates: list[Template]
    """Templates of its steps; `action_id` is the id of the step."""

    unpublished_changes: bool
    """True if there are edits in the browser that are not published; the flow is returned as published."""


class FlowChanged(TypedDict):
    """An updated flow, and the current results of its saved simulations (`scripts`)."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    status: Literal["active", "archived", "draft", "paused"]
    """Status."""

    approval_state: Literal["approved", "pending_review", "rejected"]
    """Approval state of the current content."""

    approval_note: str | None
    """Note of the user who rejected it."""

    asked_at: str | None
    """Since when it waits for approval; null if it does not."""

    name: str
    """Name."""

    goal: str | None
    """Goal of the flow; the name of an event ends a run when that event happens to the contact."""

    data: dict[str, Any]
    """Custom data; `scripts` are test scripts saved with the flow."""

    test: bool
    """True if the flow was activated by a test key; its messages never leave the machine."""

    version: int
    """Version of the flow; every change of an active flow creates a new one."""

    trigger: FlowTrigger
    """Trigger and audience of the flow."""

    triggered_count: int
    """Number of times that it was triggered."""

    last_triggered_at: str | None
    """When it was last triggered; null for never."""

    steps: list[FlowStep]
    """Steps in order."""

    sent_count: int
    """Number of messages ever accepted by the next hop, without tests; it never decreases."""

    stats: FlowStats
    """Runs and messages of all time, without tests."""

    paused_at: str | None
    """When the flow was paused; null if it is not paused."""

    pause_reason: Literal["slow_conditions"] | None
    """Why the service paused the flow: `slow_conditions`: checking its conditions on events took too long; null if
    a user paused it, or if it is not paused.
    """

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    templates: list[Template]
    """Templates of its steps; `action_id` is the id of the step."""

    unpublished_changes: bool
    """True if there are edits in the browser that are not published; the flow is returned as published."""

    scripts: list[ScriptResult]
    """Results of the test scripts saved with the flow."""


class FlowCreate(TypedDict):
    """A new flow; all fields are optional."""

    name: NotRequired[str]
    """Name."""

    goal: NotRequired[str | None]
    """Goal of the flow; the name of an event ends a run when that event happens to the contact."""

    trigger: NotRequired[FlowTriggerWrite | None]
    """Trigger and audience of the flow."""

    steps: NotRequired[list[FlowStepWrite] | None]
    """Steps in order."""

    data: NotRequired[dict[str, Any] | None]
    """Custom data; `scripts` are test scripts saved with the flow."""

    status: NotRequired[Literal["active", "draft", "live"]]
    """Default: `draft`; `active` activates the flow at once, if nothing blocks it."""

    starter: NotRequired[str]
    """Key of the flow starter to begin from; the other keys of the request override it."""


class FlowHoldout(TypedDict):
    """The holdout group of a flow, compared with the contacts who entered; null while there is no figure yet."""

    share: float
    """Share of the contacts who would enter that gets nothing."""

    since: str | None
    """Since when it is measured; null: always."""

    event: str | None
    """Name of the event that is counted; null without one."""

    recipients: int
    """Number of contacts who entered."""

    converted: int
    """Number of them who have the event within 30 days."""

    held_out: int
    """Number of contacts who were held out."""

    held_out_converted: int
    """Number of them who have the event within 30 days."""

    rate: float
    """Rate of the event of those who entered."""

    held_out_rate: float
    """Rate of the event of the held-out."""

    difference: ConfidenceInterval
    """Difference of the rates."""

    people: ConfidenceInterval
    """Number of conversions that the flow caused."""

    lift: ConfidenceInterval
    """The difference as a part of the held-out rate."""


class FlowPatch(TypedDict):
    """A change of a flow; `steps` replaces all steps."""

    name: NotRequired[str]
    """Name."""

    goal: NotRequired[str | None]
    """Goal of the flow; the name of an event ends a run when that event happens to the contact."""

    trigger: NotRequired[FlowTriggerWrite | None]
    """Trigger and audience of the flow."""

    steps: NotRequired[list[FlowStepWrite] | None]
    """Steps in order."""

    data: NotRequired[dict[str, Any] | None]
    """Custom data; `scripts` are test scripts saved with the flow."""

    status: NotRequired[Literal["active", "archived", "draft", "live", "paused"]]
    """Changes the status, as the actions do; `live` is `active`."""

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the object has been changed since then, the response is 409."""


class FlowReplay(TypedDict):
    """A replay of a flow against the events of the past: its progress, and its result once it is complete."""

    id: int
    """Unique id; ids ascend and are never reused."""

    flow_id: int
    """Id of the flow."""

    state: Literal["cancelled", "complete", "failed", "none", "running", "waiting"]
    """`waiting` while another replay runs first; `none` if there was none."""

    progress: float
    """Share that is done, from 0 to 1."""

    days: int
    """Number of past days that are replayed."""

    until: str | None
    """End of the replayed time."""

    seed: int
    """Decides random splits and the sample."""

    order_event: str | None
    """Event that counts as an order; null: each event with an amount."""

    sms_price: float | None
    """Price of a part of an SMS."""

    error: str | None
    """Why it failed: `conditions_too_slow`, `too_long` or `failed`; null if it did not."""

    result: ReplayResult | None
    """Null until the replay is complete."""

    started_at: str | None
    """When it started."""

    ended_at: str | None
    """When it ended."""

    created_at: str | None
    """When it was asked for."""


class FlowReport(TypedDict):
    """The report of a flow; all figures are from the same moment."""

    flow_id: int
    """Id of the flow."""

    range: Literal["30d", "7d", "all"]
    """Period of the report, in days."""

    since: str | None
    """Start of the period; null for all time."""

    stats: FlowStats
    """Runs and messages of all time."""

    runs: RunFigures
    """Results of the runs that started in the period."""

    steps: list[StepFigures]
    """Results by step, in the order of the flow."""

    holdout: FlowHoldout | None
    """The effect of the flow; null without a holdout group."""


class FlowRun(TypedDict):
    """A contact's run through a flow. `step_id` is the current or last step."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    flow_id: int
    """Id of the flow."""

    flow_name: str
    """Name of the flow."""

    version: int
    """Version of the flow; every change of an active flow creates a new one."""

    contact_id: int | None
    """Id of the contact; null once it is deleted."""

    status: Literal["completed", "exited", "ignored", "live"]
    """`live` while the run is active."""

    exit_reason: str | None
    """Why the run ended early, or why the trigger started no run."""

    step_id: int | None
    """Id of the current or last step; null if there is none."""

    event_id: int | None
    """Id of the event that started the run; null if the contact was added manually."""

    chain_depth: int
    """Number of flows before this one, each started by an event of the flow before."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    due_at: str | None
    """When the run continues; null once it has ended."""

    ended_at: str | None
    """When the run ended."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class FlowRunDetail(TypedDict):
    """A run with the data of the event that started it, and the steps that it has entered, in order."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    flow_id: int
    """Id of the flow."""

    flow_name: str
    """Name of the flow."""

    version: int
    """Version of the flow; every change of an active flow creates a new one."""

    contact_id: int | None
    """Id of the contact; null once it is deleted."""

    status: Literal["completed", "exited", "ignored", "live"]
    """`live` while the run is active."""

    exit_reason: str | None
    """Why the run ended early, or why the trigger started no run."""

    step_id: int | None
    """Id of the current or last step; null if there is none."""

    event_id: int | None
    """Id of the event that started the run; null if the contact was added manually."""

    chain_depth: int
    """Number of flows before this one, each started by an event of the flow before."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    due_at: str | None
    """When the run continues; null once it has ended."""

    ended_at: str | None
    """When the run ended."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    event_data: dict[str, Any]
    """Data of the event that started the run."""

    history: list[RunStep]
    """Steps of the run, oldest first."""


class FlowSpec(TypedDict):
    """The step types and the events from which a flow can be built, and their limits."""

    steps: list[StepKind]
    """Step types."""

    events: list[KnownEvent]
    """Events that can start a flow."""

    trigger: dict[str, Any]
    """Keys of a trigger."""

    limits: dict[str, int]
    """Limits."""


class FlowStarter(TypedDict):
    """A predefined flow. `POST /flows` accepts its `key` as `starter`, or its name, trigger and steps."""

    key: str
    """Identifier of the starter in `POST /flows`."""

    label: str
    """Label in the user interface."""

    description: str
    """Description."""

    name: str
    """Name of the new flow."""

    trigger: FlowTriggerWrite
    """Trigger."""

    steps: list[FlowStepWrite]
    """Steps."""

    data: dict[str, Any]
    """Custom data; `scripts` are the simulations that show the flow."""


class FlowStarters(TypedDict):
    """All predefined flows."""

    starters: list[FlowStarter]
    """Flow starters."""


class FlowStats(TypedDict):
    """The total numbers of runs and messages of a flow, without tests."""

    entered: int
    """Contacts that entered."""

    active: int
    """Active runs."""

    completed: int
    """Completed runs."""

    exited: int
    """Runs that ended early."""

    audience: int
    """Number of recipients."""

    pending: int
    """Not yet final: queued, held or sending."""

    sent: int
    """Accepted by the next hop, with no report since."""

    delivered: int
    """Reported as delivered."""

    bounced: int
    """Accepted, and later reported as undeliverable."""

    complained: int
    """Reported as spam."""

    failed: int
    """Rejected permanently, or given up after retries."""

    skipped: int
    """Skipped, each for a reason."""

    cancelled: int
    """Cancelled before they were sent."""

    uncertain: int
    """Unconfirmed: it cannot be known whether the next hop accepted them."""

    accepted: int
    """Accepted by the next hop: sent, delivered, bounced and complained."""


class FlowStep(TypedDict):
    """A step of a flow, with the common keys and the keys of its type."""

    id: int
    """Identifier of the step in runs and reports."""

    type: Literal[
        "email",
        "sms",
        "wait",
        "wait_until",
        "split",
        "split_value",
        "random_split",
        "emit_event",
        "list_add",
        "list_remove",
        "tag_add",
        "tag_remove",
        "contact_update",
        "unsubscribe",
        "notify",
        "http_request",
        "go_to",
        "exit",
    ]
    """Type of the step; derived from its keys if absent."""

    subject: str
    """Subject line, with merge tags."""

    body: str
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    preheader: str
    """Preview text that mailboxes show after the subject line."""

    duration: int
    """Duration in seconds."""

    filters: list[Filter]
    """Filters that choose the branch; they may also refer to the event and the run."""

    yes: list[FlowStep]
    """Steps for contacts that match."""

    no: list[FlowStep]
    """Steps for contacts that do not match."""

    event_name: str
    """Name of the event that the step records."""

    forward_event_data: bool
    """Whether the recorded event includes the data of the event that started the run."""

    template_id: int | None
    """Id of the template with the content; null if there is none."""

    from_name: NotRequired[str]
    """Sender name; null for that of the account."""

    from_email: NotRequired[str]
    """Sender address; null for that of the account."""

    reply_to: NotRequired[str]
    """Address for replies; null for the sender."""

    design: NotRequired[Design]
    """Design: sections from top to bottom, and the theme."""

    transactional: NotRequired[bool]
    """Whether the message is sent without consent, footer and tracking, as receipts are."""

    utm: NotRequired[Utm]
    """UTM parameters of the links; absent for those of the account."""

    event_data: NotRequired[dict[str, Any]]
    """Further data of the recorded event."""

    contact_list_id: NotRequired[int]
    """Id of the list to join or leave."""

    data_merge: NotRequired[dict[str, Any]]
    """JSON merge patch (RFC 7396) for the contact's `data`."""

    channel: NotRequired[Literal["email", "sms"]]
    """Channel that the contact is unsubscribed from."""


_FlowStepWriteKeywords = TypedDict("_FlowStepWriteKeywords", {"else": "NotRequired[list[FlowStepWrite] | None]"})


class FlowStepWrite(_FlowStepWriteKeywords):
    """A step of a flow."""

    id: NotRequired[int | None]
    """Id of an existing step; absent for a new one."""

    type: NotRequired[
        Literal[
            "email",
            "sms",
            "wait",
            "wait_until",
            "split",
            "split_value",
            "random_split",
            "emit_event",
            "list_add",
            "list_remove",
            "tag_add",
            "tag_remove",
            "contact_update",
            "unsubscribe",
            "notify",
            "http_request",
            "go_to",
            "exit",
        ]
        | None
    ]
    """Type of the step; derived from its keys if absent."""

    subject: NotRequired[str | None]
    """Subject line of an email, with merge tags."""

    body: NotRequired[str | None]
    """HTML or text of an email; without a subject, the text of an SMS."""

    preheader: NotRequired[str | None]
    """Preview text that mailboxes show after the subject line."""

    from_name: NotRequired[str | None]
    """Sender name; default: that of the account."""

    from_email: NotRequired[str | None]
    """Sender address; default: that of the account."""

    reply_to: NotRequired[str | None]
    """Address for replies; default: the sender."""

    design: NotRequired[Design | None]
    """Design of an email."""

    utm: NotRequired[UtmWrite | None]
    """UTM parameters of the links of a message; null or absent for those of the account, all values null for none."""

    transactional: NotRequired[bool | None]
    """Whether the message is sent without consent, footer and tracking."""

    template_id: NotRequired[int | None]
    """Id of the template with the content; read-only."""

    duration: NotRequired[int | None]
    """Seconds to wait."""

    filters: NotRequired[list[Filter] | None]
    """Filters that choose the branch, `yes` if all match, or that the event to wait for must match."""

    yes: NotRequired[list[FlowStepWrite] | None]
    """Steps for contacts that match."""

    no: NotRequired[list[FlowStepWrite] | None]
    """Steps for contacts that do not match."""

    field: NotRequired[str | None]
    """Field whose value chooses the branch, as filters name it, such as `data.plan`, `event.size` (of the event
    that started the run) or `country`.
    """

    metric: NotRequired[Literal["clicks", "event"] | None]
    """What decides which branch of `random_split` is the best: contacts who clicked, or who have the event
    `event_name`; absent: no test.
    """

    by_amount: NotRequired[bool | None]
    """Whether the amounts of the events are compared, not who has one."""

    uneven: NotRequired[bool | None]
    """Whether better branches get more of the later contacts (Thompson sampling), from the second day on; the
    shares are those of the beginning.
    """

    decided_by: NotRequired[Literal["service", "person"] | None]
    """Who chooses the winner of `random_split`: the service as soon as it is clear (default), or a person."""

    branches: NotRequired[list[FlowStepWriteBranche] | None]
    """Branches of `split_value`, of which a contact takes the first that has its value, or of `random_split`, whose
    shares add up to 100.
    """

    event_name: NotRequired[str | None]
    """Name of an event to record or wait for, `^[a-z][a-z0-9_]{0,63}$`."""

    event_data: NotRequired[dict[str, Any] | None]
    """Data of that event."""

    forward_event_data: NotRequired[bool | None]
    """Whether that event includes the data of the event that started the run."""

    contact_list_id: NotRequired[int | None]
    """Id of the list to join or leave, depending on `type`."""

    channel: NotRequired[Literal["email", "sms"] | None]
    """Channel to unsubscribe from; default: `email`."""

    until: NotRequired[Literal["time", "date", "event"] | None]
    """What to wait for: an hour of the day (`at`, `weekdays`), a date of the contact (`path`, `offset_days`, `at`),
    or an event of the contact (`event_name`, `filters`, `timeout`); a date and an event have the branches `yes`
    (it came) and `no`.
    """

    at: NotRequired[str | None]
    """Hour of the day, such as `09:00`, the default."""

    weekdays: NotRequired[list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] | None]
    """Only on these days; absent for all."""

    time_zone: NotRequired[Literal["contact", "account"] | None]
    """Whose time zone; default: `contact`, which is `data.time_zone`, else the zone of the phone number, of the
    country, or of the account, the first that is known.
    """

    path: NotRequired[str | None]
    """Custom field with the date, such as `data.renewal`, or `created_at`."""

    offset_days: NotRequired[int | None]
    """Days after the date; negative: before it."""

    timeout: NotRequired[int | None]
    """Seconds to wait for the event, or to try the request, at most; a request: up to 259,200, default 3,600."""

    via: NotRequired[Literal["email", "slack"] | None]
    """How `notify` tells it: `email`, the default, or `slack`."""

    user_id: NotRequired[int | None]
    """Id of the user of the account whom `notify` emails."""

    slack_url: NotRequired[str | None]
    """Incoming webhook of Slack, or of a program that takes the same requests, to which `notify` posts; stored
    encrypted and never returned. Absent, the stored one is kept.
    """

    method: NotRequired[Literal["POST", "PUT", "GET"] | None]
    """Method of `http_request`; default: `POST`."""

    url: NotRequired[str | None]
    """URL of `http_request`; it may have merge tags after its host."""

    headers: NotRequired[dict[str, Any] | None]
    """Headers of `http_request`: values by name."""

    secret_headers: NotRequired[dict[str, Any] | None]
    """Headers of `http_request` that are stored encrypted. Responses have null as their values; null keeps the
    stored value, as long as scheme, host and port of `url` stay the same.
    """

    payload: NotRequired[dict[str, Any] | list[Any] | None]
    """JSON body of `http_request`; its texts may have merge tags. A text that is only one tag keeps the type of its
    value.
    """

    signed: NotRequired[bool | None]
    """Whether `http_request` is signed as webhooks are (Standard Webhooks); true without `signing_secret` keeps the
    stored secret.
    """

    signing_secret: NotRequired[str | None]
    """Secret that signs `http_request`; stored encrypted and never returned."""

    save_to_contact: NotRequired[dict[str, Any] | None]
    """Values of the JSON response of `http_request` to store in the contact's `data`: paths, such as
    `result.items.0.price`, by key.
    """

    save_to_run: NotRequired[dict[str, Any] | None]
    """Values of the JSON response of `http_request` to store with the event that started the run: paths by key."""

    note: NotRequired[str | None]
    """Note in the message of `notify`."""

    step_id: NotRequired[int | None]
    """`id`, as sent, of the step that `go_to` leads to."""

    max_jumps: NotRequired[int | None]
    """How often a run jumps there at most; default: 1. Then it continues."""

    tag: NotRequired[str | None]
    """Tag to add or remove, depending on `type`; all other tags of the contact stay."""

    data_merge: NotRequired[dict[str, Any] | None]
    """JSON merge patch (RFC 7396) for the contact's `data`."""


class FlowStepWriteBranche(TypedDict):
    """FlowStepWriteBranche."""

    key: NotRequired[str | None]
    """Key of an existing branch; absent for a new one."""

    values: NotRequired[list[str | float | bool] | None]
    """Values of `field`, regardless of case; a number also matches as text."""

    name: NotRequired[str | None]
    """Name of a branch of `random_split`."""

    share: NotRequired[int | None]
    """Share of a branch of `random_split`, in percent."""

    steps: NotRequired[list[FlowStepWrite] | None]
    """Steps of the branch."""


class FlowTrigger(TypedDict):
    """The event that starts a flow, and its conditions."""

    event: str
    """Event that starts the flow; `manual` if none is chosen yet, with which the flow cannot be activated."""

    segment_id: int | None
    """Id of a segment to which the contact must belong; without an event, entering the segment starts the flow."""

    contact_list_id: int | None
    """Id of the list that the contact joins or leaves."""

    data: FlowTriggerData
    """Conditions of the trigger."""


FlowTriggerData: TypeAlias = dict[str, Any]
"""The conditions of a flow's trigger. Among its keys are `frequency`, `where`, `keywords`, `tag`, `path`, `yearly`,
`offset_days`, `at`, `max_per_hour`, `holdout`, `holdout_event`, `respect_control_group`.
"""


class FlowTriggerDataFrequency(TypedDict):
    """FlowTriggerDataFrequency."""

    min_gap_seconds: int
    """Seconds between two runs."""


class FlowTriggerWrite(TypedDict):
    """The trigger of a flow."""

    event: NotRequired[str | None]
    """Event that starts the flow; with `manual`, null or empty, the flow cannot be activated."""

    segment_id: NotRequired[int | None]
    """Id of a segment to which the contact must belong; without an event, entering it starts the flow."""

    contact_list_id: NotRequired[int | None]
    """Id of the list that the contact joins or leaves."""

    data: NotRequired[FlowTriggerData | None]
    """Conditions of the trigger."""


class FooterSection(TypedDict):
    """A section of the type `footer`."""

    type: Literal["footer"]
    """Section type."""

    props: NotRequired[FooterSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[FooterSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class FooterSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    unsubscribe_text: NotRequired[str | float | bool | None]
    """Unsubscribe link text."""

    preferences: NotRequired[str | float | bool | None]
    """Preferences link."""

    view_in_browser: NotRequired[str | float | bool | None]
    """View-in-browser link."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    links: NotRequired[list[FooterSectionPropsLink | None] | None]
    """Links."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class FooterSectionPropsLink(TypedDict):
    """FooterSectionPropsLink."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class FooterSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class ForcingCharacter(TypedDict):
    """The first character of a text that is not in the GSM-7 alphabet, and its Unicode name."""

    character: str
    """Character."""

    name: str
    """Unicode name of the character."""


class Form(TypedDict):
    """A sign-up form; `url` is its hosted page."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name."""

    language: str | None
    """Language of the form, of its confirmations, and of new contacts; null for that of the browser."""

    list_ids: list[int]
    """Ids of the lists that contacts join."""

    origins: list[str]
    """Origins of the sites that may submit the form and read the response, such as `https://example.org`."""

    fields: list[str | FormField]
    """Fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, each as a name
    or an object.
    """

    double_opt_in: bool
    """Whether contacts confirm their address through a link in an email."""

    redirect_url: str | None
    """URL to which the browser is redirected after submission; null for the built-in page."""

    consent_text: str | None
    """Consent text, stored as evidence."""

    title: str | None
    """Heading of the form; null for its name."""

    intro: str | None
    """Text below the heading."""

    button_text: str | None
    """Text of the button; null for the built-in text."""

    thanks_title: str | None
    """Heading after submission; null for the built-in heading."""

    thanks_text: str | None
    """Text after submission; null for the built-in text."""

    topic_ids: list[int]
    """Ids of the public lists that visitors may choose from, in order."""

    topics_required: bool
    """Whether visitors must choose at least one of `topic_ids`."""

    public_key: str
    """Public key that identifies the form in submissions."""

    url: str
    """URL of the form's own page."""

    submissions_count: int
    """Number of submissions."""

    confirmed_count: int
    """Number of submissions with a confirmed address."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class FormField(TypedDict):
    """A field of a form: one of `CONTACT_FIELDS`, or a key of the custom data."""

    name: str
    """`email`, `phone`, `first_name`, `last_name`, `language`, or a key of `data`."""

    label: NotRequired[str | None]
    """Label of the field."""

    required: NotRequired[bool]
    """Whether the field is required."""

    type: NotRequired[
        Literal["checkbox", "checkboxes", "date", "hidden", "number", "radio", "select", "text", "textarea"] | None
    ]
    """Kind of a field of `data`; default `text`."""

    options: NotRequired[list[str] | None]
    """Options of a `select`, `radio` or `checkboxes` field, in order."""

    help: NotRequired[str | None]
    """Help text below the field."""

    placeholder: NotRequired[str | None]
    """Example shown while the field is empty."""

    value: NotRequired[str | None]
    """Value of a `hidden` field, unless its `query_parameter` has one."""

    query_parameter: NotRequired[str | None]
    """Parameter of the page's URL that a `hidden` field is read from, such as `utm_source`."""


class FormPatch(TypedDict):
    """A change of a form: an omitted field is unchanged, and null resets a field to its default."""

    name: NotRequired[str]
    """Name."""

    language: NotRequired[str | None]
    """Language of the form, of its confirmations, and of new contacts; null for that of the browser."""

    list_ids: NotRequired[list[int] | None]
    """Ids of the lists that contacts join."""

    origins: NotRequired[list[str] | None]
    """Origins of the sites that may submit the form and read the response, such as `https://example.org`."""

    fields: NotRequired[list[str | FormField] | None]
    """Fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, each as a name
    or an object.
    """

    double_opt_in: NotRequired[bool | None]
    """Whether contacts confirm their address through a link in an email."""

    redirect_url: NotRequired[str | None]
    """URL to which the browser is redirected after submission; null for the built-in page."""

    consent_text: NotRequired[str | None]
    """Consent text, stored as evidence."""

    title: NotRequired[str | None]
    """Heading of the form; null for its name."""

    intro: NotRequired[str | None]
    """Text below the heading."""

    button_text: NotRequired[str | None]
    """Text of the button; null for the built-in text."""

    thanks_title: NotRequired[str | None]
    """Heading after submission; null for the built-in heading."""

    thanks_text: NotRequired[str | None]
    """Text after submission; null for the built-in text. With double opt-in, the request to look into the inbox
    follows.
    """

    topic_ids: NotRequired[list[int] | None]
    """Ids of the public lists that visitors may choose from, in order."""

    topics_required: NotRequired[bool | None]
    """Whether visitors must choose at least one of `topic_ids`."""


class FormWrite(TypedDict):
    """A new form."""

    name: str
    """Name."""

    language: NotRequired[str | None]
    """Language of the form, of its confirmations, and of new contacts; null for that of the browser."""

    list_ids: NotRequired[list[int] | None]
    """Ids of the lists that contacts join."""

    origins: NotRequired[list[str] | None]
    """Origins of the sites that may submit the form and read the response, such as `https://example.org`."""

    fields: NotRequired[list[str | FormField] | None]
    """Fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, each as a name
    or an object.
    """

    double_opt_in: NotRequired[bool | None]
    """Whether contacts confirm their address through a link in an email."""

    redirect_url: NotRequired[str | None]
    """URL to which the browser is redirected after submission; null for the built-in page."""

    consent_text: NotRequired[str | None]
    """Consent text, stored as evidence."""

    title: NotRequired[str | None]
    """Heading of the form; null for its name."""

    intro: NotRequired[str | None]
    """Text below the heading."""

    button_text: NotRequired[str | None]
    """Text of the button; null for the built-in text."""

    thanks_title: NotRequired[str | None]
    """Heading after submission; null for the built-in heading."""

    thanks_text: NotRequired[str | None]
    """Text after submission; null for the built-in text. With double opt-in, the request to look into the inbox
    follows.
    """

    topic_ids: NotRequired[list[int] | None]
    """Ids of the public lists that visitors may choose from, in order."""

    topics_required: NotRequired[bool | None]
    """Whether visitors must choose at least one of `topic_ids`."""


class FrequencyCap(TypedDict):
    """A maximum number of marketing messages for one contact within a number of days."""

    messages: int
    """Maximum number of messages."""

    days: int
    """Number of days in which they count."""


class GallerySection(TypedDict):
    """A section of the type `gallery`."""

    type: Literal["gallery"]
    """Section type."""

    props: NotRequired[GallerySectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[GallerySectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class GallerySectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    items: NotRequired[list[GallerySectionPropsItem | None] | None]
    """Images."""

    columns: NotRequired[str | float | bool | None]
    """Columns."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class GallerySectionPropsItem(TypedDict):
    """GallerySectionPropsItem."""

    src: NotRequired[str | float | bool | None]
    """Image."""

    alt: NotRequired[str | float | bool | None]
    """Alt text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class GallerySectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class HeaderSection(TypedDict):
    """A section of the type `header`."""

    type: Literal["header"]
    """Section type."""

    props: NotRequired[HeaderSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[HeaderSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class HeaderSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    logo_url: NotRequired[str | float | bool | None]
    """Logo. Leave empty to use the logo of your brand."""

    logo_alt: NotRequired[str | float | bool | None]
    """Logo alt text."""

    logo_width: NotRequired[str | float | bool | None]
    """Logo width."""

    wordmark_text: NotRequired[str | float | bool | None]
    """Text instead of a logo."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    links: NotRequired[list[HeaderSectionPropsLink | None] | None]
    """Links."""

    layout: NotRequired[str | float | bool | None]
    """Layout."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class HeaderSectionPropsLink(TypedDict):
    """HeaderSectionPropsLink."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class HeaderSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class HeadingSection(TypedDict):
    """A section of the type `heading`."""

    type: Literal["heading"]
    """Section type."""

    props: NotRequired[HeadingSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[HeadingSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class HeadingSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    level: NotRequired[str | float | bool | None]
    """Level."""

    color: NotRequired[str | float | bool | None]
    """Colour."""

    size: NotRequired[str | float | bool | None]
    """Size."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class HeadingSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class HeroSection(TypedDict):
    """A section of the type `hero`."""

    type: Literal["hero"]
    """Section type."""

    props: NotRequired[HeroSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[HeroSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class HeroSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    image_url: NotRequired[str | float | bool | None]
    """Image above the text."""

    background_url: NotRequired[str | float | bool | None]
    """Background image."""

    title: NotRequired[str | float | bool | None]
    """Title."""

    subtitle: NotRequired[str | float | bool | None]
    """Subtitle."""

    cta_text: NotRequired[str | float | bool | None]
    """Button text."""

    cta_url: NotRequired[str | float | bool | None]
    """Button link."""

    overlay: NotRequired[str | float | bool | None]
    """Image overlay."""

    height: NotRequired[str | float | bool | None]
    """Height with a background image."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class HeroSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class HoldoutFigures(TypedDict):
    """The contacts who were held out, compared with all others since the start; the rates count the event."""

    recipients: int
    """Number of contacts who got the campaign or wait for it."""

    converted: int
    """Number of them who have the event."""

    held_out: int
    """Number of contacts who got nothing."""

    held_out_converted: int
    """Number of them who have the event."""

    rate: float
    """Rate of the event without the held-out."""

    held_out_rate: float
    """Rate of the event of the held-out."""

    difference: ConfidenceInterval
    """Difference of the rates."""

    people: ConfidenceInterval
    """Number of conversions that the campaign caused."""

    lift: ConfidenceInterval
    """The difference as a part of the held-out rate."""

    ends_at: str | None
    """End of the period in which events are counted."""


class HtmlSection(TypedDict):
    """A section of the type `html`."""

    type: Literal["html"]
    """Section type."""

    props: NotRequired[HtmlSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[HtmlSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class HtmlSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    html: NotRequired[str | float | bool | None]
    """HTML. Scripts, forms and frames are removed."""

    plain_text: NotRequired[str | float | bool | None]
    """Plain-text version. Leave empty to create it from the HTML."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class HtmlSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class Identity(TypedDict):
    """An account at a provider that is linked to the signed-in user."""

    id: int
    """Unique id; ids ascend and are never reused."""

    provider_id: int
    """Id of the provider."""

    provider: str
    """Name of the provider."""

    email: str
    """Address that the provider named last; empty if it named none."""

    last_used_at: str | None
    """When the user last signed in with it; null for never."""

    created_at: str
    """When it was linked."""


class ImageSection(TypedDict):
    """A section of the type `image`."""

    type: Literal["image"]
    """Section type."""

    props: NotRequired[ImageSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[ImageSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class ImageSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    src: NotRequired[str | float | bool | None]
    """Image."""

    alt: NotRequired[str | float | bool | None]
    """Alt text."""

    decorative: NotRequired[str | float | bool | None]
    """Decorative image. Screen readers skip it."""

    href: NotRequired[str | float | bool | None]
    """Link."""

    width: NotRequired[str | float | bool | None]
    """Width."""

    border_radius: NotRequired[str | float | bool | None]
    """Corner radius."""

    dark_src: NotRequired[str | float | bool | None]
    """Dark mode image."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class ImageSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class Import(TypedDict):
    """An import of a file and its result."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    resource: Literal["contacts", "suppressions"]
    """Kind of objects to import."""

    status: Literal["cancelled", "complete", "failed", "pending", "processing"]
    """Progress."""

    phase: str | None
    """Current phase; null if there is none."""

    dry_run: bool
    """Whether the import only reports what it would do."""

    filename: str
    """File name."""

    bytes: int
    """Size in bytes."""

    format: Literal["csv", "jsonl"]
    """Detected file format."""

    product: str | None
    """Product from which the file appears to be exported; null if unknown."""

    columns: list[ImportColumn]
    """Columns of the file."""

    options: ImportOptions
    """Options of the import."""

    total: int
    """Total number of rows."""

    processed: int
    """Number of processed rows."""

    created: int
    """Number of created contacts."""

    updated: int
    """Number of rows that updated a contact, including `repeated`."""

    repeated: int
    """Number of rows that updated a contact of an earlier row of the same file."""

    skipped: int
    """Number of unchanged contacts."""

    failed: int
    """Number of rows with errors; `results.csv` lists them."""

    warnings: int
    """Rows that were imported without one of their values, or with a date stored as text; `results.csv` lists them
    with the reason.
    """

    arriving: ImportArriving
    """State of the contacts after the import, each counted once."""

    restored: int
    """Number of contacts that `undo` removed or restored."""

    removed: int
    """Those of them that `undo` removed; for suppressions, addresses no longer suppressed."""

    left_in_place: ImportLeftInPlace
    """Contacts that `undo` did not remove."""

    progress: float
    """Progress, from 0 to 1."""

    error: str | None
    """Why the whole import failed; null if it did not."""

    undo_until: str | None
    """Until when the import can be undone; null if it cannot."""

    undone_at: str | None
    """When the import was undone; null if it was not."""

    completed_at: str | None
    """When the import was completed."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class ImportArriving(TypedDict):
    """How many contacts of the file are subscribed, unsubscribed or suppressed after the import, and why."""

    subscribed: int
    """Contacts whose address is subscribed."""

    unsubscribed: int
    """Contacts whose address is not subscribed."""

    suppressed: int
    """Contacts whose address is suppressed."""

    reasons: dict[str, int]
    """Why contacts are not subscribed: the `file` opts them out, they opted out `before`, the file only says that
    they are not subscribed (`inactive`), it says neither yes nor no (`unstated`), the import opts in nobody
    (`not_opted_in`) or no phone numbers (`sms_not_opted_in`, contacts without an email address), or the reason
    of the suppression.
    """


class ImportColumn(TypedDict):
    """A column of the file: the field to which it is mapped, sample values, and the format of dates or numbers."""

    name: str
    """Name."""

    target: str
    """Field to which the column is mapped; empty if it is not imported."""

    samples: list[str]
    """Values of the first rows."""

    dates: NotRequired[Literal["ambiguous", "clear", "dmy", "mdy", "mixed"] | None]
    """Date format of the column: unambiguous (`clear`), day first (`dmy`), month first (`mdy`), either
    (`ambiguous`), or both (`mixed`); null if it holds no dates. Ambiguous and mixed dates are stored as text,
    others as ISO 8601.
    """

    numbers: NotRequired[Literal[",", ".", "ambiguous", "clear", "mixed"] | None]
    """Decimal mark of a column of numbers that are converted, such as `1.234,50 €`: comma, point, none needed
    (`clear`), either (`ambiguous`), or both (`mixed`); null if no value needs it.
    """

    unstated: NotRequired[int]
    """In a column of consent: rows that say neither yes nor no in any such column."""


class ImportForm(TypedDict):
    """The form fields of an upload, in addition to the file; `options` is JSON (see ImportOptions)."""

    resource: NotRequired[Literal["contacts", "suppressions"]]
    """Kind of objects to import; default: `contacts`."""

    options: NotRequired[str]
    """Options as JSON (see ImportOptions)."""


class ImportLeftInPlace(TypedDict):
    """How many contacts that the import created were kept when it was undone, by reason."""

    changed: int
    """Contacts that were changed, named by another import or used for events since; for suppressions: addresses
    that were suppressed again since.
    """

    messaged: int
    """Contacts that were sent a message since."""

    in_another_list: int
    """Contacts that were added to another list since."""


class ImportOptions(TypedDict):
    """The options of an import."""

    map: NotRequired[dict[str, str | None]]
    """Fields for columns, by column name; null skips a column; columns not listed are mapped by their name; a
    column of last names whose values are like `Last, First` is a full name.
    """

    list_ids: NotRequired[list[int]]
    """Ids of the lists that all imported contacts join."""

    list_names: NotRequired[list[str]]
    """Names of further lists; missing lists are created."""

    on_conflict: NotRequired[Literal["merge", "skip"]]
    """What to do with existing contacts: `merge` updates them, `skip` leaves them unchanged."""

    opt_in: NotRequired[bool]
    """Whether the addresses are opted in; never lifts an opt-out made by the contact."""

    opt_in_phone: NotRequired[bool | None]
    """Whether phone numbers are opted in to SMS; default: as `opt_in`."""

    opt_in_unstated: NotRequired[bool]
    """Whether `opt_in` includes rows that say neither yes nor no: their cells in the columns of consent are empty
    or unreadable.
    """

    consent_source: NotRequired[str | None]
    """Where the contact consented and to which text, stored as evidence."""

    trigger_flows: NotRequired[bool]
    """Whether the import starts flows as if each contact had been added individually."""

    default_country: NotRequired[str | None]
    """Two-letter country code for phone numbers without a country code; default: that of the account; null for
    none.
    """

    date_order: NotRequired[Literal["dmy", "mdy"] | None]
    """Order of day and month in dates such as 03/04/2026, for columns whose values do not show it; without it,
    these are stored as text.
    """

    decimal_mark: NotRequired[Literal[",", "."] | None]
    """Decimal mark of numbers such as 1.234 or 1,234, for columns whose values do not show it; default: that of the
    file's other columns, else of `default_country`.
    """

    column_types: NotRequired[dict[str, Literal["date", "number", "text"]]]
    """Types of columns that go to `data`, by column name: `text` keeps every value as it is, `number` converts
    those that are numbers, `date` converts dates, and the day numbers of spreadsheets such as 45123; other
    columns are numbers or dates if their values are.
    """


_IncomingMessageKeywords = TypedDict("_IncomingMessageKeywords", {"from": "str | None"})


class IncomingMessage(_IncomingMessageKeywords):
    """An incoming SMS."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    contact_id: int | None
    """Id of the contact; null if there is none or it was deleted."""

    to: str | None
    """Number or sender name to which it was sent."""

    body: str | None
    """Text of the message."""

    kind: Literal["help", "keyword", "message", "refusal", "start", "stop"]
    """Classification of the message."""

    keyword: str | None
    """Keyword with which the message begins."""

    opted_out: bool
    """Whether the message opted its sender out."""

    provider: str
    """Name of the provider."""

    provider_id: str | None
    """Id of the message at the provider."""

    answered_message_id: int | None
    """Id of the last message sent to this number before."""

    reply_message_id: int | None
    """Id of the automatic reply to a keyword."""

    seen_at: str | None
    """When a user reviewed the message; null if none has."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    created_at: str
    """When the object was created."""


class Invitation(TypedDict):
    """An invitation to the account that was not accepted yet."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    email: str
    """Invited email address, in lower case."""

    role: str
    """Built-in role, or the id of an own role."""

    state: Literal["expired", "pending"]
    """`expired` if the link is no longer valid, because of its age or because the sender left."""

    invited_by: int
    """Id of the user who sent it last."""

    sent_at: str
    """When it was sent last."""

    expires_at: str
    """Until when its link is valid."""

    created_at: str
    """When the object was created."""


class InvitationWrite(TypedDict):
    """The fields of a new invitation."""

    email: str
    """Email address to invite."""

    role: str
    """Built-in role, or the id or name of an own role."""

    days: NotRequired[int]
    """For how many days the link is valid."""


class KeyWrite(TypedDict):
    """The fields of a new API key."""

    name: str
    """Name of the key, such as the program that uses it."""

    scope: NotRequired[str]
    """`full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as `contacts:write,events:write`;
    default: `full`, for an agent `draft`.
    """

    test: NotRequired[bool]
    """True for a test key: everything that it sends is captured and counted nowhere."""

    agent: NotRequired[bool]
    """True for the key of an AI agent, which reads, drafts and proposes; its scopes are those of `draft` or some of
    them.
    """

    smtp_hourly_limit: NotRequired[int | None]
    """Recipients by SMTP within an hour; 0: no limit; default: that of the installation."""


class KnownEvent(TypedDict):
    """An event that can start a flow."""

    name: str
    """Name."""

    group: str
    """Group of the event."""

    words: str
    """Description in words."""


KnownSection: TypeAlias = (
    "ColumnsSection | FooterSection | HeaderSection | ProductGridSection | GallerySection | ListSection | "
    "CouponSection | ProductSection | TextSection | SplitSection | HeroSection | SocialSection | "
    "ImageSection | ButtonSection | HeadingSection | QuoteSection | DividerSection | SpacerSection | "
    "VideoSection | HtmlSection"
)
"""A section of a known type."""


class LanguageCount(TypedDict):
    """The recipients with a language, and the translation that they get."""

    language: str | None
    """Language of the contacts; null if it is unknown."""

    recipients: int
    """Number of recipients with this language."""

    translation: str | None
    """Language of the texts they get; null for the original."""


class LedgerFigures(TypedDict):
    """The ledger of a campaign: each member of the audience is counted in exactly one of the terms."""

    audience: RecipientCount
    """Number of recipients."""

    accepted: RecipientCount
    """Accepted by the next hop: sent, delivered, bounced and complained."""

    delivered_to: int
    """Number of recipients reached, the basis of rates."""

    terms: list[LedgerTerm]
    """Terms of the ledger."""

    sum: int
    """Sum of the terms."""

    adds_up: bool
    """Whether the sum equals the audience, as it always does."""


class LedgerTerm(TypedDict):
    """The number of recipients in one state, with the API path that lists them."""

    name: str
    """Name of the term."""

    count: int
    """Number."""

    people: str
    """Path of the list of these contacts."""


class Lift(TypedDict):
    """The request body for lifting a suppression: why the suppression is lifted, which is stored as evidence."""

    reason: NotRequired[str]
    """Why the suppression is lifted; required in the body or in the query."""


class LinkFacts(TypedDict):
    """The state of the link check, which runs in the background."""

    status: Literal["complete", "running", "waiting"]
    """Progress of the link check."""

    fine: int
    """Number of links that work."""

    broken: list[CheckedLink]
    """Links that do not work."""

    unchecked: list[CheckedLink]
    """Links that were not checked, or whose server rejects automated requests."""


class LinkFigures(TypedDict):
    """The clicks of one link."""

    number: int
    """Number of the link, starting at 1."""

    url: str
    """URL of the link."""

    words: str
    """Text of the link."""

    counted: bool
    """Whether clicks on the link are tracked."""

    clicked: RecipientCount
    """Number of people who clicked the link, and their share of all who clicked."""

    total: int
    """Total number."""

    total_human: int
    """Number by people."""

    total_machine: int
    """Number by machines, such as mailbox scanners."""


class ListCreate(TypedDict):
    """The fields of a new list, which is static or a mirror of a segment."""

    name: str
    """Name of the list, unique in the account regardless of case."""

    segment_id: NotRequired[int | None]
    """Id of the segment that the list follows; null for a static list."""

    contact_ids: NotRequired[list[int] | None]
    """Ids of the members; replaces the existing members."""

    double_opt_in: NotRequired[bool]
    """Whether members must confirm their address before they are sent marketing."""

    public: NotRequired[bool]
    """Whether the list is shown on the preference page."""


class ListName(TypedDict):
    """The id and name of a list."""

    id: int
    """Unique id; ids ascend and are never reused."""

    name: str
    """Name."""


class ListPatch(TypedDict):
    """The changes to a list; fields that are not given stay unchanged, and `contact_ids` replaces the members."""

    name: NotRequired[str]
    """Name of the list, unique in the account regardless of case."""

    segment_id: NotRequired[int | None]
    """Id of the segment to follow; null makes the list static and keeps its members."""

    contact_ids: NotRequired[list[int] | None]
    """Ids of the members; replaces the existing members."""

    double_opt_in: NotRequired[bool]
    """Whether members must confirm their address before they are sent marketing."""

    public: NotRequired[bool]
    """Whether the list is shown on the preference page."""


class ListSection(TypedDict):
    """A section of the type `list`."""

    type: Literal["list"]
    """Section type."""

    props: NotRequired[ListSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[ListSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class ListSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    items: NotRequired[list[ListSectionPropsItem | None] | None]
    """Items."""

    style: NotRequired[str | float | bool | None]
    """Style."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class ListSectionPropsItem(TypedDict):
    """ListSectionPropsItem."""

    icon: NotRequired[str | float | bool | None]
    """Symbol. An emoji or another character."""

    title: NotRequired[str | float | bool | None]
    """Title."""

    text: NotRequired[str | float | bool | None]
    """Text."""


class ListSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class Login(TypedDict):
    """The credentials of a user, at the top level or within `user`."""

    email: str
    """Email address."""

    password: str
    """Password."""

    otp: NotRequired[str | None]
    """Code of the second factor or a recovery code; required if a second factor is set up."""

    account_id: NotRequired[int | None]
    """Account that the token is for, if the user is in several; default: the one with the smallest id."""


_MarketingCalendarKeywords = TypedDict("_MarketingCalendarKeywords", {"from": "str"})


class MarketingCalendar(_MarketingCalendarKeywords):
    """When marketing email may be sent, in the recipient's time zone; at other times it waits."""

    days: list[Literal["fri", "mon", "sat", "sun", "thu", "tue", "wed"]]
    """Days of the week."""

    to: str
    """End of the allowed hours, later than their start; `24:00` is the end of the day."""

    holidays: NotRequired[list[str]]
    """Dates on which nothing is sent, such as `2026-12-25`."""


class MergeWrite(TypedDict):
    """The contact that is merged into the contact of the URL, and then deleted."""

    contact_id: int
    """Id of the contact to merge into this one; it is deleted."""


_MessageKeywords = TypedDict("_MessageKeywords", {"from": "str | None"})


class Message(_MessageKeywords):
    """An email or SMS to one address."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    attempts: int
    """Number of attempts."""

    contact_id: int | None
    """Id of the contact; null if there is none or it was deleted."""

    campaign_id: int | None
    """Id of the campaign; null if there is none."""

    flow_id: int | None
    """Id of the flow; null if there is none."""

    step_id: int | None
    """Id of the flow step that sent the message; null if there is none."""

    template_id: int | None
    """Id of the template of the message; null if its content was given in the request."""

    segments: int | None
    """Number of SMS parts; null for email."""

    channel: Literal["email", "sms"]
    """`email` or `sms`."""

    status: Literal[
        "bounced",
        "cancelled",
        "complained",
        "delivered",
        "failed",
        "held",
        "queued",
        "sending",
        "sent",
        "skipped",
        "uncertain",
    ]
    """Status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may still change a
    final status.
    """

    provider: str
    """Transport of the message."""

    source_type: Literal["campaign", "flow", "system", "test", "transactional"]
    """Kind of source of the message."""

    to: str | None
    """Recipient; null once erased."""

    reply_to: str | None
    """Address for replies; null for the sender."""

    subject: str | None
    """Subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its merge tags, and null
    for campaigns and flows.
    """

    skip_reason: str | None
    """Why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; more may follow."""

    source_name: str | None
    """Name of the campaign or flow."""

    provider_id: str | None
    """Id of the message at the provider."""

    idempotency_key: str | None
    """`Idempotency-Key` of the request."""

    internet_message_id: str | None
    """Message-ID header."""

    transactional: bool
    """Whether the message is sent without consent, footer and tracking, as receipts are."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    tags: dict[str, Any]
    """Tags of the message."""

    error: MessageError | None
    """Last rejection; null if there is none."""

    next_attempt_at: str | None
    """Time of the next attempt; null if there is none."""

    sent_at: str | None
    """When the message was sent."""

    delivered_at: str | None
    """When the message was reported as delivered."""

    opened_at: str | None
    """When a person first opened the message."""

    clicked_at: str | None
    """When a person first clicked a link."""

    variant: int | None
    """Number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: held out; null without
    a test.
    """

    bounced_at: str | None
    """When the message was reported as undeliverable."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class MessageAttachment(TypedDict):
    """A file that is attached to a message."""

    filename: str
    """File name."""

    content_type: str
    """MIME type."""

    content_id: str | None
    """Id of an inline image in the HTML; null for other files."""

    size: int
    """Size in bytes."""


class MessageBatch(TypedDict):
    """A batch of messages, each of which is checked and queued on its own; an invalid one does not stop the others."""

    messages: list[MessageWrite | None]
    """Up to 500 messages, with files of at most 25 MB together."""


class MessageBatchResult(TypedDict):
    """The results of a batch of messages."""

    queued: int
    """Number of messages that were queued, by this or an earlier request."""

    rejected: int
    """Number of messages that were not queued."""

    results: list[BatchResult]
    """A result for each message, in the order of the request."""


_MessageDetailKeywords = TypedDict("_MessageDetailKeywords", {"from": "str | None"})


class MessageDetail(_MessageDetailKeywords):
    """A message with its content and events, and all recipients of its request."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    attempts: int
    """Number of attempts."""

    contact_id: int | None
    """Id of the contact; null if there is none or it was deleted."""

    campaign_id: int | None
    """Id of the campaign; null if there is none."""

    flow_id: int | None
    """Id of the flow; null if there is none."""

    step_id: int | None
    """Id of the flow step that sent the message; null if there is none."""

    template_id: int | None
    """Id of the template of the message; null if its content was given in the request."""

    segments: int | None
    """Number of SMS parts; null for email."""

    channel: Literal["email", "sms"]
    """`email` or `sms`."""

    status: Literal[
        "bounced",
        "cancelled",
        "complained",
        "delivered",
        "failed",
        "held",
        "queued",
        "sending",
        "sent",
        "skipped",
        "uncertain",
    ]
    """Status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may still change a
    final status.
    """

    provider: str
    """Transport of the message."""

    source_type: Literal["campaign", "flow", "system", "test", "transactional"]
    """Kind of source of the message."""

    to: str | None
    """Recipient; null once erased."""

    reply_to: str | None
    """Address for replies; null for the sender."""

    subject: str | None
    """Subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its merge tags, and null
    for campaigns and flows.
    """

    skip_reason: str | None
    """Why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; more may follow."""

    source_name: str | None
    """Name of the campaign or flow."""

    provider_id: str | None
    """Id of the message at the provider."""

    idempotency_key: str | None
    """`Idempotency-Key` of the request."""

    internet_message_id: str | None
    """Message-ID header."""

    transactional: bool
    """Whether the message is sent without consent, footer and tracking, as receipts are."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    tags: dict[str, Any]
    """Tags of the message."""

    error: MessageError | None
    """Last rejection; null if there is none."""

    next_attempt_at: str | None
    """Time of the next attempt; null if there is none."""

    sent_at: str | None
    """When the message was sent."""

    delivered_at: str | None
    """When the message was reported as delivered."""

    opened_at: str | None
    """When a person first opened the message."""

    clicked_at: str | None
    """When a person first clicked a link."""

    variant: int | None
    """Number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: held out; null without
    a test.
    """

    bounced_at: str | None
    """When the message was reported as undeliverable."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    recipients: list[MessageRecipient]
    """All recipients, that of `to` first."""

    attachments: list[MessageAttachment]
    """Attached files."""

    html: str | None
    """HTML content as sent; null for SMS, for messages that were never rendered, and, without the scope
    `contacts:read`, for messages to a contact.
    """

    text: str | None
    """Plain text content as sent; null, without the scope `contacts:read`, for messages to a contact."""

    headers: dict[str, str]
    """Custom headers."""

    events: list[RecordedEvent]
    """Latest events of the message, newest first, at most 100."""


class MessageError(TypedDict):
    """The last error that a mail server or SMS provider reported for a message."""

    code: str
    """Last failure of the message: `temporary`, `throttled` or `unreachable` (tried again); `client_rejected`,
    `sender_rejected` or `unauthenticated` (login, sender or authentication rejected); `refused` or `permanent`
    (recipient or message rejected), `expired` (retries ended), `returned` (bounced later), `uncertain` or
    `in_doubt` (reply lost).
    """

    smtp: int | None
    """SMTP reply code."""

    enhanced: str | None
    """Enhanced status code (RFC 3463)."""

    text: str | None
    """Response of the server."""


class MessageFigures(TypedDict):
    """The messages of a step: their statuses in the ledger, opens, clicks, and the reasons of skipped ones."""

    audience: RunCount
    """Number of recipients."""

    pending: RunCount
    """Not yet final: queued, held or sending."""

    accepted: RunCount
    """Accepted by the next hop: sent, delivered, bounced and complained."""

    opened: RunCount
    """Number of people who opened."""

    clicked: RunCount
    """Number of people who clicked a link."""

    skipped: NumberByReason
    """Skipped messages, by reason."""

    terms: dict[str, int]
    """Terms of the ledger for these messages."""


class MessageRecipient(TypedDict):
    """One recipient of a message to several recipients."""

    id: int
    """Id of the message to this recipient."""

    kind: Literal["bcc", "cc", "to"]
    """How the recipient was given."""

    address: str | None
    """Address of the recipient; null once erased."""

    status: Literal[
        "bounced",
        "cancelled",
        "complained",
        "delivered",
        "failed",
        "held",
        "queued",
        "sending",
        "sent",
        "skipped",
        "uncertain",
    ]
    """Status of the message to this recipient."""

    skip_reason: str | None
    """Why the recipient gets no message, such as `suppressed_hard_bounce`."""


class MessageText(TypedDict):
    """The submitted content of a single message."""

    message_id: int
    """Id of the message; null if there is none."""

    subject: str | None
    """Subject line, with merge tags."""

    body: str | None
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    text: str | None
    """Content as plain text."""

    from_name: str | None
    """Sender name; null for that of the account."""

    headers: dict[str, Any]
    """Custom headers."""

    data: dict[str, Any]
    """Values for merge tags."""


_MessageWriteKeywords = TypedDict("_MessageWriteKeywords", {"from": "NotRequired[str | None]"})


class MessageWrite(_MessageWriteKeywords):
    """A request to send a single message."""

    to: str
    """Email address; for SMS, a phone number with country code, such as +44 7700 900123."""

    channel: NotRequired[Literal["email", "sms"]]
    """Channel; default: `email`."""

    subject: NotRequired[str | None]
    """Subject line, with merge tags."""

    body: NotRequired[str | None]
    """HTML content; for SMS, text of up to 1,600 characters."""

    html: NotRequired[str | None]
    """HTML content, with merge tags; instead of `body`, and not with a template."""

    text: NotRequired[str | None]
    """Plain text content; default: generated from the HTML."""

    template_id: NotRequired[int | None]
    """Id of a template to use instead of subject and body."""

    data: NotRequired[dict[str, Any] | None]
    """Values for merge tags such as `{{ data.order }}`."""

    cc: NotRequired[list[str] | None]
    """Addresses that get a copy and that all recipients see; together with `to` and `bcc` at most 50, and fewer if
    the content has more than 100 KB; only for transactional messages.
    """

    bcc: NotRequired[list[str] | None]
    """Addresses that get a copy and that no other recipient sees; as `cc`."""

    from_email: NotRequired[str | None]
    """Sender address; null for that of the account."""

    from_name: NotRequired[str | None]
    """Sender name; null for that of the account."""

    reply_to: NotRequired[str | None]
    """Address for replies; null for the sender."""

    tags: NotRequired[dict[str, Any] | None]
    """Tags for the message."""

    headers: NotRequired[dict[str, str] | None]
    """Custom headers: `X-…`, `In-Reply-To`, `References`, `Importance`, `Auto-Submitted`, and of transactional
    messages `List-…`.
    """

    attachments: NotRequired[list[AttachmentWrite] | None]
    """Files of at most 25 MB together; only for email."""

    send_at: NotRequired[str | None]
    """When to send; the message is `held` until then."""

    idempotency_key: NotRequired[str | None]
    """Same as the header `Idempotency-Key`, which takes precedence."""

    transactional: NotRequired[bool]
    """Default: true; false makes it a marketing message, with consent check, footer, list headers and tracking."""

    channelType: NotRequired[Literal["email", "sms"]]
    """Alias of `channel`; beside it, both must be the same."""


class MissingValue(TypedDict):
    """A merge tag without a default, and the recipients who have no value for it."""

    name: str
    """Name of the merge tag."""

    count: NotRequired[int]
    """Number of contacts without a value."""

    contact_ids: NotRequired[list[int]]
    """Ids of the first of these contacts."""


class NumberByReason(TypedDict):
    """A number of runs, the API path that lists them, and the numbers by reason."""

    count: int
    """Number."""

    people: str
    """Path of the list of these contacts."""

    reasons: list[ReasonCount]
    """Reasons, most frequent first."""


class Occurrence(TypedDict):
    """A date of a repeating campaign that is over: what was sent then, or why nothing was."""

    due_at: str
    """Date and time of the repetition."""

    outcome: Literal["blocked", "missed", "sent", "unchanged"]
    """`missed`: too late, after a downtime; `unchanged`: the content was not changed since the last send;
    `blocked`: a finding of the preflight, which made the campaign a draft.
    """

    reason: str | None
    """Code of the finding of the preflight; null without one."""

    campaign_id: int | None
    """Id of the campaign that was sent; null if nothing was."""


class Onboarding(TypedDict):
    """The onboarding steps of an account, and how many of them are completed."""

    steps: OnboardingSteps
    """Onboarding steps."""

    progress: OnboardingProgress
    """Number of completed steps."""


class OnboardingProgress(TypedDict):
    """The number of completed onboarding steps."""

    completed: int
    """Number of completed steps."""

    total: int
    """Total number of steps."""


class OnboardingSteps(TypedDict):
    """The onboarding steps, and whether each is done."""

    brand_setup: bool
    """True if the brand has a colour."""

    domain_verified: bool
    """True if a sending domain is verified."""

    first_contact: bool
    """True if there is at least one contact."""

    first_draft: bool
    """True if there is at least one campaign."""

    first_send: bool
    """True if a campaign was sent."""


class OptOutReview(TypedDict):
    """A user's decision whether an incoming SMS is an opt-out."""

    opt_out: NotRequired[bool]
    """True if the message is an opt-out; opts its sender out."""


class OtherSection(TypedDict):
    """A section without a type, which is derived from the keys of `props`, or of an unknown type, which is stored
    and blocks sending.
    """

    type: NotRequired[str | None]
    """Section type."""

    props: NotRequired[dict[str, Any] | None]
    """Properties."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[OtherSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class OtherSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class Passkey(TypedDict):
    """A passkey of the signed-in user."""

    id: int
    """Unique id; ids ascend and are never reused."""

    name: str
    """Name that the user gave the passkey."""

    host: str
    """Host name that the passkey was created for; it works nowhere else."""

    synced: bool
    """Whether its provider may copy it to other devices of the user."""

    last_used_at: str | None
    """When the user last signed in with it; null for never."""

    created_at: str
    """When it was added."""


class PasskeyPatch(TypedDict):
    """The name of a passkey."""

    name: str
    """Name of the passkey."""


class PasskeyRemoval(TypedDict):
    """The password of the signed-in user, which a removal needs."""

    current_password: str
    """Current password of the signed-in user."""


class PredicateSpec(TypedDict):
    """A predicate that a field type supports, and the kind of value that it takes."""

    predicate: str
    """Name of the predicate."""

    takes: str
    """Kind of the value."""

    negative: bool
    """Whether contacts without a value match too."""

    words: str
    """Description in words."""


class Preflight(TypedDict):
    """All blockers and warnings of a draft, and facts for the decision to send."""

    ok: bool
    """True if the campaign can be sent."""

    blockers: list[Finding]
    """Problems that block sending, most important first."""

    warnings: list[Finding]
    """Warnings, which do not block."""

    facts: PreflightFacts
    """Facts to check before sending: audience, sendable and skipped contacts, transport, size, links, and the
    result of rendering for all recipients.
    """


class PreflightFacts(TypedDict):
    """Facts for the decision to send."""

    audience: int
    """Number of contacts in the audience."""

    sendable: int
    """Number of contacts that may receive it."""

    skipped: dict[str, int]
    """Number of contacts that may not receive it, by reason."""

    transport: str
    """Transport; `capture` keeps messages on this machine."""

    html_bytes: int
    """Size of the HTML for a sample contact, in bytes; 0 for SMS."""

    sms: NotRequired[SmsFacts]
    """Facts for SMS only."""

    links: NotRequired[LinkFacts]
    """Result of the link check."""

    rehearsal: NotRequired[RehearsalFacts]
    """Result of rendering for all recipients."""

    languages: NotRequired[list[LanguageCount]]
    """Recipients by language, the largest number first; at most 100 languages."""


class Preview(TypedDict):
    """A rendered message, with warnings about its content."""

    html: str
    """HTML content; empty for SMS."""

    text: str
    """Content as plain text."""

    warnings: list[PreviewWarning]
    """Warnings, which do not block."""

    bytes: int
    """Size of the HTML in bytes."""

    sms: NotRequired[SmsPreview | None]
    """Details of the text as an SMS; null for email."""


class PreviewRequest(TypedDict):
    """The content of a message to preview, and the values to show in it."""

    document: Design
    """Design to render."""

    subject: NotRequired[str | None]
    """Subject line, with merge tags."""

    preheader: NotRequired[str | None]
    """Preview text that mailboxes show after the subject line."""

    from_name: NotRequired[str | None]
    """Sender name; null for that of the account."""

    body: NotRequired[str | None]
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    contact_id: NotRequired[int | None]
    """Id of the contact whose values are shown; absent for sample values."""

    data: NotRequired[dict[str, Any] | None]
    """Values for merge tags such as `{{ data.order }}`."""

    channel: NotRequired[Literal["email", "sms"]]
    """Channel; default: `email`."""

    transactional: NotRequired[bool]
    """Whether to show it as a message that needs no consent, without an unsubscribe link."""

    translations: NotRequired[dict[str, dict[str, TextTranslation]] | None]
    """Translations of the texts by language and id of the text."""

    language: NotRequired[str | None]
    """Language to show; absent for the language of the contact."""


class PreviewWarning(TypedDict):
    """A warning about the content of a message; it does not prevent sending."""

    code: str
    """Warning code for programs."""

    message: str
    """Explanation for people."""

    field: str
    """Name of the field."""


_ProblemFiguresKeywords = TypedDict("_ProblemFiguresKeywords", {"class": "str | None"})


class ProblemFigures(_ProblemFiguresKeywords):
    """A reason why messages were not delivered."""

    key: str
    """Key of the problem in filters."""

    status: str
    """Status of the messages."""

    reason: str | None
    """Reason code of the messages."""

    text: str | None
    """Response of the server."""

    meaning: str | None
    """Explanation of the problem."""

    help: str | None
    """Help text."""

    count: int
    """Number."""

    people: str
    """Path of the list of these contacts."""


class ProductGridSection(TypedDict):
    """A section of the type `product_grid`."""

    type: Literal["product_grid"]
    """Section type."""

    props: NotRequired[ProductGridSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[ProductGridSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class ProductGridSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    items: NotRequired[list[ProductGridSectionPropsItem | None] | None]
    """Products."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class ProductGridSectionPropsItem(TypedDict):
    """ProductGridSectionPropsItem."""

    name: NotRequired[str | float | bool | None]
    """Name."""

    price: NotRequired[str | float | bool | None]
    """Price."""

    old_price: NotRequired[str | float | bool | None]
    """Original price."""

    image_url: NotRequired[str | float | bool | None]
    """Image."""

    href: NotRequired[str | float | bool | None]
    """Link."""

    description: NotRequired[str | float | bool | None]
    """Description."""

    button: NotRequired[ProductGridSectionPropsItemButton | str | None]
    """Button."""


class ProductGridSectionPropsItemButton(TypedDict):
    """Button."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class ProductGridSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class ProductSection(TypedDict):
    """A section of the type `product`."""

    type: Literal["product"]
    """Section type."""

    props: NotRequired[ProductSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[ProductSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class ProductSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    name: NotRequired[str | float | bool | None]
    """Name."""

    price: NotRequired[str | float | bool | None]
    """Price."""

    old_price: NotRequired[str | float | bool | None]
    """Original price."""

    image_url: NotRequired[str | float | bool | None]
    """Image."""

    href: NotRequired[str | float | bool | None]
    """Link."""

    description: NotRequired[str | float | bool | None]
    """Description."""

    button: NotRequired[ProductSectionPropsButton | str | None]
    """Button."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""


class ProductSectionPropsButton(TypedDict):
    """Button."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class ProductSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class Proposal(TypedDict):
    """What an agent proposes, and what a user decided about it."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    kind: Literal["change_flow", "change_segment", "change_template", "send_campaign", "start_flow"]
    """What is proposed."""

    state: Literal["approved", "open", "returned", "withdrawn"]
    """`open` until a user decides or the agent withdraws it."""

    subject_id: int
    """Id of the campaign, flow, segment or template."""

    subject_name: str
    """Its name when the proposal was made."""

    changes: dict[str, Any]
    """Changes, as they were proposed."""

    note: str
    """The agent's reason."""

    answer: str | None
    """Note of the user who returned it; null if there is none."""

    api_key_id: int
    """Id of the agent's API key."""

    agent_name: str
    """Name of the agent's API key."""

    decided_by: int | None
    """Id of the user who decided; null if no user did."""

    decided_at: str | None
    """When it was decided or withdrawn."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class ProposalDetail(TypedDict):
    """A proposal with all that a user needs to decide about it, as it is now."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    kind: Literal["change_flow", "change_segment", "change_template", "send_campaign", "start_flow"]
    """What is proposed."""

    state: Literal["approved", "open", "returned", "withdrawn"]
    """`open` until a user decides or the agent withdraws it."""

    subject_id: int
    """Id of the campaign, flow, segment or template."""

    subject_name: str
    """Its name when the proposal was made."""

    changes: dict[str, Any]
    """Changes, as they were proposed."""

    note: str
    """The agent's reason."""

    answer: str | None
    """Note of the user who returned it; null if there is none."""

    api_key_id: int
    """Id of the agent's API key."""

    agent_name: str
    """Name of the agent's API key."""

    decided_by: int | None
    """Id of the user who decided; null if no user did."""

    decided_at: str | None
    """When it was decided or withdrawn."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    version: str
    """Of what is proposed, as it is now; the approval must name it. Empty if it was deleted."""

    is_changed: bool
    """Whether what is proposed has changed since the proposal was made."""

    differences: list[Difference]
    """Values before and after; empty once it is decided."""

    people: int | None
    """Contacts whom it reaches; null if only a replay can say."""

    people_before: int | None
    """Contacts in the segment now; null for other kinds."""

    sms_parts: int | None
    """Parts of all SMS; null for email, or if not yet known."""

    sms_cost: float | None
    """Cost of these parts; null if no price is known."""


class ProposalWrite(TypedDict):
    """A new proposal of an agent."""

    kind: Literal["change_flow", "change_segment", "change_template", "send_campaign", "start_flow"]
    """What is proposed."""

    subject_id: int
    """Id of the campaign, flow, segment or template."""

    changes: NotRequired[dict[str, Any]]
    """Of `send_campaign`: `scheduled_at`; of the kinds that change something: the body of its PATCH, without
    `status` and `updated_at`.
    """

    note: NotRequired[str]
    """The reason, shown to the user who decides."""


class ProviderPatch(TypedDict):
    """The fields of a provider that may be changed; fields that are not given stay unchanged."""

    name: NotRequired[str]
    """Name of the provider, as the button on the sign-in page shows it."""

    client_id: NotRequired[str]
    """Client ID that the provider has given."""

    client_secret: NotRequired[str]
    """Client secret; never shown again; empty for a public client."""

    domains: NotRequired[list[str]]
    """Domains of verified email addresses whose owners may join without an invitation."""

    role: NotRequired[Literal["admin", "author", "editor", "viewer"]]
    """Role of those who join by their domain."""

    trust_mfa: NotRequired[bool]
    """Whether a second factor of the provider (`mfa` in `amr`) replaces the code of a user with two-factor
    authentication.
    """

    enabled: NotRequired[bool]
    """Whether people can sign in with the provider."""


class ProviderWrite(TypedDict):
    """The fields of a new provider."""

    name: str
    """Name of the provider, as the button on the sign-in page shows it."""

    issuer: str
    """Issuer of the provider, a URL such as `https://accounts.google.com`; it cannot be changed."""

    client_id: str
    """Client ID that the provider has given."""

    client_secret: NotRequired[str]
    """Client secret; never shown again; empty for a public client."""

    domains: NotRequired[list[str]]
    """Domains of verified email addresses whose owners may join without an invitation."""

    role: NotRequired[Literal["admin", "author", "editor", "viewer"]]
    """Role of those who join by their domain."""

    trust_mfa: NotRequired[bool]
    """Whether a second factor of the provider (`mfa` in `amr`) replaces the code of a user with two-factor
    authentication.
    """

    enabled: NotRequired[bool]
    """Whether people can sign in with the provider."""


_QuietHoursKeywords = TypedDict("_QuietHoursKeywords", {"from": "str"})


class QuietHours(_QuietHoursKeywords):
    """The daily period in which no marketing SMS are sent, in the recipient's time zone."""

    to: str
    """End of the quiet hours, such as `08:00`."""


class QuoteSection(TypedDict):
    """A section of the type `quote`."""

    type: Literal["quote"]
    """Section type."""

    props: NotRequired[QuoteSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[QuoteSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class QuoteSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    text: NotRequired[str | float | bool | None]
    """Quote."""

    author: NotRequired[str | float | bool | None]
    """Author name."""

    role: NotRequired[str | float | bool | None]
    """Job title."""

    photo_url: NotRequired[str | float | bool | None]
    """Photo."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class QuoteSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class ReasonCount(TypedDict):
    """The number of runs with one reason, and the API path that lists them."""

    reason: str | None
    """Reason; null if none was given."""

    count: int
    """Number."""

    people: str
    """Path of the list of these contacts."""


class RecipientCount(TypedDict):
    """A number of recipients, its rate, and the API path that lists these recipients."""

    count: int
    """Number."""

    rate: float | None
    """Rate, from 0 to 1; null if the total is 0."""

    people: str
    """Path of the list of these contacts."""


class RecordedEvent(TypedDict):
    """Something that happened to a contact or in the account."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    contact_id: int | None
    """The contact of the event; null: none."""

    user_id: int | None
    """Always null: events name no user."""

    event: str
    """Name of the event."""

    amount: float | None
    """Value of the event, such as the total of an order."""

    data: dict[str, Any]
    """Further data, as JSON of at most 32 KiB."""

    idempotency_key: str | None
    """Key that identifies repeated requests with the same event name."""

    resource_uid: str | None
    """Your id of the object that the event concerns, such as `order:4711`."""

    resource_name: str | None
    """Name of that object."""

    resource_url: str | None
    """URL of that object."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    generated: bool
    """True if the service recorded the event itself."""

    chain_depth: int
    """Number of flows before this event, each started by an event of the flow before; at 5 it starts no flow."""

    ip: str | None
    """IP address of the person."""

    user_agent: str | None
    """User-Agent header of the person's program."""

    browser: str | None
    """Read from the user agent."""

    os: str | None
    """Read from the user agent."""

    device_type: str | None
    """Read from the user agent."""

    referrer: str | None
    """URL of the page that the contact came from."""

    utm_source: str | None
    """`utm_source` of the visited URL."""

    utm_medium: str | None
    """`utm_medium` of the visited URL."""

    utm_term: str | None
    """`utm_term` of the visited URL."""

    utm_content: str | None
    """`utm_content` of the visited URL."""

    utm_campaign: str | None
    """`utm_campaign` of the visited URL."""

    created_at: str
    """When the event happened."""

    updated_at: str
    """When the event was recorded, or its data was last corrected, such as the verdict on a click."""


class RehearsalFacts(TypedDict):
    """The state of rendering the message for all recipients, which runs in the background."""

    status: Literal["complete", "failed", "running", "waiting"]
    """Progress."""

    total: int
    """Number of recipients to render for."""

    done: int
    """Number of recipients rendered so far."""

    failed: int
    """Number of recipients for whom rendering fails."""

    failures: list[RenderFailure]
    """First rendering failures."""

    lacking: list[MissingValue]
    """Merge tags without a default for which some recipients have no value."""

    html_bytes: int
    """Size of the largest email, in bytes."""

    sms: SmsTotals | None
    """SMS parts and characters; null for email."""


class RejectRequest(TypedDict):
    """The request body of a rejection, with an optional reason."""

    note: NotRequired[str | None]
    """Reason for the rejection, shown to the author."""


class RejectedEvent(TypedDict):
    """An event of a batch that was not recorded, with its errors."""

    index: int
    """Position in the batch, starting at 0."""

    code: str
    """Error code, as for a single request."""

    message: str
    """Explanation for people."""

    validation_errors: dict[str, list[str]]
    """Field errors."""


class RenderFailure(TypedDict):
    """A contact whose message cannot be rendered or sent, and why."""

    contact_id: int
    """Id of the contact."""

    error: str
    """Why rendering fails."""


class RenderedMessage(TypedDict):
    """A message as the contact would get it, or why it is not sent; `segments` is the number of parts of an SMS."""

    channel: str
    """`email` or `sms`."""

    status: str
    """Status of the message."""

    skip_reason: str | None
    """Why the message is skipped; null if it is not."""

    to: str | None
    """Recipient."""

    sender: str | None
    """Sender of the message."""

    subject: str | None
    """Subject line, with merge tags."""

    html: str | None
    """HTML content; null if there is none."""

    text: str | None
    """Content as plain text."""

    leaves_at: str | None
    """Until when the message is held; null if it is not held."""

    segments: NotRequired[int | None]
    """Number of SMS parts; null for email."""


class Repeat(TypedDict):
    """When a campaign repeats, in the time zone of the account."""

    every: Literal["day", "month", "week"]
    """How often it repeats."""

    at: str
    """Time of day."""

    weekdays: list[str]
    """Days of the week, or the one day of `week_of_month`."""

    day_of_month: int | None
    """Day of the month, or the last day of a shorter month."""

    week_of_month: str | None
    """Which of the days in `weekdays` of a month."""

    ends_at: str | None
    """Time after which it does not repeat."""

    only_if_changed: bool
    """Whether a date is skipped if the content was not changed since the last send."""

    next_at: list[str]
    """The next dates, at most three."""


class RepeatWrite(TypedDict):
    """When a campaign repeats, in the time zone of the account."""

    every: Literal["day", "month", "week"]
    """How often it repeats; a week needs `weekdays`."""

    at: str
    """Time of day, such as `09:00`."""

    weekdays: NotRequired[list[Literal["fri", "mon", "sat", "sun", "thu", "tue", "wed"]] | None]
    """Days of the week, or the one day of `week_of_month`."""

    day_of_month: NotRequired[int | None]
    """Day of the month, or the last day of a shorter month."""

    week_of_month: NotRequired[Literal["first", "fourth", "last", "second", "third"] | None]
    """Which of the days in `weekdays` of a month, such as the last Friday."""

    ends_at: NotRequired[str | None]
    """Time after which it does not repeat."""

    only_if_changed: NotRequired[bool]
    """Whether a date is skipped if the content was not changed since the last send."""


class ReplayFailedRequest(TypedDict):
    """A request to replay the failed deliveries of a webhook: all of them, or only those created since a time."""

    since: NotRequired[str | None]
    """Only deliveries created since then; default: all."""


class ReplayMessage(TypedDict):
    """A message that a contact would have got, or not got for a reason."""

    step_id: int
    """Id of the step."""

    at: str
    """When it would have been sent."""

    reason: str | None
    """Why it would not have been sent; null if it would."""


class ReplayOrders(TypedDict):
    """Orders that followed a message within the attribution window, with the sum of their amounts."""

    orders: NotRequired[int]
    """Number of orders."""

    people: NotRequired[int]
    """Contacts who ordered."""

    amount: NotRequired[float]
    """Sum of the amounts of the orders."""


class ReplayPerson(TypedDict):
    """A contact for whom the draft and the live version differ."""

    contact_id: int
    """Id of the contact."""

    draft: list[ReplayMessage]
    """Messages of the draft."""

    live: list[ReplayMessage]
    """Messages of the live version."""


class ReplayRequest(TypedDict):
    """A replay of a flow against the events of the last `days` days."""

    days: NotRequired[int]
    """Number of past days to replay; default: 90."""

    seed: NotRequired[int]
    """Decides random splits and the sample; the same seed gives the same result; default: 1."""

    until: NotRequired[str | None]
    """End of the replayed time; default: now."""

    order_event: NotRequired[str | None]
    """Event that counts as an order; default: the goal of the flow, or events with an amount."""

    sms_price: NotRequired[float | None]
    """Price of a part of an SMS."""

    steps: NotRequired[list[FlowStepWrite]]
    """Steps to replay instead of the stored ones."""


class ReplayResult(TypedDict):
    """The result of a replay; `live` is null for a flow that was never live, and `draft` equals it without changes."""

    started_at: str
    """Start of the replayed time."""

    ended_at: str
    """End of the replayed time."""

    matching: int
    """Contacts whose events may start the flow."""

    replayed: int
    """Contacts whose events were replayed; fewer if they are a sample."""

    is_changed: bool
    """Whether the draft differs from the live version."""

    draft: ReplayTotals
    """What the flow with its changes would have done."""

    live: ReplayTotals | None
    """What the live version would have done."""

    gained: NotRequired[int]
    """Contacts who would have got a message only from the draft."""

    lost: NotRequired[int]
    """Contacts who would have got a message only from the live version."""

    changed: NotRequired[int]
    """Contacts who would have got other messages, or at another time."""

    orders: NotRequired[ReplayOrders]
    """Orders that followed a message of the draft."""

    orders_gained: NotRequired[ReplayOrders]
    """Orders that followed a message that the live version would not have sent."""

    orders_lost: NotRequired[ReplayOrders]
    """Orders that followed a message of the live version that the draft would not have sent."""

    order_days: NotRequired[int]
    """For how many days after a message orders count."""

    steps: NotRequired[list[ReplayStep]]
    """Steps of both versions with their counts."""

    sample: NotRequired[list[ReplayPerson]]
    """Some contacts for whom the versions differ."""

    warnings: NotRequired[list[ReplayWarning]]
    """Limits of the replay."""


class ReplayStep(TypedDict):
    """A step of the draft or of the live version, with its counts in each; null where it does not exist."""

    step_id: int
    """Id of the step."""

    path: str
    """Path of the step in the flow."""

    type: str
    """Type."""

    props: dict[str, Any]
    """Properties of the step, without its branches."""

    draft: NotRequired[ReplayStepCounts | None]
    """Counts with the changes."""

    live: NotRequired[ReplayStepCounts | None]
    """Counts in the live version."""


class ReplayStepCounts(TypedDict):
    """The contacts and messages of one step in one version."""

    entered: NotRequired[int]
    """How often a contact came to the step."""

    sent: NotRequired[int]
    """Messages sent."""

    unsent: NotRequired[int]
    """Messages not sent."""

    held: NotRequired[int]
    """Messages that waited for the end of quiet hours."""

    outcomes: NotRequired[dict[str, int]]
    """Contacts by how they left the step."""


class ReplayTotals(TypedDict):
    """What one version would have done."""

    entered: NotRequired[int]
    """Number of times that a contact entered the flow."""

    completed: NotRequired[int]
    """Runs that were completed."""

    exited: NotRequired[int]
    """Runs that ended early."""

    live: NotRequired[int]
    """Runs that had not ended at the end of the replayed time."""

    people: NotRequired[int]
    """Contacts who would have got at least one message."""

    emails: NotRequired[int]
    """Emails that would have been sent."""

    sms: NotRequired[int]
    """SMS that would have been sent."""

    sms_parts: NotRequired[int]
    """Parts of these SMS."""

    sms_parts_estimated: NotRequired[bool]
    """Whether the parts are an estimate, because not every SMS was rendered."""

    sms_cost: NotRequired[float | None]
    """Price of these parts; null without a price."""

    held: NotRequired[int]
    """Messages that would have waited for the end of quiet hours."""

    capped: NotRequired[int]
    """Messages that the frequency cap would have kept from being sent."""

    unsent: NotRequired[dict[str, int]]
    """Messages that would not have been sent, by reason; with those of the cap."""

    refused: NotRequired[dict[str, int]]
    """Entries that were refused, by reason."""


class ReplayWarning(TypedDict):
    """A limit of the replay: a code, and the event, number or total that it is about."""

    code: Literal[
        "current_data",
        "event_late",
        "event_missing",
        "imported",
        "not_ready",
        "random",
        "reactions",
        "rounded",
        "sampled",
        "sms_estimated",
        "starts_flows",
        "unfinished",
    ]
    """Which limit it is."""

    event: NotRequired[str | None]
    """Name of the event that the warning is about."""

    at: NotRequired[str | None]
    """Time."""

    number: NotRequired[int | None]
    """Number that the warning is about."""

    total: NotRequired[int | None]
    """Of so many."""


class ReturnProposal(TypedDict):
    """The return of a proposal to its agent."""

    note: NotRequired[str | None]
    """What to change, shown to the agent."""


class Role(TypedDict):
    """A role of the account's own."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name of the role, unique in the account regardless of case."""

    scopes: list[str]
    """Scopes of the role, sorted."""

    contact_data: Literal["full", "masked"]
    """Whether users see the names and addresses of contacts, or pseudonyms instead (`masked`)."""

    user_count: int
    """Users, enabled and disabled, with the role."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class RolePatch(TypedDict):
    """The fields of a role that can be changed; fields that are not given stay unchanged."""

    name: NotRequired[str]
    """Name of the role, unique in the account regardless of case."""

    scopes: NotRequired[list[str]]
    """Scopes of the role, as those of API keys, and `contacts:export`; a scope includes reading its area."""

    contact_data: NotRequired[Literal["full", "masked"]]
    """Whether users see the names and addresses of contacts, or pseudonyms instead (`masked`)."""


class RoleWrite(TypedDict):
    """The fields of a new role."""

    name: str
    """Name of the role, unique in the account regardless of case."""

    scopes: list[str]
    """Scopes of the role, as those of API keys, and `contacts:export`; a scope includes reading its area."""

    contact_data: NotRequired[Literal["full", "masked"]]
    """Whether users see the names and addresses of contacts, or pseudonyms instead (`masked`)."""


class RunActionResult(TypedDict):
    """The result of an action on several runs."""

    changed: int
    """Number of changed runs."""

    unchanged: list[int]
    """Ids in the request that are not active runs of this flow."""


class RunCount(TypedDict):
    """A number of runs, and the API path that lists them."""

    count: int
    """Number."""

    people: str
    """Path of the list of these contacts."""


class RunFigures(TypedDict):
    """The runs of a flow by status. `ignored` counts events that triggered the flow but started no run."""

    entered: RunCount
    """Contacts that entered."""

    active: RunCount
    """Active runs."""

    completed: NumberByReason
    """Completed runs."""

    exited: NumberByReason
    """Runs that ended early."""

    ignored: NumberByReason
    """Triggers that started no run."""


class RunSelection(TypedDict):
    """Runs to act on: either `run_ids`, or all runs that wait in a step."""

    run_ids: NotRequired[list[int] | None]
    """Ids of the runs."""

    step: NotRequired[int | None]
    """Alternatively, the id of a step, for all runs that wait there."""


class RunStep(TypedDict):
    """A step that a run has entered."""

    step_id: int
    """Id of the step."""

    type: str
    """Type."""

    summary: str
    """Description of the step at that time."""

    outcome: str | None
    """How the contact left the step, or the key of its branch; null while waiting."""

    reason: str | None
    """Why the step was skipped or the contact exited."""

    message_id: int | None
    """Id of the message; null if there is none."""

    message_status: str | None
    """Status of the message sent by the step."""

    entered_at: str
    """When the contact entered the step."""

    left_at: str | None
    """When the contact left the step; null while waiting."""


class SampleSize(TypedDict):
    """What a test of this size can find, at the rate of earlier campaigns."""

    variants: int
    """Number of variants."""

    recipients: int
    """Number of recipients of each variant, at present."""

    rate: float
    """Expected rate of conversions."""

    is_measured: bool
    """Whether the rate is that of the last 90 days, not an assumption."""

    smallest_lift: float | None
    """Smallest relative difference that it finds with a probability of 80 %."""

    needed: int | None
    """Recipients of each variant to find a difference of 20 %."""


class ScriptResult(TypedDict):
    """The result of a script: whether all its expectations are met, and which are not."""

    name: str
    """Name."""

    passed: bool
    """True if all expectations are met."""

    expected: int
    """Number of expectations."""

    failures: list[str]
    """Expectations that are not met, in words."""

    end: str
    """How the run ends."""


class Segment(TypedDict):
    """A group of contacts that match filters."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name."""

    filters: list[Filter]
    """Filters, all of which must match; without filters, the segment holds all contacts."""

    sentence: str
    """Description as a sentence."""

    contacts_count: int | None
    """Number of contacts in the segment; null until first counted."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class SegmentCreate(TypedDict):
    """The fields of a new segment; without filters, the segment contains all contacts."""

    name: str
    """Name."""

    filters: NotRequired[list[Filter]]
    """Filters, all of which must match; without filters, the segment holds all contacts."""

    starter: NotRequired[str]
    """Key of the ready-made segment whose filters to use; `filters` overrides it."""


class SegmentExplanation(TypedDict):
    """Whether a contact is in a segment, and why: the segment in words, and the result of each filter."""

    segment_id: int
    """Id of the segment."""

    contact_id: int
    """Id of the contact."""

    matches: bool
    """Whether the contact is in the segment."""

    sentence: str
    """Description as a sentence."""

    rows: list[FilterResult]
    """Results by filter, as sent."""


class SegmentPatch(TypedDict):
    """The changes to a segment; fields that are not given stay unchanged, and `filters` replaces all filters."""

    name: NotRequired[str]
    """Name."""

    filters: NotRequired[list[Filter]]
    """Filters, all of which must match; without filters, the segment holds all contacts."""


class SegmentStarter(TypedDict):
    """A ready-made segment. `POST /segments` accepts its `key` as `starter`, or its filters."""

    key: str
    """Identifier of the starter in `POST /segments`."""

    name: str
    """Name to give to the new segment."""

    description: str
    """Description."""

    filters: list[Filter]
    """Filters."""


class SegmentStarters(TypedDict):
    """All ready-made segments."""

    starters: list[SegmentStarter]
    """Ready-made segments."""


class SendBlocker(TypedDict):
    """A problem that prevents sending."""

    code: str
    """Reason code; that of the first blocker is the `reason`."""

    message: str
    """Explanation for people."""

    field: str
    """Path of the field; empty if there is none."""


class SendHour(TypedDict):
    """An hour of the day at which recipients get a campaign, on their own clocks."""

    hour: int
    """Hour of the day, from 0 to 23."""

    recipients: int
    """Number of recipients who get it at this hour."""

    waiting: int
    """Number of their messages that are still open."""

    clicked: int
    """Number of these recipients who clicked."""


class SendMoment(TypedDict):
    """A moment at which a campaign leaves, with the time zones whose local time it is."""

    at: str
    """When these recipients get it."""

    time_zones: list[str]
    """Their time zones."""

    recipients: int
    """Number of these recipients."""

    waiting: int
    """Number of their messages that are still open."""


class SendQueue(TypedDict):
    """The numbers of queued messages of the account, and the age of the oldest due message."""

    waiting: int
    """Number of queued messages."""

    due: int
    """Number of queued messages that are due."""

    in_hand: int
    """Number of messages being sent."""

    oldest_due_at: str | None
    """When the oldest due message became due; null if none is due."""

    oldest_age_seconds: int
    """Age of the oldest due message, in seconds."""


class SendRequest(TypedDict):
    """Changes to a campaign that are applied together with its send, and options of the send."""

    scheduled_at: NotRequired[str | None]
    """When to send; a time in the past or null sends now."""

    local_time: NotRequired[str | None]
    """When to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and
    `scheduled_at`, which is then the first moment at which it is that time anywhere. null: no local time.
    """

    best_hour_until: NotRequired[int | None]
    """Until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best hour of
    their own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same request.
    null: all get it at `local_time`.
    """

    trigger_attributes: NotRequired[TriggerWrite]
    """Changes of the audience before sending."""

    template_attributes: NotRequired[Content]
    """Changes of the content before sending."""

    confirm_send_to_all: NotRequired[bool]
    """Confirms that all contacts are meant, if nothing narrows the audience."""

    hold_seconds: NotRequired[int]
    """Number of seconds before the first message is sent, in which the send can be undone; a later `scheduled_at`
    takes precedence.
    """

    contact_list_id: NotRequired[int | None]
    """Alias of `trigger_attributes.contact_list_id`; beside it, both must be the same."""

    segment_id: NotRequired[int | None]
    """Alias of `trigger_attributes.segment_id`; beside it, both must be the same."""

    contact_list_ids: NotRequired[list[int]]
    """Alias of `trigger_attributes.data.contact_list_ids`; beside it, both must be the same."""

    exclude_contact_list_ids: NotRequired[list[int]]
    """Alias of `trigger_attributes.data.exclude_contact_list_ids`; beside it, both must be the same."""

    exclude_segment_ids: NotRequired[list[int]]
    """Alias of `trigger_attributes.data.exclude_segment_ids`; beside it, both must be the same."""

    audience_type: NotRequired[Literal["all_contacts", None]]
    """Alias of `trigger_attributes.data.audience_type`; beside it, both must be the same."""


class SendTimes(TypedDict):
    """When a campaign with a local time leaves in which time zone: fixed when it is sent, before that a forecast."""

    local_time: str | None
    """Time on the clock of each recipient; null for other campaigns."""

    best_hour_until: int | None
    """Until which hour it is sent at the best hour of each recipient; null: none."""

    is_fixed: bool
    """Whether the campaign was sent, so that the times are fixed."""

    first_at: str | None
    """When the first recipients get it; null without recipients."""

    last_at: str | None
    """When the last recipients get it; null without recipients."""

    times: list[SendMoment]
    """Moments in order."""

    hours: list[SendHour]
    """Hours of the day in order; without recipients, none."""

    sources: ZoneSources | None
    """Where the time zones come from; null once it was sent."""

    late_recipients: int
    """Number of recipients whose local time had passed at the start, and who get it at once."""

    next_day_recipients: int
    """Number of recipients whose local time had passed for longer, and who get it a day later."""


class SendableCount(TypedDict):
    """The number of members that may receive marketing, by channel."""

    email: int
    """Number of contacts that can be sent email."""

    sms: int
    """Number of contacts that can be sent SMS."""


class SendingDomain(TypedDict):
    """A domain from which email may be sent, with its DNS records."""

    id: int
    """Unique id; ids ascend and are never reused."""

    name: str
    """Domain in lower case."""

    provider: str
    """Always `smtp`."""

    status: Literal["failed", "pending", "verified"]
    """`verified` once the required records are in DNS."""

    dns_records: list[DnsRecord] | None
    """DNS records to enter."""

    attention: str | None
    """Warning about a domain that works but needs attention; null for none."""

    attention_since: str | None
    """Since when the domain needs attention."""

    verified_at: str | None
    """When the domain was verified."""

    failed_at: str | None
    """When the domain stopped being verified; null if it did not."""

    checked_at: str | None
    """When DNS was last checked."""

    next_check_at: str | None
    """When DNS is checked next; null if no check is planned."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class SendingObstacle(TypedDict):
    """A condition that prevents or delays sending."""

    code: str
    """Code for programs."""

    text: str
    """The same as a sentence."""

    since: str | None
    """Start of the period."""

    until: str | None
    """End of the period; null if unknown."""


class SendingRate(TypedDict):
    """The rate limits of the installation, and the numbers of messages that the account sent recently."""

    per_second: float
    """Maximum number per second; 0 for no limit."""

    per_hour: int
    """Maximum number per hour; 0 for no limit."""

    last_minute: int
    """Number sent in the last minute."""

    last_hour: int
    """Number sent in the last hour."""


_SentMessageKeywords = TypedDict("_SentMessageKeywords", {"from": "str | None"})


class SentMessage(_SentMessageKeywords):
    """The message to the recipient `to` of a request, with all recipients of the request."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    attempts: int
    """Number of attempts."""

    contact_id: int | None
    """Id of the contact; null if there is none or it was deleted."""

    campaign_id: int | None
    """Id of the campaign; null if there is none."""

    flow_id: int | None
    """Id of the flow; null if there is none."""

    step_id: int | None
    """Id of the flow step that sent the message; null if there is none."""

    template_id: int | None
    """Id of the template of the message; null if its content was given in the request."""

    segments: int | None
    """Number of SMS parts; null for email."""

    channel: Literal["email", "sms"]
    """`email` or `sms`."""

    status: Literal[
        "bounced",
        "cancelled",
        "complained",
        "delivered",
        "failed",
        "held",
        "queued",
        "sending",
        "sent",
        "skipped",
        "uncertain",
    ]
    """Status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may still change a
    final status.
    """

    provider: str
    """Transport of the message."""

    source_type: Literal["campaign", "flow", "system", "test", "transactional"]
    """Kind of source of the message."""

    to: str | None
    """Recipient; null once erased."""

    reply_to: str | None
    """Address for replies; null for the sender."""

    subject: str | None
    """Subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its merge tags, and null
    for campaigns and flows.
    """

    skip_reason: str | None
    """Why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; more may follow."""

    source_name: str | None
    """Name of the campaign or flow."""

    provider_id: str | None
    """Id of the message at the provider."""

    idempotency_key: str | None
    """`Idempotency-Key` of the request."""

    internet_message_id: str | None
    """Message-ID header."""

    transactional: bool
    """Whether the message is sent without consent, footer and tracking, as receipts are."""

    test: bool
    """Whether it is a test; tests are captured and never counted."""

    tags: dict[str, Any]
    """Tags of the message."""

    error: MessageError | None
    """Last rejection; null if there is none."""

    next_attempt_at: str | None
    """Time of the next attempt; null if there is none."""

    sent_at: str | None
    """When the message was sent."""

    delivered_at: str | None
    """When the message was reported as delivered."""

    opened_at: str | None
    """When a person first opened the message."""

    clicked_at: str | None
    """When a person first clicked a link."""

    variant: int | None
    """Number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: held out; null without
    a test.
    """

    bounced_at: str | None
    """When the message was reported as undeliverable."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    recipients: list[MessageRecipient]
    """All recipients, that of `to` first."""

    attachments: list[MessageAttachment]
    """Attached files."""


class SignInPatch(TypedDict):
    """A change of how people of the account may sign in."""

    password: bool
    """False: a password alone is not enough; only owners may change it, after an owner has signed in with a
    provider.
    """


class SignInProvider(TypedDict):
    """An OpenID Connect provider that people of the account sign in with; its client secret is never returned."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    name: str
    """Name of the provider, as the button on the sign-in page shows it."""

    issuer: str
    """Issuer of the provider; it cannot be changed."""

    client_id: str
    """Client ID that the provider has given."""

    has_client_secret: bool
    """Whether a client secret is stored."""

    domains: list[str]
    """Domains of verified addresses whose owners may join without an invitation."""

    role: Literal["admin", "author", "editor", "viewer"]
    """Role of those who join by their domain."""

    trust_mfa: bool
    """Whether a second factor of the provider replaces the code of the user."""

    enabled: bool
    """Whether people can sign in with the provider."""

    redirect_uri: str
    """Redirect URI to register at the provider."""

    sign_in_url: str
    """URL that begins a sign-in with the provider."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class SignInProviderTest(TypedDict):
    """The result of a test of a provider."""

    ok: bool
    """Whether endpoints, keys, client ID and secret are right."""

    error: str | None
    """What is wrong; null if nothing is."""


class SignInSettings(TypedDict):
    """How people of the account may sign in."""

    password: bool
    """Whether a password is enough to sign in."""


class SignedIn(TypedDict):
    """A new JWT."""

    token: str
    """JWT, shown in this response only."""

    expires_at: str
    """When the token expires."""

    user: SignedInUser
    """The user who signed in."""


class SignedInUser(TypedDict):
    """The user who signed in, to whom a new token belongs."""

    id: int
    """Unique id; ids ascend and are never reused."""

    email: str
    """Email address."""

    name: str
    """Name."""

    role: str
    """Role of the user: a built-in name, or the id of an own role."""


class SimulateEventRequest(TypedDict):
    """An event to simulate for a captured message; `link` is the number of the clicked link, from 1."""

    action: Literal[
        "bounce",
        "click",
        "complain",
        "deliver",
        "fail",
        "help",
        "open",
        "reply",
        "soft_bounce",
        "start",
        "stop",
        "unsubscribe",
    ]
    """Event to simulate."""

    link: NotRequired[int]
    """Number of the link to click, starting at 1."""

    text: NotRequired[str]
    """Text of the reply."""


class SimulateRequest(TypedDict):
    """A request to simulate a flow with one contact."""

    contact_id: NotRequired[int | None]
    """Id of the contact; absent for a sample contact."""

    contact: NotRequired[ContactWrite | None]
    """Properties of the sample contact."""

    start_at: NotRequired[str | None]
    """Start of the simulation; default: now."""

    event: NotRequired[dict[str, Any] | None]
    """Data of the event that starts the flow."""

    events: NotRequired[list[Assumption] | None]
    """Assumed events."""

    branches: NotRequired[dict[str, str] | None]
    """Key of the branch that the contact takes at a random split, by the id of the step."""

    until: NotRequired[str | None]
    """Latest end of the simulation."""

    responses: NotRequired[list[SimulatedResponse] | None]
    """Responses of HTTP requests, by step; default: 200 without a body."""

    steps: NotRequired[list[FlowStepWrite]]
    """Steps to simulate instead of the stored ones."""


class SimulatedContact(TypedDict):
    """The contact of a simulation, real or a sample contact."""

    id: int | None
    """Id of the contact; null for a sample contact."""

    name: str
    """Name of the contact."""


class SimulatedResponse(TypedDict):
    """The response that a simulation plays for a step that makes an HTTP request."""

    step: int
    """Id of the step."""

    status: NotRequired[int]
    """HTTP status; 0: no response in time."""

    body: NotRequired[Any]
    """Decoded JSON of the response."""


class Simulation(TypedDict):
    """The result of a simulation of a flow with one contact; nothing was sent or recorded."""

    flow_id: int
    """Id of the flow."""

    version: int | None
    """Live version that was simulated; null if the flow is not active or other steps were tried."""

    contact: SimulatedContact
    """Contact of the simulation."""

    time_zone: str
    """Time zone for times of day."""

    started_at: str
    """When the simulation begins."""

    until: str
    """End of the period; null if unknown."""

    end: SimulationEnd
    """How the run ends."""

    timeline: list[SimulationEntry]
    """Entries, oldest first."""

    notes: list[str]
    """Limits of the simulation."""

    text: NotRequired[str]
    """Whole result as text."""


class SimulationEnd(TypedDict):
    """The end of a simulation; the status is `live` if the contact is still in the flow at the latest end."""

    status: Literal["completed", "exited", "live"]
    """How the run ends."""

    reason: str | None
    """Why the contact exited; null if it did not."""

    at: str | None
    """When the run ends; null if it does not."""

    step_id: int | None
    """Id of the step at which it ends; null if there is none."""

    description: str
    """Description as a sentence."""


class SimulationEntry(TypedDict):
    """An entry in the timeline of a simulation, such as a step that was executed."""

    at: str
    """Time of the entry."""

    kind: Literal["assumed", "enter", "goal", "message", "recorded", "starts", "step"]
    """Kind."""

    description: str
    """Description as a sentence."""

    step_id: NotRequired[int | None]
    """Id of the step; null if there is none."""

    path: NotRequired[str | None]
    """Path of the step in the flow."""

    type: NotRequired[str | None]
    """Type."""

    outcome: NotRequired[str | None]
    """How the contact left the step, or `waits`."""

    reason: NotRequired[str | None]
    """Reason."""

    branch: NotRequired[str | None]
    """Label of the branch that the contact took."""

    until: NotRequired[str | None]
    """Until when the contact waits."""

    event: NotRequired[str | None]
    """Name of the event."""

    data: NotRequired[dict[str, Any] | None]
    """Data of the event."""

    filters: NotRequired[list[SplitReason]]
    """For a branch, the result of each filter."""

    checked_events: NotRequired[list[str]]
    """Events that a branch checks, which can be assumed to try the other branch."""

    message: NotRequired[RenderedMessage | None]
    """Message that the step creates or that is sent."""


_SmsFactsKeywords = TypedDict("_SmsFactsKeywords", {"from": "str | None"})


class SmsFacts(_SmsFactsKeywords):
    """Sender, opt-out text and number of parts of an SMS."""

    opt_out_hint: str | None
    """Opt-out text at the end; null for none."""

    parts: int | None
    """Total number of SMS parts; null if not yet known."""

    is_exact: bool | None
    """Whether the count is exact, from rendering every message; null if nothing is known yet."""


class SmsFigures(TypedDict):
    """The figures that only the report of an SMS campaign has."""

    parts: int
    """Number of accepted SMS parts."""

    countries: list[CountryFigures]
    """Results by country."""


class SmsPreview(TypedDict):
    """A preview of an SMS: its number of parts, its alphabet, and the character that forces UCS-2."""

    body: str
    """Text as it would arrive."""

    segments: int
    """Number of SMS parts; null for email."""

    alphabet: Literal["GSM-7", "UCS-2"]
    """Alphabet of the SMS."""

    characters: int
    """Number of characters."""

    units: int
    """Number of units of the alphabet."""

    left: int
    """Number of units left in the last part."""

    forcing: ForcingCharacter | None
    """Character that requires the larger alphabet; null if there is none."""

    problem: str | None
    """Problem; null if there is none."""


class SmsStatus(TypedDict):
    """The delivery status of SMS."""

    transport: str
    """Transport for SMS."""

    open: bool
    """True unless an obstacle stops all SMS."""

    obstacles: list[SendingObstacle]
    """Reasons why all or some SMS wait."""

    rate: SendingRate
    """Sending rate."""

    connections: ConnectionCount
    """Connections to the provider."""

    queue: SendQueue
    """Queued messages."""

    senders: list[ThrottledSender]
    """Senders with a reduced rate, because the provider asked for it."""


class SmsTotals(TypedDict):
    """The totals over the SMS of a campaign."""

    parts: NotRequired[int]
    """Total number of SMS parts."""

    is_exact: NotRequired[bool]
    """Whether every SMS was rendered; otherwise `parts` is an estimate from those that were."""

    by_parts: NotRequired[dict[str, int]]
    """Number of recipients by number of parts."""

    ucs2: NotRequired[int]
    """Number of recipients whose SMS contains characters outside GSM-7."""

    forcing: NotRequired[list[UnicodeCharacter]]
    """Characters outside GSM-7."""

    characters: NotRequired[int]
    """Number of characters of the longest SMS."""

    countries: NotRequired[dict[str, int]]
    """Number of recipients by country of their phone number."""

    fixed_lines: NotRequired[int]
    """Number of fixed-line numbers."""

    refused: NotRequired[dict[str, int]]
    """Number of recipients that are skipped because of their number or consent, by reason."""

    resting: NotRequired[int]
    """Number of recipients in quiet hours at the start, whose SMS are sent when those end."""


class SnapshotProgress(TypedDict):
    """Progress of the audience snapshot; `total` is null until the audience is counted."""

    done: int
    """Number of recipients stored so far."""

    total: int | None
    """Total number of recipients; null until they are counted."""


class SocialSection(TypedDict):
    """A section of the type `social`."""

    type: Literal["social"]
    """Section type."""

    props: NotRequired[SocialSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[SocialSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class SocialSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    links: NotRequired[list[SocialSectionPropsLink | None] | None]
    """Links. Leave empty to use the links of your brand."""

    style: NotRequired[str | float | bool | None]
    """Style."""

    size: NotRequired[str | float | bool | None]
    """Size."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class SocialSectionPropsLink(TypedDict):
    """SocialSectionPropsLink."""

    platform: NotRequired[str | float | bool | None]
    """Platform."""

    url: NotRequired[str | float | bool | None]
    """Link."""


class SocialSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class SpacerSection(TypedDict):
    """A section of the type `spacer`."""

    type: Literal["spacer"]
    """Section type."""

    props: NotRequired[SpacerSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[SpacerSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class SpacerSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    height: NotRequired[str | float | bool | None]
    """Height."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class SpacerSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class SplitReason(TypedDict):
    """A filter of a split, and whether it matches the contact; `rows` are the filters of a group."""

    name: str
    """Name of the filter."""

    predicate: str
    """Predicate."""

    value: Any
    """Value of the filter."""

    sentence: str
    """Description as a sentence."""

    matches: bool
    """Whether the filter matches."""

    decided: bool
    """Whether this filter determined the result."""

    actual: Any
    """Actual value of the contact."""

    actual_text: str
    """The same as text."""

    rows: list[SplitReason]
    """Filters of the group."""


class SplitSample(TypedDict):
    """The size that a test needs to find a branch that is better by 20 % with a probability of 80 %."""

    variants: int
    """Number of branches that are compared."""

    rate: float
    """Expected rate of conversions."""

    is_measured: bool
    """Whether the rate is that of the last 90 days, not an assumption."""

    needed: int | None
    """Contacts that each branch needs; null if more than a billion."""

    per_day: float
    """Contacts a day who came to the step in the last 30 days, or the flow."""

    days: int | None
    """Days until the smallest branch has them; null without contacts."""


class SplitSection(TypedDict):
    """A section of the type `split`."""

    type: Literal["split"]
    """Section type."""

    props: NotRequired[SplitSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[SplitSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class SplitSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    src: NotRequired[str | float | bool | None]
    """Image."""

    alt: NotRequired[str | float | bool | None]
    """Alt text."""

    side: NotRequired[str | float | bool | None]
    """Image position."""

    ratio: NotRequired[str | float | bool | None]
    """Widths. Ratio of image to text."""

    title: NotRequired[str | float | bool | None]
    """Title."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    button: NotRequired[SplitSectionPropsButton | str | None]
    """Button."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class SplitSectionPropsButton(TypedDict):
    """Button."""

    text: NotRequired[str | float | bool | None]
    """Text."""

    href: NotRequired[str | float | bool | None]
    """Link."""


class SplitSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class SplitTestResult(TypedDict):
    """The test of a random split: counts, the conclusion, and the winner."""

    state: Literal["decided", "testing"]
    """`decided`: all take the winner."""

    metric: Literal["clicks", "event"]
    """What decides."""

    event: str | None
    """Name of the event that is counted."""

    by_amount: bool
    """Whether the amounts of the events are compared."""

    uneven: bool
    """Whether better branches get more of the later contacts."""

    decided_by: Literal["person", "service"]
    """Who decides."""

    started_at: str | None
    """Since when runs are counted."""

    winner: str | None
    """Key of the branch that all take."""

    chosen_by: str | None
    """`service`, or the user or API key that chose the winner."""

    chosen_at: str | None
    """When it was chosen."""

    decision: ExperimentDecision | None
    """What the counts say; null without runs."""

    variants: list[SplitVariant]
    """Counts of each branch."""


class SplitVariant(TypedDict):
    """The counts of a branch in its test."""

    number: int
    """Number of the branch, from 1."""

    key: str
    """Key of the branch."""

    name: str
    """Its name, by default its letter."""

    share: float
    """Share of the contacts who come to the step now that take it, 0 to 1."""

    test_recipients: int
    """Number of runs that took it in the test, which are compared."""

    converted: int
    """Number of those that did what is counted."""

    amount: float
    """Sum of the amounts of their events; 0 if amounts are not compared."""

    value: float
    """What is compared: `converted` or `amount`, per run."""

    chance: float | None
    """Probability that it is the best; null without a comparison."""

    loss: float | None
    """Expected loss per run of choosing it; null without a comparison."""


class StepCount(TypedDict):
    """The number of contacts and messages of one step, by what happened to them."""

    step_id: int
    """Id of the step."""

    path: str
    """Path of the step in the flow."""

    type: str
    """Type."""

    summary: str
    """Description of the step."""

    entered: NotRequired[int]
    """Contacts that entered."""

    on: NotRequired[int]
    """Contacts that continued, for steps without branches."""

    yes: NotRequired[int]
    """Contacts that continued with the `yes` branch."""

    no: NotRequired[int]
    """Contacts that continued with the `no` branch."""

    branches: NotRequired[list[BranchCount]]
    """Contacts that continued, by branch."""

    skipped: NotRequired[int]
    """Contacts for which the step was skipped."""

    exited: NotRequired[int]
    """Contacts that exited the flow at the step."""

    waiting: NotRequired[int]
    """Contacts that wait at the step."""

    sent: NotRequired[int]
    """Number of messages sent."""

    unsent: NotRequired[int]
    """Number of messages not sent."""

    reasons: NotRequired[dict[str, int]]
    """Why contacts were skipped or exited and why messages were not sent, with counts."""


class StepField(TypedDict):
    """A key of a step, as a form shows it."""

    name: str
    """Name."""

    label: str
    """Label in the user interface."""

    type: str
    """Type."""

    required: bool
    """Whether the field is required before the flow can be activated."""

    help: str
    """Help text."""


class StepFigures(TypedDict):
    """The visits of a step: `entered` is the sum of `waiting`, `went_on` and `left`."""

    id: int
    """Id of the step."""

    type: str
    """Type of the step."""

    summary: str
    """Description of the step."""

    path: str | None
    """Path of the step in the flow; null if it was removed."""

    removed: bool
    """Whether the step was removed but has contacts, or had some."""

    entered: RunCount
    """Contacts that entered."""

    waiting: RunCount
    """Entered contacts that wait at the step."""

    waiting_now: RunCount
    """All contacts that wait at the step, whenever they entered."""

    went_on: RunCount
    """Contacts that continued."""

    yes: RunCount | None
    """Contacts that continued with the `yes` branch; null without branches."""

    no: RunCount | None
    """Contacts that continued with the `no` branch; null without branches."""

    branches: list[BranchFigures]
    """Contacts that continued, by branch."""

    skipped: NumberByReason
    """Contacts for which the step was skipped."""

    left: NumberByReason
    """Contacts that exited the flow at the step."""

    messages: MessageFigures | None
    """Messages sent by the step; null if it sends none."""

    test: NotRequired[SplitTestResult | None]
    """The test of a `random_split`, of all time; null without one."""

    sample_size: NotRequired[SplitSample | None]
    """What the test of a `random_split` needs, also before it is live; else null."""


class StepKind(TypedDict):
    """A step type: the keys that identify it, and all keys that it supports."""

    type: str
    """Type."""

    label: str
    """Label in the user interface."""

    icon: str
    """Name of the icon."""

    claims: list[str]
    """Keys that identify a step of this type."""

    keys: list[str]
    """All keys of the step."""

    branches: list[str]
    """Keys of the branches."""

    fields: list[StepField]
    """Fields of the step."""


class StorageUsage(TypedDict):
    """Whether the database can be written."""

    ok: bool
    """True if results can be recorded."""

    text: str | None
    """Problem; null if there is none."""


class StoredCopy(TypedDict):
    """A copy in the store."""

    name: str
    """Name of the copy, for `campanero restore`."""

    taken_at: str
    """Moment that the data in the copy has."""

    size: int
    """Size in bytes."""

    full: bool
    """False if it has only what changed since the full copy before it."""


class Suppression(TypedDict):
    """An address that gets no messages."""

    id: int
    """Unique id; ids ascend and are never reused."""

    channel: Literal["email", "sms"]
    """Channel that is suppressed."""

    address: str | None
    """Suppressed address; null if it was erased and only its hash is stored."""

    reason: Literal["complaint", "erased", "hard_bounce", "manual", "soft_bounce", "stop_keyword"]
    """Reason."""

    source: str | None
    """Origin of the suppression."""

    diagnostic: str | None
    """Response of the server that rejected the message."""

    note: str | None
    """Note of the person who added it."""

    created_at: str
    """When the object was created."""

    expires_at: str | None
    """When the suppression expires; null for never."""


class SuppressionWrite(TypedDict):
    """An address to suppress, with a reason."""

    address: str
    """Email address or phone number."""

    channel: NotRequired[Literal["email", "phone", "sms"]]
    """Channel to suppress; default: that of the address."""

    reason: NotRequired[Literal["complaint", "hard_bounce", "manual", "soft_bounce"]]
    """Reason; default: `manual`."""

    diagnostic: NotRequired[str | None]
    """Response of the server that rejected the message, if there is one."""

    note: NotRequired[str | None]
    """Note of the person who added it."""

    expires_at: NotRequired[str | None]
    """When the suppression expires; only for `manual`."""


class Template(TypedDict):
    """The content of an email or SMS: subject, body and design."""

    id: int
    """Unique id; ids ascend and are never reused."""

    name: str | None
    """Name."""

    flow_id: int | None
    """Id of the flow to whose step the template belongs; null for a standalone template or one of a campaign."""

    action_id: int | None
    """Id of the step to which the template belongs; null if there is none."""

    channel: Literal["email", "sms"]
    """Channel; cannot be changed."""

    subject: str | None
    """Subject line, with merge tags."""

    body: str | None
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    preheader: str | None
    """Preview text that mailboxes show after the subject line."""

    from_name: str | None
    """Sender name; null for that of the account."""

    from_email: str | None
    """Sender address; null for that of the account."""

    reply_to: str | None
    """Address for replies; null for the sender."""

    design: Design
    """Design: sections from top to bottom, and the theme."""

    variables: dict[str, Any]
    """Merge tags in the template, by name: `default`, `sample`, `required`."""

    languages: list[str]
    """Languages that it is translated into, besides the original."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class TemplateCreate(TypedDict):
    """A new template, as the API documents it; all fields are optional."""

    subject: NotRequired[str | None]
    """Subject line, with merge tags."""

    body: NotRequired[str | None]
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    preheader: NotRequired[str | None]
    """Preview text that mailboxes show after the subject line."""

    from_name: NotRequired[str | None]
    """Sender name; null for that of the account."""

    from_email: NotRequired[str | None]
    """Sender address; null for that of the account."""

    reply_to: NotRequired[str | None]
    """Address for replies; null for the sender."""

    design: NotRequired[Design | None]
    """Design; replaces the whole existing design. Default: one without sections."""

    name: NotRequired[str | None]
    """Name."""

    channel: NotRequired[Literal["email", "sms"]]
    """Channel; cannot be changed."""

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the object has been changed since then, the response is 409."""

    channelType: NotRequired[Literal["email", "sms"]]
    """Alias of `channel`; beside it, both must be the same."""


class TemplateSpec(TypedDict):
    """The section types of designs, the tags and filters of merge tags, and predefined emails."""

    kinds: list[dict[str, Any]]
    """Section types and their properties."""

    theme: list[dict[str, Any]]
    """Properties of the theme."""

    common: list[dict[str, Any]]
    """Properties that all sections have."""

    styles: list[dict[str, Any]]
    """Properties allowed in `styles`."""

    colours: list[str]
    """Names of theme colours."""

    limits: dict[str, Any]
    """Limits."""

    merge: dict[str, list[str]]
    """Merge language: tags, filters, roots."""

    starters: list[EmailStarter]
    """Starter designs."""


class TemplateTranslation(TypedDict):
    """The translation of a template into a language, with its texts in reading order."""

    language: str
    """Tag of the language (RFC 5646)."""

    translated: int
    """Number of texts that are translated."""

    changed: int
    """Number of texts that have changed since they were translated."""

    missing: int
    """Number of texts that are not translated."""

    updated_at: str
    """Last change of the template, for `updated_at` of a PUT."""

    texts: list[TranslatedText]
    """Texts of the template in reading order."""


class TemplateWrite(TypedDict):
    """A new or changed template; `updated_at` as last read makes the update fail if the template has changed since."""

    subject: NotRequired[str | None]
    """Subject line, with merge tags."""

    body: NotRequired[str | None]
    """Content: HTML or plain text of an email (the text part beside a design), or the text of an SMS."""

    preheader: NotRequired[str | None]
    """Preview text that mailboxes show after the subject line."""

    from_name: NotRequired[str | None]
    """Sender name; null for that of the account."""

    from_email: NotRequired[str | None]
    """Sender address; null for that of the account."""

    reply_to: NotRequired[str | None]
    """Address for replies; null for the sender."""

    design: NotRequired[Design | None]
    """Design; replaces the whole existing design."""

    name: NotRequired[str | None]
    """Name."""

    channel: NotRequired[Literal["email", "sms"]]
    """Channel; cannot be changed."""

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the object has been changed since then, the response is 409."""


class TestRequest(TypedDict):
    """The recipients of a test, and the values to show in it."""

    email: NotRequired[str | list[str] | None]
    """One email address; a list is an alias of `emails`."""

    emails: NotRequired[list[str] | None]
    """Up to five email addresses."""

    phone: NotRequired[str | list[str] | None]
    """One phone number; a list is an alias of `phones`."""

    phones: NotRequired[list[str] | None]
    """Up to five phone numbers."""

    contact_id: NotRequired[int | None]
    """Id of the contact whose values are shown, and who is the recipient if no address is given."""

    data: NotRequired[dict[str, Any] | None]
    """Values for merge tags such as `{{ data.order }}`."""

    language: NotRequired[str | None]
    """Language of the test; absent for the language of the contact."""


class TestResult(TypedDict):
    """The result of a test for one recipient: the id of the queued message, or the error."""

    to: str
    """Recipient."""

    email: str | None
    """Email address; null for SMS."""

    phone: str | None
    """Phone number; null for email."""

    success: bool
    """True if the test was queued."""

    message_id: int | None
    """Id of the message; null if there is none."""

    error: str | None
    """Error; null if there is none."""


class TestSendResult(TypedDict):
    """The results of a test by recipient, and warnings about unfinished content."""

    sent: int
    """Number of tests queued."""

    results: list[TestResult]
    """Results by recipient."""

    warnings: list[PreviewWarning]
    """Warnings, which do not block."""


class TextSection(TypedDict):
    """A section of the type `text`."""

    type: Literal["text"]
    """Section type."""

    props: NotRequired[TextSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[TextSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class TextSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    content: NotRequired[str | float | bool | None]
    """Text."""

    color: NotRequired[str | float | bool | None]
    """Colour."""

    size: NotRequired[str | float | bool | None]
    """Size."""

    line_height: NotRequired[str | float | bool | None]
    """Line height."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class TextSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class TextTranslation(TypedDict):
    """The translation of a text (`text`), and the text of which it is a translation (`source`)."""

    source: str
    """Text that was translated."""

    text: str
    """Translation."""


class ThrottledGroup(TypedDict):
    """A recipient group that is throttled because its servers asked for a lower rate."""

    group: str
    """Recipient group: domains whose mail the same organisation receives."""

    provider: str
    """Transport, such as `relay`."""

    text: str
    """Reply that asked for a lower rate."""

    since: str
    """Start of the period."""

    until: str | None
    """End of the period; null if unknown."""

    connections: int
    """Maximum number of concurrent connections."""


class ThrottledSender(TypedDict):
    """An SMS sender that is throttled because the provider asked for a lower rate."""

    sender: str
    """Sender."""

    provider: str
    """Name of the provider."""

    text: str
    """Reply that asked for a lower rate."""

    since: str
    """Start of the period."""

    until: str | None
    """End of the period; null if unknown."""

    connections: int
    """Maximum number of concurrent connections."""


class TimelineEntry(TypedDict):
    """An event of a contact, or a message to the contact."""

    type: Literal["event", "message"]
    """`event` or `message`."""

    id: int
    """Id of the event or message."""

    created_at: str
    """When it happened."""

    event: RecordedEvent | None
    """The event; null for a message."""

    message: Message | None
    """The message; null for an event."""


class TranslatedText(TypedDict):
    """A text of a template with its translation."""

    id: str
    """Id of the text: a field, or section and path (`a1b2/props.title`)."""

    label: str
    """Name of the text."""

    section: str
    """Name of its section; empty for a field of the template."""

    kind: str
    """Kind of the text: `line`, `text`, `rich`, `html`, `url` or `image`."""

    source: str
    """Text of the original."""

    text: str | None
    """Translation; null if there is none."""

    state: Literal["changed", "missing", "original", "translated"]
    """State of the translation; `original`: an image without one, which needs none."""


class TranslationCounts(TypedDict):
    """A language that a template is translated into, with the number of its texts by state."""

    language: str
    """Tag of the language (RFC 5646)."""

    translated: int
    """Number of texts that are translated."""

    changed: int
    """Number of texts that have changed since they were translated."""

    missing: int
    """Number of texts that are not translated."""


class TranslationWrite(TypedDict):
    """Translations by the id of the text."""

    texts: dict[str, str | None]
    """Translations by id of the text; null removes one."""

    updated_at: NotRequired[str]
    """`updated_at` as last read; if the template has changed since then, the response is 409."""


class TransportFigures(TypedDict):
    """The results of the emails that one transport took, or whose sending it failed."""

    provider: str
    """Key of the transport, as in messages."""

    accepted: int
    """Accepted by the next hop: sent, delivered, bounced and complained."""

    bounced: int
    """Accepted, and later reported as undeliverable."""

    failed: int
    """Rejected permanently, or given up after retries."""

    complained: int
    """Reported as spam."""

    opened: int
    """Number of people who opened."""

    clicked: int
    """Number of people who clicked a link."""


class TransportState(TypedDict):
    """The state of one transport of email."""

    key: str
    """Key of the transport, as in the `provider` of messages."""

    name: str | None
    """Name; null for the default transport."""

    kind: str
    """Kind of the transport, such as `relay`."""

    open: bool
    """True unless it is paused or its hourly limit is used up."""

    text: str | None
    """Why it is not open; null if it is."""

    until: str | None
    """When it is tried again; null if it is open."""

    connections: int
    """Maximum number of messages that are sent at the same time."""

    per_second: float
    """Maximum number per second; 0 for no limit."""

    per_hour: int
    """Maximum number per hour; 0 for no limit."""

    warm_up: TransportWarmUp | None
    """Warm-up; null if it has none or sent nothing today."""


class TransportWarmUp(TypedDict):
    """The warm-up of a transport, which limits marketing email."""

    day: int
    """Current day of the warm-up."""

    days: int
    """Number of days after which there is no limit."""

    cap: int
    """Maximum number of messages today."""

    used: int
    """Number of messages sent today."""

    until: str
    """Start of the next day."""


class Transports(TypedDict):
    """The transport of each channel, such as `capture` or `relay`."""

    email: str
    """Transport for email."""

    sms: str
    """Transport for SMS."""


class Trigger(TypedDict):
    """The trigger and audience of a campaign."""

    id: int
    """Unique id; ids ascend and are never reused."""

    flow_id: int
    """Id of the hidden flow that belongs to the campaign."""

    event: str
    """Event that triggers it; `manual` for a campaign."""

    segment_id: int | None
    """Id of the segment to send to."""

    contact_list_id: int | None
    """Id of the list to send to; with a segment, only contacts in both."""

    data: CampaignTriggerData
    """Further parts of the audience."""

    triggered_count: int
    """Number of times that it was triggered."""

    last_triggered_at: str | None
    """When it was last triggered; null for never."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class TriggerWrite(TypedDict):
    """The audience of a campaign; unknown keys are rejected, because ignoring them could change who gets messages."""

    event: NotRequired[str]
    """Event that triggers it; `manual` for a campaign."""

    contact_list_id: NotRequired[int | None]
    """Id of the list to send to; with a segment, only contacts in both."""

    segment_id: NotRequired[int | None]
    """Id of the segment to send to."""

    data: NotRequired[CampaignTriggerData | None]
    """Further parts of the audience."""


class UnicodeCharacter(TypedDict):
    """A character that is not in the GSM-7 alphabet, with its Unicode name and how many SMS it makes longer."""

    character: str
    """Character."""

    name: str
    """Name."""

    count: int
    """Number of recipients whose SMS it makes longer."""


class Upload(TypedDict):
    """An uploaded image."""

    signed_id: str
    """Identifier of the image, for the brand's `logo` and others."""

    url: str
    """URL of the image."""

    content_type: str
    """Media type, such as `image/png`."""

    bytes: int
    """Size in bytes."""

    width: int | None
    """Width in pixels; null if unknown."""

    height: int | None
    """Height in pixels; null if unknown."""

    filename: str
    """File name."""


class UploadForm(TypedDict):
    """The form fields other than the file."""

    full_size: NotRequired[bool]
    """True to keep the original width of an image that is wider than an email."""


class User(TypedDict):
    """A user of the account."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    email: str
    """Email address that the user signs in with, in lower case; unique in the installation."""

    name: str
    """Name shown to other users."""

    role: str
    """Role of the user: viewers read, authors also write, editors also send, admins and owners may do everything,
    but only owners manage owners; the id of an own role (`/roles`) as a text.
    """

    role_name: str
    """Name of an own role; the same as `role` for a built-in one."""

    otp: bool
    """Whether signing in requires a second factor."""

    disabled_at: str | None
    """When the user was disabled; null if enabled."""

    last_login_at: str | None
    """When the user last signed in; null for never."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class UserPatch(TypedDict):
    """The fields of a user that owners and admins may change; fields that are not given stay unchanged."""

    name: NotRequired[str]
    """Name shown to other users."""

    role: NotRequired[str]
    """Role of the user: viewers read, authors also write, editors also send, admins and owners may do everything,
    but only owners manage owners; or the id or name of an own role (`/roles`).
    """

    disabled: NotRequired[bool]
    """True to disable the user, who can then no longer sign in."""

    password: NotRequired[str]
    """New password of at least 10 characters; ends all sessions of the user."""

    otp: NotRequired[Literal[False]]
    """False removes the second factor of a user who lost it; the user sets up a new one."""


class UserSession(TypedDict):
    """An active session of a user: the sign-in of a browser or of a program."""

    id: int
    """Unique id; ids ascend and are never reused."""

    kind: Literal["browser", "token"]
    """`browser`, or `token` for a program."""

    current: bool
    """Whether it is the session of this request."""

    name: str | None
    """Name that the user gave the device; null if the user gave it none."""

    method: str | None
    """How the user signed in: `password`, `password_code`, `password_passkey`, `passkey` or `invitation`; null if
    the session began before this was recorded.
    """

    ip: str | None
    """Full IP address from which the user signed in; null if unknown."""

    last_ip: str | None
    """Full IP address of the last use; null if it was not used since the sign-in."""

    user_agent: str | None
    """User-Agent header at sign-in."""

    last_seen_at: str
    """When the session was last used, to within five minutes."""

    expires_at: str
    """When the session expires; a browser session is extended by use, to 30 days at most."""

    created_at: str
    """When the user signed in."""


class UserSessionPatch(TypedDict):
    """The name of a session's device, which later sessions from the device have, too."""

    name: NotRequired[str | None]
    """Name of the device; null or empty to remove it."""


class UserWithPassword(TypedDict):
    """A new user."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    email: str
    """Email address that the user signs in with, in lower case; unique in the installation."""

    name: str
    """Name shown to other users."""

    role: str
    """Role of the user: viewers read, authors also write, editors also send, admins and owners may do everything,
    but only owners manage owners; the id of an own role (`/roles`) as a text.
    """

    role_name: str
    """Name of an own role; the same as `role` for a built-in one."""

    otp: bool
    """Whether signing in requires a second factor."""

    disabled_at: str | None
    """When the user was disabled; null if enabled."""

    last_login_at: str | None
    """When the user last signed in; null for never."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    password: str | None
    """Generated password; null if the request contained one."""


class UserWrite(TypedDict):
    """The fields of a new user; without `password`, a password is generated and returned in the response only."""

    email: str
    """Email address that the user signs in with, in lower case; unique in the installation."""

    role: str
    """Role of the user: viewers read, authors also write, editors also send, admins and owners may do everything,
    but only owners manage owners; or the id or name of an own role (`/roles`).
    """

    name: NotRequired[str]
    """Name shown to other users; default: the part of the email address before the `@`."""

    password: NotRequired[str]
    """Password of at least 10 characters; if absent, one is generated and returned in this response only."""


class Utm(TypedDict):
    """The UTM parameters of links; one that is null is not added."""

    source: str | None
    """`utm_source`, such as `newsletter`."""

    medium: str | None
    """`utm_medium`, such as `email`."""

    campaign: str | None
    """`utm_campaign`, such as `{{ campaign.name }}`."""

    term: str | None
    """`utm_term`."""

    content: str | None
    """`utm_content`."""


class UtmWrite(TypedDict):
    """The UTM parameters of links; one without a value is not added."""

    source: NotRequired[str | None]
    """`utm_source`, such as `newsletter`."""

    medium: NotRequired[str | None]
    """`utm_medium`, such as `email`."""

    campaign: NotRequired[str | None]
    """`utm_campaign`, such as `{{ campaign.name }}`."""

    term: NotRequired[str | None]
    """`utm_term`."""

    content: NotRequired[str | None]
    """`utm_content`."""


class Variant(TypedDict):
    """A variant of an A/B test."""

    id: int
    """Unique id; ids ascend and are never reused."""

    number: int
    """Number from 1; variant 1 is the campaign's own content."""

    name: str | None
    """Name."""

    template_id: int
    """Id of the template with its own texts; for variant 1 the campaign's."""

    subject: str | None
    """Subject line, with merge tags."""

    preheader: str | None
    """Preview text that mailboxes show after the subject line."""

    from_name: str | None
    """Sender name; null for that of the account."""

    from_email: str | None
    """Sender address; null for that of the account."""

    reply_to: str | None
    """Address for replies; null for the sender."""

    has_own_content: bool
    """Whether it has a body or design of its own."""

    send_after_minutes: int
    """Minutes from the start of the campaign to its first message."""


class VariantResult(TypedDict):
    """The counts of a variant. `recipients` is the sum of `statuses`."""

    number: int
    """Number of the variant, from 1."""

    name: str
    """Its name, by default its letter."""

    differences: list[str]
    """Fields that it has itself; `content`: body and design."""

    recipients: int
    """Number of recipients, with those who got it as the winner."""

    statuses: dict[str, int]
    """Number of its messages by status."""

    opened: int
    """Number of recipients who opened it (estimated)."""

    clicked: int
    """Number of recipients who clicked."""

    test_recipients: int
    """Number of recipients in the test, which are compared."""

    converted: int
    """Number of those who did what is counted."""

    amount: float
    """Sum of the amounts of their events; 0 if amounts are not compared."""

    value: float
    """What is compared: `converted` or `amount`, per recipient."""

    chance: float | None
    """Probability that it is the best; null before the send."""

    loss: float | None
    """Expected loss per recipient of choosing it."""


class VariantWrite(TypedDict):
    """A variant in a request."""

    id: NotRequired[int]
    """Id of the variant to keep; without it, a new variant is added."""

    name: NotRequired[str | None]
    """Name for reports; null: A, B and so on."""

    subject: NotRequired[str | None]
    """Subject; null: that of the campaign."""

    preheader: NotRequired[str | None]
    """Preview text; null: that of the campaign."""

    from_name: NotRequired[str | None]
    """From name; null: that of the campaign."""

    from_email: NotRequired[str | None]
    """From address; null: that of the campaign."""

    reply_to: NotRequired[str | None]
    """Reply-To; null: that of the campaign."""

    body: NotRequired[str | None]
    """Body; null, with an empty design: the content of the campaign."""

    design: NotRequired[Design | None]
    """Design; null, without a body: the content of the campaign."""

    send_after_minutes: NotRequired[int]
    """Minutes from the start of the campaign to the first message of this variant."""


class VideoSection(TypedDict):
    """A section of the type `video`."""

    type: Literal["video"]
    """Section type."""

    props: NotRequired[VideoSectionProps | None]
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    id: NotRequired[str | int | None]
    """Your identifier of the section."""

    styles: NotRequired[VideoSectionStyles | None]
    """Styles of the surrounding box; `props` take precedence."""


class VideoSectionProps(TypedDict):
    """Properties; `GET /templates/spec` lists their defaults and limits."""

    href: NotRequired[str | float | bool | None]
    """Link."""

    thumbnail: NotRequired[str | float | bool | None]
    """Thumbnail."""

    play_badge: NotRequired[str | float | bool | None]
    """Show play button."""

    caption: NotRequired[str | float | bool | None]
    """Caption."""

    align: NotRequired[str | float | bool | None]
    """Alignment."""

    hide_on: NotRequired[str | float | bool | None]
    """Hide on."""

    show_if: NotRequired[list[Filter] | None]
    """Show only to. Segment filters."""

    name: NotRequired[str | float | bool | None]
    """Section name."""


class VideoSectionStyles(TypedDict):
    """Styles of the surrounding box; `props` take precedence."""

    background_color: NotRequired[str | float | bool | None]
    """Background."""

    padding: NotRequired[str | float | bool | None]
    """Padding. One to four pixel values, 0 to 96."""


class WarmUp(TypedDict):
    """A new sending domain in warm-up: direct delivery from the domain has a daily limit, which grows over time."""

    domain: str
    """Sending domain."""

    day: int
    """Current day of the warm-up."""

    days: int
    """Number of days after which there is no limit."""

    cap: int
    """Maximum number of messages today."""

    used: int
    """Number of messages sent today."""

    until: str
    """End of the period; null if unknown."""


class Webhook(TypedDict):
    """A URL to which events are posted."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    url: str
    """URL to which events are posted."""

    events: list[str]
    """Names of the events to send; empty for all."""

    enabled: bool
    """Whether events are sent to the webhook."""

    pending_count: int
    """Number of deliveries that wait or are in progress."""

    failing_since: str | None
    """Since when all deliveries have failed; null if the last one succeeded."""

    disabled_at: str | None
    """When the service disabled the webhook."""

    disabled_reason: Literal["failing", "gone"] | None
    """Reason."""

    old_secret_until: str | None
    """Until when the previous secret also signs; null if it does not."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class WebhookDelivery(TypedDict):
    """The delivery of one event to one webhook, with the response to the last attempt."""

    id: int
    """Unique id; ids ascend and are never reused."""

    webhook_id: int
    """Id of the webhook."""

    event_id: int
    """Id of the event."""

    event: str | None
    """Name of the event; null once the event is deleted."""

    status: Literal["cancelled", "delivered", "failed", "pending"]
    """Status."""

    attempts: int
    """Number of attempts."""

    response_status: int | None
    """Response status; null if there was no response."""

    response_text: str | None
    """Beginning of the response body."""

    error: str | None
    """Why there was no response; null if there was one."""

    duration_ms: int | None
    """Duration in milliseconds."""

    next_attempt_at: str | None
    """Time of the next attempt; null if there is none."""

    last_attempt_at: str | None
    """Time of the last attempt; null if there was none."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""


class WebhookPatch(TypedDict):
    """A change of a webhook; absent fields are left unchanged."""

    url: NotRequired[str]
    """URL to which events are posted."""

    events: NotRequired[list[str] | None]
    """Names of the events to send; empty or containing `*` for all."""

    enabled: NotRequired[bool | None]
    """Whether events are sent to the webhook."""


class WebhookReplayResult(TypedDict):
    """The result of sending failed deliveries again."""

    replayed: int
    """Number of deliveries to repeat."""


class WebhookTest(TypedDict):
    """A request to send a test event to a webhook."""

    event: NotRequired[str | None]
    """Name of the event to send; default: one to which the webhook subscribes."""


class WebhookTestResult(TypedDict):
    """The response of a webhook to a sample event."""

    ok: bool
    """True if the delivery was accepted."""

    response_status: int | None
    """Response status; null if there was no response."""

    response_text: str | None
    """Beginning of the response body."""

    error: str | None
    """Why there was no response; null if there was one."""

    duration_ms: int | None
    """Duration in milliseconds."""

    event: RecordedEvent
    """Sample event that was sent."""


class WebhookWithSecret(TypedDict):
    """A webhook with its new secret, which is shown once."""

    id: int
    """Unique id; ids ascend and are never reused."""

    account_id: int
    """Id of the account."""

    url: str
    """URL to which events are posted."""

    events: list[str]
    """Names of the events to send; empty for all."""

    enabled: bool
    """Whether events are sent to the webhook."""

    pending_count: int
    """Number of deliveries that wait or are in progress."""

    failing_since: str | None
    """Since when all deliveries have failed; null if the last one succeeded."""

    disabled_at: str | None
    """When the service disabled the webhook."""

    disabled_reason: Literal["failing", "gone"] | None
    """Reason."""

    old_secret_until: str | None
    """Until when the previous secret also signs; null if it does not."""

    created_at: str
    """When the object was created."""

    updated_at: str
    """When the object was last changed."""

    secret: str
    """Secret with which deliveries are signed, shown in this response only."""


class WebhookWrite(TypedDict):
    """A new webhook; it receives all events if `events` is absent, null, empty or contains `*`."""

    url: str
    """URL to which events are posted."""

    events: NotRequired[list[str] | None]
    """Names of the events to send; absent or containing `*` for all."""

    enabled: NotRequired[bool | None]
    """Whether events are sent to the webhook."""


class ZoneSources(TypedDict):
    """The number of recipients by where their time zone comes from: the first of these that is known."""

    data: int
    """From the custom field `time_zone`."""

    phone: int
    """From the phone number."""

    country: int
    """From the country."""

    account: int
    """Unknown, so that of the account."""


class ListMessagesQuery(TypedDict):
    """Parameters of `listMessages`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    source_type: NotRequired[Literal["campaign", "flow", "system", "test", "transactional"]]
    """Only messages from this kind of source."""

    channel: NotRequired[Literal["email", "sms"]]
    """Only those of this channel."""

    status: NotRequired[
        Literal[
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
    ]
    """Only those with this status."""

    to: NotRequired[str]
    """Only messages to exactly this recipient."""

    contact_id: NotRequired[int]
    """Only messages to this contact."""

    campaign_id: NotRequired[int]
    """Only messages of this campaign."""

    flow_id: NotRequired[int]
    """Only messages of this flow."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""


class ListContactConversationQuery(TypedDict):
    """Parameters of `listContactConversation`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


_ListIncomingQueryKeywords = TypedDict("_ListIncomingQueryKeywords", {"from": "NotRequired[str]"})


class ListIncomingQuery(_ListIncomingQueryKeywords):
    """Parameters of `listIncoming`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    kind: NotRequired[Literal["help", "keyword", "message", "refusal", "start", "stop"]]
    """Only messages of this kind."""

    contact_id: NotRequired[int]
    """Only those of this contact."""

    unseen: NotRequired[bool]
    """True: only refusals in free text that no user has reviewed; false: all others."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""


class ListCampaignsQuery(TypedDict):
    """Parameters of `listCampaigns`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    status: NotRequired[Literal["active", "cancelled", "completed", "draft", "live", "paused", "scheduled"]]
    """Only campaigns with this status; `live` is `active`, `cancelled` and `scheduled` select by `phase`."""

    phase: NotRequired[Literal["cancelled", "completed", "draft", "holding", "paused", "scheduled", "sending"]]
    """Only campaigns in this phase."""

    channel: NotRequired[Literal["email", "sms"]]
    """Only those of this channel."""

    search: NotRequired[str]
    """Search words for name and subject."""

    approval_state: NotRequired[Literal["approved", "pending_review", "rejected"]]
    """Only campaigns with this approval state."""

    awaiting_approval: NotRequired[bool]
    """True: only campaigns that wait for approval; false: only others."""


class ListCampaignRecipientsQuery(TypedDict):
    """Parameters of `listCampaignRecipients`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    status: NotRequired[
        Literal[
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
    ]
    """Only those with this status."""

    opened: NotRequired[Literal["machines", "never", "people"]]
    """Only messages opened by people, only by machines, or never opened though delivered."""

    clicked: NotRequired[Literal["machines", "never", "people"]]
    """Only messages clicked by people, only by machines, or never clicked though delivered."""

    link: NotRequired[int]
    """Only messages in which the link with this number was clicked."""

    domain: NotRequired[str]
    """Only recipients at this mailbox provider."""

    country: NotRequired[str]
    """Only recipients in the country with this two-letter code."""

    problem: NotRequired[str]
    """Only messages with this problem, by its `key`."""

    pending: NotRequired[bool]
    """True: only messages that are not yet final; false: only final ones."""

    accepted: NotRequired[bool]
    """True: only messages accepted by the next hop; false: only others."""

    unsubscribed: NotRequired[bool]
    """True: only messages that led to an opt-out; false: only others."""

    replied: NotRequired[bool]
    """True: only emails with a recorded reply; false: only others."""

    contact_id: NotRequired[int]
    """Only those of this contact."""

    variant: NotRequired[int]
    """Only those of this variant of an A/B test; 0: waiting for the winner, -1: held out."""


class ExplainCampaignRecipientQuery(TypedDict):
    """Parameters of `explainCampaignRecipient`."""

    contact_id: int
    """Id of the contact to explain; required."""


class ListCampaignOccurrencesQuery(TypedDict):
    """Parameters of `listCampaignOccurrences`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListContactsQuery(TypedDict):
    """Parameters of `listContacts`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    search: NotRequired[str]
    """Search words: prefixes of names and of email addresses and their parts, or digits of phone numbers."""

    q: NotRequired[str]
    """Same as `search`."""

    query: NotRequired[str]
    """Same as `search`."""

    list_id: NotRequired[int]
    """Only contacts in this list."""

    tag: NotRequired[str]
    """Only contacts with this tag."""

    segment_id: NotRequired[int]
    """Only contacts in this segment."""

    source: NotRequired[str]
    """Only contacts with exactly this source."""

    subscribed_email: NotRequired[bool]
    """True: only contacts subscribed by email; false: only others."""

    subscribed_phone: NotRequired[bool]
    """True: only contacts subscribed by phone; false: only others."""

    sendable_email: NotRequired[bool]
    """True: only contacts that can be sent marketing email; false: only others."""

    sendable_phone: NotRequired[bool]
    """True: only contacts that can be sent marketing SMS; false: only others."""

    status: NotRequired[Literal["not_subscribed", "subscribed", "suppressed", "unsubscribed"]]
    """Only contacts in this state. Each contact is in one state, that of its email addresses, or of its phone
    numbers if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted out), or
    `not_subscribed` (never opted in). Of several addresses, one that is subscribed and not suppressed decides,
    then one that is suppressed.
    """

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    updated_after: NotRequired[str]
    """Only contacts changed at or after this time or date."""

    updated_before: NotRequired[str]
    """Only contacts changed before this time or date."""


class SearchContactsQuery(TypedDict):
    """Parameters of `searchContacts`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    q: str
    """Search words, as in `search` of the list of contacts; required."""


class DeleteContactQuery(TypedDict):
    """Parameters of `deleteContact`."""

    erase: NotRequired[bool]
    """True to remove all traces of the contact and suppress its addresses."""


class ListContactTimelineQuery(TypedDict):
    """Parameters of `listContactTimeline`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListContactConsentsQuery(TypedDict):
    """Parameters of `listContactConsents`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListSuppressionsQuery(TypedDict):
    """Parameters of `listSuppressions`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    reason: NotRequired[Literal["complaint", "erased", "hard_bounce", "manual", "soft_bounce", "stop_keyword"]]
    """Only suppressions with this reason."""

    channel: NotRequired[Literal["email", "phone", "sms"]]
    """Only those of this channel."""

    address: NotRequired[str]
    """Only exactly this address."""

    search: NotRequired[str]
    """Part of the address."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""


class LiftSuppressionQuery(TypedDict):
    """Parameters of `liftSuppression`."""

    reason: NotRequired[str]
    """Why the suppression is lifted; required in the body or in the query."""


class ListListsQuery(TypedDict):
    """Parameters of `listLists`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    search: NotRequired[str]
    """Search words for the name."""


class ListSegmentsQuery(TypedDict):
    """Parameters of `listSegments`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    search: NotRequired[str]
    """Search words for the name."""


class ExplainSegmentQuery(TypedDict):
    """Parameters of `explainSegment`."""

    contact_id: int
    """Id of the contact to explain; required."""


class ListImportsQuery(TypedDict):
    """Parameters of `listImports`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    resource: NotRequired[Literal["contacts", "suppressions"]]
    """Only imports of this kind."""

    status: NotRequired[Literal["cancelled", "complete", "failed", "pending", "processing"]]
    """Only those with this status."""


class CreateImportQuery(TypedDict):
    """Parameters of `createImport`."""

    dry_run: NotRequired[bool]
    """True to only report what would be done."""


class ExportContactsCsvQuery(TypedDict):
    """Parameters of `exportContactsCsv`."""

    search: NotRequired[str]
    """Search words: prefixes of names and of email addresses and their parts, or digits of phone numbers."""

    q: NotRequired[str]
    """Same as `search`."""

    query: NotRequired[str]
    """Same as `search`."""

    list_id: NotRequired[int]
    """Only contacts in this list."""

    tag: NotRequired[str]
    """Only contacts with this tag."""

    segment_id: NotRequired[int]
    """Only contacts in this segment."""

    source: NotRequired[str]
    """Only contacts with exactly this source."""

    subscribed_email: NotRequired[bool]
    """True: only contacts subscribed by email; false: only others."""

    subscribed_phone: NotRequired[bool]
    """True: only contacts subscribed by phone; false: only others."""

    sendable_email: NotRequired[bool]
    """True: only contacts that can be sent marketing email; false: only others."""

    sendable_phone: NotRequired[bool]
    """True: only contacts that can be sent marketing SMS; false: only others."""

    status: NotRequired[Literal["not_subscribed", "subscribed", "suppressed", "unsubscribed"]]
    """Only contacts in this state. Each contact is in one state, that of its email addresses, or of its phone
    numbers if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted out), or
    `not_subscribed` (never opted in). Of several addresses, one that is subscribed and not suppressed decides,
    then one that is suppressed.
    """

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    updated_after: NotRequired[str]
    """Only contacts changed at or after this time or date."""

    updated_before: NotRequired[str]
    """Only contacts changed before this time or date."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ExportContactsJsonlQuery(TypedDict):
    """Parameters of `exportContactsJsonl`."""

    search: NotRequired[str]
    """Search words: prefixes of names and of email addresses and their parts, or digits of phone numbers."""

    q: NotRequired[str]
    """Same as `search`."""

    query: NotRequired[str]
    """Same as `search`."""

    list_id: NotRequired[int]
    """Only contacts in this list."""

    tag: NotRequired[str]
    """Only contacts with this tag."""

    segment_id: NotRequired[int]
    """Only contacts in this segment."""

    source: NotRequired[str]
    """Only contacts with exactly this source."""

    subscribed_email: NotRequired[bool]
    """True: only contacts subscribed by email; false: only others."""

    subscribed_phone: NotRequired[bool]
    """True: only contacts subscribed by phone; false: only others."""

    sendable_email: NotRequired[bool]
    """True: only contacts that can be sent marketing email; false: only others."""

    sendable_phone: NotRequired[bool]
    """True: only contacts that can be sent marketing SMS; false: only others."""

    status: NotRequired[Literal["not_subscribed", "subscribed", "suppressed", "unsubscribed"]]
    """Only contacts in this state. Each contact is in one state, that of its email addresses, or of its phone
    numbers if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted out), or
    `not_subscribed` (never opted in). Of several addresses, one that is subscribed and not suppressed decides,
    then one that is suppressed.
    """

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    updated_after: NotRequired[str]
    """Only contacts changed at or after this time or date."""

    updated_before: NotRequired[str]
    """Only contacts changed before this time or date."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ExportEventsCsvQuery(TypedDict):
    """Parameters of `exportEventsCsv`."""

    event: NotRequired[str]
    """Only events of this name."""

    contact_id: NotRequired[int]
    """Only events of this contact."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    resource_uid: NotRequired[str]
    """Only events with exactly this `resource_uid`."""

    resource_name: NotRequired[str]
    """Only events with this `resource_name`."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ExportEventsJsonlQuery(TypedDict):
    """Parameters of `exportEventsJsonl`."""

    event: NotRequired[str]
    """Only events of this name."""

    contact_id: NotRequired[int]
    """Only events of this contact."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    resource_uid: NotRequired[str]
    """Only events with exactly this `resource_uid`."""

    resource_name: NotRequired[str]
    """Only events with this `resource_name`."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ExportMessagesCsvQuery(TypedDict):
    """Parameters of `exportMessagesCsv`."""

    source_type: NotRequired[Literal["campaign", "flow", "system", "test", "transactional"]]
    """Only messages from this kind of source."""

    channel: NotRequired[Literal["email", "sms"]]
    """Only those of this channel."""

    status: NotRequired[
        Literal[
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
    ]
    """Only those with this status."""

    to: NotRequired[str]
    """Only messages to exactly this recipient."""

    contact_id: NotRequired[int]
    """Only messages to this contact."""

    campaign_id: NotRequired[int]
    """Only messages of this campaign."""

    flow_id: NotRequired[int]
    """Only messages of this flow."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ExportMessagesJsonlQuery(TypedDict):
    """Parameters of `exportMessagesJsonl`."""

    source_type: NotRequired[Literal["campaign", "flow", "system", "test", "transactional"]]
    """Only messages from this kind of source."""

    channel: NotRequired[Literal["email", "sms"]]
    """Only those of this channel."""

    status: NotRequired[
        Literal[
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
    ]
    """Only those with this status."""

    to: NotRequired[str]
    """Only messages to exactly this recipient."""

    contact_id: NotRequired[int]
    """Only messages to this contact."""

    campaign_id: NotRequired[int]
    """Only messages of this campaign."""

    flow_id: NotRequired[int]
    """Only messages of this flow."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ExportFlowRunsCsvQuery(TypedDict):
    """Parameters of `exportFlowRunsCsv`."""

    status: NotRequired[Literal["completed", "exited", "ignored", "live"]]
    """Only those with this status."""

    step: NotRequired[int]
    """Only runs that reached this step."""

    outcome: NotRequired[str]
    """With `step`: only runs that left it with this outcome, or wait there."""

    message: NotRequired[
        Literal[
            "accepted",
            "any",
            "clicked",
            "opened",
            "pending",
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
    ]
    """With `step`: only runs whose message from it has this status."""

    reason: NotRequired[str]
    """With `step`: why it was skipped or left; otherwise why the run ended; empty for no reason."""

    contact_id: NotRequired[int]
    """Only those of this contact."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    since: NotRequired[str]
    """Only runs that started at or after this time, or reached the step, if one is given."""

    bom: NotRequired[bool]
    """Whether a CSV file begins with a byte order mark."""


class ListFormsQuery(TypedDict):
    """Parameters of `listForms`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    search: NotRequired[str]
    """Text that the name contains."""


class ListTemplatesQuery(TypedDict):
    """Parameters of `listTemplates`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    standalone: NotRequired[bool]
    """True: only templates that belong to no campaign or flow; false: only others."""

    channel: NotRequired[Literal["email", "sms"]]
    """Only those of this channel."""

    search: NotRequired[str]
    """Search words for name and subject."""


class ListTemplateTranslationsQuery(TypedDict):
    """Parameters of `listTemplateTranslations`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListFlowsQuery(TypedDict):
    """Parameters of `listFlows`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    status: NotRequired[Literal["active", "archived", "draft", "live", "paused"]]
    """Only those with this status."""

    event: NotRequired[str]
    """Only flows that this event starts."""

    search: NotRequired[str]
    """Search words for the name."""


class ListFlowScriptResultsQuery(TypedDict):
    """Parameters of `listFlowScriptResults`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class GetFlowReportQuery(TypedDict):
    """Parameters of `getFlowReport`."""

    range: NotRequired[Literal["30d", "7d", "all"]]
    """Period of the report, in days."""


class ListFlowRunsQuery(TypedDict):
    """Parameters of `listFlowRuns`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    status: NotRequired[Literal["completed", "exited", "ignored", "live"]]
    """Only those with this status."""

    step: NotRequired[int]
    """Only runs that reached this step."""

    outcome: NotRequired[str]
    """With `step`: only runs that left it with this outcome, or wait there."""

    message: NotRequired[
        Literal[
            "accepted",
            "any",
            "clicked",
            "opened",
            "pending",
            "bounced",
            "cancelled",
            "complained",
            "delivered",
            "failed",
            "held",
            "queued",
            "sending",
            "sent",
            "skipped",
            "uncertain",
        ]
    ]
    """With `step`: only runs whose message from it has this status."""

    reason: NotRequired[str]
    """With `step`: why it was skipped or left; otherwise why the run ended; empty for no reason."""

    contact_id: NotRequired[int]
    """Only those of this contact."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""

    since: NotRequired[str]
    """Only runs that started at or after this time, or reached the step, if one is given."""


class ListContactRunsQuery(TypedDict):
    """Parameters of `listContactRuns`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    status: NotRequired[Literal["completed", "exited", "ignored", "live"]]
    """Only those with this status."""


class ListCapturedQuery(TypedDict):
    """Parameters of `listCaptured`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    search: NotRequired[str]
    """Search words for recipient, subject and SMS text."""

    channel: NotRequired[Literal["email", "sms"]]
    """Only those of this channel."""

    message_id: NotRequired[int]
    """Only those of this message."""


class ListDomainsQuery(TypedDict):
    """Parameters of `listDomains`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListUsersQuery(TypedDict):
    """Parameters of `listUsers`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    disabled: NotRequired[bool]
    """True: only disabled users; false: only enabled users."""

    role: NotRequired[str]
    """Only users with this role."""


class ListApiKeysQuery(TypedDict):
    """Parameters of `listApiKeys`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListAuditEntriesQuery(TypedDict):
    """Parameters of `listAuditEntries`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    actor: NotRequired[str]
    """Only entries of this user or key, such as `user:7` or `key:3`."""

    action: NotRequired[str]
    """Only entries with this action, such as `campaign_send`."""

    subject: NotRequired[str]
    """Only entries about this object, such as `campaign:3`."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""


class ListOwnSessionsQuery(TypedDict):
    """Parameters of `listOwnSessions`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListOwnPasskeysQuery(TypedDict):
    """Parameters of `listOwnPasskeys`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListSignInProvidersQuery(TypedDict):
    """Parameters of `listSignInProviders`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListOwnIdentitiesQuery(TypedDict):
    """Parameters of `listOwnIdentities`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListRolesQuery(TypedDict):
    """Parameters of `listRoles`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class DeleteRoleQuery(TypedDict):
    """Parameters of `deleteRole`."""

    replacement: NotRequired[str | None]
    """Role that the users and invitations get: a built-in name, or an id or name of an own role."""


class ListInvitationsQuery(TypedDict):
    """Parameters of `listInvitations`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""


class ListProposalsQuery(TypedDict):
    """Parameters of `listProposals`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    state: NotRequired[Literal["approved", "open", "returned", "withdrawn"]]
    """Only proposals in this state."""

    kind: NotRequired[Literal["change_flow", "change_segment", "change_template", "send_campaign", "start_flow"]]
    """Only proposals of this kind."""


class ListEventsQuery(TypedDict):
    """Parameters of `listEvents`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    event: NotRequired[str]
    """Only events of this name."""

    contact_id: NotRequired[int]
    """Only events of this contact."""

    created_after: NotRequired[str]
    """Only those created at or after this time; a date begins at 00:00 in the account's time zone."""

    created_before: NotRequired[str]
    """Only those created before this time; a date begins at 00:00 in the account's time zone."""

    resource_uid: NotRequired[str]
    """Only events with exactly this `resource_uid`."""

    resource_name: NotRequired[str]
    """Only events with this `resource_name`."""

    test: NotRequired[bool]
    """True: only tests; false: no tests."""


class ListWebhooksQuery(TypedDict):
    """Parameters of `listWebhooks`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    enabled: NotRequired[bool]
    """True: only enabled webhooks; false: only disabled ones."""


class ListWebhookDeliveriesQuery(TypedDict):
    """Parameters of `listWebhookDeliveries`."""

    page: NotRequired[int]
    """Page number, starting at 1."""

    limit: NotRequired[int]
    """Number of objects per page; above 100 counts as 100."""

    per_page: NotRequired[int]
    """Same as `limit`, which takes precedence."""

    per: NotRequired[int]
    """Same as `limit`; both `limit` and `per_page` take precedence."""

    status: NotRequired[Literal["cancelled", "delivered", "failed", "pending"]]
    """Only those with this status."""

    event: NotRequired[str]
    """Only deliveries of events with this name."""

    event_id: NotRequired[int]
    """Only deliveries of this event."""


class SubmitFormBody(TypedDict):
    """SubmitFormBody."""

    email: NotRequired[str]
    """Email address; this or `phone` is required."""

    phone: NotRequired[str]
    """Phone number, such as `+14155550123`."""

    first_name: NotRequired[str]
    """First name, if the form has this field."""

    last_name: NotRequired[str]
    """Last name, if the form has this field."""

    website: NotRequired[str]
    """Must be empty: the field is hidden, and only bots fill it in."""

    data: NotRequired[dict[str, Any]]
    """Values of the other fields, by name; an array for `checkboxes`."""

    topics: NotRequired[list[int]]
    """Ids of the lists that the contact chose from the form's `topic_ids`; others are ignored."""


class SubmitFormResult(TypedDict):
    """SubmitFormResult."""

    accepted: Literal[True]
    """Always true; reveals nothing about the address."""

    suggested_email: str | None
    """`email` with the domain of a large mailbox provider, if its own is probably a typo of it, such as gmail.con;
    ask the visitor. The address is accepted as it is.
    """


class GetHealthzResult(TypedDict):
    """GetHealthzResult."""

    status: Literal["ok"]
    """Always `ok`."""


class GetReadyzResult(TypedDict):
    """GetReadyzResult."""

    status: Literal["ready"]
    """Always `ready`."""
