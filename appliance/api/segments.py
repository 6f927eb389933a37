"""Segments over the API."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Struct

from appliance.accounts import audit
from appliance.api import shaping
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.api.shapes import Contact, Json, Moment
from appliance.audience.contacts import store as contacts
from appliance.audience.filters import spec
from appliance.audience.segments import explain, people, store
from appliance.audience.segments.explain import Explained
from appliance.audience.segments.people import Share
from appliance.audience.segments.store import CountWrite, ExplainQuery, SegmentCreate, SegmentPatch, SegmentQuery
from appliance.core.clock import iso
from appliance.core.fields import named
from appliance.storage import models
from appliance.storage.work import call, commit

# What the API answers about segments.


class Segment(Struct):
    """A group that follows from filters; `contacts_count` is null only until very many people are first counted."""

    id: int
    account_id: int
    name: str
    filters: list[Annotated[Json, named("Filter")]]
    sentence: str
    contacts_count: int | None
    created_at: Moment
    updated_at: Moment


class FilterShare(Struct):
    """How many people one filter alone lets through; told from a sample in large accounts."""

    count: int
    estimated: bool


class Counted(Struct):
    """How many people filters let through, some of them, and the share of each filter."""

    count: int
    sample: list[Contact]
    rows: list[FilterShare]
    sentence: str


class FilterField(Struct):
    """A name that filters know."""

    name: str
    type: str
    label: str
    section: str
    aliases: list[str]
    choices: list[str]
    of: str | None


class FilterTest(Struct):
    """A predicate of a type, and what its value is."""

    predicate: str
    takes: str
    negative: bool
    words: str


class FilterSpec(Struct):
    """Everything a builder of filters can offer."""

    fields: list[FilterField]
    types: dict[str, list[FilterTest]]
    limits: dict[str, int]


def segment(row: models.Segment, count: int | None, sentence: str) -> Segment:
    """Shape a segment."""
    return Segment(
        row.id, row.account_id, row.name, row.filters, sentence, count, iso(row.created_at) or "",
        iso(row.updated_at) or "",
    )  # fmt: skip


def counted(count: int, sample: list[Contact], shares: list[Share], sentence: str) -> Counted:
    """Shape a count."""
    return Counted(count, sample, [FilterShare(one.count, one.estimated) for one in shares], sentence)


ROUTES = Routes()


def _shaped(account_id: int, rows: list[models.Segment]) -> list[Segment]:
    counts = store.counts(account_id, rows)
    here = people.scope(account_id)
    return [
        segment(row, counts[row.id], explain.sentence(account_id, people.nodes(account_id, row.filters), here))
        for row in rows
    ]


async def _one(account_id: int, row: models.Segment) -> Answer:
    return Answer((await call(_shaped, account_id, [row]))[0])


@ROUTES.add("GET", "/segments", scope="contacts:read", query=SegmentQuery, returns=Segment, many=True)
async def index(request: Call) -> Answer:
    """List segments, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer(await call(_shaped, request.account_id, page.rows), headers=page_headers(page))


def _look_over(account_id: int, request: SegmentCreate | SegmentPatch | CountWrite, number: int | None) -> None:
    if request.filters is not UNSET:
        store.check(account_id, number, request.filters)


@ROUTES.add("POST", "/segments", scope="contacts:write", reads=SegmentCreate, returns=Segment,
            status=201, inside=checked(_look_over))  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a segment; without filters it is everybody."""
    return await _one(request.account_id, await commit(store.create, request.account_id, request.body))


@ROUTES.add("GET", "/segments/spec", scope="contacts:read", returns=FilterSpec)
async def fields(request: Call) -> Answer:
    """Get the fields and predicates that filters know."""
    return Answer(msgspec.convert(spec.spec(), FilterSpec))


@ROUTES.add("POST", "/segments/count", scope="contacts:read", reads=CountWrite, returns=Counted,
            rate="renders", inside=checked(_look_over))  # fmt: skip
async def count(request: Call) -> Answer:
    """Count the people whom filters let through, without keeping the filters."""

    def read() -> Counted:
        account_id = request.account_id
        nodes = store.check(account_id, None, request.body.filters)
        here = people.scope(account_id)
        found, some = people.look(account_id, nodes, here)
        return counted(
            found, [shaping.contact(row) for row in contacts.by_ids(some)], people.shares(account_id, nodes, here),
            explain.sentence(account_id, nodes, here),
        )  # fmt: skip

    return Answer(await call(read))


@ROUTES.add("GET", "/segments/{id}", scope="contacts:read", returns=Segment)
async def show(request: Call) -> Answer:
    """Get a segment."""
    return await _one(request.account_id, await call(store.get, request.account_id, request.id))


@ROUTES.add(
    "PATCH", "/segments/{id}", scope="contacts:write", reads=SegmentPatch, returns=Segment,
    inside=checked(_look_over),
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update a segment; `filters` replaces them all."""
    changed = await commit(store.update, request.account_id, request.id, request.body, request.by)
    return await _one(request.account_id, changed)


@ROUTES.add("DELETE", "/segments/{id}", scope="contacts:write", returns=Segment)
async def delete(request: Call) -> Answer:
    """Delete a segment that nothing needs."""
    shaped = await _one(request.account_id, await call(store.get, request.account_id, request.id))
    await commit(audit.noting, request.by, "segment_delete", store.delete, request.account_id, request.id)
    return shaped


@ROUTES.add("GET", "/segments/{id}/explain", scope="contacts:read", query=ExplainQuery, returns=Explained)
async def why(request: Call) -> Answer:
    """Explain filter by filter whether a contact is in a segment."""
    return Answer(await call(explain.explain, request.account_id, request.id, request.query.contact_id))
