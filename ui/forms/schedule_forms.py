"""The fields of the composer's card "When": now, at a time, by local time, at the best hour, or repeatedly."""

from datetime import datetime, time, timedelta
from typing import Any

from appliance.campaigns import send_times
from appliance.core import clock, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.storage.models import Campaign
from ui import formats
from ui.forms import Form, repeat_forms
from ui.forms.lookups import describe_time_zone
from ui.session import Visit

FIELDS = ("when", "day", "hour", "from_hour", "until_hour", *repeat_forms.FIELDS)
DEFAULT_HOURS = ("8", "20")
HOURS = tuple(str(hour) for hour in range(25))
_LOCAL = ("local", "best")
_PASSED_EVERYWHERE = gettext_noop("This time has passed in every time zone. Select a later one.")


def build_values(campaign: Campaign, visit: Visit) -> dict[str, str]:
    """Return the values of the form fields; the fields of choices that are not stored have suggested values."""
    values = {"when": "now"}
    values |= dict(zip(("from_hour", "until_hour"), DEFAULT_HOURS, strict=True))
    if campaign.local_time is not None and campaign.best_hour_until is not None:
        hours = send_times.list_hours(campaign)
        values |= {"when": "best", "day": campaign.local_time[:10]}
        values |= {"from_hour": str(hours[0]), "until_hour": str(campaign.best_hour_until)}
    elif campaign.local_time is not None:
        day, _, hour = campaign.local_time.partition("T")
        values |= {"when": "local", "day": day, "hour": hour}
    elif campaign.scheduled_at is not None:
        local = datetime.fromtimestamp(campaign.scheduled_at / 1000, visit.zone)
        values |= {"when": "later", "day": local.strftime("%Y-%m-%d"), "hour": local.strftime("%H:%M")}
    values |= repeat_forms.build_values(campaign.repeat)
    return values | ({} if campaign.repeat is None else {"when": "repeat"})


def read_card(form: Form, campaign: Campaign, visit: Visit) -> dict[str, Any]:
    """Return the attributes of a campaign that the card sets; add errors to the form, such as for a time in the past.

    The choices with a date store tomorrow until the user enters another one: without a stored time, a review of the
    campaign would offer to send it now.
    """
    if form["when"] == "repeat":
        return {"repeat": repeat_forms.read_values(form, visit.zone)}
    if form["when"] not in ("later", *_LOCAL):
        return {"scheduled_at": None, "repeat": None}
    if not form["day"] and form["when"] != build_values(campaign, visit)["when"]:
        tomorrow = datetime.fromtimestamp(clock.now_ms() / 1000, visit.zone) + timedelta(days=1)
        form.values["day"] = tomorrow.strftime("%Y-%m-%d")
    return {"repeat": None} | read_times(form, visit, form["when"])


def read_times(form: Form, visit: Visit, kind: str) -> dict[str, Any]:
    """Return the attributes of a campaign that a form with a date and hours sets; add errors to the form.

    `kind` is `later`, `local` or `best`, as `when` of the card.
    """
    if kind == "best":
        return _read_best_hour(form, visit)
    moment = form.moment("day", "hour", visit.zone)
    if moment is None:
        return {}
    if kind != "local":
        if moment <= clock.now_ms():
            form.add_error("day", _describe_past_time(visit))
        return {"scheduled_at": clock.iso(moment)}
    local_time = f"{form['day']}T{form['hour'] or '09:00'}"[:16]
    if send_times.find_last(local_time, None) <= clock.now_ms():
        form.add_error("day", gettext(_PASSED_EVERYWHERE))
    return {"local_time": local_time, "best_hour_until": None}


def _read_best_hour(form: Form, visit: Visit) -> dict[str, Any]:
    """Return the attributes of a campaign that a date and two hours set; add errors to the form."""
    if form.moment("day", "", visit.zone) is None:
        return {}
    hours = [form[name] or default for name, default in zip(("from_hour", "until_hour"), DEFAULT_HOURS, strict=True)]
    if not all(hour in HOURS for hour in hours) or int(hours[0]) >= int(hours[1]):
        form.add_error("until_hour", gettext("Select an hour after the first one."))
        return {}
    first, until = map(int, hours)
    local_time = f"{form['day']}T{first:02}:00"
    if send_times.find_last(local_time, until) <= clock.now_ms():
        form.add_error("day", gettext(_PASSED_EVERYWHERE))
    return {"local_time": local_time, "best_hour_until": until}


def list_hours() -> list[tuple[str, str]]:
    """Return the hours of a day as (value, label), the last of which is midnight at its end."""
    return [(hour, i18n.format_clock(time(int(hour) % 24)) if hour != "24" else "24:00") for hour in HOURS]


def _describe_past_time(visit: Visit) -> str:
    current, zone = formats.clock_time(clock.now_ms()), describe_time_zone(visit.account.time_zone)
    return gettext("Select a time in the future. It is now %(time)s in %(zone)s.", time=current, zone=zone)
