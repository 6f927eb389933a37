"""Uneven allocation: later batches of a test give better variants more recipients (Thompson sampling).

Thompson, "On the likelihood that one unknown probability exceeds another", Biometrika 25, 1933: a variant is chosen
with the probability that it is the best. In batches, as conversions come late (Chapelle and Li, "An empirical
evaluation of Thompson sampling", NeurIPS 2011, section 4). The probability is integrated rather than drawn, so the
weights follow from the counts, and who gets which variant follows from the seed of the `assignment`.

The evidence stays valid, because the weights of a batch are fixed before it, and each batch is compared in itself. An
uneven batch shows a difference more slowly: use it to lose fewer conversions during a test, not to decide sooner.
"""

from appliance.experiments.evidence import Batches
from appliance.experiments.posterior import compare, describe_amount, describe_rate, standardize_batches

# Each variant gets at least this share of a batch. A variant with bad luck in the beginning gets its second chance, and
# the leader is still compared with others.
MIN_SHARE = 0.1
# Before each variant has as many recipients, all get the same share.
MIN_RECIPIENTS = 100


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
