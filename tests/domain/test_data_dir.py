"""The lock of a data directory: the process that has it, according to the kernel."""

import os
from pathlib import Path

import pytest

from appliance.core import data_dir


@pytest.mark.parametrize(("device_offset", "recorded", "expected"), [(0, None, 41), (1, None, None), (1, 41, 41)])
def test_the_lock_of_another_device_is_not_ours(
    device_offset: int, recorded: int | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same inode on another device is another directory, unless that process recorded that it serves this one."""
    status = tmp_path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev) + device_offset:02x}"
    locks = tmp_path.parent / f"{tmp_path.name}-locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE 41 {device}:{status.st_ino} 0 EOF\n")
    monkeypatch.setattr(data_dir, "_PROC_LOCKS", locks)
    monkeypatch.setattr(data_dir, "_recorded_pid", lambda _: recorded)
    assert data_dir.find_service_pid(tmp_path) == expected
