"""How questions about many people are asked: from an index where something is rare, in order where it is not."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.audience import lists
from appliance.audience.lists import ListCreate
from appliance.audience.segments import explain, query_plan, store
from appliance.audience.segments import members as people
from appliance.audience.segments.store import SegmentCreate, SegmentPatch
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.database import fold_case, rows, run, scalar
from tests.domain.home import Home

MANY = 6_000
RARE = [{"name": "data.number", "predicate": "eq", "value": "N77"}]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Six thousand people, each with a number of their own; three paid."""
    home = Home(tmp_path_factory.mktemp("town"))
    transactions.write(
        run,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :many) "
        "INSERT INTO contact (id, account_id, uuid, first_name, data, tracking, email_sent_count, email_open_count, "
        "email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
        "SELECT i, :account, 'u' || i, 'Ann', json_object('number', 'n' || i, 'half', i % 2), 'full', 0, 0, 0, 0, 0, "
        ":now, :now FROM n",
        {"many": MANY, "account": home.account_id, "now": clock.now_ms() - 60_000},
    )
    transactions.write(
        run,
        "INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, "
        "updated_at) SELECT account_id, id, 'order_paid', '{}', 0, 0, 0, 0, :now, :now FROM contact "
        "WHERE id IN (5, 50, 500)",
        {"now": clock.now_ms()},
    )
    yield home
    home.close()


def asked(home: Home, filters: list[dict[str, Any]]) -> tuple[int, str]:
    """Return how many people filters let through, and by which way SQLite goes."""
    here = people.build_scope(home.account_id)
    nodes = people.parse_filters(home.account_id, filters)
    chosen = people.select_members(home.account_id, nodes, here)
    plan = rows(f"EXPLAIN QUERY PLAN SELECT count(*) {chosen.sql}", chosen.parameters)
    return people.count_members(home.account_id, nodes, here), " | ".join(row[3] for row in plan)


def test_a_path_gets_its_index_and_loses_it(town: Home) -> None:
    """A path that a segment compares gets an index, questions begin with it, and it goes with the last segment."""
    made = transactions.write(store.create, town.account_id, SegmentCreate(name="One", filters=RARE))
    number, way = asked(town, RARE)
    assert number == 1 and way.startswith("SCAN c")
    query_plan.maintain_indexes()
    number, way = asked(town, RARE)
    assert number == 1 and "SEARCH k USING PRIMARY KEY" in way and "SCAN" not in way
    transactions.write(store.delete, town.account_id, made.id)
    query_plan.maintain_indexes()
    assert "contact_data_" not in str(rows("SELECT name FROM sqlite_schema"))


def test_an_index_follows_every_change(town: Home) -> None:
    """Whatever is written once an index is there, its rows are those that the data of everybody has."""
    made = transactions.write(store.create, town.account_id, SegmentCreate(name="One", filters=RARE))
    query_plan.maintain_indexes()
    name = query_plan.find_index("number")
    assert name
    copied = "'full', 0, 0, 0, 0, 0, 0, 0 FROM contact WHERE id = 1"
    for sql in (
        "UPDATE contact SET data = json_set(data, '$.number', 'other') WHERE id = 10",
        "UPDATE contact SET data = json_set(data, '$.number', 'N11') WHERE id = 11",
        "UPDATE contact SET data = json_set(data, '$.number', 12) WHERE id = 12",
        "UPDATE contact SET data = json_remove(data, '$.number') WHERE id = 13",
        "UPDATE contact SET data = json_set(data, '$.number', '12') WHERE id = 12",
        "INSERT INTO contact (id, account_id, uuid, data, tracking, email_sent_count, email_open_count, "
        "email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
        f"SELECT 7001, account_id, 'new', '{{\"number\": \"new\"}}', {copied}",
        "INSERT INTO contact (id, account_id, uuid, data, tracking, email_sent_count, email_open_count, "
        "email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
        f"SELECT 7002, account_id, 'gone', '{{\"number\": \"gone\"}}', {copied}",
        "DELETE FROM contact WHERE id = 7002",
    ):
        transactions.write(run, sql)
        assert rows(f"SELECT value, contact_id FROM {name} ORDER BY contact_id") == rows(
            "SELECT data ->> 'number', id FROM contact WHERE json_type(data, '$.number') = 'text' ORDER BY id"
        )
    assert [asked(town, [{**RARE[0], "value": value}])[0] for value in ("n11", "new", "gone", "n13")] == [1, 1, 0, 0]
    transactions.write(run, "DELETE FROM contact WHERE id = 7001")
    transactions.write(store.delete, town.account_id, made.id)
    query_plan.maintain_indexes()
    assert query_plan.find_index("number") is None


def test_indexes_are_few(town: Home) -> None:
    """Ever more paths do not make ever more indexes."""
    filters = [{"name": f"data.k{n}", "predicate": "eq", "value": "x"} for n in range(20)]
    made = transactions.write(store.create, town.account_id, SegmentCreate(name="Many", filters=filters))
    query_plan.maintain_indexes()
    assert (
        scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE 'contact_data_%'")
        == query_plan.MAX_INDEXES
    )
    transactions.write(store.delete, town.account_id, made.id)
    query_plan.maintain_indexes()


