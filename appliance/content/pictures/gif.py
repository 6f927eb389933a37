"""GIFs written anew, frame by frame: every index of every frame as it was, and nothing else of the file.

One frame is in memory at a time, so that a long animation costs no more of it than a short one, and colours are not
chosen a second time.
"""

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

from PIL import GifImagePlugin, Image

from appliance.content.pictures.kinds import Unusable, allow

MAX_FRAMES = 200
MAX_FRAME_PIXELS = 50_000_000
# A side whose second byte would be a printable character makes a head that begins a script as well
MAX_SIDE = 8_000
_EXTENSION, _CONTROL, _APPLICATION, _IMAGE, _END = 0x21, 0xF9, 0xFF, 0x2C, 0x3B
_LOCAL, _INTERLACED, _LOOP = 0x80, 0x40, b"NETSCAPE2.0"
_DESCRIPTOR = 10


class _Frame(NamedTuple):
    control: bytes | None  # disposal, delay, transparent index
    box: tuple[int, int, int, int]  # x, y, width, height
    interlaced: int
    colours: bytes | None  # its own, where it has some
    data: bytes


class _Gif(NamedTuple):
    width: int
    height: int
    background: int
    colours: bytes | None
    frames: list[_Frame]
    loops: int | None


class Remade(NamedTuple):
    """A GIF as it is served."""

    content: bytes
    width: int
    height: int
    frames: int


def remake(content: bytes) -> Remade:
    """Write a GIF anew; raises Unusable for one that is broken, too large, or more than a GIF."""
    try:
        found = _read(content)
        made = b"".join(_written(found))
    except (IndexError, struct.error):
        raise Unusable("is cut off") from None
    return Remade(made, found.width, found.height, len(found.frames))


def _read(content: bytes) -> _Gif:
    """Read the blocks of a GIF without decoding any; every size is checked here."""
    width, height, flags, background, _ = struct.unpack_from("<HHBBB", content, 6)
    allow(width, height, max_side=MAX_SIDE)
    colours, place = _colours(content, 13, flags)
    frames: list[_Frame] = []
    control, loops = None, None
    while (mark := content[place]) != _END:
        if mark == _IMAGE:
            frame, place = _frame(content, place + 1, control)
            _check(frame, (width, height), frames, colours)
            frames.append(frame)
            control = None
        elif mark == _EXTENSION:
            label, (blocks, place) = content[place + 1], _blocks(content, place + 2)
            if label == _CONTROL and blocks and len(blocks[0]) == 4:
                control = blocks[0]
            elif label == _APPLICATION and len(blocks) > 1 and blocks[0] == _LOOP and len(blocks[1]) == 3:
                loops = int.from_bytes(blocks[1][1:], "little")
        else:
            raise Unusable("is broken")
    if content[place + 1 :].strip(b"\0\r\n\t "):
        raise Unusable("has something behind its end that is no picture")
    if not frames:
        raise Unusable("has no picture in it")
    return _Gif(width, height, background, colours, frames, loops)


def _check(frame: _Frame, size: tuple[int, int], before: list[_Frame], colours: bytes | None) -> None:
    x, y, width, height = frame.box
    if not width or not height or x + width > size[0] or y + height > size[1] or not (frame.colours or colours):
        raise Unusable("is broken")
    if len(before) >= MAX_FRAMES:
        raise Unusable(f"has too many frames (maximum is {MAX_FRAMES})")
    if sum(one.box[2] * one.box[3] for one in before) + width * height > MAX_FRAME_PIXELS:
        raise Unusable(f"has too many pixels in all its frames (maximum is {MAX_FRAME_PIXELS:,})")


def _colours(content: bytes, place: int, flags: int) -> tuple[bytes | None, int]:
    if not flags & _LOCAL:
        return None, place
    end = place + (6 << (flags & 7))
    if len(content) < end:
        raise IndexError
    return content[place:end], end


def _blocks(content: bytes, place: int) -> tuple[list[bytes], int]:
    """Return the sub-blocks that begin at a place, and the place behind them."""
    found = []
    while size := content[place]:
        found.append(content[place + 1 : place + 1 + size])
        place += 1 + size
    return found, place + 1


def _frame(content: bytes, place: int, control: bytes | None) -> tuple[_Frame, int]:
    x, y, width, height, flags = struct.unpack_from("<HHHHB", content, place)
    colours, place = _colours(content, place + 9, flags)
    _, end = _blocks(content, place + 1)
    return _Frame(control, (x, y, width, height), flags & _INTERLACED, colours, content[place:end]), end


def _written(found: _Gif) -> Iterator[bytes]:
    yield b"GIF89a" + struct.pack(
        "<HHBBB", found.width, found.height, _flags(found.colours), found.background if found.colours else 0, 0
    )
    yield found.colours or b""
    if found.loops is not None:
        yield b"!\xff\x0b" + _LOOP + b"\x03\x01" + struct.pack("<HB", found.loops, 0)
    for frame in found.frames:
        if frame.control is not None:
            # Disposal and transparency; waiting for a key press is nothing a mail can do
            yield b"!\xf9\x04" + bytes([frame.control[0] & 0x1D]) + frame.control[1:] + b"\0"
        yield b"," + struct.pack("<HHHHB", *frame.box, _flags(frame.colours)) + (frame.colours or b"")
        yield _data(frame, found.colours)
    yield b";"


def _flags(colours: bytes | None) -> int:
    return 0 if colours is None else _LOCAL | (len(colours) // 6).bit_length() - 1


def _data(frame: _Frame, shared: bytes | None) -> bytes:
    """Decode the indices of one frame as a picture of its own, and encode them again."""
    colours = frame.colours or shared or b""
    _, _, width, height = frame.box
    alone = b"GIF89a" + struct.pack("<HHBBB", width, height, _flags(colours), 0, 0) + colours
    alone += b"," + struct.pack("<HHHHB", 0, 0, width, height, frame.interlaced) + frame.data + b";"
    with Image.open(BytesIO(alone), formats=("GIF",)) as picture:
        return b"".join(GifImagePlugin.getdata(picture))[_DESCRIPTOR:]
