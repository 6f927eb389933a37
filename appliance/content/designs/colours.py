"""Colours as documents write them, and what can be read on them."""

import re
from functools import lru_cache

_HEX = re.compile(r"#[0-9a-fA-F]{6}\Z")
_SHORT_HEX = re.compile(r"#[0-9a-fA-F]{3}\Z")
_THEME = ("theme:brand", "theme:text", "theme:bg")


@lru_cache(maxsize=512)
def known(value: str) -> str | None:
    """Return a colour as `#rrggbb`, from that form, three digits or a CSS name; None for anything else."""
    text = value.strip().lower()
    if _HEX.match(text):
        return text
    if _SHORT_HEX.match(text):
        return "#" + "".join(one * 2 for one in text[1:])
    from PIL import ImageColor

    if not text.isalpha():
        return None
    found = ImageColor.colormap.get(text)
    return found if isinstance(found, str) else None


def is_colour(value: str) -> bool:
    """Return whether a document may write this where a colour stands (docs/decisions.md#11, Rendering)."""
    return value.strip().lower() in _THEME or known(value) is not None


def parts(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@lru_cache(maxsize=512)
def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, 0 (black) to 1 (WCAG 2.2, relative luminance)."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4
              for one in (part / 255 for part in parts(colour))]  # fmt: skip
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2, contrast ratio)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mix(one: str, other: str, share: float) -> str:
    """Return a colour between two; `share` is how much of the second is in it, 0 to 1."""
    mixed = (round(a + (b - a) * share) for a, b in zip(parts(one), parts(other), strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def readable_on(background: str, wanted: str | None = None) -> str:
    """Return a colour for words on a background: the one wanted if it can be read there, else white or near black."""
    if wanted is not None and contrast(wanted, background) >= 4.5:
        return wanted
    return max(("#ffffff", "#16181d"), key=lambda one: contrast(one, background))


def lifted(colour: str, background: str, ratio: float = 4.5) -> str:
    """Return a colour as near to one as can be read on a background, by mixing white or black in."""
    towards = max(("#ffffff", "#000000"), key=lambda one: contrast(one, background))
    for step in range(21):
        found = mix(colour, towards, step / 20)
        if contrast(found, background) >= ratio:
            return found
    return towards
