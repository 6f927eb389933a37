"""Run tasks on untrusted input in a child process whose memory and processor time the kernel limits.

`LimitedProcess` is the service's side, and `serve` is the child's. They exchange a task and its result as MessagePack,
each after its length in four bytes. Input that would harm the service, whatever the reason, only ends the child.
"""

import contextlib
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import msgspec

from appliance.core import executable
from appliance.core.errors import Unavailable
from appliance.core.i18n import gettext

log = logging.getLogger("campanero.children")
# The limit for a task on a busy computer; the limit of processor time of a task is shorter.
MAX_SECONDS = 20.0
IDLE_SECONDS = 60.0
# The exit codes of a child in which a task ran out of memory, or failed with another error.
_OUT_OF_MEMORY, _FAILED = 3, 4
# These signals mean that the input crashed the child; a library in Rust aborts when memory runs out.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_LENGTH = struct.Struct(">I")
# More than the largest reply, so that a child that a library has corrupted does not make the service allocate 4 GiB.
_MAX_REPLY_BYTES = 128 * 1024 * 1024
_may_wait: ContextVar[bool] = ContextVar("may_wait", default=True)
_account_id: ContextVar[int] = ContextVar("account_id", default=0)


class LimitExceeded(Exception):
    """A task took too much processor time or memory, or crashed the child, and would do so again."""

    def __init__(self, limit: Literal["time", "memory", "crash"]) -> None:
        super().__init__(limit)
        self.limit = limit


class WouldWait(Unavailable):
    """A task was not run, because its thread must not wait for a child process (`forbid_waiting`)."""


@contextlib.contextmanager
def forbid_waiting() -> Iterator[None]:
    """Make tasks in this block raise WouldWait, for threads whose delay would hold up all accounts."""
    token = _may_wait.set(False)
    try:
        yield
    finally:
        _may_wait.reset(token)


@contextlib.contextmanager
def charge_account(account_id: int) -> Iterator[None]:
    """Count the tasks in this block as those of an account, which takes turns with the others.

    Tasks outside of such a block are those of one more account.
    """
    token = _account_id.set(account_id)
    try:
        yield
    finally:
        _account_id.reset(token)


class FairShares:
    """The seconds for which each account has used a shared resource, such as the thread that renders.

    The account that used the least gets the next turn. An account that returns after a pause starts with the least time
    among the active accounts. A pause therefore gives no advantage, and earlier use no lasting disadvantage. For use by
    one thread at a time.
    """

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._floor = 0.0

    def get_used(self, account: int) -> float:
        """Return the seconds that count for an account: at least as many as the account of the last turn has."""
        return max(self._used.get(account, 0.0), self._floor)

    def next(self, accounts: Collection[int]) -> int:
        """Return which of the accounts gets the next turn: the one with the least time."""
        account = min(accounts, key=self.get_used)
        self._floor = floor = self.get_used(account)
        # `get_used` returns the floor for all accounts without an entry, so these need none.
        self._used = {number: seconds for number, seconds in self._used.items() if seconds > floor}
        return account

    def charge(self, account: int, seconds: float) -> None:
        """Add the seconds of a turn to an account."""
        self._used[account] = self.get_used(account) + seconds


