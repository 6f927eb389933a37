"""Values of merge tags (contact, brand, account) as plain data, and their menu with examples."""

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content import media
from appliance.content.designs import merge
from appliance.content.templates import store as templates
from appliance.core import i18n
from appliance.core.i18n import gettext
from appliance.storage import masking
from appliance.storage.database import fetch_one as first
from appliance.storage.database import rows
from appliance.storage.models import Account, Brand, Channel, Contact, Flow

_ADDRESS_KINDS = ("email", "phone")


def get_contact_values(contact: Contact | None, address: str | None, kind: str = "email") -> dict[str, Any]:
    """Return the merge tag values of a contact under `contact`, and under short names such as `first_name`.

    `address` is the recipient's address, of the kind `email` or `phone`; it replaces the contact's own. Without a
    contact, all other values are empty.
    """
    if contact is None:
        return _add_short_names({"email": None, kind: address, "data": {}})
    channels: list[Channel] = getattr(contact, "channels", [])
    addresses = {
        address_kind: next((channel.value for channel in channels if channel.kind == address_kind), None)
        for address_kind in _ADDRESS_KINDS
    }
    if address:
        addresses[kind] = address
    return _add_short_names({
        "id": contact.id, "uuid": contact.uuid, "first_name": contact.first_name, "last_name": contact.last_name,
        "email": addresses["email"], "phone": addresses["phone"], "source": contact.source,
        "country_code": contact.country_code, "language": contact.language,
        "data": contact.data or {}, "tracking": contact.tracking,
    })  # fmt: skip


def fetch_contact_values(ids: Iterable[int], needed: Collection[str] = ()) -> dict[int, dict[str, Any]]:
    """Return the values under `contact` (as in `{{ contact.city }}`) of many contacts by id; unknown ids are left out.

    `needed` lists the kinds of addresses to read (`email`, `phone`); addresses of other kinds are None. Pass each
    contact's values to `get_recipient_values`, which adds the recipient's address.
    """
    id_list = ",".join(str(int(contact_id)) for contact_id in ids)
    addresses: dict[str, dict[int, str]] = {kind: {} for kind in _ADDRESS_KINDS}
    for kind in needed:
        condition = f"contact_id IN ({id_list}) AND kind = '{kind}'"
        addresses[kind] = dict(rows(f"SELECT contact_id, value FROM channel WHERE {condition} ORDER BY id DESC"))
    contact_rows = rows(
        "SELECT id, uuid, first_name, last_name, source, country_code, data, tracking, language FROM contact "
        f"WHERE id IN ({id_list})"
    )
    return {
        row[0]: {
            "id": row[0], "uuid": row[1], "first_name": row[2], "last_name": row[3],
            "email": addresses["email"].get(row[0]), "phone": addresses["phone"].get(row[0]),
            "source": row[4], "country_code": row[5], "language": row[8],
            "data": (msgspec.json.decode(row[6]) if row[6] else None) or {}, "tracking": row[7],
        }
        for row in contact_rows
    }  # fmt: skip


def fetch_languages(ids: Iterable[int]) -> dict[int, str]:
    """Return the languages of contacts by id; contacts whose language is unknown are left out."""
    id_list = ",".join(str(int(contact_id)) for contact_id in ids)
    return dict(rows(f"SELECT id, language FROM contact WHERE id IN ({id_list}) AND language IS NOT NULL"))


def get_recipient_values(values: dict[str, Any] | None, address: str, kind: str = "email") -> dict[str, Any]:
    """Return the values under `contact`, and under short names such as `first_name`, for a message to `address`.

    `values` are a contact's values from `fetch_contact_values`, or None if there is no contact. They are changed: the
    address is stored in them.
    """
    if values is None:
        return get_contact_values(None, address, kind)
    values[kind] = address
    return _add_short_names(values)


