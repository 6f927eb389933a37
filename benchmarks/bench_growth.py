"""Measures how the main acts grow: `python -m benchmarks.bench_growth [--sizes 10000 100000 1000000]`; run by hand.

For each size a database is made by the product and filled with so many contacts, each with an address, evidence of
consent, a list, a place in the search index and five events. On it the acts run over HTTP, as people and programs ask
for them; each is printed with its wall seconds and the processor seconds of the service (in brackets). Behind them
stands the exponent of growth between neighbouring sizes: 0 is constant, 1 grows with the contacts. It is taken from the
processor seconds where these can be measured, because other work on the machine does not change them.
"""

import argparse
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from benchmarks.bench_sending import html
from benchmarks.bench_ui import Visitor
from tests.kit.server import ROOT, Server
from tests.kit.timeouts import report_stolen_cpu_at_exit, wait_until_idle
from tests.kit.uploads import upload, wait_for_import

UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "0"}
EVENTS_PER_CONTACT = 5
RECIPIENTS = 10_000  # members of list 2; list 1 has all contacts
_MIN_CPU_SECONDS = 0.01  # processor seconds are counted in ticks of 10 ms; short acts are repeated

# `chance(i, prime)` is a number from 0 to 65535 that looks random, the same in each run; primes keep columns apart
_CHANCE = "(({0} * {1} & 4294967295) >> 16)"
_DATA = (
    """
CREATE TEMP TABLE name AS SELECT key AS n, value AS first FROM json_each('["Ann", "Bo", "Carla", "Dieter", "Eva",
"Farid", "Grace", "Hiro", "Ines", "Jan", "Kofi", "Lena", "Mona", "Nils", "Olga", "Pia"]')""",
    """
CREATE TEMP TABLE family AS SELECT key AS n, value AS last FROM json_each('["Adler", "Brandt", "Costa", "Duval",
"Engel", "Fuchs", "Garcia", "Huber", "Ivanov", "Jansen", "Keller", "Lopez", "Meyer", "Novak", "Olsen", "Petrov"]')""",
    """
INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking,
email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at)
WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < :contacts)
SELECT i, 1, printf('%08x-0000-4000-8000-%012x', {chance_1}, i), first, last || ({chance_2} % 1000),
iif({chance_3} % 10 < 7, 'import', 'form'), substr('DEUSFR', 1 + {chance_3} % 3 * 2, 2),
'{{"city":"' || iif({chance_4} % 5, 'Bath', 'Graz') || '","plan":"' || iif({chance_5} % 10, 'free', 'pro') ||
'","number":"c' || i || '","tags":[' || iif({chance_1} % 14, '', '"vip"') || ']}}', 'full', 0, 0, 0, 0, 0,
:now - 400 * 86400000 + i * 399 * 86400000 / :contacts, :now - 400 * 86400000 + i * 399 * 86400000 / :contacts
FROM number CROSS JOIN name ON name.n = {chance_4} >> 12 CROSS JOIN family ON family.n = {chance_5} >> 12
""",
    """
INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, opt_in_at, sent_count, fail_count, data,
created_at, updated_at) SELECT 1, id, 'email', 'person' || id || '@example' || ({id_chance} % 500) || '.org',
'person' || id || '@example' || ({id_chance} % 500) || '.org', id % ({contacts} / {recipients}) = 0 OR id % 17 > 0,
created_at, 0, 0, '{{}}', created_at, created_at FROM contact
""",
    """
INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, data, created_at)
SELECT 1, id, 'email', randomblob(20), 'opt_in', 'operator', 'import', '{{}}', created_at FROM contact
""",
    """
INSERT INTO contact_search (rowid, names, email, phone)
SELECT c.id, c.first_name || ' ' || c.last_name, h.value, '' FROM channel h CROSS JOIN contact c ON c.id = h.contact_id
""",
    """
INSERT INTO contact_list (id, account_id, name, name_key, contacts_count, stale, seen_event_id, double_opt_in, public,
created_at, updated_at) VALUES (1, 1, 'Everybody', 'everybody', {contacts}, 0, 0, 0, 0, :now, :now),
(2, 1, 'Regulars', 'regulars', {recipients}, 0, 0, 0, 0, :now, :now)
""",
    "INSERT INTO membership SELECT 1, id, created_at FROM contact",
    "INSERT INTO membership SELECT 2, id, created_at FROM contact WHERE id % ({contacts} / {recipients}) = 0",
    # Each contact has its five events at five times of the year
    """
INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, updated_at)
WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < :contacts * {events}),
of(contact, kind, at) AS (SELECT 1 + i * 7368787 % :contacts, {chance_2} % 10,
:now - 360 * 86400000 + i * 360 * 86400000 / (:contacts * {events}) FROM number)
SELECT 1, contact, CASE WHEN kind < 4 THEN 'email_sent' WHEN kind < 7 THEN 'email_opened' WHEN kind < 8 THEN
'email_clicked' WHEN kind < 9 THEN 'page_viewed' ELSE 'order_paid' END,
iif(kind >= 4 AND kind < 8, '{{"verdict":"human"}}', '{{}}'), 0, kind < 8, 1, 0, at, at FROM of
""",
)
_COUNTERS = """
UPDATE contact SET email_sent_count = sent, email_open_count = opens, email_click_count = clicks,
email_last_sent_at = sent_at, email_last_opened_at = opened_at, email_last_clicked_at = clicked_at,
last_interacted_at = nullif(max(coalesce(opened_at, 0), coalesce(clicked_at, 0)), 0) FROM (
SELECT contact_id, count(*) FILTER (WHERE event = 'email_sent') AS sent,
count(*) FILTER (WHERE event = 'email_opened') AS opens, count(*) FILTER (WHERE event = 'email_clicked') AS clicks,
max(created_at) FILTER (WHERE event = 'email_sent') AS sent_at,
max(created_at) FILTER (WHERE event = 'email_opened') AS opened_at,
max(created_at) FILTER (WHERE event = 'email_clicked') AS clicked_at FROM event GROUP BY contact_id) e
WHERE e.contact_id = contact.id
"""


