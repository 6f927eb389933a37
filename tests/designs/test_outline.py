"""Sections by a key each: safe anywhere, one of its own for each, whatever ids a document came with."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import document

_IDS = st.one_of(st.none(), st.text(max_size=8), st.integers(), st.sampled_from(["a", "b", "a/b", '"', "x1", "ü"]))


def _section(ident: Any, inner: list[Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "text", "props": {}} if ident is None else {"id": ident, "type": "text"}
    return made if not inner else {"id": ident, "type": "columns", "props": {"columns": [{"sections": inner}]}}


_SECTIONS = st.recursive(
    st.builds(_section, _IDS, st.just([])),
    lambda inner: st.builds(_section, _IDS, st.lists(inner, max_size=3)), max_leaves=8,
)  # fmt: skip


@given(st.lists(_SECTIONS, max_size=6))
def test_every_section_has_a_key_of_its_own(sections: list[dict[str, Any]]) -> None:
    """No two alike, all safe in an address and a selector; and nothing in the document is touched."""
    before = repr(sections)
    found = document.list_entries({"sections": sections})
    keys = [one.key for one in found]

    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key) for key in keys)
    assert repr(sections) == before
    for one in found:
        assert one.siblings[one.position] is one.raw
        assert not one.parent or document.find_section(found, one.parent) is not None
        top = document.find_section(found, document.find_top_key(found, one.key))
        assert top is not None and top.level == 0


def test_an_id_that_is_safe_and_the_first_is_the_key() -> None:
    """Scripts find their own ids again; what does the same twice gets another."""
    found = document.list_entries({"sections": [
        {"id": "hello", "type": "text"}, {"id": "hello", "type": "text"}, {"id": "a b", "type": "text"},
    ]})  # fmt: skip

    assert found[0].key == "hello"
    assert found[1].key != "hello" and found[2].key.startswith("x")
    assert document.list_entries({"sections": [{"id": "a b", "type": "text"}]})[0].key == found[2].key


def test_sections_in_columns_know_where_they_stand() -> None:
    """Each names the columns around it, the column and its place there."""
    design = {"sections": [
        {"id": "c", "type": "columns", "props": {"columns": [
            {"sections": []}, {"sections": [{"id": "t", "type": "text"}, {"id": "i", "type": "image"}]},
        ]}},
    ]}  # fmt: skip
    found = document.list_entries(design)

    assert [(one.key, one.parent, one.column, one.position, one.level) for one in found] == [
        ("c", "", 0, 0, 0), ("t", "c", 1, 0, 1), ("i", "c", 1, 1, 1),
    ]  # fmt: skip
    assert document.find_top_key(found, "i") == "c"
