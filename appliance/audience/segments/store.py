"""Segments: found, listed, created, changed, deleted, counted."""

import hashlib
import time
from collections.abc import Collection
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from peewee import fn

from appliance.accounts.acting import By
from appliance.audience.filters import compile
from appliance.audience.filters.read import MAX_FILTERS, Node
from appliance.audience.segments import dependencies, people
from appliance.audience.segments.dependencies import named_in
from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid, NotFound
from appliance.core.fields import ContactId, Name, PageQuery, Short
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Segment
from appliance.storage.open import rows, run, scalar
from appliance.storage.work import after_commit, writing

# What may be written about a segment, and how segments are asked for.

_FILTER = {"$ref": "#/components/schemas/Filter"}
# Read by the filters' own reader, which knows every path inside
Filters = Annotated[Any, Meta(extra_json_schema={"type": "array", "maxItems": MAX_FILTERS, "items": _FILTER})]


class SegmentCreate(Struct):
    """A new segment; without filters it is everybody."""

    name: Name
    filters: Filters | UnsetType = UNSET


class SegmentPatch(Struct):
    """A change of a segment; `filters` replaces them all."""

    name: Name | UnsetType = UNSET
    filters: Filters | UnsetType = UNSET


class SegmentQuery(PageQuery):
    """How segments are asked for."""

    search: Short | UnsetType = UNSET


class CountWrite(Struct):
    """Filters to count without keeping them."""

    filters: Filters


class ExplainQuery(Struct):
    """Whose membership shall be explained."""

    contact_id: ContactId


# Up to here a count is always taken anew; above it may be a minute old
_ALWAYS_BELOW = 20_000
_FRESH_MS = 60_000
_PATIENCE_SECONDS = 1.5
# By what a list of segments may be ordered; a minus before it turns that round
ORDERS = {"name": fn.lower(Segment.name), "updated": Segment.updated_at, "created": Segment.created_at}
# By segment: what was counted (the change it belongs to, when, how many); lost with the process, and no harm
_counted: dict[int, tuple[int, int, int]] = {}


def page(account_id: int, query: SegmentQuery, order: str = "-created", ids: Collection[int] | None = None) -> Page:
    """List segments, newest first or in one of `ORDERS`; with `ids` only some of them."""
    found = matching(account_id, query, ids)
    column = ORDERS[order.removeprefix("-")]
    way = [column.desc(), Segment.id.desc()] if order.startswith("-") else [column.asc(), Segment.id.asc()]
    return paginate(found.order_by(*way), query.page, query.size())


