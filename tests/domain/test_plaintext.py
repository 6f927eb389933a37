"""The text part generated from HTML: readable, without markup, and nothing that a reader needs is lost."""

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
    """Draw HTML, well-formed or not, with the words that it shows."""
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
def test_html_to_text(html: str, text: str) -> None:
    """Paragraphs, links with their URLs, numbered lists and alternative texts of pictures are kept."""
    assert markup.html_to_text(html) == text


@given(documents())
def test_text_has_all_words_and_no_markup(document: tuple[str, list[str]]) -> None:
    """All words of any HTML are in the text, in order and without tags."""
    html, words = document
    text = markup.html_to_text(html)
    assert not set(text) & set("<>")
    text_words = [word for word in text.replace("----", " ").split() if word != "-" and not word.endswith(".")]
    assert text_words == words
    assert "\n\n\n" not in text and text.endswith("\n")


@given(st.text(max_size=200))
def test_any_text_is_converted(html: str) -> None:
    """No body raises an error."""
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
    "pattern", ["<p>{}</p>", '<a href="https://x.example/{}">x</a>', '<img alt="{}">', "<li>a {} b</li>", "{}<p>x</p>"]
)
def test_merge_tags_are_unchanged(tag: str, pattern: str) -> None:
    """A merge tag in words, links or pictures is in the text part byte for byte."""
    closing_tags = {"{%- if": "{% endif %}", "{% if ": "{% endif %}", "{% comment": "{% endcomment %}"}
    closing_tag = next((words for start, words in closing_tags.items() if tag.startswith(start)), "")
    # A block that begins within an attribute has to end there
    body = pattern.format(tag + closing_tag) if "=" in pattern else pattern.format(tag) + f"<p>{closing_tag}</p>"
    text = compose.compile_message(MessageSource("s", body)).text.source
    assert tag in text and text.count("{{") == tag.count("{{")
    assert "\ue000" not in text and "\ue001" not in text


@pytest.mark.parametrize(
    ("body", "is_html"),
    [("Hi there", False), ("2 < 3 and 5 > 4", False), ("a <3 b", False), ("Hi <b>you</b>", True), ("x<br/>y", True),
     ("<!doctype html>", True), ("{{ first_name }}", False), ("", False), ("a@b.example", False)],
)  # fmt: skip
def test_is_html(body: str, is_html: bool) -> None:
    """A body is HTML only if it has a tag; comparison signs do not count."""
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
def test_text_to_html(text: str, html: str) -> None:
    """Text becomes paragraphs and line breaks; special characters are escaped and merge tags unchanged."""
    assert markup.text_to_html(text) == html
