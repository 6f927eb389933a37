"""The files that ship with the program, its child processes, and the start of the PyInstaller executable.

The loader of the executable unpacks it into a directory `_MEI...` of the temporary directory, starts the program as its
child, forwards signals to it, and removes the directory when the program ends. A loader that is killed leaves the
directory behind. Modules that are needed later are imported inside functions, because `prepare` must run first.
"""

import ctypes
import fcntl
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import ssl
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

if TYPE_CHECKING:
    from jinja2 import BaseLoader

ROOT = Path(__file__).resolve().parents[2]
# Folders of Jinja templates; the executable contains compiled templates instead (packaging/campanero.spec).
TEMPLATES = ("ui/html", "appliance/content/designs/sections", "appliance/public/html", "appliance/forms/html")
COMPILED = "compiled-templates"


def shipped_path(*parts: str) -> Path:
    """Return the path of a shipped file or folder, for example `shipped_path("static")`."""
    return ROOT.joinpath(*parts)


def template_loader(folder: str) -> "BaseLoader":
    """Return the Jinja loader of one of the folders `TEMPLATES`: compiled in the executable, else from the sources."""
    from jinja2 import FileSystemLoader, ModuleLoader

    compiled = shipped_path(COMPILED, f"{folder}.zip")
    return ModuleLoader(compiled) if compiled.exists() else FileSystemLoader(shipped_path(folder))


_NAMED = ("sanic", "peewee", "huey", "aiosmtpd", "msgspec", "python-liquid", "apsw", "jinja2", "pyjwt", "idna")


def list_components() -> dict[str, str]:
    """Return the version of each included component by its name; from the sources, only those of the main packages."""
    from importlib import metadata  # takes a third of the time of importing this module, which each child process does

    import apsw

    first = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    try:
        return {**json.loads(shipped_path("components.json").read_text(encoding="utf-8")), **first}
    except FileNotFoundError:
        return {**first, **{name: metadata.version(name) for name in _NAMED}}


def read_licences() -> str:
    """Return the licence texts of the included components. Raises Refused when the program runs from the sources."""
    try:
        return shipped_path("licences.txt").read_text(encoding="utf-8")
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
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)  # noqa: S603 - no word of it comes from outside


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
    with subprocess.Popen(  # noqa: S603 - the words are ours
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
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env)  # noqa: S603 - no word of it comes from outside
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
    with subprocess.Popen(  # noqa: S603 - the words are ours
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


# The program creates this file in its unpacked directory after it has locked the directory. The loader may still be
# unpacking a directory without the file, so such a directory is not removed.
_LOCKED_FILE = "held-by-campanero"
_PR_SET_PDEATHSIG = 1
TIME_ZONES = "time-zones.zip"
# The certificate bundles of operating systems, in this order: Debian, Alpine and Arch; Fedora and Red Hat; SUSE; older
# Red Hat; FreeBSD.
_CERTIFICATE_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_lock_descriptors: list[int] = []  # open descriptors, which keep the directory locked until this process ends


def prepare(arguments: list[str]) -> None:
    """Set up a PyInstaller executable; call it before other modules are imported. From the sources, do nothing.

    Adds the included time zones and trusts certificates. If a loader started this process, also ends it with the
    loader, locks the unpacked directory, and removes the unpacked directories that killed processes left.
    """
    unpacked = getattr(sys, "_MEIPASS", None)
    if unpacked is None:
        return
    loader = find_loader(directory := Path(unpacked))
    import_from_running_file()
    sys.path.append(str(directory / TIME_ZONES))
    trust_certificates()
    if loader is None or (loader != os.getppid() and runs_same_file(os.getppid())):
        return  # no loader unpacked it, or this is a child of the process that has locked the directory
    end_with_parent(loader)
    lock_unpacked_directory(directory)
    threading.Thread(target=remove_abandoned_directories, args=(directory.parent,), daemon=True).start()


def import_from_running_file() -> None:
    """Make PyInstaller import modules from the running executable, even if another file has replaced it on disk.

    PyInstaller opens the executable by its path, so an upgrade of a running service would crash it or mix two versions.
    """
    from pyimod02_importers import pyz_archive  # type: ignore[import-not-found]  # exists only in the executable

    pyz_archive._filename = "/proc/self/exe"


def find_loader(unpacked: Path) -> int | None:
    """Return the process id of the loader that made an unpacked directory, or None if its name is not a loader's."""
    match = re.fullmatch(r"_MEI([0-9a-f]{8})\w{6}", unpacked.name)
    return int(match[1], 16) if match else None


def runs_same_file(pid: int) -> bool:
    """Return whether a process runs the same executable file as this process."""
    try:
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    except OSError:
        return False


def end_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends, so that `kill -9` of the loader ends the service.

    Promises P1 to P5 of docs/promises.md hold after such a kill.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # the parent ended before prctl


def lock_unpacked_directory(unpacked: Path) -> None:
    """Lock the unpacked directory until this process ends; programs that clean temporary files respect the lock too."""
    try:
        descriptor = os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _lock_descriptors.append(descriptor)
        (unpacked / _LOCKED_FILE).touch()
    except OSError:
        pass  # The file system does not support locks.


def remove_abandoned_directories(parent: Path) -> None:
    """Remove the unpacked directories in `parent` that killed processes of this program and this user left behind."""
    for directory in parent.glob("_MEI*"):
        try:
            if (
                directory.is_symlink()
                or directory.stat().st_uid != os.getuid()
                or not (directory / _LOCKED_FILE).exists()
            ):
                continue
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # Another process has locked the directory.
        finally:
            os.close(handle)


def trust_certificates() -> None:
    """Trust the certificate authorities of this system, or else Mozilla's list, which is included.

    The included OpenSSL looks for certificates only at the path of the system that it was built on. An operator's
    SSL_CERT_FILE or SSL_CERT_DIR is kept.
    """
    paths = ssl.get_default_verify_paths()
    if (
        {paths.openssl_cafile_env, paths.openssl_capath_env} & set(os.environ)
        or paths.cafile
        or _has_files(paths.capath)
    ):
        return
    import certifi

    bundle = next((file for file in _CERTIFICATE_BUNDLES if Path(file).exists()), certifi.where())
    os.environ[paths.openssl_cafile_env] = bundle


def _has_files(directory: str | None) -> bool:
    try:
        return directory is not None and any(Path(directory).iterdir())
    except OSError:
        return False
