"""Contact search: prefixes match, and user input is never parsed as query syntax."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.audience.contacts import search, store
from appliance.audience.contacts.store import ContactQuery
from tests.domain.home import Home

HOSTILE = [
    "' OR 1=1--",
    'a" OR b*',
    '"',
    '""',
    "*",
    "NEAR(a b)",
    "NEAR(",
    "names:ann",
    "^ann",
    "ann AND NOT bob",
    "-ann",
    "(ann",
    "ann)",
    "{names email}: ann",
    "a+b",
    "data.x') --",
    "\0",
    "ann\0bob",
    "%",
    "_",
    "\\",
    "²³¹",
    "\u200b",
    "½",
    "१२३४५",
    "İstanbul",
    "\ud800",
    "😀",
    "a" * 255,
    "a " * 127,
    "1" * 255,
]
TYPED = st.one_of(st.text(max_size=60), st.text(st.sampled_from("\"'*^-+:(){}~ ANDORTEN abc019\0"), max_size=60))


@given(text=TYPED)
@example(text="AND")
@example(text="NOT NEAR OR")
def test_any_text_is_searched_without_error(text: str, home: Home) -> None:
    """Any text can be searched by words and used as the search filter of a contact query."""
    assert store.find_by_words(home.account_id, text).total == 0
    if len(text) <= 255:
        assert store.fetch_page(home.account_id, ContactQuery(search=text)).total == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_operators_are_searched_as_words(text: str, home: Home) -> None:
    """Operators of SQL and of the index match no contact and cause no error."""
    home.contact("zoe@example.org", first_name="Zoë", last_name="Quist")
    assert store.find_by_words(home.account_id, text).total == 0


@pytest.mark.parametrize(
    "text",
    ["ann", "AN", "lee", "ann lee", "lee ann", "Ann.Lee@Example.org", "example", "exam", "lee@exam", "1415",
     "+1 (415) 555", "14155550123", "élo", "elo", "ELOISE"],
)  # fmt: skip
def test_prefixes_match(text: str, home: Home) -> None:
    """Prefixes of names, of an address and its parts, and digits of a phone match, ignoring case and accents."""
    contact = home.contact("Ann.Lee@example.org", first_name="Ann Éloise", last_name="Lee", phone="+14155550123")
    home.contact("bob@elsewhere.test", first_name="Bob")
    assert [row.id for row in store.find_by_words(home.account_id, text).rows] == [contact.id]


@pytest.mark.parametrize("text", ["nn", "ann bob", "xample", "555"])
def test_every_word_must_match_the_same_contact(text: str, home: Home) -> None:
    """Each word has to be a prefix of a word of the same contact."""
    home.contact("ann@example.org", first_name="Ann", phone="+14155550123")
    home.contact("bob@elsewhere.test", first_name="Bob")
    assert store.find_by_words(home.account_id, text).total == 0


def test_the_index_is_updated_with_the_contact(home: Home) -> None:
    """After a change the new words match and the old ones no longer do."""
    contact = home.contact("old@example.org", first_name="Oldname")
    home.patch(contact.id, first_name="Newname", email="fresh@example.org")
    assert [store.find_by_words(home.account_id, text).total for text in ("oldname", "old", "newname", "fresh")] == [
        0,
        0,
        1,
        1,
    ]


@given(text=TYPED)
def test_query_words_are_quoted(text: str) -> None:
    """A query has only quoted words, each followed by a star."""
    query = search.build_query(text)
    assert query is None or all(
        part.startswith('"') and part.endswith('"*') and part.count('"') == 2 for part in query.split(" ")
    )
