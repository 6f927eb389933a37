"""Reads a file of people into its staging file, in a child process because it is all processor time."""

import codecs
import csv
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from appliance.core import tokens
from appliance.core.subprocesses import Teller
from appliance.imports import cells as imports_cells
from appliance.imports import columns, people
from appliance.imports.cells import Order, Verdict
from appliance.imports.staging import Sink

# Lines of a file whatever its encoding: bounded in length, so that no file is ever in memory.

ROW_CHARACTERS = 65_536
_BLOCK = 262_144
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SHOWN = 200


class TooLong(str):
    """The beginning of a line that is longer than a row may be."""


def find_encoding(path: Path) -> tuple[str, int]:
    """Return the encoding of a file and how many bytes of mark begin it.

    Without a mark: UTF-16 shows by its zeros; else UTF-8, unless more of the file breaks it than bears it out.
    """
    with path.open("rb") as file:
        head = file.read(4096)
        for mark, name in _BOMS:
            if head.startswith(mark):
                return name, len(mark)
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) > len(head) // 8:
            return ("utf-16-be" if even > odd else "utf-16-le"), 0
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        good = bad = 0
        while block := file.read(_BLOCK):
            text = decoder.decode(block)
            if not text.isascii():
                wrong = sum("\udc80" <= char <= "\udcff" for char in text)
                bad += wrong
                good += sum(char > "\x7f" for char in text) - wrong
    return ("cp1252" if bad > good else "utf-8"), 0


def read_lines(path: Path, name: str, skip: int) -> Iterator[str]:
    """Yield the lines of a file without their ends; one that is too long is a `TooLong` with its beginning."""
    errors = "surrogateescape" if name == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(name)(errors)
    with path.open("rb") as file:
        file.seek(skip)
        rest, cut, ends = "", "", None
        while True:
            block = file.read(_BLOCK)
            text = rest + decoder.decode(block, final=not block)
            if ends is None:
                # Lines of very old files end in a lone carriage return
                ends = "\r" if "\n" not in text and "\r" in text[:-1] else "\n"
            *whole, rest = text.split(ends)
            for line in whole:
                if cut:
                    yield TooLong(cut)
                    cut = ""
                elif len(line) > ROW_CHARACTERS:
                    yield TooLong(line[:_SHOWN])
                else:
                    yield line[:-1] if line.endswith("\r") else line
            if len(rest) > ROW_CHARACTERS:
                cut, rest = cut or rest[:_SHOWN], ""
            if not block:
                if cut or rest:
                    yield TooLong(cut) if cut else rest.removesuffix("\r")
                return


# Records of a CSV or JSON lines file: a broken one is told by its line and never takes its neighbours with it.

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


MAX_ROWS = 1_000_000
_SAMPLES = 3
# How files of Excel begin, and of others like it
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_LOOK = 20
# Titles and remarks may stand above the names of the columns
_MAX_TITLE_LINES = 10
# Times of consent, beside custom data, are read in the order that their column is written in
_DATED = ("opt_in_at", "opt_out_at", "unsubscribed", "bounced", "subscribed_email", "subscribed_phone")


class Task(Struct):
    """What a child process is asked for."""

    path: str
    target: str
    resource: str
    map: dict[str, str | None]
    key: bytes = b""  # of the installation, for a child process
    # Of phone numbers without country code
    country: str | None = None
    # Of dates that may be read in two ways, in columns where no value tells
    date_order: Order | None = None


class Look(NamedTuple):
    """What the beginning of a file shows."""

    format: str
    encoding: str
    skip: int
    delimiter: str | None
    product: str | None
    names: list[str]
    headed: bool
    samples: list[list[str]]
    # How many lines stand above the names of the columns
    first: int = 0


class Unreadable(Exception):
    """A file without a table in it; its text says why."""


def look(path: Path) -> Look:
    """Return format, encoding, columns and samples of a file; raises Unreadable."""
    with path.open("rb") as file:
        if file.read(4) in _WORKBOOKS:
            raise Unreadable("the file is a workbook of a spreadsheet: save it as CSV first")
    encoding, skip = find_encoding(path)
    head = list(islice(read_lines(path, encoding, skip), _LOOK * 5))
    first = next((index for index, line in enumerate(head) if line.strip()), None)
    if first is None:
        raise Unreadable("the file is empty")
    if head[first].lstrip().startswith("{"):
        return _look_jsonl(encoding, skip, head)
    separator = None
    if _is_separator(head[first]):
        separator = head[first][4]
        first += 1
    first = _header(head, first, separator)
    if first >= len(head) or isinstance(head[first], TooLong):
        raise Unreadable("the first line is too long for a row of column names")
    separator = separator or delimiter(head[first])
    found = list(of_csv(iter(head[first:]), separator))
    if not found or found[0].fault is not None:
        raise Unreadable(f"the row of column names cannot be read: {found[0].fault if found else 'it is missing'}")
    names = [str(cell).strip("\ufeff ").strip() for cell in found[0].cells]
    headed = not any("@" in name for name in names)
    rows = [row.cells for row in found[1 if headed else 0 :] if row.fault is None and not _is_empty(row.cells)]
    if not headed:
        names = [_content(cell, index) for index, cell in enumerate(names)]
    names = _unique(names)
    return Look("csv", encoding, skip, separator, columns.recognise(names), names, headed, _telling(rows), first)


def _telling(rows: list[list[str]]) -> list[list[str]]:
    """Return the first few rows, after those that alone show something of a column; in the order of the file."""
    chosen: list[int] = []
    shown: set[int] = set()
    for index, row in enumerate(rows):
        new = {column for column, cell in enumerate(row) if cell.strip(imports_cells.SPACES)} - shown
        if new and len(chosen) < _SAMPLES:
            chosen.append(index)
            shown |= new
    rest = [index for index in range(len(rows)) if index not in chosen]
    return [rows[index] for index in sorted([*chosen, *rest[: _SAMPLES - len(chosen)]])]


