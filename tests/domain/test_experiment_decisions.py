"""Decisions about variants: figures, invariants, and how often simulated experiments err and find a difference."""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.experiments.assignment import MIN_SHARE, choose_weights
from appliance.experiments.decision import (
    DEFAULT_ALPHA,
    MIN_CONVERSIONS,
    decide_by_amount,
    decide_by_rate,
    find_amount_winner,
    find_rate_winner,
)
from appliance.experiments.evidence import (
    Batches,
    Counts,
    Excess,
    Pair,
    TypicalAmount,
    bound_rate_ratio,
    find_amount_boundary,
    get_coin_variance,
    measure_amounts,
    measure_rates,
)
from appliance.experiments.posterior import compare, describe_amount, describe_rate, standardize_batches
from appliance.experiments.sample_size import (
    find_lift_by_amount,
    find_lift_by_rate,
    plan_by_amount,
    plan_by_rate,
)
from tests.kit.experiment_simulation import (
    LOOKS,
    draw_amounts,
    draw_amounts_pool,
    draw_binomials,
    draw_late_rates,
    draw_rates,
    simulate,
)
from tests.kit.sampling import examples, sampled

RATES = [0.005, 0.03, 0.2]
TYPICAL = TypicalAmount(50.0, 7500.0)


@st.composite
def batches_of(draw: st.DrawFn) -> list[list[Counts]]:
    """Draw the counts of two to five variants in one to three batches."""
    variants = draw(st.integers(2, 5))
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        batch = []
        for _ in range(variants):
            recipients = draw(st.integers(0, 5000))
            converted = draw(st.integers(0, recipients))
            amount = converted * draw(st.floats(0.01, 100))
            squares = amount**2 / max(1, converted) * draw(st.floats(1, 20))
            batch.append(Counts(recipients, converted, amount, squares))
        batches.append(batch)
    return batches


# The evidence


def test_evidence_is_a_martingale_without_a_difference() -> None:
    """Over all orders of ten conversions, weighted by their probability, the mean of the evidence is 1 at each step."""
    for treated, control in ((1, 1), (1, 4), (3, 2)):
        share = treated / (treated + control)
        for steps in range(11):
            mean = sum(
                math.comb(steps, hits) * share**hits * (1 - share) ** (steps - hits)
                * math.exp(measure_rates([Pair(Counts(treated, hits), Counts(control, steps - hits))]))
                for hits in range(steps + 1)
            )  # fmt: skip
            assert mean == pytest.approx(1)


def test_evidence_stays_valid_when_a_batch_depends_on_the_one_before() -> None:
    """If the winner of a batch gets more of the next one, the mean of the evidence is still 1."""
    mean = 0.0
    for first in range(7):
        shares = (1, 1) if first == 3 else (1, 4) if first < 3 else (4, 1)
        for second in range(7):
            share = shares[0] / sum(shares)
            chance = math.comb(6, first) / 2**6 * math.comb(6, second) * share**second * (1 - share) ** (6 - second)
            mean += chance * math.exp(measure_rates([
                Pair(Counts(100, first), Counts(100, 6 - first)),
                Pair(Counts(100 * shares[0], second), Counts(100 * shares[1], 6 - second)),
            ]))  # fmt: skip
    assert mean == pytest.approx(1)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 400), st.integers(0, 400))
def test_the_bounds_of_a_ratio_contain_the_estimate(treated: int, control: int, first: int, second: int) -> None:
    """The bounds contain the ratio of the rates, turn around with the variants, and are wider at a lower level."""
    first, second = min(first, treated), min(second, control)
    pair = Pair(Counts(treated, first), Counts(control, second))
    bounds = bound_rate_ratio([pair], 0.025)
    ratio = (first / treated) / (second / control) if second else math.inf
    if first or second:
        # Ratios beyond e^6 are not looked for
        assert min(bounds.low, math.exp(6)) <= ratio or ratio == 0 == bounds.low
        assert bounds.high >= min(ratio, math.exp(-6))
    flipped = bound_rate_ratio([Pair(pair.control, pair.treated)], 0.025)
    assert flipped.low == pytest.approx(1 / bounds.high)
    wide = bound_rate_ratio([pair], 0.005)
    assert wide.low <= bounds.low
    assert wide.high >= bounds.high


