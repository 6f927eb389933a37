"""Contacts: found, listed, loaded with all that belongs to them."""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from appliance.audience.contacts import consent, paging, search
from appliance.audience.contacts.paging import NEWEST, Order
from appliance.audience.contacts.records import CHANNELS, CONTACTS
from appliance.audience.contacts.requests import ContactQuery
from appliance.audience.filters import compile
from appliance.audience.filters.scope import Compiled
from appliance.audience.segments import people, query_plan
from appliance.audience.segments import store as segments
from appliance.core.errors import Invalid, NotFound
from appliance.core.fields import given
from appliance.core.pagination import Page
from appliance.events.log import moments
from appliance.storage.models import Account, Channel, Contact, ContactList, Segment
from appliance.storage.open import fetch_one as first
from appliance.storage.open import rows

# OFFSET has to walk what it skips, and SQLite's integers end here
_FARTHEST = 2**53
_BOOLEANS = {"subscribed_email": "email", "subscribed_phone": "phone"}


def get(account_id: int, contact_id: int) -> Contact:
    """Return a contact with channels and lists; raises NotFound."""
    found = CONTACTS.find("id = ? AND account_id = ?", (contact_id, account_id))
    if not found:
        raise NotFound
    return load(found)[0]


def page(account_id: int, query: ContactQuery, order: Order = NEWEST, rules: Sequence[Any] = ()) -> Page:
    """List contacts, newest first unless another order is asked for; raises Invalid for filters that cannot be read.

    `rules` are filters as those of a segment; who is listed passes them too.
    """
    number, limit = query.page, query.size()
    offset = min((number - 1) * limit, _FARTHEST)
    asked = filters(query) | ({"rules"} if rules else set())
    if not asked:
        ids, total = paging.everybody(account_id, offset, limit, order)
        return Page(by_ids(ids), total, number, limit)
    if asked == {"list_id"}:
        found = _own_list(account_id, query.list_id)
        ids = paging.members(account_id, found.id, found.contacts_count, offset, limit, order)
        return Page(by_ids(ids), found.contacts_count, number, limit)
    if asked == {"search"}:
        searched = _searched(account_id, query, offset, order)
        if searched is not None:
            return searched
    condition, parameters = where(account_id, query, rules)
    # Of a segment alone it is known how many it has, as its own page says
    count = _in_segment(account_id, query.segment_id) if asked == {"segment_id"} else None
    ids, total = paging.filtered(
        condition, parameters, offset, limit, by_time=_by_time(asked) and order == NEWEST, count=count, order=order
    )
    return Page(by_ids(ids), total, number, limit)


class Tallies(NamedTuple):
    """How many people there are: all, those with a subscribed e-mail address, those with a suppressed address."""

    everybody: int
    subscribed: int
    suppressed: int


def tallies(account_id: int) -> Tallies:
    """Count people by what may be sent to them; counted again only if anything was written since."""
    each = "SELECT count(DISTINCT contact_id) FROM channel"
    mine = {"account": account_id}
    return Tallies(
        people.total(account_id),
        people.kept(
            f"{each} NOT INDEXED WHERE account_id = :account AND kind = 'email' AND subscribed = 1", mine
        ),
        people.kept(
            f"{each} WHERE account_id = :account AND kind IN ('email', 'phone') AND suppression IS NOT NULL", mine
        ),
    )  # fmt: skip


def all_ids(account_id: int, query: ContactQuery, rules: Sequence[Any] = ()) -> list[int]:
    """Return the ids of everybody whom filters let through, in no order that matters; raises Invalid."""
    condition, parameters = where(account_id, query, rules)
    with people.limited():
        return [row[0] for row in rows(f"SELECT c.id FROM contact c NOT INDEXED WHERE {condition}", parameters)]


def _by_time(asked: set[str]) -> bool:
    """Return whether filters are moments alone, for which there are indexes."""
    return all(name.endswith(("_after", "_before")) for name in asked)


def _searched(account_id: int, query: ContactQuery, offset: int, order: Order) -> Page | None:
    """List the contacts that some words find; None where too many are found to put them in this order so."""
    text, limit = query.text() or "", query.size()
    ids, many = paging.hits(account_id, text)
    if many is None:
        return Page(by_ids(paging.ordered(ids, offset, limit, order)), len(ids), query.page, limit)
    if order != NEWEST:
        return None
    found = paging.among_hits(account_id, text, offset, limit) if offset < many else []
    return Page(by_ids(found), many, query.page, limit)


def filters(query: ContactQuery) -> set[str]:
    """Return the names of the filters that a query uses."""
    words = {"search", "q", "query"}
    asked = set(given(query)) - {"page", "limit", "per_page", "per"}
    return (asked - words) | ({"search"} if query.text() is not None else set())


