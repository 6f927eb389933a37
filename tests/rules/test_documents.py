"""Files and directories that the documents name exist."""

import re

import pytest

from tests.kit.server import ROOT

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
# `appliance/flows/run.py`, `ui/pages/`, and below the package `flows/run.py`
_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py|(?:appliance|ui|tests|packaging|benchmarks)(?:/[a-z_]+)+/?)`")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_named_file_exists(name: str) -> None:
    """Each path exists below the root of the repository or its package `appliance`."""
    named = set(_FILE.findall((ROOT / name).read_text(encoding="utf-8")))
    assert [
        path for path in sorted(named) if not any((base / path).exists() for base in (ROOT, ROOT / "appliance"))
    ] == []


def test_the_architecture_names_files() -> None:
    """`docs/architecture.md` names more than 30 files."""
    assert len(_FILE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))) > 30
