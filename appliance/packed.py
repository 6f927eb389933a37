"""What no start needs lies packed in the executable until somebody imports it, or until the start is over.

The loader unpacks what it knows by its kind before the program begins, and leaves what is of the kind `a` where it is:
large libraries, each entry named `module:path`, read here in the form that the loader's archive has.
"""

import importlib
import os
import struct
import sys
import threading
import zlib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

# The archive's end: a mark, how long it is, where its table begins, how long that is, and two of no use to us
_END = struct.Struct("!8sIIII64s")
_MARK = b"MEI\014\013\012\013\016"
# A line of the table before its name: how long it is, where its bytes begin, how many, how many unpacked, shrunk, kind
_LINE = struct.Struct("!IIIIBc")
_LEFT_ALONE = b"a"
# Behind the archive stand only the headers of the program that it was put into
_BEHIND = 65_536
_finders: list["Packed"] = []


class Entry(NamedTuple):
    """One file: where it belongs, and where its bytes are."""

    path: str
    start: int
    length: int
    shrunk: bool


class Packed(MetaPathFinder):
    """Unpacks the files of a module when it is looked for; then the usual finders find it."""

    def __init__(self, program: Path, room: Path) -> None:
        # Held open: whoever puts a newer program in its place takes nothing from this one
        self._handle, self._room = os.open(program, os.O_RDONLY), room
        self._lock = threading.Lock()
        self.modules = _read_table(self._handle)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing, but see to it that others do."""
        if fullname in self.modules:
            self.unpack(fullname)
        return None

    def unpack(self, module: str) -> None:
        """Unpack the files of a module, each whole or not at all; those of other processes in this room are as good."""
        with self._lock:
            for entry in self.modules.get(module, ()):
                place = self._room / entry.path
                if not place.exists():
                    self._write(entry, place)
            self.modules.pop(module, None)
        importlib.invalidate_caches()

    def _write(self, entry: Entry, place: Path) -> None:
        data = os.pread(self._handle, entry.length, entry.start)
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            fresh.write_bytes(zlib.decompress(data) if entry.shrunk else data)
            fresh.replace(place)
        finally:
            fresh.unlink(missing_ok=True)


def _read_table(program: int) -> dict[str, list[Entry]]:
    behind = max(os.fstat(program).st_size - _BEHIND, 0)
    tail = os.pread(program, _BEHIND, behind)
    found = tail.rindex(_MARK)
    _, whole, table, length, *_ = _END.unpack_from(tail, found)
    first = behind + found + _END.size - whole
    lines, at = os.pread(program, length, first + table), 0
    modules: dict[str, list[Entry]] = {}
    while at < length:
        line, start, stored, _, shrunk, kind = _LINE.unpack_from(lines, at)
        if kind == _LEFT_ALONE:
            module, _, path = lines[at + _LINE.size : at + line].rstrip(b"\0").decode().partition(":")
            modules.setdefault(module, []).append(Entry(path, first + start, stored, bool(shrunk)))
        at += line
    return modules


def begin(room: Path) -> None:
    """From here on unpack what is imported, if the program is an executable that has packed something."""
    finder = Packed(Path("/proc/self/exe"), room)
    _finders.append(finder)
    sys.meta_path.insert(0, finder)


def finish() -> None:
    """Unpack what nobody asked for yet: from then on neither a full disk nor a hurried first person waits for it."""
    for finder in _finders:
        for module in list(finder.modules):
            finder.unpack(module)
