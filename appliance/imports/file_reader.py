"""Read an uploaded file of contacts or suppressions: find its format, preview it, and write its staging file.

A large file is read in a child process (see `main`), because reading keeps a processor busy.
"""

import codecs
import csv
import io
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from appliance.core import crypto
from appliance.core.executable import read_task, send_to_parent
from appliance.imports import cells as imports_cells
from appliance.imports import columns, staging
from appliance.imports.columns import DateFormat, DateOrder
from appliance.imports.numbers import DecimalMark, NumberColumn, NumberFormat, find_country_mark
from appliance.imports.staging import StagingWriter

ROW_CHARACTERS = 65_536
_BLOCK = 262_144
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_MAX_SHOWN_CHARACTERS = 200


class OverlongLine(str):
    """The first `_MAX_SHOWN_CHARACTERS` of a line that has more than `ROW_CHARACTERS`."""


class BlankLines(str):
    """A run of `line_count` blank lines, which is skipped at once; as text it is empty."""

    line_count: int


def find_encoding(path: Path) -> tuple[str, int]:
    """Return the encoding of a file and the length of its byte order mark.

    Without a mark, UTF-16 is recognized by its zero bytes. Any other file is UTF-8, or Windows-1252 if more of its
    bytes are invalid in UTF-8 than it has valid characters beyond ASCII.
    """
    with path.open("rb") as file:
        head = file.read(4096)
        for bom, name in _BOMS:
            if head.startswith(bom):
                return name, len(bom)
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) > len(head) // 8:
            return ("utf-16-be" if even > odd else "utf-16-le"), 0
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        valid_count = invalid_count = 0
        while block := file.read(_BLOCK):
            text = decoder.decode(block)
            if not text.isascii():
                undecodable = sum("\udc80" <= char <= "\udcff" for char in text)
                invalid_count += undecodable
                valid_count += sum(char > "\x7f" for char in text) - undecodable
    return ("cp1252" if invalid_count > valid_count else "utf-8"), 0


def _do_nothing() -> None:
    pass


def read_lines(path: Path, name: str, skip: int, on_block: Callable[[], None] = _do_nothing) -> Iterator[str]:
    """Yield the lines of a file without line ends, and an `OverlongLine` for a line that is too long.

    More than `_MAX_QUOTED_LINES` blank lines in a row are one `BlankLines`. `name` is the encoding. `skip` is the
    number of bytes before the first line. `on_block` is called after every `_BLOCK` bytes.
    """
    errors = "surrogateescape" if name == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(name)(errors)
    with path.open("rb") as file:
        file.seek(skip)
        remainder, overlong_start, line_end = "", "", None
        while True:
            block = file.read(_BLOCK)
            text = remainder + decoder.decode(block, final=not block)
            if line_end is None:
                # The lines of very old files end in a carriage return only.
                line_end = "\r" if "\n" not in text and "\r" in text[:-1] else "\n"
            *complete_lines, remainder = _split_lines(text, line_end)
            for line in complete_lines:
                if overlong_start:
                    yield OverlongLine(overlong_start)
                    overlong_start = ""
                elif len(line) > ROW_CHARACTERS:
                    yield OverlongLine(line[:_MAX_SHOWN_CHARACTERS])
                else:
                    yield line[:-1] if line.endswith("\r") else line
            if len(remainder) > ROW_CHARACTERS:
                overlong_start, remainder = overlong_start or remainder[:_MAX_SHOWN_CHARACTERS], ""
            on_block()
            if not block:
                if overlong_start or remainder:
                    yield OverlongLine(overlong_start) if overlong_start else remainder.removesuffix("\r")
                return


