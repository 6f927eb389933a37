"""What is other in the executable: it unpacks itself, two processes run, and it finds itself on many systems.

The file's loader unpacks into a directory `_MEI...` of the temporary directory, starts this program as its child,
passes signals on, and removes the directory at the end. A loader that is killed can do none of this.
"""

import ctypes
import fcntl
import os
import re
import shutil
import signal
import ssl
import sys
import threading
from pathlib import Path

# Lies in an unpacked directory once its program holds it: a directory that is still being unpacked has none
_MARK = "held-by-campanero"
_PR_SET_PDEATHSIG = 1
TIME_ZONES = "time-zones.zip"
# Where systems keep those they trust: Debian, Alpine and Arch; Fedora and Red Hat; SUSE; older Red Hat; FreeBSD's way
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_held: list[int] = []  # what keeps our directory, until this process ends


def prepare(arguments: list[str]) -> None:
    """Do what the executable needs before anything else; in a program that is run from its sources, nothing."""
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
    """Have the modules that are imported from now on read from the file that runs, whatever lies in its place by then.

    Those who packed it read by its path, so an upgrade under a running service would end it or mix two versions.
    """
    from pyimod02_importers import pyz_archive  # type: ignore[import-not-found]  # in the executable alone

    pyz_archive._filename = "/proc/self/exe"


def loader_of(unpacked: Path) -> int | None:
    """Return which process unpacked into a directory, which its name says; None if it was not unpacked by a loader."""
    named = re.fullmatch(r"_MEI([0-9a-f]{8})\w{6}", unpacked.name)
    return int(named[1], 16) if named else None


def runs_our_file(pid: int) -> bool:
    """Return whether a process runs the file that this one runs."""
    try:
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    except OSError:
        return False


def end_with(parent: int) -> None:
    """Let the system kill this process the moment its parent is gone: `kill -9` of what was started ends the service.

    Everything that was promised holds over that (P1 to P5).
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # it went before the system was told


def hold(unpacked: Path) -> None:
    """Lock the directory for as long as this process lives; who tidies up temporary files leaves it alone too."""
    try:
        held = os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_SH)
        _held.append(held)
        (unpacked / _MARK).touch()
    except OSError:
        pass  # a temporary directory without locks; it works all the same


def sweep(where: Path) -> None:
    """Remove what killed processes of ours left behind there."""
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
            pass  # somebody lives there
        finally:
            os.close(handle)


def trust_certificates() -> None:
    """Have the encryption trust whom this system trusts, or else Mozilla's list, which is inside.

    The library inside was built for one system and looks for the list only where that one keeps it.
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
