"""Simulated experiments that are looked at after each part of their recipients, or of the time they are given."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from appliance.experiments.evidence import Batches, Counts, TypicalAmount

LOOKS = 100


class Outcome(NamedTuple):
    """What became of many experiments: those with a winner, those with the right one, and when it was declared.

    `stopped_at` is the mean share of the recipients (or of the conversions) after which the decided ones were decided.
    """

    experiments: int
    winners: int
    right_winners: int
    stopped_at: float


def draw_binomials(rng: random.Random, trials: int, rate: float, count: int) -> list[int]:
    """Return independent binomial numbers, by inversion."""
    mean, deviation = trials * rate, math.sqrt(trials * rate * (1 - rate))
    numbers = range(max(0, int(mean - 12 * deviation - 5)), min(trials, int(mean + 12 * deviation + 30)) + 1)
    logs = (
        math.lgamma(trials + 1) - math.lgamma(number + 1) - math.lgamma(trials - number + 1)
        + number * math.log(rate) + (trials - number) * math.log1p(-rate)
        for number in numbers
    )  # fmt: skip
    return rng.choices(numbers, [math.exp(value) for value in logs], k=count)


def simulate(
    experiments: int,
    draw: Callable[[], Iterator[Batches]],
    find_winner: Callable[[Batches], int | None],
    best: int = -1,
) -> Outcome:
    """Look at experiments until they have a winner or end; `draw` yields the counts of one at each look."""
    winners = right_winners = looks = 0
    for _ in range(experiments):
        for number, batches in enumerate(draw(), start=1):
            winner = find_winner(batches)
            if winner is not None:
                winners += 1
                right_winners += winner == best
                looks += number
                break
    return Outcome(experiments, winners, right_winners, looks / max(1, winners) / LOOKS)


def draw_rates(rng: random.Random, recipients: int, rates: Sequence[float]) -> Callable[[], Iterator[Batches]]:
    """Return experiments whose recipients convert at once, looked at after each hundredth of the recipients."""
    step = max(1, recipients // LOOKS)

    def draw() -> Iterator[Batches]:
        columns = [draw_binomials_of(rate) for rate in rates]
        converted = [0] * len(rates)
        for look in range(LOOKS):
            converted = [total + column[look] for total, column in zip(converted, columns, strict=True)]
            yield [[Counts(step * (look + 1), total) for total in converted]]

    pools = {rate: iter(()) for rate in rates}

    def draw_binomials_of(rate: float) -> list[int]:
        numbers = [number for _, number in zip(range(LOOKS), pools[rate], strict=False)]
        if len(numbers) < LOOKS:
            pools[rate] = iter(draw_binomials(rng, step, rate, LOOKS * 1000))
            numbers = [next(pools[rate]) for _ in range(LOOKS)]
        return numbers

    return draw


def draw_late_rates(rng: random.Random, recipients: int, rates: Sequence[float]) -> Callable[[], Iterator[Batches]]:
    """Return experiments whose messages all left at once, and whose conversions come later and later."""
    # Half of the conversions come in the first tenth of the time.
    weights = [math.exp(-look / 14) for look in range(LOOKS)]

    def draw() -> Iterator[Batches]:
        columns = []
        for rate in rates:
            column = [0] * LOOKS
            for look in rng.choices(range(LOOKS), weights, k=draw_binomials(rng, recipients, rate, 1)[0]):
                column[look] += 1
            columns.append(column)
        converted = [0] * len(rates)
        for look in range(LOOKS):
            converted = [total + column[look] for total, column in zip(converted, columns, strict=True)]
            yield [[Counts(recipients, total) for total in converted]]

    return draw


class Amounts(NamedTuple):
    """A distribution of amounts: values to draw from, and what is typical of them."""

    pool: list[float]
    typical: TypicalAmount


def draw_amounts_pool(kind: str, size: int = 100_000) -> Amounts:
    """Return amounts that are equal, log-normal, or have a Pareto tail so heavy that their variance hardly exists."""
    rng = random.Random(kind)
    draw = {
        "equal": lambda: 40.0,
        "log-normal": lambda: rng.lognormvariate(3.5, 1.0),
        "pareto": lambda: 20 * rng.paretovariate(2.1),
    }[kind]
    pool = [draw() for _ in range(size)]
    return Amounts(pool, TypicalAmount(sum(pool) / size, sum(value * value for value in pool) / size))


def draw_amounts(
    rng: random.Random, recipients: int, rates: Sequence[float], amounts: Amounts, repeats: float = 0.0
) -> Callable[[], Iterator[Batches]]:
    """Return experiments with an amount for each conversion.

    A part of the conversions, `repeats`, is followed in the same step by a further order of the same recipient, or in
    the next one with equal probability.
    """
    step = max(1, recipients // LOOKS)
    columns_of = draw_rates(rng, recipients, rates)

    def draw() -> Iterator[Batches]:
        sums, squares, earlier = [0.0] * len(rates), [0.0] * len(rates), [0] * len(rates)
        again: list[list[float]] = [[] for _ in rates]
        for look, batches in enumerate(columns_of(), start=1):
            for variant, counts in enumerate(batches[0]):
                orders = rng.choices(amounts.pool, k=counts.converted - earlier[variant])
                earlier[variant] = counts.converted
                returning, again[variant] = again[variant], []
                for order in returning:
                    further = rng.choice(amounts.pool)
                    sums[variant] += further
                    squares[variant] += (order + further) ** 2 - order**2
                if repeats:
                    again[variant] = [order for order in orders if rng.random() < repeats]
                sums[variant] += sum(orders)
                squares[variant] += sum(order * order for order in orders)
            yield [[
                Counts(step * look, counts.converted, total, square)
                for counts, total, square in zip(batches[0], sums, squares, strict=True)
            ]]  # fmt: skip

    return draw
