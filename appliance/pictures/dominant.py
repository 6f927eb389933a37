"""The colours that a picture is known by: what a brand may be made of, proposed from its logo."""

import colorsys
from io import BytesIO

from appliance.pictures.kinds import Unusable, allow

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
