"""Draw the icons of social links: a PNG of each platform and style from the SVGs in `appliance/content/designs/icons`.

Email apps do not show SVG, so the PNGs are shipped beside the sources. Run it after a change of an SVG, a colour or a
style: `.venv/bin/python packaging/social_icons.py`. It needs the Chromium of the tests.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from appliance.content.designs import theme
from appliance.content.designs.sections import social
from appliance.core.shipped import ROOT

_SIZE_PX, _GLYPH_PX, _RING_PX = 96, 48, 4
_CHROMIUM = "chromium-headless-shell"  # without it, that of Playwright
_DARK, _LIGHT = "#16181d", "#ffffff"


def main() -> None:
    """Write all PNGs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(_CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _SIZE_PX, "height": _SIZE_PX})
        for name, source in ((path.stem, path) for path in sorted((ROOT / social.ICONS).glob("*.svg"))):
            for style, (fill, ring, ink) in _colours(social.PLATFORMS[name].colour).items():
                page.set_content(_draw(source.read_text(encoding="utf-8"), fill, ring, ink))
                with Image.open(io.BytesIO(page.screenshot(omit_background=True))) as picture:
                    smaller = picture.quantize(32, method=Image.Quantize.FASTOCTREE)
                    smaller.save(ROOT / social.ICONS / f"{name}-{style}.png", optimize=True)
        browser.close()


def _colours(colour: str) -> dict[str, tuple[str, str, str]]:
    """Return the colours of disc, ring and drawing by style.

    A dark disc has a light ring, so that it is seen where an email app turns the background dark.
    """
    return {
        "colour": (colour, _LIGHT if theme.luminance(colour) < 0.03 else colour, _LIGHT),
        "ink-dark": (_DARK, _LIGHT, _LIGHT),
        "ink-light": (_LIGHT, _LIGHT, _DARK),
        "outline-dark": (_LIGHT, _DARK, _DARK),
        "outline-light": ("transparent", _LIGHT, _LIGHT),
    }


def _draw(svg: str, fill: str, ring: str, ink: str) -> str:
    inner = svg[svg.index(">") + 1 : svg.rindex("</svg>")].replace("#000", ink)
    scale, start = _GLYPH_PX / 24, (_SIZE_PX - _GLYPH_PX) / 2
    half = _SIZE_PX / 2
    return (
        f'<body style="margin:0"><svg width="{_SIZE_PX}" height="{_SIZE_PX}" style="display:block">'
        f'<circle cx="{half}" cy="{half}" r="{half - _RING_PX / 2}" fill="{fill}" stroke="{ring}" '
        f'stroke-width="{_RING_PX}"/>'
        f'<g transform="translate({start} {start}) scale({scale})" fill="{ink}">{inner}</g></svg>'
    )


if __name__ == "__main__":
    main()