def _is_separator(line: str) -> bool:
    return line.lower().startswith("sep=") and len(line) == 5


def _header(head: list[str], first: int, separator: str | None) -> int:
    """Return the line that names the columns: the first with a column of addresses, above any address itself.

    Where there is none it is the first of all.
    """
    for index, line in enumerate(head[first : first + _MAX_TITLE_LINES], first):
        if not line.strip() or isinstance(line, TooLong):
            continue
        row = next(of_csv(iter([line]), separator or delimiter(line)), None)
        if row is None or row.fault is not None or any("@" in cell for cell in row.cells):
            break
        if {"email", "phone", "channels"} & set(columns.guess(row.cells)):
            return index
    return first


def _is_empty(row: list[str]) -> bool:
    return not any(cell.strip(imports_cells.SPACES) for cell in row)


def _content(cell: str, index: int) -> str:
    """Name a column of a file without names by what is in it."""
    return "email" if "@" in cell else f"column_{index + 1}"


def _unique(names: list[str]) -> list[str]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        name, number = name or f"column_{index + 1}", 2
        while names[index] in seen or not names[index]:
            names[index], number = f"{name}_{number}" if name in seen else name, number + 1
        seen.add(names[index])
    return names


def _look_jsonl(encoding: str, skip: int, head: list[str]) -> Look:
    found = [row.cells for row in of_jsonl(iter(head)) if row.fault is None]
    if not found:
        raise Unreadable("the file begins like JSON lines, but its lines are not JSON objects")
    names = list(dict.fromkeys(name for row in found for name in row))[:MAX_COLUMNS]
    samples = _telling([[_shown(row.get(name)) for name in names] for row in found])
    return Look("jsonl", encoding, skip, None, columns.recognise(names), names, True, samples)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def targets(names: list[str], resource: str, asked: dict[str, str | None]) -> list[str]:
    """Return where each column goes: as asked for, else as guessed."""
    guessed = columns.guess(names, resource)
    taken = {asked[name] for name in names if asked.get(name)}
    return [
        (asked[name] or "") if name in asked else "" if guess in taken and not guess.startswith("data.") else guess
        for name, guess in zip(names, guessed, strict=True)
    ]


def run(task: Task, report: Callable[[int], None]) -> dict[str, Any]:
    """Read a whole file and answer what came of it; `report` is told now and then how many rows were read."""
    path = Path(task.path)
    seen = look(path)
    goes = targets(seen.names, task.resource, task.map)
    is_own = seen.product == columns.OWN
    written = {} if is_own or task.resource == "suppressions" else _dates(path, seen, goes, task.date_order)
    reader = people.Reader(seen.names, goes, task.country, written, is_own)
    read = reader.suppressed if task.resource == "suppressions" else reader.person
    sink = Sink(Path(task.target))
    told = time.monotonic()
    cut = False
    for row in _rows(path, seen):
        if sink.good + sink.bad >= MAX_ROWS:
            sink.fault(row.line, f"the file has more than {MAX_ROWS} rows; the rest was left out", "")
            cut = True
            break
        if row.fault is not None:
            sink.fault(row.line, row.fault, str(row.cells))
        elif isinstance(row.cells, list) and _is_empty(row.cells):
            continue  # what a spreadsheet writes below its last row
        else:
            try:
                sink.person(read(row.line, row.cells))
            except imports_cells.Bad as fault:
                sink.fault(row.line, str(fault), _start(row.cells))
        if time.monotonic() - told > 0.3:
            told = time.monotonic()
            report(sink.good + sink.bad)
    sink.close()
    by_name = {seen.names[index]: verdict for index, verdict in written.items()}
    return {"total": sink.good + sink.bad, "failed": sink.bad, "cut": cut, "dates": by_name}


def _dates(path: Path, seen: Look, goes: list[str], order: Order | None) -> dict[int, Verdict]:
    """Return how the columns of dates are written, by their index; read to the end only where one may be ambiguous."""
    if seen.format != "csv":
        return {}
    columns_ = {
        index: imports_cells.Column()
        for index, target in enumerate(goes)
        if target.startswith("data.") or target in _DATED
    }
    open_ = dict(columns_)
    for row in _rows(path, seen):
        if not open_:
            break
        for index in list(open_) if row.fault is None else ():
            cell = imports_cells.clean(row.cells[index]) if index < len(row.cells) else ""
            if cell and cell not in imports_cells.BLANKS and not open_[index].add(cell):
                del open_[index]
    verdicts = {index: column.verdict(order) for index, column in columns_.items()}
    return {index: verdict for index, verdict in verdicts.items() if verdict is not None}


def _start(cells: Any) -> str:
    text = msgspec.json.encode(cells).decode() if isinstance(cells, dict) else ",".join(cells)
    return text[:200]


def _rows(path: Path, seen: Look) -> Iterator[Record]:
    found = read_lines(path, seen.encoding, seen.skip)
    if seen.format == "jsonl":
        return of_jsonl(found)
    for _ in range(seen.first):
        next(found, None)
    rows = of_csv(found, seen.delimiter or ",", seen.first + 1)
    if seen.headed:
        next(rows, None)
    return rows


def main() -> int:
    """Do one task for the service (see `children`)."""
    os.nice(5)
    teller = Teller()
    task = teller.task(Task)
    tokens.use_key(task.key)
    try:
        found = run(task, lambda count: teller.say({"rows": count}))
    except Unreadable as fault:
        found = {"unreadable": str(fault)}
    teller.say({"done": found})
    return 0
