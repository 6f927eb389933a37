"""Uploaded pictures: their formats and limits, checked before decoding, and the child process that decodes them.

A malicious file cannot harm the service, because the child process (`picture_worker`) has limits of memory and
processor time (`limited_process`).
"""

import re
import struct
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.core.limited_process import LimitedProcess, LimitExceeded

Format = Literal["PNG", "JPEG", "GIF", "WEBP"]
MAX_PIXELS = 25_000_000
# A long, thin picture has few pixels, but scaling takes memory and time in proportion to its longest side.
MAX_SIDE = 10_000
# A scan of a progressive JPEG may have only a few bytes, but takes as long as decoding the whole picture. Encoders
# write about ten scans.
MAX_SCANS = 20
# Pillow reads each segment before the first scan of a JPEG, and each chunk of a PNG, in Python: 400,000 of them take
# ten seconds. A colour profile may have 255 segments, and encoders write PNG chunks of 8 KiB.
MAX_SEGMENTS = 2_000
MAX_CHUNKS = 10_000
# The limit for WebP is lower, because its library holds every pixel three times while it decodes.
MAX_WEBP_PIXELS = 10_000_000
# The slowest picture within the limits takes about a second on a computer of 2020.
MAX_PROCESSOR_SECONDS = 5
# Errors are English, because a child process decodes; `media.prepare_upload` translates them.
TOO_MANY_PIXELS = gettext_stored("has too many pixels (maximum is %(limit)s)") % {"limit": f"{MAX_PIXELS:,}"}
_TOO_MANY_PIXELS_OF_FORMAT = gettext_stored("has too many pixels (maximum is %(limit)s in this format)")
_TOO_LONG_SIDE = gettext_stored("is too wide or too high (maximum is %(limit)s pixels on each side)")
_TOO_MANY_SCANS = gettext_stored("has too many scans (maximum is %(limit)s): save it as a JPEG again")
_TOO_MANY_SEGMENTS = gettext_stored("has too many segments (maximum is %(limit)s): save it as a JPEG again")
_TOO_MANY_CHUNKS = gettext_stored("has too many chunks (maximum is %(limit)s): save it as a PNG again")
TOO_MANY_BLOCKS = gettext_stored("has too many blocks (maximum is %(limit)s): save it again")
TOO_MANY_FRAMES = gettext_stored("has too many frames (maximum is %(limit)s)")
TOO_MANY_FRAME_PIXELS = gettext_stored("has too many pixels in all its frames (maximum is %(limit)s)")
TOO_LARGE_ENCODED = gettext_stored("is too large after re-encoding (maximum is %(limit)s bytes)")
_EXCEEDED = {
    "time": gettext_stored("takes too long to decode (maximum is %(limit)s seconds)")
    % {"limit": MAX_PROCESSOR_SECONDS},
    "memory": gettext_noop("needs too much memory to decode: save it with fewer pixels"),
    "crash": gettext_noop("cannot be decoded"),
}
_ANIMATED, _EXTENDED, _LOSSLESS, _LOSSY = 0x02, b"VP8X", b"VP8L", b"VP8 "


class UnusablePicture(Exception):
    """A file that cannot be used as a picture; the message is a field error, such as "is empty"."""


class Picture(NamedTuple):
    """A picture after re-encoding, as it is stored and served; width and height are in pixels."""

    content: bytes
    content_type: str
    width: int
    height: int


class WebPHeader(NamedTuple):
    """The properties of a WebP file that its header contains; width and height are in pixels."""

    width: int
    height: int
    is_animated: bool
    is_lossless: bool


