"""Editing a design: values, sections, undo, conflicts; unknown properties are kept."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.content.designs import document
from appliance.content.templates import editing, revisions, store, template_edits
from appliance.content.templates.editing import Change
from appliance.content.templates.template_edits import SectionTarget
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


def create_template(home: Home, design: dict[str, Any] = DESIGN) -> int:
    """Create a template with a design and return its id."""
    request = validation.read(TemplateWrite, {"name": "T", "subject": "S", "design": copy.deepcopy(design)})
    return int(transactions.write(store.create, home.account_id, request).id)


def edit_value(
    home: Home,
    template_id: int,
    key: str | None,
    path: str,
    value: str,
    seen_hash: str | None = None,
    user: int | None = None,
) -> Template:
    """Change one value of a template."""
    return transactions.write(
        editing.edit_values, home.account_id, template_id, key, [Change(path, value, seen_hash)], user
    ).template


def edit_section_list(home: Home, template_id: int, edit: editing.SectionEdit) -> str | None:
    """Apply a change to the sections, and return the key of the section to select next."""
    return transactions.write(editing.edit_sections, home.account_id, template_id, edit, None).key


def section_keys(home: Home, template_id: int) -> list[str]:
    """Return the keys of all sections in reading order."""
    return [entry.key for entry in document.list_entries(store.get(home.account_id, template_id).design)]


def stored_props(home: Home, template_id: int, key: str) -> dict[str, Any]:
    """Return the stored properties of a section."""
    entry = document.find_section(document.list_entries(store.get(home.account_id, template_id).design), key)
    assert entry is not None
    return dict(entry.raw["props"])


def test_editing_a_value_keeps_everything_else(home: Home) -> None:
    """Unknown kinds and keys are kept; a value under a former property name moves to its current name."""
    template_id = create_template(home)
    edit_value(home, template_id, "press", "props.text", "New name")
    edit_value(home, template_id, "press", "styles.padding.top", "40")
    edit_value(home, template_id, None, "theme.text_color", "222222")
    expected = copy.deepcopy(DESIGN)
    expected["sections"][2]["props"] = {"url": "https://example.org", "unknown": [1], "text": "New name"}
    expected["sections"][2]["styles"] = {"padding": "40px 32px 20px"}
    expected["theme"]["text_color"] = "#222222"

    assert store.get(home.account_id, template_id).design == expected


@pytest.mark.parametrize(("key", "path", "value"), [
    ("press", "props.href", "javascript:alert(1)"), ("press", "props.href", "no link"),
    ("press", "props.border_radius", "900"), ("press", "props.border_radius", "many"),
    ("press", "props.style", "glowing"), ("press", "props.background_color", "mud"),
    ("press", "props.text", "{{ unfinished"), ("press", "styles.padding.sides", "1e9"),
    ("press", "props.show_if", "{}"), (None, "theme.width", "12"),
])  # fmt: skip
def test_an_invalid_value_is_rejected(home: Home, key: str | None, path: str, value: str) -> None:
    """The error is reported at the value's path, and nothing is written."""
    template_id = create_template(home)
    with pytest.raises(Invalid) as error_info:
        edit_value(home, template_id, key, path, value)

    assert list(error_info.value.fields) == [path]
    assert store.get(home.account_id, template_id).revision == 1


@pytest.mark.parametrize(("key", "path"), [
    ("press", "props.nothing"), ("press", "theme.width"), (None, "props.text"), ("odd", "props.depth"),
    ("gone", "props.text"), ("press", "props.text.0.x"), ("two", "props.columns.0.sections"), ("press", "__class__"),
    ("two", "props.columns.9.width"), ("press", "styles.padding.left"),
])  # fmt: skip
def test_an_undeclared_path_is_not_found(home: Home, key: str | None, path: str) -> None:
    """Only paths that the kind of section declares can be written; others raise NotFound."""
    template_id = create_template(home)
    with pytest.raises(NotFound):
        edit_value(home, template_id, key, path, "20")


