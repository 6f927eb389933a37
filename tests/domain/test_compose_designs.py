"""Messages made of designs: footer, numbered links, compilation and conditional sections."""

import quopri
import re
from typing import Any

import pytest

from appliance.content.designs import render
from appliance.content.designs.theme import Look
from appliance.core.i18n import use_language
from appliance.sending.messages import compose, merge_tags, section_conditions
from appliance.sending.messages.compose import CompiledMessage, FilledMessage, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
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
    """Return the source of a marketing email with these sections."""
    all_fields = {"subject": "Hi", "body": None, "preheader": None, "from_name": None, **fields}
    return compose.build_source(all_fields | {"design": {"sections": list(sections)}}, LOOK, "en", True)


def message_values(content: CompiledMessage, shows: bool = True) -> dict[str, Any]:
    """Return the values of a message to Ann; all its conditions have the value `shows`."""
    brand = {"company_name": "Acme Ltd", "physical_address": "1 Main St, Town"}
    return {"first_name": "Ann", "brand": brand, "unsubscribe_url": URL, "preferences_url": "https://p.test/",
            "view_url": "https://v.test/", "show": dict.fromkeys(content.conditions, shows)}  # fmt: skip


def fill_message(content: CompiledMessage, shows: bool = True) -> FilledMessage:
    """Fill a message for Ann; all its conditions have the value `shows`."""
    return compose.fill(content, message_values(content, shows))


def test_an_unconditional_footer_section_is_enough() -> None:
    """With a footer section that all recipients see, nothing is appended."""
    message = fill_message(compose.compile_message(source(TEXT, {"type": "footer"})))
    assert message.html.count(URL) == 1 and message.text.count(URL) == 1
    assert message.html.count("1 Main St, Town") == 1 and message.text.count("1 Main St, Town") == 1


def test_the_footer_section_keeps_the_lines_of_the_address() -> None:
    """An address of two lines is two lines in the HTML and in the text of the footer section."""
    content = compose.compile_message(source(TEXT, {"type": "footer"}))
    brand = {"company_name": "Acme & Co", "physical_address": "Mühlgasse 4\r\n80331 München"}
    message = compose.fill(content, {**message_values(content), "brand": brand})
    assert re.search(r"Acme &amp; Co, Mühlgasse 4<br ?/?>\s*80331 München<br", message.html)
    assert re.search(r"Acme & Co, Mühlgasse 4\r?\n80331 München\n", message.text)


@pytest.mark.parametrize("shows", [True, False])
def test_a_conditional_footer_section_is_not_enough(shows: bool) -> None:
    """A footer with a condition does not count: all recipients get another one, in HTML and text."""
    content = compose.compile_message(source(TEXT, {"type": "footer", "props": FOR_SOME}))
    message = fill_message(content, shows)
    assert message.html.count(URL) == message.text.count(URL) == 1 + shows
    assert message.html.count("1 Main St, Town") == message.text.count("1 Main St, Town") == 1 + shows


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
def test_a_conditional_footer_in_a_body_is_not_enough(body: str) -> None:
    """A body whose link and address may be missing for some recipients gets both appended."""
    fields = {"subject": "Hi", "body": body, "preheader": None, "from_name": None, "design": {}}
    message = fill_message(compose.compile_message(compose.build_source(fields, LOOK, "en", True)))
    assert (
        f'<a href="{URL}" style="color:inherit">Unsubscribe</a>' in message.html
        and f"Unsubscribe: {URL}" in message.text
    )
    assert "Acme Ltd, 1 Main St, Town" in message.html and "Acme Ltd, 1 Main St, Town" in message.text


def test_a_design_without_a_footer_gets_one() -> None:
    """The added footer equals a footer section in the design, and is shown on the canvas too."""
    design = {"sections": [{"type": "text", "props": {"text": "<p>Hello</p>"}}]}
    fields = {"subject": "Hi", "body": "", "preheader": None, "from_name": None, "design": design}
    with_footer = {**design, "sections": [*design["sections"], {"type": "footer", "props": BARE}]}
    messages = [
        fill_message(compose.compile_message(compose.build_source({**fields, "design": variant}, LOOK, "en", True)))
        for variant in (design, with_footer)
    ]
    assert messages[0] == messages[1] and messages[0].html.count("1 Main St, Town") == 1
    assert f"Unsubscribe: {URL}" in messages[0].text and messages[0].html.count(URL) == 1
    canvas = compose.build_source(fields, LOOK, "en", True)._replace(marked=True)
    assert fill_message(compose.compile_message(canvas)).html.count("Unsubscribe") == 1


def test_an_address_guarded_by_its_own_condition_counts() -> None:
    """A body that shows the postal address if there is one gets no second address."""
    body = "<p>{% if brand.physical_address %}{{ brand.physical_address }}{% endif %} {{ unsubscribe_url }}</p>"
    fields = {"subject": "Hi", "body": body, "preheader": None, "from_name": None, "design": {}}
    message = fill_message(compose.compile_message(compose.build_source(fields, LOOK, "en", True)))
    assert message.html.count("1 Main St") == message.text.count("1 Main St") == 1


def test_a_body_beside_sections_is_the_text_part() -> None:
    """With sections and a body, the body is the text part and the sections are the HTML."""
    message = fill_message(
        compose.compile_message(source(TEXT, body="In words for {{ first_name }}", preheader="First look"))
    )
    assert message.text.startswith("In words for Ann\n") and URL in message.text
    assert "Hello Ann" in message.html and "In words" not in message.html and "First look" in message.html