@given(st.floats(0.001, 0.999), st.floats(-3, 3))
def test_the_variance_of_a_coin_bounds_its_tails(share: float, exponent: float) -> None:
    """The moments of a biased coin stay below those of a normal distribution with its variance (Kearns and Saul)."""
    moment = share * math.exp(exponent * (1 - share)) + (1 - share) * math.exp(-exponent * share)
    assert math.log(moment) <= exponent**2 * get_coin_variance(share) / 2 + 1e-9


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6), st.sampled_from([0.05, 0.025, 0.01]))
def test_the_boundary_of_amounts_is_where_the_evidence_suffices(
    variance: float, precision: float, level: float
) -> None:
    """At the boundary the evidence is the inverse of the level, below it is less."""
    boundary = find_amount_boundary(variance, precision, level)
    assert measure_amounts(Excess(boundary, variance, 1.0), precision) == pytest.approx(math.log(1 / level), abs=1e-6)
    assert measure_amounts(Excess(boundary * 0.99, variance, 1.0), precision) < math.log(1 / level)


# The decision


@given(batches_of())
def test_figures_of_any_counts_fit_together(batches: list[list[Counts]]) -> None:
    """Chances sum up to 1, the interval contains the estimate, and a winner's interval excludes no difference."""
    for decision in (decide_by_rate(batches), decide_by_amount(batches, TYPICAL)):
        assert math.fsum(decision.chances) == pytest.approx(1)
        assert all(loss >= 0 for loss in decision.losses)
        assert decision.leader != decision.runner_up
        assert decision.values[decision.leader] == max(decision.values)
        assert decision.difference.estimate is not None
        if decision.code == "winner":
            assert decision.difference.low is not None
            assert decision.difference.low > 0
    assert (decide_by_rate(batches).code == "winner") is (find_rate_winner(batches) is not None)
    assert (decide_by_amount(batches, TYPICAL).code == "winner") is (find_amount_winner(batches, TYPICAL) is not None)


@given(batches_of(), st.randoms(use_true_random=False))
def test_the_order_of_variants_does_not_matter(batches: list[list[Counts]], rng: random.Random) -> None:
    """The same counts under other numbers lead to the same winner."""
    order = list(range(len(batches[0])))
    rng.shuffle(order)
    winner = find_rate_winner(batches)
    moved = find_rate_winner([[batch[variant] for variant in order] for batch in batches])
    assert (None if moved is None else order[moved]) == winner


@pytest.mark.parametrize(
    ("batch", "is_over", "code"),
    [
        ([Counts(1000, 9), Counts(1000, 0)], False, "too_early"),
        ([Counts(0, 0), Counts(0, 0)], False, "too_early"),
        ([Counts(1000, 9), Counts(1000, 0)], True, "too_close"),
        ([Counts(1000, 30), Counts(1000, 45)], False, "needs_more"),
        ([Counts(1000, 30), Counts(1000, 45)], True, "too_close"),
        ([Counts(10_000, 300), Counts(10_000, 400)], False, "winner"),
        ([Counts(10_000, 300), Counts(10_000, 400)], True, "winner"),
        ([Counts(10_000, 400), Counts(10_000, 400), Counts(10_000, 300)], False, "needs_more"),
        ([Counts(500_000, 30_000), Counts(500_000, 30_000), Counts(500_000, 20_000)], False, "too_close"),
    ],
)
def test_code_of_a_decision(batch: list[Counts], is_over: bool, code: str) -> None:
    """Each code has its counts; what is over without a winner is too close to call."""
    assert decide_by_rate([batch], is_over=is_over).code == code


def test_the_smallest_number_of_conversions_is_waited_for() -> None:
    """Fewer conversions than the smallest number decide nothing, however clear they are."""
    assert find_rate_winner([[Counts(1000, MIN_CONVERSIONS - 1), Counts(1000, 0)]]) is None
    assert find_rate_winner([[Counts(1000, MIN_CONVERSIONS), Counts(1000, 0)]]) == 0


def test_batches_are_compared_in_themselves() -> None:
    """A variant that got more of a better batch does not win by that."""
    batches = [[Counts(9000, 90), Counts(1000, 10)], [Counts(1000, 100), Counts(9000, 900)]]
    assert find_rate_winner(batches) is None
    merged = [[Counts(10_000, 190), Counts(10_000, 910)]]
    assert find_rate_winner(merged) == 1


