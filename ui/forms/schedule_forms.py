"""The fields of the composer's card "When": now, at a date and hour, by local time, or repeatedly."""

from datetime import datetime, timedelta
from typing import Any

from appliance.core import clock, time_zones
from appliance.core.i18n import gettext
from appliance.storage.models import Campaign
from ui import formats
from ui.forms import Form, repeat_forms
from ui.forms.lookups import describe_time_zone
from ui.session import Visit

FIELDS = ("when", "day", "hour", *repeat_forms.FIELDS)


def build_values(campaign: Campaign, visit: Visit) -> dict[str, str]:
    """Return the values of the form fields; the fields of a choice that is not stored have its suggestion."""
    values = {"when": "now"}
    if campaign.local_time is not None:
        day, _, hour = campaign.local_time.partition("T")
        values = {"when": "local", "day": day, "hour": hour}
    elif campaign.scheduled_at is not None:
        local = datetime.fromtimestamp(campaign.scheduled_at / 1000, visit.zone)
        values = {"when": "later", "day": local.strftime("%Y-%m-%d"), "hour": local.strftime("%H:%M")}
    values |= repeat_forms.build_values(campaign.repeat)
    return values | ({} if campaign.repeat is None else {"when": "repeat"})


def read_card(form: Form, campaign: Campaign, visit: Visit) -> dict[str, Any]:
    """Return the attributes of a campaign that the card sets; add errors to the form, as for a time in the past.

    The choices "Later" and "Local time" store tomorrow as the time until the user enters another date: without a stored
    time, a review of the campaign would offer to send it now.
    """
    if form["when"] == "repeat":
        return {"repeat": repeat_forms.read_values(form, visit.zone)}
    if form["when"] not in ("later", "local"):
        return {"scheduled_at": None, "repeat": None}
    if not form["day"] and form["when"] != build_values(campaign, visit)["when"]:
        tomorrow = datetime.fromtimestamp(clock.now_ms() / 1000, visit.zone) + timedelta(days=1)
        form.values["day"] = tomorrow.strftime("%Y-%m-%d")
    return {"repeat": None} | read_times(form, visit, is_local=form["when"] == "local")


def read_times(form: Form, visit: Visit, is_local: bool) -> dict[str, Any]:
    """Return the attributes of a campaign that a form with a date and an hour sets; add errors to the form."""
    moment = form.moment("day", "hour", visit.zone)
    if moment is None:
        return {}
    if not is_local:
        if moment <= clock.now_ms():
            form.add_error("day", _describe_past_time(visit))
        return {"scheduled_at": clock.iso(moment)}
    local_time = f"{form['day']}T{form['hour'] or '09:00'}"[:16]
    if time_zones.find_first_and_last(local_time)[1] <= clock.now_ms():
        form.add_error("day", gettext("This time has passed in every time zone. Select a later one."))
    return {"local_time": local_time}


def _describe_past_time(visit: Visit) -> str:
    current, zone = formats.clock_time(clock.now_ms()), describe_time_zone(visit.account.time_zone)
    return gettext("Select a time in the future. It is now %(time)s in %(zone)s.", time=current, zone=zone)
