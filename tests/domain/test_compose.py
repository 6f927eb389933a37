"""One message from its source: what the author wrote, what the law wants beside it, and one set of headers."""

import re
from typing import Any

import pytest

from appliance.sending.delivery.mime import Mail
from appliance.sending.messages import compose, links
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.shared_content import EncodedMessage
from tests.domain.home import Home

URL = "https://news.example.org/u/token"
BRAND = {"company_name": "Acme Ltd", "physical_address": "1 Main St, Town"}
VALUES: dict[str, Any] = {"unsubscribe_url": URL, "first_name": "Ann", "brand": BRAND, "account": {"name": "Acme"}}


def filled(
    body: str, marketing: bool = True, values: dict[str, Any] | None = None, **source: Any
) -> compose.FilledMessage:
    """Compile and fill a message."""
    content = compose.compile_message(MessageSource("Hi {{ first_name }}", body, marketing=marketing, **source))
    return compose.fill(content, VALUES if values is None else values)


def mailed(message_id: int = 7, date: float = 0.0, **source: Any) -> Mail:
    """Make the mail of a message from an address with its own name and one for answers."""
    content = compose.compile_message(MessageSource("Hi {{ first_name }}", "x", marketing=True, **source))
    sender = Sender("news@münchen.de", "Account", "answers@example.org")
    return EncodedMessage(content).build_mail(VALUES, sender, message_id, "b@example.org", date, ())


def visible(html: str) -> str:
    """Take out of HTML what nobody sees."""
    return re.sub(r"<!--.*?-->|<[^>]*>", " ", html, flags=re.DOTALL)


@pytest.mark.parametrize(
    "body", ["Hello {{ first_name }}", "<p>Hello</p>", "<html><body><p>Hello</p></body></html>", "<p>x"]
)
def test_what_is_missing_is_appended(body: str) -> None:
    """Marketing mail without them gets a link to unsubscribe and the postal address, in HTML and text, once each."""
    found = filled(body)
    assert found.html.count(f'href="{URL}"') == 1 and found.text.count(URL) == 1
    assert visible(found.html).count("1 Main St, Town") == 1 and found.text.count("1 Main St, Town") == 1
    assert visible(found.html).count("Acme Ltd") == 1


@pytest.mark.parametrize(
    "body",
    [
        '<p>Hello</p><a href="{{ unsubscribe_url }}">Stop</a> {{ brand.physical_address }}',
        "Hello\n\nStop: {{unsubscribe_url}}\n{{ brand.physical_address }}",
    ],
)
def test_what_the_author_wrote_is_not_doubled(body: str) -> None:
    """Who writes link and address into the body gets no second ones."""
    found = filled(body)
    assert found.html.count(URL) == 1 and found.text.count(URL) == 1
    assert found.html.count("1 Main St, Town") == 1 and found.text.count("1 Main St, Town") == 1
    assert "Acme Ltd" not in found.html and "\n-- \n" not in found.text


def test_only_the_missing_half_is_appended() -> None:
    """With the link there, only the address is added; with the address there, only the link."""
    with_link = filled('<a href="{{ unsubscribe_url }}">Stop</a>')
    assert with_link.html.count(URL) == 1 and with_link.html.count("1 Main St") == 1 and with_link.text.count(URL) == 1
    with_address = filled("<p>{{ brand.physical_address }}</p>")
    assert with_address.html.count(URL) == 1 and with_address.text.count(URL) == 1


def test_the_text_part_is_looked_at_by_itself() -> None:
    """An author's own text part gets link and address even when the HTML has them already."""
    found = filled('<a href="{{ unsubscribe_url }}">Stop</a> {{ brand.physical_address }}', text="Only words")
    assert found.text.startswith("Only words\n") and found.text.count(URL) == 1 and found.text.count("1 Main St") == 1
    assert found.html.count(URL) == 1


def test_without_a_postal_address_the_company_stands_alone() -> None:
    """A brand without address leaves no dangling comma."""
    found = filled("Hello", values={**VALUES, "brand": {"company_name": "Acme Ltd", "physical_address": None}})
    assert "Acme Ltd<br>" in found.html and "Acme Ltd\n" in found.text


