"""What no start needs lies packed in the executable until somebody asks for it, or until the start is over.

Large libraries, each file named `owner,owner:path`: its owners are the modules that need it, or the name by which
somebody asks for it.
"""

import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from zipimport import zipimporter

from appliance.archive import Archive

_finders: list["Packed"] = []


class Packed:
    """Unpacks the files of a module when it is looked for; then the usual finders find it."""

    def __init__(self, program: Path, room: Path) -> None:
        self._archive, self._room = Archive(str(program)), room
        self._lock = threading.Lock()
        # What each owner needs: its name in the archive, and where it belongs
        self.owners: dict[str, list[tuple[str, Path]]] = {}
        for name in self._archive.names():
            owners, _, path = name.rpartition(":")
            for owner in filter(None, owners.split(",")):
                self.owners.setdefault(owner, []).append((name, Path(path)))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing, but see to it that others do."""
        if fullname in self.owners:
            self.unpack(fullname)
        return None

    def unpack(self, owner: str) -> None:
        """Unpack the files of an owner, each whole or not at all; those of other processes in this room are as good."""
        with self._lock:
            for name, path in self.owners.get(owner, ()):
                place = self._room / path
                if not place.exists():
                    self._write(name, place)
                    _look_again()
                if place.suffix == ".zip" and str(place) not in sys.path:
                    sys.path.append(str(place))
            self.owners.pop(owner, None)

    def _write(self, name: str, place: Path) -> None:
        import lzma  # with the first that is needed: no start needs it

        data = lzma.decompress(self._archive.read(name))
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            fresh.write_bytes(data)
            fresh.replace(place)
        finally:
            fresh.unlink(missing_ok=True)


def _look_again() -> None:
    """Have the finders see what is new in their directories; those of archives would read the whole archive again."""
    for finder in list(sys.path_importer_cache.values()):
        look_again = getattr(finder, "invalidate_caches", None)
        if look_again is not None and not isinstance(finder, zipimporter):
            look_again()


def begin(room: Path) -> None:
    """From here on unpack what is asked for, if the program is an executable that has packed something."""
    finder = Packed(Path("/proc/self/exe"), room)
    _finders.append(finder)
    sys.meta_path.insert(0, finder)


def fetch(owner: str) -> None:
    """Unpack what is not imported but read, unless it is there; where nothing is packed there is nothing to do."""
    for finder in _finders:
        if owner in finder.owners:
            finder.unpack(owner)


def finish() -> None:
    """Unpack what nobody asked for yet: from then on neither a full disk nor a hurried first person waits for it."""
    for finder in _finders:
        for owner in list(finder.owners):
            finder.unpack(owner)
