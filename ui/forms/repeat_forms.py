"""The fields of a repeating campaign in the composer, and its rule in words."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from appliance.campaigns.repeat_dates import WEEKDAYS, WEEKS, RepeatRule
from appliance.campaigns.repeats import Repeat
from appliance.core import clock
from appliance.core.i18n import get_locale, gettext, gettext_noop, pgettext, pgettext_noop
from ui import formats
from ui.forms import Form

# The choices of how often, with marked labels; a month has two.
EVERY = (
    ("day", gettext_noop("Every day")),
    ("week", gettext_noop("Every week")),
    ("month_day", gettext_noop("Every month, on a date")),
    ("month_week", gettext_noop("Every month, on a weekday")),
)
_WEEK_LABELS = (
    pgettext_noop("of the month", "first"),
    pgettext_noop("of the month", "second"),
    pgettext_noop("of the month", "third"),
    pgettext_noop("of the month", "fourth"),
    pgettext_noop("of the month", "last"),
)
# The form fields of a rule, besides the hour.
FIELDS = ("every", *(f"on_{day}" for day in WEEKDAYS), "day_of_month", "week_of_month", "weekday", "until", "changed")
ERROR_FIELDS = {
    "repeat.weekdays": "every", "repeat.day_of_month": "day_of_month", "repeat.ends_at": "until", "repeat.at": "hour",
}  # fmt: skip
_DEFAULTS = {
    "every": "week",
    "day_of_month": "1",
    "week_of_month": "first",
    "weekday": "mon",
    "until": "",
    "changed": "",
}


def list_weeks() -> list[tuple[str, str]]:
    """Return the weeks of a month with their labels."""
    return [(week, pgettext("of the month", label)) for week, label in zip(WEEKS, _WEEK_LABELS, strict=True)]


def list_weekdays(width: str = "abbreviated") -> list[tuple[str, str]]:
    """Return the weekdays with their names, `abbreviated` or `wide`."""
    names = get_locale().days["stand-alone"][width]
    return [(day, str(names[index])) for index, day in enumerate(WEEKDAYS)]


def build_values(repeat: Repeat | None) -> dict[str, str]:
    """Return the values of the form fields; those of a campaign that does not repeat are a suggestion."""
    values = _DEFAULTS | {f"on_{day}": "yes" if day == "mon" else "" for day in WEEKDAYS}
    if repeat is None:
        return values
    rule = repeat.rule
    every = rule.every if rule.every != "month" else "month_day" if rule.week_of_month is None else "month_week"
    values |= {"every": every, "hour": rule.at, "changed": "yes" if repeat.only_if_changed else ""}
    if every == "week":
        values |= {f"on_{day}": "yes" if day in rule.weekdays else "" for day in WEEKDAYS}
    if every == "month_day":
        values["day_of_month"] = str(rule.day_of_month)
    if every == "month_week":
        values |= {"week_of_month": rule.week_of_month or "", "weekday": rule.weekdays[0]}
    if repeat.ends_at is not None:
        values["until"] = datetime.fromtimestamp(repeat.ends_at / 1000, repeat.zone).strftime("%Y-%m-%d")
    return values


def read_values(form: Form, zone: ZoneInfo) -> dict[str, Any]:
    """Return the repetition of a form as the API takes it; fields that it did not show get suggested values.

    The last day is included until its end. Adds an error to `until` for an invalid date.
    """
    every = form["every"] or "week"
    rule: dict[str, Any] = {"every": every.partition("_")[0], "at": form["hour"] or "09:00"}
    if every == "week":
        days = [day for day in WEEKDAYS if form[f"on_{day}"] == "yes"]
        rule["weekdays"] = days if form["shown"] == "week" else days or ["mon"]
    elif every == "month_day":
        day = form["day_of_month"] or _DEFAULTS["day_of_month"]
        rule["day_of_month"] = int(day) if day.isdecimal() and len(day) < 4 else day
    elif every == "month_week":
        rule["week_of_month"] = form["week_of_month"] or _DEFAULTS["week_of_month"]
        rule["weekdays"] = [form["weekday"] or _DEFAULTS["weekday"]]
    if form["until"]:
        end = Form({"until": form["until"], "at": "23:59"})
        rule["ends_at"] = clock.iso(end.moment("until", "at", zone))
        form.errors |= end.errors
    return rule | {"only_if_changed": form["changed"] == "yes"}


def describe(rule: RepeatRule) -> str:
    """Return a rule as a sentence without a full stop, such as `Every Monday and Thursday at 09:00`."""
    days = dict(list_weekdays("wide"))
    names = formats.join_names([days[day] for day in rule.weekdays])
    if rule.every == "day":
        return gettext("Every day at %(time)s", time=rule.at)
    if rule.every == "week":
        return gettext("Every week on %(days)s at %(time)s", days=names, time=rule.at)
    if rule.week_of_month is None:
        return gettext("Every month on day %(day)s at %(time)s", day=rule.day_of_month, time=rule.at)
    week = dict(list_weeks())[rule.week_of_month]
    return gettext("Every month on the %(week)s %(day)s at %(time)s", week=week, day=names, time=rule.at)
