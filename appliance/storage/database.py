"""Open the database (one connection for each thread), run statements, and define the base classes of the models."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import apsw
import msgspec
from peewee import BigIntegerField, BooleanField, Model, TextField
from playhouse.apsw_ext import APSWDatabase
from playhouse.sqlite_ext import AutoIncrementField

from appliance.core import time_zones
from appliance.core.addresses import normalize_unicode
from appliance.core.i18n import fold
from appliance.settings import config


@lru_cache(maxsize=4096)
def _fold_letter(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1 and not folded.isascii():
            return folded
    return char


def fold_case(text: str) -> str:
    """Return the case-folded form of a text, which is equal for texts that differ only in upper and lower case.

    Case is folded letter by letter (Unicode simple folding), so the length stays the same. No letter outside ASCII
    becomes an ASCII letter.
    """
    if text.isascii():
        return text.lower()
    return "".join(char.lower() if char.isascii() else _fold_letter(char) for char in text)


def normalize_name(text: str) -> str:
    """Return a name for comparing: case-folded, in composed form (NFC), without white space at its ends."""
    return fold_case(normalize_unicode("NFC", text.strip()))


def _sql_folded(value: object) -> str | None:
    """Implement the SQL function `folded`: return the case-folded text, or NULL for a value that is not a text."""
    return fold_case(value) if isinstance(value, str) else None


def _sql_name_order(value: object) -> str | None:
    """Implement the SQL function `name_order`: return the key by which a name is sorted, or NULL without a text.

    No index may use it, because a program without this function could then not write to the table.
    """
    return fold(value) if isinstance(value, str) else None


def _sql_named_zone(name: object) -> str | None:
    """Implement the SQL function `named_zone`: return the name of a time zone without spaces, or NULL if unknown."""
    return time_zones.find_named_zone(name)


def _sql_phone_zone(number: object) -> str | None:
    """Implement the SQL function `phone_zone`: return the time zone of a phone number in E.164, or NULL."""
    return time_zones.find_phone_zone(number) if isinstance(number, str) else None


def _sql_country_zone(country: object) -> str | None:
    """Implement the SQL function `country_zone`: return the time zone of a country by its code, or NULL."""
    return time_zones.find_country_zone(country) if isinstance(country, str) else None


# Older versions can lose committed transactions when two connections write and checkpoint (the "WAL reset" bug).
MIN_SQLITE_VERSION = (3, 51, 3)

PRAGMAS = {
    "busy_timeout": 10_000,  # set first, so that the following pragmas wait too
    "journal_mode": "wal",
    # FULL: committed writes survive a power cut. Queued writes share one commit, so the sync costs little.
    "synchronous": 2,
    "foreign_keys": 1,
    # Deleted data is overwritten where that writes no additional page; an erasure overwrites all deleted data
    # (`set_secure_delete`).
    "secure_delete": "fast",
    # KiB for each of a dozen connections. The cache serves only the part of the file beyond the memory map, and pages
    # that are read often are in the page cache of the operating system anyway.
    "cache_size": -1_000,
    "temp_store": 2,
    "mmap_size": 268_435_456,
    "journal_size_limit": 67_108_864,
    # Pages; for commands and migrations. In the service `writer.Checkpointer` does the checkpoints, and with Litestream
    # the connections do none.
    "wal_autocheckpoint": 20_000,
}


class SqliteTooOld(Exception):
    """The SQLite library is older than MIN_SQLITE_VERSION."""


class Database(APSWDatabase):  # type: ignore[misc]  # its library has no types
    """Peewee's database on apsw, a package that includes a current SQLite library."""

    def get_binary_type(self) -> type[memoryview]:
        """Return the type for binary parameters; Peewee would import it from `sqlite3`, which the executable lacks."""
        return memoryview

    def _add_conn_hooks(self, conn: Any) -> None:
        # Without this, SQLite plans a query again each time, because the values of its parameters might allow a partial
        # index. That takes ten times as long as finding a row by its id (docs/decisions.md#19).
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        super()._add_conn_hooks(conn)


database = Database(None, autoconnect=True)
# Registered here because a connection has only the functions that are registered when it is opened.
database.register_function(_sql_folded, "folded", 1)
database.register_function(_sql_name_order, "name_order", 1)
database.register_function(_sql_named_zone, "named_zone", 1)
database.register_function(_sql_phone_zone, "phone_zone", 1)
database.register_function(_sql_country_zone, "country_zone", 1)


