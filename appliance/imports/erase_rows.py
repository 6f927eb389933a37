"""Takes people who were erased out of all that imports keep: files, staged rows, outcomes, notes for undoing, samples.

The erasure itself leaves a row behind in its own transaction, so that none is forgotten when the process ends; it stays
until everything is done. While an import runs it waits: whom that one makes anew is erased again at its end.
"""

import logging
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from appliance.audience.contacts import erase, write
from appliance.audience.contacts.consent import Evidence
from appliance.core import addresses, clock
from appliance.core.errors import NotFound
from appliance.imports import store
from appliance.imports.undo import Notes
from appliance.storage import sql, work
from appliance.storage.models import Erasure, Import
from appliance.storage.open import connection, fetch_one, rows, run
from appliance.storage.work import writing

log = logging.getLogger("campanero.imports")

_BLOCK = 1_048_576
# The longest address in the widest encoding, and more
_OVERLAP = 2048
_CHUNKS = 50
_SEPARATORS = b" \t.-()/\0"
_BY_SERVICE = Evidence(source="erasure", actor="service")
_pack = msgspec.msgpack.Encoder().encode
_notes = msgspec.msgpack.Decoder(Notes).decode


class Gone(NamedTuple):
    """Somebody who was erased: their contact of that time, and their addresses as (kind, key, value)."""

    id: int
    account_id: int
    contact_id: int
    addresses: list[tuple[str, str, str]]
    created_at: int

    def words(self) -> list[str]:
        """Return every way in which the addresses are written, in lower case."""
        return sorted({addresses.lower(text) for _, key, value in self.addresses for text in (key, value)})

    def finder(self) -> Callable[[bytes], bool]:
        """Return what says whether an address is in bytes of any encoding, whose ASCII letters are in lower case."""
        plain, patterns = set(), set()
        for word in self.words():
            for name in ("utf-8", "utf-16-le", "utf-16-be", "cp1252"):
                try:
                    plain.add(word.encode(name).lower())
                except UnicodeEncodeError:
                    continue  # it cannot be in a file of this encoding
                if not word.isascii():
                    patterns.add(b"".join(_letter(char, name) for char in word))
        spelled = [re.compile(pattern) for pattern in sorted(patterns)]
        return lambda text: any(one in text for one in plain) or any(one.search(text) for one in spelled)

    def digits(self) -> list[bytes]:
        """Return the numbers of phones, as they stand between any separators."""
        return [key.lstrip("+").encode() for kind, key, _ in self.addresses if kind == "phone"]


def _letter(char: str, encoding: str) -> bytes:
    """Return a pattern for a letter in either case, composed or not: bytes have no case but that of ASCII."""
    cases = [one for one in (char, char.upper(), "ẞ" if char == "ß" else char) if len(one) == 1]
    spellings = {unicodedata.normalize(form, one) for one in cases for form in ("NFC", "NFD")}
    encoded = set()
    for spelling in spellings:
        with suppress(UnicodeEncodeError):  # a spelling that this encoding does not have
            encoded.add(re.escape(spelling.encode(encoding).lower()))
    return b"(?:" + b"|".join(sorted(encoded)) + b")"


def is_due() -> bool:
    """Return whether somebody is still to be taken out."""
    return bool(rows("SELECT 1 FROM erasure LIMIT 1"))


def tend() -> None:
    """Take out everybody whom no running import holds up; then drop what can no longer be undone or asked for."""
    out = [gone for gone in _waiting() if _take_out(gone)]
    for gone in out:
        while work.write(write.forget_words):
            pass
        work.write(_done, gone)
    if out:
        # What was deleted stands in the log until it is emptied
        sql.empty_log(connection())
    while work.write(_fade):
        pass


def _waiting() -> list[Gone]:
    return [
        Gone(row.id, row.account_id, row.contact_id, [(kind, key, value) for kind, key, value in row.addresses],
             row.created_at)
        for row in Erasure.select().order_by(Erasure.id)
    ]  # fmt: skip


def _take_out(gone: Gone) -> bool:
    """Take one person out; returns False if that has to wait."""
    theirs = (gone.account_id, gone.created_at)
    if fetch_one(
        "SELECT 1 FROM import WHERE account_id = ? AND created_at <= ? "
        "AND (status IN ('pending', 'processing') OR phase = 'undoing') LIMIT 1",
        theirs,
    ):
        return False
    for contact_id in _made_anew(gone):
        try:
            work.write(erase.erase, gone.account_id, contact_id, _BY_SERVICE)
        except NotFound:
            log.info("contact %s was deleted meanwhile", contact_id)
    for (import_id,) in rows("SELECT id FROM import WHERE account_id = ? AND created_at <= ?", theirs):
        home = store.directory(import_id)
        if home.is_dir() and any(_names(path, gone) for path in home.iterdir()):
            shutil.rmtree(home)
        for chunk_id in _chunks(import_id, gone):
            work.write(_scrub, chunk_id, gone)
        work.write(_samples, import_id, gone)
    return True


def _made_anew(gone: Gone) -> list[int]:
    """Return the contacts with those addresses that an import made after the erasure, out of a file from before it."""
    found: dict[int, None] = {}
    for kind, key, _ in gone.addresses:
        for (contact_id,) in rows(
            "SELECT h.contact_id FROM channel h JOIN event e ON e.contact_id = h.contact_id "
            "WHERE h.account_id = ?1 AND h.kind = ?2 AND h.key = ?3 AND e.event = 'contact_add' AND e.created_at >= ?4 "
            "AND e.data ->> '$.import_id' IN (SELECT id FROM import WHERE account_id = ?1 "
            "AND created_at <= ?4)",
            (gone.account_id, kind, key, gone.created_at),
        ):
            found[contact_id] = None
    return list(found)


