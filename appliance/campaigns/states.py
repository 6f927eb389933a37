"""Where a campaign may go from where it is (docs/decisions.md#6), and what that does to its rows."""

from typing import Any, cast

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.campaigns import closing, edit_rights, numbered, store
from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid, NotFound
from appliance.core.transitions import Action, Standing, refusal, taken
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.delivery import classes
from appliance.sending.messages import outcomes, senders
from appliance.storage.models import Campaign, Flow
from appliance.storage.open import connection
from appliance.storage.work import after_commit, writing

ALLOWED = {
    "draft": ("active",),
    "active": ("draft", "paused", "completed"),
    "paused": ("active", "completed"),
    "completed": (),
}
ACTIONS = {
    "send": Action("sent", "active", ("draft", "paused")),
    "pause": Action("paused", "paused", ("active",)),
    "resume": Action("resumed", "active", ("paused",)),
    "cancel": Action("cancelled", "completed", ("active", "paused")),
}
# What to do instead, by action and status
_INSTEAD = {("resume", "draft"): "Send it instead.", ("cancel", "draft"): "Delete it instead."}


def refuse(campaign: Campaign, to: str, may_from: tuple[str, ...]) -> None:
    """Raise Invalid (`invalid_transition`) unless the campaign is in one of these states.

    A completed one some of whose messages are sent again moves like an active one.
    """
    if campaign.status in may_from or (campaign.phase == "sending" and "active" in may_from):
        return
    raise Invalid(
        {"status": [f"cannot change from {campaign.status} to {to}"]},
        reason="invalid_transition",
        **cast(Any, {"from": campaign.status, "to": to, "allowed": _allowed(campaign)}),
    )


def _allowed(campaign: Campaign) -> list[str]:
    """Return the statuses that a campaign may get from where it is; back to a draft only before anything has left."""
    allowed = list(ALLOWED[campaign.status])
    if "draft" in allowed and campaign.phase not in ("scheduled", "holding"):
        allowed.remove("draft")
    return allowed


