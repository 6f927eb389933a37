"""Measures what local times and best hours add to fixing an audience (`python -m benchmarks.bench_local_times`).

Sends campaigns to all contacts with a long hold, in turns at the same moment for all, at a local time, and at the best
hour of each. Of four contacts, the time zone of one comes from the custom field, of one from a phone number of the
United States, of one from the country, and of one from the account. Two of five contacts have clicks at three hours.
Prints the processor seconds of the service and the time of each, and how much more the other kinds take by the medians.
Processor time is what other programs on the machine disturb least.
"""

import argparse
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import apsw

from benchmarks.bench_variants import GOAL, UNLIMITED, fix
from tests.kit.audience_data import add_missing_columns
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.server import Server
from tests.kit.timeouts import report_stolen_cpu_at_exit

_SET_ZONES = (
    "UPDATE contact SET data = json_object('time_zone', CASE id % 3 WHEN 0 THEN 'Asia/Tokyo' WHEN 1 THEN "
    "'America/New_York' ELSE 'Europe/Berlin' END) WHERE id % 4 = 0",
    "UPDATE contact SET country_code = CASE id % 3 WHEN 0 THEN 'JP' WHEN 1 THEN 'FR' ELSE 'DE' END WHERE id % 4 = 2",
)
_LIST_PHONE_OWNERS = "SELECT id, created_at FROM contact WHERE id % 4 = 1"
_INSERT_PHONE = (
    "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, data, created_at, updated_at) "
    "VALUES (1, ?, 'phone', ?, ?, 0, '{}', ?, ?)"
)
_AREA_CODES = 300
_INSERT_CLICKS = (
    "INSERT INTO click_hour (contact_id, hour, clicks) SELECT c.id, 8 + (c.id * 7 + n.value * 5) % 12, "
    "1 + (c.id + n.value) % 4 FROM contact c, (SELECT 1 AS value UNION SELECT 2 UNION SELECT 3) n WHERE c.id % 5 < 2"
)


def spread_over_zones(database: Path) -> None:
    """Give the contacts of a stopped service custom fields, countries, phone numbers and clicks."""
    handle = apsw.Connection(str(database))
    for statement in (*_SET_ZONES, _INSERT_CLICKS):
        handle.execute(statement)
    numbers = (
        (contact_id, f"+1{201 + contact_id % _AREA_CODES}{2_000_000 + contact_id}", moment)
        for contact_id, moment in handle.execute(_LIST_PHONE_OWNERS).fetchall()
    )
    handle.execute("BEGIN")
    handle.executemany(
        add_missing_columns(handle, _INSERT_PHONE),
        ((contact_id, number, number, moment, moment) for contact_id, number, moment in numbers),
    )
    handle.execute("COMMIT")
    handle.close()


def wait_for_zones(database: Path) -> None:
    """Wait until the job of a running service has stored the time zones of all contacts, so that it is not measured."""
    handle = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    handle.set_busy_timeout(5_000)
    while next(handle.execute("SELECT count(*) < (SELECT count(*) FROM contact) FROM contact_zone"))[0]:
        time.sleep(1)
    handle.close()


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    server = Server(env=UNLIMITED).set_up()
    insert_contacts(server.data / "campanero.db", options.contacts)
    spread_over_zones(server.data / "campanero.db")
    # It has begun in the first time zone, so the campaign starts at once.
    now = datetime.now(UTC)
    kinds: dict[str, dict[str, Any]] = {
        "same moment": {}, "local time": {"local_time": f"{now:%Y-%m-%dT%H:%M}"},
        "best hour": {"local_time": f"{now:%Y-%m-%d}T08:00", "best_hour_until": 20},
    }  # fmt: skip
    results: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with server:
        wait_for_zones(server.data / "campanero.db")
        api = server.client(validate=False)
        for pair in range(options.pairs):
            for kind in list(kinds) if pair % 2 == 0 else list(kinds)[::-1]:
                cpu, seconds = fix(server, api, options.contacts, **kinds[kind])
                results[kind].append((cpu, seconds))
                print(f"{kind}: {cpu:.2f} s of processor time, {seconds:.1f} s; load {os.getloadavg()[0]:.1f}")
        server.stop()
    same, *others = (median(cpu for cpu, _ in results[kind]) for kind in results)
    for kind, cpu in zip(list(kinds)[1:], others, strict=True):
        print(f"{kind}: {cpu / same - 1:+.1%} of processor time; goal: at most {GOAL:+.0%}")


if __name__ == "__main__":
    main()
