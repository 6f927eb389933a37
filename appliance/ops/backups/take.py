"""Takes a backup beside the running service: one moment of the database, found whole, packed into one file."""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import apsw

from appliance import VERSION
from appliance.core import clock, data_dir, subprocesses, tokens, wake_ups
from appliance.ops.backups import archive, files
from appliance.ops.backups.archive import DATABASE, KEY, Manifest, Source, Writer
from appliance.ops.backups.placing import FOLDERS
from appliance.settings import config
from appliance.storage import identity, journal
from appliance.storage.open import scalar

_PAGES = 2_000
_BUSY_MS = 10_000
# Write and read version of the header (sqlite.org/fileformat.html, 1.3): a file that needs no log beside it
_WITHOUT_LOG, _VERSIONS_AT = b"\x01\x01", 18
# What a packed database takes at most, of its own size: random bytes, which pictures are, do not shrink
_PACKED = 1.05

Tell = Callable[[str, float], None]


class NotTaken(Exception):
    """There is no backup, and why."""


class UnusableSource(NotTaken):
    """The database cannot be read, or does not belong to the key of its directory."""


def backup(directory: Path, target: Path, with_key: bool = False, tell: Tell = lambda words, part: None) -> Manifest:
    """Back a data directory up into a new file and answer its manifest; the key of `tokens` must be loaded.

    The service may go on: what is in the file is of one moment. `tell` hears what is done and how far that is (0 to 1).
    Raises NotTaken; then no file is left behind.
    """
    source = directory / DATABASE
    if not os.path.lexists(source):
        raise NotTaken(f"{source} is not there")
    if os.path.lexists(target):
        raise NotTaken(f"{target} exists already: a backup never overwrites")
    if not target.parent.is_dir():
        raise NotTaken(f"{target.parent} is no directory")
    _must_be_usable(source)
    _must_fit(source, target.parent)
    try:
        with data_dir.new_file(target) as file:
            mark, taken_at = journal.mark(directory / journal.FILE), clock.now_ms()
            with _copy_of(source, target.parent, tell) as (copy, schema):
                manifest = Manifest(
                    archive.FORMAT, VERSION, schema, taken_at, tokens.fingerprint(), with_key, mark
                )  # fmt: skip
                with archive.writing(file, manifest) as writer:
                    _pack(writer, directory, copy, with_key, tell)
    except apsw.Error as error:
        raise UnusableSource(f"the database cannot be read: {error}") from error
    except FileExistsError:
        raise NotTaken(f"{target} exists already: a backup never overwrites") from None
    return manifest


def _must_fit(source: Path, where: Path) -> None:
    disk, size = os.statvfs(where), source.stat().st_size
    free, needed = disk.f_bavail * disk.f_frsize, int(size * (1 + _PACKED))
    if free < needed:
        raise NotTaken(f"{where} has {free / 1e6:.0f} MB free, and a backup may take {needed / 1e6:.0f} MB on its way")


def _must_be_usable(source: Path) -> None:
    """Raise Unusable for a database that is damaged, empty, foreign, or does not belong to the key that is loaded."""
    try:
        found = identity.inspect(source)
    except identity.Unusable as error:
        raise UnusableSource(str(error)) from None
    if found.schema == 0:
        raise UnusableSource(f"{source} is empty")
    if found.key_fingerprint not in (None, tokens.fingerprint()):
        raise UnusableSource(f"the {KEY} in {source.parent} is the key of another installation: put back its own")


