"""Preview an uploaded file of contacts or suppressions, and write its staging file.

`record_reader.py` reads the lines and records of the file. A large file is read in a child process (see `main`),
because reading needs a whole processor.
"""

import csv
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from appliance.core import crypto
from appliance.core.executable import read_task, send_to_parent
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.imports import cells as imports_cells
from appliance.imports import columns
from appliance.imports.columns import DateFormat, DateOrder
from appliance.imports.detection import DecimalMark, NumberColumn, NumberFormat, find_country_mark, has_full_names
from appliance.imports.people import PersonReader
from appliance.imports.record_reader import (
    MAX_COLUMNS,
    MAX_SHOWN_CHARACTERS,
    OverlongLine,
    Record,
    count_lines,
    find_delimiter,
    find_encoding,
    read_csv,
    read_jsonl,
    read_lines,
)
from appliance.imports.staging import StagingWriter

MAX_ROWS = 1_000_000
# If none of this many rows at the start of a file can be read, reading ends with an error.
MAX_UNREADABLE_ROWS = 100_000
# The maximum number of empty rows. A spreadsheet may write all its 1,048,576 rows.
MAX_EMPTY_ROWS = 1_100_000
_REPORT_SECONDS = 0.3
_SAMPLES = 3
# The first bytes of a ZIP file, which an XLSX workbook is too, and of an XLS workbook
_ZIP, _XLS = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_PREVIEW_LINES = 20
# The row of column names is one of this many first lines, because titles and remarks may precede it.
_MAX_TITLE_LINES = 10
# Targets, in addition to custom data, of columns whose order of dates is detected
_DATED_TARGETS = ("opt_in_at", "opt_out_at", "unsubscribed", "bounced", "subscribed_email", "subscribed_phone")
# Those of them that have nothing but dates, so that a number is the day number of a spreadsheet
_DATES_ONLY = ("opt_in_at", "opt_out_at")


class StagingTask(Struct):
    """A file to read (`path`) into a staging file (`target`); `map` has the targets of columns by name."""

    path: str
    target: str
    resource: str
    map: dict[str, str | None]
    # The key of the installation, which a child process needs for the hashes of addresses
    key: bytes = b""
    # The two-letter country of phone numbers without a country code
    country: str | None = None
    # The order of dates in columns whose values do not show it
    date_order: DateOrder | None = None
    # The decimal mark of numbers in columns whose values do not show it
    decimal_mark: DecimalMark | None = None
    # Types by column name, for columns whose type is not detected
    column_types: dict[str, Literal["text", "number", "date"]] = {}
    # Whether rows whose consent is neither yes nor no are opted in as well
    opt_in_unstated: bool = True


class FilePreview(NamedTuple):
    """The format, columns and samples of a file, from its first lines.

    `format` is `csv` or `jsonl`. `skip` is the length of the byte order mark in bytes. `delimiter` is None for JSON
    lines. `headed` says that the file has a row of column names; otherwise `names` are generated. `rows` has the cells
    of the first rows, and `samples` the cells of a few of them.
    """

    format: str
    encoding: str
    skip: int
    delimiter: str | None
    product: str | None
    names: list[str]
    headed: bool
    samples: list[list[str]]
    rows: list[list[str]]
    # The number of lines above the row of column names
    first: int = 0


class UnreadableFile(Exception):
    """A file that cannot be read as a table; the message is the reason."""


# The first bytes of files that are not text: JPEG, PNG, GIF, PDF, gzip, 7z, RAR, and text in UTF-32
_NO_TEXTS = (
    b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"%PDF", b"\x1f\x8b", b"7z\xbc\xaf", b"Rar!", b"\xff\xfe\0\0",
    b"\0\0\xfe\xff",
)  # fmt: skip
# The name of a file in every workbook of Excel, OpenDocument and Numbers. The directory of a ZIP file is at its end.
_WORKBOOK_PARTS = (b"[Content_Types].xml", b"META-INF/manifest.xml", b"Index/Document.iwa")
_ZIP_END_BYTES = 65_536


