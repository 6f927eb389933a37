"""Which variant a recipient gets: a position that depends only on seed and contact id, cut into ranges of groups.

Each contact has a position in an experiment, a number from 0 to `POSITIONS` - 1. An `Assignment` cuts the positions
into consecutive ranges: the contacts of one range are held out, those of another get variant 1, and so on. Ranges are
only ever appended, so a change of weights applies to positions that had no group, and never moves a contact. The same
arithmetic exists as Python (`get_group`) and as SQL (`build_group_sql`), for audiences that one statement writes.

With an uneven allocation, later batches of a test give better variants more recipients (`choose_weights`): Thompson
sampling, after "On the likelihood that one unknown probability exceeds another", Biometrika 25, 1933. A variant is
chosen with the probability that it is the best. The weights change only between batches, because conversions come late
(Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011, section 4). The probability is
integrated rather than drawn, so the weights follow from the counts, and who gets which variant follows from the seed.

The evidence stays valid, because the weights of a batch are fixed before it, and each batch is compared in itself. An
uneven batch shows a difference more slowly: use it to lose fewer conversions during a test, not to decide sooner.
"""

import hashlib
from collections.abc import Sequence

from msgspec import Struct

from appliance.experiments.evidence import Batches
from appliance.experiments.posterior import compare, describe_amount, describe_rate, standardize_batches

MAX_VARIANTS = 5
# The groups of contacts that get no variant; variants have the numbers 1 to MAX_VARIANTS.
HELD_OUT, WAITING = -1, 0
# The prime 2^31 - 1. Products of two positions fit into the 64-bit integers of SQLite.
POSITIONS = 2**31 - 1
_COEFFICIENTS = 4
# Each variant gets at least this share of a batch. So a variant whose first results were poor by chance is tested
# further, and the leader is still compared with others.
MIN_SHARE = 0.1
# Before each variant has as many recipients, all get the same share.
MIN_RECIPIENTS = 100


class Range(Struct, frozen=True):
    """The positions below `end` that are in no earlier range; they belong to a group."""

    end: int
    group: int


class Assignment(Struct, frozen=True):
    """The assignment of one experiment; contacts beyond the last range are waiting for the winner.

    Store it with the experiment, because the weights that it was made from are not enough to make it again.
    """

    seed: int
    ranges: tuple[Range, ...] = ()


def start_assignment(seed: int, holdout: float = 0.0) -> Assignment:
    """Return an assignment that holds out a share (0 to 1) of the contacts; the others are waiting."""
    assignment = Assignment(seed)
    return _append(assignment, holdout, {HELD_OUT: 1.0}) if holdout else assignment


def add_batch(assignment: Assignment, share: float, weights: Sequence[float]) -> Assignment:
    """Return the assignment with a further share (0 to 1) of all contacts divided between the variants by weight.

    `weights` are those of variants 1, 2 and so on; a variant of weight 0 gets no contact of this batch. The contacts
    are taken from those that are waiting, and all others keep their group. Raises ValueError if fewer are waiting, if
    there are more than `MAX_VARIANTS` weights, or if one is negative or all are 0.
    """
    if len(weights) > MAX_VARIANTS or any(weight < 0 for weight in weights) or not any(weights):
        raise ValueError(f"between 1 and {MAX_VARIANTS} weights of at least 0 are needed, got {list(weights)}")
    return _append(assignment, share, dict(enumerate(weights, start=1)))


def assign_waiting(assignment: Assignment, variant: int) -> Assignment:
    """Return the assignment in which all waiting contacts get a variant, which is usually the winner.

    `variant` counts from 1. Raises ValueError for another number than that of a variant.
    """
    if not 1 <= variant <= MAX_VARIANTS:
        raise ValueError(f"variants have the numbers 1 to {MAX_VARIANTS}, not {variant}")
    end = _get_end(assignment)
    if end == POSITIONS:
        return assignment
    return Assignment(assignment.seed, (*assignment.ranges, Range(POSITIONS, variant)))


