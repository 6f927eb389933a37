"""The child process that decodes pictures, one at a time and within a memory limit.

Uploaded pictures are decoded only here. `pictures` is the service's side.
"""

import colorsys
import struct
import warnings
import zlib
from collections.abc import Iterator
from io import BytesIO
from math import ceil, floor
from typing import Any, NamedTuple

import msgspec
from PIL import GifImagePlugin, Image, ImageCms

from appliance.content import pictures
from appliance.content.pictures import (
    MAX_PIXELS,
    MAX_WEBP_PIXELS,
    TOO_LARGE_ENCODED,
    TOO_MANY_BLOCKS,
    TOO_MANY_FRAME_PIXELS,
    TOO_MANY_FRAMES,
    TOO_MANY_PIXELS,
    ConvertTask,
    FindColoursTask,
    Format,
    Picture,
    ShrinkTask,
    Task,
    TaskResult,
    UnusablePicture,
    check_jpeg,
    check_png,
    check_size,
    detect_format,
    read_webp_header,
)
from appliance.core import limited_process
from appliance.core.i18n import gettext_noop

# Uploaded pictures are decoded, scaled and encoded again, so that nothing but the picture remains.
#
# Scripts, and the locations and serial numbers that cameras record, are removed, and the served file really has the
# format that its content type says.

# Twice the maximum width of an email (`designs.theme`), for high-density screens.
MAX_WIDTH = 1_440
_MAX_ENCODED_BYTES = 10 * 1_048_576
_BAND_ROWS = 128
# Box filtering first, down to three times the target size, is faster without a visible difference.
_REDUCING_GAP = 3.0
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
# The errors that decoders raise for malformed files.
_DECODER_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    LookupError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
)
# Pillow warns at its limit and raises an error at twice the limit.
Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


MAX_GIF_FRAMES = 200
# The largest number of extension blocks: each frame has one, and others contain comments and data of programs.
MAX_GIF_EXTENSIONS = 2_000
MAX_GIF_PIXELS = 50_000_000
# The second byte of a longer side could be a printable character, so that the header could also begin a script.
MAX_GIF_SIDE = 8_000
_EXTENSION, _CONTROL, _APPLICATION, _IMAGE, _END = 0x21, 0xF9, 0xFF, 0x2C, 0x3B
_LOCAL, _INTERLACED, _LOOP = 0x80, 0x40, b"NETSCAPE2.0"
_DESCRIPTOR = 10


class _GifFrame(NamedTuple):
    control: bytes | None  # disposal method, delay and transparent colour
    box: tuple[int, int, int, int]  # x, y, width, height
    interlaced: int
    colours: bytes | None  # the local colour table, or None if the frame uses the global one
    data: bytes


class _Gif(NamedTuple):
    width: int
    height: int
    background: int
    colours: bytes | None
    frames: list[_GifFrame]
    loops: int | None


class ConvertedGif(NamedTuple):
    """A GIF after re-encoding; `frames` is the number of frames."""

    content: bytes
    width: int
    height: int
    frames: int


def convert_gif(content: bytes) -> ConvertedGif:
    """Re-encode a GIF; raises UnusablePicture if it is broken, too large, or followed by other data."""
    try:
        gif = _read_gif(content)
        encoded = b"".join(_write_gif(gif))
    except (IndexError, struct.error):
        raise UnusablePicture(gettext_noop("is cut off")) from None
    return ConvertedGif(encoded, gif.width, gif.height, len(gif.frames))


def _read_gif(content: bytes) -> _Gif:
    """Read the blocks of a GIF without decoding pixels; raises UnusablePicture if it is broken or too large."""
    width, height, flags, background, _ = struct.unpack_from("<HHBBB", content, 6)
    check_size(width, height, max_side=MAX_GIF_SIDE)
    colours, place = _read_colour_table(content, 13, flags)
    frames: list[_GifFrame] = []
    control, loops, extension_count = None, None, 0
    while (mark := content[place]) != _END:
        if mark == _IMAGE:
            frame, place = _read_frame(content, place + 1, control)
            _check_frame(frame, (width, height), frames, colours)
            frames.append(frame)
            control = None
        elif mark == _EXTENSION:
            extension_count += 1
            if extension_count > MAX_GIF_EXTENSIONS:
                raise UnusablePicture(TOO_MANY_BLOCKS % {"limit": f"{MAX_GIF_EXTENSIONS:,}"})
            label, (blocks, place) = content[place + 1], _read_blocks(content, place + 2)
            if label == _CONTROL and blocks and len(blocks[0]) == 4:
                control = blocks[0]
            elif label == _APPLICATION and len(blocks) > 1 and blocks[0] == _LOOP and len(blocks[1]) == 3:
                loops = int.from_bytes(blocks[1][1:], "little")
        else:
            raise UnusablePicture(gettext_noop("is broken"))
    if content[place + 1 :].strip(b"\0\r\n\t "):
        raise UnusablePicture(gettext_noop("has other data after the image"))
    if not frames:
        raise UnusablePicture(gettext_noop("has no image in it"))
    return _Gif(width, height, background, colours, frames, loops)


