"""Finds events in the order of their list, and counts them, by the one index that fits what is asked."""

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from appliance.core.pagination import Page
from appliance.storage.models import Event
from appliance.storage.open import connection, fetch_one, rows, scalar
from appliance.storage.work import is_writing, snapshot

_EQUAL = ("event", "resource_uid", "resource_name")
# Fewer are counted as quickly as all are, and so many new ones are no longer quick to look at
_WORTH_KEEPING, _MAX_KEPT, _MAX_NEW = 50_000, 256, 20_000
_NEWEST_FIRST, _OLDEST_FIRST = "ORDER BY created_at DESC, id DESC", "ORDER BY created_at, id"


class Asked(NamedTuple):
    """Filters of a list of events; None where none is given. Moments are inclusive after, exclusive before."""

    account_id: int
    event: str | None = None
    contact_id: int | None = None
    resource_uid: str | None = None
    resource_name: str | None = None
    test: bool | None = None
    after: int | None = None
    before: int | None = None


class Way(NamedTuple):
    """How events are found: FROM and WHERE with its parameters, all of them named."""

    source: str
    where: str
    parameters: dict[str, Any]


class _Count(NamedTuple):
    """How many fitted, of how many events in all, when the newest was this."""

    last: int
    all: int
    fitting: int


_counts: "OrderedDict[tuple[Any, ...], _Count]" = OrderedDict()
_lock = threading.Lock()


def way(asked: Asked) -> Way:
    """Return how to find what is asked; without statistics SQLite often begins with the wrong filter."""
    parts = ["account_id = :account_id"]
    parameters: dict[str, Any] = {"account_id": asked.account_id}
    for name in _EQUAL:
        value = getattr(asked, name)
        if value is not None:
            parts.append(f"{name} = :{name}")
            parameters[name] = value
    if asked.contact_id is not None:
        # Whose contact that is, is asked once and not of each event
        parts[0] = "contact_id = :contact_id AND :account_id = (SELECT account_id FROM contact WHERE id = :contact_id)"
        parameters["contact_id"] = asked.contact_id
    if asked.test is not None:
        parts.append("test" if asked.test else "NOT test")
    for name, comparison in (("after", "created_at >= :after"), ("before", "created_at < :before")):
        value = getattr(asked, name)
        if value is not None:
            parts.append(comparison)
            parameters[name] = value
    return Way(f"event INDEXED BY {_index(asked)}", " AND ".join(parts), parameters)


def _index(asked: Asked) -> str:
    if asked.contact_id is not None:
        return "event_of_contact"
    if asked.resource_uid is not None:
        return "event_resource"
    if asked.resource_name is not None:
        return "event_named"
    if asked.test:
        return "event_tests"
    return "event_listed" if asked.event is None else "event_of_name"


def page(asked: Asked, number: int, limit: int) -> Page:
    """Return a page, newest first, and how many there are in all; past the end it is empty."""
    found = way(asked)
    with snapshot():
        total = _total(found, asked.contact_id is None)
        ids = _ids(found, total, (number - 1) * limit, limit)
        by_id = {row.id: row for row in Event.select().where(Event.id.in_(ids))} if ids else {}
    return Page([by_id[one_id] for one_id in ids], total, number, limit)


def _ids(found: Way, total: int, skip: int, limit: int) -> list[int]:
    """Return the ids of a page; what is beyond the middle is found from the other end, which is nearer."""
    left = total - skip
    if left <= 0:
        return []
    count = min(limit, left)
    turned = skip > total // 2
    order, skip = (_OLDEST_FIRST, left - count) if turned else (_NEWEST_FIRST, skip)
    ids = [
        row[0]
        for row in rows(
            f"SELECT id FROM {found.source} WHERE {found.where} {order} LIMIT :count OFFSET :skip",
            {**found.parameters, "count": count, "skip": skip},
        )
    ]
    return ids[::-1] if turned else ids


def _total(found: Way, is_fixed: bool) -> int:
    """Count what fits; where that is much, new events are added to what was counted before.

    That may be done as long as none has gone since, which the number of all tells: SQLite counts them from its pages
    alone. What is asked for never changes in an event that stands, but whose it is (`is_fixed`), for people are merged
    and deleted. What is being written may yet be taken back.
    """
    if not is_fixed or is_writing():
        return _counted(found)
    key = (connection().filename, found.where, *found.parameters.items())
    with _lock:
        known = _counts.get(key)
    if known is None and (total := _counted(found)) < _WORTH_KEEPING:
        return total
    last, in_all = _newest()
    if known is not None:
        newer = _newer(found, known, last, in_all)
        total = _counted(found) if newer is None else known.fitting + newer
    with _lock:
        _counts[key] = _Count(last, in_all, total)
        _counts.move_to_end(key)
        while len(_counts) > _MAX_KEPT:
            _counts.popitem(last=False)
    return total


def _newest() -> tuple[int, int]:
    """Return the id of the newest event, and how many there are."""
    last, in_all = fetch_one("SELECT max(id), (SELECT count(*) FROM event) FROM event") or (None, 0)
    return last or 0, int(in_all)


def _newer(found: Way, known: _Count, last: int, in_all: int) -> int | None:
    """Count what fits of the events since then; None if that cannot be added."""
    if not known.last <= last <= known.last + _MAX_NEW:
        return None
    new, fitting = fetch_one(
        f"SELECT count(*), count(*) FILTER (WHERE {found.where}) FROM event NOT INDEXED WHERE id > :known",
        {**found.parameters, "known": known.last},
    ) or (0, 0)
    return int(fitting) if known.all + new == in_all else None


def _counted(found: Way) -> int:
    return int(scalar(f"SELECT count(*) FROM {found.source} WHERE {found.where}", found.parameters))
