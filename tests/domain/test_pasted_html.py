"""Pasted HTML: sanitized, styles inlined for mail programs, merge tags unchanged, no external resources loaded."""

import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.content.designs import sanitizer
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource

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


PIECES = [
    "<", ">", "<p", "<style>", "</style>", "a{", "}", "<!--", "-->", "<body", "<html>", "<head>", '"', "'", "=", "</",
    "{{ a }}", "{% if a %}", "[if mso]>", "<![endif]", "\x00", "\ud800", "&", "<table>", "<td>", "<svg>", "<math>",
    "<![CDATA[", "<script>",
]  # fmt: skip


@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(PIECES)), max_size=25))
@settings(deadline=None)
def test_any_input_is_sanitized(parts: list[str]) -> None:
    """No input raises an error, and no script survives, not even in a second pass."""
    cleaned = sanitizer.clean_document("".join(parts))
    assert "<script" not in sanitizer.clean_document(cleaned) and "\x00" not in cleaned


def test_html_bodies_are_sanitized_when_compiled() -> None:
    """An HTML body is sanitized; a text body becomes escaped paragraphs."""
    content = compose.compile_message(MessageSource("s", "<p onclick=x>Hi <script>x</script>{{ first_name }}"))
    assert "<p>Hi {{ first_name }}</p>" in content.html.source and "script" not in content.html.source
    assert "<p>a &amp; b</p>" in compose.compile_message(MessageSource("s", "a & b")).html.source


def test_drawings_and_tables_keep_the_elements_after_them() -> None:
    """Drawings, and formatting that ends where its table row ends, are not a reason to make paragraphs of an email."""
    drawing = "<svg viewBox='0 0 9 9'><g><path d='M0 0'/></g></svg><svg><rect/></svg><script>x('<p>')</script><p>y</p>"
    assert sanitizer.clean_fragment(drawing * 40 + "<p>z</p>" * 9_000).count("<p>") == 9_040
    row = "<tr><font face=Arial size=2><td>a</td></font></tr>"
    assert sanitizer.clean_fragment(f"<table>{row * 2_000}</table>").count("<td>") == 2_000


def test_sloppy_html_keeps_its_elements() -> None:
    """Emails in which end tags are missing or in the wrong order are parsed as before."""
    row = "<tr><td><p><b><i>a</b></i><ul><li>b<li><a href=https://x.test/>c</ul></td><td><font size=1><p>d</td></tr>"
    cleaned = sanitizer.clean_fragment("<center><table>" + row * 100 + "</table></center>")
    assert cleaned.count("<td>") == 200 and cleaned.count("<a ") == 100 and "<center>" in cleaned


def test_rules_name_elements_in_any_case() -> None:
    """A rule for `P` is inlined."""
    small = sanitizer.clean_document("<style>P{color:red}</style><body><p>x</p>")
    assert '<p style="color:red">' in small.replace(": ", ":")
