"""Filters over many contacts: indexes, query plans, mirrors, estimates and descriptions."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.audience import lists, mirrors
from appliance.audience.lists import ListCreate
from appliance.audience.segments import explain, query_plan, store
from appliance.audience.segments import members as segment_members
from appliance.audience.segments.store import SegmentCreate, SegmentPatch
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.database import fold_case, rows, run, scalar
from tests.domain.home import Home

CONTACT_COUNT = 6_000
RARE = [{"name": "data.number", "predicate": "eq", "value": "N77"}]


@pytest.fixture(scope="module")
def many_contacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Yield an installation with 6,000 contacts, each with a unique number, and three who paid."""
    home = Home(tmp_path_factory.mktemp("town"))
    transactions.write(
        run,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :many) "
        "INSERT INTO contact (id, account_id, uuid, first_name, data, tracking, email_sent_count, email_open_count, "
        "email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
        "SELECT i, :account, 'u' || i, 'Ann', json_object('number', 'n' || i, 'half', i % 2), 'full', 0, 0, 0, 0, 0, "
        ":now, :now FROM n",
        {"many": CONTACT_COUNT, "account": home.account_id, "now": clock.now_ms() - 60_000},
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


def count_and_plan(home: Home, filters: list[dict[str, Any]]) -> tuple[int, str]:
    """Return the number of matching contacts and SQLite's query plan."""
    scope = segment_members.build_scope(home.account_id)
    nodes = segment_members.parse_filters(home.account_id, filters)
    selection = segment_members.select_members(home.account_id, nodes, scope)
    plan = rows(f"EXPLAIN QUERY PLAN SELECT count(*) {selection.sql}", selection.parameters)
    return segment_members.count_members(home.account_id, nodes, scope), " | ".join(row[3] for row in plan)


def test_a_data_path_of_a_segment_is_indexed(many_contacts: Home) -> None:
    """A path in a segment gets an index that queries use; it is dropped with the last segment."""
    segment = transactions.write(store.create, many_contacts.account_id, SegmentCreate(name="One", filters=RARE))
    number, plan = count_and_plan(many_contacts, RARE)
    assert number == 1 and plan.startswith("SCAN c")
    query_plan.maintain_indexes()
    number, plan = count_and_plan(many_contacts, RARE)
    assert number == 1 and "SEARCH k USING PRIMARY KEY" in plan and "SCAN" not in plan
    transactions.write(store.delete, many_contacts.account_id, segment.id)
    query_plan.maintain_indexes()
    assert "contact_data_" not in str(rows("SELECT name FROM sqlite_schema"))


def test_an_index_follows_every_write(many_contacts: Home) -> None:
    """After each insert, update and delete the index has the rows that the contacts' data says."""
    segment = transactions.write(store.create, many_contacts.account_id, SegmentCreate(name="One", filters=RARE))
    query_plan.maintain_indexes()
    name = query_plan.find_index("number")
    assert name
    # Data that is damaged, and then repaired, is not an error
    transactions.write(run, "UPDATE contact SET data = '[1' WHERE id = 14")
    transactions.write(run, 'UPDATE contact SET data = \'{"number": "mended", "half": 0}\' WHERE id = 14')
    values_of_first = "'full', 0, 0, 0, 0, 0, 0, 0 FROM contact WHERE id = 1"
    for sql in (
        "UPDATE contact SET data = json_set(data, '$.number', 'other') WHERE id = 10",
        "UPDATE contact SET data = json_set(data, '$.number', 'N11') WHERE id = 11",
        "UPDATE contact SET data = json_set(data, '$.number', 12) WHERE id = 12",
        "UPDATE contact SET data = json_remove(data, '$.number') WHERE id = 13",
        "UPDATE contact SET data = json_set(data, '$.number', '12') WHERE id = 12",
        "INSERT INTO contact (id, account_id, uuid, data, tracking, email_sent_count, email_open_count, "
        "email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
        f"SELECT 7001, account_id, 'new', '{{\"number\": \"new\"}}', {values_of_first}",
        "INSERT INTO contact (id, account_id, uuid, data, tracking, email_sent_count, email_open_count, "
        "email_click_count, email_soft_bounce_count, sms_sent_count, created_at, updated_at) "
        f"SELECT 7002, account_id, 'gone', '{{\"number\": \"gone\"}}', {values_of_first}",
        "DELETE FROM contact WHERE id = 7002",
    ):
        transactions.write(run, sql)
        assert rows(f"SELECT value, contact_id FROM {name} ORDER BY contact_id") == rows(
            "SELECT data ->> 'number', id FROM contact WHERE json_type(data, '$.number') = 'text' ORDER BY id"
        )
    assert [
        count_and_plan(many_contacts, [{**RARE[0], "value": value}])[0] for value in ("n11", "new", "gone", "n13")
    ] == [1, 1, 0, 0]
    transactions.write(run, "DELETE FROM contact WHERE id = 7001")
    transactions.write(store.delete, many_contacts.account_id, segment.id)
    query_plan.maintain_indexes()
    assert query_plan.find_index("number") is None


