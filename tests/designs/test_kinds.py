"""What kinds of sections promise beyond what their samples show: what they advise, and what stands in for what."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs.render import RenderedDesign, render_design
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

SHOP, PICTURE = "https://shop.example", "https://pictures.example/a.png"
BUTTON = {"text": "Go"}


def made(kind: str, look: Look = LOOK, styles: dict[str, Any] | None = None, **props: Any) -> RenderedDesign:
    """Render a mail of one section."""
    return render_design({"sections": [{"type": kind, "props": props, "styles": styles or {}}]}, look)


ADVISED: list[tuple[str, dict[str, Any], list[str]]] = [
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


@pytest.mark.parametrize(("kind", "props", "codes"), ADVISED)
def test_what_a_section_lacks_is_advised(kind: str, props: dict[str, Any], codes: list[str]) -> None:
    """Each thing once, with the path of the section; what nothing lacks is not spoken of."""
    found = made(kind, Look(physical_address="1 Main St"), **props).advice

    assert [one.code for one in found] == codes
    assert {one.path for one in found} <= {"sections[0]"}


@pytest.mark.parametrize(
    ("widths", "preset", "shares"),
    [
        ((30, 70), "2:1", {"30", "70"}), ((30, 50), "1:1", {"50"}), ((30, None), "1:1", {"50"}),
        ((None, None), "1:1:1", {"50"}),
    ],
)  # fmt: skip
def test_columns_are_as_wide_as_they_say(widths: tuple[Any, ...], preset: str, shares: set[str]) -> None:
    """As they say if that makes a whole, else as the preset if it has as many, else alike."""
    columns = [{"width": one, "sections": [{"type": "text", "props": {"content": "x"}}]} for one in widths]
    html = made("columns", columns=columns, preset=preset).html

    assert set(re.findall(r'class="[^"]*mj-column-per-(\d+) c-col', html)) == shares


def test_a_column_is_rendered_once() -> None:
    """For the HTML and for the text: what is wrong within it is told once."""
    column = {"sections": [{"type": "hologram"}, {"type": "text", "props": {"content": "Words"}}]}
    found = made("columns", columns=[column, column])

    assert [one.code for one in found.advice] == ["unknown_section", "unknown_section"]
    assert found.text.count("Words") == 2


def test_what_may_not_stand_in_a_column_is_told_and_left_out() -> None:
    """A header is no part of a column; what stands beside it is shown."""
    inner = [{"type": "header", "props": {"wordmark_text": "Head"}}, {"type": "text", "props": {"content": "Words"}}]
    found = made("columns", columns=[{"sections": inner}, {"sections": []}])

    assert [(one.code, one.path) for one in found.advice] == [
        ("unknown_section", "sections[0].props.columns[0].sections[0]")
    ]
    assert "Words" in found.html and "Head" not in found.html


def test_a_section_for_some_leaves_no_space_where_it_has_no_words() -> None:
    """Its condition stands around its words in the text part, and around nothing where it has none."""
    only = {"show_if": [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}]}

    assert re.fullmatch(r"{% if show\.\w+ %}Words\n\n{% endif %}\n", made("text", content="Words", **only).text)
    spacer = made("spacer", height=20, **only)
    assert spacer.text == "\n" and "{% if show." in spacer.html


@pytest.mark.parametrize(
    ("said", "shown"),
    [("2030-12-24", "24 December 2030"), ("2030-12-24T23:30:00-11:00", "24 December 2030"),
     ("while they last", "while they last"), ("2030-02-30", "2030-02-30")],
)  # fmt: skip
def test_a_coupon_ends_on_the_day_that_its_author_named(said: str, shown: str) -> None:
    """Written as people write it, in both parts; what is no date stands as it was written."""
    found = made("coupon", code="TEN", expires_at=said)

    assert shown in found.html and shown in found.text


def test_a_name_stands_instead_of_the_themes_logo() -> None:
    """A header shows its own logo, else the theme's unless it has a name to show."""
    theme = {"logo_url": "https://pictures.example/theme.png"}

    def shown(**props: Any) -> list[str]:
        return re.findall(r'<img[^>]* src="([^"]+)"', render_design({"sections": [{"type": "header", "props": props}],
                                                               "theme": theme}, LOOK).html)  # fmt: skip

    assert shown() == [theme["logo_url"]]
    assert shown(wordmark_text="Bell") == []
    assert shown(wordmark_text="Bell", logo_url=PICTURE) == [PICTURE]


@pytest.mark.parametrize(
    ("ground", "veil", "words"), [(None, "14,16,19", "#ffffff"), ("#f5f0e8", "255,255,255", "#16181d")]
)
def test_the_words_of_an_opening_can_be_read_before_and_on_its_picture(
    ground: str | None, veil: str, words: str
) -> None:
    """On the section's colour, else on nearly black; what lies between picture and words is of the same side."""
    html = made("hero", styles={"background_color": ground} if ground else None, title="Hello",
                background_url=PICTURE, overlay=40).html  # fmt: skip

    assert f'bgcolor="{ground or "#1d2126"}"' in html
    assert f"rgba({veil},0.4)" in html
    assert f"color:{words}" in html


