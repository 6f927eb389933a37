"""The journal of what must survive a restore: the append-only file `optouts.jsonl` beside the database.

A restored backup lacks the opt-outs that happened after it was created. Each opt-out is written to this file and synced
to disk before its transaction is committed, so every acknowledged opt-out can be applied to a restored database (P11).
The file may also contain an opt-out whose commit failed and whose request was answered with 503.

The messages that were sent are in it too, so that a restored database does not send them again. Their lines are written
before the commit as well, but not synced: the ledger is synced, and these lines matter only if it is lost. After a
power cut the last of them may be missing.

Addresses are stored as keyed hashes, so that the journal does not name an erased person. Lines about sent messages that
no backup needs any more are removed (`journal_compaction.py`). `journal_shipping.py` copies the journal to another
machine. Lines of kinds that only a newer version knows are kept.
"""

import base64
import binascii
import contextlib
import errno
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import msgspec
from msgspec import Meta

from appliance.core import clock, crypto
from appliance.core.data_dir import create_file, sync_to_disk
from appliance.storage.database import write_state

log = logging.getLogger("campanero.storage")
JOURNAL_FILE = "optouts.jsonl"
# The version of the file's format. Further kinds of lines do not change it: older versions skip and keep them.
FORMAT = 1
# Far more than a line has: one of sent messages has at most about 40 kB.
_MAX_LINE_BYTES = 1 << 20
SENT_HASH_BYTES = 6  # of an address hash that are stored with a sent message, to recognize its recipient

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


class SentMessage(NamedTuple):
    """A message in a line of kind `Sent`; the other fields identify it if a restored ledger has no row with its id."""

    message_id: int
    contact_id: int  # 0: none
    address_hash: bytes  # the first `SENT_HASH_BYTES` of `crypto.hash_address`; zeros for an erased recipient
    run_id: int = 0  # 0: not of a flow
    step_id: int = 0


class Sent(JournalLine, tag="sent", omit_defaults=True):
    """Messages that a server accepted or may have accepted: of a campaign, a flow, or else single ones of an account.

    Message and contact ids are stored as the difference to the id before, which is 1 in most cases. `created` is when
    the campaign or flow was created (ms); a restored database may have another one with the same id. For a campaign of
    a series, `series` is the id of the repeated campaign, `created` is when that one was created, and `due` is the date
    (ms).
    """

    ids: Annotated[list[int], Meta(min_length=1)]
    contacts: list[int]
    hashes: str  # base64 of the address hashes, each of `SENT_HASH_BYTES`
    campaign: _Id | None = None
    flow: _Id | None = None
    created: _Time | None = None
    series: _Id | None = None
    due: _Time | None = None
    runs: list[int] = []
    steps: list[int] = []
    is_doubtful: bool = msgspec.field(name="doubt", default=False)  # whether it is unknown if a server accepted them

    def __post_init__(self) -> None:
        """Raise ValueError unless all lists describe the same messages."""
        per_flow = len(self.ids) if self.flow is not None else 0
        if (len(self.contacts), len(self.runs), len(self.steps)) != (len(self.ids), per_flow, per_flow):
            raise ValueError("the lists of a line must be of the same length")
        if self.campaign is not None and self.flow is not None:
            raise ValueError("a message belongs to a campaign or to a flow")
        try:
            hashes = base64.b64decode(self.hashes, validate=True)
        except binascii.Error:
            raise ValueError("the hashes must be base64") from None
        if len(hashes) != len(self.ids) * SENT_HASH_BYTES:
            raise ValueError("each message must have a hash")
        if not all(0 < number < 2**63 for number in accumulate(self.ids)):
            raise ValueError("an id is out of range")
        if not all(0 <= number < 2**63 for number in (*accumulate(self.contacts), *self.runs, *self.steps)):
            raise ValueError("an id is out of range")

    def list_messages(self) -> list[SentMessage]:
        """Return the messages of the line."""
        hashes = base64.b64decode(self.hashes)
        return [
            SentMessage(message_id, contact_id, hashes[start : start + SENT_HASH_BYTES], run_id, step_id)
            for message_id, contact_id, start, run_id, step_id in zip(
                accumulate(self.ids), accumulate(self.contacts), range(0, len(hashes), SENT_HASH_BYTES),
                self.runs or repeat(0), self.steps or repeat(0), strict=False,
            )
        ]  # fmt: skip


