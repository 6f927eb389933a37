"""Measures a scrape: `python -m benchmarks.bench_metrics [--messages 1000000]`; not a test, run by hand.

The ledger is filled by SQL, most of it sent and then most of it waiting; `/metrics` is asked for alone, without pause
by four at once, and while others write, who are to wait no longer for that.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw

from tests.kit import exposition
from tests.kit.client import Client
from tests.kit.server import Server

PEOPLE = 100_000
_FILL = """
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < ?)
INSERT INTO message (account_id, contact_id, campaign_id, channel, recipient, recipient_key, status, source_type,
transactional, test, provider, attempts, uncertain_count, due_at, sent_at, created_at, updated_at)
SELECT 1, x % ? + 1, NULL, 'email', 'p' || x || '@example.org', 'p' || x || '@example.org', 'sent', 'Message', 0, 0,
'relay', 1, 0, NULL, ?, ?, ? FROM n
"""
_PEOPLE = """
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < ?)
INSERT INTO contact (account_id, uuid, data, tracking, email_sent_count, email_open_count, email_click_count,
email_soft_bounce_count, sms_sent_count, created_at, updated_at)
SELECT 1, 'u' || x, '{}', 'full', 0, 0, 0, 0, 0, 0, 0 FROM n
"""


def fill(server: Server, messages: int) -> None:
    """Write contacts, and messages that were sent."""
    now = int(time.time() * 1000)
    with apsw.Connection(str(server.data / "campanero.db")) as database:
        database.execute(_PEOPLE, (PEOPLE,))
        database.execute(_FILL, (messages, PEOPLE, now, now, now))


def put_back(server: Server) -> None:
    """Make all messages wait again."""
    with apsw.Connection(str(server.data / "campanero.db")) as database:
        database.execute("UPDATE message SET status = 'queued', due_at = 0, sent_at = NULL")


def late(times: list[float]) -> str:
    """Return response times as text, in milliseconds."""
    ordered = sorted(times)
    return f"p50 {ordered[len(ordered) // 2] * 1000:.1f}, p95 {ordered[int(len(ordered) * 0.95)] * 1000:.1f}, " \
           f"max {ordered[-1] * 1000:.1f} ms"  # fmt: skip


def timed(ask: Any, times: int, pause: float = 0.0) -> list[float]:
    """Return the time of each of so many requests."""
    samples = []
    for _ in range(times):
        started_at = time.perf_counter()
        ask()
        samples.append(time.perf_counter() - started_at)
        time.sleep(pause)
    return samples


def measure(server: Server, what: str) -> None:
    """Scrape alone, in parallel, and beside writers."""
    api = Client(server.url, server.key, keep_alive=True, validate=False)

    def post() -> None:
        api.post("/events", {"event": "seen", "data": {}})

    exposition.parse(api.get("/metrics").text)
    print(f"{what}: a scrape a second: {late(timed(lambda: api.get('/metrics'), 20, 1.0))}", flush=True)
    print(f"{what}: scrapes without pause: {late(timed(lambda: api.get('/metrics'), 300))}", flush=True)
    print(f"{what}: writes alone: {late(timed(post, 400))}", flush=True)
    with ThreadPoolExecutor(4) as pool:
        scraping = [pool.submit(timed, lambda: api.get("/metrics"), 200) for _ in range(4)]
        print(f"{what}: writes beside four who scrape without pause: {late(timed(post, 400))}", flush=True)
        for thread in scraping:
            thread.result()


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    with Server().set_up() as server:
        server.stop() if server.process is not None else None
        fill(server, options.messages)
        (server.data / "STOP").touch()
        server.start()
        measure(server, f"{options.messages} sent")
        server.stop()
        put_back(server)
        server.start()
        measure(server, f"{options.messages} waiting")
        server.stop()


if __name__ == "__main__":
    main()
