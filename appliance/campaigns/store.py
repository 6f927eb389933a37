"""Campaigns in the database: creating, finding, listing, editing and duplicating them, and validating changes."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs
from peewee import SQL, fn

from appliance.accounts import approvals
from appliance.accounts.audit import Actor
from appliance.audience.segments.store import AUDIENCE_DELETED
from appliance.campaigns import findings, hold_reasons, repeats, times, variants
from appliance.campaigns.times import BestHourWrite, LocalTimeWrite, RepetitionWrite
from appliance.campaigns.trigger import TriggerWrite, validate_trigger
from appliance.campaigns.variants import ExperimentWrite, Setup
from appliance.content.designs import utm
from appliance.content.designs.utm import UtmWrite
from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.content.templates.store import PreparedContent, is_editable
from appliance.content.templates.validation import Content, TemplateWrite, normalize_field, validate_content
from appliance.core import clock
from appliance.core.aliases import Alias, Aliases
from appliance.core.errors import Conflict, Faults, Invalid, NotFound, RefusedKeys
from appliance.core.i18n import gettext
from appliance.core.validation import Data, LastRead, Name, PageQuery, Short, When, default
from appliance.sending.messages.ledger import FINAL_STATUSES, count_by_status
from appliance.storage import transactions
from appliance.storage.database import Page, contains_words, paginate, rows
from appliance.storage.models import Campaign, Flow, Message, Template, Trigger
from appliance.storage.transactions import require_write_transaction, snapshot

# The Structs of requests: create, edit, send, and list.

StatusWord = Literal["draft", "active", "paused", "completed", "live", "cancelled", "scheduled"]

Phase = Literal["draft", "scheduled", "holding", "sending", "paused", "completed", "cancelled"]


class CampaignCreate(Struct):
    """A new campaign; only `name` is required."""

    REFUSED: ClassVar[RefusedKeys] = findings.CREATE
    ALIASES: ClassVar[Aliases] = {**findings.AUDIENCE_ALIASES, "channelType": Alias("channel")}

    name: Name
    channel: Annotated[Literal["email", "sms"], Meta(description="channel; default: `email`")] = "email"
    scheduled_at: (
        Annotated[When, Meta(description="when to send; it takes effect when the draft is sent")] | None | UnsetType
    ) = UNSET
    local_time: LocalTimeWrite | None | UnsetType = UNSET
    best_hour_until: BestHourWrite | None | UnsetType = UNSET
    data: (
        Annotated[Data, Meta(description="custom data as JSON of at most 32 KiB; a write replaces all of it")]
        | None
        | UnsetType
    ) = UNSET
    tracking: Annotated[bool, default(True)] | UnsetType = UNSET
    utm: (
        Annotated[UtmWrite, Meta(description="UTM parameters of the links; null for those of the account")]
        | None
        | UnsetType
    ) = UNSET
    trigger_attributes: Annotated[TriggerWrite, Meta(description="audience of the campaign")] | UnsetType = UNSET
    template_attributes: Annotated[Content, Meta(description="content of the campaign")] | UnsetType = UNSET
    experiment: (
        Annotated[ExperimentWrite, Meta(description="A/B test or holdout; null for none")] | None | UnsetType
    ) = UNSET
    repeat: RepetitionWrite | None | UnsetType = UNSET


class CampaignPatch(Struct):
    """A change of a campaign.

    If `updated_at` is given as it was last read, the change is rejected if the campaign has been changed since then.
    """

    REFUSED: ClassVar[RefusedKeys] = findings.PATCH

    name: Name | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    scheduled_at: (
        Annotated[When, Meta(description="when to send; null makes a scheduled campaign a draft")] | None | UnsetType
    ) = UNSET
    local_time: LocalTimeWrite | None | UnsetType = UNSET
    best_hour_until: BestHourWrite | None | UnsetType = UNSET
    data: (
        Annotated[Data, Meta(description="custom data as JSON of at most 32 KiB; a write replaces all of it")]
        | None
        | UnsetType
    ) = UNSET
    tracking: bool | UnsetType = UNSET
    utm: (
        Annotated[UtmWrite, Meta(description="UTM parameters of the links; null for those of the account")]
        | None
        | UnsetType
    ) = UNSET
    status: (
        Annotated[
            StatusWord,
            Meta(
                description="changes the status, as the actions do: `live` is `active`, `cancelled` cancels, "
                "`scheduled` schedules for `scheduled_at`"
            ),
        ]
        | UnsetType
    ) = UNSET
    trigger_attributes: Annotated[TriggerWrite, Meta(description="audience of the campaign")] | UnsetType = UNSET
    template_attributes: Annotated[Content, Meta(description="content of the campaign")] | UnsetType = UNSET
    experiment: (
        Annotated[ExperimentWrite, Meta(description="A/B test or holdout; null removes it")] | None | UnsetType
    ) = UNSET
    repeat: RepetitionWrite | None | UnsetType = UNSET
    updated_at: LastRead | UnsetType = UNSET


class CampaignCopy(Struct):
    """The duplicate of a campaign; its default name is the original name with "(copy)" appended."""

    name: Name | UnsetType = UNSET


class SendRequest(Struct):
    """Changes to a campaign that are applied together with its send, and options of the send.

    A future `scheduled_at` schedules the campaign; a past time, or null, sends it now.
    """

    REFUSED: ClassVar[RefusedKeys] = findings.SEND
    ALIASES: ClassVar[Aliases] = findings.AUDIENCE_ALIASES

    scheduled_at: (
        Annotated[When, Meta(description="when to send; a time in the past or null sends now")] | None | UnsetType
    ) = UNSET
    local_time: LocalTimeWrite | None | UnsetType = UNSET
    best_hour_until: BestHourWrite | None | UnsetType = UNSET
    trigger_attributes: (
        Annotated[TriggerWrite, Meta(description="changes of the audience before sending")] | UnsetType
    ) = UNSET
    template_attributes: Annotated[Content, Meta(description="changes of the content before sending")] | UnsetType = (
        UNSET
    )
    confirm_send_to_all: (
        Annotated[
            bool,
            default(False),
            Meta(description="confirms that all contacts are meant, if nothing narrows the audience"),
        ]
        | UnsetType
    ) = UNSET
    hold_seconds: (
        Annotated[
            int,
            Meta(ge=0, le=86_400),
            default(0),
            Meta(
                description="number of seconds before the first message is sent, in which the send can be undone; "
                "a later `scheduled_at` takes precedence"
            ),
        ]
        | UnsetType
    ) = UNSET


class CampaignQuery(PageQuery):
    """Filters and page of the campaign list."""

    status: (
        Annotated[
            StatusWord,
            Meta(
                description="only campaigns with this status; `live` is `active`, `cancelled` and `scheduled` "
                "select by `phase`"
            ),
        ]
        | UnsetType
    ) = UNSET
    phase: Annotated[Phase, Meta(description="only campaigns in this phase")] | UnsetType = UNSET
    channel: Annotated[Literal["email", "sms"], Meta(description="only those of this channel")] | UnsetType = UNSET
    search: Annotated[Short, Meta(description="search words for name and subject")] | UnsetType = UNSET
    approval_state: (
        Annotated[
            Literal["pending_review", "approved", "rejected"],
            Meta(description="only campaigns with this approval state"),
        ]
        | UnsetType
    ) = UNSET
    awaiting_approval: (
        Annotated[bool, Meta(description="true: only campaigns that wait for approval; false: only others")] | UnsetType
    ) = UNSET


_PHASE_ALIASES = {"live": ("sending", "holding", "scheduled"), "cancelled": ("cancelled",), "scheduled": ("scheduled",)}
# The largest audience whose rows are written, ended and counted in one transaction.
MAX_AT_ONCE = 20_000
_STATUSES = ("draft", "active", "paused", "completed")


def _rate_of(column: Any) -> Any:
    """Return SQL for the share of a campaign's delivered messages with a time in `column`; null without any."""
    engaged = Message.select(fn.count(SQL("*"))).where(Message.campaign == Campaign.id, column.is_null(False))
    return fn.coalesce(engaged, 0) * 1.0 / fn.nullif(Campaign.sent_count - Campaign.bounced_count, 0)


