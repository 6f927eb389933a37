"""The files of a machine that follows another one, in the folder `standby` of its data directory.

`standby/source.json` names the replica that is followed, and the progress of a promotion. Each restore from the replica
has its own folder, `standby/1` and so on; the newest complete one counts. The service does not start in such a data
directory.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import apsw
import msgspec
from msgspec import Meta

from appliance.core import clock, data_dir, untrusted_json
from appliance.core.errors import Refused
from appliance.core.untrusted_json import InvalidJson
from appliance.ops.fencing.record import LeaseRecord

FOLDER, SOURCE_FILE, DATABASE, FILES = "standby", "source.json", "campanero.db", "files"
_MAX_SOURCE_BYTES = 64 << 20


class StandbyFailed(Refused):
    """Following or promoting is not possible; the message is the reason."""

    code = "not_done"


class Source(msgspec.Struct):
    """The replica that a machine follows; `lease` is the lease of the former machine, once a promotion has taken it."""

    source: Annotated[str, Meta(min_length=1)]
    lease: LeaseRecord | None = None
    is_promoting: bool = False  # the database may be changed already, so it must no longer follow
    paused_campaigns: list[tuple[int, str]] = []  # id and name of those that the promotion has paused
    paused_flows: list[tuple[int, str]] = []
    report: list[str] | None = None  # for the operator, once the copy is ready to become the database


def load_source(directory: Path) -> Source | None:
    """Return the source that a data directory follows, or None if it follows none. Raises StandbyFailed."""
    path = directory / FOLDER / SOURCE_FILE
    try:
        return untrusted_json.decode_file(path, Source, _MAX_SOURCE_BYTES)
    except FileNotFoundError:
        return None
    except InvalidJson as error:
        raise StandbyFailed(f"{path} is damaged: {error}") from None


def save_source(directory: Path, source: Source) -> None:
    """Write the source that a data directory follows to disk, atomically."""
    folder = directory / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    part = folder / f"{SOURCE_FILE}.part"
    with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        file.write(msgspec.json.encode(source))
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / SOURCE_FILE)
    data_dir.sync_to_disk(folder)


@contextmanager
def lock_promotion(directory: Path) -> Iterator[None]:
    """Lock the folder while the block runs, against a second promotion. Raises StandbyFailed if there is one.

    The folder itself is locked, as `data_dir.lock` locks the data directory, which `campanero follow` has locked until
    the promotion ends it.
    """
    descriptor = os.open(directory / FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StandbyFailed("another campanero promote is running: wait until it ends") from None
        yield
    finally:
        os.close(descriptor)


def list_restores(directory: Path) -> list[Path]:
    """Return the folders of restores, the oldest first."""
    folder = directory / FOLDER
    numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []
    return [folder / str(number) for number in numbers]


def is_complete(restore: Path) -> bool:
    """Return whether a restore has the whole database: only then it has the file with the last transaction."""
    return (restore / f"{DATABASE}-txid").exists()


def find_database(directory: Path) -> Path | None:
    """Return the newest complete copy of the database, or None."""
    complete = [restore for restore in list_restores(directory) if is_complete(restore)]
    return complete[-1] / DATABASE if complete else None


def read_transaction(database: Path) -> int:
    """Return the number of the last transaction that Litestream has applied to a copy, or 0."""
    try:
        return int(Path(f"{database}-txid").read_text().strip(), 16)
    except (OSError, ValueError):
        return 0


def read_heartbeat(database: Path) -> int | None:
    """Return when the followed machine last wrote its heartbeat, in ms by its own clock, or None if it is unknown.

    Others may write to the replica, so what is not a time counts as unknown.
    """
    try:
        handle = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            row = next(iter(handle.execute("SELECT updated_at FROM setting WHERE name = 'heartbeat'")), None)
            return row[0] if row is not None and isinstance(row[0], int) and 0 <= row[0] <= clock.MAX_TIME_MS else None
        finally:
            handle.close()
    except apsw.Error:
        return None  # Litestream is writing to it.


def remove_restores(restores: list[Path]) -> None:
    """Delete folders of restores."""
    for restore in restores:
        shutil.rmtree(restore, ignore_errors=True)


def remove_folder(directory: Path) -> None:
    """Delete the folder, the source last: until it is gone, the next promotion deletes the rest."""
    remove_restores(list_restores(directory))
    shutil.rmtree(directory / FOLDER / FILES, ignore_errors=True)
    (directory / FOLDER / SOURCE_FILE).unlink()
    shutil.rmtree(directory / FOLDER)


def require_no_database(directory: Path) -> None:
    """Raise StandbyFailed if a data directory has a database besides the copy, or the log of one.

    SQLite would apply the log of a former database to the promoted one.
    """
    for name in (DATABASE, f"{DATABASE}-wal"):
        if (directory / name).exists():
            raise StandbyFailed(f"{directory} has data of its own: move {name} away first")


def require_not_following(directory: Path) -> None:
    """Raise StandbyFailed if a data directory follows another machine, whose data the service must not change."""
    if load_source(directory) is not None:
        raise StandbyFailed(
            f"{directory} follows another machine: campanero promote makes it the one that sends, and campanero doctor "
            "says how far it is behind"
        )


def iterate_next_restore(directory: Path) -> Iterator[Path]:
    """Yield new folders for restores endlessly; each is created when it is requested."""
    while True:
        restores = list_restores(directory)
        number = int(restores[-1].name) + 1 if restores else 1
        restore = directory / FOLDER / str(number)
        restore.mkdir(mode=0o700)
        yield restore
