"""The test of a random split in words, as the report of a campaign has them for an A/B test."""

from typing import NamedTuple

from appliance.core.i18n import gettext, pgettext
from appliance.flows.split_results import SplitTestResult, SplitVariant
from ui import formats
from ui.forms import flow_forms
from ui.widgets import experiment_words


class BranchWords(NamedTuple):
    """The figures of a branch, with its chance to be the best as text and in words."""

    figures: SplitVariant
    name: str
    is_winner: bool
    chance: str
    chance_label: str


class SplitTestWords(NamedTuple):
    """What the counts say (`title` and `detail`, with the class of the banner), who chose what, and the branches."""

    title: str
    tone: str
    detail: str
    choice: str
    label: str
    by_amount: bool
    is_decided: bool
    rows: list[BranchWords]


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
    )  # fmt: skip


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
