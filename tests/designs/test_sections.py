"""Kinds of sections: how one without a type is recognised, what its properties are also called, what it makes."""

from typing import Any

import pytest

from appliance.content.designs import document as designs_document
from appliance.content.designs.document import describe_designs
from appliance.content.designs.render import render_design
from appliance.content.designs.sections import BY_NAME, KINDS
from appliance.content.designs.theme import Look
from tests.designs.samples import EVERY, LOOK, SAMPLES

# docs/decisions.md#11: every kind with its properties
CONTRACT = {
    "header": "logo_url logo_alt logo_width wordmark_text background_color links layout",
    "hero": "image_url background_url title subtitle cta_text cta_url overlay height",
    "heading": "text level color size", "text": "content color size line_height",
    "list": "items style", "quote": "text author role photo_url",
    "button": "text href background_color text_color border_radius inner_padding style width note",
    "image": "src alt decorative href width border_radius dark_src",
    "split": "src alt side ratio title text button",
    "product": "name price old_price image_url href description button", "product_grid": "items",
    "gallery": "items columns", "columns": "columns preset gap stack_on_phone",
    "coupon": "code text expires_at button border", "video": "href thumbnail play_badge caption",
    "divider": "color width padding thickness style", "spacer": "height", "social": "links style size",
    "footer": "unsubscribe_text preferences view_in_browser text links", "html": "html plain_text",
}  # fmt: skip

INFERRED: list[tuple[dict[str, Any], str | None]] = [
    ({"columns": [], "code": "x"}, "columns"),
    ({"unsubscribe_text": "x", "logo_url": "x"}, "footer"), ({"company_name": "x"}, "footer"),
    ({"address": "x"}, "footer"),
    ({"logo_url": "x", "items": []}, "header"), ({"logo_alt": "x"}, "header"), ({"wordmark_text": "x"}, "header"),
    ({"items": [{"name": "a", "price": 1, "src": "x"}]}, "product_grid"), ({"items": [{"src": "x"}]}, "gallery"),
    ({"items": [{"text": "x"}], "code": "x"}, "list"), ({"items": None}, "list"),
    ({"code": "x", "price": 1}, "coupon"), ({"price": 1, "content": "x"}, "product"),
    ({"content": "x", "side": "left"}, "text"), ({"html": "<p>x</p>"}, "text"),
    ({"side": "left", "title": "x"}, "split"), ({"ratio": "1:1", "text": "x"}, "split"),
    ({"title": "x", "links": []}, "hero"), ({"subtitle": "x", "text": "y"}, "hero"), ({"cta_text": "x"}, "hero"),
    ({"background_url": "x", "src": "y"}, "hero"),
    ({"links": [], "src": "x"}, "social"), ({"src": "x", "text": "y"}, "image"), ({"url": "https://x/y.png"}, "image"),
    ({"text": "x", "href": "y", "level": 1}, "button"), ({"label": "x", "url": "y"}, "button"),
    ({"text": "x", "level": 1, "author": "y"}, "heading"), ({"text": "x", "author": "y"}, "quote"),
    ({"text": "x", "image_url": "y", "color": "red"}, "text"), ({"label": "x"}, "text"),
    ({"image_url": "x", "color": "red"}, "image"), ({"color": "red", "height": 1}, "divider"),
    ({"thickness": 2}, "divider"), ({"height": 10}, "spacer"), ({}, None), ({"alien": 1}, None),
]  # fmt: skip


@pytest.mark.parametrize(("props", "kind"), INFERRED)
def test_a_section_without_a_type_is_recognised_by_its_properties(props: dict[str, Any], kind: str | None) -> None:
    """The first kind that matches wins, in the order of the contract; what matches none is unknown."""
    found = designs_document.read_section({"props": props}, "sections[0]")

    assert (found.kind.name if found.kind else None) == kind


