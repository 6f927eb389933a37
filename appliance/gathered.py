"""The code of every module that a start needs, in one piece and read at once; of those needed soon after, packed.

A thousand modules found, unpacked and read one after the other are a third of a start. The piece is made with the
executable (packaging/campanero.spec); a program that is run from its sources has none. Imported before all that it
makes quick, so it imports next to nothing.
"""

import marshal
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from appliance.archive import Archive

NAME = "code"
_finders: list["Gathered"] = []


class _AtHand(SourceFileLoader):
    """Loads a module whose code is at hand; what else it is asked it says of the file that would lie there."""

    def __init__(self, finder: "Gathered", name: str, path: str) -> None:
        super().__init__(name, path)
        self._finder = finder

    def get_code(self, fullname: str) -> CodeType:
        """Return the code, which is kept no longer than until it is run."""
        return self._finder.take(fullname)


class Gathered:
    """Finds the modules of the piece."""

    def __init__(self, read: Callable[[], bytes], room: str) -> None:
        """Take what reads the piece, and the directory in which the files of its modules would lie."""
        self._read, self._room = read, room
        self._codes = self._load()
        self._packages = {name: is_package for name, (is_package, _) in self._codes.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module of the piece is loaded, and where its file would be."""
        is_package = self._packages.get(fullname)
        if is_package is None:
            return None
        place = f"{self._room}/{fullname.replace('.', '/')}"
        origin = f"{place}/__init__.py" if is_package else f"{place}.py"
        spec = ModuleSpec(fullname, _AtHand(self, fullname, origin), origin=origin, is_package=is_package)
        spec.has_location = True
        spec.cached = origin  # said, or it is worked out
        if is_package:
            spec.submodule_search_locations = [place]
        return spec

    def take(self, name: str) -> CodeType:
        """Return the code of a module; whoever asks a second time waits until it is read a second time."""
        held = self._codes.pop(name, None)
        found = (held or self._load()[name])[1]
        code: CodeType = marshal.loads(found) if isinstance(found, bytes) else found  # noqa: S302 - our own
        return code

    def forget(self) -> None:
        """Let go of what nobody imported; it can be read again."""
        self._codes.clear()

    def _load(self) -> dict[str, tuple[bool, CodeType | bytes]]:
        loaded: dict[str, tuple[bool, CodeType | bytes]] = marshal.loads(self._read())  # noqa: S302 - our own
        return loaded


def begin(room: str) -> None:
    """From here on find modules in the piece: beside this program where it was installed unpacked, or else in it."""
    try:
        # Held open, as the archive is: what an upgrade puts in its place is of another program
        handle = os.open(f"{room}/{NAME}", os.O_RDONLY | os.O_CLOEXEC)
        finder = Gathered(lambda: os.pread(handle, os.fstat(handle).st_size, 0), room)
    except FileNotFoundError:
        archive = Archive("/proc/self/exe")
        finder = Gathered(lambda: archive.read(NAME), room)
    _finders.append(finder)
    sys.meta_path.insert(0, finder)


def finish() -> None:
    """Let go of what no start of this program asked for."""
    for finder in _finders:
        finder.forget()