# The columns by which a campaign list can be ordered; a minus before the name reverses the order.
ORDERS = {
    "name": fn.name_order(Campaign.name), "updated": Campaign.updated_at, "created": Campaign.created_at,
    "started": Campaign.started_at,
    "sent": Campaign.sent_count, "opened": _rate_of(Message.opened_at), "clicked": _rate_of(Message.clicked_at),
}  # fmt: skip
_LIVE_PHASES = ("sending", "holding", "paused")
_ZERO_SUMS = dict.fromkeys(("audience", "pending", *FINAL_STATUSES, "accepted"), 0)


def list_campaigns(account_id: int, query: CampaignQuery, order: str = "", sums: bool = True) -> Page:
    """Return a page of an account's campaigns with trigger, template and details.

    `order` is a name of `ORDERS`, with a minus for descending; the default is newest first. Without `sums`, messages
    are counted only for live and paused campaigns; other campaigns have `stats` None. Raises Invalid for an unknown
    status.
    """
    matches = select_matching(account_id, query)
    sort = _get_order(order) if order else (Campaign.created_at.desc(), Campaign.id.desc())
    page = paginate(matches.order_by(*sort), query.page, query.size())
    return page._replace(rows=[add_details(campaign, sums or campaign.phase in _LIVE_PHASES) for campaign in page.rows])


