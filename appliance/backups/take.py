"""Takes a backup beside the running service: one moment of the database, found whole, packed into one file."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import apsw

from appliance import VERSION, clock, tokens
from appliance.backups import archive, files
from appliance.backups.archive import DATABASE, KEY, Manifest, Source, Writer
from appliance.backups.placing import FOLDERS
from appliance.datadir import settle
from appliance.db import journal

_PAGES = 2_000
_BUSY_MS = 10_000
# What a packed database takes at most, of its own size: random bytes, which pictures are, do not shrink
_PACKED = 1.05

Tell = Callable[[str, float], None]


class NotTaken(Exception):
    """There is no backup, and why."""


def backup(directory: Path, target: Path, with_key: bool = False, tell: Tell = lambda words, part: None) -> Manifest:
    """Back a data directory up into a new file and answer its manifest; the key of `tokens` must be loaded.

    The service may go on: what is in the file is of one moment. `tell` hears what is done and how far that is (0 to 1).
    Raises NotTaken; then no file is left behind.
    """
    source = directory / DATABASE
    if not source.exists():
        raise NotTaken(f"{source} is not there")
    if target.exists():
        raise NotTaken(f"{target} exists already: a backup never overwrites")
    if not target.parent.is_dir():
        raise NotTaken(f"{target.parent} is no directory")
    _must_fit(source, target.parent)
    with _parts(target) as (copy, part, file):
        mark = journal.mark(directory / journal.FILE)
        taken_at, schema = clock.now_ms(), _copied(source, copy, tell)
        tell("looking it over", 0)
        _must_be_whole(copy)
        manifest = Manifest(archive.FORMAT, VERSION, schema, taken_at, fingerprint(), with_key, mark)
        with archive.writing(file, manifest) as writer:
            _pack(writer, directory, copy, with_key, tell)
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(part, target)
        except FileExistsError:
            raise NotTaken(f"{target} exists already: a backup never overwrites") from None
        settle(target.parent)
    return manifest


def fingerprint() -> str:
    """Answer what tells one key file from another, and nothing else about it."""
    return tokens.derive("backup").hex()[:16]


def _must_fit(source: Path, where: Path) -> None:
    disk, size = os.statvfs(where), source.stat().st_size
    free, needed = disk.f_bavail * disk.f_frsize, int(size * (1 + _PACKED))
    if free < needed:
        raise NotTaken(f"{where} has {free / 1e6:.0f} MB free, and a backup may take {needed / 1e6:.0f} MB on its way")


@contextmanager
def _parts(target: Path) -> Iterator[tuple[Path, Path, BinaryIO]]:
    """Answer the names of what is on its way and its file, held against sweeping; whatever is left of it goes."""
    base = target.parent / f".{target.name}.{os.getpid()}"
    copy, part = Path(f"{base}.db{files.PART}"), Path(f"{base}{files.PART}")
    try:
        with files.begun(part) as file:
            yield copy, part, file
    except apsw.Error as error:
        raise NotTaken(f"the database cannot be read: {error}") from error
    finally:
        for path in (copy, part, Path(f"{copy}-wal"), Path(f"{copy}-shm"), Path(f"{copy}-journal")):
            path.unlink(missing_ok=True)


def _copied(source: Path, copy: Path, tell: Tell) -> int:
    """Copy a database as of one moment, and answer its schema; whoever writes meanwhile goes on."""
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with ExitStack() as stack:
        here = stack.enter_context(_opened(source))
        there = stack.enter_context(_opened(copy))
        there.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        # A transaction that reads: pages that are written from here on are not seen, so the copy never begins anew
        here.execute("BEGIN")
        schema = here.execute("SELECT user_version FROM pragma_user_version, sqlite_schema LIMIT 1").get
        with there.backup("main", here, "main") as copying:
            while not copying.done:
                copying.step(_PAGES)
                tell("copying the database", 1 - copying.remaining / max(1, copying.page_count))
        here.execute("ROLLBACK")
        # One file, which needs nothing beside it
        there.execute("PRAGMA journal_mode = DELETE")
    return int(schema or 0)


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        yield connection
    finally:
        connection.close()


def _must_be_whole(copy: Path) -> None:
    with _opened(copy) as there:
        found = there.execute("PRAGMA quick_check(3)").fetchall()
    if found != [("ok",)]:
        raise NotTaken(f"the database is damaged: {'; '.join(str(one[0]) for one in found)}")


def _pack(writer: Writer, directory: Path, copy: Path, with_key: bool, tell: Tell) -> None:
    size = copy.stat().st_size
    with copy.open("rb") as file:
        writer.add(DATABASE, _Telling(file, size, tell), size)
    others = [directory / journal.FILE, *([directory / KEY] if with_key else [])]
    others += [path for folder in FOLDERS for path in sorted((directory / folder).rglob("*")) if path.is_file()]
    for path in others:
        try:
            with path.open("rb") as file:
                writer.add(str(path.relative_to(directory)), file, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            continue  # it was over, and its rows know that


class _Telling:
    def __init__(self, file: Source, size: int, tell: Tell) -> None:
        self._file, self._size, self._tell, self._read = file, size, tell, 0

    def read(self, size: int, /) -> bytes:
        content = self._file.read(size)
        self._read += len(content)
        self._tell("packing", self._read / max(1, self._size))
        return content
