"""The effect of messages: the conversions of contacts who got them, compared with contacts who were held out."""

import math
from statistics import NormalDist

from msgspec import Struct

from appliance.experiments.decision import DEFAULT_ALPHA, ConfidenceInterval
from appliance.experiments.evidence import Bounds, Counts, Pair, bound_rate_ratio, convert_ratio


class Estimate(Struct, frozen=True):
    """An estimate and its interval; a bound, or the estimate of a ratio, is None where nothing is known."""

    value: float | None
    low: float | None
    high: float | None


class HoldoutResult(Struct, frozen=True):
    """The effect of sending. Rates and their `difference` are shares (0.01 is one percentage point).

    `people` are the further conversions of the treated that the messages caused, `lift` the difference as a part of the
    held-out rate (0.2: 20 %). `difference`, `people` and `lift` have the interval that holds at all times. The
    intervals of `fixed_difference` and `fixed_people` are narrower, and hold only if they are read once, at a time that
    was set before.
    """

    treated_rate: float
    held_out_rate: float
    difference: Estimate
    people: Estimate
    lift: Estimate
    fixed_difference: Estimate
    fixed_people: Estimate


def measure_holdout(treated: Counts, held_out: Counts, alpha: float = DEFAULT_ALPHA) -> HoldoutResult:
    """Return the effect of sending, with intervals of the confidence 1 - `alpha`.

    Count the conversions of both groups in the same period, beginning when the treated were sent their message.
    """
    pairs = [Pair(treated, held_out)] if treated.recipients and held_out.recipients else []
    treated_rate, held_out_rate = (counts.converted / max(1, counts.recipients) for counts in (treated, held_out))
    value = treated_rate - held_out_rate
    if not pairs:
        unknown = Estimate(None, None, None)
        return HoldoutResult(treated_rate, held_out_rate, unknown, unknown, unknown, unknown, unknown)
    ratio = bound_rate_ratio(pairs, alpha / 2)
    difference = Estimate(value, convert_ratio(pairs, ratio.low), convert_ratio(pairs, ratio.high))
    fixed_difference = Estimate(value, *compute_newcombe_interval(treated, held_out, alpha))
    parts = (treated_rate / held_out_rate if held_out_rate else math.inf, *ratio)
    return HoldoutResult(
        treated_rate, held_out_rate, difference, _to_people(difference, treated.recipients),
        Estimate(*(part - 1 if part < math.inf else None for part in parts)),
        fixed_difference, _to_people(fixed_difference, treated.recipients),
    )  # fmt: skip


def _to_people(difference: Estimate, recipients: int) -> Estimate:
    parts = (difference.value, difference.low, difference.high)
    return Estimate(*(None if part is None else part * recipients for part in parts))


def compute_newcombe_interval(treated: Counts, control: Counts, alpha: float) -> Bounds:
    """Return the interval of the difference of two rates for one look, with the confidence 1 - `alpha`.

    Source: Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine
    17, 1998, method 10 (hybrid score).
    """
    treated_rate, control_rate = treated.converted / treated.recipients, control.converted / control.recipients
    first, second = _compute_wilson_interval(treated, alpha), _compute_wilson_interval(control, alpha)
    value = treated_rate - control_rate
    return Bounds(
        value - math.hypot(treated_rate - first.low, second.high - control_rate),
        value + math.hypot(first.high - treated_rate, control_rate - second.low),
    )


def _compute_wilson_interval(counts: Counts, alpha: float) -> Bounds:
    """Return the score interval of a rate (Wilson, Journal of the American Statistical Association 22, 1927)."""
    score = NormalDist().inv_cdf(1 - alpha / 2)
    recipients, rate = counts.recipients, counts.converted / counts.recipients
    middle = rate + score**2 / (2 * recipients)
    width = score * math.sqrt(rate * (1 - rate) / recipients + score**2 / (4 * recipients**2))
    norm = 1 + score**2 / recipients
    return Bounds(max(0.0, (middle - width) / norm), min(1.0, (middle + width) / norm))


def to_interval(estimate: Estimate) -> ConfidenceInterval:
    """Return an estimate as the API shows it."""
    return ConfidenceInterval(estimate.value, estimate.low, estimate.high)