def preview_file(path: Path) -> FilePreview:
    """Return the preview of a file; raises UnreadableFile with the reason."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == _ZIP and not _is_workbook(path):
        raise UnreadableFile(gettext_noop("the file is a ZIP archive: extract it, and upload the CSV file in it"))
    if start in (_ZIP, _XLS):
        raise UnreadableFile(gettext_noop("the file is a workbook of a spreadsheet: save it as CSV first"))
    if start.startswith(_NO_TEXTS):
        raise UnreadableFile(gettext_noop("this is not a text file: upload a CSV or JSON Lines file"))
    encoding, skip = find_encoding(path)
    first_lines = list(islice(read_lines(path, encoding, skip), _PREVIEW_LINES * 5))
    header_index = next((index for index, line in enumerate(first_lines) if line.strip()), None)
    if header_index is None:
        raise UnreadableFile(gettext_noop("the file is empty"))
    if first_lines[header_index].lstrip().startswith("{"):
        return _preview_jsonl(encoding, skip, first_lines)
    separator = None
    if _is_separator(first_lines[header_index]):
        separator = first_lines[header_index][4]
        header_index += 1
    header_index = _find_header(first_lines, header_index, separator)
    if header_index >= len(first_lines) or isinstance(first_lines[header_index], OverlongLine):
        raise UnreadableFile(gettext_noop("the first line is too long for a row of column names"))
    separator = separator or find_delimiter(first_lines[header_index])
    records = list(read_csv(iter(first_lines[header_index:]), separator))
    if not records or records[0].fault is not None:
        reason = records[0].fault if records else gettext_noop("it is missing")
        raise UnreadableFile(_NO_COLUMN_NAMES % {"reason": reason})
    names = [str(cell).strip("\ufeff ").strip() for cell in records[0].cells]
    has_header = not any("@" in name for name in names)
    rows = [row.cells for row in records[1 if has_header else 0 :] if row.fault is None and not _is_empty(row.cells)]
    if not has_header:
        names = [_name_by_content(cell, index) for index, cell in enumerate(names)]
    names = _make_unique(names)
    return FilePreview(
        "csv",
        encoding,
        skip,
        separator,
        columns.recognize_product(names),
        names,
        has_header,
        _choose_samples(rows),
        rows,
        header_index,
    )


def _is_workbook(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _ZIP_END_BYTES))
        end = file.read()
    return any(name in end for name in _WORKBOOK_PARTS)


def _choose_samples(rows: list[list[str]]) -> list[list[str]]:
    """Return up to `_SAMPLES` rows in file order that together fill as many columns as possible, with various values.

    Placeholders such as `n/a` count as empty.
    """
    values = [{(column, cell) for column, cell in enumerate(row) if not _is_blank(cell)} for row in rows]
    columns_of_rows = [{column for column, _ in cells} for cells in values]
    chosen: list[int] = []
    seen: set[tuple[int, str]] = set()
    filled: set[int] = set()
    while len(chosen) < min(_SAMPLES, len(rows)):
        remaining = [index for index in range(len(rows)) if index not in chosen]
        best = max(remaining, key=lambda index: (len(columns_of_rows[index] - filled), len(values[index] - seen)))
        chosen.append(best)
        seen |= values[best]
        filled |= columns_of_rows[best]
    return [rows[index] for index in sorted(chosen)]


def _is_blank(cell: str) -> bool:
    cell = cell.strip(imports_cells.SPACES)
    return not cell or cell in imports_cells.BLANKS


def _is_separator(line: str) -> bool:
    return line.lower().startswith("sep=") and len(line) == 5


def _find_header(lines: list[str], start: int, separator: str | None) -> int:
    """Return the index of the line with the column names.

    It is the first of `_MAX_TITLE_LINES` lines that names a column of addresses. If there is none, or if a line with an
    address precedes it, it is the line `start`. `separator` is the delimiter, or None to guess it.
    """
    for index, line in enumerate(lines[start : start + _MAX_TITLE_LINES], start):
        if not line.strip() or isinstance(line, OverlongLine):
            continue
        row = next(read_csv(iter([line]), separator or find_delimiter(line)), None)
        if row is None or row.fault is not None or any("@" in cell for cell in row.cells):
            break
        if {"email", "phone", "channels"} & set(columns.guess_targets(row.cells)):
            return index
    return start


def _is_empty(row: list[str]) -> bool:
    return not any(cell.strip(imports_cells.SPACES) for cell in row)


def _name_by_content(cell: str, index: int) -> str:
    """Return a name for column `index` of a file without column names, by the cell in its first row."""
    return "email" if "@" in cell else f"column_{index + 1}"


def _make_unique(names: list[str]) -> list[str]:
    used_names: set[str] = set()
    for index, name in enumerate(names):
        name, number = name or f"column_{index + 1}", 2
        while names[index] in used_names or not names[index]:
            names[index], number = f"{name}_{number}" if name in used_names else name, number + 1
        used_names.add(names[index])
    return names


def _preview_jsonl(encoding: str, skip: int, lines: list[str]) -> FilePreview:
    objects = [row.cells for row in read_jsonl(iter(lines)) if row.fault is None]
    if not objects:
        raise UnreadableFile(gettext_noop("the file begins like JSON lines, but its lines are not JSON objects"))
    names = list(dict.fromkeys(name for row in objects for name in row))[:MAX_COLUMNS]
    rows = [[_sample_text(row.get(name)) for name in names] for row in objects]
    product = columns.recognize_product(names)
    return FilePreview("jsonl", encoding, skip, None, product, names, True, _choose_samples(rows), rows)


def _sample_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def assign_targets(preview: FilePreview, resource: str, mapping: dict[str, str | None]) -> list[str]:
    """Return the target field of each column: the one in `mapping`, else a guess, else "" (skip).

    `mapping` is by column name; None or "" skips a column. Guesses use the column names, but a column of last names
    whose values are full names gets the target `name`. A guess is dropped if `mapping` assigns its field to another
    column, unless it is a custom field.
    """
    names = preview.names
    guessed = columns.guess_targets(names, resource)
    has_other_names = {"name", "first_name"} & {*guessed, *mapping.values()}
    if "last_name" in guessed and not has_other_names:
        index = guessed.index("last_name")
        if has_full_names(row[index] for row in preview.rows if index < len(row)):
            guessed[index] = "name"
    requested = {mapping[name] for name in names if mapping.get(name)}
    return [
        (mapping[name] or "")
        if name in mapping
        else ""
        if guess in requested and not guess.startswith("data.")
        else guess
        for name, guess in zip(names, guessed, strict=True)
    ]


def stage_file(task: StagingTask, report: Callable[[int], None]) -> dict[str, Any]:
    """Read the file of a task into its staging file, and return the totals; raises UnreadableFile.

    `report` is called with the number of rows so far, every `_REPORT_SECONDS` while the file is read. The keys of the
    totals are `total` and `failed` (numbers of rows), `cut` (whether rows after the first `MAX_ROWS` were left out) and
    `columns` (see `_describe_columns`).
    """
    path = Path(task.path)
    preview = preview_file(path)
    targets = assign_targets(preview, task.resource, task.map)
    is_own = preview.product == columns.OWN_EXPORT
    writer = StagingWriter(Path(task.target))
    reported_at = time.monotonic()

    def report_progress() -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at > _REPORT_SECONDS:
            reported_at = time.monotonic()
            report(writer.good + writer.bad)

    formats = (
        ColumnFormats({}, {}, {}, {}, {})
        if is_own or task.resource == "suppressions"
        else _read_formats(path, preview, targets, task, report_progress)
    )
    # In a column of the type date, a value that is no date stays text.
    texts = formats.texts | {
        index for index, name in enumerate(preview.names) if task.column_types.get(name) in ("text", "date")
    }
    reader = PersonReader(
        preview.names, targets, task.country, formats.dates, is_own, numbers=formats.numbers, texts=texts,
        opt_in_unstated=task.opt_in_unstated, day_numbers=formats.day_numbers.keys(),
    )  # fmt: skip
    read_person = reader.suppressed if task.resource == "suppressions" else reader.person
    is_truncated = False
    left_out = LeftOutColumns(preview, targets)
    for row in _read_rows(path, preview, report_progress, writer.add_utf8_line):
        report_progress()
        left_out.add(row)
        if writer.good + writer.bad >= MAX_ROWS:
            writer.add_fault(row.line, _TOO_MANY_ROWS % {"limit": MAX_ROWS}, "")
            is_truncated = True
            break
        if row.fault is not None:
            writer.add_fault(row.line, row.fault, str(row.cells))
        else:
            try:
                writer.add_person(read_person(row.line, row.cells))
            except imports_cells.InvalidRecord as fault:
                writer.add_fault(row.line, str(fault), _row_start(row.cells, preview.delimiter))
        if not writer.good and writer.bad >= MAX_UNREADABLE_ROWS:
            raise UnreadableFile(_NO_READABLE_ROW)
    writer.close()
    described = _describe_columns(preview.names, targets, formats, reader, left_out)
    return {"total": writer.good + writer.bad, "failed": writer.bad, "cut": is_truncated, "columns": described}


def _describe_columns(
    names: list[str], targets: list[str], formats: "ColumnFormats", reader: PersonReader, left_out: "LeftOutColumns"
) -> dict[str, dict[str, Any]]:
    """Return a description of each column, by its name.

    The keys of a description are:

    - `dates` and `numbers`: the formats, or None if the column has none
    - `day_number`: the first day number of a spreadsheet that is read as a date, or None
    - `number_example`: a value of a column of numbers
    - `number_exceptions`: the number of values that are not numbers, because of which a column of amounts stays text
    - `exception_examples`: the first of them
    - `unstated`: in a column of consent, the number of rows that say neither yes nor no in any such column
    - `left_out`: in a column that is not imported and looked empty, the number of rows with a value
    """
    return {
        name: {
            "dates": formats.dates.get(index),
            "day_number": formats.day_numbers.get(index) or None,
            "numbers": formats.numbers.get(index),
            "number_example": formats.number_examples.get(index),
            "number_exceptions": formats.number_exceptions.get(index, 0),
            "exception_examples": formats.exception_examples.get(index, []),
            "unstated": reader.unstated_counts.get(targets[index], 0),
            "left_out": left_out.counts.get(index, 0),
        }
        for index, name in enumerate(names)
    }


class LeftOutColumns:
    """The columns of a file that are not imported and have no value in its preview.

    `counts` has the number of rows with a value in each of them, by index: the preview has only the first rows.
    """

    def __init__(self, preview: FilePreview, targets: list[str]) -> None:
        self.counts = {
            index: 0 for index, target in enumerate(targets)
            if not target and not any(row[index].strip() for row in preview.rows if index < len(row))
        }  # fmt: skip

    def add(self, row: Record) -> None:
        """Count the values of a row. The columns of JSON lines are not counted."""
        if not self.counts or row.fault is not None or not isinstance(row.cells, list):
            return
        for index in self.counts:
            self.counts[index] += index < len(row.cells) and bool(row.cells[index].strip(imports_cells.SPACES))


_NO_READABLE_ROW = gettext_stored(
    "this file has no rows that can be read: its first %(limit)s rows are empty or invalid"
) % {"limit": f"{MAX_UNREADABLE_ROWS:,}"}
_TOO_MANY_ROWS = gettext_stored("the file has more than %(limit)s rows; the rest was left out")
_TOO_MANY_EMPTY_ROWS = gettext_stored("the file has %(limit)s empty rows; the rest of the file was left out")
_NO_COLUMN_NAMES = gettext_stored("the row of column names cannot be read: %(reason)s")


def _read_rows(
    path: Path, preview: FilePreview, on_block: Callable[[], None], on_utf8_line: Callable[[int], None] | None = None
) -> Iterator[Record]:
    """Yield the records of a file without its empty rows, which spreadsheets write below the last one.

    Raises UnreadableFile if the first `MAX_UNREADABLE_ROWS` rows are empty or invalid. After `MAX_EMPTY_ROWS` empty
    rows, the last record has a fault that says so.
    """
    empty_count = fault_count = 0
    has_readable_row = False
    for row in _read_records(path, preview, on_block, on_utf8_line):
        if row.fault is not None:
            fault_count += 1
            yield row
        elif isinstance(row.cells, list) and _is_empty(row.cells):
            empty_count += 1
            on_block()
        else:
            has_readable_row = True
            yield row
            continue
        if not has_readable_row and empty_count + fault_count >= MAX_UNREADABLE_ROWS:
            raise UnreadableFile(_NO_READABLE_ROW)
        if empty_count >= MAX_EMPTY_ROWS:
            yield Record(row.line, "", _TOO_MANY_EMPTY_ROWS % {"limit": MAX_EMPTY_ROWS})
            return


class ColumnFormats(NamedTuple):
    """The formats of columns of dates and numbers, by column index, and the indexes of columns that stay text.

    `day_numbers` has the columns in which day numbers of spreadsheets are dates, with the first of these numbers or "".
    `_describe_columns` describes `number_examples`, `number_exceptions` and `exception_examples`.
    """

    dates: dict[int, DateFormat]
    numbers: dict[int, NumberFormat]
    number_examples: dict[int, str]
    number_exceptions: dict[int, int]
    exception_examples: dict[int, list[str]]
    texts: Set[int] = frozenset()
    day_numbers: Mapping[int, str] = MappingProxyType({})


def _read_formats(
    path: Path, preview: FilePreview, targets: list[str], task: StagingTask, on_block: Callable[[], None]
) -> ColumnFormats:
    """Return the formats of the columns; JSON lines have none. Stop once no column may have dates or numbers."""
    if preview.format != "csv":
        return ColumnFormats({}, {}, {}, {}, {})
    types = [task.column_types.get(name) for name in preview.names]
    date_columns = {
        index: columns.DateColumn(is_chosen=target in _DATES_ONLY or types[index] == "date")
        for index, target in enumerate(targets)
        if (target.startswith("data.") and types[index] in (None, "date")) or target in _DATED_TARGETS
    }
    number_columns = {
        index: NumberColumn(is_forced=types[index] == "number")
        for index, target in enumerate(targets)
        if target.startswith("data.") and types[index] not in ("text", "date")
    }
    undecided: list[tuple[int, columns.DateColumn | NumberColumn]] = [*date_columns.items(), *number_columns.items()]
    for row in _read_rows(path, preview, on_block):
        if not undecided:
            break
        if row.fault is not None:
            continue
        remaining = []
        for index, column in undecided:
            cell = imports_cells.clean_cell(row.cells[index]) if index < len(row.cells) else ""
            if not cell or cell in imports_cells.BLANKS or column.add(cell):
                remaining.append((index, column))
        undecided = remaining
    dates = {index: column.get_format(task.date_order) for index, column in date_columns.items()}
    # Another column of the file shows the decimal mark better than the country does.
    file_marks = {mark for column in number_columns.values() if (mark := column.mark) is not None}
    mark = task.decimal_mark or (
        file_marks.pop() if len(file_marks) == 1 else find_country_mark(task.country, preview.delimiter)
    )
    numbers = {index: column.get_format(mark) for index, column in number_columns.items()}
    return ColumnFormats(
        {index: verdict for index, verdict in dates.items() if verdict is not None},
        {index: verdict for index, verdict in numbers.items() if verdict is not None and not dates.get(index)},
        {index: number_columns[index].example for index, verdict in numbers.items() if verdict is not None},
        {index: column.exception_count for index, column in number_columns.items() if not dates.get(index)},
        {index: column.exception_examples for index, column in number_columns.items() if column.exception_count},
        {index for index, column in number_columns.items() if column.has_leading_zeros and types[index] is None},
        {index: column.day_number for index, column in date_columns.items() if column.is_chosen},
    )


def _row_start(cells: Any, delimiter: str | None) -> str:
    """Return the first `MAX_SHOWN_CHARACTERS` characters of a record as they are in the file."""
    if delimiter is None:
        return msgspec.json.encode(cells).decode()[:MAX_SHOWN_CHARACTERS]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(cells)
    return text.getvalue()[:MAX_SHOWN_CHARACTERS]


def _read_records(
    path: Path, preview: FilePreview, on_block: Callable[[], None], on_utf8_line: Callable[[int], None] | None
) -> Iterator[Record]:
    lines = read_lines(path, preview.encoding, preview.skip, on_block, on_utf8_line)
    if preview.format == "jsonl":
        return read_jsonl(lines)
    skipped_count = sum(count_lines(line) for line in islice(lines, preview.first))
    records = read_csv(lines, preview.delimiter or ",", skipped_count + 1)
    if preview.headed:
        next(records, None)
    return records


def main() -> int:
    """Read a task from the parent process, stage its file, and send progress and result (see `core.executable`)."""
    os.nice(5)
    task = read_task(StagingTask)
    crypto.use_key(task.key)
    try:
        result = stage_file(task, lambda count: send_to_parent({"rows": count}))
    except UnreadableFile as fault:
        result = {"unreadable": str(fault)}
    send_to_parent({"done": result})
    return 0
