"""Pasted HTML: sanitized, styles inlined for mail programs, merge tags unchanged, no external resources loaded."""

import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import sanitizer
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource
from tests.kit.sampling import every_nth

NEWSLETTER = """<!DOCTYPE html><html lang="de" dir="ltr"><head><title>News &amp; {{ first_name }}</title>
<style type="text/css"><!--
body { margin: 0 } .lead, p.big { color: #333; position: fixed }
a:hover { color: red } @media (max-width: 600px) { .lead { font-size: 20px !important } }
--></style>
<!--[if mso]><xml><o:OfficeDocumentSettings><o:AllowPNG/></o:OfficeDocumentSettings></xml><![endif]-->
</head><body bgcolor="#eeeeee" onload="steal()"><!-- made with a tool -->
<table width="600"><tr><!--[if mso]><td width="300"><![endif]--><td class="lead">
{% if contact.data.n > 1 %}<a href="{{ data.url | default: "https://x.test/?a>b" }}">{{ first_name }}</a>{% endif %}
<script>steal()</script><form action="/x"><input></form></td></tr></table></body></html>"""


def test_a_newsletter_keeps_its_appearance() -> None:
    """Styles are inlined; media queries, Outlook comments and merge tags are kept. Scripts and forms are removed."""
    cleaned = sanitizer.clean_document(NEWSLETTER)
    assert '<html lang="de" dir="ltr">' in cleaned and "<title>News &amp; {{ first_name }}</title>" in cleaned
    assert '<body bgcolor="#eeeeee" style="margin:0">' in cleaned.replace("margin: 0", "margin:0")
    assert 'class="lead" style="color:#333"' in cleaned.replace("color: #333", "color:#333")
    assert "@media (max-width: 600px){ .lead { font-size: 20px !important } }" in cleaned and "a:hover" in cleaned
    assert "<!--[if mso]><xml><o:Off" in cleaned and '<!--[if mso]><td width="300"><![endif]-->' in cleaned
    for tag in ("{% if contact.data.n > 1 %}", '{{ data.url | default: "https://x.test/?a>b" }}', "{% endif %}"):
        assert cleaned.count(tag) == 1
    for removed in ("steal", "onload", "<form", "<input", "fixed", "made with a tool"):
        assert removed not in cleaned


@pytest.mark.parametrize(
    "comment",
    [
        "<!--[if mso]><script>x</script><![endif]-->",
        '<!--[if mso]><td onclick="x()"><![endif]-->',
        '<!--[if mso]><a href="javascript:x()">x</a><![endif]-->',
        '<!--[if mso]><td style="background:url(https://evil.test/x)"><![endif]-->',
        '<!--[if mso]><v:fill src="file:///etc/passwd"/><![endif]-->',
        "<!--[if mso]><iframe src=x><![endif]-->",
        '<!--[if mso]><td title="--><script>x</script>"><![endif]-->',
        "<!--[if mso]><td <![endif]-->",
        "<!--[if IE]><object data=x></object><![endif]-->",
        "<!-- <script>x</script> -->",
    ],
)
def test_unsafe_outlook_comments_are_removed(comment: str) -> None:
    """A conditional comment with anything but layout is removed completely."""
    cleaned = sanitizer.clean_document(f"<html><head>{comment}</head><body><p>a{comment}b</p></body></html>")
    assert "if mso" not in cleaned and "if IE" not in cleaned and "<script" not in cleaned and "<!--" not in cleaned


def test_no_external_resources_are_loaded(tmp_path: Path) -> None:
    """Style sheets and pictures that the HTML refers to are not read from files or the network."""
    (tmp_path / "x.css").write_text("p{color:#123456}")
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)

        def accept_connection() -> None:
            try:
                connections.append(server.accept())
            except TimeoutError:
                return

        listening = threading.Thread(target=accept_connection)
        listening.start()
        web, file = f"http://127.0.0.1:{server.getsockname()[1]}/x.css", f"file://{tmp_path}/x.css"
        for address in (web, file, f"{tmp_path}/x.css"):
            cleaned = sanitizer.clean_document(
                f'<html><head><link rel="stylesheet" href="{address}"><style>@import "{address}"; '
                f"@import url({address});p{{color:red}} b{{background:url({address})}}</style></head>"
                "<body><p>x</p><b>y</b></body></html>"
            )
            assert "123456" not in cleaned and address not in cleaned and 'style="color:red"' in cleaned
        listening.join()
    assert connections == []


