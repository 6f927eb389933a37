"""The executable, built from the current sources beside the tests that run before the first one that needs it."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.server import ROOT

_BUILDS = ROOT / "build" / "tested"


def sources_digest() -> str:
    """Return a digest of everything that goes into the executable, including the Python version."""
    digest = hashlib.sha256(sys.version.encode())
    for top in ("appliance", "ui", "static", "packaging", "clients/python"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def build_executable() -> Path:
    """Return the executable, built now if the sources have changed, with its SBOM and checksum beside it."""
    directory = _BUILDS / sources_digest()
    _BUILDS.parent.mkdir(exist_ok=True)
    # Several test processes may run at once: one builds, the others wait for its lock
    with (_BUILDS.parent / "tested.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "campanero").exists():
            shutil.rmtree(_BUILDS, ignore_errors=True)
            unfinished = directory.with_suffix(".unfinished")
            command = [ROOT / "packaging" / "build", unfinished]
            process = subprocess.run(command, capture_output=True, text=True, timeout=900)
            assert process.returncode == 0, process.stdout + process.stderr
            (unfinished / "said.txt").write_text(process.stdout)
            unfinished.rename(directory)
    return directory / "campanero"


@contextmanager
def build_in_background() -> Iterator[None]:
    """Build the executable in a process of its own, which ends with the context.

    Its errors are not reported: `build_executable`, which waits for it, repeats a build that failed.
    """
    builder = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.executable"], cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        if builder.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(builder.pid, signal.SIGTERM)
        builder.wait()


if __name__ == "__main__":
    build_executable()
