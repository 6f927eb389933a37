"""Contacts written: by address, by id, with their data and lists."""

from typing import Any

import pytest

from appliance.audience import lists
from appliance.audience.contacts import removal, store, write
from appliance.audience.contacts.store import ContactQuery
from appliance.core.errors import Invalid, NotFound
from appliance.storage import transactions
from appliance.storage.database import scalar
from appliance.storage.models import Contact
from tests.domain.home import Home


def faults(function: Any, *arguments: Any, **named: Any) -> dict[str, list[str]]:
    """Return the faults that a call is refused with."""
    with pytest.raises(Invalid) as caught:
        function(*arguments, **named)
    return caught.value.fields


def addresses_of(contact: Contact) -> list[str]:
    """Return a contact's addresses in their order."""
    return [channel.value for channel in contact.channels]


def test_a_known_address_updates(home: Home) -> None:
    """Posting a known address, in any case, updates its contact: sent fields overwrite, others stay, data merges."""
    first = home.upsert(email="Ann@example.org", first_name="Ann", last_name="Lee", data={"a": 1, "b": {"x": 1}})
    again = home.upsert(email="ann@EXAMPLE.org", first_name="Anna", data={"b": {"y": 2}, "c": 3})
    assert (first.created, again.created) == (True, False)
    assert again.contact.id == first.contact.id and again.contact.uuid == first.contact.uuid
    assert (again.contact.first_name, again.contact.last_name) == ("Anna", "Lee")
    assert again.contact.data == {"a": 1, "b": {"y": 2}, "c": 3}
    assert addresses_of(again.contact) == ["Ann@example.org"]


def test_the_phone_finds_who_the_email_does_not(home: Home) -> None:
    """The e-mail address is looked for first, then the phone; who is found by phone gets the new e-mail address."""
    by_email = home.contact("a@example.org", phone="+14155550001")
    assert home.upsert(email="a@example.org", phone="+14155550002").contact.id == by_email.id
    found = home.upsert(email="new@example.org", phone="+1 (415) 555-0002")
    assert found.contact.id == by_email.id and not found.created
    assert sorted(addresses_of(found.contact)) == ["+14155550002", "new@example.org"]


def test_two_people_are_not_mixed(home: Home) -> None:
    """An e-mail address of one and the phone of another contact is refused at `phone`, and nothing is written."""
    home.contact("a@example.org", first_name="A")
    home.contact("b@example.org", phone="+14155550123")
    assert faults(home.upsert, email="a@example.org", phone="+14155550123", first_name="X") == {
        "phone": ["has already been taken"]
    }
    assert store.find_by_words(home.account_id, "a@example.org").rows[0].first_name == "A"


def test_no_address_at_all_is_allowed(home: Home) -> None:
    """A contact may have no address; each such post is a new one."""
    first, second = home.upsert(first_name="Ann"), home.upsert(first_name="Ann")
    assert first.created and second.created and first.contact.id != second.contact.id
    assert first.contact.channels == []


def test_a_patch_may_not_take_what_is_anothers(home: Home) -> None:
    """Another contact's address is refused under the field that named it; all at once, and nothing changes."""
    home.contact("a@example.org", phone="+14155550123")
    mine = home.contact("b@example.org", first_name="B")
    body: dict[str, Any] = {
        "email": "A@example.org", "phone": "+14155550123", "list_ids": [99], "first_name": "X",
        "channels_attributes": [{"value": "c@example.org"}, {"value": "A@Example.org"}, {"id": 999},
                                {"_destroy": True}],
    }  # fmt: skip
    assert faults(home.patch, mine.id, **body) == {
        "email": ["has already been taken"],
        "phone": ["has already been taken"],
        "list_ids": ["must exist"],
        "channels_attributes[1].value": ["has already been taken"],
        "channels_attributes[2].id": ["must exist"],
        "channels_attributes[3].id": ["can't be blank"],
    }
    kept = store.get(home.account_id, mine.id)
    assert kept.first_name == "B" and addresses_of(kept) == ["b@example.org"]


def test_addresses_are_edited_added_and_removed(home: Home) -> None:
    """`id` edits, no `id` adds, `_destroy` removes; `kind` decides, else the @ does."""
    contact = home.contact("a@example.org")
    done = home.patch(
        contact.id,
        channels_attributes=[
            {"id": contact.channels[0].id, "value": "b@example.org"},
            {"value": "+14155550123"},
            {"value": "c@example.org", "kind": "email"},
        ],
    ).contact
    assert [(one.kind, one.value) for one in done.channels] == [
        ("email", "b@example.org"), ("phone", "+14155550123"), ("email", "c@example.org")
    ]  # fmt: skip
    done = home.patch(contact.id, channels_attributes=[{"id": done.channels[0].id, "_destroy": True}]).contact
    assert addresses_of(done) == ["+14155550123", "c@example.org"]


def test_absent_keeps_and_null_clears(home: Home) -> None:
    """On PATCH an absent field keeps, null clears, and data is replaced whole."""
    contact = home.contact(
        "a@example.org", first_name="A", last_name="B", source="shop", data={"x": 1}, country_code="de"
    )
    changed = home.patch(contact.id, first_name=None, data={"y": 2}).contact
    assert (changed.first_name, changed.last_name, changed.source) == (None, "B", "shop")
    assert changed.country_code == "DE" and changed.data == {"y": 2}
    assert home.patch(contact.id, data=None).contact.data == {}


