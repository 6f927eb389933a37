"""The results of a test and of a holdout group in words, for the reports of campaigns and flows."""

from typing import NamedTuple

from appliance.campaigns.control_group import ControlFigures
from appliance.campaigns.experiment_results import ExperimentResult, HoldoutFigures, VariantResult
from appliance.campaigns.variants import Setup
from appliance.core import clock, i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.experiments.decision import ConfidenceInterval
from appliance.flows.holdouts import CONVERSION_DAYS, FlowHoldout
from appliance.flows.split_results import SplitTestResult, SplitVariant
from appliance.storage.models import Campaign, User
from ui import formats
from ui.forms import experiment_forms, flow_forms
from ui.widgets.experiment_views import get_letter

# Figures of a test of a campaign or a flow.
TestFigures = ExperimentResult | SplitTestResult
# From this chance on, the chance is called almost certain instead of a number that is rounded to 100 %.
_ALMOST_CERTAIN = 0.995
# An upper limit of a difference above this says nothing, so only the lower one is shown.
_MAX_SHOWN_RATIO = 5.0
# Words for the chance of a variant to be the best, by the lowest chance.
_CHANCE_WORDS = (
    (0.95, gettext_noop("Very likely the best")), (0.75, gettext_noop("Probably the best")),
    (0.35, gettext_noop("Could be the best")), (0.05, gettext_noop("Probably not the best")),
    (0.0, gettext_noop("Very unlikely the best")),
)  # fmt: skip


class VariantWords(NamedTuple):
    """A row of the report.

    `reached` is the number of its messages that were sent and not returned, the basis of rates; `rest` is the number of
    contacts who got it as the winner.
    """

    result: VariantResult
    letter: str
    differs: str
    is_winner: bool
    chance: str
    chance_label: str
    rest: int
    reached: int


class ExperimentWords(NamedTuple):
    """The words about a test: its `tone` (a class of the banner), the decision, what supports it, and what is next.

    `can_choose` says that a person may choose the winner now. `progress` is how much of the time of a running test has
    passed, in percent. `event` is the label of the event.
    """

    title: str
    tone: str
    detail: str
    next_step: str
    rows: list[VariantWords]
    converted_label: str
    can_choose: bool
    is_test: bool
    holdout: "HoldoutWords | None"
    event: str
    progress: int | None


class HoldoutWords(NamedTuple):
    """The effect of sending to the recipients and not to a holdout or control group, as texts.

    `tone` is the class of the banner, `ends` the time at which the counting of conversions ends, or "", and `event` the
    label of the event that is counted.
    """

    figures: HoldoutFigures | ControlFigures
    title: str
    tone: str
    detail: str
    ends: str
    event: str


def describe(result: ExperimentResult, campaign: Campaign) -> ExperimentWords:
    """Return the words about the figures of a campaign's test."""
    is_test = len(result.variants) > 1
    event = flow_forms.describe_event(result.event) if result.event else ""
    title, tone = describe_decision(result) if is_test else ("", "")
    is_running = result.state == "testing"
    return ExperimentWords(
        title, tone, describe_difference(result) if is_test else "", _describe_next(result) if is_test else "",
        [_describe_variant(result, row) for row in result.variants] if is_test else [],
        _label_converted(result, event), is_test and is_running and result.waiting > 0, is_test,
        describe_holdout(result.holdout, event) if result.holdout is not None else None, event,
        _measure_progress(result, campaign.setup),
    )  # fmt: skip


def _label_converted(result: ExperimentResult, event: str) -> str:
    """Return the label of the column with the compared conversions, or "" if other columns have the same numbers.

    The other columns also count the recipients who got the winner after the test.
    """
    if result.metric == "event":
        return event
    if all(row.recipients == row.test_recipients for row in result.variants):
        return ""
    return gettext("Clicks in the test") if result.metric == "clicks" else gettext("Opens in the test")


