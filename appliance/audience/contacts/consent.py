"""Who may be written to: the one place that opts addresses in and out (docs/decisions.md#9, "Who lifts what").

Every change appends a consent row with its evidence. A channel's columns are the state that follows from them.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from appliance.audience.contacts import lists
from appliance.audience.contacts.records import CHANNELS, CONTACTS
from appliance.core import client_ip, clock, tokens, wake_ups
from appliance.core.addresses import Address
from appliance.events import log
from appliance.events.log import Happened
from appliance.storage import journal
from appliance.storage.models import Channel, Contact, ContactList
from appliance.storage.open import fetch_one, rows, run
from appliance.storage.work import after_commit, writing

By = Literal["recipient", "operator"]
_encode = msgspec.json.Encoder().encode

# What a restored backup has to learn of; of the latter two only what people chose themselves
REFUSALS = ("opt_out", "suppressed", "list_left", "tracking")
_THEIR_OWN = ("list_left", "tracking")
# Only the person's own act lifts these (and of `erased` only a confirmation of theirs).
KEEPS_OUT = ("complaint", "erased")
# The gravest first: this is what a skipped row and a page name
GRAVITY = ("erased", "complaint", "hard_bounce", "stop_keyword", "manual", "soft_bounce")


class Evidence(msgspec.Struct):
    """How an act came about, for the consent row."""

    source: str
    actor: str | None = None
    ip: str | None = None
    user_agent: str | None = None
    text: str | None = None
    message_id: int | None = None
    test: bool = False


def suppression(account_id: int, kind: str, address_hash: bytes, but: tuple[str, ...] = ()) -> str | None:
    """Return the gravest reason now in force for an address, or None; `but` are reasons that do not count."""
    found = {
        row[0]
        for row in rows(
            "SELECT reason FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? "
            "AND (expires_at IS NULL OR expires_at > ?)",
            (account_id, kind, address_hash, clock.now_ms()),
        )
    }
    return next((reason for reason in GRAVITY if reason in found and reason not in but), None)


def in_force(channel: Channel) -> str | None:
    """Return the gravest reason now in force for a channel's address, or None."""
    return suppression(channel.account_id, channel.kind, tokens.address_hash(channel.kind, channel.key))


def remembered(account_id: int, kind: str, address_hash: bytes) -> tuple[str, int] | None:
    """Return (by, when) of an opt-out that outlived its contact, or None."""
    row = fetch_one(
        "SELECT by, created_at FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?",
        (account_id, kind, address_hash),
    )
    return (row[0], row[1]) if row else None


def adopt(channel: Channel) -> None:
    """Give a new channel what its address already carries: suppressions, and opt-outs of a deleted contact."""
    hashed = tokens.address_hash(channel.kind, channel.key)
    channel.suppression = suppression(channel.account_id, channel.kind, hashed)
    kept = remembered(channel.account_id, channel.kind, hashed)
    channel.opted_out_by, channel.opt_out_at = kept or (None, None)
    channel.opt_in_at, channel.subscribed, channel.verified_at = None, False, None


def wish(channel: Channel, subscribed: bool | None, evidence: Evidence) -> bool:
    """Apply an operator's write to a channel; `None` is the address alone. Answers whether an opt-out was kept."""
    writing()
    if subscribed is False:
        if channel.subscribed:
            opt_out(channel, "operator", evidence)
        return False
    if channel.suppression in KEEPS_OUT:
        return True
    if channel.opted_out_by == "recipient" and subscribed is None:
        return True
    if not channel.subscribed:
        opt_in(channel, "operator", evidence)
    elif subscribed and evidence.text:
        # Nothing changes but what can be shown for it
        record(channel.account_id, _of(channel), "opt_in", "operator", evidence, channel.contact_id)
    return channel.suppression is not None


def opt_in(channel: Channel, by: By, evidence: Evidence) -> None:
    """Opt a channel in and keep the evidence; what a STOP left goes with the opt-out it came with."""
    writing()
    now = clock.now_ms()
    if channel.kind == "phone" and channel.suppression is not None:
        lift(channel, ("stop_keyword",), by, evidence)
    channel.subscribed, channel.opt_in_at = True, now
    channel.opt_out_at = channel.opted_out_by = None
    channel.updated_at = now
    CHANNELS.save(channel)
    run(
        "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?",
        (channel.account_id, channel.kind, tokens.address_hash(channel.kind, channel.key)),
    )
    _record(channel, "opt_in", by, evidence)


