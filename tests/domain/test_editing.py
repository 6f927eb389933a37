"""Editing a design: value by value, by several at once, with a way back for every step; nothing unknown is lost."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.content.designs import document
from appliance.content.templates import editing, section_edits, store
from appliance.content.templates.editing import Change
from appliance.content.templates.section_edits import SectionTarget
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.storage import transactions
from appliance.storage.models import Template, TemplateRevision
from tests.domain.home import Home

DESIGN: dict[str, Any] = {"sections": [
    {"id": "head", "type": "header", "props": {"wordmark_text": "Harbour"}},
    {"id": "odd", "type": "hologram", "props": {"depth": {"cm": [3, 4.0]}}, "extra": {"kept": True}},
    {"id": "press", "type": "button", "props": {"label": "Old name", "url": "https://example.org", "unknown": [1]}},
    {"id": "two", "type": "columns", "props": {"columns": [
        {"sections": [{"id": "left", "type": "text", "props": {"content": "<p>L</p>"}}]},
        {"sections": [{"id": "right", "type": "text", "props": {"content": "<p>R</p>"}}]},
    ]}},
    {"id": "foot", "type": "footer", "props": {}},
], "theme": {"brand_color": "#102030", "unknown": "kept"}, "more": 1}  # fmt: skip


def make(home: Home, design: dict[str, Any] = DESIGN) -> int:
    """Keep a template with a design."""
    request = validation.read(TemplateWrite, {"name": "T", "subject": "S", "design": copy.deepcopy(design)})
    return int(transactions.write(store.create, home.account_id, request).id)


def change(
    home: Home, one: int, key: str | None, path: str, typed: str, seen: str | None = None, user: int | None = None
) -> Template:
    """Change one value."""
    return transactions.write(
        editing.edit_values, home.account_id, one, key, [Change(path, typed, seen)], user
    ).template


def arrange(home: Home, one: int, made: editing.SectionEdit) -> str | None:
    """Change the sections; returns the one to look at next."""
    return transactions.write(editing.edit_sections, home.account_id, one, made, None).key


def keys(home: Home, one: int) -> list[str]:
    """Return the keys of all sections in the order of reading."""
    return [each.key for each in document.list_entries(store.get(home.account_id, one).design)]


def props(home: Home, one: int, key: str) -> dict[str, Any]:
    """Return the properties of a section as they are stored."""
    found = document.find_section(document.list_entries(store.get(home.account_id, one).design), key)
    assert found is not None
    return dict(found.raw["props"])


def test_one_value_changes_and_nothing_else(home: Home) -> None:
    """Kinds and keys that nobody knows stay as they are; a value moves from an older name to its own."""
    one = make(home)
    change(home, one, "press", "props.text", "New name")
    change(home, one, "press", "styles.padding.top", "40")
    change(home, one, None, "theme.text_color", "222222")
    expected = copy.deepcopy(DESIGN)
    expected["sections"][2]["props"] = {"url": "https://example.org", "unknown": [1], "text": "New name"}
    expected["sections"][2]["styles"] = {"padding": "40px 32px 20px"}
    expected["theme"]["text_color"] = "#222222"

    assert store.get(home.account_id, one).design == expected


@pytest.mark.parametrize(("key", "path", "typed"), [
    ("press", "props.href", "javascript:alert(1)"), ("press", "props.href", "no link"),
    ("press", "props.border_radius", "900"), ("press", "props.border_radius", "many"),
    ("press", "props.style", "glowing"), ("press", "props.background_color", "mud"),
    ("press", "props.text", "{{ unfinished"), ("press", "styles.padding.sides", "1e9"),
    ("press", "props.show_if", "{}"), (None, "theme.width", "12"),
])  # fmt: skip
def test_what_no_mail_can_hold_is_refused_at_its_place(home: Home, key: str | None, path: str, typed: str) -> None:
    """Nothing is written, and the refusal names the value."""
    one = make(home)
    with pytest.raises(Invalid) as refused:
        change(home, one, key, path, typed)

    assert list(refused.value.fields) == [path]
    assert store.get(home.account_id, one).revision == 1


@pytest.mark.parametrize(("key", "path"), [
    ("press", "props.nothing"), ("press", "theme.width"), (None, "props.text"), ("odd", "props.depth"),
    ("gone", "props.text"), ("press", "props.text.0.x"), ("two", "props.columns.0.sections"), ("press", "__class__"),
    ("two", "props.columns.9.width"), ("press", "styles.padding.left"),
])  # fmt: skip
def test_a_value_that_is_not_declared_is_not_there(home: Home, key: str | None, path: str) -> None:
    """Whatever is asked, only what a kind declares can be written."""
    one = make(home)
    with pytest.raises(NotFound):
        change(home, one, key, path, "20")


def test_changes_of_one_value_within_moments_are_one_step(home: Home) -> None:
    """Typing is one undo; another value, another person or a pause begins the next."""
    one = make(home)
    for typed in ("H", "He", "Hel"):
        change(home, one, "press", "props.text", typed)
    change(home, one, "left", "props.content", "<p>Words</p>")
    change(home, one, "press", "props.text", "Hello")
    home.advance(4)
    change(home, one, "press", "props.text", "Hello you")
    labels = [
        row.label
        for row in TemplateRevision.select().where(TemplateRevision.template == one).order_by(TemplateRevision.number)
    ]

    assert labels == [
        "Created",
        "Button: text changed",
        "Text: text changed",
        "Button: text changed",
        "Button: text changed",
    ]
    seen = []
    for _ in range(4):
        transactions.write(store.undo, home.account_id, one)
        seen.append(props(home, one, "press").get("text"))
    assert seen == ["Hello", "Hel", "Hel", None]


def test_another_section_merges_and_the_same_value_tells_both(home: Home) -> None:
    """Who changes what another did not is never refused; the same value answers with theirs."""
    one = make(home)
    seen = editing.hash_value("Old name")
    change(home, one, "left", "props.content", "<p>Theirs</p>", editing.hash_value("<p>L</p>"))
    change(home, one, "press", "props.note", "Theirs too", editing.hash_value(None))
    change(home, one, "press", "props.text", "Mine", seen)
    with pytest.raises(Conflict) as refused:
        change(home, one, "press", "props.text", "Late", seen)

    assert refused.value.extra["theirs"] == "Mine" and refused.value.extra["seen"] == editing.hash_value("Mine")
    assert props(home, one, "press")["text"] == "Mine" and props(home, one, "press")["note"] == "Theirs too"
    change(home, one, "press", "props.text", "Late", refused.value.extra["seen"])
    assert props(home, one, "press")["text"] == "Late"
    # Who typed the same was of one mind
    change(home, one, "press", "props.text", "Late", seen)


def test_sections_are_moved_added_duplicated_and_taken_out(home: Home) -> None:
    """Each goes where it was put; the footer stays last; a column takes only what stands in columns."""
    one = make(home)
    added = arrange(home, one, section_edits.add_section("heading", SectionTarget(after="left")))
    whole = arrange(home, one, section_edits.add_section("split", SectionTarget(after="left")))
    last = arrange(home, one, section_edits.add_section("text", SectionTarget()))
    assert keys(home, one) == ["head", "odd", "press", "two", "left", added, "right", whole, last, "foot"]
    assert arrange(home, one, section_edits.move_section("press", SectionTarget(parent="two", column=1))) == "press"
    assert arrange(home, one, section_edits.move_section("odd", SectionTarget(before="head"))) == "odd"
    assert keys(home, one) == ["odd", "head", "two", "left", added, "right", "press", whole, last, "foot"]
    copied = arrange(home, one, section_edits.duplicate_section("two"))
    found = document.list_entries(store.get(home.account_id, one).design)
    assert len([each for each in found if each.parent == copied]) == 4
    assert len({each.key for each in found}) == len(found)
    arrange(home, one, section_edits.remove_section("two"))
    assert "left" not in keys(home, one)
    with pytest.raises(Invalid):
        arrange(home, one, section_edits.move_section("head", SectionTarget(parent=copied, column=0)))
    with pytest.raises(NotFound):
        arrange(home, one, section_edits.add_section("hologram", SectionTarget()))


def test_nothing_stands_in_itself(home: Home) -> None:
    """Columns do not go into one of their own columns."""
    one = make(home)
    for spot in (SectionTarget(parent="two", column=0), SectionTarget(before="left"), SectionTarget(before="two")):
        with pytest.raises(Invalid):
            arrange(home, one, section_edits.move_section("two", spot))


def test_entries_of_a_list_keep_to_their_bounds(home: Home) -> None:
    """No fewer and no more than the kind says; an entry is changed by its number."""
    one = make(home, {"sections": [{"id": "l", "type": "list", "props": {"items": [{"title": "A"}, {"title": "B"}]}},
                                   {"id": "g", "type": "gallery", "props": {"items": [{}, {}]}}]})  # fmt: skip
    arrange(home, one, section_edits.edit_list("l", "items", "up", 1))
    change(home, one, "l", "props.items.0.text", "More")
    assert props(home, one, "l")["items"] == [{"title": "B", "text": "More"}, {"title": "A"}]
    with pytest.raises(Invalid):
        arrange(home, one, section_edits.edit_list("g", "items", "remove", 0))
    for _ in range(4):
        arrange(home, one, section_edits.edit_list("g", "items", "add"))
    with pytest.raises(Invalid):
        arrange(home, one, section_edits.edit_list("g", "items", "add"))


def test_fewer_columns_keep_what_stood_in_the_others(home: Home) -> None:
    """What stood in a column that goes stands in the last that stays."""
    one = make(home)
    change(home, one, "two", "props.preset", "1:1:1")
    arrange(home, one, section_edits.move_section("right", SectionTarget(parent="two", column=2)))
    change(home, one, "two", "props.preset", "1:2")
    found = document.get_columns(
        document.find_section(document.list_entries(store.get(home.account_id, one).design), "two").raw
    )  # type: ignore[union-attr]  # the section is there
    assert [[each["id"] for each in column["sections"]] for column in found] == [["left"], ["right"]]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.sampled_from(["a", "bb", "{{ first_name }}", "", "<b>x</b>"])),
        st.tuples(st.sampled_from(["up", "down", "duplicate", "remove", "add"]), st.integers(0, 9)),
    ),
    min_size=1, max_size=10,
)  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_STEPS)
def test_as_many_undos_and_redos_as_edits_are_the_same_document(home: Home, steps: list[tuple[str, Any]]) -> None:
    """Back to the first document and forward to the last, whatever the edits were."""
    one = make(home)
    seen = [store.get(home.account_id, one).design]
    for number, (act, what) in enumerate(steps):
        here = keys(home, one)
        if act == "change" or not here:
            change(home, one, None, "theme.font_body", f"Font {number}")
        elif act == "add":
            arrange(home, one, section_edits.add_section("text", SectionTarget(after=here[what % len(here)])))
        else:
            key = here[what % len(here)]
            edits = {
                "up": section_edits.shift_section(key, -1),
                "down": section_edits.shift_section(key, 1),
                "duplicate": section_edits.duplicate_section(key),
                "remove": section_edits.remove_section(key),
            }
            arrange(home, one, edits[act])
        now = store.get(home.account_id, one).design
        if now != seen[-1]:
            seen.append(now)
    last = store.get(home.account_id, one)
    while store.find_undo_steps(store.get(home.account_id, one)).undo is not None:
        transactions.write(store.undo, home.account_id, one)
    assert store.get(home.account_id, one).design == seen[0]
    while store.find_undo_steps(store.get(home.account_id, one)).redo is not None:
        transactions.write(store.redo, home.account_id, one)
    assert store.get(home.account_id, one).design == last.design
