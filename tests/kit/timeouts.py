"""Timeouts of tests, and whether a process is idle.

Benchmarks measure speed. A test only distinguishes slow from hanging, so timeouts are long enough for a slow machine
that runs other tests and browsers at the same time.
"""

import atexit
import os
import time
from pathlib import Path

_SLOW_MACHINE_FACTOR = 10

# Housekeeping runs for the first time a few seconds after a start
_START_UP_SECONDS = 6


def extend_timeout(seconds: float) -> float:
    """Return the timeout for an operation that takes at most `seconds` on a quiet machine."""
    return seconds * _SLOW_MACHINE_FACTOR


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds that a process has used, including its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def becomes_idle(pid: int, timeout: float = 60, share: float = 0.2) -> bool:
    """Return whether a process becomes idle for two seconds, within `timeout` seconds.

    Idle means less than `share` of one processor. A busy loop takes all of one.
    """
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        used, started_at = cpu_seconds(pid), time.monotonic()
        time.sleep(2)
        if cpu_seconds(pid) - used < share * (time.monotonic() - started_at):
            return True
    return False


def wait_until_idle(pid: int, timeout: float = 60) -> None:
    """Wait until a service has finished the deferred work of its start, so that it is not measured.

    Raises AssertionError if the service does not become idle within `timeout` seconds.
    """
    time.sleep(_START_UP_SECONDS)
    assert becomes_idle(pid, timeout, share=0.05), (
        "it works though nobody asks for anything: nothing can be measured beside that"
    )


def report_stolen_cpu_at_exit() -> None:
    """Print at the end of a benchmark how much requested processor time the host gave to other machines.

    From 10 % on, the figures describe the host rather than the program.
    """
    ticks_at_start = _ticks()

    def report() -> None:
        used, stolen = (now - then for now, then in zip(_ticks(), ticks_at_start, strict=True))
        print(f"the host of this machine took {stolen / max(1, used + stolen):.0%} of the processor time asked for")

    atexit.register(report)


def _ticks() -> tuple[int, int]:
    """Return the ticks that all processors worked since boot, and the ticks that the host gave to other machines."""
    user, nice, system, _, _, irq, soft, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + soft, stolen