def _get_order(order: str) -> tuple[Any, ...]:
    column = ORDERS[order.removeprefix("-")]
    return (column.desc(), Campaign.id.desc()) if order.startswith("-") else (column.asc(), Campaign.id.asc())


def select_matching(account_id: int, query: CampaignQuery) -> Any:
    """Return an unordered query of an account's campaigns that match the filters, with trigger and template.

    Raises Invalid for an unknown status.
    """
    matches = _select().where(Campaign.account == account_id)
    if isinstance(query.status, str):
        phases = _PHASE_ALIASES.get(query.status)
        if phases is None and query.status not in _STATUSES:
            raise Invalid({"status": [gettext("is not included in the list")]})
        matches = matches.where(Campaign.phase.in_(phases) if phases else Campaign.status == query.status)
    for name in ("phase", "channel", "approval_state"):
        if isinstance(getattr(query, name), str):
            matches = matches.where(getattr(Campaign, name) == getattr(query, name))
    if isinstance(query.awaiting_approval, bool):
        matches = matches.where(Campaign.asked_at.is_null(not query.awaiting_approval))
    if isinstance(query.search, str) and query.search.strip():
        matches = matches.where(contains_words(query.search, Campaign.name, Template.subject))
    return matches


def count_by_phase(account_id: int) -> dict[str, int]:
    """Return the number of an account's campaigns by phase, without phases that no campaign is in."""
    return dict(
        rows(
            "SELECT phase, count(*) FROM campaign WHERE account_id = ? AND deleted_at IS NULL GROUP BY phase",
            (account_id,),
        )
    )


def count_awaiting_approval(account_id: int) -> int:
    """Return the number of an account's campaigns that wait for approval."""
    return int(select_matching(account_id, CampaignQuery(awaiting_approval=True)).count())


def get(account_id: int, campaign_id: int) -> Campaign:
    """Return a campaign with trigger, template and details, all read from one snapshot (see `add_details`).

    Raises NotFound.
    """
    with snapshot():
        campaign = _select().where(Campaign.account == account_id, Campaign.id == campaign_id).first()
        if campaign is None:
            raise NotFound
        return add_details(campaign)


def get_row(account_id: int, campaign_id: int) -> Campaign:
    """Return a campaign without the derived attributes of `add_details`; raises NotFound."""
    campaign = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    )
    if campaign is None:
        raise NotFound
    return campaign


def get_many(account_id: int, ids: list[int]) -> list[Campaign]:
    """Return the campaigns of an account with the given ids, each as `get` returns it, in order of id.

    Ids that do not exist are left out.
    """
    with snapshot():
        campaigns = _select().where(Campaign.account == account_id, Campaign.id.in_(ids)).order_by(Campaign.id)
        return [add_details(campaign) for campaign in campaigns]


def find_with_sums(campaign_id: int) -> Campaign | None:
    """Return a campaign of any account, even a deleted one, with its `stats`, or None if it does not exist."""
    with snapshot():
        campaign = Campaign.get_or_none(Campaign.id == campaign_id)
        return None if campaign is None else add_sums(campaign)


def _select() -> Any:
    return (
        Campaign.select(Campaign, Trigger, Template)
        .join_from(Campaign, Trigger)
        .join_from(Campaign, Template)
        .where(Campaign.deleted_at.is_null())
    )


