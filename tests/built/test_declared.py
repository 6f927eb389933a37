"""The pages that the executable has written down: all of them, as the sources declare them."""

import marshal
from pathlib import Path

from ui import declared


def test_all_pages_are_written_down(executable: Path) -> None:
    """What it carries is what the sources say."""
    data = (executable.parent / "unpacked" / "_internal" / declared.FILE).read_bytes()
    assert marshal.loads(data) == declared.table()
