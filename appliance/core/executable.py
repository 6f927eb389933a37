"""The child processes of the program, its compiled templates, and the list of its components.

`loader` has the start of the PyInstaller executable, `shipped` the files beside the code.
"""

import json
import os
import platform
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from appliance.core import i18n
from appliance.core.errors import Refused
from appliance.core.shipped import ROOT

if TYPE_CHECKING:
    from jinja2 import BaseLoader

# Folders of Jinja templates; the executable contains compiled templates instead (packaging/campanero.spec).
TEMPLATES = ("ui/html", "appliance/content/designs/sections", "appliance/public/html", "appliance/forms/html")
COMPILED = "compiled-templates"


def template_loader(folder: str) -> "BaseLoader":
    """Return the Jinja loader of one of the folders `TEMPLATES`: compiled in the executable, else from the sources."""
    from jinja2 import FileSystemLoader, ModuleLoader

    compiled = ROOT / COMPILED / f"{folder}.zip"
    return ModuleLoader(compiled) if compiled.exists() else FileSystemLoader(ROOT / folder)


_NAMED = ("sanic", "peewee", "huey", "aiosmtpd", "msgspec", "python-liquid", "apsw", "jinja2", "pyjwt", "idna")


def list_components() -> dict[str, str]:
    """Return the version of each included component by its name; from the sources, only those of the main packages."""
    from importlib import metadata  # takes a third of the time of importing this module, which each child process does

    import apsw

    first = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    try:
        return {**json.loads((ROOT / "components.json").read_text(encoding="utf-8")), **first}
    except FileNotFoundError:
        return {**first, **{name: metadata.version(name) for name in _NAMED}}


def read_licences() -> str:
    """Return the licence texts of the included components. Raises Refused when the program runs from the sources."""
    try:
        return (ROOT / "licences.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Refused("the packages that this program runs on carry their licences themselves") from None


_POLL_SECONDS = 0.2
# The environment variable with the process id of the service, which `_command` sets for each child process. It is no
# setting, so it has another prefix.
PARENT_VARIABLE = "_CAMPANERO_PARENT"
# The environment variable with the language of the child's output; `run_and_read` sets it to that of the request.
LANGUAGE_VARIABLE = "_CAMPANERO_LANGUAGE"


def _start(word: str) -> "subprocess.Popen[bytes]":
    words, env = _command(word)
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)  # noqa: S603 - the arguments come from this program


def _command(*words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment that run this program again with the arguments `words`."""
    frozen = getattr(sys, "frozen", False)
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
    if not frozen:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    return [sys.executable, *(() if frozen else ("-P", "-m", "appliance")), *words], env


def end_with_service() -> None:
    """In a child process, start a thread that ends this process when the service ends, even by a kill.

    The kernel's signal for the death of a parent (PR_SET_PDEATHSIG) is not used, because it is sent when the thread
    that started the child ends. Children start in threads of pools, which end before the service.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is not None:
        threading.Thread(target=_watch_parent, args=(int(parent),), name="parent", daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


# The children that a request waits for. Jobs end their children themselves when they stop.
_awaited_children: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()


def kill_awaited_children() -> None:
    """Kill the children that requests wait for (`run_and_read`, `start_with_socket`); call it when the service ends."""
    for process in tuple(_awaited_children):
        process.kill()


def run_and_read(*words: str, seconds: float) -> bytes:
    """Run this program with the arguments `words` and return its standard output, whatever its exit code.

    Blocks until the process ends. Raises TimeoutError after `seconds`.
    """
    command, env = _command(*words)
    env[LANGUAGE_VARIABLE] = i18n.get_language()
    with subprocess.Popen(  # noqa: S603 - the arguments come from this program
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    ) as process:
        _awaited_children.add(process)
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no answer within {seconds:.0f} s") from None
        finally:
            process.kill()


def start_with_socket(word: str) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start this program with the argument `word` and a socket as stdin; return the process and our end of the socket.

    With a socket, reads and writes can have a time limit. The child ends when that end is closed. Raises OSError.
    """
    command, env = _command(word)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env)  # noqa: S603 - the arguments come from this program
        _awaited_children.add(process)
        return process, ours
    except BaseException:
        ours.close()
        raise


def run_until_stopped(*words: str, is_stopping: threading.Event) -> tuple[int, str]:
    """Run this program with the arguments `words`, without time limit; return its exit code and last line on stderr.

    The process is terminated once `is_stopping` is set.
    """
    command, env = _command(*words)
    with subprocess.Popen(  # noqa: S603 - the arguments come from this program
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
    ) as process:
        while True:
            try:
                _, stderr = process.communicate(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if is_stopping.is_set():
                    process.terminate()
                continue
            lines = stderr.decode("utf-8", "replace").strip().splitlines()
            return process.returncode, lines[-1] if lines else ""


@contextmanager
def run_child(word: str, task: Any, wait_seconds: float = _POLL_SECONDS) -> Iterator[Iterator[dict[str, Any]]]:
    """Start this program with the argument `word`, send it `task` as JSON, and yield an iterator of its decoded lines.

    A child does work that needs much processor time: it may read the database, but never writes it. The last line has
    the key `done`; if it is missing, the iterator raises RuntimeError. After `wait_seconds` without a line the iterator
    yields an empty dict, so that the caller can stop a child that reports nothing. The child is killed when the block
    ends.
    """
    with _start(word) as process:
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.close()
            yield _read_lines(process, wait_seconds)
        finally:
            process.kill()


def _read_lines(process: "subprocess.Popen[bytes]", wait_seconds: float) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    descriptor, incomplete_line = process.stdout.fileno(), b""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while True:
        if not poller.poll(wait_seconds * 1000):
            yield {}
            continue
        block = os.read(descriptor, 65_536)
        if not block:
            raise RuntimeError(f"a child process ended with {process.wait()}")
        *lines, incomplete_line = (incomplete_line + block).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line)
            yield message
            if "done" in message:
                return


def read_task(kind: type[Any]) -> Any:
    """In a child process, read the task, one line of JSON, from standard input as a `kind`."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)


def send_to_parent(message: dict[str, Any]) -> None:
    """Write a message to the parent of this child process, as a line of JSON on standard output."""
    print(msgspec.json.encode(message).decode(), flush=True)
