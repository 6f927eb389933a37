"""Whether one variant is the best: a decision that may be asked for after each conversion.

A variant wins when the evidence says of each other variant, at level `alpha` divided by the number of variants, that
it is worse. A wrong or accidental winner is ever declared with a probability of at most `alpha`: let b be one of the
variants that are truly best. Another winner must have beaten b, which is one of K - 1 comparisons. If b itself wins
although another one is as good, it must have beaten that one, which makes K comparisons in all (Bonferroni). With two
variants this is a two-sided test at `alpha`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.experiments.evidence import (
    Batches,
    Bounds,
    Pair,
    TypicalAmount,
    bound_amount_difference,
    bound_rate_ratio,
    convert_ratio,
    get_prior_precision,
    measure_amounts,
    measure_excess,
    measure_rates,
    select_pairs,
)
from appliance.experiments.posterior import compare, describe_amount, describe_rate, standardize_batches

DEFAULT_ALPHA = 0.05
# The evidence from conversions is exact from the first one, but decisions on a handful would surprise users.
MIN_CONVERSIONS = 20
# Amounts are compared by an approximation, and one large order should not decide.
MIN_ORDERS = 50
# Variants whose rates differ by less than this part are as good as equal.
EQUAL_WITHIN = 0.05

Code = Literal["winner", "too_close", "too_early", "needs_more"]


class Difference(Struct, frozen=True):
    """The difference of two values with an interval that holds at all times; None where nothing is known yet."""

    estimate: float | None
    low: float | None
    high: float | None


class Decision(Struct, frozen=True):
    """What is known about an experiment now; variants are numbered from 0.

    `code` is `winner` (the leader is better than all others), `too_early` (too few conversions to say anything),
    `too_close` (the difference to the runner-up is under 5 %, or the test is over without a winner) or `needs_more`.
    `values` are conversions or amounts per recipient, standardized over the batches. `chances` are the probabilities of
    being the best, `losses` the expected loss per recipient of choosing the variant. `difference` (per recipient) and
    `ratio` (0.2: 20 % higher) compare leader and runner-up, the other variant that is hardest to beat.
    """

    code: Code
    leader: int
    runner_up: int
    values: tuple[float, ...]
    chances: tuple[float, ...]
    losses: tuple[float, ...]
    difference: Difference
    ratio: Difference


def find_rate_winner(batches: Batches, alpha: float = DEFAULT_ALPHA) -> int | None:
    """Return the variant whose conversion rate is the best, or None as long as that is not clear."""
    if _count_converted(batches) < MIN_CONVERSIONS:
        return None
    return _find_winner(batches, alpha, [totals.rate for totals in standardize_batches(batches)], measure_rates)


def find_amount_winner(batches: Batches, typical: TypicalAmount, alpha: float = DEFAULT_ALPHA) -> int | None:
    """Return the variant whose amount per recipient is the highest, or None as long as that is not clear."""
    if _count_converted(batches) < MIN_ORDERS:
        return None
    precision = get_prior_precision(typical)
    return _find_winner(
        batches, alpha, [totals.mean_amount for totals in standardize_batches(batches)],
        lambda pairs: measure_amounts(measure_excess(pairs), precision),
    )  # fmt: skip


def _find_winner(
    batches: Batches, alpha: float, values: Sequence[float], measure: Callable[[list[Pair]], float]
) -> int | None:
    leader = _find_leader(values)
    threshold = math.log(len(values) / alpha)
    others = (variant for variant in range(len(values)) if variant != leader)
    return leader if all(measure(select_pairs(batches, leader, other)) >= threshold for other in others) else None


def _count_converted(batches: Batches) -> int:
    return sum(counts.converted for batch in batches for counts in batch)


def _find_leader(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda variant: values[variant])


def decide_by_rate(batches: Batches, alpha: float = DEFAULT_ALPHA, is_over: bool = False) -> Decision:
    """Return the decision on the conversion rates of two to five variants.

    `is_over` says that no further conversions are waited for.
    """
    totals = standardize_batches(batches)
    values = [total.rate for total in totals]
    leader, level = _find_leader(values), alpha / len(values)
    bounds = {
        other: bound_rate_ratio(select_pairs(batches, leader, other), level)
        for other in range(len(values)) if other != leader
    }  # fmt: skip
    runner_up = min(bounds, key=lambda other: (bounds[other].low, -values[other]))
    ratio = bounds[runner_up]
    pairs = select_pairs(batches, leader, runner_up)
    estimate = values[leader] / values[runner_up] if values[runner_up] else math.inf
    code = _choose_code(
        find_rate_winner(batches, alpha) is not None, _count_converted(batches) < MIN_CONVERSIONS,
        _is_equal(bounds, runner_up), is_over,
    )  # fmt: skip
    comparison = compare([describe_rate(total) for total in totals])
    return Decision(
        code, leader, runner_up, tuple(values), comparison.chances, comparison.losses,
        Difference(values[leader] - values[runner_up], *(convert_ratio(pairs, bound) for bound in ratio)),
        Difference(*(factor - 1 if factor < math.inf else None for factor in (estimate, *ratio))),
    )  # fmt: skip


def _is_equal(bounds: dict[int, Bounds], runner_up: int) -> bool:
    """Return whether the leader is hardly better than the runner-up, and no variant better than the leader."""
    is_safe = all(ratio.low >= 1 / (1 + EQUAL_WITHIN) for ratio in bounds.values())
    return is_safe and bounds[runner_up].high <= 1 + EQUAL_WITHIN


def _choose_code(is_won: bool, is_early: bool, is_equal: bool, is_over: bool) -> Code:
    if is_won:
        return "winner"
    if is_over or (is_equal and not is_early):
        return "too_close"
    return "too_early" if is_early else "needs_more"


def decide_by_amount(
    batches: Batches, typical: TypicalAmount, alpha: float = DEFAULT_ALPHA, is_over: bool = False
) -> Decision:
    """Return the decision on the amounts per recipient of two to five variants, like `decide_by_rate`.

    `converted` of the counts are the recipients with an amount. The bounds of the ratio are the differences divided
    by the amount of the runner-up.
    """
    totals = standardize_batches(batches)
    values = [total.mean_amount for total in totals]
    leader, level = _find_leader(values), alpha / len(values)
    bounds = {
        other: bound_amount_difference(select_pairs(batches, leader, other), typical, level)
        for other in range(len(values)) if other != leader
    }  # fmt: skip
    runner_up = min(bounds, key=lambda other: (bounds[other].low, -values[other]))
    base = values[runner_up]
    ratios = {
        other: Bounds(*(1 + bound / values[other] if values[other] else math.inf * bound for bound in bounds[other]))
        for other in bounds
    }
    code = _choose_code(
        find_amount_winner(batches, typical, alpha) is not None,
        _count_converted(batches) < MIN_ORDERS, _is_equal(ratios, runner_up), is_over,
    )  # fmt: skip
    difference = [bound if math.isfinite(bound) else None for bound in bounds[runner_up]]
    estimate = values[leader] - base
    comparison = compare([describe_amount(total) for total in totals])
    return Decision(
        code, leader, runner_up, tuple(values), comparison.chances, comparison.losses,
        Difference(estimate, *difference),
        Difference(*(None if part is None or not base else part / base for part in (estimate, *difference))),
    )  # fmt: skip


class ConfidenceInterval(Struct):
    """An estimate with an interval that holds however often one looks (95 %); null while there is no figure yet."""

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
