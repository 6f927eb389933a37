"""Emails use only what mail programs support.

`UNSUPPORTED` is what Gmail, Outlook for Windows (Word), Outlook.com, Yahoo and Apple Mail do not all support, by the
feature pages of caniemail.com: css-display-flex, css-display-grid, css-position, css-float, css-transform,
css-animation, css-filter, css-object-fit, css-variables, css-gap, css-at-font-face, css-at-import, css-box-shadow,
css-clip-path, css-aspect-ratio, css-inline-size, css-calc, css-unit-rem, css-unit-vw, css-unit-vh, html-link,
html-script, html-form, html-svg, html-picture, html-srcset, html-video and html-style (Gmail drops a style block of
over 16 KB and the end of a message past 102 KB).
"""

import re
from functools import cache

import pytest

from appliance.content.designs import merge
from appliance.content.designs.render import render_design
from tests.designs.reading import Mail, dangers
from tests.designs.samples import EVERY, LOOK

UNSUPPORTED = {
    "position", "float", "clear", "transform", "transition", "animation", "filter", "object-fit", "gap", "row-gap",
    "column-gap", "grid", "grid-template-columns", "flex", "flex-direction", "justify-content", "align-items", "order",
    "box-shadow", "text-shadow", "clip-path", "aspect-ratio", "z-index", "columns", "inset", "top", "left", "right",
    "bottom", "backdrop-filter", "mix-blend-mode", "writing-mode", "inline-size", "block-size",
}  # fmt: skip
_UNITS = re.compile(r"(?:calc|var|clamp|min|max)\(|\d(?:rem|vw|vh|ch)\b")
_MERGE_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_PAIRS = re.compile(r"([a-zA-Z-]+)\s*:\s*([^;{}]+)")


@cache
def _render(name: str) -> str:
    return render_design(EVERY[name], LOOK).html


@pytest.fixture(params=EVERY)
def html(request: pytest.FixtureRequest) -> str:
    """The HTML of a sample."""
    return _render(request.param)


def _declarations(mail: Mail) -> list[tuple[str, str]]:
    inline = [
        declaration for _, attributes in mail.elements for declaration in _PAIRS.findall(attributes.get("style", ""))
    ]
    return inline + [declaration for block in mail.styles for body in re.findall(r"\{([^{}]*)\}", block)
                     for declaration in _PAIRS.findall(body)]  # fmt: skip


def test_css_is_supported_by_mail_programs(html: str) -> None:
    """No flex, grid, position, float, unit or function that a major mail program drops."""
    for name, value in _declarations(Mail(html)):
        assert name.lower() not in UNSUPPORTED, f"{name}: {value}"
        assert not _UNITS.search(value), f"{name}: {value}"
        if name == "display":
            assert value.split("!")[0].strip() in ("block", "inline-block", "none", "table-row", "inline-table"), value
        if name == "margin":
            assert "-" not in value, "Outlook.com drops negative margins"


def test_only_images_are_loaded(html: str) -> None:
    """No scripts, forms, frames, style sheets, fonts or imports, and no images that only a style loads."""
    mail = Mail(html)

    assert dangers(html) == []
    assert not re.search(r"@import|@font-face|fonts\.googleapis", html)
    assert not any("url(" in block for block in mail.styles)
    assert mail.named("picture", "source") == []


def test_tables_have_the_presentation_role(html: str) -> None:
    """Every table except one in an author's HTML has `role="presentation"`."""
    for attributes in Mail(html).named("table"):
        author = attributes == {"width": "100%", "style": "font-size:14px"}
        assert author or attributes.get("role") == "presentation", attributes


def test_images_have_alt_text_and_a_width(html: str) -> None:
    """Outlook needs the `width` attribute, screen readers the `alt` attribute."""
    for attributes in Mail(html).named("img"):
        assert "alt" in attributes, attributes
        assert attributes.get("width", "").isdigit(), attributes
        assert attributes["src"].startswith("https://"), attributes


def test_links_are_absolute(html: str) -> None:
    """An `href` is an absolute URL or a merge tag that becomes one."""
    for attributes in Mail(html).named("a"):
        assert re.match(r"(?:https?://|mailto:|tel:|sms:|\{\{ \w+_url \}\})", attributes["href"]), attributes


def test_size_limits_of_gmail(html: str) -> None:
    """HTML is under 102 KB and each style block under 16 KB."""
    mail = Mail(html)

    assert len(html.encode()) < 102_000
    assert mail.styles
    assert all(len(block.encode()) < 16_384 for block in mail.styles)


def test_head_elements(html: str) -> None:
    """The head has language, direction, charset first, both colour schemes, a viewport and a title."""
    mail = Mail(html)
    metas = {meta.get("name", ""): meta.get("content", "") for meta in mail.named("meta")}
    names = [tag for tag, _ in mail.elements]

    assert mail.named("html")[0]["lang"] == "en"
    assert mail.named("html")[0]["dir"] == "ltr"
    assert mail.named("meta")[0] == {"charset": "utf-8"}
    assert metas["color-scheme"] == metas["supported-color-schemes"] == "light dark"
    assert "width=device-width" in metas["viewport"]
    assert "title" in names
    assert any("prefers-color-scheme:dark" in block for block in mail.styles)
    assert any("[data-ogsc]" in block for block in mail.styles)


def test_elements_are_nested_correctly(html: str) -> None:
    """Elements close in order, with and without the conditional comments of Outlook."""
    for only_outlook in (False, True):
        text = re.sub(r"<!--\[if !mso\]><!-->|<!--<!\[endif\]-->", "", html)
        if only_outlook:
            text = re.sub(r"<!--\[if[^\]]*\]>(.*?)<!\[endif\]-->", r"\1", text, flags=re.DOTALL)
        else:
            text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
        open_elements: list[str] = []
        for closing, name in re.findall(r"<(/?)(table|tbody|tr|td|th|div|a|span|h1|h2|h3|ul|p)\b[^>]*>", text):
            if not closing:
                open_elements.append(name)
            else:
                assert open_elements, f"</{name}> of nothing"
                assert open_elements.pop() == name
        assert open_elements == []


def test_merge_tags_survive_rendering(html: str) -> None:
    """The HTML is a valid template, and no placeholder of the renderer is left in it."""
    template = merge.compile_template(html, "html")

    assert not any(name.startswith("q") for name in template.variables)
    assert "qcolumn" not in html
    assert not re.search(r"q[0-9a-f]{16}x\d+z", _MERGE_TAG.sub("", html))