def _add_short_names(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values under `contact`, and those that may be written without `contact.` before them."""
    return {
        "contact": values, "first_name": values.get("first_name"), "last_name": values.get("last_name"),
        "email": values["email"],
    }  # fmt: skip


def get_account_values(account: Account, brand: Brand) -> dict[str, Any]:
    """Return the values under `account` and `brand`, as in `{{ brand.company_name }}`."""
    return {
        "account": {"name": account.name},
        "brand": {
            "company_name": brand.company_name or account.name,
            "physical_address": brand.physical_address,
            "brand_color": brand.brand_color,
            "logo_url": media.resolve_url(brand.logo),
            "links": brand.links or [],
        },
    }


def move_logo(account_id: int, values: dict[str, Any], base_url: str) -> dict[str, Any]:
    """Return the merge tag values of a message with the brand's logo under `base_url`, the base URL of the account."""
    logo_url = values["brand"]["logo_url"]
    if not logo_url:
        return values
    return values | {"brand": values["brand"] | {"logo_url": media.move_urls(account_id, logo_url, base_url)}}


# The menu of merge tags: groups with examples, and the share of contacts that lack a value.

_MAX_EVENTS = 200
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]+(?:Z|[+-][0-9:]+)?)?")


class MergeTag(NamedTuple):
    """A merge tag in the menu: its name as written in a template, its label, and a longer name for it (`alias`).

    `missing_share` is the share of contacts (0 to 1) without a value, or None if that was not measured. `text` is the
    link text of a tag that is a link. `fallback` is the default text for contacts without a value.
    """

    name: str
    label: str
    example: str = ""
    missing_share: float | None = None
    alias: str = ""
    text: str = ""
    fallback: str = ""

    @property
    def tag(self) -> str:
        """Return the tag as it is written in a template, in double braces."""
        return f"{{{{ {self.name} }}}}"

    @property
    def describe_missing_share(self) -> str:
        """Return the share of contacts without a value as a phrase, or an empty string."""
        if not self.missing_share:
            return ""
        if self.missing_share == 1:
            return gettext("No contact has a value")
        share = min(99, max(1, round(self.missing_share * 100)))
        return gettext("%(percentage)s of contacts have no value", percentage=i18n.format_percent(share / 100, 0))


class MergeTagGroup(NamedTuple):
    """A labelled group of merge tags in the menu."""

    label: str
    tags: list[MergeTag]


def list_merge_tags(
    account_id: int, template_id: int | None = None, links: bool = True, contact: Contact | None = None,
    data_labels: Mapping[str, str] | None = None,
) -> list[MergeTagGroup]:  # fmt: skip
    """Return the groups of merge tags for a template, or for any template if `template_id` is None. Raises NotFound.

    The examples are values of `contact`, by default of the newest contacts that have a value. `data_labels` are labels
    of custom data by path, for keys that are not readable by themselves. The group of links is left out for an SMS
    template and if `links` is false. Empty groups are left out.
    """
    template = templates.get(account_id, template_id) if template_id else None
    account, brand = Account.get_by_id(account_id), brands.get(account_id)
    data_examples = {key.name: key.example for key in summarize_objects([contact.data])} if contact else {}
    labels = data_labels or {}
    event_tags = _list_event_tags(template.flow) if template is not None and template.flow_id else []
    groups = [
        MergeTagGroup(gettext("Contact"), _list_contact_tags(account_id, contact)),
        MergeTagGroup(gettext("Custom fields"), [
            _build_data_tag(key, labels.get(key.name) or _write_label(key.name),
                            key.example if contact is None else data_examples.get(key.name, ""), account.locale)
            for key in summarize_data_keys(account_id)
        ]),
        MergeTagGroup(gettext("Event"), event_tags),
        MergeTagGroup(gettext("Brand"), [
            MergeTag("brand.company_name", gettext("Company"), brand.company_name or account.name),
            MergeTag("brand.physical_address", gettext("Postal address"), (brand.physical_address or "")[:40]),
            MergeTag("campaign.name", gettext("Campaign name")),
        ]),
    ]  # fmt: skip
    if links and (template is None or template.channel == "email"):
        groups.append(MergeTagGroup(gettext("Links"), [
            MergeTag("unsubscribe_url", gettext("Unsubscribe link"), text="Unsubscribe"),
            MergeTag("preferences_url", gettext("Preferences link"), text="Preferences"),
            MergeTag("view_url", gettext("View-in-browser link"), text="View in browser"),
        ]))  # fmt: skip
    return [group for group in groups if group.tags]