def check_version() -> None:
    """Raise SqliteTooOld if the SQLite library is older than `MIN_SQLITE_VERSION`; called before a file is opened."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < MIN_SQLITE_VERSION:
        required = ".".join(map(str, MIN_SQLITE_VERSION))
        raise SqliteTooOld(f"SQLite {apsw.sqlite_lib_version()} can lose committed work; {required} or newer is needed")


def open_database(path: Path | str) -> None:
    """Set the database file of this process; each thread opens its connection on first use.

    A missing file is created with mode 0600. Raises SqliteTooOld as `check_version` does.
    """
    check_version()
    if str(path) != ":memory:" and not Path(path).exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    # Without SQLITE_OPEN_CREATE a removed file is not created again; a thread that connects later would otherwise read
    # an empty database. SQLITE_OPEN_URI allows attaching a file read-only.
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    checkpoints = {"wal_autocheckpoint": 0} if is_log_replicated() else {}
    database.init(str(path), pragmas=PRAGMAS | checkpoints, flags=flags)


def is_log_replicated() -> bool:
    """Return whether Litestream reads the write-ahead log and shortens it (`litestream.socket`).

    Litestream holds a read transaction, so that a checkpoint of ours could neither restart nor truncate the log, and
    one with TRUNCATE would wait for the busy timeout. A checkpoint while Litestream is not running costs it a new
    snapshot.
    """
    return config.is_loaded() and bool(config.current().litestream.socket)


def close_database() -> None:
    """Close the connection of this thread, if it is open."""
    if database.database is not None and not database.is_closed():
        database.close()


def connection() -> Any:
    """Return the raw apsw connection of this thread, opening it if needed."""
    return database.connection()


def checkpoint() -> None:
    """Copy as much of the write-ahead log into the database as possible without waiting for readers or writers."""
    connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def rows(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    """Run a statement on this thread's connection and return all its rows.

    All rows are read because a half-read SELECT holds a snapshot and keeps the write-ahead log from being reset.
    """
    all_rows: list[tuple[Any, ...]] = connection().execute(sql, parameters).fetchall()
    return all_rows


def fetch_one(sql: str, parameters: Any = ()) -> tuple[Any, ...] | None:
    """Run a statement and return its first row, or None if it has no rows."""
    first_rows = rows(sql, parameters)
    return first_rows[0] if first_rows else None


def scalar(sql: str, parameters: Any = ()) -> Any:
    """Run a statement and return the first column of its first row, or None if it has no rows."""
    row = fetch_one(sql, parameters)
    return row[0] if row else None


def run(sql: str, parameters: Any = ()) -> int:
    """Run a writing statement and return the number of rows that it changed."""
    handle = connection()
    handle.execute(sql, parameters).fetchall()
    return int(handle.changes())


def run_set(sql: str, items: Sequence[Any], **parameters: Any) -> int:
    """Run one writing statement for many items, and return the number of rows that it changed.

    The statement reads the items, which are encoded as JSON, from `json_each(:items)`. With `executemany`, apsw would
    release the interpreter lock once for each item, and wait for it again while other threads run.
    """
    handle = connection()
    handle.execute(sql, {"items": _encode.encode(items).decode(), **parameters}).fetchall()
    return int(handle.changes())


def attach_file(path: Path, name: str) -> None:
    """Attach a database file that no longer changes, read-only, to this thread's connection as the schema `name`.

    A file that is attached under that name is detached first. Call this function outside of a transaction.
    """
    detach_file(name)
    # The file no longer changes; SQLite opens an immutable file without locks.
    connection().execute(f"ATTACH ? AS {name}", (f"file:{quote(str(path))}?immutable=1",)).fetchall()


def attach_new_file(path: Path, name: str) -> None:
    """Create an empty database file (mode 0600) and attach it, writable, as the schema `name`.

    Writes to it have neither journal nor sync, because a file that is not finished is discarded.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection().execute(f"ATTACH ? AS {name}", (str(path),)).fetchall()
    connection().execute(f"PRAGMA {name}.journal_mode = off; PRAGMA {name}.synchronous = off").fetchall()


def detach_file(name: str) -> None:
    """Detach the schema `name` from the connection of this thread, if it is attached."""
    if scalar("SELECT 1 FROM pragma_database_list WHERE name = ?", (name,)):
        connection().execute(f"DETACH {name}").fetchall()


