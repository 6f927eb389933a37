"""Compile and run TypeScript with the packages of `tests/clients/package.json`."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.server import ROOT

DIRECTORY = ROOT / "tests/clients"
PROGRAMS = DIRECTORY / "node_modules/.bin"


def find_node() -> str:
    """Return the program `node`; skips the test if it or its packages are missing (`packaging/test` installs them)."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (DIRECTORY / "node_modules" / ".package-lock.json").exists():
        pytest.skip("its packages are not installed: npm ci --prefix tests/clients")
    return node


def run_tool(*arguments: object, cwd: Path = ROOT, programs: Path = PROGRAMS) -> subprocess.CompletedProcess[str]:
    """Run a program of the packages, such as `tsc`, with node. Raises AssertionError if it fails."""
    name, *options = map(str, arguments)
    command = [find_node(), str((programs / name).resolve()), *options]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{name} failed: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done


def run_node(script: Path, *arguments: object) -> str:
    """Return what a JavaScript file prints. Raises AssertionError if it fails."""
    command = [find_node(), str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{script.name} failed: {done.stderr[-4000:]}"
    return done.stdout
