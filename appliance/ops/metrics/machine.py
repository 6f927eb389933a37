"""What the process takes of the machine, and how much room there is: a few looks at files, no database."""

import os
import platform
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from appliance import VERSION
from appliance.core import data_dir
from appliance.core.counters import Family, gauge
from appliance.settings import config
from appliance.storage import disk_guard

_begun = 0.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATUS, _FILES = Path("/proc/self/statm"), Path("/proc/self/fd")


def begin() -> None:
    """Note that the service begins now."""
    global _begun
    _begun = time.time()


def families() -> Iterator[Family]:
    """Yield version, process and storage."""
    said = {"version": VERSION, "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    yield gauge("build_info", "1, with the versions of what runs as labels.", [(said, 1)])
    yield gauge("process_start_time_seconds", "When the service began, in seconds since 1970.", [({}, _begun)])
    yield from _process()
    yield from _storage()


def _process() -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = gauge("process_cpu_seconds_total", "Processor time of this process.", [({}, used.ru_utime + used.ru_stime)])
    yield cpu._replace(kind="counter")
    yield gauge("process_resident_memory_bytes", "Memory of this process.", [({}, _memory(used.ru_maxrss))])
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield gauge("process_max_fds", "File handles that this process may have.", [({}, most)])
    if _FILES.is_dir():
        yield gauge("process_open_fds", "File handles that this process has.", [({}, sum(1 for _ in _FILES.iterdir()))])


def _memory(most: int) -> int:
    """Return the memory of this process in bytes; where the system does not tell, the most it ever had."""
    try:
        return int(_STATUS.read_text().split()[1]) * _PAGE
    except OSError:
        return most * 1024


def sizes(directory: Path) -> tuple[int, int]:
    """Return the bytes of the database and of its write-ahead log."""
    found = []
    for name in ("campanero.db", "campanero.db-wal"):
        try:
            found.append((directory / name).stat().st_size)
        except OSError:
            found.append(0)
    return found[0], found[1]


def _storage() -> Iterator[Family]:
    directory = Path(config.current().data_dir)
    base, log = sizes(directory)
    yield gauge("database_bytes", "Size of the database file.", [({}, base)])
    yield gauge("database_wal_bytes", "Size of the database's write-ahead log.", [({}, log)])
    try:
        free, least = disk_guard.room(directory)
    except OSError:
        free, least = 0, 0.0
    yield gauge("disk_free_bytes", "Room on the disk of the data directory.", [({}, free)])
    yield gauge("disk_least_free_bytes", "Nothing is sent with less room than this.", [({}, least)])
    yield gauge("storage_trouble", "1 while nothing is sent because nothing can be kept, else 0.",
                [({}, int(disk_guard.trouble() is not None))])  # fmt: skip
    yield gauge("stop_file", "1 while a file STOP in the data directory stops all sending, else 0.",
                [({}, int(data_dir.is_stopped(directory)))])  # fmt: skip
