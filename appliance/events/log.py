"""Records what happened and lists it; whoever wants to act on events reads the table and is woken by the bell."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from appliance.core import client_ip, clock, wake_ups
from appliance.core.errors import Invalid, NotFound
from appliance.core.fields import ContactId, DayOrWhen, PageQuery, Short
from appliance.core.pagination import Page
from appliance.events import agents, listing
from appliance.events.listing import Asked
from appliance.storage.models import Account, Event
from appliance.storage.open import connection, rows, run, scalar
from appliance.storage.work import after_commit, writing

_INSERT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, resource_url, test, "
    "generated, quiet, chain_depth, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"
)
# From name to name, for reading all events of a name only to come to the next takes longer than to count those meant
_COUNTS = (
    "WITH RECURSIVE names (name) AS (SELECT min(event) FROM event WHERE account_id = :account UNION ALL "
    "SELECT (SELECT min(event) FROM event WHERE account_id = :account AND event > name) FROM names "
    "WHERE name IS NOT NULL) SELECT name, (SELECT count(*) FROM event INDEXED BY event_of_name "
    "WHERE account_id = :account AND event = name AND created_at >= :since) AS number FROM names "
    "WHERE name IS NOT NULL AND number"
)
_FILTERS = ("event", "contact_id", "resource_uid", "resource_name", "test")


class Happened(msgspec.Struct):
    """An event the service itself writes."""

    account_id: int
    event: str
    contact_id: int | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    resource_uid: str | None = None
    resource_name: str | None = None
    resource_url: str | None = None
    test: bool = False
    chain_depth: int = 0
    quiet: bool = False  # recorded only: it starts no flow


class EventQuery(PageQuery):
    """Filters of the event list; times are inclusive after, exclusive before."""

    event: Short | UnsetType = UNSET
    contact_id: ContactId | UnsetType = UNSET
    created_after: DayOrWhen | UnsetType = UNSET
    created_before: DayOrWhen | UnsetType = UNSET
    resource_uid: Short | UnsetType = UNSET
    resource_name: Short | UnsetType = UNSET
    test: bool | UnsetType = UNSET


class _Chain(threading.local):
    """How deep in a chain of flows what this thread writes stands, and whether all of it is a test."""

    depth: int = 0
    test: bool = False


_chain = _Chain()


@contextmanager
def chained(depth: int, test: bool = False) -> Iterator[None]:
    """Let all that is recorded inside stand at a depth: what a step of a flow does (docs/decisions.md#12).

    What the run of a `test` does is a test too, or it would start what is real.
    """
    before = _chain.depth, _chain.test
    _chain.depth, _chain.test = depth, test
    try:
        yield
    finally:
        _chain.depth, _chain.test = before


def record(happened: Happened) -> None:
    """Write one event of the service itself, in the running transaction."""
    record_many([happened])


def record_many(all_happened: list[Happened]) -> None:
    """Write many events of the service itself in one go."""
    writing()
    if not all_happened:
        return
    now = clock.now_ms()
    encode = msgspec.json.encode
    connection().executemany(
        _INSERT,
        [
            (
                happened.account_id, happened.contact_id, happened.event, encode(happened.data).decode(),
                happened.resource_uid, happened.resource_name, happened.resource_url,
                happened.test or _chain.test, happened.quiet, max(happened.chain_depth, _chain.depth), now, now,
            )
            for happened in all_happened
        ],
    )  # fmt: skip
    after_commit(lambda: wake_ups.ring("flows"))


def record_seen(happened: Happened, ip: str | None, agent: str | None) -> None:
    """Write an event that somebody caused themselves, with where they were and what with.

    Reading an agent for the first time takes a while: let `agents.device` look at it before.
    """
    record(happened)
    how = str(scalar("SELECT privacy_ip FROM account WHERE id = ?", (happened.account_id,)))
    run(
        "UPDATE event SET ip = ?, user_agent = ?, browser = ?, os = ?, device_type = ? WHERE id = ?",
        (client_ip.kept(ip, how), agent, *agents.device(agent), connection().last_insert_rowid()),
    )


def page(account_id: int, query: EventQuery) -> Page:
    """List events, newest first."""
    return listing.page(asked(account_id, query), query.page, query.size())


def asked(account_id: int, query: Any) -> Asked:
    """Read the filters of a list, or of an export, of events; raises Invalid."""
    zone = Account.get_by_id(account_id).time_zone
    after, before = moments(query.created_after, query.created_before, zone)
    given = {name: getattr(query, name) for name in _FILTERS}
    return Asked(
        account_id, after=after, before=before, **{name: one for name, one in given.items() if one is not UNSET}
    )


def get(account_id: int, event_id: int) -> Event:
    """Return one event; raises NotFound."""
    event = Event.get_or_none(Event.account == account_id, Event.id == event_id)
    if event is None:
        raise NotFound
    return event


def counts(account_id: int, since: int) -> dict[str, int]:
    """Count events by name since a moment (ms)."""
    return dict(rows(_COUNTS, {"account": account_id, "since": since}))


def moments(after: str | UnsetType, before: str | UnsetType, zone: str) -> tuple[int | None, int | None]:
    """Read the two time filters of a list; a bare date is midnight in the account's time zone; raises Invalid."""
    found: list[int | None] = []
    faults: dict[str, list[str]] = {}
    for name, text in (("created_after", after), ("created_before", before)):
        try:
            found.append(None if text is UNSET else clock.parse_or_day(str(text), zone))
        except (ValueError, OverflowError):
            faults[name] = ["is invalid"]
            found.append(None)
    if faults:
        raise Invalid(faults)
    return found[0], found[1]
