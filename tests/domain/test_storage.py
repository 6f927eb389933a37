"""What counts as trouble with the storage, and what does not."""

import errno
import os
import threading
from pathlib import Path

import apsw
import pytest

from appliance.core.errors import Unavailable
from appliance.storage import disk_guard
from appliance.storage.disk_guard import to_storage_error
from tests.domain.home import Home


def caused(error: Exception) -> Exception:
    """Return an error of a library above, which the given one caused."""
    try:
        try:
            raise error
        except type(error) as cause:
            raise RuntimeError("above") from cause
    except RuntimeError as above:
        return above


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        apsw.FullError("full"), apsw.ReadOnlyError("read-only"), apsw.BusyError("locked"), apsw.IOError("broken"),
        apsw.CantOpenError("gone"), apsw.CorruptError("malformed"), apsw.NotADBError("something else"),
        OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "read-only"), OSError(errno.EDQUOT, "quota"),
    ],
)  # fmt: skip
def test_trouble_with_the_storage_is_nobodys_fault(error: Exception, wrapped: bool) -> None:
    """A disk or database that is full, read-only, locked, gone or broken is a 503, however deep the cause lies."""
    found = to_storage_error(caused(error) if wrapped else error)

    assert isinstance(found, Unavailable) and found.code == "storage_unavailable" and found.retry_after > 0


@pytest.mark.parametrize(
    "error", [apsw.ConstraintError("not unique"), apsw.SQLError("typo"), OSError(errno.ENOENT, "gone"), ValueError("x")]
)
def test_other_errors_are_not_hidden(error: Exception) -> None:
    """A bug stays a bug."""
    assert to_storage_error(error) is None


def test_what_is_given_up_meanwhile_stays_given_up(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the disk and what follows from it, a full disk takes the reserve: it is not made again."""
    monkeypatch.setattr(disk_guard, "_guard", disk_guard._Guard())
    disk_guard.watch(home.directory)
    assert (home.directory / "reserve").exists()
    gives_up = threading.Thread(target=disk_guard.note_failure, args=(apsw.FullError("full"),))
    measure = os.statvfs

    def measured(path: Path) -> os.statvfs_result:
        found = measure(path)
        gives_up.start()
        gives_up.join(0.3)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", measured)
        disk_guard.measure()
        gives_up.join()
    assert disk_guard.is_disk_full() and not (home.directory / "reserve").exists()
