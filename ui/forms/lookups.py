"""Load the options of form fields, look up contacts and phone numbers, and describe and read audiences.

The options are contact lists, countries, languages and time zones. The audience of a campaign consists of lists and a
segment: its form is built from the campaign, and read into the campaign's trigger attributes.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple

from appliance.audience import lists
from appliance.audience.contacts import store, write
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.campaigns import audience
from appliance.core import addresses, clock, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.messages.test_sends import MAX_RECIPIENTS
from appliance.storage.models import Message
from ui import formats, forms
from ui.forms import Form, parse_id
from ui.session import Visit

MAX_OPTIONS = 100


def complete_phone(visit: Visit, text: str, country: str = "") -> str:
    """Return a phone number in E.164; text that is not a phone number is unchanged.

    A number without a country code belongs to `country` (two letters), else to the country of the account.
    """
    try:
        return addresses.parse_written_phone(text, country or visit.account.country_code).value
    except ValueError:
        return text


def complete_test_phones(visit: Visit, texts: list[str]) -> list[str]:
    """Return the phone numbers of a test SMS in E.164; more than `MAX_RECIPIENTS` texts are returned unchanged."""
    return [complete_phone(visit, text) for text in texts] if len(texts) <= MAX_RECIPIENTS else texts


def find_phone_error(visit: Visit, text: str, country: str = "") -> str | None:
    """Return an error sentence for a phone number that cannot be read without another country code, or None.

    A national number belongs to `country`, else to the country of the account. None is also returned for a text that
    is invalid for other reasons, which validation reports.
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
    return sorted(page, key=lambda row: i18n.fold(row.name))


def email_subjects(events: Sequence[Any]) -> dict[str, str]:
    """Return the subjects of the emails that are the objects of events, by `resource_uid`; without campaign emails."""
    uids = {
        event.resource_uid for event in events
        if (event.resource_uid or "").startswith("message:") and not event.data.get("campaign_id")
    }  # fmt: skip
    ids = [int(uid.removeprefix("message:")) for uid in uids if uid.removeprefix("message:").isdecimal()]
    if not ids:
        return {}
    messages = Message.select(Message.id, Message.subject).where(Message.id.in_(ids))
    return {f"message:{row.id}": row.subject for row in messages if row.subject}


def contacts_by_id(ids: set[int]) -> dict[int, Any]:
    """Return the contacts with these ids, including their channels, by id; ids without a contact are missing."""
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
    names = EXTRA_COUNTRY_NAMES | clock.country_names()
    with i18n.use_language(language):
        names |= dict(i18n.get_locale().territories)
    countries = ((code, names.get(code, code)) for code in addresses.phone_countries())
    return tuple(sorted(countries, key=lambda country: i18n.fold(country[1])))


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
    listed_tags = {tag for tag, _ in (*first, *further)}
    beyond = [(chosen, i18n.name_language(chosen))] if chosen and chosen not in listed_tags else []
    return [("", none), *beyond, *first, *further]


# Time zones: regions named by their cities in the language of the user, with current offsets from UTC.

