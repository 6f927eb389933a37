"""Writing contacts: by address or id, with custom data and lists."""

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


def field_errors(function: Any, *arguments: Any, **keywords: Any) -> dict[str, list[str]]:
    """Return the field errors of a call that raises Invalid."""
    with pytest.raises(Invalid) as caught:
        function(*arguments, **keywords)
    return caught.value.fields


def addresses_of(contact: Contact) -> list[str]:
    """Return a contact's addresses in their order."""
    return [channel.value for channel in contact.channels]


def test_an_upsert_of_a_known_address_updates_its_contact(home: Home) -> None:
    """Addresses match in any case; fields sent overwrite, others stay, data is merged."""
    first = home.upsert(email="Ann@example.org", first_name="Ann", last_name="Lee", data={"a": 1, "b": {"x": 1}})
    second = home.upsert(email="ann@EXAMPLE.org", first_name="Anna", data={"b": {"y": 2}, "c": 3})
    assert (first.created, second.created) == (True, False)
    assert second.contact.id == first.contact.id and second.contact.uuid == first.contact.uuid
    assert (second.contact.first_name, second.contact.last_name) == ("Anna", "Lee")
    assert second.contact.data == {"a": 1, "b": {"y": 2}, "c": 3}
    assert addresses_of(second.contact) == ["Ann@example.org"]


def test_an_upsert_matches_by_email_then_by_phone(home: Home) -> None:
    """A contact found by phone gets the new email address."""
    by_email = home.contact("a@example.org", phone="+14155550001")
    assert home.upsert(email="a@example.org", phone="+14155550002").contact.id == by_email.id
    result = home.upsert(email="new@example.org", phone="+1 (415) 555-0002")
    assert result.contact.id == by_email.id and not result.created
    assert sorted(addresses_of(result.contact)) == ["+14155550002", "new@example.org"]


def test_an_upsert_with_addresses_of_two_contacts_is_rejected(home: Home) -> None:
    """The error is reported at `phone`, and nothing is written."""
    home.contact("a@example.org", first_name="A")
    home.contact("b@example.org", phone="+14155550123")
    assert field_errors(home.upsert, email="a@example.org", phone="+14155550123", first_name="X") == {
        "phone": ["has already been taken"]
    }
    assert store.find_by_words(home.account_id, "a@example.org").rows[0].first_name == "A"


def test_contacts_without_address(home: Home) -> None:
    """Each upsert without an address creates a new contact."""
    first, second = home.upsert(first_name="Ann"), home.upsert(first_name="Ann")
    assert first.created and second.created and first.contact.id != second.contact.id
    assert first.contact.channels == []


def test_a_patch_with_another_contacts_address_is_rejected(home: Home) -> None:
    """All errors are reported at their fields at once, and nothing changes."""
    home.contact("a@example.org", phone="+14155550123")
    mine = home.contact("b@example.org", first_name="B")
    body: dict[str, Any] = {
        "email": "A@example.org", "phone": "+14155550123", "list_ids": [99], "first_name": "X",
        "channels_attributes": [{"value": "c@example.org"}, {"value": "A@Example.org"}, {"id": 999},
                                {"_destroy": True}],
    }  # fmt: skip
    assert field_errors(home.patch, mine.id, **body) == {
        "email": ["has already been taken"],
        "phone": ["has already been taken"],
        "list_ids": ["must exist"],
        "channels_attributes[1].value": ["has already been taken"],
        "channels_attributes[2].id": ["must exist"],
        "channels_attributes[3].id": ["can't be blank"],
    }
    contact = store.get(home.account_id, mine.id)
    assert contact.first_name == "B" and addresses_of(contact) == ["b@example.org"]


def test_addresses_are_edited_added_and_removed(home: Home) -> None:
    """`id` edits a channel, no `id` adds one, `_destroy` removes one; the kind is that given or follows from the @."""
    contact = home.contact("a@example.org")
    updated = home.patch(
        contact.id,
        channels_attributes=[
            {"id": contact.channels[0].id, "value": "b@example.org"},
            {"value": "+14155550123"},
            {"value": "c@example.org", "kind": "email"},
        ],
    ).contact
    assert [(channel.kind, channel.value) for channel in updated.channels] == [
        ("email", "b@example.org"), ("phone", "+14155550123"), ("email", "c@example.org")
    ]  # fmt: skip
    updated = home.patch(contact.id, channels_attributes=[{"id": updated.channels[0].id, "_destroy": True}]).contact
    assert addresses_of(updated) == ["+14155550123", "c@example.org"]


def test_a_patch_keeps_absent_fields_and_clears_null(home: Home) -> None:
    """An absent field keeps its value, null clears it, and data is replaced as a whole."""
    contact = home.contact(
        "a@example.org", first_name="A", last_name="B", source="shop", data={"x": 1}, country_code="de"
    )
    changed = home.patch(contact.id, first_name=None, data={"y": 2}).contact
    assert (changed.first_name, changed.last_name, changed.source) == (None, "B", "shop")
    assert changed.country_code == "DE" and changed.data == {"y": 2}
    assert home.patch(contact.id, data=None).contact.data == {}


