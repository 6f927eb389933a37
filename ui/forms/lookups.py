"""Contact lists, contacts, phone numbers and countries, as pages look them up and offer them."""

from functools import cache
from typing import Any

from appliance.audience import lists
from appliance.audience.contacts import store, write
from appliance.core import addresses
from appliance.sending.sms import numbers
from ui.session import Visit

MAX_OPTIONS = 100


def complete_phone(visit: Visit, text: str) -> str:
    """Return a phone number in E.164, completed by the country of the account; as it was typed if it cannot be."""
    try:
        return addresses.parse_written_phone(text, visit.account.country_code).value
    except ValueError:
        return text


def find_phone_error(visit: Visit, text: str) -> str | None:
    """Return why a phone number cannot be completed, or None if it is not for a missing country code."""
    try:
        addresses.parse_written_phone(text, visit.account.country_code)
    except ValueError as error:
        if str(error) == addresses.NO_COUNTRY:
            return "This number has no country code. Write it like +44 20 7946 0018, or set a country in Settings."
    return None


def list_contact_lists(account_id: int) -> list[Any]:
    """Return the lists of an account, by name; enough of them to choose from."""
    page = lists.fetch_page(account_id, lists.ListQuery(limit=MAX_OPTIONS)).rows
    return sorted(page, key=lambda row: row.name.casefold())


def contacts_by_id(ids: set[int]) -> dict[int, Any]:
    """Return people by their ids, with their addresses."""
    return {contact.id: contact for contact in store.fetch_by_ids(sorted(ids))}


def find_owner(account_id: int, kind: str, text: str) -> Any:
    """Return the contact that has an address or a number, or None."""
    contact_id = write.find_owner(account_id, addresses.parse(kind, text))
    return store.get(account_id, contact_id) if contact_id else None


# These have their own calling region, but no code of ISO 3166.
EXTRA_COUNTRY_NAMES = {"AC": "Ascension Island", "TA": "Tristan da Cunha", "XK": "Kosovo"}


@cache
def country_names() -> tuple[tuple[str, str], ...]:
    """Return the countries that phone numbers belong to, as two letters and English name, by name."""
    names = EXTRA_COUNTRY_NAMES | numbers.country_names()
    return tuple(
        sorted(((code, names.get(code, code)) for code in addresses.phone_countries()), key=lambda country: country[1])
    )


def country_options(none: str, chosen: str = "") -> list[tuple[str, str]]:
    """Return the options of a country field; `none` is the label of no country. The `chosen` one is always included."""
    names = country_names()
    beyond = [(chosen, chosen)] if chosen and chosen not in dict(names) else []
    return [("", none), *beyond, *names]