def test_a_late_batch_does_not_reverse_the_order() -> None:
    """The variant that got most of a batch that has had no time yet keeps its lead in all figures."""
    old = [Counts(10_000, 350, 17_500, 1_250_000), Counts(10_000, 400, 20_000, 1_500_000)]
    new = [Counts(2000, 7, 350, 25_000), Counts(18_000, 72, 3600, 270_000)]
    for decision in (decide_by_rate([old, new]), decide_by_amount([old, new], TYPICAL)):
        assert decision.leader == 1
        assert decision.values[1] > decision.values[0]
        assert decision.chances[1] > 0.8
        assert decision.losses[1] < decision.losses[0]
    assert all(choose_weights([old, new], 2, is_amount)[1] > 0.75 for is_amount in (False, True))


def test_batches_of_equal_shares_are_summed() -> None:
    """Batches with equal shares are like one batch of all their recipients; one that lacks a variant is left out."""
    batch = [Counts(1000, 30, 900, 60_000), Counts(3000, 120, 5000, 300_000)]
    double = [Counts(2000, 60, 1800, 120_000), Counts(6000, 240, 10_000, 600_000)]
    totals = standardize_batches([batch, batch, [Counts(0, 0), Counts(500, 400)]])
    for total, expected in zip(totals, standardize_batches([double]), strict=True):
        assert total == pytest.approx(expected)


def test_chances_match_known_values() -> None:
    """Equal counts have equal chances; else they agree with draws from the posteriors."""
    assert compare([describe_rate(Counts(1000, 30))] * 4).chances == pytest.approx((0.25,) * 4)
    batch = [Counts(1000, 30), Counts(1000, 36), Counts(500, 17)]
    rng = random.Random(1)
    draws = [
        [rng.betavariate(counts.converted + 0.5, counts.recipients - counts.converted + 0.5) for counts in batch]
        for _ in range(20_000)
    ]
    result = compare([describe_rate(counts) for counts in batch])
    for variant in range(3):
        chance = sum(values[variant] == max(values) for values in draws) / len(draws)
        loss = sum(max(values) - values[variant] for values in draws) / len(draws)
        assert result.chances[variant] == pytest.approx(chance, abs=0.015)
        assert result.losses[variant] == pytest.approx(loss, rel=0.05)
    amounts = compare([describe_amount(Counts(1000, 30, 1500, 2e5)), describe_amount(Counts(1000, 30, 1500, 2e5))])
    assert amounts.chances == pytest.approx((0.5, 0.5))


# The size of a sample


@settings(max_examples=examples(4, full=25))
@given(st.floats(0.001, 0.3), st.floats(0.05, 1.0), st.integers(2, 5))
def test_sample_size_and_lift_are_inverse(rate: float, lift: float, variants: int) -> None:
    """The planned recipients find the difference they were planned for; more variants and smaller ones need more."""
    recipients = plan_by_rate(rate, lift, variants)
    assert recipients is not None
    assert find_lift_by_rate(recipients, rate, variants) == pytest.approx(lift, rel=0.01)
    assert (plan_by_rate(rate, lift * 0.9, variants) or 0) > recipients
    amounts = plan_by_amount(rate, TYPICAL, lift, variants)
    assert amounts is not None
    assert amounts > recipients * 0.9
    assert find_lift_by_amount(amounts, rate, TYPICAL, variants) == pytest.approx(lift, rel=0.01)


def test_what_cannot_be_found_is_none() -> None:
    """Differences that a billion recipients, or so few, do not show have no number; impossible rates are refused."""
    assert plan_by_rate(0.000_01, 0.001) is None
    assert find_lift_by_rate(10, 0.01) is None
    for rate, lift in ((0.0, 0.2), (1.0, 0.2), (0.9, 0.2), (0.1, 0.0), (0.1, -0.1)):
        with pytest.raises(ValueError, match="can be higher"):
            plan_by_rate(rate, lift)


# Uneven allocation


@given(batches_of())
def test_no_variant_starves(batches: list[list[Counts]]) -> None:
    """Each variant gets its smallest share, and all of them sum up to 1."""
    for is_amount in (False, True):
        weights = choose_weights(batches, len(batches[0]), is_amount)
        assert math.fsum(weights) == pytest.approx(1)
        assert min(weights) >= MIN_SHARE - 1e-9
    assert choose_weights([], 4) == (0.25,) * 4


