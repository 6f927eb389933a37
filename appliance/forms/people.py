"""Puts who signed up among the contacts: what is known stays unless the person themselves says otherwise."""

from typing import Any

from appliance.audience.contacts import channels, store, write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CHANNELS
from appliance.audience.contacts.requests import ContactPatch, ContactWrite
from appliance.core import fields
from appliance.core.errors import Invalid
from appliance.forms.reading import Submitted
from appliance.storage.models import Channel
from appliance.storage.work import writing

SOURCE = "form"


def find(account_id: int, kind: str, key: str) -> Channel | None:
    """Return the address of somebody we know, or None."""
    return next(iter(CHANNELS.find("account_id = ? AND kind = ? AND key = ?", (account_id, kind, key))), None)


def put(account_id: int, said: Submitted, evidence: Evidence, is_theirs: bool) -> Channel:
    """Make the contact of an address, or add to the one who has it; consent is not touched. Answers the address.

    `is_theirs` says that the owner of the address stands behind what was typed: only then it goes over what is known.
    """
    writing()
    known = find(account_id, said.address.kind, said.address.key)
    if known is None:
        body: dict[str, Any] = {said.address.kind: said.address.value, "source": SOURCE, "opt_in": False, **said.names}
        body["data"] = said.data
        if said.phone is not None and channels.owner(account_id, said.phone) is None:
            body["phone"] = said.phone.value
        write.upsert(account_id, _fitting(ContactWrite, body), evidence)
    else:
        _add(account_id, known, said, evidence, is_theirs)
    found = find(account_id, said.address.kind, said.address.key)
    assert found is not None
    return found


def _add(account_id: int, known: Channel, said: Submitted, evidence: Evidence, is_theirs: bool) -> None:
    contact = store.get(account_id, known.contact_id)
    body: dict[str, Any] = {
        name: value for name, value in said.names.items() if is_theirs or not getattr(contact, name)
    }
    data = {key: value for key, value in said.data.items() if is_theirs or (contact.data or {}).get(key) in (None, "")}
    if data:
        body["data_merge"] = data
    has_phone = any(one.kind == "phone" for one in contact.channels)
    if said.phone is not None and not has_phone and channels.owner(account_id, said.phone) is None:
        body["channels_attributes"] = [{"value": said.phone.value, "kind": "phone", "subscribed": False}]
    if body:
        write.update(account_id, contact.id, _fitting(ContactPatch, body), evidence)


def _fitting(kind: Any, body: dict[str, Any]) -> Any:
    """Read a body that was checked already; what a contact cannot hold beside it (too much data) is left out."""
    try:
        return fields.read(kind, body)
    except Invalid:
        rest = {name: value for name, value in body.items() if name not in ("data", "data_merge")}
        return fields.read(kind, rest)
