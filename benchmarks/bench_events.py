"""Measures events: `python -m benchmarks.bench_events [--events 1000000]`; not a test, run by hand.

The log is filled by SQL, then asked through the real service for first, middle and last pages by every filter, alone
and while others write. Then events are posted, singly over several connections and a thousand at once; at the end the
process is killed, and what it acknowledged is counted in the database.
"""

import argparse
import json
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import apsw
import uvloop

from benchmarks.bench_sending import UNLIMITED, Meanwhile
from tests.kit.client import Client
from tests.kit.http_load import build_request, format_percentiles, send_requests
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit

PEOPLE, YEAR_MS = 100_000, 365 * 86_400_000
NAMES = ("product_view", "product_view", "checkout", "cart_add", "order_paid")
AGENT = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{} Safari/537.36"


def rows(count: int, now: int) -> Iterator[tuple[Any, ...]]:
    """Yield events of a year: four in five from emails of fifty campaigns, the others of a shop."""
    chance = random.Random(3)
    for number in range(count):
        at = now - YEAR_MS + number * YEAR_MS // count
        contact = chance.randrange(1, PEOPLE + 1) if chance.random() > 0.02 else 7
        kind = chance.random()
        if kind < 0.8:
            name = "email_sent" if kind < 0.45 else "email_opened" if kind < 0.72 else "email_clicked"
            message, letter = chance.randrange(number + 1), number * 50 // count
            data = {"message_id": message, "campaign_id": letter, "verdict": "human"}
            yield (contact, name, None, json.dumps(data), None, f"message:{message}", f"Letter {letter}",
                   chance.random() < 0.003, True, at)  # fmt: skip
        else:
            product = chance.randrange(50)
            yield (contact, chance.choice(NAMES), 12.5, json.dumps({"n": number}), f"k{number}", f"product:{product}",
                   f"Product {product}", False, False, at)  # fmt: skip


def fill(server: Server, count: int) -> None:
    """Write contacts and past events that flows have already processed."""
    now = int(time.time() * 1000) - 60_000
    with apsw.Connection(str(server.data / "campanero.db")) as connection:
        connection.execute(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < ?) INSERT INTO contact "
            "(account_id, uuid, data, tracking, email_sent_count, email_open_count, email_click_count, "
            "email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
            "SELECT 1, 'u' || x, '{}', 'full', 0, 0, 0, 0, 0, 0, 0 FROM n",
            (PEOPLE,),
        )
        connection.executemany(
            "INSERT INTO event (account_id, contact_id, event, amount, data, idempotency_key, resource_uid, "
            "resource_name, test, generated, created_at, quiet, chain_depth, updated_at) "
            "VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)",
            rows(count, now),
        )
        connection.execute("INSERT OR REPLACE INTO cursor (name, event_id) SELECT 'flows', max(id) FROM event")


