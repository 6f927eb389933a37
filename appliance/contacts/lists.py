"""Lists: groups that people are put into by name."""

from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import clock
from appliance.db.open import connection, one, rows
from appliance.db.work import writing
from appliance.errors import Faults, Invalid, NotFound
from appliance.events import log
from appliance.events.log import Happened
from appliance.fields import Id, Name, PageQuery, Short
from appliance.pages import Page, paginate
from appliance.tables import ContactList, Segment

_CHUNK = 500


class ListCreate(Struct):
    """A new list: empty, with members, or the mirror of a segment."""

    name: Name
    segment_id: Id | None | UnsetType = UNSET
    contact_ids: Annotated[list[Id], Meta(max_length=10_000)] | None | UnsetType = UNSET
    double_opt_in: bool | UnsetType = UNSET
    public: bool | UnsetType = UNSET


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


def page(account_id: int, query: ListQuery) -> Page:
    """List lists, newest first."""
    found = ContactList.select().where(ContactList.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        found = found.where(ContactList.name_key.contains(query.search.strip().casefold()))
    return paginate(found.order_by(ContactList.created_at.desc(), ContactList.id.desc()), query.page, query.size())


def get(account_id: int, list_id: int) -> ContactList:
    """Answer a list; raises NotFound."""
    found = ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)
    if found is None:
        raise NotFound
    return found


def sendable(list_id: int) -> dict[str, int]:
    """Count the members that marketing may go to now, by channel."""
    found = dict(
        rows(
            "SELECT h.kind, count(DISTINCT h.contact_id) FROM membership m "
            "JOIN channel h ON h.contact_id = m.contact_id "
            "WHERE m.contact_list_id = ? AND h.subscribed = 1 AND h.suppression IS NULL GROUP BY h.kind",
            (list_id,),
        )
    )
    return {"email": found.get("email", 0), "sms": found.get("phone", 0)}


def create(account_id: int, request: ListCreate) -> ContactList:
    """Make a list; raises Invalid with all faults."""
    writing()
    _check(account_id, None, request)
    now = clock.now_ms()
    made = ContactList.create(
        account=account_id, name=request.name.strip(), name_key=request.name.strip().casefold(),
        double_opt_in=request.double_opt_in is True, public=request.public is True, created_at=now, updated_at=now,
    )  # fmt: skip
    if request.contact_ids is not UNSET and request.contact_ids:
        join(account_id, made.id, request.contact_ids)
    return get(account_id, made.id)


def update(account_id: int, list_id: int, request: ListPatch) -> ContactList:
    """Change a list; raises NotFound, or Invalid with all faults."""
    writing()
    found = get(account_id, list_id)
    _check(account_id, list_id, request)
    if isinstance(request.name, str):
        found.name, found.name_key = request.name.strip(), request.name.strip().casefold()
    for name in ("double_opt_in", "public"):
        if isinstance(getattr(request, name), bool):
            setattr(found, name, getattr(request, name))
    found.updated_at = clock.now_ms()
    found.save()
    if request.contact_ids is not UNSET:
        wanted = set(request.contact_ids or [])
        have = {row[0] for row in rows("SELECT contact_id FROM membership WHERE contact_list_id = ?", (list_id,))}
        leave(account_id, list_id, sorted(have - wanted))
        join(account_id, list_id, sorted(wanted - have))
    return get(account_id, list_id)


def delete(account_id: int, list_id: int) -> ContactList:
    """Delete a list and answer it as it was; its people stay. Raises NotFound, or Invalid while it is needed."""
    writing()
    found = get(account_id, list_id)
    used = rows(
        "SELECT c.id, c.name FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE t.contact_list_id = ? "
        "AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL",
        (list_id,),
    )
    if used:
        raise Invalid(
            {"base": ["is in use"]}, reason="in_use", used_by=[{"campaign_id": row[0], "name": row[1]} for row in used]
        )
    connection().execute("UPDATE trigger SET contact_list_id = NULL WHERE contact_list_id = ?", (list_id,))
    ContactList.delete().where(ContactList.id == list_id).execute()
    return found


def _check(account_id: int, list_id: int | None, request: ListCreate | ListPatch) -> None:
    faults = Faults()
    if isinstance(request.name, str):
        key = request.name.strip().casefold()
        taken = one("SELECT id FROM contact_list WHERE account_id = ? AND name_key = ?", (account_id, key))
        if taken is not None and taken[0] != list_id:
            faults.add("name", "has already been taken")
    if isinstance(request.segment_id, int):
        if Segment.get_or_none(Segment.account == account_id, Segment.id == request.segment_id) is None:
            faults.add("segment_id", "must exist")
        if isinstance(request.contact_ids, list):
            faults.add("base", "a list has either members or a segment")
    if isinstance(request.contact_ids, list):
        unknown = _unknown(account_id, request.contact_ids)
        if unknown:
            faults.add("contact_ids", "must exist")
    faults.check()


def _unknown(account_id: int, contact_ids: list[int]) -> set[int]:
    found: set[int] = set()
    for start in range(0, len(contact_ids), _CHUNK):
        part = contact_ids[start : start + _CHUNK]
        marks = ",".join("?" * len(part))
        found |= {row[0] for row in rows(f"SELECT id FROM contact WHERE account_id = ? AND id IN ({marks})",
                                         [account_id, *part])}  # fmt: skip
    return set(contact_ids) - found


def faults(account_id: int, list_ids: list[int]) -> dict[str, list[str]]:
    """Answer what is wrong with the lists a contact shall be in: each must exist and take members."""
    found: dict[str, list[str]] = {}
    for list_id in dict.fromkeys(list_ids):
        row = one("SELECT segment_id FROM contact_list WHERE account_id = ? AND id = ?", (account_id, list_id))
        if row is None:
            found["list_ids"] = ["must exist"]
    return found


def join(account_id: int, list_id: int, contact_ids: list[int]) -> Joined:
    """Put contacts into a list, once each; who left it by their own act stays out."""
    writing()
    here, now = connection(), clock.now_ms()
    name = get(account_id, list_id).name
    added, kept = [], []
    for contact_id in contact_ids:
        if one("SELECT 1 FROM list_refusal WHERE contact_list_id = ? AND contact_id = ?", (list_id, contact_id)):
            kept = [f"list:{list_id}"]
            continue
        here.execute("INSERT OR IGNORE INTO membership VALUES (?, ?, ?)", (list_id, contact_id, now))
        if here.changes():
            added.append(contact_id)
    _settle(account_id, list_id, name, "list_add", added)
    return Joined(len(added), kept)


def leave(account_id: int, list_id: int, contact_ids: list[int]) -> Joined:
    """Take contacts out of a list."""
    writing()
    here = connection()
    name = get(account_id, list_id).name
    gone = []
    for contact_id in contact_ids:
        here.execute("DELETE FROM membership WHERE contact_list_id = ? AND contact_id = ?", (list_id, contact_id))
        if here.changes():
            gone.append(contact_id)
    _settle(account_id, list_id, name, "list_remove", gone)
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
