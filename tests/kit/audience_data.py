"""The large audience of the benchmarks, created once as a data directory and always the same.

Every attribute of a contact is derived independently from the contact's id. Lists, names and activity are skewed as in
real accounts: few large lists and many small ones, few contacts with much activity.
"""

import hashlib
import re
import shutil
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import apsw

from appliance.storage import models
from tests.kit.server import Server

FIRST = ("Ann", "Bo", "Carla", "Dieter", "Eva", "Farid", "Grace", "Hiro", "Ines", "Jan", "Kofi", "Lena", "Mona", "Nils")
LAST = ("Adler", "Brandt", "Costa", "Duval", "Engel", "Fuchs", "Garcia", "Huber", "Ivanov", "Jansen", "Keller", "Lopez")
CITIES = ("Berlin", "Bath", "Lyon", "Porto", "Graz", "Turin", "Ghent", "Oslo")
PLANS = ("free", "basic", "pro")
KINDS = ("email_sent", "email_opened", "product_view", "email_clicked", "order_paid", "contact_add")
TAGS = ("", '"customer"', '"vip"', '"customer","vip"', '"trial"')
DAY = 86_400_000
LISTS, MEMBERSHIPS, EVENTS = 30, 3, 5
# Another text is another database
_EDITION = "3"
_ALL = (1 << 64) - 1

Rows = Iterator[tuple[Any, ...]]


def draw(number: int, what: int) -> float:
    """Return a pseudo-random number from 0 up to 1, derived from an id and a purpose."""
    x = (number * 0x9E3779B97F4A7C15 + what * 0xD1B54A32D192ED03) & _ALL
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _ALL
    return ((x ^ (x >> 31)) >> 11) / (1 << 53)


