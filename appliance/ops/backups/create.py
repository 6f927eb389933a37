"""Creation of backups while the service runs: on request, by schedule, before an upgrade (docs/promises.md, P12)."""

import calendar
import fcntl
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import apsw

from appliance import VERSION
from appliance.core import clock, crypto, data_dir, executable, signals
from appliance.ops.backups import archive
from appliance.ops.backups.archive import DATABASE, FILE_DIRECTORIES, KEY, ArchiveWriter, Manifest, Readable
from appliance.settings import config, schema
from appliance.storage import journal, migrations
from appliance.storage.database import scalar
from appliance.storage.journal import JournalPosition

BACKUP_DIRECTORY = "backups"
# The schedule deletes only backups whose name matches this pattern.
_SCHEDULED_NAME = re.compile(r"campanero-(\d{8}T\d{6}Z)\.tar\.gz")
_BACKUP_NAME = re.compile(r"[^.].*\.tar\.gz")
_TIMESTAMP_FORMAT = "%Y%m%dT%H%M%SZ"


class BackupFile(NamedTuple):
    """A backup in the backup directory."""

    path: Path
    created_at: int  # milliseconds since 1970
    size: int  # in bytes
    is_scheduled: bool  # created by the service, on schedule or on request, which also deletes it


def format_timestamp(moment: int) -> str:
    """Return a time in milliseconds as text for a file name, in UTC: `20261124T093000Z`."""
    return time.strftime(_TIMESTAMP_FORMAT, time.gmtime(moment / 1000))


def scheduled_name(moment: int) -> str:
    """Return the file name of a backup that the service starts, on schedule or on request, at a time in ms."""
    return f"campanero-{format_timestamp(moment)}.tar.gz"


