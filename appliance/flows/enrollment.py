"""Who enters a flow: events behind the cursor are held against the triggers and goals of flows.

The cursor moves in the transaction of what its events mean, so that none is lost and none counts twice, whenever the
process ends. Events have ascending ids in the order of their commits, for there is one writer.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.contacts import lists
from appliance.audience.segments import people as members
from appliance.audience.segments import store as segments
from appliance.core import clock
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import Id
from appliance.flows import people, run_ends, starting, triggers
from appliance.flows.starting import FREQUENCY, INSIDE, Arrival, Open
from appliance.flows.triggers import MANUAL, Start
from appliance.storage import work
from appliance.storage.disk_guard import storage_error
from appliance.storage.open import connection, fetch_one, rows, run, scalar
from appliance.storage.work import writing

log = logging.getLogger("campanero.flows")

NAME = "flows"
_BITE = 1_000
# Acts of one transaction, which shall take no longer than 20 ms
_CHUNK = 100
# And of the data of their events, which each run keeps
_CHUNK_BYTES = 500_000
# Where nothing meant anything the cursor may lie behind for a moment, rather than be written at every commit
_LAG, _LAG_SECONDS = 1_000, 1.0
_written = 0.0


class _Seen(NamedTuple):
    """An event that may mean something."""

    id: int
    account_id: int
    contact_id: int
    event: str
    chain_depth: int
    test: bool
    recorded_at: int
    quiet: bool  # it starts nothing; goals are reached by what was told late too
    happened_at: int
    size: int  # of its data, in bytes


class _Live(NamedTuple):
    """An active flow with its trigger."""

    account_id: int
    flow_id: int
    live_from: int
    start: Start


class _Goal(NamedTuple):
    account_id: int
    flow_id: int
    event: str


class _Act(NamedTuple):
    """What an event means for one flow: its goal is reached (before anything starts), or somebody comes in."""

    event: _Seen
    flow_id: int
    is_start: bool


def position() -> int:
    """Return the last event that was looked at."""
    return int(scalar("SELECT event_id FROM cursor WHERE name = ?", (NAME,)) or 0)


def is_due() -> bool:
    """Return whether there are events that nobody has looked at."""
    return int(scalar("SELECT max(id) FROM event") or 0) > position()


def take_in() -> bool:
    """Read a bite of events behind the cursor, and start, ignore or end the runs they mean; says if there were any."""
    # No event above the newest is looked at, whatever comes meanwhile: the cursor is moved to there
    began, newest = position(), int(scalar("SELECT max(id) FROM event") or 0)
    if newest <= began:
        return False
    flows, goals = _live(), _goals()
    names = {flow.start.event for flow in flows} | {goal.event for goal in goals}
    found = _behind(began, newest, names, {goal.event for goal in goals}) if names else []
    upto = found[-1].id if len(found) == _BITE else newest
    acts = sorted(_acts(found, flows, goals), key=lambda act: (act.event.id, act.is_start, act.flow_id))
    if not acts and upto == newest and upto - began < _LAG and clock.steady() - _written < _LAG_SECONDS:
        return False
    for chunk, last in _chunks(acts, upto):
        if not work.write(_apply, began, last, chunk):
            return True  # somebody else was here: begin again where they stopped
        began = last
    _note()
    return upto < newest or bool(acts)


def _note() -> None:
    global _written
    _written = clock.steady()


def _live() -> list[_Live]:
    return [
        _Live(row[0], row[1], row[2], Start(row[3], row[4], row[5], msgspec.json.decode(row[6])))
        for row in rows(
            "SELECT f.account_id, f.id, f.live_from, t.event, t.segment_id, t.contact_list_id, t.data "
            f"FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id "
            f"WHERE f.status = 'active' AND f.hidden = 0 AND f.deleted_at IS NULL AND t.event <> '{MANUAL}'"
        )
    ]


def _goals() -> list[_Goal]:
    """Return what ends the runs of flows; of a paused one too, whose people would be told of it again afterwards."""
    return [
        _Goal(*row)
        for row in rows(
            "SELECT f.account_id, f.id, f.goal FROM flow f WHERE f.goal IS NOT NULL AND f.hidden = 0 "
            "AND f.deleted_at IS NULL AND (f.status = 'active' "
            "OR EXISTS (SELECT 1 FROM run r WHERE r.flow_id = f.id AND r.status = 'live'))"
        )
    ]


def _behind(began: int, newest: int, names: set[str], goals: Collection[str] = ()) -> list[_Seen]:
    return [
        _Seen(*row)
        for row in rows(
            "SELECT e.id, e.account_id, e.contact_id, e.event, e.chain_depth, e.test, e.updated_at, e.quiet, "
            "e.created_at, octet_length(e.data) FROM event e WHERE e.id > ? AND e.id <= ? "
            f"AND +e.contact_id IS NOT NULL AND +e.event IN (SELECT value FROM json_each(?)) "
            f"AND (e.quiet = 0 OR +e.event IN (SELECT value FROM json_each(?))) "
            f"AND {starting.MACHINE.format('e')} IS NOT TRUE ORDER BY e.id LIMIT ?",
            (began, newest, json.dumps(sorted(names)), json.dumps(sorted(goals)), _BITE),
        )
    ]


def _acts(found: Sequence[_Seen], flows: Sequence[_Live], goals: Sequence[_Goal]) -> Iterator[_Act]:
    by_name: dict[tuple[int, str], list[_Seen]] = {}
    for event in found:
        by_name.setdefault((event.account_id, event.event), []).append(event)
    for goal in goals:
        for event in by_name.get((goal.account_id, goal.event), ()):
            yield _Act(event, goal.flow_id, False)
    for flow in flows:
        asked = {
            event.id: event
            for event in by_name.get((flow.account_id, flow.start.event), ())
            if event.id > flow.live_from and not event.quiet
        }
        if asked:
            for event_id in starting.met(flow.account_id, flow.flow_id, flow.start, list(asked)):
                yield _Act(asked[event_id], flow.flow_id, True)


def _chunks(acts: Sequence[_Act], upto: int) -> Iterator[tuple[list[_Act], int]]:
    """Return acts in parts, each with the event that the cursor stands at after it; an event is never split."""
    chunk: list[_Act] = []
    size = 0
    for _, group in groupby(acts, key=lambda act: act.event.id):
        more = list(group)
        kept = sum(act.event.size for act in more if act.is_start)
        if chunk and (len(chunk) + len(more) > _CHUNK or size + kept > _CHUNK_BYTES):
            yield chunk, chunk[-1].event.id
            chunk, size = [], 0
        chunk, size = chunk + more, size + kept
    yield chunk, upto


def _apply(began: int, last: int, acts: Sequence[_Act]) -> bool:
    """Do what events mean and move the cursor behind them; says no if it does not stand where it stood."""
    writing()
    if position() != began:
        return False
    if began == 0:
        run("INSERT INTO cursor (name, event_id) VALUES (?, 0) ON CONFLICT DO NOTHING", (NAME,))
    run("UPDATE cursor SET event_id = ? WHERE name = ?", (last, NAME))
    # Flows do not meet each other here: each in the order of its own events
    for flow_id, group in groupby(sorted(_whose(acts), key=lambda act: act.flow_id), key=lambda act: act.flow_id):
        for is_start, some in groupby(group, key=lambda act: act.is_start):
            _safely(_start if is_start else _reach, flow_id, [act.event for act in some])
    return True


def _whose(acts: Sequence[_Act]) -> list[_Act]:
    """Return acts for whom their events belong to now: since they were read a person may be another's, or be gone."""
    asked = json.dumps([act.event.id for act in acts])
    now = dict(rows("SELECT id, contact_id FROM event WHERE id IN (SELECT value FROM json_each(?))", (asked,)))
    found = ((act, now.get(act.event.id)) for act in acts)
    return [act._replace(event=act.event._replace(contact_id=one)) for act, one in found if one is not None]


