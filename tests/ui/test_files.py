"""What the browser is sent beside the pages: small, ours or accounted for, and readable in light and dark."""

import gzip
import hashlib
import math
import re
from pathlib import Path

import pytest

from tests.kit.client import Client
from ui import formats
from ui.static_files import load_all, minify_css

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "static"
TOKEN = re.compile(r"--([\w-]+): light-dark\(oklch\(([^)]*)\), oklch\(([^)]*)\)\)")


# The sheets every page loads, and that of the editor; a page's own sheet or script is small, and loaded there alone.
SHEETS = ("tokens", "base", "parts", "editor")
SCRIPTS = {"ui": 8, "editor": 10, "drop": 7.5, "hand": 7, "drag": 6}


def test_the_files_keep_to_their_budgets() -> None:
    """As served: 40 KB for the sheets of all pages and the editor's, 8 for our script, few for what one page adds."""
    _, files = load_all()
    size = {name: len(file.plain) for name, file in files.items() if name.startswith(("css/", "js/"))}
    assert sum(size.pop(f"css/{name}.css", 0) for name in SHEETS) <= 40 * 1024
    large = {
        name: bytes for name, bytes in size.items()
        if bytes > 1024 * (3 if name.endswith(".css") else SCRIPTS.get(name[3:-3], 5.5))
    }  # fmt: skip
    assert large == {}


def test_compacting_a_sheet_changes_nothing_it_says() -> None:
    """Selectors keep the spaces that mean something, and values theirs."""
    sheet = """/* A comment. */
    .a :is(.b, .c) > p { margin: 0 auto;  color: red; }
    @media (min-width: 8px) { .d:hover { width: calc(100% - 2px) } & .e { font: 1px/2 "A b", serif } }
    """
    assert minify_css(sheet) == (
        ".a :is(.b,.c) > p{margin:0 auto;color:red}@media (min-width: 8px){.d:hover{width:calc(100% - 2px)}"
        '& .e{font:1px/2 "A b",serif}}'
    )


def test_vendored_files_are_the_ones_that_are_written_down() -> None:
    """Every file of others has a line with its digest in packaging/licences/vendored.md."""
    lines = (ROOT / "packaging" / "licences" / "vendored.md").read_text(encoding="utf-8")
    for path in (*(STATIC / "vendor").iterdir(), *(ROOT / "tests" / "vendor").iterdir()):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in lines, path.name


def test_the_sprite_holds_what_the_pages_use() -> None:
    """Every icon of the sprite is named somewhere in the interface."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "ui").rglob("*") if path.suffix in (".html", ".py")
    )
    names = re.findall(r'<symbol id="([^"]+)"', (STATIC / "icons.svg").read_text(encoding="utf-8"))
    assert names == sorted(set(names))
    assert [name for name in names if f"'{name}'" not in sources and f'"{name}"' not in sources] == []


def test_what_happens_has_a_picture_that_exists() -> None:
    """Every kind of event is told with an icon of the sprite."""
    sprite = (STATIC / "icons.svg").read_text(encoding="utf-8")
    assert [kind for kind, (icon, *_) in formats._EVENTS.items() if f'<symbol id="{icon}"' not in sprite] == []


def test_static_files_are_kept_for_a_year(server: object, api: Client) -> None:
    """A file under the present digest is immutable for a year; under another it is not kept."""
    page = api.request("GET", "/login").text
    found = re.search(r'href="(/static/(\w+)/css/base\.css)"', page)
    assert found
    answer = api.request("GET", found[1])
    assert answer.status == 200
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/css")
    stale = api.request("GET", found[1].replace(found[2], "000000000000"))
    assert (stale.status, stale.headers["cache-control"]) == (200, "no-cache")
    assert api.request("GET", f"/static/{found[2]}/../ui/view.py").status == 404


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


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_contrast_of_the_tokens(side: int) -> None:
    """Text is at least 4.5:1 on what it stands on, control borders 3:1, in both looks."""
    text = (STATIC / "css" / "tokens.css").read_text(encoding="utf-8")
    tokens = {name: (one, two)[side] for name, one, two in TOKEN.findall(text)}
    pairs = [(ink, ground) for ink in ("ink", "ink-2", "ink-3") for ground in ("paper", "surface", "sunken")]
    pairs += [
        (tone, ground) for tone in ("accent", "good", "warn", "bad", "hold") for ground in (f"{tone}-soft", "surface")
    ]
    pairs += [("accent-ink", "accent"), ("paper", "ink")]
    weak = {pair: found for pair in pairs if (found := _contrast(tokens[pair[0]], tokens[pair[1]])) < 4.5}
    assert weak == {}
    assert _contrast(tokens["edge"], tokens["surface"]) >= 3


def test_pages_are_packed_for_who_unpacks_them(server: object, api: Client) -> None:
    """A browser that says so gets a page in fewer bytes, never twice of the same length; others get it as it is."""
    plain = api.request("GET", "/login")
    packed = [api.request("GET", "/login", headers={"accept-encoding": "gzip"}) for _ in range(4)]
    assert "content-encoding" not in plain.headers
    assert all(one.headers["content-encoding"] == "gzip" for one in packed)
    assert all(gzip.decompress(one.body).decode() == plain.text for one in packed)
    assert len({len(one.body) for one in packed}) > 1
    assert max(len(one.body) for one in packed) * 2 < len(plain.body)
