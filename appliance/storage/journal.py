"""The journal of opt-outs: the append-only file `optouts.jsonl` beside the database, one line for each opt-out.

A restored backup lacks the opt-outs that happened after it was created. Each opt-out is written to this file and synced
to disk before its transaction is committed, so every acknowledged opt-out can be applied to a restored database (P11).
The file may also contain an opt-out whose commit failed and whose request was answered with 503.

Addresses are stored as keyed hashes, so that the journal does not name an erased person.
"""

import contextlib
import errno
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from appliance.core import clock, crypto
from appliance.core.data_dir import create_file, sync_to_disk
from appliance.storage.database import write_state

log = logging.getLogger("campanero.storage")
JOURNAL_FILE = "optouts.jsonl"

_Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# Milliseconds since 1970, up to the end of 9999, the last year that Python can show.
_Time = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]


class JournalLine(msgspec.Struct, tag_field="act"):
    """A line of the journal; each subclass is one kind of act. `at` is its time in ms, and `account` an account id."""

    at: _Time
    account: _Id


class Erasure(JournalLine, tag="erased"):
    """A contact was erased."""

    contact: _Id


class AddressLine(JournalLine):
    """An act about an address, which is stored as its hash in hexadecimal digits (`crypto.hash_address`)."""

    kind: Literal["email", "phone"]
    hash: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}\Z")]
    by: Literal["recipient", "operator", "service"]


class OptOut(AddressLine, tag="opt_out"):
    """An address opted out."""


class Suppression(AddressLine, tag="suppressed"):
    """An address was suppressed, until `expires_at` if that is given."""

    reason: Literal["erased", "complaint", "hard_bounce", "stop_keyword", "manual", "soft_bounce"]
    expires_at: _Time | None = None


class ListLeft(AddressLine, tag="list_left"):
    """The recipient left a list."""

    list: _Id


class TrackingChoice(AddressLine, tag="tracking"):
    """The recipient chose how opens and clicks are recorded."""

    tracking: Literal["full", "aggregate", "none"]


class _FirstLine(msgspec.Struct):
    journal: Annotated[str, Meta(min_length=1)]


_AnyLine = Erasure | OptOut | Suppression | ListLeft | TrackingChoice
_decode_line: Callable[[bytes], _AnyLine] = msgspec.json.Decoder(_AnyLine).decode
_decode_first_line = msgspec.json.Decoder(_FirstLine).decode
# RecursionError: a line may be nested deeply.
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class JournalPosition(NamedTuple):
    """A position in a journal: the id in its first line, and the offset in bytes."""

    journal: str
    size: int


class _Journal:
    """The journal file that this process appends to; the first `append` opens the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._handle: int | None = None

    def append(self, lines: list[bytes]) -> None:
        """Append lines and sync them to disk. If that fails, remove the lines and raise OSError."""
        with self._lock:
            handle = self._handle = self._current_handle()
            size = os.fstat(handle).st_size
            content = b"".join(lines)
            try:
                if os.write(handle, content) != len(content):
                    raise OSError(errno.ENOSPC, "the journal of opt-outs cannot be written whole", str(self.path))
                os.fdatasync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise

    def _current_handle(self) -> int:
        """Return the descriptor of the file at the journal's path; a removed or replaced file is opened again."""
        if self._handle is None:
            return self._open_file()
        try:
            if os.path.samestat(os.fstat(self._handle), self.path.stat()):
                return self._handle
        except FileNotFoundError:
            self._restore_removed_file(self._handle)
        os.close(self._handle)
        self._handle = None
        return self._open_file()

    def _restore_removed_file(self, handle: int) -> None:
        """Copy the content of a removed journal into a new file, because its opt-outs were acknowledged."""
        log.warning("journal: file was removed while the service runs; recreated path=%s", self.path)
        with (
            contextlib.suppress(FileExistsError),
            create_file(self.path) as file,
            os.fdopen(os.dup(handle), "rb") as old,
        ):
            old.seek(0)
            shutil.copyfileobj(old, file)

    def _open_file(self) -> int:
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        size = os.fstat(handle).st_size
        if size == 0:
            os.write(handle, _encode_line({"journal": crypto.random_base62(16)}))
        elif os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")  # A power cut has truncated the last line.
        os.fsync(handle)
        sync_to_disk(self.path.parent)
        return handle


_journal: _Journal | None = None


def open_journal(directory: Path) -> None:
    """Use the journal of this data directory from now on; the file is created by the first opt-out.

    Raises OSError as `require_writable` does.
    """
    global _journal
    require_writable(directory)
    _journal = _Journal(directory / JOURNAL_FILE)


def require_writable(directory: Path) -> None:
    """Raise OSError if the journal exists but cannot be written, because then every opt-out would fail."""
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(directory / JOURNAL_FILE, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK))


def append(account_id: int, act: str, **values: Any) -> None:
    """Add a line to the journal as part of the write that this thread runs; do nothing outside of a write.

    The line is written just before the write is committed, and not at all if the write fails. `act` is the tag of a
    subclass of `JournalLine`, and `values` are its other keys; keys whose value is None are left out.
    """
    if write_state.journal_lines is not None:
        record = {"at": clock.now_ms(), "account": account_id, "act": act, **values}
        write_state.journal_lines.append(
            _encode_line({key: value for key, value in record.items() if value is not None})
        )


def flush(lines: list[bytes]) -> None:
    """Append the lines of a batch of writes to the journal and sync it, just before their commit. Raises OSError."""
    if lines and _journal is not None:
        try:
            _journal.append(lines)
        except OSError as error:
            log.error("journal: write failed, so opt-outs fail path=%s: %s", _journal.path, error.strerror or error)
            raise


def find_end(path: Path) -> JournalPosition | None:
    """Return the position of the end of a journal, or None if the file does not exist or its first line has no id."""
    try:
        with path.open("rb") as file:
            first_line = _parse_first_line(file.readline())
            return JournalPosition(first_line.journal, file.seek(0, os.SEEK_END)) if first_line is not None else None
    except FileNotFoundError:
        return None


def read_since(path: Path, position: JournalPosition | None, since_ms: int) -> Iterator[JournalLine | None]:
    """Yield the lines of a journal after a position, or since a time (ms) if the position is not in this journal.

    The position None is in no journal. Yields None for a damaged line, such as a line that a power cut has truncated. A
    missing file has no lines.
    """
    if not path.exists():
        return
    end = find_end(path)
    is_same_journal = (
        position is not None and end is not None and end.journal == position.journal and end.size >= position.size
    )
    with path.open("rb") as file:
        if is_same_journal and position is not None:
            file.seek(position.size)
        for raw in file:
            # A truncated line is followed by an empty one if the position is between its end and its line break.
            if not raw.strip() or (not is_same_journal and _parse_first_line(raw) is not None):
                continue
            line = _parse_line(raw)
            if line is None or is_same_journal or line.at >= since_ms:
                yield line


def _encode_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _parse_line(raw: bytes) -> JournalLine | None:
    try:
        line: JournalLine = _decode_line(raw)
    except _DECODE_ERRORS:
        return None
    return line


def _parse_first_line(raw: bytes) -> _FirstLine | None:
    try:
        return _decode_first_line(raw)
    except _DECODE_ERRORS:
        return None
