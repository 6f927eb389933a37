"""The SQL of filters against the reference evaluator, with random filters and contacts."""

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
from tests.domain.filters_people import ZONE, insert_contacts
from tests.domain.filters_random import filters
from tests.domain.filters_reference import matches, texts
from tests.domain.home import Home


@pytest.fixture(scope="module")
def random_contacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, list[dict[str, Any]]]]:
    """Yield an installation in New York with 60 random contacts in three lists, and the contacts as dicts."""
    home = Home(tmp_path_factory.mktemp("crowd"))
    for name in "abc":
        home.list_of(name=name)
    transactions.write(run, "UPDATE account SET time_zone = ?", (ZONE,))
    yield home, insert_contacts(home)
    home.close()


@given(conditions=st.lists(filters, max_size=4))
def test_the_sql_matches_the_reference_evaluator(
    random_contacts: tuple[Home, list[dict[str, Any]]], conditions: list[Any]
) -> None:
    """Selecting, counting, sampling and explaining random filters agree with the reference evaluator."""
    home, contacts = random_contacts
    scope = members.build_scope(home.account_id, writing=True)
    nodes = members.parse_filters(home.account_id, conditions, writing=True)
    expected = [c["id"] for c in contacts if all(matches(c, condition, scope.now) for condition in conditions)]
    chosen = members.select_members(home.account_id, nodes, scope)
    assert [row[0] for row in rows(f"SELECT c.id {chosen.sql} ORDER BY c.id", chosen.parameters)] == expected
    assert members.count_members(home.account_id, nodes, scope) == len(expected)
    counted, sample = members.count_and_fetch_some(home.account_id, nodes, scope)
    assert counted == len(expected) and set(sample) <= set(expected) and len(sample) == min(5, counted)
    shares = members.count_each(home.account_id, nodes, scope)
    assert [share.count for share in shares] == [
        sum(matches(c, condition, scope.now) for c in contacts) for condition in conditions
    ]
    assert [c for c in (1, 17, 42) if explain.is_member(nodes, scope, c)] == [c for c in (1, 17, 42) if c in expected]
    assert explain.describe_filters(home.account_id, nodes, scope)


@given(conditions=st.lists(filters, max_size=4), rng=st.randoms(use_true_random=False))
def test_compile_hints_do_not_change_the_result(
    random_contacts: tuple[Home, list[dict[str, Any]]], conditions: list[Any], rng: random.Random
) -> None:
    """Any order of conditions and any precomputed event sets select the same contacts."""
    home, contacts = random_contacts
    scope = members.build_scope(home.account_id, writing=True)
    nodes = members.parse_filters(home.account_id, conditions, writing=True)
    hints = compiler.CompileHints(lambda node: rng.random(), tuple(query_plan.iter_event_sets(nodes)))
    sql, parameters = compiler.compile_filters(nodes, scope, hints=hints)
    selected = rows(f"SELECT c.id FROM contact c WHERE {sql} ORDER BY c.id", parameters)
    assert [row[0] for row in selected] == [
        c["id"] for c in contacts if all(matches(c, condition, scope.now) for condition in conditions)
    ]
    for leaf in query_plan.iter_event_sets(nodes):
        event_contacts = compiler.compile_event_contacts(leaf, scope, "s")
        assert {row[0] for row in rows(event_contacts.sql, event_contacts.parameters)} == {
            c["id"] for c in contacts if matches(c, {**leaf.raw, "predicate": "performed"}, scope.now)
        }


@given(conditions=st.lists(filters, min_size=1, max_size=3), number=st.integers(1, 60))
def test_explanations_agree_with_the_reference(
    random_contacts: tuple[Home, list[dict[str, Any]]], conditions: list[Any], number: int
) -> None:
    """An explanation agrees with membership, and each of its rows with its filter."""
    home, contacts = random_contacts

    def explain_new_segment() -> Any:
        segment = store.create(home.account_id, SegmentCreate(name="Asked", filters=conditions))
        explanation = explain.explain(home.account_id, segment.id, number)
        store.delete(home.account_id, segment.id)
        return explanation

    explanation, now = transactions.write(explain_new_segment), clock.now_ms()
    contact = contacts[number - 1]
    assert explanation.matches == all(row.matches for row in explanation.rows)
    assert [row.matches for row in explanation.rows] == [matches(contact, condition, now) for condition in conditions]
    for row in explanation.rows:
        assert len(row.rows) == (len(row.value) if row.name == "group" else 0) and row.sentence


@pytest.mark.parametrize("address", ["p0.7@bücher.example", "P0.7@xn--bcher-kva.example", "P0.7@BÜCHER.Example"])
def test_addresses_compare_by_their_normal_form(
    random_contacts: tuple[Home, list[dict[str, Any]]], address: str
) -> None:
    """An address finds its contact in any spelling of domain and case."""
    home, contacts = random_contacts
    owners = [contact["id"] for contact in contacts if "P0.7@Bücher.example" in texts(contact, "email")]
    nodes = members.parse_filters(home.account_id, [{"name": "email", "predicate": "eq", "value": address}])
    assert members.fetch_some(home.account_id, nodes, members.build_scope(home.account_id)) == owners
