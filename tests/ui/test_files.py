"""Static files: their sizes, origins, caching and colours."""

import gzip
import hashlib
import math
import re
from pathlib import Path

import pytest

from appliance.content.designs.sections import KINDS
from tests.kit.client import Client
from ui import labels
from ui.static_files import load_all, minify_css

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "static"
TOKEN = re.compile(r"--([\w-]+): light-dark\(oklch\(([^)]*)\), oklch\(([^)]*)\)\)")


# The style sheets of every page and of the editor; others are small and used by one page
SHEETS = ("tokens", "base", "parts", "editor")
SCRIPTS = {
    "ui": 10.6, "flow": 6, "editor": 11.2, "pointer": 10, "caret": 8, "drop": 8, "bridge": 7.8, "swap": 6.7,
    "texts": 6.5, "picture": 6.2, "queue": 5.9, "drag": 6, "failures": 6.3,
}  # fmt: skip
SHEET_LIMITS = {
    "table": 3.2, "flow": 4, "import": 4.1, "docs": 3.5, "report": 3.4, "compose": 3.4, "people": 3.3, "inspector": 3.1,
}  # fmt: skip


def test_size_budgets() -> None:
    """Shared style sheets have at most 40 KB together; other sheets and scripts have their own limits."""
    _, files = load_all()
    size = {name: len(file.plain) for name, file in files.items() if name.startswith(("css/", "js/"))}
    assert sum(size.pop(f"css/{name}.css", 0) for name in SHEETS) <= 40 * 1024
    large = {
        name: bytes for name, bytes in size.items()
        if bytes > 1024 * (SHEET_LIMITS.get(name[4:-4], 3) if name.endswith(".css") else SCRIPTS.get(name[3:-3], 5.5))
    }  # fmt: skip
    assert large == {}


def test_minify_css() -> None:
    """Minifying keeps the spaces that have a meaning."""
    sheet = """/* A comment. */
    .a :is(.b, .c) > p { margin: 0 auto;  color: red; }
    @media (min-width: 8px) { .d:hover { width: calc(100% - 2px) } & .e { font: 1px/2 "A b", serif } }
    """
    assert minify_css(sheet) == (
        ".a :is(.b,.c) > p{margin:0 auto;color:red}@media (min-width: 8px){.d:hover{width:calc(100% - 2px)}"
        '& .e{font:1px/2 "A b",serif}}'
    )


def test_vendored_files_are_documented() -> None:
    """The SHA-256 of each vendored file is in packaging/licences/vendored.md."""
    lines = (ROOT / "packaging" / "licences" / "vendored.md").read_text(encoding="utf-8")
    for path in (*(STATIC / "vendor").iterdir(), *(ROOT / "tests" / "vendor").iterdir()):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in lines, path.name


def test_the_sprite_has_no_unused_icons() -> None:
    """Each icon of the sprite is used somewhere in the interface, or is that of a kind of section."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "ui").rglob("*") if path.suffix in (".html", ".py")
    )
    names = re.findall(r'<symbol id="([^"]+)"', (STATIC / "icons.svg").read_text(encoding="utf-8"))
    assert names == sorted(set(names))
    of_kinds = {kind.icon for kind in KINDS}
    assert [
        name for name in names if f"'{name}'" not in sources and f'"{name}"' not in sources and name not in of_kinds
    ] == []


def test_event_icons_exist() -> None:
    """Each kind of event has an icon of the sprite."""
    sprite = (STATIC / "icons.svg").read_text(encoding="utf-8")
    assert [kind for kind, (icon, *_) in labels.EVENT_ICONS.items() if f'<symbol id="{icon}"' not in sprite] == []


def test_static_files_are_cached_for_a_year(server: object, api: Client) -> None:
    """A file under its current hash is immutable for a year; under another hash it is not cached."""
    page = api.request("GET", "/login").text
    match = re.search(r'href="(/static/(\w+)/css/base\.css)"', page)
    assert match
    response = api.request("GET", match[1])
    assert response.status == 200
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["content-type"].startswith("text/css")
    stale = api.request("GET", match[1].replace(match[2], "000000000000"))
    assert (stale.status, stale.headers["cache-control"]) == (200, "no-cache")
    assert api.request("GET", f"/static/{match[2]}/../ui/view.py").status == 404


def _luminance(oklch: str) -> float:
    """Return the relative luminance (WCAG) of an oklch colour."""
    light, chroma, hue = (float(part) for part in oklch.split()[:3])
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long, medium, short = (
        (light + 0.3963377774 * a + 0.2158037573 * b) ** 3,
        (light - 0.1055613458 * a - 0.0638541728 * b) ** 3,
        (light - 0.0894841775 * a - 1.2914855480 * b) ** 3,
    )
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    red, green, blue = (min(1.0, max(0.0, part)) for part in (red, green, blue))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(first: str, second: str) -> float:
    high, low = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_contrast_of_color_tokens(side: int) -> None:
    """Text has a contrast of at least 4.5:1 to its background and control borders 3:1, in both themes."""
    text = (STATIC / "css" / "tokens.css").read_text(encoding="utf-8")
    tokens = {name: (light, dark)[side] for name, light, dark in TOKEN.findall(text)}
    pairs = [
        (text_color, background)
        for text_color in ("ink", "ink-2", "ink-3")
        for background in ("paper", "surface", "sunken")
    ]
    pairs += [
        (tone, background)
        for tone in ("accent", "good", "warn", "bad", "hold")
        for background in (f"{tone}-soft", "surface")
    ]
    pairs += [("accent-ink", "accent"), ("paper", "ink")]
    weak = {pair: ratio for pair in pairs if (ratio := _contrast(tokens[pair[0]], tokens[pair[1]])) < 4.5}
    assert weak == {}
    assert _contrast(tokens["edge"], tokens["surface"]) >= 3


def test_compressed_pages(server: object, api: Client) -> None:
    """Clients that accept gzip get a compressed page, whose length varies each time."""
    plain = api.request("GET", "/login")
    compressed = [api.request("GET", "/login", headers={"accept-encoding": "gzip"}) for _ in range(4)]
    assert "content-encoding" not in plain.headers
    assert all(response.headers["content-encoding"] == "gzip" for response in compressed)
    assert all(gzip.decompress(response.body).decode() == plain.text for response in compressed)
    assert len({len(response.body) for response in compressed}) > 1
    assert max(len(response.body) for response in compressed) * 2 < len(plain.body)
