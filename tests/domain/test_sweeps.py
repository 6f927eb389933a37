"""What sweeps find may be in use, or be gone between the reading of its name and the look at it."""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

from appliance.core import data_dir
from appliance.imports import job, store
from appliance.ops.backups import create
from appliance.ops.doctor import installation
from tests.domain.home import Home

FILES = 300


def meanwhile(looks: Callable[[], object], moves: Callable[[], None]) -> None:
    """Look again and again for as long as things move; what looking raises is raised here."""
    done, faults = threading.Event(), []

    def look() -> None:
        while not done.is_set():
            try:
                looks()
            except OSError as fault:
                faults.append(fault)
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        moves()
    finally:
        done.set()
        looking.join()
    assert not faults, faults


def come_and_go(directory: Path, name: Callable[[int], str]) -> None:
    """Let files be there for a moment, many at once, a few times over."""
    for _ in range(5):
        made = [directory / name(number) for number in range(FILES)]
        for path in made:
            path.touch(mode=0o600)
        for path in made:
            path.unlink()


def test_a_file_that_becomes_an_import_is_no_fault(home: Home) -> None:
    """Requests take what they brought away while the sweep of imports looks for what nobody needs."""
    directory = store.import_directory()
    meanwhile(job.delete_expired_files, lambda: come_and_go(directory, lambda number: f"incoming-{number}"))


def test_what_nobody_needs_any_more_goes(home: Home) -> None:
    """A file of which no import came goes after an hour, not before."""
    old, young = store.import_directory() / "incoming-old", store.import_directory() / "incoming-young"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    job.delete_expired_files()
    assert (old.exists(), young.exists()) == (False, True)


def test_backups_that_are_deleted_meanwhile_are_not_listed(home: Home) -> None:
    """Somebody deletes backups while a page lists them; the doctor looks where files come and go."""
    directory = home.directory / create.BACKUP_DIRECTORY
    directory.mkdir()
    meanwhile(
        lambda: create.list_backups(home.directory), lambda: come_and_go(directory, lambda number: f"{number}.tar.gz")
    )
    meanwhile(lambda: list(installation.check_data_directory(home.directory)), lambda: come_and_go(home.directory, str))


def test_an_unfinished_file_that_a_kill_left_is_removed_by_the_next(home: Home) -> None:
    """What somebody still writes in the same directory stays, and so does whatever is called otherwise."""
    directory = home.directory / create.BACKUP_DIRECTORY
    directory.mkdir()
    dead, alive, other = (directory / name for name in (".campanero-1-a.part", ".campanero-2-b.part", ".film.part"))
    for path in (dead, alive, other):
        path.touch()
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with data_dir.create_file(directory / "one") as file:
            file.write(b"whole")
            assert sorted(directory.iterdir()) == sorted([alive, other])
    assert sorted(directory.iterdir()) == sorted([alive, other, directory / "one"])
    assert (directory / "one").read_bytes() == b"whole"
