"""An overlay of this Debian system in which packages can really be installed, isolated from other processes."""

import subprocess
from pathlib import Path
from typing import Self

_ENTER = """#!/bin/sh
exec nsenter --mount="/proc/{pid}/ns/mnt" chroot "{tree}" {words}"$@"
"""
_MOUNTS = """
mount -t tmpfs none "$1"
mkdir "$1/changed" "$1/work" "$1/tree"
mount -t overlay none -o "lowerdir=/,upperdir=$1/changed,workdir=$1/work" "$1/tree"
mount -t proc proc "$1/tree/proc"
mount --bind /dev "$1/tree/dev"
echo ready
exec sleep 100000
"""


class DebianOverlay:
    """A writable overlay of this system in a mount namespace; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mount_process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        words = ["unshare", "--mount", "sh", "-eu", "-c", _MOUNTS, "sh", str(self._directory)]
        self._mount_process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._mount_process.stdout is not None
        assert self._mount_process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._mount_process is not None
        self._mount_process.kill()
        self._mount_process.wait()

    def run(self, *command: str, expect: int | None = 0) -> str:
        """Run a command inside the overlay and return its output; the exit code must be `expect` (None: any)."""
        assert self._mount_process is not None
        inside = [
            "nsenter",
            f"--mount=/proc/{self._mount_process.pid}/ns/mnt",
            "chroot",
            str(self._directory / "tree"),
            *command,
        ]
        process = subprocess.run(inside, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert expect is None or process.returncode == expect, (command, process.stdout, process.stderr)
        return process.stdout + process.stderr

    def create_wrapper(self, *command: str) -> Path:
        """Write and return a script that runs a command inside the overlay, followed by the script's arguments."""
        assert self._mount_process is not None
        script = self._directory.with_name("enter.sh")
        before = "".join(f"{word} " for word in command)
        script.write_text(_ENTER.format(pid=self._mount_process.pid, tree=self._directory / "tree", words=before))
        script.chmod(0o755)
        return script
