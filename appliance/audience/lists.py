"""Contact lists: static lists with stored members, and mirrors, whose members follow a segment (`mirrors`)."""

import json
from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType
from peewee import fn

from appliance.accounts.audit import Actor
from appliance.audience.segments import store as segments
from appliance.core import clock, signals
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import Id, Name, PageQuery, Short, default
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage.database import (
    Page,
    connection,
    contains_words,
    fetch_one,
    normalize_name,
    paginate,
    rows,
    scalar,
)
from appliance.storage.models import ContactList, Segment
from appliance.storage.transactions import after_commit, require_write_transaction

_CHUNK = 500
_CLOCK_MARGIN_MS = 1_000
MIRROR_MESSAGE = gettext_noop("is a view of a segment")


ListName = Annotated[Name, Meta(description="name of the list, unique in the account regardless of case")]
MemberIds = Annotated[
    list[Id], Meta(max_length=10_000), Meta(description="ids of the members; replaces the existing members")
]


class ListCreate(Struct):
    """The fields of a new list, which is static or a mirror of a segment."""

    name: ListName
    segment_id: (
        Annotated[Id, Meta(description="id of the segment that the list follows; null for a static list")]
        | None
        | UnsetType
    ) = UNSET
    contact_ids: MemberIds | None | UnsetType = UNSET
    double_opt_in: (
        Annotated[
            bool,
            default(False),
            Meta(description="whether members must confirm their address before they are sent marketing"),
        ]
        | UnsetType
    ) = UNSET
    public: (
        Annotated[bool, default(False), Meta(description="whether the list is shown on the preference page")]
        | UnsetType
    ) = UNSET


class ListPatch(Struct):
    """The changes to a list; fields that are not given stay unchanged, and `contact_ids` replaces the members."""

    name: ListName | UnsetType = UNSET
    segment_id: (
        Annotated[Id, Meta(description="id of the segment to follow; null makes the list static and keeps its members")]
        | None
        | UnsetType
    ) = UNSET
    contact_ids: MemberIds | None | UnsetType = UNSET
    double_opt_in: (
        Annotated[bool, Meta(description="whether members must confirm their address before they are sent marketing")]
        | UnsetType
    ) = UNSET
    public: Annotated[bool, Meta(description="whether the list is shown on the preference page")] | UnsetType = UNSET


class ListQuery(PageQuery):
    """Filters and pagination of a list of contact lists."""

    search: Annotated[Short, Meta(description="search words for the name")] | UnsetType = UNSET


class MembershipChange(NamedTuple):
    """The number of contacts that were added to or removed from a list, and the opt-outs that blocked an addition.

    `kept_opt_outs` contains `list:N` if at least one contact had left list N and was therefore not added.
    """

    changed_count: int
    kept_opt_outs: list[str]


_ORDERS: dict[str, Any] = {"name": fn.name_order(ContactList.name), "people": ContactList.contacts_count,
                           "updated": ContactList.updated_at, "created": ContactList.created_at}  # fmt: skip


def fetch_page(account_id: int, query: ListQuery, order: str = "-created") -> Page:
    """Return a page of lists that match the query, ordered by `name`, `people`, `updated` or `created`.

    `people` is the number of members. A minus before the name sorts in descending order.
    """
    query_set = ContactList.select().where(ContactList.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        query_set = query_set.where(contains_words(normalize_name(query.search), ContactList.name_key))
    column = _ORDERS[order.removeprefix("-")]
    ordering = [column.desc(), ContactList.id.desc()] if order.startswith("-") else [column, ContactList.id]
    page = paginate(query_set.order_by(*ordering), query.page, query.size())
    return page._replace(rows=[set_staleness(row) for row in page.rows])


def get(account_id: int, list_id: int) -> ContactList:
    """Return a list of an account with up-to-date `stale`; raises NotFound."""
    contact_list = ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)
    if contact_list is None:
        raise NotFound
    return set_staleness(contact_list)


def set_staleness(contact_list: ContactList) -> ContactList:
    """Set `stale` on a list object, without saving it, and return the object.

    A mirror is stale if contacts or events may have changed since it was populated. A static list is never stale.
    """
    if contact_list.segment_id is None:
        contact_list.stale, contact_list.last_populated_at = False, None
    elif not contact_list.stale:
        contact_list.stale = has_changed_since(
            contact_list.account_id, contact_list.last_populated_at or 0, contact_list.seen_event_id
        )
    return contact_list