def _safely(verb: Callable[[int, Sequence[_Seen]], None], flow_id: int, events: Sequence[_Seen]) -> None:
    """Do what events mean for one flow; one that cannot take them keeps no other from theirs."""
    here = connection()
    here.execute("SAVEPOINT door")
    try:
        verb(flow_id, events)
    except Exception as error:
        if storage_error(error) is not None:
            raise
        here.execute("ROLLBACK TO door")
        log.exception("flow %s cannot take in what %s events mean", flow_id, len(events))
    here.execute("RELEASE door")


def still_open(flow_id: int) -> Open | None:
    """Return a flow that takes people in at this moment, or None."""
    found = fetch_one(
        "SELECT f.account_id, f.name, f.version, f.test, t.event, t.segment_id, t.contact_list_id, t.data FROM flow f "
        "JOIN trigger t ON t.flow_id = f.id WHERE f.id = ? AND f.status = 'active' AND f.hidden = 0 "
        "AND f.deleted_at IS NULL",
        (flow_id,),
    )
    if found is None:
        return None
    account_id, name, version, test, event, segment_id, list_id, data = found
    start = Start(event, segment_id, list_id, msgspec.json.decode(data))
    return Open(account_id, flow_id, name, version, triggers.frequency(start), bool(test))


def _start(flow_id: int, events: Sequence[_Seen]) -> None:
    flow = still_open(flow_id)
    if flow is not None:
        # It may have begun anew, by another trigger even, since these were held against it
        since = int(scalar("SELECT live_from FROM flow WHERE id = ?", (flow_id,)))
        came = [event for event in events if event.id > since]
        starting.start(
            flow, [Arrival(event.contact_id, event.id, event.chain_depth, bool(event.test)) for event in came]
        )


