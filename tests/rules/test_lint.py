"""Style and types, as pyproject.toml configures them."""

import subprocess
import sys

import pytest

from tests.kit.server import ROOT

TREES = [name for name in ("appliance", "ui", "tests", "benchmarks", "packaging") if (ROOT / name).is_dir()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of this interpreter's environment from the root."""
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "arguments", [["check", "--no-cache"], ["format", "--check", "--no-cache"]], ids=["check", "format"]
)
def test_ruff_check_and_format(arguments: list[str]) -> None:
    """All Python directories pass the lint rules and are formatted."""
    done = run("ruff", *arguments, *TREES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy() -> None:
    """The types of appliance and ui pass strict mypy."""
    done = run("mypy")
    assert done.returncode == 0, done.stdout + done.stderr