def test_the_country_follows_from_the_phone(home: Home) -> None:
    """Without a country of its own, a contact has that of its phone; a sent one counts."""
    assert home.upsert(phone="+4930901820").contact.country_code == "DE"
    assert home.upsert(phone="+4930901821", country_code="at").contact.country_code == "AT"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_is_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    """A merge patch does what the table of RFC 7396, appendix A, says, and leaves its target as it was."""
    before = repr(target)
    assert write.merge_patch(target, patch) == result
    assert repr(target) == before


def test_data_merge_changes_parts_of_data(home: Home) -> None:
    """`data_merge` changes what is stored; together with `data` it changes what was sent."""
    contact = home.contact("a@example.org", data={"plan": "pro", "address": {"city": "Rome", "zip": "1"}})
    changed = home.patch(
        contact.id, data_merge={"address": {"zip": None, "street": "Main"}, "plan": None, "n": 1}
    ).contact
    assert changed.data == {"address": {"city": "Rome", "street": "Main"}, "n": 1}
    assert home.patch(contact.id, data={"a": {"b": 1}}, data_merge={"a": {"c": 2}}).contact.data == {
        "a": {"b": 1, "c": 2}
    }


def test_merged_data_stays_within_its_limit(home: Home) -> None:
    """Data that grows over 32 KiB by merging is refused under the field that did it."""
    contact = home.contact("a@example.org", data={"a": "x" * 20_000})
    words = ["is too long (maximum is 32768 bytes)"]
    assert faults(home.upsert, email="a@example.org", data={"b": "x" * 20_000}) == {"data": words}
    assert faults(home.patch, contact.id, data_merge={"b": "x" * 20_000}) == {"data_merge": words}
    assert store.get(home.account_id, contact.id).data == {"a": "x" * 20_000}


def test_lists_are_added_by_post_and_replaced_by_patch(home: Home) -> None:
    """`list_ids` adds on upsert and replaces on PATCH; counts follow; unknown lists are refused."""
    one, two, three = (home.list_of(name=name).id for name in "abc")
    contact = home.contact("a@example.org", list_ids=[one, one])
    assert home.upsert(email="a@example.org", list_ids=[two]).contact.list_ids == [one, two]
    assert home.patch(contact.id, list_ids=[two, three]).contact.list_ids == [two, three]
    assert [lists.get(home.account_id, number).contacts_count for number in (one, two, three)] == [0, 1, 1]
    assert faults(home.upsert, email="b@example.org", list_ids=[one, 99]) == {"list_ids": ["must exist"]}
    assert home.patch(contact.id, list_ids=None).contact.list_ids == []


def test_a_deleted_contact_is_gone(home: Home) -> None:
    """A deleted contact answers as it was, and then is in no list, no search and no table."""
    number = home.list_of().id
    contact = home.contact("gone@example.org", first_name="Gone", list_ids=[number])
    assert addresses_of(transactions.write(removal.delete, home.account_id, contact.id)) == ["gone@example.org"]
    with pytest.raises(NotFound):
        store.get(home.account_id, contact.id)
    assert (
        store.find_by_words(home.account_id, "gone").total == 0
        and lists.get(home.account_id, number).contacts_count == 0
    )
    assert scalar("SELECT count(*) FROM channel") == scalar("SELECT count(*) FROM membership") == 0


def test_accounts_are_apart(home: Home) -> None:
    """Another account has its own contact of the same address, and nothing of it by id, search, list or write."""
    from appliance.accounts import accounts

    mine, list_id = home.contact("a@example.org", first_name="Mine"), home.list_of().id
    home.leave("a@example.org")
    ours, home.account_id = home.account_id, transactions.write(lambda: accounts.create("Other").id)
    other = home.upsert(email="a@example.org")
    assert other.created and other.kept_opt_out == [] and other.contact.channels[0].subscribed
    for reach in (store.get, lambda account, number: home.patch(number, first_name="X"),
                  lambda account, number: transactions.write(removal.delete, account, number)):  # fmt: skip
        with pytest.raises(NotFound):
            reach(home.account_id, mine.id)
    assert store.find_by_words(home.account_id, "Mine").total == 0
    assert faults(home.upsert, list_ids=[list_id]) == {"list_ids": ["must exist"]}
    foreign = [{"id": mine.channels[0].id, "value": "x@example.org"}]
    assert faults(home.patch, other.contact.id, channels_attributes=foreign) == {
        "channels_attributes[0].id": ["must exist"]
    }
    assert store.get(ours, mine.id).first_name == "Mine"


def test_filters_find_who_they_name(home: Home) -> None:
    """Filters of the list narrow it: source and tags without case, consent, list; they are joined by and."""
    number = home.list_of().id
    home.contact("a@example.org", source="Shop", data={"tags": ["VIP", "new"]}, list_ids=[number])
    home.contact("b@example.org", source="shop", data={"vip": "VIP"}, opt_in=False)
    home.upsert(phone="+14155550123", data={"tags": ["vip"]})

    def found(**query: Any) -> list[str]:
        page = store.fetch_page(home.account_id, ContactQuery(**query))
        assert page.total == len(page.rows)
        return sorted(addresses_of(row)[0][0] for row in page.rows)

    assert found() == ["+", "a", "b"]
    assert found(source="SHOP") == ["a", "b"] and found(tag="vip") == ["+", "a"]
    assert found(subscribed_email=True) == ["a"] and found(subscribed_email=False) == ["+", "b"]
    assert found(subscribed_phone=True) == ["+"] and found(list_id=number) == ["a"]
    assert found(source="shop", subscribed_email=False) == ["b"]
