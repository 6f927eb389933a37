"""Pages of the event log: each equals a plain sort of all events, and the total is exact."""

import itertools
import random
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.events import listing, log
from appliance.events.log import EventQuery
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run
from tests.domain.home import Home

NAMES = ("email_sent", "email_opened", "order_paid")
FIRST, STEP = 1_700_000_000_000, 60_000


@pytest.fixture
def home_with_events(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return an installation with 400 events of three contacts, many at the same time, and all counts cached."""
    monkeypatch.setattr(listing, "_MIN_CACHED_COUNT", 0)
    for number in range(3):
        home.contact(f"p{number}@example.org")
    transactions.write(run, "DELETE FROM event")
    transactions.write(insert_events, home, 400, 5)
    return home


def insert_events(home: Home, count: int, seed: int) -> None:
    """Insert random events such that each filter matches some."""
    rng = random.Random(seed)
    contact_ids = [row[0] for row in rows("SELECT id FROM contact WHERE account_id = ?", (home.account_id,))]
    connection().executemany(
        "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
        "chain_depth, created_at, updated_at) VALUES (?, ?, ?, '{}', ?, ?, ?, 0, 0, 0, ?, 0)",
        [
            (
                home.account_id, rng.choice([*contact_ids, None]), rng.choice(NAMES),
                rng.choice(["product:1", "product:2", None]), rng.choice(["Spring", "Autumn", None]),
                rng.random() < 0.2, FIRST + rng.randrange(60) * STEP,
            )
            for _ in range(count)
        ],
    )  # fmt: skip


def fetch_ids_plainly(home: Home, filters: dict[str, Any]) -> list[int]:
    """Return the ids of matching events in list order, by a full scan."""
    names = {"created_after": "created_at >= ?", "created_before": "created_at < ?"}
    parts = ["account_id = ?", *(names.get(name, f"{name} = ?") for name in filters)]
    values = [clock.parse(value) if name in names else value for name, value in filters.items()]
    matching = rows(
        f"SELECT id FROM event NOT INDEXED WHERE {' AND '.join(parts)} ORDER BY created_at DESC, id DESC",
        [home.account_id, *values],
    )
    return [row[0] for row in matching]


def fetch_all_pages(home: Home, filters: dict[str, Any], limit: int) -> list[int]:
    """Return the ids of all pages, after a check of the total."""
    ids: list[int] = []
    for number in itertools.count(1):
        page = log.list_events(home.account_id, EventQuery(page=number, limit=limit, **filters))
        if not page.rows:
            assert page.total == len(ids)
            return ids
        ids += [row.id for row in page.rows]
    raise AssertionError("no end")


def filter_combinations(home: Home) -> list[dict[str, Any]]:
    """Return every combination of filters, with one value each."""
    contact = rows("SELECT min(id) FROM contact")[0][0]
    options = [
        ("event", "email_sent"), ("contact_id", contact), ("resource_uid", "product:1"), ("resource_name", "Spring"),
        ("test", True), ("test", False), ("created_after", "2023-11-14T22:30:00Z"),
        ("created_before", "2023-11-14T22:50:00Z"),
    ]  # fmt: skip
    return [dict(choice) for size in range(len(options)) for choice in itertools.combinations(options, size)]


def test_every_combination_of_filters(home_with_events: Home) -> None:
    """Each combination returns exactly the matching events, in order."""
    for filters in filter_combinations(home_with_events):
        assert fetch_all_pages(home_with_events, filters, 20) == fetch_ids_plainly(home_with_events, filters), filters


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_of_any_size(limit: int, home_with_events: Home) -> None:
    """No event is missing or repeated for any page size, also among events of the same time."""
    for filters in ({}, {"event": "order_paid"}, {"test": True}):
        assert fetch_all_pages(home_with_events, filters, limit) == fetch_ids_plainly(home_with_events, filters)


def test_the_total_is_exact_after_inserts_and_deletes(home_with_events: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cached total is correct after inserted, deleted and changed events, few or many."""
    contact = rows("SELECT max(id) FROM contact")[0][0]
    queries: list[dict[str, Any]] = [{}, {"event": "order_paid"}, {"resource_name": "Spring", "test": False},
                                   {"contact_id": contact}]  # fmt: skip

    def check() -> None:
        for filters in queries:
            assert log.list_events(home_with_events.account_id, EventQuery(limit=1, **filters)).total == len(
                fetch_ids_plainly(home_with_events, filters)
            ), filters

    check()
    transactions.write(insert_events, home_with_events, 50, 6)
    check()
    transactions.write(run, "DELETE FROM event WHERE id IN (SELECT id FROM event ORDER BY id LIMIT 30)")
    check()
    transactions.write(run, "DELETE FROM event WHERE id = (SELECT max(id) FROM event)")
    transactions.write(insert_events, home_with_events, 1, 7)
    check()
    transactions.write(run, "UPDATE event SET contact_id = NULL WHERE contact_id = ? AND id % 2", (contact,))
    check()
    monkeypatch.setattr(listing, "_MAX_NEW_EVENTS", 10)
    transactions.write(insert_events, home_with_events, 40, 8)
    check()
    transactions.write(run, "DELETE FROM event")
    check()


def test_count_by_name_since_a_time(home_with_events: Home) -> None:
    """Each event name since that time is counted; earlier events and other accounts are not."""
    transactions.write(run, "UPDATE event SET created_at = 1 WHERE event = 'email_opened'")
    since = FIRST + 30 * STEP
    expected = rows("SELECT event, count(*) FROM event NOT INDEXED WHERE created_at >= ? GROUP BY event", (since,))
    assert log.count_by_name(home_with_events.account_id, since) == dict(expected) and len(expected) == 2
    assert log.count_by_name(home_with_events.account_id + 1, since) == {}


def test_another_accounts_contact_has_no_events(home_with_events: Home) -> None:
    """Filtering by the id of another account's contact gives no events."""
    from appliance.accounts import accounts

    contact = rows("SELECT contact_id FROM event WHERE contact_id NOT NULL")[0][0]
    other = transactions.write(lambda: accounts.create("Other").id)
    page = log.list_events(other, EventQuery(contact_id=contact))
    assert (page.total, page.rows) == (0, [])


def test_a_filter_uses_a_covering_index(home_with_events: Home) -> None:
    """A query with at most one filter is answered from a covering index, without sorting."""
    for filters in (
        combination
        for combination in filter_combinations(home_with_events)
        if len(combination) <= 1 and "contact_id" not in combination
    ):
        query = listing.build_query(log.read_filters(home_with_events.account_id, EventQuery(**filters)))
        plan = rows(
            f"EXPLAIN QUERY PLAN SELECT id FROM {query.source} WHERE {query.condition} "
            "ORDER BY created_at DESC, id DESC LIMIT 50",
            query.parameters,
        )
        (step,) = [row[3] for row in plan]
        assert "SEARCH event USING COVERING INDEX" in step, (filters, step)


def test_invalid_times_are_rejected(home: Home) -> None:
    """An error is reported at each of `created_after` and `created_before`."""
    with pytest.raises(Invalid) as error_info:
        log.list_events(home.account_id, EventQuery(created_after="soon", created_before="2026-13-01"))
    assert set(error_info.value.fields) == {"created_after", "created_before"}
