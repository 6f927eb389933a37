"""Pages of large audiences: every way to them gives the same people in the same order as a plain sort."""

from typing import Any

import pytest

from appliance.audience.contacts import removal, search, store
from appliance.audience.contacts.store import ContactQuery
from appliance.audience.segments import members
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home


@pytest.fixture
def crowd(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Some dozens of people whose ids and times do not go together, with small pieces everywhere."""
    monkeypatch.setattr(search, "_CHUNK", 7)
    monkeypatch.setattr(search, "MAX_RANKED", 10)
    for number in range(60):
        home.upsert(email=f"person{number}@example.org", first_name="Ann" if number % 3 else "Bo")
    transactions.write(run, "UPDATE contact SET created_at = 1000000 + (id * 37 % 50) * 1000")
    return home


def plain(where: str = "1") -> list[int]:
    """Return ids in the order of the list, by a plain sort."""
    return [row[0] for row in rows(f"SELECT id FROM contact c WHERE {where} ORDER BY created_at DESC, id DESC")]


def walked(home: Home, limit: int, **query: Any) -> list[int]:
    """Return the ids of all pages, one after the other, with the total checked on each."""
    found: list[int] = []
    number = 1
    while True:
        page = store.fetch_page(home.account_id, ContactQuery(page=number, limit=limit, **query))
        if not page.rows:
            assert page.total == len(found)
            return found
        found += [row.id for row in page.rows]
        number += 1


@pytest.mark.parametrize("limit", [1, 7, 50, 100])
def test_everybody(limit: int, crowd: Home) -> None:
    """All contacts, from the front and from the back."""
    assert walked(crowd, limit) == plain()


@pytest.mark.parametrize("share", [2, 30])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_list(limit: int, share: int, crowd: Home) -> None:
    """The members of a large list and of a small one."""
    everybody = plain()
    group = crowd.list_of(*sorted(everybody)[::share])
    where = f"id IN (SELECT contact_id FROM membership WHERE contact_list_id = {group.id})"
    assert walked(crowd, limit, list_id=group.id) == plain(where)


@pytest.mark.parametrize("text", ["ann", "bo", "person5", "person", "nobody", "person12@example.org"])
@pytest.mark.parametrize("limit", [4, 100])
def test_a_search(limit: int, text: str, crowd: Home) -> None:
    """The people that words find, few or many."""
    named = f"first_name = '{text.title()}'"
    mailed = f"EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.key LIKE '{text}%')"
    assert walked(crowd, limit, search=text) == plain(f"({named} OR {mailed})")


def test_best_first_or_newest(crowd: Home) -> None:
    """`find` ranks a few, and gives many the last added first; both count all of them and page on."""
    many = [row.id for number in range(1, 20) for row in store.find_by_words(crowd.account_id, "ann", number, 4).rows]
    assert many == sorted(many, reverse=True) and len(many) == 40 == store.find_by_words(crowd.account_id, "ann").total
    few = [
        row.id for number in range(1, 20) for row in store.find_by_words(crowd.account_id, "person5", number, 4).rows
    ]
    assert len(few) == len(set(few)) == store.find_by_words(crowd.account_id, "person5").total


def test_the_total_follows_every_write(home: Home) -> None:
    """A kept total is never an old one."""
    for number in range(1, 4):
        contact = home.contact(f"a{number}@example.org")
        assert store.fetch_page(home.account_id, ContactQuery()).total == number

    transactions.write(removal.delete, home.account_id, contact.id)
    assert store.fetch_page(home.account_id, ContactQuery()).total == 2


def test_what_takes_too_long_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count has its time and no more, in words that say what to do; what is asked next has all its time again."""
    long = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 400000) SELECT count(*) FROM n"
    with monkeypatch.context() as hurried:
        hurried.setattr(members, "_MAX_SECONDS", -1)
        with pytest.raises(Invalid) as told:
            members.cached_count(long, {})
        assert rows(long) == [(400_000,)]

    assert told.value.fields == {"filters": ["takes too long to count: ask for less"]}
    assert members.cached_count(long, {}) == 400_000
