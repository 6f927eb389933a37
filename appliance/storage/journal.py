"""The journal of refusals: `optouts.jsonl`, beside the database and never in it, one line for each, only ever appended.

A backup that is restored does not know who left since. Whatever keeps somebody from being written to is in this file
before the transaction that it belongs to is committed, so what was acknowledged is told to a restored database too
(P11). A line whose commit failed may stand here as well: somebody asked for it, and got a 503.

Addresses stand here as keyed hashes: whoever is erased is not named by what remembers it.
"""

import contextlib
import errno
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from appliance.core import clock, tokens
from appliance.core.data_dir import new_file, settle
from appliance.storage.writer import state

log = logging.getLogger("campanero.storage")
FILE = "optouts.jsonl"


class Mark(NamedTuple):
    """A place in a journal: which one it is, and how many bytes of it there were."""

    journal: str
    size: int


class _Journal:
    """The open file of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._handle: int | None = None

    def append(self, lines: list[bytes]) -> None:
        """Bring lines to disk, all or none; raises OSError."""
        with self._lock:
            handle = self._handle = self._current()
            size = os.fstat(handle).st_size
            content = b"".join(lines)
            try:
                if os.write(handle, content) != len(content):
                    raise OSError(errno.ENOSPC, "the journal of opt-outs cannot be written whole", str(self.path))
                os.fdatasync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise

    def _current(self) -> int:
        """Return a handle of the file that has the journal's name now: somebody may have removed or replaced it."""
        if self._handle is None:
            return self._opened()
        try:
            if os.path.samestat(os.fstat(self._handle), self.path.stat()):
                return self._handle
        except FileNotFoundError:
            self._put_back(self._handle)
        os.close(self._handle)
        self._handle = None
        return self._opened()

    def _put_back(self, handle: int) -> None:
        """Write a journal whose name was removed into a new file: what it says was acknowledged."""
        log.warning("%s was removed while the service runs; it is written anew", self.path)
        with contextlib.suppress(FileExistsError), new_file(self.path) as file, os.fdopen(os.dup(handle), "rb") as old:
            old.seek(0)
            shutil.copyfileobj(old, file)

    def _opened(self) -> int:
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        size = os.fstat(handle).st_size
        if size == 0:
            os.write(handle, _line({"journal": tokens.random_base62(16)}))
        elif os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")  # a power cut took the end of a line
        os.fsync(handle)
        settle(self.path.parent)
        return handle


_journal: _Journal | None = None


def use(directory: Path) -> None:
    """Write into the journal of this data directory from here on."""
    global _journal
    _journal = _Journal(directory / FILE)


def note(account_id: int, act: str, **facts: Any) -> None:
    """Note a refusal with the running verb: in the journal before that is committed, and not if the verb fails."""
    if state.lines is not None:
        told = {"at": clock.now_ms(), "account": account_id, "act": act, **facts}
        state.lines.append(_line({key: value for key, value in told.items() if value is not None}))


def keep(lines: list[bytes]) -> None:
    """Bring what verbs noted to disk; called before their commit. Raises OSError."""
    if lines and _journal is not None:
        _journal.append(lines)


def mark(path: Path) -> Mark | None:
    """Return where a journal ends now; None where there is none yet."""
    try:
        with path.open("rb") as file:
            name = _read(file.readline()).get("journal")
            return Mark(str(name), file.seek(0, os.SEEK_END)) if name else None
    except FileNotFoundError:
        return None


def since(path: Path, place: Mark | None, moment: int) -> Iterator[dict[str, Any]]:
    """Yield what a journal says behind a place; where it is another journal, or the place is unknown, since a moment.

    What cannot be read, the end of a line that a power cut took, is left out.
    """
    if not path.exists():
        return
    here = mark(path)
    known = place is not None and here is not None and here.journal == place.journal and here.size >= place.size
    with path.open("rb") as file:
        if known and place is not None:
            file.seek(place.size)
        for raw in file:
            line = _read(raw)
            if "act" in line and (known or line.get("at", 0) >= moment):
                yield line


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _read(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
