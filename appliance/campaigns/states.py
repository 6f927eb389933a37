"""The states of a campaign (docs/decisions.md#6): transitions, who may change a campaign, and the automatic pause."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from appliance.accounts import agents, members
from appliance.accounts.audit import Actor
from appliance.campaigns import experiment, links, send_times, store, times, trigger, variants
from appliance.campaigns.store import MAX_AT_ONCE, CampaignPatch, SendRequest
from appliance.core import clock, signals
from appliance.core.errors import (
    CurrentState,
    Invalid,
    NotAllowed,
    NotFound,
    Transition,
    possible_actions,
    refuse_transition,
)
from appliance.core.i18n import gettext, gettext_noop
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages import outcomes, senders
from appliance.settings import config
from appliance.storage.database import connection, fetch_one, run
from appliance.storage.models import Campaign, Flow, Template
from appliance.storage.models.message import CANCEL_OPEN
from appliance.storage.transactions import after_commit, require_write_transaction

ALLOWED = {
    "draft": ("active",),
    "active": ("draft", "paused", "completed"),
    "paused": ("active", "completed"),
    "completed": (),
}
ACTIONS = {
    "send": Transition(
        gettext_noop("A campaign with the status %(status)s cannot be sent."), "active", ("draft", "paused")
    ),
    "pause": Transition(gettext_noop("A campaign with the status %(status)s cannot be paused."), "paused", ("active",)),
    "resume": Transition(
        gettext_noop("A campaign with the status %(status)s cannot be resumed."), "active", ("paused",)
    ),
    "cancel": Transition(
        gettext_noop("A campaign with the status %(status)s cannot be cancelled."), "completed", ("active", "paused")
    ),
}
# The hint of the error, by rejected action and current status.
_REFUSAL_HINTS = {
    ("resume", "draft"): gettext_noop("Send it instead."),
    ("cancel", "draft"): gettext_noop("Delete it instead."),
}


def require_state(campaign: Campaign, to: str, may_from: tuple[str, ...]) -> None:
    """Raise Invalid (`invalid_transition`) unless the campaign has one of the statuses of `may_from`.

    `to` is the requested status, for the error. A completed campaign that is resending messages counts as active.
    """
    if campaign.status in may_from or (campaign.phase == "sending" and "active" in may_from):
        return
    raise Invalid(
        {"status": [gettext("cannot change from %(status)s to %(to)s", status=campaign.status, to=to)]},
        reason="invalid_transition",
        **cast(Any, {"from": campaign.status, "to": to, "allowed": _list_allowed_actions(campaign)}),
    )


def _list_allowed_actions(campaign: Campaign) -> list[str]:
    """Return the statuses that a campaign may change to; `draft` only while it is scheduled or held."""
    allowed = list(ALLOWED[campaign.status])
    if "draft" in allowed and campaign.phase not in ("scheduled", "holding"):
        allowed.remove("draft")
    return allowed


def require_action(campaign: Campaign, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless the campaign's status allows an action of `ACTIONS`.

    A completed campaign that is resending messages counts as active.
    """
    status = "active" if campaign.phase == "sending" else campaign.status
    if status not in ACTIONS[action].sources:
        state = campaign.phase if campaign.phase in ("scheduled", "cancelled") else ""
        instead = gettext(_REFUSAL_HINTS.get((action, status), ""))
        current = CurrentState(status, _list_allowed_actions(campaign), possible_actions(ACTIONS, status), state)
        raise refuse_transition(current, action, ACTIONS[action], instead)