class WriteState(threading.local):
    """The state of the current thread: the write that it runs, if any, and whether it is in a sandbox."""

    is_writing = False  # whether the thread runs a write
    callbacks: list[Callable[[], None]] | None = None  # functions to call after the commit of the write
    journal_lines: list[bytes] | None = None  # lines for the journal of opt-outs, written before that commit
    is_sandboxed = False  # whether the thread writes to the temporary tables of a sandbox


write_state = WriteState()


# Selects the highest id that a table has ever given to a row; the parameter is the name of the table.
LAST_ID_SQL = "SELECT seq FROM sqlite_sequence WHERE name = ?"


def contains_words(search: str, *columns: Any) -> Any:
    """Return a condition for rows in which each word of `search` is in at least one of the columns.

    `search` must contain at least one word.
    """
    conditions = [reduce(or_, [column.contains(word) for column in columns]) for word in search.split()]
    return reduce(and_, conditions)


def last_id(table: str) -> int:
    """Return the highest id that a table has ever given to a row, even if the row was deleted; 0 if it had no rows."""
    return int(scalar(LAST_ID_SQL, (table,)) or 0)


def reserve_ids(table: str, count: int) -> int:
    """Reserve the next `count` ids of a table and return the id before the first of them."""
    before = last_id(table)
    if count and not run("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (before + count, table)):
        run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, count))
    return before


def list_columns(handle: Any) -> dict[str, list[str]]:
    """Return the column names of each table in the database of an apsw connection, by table name."""
    column_rows = handle.execute(
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'"
    ).fetchall()
    columns: dict[str, list[str]] = {}
    for table, column in column_rows:
        columns.setdefault(str(table), []).append(str(column))
    return columns


def data_version() -> int:
    """Return a number that differs from an earlier result if another connection has committed changes in between.

    Only numbers of the same connection, that is of the same thread, can be compared.
    """
    return int(scalar("PRAGMA data_version"))


_MAX_CACHED_QUERIES = 100


class _RowCache(threading.local):
    """The rows that this thread has cached by query, and the state of the database when they were read."""

    state: tuple[Any, ...] | None = None
    rows: dict[tuple[Any, ...], list[tuple[Any, ...]]]


_row_cache = _RowCache()