def add_details(campaign: Campaign, sums: bool = True) -> Campaign:
    """Set `editable`, `waiting` (a HoldReason or None), `setup`, `repeat` and `stats` on a campaign; return it.

    `setup` is its A/B test or holdout (`variants.Setup`), `repeat` its repetition (`repeats.Repeat`), each or None.

    `stats` stays None without `sums`. It also stays None in a write transaction if the campaign has more than
    `MAX_AT_ONCE` messages, because counting them takes too long there; the caller can use `add_sums` afterwards.
    """
    campaign.stats, campaign.editable, campaign.waiting = (
        None,
        is_editable(campaign),
        hold_reasons.find_hold_reason(campaign),
    )
    campaign.setup, campaign.repeat = variants.find(campaign.id), repeats.find(campaign.id)
    if sums and not (transactions.is_in_write_transaction() and campaign.audience_count > MAX_AT_ONCE):
        add_sums(campaign)
    return campaign


def add_sums(campaign: Campaign) -> Campaign:
    """Set `stats`, the number of a campaign's messages by status and in total, unless it is set; return the campaign.

    Keys: `audience`, `pending`, every final status, and `accepted`.
    """
    if getattr(campaign, "stats", None) is None:
        campaign.stats = count_by_status("campaign_id", campaign.id) if campaign.started_at else dict(_ZERO_SUMS)
    return campaign


def create(
    account_id: int, request: CampaignCreate, person_id: int | None = None, content: PreparedContent | None = None
) -> Campaign:
    """Create a draft with its hidden flow, trigger and template; raises Invalid with all errors.

    `person_id` is the actor's (`Actor.person_id`), who is recorded as the last editor for the rules of approval.
    `content` is the request's content if it was prepared outside of the transaction (`prepare`).
    """
    require_write_transaction()
    channel = request.channel if isinstance(request.channel, str) else "email"
    validate_write(account_id, request, channel, content)
    now = clock.now_ms()
    name = request.name.strip()
    flow = Flow.create(account=account_id, hidden=True, name=name, created_at=now, updated_at=now)
    trigger = Trigger.create(account=account_id, flow=flow, created_at=now, updated_at=now)
    template = templates.create(account_id, TemplateWrite(channel=channel), flow_id=flow.id)
    campaign = Campaign.create(
        account=account_id, flow=flow, trigger=trigger, template=template, name=name,
        channel=channel, edited_by=person_id,
        data=request.data if isinstance(request.data, dict) else {}, tracking=request.tracking is not False,
        utm=utm.to_stored(request.utm) if isinstance(request.utm, UtmWrite) else None,
        created_at=now, updated_at=now,
    )  # fmt: skip
    times.set_times(campaign, request)
    campaign.save()
    _apply_changes(campaign, request, content)
    variants.apply(campaign, request.experiment)
    return get(account_id, campaign.id)


def prepare(account_id: int, campaign_id: int, content: Content | UnsetType) -> PreparedContent | None:
    """Check and parse the content of a request for the campaign; call it outside of the write transaction.

    Returns None if the request has no content. Raises NotFound.
    """
    template_id = Campaign.select(Campaign.template).where(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    ).tuples().first()  # fmt: skip
    if template_id is None:
        raise NotFound
    return templates.prepare(account_id, content, template_id[0]) if isinstance(content, Content) else None


def edit(campaign: Campaign, request: CampaignPatch, by: Actor, content: PreparedContent | None = None) -> bool:
    """Apply a change to a campaign and return whether its content, audience or channel changed.

    Such a change needs a new approval. Raises Conflict if the campaign has changed since the client read it. Raises
    Invalid with all errors of the request, or as `campaign_locked` if the campaign can no longer be edited.
    """
    require_write_transaction()
    if request.updated_at is not UNSET and request.updated_at < campaign.updated_at:
        raise Conflict(
            gettext("The campaign was changed by another user since it was read."),
            updated_at=clock.iso(campaign.updated_at),
        )
    channel = request.channel if isinstance(request.channel, str) else campaign.channel
    validate_write(campaign.account_id, request, channel, content, variants.find(campaign.id))
    if not is_editable(campaign) and changes_content(campaign, request):
        raise content_locked(campaign)
    if isinstance(request.name, str):
        campaign.name = request.name.strip()
    is_moved = channel != campaign.channel
    if is_moved:
        campaign.channel = campaign.template.channel = channel
        campaign.template.save(only=["channel"])
        variants.set_channel(campaign)
    if request.data is not UNSET:
        campaign.data = request.data or {}
    if isinstance(request.tracking, bool):
        campaign.tracking = request.tracking
    times.set_times(campaign, request)
    is_tagged = _changes_utm(campaign, request)
    if is_tagged:
        campaign.utm = utm.to_stored(request.utm or None)
    is_changed = _apply_changes(campaign, request, content) or is_moved or is_tagged
    is_changed = variants.apply(campaign, request.experiment, by.user_id) or is_changed
    if is_changed:
        approvals.mark_changed(campaign, by.person_id)
    mark_changed(campaign)
    return is_changed


