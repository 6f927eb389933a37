"""Endpoints that record and list events."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct, structs

from appliance.api import contacts, schemas
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, keep_faults_of_readable_fields, validator
from appliance.api.http import get_idempotency_key, page_headers
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactWrite
from appliance.core.errors import Faults, Invalid
from appliance.core.validation import PartialRead
from appliance.events import log, submit
from appliance.events.log import EventQuery
from appliance.events.submit import EventBatch, EventWrite, PreparedEvent, Submitted, prepare, prepare_batch
from appliance.storage.models import Event
from appliance.storage.transactions import commit, fetch, scan

ROUTES = Routes()
# The body of an event must have one of these keys, which name its contact.
_CONTACT_KEYS = ("contact_id", "contact_email")
# A batch of events creates its missing contacts in transactions of this size, so that other writes proceed in between.
_CONTACT_BATCH_SIZE = 20


class RejectedEvent(Struct):
    """An event of a batch that was not recorded, with its errors."""

    index: Annotated[int, Meta(description="position in the batch, starting at 0")]
    code: Annotated[str, Meta(description="error code, as for a single request")]
    message: str
    validation_errors: Annotated[dict[str, list[str]], Meta(description="field errors")]


class EventBatchResult(Struct):
    """The result of a batch of events."""

    created: Annotated[int, Meta(description="number of recorded events")]
    repeated: Annotated[int, Meta(description="number of events already known by their `idempotency_key`")]
    errors: Annotated[list[RejectedEvent], Meta(description="events that were not recorded")]


@ROUTES.add(
    "GET",
    "/events",
    scope="events:read",
    agent_scope="events:read",
    query_type=EventQuery,
    response_type=schemas.RecordedEvent,
    returns_list=True,
)
async def list_events(request: ApiRequest) -> ApiResponse:
    """List events, newest first."""
    page = await scan(log.list_events, request.account_id, request.query)
    return ApiResponse([schemas.serialize_event(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/events",
    scope="events:write",
    body_type=EventWrite,
    validate=validator(submit.check_event, either=_CONTACT_KEYS),
    response_type=schemas.RecordedEvent,
    status=201,
    other_statuses=(200,),
    idempotent=True,
    rate="messages",
)
async def create_event(request: ApiRequest) -> ApiResponse:
    """Record an event; a repeated idempotency key returns the first event."""
    body: EventWrite = request.body
    key = get_idempotency_key(request.http, body)
    if key is not None and not isinstance(body.idempotency_key, str):
        body = structs.replace(body, idempotency_key=key)
    # Parsing a user agent is slow, so an event with one is prepared on the reader pool.
    if isinstance(body.user_agent, str):
        ready = await fetch(prepare, body, request.credential.is_test)
    else:
        ready = prepare(body, request.credential.is_test)

    def apply() -> Submitted:
        _create_missing_contacts(request, [ready])
        return submit.submit(request.account_id, ready)

    submitted = await commit(apply)
    if submitted.values is None:
        row = await fetch(log.get, request.account_id, submitted.id)
        return ApiResponse(schemas.serialize_event(row), 200, {"Idempotent-Replayed": "true"})
    return ApiResponse(schemas.serialize_event(Event(id=submitted.id, **submitted.values)))


@ROUTES.add(
    "POST", "/events/batch", scope="events:write", body_type=EventBatch, response_type=EventBatchResult, rate="messages"
)
async def create_events(request: ApiRequest) -> ApiResponse:
    """Record up to 1,000 events; invalid events are reported by index and do not affect the valid events."""
    parsed_events, ignored = await fetch(prepare_batch, request.body, request.credential.is_test)
    valid_events = {
        index: parsed_event
        for index, parsed_event in enumerate(parsed_events)
        if isinstance(parsed_event, PreparedEvent)
    }
    for batch in _iterate_batches([ready for ready in valid_events.values() if ready.creates]):
        await commit(_create_missing_contacts, request, batch)
    recorded = await commit(submit.submit_many, request.account_id, [*valid_events.values()])
    summary = EventBatchResult(0, 0, [])
    recorded_by_index = dict(zip(valid_events, recorded, strict=True))
    for index, parsed_event in enumerate(parsed_events):
        recorded_event = (
            recorded_by_index[index]
            if isinstance(parsed_event, PreparedEvent)
            else await fetch(_build_refusal, request.account_id, parsed_event)
        )
        if isinstance(recorded_event, Submitted):
            summary.created += recorded_event.values is not None
            summary.repeated += recorded_event.values is None
        else:
            faults = (
                recorded_event.fields
                if isinstance(recorded_event, Invalid)
                else {"idempotency_key": ["has already been taken"]}
            )
            summary.errors.append(RejectedEvent(index, recorded_event.code, str(recorded_event), faults))
    request.ignored_keys.extend(ignored)
    return ApiResponse(summary)


def _build_refusal(account_id: int, read: PartialRead) -> Invalid:
    """Return the error for an invalid event of a batch: its parse errors, and the errors found in its valid fields."""
    faults = Faults()
    faults.merge(read.faults.fields)
    if isinstance(read.value, EventWrite):
        try:
            submit.check_event(account_id, read.value)
        except Invalid as error:
            faults.merge(keep_faults_of_readable_fields(read, error, either=_CONTACT_KEYS))
    return Invalid(faults.fields)


def _create_missing_contacts(request: ApiRequest, batch: Sequence[PreparedEvent]) -> None:
    """Create each missing contact that an event asks to create, with the email address in the event, not opted in."""
    for ready in batch:
        address = submit.find_missing_contact(request.account_id, ready)
        if address is not None:
            write.upsert(
                request.account_id, ContactWrite(email=address, opt_in=False), contacts.build_evidence(request)
            )


def _iterate_batches(all_ready: list[PreparedEvent]) -> Iterator[list[PreparedEvent]]:
    for start in range(0, len(all_ready), _CONTACT_BATCH_SIZE):
        yield all_ready[start : start + _CONTACT_BATCH_SIZE]


@ROUTES.add("GET", "/events/{id}", scope="events:read", agent_scope="events:read", response_type=schemas.RecordedEvent)
async def get_event(request: ApiRequest) -> ApiResponse:
    """Get an event."""
    return ApiResponse(schemas.serialize_event(await fetch(log.get, request.account_id, request.id)))