def fill(path: Path, contacts: int) -> None:
    """Fill a database that is set up and not open; its indexes are made at the end, and no statistics, as in service.

    `contacts` must be a multiple of `RECIPIENTS`, so that as many contacts are in list 2.
    """
    primes = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    names = {f"chance_{number}": _CHANCE.format("i", prime) for number, prime in enumerate(primes, 1)}
    names["id_chance"] = _CHANCE.format("id", primes[0])
    values = {"contacts": contacts, "now": int(time.time() * 1000)}
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -1000000").fetchall()
    indexes = database.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql NOT NULL AND tbl_name IN "
        "('contact', 'channel', 'consent', 'membership', 'event')"
    ).fetchall()
    database.execute("BEGIN").fetchall()
    for name, _ in indexes:
        database.execute(f'DROP INDEX "{name}"').fetchall()
    for sql in _DATA:
        statement = sql.format(**names, contacts=contacts, recipients=RECIPIENTS, events=EVENTS_PER_CONTACT)
        database.execute(statement, values).fetchall()
    for _, sql in indexes:
        database.execute(sql).fetchall()
    database.execute(_COUNTERS).fetchall()
    database.execute("COMMIT; PRAGMA journal_mode = wal").fetchall()
    database.close()


class Took(NamedTuple):
    """What an act took: wall seconds, and processor seconds of the service or the command."""

    wall: float
    cpu: float


