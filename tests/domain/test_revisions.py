"""Revisions of templates: one for each save, undo and redo, and pruning of old ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import users
from appliance.accounts.users import NewUser
from appliance.content.templates import editing, revisions, store, template_edits
from appliance.content.templates.validation import TemplateWrite
from appliance.core import i18n, validation
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.core.validation import PageQuery
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Template
from tests.domain.home import Home


def create_template(home: Home, **body: Any) -> Template:
    """Create a template."""
    return transactions.write(store.create, home.account_id, validation.read(TemplateWrite, body))


def update(home: Home, template: Template, **body: Any) -> Template:
    """Update a template."""
    return transactions.write(store.update, home.account_id, template.id, validation.read(TemplateWrite, body))


def undo_or_redo(home: Home, template: Template, verb: str, **options: Any) -> str | None:
    """Undo or redo, and return the resulting subject."""
    return transactions.write(getattr(template_edits, verb), home.account_id, template.id, **options).subject


def list_revisions(home: Home, template: Template) -> list[Any]:
    """Return the revisions as a page lists them, oldest first."""
    return revisions.fetch_page(home.account_id, template.id, PageQuery(limit=100)).rows[::-1]


def test_each_save_is_a_revision(home: Home) -> None:
    """A revision has the user and the changed fields; a save without a change adds none."""
    user = transactions.write(users.create, home.account_id, NewUser("ana@example.org", "Ana", "x")).id
    template = create_template(home, subject="a")
    request = validation.read(TemplateWrite, {"subject": "b", "design": {"sections": [{"type": "spacer"}]}})
    transactions.write(store.update, home.account_id, template.id, request, user)
    update(home, template, subject="b")
    listed = list_revisions(home, template)

    assert [(row.number, row.label, row.user.name if row.user else None) for row in listed] == [
        (1, "Created", None), (2, "Changed subject, design", "Ana"),
    ]  # fmt: skip
    assert revisions.get(home.account_id, template.id, 1).document["subject"] == "a"


def test_undo_and_redo_step_through_the_history(home: Home) -> None:
    """Each step adds a revision; undo past the first state raises Invalid."""
    template = create_template(home, subject="a")
    for subject in ("b", "c"):
        update(home, template, subject=subject)

    assert [undo_or_redo(home, template, verb) for verb in ("undo", "undo", "redo", "redo", "undo")] == [
        "b",
        "a",
        "b",
        "c",
        "b",
    ]
    assert [
        undo_or_redo(home, template, "undo"),
        revisions.find_undo_steps(store.get(home.account_id, template.id)).undo,
    ] == ["a", None]
    with pytest.raises(Invalid):
        undo_or_redo(home, template, "undo")
    assert [row.number for row in list_revisions(home, template)] == list(range(1, 10))


def test_an_edit_after_undo_ends_redo(home: Home) -> None:
    """Undo then returns to the state that was edited; the undone revision can be restored."""
    template = create_template(home, subject="a")
    update(home, template, subject="b")
    undo_or_redo(home, template, "undo")
    update(home, template, subject="c")

    assert revisions.find_undo_steps(store.get(home.account_id, template.id)).redo is None
    assert [undo_or_redo(home, template, "undo"), undo_or_redo(home, template, "redo")] == ["a", "c"]
    transactions.write(template_edits.restore, home.account_id, template.id, 2)
    restored = list_revisions(home, template)[-1]
    assert (store.get(home.account_id, template.id).subject, restored.restored_number) == ("b", 2)
    assert restored.label == "Restored revision 2 (Changed subject)"
    assert undo_or_redo(home, template, "undo") == "c"


@given(steps=st.lists(st.sampled_from(["edit", "undo", "redo"]), max_size=30))
def test_undo_and_redo_match_a_model(steps: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The model is a list of texts and an index into it."""
    home = Home(tmp_path_factory.mktemp("model"))
    try:
        template = create_template(home, subject="0")
        texts, index = ["0"], 0
        for number, step in enumerate(steps, 1):
            if step == "edit":
                texts, index = [*texts[: index + 1], str(number)], index + 1
                update(home, template, subject=str(number))
            elif (index > 0) if step == "undo" else (index < len(texts) - 1):
                index += 1 if step == "redo" else -1
                undo_or_redo(home, template, step)
            else:
                with pytest.raises(Invalid):
                    undo_or_redo(home, template, step)
            assert store.get(home.account_id, template.id).subject == texts[index]
        numbers = [row.number for row in list_revisions(home, template)]
        assert numbers == list(range(1, len(numbers) + 1))
    finally:
        home.close()


