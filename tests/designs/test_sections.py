"""Kinds of sections: inference of a missing type, aliases of properties, and the specification."""

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
def test_a_missing_type_is_inferred_from_the_properties(props: dict[str, Any], kind: str | None) -> None:
    """The first matching kind wins, in the order of the contract; without a match the section is unknown."""
    section = designs_document.read_section({"props": props}, "sections[0]")

    assert (section.kind.name if section.kind else None) == kind


def test_a_type_overrides_inference() -> None:
    """`type` and `props.type` set the kind; an unknown type is not inferred."""
    assert designs_document.read_section({"type": "text", "props": {"code": "x"}}, "s").type == "text"
    assert designs_document.read_section({"props": {"type": "coupon", "text": "x"}}, "s").type == "coupon"
    assert designs_document.read_section({"type": "html", "props": {"html": "x"}}, "s").type == "html"
    assert designs_document.read_section({"type": "alien", "props": {"text": "x"}}, "s").kind is None


@pytest.mark.parametrize(("kind", "props", "name"), [
    ("text", {"html": "<p>x</p>"}, "content"), ("text", {"text": "x"}, "content"), ("button", {"label": "x"}, "text"),
    ("button", {"url": "https://x.example"}, "href"), ("image", {"url": "https://x.example/a.png"}, "src"),
    ("video", {"url": "https://x.example"}, "href"), ("product", {"title": "x"}, "name"),
    ("product", {"src": "https://x.example/a.png"}, "image_url"), ("product", {"url": "https://x.example"}, "href"),
    ("html", {"content": "<p>x</p>"}, "html"), ("quote", {"content": "x"}, "text"),
])  # fmt: skip
def test_property_aliases(kind: str, props: dict[str, Any], name: str) -> None:
    """The names of other products are accepted as aliases of `content`, `href`, `src` and `text`."""
    section = designs_document.read_section({"type": kind, "props": props}, "s")

    assert section.kind is not None
    prop = next(prop for prop in section.kind.props if prop.name == name)
    assert prop.get_value(section.props) == next(iter(props.values()))


def test_aliases_in_links_and_buttons() -> None:
    """`url` is an alias of `href` in a list of links, and a button may be its text alone."""
    design = render_design({"sections": [
        {"type": "header", "props": {"links": [{"text": "Shop", "url": "https://shop.example/a"}]}},
        {"type": "product", "props": {"name": "Bell", "href": "https://shop.example/bell", "button": "Ring it"}},
    ]}, LOOK)  # fmt: skip

    assert 'href="https://shop.example/a"' in design.html
    assert design.html.count('href="https://shop.example/bell"') == 2
    assert "Ring it" in design.html


def test_plain_texts_are_in_the_language_of_the_email() -> None:
    """The plain text of a product with an original price, and of a video without a caption."""
    sections = [
        {"type": "product", "props": {"name": "Glocke", "price": "20 €", "old_price": "30 €"}},
        {"type": "video", "props": {"href": "https://shop.example/film"}},
    ]
    text = render_design({"sections": sections}, LOOK, "fr").text

    assert "Glocke: 20 € (au lieu de 30 €)" in text and "[Vidéo]" in text


def test_all_kinds_of_the_contract_exist() -> None:
    """Each kind of docs/decisions.md#11 is declared with its properties and has a sample."""
    assert {kind.name for kind in KINDS} == set(CONTRACT) == set(SAMPLES)
    for name, props in CONTRACT.items():
        assert set(props.split()) <= {prop.name for prop in BY_NAME[name].props}, name


@pytest.mark.parametrize("name", EVERY)
def test_samples_are_valid(name: str) -> None:
    """Each sample passes validation and causes no advice except about a missing image."""
    errors: list[tuple[str, str]] = []
    designs_document.validate(EVERY[name], lambda path, words: errors.append((path, words)))

    assert errors == []
    assert {entry.code for entry in render_design(EVERY[name], LOOK).advice} <= {"image_missing"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_in_columns], ids=lambda kind: kind.name)
def test_sections_in_a_column(kind: Any) -> None:
    """A section in a column has the same text, its own background, its condition and its `hide_on`."""
    inner = dict(SAMPLES[kind.name]["sections"][-1])
    alone = render_design({"sections": [inner]}, LOOK)
    inner["styles"] = {"background_color": "#fff4d6"}
    inner["props"] = inner["props"] | {"show_if": [{"name": "a"}], "hide_on": "phone"}
    design = render_design({"sections": [{"type": "columns", "props": {"columns": [{"sections": [inner]}, {}]}}]}, LOOK)

    name = next(iter(design.conditions))
    assert design.conditions[name] == [{"name": "a"}]
    assert f'{{% if show.{name} %}}<tr class="h-phone"><td style="background-color:#fff4d6;' in design.html
    assert alone.text.strip() in design.text