def test_a_type_is_stronger_than_properties_and_may_stand_among_them() -> None:
    """`type` says what a section is, as does `props.type`; HTML is only ever known by its type."""
    assert designs_document.read_section({"type": "text", "props": {"code": "x"}}, "s").type == "text"
    assert designs_document.read_section({"props": {"type": "coupon", "text": "x"}}, "s").type == "coupon"
    assert designs_document.read_section({"type": "html", "props": {"html": "x"}}, "s").type == "html"
    assert designs_document.read_section({"type": "alien", "props": {"text": "x"}}, "s").kind is None


@pytest.mark.parametrize(("kind", "said", "name"), [
    ("text", {"html": "<p>x</p>"}, "content"), ("text", {"text": "x"}, "content"), ("button", {"label": "x"}, "text"),
    ("button", {"url": "https://x.example"}, "href"), ("image", {"url": "https://x.example/a.png"}, "src"),
    ("video", {"url": "https://x.example"}, "href"), ("product", {"title": "x"}, "name"),
    ("product", {"src": "https://x.example/a.png"}, "image_url"), ("product", {"url": "https://x.example"}, "href"),
    ("html", {"content": "<p>x</p>"}, "html"), ("quote", {"content": "x"}, "text"),
])  # fmt: skip
def test_properties_are_known_by_their_other_names(kind: str, said: dict[str, Any], name: str) -> None:
    """What other products call `content`, `href`, `src` and `text` is taken for them."""
    found = designs_document.read_section({"type": kind, "props": said}, "s")

    assert found.kind is not None
    prop = next(one for one in found.kind.props if one.name == name)
    assert prop.get_value(found.props) == next(iter(said.values()))


def test_links_and_buttons_within_take_other_names_too() -> None:
    """`url` for `href` in a list of links, a button written as its words alone."""
    made = render_design({"sections": [
        {"type": "header", "props": {"links": [{"text": "Shop", "url": "https://shop.example/a"}]}},
        {"type": "product", "props": {"name": "Bell", "href": "https://shop.example/bell", "button": "Ring it"}},
    ]}, LOOK)  # fmt: skip

    assert 'href="https://shop.example/a"' in made.html
    assert made.html.count('href="https://shop.example/bell"') == 2
    assert "Ring it" in made.html


def test_every_kind_of_the_contract_is_there_with_its_properties() -> None:
    """What docs/decisions.md#11 names is declared, by its name, and has a sample to look at."""
    assert {kind.name for kind in KINDS} == set(CONTRACT) == set(SAMPLES)
    for name, props in CONTRACT.items():
        assert set(props.split()) <= {one.name for one in BY_NAME[name].props}, name


@pytest.mark.parametrize("name", EVERY)
def test_no_sample_breaks_a_rule(name: str) -> None:
    """Documents as people write them pass the check and give no advice but about a picture left out."""
    faults: list[tuple[str, str]] = []
    designs_document.validate(EVERY[name], lambda path, words: faults.append((path, words)))

    assert faults == []
    assert {one.code for one in render_design(EVERY[name], LOOK).advice} <= {"image_missing"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_in_columns], ids=lambda kind: kind.name)
def test_what_may_stand_in_a_column_does(kind: Any) -> None:
    """A section in a column shows the same words, with its own ground, and only to whom it is for."""
    inner = dict(SAMPLES[kind.name]["sections"][-1])
    alone = render_design({"sections": [inner]}, LOOK)
    inner["styles"] = {"background_color": "#fff4d6"}
    inner["props"] = inner["props"] | {"show_if": [{"name": "a"}], "hide_on": "phone"}
    made = render_design({"sections": [{"type": "columns", "props": {"columns": [{"sections": [inner]}, {}]}}]}, LOOK)

    name = next(iter(made.conditions))
    assert made.conditions[name] == [{"name": "a"}]
    assert f'{{% if show.{name} %}}<tr class="h-phone"><td style="background-color:#fff4d6;' in made.html
    assert alone.text.strip() in made.text


