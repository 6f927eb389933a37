"""Pasted HTML: cleaned, styled for mail programs, its merge tags untouched; nothing is read, nothing holds us up."""

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


def test_a_newsletter_of_another_tool_stays_what_it_is() -> None:
    """Rules stand in the elements, small screens and Outlook keep theirs, merge tags are as they were."""
    found = sanitizer.clean_document(NEWSLETTER)
    assert '<html lang="de" dir="ltr">' in found and "<title>News &amp; {{ first_name }}</title>" in found
    assert '<body bgcolor="#eeeeee" style="margin:0">' in found.replace("margin: 0", "margin:0")
    assert 'class="lead" style="color:#333"' in found.replace("color: #333", "color:#333")
    assert "@media (max-width: 600px){ .lead { font-size: 20px !important } }" in found and "a:hover" in found
    assert "<!--[if mso]><xml><o:Off" in found and '<!--[if mso]><td width="300"><![endif]-->' in found
    for tag in ("{% if contact.data.n > 1 %}", '{{ data.url | default: "https://x.test/?a>b" }}', "{% endif %}"):
        assert found.count(tag) == 1
    for gone in ("steal", "onload", "<form", "<input", "fixed", "made with a tool"):
        assert gone not in found


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
def test_what_outlook_alone_reads_is_looked_through_too(comment: str) -> None:
    """A conditional comment with anything but layout is dropped as a whole."""
    found = sanitizer.clean_document(f"<html><head>{comment}</head><body><p>a{comment}b</p></body></html>")
    assert "if mso" not in found and "if IE" not in found and "<script" not in found and "<!--" not in found


def test_nothing_is_read_from_files_or_the_network(tmp_path: Path) -> None:
    """Sheets and pictures that a mail points to are never opened by us."""
    (tmp_path / "x.css").write_text("p{color:#123456}")
    asked: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)

        def answer() -> None:
            try:
                asked.append(server.accept())
            except TimeoutError:
                return

        listening = threading.Thread(target=answer)
        listening.start()
        web, file = f"http://127.0.0.1:{server.getsockname()[1]}/x.css", f"file://{tmp_path}/x.css"
        for address in (web, file, f"{tmp_path}/x.css"):
            found = sanitizer.clean_document(
                f'<html><head><link rel="stylesheet" href="{address}"><style>@import "{address}"; '
                f"@import url({address});p{{color:red}} b{{background:url({address})}}</style></head>"
                "<body><p>x</p><b>y</b></body></html>"
            )
            assert "123456" not in found and address not in found and 'style="color:red"' in found
        listening.join()
    assert asked == []


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
    "rules": f"<style>{''.join(f'.a{one} b,p:not(.c) i{{x:y}}' for one in range(5_000))}</style>{'<p>x</p>' * 5_000}",
    "selectors": f"<style>{''.join(f'p .a{one} {{x:y}}' for one in range(400))}</style>{'<p>x</p>' * 2_400}",
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


@pytest.mark.parametrize("kind", BOMBS)
def test_nothing_pasted_takes_long(kind: str) -> None:
    """However it is made, four times as much takes about four times as long, and not the square of it."""
    whole = BOMBS[kind]
    quarter = max(_seconds(whole[: len(whole) // 4]), 0.03)
    assert _seconds(whole) < 10 * quarter


def _seconds(text: str) -> float:
    """Return the processor time for a text, the least of two: memory is looked through in between."""
    taken = []
    for _ in range(2):
        start = time.thread_time()
        sanitizer.clean_document(text)
        taken.append(time.thread_time() - start)
    return min(taken)


PIECES = [
    "<", ">", "<p", "<style>", "</style>", "a{", "}", "<!--", "-->", "<body", "<html>", "<head>", '"', "'", "=", "</",
    "{{ a }}", "{% if a %}", "[if mso]>", "<![endif]", "\x00", "\ud800", "&", "<table>", "<td>", "<svg>", "<math>",
    "<![CDATA[", "<script>",
]  # fmt: skip


@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(PIECES)), max_size=25))
def test_whatever_is_pasted_becomes_a_mail(parts: list[str]) -> None:
    """No input raises, and cleaning what is clean changes nothing that matters: no element comes back."""
    found = sanitizer.clean_document("".join(parts))
    assert "<script" not in sanitizer.clean_document(found) and "\x00" not in found


def test_a_body_of_html_is_cleaned_before_it_is_sent() -> None:
    """A message's HTML goes through the cleaning, paragraphs of text as they always did."""
    content = compose.compile_message(MessageSource("s", "<p onclick=x>Hi <script>x</script>{{ first_name }}"))
    assert "<p>Hi {{ first_name }}</p>" in content.html.source and "script" not in content.html.source
    assert "<p>a &amp; b</p>" in compose.compile_message(MessageSource("s", "a & b")).html.source
