"""The keys of sections: unique, and safe in URLs and selectors, whatever ids a document has."""

import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.content.designs import document

_IDS = st.one_of(st.none(), st.text(max_size=8), st.integers(), st.sampled_from(["a", "b", "a/b", '"', "x1", "ü"]))


def _section(ident: Any, inner: list[Any]) -> dict[str, Any]:
    section: dict[str, Any] = {"type": "text", "props": {}} if ident is None else {"id": ident, "type": "text"}
    return section if not inner else {"id": ident, "type": "columns", "props": {"columns": [{"sections": inner}]}}


_SECTIONS = st.recursive(
    st.builds(_section, _IDS, st.just([])),
    lambda inner: st.builds(_section, _IDS, st.lists(inner, max_size=3)), max_leaves=8,
)  # fmt: skip


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_SECTIONS, max_size=6))
def test_section_keys_are_unique_and_safe(sections: list[dict[str, Any]]) -> None:
    """Keys are unique and safe, and listing them does not change the document."""
    before = repr(sections)
    entries = document.list_entries({"sections": sections})
    keys = [entry.key for entry in entries]

    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key) for key in keys)
    assert repr(sections) == before
    for entry in entries:
        assert entry.siblings[entry.position] is entry.raw
        assert not entry.parent or document.find_section(entries, entry.parent) is not None
        top = document.find_section(entries, document.find_top_key(entries, entry.key))
        assert top is not None and top.level == 0


def test_a_safe_unique_id_is_the_key() -> None:
    """The first section with a safe id has it as key; a repeated or unsafe id gets another key."""
    entries = document.list_entries({"sections": [
        {"id": "hello", "type": "text"}, {"id": "hello", "type": "text"}, {"id": "a b", "type": "text"},
    ]})  # fmt: skip

    assert entries[0].key == "hello"
    assert entries[1].key != "hello" and entries[2].key.startswith("x")
    assert document.list_entries({"sections": [{"id": "a b", "type": "text"}]})[0].key == entries[2].key


def test_positions_of_sections_in_columns() -> None:
    """Each entry has its parent, column and position."""
    design = {"sections": [
        {"id": "c", "type": "columns", "props": {"columns": [
            {"sections": []}, {"sections": [{"id": "t", "type": "text"}, {"id": "i", "type": "image"}]},
        ]}},
    ]}  # fmt: skip
    entries = document.list_entries(design)

    assert [(entry.key, entry.parent, entry.column, entry.position, entry.level) for entry in entries] == [
        ("c", "", 0, 0, 0), ("t", "c", 1, 0, 1), ("i", "c", 1, 1, 1),
    ]  # fmt: skip
    assert document.find_top_key(entries, "i") == "c"