def test_the_footer_stands_inside_the_body() -> None:
    """In a whole document what is appended stands before the end of the body."""
    found = filled("<html><body><p>Hello</p></BODY ></html>")
    assert found.html.index(URL) < found.html.index("</body>")


def test_other_mail_is_left_alone() -> None:
    """A single message carries neither footer nor link."""
    found = filled("<p>Your receipt</p>", marketing=False)
    assert URL not in found.html + found.text and "Main St" not in found.html + found.text
    assert found.text == "Your receipt\n"


def test_text_becomes_a_document() -> None:
    """A body without tags is paragraphs of a whole document in the account's language; the text part is the body."""
    found = filled("Dear {{ first_name }}\n\n2 < 3", marketing=False, locale="de")
    assert "<p>Dear Ann</p>\n<p>2 &lt; 3</p>" in found.html
    assert found.html.startswith('<!doctype html>\n<html lang="de">') and found.html.count("<body") == 1
    assert found.text == "Dear Ann\n\n2 < 3"


@pytest.mark.parametrize("body", ["<p>x</p>", '<html><body class="a"><p>x</p></body></html>', "just text"])
def test_the_preheader_comes_first_and_is_hidden(body: str) -> None:
    """The preheader is the first thing in the body, not shown in the message, filled and escaped."""
    found = filled(body, preheader="For {{ first_name }} & <you>")
    inside = found.html[re.search(r"<body[^>]*>", found.html).end() :]
    assert re.match(r'\s*<div style="display:none;[^"]*"[^>]*>For Ann &amp; &lt;you&gt;', inside)
    assert "For Ann" not in found.text


def test_no_preheader_no_padding() -> None:
    """Without a preheader nothing hidden stands in the message."""
    assert "display:none" not in filled("<p>x</p>").html


def test_values_are_encoded_for_where_they_stand() -> None:
    """The same name is escaped in HTML, raw in text and one line in the subject."""
    found = filled(
        "<p>{{ first_name }}</p>", values={**VALUES, "first_name": "<A>\r\n& B"}, from_name="{{ first_name }}"
    )
    assert "<p>&lt;A&gt;\n&amp; B</p>" in found.html
    assert found.text.startswith("<A>\n& B\n")
    assert found.subject == "Hi <A> & B" and found.from_name == "<A> & B"


def test_the_sender_name_of_the_message_wins(home: Home) -> None:
    """A message's own sender name goes before the account's; an empty one leaves the account's."""
    own, usual = mailed(from_name="Ann at Acme"), mailed(from_name="{{ nobody }}")
    assert (own.sender[0], usual.sender[0]) == ("Ann at Acme", "Account")
    assert own.sender[1] == "news@xn--mnchen-3ya.de" and own.reply_to == "answers@example.org"


def test_a_message_keeps_its_message_id(home: Home) -> None:
    """The Message-ID stands on the From domain, is the same on every attempt, and names its message."""
    first, again, other = (mailed(number, date).message_id for number, date in ((7, 0.0), (7, 99.0), (8, 0.0)))
    assert first == again != other and first.endswith("@xn--mnchen-3ya.de")
    assert links.read_message_id(f"<{first}>") == 7


def test_marketing_headers_name_one_https_way_out(home: Home) -> None:
    """Campaigns carry one-click unsubscribing (RFC 8058), List-Id, Feedback-ID and Precedence; flows say auto."""
    home.configure(base_url="https://news.example.org/" + "very/long/" * 12)
    headers = dict(compose.build_marketing_headers(7, 3, "News, daily", "list-5", "example.org", 1))
    assert (
        headers["List-Unsubscribe"] == f"<{links.build_unsubscribe_url(7)}>" and len(headers["List-Unsubscribe"]) > 150
    )
    assert headers["List-Unsubscribe"].startswith("<https://news.example.org/very/long/")
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert headers["List-Id"] == '"News, daily" <list-5.example.org>'
    assert headers["Feedback-ID"] == "c3:a1:campaign:campanero" and headers["Precedence"] == "bulk"
    assert headers["X-Auto-Response-Suppress"] == "All"
    flow = dict(compose.build_marketing_headers(7, None, "News", "list-5", "example.org", 1))
    assert "Precedence" not in flow and flow["Auto-Submitted"] == "auto-generated"
