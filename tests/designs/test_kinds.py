"""Kinds of sections beyond their samples: advice, defaults and fallbacks."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs.render import RenderedDesign, render_design
from appliance.content.designs.sections import social
from appliance.content.designs.theme import (
    DEFAULT_WIDTH,
    MAX_WIDTH,
    MIN_WIDTH,
    Look,
    contrast_ratio,
    ensure_contrast,
    font_stack,
    resolve_theme,
)
from tests.designs.samples import LOOK
from tests.kit.server import ROOT

SHOP, PICTURE = "https://shop.example", "https://pictures.example/a.png"
BUTTON = {"text": "Go"}


def render_section(kind: str, look: Look = LOOK, styles: dict[str, Any] | None = None, **props: Any) -> RenderedDesign:
    """Render an email of one section."""
    return render_design({"sections": [{"type": kind, "props": props, "styles": styles or {}}]}, look)


ADVICE: list[tuple[str, dict[str, Any], list[str]]] = [
    ("button", {"text": "Go"}, ["link_missing"]),
    ("button", {"text": "Go", "href": SHOP, "text_color": "#777777", "background_color": "#888888"}, ["contrast"]),
    ("button", {"text": "Go", "href": SHOP, "text_color": "#ffffff", "background_color": "#333333"}, []),
    ("columns", {"columns": [{"sections": []}]}, ["section"]),
    ("coupon", {"text": "Ten off"}, ["section"]),
    ("coupon", {"code": "TEN", "button": BUTTON}, ["link_missing"]),
    ("gallery", {"items": [{}, {}]}, ["image_missing"]),
    ("gallery", {"items": [{"src": PICTURE, "alt": "A"}, {"src": PICTURE}]}, ["alt_missing"]),
    ("header", {"logo_url": PICTURE}, ["alt_missing"]),
    ("header", {"logo_url": PICTURE, "logo_alt": "Bell"}, []),
    ("hero", {"title": "x", "cta_text": "Go"}, ["link_missing"]),
    ("hero", {"image_url": PICTURE}, ["alt_missing"]),
    ("image", {}, ["image_missing"]),
    ("image", {"src": PICTURE}, ["alt_missing"]),
    ("image", {"src": PICTURE, "decorative": True}, []),
    ("product", {"name": "Bell"}, ["image_missing"]),
    ("product", {"name": "Bell", "image_url": PICTURE, "button": BUTTON}, ["link_missing"]),
    ("product", {"name": "Bell", "image_url": PICTURE, "button": BUTTON, "href": SHOP}, []),
    ("product_grid", {"items": [{"name": "A"}, {"name": "B", "image_url": PICTURE}]}, ["image_missing"]),
    ("split", {"title": "x"}, ["image_missing"]),
    ("split", {"title": "x", "src": PICTURE, "button": BUTTON}, ["alt_missing", "link_missing"]),
    ("video", {}, ["link_missing", "image_missing"]),
    ("video", {"href": SHOP, "thumbnail": PICTURE}, ["alt_missing"]),
]


@pytest.mark.parametrize(("kind", "props", "codes"), ADVICE)
def test_advice_about_missing_properties(kind: str, props: dict[str, Any], codes: list[str]) -> None:
    """Each missing property is reported once, with the path of the section, and nothing else."""
    advice = render_section(kind, Look(physical_address="1 Main St"), **props).advice

    assert [entry.code for entry in advice] == codes
    assert {entry.path for entry in advice} <= {"sections[0]"}


@pytest.mark.parametrize(
    ("widths", "preset", "shares"),
    [
        ((30, 70), "2:1", {"30", "70"}), ((30, 50), "1:1", {"50"}), ((30, None), "1:1", {"50"}),
        ((None, None), "1:1:1", {"50"}),
    ],
)  # fmt: skip
def test_column_widths(widths: tuple[Any, ...], preset: str, shares: set[str]) -> None:
    """Widths that add up to 100 apply, else the preset if it has as many columns, else equal widths."""
    columns = [{"width": width, "sections": [{"type": "text", "props": {"content": "x"}}]} for width in widths]
    html = render_section("columns", columns=columns, preset=preset).html

    assert set(re.findall(r'class="[^"]*mj-column-per-(\d+) c-col', html)) == shares


def test_a_column_is_rendered_once() -> None:
    """Advice about a column's sections appears once, though HTML and text are rendered."""
    column = {"sections": [{"type": "hologram"}, {"type": "text", "props": {"content": "Words"}}]}
    design = render_section("columns", columns=[column, column])

    assert [entry.code for entry in design.advice] == ["unknown_section", "unknown_section"]
    assert design.text.count("Words") == 2


