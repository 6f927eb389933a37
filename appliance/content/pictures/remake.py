"""Pictures written anew: what somebody uploaded is decoded, brought to size, and encoded; nothing else of it stays.

So a script, a place or a camera's number that stood in the file is gone, and what is served is what it says it is.
"""

import struct
import warnings
import zlib
from io import BytesIO
from math import ceil, floor

from PIL import Image, ImageCms

from appliance.content.pictures import gif
from appliance.content.pictures.kinds import (
    MAX_PIXELS,
    MAX_WEBP_PIXELS,
    TOO_MANY,
    Kind,
    Picture,
    Unusable,
    allow,
    check_jpeg,
    check_png,
    kind,
    webp,
)

# Twice the widest mail (designs, theme): more no screen shows
WIDEST = 1_440
_MAX_MADE = 10 * 1_048_576
_BAND = 128
# Scaling begins with whole-number means, down to three times the size asked for: quicker, and nobody sees a difference
_REDUCING_GAP = 3.0
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
# What decoders raise for files that are not what they say
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, OverflowError, struct.error, zlib.error)
# The library warns at its limit and refuses at twice as many
Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def remake(content: bytes, full_size: bool = False) -> Picture:
    """Make a picture that mails can show, at most WIDEST pixels wide unless asked otherwise; raises Unusable."""
    found = kind(content)
    try:
        made = _gif(content, full_size) if found == "GIF" else _still(content, found, full_size)
    except Unusable:
        raise
    except Image.DecompressionBombError:
        raise Unusable(TOO_MANY) from None
    except _BROKEN:
        raise Unusable("is broken or cut off") from None
    if len(made.content) > _MAX_MADE:
        raise Unusable(f"is too large once it is written anew (maximum is {_MAX_MADE} bytes)")
    return made


def _gif(content: bytes, full_size: bool) -> Picture:
    """Keep a GIF as it moves; one that does not, and is too wide, becomes a PNG."""
    made = gif.remake(content)
    if made.frames == 1 and made.width > WIDEST and not full_size:
        return _still(made.content, "GIF", full_size)
    return Picture(made.content, "image/gif", made.width, made.height)


def _still(content: bytes, found: Kind, full_size: bool) -> Picture:
    as_jpeg = found == "JPEG"
    if found == "WEBP":
        head = webp(content)
        allow(head.width, head.height, MAX_WEBP_PIXELS)
        _must_stand(head.animated)
        as_jpeg = not head.lossless
    elif found == "JPEG":
        check_jpeg(content)
    elif found == "PNG":
        check_png(content)
    with Image.open(BytesIO(content), formats=(found,)) as opened:
        allow(*opened.size)
        _must_stand(found != "JPEG" and bool(getattr(opened, "is_animated", False)))
        made = _brought_to_size(opened, None if full_size else WIDEST)
    if as_jpeg and not made.has_transparency_data:
        return _encoded(made if made.mode in ("L", "RGB") else made.convert("RGB"), "JPEG")
    return _encoded(made, "PNG")


def _must_stand(animated: bool) -> None:
    if animated:
        raise Unusable("moves, but not in most mail programs: save it as a GIF")


def _brought_to_size(opened: Image.Image, widest: int | None) -> Image.Image:
    """Decode a picture, turned as its camera was held, in sRGB and no wider than asked."""
    orientation = _orientation(opened)
    width, height = opened.size
    shown = height if orientation in (5, 6, 7, 8) else width
    size = (width, height)
    if widest is not None and shown > widest:
        size = (max(1, round(width * widest / shown)), max(1, round(height * widest / shown)))
        opened.draft(None, size)
    opened.load()
    if opened.mode == "P" and opened.palette is None:
        raise Unusable("is broken or cut off")  # a PNG of palette colours without its PLTE chunk
    profile = opened.info.get("icc_profile")
    made = _resized(opened, size) if size != opened.size else _plain(opened)
    if opened.mode == "P" and made.mode == "RGB":
        # What had few colours would be several times as large with many
        made = made.quantize(256)
    if profile:
        made = _in_srgb(made, profile)
    if made.mode == "CMYK":
        made = made.convert("RGB")
    return made.transpose(_TURNS[orientation]) if orientation in _TURNS else made


def _orientation(opened: Image.Image) -> int:
    try:
        found = opened.getexif().get(_ORIENTATION, 1)
    except _BROKEN:
        return 1  # notes that nobody can read say nothing about how the camera was held
    return found if isinstance(found, int) else 1


def _plain(picture: Image.Image) -> Image.Image:
    """Return a picture in a mode that is written as it is: few colours stay few."""
    if picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        return picture
    if picture.mode.startswith("I"):
        # Sixteen bits of grey; a plain conversion would cut off instead of scaling
        return picture.convert("I").point(lambda value: value / 256).convert("L")
    return picture.convert("RGBA" if picture.has_transparency_data else "RGB")


def _resized(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Scale a picture down band by band, so that what lies between needs little memory."""
    clear = picture.has_transparency_data
    mode = "CMYK" if picture.mode == "CMYK" else "RGBA" if clear else "RGB"
    made = Image.new(mode, size)
    scale = picture.height / size[1]
    around = ceil(3 * scale) + 1
    for top in range(0, size[1], _BAND):
        bottom = min(top + _BAND, size[1])
        first = max(0, floor(top * scale) - around)
        last = min(picture.height, ceil(bottom * scale) + around)
        band = picture.crop((0, first, picture.width, last))
        band.info = {name: value for name, value in picture.info.items() if name == "transparency"}
        box = (0, top * scale - first, picture.width, min(bottom * scale, picture.height) - first)
        small = (size[0], bottom - top)
        scaled = _plain(band).convert(mode).resize(small, Image.Resampling.LANCZOS, box, _REDUCING_GAP)
        made.paste(scaled, (0, top))
    return made


def _in_srgb(picture: Image.Image, profile: bytes) -> Image.Image:
    """Convert the colours of a wide screen or a press to those that every screen knows."""
    if picture.mode not in ("RGB", "RGBA", "CMYK"):
        return picture
    mode = "RGB" if picture.mode == "CMYK" else picture.mode
    try:
        theirs = ImageCms.ImageCmsProfile(BytesIO(profile))
        made = ImageCms.profileToProfile(picture, theirs, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError):
        return picture  # a profile that nobody can read says nothing about the colours
    return made if made is not None else picture


def _encoded(picture: Image.Image, found: Kind) -> Picture:
    picture.info = {name: value for name, value in picture.info.items() if name == "transparency"}
    made = BytesIO()
    if found == "JPEG":
        picture.save(made, "JPEG", quality=85, optimize=True, progressive=True)
    else:
        picture.save(made, "PNG")
    return Picture(made.getvalue(), f"image/{found.lower()}", *picture.size)
