"""Effects measured against a held-out group: known intervals, people and percent, and coverage by simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.experiments.evidence import Counts
from appliance.experiments.holdout import compute_newcombe_interval, measure_holdout
from tests.kit.experiment_simulation import draw_binomials


@pytest.mark.parametrize(
    ("treated", "control", "low", "high"),
    [
        (Counts(70, 56), Counts(80, 48), 0.0524, 0.3339),
        (Counts(10, 9), Counts(10, 3), 0.1705, 0.8090),
        (Counts(56, 5), Counts(29, 0), -0.0381, 0.1926),
        (Counts(10, 10), Counts(10, 0), 0.6075, 1.0),
    ],
)
def test_newcombe_intervals_match_the_paper(treated: Counts, control: Counts, low: float, high: float) -> None:
    """The intervals of method 10 are those of table II of Newcombe's paper."""
    assert compute_newcombe_interval(treated, control, 0.05) == pytest.approx((low, high), abs=0.0001)


def test_an_effect_in_people_and_percent() -> None:
    """2,000 of 95,000 against 80 of 5,000: half a point, 480 people, a third more, if one looks once."""
    result = measure_holdout(Counts(95_000, 2000), Counts(5000, 80))
    assert result.treated_rate == pytest.approx(0.02105, abs=0.0001)
    assert result.held_out_rate == 0.016
    assert result.people.value == pytest.approx(480)
    assert result.lift.value == pytest.approx(0.316, abs=0.001)
    assert result.fixed_people.low is not None
    assert result.fixed_people.low > 0
    assert result.people.low is not None
    assert result.people.low < result.fixed_people.low


def test_no_group_is_no_effect() -> None:
    """Without recipients in one of the groups nothing is known, without conversions only the rates are."""
    nobody = measure_holdout(Counts(1000, 30), Counts(0, 0))
    assert nobody.difference.value is None
    assert nobody.lift.low is None
    nothing = measure_holdout(Counts(1000, 0), Counts(1000, 0))
    assert nothing.difference.value == 0
    assert nothing.difference.low is None
    assert nothing.lift.value is None
    assert nothing.fixed_difference.low == pytest.approx(-0.00383, abs=0.0001)


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(0, 300), st.integers(0, 300))
def test_intervals_contain_their_estimate(treated: int, held_out: int, first: int, second: int) -> None:
    """Each interval contains its estimate, is given in the same order, and people are the difference of all treated."""
    result = measure_holdout(Counts(treated, min(first, treated)), Counts(held_out, min(second, held_out)))
    for estimate in (result.difference, result.fixed_difference, result.people, result.fixed_people):
        if estimate.value is not None and estimate.low is not None and estimate.high is not None:
            assert estimate.low - 1e-9 <= estimate.value <= estimate.high + 1e-9
    assert result.people.value == pytest.approx(result.difference.value * treated)


def test_intervals_hold_as_often_as_they_promise(full: bool) -> None:
    """The wide interval holds at all of ten looks in 95 % of the groups, the narrow one at the last look."""
    groups, looks, treated, held_out, rate, lift = 1000 if full else 60, 10, 9000, 1000, 0.03, 0.15
    rng = random.Random(26)
    true_difference, kept, fixed_kept = rate * lift, 0, 0
    for _ in range(groups):
        converted = [0, 0]
        holds = True
        columns = [
            draw_binomials(rng, size // looks, share, looks)
            for size, share in ((treated, rate * (1 + lift)), (held_out, rate))
        ]
        for look in range(looks):
            converted = [total + column[look] for total, column in zip(converted, columns, strict=True)]
            part = (look + 1) / looks
            result = measure_holdout(
                Counts(round(treated * part), converted[0]), Counts(round(held_out * part), converted[1])
            )
            low, high = result.difference.low, result.difference.high
            holds &= low is None or high is None or low <= true_difference <= high
        kept += holds
        low, high = result.fixed_difference.low, result.fixed_difference.high
        assert low is not None
        assert high is not None
        fixed_kept += low <= true_difference <= high
    tolerance = 4 * math.sqrt(0.05 * 0.95 / groups)
    assert kept / groups >= 0.95 - tolerance
    assert fixed_kept / groups >= 0.95 - tolerance