def _measure_progress(result: ExperimentResult, setup: Setup) -> int | None:
    batches = setup.experiment.batches
    if result.state != "testing" or result.is_waiting_for_person or not batches:
        return None
    start, end = batches[0]["at"], setup.experiment.decide_at
    return int(max(0, min(100, (clock.now_ms() - start) * 100 // max(end - start, 1))))


def _name(result: TestFigures, number: int) -> str:
    return result.variants[number - 1].name


def format_chance(chance: float) -> str:
    """Return a probability as a percentage that is never 0 or 100 %."""
    if chance >= _ALMOST_CERTAIN:
        return gettext("over %(percentage)s", percentage=i18n.format_percent(0.99, 0))
    if chance < 1 - _ALMOST_CERTAIN:
        return gettext("under %(percentage)s", percentage=i18n.format_percent(0.01, 0))
    return i18n.format_percent(chance, 0)


def describe_decision(result: TestFigures) -> tuple[str, str]:
    """Return the result of a test as a sentence, and the class of its banner."""
    decision = result.decision
    if decision is None:
        return gettext("The test starts with the first message."), "info"
    leader, chance = _name(result, decision.leader), result.variants[decision.leader - 1].chance or 0.0
    if decision.code == "winner":
        text = (
            gettext("%(name)s is the best, with %(chance)s probability.", name=leader, chance=format_chance(chance))
            if len(result.variants) > 2
            else gettext("%(name)s is better, with %(chance)s probability.", name=leader, chance=format_chance(chance))
        )
        return text, "good"
    if decision.code == "too_close" and result.winner is not None and result.chosen_by not in (None, "service"):
        return gettext("The winner was chosen before the result was clear."), ""
    if decision.code == "too_close":
        return _describe_too_close(result), ""
    if decision.code == "too_early":
        converted = sum(row.converted for row in result.variants)
        return _describe_early(result, converted), "info"
    text = gettext(
        "%(name)s leads, with %(chance)s probability. That is not clear enough yet.",
        name=leader, chance=format_chance(chance),
    )  # fmt: skip
    return text, "info"


def _describe_too_close(result: TestFigures) -> str:
    # Contacts who take a branch of a flow need not be recipients of a message.
    number = sum(row.test_recipients for row in result.variants)
    if isinstance(result, SplitTestResult):
        return ngettext("Too close to call after %(num)s contact.", "Too close to call after %(num)s contacts.", number)
    return ngettext("Too close to call after %(num)s recipient.", "Too close to call after %(num)s recipients.", number)


def _describe_early(result: TestFigures, converted: int) -> str:
    if result.metric == "clicks":
        return ngettext(
            "Too early to tell: %(num)s click so far.", "Too early to tell: %(num)s clicks so far.", converted
        )
    if result.metric == "opens":
        return ngettext(
            "Too early to tell: %(num)s open so far.", "Too early to tell: %(num)s opens so far.", converted
        )
    return ngettext(
        "Too early to tell: %(num)s conversion so far.", "Too early to tell: %(num)s conversions so far.", converted
    )


def describe_difference(result: TestFigures) -> str:
    """Return how much better the leader is than the runner-up, with the interval; empty while it is not known."""
    decision = result.decision
    if decision is None or decision.code == "too_early" or decision.ratio.estimate is None:
        return ""
    names = {"leader": _name(result, decision.leader), "other": _name(result, decision.runner_up)}
    text = (
        gettext_noop("%(leader)s has %(difference)s more %(label)s per contact than %(other)s.")
        if isinstance(result, SplitTestResult)
        else gettext_noop("%(leader)s has %(difference)s more %(label)s per recipient than %(other)s.")
    )
    difference = formats.share(max(decision.ratio.estimate, 0))
    sentence = gettext(text, difference=difference, label=_metric_label(result), **names)
    return f"{sentence} {_describe_range(decision.ratio)}".strip()


def _describe_range(interval: ConfidenceInterval) -> str:
    if interval.low is None or interval.high is None:
        return ""
    low, high = (i18n.format_percent(value, 0) for value in (interval.low, interval.high))
    if interval.low > 0 and interval.high > _MAX_SHOWN_RATIO:
        return gettext("The true difference is at least %(low)s.", low=low)
    return gettext("The true difference is between %(low)s and %(high)s.", low=low, high=high)


def _metric_label(result: TestFigures) -> str:
    if result.by_amount:
        return pgettext("more", "revenue")
    if result.metric == "event":
        return pgettext("more", "conversions")
    return pgettext("more", "clicks") if result.metric == "clicks" else pgettext("more", "opens (estimated)")


def _describe_next(result: ExperimentResult) -> str:
    """Return a sentence about what happens next, or about the decision and who made it; "" for a draft."""
    ends = formats.when(formats.parse_time(result.ends_at)) if result.ends_at else ""
    if result.state == "draft":
        return ""
    if result.state in ("decided", "releasing"):
        return _describe_choice(result)
    if result.is_waiting_for_person:
        return ngettext(
            "The test is over. Choose which variant the other %(num)s contact gets.",
            "The test is over. Choose which variant the other %(num)s contacts get.",
            result.waiting,
        )
    if not result.waiting:
        return gettext("The test ends %(time)s.", time=ends)
    return ngettext(
        "The test ends %(time)s. Until then, %(num)s contact waits for the winner.",
        "The test ends %(time)s. Until then, %(num)s contacts wait for the winner.",
        result.waiting, time=ends,
    )  # fmt: skip


def _describe_choice(result: ExperimentResult) -> str:
    if result.winner is None:
        return gettext("The test is over.")
    name, when = _name(result, result.winner), formats.when(formats.parse_time(str(result.chosen_at)))
    by = describe_chooser(result.chosen_by)
    chosen = (
        gettext("%(name)s was chosen by %(person)s, %(time)s.", name=name, person=by, time=when)
        if by
        else gettext("%(name)s was chosen automatically, %(time)s.", name=name, time=when)
    )
    if result.state == "releasing":
        sent = gettext("It is being sent to the contacts who were waiting.")
    else:
        row = result.variants[result.winner - 1]
        rest = row.recipients - row.test_recipients
        sent = ngettext(
            "%(num)s more contact got it as the winner.", "%(num)s more contacts got it as the winner.", rest
        ) if rest else ""  # fmt: skip
    return f"{chosen} {sent}".strip()


def describe_chooser(actor: str | None) -> str:
    """Return the name of the user who chose the winner, or a word for an API key; empty for the service."""
    kind, _, id_ = (actor or "").partition(":")
    if kind == "user":
        user = User.get_or_none(User.id == int(id_))
        return (user.name or user.email) if user is not None else gettext("a deleted user")
    return gettext("an API key") if kind == "key" else ""


def describe_chance(result: TestFigures, row: VariantResult | SplitVariant) -> tuple[str, str]:
    """Return the chance of a variant to be the best as text, and a word for it; both "" if there is none.

    There is none if it is too early or the result is too close to call, because a chance would contradict that.
    """
    if result.decision is None or result.decision.code in ("too_early", "too_close") or row.chance is None:
        return "", ""
    return format_chance(row.chance), next(gettext(text) for least, text in _CHANCE_WORDS if row.chance >= least)


def _describe_variant(result: ExperimentResult, row: VariantResult) -> VariantWords:
    names = experiment_forms.DIFFERENCE_LABELS
    keys = dict.fromkeys("sender" if key in experiment_forms.DIFFERENCES["sender"] else key for key in row.differences)
    chance, label = describe_chance(result, row)
    return VariantWords(
        row, get_letter(row.number), formats.join_names([gettext(names[key]) for key in keys]),
        result.winner == row.number, chance, label, row.recipients - row.test_recipients,
        sum(row.statuses.get(status, 0) for status in ("sent", "delivered", "complained")),
    )  # fmt: skip


def _describe_empty_group(figures: HoldoutFigures | ControlFigures) -> tuple[str, str, str]:
    """Return title, tone and detail if a group has no contacts, which chance makes of a few recipients."""
    if figures.held_out:
        return gettext("No contact got the campaign, so there is nothing to compare."), "info", ""
    detail = gettext("There were too few recipients for this share. Use a larger share, or send to more contacts.")
    return gettext("No contact was left out, so there is nothing to compare."), "info", detail


def describe_holdout(figures: HoldoutFigures, event: str) -> HoldoutWords:
    """Return the words about the holdout group of a campaign; `event` is the label of the event that is counted."""
    ends = formats.when(formats.parse_time(figures.ends_at)) if figures.ends_at else ""
    is_over = formats.parse_time(figures.ends_at) <= clock.now_ms() if figures.ends_at else False
    title, tone, detail = _describe_effect(figures, event, is_over)
    count = round(abs(figures.people.estimate or 0))
    if tone == "good":
        title = ngettext(
            "This campaign led to about %(num)s more conversion.",
            "This campaign led to about %(num)s more conversions.", count,
        )  # fmt: skip
    elif tone == "bad":
        title = ngettext(
            "This campaign led to about %(num)s fewer conversion.",
            "This campaign led to about %(num)s fewer conversions.", count,
        )  # fmt: skip
    return HoldoutWords(figures, title, tone, detail, ends, event)


def describe_control_group(figures: ControlFigures, event_name: str) -> HoldoutWords:
    """Return the words about the control group of the account and an event."""
    event = flow_forms.describe_event(event_name)
    title, tone, detail = _describe_effect(figures, event, is_over=False)
    count = round(abs(figures.people.estimate or 0))
    if tone == "good":
        title = ngettext(
            "Your campaigns led to about %(num)s more conversion.",
            "Your campaigns led to about %(num)s more conversions.", count,
        )  # fmt: skip
    elif tone == "bad":
        title = ngettext(
            "Your campaigns led to about %(num)s fewer conversion.",
            "Your campaigns led to about %(num)s fewer conversions.", count,
        )  # fmt: skip
    return HoldoutWords(figures, title, tone, detail, "", event)


def _describe_effect(figures: HoldoutFigures | ControlFigures, event: str, is_over: bool) -> tuple[str, str, str]:
    """Return title, tone and detail of a comparison. With the tones `good` (more conversions) and `bad` (fewer), the
    title is empty, because the caller names what led to them.
    """
    people = figures.people
    if not figures.recipients or not figures.held_out:
        return _describe_empty_group(figures)
    if not figures.converted + figures.held_out_converted:
        title = gettext("No conversions.") if is_over else gettext("No conversions so far.")
        detail = gettext(
            "“%(event)s” was recorded for no contact of either group. To see such events, connect your shop or record "
            "custom events.",
            event=event,
        )
        return title, "info", detail
    if people.low is None or people.high is None:
        return gettext("Too early to tell."), "info", ""
    detail = f"{_describe_plausible(people.low, people.high)} {_describe_points(figures.difference)}".strip()
    if people.low > 0 or people.high < 0:
        return "", "good" if people.low > 0 else "bad", detail
    return gettext("No clear effect.") if is_over else gettext("No clear effect so far."), "", detail


def _describe_plausible(low: float, high: float) -> str:
    """Return a sentence with the plausible range of additional conversions; a negative number means fewer."""
    least, most = (formats.number(round(abs(value))) for value in (low, high))
    if high < 0:
        return gettext("Anything from %(low)s to %(high)s fewer conversions is plausible.", low=most, high=least)
    if low < 0:
        return gettext("Anything from %(low)s fewer to %(high)s more conversions is plausible.", low=least, high=most)
    return gettext("Anything from %(low)s to %(high)s more conversions is plausible.", low=least, high=most)


class FlowHoldoutWords(NamedTuple):
    """The effect of a flow in words; `event` is the label of the event that is counted, empty without one.

    `window` says how long an event counts.
    """

    figures: FlowHoldout
    title: str
    tone: str
    detail: str
    event: str
    window: str


def describe_flow_holdout(figures: FlowHoldout) -> FlowHoldoutWords:
    """Return the words about the holdout group of a flow."""
    if figures.event is None:
        title = gettext("Choose a goal or a conversion to see what the flow changes.")
        return FlowHoldoutWords(figures, title, "info", "", "", "")
    window = ngettext(
        "An event counts within %(num)s day after the contact entered the flow, or was held out.",
        "An event counts within %(num)s days after the contact entered the flow, or was held out.", CONVERSION_DAYS,
    )  # fmt: skip
    people, event = figures.people, flow_forms.describe_event(figures.event)
    if people.low is None or people.high is None or people.estimate is None:
        return FlowHoldoutWords(figures, gettext("Too early to tell."), "", "", event, window)
    count = round(abs(people.estimate))
    if people.low > 0:
        title = ngettext(
            "This flow led to about %(num)s more conversion.", "This flow led to about %(num)s more conversions.", count
        )
    elif people.high < 0:
        title = ngettext(
            "This flow led to about %(num)s fewer conversion.", "This flow led to about %(num)s fewer conversions.",
            count,
        )  # fmt: skip
    else:
        title = gettext("No clear effect so far.")
    detail = _describe_plausible(people.low, people.high)
    tone = "good" if people.low > 0 else "bad" if people.high < 0 else ""
    detail = f"{detail} {_describe_points(figures.difference)}".strip()
    return FlowHoldoutWords(figures, title, tone, detail, event, window)


def _describe_points(difference: ConfidenceInterval) -> str:
    if difference.estimate is None or difference.low is None or difference.high is None:
        return ""
    estimate, low, high = (
        formats.number(round(value * 100, 1)) for value in (difference.estimate, difference.low, difference.high)
    )
    return gettext(
        "Difference of the conversion rates: %(estimate)s percentage points (%(low)s to %(high)s).",
        estimate=estimate, low=low, high=high,
    )  # fmt: skip
