"""Opens the database (one connection for each thread), runs statements, and defines the base of the models."""

import os
import threading
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import apsw
import msgspec
from peewee import BigIntegerField, Model, TextField
from playhouse.apsw_ext import APSWDatabase
from playhouse.sqlite_ext import AutoIncrementField


@lru_cache(maxsize=4096)
def _fold_letter(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1 and not folded.isascii():
            return folded
    return char


def fold_case(text: str) -> str:
    """Return a text in the form in which texts that differ only by case are equal.

    Case is folded letter by letter (Unicode simple folding), and no letter outside ASCII becomes an ASCII letter.
    """
    if text.isascii():
        return text.lower()
    return "".join(char.lower() if char.isascii() else _fold_letter(char) for char in text)


def normalize_name(text: str) -> str:
    """Return a name without case and surrounding space, in composed form, for comparing names."""
    return fold_case(unicodedata.normalize("NFC", text.strip()))


def _sql_folded(value: object) -> str | None:
    """Return the result of the SQL function `folded`: the folded text, or NULL for other types."""
    return fold_case(value) if isinstance(value, str) else None


# Older versions can lose committed work when two connections write and checkpoint (the "WAL reset" bug).
MIN_SQLITE_VERSION = (3, 51, 3)

PRAGMAS = {
    "busy_timeout": 10_000,  # set first, so that the following pragmas wait too
    "journal_mode": "wal",
    # Acknowledged writes survive a power cut (FULL); waiting writers share one commit, so the sync costs little.
    "synchronous": 2,
    "foreign_keys": 1,
    # Deleted data is overwritten where that writes no further page; an erasure overwrites all of it.
    "secure_delete": "fast",
    # KiB for each of a dozen connections, used once the file is larger than the memory map; pages that are read often
    # are in the page cache of the operating system anyway.
    "cache_size": -1_000,
    "temp_store": 2,
    "mmap_size": 268_435_456,
    "journal_size_limit": 67_108_864,
    # Pages, for commands and migrations. In the service `transactions.Checkpointer` copies the log into the database.
    "wal_autocheckpoint": 20_000,
}


class SqliteTooOld(Exception):
    """The SQLite library is older than MIN_SQLITE_VERSION."""


class Database(APSWDatabase):  # type: ignore[misc]  # its library has no types
    """Peewee's database on apsw, which includes a current SQLite."""

    def get_binary_type(self) -> type[memoryview]:
        """Return the type as which bytes are bound; Peewee takes it from `sqlite3`, which the executable lacks."""
        return memoryview


database = Database(None, autoconnect=True)
# Registered here because a connection gets the functions that exist when it is opened.
database.register_function(_sql_folded, "folded", 1)


def check_version() -> None:
    """Raise SqliteTooOld for an old library; called before any file is touched."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < MIN_SQLITE_VERSION:
        required = ".".join(map(str, MIN_SQLITE_VERSION))
        raise SqliteTooOld(f"SQLite {apsw.sqlite_lib_version()} can lose committed work; {required} or newer is needed")


def open_database(path: Path | str) -> None:
    """Use a database file in this process; a new file is created with mode 0600."""
    check_version()
    if str(path) != ":memory:" and not Path(path).exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    # URIs allow attaching a file read-only. A removed file is not created again, because a thread that connects then
    # would read an empty database from that time on.
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    database.init(str(path), pragmas=PRAGMAS, flags=flags)


def close_database() -> None:
    """Close this thread's connection, if it ever opened one."""
    if database.database is not None and not database.is_closed():
        database.close()


def connection() -> Any:
    """Return the raw apsw connection of this thread, and open it if needed."""
    return database.connection()


def checkpoint() -> None:
    """Copy the write-ahead log into the database, as far as readers allow."""
    connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def rows(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    """Run a statement on this thread's connection and return all its rows.

    All rows are read because a half-read SELECT holds a snapshot and keeps the write-ahead log from being reset.
    """
    all_rows: list[tuple[Any, ...]] = connection().execute(sql, parameters).fetchall()
    return all_rows


def fetch_one(sql: str, parameters: Any = ()) -> tuple[Any, ...] | None:
    """Return the first row, or None."""
    first_rows = rows(sql, parameters)
    return first_rows[0] if first_rows else None


def scalar(sql: str, parameters: Any = ()) -> Any:
    """Return the first column of the first row, or None."""
    row = fetch_one(sql, parameters)
    return row[0] if row else None


def run(sql: str, parameters: Any = ()) -> int:
    """Run a writing statement and return how many rows it changed."""
    handle = connection()
    handle.execute(sql, parameters).fetchall()
    return int(handle.changes())


def attach_file(path: Path, name: str) -> None:
    """Attach a file to this connection under a name, read-only; outside of a transaction."""
    detach_file(name)
    # The file no longer changes, and an immutable file takes no part in transactions.
    connection().execute(f"ATTACH ? AS {name}", (f"file:{quote(str(path))}?immutable=1",)).fetchall()


def attach_new_file(path: Path, name: str) -> None:
    """Attach a new empty file, which this connection fills, without a journal: a half-written file is discarded."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection().execute(f"ATTACH ? AS {name}", (str(path),)).fetchall()
    connection().execute(f"PRAGMA {name}.journal_mode = off; PRAGMA {name}.synchronous = off").fetchall()


def detach_file(name: str) -> None:
    """Detach a file if it is attached."""
    if scalar("SELECT 1 FROM pragma_database_list WHERE name = ?", (name,)):
        connection().execute(f"DETACH {name}").fetchall()


class WriteState(threading.local):
    """The state of this thread: whether it runs a verb, and the callbacks after the verb's commit."""

    is_writing = False
    callbacks: list[Callable[[], None]] | None = None
    journal_lines: list[bytes] | None = None  # lines for the journal, written before that commit
    is_sandboxed = False  # whether this thread writes to a sandbox


write_state = WriteState()


# The last id that a table gave to a row; the parameter is the table's name.
LAST_ID_SQL = "SELECT seq FROM sqlite_sequence WHERE name = ?"


def last_id(table: str) -> int:
    """Return the last id that a table gave to a row; ids are never reused."""
    return int(scalar(LAST_ID_SQL, (table,)) or 0)


def reserve_ids(table: str, count: int) -> int:
    """Reserve the next ids of a table and return the last id before them."""
    before = last_id(table)
    if count and not run("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (before + count, table)):
        run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, count))
    return before


def list_columns(handle: Any) -> dict[str, list[str]]:
    """Return the tables of the file behind a connection with their columns."""
    column_rows = handle.execute(
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'"
    ).fetchall()
    columns: dict[str, list[str]] = {}
    for table, column in column_rows:
        columns.setdefault(str(table), []).append(str(column))
    return columns


def data_version() -> int:
    """Return a number that changes when another connection writes."""
    return int(scalar("PRAGMA data_version"))


def quick_check(max_faults: int) -> list[str]:
    """Check the database without its indexes and return up to `most` faults."""
    return _list_faults(rows(f"PRAGMA quick_check({max_faults})"))


def integrity_check(max_faults: int) -> list[str]:
    """Check the database with its indexes and return up to `most` faults."""
    return _list_faults(rows(f"PRAGMA integrity_check({max_faults})"))


def _list_faults(check_rows: list[tuple[Any, ...]]) -> list[str]:
    return [] if check_rows == [("ok",)] else [str(row[0]) for row in check_rows]


def count_free_bytes() -> int:
    """Return the unused bytes of the file."""
    return int(scalar("PRAGMA freelist_count")) * int(scalar("PRAGMA page_size"))


def set_read_only() -> None:
    """Set this thread's connection to read-only."""
    run("PRAGMA query_only = 1")


def set_secure_delete(is_complete: bool) -> None:
    """Make this connection overwrite all deleted data, or only where that costs no extra write."""
    run(f"PRAGMA secure_delete = {'1' if is_complete else 'fast'}")


def truncate_wal(handle: Any = None) -> None:
    """Copy the write-ahead log into the database and truncate it."""
    (handle or connection()).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


_encode = msgspec.json.Encoder()


class Table(Model):
    """Base of every table: columns and indexes only, no behaviour."""

    id = AutoIncrementField()  # ascending and never reused (docs/decisions.md#1)

    if TYPE_CHECKING:
        # Foreign key columns (`account_id`) and attributes that loaders add are known only at run time.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    class Meta:
        database = database
        legacy_table_names = False


class Time(BigIntegerField):
    """A moment in whole milliseconds since 1970 UTC."""


class Json(TextField):
    """A JSON value kept as text."""

    def db_value(self, value: Any) -> str | None:
        """Encode a value for the database."""
        return None if value is None else _encode.encode(value).decode()

    def python_value(self, value: str | None) -> Any:
        """Decode a value from the database."""
        return None if value is None else msgspec.json.decode(value)


class Page(NamedTuple):
    """A page of a list: its rows, and the total number of rows."""

    rows: Sequence[Any]
    total: int
    page: int
    limit: int

    @property
    def pages(self) -> int:
        """Return the number of pages; 0 when there are no rows."""
        return -(-self.total // self.limit)


# OFFSET has to walk the rows that it skips, and SQLite's integers end at this number.
_MAX_OFFSET = 2**53


def paginate(query: Any, page: int, limit: int) -> Page:
    """Return a page of an ordered Peewee query; a page past the end is empty."""
    total = query.order_by().count()
    offset = (page - 1) * limit
    rows = list(query.limit(limit).offset(offset)) if offset < min(total, _MAX_OFFSET) else []
    return Page(rows, total, page, limit)
