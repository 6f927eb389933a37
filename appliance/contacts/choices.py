"""What a person decides about themselves: lists joined and left by their own act, and how much is noticed of them."""

from typing import Literal, NamedTuple

from appliance import clock
from appliance.contacts import consent, lists
from appliance.contacts.consent import Evidence
from appliance.contacts.records import CONTACTS
from appliance.db.open import rows, run
from appliance.db.work import after_commit, writing
from appliance.events import log
from appliance.events.log import Happened
from appliance.tables import Channel, Contact, ContactList
from appliance.work import wake_ups

Tracking = Literal["full", "aggregate", "none"]


class Offer(NamedTuple):
    """A list that a person may join or leave, and whether they are in it."""

    id: int
    name: str
    inside: bool


def offers(account_id: int, contact_id: int) -> list[Offer]:
    """Return the public lists of an account as one person sees them, by name.

    A list that mirrors a segment is offered to those who are in it, or left it: nobody else can join it.
    """
    found = rows(
        "SELECT l.id, l.name, m.contact_id IS NOT NULL FROM contact_list l "
        "LEFT JOIN membership m ON m.contact_list_id = l.id AND m.contact_id = :contact "
        "LEFT JOIN list_refusal r ON r.contact_list_id = l.id AND r.contact_id = :contact "
        "WHERE l.account_id = :account AND l.public = 1 AND (l.segment_id IS NULL OR coalesce(m.contact_id, "
        "r.contact_id) IS NOT NULL) ORDER BY l.name_key, l.id",
        {"account": account_id, "contact": contact_id},
    )
    return [Offer(row[0], row[1], bool(row[2])) for row in found]


def join(channel: Channel, list_id: int, evidence: Evidence) -> bool:
    """Put the person of an address into a list by their own act, though they may have left it; False if it is gone."""
    writing()
    here = ContactList.get_or_none(ContactList.account == channel.account_id, ContactList.id == list_id)
    if here is None:
        return False
    returned = run(
        "DELETE FROM list_refusal WHERE contact_list_id = ? AND contact_id = ?", (list_id, channel.contact_id)
    )
    if here.segment_id is not None:
        # Whether they are in it the segment says, and soon
        run("UPDATE contact_list SET stale = 1 WHERE id = ?", (list_id,))
        after_commit(lambda: wake_ups.ring("segments"))
    joined = lists.join(channel.account_id, list_id, [channel.contact_id]).number
    if joined or returned:
        _record(channel, "list_joined", evidence, list_id)
    return True


def leave(channel: Channel, list_id: int, evidence: Evidence) -> bool:
    """Take the person of an address out of a list for good: no write but their own brings them back."""
    writing()
    if not ContactList.select().where(ContactList.account == channel.account_id, ContactList.id == list_id).exists():
        return False
    lists.leave(channel.account_id, list_id, [channel.contact_id])
    if run(
        "INSERT INTO list_refusal (contact_list_id, contact_id, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (list_id, channel.contact_id, clock.now_ms()),
    ):
        _record(channel, "list_left", evidence, list_id)
    return True


def is_refused(contact_id: int, list_ids: list[int]) -> bool:
    """Return whether a person left one of some lists by their own act."""
    marks = ",".join("?" * len(list_ids))
    sql = f"SELECT 1 FROM list_refusal WHERE contact_id = ? AND contact_list_id IN ({marks}) LIMIT 1"
    return bool(list_ids and rows(sql, [contact_id, *list_ids]))


def track(channel: Channel, wanted: Tracking, evidence: Evidence) -> bool:
    """Let the person of an address say how much is noticed of what they open and click; False if it is so already."""
    writing()
    contact = Contact.get_by_id(channel.contact_id)
    if contact.tracking == wanted:
        return False
    contact.tracking, contact.updated_at = wanted, clock.now_ms()
    CONTACTS.save(contact)
    consent.record(
        channel.account_id, (channel.kind, channel.key), "tracking", "recipient", evidence, contact.id,
        {"tracking": wanted},
    )  # fmt: skip
    data = {"source": evidence.source, "fields": ["tracking"]}
    log.record(Happened(channel.account_id, "contact_update", contact.id, data, test=evidence.test))
    return True


def seen(contact_id: int) -> None:
    """Note that a person themselves did something just now."""
    writing()
    now = clock.now_ms()
    run("UPDATE contact SET last_interacted_at = ?, updated_at = ? WHERE id = ?", (now, now, contact_id))


def _record(channel: Channel, act: str, evidence: Evidence, list_id: int) -> None:
    consent.record(
        channel.account_id, (channel.kind, channel.key), act, "recipient", evidence, channel.contact_id, None, list_id
    )
