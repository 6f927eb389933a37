"""Filters in forms: what a page shows of them and a browser posts means what they meant."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.filters.read import Group, Lived, Node
from appliance.segments import people
from tests.domain.filters_people import fill
from tests.domain.filters_random import filters
from tests.domain.home import Home
from tests.kit.posting import posted
from ui import filter_look, view
from ui.filters import Rows


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
    """Answer what filters mean, without how they were written."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, Group):
            found.append((node.mode, meaning(node.parts)))
        elif isinstance(node, Lived):
            where = meaning(node.history.where or [])
            found.append((node.negative, node.history._replace(where_raw=None, where=where)))
        else:
            # Of several values neither the order nor how often each is named matters
            value = {(type(one), one) for one in node.value} if node.test.key == "in" else node.value
            found.append((node.field.name, node.test.key, node.negative, value))
    return found


def shown(home: Home, rows: Rows, place: str = "segment") -> str:
    """Answer the HTML of rows."""
    return (
        view.environment()
        .get_template("segments/_rows.html")
        .render(shown=filter_look.look(home.account_id, rows, place, counted=False), sample=None, checked=None)
    )


@given(asked=st.lists(filters, max_size=4))
def test_a_form_keeps_what_filters_mean(home: Home, asked: list[Any]) -> None:
    """Random filters, shown and posted back untouched, are the same question; a second time too."""
    wanted = meaning(people.nodes(home.account_id, asked))
    rows = Rows.of(asked)
    for _ in range(2):
        rows = Rows.posted(posted(shown(home, rows)))
        assert meaning(people.nodes(home.account_id, rows.filters(), writing=True)) == wanted
        assert rows.filters() == rows.complete()
