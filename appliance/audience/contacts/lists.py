"""Lists: groups that people are put into by name, or mirrors of a segment."""

import json
from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts.acting import By
from appliance.audience.segments import dependencies
from appliance.audience.segments import store as segments
from appliance.core import clock, wake_ups
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.fields import Id, Name, PageQuery, Short, default
from appliance.core.pagination import Page, paginate
from appliance.core.rested import Rested
from appliance.events import log
from appliance.events.log import Happened
from appliance.storage.models import ContactList, Segment
from appliance.storage.open import connection, fetch_one, name_key, rows, scalar
from appliance.storage.work import after_commit, writing

_CHUNK = 500
_MARGIN_MS = 1_000
VIEW = "is a view of a segment"


class ListCreate(Struct):
    """A new list: empty, with members, or the mirror of a segment."""

    name: Name
    segment_id: Id | None | UnsetType = UNSET
    contact_ids: Annotated[list[Id], Meta(max_length=10_000)] | None | UnsetType = UNSET
    double_opt_in: Annotated[bool, default(False)] | UnsetType = UNSET
    public: Annotated[bool, default(False)] | UnsetType = UNSET


class ListPatch(Struct):
    """A change of a list; `contact_ids` replaces the members."""

    name: Name | UnsetType = UNSET
    segment_id: Id | None | UnsetType = UNSET
    contact_ids: Annotated[list[Id], Meta(max_length=10_000)] | None | UnsetType = UNSET
    double_opt_in: bool | UnsetType = UNSET
    public: bool | UnsetType = UNSET


class ListQuery(PageQuery):
    """How lists are asked for."""

    search: Short | UnsetType = UNSET


class Joined(NamedTuple):
    """How many joined or left, and `list:N` if somebody who had left by their own act was kept out."""

    number: int
    kept: list[str]


_ORDERS: dict[str, Any] = {"name": ContactList.name_key, "people": ContactList.contacts_count,
                           "updated": ContactList.updated_at, "created": ContactList.created_at}  # fmt: skip


def page(account_id: int, query: ListQuery, order: str = "-created") -> Page:
    """List lists, newest first, or in another order: `name`, `people`, `updated`, with a minus the other way."""
    found = ContactList.select().where(ContactList.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        found = found.where(ContactList.name_key.contains(name_key(query.search)))
    column = _ORDERS[order.removeprefix("-")]
    way = [column.desc(), ContactList.id.desc()] if order.startswith("-") else [column, ContactList.id]
    result = paginate(found.order_by(*way), query.page, query.size())
    return result._replace(rows=[dress(row) for row in result.rows])


def get(account_id: int, list_id: int) -> ContactList:
    """Return a list; raises NotFound."""
    found = ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)
    if found is None:
        raise NotFound
    return dress(found)


def dress(found: ContactList) -> ContactList:
    """Say of a mirror whether people changed since it was populated; a list by name is never stale."""
    if found.segment_id is None:
        found.stale, found.last_populated_at = False, None
    elif not found.stale:
        found.stale = changed_since(found.account_id, found.last_populated_at or 0, found.seen_event_id)
    return found


def changed_since(account_id: int, moment: int, event_id: int) -> bool:
    """Return whether something that segments look at may have changed since a moment and an event."""
    newest = scalar("SELECT max(updated_at) FROM contact WHERE account_id = ?", (account_id,)) or 0
    # A change is stamped a little before it can be seen
    return newest > moment - _MARGIN_MS or (scalar("SELECT max(id) FROM event") or 0) > event_id


def sendable(list_id: int) -> dict[str, int]:
    """Count the members that marketing may go to now, by channel; of a list with double opt-in the confirmed ones."""
    found = dict(
        rows(
            "SELECT h.kind, count(DISTINCT h.contact_id) FROM membership m "
            "JOIN channel h ON h.contact_id = m.contact_id "
            "WHERE m.contact_list_id = ?1 AND h.subscribed = 1 AND h.suppression IS NULL "
            "AND (h.verified_at IS NOT NULL OR (SELECT double_opt_in FROM contact_list WHERE id = ?1) = 0) "
            "GROUP BY h.kind",
            (list_id,),
        )
    )
    return {"email": found.get("email", 0), "sms": found.get("phone", 0)}


def create(account_id: int, request: ListCreate) -> ContactList:
    """Make a list; raises Invalid with all faults."""
    writing()
    check(account_id, request)
    now = clock.now_ms()
    made = ContactList.create(
        account=account_id, name=request.name.strip(), name_key=name_key(request.name),
        double_opt_in=request.double_opt_in is True, public=request.public is True, created_at=now, updated_at=now,
        segment=request.segment_id if isinstance(request.segment_id, int) else None,
        stale=isinstance(request.segment_id, int),
    )  # fmt: skip
    if made.stale:
        after_commit(lambda: wake_ups.ring("segments"))
    if request.contact_ids is not UNSET and request.contact_ids:
        join(account_id, made.id, request.contact_ids)
    return get(account_id, made.id)