def _require(campaign: Campaign, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a campaign takes an action now.

    A completed one some of whose messages are sent again moves like an active one.
    """
    status = "active" if campaign.phase == "sending" else campaign.status
    if status not in ACTIONS[action].needs:
        state = campaign.phase if campaign.phase in ("scheduled", "cancelled") else ""
        instead = _INSTEAD.get((action, status), "")
        standing = Standing(status, _allowed(campaign), taken(ACTIONS, status), state)
        raise refusal("campaign", standing, action, ACTIONS[action], instead)


def pause(account_id: int, campaign_id: int, by: By) -> Campaign:
    """Stop a live campaign; nothing new starts after the answer but what is in hand (P5)."""
    writing()
    campaign = store.get(account_id, campaign_id)
    _require(campaign, "pause")
    return _pause(campaign, None, by.actor)


def stop(campaign: Campaign, reason: str) -> Campaign:
    """Pause a campaign on our own account; only a person lets it go on."""
    writing()
    return _pause(campaign, reason, "system")


def stop_failed(account_id: int, campaign_id: int) -> Campaign:
    """Pause a campaign that could not be started for a reason of ours."""
    writing()
    return _pause(store.get(account_id, campaign_id), "start_failed", "system")


def stop_refused(providers: frozenset[str], campaigns: frozenset[int], words: str) -> None:
    """Pause the live campaigns that the way out keeps refusing; a person looks and lets them go on."""
    writing()
    live = (
        connection()
        .execute(
            "SELECT c.account_id, c.id, (SELECT provider FROM message m WHERE m.campaign_id = c.id LIMIT 1) "
            "FROM campaign c WHERE phase IN ('sending', 'holding')"
        )
        .fetchall()
    )
    for account_id, campaign_id, provider in live:
        if provider in providers or campaign_id in campaigns:
            campaign = store.get(account_id, campaign_id)
            campaign.data = {**campaign.data, "pause_detail": words}
            stop(campaign, "transport")


def _pause(campaign: Campaign, reason: str | None, actor: str) -> Campaign:
    campaign.status, campaign.phase, campaign.pause_reason = "paused", "paused", reason
    store.touch(campaign)
    _record(campaign, "campaign_paused", {"reason": reason, "actor": actor})
    return store.get(campaign.account_id, campaign.id)


def resume(account_id: int, campaign_id: int, by: By) -> Campaign:
    """Let a paused campaign go on: only its open rows, with the content as first sent."""
    writing()
    from appliance.campaigns import send

    campaign = store.get(account_id, campaign_id)
    _require(campaign, "resume")
    _refuse_lost(campaign)
    campaign.pause_reason, campaign.baseline = None, counted(campaign)
    if campaign.started_at is None:
        # It was armed and never started: start now, or wait for its time if that is still to come
        if campaign.scheduled_at is None or campaign.scheduled_at <= clock.now_ms():
            send.refuse_blocked(campaign, False, by)
            approving.passed(campaign)
            return send.launch(campaign)
        campaign.status, campaign.phase = "active", "scheduled"
    else:
        holding = campaign.hold_until is not None and campaign.hold_until > clock.now_ms()
        campaign.status, campaign.phase = "active", "holding" if holding else "sending"
    store.touch(campaign)
    after_commit(lambda: wake_ups.ring("outbox"))
    return store.get(account_id, campaign_id)


def _refuse_lost(campaign: Campaign) -> None:
    """Refuse to go on in the name of a domain that has failed: the first messages would leave before it is noticed."""
    sender = (campaign.sender or {}).get("email")
    if sender and not campaign.test and senders.is_lost(campaign.account_id, sender):
        words, field = f"the domain of {sender} has lost its DNS records", "template_attributes.from_email"
        blockers = [{"code": "sender_not_ready", "message": words, "field": field}]
        raise Invalid({field: [words]}, reason="sender_not_ready", message=words, blockers=blockers)


def counted(campaign: Campaign) -> dict[str, int]:
    """Return what an automatic stop looks at: accepted, refused as nobody's, bounced, complained, unwelcome."""
    return {
        "sent": campaign.sent_count, "refused": campaign.refused_count, "bounced": campaign.bounced_count,
        "complained": campaign.complained_count, **outcomes.unwelcome(campaign.id),
    }  # fmt: skip


def cancel(account_id: int, campaign_id: int, by: By) -> Campaign:
    """End a live or paused campaign for good: nothing of it leaves any more but what is in hand (see `closing`)."""
    writing()
    campaign = store.get(account_id, campaign_id)
    _require(campaign, "cancel")
    now = clock.now_ms()
    campaign.status, campaign.phase, campaign.cancelled_at, campaign.completed_at = "completed", "cancelled", now, now
    campaign.pause_reason = None
    closing.cancel(campaign)
    store.touch(campaign)
    _finish_flow(campaign)
    _record(campaign, "campaign_completed", {"cancelled": True, "actor": by.actor})
    return store.get(account_id, campaign_id)


def to_draft(account_id: int, campaign_id: int) -> Campaign:
    """Take a campaign back before anything left: disarm a scheduled one, undo one that is still held."""
    writing()
    campaign = store.get(account_id, campaign_id)
    if campaign.phase == "scheduled":
        return disarm(campaign)
    return undo(account_id, campaign_id)


def disarm(campaign: Campaign) -> Campaign:
    """Make an armed campaign a draft again; its time stays as a proposal."""
    writing()
    campaign.status, campaign.phase = "draft", "draft"
    store.touch(campaign)
    return store.get(campaign.account_id, campaign.id)


def undo(account_id: int, campaign_id: int) -> Campaign:
    """Take back a send during its hold: its rows were never attempted and go, the campaign is a draft again."""
    writing()
    campaign = store.get(account_id, campaign_id)
    untouched = campaign.phase == "holding" and campaign.hold_until > clock.now_ms()
    if not untouched:
        refuse(campaign, "draft", ())
    closing.undo(campaign)
    numbered.drop(campaign.id)
    campaign.status, campaign.phase = "draft", "draft"
    campaign.content = campaign.sender = campaign.pinned = None
    campaign.audience_count, campaign.started_at, campaign.hold_until = 0, None, None
    store.touch(campaign)
    _finish_flow(campaign, "draft")
    return store.get(account_id, campaign_id)


def delete(account_id: int, campaign_id: int, by: By) -> Campaign:
    """Delete a campaign and answer it as it was; open rows are cancelled, the ledger and its events stay.

    Raises NotFound, or NotAllowed.
    """
    writing()
    campaign = store.get(account_id, campaign_id)
    edit_rights.end(campaign, by)
    before = store.get(account_id, campaign_id)
    closing.cancel(campaign)
    campaign.deleted_at, campaign.phase, campaign.status = clock.now_ms(), "cancelled", "completed"
    campaign.save()
    _finish_flow(campaign)
    return before


def bring_back(account_id: int, campaign_id: int) -> Campaign:
    """Undo the deletion of a campaign that was never sent: it is a draft again; raises NotFound for any other."""
    writing()
    found = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null(False),
        Campaign.started_at.is_null(),
    )  # fmt: skip
    if found is None:
        raise NotFound
    found.deleted_at, found.phase, found.status = None, "draft", "draft"
    store.touch(found)
    _finish_flow(found, "draft")
    return store.get(account_id, campaign_id)


