"""Measures the doors for clicks: `python -m benchmarks.bench_tracking [--clicks 8000]`; not a test, run by hand.

Everybody of two lists gets a campaign through the real service: one list is tracked, the other wants no tracking, so
that the same handler answers both and records only the one. Then their links are followed, in turns, over kept
connections; at the end what was answered is counted in the database. Last, a campaign is sent at full speed beside it.
"""

import argparse
import os
import random
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import uvloop

from appliance.core import crypto
from appliance.sending.messages import links
from benchmarks.bench_sending import UNLIMITED, Meanwhile, campaign
from benchmarks.bench_sending_rivals import Postfix
from tests.kit.client import Client
from tests.kit.http_load import send_requests
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit
from tests.kit.uploads import upload, wait_for_import

AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
LINKS = 8


async def follow(port: int, paths: list[str], connections: int) -> tuple[float, list[float]]:
    """Follow all links over so many connections; return the rate and the times."""
    requests = (f"GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: {AGENT}\r\n\r\n".encode() for path in paths)
    rate, times = await send_requests(port, requests, connections, (302,))
    if len(times) != len(paths):
        raise AssertionError(f"{len(times)} answers to {len(paths)}")
    return rate, times


def fill(api: Client, name: str, people: int, tracking: str) -> int:
    """Import contacts with one tracking choice into a list and return its id."""
    number = api.post("/lists", {"name": name}).expect(201)["id"]
    lines = ["email,first_name,tracking"] + [f"{name}{n}@example.org,N{n},{tracking}" for n in range(people)]
    wait_for_import(api, upload(api, "\n".join(lines), list_ids=[number], consent_source="bench"), 600)
    return int(number)


def paths_of(server: Server, campaign_id: int) -> list[str]:
    """Return a link from every message of a campaign, in random order."""
    crypto.load_key(server.data)
    with closing(sqlite3.connect(f"file:{server.data}/campanero.db?mode=ro", uri=True)) as books:
        ids = [row[0] for row in books.execute("SELECT id FROM message WHERE campaign_id = ?", (campaign_id,))]
    random.Random(1).shuffle(ids)
    return [f"/c/{links.build_tracking_tokens(number)['click']}-{number % LINKS + 1}" for number in ids]


def recorded(server: Server, where: str = "1") -> int:
    """Return the number of stored hits."""
    with closing(sqlite3.connect(f"file:{server.data}/campanero.db?mode=ro", uri=True)) as books:
        return int(books.execute(f"SELECT count(*) FROM hit WHERE {where}").fetchone()[0])


def settled(server: Server) -> float:
    """Wait until all recorded hits are classified; return the seconds."""
    begin = time.perf_counter()
    while recorded(server, "verdict IS NULL"):
        time.sleep(0.05)
    return time.perf_counter() - begin


def late(times: list[float]) -> str:
    """Return response times as text, in milliseconds."""
    ordered = sorted(times)
    return f"p50 {ordered[len(ordered) // 2] * 1000:.1f}, p99 {ordered[int(len(ordered) * 0.99)] * 1000:.1f} ms"


def rounds(server: Server, groups: dict[str, list[str]], options: Any) -> None:
    """Measure the two lists in turns with links that were not followed before."""
    rates: dict[str, list[float]] = {name: [] for name in groups}
    times: dict[str, list[float]] = {name: [] for name in groups}
    spent: dict[str, float] = dict.fromkeys(groups, 0.0)
    before, judging = recorded(server), list[float]()
    for turn in range(options.rounds):
        for name in groups:
            part = groups[name][turn * options.clicks : (turn + 1) * options.clicks]
            cpu_before = cpu_seconds(server.pid)
            rate, took = uvloop.run(follow(server.port, part, options.connections))
            spent[name] += (cpu_seconds(server.pid) - cpu_before) / options.rounds / len(part)
            judging.append(settled(server))
            rates[name].append(rate)
            times[name] += took
    for name, values in rates.items():
        rate = f"{statistics.median(values):>8,.0f}/s ({min(values):,.0f} to {max(values):,.0f})"
        print(f"  {name:<12} {rate}, {late(times[name])}, processor {spent[name] * 1e6:.0f} us a click")
    ratios = [
        recorded_rate / plain_rate for recorded_rate, plain_rate in zip(rates["recorded"], rates["plain"], strict=True)
    ]
    lost = options.rounds * options.clicks - (recorded(server) - before)
    saved = spent["plain"] / spent["recorded"]
    print(f"  G8 {statistics.median(ratios):.2f}, by processor {saved:.2f} (goal 0.6), lost {lost} (goal 0); "
          f"all judged {max(judging):.1f} s later")  # fmt: skip


def beside(server: Server, people: int, groups: dict[str, list[str]], options: Any) -> None:
    """Follow links at a steady rate while a campaign is sent at full speed."""
    readers = {name: Meanwhile(1 / 100, _follower(server, paths)) for name, paths in groups.items()}
    cost, _ = campaign(server, people, 9_000, options.clicks * options.rounds)
    print(f"beside a send at {cost.rate:,.0f}/s:")
    for name, reader in readers.items():
        print(f"  {name:<12} {reader.end()} (goal p99 25)")
    print(f"  all judged {settled(server):.1f} s later")


def _follower(server: Server, paths: list[str]) -> Callable[[int], None]:
    api = server.client(validate=False, keep_alive=True)

    def click(number: int) -> None:
        if api.request("GET", paths[number % len(paths)], None, {"User-Agent": AGENT}).status != 302:
            raise AssertionError("not led on")

    return click


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--postfix", type=Path, help="where Debian's package is unpacked, unless it is installed")
    parser.add_argument("--executable", type=Path, help="measure a built file instead of the sources")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}, {threading.active_count()} thread, {os.cpu_count()} cores")
    env = UNLIMITED | {"CAMPANERO_EMAIL__CONNECTIONS": "10", "CAMPANERO_EMAIL__MESSAGES_PER_CONNECTION": "100000"}
    with (
        Postfix(options.postfix).sink() as port,
        Server(relay=port, env=env, executable=options.executable).set_up().start() as server,
    ):
        server.set_postal_address()
        api = server.client(validate=False, keep_alive=True)
        groups: dict[str, list[str]] = {}
        people = {}
        for name, tracking in (("plain", "none"), ("recorded", "full")):
            people[name] = fill(api, name, options.clicks * options.rounds, tracking)
            _, number = campaign(server, people[name], 3_000, options.clicks * options.rounds)
            groups[name] = paths_of(server, number)
        print(f"{options.rounds} rounds of {options.clicks} clicks over {options.connections} connections:")
        rounds(server, groups, options)
        beside(server, people["plain"], groups, options)


if __name__ == "__main__":
    main()
