"""The A/B test of a campaign in the composer: its variants with previews, and the sentences about its size."""

from typing import Any, NamedTuple

from appliance.campaigns import content, experiment_results, variants
from appliance.campaigns.experiment_results import SampleSize
from appliance.campaigns.variants import Setup
from appliance.content.designs import document as designs
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.flows.split_sample import SplitSample
from appliance.flows.steps.wait import format_duration
from appliance.storage.models import Campaign, Variant
from ui import formats
from ui.forms import experiment_forms, flow_forms

# Above this relative difference, a test is called too small: variants seldom differ more.
_MAX_USEFUL_LIFT = 1.0
# The sentences about the rate that a size is calculated with, by metric: of earlier campaigns, and assumed.
_BASES = {
    "clicks": (
        gettext_noop("Calculated with your click rate of the last 90 days, %(rate)s."),
        gettext_noop("Calculated with a click rate of %(rate)s, because you have not sent enough yet."),
    ),
    "opens": (
        gettext_noop("Calculated with your open rate of the last 90 days, %(rate)s."),
        gettext_noop("Calculated with an open rate of %(rate)s, because you have not sent enough yet."),
    ),
    "event": (
        gettext_noop("Calculated with your conversion rate of the last 90 days, %(rate)s."),
        gettext_noop("Calculated with a conversion rate of %(rate)s, because there are too few events yet."),
    ),
}


class VariantView(NamedTuple):
    """A variant of a draft: its row, name and letter, labels of what differs, and its preview.

    `sections` is the number of sections of its own design, and `has_body` says that it has own HTML or text instead.
    """

    row: Variant
    name: str
    letter: str
    differences: list[str]
    preview: dict[str, Any]
    sections: int
    has_body: bool


class TestView(NamedTuple):
    """The test or holdout group of a draft. `is_test` is false for a holdout group alone.

    `split`, `sample` and `basis` are sentences about its size, `reach` is the expected number of contacts who get it.
    `events` are those to choose from, by group.
    """

    setup: Setup
    is_test: bool
    variants: list[VariantView]
    split: str
    reach: int
    sample: str
    basis: str
    events: list[tuple[str, list[tuple[str, str]]]]


def build_test(campaign: Campaign, sendable: int, preview: dict[str, Any]) -> TestView | None:
    """Return the test of a draft to `sendable` recipients, or None; `preview` is that of the campaign's own content."""
    setup: Setup | None = campaign.setup
    if setup is None:
        return None
    views = []
    for row in setup.variants:
        own = row.number > 1
        rendered = content.render_preview(campaign.account_id, campaign.id, variant=row.number) if own else preview
        sections = len(designs.get_sections(row.template.design)) if own else 0
        views.append(VariantView(
            row, variants.get_name(row), get_letter(row.number), list_labels(row, campaign.channel == "sms"), rendered,
            sections, bool(own and row.template.body and not sections),
        ))  # fmt: skip
    is_test = variants.is_test(setup)
    if is_test:
        sample = experiment_results.estimate_sample(campaign, setup, sendable)
    else:
        sample = experiment_results.estimate_holdout(campaign, setup, sendable)
    describe_size = describe_sample if is_test else describe_holdout_size
    return TestView(
        setup, is_test, views, describe_split(setup, sendable),
        sendable - _count_held_out(setup, sendable),
        describe_size(sample, sendable) if sample is not None else "",
        describe_basis(sample, setup.experiment.metric if is_test else "event") if sample and sample.recipients else "",
        experiment_forms.list_events(campaign.account_id, setup.experiment.event or ""),
    )  # fmt: skip


def get_letter(number: int) -> str:
    """Return the letter of a variant, from A."""
    return chr(ord("A") + number - 1)


def get_title(row: Variant) -> str:
    """Return the name of a variant, by default `Variant B`."""
    return row.name or gettext("Variant %(letter)s", letter=get_letter(row.number))


def list_labels(variant: Variant, sms: bool = False) -> list[str]:
    """Return the labels of the parts in which a variant differs from the campaign, with its send time."""
    own = list(variants.list_differences(variant))
    keys = [
        key for key, names in experiment_forms.DIFFERENCES.items()
        if {*names} & {*own} or (key == "content" and "content" in own)
        or (key == "time" and variant.send_after_minutes)
    ]  # fmt: skip
    names = experiment_forms.DIFFERENCE_LABELS
    keys = ["text" if sms and key == "content" else key for key in keys]
    return [gettext(names[key]) for key in keys]