def settle() -> int:
    """Complete live campaigns that have no open row left; returns how many."""
    writing()
    ready = (
        connection()
        .execute(
            "SELECT account_id, id FROM campaign c WHERE phase = 'sending' AND deleted_at IS NULL AND freezing IS NULL "
            "AND NOT EXISTS "
            "(SELECT 1 FROM message m WHERE m.campaign_id = c.id AND m.status IN ('queued', 'held', 'sending'))"
        )
        .fetchall()
    )
    for account_id, campaign_id in ready:
        campaign = store.get(account_id, campaign_id)
        again = campaign.status == "completed"
        campaign.status, campaign.phase = "completed", "completed"
        campaign.completed_at = campaign.completed_at if again else clock.now_ms()
        store.touch(campaign)
        _finish_flow(campaign)
        if not again:
            _record(campaign, "campaign_completed", {"audience": campaign.audience_count, "sent": campaign.sent_count})
    return len(ready)


def _finish_flow(campaign: Campaign, status: str = "archived") -> None:
    Flow.update(status=status, updated_at=clock.now_ms()).where(Flow.id == campaign.flow_id).execute()


def _record(campaign: Campaign, event: str, data: dict[str, object]) -> None:
    log.record(
        Happened(
            campaign.account_id, event, data={"campaign_id": campaign.id, **data},
            resource_uid=f"campaign:{campaign.id}", resource_name=campaign.name, test=campaign.test,
        )
    )  # fmt: skip


# Stops campaigns that do more harm than good: too many addresses that do not exist, too many complaints, no right to
# the domain or number they are from, or networks that keep back what they take for unwanted.
#
# The counts stand in the campaign itself, so that looking costs nothing. Once a person lets it go on, what happened
# until then is theirs to answer for: from there it is counted anew.

# Decisions, section 6: hard bounces and complaints, both from so many messages on
MAX_BOUNCES, MAX_COMPLAINTS, FROM_MESSAGES = 0.05, 0.003, 100
# Messages that servers could not tell to be ours, or whose sender is not registered, as reported later
# (`sending.workers.circuit_breaker` stops for what is refused at once)
MAX_STRANGERS = 3
# SMS that networks took for unwanted: single ones are caught always, so many and such a part of all mean us
MAX_FILTERED, FROM_FILTERED = 0.05, 10
_LIVE = ("sending", "holding")


def suspects() -> list[tuple[int, int]]:
    """Return (account, id) of the live campaigns that have to stop."""
    live = Campaign.select().where(Campaign.phase.in_(_LIVE), Campaign.deleted_at.is_null())
    return [(campaign.account_id, campaign.id) for campaign in live if verdict(campaign) is not None]


def check_auto_pause(account_id: int, campaign_id: int) -> str | None:
    """Pause a live campaign if too much speaks against it, and answer the reason."""
    writing()
    campaign = store.get(account_id, campaign_id)
    reason = verdict(campaign) if campaign.phase in _LIVE else None
    if reason == "transport":
        campaign.data = {**campaign.data, "pause_detail": _words(campaign_id)}
    if reason is not None:
        stop(campaign, reason)
    return reason


def verdict(campaign: Campaign) -> str | None:
    """Return why a campaign has to stop, or None."""
    address = (campaign.sender or {}).get("email")
    if not campaign.test and address and senders.is_lost(campaign.account_id, address):
        return "domain_failed"
    counts = counted(campaign)
    sent, refused, bounced, complained, strangers, filtered = (
        count - int(campaign.baseline.get(name, 0)) for name, count in counts.items()
    )  # fmt: skip
    if strangers >= MAX_STRANGERS or (filtered >= FROM_FILTERED and filtered > MAX_FILTERED * (sent + refused)):
        return "transport"
    if sent + refused < FROM_MESSAGES:
        return None
    if refused + bounced > MAX_BOUNCES * (sent + refused):
        return "bounce_rate"
    return "complaint_rate" if complained > MAX_COMPLAINTS * sent else None


def _words(campaign_id: int) -> str:
    """Return what was said last about a message that came back for what we are, and what helps."""
    kind, enhanced, text = outcomes.of_unwelcome(campaign_id) or (classes.AUTHENTICATION.name, None, None)
    found = classes.BY_NAME[kind]
    help = classes.remedy(enhanced, text or "") if found is classes.AUTHENTICATION else found.help
    return f"{text or found.words} - {help}"