def pause(account_id: int, campaign_id: int, by: Actor) -> Campaign:
    """Pause an active campaign; only messages that are already being sent still leave (docs/promises.md, P5).

    Raises NotFound, or Invalid (`invalid_transition`) if the campaign is not active.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    require_action(campaign, "pause")
    return _pause(campaign, None, by.name)


def pause_by_service(campaign: Campaign, reason: str) -> Campaign:
    """Pause a campaign on behalf of the service, in any state, with a code as the reason; only a user can resume it."""
    require_write_transaction()
    return _pause(campaign, reason, "system")


def pause_overdue() -> int:
    """Pause the campaigns that missed a local time by over `limits.max_lateness`, and return their number.

    Call it when the service starts, before anything is sent (docs/promises.md, P8).
    """
    require_write_transaction()
    overdue = send_times.list_overdue()
    for account_id, campaign_id in overdue:
        pause_by_service(store.get(account_id, campaign_id), "missed_start")
    return len(overdue)


def pause_failed(account_id: int, campaign_id: int) -> Campaign:
    """Pause a campaign that could not be started because of an internal error; raises NotFound."""
    require_write_transaction()
    return _pause(store.get(account_id, campaign_id), "start_failed", "system")


def pause_rejected(providers: Mapping[str, str], campaigns: Mapping[int, str]) -> None:
    """Pause the live campaigns whose messages keep being rejected.

    These have an id in `campaigns`, or messages with a provider in `providers`. The text of the rejection, which is the
    value in the mapping, is stored as `pause_detail` of the campaign. Only a user can resume the campaigns.
    """
    require_write_transaction()
    live = (
        connection()
        .execute(
            "SELECT c.account_id, c.id, c.channel, (SELECT provider FROM message m WHERE m.campaign_id = c.id LIMIT 1) "
            "FROM campaign c WHERE phase IN ('sending', 'holding')"
        )
        .fetchall()
    )
    has_several = bool(config.current().email.transports)
    for account_id, campaign_id, channel, provider in live:
        reply = campaigns.get(campaign_id, providers.get(provider))
        if reply is None and has_several and channel == "email":
            reply = next((text for key, text in providers.items() if _is_sent_with(campaign_id, key)), None)
        if reply is not None:
            campaign = store.get(account_id, campaign_id)
            campaign.data = {**campaign.data, "pause_detail": reply}
            pause_by_service(campaign, "transport")


def _is_sent_with(campaign_id: int, provider: str) -> bool:
    """Return whether a message of a campaign has a provider; with several transports, not all have the same."""
    sql = "SELECT 1 FROM message WHERE campaign_id = ? AND provider = ? LIMIT 1"
    return fetch_one(sql, (campaign_id, provider)) is not None


def _pause(campaign: Campaign, reason: str | None, actor: str) -> Campaign:
    campaign.status, campaign.phase, campaign.pause_reason = "paused", "paused", reason
    store.mark_changed(campaign)
    _record_event(campaign, "campaign_paused", {"reason": reason, "actor": actor})
    return store.get(campaign.account_id, campaign.id)


def refuse_failed_domain(campaign: Campaign) -> None:
    """Raise Invalid if the sender's domain has lost its DNS records; a test campaign is not checked.

    Without this check, messages would leave before the automatic pause.
    """
    sender = _find_failed_sender(campaign)
    if sender is not None:
        message = gettext(
            "the sending domain of %(address)s is no longer verified: its DNS records are missing", address=sender
        )
        field = "template_attributes.from_email"
        blockers = [{"code": "sender_not_ready", "message": message, "field": field}]
        raise Invalid({field: [message]}, reason="sender_not_ready", message=message, blockers=blockers)


def _find_failed_sender(campaign: Campaign) -> str | None:
    """Return a sender of a campaign or variant whose domain has lost its DNS records; None for a test campaign."""
    stored = (campaign.sender, *variants.list_senders(campaign.id))
    addresses = dict.fromkeys(sender["email"] for sender in stored if sender is not None and sender.get("email"))
    failed = (address for address in addresses if senders.has_domain_failed(campaign.account_id, address))
    return None if campaign.test else next(failed, None)


def get_auto_pause_counts(campaign: Campaign) -> dict[str, int]:
    """Return the counts that the automatic pause compares with its limits.

    Keys, in this order: `sent`, `refused`, `bounced`, `complained`, and the keys of `outcomes.count_sender_rejections`.
    """
    return {
        "sent": campaign.sent_count, "refused": campaign.refused_count, "bounced": campaign.bounced_count,
        "complained": campaign.complained_count, **outcomes.count_sender_rejections(campaign.id),
    }  # fmt: skip


def cancel(account_id: int, campaign_id: int, by: Actor) -> Campaign:
    """Cancel an active or paused campaign for good; only messages that are already being sent still leave.

    Records the event `campaign_completed`. Raises NotFound, or Invalid (`invalid_transition`) for another status.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    require_action(campaign, "cancel")
    now = clock.now_ms()
    campaign.status, campaign.phase, campaign.cancelled_at, campaign.completed_at = "completed", "cancelled", now, now
    campaign.pause_reason = None
    cancel_messages(campaign)
    store.mark_changed(campaign)
    _finish_flow(campaign)
    _record_event(campaign, "campaign_completed", {"cancelled": True, "actor": by.name})
    return store.get(account_id, campaign_id)


