"""Records of a CSV or JSON lines file: a broken one is told by its line and never takes its neighbours with it."""

import csv
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from appliance.importing.lines import ROW_CHARACTERS, TooLong

MAX_COLUMNS = 200
_DELIMITERS = (",", ";", "\t", "|")
# A quoted cell may hold this many line ends; beyond that its quote was never closed
_MAX_LINES = 1000
_UNREADABLE = re.compile("[\udc80-\udcff\ufffd]")
_json = msgspec.json.Decoder()

csv.field_size_limit(ROW_CHARACTERS * 2)


class Record(NamedTuple):
    """Cells by column (a list for CSV, a dict for JSON lines) of the record that begins at a line, or its fault."""

    line: int
    cells: Any
    fault: str | None = None


def delimiter(line: str) -> str:
    """Return what separates the cells of a header: the one that makes most columns."""
    return max(_DELIMITERS, key=lambda one: len(_parse(line, one) or ()))


def of_csv(lines: Iterator[str], separator: str, first: int = 1) -> Iterator[Record]:
    """Yield the records of CSV lines; blank lines are none."""
    ahead: deque[str] = deque()
    number = first - 1
    while True:
        line = ahead.popleft() if ahead else next(lines, None)
        if line is None:
            return
        number += 1
        if not line:
            continue
        fault = _fault(line)
        if fault is not None:
            yield Record(number, line[:200], fault)
        elif '"' not in line:
            yield _checked(number, line.split(separator))
        else:
            cells, used = _quoted(line, lines, ahead, separator)
            if cells is None:
                yield Record(number, line[:200], "the quotes are not closed or stand in the wrong place")
            else:
                yield _checked(number, cells)
            number += used


def _quoted(line: str, lines: Iterator[str], ahead: deque[str], separator: str) -> tuple[list[str] | None, int]:
    """Parse a line with quotes, with as many of the next lines as a quoted cell spans."""
    cells = _parse(line, separator)
    if cells is not None:
        return cells, 0
    if line.count('"') % 2 == 0:
        return None, 0
    parts, size, used = [line], len(line), 0
    while used < _MAX_LINES:
        if used == len(ahead):
            ahead.extend(islice(lines, 1))
        if used == len(ahead) or isinstance(ahead[used], TooLong):
            return None, 0
        parts.append(ahead[used])
        size += len(ahead[used]) + 1
        used += 1
        if size > ROW_CHARACTERS:
            return None, 0
        if ahead[used - 1].count('"') % 2:
            cells = _parse("\n".join(parts), separator)
            if cells is not None and "\0" not in "".join(cells):
                for _ in range(used):
                    ahead.popleft()
                return cells, used
            return None, 0
    return None, 0


def _parse(text: str, separator: str) -> list[str] | None:
    try:
        found = list(csv.reader((text,), delimiter=separator, strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


def _fault(line: str) -> str | None:
    if isinstance(line, TooLong):
        return f"the row is too long (maximum is {ROW_CHARACTERS} characters)"
    if "\0" in line:
        return "the row holds a NUL character"
    if not line.isascii() and _UNREADABLE.search(line):
        return "the row holds characters that its encoding does not allow"
    return None


def _checked(number: int, cells: list[str]) -> Record:
    if len(cells) > MAX_COLUMNS:
        return Record(number, "", f"the row has too many columns (maximum is {MAX_COLUMNS})")
    return Record(number, cells)


def of_jsonl(lines: Iterator[str], first: int = 1) -> Iterator[Record]:
    """Yield the objects of JSON lines."""
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        fault = _fault(line)
        if fault is not None:
            yield Record(number, line[:200], fault)
            continue
        try:
            cells = _json.decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            yield Record(number, line[:200], "the line is not JSON")
            continue
        if not isinstance(cells, dict):
            yield Record(number, line[:200], "the line is not a JSON object")
        elif len(cells) > MAX_COLUMNS:
            yield Record(number, "", f"the row has too many columns (maximum is {MAX_COLUMNS})")
        else:
            yield Record(number, cells)
