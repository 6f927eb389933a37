"""When a campaign with a local time is sent, as texts of the composer, its review and its report."""

from datetime import time
from typing import NamedTuple

from appliance.campaigns import local_preflight
from appliance.campaigns.local_preflight import SendMoment
from appliance.core import clock, i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.flows.steps.wait_until import name_weekday
from appliance.sending.messages import marketing_calendar
from appliance.sending.messages.marketing_calendar import WEEKDAYS
from appliance.storage.models import Account, Campaign
from ui import formats
from ui.forms.lookups import name_city

_MAX_NAMED_CITIES = 3
DAY_HOURS = 24
_SOURCES = {
    "data": gettext_noop("custom field “time_zone”"), "phone": gettext_noop("phone number"),
    "country": gettext_noop("country"), "account": gettext_noop("unknown, so your account’s time zone"),
}  # fmt: skip


class LocalMoment(NamedTuple):
    """A moment at which a campaign is sent: the time, the cities of its time zones, and its contacts."""

    at: int
    places: str
    recipients: int
    waiting: int


class LocalHour(NamedTuple):
    """An hour of the day at which contacts get a campaign: its label, the contacts, and what they did."""

    label: str
    recipients: int
    waiting: int
    clicked: int


class LocalTimes(NamedTuple):
    """When a campaign with a local time is sent.

    `text` is its time. `hours` has the hours of a campaign that is sent at the best hour of each contact. `first_at`
    and `last_at` are in Unix milliseconds, None without recipients. `sources` are (where a time zone comes from, number
    of contacts), empty once the campaign was sent.
    """

    text: str
    first_at: int | None
    last_at: int | None
    moments: list[LocalMoment]
    sources: list[tuple[str, int]]
    passed: list[str]
    is_best_hour: bool
    hours: list[LocalHour]


def build_local_times(campaign: Campaign) -> LocalTimes | None:
    """Return when a campaign with a local time is sent, or None for any other campaign."""
    if campaign.local_time is None:
        return None
    times = local_preflight.get_send_times(campaign.account_id, campaign.id, is_exact=False)
    moments = [_describe_moment(moment) for moment in times.times]
    sources = [
        (describe_source(source), getattr(times.sources, source))
        for source in _SOURCES
        if times.sources is not None and getattr(times.sources, source)
    ]
    passed = []
    if times.late_recipients:
        passed.append(
            ngettext(
                "The time has passed for %(num)s contact, who gets it at once.",
                "The time has passed for %(num)s contacts, who get it at once.",
                times.late_recipients,
            )
        )
    if times.next_day_recipients:
        passed.append(
            ngettext(
                "It passed long ago for %(num)s contact, who gets it a day later.",
                "It passed long ago for %(num)s contacts, who get it a day later.",
                times.next_day_recipients,
            )
        )
    first_at, last_at = (moments[0].at, moments[-1].at) if moments else (None, None)
    is_best_hour = campaign.best_hour_until is not None
    hours = [
        LocalHour(_format_hour(row.hour), row.recipients, row.waiting, row.clicked)
        for row in times.hours
        if is_best_hour
    ]
    return LocalTimes(describe_time(campaign), first_at, last_at, moments, sources, passed, is_best_hour, hours)


def _describe_moment(moment: SendMoment) -> LocalMoment:
    cities = [name_city(zone) for zone in moment.time_zones]
    places = i18n.format_list(cities)
    if len(cities) > _MAX_NAMED_CITIES:
        places = ngettext(
            "%(cities)s and %(num)s more time zone",
            "%(cities)s and %(num)s more time zones",
            len(cities) - _MAX_NAMED_CITIES,
            cities=", ".join(cities[:_MAX_NAMED_CITIES]),
        )
    return LocalMoment(clock.parse(moment.at), places, moment.recipients, moment.waiting)


def describe_calendar(account: Account, channel: str) -> str:
    """Return a sentence about the account's calendar for marketing email; empty without one, and for SMS."""
    if account.marketing_calendar is None or channel != "email":
        return ""
    calendar = marketing_calendar.parse(account.marketing_calendar)
    if {*calendar.days} >= {*WEEKDAYS}:
        return gettext(
            "Your account sends marketing email every day, from %(start)s to %(end)s in each recipient’s time zone. "
            "Emails at other times wait.",
            start=calendar.from_, end=calendar.to,
        )  # fmt: skip
    return gettext(
        "Your account sends marketing email %(days)s, from %(start)s to %(end)s in each recipient’s time zone. Emails "
        "at other times wait.",
        days=i18n.format_list([name_weekday(day) for day in WEEKDAYS if day in calendar.days]),
        start=calendar.from_, end=calendar.to,
    )  # fmt: skip


def describe_source(source: str) -> str:
    """Return the text that says where a time zone comes from, by its code."""
    return gettext(_SOURCES[source])


def describe_time(campaign: Campaign) -> str:
    """Return the local time of a campaign as text, or the range of hours in which each contact's best one is used."""
    text = formats.format_local_time(str(campaign.local_time))
    if campaign.best_hour_until is None:
        return text
    end = _format_hour(campaign.best_hour_until)
    return gettext("%(time)s–%(end)s at the best hour", time=text, end=end)


def _format_hour(hour: int) -> str:
    return "24:00" if hour == DAY_HOURS else i18n.format_clock(time(hour))