def update(account_id: int, list_id: int, request: ListPatch, by: By = By()) -> ContactList:
    """Change a list; raises NotFound, or Invalid with all faults.

    What was approved for its people has to be approved anew when it becomes the view of a segment.
    """
    writing()
    found = get(account_id, list_id)
    check(account_id, request, list_id)
    if isinstance(request.name, str):
        found.name, found.name_key = request.name.strip(), name_key(request.name)
    for name in ("double_opt_in", "public"):
        if isinstance(getattr(request, name), bool):
            setattr(found, name, getattr(request, name))
    _mirror(found, request.segment_id, by)
    found.updated_at = clock.now_ms()
    found.save()
    # Without members named, or with null beside a segment, the members stay as they are
    if isinstance(request.contact_ids, list) and found.segment_id is None:
        wanted = set(request.contact_ids)
        have = {row[0] for row in rows("SELECT contact_id FROM membership WHERE contact_list_id = ?", (list_id,))}
        leave(account_id, list_id, sorted(have - wanted))
        join(account_id, list_id, sorted(wanted - have))
    return get(account_id, list_id)


def _mirror(found: ContactList, segment_id: int | None | UnsetType, by: By) -> None:
    """Make a list the view of a segment, or freeze its members."""
    if segment_id is UNSET or segment_id == found.segment_id:
        return
    found.segment_id, found.stale = segment_id, segment_id is not None
    if segment_id is not None:
        dependencies.ask_again(found.account_id, "list", found.id, by)
        after_commit(lambda: wake_ups.ring("segments"))
    else:
        found.last_populated_at = None


def delete(account_id: int, list_id: int) -> ContactList:
    """Delete a list and answer it as it was; its people stay. Raises NotFound, or Invalid while it is needed."""
    writing()
    found = get(account_id, list_id)
    used = rows(
        "SELECT c.id, c.name FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE (t.contact_list_id = :id "
        "OR EXISTS (SELECT 1 FROM json_each(t.data, '$.contact_list_ids') WHERE value = :id) "
        "OR EXISTS (SELECT 1 FROM json_each(t.data, '$.exclude_contact_list_ids') WHERE value = :id)) "
        "AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL AND t.account_id = :account",
        {"id": list_id, "account": account_id},
    )
    used_by: list[dict[str, Any]] = [{"campaign_id": row[0], "name": row[1]} for row in used]
    used_by += dependencies.flows(account_id, "list", list_id)
    if used_by:
        raise Invalid({"base": ["is in use"]}, reason="in_use", used_by=used_by)
    dependencies.let_go("list", list_id)
    ContactList.delete().where(ContactList.id == list_id).execute()
    return found


