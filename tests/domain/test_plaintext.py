"""The text part made from HTML: readable, nothing lost that a person needs, no markup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import markup
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource

TAGS = ["p", "div", "b", "i", "span", "h1", "td", "tr", "table", "ul", "ol", "li", "blockquote", "pre", "section", "a"]
WORD = st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Make HTML, well-formed or not, together with the words that it shows."""
    parts, words = [], []
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.integers(0, 3))
        tag = draw(st.sampled_from(TAGS))
        if kind == 0:
            parts.append(f"<{tag} class='x{draw(WORD)}'>")
        elif kind == 1:
            parts.append(f"</{tag}>")
        else:
            words.append(draw(WORD))
            parts.append(f" {words[-1]} ")
    return "".join(parts), words


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Hello <b>you</b></p><p>there</p>", "Hello you\n\nthere\n"),
        ('<a href="https://x.test/a?b=1&amp;c=2">Click</a>', "Click (https://x.test/a?b=1&c=2)\n"),
        ('<a href="https://x.test/">https://x.test/</a>', "https://x.test/\n"),
        ('<a href="mailto:a@x.test">a@x.test</a>', "a@x.test\n"),
        ('<a href="https://x.test"><img src="i.png" alt="Buy"></a>', "[Buy] (https://x.test)\n"),
        ('<a href="https://x.test"><img src="i.png"></a>', "https://x.test\n"),
        ('<a href="#top">up</a> <a name="x">here</a>', "up here\n"),
        ("<ul><li>a</li><li>b</li></ul>c", "- a\n- b\n\nc\n"),
        ("<ol><li>a<li>b</ol><ol><li>c</ol>", "1. a\n2. b\n\n1. c\n"),
        ("<ol><li>a<ul><li>x</li></ul></li><li>b</li></ol>", "1. a\n\n- x\n\n2. b\n"),
        ("a<br>b<br/>c", "a\nb\nc\n"),
        ("a<hr>b", "a\n\n----\n\nb\n"),
        ("<style>p{}</style><script>x()</script><title>t</title><p>y</p>", "y\n"),
        ("<!-- hidden --><p>shown</p><!-- <p>no</p> -->", "shown\n"),
        ("<p>&lt;b&gt; &amp; &eacute;&nbsp;x</p>", "<b> & é x\n"),
        ("<p>a\n    b\t c</p>", "a b c\n"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\n\nc\n"),
        ("", "\n"),
    ],
)
def test_html_reads_as_text(html: str, text: str) -> None:
    """Paragraphs, links with their targets, lists with their numbers and pictures with their words stay."""
    assert markup.html_to_text(html) == text


@given(documents())
def test_every_word_stays_and_no_markup(made: tuple[str, list[str]]) -> None:
    """However broken the HTML, its words stand in the text in their order and no tag does."""
    html, words = made
    found = markup.html_to_text(html)
    assert not set(found) & set("<>")
    kept = [word for word in found.replace("----", " ").split() if word != "-" and not word.endswith(".")]
    assert kept == words
    assert "\n\n\n" not in found and found.endswith("\n")


@given(st.text(max_size=200))
def test_any_text_can_be_read(html: str) -> None:
    """Whatever stands in a body, the text part can be made of it."""
    assert markup.html_to_text(html).endswith("\n")


@pytest.mark.parametrize(
    "tag",
    [
        "{{ first_name }}",
        '{{ first_name | default: "dear  friend" }}',
        "{{first_name}}",
        "{{\n  first_name\n}}",
        "{% if contact.data.age > 17 and contact.data.age < 30 %}",
        "{%- if first_name -%}",
        "{{ '<b>&amp;</b>' }}",
        "{{ contact.data.x | replace: '\"', '&quot;' }}",
        "{% comment %}",
    ],
)
@pytest.mark.parametrize(
    "around", ["<p>{}</p>", '<a href="https://x.example/{}">x</a>', '<img alt="{}">', "<li>a {} b</li>", "{}<p>x</p>"]
)
def test_merge_tags_survive(tag: str, around: str) -> None:
    """A merge tag stands in the text part byte for byte, in words, links and pictures alike."""
    ends = {"{%- if": "{% endif %}", "{% if ": "{% endif %}", "{% comment": "{% endcomment %}"}
    end = next((words for start, words in ends.items() if tag.startswith(start)), "")
    # A block that begins within an attribute has to end there
    body = around.format(tag + end) if "=" in around else around.format(tag) + f"<p>{end}</p>"
    text = compose.compile_message(MessageSource("s", body)).text.source
    assert tag in text and text.count("{{") == tag.count("{{")
    assert "\ue000" not in text and "\ue001" not in text


@pytest.mark.parametrize(
    ("body", "is_html"),
    [("Hi there", False), ("2 < 3 and 5 > 4", False), ("a <3 b", False), ("Hi <b>you</b>", True), ("x<br/>y", True),
     ("<!doctype html>", True), ("{{ first_name }}", False), ("", False), ("a@b.example", False)],
)  # fmt: skip
def test_a_body_without_tags_is_text(body: str, is_html: bool) -> None:
    """A body is HTML only if it holds a tag; comparison signs are none."""
    assert markup.is_html(body) is is_html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one", "<p>one</p>"),
        ("one\n\ntwo", "<p>one</p>\n<p>two</p>"),
        ("one\r\n \r\ntwo", "<p>one</p>\n<p>two</p>"),
        ("a\nb", "<p>a<br>\nb</p>"),
        ("2 < 3 & 4 > 1", "<p>2 &lt; 3 &amp; 4 &gt; 1</p>"),
        ('Dear {{ first_name | default: "<you> & all" }}', '<p>Dear {{ first_name | default: "<you> & all" }}</p>'),
    ],
)
def test_text_becomes_paragraphs(text: str, html: str) -> None:
    """Text becomes paragraphs and line breaks, its signs are escaped, its merge tags untouched."""
    assert markup.text_to_html(text) == html
