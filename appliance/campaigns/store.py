"""Campaigns: found, listed, created, edited."""

from typing import Any

from msgspec import UNSET
from peewee import fn

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.campaigns import checks, hold_reasons
from appliance.campaigns.requests import CampaignCreate, CampaignPatch, CampaignQuery, SendRequest, TriggerWrite
from appliance.content.templates import store as templates
from appliance.content.templates.store import TemplateWrite, is_editable
from appliance.core import clock
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.core.pagination import Page, paginate
from appliance.sending.messages.ledger import FINAL, stats
from appliance.storage import work
from appliance.storage.models import Campaign, Flow, Template, Trigger
from appliance.storage.open import rows
from appliance.storage.work import snapshot, writing

_PHASE_ALIASES = {"live": ("sending", "holding", "scheduled"), "cancelled": ("cancelled",), "scheduled": ("scheduled",)}
# Up to so many people a campaign's rows are written, ended and counted in one transaction
MAX_AT_ONCE = 20_000
_STATUSES = ("draft", "active", "paused", "completed")
# By what a list of campaigns may be ordered; a minus before it turns that round
ORDERS = {"name": fn.lower(Campaign.name), "updated": Campaign.updated_at, "created": Campaign.created_at}
_MOVING = ("sending", "holding", "paused")
_EMPTY = dict.fromkeys(("audience", "pending", *FINAL, "accepted"), 0)


def page(account_id: int, query: CampaignQuery, order: str = "", sums: bool = True) -> Page:
    """List campaigns, newest first or in one of `ORDERS`, with trigger, template and sums.

    Without `sums` only those are counted that may still move; the others have `stats` None, and their counters.
    """
    found = matching(account_id, query)
    sort = _ordered(order) if order else (Campaign.created_at.desc(), Campaign.id.desc())
    result = paginate(found.order_by(*sort), query.page, query.size())
    return result._replace(rows=[dress(campaign, sums or campaign.phase in _MOVING) for campaign in result.rows])


def _ordered(order: str) -> tuple[Any, ...]:
    column = ORDERS[order.removeprefix("-")]
    return (column.desc(), Campaign.id.desc()) if order.startswith("-") else (column.asc(), Campaign.id.asc())


def matching(account_id: int, query: CampaignQuery) -> Any:
    """Return the campaigns that a query lets through, as a query without an order."""
    found = _select().where(Campaign.account == account_id)
    if isinstance(query.status, str):
        phases = _PHASE_ALIASES.get(query.status)
        if phases is None and query.status not in _STATUSES:
            raise Invalid({"status": ["is not included in the list"]})
        found = found.where(Campaign.phase.in_(phases) if phases else Campaign.status == query.status)
    for name in ("phase", "channel", "approval_state"):
        if isinstance(getattr(query, name), str):
            found = found.where(getattr(Campaign, name) == getattr(query, name))
    if isinstance(query.asked, bool):
        found = found.where(Campaign.asked_at.is_null(not query.asked))
    if isinstance(query.search, str) and query.search.strip():
        words = query.search.strip()
        found = found.where(Campaign.name.contains(words) | Template.subject.contains(words))
    return found


def phases(account_id: int) -> dict[str, int]:
    """Count an account's campaigns by phase."""
    return dict(
        rows(
            "SELECT phase, count(*) FROM campaign WHERE account_id = ? AND deleted_at IS NULL GROUP BY phase",
            (account_id,),
        )
    )


def asked(account_id: int) -> int:
    """Count the campaigns of an account that wait for somebody to approve of them."""
    return int(matching(account_id, CampaignQuery(asked=True)).count())


def get(account_id: int, campaign_id: int) -> Campaign:
    """Return a campaign with trigger, template and sums, all of one moment (see `dress`); raises NotFound."""
    with snapshot():
        found = _select().where(Campaign.account == account_id, Campaign.id == campaign_id).first()
        if found is None:
            raise NotFound
        return dress(found)


def row(account_id: int, campaign_id: int) -> Campaign:
    """Return a campaign as its row says, without anything that is counted; raises NotFound."""
    found = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    )
    if found is None:
        raise NotFound
    return found


def some(account_id: int, ids: list[int]) -> list[Campaign]:
    """Return those of some campaigns that are there, as `get` does, in the order of their ids."""
    with snapshot():
        found = _select().where(Campaign.account == account_id, Campaign.id.in_(ids)).order_by(Campaign.id)
        return [dress(campaign) for campaign in found]


def summed(campaign_id: int) -> Campaign | None:
    """Return a campaign with its sums, all of one moment, whoever it belongs to and also if it was deleted."""
    with snapshot():
        found = Campaign.get_or_none(Campaign.id == campaign_id)
        return None if found is None else sum_up(found)


def _select() -> Any:
    return (
        Campaign.select(Campaign, Trigger, Template)
        .join_from(Campaign, Trigger)
        .join_from(Campaign, Template)
        .where(Campaign.deleted_at.is_null())
    )


def dress(campaign: Campaign, sums: bool = True) -> Campaign:
    """Add what follows from the rows: `stats`, `editable` and what it is `waiting` for.

    Counting the rows of a large campaign takes longer than a writing verb may: there `stats` stays None, and whoever
    shows the campaign calls `sum_up` afterwards.
    """
    campaign.stats, campaign.editable, campaign.waiting = None, is_editable(campaign), hold_reasons.of(campaign)
    if sums and not (work.is_writing() and campaign.audience_count > MAX_AT_ONCE):
        sum_up(campaign)
    return campaign