# The time zones of each region. Selecting a region stores the first; its label names the cities of all.
REGIONS = tuple(
    tuple(line.split())
    for line in """
Pacific/Pago_Pago
Pacific/Honolulu
Pacific/Marquesas
America/Anchorage
America/Los_Angeles America/Vancouver America/Tijuana
America/Phoenix
America/Denver America/Edmonton
America/Mazatlan
America/Chicago America/Winnipeg
America/Mexico_City America/Monterrey
America/Regina
America/Guatemala America/Costa_Rica
America/New_York America/Toronto
America/Bogota America/Lima America/Panama
America/Havana
America/Caracas
America/Halifax Atlantic/Bermuda
America/La_Paz America/Puerto_Rico
America/Manaus
America/Santiago
America/Asuncion
America/St_Johns
America/Sao_Paulo America/Bahia
America/Argentina/Buenos_Aires
America/Montevideo
America/Nuuk
America/Noronha
Atlantic/Azores
Atlantic/Cape_Verde
Europe/London Europe/Dublin Europe/Lisbon
Atlantic/Reykjavik Africa/Abidjan Africa/Accra
Africa/Casablanca
Europe/Berlin Europe/Vienna Europe/Zurich
Europe/Paris Europe/Brussels Europe/Amsterdam
Europe/Madrid Europe/Rome
Europe/Warsaw Europe/Prague Europe/Budapest
Europe/Stockholm Europe/Copenhagen Europe/Oslo
Europe/Belgrade Europe/Zagreb Europe/Ljubljana
Africa/Lagos Africa/Algiers
Europe/Athens Europe/Bucharest Europe/Sofia
Europe/Helsinki Europe/Riga Europe/Tallinn Europe/Vilnius
Europe/Kyiv
Europe/Chisinau
Europe/Kaliningrad
Africa/Cairo
Asia/Jerusalem
Asia/Beirut
Africa/Johannesburg Africa/Maputo
Europe/Istanbul
Europe/Moscow Europe/Minsk
Asia/Riyadh Asia/Kuwait Asia/Baghdad
Africa/Nairobi
Asia/Tehran
Asia/Dubai Asia/Muscat
Asia/Baku Asia/Tbilisi Asia/Yerevan
Indian/Mauritius
Asia/Kabul
Asia/Karachi
Asia/Tashkent Asia/Almaty
Asia/Yekaterinburg
Asia/Kolkata Asia/Colombo
Asia/Kathmandu
Asia/Dhaka
Asia/Yangon
Asia/Bangkok Asia/Ho_Chi_Minh Asia/Jakarta
Asia/Novosibirsk
Asia/Shanghai Asia/Hong_Kong Asia/Taipei
Asia/Singapore Asia/Kuala_Lumpur Asia/Manila
Australia/Perth
Asia/Tokyo Asia/Seoul
Australia/Adelaide
Australia/Darwin
Australia/Sydney Australia/Melbourne
Australia/Brisbane
Australia/Hobart
Pacific/Guam Pacific/Port_Moresby
Asia/Vladivostok
Pacific/Noumea
Pacific/Auckland
Pacific/Fiji
Pacific/Tongatapu
Pacific/Kiritimati
""".strip().splitlines()
)
_HOUR_MS = 3_600_000
# A value, its label, and further words by which a search finds the option.
Option = tuple[str, str, str]