def find(account_id: int, text: str, page_number: int = 1, limit: int = 50) -> Page:
    """List the contacts that some words find, best match first; of very many the last added first."""
    offset = min((page_number - 1) * limit, _FARTHEST)
    ids, many = paging.hits(account_id, text)
    if many is None:
        return Page(by_ids(ids[offset : offset + limit]), len(ids), page_number, limit)
    found = paging.many_hits(account_id, text, offset, limit) if offset < many else []
    return Page(by_ids(found), many, page_number, limit)


def where(account_id: int, query: ContactQuery, rules: Sequence[Any] = ()) -> tuple[str, dict[str, Any]]:
    """Return the filters of a query, and rules as those of a segment, as a condition over the contact `c`, with its
    parameters; raises Invalid.
    """
    clauses = ["c.account_id = :account"]
    parameters: dict[str, Any] = {"account": account_id}
    text = query.text()
    if text is not None:
        words = search.match(text)
        clauses.append(f"c.id {search.FOUND}" if words else "0")
        parameters["words"] = words
    if query.list_id is not UNSET:
        clauses.append("c.id IN (SELECT contact_id FROM membership WHERE contact_list_id = :list)")
        parameters["list"] = _own_list(account_id, query.list_id).id
    if query.segment_id is not UNSET:
        for part in _own_segment(account_id, query.segment_id):
            clauses.append(f"({part.sql})")
            parameters.update(part.parameters)
    if query.source is not UNSET:
        clauses.append("c.source = :source COLLATE NOCASE")
        parameters["source"] = query.source
    if query.tag is not UNSET:
        # Most people's data does not hold the word at all, and looking for it is quicker than reading JSON
        clauses.append(
            "c.data LIKE :tagged AND EXISTS (SELECT 1 FROM json_each(c.data, '$.tags') t WHERE t.value = :tag "
            "COLLATE NOCASE AND json_type(c.data, '$.tags') = 'array')"
        )
        parameters["tag"] = query.tag
        parameters["tagged"] = f'%"{query.tag}"%' if compile.PLAIN_TAG.match(str(query.tag)) else "%"
    for name, kind in _BOOLEANS.items():
        value = getattr(query, name)
        if value is not UNSET:
            clauses.append(
                ("" if value else "NOT ")
                + f"EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.kind = '{kind}' "
                "AND h.subscribed = 1)"
            )
    for part in _parts(account_id, rules, "r") if rules else ():
        clauses.append(f"({part.sql})")
        parameters.update(part.parameters)
    _times(account_id, query, clauses, parameters)
    return " AND ".join(clauses), parameters


def _times(account_id: int, query: ContactQuery, clauses: list[str], parameters: dict[str, Any]) -> None:
    zone = Account.get_by_id(account_id).time_zone
    for column in ("created", "updated"):
        after, before = getattr(query, f"{column}_after"), getattr(query, f"{column}_before")
        try:
            low, high = moments(after, before, zone)
        except Invalid as error:
            raise Invalid(
                {name.replace("created", column): messages for name, messages in error.fields.items()}
            ) from None
        for sign, edge, value in ((">=", "after", low), ("<", "before", high)):
            if value is not None:
                clauses.append(f"c.{column}_at {sign} :{column}_{edge}")
                parameters[f"{column}_{edge}"] = value


def _own_segment(account_id: int, segment_id: Any) -> list[Compiled]:
    found = Segment.get_or_none(Segment.account == account_id, Segment.id == segment_id)
    if found is None:
        raise Invalid({"segment_id": ["must exist"]})
    return _parts(account_id, found.filters, "s")


def _parts(account_id: int, rules: Sequence[Any], prefix: str) -> list[Compiled]:
    """Return rules as conditions that hold together, the one to begin with first."""
    start, others = query_plan.way(people.nodes(account_id, rules), people.scope(account_id), prefix)
    return [Compiled(f"c.id IN ({start.sql})", start.parameters), others] if start else [others]


def _in_segment(account_id: int, segment_id: Any) -> int | None:
    return segments.counts(account_id, [segments.get(account_id, segment_id)])[segment_id]


def _own_list(account_id: int, list_id: Any) -> ContactList:
    found = ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)
    if found is None:
        raise Invalid({"list_id": ["must exist"]})
    return found


def by_ids(ids: list[int]) -> list[Contact]:
    """Load contacts in the order of the ids given."""
    if not ids:
        return []
    found = {contact.id: contact for contact in CONTACTS.find(f"id IN ({marks(ids)})", ids)}
    return load([found[one] for one in ids if one in found])


