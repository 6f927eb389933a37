"""Bulk actions: they change what the single action changes, report who was changed, and can be undone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import accounts
from appliance.audience import bulk_actions, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal, statuses, store
from appliance.audience.contacts import write as tags
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Invalid, NotFound
from appliance.storage.database import rows
from appliance.storage.transactions import write
from tests.domain.home import Home

EVIDENCE = Evidence("ui", "user:1")
CONTACT_COUNT = 7


@pytest.fixture
def contact_ids(home: Home) -> list[int]:
    """Create contacts, every second one subscribed, tagged and in a list, and return their ids."""
    ids = []
    newsletter = write(lists.create, home.account_id, lists.ListCreate(name="Newsletter"))
    for number in range(CONTACT_COUNT):
        is_odd = bool(number % 2)
        data = {"tags": ["Customer"]} if is_odd else {"city": "Bath"}
        result = home.upsert(
            email=f"p{number}@example.com", opt_in=is_odd, data=data, list_ids=[newsletter.id] if is_odd else []
        )
        ids.append(int(result.contact.id))
    return ids


def run_action(home: Home, name: str, ids: list[int], **argument: Any) -> Any:
    """Run a bulk action to its end and return it."""
    action = write(bulk_actions.start, home.account_id, 1, name, argument, ids, EVIDENCE)
    while write(bulk_actions.run_batch, action.id):
        pass
    return bulk_actions.get(home.account_id, action.id)


def undo_action(home: Home, action_id: int) -> Any:
    """Undo a bulk action and return the action that did so."""
    action = write(bulk_actions.undo, home.account_id, action_id, 1, EVIDENCE)
    while write(bulk_actions.run_batch, action.id):
        pass
    return bulk_actions.get(home.account_id, action.id)


def test_the_count_of_subscribed_contacts_is_current_after_an_action(
    home: Home, contact_ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large account the count is cached; the end of a bulk action makes it anew. It never exceeds the total."""
    monkeypatch.setattr(statuses, "_counts", CostAwareCache[tuple[int, int, int]](min_age_seconds=60))
    assert statuses.count_contacts(home.account_id)[:2] == (7, 3)
    run_action(home, "unsubscribe", contact_ids[:2])
    assert statuses.count_contacts(home.account_id)[:2] == (7, 2)
    for contact_id in contact_ids[:6]:
        write(removal.delete, home.account_id, contact_id)
    assert statuses.count_contacts(home.account_id)[:2] == (1, 1)


def members(home: Home) -> set[int]:
    """Return the ids of the list's members, after a check of the list's count."""
    ids = {row[0] for row in rows("SELECT contact_id FROM membership WHERE contact_list_id = 1")}
    assert lists.get(home.account_id, 1).contacts_count == len(ids)
    return ids


def contacts_with_tag(home: Home, tag: str) -> set[int]:
    """Return the ids of contacts with a tag, in any case."""
    return {row[0] for row in rows("SELECT id FROM contact") if tag.casefold() in {
        name.casefold() for name in tags.tags_of(store.get(home.account_id, row[0]).data)}}  # fmt: skip


@given(chosen=st.lists(st.integers(0, CONTACT_COUNT + 2), max_size=12), name=st.sampled_from(
    ["list_add", "list_remove", "tag_add", "tag_remove"]))  # fmt: skip
def test_undo_restores_the_state_before_a_bulk_action(
    home: Home, contact_ids: list[int], chosen: list[int], name: str
) -> None:
    """Repeated and deleted contacts count once; undo restores all changed contacts, and works only once."""
    ids = [contact_ids[index] if index < CONTACT_COUNT else 900 + index for index in chosen]

    def affected_ids() -> set[int]:
        return members(home) if name.startswith("list_") else contacts_with_tag(home, "customer")

    before = affected_ids()
    argument = {"contact_list_id": 1} if name.startswith("list_") else {"tag": "customer"}
    action = run_action(home, name, ids, **argument)
    existing = set(ids) & set(contact_ids)
    after = before | existing if name.endswith("_add") else before - existing
    assert affected_ids() == after
    assert action.state == "done"
    assert action.contact_count == len(set(ids)) == action.changed + sum(action.skipped.values())
    assert action.changed == len(before ^ after)
    if action.changed:
        undo_action(home, action.id)
        with pytest.raises(Invalid):
            write(bulk_actions.undo, home.account_id, action.id, 1, EVIDENCE)
    assert affected_ids() == before


def test_unsubscribing_and_deleting_cannot_be_undone(home: Home, contact_ids: list[int]) -> None:
    """Unsubscribing records evidence; neither action offers an undo."""
    unsubscribed = run_action(home, "unsubscribe", contact_ids)
    assert (unsubscribed.changed, unsubscribed.skipped, unsubscribed.can_undo) == (3, {"not_subscribed": 4}, False)
    consent_rows = rows("SELECT act, by, source, actor FROM consent WHERE act = 'opt_out'")
    assert consent_rows == [("opt_out", "operator", "ui", "user:1")] * 3
    deleted = run_action(home, "delete", [*contact_ids[:3], 999])
    assert (deleted.changed, deleted.skipped, deleted.can_undo) == (3, {"gone": 1}, False)
    assert members(home) == {contact_ids[3], contact_ids[5]}


def test_a_bulk_action_does_not_affect_other_accounts(home: Home, contact_ids: list[int]) -> None:
    """Contacts of another account are skipped as gone; its lists and actions raise NotFound."""
    other = write(lambda: int(accounts.create("Other").id))
    with pytest.raises(NotFound):
        write(bulk_actions.start, other, 1, "list_add", {"contact_list_id": 1}, contact_ids, EVIDENCE)
    with pytest.raises(NotFound):
        bulk_actions.get(other, run_action(home, "tag_add", contact_ids, tag="vip").id)
    action = write(bulk_actions.start, other, 1, "delete", {}, contact_ids, EVIDENCE)
    while write(bulk_actions.run_batch, action.id):
        pass
    assert bulk_actions.get(other, action.id).skipped == {"gone": CONTACT_COUNT}
    assert len(rows("SELECT id FROM contact")) == CONTACT_COUNT


def test_deleting_the_list_fails_its_bulk_action(home: Home, contact_ids: list[int]) -> None:
    """A bulk action for a list deleted meanwhile fails and is not retried."""
    action = write(bulk_actions.start, home.account_id, 1, "list_add", {"contact_list_id": 1}, contact_ids, EVIDENCE)
    write(lists.delete, home.account_id, 1)
    assert write(bulk_actions.run_batch, action.id) is False
    assert bulk_actions.get(home.account_id, action.id).state == "failed"
    assert not bulk_actions.is_due()
