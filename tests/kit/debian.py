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
    """A view of this system that can be changed; use it as a context manager."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._keeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        words = ["unshare", "--mount", "sh", "-eu", "-c", _MOUNTS, "sh", str(self._place)]
        self._keeper = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._keeper is not None
        self._keeper.kill()
        self._keeper.wait()

    def run(self, *command: str, expect: int | None = 0) -> str:
        """Run a command inside and return its output."""
        assert self._keeper is not None
        inside = ["nsenter", f"--mount=/proc/{self._keeper.pid}/ns/mnt", "chroot", str(self._place / "tree"), *command]
        process = subprocess.run(inside, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert expect is None or process.returncode == expect, (command, process.stdout, process.stderr)
        return process.stdout + process.stderr

    def create_wrapper(self, *command: str) -> Path:
        """Return a program outside that runs a command inside with the given arguments."""
        assert self._keeper is not None
        script = self._place.with_name("enter.sh")
        before = "".join(f"{word} " for word in command)
        script.write_text(_ENTER.format(pid=self._keeper.pid, tree=self._place / "tree", words=before))
        script.chmod(0o755)
        return script
