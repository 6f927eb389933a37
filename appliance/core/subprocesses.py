"""Child processes of this same program, for work that is all processor time: they read, and never write the database.

A child gets its task as one line of JSON on stdin and answers in lines of JSON on stdout (`architecture`: one writer).
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

_LOOK_SECONDS = 0.2


def _start(word: str) -> "subprocess.Popen[bytes]":
    words, env = _command(word)
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)  # noqa: S603 - no word of it comes from outside


def _command(*words: str) -> tuple[list[str], dict[str, str]]:
    """Return how to run this very program once more, found where this one was found, and its environment."""
    frozen = getattr(sys, "frozen", False)
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = dict(os.environ) if frozen else {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return [sys.executable, *(() if frozen else ("-P", "-m", "appliance")), *words], env


def output(*words: str, seconds: float) -> bytes:
    """Run a command of this program and answer what it said; blocks until it ends. Raises TimeoutError."""
    command, env = _command(*words)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=seconds)  # noqa: S603 - the words are ours
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    return done.stdout


def start_connected(word: str) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start a child whose stdin is a socket, and return both: what is sent and awaited there can have a time limit.

    The child ends when our end of the socket does. Raises OSError.
    """
    command, env = _command(word)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env)  # noqa: S603 - no word of it comes from outside
        return process, ours
    except BaseException:
        ours.close()
        raise


def run(*words: str, is_stopping: threading.Event) -> tuple[int, str]:
    """Run a command of this program for as long as it takes; answers its exit code and its last words on stderr.

    It is told to end with the service.
    """
    command, env = _command(*words)
    with subprocess.Popen(  # noqa: S603 - the words are ours
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
    ) as process:
        while True:
            try:
                _, said = process.communicate(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if is_stopping.is_set():
                    process.terminate()
                continue
            lines = said.decode("utf-8", "replace").strip().splitlines()
            return process.returncode, lines[-1] if lines else ""


@contextmanager
def child(word: str, task: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """Start a child on a task and yield what it says, line by line; it does not outlive the block.

    Raises RuntimeError where it ends without having said `done`.
    """
    with _start(word) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.close()
            yield _said(process)
        finally:
            process.kill()


def _said(process: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        said = msgspec.json.decode(line)
        yield said
        if "done" in said:
            return
    raise RuntimeError(f"a child process ended with {process.wait()}")


class Teller:
    """The other side: what a child says to the process that started it."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def task(self, kind: type[Any]) -> Any:
        """Read the task."""
        return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)

    def say(self, words: dict[str, Any]) -> None:
        """Say something; ends this process if nobody listens any more."""
        if os.getppid() != self._parent:
            raise SystemExit(1)
        print(msgspec.json.encode(words).decode(), flush=True)
