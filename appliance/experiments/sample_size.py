"""How many recipients a test needs, and which difference a given audience can show.

The numbers are those of `decision`, not of a test that looks only once, which needs about half as many. The power is
the probability that the evidence suffices when the time of all recipients is over. A winner may be clear before, so the
true power is a little higher.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from appliance.experiments.decision import DEFAULT_ALPHA, MIN_CONVERSIONS, MIN_ORDERS
from appliance.experiments.evidence import (
    Counts,
    Pair,
    TypicalAmount,
    find_amount_boundary,
    get_prior_precision,
    measure_rates,
)

DEFAULT_POWER = 0.8
MAX_RECIPIENTS = 10**9
MIN_LIFT, MAX_LIFT = 0.001, 10.0
_STEPS = 60
_NORMAL_POINTS = 41


class _Outcome(NamedTuple):
    """Means and variances of the sums of the best variant and of another one, and the gap at which the best one wins.

    `converted` is the expected number of conversions (or orders) of the whole test, divided by the smallest number that
    allows a decision.
    """

    best: float
    best_variance: float
    other: float
    other_variance: float
    gap: float
    converted: float


def plan_by_rate(
    rate: float, lift: float, variants: int = 2, power: float = DEFAULT_POWER, alpha: float = DEFAULT_ALPHA
) -> int | None:
    """Return the recipients that each variant needs to find one whose rate is higher by a relative `lift`.

    `rate` is the conversion rate of the other variants; `lift` 0.2 is 20 % more of it. Returns None if more than
    `MAX_RECIPIENTS` are needed, and raises ValueError for an impossible rate or lift.
    """
    _check_rate(rate, lift)
    return _find_recipients(lambda recipients: _predict_rates(recipients, rate, lift, variants, alpha), variants, power)


def find_lift_by_rate(
    recipients: int, rate: float, variants: int = 2, power: float = DEFAULT_POWER, alpha: float = DEFAULT_ALPHA
) -> float | None:
    """Return the smallest relative difference that `recipients` of each variant show with the given power, or None."""
    _check_rate(rate, MIN_LIFT)
    highest = min(MAX_LIFT, 0.999 / rate - 1)
    return _find_lift(lambda lift: _predict_rates(recipients, rate, lift, variants, alpha), variants, power, highest)


def plan_by_amount(
    rate: float, typical: TypicalAmount, lift: float, variants: int = 2, power: float = DEFAULT_POWER,
    alpha: float = DEFAULT_ALPHA,
) -> int | None:  # fmt: skip
    """Return the recipients that each variant needs to find one whose amount per recipient is higher by `lift`.

    `rate` is the share of recipients who order, `typical` what one of them pays. The difference is assumed to come from
    more orders of the same amounts. Returns None and raises ValueError as `plan_by_rate` does.
    """
    _check_rate(rate, lift)
    return _find_recipients(
        lambda recipients: _predict_amounts(recipients, rate, typical, lift, variants, alpha), variants, power
    )


def find_lift_by_amount(
    recipients: int, rate: float, typical: TypicalAmount, variants: int = 2, power: float = DEFAULT_POWER,
    alpha: float = DEFAULT_ALPHA,
) -> float | None:  # fmt: skip
    """Return the smallest relative difference of amounts per recipient that can be found, or None.

    The parameters are those of `plan_by_amount`, and `recipients` of each variant.
    """
    _check_rate(rate, MIN_LIFT)
    highest = min(MAX_LIFT, 0.999 / rate - 1)
    return _find_lift(
        lambda lift: _predict_amounts(recipients, rate, typical, lift, variants, alpha), variants, power, highest
    )


def _check_rate(rate: float, lift: float) -> None:
    if not 0 < rate < 1 or not MIN_LIFT <= lift <= MAX_LIFT or rate * (1 + lift) >= 1:
        raise ValueError(f"no rate of {rate} can be higher by {lift}")


def _predict_rates(recipients: float, rate: float, lift: float, variants: int, alpha: float) -> _Outcome:
    best, other = recipients * rate * (1 + lift), recipients * rate
    threshold = math.log(variants / alpha)
    low, high = 0.0, best + other
    for _ in range(_STEPS):
        gap = (low + high) / 2
        is_below = _measure_gap(gap, best + other) < threshold
        low, high = (gap, high) if is_below else (low, gap)
    converted = best + (variants - 1) * other
    # The evidence uses only which variants the recipients got who converted
    return _Outcome(best, best * (1 - rate * (1 + lift)), other, other * (1 - rate), high, converted / MIN_CONVERSIONS)


def _measure_gap(gap: float, total: float) -> float:
    """Return the logarithm of the evidence if `total` conversions of two variants differ by `gap`."""
    # Fractions of conversions let the boundary be a smooth function.
    treated, control = (total + gap) / 2, (total - gap) / 2
    return measure_rates([Pair(Counts(1, treated), Counts(1, control))])  # type: ignore[arg-type]  # fractions make the boundary smooth


def _predict_amounts(
    recipients: float, rate: float, typical: TypicalAmount, lift: float, variants: int, alpha: float
) -> _Outcome:
    other = recipients * rate
    best = other * (1 + lift)
    variance = (best + other) * typical.mean_square / 4
    gap = 2 * find_amount_boundary(variance, get_prior_precision(typical), alpha / variants)
    square = typical.mean**2
    return _Outcome(
        best * typical.mean, best * (typical.mean_square - square * rate * (1 + lift)),
        other * typical.mean, other * (typical.mean_square - square * rate),
        gap, (best + (variants - 1) * other) / MIN_ORDERS,
    )  # fmt: skip


def _get_power(outcome: _Outcome, variants: int) -> float:
    """Return the probability that the best variant leads all others by `outcome.gap`, by normal approximation."""
    if outcome.converted < 1:
        return 0.0
    best_deviation, other_deviation = math.sqrt(outcome.best_variance), math.sqrt(outcome.other_variance)
    power = total = 0.0
    for point in range(_NORMAL_POINTS):
        score = 10 * point / (_NORMAL_POINTS - 1) - 5
        weight = math.exp(-(score**2) / 2)
        lead = outcome.best + score * best_deviation - outcome.gap - outcome.other
        power += weight * (math.erfc(-lead / other_deviation / math.sqrt(2)) / 2) ** (variants - 1)
        total += weight
    return power / total


def _find_recipients(predict: Callable[[float], _Outcome], variants: int, power: float) -> int | None:
    low, high = 1.0, float(MAX_RECIPIENTS)
    if _get_power(predict(high), variants) < power:
        return None
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _get_power(predict(middle), variants) >= power else (middle, high)
    return math.ceil(high)


def _find_lift(predict: Callable[[float], _Outcome], variants: int, power: float, highest: float) -> float | None:
    low, high = MIN_LIFT, highest
    if _get_power(predict(high), variants) < power:
        return None
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _get_power(predict(middle), variants) >= power else (middle, high)
    return high