@contextmanager
def _copy_of(source: Path, where: Path, tell: Tell) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a whole copy of a database as of one moment, with its schema; writers are not blocked.

    The copy has no name: what a kill leaves of it is gone with the process.
    """
    path = where / f"{data_dir.PART_PREFIX}{os.getpid()}-{DATABASE}{data_dir.PART_SUFFIX}"
    with ExitStack() as stack:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        file = stack.enter_context(os.fdopen(descriptor, "w+b"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that writes and one that reads what was written: neither can be opened once the name is gone
            there, checking = stack.enter_context(_opened(path)), stack.enter_context(_opened(path))
        finally:
            path.unlink()
        # Without a journal SQLite asks for the file by its name no more
        there.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        here = stack.enter_context(_opened(source))
        # A transaction that reads: pages that are written from here on are not seen, so the copy never begins anew
        here.execute("BEGIN")
        schema = int(here.execute("SELECT user_version FROM pragma_user_version, sqlite_schema LIMIT 1").get)
        with there.backup("main", here, "main") as copying:
            while not copying.done:
                copying.step(_PAGES)
                tell("copying the database", 1 - copying.remaining / max(1, copying.page_count))
        here.execute("ROLLBACK")
        there.close()
        os.pwrite(descriptor, _WITHOUT_LOG, _VERSIONS_AT)
        tell("looking it over", 0)
        damage = checking.execute("PRAGMA quick_check(3)").fetchall()
        if damage != [("ok",)]:
            raise UnusableSource(f"the database is damaged: {'; '.join(str(row[0]) for row in damage)}")
        yield file, schema


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        yield connection
    finally:
        connection.close()


def _pack(writer: Writer, directory: Path, copy: BinaryIO, with_key: bool, tell: Tell) -> None:
    size = os.fstat(copy.fileno()).st_size
    writer.add(DATABASE, _Telling(copy, size, tell), size)
    others = [directory / journal.FILE, *([directory / KEY] if with_key else [])]
    others += [path for folder in FOLDERS for path in sorted((directory / folder).rglob("*")) if path.is_file()]
    for path in others:
        name = path.relative_to(directory).as_posix()
        if not archive.is_packed(name):
            continue  # nothing of ours is called so, and a restoration would refuse it
        try:
            with path.open("rb") as file:
                writer.add(name, file, os.fstat(file.fileno()).st_size)
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


# Backups by the clock: made by a child of this program that yields to everything else, so many of them kept.

log = logging.getLogger("campanero.backups")
# One that failed, for want of room perhaps, is tried again after so long
_AGAIN_MS = 3600 * 1000


class State(NamedTuple):
    """How it stands with them."""

    is_running: bool
    failure: str  # words of the last one, if it failed


class _Known:
    """What this process knows; all else lies in the directory."""

    def __init__(self) -> None:
        self.asked = self.running = False
        self.failure = ""
        self.not_before = 0
        self.latest: int | None = None


_known = _Known()
_working = threading.Lock()


def schedule_state() -> State:
    """Return whether one is made now, and what became of the last."""
    return State(_known.running or _known.asked, _known.failure)


def request_backup() -> None:
    """Let one be made now, whatever the schedule says."""
    _known.asked = True
    wake_ups.ring("backups")


def is_due() -> bool:
    """Return whether one is to be made: asked for, or so long after the last; the first, so long after the account."""
    if _known.asked:
        return True
    every = config.seconds(config.current().backup.every) * 1000
    now = clock.now_ms()
    if not every or now < _known.not_before:
        return False
    if _known.latest is None:
        _known.latest = _latest()
    return _known.latest is not None and now - _known.latest >= every


def _latest() -> int | None:
    """Return when the last scheduled one was made, or since when there could have been one."""
    own = [one.made_at for one in files.kept(_directory()) if one.is_own]
    born = own[0] if own else scalar("SELECT min(created_at) FROM account")
    return int(born) if born is not None else None


def _directory() -> Path:
    return Path(config.current().data_dir)


def tend(is_stopping: threading.Event) -> None:
    """Make the one that is due, and delete those that are too many."""
    if not _working.acquire(blocking=False):
        return
    try:
        if is_due():
            _known.asked, _known.running = False, True
            _make(_directory(), is_stopping)
    finally:
        _known.running = False
        _working.release()


def _make(directory: Path, is_stopping: threading.Event) -> None:
    now = clock.now_ms()
    target = directory / files.FOLDER / files.name(now)
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        code, said = 1, f"{error.strerror}: {error.filename}"
    else:
        code, said = subprocesses.run("backup", str(target), "--data", str(directory), is_stopping=is_stopping)
    if is_stopping.is_set():
        return
    if code == 0:
        _known.failure, _known.latest = "", now
        gone = files.prune(directory, config.current().backup.keep)
        log.info("backed up to %s%s", target, f"; {gone} older ones are deleted" if gone else "")
    else:
        _known.failure, _known.not_before = said.removeprefix("campanero: ") or f"exit code {code}", now + _AGAIN_MS
        log.error("no backup was made: %s", _known.failure)
