"""Processes of the appliance that begin with its modules read: a parent that has read them forks each.

Nearly all that a server of a test costs is reading a thousand modules. A child is a process as any other: in a session
of its own, with its own environment, directory and pipes, and it runs the same `main()`. Only what a module would do
with the environment while it is read is not seen; those that a test starts by their command (`cold`) tell.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO

_MAX_BYTES = 1_000_000  # bytes of a request: arguments and environment


class Child:
    """A process that was forked, with as much of the manners of `subprocess.Popen` as tests need."""

    def __init__(self, pid: int, ended: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._ended, self._lock = ended, threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raises `subprocess.TimeoutExpired`."""
        with self._lock:
            if self.returncode is None:
                if not select.select([self._ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("campanero", timeout or 0)
                self.returncode = int(self._ended.read())
                self._ended.close()
            return self.returncode

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sign)


class Nursery:
    """The parent; one for each process that runs tests."""

    def __init__(self) -> None:
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-P", "-m", "tests.kit.nursery", str(there.fileno())]
        self._process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": root}, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
        )
        there.close()
        atexit.register(self.close)

    def close(self) -> None:
        """Let the parent end; its children do not notice."""
        self._here.close()
        self._process.wait()

    def start(self, words: Sequence[str], env: Mapping[str, str], cwd: Path) -> Child:
        """Run the command line with these words; what it says can be read while it runs."""
        (out, theirs_out), (err, theirs_err) = os.pipe(), os.pipe()
        with Path(os.devnull).open() as nothing:
            pid, ended = self._fork(words, env, cwd, [nothing.fileno(), theirs_out, theirs_err])
        os.close(theirs_out)
        os.close(theirs_err)
        return Child(pid, ended, os.fdopen(out, errors="replace"), os.fdopen(err, errors="replace"))

    def run(
        self, words: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: str, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command line to its end; raises `subprocess.TimeoutExpired`."""
        with ExitStack() as held:
            files = [held.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            child = Child(*self._fork(words, env, cwd, [file.fileno() for file in files]), files[1], files[2])
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise
            said = []
            for file in files[1:]:
                file.seek(0)
                said.append(file.read())
        return subprocess.CompletedProcess(list(words), code, *said)

    def _fork(
        self, words: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> tuple[int, IO[str]]:
        ours, theirs = os.pipe()
        asked = json.dumps([list(words), dict(env), str(cwd)]).encode()
        try:
            with self._asking:
                socket.send_fds(self._here, [asked], [theirs, *streams])
                pid = int(self._here.recv(64))
        except (OSError, ValueError) as error:
            raise AssertionError("the nursery has ended; its own stderr says why") from error
        finally:
            os.close(theirs)
        return pid, os.fdopen(ours)


@cache
def nursery() -> Nursery:
    """Return the one of this process; it ends when this process does."""
    return Nursery()


# -- what runs in the parent ------------------------------------------------------------------------------------------


def _grow_up(words: list[str], env: dict[str, str], cwd: str, streams: list[int]) -> None:
    """Be the appliance, in a child: it ends as `main()` does."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["campanero", *words]
    importlib.import_module("appliance.__main__").main()


def _serve(door: socket.socket) -> None:
    """Fork for each request, and tell of each child when it has ended, until nobody asks any more."""
    ended: dict[int, int] = {}
    bell, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ring)
    while True:
        ready, _, _ = select.select([door, bell], [], [])
        if bell in ready:
            os.read(bell, 4096)
            _reap(ended)
        if door not in ready:
            continue
        asked, files, _, _ = socket.recv_fds(door, _MAX_BYTES, 4)
        if not asked:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (door.detach(), bell, ring, files[0], *ended.values()):
                os.close(other)
            return _grow_up(*json.loads(asked), files[1:])
        ended[pid] = files[0]
        for file in files[1:]:
            os.close(file)
        door.send(str(pid).encode())


def _reap(ended: dict[int, int]) -> None:
    for pid in list(ended):
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            pipe = ended.pop(pid)
            os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)


if __name__ == "__main__":
    for _module in ("appliance.__main__", "appliance.http.server"):
        importlib.import_module(_module)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
