"""Measures the audience: `.venv/bin/python tests/bench_audience.py --cache DIR`; not a test, run by hand.

Makes a database of a million contacts once (kept in the cache), starts the real server on a copy of it and prints
percentiles over HTTP. A figure that another part adds is one more line in `FIGURES`, a function of a `Bench`.
"""

import argparse
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from appliance.db.first_schema import SQL  # noqa: E402  (found only after the line above)
from tests.bench_sending import peak_mb  # noqa: E402  (found only after the line above)
from tests.kit.server import Server  # noqa: E402  (found only after the line above)

FIRST = ("Ann", "Bo", "Carla", "Dieter", "Eva", "Farid", "Grace", "Hiro", "Ines", "Jan", "Kofi", "Lena", "Mona", "Nils")
LAST = ("Adler", "Brandt", "Costa", "Duval", "Engel", "Fuchs", "Garcia", "Huber", "Ivanov", "Jansen", "Keller", "Lopez")
CITIES = ("Berlin", "Bath", "Lyon", "Porto", "Graz", "Turin", "Ghent", "Oslo")
PLANS = ("free", "basic", "pro")
DAY = 86_400_000
LISTS, MEMBERSHIPS, EVENTS = 30, 3, 5
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__RENDERS_PER_MINUTE": "0"}


class Bench:
    """One server on the big database, and how many requests a figure takes."""

    def __init__(self, server: Server, contacts: int, requests: int) -> None:
        self.server, self.contacts, self.requests = server, contacts, requests
        self.api = server.client(validate=False, keep_alive=True)
        self.random = random.Random(7)
        self._segment: int | None = None

    def any_id(self) -> int:
        """Answer the id of somebody."""
        return self.random.randint(1, self.contacts)

    def put(self, email: str, **body: Any) -> Any:
        """Post a contact."""
        return self.api.post("/contacts", {"email": email, **body})

    def mixed(self, days: int, leaf: str) -> list[dict[str, Any]]:
        """Five conditions of five kinds: name, list, own data, tag, mail opened."""
        opened = {"name": "email_last_opened_at", "predicate": "within_days", "value": days}
        if leaf == "event":
            value = {"event": "email_opened", "at_least": 1, "within_days": days}
            opened = {"name": "event", "predicate": "performed", "value": value}
        return [
            {"name": "contact_last_name", "predicate": "not_start", "value": LAST[0][:2]},
            {"name": "contact_list", "predicate": "in", "value": [1, 2, 3]},
            {"name": "contact_data.city", "predicate": "present", "value": True},
            {"name": "contact_tag", "predicate": "not_cont", "value": "vip"},
            opened,
        ]

    def count(self, days: int, leaf: str = "column") -> Any:
        """Ask how many people five conditions find."""
        return self.api.post("/segments/count", {"filters": self.mixed(days, leaf)})

    def segment(self) -> int:
        """Answer a saved segment of the five conditions, made once."""
        if self._segment is None:
            body = {"name": "Five", "filters": self.mixed(30, "column")}
            self._segment = int(self.api.post("/segments", body).expect(201)["id"])
        return self._segment

    def any_name(self) -> str:
        """Answer the beginning of somebody's name."""
        return f"{self.random.choice(FIRST)} {self.random.choice(LAST)}{self.random.randint(1, self.contacts) % 1000}"


