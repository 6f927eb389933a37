"""Filters: the compiled SQL against a slow evaluator written apart from it, on random filters and people."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audience.filters import compiler
from appliance.audience.segments import explain, members, query_plan, store
from appliance.audience.segments.store import SegmentCreate
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.filters_people import ZONE, fill
from tests.domain.filters_random import filters
from tests.domain.filters_reference import holds, texts
from tests.domain.home import Home


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, list[dict[str, Any]]]]:
    """Sixty odd people in three lists, in New York."""
    home = Home(tmp_path_factory.mktemp("crowd"))
    for name in "abc":
        home.list_of(name=name)
    transactions.write(run, "UPDATE account SET time_zone = ?", (ZONE,))
    yield home, fill(home)
    home.close()


@given(asked=st.lists(filters, max_size=4))
def test_the_sql_says_what_the_rules_say(crowd: tuple[Home, list[dict[str, Any]]], asked: list[Any]) -> None:
    """Random filters let through exactly the people whom the slow evaluator lets through, in every form of asking."""
    home, everybody = crowd
    here = members.build_scope(home.account_id, writing=True)
    nodes = members.parse_filters(home.account_id, asked, writing=True)
    expected = [one["id"] for one in everybody if all(holds(one, part, here.now) for part in asked)]
    chosen = members.select_members(home.account_id, nodes, here)
    assert [row[0] for row in rows(f"SELECT c.id {chosen.sql} ORDER BY c.id", chosen.parameters)] == expected
    assert members.count_members(home.account_id, nodes, here) == len(expected)
    counted, some = members.count_and_fetch_some(home.account_id, nodes, here)
    assert counted == len(expected) and set(some) <= set(expected) and len(some) == min(5, counted)
    shares = members.count_each(home.account_id, nodes, here)
    assert [share.count for share in shares] == [sum(holds(one, part, here.now) for one in everybody) for part in asked]
    assert [one for one in (1, 17, 42) if explain.is_member(nodes, here, one)] == [
        one for one in (1, 17, 42) if one in expected
    ]
    assert explain.describe_filters(home.account_id, nodes, here)


@given(asked=st.lists(filters, max_size=4), turn=st.randoms(use_true_random=False))
def test_the_way_changes_nobody(
    crowd: tuple[Home, list[dict[str, Any]]], asked: list[Any], turn: random.Random
) -> None:
    """In whatever order conditions are asked, and with every set of events made first, the same people are meant."""
    home, everybody = crowd
    here = members.build_scope(home.account_id, writing=True)
    nodes = members.parse_filters(home.account_id, asked, writing=True)
    way = compiler.CompileHints(lambda node: turn.random(), tuple(query_plan.iter_event_sets(nodes)))
    sql, parameters = compiler.compile_filters(nodes, here, hints=way)
    found = rows(f"SELECT c.id FROM contact c WHERE {sql} ORDER BY c.id", parameters)
    assert [row[0] for row in found] == [
        one["id"] for one in everybody if all(holds(one, part, here.now) for part in asked)
    ]
    for leaf in query_plan.iter_event_sets(nodes):
        of = compiler.compile_event_contacts(leaf, here, "s")
        assert {row[0] for row in rows(of.sql, of.parameters)} == {
            one["id"] for one in everybody if holds(one, {**leaf.raw, "predicate": "performed"}, here.now)
        }


@given(asked=st.lists(filters, min_size=1, max_size=3), number=st.integers(1, 60))
def test_explanations_agree(crowd: tuple[Home, list[dict[str, Any]]], asked: list[Any], number: int) -> None:
    """An explanation agrees with membership, and each of its rows with the filter it explains."""
    home, everybody = crowd

    def told() -> Any:
        made = store.create(home.account_id, SegmentCreate(name="Asked", filters=asked))
        found = explain.explain(home.account_id, made.id, number)
        store.delete(home.account_id, made.id)
        return found

    found, now = transactions.write(told), clock.now_ms()
    one = everybody[number - 1]
    assert found.matches == all(row.matches for row in found.rows)
    assert [row.matches for row in found.rows] == [holds(one, part, now) for part in asked]
    for row in found.rows:
        assert len(row.rows) == (len(row.value) if row.name == "group" else 0) and row.sentence


@pytest.mark.parametrize("address", ["p0.7@bücher.example", "P0.7@xn--bcher-kva.example", "P0.7@BÜCHER.Example"])
def test_addresses_compare_by_their_normal_form(crowd: tuple[Home, list[dict[str, Any]]], address: str) -> None:
    """An address finds its owner however its domain and case are written."""
    home, everybody = crowd
    owners = [one["id"] for one in everybody if "P0.7@Bücher.example" in texts(one, "email")]
    nodes = members.parse_filters(home.account_id, [{"name": "email", "predicate": "eq", "value": address}])
    assert members.fetch_some(home.account_id, nodes, members.build_scope(home.account_id)) == owners
