"""Look up contact lists, contacts, phone numbers and countries for pages."""

import unicodedata
from functools import cache
from typing import Any

from appliance.audience import lists
from appliance.audience.contacts import store, write
from appliance.core import addresses, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.messages.test_sends import MAX_RECIPIENTS
from appliance.sending.sms import numbers
from ui.session import Visit

MAX_OPTIONS = 100


def complete_phone(visit: Visit, text: str, country: str = "") -> str:
    """Return a phone number in E.164; text that is no phone number is unchanged.

    A number without a country code belongs to `country` (two letters), else to the country of the account.
    """
    try:
        return addresses.parse_written_phone(text, country or visit.account.country_code).value
    except ValueError:
        return text


def complete_test_phones(visit: Visit, texts: list[str]) -> list[str]:
    """Return the phone numbers of a test SMS in E.164; more numbers than a test may have are unchanged."""
    return [complete_phone(visit, text) for text in texts] if len(texts) <= MAX_RECIPIENTS else texts


def find_phone_error(visit: Visit, text: str, country: str = "") -> str | None:
    """Return what to do about a national number that cannot be read, or None for any other number.

    Its country is `country`, else that of the account; without both, the number needs a country code.
    """
    country = country or visit.account.country_code or ""
    try:
        addresses.parse_written_phone(text, country or None)
    except ValueError as error:
        if str(error) == addresses.NO_COUNTRY:
            return gettext("This number has no country code. Enter it like +44 20 7946 0018, or select its country.")
        if isinstance(error, addresses.InvalidNationalNumber):
            return gettext(
                "This number is not valid in %(country)s. If it is correct, enter it like +44 20 7946 0018.",
                country=i18n.place_country(country),
            )
    return None


def list_contact_lists(account_id: int) -> list[Any]:
    """Return up to MAX_OPTIONS contact lists of an account, sorted by name."""
    page = lists.fetch_page(account_id, lists.ListQuery(limit=MAX_OPTIONS)).rows
    return sorted(page, key=lambda row: row.name.casefold())


def contacts_by_id(ids: set[int]) -> dict[int, Any]:
    """Return the contacts with these ids, with their channels, by id."""
    return {contact.id: contact for contact in store.fetch_by_ids(sorted(ids))}


def find_owner(account_id: int, kind: str, text: str) -> Any:
    """Return the contact of an account that has an address of a kind (`email` or `phone`), or None.

    Raises ValueError if the address is invalid.
    """
    contact_id = write.find_owner(account_id, addresses.parse(kind, text))
    return store.get(account_id, contact_id) if contact_id else None


# Territories that have a calling region but no ISO 3166 code.
EXTRA_COUNTRY_NAMES = {
    "AC": gettext_noop("Ascension Island"), "TA": gettext_noop("Tristan da Cunha"), "XK": gettext_noop("Kosovo"),
}  # fmt: skip


def country_names() -> tuple[tuple[str, str], ...]:
    """Return the countries that phone numbers can belong to, as (two-letter code, name), sorted by name."""
    return _country_names(i18n.get_language())


@cache
def _country_names(language: str) -> tuple[tuple[str, str], ...]:
    names = EXTRA_COUNTRY_NAMES | numbers.country_names()
    with i18n.use_language(language):
        names |= dict(i18n.get_locale().territories)
    countries = ((code, names.get(code, code)) for code in addresses.phone_countries())
    # Accents are ignored: Åland is sorted as A.
    return tuple(sorted(countries, key=lambda country: unicodedata.normalize("NFKD", country[1]).casefold()))


def country_options(none: str, chosen: str = "") -> list[tuple[str, str]]:
    """Return the options of a country field as (code, label), starting with the empty option, whose label is `none`.

    The code `chosen` is included even if no phone number belongs to it.
    """
    names = country_names()
    beyond = [(chosen, chosen)] if chosen and chosen not in dict(names) else []
    return [("", none), *beyond, *names]


def language_options(none: str, chosen: str = "") -> list[tuple[str, str]]:
    """Return the options of a language field as (tag, label), starting with the empty option, whose label is `none`.

    The languages of the product come first, then all others by name. The tag `chosen` is always included.
    """
    first = [(tag.replace("_", "-"), i18n.name_language(tag)) for tag in i18n.LANGUAGES]
    further = [option for option in i18n.list_languages() if option not in first]
    known = {tag for tag, _ in (*first, *further)}
    beyond = [(chosen, i18n.name_language(chosen))] if chosen and chosen not in known else []
    return [("", none), *beyond, *first, *further]
