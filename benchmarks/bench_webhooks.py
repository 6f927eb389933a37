"""Measures webhooks: `python -m benchmarks.bench_webhooks [--events 10000]`; not a test, run by hand.

How long an event takes to arrive at rest, how many arrive in a second through one webhook and through four, how long
the log of a million deliveries takes to be asked, and how fast events become deliveries.
"""

import argparse
import asyncio
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from tests.kit.client import Client
from tests.kit.server import Server

ALLOWED = {
    "CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "0",
    "CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0",
}  # fmt: skip


class Taker(asyncio.Protocol):
    """Accepts and counts all requests over kept connections."""

    count = 0

    def connection_made(self, transport: Any) -> None:
        """Start with an empty buffer."""
        self._transport, self._have = transport, b""

    def data_received(self, data: bytes) -> None:
        """Respond once a request is complete."""
        self._have += data
        head, separator, body = self._have.partition(b"\r\n\r\n")
        if not separator:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) >= length:
            self._have = body[length:]
            Taker.count += 1
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def taking() -> int:
    """Run the receiver in a thread, and return the port."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(Taker, "127.0.0.1", 0))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return int(server.sockets[0].getsockname()[1])


def until(true: Callable[[], bool]) -> float:
    """Wait for a condition and return the seconds."""
    begin = time.perf_counter()
    while not true():
        time.sleep(0.0005)
    return time.perf_counter() - begin


def at_rest(api: Client) -> None:
    """Print the time from the response of one event to its delivery on an idle server."""
    times = []
    for _ in range(100):
        seen = Taker.count
        api.post("/events", {"event": "thing_seen", "contact_email": "ann@example.org"}).expect(201)
        times.append(1000 * until(lambda seen=seen: Taker.count > seen))
    print(
        f"at rest: {statistics.median(times):.1f} ms after the answer, p95 {statistics.quantiles(times, n=20)[-1]:.1f}"
    )


def in_a_row(api: Client, name: str, count: int, hooks: int) -> None:
    """Print the deliveries a second."""
    count_before = Taker.count
    for _ in range(count // 1000):
        events = [{"event": name, "contact_email": "ann@example.org"}] * 1000
        api.post("/events/batch", {"events": events}).expect(200)
    took = until(lambda: Taker.count >= count_before + hooks * count)
    print(f"{hooks} webhooks: {hooks * count} deliveries, {hooks * count / took:.0f}/s after the last was recorded")


def log_of_a_million(server: Server, hook: int) -> None:
    """Print how fast events become deliveries, and how long pages of a large log take."""
    server.stop()
    with closing(sqlite3.connect(server.data / "campanero.db")) as database:
        begin = time.perf_counter()
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) INSERT INTO "
            "webhook_delivery (webhook_id, event_id, status, attempts, created_at, updated_at) "
            "SELECT ?, i, iif(i % 1000, 'delivered', 'failed'), 1, 0, 0 FROM n",
            (hook,),
        )
        database.commit()
        print(f"a million deliveries written in {time.perf_counter() - begin:.1f} s")
    server.start()
    api = server.client()
    for label, query in (("first page", {}), ("page 500", {"page": 500}), ("failed", {"status": "failed"})):
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            api.get(f"/webhooks/{hook}/deliveries", **query).expect(200)
            times.append(1000 * (time.perf_counter() - begin))
        print(f"log of a million, {label}: median {statistics.median(times):.0f} ms, worst {max(times):.0f}")


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000)
    options = parser.parse_args()
    with Server(env=ALLOWED).set_up() as server:
        api, url = server.client(), f"http://127.0.0.1:{taking()}/hook"
        api.post("/contacts", {"email": "ann@example.org"}).expect(201)
        api.post("/webhooks", {"url": url, "events": ["thing_seen"]}).expect(201)
        at_rest(api)
        in_a_row(api, "thing_seen", options.events, 1)
        for _ in range(4):
            api.post("/webhooks", {"url": url, "events": ["thing_done"]}).expect(201)
        in_a_row(api, "thing_done", options.events, 4)
        log = api.post("/webhooks", {"url": url, "events": ["nothing"], "enabled": False}).expect(201)["id"]
        log_of_a_million(server, log)


if __name__ == "__main__":
    main()
