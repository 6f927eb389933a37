"""QR codes: drawn in a page, or as a file to print."""

import io
from typing import Literal, NamedTuple

import segno

# Pixels of a module in a picture: sharp on a poster too
PNG_SCALE = 16
# The quiet zone around a code (ISO/IEC 18004, 9.1)
BORDER = 4


class Drawing(NamedTuple):
    """A code as an SVG path of its dark modules; `side` is how many modules it is wide."""

    side: int
    path: str


def draw(text: str) -> Drawing:
    """Return a code to be drawn in a page."""
    rows = [list(row) for row in _code(text).matrix]
    dark = [f"M{x} {y}h1v1h-1z" for y, row in enumerate(rows) for x, is_dark in enumerate(row) if is_dark]
    return Drawing(len(rows), "".join(dark))


def file(text: str, kind: Literal["svg", "png"]) -> bytes:
    """Return a code as a file, with the white border that scanners need."""
    out = io.BytesIO()
    _code(text).save(out, kind=kind, scale=PNG_SCALE, border=BORDER, dark="#000", light="#fff")
    return out.getvalue()


def _code(text: str) -> segno.QRCode:

    # A quarter of it may be dirty or folded; never Micro QR, which many cameras do not read
    return segno.make_qr(text, error="q")
