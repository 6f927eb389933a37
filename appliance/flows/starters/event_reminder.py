"""Event reminder: a week before, the day before and the day after the date in a custom field."""

from typing import Any

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import Kit, StarterKind, StarterParts, script

_PATH = "data.event_date"


# A contact whose date is a week after the start of the simulation.
_SHOWN = {
    "start_at": "2031-03-05T09:00:00Z",
    "contact": {"email": "alex@example.org", "data": {"event_date": "2031-03-12"}},
}


def _wait_for(offset_days: int, yes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "wait_until", "until": "date", "path": _PATH, "offset_days": offset_days, "at": "09:00",
            "yes": yes, "no": []}  # fmt: skip


def _build(kit: Kit) -> StarterParts:
    week = kit.write_email(
        gettext("See you in a week"),
        gettext("Everything you need to know."),
        gettext("Only seven days to go! Put the date in your calendar and check how to get there."),
        gettext("See the details"),
    )
    tomorrow = kit.write_email(
        gettext("Tomorrow is the day"),
        gettext("Time, place and what to bring."),
        gettext("We look forward to seeing you tomorrow. If you cannot come, please reply so that others can."),
        gettext("See the details"),
    )
    thanks = kit.write_email(
        gettext("Thank you for being there"),
        gettext("What did you like?"),
        gettext("We hope you had a good time. Tell us what you liked and what we should change next time."),
        gettext("Give feedback"),
    )
    trigger = {"event": "date_reached", "data": {"path": _PATH, "yearly": False, "offset_days": -7, "at": "09:00"}}
    return StarterParts(
        trigger, [week, _wait_for(-1, [tomorrow, _wait_for(1, [thanks])])],
        [script(gettext("With a date in the custom field"), [],
                {1: "on", 2: "yes", 3: "on", 4: "yes", 5: "on"}, _SHOWN),
         script(gettext("Without a date, only the first email"), [], {1: "on", 2: "no", 3: "not_reached"})],
    )  # fmt: skip


STARTER = StarterKind(
    "event_reminder", gettext_noop("Event reminder"),
    gettext_noop("Emails a week before, the day before and the day after the date in a custom field."), _build,
)  # fmt: skip