Figure = Callable[[Bench], Any]
FIGURES: dict[str, tuple[float, Figure]] = {
    "page of contacts": (40, lambda b: b.api.get("/contacts", limit=50)),
    "page of a list": (40, lambda b: b.api.get("/contacts", limit=50, list_id=b.random.randint(1, LISTS))),
    "deep page": (100, lambda b: b.api.get("/contacts", limit=50, page=b.random.randint(1, b.contacts // 50))),
    "search": (60, lambda b: b.api.get("/contacts/search", q=b.any_name())),
    "search, two letters": (60, lambda b: b.api.get("/contacts/search", q=b.random.choice(FIRST)[:2])),
    "search by address": (60, lambda b: b.api.get("/contacts/search", q=f"person{b.any_id()}@example")),
    "contact by id": (5, lambda b: b.api.get(f"/contacts/{b.any_id()}")),
    "list, searched": (40, lambda b: b.api.get("/contacts", search=b.any_name())),
    "list, two letters": (40, lambda b: b.api.get("/contacts", search=b.random.choice(FIRST)[:2])),
    "timeline": (40, lambda b: b.api.get(f"/contacts/{b.any_id()}/timeline")),
    "segment of five, count": (300, lambda b: b.count(days=30)),
    "segment of five, event": (300, lambda b: b.count(days=30, leaf="event")),
    "segment, explain": (10, lambda b: b.api.get(f"/segments/{b.segment()}/explain", contact_id=b.any_id())),
    "upsert, known": (10, lambda b: b.put(f"person{b.any_id()}@example.org", last_name=f"X{b.any_id()}")),
    "upsert, new": (10, lambda b: b.put(f"new{time.time_ns()}@example.org", list_ids=[1])),
}  # fmt: skip


def person(number: int, now: int) -> tuple[Any, ...]:
    """Return the row of a contact."""
    pick = random.Random(number)
    added = now - 400 * DAY + number * 30_000 % (399 * DAY)
    opened = now - pick.randrange(180 * DAY) if number % 3 else None
    tags = '"vip"' if number % 10 == 0 else '"customer"' if number % 4 == 0 else ""
    data = (
        f'{{"city":"{CITIES[number % len(CITIES)]}","plan":"{PLANS[number % 3]}","visits":{number % 100},'
        f'"tags":[{tags}]}}'
    )
    return (
        number, f"{number:08x}-0000-4000-8000-000000000000", FIRST[number % len(FIRST)],
        f"{LAST[number % len(LAST)]}{number % 1000}", "import" if number % 2 else "form", "DE", data, opened, added,
        added,
    )  # fmt: skip


def chunks(contacts: int, rows: Callable[[int], Iterator[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of all people, one person after the other."""
    for number in range(1, contacts + 1):
        yield from rows(number)


def whole(here: apsw.Connection, sql: str) -> str:
    """Add the columns to an INSERT that must have a value and got none: they begin at nothing."""
    found = re.match(r"INSERT INTO (\w+) \(([^)]*)\)", sql)
    if found is None:
        return sql
    table, named = found.groups()
    given = {name.strip() for name in named.split(",")}
    columns = here.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE \"notnull\" AND NOT pk").fetchall()
    left = [name for (name,) in columns if name not in given]
    if not left or table == "contact_search":
        return sql
    head, _, values = sql.partition(") VALUES (")
    return f"{head}, {', '.join(left)}) VALUES ({values[:-1]}{', 0' * len(left)})"


def fill(path: Path, contacts: int) -> None:
    """Write the big database into one that is set up already; indexes are made at the end, all at once."""
    now = int(time.time() * 1000)
    here = apsw.Connection(str(path))
    here.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -1000000")
    indexes = [row[0] for row in here.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL AND tbl_name IN "
        "('contact', 'channel', 'membership', 'event', 'consent')").fetchall()]  # fmt: skip
    names = [sql.split(" INDEX ")[1].split()[0] for sql in indexes]
    here.execute("BEGIN")
    for name in names:
        here.execute(f"DROP INDEX {name}")
    for number in range(1, LISTS + 1):
        here.execute(
            whole(here, "INSERT INTO contact_list (id, account_id, name, name_key, created_at, updated_at) "
                        "VALUES (?, 1, ?, ?, ?, ?)"),
            (number, f"List {number}", f"list {number}", now, now),
        )  # fmt: skip
    for words, sql, rows in _tables(now):
        begin = time.monotonic()
        here.executemany(whole(here, sql), chunks(contacts, rows))
        print(f"  {words}: {time.monotonic() - begin:.0f} s", flush=True)
    here.execute(
        "INSERT INTO membership SELECT DISTINCT contact_list_id, contact_id, created_at FROM filling "
        "ORDER BY contact_list_id, contact_id; DROP TABLE filling; "
        "UPDATE contact_list SET contacts_count = (SELECT count(*) FROM membership WHERE contact_list_id = id)"
    )
    for sql in indexes:
        here.execute(sql)
    here.execute("COMMIT; ANALYZE; PRAGMA journal_mode = wal")
    here.close()


def _tables(now: int) -> Iterator[tuple[str, str, Callable[[int], Iterator[tuple[Any, ...]]]]]:
    yield (
        "contacts",
        "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
        "email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, "
        "email_last_opened_at, created_at, updated_at) VALUES (?, 1, ?, ?, ?, ?, ?, ?, 'full', 3, 1, 0, 0, 0, ?, ?, ?)",
        lambda number: iter([person(number, now)]),
    )
    yield (
        "channels",
        "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, opt_in_at, sent_count, fail_count, "
        "data, created_at, updated_at) VALUES (1, ?, 'email', ?, ?, ?, ?, 3, 0, '{}', ?, ?)",
        lambda n: iter([(n, f"person{n}@example.org", f"person{n}@example.org", n % 20 != 0, now, now, now)]),
    )
    yield (
        "evidence",
        "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, data, created_at) "
        "VALUES (1, ?, 'email', ?, 'opt_in', 'operator', 'import', '{}', ?)",
        lambda n: iter([(n, random.Random(n).randbytes(20), now)]),
    )
    yield (
        "search index",
        "INSERT INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, '')",
        lambda n: iter([(n, " ".join(person(n, now)[2:4]), f"person{n}@example.org")]),
    )
    yield (
        "memberships",
        "INSERT INTO filling VALUES (?, ?, ?)",
        lambda n: ((1 + (n * 7 + k * 11) % LISTS, n, now) for k in range(MEMBERSHIPS)),
    )
    yield (
        "events",
        "INSERT INTO event (account_id, contact_id, event, data, resource_uid, test, generated, chain_depth, "
        "created_at, updated_at) VALUES (1, ?, ?, '{}', NULL, 0, 1, 0, ?, ?)",
        lambda n: _events(n, now),
    )


def _events(number: int, now: int) -> Iterator[tuple[Any, ...]]:
    pick = random.Random(number)
    names = ("contact_add", "email_sent", "email_opened", "product_view", "order_paid")
    for name in names[:EVENTS]:
        when = now - pick.randrange(180 * DAY)
        yield number, name, when, when


def make(cache: Path, contacts: int) -> Path:
    """Answer the data directory of the big database, made now unless it is there."""
    # Another schema is another database
    schema = hashlib.sha256(SQL.encode()).hexdigest()[:8]
    data = cache / f"audience-{contacts}-{schema}"
    if not (data / "done").exists():
        shutil.rmtree(data, ignore_errors=True)
        server = Server(data=data).set_up()
        begin = time.monotonic()
        here = apsw.Connection(str(data / "campanero.db"))
        here.execute("CREATE TABLE filling (contact_list_id INTEGER, contact_id INTEGER, created_at INTEGER)")
        here.close()
        fill(data / "campanero.db", contacts)
        (data / "done").write_text(str(server.key))
        server.close()
        print(f"made {contacts} contacts in {time.monotonic() - begin:.0f} s")
    return data


def percentiles(figure: Figure, bench: Bench) -> tuple[float, float, float]:
    """Answer p50, p95, p99 in milliseconds."""
    times = []
    for _ in range(bench.requests):
        begin = time.perf_counter()
        answer = figure(bench)
        times.append((time.perf_counter() - begin) * 1000)
        if answer.status not in (200, 201):
            raise AssertionError(f"status {answer.status}: {answer.body[:500]!r}")
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.95)], times[int(len(times) * 0.99)]


def main() -> None:
    """Run the measurements whose names hold the words given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "campanero-bench")
    parser.add_argument("--contacts", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("words", nargs="*", help="only figures whose names hold one of these")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    made = make(options.cache, options.contacts)
    with tempfile.TemporaryDirectory(dir=options.cache) as copy:
        data = Path(copy, "data")
        shutil.copytree(made, data)
        # What was copied goes to the disk now, not with the first commits that are measured
        os.sync()
        server = Server(data=data, env=UNLIMITED)
        server.key = (made / "done").read_text()
        with server:
            bench = Bench(server, options.contacts, options.requests)
            print(f"{'':24}{'p50':>8}{'p95':>8}{'p99':>8}   goal (p95), milliseconds")
            for name, (goal, figure) in FIGURES.items():
                if options.words and not any(word in name for word in options.words):
                    continue
                p50, p95, p99 = percentiles(figure, bench)
                print(
                    f"{name:24}{p50:8.1f}{p95:8.1f}{p99:8.1f}   {goal:g}{'' if p95 <= goal else '  MISSED'}", flush=True
                )
            print(f"memory at most {peak_mb(server.pid):.0f} MB")


if __name__ == "__main__":
    main()