def _reach(flow_id: int, events: Sequence[_Seen]) -> None:
    """End the runs that began before their goal: with an earlier event, or, of those enrolled, at an earlier moment.

    What was told late ends those that it came after.
    """
    wanted: list[tuple[Any, ...]] = [
        (
            event.id,
            event.contact_id,
            bool(event.test),
            event.recorded_at,
            event.happened_at if event.quiet else None,
            event.event,
        )
        for event in events
    ]
    reached = rows(
        "SELECT r.id, f.goal FROM json_each(?) one CROSS JOIN run r ON r.contact_id = one.value ->> 1 "
        "AND r.flow_id = ? AND r.status = 'live' AND r.test = one.value ->> 2 "
        "AND CASE WHEN r.event_id IS NULL THEN r.created_at <= one.value ->> 3 "
        "ELSE r.event_id < one.value ->> 0 END AND r.created_at <= coalesce(one.value ->> 4, "
        "r.created_at) CROSS JOIN flow f ON f.id = r.flow_id AND f.goal = one.value ->> 5",
        (json.dumps(wanted), flow_id),
    )
    if reached:
        ids, now = sorted({row[0] for row in reached}), clock.now_ms()
        # Who has bought is not asked to buy by a letter that waited for the end of the quiet hours
        run_ends.take_back(ids, now, but_service=True)
        run_ends.reach(ids, reached[0][1], now)


# Lets people into a flow by hand, for those who were there before anything could bring them.

# People of one transaction: it shall take no longer than 20 ms
CHUNK = 100


class EnrollWrite(Struct):
    """Who is let in: people by their ids, or whoever is in a segment now."""

    contact_ids: Annotated[list[Id], Meta(max_length=10_000)] | None | UnsetType = UNSET
    segment_id: Id | None | UnsetType = UNSET
    confirm_send_to_all: bool | UnsetType = UNSET


class Enrolled(Struct):
    """How many were let in, and how many were not because they are inside, or were there and may not come again."""

    enrolled: int = 0
    already_inside: int = 0
    frequency: int = 0


def who(account_id: int, flow_id: int, request: EnrollWrite) -> list[int]:
    """Return whom a request names, in the order of their ids; raises NotFound, or Invalid with all faults.

    What the trigger asks of an event, a list or a segment is not asked here: a person chose these people.
    """
    check(account_id, request, flow_id)
    if isinstance(request.segment_id, int):
        return _of_segment(account_id, request.segment_id, request.confirm_send_to_all is True)
    return sorted(set(request.contact_ids or []))


def check(account_id: int, request: EnrollWrite, flow_id: int) -> None:
    """Raise Invalid with all that is wrong with a request, beyond its types; raises NotFound."""
    flow = people.flow_of(account_id, flow_id)
    faults = Faults()
    if flow.status != "active":
        faults.add("base", "is not active")
    chosen = request.contact_ids if isinstance(request.contact_ids, list) else None
    segment = request.segment_id if isinstance(request.segment_id, int) else None
    if chosen is None and segment is None:
        faults.add("contact_ids", "can't be blank")
    if chosen is not None and segment is not None:
        faults.add("base", "takes either contacts or a segment")
    if chosen is not None and lists.unknown(account_id, chosen):
        faults.add("contact_ids", "must exist")
    if segment is not None and not rows(
        "SELECT 1 FROM segment WHERE account_id = ? AND id = ?", (account_id, segment)
    ):  # fmt: skip
        faults.add("segment_id", "must exist")
    faults.check()


def _of_segment(account_id: int, segment_id: int, confirmed: bool) -> list[int]:
    filters = segments.get(account_id, segment_id).filters
    if not filters and not confirmed:
        words = "confirm that everybody enters"
        blocker = {"code": "confirmation_required", "message": words, "field": "confirm_send_to_all"}
        raise Invalid({"confirm_send_to_all": [words]}, reason="confirmation_required", blockers=[blocker])
    here = members.scope(account_id)
    chosen = members.select(account_id, members.nodes(account_id, filters), here)
    with members.limited():
        return [row[0] for row in rows(f"SELECT c.id {chosen.sql} ORDER BY c.id", chosen.parameters)]


def let_in(flow_id: int, contact_ids: Sequence[int], test: bool) -> Enrolled | None:
    """Start runs for some people; None if the flow takes nobody in any more."""
    writing()
    flow = still_open(flow_id)
    if flow is None:
        return None
    done = starting.start(flow, [Arrival(contact_id, test=test or flow.test) for contact_id in contact_ids])
    return Enrolled(done.number, done.ignored.get(INSIDE, 0), done.ignored.get(FREQUENCY, 0))
