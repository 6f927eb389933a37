"""What a test may say of time: how long is hanging, and whether a process is at rest.

How fast something is stands in the benches. A test only tells what takes a moment from what hangs: seconds of a quiet
machine get so much room here that a slow one, with other tests and browsers beside it, does not fail for being slow.
"""

import atexit
import os
import time
from pathlib import Path

_ROOM = 10

# What housekeeping does first, a few seconds after a start
_LATER_SECONDS = 6


def soon(seconds: float) -> float:
    """Return how long something may take here that takes at most `seconds` on a quiet machine."""
    return seconds * _ROOM


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def comes_to_rest(pid: int, timeout: float = 60, share: float = 0.2) -> bool:
    """Return whether a process does next to nothing for two seconds on end, within `timeout` seconds.

    Next to nothing is a `share` of what one processor can, a fifth of it: whoever asks again and again without pause
    takes all of it.
    """
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        used, begun = cpu_seconds(pid), time.monotonic()
        time.sleep(2)
        if cpu_seconds(pid) - used < share * (time.monotonic() - begun):
            return True
    return False


def settled(pid: int) -> None:
    """Wait until a service has done what its start leaves for later, so that a measurement is of nothing else.

    Raises AssertionError for one that goes on working.
    """
    time.sleep(_LATER_SECONDS)
    assert comes_to_rest(pid, share=0.05), (
        "it works though nobody asks for anything: nothing can be measured beside that"
    )


def tell_what_the_host_takes() -> None:
    """At the end of a bench print how much of the processor time asked for the host of this machine gave to others.

    From a tenth on its figures tell of the host: what waits for a processor then waits for one that is not there.
    """
    at_first = _ticks()

    def tell() -> None:
        used, stolen = (now - then for now, then in zip(_ticks(), at_first, strict=True))
        print(f"the host of this machine took {stolen / max(1, used + stolen):.0%} of the processor time asked for")

    atexit.register(tell)


def _ticks() -> tuple[int, int]:
    """Return the ticks that all processors worked since this machine began, and those that its host kept from it."""
    user, nice, system, _, _, irq, soft, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + soft, stolen
