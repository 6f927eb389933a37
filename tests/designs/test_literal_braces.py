"""Only the merge tags of the source are merge tags of the sanitized email, whatever a parser decodes or moves (T03)."""

import time
from html import unescape
from html.parser import HTMLParser
from http.client import HTTPMessage
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from appliance.content.designs import links, markup, sanitizer
from appliance.content.designs.merge_limits import MergeError
from appliance.content.designs.theme import Look
from appliance.sending.messages import compose
from appliance.sending.messages.compose import FilledMessage, MessageSource
from tests.designs.reading import dangers
from tests.kit.client import Response
from tests.kit.payloads import ActiveContentParser
from tests.kit.sampling import every_nth, examples
from tests.kit.timeouts import extend_timeout

_QUIET = settings(max_examples=examples(40, full=300), deadline=None, suppress_health_check=list(HealthCheck))
SCRIPT = '{{ "<script>alert(1)</script>" }}'


def fill(body: str, design: Any = None) -> FilledMessage:
    """Return the email of a body or a design for a contact with the name Ann."""
    source = MessageSource("s", body)
    if design is not None:
        fields = {"subject": "s", "body": "", "preheader": None, "from_name": None, "design": design}
        source = compose.build_source(fields, Look(), "en", False)
    return compose.fill(compose.compile_message(source), {"first_name": "Ann"})


def find_dangers(html: str) -> list[str]:
    """Return the active content of an email according to both checkers of active content."""
    active = ActiveContentParser(Response(200, HTTPMessage(), html.encode())).active_content
    return dangers(html) + [act for act in active if act != "<base>"]


class VisibleText(HTMLParser):
    """The text that readers see, and the values of the attribute `title`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.titles = "", list[str]()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the title of an element."""
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.text += data


HOSTILE = [
    f"<p>&#123;% raw %}}{SCRIPT}&#123;% endraw %}}</p>",
    f"<p>&lbrace;&percnt; raw &#x25;&#x7d;{SCRIPT}&lcub;% endraw %&rcub;</p>",
    f"<html><head><title>&#123;% raw %}}</title></head><body>{SCRIPT}&#123;% endraw %}}</body></html>",
    f'<p title="&#123;% raw %}}">{SCRIPT}</p><p title="&#123;% endraw %}}">x</p>',
    f"<p>{{<!-- -->% raw %}}{SCRIPT}{{<script></script>% endraw %}}</p>",
    f"<p>{{<script></script>% raw %}}{SCRIPT}{{<script></script>% endraw %}}</p>",
    f"<p>&#123;{{% raw %}}% raw %}}{{% endraw %}}{SCRIPT}&#123;{{% raw %}}% endraw %}}{{% endraw %}}</p>",
    f"<p>{{% raw %}}a<script>{{% endraw %}}</script>{SCRIPT}{{% raw %}}{{% endraw %}}</p>",
    f"<p>{{% raw %}}</p><!-- {{% endraw %}} -->{SCRIPT}{{% raw %}}{{% endraw %}}</p>",
    f'<p>{{% raw %}}</p><p onclick="{{% endraw %}}">{SCRIPT}{{% raw %}}{{% endraw %}}</p>',
    f"<table><tr><td>{SCRIPT}</td></tr>{{% raw %}}</table>{{% endraw %}}",
    f"{'<div>' * 300}&#123;&#123; &quot;&lt;script&gt;alert(1)&lt;/script&gt;&quot; }}}}",
    f"<style>p{{{{% raw %}}}}%{{% endraw %}}{{x}}</style><p>&#123;% raw %}}{SCRIPT}&#123;% endraw %}}",
    f"<!--[if mso]><td>&#123;% raw %}}<![endif]--><p>{SCRIPT}<!--[if mso]>&#123;% endraw %}}<![endif]-->",
]


@pytest.mark.parametrize("body", HOSTILE)
def test_no_body_makes_a_raw_block_of_other_text(body: str) -> None:
    """A value in quotes in an output stays escaped, whether references, comments or dropped elements are around it."""
    try:
        html = fill(body).html
    except MergeError as error:
        pytest.fail(f"the body does not compile: {error}")
    assert find_dangers(html) == []
    assert "<script" not in html


