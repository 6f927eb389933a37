"""The output of commands: tables, JSON (filtered by `--jq` if wanted), progress and questions.

Untrusted text is cleaned before it reaches a terminal: names, subjects and error messages come from contacts and
servers. Control characters in them could move the cursor, change the title of a terminal or hide text, and characters
that change the direction of writing could disguise it (CVE-2021-42574; T53 in docs/threats.md).
"""

import argparse
import codecs
import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from appliance.remote.errors import CommandError, UsageError

MAX_CELL_CHARACTERS = 60  # on a terminal
# Joiners are part of emoji and of words in Persian and Indian scripts.
_JOINERS = "\u200c\u200d"


def clean(text: str, kept: str = "") -> str:
    """Return a text in which characters without a visible form, except those in `kept`, are replaced by `?`."""
    if text.isprintable():
        return text
    kept += _JOINERS
    return "".join(character if character.isprintable() or character in kept else "?" for character in text)


def clean_line(text: str) -> str:
    """Return a text on one line, with single spaces, and without invisible characters (see `clean`)."""
    return clean(" ".join(text.split()))


def _escape(match: "re.Match[str]") -> str:
    character = match[0]
    if character.isprintable() or character in _JOINERS:
        return character
    return json.dumps(character)[1:-1]


def _dump_json(value: Any, is_terminal: bool) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2 if is_terminal else None)
    # Surrogates cannot be written as UTF-8. On a terminal, characters outside of ASCII may be invisible.
    return re.sub(r"[^\n -~]" if is_terminal else r"[\ud800-\udfff]", _escape, text)


def print_json(value: Any) -> None:
    """Print a value as JSON: indented and with invisible characters escaped on a terminal, else on one line."""
    print(_dump_json(value, sys.stdout.isatty()), flush=True)


def print_text(text: str) -> None:
    """Print a text of several lines; on a terminal invisible characters are replaced."""
    print(clean(text, "\n\t") if sys.stdout.isatty() else text.encode(errors="replace").decode(), flush=True)


def write_bytes(chunks: Iterable[bytes]) -> None:
    """Write a body to stdout: unchanged, or on a terminal as text without invisible characters."""
    sys.stdout.flush()
    if not sys.stdout.isatty():
        target: BinaryIO = sys.stdout.buffer
        for chunk in chunks:
            target.write(chunk)
        target.flush()
        return
    last, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in (*chunks, b""):
        # CSV lines end in CRLF; a carriage return elsewhere would overwrite the line.
        text = decoder.decode(chunk, final=not chunk).replace("\r\n", "\n")
        last = clean(text, "\n\t") or last
        sys.stdout.write(clean(text, "\n\t"))
    if last and not last.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[: MAX_CELL_CHARACTERS - 1]}…"


def format_cell(value: Any) -> str:
    """Return a value as the clean text of a table cell: `-` for null and empty texts, `yes` and `no` for booleans."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean_line(str(value))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows in columns below titles, or nothing without rows. Long cells are shortened on a terminal only."""
    shorten = _shorten if sys.stdout.isatty() else str
    cells = [[shorten(format_cell(value)) for value in row] for row in rows]
    if not cells:
        return
    lines = [list(titles), *cells]
    widths = [max(_width(line[number]) for line in lines) for number in range(len(titles))]
    for line in lines:
        padded = (text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print each name and value on a line, with the values aligned; at least one is required."""
    pairs = [(name, format_cell(value)) for name, value in fields]
    width = max(len(name) for name, _ in pairs) + 2
    for name, value in pairs:
        print(f"{name + ':':<{width}}{value}")


def print_note(text: str) -> None:
    """Print a note on stderr, so that stdout contains only the output of the command."""
    print(clean(text, "\n"), file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """Print an error on stderr, with its second and further lines indented."""
    first, *others = [line for line in text.split("\n") if line.strip()] or [""]
    print(f"campanero: {clean_line(first)}", file=sys.stderr)
    for line in others:
        print(f"  {clean_line(line)}", file=sys.stderr)
    sys.stderr.flush()


class Progress:
    """A line on stderr that each change overwrites, as a context manager; without a terminal nothing is printed."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._line = ""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, text: str, share: float | None = None) -> None:
        """Show a text, with a share from 0 to 1 as a percentage."""
        line = clean_line(text if share is None else f"{text} {share:4.0%}")
        line = line[: max(20, shutil.get_terminal_size().columns - 1)]
        if self._is_shown and line != self._line:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._line = line


def confirm(question: str) -> None:
    """Return if the user answers yes. Raises CommandError after any other answer, and UsageError without a terminal."""
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError("this needs a confirmation: use --yes where nobody can be asked")
    print(f"{clean_line(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")


def compile_filter(expression: str | None) -> Any:
    """Return the compiled program of a jq expression (jqlang.org), or None for None. Raises UsageError."""
    if expression is None:
        return None
    import jq  # an extension of a megabyte, which only this option needs

    try:
        return jq.compile(expression)
    except ValueError as error:
        raise UsageError(f"--jq: {error}") from None


def print_filtered(program: Any, content: str) -> None:
    """Print the results of a jq program for a JSON text: strings without quotes, other values as JSON.

    Raises CommandError if the program fails.
    """
    try:
        for value in program.input_text(content):
            if isinstance(value, str):
                print_text(value)
            else:
                print_json(value)
    except ValueError as error:
        raise CommandError(f"--jq: {error}") from None


def is_json_wanted(options: argparse.Namespace) -> bool:
    """Return whether a command prints JSON instead of tables: for `--json` and `--jq`."""
    return bool(options.json) or options.program is not None


def print_result(options: argparse.Namespace, value: Any) -> None:
    """Print a value as JSON, or the results of the filter of `--jq` for it."""
    if options.program is None:
        print_json(value)
    else:
        print_filtered(options.program, json.dumps(value))
