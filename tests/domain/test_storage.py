"""Which errors count as storage errors, and the reserve file of the disk guard."""

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


def wrap(error: Exception) -> Exception:
    """Return a RuntimeError that the given error caused."""
    try:
        try:
            raise error
        except type(error) as cause:
            raise RuntimeError("above") from cause
    except RuntimeError as wrapped:
        return wrapped


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        apsw.FullError("full"), apsw.ReadOnlyError("read-only"), apsw.BusyError("locked"), apsw.IOError("broken"),
        apsw.CantOpenError("gone"), apsw.CorruptError("malformed"), apsw.NotADBError("something else"),
        OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "read-only"), OSError(errno.EDQUOT, "quota"),
    ],
)  # fmt: skip
def test_storage_errors_become_unavailable(error: Exception, is_wrapped: bool) -> None:
    """Errors of a full, read-only, locked, missing or corrupt disk or database, also as the cause of another error."""
    result = to_storage_error(wrap(error) if is_wrapped else error)

    assert isinstance(result, Unavailable) and result.code == "storage_unavailable" and result.retry_after > 0


@pytest.mark.parametrize(
    "error", [apsw.ConstraintError("not unique"), apsw.SQLError("typo"), OSError(errno.ENOENT, "gone"), ValueError("x")]
)
def test_other_errors_are_not_storage_errors(error: Exception) -> None:
    """The result is None."""
    assert to_storage_error(error) is None


def test_a_reserve_deleted_during_a_check_is_not_created_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write error that deletes the reserve file while the disk is being measured is not undone by the result."""
    monkeypatch.setattr(disk_guard, "_guard", disk_guard._Guard())
    disk_guard.watch(home.directory)
    assert (home.directory / "reserve").exists()
    failure = threading.Thread(target=disk_guard.note_failure, args=(apsw.FullError("full"),))
    real_statvfs = os.statvfs

    def fail_meanwhile(path: Path) -> os.statvfs_result:
        result = real_statvfs(path)
        failure.start()
        failure.join(0.3)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", fail_meanwhile)
        disk_guard.measure()
        failure.join()
    assert disk_guard.is_disk_full() and not (home.directory / "reserve").exists()


def test_errors_that_cause_each_other_are_no_storage_error() -> None:
    """The search for the cause ends for a chain of errors that leads back to its beginning."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert to_storage_error(first) is None