def has_changed_since(account_id: int, moment: int, event_id: int) -> bool:
    """Return whether the members of segments may have changed.

    That is so if a contact of the account was changed after `moment` (in milliseconds), or if there are events newer
    than `event_id`.
    """
    newest = scalar("SELECT max(updated_at) FROM contact WHERE account_id = ?", (account_id,)) or 0
    # A change gets its timestamp a little before its transaction is committed and becomes visible.
    return newest > moment - _CLOCK_MARGIN_MS or (scalar("SELECT max(id) FROM event") or 0) > event_id


def count_sendable(list_id: int) -> dict[str, int]:
    """Return how many members may receive marketing now, by `email` and `sms`.

    With double opt-in, only members with a confirmed address count.
    """
    counts = dict(
        rows(
            "SELECT h.kind, count(DISTINCT h.contact_id) FROM membership m "
            "JOIN channel h ON h.contact_id = m.contact_id "
            "WHERE m.contact_list_id = ?1 AND h.subscribed = 1 AND h.suppression IS NULL "
            "AND (h.verified_at IS NOT NULL OR (SELECT double_opt_in FROM contact_list WHERE id = ?1) = 0) "
            "GROUP BY h.kind",
            (list_id,),
        )
    )
    return {"email": counts.get("email", 0), "sms": counts.get("phone", 0)}


def create(account_id: int, request: ListCreate) -> ContactList:
    """Create a static list with its members, or a list that mirrors a segment; raises Invalid with all errors."""
    require_write_transaction()
    check(account_id, request)
    now = clock.now_ms()
    contact_list = ContactList.create(
        account=account_id, name=request.name.strip(), name_key=normalize_name(request.name),
        double_opt_in=request.double_opt_in is True, public=request.public is True, created_at=now, updated_at=now,
        segment=request.segment_id if isinstance(request.segment_id, int) else None,
        stale=isinstance(request.segment_id, int),
    )  # fmt: skip
    if contact_list.stale:
        after_commit(lambda: signals.wake("mirrors"))
    if request.contact_ids is not UNSET and request.contact_ids:
        add_members(account_id, contact_list.id, request.contact_ids)
    return get(account_id, contact_list.id)


def update(account_id: int, list_id: int, request: ListPatch, by: Actor = Actor()) -> ContactList:
    """Change a list; raises NotFound, and Invalid with all errors.

    If the list becomes the mirror of another segment, the approval of campaigns and flows that use it is revoked.
    """
    require_write_transaction()
    contact_list = get(account_id, list_id)
    check(account_id, request, list_id)
    if isinstance(request.name, str):
        contact_list.name, contact_list.name_key = request.name.strip(), normalize_name(request.name)
    for name in ("double_opt_in", "public"):
        if isinstance(getattr(request, name), bool):
            setattr(contact_list, name, getattr(request, name))
    _set_segment(contact_list, request.segment_id, by)
    contact_list.updated_at = clock.now_ms()
    contact_list.save()
    # The members stay if `contact_ids` is absent, or if it is null.
    if isinstance(request.contact_ids, list) and contact_list.segment_id is None:
        wanted_ids = set(request.contact_ids)
        current_ids = {
            row[0] for row in rows("SELECT contact_id FROM membership WHERE contact_list_id = ?", (list_id,))
        }
        remove_members(account_id, list_id, sorted(current_ids - wanted_ids))
        add_members(account_id, list_id, sorted(wanted_ids - current_ids))
    return get(account_id, list_id)


def _set_segment(contact_list: ContactList, segment_id: int | None | UnsetType, by: Actor) -> None:
    """Make a list the mirror of a segment, or with None a static list that keeps its members; UNSET changes nothing."""
    if segment_id is UNSET or segment_id == contact_list.segment_id:
        return
    contact_list.segment_id, contact_list.stale = segment_id, segment_id is not None
    if segment_id is not None:
        segments.revoke_approvals(contact_list.account_id, "list", contact_list.id, by)
        after_commit(lambda: signals.wake("mirrors"))
    else:
        contact_list.last_populated_at = None