def check(account_id: int, request: ListCreate | ListPatch, list_id: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a list, beyond its types."""
    faults = Faults()
    if isinstance(request.name, str):
        key = name_key(request.name)
        taken = fetch_one("SELECT id FROM contact_list WHERE account_id = ? AND name_key = ?", (account_id, key))
        if taken is not None and taken[0] != list_id:
            faults.add("name", "has already been taken")
    if isinstance(request.segment_id, int):
        if Segment.get_or_none(Segment.account == account_id, Segment.id == request.segment_id) is None:
            faults.add("segment_id", "must exist")
        elif list_id is not None and list_id in segments.lists_reached(account_id, request.segment_id):
            faults.add("segment_id", "refers back to this list")
        if isinstance(request.contact_ids, list):
            faults.add("base", "a list has either members or a segment")
    if isinstance(request.contact_ids, list):
        if request.segment_id is UNSET and list_id is not None and get(account_id, list_id).segment_id is not None:
            faults.add("contact_ids", VIEW)
        missing = unknown(account_id, request.contact_ids)
        if missing:
            faults.add("contact_ids", "must exist")
    faults.check()


def unknown(account_id: int, contact_ids: list[int]) -> set[int]:
    """Return those of some contact ids that are nobody's here."""
    found: set[int] = set()
    for start in range(0, len(contact_ids), _CHUNK):
        part = contact_ids[start : start + _CHUNK]
        marks = ",".join("?" * len(part))
        found |= {row[0] for row in rows(f"SELECT id FROM contact WHERE account_id = ? AND id IN ({marks})",
                                         [account_id, *part])}  # fmt: skip
    return set(contact_ids) - found


def faults(account_id: int, list_ids: list[int], contact_id: int | None = None) -> dict[str, list[str]]:
    """Return what is wrong with the lists a contact shall be in: each must exist and take members.

    A view of a segment takes none, but may be named again where the contact is in it already.
    """
    found: list[str] = []
    for list_id in dict.fromkeys(list_ids):
        row = fetch_one("SELECT segment_id FROM contact_list WHERE account_id = ? AND id = ?", (account_id, list_id))
        inside = fetch_one(
            "SELECT 1 FROM membership WHERE contact_list_id = ? AND contact_id = ?", (list_id, contact_id)
        )
        if row is None or (row[0] is not None and inside is None):
            found.append("must exist" if row is None else VIEW)
    return {"list_ids": list(dict.fromkeys(found))} if found else {}


def join(account_id: int, list_id: int, contact_ids: list[int]) -> Joined:
    """Put contacts into a list, once each; who left it by their own act stays out, and a mirror takes nobody."""
    writing()
    found = get(account_id, list_id)
    if found.segment_id is not None or not contact_ids:
        return Joined(0, [])
    wanted = {"list": list_id, "ids": json.dumps(contact_ids), "now": clock.now_ms()}
    kept = rows(
        "SELECT 1 FROM list_refusal WHERE contact_list_id = :list AND contact_id IN (SELECT value "
        "FROM json_each(:ids)) LIMIT 1",
        wanted,
    )
    added = rows(
        "INSERT INTO membership (contact_list_id, contact_id, created_at) "
        "SELECT :list, value, :now FROM json_each(:ids) WHERE NOT EXISTS (SELECT 1 FROM list_refusal r "
        "WHERE r.contact_list_id = :list AND r.contact_id = value) ON CONFLICT DO NOTHING RETURNING contact_id",
        wanted,
    )
    _settle(account_id, list_id, found.name, "list_add", [row[0] for row in added])
    return Joined(len(added), [f"list:{list_id}"] if kept else [])


def leave(account_id: int, list_id: int, contact_ids: list[int]) -> Joined:
    """Take contacts out of a list."""
    writing()
    name = get(account_id, list_id).name
    gone = rows(
        "DELETE FROM membership WHERE contact_list_id = ? AND contact_id IN (SELECT value FROM "
        "json_each(?)) RETURNING contact_id",
        (list_id, json.dumps(contact_ids)),
    )
    _settle(account_id, list_id, name, "list_remove", [row[0] for row in gone])
    return Joined(len(gone), [])


def replace_of_contact(account_id: int, contact_id: int, list_ids: list[int]) -> list[str]:
    """Put a contact into exactly these static lists; mirrors of segments stay as they are."""
    static = {
        row[0]
        for row in rows(
            "SELECT m.contact_list_id FROM membership m JOIN contact_list l ON l.id = m.contact_list_id "
            "WHERE m.contact_id = ? AND l.segment_id IS NULL",
            (contact_id,),
        )
    }
    kept: list[str] = []
    for list_id in static - set(list_ids):
        leave(account_id, list_id, [contact_id])
    for list_id in [one_id for one_id in dict.fromkeys(list_ids) if one_id not in static]:
        kept += join(account_id, list_id, [contact_id]).kept
    return kept


def _settle(account_id: int, list_id: int, name: str, event: str, contact_ids: list[int]) -> None:
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
            Happened(account_id, event, contact_id, data, resource_uid=f"list:{list_id}", resource_name=name)
            for contact_id in contact_ids
        ]
    )


# How lists grow: who joined lately and is still there, by day.

_DAY_MS = 86_400_000
_LARGEST_LISTS = (
    "SELECT id, name, contacts_count FROM contact_list WHERE account_id = ? ORDER BY contacts_count DESC, id LIMIT ?"
)
_JOINED = (
    "SELECT (created_at - ?1) / ?2, count(*) FROM membership WHERE contact_list_id = ?3 AND created_at >= ?1 GROUP BY 1"
)
_known: Rested[list["Growth"]] = Rested(least=5)


class Growth(NamedTuple):
    """A list, how many are in it, and how many of them joined on each of the last days, the oldest first."""

    id: int
    name: str
    size: int
    joined: tuple[int, ...]
    since: int


def list_growth(account_id: int, most: int = 4, days: int = 30) -> list[Growth]:
    """Return how the largest lists grew."""
    return _known.get((account_id, most, days), lambda: _of(account_id, most, days))


def _of(account_id: int, most: int, days: int) -> list[Growth]:
    since = clock.now_ms() - days * _DAY_MS
    made = []
    for number, name, size in rows(_LARGEST_LISTS, (account_id, most)):
        found: dict[int, int] = dict(rows(_JOINED, (since, _DAY_MS, number)))
        # Who joined this very moment stands behind the last day
        joined = [found.get(day, 0) for day in range(days)]
        joined[-1] += sum(count for day, count in found.items() if day >= days)
        made.append(Growth(number, name, size, tuple(joined), since))
    return made
