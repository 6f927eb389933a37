"""Compile and run TypeScript with the packages of `tests/clients/package.json`."""

import subprocess
from pathlib import Path

from tests.kit.node_clients import find_node
from tests.kit.server import ROOT

PACKAGES = ROOT / "tests/clients"


def run_tool(*arguments: object, cwd: Path = ROOT, packages: Path = PACKAGES) -> str:
    """Return what a program of the packages of a directory, such as `tsc`, prints. Raises AssertionError if it fails.

    Skips the test if the packages are not installed.
    """
    name, *options = map(str, arguments)
    command = [find_node(packages), str((packages / "node_modules/.bin" / name).resolve()), *options]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{name} failed: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def run_node(script: Path, *arguments: object) -> str:
    """Return what a JavaScript file prints. Raises AssertionError if it fails."""
    command = [find_node(PACKAGES), str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{script.name} failed: {done.stderr[-4000:]}"
    return done.stdout
