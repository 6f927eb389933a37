"""The staging file of an import: its rows checked and in order, beside the database and never in it.

It is written without a journal by one child process and only read afterwards; a half-written one is thrown away and
made again. Its people stand sorted by address at positions 1, 2, 3 ..., which is what makes small transactions as fast
as huge ones, and lets an import be cut anywhere.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from appliance.core import data_dir
from appliance.imports.people import Person
from appliance.storage import identity
from appliance.storage.open import connection

_FIELDS = ", ".join(Person._fields)
_TYPES = """line INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, hash BLOB NOT NULL,
    first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, phone_country TEXT, tracking TEXT, data TEXT,
    suppression TEXT, consent TEXT, verified INTEGER NOT NULL, opt_in_at INTEGER, opt_out_at INTEGER, more TEXT,
    lists TEXT, warnings TEXT, first INTEGER, shared INTEGER NOT NULL"""
_SCHEMA = f"""
CREATE TABLE raw.person ({_TYPES});
CREATE TABLE raw.further (kind TEXT NOT NULL, key TEXT NOT NULL, line INTEGER NOT NULL);
CREATE TABLE fault (line INTEGER PRIMARY KEY, reason TEXT NOT NULL, text TEXT);
"""
_FURTHER = "INSERT INTO raw.further VALUES (?, ?, ?)"
_PERSON = f"INSERT INTO raw.person VALUES ({','.join('?' * len(Person._fields))})"
# Somebody is plain if the row says nothing but fields, and no other row names the address
_SORT = f"""
CREATE TABLE main.person (pos INTEGER PRIMARY KEY, {_TYPES}, plain INTEGER NOT NULL);
INSERT INTO main.person SELECT NULL, *, kind = 'email' AND more IS NULL AND lists IS NULL AND suppression IS NULL
    AND coalesce(consent, 'in') = 'in' FROM raw.person ORDER BY kind = 'phone', key, line;
CREATE TEMP TABLE twice AS SELECT pos, line, key FROM main.person a
    WHERE EXISTS (SELECT 1 FROM main.person b WHERE b.pos = a.pos + 1 AND b.key = a.key)
    OR EXISTS (SELECT 1 FROM main.person b WHERE b.pos = a.pos - 1 AND b.key = a.key);
UPDATE main.person SET plain = 0, shared = 1, first = nullif(t.first, person.line)
    FROM (SELECT pos, min(line) OVER (PARTITION BY key) AS first FROM temp.twice) t WHERE t.pos = person.pos;
CREATE INDEX raw.further_key ON further (kind, key);
CREATE TEMP TABLE named AS SELECT kind, key, line FROM raw.further UNION ALL SELECT kind, key, line FROM main.person p
    WHERE EXISTS (SELECT 1 FROM raw.further f WHERE f.kind = p.kind AND f.key = p.key);
UPDATE main.person SET plain = 0, shared = 1 WHERE line IN (SELECT line FROM temp.named WHERE (kind, key) IN
    (SELECT kind, key FROM temp.named GROUP BY kind, key HAVING count(DISTINCT line) > 1));
