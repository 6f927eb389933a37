"""What several pages say about people: the evidence of an act here, and names for ids."""

from typing import Any

from appliance.audience.contacts import channels, lists, store
from appliance.audience.contacts.consent import Evidence
from appliance.core import addresses
from ui.session import Visit

MAX_CONTACTS = 100


def evidence(visit: Visit) -> Evidence:
    """Return the evidence of what this person does on a page."""
    return Evidence("ui", visit.actor, visit.request.ctx.client, visit.request.headers.get("user-agent"))


def written_phone(visit: Visit, text: str) -> str:
    """Return a phone number in E.164, completed by the country of the account; as it was typed if it cannot be."""
    try:
        return addresses.written_phone(text, visit.account.country_code).value
    except ValueError:
        return text


def phone_fault(visit: Visit, text: str) -> str | None:
    """Return what a phone number lacks as it was typed; None if that is no country code."""
    try:
        addresses.written_phone(text, visit.account.country_code)
    except ValueError as fault:
        if str(fault) == addresses.NO_COUNTRY:
            return "This number has no country code. Write it like +44 20 7946 0018, or set a country in Settings."
    return None


def all_lists(account_id: int) -> list[Any]:
    """Return the lists of an account, by name; enough of them to choose from."""
    found = lists.page(account_id, lists.ListQuery(limit=MAX_CONTACTS)).rows
    return sorted(found, key=lambda row: row.name.casefold())


def by_id(ids: set[int]) -> dict[int, Any]:
    """Return people by their ids, with their addresses."""
    return {contact.id: contact for contact in store.by_ids(sorted(ids))}


def owner(account_id: int, kind: str, text: str) -> Any:
    """Return who has an address or a number, with their addresses; None if nobody has."""
    found = channels.owner(account_id, addresses.read(kind, text))
    return store.get(account_id, found) if found else None