def _list_contact_tags(account_id: int, contact: Contact | None) -> list[MergeTag]:
    columns = summarize_columns(account_id)
    if contact is not None:
        columns = {name: key._replace(example=getattr(contact, name) or "") for name, key in columns.items()}
    email = get_contact_values(contact, None)["email"] if contact is not None else ""
    first, last = columns["first_name"], columns["last_name"]
    return [
        MergeTag(
            "first_name",
            gettext("First name"),
            str(first.example),
            first.missing_share,
            "contact.first_name",
            fallback="friend",
        ),
        MergeTag("last_name", gettext("Last name"), str(last.example), last.missing_share, "contact.last_name"),
        MergeTag("email", gettext("Email"), email or "", alias="contact.email"),
        MergeTag(
            "contact.country_code",
            gettext("Country"),
            str(columns["country_code"].example),
            columns["country_code"].missing_share,
        ),
        MergeTag(
            "contact.language",
            gettext("Language"),
            str(columns["language"].example),
            columns["language"].missing_share,
        ),
    ]


def _list_event_tags(flow: Flow) -> list[MergeTag]:
    """Return merge tags for the data of a flow's events, found in the last `_MAX_EVENTS` events of each trigger."""
    if flow.hidden:
        return []
    names = rows("SELECT DISTINCT event FROM trigger WHERE flow_id = ?", (flow.id,))
    event_rows = [
        row for (name,) in names for row in rows(
            "SELECT data FROM event WHERE account_id = ? AND event = ? ORDER BY created_at DESC, id DESC LIMIT ?",
            (flow.account_id, name, _MAX_EVENTS),
        )
    ]  # fmt: skip
    objects = [msgspec.json.decode(text) if text else None for (text,) in event_rows]
    return [
        MergeTag(
            f"event{_write_path(summary.name)}",
            _write_label(summary.name),
            _format_example(summary.example),
            summary.missing_share,
        )
        for summary in summarize_objects(objects)
    ]


def _write_path(name: str) -> str:
    """Return the path of a value without its first name: with dots, or all in brackets if a part is not a word."""
    parts = name.split(".")
    plain = all(part.isidentifier() and part.isascii() and not part.startswith("_") for part in parts)
    return "".join(f".{part}" if plain else f'["{part}"]' for part in parts)


def _write_label(name: str) -> str:
    label = name.replace(".", " ").replace("_", " ").strip() or name
    return label[:1].upper() + label[1:]


# The number of newest contacts whose custom data is summarized.
_SAMPLED_CONTACTS = 1_000
_MAX_KEYS = 60
_MAX_EXAMPLE_CHARACTERS = 40
# Keys that match this pattern cannot be used in a merge tag.
_NOT_NAMEABLE = re.compile(r"""["'{}.\[\]]|^_""")
# Summaries are cached for this number of seconds.
_CACHE_SECONDS = 30
_COLUMNS = ("first_name", "last_name", "source", "country_code", "language")


class DataKey(NamedTuple):
    """A standard field or a key of custom data, as the list of merge tags shows it.

    `name` is its name in a merge tag, `example` a value, and `missing_share` the share of contacts without a value (0
    to 1).
    """

    name: str
    example: str | int | float
    missing_share: float


def find_contact_without_name(account_id: int) -> Contact | None:
    """Return the newest contact without a first name, or None.

    A contact that was added in the last `_CACHE_SECONDS` may be missed.
    """
    if not summarize_columns(account_id)["first_name"].missing_share:
        return None
    row = first(
        "SELECT id FROM contact WHERE account_id = ? AND coalesce(first_name, '') = '' "
        "ORDER BY created_at DESC, id DESC LIMIT 1", (account_id,),
    )  # fmt: skip
    return contacts.get(account_id, row[0]) if row else None


