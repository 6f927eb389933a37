"""Storage that cannot be written, and the guard that stops sending before the disk is full (P9).

A reserve lies in a file of the data directory. When the disk is full it is given up, and only what has happened already
(the outcomes of messages in hand) is written into its place; all else is refused until there is room for it again.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import peewee

from appliance.core.errors import Unavailable
from appliance.settings import config
from appliance.storage import sql
from appliance.storage.open import close_database, connection

log = logging.getLogger("campanero.storage")
_STORAGE = (
    apsw.FullError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError,
    apsw.CorruptError, apsw.NotADBError,
)  # fmt: skip
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_FILES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
_MB = 1_048_576
_DATABASE = "campanero.db"
_LOG = f"{_DATABASE}-wal"
_MOVED = {
    _DATABASE: f"{_DATABASE} was removed or replaced while the service runs: put it back, or stop the service and "
    "restore a backup",
    _LOG: f"{_LOG} was removed or replaced while the service runs: put it back, or stop the service, which saves what "
    "was in it",
}
_GONE = os.stat_result([0] * 10)
# With less than this, even a commit that needs no new page may fail in the next moment
_FLOOR = _MB


class StorageError(Unavailable):
    """The database cannot be written; nothing was done."""


def storage_error(error: BaseException) -> StorageError | None:
    """Return the refusal for an error that says the storage is full, read-only or locked; None for any other."""
    cause = _cause(error)
    if cause is None:
        return None
    state = "is damaged" if isinstance(cause, _DAMAGE) else "cannot be written"
    return StorageError(f"the database {state}: {cause}")


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that the database file is damaged."""
    return isinstance(_cause(error), _DAMAGE)


def _cause(error: BaseException) -> BaseException | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _STORAGE) or (isinstance(cause, OSError) and cause.errno in _FILES):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