def _split_lines(text: str, line_end: str) -> list[str]:
    """Return the lines of a text, the last of which may be incomplete, with long runs of blank lines as `BlankLines`.

    A file of 100 MB may contain 100 million blank lines, which would take a minute to skip one by one.
    """
    lines: list[str] = []
    start = 0
    for match in _LINE_END_RUN.finditer(text):
        run_end = text.rfind(line_end, match.start(), match.end()) + 1
        count = text.count(line_end, match.start(), run_end)
        if count - 1 > _MAX_QUOTED_LINES:
            # The first line end of the run completes the line before it.
            lines += text[start : match.start()].split(line_end)
            blank_lines = BlankLines()
            blank_lines.line_count = count - 1
            lines.append(blank_lines)
            start = run_end
    return lines + text[start:].split(line_end)


MAX_COLUMNS = 200
_DELIMITERS = (",", ";", "\t", "|")
# A quoted cell may span this many further lines. If it is longer, its quote counts as unclosed.
_MAX_QUOTED_LINES = 1000
# A run is only searched at its first character, because trying each of its characters would take quadratic time.
_LINE_END_RUN = re.compile(f"(?<![\\r\\n])[\\r\\n]{{{_MAX_QUOTED_LINES},}}")
_UNREADABLE = re.compile("[\udc80-\udcff\ufffd]")
_json = msgspec.json.Decoder()

csv.field_size_limit(ROW_CHARACTERS * 2)


class Record(NamedTuple):
    """A record of a file, with the number of its first line.

    `cells` is a list in CSV, and a dict by column name in JSON lines. If the record is invalid, `fault` is the reason
    and `cells` the beginning of its line as text.
    """

    line: int
    cells: Any
    fault: str | None = None


def find_delimiter(line: str) -> str:
    """Return the delimiter that splits a line of column names into the most columns."""
    return max(_DELIMITERS, key=lambda delimiter: len(_parse_line(line, delimiter) or ()))


def read_csv(lines: Iterator[str], separator: str, first: int = 1) -> Iterator[Record]:
    """Yield the records of CSV lines; blank lines are skipped. `first` is the number of the first line."""
    ahead: deque[str] = deque()
    number = first - 1
    while True:
        line = ahead.popleft() if ahead else next(lines, None)
        if line is None:
            return
        number += 1
        if not line:
            number += _count_lines(line) - 1
            continue
        fault = _find_line_error(line)
        if fault is not None:
            yield Record(number, line[:200], fault)
        elif '"' not in line:
            yield _check_width(number, line.split(separator))
        else:
            cells, further_lines = _parse_quoted(line, lines, ahead, separator)
            if cells is None:
                yield Record(number, line[:200], "the quotes are not closed or stand in the wrong place")
            else:
                yield _check_width(number, cells)
            number += further_lines


def _parse_quoted(line: str, lines: Iterator[str], ahead: deque[str], separator: str) -> tuple[list[str] | None, int]:
    """Return the cells of a line with quotes, and the number of further lines that they span.

    The further lines are taken from `ahead`, which is filled from `lines`. Return (None, 0), and take no lines, if the
    quotes are invalid or the record is too long.
    """
    cells = _parse_line(line, separator)
    if cells is not None:
        return cells, 0
    if line.count('"') % 2 == 0:
        return None, 0
    quoted_lines, size = [line], len(line)
    for line_count in range(1, _MAX_QUOTED_LINES + 1):
        if line_count > len(ahead):
            ahead.extend(islice(lines, 1))
        further_line = ahead[line_count - 1] if line_count <= len(ahead) else None
        # An `OverlongLine` or `BlankLines` is longer than a record may be.
        if type(further_line) is not str:
            return None, 0
        quoted_lines.append(further_line)
        size += len(further_line) + 1
        if size > ROW_CHARACTERS:
            return None, 0
        if further_line and further_line.count('"') % 2:
            cells = _parse_line("\n".join(quoted_lines), separator)
            if cells is not None and "\0" not in "".join(cells):
                for _ in range(line_count):
                    ahead.popleft()
                return cells, line_count
            return None, 0
    return None, 0


def _count_lines(line: str) -> int:
    """Return the number of lines that an element of `read_lines` stands for."""
    return line.line_count if isinstance(line, BlankLines) else 1


