"""Assignment of recipients to variants: shares, balance, and groups that stay when weights change."""

import math
import time
from collections import Counter

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.experiments.assignment import (
    HELD_OUT,
    MAX_VARIANTS,
    POSITIONS,
    WAITING,
    Assignment,
    add_batch,
    assign_waiting,
    build_group_sql,
    get_group,
    get_position,
    get_waiting_share,
    start_assignment,
)

SEEDS = st.integers(0, 2**63 - 1)
WEIGHTS = st.lists(st.integers(0, 100), min_size=1, max_size=MAX_VARIANTS).filter(any)
IDS = st.lists(st.integers(1, 2**62), max_size=100, unique=True)
FIVE = add_batch(start_assignment(7, holdout=0.05), 0.5, [1, 1, 1, 1, 1])


def count_groups(assignment: Assignment, ids: str, count: int) -> Counter[int]:
    """Return the sizes of the groups, computed by SQLite; `ids` is an expression of `n`, which counts from 1."""
    database = apsw.Connection(":memory:")
    group = build_group_sql(assignment, "id")
    return Counter(dict(database.execute(
        f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "
        f"SELECT {group} AS chosen, count(*) FROM (SELECT {ids} AS id FROM numbers) GROUP BY chosen"
    )))  # fmt: skip


def chi_square(sizes: Counter[int], shares: dict[int, float]) -> float:
    """Return the statistic of Pearson's test that groups have their shares."""
    total = sum(sizes.values())
    return sum((sizes[group] - total * share) ** 2 / (total * share) for group, share in shares.items())


@given(SEEDS, st.floats(0, 0.5), st.lists(st.tuples(st.floats(0.01, 0.3), WEIGHTS), max_size=6), IDS)
def test_new_batches_and_weights_move_nobody(
    seed: int, holdout: float, batches: list[tuple[float, list[int]]], ids: list[int]
) -> None:
    """Whoever has a group keeps it, whatever batches and weights follow, and when the rest gets the winner."""
    assignment = start_assignment(seed, holdout)
    for share, weights in [*batches, (0.0, [1])]:
        before = {contact_id: get_group(assignment, contact_id) for contact_id in ids}
        waiting = get_waiting_share(assignment)
        if not share:
            assignment = assign_waiting(assignment, 2)
        elif share > waiting + 1e-6:
            with pytest.raises(ValueError, match="is not available"):
                add_batch(assignment, share, weights)
        else:
            assignment = add_batch(assignment, share, weights)
        for contact_id, group in before.items():
            assert group in (WAITING, get_group(assignment, contact_id))
    assert WAITING not in {get_group(assignment, contact_id) for contact_id in ids}
    assert get_waiting_share(assignment) == 0
    assert assign_waiting(assignment, 1) == assignment


@given(SEEDS, st.floats(0, 0.5), WEIGHTS, IDS)
def test_sql_and_python_agree(seed: int, holdout: float, weights: list[int], ids: list[int]) -> None:
    """SQLite computes the same groups from a column as Python does, also for ids beyond the prime."""
    assignment = add_batch(start_assignment(seed, holdout), 0.5, weights)
    database = apsw.Connection(":memory:")
    database.execute("CREATE TABLE contact (id INTEGER PRIMARY KEY)")
    database.executemany("INSERT INTO contact VALUES (?)", [(contact_id,) for contact_id in ids])
    groups = dict(database.execute(f"SELECT id, {build_group_sql(assignment, 'id')} FROM contact"))
    assert groups == {contact_id: get_group(assignment, contact_id) for contact_id in ids}


def test_an_assignment_without_ranges_lets_everybody_wait() -> None:
    """Before anything is assigned, all contacts are waiting, in Python and in SQL."""
    assert get_group(start_assignment(1), 5) == WAITING
    assert count_groups(start_assignment(1), "n", 10) == {WAITING: 10}


# The ids of tenants that take turns, of imports with gaps, and of contacts made in the order of a second property
PATTERNS = ["n", "2 * n", "n * 10 + 3", "n * 1000", "n * 65536", "n * n", f"n * {POSITIONS // 3}", "n + (n / 50) * 950"]


@pytest.mark.parametrize("ids", PATTERNS)
def test_groups_are_balanced(ids: str, full: bool) -> None:
    """The groups of many contacts have their shares up to chance, whatever steps the ids take.

    The bound is exceeded by chance once in 100,000 assignments (chi-square, 6 degrees of freedom).
    """
    shares = {HELD_OUT: 0.05, WAITING: 0.45, **dict.fromkeys(range(1, 6), 0.1)}
    assert chi_square(count_groups(FIVE, ids, 1_000_000 if full else 100_000), shares) < 33.1


def test_groups_are_as_balanced_as_by_chance_and_not_more(full: bool) -> None:
    """Over many seeds, the chi-square statistic has the mean and the variance of that distribution."""
    seeds, contacts = (1000, 10_000) if full else (150, 3000)
    for ids in ("n", "2 * n", "n * 1000"):
        statistics = [
            chi_square(count_groups(add_batch(start_assignment(seed), 1.0, [1, 1, 1, 1, 1]), ids, contacts),
                       dict.fromkeys(range(1, 6), 0.2))
            for seed in range(seeds)
        ]  # fmt: skip
        mean = sum(statistics) / seeds
        variance = sum((value - mean) ** 2 for value in statistics) / (seeds - 1)
        assert abs(mean - 4) < 4 * math.sqrt(8 / seeds)
        assert abs(variance - 8) < 4 * math.sqrt(8**2 * (2 + 12 / 4) / seeds)


def test_experiments_are_independent() -> None:
    """Whether a contact is in a group of one experiment says nothing about their group in another one."""
    both = Counter((get_position(1, n) * 2 // POSITIONS, get_position(2, n) * 2 // POSITIONS) for n in range(20_000))
    assert all(abs(count - 5000) < 5 * math.sqrt(20_000 * 3 / 16) for count in both.values())


def test_assignment_costs_little() -> None:
    """SQLite assigns 100,000 contacts within a tenth of the time in which they could be written as messages."""
    started_at = time.process_time()
    count_groups(FIVE, "n", 100_000)
    # Fixing an audience takes over 20 microseconds of processor time for each contact.
    assert time.process_time() - started_at < 0.2


@pytest.mark.parametrize(
    ("share", "weights"),
    [(0.5, []), (0.5, [0, 0]), (0.5, [1, -1]), (0.5, [1] * 6), (0.0, [1]), (1.1, [1]), (-0.1, [1])],
)
def test_impossible_shares_and_weights_are_refused(share: float, weights: list[int]) -> None:
    """Too many, negative or only zero weights raise ValueError, and so does a share of nobody or of more than all."""
    with pytest.raises(ValueError, match=r"needed|not available"):
        add_batch(start_assignment(1), share, weights)


def test_an_unknown_winner_is_refused() -> None:
    """Waiting contacts get only a number that a variant may have."""
    with pytest.raises(ValueError, match="numbers 1 to 5"):
        assign_waiting(FIVE, 6)
