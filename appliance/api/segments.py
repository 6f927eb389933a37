"""Segments over the API."""

import msgspec
from msgspec import UNSET

from appliance import tables
from appliance.account import audit
from appliance.api import segment_shapes, shaping
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import page_headers
from appliance.contacts import store as contacts
from appliance.db.work import call, commit
from appliance.filters import spec
from appliance.segments import explain, people, store
from appliance.segments.explain import Explained
from appliance.segments.requests import CountWrite, ExplainQuery, SegmentCreate, SegmentPatch, SegmentQuery

ROUTES = Routes()


def _shaped(account_id: int, rows: list[tables.Segment]) -> list[segment_shapes.Segment]:
    counts = store.counts(account_id, rows)
    here = people.scope(account_id)
    return [
        segment_shapes.segment(
            row, counts[row.id], explain.sentence(account_id, people.nodes(account_id, row.filters), here)
        )
        for row in rows
    ]


async def _one(account_id: int, row: tables.Segment) -> Answer:
    return Answer((await call(_shaped, account_id, [row]))[0])


@ROUTES.add("GET", "/segments", scope="contacts:read", query=SegmentQuery, returns=segment_shapes.Segment, many=True)
async def index(request: Call) -> Answer:
    """List segments, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer(await call(_shaped, request.account_id, page.rows), headers=page_headers(page))


def _look_over(account_id: int, request: SegmentCreate | SegmentPatch | CountWrite, number: int | None) -> None:
    if request.filters is not UNSET:
        store.check(account_id, number, request.filters)


@ROUTES.add("POST", "/segments", scope="contacts:write", reads=SegmentCreate, returns=segment_shapes.Segment,
            status=201, inside=checked(_look_over))  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a segment; without filters it is everybody."""
    return await _one(request.account_id, await commit(store.create, request.account_id, request.body))


@ROUTES.add("GET", "/segments/spec", scope="contacts:read", returns=segment_shapes.FilterSpec)
async def fields(request: Call) -> Answer:
    """Get the fields and predicates that filters know."""
    return Answer(msgspec.convert(spec.spec(), segment_shapes.FilterSpec))


@ROUTES.add("POST", "/segments/count", scope="contacts:read", reads=CountWrite, returns=segment_shapes.Counted,
            rate="renders", inside=checked(_look_over))  # fmt: skip
async def count(request: Call) -> Answer:
    """Count the people whom filters let through, without keeping the filters."""

    def read() -> segment_shapes.Counted:
        account_id = request.account_id
        nodes = store.check(account_id, None, request.body.filters)
        here = people.scope(account_id)
        found, some = people.look(account_id, nodes, here)
        return segment_shapes.counted(
            found, [shaping.contact(row) for row in contacts.by_ids(some)], people.shares(account_id, nodes, here),
            explain.sentence(account_id, nodes, here),
        )  # fmt: skip

    return Answer(await call(read))


@ROUTES.add("GET", "/segments/{id}", scope="contacts:read", returns=segment_shapes.Segment)
async def show(request: Call) -> Answer:
    """Get a segment."""
    return await _one(request.account_id, await call(store.get, request.account_id, request.id))


@ROUTES.add(
    "PATCH", "/segments/{id}", scope="contacts:write", reads=SegmentPatch, returns=segment_shapes.Segment,
    inside=checked(_look_over),
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update a segment; `filters` replaces them all."""
    changed = await commit(store.update, request.account_id, request.id, request.body, request.by)
    return await _one(request.account_id, changed)


@ROUTES.add("DELETE", "/segments/{id}", scope="contacts:write", returns=segment_shapes.Segment)
async def delete(request: Call) -> Answer:
    """Delete a segment that nothing needs."""
    shaped = await _one(request.account_id, await call(store.get, request.account_id, request.id))
    await commit(audit.noting, request.by, "segment_delete", store.delete, request.account_id, request.id)
    return shaped


@ROUTES.add("GET", "/segments/{id}/explain", scope="contacts:read", query=ExplainQuery, returns=Explained)
async def why(request: Call) -> Answer:
    """Explain filter by filter whether a contact is in a segment."""
    return Answer(await call(explain.explain, request.account_id, request.id, request.query.contact_id))
