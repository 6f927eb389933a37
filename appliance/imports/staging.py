"""The staging file of an import: its rows, validated and sorted, in a file beside the database.

`PersonReader` turns a record into a `Person`. A row without a valid address is rejected; most other invalid values are
left out with a warning. The file is written once, without a journal, and only read afterwards. An incomplete file is
deleted and written again. People are sorted by address (see `_SORT`) and have the positions 1, 2, 3 and so on, so that
small transactions are as fast as large ones and a chunk may end at any position.
"""

import json
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from appliance.core import crypto, data_dir
from appliance.core.addresses import Address
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.core.validation import MAX_DATA_BYTES, MAX_DATA_DEPTH, is_too_deep
from appliance.imports import cells, columns
from appliance.imports.cells import (
    BLANKS,
    NO,
    REASONS_BY_SEVERITY,
    REFUSALS,
    SPACES,
    STATES,
    SUBSCRIBED,
    UNCLEAN_EDGES,
    YES,
    AddressReader,
    InvalidRecord,
    RowAddress,
    add_warning,
    clean_cell,
    explain_missing_address,
    is_blank,
    normalize_word,
    parse_typed,
)
from appliance.imports.columns import DateFormat
from appliance.imports.detection import NumberFormat, convert_number
from appliance.storage.database import attach_file, connection, detach_file