def test_a_header_in_a_column_is_left_out() -> None:
    """A header in a column causes advice and is not shown; the other sections are."""
    inner = [{"type": "header", "props": {"wordmark_text": "Head"}}, {"type": "text", "props": {"content": "Words"}}]
    design = render_section("columns", columns=[{"sections": inner}, {"sections": []}])

    assert [(entry.code, entry.path) for entry in design.advice] == [
        ("unknown_section", "sections[0].props.columns[0].sections[0]")
    ]
    assert "Words" in design.html and "Head" not in design.html


def test_a_condition_without_text_adds_no_space() -> None:
    """The text part has a condition around a section's text, and none for a section without text."""
    only = {"show_if": [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}]}

    assert re.fullmatch(
        r"{% if show\.\w+ %}Words\n\n{% endif %}\n", render_section("text", content="Words", **only).text
    )
    spacer = render_section("spacer", height=20, **only)
    assert spacer.text == "\n" and "{% if show." in spacer.html


@pytest.mark.parametrize(
    ("expires_at", "shown"),
    [("2030-12-24", "24 December 2030"), ("2030-12-24T23:30:00-11:00", "24 December 2030"),
     ("while they last", "while they last"), ("2030-02-30", "2030-02-30")],
)  # fmt: skip
def test_coupon_expiry_date(expires_at: str, shown: str) -> None:
    """An ISO date is written out in HTML and text, ignoring its time zone; other text is left as it is."""
    design = render_section("coupon", code="TEN", expires_at=expires_at)

    assert shown in design.html and shown in design.text


def test_a_wordmark_replaces_the_logo_of_the_theme() -> None:
    """A header shows its own logo, else the theme's logo unless it has a wordmark."""
    theme = {"logo_url": "https://pictures.example/theme.png"}

    def shown(**props: Any) -> list[str]:
        return re.findall(r'<img[^>]* src="([^"]+)"', render_design({"sections": [{"type": "header", "props": props}],
                                                               "theme": theme}, LOOK).html)  # fmt: skip

    assert shown() == [theme["logo_url"]]
    assert shown(wordmark_text="Bell") == []
    assert shown(wordmark_text="Bell", logo_url=PICTURE) == [PICTURE]


@pytest.mark.parametrize(
    ("background", "overlay", "color"), [(None, "14,16,19", "#ffffff"), ("#f5f0e8", "255,255,255", "#16181d")]
)
def test_hero_text_contrast(background: str | None, overlay: str, color: str) -> None:
    """Text, overlay and background of a hero fit the section's colour, by default a nearly black one."""
    html = render_section("hero", styles={"background_color": background} if background else None, title="Hello",
                background_url=PICTURE, overlay=40).html  # fmt: skip

    assert f'bgcolor="{background or "#1d2126"}"' in html
    assert f"rgba({overlay},0.4)" in html
    assert f"color:{color}" in html


def test_a_dark_badge_turns_light_in_dark_mode() -> None:
    """A nearly black badge is inverted unless the section has its own colour; other badges are not."""
    links = [{"platform": "tiktok", "url": "https://tiktok.com/@bell"}]
    inverted = r'class="[^"]*\bc-ink\b'

    assert re.search(inverted, render_section("social", links=links).html)
    assert not re.search(inverted, render_section("social", links=links, styles={"background_color": "#ffffff"}).html)
    assert not re.search(
        inverted, render_section("social", links=[{"platform": "facebook", "url": "https://facebook.com/b"}]).html
    )


def test_social_links_are_icons() -> None:
    """Links to known platforms are icons with the name as alt text, which dark mode changes if they follow the text."""
    look = LOOK._replace(icons_url="https://mail.example/m/icons")
    links = [{"url": f"https://{name}.com/bell"} for name in ("facebook", "twitter")]

    def icons(**props: Any) -> list[str]:
        html = render_section("social", look, links=links, **props).html
        return re.findall(r'<img[^>]* src="https://mail.example/m/icons/([^"]+)" alt="([^"]+)"', html)

    assert icons() == [("facebook-colour.png", "Facebook"), ("x-colour.png", "X")]
    assert [name for name, _ in icons(style="ink")][:2] == ["facebook-ink-dark.png", "facebook-ink-light.png"]
    dark = render_section("social", look, {"background_color": "#101010"}, links=links, style="outline").html
    assert "facebook-outline-light.png" in dark and "facebook-outline-dark.png" not in dark
    assert ">Diary<" in render_section("social", look, links=[{"platform": "Diary", "url": SHOP}]).html
    styles = ("colour", "ink-dark", "ink-light", "outline-dark", "outline-light")
    files = {f"{name}-{style}.png" for name in social.PLATFORMS if name != "twitter" for style in styles}
    assert {path.name for path in (ROOT / social.ICONS).glob("*.png")} == files


