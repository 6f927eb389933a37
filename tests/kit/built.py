"""The executable, built once from the sources as they are by whichever test asks first."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kit.server import ROOT

_BUILDS = ROOT / "build" / "tested"


def digest_of_sources() -> str:
    """Name everything that ends up in the file, and the Python that goes with it."""
    digest = hashlib.sha256(sys.version.encode())
    for top in ("appliance", "ui", "static", "packaging"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def built() -> Path:
    """Return the built file, with its bill, its checksum and the same unpacked beside it; made if a source changed."""
    home = _BUILDS / digest_of_sources()
    _BUILDS.parent.mkdir(exist_ok=True)
    # Several processes run the suite; one builds, the others wait for it
    with (_BUILDS.parent / "tested.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "campanero").exists():
            shutil.rmtree(_BUILDS, ignore_errors=True)
            fresh = home.with_suffix(".unfinished")
            words = [ROOT / "packaging" / "build", fresh]
            done = subprocess.run(words, capture_output=True, text=True, timeout=900)
            assert done.returncode == 0, done.stdout + done.stderr
            (fresh / "said.txt").write_text(done.stdout)
            fresh.rename(home)
    return home / "campanero"
