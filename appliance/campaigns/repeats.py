"""The repetition of a campaign (a series): its rule in requests and the database, and its next dates.

The campaign itself stays scheduled; `occurrences.py` sends a copy of it at each date.
"""

from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.accounts.accounts import TimeOfDay
from appliance.campaigns import repeat_dates
from appliance.campaigns.repeat_dates import Every, RepeatRule, Week, Weekday
from appliance.core import clock
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.core.validation import When
from appliance.storage.database import fetch_one, scalar
from appliance.storage.models import Campaign, Occurrence, Series
from appliance.storage.transactions import require_write_transaction

# How many of the next dates are shown.
SHOWN_DATES = 3


class RepeatWrite(Struct):
    """When a campaign repeats, in the time zone of the account. A change replaces all of it."""

    every: Annotated[Every, Meta(description="how often it repeats; a week needs `weekdays`")]
    at: Annotated[TimeOfDay, Meta(description="time of day, such as `09:00`")]
    weekdays: (
        Annotated[
            list[Weekday],
            Meta(max_length=7, description="days of the week, or the one day of `week_of_month`"),
        ]
        | None
        | UnsetType
    ) = UNSET
    day_of_month: (
        Annotated[int, Meta(ge=1, le=31, description="day of the month, or the last day of a shorter month")]
        | None
        | UnsetType
    ) = UNSET
    week_of_month: (
        Annotated[Week, Meta(description="which of the days in `weekdays` of a month, such as the last Friday")]
        | None
        | UnsetType
    ) = UNSET
    ends_at: Annotated[When, Meta(description="time after which it does not repeat")] | None | UnsetType = UNSET
    only_if_changed: (
        Annotated[
            bool, Meta(description="whether a date is skipped if the content was not changed since the last send")
        ]
        | UnsetType
    ) = UNSET


RepeatField = RepeatWrite | None | UnsetType


class Repeat(NamedTuple):
    """The repetition of a campaign; times are in Unix milliseconds."""

    series_id: int
    rule: RepeatRule
    ends_at: int | None
    only_if_changed: bool
    sent_hash: str | None
    zone: ZoneInfo

    def list_dates(self, after: int, count: int, until: int | None = None) -> list[int]:
        """Return up to `count` dates after a time, not after `until` and not after the end."""
        ends = [end for end in (self.ends_at, until) if end is not None]
        return repeat_dates.list_dates(self.rule, after, self.zone, count, min(ends) if ends else None)

    def find_next(self, after: int) -> int | None:
        """Return the first date after a time that is not over, or None if there is none.

        A date that was recorded is over, even if the clock was set back since.
        """
        last = scalar("SELECT max(due_at) FROM occurrence WHERE series_id = ?", (self.series_id,))
        dates = self.list_dates(max(after, last or 0), 1)
        return dates[0] if dates else None


def find(campaign_id: int) -> Repeat | None:
    """Return the repetition of a campaign, or None if it does not repeat."""
    row = fetch_one(
        "SELECT s.id, s.rule, s.ends_at, s.only_if_changed, s.sent_hash, a.time_zone FROM series s JOIN campaign c "
        "ON c.id = s.campaign_id JOIN account a ON a.id = c.account_id WHERE s.campaign_id = ? AND s.rule NOT NULL",
        (campaign_id,),
    )
    if row is None:
        return None
    rule = Series.rule.python_value(row[1])
    return Repeat(row[0], _read_rule(rule), row[2], bool(row[3]), row[4], ZoneInfo(row[5]))


def _read_rule(stored: dict[str, Any]) -> RepeatRule:
    return RepeatRule(**{**stored, "weekdays": tuple(stored["weekdays"])})


def find_series_campaign(campaign_id: int) -> int | None:
    """Return the id of the campaign that this one is a copy of, sent at one of its dates, or None."""
    series_campaign_id = scalar(
        "SELECT s.campaign_id FROM occurrence o JOIN series s ON s.id = o.series_id WHERE o.campaign_id = ?",
        (campaign_id,),
    )
    return None if series_campaign_id is None else int(series_campaign_id)


