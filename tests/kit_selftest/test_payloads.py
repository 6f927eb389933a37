"""The reader of hostile pages notices what it is there to notice."""

from html import escape
from http.client import HTTPMessage

import pytest

from tests.kit.client import Response
from tests.kit.payloads import ACTIVE_HTML, ALL_PAYLOADS, MARK, PAYLOADS, ActiveContentParser


def read(html: str) -> ActiveContentParser:
    """Return what the reader makes of a page."""
    return ActiveContentParser(Response(200, HTTPMessage(), html.encode()))


@pytest.mark.parametrize("context", ["<p>{}</p>", '<input value="{}">', "<textarea>{}</textarea>", "<title>{}</title>"])
def test_words_that_are_not_escaped_are_noticed(context: str) -> None:
    """Wherever they stand raw they act, and where they are escaped they are words."""
    assert read(context.format(ALL_PAYLOADS)).active_content != []
    assert (
        read(context.format(escape(ALL_PAYLOADS))).active_content == []
        and MARK in read(context.format(escape(ALL_PAYLOADS))).text
    )


@pytest.mark.parametrize("payload", PAYLOADS)
def test_each_payload_is_noticed_where_it_is_at_home(payload: str) -> None:
    """Each one breaks out of something: an element, an address, an attribute of either quote."""
    places = ("<p>{}</p>", '<a href="{}">', '<p title="{}">', "<p title='{}'>", "<textarea>{}</textarea>")
    assert any(read(place.format(payload)).active_content for place in places)
    assert all(read(place.format(escape(payload))).active_content == [] for place in places if "href" not in place)


def test_a_lively_mail_is_noticed() -> None:
    """Frames, forms, addresses that run and objects are acts."""
    assert {"<object>", "<base>"} <= set(read(ACTIVE_HTML).active_content)
