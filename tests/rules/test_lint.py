"""Style and types, as pyproject.toml configures them; each exception from them gives its reason."""

import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import ROOT

TREES = [name for name in ("appliance", "ui", "tests", "benchmarks", "packaging", "clients") if (ROOT / name).is_dir()]


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
    # Beside the packages, so that a new clone with the same environment need not read what is unchanged
    done = run("mypy", "--cache-dir", str(Path(sys.prefix, ".mypy_cache")))
    assert done.returncode == 0, done.stdout + done.stderr


# An exception from a rule or a type error, by its codes: `noqa: S105`, `type: ignore[misc]`
_EXCEPTION = re.compile(r"#\s*(?:noqa(?::\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?|type:\s*ignore(?:\[[a-z,\s-]+\])?)")


def list_unexplained_exceptions(path: Path) -> Iterator[str]:
    """Yield the place of each `noqa` and `type: ignore` of a file that is not followed by a reason."""
    if not _EXCEPTION.search(path.read_text(encoding="utf-8")):
        return
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            is_exception = token.type == tokenize.COMMENT and _EXCEPTION.search(token.string)
            if is_exception and not re.search(r"\w+ \w+|\w{4}", _EXCEPTION.sub("", token.string)):
                yield f"{path.relative_to(ROOT)}:{token.start[0]} {token.string}"


def test_every_exception_from_a_rule_has_a_reason() -> None:
    """A reason stands beside every `noqa` and every `type: ignore`."""
    paths = [path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))]
    assert [place for path in paths for place in list_unexplained_exceptions(path)] == []