def return_to_draft(account_id: int, campaign_id: int) -> Campaign:
    """Make a scheduled campaign a draft again, or undo the send of a campaign while its messages are held.

    Raises NotFound, or Invalid (`invalid_transition`) if the campaign is neither scheduled nor held.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    if campaign.phase == "scheduled":
        return unschedule(campaign)
    return undo_send(account_id, campaign_id)


def unschedule(campaign: Campaign) -> Campaign:
    """Make a scheduled campaign a draft again; it keeps its scheduled time as a suggestion."""
    require_write_transaction()
    campaign.status, campaign.phase = "draft", "draft"
    store.mark_changed(campaign)
    return store.get(campaign.account_id, campaign.id)


def stop_series(campaign: Campaign, reason: str) -> Campaign:
    """Make a repeating campaign a draft on behalf of the service, so that the cause, a code, can be repaired.

    Records the event `campaign_paused`.
    """
    stopped = unschedule(campaign)
    _record_event(campaign, "campaign_paused", {"reason": reason, "actor": "system"})
    return stopped


def undo_send(account_id: int, campaign_id: int) -> Campaign:
    """Undo a send during its hold: delete its messages, none of which was attempted, and make the campaign a draft.

    Raises NotFound, or Invalid (`invalid_transition`) if the campaign is not held.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    is_held = campaign.phase == "holding" and campaign.hold_until > clock.now_ms()
    if not is_held:
        require_state(campaign, "draft", ())
    delete_messages(campaign)
    links.delete_links(campaign.id)
    experiment.reset(campaign.id)
    send_times.delete_times(campaign.id)
    campaign.status, campaign.phase = "draft", "draft"
    campaign.content = campaign.sender = campaign.pinned = None
    campaign.audience_count, campaign.started_at, campaign.hold_until = 0, None, None
    store.mark_changed(campaign)
    _finish_flow(campaign, "draft")
    return store.get(account_id, campaign_id)


