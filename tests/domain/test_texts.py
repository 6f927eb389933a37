"""The text of an SMS: merge tags, opt-out hint, short links and segments."""

import re
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.content.designs.merge_limits import MergeError
from appliance.sending.messages import compose
from appliance.sending.messages.compose import SmsText
from appliance.sending.sms import segments
from tests.domain.home import Home

# Parts of texts with links
PIECES = (
    "https://example.org/a", "HTTPS://X.DE", "https://example.org/b?c={{ contact.id }}", "http:///x", "https://",
    "https://{{ first_name }}.org/", "https://example.org/{% if first_name %}x{% endif %}y", "{{ first_name }}",
    "{% if first_name %}", "{% endif %}", "{% else %}", "{% raw %}", "{% endraw %}", "{% comment %}",
    "{% endcomment %}", ". ", "。", "”", "(", ")", "\n", "é", "😀", "a", "-1", "&amp;",
)  # fmt: skip
HINT = "Reply STOP to opt out"


def render(body: str, hint: str | None = None, is_due: bool = True, links: bool = False, **values: Any) -> SmsText:
    """Render a text as in a message."""
    urls = [link.href for link in compose.find_sms_links(body)] if links else None
    text = compose.compile_sms(body, urls, base_url="http://127.0.0.1:8080")
    return compose.fill_sms(text, values | compose.build_link_tokens(7), hint, is_due)


def test_values_are_not_escaped(home: Home) -> None:
    """Values are neither escaped nor parsed as tags."""
    sms = render("Hi {{ first_name }}, 3 < 4 & so on", first_name="{{ O'Neill }} <b>")
    assert sms.body == "Hi {{ O'Neill }} <b>, 3 < 4 & so on"


@pytest.mark.parametrize(
    ("body", "expected", "has_hint"),
    [
        ("Sale now", f"Sale now {HINT}", True),
        ("Sale now\n", f"Sale now {HINT}", True),
        ("Sale\nnow", f"Sale\nnow\n{HINT}", True),
        (f"Sale. {HINT}", f"Sale. {HINT}", True),
        ("Sale. reply  stop to OPT out, please", "Sale. reply  stop to OPT out, please", True),
    ],
)
def test_the_opt_out_hint_is_added_once(home: Home, body: str, expected: str, has_hint: bool) -> None:
    """The hint is appended, on a new line if the text has lines, unless the text has it already."""
    sms = render(body, HINT)
    assert (sms.body, sms.has_opt_out_hint) == (expected, has_hint)


def test_a_hint_that_is_not_due_is_left_out(home: Home) -> None:
    """A hint that is not due is not appended; a text that has it counts as hinted all the same."""
    assert render("Sale", HINT, is_due=False)[::2] == ("Sale", False)
    assert render(f"{HINT}. Sale", HINT, is_due=False)[::2] == (f"{HINT}. Sale", True)
    assert render("Sale", None)[::2] == ("Sale", False)


def test_a_hint_may_have_merge_tags(home: Home) -> None:
    """Brand and unsubscribe URL can be used in the hint."""
    sms = render("Sale", "{{ brand.company_name }}: {{ unsubscribe_url }}", brand={"company_name": "Acme"},
                 unsubscribe_url="https://x.example/u/1")  # fmt: skip
    assert sms.body == "Sale Acme: https://x.example/u/1"


def test_links_are_shortened_and_numbered(home: Home) -> None:
    """Trackable URLs become short links in GSM-7; the same URL has the same short link, URLs from data stay."""
    body = (
        "Look: https://example.org/a-very-long/path?with=much&more={{ contact.id }}. Or (https://example.org/b)! "
        "Again https://example.org/b, never {{ contact.data.url }} nor https://{{ data.host }}/c"
    )
    text = render(body, links=True, contact={"id": 5, "data": {"url": "https://evil.example"}}, data={"host": "h"}).body
    token = compose.build_link_tokens(7)["track"]["click"]
    base = "http://127.0.0.1:8080"
    assert text == (
        f"Look: {base}/c/{token}-1. Or ({base}/c/{token}-2)! "
        f"Again {base}/c/{token}-2, never https://evil.example nor https://h/c"
    )
    assert len(f"/c/{token}-99") <= 25
    assert render(token).size.alphabet == "GSM-7"
    assert [link.number for link in compose.find_sms_links(body)] == [1, 2, 3]


