"""The parser of active content finds the payloads of the test kit."""

from html import escape
from http.client import HTTPMessage

import pytest

from tests.kit.client import Response
from tests.kit.payloads import ACTIVE_HTML, ALL_PAYLOADS, MARK, PAYLOADS, ActiveContentParser


def parse(html: str) -> ActiveContentParser:
    """Return the parsed page."""
    return ActiveContentParser(Response(200, HTTPMessage(), html.encode()))


@pytest.mark.parametrize("context", ["<p>{}</p>", '<input value="{}">', "<textarea>{}</textarea>", "<title>{}</title>"])
def test_unescaped_payloads_are_found(context: str) -> None:
    """Raw payloads are active content, and escaped ones are text."""
    assert parse(context.format(ALL_PAYLOADS)).active_content != []
    assert (
        parse(context.format(escape(ALL_PAYLOADS))).active_content == []
        and MARK in parse(context.format(escape(ALL_PAYLOADS))).text
    )


@pytest.mark.parametrize("payload", PAYLOADS)
def test_each_payload_is_active_somewhere(payload: str) -> None:
    """Each payload breaks out of an element or attribute, and escaped of none."""
    places = ("<p>{}</p>", '<a href="{}">', '<p title="{}">', "<p title='{}'>", "<textarea>{}</textarea>")
    assert any(parse(place.format(payload)).active_content for place in places)
    assert all(parse(place.format(escape(payload))).active_content == [] for place in places if "href" not in place)


def test_active_html_is_found() -> None:
    """Objects and base URLs are active content."""
    assert {"<object>", "<base>"} <= set(parse(ACTIVE_HTML).active_content)
