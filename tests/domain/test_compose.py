"""Composition of one message: the author's text, the compliance footer, preheader and headers."""

import re
from typing import Any

import pytest

from appliance.sending.delivery.mime import Mail
from appliance.sending.messages import compose, links
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from tests.domain.home import Home

URL = "https://news.example.org/u/token"
BRAND = {"company_name": "Acme Ltd", "physical_address": "1 Main St, Town"}
VALUES: dict[str, Any] = {"unsubscribe_url": URL, "first_name": "Ann", "brand": BRAND, "account": {"name": "Acme"}}


def fill_message(
    body: str, marketing: bool = True, values: dict[str, Any] | None = None, **source: Any
) -> compose.FilledMessage:
    """Compile and fill a message."""
    content = compose.compile_message(MessageSource("Hi {{ first_name }}", body, marketing=marketing, **source))
    return compose.fill(content, VALUES if values is None else values)


def build_mail(message_id: int = 7, date: float = 0.0, **source: Any) -> Mail:
    """Build the mail of a message; its sender has a name and a reply-to address."""
    content = compose.compile_message(MessageSource("Hi {{ first_name }}", "x", marketing=True, **source))
    sender = Sender("news@münchen.de", "Account", "answers@example.org")
    return EncodedMessage(content).build_mail(VALUES, sender, message_id, "b@example.org", date, ())


def visible(html: str) -> str:
    """Return HTML without tags and comments."""
    return re.sub(r"<!--.*?-->|<[^>]*>", " ", html, flags=re.DOTALL)


@pytest.mark.parametrize(
    "body", ["Hello {{ first_name }}", "<p>Hello</p>", "<html><body><p>Hello</p></body></html>", "<p>x"]
)
def test_a_missing_compliance_footer_is_appended(body: str) -> None:
    """Marketing mail gets one unsubscribe link and one postal address, in HTML and in text."""
    message = fill_message(body)
    assert message.html.count(f'href="{URL}"') == 1 and message.text.count(URL) == 1
    assert visible(message.html).count("1 Main St, Town") == 1 and message.text.count("1 Main St, Town") == 1
    assert visible(message.html).count("Acme Ltd") == 1


@pytest.mark.parametrize(
    "body",
    [
        '<p>Hello</p><a href="{{ unsubscribe_url }}">Stop</a> {{ brand.physical_address }}',
        "Hello\n\nStop: {{unsubscribe_url}}\n{{ brand.physical_address }}",
    ],
)
def test_a_compliance_footer_by_the_author_is_kept(body: str) -> None:
    """A body with both unsubscribe link and postal address gets nothing appended."""
    message = fill_message(body)
    assert message.html.count(URL) == 1 and message.text.count(URL) == 1
    assert message.html.count("1 Main St, Town") == 1 and message.text.count("1 Main St, Town") == 1
    assert "Acme Ltd" not in message.html and "\n-- \n" not in message.text


@pytest.mark.parametrize(
    ("locale", "word"),
    [("en-GB", "Unsubscribe"), ("de-AT", "Abmelden"), ("es", "Darse de baja"), ("fr", "Se désinscrire"),
     ("nl", "Uitschrijven"), ("sv", "Unsubscribe")],
)  # fmt: skip
def test_the_compliance_footer_is_in_the_language_of_the_message(locale: str, word: str) -> None:
    """The link to unsubscribe has the word of the recipients' pages, or the English one."""
    message = fill_message("<p>Hello</p>", locale=locale)
    assert f">{word}</a>" in message.html and f"{word}: {URL}" in message.text


def test_only_the_missing_half_is_appended() -> None:
    """With the link present only the address is added; with the address present only the link."""
    with_link = fill_message('<a href="{{ unsubscribe_url }}">Stop</a>')
    assert with_link.html.count(URL) == 1 and with_link.html.count("1 Main St") == 1 and with_link.text.count(URL) == 1
    with_address = fill_message("<p>{{ brand.physical_address }}</p>")
    assert with_address.html.count(URL) == 1 and with_address.text.count(URL) == 1


def test_the_text_part_gets_its_own_footer() -> None:
    """An author's own text part gets link and address even if the HTML already has them."""
    message = fill_message('<a href="{{ unsubscribe_url }}">Stop</a> {{ brand.physical_address }}', text="Only words")
    assert (
        message.text.startswith("Only words\n")
        and message.text.count(URL) == 1
        and message.text.count("1 Main St") == 1
    )
    assert message.html.count(URL) == 1


def test_the_lines_of_a_postal_address_are_kept() -> None:
    """An address of two lines is two lines in the HTML and in the text of the appended footer."""
    brand = {"company_name": "Acme & Co", "physical_address": "Mühlgasse 4 <a>\n80331 München"}
    message = fill_message("<p>Hello</p>", values={**VALUES, "brand": brand})
    assert re.search(r"Acme &amp; Co, Mühlgasse 4 &lt;a&gt;<br ?/?>\s*80331 München", message.html)
    assert "Acme & Co, Mühlgasse 4 <a>\n80331 München\n" in message.text