CREATE INDEX main.person_line ON person (line);
"""
_FETCHED = 1000


def _open(path: Path, flags: int) -> apsw.Connection:
    here = apsw.Connection(str(path), flags=flags)
    for pragma in ("journal_mode = off", "synchronous = off", "temp_store = 1", "cache_size = -16000"):
        here.execute(f"PRAGMA {pragma}").fetchall()
    return here


class Sink:
    """Takes what the reading of a file finds; the staging file is there under its name only after `close`."""

    def __init__(self, path: Path) -> None:
        self._path, self._part, self._raw = path, path.with_suffix(".part"), path.with_suffix(".raw")
        for left in (path, self._part, self._raw):
            left.unlink(missing_ok=True)
        self._here = _open(self._part, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        self._here.execute("ATTACH ? AS raw", (str(self._raw),))
        self._here.execute("PRAGMA raw.journal_mode = off; PRAGMA raw.synchronous = off").fetchall()
        self._here.execute(_SCHEMA)
        self._here.execute("BEGIN")
        self._people: list[Person] = []
        self._further: list[tuple[str, str, int]] = []
        self._faults: list[tuple[int, str, str]] = []
        self.good = self.bad = 0

    def person(self, person: Person) -> None:
        """Take a good row."""
        self._people.append(person)
        if person.more is not None:
            self._further += [(one.kind, one.key, person.line) for one in person.given()[1:]]
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
        self._here.executemany(_FURTHER, self._further)
        self._here.executemany("INSERT INTO fault VALUES (?, ?, ?)", self._faults)
        self._people, self._faults, self._further = [], [], []

    def close(self) -> None:
        """Put the people in order and finish the file; it is on disk before the database speaks of it."""
        self.flush()
        self._here.execute("COMMIT")
        self._here.execute(f"BEGIN; {_SORT} COMMIT")
        self._here.close()
        self._raw.unlink()
        data_dir.settle(self._part)
        self._part.replace(self._path)
        data_dir.settle(self._path.parent)


class Staged:
    """A finished staging file."""

    def __init__(self, path: Path) -> None:
        self._here = _open(path, apsw.SQLITE_OPEN_READONLY)

    def people(self, after: int, last: int) -> list[Person]:
        """Return the people behind a position, up to and with another."""
        sql = f"SELECT {_FIELDS} FROM person WHERE pos > ? AND pos <= ? ORDER BY pos"
        return [Person._make(row) for row in self._here.execute(sql, (after, last))]

    def lines_of(self, after: int, last: int) -> list[int]:
        """Return the lines of the people behind a position, up to and with another."""
        found = self._here.execute("SELECT line FROM person WHERE pos > ? AND pos <= ? ORDER BY pos", (after, last))
        return [row[0] for row in found]

    def count(self) -> int:
        """Return how many people there are, which is the last position."""
        found: list[tuple[Any, ...]] = self._here.execute("SELECT coalesce(max(pos), 0) FROM person").fetchall()
        return int(found[0][0])

    def lines(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Return (line, reason or None, address or beginning of the row, warnings) of the next lines."""
        return self._here.execute(
            "SELECT * FROM (SELECT line, NULL, value, warnings FROM person WHERE line > ?1 ORDER BY line LIMIT ?2) "
            "UNION ALL SELECT * FROM (SELECT line, reason, text, NULL FROM fault WHERE line > ?1 ORDER BY line "
            "LIMIT ?2) ORDER BY 1 LIMIT ?2",
            (after, limit),
        ).fetchall()

    def faults(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return how many rows are wrong, and the first of them with why."""
        return self._some("SELECT count(*) FROM fault", "SELECT line, coalesce(text, ''), reason FROM fault", limit, {})

    def doubles(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return how many rows repeat an address, and the first of them with the line that names it first."""
        where = "FROM person WHERE first NOT NULL"
        return self._some(f"SELECT count(*) {where}", f"SELECT line, value, CAST(first AS TEXT) {where}", limit, {})

    def told(self, lines: Iterable[int]) -> dict[int, tuple[str, str | None]]:
        """Return the address of some lines, and what was left out of them."""
        wanted = {"lines": json.dumps(list(lines))}
        found = self._here.execute(
            "SELECT line, value, warnings FROM person WHERE line IN (SELECT value FROM json_each(:lines))", wanted
        )
        table: list[tuple[Any, ...]] = found.fetchall()
        return {line: (value, warnings) for line, value, warnings in table}

    def warned(self, limit: int) -> list[int]:
        """Return the first lines that something is left out of, but those that `lost_emails` tells."""
        where = "warnings NOT NULL AND instr(warnings, '[\"email\",') = 0"
        sql = f"SELECT line FROM person WHERE {where} ORDER BY line LIMIT ?"
        return [row[0] for row in self._here.execute(sql, (limit,))]

    def lost_emails(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return how many rows have an email address that could not be read beside another address, and the first of
        them with what was left out."""
        where = "FROM person WHERE instr(warnings, '[\"email\",') > 0"
        return self._some(f"SELECT count(*) {where}", f"SELECT line, value, warnings {where}", limit, {})

    def named(self, names: Iterable[str], limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return how many addresses have one of some names before the @, and the first of them."""
        where = (
            "FROM person WHERE kind = 'email' AND first IS NULL "
            "AND substr(key, 1, instr(key, '@') - 1) IN (SELECT value FROM json_each(:names))"
        )
        given = {"names": json.dumps(sorted(names))}
        return self._some(f"SELECT count(*) {where}", f"SELECT line, value, '' {where}", limit, given)

    def _some(
        self, count: str, first: str, limit: int, given: dict[str, Any]
    ) -> tuple[int, list[tuple[int, str, str]]]:
        number: Any = self._here.execute(count, given).fetchall()[0][0]
        found: list[Any] = self._here.execute(
            f"{first} ORDER BY line LIMIT :limit", {**given, "limit": limit}
        ).fetchall()
        return int(number), found

    def close(self) -> None:
        """Close the file."""
        self._here.close(True)


def attach(path: Path) -> None:
    """Put a finished staging file beside the database of this connection as `staged`; outside of a transaction."""
    identity.attach_file(path, "staged")


def detach() -> None:
    """Take it away again."""
    identity.detach_file("staged")


def attached_people(after: int, last: int) -> list[Person]:
    """Return the people of the attached file behind a position up to another, without those in `temp.import_plain`."""
    found = connection().execute(
        f"SELECT {_FIELDS} FROM staged.person WHERE pos > ? AND pos <= ? "
        "AND pos NOT IN (SELECT pos FROM temp.import_plain) ORDER BY pos",
        (after, last),
    )
    return [Person._make(row) for row in found.fetchall()]
