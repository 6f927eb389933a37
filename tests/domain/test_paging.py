"""Pages of large audiences: each kind of query returns the same contacts in the same order as a plain sort."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.audience.contacts import removal, search, store
from appliance.audience.contacts.store import ContactQuery
from appliance.audience.segments import members
from appliance.core.errors import Invalid
from appliance.storage import database, transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home


@pytest.fixture
def contacts(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Sixty contacts whose ids and creation times are in different orders, with small chunks."""
    monkeypatch.setattr(search, "_CHUNK", 7)
    monkeypatch.setattr(search, "MAX_RANKED", 10)
    for number in range(60):
        home.upsert(email=f"person{number}@example.org", first_name="Ann" if number % 3 else "Bo")
    transactions.write(run, "UPDATE contact SET created_at = 1000000 + (id * 37 % 50) * 1000")
    return home


def sorted_ids(where: str = "1") -> list[int]:
    """Return the ids of matching contacts, newest first, by a plain sort."""
    return [row[0] for row in rows(f"SELECT id FROM contact c WHERE {where} ORDER BY created_at DESC, id DESC")]


def fetch_all_pages(home: Home, limit: int, **query: Any) -> list[int]:
    """Return the ids of all pages in order, and check the total."""
    ids: list[int] = []
    number = 1
    while True:
        page = store.fetch_page(home.account_id, ContactQuery(page=number, limit=limit, **query))
        if not page.rows:
            assert page.total == len(ids)
            return ids
        ids += [row.id for row in page.rows]
        number += 1


@pytest.mark.parametrize("limit", [1, 7, 50, 100])
def test_pages_of_all_contacts(limit: int, contacts: Home) -> None:
    """All contacts, with any page size."""
    assert fetch_all_pages(contacts, limit) == sorted_ids()


@pytest.mark.parametrize("share", [2, 30])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_of_a_list(limit: int, share: int, contacts: Home) -> None:
    """The members of a large and of a small list."""
    all_ids = sorted_ids()
    group = contacts.list_of(*sorted(all_ids)[::share])
    where = f"id IN (SELECT contact_id FROM membership WHERE contact_list_id = {group.id})"
    assert fetch_all_pages(contacts, limit, list_id=group.id) == sorted_ids(where)


@pytest.mark.parametrize("text", ["ann", "bo", "person5", "person", "nobody", "person12@example.org"])
@pytest.mark.parametrize("limit", [4, 100])
def test_pages_of_a_search(limit: int, text: str, contacts: Home) -> None:
    """The contacts that match a word, few or many."""
    name_condition = f"first_name = '{text.title()}'"
    email_condition = f"EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.key LIKE '{text}%')"
    assert fetch_all_pages(contacts, limit, search=text) == sorted_ids(f"({name_condition} OR {email_condition})")


def test_many_matches_are_sorted_by_id(contacts: Home) -> None:
    """`find_by_words` returns many matches by id, the last added first; few and many are counted and paged."""
    many_ids = [
        row.id for number in range(1, 20) for row in store.find_by_words(contacts.account_id, "ann", number, 4).rows
    ]
    assert (
        many_ids == sorted(many_ids, reverse=True)
        and len(many_ids) == 40 == store.find_by_words(contacts.account_id, "ann").total
    )
    few_ids = [
        row.id for number in range(1, 20) for row in store.find_by_words(contacts.account_id, "person5", number, 4).rows
    ]
    assert len(few_ids) == len(set(few_ids)) == store.find_by_words(contacts.account_id, "person5").total


def test_the_total_is_updated_by_writes(home: Home) -> None:
    """The cached total is right after each new and each deleted contact."""
    for number in range(1, 4):
        contact = home.contact(f"a{number}@example.org")
        assert store.fetch_page(home.account_id, ContactQuery()).total == number

    transactions.write(removal.delete, home.account_id, contact.id)
    assert store.fetch_page(home.account_id, ContactQuery()).total == 2


def test_counts_of_the_account_follow_each_write(home: Home) -> None:
    """The cached counts are right after each write, by this thread and by another."""
    home.contact("ann@example.org")
    assert [accounts.count_objects(home.account_id)["contacts"] for _ in range(2)] == [1, 1]
    with ThreadPoolExecutor(1) as other:
        other.submit(home.contact, "bob@example.org").result()
        other.submit(database.close_database).result()
    assert accounts.count_objects(home.account_id)["contacts"] == 2
    home.contact("cid@example.org")
    assert accounts.count_objects(home.account_id)["contacts"] == 3


def test_a_slow_count_is_rejected(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is reported at `filters`; later queries on the connection are not interrupted."""
    slow_query = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 400000) SELECT count(*) FROM n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(members, "_MAX_SECONDS", -1)
        with pytest.raises(Invalid) as error_info:
            members.cached_count(slow_query, {})
        assert rows(slow_query) == [(400_000,)]

    assert error_info.value.fields == {"filters": ["takes too long to count: ask for less"]}
    assert members.cached_count(slow_query, {}) == 400_000
