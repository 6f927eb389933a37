"""The probability that each variant is the best, and what choosing another one would cost, given the counts.

These figures are shown to users. Unlike the evidence, they do not limit the rate of wrong decisions of a user who looks
many times, so `decision` does not choose a winner by them.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from appliance.experiments.evidence import Batches, Counts

_POINTS = 800
_STANDARD_DEVIATIONS = 8.0
# Jeffreys' prior of a rate
_PRIOR_COUNT = 0.5


class Posterior(NamedTuple):
    """The distribution of one variant's value: its mean, standard deviation and (unnormalized) log density."""

    mean: float
    deviation: float
    log_density: Callable[[float], float]
    minimum: float = -math.inf
    maximum: float = math.inf


class Comparison(NamedTuple):
    """For each variant: the probability that it is the best, and the expected loss of choosing it.

    The loss is how much higher the value of the best one is expected to be, in conversions or money per recipient.
    """

    chances: tuple[float, ...]
    losses: tuple[float, ...]


class Totals(NamedTuple):
    """What one variant has reached in all batches, standardized to the same recipients for all variants.

    `recipients` is the number of recipients of a single batch that would be as informative.
    """

    recipients: float
    converted: float
    amount: float
    amount_squares: float

    @property
    def rate(self) -> float:
        """Return the conversions per recipient; 0 without recipients."""
        return self.converted / self.recipients if self.recipients else 0.0

    @property
    def mean_amount(self) -> float:
        """Return the amount per recipient; 0 without recipients."""
        return self.amount / self.recipients if self.recipients else 0.0


def standardize_batches(batches: Batches) -> list[Totals]:
    """Return the totals of each variant, as if all variants had the same shares of each batch.

    Plain sums would mislead (Simpson's paradox): the variant that got more of the latest batch has had less time. So
    the rates of the batches in which all variants have recipients are weighted with the recipients of the batch (direct
    standardization). The effective number of recipients is Kish's ("Survey Sampling", 1965).
    """
    batches = [batch for batch in batches if all(counts.recipients for counts in batch)] or batches
    if len(batches) == 1:
        return [Totals(part.recipients, part.converted, part.amount, part.amount_squares) for part in batches[0]]
    sizes = [sum(counts.recipients for counts in batch) for batch in batches]
    return [_standardize(variant, sizes) for variant in zip(*batches, strict=True)]


def _standardize(counts: Sequence[Counts], sizes: Sequence[int]) -> Totals:
    """Return the totals of one variant, given its counts in each batch and the recipients of the batches."""
    parts = [(part, size / part.recipients) for part, size in zip(counts, sizes, strict=True) if part.recipients]
    # Each recipient counts as often as there are recipients of all variants for one of this variant.
    scale = math.fsum(part.recipients * weight for part, weight in parts)
    squares = math.fsum(part.recipients * weight**2 for part, weight in parts)
    factor = scale / squares if squares else 0.0
    return Totals(
        factor * scale, factor * math.fsum(part.converted * weight for part, weight in parts),
        factor * math.fsum(part.amount * weight for part, weight in parts),
        factor * math.fsum(part.amount_squares * weight for part, weight in parts),
    )  # fmt: skip


def describe_rate(counts: Counts | Totals) -> Posterior:
    """Return the posterior of a conversion rate: a beta distribution after Jeffreys' prior, Beta(1/2, 1/2)."""
    hits, misses = counts.converted + _PRIOR_COUNT, counts.recipients - counts.converted + _PRIOR_COUNT
    total = hits + misses

    def log_density(rate: float) -> float:
        return (hits - 1) * math.log(rate) + (misses - 1) * math.log1p(-rate)

    return Posterior(hits / total, math.sqrt(hits * misses / (total + 1)) / total, log_density, 0.0, 1.0)


def describe_amount(counts: Counts | Totals) -> Posterior:
    """Return an approximate posterior of the amount per recipient: a normal distribution.

    Its standard deviation is the standard error of the mean. With heavy tails that needs some hundred orders to be
    good; with fewer, the probabilities of being the best are too far from one half. Without amounts, or recipients, it
    is flat.
    """
    recipients = max(1, counts.recipients)
    mean = counts.amount / recipients
    variance = max(0.0, counts.amount_squares / recipients - mean**2) / recipients
    deviation = math.sqrt(variance) or max(1e-9, abs(mean))
    return Posterior(mean, deviation, lambda value: -(((value - mean) / deviation) ** 2) / 2)


def compare(posteriors: Sequence[Posterior]) -> Comparison:
    """Return the chances and losses of independent variants, integrated on a grid."""
    low = min(max(part.minimum, part.mean - _STANDARD_DEVIATIONS * part.deviation) for part in posteriors)
    high = max(min(part.maximum, part.mean + _STANDARD_DEVIATIONS * part.deviation) for part in posteriors)
    width = (high - low) / _POINTS
    points = [low + width * (point + 0.5) for point in range(_POINTS)]
    masses, below = [], []
    for part in posteriors:
        logs = [part.log_density(point) for point in points]
        top = max(logs)
        weights = [math.exp(value - top) for value in logs]
        total = math.fsum(weights)
        mass, sums, sum_so_far = [weight / total for weight in weights], [], 0.0
        for value in mass:
            # The middle of the cell, so that two equal variants get the same chance
            sums.append(sum_so_far + value / 2)
            sum_so_far += value
        masses.append(mass)
        below.append(sums)
    products = [math.prod(column) for column in zip(*below, strict=True)]
    chances = [
        math.fsum(
            value * product / own if own else 0.0 for value, product, own in zip(mass, products, sums, strict=True)
        )
        for mass, sums in zip(masses, below, strict=True)
    ]
    best = high - width * math.fsum(products)
    means = [math.fsum(value * point for value, point in zip(mass, points, strict=True)) for mass in masses]
    total = math.fsum(chances)
    return Comparison(tuple(chance / total for chance in chances), tuple(max(0.0, best - mean) for mean in means))