def _check_frame(frame: _GifFrame, size: tuple[int, int], earlier: list[_GifFrame], colours: bytes | None) -> None:
    x, y, width, height = frame.box
    if not width or not height or x + width > size[0] or y + height > size[1] or not (frame.colours or colours):
        raise UnusablePicture(gettext_noop("is broken"))
    if len(earlier) >= MAX_GIF_FRAMES:
        raise UnusablePicture(TOO_MANY_FRAMES % {"limit": MAX_GIF_FRAMES})
    if sum(item.box[2] * item.box[3] for item in earlier) + width * height > MAX_GIF_PIXELS:
        raise UnusablePicture(TOO_MANY_FRAME_PIXELS % {"limit": f"{MAX_GIF_PIXELS:,}"})


def _read_colour_table(content: bytes, place: int, flags: int) -> tuple[bytes | None, int]:
    if not flags & _LOCAL:
        return None, place
    end = place + (6 << (flags & 7))
    if len(content) < end:
        raise IndexError
    return content[place:end], end


def _read_blocks(content: bytes, place: int) -> tuple[list[bytes], int]:
    """Return (the sub-blocks of a GIF that start at the offset `place`, the offset after them)."""
    blocks = []
    while size := content[place]:
        blocks.append(content[place + 1 : place + 1 + size])
        place += 1 + size
    return blocks, place + 1


def _read_frame(content: bytes, place: int, control: bytes | None) -> tuple[_GifFrame, int]:
    x, y, width, height, flags = struct.unpack_from("<HHHHB", content, place)
    colours, place = _read_colour_table(content, place + 9, flags)
    _, end = _read_blocks(content, place + 1)
    return _GifFrame(control, (x, y, width, height), flags & _INTERLACED, colours, content[place:end]), end


def _write_gif(gif: _Gif) -> Iterator[bytes]:
    yield b"GIF89a" + struct.pack(
        "<HHBBB",
        gif.width,
        gif.height,
        _colour_table_flags(gif.colours),
        gif.background if gif.colours else 0,
        0,
    )
    yield gif.colours or b""
    if gif.loops is not None:
        yield b"!\xff\x0b" + _LOOP + b"\x03\x01" + struct.pack("<HB", gif.loops, 0)
    for frame in gif.frames:
        if frame.control is not None:
            # Keep the disposal method and transparency; drop "wait for user input", which does not work in emails.
            yield b"!\xf9\x04" + bytes([frame.control[0] & 0x1D]) + frame.control[1:] + b"\0"
        yield b"," + struct.pack("<HHHHB", *frame.box, _colour_table_flags(frame.colours)) + (frame.colours or b"")
        yield _encode_frame(frame, gif.colours)
    yield b";"