def test_the_leader_gets_most() -> None:
    """A variant that is nearly certainly the best gets all but the smallest shares."""
    weights = choose_weights([[Counts(10_000, 300), Counts(10_000, 500), Counts(10_000, 300)]], 3)
    assert weights == pytest.approx((0.1, 0.8, 0.1), abs=0.001)


# Simulations. Bounds are those of chance: 4 standard deviations of the share.


def limit_share(share: float, experiments: int) -> float:
    """Return four standard deviations of the share of that many experiments."""
    return 4 * math.sqrt(share * (1 - share) / experiments)


CELLS = list(itertools.product(RATES, (2, 5)))


@pytest.mark.parametrize(("rate", "variants"), CELLS)
def test_experiments_without_a_difference_rarely_have_a_winner(rate: float, variants: int, full: bool) -> None:
    """Looked at a hundred times, at most one in twenty declares a winner."""
    experiments, recipients = 10_000 if full else 30, plan_by_rate(rate, 0.2, variants) or 0
    draw = draw_rates(random.Random(f"null {rate} {variants}"), recipients, [rate] * variants)
    result = simulate(experiments, draw, find_rate_winner)
    assert result.winners / experiments <= DEFAULT_ALPHA + (0 if full else limit_share(DEFAULT_ALPHA, experiments))


@pytest.mark.parametrize(("rate", "variants"), CELLS)
def test_a_difference_is_found_with_the_promised_power(rate: float, variants: int, full: bool) -> None:
    """Four in five experiments of the planned size find a variant that is 20 % better, and hardly any another one."""
    experiments, recipients = 10_000 if full else 30, plan_by_rate(rate, 0.2, variants) or 0
    draw = draw_rates(random.Random(f"real {rate} {variants}"), recipients, [rate * 1.2] + [rate] * (variants - 1))
    result = simulate(experiments, draw, find_rate_winner, best=0)
    assert result.right_winners / experiments >= 0.8 - (0 if full else limit_share(0.8, experiments))
    assert result.winners - result.right_winners <= experiments * 0.02


@pytest.mark.parametrize("rates", sampled([[0.03] * 2, [0.2] * 2, [0.04, 0.04, 0.03, 0.03, 0.03]], [[0.03] * 2]))
def test_late_conversions_cause_no_winners(rates: list[float], full: bool) -> None:
    """Conversions that come hours later are looked at as they come; two equal ones above others are not winners."""
    experiments = 5000 if full else 40
    draw = draw_late_rates(random.Random(f"late {rates}"), 10_000, rates)
    result = simulate(experiments, draw, find_rate_winner)
    assert result.winners / experiments <= DEFAULT_ALPHA + (0 if full else limit_share(DEFAULT_ALPHA, experiments))


@pytest.mark.parametrize(
    ("kind", "repeats"), sampled(itertools.product(("equal", "log-normal", "pareto"), (0.0, 0.3)), [("pareto", 0.3)])
)
def test_amounts_without_a_difference_rarely_have_a_winner(kind: str, repeats: float, full: bool) -> None:
    """So do experiments about amounts, with a heavy tail and recipients who order again."""
    experiments, amounts = 3000 if full else 50, draw_amounts_pool(kind)
    rng = random.Random(f"amounts {kind} {repeats}")
    draw = draw_amounts(rng, 20_000, [0.03, 0.03], amounts, repeats)
    result = simulate(experiments, draw, partial(find_amount_winner, typical=amounts.typical))
    assert result.winners / experiments <= DEFAULT_ALPHA + (0 if full else limit_share(DEFAULT_ALPHA, experiments))


@pytest.mark.parametrize("kind", sampled(["equal", "log-normal", "pareto"], ["log-normal"]))
def test_a_difference_of_amounts_is_found(kind: str, full: bool) -> None:
    """The planned size of a test of amounts has the promised power too."""
    experiments, amounts = 2000 if full else 60, draw_amounts_pool(kind)
    recipients = plan_by_amount(0.03, amounts.typical, 0.2) or 0
    draw = draw_amounts(random.Random(f"found {kind}"), recipients, [0.036, 0.03], amounts)
    result = simulate(experiments, draw, partial(find_amount_winner, typical=amounts.typical), best=0)
    assert result.right_winners / experiments >= 0.8 - (0 if full else limit_share(0.8, experiments))