def delete(account_id: int, campaign_id: int, by: Actor) -> Campaign:
    """Delete a campaign and return it as it was before.

    Its open messages are cancelled; its rows in the ledger and its events stay. Raises NotFound, or NotAllowed if `by`
    may not delete the campaign (`check_end`).
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    check_end(campaign, by)
    previous = store.get(account_id, campaign_id)
    cancel_messages(campaign)
    campaign.deleted_at, campaign.phase, campaign.status = clock.now_ms(), "cancelled", "completed"
    campaign.save()
    _finish_flow(campaign)
    return previous


def restore(account_id: int, campaign_id: int) -> Campaign:
    """Restore a deleted campaign that was never sent, as a draft; raises NotFound for any other campaign."""
    require_write_transaction()
    campaign = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null(False),
        Campaign.started_at.is_null(),
    )  # fmt: skip
    if campaign is None:
        raise NotFound
    campaign.deleted_at, campaign.phase, campaign.status = None, "draft", "draft"
    store.mark_changed(campaign)
    _finish_flow(campaign, "draft")
    return store.get(account_id, campaign_id)


def complete_finished() -> int:
    """Complete the campaigns that are sending and have no open messages left, and return their number.

    A completed campaign that has resent messages returns to completed, without a second event.
    """
    require_write_transaction()
    finished = (
        connection()
        .execute(
            "SELECT account_id, id FROM campaign c WHERE phase = 'sending' AND deleted_at IS NULL AND "
            "pending_snapshot IS NULL "
            "AND NOT EXISTS "
            "(SELECT 1 FROM message m WHERE m.campaign_id = c.id AND m.status IN ('queued', 'held', 'sending'))"
        )
        .fetchall()
    )
    for account_id, campaign_id in finished:
        campaign = store.get(account_id, campaign_id)
        was_completed = campaign.status == "completed"
        campaign.status, campaign.phase = "completed", "completed"
        campaign.completed_at = campaign.completed_at if was_completed else clock.now_ms()
        store.mark_changed(campaign)
        _finish_flow(campaign)
        if not was_completed:
            _record_event(
                campaign, "campaign_completed", {"audience": campaign.audience_count, "sent": campaign.sent_count}
            )
    return len(finished)


def _finish_flow(campaign: Campaign, status: str = "archived") -> None:
    Flow.update(status=status, updated_at=clock.now_ms()).where(Flow.id == campaign.flow_id).execute()


def _record_event(campaign: Campaign, event: str, data: dict[str, object]) -> None:
    log.record(
        NewEvent(
            campaign.account_id, event, data={"campaign_id": campaign.id, **data},
            resource_uid=f"campaign:{campaign.id}", resource_name=campaign.name, test=campaign.test,
        )
    )  # fmt: skip


# The automatic pause. Its causes: too many unknown addresses, too many complaints, rejections of the sender's domain or
# number, and SMS that networks filter as unwanted.
#
# The counts are stored in the campaign, so a check is cheap. A user who resumes a campaign accepts what happened
# before: the counts at that time become its `baseline`, and only what is above them is compared with the limits.

# The largest shares of hard bounces and complaints, and the number of messages from which they are checked
# (docs/decisions.md#6).
MAX_BOUNCES, MAX_COMPLAINTS, FROM_MESSAGES = 0.05, 0.003, 100
# The number of SMS from an unregistered sender that pauses a campaign. Only the provider reports them. Emails that are
# reported as unauthenticated count by their share, like bounces, because the recipients of a few messages can forge
# such reports. Immediate rejections are handled by `sending.workers.circuit_breaker`.
MAX_UNREGISTERED = 3
# The share and the minimum number of SMS, filtered by networks as unwanted, that pause a campaign. Lower values occur
# in any campaign.
MAX_FILTERED, FROM_FILTERED = 0.05, 10
_LIVE = ("sending", "holding")


def list_auto_pause_candidates() -> list[tuple[int, int]]:
    """Return (account id, campaign id) of the live campaigns that exceed a limit of the automatic pause."""
    live = Campaign.select().where(Campaign.phase.in_(_LIVE), Campaign.deleted_at.is_null())
    return [(campaign.account_id, campaign.id) for campaign in live if find_auto_pause_reason(campaign) is not None]


def check_auto_pause(account_id: int, campaign_id: int) -> str | None:
    """Pause a live campaign if it exceeds a limit of the automatic pause; return the reason or None.

    Raises NotFound.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    reason = find_auto_pause_reason(campaign) if campaign.phase in _LIVE else None
    if reason == "transport":
        campaign.data = {**campaign.data, "pause_detail": _describe_rejection(campaign_id)}
    if reason is not None:
        pause_by_service(campaign, reason)
    return reason


def find_auto_pause_reason(campaign: Campaign) -> str | None:
    """Return the pause reason of the limit that a campaign exceeds, or None.

    The reason is `domain_failed`, `transport` (the sender or its SMS are rejected), `bounce_rate` or `complaint_rate`.
    """
    if _find_failed_sender(campaign) is not None:
        return "domain_failed"
    counts = get_auto_pause_counts(campaign)
    sent, refused, bounced, complained, unauthenticated, unregistered, filtered = (
        count - int(campaign.baseline.get(name, 0)) for name, count in counts.items()
    )  # fmt: skip
    if unregistered >= MAX_UNREGISTERED or (filtered >= FROM_FILTERED and filtered > MAX_FILTERED * (sent + refused)):
        return "transport"
    if sent + refused < FROM_MESSAGES:
        return None
    if unauthenticated > MAX_BOUNCES * (sent + refused):
        return "transport"
    if refused + bounced > MAX_BOUNCES * (sent + refused):
        return "bounce_rate"
    return "complaint_rate" if complained > MAX_COMPLAINTS * sent else None


