"""Measures how often experiments decide: `python -m benchmarks.bench_experiments`; not a test, run by hand.

Simulates experiments that are looked at after each hundredth of their recipients. Prints how often a winner is declared
where there is no difference, and how often the right one is found where a variant is 20 % better, at the size that
`sample_size` plans; then the same for amounts.
"""

import argparse
import random
import time
from functools import partial

from appliance.experiments.decision import find_amount_winner, find_rate_winner
from appliance.experiments.sample_size import plan_by_amount, plan_by_rate
from tests.kit.experiment_simulation import draw_amounts, draw_amounts_pool, draw_late_rates, draw_rates, simulate


def main() -> None:
    """Run the simulations and print a line of a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--kind", choices=["rates", "late", "amounts"], default="rates")
    parser.add_argument("--variants", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.005, 0.03, 0.2])
    options = parser.parse_args()
    rng = random.Random(1)
    print("| Outcome | Rate | Variants | Recipients of each | Winner without a difference | Right winner of 20 % "
          "(wrong) | at (mean) | s |", flush=True)  # fmt: skip
    for variants in options.variants:
        for rate in options.rates:
            rates, better = [rate] * variants, [rate * 1.2] + [rate] * (variants - 1)
            for kind in ("equal", "log-normal", "pareto") if options.kind == "amounts" else (options.kind,):
                started_at = time.process_time()
                if options.kind == "amounts":
                    amounts = draw_amounts_pool(kind)
                    recipients = plan_by_amount(rate, amounts.typical, 0.2, variants) or 0
                    draw = partial(draw_amounts, rng, recipients, amounts=amounts)
                    find_winner = partial(find_amount_winner, typical=amounts.typical)
                else:
                    recipients = plan_by_rate(rate, 0.2, variants) or 0
                    draw = partial(draw_late_rates if kind == "late" else draw_rates, rng, recipients)
                    find_winner = find_rate_winner
                null = simulate(options.experiments, draw(rates), find_winner)
                real = simulate(options.experiments, draw(better), find_winner, best=0)
                print(
                    f"| {kind} | {rate:.1%} | {variants} | {recipients:,} | {null.winners / null.experiments:.2%} "
                    f"| {real.right_winners / real.experiments:.1%} "
                    f"({(real.winners - real.right_winners) / real.experiments:.2%}) | {real.stopped_at:.0%} "
                    f"| {time.process_time() - started_at:.0f} |", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