def _image(alt: str) -> dict[str, Any]:
    return {"type": "image", "props": {"src": "https://x.test/i.png", "alt": alt}}


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "props": {"content": content}}


@pytest.mark.parametrize(
    "sections",
    [
        [_text("<p>{% raw %}</p>"), _text(f"<p>{SCRIPT}</p>"), _text("<p>{% endraw %}</p>")],
        [_image("{% comment %}"), _text('<p>{% endcomment %}" onerror=alert(1) x="</p>')],
        [_text("<p>{% raw %}</p>"), _text(f"<p>{SCRIPT}{{% comment %}}{{% endraw %}}{{% endcomment %}}</p>")],
        [_text(f"<p>&#123;% raw %}}{SCRIPT}</p>"), {"type": "html", "props": {"html": "<p>&#123;% endraw %}</p>"}}],
        [_text("{{ 'a"), _text("' }}<p>x</p>")],
    ],
)
def test_no_block_spans_sections(sections: list[dict[str, Any]]) -> None:
    """A block that begins in one section and ends in another is an error or literal text."""
    try:
        message = fill("", {"sections": sections})
    except MergeError as error:
        assert "expected 'endraw'" in str(error) or "never closed" in str(error)
        return
    assert find_dangers(message.html) == []


@pytest.mark.parametrize("preheader", ["{{ 'a", "{% raw %}", "{% comment %}", "{% if first_name %}"])
def test_a_preheader_is_complete(preheader: str) -> None:
    """A preheader that begins a tag or block is refused, even if the body ends it."""
    ending = {"{{ 'a": "' }}", "{% if first_name %}": "{% endif %}"}.get(preheader, preheader.replace("% ", "% end"))
    with pytest.raises(MergeError):
        compose.compile_message(MessageSource("s", f"<p>{ending}</p>", text="x", preheader=preheader))


_REFERENCES = ("&#123;", "&#x7B;", "&lbrace;", "&lcub;", "&#37;", "&percnt;", "&#125;", "&rcub;", "&quot;", "&#39;")
_LITERAL = (*_REFERENCES, "{", "}", "%", '"', "'", "x", " ", "raw", "endraw", "comment", "first_name", "&lt;b&gt;")
_HOSTILE_PIECES = (
    *_REFERENCES, SCRIPT, "{{ first_name }}", "{% raw %}", "{% endraw %}", "{%- raw -%}", "{% comment %}",
    "{% endcomment %}", "{% if first_name %}", "{% endif %}", "&#123;% raw %}", "&#123;% endraw %}", "{<!---->% raw %}",
    "{<script></script>% endraw %}", "{", "}", "%}", "}}", '"', "'", "<script>", "</script>",
    "<script>alert(1)</script>", "<!--", "-->", "<!--[if mso]>", "<![endif]-->", "<p>", "</p>", '<p title="',
    "<p title='", '">', "'>",
    '" onclick="alert(1)" ', "<table>", "<tr><td>", "</td></tr>", "</table>", "<style>", "</style>", "p{color:red}",
    "<title>", "</title>", "<html>", "<body>", "<img src=x onerror=alert(1)>", "&lt;script&gt;alert(1)&lt;/script&gt;",
    '<a href="https://x.test/', "</a>", "<div>" * 300,
)  # fmt: skip
_RAW_PAIRS = some.sampled_from(
    [("&#123;% raw %}", "&#123;% endraw %}"), ("{% raw %}", "{% endraw %}"), ("{% comment %}", "{% endcomment %}"),
     ("<p title='{% raw %}", "{% endraw %}'>"), ("<script>{% raw %}", "{% endraw %}</script>"), ("<!--", "-->"),
     ("<table>", "</table>"), ("{% if first_name %}", "{% endif %}")]
)  # fmt: skip
_NOISE = some.lists(some.sampled_from(_HOSTILE_PIECES), max_size=5).map("".join)
_BLOCK = some.one_of(
    _NOISE,
    some.tuples(_RAW_PAIRS, _NOISE, some.just(SCRIPT), _NOISE).map(lambda t: t[0][0] + t[1] + t[2] + t[3] + t[0][1]),
)
_BODIES = some.lists(_BLOCK, min_size=1, max_size=4).map(lambda parts: f"<p>{''.join(parts)}")