def _names(path: Path, gone: Gone) -> bool:
    """Return whether somebody is named in a file."""
    if path.suffix == ".db":
        return _names_staged(path, gone)
    is_named, digits = gone.finder(), gone.digits()
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            text = rest + block.lower()
            if is_named(text):
                return True
            if digits:
                bare = text.translate(None, _SEPARATORS)
                if any(number in bare for number in digits):
                    return True
            rest = text[-_OVERLAP:]
    return False


def _names_staged(path: Path, gone: Gone) -> bool:
    here = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for table, columns in sql.tables(here).items():
            text = f"lower(concat_ws(char(10), {', '.join(columns)}))"
            wanted = " OR ".join(f"instr({text}, ?)" for _ in gone.words())
            if here.execute(f"SELECT 1 FROM {table} WHERE {wanted} LIMIT 1", gone.words()).fetchall():
                return True
    except apsw.Error:
        # A half-written one: it cannot be read, so nobody can say who is in it
        log.warning("the staging file %s cannot be read; it is removed", path)
        return True
    finally:
        here.close(True)
    return False


def _chunks(import_id: int, gone: Gone) -> Iterator[int]:
    """Yield the transactions of an import whose outcomes or notes tell of somebody."""
    is_named, last = gone.finder(), 0
    while True:
        found = rows(
            "SELECT id, outcomes, before FROM import_chunk WHERE import_job_id = ? AND id > ? ORDER BY id LIMIT ?",
            (import_id, last, _CHUNKS),
        )
        for last, outcomes, before in found:
            told = bytes(outcomes).lower() + bytes(before or b"").lower()
            changed = [change.contact_id for change in _notes(before).changes] if before else []
            if is_named(told) or gone.contact_id in changed:
                yield last
        if len(found) < _CHUNKS:
            return


def _scrub(chunk_id: int, gone: Gone) -> None:
    writing()
    found = fetch_one("SELECT outcomes, before FROM import_chunk WHERE id = ?", (chunk_id,))
    if found is None:
        return
    words = set(gone.words())
    before = None
    if found[1] is not None:
        notes = _notes(found[1])
        notes.changes = [change for change in notes.changes if change.contact_id != gone.contact_id]
        notes.added = [(kind, key) for kind, key in notes.added if addresses.lower(key) not in words]
        before = _pack(notes)
    outcomes = _pack(_without(msgspec.msgpack.decode(found[0]), words))
    write.overwriting()
    run("UPDATE import_chunk SET outcomes = ?, before = ? WHERE id = ?", (outcomes, before, chunk_id))


def _without(value: Any, words: set[str]) -> Any:
    if isinstance(value, list):
        return [_without(inner, words) for inner in value]
    return "" if isinstance(value, str) and addresses.lower(value) in words else value


def _samples(import_id: int, gone: Gone) -> None:
    """Take the rows that somebody is in out of the samples that an import shows."""
    writing()
    job = Import.get_or_none(Import.id == import_id)
    if job is None:
        return
    needles, digits = gone.words(), gone.digits()

    def tells(cell: str) -> bool:
        bare = cell.encode().translate(None, _SEPARATORS)
        return any(word in addresses.lower(cell) for word in needles) or any(number in bare for number in digits)

    out = {index for column in job.columns for index, cell in enumerate(column["samples"]) if tells(cell)}
    if not out:
        return
    for column in job.columns:
        column["samples"] = [cell for index, cell in enumerate(column["samples"]) if index not in out]
    write.overwriting()
    run("UPDATE import SET columns = ? WHERE id = ?", (msgspec.json.encode(job.columns).decode(), import_id))


def _done(gone: Gone) -> None:
    writing()
    write.overwriting()
    run("DELETE FROM erasure WHERE id = ?", (gone.id,))


def _faded() -> int | None:
    """Return an import whose notes can no longer be used, or whose outcomes nobody can ask for any more."""
    now = clock.now_ms()
    found = fetch_one(
        "SELECT i.id FROM import i WHERE i.status NOT IN ('pending', 'processing') AND i.phase IS DISTINCT "
        "FROM 'undoing' AND ((i.created_at < ? AND EXISTS (SELECT 1 FROM import_chunk c WHERE c.import_job_id = i.id)) "
        "OR (coalesce(i.undo_until, 0) < ? AND EXISTS (SELECT 1 FROM import_chunk c WHERE c.import_job_id = i.id "
        "AND c.before IS NOT NULL))) LIMIT 1",
        (now - store.KEPT_MS, now),
    )
    return None if found is None else int(found[0])


def _fade() -> bool:
    """Drop some notes of imports that cannot be undone any more, and outcomes whose lines are no longer kept.

    Answers whether there may be more.
    """
    writing()
    import_id = _faded()
    if import_id is None:
        return False
    old = fetch_one("SELECT 1 FROM import WHERE id = ? AND created_at < ?", (import_id, clock.now_ms() - store.KEPT_MS))
    if old:
        run("DELETE FROM import_chunk WHERE id IN (SELECT id FROM import_chunk WHERE import_job_id = ? LIMIT ?)",
            (import_id, _CHUNKS))  # fmt: skip
    else:
        run("UPDATE import_chunk SET before = NULL WHERE id IN (SELECT id FROM import_chunk "
            "WHERE import_job_id = ? AND before IS NOT NULL LIMIT ?)", (import_id, _CHUNKS))  # fmt: skip
    return True
