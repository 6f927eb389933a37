"""The test of a random split in words, as the report of a campaign has them for an A/B test."""

from typing import Any, NamedTuple

from appliance.core import i18n
from appliance.core.i18n import gettext, ngettext, pgettext
from appliance.flows import split_sample, split_tests
from appliance.flows.split_results import CONVERSION_DAYS, SplitTestResult, SplitVariant
from appliance.flows.split_sample import SplitSample
from ui import formats
from ui.forms import Form, flow_forms
from ui.widgets import experiment_views, experiment_words

_MAX_DAYS = 365  # a longer test is not worth waiting for


class BranchWords(NamedTuple):
    """The figures of a branch, with its chance to be the best as text and in words."""

    figures: SplitVariant
    name: str
    is_winner: bool
    chance: str
    chance_label: str


class SplitTestWords(NamedTuple):
    """The result of a test (`title` and `detail`, with `tone` as the class of the banner), who chose, and the branches.

    `shares` says which shares the branches have now, if they are those of a later batch.
    """

    title: str
    tone: str
    detail: str
    choice: str
    label: str
    by_amount: bool
    is_decided: bool
    rows: list[BranchWords]
    shares: str
    window: str


def describe(result: SplitTestResult) -> SplitTestWords:
    """Return the words about the figures of a test."""
    title, tone = experiment_words.describe_decision(result)
    if result.decision is None:
        title = gettext("The test starts with the first contact.")
    label = flow_forms.describe_event(result.event or "") if result.metric == "event" else pgettext("test", "Clicks")
    return SplitTestWords(
        title, tone, experiment_words.describe_difference(result), _describe_choice(result), label, result.by_amount,
        result.winner is not None,
        [
            BranchWords(row, row.name, row.key == result.winner, *experiment_words.describe_chance(result, row))
            for row in result.variants
        ],
        _describe_shares(result), describe_window(result.metric),
    )  # fmt: skip


def describe_window(metric: str) -> str:
    """Return how long a click or an event counts, as a sentence."""
    if metric == "event":
        return ngettext(
            "An event counts within %(num)s day after the contact came to this step.",
            "An event counts within %(num)s days after the contact came to this step.",
            CONVERSION_DAYS,
        )
    return ngettext(
        "A click counts within %(num)s day after the contact came to this step.",
        "A click counts within %(num)s days after the contact came to this step.",
        CONVERSION_DAYS,
    )


def _describe_shares(result: SplitTestResult) -> str:
    if not result.uneven or result.winner is not None:
        return ""
    shares = formats.join_names(
        [
            gettext("%(name)s %(share)s", name=row.name, share=i18n.format_percent(row.share, 0))
            for row in result.variants
        ]
    )
    return gettext("New contacts are divided now: %(shares)s.", shares=shares)


def describe_needed(account_id: int, flow_id: int, step: dict[str, Any], form: Form | None) -> str:
    """Return what the test of a step needs by its form or, without one, as it is stored; empty without a test."""
    props = step
    if form is not None and step["type"] == split_tests.KIND:
        names = ("metric", "event_name")
        props = step | {name: form[name] for name in names} | {"by_amount": form["by_amount"] == "yes"}
        if props["metric"] == split_tests.EVENT and props["event_name"] in ("", flow_forms.OTHER):
            return ""
    sample = split_sample.estimate(account_id, flow_id, props)
    return "" if sample is None else describe_sample(sample, props["metric"])


def describe_sample(sample: SplitSample, metric: str) -> str:
    """Return how many contacts a test needs, how long they take to come, and by which rate, as sentences."""
    if sample.needed is None:
        return gettext("A test needs too many contacts at this rate to show a difference.")
    sentences = [
        ngettext(
            "To show a difference of %(lift)s, each branch needs about %(num)s contact.",
            "To show a difference of %(lift)s, each branch needs about %(num)s contacts.",
            experiment_views.round_size(sample.needed), lift=formats.share(0.2),
        )
    ]  # fmt: skip
    sentences.append(_describe_days(sample.days))
    sentences.append(experiment_views.describe_basis(sample, metric))
    return " ".join(sentences)


def _describe_days(days: int | None) -> str:
    """Return how long the contacts of a test take to come, as sentences."""
    if days is None:
        return gettext("No contact entered this flow in the last 30 days, so it is unknown how long that takes.")
    if days > _MAX_DAYS:
        return gettext(
            "At the pace of the last 30 days, that takes more than a year. "
            "Make the branches differ more, or test at a step that more contacts reach."
        )
    return ngettext(
        "At the pace of the last 30 days, that takes about %(num)s day.",
        "At the pace of the last 30 days, that takes about %(num)s days.",
        experiment_views.round_size(days),
    )


def _describe_choice(result: SplitTestResult) -> str:
    """Return who chose the winner and what follows, or who is to choose it."""
    if result.winner is None:
        return (
            gettext("As soon as the winner is clear, all new contacts take it.")
            if result.decided_by == "service" else gettext("Choose the winner when it is clear.")
        )  # fmt: skip
    name = next((row.name for row in result.variants if row.key == result.winner), "")
    when = formats.when(formats.parse_time(str(result.chosen_at)))
    by = experiment_words.describe_chooser(result.chosen_by)
    chosen = (
        gettext("%(name)s was chosen by %(person)s, %(time)s.", name=name, person=by, time=when)
        if by else gettext("%(name)s was chosen automatically, %(time)s.", name=name, time=when)
    )  # fmt: skip
    follows = gettext("All new contacts take it. Contacts in the flow keep their branch.")
    return f"{chosen} {follows}"
