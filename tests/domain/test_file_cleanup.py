"""Cleanup of files: tolerates files that are in use or disappear meanwhile."""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

from appliance.core import data_dir
from appliance.imports import job, store
from appliance.ops.backups import create as backups
from appliance.ops.doctor import checks
from tests.domain.home import Home

FILES = 300


def run_during(repeat: Callable[[], object], action: Callable[[], None]) -> None:
    """Call `looks` repeatedly while `moves` runs, and fail if it raises OSError."""
    done, errors = threading.Event(), []

    def run_repeatedly() -> None:
        while not done.is_set():
            try:
                repeat()
            except OSError as error:
                errors.append(error)
                return

    thread = threading.Thread(target=run_repeatedly)
    thread.start()
    try:
        action()
    finally:
        done.set()
        thread.join()
    assert not errors, errors


def create_and_delete_files(directory: Path, name: Callable[[int], str]) -> None:
    """Create and delete many files, five times."""
    for _ in range(5):
        paths = [directory / name(number) for number in range(FILES)]
        for path in paths:
            path.touch(mode=0o600)
        for path in paths:
            path.unlink()


def test_cleanup_tolerates_files_that_disappear(home: Home) -> None:
    """The cleanup of imports raises no error while files are created and deleted."""
    directory = store.import_directory()
    run_during(
        job.delete_expired_files, lambda: create_and_delete_files(directory, lambda number: f"incoming-{number}")
    )


def test_unused_import_files_are_deleted(home: Home) -> None:
    """A file without an import is deleted after an hour."""
    old_file, new_file = store.import_directory() / "incoming-old", store.import_directory() / "incoming-young"
    for path in (old_file, new_file):
        path.touch()
    os.utime(old_file, (0, 0))
    job.delete_expired_files()
    assert (old_file.exists(), new_file.exists()) == (False, True)


def test_listings_tolerate_files_that_disappear(home: Home) -> None:
    """Listing backups and checking the data directory raise no error while files are created and deleted."""
    directory = home.directory / backups.BACKUP_DIRECTORY
    directory.mkdir()
    run_during(
        lambda: backups.list_backups(home.directory),
        lambda: create_and_delete_files(directory, lambda number: f"{number}.tar.gz"),
    )
    run_during(
        lambda: list(checks.check_data_directory(home.directory)),
        lambda: create_and_delete_files(home.directory, str),
    )


def test_abandoned_partial_files_are_deleted(home: Home) -> None:
    """Creating a file deletes partial files of dead processes, but not locked ones or other files."""
    directory = home.directory / backups.BACKUP_DIRECTORY
    directory.mkdir()
    abandoned, locked, other = (
        directory / name for name in (".campanero-1-a.part", ".campanero-2-b.part", ".film.part")
    )
    for path in (abandoned, locked, other):
        path.touch()
    with locked.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with data_dir.create_file(directory / "one") as file:
            file.write(b"whole")
            assert sorted(directory.iterdir()) == sorted([locked, other])
    assert sorted(directory.iterdir()) == sorted([locked, other, directory / "one"])
    assert (directory / "one").read_bytes() == b"whole"
