"""Makes one person of two: nothing is lost, and where the two differ about consent the stricter one counts."""

import json
from typing import Any

from appliance.audience.contacts import consent, search, store, tags
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CONTACTS
from appliance.core import clock
from appliance.core.errors import Faults, Invalid
from appliance.events import log
from appliance.events.log import Happened
from appliance.flows import run_ends
from appliance.storage.models import Contact
from appliance.storage.open import fold, rows, run
from appliance.storage.work import writing

_PLAIN = ("first_name", "last_name", "source", "country_code")
_SUMS = ("email_sent_count", "email_open_count", "email_click_count", "email_soft_bounce_count", "sms_sent_count")
_LATEST = ("email_last_sent_at", "email_last_opened_at", "email_last_clicked_at", "last_interacted_at")
_TRACKING = ("full", "aggregate", "none")


def two(account_id: int, contact_id: int, other_id: int) -> tuple[Contact, Contact]:
    """Return who is to become one with whom; raises NotFound or Invalid."""
    contact = store.get(account_id, contact_id)
    if other_id == contact_id:
        raise Invalid({"contact_id": ["is invalid"]})
    found = store.by_ids([other_id])
    if not found or found[0].account_id != account_id:
        raise Invalid({"contact_id": ["must exist"]})
    return contact, found[0]


def merge(account_id: int, contact_id: int, other_id: int, evidence: Evidence) -> Contact:
    """Merge another contact into this one and answer it; the other is gone. Raises NotFound or Invalid."""
    writing()
    contact, other = two(account_id, contact_id, other_id)
    data, faults = _united(contact, other), Faults()
    data = tags.checked(data, "data", faults)
    faults.check()
    had = tags.of(contact.data)
    out = {kind: _out(contact, kind) or _out(other, kind) for kind in ("email", "phone")}
    _fields(contact, other, data)
    _move(contact.id, other.id)
    _lists(contact.id, other.id)
    search.forget(other.id)
    Contact.delete().where(Contact.id == other.id).execute()
    CONTACTS.save(contact)
    store.load([contact])
    _strictest(contact, out, evidence)
    tags.tell(contact, had)
    what = {"merged_contact_id": other.id, "merged_uuid": other.uuid, "source": evidence.source}
    log.record(Happened(account_id, "contact_merge", contact.id, what))
    search.index(contact, contact.channels)
    return contact


def _united(contact: Contact, other: Contact) -> dict[str, Any]:
    """Return the data of both; what both have is this one's, tags are united without case."""
    data = {**other.data, **contact.data}
    both = {fold(tag): tag for tag in tags.of(other.data) + tags.of(contact.data)}
    return {**data, "tags": list(both.values())} if both else data


def _fields(contact: Contact, other: Contact, data: dict[str, Any]) -> None:
    contact.data = data
    for name in _PLAIN:
        setattr(contact, name, getattr(contact, name) or getattr(other, name))
    for name in _SUMS:
        setattr(contact, name, getattr(contact, name) + getattr(other, name))
    for name in _LATEST:
        setattr(contact, name, max(getattr(one, name) or 0 for one in (contact, other)) or None)
    contact.tracking = max(contact.tracking, other.tracking, key=_TRACKING.index)
    contact.created_at = min(contact.created_at, other.created_at)
    contact.updated_at = clock.now_ms()


def _out(contact: Contact, kind: str) -> consent.By | None:
    """Return who took a person out of a kind: they have such addresses, none is subscribed, and one was opted out."""
    mine = [channel for channel in contact.channels if channel.kind == kind]
    if any(channel.subscribed for channel in mine):
        return None
    by = {channel.opted_out_by or "recipient" for channel in mine if channel.opt_out_at is not None}
    return ("recipient" if "recipient" in by else "operator") if by else None


