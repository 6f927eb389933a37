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

FIRST_NAMES = (
    "Ann",
    "Bo",
    "Carla",
    "Dieter",
    "Eva",
    "Farid",
    "Grace",
    "Hiro",
    "Ines",
    "Jan",
    "Kofi",
    "Lena",
    "Mona",
    "Nils",
)
LAST_NAMES = (
    "Adler",
    "Brandt",
    "Costa",
    "Duval",
    "Engel",
    "Fuchs",
    "Garcia",
    "Huber",
    "Ivanov",
    "Jansen",
    "Keller",
    "Lopez",
)
CITIES = ("Berlin", "Bath", "Lyon", "Porto", "Graz", "Turin", "Ghent", "Oslo")
PLANS = ("free", "basic", "pro")
EVENT_NAMES = ("email_sent", "email_opened", "product_view", "email_clicked", "order_paid", "contact_add")
TAGS = ("", '"customer"', '"vip"', '"customer","vip"', '"trial"')
DAY_MS = 86_400_000
LIST_COUNT, LISTS_PER_CONTACT, EVENTS_PER_CONTACT = 30, 3, 5
# To be changed with the generated data: the data directory is cached under this version and the schema
_FORMAT_VERSION = "3"
_MASK_64_BITS = (1 << 64) - 1

Rows = Iterator[tuple[Any, ...]]


def pseudo_random(number: int, purpose: int) -> float:
    """Return a pseudo-random number from 0 up to 1, derived from an id and the number of a purpose."""
    x = (number * 0x9E3779B97F4A7C15 + purpose * 0xD1B54A32D192ED03) & _MASK_64_BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64_BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK_64_BITS
    return ((x ^ (x >> 31)) >> 11) / (1 << 53)