def delete(account_id: int, list_id: int) -> ContactList:
    """Delete a list and return it; its contacts are not deleted.

    Raises NotFound. Raises Invalid with `used_by` if the list is used by an active or paused campaign or flow, by a
    completed campaign that sends some of its messages again, or by a segment. Without the list, an exclusion or "not on
    the list" would apply to all contacts.
    """
    require_write_transaction()
    contact_list = get(account_id, list_id)
    campaigns = rows(
        "SELECT c.id, c.name FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE (t.contact_list_id = :id "
        "OR EXISTS (SELECT 1 FROM json_each(t.data, '$.contact_list_ids') WHERE value = :id) "
        "OR EXISTS (SELECT 1 FROM json_each(t.data, '$.exclude_contact_list_ids') WHERE value = :id)) "
        "AND (c.status IN ('active', 'paused') OR c.phase = 'sending') AND c.deleted_at IS NULL "
        "AND t.account_id = :account",
        {"id": list_id, "account": account_id},
    )
    used_by: list[dict[str, Any]] = [{"campaign_id": row[0], "name": row[1]} for row in campaigns]
    used_by += segments.find_flows_using(account_id, "list", list_id)
    used_by += segments.find_segments_using(account_id, "list", list_id)
    if used_by:
        raise Invalid({"base": [gettext("is in use")]}, reason="in_use", used_by=used_by)
    segments.detach("list", list_id)
    ContactList.delete().where(ContactList.id == list_id).execute()
    return contact_list


def check(account_id: int, request: ListCreate | ListPatch, list_id: int | None = None) -> None:
    """Raise Invalid with all errors that the types of the fields do not catch; `list_id` is None for a new list.

    Raises NotFound if `contact_ids` are given for an unknown list.
    """
    faults = Faults()
    if isinstance(request.name, str):
        key = normalize_name(request.name)
        same_name = fetch_one("SELECT id FROM contact_list WHERE account_id = ? AND name_key = ?", (account_id, key))
        if same_name is not None and same_name[0] != list_id:
            faults.add("name", gettext("has already been taken"))
    if isinstance(request.segment_id, int):
        if Segment.get_or_none(Segment.account == account_id, Segment.id == request.segment_id) is None:
            faults.add("segment_id", gettext("must exist"))
        elif list_id is not None and list_id in segments.find_reachable_lists(account_id, request.segment_id):
            faults.add("segment_id", gettext("refers back to this list"))
        if isinstance(request.contact_ids, list):
            faults.add("base", gettext("a list has either members or a segment"))
    if isinstance(request.contact_ids, list):
        if request.segment_id is UNSET and list_id is not None and get(account_id, list_id).segment_id is not None:
            faults.add("contact_ids", gettext(MIRROR_MESSAGE))
        missing = find_unknown_contacts(account_id, request.contact_ids)
        if missing:
            faults.add("contact_ids", gettext("must exist"))
    faults.check()


def find_unknown_contacts(account_id: int, contact_ids: list[int]) -> set[int]:
    """Return the ids that do not belong to a contact of the account."""
    existing_ids: set[int] = set()
    for start in range(0, len(contact_ids), _CHUNK):
        batch = contact_ids[start : start + _CHUNK]
        placeholders = ",".join("?" * len(batch))
        sql = f"SELECT id FROM contact WHERE account_id = ? AND id IN ({placeholders})"
        existing_ids |= {row[0] for row in rows(sql, [account_id, *batch])}
    return set(contact_ids) - existing_ids


def find_list_errors(account_id: int, list_ids: list[int], contact_id: int | None = None) -> dict[str, list[str]]:
    """Return errors under the key `list_ids` if a contact cannot be a member of all these lists, else an empty dict.

    Each list must exist. A list that mirrors a segment is allowed only if the contact is already a member of it.
    """
    errors: list[str] = []
    for list_id in dict.fromkeys(list_ids):
        row = fetch_one("SELECT segment_id FROM contact_list WHERE account_id = ? AND id = ?", (account_id, list_id))
        membership = fetch_one(
            "SELECT 1 FROM membership WHERE contact_list_id = ? AND contact_id = ?", (list_id, contact_id)
        )
        if row is None or (row[0] is not None and membership is None):
            errors.append(gettext("must exist") if row is None else gettext(MIRROR_MESSAGE))
    return {"list_ids": list(dict.fromkeys(errors))} if errors else {}


def add_members(account_id: int, list_id: int, contact_ids: list[int]) -> MembershipChange:
    """Add contacts to a static list, except those who are members or have left it; raises NotFound for an unknown list.

    A list that mirrors a segment is not changed.
    """
    require_write_transaction()
    contact_list = get(account_id, list_id)
    if contact_list.segment_id is not None or not contact_ids:
        return MembershipChange(0, [])
    params = {"list": list_id, "ids": json.dumps(contact_ids), "now": clock.now_ms()}
    kept_out = rows(
        "SELECT 1 FROM list_opt_out WHERE contact_list_id = :list AND contact_id IN (SELECT value "
        "FROM json_each(:ids)) LIMIT 1",
        params,
    )
    added = rows(
        "INSERT INTO membership (contact_list_id, contact_id, created_at) "
        "SELECT :list, value, :now FROM json_each(:ids) WHERE NOT EXISTS (SELECT 1 FROM list_opt_out r "
        "WHERE r.contact_list_id = :list AND r.contact_id = value) ON CONFLICT DO NOTHING RETURNING contact_id",
        params,
    )
    _record_membership_change(account_id, list_id, contact_list.name, "list_add", [row[0] for row in added])
    return MembershipChange(len(added), [f"list:{list_id}"] if kept_out else [])