BOMBS = {
    "divs": "<div>" * 400_000,
    "tables": "<table><tr><td>" * 100_000,
    "misnested": "<a><b><i><p>" * 60_000,
    "formatting": "<font size=1><p>" * 60_000,
    "attributes": "<p " + " ".join(f"a{number}=1" for number in range(100_000)) + ">",
    "quotes": '<p title="' * 100_000,
    "comments": "<!--" * 300_000,
    "conditions": "<!--[if mso]>" * 100_000,
    "styles": "<style>" * 200_000,
    "braces": f"<style>{'a{' * 300_000}</style><p>x</p>",
    "rules": f"<style>{''.join(f'.a{row} b,p:not(.c) i{{x:y}}' for row in range(5_000))}</style>{'<p>x</p>' * 5_000}",
    "selectors": f"<style>{''.join(f'p .a{number} {{x:y}}' for number in range(400))}</style>{'<p>x</p>' * 2_400}",
    "descendants": f"<style>{('div ' * 70 + '{color:red}') * 60}</style>{'<div>' * 200}{'x</div>' * 200}",
    "titles": "<title>" * 200_000,
    "heads": "<head>" * 200_000,
    "bodies": "<body>" * 200_000,
    "lesser": "<" * 1_500_000,
    "entities": "&lt;" * 400_000,
    "plain": f"<p>{'words ' * 300_000}</p>",
    "tags": "<p>{{ a }}</p>" * 1_900,
    "five megabytes": "<p>Hello</p>" * 430_000,
}


@pytest.mark.parametrize("kind", every_nth(BOMBS, 3))
def test_sanitizing_takes_linear_time(kind: str) -> None:
    """Four times the input takes less than ten times as long."""
    whole = BOMBS[kind]
    quarter = max(_measure_seconds(whole[: len(whole) // 4]), 0.03)
    assert _measure_seconds(whole) < 10 * quarter


def _measure_seconds(text: str) -> float:
    """Return the processor time of sanitizing a text, the lesser of two runs."""
    times = []
    for _ in range(2):
        start = time.thread_time()
        sanitizer.clean_document(text)
        times.append(time.thread_time() - start)
    return min(times)


PIECES = [
    "<", ">", "<p", "<style>", "</style>", "a{", "}", "<!--", "-->", "<body", "<html>", "<head>", '"', "'", "=", "</",
    "{{ a }}", "{% if a %}", "[if mso]>", "<![endif]", "\x00", "\ud800", "&", "<table>", "<td>", "<svg>", "<math>",
    "<![CDATA[", "<script>",
]  # fmt: skip


@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(PIECES)), max_size=25))
def test_any_input_is_sanitized(parts: list[str]) -> None:
    """No input raises an error, and no script survives, not even in a second pass."""
    cleaned = sanitizer.clean_document("".join(parts))
    assert "<script" not in sanitizer.clean_document(cleaned) and "\x00" not in cleaned


def test_html_bodies_are_sanitized_when_compiled() -> None:
    """An HTML body is sanitized; a text body becomes escaped paragraphs."""
    content = compose.compile_message(MessageSource("s", "<p onclick=x>Hi <script>x</script>{{ first_name }}"))
    assert "<p>Hi {{ first_name }}</p>" in content.html.source and "script" not in content.html.source
    assert "<p>a &amp; b</p>" in compose.compile_message(MessageSource("s", "a & b")).html.source


# Short texts that, repeated, open one element in another for a parser that follows the standard, although each element
# has an end tag
DEEP_UNITS = (
    "<div><object></div></object>", "<span><div></span></div>", "<div><table></div></table>", "<td><div></td>",
    "<div><template></div></template>", "<div><svg><desc></div></svg></desc>", "<div><select></div></select>",
    "<div><table><caption></div></table></caption>", "<div><!--</div>-->", '<div title="</div>">',
    "<div><textarea></div></textarea>", "<select><style></select><div>", "<li><dd>", "<div><![CDATA[></div>]]>",
    '<div\N{NO-BREAK SPACE}a=\N{NO-BREAK SPACE}">',
)  # fmt: skip