def _changes_utm(campaign: Campaign, request: CampaignPatch) -> bool:
    """Return whether a request changes the UTM parameters of a campaign."""
    return request.utm is not UNSET and utm.to_stored(request.utm or None) != campaign.utm


def mark_changed(campaign: Campaign) -> None:
    """Save a campaign with a new `updated_at`: now, or 1 ms after the previous value if that is later."""
    campaign.updated_at = max(clock.now_ms(), campaign.updated_at + 1)
    campaign.save()


def _apply_changes(
    campaign: Campaign, request: CampaignCreate | CampaignPatch | SendRequest, content: PreparedContent | None
) -> bool:
    is_changed = False
    if isinstance(request.trigger_attributes, TriggerWrite):
        trigger = campaign.trigger
        for name in ("event", "contact_list_id", "segment_id", "data"):
            value = getattr(request.trigger_attributes, name)
            if value is not UNSET:
                value = value or ({} if name == "data" else None)
                is_changed = is_changed or getattr(trigger, name) != value
                setattr(trigger, name, value)
        if trigger.data.get(AUDIENCE_DELETED) and _selects_audience(request.trigger_attributes):
            trigger.data = {key: value for key, value in trigger.data.items() if key != AUDIENCE_DELETED}
            is_changed = True
        trigger.updated_at = clock.now_ms()
        trigger.save()
    if request.template_attributes is not UNSET:
        previous_revision = campaign.template.revision
        templates.fill(campaign.template, request.template_attributes, prepared=content)
        is_changed = is_changed or campaign.template.revision != previous_revision
    return is_changed


def _selects_audience(trigger: TriggerWrite) -> bool:
    """Return whether trigger attributes select a list, a segment or all contacts."""
    data = trigger.data if isinstance(trigger.data, dict) else {}
    chosen = (trigger.contact_list_id, trigger.segment_id, data.get("contact_list_ids"), data.get("audience_type"))
    return any(value not in (UNSET, None, []) for value in chosen)


def keep_stored_audience(account_id: int, campaign_id: int, request: SendRequest) -> SendRequest:
    """Return a send request with the stored keys of `trigger_attributes.data` that it does not send. Raises NotFound.

    A client that sends parts of the audience by their aliases does not mean to remove the others, such as exclusions.
    """
    trigger = request.trigger_attributes
    if not isinstance(trigger, TriggerWrite) or not isinstance(trigger.data, dict):
        return request
    data = get(account_id, campaign_id).trigger.data | trigger.data
    replaced: SendRequest = structs.replace(request, trigger_attributes=structs.replace(trigger, data=data))
    return replaced


def apply_send_request(
    campaign: Campaign, request: SendRequest, by: Actor, content: PreparedContent | None = None
) -> bool:
    """Apply the changes of a validated send request to a campaign; return whether content or audience changed.

    The caller saves the campaign.
    """
    require_write_transaction()
    times.set_times(campaign, request)
    is_changed = _apply_changes(campaign, request, content)
    if is_changed:
        approvals.mark_changed(campaign, by.person_id)
    return is_changed


# Duplicating a campaign: a new draft with the same content and audience.

_MAX_NAME = 240
# Keys of the campaign's data that are about its own send, and keys of the trigger's data that a user must confirm
# again.
_UNCOPIED_DATA = ("pause_detail",)
_UNCOPIED_TRIGGER_DATA = ("confirm_send_to_all",)


