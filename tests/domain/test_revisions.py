"""Revisions: one for every save, a way back and forth without losing any, and few of the old ones left."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import users
from appliance.accounts.users import NewUser
from appliance.content.templates import revisions, store
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.core.validation import PageQuery
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Template
from tests.domain.home import Home


def made(home: Home, **body: Any) -> Template:
    """Make a template."""
    return transactions.write(store.create, home.account_id, validation.read(TemplateWrite, body))


def save(home: Home, template: Template, **body: Any) -> Template:
    """Change a template."""
    return transactions.write(store.update, home.account_id, template.id, validation.read(TemplateWrite, body))


def move(home: Home, template: Template, way: str, **more: Any) -> str | None:
    """Undo or redo, and answer the subject that is there then."""
    return transactions.write(getattr(store, way), home.account_id, template.id, **more).subject


def listed(home: Home, template: Template) -> list[Any]:
    """Return the revisions as a page lists them, oldest first."""
    return revisions.fetch_page(home.account_id, template.id, PageQuery(limit=100)).rows[::-1]


def test_every_save_is_a_revision_that_says_what_changed(home: Home) -> None:
    """Who made it, when, and which fields; a save that changes nothing is none."""
    user = transactions.write(users.create, home.account_id, NewUser("ana@example.org", "Ana", "x")).id
    one = made(home, subject="a")
    asked = validation.read(TemplateWrite, {"subject": "b", "design": {"sections": [{"type": "spacer"}]}})
    transactions.write(store.update, home.account_id, one.id, asked, user)
    save(home, one, subject="b")
    rows_ = listed(home, one)

    assert [(row.number, row.label, row.user.name if row.user else None) for row in rows_] == [
        (1, "Created", None), (2, "Changed subject, design", "Ana"),
    ]  # fmt: skip
    assert revisions.get(home.account_id, one.id, 1).document["subject"] == "a"


def test_undo_after_undo_walks_back_and_redo_comes_the_same_way(home: Home) -> None:
    """Every step is a revision; at both ends it is said that there is no more."""
    one = made(home, subject="a")
    for subject in ("b", "c"):
        save(home, one, subject=subject)

    assert [move(home, one, way) for way in ("undo", "undo", "redo", "redo", "undo")] == ["b", "a", "b", "c", "b"]
    assert [move(home, one, "undo"), store.find_undo_steps(store.get(home.account_id, one.id)).undo] == ["a", None]
    with pytest.raises(Invalid):
        move(home, one, "undo")
    assert [row.number for row in listed(home, one)] == list(range(1, 10))


def test_an_edit_after_undo_ends_redo_and_undo_goes_to_what_it_was_made_from(home: Home) -> None:
    """What was undone is not lost: it is in the history, and can be restored."""
    one = made(home, subject="a")
    save(home, one, subject="b")
    move(home, one, "undo")
    save(home, one, subject="c")

    assert store.find_undo_steps(store.get(home.account_id, one.id)).redo is None
    assert [move(home, one, "undo"), move(home, one, "redo")] == ["a", "c"]
    transactions.write(store.restore, home.account_id, one.id, 2)
    found = listed(home, one)[-1]
    assert (store.get(home.account_id, one.id).subject, found.restored_number) == ("b", 2)
    assert found.label == "Restored revision 2 (Changed subject)"
    assert move(home, one, "undo") == "c"


@given(steps=st.lists(st.sampled_from(["edit", "undo", "redo"]), max_size=30))
def test_undo_and_redo_are_those_of_an_editor(steps: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Against the plainest model there is: a list of texts and a place in it."""
    home = Home(tmp_path_factory.mktemp("model"))
    try:
        one = made(home, subject="0")
        texts, at = ["0"], 0
        for number, step in enumerate(steps, 1):
            if step == "edit":
                texts, at = [*texts[: at + 1], str(number)], at + 1
                save(home, one, subject=str(number))
            elif (at > 0) if step == "undo" else (at < len(texts) - 1):
                at += 1 if step == "redo" else -1
                move(home, one, step)
            else:
                with pytest.raises(Invalid):
                    move(home, one, step)
            assert store.get(home.account_id, one.id).subject == texts[at]
        kept = [row.number for row in listed(home, one)]
        assert kept == list(range(1, len(kept) + 1))
    finally:
        home.close()


