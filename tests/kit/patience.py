"""What a test may say of time: how long is hanging, and whether a process is at rest.

How fast something is stands in the benches. A test only tells what takes a moment from what hangs: seconds of a quiet
machine get so much room here that a slow one, with other tests and browsers beside it, does not fail for being slow.
"""

import os
import time
from pathlib import Path

_ROOM = 10

# Pages are compiled five seconds after a start from the sources
_LATER_SECONDS = 6


def soon(seconds: float) -> float:
    """Return how long something may take here that takes at most `seconds` on a quiet machine."""
    return seconds * _ROOM


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def comes_to_rest(pid: int, timeout: float = 60, share: float = 0.2) -> bool:
    """Tell whether a process does next to nothing for two seconds on end, within `timeout` seconds.

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
