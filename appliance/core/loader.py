"""The start of the PyInstaller executable: what must happen before other modules are imported.

The loader of the one-file executable unpacks it into a directory `_MEI...` of the temporary directory, starts the
program as its child, forwards signals to it, and removes the directory when the program ends. A loader that is killed
leaves the directory behind. This module imports little: the commands for scripts start with it, too.
"""

import os
import re
import signal
import sys
import threading
from pathlib import Path

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
    import ctypes  # only a program that a loader has unpacked needs it

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # the parent ended before prctl


def lock_unpacked_directory(unpacked: Path) -> None:
    """Lock the unpacked directory until this process ends; programs that clean temporary files respect the lock too."""
    import fcntl  # as ctypes

    try:
        descriptor = os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _lock_descriptors.append(descriptor)
        (unpacked / _LOCKED_FILE).touch()
    except OSError:
        pass  # The file system does not support locks.


def remove_abandoned_directories(parent: Path) -> None:
    """Remove the unpacked directories in `parent` that killed processes of this program and this user left behind."""
    import fcntl  # as ctypes
    import shutil

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
    import ssl

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
