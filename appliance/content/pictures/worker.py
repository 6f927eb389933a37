"""The child process that decodes pictures: one at a time, within a memory limit, until the service closes the socket.

It is the only place where a file of somebody else meets a decoder. `process` is the side of the service.
"""

import colorsys
import contextlib
import logging
import resource
import signal
import socket
import traceback
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from appliance.content.pictures import tasks
from appliance.content.pictures.kinds import Unusable, allow
from appliance.content.pictures.remake import remake
from appliance.content.pictures.tasks import Answer, FindColours, Remake, Shrink, Task

# Pictures small enough to look through: what pages of ours show of them, never what mails show.

_QUALITY = 72


def make_small(content: bytes, side: int) -> bytes:
    """Return a picture of ours as a WebP that is at most so many pixels wide and high; of one that moves, its start."""
    from PIL import Image

    with Image.open(BytesIO(content)) as opened:
        opened.draft("RGB", (side, side))
        made = opened.convert("RGBA" if opened.has_transparency_data else "RGB")
    made.thumbnail((side, side))
    packed = BytesIO()
    made.save(packed, "WEBP", quality=_QUALITY)
    return packed.getvalue()


# The colours that a picture is known by: what a brand may be made of, proposed from its logo.

_SIDE = 96
_SHADES = 12
_MAX_COLOURS = 4
# Paler or darker than that, or nearly grey, no brand is known by; and two that are this near are one
_PALEST, _DARKEST, _GREYEST = 0.93, 0.06, 0.12
_NEAR = 60


def dominant(content: bytes) -> tuple[str, ...]:
    """Return up to four colours as `#rrggbb`, the most telling first; none of a picture in black and white.

    Raises Unusable for what is no picture.
    """
    from PIL import Image

    try:
        with Image.open(BytesIO(content)) as opened:
            allow(*opened.size)
            opened.draft("RGB", (_SIDE, _SIDE))
            small = opened.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise Unusable("is no picture") from None
    small.thumbnail((_SIDE, _SIDE))
    sheet = Image.new("RGBA", small.size, "white")
    sheet.alpha_composite(small)
    few = sheet.convert("RGB").quantize(_SHADES)
    shades = few.getpalette() or []
    counted = few.getcolors() or []
    telling = sorted(
        ((count * _weight(rgb), rgb) for count, index in counted if _weight(rgb := _shade(shades, index))), reverse=True
    )
    found: list[tuple[int, int, int]] = []
    for _, rgb in telling:
        if all(sum(abs(a - b) for a, b in zip(rgb, other, strict=True)) > _NEAR for other in found):
            found.append(rgb)
    return tuple("#" + "".join(f"{part:02x}" for part in rgb) for rgb in found[:_MAX_COLOURS])


def _shade(shades: list[int], index: object) -> tuple[int, int, int]:
    at = 3 * int(str(index))
    red, green, blue = shades[at : at + 3]
    return red, green, blue


def _weight(rgb: tuple[int, int, int]) -> float:
    """Return how telling a colour is: the fuller the more, and nothing for white, black and grey."""
    _, light, full = colorsys.rgb_to_hls(*(part / 255 for part in rgb))
    return full if _DARKEST < light < _PALEST and full > _GREYEST else 0.0


# The largest picture that is allowed needs about 450 MiB: decoded, in its own colours and in sRGB, turned, encoded
MAX_MEMORY_BYTES = 768 * 1024 * 1024


def main() -> int:
    """Do tasks for the service until it closes the socket on stdin (see `children`)."""
    _limit()
    with socket.socket(fileno=0) as service, contextlib.suppress(EOFError, ConnectionError):
        while True:
            task = msgspec.msgpack.decode(tasks.receive(service), type=Task)
            tasks.send(service, msgspec.msgpack.encode(_answer(task)))
    return 0


def _limit() -> None:
    """Bound what this process takes, and have the system end it before the service where the machine has no memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # a system without it
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Ctrl C in a terminal is for the service, which closes the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A file of five megabytes can have a hundred thousand notes to complain about
    warnings.simplefilter("ignore")
    logging.disable()


def _answer(task: Task) -> Answer:
    """Return the answer to a task."""
    try:
        return Answer(result=msgspec.Raw(msgspec.msgpack.encode(_do(task))))
    except Unusable as why:
        return Answer(unusable=str(why))
    except MemoryError:
        return Answer(unusable="needs too much memory to decode: save it with fewer pixels", is_exhausted=True)
    except Exception:
        # An error that no decoder is known to raise: the operator gets its traceback, the sender of the file an answer
        traceback.print_exc()
        return Answer(unusable="cannot be decoded")


def _do(task: Task) -> Any:
    match task:
        case Remake():
            return remake(task.content, task.full_size)
        case Shrink():
            return make_small(task.content, task.side)
        case FindColours():
            return dominant(task.content)
