"""Messages made of designs: signed, numbered, compiled once, and shown in parts to those who are meant."""

import quopri
from typing import Any

import pytest

from appliance.content.designs.theme import Look
from appliance.sending.messages import compose, merge_tags
from appliance.sending.messages.compose import CompiledMessage, FilledMessage, Sender
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.shared_content import EncodedMessage
from appliance.storage import transactions
from appliance.storage.database import connection, run
from appliance.storage.models import Message
from tests.domain.home import Home

LOOK = Look(company_name="Acme Ltd", physical_address="1 Main St, Town")
BARE = {"preferences": False, "view_in_browser": False}
URL = "https://news.example.org/u/token"
FOR_SOME: dict[str, Any] = {"show_if": [{"name": "first_name", "predicate": "eq", "value": "Ann"}]}
TEXT: dict[str, Any] = {"type": "text", "props": {"content": "<p>Hello {{ first_name }}</p>"}}


def source(*sections: dict[str, Any], **fields: Any) -> compose.MessageSource:
    """Return the source of a marketing mail with these sections."""
    said = {"subject": "Hi", "body": None, "preheader": None, "from_name": None, **fields}
    return compose.build_source(said | {"design": {"sections": list(sections)}}, LOOK, "en", True)


def said(content: CompiledMessage, shows: bool = True) -> dict[str, Any]:
    """Return the values of a message to Ann, whose conditions hold or not."""
    brand = {"company_name": "Acme Ltd", "physical_address": "1 Main St, Town"}
    return {"first_name": "Ann", "brand": brand, "unsubscribe_url": URL, "preferences_url": "https://p.test/",
            "view_url": "https://v.test/", "show": dict.fromkeys(content.conditions, shows)}  # fmt: skip


def filled(content: CompiledMessage, shows: bool = True) -> FilledMessage:
    """Fill a message for Ann, whose conditions hold or not."""
    return compose.fill(content, said(content, shows))


def test_a_footer_of_the_design_is_enough() -> None:
    """With a footer that everybody sees nothing is appended."""
    found = filled(compose.compile_message(source(TEXT, {"type": "footer"})))
    assert found.html.count(URL) == 1 and found.text.count(URL) == 1
    assert found.html.count("1 Main St, Town") == 1 and found.text.count("1 Main St, Town") == 1


@pytest.mark.parametrize("shows", [True, False])
def test_a_footer_for_some_is_not_enough(shows: bool) -> None:
    """A link that only some people see does not count: everybody gets one, in both parts."""
    content = compose.compile_message(source(TEXT, {"type": "footer", "props": FOR_SOME}))
    found = filled(content, shows)
    assert found.html.count(URL) == found.text.count(URL) == 1 + shows
    assert found.html.count("1 Main St, Town") == found.text.count("1 Main St, Town") == 1 + shows


@pytest.mark.parametrize(
    "body",
    [
        "<p>{% if contact.vip %}{{ unsubscribe_url }} {{ brand.physical_address }}{% endif %}</p>",
        "<p>{% if brand.physical_address %}x{% else %}{{ brand.physical_address }}{{ unsubscribe_url }}{% endif %}</p>",
        "<p>{% for x in data.l %}{{ unsubscribe_url }}{{ brand.physical_address }}{% endfor %}</p>",
        "<p>{% raw %}{{ unsubscribe_url }}{{ brand.physical_address }}{% endraw %}</p>",
        "<p>{% if a %}{% raw %}{% endif %}{% endraw %}{{ unsubscribe_url }}{{ brand.physical_address }}{% endif %}</p>",
        "<p>{% comment %}{{ unsubscribe_url }}{{ brand.physical_address }}{% endcomment %}</p>",
        "<p>{{ unsubscribe_url | truncate: 0, '' }} {{ brand.physical_addresses }}</p>",
    ],
)
def test_what_stands_in_conditions_does_not_count(body: str) -> None:
    """A body whose link and address are not there for all gets both appended."""
    said = {"subject": "Hi", "body": body, "preheader": None, "from_name": None, "design": {}}
    found = filled(compose.compile_message(compose.build_source(said, LOOK, "en", True)))
    assert (
        f'<a href="{URL}" style="color:inherit">Unsubscribe</a>' in found.html and f"Unsubscribe: {URL}" in found.text
    )
    assert "Acme Ltd, 1 Main St, Town" in found.html and "Acme Ltd, 1 Main St, Town" in found.text


def test_a_design_without_a_footer_gets_one_of_its_own() -> None:
    """It stands within the letter's column, as a footer that somebody drew."""
    design = {"sections": [{"type": "text", "props": {"text": "<p>Hello</p>"}}]}
    said = {"subject": "Hi", "body": "", "preheader": None, "from_name": None, "design": design}
    drawn = {**design, "sections": [*design["sections"], {"type": "footer", "props": BARE}]}
    pages = [
        filled(compose.compile_message(compose.build_source({**said, "design": each}, LOOK, "en", True)))
        for each in (design, drawn)
    ]
    assert pages[0] == pages[1] and pages[0].html.count("1 Main St, Town") == 1
    assert f"Unsubscribe: {URL}" in pages[0].text and pages[0].html.count(URL) == 1
    canvas = compose.build_source(said, LOOK, "en", True)._replace(marked=True)
    assert filled(compose.compile_message(canvas)).html.count("Unsubscribe") == 1


