"""Contacts written: created or updated by address, changed, deleted."""

import uuid
from typing import Any, NamedTuple

from msgspec import UNSET

from appliance.audience.contacts import channels, consent, lists, search, store, tags
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CONTACTS
from appliance.audience.contacts.requests import ContactPatch, ContactWrite
from appliance.core import addresses, clock
from appliance.core.errors import Faults
from appliance.events import log
from appliance.events.log import Happened
from appliance.flows import run_ends
from appliance.storage import sql
from appliance.storage.models import Contact
from appliance.storage.open import connection
from appliance.storage.work import after_commit, writing

_PLAIN = ("first_name", "last_name", "source", "country_code", "tracking")


class Upserted(NamedTuple):
    """A written contact, whether it is new, and the addresses whose opt-out was kept."""

    contact: Contact
    created: bool
    kept_opt_out: list[str]


def upsert(account_id: int, request: ContactWrite, evidence: Evidence) -> Upserted:
    """Create a contact, or update the one who has the address; raises Invalid with all faults (docs/decisions.md#9)."""
    writing()
    known, faults = _known(account_id, request)
    contact = store.get(account_id, known) if known else None
    plan = _plan(account_id, contact, request)
    plan.merge(faults)
    plan.merge(lists.faults(account_id, request.list_ids or [] if request.list_ids is not UNSET else [], known))
    data = _data(contact, request, plan.faults)
    plan.check()
    now = clock.now_ms()
    created = contact is None
    if contact is None:
        contact = Contact(account=account_id, uuid=str(uuid.uuid4()), data={}, created_at=now, updated_at=now)
    before = tags.of(contact.data)
    changed = _fill(contact, request, data)
    contact.updated_at = now
    if created:
        CONTACTS.insert(contact)
    else:
        CONTACTS.save(contact)
    if created:
        log.record(Happened(account_id, "contact_add", contact.id, {"source": contact.source or evidence.source}))
    kept = plan.apply(contact, evidence)
    for list_id in dict.fromkeys(request.list_ids or [] if request.list_ids is not UNSET else []):
        kept += lists.join(account_id, list_id, [contact.id]).kept
    tags.tell(contact, before)
    return Upserted(_finish(contact, [] if created else changed + plan.changes(), evidence), created, kept)