def pack_sent(messages: Sequence[SentMessage], **source: Any) -> Sent:
    """Return a line for messages of one source; `source` has the other keys of `Sent`."""
    messages = sorted(messages)
    is_flow = source.get("flow") is not None
    return Sent(
        ids=_list_differences([message.message_id for message in messages]),
        contacts=_list_differences([message.contact_id for message in messages]),
        hashes=base64.b64encode(b"".join([message.address_hash for message in messages])).decode(),
        runs=[message.run_id for message in messages] if is_flow else [],
        steps=[message.step_id for message in messages] if is_flow else [],
        **source,
    )


def _list_differences(numbers: list[int]) -> list[int]:
    return [numbers[0], *[after - before for before, after in pairwise(numbers)]]


class UnknownLine(msgspec.Struct):
    """A line of a kind that only a newer version knows."""

    act: str
    at: _Time


class FirstLine(msgspec.Struct, omit_defaults=True):
    """The first line of a journal.

    A compaction writes a new file with a new id `journal`, so that program versions that know only this id select lines
    by time. `lineage` is the id of the file before the first compaction, which positions have, so they stay valid.
    Positions count bytes as if no line had been removed. Of the lines before the position `compacted`, only `kept`
    bytes remain; they come right after the first line.

    `key` is the fingerprint of the installation's key, which earlier versions did not write.
    """

    journal: Annotated[str, Meta(min_length=1)]
    format: int = 1
    lineage: str | None = None
    compacted: Annotated[int, Meta(ge=0)] = 0
    kept: Annotated[int, Meta(ge=0)] = 0
    sent_since: _Time = 0  # sent messages before this time (ms) were removed
    key: str | None = None


_AnyLine = Erasure | OptOut | Suppression | ListLeft | TrackingChoice | Sent
_KINDS = {kind.__struct_config__.tag for kind in (Erasure, OptOut, Suppression, ListLeft, TrackingChoice, Sent)}
_decode_line: Callable[[bytes], _AnyLine] = msgspec.json.Decoder(_AnyLine).decode
_decode_unknown_line = msgspec.json.Decoder(UnknownLine).decode
_decode_first_line = msgspec.json.Decoder(FirstLine).decode
# RecursionError: a line may be nested deeply.
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class JournalPosition(NamedTuple):
    """A position in a journal: the `lineage` of its first line, and an offset in bytes as `FirstLine` defines it."""

    journal: str
    size: int


class UnusableJournal(Exception):
    """The journal must be neither read nor written; the message is one line."""


class JournalTooNew(UnusableJournal):
    """The journal has a format that only a newer version knows."""


class ForeignJournal(UnusableJournal):
    """The journal was written with the key of another installation, whose ids name other contacts and messages."""


class JournalHeader(NamedTuple):
    """The first line of a journal, and its length in bytes."""

    line: FirstLine
    size: int

    @property
    def journal(self) -> str:
        """Return the id of the journal as positions have it (`JournalPosition.journal`)."""
        return self.line.lineage or self.line.journal

    @property
    def start(self) -> int:
        """Return the position of the first byte that no compaction has removed or moved."""
        return self.line.compacted or self.size

    def get_offset(self, size: int) -> int:
        """Return the offset in the file of a position, which must not be before `start`."""
        return size - self.start + self.size + self.line.kept

    def get_position(self, offset: int) -> JournalPosition:
        """Return the position of an offset in the file, which must be after the lines that a compaction kept."""
        return JournalPosition(self.journal, offset + self.start - self.size - self.line.kept)


def read_header(file: BinaryIO) -> JournalHeader | None:
    """Read the first line of an open journal, and return it; None if it has no id.

    Raises JournalTooNew for a format that only a newer version knows, and ForeignJournal for a journal of another key
    than the loaded one.
    """
    file.seek(0)
    raw = file.readline(_MAX_LINE_BYTES)
    line = _parse_first_line(raw)
    if line is None:
        return None
    if line.format > FORMAT:
        raise JournalTooNew(f"{file.name} has format {line.format}, this program knows {FORMAT}: use the newer program")
    if line.key is not None and crypto.loaded_key() and line.key != crypto.key_fingerprint():
        raise ForeignJournal(
            f"{file.name} is the journal of another installation: move it away, and put the one that belongs to "
            f"{crypto.KEY_FILE} there"
        )
    return JournalHeader(line, len(raw))


