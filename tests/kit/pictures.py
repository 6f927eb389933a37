"""Image files for tests, valid and invalid."""

import struct
import zlib
from collections.abc import Callable
from functools import cache
from io import BytesIO
from random import Random
from typing import Any

from PIL import Image, ImageDraw

SCRIPT = b"<script>alert(document.domain)</script>"


def encode_image(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """Return the bytes of an image file in a format of Pillow."""
    buffer = BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def decode_image(content: bytes) -> Image.Image:
    """Return the decoded image of a file."""
    picture = Image.open(BytesIO(content))
    picture.load()
    return picture


def photo(width: int = 640, height: int = 400, seed: int = 1) -> Image.Image:
    """Return an image of soft noise with a red corner top left, so that a rotation is visible."""
    noise = Random(seed).randbytes(64 * 40 * 3)
    picture = Image.frombytes("RGB", (64, 40), noise).resize((width, height), Image.Resampling.BICUBIC)
    ImageDraw.Draw(picture).rectangle((0, 0, width // 8, height // 8), "#ff0000")
    return picture


def animation(frames: int = 6, width: int = 120, height: int = 80, **options: Any) -> bytes:
    """Return a GIF with a moving square."""
    pictures = []
    for number in range(frames):
        picture = Image.new("P", (width, height))
        picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255] + [9] * 756)
        ImageDraw.Draw(picture).rectangle((number * 9, 10, number * 9 + 20, 40), 1 + number % 3)
        pictures.append(picture)
    options_ = {"duration": 70, "loop": 0, **options}
    return encode_image(pictures[0], "GIF", save_all=True, append_images=pictures[1:], **options_)


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a PNG chunk."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, data: bytes, *more: bytes, kind: int = 0) -> bytes:
    """Return a PNG with this size in its header and these compressed bytes, whether they match or not."""
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = [chunk(b"IHDR", head), *more, chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def webp_head(width: int, height: int) -> bytes:
    """Return a WebP with this size in its header and almost no content."""
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    head = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + sizes
    body = head + b"VP8 " + struct.pack("<I", 10) + b"\0" * 10
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


@cache
def _animation() -> bytes:
    return animation()


@cache
def _jpeg() -> bytes:
    return encode_image(photo(), "JPEG")


@cache
def _bomb() -> bytes:
    return zlib.compress(b"\0" * 60_000_000, 9)


@cache
def _first_scans() -> tuple[bytes, bytes]:
    """Return a progressive JPEG up to its last scan, and its last scan."""
    scans = encode_image(Image.new("L", (5_000, 5_000), 128), "JPEG", progressive=True)
    at = scans.rindex(b"\xff\xda")
    return scans[:at], scans[at:-2]


_SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
_PROFILE = b"a\0\0" + zlib.compress(b"\0" * 1_000_000, 9)
# Functions, because some of the files take long to make, and each test process reads the names
_HOSTILE_FILES: dict[str, Callable[[], bytes]] = {
    "svg": lambda: _SVG,
    "svg behind a declaration": lambda: b'<?xml version="1.0"?>\n<!DOCTYPE svg>\n' + _SVG,
    "html": lambda: b"<!doctype html><html><body>" + SCRIPT + b"</body></html>",
    "html behind a picture's mark": lambda: b"\x89PNG\r\n\x1a\n" + SCRIPT,
    "script that begins as a GIF": lambda: b"GIF89a/*\0\0\0*/=1;alert(1)//",
    "GIF as wide as a comment": lambda: _animation()[:6] + b"/*\2\0" + _animation()[10:],
    "GIF with a script behind its end": lambda: _animation() + b"*/=1;alert(1);/*",
    "GIF that ends in the middle": lambda: _animation()[: len(_animation()) // 2],
    "GIF with a frame outside": lambda: _animation().replace(b",\0\0\0\0", b",\xff\x7f\0\0", 1),
    "JPEG that ends in the middle": lambda: _jpeg()[: len(_jpeg()) // 2],
    "JPEG of its first bytes": lambda: _jpeg()[:20],
    "PNG of 50,000 by 50,000": lambda: png(50_000, 50_000, zlib.compress(b"\0" * 50_001)),
    "PNG of 25,000,000 by 1": lambda: png(25_000_000, 1, zlib.compress(b"\0" * 25_000_001, 9)),
    "PNG of 1 by 10,001": lambda: png(1, 10_001, zlib.compress(b"\0\0" * 10_001)),
    "PNG with a thousand profiles": lambda: png(1, 1, zlib.compress(b"\0\0"), *[chunk(b"iCCP", _PROFILE)] * 1_000),
    "JPEG of a thousand scans": lambda: _first_scans()[0] + _first_scans()[1] * 1_000,
    "JPEG of 44 scans": lambda: _first_scans()[0] + _first_scans()[1] * 39 + b"\xff\xd9",
    "JPEG of a million comments": lambda: _jpeg()[:2] + b"\xff\xfe\0\2" * 1_000_000 + _jpeg()[2:],
    "JPEG of a million markers": lambda: _jpeg()[:2] + b"\xff\xd0" * 1_000_000 + _jpeg()[2:],
    "PNG of 400,000 chunks": lambda: png(1, 1, zlib.compress(b"\0\0"), chunk(b"teXt", b"") * 400_000),
    "GIF of 900,000 comments": lambda: _animation()[:-1] + b"!\xfe\1a\0" * 900_000 + b";",
    "JPEG behind a million fill bytes": lambda: _jpeg()[:2] + b"\xff" * 1_000_000 + _jpeg()[2:],
    "GIF of 8,001 by 1": lambda: _animation()[:6] + struct.pack("<HH", 8_001, 1) + _animation()[10:],
    "PNG of palette colours without a palette": lambda: png(4, 4, zlib.compress(b"\0" * 20), kind=3),
    "PNG of no size": lambda: png(0, 10, zlib.compress(b"\0")),
    "PNG that is all zeros for ever": lambda: png(6_000, 6_000, _bomb()),
    "PNG with a bomb for a text": lambda: png(1, 1, zlib.compress(b"\0\0"), chunk(b"zTXt", b"a\0\0" + _bomb())),
    "PNG that ends in the middle": lambda: encode_image(photo(), "PNG")[:-5_000],
    "WebP of 16,000 by 16,000": lambda: webp_head(16_000, 16_000),
    "WebP that ends in the middle": lambda: encode_image(photo(), "WEBP")[:1_000],
    "WebP of its first bytes": lambda: b"RIFF\0\0\0\0WEBPVP8X",
    "PDF": lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "BMP": lambda: encode_image(photo(), "BMP"),
    "nothing": lambda: b"",
}
HOSTILE_NAMES = sorted(_HOSTILE_FILES)


@cache
def hostile_file(name: str) -> bytes:
    """Return a file that an upload must reject."""
    return _HOSTILE_FILES[name]()
