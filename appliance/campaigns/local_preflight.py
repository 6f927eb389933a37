"""When a campaign with a local time is sent in which time zone: forecast, times of a send, and preflight findings."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from appliance.audience import time_zones as contact_zones
from appliance.audience.time_zones import SOURCE_AND_ZONE_SQL, ZoneSource, get_account_zone, split_source
from appliance.campaigns import audience, send_times, store, variants
from appliance.campaigns.findings import Finding, PreflightInput
from appliance.campaigns.send_times import ZoneProgress
from appliance.core import clock, time_zones
from appliance.core.i18n import gettext, ngettext
from appliance.events.listing import Moment
from appliance.sending.messages import marketing_calendar
from appliance.storage import masking
from appliance.storage.models import Campaign

_FIELD = "local_time"
_HOURS = 24


class ZoneCount(NamedTuple):
    """The number of a draft's recipients with the same time zone, source of the zone, and hour of the day."""

    source: ZoneSource
    time_zone: str
    hour: int
    recipients: int


class SendMoment(Struct):
    """A moment at which a campaign leaves, with the time zones whose local time it is."""

    at: Annotated[Moment, Meta(description="when these recipients get it")]
    time_zones: Annotated[list[str], Meta(description="their time zones")]
    recipients: Annotated[int, Meta(description="number of these recipients")]
    waiting: Annotated[int, Meta(description="number of their messages that are still open")]


class SendHour(Struct):
    """An hour of the day at which recipients get a campaign, on their own clocks."""

    hour: Annotated[int, Meta(description="hour of the day, from 0 to 23")]
    recipients: Annotated[int, Meta(description="number of recipients who get it at this hour")]
    waiting: Annotated[int, Meta(description="number of their messages that are still open")]
    clicked: Annotated[int, Meta(description="number of these recipients who clicked")]


class ZoneSources(Struct):
    """The number of recipients by where their time zone comes from: the first of these that is known."""

    data: Annotated[int, Meta(description="from the custom field `time_zone`")]
    phone: Annotated[int, Meta(description="from the phone number")]
    country: Annotated[int, Meta(description="from the country")]
    account: Annotated[int, Meta(description="unknown, so that of the account")]


class SendTimes(Struct):
    """When a campaign with a local time leaves in which time zone: fixed when it is sent, before that a forecast."""

    local_time: Annotated[str, Meta(description="time on the clock of each recipient; null for other campaigns")] | None
    best_hour_until: (
        Annotated[int, Meta(description="until which hour it is sent at the best hour of each recipient; null: none")]
        | None
    )
    is_fixed: Annotated[bool, Meta(description="whether the campaign was sent, so that the times are fixed")]
    first_at: Annotated[Moment, Meta(description="when the first recipients get it; null without recipients")] | None
    last_at: Annotated[Moment, Meta(description="when the last recipients get it; null without recipients")] | None
    times: Annotated[list[SendMoment], Meta(description="moments in order")]
    hours: Annotated[list[SendHour], Meta(description="hours of the day in order; without recipients, none")]
    sources: Annotated[ZoneSources, Meta(description="where the time zones come from; null once it was sent")] | None
    late_recipients: Annotated[
        int, Meta(description="number of recipients whose local time had passed at the start, and who get it at once")
    ]
    next_day_recipients: Annotated[
        int, Meta(description="number of recipients whose local time had passed for longer, and who get it a day later")
    ]


def get_send_times(account_id: int, campaign_id: int, is_exact: bool = True) -> SendTimes:
    """Return when a campaign with a local time is sent in each time zone; an empty result without a local time.

    Without `is_exact`, the counts of a very large audience may be a few seconds old. Raises NotFound for an unknown
    campaign.
    """
    campaign = store.get(account_id, campaign_id)
    if campaign.local_time is None:
        return SendTimes(None, None, campaign.started_at is not None, None, None, [], [], None, 0, 0)
    if campaign.started_at is not None:
        progress = send_times.list_progress(campaign)
        return _build(campaign, progress, None)
    counts = count_zones(campaign, is_exact) if audience.is_set(campaign) else []
    start, recipients = send_times.get_start(campaign), Counter[tuple[str, int]]()
    for count in counts:
        recipients[count.time_zone, count.hour] += count.recipients
    progress = []
    for (zone, hour), number in recipients.items():
        due_at = send_times.find_due(send_times.get_local_time(campaign, hour), zone, start)
        progress.append(ZoneProgress(zone, hour, due_at, due_at, number, number))
    by_source = Counter[str]()
    for count in counts:
        by_source[count.source] += count.recipients
    sources = ZoneSources(*(by_source[name] for name in ZoneSources.__struct_fields__))
    return _build(campaign, progress, sources)


def _build(campaign: Campaign, progress: list[ZoneProgress], sources: ZoneSources | None) -> SendTimes:
    moments: dict[int, SendMoment] = {}
    hours = {hour: SendHour(hour, 0, 0, 0) for hour in send_times.list_hours(campaign)}
    late = next_day = 0
    local = {hour: time_zones.parse_local_time(send_times.get_local_time(campaign, hour)) for hour in hours}
    for row in sorted(progress, key=lambda row: (row.due_at, row.time_zone)):
        moment = moments.setdefault(row.due_at, SendMoment(str(clock.iso(row.due_at)), [], 0, 0))
        if row.time_zone not in moment.time_zones:
            moment.time_zones.append(row.time_zone)
        for part in (moment, hours[row.hour]):
            part.recipients += row.recipients
            part.waiting += row.waiting
        delay = row.planned_at - time_zones.find_moment(local[row.hour], time_zones.get_zone(row.time_zone))
        if delay > 0:
            is_late = delay <= send_times.get_max_lateness_ms()
            late, next_day = late + is_late * row.recipients, next_day + (not is_late) * row.recipients
    ordered = [moments[at] for at in sorted(moments)]
    if campaign.started_at is not None:
        for hour, number in send_times.count_clicks_by_hour(campaign.id).items():
            hours[hour].clicked = number
    return SendTimes(
        campaign.local_time, campaign.best_hour_until, campaign.started_at is not None,
        ordered[0].at if ordered else None, ordered[-1].at if ordered else None, ordered,
        [row for row in hours.values() if row.recipients], sources, late, next_day,
    )  # fmt: skip


