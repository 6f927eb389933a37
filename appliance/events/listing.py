"""List and count events with the index that suits the filters, and format events for API and webhooks."""

import threading
from collections import OrderedDict
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, json

from appliance.core.clock import iso
from appliance.storage import models
from appliance.storage.database import Page, connection, fetch_one, rows, scalar
from appliance.storage.transactions import is_in_write_transaction, snapshot

_EQUALITY_FILTERS = ("event", "resource_uid", "resource_name")
# A cached count needs the number of all events, and counting fewer matches than `_MIN_CACHED_COUNT` is as fast as
# counting all events. Reading more than `_MAX_NEW_EVENTS` new events is slow, so the matches are counted again.
_MIN_CACHED_COUNT, _MAX_CACHED_COUNTS, _MAX_NEW_EVENTS = 50_000, 256, 20_000
_NEWEST_FIRST, _OLDEST_FIRST = "ORDER BY created_at DESC, id DESC", "ORDER BY created_at, id"


class EventFilters(NamedTuple):
    """Filters of a list of events; None means no filter.

    `after` (inclusive) and `before` (exclusive) are times in Unix milliseconds. `batch` selects the events of one
    import or bulk action, or of the contacts that one campaign skipped. Without `batch`, `is_grouped` leaves out the
    events of all of them, because a separate event counts them.
    """

    account_id: int
    event: str | None = None
    contact_id: int | None = None
    resource_uid: str | None = None
    resource_name: str | None = None
    test: bool | None = None
    batch: str | None = None
    is_grouped: bool = False
    after: int | None = None
    before: int | None = None


class EventQuerySql(NamedTuple):
    """FROM and WHERE of a query for events, with its named parameters."""

    source: str
    condition: str
    parameters: dict[str, Any]


class _CachedCount(NamedTuple):
    """The number of matches of a query, and the newest id and number of all events at the time of the count."""

    newest_id: int
    event_count: int
    match_count: int


_cached_counts: "OrderedDict[tuple[Any, ...], _CachedCount]" = OrderedDict()
_lock = threading.Lock()


def build_query(filters: EventFilters) -> EventQuerySql:
    """Return the query for the filters; it names an index, because SQLite without statistics often picks a slow one."""
    parts = ["account_id = :account_id"]
    parameters: dict[str, Any] = {"account_id": filters.account_id}
    for name in _EQUALITY_FILTERS:
        value = getattr(filters, name)
        if value is not None:
            parts.append(f"{name} = :{name}")
            parameters[name] = value
    if filters.contact_id is not None:
        # This checks the account of the contact once instead of the account of each event.
        parts[0] = "contact_id = :contact_id AND :account_id = (SELECT account_id FROM contact WHERE id = :contact_id)"
        parameters["contact_id"] = filters.contact_id
    if filters.test is not None:
        parts.append("test" if filters.test else "NOT test")
    if filters.batch is not None:
        parts.append("batch = :batch")
        parameters["batch"] = filters.batch
    elif filters.is_grouped:
        parts.append("batch IS NULL")
    for name, comparison in (("after", "created_at >= :after"), ("before", "created_at < :before")):
        value = getattr(filters, name)
        if value is not None:
            parts.append(comparison)
            parameters[name] = value
    return EventQuerySql(f"event INDEXED BY {_index_for(filters)}", " AND ".join(parts), parameters)


def _index_for(filters: EventFilters) -> str:
    if filters.contact_id is not None:
        return "event_of_contact"
    if filters.resource_uid is not None:
        return "event_resource"
    if filters.resource_name is not None:
        return "event_resource_name"
    if filters.test:
        return "event_tests"
    return "event_listed" if filters.event is None else "event_of_name"


def list_page(filters: EventFilters, number: int, limit: int) -> Page:
    """Return page `number` (from 1) of the matching events, newest first, with their total number.

    A page past the end is empty.
    """
    query = build_query(filters)
    with snapshot():
        total = _count_total(query, filters.contact_id is None)
        ids = _fetch_ids(query, total, (number - 1) * limit, limit)
        by_id = {row.id: row for row in models.Event.select().where(models.Event.id.in_(ids))} if ids else {}
    return Page([by_id[event_id] for event_id in ids], total, number, limit)


def _fetch_ids(query: EventQuerySql, total: int, skip: int, limit: int) -> list[int]:
    """Return the ids of a page, newest first. A page in the second half is read from the old end, which is nearer."""
    remaining = total - skip
    if remaining <= 0:
        return []
    count = min(limit, remaining)
    is_reversed = skip > total // 2
    order, skip = (_OLDEST_FIRST, remaining - count) if is_reversed else (_NEWEST_FIRST, skip)
    ids = [
        row[0]
        for row in rows(
            f"SELECT id FROM {query.source} WHERE {query.condition} {order} LIMIT :count OFFSET :skip",
            {**query.parameters, "count": count, "skip": skip},
        )
    ]
    return ids[::-1] if is_reversed else ids


