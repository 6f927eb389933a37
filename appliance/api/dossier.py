"""Puts together what is kept about one person: the entries of the timeline, and the document that is all of it."""

from collections.abc import Iterator, Sequence
from typing import Any

from appliance import clock
from appliance.api import contact_shapes, conversation_shapes, shaping
from appliance.api.contact_shapes import ContactExport, MessageText, Named, TimelineEntry
from appliance.api.run_shapes import detailed
from appliance.contacts import store, timeline
from appliance.contacts.timeline import Entry
from appliance.conversations import reading
from appliance.db.open import rows
from appliance.flows import people
from appliance.messages import store as messages
from appliance.tables import Contact, Event, MessageContent, Suppression

_CHUNK = 500


def entries(found: Sequence[Entry]) -> list[TimelineEntry]:
    """Shape entries of a timeline with their event or message."""
    by_kind: dict[str, dict[int, Any]] = {
        "event": {row.id: shaping.event(row) for row in Event.select().where(Event.id.in_(_ids(found, "event")))},
        "message": {row.id: shaping.message(row) for row in messages.by_ids(_ids(found, "message"))},
    }
    made = []
    for entry in found:
        shape: Any = by_kind[entry.kind].get(entry.id)
        if shape is not None:
            event, message = (shape, None) if entry.kind == "event" else (None, shape)
            kind: Any = entry.kind
            made.append(TimelineEntry(kind, entry.id, shape.created_at, event, message))
    return made


def _ids(found: Sequence[Entry], kind: str) -> list[int]:
    return [entry.id for entry in found if entry.kind == kind]


def of(account_id: int, contact_id: int) -> ContactExport:
    """Return everything that is kept about a contact; raises NotFound."""
    contact = store.get(account_id, contact_id)
    return ContactExport(
        exported_at=str(clock.iso(clock.now_ms())),
        contact=shaping.contact(contact),
        lists=_lists("membership", contact_id),
        left_lists=_lists("list_refusal", contact_id),
        suppressions=_suppressions(contact),
        consents=[contact_shapes.consent(row) for row in _consents(account_id, contact_id)],
        messages=[shaping.message(row) for part in _chunks("message", contact_id) for row in messages.by_ids(part)],
        message_texts=[_text(row) for part in _chunks("message", contact_id) for row in _contents(part)],
        incoming=[conversation_shapes.incoming(row) for row in reading.from_contact(account_id, contact_id)],
        events=[shaping.event(row) for part in _chunks("event", contact_id) for row in _events(part)],
        flow_runs=[detailed(row) for part in _chunks("run", contact_id) for row in people.by_ids(part)],
    )


def _lists(table: str, contact_id: int) -> list[Named]:
    return [
        Named(*row)
        for row in rows(
            f"SELECT l.id, l.name FROM {table} m JOIN contact_list l ON l.id = m.contact_list_id "
            "WHERE m.contact_id = ? ORDER BY l.id",
            (contact_id,),
        )
    ]


def _suppressions(contact: Contact) -> list[contact_shapes.Suppression]:
    known = timeline.hashes(contact)
    found = Suppression.select().where(
        Suppression.account == contact.account_id, Suppression.address_hash.in_(list(known))
    )
    return [contact_shapes.suppression(row) for row in found.order_by(Suppression.id)] if known else []


def _consents(account_id: int, contact_id: int) -> Iterator[Any]:
    number = 1
    while part := timeline.consents(account_id, contact_id, number, _CHUNK).rows:
        yield from part
        number += 1


def _chunks(table: str, contact_id: int) -> Iterator[list[int]]:
    ids = [row[0] for row in rows(f"SELECT id FROM {table} WHERE contact_id = ? ORDER BY id DESC", (contact_id,))]
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _events(ids: list[int]) -> list[Event]:
    return list(Event.select().where(Event.id.in_(ids)).order_by(Event.id.desc()))


def _contents(ids: list[int]) -> list[MessageContent]:
    return list(MessageContent.select().where(MessageContent.message.in_(ids)))


def _text(row: MessageContent) -> MessageText:
    return MessageText(row.message_id, row.subject, row.body, row.text, row.from_name, row.headers, row.data)
