"""Makes a campaign live: attributes, blockers, content, sender and audience are fixed in one transaction."""

from msgspec import UNSET

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.campaigns import (
    audience,
    audience_snapshot,
    checks,
    edit_rights,
    findings,
    numbered,
    preflight,
    states,
    store,
)
from appliance.campaigns.findings import Finding
from appliance.campaigns.requests import CampaignPatch, SendRequest
from appliance.content.templates import store as templates
from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid, Unavailable
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.messages import prepare
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.storage.models import Campaign, Flow, Trigger
from appliance.storage.open import connection, rows
from appliance.storage.work import after_commit, writing


def go_live(account_id: int, campaign_id: int, request: SendRequest, by: By) -> Campaign:
    """Send a campaign, or arm it if its time is to come; what it answers always shows `active`.

    A second send of a live campaign starts nothing and is no error; a paused one goes on. `scheduled_at` counts as if a
    PATCH had stored it before: a future time moves an armed campaign, a past one or null starts it. Raises NotFound,
    NotAllowed, or Invalid: wrong attributes, `campaign_locked`, or the first blocker's reason with all `blockers`.
    """
    writing()
    campaign = store.get(account_id, campaign_id)
    checks.check(account_id, request, campaign.channel)
    if campaign.status == "completed":
        raise checks.locked(campaign)
    edit_rights.change(campaign, request, by)
    if campaign.status != "draft" and not campaign.editable and checks.changes(campaign, request):
        raise checks.locked(campaign)
    if campaign.status == "paused":
        return states.resume(account_id, campaign_id, by)
    is_retimed = request.scheduled_at is not UNSET and request.scheduled_at != campaign.scheduled_at
    is_edited = store.apply(campaign, request, by)
    if campaign.status == "draft":
        campaign.test = by.test
    elif not is_retimed or _is_to_come(campaign.scheduled_at):
        if is_edited:
            _refuse_unapproved(campaign, by)
            approving.passed(campaign)
        if is_edited or is_retimed:
            store.touch(campaign)
        return store.dress(campaign)
    if request.confirm_send_to_all is True:
        audience.confirm_everyone(campaign)
    refuse_blocked(campaign, request.confirm_send_to_all is True, by)
    if request.confirm_send_to_all is True and audience.is_unbounded(campaign):
        campaign.trigger.data = {**campaign.trigger.data, "confirm_send_to_all": True}
        campaign.trigger.save()
    approving.passed(campaign)
    hold = 0 if request.hold_seconds is UNSET else int(request.hold_seconds)
    if _is_to_come(campaign.scheduled_at, hold):
        campaign.status, campaign.phase = "active", "scheduled"
        store.touch(campaign)
        return store.dress(campaign)
    return launch(campaign, hold)


def _is_to_come(scheduled_at: int | None, hold_seconds: int = 0) -> bool:
    """Return whether a time, if there is one, is after a hold that begins now."""
    return scheduled_at is not None and scheduled_at > clock.now_ms() + hold_seconds * 1000


def refuse_blocked(campaign: Campaign, confirmed: bool, by: By) -> None:
    """Raise Invalid with every blocker; the first one's code is the reason."""
    refuse(preflight.blockers(preflight.open_case(campaign, confirmed, by)))


def _refuse_unapproved(campaign: Campaign, by: By) -> None:
    if words := approving.lacks(campaign, by):
        refuse([Finding("approval_required", words, "base")])


def refuse(found: list[Finding]) -> None:
    """Raise Invalid with what was found, if anything was; the first one's code is the reason."""
    if not found:
        return
    fields: dict[str, list[str]] = {}
    for finding in found:
        fields.setdefault(finding.field, []).append(finding.message)
    raise Invalid(
        fields,
        reason=found[0].code,
        blockers=[{"code": one.code, "message": one.message, "field": one.field} for one in found],
    )


def launch(campaign: Campaign, hold_seconds: int = 0) -> Campaign:
    """Fix content, sender and audience, and let the rows go (or wait out the hold)."""
    writing()
    if campaign.closing is not None:
        raise Unavailable("its last send is still being taken back", "unavailable", retry_after=2)
    now = clock.now_ms()
    campaign.sender = preflight.sender_of(campaign, campaign.account)
    campaign.pinned = prepare.pinned(campaign)
    campaign.content = templates.pin(campaign.template, f"Sent {clock.iso(now)}")
    campaign.hold_until = now + hold_seconds * 1000 if hold_seconds else None
    campaign.started_at = now
    campaign.status, campaign.phase = "active", "holding" if hold_seconds else "sending"
    store.touch(campaign)
    audience_snapshot.begin(campaign, findings.transport(campaign))
    campaign.save()
    numbered.keep(campaign)
    Flow.update(status="active", updated_at=now).where(Flow.id == campaign.flow_id).execute()
    Trigger.update(
        triggered_count=Trigger.triggered_count + 1, last_triggered_at=now
    ).where(Trigger.id == campaign.trigger_id).execute()  # fmt: skip
    facts = {"campaign_id": campaign.id, "audience": None if campaign.freezing else campaign.audience_count}
    log.record(
        Happened(
            campaign.account_id, "campaign_started", data=facts, resource_uid=f"campaign:{campaign.id}",
            resource_name=campaign.name, test=campaign.test,
        )
    )  # fmt: skip
    after_commit(lambda: wake_ups.ring("outbox"))
    return store.get(campaign.account_id, campaign.id)


