"""Measures the audience: `python -m benchmarks.bench_audience --cache DIR`; not a test, run by hand.

Makes a database of a million contacts once (kept in the cache), starts the real server on a copy of it and prints
percentiles over HTTP. A figure that another part adds is one more line in `FIGURES`, a function of a `Bench`.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.bench_import import memory
from tests.kit.audience_data import CITIES, FIRST_NAMES, LAST_NAMES, LIST_COUNT, get_or_create_audience
from tests.kit.server import Server

UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__RENDERS_PER_MINUTE": "0"}
COLD_GOAL = 1500.0


class Bench:
    """A server on the large audience, and the number of requests for each figure."""

    def __init__(self, server: Server, contacts: int, requests: int) -> None:
        self.server, self.contacts, self.requests = server, contacts, requests
        self.api = server.client(validate=False, keep_alive=True)
        self.random = random.Random(7)
        self._segment: int | None = None

    def any_id(self) -> int:
        """Return the id of a random contact."""
        return self.random.randint(1, self.contacts)

    def any_day(self) -> str:
        """Return a random day on which contacts were added."""
        return (datetime.now(UTC) - timedelta(days=self.random.randint(1, 390))).date().isoformat()

    def put(self, email: str, **body: Any) -> Any:
        """Create a contact."""
        return self.api.post("/contacts", {"email": email, **body})

    def broad(self, leaf: str = "column") -> list[dict[str, Any]]:
        """Return five conditions of five kinds, most of which most contacts match."""
        value = {"event": "email_opened", "within_days": 30}
        opened = {
            "column": {"name": "email_last_opened_at", "predicate": "within_days", "value": 30},
            "event": {"name": "event", "predicate": "performed", "value": value},
            "none": {"name": "event", "predicate": "not_performed", "value": value},
            "twice": {"name": "event", "predicate": "performed", "value": {**value, "at_least": 2}},
        }[leaf]
        return [
            {"name": "contact_last_name", "predicate": "not_start", "value": LAST_NAMES[0][:2]},
            {"name": "contact_list", "predicate": "in", "value": [1, 2, 3]},
            {"name": "contact_data.city", "predicate": "present", "value": True},
            {"name": "contact_tag", "predicate": "not_cont", "value": "vip"},
            opened,
        ]

    def narrow(self) -> list[dict[str, Any]]:
        """Return five conditions of the same kinds, each of which few contacts match."""
        return [
            {"name": "contact_last_name", "predicate": "start", "value": self.random.choice(LAST_NAMES)[:2]},
            {"name": "contact_list", "predicate": "eq", "value": self.random.randint(2, LIST_COUNT)},
            {"name": "contact_data.city", "predicate": "eq", "value": self.random.choice(CITIES)},
            {"name": "contact_tag", "predicate": "cont", "value": "customer"},
            {"name": "email_last_opened_at", "predicate": "within_days", "value": 30},
        ]

    def count(self, filters: list[dict[str, Any]]) -> Any:
        """Count the contacts that match filters."""
        return self.api.post("/segments/count", {"filters": filters})

    def segment(self) -> int:
        """Return a saved segment with the five conditions, created once."""
        if self._segment is None:
            body = {"name": "Five", "filters": self.broad()}
            self._segment = int(self.api.post("/segments", body).expect(201)["id"])
        return self._segment

    def any_name(self) -> str:
        """Return the beginning of a random name."""
        first_name, last_name = self.random.choice(FIRST_NAMES), self.random.choice(LAST_NAMES)
        return f"{first_name} {last_name}{self.random.randint(1, self.contacts) % 1000}"


Figure = Callable[[Bench], Any]
FIGURES: dict[str, tuple[float, Figure]] = {
    "page of contacts": (40, lambda b: b.api.get("/contacts", limit=50)),
    "page of a list": (40, lambda b: b.api.get("/contacts", limit=50, list_id=b.random.randint(1, LIST_COUNT))),
    "deep page": (100, lambda b: b.api.get("/contacts", limit=50, page=b.random.randint(1, b.contacts // 50))),
    "search": (60, lambda b: b.api.get("/contacts/search", q=b.any_name())),
    "search, two letters": (60, lambda b: b.api.get("/contacts/search", q=b.random.choice(FIRST_NAMES)[:2])),
    "search by address": (60, lambda b: b.api.get("/contacts/search", q=f"person{b.any_id()}@example")),
    "contact by id": (5, lambda b: b.api.get(f"/contacts/{b.any_id()}")),
    "list, searched": (40, lambda b: b.api.get("/contacts", search=b.any_name())),
    "list, two letters": (40, lambda b: b.api.get("/contacts", search=b.random.choice(FIRST_NAMES)[:2])),
    "timeline": (40, lambda b: b.api.get(f"/contacts/{b.any_id()}/timeline")),
    "segment of five, count": (300, lambda b: b.count(b.broad())),
    "segment of five, event": (300, lambda b: b.count(b.broad("event"))),
    "segment of five, no event": (300, lambda b: b.count(b.broad("none"))),
    "segment of five, twice": (300, lambda b: b.count(b.broad("twice"))),
    "segment of five, narrow": (300, lambda b: b.count(b.narrow())),
    "segment, explain": (10, lambda b: b.api.get(f"/segments/{b.segment()}/explain", contact_id=b.any_id())),
    "page of a segment": (40, lambda b: b.api.get("/contacts", segment_id=b.segment())),
    "page of a source": (40, lambda b: b.api.get("/contacts", source="form")),
    "page of a tag": (40, lambda b: b.api.get("/contacts", tag="vip")),
    "page by subscription": (40, lambda b: b.api.get("/contacts", subscribed_email="false")),
    "page by date added": (40, lambda b: b.api.get("/contacts", created_before=b.any_day())),
    "page by date changed": (40, lambda b: b.api.get("/contacts", updated_after=b.any_day())),
    "page, list and tag": (40, lambda b: b.api.get("/contacts", list_id=b.random.randint(1, LIST_COUNT), tag="vip")),
    "upsert, known": (10, lambda b: b.put(f"person{b.any_id()}@example.org", last_name=f"X{b.any_id()}")),
    "upsert, new": (10, lambda b: b.put(f"new{time.time_ns()}@example.org", list_ids=[1])),
}  # fmt: skip


def percentiles(figure: Figure, bench: Bench) -> tuple[float, float, float]:
    """Return p50, p95, p99 in milliseconds."""
    times = []
    for _ in range(bench.requests):
        begin = time.perf_counter()
        answer = figure(bench)
        times.append((time.perf_counter() - begin) * 1000)
        if answer.status not in (200, 201):
            raise AssertionError(f"status {answer.status}: {answer.body[:500]!r}")
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.95)], times[int(len(times) * 0.99)]


def drop(path: Path) -> str:
    """Remove the pages of a file from the page cache, and return the result as text."""
    if not hasattr(os, "posix_fadvise"):
        return "page cache NOT dropped: this system cannot"
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(file).st_size
        # Read without waiting answers only what is in memory
        places = range(0, size - 4096, max(4096, size // 1000))
        cached_pages = sum(_is_in_memory(file, place) for place in places)
    except OSError as error:
        return f"page cache NOT known to be dropped: {error}"
    finally:
        os.close(file)
    return (
        "page cache dropped"
        if cached_pages * 20 < len(places)
        else f"page cache NOT dropped: {cached_pages} of {len(places)} left"
    )


def _is_in_memory(file: int, place: int) -> bool:
    try:
        return os.preadv(file, [bytearray(1)], place, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


def cold(data: Path, key: str, contacts: int, turns: int = 3) -> None:
    """Print how long the first count takes in a new process when nothing of the file is cached."""
    for leaf in ("column", "event"):
        times, drop_method = [], ""
        for _ in range(turns):
            server = Server(data=data, env=UNLIMITED)
            server.key = key
            drop_method = drop(data / "campanero.db")
            with server:
                bench = Bench(server, contacts, 1)
                begin = time.perf_counter()
                bench.count(bench.broad(leaf)).expect(200)
                times.append((time.perf_counter() - begin) * 1000)
                server.stop()
        verdict = "" if max(times) <= COLD_GOAL else "  MISSED"
        formatted_times = " ".join(f"{seconds:.0f}" for seconds in times)
        print(f"cold, five, {leaf}: {formatted_times}   {COLD_GOAL:g}{verdict}   ({drop_method})", flush=True)


def main() -> None:
    """Run the measurements whose names contain the given words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "campanero-bench")
    parser.add_argument("--contacts", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("words", nargs="*", help="only figures whose names hold one of these")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    audience = get_or_create_audience(options.cache, options.contacts)
    key = (audience / "done").read_text()
    with tempfile.TemporaryDirectory(dir=options.cache) as copy:
        data = Path(copy, "data")
        shutil.copytree(audience, data)
        # What was copied goes to the disk now, not with the first commits that are measured
        os.sync()
        if not options.words or any("cold".startswith(word) for word in options.words):
            cold(data, key, options.contacts)
        server = Server(data=data, env=UNLIMITED)
        server.key = key
        with server:
            measure(Bench(server, options.contacts, options.requests), options.words)
            print(f"memory at most {memory(server.pid)['VmHWM'] / 1024:.0f} MB")


def measure(bench: Bench, names: list[str]) -> None:
    """Print the figures whose names contain one of the words, or all figures."""
    print(f"{'':28}{'p50':>8}{'p95':>8}{'p99':>8}   goal (p95), milliseconds")
    for name, (goal, figure) in FIGURES.items():
        if names and not any(word in name for word in names):
            continue
        p50, p95, p99 = percentiles(figure, bench)
        print(f"{name:28}{p50:8.1f}{p95:8.1f}{p99:8.1f}   {goal:g}{'' if p95 <= goal else '  MISSED'}", flush=True)


if __name__ == "__main__":
    main()
