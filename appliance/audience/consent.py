"""Consent for addresses: the only module that opts addresses in and out (docs/decisions.md#9, "Who lifts what").

Every change appends a row with its evidence to the table `consent`. The row of the channel holds the resulting state.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from appliance.audience import lists
from appliance.core import addresses, clock, crypto, signals
from appliance.core.addresses import Address
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage import journal
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.models import Channel, Contact, ContactList
from appliance.storage.models.account import CHANNELS, CONTACTS
from appliance.storage.transactions import after_commit, require_write_transaction

By = Literal["recipient", "operator"]
_encode = msgspec.json.Encoder().encode

# Acts that are written to the journal, so that they still apply after an older backup is restored. `list_left` and
# `tracking` are written only if the recipient acted.
JOURNALED_ACTS = ("opt_out", "suppressed", "list_left", "tracking")
_JOURNALED_BY_RECIPIENT = ("list_left", "tracking")
# While an address is suppressed for one of these reasons, only a confirmation (`confirm_opt_in`) can opt it in.
BLOCKING_REASONS = ("complaint", "erased")
# Ordered by severity, the most severe reason first. Skipped messages and pages show the most severe one.
REASONS_BY_SEVERITY = ("erased", "complaint", "hard_bounce", "stop_keyword", "manual", "soft_bounce")


class Evidence(msgspec.Struct):
    """The circumstances of an act of consent, for the row in `consent`.

    `source` names where the act came from, such as `erasure`. `actor` is the actor in the audit log. `text` is the text
    that the person agreed to. `message_id` is the message that led to the act.
    """

    source: str
    actor: str | None = None
    ip: str | None = None
    user_agent: str | None = None
    text: str | None = None
    message_id: int | None = None
    test: bool = False


def find_suppression_reason(
    account_id: int, kind: str, address_hash: bytes, ignored: tuple[str, ...] = ()
) -> str | None:
    """Return the most severe reason for which an address is suppressed now, or None; skip the reasons in `ignored`."""
    reasons = {
        row[0]
        for row in rows(
            "SELECT reason FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? "
            "AND (expires_at IS NULL OR expires_at > ?)",
            (account_id, kind, address_hash, clock.now_ms()),
        )
    }
    return next((reason for reason in REASONS_BY_SEVERITY if reason in reasons and reason not in ignored), None)


def find_channel_suppression(channel: Channel) -> str | None:
    """Return the most severe reason for which the address of a channel is suppressed now, or None."""
    return find_suppression_reason(channel.account_id, channel.kind, crypto.hash_address(channel.kind, channel.key))


def find_remembered_opt_out(account_id: int, kind: str, address_hash: bytes) -> tuple[str, int] | None:
    """Return the opt-out stored for an address without a contact, as (by, time in milliseconds), or None."""
    row = fetch_one(
        "SELECT by, created_at FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?",
        (account_id, kind, address_hash),
    )
    return (row[0], row[1]) if row else None


def inherit_address_state(channel: Channel) -> None:
    """Set the consent state of a new channel from the suppressions and the remembered opt-out of its address.

    The channel starts without an opt-in. The caller saves it.
    """
    hashed = crypto.hash_address(channel.kind, channel.key)
    channel.suppression = find_suppression_reason(channel.account_id, channel.kind, hashed)
    opt_out = find_remembered_opt_out(channel.account_id, channel.kind, hashed)
    channel.opted_out_by, channel.opt_out_at = opt_out or (None, None)
    channel.opt_in_at, channel.subscribed, channel.verified_at = None, False, None


def apply_operator_choice(channel: Channel, subscribed: bool | None, evidence: Evidence) -> bool:
    """Apply an operator's choice for a channel; return True if an opt-out or suppression still blocks the opt-in.

    `subscribed=False` opts out, unless the channel was never subscribed, and returns False. True opts in. None means
    that the address was written without a choice, and opts in unless the recipient has opted out. After a complaint or
    an erasure, nothing opts in.
    """
    require_write_transaction()
    if subscribed is False:
        if channel.subscribed or channel.opt_out_at is not None:
            opt_out(channel, "operator", evidence)
        return False
    if channel.suppression in BLOCKING_REASONS:
        return True
    if channel.opted_out_by == "recipient" and subscribed is None:
        return True
    if not channel.subscribed:
        opt_in(channel, "operator", evidence)
    elif subscribed and evidence.text:
        # The channel is already subscribed, so only the evidence is added.
        record_evidence(channel.account_id, _address_of(channel), "opt_in", "operator", evidence, channel.contact_id)
    return channel.suppression is not None


def opt_in(channel: Channel, by: By, evidence: Evidence) -> None:
    """Opt a channel in and record the evidence; for a phone number, this also lifts the suppression of a STOP.

    A remembered opt-out of the address is deleted. The caller has checked that the opt-in is allowed.
    """
    require_write_transaction()
    now = clock.now_ms()
    if channel.kind == "phone" and channel.suppression is not None:
        lift_suppressions(channel, ("stop_keyword",), by, evidence)
    channel.subscribed, channel.opt_in_at = True, now
    channel.opt_out_at = channel.opted_out_by = None
    channel.updated_at = now
    CHANNELS.save(channel)
    run(
        "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?",
        (channel.account_id, channel.kind, crypto.hash_address(channel.kind, channel.key)),
    )
    _record_change(channel, "opt_in", by, evidence)


def opt_out(channel: Channel, by: By, evidence: Evidence) -> bool:
    """Opt a channel out and record the evidence; return False, without a change, if it is already opted out.

    A recipient's opt-out replaces an operator's opt-out. An opt-out that changes nothing is recorded only if the last
    one came with an import (`repeat_opt_out`).
    """
    require_write_transaction()
    is_opted_out = not channel.subscribed and channel.opt_out_at is not None
    if is_opted_out and (by == "operator" or channel.opted_out_by == "recipient"):
        repeat_opt_out(channel, by, evidence)
        return False
    now = clock.now_ms()
    channel.subscribed, channel.opt_out_at, channel.opted_out_by = False, now, by
    channel.updated_at = now
    CHANNELS.save(channel)
    _record_change(channel, "opt_out", by, evidence)
    return True


def repeat_opt_out(channel: Channel, by: By, evidence: Evidence) -> None:
    """Record another request for an opt-out that an import stored, so that undoing the import keeps the opt-out.

    Only the first such request after an import is recorded, so that repetitions do not fill the tables and the journal.
    Nothing is recorded for a channel without an opt-out.
    """
    require_write_transaction()
    if channel.subscribed or channel.opt_out_at is None:
        return
    last = fetch_one(
        "SELECT source FROM consent WHERE contact_id = ? AND kind = ? AND address_hash = ? AND act = 'opt_out' "
        "ORDER BY id DESC LIMIT 1",
        (channel.contact_id, channel.kind, crypto.hash_address(channel.kind, channel.key)),
    )
    if last is not None and last[0] != "import":
        return
    channel.opt_out_repeated_at = max(clock.now_ms(), channel.updated_at)
    CHANNELS.save(channel)
    record_evidence(channel.account_id, _address_of(channel), "opt_out", by, evidence, channel.contact_id)


def opt_in_by_recipient(channel: Channel, evidence: Evidence) -> bool:
    """Opt a channel in at the recipient's request (preferences page or START), and lift the suppression of a STOP.

    Returns False if the address is still suppressed after a complaint or an erasure.
    """
    require_write_transaction()
    lift_suppressions(channel, ("stop_keyword",), "recipient", evidence)
    if channel.suppression in BLOCKING_REASONS:
        return False
    if not channel.subscribed:
        opt_in(channel, "recipient", evidence)
    return True


def lift_stop_without_contact(account_id: int, address: Address, evidence: Evidence) -> bool:
    """Lift the STOP of a phone number that no contact has, after a START from it; return False if there was no STOP.

    The remembered opt-out of the number is deleted, unless it is older than the STOP.
    """
    require_write_transaction()
    hashed = crypto.hash_address(address.kind, address.key)
    params = (account_id, address.kind, hashed)
    condition = "account_id = ? AND kind = ? AND address_hash = ? AND reason = 'stop_keyword'"
    suppression = fetch_one(f"SELECT created_at FROM suppression WHERE {condition}", params)
    if suppression is None:
        return False
    run(f"DELETE FROM suppression WHERE {condition}", params)
    # An opt-out from before the STOP has another cause and stays.
    run("DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ? AND created_at >= ?",
        (*params, suppression[0]))  # fmt: skip
    record_evidence(
        account_id, (address.kind, hashed), "lifted", "recipient", evidence, data={"reason": "stop_keyword"}
    )
    return True


def lift_opt_out_without_contact(account_id: int, address: Address, evidence: Evidence) -> bool:
    """Delete the remembered opt-out of an address that no contact has; return False if there is none to delete.

    A program that has its own audience calls it when a person subscribed there again. The opt-out of a complaint or an
    erasure stays, even after its suppression was lifted (`suppressions.lift`): only an opt-in of the contact ends it.
    """
    require_write_transaction()
    hashed = crypto.hash_address(address.kind, address.key)
    if _has_complained(account_id, address.kind, hashed) or not run(
        "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?", (account_id, address.kind, hashed)
    ):
        return False
    record_evidence(account_id, (address.kind, hashed), "lifted", "operator", evidence, data={"reason": "opt_out"})
    return True


def _has_complained(account_id: int, kind: str, address_hash: bytes) -> bool:
    """Return whether an address was suppressed for a complaint or an erasure and has not been opted in since."""
    if find_suppression_reason(account_id, kind, address_hash) in BLOCKING_REASONS:
        return True
    last = fetch_one(
        "SELECT act FROM consent WHERE account_id = ? AND kind = ? AND address_hash = ? AND contact_id IS NULL "
        "AND (act IN ('confirmed', 'opt_in') OR act IN ('suppressed', 'lifted') "
        "AND data ->> 'reason' IN ('complaint', 'erased')) ORDER BY id DESC LIMIT 1",
        (account_id, kind, address_hash),
    )
    return last is not None and last[0] in ("suppressed", "lifted")


def confirm_opt_in(channel: Channel, evidence: Evidence) -> None:
    """Opt a channel in by double opt-in and mark its address as verified.

    This is the only act of a recipient that also lifts suppressions for complaints and erasures.
    """
    require_write_transaction()
    lift_suppressions(channel, ("stop_keyword", *BLOCKING_REASONS), "recipient", evidence)
    channel.verified_at = clock.now_ms()
    if channel.subscribed:
        CHANNELS.save(channel)
        record_evidence(
            channel.account_id, _address_of(channel), "confirmed", "recipient", evidence, channel.contact_id
        )
    else:
        opt_in(channel, "recipient", evidence)


def lift_suppressions(channel: Channel, reasons: tuple[str, ...], by: str, evidence: Evidence) -> None:
    """Lift the suppressions of a channel's address for `reasons`, record evidence for each, and save the channel.

    Reasons for which the address is not suppressed are ignored.
    """
    require_write_transaction()
    address = _address_of(channel)
    hashed = crypto.hash_address(*address)
    for reason in reasons:
        if run(
            "DELETE FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ?",
            (channel.account_id, channel.kind, hashed, reason),
        ):
            record_evidence(channel.account_id, address, "lifted", by, evidence, channel.contact_id, {"reason": reason})
    channel.suppression = find_channel_suppression(channel)
    CHANNELS.save(channel)


def _address_of(channel: Channel) -> tuple[str, str]:
    return channel.kind, channel.key


def remember_opt_out(channel: Channel) -> None:
    """Store the opt-out of a channel, if it has one, under the hash of its address.

    Call it before the channel is deleted, so that the opt-out applies if the address returns.
    """
    require_write_transaction()
    if channel.opt_out_at is not None:
        hashed = crypto.hash_address(channel.kind, channel.key)
        by: By = "operator" if channel.opted_out_by == "operator" else "recipient"
        remember_opt_out_hash(channel.account_id, channel.kind, hashed, by, channel.opt_out_at)


def remember_opt_out_hash(account_id: int, kind: str, address_hash: bytes, by: By, opted_out_at: int) -> None:
    """Store an opt-out for an address without a contact; an operator's opt-out never replaces a recipient's opt-out."""
    require_write_transaction()
    run(
        "INSERT INTO opt_out (account_id, kind, address_hash, by, created_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (account_id, kind, address_hash) DO UPDATE SET by = excluded.by, created_at = excluded.created_at "
        "WHERE by != 'recipient' OR excluded.by = 'recipient'",
        (account_id, kind, address_hash, by, opted_out_at),
    )


def record_evidence(
    account_id: int, address: tuple[str, str | bytes], act: str, by: str, evidence: Evidence,
    contact_id: int | None = None, data: dict[str, Any] | None = None, list_id: int | None = None,
) -> None:  # fmt: skip
    """Append a row of evidence about an address, which is given as (kind, key) or (kind, hash).

    An act that stops messages is also written to the journal. The IP address is stored only as precisely as
    `privacy_ip` of the account allows. The user agent is cut to 400 characters.
    """
    kind, key = address
    hashed = key if isinstance(key, bytes) else crypto.hash_address(kind, key)
    data = {**({"message_id": evidence.message_id} if evidence.message_id else {}), **(data or {})}
    run(
        "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, ip, user_agent, "
        "text, data, list_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            account_id, contact_id, kind, hashed, act, by, evidence.source, evidence.actor,
            _ip_to_store(account_id, evidence), (evidence.user_agent or "")[:400] or None, evidence.text,
            _encode(data).decode(), list_id, clock.now_ms(),
        ),
    )  # fmt: skip
    journal_refusal(account_id, kind, hashed, act, by, {**data, **({"list": list_id} if list_id is not None else {})})


def journal_refusal(account_id: int, kind: str, hashed: bytes, act: str, by: str, data: Mapping[str, Any]) -> None:
    """Write an act that stops messages to an address to the journal, which is replayed after a backup is restored.

    Acts that are not in `JOURNALED_ACTS` are ignored. So are `list_left` and `tracking` if the recipient did not act.
    """
    if act not in JOURNALED_ACTS or (act in _JOURNALED_BY_RECIPIENT and by != "recipient"):
        return
    details = {name: data[name] for name in ("reason", "expires_at", "list", "tracking") if name in data}
    journal.append(account_id, act, kind=kind, hash=hashed.hex(), by=by, **details)


def _ip_to_store(account_id: int, evidence: Evidence) -> str | None:
    if evidence.ip is None:
        return None
    row = fetch_one("SELECT privacy_ip FROM account WHERE id = ?", (account_id,))
    return addresses.anonymize_ip(evidence.ip, row[0] if row else "none")


def _record_change(channel: Channel, act: str, by: By, evidence: Evidence) -> None:
    record_evidence(channel.account_id, _address_of(channel), act, by, evidence, channel.contact_id)
    log.record(
        NewEvent(
            channel.account_id,
            act,
            contact_id=channel.contact_id,
            data={"channel": channel.kind, "by": by, "source": evidence.source}
            | ({"message_id": evidence.message_id} if evidence.message_id else {}),
            resource_uid=f"message:{evidence.message_id}" if evidence.message_id else None,
            test=evidence.test,
        )
    )


Tracking = Literal["full", "aggregate", "none"]


class ListOffer(NamedTuple):
    """A list that a contact may join or leave, and whether the contact is a member."""

    id: int
    name: str
    is_member: bool


def fetch_list_offers(account_id: int, contact_id: int) -> list[ListOffer]:
    """Return the public lists that a contact may join or leave, sorted by name.

    A list that mirrors a segment is offered only to contacts who are members or have left it, because others cannot
    join it.
    """
    offers = rows(
        "SELECT l.id, l.name, m.contact_id IS NOT NULL FROM contact_list l "
        "LEFT JOIN membership m ON m.contact_list_id = l.id AND m.contact_id = :contact "
        "LEFT JOIN list_opt_out r ON r.contact_list_id = l.id AND r.contact_id = :contact "
        "WHERE l.account_id = :account AND l.public = 1 AND (l.segment_id IS NULL OR coalesce(m.contact_id, "
        "r.contact_id) IS NOT NULL) ORDER BY name_order(l.name), l.id",
        {"account": account_id, "contact": contact_id},
    )
    return [ListOffer(row[0], row[1], bool(row[2])) for row in offers]


def join_list(channel: Channel, list_id: int, evidence: Evidence) -> bool:
    """Add a contact to a list at the contact's request, even after leaving it; return False for an unknown list.

    A list that mirrors a segment is only marked as stale: its segment decides about the membership.
    """
    require_write_transaction()
    contact_list = ContactList.get_or_none(ContactList.account == channel.account_id, ContactList.id == list_id)
    if contact_list is None:
        return False
    returned = run(
        "DELETE FROM list_opt_out WHERE contact_list_id = ? AND contact_id = ?", (list_id, channel.contact_id)
    )
    if contact_list.segment_id is not None:
        # The segment decides about the membership when the mirror is populated again.
        run("UPDATE contact_list SET stale = 1 WHERE id = ?", (list_id,))
        after_commit(lambda: signals.wake("segments"))
    joined = lists.add_members(channel.account_id, list_id, [channel.contact_id]).changed_count
    if joined or returned:
        _record_choice(channel, "list_joined", evidence, list_id)
    return True


def leave_list(channel: Channel, list_id: int, evidence: Evidence) -> bool:
    """Remove a contact from a list at the contact's request; return False for an unknown list.

    Afterwards only the contact can join the list again.
    """
    require_write_transaction()
    if not ContactList.select().where(ContactList.account == channel.account_id, ContactList.id == list_id).exists():
        return False
    lists.remove_members(channel.account_id, list_id, [channel.contact_id])
    if run(
        "INSERT INTO list_opt_out (contact_list_id, contact_id, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (list_id, channel.contact_id, clock.now_ms()),
    ):
        _record_choice(channel, "list_left", evidence, list_id)
    return True


def has_left_list(contact_id: int, list_ids: list[int]) -> bool:
    """Return whether a contact has left any of the lists `list_ids` (`leave_list`) and not joined it again."""
    placeholders = ",".join("?" * len(list_ids))
    sql = f"SELECT 1 FROM list_opt_out WHERE contact_id = ? AND contact_list_id IN ({placeholders}) LIMIT 1"
    return bool(list_ids and rows(sql, [contact_id, *list_ids]))


def set_tracking(channel: Channel, choice: Tracking, evidence: Evidence) -> bool:
    """Set a contact's choice of tracking of opens and clicks; return False, without a change, if it is already set.

    If the choice is already set, but not by the contact's last choice, and is not `full`, it is recorded as evidence.
    So the undo of an import that set it keeps the contact's choice.
    """
    require_write_transaction()
    contact = Contact.get_by_id(channel.contact_id)
    if contact.tracking == choice:
        if choice != "full" and find_last_tracking_choice(contact.id) != choice:
            record_evidence(
                channel.account_id, (channel.kind, channel.key), "tracking", "recipient", evidence, contact.id,
                {"tracking": choice},
            )  # fmt: skip
        return False
    contact.tracking, contact.updated_at = choice, clock.now_ms()
    CONTACTS.save(contact)
    record_evidence(
        channel.account_id, (channel.kind, channel.key), "tracking", "recipient", evidence, contact.id,
        {"tracking": choice},
    )  # fmt: skip
    data = {"source": evidence.source, "fields": ["tracking"]}
    log.record(NewEvent(channel.account_id, "contact_update", contact.id, data, test=evidence.test))
    return True


def find_last_tracking_choice(contact_id: int) -> Tracking | None:
    """Return the tracking that a contact chose last on the preferences page, or None if it never chose."""
    row = fetch_one(
        "SELECT json_extract(data, '$.tracking') FROM consent WHERE contact_id = ? AND act = 'tracking' "
        "ORDER BY id DESC LIMIT 1",
        (contact_id,),
    )
    return row[0] if row else None


def touch_last_interaction(contact_id: int) -> None:
    """Set a contact's `last_interacted_at` to now."""
    require_write_transaction()
    now = clock.now_ms()
    run("UPDATE contact SET last_interacted_at = ?, updated_at = ? WHERE id = ?", (now, now, contact_id))


def _record_choice(channel: Channel, act: str, evidence: Evidence, list_id: int) -> None:
    record_evidence(
        channel.account_id, (channel.kind, channel.key), act, "recipient", evidence, channel.contact_id, None, list_id
    )
