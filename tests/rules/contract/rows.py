"""Reads the tables of this package: one line a row, its cells parted by blanks, words for people after ` -- `."""

from typing import NamedTuple

ORIGINS = {"S": "specified", "D": "decided", "O": "our own", "L": "later"}


class Line(NamedTuple):
    """One line of a table, under its heading (`= Name`)."""

    heading: str
    origin: str
    cells: tuple[str, ...]
    words: str


def lines(text: str) -> tuple[Line, ...]:
    """Read a table; a line that is our own has to say why it is there."""
    heading, rows = "", []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("= "):
            heading = line.removeprefix("= ")
            continue
        row, _, words = line.partition(" -- ")
        origin, *cells = row.split()
        if origin not in ORIGINS or not cells or (origin == "O" and not words):
            raise ValueError(f"under {heading!r}: {line!r}")
        rows.append(Line(heading, origin, tuple(cells), words.strip()))
    return tuple(rows)