def _count_total(query: EventQuerySql, is_fixed: bool) -> int:
    """Return the number of matches. A count of at least `_MIN_CACHED_COUNT` is cached; later only new events are added.

    The cached count is valid until an event is deleted, which the number of all events shows; SQLite counts all rows
    without reading them. The filtered columns of an event never change, except its contact, because contacts are merged
    and deleted: `is_fixed` is False for a filter by contact. A write transaction neither reads nor fills the cache,
    because it may be rolled back.
    """
    if not is_fixed or is_in_write_transaction():
        return _count_matches(query)
    key = (connection().filename, query.condition, *query.parameters.items())
    with _lock:
        cached = _cached_counts.get(key)
    if cached is None and (total := _count_matches(query)) < _MIN_CACHED_COUNT:
        return total
    newest_id, event_count = _fetch_newest()
    if cached is not None:
        newer = _count_newer(query, cached, newest_id, event_count)
        total = _count_matches(query) if newer is None else cached.match_count + newer
    with _lock:
        _cached_counts[key] = _CachedCount(newest_id, event_count, total)
        _cached_counts.move_to_end(key)
        while len(_cached_counts) > _MAX_CACHED_COUNTS:
            _cached_counts.popitem(last=False)
    return total


def _fetch_newest() -> tuple[int, int]:
    """Return the id of the newest event and the number of all events."""
    newest_id, event_count = fetch_one("SELECT max(id), (SELECT count(*) FROM event) FROM event") or (None, 0)
    return newest_id or 0, int(event_count)


def _count_newer(query: EventQuerySql, cached: _CachedCount, last: int, event_count: int) -> int | None:
    """Return the number of matches among the events after a cached count, or None if that count is no longer valid.

    The count is no longer valid if an event was deleted, or if the newest id `last` is more than `_MAX_NEW_EVENTS`
    higher than at the time of the count.
    """
    if not cached.newest_id <= last <= cached.newest_id + _MAX_NEW_EVENTS:
        return None
    new_count, new_matches = fetch_one(
        f"SELECT count(*), count(*) FILTER (WHERE {query.condition}) FROM event NOT INDEXED WHERE id > :known",
        {**query.parameters, "known": cached.newest_id},
    ) or (0, 0)
    return int(new_matches) if cached.event_count + new_count == event_count else None


def _count_matches(query: EventQuerySql) -> int:
    return int(scalar(f"SELECT count(*) FROM {query.source} WHERE {query.condition}", query.parameters))


Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class RecordedEvent(Struct):
    """Something that happened to a contact or in the account."""

    id: int
    account_id: int
    contact_id: Annotated[int, Meta(description="the contact of the event; null: none")] | None
    user_id: Annotated[int, Meta(description="always null: events name no user")] | None
    event: Annotated[str, Meta(description="name of the event")]
    amount: Annotated[float, Meta(description="value of the event, such as the total of an order")] | None
    data: Annotated[dict[str, Any], Meta(description="further data, as JSON of at most 32 KiB")]
    idempotency_key: (
        Annotated[str, Meta(description="key that identifies repeated requests with the same event name")] | None
    )
    resource_uid: (
        Annotated[str, Meta(description="your id of the object that the event concerns, such as `order:4711`")] | None
    )
    resource_name: Annotated[str, Meta(description="name of that object")] | None
    resource_url: Annotated[str, Meta(description="URL of that object")] | None
    test: bool
    generated: Annotated[bool, Meta(description="true if the service recorded the event itself")]
    chain_depth: Annotated[
        int,
        Meta(
            description="number of flows before this event, each started by an event of the flow before; at 5 it "
            "starts no flow"
        ),
    ]
    ip: Annotated[str, Meta(description="IP address of the person")] | None
    user_agent: Annotated[str, Meta(description="User-Agent header of the person's program")] | None
    browser: Annotated[str, Meta(description="read from the user agent")] | None
    os: Annotated[str, Meta(description="read from the user agent")] | None
    device_type: Annotated[str, Meta(description="read from the user agent")] | None
    referrer: Annotated[str, Meta(description="URL of the page that the contact came from")] | None
    utm_source: Annotated[str, Meta(description="`utm_source` of the visited URL")] | None
    utm_medium: Annotated[str, Meta(description="`utm_medium` of the visited URL")] | None
    utm_term: Annotated[str, Meta(description="`utm_term` of the visited URL")] | None
    utm_content: Annotated[str, Meta(description="`utm_content` of the visited URL")] | None
    utm_campaign: Annotated[str, Meta(description="`utm_campaign` of the visited URL")] | None
    created_at: Annotated[Moment, Meta(description="when the event happened")]
    updated_at: Annotated[
        Moment,
        Meta(description="when the event was recorded, or its data was last corrected, such as the verdict on a click"),
    ]


_COLUMNS = tuple(name for name in RecordedEvent.__struct_fields__ if not name.endswith("_at"))


def shape_event(row: models.Event) -> RecordedEvent:
    """Return a row of the table `event` as the API and webhooks show it."""
    moments: dict[str, Any] = {"created_at": str(iso(row.created_at)), "updated_at": str(iso(row.updated_at))}
    return RecordedEvent(**{name: getattr(row, name) for name in _COLUMNS}, **moments)


_SELECT_EVENT = f"SELECT {', '.join(RecordedEvent.__struct_fields__)} FROM event WHERE id = ?"


def fetch_event(event_id: int) -> RecordedEvent | None:
    """Return an event by id of any account, or None.

    This takes a tenth of the time of `shape_event` with a Peewee row, for callers that need thousands of events.
    """
    row = fetch_one(_SELECT_EVENT, (event_id,))
    if row is None:
        return None
    values: dict[str, Any] = dict(zip(RecordedEvent.__struct_fields__, row, strict=True))
    values["data"] = json.decode(values["data"])
    for name in ("test", "generated"):
        values[name] = bool(values[name])
    for name in ("created_at", "updated_at"):
        values[name] = iso(values[name])
    return RecordedEvent(**values)