def _build_rule(request: RepeatWrite) -> RepeatRule:
    weekdays = request.weekdays or []
    ordered = tuple(day for day in repeat_dates.WEEKDAYS if day in weekdays)
    day, week = request.day_of_month or None, request.week_of_month or None
    return RepeatRule(request.every, request.at, ordered, day, week)


def _read_zone(account_id: int) -> ZoneInfo:
    return ZoneInfo(str(scalar("SELECT time_zone FROM account WHERE id = ?", (account_id,))))


def find_first(account_id: int, request: RepeatWrite) -> int | None:
    """Return the next date of a valid repetition that an account has not stored, or None if there is none."""
    dates = repeat_dates.list_dates(
        _build_rule(request), clock.now_ms(), _read_zone(account_id), 1, request.ends_at or None
    )
    return dates[0] if dates else None


def validate(account_id: int, request: RepeatField, faults: Faults, prefix: str = "repeat.") -> None:
    """Add the errors of a repetition to `faults` that its types do not catch."""
    if not isinstance(request, RepeatWrite) or not isinstance(request.every, str) or not isinstance(request.at, str):
        return
    rule = _build_rule(request)
    is_month = rule.every == "month"
    if rule.every == "week" and not rule.weekdays:
        faults.add(f"{prefix}weekdays", gettext("select at least one day"))
    if not is_month:
        for name in ("day_of_month", "week_of_month"):
            if getattr(rule, name) is not None:
                faults.add(prefix + name, gettext("is only for a month"))
    elif (rule.day_of_month is None) == (rule.week_of_month is None):
        faults.add(f"{prefix}day_of_month", gettext("give either `day_of_month` or `week_of_month`"))
    elif rule.week_of_month is not None and len(rule.weekdays) != 1:
        faults.add(f"{prefix}weekdays", gettext("select one day"))
    elif rule.day_of_month is not None and rule.weekdays:
        faults.add(f"{prefix}weekdays", gettext("is not for a day of the month"))
    if rule.every == "day" and rule.weekdays:
        faults.add(f"{prefix}weekdays", gettext("is only for a week or a month"))
    has_errors = any(path.startswith(prefix) for path in faults.fields)
    if isinstance(request.ends_at, int) and not has_errors and find_first(account_id, request) is None:
        faults.add(f"{prefix}ends_at", gettext("must be after the next date"))


def would_change(campaign_id: int, request: RepeatField) -> bool:
    """Return whether a valid request changes the repetition of a campaign."""
    if request is UNSET:
        return False
    present = find(campaign_id)
    if not isinstance(request, RepeatWrite) or present is None:
        return isinstance(request, RepeatWrite) or present is not None
    new = (_build_rule(request), request.ends_at or None, request.only_if_changed is True)
    return new != (present.rule, present.ends_at, present.only_if_changed)


def apply(campaign: Campaign, request: RepeatField) -> None:
    """Store a validated repetition of a campaign, and set its scheduled time to the next date; None ends it.

    The caller saves the campaign.
    """
    require_write_transaction()
    if not would_change(campaign.id, request):
        return
    now = clock.now_ms()
    if request is None:
        Series.update(rule=None, updated_at=now).where(Series.campaign == campaign.id).execute()
        return
    assert isinstance(request, RepeatWrite)
    series = Series.get_or_none(Series.campaign == campaign.id) or Series(campaign=campaign.id, created_at=now)
    series.rule, series.ends_at = to_builtins(_build_rule(request)._asdict()), request.ends_at or None
    series.only_if_changed, series.updated_at = request.only_if_changed is True, now
    series.save()
    set_next_date(campaign)


def set_next_date(campaign: Campaign) -> None:
    """Set the scheduled time of a campaign that repeats to its next date; the caller saves the campaign.

    Raises Invalid if no date is left.
    """
    repeat = find(campaign.id)
    if repeat is None:
        return
    next_at = repeat.find_next(clock.now_ms())
    if next_at is None:
        raise Invalid({"repeat.ends_at": [gettext("must be after the next date")]})
    campaign.scheduled_at = next_at


def list_occurrences(campaign_id: int) -> Any:
    """Return a query of the dates of a campaign's series that are over, the latest first."""
    return (
        Occurrence.select(Occurrence)
        .join(Series)
        .where(Series.campaign == campaign_id)
        .order_by(Occurrence.due_at.desc())
    )
