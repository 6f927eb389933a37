"""Remove erased persons from the files and results of imports.

The erasure of a contact inserts a row into the table `erasure` in its own transaction, so that it is not lost when the
process ends. The row stays until all imports created before it are finished. A contact that such an import created
again is then erased again.
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

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.core import addresses
from appliance.core.errors import NotFound
from appliance.imports import store
from appliance.imports.removal import prune_chunks
from appliance.imports.row_writer import decode_snapshot
from appliance.storage import database, transactions
from appliance.storage.database import connection, fetch_one, rows, run
from appliance.storage.models import Erasure, Import
from appliance.storage.transactions import require_write_transaction

logger = logging.getLogger("campanero.imports")

_BLOCK = 1_048_576
# A file is searched in blocks that overlap by more bytes than the longest address has in any encoding.
_OVERLAP = 2048
_CHUNK_BATCH = 50
_MAX_TRUNCATIONS = 6  # each waits up to ten seconds for readers
_PHONE_SEPARATORS = b" \t.-()/\0"
_BY_SERVICE = Evidence(source="erasure", actor="service")
_pack = msgspec.msgpack.Encoder().encode


class ErasedPerson(NamedTuple):
    """A pending erasure: the id of the deleted contact, its addresses as (kind, key, value), and the erasure time."""

    id: int
    account_id: int
    contact_id: int
    addresses: list[tuple[str, str, str]]
    created_at: int

    def words(self) -> list[str]:
        """Return the normalized and the written forms of the addresses, in lower case."""
        return sorted({addresses.lowercase(text) for _, key, value in self.addresses for text in (key, value)})

    def finder(self) -> Callable[[bytes], bool]:
        """Return a function that returns whether some bytes contain one of the addresses.

        The bytes may be UTF-8, UTF-16 or Windows-1252, and their ASCII letters must be in lower case.
        """
        encoded_words, patterns = set(), set()
        for word in self.words():
            for name in ("utf-8", "utf-16-le", "utf-16-be", "cp1252"):
                try:
                    encoded_words.add(word.encode(name).lower())
                except UnicodeEncodeError:
                    continue  # A file in this encoding cannot contain the address.
                if not word.isascii():
                    patterns.add(b"".join(_letter_pattern(char, name) for char in word))
        compiled = [re.compile(pattern) for pattern in sorted(patterns)]
        return lambda text: any(word in text for word in encoded_words) or any(regex.search(text) for regex in compiled)

    def digits(self) -> list[bytes]:
        """Return the phone numbers as ASCII digits, without the plus."""
        return [key.lstrip("+").encode() for kind, key, _ in self.addresses if kind == "phone"]


def _letter_pattern(char: str, encoding: str) -> bytes:
    """Return a pattern for a letter in both cases, composed and decomposed (Unicode NFC and NFD).

    It is needed because `bytes.lower` changes only ASCII letters.
    """
    cases = [character for character in (char, char.upper(), "ẞ" if char == "ß" else char) if len(character) == 1]
    spellings = {unicodedata.normalize(form, character) for character in cases for form in ("NFC", "NFD")}
    encoded = set()
    for spelling in spellings:
        with suppress(UnicodeEncodeError):  # Not every encoding has all these forms of a letter.
            encoded.add(re.escape(spelling.encode(encoding).lower()))
    return b"(?:" + b"|".join(sorted(encoded)) + b")"


def has_pending_erasures() -> bool:
    """Return whether any erasure is pending."""
    return bool(rows("SELECT 1 FROM erasure LIMIT 1"))


def run_erasures() -> None:
    """Run the pending erasures that are not blocked by a running import, then prune expired snapshots and outcomes."""
    erased = [person for person in _pending_erasures() if _erase_person(person)]
    for person in erased:
        while transactions.write(removal.purge_search_index):
            pass
        transactions.write(_delete_erasure, person)
    # The write-ahead log contains the deleted data until it is truncated. Litestream does that by itself.
    is_log_ours = erased and not database.is_log_replicated()
    if is_log_ours and not any(database.truncate_wal(connection()) for _ in range(_MAX_TRUNCATIONS)):
        logger.warning("imports: erased data stays in the write-ahead log for now: the database is in use")
    while transactions.write(prune_chunks):
        pass


def _pending_erasures() -> list[ErasedPerson]:
    return [
        ErasedPerson(row.id, row.account_id, row.contact_id, [(kind, key, value) for kind, key, value in row.addresses],
             row.created_at)
        for row in Erasure.select().order_by(Erasure.id)
    ]  # fmt: skip


def _erase_person(person: ErasedPerson) -> bool:
    """Remove a person from all imports created before the erasure; return False if one of them is still running."""
    params = (person.account_id, person.created_at)
    if fetch_one(
        "SELECT 1 FROM import WHERE account_id = ? AND created_at <= ? "
        "AND (status IN ('pending', 'processing') OR phase = 'undoing') LIMIT 1",
        params,
    ):
        return False
    for contact_id in _recreated_contacts(person):
        try:
            transactions.write(removal.erase, person.account_id, contact_id, _BY_SERVICE)
        except NotFound:
            logger.info("imports: erasure skipped contact=%s: already deleted", contact_id)
    for (import_id,) in rows("SELECT id FROM import WHERE account_id = ? AND created_at <= ?", params):
        home = store.import_directory(import_id)
        if home.is_dir() and any(_is_named_in(path, person) for path in home.iterdir()):
            shutil.rmtree(home)
        for chunk_id in _chunks_naming(import_id, person):
            transactions.write(_scrub_chunk, chunk_id, person)
        transactions.write(_scrub_samples, import_id, person)
    return True


def _recreated_contacts(person: ErasedPerson) -> list[int]:
    """Return the ids of contacts with one of the addresses that an import from before the erasure created after it."""
    contact_ids: dict[int, None] = {}
    for kind, key, _ in person.addresses:
        for (contact_id,) in rows(
            "SELECT h.contact_id FROM channel h JOIN event e ON e.contact_id = h.contact_id "
            "WHERE h.account_id = ?1 AND h.kind = ?2 AND h.key = ?3 AND e.event = 'contact_add' AND e.created_at >= ?4 "
            "AND e.data ->> '$.import_id' IN (SELECT id FROM import WHERE account_id = ?1 "
            "AND created_at <= ?4)",
            (person.account_id, kind, key, person.created_at),
        ):
            contact_ids[contact_id] = None
    return list(contact_ids)


def _is_named_in(path: Path, person: ErasedPerson) -> bool:
    """Return whether an uploaded file or a staging file contains an address of an erased person."""
    if path.suffix == ".db":
        return _is_named_in_staging(path, person)
    is_named, digits = person.finder(), person.digits()
    previous_end = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            text = previous_end + block.lower()
            if is_named(text):
                return True
            if digits:
                stripped = text.translate(None, _PHONE_SEPARATORS)
                if any(number in stripped for number in digits):
                    return True
            previous_end = text[-_OVERLAP:]
    return False


def _is_named_in_staging(path: Path, person: ErasedPerson) -> bool:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for table, columns in database.list_columns(db).items():
            text = f"lower(concat_ws(char(10), {', '.join(columns)}))"
            condition = " OR ".join(f"instr({text}, ?)" for _ in person.words())
            if db.execute(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1", person.words()).fetchall():
                return True
    except apsw.Error:
        # An incomplete file cannot be read, so it must be assumed to contain the person.
        logger.warning("imports: unreadable staging file removed path=%s", path)
        return True
    finally:
        db.close(True)
    return False


def _chunks_naming(import_id: int, person: ErasedPerson) -> Iterator[int]:
    """Yield the ids of the chunks of an import whose outcomes or snapshot contain an erased person."""
    is_named, last_id = person.finder(), 0
    while True:
        chunks = rows(
            "SELECT id, outcomes, before FROM import_chunk WHERE import_job_id = ? AND id > ? ORDER BY id LIMIT ?",
            (import_id, last_id, _CHUNK_BATCH),
        )
        for last_id, outcomes, before in chunks:
            lowercased = bytes(outcomes).lower() + bytes(before or b"").lower()
            changed_ids = [change.contact_id for change in decode_snapshot(before).changes] if before else []
            if is_named(lowercased) or person.contact_id in changed_ids:
                yield last_id
        if len(chunks) < _CHUNK_BATCH:
            return


def _scrub_chunk(chunk_id: int, person: ErasedPerson) -> None:
    require_write_transaction()
    chunk = fetch_one("SELECT outcomes, before FROM import_chunk WHERE id = ?", (chunk_id,))
    if chunk is None:
        return
    words = set(person.words())
    snapshot = None
    if chunk[1] is not None:
        notes = decode_snapshot(chunk[1])
        notes.changes = [change for change in notes.changes if change.contact_id != person.contact_id]
        notes.added = [(kind, key) for kind, key in notes.added if addresses.lowercase(key) not in words]
        snapshot = _pack(notes)
    outcomes = _pack(_remove_words(msgspec.msgpack.decode(chunk[0]), words))
    removal.overwrite_deleted_data()
    run("UPDATE import_chunk SET outcomes = ?, before = ? WHERE id = ?", (outcomes, snapshot, chunk_id))


def _remove_words(value: Any, words: set[str]) -> Any:
    if isinstance(value, list):
        return [_remove_words(inner, words) for inner in value]
    return "" if isinstance(value, str) and addresses.lowercase(value) in words else value


def _scrub_samples(import_id: int, person: ErasedPerson) -> None:
    """Remove the sample rows that contain an address of an erased person from the columns of an import."""
    require_write_transaction()
    job = Import.get_or_none(Import.id == import_id)
    if job is None:
        return
    needles, digits = person.words(), person.digits()

    def names_person(cell: str) -> bool:
        stripped = cell.encode().translate(None, _PHONE_SEPARATORS)
        return any(word in addresses.lowercase(cell) for word in needles) or any(
            number in stripped for number in digits
        )

    erased_rows = {
        index for column in job.columns for index, cell in enumerate(column["samples"]) if names_person(cell)
    }
    if not erased_rows:
        return
    for column in job.columns:
        column["samples"] = [cell for index, cell in enumerate(column["samples"]) if index not in erased_rows]
    removal.overwrite_deleted_data()
    run("UPDATE import SET columns = ? WHERE id = ?", (msgspec.json.encode(job.columns).decode(), import_id))


def _delete_erasure(person: ErasedPerson) -> None:
    require_write_transaction()
    removal.overwrite_deleted_data()
    run("DELETE FROM erasure WHERE id = ?", (person.id,))
