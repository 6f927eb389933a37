"""Remove lines about sent messages from the journal once no backup needs them, so that the file has a limited size.

Everything else stays: opt-outs, damaged lines, and lines of kinds that only a newer version knows. A million messages a
day take about 15 MB a day; with the default of 35 days the file stays below 600 MB.
"""

import fcntl
import logging
import os
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from appliance.core import crypto
from appliance.core.data_dir import PART_PREFIX, PART_SUFFIX, sync_to_disk
from appliance.storage import journal, transactions
from appliance.storage.journal import FORMAT, JOURNAL_FILE, FirstLine, JournalHeader
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.storage")
# A journal is rewritten once it can lose this many bytes, and this share of its size.
MIN_REMOVED_BYTES = 1_000_000
_MIN_REMOVED_SHARE = 0.1
# The new first line is padded with spaces, so that its numbers may be filled in at the end.
_HEADER_BYTES = 400


class _Removable(NamedTuple):
    """The lines that may be removed: those about sent messages before an offset in the file."""

    end: int  # the offset; lines that an earlier compaction kept are not among them
    size: int  # of these lines, in bytes


def compact(directory: Path, sent_before: int, min_removed_bytes: int = MIN_REMOVED_BYTES) -> int:
    """Remove the lines about messages that were sent before a time (ms), and return the number of removed bytes.

    Returns 0 without a change if there are fewer than `min_removed_bytes` of them, or too small a share of the file.
    Lines may be appended meanwhile. If the process is killed, the old or the new journal is there. Raises OSError and
    journal.UnusableJournal.
    """
    path = directory / JOURNAL_FILE
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        header = journal.read_header(file)
        if header is None:
            return 0
        removable = _find_removable(file, header, sent_before)
        if removable.size < max(min_removed_bytes, os.fstat(file.fileno()).st_size * _MIN_REMOVED_SHARE):
            return 0
        part = directory / f"{PART_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}"
        try:
            with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b") as target:
                fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _copy(file, target, header, removable, sent_before)
                os.fsync(target.fileno())
                transactions.write(_replace, file, target, part, path)
        finally:
            part.unlink(missing_ok=True)
    log.info("journal: removed old lines about sent messages bytes=%d", removable.size)
    return removable.size


def _find_removable(file: BinaryIO, header: JournalHeader, sent_before: int) -> _Removable:
    """Return the lines that may be removed, which end before the first line that is not older than `sent_before`."""
    end, size = file.seek(header.size + header.line.kept), 0
    for raw in journal.read_lines(file):
        line = journal.parse_line(raw)
        if line is not None and line.at >= sent_before:
            break
        end += len(raw)
        size += len(raw) if isinstance(line, journal.Sent) else 0
    return _Removable(end, size)


def _copy(file: BinaryIO, target: BinaryIO, header: JournalHeader, removable: _Removable, sent_before: int) -> None:
    """Write the new first line, the lines to keep, and all lines behind the removable ones."""
    target.seek(_HEADER_BYTES)
    offset = file.seek(header.size)
    for raw in journal.read_lines(file):
        if offset >= removable.end:
            break
        offset += len(raw)
        if not isinstance(journal.parse_line(raw), journal.Sent):
            target.write(raw)
    kept_bytes = target.tell() - _HEADER_BYTES
    first_line = FirstLine(
        crypto.random_base62(16),
        FORMAT,
        header.journal,
        header.get_position(removable.end).size,
        kept_bytes,
        sent_before,
        header.line.key,
    )
    content = msgspec.json.encode(first_line).ljust(_HEADER_BYTES - 1) + b"\n"
    if len(content) != _HEADER_BYTES:
        raise OSError(None, "the first line of the journal is too long", file.name)
    target.seek(0)
    target.write(content)
    target.seek(0, os.SEEK_END)
    file.seek(removable.end)
    shutil.copyfileobj(file, target)
    target.flush()


def _replace(file: BinaryIO, target: BinaryIO, part: Path, path: Path) -> None:
    """Copy the lines that were appended meanwhile, and replace the old journal by the new one.

    All processes append lines within write transactions only, and this function runs in one, so no line is lost. Raises
    OSError if the journal was replaced meanwhile.
    """
    require_write_transaction()
    if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
        raise OSError(None, "the journal was replaced while it was compacted", str(path))
    shutil.copyfileobj(file, target)
    target.flush()
    os.fsync(target.fileno())
    part.rename(path)
    sync_to_disk(path.parent)