def opt_out(channel: Channel, by: By, evidence: Evidence) -> bool:
    """Opt a channel out and keep the evidence; False if the recipient had done so before (nothing changes then)."""
    writing()
    if not channel.subscribed and channel.opted_out_by == "recipient":
        return False
    if not channel.subscribed and channel.opt_out_at is not None and by == "operator":
        return False
    now = clock.now_ms()
    channel.subscribed, channel.opt_out_at, channel.opted_out_by = False, now, by
    channel.updated_at = now
    CHANNELS.save(channel)
    _record(channel, "opt_out", by, evidence)
    return True


def imported(channel: Channel, wanted: bool, evidence: Evidence) -> bool:
    """Apply an import's `opt_in` to a channel; returns whether an opt-out was kept. A file lifts only operators'."""
    writing()
    if not wanted:
        return False
    if channel.suppression in KEEPS_OUT or channel.opted_out_by == "recipient":
        return True
    if not channel.subscribed:
        opt_in(channel, "operator", evidence)
    return channel.suppression is not None


def returned(channel: Channel, evidence: Evidence) -> bool:
    """Opt a channel in by the person's own act, a preference page or START; False where a complaint keeps it out."""
    writing()
    lift(channel, ("stop_keyword",), "recipient", evidence)
    if channel.suppression in KEEPS_OUT:
        return False
    if not channel.subscribed:
        opt_in(channel, "recipient", evidence)
    return True


def returned_nobodys(account_id: int, address: Address, evidence: Evidence) -> bool:
    """Take back the STOP of a number that is nobody's, by a START from it; False if there is none."""
    writing()
    hashed = tokens.address_hash(address.kind, address.key)
    where = (account_id, address.kind, hashed)
    stopped = "account_id = ? AND kind = ? AND address_hash = ? AND reason = 'stop_keyword'"
    found = fetch_one(f"SELECT created_at FROM suppression WHERE {stopped}", where)
    if found is None:
        return False
    run(f"DELETE FROM suppression WHERE {stopped}", where)
    # What they left by other ways before stays left
    run("DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ? AND created_at >= ?",
        (*where, found[0]))  # fmt: skip
    record(account_id, (address.kind, hashed), "lifted", "recipient", evidence, data={"reason": "stop_keyword"})
    return True


def confirmed(channel: Channel, evidence: Evidence) -> None:
    """Opt a channel in by a confirmation (double opt-in): the only act that lifts complaint and erasure too."""
    writing()
    lift(channel, ("stop_keyword", *KEEPS_OUT), "recipient", evidence)
    channel.verified_at = clock.now_ms()
    if channel.subscribed:
        CHANNELS.save(channel)
        record(channel.account_id, _of(channel), "confirmed", "recipient", evidence, channel.contact_id)
    else:
        opt_in(channel, "recipient", evidence)


def lift(channel: Channel, reasons: tuple[str, ...], by: str, evidence: Evidence) -> None:
    """Take reasons off a channel's address, with evidence for each that was there."""
    writing()
    address = _of(channel)
    hashed = tokens.address_hash(*address)
    for reason in reasons:
        if run(
            "DELETE FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ?",
            (channel.account_id, channel.kind, hashed, reason),
        ):
            record(channel.account_id, address, "lifted", by, evidence, channel.contact_id, {"reason": reason})
    channel.suppression = in_force(channel)
    CHANNELS.save(channel)


def _of(channel: Channel) -> tuple[str, str]:
    return channel.kind, channel.key


def remember(channel: Channel) -> None:
    """Keep a channel's opt-out by the hash of its address, before the channel goes."""
    writing()
    if channel.opt_out_at is not None:
        hashed = tokens.address_hash(channel.kind, channel.key)
        by: By = "operator" if channel.opted_out_by == "operator" else "recipient"
        remember_hash(channel.account_id, channel.kind, hashed, by, channel.opt_out_at)


def remember_hash(account_id: int, kind: str, address_hash: bytes, by: By, when: int) -> None:
    """Keep an opt-out of an address that nobody has; a recipient's is never weakened to an operator's."""
    writing()
    run(
        "INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (account_id, kind, address_hash) DO UPDATE SET by = excluded.by, created_at = excluded.created_at "
        "WHERE by != 'recipient' OR excluded.by = 'recipient'",
        (account_id, kind, address_hash, by, when),
    )