def time_zone_groups(chosen: str = "") -> list[tuple[str, list[Option]]]:
    """Return the options of a time zone field as (group, options): first the regions, then every other time zone.

    Both are sorted by their current offset from UTC; UTC itself is the first region. The time zone `chosen` is always
    an option: if it is in neither group, it is added before UTC.
    """
    regions, others = _load_options(i18n.get_language(), clock.now_ms() // _HOUR_MS)
    listed_zones = {value for value, _, _ in (*regions, *others)}
    unlisted = [(chosen, _label(_offset(chosen), chosen), "")] if chosen and chosen not in listed_zones else []
    return [(gettext("Regions"), [*unlisted, *regions]), (gettext("All time zones"), list(others))]


def describe_time_zone(name: str, at: int | None = None) -> str:
    """Return a time zone by its city and its offset at a time (ms), by default now: `Berlin (UTC+01:00)`."""
    if name == "UTC":
        return "UTC"
    return gettext("%(city)s (%(offset)s)", city=name_city(name), offset=_format_offset(_offset(name, at)))


@lru_cache(maxsize=16)
def _load_options(language: str, hour: int) -> tuple[list[Option], list[Option]]:
    """Return the regions and the other time zones in a language, with the offsets at `hour` (hours since 1970)."""
    from babel.core import get_global  # imported here, because it would delay the start of the service by 30 ms

    with i18n.use_language(language):
        countries = i18n.get_locale().territories
        territories: Any = get_global("zone_territories")
        spellings: dict[str, list[str]] = {}
        for alias, name in get_global("zone_aliases").items():
            spellings.setdefault(name, []).append(alias)
        moment = datetime.fromtimestamp(hour * _HOUR_MS / 1000, UTC)
        zones = {name: zone for name in territories if (zone := clock.find_time_zone(name)) is not None}
        offsets = {name: moment.astimezone(zone).utcoffset() for name, zone in zones.items()}

        def list_search_words(name: str) -> str:
            return " ".join((name, *spellings.get(name, ()), countries.get(territories.get(name, ""), "")))

        regions = [
            (offsets[names[0]], ", ".join(map(name_city, names)), names[0], " ".join(map(list_search_words, names)))
            for names in REGIONS
            if names[0] in offsets
        ]
        used = {names[0] for names in REGIONS}
        others = []
        for name in offsets:
            country = countries.get(territories[name], "")
            city = name_city(name)
            label = f"{city}, {country}" if country and country != city else city
            if name not in used and not name.startswith("Etc/"):
                others.append((offsets[name], label, name, " ".join((name, *spellings.get(name, ())))))
        utc_names: Any = i18n.get_locale().time_zones.get("Etc/UTC", {})
        utc_option = ("UTC", _label(0, utc_names.get("long", {}).get("standard", "UTC")), "Etc/UTC GMT Etc/GMT")
        return [utc_option, *_sort(regions)], _sort(others)


def _sort(rows: list[tuple[Any, str, str, str]]) -> list[Option]:
    """Return the options of rows (offset, name, value, search words), sorted by offset and name."""
    ordered = sorted(rows, key=lambda row: (row[0], i18n.fold(row[1])))
    return [(value, _label(int(offset.total_seconds()), name), search) for offset, name, value, search in ordered]


def _offset(name: str, at: int | None = None) -> int:
    """Return the offset of a time zone from UTC at a time (ms), by default now, in seconds; 0 for an unknown name."""
    moment = clock.now_ms() if at is None else at
    offset = datetime.fromtimestamp(moment / 1000, clock.find_time_zone(name) or UTC).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def _format_offset(seconds: int) -> str:
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"UTC{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"


def _label(seconds: int, name: str) -> str:
    return f"({_format_offset(seconds)}) {name}"


def name_city(name: str) -> str:
    """Return the name of a time zone's city in the current language."""
    names: Any = i18n.get_locale().time_zones.get(name, {})
    city = str(names.get("city") or name.rpartition("/")[2].replace("_", " "))
    return city.replace("\xad", "")  # German has soft hyphens in some names


# The form offers the first lists and segments only; further ones can be chosen with the API.
_MAX_PAGES, _PAGE_SIZE = 5, 100
_AUDIENCE_KEYS = (
    "audience_type", "confirm_send_to_all", "contact_list_ids", "exclude_contact_list_ids", "exclude_segment_ids",
)  # fmt: skip


class AudienceChoices(NamedTuple):
    """The lists and segments that the form offers, sorted by name."""

    lists: list[Any]
    segments: list[Any]

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the lists and segments by keys such as `list-3` and `segment-4`."""
        kinds = (("list", self.lists), ("segment", self.segments))
        return {f"{kind}-{row.id}": row.name for kind, group in kinds for row in group}


def load_audience_choices(account_id: int) -> AudienceChoices:
    """Return the lists and segments that the form offers, at most `_MAX_PAGES` × `_PAGE_SIZE` of each."""
    choices: tuple[list[Any], list[Any]] = ([], [])
    for into, ask, query in (
        (choices[0], lists.fetch_page, lists.ListQuery),
        (choices[1], segments.fetch_page, SegmentQuery),
    ):
        for number in range(1, _MAX_PAGES + 1):
            group: Any = ask(account_id, query(page=number, limit=_PAGE_SIZE))  # type: ignore[arg-type]  # each function takes its own query type
            into.extend(group.rows)
            if number >= group.pages:
                break
        into.sort(key=lambda row: i18n.fold(row.name))
    return AudienceChoices(*choices)


def describe_audience(campaign: Any, names: dict[str, str]) -> str:
    """Return the audience of a campaign in words: `Newsletter, VIP, narrowed to Berlin, excluding Staff`.

    `names` come from `AudienceChoices.names`: by key, such as `list-7`.
    """
    included, excluded = describe_included_audience(campaign, names), excluded_keys(campaign)
    if not included or not excluded:
        return included
    excluded_names = formats.join_names([names.get(key) or gettext("a deleted list or segment") for key in excluded])
    return gettext("%(audience)s, excluding %(names)s", audience=included, names=excluded_names)


def describe_included_audience(campaign: Any, names: Mapping[str, str]) -> str:
    """Return the lists and segments of a campaign's audience as text, without the excluded ones: `Newsletter, VIP`.

    An empty text means that no audience is chosen.
    """
    is_everyone = audience.is_everyone(campaign.trigger.data)
    return _describe_audience_choice(is_everyone, selected_list_ids(campaign), campaign.trigger.segment_id, names)


def _describe_audience_choice(
    is_everyone: bool, list_ids: Sequence[Any], segment_id: Any, names: Mapping[str, str]
) -> str:
    """Return chosen lists and a segment in words; an empty text if nothing is chosen."""
    included = [names.get(f"list-{id_}") or gettext("a deleted list") for id_ in list_ids]
    if is_everyone:
        included.insert(0, gettext("All contacts"))
    if not segment_id:
        return ", ".join(included)
    segment = names.get(f"segment-{segment_id}") or gettext("a deleted segment")
    if not included:
        return segment
    return gettext("%(lists)s, narrowed to %(segment)s", lists=", ".join(included), segment=segment)


def selected_list_ids(campaign: Any) -> list[int]:
    """Return the ids of the lists in a campaign's audience, without duplicates."""
    both = [campaign.trigger.contact_list_id, *(campaign.trigger.data.get("contact_list_ids") or [])]
    return [key for key in dict.fromkeys(both) if key]


def excluded_keys(campaign: Any) -> list[str]:
    """Return the lists and segments that a campaign's audience excludes, as keys such as `list-3` and `segment-4`."""
    data = campaign.trigger.data
    return [
        f"{kind}-{item}"
        for kind, key in (("list", "exclude_contact_list_ids"), ("segment", "exclude_segment_ids"))
        for item in dict.fromkeys(data.get(key) or [])
    ]


class AudienceParts(forms.FormParts):
    """The parts of the audience form, for edit conflicts, described in words with the names of lists and segments."""

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return a part in words; `names` maps keys such as `list-3` and `segment-4` to names."""
        if "without" in self.names(key):
            return super().describe(form, key, names)
        if form["who"] == "all":
            return gettext("All contacts")
        list_ids = [value for value in self._values(form, "list") if value]
        return _describe_audience_choice(False, list_ids, form["segment"], names) or gettext("No contacts")


def build_audience_form(campaign: Any) -> Form:
    """Return the audience form with the stored values of a campaign."""
    data = campaign.trigger.data
    values = {
        "who": "all" if audience.is_everyone(data) else "some",
        "segment": str(campaign.trigger.segment_id or ""),
        "sure": "yes" if data.get("confirm_send_to_all") is True else "",
    }
    return Form(values, {"list": [str(id_) for id_ in selected_list_ids(campaign)], "without": excluded_keys(campaign)})


def read_audience_form(form: Form, data: dict[str, Any]) -> dict[str, Any]:
    """Return the `trigger_attributes` of a campaign from a posted form.

    `data` is the trigger data stored so far; keys that the form does not have are kept.
    """
    stored: dict[str, Any] = {key: value for key, value in data.items() if key not in _AUDIENCE_KEYS}
    is_everyone = form["who"] == "all"
    list_ids = [] if is_everyone else form.ids("list")
    segment = None if is_everyone else parse_id(form["segment"]) or None
    if len(list_ids) > 1:
        stored["contact_list_ids"] = list_ids[1:]
    if is_everyone:
        stored["audience_type"] = "all_contacts"
    if form["sure"] == "yes":
        stored["confirm_send_to_all"] = True
    for kind, key in (("list", "exclude_contact_list_ids"), ("segment", "exclude_segment_ids")):
        out = [number for item in form.getlist("without") if (number := parse_id(item.removeprefix(f"{kind}-")))]
        if out:
            stored[key] = list(dict.fromkeys(out))
    return {"contact_list_id": list_ids[0] if list_ids else None, "segment_id": segment, "data": stored}