def describe_split(setup: Setup, sendable: int) -> str:
    """Return how many recipients get what, as sentences; empty without recipients."""
    row, count = setup.experiment, len(setup.variants)
    if not sendable:
        return ""
    held_out = _count_held_out(setup, sendable)
    share = min(float(row.test_share), 1 - float(row.holdout)) if count > 1 else 1 - float(row.holdout)
    tested = min(round(sendable * share), sendable - held_out)
    waiting = sendable - held_out - tested
    sentences = []
    if count > 1 and waiting:
        sentences = [
            ngettext(
                "About %(num)s contact is in the test, %(each)s for each variant.",
                "About %(num)s contacts are in the test, %(each)s for each variant.",
                tested, each=formats.number(tested // count),
            ),
            ngettext("The other %(num)s gets the winner.", "The other %(num)s get the winner.", waiting),
        ]  # fmt: skip
    elif count > 1:
        sentences = [
            ngettext(
                "Each variant goes to about %(num)s contact.", "Each variant goes to about %(num)s contacts.",
                tested // count,
            )
        ]  # fmt: skip
    if held_out:
        sentences.append(
            ngettext("About %(num)s contact gets nothing.", "About %(num)s contacts get nothing.", held_out)
        )  # fmt: skip
    return " ".join(sentences)


def _count_held_out(setup: Setup, sendable: int) -> int:
    """Return the expected number of contacts in the holdout; the real one varies, as each is drawn independently."""
    return round(sendable * float(setup.experiment.holdout))


def describe_sample(sample: SampleSize, sendable: int) -> str:
    """Return the smallest difference that a test can find, as a sentence."""
    tested = sample.recipients * sample.variants
    if not sendable:
        return gettext("Select recipients to see how small a difference this test can find.")
    if sample.smallest_lift is not None and sample.smallest_lift <= _MAX_USEFUL_LIFT:
        return ngettext(
            "With %(num)s recipient in the test you will see a difference of about %(lift)s or more.",
            "With %(num)s recipients in the test you will see a difference of about %(lift)s or more.",
            tested, lift=formats.share(round(sample.smallest_lift, 2)),
        )  # fmt: skip
    sentence = ngettext(
        "%(num)s recipient in the test shows only a very large difference.",
        "%(num)s recipients in the test show only very large differences.",
        tested,
    )
    if sample.needed is None:
        return sentence
    needed = ngettext(
        "To see a difference of %(lift)s, each variant needs about %(num)s recipient.",
        "To see a difference of %(lift)s, each variant needs about %(num)s recipients.",
        round_size(sample.needed), lift=formats.share(0.2),
    )  # fmt: skip
    return f"{sentence} {needed}"


def describe_holdout_size(sample: SampleSize, sendable: int) -> str:
    """Return the smallest effect that a holdout group can show, as a sentence."""
    if not sendable:
        return gettext("Select recipients to see how small an effect this holdout group can show.")
    if not sample.recipients:
        return gettext("These are too few recipients for this share: probably no contact is left out.")
    if sample.smallest_lift is not None and sample.smallest_lift <= _MAX_USEFUL_LIFT:
        return gettext(
            "This holdout group shows an effect if conversions rise by about %(lift)s or more.",
            lift=formats.share(round(sample.smallest_lift, 2)),
        )
    return gettext("This holdout group shows only a very large effect. Use a larger share, or more recipients.")


def describe_counting(setup: Setup) -> str:
    """Return what is counted for a holdout group, and for how long, as a sentence."""
    row = setup.experiment
    return gettext(
        "“%(event)s” is counted in both groups for %(duration)s.",
        event=flow_forms.describe_event(row.event or ""), duration=describe_minutes(row.decide_after_minutes),
    )  # fmt: skip


def round_size(number: int) -> int:
    """Return a number rounded to two significant digits."""
    return round(number, 2 - len(str(number))) if number > 99 else number


def describe_delay(minutes: int) -> str:
    """Return the text that says how much later a variant is sent, such as `2 hours later`."""
    return gettext("%(duration)s later", duration=describe_minutes(minutes))


def describe_minutes(minutes: int) -> str:
    """Return a number of minutes as a duration."""
    return format_duration(minutes * 60)


def describe_basis(sample: SampleSize | SplitSample, metric: str) -> str:
    """Return the rate that the size is calculated with, as a sentence."""
    measured, assumed = _BASES[metric]
    sentence = measured if sample.is_measured else assumed
    return gettext(sentence, rate=formats.share(round(sample.rate, 3)))


def summarize(test: TestView | None) -> str:
    """Return the summary of the composer's card."""
    if test is None:
        return pgettext("A/B test", "Off")
    row = test.setup.experiment
    parts = []
    if test.is_test:
        parts.append(ngettext("%(num)s variant", "%(num)s variants", len(test.variants)))
        parts.append(gettext("decided by %(metric)s", metric=describe_metric(row.metric, row.event)))
    if row.holdout:
        parts.append(gettext("holdout group %(share)s", share=formats.share(float(row.holdout))))
    return " · ".join(parts)


def describe_metric(metric: str, event: str | None) -> str:
    """Return what decides, after `decided by`: `clicks`, or the label of the event."""
    if metric == "event":
        return formats.uncapitalize(flow_forms.describe_event(event or ""))
    return pgettext("decided by", "clicks") if metric == "clicks" else pgettext("decided by", "opens (estimated)")