def test_an_address_asked_for_before_it_is_shown_counts() -> None:
    """The usual way to write the address does not bring a second one."""
    body = "<p>{% if brand.physical_address %}{{ brand.physical_address }}{% endif %} {{ unsubscribe_url }}</p>"
    said = {"subject": "Hi", "body": body, "preheader": None, "from_name": None, "design": {}}
    found = filled(compose.compile_message(compose.build_source(said, LOOK, "en", True)))
    assert found.html.count("1 Main St") == found.text.count("1 Main St") == 1


def test_a_body_beside_sections_is_the_text_part() -> None:
    """Who writes a body beside sections writes the text; the HTML is that of the sections."""
    found = filled(compose.compile_message(source(TEXT, body="In words for {{ first_name }}", preheader="First look")))
    assert found.text.startswith("In words for Ann\n") and URL in found.text
    assert "Hello Ann" in found.html and "In words" not in found.html and "First look" in found.html


def test_links_are_numbered_as_they_are_read() -> None:
    """Every link has its number, the same address twice two; what only Outlook draws is not counted again."""
    sections = [
        {"type": "text", "props": {"content": '<p><a href="https://x.test/a?b=1&amp;c={{ email }}">One</a></p>'}},
        {"type": "button", "props": {"text": "Two {{ first_name }}", "href": "https://x.test/b"}},
        {"type": "image", "props": {"src": "https://x.test/i.png", "alt": "Three", "href": "https://x.test/b"}},
        {"type": "footer", "props": {"preferences": False, "view_in_browser": False}},
    ]
    found = compose.compile_message(source(*sections)).links
    assert [tuple(one) for one in found] == [
        (1, "https://x.test/a?b=1&c={{ email }}", "One"),
        (2, "https://x.test/b", "Two {{ first_name }}"),
        (3, "https://x.test/b", "[Three]"),
        (4, "{{ unsubscribe_url }}", "Unsubscribe"),
    ]


def test_a_source_is_compiled_once() -> None:
    """The same fields, look and language are the same compiled message, whoever asks."""
    first = compose.compile_message(source(TEXT, subject="Only once"))
    assert compose.compile_message(source(TEXT, subject="Only once")) is first


def test_sections_are_shown_to_those_who_are_meant(home: Home) -> None:
    """A campaign's conditions hold for whom the filters of a segment let in, asked for all that come next at once."""
    people = [home.contact(f"p{number}@example.org", first_name="Ann" if number % 3 else "Bob") for number in range(30)]
    design = {"sections": [TEXT, {"type": "text", "props": {"content": "Only for Ann", **FOR_SOME}}]}
    campaign = home.send(home.campaign(home.list_of(*(one.id for one in people)).id, body=None, design=design))
    asked: list[str] = []
    connection().set_exec_trace(lambda cursor, sql, bindings: asked.append(sql) is None)
    workshop = MessagePreparer()
    try:
        for message in Message.select().where(Message.campaign == campaign.id):
            text = workshop.fill_again(message).text
            assert ("Only for Ann" in text) == ("Hello Ann" in text)
        asked.clear()
        claims = [_claim(message) for message in Message.select().where(Message.campaign == campaign.id)]
        # Wherever they stand by now: in hand, or behind very many that may not go
        transactions.write(run, "UPDATE message SET status = 'sending'")
        workshop.prefetch(claims)
        for claim in claims:
            wire = quopri.decodestring(workshop.prepare(claim).envelope.content)
            assert wire.count(b"Only for Ann") == wire.count(b"Hello Ann") in (0, 2)
    finally:
        connection().set_exec_trace(None)
    assert sum("c.id IN (" in sql for sql in asked) == 1


def _claim(message: Message) -> Claim:
    return Claim._make(getattr(message, name) for name in Claim._fields)


def test_conditions_nobody_can_read_hold_for_nobody(home: Home) -> None:
    """A part with broken filters is hidden, not shown to all; with nobody to ask about, everything shows."""
    contact = home.contact("a@example.org", first_name="Ann")
    conditions = {"good": FOR_SOME["show_if"], "bad": [{"name": "no such", "predicate": "is", "value": 1}], "not": [7]}
    assert merge_tags.get_show_values(home.account_id, contact.id, conditions) == {
        "show": {"good": True, "bad": False, "not": False}
    }
    assert merge_tags.get_show_values(home.account_id, 999, conditions) == {"show": dict.fromkeys(conditions, False)}
    assert merge_tags.get_show_values(home.account_id, None, conditions) == {
        "show": {"good": True, "bad": True, "not": True}
    }


def test_a_mail_of_a_design_is_whole(home: Home) -> None:
    """The filled message becomes a mail with both parts."""
    content = compose.compile_message(source(TEXT))
    mail = EncodedMessage(content).build_mail(
        said(content), Sender("a@example.org", None, None), 7, "b@example.org", 0.0, ()
    )
    text, html = (quopri.decodestring(part).decode() for part in (mail.text, mail.html) if isinstance(part, bytes))
    assert html.startswith("<!doctype html>") and "Hello Ann" in html and "Hello Ann" in text
