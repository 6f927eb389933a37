"""Sending a campaign: now or at a set time, editing it before that, and approval.

A send fixes content, sender and audience in one transaction.
"""

from msgspec import UNSET

from appliance.accounts import approvals
from appliance.accounts.audit import Actor
from appliance.campaigns import (
    audience,
    audience_snapshot,
    experiment,
    links,
    preflight,
    repeats,
    send_times,
    states,
    store,
    times,
)
from appliance.campaigns.findings import Finding, find_transport
from appliance.campaigns.preflight import NOT_PREPARED, PreparedSend
from appliance.campaigns.store import CampaignPatch, SendRequest
from appliance.content.templates import revisions
from appliance.content.templates.store import PreparedContent
from appliance.core import clock, signals
from appliance.core.errors import Invalid, Unavailable
from appliance.core.i18n import gettext, gettext_stored
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import shared_content
from appliance.storage.database import connection, rows
from appliance.storage.models import Campaign, Flow, Trigger
from appliance.storage.transactions import after_commit, require_write_transaction

_SENT = gettext_stored("Sent %(time)s", revisions.HISTORY)


def go_live(
    account_id: int, campaign_id: int, request: SendRequest, by: Actor, content: PreparedContent | None = None,
    prepared: PreparedSend = NOT_PREPARED,
) -> Campaign:  # fmt: skip
    """Send a campaign, or schedule it if its time is in the future; the returned campaign is always `active`.

    Sending a live campaign again starts nothing and is not an error; a paused campaign is resumed. `scheduled_at` acts
    as if a PATCH had stored it before: a future time reschedules a scheduled campaign, and a past time or null starts
    the campaign. Raises NotFound; NotAllowed if `by` may not make the change; Unavailable while an earlier send is
    being undone; Invalid for invalid attributes, for a locked campaign (`campaign_locked`), or with all `blockers`, of
    which the first gives the reason.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    store.validate_write(account_id, request, campaign.channel, content)
    if campaign.status == "completed":
        raise store.content_locked(campaign)
    states.check_change(campaign, request, by)
    if campaign.status != "draft" and not campaign.editable and store.changes_content(campaign, request):
        raise store.content_locked(campaign)
    if campaign.status == "paused":
        return resume(account_id, campaign_id, by, prepared)
    times.refuse_now(campaign, request)
    is_retimed = times.changes_time(campaign, request)
    is_edited = store.apply_send_request(campaign, request, by, content)
    if campaign.status == "draft":
        campaign.test = by.is_test
    elif not is_retimed or _is_in_future(campaign.scheduled_at):
        # The campaign is scheduled or being sent already, so nothing starts here: only edits and a new time are stored.
        if is_edited:
            _refuse_unapproved(campaign, by)
            approvals.mark_approved(campaign)
        if is_edited or is_retimed:
            store.mark_changed(campaign)
        return store.add_details(campaign)
    if request.confirm_send_to_all is True:
        audience.confirm_everyone(campaign)
    refuse_blocked(campaign, request.confirm_send_to_all is True, by, prepared)
    if request.confirm_send_to_all is True and audience.is_unbounded(campaign):
        campaign.trigger.data = {**campaign.trigger.data, "confirm_send_to_all": True}
        campaign.trigger.save()
    approvals.mark_approved(campaign)
    hold = 0 if request.hold_seconds is UNSET or campaign.repeat else int(request.hold_seconds)
    repeats.set_next_date(campaign)
    if _is_in_future(campaign.scheduled_at, hold):
        campaign.status, campaign.phase = "active", "scheduled"
        store.mark_changed(campaign)
        return store.add_details(campaign)
    return launch(campaign, hold, prepared)


def _is_in_future(scheduled_at: int | None, hold_seconds: int = 0) -> bool:
    """Return whether a time is set and is later than the end of a hold of `hold_seconds` that starts now."""
    return scheduled_at is not None and scheduled_at > clock.now_ms() + hold_seconds * 1000


def refuse_blocked(campaign: Campaign, is_confirmed: bool, by: Actor, prepared: PreparedSend) -> None:
    """Raise Invalid with all blockers of a campaign, if there are any; the code of the first one is the reason.

    `is_confirmed` is True if the request confirms a send to all contacts.
    """
    raise_for_findings(preflight.find_blockers(preflight.load_input(campaign, is_confirmed, by, prepared)))


def _refuse_unapproved(campaign: Campaign, by: Actor) -> None:
    if blocker := approvals.find_blocker(campaign, by):
        raise_for_findings([Finding("approval_required", blocker, "base")])


def raise_for_findings(findings: list[Finding]) -> None:
    """Raise Invalid with the findings, if there are any; the code of the first one is the reason."""
    if not findings:
        return
    fields: dict[str, list[str]] = {}
    for finding in findings:
        fields.setdefault(finding.field, []).append(finding.message)
    raise Invalid(
        fields,
        reason=findings[0].code,
        blockers=[{"code": finding.code, "message": finding.message, "field": finding.field} for finding in findings],
    )


def launch(campaign: Campaign, hold_seconds: int = 0, prepared: PreparedSend = NOT_PREPARED) -> Campaign:
    """Fix content, sender and audience of a campaign, and start sending when the hold ends; no blocker is checked.

    Raises Unavailable if an earlier send of the campaign is still being undone, and MergeError if the content does not
    compile.
    """
    require_write_transaction()
    if campaign.pending_end is not None:
        raise Unavailable(
            gettext("The previous send of this campaign is still being undone."), "unavailable", retry_after=2
        )
    now = clock.now_ms()
    campaign.sender = preflight.get_sender(campaign, campaign.account)
    campaign.pinned = shared_content.build_campaign_snapshot(campaign)
    campaign.content = revisions.pin_current(campaign.template, _SENT % {"time": clock.iso(now)})
    campaign.hold_until = now + hold_seconds * 1000 if hold_seconds else None
    campaign.started_at = now
    campaign.status, campaign.phase = "active", "holding" if hold_seconds else "sending"
    store.mark_changed(campaign)
    experiment.start(campaign, preflight.get_sender)
    send_times.store_times(campaign)
    audience_snapshot.begin_snapshot(campaign, find_transport(campaign), prepared.audience)
    campaign.save()
    links.save_links(campaign, prepared.message)
    Flow.update(status="active", updated_at=now).where(Flow.id == campaign.flow_id).execute()
    Trigger.update(
        triggered_count=Trigger.triggered_count + 1, last_triggered_at=now
    ).where(Trigger.id == campaign.trigger_id).execute()  # fmt: skip
    facts = {"campaign_id": campaign.id, "audience": None if campaign.pending_snapshot else campaign.audience_count}
    log.record(
        NewEvent(
            campaign.account_id, "campaign_started", data=facts, resource_uid=f"campaign:{campaign.id}",
            resource_name=campaign.name, test=campaign.test,
        )
    )  # fmt: skip
    after_commit(lambda: signals.wake("outbox"))
    return store.get(campaign.account_id, campaign.id)


def resume(account_id: int, campaign_id: int, by: Actor, prepared: PreparedSend = NOT_PREPARED) -> Campaign:
    """Resume a paused campaign: only its open rows are sent, with the content of the original send.

    A campaign that was paused before it started is scheduled again if its time is in the future, else it is sent now.
    Raises NotFound; Unavailable while an earlier send is being undone; Invalid if the campaign is not paused, its
    sending domain has failed, or there are blockers.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    states.require_action(campaign, "resume")
    states.refuse_failed_domain(campaign)
    campaign.pause_reason, campaign.baseline = None, states.get_auto_pause_counts(campaign)
    pause = states.find_last_action(campaign)
    if pause is not None:
        experiment.shift(campaign_id, pause.at)
    if campaign.started_at is None:
        repeats.set_next_date(campaign)
        if campaign.scheduled_at is None or campaign.scheduled_at <= clock.now_ms():
            refuse_blocked(campaign, False, by, prepared)
            approvals.mark_approved(campaign)
            return launch(campaign, 0, prepared)
        campaign.status, campaign.phase = "active", "scheduled"
    else:
        holding = campaign.hold_until is not None and campaign.hold_until > clock.now_ms()
        campaign.status, campaign.phase = "active", "holding" if holding else "sending"
    store.mark_changed(campaign)
    after_commit(lambda: signals.wake("outbox"))
    return store.get(account_id, campaign_id)