def test_the_number_of_indexes_is_limited(many_contacts: Home) -> None:
    """A segment with 20 paths creates only MAX_INDEXES indexes."""
    filters = [{"name": f"data.k{n}", "predicate": "eq", "value": "x"} for n in range(20)]
    segment = transactions.write(store.create, many_contacts.account_id, SegmentCreate(name="Many", filters=filters))
    query_plan.maintain_indexes()
    assert (
        scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE 'contact_data_%'")
        == query_plan.MAX_INDEXES
    )
    transactions.write(store.delete, many_contacts.account_id, segment.id)
    query_plan.maintain_indexes()


def test_rare_conditions_are_evaluated_first(many_contacts: Home) -> None:
    """Three contacts of thousands are found by their events; half of all by a scan."""
    rare = {"name": "event", "predicate": "performed", "value": {"event": "order_paid", "within_days": 3}}
    half = {"name": "data.half", "predicate": "eq", "value": 1}
    number, plan = count_and_plan(many_contacts, [rare, half])
    assert number == 1 and plan.startswith("SEARCH c USING INTEGER PRIMARY KEY")
    number, plan = count_and_plan(many_contacts, [half])
    assert number == CONTACT_COUNT // 2 and plan == "SCAN c"
    assert count_and_plan(many_contacts, [{**rare, "predicate": "not_performed"}])[0] == CONTACT_COUNT - 3