def change(account_id: int, campaign_id: int, request: CampaignPatch, by: By) -> Campaign:
    """Edit a campaign and move it where `status` says; raises NotFound, NotAllowed, Conflict, or Invalid.

    Taking the time away from an armed campaign disarms it.
    """
    writing()
    campaign = store.get(account_id, campaign_id)
    wanted = _status(campaign, request)
    edit_rights.change(campaign, request, by)
    touched = store.edit(campaign, request, by)
    unapproved = touched and campaign.account.approval_required
    if campaign.phase == "scheduled" and (request.scheduled_at is None or unapproved):
        states.disarm(campaign)
    elif campaign.phase == "scheduled" and campaign.scheduled_at <= clock.now_ms():
        # A time that has passed means now
        refuse_blocked(campaign, False, by)
        approving.passed(campaign)
        launch(campaign)
    if wanted is None or wanted == campaign.status:
        return store.get(account_id, campaign_id)
    if wanted == "draft":
        return states.to_draft(account_id, campaign_id)
    if wanted == "active":
        if campaign.status == "paused":
            return states.resume(account_id, campaign_id, by)
        states.refuse(campaign, wanted, ("draft", "paused"))
        return go_live(account_id, campaign_id, SendRequest(), by)
    if wanted == "paused":
        return states.pause(account_id, campaign_id, by)
    return states.cancel(account_id, campaign_id, by)


def _status(campaign: Campaign, request: CampaignPatch) -> str | None:
    """Read the word of a status with its aliases (docs/decisions.md#1)."""
    word = request.status if isinstance(request.status, str) else None
    if word == "scheduled":
        when = campaign.scheduled_at if request.scheduled_at is UNSET else request.scheduled_at
        if when is None or when <= clock.now_ms():
            raise Invalid({"scheduled_at": ["must be in the future"]})
    return {"live": "active", "scheduled": "active", "cancelled": "completed"}.get(word or "", word)


def due() -> list[tuple[int, int]]:
    """Return (account, id) of the armed campaigns whose time has come, the earliest first."""
    return rows(
        "SELECT account_id, id FROM campaign WHERE phase = 'scheduled' AND scheduled_at <= ? AND deleted_at IS NULL "
        "ORDER BY scheduled_at LIMIT 20",
        (clock.now_ms(),),
    )


def fire(account_id: int, campaign_id: int) -> None:
    """Start an armed campaign, once and never early; one that is too late or blocked pauses (P8)."""
    writing()
    campaign = store.get(account_id, campaign_id)
    now = clock.now_ms()
    if campaign.phase != "scheduled" or campaign.scheduled_at > now or campaign.closing is not None:
        return
    latest = now - int(seconds(config.current().limits.max_lateness) * 1000)
    blocked = preflight.blockers(preflight.open_case(campaign, False, By()))
    if campaign.scheduled_at < latest:
        states.stop(campaign, "missed_start")
    elif blocked:
        states.stop(campaign, blocked[0].code)
    else:
        launch(campaign)


def release_held() -> int:
    """Let campaigns whose hold has ended be shown as sending; their rows go by their own time."""
    writing()
    now = clock.now_ms()
    here = connection()
    here.execute(
        "UPDATE campaign SET phase = 'sending', updated_at = ? WHERE phase = 'holding' AND hold_until <= ?", (now, now)
    )
    return int(here.changes())


# Once more to whoever did not open it: a draft like a campaign that was sent, for a segment made for that.

_MAX_NAME = 230


def not_opened(account_id: int, campaign_id: int, user_id: int | None = None) -> Campaign:
    """Make a draft for those who got a campaign and did not open it; raises NotFound, or Invalid if there are none.

    Whoever left its lists since is not in it: lists and exclusions stay as they were.
    """
    writing()
    have = store.get(account_id, campaign_id)
    if have.channel != "email" or have.started_at is None:
        raise Invalid({"base": ["nobody could have opened it yet"]})
    name = have.name[:_MAX_NAME]
    segment = segments.create(
        account_id,
        SegmentCreate(
            name=f"Did not open {name}",
            filters=[
                {"name": "campaign_sent", "predicate": "eq", "value": campaign_id},
                {"name": "campaign_opened", "predicate": "not_eq", "value": campaign_id},
            ],
        ),
    )
    made = store.duplicate(account_id, campaign_id, user_id)
    made.name = f"{name} (once more)"
    made.trigger.segment_id, made.trigger.updated_at = segment.id, clock.now_ms()
    made.trigger.save()
    store.touch(made)
    return store.get(account_id, made.id)