def test_the_country_follows_from_the_phone(home: Home) -> None:
    """Without `country_code` a contact has the country of its phone; a given `country_code` takes precedence."""
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
    """A merge patch gives the results of RFC 7396, appendix A, and does not change its target."""
    before = repr(target)
    assert write.merge_patch(target, patch) == result
    assert repr(target) == before


def test_data_merge_changes_parts_of_data(home: Home) -> None:
    """`data_merge` changes the stored data; together with `data` it changes that."""
    contact = home.contact("a@example.org", data={"plan": "pro", "address": {"city": "Rome", "zip": "1"}})
    changed = home.patch(
        contact.id, data_merge={"address": {"zip": None, "street": "Main"}, "plan": None, "n": 1}
    ).contact
    assert changed.data == {"address": {"city": "Rome", "street": "Main"}, "n": 1}
    assert home.patch(contact.id, data={"a": {"b": 1}}, data_merge={"a": {"c": 2}}).contact.data == {
        "a": {"b": 1, "c": 2}
    }


def test_merged_data_over_32_kib_is_rejected(home: Home) -> None:
    """The error is reported at `data` or `data_merge`, and the data stays as it was."""
    contact = home.contact("a@example.org", data={"a": "x" * 20_000})
    errors = ["is too long (maximum is 32768 bytes)"]
    assert field_errors(home.upsert, email="a@example.org", data={"b": "x" * 20_000}) == {"data": errors}
    assert field_errors(home.patch, contact.id, data_merge={"b": "x" * 20_000}) == {"data_merge": errors}
    assert store.get(home.account_id, contact.id).data == {"a": "x" * 20_000}


def test_lists_are_added_by_post_and_replaced_by_patch(home: Home) -> None:
    """`list_ids` adds on upsert and replaces on PATCH; counts follow; unknown lists are rejected."""
    first, second, third = (home.list_of(name=name).id for name in "abc")
    contact = home.contact("a@example.org", list_ids=[first, first])
    assert home.upsert(email="a@example.org", list_ids=[second]).contact.list_ids == [first, second]
    assert home.patch(contact.id, list_ids=[second, third]).contact.list_ids == [second, third]
    assert [lists.get(home.account_id, number).contacts_count for number in (first, second, third)] == [0, 1, 1]
    assert field_errors(home.upsert, email="b@example.org", list_ids=[first, 99]) == {"list_ids": ["must exist"]}
    assert home.patch(contact.id, list_ids=None).contact.list_ids == []


def test_a_deleted_contact_is_removed_everywhere(home: Home) -> None:
    """Deletion returns the contact; then it is in no list, no search result and no table."""
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


def test_accounts_have_separate_contacts(home: Home) -> None:
    """Another account has its own contact of the same address, and no access by id, search, list or channel."""
    from appliance.accounts import accounts

    mine, list_id = home.contact("a@example.org", first_name="Mine"), home.list_of().id
    home.opt_out("a@example.org")
    own_account_id, home.account_id = home.account_id, transactions.write(lambda: accounts.create("Other").id)
    other = home.upsert(email="a@example.org")
    assert other.created and other.kept_opt_out == [] and other.contact.channels[0].subscribed
    for access in (store.get, lambda account, number: home.patch(number, first_name="X"),
                  lambda account, number: transactions.write(removal.delete, account, number)):  # fmt: skip
        with pytest.raises(NotFound):
            access(home.account_id, mine.id)
    assert store.find_by_words(home.account_id, "Mine").total == 0
    assert field_errors(home.upsert, list_ids=[list_id]) == {"list_ids": ["must exist"]}
    foreign_channel = [{"id": mine.channels[0].id, "value": "x@example.org"}]
    assert field_errors(home.patch, other.contact.id, channels_attributes=foreign_channel) == {
        "channels_attributes[0].id": ["must exist"]
    }
    assert store.get(own_account_id, mine.id).first_name == "Mine"


def test_contact_queries_filter_the_list(home: Home) -> None:
    """Queries by source and tag ignore case; by consent and list they narrow the page; all are combined with AND."""
    number = home.list_of().id
    home.contact("a@example.org", source="Shop", data={"tags": ["VIP", "new"]}, list_ids=[number])
    home.contact("b@example.org", source="shop", data={"vip": "VIP"}, opt_in=False)
    home.upsert(phone="+14155550123", data={"tags": ["vip"]})

    def find_initials(**query: Any) -> list[str]:
        page = store.fetch_page(home.account_id, ContactQuery(**query))
        assert page.total == len(page.rows)
        return sorted(addresses_of(row)[0][0] for row in page.rows)

    assert find_initials() == ["+", "a", "b"]
    assert find_initials(source="SHOP") == ["a", "b"] and find_initials(tag="vip") == ["+", "a"]
    assert find_initials(subscribed_email=True) == ["a"] and find_initials(subscribed_email=False) == ["+", "b"]
    assert find_initials(subscribed_phone=True) == ["+"] and find_initials(list_id=number) == ["a"]
    assert find_initials(source="shop", subscribed_email=False) == ["b"]