def cached_rows(sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query, cached for this thread until any connection writes; for expensive counts."""
    handle = connection()
    # The connection is part of the state because a thread may temporarily use another one (`storage.sandbox`).
    state = (handle, data_version(), int(handle.total_changes()))
    if _row_cache.state != state or len(_row_cache.rows) > _MAX_CACHED_QUERIES:
        _row_cache.state, _row_cache.rows = state, {}
    key = (sql, *parameters.items())
    if key not in _row_cache.rows:
        _row_cache.rows[key] = rows(sql, parameters)
    return _row_cache.rows[key]


def quick_check(max_faults: int) -> list[str]:
    """Check the database for damage without comparing indexes with tables; return at most `max_faults` messages."""
    return _list_faults(rows(f"PRAGMA quick_check({max_faults})"))


def integrity_check(max_faults: int) -> list[str]:
    """Check the database for damage, including its indexes; return at most `max_faults` messages."""
    return _list_faults(rows(f"PRAGMA integrity_check({max_faults})"))


def _list_faults(check_rows: list[tuple[Any, ...]]) -> list[str]:
    return [] if check_rows == [("ok",)] else [str(row[0]) for row in check_rows]


def count_free_bytes() -> int:
    """Return the size in bytes of the unused pages of the database file."""
    return int(scalar("PRAGMA freelist_count")) * int(scalar("PRAGMA page_size"))


def set_read_only() -> None:
    """Make the connection of this thread reject all writes."""
    run("PRAGMA query_only = 1")


def set_secure_delete(is_complete: bool) -> None:
    """Make the connection of this thread overwrite deleted data.

    Overwrite all deleted data if `is_complete`, else only where overwriting writes no additional page.
    """
    run(f"PRAGMA secure_delete = {'1' if is_complete else 'fast'}")


def truncate_wal(handle: Any = None) -> bool:
    """Copy the whole write-ahead log into the database and truncate the log; return whether that was possible.

    It waits for readers and the writer for as long as a connection does, which is ten seconds (SQLite, "PRAGMA
    wal_checkpoint"). `handle` is an apsw connection; the default is the connection of this thread.
    """
    ((is_busy, *_),) = (handle or connection()).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not is_busy


_encode = msgspec.json.Encoder()


class Table(Model):
    """The base class of every table; subclasses declare columns and indexes only, no behaviour."""

    id = AutoIncrementField()  # ascending and never reused (docs/decisions.md#1)

    if TYPE_CHECKING:
        # Type checkers cannot see foreign key columns (`account_id`) and attributes that other code adds.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    class Meta:
        database = database
        legacy_table_names = False


class Time(BigIntegerField):
    """A column with a time in whole milliseconds since 1970 UTC."""


class Json(TextField):
    """A column with a JSON value, which is stored as text."""

    def db_value(self, value: Any) -> str | None:
        """Return a value as JSON text, or None (NULL) for None."""
        return None if value is None else _encode.encode(value).decode()

    def python_value(self, value: str | None) -> Any:
        """Parse a JSON text from the database; return None for NULL."""
        return None if value is None else msgspec.json.decode(value)


M = TypeVar("M", bound=Table)


class Records(Generic[M]):
    """A reader and writer of the rows of one table, with SQL that is built once.

    Peewee would build the SQL for each call, which takes longer than running it. The rows are ordinary Peewee models.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._fields = {field.name: field for field in model._meta.sorted_fields}
        self._columns = {name: field.column_name for name, field in self._fields.items()}
        self._read = [
            (place, field.python_value)
            for place, field in enumerate(self._fields.values())
            if isinstance(field, Json | BooleanField)
        ]
        self._table = model._meta.table_name
        self._select = f"SELECT {', '.join(self._columns.values())} FROM {self._table} "
        self._updates: dict[tuple[str, ...], str] = {}
        names = [name for name in self._fields if name != "id"]
        self._insert = (
            names,
            f"INSERT INTO {self._table} ({', '.join(self._columns[name] for name in names)}) "
            f"VALUES ({', '.join('?' * len(names))}) RETURNING id",
        )

    def find(self, condition: str, parameters: Any = ()) -> list[M]:
        """Return the rows that match an SQL condition, which may continue with ORDER BY or LIMIT."""
        return [self._from_row(list(row)) for row in rows(f"{self._select} WHERE {condition}", parameters)]

    def _from_row(self, values: list[Any]) -> M:
        for position, convert in self._read:
            values[position] = convert(values[position])
        # What `Model.__init__` sets, which takes four times as long.
        instance = self._model.__new__(self._model)
        instance.__data__, instance.__rel__, instance._dirty = dict(zip(self._fields, values, strict=True)), {}, set()
        return instance

    def insert(self, row: M) -> None:
        """Insert a row and set its id."""
        names, sql = self._insert
        row.id = connection().execute(sql, [self._value(row, name) for name in names]).fetchall()[0][0]
        row._dirty.clear()

    def save(self, row: M) -> None:
        """Write the columns that were set since the row was read; the others, and their indexes, are not touched."""
        names = tuple(name for name in self._fields if name in row._dirty and name != "id")
        if not names:
            return
        sql = self._updates.get(names)
        if sql is None:
            marks = ", ".join(f"{self._columns[name]} = ?" for name in names)
            sql = self._updates[names] = f"UPDATE {self._table} SET {marks} WHERE id = ?"
        connection().execute(sql, [*(self._value(row, name) for name in names), row.id])
        row._dirty.clear()

    def _value(self, row: M, name: str) -> Any:
        field = self._fields[name]
        value = row.__data__.get(name)
        return field.db_value(value) if isinstance(field, Json) else value


class Page(NamedTuple):
    """A page of a list: its rows, the total number of rows on all pages, its number from 1, and the page size."""

    rows: Sequence[Any]
    total: int
    page: int
    limit: int

    @property
    def pages(self) -> int:
        """Return the number of pages of the whole list; 0 if it has no rows."""
        return -(-self.total // self.limit)


# A larger OFFSET is not passed to SQLite, whose integers have 64 bits; no list has this many rows.
_MAX_OFFSET = 2**53


def paginate(query: Any, page: int, limit: int) -> Page:
    """Return page `page` (from 1) of an ordered Peewee query.

    A page past the end of the query or past `_MAX_OFFSET` rows is empty.
    """
    total = query.order_by().count()
    offset = (page - 1) * limit
    rows = list(query.limit(limit).offset(offset)) if offset < min(total, _MAX_OFFSET) else []
    return Page(rows, total, page, limit)