class _Journal:
    """The journal file that this process appends to; the first `append` opens the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._handle: int | None = None

    def append(self, lines: list[bytes]) -> None:
        """Append lines, and sync them to disk unless all are of sent messages.

        If that fails, remove the lines and raise OSError.
        """
        with self._lock:
            handle = self._handle = self._current_handle()
            size = os.fstat(handle).st_size
            content = b"".join(lines)
            try:
                if os.write(handle, content) != len(content):
                    raise OSError(errno.ENOSPC, "the journal of opt-outs cannot be written whole", str(self.path))
                if not all(isinstance(line, _UnsyncedLine) for line in lines):
                    os.fdatasync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

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
            key = crypto.key_fingerprint() if crypto.loaded_key() else None
            os.write(handle, msgspec.json.encode(FirstLine(crypto.random_base62(16), key=key)) + b"\n")
        elif os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")  # A power cut has truncated the last line.
        os.fsync(handle)
        sync_to_disk(self.path.parent)
        return handle


_journal: _Journal | None = None


def open_journal(directory: Path) -> None:
    """Use the journal of this data directory from now on; the file is created by the first line.

    Raises OSError and UnusableJournal as `require_writable` does.
    """
    global _journal
    require_writable(directory)
    _journal = _Journal(directory / JOURNAL_FILE)


def require_writable(directory: Path) -> None:
    """Raise OSError if the journal exists but cannot be written, because then every opt-out would fail.

    Raises UnusableJournal as `read_header` does.
    """
    path = directory / JOURNAL_FILE
    try:
        os.close(os.open(path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK))
    except FileNotFoundError:
        return
    with path.open("rb") as file:
        read_header(file)


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


class _UnsyncedLine(bytes):
    """A line that need not be on disk before the commit."""


def append_sent(line: Sent) -> None:
    """Add a line about sent messages to the journal as `append` does; it is not synced to disk."""
    if write_state.journal_lines is not None:
        write_state.journal_lines.append(_UnsyncedLine(msgspec.json.encode(line) + b"\n"))


def append_to_file(path: Path, lines: Sequence[Sent]) -> None:
    """Append lines to a journal and sync it, for a program that has locked the data directory. Raises OSError."""
    if lines:
        file = _Journal(path)
        try:
            file.append([msgspec.json.encode(line) + b"\n" for line in lines])
        finally:
            file.close()


def flush(lines: list[bytes]) -> None:
    """Append the lines of a batch of writes to the journal, just before their commit. Raises OSError."""
    if lines and _journal is not None:
        try:
            _journal.append(lines)
        except OSError as error:
            log.error("journal: write failed, so opt-outs fail path=%s: %s", _journal.path, error.strerror or error)
            raise


def find_end(path: Path) -> JournalPosition | None:
    """Return the position of the end of a journal, or None if the file does not exist or its first line has no id.

    All lines before that position are on disk. Raises UnusableJournal, as `read_header` does.
    """
    try:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            header = read_header(file)
            return header.get_position(file.seek(0, os.SEEK_END)) if header is not None else None
    except FileNotFoundError:
        return None


def read_since(
    path: Path, position: JournalPosition | None, since_ms: int
) -> Iterator[JournalLine | UnknownLine | None]:
    """Yield the lines of a journal after a position, or since a time (ms) if the position is not in this journal.

    The position None is in no journal. Lines that a compaction has kept are selected by time too. Yields None for a
    damaged line, such as a line that a power cut has truncated. A missing file has no lines. Raises UnusableJournal, as
    `read_header` does.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        header = read_header(file)
        end = header.get_position(file.seek(0, os.SEEK_END)).size if header is not None else 0
        is_same_journal = position is not None and header is not None and header.journal == position.journal
        # The offset from which on all lines are wanted, and the first offset to read.
        exact = start = None
        if position is not None and header is not None and is_same_journal and position.size <= end:
            exact = header.get_offset(max(position.size, header.start))
            start = exact if position.size >= header.start else header.size
        offset = file.seek(start or 0)
        for raw in read_lines(file):
            is_wanted = exact is not None and offset >= exact
            offset += len(raw)
            # A truncated line is followed by an empty one if the position is between its end and its line break.
            if not raw.strip() or (not is_wanted and _parse_first_line(raw) is not None):
                continue
            line = parse_line(raw)
            if line is None or is_wanted or line.at >= since_ms:
                yield line


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an open journal; a damaged one that is far too long comes in parts."""
    return iter(partial(file.readline, _MAX_LINE_BYTES), b"")


def _encode_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def parse_line(raw: bytes) -> JournalLine | UnknownLine | None:
    """Return a line of a journal; None if it is damaged, or the first line."""
    try:
        line: JournalLine = _decode_line(raw)
    except _DECODE_ERRORS:
        return _parse_unknown_line(raw)
    return line


def _parse_unknown_line(raw: bytes) -> UnknownLine | None:
    """Return a line of a kind that this version does not know, or None for a damaged line."""
    try:
        line = _decode_unknown_line(raw)
    except _DECODE_ERRORS:
        return None
    return line if line.act not in _KINDS else None


def _parse_first_line(raw: bytes) -> FirstLine | None:
    try:
        return _decode_first_line(raw)
    except _DECODE_ERRORS:
        return None
