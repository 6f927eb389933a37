"""The staging file of an import: its rows, validated and sorted, in a file beside the database.

The file is written once, without a journal, and only read afterwards. An incomplete file is deleted and written again.
Valid rows are sorted by address (see `_SORT`) and have the positions 1, 2, 3 and so on. So small transactions are as
fast as large ones, and a chunk may end at any position.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw

from appliance.core import data_dir
from appliance.imports.people import Person
from appliance.storage.database import attach_file, connection, detach_file

_FIELDS = ", ".join(Person._fields)
_TYPES = """line INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, hash BLOB NOT NULL,
    first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, language TEXT, phone_country TEXT, tracking TEXT,
    data TEXT, suppression TEXT, consent TEXT, verified INTEGER NOT NULL, opt_in_at INTEGER, opt_out_at INTEGER,
    more TEXT, lists TEXT, warnings TEXT, first INTEGER, shared INTEGER NOT NULL"""
_SCHEMA = f"""
CREATE TABLE raw.person ({_TYPES});
CREATE TABLE raw.further (kind TEXT NOT NULL, key TEXT NOT NULL, line INTEGER NOT NULL, owner TEXT NOT NULL);
CREATE TABLE fault (line INTEGER PRIMARY KEY, reason TEXT NOT NULL, text TEXT);
CREATE TABLE utf8_line (line INTEGER PRIMARY KEY);
"""
_FURTHER = "INSERT INTO raw.further VALUES (?, ?, ?, ?)"
_PERSON = f"INSERT INTO raw.person VALUES ({','.join('?' * len(Person._fields))})"
# A row is plain if it has one email address, no list, opt-out or suppression, and if no other row has its address. If
# several people have the same further address, such as the phone number of an office, the first of them in the file
# gets it: their rows come after the others of the same kind, in the order of their lines.
_SORT = f"""
CREATE INDEX raw.further_key ON further (kind, key, owner);
CREATE TEMP TABLE sharing AS SELECT DISTINCT owner AS key FROM raw.further WHERE (kind, key) IN
    (SELECT kind, key FROM raw.further GROUP BY kind, key HAVING min(owner) <> max(owner));
CREATE TABLE main.person (pos INTEGER PRIMARY KEY, {_TYPES}, plain INTEGER NOT NULL);
INSERT INTO main.person SELECT NULL, *, kind = 'email' AND more IS NULL AND lists IS NULL AND suppression IS NULL
    AND coalesce(consent, 'in') = 'in' FROM raw.person
    ORDER BY kind = 'phone', iif(key IN (SELECT key FROM temp.sharing), line, 0), key, line;
CREATE TEMP TABLE twice AS SELECT pos, line, key FROM main.person a
    WHERE EXISTS (SELECT 1 FROM main.person b WHERE b.pos = a.pos + 1 AND b.key = a.key)
    OR EXISTS (SELECT 1 FROM main.person b WHERE b.pos = a.pos - 1 AND b.key = a.key)
    OR a.key IN (SELECT key FROM temp.sharing);
UPDATE main.person SET plain = 0, shared = 1, first = nullif(t.first, person.line)
    FROM (SELECT pos, min(line) OVER (PARTITION BY key) AS first FROM temp.twice) t WHERE t.pos = person.pos;
CREATE TEMP TABLE named AS SELECT kind, key, line FROM raw.further UNION ALL SELECT kind, key, line FROM main.person p
    WHERE EXISTS (SELECT 1 FROM raw.further f WHERE f.kind = p.kind AND f.key = p.key);
UPDATE main.person SET plain = 0, shared = 1 WHERE line IN (SELECT line FROM temp.named WHERE (kind, key) IN
    (SELECT kind, key FROM temp.named GROUP BY kind, key HAVING count(DISTINCT line) > 1));