def check(account_id: int, request: ContactWrite, contact_id: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a contact, beyond its types; writes nothing."""
    known, faults = (contact_id, {}) if contact_id else _known(account_id, request)
    contact = store.get(account_id, known) if known else None
    plan = _plan(account_id, contact, request)
    plan.merge(faults)
    plan.merge(lists.faults(account_id, request.list_ids or [] if request.list_ids is not UNSET else [], known))
    if contact is not None and isinstance(request, ContactPatch):
        _patched_data(contact, request, plan.faults)
    else:
        _data(contact, request, plan.faults)
    plan.check()


def check_made_up(account_id: int, request: ContactWrite) -> None:
    """Raise Invalid with all that is wrong with somebody who is made up, who may have the address of somebody real."""
    plan = _plan(account_id, None, request, made_up=True)
    plan.merge(lists.faults(account_id, request.list_ids or [] if request.list_ids is not UNSET else []))
    _data(None, request, plan.faults)
    plan.check()


def update(account_id: int, contact_id: int, request: ContactPatch, evidence: Evidence) -> Upserted:
    """Change a contact; raises NotFound, or Invalid with all faults."""
    writing()
    contact = store.get(account_id, contact_id)
    plan = _plan(account_id, contact, request)
    plan.merge(lists.faults(account_id, request.list_ids or [] if request.list_ids is not UNSET else [], contact.id))
    data = _patched_data(contact, request, plan.faults)
    plan.check()
    before = tags.of(contact.data)
    changed = _fill(contact, request, data)
    contact.updated_at = clock.now_ms()
    CONTACTS.save(contact)
    kept = plan.apply(contact, evidence)
    if request.list_ids is not UNSET:
        kept += lists.replace_of_contact(account_id, contact.id, request.list_ids or [])
    tags.tell(contact, before)
    return Upserted(_finish(contact, changed + plan.changes(), evidence), False, kept)


def delete(account_id: int, contact_id: int) -> Contact:
    """Delete a contact for good and answer it as it was; opt-outs stay behind as hashes. Raises NotFound."""
    writing()
    contact = store.get(account_id, contact_id)
    for channel in contact.channels:
        consent.remember(channel)
    for list_id in contact.list_ids:
        lists.leave(account_id, list_id, [contact.id])
    search.forget(contact.id)
    run_ends.people_gone([contact.id])
    log.record(Happened(account_id, "contact_delete", None, {"contact_id": contact.id}))
    Contact.delete().where(Contact.id == contact.id).execute()
    return contact


def _known(account_id: int, request: ContactWrite) -> tuple[int | None, dict[str, list[str]]]:
    """Return the id of the contact who has the e-mail address or else the number, and a fault if two have them."""
    found: list[int | None] = []
    for kind, text in (("email", request.email), ("phone", request.phone)):
        address = addresses.read(kind, text) if isinstance(text, str) and text else None
        found.append(channels.owner(account_id, address) if address else None)
    by_email, by_phone = found
    if by_email and by_phone and by_email != by_phone:
        return by_email, {"phone": ["has already been taken"]}
    return by_email or by_phone, {}


class _Plan(channels.Plan):
    def merge(self, fields: dict[str, list[str]]) -> None:
        self.faults.merge(fields)

    def check(self) -> None:
        self.faults.check()

    def changes(self) -> list[str]:
        return ["channels"] if any(step[0] != "keep" for step in self.steps) else []


def _plan(account_id: int, contact: Contact | None, request: ContactWrite, made_up: bool = False) -> _Plan:
    plan = _Plan(account_id, contact, made_up)
    # `subscribed_email` speaks of every e-mail channel, those that this request adds included; so does `opt_in`
    general = request.opt_in if isinstance(request.opt_in, bool) else None
    wishes = {
        kind: value if isinstance(value, bool) else general
        for kind, value in (("email", request.subscribed_email), ("phone", request.subscribed_phone))
    }
    plan.plain("email", request.email, wishes["email"], "email")
    plan.plain("phone", request.phone, wishes["phone"], "phone")
    plan.entries(request.channels_attributes, wishes)
    addressed = isinstance(request.email, str) or isinstance(request.phone, str)
    if general is not None and not addressed:
        plan.everywhere(None, general)
    for kind, value in (("email", request.subscribed_email), ("phone", request.subscribed_phone)):
        if isinstance(value, bool):
            plan.everywhere(kind, value)
    return plan


def _data(contact: Contact | None, request: ContactWrite, faults: Faults) -> dict[str, Any] | None:
    """Return the data after an upsert: what is sent goes over what is there."""
    if request.data is UNSET or request.data is None:
        return None
    return tags.checked({**(contact.data if contact else {}), **request.data}, "data", faults)


def _patched_data(contact: Contact, request: ContactPatch, faults: Faults) -> dict[str, Any] | None:
    data = None if request.data is UNSET else dict(request.data or {})
    if request.data_merge is not UNSET:
        data = merge_patch(contact.data if data is None else data, request.data_merge)
    field = "data" if request.data_merge is UNSET else "data_merge"
    return None if data is None else tags.checked(data, field, faults)


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396, section 2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def _fill(contact: Contact, request: ContactWrite, data: dict[str, Any] | None) -> list[str]:
    """Write what was sent into the contact and answer the names of what is different now."""
    changed = []
    for name in _PLAIN:
        value = getattr(request, name)
        if value is not UNSET and getattr(contact, name) != (value or None):
            setattr(contact, name, value or None)
            changed.append(name)
    if data is not None and data != contact.data:
        contact.data = data
        changed.append("data")
    if not contact.country_code and isinstance(request.phone, str) and request.phone:
        contact.country_code = addresses.country_of(addresses.phone(request.phone).value)
    return changed


def _finish(contact: Contact, changed: list[str], evidence: Evidence) -> Contact:
    """Index the contact anew, record a change, and answer it as stored."""
    store.load([contact])
    search.index(contact, contact.channels)
    if changed:
        data = {"source": evidence.source, "fields": changed}
        log.record(Happened(contact.account_id, "contact_update", contact.id, data))
    return contact


# Lets the running verb write over what it deletes: a database otherwise keeps the bytes until the space is needed.


def overwriting() -> None:
    """Overwrite what is deleted until the running transaction is on disk."""
    writing()
    sql.overwrite_deleted(wholly=True)
    after_commit(_keep_again)


def _keep_again() -> None:
    sql.overwrite_deleted(wholly=False)


def forget_words(pages: int = 250) -> bool:
    """Take some of the words of people who are gone out of the search index; returns whether there may be more.

    The index keeps a word until the part it stands in is written anew, which may be never.
    """
    overwriting()
    before = connection().total_changes()
    search.write_anew(pages)
    return bool(connection().total_changes() - before > 1)