class _Turns:
    """A lock that accounts get in the order of `FairShares`, and threads of one account in the order of requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: dict[int, deque[threading.Event]] = {}
        self._shares = FairShares()

    @contextlib.contextmanager
    def take(self, account_id: int) -> Iterator[None]:
        turn = threading.Event()
        with self._lock:
            self._waiting.setdefault(account_id, deque()).append(turn)
            if not self._is_taken:
                self._start_next()
        turn.wait()
        started_at = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._shares.charge(account_id, time.monotonic() - started_at)
                self._start_next()

    def _start_next(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._is_taken:
            account_id = self._shares.next(self._waiting)
            self._waiting[account_id].popleft().set()
            if not self._waiting[account_id]:
                del self._waiting[account_id]


class LimitedProcess:
    """A child process, started by the first task as the command `word`; it ends after `IDLE_SECONDS` without a task.

    It runs one task at a time, and the accounts take turns (`charge_account`). `unavailable` is the message of the
    error for a task that cannot be run now, marked with `gettext_noop`.
    """

    def __init__(self, word: str, unavailable: str) -> None:
        self._word, self._unavailable = word, unavailable
        self._turns = _Turns()
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._timer: threading.Timer | None = None

    def run(self, task: Any, kind: Any) -> Any:
        """Return the result of a task as an object of type `kind`.

        Raises LimitExceeded if the task ends the child or its reply is invalid; such a task would fail again. A task
        may succeed later after Unavailable or WouldWait. Unavailable is raised if the child does not start, ends for
        another reason, or does not reply within `MAX_SECONDS` because the computer is busy; WouldWait is raised in a
        block of `forbid_waiting`.
        """
        if not _may_wait.get():
            raise WouldWait(gettext(self._unavailable), "unavailable", 1)
        message = msgspec.msgpack.encode(task)
        with self._turns.take(_account_id.get()):
            if self._timer is not None:
                self._timer.cancel()
            try:
                reply = self._exchange(message)
            finally:
                self._timer = threading.Timer(IDLE_SECONDS, self._end_idle)
                self._timer.daemon = True
                # Without a thread for the timer, the child only runs until the next timer ends it.
                with contextlib.suppress(RuntimeError):
                    self._timer.start()
            try:
                return msgspec.msgpack.decode(reply, type=kind)
            except msgspec.MsgspecError:
                log.warning("%s: child process sent an invalid reply", self._word)
                self.end(must_kill=True)
                raise LimitExceeded("crash") from None

    def _exchange(self, message: bytes) -> bytes:
        """Send a task to the child and return its reply; a child that is too slow is killed. Raises as `run` does."""
        deadline = time.monotonic() + MAX_SECONDS
        connection = self._connect()
        try:
            connection.settimeout(MAX_SECONDS)
            _send(connection, message)
            return _receive(connection, deadline)
        except TimeoutError:
            log.error("%s: child process did not reply within %.0f s", self._word, MAX_SECONDS)
            self.end(must_kill=True)
            raise self._to_error() from None
        except (EOFError, ConnectionError):
            code = self.end()
            if code == -signal.SIGPROF:
                raise LimitExceeded("time") from None
            if code == _OUT_OF_MEMORY:
                raise LimitExceeded("memory") from None
            if code == _FAILED or -code in _CRASHES:
                log.warning("%s: child process crashed code=%s", self._word, code)
                raise LimitExceeded("crash") from None
            log.error("%s: child process ended code=%s", self._word, code)
            raise self._to_error() from None

    def _connect(self) -> socket.socket:
        if self._running is not None and self._running[0].poll() is not None:
            self.end()
        if self._running is None:
            try:
                self._running = executable.start_with_socket(self._word)
            except OSError as error:
                log.error("%s: child process did not start: %s", self._word, error)
                raise self._to_error() from None
        return self._running[1]

    def _to_error(self) -> Unavailable:
        return Unavailable(gettext(self._unavailable), "unavailable", 5)

    def end(self, must_kill: bool = False) -> int:
        """End the child and return its exit code, which is negative if a signal ended it; no task may be running.

        Without `must_kill`, the child has a second to end by itself.
        """
        assert self._running is not None
        (process, connection), self._running = self._running, None
        connection.close()
        if not must_kill:
            try:
                return process.wait(1.0)
            except subprocess.TimeoutExpired:
                log.warning("%s: child process did not end by itself pid=%s", self._word, process.pid)
        process.kill()
        return process.wait()

    def _end_idle(self) -> None:
        with self._turns.take(0):
            if self._timer is threading.current_thread() and self._running is not None:
                self.end()

    def get_pid(self) -> int | None:
        """Return the process id of the child, or None if it is not running."""
        running = self._running
        return running[0].pid if running is not None else None


def serve(kind: Any, run: Callable[[Any], Any], get_max_seconds: Callable[[Any], float], max_memory_bytes: int) -> int:
    """In the child, run tasks of the type `kind` until the service closes the socket; return the exit code.

    `get_max_seconds` returns the limit of processor time of a task. The socket is stdin
    (`executable.start_with_socket`).
    """
    _limit_process(max_memory_bytes)
    with socket.socket(fileno=0) as service, contextlib.suppress(EOFError, ConnectionError):
        while True:
            task = msgspec.msgpack.decode(_receive(service), type=kind)
            # The kernel ends this process with SIGPROF when the timer expires. RLIMIT_CPU, the other limit of processor
            # time, counts in whole seconds since the start of the process, too coarse for tasks of milliseconds.
            signal.setitimer(signal.ITIMER_PROF, get_max_seconds(task))
            try:
                reply = msgspec.msgpack.encode(run(task))
            except MemoryError:
                os._exit(_OUT_OF_MEMORY)  # The memory is fragmented, and an orderly end may need some.
            except BaseException:  # A panic of a library in Rust is no Exception.
                traceback.print_exc()  # No library is known to fail, so the traceback is for the operator.
                os._exit(_FAILED)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _send(service, reply)
    return 0


def _limit_process(max_memory_bytes: int) -> None:
    """Limit the memory of this process, and disable core dumps, Ctrl+C, warnings and logging.

    Also makes the kernel end this process before the service when the machine runs out of memory.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = max_memory_bytes if hard == resource.RLIM_INFINITY else min(max_memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # the system has no such file
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Ctrl+C in a terminal reaches this process too. It is ignored, because the process ends when the service closes the
    # socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A file of 5 MB can cause 100,000 warnings.
    warnings.simplefilter("ignore")
    logging.disable()


def _send(connection: socket.socket, message: bytes) -> None:
    """Send a message; raises TimeoutError after the timeout of the socket."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def _receive(connection: socket.socket, deadline: float | None = None) -> bytes:
    """Return the next message; raises EOFError if the other side has closed the socket.

    `deadline` is a time of `time.monotonic`, after which TimeoutError is raised; None leaves the timeout of the socket
    unchanged. With a deadline, raises ConnectionError for a message longer than `_MAX_REPLY_BYTES`.
    """
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size, deadline))
    if deadline is not None and length > _MAX_REPLY_BYTES:
        raise ConnectionError("the reply is too long")
    return bytes(_receive_exactly(connection, length, deadline))


def _receive_exactly(connection: socket.socket, length: int, deadline: float | None) -> bytearray:
    received = bytearray(length)
    view, place = memoryview(received), 0
    while place < length:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        count = connection.recv_into(view[place:])
        if not count:
            raise EOFError
        place += count
    return received
