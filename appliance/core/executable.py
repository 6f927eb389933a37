"""The program as an executable or a clone: its shipped files, its child processes, and how the executable starts.

The executable's loader unpacks into a directory `_MEI...` of the temporary directory, starts this program as its child,
passes signals on, and removes the directory at the end; a loader that is killed can do none of this. Modules that are
needed later are imported in functions, because `prepare` must run before anything else.
"""

import ctypes
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from appliance.core.errors import Refused

if TYPE_CHECKING:
    from jinja2 import BaseLoader

ROOT = Path(__file__).resolve().parents[2]
# Folders of templates, which the executable contains compiled (packaging/campanero.spec).
TEMPLATES = ("ui/html", "appliance/content/designs/sections", "appliance/public/html")
COMPILED = "compiled-templates"


def shipped_path(*parts: str) -> Path:
    """Return the path of a shipped file or folder, for example `shipped_path("static")`."""
    return ROOT.joinpath(*parts)


def template_loader(folder: str) -> "BaseLoader":
    """Return the loader of one of `TEMPLATES`: compiled templates in the executable, their sources in a clone."""
    from jinja2 import FileSystemLoader, ModuleLoader

    compiled = shipped_path(COMPILED, f"{folder}.zip")
    return ModuleLoader(compiled) if compiled.exists() else FileSystemLoader(shipped_path(folder))


_NAMED = ("sanic", "peewee", "huey", "aiosmtpd", "msgspec", "python-liquid", "apsw", "jinja2", "pyjwt", "idna")


def list_components() -> dict[str, str]:
    """Return the components with their versions; only the main ones when run from the sources."""
    import apsw

    first = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    try:
        return {**json.loads(shipped_path("components.json").read_text(encoding="utf-8")), **first}
    except FileNotFoundError:
        return {**first, **{name: metadata.version(name) for name in _NAMED}}


def read_licences() -> str:
    """Return the licences of the components. Raises Refused when run from the sources."""
    try:
        return shipped_path("licences.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Refused("the packages that this program runs on carry their licences themselves") from None


_POLL_SECONDS = 0.2


def _start(word: str) -> "subprocess.Popen[bytes]":
    words, env = _command(word)
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)  # noqa: S603 - no word of it comes from outside


def _command(*words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment that run this same program again."""
    frozen = getattr(sys, "frozen", False)
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = dict(os.environ) if frozen else {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return [sys.executable, *(() if frozen else ("-P", "-m", "appliance")), *words], env


def run_and_read(*words: str, seconds: float) -> bytes:
    """Run a command of this program and return its standard output; blocks until it ends. Raises TimeoutError."""
    command, env = _command(*words)
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=seconds)  # noqa: S603 - the words are ours
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    return process.stdout


def start_with_socket(word: str) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start a child whose stdin is a socket and return both, so that reads and writes can have a time limit.

    The child ends when this process closes its end of the socket. Raises OSError.
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


def run_until_stopped(*words: str, is_stopping: threading.Event) -> tuple[int, str]:
    """Run a command of this program without time limit; return its exit code and its last line on stderr.

    It is terminated when the service stops.
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
def run_child(word: str, task: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """Start a child process that reads `task` as a line of JSON; yield its output, one decoded line of JSON each.

    A child is for work that only uses the processor: it reads the database and never writes it. It is killed at the end
    of the block. Raises RuntimeError if it ends without a line that has `done`.
    """
    with _start(word) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.close()
            yield _read_lines(process)
        finally:
            process.kill()


def _read_lines(process: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        message = msgspec.json.decode(line)
        yield message
        if "done" in message:
            return
    raise RuntimeError(f"a child process ended with {process.wait()}")


class ParentPipe:
    """The connection of a child process to the process that started it."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def read_task(self, kind: type[Any]) -> Any:
        """Read the task from standard input."""
        return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)

    def send(self, words: dict[str, Any]) -> None:
        """Write a line of JSON; ends this process if its parent is gone."""
        if os.getppid() != self._parent:
            raise SystemExit(1)
        print(msgspec.json.encode(words).decode(), flush=True)


# This file exists in an unpacked directory once its program has locked it, so directories that are still being unpacked
# are not removed.
_LOCKED_FILE = "held-by-campanero"
_PR_SET_PDEATHSIG = 1
TIME_ZONES = "time-zones.zip"
# The certificate bundles of operating systems: Debian, Alpine and Arch; Fedora and Red Hat; SUSE; older Red Hat;
# FreeBSD.
_CERTIFICATE_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_lock_descriptors: list[int] = []  # descriptors that hold the lock until this process ends


def prepare(arguments: list[str]) -> None:
    """Prepare the executable before anything else is imported; does nothing when run from the sources."""
    unpacked = getattr(sys, "_MEIPASS", None)
    if unpacked is None:
        return
    loader = find_loader(directory := Path(unpacked))
    import_from_running_file()
    sys.path.append(str(directory / TIME_ZONES))
    trust_certificates()
    if loader is None or (loader != os.getppid() and runs_same_file(os.getppid())):
        return  # installed unpacked, or a child of the process that has locked the directory
    end_with_parent(loader)
    lock_unpacked_directory(directory)
    threading.Thread(target=remove_abandoned_directories, args=(directory.parent,), daemon=True).start()


def import_from_running_file() -> None:
    """Import later modules from the running file, even if another file has replaced it at its path.

    PyInstaller opens the file by path, so an upgrade of a running service would crash it or mix two versions.
    """
    from pyimod02_importers import pyz_archive  # type: ignore[import-not-found]  # in the executable alone

    pyz_archive._filename = "/proc/self/exe"


def find_loader(unpacked: Path) -> int | None:
    """Return the id of the loader process that unpacked a directory, which its name contains, or None."""
    match = re.fullmatch(r"_MEI([0-9a-f]{8})\w{6}", unpacked.name)
    return int(match[1], 16) if match else None


def runs_same_file(pid: int) -> bool:
    """Return whether a process runs the same file as this one."""
    try:
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    except OSError:
        return False


def end_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends, so that `kill -9` of the loader ends the service.

    Promises P1 to P5 hold over such a kill.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # the parent ended before prctl


def lock_unpacked_directory(unpacked: Path) -> None:
    """Lock the unpacked directory until this process ends; cleaners of temporary files respect the lock too."""
    try:
        descriptor = os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _lock_descriptors.append(descriptor)
        (unpacked / _LOCKED_FILE).touch()
    except OSError:
        pass  # this file system has no locks


def remove_abandoned_directories(parent: Path) -> None:
    """Remove directories that killed processes of this program left behind."""
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
            pass  # another process uses it
        finally:
            os.close(handle)


def trust_certificates() -> None:
    """Trust the certificates that this system trusts, or else Mozilla's list, which is included.

    The included OpenSSL looks only at the path of the system that it was built on.
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
