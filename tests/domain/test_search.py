"""Search by what people type: prefixes find, and no text of a stranger is ever a query language."""

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
def test_hostile_text_is_only_text(text: str, home: Home) -> None:
    """Any text searches without error on a real index, as a filter and as a search of its own."""
    assert store.find_by_words(home.account_id, text).total == 0
    if len(text) <= 255:
        assert store.fetch_page(home.account_id, ContactQuery(search=text)).total == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_operators_are_words(text: str, home: Home) -> None:
    """Operators of SQL and of the index find nobody they do not name, and never fail."""
    home.contact("zoe@example.org", first_name="Zoë", last_name="Quist")
    assert store.find_by_words(home.account_id, text).total == 0


@pytest.mark.parametrize(
    "text",
    ["ann", "AN", "lee", "ann lee", "lee ann", "Ann.Lee@Example.org", "example", "exam", "lee@exam", "1415",
     "+1 (415) 555", "14155550123", "élo", "elo", "ELOISE"],
)  # fmt: skip
def test_prefixes_find(text: str, home: Home) -> None:
    """Beginnings of names, of an address and its parts, and digits of a phone find, without case and accents."""
    wanted = home.contact("Ann.Lee@example.org", first_name="Ann Éloise", last_name="Lee", phone="+14155550123")
    home.contact("bob@elsewhere.test", first_name="Bob")
    assert [row.id for row in store.find_by_words(home.account_id, text).rows] == [wanted.id]


@pytest.mark.parametrize("text", ["nn", "ann bob", "xample", "555"])
def test_what_is_no_prefix_of_all_words_finds_nobody(text: str, home: Home) -> None:
    """Every word typed has to begin a word of the same contact."""
    home.contact("ann@example.org", first_name="Ann", phone="+14155550123")
    home.contact("bob@elsewhere.test", first_name="Bob")
    assert store.find_by_words(home.account_id, text).total == 0


def test_the_index_follows_the_contact(home: Home) -> None:
    """After a change the new words find and the old ones no longer do."""
    contact = home.contact("old@example.org", first_name="Oldname")
    home.patch(contact.id, first_name="Newname", email="fresh@example.org")
    assert [store.find_by_words(home.account_id, text).total for text in ("oldname", "old", "newname", "fresh")] == [
        0,
        0,
        1,
        1,
    ]


@given(text=TYPED)
def test_every_word_is_quoted(text: str) -> None:
    """A query holds quoted words with a star behind each, and nothing else that the index could take as its own."""
    query = search.build_query(text)
    assert query is None or all(
        part.startswith('"') and part.endswith('"*') and part.count('"') == 2 for part in query.split(" ")
    )
