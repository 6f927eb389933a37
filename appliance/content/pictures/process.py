"""The child process that decodes pictures, as the service uses it: one for all, started for the first picture.

Whatever a file does to a decoder, the service goes on: the child has a memory limit (`worker`), is killed when a
picture takes too long, and ends when it has had nothing to do for a minute.
"""

import logging
import signal
import socket
import subprocess
import threading
import time
from typing import TypeVar

import msgspec

from appliance.content.pictures import tasks
from appliance.content.pictures.kinds import Picture, Unusable
from appliance.content.pictures.tasks import Answer, FindColours, Remake, Shrink, Task
from appliance.core import subprocesses
from appliance.core.errors import Unavailable

T = TypeVar("T")
log = logging.getLogger("campanero.pictures")
# The slowest picture that is allowed takes about a second on a machine of 2020
MAX_SECONDS = 20.0
IDLE_SECONDS = 60.0
# A decoder that ends like this was ended by the file
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


class PictureProcess:
    """The child process, one picture at a time; whoever comes meanwhile waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._timer: threading.Timer | None = None

    def run(self, task: Task, kind: type[T]) -> T:
        """Return the result of a task; raises Unusable for a picture that cannot be decoded, or Unavailable."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            try:
                answer = msgspec.msgpack.decode(self._exchange(msgspec.msgpack.encode(task)), type=Answer)
                if answer.is_exhausted:
                    self._end()
            finally:
                self._timer = threading.Timer(IDLE_SECONDS, self._end_idle)
                self._timer.daemon = True
                self._timer.start()
        if answer.unusable:
            raise Unusable(answer.unusable)
        return msgspec.msgpack.decode(answer.result, type=kind)

    def _exchange(self, message: bytes) -> bytes:
        """Send a message to the child and return its answer; ends a child that does not give one."""
        deadline = time.monotonic() + MAX_SECONDS
        connection = self._connect()
        try:
            connection.settimeout(MAX_SECONDS)
            tasks.send(connection, message)
            return tasks.receive(connection, deadline)
        except TimeoutError:
            self._end(must_kill=True)
            raise Unusable(f"takes too long to decode (maximum is {MAX_SECONDS:.0f} seconds)") from None
        except (EOFError, ConnectionError):
            code = self._end()
            if -code in _CRASHES:
                log.warning("pictures: decoder crashed signal=%s", -code)
                raise Unusable("cannot be decoded") from None
            log.error("pictures: child process ended code=%s", code)
            raise _unavailable() from None

    def _connect(self) -> socket.socket:
        if self._running is not None and self._running[0].poll() is not None:
            self._end()
        if self._running is None:
            try:
                self._running = subprocesses.start_connected("decode-pictures")
            except OSError as error:
                log.error("pictures: child process did not start: %s", error)
                raise _unavailable() from None
        return self._running[1]

    def _end(self, must_kill: bool = False) -> int:
        """End the child and return its exit code, which is minus the signal that ended it if there was one."""
        assert self._running is not None
        (process, connection), self._running = self._running, None
        connection.close()
        if not must_kill:
            try:
                return process.wait(1.0)
            except subprocess.TimeoutExpired:
                log.warning("pictures: child process did not end by itself pid=%s", process.pid)
        process.kill()
        return process.wait()

    def _end_idle(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread() and self._running is not None:
                self._end()


def _unavailable() -> Unavailable:
    return Unavailable("pictures cannot be decoded now; upload it again in a moment", "unavailable", 5)


_process = PictureProcess()


def remake(content: bytes, full_size: bool = False) -> Picture:
    """Make a picture that emails can show; raises Unusable in words that follow the field's name, or Unavailable."""
    return _process.run(Remake(content, full_size), Picture)


def shrink(content: bytes, side: int) -> bytes:
    """Return a picture of ours as a WebP of at most so many pixels a side; raises Unusable or Unavailable."""
    return _process.run(Shrink(content, side), bytes)


def find_colours(content: bytes) -> tuple[str, ...]:
    """Return up to four colours of a picture as `#rrggbb`, the most telling first; raises Unusable or Unavailable."""
    return _process.run(FindColours(content), tuple[str, ...])
