"""What pages say about the figures of holdout groups, tests of flows and replays."""

from typing import Any

import pytest

from appliance.campaigns.experiment_results import HoldoutFigures
from appliance.experiments.decision import ConfidenceInterval, ExperimentDecision
from appliance.flows import triggers
from appliance.flows.holdouts import FlowHoldout
from appliance.flows.replay_result import ReplayResult, ReplayStep, ReplayStepCounts, ReplayTotals
from appliance.flows.split_results import SplitTestResult, SplitVariant
from ui.widgets import experiment_words, replay_words


@pytest.mark.parametrize(
    ("low", "high", "sentence"),
    [
        (-103, 17, "Anything from 103 fewer to 17 more conversions is plausible."),
        (-103, -17, "Anything from 17 to 103 fewer conversions is plausible."),
        (17, 103, "Anything from 17 to 103 more conversions is plausible."),
    ],
)
def test_plausible_differences_are_fewer_or_more(low: float, high: float, sentence: str) -> None:
    """No sentence says that a negative number of conversions is more."""
    interval = ConfidenceInterval((low + high) / 2, low, high)
    figures = FlowHoldout(0.1, None, "order_paid", 111, 17, 7, 0, 0.15, 0.0, interval, interval, interval)
    assert sentence in experiment_words.describe_flow_holdout(figures).detail


NOW, EARLIER = "2999-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
UNKNOWN = (None, None, None)


@pytest.mark.parametrize(
    ("counts", "people", "ends_at", "title", "detail"),
    [
        ((90, 0, 10, 0), UNKNOWN, NOW, "No conversions so far.", "“Orders” was recorded for no contact"),
        ((90, 0, 10, 0), UNKNOWN, EARLIER, "No conversions.", "connect your shop"),
        ((6, 2, 0, 0), UNKNOWN, NOW, "No contact was left out, so there is nothing to compare.", "too few recipients"),
        ((90, 1, 10, 0), UNKNOWN, NOW, "Too early to tell.", ""),
        ((0, 0, 6, 2), UNKNOWN, NOW, "No contact got the campaign, so there is nothing to compare.", ""),
        ((90, 5, 10, 1), (1, -4, 6), NOW, "No clear effect so far.", "Anything from 4 fewer to 6 more"),
        ((90, 5, 10, 1), (1, -4, 6), EARLIER, "No clear effect.", "Anything from 4 fewer to 6 more"),
        ((90, 5, 90, 30), (-25, -40, -9), NOW, "about 25 fewer conversions", "Anything from 9 to 40 fewer"),
    ],
)
def test_what_a_holdout_group_shows(
    counts: tuple[int, int, int, int], people: tuple[Any, Any, Any], ends_at: str, title: str, detail: str
) -> None:
    """Nothing is said about an effect without conversions or without one of the groups; "so far" ends with the time."""
    interval = ConfidenceInterval(*people)
    figures = HoldoutFigures(*counts, 0.1, 0.1, interval, interval, interval, ends_at)
    words = experiment_words.describe_holdout(figures, "Orders")
    assert title in words.title and detail in words.detail and bool(words.detail) is bool(detail)


def test_a_test_of_a_flow_is_about_contacts() -> None:
    """Contacts take a branch whether or not it sends them a message, so no sentence calls them recipients."""
    interval = ConfidenceInterval(0.04, -0.1, 0.2)
    branches = [SplitVariant(number, f"b{number}", name, 0.5, 500, converted, 0, 0, 0.6, 0)
                for number, name, converted in ((1, "Short", 52), (2, "Long", 50))]  # fmt: skip
    figures = SplitTestResult(
        "testing", "clicks", None, False, False, "person", None, None, None, None,
        ExperimentDecision("too_close", 1, 2, interval, interval), branches,
    )  # fmt: skip
    title, _ = experiment_words.describe_decision(figures)
    assert title == "Too close to call after 1,000 contacts."
    sentence = experiment_words.describe_difference(figures)
    assert sentence.startswith("Short has 4% more clicks per contact than Long.")


def test_a_replay_counts_the_held_out() -> None:
    """The table has a row for them after the entries, and none for a flow without a holdout group."""
    with_group = ReplayTotals(entered=66, refused={triggers.HELD_OUT: 8})
    labels = {}
    for name, totals in (("with", with_group), ("without", ReplayTotals(entered=74))):
        result = ReplayResult("2031-03-01T09:00:00Z", "2031-03-08T09:00:00Z", 74, 74, False, totals, None)
        labels[name] = [(row.label, row.draft) for row in replay_words.list_rows(result)]
    assert labels["with"][:2] == [("Entered the flow", "66"), ("Held out (holdout group)", "8")]
    assert "Held out (holdout group)" not in dict(labels["without"])


def test_a_replay_counts_the_branches_of_a_step() -> None:
    """Each branch of the draft has a line, also one without contacts, or without a live version."""
    branches = [{"key": "b2", "name": "Short", "share": 50}, {"key": "b3", "name": "", "share": 50}]
    draft, live = (ReplayStepCounts(entered=number, outcomes={"b2": number}) for number in (4, 3))
    step = ReplayStep(1, "steps[0]", "random_split", {"branches": branches}, draft, live)
    assert [tuple(row) for row in replay_words.list_branches(step)] == [("Short (50%)", 4, 3), ("B (50%)", 0, 0)]
    step.live = None
    assert [row.live for row in replay_words.list_branches(step)] == [None, None]
