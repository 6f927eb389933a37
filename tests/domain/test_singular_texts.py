"""Sentences about one contact, part, open or click use the singular."""

import msgspec
import pytest

from appliance.campaigns import preflight
from appliance.campaigns.rehearsal import MissingValue, Rehearsal, RehearsalResult, SmsTotals
from appliance.campaigns.report import EngagementFigures, RecipientCount
from tests.domain.home import Home
from ui import view
from ui.pages.campaign_report import _describe_clicks, _describe_opens


def test_a_rehearsal_for_one_contact(home: Home) -> None:
    """The warnings about missing values name the number of contacts with its noun."""
    for done, words in ((1, "for 1 of 1 contact and"), (12, "for 1 of 12 contacts and")):
        result = RehearsalResult(done, done, lacking=[MissingValue("contact.first_name", 1)])
        [finding] = preflight._check_rehearsal(Rehearsal("key", 1, "complete", result))
        assert words in finding.message


def test_contacts_who_get_several_parts_of_an_sms(home: Home) -> None:
    """The breakdown by parts counts contacts and parts."""
    result = RehearsalResult(4, 4, sms=SmsTotals(parts=5, by_parts={"1": 3, "2": 1}))
    rehearsal = {"status": "complete", **msgspec.to_builtins(result)}
    html = (
        view.template_environment()
        .get_template("campaigns/_rehearsal.html")
        .render(rehearsal=rehearsal, render_problems=[], campaign=None)
    )
    assert "3 contacts × 1 part, 1 contact × 2 parts" in html


@pytest.mark.parametrize(
    ("people", "hits", "opens", "clicks"),
    [
        (2, 1, "", ""),
        (2, 2, "", ""),
        (0, 1, "1 total open", "1 total click"),
        (2, 5, "5 total opens", "5 total clicks"),
    ],
)
def test_the_total_of_opens_or_clicks_is_shown_if_it_exceeds_the_people(
    people: int, hits: int, opens: str, clicks: str
) -> None:
    """Who clicked counts as having opened, so the number of opens may be smaller than that of people."""
    figures = EngagementFigures(RecipientCount(people, None, ""), RecipientCount(0, None, ""), hits, hits, 0, 0)
    assert _describe_opens(figures) == opens
    assert _describe_clicks(figures) == clicks