def test_a_conflict_names_the_changed_fields(home: Home) -> None:
    """A save based on an older revision or time raises Conflict with the user and the changed fields."""
    user = transactions.write(users.create, home.account_id, NewUser("ana@example.org", "Ana", "x")).id
    template = create_template(home, subject="a", preheader="p")
    read_at = template.updated_at
    request = validation.read(TemplateWrite, {"preheader": "q"})
    transactions.write(store.update, home.account_id, template.id, request, user, 1)
    for base in ({"revision": 1}, {}):
        late_request = validation.read(
            TemplateWrite, {"subject": "b"} | ({} if base else {"updated_at": "2001-01-01T00:00:00Z"})
        )
        with pytest.raises(Conflict) as error_info:
            transactions.write(
                lambda late_request=late_request, base=base: store.update(
                    home.account_id, template.id, late_request, None, **base
                )
            )
        assert error_info.value.extra["changed_by"] == "Ana"
        assert error_info.value.extra["changed"] == (["preheader"] if base else None)
    assert store.describe_conflict(store.get(home.account_id, template.id), moment=read_at)["changed"] == ["preheader"]
    with pytest.raises(Conflict):
        undo_or_redo(home, template, "undo", revision=1)


def test_old_revisions_are_pruned(home: Home) -> None:
    """The last 200, the first, named ones and the last of each day are kept; undo and redo skip the gaps."""
    template = create_template(home, subject="0")
    for day in range(3):
        for number in range(20):
            update(home, template, subject=f"{day}.{number}")
        home.advance(86_400)
    transactions.write(revisions.name_revision, home.account_id, template.id, 5, "Before the fair")
    for number in range(250):
        update(home, template, subject=f"late {number}")
    transactions.write(revisions.prune, template.id)
    kept_numbers = [row[0] for row in rows("SELECT number FROM template_revision WHERE template_id = ? ORDER BY number",
                                   (template.id,))]  # fmt: skip

    assert kept_numbers[-200:] == list(range(112, 312))
    old_numbers = kept_numbers[:-200]
    assert old_numbers[:2] == [1, 5] and len(old_numbers) <= 6
    old_subjects = {revisions.get(home.account_id, template.id, number).document["subject"] for number in old_numbers}
    assert {"0", "0.3", "0.19", "1.19", "2.19"} <= old_subjects
    undone = []
    while revisions.find_undo_steps(store.get(home.account_id, template.id)).undo is not None:
        undone.append(undo_or_redo(home, template, "undo"))
    assert (undone[-1], "0.3" in undone, "2.19" in undone) == ("0", True, True)
    while revisions.find_undo_steps(store.get(home.account_id, template.id)).redo is not None:
        redone = undo_or_redo(home, template, "redo")
    assert redone == "late 249"


def test_name_revision(home: Home) -> None:
    """A name is stripped and marks the revision as named; an empty name removes the mark."""
    template = create_template(home)
    revision = transactions.write(revisions.name_revision, home.account_id, template.id, 1, "  The start ")
    assert (revision.label, revision.named) == ("The start", True)
    assert transactions.write(revisions.name_revision, home.account_id, template.id, 1, "").named is False


def test_revisions_of_other_accounts_are_not_found(home: Home) -> None:
    """Listing, reading, undo, redo and restore raise NotFound for another account's template."""
    template = create_template(home, subject="a")
    for read in (lambda: revisions.fetch_page(9, template.id, PageQuery()), lambda: revisions.get(9, template.id, 1)):
        with pytest.raises(NotFound):
            read()
    for verb in (template_edits.undo, template_edits.redo):
        with pytest.raises(NotFound):
            transactions.write(verb, 9, template.id)
    with pytest.raises(NotFound):
        transactions.write(template_edits.restore, 9, template.id, 1)


def test_labels_are_stored_in_english(home: Home) -> None:
    """The history is written in English whatever the author's language is, and shown in the reader's language."""
    template = create_template(home, design={"sections": [{"id": "x", "type": "image"}]})
    with i18n.use_language("de"):
        spot = template_edits.SectionTarget()
        edit = template_edits.add_section("text", spot, "en")
        transactions.write(editing.edit_sections, home.account_id, template.id, edit, None)
        changes = [editing.Change("props.alt", "A bell")]
        transactions.write(editing.edit_values, home.account_id, template.id, "x", changes, None)
        transactions.write(template_edits.undo, home.account_id, template.id)
        labels = [row.label for row in list_revisions(home, template)][1:]
        shown = [revisions.translate_label(label) for label in labels]

    assert labels == ["Text added", "Image: alt text changed", "Undo: back to revision 2 (Text added)"]
    assert shown == [
        "Text hinzugefügt", "Bild: Alt-Text geändert", "Rückgängig: zurück zu Version 2 (Text hinzugefügt)",
    ]  # fmt: skip


def test_duplicating_a_template(home: Home) -> None:
    """The copy has the same design and a history of its own; a change of it does not change the original."""
    template = create_template(
        home, name="Letter", subject="a", design={"sections": [{"id": "x", "type": "spacer"}], "more": 1}
    )
    copy = transactions.write(store.duplicate, home.account_id, template.id)
    update(home, copy, subject="b")

    assert (copy.name, copy.design, copy.flow_id) == ("Letter (copy)", template.design, None)
    assert store.get(home.account_id, template.id).subject == "a"
    assert [row.label for row in list_revisions(home, copy)] == ["Copied from Letter", "Changed subject"]