def _describe_rejection(campaign_id: int) -> str:
    """Return the text of the last reply that rejected the sender of a campaign, followed by advice."""
    kind, enhanced, text = outcomes.get_last_sender_rejection(campaign_id) or (
        bounce_classes.AUTHENTICATION.name,
        None,
        None,
    )
    bounce_class = bounce_classes.CLASSES_BY_NAME[kind]
    advice = (
        bounce_classes.authentication_help(enhanced, text or "")
        if bounce_class is bounce_classes.AUTHENTICATION
        else bounce_class.help
    )
    return f"{text or bounce_class.meaning} - {advice}"


# Who paused or cancelled a campaign, from the events that record it.

_LAST_EVENT = (
    "SELECT data, created_at FROM event WHERE account_id = ? AND resource_uid = ? AND event = ? "
    "ORDER BY created_at DESC, id DESC LIMIT 1"
)
_EVENT_OF_PHASE = {"paused": "campaign_paused", "cancelled": "campaign_completed"}


class LastAction(NamedTuple):
    """Who paused or cancelled a campaign, and when.

    `at` is in Unix milliseconds. `name` is the user's name, or None for the service, an API key or a deleted user.
    """

    at: int
    name: str | None
    is_service: bool


def find_last_action(campaign: Campaign) -> LastAction | None:
    """Return who paused or cancelled a campaign and when, or None if it is neither paused nor cancelled."""
    event = _EVENT_OF_PHASE.get(campaign.phase)
    row = fetch_one(_LAST_EVENT, (campaign.account_id, f"campaign:{campaign.id}", event)) if event else None
    if row is None:
        return None
    kind, _, number = str(msgspec.json.decode(row[0]).get("actor") or "").partition(":")
    name = None
    if kind == "user" and number.isdecimal():
        user = members.find(campaign.account_id, int(number))
        name = user.name if user is not None else None
    return LastAction(row[1], name, kind == "system")


# Who may change or delete a campaign in its state, and change its template.

_TEST_KEY_ONLY = gettext_noop("A test key can only change campaigns that test keys sent.")
# The messages of a test campaign are captured, but their outcome depends on the values of contacts: without
# `contacts:read`, a key could read these values by changing the content repeatedly (T45 in docs/threats.md).
_TEST_CONTENT_REFUSED = gettext_noop("Changing a scheduled campaign of a test key needs the contacts:read scope.")
_SCHEDULED_LOCKED = gettext_noop("This campaign is scheduled; only a user who may send can change it.")
_SEND_SCOPE = "campaigns:send"


def check_change(campaign: Campaign, request: CampaignPatch | SendRequest, by: Actor) -> None:
    """Raise NotAllowed if the actor may not make this change; every actor who may edit can change a draft.

    A test key may change only campaigns that test keys sent. Without the permission to send, no user and no API key may
    change the content, audience or time of a scheduled campaign. The content and time of a campaign that a test key
    sent can be changed only with the permission to read contacts. An agent changes nothing but drafts, and cannot
    confirm a send to all contacts in advance.
    """
    agents.require_draft(campaign, by, campaign.phase == "draft")
    if by.is_agent:
        trigger.refuse_confirmation(request.trigger_attributes)
    if campaign.phase == "draft":
        return
    is_paused = campaign.status == "paused"
    moves = is_paused if isinstance(request, SendRequest) else isinstance(request.status, str)
    if by.is_test and not campaign.test and (moves or store.changes_content(campaign, request)):
        raise NotAllowed(gettext(_TEST_KEY_ONLY))
    if campaign.test and not by.can_read_contacts and store.changes_content(campaign, request):
        raise NotAllowed(gettext(_TEST_CONTENT_REFUSED), required_scope="contacts:read")
    if campaign.phase != "scheduled" or by.can_change_live:
        return
    if times.changes_time(campaign, request) or store.changes_content(campaign, request):
        raise NotAllowed(gettext(_SCHEDULED_LOCKED), required_scope=_SEND_SCOPE)


def check_end(campaign: Campaign, by: Actor) -> None:
    """Raise NotAllowed if the actor may not delete the campaign, which would stop it if it is scheduled or live."""
    if campaign.phase in ("draft", "completed", "cancelled"):
        return
    if by.is_test and not campaign.test:
        raise NotAllowed(gettext(_TEST_KEY_ONLY))
    if by.user_id is not None and not by.can_send:
        raise NotAllowed(
            gettext("This campaign is scheduled or live; only a user who may send can delete it."),
            required_scope=_SEND_SCOPE,
        )