def test_the_footer_without_postal_address() -> None:
    """A brand without address leaves no comma behind the company's name."""
    message = fill_message("Hello", values={**VALUES, "brand": {"company_name": "Acme Ltd", "physical_address": None}})
    assert "Acme Ltd<br>" in message.html and "Acme Ltd\n" in message.text


def test_the_footer_is_inside_the_body() -> None:
    """In a whole document the footer is placed before the end of the body."""
    message = fill_message("<html><body><p>Hello</p></BODY ></html>")
    assert message.html.index(URL) < message.html.index("</body>")


def test_transactional_mail_gets_no_footer() -> None:
    """A message that is not marketing has neither footer nor unsubscribe link."""
    message = fill_message("<p>Your receipt</p>", marketing=False)
    assert URL not in message.html + message.text and "Main St" not in message.html + message.text
    assert message.text == "Your receipt\n"


def test_plain_text_becomes_an_html_document() -> None:
    """A body without tags becomes paragraphs of an HTML document in the given language; the text part is the body."""
    message = fill_message("Dear {{ first_name }}\n\n2 < 3", marketing=False, locale="de")
    assert "<p>Dear Ann</p>\n<p>2 &lt; 3</p>" in message.html
    assert message.html.startswith('<!doctype html>\n<html lang="de">') and message.html.count("<body") == 1
    assert message.text == "Dear Ann\n\n2 < 3"


@pytest.mark.parametrize("body", ["<p>x</p>", '<html><body class="a"><p>x</p></body></html>', "just text"])
def test_the_preheader_is_first_and_hidden(body: str) -> None:
    """The preheader is first in the body, hidden, filled and escaped, and absent from the text part."""
    message = fill_message(body, preheader="For {{ first_name }} & <you>")
    inside = message.html[re.search(r"<body[^>]*>", message.html).end() :]
    assert re.match(r'\s*<div style="display:none;[^"]*"[^>]*>For Ann &amp; &lt;you&gt;', inside)
    assert "For Ann" not in message.text


def test_no_hidden_element_without_a_preheader() -> None:
    """Without a preheader the HTML has no hidden element."""
    assert "display:none" not in fill_message("<p>x</p>").html


def test_values_are_escaped_for_their_context() -> None:
    """A value is escaped in HTML, raw in text, and on one line in subject and From name."""
    message = fill_message(
        "<p>{{ first_name }}</p>", values={**VALUES, "first_name": "<A>\r\n& B"}, from_name="{{ first_name }}"
    )
    assert "<p>&lt;A&gt;\n&amp; B</p>" in message.html
    assert message.text.startswith("<A>\n& B\n")
    assert message.subject == "Hi <A> & B" and message.from_name == "<A> & B"


def test_the_from_name_of_a_message_overrides_the_account(home: Home) -> None:
    """A message's own From name is used, and the account's if the message's is empty."""
    own, usual = build_mail(from_name="Ann at Acme"), build_mail(from_name="{{ nobody }}")
    assert (own.sender[0], usual.sender[0]) == ("Ann at Acme", "Account")
    assert own.sender[1] == "news@xn--mnchen-3ya.de" and own.reply_to == "answers@example.org"


def test_the_message_id_is_the_same_on_every_attempt(home: Home) -> None:
    """The Message-ID has the From domain, is the same on every attempt, and identifies its message."""
    first, second, other = (build_mail(number, date).message_id for number, date in ((7, 0.0), (7, 99.0), (8, 0.0)))
    assert first == second != other and first.endswith("@xn--mnchen-3ya.de")
    assert links.read_message_id(f"<{first}>") == 7


def test_marketing_headers(home: Home) -> None:
    """Campaigns have one-click unsubscribe (RFC 8058), List-Id and Precedence; flows have Auto-Submitted."""
    base_url = "https://news.example.org/" + "very/long/" * 12
    headers = dict(compose.build_marketing_headers(base_url, 7, 3, "News, daily", "list-5", "example.org", 1))
    assert headers["List-Unsubscribe"] == f"<{links.build_unsubscribe_url(base_url, 7)}>"
    assert len(headers["List-Unsubscribe"]) > 150
    assert headers["List-Unsubscribe"].startswith("<https://news.example.org/very/long/")
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert headers["List-Id"] == '"News, daily" <list-5.example.org>'
    assert headers["Feedback-ID"] == "c3:a1:campaign:campanero" and headers["Precedence"] == "bulk"
    assert headers["X-Auto-Response-Suppress"] == "All"
    flow = dict(compose.build_marketing_headers(base_url, 7, None, "News", "list-5", "example.org", 1))
    assert "Precedence" not in flow and flow["Auto-Submitted"] == "auto-generated"
