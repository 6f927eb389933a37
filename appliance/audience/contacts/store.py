"""Contacts: the Structs of requests, and functions that list, load and count contacts.

See `search` for searches, `statuses` for the state of each contact, `write` for changes, and `removal` for deleting,
merging and erasing contacts.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.audience import consent
from appliance.audience.contacts import search, statuses
from appliance.audience.contacts.search import NEWEST, Order
from appliance.audience.filters import compiler
from appliance.audience.filters.fields import Compiled
from appliance.audience.segments import members, query_plan
from appliance.audience.segments import store as segments
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import (
    Country,
    CreatedAfter,
    CreatedBefore,
    Data,
    DayOrWhen,
    EmailText,
    Id,
    LanguageTag,
    Line,
    ListId,
    PageQuery,
    Phone,
    SegmentId,
    Short,
    sent_fields,
)
from appliance.events.log import parse_time_filters
from appliance.storage.database import Page, rows
from appliance.storage.database import fetch_one as first
from appliance.storage.models import Account, Channel, Contact, ContactList, Segment
from appliance.storage.models.account import CHANNELS, CONTACTS


class ChannelWrite(Struct):
    """An address in a request: with `id` it is changed, without `id` added, and with `_destroy` removed."""

    id: Annotated[Id, Meta(description="id of the address to change; absent for a new one")] | UnsetType = UNSET
    value: Annotated[str, Meta(max_length=254), Meta(description="email address or phone number")] | UnsetType = UNSET
    kind: (
        Annotated[
            Literal["email", "phone"],
            Meta(description="kind of the address, which stays as it is; default: email if it contains an @"),
        ]
        | UnsetType
    ) = UNSET
    subscribed: (
        Annotated[bool, Meta(description="whether marketing may be sent to the address; true lifts an opt-out")]
        | UnsetType
    ) = UNSET
    destroy: Annotated[bool, Meta(description="true to remove the address")] | UnsetType = field(
        default=UNSET, name="_destroy"
    )


class ContactWrite(Struct):
    """The fields of a contact to create or change: absent fields stay unchanged, and null clears a field."""

    first_name: Annotated[Line, Meta(description="first name")] | None | UnsetType = UNSET
    last_name: Annotated[Line, Meta(description="last name")] | None | UnsetType = UNSET
    email: (
        Annotated[EmailText, Meta(description="email address to create or change, which is opted in")]
        | None
        | UnsetType
    ) = UNSET
    phone: (
        Annotated[Phone, Meta(description="phone number (E.164) to create or change, which is opted in")]
        | None
        | UnsetType
    ) = UNSET
    source: Annotated[Line, Meta(description="origin of the contact, as free text")] | None | UnsetType = UNSET
    country_code: (
        Annotated[Country, Meta(description="two-letter country code; default: that of the phone number")]
        | None
        | UnsetType
    ) = UNSET
    language: (
        Annotated[LanguageTag, Meta(description="language tag such as de or pt-BR; messages and pages follow it")]
        | None
        | UnsetType
    ) = UNSET
    list_ids: (
        Annotated[
            list[Id],
            Meta(max_length=500),
            Meta(description="ids of the lists to join; in PATCH, they replace the static lists of the contact"),
        ]
        | None
        | UnsetType
    ) = UNSET
    data: (
        Annotated[Data, Meta(description="custom data; POST merges it into the existing data, PATCH replaces it")]
        | None
        | UnsetType
    ) = UNSET
    channels_attributes: (
        Annotated[list[ChannelWrite], Meta(max_length=50), Meta(description="addresses to add, change or remove")]
        | None
        | UnsetType
    ) = UNSET
    opt_in: (
        Annotated[
            bool,
            Meta(description="true lifts an opt-out, false withdraws consent; if absent, new addresses are opted in"),
        ]
        | None
        | UnsetType
    ) = UNSET
    consent_source: (
        Annotated[
            str,
            Meta(max_length=1000),
            Meta(description="where the contact consented and to which text, stored as evidence"),
        ]
        | None
        | UnsetType
    ) = UNSET
    subscribed_email: (
        Annotated[
            bool,
            Meta(description="true if any email address of the contact is subscribed; a write applies to all of them"),
        ]
        | UnsetType
    ) = UNSET
    subscribed_phone: (
        Annotated[
            bool,
            Meta(description="true if any phone number of the contact is subscribed; a write applies to all of them"),
        ]
        | UnsetType
    ) = UNSET
    tracking: (
        Annotated[
            Literal["full", "aggregate", "none"],
            Meta(description="tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none`"),
        ]
        | UnsetType
    ) = UNSET


class ContactPatch(ContactWrite):
    """The changes of an existing contact; `data_merge` is a JSON merge patch (RFC 7396) of `data`."""

    data_merge: Annotated[Data, Meta(description="JSON merge patch (RFC 7396) for `data`")] | UnsetType = UNSET


class ContactQuery(PageQuery):
    """Filters and pagination of a list of contacts; `search`, `q` and `query` are the same filter."""

    search: (
        Annotated[
            Short,
            Meta(
                description="search words: prefixes of names and of email addresses and their parts, or digits of "
                "phone numbers"
            ),
        ]
        | UnsetType
    ) = UNSET
    q: Annotated[Short, Meta(description="same as `search`")] | UnsetType = UNSET
    query: Annotated[Short, Meta(description="same as `search`")] | UnsetType = UNSET
    list_id: Annotated[ListId, Meta(description="only contacts in this list")] | UnsetType = UNSET
    tag: Annotated[Short, Meta(description="only contacts with this tag")] | UnsetType = UNSET
    segment_id: Annotated[SegmentId, Meta(description="only contacts in this segment")] | UnsetType = UNSET
    source: Annotated[Short, Meta(description="only contacts with exactly this source")] | UnsetType = UNSET
    subscribed_email: (
        Annotated[bool, Meta(description="true: only contacts subscribed by email; false: only others")] | UnsetType
    ) = UNSET
    subscribed_phone: (
        Annotated[bool, Meta(description="true: only contacts subscribed by phone; false: only others")] | UnsetType
    ) = UNSET
    sendable_email: (
        Annotated[bool, Meta(description="true: only contacts that can be sent marketing email; false: only others")]
        | UnsetType
    ) = UNSET
    sendable_phone: (
        Annotated[bool, Meta(description="true: only contacts that can be sent marketing SMS; false: only others")]
        | UnsetType
    ) = UNSET
    status: (
        Annotated[
            Literal["subscribed", "unsubscribed", "not_subscribed", "suppressed"],
            Meta(
                description="only contacts in this state. Each contact is in one state, that of its email addresses, "
                "or of its phone numbers if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted "
                "out), or `not_subscribed` (never opted in). Of several addresses, one that is subscribed and not "
                "suppressed decides, then one that is suppressed"
            ),
        ]
        | UnsetType
    ) = UNSET
    created_after: CreatedAfter | UnsetType = UNSET
    created_before: CreatedBefore | UnsetType = UNSET
    updated_after: (
        Annotated[DayOrWhen, Meta(description="only contacts changed at or after this time or date")] | UnsetType
    ) = UNSET
    updated_before: (
        Annotated[DayOrWhen, Meta(description="only contacts changed before this time or date")] | UnsetType
    ) = UNSET

    def text(self) -> str | None:
        """Return the search text from the first of `search`, `q` and `query` that is not blank, or None."""
        for value in (self.search, self.q, self.query):
            if isinstance(value, str) and value.strip():
                return value
        return None


class SearchQuery(PageQuery, kw_only=True):
    """The search words and the page of `/contacts/search`."""

    q: Annotated[
        str,
        Meta(max_length=255, extra={"filled": True}),
        Meta(description="search words, as in `search` of the list of contacts; required"),
    ]


class MergeWrite(Struct):
    """The contact that is merged into the contact of the URL, and then deleted."""

    contact_id: Annotated[Id, Meta(description="id of the contact to merge into this one; it is deleted")]


class DeleteQuery(Struct):
    """The options for deleting a contact; `erase` also removes all personal data and suppresses the addresses."""

    erase: Annotated[bool, Meta(description="true to remove all traces of the contact and suppress its addresses")] = (
        False
    )


# The largest OFFSET that a query gets.
_MAX_OFFSET = 2**53
# The conditions of the filters that a channel `h` of the contact has to meet
_CHANNEL_CONDITIONS = {
    "subscribed_email": "h.kind = 'email' AND h.subscribed = 1",
    "subscribed_phone": "h.kind = 'phone' AND h.subscribed = 1",
    "sendable_email": "h.kind = 'email' AND h.subscribed = 1 AND h.suppression IS NULL",
    "sendable_phone": "h.kind = 'phone' AND h.subscribed = 1 AND h.suppression IS NULL",
}


def get(account_id: int, contact_id: int) -> Contact:
    """Return a contact of an account with `channels` and `list_ids`; raises NotFound."""
    contacts = CONTACTS.find("id = ? AND account_id = ?", (contact_id, account_id))
    if not contacts:
        raise NotFound
    return load_relations(contacts)[0]


def fetch_page(account_id: int, query: ContactQuery, order: Order = NEWEST, rules: Sequence[Any] = ()) -> Page:
    """Return a page of the contacts that match a query and all `rules`, sorted by `order`.

    `rules` are further filters, in the form of a segment's filters. Raises Invalid for invalid filters, or if the query
    takes too long.
    """
    number, limit = query.page, query.size()
    offset = min((number - 1) * limit, _MAX_OFFSET)
    filters = used_filters(query) | ({"rules"} if rules else set())
    if not filters:
        ids, total = search.page_of_all(account_id, offset, limit, order)
        return Page(fetch_by_ids(ids), total, number, limit)
    if filters == {"list_id"}:
        contact_list = _get_list(account_id, query.list_id)
        ids = search.page_of_list(account_id, contact_list.id, contact_list.contacts_count, offset, limit, order)
        return Page(fetch_by_ids(ids), contact_list.contacts_count, number, limit)
    if filters == {"search"}:
        searched = _search_page(account_id, query, offset, order)
        if searched is not None:
            return searched
    condition, parameters = build_condition(account_id, query, rules)
    # Only the counts of a segment and of a state without other filters are cached.
    count = _count_segment(account_id, query.segment_id) if filters == {"segment_id"} else None
    if filters == {"status"}:
        count = getattr(statuses.count_contacts(account_id), str(query.status))
    ids, total = search.page_of_filtered(
        condition,
        parameters,
        offset,
        limit,
        by_time=_is_by_time_only(filters) and order == NEWEST,
        count=count,
        order=order,
    )
    return Page(fetch_by_ids(ids), total, number, limit)


def fetch_ids(account_id: int, query: ContactQuery, rules: Sequence[Any] = ()) -> list[int]:
    """Return the ids of all contacts that match a query and all `rules`, unordered.

    Raises Invalid for invalid filters, or if the query takes too long.
    """
    condition, parameters = build_condition(account_id, query, rules)
    with members.time_limit():
        return [row[0] for row in rows(f"SELECT c.id FROM contact c NOT INDEXED WHERE {condition}", parameters)]


def _is_by_time_only(filters: set[str]) -> bool:
    """Return whether all filters are `…_after` or `…_before`, whose columns have indexes."""
    return all(name.endswith(("_after", "_before")) for name in filters)


def _search_page(account_id: int, query: ContactQuery, offset: int, order: Order) -> Page | None:
    """Return a page of a search without other filters, or None if the matches are too many to sort by `order`.

    Up to `search.MAX_RANKED` matches can be sorted by every order; a larger number only by `NEWEST`.
    """
    text, limit = query.text() or "", query.size()
    ids, match_count = search.search_ids(account_id, text)
    if match_count is None:
        return Page(fetch_by_ids(search.page_of_ids(ids, offset, limit, order)), len(ids), query.page, limit)
    if order != NEWEST:
        return None
    matching_ids = search.scan_newest_matching(account_id, text, offset, limit) if offset < match_count else []
    return Page(fetch_by_ids(matching_ids), match_count, query.page, limit)


def used_filters(query: ContactQuery) -> set[str]:
    """Return the names of the filters that a query uses; `q` and `query` count as `search`."""
    text_filters = {"search", "q", "query"}
    sent = set(sent_fields(query)) - {"page", "limit", "per_page", "per"}
    return (sent - text_filters) | ({"search"} if query.text() is not None else set())


def find_by_words(account_id: int, text: str, page_number: int = 1, limit: int = 50) -> Page:
    """Return a page of the contacts that match words, best match first.

    If more than `search.MAX_RANKED` contacts match, the newest come first.
    """
    offset = min((page_number - 1) * limit, _MAX_OFFSET)
    ids, match_count = search.search_ids(account_id, text)
    if match_count is None:
        return Page(fetch_by_ids(ids[offset : offset + limit]), len(ids), page_number, limit)
    matching_ids = search.newest_matching_ids(account_id, text, offset, limit) if offset < match_count else []
    return Page(fetch_by_ids(matching_ids), match_count, page_number, limit)


def build_condition(account_id: int, query: ContactQuery, rules: Sequence[Any] = ()) -> tuple[str, dict[str, Any]]:
    """Return (SQL condition on the contact alias `c`, its parameters) for a query and all `rules`.

    Raises Invalid for invalid filters.
    """
    clauses = ["c.account_id = :account"]
    parameters: dict[str, Any] = {"account": account_id}
    text = query.text()
    if text is not None:
        words = search.build_query(text)
        clauses.append(f"c.id {search.MATCH_CONDITION}" if words else "0")
        parameters["words"] = words
    if query.list_id is not UNSET:
        clauses.append("c.id IN (SELECT contact_id FROM membership WHERE contact_list_id = :list)")
        parameters["list"] = _get_list(account_id, query.list_id).id
    if query.segment_id is not UNSET:
        for compiled in _segment_conditions(account_id, query.segment_id):
            clauses.append(f"({compiled.sql})")
            parameters.update(compiled.parameters)
    if query.source is not UNSET:
        clauses.append("c.source = :source COLLATE NOCASE")
        parameters["source"] = query.source
    if query.tag is not UNSET:
        # The data of most contacts does not contain the tag at all, and LIKE is faster than parsing JSON.
        clauses.append(
            "c.data LIKE :tagged AND EXISTS (SELECT 1 FROM json_each(c.data, '$.tags') t WHERE t.value = :tag "
            "COLLATE NOCASE AND json_type(c.data, '$.tags') = 'array')"
        )
        parameters["tag"] = query.tag
        parameters["tagged"] = f'%"{query.tag}"%' if compiler.PLAIN_TAG.match(str(query.tag)) else "%"
    for name, condition in _CHANNEL_CONDITIONS.items():
        value = getattr(query, name)
        if value is not UNSET:
            exists = f"EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND {condition})"
            clauses.append(exists if value else f"NOT {exists}")
    if query.status is not UNSET:
        clauses.append(statuses.build_condition(str(query.status)))
    for compiled in _rule_conditions(account_id, rules, "r") if rules else ():
        clauses.append(f"({compiled.sql})")
        parameters.update(compiled.parameters)
    _add_time_conditions(account_id, query, clauses, parameters)
    return " AND ".join(clauses), parameters


def _add_time_conditions(account_id: int, query: ContactQuery, clauses: list[str], parameters: dict[str, Any]) -> None:
    zone = Account.get_by_id(account_id).time_zone
    for column in ("created", "updated"):
        after, before = getattr(query, f"{column}_after"), getattr(query, f"{column}_before")
        try:
            low, high = parse_time_filters(after, before, zone)
        except Invalid as error:
            raise Invalid(
                {name.replace("created", column): messages for name, messages in error.fields.items()}
            ) from None
        for sign, edge, value in ((">=", "after", low), ("<", "before", high)):
            if value is not None:
                clauses.append(f"c.{column}_at {sign} :{column}_{edge}")
                parameters[f"{column}_{edge}"] = value


def _segment_conditions(account_id: int, segment_id: Any) -> list[Compiled]:
    segment = Segment.get_or_none(Segment.account == account_id, Segment.id == segment_id)
    if segment is None:
        raise Invalid({"segment_id": [gettext("must exist")]})
    return _rule_conditions(account_id, segment.filters, "s")


def _rule_conditions(account_id: int, rules: Sequence[Any], prefix: str) -> list[Compiled]:
    """Return filters as one condition or as two that must both hold; of two, the first one uses an index.

    Raises Invalid for filters that cannot be parsed, and for too many conditions.
    """
    start, remainder = query_plan.plan_query(
        members.parse_filters(account_id, rules), members.build_scope(account_id), prefix
    )
    return [Compiled(f"c.id IN ({start.sql})", start.parameters), remainder] if start else [remainder]


def _count_segment(account_id: int, segment_id: Any) -> int | None:
    return members.count_segments(account_id, [segments.get(account_id, segment_id)])[segment_id]


def _get_list(account_id: int, list_id: Any) -> ContactList:
    contact_list = ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)
    if contact_list is None:
        raise Invalid({"list_id": [gettext("must exist")]})
    return contact_list


def fetch_by_ids(ids: list[int]) -> list[Contact]:
    """Return contacts with `channels` and `list_ids`, in the order of `ids`; ids that do not exist are skipped."""
    if not ids:
        return []
    contacts = {contact.id: contact for contact in CONTACTS.find(f"id IN ({placeholders(ids)})", ids)}
    return load_relations([contacts[contact_id] for contact_id in ids if contact_id in contacts])


def load_relations(contacts: list[Contact]) -> list[Contact]:
    """Set `channels` and `list_ids` of contacts, with two queries in all, and return the contacts."""
    ids = [contact.id for contact in contacts]
    channels: dict[int, list[Channel]] = defaultdict(list)
    lists: dict[int, list[int]] = defaultdict(list)
    if ids:
        for channel in CHANNELS.find(f"contact_id IN ({placeholders(ids)}) ORDER BY id", ids):
            channels[channel.contact_id].append(channel)
            if channel.suppression == "manual":
                _refresh_suppression(channel)
        for contact_id, list_id in rows(
            f"SELECT contact_id, contact_list_id FROM membership WHERE contact_id IN ({placeholders(ids)}) "
            "ORDER BY contact_list_id",
            ids,
        ):
            lists[contact_id].append(list_id)
    for contact in contacts:
        contact.channels = channels[contact.id]
        contact.list_ids = lists[contact.id]
    return contacts


def _refresh_suppression(channel: Channel) -> None:
    """Set the current suppression of a channel, because its row may name one that has just expired.

    A job updates the row within a second, so the change is not saved here.
    """
    in_force = consent.find_channel_suppression(channel)
    if in_force != channel.suppression:
        channel.suppression = in_force
        channel._dirty.discard("suppression")


def placeholders(values: list[int]) -> str:
    """Return one SQL placeholder for each value, separated by commas."""
    return ",".join("?" * len(values))


def fetch_language(contact_id: int | None) -> str | None:
    """Return the language tag of a contact; None if it is not known, or if there is no contact."""
    row = first("SELECT language FROM contact WHERE id = ?", (contact_id,)) if contact_id is not None else None
    return row[0] if row is not None else None


def is_sendable(channel: Channel) -> bool:
    """Return whether marketing may be sent to a channel: it is subscribed and not suppressed."""
    return bool(channel.subscribed and channel.suppression is None)