class Skewed:
    """Picks an index by weights."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._sums = list(accumulate(weights))

    def __call__(self, chance: float) -> int:
        """Return the index for a number from 0 up to 1."""
        return bisect(self._sums, chance * self._sums[-1])


_falling = Skewed([1 / (k + 1) for k in range(LISTS)])
_names, _cities = Skewed([1 / (k + 2) for k in range(len(FIRST))]), Skewed([1 / (k + 1) for k in range(len(CITIES))])
_plans, _kinds = Skewed([70, 22, 8]), Skewed([40, 26, 16, 7, 5, 6])
_tags, _countries = Skewed([62, 24, 3, 4, 7]), Skewed([60, 20, 12, 8])


def name(number: int) -> tuple[str, str]:
    """Return the first and last name of a contact."""
    last = LAST[int(draw(number, 2) * len(LAST))]
    return FIRST[_names(draw(number, 1))], f"{last}{int(draw(number, 3) * 1000)}"


def person(number: int, contacts: int, now: int) -> tuple[Any, ...]:
    """Return the row of a contact; creation times follow the ids, give or take a day."""
    added = now - 400 * DAY + int((number / contacts * 398 + draw(number, 4)) * DAY)
    city = f'"city":"{CITIES[_cities(draw(number, 5))]}",' if draw(number, 6) < 0.8 else ""
    visits = int(1 / (1.002 - draw(number, 7)))
    data = (
        f'{{{city}"plan":"{PLANS[_plans(draw(number, 8))]}","visits":{visits},'
        f'"number":"c{number}","tags":[{TAGS[_tags(draw(number, 9))]}]}}'
    )
    source = "import" if draw(number, 10) < 0.7 else "form"
    country = ("DE", "US", "FR", None)[_countries(draw(number, 11))]
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    return number, uuid, *name(number), source, country, data, added, added


def memberships(number: int, now: int) -> Rows:
    """Yield the lists of a contact: three of thirty, with the first lists larger than the last."""
    list_ids: set[int] = set()
    turn = 0
    while len(list_ids) < MEMBERSHIPS:
        list_ids.add(1 + _falling(draw(number, 20 + turn)))
        turn += 1
    return ((list_id, number, now) for list_id in list_ids)


def event(number: int, contacts: int, now: int) -> tuple[Any, ...]:
    """Return the row of an event: ordered by time, denser lately, and mostly of few contacts."""
    when = now - int(360 * DAY * (1 - number / (contacts * EVENTS)) ** 1.5)
    rank = int(contacts * draw(number, 40) ** 2)
    kind = KINDS[_kinds(draw(number, 41))]
    data = "{}"
    if kind.startswith("email_"):
        data = '{"verdict":"machine"}' if draw(number, 42) < 0.1 else '{"verdict":"human"}'
    # Who is active has nothing to do with the order of ids
    return 1 + rank * 7_368_787 % contacts, kind, data, when, when


def _tables(contacts: int, now: int) -> Iterator[tuple[str, str, Rows]]:
    everybody = range(1, contacts + 1)
    yield (
        "contacts",
        "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
        "email_sent_count, email_open_count, created_at, updated_at) "
        "VALUES (?, 1, ?, ?, ?, ?, ?, ?, 'full', 3, 1, ?, ?)",
        (person(n, contacts, now) for n in everybody),
    )
    yield (
        "channels",
        "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, opt_in_at, sent_count, "
        "data, created_at, updated_at) VALUES (1, ?, 'email', ?, ?, ?, ?, 3, '{}', ?, ?)",
        ((n, f"person{n}@example.org", f"person{n}@example.org", draw(n, 12) < 0.94, now, now, now) for n in everybody),
    )
    yield (
        "evidence",
        "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, data, created_at) "
        "VALUES (1, ?, 'email', ?, 'opt_in', 'operator', 'import', '{}', ?)",
        ((n, hashlib.blake2b(n.to_bytes(8), digest_size=20).digest(), now) for n in everybody),
    )
    yield (
        "search index",
        "INSERT INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, '')",
        ((n, " ".join(name(n)), f"person{n}@example.org") for n in everybody),
    )
    yield (
        "memberships",
        "INSERT INTO filling VALUES (?, ?, ?)",
        (row for n in everybody for row in memberships(n, now)),
    )
    yield (
        "events",
        "INSERT INTO event (account_id, contact_id, event, data, resource_uid, generated, created_at, updated_at) "
        "VALUES (1, ?, ?, ?, NULL, 1, ?, ?)",
        (event(n, contacts, now) for n in range(1, contacts * EVENTS + 1)),
    )


def whole(database: apsw.Connection, sql: str) -> str:
    """Add to an INSERT the NOT NULL columns that it does not name, with the value 0."""
    match = re.match(r"INSERT INTO (\w+) \(([^)]*)\)", sql)
    if match is None:
        return sql
    table, named = match.groups()
    given_columns = {column.strip() for column in named.split(",")}
    columns = database.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE \"notnull\" AND NOT pk").fetchall()
    missing_columns = [column for (column,) in columns if column not in given_columns]
    if not missing_columns or table == "contact_search":
        return sql
    head, _, values = sql.partition(") VALUES (")
    return f"{head}, {', '.join(missing_columns)}) VALUES ({values[:-1]}{', 0' * len(missing_columns)})"


def fill(path: Path, contacts: int, say: Callable[[str], None] = print) -> None:
    """Write the large audience into a database that is set up; indexes are created at the end."""
    now = int(time.time() * 1000)
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -1000000")
    indexes = [row[0] for row in database.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL AND tbl_name IN "
        "('contact', 'channel', 'membership', 'event', 'consent')").fetchall()]  # fmt: skip
    database.execute("BEGIN; CREATE TABLE filling (contact_list_id INTEGER, contact_id INTEGER, created_at INTEGER)")
    for sql in indexes:
        database.execute(f"DROP INDEX {sql.split(' INDEX ')[1].split()[0]}")
    for number in range(1, LISTS + 1):
        database.execute(
            whole(database, "INSERT INTO contact_list (id, account_id, name, name_key, created_at, updated_at) "
                        "VALUES (?, 1, ?, ?, ?, ?)"),
            (number, f"List {number}", f"list {number}", now, now),
        )  # fmt: skip
    for label, sql, rows in _tables(contacts, now):
        begin = time.monotonic()
        database.executemany(whole(database, sql), rows)
        say(f"  {label}: {time.monotonic() - begin:.0f} s")
    database.execute(
        "INSERT INTO membership SELECT * FROM filling ORDER BY contact_list_id, contact_id; DROP TABLE filling; "
        "UPDATE contact_list SET contacts_count = (SELECT count(*) FROM membership WHERE contact_list_id = id)"
    )
    for sql in indexes:
        database.execute(sql)
    database.execute(
        "UPDATE contact SET email_last_opened_at = (SELECT max(created_at) FROM event WHERE contact_id = contact.id "
        "AND event = 'email_opened' AND json_extract(data, '$.verdict') = 'human')"
    )
    database.execute("COMMIT; ANALYZE; PRAGMA journal_mode = wal")
    database.close()


def make(cache: Path, contacts: int) -> Path:
    """Return the data directory of the large audience, created now unless it exists."""
    schema = b"".join(path.read_bytes() for path in sorted(Path(models.__file__).parent.glob("*.py")))
    edition = hashlib.sha256(schema + _EDITION.encode()).hexdigest()[:8]
    data = cache / f"audience-{contacts}-{edition}"
    if not (data / "done").exists():
        shutil.rmtree(data, ignore_errors=True)
        server = Server(data=data).set_up()
        begin = time.monotonic()
        fill(data / "campanero.db", contacts)
        (data / "done").write_text(str(server.key))
        server.close()
        print(f"made {contacts} contacts in {time.monotonic() - begin:.0f} s")
    return data
