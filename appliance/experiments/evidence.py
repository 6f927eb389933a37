"""Evidence that one variant is better than another, which stays valid however often one looks.

The evidence is a martingale under the hypothesis that there is no difference: it starts at 1 and its mean stays 1. By
Ville's inequality (1939) it ever reaches 1/a with a probability of at most a, at whatever number of looks and whenever
one stops. So a variant is better at level a when the evidence is 1/a, and an interval that holds at all times consists
of the differences against which it is lower (confidence sequence; Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49, 2021, section 2).

Time is counted in conversions, not in recipients. Most conversions come hours after the message, so the rates of all
variants still grow while the number of recipients stays, and a method that counts recipients would not be valid. But
at each conversion, if no variant is better, the chance that it came from variant B is the share of B among the
recipients (Lindon and Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022, section 4: it holds
for conversion rates that change with time).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

# Ratios of conversion rates are looked for between e^-6 and e^6.
_MAX_LOG_RATIO = 6.0
_BISECTIONS = 32
# The log ratio of the rates of two variants that is expected before the test: the deviation of a half-normal
# distribution. Any value is valid; this finds differences from 10 % to 30 % with few recipients (docs/decisions.md#22).
EXPECTED_LOG_RATIO = 0.2
# A part of the prior is wider, so that large differences do not wait for many conversions.
_WIDE_LOG_RATIO, _WIDE_PART = 0.8, 0.2
_FIRST_NODE, _NODE_RATIO, _PRIOR_NODES = 0.02, 1.23, 24


class Counts(Struct, frozen=True):
    """What one variant has reached in one batch of recipients.

    `recipients` were assigned to it, whether or not their message has been sent yet. `converted` are those of them who
    did what is counted, each once. `amount` is the sum of the amounts of the recipients, and `amount_squares` the sum
    of the squares of the recipients' amounts.
    """

    recipients: int
    converted: int
    amount: float = 0.0
    amount_squares: float = 0.0


# The counts of all variants (second index) in all batches (first index). Batches that were assigned with different
# weights must stay apart, because their recipients may differ from each other.
Batches = Sequence[Sequence[Counts]]


class Bounds(NamedTuple):
    """A lower and an upper bound."""

    low: float
    high: float


class Pair(NamedTuple):
    """The counts of two variants in one batch."""

    treated: Counts
    control: Counts


def select_pairs(batches: Batches, treated: int, control: int) -> list[Pair]:
    """Return the batches in which both variants have recipients, as pairs of their counts."""
    pairs = [Pair(batch[treated], batch[control]) for batch in batches]
    return [pair for pair in pairs if pair.treated.recipients and pair.control.recipients]


def _build_prior() -> list[tuple[float, float, float]]:
    """Return the prior as (log ratio, ratio, logarithm of the probability) at geometric points.

    It is a mixture of two half-normal distributions. A mixture over any fixed set of alternatives is valid evidence, so
    nothing is lost by having few points.
    """
    points = [_FIRST_NODE * _NODE_RATIO**node for node in range(_PRIOR_NODES)]

    def weigh(deviation: float) -> list[float]:
        weights = [point * math.exp(-((point / deviation) ** 2) / 2) for point in points]
        return [weight / sum(weights) for weight in weights]

    parts = zip(points, weigh(EXPECTED_LOG_RATIO), weigh(_WIDE_LOG_RATIO), strict=True)
    return [
        (point, math.exp(point), math.log((1 - _WIDE_PART) * usual + _WIDE_PART * wide)) for point, usual, wide in parts
    ]


_PRIOR = _build_prior()


def measure_rates(pairs: Iterable[Pair], log_ratio: float = 0.0) -> float:
    """Return the logarithm of the evidence that the treated rate is more than e^`log_ratio` times the control rate.

    It is the mean, over the prior, of the likelihood ratio of the conversions in order, a test martingale for each
    ratio (Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of Mathematical
    Statistics 41, 1970, the method of mixtures). It depends only on the counts. Each batch has its own shares, which
    may depend on what happened before the batch.
    """
    odds = math.exp(log_ratio)
    logs = [log_weight for _, _, log_weight in _PRIOR]
    for treated, control in pairs:
        total = treated.converted + control.converted
        treated_weight = treated.recipients * odds
        norm = control.recipients + treated_weight
        logs = [
            value + treated.converted * shift - total * math.log((control.recipients + treated_weight * factor) / norm)
            for value, (shift, factor, _) in zip(logs, _PRIOR, strict=True)
        ]
    top = max(logs)
    return top + math.log(math.fsum([math.exp(value - top) for value in logs]))


def bound_rate_ratio(pairs: Sequence[Pair], level: float) -> Bounds:
    """Return bounds of the ratio of the treated to the control rate.

    Each bound is ever wrong with a probability of at most `level`. The bounds are exact if each conversion is
    independent of the others. Without conversions they are 0 and infinity.
    """
    flipped = [Pair(pair.control, pair.treated) for pair in pairs]
    low, high = (_bound_log_ratio(part, math.log(1 / level)) for part in (pairs, flipped))
    return Bounds(0.0 if low is None else math.exp(low), math.inf if high is None else math.exp(-high))


def convert_ratio(pairs: Iterable[Pair], ratio: float) -> float | None:
    """Return the difference of two rates that have a ratio, given how many recipients of both converted together.

    It is the mean of the batches, weighted with their recipients. Returns None if there are no conversions, or no
    recipients of both.
    """
    total, converted_total, recipients_total = 0.0, 0, 0
    for treated, control in pairs:
        if not treated.recipients or not control.recipients:
            continue
        converted, recipients = treated.converted + control.converted, treated.recipients + control.recipients
        part = 1 / treated.recipients
        if ratio != math.inf:
            part = (ratio - 1) / (control.recipients + treated.recipients * ratio)
        total += converted * part * recipients
        converted_total += converted
        recipients_total += recipients
    return total / recipients_total if converted_total else None


def _bound_log_ratio(pairs: Sequence[Pair], threshold: float) -> float | None:
    """Return the highest log ratio against which the evidence reaches a threshold, or None if there is none."""
    # The evidence falls as the ratio rises, because the log-likelihood is concave in the log ratio.
    return _find_last(lambda ratio: measure_rates(pairs, ratio) >= threshold, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)


def _find_last(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the highest number from `low` to `high` for which `holds` is true; None if it is false for `low`.

    Found by bisection, so `holds` must be false for all numbers above the result.
    """
    if not holds(low):
        return None
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class TypicalAmount(Struct, frozen=True):
    """Mean and mean of squares of the amount of a recipient who ordered, as expected before the test.

    Take it from earlier orders of the account. Any value is valid; a good one finds differences sooner.
    """

    mean: float
    mean_square: float


