"""What the documents say of the tree is so: every file and folder that they name is there."""

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
def test_every_file_that_is_named_is_there(name: str) -> None:
    """A path begins at the root of the project, or at its package."""
    named = set(_FILE.findall((ROOT / name).read_text(encoding="utf-8")))
    assert [one for one in sorted(named) if not any((base / one).exists() for base in (ROOT, ROOT / "appliance"))] == []


def test_the_documents_name_files() -> None:
    """The way through the code is told by files, not by heart."""
    assert len(_FILE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))) > 30
