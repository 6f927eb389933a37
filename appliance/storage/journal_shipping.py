"""Copy the journal to another place, such as a standby machine, piece by piece as it grows."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from appliance.core.data_dir import sync_to_disk
from appliance.storage import journal
from appliance.storage.journal import JournalPosition

_MAX_BYTES = 1 << 20
_PART_SUFFIX = ".arriving"


class JournalPiece(NamedTuple):
    """Whole lines of a journal, as one of the pieces in which it is copied."""

    is_first: bool  # whether it begins a new file, which replaces an earlier copy once its last piece is written
    is_last: bool  # whether the copy is complete with it
    start: JournalPosition | None  # the position of its first byte; None in a new file
    end: JournalPosition | None  # the position after its last byte; in a new file None, except for its last piece
    content: bytes


class PieceMismatch(Exception):
    """A piece does not continue a copy where it ends; the journal has to be sent again from its beginning."""


def read_pieces(path: Path, position: JournalPosition | None, max_bytes: int = _MAX_BYTES) -> Iterator[JournalPiece]:
    """Yield the lines of a journal after a position, or the whole file if that position is not in it.

    The yielded lines are synced to disk, so a power cut cannot change them. Yields nothing for a missing file, a file
    without an id, or if there are no further lines. Raises OSError and journal.UnusableJournal.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        os.fdatasync(file.fileno())
        header = journal.read_header(file)
        if header is None:
            return
        end = _find_end_of_lines(file)
        is_behind = (
            position is not None
            and position.journal == header.journal
            and header.start <= position.size <= header.get_position(end).size
        )
        offset = header.get_offset(position.size) if position is not None and is_behind else 0
        is_first = not is_behind
        file.seek(offset)
        while offset < end:
            content = _read_lines(file, min(max_bytes, end - offset))
            start = header.get_position(offset) if is_behind else None
            offset += len(content)
            is_last = offset >= end
            known = header.get_position(offset) if is_behind or is_last else None
            yield JournalPiece(is_first, is_last, start, known, content)
            is_first = False
            file.seek(offset)


def _find_end_of_lines(file: BinaryIO) -> int:
    """Return the offset after the last line break; a line that is being written, or that was truncated, has none."""
    offset = file.seek(0, os.SEEK_END)
    while offset:
        start = max(0, offset - _MAX_BYTES)
        file.seek(start)
        position = file.read(offset - start).rfind(b"\n")
        if position >= 0:
            return start + position + 1
        offset = start
    return 0


def _read_lines(file: BinaryIO, size: int) -> bytes:
    """Read whole lines of about `size` bytes."""
    content = file.read(size)
    return content if content.endswith(b"\n") else content + file.readline()


def append_pieces(path: Path, pieces: Iterable[JournalPiece]) -> JournalPosition | None:
    """Append pieces to a copy of a journal, sync it, and return the position of its end.

    A new file replaces the copy once its last piece is written. Raises OSError, and PieceMismatch for a piece that does
    not begin where the copy ends, for example because an earlier piece was written only in part.
    """
    part = path.with_name(path.name + _PART_SUFFIX)
    is_new = False
    for piece in pieces:
        is_new = is_new or piece.is_first
        if not is_new and piece.start != journal.find_end(path):
            raise PieceMismatch(f"{path} does not end where the next lines of the journal begin")
        target = part if is_new else path
        mode = os.O_TRUNC if piece.is_first else 0
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | mode, 0o600), "ab") as file:
            file.write(piece.content)
            file.flush()
            os.fsync(file.fileno())
        if is_new and piece.is_last:
            part.rename(path)
            sync_to_disk(path.parent)
            is_new = False
    return journal.find_end(path)