def duplicate(account_id: int, campaign_id: int, by: Actor, name: str | None = None) -> Campaign:
    """Create a draft with the content, audience, test and settings of a campaign, but not its scheduled time.

    Settings are channel, tracking, UTM parameters and data. `name` is by default "… (copy)". Raises NotFound.
    """
    require_write_transaction()
    original = get(account_id, campaign_id)
    request = CampaignCreate(
        name=name or gettext("%(name)s (copy)", name=original.name[:_MAX_NAME]),
        channel="sms" if original.channel == "sms" else "email",
        tracking=original.tracking,
        data={key: value for key, value in original.data.items() if key not in _UNCOPIED_DATA},
    )  # fmt: skip
    copy = create(account_id, request, by.person_id)
    trigger, original_trigger = copy.trigger, original.trigger
    trigger.event, trigger.contact_list_id, trigger.segment_id = (
        original_trigger.event,
        original_trigger.contact_list_id,
        original_trigger.segment_id,
    )
    trigger.data = {key: value for key, value in original_trigger.data.items() if key not in _UNCOPIED_TRIGGER_DATA}
    trigger.updated_at = clock.now_ms()
    trigger.save()
    templates.write(copy.template, revisions.to_document(original.template), by.user_id,
                    label=f"Copied from {original.name[:_MAX_NAME]}", begins=True)  # fmt: skip
    variants.copy(original, copy, by.user_id)
    Campaign.update(edited_by=by.person_id, utm=original.utm).where(Campaign.id == copy.id).execute()
    return get(account_id, copy.id)


# Validating a change, and checking whether it touches locked content.


def content_locked(campaign: Campaign) -> Invalid:
    """Return the error (`campaign_locked`) for a change of a campaign that can no longer be edited."""
    return Invalid(
        {"base": [gettext("this campaign is locked: duplicate it to change it")]},
        reason="campaign_locked",
        status=campaign.status,
    )


def changes_content(campaign: Campaign, request: CampaignPatch | SendRequest) -> bool:
    """Return whether a request would change an attribute that a locked campaign must keep.

    A locked campaign keeps channel, tracking, UTM parameters, time, audience, content and test; name and data may
    change.
    """
    if isinstance(request, CampaignPatch):
        if isinstance(request.channel, str) and request.channel != campaign.channel:
            return True
        if isinstance(request.tracking, bool) and request.tracking != campaign.tracking:
            return True
        if variants.would_change(campaign, request.experiment) or _changes_utm(campaign, request):
            return True
    if times.changes_time(campaign, request):
        return True
    if isinstance(request.trigger_attributes, TriggerWrite):
        new, old = request.trigger_attributes, campaign.trigger
        for name, current in (("event", old.event), ("contact_list_id", old.contact_list_id),
                           ("segment_id", old.segment_id), ("data", old.data)):  # fmt: skip
            value = getattr(new, name)
            if value is not UNSET and (value or ({} if name == "data" else None)) != current:
                return True
    if request.template_attributes is not UNSET:
        previous_document = revisions.to_document(campaign.template)
        for name in ("subject", "body", "preheader", "from_name", "from_email", "reply_to", "design"):
            value = getattr(request.template_attributes, name)
            if value is not UNSET and normalize_field(name, value) != previous_document[name]:
                return True
    return False


def validate_write(
    account_id: int, request: CampaignCreate | CampaignPatch | SendRequest, channel: str,
    content: PreparedContent | None = None, setup: Setup | None = None,
) -> None:  # fmt: skip
    """Raise Invalid with all errors of the trigger and template attributes and of the test, if there are any.

    `content` is the content as prepared outside of the transaction (`prepare`), which is not checked again. `setup` is
    the present test of the campaign.
    """
    faults = Faults()
    times.validate(account_id, request, faults)
    if isinstance(request.trigger_attributes, TriggerWrite):
        validate_trigger(account_id, request.trigger_attributes, faults)
    if request.template_attributes is not UNSET:
        attributes = request.template_attributes
        known_faults = content and content.get_faults(attributes, channel)
        validate_content(account_id, attributes, "template_attributes.", faults, channel, known_faults)
    utm.validate(getattr(request, "utm", UNSET), "utm.", faults)
    experiment = getattr(request, "experiment", UNSET)
    if isinstance(experiment, ExperimentWrite):
        variants.validate(account_id, experiment, channel, setup, faults)
    faults.check()
