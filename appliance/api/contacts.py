"""Endpoints of contacts with their consent records and timeline, of suppressions, and of lists."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.accounts.access import EXPORT_SCOPE
from appliance.api import message_schemas, messages, schemas
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.flow_runs import FlowRunDetail, serialize_run_detail
from appliance.api.http import page_headers
from appliance.api.messages import IncomingMessage
from appliance.api.schemas import Json, Moment
from appliance.audience import bulk_actions, lists, suppressions, time_zones
from appliance.audience.bulk_actions import BulkDone, BulkWrite
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal, store, timeline, write
from appliance.audience.contacts.store import (
    ContactPatch,
    ContactQuery,
    ContactWrite,
    DeleteQuery,
    MergeWrite,
    SearchQuery,
)
from appliance.audience.contacts.timeline import Entry
from appliance.audience.lists import ListCreate, ListPatch, ListQuery
from appliance.audience.suppressions import Lift, Reason, SuppressionQuery, SuppressionWrite
from appliance.core import clock
from appliance.core.clock import iso
from appliance.core.validation import PageQuery
from appliance.flows import runs
from appliance.inbound import sms_conversations
from appliance.sending.messages import ledger
from appliance.storage import models
from appliance.storage.database import rows
from appliance.storage.models import ContactList
from appliance.storage.transactions import commit, fetch, fetch_inline, scan


class Suppression(Struct):
    """An address that gets no messages. The address of an erased contact is stored only as a hash."""

    id: int
    channel: Annotated[Literal["email", "sms"], Meta(description="channel that is suppressed")]
    address: (
        Annotated[str, Meta(description="suppressed address; null if it was erased and only its hash is stored")] | None
    )
    reason: Annotated[Reason, Meta(description="reason")]
    source: Annotated[str, Meta(description="origin of the suppression")] | None
    diagnostic: Annotated[str, Meta(description="response of the server that rejected the message")] | None
    note: Annotated[str, Meta(description="note of the person who added it")] | None
    created_at: Moment
    expires_at: Annotated[Moment, Meta(description="when the suppression expires; null for never")] | None


class ConsentRow(Struct):
    """A consent record: who agreed or refused, how, when, from where and to which text."""

    id: int
    contact_id: Annotated[int, Meta(description="id of the contact; null if there is none or it was deleted")] | None
    kind: Annotated[Literal["email", "phone"], Meta(description="kind of the address")]
    address: Annotated[str, Meta(description="address; null once the contact is erased")] | None
    act: Annotated[Literal[
        "opt_in", "opt_out", "requested", "confirmed", "suppressed", "lifted", "list_joined", "list_left", "tracking",
        "erase_requested", "import_undone",
    ], Meta(description="what changed")]  # fmt: skip
    by: Annotated[Literal["recipient", "operator", "service"], Meta(description="who made the change")]
    source: Annotated[str, Meta(description="how the change was made, such as `api`, `form`, `import` or `link`")]
    actor: (
        Annotated[
            str, Meta(description="who made the change, such as `key:3`, `user:7` or `recipient`; null if not recorded")
        ]
        | None
    )
    list_id: Annotated[int, Meta(description="id of the list; null if there is none")] | None
    ip: Annotated[str, Meta(description="IP address of the request, stored as the account's `privacy_ip` says")] | None
    user_agent: Annotated[str, Meta(description="User-Agent header of the request")] | None
    text: Annotated[str, Meta(description="consent text that the contact saw or is recorded to have agreed to")] | None
    data: Annotated[Json, Meta(description="further data")]
    created_at: Moment


class TimelineEntry(Struct):
    """An event of a contact, or a message to the contact."""

    type: Annotated[Literal["event", "message"], Meta(description="`event` or `message`")]
    id: Annotated[int, Meta(description="id of the event or message")]
    created_at: Annotated[Moment, Meta(description="when it happened")]
    event: Annotated[schemas.RecordedEvent, Meta(description="the event; null for a message")] | None
    message: Annotated[message_schemas.Message, Meta(description="the message; null for an event")] | None


class ListName(Struct):
    """The id and name of a list."""

    id: int
    name: str


class MessageText(Struct):
    """The submitted content of a single message."""

    message_id: int
    subject: str | None
    body: str | None
    text: str | None
    from_name: str | None
    headers: Annotated[Json, Meta(description="custom headers")]
    data: Annotated[Json, Meta(description="values for merge tags")]


class ClickHour(Struct):
    """How often a contact clicks at an hour of the day, from which campaigns take their best hour."""

    hour: Annotated[int, Meta(description="hour of the day on the contact's clock, 0 to 23")]
    clicks: Annotated[int, Meta(description="number of messages that the contact first clicked in that hour")]


class ContactExport(Struct):
    """All stored data about a contact."""

    exported_at: Annotated[Moment, Meta(description="when the export was created")]
    contact: Annotated[schemas.Contact, Meta(description="the contact")]
    time_zone: Annotated[str, Meta(description="time zone by which campaigns and flows are sent to the contact")]
    click_hours: Annotated[list[ClickHour], Meta(description="hours at which the contact clicks")]
    lists: Annotated[list[ListName], Meta(description="lists of which the contact is a member")]
    left_lists: Annotated[list[ListName], Meta(description="lists that the contact left")]
    suppressions: Annotated[list[Suppression], Meta(description="suppressions of the contact's addresses")]
    consents: Annotated[list[ConsentRow], Meta(description="consent records")]
    messages: Annotated[list[message_schemas.Message], Meta(description="messages sent to the contact")]
    message_texts: Annotated[list[MessageText], Meta(description="content of the single messages sent to the contact")]
    incoming: Annotated[list[IncomingMessage], Meta(description="messages that the contact wrote")]
    events: Annotated[list[schemas.RecordedEvent], Meta(description="events of the contact")]
    flow_runs: Annotated[list[FlowRunDetail], Meta(description="flow runs of the contact")]


def serialize_suppression(row: models.Suppression) -> Suppression:
    """Return the API representation of a suppression."""
    reason: Any = row.reason
    return Suppression(
        row.id, "email" if row.kind == "email" else "sms", row.address, reason, row.source, row.diagnostic, row.note,
        _format_time(row.created_at), iso(row.expires_at),
    )  # fmt: skip


def serialize_consent(row: Any) -> ConsentRow:
    """Return the API representation of a consent record, whose row must be loaded with its `address`."""
    values = {name: getattr(row, name) for name in ConsentRow.__struct_fields__ if name != "created_at"}
    return ConsentRow(**values, created_at=_format_time(row.created_at))


def _format_time(ms: int) -> str:
    return str(iso(ms))


_CHUNK_ROWS = 500
_SELECT_CLICK_HOURS = "SELECT hour, clicks FROM click_hour WHERE contact_id = ? ORDER BY hour"


def serialize_timeline(timeline_entries: Sequence[Entry]) -> list[TimelineEntry]:
    """Return the API representation of timeline entries, each with its event or message, in the given order.

    An entry whose event or message has been deleted is left out.
    """
    by_kind: dict[str, dict[int, Any]] = {
        "event": {
            row.id: schemas.serialize_event(row)
            for row in models.Event.select().where(models.Event.id.in_(_select_ids(timeline_entries, "event")))
        },
        "message": {
            row.id: message_schemas.serialize_message(row)
            for row in ledger.get_by_ids(_select_ids(timeline_entries, "message"))
        },
    }
    serialized = []
    for entry in timeline_entries:
        shape: Any = by_kind[entry.kind].get(entry.id)
        if shape is not None:
            event, message = (shape, None) if entry.kind == "event" else (None, shape)
            kind: Any = entry.kind
            serialized.append(TimelineEntry(kind, entry.id, shape.created_at, event, message))
    return serialized


def _select_ids(timeline_entries: Sequence[Entry], kind: str) -> list[int]:
    return [entry.id for entry in timeline_entries if entry.kind == kind]


def collect_contact_data(account_id: int, contact_id: int) -> ContactExport:
    """Return all data that is stored about a contact. Raises NotFound if the account has no such contact."""
    contact = store.get(account_id, contact_id)
    return ContactExport(
        exported_at=str(clock.iso(clock.now_ms())),
        contact=schemas.serialize_contact(contact),
        time_zone=time_zones.find_zones(account_id, [contact_id])[contact_id].zone.key,
        click_hours=[ClickHour(*row) for row in rows(_SELECT_CLICK_HOURS, (contact_id,))],
        lists=_fetch_lists("membership", contact_id),
        left_lists=_fetch_lists("list_opt_out", contact_id),
        suppressions=_fetch_suppressions(contact),
        consents=[serialize_consent(row) for row in _iterate_consents(account_id, contact_id)],
        messages=[
            message_schemas.serialize_message(row)
            for part in _iterate_id_chunks("message", contact_id)
            for row in ledger.get_by_ids(part)
        ],
        message_texts=[
            _serialize_message_text(row)
            for part in _iterate_id_chunks("message", contact_id)
            for row in _fetch_contents(part)
        ],
        incoming=[
            messages.serialize_incoming(row) for row in sms_conversations.fetch_from_contact(account_id, contact_id)
        ],
        events=[
            schemas.serialize_event(row)
            for part in _iterate_id_chunks("event", contact_id)
            for row in _fetch_events(part)
        ],
        flow_runs=[
            serialize_run_detail(row) for part in _iterate_id_chunks("run", contact_id) for row in runs.load_runs(part)
        ],
    )


def _fetch_lists(table: str, contact_id: int) -> list[ListName]:
    return [
        ListName(*row)
        for row in rows(
            f"SELECT l.id, l.name FROM {table} m JOIN contact_list l ON l.id = m.contact_list_id "
            "WHERE m.contact_id = ? ORDER BY l.id",
            (contact_id,),
        )
    ]


def _fetch_suppressions(contact: models.Contact) -> list[Suppression]:
    address_hashes = timeline.addresses_by_hash(contact)
    query = models.Suppression.select().where(
        models.Suppression.account == contact.account_id, models.Suppression.address_hash.in_(list(address_hashes))
    )
    return [serialize_suppression(row) for row in query.order_by(models.Suppression.id)] if address_hashes else []


def _iterate_consents(account_id: int, contact_id: int) -> Iterator[Any]:
    page_number = 1
    while page_rows := timeline.fetch_evidence(account_id, contact_id, page_number, _CHUNK_ROWS).rows:
        yield from page_rows
        page_number += 1


def _iterate_id_chunks(table: str, contact_id: int) -> Iterator[list[int]]:
    ids = [row[0] for row in rows(f"SELECT id FROM {table} WHERE contact_id = ? ORDER BY id DESC", (contact_id,))]
    for start in range(0, len(ids), _CHUNK_ROWS):
        yield ids[start : start + _CHUNK_ROWS]


def _fetch_events(ids: list[int]) -> list[models.Event]:
    return list(models.Event.select().where(models.Event.id.in_(ids)).order_by(models.Event.id.desc()))


def _fetch_contents(ids: list[int]) -> list[models.MessageContent]:
    return ledger.add_bulk_texts(list(models.MessageContent.select().where(models.MessageContent.message.in_(ids))))


def _serialize_message_text(row: models.MessageContent) -> MessageText:
    return MessageText(row.message_id, row.subject, row.body, row.text, row.from_name, row.headers, row.data)


ROUTES = Routes()


def build_evidence(request: ApiRequest) -> Evidence:
    """Return the evidence for changes of consent by a request: the actor, and the client's IP address and user agent.

    The text of the evidence is `consent_source` of the request's body, or None without it.
    """
    consent_source = getattr(request.body, "consent_source", None)
    return Evidence(
        source="api",
        actor=request.actor,
        ip=request.http.ctx.client,
        user_agent=request.http.headers.get("user-agent"),
        text=(consent_source.strip() or None) if isinstance(consent_source, str) else None,
        test=request.credential.is_test,
    )


@ROUTES.add(
    "GET",
    "/contacts",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=ContactQuery,
    response_type=schemas.Contact,
    returns_list=True,
)
async def list_contacts(request: ApiRequest) -> ApiResponse:
    """List contacts, newest first."""
    page = await scan(store.fetch_page, request.account_id, request.query)
    return ApiResponse([schemas.serialize_contact(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "GET",
    "/contacts/search",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=SearchQuery,
    response_type=schemas.Contact,
    returns_list=True,
)
async def search_contacts(request: ApiRequest) -> ApiResponse:
    """Search contacts, best match first."""
    query: SearchQuery = request.query
    page = await scan(store.find_by_words, request.account_id, query.q, query.page, query.size())
    return ApiResponse([schemas.serialize_contact(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/contacts", scope="contacts:write", body_type=ContactWrite, validate=validator(write.check),
    response_type=schemas.ContactWritten, status=201,
    other_statuses=(200,),
)  # fmt: skip
async def create_contact(request: ApiRequest) -> ApiResponse:
    """Create a contact, or update the contact that has the address (then 200)."""
    written = await commit(write.upsert, request.account_id, request.body, build_evidence(request))
    return ApiResponse(
        schemas.serialize_written_contact(written.contact, written.kept_opt_out), 201 if written.created else 200
    )


@ROUTES.add("GET", "/contacts/{id}", scope="contacts:read", agent_scope="contacts:read", response_type=schemas.Contact)
async def get_contact(request: ApiRequest) -> ApiResponse:
    """Get a contact."""
    # This is the most frequent read, and it reads a few rows by key. Passing it to the reader pool and back took half
    # of its time.
    return ApiResponse(schemas.serialize_contact(fetch_inline(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    "/contacts/{id}",
    scope="contacts:write",
    body_type=ContactPatch,
    validate=validator(write.check),
    response_type=schemas.ContactWritten,
)
async def update_contact(request: ApiRequest) -> ApiResponse:
    """Update a contact."""
    written = await commit(write.update, request.account_id, request.id, request.body, build_evidence(request))
    return ApiResponse(schemas.serialize_written_contact(written.contact, written.kept_opt_out))


@ROUTES.add("DELETE", "/contacts/{id}", scope="contacts:write", query_type=DeleteQuery, response_type=schemas.Contact)
async def delete_contact(request: ApiRequest) -> ApiResponse:
    """Delete a contact permanently; `erase` also removes all personal data. Opt-outs are kept as hashes."""
    if request.query.erase:
        details = (request.caller, "contact_erase", removal.erase)
        contact = await commit(audit.run_and_record, *details, request.account_id, request.id, build_evidence(request))
    else:
        contact = await commit(
            audit.run_and_record, request.caller, "contact_delete", removal.delete, request.account_id, request.id
        )
    return ApiResponse(schemas.serialize_contact(contact))


@ROUTES.add(
    "GET", "/contacts/{id}/timeline", scope="contacts:read", agent_scope="contacts:read",
    query_type=PageQuery, response_type=TimelineEntry,
    returns_list=True,
)  # fmt: skip
async def list_contact_timeline(request: ApiRequest) -> ApiResponse:
    """List events and messages of a contact, newest first."""
    page = await fetch(timeline.fetch_page, request.account_id, request.id, request.query.page, request.query.size())
    return ApiResponse(await fetch(serialize_timeline, page.rows), headers=page_headers(page))


@ROUTES.add(
    "GET", "/contacts/{id}/consents", scope="contacts:read", agent_scope="contacts:read",
    query_type=PageQuery, response_type=ConsentRow,
    returns_list=True,
)  # fmt: skip
async def list_contact_consents(request: ApiRequest) -> ApiResponse:
    """List consent records of a contact, newest first."""
    page = await fetch(
        timeline.fetch_evidence, request.account_id, request.id, request.query.page, request.query.size()
    )
    return ApiResponse([serialize_consent(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/contacts/{id}/export", scope="contacts:read", response_type=ContactExport, user_scope=EXPORT_SCOPE)
async def export_contact(request: ApiRequest) -> ApiResponse:
    """Get all stored data about a contact as one document."""
    disposition = f'attachment; filename="contact-{request.id}.json"'
    document = await fetch(collect_contact_data, request.account_id, request.id)
    await audit.record_export(request.caller, request.account_id, f"contact-{request.id}.json", (), 1)
    return ApiResponse(document, headers={"Content-Disposition": disposition})


def _validate_merge(account_id: int, request: MergeWrite, number: int) -> None:
    if isinstance(request.contact_id, int):
        removal.find_merge_pair(account_id, number, request.contact_id)


@ROUTES.add(
    "POST", "/contacts/{id}/merge", scope="contacts:write", body_type=MergeWrite, response_type=schemas.Contact,
    validate=validator(_validate_merge),
)  # fmt: skip
async def merge_contacts(request: ApiRequest) -> ApiResponse:
    """Merge another contact into this one. If the consents of the two contacts differ, the stricter consent is kept."""
    other: MergeWrite = request.body
    args = (request.account_id, request.id, other.contact_id, build_evidence(request))
    data = {"merged_contact_id": other.contact_id}
    contact = await commit(audit.run_and_record, request.caller, "contact_merge", removal.merge, *args, data=data)
    return ApiResponse(schemas.serialize_contact(contact))


@ROUTES.add(
    "GET",
    "/suppressions",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=SuppressionQuery,
    response_type=Suppression,
    returns_list=True,
)
async def list_suppressions(request: ApiRequest) -> ApiResponse:
    """List suppressions, newest first."""
    page = await fetch(suppressions.fetch_page, request.account_id, request.query)
    return ApiResponse([serialize_suppression(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/suppressions", scope="contacts:write", body_type=SuppressionWrite, validate=validator(suppressions.check),
    response_type=Suppression,
    status=201, other_statuses=(200,),
)  # fmt: skip
async def create_suppression(request: ApiRequest) -> ApiResponse:
    """Suppress an address, or update its suppression for the same reason (then 200)."""
    added = await commit(_suppress, request)
    return ApiResponse(serialize_suppression(added.suppression), 201 if added.created else 200)


@ROUTES.add(
    "DELETE", "/suppressions/{id}", scope="contacts:write", body_type=Lift, query_type=Lift, body_required=False,
    response_type=Suppression,
)  # fmt: skip
async def lift_suppression(request: ApiRequest) -> ApiResponse:
    """Lift a suppression; an optional `reason` is read from the body or query."""
    reason = next((source.reason for source in (request.body, request.query) if isinstance(source.reason, str)), None)
    suppression = await commit(
        audit.run_and_record, request.caller, "suppression_lift", suppressions.lift, request.account_id, request.id,
        reason, build_evidence(request),
    )  # fmt: skip
    return ApiResponse(serialize_suppression(suppression))


def _suppress(request: ApiRequest) -> suppressions.Added:
    added = suppressions.create(request.account_id, request.body, build_evidence(request))
    audit.record(request.caller, request.account_id, "suppression_add", f"suppression:{added.suppression.id}")
    return added


def _serialize_list(row: ContactList) -> schemas.ContactList:
    return schemas.serialize_list(row, lists.count_sendable(row.id))


@ROUTES.add(
    "GET",
    "/lists",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=ListQuery,
    response_type=schemas.ContactList,
    returns_list=True,
)
async def list_lists(request: ApiRequest) -> ApiResponse:
    """List contact lists, newest first."""
    page = await fetch(lists.fetch_page, request.account_id, request.query)
    return ApiResponse(await fetch(lambda: [_serialize_list(row) for row in page.rows]), headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/lists",
    scope="contacts:write",
    body_type=ListCreate,
    validate=validator(lists.check),
    response_type=schemas.ContactList,
    status=201,
)
async def create_list(request: ApiRequest) -> ApiResponse:
    """Create a list."""
    return ApiResponse(await fetch(_serialize_list, await commit(lists.create, request.account_id, request.body)))


@ROUTES.add("GET", "/lists/{id}", scope="contacts:read", agent_scope="contacts:read", response_type=schemas.ContactList)
async def get_list(request: ApiRequest) -> ApiResponse:
    """Get a list."""
    return ApiResponse(await fetch(lambda: _serialize_list(lists.get(request.account_id, request.id))))


@ROUTES.add(
    "PATCH",
    "/lists/{id}",
    scope="contacts:write",
    body_type=ListPatch,
    validate=validator(lists.check),
    response_type=schemas.ContactList,
)
async def update_list(request: ApiRequest) -> ApiResponse:
    """Update a list; `contact_ids` replaces its members."""
    changed = await commit(lists.update, request.account_id, request.id, request.body, request.caller)
    return ApiResponse(await fetch(_serialize_list, changed))


@ROUTES.add("DELETE", "/lists/{id}", scope="contacts:write", response_type=schemas.ContactList)
async def delete_list(request: ApiRequest) -> ApiResponse:
    """Delete a list; its contacts are kept."""

    def apply() -> schemas.ContactList:
        shaped = _serialize_list(lists.get(request.account_id, request.id))
        audit.run_and_record(request.caller, "list_delete", lists.delete, request.account_id, request.id)
        return shaped

    return ApiResponse(await commit(apply))


def _validate_membership(account_id: int, request: BulkWrite, number: int) -> None:
    bulk_actions.plan_membership(account_id, number, request)


@ROUTES.add(
    "POST", "/lists/{id}/contacts/bulk", scope="contacts:write", body_type=BulkWrite, response_type=BulkDone,
    validate=validator(_validate_membership, include_base=True),
)  # fmt: skip
async def change_list_members(request: ApiRequest) -> ApiResponse:
    """Add and remove many contacts by id or email address."""
    plan = await fetch(bulk_actions.plan_membership, request.account_id, request.id, request.body)
    summary = BulkDone(0, 0, plan.unknown, [])
    # Many small transactions let other writes proceed in between. If one of them fails, the request can be repeated.
    for start in range(0, len(plan.add), bulk_actions.MEMBERSHIP_CHUNK):
        chunk = plan.add[start : start + bulk_actions.MEMBERSHIP_CHUNK]
        addition = await commit(lists.add_members, request.account_id, request.id, chunk)
        summary.added += addition.changed_count
        summary.kept_opt_out = addition.kept_opt_outs or summary.kept_opt_out
    for start in range(0, len(plan.remove), bulk_actions.MEMBERSHIP_CHUNK):
        chunk = plan.remove[start : start + bulk_actions.MEMBERSHIP_CHUNK]
        summary.removed += (await commit(lists.remove_members, request.account_id, request.id, chunk)).changed_count
    totals = {"added": summary.added, "removed": summary.removed}
    await commit(audit.record, request.caller, request.account_id, "contacts_bulk", f"list:{request.id}", totals)
    return ApiResponse(summary)
