"""Filters in forms: showing filters and posting the form back does not change their meaning."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audience.filters.compiler import ConditionGroup, EventCondition, Node, is_judged
from appliance.audience.segments import members
from appliance.core.errors import Invalid
from tests.domain.filters_people import insert_contacts
from tests.domain.filters_random import filters
from tests.domain.home import Home
from tests.kit.html_forms import get_form_fields
from tests.kit.sampling import examples
from ui import view
from ui.forms.filter_rows import FilterRows
from ui.widgets import filter_builder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Yield an installation with random contacts in three lists."""
    installation = Home(tmp_path_factory.mktemp("crowd"))
    for name in "abc":
        installation.list_of(name=name)
    insert_contacts(installation)
    yield installation
    installation.close()


def normalize_nodes(nodes: list[Node]) -> list[Any]:
    """Return parsed filters in a form that is independent of how they were written."""
    normalized: list[Any] = []
    for node in nodes:
        if isinstance(node, ConditionGroup):
            normalized.append((node.mode, normalize_nodes(node.parts)))
        elif isinstance(node, EventCondition):
            where = normalize_nodes(node.query.nodes or [])
            # Events without a verdict ignore `include_machine`, and forms do not offer it for them
            machine = node.query.include_machine and is_judged(node.query.event)
            query = node.query._replace(raw_filters=None, nodes=where, include_machine=machine)
            normalized.append((node.is_negative, query))
        else:
            # Order and repetition of values do not matter
            value = {(type(item), item) for item in node.value} if node.predicate.key == "in" else node.value
            normalized.append((node.field.name, node.predicate.key, node.is_negative, value))
    return normalized


def render_rows(home: Home, rows: FilterRows, place: str = "segment") -> str:
    """Return the HTML of filter rows."""
    return (
        view.template_environment()
        .get_template("segments/_rows.html")
        .render(
            filter_view=filter_builder.build_view(home.account_id, rows, place, counted=False),
            sample=None,
            checked=None,
        )
    )


@settings(max_examples=examples(10, full=60))
@given(raw_filters=st.lists(filters, max_size=4))
def test_a_form_round_trip_keeps_filters(home: Home, raw_filters: list[Any]) -> None:
    """Random filters that are shown and posted back unchanged have the same meaning, also a second time."""
    expected = normalize_nodes(members.parse_filters(home.account_id, raw_filters))
    rows = FilterRows.from_filters(raw_filters)
    for _ in range(2):
        rows = FilterRows.from_form(get_form_fields(render_rows(home, rows)))
        assert normalize_nodes(members.parse_filters(home.account_id, rows.to_filters(), writing=True)) == expected
        assert rows.to_filters() == rows.complete_filters()


NAMES = st.sampled_from([
    "", "contact_first_name", "first_name", "contact_data.*", "contact_data.city", "event:*", "event:email_opened",
    "event.total", "event.*", "event", "group", "contact_list", "contact_segment", "contact_created_at",
    "email_open_count", "contact_tag", "contact_verified", "nonsense", "contact_data.", "contact_data.a'b", "event:",
])  # fmt: skip
WORDS = st.sampled_from(
    ["", "eq", "in", "between", "within_days", "present", "performed", "any", "none", "gteq", "cont", "true", "\ud800"]
)
VALUES = st.sampled_from(
    ["", "Ann", "30", "-1", "1e999", "nan", "2026-01-01", "x" * 2000, "a\r\nb", "9" * 30, "null", "[1]", "true", "²"]
)


@st.composite
def posted_fields(draw: st.DrawFn) -> dict[str, list[str]]:
    """Random form fields: cyclic rows, unknown names, values of any kind."""
    keys = st.sampled_from(["a", "b", "c", "d", "<", ""])
    fields = {"f.row": draw(st.lists(keys, max_size=6))}
    for key in "abcd":
        fields[f"f.{key}.row"] = draw(st.lists(keys, max_size=3))
        fields[f"f.{key}.name"] = [draw(NAMES)]
        fields[f"f.{key}.predicate"] = [draw(WORDS)]
        fields[f"f.{key}.value"] = draw(st.lists(VALUES, max_size=3))
        for name in draw(st.lists(st.sampled_from(["as", "was", "kind", "often", "times", "times_to", "when", "days",
                                                   "since", "path"]), max_size=5)):  # fmt: skip
            fields[f"f.{key}.{name}"] = [
                draw(st.one_of(VALUES, st.sampled_from(["exact", "number", "ids", "between"])))
            ]
    verbs = st.sampled_from(["add", "remove", "up", "down", "copy", "pick", "shuffle", "x"])
    fields["f.act"] = [f"{draw(verbs)}:{draw(keys)}:{draw(VALUES)}"]
    return fields


@given(fields=posted_fields())
def test_any_posted_form_is_rendered_and_validated(home: Home, fields: dict[str, list[str]]) -> None:
    """Any posted fields are rendered again, and are valid filters or show errors at rows."""
    rows = FilterRows.from_form(fields)
    rows.apply_action(fields)
    for place in ("segment", "split"):
        assert 'id="f-rules"' in render_rows(home, rows, place)
    try:
        members.parse_filters(home.account_id, rows.to_filters(), writing=True)
    except Invalid as error:
        rows.add_errors(error)
        assert rows.error or any(row.error for row in rows)
