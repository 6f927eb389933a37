"""The timeline of a contact: events and messages, evidence of consent, live flow runs, and similar contacts."""

import json
from typing import Any, NamedTuple

from appliance.accounts import members
from appliance.audience.contacts import store
from appliance.core import crypto
from appliance.events.log import RESERVED_NAMES
from appliance.storage import masking
from appliance.storage.database import Page, rows, scalar
from appliance.storage.models import Consent, Contact, Event, Flow, User

_MAX_OFFSET = 2**53


class Entry(NamedTuple):
    """An entry of the timeline: the kind (`event` or `message`), the id of its row, and the time in milliseconds."""

    kind: str
    id: int
    created_at: int


def fetch_page(account_id: int, contact_id: int, number: int = 1, limit: int = 50) -> Page:
    """Return a page of the events and messages of a contact as Entry, newest first; raises NotFound.

    `number` is the page, starting at 1, and `limit` its size.
    """
    store.get(account_id, contact_id)
    total = sum(
        int(scalar(f"SELECT count(*) FROM {table} WHERE contact_id = ?", (contact_id,)))
        for table in ("event", "message")
    )
    offset = min((number - 1) * limit, _MAX_OFFSET)
    timeline_rows = rows(
        "SELECT 'event' AS kind, id, created_at FROM event WHERE contact_id = :contact "
        "UNION ALL SELECT 'message', id, created_at FROM message WHERE contact_id = :contact "
        "ORDER BY created_at DESC, kind, id DESC LIMIT :limit OFFSET :offset",
        {"contact": contact_id, "limit": limit, "offset": offset},
    )
    return Page([Entry._make(row) for row in timeline_rows], total, number, limit)


def fetch_evidence(account_id: int, contact_id: int, number: int = 1, limit: int = 50) -> Page:
    """Return a page of the evidence of consent of a contact, newest first; raises NotFound.

    The page includes evidence about the contact's current addresses from before the contact existed. Each row gets the
    attribute `address`, which is None if the contact no longer has the address.
    """
    contact = store.get(account_id, contact_id)
    addresses = addresses_by_hash(contact)
    condition = Consent.contact == contact_id
    if addresses:
        without_contact = (Consent.account == account_id) & Consent.contact.is_null()
        condition |= without_contact & Consent.address_hash.in_(list(addresses))
    query_set = Consent.select().where(condition)
    total = query_set.count()
    offset = (number - 1) * limit
    page_rows = list(query_set.order_by(Consent.id.desc()).limit(limit).offset(offset)) if offset < total else []
    for row in page_rows:
        row.address = addresses.get(bytes(row.address_hash))
    return Page(page_rows, total, number, limit)


def addresses_by_hash(contact: Contact) -> dict[bytes, str]:
    """Return the addresses of a contact by the hash under which evidence stores them."""
    return {crypto.hash_address(channel.kind, channel.key): channel.value for channel in contact.channels}


# Event names by category, as the filter of the timeline offers them. The category `own` has no entry: it means all
# names that are not reserved, which are the account's own events.
EVENT_KINDS = {
    "messages": (
        *sorted(name for name in RESERVED_NAMES if name.startswith(("email_", "sms_"))), "message", "keyword",
    ),
    "consent": ("opt_in", "opt_out", "double_opt_in_requested", "double_opt_in_confirmed", "form_submitted",
                "erase_requested"),
    "person": ("contact_add", "contact_update", "contact_merge", "tag_add", "tag_remove", "list_add", "list_remove",
               "segment_enter", "segment_exit"),
    "flows": ("flow_enter", "flow_exit", "flow_goal", "date_reached"),
}  # fmt: skip


class LiveRun(NamedTuple):
    """A flow that a contact is in now, with the times of entry and of the next step in milliseconds.

    `due_at` is None if the next step has no fixed time. `is_paused` says whether the flow is paused.
    """

    flow_id: int
    name: str
    since: int
    due_at: int | None
    is_paused: bool


def fetch_events(account_id: int, contact_id: int, kind: str = "", number: int = 1, limit: int = 50) -> Page:
    """Return a page of a contact's events, newest first; raises NotFound.

    `kind` is a key of EVENT_KINDS, `own` for events that are not reserved, or empty for all.
    """
    store.get(account_id, contact_id)
    params: dict[str, Any] = {"contact": contact_id, "names": json.dumps(EVENT_KINDS.get(kind, sorted(RESERVED_NAMES)))}
    name_condition = (
        "" if not kind else (f"AND event {'NOT IN' if kind == 'own' else 'IN'} (SELECT value FROM json_each(:names))")
    )
    total = int(scalar(f"SELECT count(*) FROM event WHERE contact_id = :contact {name_condition}", params))
    ids = [
        row[0]
        for row in rows(
            f"SELECT id FROM event WHERE contact_id = :contact {name_condition} ORDER BY created_at DESC, id DESC "
            "LIMIT :limit OFFSET :skip",
            {**params, "limit": limit, "skip": (number - 1) * limit},
        )
    ]
    by_id = {row.id: row for row in Event.select().where(Event.id.in_(ids))} if ids else {}
    return Page([by_id[event_id] for event_id in ids], total, number, limit)


def fetch_live_runs(account_id: int, contact_id: int) -> list[LiveRun]:
    """Return the flows that a contact is in now, in order of entry."""
    runs = rows(
        "SELECT f.id, f.name, r.created_at, r.due_at, f.status = 'paused' FROM run r JOIN flow f ON f.id = r.flow_id "
        "WHERE r.contact_id = ? AND r.status = 'live' AND f.account_id = ? AND f.hidden = 0 AND f.deleted_at IS NULL "
        "ORDER BY r.created_at",
        (contact_id, account_id),
    )
    return [LiveRun(row[0], row[1], row[2], row[3], bool(row[4])) for row in runs]


def fetch_actor_names(account_id: int, evidence: list[Any]) -> dict[str, str]:
    """Return the names of the users and flows that are actors of rows of evidence, by actor (`user:N` or `flow:N`).

    A user without a name is named by the email address.
    """
    user_ids, flow_ids = _parse_actor_ids(evidence, "user:"), _parse_actor_ids(evidence, "flow:")
    users = members.select(account_id).where(User.id.in_(user_ids)) if user_ids else ()
    flows = Flow.select().where(Flow.account == account_id, Flow.id.in_(flow_ids)) if flow_ids else ()
    return {f"user:{row.id}": row.name or row.email for row in users} | {f"flow:{row.id}": row.name for row in flows}


def _parse_actor_ids(evidence: list[Any], prefix: str) -> list[int]:
    ids = {entry.actor.removeprefix(prefix) for entry in evidence if entry.actor and entry.actor.startswith(prefix)}
    return [int(id_) for id_ in ids if id_.isdecimal()]


def find_similar_contacts(account_id: int, contact_id: int, limit: int = 5) -> list[Any]:
    """Return up to `limit` other contacts with the same first and last name in any case; raises NotFound.

    Returns no contacts if one of the two names is missing, or contact data is masked.
    """
    contact = store.get(account_id, contact_id)
    if masking.is_active():
        return []
    names = (contact.first_name, contact.last_name)
    if not all(names):
        return []
    candidates = store.find_by_words(account_id, " ".join(str(name) for name in names), limit=limit + 1).rows
    folded_names = tuple(str(name).casefold() for name in names)
    return [
        contact for contact in candidates if contact.id != contact_id
        and (str(contact.first_name).casefold(), str(contact.last_name).casefold()) == folded_names
    ][:limit]  # fmt: skip
