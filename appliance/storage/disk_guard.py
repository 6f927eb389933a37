"""Detect storage that cannot be written, stop sending before the disk is full (P9), and check the database for damage.

A file `reserve` in the data directory occupies disk space. When the disk is full, the file is deleted and its space is
used only to record what has already happened (the outcomes of messages that were being sent). All other writes are
rejected until there is room for the file again. `DamageWatch` checks the database for damage while it is in use.
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
from appliance.storage import database
from appliance.storage.database import close_database, connection

log = logging.getLogger("campanero.storage")
_STORAGE_ERRORS = (
    apsw.FullError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError,
    apsw.CorruptError, apsw.NotADBError,
)  # fmt: skip
_DAMAGE_ERRORS = (apsw.CorruptError, apsw.NotADBError)
# EEXIST: a directory for files is a symbolic link to a disk that is not mounted.
_FILE_ERROR_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO, errno.EEXIST)
_MB_BYTES = 1_048_576
_DATABASE = "campanero.db"
_WAL = f"{_DATABASE}-wal"
_MOVED_MESSAGES = {
    _DATABASE: f"{_DATABASE} was removed or replaced while the service runs: put it back, or stop the service and "
    "restore a backup",
    _WAL: f"{_WAL} was removed or replaced while the service runs: put it back, or stop the service, which saves what "
    "was in it",
}
_MISSING_FILE = os.stat_result([0] * 10)
# With less free space even a commit that needs no new page may fail, so the disk counts as full.
_MIN_FREE_BYTES = _MB_BYTES


class StorageError(Unavailable):
    """The database cannot be written or is damaged, or the writer has ended; nothing was written."""


def to_storage_error(error: BaseException) -> StorageError | None:
    """Return a StorageError for an error whose cause is full, read-only, locked or damaged storage, else None."""
    cause = _find_cause(error)
    if cause is None:
        return None
    state = "is damaged" if isinstance(cause, _DAMAGE_ERRORS) else "cannot be written"
    return StorageError(f"the database {state}: {cause}")


def is_damage_error(error: BaseException) -> bool:
    """Return whether the cause of an error is a damaged database file."""
    return isinstance(_find_cause(error), _DAMAGE_ERRORS)


def _find_cause(error: BaseException) -> BaseException | None:
    cause: BaseException | None = error
    # An error that is raised again from a later one is its own cause
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, _STORAGE_ERRORS) or (isinstance(cause, OSError) and cause.errno in _FILE_ERROR_NUMBERS):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


class _Guard:
    """The state of the storage of this process; each text names a problem, and None means that there is none."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.is_full = False  # the reserve was deleted, and there is no room for a new one
        self.low: str | None = None  # free space is below the minimum for sending
        self.failed: str | None = None  # the last write failed
        self.damaged: str | None = None  # set until a full check of the database finds no damage
        # The status of the database and its write-ahead log when first seen. SQLite removes the log only when the last
        # connection is closed, so a missing log is an error.
        self.files: dict[str, os.stat_result] = {}
        self.moved: str | None = None  # one of `files` was removed or replaced
        self._lock = threading.RLock()
        self._logged_trouble: str | None = None

    @property
    def problem(self) -> str | None:
        """Return the problem that stops sending, or None."""
        return (
            self.moved
            or self.damaged
            or self.failed
            or ("the disk of the data directory is full" if self.is_full else self.low)
        )

    @property
    def _reserve(self) -> Path:
        assert self.directory is not None
        return self.directory / "reserve"

    def log_change(self) -> None:
        """Log `problem` if it has begun, changed or ended since the last call."""
        now = self.problem
        if now != self._logged_trouble:
            self._logged_trouble = now
            if now is None:
                log.warning("storage: recovered; sending resumed")
            else:
                log.error("storage: sending stopped: %s", now)

    def release_reserve(self) -> None:
        """Delete the reserve file; from now on the disk counts as full."""
        if self.directory is None:
            return
        with self._lock:
            self.is_full = True
            try:
                self._reserve.unlink(missing_ok=True)
            except OSError as error:
                # A disk may reject every change. The callers still get the error of their own write.
                log.debug("storage: reserve cannot be released: %s", error)

    def check_disk(self) -> None:
        """Update the state from the free space and the files on the disk, and delete or create the reserve file."""
        if self.directory is None:
            return
        # The lock covers both measuring and acting; otherwise an outdated measurement could create the reserve again
        # just after another thread has deleted it.
        with self._lock:
            self._measure(self.directory)
        self.log_change()

    def _measure(self, directory: Path) -> None:
        reserve = config.current().storage.reserve_mb * _MB_BYTES
        self.moved = self.find_moved()
        if self.moved is None:
            self.remember_wal()
        try:
            free, minimum = measure_free_space(directory)
        except OSError as error:
            self.failed = f"the data directory cannot be looked at: {error.strerror}"
            return
        self.low = (
            None
            if free >= minimum
            else f"less than {minimum / _MB_BYTES:.0f} MB are free on the disk of the data directory"
        )
        if free < _MIN_FREE_BYTES:
            self.release_reserve()
        elif free >= reserve + _MIN_FREE_BYTES or self._reserve.exists():
            self._create_reserve(reserve)

    def find_moved(self) -> str | None:
        """Return an error if the database or its write-ahead log was removed or replaced while in use, else None."""
        for name, opened in self.files.items():
            now = self._stat(name)
            if now is not None and not os.path.samestat(opened, now):
                return _MOVED_MESSAGES[name]
        return None

    def remember_wal(self) -> None:
        """Store the status of the write-ahead log once it exists."""
        if self.files and _WAL not in self.files:
            log_file = self._stat(_WAL)
            if log_file is not None and log_file.st_nlink:
                self.files[_WAL] = log_file

    def _stat(self, name: str) -> os.stat_result | None:
        """Return the status of a file; `_MISSING_FILE` if it is missing, None if the disk cannot be read now."""
        assert self.directory is not None
        try:
            return os.stat(f"{self.directory}/{name}")  # noqa: PTH116  for each commit, and twice as fast
        except FileNotFoundError:
            return _MISSING_FILE
        except OSError:
            return None  # The next write reports the error.

    def _create_reserve(self, size: int) -> None:
        if self._reserve.exists() and self._reserve.stat().st_size == size:
            self.is_full = False
            return
        try:
            handle = os.open(self._reserve, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
            try:
                if size:
                    os.posix_fallocate(handle, 0, size)
            finally:
                os.close(handle)
        except OSError as error:
            log.debug("storage: reserve cannot be created: %s", error)
            with contextlib.suppress(OSError):
                self._reserve.unlink(missing_ok=True)
        else:
            self.is_full = False


def measure_free_space(directory: Path) -> tuple[int, float]:
    """Return the free bytes on the disk of a directory, and the free bytes below which sending stops."""
    settings, disk = config.current().storage, os.statvfs(directory)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    return free, min(settings.least_free_mb * _MB_BYTES, total * settings.least_free_percent / 100)


_guard = _Guard()


def watch(directory: Path | str) -> None:
    """Watch a data directory from now on, and create its reserve file; the database must exist."""
    _guard.directory = Path(directory)
    _guard.files = {_DATABASE: (_guard.directory / _DATABASE).stat()}
    _guard.check_disk()


def measure() -> None:
    """Measure the disk and look for removed files again; called once a second, and after a check of the database."""
    _guard.check_disk()


def note_failure(error: BaseException) -> None:
    """Record a storage error; ignore any other error. On a full disk or an I/O error, delete the reserve file."""
    cause = _find_cause(error)
    if cause is None:
        return
    _guard.failed = f"the database cannot be written: {cause}"
    if isinstance(cause, apsw.FullError | apsw.IOError):
        _guard.release_reserve()
    _guard.log_change()


def note_success() -> None:
    """Record a successful write, which clears the error of an earlier failed write."""
    if _guard.failed is not None:
        _guard.failed = None
        _guard.log_change()


def set_damage(message: str | None) -> None:
    """Set the message about damage of the database, or None after a full check has found no damage."""
    _guard.damaged = message


def get_damage() -> str | None:
    """Return the message about damage of the database, or None."""
    return _guard.damaged


def require_undamaged() -> None:
    """Raise StorageError while there is a message about damage of the database."""
    if _guard.damaged is not None:
        raise StorageError(_guard.damaged)


def require_files_in_place() -> None:
    """Raise OSError if the database or its write-ahead log was removed or replaced, because a commit would be lost."""
    moved = _guard.find_moved()
    if moved is not None:
        _guard.moved = moved
        _guard.log_change()
        raise OSError(errno.ENOENT, moved)


def send_blocker() -> str | None:
    """Return the storage problem that stops sending, as a text for people, or None."""
    return _guard.problem


def write_blocker() -> str | None:
    """Return the storage problem that prevents writes, or None.

    Low disk space and damage do not prevent writes. If there is another problem too, the text may still name damage.
    """
    return _guard.problem if _guard.is_full or _guard.failed or _guard.moved else None


def require_writable() -> None:
    """Raise StorageError if the database cannot be written; call this before a long request is read."""
    blocker = write_blocker()
    if blocker is not None:
        raise StorageError(blocker)


def require_space() -> None:
    """Raise StorageError while the disk has no space for sending, or the database has a problem.

    Call this before a large file is stored, so that files leave the last space to the database.
    """
    blocker = send_blocker()
    if blocker is not None:
        raise StorageError(blocker)


def is_disk_full() -> bool:
    """Return whether the disk is full, so that only essential writes run (`transactions.submit_essential`)."""
    return _guard.is_full


# Checks of the database for damage while it is in use:

_DAMAGE_CODES = (apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB)
_MAX_FAULTS = 3
# While damage is suspected the check is repeated, after a pause of twenty times its duration.
MIN_REST_SECONDS = 60.0
_REST_FACTOR = 20


class DamageWatch:
    """A thread that checks the database for damage at its start, and whenever SQLite reports damage.

    From the first report or finding on, `get_damage` returns a message, until a full check finds no damage.
    """

    def __init__(self) -> None:
        self._check_due, self._stopping = threading.Event(), threading.Event()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="database check", daemon=True)

    def start(self) -> None:
        """Start the thread, and register the callback for SQLite's error log."""
        # SQLite logs each damaged page that it reads, even if other code handles the error.
        apsw.config(apsw.SQLITE_CONFIG_LOG, self._on_sqlite_log)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, interrupting a check that is running, and wait for its end."""
        self._stopping.set()
        self._check_due.set()
        while self._thread.is_alive():
            handle = self._connection
            if handle is not None:
                with contextlib.suppress(apsw.ConnectionClosedError):
                    handle.interrupt()
            self._thread.join(0.05)

    def _on_sqlite_log(self, code: int, message: str) -> None:
        # SQLite calls this function while it runs a statement, so no other statement may run here.
        if code & 0xFF in _DAMAGE_CODES:
            if get_damage() is None:
                set_damage("the database is damaged: see campanero doctor")
            self._check_due.set()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self._stopping.is_set():
            is_suspected = self._check_due.is_set()
            self._check_due.clear()
            started = time.monotonic()
            faults = self._find_faults(is_suspected)
            if self._stopping.is_set():
                return
            if faults or is_suspected:
                damage = f"the database is damaged ({'; '.join(faults)}): see campanero doctor" if faults else None
                set_damage(damage)
                measure()
                self._stopping.wait(max(MIN_REST_SECONDS, _REST_FACTOR * (time.monotonic() - started)))
            if faults:
                self._check_due.set()  # The check is repeated until it finds no damage.
            self._check_due.wait()

    def _find_faults(self, is_suspected: bool) -> list[str]:
        """Check the whole database, including its indexes if damage is suspected; return up to `_MAX_FAULTS` messages.

        Return an empty list if the check is interrupted, or fails for a reason other than damage.
        """
        try:
            self._connection = connection()
            check = database.integrity_check if is_suspected else database.quick_check
            return check(_MAX_FAULTS)
        except apsw.InterruptError:
            return []
        except (apsw.Error, peewee.PeeweeException) as error:
            if is_damage_error(error):
                return [str(error)]
            log.warning("storage: database check failed: %s", error)
            return []
        finally:
            self._connection = None
            close_database()