@_QUIET
@given(_BODIES)
@example(HOSTILE[0])
def test_no_body_becomes_active(body: str) -> None:
    """Whatever references, raw blocks, comments, quotes and scripts a body mixes, the email has no active content."""
    try:
        html = fill(body).html
    except MergeError:
        return
    assert find_dangers(html) == []


@_QUIET
@given(some.lists(_BODIES, min_size=1, max_size=3))
@example([HOSTILE[0]])
def test_no_design_becomes_active(texts: list[str]) -> None:
    """The same is true of the sections of a design, whose texts are sanitized one by one."""
    sections = [
        section for text in texts for section in (_image(text), _text(text), {"type": "html", "props": {"html": text}})
    ]
    try:
        html = fill("", {"sections": sections}).html
    except MergeError:
        return
    assert find_dangers(html) == []


@_QUIET
@given(some.lists(some.sampled_from(_LITERAL), max_size=8).map("".join))
@example("&#123;{ first_name }}")
@example("&#123;")
@example("{&#37; raw %}")
def test_references_are_shown_and_merge_tags_work(text: str) -> None:
    """Braces written as references are what readers see, in text and attributes, and merge tags beside them work."""
    if markup.find_tags(text) or "{{" in text or "{%" in text or text.endswith("{"):
        return
    attribute = text.replace('"', "&quot;")
    message = fill(f'<p title="{attribute}">{text}{{{{ first_name }}}}</p><p>{text}<b>{{{{ first_name }}}}</b></p>')
    visible = VisibleText(message.html.partition("<body")[2].partition(">")[2])
    shown = unescape(text)
    assert visible.text.strip() == f"{shown}Ann{shown}Ann".strip() and visible.titles == [shown]
    assert "".join(message.text.split()) == "".join(f"{shown}Ann{shown}Ann".split())


def test_braces_of_style_rules_are_apart() -> None:
    """A style rule stays valid if comments or empty blocks between its braces are dropped; merge tags in it work."""
    css = "@media print{/* */{% if first_name %}.a{color:red}{% endif %}}"
    html = fill(f"<html><head><style>{css}</style></head><body><p>x</p></body></html>").html
    assert "@media print{ .a{color:red}}" in html
    css = "@media print{<!-- -->{ color:red } }"
    assert "@media print{ { color:red } }" in sanitizer.clean_document(f"<style>{css}</style><p>x</p>")


def test_stored_rich_text_keeps_references_and_merge_tags() -> None:
    """Rich text keeps its raw blocks and comments; a brace written as a reference never becomes a merge tag."""
    html = "<p>&#123;{ first_name }} {% comment %}a{% endcomment %}{% raw %}b{% endraw %}{{ first_name }}</p>"
    assert sanitizer.normalize_rich_text(html) == html
    assert sanitizer.normalize_rich_text("<p>&lbrace;&percnt; raw %}</p>") == "<p>&#123;% raw %}</p>"


def test_a_reference_in_an_address_is_no_merge_tag() -> None:
    """A brace of a link's address that is written as a reference stays a literal brace where the link is followed."""
    html = '<a href="https://x.test/&#123;{first_name}}?a=&lcub;% raw %}&b={{ first_name }}">x</a>'
    (link,) = links.find_links(sanitizer.clean_document(html))
    assert link.href == "https://x.test/%7B{first_name}}?a=%7B% raw %}&b={{ first_name }}"


@pytest.mark.parametrize(
    "piece", every_nth(["&#123;", "{%", "{% raw %}", "%", "&#123;%", "{% raw %}{% endraw %}", "{{ a }}&lcub;"], 3)
)
def test_literal_braces_take_linear_time(piece: str) -> None:
    """A megabyte of braces, raw blocks or percent signs is sanitized in moments (T02)."""
    start = time.thread_time()
    sanitizer.clean_document(f"<p>{piece * (1_000_000 // len(piece))}</p>")
    markup.html_template_to_text(f"<p>{piece * (1_000_000 // len(piece))}</p>")
    assert time.thread_time() - start < extend_timeout(5)