def _parse_line(text: str, separator: str) -> list[str] | None:
    try:
        parsed_rows = list(csv.reader((text,), delimiter=separator, strict=True))
    except csv.Error:
        return None
    return parsed_rows[0] if len(parsed_rows) == 1 else None


def _find_line_error(line: str) -> str | None:
    if isinstance(line, OverlongLine):
        return f"the row is too long (maximum is {ROW_CHARACTERS} characters)"
    if "\0" in line:
        return "the row holds a NUL character"
    if not line.isascii() and _UNREADABLE.search(line):
        return "the row holds characters that its encoding does not allow"
    return None


def _check_width(number: int, cells: list[str]) -> Record:
    if len(cells) > MAX_COLUMNS:
        return Record(number, "", f"the row has too many columns (maximum is {MAX_COLUMNS})")
    return Record(number, cells)


def read_jsonl(lines: Iterator[str], first: int = 1) -> Iterator[Record]:
    """Yield the records of JSON lines; blank lines are skipped. `first` is the number of the first line."""
    number = first - 1
    for line in lines:
        number += _count_lines(line)
        if not line.strip():
            continue
        fault = _find_line_error(line)
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
# If none of this many rows at the start of a file can be read, reading ends with an error.
MAX_UNREADABLE_ROWS = 100_000
# The maximum number of rows with nothing in their cells. A spreadsheet may write all its 1,048,576 rows.
MAX_EMPTY_ROWS = 1_100_000
_REPORT_SECONDS = 0.3
_SAMPLES = 3
# The first bytes of an XLSX and an XLS workbook
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_PREVIEW_LINES = 20
# The row of column names is searched in this many lines, because titles and remarks may precede it.
_MAX_TITLE_LINES = 10
# Targets, in addition to custom data, of columns whose order of dates is detected
_DATED_TARGETS = ("opt_in_at", "opt_out_at", "unsubscribed", "bounced", "subscribed_email", "subscribed_phone")


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
    column_types: dict[str, Literal["text", "number"]] = {}
    # Whether rows that say neither yes nor no to consent are opted in like others
    opt_in_unstated: bool = True


class FilePreview(NamedTuple):
    """The format, columns and samples of a file, from its first lines.

    `format` is `csv` or `jsonl`. `skip` is the length of the byte order mark. `delimiter` is None for JSON lines.
    `headed` says whether the file has a row of column names; otherwise `names` are made up. `rows` has the cells of the
    first rows, and `samples` those of a few of them.
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


def preview_file(path: Path) -> FilePreview:
    """Return the preview of a file; raises UnreadableFile with the reason."""
    with path.open("rb") as file:
        if file.read(4) in _WORKBOOKS:
            raise UnreadableFile("the file is a workbook of a spreadsheet: save it as CSV first")
    encoding, skip = find_encoding(path)
    first_lines = list(islice(read_lines(path, encoding, skip), _PREVIEW_LINES * 5))
    header_index = next((index for index, line in enumerate(first_lines) if line.strip()), None)
    if header_index is None:
        raise UnreadableFile("the file is empty")
    if first_lines[header_index].lstrip().startswith("{"):
        return _preview_jsonl(encoding, skip, first_lines)
    separator = None
    if _is_separator(first_lines[header_index]):
        separator = first_lines[header_index][4]
        header_index += 1
    header_index = _find_header(first_lines, header_index, separator)
    if header_index >= len(first_lines) or isinstance(first_lines[header_index], OverlongLine):
        raise UnreadableFile("the first line is too long for a row of column names")
    separator = separator or find_delimiter(first_lines[header_index])
    records = list(read_csv(iter(first_lines[header_index:]), separator))
    if not records or records[0].fault is not None:
        raise UnreadableFile(
            f"the row of column names cannot be read: {records[0].fault if records else 'it is missing'}"
        )
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


def _choose_samples(rows: list[list[str]]) -> list[list[str]]:
    """Return up to `_SAMPLES` rows in file order, preferring rows that fill columns empty in the samples before."""
    chosen: list[int] = []
    covered: set[int] = set()
    for index, row in enumerate(rows):
        new_columns = {column for column, cell in enumerate(row) if cell.strip(imports_cells.SPACES)} - covered
        if new_columns and len(chosen) < _SAMPLES:
            chosen.append(index)
            covered |= new_columns
    remaining = [index for index in range(len(rows)) if index not in chosen]
    return [rows[index] for index in sorted([*chosen, *remaining[: _SAMPLES - len(chosen)]])]


def _is_separator(line: str) -> bool:
    return line.lower().startswith("sep=") and len(line) == 5


def _find_header(lines: list[str], start: int, separator: str | None) -> int:
    """Return the index of the line with the column names.

    It is the first of `_MAX_TITLE_LINES` that names a column of addresses. If there is none, or an address precedes it,
    it is line `start`. `separator` is the delimiter, or None to guess it.
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
        raise UnreadableFile("the file begins like JSON lines, but its lines are not JSON objects")
    names = list(dict.fromkeys(name for row in objects for name in row))[:MAX_COLUMNS]
    rows = [[_sample_text(row.get(name)) for name in names] for row in objects]
    product = columns.recognize_product(names)
    return FilePreview("jsonl", encoding, skip, None, product, names, True, _choose_samples(rows), rows)


