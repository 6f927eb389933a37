"""The service's side of the child process that decodes pictures (`worker`).

The process starts with the first picture and ends after `IDLE_SECONDS` without a picture. A malicious file cannot harm
the service: the child process has a memory limit and is killed when a picture takes too long.
"""

import logging
import signal
import socket
import subprocess
import threading
import time
from typing import TypeVar

import msgspec

from appliance.content.pictures import formats
from appliance.content.pictures.formats import (
    ConvertTask,
    FindColoursTask,
    Picture,
    ShrinkTask,
    Task,
    TaskResult,
    UnusablePicture,
)
from appliance.core import executable
from appliance.core.errors import Unavailable
from appliance.core.i18n import gettext, gettext_noop

T = TypeVar("T")
log = logging.getLogger("campanero.pictures")
# The child also has a limit on processor time (`formats.MAX_PROCESSOR_SECONDS`); this one is for a busy computer.
MAX_SECONDS = 20.0
IDLE_SECONDS = 60.0
# These signals mean that the file crashed the decoder.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


class PictureProcess:
    """The child process, which handles one task at a time; threads with other tasks wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._timer: threading.Timer | None = None

    def run(self, task: Task, kind: type[T]) -> T:
        """Return the result of a task as an object of type `kind`.

        Raises UnusablePicture for a picture that cannot be decoded, and Unavailable if the process does not start or
        ends unexpectedly.
        """
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            try:
                answer = msgspec.msgpack.decode(self._exchange(msgspec.msgpack.encode(task)), type=TaskResult)
                if answer.is_exhausted:
                    self._end()
            finally:
                self._timer = threading.Timer(IDLE_SECONDS, self._end_idle)
                self._timer.daemon = True
                self._timer.start()
        if answer.unusable:
            raise UnusablePicture(answer.unusable)
        return msgspec.msgpack.decode(answer.result, type=kind)

    def _exchange(self, message: bytes) -> bytes:
        """Send a task to the child process and return its reply.

        Raises UnusablePicture if the reply takes longer than `MAX_SECONDS` or too much processor time, or the decoder
        crashes, and Unavailable if the process does not start or ends for another reason. A process that is too slow
        is killed.
        """
        deadline = time.monotonic() + MAX_SECONDS
        connection = self._connect()
        try:
            connection.settimeout(MAX_SECONDS)
            formats.send_message(connection, message)
            return formats.receive_message(connection, deadline)
        except TimeoutError:
            self._end(must_kill=True)
            raise UnusablePicture(formats.TOO_SLOW % {"limit": f"{MAX_SECONDS:.0f}"}) from None
        except (EOFError, ConnectionError):
            code = self._end()
            if -code == signal.SIGXCPU:
                raise UnusablePicture(formats.TOO_SLOW % {"limit": formats.MAX_PROCESSOR_SECONDS}) from None
            if -code in _CRASHES:
                log.warning("pictures: decoder crashed signal=%s", -code)
                raise UnusablePicture(gettext_noop("cannot be decoded")) from None
            log.error("pictures: child process ended code=%s", code)
            raise _unavailable() from None

    def _connect(self) -> socket.socket:
        if self._running is not None and self._running[0].poll() is not None:
            self._end()
        if self._running is None:
            try:
                self._running = executable.start_with_socket("decode-pictures")
            except OSError as error:
                log.error("pictures: child process did not start: %s", error)
                raise _unavailable() from None
        return self._running[1]

    def _end(self, must_kill: bool = False) -> int:
        """End the child process and return its exit code; the code is negative if a signal ended it.

        Without `must_kill`, the process has a second to end by itself.
        """
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
    return Unavailable(gettext("Images cannot be decoded now; upload the image again in a moment."), "unavailable", 5)


_process = PictureProcess()


def convert(content: bytes, full_size: bool = False) -> Picture:
    """Re-encode a picture for emails; raises the errors of `PictureProcess.run`.

    Unless `full_size` is set, the result is at most `worker.MAX_WIDTH` pixels wide; an animated GIF keeps its size.
    """
    return _process.run(ConvertTask(content, full_size), Picture)


def shrink(content: bytes, side: int) -> bytes:
    """Return a stored picture as a WebP whose width and height are at most `side` pixels.

    Raises the errors of `PictureProcess.run`.
    """
    return _process.run(ShrinkTask(content, side), bytes)


def find_colours(content: bytes) -> tuple[str, ...]:
    """Return up to four dominant colours of a picture as `#rrggbb`; raises the errors of `PictureProcess.run`."""
    return _process.run(FindColoursTask(content), tuple[str, ...])