def remove_members(account_id: int, list_id: int, contact_ids: list[int]) -> MembershipChange:
    """Remove contacts from a list; contacts who are not members are ignored. Raises NotFound for an unknown list."""
    require_write_transaction()
    name = get(account_id, list_id).name
    removed = rows(
        "DELETE FROM membership WHERE contact_list_id = ? AND contact_id IN (SELECT value FROM "
        "json_each(?)) RETURNING contact_id",
        (list_id, json.dumps(contact_ids)),
    )
    _record_membership_change(account_id, list_id, name, "list_remove", [row[0] for row in removed])
    return MembershipChange(len(removed), [])


def replace_lists_of_contact(account_id: int, contact_id: int, list_ids: list[int]) -> list[str]:
    """Make a contact a member of exactly the static lists `list_ids`; memberships in mirrors do not change.

    Lists that the contact has left are skipped and returned, each as `list:N`. Raises NotFound for an unknown list.
    """
    static = {
        row[0]
        for row in rows(
            "SELECT m.contact_list_id FROM membership m JOIN contact_list l ON l.id = m.contact_list_id "
            "WHERE m.contact_id = ? AND l.segment_id IS NULL",
            (contact_id,),
        )
    }
    kept_opt_outs: list[str] = []
    for list_id in static - set(list_ids):
        remove_members(account_id, list_id, [contact_id])
    for list_id in [new_list_id for new_list_id in dict.fromkeys(list_ids) if new_list_id not in static]:
        kept_opt_outs += add_members(account_id, list_id, [contact_id]).kept_opt_outs
    return kept_opt_outs


def _record_membership_change(account_id: int, list_id: int, name: str, event: str, contact_ids: list[int]) -> None:
    if not contact_ids:
        return
    change = len(contact_ids) if event == "list_add" else -len(contact_ids)
    connection().execute(
        "UPDATE contact_list SET contacts_count = contacts_count + ?, updated_at = ? WHERE id = ?",
        (change, clock.now_ms(), list_id),
    )
    data: dict[str, Any] = {"contact_list_id": list_id}
    log.record_many(
        [
            NewEvent(account_id, event, contact_id, data, resource_uid=f"list:{list_id}", resource_name=name)
            for contact_id in contact_ids
        ]
    )


_LARGEST_LISTS = (
    "SELECT id, name, contacts_count FROM contact_list WHERE account_id = ? ORDER BY contacts_count DESC, id LIMIT ?"
)
_JOINED_BY_DAY = (
    "SELECT (created_at - ?1) / ?2, count(*) FROM membership WHERE contact_list_id = ?3 AND created_at >= ?1 GROUP BY 1"
)
_growth_cache: CostAwareCache[list["Growth"]] = CostAwareCache(min_age_seconds=5)


class Growth(NamedTuple):
    """A list, its number of members, and how many of the current members joined on each of the last days.

    `joined` has one number for each period of 24 hours, oldest first; `since` is the start of the first in
    milliseconds.
    """

    id: int
    name: str
    size: int
    joined: tuple[int, ...]
    since: int


def measure_growth(account_id: int, limit: int = 4, days: int = 30) -> list[Growth]:
    """Return the growth of the `limit` largest lists over the last `days` days, from a cache.

    Cached numbers are used for at least 5 seconds. A contact who has left a list is not counted.
    """
    return _growth_cache.get((account_id, limit, days), lambda: _measure_growth(account_id, limit, days))


def _measure_growth(account_id: int, limit: int, days: int) -> list[Growth]:
    since = clock.now_ms() - days * clock.DAY_MS
    growths = []
    for number, name, size in rows(_LARGEST_LISTS, (account_id, limit)):
        joined_by_day: dict[int, int] = dict(rows(_JOINED_BY_DAY, (since, clock.DAY_MS, number)))
        # A contact who joined after `since` was computed counts on the last day.
        joined = [joined_by_day.get(day, 0) for day in range(days)]
        joined[-1] += sum(count for day, count in joined_by_day.items() if day >= days)
        growths.append(Growth(number, name, size, tuple(joined), since))
    return growths
