"""The text of an SMS: filled in, with how to opt out behind it, its links short, its parts counted."""

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

# What texts with links are made of
PIECES = (
    "https://example.org/a", "HTTPS://X.DE", "https://example.org/b?c={{ contact.id }}", "http:///x", "https://",
    "https://{{ first_name }}.org/", "https://example.org/{% if first_name %}x{% endif %}y", "{{ first_name }}",
    "{% if first_name %}", "{% endif %}", "{% else %}", "{% raw %}", "{% endraw %}", "{% comment %}",
    "{% endcomment %}", ". ", "。", "”", "(", ")", "\n", "é", "😀", "a", "-1", "&amp;",
)  # fmt: skip
HINT = "Reply STOP to opt out"


def fill(body: str, hint: str | None = None, is_due: bool = True, links: bool = False, **said: Any) -> SmsText:
    """Fill a text as a message would be."""
    addresses = [link.href for link in compose.find_sms_links(body)] if links else None
    return compose.fill_sms(compose.compile_sms(body, addresses), said | compose.build_link_tokens(7), hint, is_due)


def test_values_are_said_as_they_are(home: Home) -> None:
    """Nothing is escaped, and what a value says is never read as a tag."""
    said = fill("Hi {{ first_name }}, 3 < 4 & so on", first_name="{{ O'Neill }} <b>")
    assert said.body == "Hi {{ O'Neill }} <b>, 3 < 4 & so on"


@pytest.mark.parametrize(
    ("body", "sent", "hinted"),
    [
        ("Sale now", f"Sale now {HINT}", True),
        ("Sale now\n", f"Sale now {HINT}", True),
        ("Sale\nnow", f"Sale\nnow\n{HINT}", True),
        (f"Sale. {HINT}", f"Sale. {HINT}", True),
        ("Sale. reply  stop to OPT out, please", "Sale. reply  stop to OPT out, please", True),
    ],
)
def test_the_hint_is_said_once(home: Home, body: str, sent: str, hinted: bool) -> None:
    """It stands behind the text, on a line of its own where there are lines, unless the text says it itself."""
    found = fill(body, HINT)
    assert (found.body, found.has_opt_out_hint) == (sent, hinted)


def test_a_hint_that_is_not_due_is_left_out(home: Home) -> None:
    """Where it is not due nothing is appended; who says it in the text has said it."""
    assert fill("Sale", HINT, is_due=False)[::2] == ("Sale", False)
    assert fill(f"{HINT}. Sale", HINT, is_due=False)[::2] == (f"{HINT}. Sale", True)
    assert fill("Sale", None)[::2] == ("Sale", False)


def test_a_hint_may_have_merge_tags(home: Home) -> None:
    """The brand and the way out of each message can be said in it."""
    found = fill("Sale", "{{ brand.company_name }}: {{ unsubscribe_url }}", brand={"company_name": "Acme"},
                 unsubscribe_url="https://x.example/u/1")  # fmt: skip
    assert found.body == "Sale Acme: https://x.example/u/1"


def test_links_become_short_and_keep_their_numbers(home: Home) -> None:
    """Each address that may be led to leads through us, of signs every SMS can hold, the same one under one number."""
    body = (
        "Look: https://example.org/a-very-long/path?with=much&more={{ contact.id }}. Or (https://example.org/b)! "
        "Again https://example.org/b, never {{ contact.data.url }} nor https://{{ data.host }}/c"
    )
    said = fill(body, links=True, contact={"id": 5, "data": {"url": "https://evil.example"}}, data={"host": "h"}).body
    token = compose.build_link_tokens(7)["track"]["click"]
    base = "http://127.0.0.1:8080"
    assert said == (
        f"Look: {base}/c/{token}-1. Or ({base}/c/{token}-2)! "
        f"Again {base}/c/{token}-2, never https://evil.example nor https://h/c"
    )
    assert len(f"/c/{token}-99") <= 25
    assert fill(token).size.alphabet == "GSM-7"
    assert [link.number for link in compose.find_sms_links(body)] == [1, 2, 3]