def _sample_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def assign_targets(names: list[str], resource: str, mapping: dict[str, str | None]) -> list[str]:
    """Return the target of each column: that in `mapping` by column name, else a guess; "" skips the column.

    A guess that `mapping` gives to another column is replaced by "", except for custom data.
    """
    guessed = columns.guess_targets(names, resource)
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
    totals are `total` and `failed` (rows), `cut` (whether rows after the first `MAX_ROWS` were left out) and `columns`
    (what was found in each column, by name: the formats `dates` and `numbers`, a `number_example`, and the number of
    `number_exceptions`, which keep a column of amounts from being one of numbers; for a column of consent, the number
    of `unstated` rows, which say neither yes nor no in any such column).
    """
    path = Path(task.path)
    preview = preview_file(path)
    targets = assign_targets(preview.names, task.resource, task.map)
    is_own = preview.product == columns.OWN_EXPORT
    writer = StagingWriter(Path(task.target))
    reported_at = time.monotonic()

    def report_progress() -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at > _REPORT_SECONDS:
            reported_at = time.monotonic()
            report(writer.good + writer.bad)

    formats = (
        ColumnFormats({}, {}, {}, {})
        if is_own or task.resource == "suppressions"
        else _read_formats(path, preview, targets, task, report_progress)
    )
    texts = {index for index, name in enumerate(preview.names) if task.column_types.get(name) == "text"}
    reader = staging.PersonReader(
        preview.names, targets, task.country, formats.dates, is_own, numbers=formats.numbers, texts=texts,
        opt_in_unstated=task.opt_in_unstated,
    )  # fmt: skip
    read_person = reader.suppressed if task.resource == "suppressions" else reader.person
    is_truncated = False
    for row in _read_rows(path, preview, report_progress):
        report_progress()
        if writer.good + writer.bad >= MAX_ROWS:
            writer.fault(row.line, f"the file has more than {MAX_ROWS} rows; the rest was left out", "")
            is_truncated = True
            break
        if row.fault is not None:
            writer.fault(row.line, row.fault, str(row.cells))
        else:
            try:
                writer.person(read_person(row.line, row.cells))
            except imports_cells.InvalidRecord as fault:
                writer.fault(row.line, str(fault), _row_start(row.cells, preview.delimiter))
        if not writer.good and writer.bad >= MAX_UNREADABLE_ROWS:
            raise UnreadableFile(_NO_READABLE_ROW)
    writer.close()
    described = _describe_columns(preview.names, targets, formats, reader)
    return {"total": writer.good + writer.bad, "failed": writer.bad, "cut": is_truncated, "columns": described}


def _describe_columns(
    names: list[str], targets: list[str], formats: "ColumnFormats", reader: staging.PersonReader
) -> dict[str, dict[str, Any]]:
    """Return what was found in each column, by name (see `stage_file`)."""
    return {
        name: {
            "dates": formats.dates.get(index),
            "numbers": formats.numbers.get(index),
            "number_example": formats.number_examples.get(index),
            "number_exceptions": formats.number_exceptions.get(index, 0),
            "unstated": reader.unstated_counts.get(targets[index], 0),
        }
        for index, name in enumerate(names)
    }


_NO_READABLE_ROW = (
    f"this file has no rows that can be read: its first {MAX_UNREADABLE_ROWS:,} rows are empty or invalid"
)


def _read_rows(path: Path, preview: FilePreview, on_block: Callable[[], None]) -> Iterator[Record]:
    """Yield the records of a file without its empty rows, because spreadsheets write such rows below the last one.

    Raises UnreadableFile if the first `MAX_UNREADABLE_ROWS` are empty or invalid. After `MAX_EMPTY_ROWS` empty rows a
    record with a fault is the last one.
    """
    empty_count = fault_count = 0
    has_readable_row = False
    for row in _read_records(path, preview, on_block):
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
            yield Record(row.line, "", f"the file has {MAX_EMPTY_ROWS} empty rows; the rest of the file was left out")
            return


class ColumnFormats(NamedTuple):
    """The formats of columns of dates and numbers, by column index, with an example and the exceptions of numbers."""

    dates: dict[int, DateFormat]
    numbers: dict[int, NumberFormat]
    number_examples: dict[int, str]
    number_exceptions: dict[int, int]


def _read_formats(
    path: Path, preview: FilePreview, targets: list[str], task: StagingTask, on_block: Callable[[], None]
) -> ColumnFormats:
    """Return the formats of columns, none for JSON lines. Reading ends once no column may have dates or numbers."""
    if preview.format != "csv":
        return ColumnFormats({}, {}, {}, {})
    types = [task.column_types.get(name) for name in preview.names]
    date_columns = {
        index: columns.DateColumn()
        for index, target in enumerate(targets)
        if (target.startswith("data.") and types[index] is None) or target in _DATED_TARGETS
    }
    number_columns = {
        index: NumberColumn(is_forced=types[index] == "number")
        for index, target in enumerate(targets)
        if target.startswith("data.") and types[index] != "text"
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
    dates = {index: column.verdict(task.date_order) for index, column in date_columns.items()}
    # Another column of the file shows the decimal mark better than the country does.
    file_marks = {mark for column in number_columns.values() if (mark := column.mark) is not None}
    mark = task.decimal_mark or (
        file_marks.pop() if len(file_marks) == 1 else find_country_mark(task.country, preview.delimiter)
    )
    numbers = {index: column.verdict(mark) for index, column in number_columns.items()}
    return ColumnFormats(
        {index: verdict for index, verdict in dates.items() if verdict is not None},
        {index: verdict for index, verdict in numbers.items() if verdict is not None and not dates.get(index)},
        {index: number_columns[index].example for index, verdict in numbers.items() if verdict is not None},
        {index: column.exceptions for index, column in number_columns.items() if not dates.get(index)},
    )


def _row_start(cells: Any, delimiter: str | None) -> str:
    """Return the first `_MAX_SHOWN_CHARACTERS` of a record as the file has it."""
    if delimiter is None:
        return msgspec.json.encode(cells).decode()[:_MAX_SHOWN_CHARACTERS]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(cells)
    return text.getvalue()[:_MAX_SHOWN_CHARACTERS]


def _read_records(path: Path, preview: FilePreview, on_block: Callable[[], None]) -> Iterator[Record]:
    lines = read_lines(path, preview.encoding, preview.skip, on_block)
    if preview.format == "jsonl":
        return read_jsonl(lines)
    skipped_count = sum(_count_lines(line) for line in islice(lines, preview.first))
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