def test_two_people_at_once_the_second_learns_what_changed(home: Home) -> None:
    """By the number of the revision that was read, or its moment; with who changed it."""
    user = transactions.write(users.create, home.account_id, NewUser("ana@example.org", "Ana", "x")).id
    one = made(home, subject="a", preheader="p")
    read_at = one.updated_at
    asked = validation.read(TemplateWrite, {"preheader": "q"})
    transactions.write(store.update, home.account_id, one.id, asked, user, 1)
    for how in ({"revision": 1}, {}):
        late = validation.read(
            TemplateWrite, {"subject": "b"} | ({} if how else {"updated_at": "2001-01-01T00:00:00Z"})
        )
        with pytest.raises(Conflict) as refused:
            transactions.write(lambda late=late, how=how: store.update(home.account_id, one.id, late, None, **how))
        assert refused.value.extra["changed_by"] == "Ana"
        assert refused.value.extra["changed"] == (["preheader"] if how else None)
    assert store.describe_conflict(store.get(home.account_id, one.id), moment=read_at)["changed"] == ["preheader"]
    with pytest.raises(Conflict):
        move(home, one, "undo", revision=1)


def test_old_revisions_are_thinned_out(home: Home) -> None:
    """All of the last two hundred stay, the first, those named, and the last of each day; undo walks over the gaps."""
    one = made(home, subject="0")
    for day in range(3):
        for number in range(20):
            save(home, one, subject=f"{day}.{number}")
        home.advance(86_400)
    transactions.write(revisions.name_revision, home.account_id, one.id, 5, "Before the fair")
    for number in range(250):
        save(home, one, subject=f"late {number}")
    transactions.write(revisions.prune, one.id)
    kept = [row[0] for row in rows("SELECT number FROM template_revision WHERE template_id = ? ORDER BY number",
                                   (one.id,))]  # fmt: skip

    assert kept[-200:] == list(range(112, 312))
    old = kept[:-200]
    assert old[:2] == [1, 5] and len(old) <= 6
    days = {revisions.get(home.account_id, one.id, number).document["subject"] for number in old}
    assert {"0", "0.3", "0.19", "1.19", "2.19"} <= days
    seen = []
    while store.find_undo_steps(store.get(home.account_id, one.id)).undo is not None:
        seen.append(move(home, one, "undo"))
    assert (seen[-1], "0.3" in seen, "2.19" in seen) == ("0", True, True)
    while store.find_undo_steps(store.get(home.account_id, one.id)).redo is not None:
        last = move(home, one, "redo")
    assert last == "late 249"


def test_a_name_keeps_a_revision_and_no_name_lets_it_go(home: Home) -> None:
    """A label is a person's word for it; without one it is one of many again."""
    one = made(home)
    named = transactions.write(revisions.name_revision, home.account_id, one.id, 1, "  The start ")
    assert (named.label, named.named) == ("The start", True)
    assert transactions.write(revisions.name_revision, home.account_id, one.id, 1, "").named is False


def test_revisions_of_others_never_were(home: Home) -> None:
    """Another account's template has no history here."""
    one = made(home, subject="a")
    for act in (lambda: revisions.fetch_page(9, one.id, PageQuery()), lambda: revisions.get(9, one.id, 1)):
        with pytest.raises(NotFound):
            act()
    for verb in (store.undo, store.redo):
        with pytest.raises(NotFound):
            transactions.write(verb, 9, one.id)
    with pytest.raises(NotFound):
        transactions.write(store.restore, 9, one.id, 1)


def test_a_copy_says_the_same_and_goes_its_own_way(home: Home) -> None:
    """Design and all; its history begins anew."""
    one = made(home, name="Letter", subject="a", design={"sections": [{"id": "x", "type": "spacer"}], "more": 1})
    copy = transactions.write(store.duplicate, home.account_id, one.id)
    save(home, copy, subject="b")

    assert (copy.name, copy.design, copy.flow_id) == ("Letter (copy)", one.design, None)
    assert store.get(home.account_id, one.id).subject == "a"
    assert [row.label for row in listed(home, copy)] == ["Copied from Letter", "Changed subject"]
