"""The lock files pin every dependency, match pyproject.toml, and each licence is noted."""

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


def declared_dependencies() -> list[str]:
    """Return the dependencies in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_pyproject_and_lock_agree() -> None:
    """Every dependency of pyproject.toml is in the lock with the same version."""
    locked = pins("requirements.lock")
    assert {normal(pin.split("==")[0]): pin.split("==")[1] for pin in declared_dependencies()}.items() <= locked.items()


def test_the_locks_do_not_overlap() -> None:
    """Each package is in one lock only."""
    assert not pins("requirements.lock").keys() & pins("requirements-test.lock").keys()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-test.lock"])
def test_installed_versions_match_the_locks(lock: str) -> None:
    """The tests run with the locked versions."""
    installed = {name: version(name) for name in pins(lock)}
    assert installed == pins(lock)


@pytest.mark.parametrize("pin", declared_dependencies())
def test_the_licence_of_each_dependency_is_noted(pin: str) -> None:
    """Every dependency of the executable is in the table of licences with its version."""
    name, _, number = pin.partition("==")
    assert f"| {name} | {number} |" in (PACKAGING / "licences" / "README.md").read_text()