def test_plain_text_of_an_html_section() -> None:
    """The text part is `plain_text` if given, else derived from the HTML."""
    assert render_section("html", html="<p>Shown</p>").text == "Shown\n"
    assert render_section("html", html="<p>Shown</p>", plain_text="Read out").text == "Read out\n"


def test_the_text_of_a_product_has_one_link() -> None:
    """The link in the text part is the button's, else the product's."""
    product = {"name": "Bell", "image_url": PICTURE, "href": SHOP}

    assert SHOP in render_section("product", **product, button=BUTTON).text
    text = render_section("product", **product, button={"text": "Go", "href": f"{SHOP}/cart"}).text
    assert f"{SHOP}/cart\n" in text and f"{SHOP}\n" not in text


def test_a_button_on_the_brand_color_is_visible() -> None:
    """On a background in the brand colour a button takes the text colour instead."""
    assert LOOK.brand_color is not None
    on_brand = render_section("button", styles={"background_color": LOOK.brand_color}, text="Go", href=SHOP).html
    on_white = render_section("button", styles={"background_color": "#ffffff"}, text="Go", href=SHOP).html
    button = r'<td[^>]* bgcolor="(#[0-9a-f]{6})"[^>]* role="presentation"'

    assert re.findall(button, on_white) == [LOOK.brand_color]
    assert re.findall(button, on_brand) == ["#ffffff"]


@pytest.mark.parametrize("background", ["#0b6e4f", "#8a8a8a", "#ffe08a", "#101010"])
def test_muted_text_contrast(background: str) -> None:
    """Muted text has a contrast of 4.5 on any background colour of the section."""
    html = render_section(
        "quote", styles={"background_color": background}, text="Loud", author="Ann", role="baker"
    ).html
    match = re.search(r"color:(#[0-9a-f]{6})[^>]*>[^<]*baker", html)

    assert match is not None and contrast_ratio(match[1], background) >= 4.5


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
def test_ensure_contrast(colour: int, ground: int) -> None:
    """The result has a contrast of 4.5 on any background; a readable colour is unchanged."""
    color, background = f"#{colour:06x}", f"#{ground:06x}"
    result = ensure_contrast(color, background)

    assert contrast_ratio(result, background) >= 4.5 and (result == color or contrast_ratio(color, background) < 4.5)


def test_button_padding_is_limited() -> None:
    """Padding is capped at 96 px, and invalid padding becomes the default."""
    for padding, shown in (("400px 10", "96px 10px"), ("wide", "14px 28px"), (None, "14px 28px")):
        assert f"padding:{shown}" in render_section("button", text="Go", href=SHOP, inner_padding=padding).html


def test_invalid_padding_and_colors_cause_advice() -> None:
    """Padding takes up to four pixel values and a colour is a hash or a name; invalid values cause advice."""
    for styles, word in (({"padding": "1 2 3 4 5"}, "Padding"), ({"padding": "2em"}, "Padding"),
                         ({"background_color": "sunny"}, "Background")):  # fmt: skip
        advice = render_section("text", content="x", styles=styles).advice
        assert [(entry.code, entry.path) for entry in advice] == [("section", "sections[0]")]
        assert advice[0].message.startswith(word)
    assert render_section("text", content="x", styles={"padding": "4 8px"}).advice == ()
    assert "padding:96px 8px 96px 8px" in render_section("text", content="x", styles={"padding": "400 8"}).html


@pytest.mark.parametrize(
    ("value", "width"),
    [
        (640, 640),
        ("640px", 640),
        ("2000", MAX_WIDTH),
        (1, MIN_WIDTH),
        ("wide", DEFAULT_WIDTH),
        (True, DEFAULT_WIDTH),
        ("9" * 7, DEFAULT_WIDTH),
    ],
)
def test_theme_width(value: Any, width: int) -> None:
    """The width is clamped to the limits; an invalid width becomes the default."""
    assert resolve_theme({"width": value}, Look()).width == width


def test_font_stack() -> None:
    """A font family gets system fallbacks; an unsafe name leaves only the fallbacks."""
    assert font_stack("Open Sans, Arial").startswith("'Open Sans', ")
    assert font_stack("Garamond") == "Garamond, Georgia, serif"
    assert font_stack("x;color:red") == font_stack(None) == font_stack("'")