def test_a_badge_that_is_nearly_black_turns_light_in_dark_mode() -> None:
    """Where the section has a colour of its own nothing turns, and a badge of another colour stays as it is."""
    links = [{"platform": "tiktok", "url": "https://tiktok.com/@bell"}]
    body = r'class="[^"]*\bc-ink\b'

    assert re.search(body, made("social", links=links).html)
    assert not re.search(body, made("social", links=links, styles={"background_color": "#ffffff"}).html)
    assert not re.search(body, made("social", links=[{"platform": "facebook", "url": "https://facebook.com/b"}]).html)


def test_the_text_of_html_is_the_one_that_was_given() -> None:
    """Else it is what the HTML says."""
    assert made("html", html="<p>Shown</p>").text == "Shown\n"
    assert made("html", html="<p>Shown</p>", plain_text="Read out").text == "Read out\n"


def test_a_product_leads_where_its_button_does() -> None:
    """In the text there is one address: the button's, else the product's."""
    product = {"name": "Bell", "image_url": PICTURE, "href": SHOP}

    assert SHOP in made("product", **product, button=BUTTON).text
    found = made("product", **product, button={"text": "Go", "href": f"{SHOP}/cart"}).text
    assert f"{SHOP}/cart\n" in found and f"{SHOP}\n" not in found


def test_a_brand_that_its_ground_would_hide_gives_way_to_the_words() -> None:
    """A button on the brand's own colour has the colour of the words there, and so can be seen."""
    assert LOOK.brand_color is not None
    there = made("button", styles={"background_color": LOOK.brand_color}, text="Go", href=SHOP).html
    elsewhere = made("button", styles={"background_color": "#ffffff"}, text="Go", href=SHOP).html
    button = r'<td[^>]* bgcolor="(#[0-9a-f]{6})"[^>]* role="presentation"'

    assert re.findall(button, elsewhere) == [LOOK.brand_color]
    assert re.findall(button, there) == ["#ffffff"]


@pytest.mark.parametrize("ground", ["#0b6e4f", "#8a8a8a", "#ffe08a", "#101010"])
def test_words_that_step_back_can_be_read_on_any_ground(ground: str) -> None:
    """Their contrast is 4.5 on the section's own colour too."""
    html = made("quote", styles={"background_color": ground}, text="Loud", author="Ann", role="baker").html
    found = re.search(r"color:(#[0-9a-f]{6})[^>]*>[^<]*baker", html)

    assert found is not None and contrast_ratio(found[1], ground) >= 4.5


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
def test_a_colour_is_lifted_until_it_can_be_read(colour: int, ground: int) -> None:
    """On every ground there is; one that can be read stays as it is."""
    one, behind = f"#{colour:06x}", f"#{ground:06x}"
    found = ensure_contrast(one, behind)

    assert contrast_ratio(found, behind) >= 4.5 and (found == one or contrast_ratio(one, behind) < 4.5)


def test_a_button_has_no_more_room_than_a_mail() -> None:
    """Spaces are 96 pixels at most; what is no space leaves the usual ones."""
    for said, shown in (("400px 10", "96px 10px"), ("wide", "14px 28px"), (None, "14px 28px")):
        assert f"padding:{shown}" in made("button", text="Go", href=SHOP, inner_padding=said).html


def test_spaces_and_colours_that_are_none_are_told() -> None:
    """Four words at most, each a number of pixels; a colour by hash or name. The mail takes its own instead."""
    for styles, word in (({"padding": "1 2 3 4 5"}, "Padding"), ({"padding": "2em"}, "Padding"),
                         ({"background_color": "sunny"}, "Background")):  # fmt: skip
        found = made("text", content="x", styles=styles).advice
        assert [(one.code, one.path) for one in found] == [("section", "sections[0]")]
        assert found[0].message.startswith(word)
    assert made("text", content="x", styles={"padding": "4 8px"}).advice == ()
    assert "padding:96px 8px 96px 8px" in made("text", content="x", styles={"padding": "400 8"}).html


@pytest.mark.parametrize(
    ("said", "width"),
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
def test_a_mail_is_as_wide_as_it_may_be(said: Any, width: int) -> None:
    """As near to the width that a document wants as the limits allow; what is no width wants none."""
    assert resolve_theme({"width": said}, Look()).width == width


def test_a_family_that_is_no_name_is_none() -> None:
    """The system's own letters stand behind every family, and alone where the name could be more than one."""
    assert font_stack("Open Sans, Arial").startswith("'Open Sans', ")
    assert font_stack("Garamond") == "Garamond, Georgia, serif"
    assert font_stack("x;color:red") == font_stack(None) == font_stack("'")