def test_quick_edits_of_one_value_are_one_undo_step(home: Home) -> None:
    """Another value or a pause of a few seconds starts a new undo step."""
    template_id = create_template(home)
    for value in ("H", "He", "Hel"):
        edit_value(home, template_id, "press", "props.text", value)
    edit_value(home, template_id, "left", "props.content", "<p>Words</p>")
    edit_value(home, template_id, "press", "props.text", "Hello")
    home.advance(4)
    edit_value(home, template_id, "press", "props.text", "Hello you")
    labels = [
        row.label
        for row in TemplateRevision.select()
        .where(TemplateRevision.template == template_id)
        .order_by(TemplateRevision.number)
    ]

    assert labels == [
        "Created",
        "Button: text changed",
        "Text: text changed",
        "Button: text changed",
        "Button: text changed",
    ]
    texts = []
    for _ in range(4):
        transactions.write(template_edits.undo, home.account_id, template_id)
        texts.append(stored_props(home, template_id, "press").get("text"))
    assert texts == ["Hello", "Hel", "Hel", None]


def test_an_edit_conflict_returns_the_stored_value(home: Home) -> None:
    """Edits of other values merge; editing a value changed meanwhile raises Conflict with the stored value."""
    template_id = create_template(home)
    seen_hash = editing.hash_value("Old name")
    edit_value(home, template_id, "left", "props.content", "<p>Theirs</p>", editing.hash_value("<p>L</p>"))
    edit_value(home, template_id, "press", "props.note", "Theirs too", editing.hash_value(None))
    edit_value(home, template_id, "press", "props.text", "Mine", seen_hash)
    with pytest.raises(Conflict) as error_info:
        edit_value(home, template_id, "press", "props.text", "Late", seen_hash)

    assert error_info.value.extra["theirs"] == "Mine" and error_info.value.extra["seen"] == editing.hash_value("Mine")
    assert (
        stored_props(home, template_id, "press")["text"] == "Mine"
        and stored_props(home, template_id, "press")["note"] == "Theirs too"
    )
    edit_value(home, template_id, "press", "props.text", "Late", error_info.value.extra["seen"])
    assert stored_props(home, template_id, "press")["text"] == "Late"
    # An edit to the stored value is not a conflict
    edit_value(home, template_id, "press", "props.text", "Late", seen_hash)


def test_sections_are_moved_added_duplicated_and_removed(home: Home) -> None:
    """Sections go to their target, the footer stays last, and a column accepts only some kinds."""
    template_id = create_template(home)
    added = edit_section_list(
        home, template_id, template_edits.add_section("heading", SectionTarget(after="left"), "en")
    )
    added_split = edit_section_list(
        home, template_id, template_edits.add_section("split", SectionTarget(after="left"), "en")
    )
    added_text = edit_section_list(home, template_id, template_edits.add_section("text", SectionTarget(), "en"))
    assert section_keys(home, template_id) == [
        "head",
        "odd",
        "press",
        "two",
        "left",
        added,
        "right",
        added_split,
        added_text,
        "foot",
    ]
    assert (
        edit_section_list(
            home, template_id, template_edits.move_section("press", SectionTarget(parent="two", column=1))
        )
        == "press"
    )
    assert (
        edit_section_list(home, template_id, template_edits.move_section("odd", SectionTarget(before="head"))) == "odd"
    )
    assert section_keys(home, template_id) == [
        "odd",
        "head",
        "two",
        "left",
        added,
        "right",
        "press",
        added_split,
        added_text,
        "foot",
    ]
    copy_key = edit_section_list(home, template_id, template_edits.duplicate_section("two"))
    entries = document.list_entries(store.get(home.account_id, template_id).design)
    assert len([entry for entry in entries if entry.parent == copy_key]) == 4
    assert len({entry.key for entry in entries}) == len(entries)
    edit_section_list(home, template_id, template_edits.remove_section("two"))
    assert "left" not in section_keys(home, template_id)
    with pytest.raises(Invalid):
        edit_section_list(
            home, template_id, template_edits.move_section("head", SectionTarget(parent=copy_key, column=0))
        )
    with pytest.raises(NotFound):
        edit_section_list(home, template_id, template_edits.add_section("hologram", SectionTarget(), "en"))


def test_an_empty_email_starts_with_four_sections(home: Home) -> None:
    """Header, text, button and footer, with the text selected; an email with a section is left as it is."""
    template_id = create_template(home, {})
    selected = edit_section_list(home, template_id, template_edits.add_basics("de_DE"))
    entries = document.list_entries(store.get(home.account_id, template_id).design)
    kinds = [entry.section.kind.name if entry.section.kind else "" for entry in entries]
    assert kinds == ["header", "text", "button", "footer"] and selected == entries[1].key
    with pytest.raises(Invalid):
        edit_section_list(home, template_id, template_edits.add_basics("en"))
    assert len(section_keys(home, template_id)) == 4


