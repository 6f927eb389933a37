"""What happened to a person, in one row: events and messages; and the evidence of their consent."""

import json
from typing import Any, NamedTuple

from appliance.audience.contacts import store
from appliance.core import tokens
from appliance.core.pagination import Page
from appliance.events.kinds import RESERVED
from appliance.storage.models import Consent, Contact, Event, User
from appliance.storage.open import rows, scalar

_FARTHEST = 2**53


class Entry(NamedTuple):
    """An event or a message, by id; `kind` is `event` or `message`."""

    kind: str
    id: int
    created_at: int


def page(account_id: int, contact_id: int, number: int = 1, limit: int = 50) -> Page:
    """List what happened to a contact, newest first; raises NotFound."""
    store.get(account_id, contact_id)
    total = sum(
        int(scalar(f"SELECT count(*) FROM {table} WHERE contact_id = ?", (contact_id,)))
        for table in ("event", "message")
    )
    offset = min((number - 1) * limit, _FARTHEST)
    found = rows(
        "SELECT 'event' AS kind, id, created_at FROM event WHERE contact_id = :contact "
        "UNION ALL SELECT 'message', id, created_at FROM message WHERE contact_id = :contact "
        "ORDER BY created_at DESC, kind, id DESC LIMIT :limit OFFSET :offset",
        {"contact": contact_id, "limit": limit, "offset": offset},
    )
    return Page([Entry._make(row) for row in found], total, number, limit)


def consents(account_id: int, contact_id: int, number: int = 1, limit: int = 50) -> Page:
    """List the evidence about a contact, newest first, with that from before about their addresses; raises NotFound."""
    contact = store.get(account_id, contact_id)
    known = hashes(contact)
    mine = Consent.contact == contact_id
    if known:
        nobodys = (Consent.account == account_id) & Consent.contact.is_null()
        mine |= nobodys & Consent.address_hash.in_(list(known))
    found = Consent.select().where(mine)
    total = found.count()
    offset = (number - 1) * limit
    page_rows = list(found.order_by(Consent.id.desc()).limit(limit).offset(offset)) if offset < total else []
    for row in page_rows:
        row.address = known.get(bytes(row.address_hash))
    return Page(page_rows, total, number, limit)


def hashes(contact: Contact) -> dict[bytes, str]:
    """Return a contact's addresses by the hashes under which they are remembered."""
    return {tokens.address_hash(channel.kind, channel.key): channel.value for channel in contact.channels}


# What happened to one person, by kind: what a page of them shows, and what it says of who did it.

# Names of events, by what a person would look for among them; `own` are those that nobody but the account knows
KINDS = {
    "messages": (
        *sorted(name for name in RESERVED if name.startswith(("email_", "sms_"))), "message", "keyword",
    ),
    "consent": ("opt_in", "opt_out", "double_opt_in_requested", "double_opt_in_confirmed", "form_submitted",
                "erase_requested"),
    "person": ("contact_add", "contact_update", "contact_merge", "tag_add", "tag_remove", "list_add", "list_remove",
               "segment_enter", "segment_exit"),
    "flows": ("flow_enter", "flow_exit", "flow_goal", "date_reached"),
}  # fmt: skip


class LiveRun(NamedTuple):
    """A flow that a person is in: its id and name, since when, and when they go on."""

    flow_id: int
    name: str
    since: int
    due_at: int | None
    is_paused: bool


def story_page(account_id: int, contact_id: int, kind: str = "", number: int = 1, limit: int = 50) -> Page:
    """List what happened to a contact, newest first, of one of KINDS or `own` or all; raises NotFound."""
    store.get(account_id, contact_id)
    asked: dict[str, Any] = {"contact": contact_id, "names": json.dumps(KINDS.get(kind, sorted(RESERVED)))}
    among = (
        "" if not kind else (f"AND event {'NOT IN' if kind == 'own' else 'IN'} (SELECT value FROM json_each(:names))")
    )
    total = int(scalar(f"SELECT count(*) FROM event WHERE contact_id = :contact {among}", asked))
    ids = [
        row[0]
        for row in rows(
            f"SELECT id FROM event WHERE contact_id = :contact {among} ORDER BY created_at DESC, id DESC "
            "LIMIT :limit OFFSET :skip",
            {**asked, "limit": limit, "skip": (number - 1) * limit},
        )
    ]
    by_id = {row.id: row for row in Event.select().where(Event.id.in_(ids))} if ids else {}
    return Page([by_id[one] for one in ids], total, number, limit)


def live_runs(account_id: int, contact_id: int) -> list[LiveRun]:
    """Return the flows that a contact is in now, the longest first."""
    found = rows(
        "SELECT f.id, f.name, r.created_at, r.due_at, f.status = 'paused' FROM run r JOIN flow f ON f.id = r.flow_id "
        "WHERE r.contact_id = ? AND r.status = 'live' AND f.account_id = ? AND f.hidden = 0 AND f.deleted_at IS NULL "
        "ORDER BY r.created_at",
        (contact_id, account_id),
    )
    return [LiveRun(row[0], row[1], row[2], row[3], bool(row[4])) for row in found]


def actors(account_id: int, evidence: list[Any]) -> dict[str, str]:
    """Return the names of the people of the team who stand in evidence as `user:N`."""
    ids = {one.actor.removeprefix("user:") for one in evidence if one.actor and one.actor.startswith("user:")}
    wanted = [int(one) for one in ids if one.isdecimal()]
    found = User.select().where(User.account == account_id, User.id.in_(wanted)) if wanted else ()
    return {f"user:{row.id}": row.name or row.email for row in found}


def alike(account_id: int, contact_id: int, most: int = 5) -> list[Any]:
    """Return people who may be the same person: of the same name, written in whatever case."""
    contact = store.get(account_id, contact_id)
    names = (contact.first_name, contact.last_name)
    if not all(names):
        return []
    found = store.find(account_id, " ".join(str(one) for one in names), limit=most + 1).rows
    wanted = tuple(str(one).casefold() for one in names)
    return [
        one for one in found
        if one.id != contact_id and (str(one.first_name).casefold(), str(one.last_name).casefold()) == wanted
    ][:most]  # fmt: skip