CREATE INDEX main.person_line ON person (line);
"""
_BATCH = 1000


def _open(path: Path, flags: int) -> apsw.Connection:
    db = apsw.Connection(str(path), flags=flags)
    for pragma in ("journal_mode = off", "synchronous = off", "temp_store = 1", "cache_size = -16000"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    return db


class StagingWriter:
    """The writer of a staging file, which gets its final name in `close`.

    `good` and `bad` are the numbers of valid and invalid rows.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._part, self._raw = path, path.with_suffix(".part"), path.with_suffix(".raw")
        for old_path in (path, self._part, self._raw):
            old_path.unlink(missing_ok=True)
        self._db = _open(self._part, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        self._db.execute("ATTACH ? AS raw", (str(self._raw),))
        self._db.execute("PRAGMA raw.journal_mode = off; PRAGMA raw.synchronous = off").fetchall()
        self._db.execute(_SCHEMA)
        self._db.execute("BEGIN")
        self._people: list[Person] = []
        self._further: list[tuple[str, str, int, str]] = []
        self._faults: list[tuple[int, str, str]] = []
        self._utf8_lines: list[tuple[int]] = []
        self.good = self.bad = 0

    def add_person(self, person: Person) -> None:
        """Add a valid row."""
        self._people.append(person)
        if person.more is not None:
            self._further += [
                (address.kind, address.key, person.line, person.key) for address in person.list_addresses()[1:]
            ]
        self.good += 1
        if len(self._people) >= _BATCH:
            self.flush()

    def add_fault(self, line: int, reason: str, text: str) -> None:
        """Add an invalid row."""
        # SQLite stores UTF-8, so characters that it cannot encode are replaced.
        stored_text, stored_reason = (string.encode("utf-8", "replace").decode() for string in (text, reason))
        self._faults.append((line, stored_reason, stored_text))
        self.bad += 1
        if len(self._faults) >= _BATCH:
            self.flush()

    def add_utf8_line(self, line: int) -> None:
        """Add the number of a line that is UTF-8 in a file with another encoding."""
        self._utf8_lines.append((line,))

    def flush(self) -> None:
        """Write the rows that have been added since the last flush."""
        self._db.executemany(_PERSON, self._people)
        self._db.executemany(_FURTHER, self._further)
        self._db.executemany("INSERT INTO fault VALUES (?, ?, ?)", self._faults)
        self._db.executemany("INSERT INTO utf8_line VALUES (?)", self._utf8_lines)
        self._people, self._faults, self._further, self._utf8_lines = [], [], [], []

    def close(self) -> None:
        """Sort the rows, delete the file of unsorted rows, sync the staging file to disk and give it its final name."""
        self.flush()
        self._db.execute("COMMIT")
        self._db.execute(f"BEGIN; {_SORT} COMMIT")
        self._db.close()
        self._raw.unlink()
        data_dir.sync_to_disk(self._part)
        self._part.replace(self._path)
        data_dir.sync_to_disk(self._path.parent)


class StagingFile:
    """A complete staging file, opened for reading."""

    def __init__(self, path: Path) -> None:
        self._db = _open(path, apsw.SQLITE_OPEN_READONLY)

    def fetch_people(self, after: int, last: int) -> list[Person]:
        """Return the rows at the positions (after, last] as `Person`, in order."""
        sql = f"SELECT {_FIELDS} FROM person WHERE pos > ? AND pos <= ? ORDER BY pos"
        return [Person._make(row) for row in self._db.execute(sql, (after, last))]

    def fetch_line_numbers(self, after: int, last: int) -> list[int]:
        """Return the line numbers of the rows at the positions (after, last], in order."""
        cursor = self._db.execute("SELECT line FROM person WHERE pos > ? AND pos <= ? ORDER BY pos", (after, last))
        return [row[0] for row in cursor]

    def count(self) -> int:
        """Return the number of valid rows, which is also the last position."""
        positions: list[tuple[Any, ...]] = self._db.execute("SELECT coalesce(max(pos), 0) FROM person").fetchall()
        return int(positions[0][0])

    def fetch_lines(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Return (line, reason, text, warnings, kind, first) of the next `limit` rows after line `after`.

        For a valid row, the text is its address, the reason None, and `kind` and `first` are those of its `Person`. For
        an invalid row, the text is its beginning, and warnings, `kind` and `first` are None.
        """
        return self._db.execute(
            "SELECT * FROM (SELECT line, NULL, value, warnings, kind, first FROM person WHERE line > ?1 ORDER BY line "
            "LIMIT ?2) UNION ALL SELECT * FROM (SELECT line, reason, text, NULL, NULL, NULL FROM fault WHERE line > ?1 "
            "ORDER BY line LIMIT ?2) ORDER BY 1 LIMIT ?2",
            (after, limit),
        ).fetchall()

    def fetch_faults(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of invalid rows, and (line, beginning of the row, reason) of the first `limit`."""
        return self._count_and_fetch(
            "SELECT count(*) FROM fault", "SELECT line, coalesce(text, ''), reason FROM fault", limit, {}
        )

    def fetch_repeated(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of rows that repeat the address of an earlier row, and the first `limit` of them.

        Each is (line, address, line of the first row with the address).
        """
        condition = "FROM person WHERE first NOT NULL"
        return self._count_and_fetch(
            f"SELECT count(*) {condition}", f"SELECT line, value, CAST(first AS TEXT) {condition}", limit, {}
        )

    def fetch_utf8_lines(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of lines that are UTF-8 in a file with another encoding, and the first `limit` of them.

        Each is (line, name and address, ""). A line that continues a quoted cell or is invalid has no name and address.
        """
        return self._count_and_fetch(
            "SELECT count(*) FROM utf8_line",
            "SELECT line, coalesce(nullif(concat_ws(' ', p.first_name, p.last_name), '') || ' · ', '') "
            "|| coalesce(p.value, ''), '' FROM utf8_line LEFT JOIN person p USING (line)",
            limit, {},
        )  # fmt: skip

    def fetch_addresses(self, lines: Iterable[int]) -> dict[int, tuple[str, str | None]]:
        """Return (address, warnings as JSON or None) by line number, for the valid rows among `lines`."""
        params = {"lines": json.dumps(list(lines))}
        cursor = self._db.execute(
            "SELECT line, value, warnings FROM person WHERE line IN (SELECT value FROM json_each(:lines))", params
        )
        table: list[tuple[Any, ...]] = cursor.fetchall()
        return {line: (value, warnings) for line, value, warnings in table}

    def iterate_warnings(self, last: int) -> Iterator[tuple[int, str, str, str]]:
        """Yield (line, kind, address, warnings as JSON) of the rows with warnings up to position `last`, by line."""
        yield from self._db.execute(
            "SELECT line, kind, value, warnings FROM person WHERE warnings NOT NULL AND pos <= ? ORDER BY line", (last,)
        )

    def fetch_by_local_part(self, names: Iterable[str], limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of distinct email addresses whose local part is in `names`, and up to `limit` of them.

        Each is (line, address, "").
        """
        return self._fetch_by_part("substr(key, 1, instr(key, '@') - 1)", names, limit)

    def fetch_by_domain(self, domains: Iterable[str], limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of distinct email addresses whose domain is in `domains`, and up to `limit` of them.

        Each is (line, address, "").
        """
        return self._fetch_by_part("substr(key, instr(key, '@') + 1)", domains, limit)

    def _fetch_by_part(self, part: str, values: Iterable[str], limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        condition = (
            f"FROM person WHERE kind = 'email' AND first IS NULL AND {part} IN (SELECT value FROM json_each(:values))"
        )
        params = {"values": json.dumps(sorted(values))}
        return self._count_and_fetch(
            f"SELECT count(*) {condition}", f"SELECT line, value, '' {condition}", limit, params
        )

    def _count_and_fetch(
        self, count_sql: str, select_sql: str, limit: int, params: dict[str, Any]
    ) -> tuple[int, list[tuple[int, str, str]]]:
        number: Any = self._db.execute(count_sql, params).fetchall()[0][0]
        examples: list[Any] = self._db.execute(
            f"{select_sql} ORDER BY line LIMIT :limit", {**params, "limit": limit}
        ).fetchall()
        return int(number), examples

    def close(self) -> None:
        """Close the database connection."""
        self._db.close(True)


def attach_staging(path: Path) -> None:
    """Attach a staging file to this connection as the SQLite schema `staged`. Call it outside of a transaction."""
    attach_file(path, "staged")


def detach_staging() -> None:
    """Detach the staging file. Call it outside of a transaction."""
    detach_file("staged")


def fetch_attached_people(after: int, last: int) -> list[Person]:
    """Return the rows at the positions (after, last] of the attached file, without those in `temp.import_plain`."""
    cursor = connection().execute(
        f"SELECT {_FIELDS} FROM staged.person WHERE pos > ? AND pos <= ? "
        "AND pos NOT IN (SELECT pos FROM temp.import_plain) ORDER BY pos",
        (after, last),
    )
    return [Person._make(row) for row in cursor.fetchall()]