def detect_format(content: bytes) -> Format:
    """Return the format of a file by its first bytes; raises UnusablePicture unless it is PNG, JPEG, GIF or WebP."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    if not content:
        raise UnusablePicture(gettext_noop("is empty"))
    if b"<svg" in content[:4096].lower():
        raise UnusablePicture(gettext_noop("is an SVG, which email apps do not show: export it as a PNG"))
    if content[4:8] == b"ftyp" and content[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"hevc", b"avif"):
        raise UnusablePicture(gettext_noop("is a HEIC or AVIF image, which few email apps show: export it as a JPEG"))
    raise UnusablePicture(gettext_noop("is not a PNG, JPEG, GIF or WebP image"))


def check_size(width: int, height: int, max_pixels: int = MAX_PIXELS, max_side: int = MAX_SIDE) -> None:
    """Raise UnusablePicture if a side is zero or too long, or if the picture has too many pixels to decode."""
    if width < 1 or height < 1:
        raise UnusablePicture(gettext_noop("is broken"))
    if max(width, height) > max_side:
        raise UnusablePicture(_TOO_LONG_SIDE % {"limit": f"{max_side:,}"})
    if width * height > max_pixels:
        raise UnusablePicture(
            TOO_MANY_PIXELS if max_pixels == MAX_PIXELS else _TOO_MANY_PIXELS_OF_FORMAT % {"limit": f"{max_pixels:,}"}
        )


# Pillow reads the fill bytes before a marker (ITU T.81, B.1.1.2) one by one: 4 MB of them take four seconds. Some are
# allowed, because cameras pad their metadata with the same byte.
MAX_FILL_BYTES = 131_072
_FILL = re.compile(rb"\xff{1024,}")
# Bytes before the marker of a segment are skipped, as decoders do.
_SEGMENT, _SCAN = re.compile(rb"[^\xff]*+\xff++(.)(..)", re.DOTALL), b"\xda"
_EMPTY_SEGMENTS = b"\x00\x01\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9"  # without a length


def check_jpeg(content: bytes) -> None:
    """Raise UnusablePicture for a JPEG that would take too long to decode.

    The limits are `MAX_SCANS`, `MAX_SEGMENTS` and `MAX_FILL_BYTES`.
    """
    if content.count(b"\xff\xda") > MAX_SCANS:
        raise UnusablePicture(_TOO_MANY_SCANS % {"limit": MAX_SCANS})
    if sum(len(run) for run in _FILL.findall(content)) > MAX_FILL_BYTES:
        raise UnusablePicture(gettext_noop("is padded with fill bytes: save it as a JPEG again"))
    place, count = 2, 0
    while (match := _SEGMENT.match(content, place)) and match[1] != _SCAN:
        place = match.end(1) + (0 if match[1] in _EMPTY_SEGMENTS else int.from_bytes(match[2], "big"))
        count += 1
        if count > MAX_SEGMENTS:
            raise UnusablePicture(_TOO_MANY_SEGMENTS % {"limit": f"{MAX_SEGMENTS:,}"})


def check_png(content: bytes) -> None:
    """Raise UnusablePicture for a PNG with more than one colour profile or more than `MAX_CHUNKS` chunks.

    Each profile may decompress to a megabyte. What follows the last chunk, `IEND`, is not decoded.
    """
    profiles, place, count, name = 0, 8, 0, b""
    while place + 8 <= len(content) and name != b"IEND":
        size, name = struct.unpack_from(">I4s", content, place)
        profiles += name == b"iCCP"
        place += 12 + size
        count += 1
        if count > MAX_CHUNKS:
            raise UnusablePicture(_TOO_MANY_CHUNKS % {"limit": f"{MAX_CHUNKS:,}"})
    if profiles > 1:
        raise UnusablePicture(gettext_noop("is broken"))


def read_webp_header(content: bytes) -> WebPHeader:
    """Return the header of a WebP file; raises UnusablePicture if it is malformed.

    The size must be known before decoding, because the WebP library allocates memory for all pixels at once.
    """
    name, head = content[12:16], content[20:30]
    if len(head) < 10:
        raise UnusablePicture(gettext_noop("is cut off"))
    if name == _EXTENDED:
        width = int.from_bytes(head[4:7], "little") + 1
        height = int.from_bytes(head[7:10], "little") + 1
        return WebPHeader(width, height, bool(head[0] & _ANIMATED), _LOSSLESS in _webp_chunks(content))
    if name == _LOSSLESS and head[0] == 0x2F:
        bits = int.from_bytes(head[1:5], "little")
        return WebPHeader((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, False, True)
    if name == _LOSSY and head[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[6:10])
        return WebPHeader(width & 0x3FFF, height & 0x3FFF, False, False)
    raise UnusablePicture(gettext_noop("is broken"))


def _webp_chunks(content: bytes) -> list[bytes]:
    """Return the names of the first 100 chunks of a WebP file."""
    names: list[bytes] = []
    place = 12
    while place + 8 <= len(content) and len(names) < 100:
        names.append(content[place : place + 4])
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    return names


# The tasks of the child process.


class ConvertTask(Struct, tag="remake"):
    """The task to re-encode an uploaded picture for emails; `full_size` keeps the width of the picture."""

    content: bytes
    full_size: bool = False


class ShrinkTask(Struct, tag="shrink"):
    """The task to make a thumbnail of a stored picture; `side` is the maximum of its width and height in pixels."""

    content: bytes
    side: int


class FindColoursTask(Struct, tag="find-colours"):
    """The task to find the dominant colours of a picture."""

    content: bytes


class TaskResult(Struct):
    """The result of a task: `result` in MessagePack, or `unusable`, the field error of an unusable picture."""

    unusable: str = ""
    result: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil: no result


Task = ConvertTask | ShrinkTask | FindColoursTask


T = TypeVar("T")


class PictureProcess(LimitedProcess):
    """The child process that decodes pictures."""

    def __init__(self) -> None:
        super().__init__(
            "decode-pictures", gettext_noop("Images cannot be decoded now; upload the image again in a moment.")
        )

    def decode(self, task: Task, kind: type[T]) -> T:
        """Return the result of a task as an object of type `kind`.

        Raises UnusablePicture for a picture that cannot be decoded, and Unavailable as `LimitedProcess.run` does.
        """
        try:
            answer: TaskResult = self.run(task, TaskResult)
        except LimitExceeded as error:
            raise UnusablePicture(_EXCEEDED[error.limit]) from None
        if answer.unusable:
            raise UnusablePicture(answer.unusable)
        return msgspec.msgpack.decode(answer.result, type=kind)


_process = PictureProcess()


def convert(content: bytes, full_size: bool = False) -> Picture:
    """Re-encode a picture for emails; raises the errors of `PictureProcess.decode`.

    Unless `full_size` is set, the result is at most `picture_worker.MAX_WIDTH` pixels wide; an animated GIF keeps its
    size.
    """
    return _process.decode(ConvertTask(content, full_size), Picture)


def shrink(content: bytes, side: int) -> bytes:
    """Return a stored picture as a WebP whose width and height are at most `side` pixels.

    Raises the errors of `PictureProcess.decode`.
    """
    return _process.decode(ShrinkTask(content, side), bytes)


def find_colours(content: bytes) -> tuple[str, ...]:
    """Return up to four dominant colours of a picture as `#rrggbb`; raises the errors of `PictureProcess.decode`."""
    return _process.decode(FindColoursTask(content), tuple[str, ...])