def sum_up(campaign: Campaign) -> Campaign:
    """Add `stats` where they are still missing."""
    if getattr(campaign, "stats", None) is None:
        campaign.stats = stats("campaign_id", campaign.id) if campaign.started_at else dict(_EMPTY)
    return campaign


def create(account_id: int, request: CampaignCreate, user_id: int | None = None) -> Campaign:
    """Make a draft with its hidden flow, trigger and template; raises Invalid with all faults."""
    writing()
    channel = request.channel if isinstance(request.channel, str) else "email"
    checks.check(account_id, request, channel)
    now = clock.now_ms()
    name = request.name.strip()
    flow = Flow.create(account=account_id, hidden=True, name=name, created_at=now, updated_at=now)
    trigger = Trigger.create(account=account_id, flow=flow, created_at=now, updated_at=now)
    template = templates.create(account_id, TemplateWrite(channel=channel), flow_id=flow.id)
    campaign = Campaign.create(
        account=account_id, flow=flow, trigger=trigger, template=template, name=name,
        channel=channel, edited_by=user_id,
        data=request.data if isinstance(request.data, dict) else {}, tracking=request.tracking is not False,
        scheduled_at=None if request.scheduled_at is UNSET else request.scheduled_at, created_at=now, updated_at=now,
    )  # fmt: skip
    _apply(campaign, request)
    return get(account_id, campaign.id)


def warm(account_id: int, campaign_id: int, content: Any) -> None:
    """Look at the texts that a change brings along, before the writer has to; raises NotFound."""
    template_id = Campaign.select(Campaign.template).where(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    ).tuples().first()  # fmt: skip
    if template_id is None:
        raise NotFound
    templates.warm(account_id, content, template_id[0])


def edit(campaign: Campaign, request: CampaignPatch, by: By) -> bool:
    """Write a checked change into a campaign; returns whether content or audience changed.

    Raises Conflict if it moved on since it was read, Invalid (`campaign_locked`) past the lock.
    """
    writing()
    if request.updated_at is not UNSET and request.updated_at < campaign.updated_at:
        raise Conflict("it was changed by somebody else since it was read", updated_at=clock.iso(campaign.updated_at))
    channel = request.channel if isinstance(request.channel, str) else campaign.channel
    checks.check(campaign.account_id, request, channel)
    if not is_editable(campaign) and checks.changes(campaign, request):
        raise checks.locked(campaign)
    if isinstance(request.name, str):
        campaign.name = request.name.strip()
    moved = channel != campaign.channel
    if moved:
        campaign.channel = campaign.template.channel = channel
        campaign.template.save(only=["channel"])
    if request.data is not UNSET:
        campaign.data = request.data or {}
    if isinstance(request.tracking, bool):
        campaign.tracking = request.tracking
    if request.scheduled_at is not UNSET:
        campaign.scheduled_at = request.scheduled_at
    touched = _apply(campaign, request) or moved
    if touched:
        approving.touched(campaign, by.user_id)
    touch(campaign)
    return touched


def touch(campaign: Campaign) -> None:
    """Save a campaign as changed now; its time of change only ever grows."""
    campaign.updated_at = max(clock.now_ms(), campaign.updated_at + 1)
    campaign.save()


def _apply(campaign: Campaign, request: CampaignCreate | CampaignPatch | SendRequest) -> bool:
    touched = False
    if isinstance(request.trigger_attributes, TriggerWrite):
        trigger = campaign.trigger
        for name in ("event", "contact_list_id", "segment_id", "data"):
            value = getattr(request.trigger_attributes, name)
            if value is not UNSET:
                value = value or ({} if name == "data" else None)
                touched = touched or getattr(trigger, name) != value
                setattr(trigger, name, value)
        trigger.updated_at = clock.now_ms()
        trigger.save()
    if request.template_attributes is not UNSET:
        before = campaign.template.revision
        templates.fill(campaign.template, request.template_attributes)
        touched = touched or campaign.template.revision != before
    return touched


def apply(campaign: Campaign, request: SendRequest, by: By) -> bool:
    """Write the checked attributes of a send into its campaign; return whether content or audience changed."""
    writing()
    if request.scheduled_at is not UNSET:
        campaign.scheduled_at = request.scheduled_at
    touched = _apply(campaign, request)
    if touched:
        approving.touched(campaign, by.user_id)
    return touched


# A new draft that says the same to the same people as a campaign that was sent, or is to be.

_MAX_NAME = 240
# What was noted of that one alone, and what has to be said anew before a send
_NOT_KEPT = ("pause_detail",)
_TO_CONFIRM = ("confirm_send_to_all",)


def duplicate(account_id: int, campaign_id: int, user_id: int | None = None, name: str | None = None) -> Campaign:
    """Make a draft like a campaign, by its own name or another: words, audience, channel, not its time; or NotFound."""
    writing()
    have = get(account_id, campaign_id)
    asked = CampaignCreate(
        name=name or f"{have.name[:_MAX_NAME]} (copy)", channel="sms" if have.channel == "sms" else "email",
        tracking=have.tracking,
        data={key: value for key, value in have.data.items() if key not in _NOT_KEPT},
    )  # fmt: skip
    made = create(account_id, asked, user_id)
    trigger, old = made.trigger, have.trigger
    trigger.event, trigger.contact_list_id, trigger.segment_id = old.event, old.contact_list_id, old.segment_id
    trigger.data = {key: value for key, value in old.data.items() if key not in _TO_CONFIRM}
    trigger.updated_at = clock.now_ms()
    trigger.save()
    templates.write(made.template, templates.document(have.template), user_id,
                    label=f"Copied from {have.name[:_MAX_NAME]}", begins=True)  # fmt: skip
    return get(account_id, made.id)
