"""What happened to a person, in one row: events and messages; and the evidence of their consent."""

from typing import NamedTuple

from appliance import tokens
from appliance.contacts import store
from appliance.db.open import rows, scalar
from appliance.pages import Page
from appliance.tables import Consent, Contact

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
