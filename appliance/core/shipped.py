"""The files that ship with the program: pictures, guides, style sheets, catalogues of texts.

The executable has them in one archive, because its loader would unpack each single file at every start, even for the
commands for scripts, which need none of them.
"""

from collections.abc import Iterator
from functools import cache
from importlib.abc import Traversable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Written by packaging/campanero.spec, with the paths of the sources.
ARCHIVE = "shipped.zip"


def find(*parts: str) -> Traversable:
    """Return a shipped file or directory, for example `find("static")`; it may not exist."""
    return _root().joinpath("/".join(parts))


def list_files(directory: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the files in a directory and below it with their paths from there, by name."""
    for item in sorted(directory.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from list_files(item, f"{above}{item.name}/")
        else:
            yield f"{above}{item.name}", item


@cache
def _root() -> Traversable:
    archive = ROOT / ARCHIVE
    if not archive.exists():
        return ROOT
    import zipfile  # not needed when the program runs from the sources

    return zipfile.Path(archive)
