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
    """A forked process with the part of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int, ended: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._ended, self._lock = ended, threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
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
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, sign)


class ForkServer:
    """The parent process; there is one for each test process."""

    def __init__(self) -> None:
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-P", "-m", "tests.kit.fork_server", str(there.fileno())]
        self._process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": root}, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
        )
        there.close()
        atexit.register(self.close)

    def close(self) -> None:
        """End the parent; its children continue."""
        self._here.close()
        self._process.wait()

    def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Child:
        """Start the command line with these arguments; its output can be read while it runs."""
        (out, theirs_out), (err, theirs_err) = os.pipe(), os.pipe()
        with Path(os.devnull).open() as nothing:
            pid, ended = self._fork(command, env, cwd, [nothing.fileno(), theirs_out, theirs_err])
        os.close(theirs_out)
        os.close(theirs_err)
        return Child(pid, ended, os.fdopen(out, errors="replace"), os.fdopen(err, errors="replace"))

    def run(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: str, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command line to its end. Raises `subprocess.TimeoutExpired`."""
        with ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            child = Child(*self._fork(command, env, cwd, [file.fileno() for file in files]), files[1], files[2])
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise
            output = []
            for file in files[1:]:
                file.seek(0)
                output.append(file.read())
        return subprocess.CompletedProcess(list(command), code, *output)

    def _fork(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> tuple[int, IO[str]]:
        ours, theirs = os.pipe()
        request = json.dumps([list(command), dict(env), str(cwd)]).encode()
        try:
            with self._asking:
                socket.send_fds(self._here, [request], [theirs, *streams])
                pid = int(self._here.recv(64))
        except (OSError, ValueError) as error:
            raise AssertionError("the nursery has ended; its own stderr says why") from error
        finally:
            os.close(theirs)
        return pid, os.fdopen(ours)


@cache
def fork_server() -> ForkServer:
    """Return the parent of this test process; it ends with the test process."""
    return ForkServer()


# -- what runs in the parent ------------------------------------------------------------------------------------------


def _run_child(words: list[str], env: dict[str, str], cwd: str, streams: list[int]) -> None:
    """Run the appliance in a child, which ends as `main()` does."""
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
    """Fork for each request and report the end of each child, until the socket closes."""
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
        request, files, _, _ = socket.recv_fds(door, _MAX_BYTES, 4)
        if not request:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (door.detach(), bell, ring, files[0], *ended.values()):
                os.close(descriptor)
            return _run_child(*json.loads(request), files[1:])
        ended[pid] = files[0]
        for file in files[1:]:
            os.close(file)
        door.send(str(pid).encode())


def _reap(ended: dict[int, int]) -> None:
    for pid in list(ended):
        pid_, status = os.waitpid(pid, os.WNOHANG)
        if pid_:
            pipe = ended.pop(pid)
            os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)


if __name__ == "__main__":
    for _module in ("appliance.__main__", "appliance.http.server"):
        importlib.import_module(_module)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
