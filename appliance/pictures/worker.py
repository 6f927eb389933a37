"""The child process that decodes pictures: one at a time, within a memory limit, until the service closes the socket.

It is the only place where a file of somebody else meets a decoder. `process` is the side of the service.
"""

import contextlib
import logging
import resource
import signal
import socket
import traceback
import warnings
from pathlib import Path
from typing import Any

import msgspec

from appliance.pictures import tasks
from appliance.pictures.dominant import dominant
from appliance.pictures.kinds import Unusable
from appliance.pictures.remake import remake
from appliance.pictures.small import small
from appliance.pictures.tasks import Answer, FindColours, Remake, Shrink, Task

# The largest picture that is allowed needs about 450 MiB: decoded, in its own colours and in sRGB, turned, encoded
MAX_MEMORY_BYTES = 768 * 1024 * 1024


def main() -> int:
    """Do tasks for the service until it closes the socket on stdin (see `children`)."""
    _limit()
    with socket.socket(fileno=0) as service, contextlib.suppress(EOFError, ConnectionError):
        while True:
            task = msgspec.msgpack.decode(tasks.receive(service), type=Task)
            tasks.send(service, msgspec.msgpack.encode(_answer(task)))
    return 0


def _limit() -> None:
    """Bound what this process takes, and have the system end it before the service where the machine has no memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # a system without it
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Ctrl C in a terminal is for the service, which closes the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A file of five megabytes can have a hundred thousand notes to complain about
    warnings.simplefilter("ignore")
    logging.disable()


def _answer(task: Task) -> Answer:
    """Return the answer to a task."""
    try:
        return Answer(result=msgspec.Raw(msgspec.msgpack.encode(_do(task))))
    except Unusable as why:
        return Answer(unusable=str(why))
    except MemoryError:
        return Answer(unusable="needs too much memory to decode: save it with fewer pixels", is_exhausted=True)
    except Exception:
        # An error that no decoder is known to raise: the operator gets its traceback, the sender of the file an answer
        traceback.print_exc()
        return Answer(unusable="cannot be decoded")


def _do(task: Task) -> Any:
    match task:
        case Remake():
            return remake(task.content, task.full_size)
        case Shrink():
            return small(task.content, task.side)
        case FindColours():
            return dominant(task.content)