def check_template_change(account_id: int, template_id: int, by: Actor) -> None:
    """Raise NotAllowed if the template belongs to a scheduled campaign that the actor may not change.

    A user or key needs the permission to send. A test key may change only campaigns that test keys sent. To change such
    a campaign, every actor needs the permission to read contacts. An agent changes drafts only.
    """
    if by.is_agent:
        owner = Campaign.get_or_none(
            Campaign.account == account_id,
            Campaign.flow == Template.select(Template.flow).where(Template.id == template_id),
        )
        if owner is not None:
            agents.require_draft(owner, by, owner.phase == "draft" and owner.deleted_at is None)
    armed = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.phase == "scheduled", Campaign.deleted_at.is_null(),
        Campaign.flow == Template.select(Template.flow).where(Template.id == template_id),
    )  # fmt: skip
    if armed is None:
        return
    if by.is_test and not armed.test:
        raise NotAllowed(gettext(_TEST_KEY_ONLY))
    if not by.is_test and not by.can_change_live:
        raise NotAllowed(gettext(_SCHEDULED_LOCKED), required_scope=_SEND_SCOPE)
    if armed.test and not by.can_read_contacts:
        raise NotAllowed(gettext(_TEST_CONTENT_REFUSED), required_scope="contacts:read")


# Ending the rows of a campaign: open rows are cancelled if the campaign is cancelled or deleted, and all rows are
# deleted if its send is undone.
#
# The rows of a large campaign are ended in batches. No further message is sent once the phase has changed, which is
# before the response to the request; until its batch runs, a row counts as queued. The campaign stores the pending
# work, so that another process continues it if this one dies.

_LIMITED_IDS = "id IN (SELECT id FROM message WHERE campaign_id = ? {}LIMIT ?)"
_OPEN = "AND status IN ('queued', 'held') "
_CANCEL_MESSAGES = f"UPDATE message SET {CANCEL_OPEN}, updated_at = ? WHERE "
_NO_LIMIT = -1


def cancel_messages(campaign: Campaign) -> None:
    """Cancel the queued and held messages of a campaign, in batches if it is large; the caller saves the campaign.

    A message whose earlier attempt may have been accepted becomes uncertain instead.
    """
    _start_ending_messages(campaign, "cancel")


def delete_messages(campaign: Campaign) -> None:
    """Delete all message rows of a campaign, in batches if it is large; the caller saves the campaign.

    Call it only if no message of the campaign was ever attempted.
    """
    _start_ending_messages(campaign, "undo")


def _start_ending_messages(campaign: Campaign, mode: str) -> None:
    require_write_transaction()
    if mode == "cancel":
        experiment.store_unfinished_sizes(campaign)
    # Members of the audience that have no row yet get none.
    campaign.pending_snapshot = None
    if campaign.pending_end is not None or campaign.audience_count > MAX_AT_ONCE:
        campaign.pending_end = campaign.pending_end or mode
        after_commit(lambda: signals.wake("audiences"))
    else:
        _end_messages(campaign.id, mode, _NO_LIMIT)


def end_batch(campaign_id: int, size: int) -> int:
    """Cancel or delete up to `size` rows of a campaign, as its `pending_end` says, and return their number.

    If no row is left, clear `pending_end` and return 0.
    """
    require_write_transaction()
    row = fetch_one("SELECT pending_end FROM campaign WHERE id = ? AND pending_end IS NOT NULL", (campaign_id,))
    ended = _end_messages(campaign_id, row[0], size) if row is not None else 0
    if not ended:
        run("UPDATE campaign SET pending_end = NULL WHERE id = ?", (campaign_id,))
    return ended


def _end_messages(campaign_id: int, mode: str, limit: int) -> int:
    if mode == "undo":
        return run(f"DELETE FROM message WHERE {_LIMITED_IDS.format('')}", (campaign_id, limit))
    return run(f"{_CANCEL_MESSAGES}{_LIMITED_IDS.format(_OPEN)}", (clock.now_ms(), campaign_id, limit))
