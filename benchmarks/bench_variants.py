"""Measures what an A/B test adds to fixing an audience: `python -m benchmarks.bench_variants --contacts N --pairs N`.

Sends campaigns to all contacts with a long hold, in turns without a test and with five variants, a share that waits
and a holdout. Prints the processor seconds of the service and the time of each, and how much more the test takes by
the medians. Processor time is what other programs on the machine disturb least.
"""

import argparse
import os
import time
from statistics import median
from typing import Any

import apsw

from tests.kit.bulk_contacts import insert_contacts
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit, wait_until_idle

GOAL = 0.10
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "0"}
EXPERIMENT = {
    "variants": [{}, *({"subject": f"Subject {number}"} for number in range(2, 6))],
    "event": "order",
}  # fmt: skip


def fix(server: Server, api: Client, contacts: int, **attributes: Any) -> tuple[float, float]:
    """Send a campaign to all contacts and wait until its audience is fixed; return processor and clock seconds.

    `attributes` are further ones of the campaign.
    """
    body = {"name": "Large", "template_attributes": {"subject": "s", "body": "<p>b</p>"}, **attributes}
    campaign_id = api.post("/campaigns", body).expect(201)["id"]
    wait_until_idle(server.pid)
    database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    database.set_busy_timeout(5_000)
    cpu, started_at = cpu_seconds(server.pid), time.monotonic()
    asked_for = {"trigger_attributes": {"contact_list_id": 1}, "hold_seconds": 86_400}
    api.post(f"/campaigns/{campaign_id}/send", asked_for).expect(200)
    sql = "SELECT audience_count FROM campaign WHERE id = ? AND pending_snapshot IS NULL"
    while next(iter(database.execute(sql, (campaign_id,))), (0,))[0] != contacts:
        time.sleep(0.05)
    seconds = time.monotonic() - started_at
    return cpu_seconds(server.pid) - cpu, seconds


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--test-share", type=float, default=0.2)
    # Each contact who is held out gets an event like any who is skipped, which is most of what a holdout costs.
    parser.add_argument("--holdout", type=float, default=0.0)
    options = parser.parse_args()
    experiment = EXPERIMENT | {"test_share": options.test_share, "holdout": options.holdout}
    server = Server(env=UNLIMITED).set_up()
    insert_contacts(server.data / "campanero.db", options.contacts)
    results: dict[str, list[tuple[float, float]]] = {"plain": [], "five variants": []}
    with server:
        api = server.client(validate=False)
        for pair in range(options.pairs):
            kinds = list(results) if pair % 2 == 0 else list(results)[::-1]
            for kind in kinds:
                cpu, seconds = fix(server, api, options.contacts, experiment=None if kind == "plain" else experiment)
                results[kind].append((cpu, seconds))
                print(f"{kind}: {cpu:.2f} s of processor time, {seconds:.1f} s; load {os.getloadavg()[0]:.1f}")
        server.stop()
    plain, test = (median(cpu for cpu, _ in results[kind]) for kind in results)
    print(f"five variants take {test / plain - 1:+.1%} of processor time; goal: at most {GOAL:+.0%}")


if __name__ == "__main__":
    main()
