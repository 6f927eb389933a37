"""Handle the due dates of a repeating campaign: send a copy once for each date, or record why nothing was sent."""

from datetime import datetime
from hashlib import blake2b

import msgspec

from appliance.accounts import approvals, members, users
from appliance.accounts.audit import Actor
from appliance.campaigns import preflight, send, send_times, states, store, variants
from appliance.campaigns.findings import Finding
from appliance.campaigns.preflight import PreparedSend
from appliance.campaigns.repeats import Repeat
from appliance.content.templates import revisions
from appliance.core import addresses, clock, i18n
from appliance.core.i18n import gettext
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage.database import rows
from appliance.storage.models import Account, Campaign, Occurrence, Series
from appliance.storage.transactions import require_write_transaction

# After a long downtime, only the last of the missed dates are recorded.
_MAX_MISSED = 100
_MAX_NAME = 240


def start_due(account_id: int, campaign_id: int, prepared: PreparedSend) -> None:
    """Start a scheduled campaign that is due; if it repeats, send a copy of it and schedule it for its next date.

    The copy and the next date are written in one transaction, so that each date is sent at most once. If several dates
    have come, only the last is sent, unless it is later than `limits.max_lateness`. A finding of the preflight makes
    it a draft, to be repaired and sent again. Raises NotFound.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    repeat: Repeat | None = campaign.repeat
    if repeat is None:
        send.start_scheduled(account_id, campaign_id, prepared)
        return
    now = clock.now_ms()
    if campaign.phase != "scheduled" or campaign.scheduled_at > now or campaign.pending_end is not None:
        return
    *missed, due = _list_due_dates(campaign, repeat, now)
    is_late = due < now - send_times.get_max_lateness_ms()
    for moment in [*missed, *([due] if is_late else [])][-_MAX_MISSED:]:
        _record(repeat, moment, "missed")
    if not is_late:
        _run(campaign, repeat, due, prepared)
    _schedule_next(account_id, campaign_id, repeat, now)


def _list_due_dates(campaign: Campaign, repeat: Repeat, now: int) -> list[int]:
    """Return the scheduled time of a campaign that is due, and the later dates that have come too."""
    return [campaign.scheduled_at, *repeat.list_dates(campaign.scheduled_at, 10 * _MAX_MISSED, now)]


def _run(campaign: Campaign, repeat: Repeat, due: int, prepared: PreparedSend) -> None:
    content_hash = hash_content(campaign)
    if repeat.only_if_changed and content_hash == repeat.sent_hash:
        _record(repeat, due, "unchanged")
        return
    if blocker := _find_blocker(campaign, prepared):
        _record(repeat, due, "blocked", blocker.code)
        states.stop_series(campaign, blocker.code)
        _notify_owners(campaign, prepared)
        return
    copy = _copy(campaign, repeat, due)
    send.launch(copy, 0, prepared)
    _record(repeat, due, "sent", campaign_id=copy.id)
    Series.update(sent_hash=content_hash).where(Series.id == repeat.series_id).execute()


def _find_blocker(campaign: Campaign, prepared: PreparedSend) -> Finding | None:
    """Return the first finding that prevents a send, in the current language, or None."""
    return next(iter(preflight.find_blockers(preflight.load_input(campaign, False, Actor(), prepared))), None)


def _copy(campaign: Campaign, repeat: Repeat, due: int) -> Campaign:
    """Return a draft with content, audience, test and approval of a campaign; its name has the date."""
    day = datetime.fromtimestamp(due / 1000, repeat.zone).date().isoformat()
    copy = store.duplicate(campaign.account_id, campaign.id, Actor(), f"{campaign.name[:_MAX_NAME]} {day}")
    copy.trigger.data = dict(campaign.trigger.data)
    copy.trigger.save()
    copy.test, copy.edited_by = campaign.test, campaign.edited_by
    if campaign.approval_state == "approved":
        approvals.mark_approved(copy)
    copy.save()
    return store.get(campaign.account_id, copy.id)


def hash_content(campaign: Campaign) -> str:
    """Return a hash of what a campaign sends: the content of its template and of the variants of its A/B test."""
    documents = [revisions.to_document(view.template) for _, view in ((0, campaign), *variants.list_views(campaign))]
    return blake2b(msgspec.json.encode(documents, order="sorted"), digest_size=16).hexdigest()


def _record(repeat: Repeat, due: int, outcome: str, reason: str | None = None, campaign_id: int | None = None) -> None:
    Occurrence.create(
        series=repeat.series_id, due_at=due, outcome=outcome, reason=reason, campaign=campaign_id,
        created_at=clock.now_ms(),
    )  # fmt: skip


def _schedule_next(account_id: int, campaign_id: int, repeat: Repeat, now: int) -> None:
    """Set the next date of a campaign; a scheduled one without any becomes a draft."""
    campaign = store.get(account_id, campaign_id)
    next_at = repeat.find_next(now)
    if next_at is not None:
        campaign.scheduled_at = next_at
        store.mark_changed(campaign)
    elif campaign.phase == "scheduled":
        campaign.scheduled_at = None
        states.unschedule(campaign)


def reschedule(account_id: int) -> None:
    """Move the campaigns of an account that repeat to their next date in its new time zone."""
    require_write_transaction()
    scheduled = rows(
        "SELECT c.id FROM campaign c JOIN series s ON s.campaign_id = c.id WHERE c.account_id = ? AND s.rule NOT NULL "
        "AND c.phase = 'scheduled' AND c.deleted_at IS NULL",
        (account_id,),
    )
    for (campaign_id,) in scheduled:
        campaign = store.get(account_id, campaign_id)
        if campaign.scheduled_at > clock.now_ms():
            _schedule_next(account_id, campaign_id, campaign.repeat, clock.now_ms())


def _notify_owners(campaign: Campaign, prepared: PreparedSend) -> None:
    """Queue an email to each active owner of the account that a date of a series was not sent."""
    account = Account.get_by_id(campaign.account_id)
    for owner in members.list_active(account.id, ("owner",)):
        with i18n.use_language(users.choose_language(owner, account)):
            finding = _find_blocker(campaign, prepared)
            email = SystemEmail(
                subject=gettext("A repeating campaign was not sent"),
                heading=gettext("A repeating campaign was not sent"),
                text=gettext(
                    "“%(name)s” was due, but could not be sent: %(problem)s. Repair this, then send it again.",
                    name="{{ data.name }}", problem="{{ data.problem }}",
                ),
                button=gettext("Open campaign"),
                link=f"{config.base_url(config.current())}/campaigns/{campaign.id}",
                note=gettext("You get this email because you are an owner of this account."),
                language=i18n.get_language_tag(),
            )  # fmt: skip
        data = {"name": campaign.name, "problem": "" if finding is None else finding.message}
        system_emails.queue_system_email(account, addresses.parse_email(owner.email), None, email, data)