def test_describe_designs() -> None:
    """`/templates/spec` lists each kind once, with a label for each property, defaults and limits."""
    spec = describe_designs()

    assert sorted(kind["type"] for kind in spec["kinds"]) == sorted(CONTRACT)
    assert all(prop["label"] for kind in spec["kinds"] for prop in kind["props"])
    assert next(kind for kind in spec["kinds"] if kind["type"] == "hero")["defaults"]["height"] == 320
    assert [kind["name"] for kind in spec["common"]] == ["align", "hide_on", "show_if", "name"]
    assert spec["limits"]["sections"] == 200


def test_the_brand_gives_the_defaults_of_a_document() -> None:
    """Theme, header, footer and links of the brand apply unless the document sets its own."""
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
    html = render_design(document, look).html
    overriding = document | {"theme": {"brand_color": "#7a2e0e"}}
    overriding["sections"] = [{"type": "header", "props": {"wordmark_text": "Own"}}, *document["sections"][1:]]
    overridden = render_design(overriding, look).html

    assert "From the brand" in html
    assert "https://shop.example" in html
    assert "The brand&#39;s own words" in html or "The brand's own words" in html
    assert "preferences_url" not in html
    assert 'bgcolor="#0b6e4f"' in html
    assert "max-width:640px" in html
    assert "https://x.com/bell" in html
    assert "Own" in overridden
    assert "From the brand" not in overridden
    assert 'bgcolor="#7a2e0e"' in overridden


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        ("en", ("Unsubscribe", "Preferences", "View in browser")),
        ("de-CH", ("Abmelden", "Einstellungen", "Im Browser ansehen")),
        ("es", ("Darse de baja", "Preferencias", "Ver en el navegador")),
        ("fr", ("Se désinscrire", "Préférences", "Voir dans le navigateur")),
    ],
)
def test_the_links_of_a_footer_are_in_the_language_of_the_message(locale: str, words: tuple[str, ...]) -> None:
    """Words that the author or the brand chose for the link to unsubscribe stay."""
    document = {"sections": [{"type": "footer", "props": {"unsubscribe_text": None}}]}
    rendered = render_design(document, LOOK, locale)
    for word in words:
        assert f">{word}</a>" in rendered.html and f"\n{word}: {{{{" in rendered.text
    document["sections"][0]["props"]["unsubscribe_text"] = "Stop"  # type: ignore[index]  # the list is above
    assert ">Stop</a>" in render_design(document, LOOK, locale).html
    look = Look(company_name="Bell", footer={"unsubscribe_text": "No more"})
    assert ">No more</a>" in render_design({"sections": [{"type": "footer"}]}, look, locale).html


def test_a_document_without_sections_renders_an_empty_email() -> None:
    """An empty document renders complete HTML without text and without advice."""
    for empty in ({}, {"sections": []}, {"sections": None}):
        design = render_design(empty, LOOK)

        assert design.html.startswith("<!doctype html>")
        assert design.html.rstrip().endswith("</html>")
        assert design.text.strip() == ""
        assert design.advice == ()


def test_right_to_left_languages() -> None:
    """An email in Arabic has `dir="rtl"` and right-aligned text."""
    html = render_design({"sections": [{"type": "text", "props": {"content": "x"}}]}, LOOK, "ar").html

    assert 'lang="ar" dir="rtl"' in html
    assert "text-align:right" in html
    assert "direction:ltr" not in html


def test_theme_colors_and_css_names() -> None:
    """`theme:brand`, `theme:text`, `theme:bg` and CSS names are colours; `theme:bg` follows the page in dark mode."""

    def render(colour: str, kind: str = "text") -> str:
        section = {"type": kind, "props": {}, "styles": {"background_color": colour}}
        return render_design({"sections": [section]}, LOOK).html

    assert "background:#0b6e4f;background-color:#0b6e4f;margin" in render("theme:brand")
    assert "background:#1f2328;background-color:#1f2328;margin" in render("theme:text")
    assert "background:#ff6347;background-color:#ff6347;margin" in render("tomato")
    assert '<div class="c-page c-pad' in render("theme:bg")
    assert '<div class="c-card' not in render("theme:bg")
    assert '<div class="c-card c-pad' in render_design({"sections": [{"type": "text"}]}, LOOK).html
    assert "background:#ff6347;background-color:#ff6347;margin" in render("tomato", "footer")
