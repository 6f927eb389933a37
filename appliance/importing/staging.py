"""The staging file of an import: its rows checked and in order, beside the database and never in it.

It is written without a journal by one child process and read by the service afterwards; a half-written one is thrown
away and made again. Rows come back sorted by address, which is what makes small transactions as fast as huge ones.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from appliance.importing.people import Person

_SCHEMA = """
CREATE TABLE person (line INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, phone TEXT,
    first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, phone_country TEXT, tracking TEXT, data TEXT,
    state TEXT, phone_state TEXT, verified INTEGER NOT NULL);
CREATE TABLE fault (line INTEGER PRIMARY KEY, reason TEXT NOT NULL, text TEXT);
"""
_PERSON = f"INSERT INTO person VALUES ({','.join('?' * len(Person._fields))})"
_FETCHED = 1000


def _open(path: Path, flags: int) -> apsw.Connection:
    here = apsw.Connection(str(path), flags=flags)
    for pragma in ("journal_mode = off", "synchronous = off", "temp_store = 1", "cache_size = -8000"):
        here.execute(f"PRAGMA {pragma}").fetchall()
    return here


class Sink:
    """Takes what the reading of a file finds; nothing counts before `close`."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._here = _open(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        self._here.execute(_SCHEMA)
        self._here.execute("BEGIN")
        self._people: list[Person] = []
        self._faults: list[tuple[int, str, str]] = []
        self.good = self.bad = 0

    def person(self, person: Person) -> None:
        """Take a good row."""
        self._people.append(person)
        self.good += 1
        if len(self._people) >= _FETCHED:
            self.flush()

    def fault(self, line: int, reason: str, text: str) -> None:
        """Take a bad row."""
        # What could not be decoded cannot be stored either
        shown, why = (one.encode("utf-8", "replace").decode() for one in (text, reason))
        self._faults.append((line, why, shown))
        self.bad += 1
        if len(self._faults) >= _FETCHED:
            self.flush()

    def flush(self) -> None:
        """Write what is at hand."""
        self._here.executemany(_PERSON, self._people)
        self._here.executemany("INSERT INTO fault VALUES (?, ?, ?)", self._faults)
        self._people, self._faults = [], []

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        self._here.execute("COMMIT")
        self._here.close()


class Staged:
    """A finished staging file."""

    def __init__(self, path: Path) -> None:
        self._here = _open(path, apsw.SQLITE_OPEN_READONLY)

    def people(self, after: tuple[str, str] = ("", "")) -> Iterator[Person]:
        """Yield people sorted by kind, address and line, those after an address only."""
        found = self._here.execute("SELECT * FROM person WHERE (kind, key) > (?, ?) ORDER BY kind, key, line", after)
        for row in found:
            yield Person._make(row)

    def lines(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Answer (line, reason or None, address or beginning of the row) of the next lines."""
        return self._here.execute(
            "SELECT * FROM (SELECT line, NULL, value FROM person WHERE line > ?1 ORDER BY line LIMIT ?2) UNION ALL "
            "SELECT * FROM (SELECT line, reason, text FROM fault WHERE line > ?1 ORDER BY line LIMIT ?2) "
            "ORDER BY 1 LIMIT ?2",
            (after, limit),
        ).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._here.close(True)