def draw_adaptive(rng: random.Random, rates: list[float]) -> Callable[[], Iterator[Batches]]:
    """Return experiments of ten batches with weights that follow what came before, each better than the last one."""

    def draw() -> Iterator[Batches]:
        batches: list[list[Counts]] = []
        for number in range(10):
            weights = choose_weights(batches, len(rates))
            sizes = [round(2000 * weight) for weight in weights]
            # Later batches convert better, which must not count for whoever has more of them.
            batches.append([
                Counts(size, draw_binomials(rng, size, rate * (1 + number / 5), 1)[0])
                for size, rate in zip(sizes, rates, strict=True)
            ])  # fmt: skip
            yield batches

    return draw


def test_uneven_batches_cause_no_winners(full: bool) -> None:
    """Thompson sampling with rates that change from batch to batch declares no more winners than promised."""
    experiments = 3000 if full else 30
    result = simulate(experiments, draw_adaptive(random.Random("uneven"), [0.03, 0.03]), find_rate_winner)
    assert result.winners / experiments <= DEFAULT_ALPHA + (0 if full else limit_share(DEFAULT_ALPHA, experiments))


def test_uneven_batches_give_the_better_variant_more() -> None:
    """In the end the better variant has got most recipients."""
    shares = []
    draw = draw_adaptive(random.Random("better"), [0.03, 0.045])
    for _ in range(5):
        *_, batches = draw()
        recipients = [sum(batch[variant].recipients for batch in batches) for variant in range(2)]
        shares.append(recipients[1] / sum(recipients))
    assert sum(shares) / len(shares) > 0.7


def draw_growing(rng: random.Random, rates: list[float]) -> Batches:
    """Return the counts at the end of a test of four batches of 20,000, whose conversions come evenly over its time."""
    batches: list[list[Counts]] = []
    for _ in range(4):
        batches = [_grow(rng, batch, rates) for batch in batches]
        batches.append([Counts(round(20_000 * weight), 0) for weight in choose_weights(batches, len(rates))])
    return [_grow(rng, batch, rates) for batch in batches]


def _grow(rng: random.Random, batch: list[Counts], rates: list[float]) -> list[Counts]:
    """Return a batch with the conversions of a further quarter of the test."""
    return [
        Counts(counts.recipients, counts.converted + draw_binomials(rng, counts.recipients, rate / 4, 1)[0])
        for counts, rate in zip(batch, rates, strict=True)
    ]


def test_the_better_variant_leads_an_uneven_test_too(full: bool) -> None:
    """At the end of a test whose batches are of different age, the better variant leads as if all shares were equal."""
    experiments, rng = 500 if full else 50, random.Random("growing")
    leaders = [decide_by_rate(draw_growing(rng, [0.035, 0.04])).leader for _ in range(experiments)]
    assert leaders.count(1) >= experiments * 0.98


def test_the_leader_of_an_uneven_test_is_the_best_as_often_as_said(full: bool) -> None:
    """With rates that are drawn anew for each test, the leader is the better variant as often as its chance says."""
    experiments, rng, right, chances = 1000 if full else 60, random.Random("chances"), 0, 0.0
    for _ in range(experiments):
        rates = [rng.uniform(0.036, 0.044), rng.uniform(0.036, 0.044)]
        decision = decide_by_rate(draw_growing(rng, rates))
        right += decision.leader == rates.index(max(rates))
        chances += decision.chances[decision.leader]
    assert right / experiments >= chances / experiments - limit_share(chances / experiments, experiments)


def test_binomial_draws_have_their_mean_and_variance() -> None:
    """The simulation itself draws what it should."""
    numbers = draw_binomials(random.Random(1), 1683, 0.005, 20_000)
    mean = sum(numbers) / len(numbers)
    assert mean == pytest.approx(1683 * 0.005, rel=0.02)
    assert sum((number - mean) ** 2 for number in numbers) / len(numbers) == pytest.approx(8.373, rel=0.05)
    assert len(list(draw_rates(random.Random(1), 1000, [0.1, 0.1])())) == LOOKS
