"""Acts for many people: they do what the same act for one person does, say whom they changed, and can be taken back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import accounts
from appliance.audience import bulk_actions, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import store
from appliance.audience.contacts import write as tags
from appliance.core.errors import Invalid, NotFound
from appliance.storage.database import rows
from appliance.storage.transactions import write
from tests.domain.home import Home

HERE = Evidence("ui", "user:1")
NUMBER = 7


@pytest.fixture
def people(home: Home) -> list[int]:
    """Some people, every other of them subscribed, tagged and in a list."""
    made = []
    group = write(lists.create, home.account_id, lists.ListCreate(name="Newsletter"))
    for number in range(NUMBER):
        odd = bool(number % 2)
        data = {"tags": ["Customer"]} if odd else {"city": "Bath"}
        done = home.upsert(email=f"p{number}@example.com", opt_in=odd, data=data, list_ids=[group.id] if odd else [])
        made.append(int(done.contact.id))
    return made


def act(home: Home, name: str, ids: list[int], **argument: Any) -> Any:
    """Do an act to its end and answer it."""
    made = write(bulk_actions.start, home.account_id, 1, name, argument, ids, HERE)
    while write(bulk_actions.run_batch, made.id):
        pass
    return bulk_actions.get(home.account_id, made.id)


def undo(home: Home, act_id: int) -> Any:
    """Take an act back and answer what did that."""
    made = write(bulk_actions.undo, home.account_id, act_id, 1, HERE)
    while write(bulk_actions.run_batch, made.id):
        pass
    return bulk_actions.get(home.account_id, made.id)


def members(home: Home) -> set[int]:
    """Return who is in the list; its count must say the same."""
    found = {row[0] for row in rows("SELECT contact_id FROM membership WHERE contact_list_id = 1")}
    assert lists.get(home.account_id, 1).contacts_count == len(found)
    return found


def tagged(home: Home, tag: str) -> set[int]:
    """Return who has a tag, in whatever letters."""
    return {row[0] for row in rows("SELECT id FROM contact") if tag.casefold() in {
        one.casefold() for one in tags.tags_of(store.get(home.account_id, row[0]).data)}}  # fmt: skip


@given(chosen=st.lists(st.integers(0, NUMBER + 2), max_size=12), name=st.sampled_from(
    ["list_add", "list_remove", "tag_add", "tag_remove"]))  # fmt: skip
def test_an_act_and_its_undo_leave_everything_as_it_was(
    home: Home, people: list[int], chosen: list[int], name: str
) -> None:
    """Whoever is chosen, also twice or no longer there: all are counted once, and undo restores who was changed."""
    ids = [people[one] if one < NUMBER else 900 + one for one in chosen]

    def look() -> set[int]:
        return members(home) if name.startswith("list_") else tagged(home, "customer")

    before = look()
    argument = {"contact_list_id": 1} if name.startswith("list_") else {"tag": "customer"}
    done = act(home, name, ids, **argument)
    here = set(ids) & set(people)
    after = before | here if name.endswith("_add") else before - here
    assert look() == after
    assert done.state == "done"
    assert done.contact_count == len(set(ids)) == done.changed + sum(done.skipped.values())
    assert done.changed == len(before ^ after)
    if done.changed:
        undo(home, done.id)
        with pytest.raises(Invalid):
            write(bulk_actions.undo, home.account_id, done.id, 1, HERE)
    assert look() == before


def test_what_cannot_be_undone_is_not_offered(home: Home, people: list[int]) -> None:
    """Unsubscribing keeps its evidence, deleting is final: neither can be taken back."""
    out = act(home, "unsubscribe", people)
    assert (out.changed, out.skipped, out.can_undo) == (3, {"not_subscribed": 4}, False)
    kept = rows("SELECT act, by, source, actor FROM consent WHERE act = 'opt_out'")
    assert kept == [("opt_out", "operator", "ui", "user:1")] * 3
    gone = act(home, "delete", [*people[:3], 999])
    assert (gone.changed, gone.skipped, gone.can_undo) == (3, {"gone": 1}, False)
    assert members(home) == {people[3], people[5]}


def test_an_act_reaches_nobody_of_another_account(home: Home, people: list[int]) -> None:
    """Ids of others' people are nobody's, and others' lists are not there."""
    other = write(lambda: int(accounts.create("Other").id))
    with pytest.raises(NotFound):
        write(bulk_actions.start, other, 1, "list_add", {"contact_list_id": 1}, people, HERE)
    with pytest.raises(NotFound):
        bulk_actions.get(other, act(home, "tag_add", people, tag="vip").id)
    theirs = write(bulk_actions.start, other, 1, "delete", {}, people, HERE)
    while write(bulk_actions.run_batch, theirs.id):
        pass
    assert bulk_actions.get(other, theirs.id).skipped == {"gone": NUMBER}
    assert len(rows("SELECT id FROM contact")) == NUMBER


def test_a_list_that_is_deleted_meanwhile_ends_the_act(home: Home, people: list[int]) -> None:
    """An act about a list that is gone fails as a whole; it does not go on for ever."""
    made = write(bulk_actions.start, home.account_id, 1, "list_add", {"contact_list_id": 1}, people, HERE)
    write(lists.delete, home.account_id, 1)
    assert write(bulk_actions.run_batch, made.id) is False
    assert bulk_actions.get(home.account_id, made.id).state == "failed"
    assert not bulk_actions.is_due()