def test_a_mirror_list_follows_its_segment(many_contacts: Home) -> None:
    """A mirror of thousands has exactly the segment's members after each change, without opted-out contacts."""
    half = [{"name": "data.half", "predicate": "eq", "value": 1}]
    segment = transactions.write(store.create, many_contacts.account_id, SegmentCreate(name="Half", filters=half))
    mirror = transactions.write(
        lists.create, many_contacts.account_id, ListCreate(name="Mirror", segment_id=segment.id)
    )
    transactions.write(run, "INSERT INTO list_opt_out VALUES (?, 3, 0)", (mirror.id,))
    mirrors.refresh_mirror(mirror.id)
    mirror_row = lists.get(many_contacts.account_id, mirror.id)
    assert (mirror_row.contacts_count, mirror_row.stale) == (CONTACT_COUNT // 2 - 1, False)
    transactions.write(
        store.update, many_contacts.account_id, segment.id, SegmentPatch(filters=[{**half[0], "value": 0}])
    )
    assert lists.get(many_contacts.account_id, mirror.id).stale
    mirrors.refresh_mirror(mirror.id)
    mirror_members = rows("SELECT contact_id FROM membership WHERE contact_list_id = ?", (mirror.id,))
    assert [row[0] for row in mirror_members] == list(range(2, CONTACT_COUNT + 1, 2))
    assert lists.get(many_contacts.account_id, mirror.id).contacts_count == len(mirror_members)


def test_counts_of_each_filter_are_estimated_above_a_limit(many_contacts: Home) -> None:
    """Above the limit each count is an estimate from a sample and marked as estimated."""
    scope = segment_members.build_scope(many_contacts.account_id)
    filters = [
        {"name": "first_name", "predicate": "eq", "value": "ANN"},
        {"name": "data.half", "predicate": "eq", "value": 1},
        {"name": "first_name", "predicate": "eq", "value": "Bob"},
    ]
    nodes = segment_members.parse_filters(many_contacts.account_id, filters)
    exact = segment_members.count_each(many_contacts.account_id, nodes, scope)
    assert [(share.count, share.estimated) for share in exact] == [
        (CONTACT_COUNT, False),
        (CONTACT_COUNT // 2, False),
        (0, False),
    ]
    estimates = segment_members.count_each(
        many_contacts.account_id, nodes, scope, exact_below=CONTACT_COUNT - 1, sampled=600
    )
    assert [share.estimated for share in estimates] == [True] * 3
    # A sample of 600 of 6,000, of whom every second one matches
    assert (estimates[0].count, estimates[2].count) == (CONTACT_COUNT, 0) and abs(
        estimates[1].count - CONTACT_COUNT // 2
    ) < CONTACT_COUNT // 10
    assert [
        share.estimated
        for share in segment_members.count_each(many_contacts.account_id, nodes, scope, exact_below=CONTACT_COUNT)
    ] == [False] * 3


def test_count_and_fetch_some(many_contacts: Home) -> None:
    """Number and sample are returned together, for every kind of query plan."""
    scope = segment_members.build_scope(many_contacts.account_id)
    half = {"name": "data.half", "predicate": "eq", "value": 1}
    rare = {"name": "event", "predicate": "performed", "value": {"event": "order_paid"}}
    for filters, number in (([half], CONTACT_COUNT // 2), ([rare], 3), ([half, rare], 1), ([], CONTACT_COUNT)):
        counted, sample = segment_members.count_and_fetch_some(
            many_contacts.account_id, segment_members.parse_filters(many_contacts.account_id, filters), scope
        )
        assert counted == number and len(set(sample)) == min(5, number)


@pytest.mark.parametrize(
    ("filters", "description"),
    [
        ([], "All contacts"),
        ([{"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "within_days": 30}}],
         "Clicked a link: at least once in the last 30 days"),
        ([{"name": "tag", "predicate": "not_cont", "value": "vip"},
          {"name": "contact_verified", "predicate": "true", "value": False}],
         "Tags do not include “vip” and address is confirmed: no"),
        ([{"name": "contact_data.VIP", "predicate": "eq", "value": 1},
          {"name": "contact_data.VIP", "predicate": "eq", "value": 2},
          {"name": "event", "predicate": "not_performed", "value": {
              "event": "order_placed", "within_days": 30,
              "where": [{"name": "event.total", "predicate": "gt", "value": 50}]}}],
         "VIP is 1, VIP is 2 and “order placed”: never in the last 30 days where Total is over 50"),
        ([{"name": "created_at", "predicate": "between", "value": ["2026-01-05", "2026-01-31"]}],
         "Date added is between 5 Jan 2026 and 31 Jan 2026"),
    ],
)  # fmt: skip
def test_describe_filters(many_contacts: Home, filters: list[dict[str, Any]], description: str) -> None:
    """A segment is described in one sentence."""
    scope = segment_members.build_scope(many_contacts.account_id)
    assert (
        explain.describe_filters(
            many_contacts.account_id, segment_members.parse_filters(many_contacts.account_id, filters), scope
        )
        == description
    )


def test_fold_case_never_yields_ascii() -> None:
    """Case is folded, and no letter beyond ASCII becomes an ASCII letter, so that SQLite compares exactly."""
    assert (
        fold_case("JÜRGEN") == "jürgen"
        and fold_case("ΟΔΟΣ") == fold_case("οδος")
        and fold_case("STRAẞE") == fold_case("straße")
    )
    assert all(not fold_case(chr(n)).isascii() for n in range(128, 0x3000))
