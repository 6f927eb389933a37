"""The lock of a data directory: which process holds it, as the kernel says."""

import os
from pathlib import Path

import pytest

from appliance.core import data_dir


@pytest.mark.parametrize(("device_offset", "recorded", "expected"), [(0, None, 41), (1, None, None), (1, 41, 41)])
def test_the_holder_of_a_lock_is_the_one_on_the_same_device(
    device_offset: int, recorded: int | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inode of another device is another directory, unless the process itself recorded that it serves this one."""
    status = tmp_path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev) + device_offset:02x}"
    locks = tmp_path.parent / f"{tmp_path.name}-locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE 41 {device}:{status.st_ino} 0 EOF\n")
    monkeypatch.setattr(data_dir, "_PROC_LOCKS", locks)
    monkeypatch.setattr(data_dir, "_recorded_pid", lambda _: recorded)
    assert data_dir.find_service_pid(tmp_path) == expected