_MAX_NAMES = 2000
_KEPT_AS_TEXT = gettext_stored("%(reason)s; kept as text")
_TOO_MANY_KEYS = gettext_stored("the file has too many different keys (maximum is %(limit)s)")
_TOO_LONG = gettext_stored("is too long (maximum is %(limit)s bytes)")
READERS = {**cells.CELL_READERS, **cells.STATE_READERS}
_MAUTIC_REASONS = {"1": "out", "2": "hard_bounce", "3": "manual"}
_encode = msgspec.json.Encoder().encode
_decode_addresses = msgspec.json.Decoder(list[RowAddress]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_warnings = msgspec.json.Decoder(list[tuple[str, str, str]]).decode


class Person(NamedTuple):
    """A valid row of a file of contacts or suppressions, as stored in the staging file.

    `kind` to `hash` are the identifying address: the email address, else the phone number, else the first of the column
    `channels`. `suppression` to `opt_out_at` are the state of that address, as in `RowAddress`. `phone_country` is the
    country of the phone number. `data` is custom data as JSON, `more` a JSON list of the other addresses (as
    `RowAddress`), and `lists` a JSON list of names.
    """

    line: int
    kind: str
    key: str
    value: str
    hash: bytes
    first_name: str | None = None
    last_name: str | None = None
    source: str | None = None
    country_code: str | None = None
    language: str | None = None
    phone_country: str | None = None
    tracking: str | None = None
    data: str | None = None
    suppression: str | None = None
    consent: str | None = None
    verified: int = 0
    opt_in_at: int | None = None
    opt_out_at: int | None = None
    more: str | None = None
    lists: str | None = None
    # A JSON list of (field, value, reason), one for each value that was left out or changed
    warnings: str | None = None
    # The first line with this identifying address, or None if it is this line
    first: int | None = None
    # 1 if another line of the file has one of the addresses, else 0
    shared: int = 0

    def given(self) -> list[RowAddress]:
        """Return all addresses of the person, the identifying one first."""
        own = RowAddress(
            self.kind, self.key, self.value, self.suppression, self.consent, bool(self.verified), self.opt_in_at,
            self.opt_out_at,
        )  # fmt: skip
        return [own, *(_decode_addresses(self.more) if self.more else ())]

    def list_names(self) -> list[str]:
        """Return the names of the lists in the row."""
        return _decode_names(self.lists) if self.lists else []


def decode_warnings(packed: str | None) -> list[tuple[str, str, str]]:
    """Return the (field, value, reason) of each warning in the JSON of `Person.warnings`."""
    return _decode_warnings(packed) if packed else []


class PersonReader:
    """A reader that turns records into people, by the targets of the columns.

    `names` and `targets` are those of the columns, in order. `country` is the default country of phone numbers.
    `written` has the date formats by column index, `numbers` the number formats, and `texts` the indexes of columns
    whose values stay text. `is_own` says that the file is our own export, which has no placeholders for empty values: a
    dash is a name there.

    `unstated_counts` has the number of rows that say neither yes nor no, by the target of the column of consent. Unless
    `opt_in_unstated`, they are not opted in.
    """

    def __init__(
        self, names: list[str], targets: list[str], country: str | None = None,
        written: dict[int, DateFormat] | None = None, is_own: bool = False, *,
        numbers: dict[int, NumberFormat] | None = None, texts: Set[int] = frozenset(), opt_in_unstated: bool = True,
    ) -> None:  # fmt: skip
        self._opt_in_unstated = opt_in_unstated
        self.unstated_counts = dict.fromkeys(("status", "subscribed_email", "subscribed_phone"), 0)
        self._numbers, self._texts = numbers or {}, texts
        self._address_reader = AddressReader(country, is_own)
        self._written, self._is_own = written or {}, is_own
        self._hash = crypto.make_address_hasher()
        self._reason_column = {name for name in names if "reason" in name.lower() or name.lower() == "dnc"}
        self._columns = [
            (index, name, target) for index, (name, target) in enumerate(zip(names, targets, strict=True)) if target
        ]
        self._consent_targets = self.unstated_counts.keys() & set(targets)
        self._names = set(names)

    def person(self, line: int, record: Any) -> Person:
        """Return the person of a record (a list of cells, or a dict by column name); raises InvalidRecord."""
        if isinstance(record, dict):
            return self._object(line, record)
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        width = len(record)
        for index, name, target in self._columns:
            cell = record[index] if index < width else ""
            # Only CSV cells are cleaned of a quote before a formula, because JSON lines are not read by spreadsheets.
            if not cell or ((cell[0] in UNCLEAN_EDGES or cell[-1] in UNCLEAN_EDGES) and not (cell := clean_cell(cell))):
                continue
            if index in self._written:
                cell = self._date(row, cell, index, target)
            reader = READERS.get(target)
            if reader is not None:
                if self._is_own or not is_blank(cell, target):
                    reader(row, data, cell, target)
            elif target.startswith("data."):
                if cell in BLANKS:
                    continue
                if index in self._numbers:
                    data[target[5:]] = self._number(row, cell, index, target)
                else:
                    data[target[5:]] = cell if index in self._texts else parse_typed(cell)
            else:
                self._state(name, target, cell, states, row)
        return self._build_person(line, row, data, states)

    def _date(self, row: dict[str, Any], cell: str, index: int, target: str) -> str:
        """Return the date of a cell in ISO 8601, or the cell itself if it cannot be converted.

        Custom data that cannot be converted gets a warning.
        """
        iso, reason = columns.convert_date(cell, self._written[index])
        # Times of consent get no warning here: a cell may be a word such as yes, and the readers report invalid times.
        if iso is None and target.startswith("data.") and cell not in BLANKS:
            add_warning(row, target, cell, _KEPT_AS_TEXT % {"reason": reason})
        return iso or cell

    def _number(self, row: dict[str, Any], cell: str, index: int, target: str) -> Any:
        """Return the number of a cell, or the cell itself with a warning if it cannot be converted."""
        number, reason = convert_number(cell, self._numbers[index])
        if reason is None:
            return number
        value = parse_typed(cell)
        if isinstance(value, str):
            add_warning(row, target, cell, _KEPT_AS_TEXT % {"reason": reason})
        return value

    def _object(self, line: int, record: dict[str, Any]) -> Person:
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        states: list[str] = []
        self._add_targets(record)
        for _, name, target in self._columns:
            cell = record.get(name)
            cell = cell.strip(SPACES) if isinstance(cell, str) else cell
            if cell is None or cell == "" or cell == []:
                continue
            if target.startswith("data."):
                data[target[5:]] = cell
            elif target in READERS:
                if self._is_own or not isinstance(cell, str) or not is_blank(cell, target):
                    READERS[target](row, data, cell, target)
            else:
                self._state(name, target, cell, states, row)
        return self._build_person(line, row, data, states)

    def _add_targets(self, record: dict[str, Any]) -> None:
        """Guess the targets of new keys of a JSON object; raises InvalidRecord if the file has too many keys."""
        for name in record.keys() - self._names:
            if len(self._names) >= _MAX_NAMES:
                raise InvalidRecord(_TOO_MANY_KEYS % {"limit": _MAX_NAMES})
            self._names.add(name)
            target = columns.guess_targets([name])[0]
            if target:
                self._columns.append((0, name, target))
                self._consent_targets |= self.unstated_counts.keys() & {target}

    def _state(self, name: str, target: str, cell: Any, states: list[str], row: dict[str, Any]) -> None:
        word = normalize_word(cell)
        if word in BLANKS and word not in NO:
            return
        if target == "status":
            state = STATES.get(word, "no" if word in REFUSALS else None)
            if state is not None or word in SUBSCRIBED or word in YES:
                row["stated"] = True
            else:
                add_warning(row, target, cell, gettext_noop("is not a known status"))
        elif target == "bounced":
            state = None if word in NO else "hard_bounce"
        elif target == "unsubscribed":
            reason = _MAUTIC_REASONS.get(word) if name in self._reason_column else None
            state = None if word in NO else reason or STATES.get(word, "out")
            if state == "out":
                row.setdefault("opt_out_at", cells.parse_past_time(cell))
        elif target == "opted_out_by":
            state = "out" if word == "recipient" else "no"
        else:
            # Instead of a word, the cell may contain the time of the consent.
            state = _consent_word(word) or ("in" if cells.parse_past_time(cell) else None)
            if state == "no" and self._is_own:
                # Our own export has the word for every address that is not subscribed; `opted_out_by` tells opt-outs.
                state = "off"
            if state is None:
                add_warning(row, target, cell, gettext_noop("is neither yes nor no"))
            if target == "subscribed_phone":
                row["phone_consent"] = "out" if state in REASONS_BY_SEVERITY else state
                return
            row["stated"] = row.get("stated") or state is not None
        if state:
            states.append(state)

    def _build_person(self, line: int, row: dict[str, Any], data: dict[str, Any], states: list[str]) -> Person:
        email, phone = self._address_reader.email_of(row, data), self._address_reader.phone_of(row, data)
        identifying = email or phone or _first_channel(row.get("channels"))
        if identifying is None:
            raise InvalidRecord(explain_missing_address(row))
        text = self._data(row, data) if data else None
        suppression = (
            next((candidate for candidate in REASONS_BY_SEVERITY if candidate in states), None) if states else None
        )
        consent: str | None = (
            next((state for state in ("out", "no", "off", "in") if state in states), None) if states else None
        )
        if consent == "no" and email is None:
            # The columns are about email; a column about SMS has its own answer.
            consent = "off"
        if self._consent_targets and "channels" not in row:
            consent = self._add_unstated(row, phone is not None, email is not None, consent, bool(states))
        own_state = (suppression, consent, row.get("verified", 0), row.get("opt_in_at"), row.get("opt_out_at"))
        more = None
        if (email is not None and phone is not None) or "channels" in row:
            own_state, more = _further_addresses(identifying, phone if email is not None else None, row, own_state)
        return Person(
            line, identifying.kind, identifying.key, identifying.value, self._hash(identifying.kind, identifying.key),
            row.get("first_name"), row.get("last_name"), row.get("source"), row.get("country_code"),
            row.get("language"),
            # Our own export has a column for the country, so it is not derived from the phone number.
            self._address_reader.country(phone.key) if phone is not None and "channels" not in row else None,
            row.get("tracking"), text, *own_state, more, row.get("lists"),
            _encode(row["warnings"]).decode() if "warnings" in row else None,
        )  # fmt: skip

    def _add_unstated(
        self, row: dict[str, Any], has_phone: bool, has_email: bool, consent: str | None, has_states: bool
    ) -> str | None:
        """Count a row that says neither yes nor no, and return the consent of its identifying address.

        The consent of a further phone number is set in `row["phone_consent"]`.
        """
        unstated = None if self._opt_in_unstated else "unstated"
        has_phone_column = has_phone and "subscribed_phone" in self._consent_targets
        if has_phone_column and not has_email:
            # The phone number is the identifying address.
            consent = row.get("phone_consent") or consent
            targets = {"subscribed_phone"}
        else:
            targets = self._consent_targets - {"subscribed_phone"}
        if targets and consent is None and not has_states and not row.get("stated"):
            consent = unstated
            for target in targets:
                self.unstated_counts[target] += 1
        if has_phone_column and has_email and consent not in ("out", "no", "off") and not row.get("phone_consent"):
            self.unstated_counts["subscribed_phone"] += 1
            row["phone_consent"] = unstated
        return consent

    def _data(self, row: dict[str, Any], data: dict[str, Any]) -> str | None:
        """Return custom data as JSON, or add a warning and return None if it is too long, too deep or has a NUL."""
        fault = None
        text = _encode(data).decode()
        if len(text) > MAX_DATA_BYTES:
            fault = _TOO_LONG % {"limit": MAX_DATA_BYTES}
        elif "\\u0000" in text:
            fault = gettext_noop("holds a NUL character")
        elif text.count("{") + text.count("[") > MAX_DATA_DEPTH and is_too_deep(data):
            fault = gettext_noop("is nested too deeply")
        if fault is None:
            return text
        add_warning(row, "data", text, fault)
        return None

    def suppressed(self, line: int, record: Any) -> Person:
        """Return the address of a record of suppressions, with its reason (default `manual`) and note (in `source`).

        Raises InvalidRecord with the reason.
        """
        row: dict[str, Any] = {}
        data: dict[str, Any] = {}
        for index, name, target in self._columns:
            cell = record.get(name) if isinstance(record, dict) else record[index] if index < len(record) else None
            cell = clean_cell(cell) if isinstance(cell, str) else cell
            if cell not in (None, "") and target in READERS and not (isinstance(cell, str) and is_blank(cell, target)):
                READERS[target](row, data, cell, target)
        if "phone" not in row and not any("@" in text for text in row.get("email", ())):
            # One column may contain both email addresses and phone numbers.
            row["phone"] = row.pop("email", [])
        address = self._address_reader.email_of(row, data) or self._address_reader.phone_of(row, data)
        if address is None:
            raise InvalidRecord(explain_missing_address(row))
        return Person(
            line, address.kind, address.key, address.value, self._hash(address.kind, address.key),
            source=row.get("note"), suppression=row.get("reason", "manual"),
            warnings=_encode(row["warnings"]).decode() if "warnings" in row else None,
        )  # fmt: skip


def _consent_word(word: str) -> str | None:
    """Return the consent state or suppression reason of a word (yes, no or a status), or None if it is unknown."""
    if word in YES or word in SUBSCRIBED:
        return "in"
    return "no" if word in REFUSALS else "off" if word in NO else STATES.get(word)


def _first_channel(channels: list[RowAddress] | None) -> Address | None:
    return Address(channels[0].kind, channels[0].value, channels[0].key) if channels else None


def _further_addresses(
    identifying: Address, phone: Address | None, row: dict[str, Any], own_state: tuple[Any, ...]
) -> tuple[tuple[Any, ...], str | None]:
    """Return the state of the identifying address, and the other addresses as JSON, or None if there are none.

    `own_state` is (suppression, consent, verified, opt_in_at, opt_out_at) of the identifying address. `phone` is the
    phone number if it is another address. The column `channels` overrides both.
    """
    others: dict[tuple[str, str], RowAddress] = {}
    if phone is not None:
        # A consent state without an address applies to both addresses; a no to email is no opt-out from SMS.
        consent = row.get("phone_consent") or {"no": "off", "in": None}.get(own_state[1], own_state[1])
        others[("phone", phone.key)] = RowAddress(phone.kind, phone.key, phone.value, None, consent)
    for channel in row.get("channels", ()):
        if (channel.kind, channel.key) == (identifying.kind, identifying.key):
            own_state = (
                channel.suppression,
                channel.consent,
                int(channel.verified),
                channel.opt_in_at,
                channel.opt_out_at,
            )
        else:
            others[(channel.kind, channel.key)] = channel
    return own_state, _encode(list(others.values())).decode() if others else None


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
    """The writer of a staging file, which gets its name in `close`; `good` and `bad` count valid and invalid rows."""

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

    def person(self, person: Person) -> None:
        """Add a valid row."""
        self._people.append(person)
        if person.more is not None:
            self._further += [(address.kind, address.key, person.line, person.key) for address in person.given()[1:]]
        self.good += 1
        if len(self._people) >= _BATCH:
            self.flush()

    def fault(self, line: int, reason: str, text: str) -> None:
        """Add an invalid row."""
        # SQLite stores UTF-8, so characters that it cannot encode are replaced.
        stored_text, stored_reason = (string.encode("utf-8", "replace").decode() for string in (text, reason))
        self._faults.append((line, stored_reason, stored_text))
        self.bad += 1
        if len(self._faults) >= _BATCH:
            self.flush()

    def utf8_line(self, line: int) -> None:
        """Add the number of a line that is UTF-8 in a file with another encoding."""
        self._utf8_lines.append((line,))

    def flush(self) -> None:
        """Write the rows that were added since the last flush."""
        self._db.executemany(_PERSON, self._people)
        self._db.executemany(_FURTHER, self._further)
        self._db.executemany("INSERT INTO fault VALUES (?, ?, ?)", self._faults)
        self._db.executemany("INSERT INTO utf8_line VALUES (?)", self._utf8_lines)
        self._people, self._faults, self._further, self._utf8_lines = [], [], [], []

    def close(self) -> None:
        """Sort the rows, delete the file of unsorted ones, sync the staging file to disk and give it its final name."""
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

    def people(self, after: int, last: int) -> list[Person]:
        """Return the people at the positions (after, last], in order."""
        sql = f"SELECT {_FIELDS} FROM person WHERE pos > ? AND pos <= ? ORDER BY pos"
        return [Person._make(row) for row in self._db.execute(sql, (after, last))]

    def lines_of(self, after: int, last: int) -> list[int]:
        """Return the line numbers of the people at the positions (after, last], in order."""
        cursor = self._db.execute("SELECT line FROM person WHERE pos > ? AND pos <= ? ORDER BY pos", (after, last))
        return [row[0] for row in cursor]

    def count(self) -> int:
        """Return the number of people, which is also the last position."""
        positions: list[tuple[Any, ...]] = self._db.execute("SELECT coalesce(max(pos), 0) FROM person").fetchall()
        return int(positions[0][0])

    def lines(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Return (line, reason, text, warnings, kind, first) of the next `limit` rows after line `after`.

        A valid row has its address as text, None as reason, and `kind` and `first` of its `Person`. An invalid one has
        its beginning as text and neither warnings, `kind` nor `first`.
        """
        return self._db.execute(
            "SELECT * FROM (SELECT line, NULL, value, warnings, kind, first FROM person WHERE line > ?1 ORDER BY line "
            "LIMIT ?2) UNION ALL SELECT * FROM (SELECT line, reason, text, NULL, NULL, NULL FROM fault WHERE line > ?1 "
            "ORDER BY line LIMIT ?2) ORDER BY 1 LIMIT ?2",
            (after, limit),
        ).fetchall()

    def faults(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of invalid rows, and (line, beginning of the row, reason) of the first `limit`."""
        return self._count_and_fetch(
            "SELECT count(*) FROM fault", "SELECT line, coalesce(text, ''), reason FROM fault", limit, {}
        )

    def doubles(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of rows that repeat the address of an earlier row, and the first `limit` of them.

        Each is (line, address, line of the first row with the address).
        """
        condition = "FROM person WHERE first NOT NULL"
        return self._count_and_fetch(
            f"SELECT count(*) {condition}", f"SELECT line, value, CAST(first AS TEXT) {condition}", limit, {}
        )

    def utf8_lines(self, limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of lines that are UTF-8 in a file with another encoding, and the first `limit` of them.

        Each is (line, name and address, ""). A line that continues a quoted cell or is invalid has no name and address.
        """
        return self._count_and_fetch(
            "SELECT count(*) FROM utf8_line",
            "SELECT line, coalesce(nullif(concat_ws(' ', p.first_name, p.last_name), '') || ' · ', '') "
            "|| coalesce(p.value, ''), '' FROM utf8_line LEFT JOIN person p USING (line)",
            limit, {},
        )  # fmt: skip

    def told(self, lines: Iterable[int]) -> dict[int, tuple[str, str | None]]:
        """Return (address, warnings as JSON or None) of the valid rows at some lines, by line."""
        params = {"lines": json.dumps(list(lines))}
        cursor = self._db.execute(
            "SELECT line, value, warnings FROM person WHERE line IN (SELECT value FROM json_each(:lines))", params
        )
        table: list[tuple[Any, ...]] = cursor.fetchall()
        return {line: (value, warnings) for line, value, warnings in table}

    def warned(self, last: int) -> Iterator[tuple[int, str, str, str]]:
        """Yield (line, kind, address, warnings as JSON) of the rows with warnings up to position `last`, by line."""
        yield from self._db.execute(
            "SELECT line, kind, value, warnings FROM person WHERE warnings NOT NULL AND pos <= ? ORDER BY line", (last,)
        )

    def named(self, names: Iterable[str], limit: int) -> tuple[int, list[tuple[int, str, str]]]:
        """Return the number of distinct email addresses whose local part is in `names`, and up to `limit` of them.

        Each is (line, address, "").
        """
        condition = (
            "FROM person WHERE kind = 'email' AND first IS NULL "
            "AND substr(key, 1, instr(key, '@') - 1) IN (SELECT value FROM json_each(:names))"
        )
        params = {"names": json.dumps(sorted(names))}
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
    """Return the people at the positions (after, last] of the attached file, without those in `temp.import_plain`."""
    cursor = connection().execute(
        f"SELECT {_FIELDS} FROM staged.person WHERE pos > ? AND pos <= ? "
        "AND pos NOT IN (SELECT pos FROM temp.import_plain) ORDER BY pos",
        (after, last),
    )
    return [Person._make(row) for row in cursor.fetchall()]