def test_punctuation_after_a_link_is_not_part_of_it(home: Home) -> None:
    """Quotes and full stops, also those of East Asia, stay in the text."""
    for punctuation in ("”", "…", "。谢谢", "、", "）", "！", ".”", "», "):
        body = f"“https://example.org/a{punctuation}"
        assert [link.href for link in compose.find_sms_links(body)] == ["https://example.org/a"]
        assert render(body, links=True).body.endswith(f"-1{punctuation}")
    # Letters of any language are allowed in a URL
    assert [link.href for link in compose.find_sms_links("https://example.org/größe.")] == ["https://example.org/größe"]


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
@example("{% raw %}https://example.org/a。{% endraw %}")
def test_only_urls_are_replaced_by_short_links(home: Home, body: str) -> None:
    """With the URLs put back the text is the same as without short links."""
    values = {"contact": {"id": 5}, "first_name": "Ann"}
    try:
        urls = [link.href for link in compose.find_sms_links(body)]
        expected = render(body, **values).body
    except MergeError:
        return
    shortened = render(body, links=True, **values).body
    token = re.escape(compose.build_link_tokens(7)["track"]["click"])
    restored = re.sub(
        rf"http://127\.0\.0\.1:8080/c/{token}-(\d+)",
        lambda match: render(urls[int(match[1]) - 1], **values).body,
        shortened,
    )
    assert restored == expected


@pytest.mark.parametrize("sign", [")", ".", "](", "{{ a }}", "https://example.org/a ", "{% raw %}{% endraw %}"])
def test_links_are_found_in_linear_time(home: Home, sign: str) -> None:
    """Up to 100,000 characters or tags after a URL are compiled within three seconds."""
    count = 1_000 if sign[0] in "{h" else 100_000
    started = time.thread_time()
    body = "https://example.org/" + sign * count
    compose.compile_sms(body, [link.href for link in compose.find_sms_links(body)], base_url="http://127.0.0.1:8080")
    assert time.thread_time() - started < 3


def test_find_problem_of_a_rendered_sms(home: Home) -> None:
    """An empty text, more than 10 segments and more than 1,600 characters are problems; a filter error raises."""
    assert render("{{ nothing }} ", nothing=None).find_problem() == "the text is empty"
    assert render("{{ nothing }} ", HINT, nothing=None).find_problem() == "the text is empty"
    assert render("{{ all }}", all="a" * 1530).find_problem() is None
    assert render("{{ all }}", all="a" * 1531).find_problem() == "the text takes 11 parts (maximum is 10)"
    assert render("{{ all }}", all="a" * 1601).find_problem() == "the text is too long (maximum is 1600 characters)"
    assert render("{{ all }}", all="Ж" * 671).find_problem() == "the text takes 11 parts (maximum is 10)"
    with pytest.raises(MergeError):
        render("{{ a | money }}", a="x")


def test_find_length_fault_of_a_template(home: Home) -> None:
    """A text that is too long whatever its values are, or has a syntax error, is invalid."""
    assert segments.find_length_fault("a" * 1530) is None
    assert segments.find_length_fault("a" * 1601) == "is too long (maximum is 1600 characters)"
    assert segments.find_length_fault("Ж" * 671) == "is too long (11 parts in UCS-2, maximum is 10)"
    # A condition may leave text out, and a URL may be shortened
    assert segments.find_length_fault("{% if a %}" + "Ж" * 671 + "{% endif %}") is None
    assert segments.find_length_fault("Ж" * 600 + " https://example.org/" + "x" * 100) is None
    assert "expected '}}'" in str(segments.find_length_fault("Hi {{ name"))


def test_plain_quotes_replace_typographic_ones(home: Home) -> None:
    """With `sms.plain_quotes` typographic characters of text and values become GSM-7 ones."""
    body = "“Hi” {{ first_name }}…"
    assert render(body, first_name="O’Neill").size.alphabet == "UCS-2"
    home.configure(sms__plain_quotes="true")
    sms = render(body, first_name="O’Neill")
    assert (sms.body, sms.size.alphabet) == ('"Hi" O\'Neill...', "GSM-7")
