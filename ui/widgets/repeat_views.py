"""A repeating campaign on its pages: its rule, its next dates, and the results of its past dates."""

from typing import Any, NamedTuple

from appliance.campaigns import repeats
from appliance.core import clock
from appliance.core.i18n import gettext
from appliance.storage.models import Campaign
from ui import labels
from ui.forms import repeat_forms

_SHOWN_OCCURRENCES = 12


class PastDate(NamedTuple):
    """A past date of a repeating campaign, in Unix milliseconds; `text` says what was sent, or why nothing was.

    `campaign` is the campaign that was sent, or None if nothing was sent or it was deleted.
    """

    due_at: int
    text: str
    campaign: Campaign | None


class SeriesView(NamedTuple):
    """The repetition of a campaign: its rule as text, "" if it no longer repeats, and its next and past dates.

    `dates` and `ends_at` are in Unix milliseconds; `ends_at` is None without an end.
    """

    rule: str
    dates: list[int]
    ends_at: int | None
    only_if_changed: bool
    past: list[PastDate]


def build(campaign: Any) -> SeriesView | None:
    """Return the repetition of a campaign with its next dates and its latest past ones, or None if there is none."""
    repeat: repeats.Repeat | None = campaign.repeat
    occurrences = list(repeats.list_occurrences(campaign.id).limit(_SHOWN_OCCURRENCES))
    if repeat is None and not occurrences:
        return None
    past = [
        PastDate(row.due_at, _describe_outcome(row, campaign.channel), _find_campaign(row.campaign_id))
        for row in occurrences
    ]
    if repeat is None:
        return SeriesView("", [], None, False, past)
    dates = repeat.list_dates(clock.now_ms(), repeats.SHOWN_DATES)
    return SeriesView(repeat_forms.describe(repeat.rule), dates, repeat.ends_at, repeat.only_if_changed, past)


def _find_campaign(campaign_id: int | None) -> Campaign | None:
    return Campaign.get_or_none(Campaign.id == campaign_id, Campaign.deleted_at.is_null()) if campaign_id else None


def _describe_outcome(row: Any, channel: str) -> str:
    if row.outcome == "sent":
        return gettext("Sent")
    if row.outcome == "unchanged":
        return gettext("Skipped: the content was not changed")
    if row.outcome == "missed":
        return gettext("Missed: the service was not running")
    return gettext("Not sent: %(reason)s", reason=labels.reason_label(row.reason, channel))


def find_series(campaign: Any) -> Campaign | None:
    """Return the repeating campaign that a campaign is a copy of, unless it was deleted; else None."""
    return _find_campaign(repeats.find_series_campaign(campaign.id))