def test_columns_cannot_be_moved_into_themselves(home: Home) -> None:
    """Moving a columns section into or next to itself raises Invalid."""
    template_id = create_template(home)
    for target in (SectionTarget(parent="two", column=0), SectionTarget(before="left"), SectionTarget(before="two")):
        with pytest.raises(Invalid):
            edit_section_list(home, template_id, template_edits.move_section("two", target))


def test_list_items_stay_within_their_limits(home: Home) -> None:
    """Items can be moved and edited by index; removing or adding one beyond the limits raises Invalid."""
    sections = [
        {"id": "l", "type": "list", "props": {"items": [{"title": "A"}, {"title": "B"}]}},
        {"id": "g", "type": "gallery", "props": {"items": [{}, {}]}},
    ]
    template_id = create_template(home, {"sections": sections})
    edit_section_list(home, template_id, template_edits.edit_list("l", "items", "up", 1))
    edit_value(home, template_id, "l", "props.items.0.text", "More")
    assert stored_props(home, template_id, "l")["items"] == [{"title": "B", "text": "More"}, {"title": "A"}]
    with pytest.raises(Invalid):
        edit_section_list(home, template_id, template_edits.edit_list("g", "items", "remove", 0))
    for _ in range(4):
        edit_section_list(home, template_id, template_edits.edit_list("g", "items", "add"))
    with pytest.raises(Invalid):
        edit_section_list(home, template_id, template_edits.edit_list("g", "items", "add"))


def test_removing_a_column_keeps_its_sections(home: Home) -> None:
    """Sections of a removed column move to the last remaining one."""
    template_id = create_template(home)
    edit_value(home, template_id, "two", "props.preset", "1:1:1")
    edit_section_list(home, template_id, template_edits.move_section("right", SectionTarget(parent="two", column=2)))
    edit_value(home, template_id, "two", "props.preset", "1:2")
    columns = document.get_columns(
        document.find_section(document.list_entries(store.get(home.account_id, template_id).design), "two").raw
    )  # type: ignore[union-attr]  # the section is there
    assert [[section["id"] for section in column["sections"]] for column in columns] == [["left"], ["right"]]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.sampled_from(["a", "bb", "{{ first_name }}", "", "<b>x</b>"])),
        st.tuples(st.sampled_from(["up", "down", "duplicate", "remove", "add"]), st.integers(0, 9)),
    ),
    min_size=1, max_size=10,
)  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_STEPS)
def test_undo_and_redo_restore_first_and_last_design(home: Home, steps: list[tuple[str, Any]]) -> None:
    """After any edits, undoing all gives the first design and redoing all the last."""
    template_id = create_template(home)
    designs = [store.get(home.account_id, template_id).design]
    for number, (edit_name, argument) in enumerate(steps):
        keys = section_keys(home, template_id)
        if edit_name == "change" or not keys:
            edit_value(home, template_id, None, "theme.font_body", f"Font {number}")
        elif edit_name == "add":
            edit_section_list(
                home,
                template_id,
                template_edits.add_section("text", SectionTarget(after=keys[argument % len(keys)]), "en"),
            )
        else:
            key = keys[argument % len(keys)]
            edits = {
                "up": template_edits.shift_section(key, -1),
                "down": template_edits.shift_section(key, 1),
                "duplicate": template_edits.duplicate_section(key),
                "remove": template_edits.remove_section(key),
            }
            edit_section_list(home, template_id, edits[edit_name])
        design = store.get(home.account_id, template_id).design
        if design != designs[-1]:
            designs.append(design)
    last = store.get(home.account_id, template_id)
    while revisions.find_undo_steps(store.get(home.account_id, template_id)).undo is not None:
        transactions.write(template_edits.undo, home.account_id, template_id)
    assert store.get(home.account_id, template_id).design == designs[0]
    while revisions.find_undo_steps(store.get(home.account_id, template_id)).redo is not None:
        transactions.write(template_edits.redo, home.account_id, template_id)
    assert store.get(home.account_id, template_id).design == last.design