class Bench:
    """A running service on a filled database."""

    def __init__(self, server: Server, contacts: int, times: int) -> None:
        self.server, self.contacts, self.times = server, contacts, times
        self.api = server.client(validate=False, keep_alive=True)
        self.visitor = Visitor(server)
        self.random = random.Random(7)
        self.campaign = 0

    def cpu(self) -> float:
        """Return the processor seconds of the service and of its children that have ended."""
        fields = Path(f"/proc/{self.server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def once(self, act: Callable[[], Any]) -> Took:
        """Run an act once."""
        cpu, started_at = self.cpu(), time.perf_counter()
        act()
        return Took(time.perf_counter() - started_at, self.cpu() - cpu)

    def often(self, act: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> Took:
        """Run an act many times, each after `before`, which is not measured; return the median and the mean."""
        act()
        took = []
        for _ in range(self.times):
            before()
            took.append(self.once(act))
        return Took(
            statistics.median(duration.wall for duration in took), statistics.fmean(duration.cpu for duration in took)
        )

    def write(self) -> None:
        """Change a contact, so that the results of earlier queries are no longer current."""
        number = self.random.randint(1, self.contacts)
        self.api.patch(f"/contacts/{number}", {"first_name": f"N{number}"}).expect(200)

    def page(self, path: str) -> Took:
        """Ask for a page as a signed-in user."""
        return self.often(lambda: self.visitor.get(path))

    def count(self, *filters: tuple[str, str, Any]) -> Took:
        """Count a segment, each time after a write."""
        body = {"filters": [dict(zip(("name", "predicate", "value"), rule, strict=True)) for rule in filters]}
        return self.often(lambda: self.api.post("/segments/count", body).expect(200), self.write)

    def send(self) -> None:
        """Send a campaign to list 2, and wait until it is completed."""
        content = {"subject": "News for {{ first_name }}", "body": html(18_000), "from_email": "ana@bakery.example"}
        body = {"name": "Growth", "trigger_attributes": {"contact_list_id": 2}, "template_attributes": content}
        self.campaign = self.api.post("/campaigns", body).expect(201)["id"]
        path = f"/campaigns/{self.campaign}"
        self.api.post(f"{path}/send").expect(200)
        row = self.api.wait(path, lambda row: row["status"] == "completed", timeout=1800)
        assert row["stats"]["sent"] == RECIPIENTS, row["stats"]

    def bring_in(self, rows: int) -> None:
        """Import new contacts into list 1, and wait for the end."""
        lines = ["email,first_name,last_name,city,plan"]
        lines += [
            f"{self.random.getrandbits(40):x}@new{n % 500}.org,Ann{n % 1000},Adler{n % 977},Bath,pro"
            for n in range(rows)
        ]
        answer = upload(self.api, "\n".join(lines), list_ids=[1], consent_source="bench")
        done = wait_for_import(self.api, answer, 3600)
        assert done["created"] == rows, done

    def back_up(self) -> Took:
        """Make a backup with the command, beside the service."""
        path = self.server.home / "backup.tar.gz"
        before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = self.server._command("backup", str(path))
        subprocess.run(command, env=self.server.env, cwd=self.server.home, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - started_at, resource.getrusage(resource.RUSAGE_CHILDREN)
        path.unlink()
        return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


_FIVE = (
    ("contact_last_name", "not_start", "Ad"),
    ("contact_list", "in", [1, 2]),
    ("contact_data.city", "present", True),
    ("contact_tag", "not_cont", "vip"),
)
_OPENED = ("event", "performed", {"event": "email_opened", "within_days": 30})
_NARROW = (("contact_list", "eq", 2), ("email_last_opened_at", "within_days", 30))

Act = Callable[[Bench], Took]
ACTS: dict[str, Act] = {
    "home": lambda b: b.page("/"),
    "contacts": lambda b: b.page("/contacts"),
    "contacts, after a write": lambda b: b.often(lambda: b.visitor.get("/contacts"), b.write),
    "contacts, page in the middle": lambda b: b.page(f"/contacts?page={b.contacts // 50}"),
    "contact": lambda b: b.page(f"/contacts/{b.contacts // 2}"),
    "list of everybody": lambda b: b.often(lambda: b.visitor.get("/lists/1"), b.write),
    "search, one match": lambda b: b.often(
        lambda: b.api.get("/contacts/search", q=f"person{b.random.randint(1, b.contacts)}@example").expect(200)
    ),
    "search, a name": lambda b: b.often(lambda: b.api.get("/contacts/search", q="Lena Novak12").expect(200), b.write),
    "search, two letters": lambda b: b.often(lambda: b.api.get("/contacts/search", q="le").expect(200), b.write),
    "activity": lambda b: b.often(lambda: b.visitor.get("/activity"), b.write),
    "segment of five, count": lambda b: b.count(*_FIVE, ("email_last_opened_at", "within_days", 30)),
    "segment of five, event": lambda b: b.count(*_FIVE, _OPENED),
    "segment in a list of 10,000": lambda b: b.count(*_NARROW),
    "campaign of 10,000": lambda b: b.once(b.send),
    "report": lambda b: b.page(f"/campaigns/{b.campaign}"),
    "backup": Bench.back_up,
    "import of 100,000": lambda b: b.once(lambda: b.bring_in(100_000)),
}


@contextmanager
def sink() -> Iterator[int]:
    """Run an SMTP server that accepts everything as a process, and yield its port."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.kit.smtp_sink", "--spool", f"{directory}/spool"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
            process.wait()


def measure(contacts: int, times: int, words: list[str]) -> dict[str, Took]:
    """Make a database of a size, and return what each act takes on it."""
    with sink() as port, Server(env=UNLIMITED, relay=port, cold=True).set_up() as server:
        server.set_postal_address().stop()
        path = server.data / "campanero.db"
        started_at = time.perf_counter()
        fill(path, contacts)
        print(f"{contacts:,} contacts: made in {time.perf_counter() - started_at:.0f} s, "
              f"{path.stat().st_size / 1e6:,.0f} MB, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
        took = {}
        starts = []
        for _ in range(3):
            started_at = time.perf_counter()
            server.start(timeout=600)
            starts.append(time.perf_counter() - started_at)
            cpu = Bench(server, contacts, times).cpu()
            if len(starts) < 3:
                server.stop()
        took["start"] = Took(statistics.median(starts), cpu)
        # The service reads the events that were filled in, all of which are new to it
        started_at = time.perf_counter()
        wait_until_idle(server.pid, timeout=max(60, contacts / 5000))
        print(f"idle {time.perf_counter() - started_at:.0f} s after its start", flush=True)
        bench = Bench(server, contacts, times)
        for name, act in ACTS.items():
            if words and not any(word in name for word in words):
                continue
            took[name] = act(bench)
            print(f"  {name:30} {took[name].wall:9.3f} s ({took[name].cpu:.3f})", flush=True)
        return took


def exponent(small: Took, large: Took, factor: float) -> str:
    """Return the exponent of growth of an act between two sizes, whose ratio is `factor`."""
    is_cpu = min(small.cpu, large.cpu) >= _MIN_CPU_SECONDS
    ratio = large.cpu / small.cpu if is_cpu else large.wall / small.wall
    return f"{math.log(ratio) / math.log(factor):.2f}"


def main() -> None:
    """Measure each size and print a table."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000], help="multiples of 10000, ascending")
    parser.add_argument("--times", type=int, default=20, help="how often each short act is repeated")
    parser.add_argument("words", nargs="*", help="only acts whose names hold one of these")
    options = parser.parse_args()
    if any(size <= 0 or size % RECIPIENTS for size in options.sizes) or options.sizes != sorted(set(options.sizes)):
        parser.error(f"sizes must be multiples of {RECIPIENTS}, ascending")
    results = [measure(size, options.times, options.words) for size in options.sizes]
    print(f"\n{'wall seconds (processor)':30}" + "".join(f"{size:>20,}" for size in options.sizes) + "   exponents")
    for name in results[0]:
        cells = "".join(f"{f'{result[name].wall:.3f} ({result[name].cpu:.3f})':>20}" for result in results)
        slopes = [
            exponent(results[n][name], results[n + 1][name], options.sizes[n + 1] / options.sizes[n])
            for n in range(len(results) - 1)
        ]
        print(f"{name:30}{cells}   {' '.join(slopes)}")


if __name__ == "__main__":
    main()