def test_the_spec_says_what_sections_are_made_of() -> None:
    """`/templates/spec` has every kind once, each property with a label, and defaults that the renderer uses."""
    found = describe_designs()

    assert sorted(one["type"] for one in found["kinds"]) == sorted(CONTRACT)
    assert all(prop["label"] for one in found["kinds"] for prop in one["props"])
    assert next(one for one in found["kinds"] if one["type"] == "hero")["defaults"]["height"] == 320
    assert [one["name"] for one in found["common"]] == ["align", "hide_on", "show_if", "name"]
    assert found["limits"]["sections"] == 200


def test_the_brand_stands_behind_header_footer_and_theme() -> None:
    """What a document does not say, the brand does: theme, header, footer, links; what it says is stronger."""
    look = Look(
        company_name="Bell & Hammer", brand_color="#111111", theme={"brand_color": "#0b6e4f", "width": 640},
        header={"wordmark_text": "From the brand", "links": [{"text": "Shop", "href": "https://shop.example"}]},
        footer={"text": "The brand's own words", "preferences": False}, links=(("x", "https://x.com/bell"),),
    )  # fmt: skip
    document = {"sections": [
        {"type": "header", "props": {"wordmark_text": None}},
        {"type": "button", "props": {"text": "Go", "href": "a.com"}},
        {"type": "social", "props": {}}, {"type": "footer", "props": {}},
    ]}  # fmt: skip
    made = render_design(document, look).html
    own = document | {"theme": {"brand_color": "#7a2e0e"}}
    own["sections"] = [{"type": "header", "props": {"wordmark_text": "Own"}}, *document["sections"][1:]]
    stronger = render_design(own, look).html

    assert "From the brand" in made
    assert "https://shop.example" in made
    assert "The brand&#39;s own words" in made or "The brand's own words" in made
    assert "preferences_url" not in made
    assert 'bgcolor="#0b6e4f"' in made
    assert "max-width:640px" in made
    assert "https://x.com/bell" in made
    assert "Own" in stronger
    assert "From the brand" not in stronger
    assert 'bgcolor="#7a2e0e"' in stronger


def test_a_document_without_sections_is_a_valid_empty_mail() -> None:
    """An empty document makes a whole mail with nothing in it."""
    for empty in ({}, {"sections": []}, {"sections": None}):
        made = render_design(empty, LOOK)

        assert made.html.startswith("<!doctype html>")
        assert made.html.rstrip().endswith("</html>")
        assert made.text.strip() == ""
        assert made.advice == ()


def test_languages_from_right_to_left_begin_on_the_right() -> None:
    """A mail in Arabic has its direction on the page, its words on the right."""
    made = render_design({"sections": [{"type": "text", "props": {"content": "x"}}]}, LOOK, "ar").html

    assert 'lang="ar" dir="rtl"' in made
    assert "text-align:right" in made
    assert "direction:ltr" not in made


def test_colours_of_the_theme_stand_where_a_section_names_them() -> None:
    """`theme:brand`, `theme:text`, `theme:bg` and a CSS name are colours; the page's colour goes dark with the page."""

    def made(colour: str, kind: str = "text") -> str:
        section = {"type": kind, "props": {}, "styles": {"background_color": colour}}
        return render_design({"sections": [section]}, LOOK).html

    assert "background:#0b6e4f;background-color:#0b6e4f;margin" in made("theme:brand")
    assert "background:#1f2328;background-color:#1f2328;margin" in made("theme:text")
    assert "background:#ff6347;background-color:#ff6347;margin" in made("tomato")
    assert '<div class="c-page c-pad' in made("theme:bg")
    assert '<div class="c-card' not in made("theme:bg")
    assert '<div class="c-card c-pad' in render_design({"sections": [{"type": "text"}]}, LOOK).html
    assert "background:#ff6347;background-color:#ff6347;margin" in made("tomato", "footer")
