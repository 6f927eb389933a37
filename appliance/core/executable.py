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


_LOOK_SECONDS = 0.2


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
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=seconds)  # noqa: S603 - the words are ours
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    return done.stdout


def start_with_socket(word: str) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start a child whose stdin is a socket and return both, so that reads and writes can have a time limit.

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
                _, said = process.communicate(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if is_stopping.is_set():
                    process.terminate()
                continue
            lines = said.decode("utf-8", "replace").strip().splitlines()
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


# This file lies in an unpacked directory once its program has locked it, not while it is still being unpacked.
_MARK = "held-by-campanero"
_PR_SET_PDEATHSIG = 1
TIME_ZONES = "time-zones.zip"
# Where systems keep their certificates: Debian, Alpine and Arch; Fedora and Red Hat; SUSE; older Red Hat; FreeBSD.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_held: list[int] = []  # descriptors that hold the lock until this process ends


def prepare(arguments: list[str]) -> None:
    """Prepare the executable before anything else is imported; does nothing when run from the sources."""
    unpacked = getattr(sys, "_MEIPASS", None)
    if unpacked is None:
        return
    loader = loader_of(here := Path(unpacked))
    read_what_runs()
    sys.path.append(str(here / TIME_ZONES))
    trust_certificates()
    if loader is None or (loader != os.getppid() and runs_our_file(os.getppid())):
        return  # it was installed unpacked, or works for the process that holds the directory
    end_with(loader)
    hold(here)
    threading.Thread(target=sweep, args=(here.parent,), daemon=True).start()


def read_what_runs() -> None:
    """Read modules that are imported from now on from the running file, even if its path leads to another file by then.

    PyInstaller reads by path, so an upgrade under a running service would end it or mix two versions.
    """
    from pyimod02_importers import pyz_archive  # type: ignore[import-not-found]  # in the executable alone

    pyz_archive._filename = "/proc/self/exe"


def loader_of(unpacked: Path) -> int | None:
    """Return the id of the loader process that unpacked a directory, which its name contains, or None."""
    named = re.fullmatch(r"_MEI([0-9a-f]{8})\w{6}", unpacked.name)
    return int(named[1], 16) if named else None


def runs_our_file(pid: int) -> bool:
    """Return whether a process runs the same file as this one."""
    try:
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    except OSError:
        return False


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, so that `kill -9` of the loader ends the service.

    All promises hold over such a kill (P1 to P5).
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # the parent ended before prctl


def hold(unpacked: Path) -> None:
    """Lock the directory as long as this process lives; cleaners of temporary files respect the lock too."""
    try:
        held = os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_SH)
        _held.append(held)
        (unpacked / _MARK).touch()
    except OSError:
        pass  # a temporary directory without locks


def sweep(where: Path) -> None:
    """Remove directories that killed processes of this program left behind."""
    for left in where.glob("_MEI*"):
        try:
            if left.is_symlink() or left.stat().st_uid != os.getuid() or not (left / _MARK).exists():
                continue
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            pass  # another process uses it
        finally:
            os.close(handle)


def trust_certificates() -> None:
    """Trust the certificates that this system trusts, or else Mozilla's list, which is included.

    The included OpenSSL looks for the list only where the system it was built on keeps it.
    """
    paths = ssl.get_default_verify_paths()
    if {paths.openssl_cafile_env, paths.openssl_capath_env} & set(os.environ) or paths.cafile or _holds(paths.capath):
        return
    import certifi

    known = next((file for file in _BUNDLES if Path(file).exists()), certifi.where())
    os.environ[paths.openssl_cafile_env] = known


def _holds(directory: str | None) -> bool:
    try:
        return directory is not None and any(Path(directory).iterdir())
    except OSError:
        return False
