"""When a campaign with a local time leaves where: the times of a draft's recipients, those of a send, and findings."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from appliance.audience.time_zones import SOURCE_AND_ZONE_SQL, ZoneSource, split_source
from appliance.campaigns import audience, send_times, store, variants
from appliance.campaigns.findings import Finding, PreflightInput
from appliance.campaigns.send_times import ZoneProgress
from appliance.core import clock, time_zones
from appliance.core.i18n import gettext, ngettext
from appliance.events.listing import Moment
from appliance.sending.messages import marketing_calendar
from appliance.storage.models import Campaign

_FIELD = "local_time"


class ZoneCount(NamedTuple):
    """Recipients of a draft with the same time zone from the same source."""

    source: ZoneSource
    time_zone: str
    recipients: int


class SendMoment(Struct):
    """A moment at which a campaign leaves, with the time zones whose local time it is."""

    at: Annotated[Moment, Meta(description="when these recipients get it")]
    time_zones: Annotated[list[str], Meta(description="their time zones")]
    recipients: Annotated[int, Meta(description="number of these recipients")]
    waiting: Annotated[int, Meta(description="number of their messages that are still open")]


class ZoneSources(Struct):
    """The number of recipients by where their time zone comes from: the first of these that is known."""

    data: Annotated[int, Meta(description="from the custom field `time_zone`")]
    phone: Annotated[int, Meta(description="from the phone number")]
    country: Annotated[int, Meta(description="from the country")]
    account: Annotated[int, Meta(description="unknown, so that of the account")]


class SendTimes(Struct):
    """When a campaign with a local time leaves in which time zone: fixed when it is sent, before that a forecast."""

    local_time: Annotated[str, Meta(description="time on the clock of each recipient; null for other campaigns")] | None
    is_fixed: Annotated[bool, Meta(description="whether the campaign was sent, so that the times are fixed")]
    first_at: Annotated[Moment, Meta(description="when the first recipients get it; null without recipients")] | None
    last_at: Annotated[Moment, Meta(description="when the last recipients get it; null without recipients")] | None
    times: Annotated[list[SendMoment], Meta(description="moments in order")]
    sources: Annotated[ZoneSources, Meta(description="where the time zones come from; null once it was sent")] | None
    late_recipients: Annotated[
        int, Meta(description="number of recipients whose local time had passed at the start, and who get it at once")
    ]
    next_day_recipients: Annotated[
        int, Meta(description="number of recipients whose local time had passed for longer, and who get it a day later")
    ]


def get_send_times(account_id: int, campaign_id: int, is_exact: bool = True) -> SendTimes:
    """Return when a campaign with a local time leaves, nothing for another one; raises NotFound for an unknown one.

    Without `is_exact`, the counts of a very large audience may be a few seconds old.
    """
    campaign = store.get(account_id, campaign_id)
    if campaign.local_time is None:
        return SendTimes(None, campaign.started_at is not None, None, None, [], None, 0, 0)
    if campaign.started_at is not None:
        progress = send_times.list_progress(campaign)
        return _build(campaign, progress, None)
    counts = count_zones(campaign, is_exact) if audience.is_set(campaign) else []
    start, recipients = send_times.get_start(campaign), Counter[str]()
    for count in counts:
        recipients[count.time_zone] += count.recipients
    progress = []
    for zone, number in recipients.items():
        due_at = send_times.find_due(campaign.local_time, zone, start)
        progress.append(ZoneProgress(zone, due_at, due_at, number, number))
    by_source = Counter[str]()
    for count in counts:
        by_source[count.source] += count.recipients
    sources = ZoneSources(*(by_source[name] for name in ZoneSources.__struct_fields__))
    return _build(campaign, progress, sources)


def _build(campaign: Campaign, progress: list[ZoneProgress], sources: ZoneSources | None) -> SendTimes:
    moments: dict[int, SendMoment] = {}
    late = next_day = 0
    local_time = str(campaign.local_time)
    local = time_zones.parse_local_time(local_time)
    for row in sorted(progress, key=lambda row: (row.due_at, row.time_zone)):
        moment = moments.setdefault(row.due_at, SendMoment(str(clock.iso(row.due_at)), [], 0, 0))
        moment.time_zones.append(row.time_zone)
        moment.recipients += row.recipients
        moment.waiting += row.waiting
        delay = row.planned_at - time_zones.find_moment(local, time_zones.get_zone(row.time_zone))
        if delay > 0:
            is_late = delay <= send_times.get_max_lateness_ms()
            late, next_day = late + is_late * row.recipients, next_day + (not is_late) * row.recipients
    ordered = [moments[at] for at in sorted(moments)]
    return SendTimes(
        local_time, campaign.started_at is not None, ordered[0].at if ordered else None,
        ordered[-1].at if ordered else None, ordered, sources, late, next_day,
    )  # fmt: skip


def count_zones(campaign: Campaign, is_exact: bool) -> list[ZoneCount]:
    """Return the number of a draft's recipients by time zone and source; without `is_exact`, it may be cached."""
    counts = audience.count_by(campaign, SOURCE_AND_ZONE_SQL, is_exact)
    return [ZoneCount(*split_source(str(text)), number) for text, number in counts.items()]


def check_local_time(case: PreflightInput) -> Iterator[Finding]:
    """Yield a blocker if a local time has passed everywhere, or if an A/B test cannot be sent at it."""
    campaign = case.campaign
    if campaign.local_time is None:
        return
    if campaign.started_at is None and time_zones.find_first_and_last(campaign.local_time)[1] < clock.now_ms():
        yield Finding("preflight_failed", gettext("the local time has passed in every time zone"), _FIELD)
    setup = variants.find(campaign.id)
    if setup is not None and setup.experiment.uneven:
        message = gettext("a test that gives better variants more recipients cannot be sent at a local time")
        yield Finding("preflight_failed", message, "experiment.uneven")


def check_calendar(case: PreflightInput) -> Iterator[Finding]:
    """Warn if the account's calendar allows no marketing email at the start, in the account's time zone."""
    campaign, account = case.campaign, case.account
    if account.marketing_calendar is None:
        return
    start = send_times.get_start(campaign)
    if campaign.local_time is not None:
        start = send_times.find_due(campaign.local_time, account.time_zone, start)
    calendar = marketing_calendar.parse(account.marketing_calendar)
    if marketing_calendar.find_next_allowed(calendar, account.time_zone, start) is not None:
        message = gettext("your account allows no marketing email at this time: contacts get it when it is allowed")
        yield Finding("calendar", message, "local_time" if campaign.local_time else "scheduled_at")


def find_passed_times(campaign: Campaign) -> Iterator[Finding]:
    """Yield a warning for the recipients of a draft whose local time has passed already."""
    if campaign.local_time is None or campaign.phase != "draft" or (campaign.scheduled_at or 0) >= clock.now_ms():
        return
    times = get_send_times(campaign.account_id, campaign.id, is_exact=False)
    if times.late_recipients:
        message = ngettext(
            "the local time has passed for %(num)s contact, who gets it at once",
            "the local time has passed for %(num)s contacts, who get it at once",
            times.late_recipients,
        )
        yield Finding("local_time_passed", message, _FIELD)
    if times.next_day_recipients:
        message = ngettext(
            "the local time has passed long ago for %(num)s contact, who gets it a day later",
            "the local time has passed long ago for %(num)s contacts, who get it a day later",
            times.next_day_recipients,
        )
        yield Finding("local_time_passed", message, _FIELD)
