"""What is known about an experiment, as the API shows it for campaigns and flows. Variants have numbers from 1."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.experiments.decision import Decision
from appliance.experiments.holdout import Estimate


class ConfidenceInterval(Struct):
    """An estimate with an interval that holds however often one looks (95 %); null where nothing is known yet."""

    estimate: Annotated[float, Meta(description="estimate")] | None
    low: Annotated[float, Meta(description="lower end of the interval")] | None
    high: Annotated[float, Meta(description="upper end of the interval")] | None


class ExperimentDecision(Struct):
    """What the counts say now.

    `difference` is per recipient and `ratio` a part of the runner-up's value (0.2: 20 % higher).
    """

    code: Annotated[
        Literal["winner", "too_close", "too_early", "needs_more"],
        Meta(
            description="`winner`: the leader is better; `too_close`: the difference is under 5 %, or the test is "
            "over; `too_early`: too few conversions; `needs_more`: not clear yet"
        ),
    ]
    leader: Annotated[int, Meta(description="number of the best variant so far")]
    runner_up: Annotated[int, Meta(description="number of the variant that is hardest to beat")]
    difference: Annotated[ConfidenceInterval, Meta(description="leader minus runner-up, per recipient")]
    ratio: Annotated[ConfidenceInterval, Meta(description="the same as a part of the runner-up's value")]


def describe_decision(decision: Decision) -> ExperimentDecision:
    """Return a decision as the API shows it."""
    difference, ratio = decision.difference, decision.ratio
    return ExperimentDecision(
        decision.code, decision.leader + 1, decision.runner_up + 1,
        ConfidenceInterval(difference.estimate, difference.low, difference.high),
        ConfidenceInterval(ratio.estimate, ratio.low, ratio.high),
    )  # fmt: skip


def to_interval(estimate: Estimate) -> ConfidenceInterval:
    """Return an estimate as the API shows it."""
    return ConfidenceInterval(estimate.value, estimate.low, estimate.high)
