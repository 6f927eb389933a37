"""Rendering never fails, whatever a document holds, and nothing that runs ever comes out."""

import time
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
from tests.kit.patience import soon

_QUIET = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
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
    """Values for a property: what it is made for, attacks, and anything at all."""
    if prop.kind in ("items", "group"):
        one = some.fixed_dictionaries({}, optional={field.name: _likely(field, depth) for field in prop.fields})
        return some.one_of(_json, some.lists(one, max_size=3) if prop.kind == "items" else one)
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


def _check(made: Any) -> None:
    assert made.html.startswith("<!doctype html>")
    assert made.html.rstrip().endswith("</html>")
    assert dangers(made.html) == []
    made.html.encode()
    made.text.encode()


@_QUIET
@given(_json, some.text(max_size=8))
def test_any_json_at_all_makes_a_mail(anything: Any, locale: str) -> None:
    """Whatever is given for a document, in whatever language: a whole mail comes out and nothing that runs."""
    _check(render_design(anything, LOOK, locale))
    _check(render_design({"sections": anything, "theme": anything}, LOOK, locale))


@_QUIET
@given(_documents)
def test_any_value_in_any_property_makes_a_mail(value: dict[str, Any]) -> None:
    """Every property of every kind holds anything, and the check of a document never fails on it either."""
    _check(render_design(value, LOOK))
    faults: list[tuple[str, str]] = []
    document.validate(value, lambda path, words: faults.append((path, words)))
    assert all(isinstance(words, str) and words for _, words in faults)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_attack_in_every_property_of_a_kind_is_only_words(kind: Any) -> None:
    """One hostile text in all properties at once, those of inner things too, does nothing."""

    def value(prop: Prop) -> Any:
        if prop.kind == "items":
            return [{field.name: value(field) for field in prop.fields}] * 2
        if prop.kind == "group":
            return {field.name: value(field) for field in prop.fields}
        return [{"type": "text", "props": {"content": attack}}] if prop.kind == "sections" else attack

    for attack in _ATTACKS:
        props = {prop.name: value(prop) for prop in kind.props}
        section = {"type": kind.name, "props": props, "styles": {"background_color": attack, "padding": attack}}
        look = LOOK._replace(
            company_name=attack, logo_url=attack, font_body=attack, links=((attack, attack),), header=props,
            footer=props, theme={"logo_url": attack, "font_body": attack},
        )  # fmt: skip

        _check(
            render_design({"sections": [section, {"type": "header"}, {"type": "footer"}], "theme": props}, look, attack)
        )


def test_filters_are_handed_on_as_they_were_written() -> None:
    """What stands in `show_if` is no text of the mail: quotes within merge tags stay what they are."""
    filters = [{"name": "contact_tag", "value": '{{ "a" }} {% "'}]
    made = render_design({"sections": [{"type": "text", "props": {"content": "x", "show_if": filters}}]}, LOOK)

    assert list(made.conditions.values()) == [filters]


def test_no_merge_tag_stands_in_the_css_of_a_background() -> None:
    """What a contact's data says would be read as CSS there; the words stand on plain ground, and advice says why."""
    section = {"type": "hero", "props": {"title": "x", "background_url": "https://x.example/{{ contact.data.a }}.png"}}
    made = render_design({"sections": [section]}, LOOK)

    assert "contact.data.a" not in made.html
    assert [one.code for one in made.advice] == ["section"]


def _deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "text", "props": {"content": "deep"}}
    for _ in range(levels):
        found = {"type": "columns", "props": {"columns": [{"sections": [found]}, {"sections": []}]}}
    return found


_RICH = "<p><a href='https://x.example'>y</a><b>" * 5_000
_TEXTS = [{"type": "text", "props": {}}] * 50
_INNER = [{"type": "columns", "props": {"columns": [{"sections": _TEXTS}] * 4}}] * 10
_LIST = {"type": "list", "props": {"items": [{"title": "x" * 400, "text": "<b>y</b>" * 40}] * 12}}
_GALLERY = {"type": "gallery", "props": {"items": [{"src": f"https://x.example/{'&' * 1_700}"}] * 6}}


def _texts(content: str, many: int = 10) -> dict[str, Any]:
    return {"sections": [{"type": "text", "props": {"content": content}}] * many}


# As large as a request may be, but for those that say so
HOSTILE: dict[str, Any] = {
    "the largest texts": _texts(_RICH[:190_000]),
    "open tags": {"sections": [{"type": "html", "props": {"html": "<div><table><tr><td>" * 9_900}}] * 10},
    "nested tags": _texts("<ul><li>" * 24_000),
    "brackets": _texts("<" * 199_000),
    "many merge tags": _texts("{{a}}" * 2_000, 190),
    "open merge tags": _texts("{{" * 99_000),
    "many sections": {"sections": [{"type": "columns", "props": {"columns": [{"sections": _INNER}] * 2}}] * 16},
    "full lists": {"sections": [_LIST] * 200},
    "long addresses": {"sections": [_GALLERY] * 200},
    "colours and numbers": {"sections": [{"props": {"content": "x", "color": "q" * 900, "size": "9" * 4_000}}] * 200},
    "deep": {"sections": [_deep(300)]},
    "very deep": {"sections": [_deep(30_000)]},
    "5 MB of a name": {"sections": [{"type": "x" * 5_000_000}]},
    "5 MB of text": _texts(_RICH[:190_000], 26),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_answered_within_a_second(name: str) -> None:
    """The largest and the worst: checked and rendered in less than a second of a quiet machine, each."""
    begin = time.thread_time()
    made = render_design(HOSTILE[name], LOOK)
    rendered = time.thread_time() - begin
    document.validate(HOSTILE[name], lambda path, words: None)
    checked = time.thread_time() - begin - rendered

    assert max(rendered, checked) < soon(1), (rendered, checked)
    assert made.html.startswith("<!doctype html>")
    assert len(made.html) < 4_000_000


def test_a_mail_is_read_as_a_browser_reads_it() -> None:
    """The reader of these tests finds what it looks for, in what only Outlook reads too."""
    assert dangers("<script>x</script>") == ["<script>"]
    assert dangers("<p onclick=x>") == ["<p onclick>"]
    assert dangers("<!--[if mso]><iframe></iframe><![endif]-->") == ["<iframe>"]
    assert dangers("<a href=' java\nscript:x'>") != []
    assert Mail("<style>a{}</style>").styles == ["a{}"]
