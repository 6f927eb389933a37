"""Opens the one database file: pragmas, the version floor, one connection for each thread."""

import os
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
from playhouse.apsw_ext import APSWDatabase

# Text without case, as SQL and Python see it alike.
#
# Case is folded letter by letter (Unicode's simple folding), and no letter outside ASCII ever becomes one inside.


@lru_cache(maxsize=4096)
def _letter(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1 and not folded.isascii():
            return folded
    return char


def fold(text: str) -> str:
    """Return a text in the form in which two that differ only by case are the same."""
    if text.isascii():
        return text.lower()
    return "".join(char.lower() if char.isascii() else _letter(char) for char in text)


def name_key(text: str) -> str:
    """Return the form in which two names of one thing are the same: without case, surrounding space, and composed."""
    return fold(unicodedata.normalize("NFC", text.strip()))


def folded(value: object) -> str | None:
    """Return what SQL's function of that name does: a text folded, NULL for anything else."""
    return fold(value) if isinstance(value, str) else None


# Below this, two connections that write and checkpoint can lose committed work (the "WAL reset" bug).
FLOOR = (3, 51, 3)

PRAGMAS = {
    "busy_timeout": 10_000,  # first, so that the ones after it wait too
    "journal_mode": "wal",
    # What was acknowledged survives a power cut; commits are shared by all that wait, so this costs little.
    "synchronous": 2,
    "foreign_keys": 1,
    # What is deleted is overwritten where that costs no further page; an erasure asks for all of it
    "secure_delete": "fast",
    # For each of a dozen connections, once the file is larger than what is mapped of it; what is read again and again
    # lies in the memory of the system anyway
    "cache_size": -1_000,
    "temp_store": 2,
    "mmap_size": 268_435_456,
    "journal_size_limit": 67_108_864,
    # For commands and migrations; of the writer of the service, a keeper brings the log home beside the commits
    "wal_autocheckpoint": 20_000,
}


class TooOld(Exception):
    """The SQLite library is older than the floor."""


class Database(APSWDatabase):  # type: ignore[misc]  # its library has no types
    """Peewee's database on apsw, which carries a current SQLite of its own."""

    def get_binary_type(self) -> type[memoryview]:
        """Return what bytes are bound as, as Python's own `sqlite3` has it, which the executable does without."""
        return memoryview


database = Database(None, autoconnect=True)
# Here, for a connection has the functions that there are when it is opened
database.register_function(folded, "folded", 1)


def check_version() -> None:
    """Raise TooOld below the floor; called before any file is touched."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < FLOOR:
        wanted = ".".join(map(str, FLOOR))
        raise TooOld(f"SQLite {apsw.sqlite_lib_version()} can lose committed work; {wanted} or newer is needed")


def open_database(path: Path | str) -> None:
    """Point this process at the file, made with mode 0600 if it is new."""
    check_version()
    if str(path) != ":memory:" and not Path(path).exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    # URIs, so that a file can be attached for reading alone. A file that was removed is not made anew: a thread that
    # connects then would read an empty one from there on
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    database.init(str(path), pragmas=PRAGMAS, flags=flags)


def close_database() -> None:
    """Close this thread's connection, if it ever opened one."""
    if database.database is not None and not database.is_closed():
        database.close()


def connection() -> Any:
    """Return this thread's raw apsw connection, opened if need be."""
    return database.connection()


def checkpoint() -> None:
    """Bring what is in the write-ahead log into the database, as far as nobody is in the way."""
    connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def rows(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    """Run a statement on this thread's connection and read it to its end.

    To the end always: a half-read SELECT holds a snapshot and keeps the write-ahead log from being reset.
    """
    found: list[tuple[Any, ...]] = connection().execute(sql, parameters).fetchall()
    return found


def fetch_one(sql: str, parameters: Any = ()) -> tuple[Any, ...] | None:
    """Return the first row, or None."""
    found = rows(sql, parameters)
    return found[0] if found else None


def scalar(sql: str, parameters: Any = ()) -> Any:
    """Return the first column of the first row, or None."""
    found = fetch_one(sql, parameters)
    return found[0] if found else None


def run(sql: str, parameters: Any = ()) -> int:
    """Run a writing statement and answer how many rows it changed."""
    here = connection()
    here.execute(sql, parameters).fetchall()
    return int(here.changes())
