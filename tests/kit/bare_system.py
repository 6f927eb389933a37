"""A system that contains only a C library and the executable, and other mounts that need root."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.server import ROOT

# The system libraries that the executable and the Python inside it are linked to
_LIBRARIES = (
    "ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
    "libz.so.1",
)  # fmt: skip
FOREIGN_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR")


def skip_unless_mounts_allowed() -> None:
    """Skip a test if mounting is not allowed; in CI the test fails instead."""
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    if not allowed and os.environ.get("CI") != "true":
        pytest.skip("mounting needs root")


def run_in_mount_namespace(
    script: str, *arguments: object, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a shell script in a new mount namespace."""
    command = ["unshare", "--mount", "sh", "-eu", "-c", script, "sh", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=env)


class BareSystem:
    """A directory tree with a C library, `/proc`, `/dev` and the executable: no Debian, no Python, no certificates."""

    def __init__(self, tree: Path, executable: Path) -> None:
        self.tree = tree
        for name in ("proc", "dev", "tmp", "data", "lib64", "lib"):  # the directories that every system has
            (tree / name).mkdir(parents=True)
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        for name in _LIBRARIES:
            paths = [line.split(" => ")[1] for line in listed.splitlines() if line.startswith(f"\t{name} ")]
            paths = [path for path in paths if "i386" not in path and "32" not in path]
            if paths:
                shutil.copy(paths[0], tree / ("lib64" if name.startswith("ld-") else "lib") / name)
        shutil.copy(executable, tree / "campanero")

    def create_wrapper(self) -> Path:
        """Write a script that runs the executable inside, for `Server(executable=..., data=Path("/data"))`."""
        runner = self.tree.with_name(f"{self.tree.name}.sh")
        runner.write_text(
            f"""#!/bin/sh
exec unshare --mount sh -eu -c '
mount -t proc proc "{self.tree}/proc"
mount --bind /dev "{self.tree}/dev"
exec chroot "{self.tree}" /campanero "$@"' sh "$@"
"""
        )
        runner.chmod(0o755)
        return runner