def count_zones(campaign: Campaign, is_exact: bool) -> list[ZoneCount]:
    """Return the number of a draft's recipients by time zone, source and hour; without `is_exact`, it may be cached."""
    hours = send_times.list_hours(campaign)
    if len(hours) == 1:
        return _count_zones(campaign, str(hours[0]), is_exact)
    weights = audience.weigh_hours(campaign, hours[0], hours[-1] + 1, is_exact)
    return _count_zones(campaign, weights.build_sql("c.id"), is_exact)


def _count_zones(campaign: Campaign, hour_sql: str, is_exact: bool) -> list[ZoneCount]:
    """Return the number of recipients by zone, source and the hour that `hour_sql` gives for contact `c`.

    Stored zones are not read where contact data is masked, because they are computed from the unmasked data.
    """
    account_zone = get_account_zone(campaign.account_id).zone.key
    expression, join, known_to = f"{SOURCE_AND_ZONE_SQL} || ' ' || {hour_sql}", "", 0
    if not masking.is_active():
        join, known_to = contact_zones.JOIN_STORED, contact_zones.find_known_to()
        # Integers are grouped faster than texts.
        stored = f"{contact_zones.STORED_SQL} * {_HOURS} + {hour_sql}"
        expression = f"CASE WHEN z.contact_id NOT NULL THEN {stored} ELSE {expression} END"
    counts = audience.count_by(campaign, expression, is_exact, join=join, account_zone=account_zone, known_to=known_to)
    names, totals = contact_zones.load_names(), Counter[tuple[ZoneSource, str, int]]()
    for value, number in counts.items():
        if isinstance(value, int):
            totals[*contact_zones.read_stored(value // _HOURS, names, account_zone), value % _HOURS] += number
        else:
            zone, _, hour = value.rpartition(" ")
            totals[*split_source(zone), int(hour)] += number
    return [ZoneCount(*key, number) for key, number in totals.items()]


def check_local_time(case: PreflightInput) -> Iterator[Finding]:
    """Yield a blocker if a local time has passed everywhere, or if an A/B test cannot be sent at it."""
    campaign = case.campaign
    if campaign.local_time is None:
        return
    last_at = send_times.find_last(campaign.local_time, campaign.best_hour_until)
    if campaign.started_at is None and last_at < clock.now_ms():
        yield Finding("preflight_failed", gettext("the local time has passed in every time zone"), _FIELD)
    setup = variants.find(campaign.id)
    if setup is not None and setup.experiment.uneven:
        message = gettext(
            "a test that sends better variants to more contacts cannot be sent by local time or best hour"
        )
        yield Finding("preflight_failed", message, "experiment.uneven")


def check_calendar(case: PreflightInput) -> Iterator[Finding]:
    """Warn if the account's calendar allows no marketing email at the start, in the account's time zone."""
    campaign, account = case.campaign, case.account
    if account.marketing_calendar is None:
        return
    calendar = marketing_calendar.parse(account.marketing_calendar)
    starts = send_times.list_starts(campaign, account.time_zone)
    if any(marketing_calendar.find_next_allowed(calendar, account.time_zone, start) is not None for start in starts):
        message = gettext("your account allows no marketing email at this time: contacts get it when it is allowed")
        yield Finding("calendar", message, "local_time" if campaign.local_time else "scheduled_at")


class HeldRecipients(NamedTuple):
    """Recipients whose email waits at the start for an allowed time, and when the last one gets it (Unix ms)."""

    recipients: int
    last_at: int


def count_held(campaign: Campaign, start: int) -> HeldRecipients | None:
    """Return how many of a draft's emails the account's calendar holds back if the send starts at `start` (Unix ms).

    None means none, or a campaign with a local time, which is chosen for each time zone. The counts may be a few
    seconds old.
    """
    stored = campaign.account.marketing_calendar
    if stored is None or campaign.channel != "email" or campaign.local_time or not audience.is_set(campaign):
        return None
    calendar, recipients, last_at = marketing_calendar.parse(stored), 0, 0
    for count in _count_zones(campaign, "0", is_exact=False):
        moment = marketing_calendar.find_next_allowed(calendar, count.time_zone, start)
        if moment is not None:
            recipients, last_at = recipients + count.recipients, max(last_at, moment)
    return HeldRecipients(recipients, last_at) if recipients else None


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


def find_unknown_hours(campaign: Campaign) -> Iterator[Finding]:
    """Yield a warning if no member of a draft's audience ever clicked at one of the hours to choose from."""
    if campaign.local_time is None or campaign.best_hour_until is None or campaign.phase != "draft":
        return
    hours = send_times.list_hours(campaign)
    if not audience.weigh_hours(campaign, hours[0], hours[-1] + 1, is_exact=False).people:
        time = f"{hours[0]:02}:00"
        message = gettext("nobody has clicked at these hours yet: all contacts get it at %(time)s", time=time)
        yield Finding("best_hour_unknown", message, "best_hour_until")
