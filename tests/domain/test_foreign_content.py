"""Content of other programs: every text is rendered as it was written, and values are never templates."""

import re
import time
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.content.designs import merge
from appliance.sending.messages import foreign_content
from appliance.sending.messages.foreign_content import ForeignContent, PlaceholderNames

PLACEHOLDER = re.compile(r"%recipient\.([^%\s]{1,100})%|%unsubscribe_url%")
BRACES = some.text("{}%#ab \"'", max_size=30)
NAMES = ("a", "a-b", "a_b", "brace", "Größe")
VALUES = some.fixed_dictionaries(dict.fromkeys(NAMES, BRACES))


def render(content: ForeignContent, text: str, values: dict[str, str], context: merge.Context = "text") -> str:
    """Return a text of another program as a recipient with these values gets it."""
    template = content.convert(text)
    return merge.compile_template(template, context).render({"data": content.get_data(values), "unsubscribe_url": "U"})


@given(BRACES)
def test_text_without_placeholders_stays_as_it_is(text: str) -> None:
    """Braces, tags and their halves are text."""
    assert render(ForeignContent(), text, {}) == text


@given(some.lists(some.one_of(BRACES, some.sampled_from([f"%recipient.{name}%" for name in NAMES]))), VALUES)
def test_placeholders_are_replaced_by_values_as_they_are(parts: list[str], values: dict[str, str]) -> None:
    """The result is that of replacing texts, whatever the values contain and whatever stands beside them."""
    text = "".join(parts)
    expected = PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]) if match[1] else match[0], text)
    content = ForeignContent(PLACEHOLDER, NAMES)

    assert render(content, text, values) == expected
    assert unescape(render(content, text, values, "html")) == expected
    assert content.fill(text, values, 10_000) == expected


def test_tags_and_unknown_names() -> None:
    """A placeholder with a merge tag of its own gets it; a name that nobody defined is text."""
    content = ForeignContent(PLACEHOLDER, ["a"], {"%unsubscribe_url%": "{{ unsubscribe_url }}"})

    assert render(content, "%unsubscribe_url% %recipient.b% {%recipient.a%}", {"a": "1"}) == "U %recipient.b% {1}"
    assert content.used_names == {"a"}


def test_converting_stops_at_its_limits() -> None:
    """Braces, placeholders and values that would make a text many times longer are refused while it is built."""
    many = [f"n{number}" for number in range(101)]
    begun = time.thread_time()

    with pytest.raises(ValueError, match="is too long"):
        ForeignContent().convert("{{" * 5_000_000)
    with pytest.raises(ValueError, match="is too long"):
        ForeignContent(re.compile("(aa)"), ["aa"]).convert("a" * 5_000_000)
    with pytest.raises(ValueError, match="has too many placeholders"):
        ForeignContent(PLACEHOLDER, many).convert("".join(f"%recipient.{name}%" for name in many))
    with pytest.raises(ValueError, match="is too long"):
        ForeignContent(PLACEHOLDER, ["a"]).fill("%recipient.a%" * 100_000, {"a": "z" * 50_000}, 900)
    # Names that are the same merge variable are told apart only where they are used.
    ForeignContent(PLACEHOLDER, ["x" * 60 + str(number) for number in range(50_000)])
    assert time.thread_time() - begun < 1


def test_placeholders_are_found_wherever_the_search_is_split() -> None:
    """A text is searched in parts; a placeholder that stands in two of them is one."""
    for before in range(foreign_content._SEARCHED_CHARACTERS - 20, foreign_content._SEARCHED_CHARACTERS + 5):
        content = ForeignContent(PLACEHOLDER, ["a"])
        text = "x" * before + "%recipient.a%%recipient.a%"
        assert content.convert(text) == "x" * before + "{{ data.v_a }}" * 2
        assert content.fill(text, {"a": "1"}, 100_000) == "x" * before + "11"


@given(some.lists(some.text("ab{", min_size=1, max_size=4), min_size=1, max_size=8), some.text("ab{c", max_size=40))
def test_names_are_found_as_a_pattern_of_them_finds_them(names: list[str], text: str) -> None:
    """The first position counts, and there the longest name."""
    pattern = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)))
    values = {name: f"<{number}>" for number, name in enumerate(names)}
    expected = pattern.sub(lambda match: values[match[0]], text)

    assert render(ForeignContent(PlaceholderNames(names), names), text, values) == expected


def test_time_of_a_search_does_not_depend_on_the_names() -> None:
    """Long names with a common beginning or end cost no more than others, and a shared text is searched once."""
    text = "a" * 400_000
    for names in ([f"{'a' * 98}{number:02}" for number in range(99)], ["a" * number + "b" for number in range(1, 100)],
                  [f"{number:02}{'a' * 98}" for number in range(99)]):  # fmt: skip
        placeholder, begun = PlaceholderNames(names), time.thread_time()
        for _ in range(20):
            assert ForeignContent(placeholder, names).convert(text) == text
        assert time.thread_time() - begun < 1
