"""Rendering never fails on any document, and its output is never active content."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from appliance.content.designs import document
from appliance.content.designs.kind import Prop
from appliance.content.designs.render import render_design
from appliance.content.designs.sections import KINDS
from tests.designs.reading import Mail, dangers
from tests.designs.samples import LOOK
from tests.kit.sampling import every_nth, examples, thin_out
from tests.kit.timeouts import extend_timeout

_QUIET = settings(max_examples=examples(25, full=150), deadline=None, suppress_health_check=list(HealthCheck))
_ATTACKS = (
    "javascript:alert(1)", " JaVaScRiPt:alert(1)", "java\nscript:alert(1)", "data:text/html,<script>alert(1)</script>",
    "vbscript:x", "https://x.example/');background:url(javascript:alert(1))", '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "</style><script>alert(1)</script>",
    "--><script>alert(1)</script>", "<![endif]--><script>alert(1)</script>", "]]><script>alert(1)</script>",
    "<form action=//x><input></form>", "<iframe src=//x></iframe>", "<a href='javascript:alert(1)'>x</a>",
    '<p style="background:url(javascript:alert(1))" onclick="x()">x</p>', "<mj-raw><script>alert(1)</script></mj-raw>",
    "</mj-text></mj-column><mj-raw>x</mj-raw>", "{{ contact.first_name }}", '{{ "<b>" }}" onclick="x', "{% if x %}",
    "{{", "}}", "\x00\x01", "\ud800", "\ufffe", "é𝄞", "a" * 3_000, "&lt;script&gt;", "&", "<", "theme:brand", "red",
    "16px", "-1", "1e999", "https://x.example/a b?c=<d>&e='f'", "mailto:a@b.example", "#", "q0000000000000000x0z",
)  # fmt: skip
_scalar = some.one_of(
    some.none(), some.booleans(), some.integers(), some.floats(), some.text(max_size=30), some.sampled_from(_ATTACKS)
)
_json = some.recursive(
    _scalar, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
_NAMES = sorted({name for kind in KINDS for prop in kind.props for name in (prop.name, *prop.aliases)})


def _likely(prop: Prop, depth: int = 0) -> some.SearchStrategy[Any]:
    """Return a strategy of values for a property: fitting values, attacks and any JSON."""
    if prop.kind in ("items", "group"):
        fields = some.fixed_dictionaries({}, optional={field.name: _likely(field, depth) for field in prop.fields})
        return some.one_of(_json, some.lists(fields, max_size=3) if prop.kind == "items" else fields)
    if prop.kind == "sections":
        return some.lists(_sections(depth + 1), max_size=2) if depth < 2 else _json
    if prop.kind == "filters":
        return _json
    return some.one_of(_json, some.sampled_from(prop.options)) if prop.options else _json


def _sections(depth: int = 0) -> some.SearchStrategy[Any]:
    def of(kind: Any) -> some.SearchStrategy[Any]:
        props = {prop.name: _likely(prop, depth) for prop in kind.props}
        common = {"align": _json, "hide_on": _json, "show_if": _json}
        styles = some.fixed_dictionaries({}, optional={"background_color": _json, "padding": _json})
        return some.fixed_dictionaries(
            {"type": some.just(kind.name), "props": some.fixed_dictionaries({}, optional=props | common)},
            optional={"styles": styles, "id": _json},
        )

    untyped = some.fixed_dictionaries({"props": some.dictionaries(some.sampled_from(_NAMES), _json, max_size=4)})
    return some.one_of(*(of(kind) for kind in KINDS), untyped, _json)


_documents = some.fixed_dictionaries(
    {"sections": some.lists(_sections(), max_size=4)},
    optional={"theme": some.one_of(_json, some.dictionaries(
        some.sampled_from(["brand_color", "text_color", "bg_color", "font_body", "font_heading", "logo_url", "width"]),
        _scalar, max_size=5))},
)  # fmt: skip


def _check(design: Any) -> None:
    assert design.html.startswith("<!doctype html>")
    assert design.html.rstrip().endswith("</html>")
    assert dangers(design.html) == []
    design.html.encode()
    design.text.encode()


@_QUIET
@given(_json, some.text(max_size=8))
def test_any_json_renders(value: Any, locale: str) -> None:
    """Any JSON as document, sections or theme, in any locale, renders a complete and safe email."""
    _check(render_design(value, LOOK, locale))
    _check(render_design({"sections": value, "theme": value}, LOOK, locale))


@_QUIET
@given(_documents)
def test_any_property_value_renders(value: dict[str, Any]) -> None:
    """Any value in any property renders a safe email, and validation does not fail either."""
    _check(render_design(value, LOOK))
    errors: list[tuple[str, str]] = []
    document.validate(value, lambda path, message: errors.append((path, message)))
    assert all(isinstance(message, str) and message for _, message in errors)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_attacks_in_every_property_are_escaped(kind: Any) -> None:
    """A hostile text in all properties, styles and brand fields at once stays text: half of the texts in each kind."""

    def value(prop: Prop) -> Any:
        if prop.kind == "items":
            return [{field.name: value(field) for field in prop.fields}] * 2
        if prop.kind == "group":
            return {field.name: value(field) for field in prop.fields}
        return [{"type": "text", "props": {"content": attack}}] if prop.kind == "sections" else attack

    for attack in thin_out(_ATTACKS, 2, KINDS.index(kind) % 2):
        props = {prop.name: value(prop) for prop in kind.props}
        section = {"type": kind.name, "props": props, "styles": {"background_color": attack, "padding": attack}}
        look = LOOK._replace(
            company_name=attack, logo_url=attack, font_body=attack, links=((attack, attack),), header=props,
            footer=props, theme={"logo_url": attack, "font_body": attack},
        )  # fmt: skip

        _check(
            render_design({"sections": [section, {"type": "header"}, {"type": "footer"}], "theme": props}, look, attack)
        )


def test_filters_are_passed_on_unchanged() -> None:
    """Merge tags in the values of `show_if` are not processed."""
    filters = [{"name": "contact_tag", "value": '{{ "a" }} {% "'}]
    design = render_design({"sections": [{"type": "text", "props": {"content": "x", "show_if": filters}}]}, LOOK)

    assert list(design.conditions.values()) == [filters]


def test_background_images_have_no_merge_tags() -> None:
    """A background URL with a merge tag, which could inject CSS, is left out with advice."""
    section = {"type": "hero", "props": {"title": "x", "background_url": "https://x.example/{{ contact.data.a }}.png"}}
    design = render_design({"sections": [section]}, LOOK)

    assert "contact.data.a" not in design.html
    assert [entry.code for entry in design.advice] == ["section"]


def _deep(levels: int) -> dict[str, Any]:
    section: dict[str, Any] = {"type": "text", "props": {"content": "deep"}}
    for _ in range(levels):
        section = {"type": "columns", "props": {"columns": [{"sections": [section]}, {"sections": []}]}}
    return section


_RICH = "<p><a href='https://x.example'>y</a><b>" * 5_000
_TEXTS = [{"type": "text", "props": {}}] * 50
_INNER = [{"type": "columns", "props": {"columns": [{"sections": _TEXTS}] * 4}}] * 10
_LIST = {"type": "list", "props": {"items": [{"title": "x" * 400, "text": "<b>y</b>" * 40}] * 12}}
_GALLERY = {"type": "gallery", "props": {"items": [{"src": f"https://x.example/{'&' * 1_700}"}] * 6}}


def _texts(content: str, many: int = 10) -> dict[str, Any]:
    return {"sections": [{"type": "text", "props": {"content": content}}] * many}


# As large as a request may be; the last two are larger
HOSTILE: dict[str, Callable[[], Any]] = {
    "the largest texts": lambda: _texts(_RICH[:190_000]),
    "open tags": lambda: {"sections": [{"type": "html", "props": {"html": "<div><table><tr><td>" * 9_900}}] * 10},
    "nested tags": lambda: _texts("<ul><li>" * 24_000),
    "brackets": lambda: _texts("<" * 199_000),
    "many merge tags": lambda: _texts("{{a}}" * 2_000, 190),
    "open merge tags": lambda: _texts("{{" * 99_000),
    "many sections": lambda: {"sections": [{"type": "columns", "props": {"columns": [{"sections": _INNER}] * 2}}] * 16},
    "full lists": lambda: {"sections": [_LIST] * 200},
    "long addresses": lambda: {"sections": [_GALLERY] * 200},
    "colours and numbers": lambda: {
        "sections": [{"props": {"content": "x", "color": "q" * 900, "size": "9" * 4_000}}] * 200
    },
    "deep": lambda: {"sections": [_deep(300)]},
    "very deep": lambda: {"sections": [_deep(30_000)]},
    "5 MB of a name": lambda: {"sections": [{"type": "x" * 5_000_000}]},
    "5 MB of text": lambda: _texts(_RICH[:190_000], 26),
}  # fmt: skip


@pytest.mark.parametrize("name", every_nth(HOSTILE, 2, 1))
def test_hostile_documents_take_less_than_a_second(name: str) -> None:
    """Rendering and validation of a hostile document each take less than a second of processor time."""
    hostile = HOSTILE[name]()
    start = time.thread_time()
    design = render_design(hostile, LOOK)
    rendered = time.thread_time() - start
    document.validate(hostile, lambda path, message: None)
    validated = time.thread_time() - start - rendered

    assert max(rendered, validated) < extend_timeout(1), (rendered, validated)
    assert design.html.startswith("<!doctype html>")
    assert len(design.html) < 4_000_000


def test_dangers_finds_active_content() -> None:
    """`dangers` finds active content, also within the conditional comments of Outlook."""
    assert dangers("<script>x</script>") == ["<script>"]
    assert dangers("<p onclick=x>") == ["<p onclick>"]
    assert dangers("<!--[if mso]><iframe></iframe><![endif]-->") == ["<iframe>"]
    assert dangers("<a href=' java\nscript:x'>") != []
    assert Mail("<style>a{}</style>").styles == ["a{}"]
