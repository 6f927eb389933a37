"""What the executable holds beside what its loader unpacks, read where it lies.

The loader unpacks what it knows by its kind before the program begins, and leaves what is of the kind `a` where it is.
This is imported before anything else can be quick, so it imports next to nothing.
"""

import os
import struct

# The archive's end: a mark, how long it is, where its table begins, how long that is, and two of no use to us
_END = struct.Struct("!8sIIII64s")
_MARK = b"MEI\014\013\012\013\016"
# A line of the table before its name: how long it is, where its bytes begin, how many, how many unpacked, shrunk, kind
_LINE = struct.Struct("!IIIIBc")
_LEFT_ALONE = b"a"
# Behind the archive stand only the headers of the program that it was put into
_BEHIND = 65_536


class Archive:
    """The part of an executable that its loader leaves alone. Raises OSError, and ValueError where there is none."""

    def __init__(self, program: str) -> None:
        # Held open: whoever puts a newer program in its place takes nothing from this one
        self._handle = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        self._places: dict[str, tuple[int, int]] = {}
        behind = max(os.fstat(self._handle).st_size - _BEHIND, 0)
        tail = os.pread(self._handle, _BEHIND, behind)
        found = tail.rindex(_MARK)
        _, whole, table, length, *_ = _END.unpack_from(tail, found)
        first = behind + found + _END.size - whole
        lines, at = os.pread(self._handle, length, first + table), 0
        while at < length:
            line, start, stored, _, _, kind = _LINE.unpack_from(lines, at)
            if kind == _LEFT_ALONE:
                name = lines[at + _LINE.size : at + line].rstrip(b"\0").decode()
                self._places[name] = (first + start, stored)
            at += line

    def names(self) -> list[str]:
        """Return what is there."""
        return list(self._places)

    def read(self, name: str) -> bytes:
        """Return the bytes of one, as they were put in; raises KeyError."""
        start, length = self._places[name]
        return os.pread(self._handle, length, start)