@pytest.mark.parametrize("unit", DEEP_UNITS)
def test_no_html_is_parsed_in_quadratic_time(unit: str) -> None:
    """HTML whose end tags a parser ignores is not parsed, because its elements would be nested too deeply."""
    html = unit * (700_000 // len(unit))
    start = time.thread_time()
    sanitizer.clean_fragment(html)
    assert time.thread_time() - start < 3


@pytest.mark.parametrize("space", ["", "\N{NO-BREAK SPACE}", "\N{EM SPACE}"])
def test_attributes_after_a_quote_in_a_value_are_counted(space: str) -> None:
    """A value that begins with a space that is none in HTML is not in quotes, so attributes may follow it."""
    html = f'<p x={space}" ' + " ".join(f"a{number}" for number in range(90_000)) + ' ">x</p>'
    start = time.thread_time()
    sanitizer.clean_fragment(html)
    assert time.thread_time() - start < 2


def test_drawings_do_not_count_as_deep_elements() -> None:
    """The end tag of a drawing ends its shapes, although these have no end tags in HTML."""
    drawing = "<svg viewBox='0 0 9 9'><g><path d='M0 0'/></g></svg><svg><rect/></svg><script>x('<p>')</script><p>y</p>"
    assert sanitizer.clean_fragment(drawing * 40 + "<p>z</p>" * 9_000).count("<p>") == 9_040


def test_end_tags_in_deep_elements_are_checked_in_linear_time() -> None:
    """End tags of tables, each of which is looked for in all open elements, do not make the check itself slow."""
    html = "<span><div></span></div>" * 600 + "</td>" * 300_000
    start = time.thread_time()
    sanitizer.clean_fragment(html)
    assert time.thread_time() - start < 5


def test_blocks_do_not_repeat_formatting_without_limit() -> None:
    """A parser would repeat formatting elements that a paragraph leaves open in each of the following paragraphs."""
    opened = "<p>" + "".join(f'<font face="Arial {number}">' for number in range(200)) + "</p>"
    for clean in (sanitizer.clean_fragment, sanitizer.clean_document):
        assert len(clean(opened + "<p>x" * 3_000)) < 100_000


@pytest.mark.parametrize("rest", ["<tr></table>", "<td></td></table>", "<caption></caption></table>", "</table>"])
def test_tables_do_not_hide_repeated_formatting(rest: str) -> None:
    """A table ends the formatting elements between its cells, but the following blocks repeat them."""
    opened = "<table>" + "".join(f"<b title={number}>" for number in range(200)) + rest
    assert len(sanitizer.clean_fragment(opened + "<div>x</div>" * 3_000)) < 100_000
    # End tags that come after the end of the cells end the elements, so that nothing is repeated.
    row = "<tr><font face=Arial size=2><td>a</td></font></tr>"
    assert sanitizer.clean_fragment(f"<table>{row * 2_000}</table>").count("<td>") == 2_000


def test_sloppy_html_keeps_its_elements() -> None:
    """Emails in which end tags are missing or in the wrong order are parsed as before."""
    row = "<tr><td><p><b><i>a</b></i><ul><li>b<li><a href=https://x.test/>c</ul></td><td><font size=1><p>d</td></tr>"
    cleaned = sanitizer.clean_fragment("<center><table>" + row * 100 + "</table></center>")
    assert cleaned.count("<td>") == 200 and cleaned.count("<a ") == 100 and "<center>" in cleaned


def test_rules_for_elements_in_capitals_do_not_bloat_a_mail() -> None:
    """Selectors name elements in any case, so the length of a document with inlined rules is estimated in any case."""
    rule = 'P{font-family:"' + "a" * 80_000 + '"}'
    assert len(sanitizer.clean_document(f"<style>{rule}</style><body>" + "<p>x</p>" * 300)) < 200_000
    small = sanitizer.clean_document("<style>P{color:red}</style><body><p>x</p>")
    assert '<p style="color:red">' in small.replace(": ", ":")
