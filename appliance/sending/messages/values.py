"""What a merge tag may say: plain data about a person, the brand, the account and the message's own links."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from appliance.audience.segments import people
from appliance.content import media
from appliance.core.errors import Invalid
from appliance.sending.messages import links
from appliance.storage.models import Account, Brand, Channel, Contact
from appliance.storage.open import rows

# Kinds of addresses
_KINDS = ("email", "phone")


def of_contact(contact: Contact | None, address: str | None, kind: str = "email") -> dict[str, Any]:
    """Return the `contact` root and the bare names; `address` is the e-mail address or number that is written to."""
    if contact is None:
        return _named({"email": None, kind: address, "data": {}})
    channels: list[Channel] = getattr(contact, "channels", [])
    own = {one: next((channel.value for channel in channels if channel.kind == one), None) for one in _KINDS}
    if address:
        own[kind] = address
    return _named({
        "id": contact.id, "uuid": contact.uuid, "first_name": contact.first_name, "last_name": contact.last_name,
        "email": own["email"], "phone": own["phone"], "source": contact.source, "country_code": contact.country_code,
        "data": contact.data or {}, "tracking": contact.tracking,
    })  # fmt: skip


def of_contacts(ids: Iterable[int], needed: Collection[str] = ()) -> dict[int, dict[str, Any]]:
    """Return the `contact` root of many people at once, with those kinds of addresses that are needed.

    What each is written to is added by `of_person`.
    """
    listed = ",".join(str(int(one)) for one in ids)
    own: dict[str, dict[int, str]] = {kind: {} for kind in _KINDS}
    for kind in needed:
        of_kind = f"contact_id IN ({listed}) AND kind = '{kind}'"
        own[kind] = dict(rows(f"SELECT contact_id, value FROM channel WHERE {of_kind} ORDER BY id DESC"))
    found = rows(
        "SELECT id, uuid, first_name, last_name, source, country_code, data, tracking FROM contact "
        f"WHERE id IN ({listed})"
    )
    return {
        row[0]: {
            "id": row[0], "uuid": row[1], "first_name": row[2], "last_name": row[3], "email": own["email"].get(row[0]),
            "phone": own["phone"].get(row[0]), "source": row[4], "country_code": row[5],
            "data": (msgspec.json.decode(row[6]) if row[6] else None) or {}, "tracking": row[7],
        }
        for row in found
    }  # fmt: skip


def of_person(person: dict[str, Any] | None, address: str, kind: str = "email") -> dict[str, Any]:
    """Return the `contact` root and the bare names for somebody whom `of_contacts` knows, or for nobody."""
    if person is None:
        return of_contact(None, address, kind)
    person[kind] = address
    return _named(person)


def _named(person: dict[str, Any]) -> dict[str, Any]:
    """Return a person with the names that stand alone too."""
    return {
        "contact": person, "first_name": person.get("first_name"), "last_name": person.get("last_name"),
        "email": person["email"],
    }  # fmt: skip


def of_account(account: Account, brand: Brand) -> dict[str, Any]:
    """Return the `account` and `brand` roots."""
    return {
        "account": {"name": account.name},
        "brand": {
            "company_name": brand.company_name or account.name,
            "physical_address": brand.physical_address,
            "brand_color": brand.brand_color,
            "logo_url": media.shown(brand.logo),
            "links": brand.links or [],
        },
    }


def of_message(message_id: int, stop: str | None = None) -> dict[str, Any]:
    """Return the links of one message; `stop` is its unsubscribe link where that is known."""
    stop = stop or links.unsubscribe(message_id)
    return {
        "unsubscribe_url": stop, "preferences_url": links.preferences(message_id), "view_url": links.view(message_id),
    }  # fmt: skip


def shown(account_id: int, contact_id: int | None, conditions: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the `show` root for one person: which conditions hold. Where there is nobody, everything shows."""
    if contact_id is None:
        return {"show": dict.fromkeys(conditions, True)}
    return {"show": shown_to(account_id, [contact_id], conditions)[contact_id]} if conditions else {"show": {}}


def shown_to(
    account_id: int, contact_ids: Iterable[int], conditions: Mapping[str, list[Any]]
) -> dict[int, dict[str, bool]]:
    """Return for many contacts which conditions hold, by the SQL of a segment: one statement for each condition.

    Filters that cannot be read hold for nobody: what is meant for some is not shown to all.
    """
    ids = [int(one) for one in contact_ids]
    found: dict[int, dict[str, bool]] = {one: dict.fromkeys(conditions, False) for one in ids}
    listed = ",".join(map(str, ids))
    for name, filters in conditions.items():
        try:
            asked = people.condition(account_id, filters)
        except Invalid:
            continue
        sql = f"SELECT c.id FROM contact c WHERE c.id IN ({listed}) AND c.account_id = :one_account AND ({asked.sql})"
        for row in rows(sql, {**asked.parameters, "one_account": account_id}):
            found[row[0]][name] = True
    return found