def update(
    account_id: int, campaign_id: int, request: CampaignPatch, by: Actor, content: PreparedContent | None = None,
    prepared: PreparedSend = NOT_PREPARED,
) -> Campaign:  # fmt: skip
    """Edit a campaign and change its status, as PATCH does.

    A scheduled campaign becomes a draft if its time is removed or its new content needs approval, and is sent now if
    its new time is in the past. Raises NotFound; NotAllowed if `by` may not make the change; Conflict if the campaign
    has been changed since the client read it; Unavailable while an earlier send is being undone; Invalid for invalid
    attributes, a locked campaign, blockers, or a status that the campaign cannot change to.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    new_status = _read_status(campaign, request)
    states.check_change(campaign, request, by)
    is_edited = store.edit(campaign, request, by, content)
    needs_approval = is_edited and campaign.account.approval_required
    if campaign.phase == "scheduled" and (campaign.scheduled_at is None or needs_approval):
        states.unschedule(campaign)
    elif campaign.phase == "scheduled" and campaign.scheduled_at <= clock.now_ms():
        # A time in the past means now.
        refuse_blocked(campaign, False, by, prepared)
        approvals.mark_approved(campaign)
        launch(campaign, 0, prepared)
    if new_status is None or new_status == campaign.status:
        return store.get(account_id, campaign_id)
    if new_status == "draft":
        return states.return_to_draft(account_id, campaign_id)
    if new_status == "active":
        if campaign.status == "paused":
            return resume(account_id, campaign_id, by, prepared)
        states.require_state(campaign, new_status, ("draft", "paused"))
        return go_live(account_id, campaign_id, SendRequest(), by, prepared=prepared)
    if new_status == "paused":
        return states.pause(account_id, campaign_id, by)
    return states.cancel(account_id, campaign_id, by)


def _read_status(campaign: Campaign, request: CampaignPatch) -> str | None:
    """Return the requested status with its aliases resolved (docs/decisions.md#1), or None.

    Raises Invalid for `scheduled` without a time in the future.
    """
    word = request.status if isinstance(request.status, str) else None
    if word == "scheduled":
        when, new = times.find_start(campaign, request), times.get_times(campaign, request)
        if new.local_time is not None:  # In some time zone the local time is still in the future.
            when = send_times.find_last(new.local_time, new.best_hour_until)
        if when is None or when <= clock.now_ms():
            raise Invalid({"scheduled_at": [gettext("must be in the future")]})
    return {"live": "active", "scheduled": "active", "cancelled": "completed"}.get(word or "", word)


def list_due() -> list[tuple[int, int]]:
    """Return (account id, campaign id) of up to 20 scheduled campaigns that are due.

    The earliest of each account come first, so that many campaigns of one account do not delay other accounts.
    """
    return rows(
        "SELECT account_id, id FROM campaign WHERE phase = 'scheduled' AND scheduled_at <= ? AND deleted_at IS NULL "
        "ORDER BY row_number() OVER (PARTITION BY account_id ORDER BY scheduled_at), scheduled_at LIMIT 20",
        (clock.now_ms(),),
    )


def start_scheduled(account_id: int, campaign_id: int, prepared: PreparedSend) -> None:
    """Start a scheduled campaign that is due, or pause it if it is later than `limits.max_lateness` or has blockers.

    Does nothing if the campaign is no longer scheduled or not yet due, so that it starts once and never early
    (docs/promises.md, P8). Does nothing either while an earlier send is being undone. Raises NotFound.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    now = clock.now_ms()
    if campaign.phase != "scheduled" or campaign.scheduled_at > now or campaign.pending_end is not None:
        return
    if _is_late(campaign):
        states.pause_by_service(campaign, "missed_start")
    elif blocked := preflight.find_blockers(preflight.load_input(campaign, False, Actor(), prepared)):
        states.pause_by_service(campaign, blocked[0].code)
    else:
        launch(campaign, 0, prepared)


def pause_if_late(account_id: int, campaign_id: int) -> None:
    """Pause a scheduled campaign that is later than `limits.max_lateness`, if it could not be prepared until then.

    Otherwise `list_due` would return it forever in place of others. Raises NotFound.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    if campaign.phase == "scheduled" and campaign.pending_end is None and _is_late(campaign):
        states.pause_by_service(campaign, "missed_start")


def _is_late(campaign: Campaign) -> bool:
    return bool(campaign.scheduled_at < clock.now_ms() - send_times.get_max_lateness_ms())


def release_held_campaigns() -> int:
    """Set the phase of campaigns whose hold has ended to `sending` and return their number.

    Their messages need no change: each is due when the hold ends.
    """
    require_write_transaction()
    now = clock.now_ms()
    db = connection()
    db.execute(
        "UPDATE campaign SET phase = 'sending', updated_at = ? WHERE phase = 'holding' AND hold_until <= ?", (now, now)
    )
    return int(db.changes())


# Approval of a campaign before its send: requested, approved or rejected (docs/decisions.md#6).


def request_approval(account_id: int, campaign_id: int, by: Actor, prepared: PreparedSend = NOT_PREPARED) -> Campaign:
    """Request the approval of a campaign that was not started.

    Raises NotFound. Raises Invalid if the campaign was started, if it has blockers other than the missing approval, or
    if it was rejected and not changed since.
    """
    require_write_transaction()
    campaign = _require_pending(account_id, campaign_id)
    confirmed = campaign.trigger.data.get("confirm_send_to_all") is True
    approver = Actor(can_approve=True)
    raise_for_findings(preflight.find_blockers(preflight.load_input(campaign, confirmed, approver, prepared)))
    approvals.request_approval(campaign, by)
    return _save_decision(campaign)


def approve_campaign(account_id: int, campaign_id: int, by: Actor) -> Campaign:
    """Approve the current state of a campaign that was not started.

    Raises NotFound, NotAllowed if `by` may not approve the campaign, or Invalid for a started campaign.
    """
    require_write_transaction()
    campaign = _require_pending(account_id, campaign_id)
    approvals.approve(campaign, by)
    return _save_decision(campaign)


def reject_campaign(account_id: int, campaign_id: int, note: str | None) -> Campaign:
    """Reject the current state of a campaign that was not started; a scheduled campaign becomes a draft again.

    `note` is the reason to show. Raises NotFound, or Invalid for a started campaign.
    """
    require_write_transaction()
    campaign = _require_pending(account_id, campaign_id)
    approvals.reject(campaign, note)
    if campaign.phase == "scheduled":
        states.unschedule(campaign)
    return _save_decision(campaign)


def _require_pending(account_id: int, campaign_id: int) -> Campaign:
    campaign = store.get(account_id, campaign_id)
    if campaign.started_at is not None or campaign.phase not in ("draft", "scheduled", "paused"):
        raise store.content_locked(campaign)
    return campaign


def _save_decision(campaign: Campaign) -> Campaign:
    store.mark_changed(campaign)
    return store.get(campaign.account_id, campaign.id)