def _strictest(contact: Contact, out: dict[str, consent.By | None], evidence: Evidence) -> None:
    """Opt the other addresses of a kind out too, if either of the two was out of it."""
    why = Evidence(
        "merge", evidence.actor, evidence.ip, evidence.user_agent,
        text="one of the two merged contacts had opted out", test=evidence.test,
    )  # fmt: skip
    for channel in contact.channels:
        by = out[channel.kind]
        if by is not None and channel.subscribed:
            consent.opt_out(channel, by, why)


def _move(contact_id: int, other_id: int) -> None:
    """Give the other's rows to this one; of a campaign to both only one message can be theirs."""
    ids = {"contact": contact_id, "other": other_id, "now": clock.now_ms()}
    both = (
        "SELECT mine.id AS mine, theirs.id AS theirs, mine.status IN ('skipped', 'cancelled') "
        "AND theirs.status NOT IN ('skipped', 'cancelled') AS weaker FROM message mine JOIN message theirs "
        "ON theirs.campaign_id = mine.campaign_id WHERE mine.contact_id = :contact AND theirs.contact_id = :other "
        "AND mine.campaign_id IS NOT NULL"
    )
    # One that has not gone yet and is nobody's now is skipped by the sender: nobody gets a campaign twice
    for mine, theirs, weaker in rows(both, ids):
        run("UPDATE message SET contact_id = NULL WHERE id = ?", (mine if weaker else theirs,))
    # Of two ways through one flow, this person's own goes on
    doubled = rows(
        "SELECT theirs.id FROM run theirs JOIN run mine ON mine.flow_id = theirs.flow_id AND mine.test = theirs.test "
        "WHERE theirs.contact_id = :other AND theirs.status = 'live' AND mine.contact_id = :contact "
        "AND mine.status = 'live'",
        ids,
    )
    ended = run_ends.end([row[0] for row in doubled], "exited", "contact_merged", ids["now"])
    # What it was to send is sent by the way that goes on; only what somebody asked for goes twice
    run(
        "UPDATE message SET status = CASE WHEN doubts > 0 THEN 'uncertain' ELSE 'cancelled' END, due_at = NULL, "
        "updated_at = ? WHERE run_id IN (SELECT value FROM json_each(?)) AND status IN ('queued', 'held') "
        "AND transactional = 0",
        (ids["now"], json.dumps(ended)),
    )
    run("UPDATE message_content SET shown_as = :contact WHERE shown_as = :other", ids)
    # Whoever was in a watched segment as the other was in it, and neither enters it now nor leaves it unnoticed
    run(
        "INSERT INTO segment_member (segment_id, contact_id) SELECT segment_id, :contact FROM segment_member "
        "WHERE contact_id = :other ON CONFLICT DO NOTHING",
        ids,
    )
    for table in ("channel", "message", "incoming", "event", "consent", "run"):
        run(f"UPDATE {table} SET contact_id = :contact WHERE contact_id = :other", ids)


def _lists(contact_id: int, other_id: int) -> None:
    """Unite the lists; one that either of them left by their own act is left."""
    ids = {"contact": contact_id, "other": other_id}
    counted = "SELECT contact_list_id, count(*) FROM membership WHERE contact_id IN (:contact, :other) GROUP BY 1"
    before = dict(rows(counted, ids))
    for table in ("membership", "list_refusal"):
        run(
            f"INSERT INTO {table} (contact_list_id, contact_id, created_at) SELECT contact_list_id, :contact, "
            f"created_at FROM {table} WHERE contact_id = :other ON CONFLICT DO NOTHING",
            ids,
        )
        run(f"DELETE FROM {table} WHERE contact_id = :other", ids)
    run(
        "DELETE FROM membership WHERE contact_id = :contact AND contact_list_id IN "
        "(SELECT contact_list_id FROM list_refusal WHERE contact_id = :contact)",
        ids,
    )
    after = dict(rows(counted, ids))
    for list_id, number in before.items():
        less = number - after.get(list_id, 0)
        if less:
            run("UPDATE contact_list SET contacts_count = contacts_count - ? WHERE id = ?", (less, list_id))