class Excess(NamedTuple):
    """How much more the treated got than their share of all amounts, and the variance that it may have by chance."""

    amount: float
    variance: float
    # The excess that a difference of one unit per recipient makes
    weight: float


def measure_excess(pairs: Iterable[Pair]) -> Excess:
    """Return the excess of the amounts of the treated.

    If no variant is better, each amount belongs to a treated recipient with the probability of their share, like the
    toss of a biased coin. The bound of its variance is that of Kearns and Saul ("Large deviation methods for
    approximate probabilistic inference", UAI 1998, lemma 1). So the tails are bounded by the amounts themselves,
    however heavy the tail of the amounts is.
    """
    amount = variance = weight = 0.0
    for treated, control in pairs:
        recipients = treated.recipients + control.recipients
        share = treated.recipients / recipients
        amount += treated.amount * (1 - share) - control.amount * share
        variance += get_coin_variance(share) * (treated.amount_squares + control.amount_squares)
        weight += treated.recipients * control.recipients / recipients
    return Excess(amount, variance, weight)


def get_coin_variance(share: float) -> float:
    """Return the variance of a normal distribution that bounds the tails of a biased coin (Kearns and Saul).

    `share` is the probability of one side.
    """
    if abs(share - 0.5) < 1e-6:
        return 0.25
    return (1 - 2 * share) / (2 * math.log((1 - share) / share))


def get_prior_precision(typical: TypicalAmount) -> float:
    """Return the precision of the normal prior in the evidence from amounts (`measure_amounts`).

    It is chosen so that a difference of `EXPECTED_LOG_RATIO` is found with few recipients.
    """
    return (typical.mean_square / (EXPECTED_LOG_RATIO * typical.mean)) ** 2


def measure_amounts(excess: Excess, precision: float) -> float:
    """Return the logarithm of the evidence that the treated have higher amounts than the control.

    It is the one-sided normal mixture (Howard and others 2021, proposition 6), self-normalized by the squares of the
    amounts (de la Peña, "A general class of exponential inequalities for martingales and ratios", Annals of
    Probability 27, 1999). It is exact if no variant changes anything and each recipient converts once, else asymptotic.
    """
    scale = excess.variance + precision
    tail = math.erfc(-excess.amount / math.sqrt(2 * scale))
    if tail <= 0.0:
        return -math.inf
    return (math.log(precision / scale) + excess.amount**2 / scale) / 2 + math.log(tail)


def bound_amount_difference(pairs: Sequence[Pair], typical: TypicalAmount, level: float) -> Bounds:
    """Return bounds of the difference of the amounts per recipient.

    Each bound is ever wrong with a probability of at most `level`. The bounds are asymptotic, and infinite without
    amounts.
    """
    excess, precision = measure_excess(pairs), get_prior_precision(typical)
    if not excess.variance:
        return Bounds(-math.inf, math.inf)
    width = find_amount_boundary(excess.variance, precision, level)
    return Bounds((excess.amount - width) / excess.weight, (excess.amount + width) / excess.weight)


def find_amount_boundary(variance: float, precision: float, level: float) -> float:
    """Return the excess at which the evidence from amounts is 1/`level`."""
    threshold = math.log(1 / level)
    # Without the factor of the tail, which is between 1 and 2 for a positive excess, the evidence is 1/level here.
    high = math.sqrt((variance + precision) * (2 * threshold + math.log(1 + variance / precision)))
    low = 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_below = measure_amounts(Excess(middle, variance, 1.0), precision) < threshold
        low, high = (middle, high) if is_below else (low, middle)
    return high