def list_backups(directory: Path) -> list[BackupFile]:
    """Return the backups in the folder `backups` of a data directory, newest first."""
    backups = []
    for path in (directory / BACKUP_DIRECTORY).glob("*.tar.gz"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # The file was deleted after the directory was listed.
        if _BACKUP_NAME.fullmatch(path.name) and stat.S_ISREG(status.st_mode):
            match = _SCHEDULED_NAME.fullmatch(path.name)
            moment = calendar.timegm(time.strptime(match[1], _TIMESTAMP_FORMAT)) if match else status.st_mtime
            backups.append(BackupFile(path, int(moment * 1000), status.st_size, match is not None))
    return sorted(backups, key=lambda backup: (backup.created_at, backup.path.name), reverse=True)


# The interval for `prune_backups` if no backups are made automatically: a day.
_DEFAULT_INTERVAL_SECONDS = 86_400


def prune_backups(directory: Path, settings: schema.Backup) -> int:
    """Delete surplus scheduled backups, and return how many were deleted.

    The newest backup is not deleted, nor is the first backup of each of the last `settings.keep` intervals that have
    one. So backups on request do not replace those of earlier days, however many there are.
    """
    interval_ms = (config.parse_seconds(settings.every) or _DEFAULT_INTERVAL_SECONDS) * 1000
    backups = [backup for backup in list_backups(directory) if backup.is_scheduled]
    first_by_interval = {backup.created_at // interval_ms: backup for backup in backups}  # the newest come first
    backups_to_keep = {*backups[:1], *list(first_by_interval.values())[: settings.keep]}
    surplus = [backup for backup in backups if backup not in backups_to_keep]
    for backup in surplus:
        backup.path.unlink(missing_ok=True)
    return len(surplus)


_PAGES_PER_STEP = 2_000
_BUSY_TIMEOUT_MS = 10_000
# Bytes 18 and 19 of the header are the write version and the read version of the file format. Both are 1 in a database
# that uses no write-ahead log (sqlite.org/fileformat.html, section 1.3).
_VERSIONS_WITHOUT_WAL, _VERSIONS_OFFSET = b"\x01\x01", 18
# The maximum size of the compressed database relative to the database, as images in it may not compress at all.
_MAX_PACKED_RATIO = 1.05

ProgressCallback = Callable[[str, float], None]


class BackupFailed(Exception):
    """The backup could not be created."""


class UnusableSource(BackupFailed):
    """The database to back up cannot be read, is damaged or empty, or does not belong to the loaded key."""


def create_backup(
    directory: Path, target: Path, with_key: bool = False, report_progress: ProgressCallback = lambda words, part: None
) -> Manifest:
    """Back up a data directory into the new file `target`, and return the backup's manifest. The key must be loaded.

    With `with_key`, the backup includes the secret key. The service may write meanwhile: the backup contains the
    database as it was at one moment. `report_progress` gets the name of the current step and its progress from 0 to 1.
    Raises BackupFailed (UnusableSource for a damaged database) or OSError; then no file is left.
    """
    source = directory / DATABASE
    if not os.path.lexists(source):
        raise BackupFailed(f"{source} does not exist")
    if os.path.lexists(target):
        raise BackupFailed(f"{target} already exists: backups never overwrite files")
    if not target.parent.is_dir():
        raise BackupFailed(f"{target.parent} is not a directory")
    if wrong_kinds := data_dir.find_wrong_kinds(directory):
        raise BackupFailed(wrong_kinds[0])
    require_usable_database(source)
    require_space(source, target.parent)
    try:
        with data_dir.create_file(target) as file:
            mark, taken_at = find_journal_end(directory, source), clock.now_ms()
            with copy_database(source, target.parent, report_progress) as copy:
                manifest = Manifest(
                    archive.FORMAT, VERSION, copy.schema, taken_at, crypto.key_fingerprint(), with_key, mark
                )  # fmt: skip
                with archive.open_writer(file, manifest) as writer:
                    _pack_files(writer, directory, copy.file, with_key, report_progress)
    except apsw.Error as error:
        raise UnusableSource(f"the database cannot be read: {error}") from error
    except FileExistsError:
        raise BackupFailed(f"{target} already exists: backups never overwrite files") from None
    return manifest


def find_journal_end(directory: Path, source: Path) -> JournalPosition | None:
    """Return the end of the journal. A database copy that begins later contains the writes of all lines before it.

    A line is written just before its commit, so this waits for the end of the running write transaction. Otherwise the
    line of an opt-out could be before the returned position although the backup does not contain the opt-out. Returns
    None without a journal. Raises BackupFailed if the journal has an unknown format.
    """
    try:
        end = journal.find_end(directory / journal.JOURNAL_FILE)
    except journal.UnusableJournal as error:
        raise BackupFailed(str(error)) from None
    with _open_connection(source) as connection:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    return end


def require_space(source: Path, directory: Path) -> None:
    """Raise BackupFailed if `directory` has no space for a copy of the database and a backup of all data."""
    disk, size = os.statvfs(directory), source.stat().st_size
    files = sum(size for _, size in list_files(source.parent))
    free, needed = disk.f_bavail * disk.f_frsize, int(size * (1 + _MAX_PACKED_RATIO) + files * _MAX_PACKED_RATIO)
    if free < needed:
        raise BackupFailed(f"{directory} has {free / 1e6:.0f} MB free, but a backup may need {needed / 1e6:.0f} MB")


def require_usable_database(source: Path) -> None:
    """Raise UnusableSource if the database is unreadable, empty, of another program, or of another `secret.key`."""
    try:
        facts = migrations.inspect_database(source)
    except migrations.UnusableDatabase as error:
        raise UnusableSource(str(error)) from None
    if facts.schema == 0:
        raise UnusableSource(f"{source} is empty")
    if facts.key_fingerprint not in (None, crypto.key_fingerprint()):
        raise UnusableSource(f"the {KEY} in {source.parent} belongs to another installation: restore the right one")


class DatabaseCopy(NamedTuple):
    """A verified copy of a database: an open, unlinked file, its schema version, and a connection to it."""

    file: BinaryIO
    schema: int
    connection: apsw.Connection


@contextmanager
def copy_database(source: Path, directory: Path, report_progress: ProgressCallback) -> Iterator[DatabaseCopy]:
    """Yield a verified copy of a database.

    Writers are not blocked during the copy. The file is created in `directory` and unlinked at once, so it disappears
    with the process. Raises UnusableSource if the database is damaged.
    """
    # In a shared directory, other users could create a file with a predictable name first.
    name = f"{os.getpid()}-{secrets.token_hex(4)}-{DATABASE}"
    path = directory / f"{data_dir.PART_PREFIX}{name}{data_dir.PART_SUFFIX}"
    with ExitStack() as stack:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        file = stack.enter_context(os.fdopen(descriptor, "w+b"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # SQLite opens a file by its name, so both connections are opened before the file is unlinked.
            copy, checking = stack.enter_context(_open_connection(path)), stack.enter_context(_open_connection(path))
        finally:
            path.unlink()
        # A rollback journal would be created under the name of the unlinked file.
        copy.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        original = stack.enter_context(_open_connection(source))
        # The read transaction fixes the state that is copied. Without it, SQLite would restart the copy after each
        # write.
        original.execute("BEGIN")
        schema = int(original.execute("SELECT user_version FROM pragma_user_version, sqlite_schema LIMIT 1").get)
        with copy.backup("main", original, "main") as copying:
            while not copying.done:
                copying.step(_PAGES_PER_STEP)
                report_progress("copying the database", 1 - copying.remaining / max(1, copying.page_count))
        original.execute("ROLLBACK")
        copy.close()
        os.pwrite(descriptor, _VERSIONS_WITHOUT_WAL, _VERSIONS_OFFSET)
        report_progress("checking the copy", 0)
        damage = checking.execute("PRAGMA quick_check(3)").fetchall()
        if damage != [("ok",)]:
            raise UnusableSource(f"the database is damaged: {'; '.join(str(row[0]) for row in damage)}")
        yield DatabaseCopy(file, schema, checking)


@contextmanager
def _open_connection(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        yield connection
    finally:
        connection.close()


def _pack_files(
    writer: ArchiveWriter, directory: Path, copy: BinaryIO, with_key: bool, report_progress: ProgressCallback
) -> None:
    size = os.fstat(copy.fileno()).st_size
    writer.add(DATABASE, _ProgressReader(copy, size, report_progress), size)
    paths = [directory / journal.JOURNAL_FILE, *([directory / KEY] if with_key else [])]
    for path in [*paths, *(path for path, _ in list_files(directory))]:
        name = path.relative_to(directory).as_posix()
        if not archive.is_member_name(name):
            continue  # A restore would reject a backup that contains a file of this name.
        try:
            with path.open("rb") as file:
                writer.add(name, file, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            continue  # The service deleted the file and the rows that refer to it after the directory was listed.


def list_files(directory: Path) -> list[tuple[Path, int]]:
    """Return (path, size in bytes) of the files of a data directory in `FILE_DIRECTORIES`."""
    files = []
    for path in (path for folder in FILE_DIRECTORIES for path in sorted((directory / folder).rglob("*"))):
        with suppress(FileNotFoundError):  # The service deleted it after the directory was listed.
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                files.append((path, status.st_size))
    return files


class _ProgressReader:
    def __init__(self, file: Readable, size: int, report_progress: ProgressCallback) -> None:
        self._file, self._size, self._read = file, size, 0
        self._report_progress = report_progress

    def read(self, size: int, /) -> bytes:
        content = self._file.read(size)
        self._read += len(content)
        self._report_progress("packing", self._read / max(1, self._size))
        return content


# A scheduled backup is created by a child process, the command `backup`, which lowers its own priority.

log = logging.getLogger("campanero.backups")
# A failed scheduled backup is retried after this time.
_RETRY_AFTER_MS = 3600 * 1000


class ScheduleState(NamedTuple):
    """Whether a backup is requested or running, and how the last one ended."""

    is_running: bool
    failure: str  # the error of the last finished backup, empty if it succeeded or there was none


class _Schedule:
    """The part of the schedule's state that is only in memory. The existing backups are read from their folder.

    `not_before` is the earliest time of the next attempt after a failure. `latest` is the result of `_find_latest`, or
    None until `is_due` needs it. Both are in milliseconds.
    """

    def __init__(self) -> None:
        self.is_requested = self.is_running = False
        self.failure = ""
        self.not_before = 0
        self.latest: int | None = None


_schedule = _Schedule()
_run_lock = threading.Lock()


def get_schedule_state() -> ScheduleState:
    """Return whether a backup is requested or running, and the error of the last backup."""
    return ScheduleState(_schedule.is_running or _schedule.is_requested, _schedule.failure)


def request_backup() -> None:
    """Request a backup now, independent of the schedule; wake the background job that creates it."""
    _schedule.is_requested = True
    signals.wake("backups")


def is_due() -> bool:
    """Return whether a backup is requested, or the interval of the setting `backup.every` has passed.

    The interval begins at the last scheduled backup, or, without a scheduled backup, at the creation of the first
    account.
    """
    if _schedule.is_requested:
        return True
    every = config.parse_seconds(config.current().backup.every) * 1000
    now = clock.now_ms()
    if not every or now < _schedule.not_before:
        return False
    if _schedule.latest is None:
        _schedule.latest = _find_latest()
    return _schedule.latest is not None and now - _schedule.latest >= every


def _find_latest() -> int | None:
    """Return the time in ms of the last scheduled backup, or else of the first account; None if there is neither."""
    scheduled = [backup.created_at for backup in list_backups(_get_data_directory()) if backup.is_scheduled]
    latest = scheduled[0] if scheduled else scalar("SELECT min(created_at) FROM account")
    return int(latest) if latest is not None else None


def _get_data_directory() -> Path:
    return Path(config.current().data_dir)


def run_scheduled_backup(is_stopping: threading.Event) -> None:
    """Create a backup if one is due, and delete surplus ones (`prune_backups`). Errors are logged.

    Returns at once if another thread is creating a backup. Setting `is_stopping` terminates a running backup.
    """
    if not _run_lock.acquire(blocking=False):
        return
    try:
        if is_due():
            _schedule.is_requested, _schedule.is_running = False, True
            _run_backup(_get_data_directory(), is_stopping)
    finally:
        _schedule.is_running = False
        _run_lock.release()


def _run_backup(directory: Path, is_stopping: threading.Event) -> None:
    now = clock.now_ms()
    target = directory / BACKUP_DIRECTORY / scheduled_name(now)
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        code, error_text = 1, f"{error.strerror}: {error.filename}"
    else:
        code, error_text = executable.run_until_stopped(
            "backup", str(target), "--data", str(directory), is_stopping=is_stopping
        )
    if is_stopping.is_set():
        return
    if code == 0:
        _schedule.failure, _schedule.latest = "", now
        deleted = prune_backups(directory, config.current().backup)
        log.info("backups: created file=%s deleted=%s", target, deleted)
    else:
        _schedule.failure, _schedule.not_before = (
            error_text.removeprefix("campanero: ") or f"exit code {code}",
            now + _RETRY_AFTER_MS,
        )
        log.error("backups: failed error=%s", _schedule.failure)


class UpgradeFailed(Exception):
    """The database was not upgraded, because the backup that comes before an upgrade failed."""


def upgrade_database(directory: Path, report: Callable[[str], None]) -> int:
    """Migrate the open database, after a backup if its schema is older, and return the number of applied migrations.

    If an earlier start was killed after the backup and nothing was written since, that backup is reused. `report` gets
    a message before a backup. Raises SchemaTooNew, or UpgradeFailed if the backup fails.
    """
    current, target_schema = migrations.schema_version(), len(migrations.MIGRATIONS)
    if 0 < current < target_schema:
        target = directory / BACKUP_DIRECTORY / f"before-schema-{target_schema}.tar.gz"
        if not _is_up_to_date(directory, target):
            report(
                f"the database has schema {current}, this program {target_schema}: creating the backup {target} first"
            )
            _back_up_before_upgrade(directory, target)
    return migrations.migrate()


def _is_up_to_date(directory: Path, target: Path) -> bool:
    """Return whether the backup `target` exists and is newer than the last write to the database."""
    if not target.exists():
        return False
    files = [directory / f"campanero.db{end}" for end in ("", "-wal")]
    return all(target.stat().st_mtime > path.stat().st_mtime for path in files if path.exists())


def _back_up_before_upgrade(directory: Path, target: Path) -> None:

    target.parent.mkdir(mode=0o700, exist_ok=True)
    new_file = target.with_name(f"{target.name}.new")
    new_file.unlink(missing_ok=True)
    try:
        create_backup(directory, new_file)
    except BackupFailed as error:
        raise UpgradeFailed(f"the database was not upgraded because the backup failed: {error}") from None
    new_file.replace(target)