def summarize_columns(account_id: int) -> dict[str, DataKey]:
    """Return summaries of the standard fields of all contacts by field name, at most `_CACHE_SECONDS` old."""
    return _summarize_columns(account_id, int(time.monotonic() // _CACHE_SECONDS), masking.is_active())


@lru_cache(maxsize=32)
def _summarize_columns(account_id: int, moment: int, is_masked: bool) -> dict[str, DataKey]:
    count_columns = ", ".join(f"count(nullif({name}, ''))" for name in _COLUMNS)
    total, *filled_counts = first(
        f"SELECT count(*), {count_columns} FROM contact WHERE account_id = ?", (account_id,)
    ) or (0,)
    newest = rows(
        f"SELECT {', '.join(_COLUMNS)} FROM contact WHERE account_id = ? ORDER BY created_at DESC LIMIT 50",
        (account_id,),
    )
    return {
        name: DataKey(
            name,
            next((row[index] for row in newest if row[index]), ""),
            1 - filled_counts[index] / total if total else 0.0,
        )
        for index, name in enumerate(_COLUMNS)
    }


def summarize_data_keys(account_id: int) -> list[DataKey]:
    """Return summaries of the keys in custom data of the newest contacts, the most common first.

    The summaries are at most `_CACHE_SECONDS` old.
    """
    return _summarize_data_keys(account_id, int(time.monotonic() // _CACHE_SECONDS), masking.is_active())


def _format_example(value: str | int | float) -> str:
    """Return an example as the menu shows it: a number as the language of the page writes it."""
    return value if isinstance(value, str) else i18n.format_data_number(value)[:_MAX_EXAMPLE_CHARACTERS]


def _build_data_tag(key: DataKey, label: str, example: str | int | float, language: str) -> MergeTag:
    """Return the merge tag of a key of custom data; a date is written with the name of its month, as in the example."""
    name = f"contact.data{_write_path(key.name)}"
    if not _ISO_DATE.fullmatch(str(key.example)):
        return MergeTag(name, label, _format_example(example), key.missing_share)
    dated = f"{name} | date"
    formatted = merge.compile_template("{{ value | date }}", "text", language).render({"value": example})
    return MergeTag(dated, label, formatted, key.missing_share)


@lru_cache(maxsize=32)
def _summarize_data_keys(account_id: int, moment: int, is_masked: bool) -> list[DataKey]:
    data_rows = rows(
        "SELECT data FROM contact WHERE account_id = ? ORDER BY created_at DESC, id DESC LIMIT ?",
        (account_id, _SAMPLED_CONTACTS),
    )
    return summarize_objects([msgspec.json.decode(text) if text else None for (text,) in data_rows])


def summarize_objects(objects: list[Any]) -> list[DataKey]:
    """Return summaries of up to `_MAX_KEYS` keys of `objects`, the most common key first.

    The example of a key is its first value.
    """
    counts, examples = Counter[str](), dict[str, str | int | float]()
    for data in objects:
        for name, value in _flatten(data, ""):
            counts[name] += 1
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            examples.setdefault(name, value if is_number else str(value)[:_MAX_EXAMPLE_CHARACTERS])
    return [DataKey(name, examples[name], 1 - count / len(objects)) for name, count in counts.most_common(_MAX_KEYS)]


def _flatten(value: Any, prefix: str) -> list[tuple[str, Any]]:
    """Return (path, value) of the scalar values of an object and of the objects directly within it.

    Empty values, and keys that cannot be used in a merge tag, are left out.
    """
    values = []
    for name, inner in (value or {}).items() if isinstance(value, dict | None) else ():
        if isinstance(inner, dict) and not prefix:
            values += _flatten(inner, f"{name}.")
        elif inner not in (None, "") and not isinstance(inner, dict | list) and not _NOT_NAMEABLE.search(name):
            values.append((f"{prefix}{name}", inner))
    return values
