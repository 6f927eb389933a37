"""Reads a file of people into its staging file, in a child process because it is all processor time."""

import os
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from appliance import tokens
from appliance.children import Teller
from appliance.importing import cells, columns, lines, people, records
from appliance.importing.records import Record
from appliance.importing.staging import Sink

MOST_ROWS = 1_000_000
_SAMPLES = 3
# How files of Excel begin, and of others like it
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_LOOK = 20


class Task(Struct):
    """What a child process is asked for."""

    path: str
    target: str
    resource: str
    map: dict[str, str | None]
    data_dir: str = ""


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


class Unreadable(Exception):
    """A file without a table in it; its text says why."""


def look(path: Path) -> Look:
    """Answer format, encoding, columns and samples of a file; raises Unreadable."""
    with path.open("rb") as file:
        if file.read(4) in _WORKBOOKS:
            raise Unreadable("the file is a workbook of a spreadsheet: save it as CSV first")
    encoding, skip = lines.encoding(path)
    head = list(islice(lines.read(path, encoding, skip), _LOOK * 5))
    first = next((index for index, line in enumerate(head) if line.strip()), None)
    if first is None:
        raise Unreadable("the file is empty")
    if head[first].lstrip().startswith("{"):
        return _look_jsonl(encoding, skip, head)
    separator = None
    if head[first].lower().startswith("sep=") and len(head[first]) == 5:
        separator = head[first][4]
        first += 1
    if first >= len(head) or isinstance(head[first], lines.TooLong):
        raise Unreadable("the first line is too long for a row of column names")
    separator = separator or records.delimiter(head[first])
    found = list(records.of_csv(iter(head[first:]), separator))
    if not found or found[0].fault is not None:
        raise Unreadable(f"the row of column names cannot be read: {found[0].fault if found else 'it is missing'}")
    names = [str(cell).strip("\ufeff ").strip() for cell in found[0].cells]
    headed = not any("@" in name for name in names)
    samples = [row.cells for row in found[1 if headed else 0 :] if row.fault is None][:_SAMPLES]
    if not headed:
        names = [_content(cell, index) for index, cell in enumerate(names)]
    return Look("csv", encoding, skip, separator, columns.recognise(names), _unique(names), headed, samples)


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
    found = [row.cells for row in records.of_jsonl(iter(head)) if row.fault is None]
    if not found:
        raise Unreadable("the file begins like JSON lines, but its lines are not JSON objects")
    names = list(dict.fromkeys(name for row in found for name in row))[: records.MOST_COLUMNS]
    samples = [[_shown(row.get(name)) for name in names] for row in found[:_SAMPLES]]
    return Look("jsonl", encoding, skip, None, columns.recognise(names), names, True, samples)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def targets(names: list[str], resource: str, asked: dict[str, str | None]) -> list[str]:
    """Answer where each column goes: as asked for, else as guessed."""
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
    reader = people.Reader(seen.names, goes)
    read = reader.suppressed if task.resource == "suppressions" else reader.person
    sink = Sink(Path(task.target))
    told = time.monotonic()
    cut = False
    for row in _rows(path, seen):
        if sink.good + sink.bad >= MOST_ROWS:
            sink.fault(row.line, f"the file has more than {MOST_ROWS} rows; the rest was left out", "")
            cut = True
            break
        if row.fault is not None:
            sink.fault(row.line, row.fault, str(row.cells))
        else:
            try:
                sink.person(read(row.line, row.cells))
            except cells.Bad as fault:
                sink.fault(row.line, str(fault), _start(row.cells))
        if time.monotonic() - told > 0.3:
            told = time.monotonic()
            report(sink.good + sink.bad)
    sink.close()
    return {"total": sink.good + sink.bad, "failed": sink.bad, "cut": cut}


def _start(cells: Any) -> str:
    text = msgspec.json.encode(cells).decode() if isinstance(cells, dict) else ",".join(cells)
    return text[:200]


def _rows(path: Path, seen: Look) -> Iterator[Record]:
    found = lines.read(path, seen.encoding, seen.skip)
    if seen.format == "jsonl":
        return records.of_jsonl(found)
    first, number = "", 0
    for line in found:
        number += 1
        if line.strip() and not (line.lower().startswith("sep=") and len(line) == 5):
            first = line
            break
    rows = records.of_csv(chain((first,), found), seen.delimiter or ",", number)
    if seen.headed:
        next(rows, None)
    return rows


def main() -> int:
    """Do one task for the service (see `children`)."""
    os.nice(5)
    teller = Teller()
    task = teller.task(Task)
    tokens.load_key(Path(task.data_dir))
    try:
        found = run(task, lambda count: teller.say({"rows": count}))
    except Unreadable as fault:
        found = {"unreadable": str(fault)}
    teller.say({"done": found})
    return 0