def get_waiting_share(assignment: Assignment) -> float:
    """Return the share (0 to 1) of all contacts that are waiting."""
    return 1 - _get_end(assignment) / POSITIONS


def _get_end(assignment: Assignment) -> int:
    return assignment.ranges[-1].end if assignment.ranges else 0


def _append(assignment: Assignment, share: float, weights: dict[int, float]) -> Assignment:
    """Return the assignment with a further range for each group of positive weight.

    `share` (0 to 1) is that of all these groups together. Raises ValueError if fewer contacts are waiting.
    """
    start = _get_end(assignment)
    end = start + round(share * POSITIONS)
    # Shares that sum up to 1 may, rounded, exceed the positions by one for each range.
    if not 0 < share <= 1 or end > POSITIONS + len(assignment.ranges):
        raise ValueError(f"a share of {share} is not available, {get_waiting_share(assignment)} is")
    total, weight_so_far = sum(weights.values()), 0.0
    ranges = list(assignment.ranges)
    for group, weight in weights.items():
        weight_so_far += weight
        if weight:
            ranges.append(Range(min(POSITIONS, start + round((end - start) * weight_so_far / total)), group))
    return Assignment(assignment.seed, tuple(ranges))


def _derive_coefficients(seed: int) -> list[int]:
    """Return the coefficients of the polynomial of a seed, highest power first, each below `POSITIONS`."""
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8 * _COEFFICIENTS, person=b"experiment").digest()
    return [int.from_bytes(digest[start : start + 8], "big") % POSITIONS for start in range(0, len(digest), 8)]


def get_position(seed: int, contact_id: int) -> int:
    """Return the position of a contact in the experiment with this seed.

    It is the value of a cubic polynomial modulo a prime, with coefficients drawn by the seed. Over all seeds, the
    positions of any four contacts are independent and uniform (Wegman and Carter, "New hash functions and their use in
    authentication and set equality", J. Computer and System Sciences 22, 1981, section 3), so the sizes of groups and
    the counts of conversions have the variances of a random draw, whatever pattern the ids have.
    """
    value = 0
    for coefficient in _derive_coefficients(seed):
        value = (value * contact_id + coefficient) % POSITIONS
    return value


def get_group(assignment: Assignment, contact_id: int) -> int:
    """Return the group of a contact: a variant from 1, `WAITING` or `HELD_OUT`."""
    position = get_position(assignment.seed, contact_id)
    return next((part.group for part in assignment.ranges if position < part.end), WAITING)


def build_group_sql(assignment: Assignment, contact_id: str) -> str:
    """Return an SQL expression for the group of the contact whose id is the SQL expression `contact_id`.

    `contact_id` should be a column, because it is evaluated four times. Ids must not be negative.
    """
    first, *others = _derive_coefficients(assignment.seed)
    value = str(first)
    for coefficient in others:
        value = f"({value} * ({contact_id} % {POSITIONS}) + {coefficient}) % {POSITIONS}"
    if not assignment.ranges:
        return str(WAITING)
    cases = " ".join(f"WHEN position < {part.end} THEN {part.group}" for part in assignment.ranges)
    # SQLite computes the position once for each row only if the inner query has a LIMIT; else once for each case.
    return f"(SELECT CASE {cases} ELSE {WAITING} END FROM (SELECT {value} AS position LIMIT 1))"


def choose_weights(batches: Batches, variants: int, is_amount: bool = False) -> tuple[float, ...]:
    """Return the weights of the next batch, which sum up to 1, from the counts of the batches so far.

    `is_amount` compares amounts per recipient, else conversion rates. Without batches all weights are equal.
    """
    recipients = [sum(batch[variant].recipients for batch in batches) for variant in range(variants)]
    if min(recipients) < MIN_RECIPIENTS:
        return (1 / variants,) * variants
    describe = describe_amount if is_amount else describe_rate
    chances = compare([describe(totals) for totals in standardize_batches(batches)]).chances
    return tuple(MIN_SHARE + (1 - variants * MIN_SHARE) * chance for chance in chances)