def day(back: int) -> str:
    """Return a date some days ago."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - back * 86_400))


FILTERS: dict[str, dict[str, Any]] = {
    "nothing": {}, "event": {"event": "email_sent"}, "rare event": {"event": "order_paid"}, "test": {"test": "true"},
    "no test": {"test": "false"}, "person": {"contact_id": 4_711}, "busy person": {"contact_id": 7},
    "resource_uid": {"resource_uid": "product:7"}, "message": {"resource_uid": "message:17000"},
    "resource_name": {"resource_name": "Letter 7"}, "half a year": {"created_after": day(182)},
    "a month": {"created_after": day(120), "created_before": day(90)},
    "event, test": {"event": "email_sent", "test": "true"},
    "event, name": {"event": "email_opened", "resource_name": "Letter 7"},
    "event, month": {"event": "email_sent", "created_after": day(120), "created_before": day(90)},
    "busy person, event": {"contact_id": 7, "event": "email_sent"},
}  # fmt: skip


def pages(api: Client, key: str, port: int, each: int) -> None:
    """Request pages by every filter, the first page as often as any other."""
    chance, everything = random.Random(1), list[float]()
    for name, query in FILTERS.items():
        total = int(api.get("/events", **query).headers["X-Total-Count"])
        last = max(1, -(-total // 50))
        requests = []
        for number in range(each):
            page = 1 if number % 2 else chance.randint(1, last)
            # Another moment each time, so that nothing is remembered where a time is asked for
            moved = {
                name: f"{value}T00:00:{number % 60:02}Z" for name, value in query.items() if name.startswith("created")
            }
            requests.append(build_request(key, "GET", f"/events?{urlencode({**query, **moved, 'page': page})}"))
        _, times = uvloop.run(send_requests(port, iter(requests), 1))
        everything += times
        print(f"  {name:<20} {total:>9,} fit   {format_percentiles(times)}")
    print(f"  {'all':<20} {'':>9}       {format_percentiles(everything)} (goal p95 60)")


def posts(server: Server, key: str, count: int, connections: int) -> int:
    """Post events one by one; return how many were acknowledged."""
    chance = random.Random(2)
    asked = [
        build_request(key, "POST", "/events", {
            "event": "order_paid", "contact_id": chance.randrange(1, PEOPLE), "amount": 9.5, "data": {"order": number},
            "idempotency_key": f"post-{number}", "resource_uid": f"order:{number}", "ip": "198.51.100.7",
            "user_agent": AGENT.format(chance.randrange(40, 130)),
            "resource_url": f"https://shop.example/{number}?utm_source=letter",
        })
        for number in range(count)
    ]  # fmt: skip
    begun = cpu_seconds(server.pid)
    rate, times = uvloop.run(send_requests(server.port, iter(asked), connections))
    if len(times) != count:
        raise AssertionError(f"{len(times)} answers to {count}")
    spent = (cpu_seconds(server.pid) - begun) / count
    print(f"POST /events over {connections} connections: {rate:,.0f}/s (goal 800), {format_percentiles(times)}, "
          f"processor {spent * 1e6:.0f} us each")  # fmt: skip
    return count


def batches(server: Server, key: str, count: int) -> int:
    """Post events in batches of a thousand, and all of them again; return how many were acknowledged."""
    api = server.client(validate=False, keep_alive=True)
    other = Meanwhile(0.02, lambda number: api.post("/events", {"event": "checkout", "contact_id": 1 + number}))
    asked = [
        build_request(key, "POST", "/events/batch", {"events": [
            {"event": "cart_add", "contact_id": 1 + number, "data": {"n": 1}, "idempotency_key": f"b{part}-{number}"}
            for number in range(1_000)
        ]})
        for part in range(count)
    ]  # fmt: skip
    for words in ("new", "repeated"):
        rate, times = uvloop.run(send_requests(server.port, iter(asked), 1))
        print(f"POST /events/batch, {words}: {rate * 1000:,.0f} events/s, {format_percentiles(times)}")
    print(f"  single events beside it: {other.end()}")
    return count * 1_000


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--each", type=int, default=60, help="requests by each filter")
    parser.add_argument("--posts", type=int, default=8_000)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
    server = Server(env=UNLIMITED).set_up()
    fill(server, options.events)
    with server:
        api = server.client(validate=False, keep_alive=True)
        key = str(server.key)
        print(f"GET /events among {options.events:,}:")
        pages(api, key, server.port, options.each)
        writer = server.client(validate=False, keep_alive=True)
        other = Meanwhile(0.005, lambda number: writer.post("/events", {"event": "checkout", "contact_id": 1 + number}))
        print("while others write:")
        pages(api, key, server.port, options.each)
        print(f"  events beside it: {other.end()}")
        acknowledged = posts(server, key, options.posts, options.connections) + batches(server, key, 20)
        server.kill()
        with closing(sqlite3.connect(server.data / "campanero.db")) as database:
            count_sql = "SELECT count(*) FROM event WHERE idempotency_key LIKE 'post-%' OR idempotency_key LIKE 'b%-%'"
            stored = database.execute(count_sql).fetchone()[0]
        print(f"killed; {stored:,} of {acknowledged:,} acknowledged events are there")


if __name__ == "__main__":
    main()