def record(
    account_id: int, address: tuple[str, str | bytes], act: str, by: str, evidence: Evidence,
    contact_id: int | None = None, data: dict[str, Any] | None = None, list_id: int | None = None,
) -> None:  # fmt: skip
    """Append one row of evidence for an address, given as (kind, key) or (kind, hash).

    Of where it came from as much is kept as the account says (`privacy_ip`).
    """
    kind, key = address
    hashed = key if isinstance(key, bytes) else tokens.address_hash(kind, key)
    data = {**({"message_id": evidence.message_id} if evidence.message_id else {}), **(data or {})}
    run(
        "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, ip, user_agent, "
        "text, data, list_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            account_id, contact_id, kind, hashed, act, by, evidence.source, evidence.actor,
            _kept_ip(account_id, evidence), (evidence.user_agent or "")[:400] or None, evidence.text,
            _encode(data).decode(), list_id, clock.now_ms(),
        ),
    )  # fmt: skip
    refused(account_id, kind, hashed, act, by, {**data, **({"list": list_id} if list_id is not None else {})})


def refused(account_id: int, kind: str, hashed: bytes, act: str, by: str, data: Mapping[str, Any]) -> None:
    """Tell the journal what keeps an address from being written to, if this act is such: a restored backup reads it."""
    if act not in REFUSALS or (act in _THEIR_OWN and by != "recipient"):
        return
    told = {name: data[name] for name in ("reason", "expires_at", "list", "tracking") if name in data}
    journal.note(account_id, act, kind=kind, hash=hashed.hex(), by=by, **told)


def _kept_ip(account_id: int, evidence: Evidence) -> str | None:
    if evidence.ip is None:
        return None
    row = fetch_one("SELECT privacy_ip FROM account WHERE id = ?", (account_id,))
    return client_ip.kept(evidence.ip, row[0] if row else "none")


def _record(channel: Channel, act: str, by: By, evidence: Evidence) -> None:
    record(channel.account_id, _of(channel), act, by, evidence, channel.contact_id)
    log.record(
        Happened(
            channel.account_id,
            act,
            contact_id=channel.contact_id,
            data={"channel": channel.kind, "by": by, "source": evidence.source}
            | ({"message_id": evidence.message_id} if evidence.message_id else {}),
            resource_uid=f"message:{evidence.message_id}" if evidence.message_id else None,
            test=evidence.test,
        )
    )


# What a person decides about themselves: lists joined and left by their own act, and how much is noticed of them.

Tracking = Literal["full", "aggregate", "none"]


class Offer(NamedTuple):
    """A list that a person may join or leave, and whether they are in it."""

    id: int
    name: str
    inside: bool


def list_offers(account_id: int, contact_id: int) -> list[Offer]:
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


def join_list(channel: Channel, list_id: int, evidence: Evidence) -> bool:
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
        _record_choice(channel, "list_joined", evidence, list_id)
    return True


def leave_list(channel: Channel, list_id: int, evidence: Evidence) -> bool:
    """Take the person of an address out of a list for good: no write but their own brings them back."""
    writing()
    if not ContactList.select().where(ContactList.account == channel.account_id, ContactList.id == list_id).exists():
        return False
    lists.leave(channel.account_id, list_id, [channel.contact_id])
    if run(
        "INSERT INTO list_refusal (contact_list_id, contact_id, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (list_id, channel.contact_id, clock.now_ms()),
    ):
        _record_choice(channel, "list_left", evidence, list_id)
    return True


def is_refused(contact_id: int, list_ids: list[int]) -> bool:
    """Return whether a person left one of some lists by their own act."""
    marks = ",".join("?" * len(list_ids))
    sql = f"SELECT 1 FROM list_refusal WHERE contact_id = ? AND contact_list_id IN ({marks}) LIMIT 1"
    return bool(list_ids and rows(sql, [contact_id, *list_ids]))


def set_tracking(channel: Channel, wanted: Tracking, evidence: Evidence) -> bool:
    """Let the person of an address say how much is noticed of what they open and click; False if it is so already."""
    writing()
    contact = Contact.get_by_id(channel.contact_id)
    if contact.tracking == wanted:
        return False
    contact.tracking, contact.updated_at = wanted, clock.now_ms()
    CONTACTS.save(contact)
    record(
        channel.account_id, (channel.kind, channel.key), "tracking", "recipient", evidence, contact.id,
        {"tracking": wanted},
    )  # fmt: skip
    data = {"source": evidence.source, "fields": ["tracking"]}
    log.record(Happened(channel.account_id, "contact_update", contact.id, data, test=evidence.test))
    return True


def note_own_act(contact_id: int) -> None:
    """Note that a person themselves did something just now."""
    writing()
    now = clock.now_ms()
    run("UPDATE contact SET last_interacted_at = ?, updated_at = ? WHERE id = ?", (now, now, contact_id))


def _record_choice(channel: Channel, act: str, evidence: Evidence, list_id: int) -> None:
    record(
        channel.account_id, (channel.kind, channel.key), act, "recipient", evidence, channel.contact_id, None, list_id
    )
