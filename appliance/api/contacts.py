"""Contacts over the API."""

from collections.abc import Iterator, Sequence
from typing import Any

from appliance.accounts import audit
from appliance.api import contact_shapes, conversations, shapes, shaping
from appliance.api.contact_shapes import ContactExport, MessageText, Named, TimelineEntry
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.flow_runs import detailed
from appliance.api.reply import page_headers
from appliance.audience.contacts import erase, merge, store, timeline, write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.requests import (
    ContactPatch,
    ContactQuery,
    ContactWrite,
    DeleteQuery,
    MergeWrite,
    SearchQuery,
)
from appliance.audience.contacts.timeline import Entry
from appliance.core import clock
from appliance.core.fields import PageQuery
from appliance.flows import people
from appliance.inbound.conversations import reading
from appliance.sending.messages import ledger as messages
from appliance.storage.models import Contact, Event, MessageContent, Suppression
from appliance.storage.open import rows
from appliance.storage.work import call, commit, glance

# Puts together what is kept about one person: the entries of the timeline, and the document that is all of it.

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


def dossier_of(account_id: int, contact_id: int) -> ContactExport:
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
        incoming=[conversations.incoming(row) for row in reading.from_contact(account_id, contact_id)],
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


ROUTES = Routes()


def evidence(request: Call) -> Evidence:
    """Return how a write over the API came about, with the words that it says somebody agreed to."""
    words = getattr(request.body, "consent_source", None)
    return Evidence(
        source="api", actor=request.actor, ip=request.request.ctx.client,
        user_agent=request.request.headers.get("user-agent"),
        text=(words.strip() or None) if isinstance(words, str) else None, test=request.credential.test,
    )  # fmt: skip


@ROUTES.add("GET", "/contacts", scope="contacts:read", query=ContactQuery, returns=shapes.Contact, many=True)
async def index(request: Call) -> Answer:
    """List contacts, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([shaping.contact(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/contacts/search", scope="contacts:read", query=SearchQuery, returns=shapes.Contact, many=True)
async def search(request: Call) -> Answer:
    """Search contacts, best match first."""
    query: SearchQuery = request.query
    page = await call(store.find, request.account_id, query.q, query.page, query.size())
    return Answer([shaping.contact(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/contacts", scope="contacts:write", reads=ContactWrite, inside=checked(write.check),
    returns=shapes.ContactWritten, status=201,
    also=(200,),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a contact, or update the one who has the address (then 200)."""
    made = await commit(write.upsert, request.account_id, request.body, evidence(request))
    return Answer(shaping.contact_written(made.contact, made.kept_opt_out), 201 if made.created else 200)


@ROUTES.add("GET", "/contacts/{id}", scope="contacts:read", returns=shapes.Contact)
async def show(request: Call) -> Answer:
    """Get a contact."""
    # What programs ask for most, a handful of rows by their keys: half of all that it cost was to hand it over
    return Answer(shaping.contact(glance(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    "/contacts/{id}",
    scope="contacts:write",
    reads=ContactPatch,
    inside=checked(write.check),
    returns=shapes.ContactWritten,
)
async def update(request: Call) -> Answer:
    """Update a contact."""
    done = await commit(write.update, request.account_id, request.id, request.body, evidence(request))
    return Answer(shaping.contact_written(done.contact, done.kept_opt_out))


@ROUTES.add("DELETE", "/contacts/{id}", scope="contacts:write", query=DeleteQuery, returns=shapes.Contact)
async def delete(request: Call) -> Answer:
    """Delete a contact for good; with `erase` every trace of the person too. Opt-outs stay behind as hashes."""
    if request.query.erase:
        told = (request.by, "contact_erase", erase.erase)
        gone = await commit(audit.noting, *told, request.account_id, request.id, evidence(request))
    else:
        gone = await commit(audit.noting, request.by, "contact_delete", write.delete, request.account_id, request.id)
    return Answer(shaping.contact(gone))


@ROUTES.add(
    "GET", "/contacts/{id}/timeline", scope="contacts:read", query=PageQuery, returns=contact_shapes.TimelineEntry,
    many=True,
)  # fmt: skip
async def history(request: Call) -> Answer:
    """List what happened to a contact: events and messages, newest first."""
    page = await call(timeline.page, request.account_id, request.id, request.query.page, request.query.size())
    return Answer(await call(entries, page.rows), headers=page_headers(page))


@ROUTES.add(
    "GET", "/contacts/{id}/consents", scope="contacts:read", query=PageQuery, returns=contact_shapes.ConsentRow,
    many=True,
)  # fmt: skip
async def consents(request: Call) -> Answer:
    """List the evidence of a contact's consent, newest first."""
    page = await call(timeline.consents, request.account_id, request.id, request.query.page, request.query.size())
    return Answer([contact_shapes.consent(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/contacts/{id}/export", scope="contacts:read", returns=contact_shapes.ContactExport)
async def export(request: Call) -> Answer:
    """Get everything that is kept about a person, as one document."""
    name = f'attachment; filename="contact-{request.id}.json"'
    found = await call(dossier_of, request.account_id, request.id)
    await audit.exported(request.by, request.account_id, f"contact-{request.id}.json", (), 1)
    return Answer(found, headers={"Content-Disposition": name})


def _other(account_id: int, request: MergeWrite, number: int) -> None:
    if isinstance(request.contact_id, int):
        merge.two(account_id, number, request.contact_id)


@ROUTES.add(
    "POST", "/contacts/{id}/merge", scope="contacts:write", reads=MergeWrite, returns=shapes.Contact,
    inside=checked(_other),
)  # fmt: skip
async def merge_in(request: Call) -> Answer:
    """Merge another contact into this one; where they differ about consent the stricter one counts."""
    other: MergeWrite = request.body
    told = (request.account_id, request.id, other.contact_id, evidence(request))
    gone = {"merged_contact_id": other.contact_id}
    one = await commit(audit.noting, request.by, "contact_merge", merge.merge, *told, data=gone)
    return Answer(shaping.contact(one))
