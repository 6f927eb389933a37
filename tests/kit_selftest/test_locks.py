"""The locks: everything pinned, in step with pyproject.toml, and with a licence noted."""

import re
import tomllib
from importlib.metadata import version

import pytest

from tests.kit.server import ROOT

PACKAGING = ROOT / "packaging"


def pins(name: str) -> dict[str, str]:
    """Return the versions of a lock by normalised name; anything but `name==version` is an error."""
    lines = [line for line in (PACKAGING / name).read_text().splitlines() if line and not line.startswith("#")]
    odd = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)]
    assert not odd, f"not a plain pin: {odd}"
    return {normal(line.split("==")[0]): line.split("==")[1] for line in lines}


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def direct() -> list[str]:
    """Return the libraries that pyproject.toml names."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_pyproject_and_lock_agree() -> None:
    """What the project declares is what the lock installs."""
    locked = pins("requirements.lock")
    assert {normal(pin.split("==")[0]): pin.split("==")[1] for pin in direct()}.items() <= locked.items()


def test_the_locks_do_not_overlap() -> None:
    """A package is pinned in one place."""
    assert not pins("requirements.lock").keys() & pins("requirements-test.lock").keys()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-test.lock"])
def test_what_is_installed_is_what_is_locked(lock: str) -> None:
    """These tests run with the versions that are locked."""
    installed = {name: version(name) for name in pins(lock)}
    assert installed == pins(lock)


@pytest.mark.parametrize("pin", direct())
def test_licence_is_noted(pin: str) -> None:
    """Every library of the executable stands in the table of licences with its version."""
    name, _, number = pin.partition("==")
    assert f"| {name} | {number} |" in (PACKAGING / "licences" / "README.md").read_text()