class _Guard:
    """What is known about the storage of this process."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.full = False  # the reserve is given up, and there is no room for another
        self.low: str | None = None
        self.failed: str | None = None
        self.damaged: str | None = None  # until all of the database is proved whole
        # The database and its log as they were opened; SQLite removes the log only with the last connection
        self.files: dict[str, os.stat_result] = {}
        self.moved: str | None = None  # the name of one of them was removed, or leads to another file
        self._lock = threading.RLock()
        self._said: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why nothing is sent, or None."""
        return (
            self.moved
            or self.damaged
            or self.failed
            or ("the disk of the data directory is full" if self.full else self.low)
        )

    @property
    def _reserve(self) -> Path:
        assert self.directory is not None
        return self.directory / "reserve"

    def say(self) -> None:
        """Write a line into the log when trouble comes, changes or ends."""
        now = self.trouble
        if now != self._said:
            self._said = now
            if now is None:
                log.warning("the storage is well again; sending goes on")
            else:
                log.error("sending stops: %s", now)

    def give_up(self) -> None:
        """Free the reserve; nothing but what has happened already is written from here on."""
        if self.directory is None:
            return
        with self._lock:
            self.full = True
            try:
                self._reserve.unlink(missing_ok=True)
            except OSError as error:
                # On a disk that takes nothing at all there is none to give up; who waits is to be told all the same
                log.debug("the reserve cannot be given up: %s", error)

    def look(self) -> None:
        """Measure the disk: see whether it is full, low, or has room for the reserve again."""
        if self.directory is None:
            return
        # In one piece: what was given up since the disk was measured must not be taken again because of it
        with self._lock:
            self._measure(self.directory)
        self.say()

    def _measure(self, directory: Path) -> None:
        reserve = config.current().storage.reserve_mb * _MB
        self.moved = self.find_moved()
        if self.moved is None:
            self.note_log()
        try:
            free, least = room(directory)
        except OSError as error:
            self.failed = f"the data directory cannot be looked at: {error.strerror}"
            return
        self.low = (
            None if free >= least else f"less than {least / _MB:.0f} MB are free on the disk of the data directory"
        )
        if free < _FLOOR:
            self.give_up()
        elif free >= reserve + _FLOOR or self._reserve.exists():
            self._make(reserve)

    def find_moved(self) -> str | None:
        """Return what is wrong if the database or its log was removed or replaced since the service opened it."""
        for name, opened in self.files.items():
            now = self._stat(name)
            if now is not None and not os.path.samestat(opened, now):
                return _MOVED[name]
        return None

    def note_log(self) -> None:
        """Remember the log of the database once there is one."""
        if self.files and _LOG not in self.files:
            log_file = self._stat(_LOG)
            if log_file is not None and log_file.st_nlink:
                self.files[_LOG] = log_file

    def _stat(self, name: str) -> os.stat_result | None:
        """Look at a file; one that is gone has no inode, and None is said of a disk that cannot be asked now."""
        assert self.directory is not None
        try:
            return (self.directory / name).stat()
        except FileNotFoundError:
            return _GONE
        except OSError:
            return None  # whoever writes is told why

    def _make(self, size: int) -> None:
        if self._reserve.exists() and self._reserve.stat().st_size == size:
            self.full = False
            return
        try:
            handle = os.open(self._reserve, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
            try:
                if size:
                    os.posix_fallocate(handle, 0, size)
            finally:
                os.close(handle)
        except OSError as error:
            log.debug("no reserve can be set aside: %s", error)
            self._reserve.unlink(missing_ok=True)
        else:
            self.full = False


def room(directory: Path) -> tuple[int, float]:
    """Return the bytes that are free on the disk of a directory, and below how many nothing is sent."""
    here, disk = config.current().storage, os.statvfs(directory)
    free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    return free, min(here.least_free_mb * _MB, whole * here.least_free_percent / 100)


_guard = _Guard()


def watch(directory: Path | str) -> None:
    """Guard this data directory from here on, and set its reserve aside."""
    _guard.directory = Path(directory)
    _guard.files = {_DATABASE: (_guard.directory / _DATABASE).stat()}
    _guard.look()


def look() -> None:
    """Measure the disk again; called once a second."""
    _guard.look()


def failed(error: BaseException) -> None:
    """Note that something could not be written; a full disk gets its reserve back."""
    cause = _cause(error)
    if cause is None:
        return
    _guard.failed = f"the database cannot be written: {cause}"
    if isinstance(cause, apsw.FullError | apsw.IOError):
        _guard.give_up()
    _guard.say()


def wrote() -> None:
    """Note that something was written."""
    if _guard.failed is not None:
        _guard.failed = None
        _guard.say()


def damaged(words: str | None) -> None:
    """Note that the database is damaged, and in what words; None once it is proved whole."""
    _guard.damaged = words


def damage() -> str | None:
    """Return what is known of damage in the database; None if nothing is."""
    return _guard.damaged


def must_be_whole() -> None:
    """Raise StorageError while the database counts as damaged."""
    if _guard.damaged is not None:
        raise StorageError(_guard.damaged)


def must_be_in_place() -> None:
    """Raise OSError where the database or its log was removed or replaced: what is committed now would be lost."""
    moved = _guard.find_moved()
    if moved is not None:
        _guard.moved = moved
        _guard.say()
        raise OSError(errno.ENOENT, moved)


def trouble() -> str | None:
    """Return why nothing is sent for now, in words for people; None when all is well."""
    return _guard.trouble


def unwritable() -> str | None:
    """Return why nothing can be written at this moment; None when it can, be it ever so little."""
    return _guard.trouble if _guard.full or _guard.failed or _guard.moved else None


def must_write() -> None:
    """Raise StorageError where it is known that nothing can be written: before a long request is taken for nothing."""
    known = unwritable()
    if known is not None:
        raise StorageError(known)


def is_full() -> bool:
    """Return whether only what has happened already may be written."""
    return _guard.full


# Notices damage of the database while it is used, whoever comes upon it, and says when it is proved whole again.

_CODES = (apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB)
_MAX_FAULTS = 3
# Once it was suspected it is looked through again, but not for more than a twentieth of the time
MIN_REST_SECONDS = 60.0
_REST_FACTOR = 20


class DamageWatch:
    """A thread that looks through the database once at the start, and whenever SQLite came upon damage in it.

    From the first sign of damage on the storage counts as damaged (`storage.damaged`), until all of it is proved whole.
    """

    def __init__(self) -> None:
        self._due, self._ending = threading.Event(), threading.Event()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="database check", daemon=True)

    def start(self) -> None:
        """Begin to listen, and look through the database beside everything else."""
        # SQLite reports each damaged page it meets here, also where nobody tells of the error
        apsw.config(apsw.SQLITE_CONFIG_LOG, self._heard)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, also in the middle of a look."""
        self._ending.set()
        self._due.set()
        while self._thread.is_alive():
            here = self._connection
            if here is not None:
                with contextlib.suppress(apsw.ConnectionClosedError):
                    here.interrupt()
            self._thread.join(0.05)

    def _heard(self, code: int, message: str) -> None:
        # Called inside of SQLite: it may not be asked anything here
        if code & 0xFF in _CODES:
            if damage() is None:
                damaged("the database is damaged: see campanero doctor")
            self._due.set()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self._ending.is_set():
            is_suspected = self._due.is_set()
            self._due.clear()
            begun = time.monotonic()
            faults = self._faults(is_suspected)
            if self._ending.is_set():
                return
            if faults or is_suspected:
                words = f"the database is damaged ({'; '.join(faults)}): see campanero doctor" if faults else None
                damaged(words)
                look()
                self._ending.wait(max(MIN_REST_SECONDS, _REST_FACTOR * (time.monotonic() - begun)))
            if faults:
                self._due.set()  # until it is proved whole
            self._due.wait()

    def _faults(self, is_suspected: bool) -> list[str]:
        """Look through all of the database, its indexes too if something is wrong somewhere."""
        try:
            self._connection = connection()
            look = sql.thorough_damage if is_suspected else sql.damage
            return look(_MAX_FAULTS)
        except apsw.InterruptError:
            return []
        except (apsw.Error, peewee.PeeweeException) as error:
            if is_damage(error):
                return [str(error)]
            log.warning("storage: database check failed: %s", error)
            return []
        finally:
            self._connection = None
            close_database()
