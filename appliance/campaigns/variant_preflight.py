"""Preflight of an A/B test: the findings of each variant at its own fields, and of the test as a whole."""

from collections.abc import Callable, Iterable, Iterator

from appliance.campaigns import experiment_results, variants
from appliance.campaigns.findings import Finding, PreflightInput
from appliance.campaigns.variants import Setup
from appliance.core.i18n import gettext, ngettext
from appliance.storage.models import Campaign, Variant

_CONTENT = "template_attributes."
# A test that finds no difference smaller than this is said to be too small.
_MAX_USEFUL_LIFT = 0.5
Check = Callable[[PreflightInput], Iterable[Finding]]


def find_of_variants(
    campaign: Campaign, load: Callable[[Campaign], PreflightInput], checks: Iterable[Check], known: list[Finding]
) -> Iterator[Finding]:
    """Yield the findings of checks in the variants after the first, without those that the campaign has itself.

    `load` returns the input of the checks for a campaign as a variant has it. The field of a finding is that of the
    variant in a request, such as `experiment.variants[2].subject`.
    """
    seen = {(finding.code, finding.field, finding.message) for finding in known}
    for variant, view in variants.list_views(campaign):
        case = load(view)
        for finding in (finding for check in checks for finding in check(case)):
            if (finding.code, finding.field, finding.message) not in seen:
                yield _name_variant(finding, variant)


def _name_variant(finding: Finding, variant: Variant) -> Finding:
    field = finding.field
    if field.startswith(_CONTENT):
        field = f"experiment.variants[{variant.number - 1}].{field.removeprefix(_CONTENT)}"
    message = gettext("variant %(name)s: %(problem)s", name=variants.get_name(variant), problem=finding.message)
    return Finding(finding.code, message, field)


def check_test(case: PreflightInput) -> Iterator[Finding]:
    """Yield a blocker if what decides the test cannot be measured."""
    setup = variants.find(case.campaign.id)
    if setup is None or not variants.is_test(setup) or setup.experiment.metric == "event":
        return
    field = "experiment.metric"
    if not case.campaign.tracking:
        message = gettext("opens and clicks of this campaign are not counted, so they cannot decide the A/B test")
        yield Finding("preflight_failed", message, field)
    elif setup.experiment.metric == "opens" and not case.is_email:
        yield Finding("preflight_failed", gettext("SMS have no opens"), field)


def advise_test(case: PreflightInput, sendable: int) -> Iterator[Finding]:
    """Yield advice on a test that would go to `sendable` contacts: its size, its metric, and variants alike."""
    setup = variants.find(case.campaign.id)
    if setup is None or not variants.is_test(setup):
        return
    if setup.experiment.metric == "opens":
        message = gettext("opens are estimated: mail programs open emails by themselves; clicks decide better")
        yield Finding("opens_estimated", message, "experiment.metric")
    for number in _list_alike(setup):
        message = gettext("it does not differ from the first variant")
        yield _name_variant(Finding("variant_alike", message, f"{_CONTENT}subject"), setup.variants[number - 1])
    sample = experiment_results.estimate_sample(case.campaign, setup, sendable)
    if sample is None or not sample.recipients:
        return
    if sample.smallest_lift is None or sample.smallest_lift > _MAX_USEFUL_LIFT:
        message = ngettext(
            "with %(num)s recipient of each variant, this test finds only very large differences",
            "with %(num)s recipients of each variant, this test finds only very large differences",
            sample.recipients,
        )
        yield Finding("test_too_small", message, "experiment.test_share")


def _list_alike(setup: Setup) -> list[int]:
    """Return the numbers of the variants that have the same content and send time as the first variant."""
    first = setup.variants[0]
    return [
        variant.number
        for variant in setup.variants[1:]
        if not variants.list_differences(variant) and variant.send_after_minutes == first.send_after_minutes
    ]