class WeightedChoice:
    """Picks an index by weights."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._sums = list(accumulate(weights))

    def __call__(self, chance: float) -> int:
        """Return the index for a number from 0 up to 1."""
        return bisect(self._sums, chance * self._sums[-1])


_pick_list = WeightedChoice([1 / (k + 1) for k in range(LIST_COUNT)])
_pick_first_name, _pick_city = (
    WeightedChoice([1 / (k + 2) for k in range(len(FIRST_NAMES))]),
    WeightedChoice([1 / (k + 1) for k in range(len(CITIES))]),
)
_pick_plan, _pick_event_name = WeightedChoice([70, 22, 8]), WeightedChoice([40, 26, 16, 7, 5, 6])
_pick_tags, _pick_country = WeightedChoice([62, 24, 3, 4, 7]), WeightedChoice([60, 20, 12, 8])


def contact_name(number: int) -> tuple[str, str]:
    """Return the first and last name of a contact."""
    last = LAST_NAMES[int(pseudo_random(number, 2) * len(LAST_NAMES))]
    return FIRST_NAMES[_pick_first_name(pseudo_random(number, 1))], f"{last}{int(pseudo_random(number, 3) * 1000)}"


def contact_row(number: int, contacts: int, now: int) -> tuple[Any, ...]:
    """Return the row of a contact; creation times follow the ids, give or take a day."""
    added = now - 400 * DAY_MS + int((number / contacts * 398 + pseudo_random(number, 4)) * DAY_MS)
    city = f'"city":"{CITIES[_pick_city(pseudo_random(number, 5))]}",' if pseudo_random(number, 6) < 0.8 else ""
    visits = int(1 / (1.002 - pseudo_random(number, 7)))
    data = (
        f'{{{city}"plan":"{PLANS[_pick_plan(pseudo_random(number, 8))]}","visits":{visits},'
        f'"number":"c{number}","tags":[{TAGS[_pick_tags(pseudo_random(number, 9))]}]}}'
    )
    source = "import" if pseudo_random(number, 10) < 0.7 else "form"
    country = ("DE", "US", "FR", None)[_pick_country(pseudo_random(number, 11))]
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    return number, uuid, *contact_name(number), source, country, data, added, added


def membership_rows(number: int, now: int) -> Rows:
    """Yield the lists of a contact: three of thirty, with the first lists larger than the last."""
    list_ids: set[int] = set()
    turn = 0
    while len(list_ids) < LISTS_PER_CONTACT:
        list_ids.add(1 + _pick_list(pseudo_random(number, 20 + turn)))
        turn += 1
    return ((list_id, number, now) for list_id in list_ids)


def event_row(number: int, contacts: int, now: int) -> tuple[Any, ...]:
    """Return the row of an event: ordered by time, denser lately, and mostly of few contacts."""
    when = now - int(360 * DAY_MS * (1 - number / (contacts * EVENTS_PER_CONTACT)) ** 1.5)
    rank = int(contacts * pseudo_random(number, 40) ** 2)
    kind = EVENT_NAMES[_pick_event_name(pseudo_random(number, 41))]
    data = "{}"
    if kind.startswith("email_"):
        data = '{"verdict":"machine"}' if pseudo_random(number, 42) < 0.1 else '{"verdict":"human"}'
    # The activity of a contact does not depend on its id
    return 1 + rank * 7_368_787 % contacts, kind, data, when, when


def _tables(contacts: int, now: int) -> Iterator[tuple[str, str, Rows]]:
    contact_ids = range(1, contacts + 1)
    yield (
        "contacts",
        "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
        "email_sent_count, email_open_count, created_at, updated_at) "
        "VALUES (?, 1, ?, ?, ?, ?, ?, ?, 'full', 3, 1, ?, ?)",
        (contact_row(n, contacts, now) for n in contact_ids),
    )
    yield (
        "channels",
        "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, opt_in_at, sent_count, "
        "data, created_at, updated_at) VALUES (1, ?, 'email', ?, ?, ?, ?, 3, '{}', ?, ?)",
        (
            (n, f"person{n}@example.org", f"person{n}@example.org", pseudo_random(n, 12) < 0.94, now, now, now)
            for n in contact_ids
        ),
    )
    yield (
        "evidence",
        "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, data, created_at) "
        "VALUES (1, ?, 'email', ?, 'opt_in', 'operator', 'import', '{}', ?)",
        ((n, hashlib.blake2b(n.to_bytes(8), digest_size=20).digest(), now) for n in contact_ids),
    )
    yield (
        "search index",
        "INSERT INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, '')",
        ((n, " ".join(contact_name(n)), f"person{n}@example.org") for n in contact_ids),
    )
    yield (
        "memberships",
        "INSERT INTO filling VALUES (?, ?, ?)",
        (row for n in contact_ids for row in membership_rows(n, now)),
    )
    yield (
        "events",
        "INSERT INTO event (account_id, contact_id, event, data, resource_uid, generated, created_at, updated_at) "
        "VALUES (1, ?, ?, ?, NULL, 1, ?, ?)",
        (event_row(n, contacts, now) for n in range(1, contacts * EVENTS_PER_CONTACT + 1)),
    )


def add_missing_columns(database: apsw.Connection, sql: str) -> str:
    """Return an INSERT with the NOT NULL columns that it does not name, each with the value 0."""
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


def write_audience(path: Path, contacts: int, say: Callable[[str], None] = print) -> None:
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
    for number in range(1, LIST_COUNT + 1):
        database.execute(
            add_missing_columns(
                database,
                "INSERT INTO contact_list (id, account_id, name, name_key, created_at, updated_at) "
                "VALUES (?, 1, ?, ?, ?, ?)",
            ),
            (number, f"List {number}", f"list {number}", now, now),
        )
    for label, sql, rows in _tables(contacts, now):
        begin = time.monotonic()
        database.executemany(add_missing_columns(database, sql), rows)
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


def get_or_create_audience(cache: Path, contacts: int) -> Path:
    """Return the data directory of the large audience; create it if it does not exist."""
    schema = b"".join(path.read_bytes() for path in sorted(Path(models.__file__).parent.glob("*.py")))
    edition = hashlib.sha256(schema + _FORMAT_VERSION.encode()).hexdigest()[:8]
    data = cache / f"audience-{contacts}-{edition}"
    if not (data / "done").exists():
        shutil.rmtree(data, ignore_errors=True)
        server = Server(data=data).set_up()
        begin = time.monotonic()
        write_audience(data / "campanero.db", contacts)
        (data / "done").write_text(str(server.key))
        server.close()
        print(f"made {contacts} contacts in {time.monotonic() - begin:.0f} s")
    return data
