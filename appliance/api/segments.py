"""Endpoints of segments and their filters."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct

from appliance.accounts import audit
from appliance.api import schemas
from appliance.api.auth import require_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Contact, Json, Moment
from appliance.audience.contacts import store as contacts
from appliance.audience.filters import compiler
from appliance.audience.segments import explain, members, store, suggestions
from appliance.audience.segments.explain import SegmentExplanation
from appliance.audience.segments.members import Share
from appliance.audience.segments.store import CountWrite, ExplainQuery, SegmentCreate, SegmentPatch, SegmentQuery
from appliance.core.clock import iso
from appliance.core.validation import schema_name
from appliance.storage import models
from appliance.storage.transactions import commit, fetch, scan, scan_for


class Segment(Struct):
    """A group of contacts that match filters. In a large account `contacts_count` is null until the first count."""

    id: int
    account_id: int
    name: str
    filters: Annotated[
        list[Annotated[Json, schema_name("Filter")]],
        Meta(description="filters, all of which must match; without filters, the segment holds all contacts"),
    ]
    sentence: str
    contacts_count: (
        Annotated[int, Meta(description="number of contacts in the segment; null until first counted")] | None
    )
    created_at: Moment
    updated_at: Moment


class FilterShare(Struct):
    """The number of contacts that match one filter. In a large account the number is estimated from a sample."""

    count: Annotated[int, Meta(description="number of contacts that match this filter alone")]
    estimated: Annotated[bool, Meta(description="true if the number is an estimate")]


class ContactCount(Struct):
    """The number of contacts that match filters, some of these contacts, and the number that each filter matches."""

    count: int
    sample: Annotated[list[Contact], Meta(description="sample of the contacts")]
    rows: Annotated[list[FilterShare], Meta(description="number of contacts per filter, in the order of the request")]
    sentence: str


class FilterField(Struct):
    """A field of contacts that a filter can test."""

    name: str
    type: Annotated[str, Meta(description="type of the field, which determines its predicates")]
    label: str
    section: Annotated[str, Meta(description="section in which the field is offered")]
    aliases: Annotated[list[str], Meta(description="aliases of the field")]
    choices: Annotated[list[str], Meta(description="allowed values, if there are few")]
    of: Annotated[str, Meta(description="kind of objects whose ids are the values")] | None


class PredicateSpec(Struct):
    """A predicate that a field type supports, and the kind of value that it takes."""

    predicate: Annotated[str, Meta(description="name of the predicate")]
    takes: Annotated[str, Meta(description="kind of the value")]
    negative: Annotated[bool, Meta(description="whether contacts without a value match too")]
    words: Annotated[str, Meta(description="description in words")]


class FilterSpec(Struct):
    """All fields and predicates from which filters can be built, and their limits."""

    fields: Annotated[list[FilterField], Meta(description="fields that filters can use")]
    types: Annotated[dict[str, list[PredicateSpec]], Meta(description="predicates by type")]
    limits: Annotated[dict[str, int], Meta(description="limits")]


class SegmentStarter(Struct):
    """A ready-made segment. `POST /segments` accepts its `key` as `starter`, or its filters."""

    key: Annotated[str, Meta(description="identifier of the starter in `POST /segments`")]
    name: Annotated[str, Meta(description="name to give to the new segment")]
    description: Annotated[str, Meta(description="description")]
    filters: Annotated[list[Annotated[Json, schema_name("Filter")]], Meta(description="filters")]


class SegmentStarters(Struct):
    """All ready-made segments."""

    starters: Annotated[list[SegmentStarter], Meta(description="ready-made segments")]


def _serialize_segment(row: models.Segment, count: int | None, sentence: str) -> Segment:
    """Return the API representation of a segment with its count (None if unknown) and its filters as a sentence."""
    return Segment(
        row.id, row.account_id, row.name, row.filters, sentence, count, iso(row.created_at) or "",
        iso(row.updated_at) or "",
    )  # fmt: skip


def _serialize_count(count: int, sample: list[Contact], shares: list[Share], sentence: str) -> ContactCount:
    """Return the API representation of a count, with a sample of the contacts and the share of each filter."""
    return ContactCount(count, sample, [FilterShare(share.count, share.estimated) for share in shares], sentence)


ROUTES = Routes()


def _serialize_segments(account_id: int, rows: list[models.Segment]) -> list[Segment]:
    counts = members.count_segments(account_id, rows)
    scope = members.build_scope(account_id)
    return [
        _serialize_segment(
            row,
            counts[row.id],
            explain.describe_filters(account_id, members.parse_filters(account_id, row.filters), scope),
        )
        for row in rows
    ]


async def _segment_response(account_id: int, row: models.Segment) -> ApiResponse:
    return ApiResponse((await scan(_serialize_segments, account_id, [row]))[0])


@ROUTES.add(
    "GET",
    "/segments",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=SegmentQuery,
    response_type=Segment,
    returns_list=True,
)
async def list_segments(request: ApiRequest) -> ApiResponse:
    """List segments, newest first."""
    page = await fetch(store.fetch_page, request.account_id, request.query)
    return ApiResponse(await scan(_serialize_segments, request.account_id, page.rows), headers=page_headers(page))


def _validate_filters(account_id: int, request: SegmentPatch | CountWrite, number: int | None) -> None:
    if request.filters is not UNSET:
        store.check(account_id, number, request.filters)


def _require_filters_access(request: ApiRequest, stored: models.Segment | None = None) -> None:
    """Raise a 403 error for new filters on the data of events, without the scope `events:read`.

    The members of such a segment reveal the data of their events (T45 in docs/threats.md).
    """
    filters = request.body.filters
    if (stored is None or filters != stored.filters) and compiler.uses_event_data(filters):
        require_scope(request.credential, "events:read")


def _validate_new_segment(account_id: int, request: SegmentCreate, _: int | None) -> None:
    store.parse_create(account_id, request)


@ROUTES.add(
    "POST", "/segments", scope="contacts:write", agent_scope="segments:write", body_type=SegmentCreate,
    response_type=Segment, status=201, validate=validator(_validate_new_segment),
)  # fmt: skip
async def create_segment(request: ApiRequest) -> ApiResponse:
    """Create a segment from filters or a starter; without both it contains all contacts.

    Filters on the data of events require `events:read` too.
    """
    _require_filters_access(request)
    body = await fetch(store.parse_create, request.account_id, request.body)
    args = (store.create, request.account_id, body)
    segment = await commit(audit.run_and_record_agent, request.caller, "segment_create", *args)
    return await _segment_response(request.account_id, segment)


@ROUTES.add(
    "GET", "/segments/starters", scope="contacts:read", agent_scope="contacts:read", response_type=SegmentStarters
)
async def list_segment_starters(request: ApiRequest) -> ApiResponse:
    """Get ready-made segments, such as the contacts that engaged in the last 30 days."""
    return ApiResponse(
        SegmentStarters(
            [
                SegmentStarter(starter.key, starter.name, starter.description, list(starter.filters))
                for starter in store.STARTERS
            ]
        )
    )


@ROUTES.add("GET", "/segments/spec", scope="contacts:read", agent_scope="contacts:read", response_type=FilterSpec)
async def describe_filters(request: ApiRequest) -> ApiResponse:
    """Get the fields and predicates that filters support."""
    return ApiResponse(msgspec.convert(suggestions.describe_builder(), FilterSpec))


@ROUTES.add(
    "POST", "/segments/count", scope="contacts:read", agent_scope="contacts:read", body_type=CountWrite,
    response_type=ContactCount, rate="renders", validate=validator(_validate_filters),
)  # fmt: skip
async def count_contacts(request: ApiRequest) -> ApiResponse:
    """Count the contacts that match filters without saving the filters.

    Filters on the data of events require `events:read` too.
    """
    _require_filters_access(request)

    def read() -> ContactCount:
        account_id = request.account_id
        nodes = store.check(account_id, None, request.body.filters)
        scope = members.build_scope(account_id)
        total, sample_ids = members.count_and_fetch_some(account_id, nodes, scope)
        return _serialize_count(
            total,
            [schemas.serialize_contact(row) for row in contacts.fetch_by_ids(sample_ids)],
            members.count_each(account_id, nodes, scope),
            explain.describe_filters(account_id, nodes, scope),
        )

    return ApiResponse(await scan_for(request.account_id, read))


@ROUTES.add("GET", "/segments/{id}", scope="contacts:read", agent_scope="contacts:read", response_type=Segment)
async def get_segment(request: ApiRequest) -> ApiResponse:
    """Get a segment."""
    return await _segment_response(request.account_id, await fetch(store.get, request.account_id, request.id))


@ROUTES.add(
    "PATCH", "/segments/{id}", scope="contacts:write", agent_scope="segments:write",
    body_type=SegmentPatch, response_type=Segment,
    validate=validator(_validate_filters),
)  # fmt: skip
async def update_segment(request: ApiRequest) -> ApiResponse:
    """Update a segment; `filters` replaces all filters.

    New filters on the data of events require `events:read` too.
    """
    _require_filters_access(request, await fetch(store.get, request.account_id, request.id))
    args = (store.update, request.account_id, request.id, request.body, request.caller)
    segment = await commit(audit.run_and_record_agent, request.caller, "segment_update", *args)
    return await _segment_response(request.account_id, segment)


@ROUTES.add("DELETE", "/segments/{id}", scope="contacts:write", response_type=Segment)
async def delete_segment(request: ApiRequest) -> ApiResponse:
    """Delete a segment that is not in use."""
    shaped = await _segment_response(request.account_id, await fetch(store.get, request.account_id, request.id))
    await commit(audit.run_and_record, request.caller, "segment_delete", store.delete, request.account_id, request.id)
    return shaped


@ROUTES.add(
    "GET",
    "/segments/{id}/explain",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=ExplainQuery,
    response_type=SegmentExplanation,
)
async def explain_segment(request: ApiRequest) -> ApiResponse:
    """Explain filter by filter whether a contact is in a segment."""
    return ApiResponse(await scan(explain.explain, request.account_id, request.id, request.query.contact_id))