def load(contacts: list[Contact]) -> list[Contact]:
    """Add `channels` and `list_ids` to contacts, in two queries for all of them."""
    ids = [contact.id for contact in contacts]
    channels: dict[int, list[Channel]] = defaultdict(list)
    lists: dict[int, list[int]] = defaultdict(list)
    if ids:
        for channel in CHANNELS.find(f"contact_id IN ({marks(ids)}) ORDER BY id", ids):
            channels[channel.contact_id].append(channel)
            if channel.suppression == "manual":
                _look_again(channel)
        for contact_id, list_id in rows(
            f"SELECT contact_id, contact_list_id FROM membership WHERE contact_id IN ({marks(ids)}) "
            "ORDER BY contact_list_id",
            ids,
        ):
            lists[contact_id].append(list_id)
    for contact in contacts:
        contact.channels = channels[contact.id]
        contact.list_ids = lists[contact.id]
    return contacts


def _look_again(channel: Channel) -> None:
    """Show a suppression that has run out as gone; the row follows within a second."""
    in_force = consent.in_force(channel)
    if in_force != channel.suppression:
        channel.suppression = in_force
        channel._dirty.discard("suppression")


def marks(values: list[int]) -> str:
    """Return the question marks for some values."""
    return ",".join("?" * len(values))


def is_sendable(channel: Channel) -> bool:
    """Return whether marketing may go to a channel: consent given and nothing against the address."""
    return bool(channel.subscribed and channel.suppression is None)


# What is known about people: how many have a name, which keys their data have, with an example of each.
#
# It is shown beside merge tags, so that nobody is called by a name they never gave.

# So many of the last added are looked at for what their data hold
_LOOKED_AT = 1_000
_MAX_KEYS = 60
_MAX_CHARACTERS = 40
# No merge tag can say them
_UNNAMED = re.compile(r"""["'{}.\[\]]|^_""")
# Counts of a moment ago do
_SECONDS = 30
_COLUMNS = ("first_name", "last_name", "source", "country_code")


class Key(NamedTuple):
    """Something known of people: its name in a merge tag, an example, and the share of people who lack it."""

    name: str
    example: str
    lacking: float


def nameless(account_id: int) -> Contact | None:
    """Return the last one added of those without a first name."""
    if not columns(account_id)["first_name"].lacking:
        return None
    found = first(
        "SELECT id FROM contact WHERE account_id = ? AND coalesce(first_name, '') = '' "
        "ORDER BY created_at DESC, id DESC LIMIT 1", (account_id,),
    )  # fmt: skip
    return get(account_id, found[0]) if found else None


def columns(account_id: int) -> dict[str, Key]:
    """Return what every contact has a place for, of everybody."""
    return _columns(account_id, int(time.monotonic() // _SECONDS))


@lru_cache(maxsize=32)
def _columns(account_id: int, moment: int) -> dict[str, Key]:
    counted = ", ".join(f"count(nullif({name}, ''))" for name in _COLUMNS)
    total, *having = first(f"SELECT count(*), {counted} FROM contact WHERE account_id = ?", (account_id,)) or (0,)
    last = rows(
        f"SELECT {', '.join(_COLUMNS)} FROM contact WHERE account_id = ? ORDER BY created_at DESC LIMIT 50",
        (account_id,),
    )
    return {
        name: Key(name, next((row[at] for row in last if row[at]), ""), 1 - having[at] / total if total else 0.0)
        for at, name in enumerate(_COLUMNS)
    }


def data_keys(account_id: int) -> list[Key]:
    """Return the keys of people's data, those that most have first, by whoever was added last."""
    return _keys(account_id, int(time.monotonic() // _SECONDS))


@lru_cache(maxsize=32)
def _keys(account_id: int, moment: int) -> list[Key]:
    found = rows(
        "SELECT data FROM contact WHERE account_id = ? ORDER BY created_at DESC, id DESC LIMIT ?",
        (account_id, _LOOKED_AT),
    )
    return counted([msgspec.json.decode(text) if text else None for (text,) in found])


def counted(objects: list[Any]) -> list[Key]:
    """Return the keys of some objects, those that most have first, with the first value of each."""
    many, examples = Counter[str](), dict[str, str]()
    for one in objects:
        for name, value in _flat(one, ""):
            many[name] += 1
            examples.setdefault(name, str(value)[:_MAX_CHARACTERS])
    return [Key(name, examples[name], 1 - count / len(objects)) for name, count in many.most_common(_MAX_KEYS)]


def _flat(value: Any, before: str) -> list[tuple[str, Any]]:
    """Return the plain values of an object, and of objects in it, by their way there."""
    found = []
    for name, inner in (value or {}).items() if isinstance(value, dict | None) else ():
        if isinstance(inner, dict) and not before:
            found += _flat(inner, f"{name}.")
        elif inner not in (None, "") and not isinstance(inner, dict | list) and not _UNNAMED.search(name):
            found.append((f"{before}{name}", inner))
    return found
