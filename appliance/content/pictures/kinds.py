"""What a file is by its own first bytes, whatever it is called, and how large a picture it says it is."""

import struct
from typing import Literal, NamedTuple

Kind = Literal["PNG", "JPEG", "GIF", "WEBP"]
MAX_PIXELS = 25_000_000
# A long thin picture has few pixels, but scaling it needs memory and time for each pixel of its longest side
MAX_SIDE = 10_000
# A passing scan of a progressive JPEG takes a few bytes and as long as decoding the whole; encoders write about ten
MAX_SCANS = 50
# Its library holds every pixel three times while it decodes
MAX_WEBP_PIXELS = 10_000_000
TOO_MANY = f"has too many pixels (maximum is {MAX_PIXELS:,})"
_ANIMATED, _EXTENDED, _LOSSLESS, _LOSSY = 0x02, b"VP8X", b"VP8L", b"VP8 "


class Unusable(Exception):
    """This is no picture that a mail can show; the words follow the name of its field."""


class Picture(NamedTuple):
    """A picture as it is served."""

    content: bytes
    content_type: str
    width: int
    height: int


class WebP(NamedTuple):
    """What the head of a WebP says."""

    width: int
    height: int
    animated: bool
    lossless: bool


def kind(content: bytes) -> Kind:
    """Return what a file is; raises Unusable for all but PNG, JPEG, GIF and WebP."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    if not content:
        raise Unusable("is empty")
    if b"<svg" in content[:4096].lower():
        raise Unusable("is an SVG, which mail programs do not show: export it as a PNG")
    if content[4:8] == b"ftyp" and content[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"hevc", b"avif"):
        raise Unusable("is a HEIC or AVIF picture, which few mail programs show: export it as a JPEG")
    raise Unusable("is not a PNG, JPEG, GIF or WebP picture")


def allow(width: int, height: int, most: int = MAX_PIXELS, max_side: int = MAX_SIDE) -> None:
    """Raise Unusable for a picture whose pixels would fill the memory."""
    if width < 1 or height < 1:
        raise Unusable("is broken")
    if max(width, height) > max_side:
        raise Unusable(f"is too wide or too high (maximum is {max_side:,} pixels on each side)")
    if width * height > most:
        raise Unusable(TOO_MANY if most == MAX_PIXELS else f"has too many pixels (maximum is {most:,} in this format)")


def check_jpeg(content: bytes) -> None:
    """Raise Unusable for a JPEG that would be decoded many times over."""
    if content.count(b"\xff\xda") > MAX_SCANS:
        raise Unusable(f"has too many scans (maximum is {MAX_SCANS}): save it as a JPEG again")


def check_png(content: bytes) -> None:
    """Raise Unusable for a PNG of several colour profiles: each may unpack to a megabyte, and one is allowed."""
    profiles, place = 0, 8
    while place + 8 <= len(content):
        size, name = struct.unpack_from(">I4s", content, place)
        profiles += name == b"iCCP"
        place += 12 + size
    if profiles > 1:
        raise Unusable("is broken")


def webp(content: bytes) -> WebP:
    """Read the head of a WebP: its library makes room for all its pixels before anybody could look at their number."""
    name, head = content[12:16], content[20:30]
    if len(head) < 10:
        raise Unusable("is cut off")
    if name == _EXTENDED:
        width = int.from_bytes(head[4:7], "little") + 1
        height = int.from_bytes(head[7:10], "little") + 1
        return WebP(width, height, bool(head[0] & _ANIMATED), _LOSSLESS in _chunks(content))
    if name == _LOSSLESS and head[0] == 0x2F:
        bits = int.from_bytes(head[1:5], "little")
        return WebP((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, False, True)
    if name == _LOSSY and head[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[6:10])
        return WebP(width & 0x3FFF, height & 0x3FFF, False, False)
    raise Unusable("is broken")


def _chunks(content: bytes) -> list[bytes]:
    """Return the names of the parts of a WebP."""
    found: list[bytes] = []
    place = 12
    while place + 8 <= len(content) and len(found) < 100:
        found.append(content[place : place + 4])
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    return found