def matching(account_id: int, query: SegmentQuery, ids: Collection[int] | None = None) -> Any:
    """Return the segments that a query lets through, of some ids if there are such, as a query without an order."""
    found = Segment.select().where(Segment.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        found = found.where(Segment.name.contains(query.search.strip()))
    return found if ids is None else found.where(Segment.id.in_(ids))


def ids(account_id: int) -> set[int]:
    """Return the ids of all segments."""
    return {number for (number,) in rows("SELECT id FROM segment WHERE account_id = ?", (account_id,))}


def get(account_id: int, segment_id: int) -> Segment:
    """Return a segment; raises NotFound."""
    found = Segment.get_or_none(Segment.account == account_id, Segment.id == segment_id)
    if found is None:
        raise NotFound
    return found


def create(account_id: int, request: SegmentCreate) -> Segment:
    """Make a segment; raises Invalid with every fault of its filters."""
    writing()
    filters = [] if request.filters is UNSET else request.filters
    check(account_id, None, filters)
    now = clock.now_ms()
    made = Segment.create(
        account=account_id, name=request.name.strip(), filters=filters, created_at=now, updated_at=now
    )  # fmt: skip
    after_commit(lambda: wake_ups.ring("segments"))
    return get(account_id, made.id)


def update(account_id: int, segment_id: int, request: SegmentPatch, by: By = By()) -> Segment:
    """Change a segment; raises NotFound, or Invalid with every fault.

    What was approved for the people that it found has to be approved anew (`approved`).
    """
    writing()
    found = get(account_id, segment_id)
    if request.filters is not UNSET:
        check(account_id, segment_id, request.filters)
        if found.filters != request.filters:
            dependencies.ask_again(account_id, "segment", segment_id, by)
        found.filters = request.filters
    if isinstance(request.name, str):
        found.name = request.name.strip()
    found.updated_at = max(clock.now_ms(), found.updated_at + 1)
    found.save()
    # Segments name segments: any mirror of the account may show other people now
    run("UPDATE contact_list SET stale = 1 WHERE account_id = ? AND segment_id IS NOT NULL", (account_id,))
    after_commit(lambda: wake_ups.ring("segments"))
    return get(account_id, segment_id)


def delete(account_id: int, segment_id: int) -> Segment:
    """Delete a segment and answer it as it was; raises NotFound, or Invalid while something needs it."""
    writing()
    found = get(account_id, segment_id)
    used = used_by(account_id, segment_id)
    if used:
        raise Invalid({"base": ["is in use"]}, reason="in_use", used_by=used)
    dependencies.let_go("segment", segment_id)
    Segment.delete().where(Segment.id == segment_id).execute()
    after_commit(lambda: wake_ups.ring("segments"))
    return found


def used_by(account_id: int, segment_id: int) -> list[dict[str, Any]]:
    """Return what needs a segment: armed campaigns, active flows, lists that mirror it, segments that name it."""
    found: list[dict[str, Any]] = [
        {"campaign_id": number, "name": name}
        for number, name in rows(
            "SELECT c.id, c.name FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ? "
            "AND (t.segment_id = ? OR ? IN (SELECT value FROM json_each(t.data, '$.exclude_segment_ids'))) "
            "AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL",
            (account_id, segment_id, segment_id),
        )
    ]
    found += dependencies.flows(account_id, "segment", segment_id)
    found += [
        {"list_id": number, "name": name}
        for number, name in rows("SELECT id, name FROM contact_list WHERE segment_id = ?", (segment_id,))
    ]
    for other in Segment.select().where(Segment.account == account_id, Segment.id != segment_id):
        if any(("segment", segment_id) == named[:2] for named in named_in(people.nodes(account_id, other.filters))):
            found.append({"segment_id": other.id, "name": other.name})
    return found


def drafts(account_id: int, segment_id: int) -> list[dict[str, Any]]:
    """Return the campaigns that choose a segment and were not sent: without it they wait for another choice."""
    found = rows(
        "SELECT c.id, c.name FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ? "
        "AND (t.segment_id = ? OR ? IN (SELECT value FROM json_each(t.data, '$.exclude_segment_ids'))) "
        "AND c.status = 'draft' AND c.deleted_at IS NULL",
        (account_id, segment_id, segment_id),
    )
    return [{"campaign_id": number, "name": name} for number, name in found]


def check(account_id: int, segment_id: int | None, filters: Any) -> list[Node]:
    """Raise Invalid unless filters can be those of a segment: readable, not circular, not too many together."""
    here = people.scope(account_id, writing=True)
    nodes = people.nodes(account_id, filters, writing=True)
    faults: dict[str, list[str]] = {}
    for kind, number, path in named_in(nodes) if segment_id is not None else ():
        if ("segment", segment_id) in dependencies.reached(account_id, kind, number):
            faults[path] = ["refers back to this segment"]
    if faults:
        raise Invalid(faults)
    compile.condition(nodes, here)
    return nodes


def definition(account_id: int, segment_id: int) -> str:
    """Return a digest of all that says who is in a segment: its filters, and what they lead to."""
    said = []
    for kind, number in sorted(dependencies.reached(account_id, "segment", segment_id)):
        column, table = ("filters", "segment") if kind == "segment" else ("segment_id", "contact_list")
        said.append((kind, number, scalar(f"SELECT {column} FROM {table} WHERE id = ?", (number,))))
    return hashlib.sha256(repr(said).encode()).hexdigest()


def lists_reached(account_id: int, segment_id: int) -> set[int]:
    """Return the lists whose members a segment asks about, through other segments too."""
    return {number for kind, number in dependencies.reached(account_id, "segment", segment_id) if kind == "list"}


def are_fresh(segments: list[Segment]) -> bool:
    """Return whether all segments were counted within the last minute, as they are now."""
    known = [(_counted.get(segment.id), segment) for segment in segments]
    return all(one and one[0] == of.updated_at and clock.now_ms() - one[1] < _FRESH_MS for one, of in known)


def counts(
    account_id: int, segments: list[Segment], patience: float = _PATIENCE_SECONDS
) -> dict[int, int | None]:  # fmt: skip
    """Count the people of segments; where there are very many, a count may be a minute old, or not there yet.

    So long, in seconds, new ones are counted; after that, older ones are answered.
    """
    started = time.monotonic()
    large = int(scalar("SELECT coalesce(max(id), 0) FROM contact")) > _ALWAYS_BELOW
    found: dict[int, int | None] = {}
    for segment in segments:
        known = _counted.get(segment.id)
        fresh = known is not None and known[0] == segment.updated_at and clock.now_ms() - known[1] < _FRESH_MS
        if large and known is not None and (fresh or time.monotonic() - started >= patience):
            found[segment.id] = known[2]
        elif large and time.monotonic() - started >= patience:
            found[segment.id] = None
        else:
            here = people.scope(account_id)
            number = people.count(account_id, people.nodes(account_id, segment.filters), here)
            _counted[segment.id] = (segment.updated_at, clock.now_ms(), number)
            found[segment.id] = number
    return found
