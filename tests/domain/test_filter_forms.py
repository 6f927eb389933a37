"""Filters in forms: what a page shows of them and a browser posts means what they meant."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audience.filters.parse import ConditionGroup, EventCondition, Node
from appliance.audience.segments import members
from appliance.core.errors import Invalid
from tests.domain.filters_people import fill
from tests.domain.filters_random import filters
from tests.domain.home import Home
from tests.kit.posting import posted
from ui import view
from ui.forms.filter_rows import FilterRows
from ui.widgets import filter_builder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """People in three lists."""
    made = Home(tmp_path_factory.mktemp("crowd"))
    for name in "abc":
        made.list_of(name=name)
    fill(made)
    yield made
    made.close()


def meaning(nodes: list[Node]) -> list[Any]:
    """Return what filters mean, without how they were written."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ConditionGroup):
            found.append((node.mode, meaning(node.parts)))
        elif isinstance(node, EventCondition):
            where = meaning(node.query.nodes or [])
            found.append((node.is_negative, node.query._replace(raw_filters=None, nodes=where)))
        else:
            # Of several values neither the order nor how often each is named matters
            value = {(type(one), one) for one in node.value} if node.predicate.key == "in" else node.value
            found.append((node.field.name, node.predicate.key, node.is_negative, value))
    return found


def shown(home: Home, rows: FilterRows, place: str = "segment") -> str:
    """Return the HTML of rows."""
    return (
        view.template_environment()
        .get_template("segments/_rows.html")
        .render(
            filter_view=filter_builder.build_view(home.account_id, rows, place, counted=False),
            sample=None,
            checked=None,
        )
    )


@given(asked=st.lists(filters, max_size=4))
def test_a_form_keeps_what_filters_mean(home: Home, asked: list[Any]) -> None:
    """Random filters, shown and posted back untouched, are the same question; a second time too."""
    wanted = meaning(members.parse_filters(home.account_id, asked))
    rows = FilterRows.from_filters(asked)
    for _ in range(2):
        rows = FilterRows.from_form(posted(shown(home, rows)))
        assert meaning(members.parse_filters(home.account_id, rows.to_filters(), writing=True)) == wanted
        assert rows.to_filters() == rows.complete_filters()


NAMES = st.sampled_from([
    "", "contact_first_name", "first_name", "contact_data.*", "contact_data.city", "event:*", "event:email_opened",
    "event.total", "event.*", "event", "group", "contact_list", "contact_segment", "contact_created_at",
    "email_open_count", "contact_tag", "contact_verified", "nonsense", "contact_data.", "contact_data.a'b", "event:",
])  # fmt: skip
WORDS = st.sampled_from(
    ["", "eq", "in", "between", "within_days", "present", "performed", "any", "none", "gteq", "cont", "true", "\ud800"]
)
TYPED = st.sampled_from(
    ["", "Ann", "30", "-1", "1e999", "nan", "2026-01-01", "x" * 2000, "a\r\nb", "9" * 30, "null", "[1]", "true", "²"]
)


@st.composite
def typed(draw: st.DrawFn) -> dict[str, list[str]]:
    """Fields as anybody could post them: rows inside themselves, unknown names, values of any sort."""
    keys = st.sampled_from(["a", "b", "c", "d", "<", ""])
    found = {"f.row": draw(st.lists(keys, max_size=6))}
    for key in "abcd":
        found[f"f.{key}.row"] = draw(st.lists(keys, max_size=3))
        found[f"f.{key}.name"] = [draw(NAMES)]
        found[f"f.{key}.predicate"] = [draw(WORDS)]
        found[f"f.{key}.value"] = draw(st.lists(TYPED, max_size=3))
        for name in draw(st.lists(st.sampled_from(["as", "was", "kind", "often", "times", "times_to", "when", "days",
                                                   "since", "path"]), max_size=5)):  # fmt: skip
            found[f"f.{key}.{name}"] = [draw(st.one_of(TYPED, st.sampled_from(["exact", "number", "ids", "between"])))]
    verbs = st.sampled_from(["add", "remove", "up", "down", "copy", "pick", "shuffle", "x"])
    found["f.act"] = [f"{draw(verbs)}:{draw(keys)}:{draw(TYPED)}"]
    return found


@given(said=typed())
def test_whatever_is_posted_is_shown_or_refused(home: Home, said: dict[str, list[str]]) -> None:
    """Anything posted is drawn again, and is either filters or refused with its faults at rows; never a crash."""
    rows = FilterRows.from_form(said)
    rows.apply_action(said)
    for place in ("segment", "split"):
        assert 'id="f-rules"' in shown(home, rows, place)
    try:
        members.parse_filters(home.account_id, rows.to_filters(), writing=True)
    except Invalid as refused:
        rows.add_errors(refused)
        assert rows.error or any(row.error for row in rows)
