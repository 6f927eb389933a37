"""Measures the report of a large campaign: `python -m benchmarks.bench_report [--people 100000]`; run by hand.

Rows and hits are written as sending and readers leave them; then the report is asked for over HTTP, cold (after the
service has started) and again while hits go on.
"""

import argparse
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.kit.server import Server

AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
LARGE = ["gmail.com"] * 9 + ["outlook.com"] * 3 + ["yahoo.com", "gmx.de", "web.de", "icloud.com", "t-online.de"]
WORDS = ("550 5.1.1 <{}>: user unknown", "552 5.2.2 mailbox full", "554 5.7.1 blocked by policy (4Zx{}9QabC12)")


def grow(path: Path, campaign_id: int, people: int, hits: int) -> None:
    """Extend a campaign that was sent to one contact to many recipients with their hits."""
    draw = random.Random(1)
    with closing(sqlite3.connect(path)) as books:
        books.row_factory = sqlite3.Row
        message = dict(books.execute("SELECT * FROM message WHERE campaign_id = ?", (campaign_id,)).fetchone())
        names, first = list(message), int(message["id"])
        places = f"({','.join(names)}) VALUES ({','.join('?' * len(names))})"
        books.executemany(f"INSERT INTO message {places}", _messages(draw, message, first, people))
        books.execute("UPDATE campaign SET audience_count = ? WHERE id = ?", (people, campaign_id))
        books.executemany(
            "INSERT INTO bounce (account_id, message_id, campaign_id, address_hash, kind, created_at) "
            "SELECT account_id, id, campaign_id, x'00', iif(id % 2, 'hard', 'full'), updated_at FROM message "
            "WHERE status IN ('bounced', 'failed') AND id = ?",
            ((number,) for number in range(first, first + people)),
        )
        books.executemany(
            "INSERT INTO hit (account_id, campaign_id, message_id, kind, number, method, ip, user_agent, verdict, "
            "test, at) VALUES (1, ?, ?, ?, ?, 'GET', '192.0.2.0', ?, ?, 0, ?)",
            _hits(draw, campaign_id, message, hits, people),
        )
        books.commit()


def _messages(draw: random.Random, message: dict[str, Any], first: int, people: int) -> Iterator[tuple[Any, ...]]:
    sent = int(message["sent_at"])
    for number in range(first + 1, first + people):
        at = draw.choice(LARGE) if draw.random() < 0.85 else f"firm{draw.randrange(3000)}.example"
        row = dict(
            message, id=number, contact_id=None, recipient=f"person{number}@{at}", opened_at=None, clicked_at=None
        )
        row |= {"recipient_key": row["recipient"], "internet_message_id": f"{number:043}@bakery.example"}
        row["status"] = draw.choices(("sent", "bounced", "failed", "skipped"), (95, 2, 1, 2))[0]
        if row["status"] in ("bounced", "failed"):
            row |= {"error_code": "returned", "error_text": draw.choice(WORDS).format(row["recipient"])}
        if row["status"] == "sent" and draw.random() < 0.5:
            row["opened_at"] = sent + int(draw.expovariate(1 / 2e7))
            row["clicked_at"] = row["opened_at"] + 60_000 if draw.random() < 0.2 else None
        yield tuple(row.values())


def _hits(draw: random.Random, campaign_id: int, link: dict[str, Any], hits: int, people: int) -> Iterator[Any]:
    for _ in range(hits):
        number = draw.randrange(1, 13) if draw.random() < 0.25 else None
        kind = "click" if number else "open"
        verdict = draw.choice(("human", "human", "unsure", "machine"))
        message = int(link["id"]) + draw.randrange(people)
        yield campaign_id, message, kind, number, AGENT, verdict, int(link["sent_at"]) + draw.randrange(3 * 86_400_000)


def late(times: list[float]) -> str:
    """Return response times as text, in milliseconds."""
    ordered = sorted(times)
    return f"p50 {ordered[len(ordered) // 2] * 1000:.0f}, p95 {ordered[int(len(ordered) * 0.95)] * 1000:.0f} ms"


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--hits", type=int, default=300_000)
    parser.add_argument("--times", type=int, default=100)
    options = parser.parse_args()
    with Server().set_up().start() as server:
        api = server.client()
        group = api.post("/lists", {"name": "All"}).expect(201)["id"]
        api.post("/contacts", {"email": "a@example.org", "list_ids": [group]}).expect(201)
        campaign = api.post(
            "/campaigns", {"name": "Large", "template_attributes": {"subject": "s", "body": "<p>x</p>"}}
        )
        number = campaign.expect(201)["id"]
        api.post(f"/campaigns/{number}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
        api.wait(f"/campaigns/{number}", lambda row: row["status"] == "completed")
        server.stop()
        grow(server.data / "campanero.db", number, options.people, options.hits)
        server.start()
        for name, pause in (("at once", 0.0), ("every second", 1.0), ("every 10 s, counted anew", 10.0)):
            times = []
            for _ in range(options.times if not pause else 10):
                time.sleep(pause)
                started_at = time.perf_counter()
                report = api.get(f"/campaigns/{number}/report").expect(200)
                times.append(time.perf_counter() - started_at)
            print(f"{name}: first {times[0] * 1000:.0f}, {late(times)}", flush=True)
            assert report["ledger"]["adds_up"] and report["ledger"]["sum"] == options.people
        for query in ("opened=people", "opened=machines", "link=3", "domain=google", "unsubscribed=true"):
            key, _, value = query.partition("=")
            started_at = time.perf_counter()
            api.get(f"/campaigns/{number}/recipients", **{key: value}).expect(200)
            print(f"recipients {query}: {(time.perf_counter() - started_at) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