def test_what_is_rare_is_asked_first(town: Home) -> None:
    """Three among thousands are found by their events; half of all are found by reading all in order."""
    rare = {"name": "event", "predicate": "performed", "value": {"event": "order_paid", "within_days": 3}}
    half = {"name": "data.half", "predicate": "eq", "value": 1}
    number, way = asked(town, [rare, half])
    assert number == 1 and way.startswith("SEARCH c USING INTEGER PRIMARY KEY")
    number, way = asked(town, [half])
    assert number == MANY // 2 and way == "SCAN c"
    assert asked(town, [{**rare, "predicate": "not_performed"}])[0] == MANY - 3


def test_a_mirror_follows_in_chunks(town: Home) -> None:
    """A mirror of thousands has exactly its segment's people, after each change of the segment, and no refused one."""
    half = [{"name": "data.half", "predicate": "eq", "value": 1}]
    segment = transactions.write(store.create, town.account_id, SegmentCreate(name="Half", filters=half))
    made = transactions.write(lists.create, town.account_id, ListCreate(name="Mirror", segment_id=segment.id))
    transactions.write(run, "INSERT INTO list_opt_out VALUES (?, 3, 0)", (made.id,))
    lists.refresh_mirror(made.id)
    found = lists.get(town.account_id, made.id)
    assert (found.contacts_count, found.stale) == (MANY // 2 - 1, False)
    transactions.write(store.update, town.account_id, segment.id, SegmentPatch(filters=[{**half[0], "value": 0}]))
    assert lists.get(town.account_id, made.id).stale
    lists.refresh_mirror(made.id)
    members = rows("SELECT contact_id FROM membership WHERE contact_list_id = ?", (made.id,))
    assert [row[0] for row in members] == list(range(2, MANY + 1, 2))
    assert lists.get(town.account_id, made.id).contacts_count == len(members)


def test_shares_of_many_are_estimates(town: Home) -> None:
    """Above the limit a share is told from a sample, and says so."""
    here = people.build_scope(town.account_id)
    filters = [
        {"name": "first_name", "predicate": "eq", "value": "ANN"},
        {"name": "data.half", "predicate": "eq", "value": 1},
        {"name": "first_name", "predicate": "eq", "value": "Bob"},
    ]
    nodes = people.parse_filters(town.account_id, filters)
    exact = people.count_each(town.account_id, nodes, here)
    assert [(share.count, share.estimated) for share in exact] == [(MANY, False), (MANY // 2, False), (0, False)]
    told = people.count_each(town.account_id, nodes, here, exact_below=MANY - 1, sampled=600)
    assert [share.estimated for share in told] == [True] * 3
    # Six hundred of six thousand, half of whom alternate
    assert (told[0].count, told[2].count) == (MANY, 0) and abs(told[1].count - MANY // 2) < MANY // 10
    assert [share.estimated for share in people.count_each(town.account_id, nodes, here, exact_below=MANY)] == [
        False
    ] * 3


def test_a_look_counts_and_shows(town: Home) -> None:
    """The number and some of the people come together, whichever way the question is asked."""
    here = people.build_scope(town.account_id)
    half = {"name": "data.half", "predicate": "eq", "value": 1}
    rare = {"name": "event", "predicate": "performed", "value": {"event": "order_paid"}}
    for filters, number in (([half], MANY // 2), ([rare], 3), ([half, rare], 1), ([], MANY)):
        counted, some = people.count_and_fetch_some(
            town.account_id, people.parse_filters(town.account_id, filters), here
        )
        assert counted == number and len(set(some)) == min(5, number)


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ([], "Everybody"),
        ([{"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "within_days": 30}}],
         "People who clicked at least once in the last 30 days"),
        ([{"name": "tag", "predicate": "not_cont", "value": "vip"},
          {"name": "contact_verified", "predicate": "true", "value": False}],
         "People with no tag “vip” and who are not verified"),
        ([{"name": "created_at", "predicate": "between", "value": ["2026-01-05", "2026-01-31"]}],
         "People whose date added is between 5 January 2026 and 31 January 2026"),
    ],
)  # fmt: skip
def test_filters_in_words(town: Home, filters: list[dict[str, Any]], words: str) -> None:
    """A segment says in a sentence whom it means."""
    here = people.build_scope(town.account_id)
    assert explain.describe_filters(town.account_id, people.parse_filters(town.account_id, filters), here) == words


def test_case_is_folded_letter_by_letter() -> None:
    """Case does not count, and no other letter becomes one of ASCII, so that SQLite's own comparison is exact."""
    assert (
        fold_case("JÜRGEN") == "jürgen"
        and fold_case("ΟΔΟΣ") == fold_case("οδος")
        and fold_case("STRAẞE") == fold_case("straße")
    )
    assert all(not fold_case(chr(n)).isascii() for n in range(128, 0x3000))
