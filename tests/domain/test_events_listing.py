"""Pages of the event log: whatever is asked, they are what a plain sort gives, and the total is exact every time."""

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
def crowded(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Some hundreds of events of three people, many of one moment; every count is kept."""
    monkeypatch.setattr(listing, "_MIN_CACHED_COUNT", 0)
    for number in range(3):
        home.contact(f"p{number}@example.org")
    transactions.write(run, "DELETE FROM event")
    transactions.write(write, home, 400, 5)
    return home


def write(home: Home, count: int, seed: int) -> None:
    """Write events of which each filter fits some."""
    chance = random.Random(seed)
    people = [row[0] for row in rows("SELECT id FROM contact WHERE account_id = ?", (home.account_id,))]
    connection().executemany(
        "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
        "chain_depth, created_at, updated_at) VALUES (?, ?, ?, '{}', ?, ?, ?, 0, 0, 0, ?, 0)",
        [
            (
                home.account_id, chance.choice([*people, None]), chance.choice(NAMES),
                chance.choice(["product:1", "product:2", None]), chance.choice(["Spring", "Autumn", None]),
                chance.random() < 0.2, FIRST + chance.randrange(60) * STEP,
            )
            for _ in range(count)
        ],
    )  # fmt: skip


def plain(home: Home, asked: dict[str, Any]) -> list[int]:
    """Return ids in the order of the list, by reading all events."""
    names = {"created_after": "created_at >= ?", "created_before": "created_at < ?"}
    parts = ["account_id = ?", *(names.get(name, f"{name} = ?") for name in asked)]
    values = [clock.parse(value) if name in names else value for name, value in asked.items()]
    found = rows(
        f"SELECT id FROM event NOT INDEXED WHERE {' AND '.join(parts)} ORDER BY created_at DESC, id DESC",
        [home.account_id, *values],
    )
    return [row[0] for row in found]


def walked(home: Home, asked: dict[str, Any], limit: int) -> list[int]:
    """Return the ids of all pages one after the other, with the total checked on each."""
    found: list[int] = []
    for number in itertools.count(1):
        page = log.list_events(home.account_id, EventQuery(page=number, limit=limit, **asked))
        if not page.rows:
            assert page.total == len(found)
            return found
        found += [row.id for row in page.rows]
    raise AssertionError("no end")


def combinations(home: Home) -> list[dict[str, Any]]:
    """Return every combination of filters, one value each."""
    contact = rows("SELECT min(id) FROM contact")[0][0]
    every = [
        ("event", "email_sent"), ("contact_id", contact), ("resource_uid", "product:1"), ("resource_name", "Spring"),
        ("test", True), ("test", False), ("created_after", "2023-11-14T22:30:00Z"),
        ("created_before", "2023-11-14T22:50:00Z"),
    ]  # fmt: skip
    return [dict(chosen) for size in range(len(every)) for chosen in itertools.combinations(every, size)]


def test_every_filter_with_every_other(crowded: Home) -> None:
    """Each combination finds exactly what fits, in order, from the front and from the back."""
    for asked in combinations(crowded):
        assert walked(crowded, asked, 20) == plain(crowded, asked), asked


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_of_any_size(limit: int, crowded: Home) -> None:
    """Wherever pages are cut, none is missing and none comes twice, also among events of one moment."""
    for asked in ({}, {"event": "order_paid"}, {"test": True}):
        assert walked(crowded, asked, limit) == plain(crowded, asked)


def test_the_total_follows_what_comes_and_goes(crowded: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept count is never an old one: not after new events, deleted ones, both at once, or a great many."""
    contact = rows("SELECT max(id) FROM contact")[0][0]
    asked: list[dict[str, Any]] = [{}, {"event": "order_paid"}, {"resource_name": "Spring", "test": False},
                                   {"contact_id": contact}]  # fmt: skip

    def check() -> None:
        for one in asked:
            assert log.list_events(crowded.account_id, EventQuery(limit=1, **one)).total == len(plain(crowded, one)), (
                one
            )

    check()
    transactions.write(write, crowded, 50, 6)
    check()
    transactions.write(run, "DELETE FROM event WHERE id IN (SELECT id FROM event ORDER BY id LIMIT 30)")
    check()
    transactions.write(run, "DELETE FROM event WHERE id = (SELECT max(id) FROM event)")
    transactions.write(write, crowded, 1, 7)
    check()
    transactions.write(run, "UPDATE event SET contact_id = NULL WHERE contact_id = ? AND id % 2", (contact,))
    check()
    monkeypatch.setattr(listing, "_MAX_NEW_EVENTS", 10)
    transactions.write(write, crowded, 40, 8)
    check()
    transactions.write(run, "DELETE FROM event")
    check()


def test_names_are_counted_since_a_moment(crowded: Home) -> None:
    """Each name that happened since then with how often; none that happened only before, none of other accounts."""
    transactions.write(run, "UPDATE event SET created_at = 1 WHERE event = 'email_opened'")
    since = FIRST + 30 * STEP
    plainly = rows("SELECT event, count(*) FROM event NOT INDEXED WHERE created_at >= ? GROUP BY event", (since,))
    assert log.count_by_name(crowded.account_id, since) == dict(plainly) and len(plainly) == 2
    assert log.count_by_name(crowded.account_id + 1, since) == {}


def test_another_accounts_contact_has_no_events(crowded: Home) -> None:
    """The id of somebody else's contact behaves as if it never existed."""
    from appliance.accounts import accounts

    contact = rows("SELECT contact_id FROM event WHERE contact_id NOT NULL")[0][0]
    other = transactions.write(lambda: accounts.create("Other").id)
    page = log.list_events(other, EventQuery(contact_id=contact))
    assert (page.total, page.rows) == (0, [])


def test_a_page_is_found_without_reading_events(crowded: Home) -> None:
    """Whatever is asked by one filter is answered from its index alone, already in order."""
    for asked in (one for one in combinations(crowded) if len(one) <= 1 and "contact_id" not in one):
        found = listing.build_query(log.read_filters(crowded.account_id, EventQuery(**asked)))
        plan = rows(
            f"EXPLAIN QUERY PLAN SELECT id FROM {found.source} WHERE {found.condition} "
            "ORDER BY created_at DESC, id DESC LIMIT 50",
            found.parameters,
        )
        (step,) = [row[3] for row in plan]
        assert "SEARCH event USING COVERING INDEX" in step, (asked, step)


def test_a_wrong_moment_is_refused(home: Home) -> None:
    """Both times are looked at, and each fault stands under its name."""
    with pytest.raises(Invalid) as told:
        log.list_events(home.account_id, EventQuery(created_after="soon", created_before="2026-13-01"))
    assert set(told.value.fields) == {"created_after", "created_before"}