def test_a_link_ends_where_its_sentence_does(home: Home) -> None:
    """Quotes, dots and the full stops of East Asia that follow without a space are the text's, and stay in it."""
    for behind in ("”", "…", "。谢谢", "、", "）", "！", ".”", "», "):
        body = f"“https://example.org/a{behind}"
        assert [link.href for link in compose.find_sms_links(body)] == ["https://example.org/a"]
        assert fill(body, links=True).body.endswith(f"-1{behind}")
    # Letters of any language may stand in an address
    assert [link.href for link in compose.find_sms_links("https://example.org/größe.")] == ["https://example.org/größe"]


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
@example("{% raw %}https://example.org/a。{% endraw %}")
def test_nothing_but_addresses_is_replaced(home: Home, body: str) -> None:
    """Wherever links stand, with the addresses put back the text is what it is without short links, word by word."""
    said = {"contact": {"id": 5}, "first_name": "Ann"}
    try:
        addresses = [link.href for link in compose.find_sms_links(body)]
        long = fill(body, **said).body
    except MergeError:
        return
    short = fill(body, links=True, **said).body
    token = re.escape(compose.build_link_tokens(7)["track"]["click"])
    back = re.sub(
        rf"http://127\.0\.0\.1:8080/c/{token}-(\d+)",
        lambda found: fill(addresses[int(found[1]) - 1], **said).body,
        short,
    )
    assert back == long


@pytest.mark.parametrize("sign", [")", ".", "](", "{{ a }}", "https://example.org/a ", "{% raw %}{% endraw %}"])
def test_a_text_of_any_length_is_read_in_a_moment(home: Home, sign: str) -> None:
    """Whatever stands behind an address a hundred thousand times: the time grows with the text and no faster."""
    many = 1_000 if sign[0] in "{h" else 100_000
    begin = time.thread_time()
    body = "https://example.org/" + sign * many
    compose.compile_sms(body, [link.href for link in compose.find_sms_links(body)])
    assert time.thread_time() - begin < 3


def test_what_nobody_carries_is_told(home: Home) -> None:
    """Nothing, more than 10 parts, and more than 1,600 characters, after everything is filled in."""
    assert fill("{{ nothing }} ", nothing=None).find_problem() == "it says nothing"
    assert fill("{{ nothing }} ", HINT, nothing=None).find_problem() == "it says nothing"
    assert fill("{{ all }}", all="a" * 1530).find_problem() is None
    assert fill("{{ all }}", all="a" * 1531).find_problem() == "it takes 11 parts (maximum is 10)"
    assert fill("{{ all }}", all="a" * 1601).find_problem() == "it is too long (maximum is 1600 characters)"
    assert fill("{{ all }}", all="Ж" * 671).find_problem() == "it takes 11 parts (maximum is 10)"
    with pytest.raises(MergeError):
        fill("{{ a | money }}", a="x")


def test_a_text_that_can_never_be_sent_is_refused_where_it_is_written(home: Home) -> None:
    """Over 1,600 characters, over 10 parts where nothing can change that, or not readable."""
    assert segments.find_length_fault("a" * 1530) is None
    assert segments.find_length_fault("a" * 1601) == "is too long (maximum is 1600 characters)"
    assert segments.find_length_fault("Ж" * 671) == "is too long (11 parts in UCS-2, maximum is 10)"
    # A tag may leave words out, an address may become shorter
    assert segments.find_length_fault("{% if a %}" + "Ж" * 671 + "{% endif %}") is None
    assert segments.find_length_fault("Ж" * 600 + " https://example.org/" + "x" * 100) is None
    assert "expected '}}'" in str(segments.find_length_fault("Hi {{ name"))


def test_quotes_are_made_plain_where_that_is_set(home: Home) -> None:
    """Typographic characters, those of values too, are sent as GSM-7 has them, if the settings say so."""
    body = "“Hi” {{ first_name }}…"
    assert fill(body, first_name="O’Neill").size.alphabet == "UCS-2"
    home.configure(sms__plain_quotes="true")
    found = fill(body, first_name="O’Neill")
    assert (found.body, found.size.alphabet) == ('"Hi" O\'Neill...', "GSM-7")
