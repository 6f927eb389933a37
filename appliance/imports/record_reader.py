"""Read the lines and records of a CSV or JSON lines file, and detect its encoding, delimiter and quotes."""

import codecs
import csv
import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.core.i18n import gettext_noop, gettext_stored

ROW_CHARACTERS = 65_536
_BLOCK = 262_144
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
MAX_SHOWN_CHARACTERS = 200


class OverlongLine(str):
    """The beginning (`MAX_SHOWN_CHARACTERS`) of a line that is longer than `ROW_CHARACTERS`."""


class BlankLines(str):
    """A run of `line_count` blank lines, which is skipped at once; as text it is empty."""

    line_count: int


def find_encoding(path: Path) -> tuple[str, int]:
    """Return the encoding of a file and the length of its byte order mark in bytes.

    Without a mark, UTF-16 is recognized by its zero bytes. Any other file is UTF-8, unless it has more bytes that are
    invalid in UTF-8 than valid characters outside of ASCII: then it is Windows-1252.
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
                # Each undecodable byte is one character. The codec counts in a tenth of the time of a loop.
                undecodable = len(text.encode("utf-8", "surrogateescape")) - len(text.encode("utf-8", "ignore"))
                invalid_count += undecodable
                valid_count += len(text) - len(text.encode("ascii", "ignore")) - undecodable
    return ("cp1252" if invalid_count > valid_count else "utf-8"), 0


def _do_nothing() -> None:
    pass


# A sequence of bytes that is a character in UTF-8, and hardly occurs in Windows-1252. The lead bytes from C4 to DF are
# capital letters in Windows-1252, which may precede a no-break space, a closing quote, a dash or a mark.
_UTF8_EVIDENCE = re.compile(
    rb"[\xc2\xc3][\x80-\xbf]|[\xc4-\xdf][^\x80\x85\x91-\x97\x99\xa0\xa9\xab\xae\xb0\xb2\xb3\xb9\xbb]|"
    rb"[\xe0-\xf4][\x80-\xbf]{2}"
)


def _decode_mixed(line: str) -> tuple[str, bool]:
    """Decode a line of a Windows-1252 file, given as Latin-1; return the text and whether the line is UTF-8.

    Rows that were pasted from another program into such a file are often UTF-8.
    """
    raw = line.encode("latin-1")
    if _UTF8_EVIDENCE.search(raw):
        try:
            return raw.decode("utf-8"), True
        except UnicodeDecodeError:
            pass  # The line is Windows-1252.
    return raw.decode("cp1252", "replace"), False


def read_lines(
    path: Path, name: str, skip: int, on_block: Callable[[], None] = _do_nothing,
    on_utf8_line: Callable[[int], None] | None = None,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a file without line ends, and an `OverlongLine` for a line that is too long.

    A run of more than `_MAX_QUOTED_LINES` blank lines is yielded as one `BlankLines`. `name` is the encoding. `skip` is
    the number of bytes before the first line. `on_block` is called after every `_BLOCK` bytes. A line of a Windows-1252
    file may be UTF-8; then `on_utf8_line` is called with its number.
    """
    if name != "cp1252":
        yield from _read_decoded_lines(path, name, skip, on_block)
        return
    number = 0
    # Latin-1 maps each byte to one character, so that the bytes of a line can be restored.
    for line in _read_decoded_lines(path, "latin-1", skip, on_block):
        number += count_lines(line)
        if line.isascii():
            yield line
            continue
        text, is_utf8 = _decode_mixed(line)
        if is_utf8 and on_utf8_line is not None:
            on_utf8_line(number)
        yield OverlongLine(text) if isinstance(line, OverlongLine) else text


def _read_decoded_lines(path: Path, name: str, skip: int, on_block: Callable[[], None]) -> Iterator[str]:
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
                    yield OverlongLine(line[:MAX_SHOWN_CHARACTERS])
                else:
                    yield line[:-1] if line.endswith("\r") else line
            if len(remainder) > ROW_CHARACTERS:
                overlong_start, remainder = overlong_start or remainder[:MAX_SHOWN_CHARACTERS], ""
            on_block()
            if not block:
                if overlong_start or remainder:
                    yield OverlongLine(overlong_start) if overlong_start else remainder.removesuffix("\r")
                return


def _split_lines(text: str, line_end: str) -> list[str]:
    """Return the lines of a text, with long runs of blank lines as `BlankLines`. The last line may be incomplete.

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
            number += count_lines(line) - 1
            continue
        fault = _find_line_error(line)
        if fault is not None:
            yield Record(number, line[:200], fault)
        elif '"' not in line:
            yield _check_width(number, line.split(separator))
        else:
            cells, further_lines = _parse_quoted(line, lines, ahead, separator)
            if cells is None:
                yield Record(number, line[:200], gettext_noop("the quotes are not closed or are misplaced"))
            else:
                yield _check_width(number, cells)
            number += further_lines


def _parse_quoted(line: str, lines: Iterator[str], ahead: deque[str], separator: str) -> tuple[list[str] | None, int]:
    """Return the cells of a line with quotes, and the number of further lines that they span.

    The further lines are taken from `ahead`, which is filled from `lines`. Return (None, 0) without taking lines if the
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


def count_lines(line: str) -> int:
    """Return the number of lines of the file that an element of `read_lines` represents."""
    return line.line_count if isinstance(line, BlankLines) else 1


def _parse_line(text: str, separator: str) -> list[str] | None:
    try:
        parsed_rows = list(csv.reader((text,), delimiter=separator, strict=True))
    except csv.Error:
        return None
    return parsed_rows[0] if len(parsed_rows) == 1 else None


_TOO_LONG = gettext_stored("the row is too long (maximum is %(limit)s characters)")
_TOO_MANY_COLUMNS = gettext_stored("the row has too many columns (maximum is %(limit)s)")


def _find_line_error(line: str) -> str | None:
    if isinstance(line, OverlongLine):
        return _TOO_LONG % {"limit": ROW_CHARACTERS}
    if "\0" in line:
        return gettext_noop("the row holds a NUL character")
    if not line.isascii() and _UNREADABLE.search(line):
        return gettext_noop("the row holds characters that its encoding does not allow")
    return None


def _check_width(number: int, cells: list[str]) -> Record:
    if len(cells) > MAX_COLUMNS:
        return Record(number, "", _TOO_MANY_COLUMNS % {"limit": MAX_COLUMNS})
    return Record(number, cells)


def read_jsonl(lines: Iterator[str], first: int = 1) -> Iterator[Record]:
    """Yield the records of JSON lines; blank lines are skipped. `first` is the number of the first line."""
    number = first - 1
    for line in lines:
        number += count_lines(line)
        if not line.strip():
            continue
        fault = _find_line_error(line)
        if fault is not None:
            yield Record(number, line[:200], fault)
            continue
        try:
            cells = _json.decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            yield Record(number, line[:200], gettext_noop("the line is not JSON"))
            continue
        if not isinstance(cells, dict):
            yield Record(number, line[:200], gettext_noop("the line is not a JSON object"))
        elif len(cells) > MAX_COLUMNS:
            yield Record(number, "", _TOO_MANY_COLUMNS % {"limit": MAX_COLUMNS})
        else:
            yield Record(number, cells)