def _colour_table_flags(colours: bytes | None) -> int:
    return 0 if colours is None else _LOCAL | (len(colours) // 6).bit_length() - 1


def _encode_frame(frame: _GifFrame, shared: bytes | None) -> bytes:
    """Return the re-encoded pixels of a frame, without its descriptor.

    The frame is decoded as a separate GIF; `shared` is the global colour table.
    """
    colours = frame.colours or shared or b""
    _, _, width, height = frame.box
    alone = b"GIF89a" + struct.pack("<HHBBB", width, height, _colour_table_flags(colours), 0, 0) + colours
    alone += b"," + struct.pack("<HHHHB", 0, 0, width, height, frame.interlaced) + frame.data + b";"
    with Image.open(BytesIO(alone), formats=("GIF",)) as picture:
        return b"".join(GifImagePlugin.getdata(picture))[_DESCRIPTOR:]


def convert(content: bytes, full_size: bool = False) -> Picture:
    """Re-encode a picture for emails; raises UnusablePicture if it is broken, too large or in an unsupported format.

    Unless `full_size` is set, the result is at most `MAX_WIDTH` pixels wide; an animated GIF keeps its size.
    """
    format_ = detect_format(content)
    try:
        picture = _convert_gif(content, full_size) if format_ == "GIF" else _convert_still(content, format_, full_size)
    except UnusablePicture:
        raise
    except Image.DecompressionBombError:
        raise UnusablePicture(TOO_MANY_PIXELS) from None
    except _DECODER_ERRORS:
        raise UnusablePicture(gettext_noop("is broken or cut off")) from None
    if len(picture.content) > _MAX_ENCODED_BYTES:
        raise UnusablePicture(TOO_LARGE_ENCODED % {"limit": _MAX_ENCODED_BYTES})
    return picture


def _convert_gif(content: bytes, full_size: bool) -> Picture:
    """Re-encode a GIF with its animation.

    A still GIF that is wider than `MAX_WIDTH` becomes a PNG of that width, unless `full_size` is set.
    """
    gif = convert_gif(content)
    if gif.frames == 1 and gif.width > MAX_WIDTH and not full_size:
        return _convert_still(gif.content, "GIF", full_size)
    return Picture(gif.content, "image/gif", gif.width, gif.height)


def _convert_still(content: bytes, format_: Format, full_size: bool) -> Picture:
    as_jpeg = format_ == "JPEG"
    if format_ == "WEBP":
        head = read_webp_header(content)
        check_size(head.width, head.height, MAX_WEBP_PIXELS)
        _require_still(head.is_animated)
        as_jpeg = not head.is_lossless
    elif format_ == "JPEG":
        check_jpeg(content)
    elif format_ == "PNG":
        check_png(content)
    with Image.open(BytesIO(content), formats=(format_,)) as image:
        check_size(*image.size)
        _require_still(format_ != "JPEG" and bool(getattr(image, "is_animated", False)))
        picture = _load(image, None if full_size else MAX_WIDTH)
    if as_jpeg and not picture.has_transparency_data:
        return _encode(picture if picture.mode in ("L", "RGB") else picture.convert("RGB"), "JPEG")
    return _encode(picture, "PNG")


def _require_still(is_animated: bool) -> None:
    if is_animated:
        raise UnusablePicture(gettext_noop("is animated, which most email apps show only in a GIF: save it as one"))


def _load(image: Image.Image, widest: int | None) -> Image.Image:
    """Decode a picture, apply its orientation, convert it to sRGB, and scale it down to a width of at most `widest`.

    `widest=None` keeps the width. Raises UnusablePicture if the picture is broken.
    """
    orientation = _read_orientation(image)
    width, height = image.size
    shown_width = height if orientation in (5, 6, 7, 8) else width
    size = (width, height)
    if widest is not None and shown_width > widest:
        size = (max(1, round(width * widest / shown_width)), max(1, round(height * widest / shown_width)))
        image.draft(None, size)
    image.load()
    if image.mode == "P" and image.palette is None:
        raise UnusablePicture(gettext_noop("is broken or cut off"))  # a PNG with palette colours but no PLTE chunk
    profile = image.info.get("icc_profile")
    picture = _resize(image, size) if size != image.size else _to_writable_mode(image)
    if image.mode == "P" and picture.mode == "RGB":
        # Scaling gave the picture many colours; without a palette the file would be several times as large.
        picture = picture.quantize(256)
    if profile:
        picture = _to_srgb(picture, profile)
    if picture.mode == "CMYK":
        picture = picture.convert("RGB")
    return picture.transpose(_TURNS[orientation]) if orientation in _TURNS else picture


def _read_orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except _DECODER_ERRORS:
        return 1  # malformed metadata
    return orientation if isinstance(orientation, int) else 1


def _to_writable_mode(picture: Image.Image) -> Image.Image:
    """Return a picture in a mode that the encoders can write; a palette is kept."""
    if picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        return picture
    if picture.mode.startswith("I"):
        # Scale 16-bit grey values to 8 bits, because a direct conversion would clip them.
        return picture.convert("I").point(lambda value: value / 256).convert("L")
    return picture.convert("RGBA" if picture.has_transparency_data else "RGB")


def _resize(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Scale a picture down in bands of rows, so that intermediate results need little memory."""
    clear = picture.has_transparency_data
    mode = "CMYK" if picture.mode == "CMYK" else "RGBA" if clear else "RGB"
    resized = Image.new(mode, size)
    scale = picture.height / size[1]
    margin = ceil(3 * scale) + 1
    for top in range(0, size[1], _BAND_ROWS):
        bottom = min(top + _BAND_ROWS, size[1])
        first = max(0, floor(top * scale) - margin)
        last = min(picture.height, ceil(bottom * scale) + margin)
        band = picture.crop((0, first, picture.width, last))
        band.info = {name: value for name, value in picture.info.items() if name == "transparency"}
        box = (0, top * scale - first, picture.width, min(bottom * scale, picture.height) - first)
        band_size = (size[0], bottom - top)
        scaled = _to_writable_mode(band).convert(mode).resize(band_size, Image.Resampling.LANCZOS, box, _REDUCING_GAP)
        resized.paste(scaled, (0, top))
    return resized


def _to_srgb(picture: Image.Image, profile: bytes) -> Image.Image:
    """Convert a picture from its colour profile to sRGB; with a malformed profile it is returned unchanged."""
    if picture.mode not in ("RGB", "RGBA", "CMYK"):
        return picture
    mode = "RGB" if picture.mode == "CMYK" else picture.mode
    try:
        source_profile = ImageCms.ImageCmsProfile(BytesIO(profile))
        converted = ImageCms.profileToProfile(picture, source_profile, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError):
        return picture
    return converted if converted is not None else picture


def _encode(picture: Image.Image, format_: Format) -> Picture:
    picture.info = {name: value for name, value in picture.info.items() if name == "transparency"}
    buffer = BytesIO()
    if format_ == "JPEG":
        picture.save(buffer, "JPEG", quality=85, optimize=True, progressive=True)
    else:
        picture.save(buffer, "PNG")
    return Picture(buffer.getvalue(), f"image/{format_.lower()}", *picture.size)


# Thumbnails for the pages of Campanero.

_THUMBNAIL_QUALITY = 72


def make_thumbnail(content: bytes, side: int) -> bytes:
    """Return a picture as a WebP whose sides are at most `side` pixels; an animation becomes its first frame."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        image.draft("RGB", (side, side))
        thumbnail = image.convert("RGBA" if image.has_transparency_data else "RGB")
    thumbnail.thumbnail((side, side))
    buffer = BytesIO()
    thumbnail.save(buffer, "WEBP", quality=_THUMBNAIL_QUALITY)
    return buffer.getvalue()


# The dominant colours of a logo, which are proposed as brand colours.

_PALETTE_SIDE = 96
_MAX_SHADES = 12
_MAX_COLOURS = 4
# Colours outside of the first three limits do not characterize a brand. Colours closer together than the distance (the
# sum of the differences of red, green and blue) count as one.
_MAX_LIGHTNESS, _MIN_LIGHTNESS, _MIN_SATURATION = 0.93, 0.06, 0.12
_MIN_DISTANCE = 60


def find_dominant_colours(content: bytes) -> tuple[str, ...]:
    """Return up to four dominant colours as `#rrggbb`, the most characteristic first; none for black and white.

    Raises UnusablePicture for a file that is not a picture or is too large.
    """
    from PIL import Image

    try:
        with Image.open(BytesIO(content)) as image:
            check_size(*image.size)
            image.draft("RGB", (_PALETTE_SIDE, _PALETTE_SIDE))
            reduced = image.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise UnusablePicture(gettext_noop("is not an image")) from None
    reduced.thumbnail((_PALETTE_SIDE, _PALETTE_SIDE))
    sheet = Image.new("RGBA", reduced.size, "white")
    sheet.alpha_composite(reduced)
    quantized = sheet.convert("RGB").quantize(_MAX_SHADES)
    palette = quantized.getpalette() or []
    colour_counts = quantized.getcolors() or []
    candidates = sorted(
        (
            (count * _colour_weight(rgb), rgb)
            for count, index in colour_counts
            if _colour_weight(rgb := _palette_colour(palette, index))
        ),
        reverse=True,
    )
    colours: list[tuple[int, int, int]] = []
    for _, rgb in candidates:
        if all(sum(abs(a - b) for a, b in zip(rgb, other, strict=True)) > _MIN_DISTANCE for other in colours):
            colours.append(rgb)
    return tuple("#" + "".join(f"{part:02x}" for part in rgb) for rgb in colours[:_MAX_COLOURS])


def _palette_colour(shades: list[int], index: object) -> tuple[int, int, int]:
    at = 3 * int(str(index))
    red, green, blue = shades[at : at + 3]
    return red, green, blue


def _colour_weight(rgb: tuple[int, int, int]) -> float:
    """Return how characteristic a colour is: its saturation, or 0 for white, black and grey."""
    _, light, full = colorsys.rgb_to_hls(*(part / 255 for part in rgb))
    return full if _MIN_LIGHTNESS < light < _MAX_LIGHTNESS and full > _MIN_SATURATION else 0.0


# The largest allowed picture needs about 450 MiB, because several copies exist at a time: decoded, converted to sRGB,
# rotated, encoded.
MAX_MEMORY_BYTES = 768 * 1024 * 1024


def main() -> int:
    """Run tasks until the service ends."""
    return limited_process.serve(Task, _run_task, lambda task: pictures.MAX_PROCESSOR_SECONDS, MAX_MEMORY_BYTES)


def _run_task(task: Task) -> TaskResult:
    """Run a task and return its result, or the field error of an unusable picture."""
    try:
        return TaskResult(result=msgspec.Raw(msgspec.msgpack.encode(_dispatch(task))))
    except UnusablePicture as why:
        return TaskResult(unusable=str(why))


def _dispatch(task: Task) -> Any:
    match task:
        case ConvertTask():
            return convert(task.content, task.full_size)
        case ShrinkTask():
            return make_thumbnail(task.content, task.side)
        case FindColoursTask():
            return find_dominant_colours(task.content)
