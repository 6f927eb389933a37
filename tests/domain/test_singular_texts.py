"""Sentences about one person, part, open or click use the singular."""

import msgspec
import pytest

from appliance.campaigns import preflight
from appliance.campaigns.rehearsal import MissingValue, Rehearsal, RehearsalResult, SmsTotals
from appliance.campaigns.report import Count, EngagementFigures
from tests.domain.home import Home
from ui import view
from ui.pages.campaign_report import _describe_total


def test_a_rehearsal_for_one_person(home: Home) -> None:
    """The warnings about missing values name the number of people with its noun."""
    for done, words in ((1, "for 1 of 1 person,"), (12, "for 1 of 12 people,")):
        result = RehearsalResult(done, done, lacking=[MissingValue("contact.first_name", 1)])
        [finding] = preflight._check_rehearsal(Rehearsal("key", "complete", result))
        assert words in finding.message


def test_people_who_get_several_parts_of_an_sms(home: Home) -> None:
    """One person gets, and several get."""
    result = RehearsalResult(4, 4, sms=SmsTotals(parts=5, by_parts={"1": 3, "2": 1}))
    rehearsal = {"status": "complete", **msgspec.to_builtins(result)}
    html = (
        view.template_environment()
        .get_template("campaigns/_rehearsal.html")
        .render(rehearsal=rehearsal, render_problems=[], campaign=None)
    )
    assert "3 people get 1, 1 person gets 2." in html


@pytest.mark.parametrize(
    ("people", "hits", "words"), [(2, 1, ""), (2, 2, ""), (0, 1, "1 open in total"), (2, 5, "5 opens in total")]
)
def test_the_total_of_opens_is_shown_if_it_exceeds_the_people(people: int, hits: int, words: str) -> None:
    """Who clicked counts as having opened, so the number of opens may be smaller than that of people."""
    figures = EngagementFigures(Count(people, None, ""), Count(0, None, ""), hits, hits, 0, 0)
    assert _describe_total(figures, "open", "opens") == words