def test_links_are_numbered_in_reading_order() -> None:
    """Each link has its own number, also for a repeated URL; the copies for Outlook are not counted."""
    sections = [
        {"type": "text", "props": {"content": '<p><a href="https://x.test/a?b=1&amp;c={{ email }}">One</a></p>'}},
        {"type": "button", "props": {"text": "Two {{ first_name }}", "href": "https://x.test/b"}},
        {"type": "image", "props": {"src": "https://x.test/i.png", "alt": "Three", "href": "https://x.test/b"}},
        {"type": "footer", "props": {"preferences": False, "view_in_browser": False}},
    ]
    links = compose.compile_message(source(*sections)).links
    assert [tuple(link) for link in links] == [
        (1, "https://x.test/a?b=1&c={{ email }}", "One"),
        (2, "https://x.test/b", "Two {{ first_name }}"),
        (3, "https://x.test/b", "Three"),
        (4, "{{ unsubscribe_url }}", "Unsubscribe"),
    ]


def test_a_source_is_compiled_once() -> None:
    """Two equal sources give the same compiled message."""
    first = compose.compile_message(source(TEXT, subject="Only once"))
    assert compose.compile_message(source(TEXT, subject="Only once")) is first


def test_conditional_sections_follow_segment_filters(home: Home) -> None:
    """A section is shown to contacts who match its filters; one query checks all prefetched recipients."""
    contacts = [
        home.contact(f"p{number}@example.org", first_name="Ann" if number % 3 else "Bob") for number in range(30)
    ]
    design = {"sections": [TEXT, {"type": "text", "props": {"content": "Only for Ann", **FOR_SOME}}]}
    campaign = home.send(
        home.campaign(home.list_of(*(contact.id for contact in contacts)).id, body=None, design=design)
    )
    statements: list[str] = []
    connection().set_exec_trace(lambda cursor, sql, bindings: statements.append(sql) is None)
    preparer = MessagePreparer()
    try:
        for message in Message.select().where(Message.campaign == campaign.id):
            text = preparer.fill_again(message).text
            assert ("Only for Ann" in text) == ("Hello Ann" in text)
        statements.clear()
        ledger_rows = [_read_ledger_row(message) for message in Message.select().where(Message.campaign == campaign.id)]
        # Prefetching does not depend on the status of the messages
        transactions.write(run, "UPDATE message SET status = 'sending'")
        preparer.prefetch(ledger_rows)
        for row in ledger_rows:
            wire = quopri.decodestring(preparer.prepare(row).envelope.content)
            assert wire.count(b"Only for Ann") == wire.count(b"Hello Ann") in (0, 2)
    finally:
        connection().set_exec_trace(None)
    assert sum("json_each(:one_ids)" in sql for sql in statements) == 1


def _read_ledger_row(message: Message) -> LedgerRow:
    return LedgerRow._make(getattr(message, name) for name in LedgerRow._fields)


def test_invalid_conditions_hide_a_section(home: Home) -> None:
    """Invalid filters are false; without a contact every condition is true."""
    contact = home.contact("a@example.org", first_name="Ann")
    conditions = {"good": FOR_SOME["show_if"], "bad": [{"name": "no such", "predicate": "is", "value": 1}], "not": [7]}
    assert section_conditions.get_show_values(home.account_id, contact.id, conditions) == {
        "show": {"good": True, "bad": False, "not": False}
    }
    assert section_conditions.get_show_values(home.account_id, 999, conditions) == {
        "show": dict.fromkeys(conditions, False)
    }
    assert section_conditions.get_show_values(home.account_id, None, conditions) == {
        "show": {"good": True, "bad": True, "not": True}
    }


def test_a_mail_of_a_design_has_html_and_text(home: Home) -> None:
    """The mail of a design has both an HTML and a text part."""
    content = compose.compile_message(source(TEXT))
    mail = EncodedMessage(content).build_mail(
        message_values(content), Sender("a@example.org", None, None), 7, "b@example.org", 0.0, ()
    )
    text, html = (quopri.decodestring(part).decode() for part in (mail.text, mail.html) if isinstance(part, bytes))
    assert html.startswith("<!doctype html>") and "Hello Ann" in html and "Hello Ann" in text


def test_a_design_without_a_footer_is_rendered_once(home: Home) -> None:
    """A marketing email whose design cannot have an unsubscribe link gets its footer before it is rendered."""
    before = render._render_cached.cache_info().misses
    content = compose.compile_message(source({"type": "heading", "props": {"text": "Only once"}}))
    assert render._render_cached.cache_info().misses == before + 1 and compose.has_footer(content.html.source)


@pytest.mark.parametrize(("language", "written"), [("en", "1215.3"), ("de", "1215,3")])
def test_examples_of_merge_tags_are_written_as_on_pages(home: Home, language: str, written: str) -> None:
    """The menu writes a number as the language of the page does; other values are unchanged."""
    contact = home.contact("ana@example.org", data={"spent": 1215.3, "city": "Bath", "member": True})
    with use_language(language):
        groups = merge_tags.list_merge_tags(home.account_id, contact=contact)

    examples = {tag.name: tag.example for group in groups for tag in group.tags}
    assert examples["contact.data.spent"] == written
    assert (examples["contact.data.city"], examples["contact.data.member"]) == ("Bath", "True")
