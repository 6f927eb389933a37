"""Lines of a file whatever its encoding: bounded in length, so that no file is ever in memory."""

import codecs
from collections.abc import Iterator
from pathlib import Path

ROW_CHARACTERS = 65_536
_BLOCK = 262_144
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SHOWN = 200


class TooLong(str):
    """The beginning of a line that is longer than a row may be."""


def encoding(path: Path) -> tuple[str, int]:
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


def read(path: Path, name: str, skip: int) -> Iterator[str]:
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
