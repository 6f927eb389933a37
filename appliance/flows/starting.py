"""Starts runs, in the transaction of whatever lets people in; what a flow does not take twice is kept as ignored."""

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from appliance.audience.filters import compile, read
from appliance.audience.filters.fields import fold
from appliance.audience.filters.scope import Binder, Compiled
from appliance.audience.segments import people
from appliance.core import clock, wake_ups
from appliance.events import log as events_log
from appliance.events.log import Happened
from appliance.flows import triggers
from appliance.flows.triggers import DATE, EVENT, LIST_EVENTS, MANUAL, SEGMENT_EVENTS, TAG_EVENTS, Start
from appliance.storage.disk_guard import storage_error
from appliance.storage.open import connection, rows, run, scalar
from appliance.storage.work import after_commit, writing

# At this depth of a chain an event is recorded but starts nothing
MAX_CHAIN_DEPTH = 5
INSIDE, FREQUENCY, DEPTH = "already_inside", "frequency", "depth"

# Not by the plans that are kept: this version may not be committed yet
_FIRST = "SELECT action_id FROM step WHERE flow_id = ? AND version = ? ORDER BY position LIMIT 1"
_RUN = (
    "INSERT INTO run (account_id, flow_id, version, contact_id, event_id, event_data, status, exit_reason, action_id, "
    "due_at, chain_depth, test, ended_at, created_at, updated_at) "
    "SELECT ?1, ?2, ?3, c.id, ?5, coalesce((SELECT data FROM event WHERE id = ?5), '{}'), 'live', NULL, ?8, ?9, ?6, "
    "?7, NULL, ?9, ?9 FROM contact c WHERE c.id = ?4 AND c.account_id = ?1 "
    "RETURNING id, contact_id, chain_depth, test"
)
_IGNORED = (
    "INSERT INTO run (account_id, flow_id, version, contact_id, event_id, event_data, status, exit_reason, "
    "chain_depth, test, ended_at, created_at, updated_at) "
    "SELECT ?1, ?2, ?3, c.id, ?5, '{}', 'ignored', ?8, ?6, ?7, ?9, ?9, ?9 "
    "FROM contact c WHERE c.id = ?4 AND c.account_id = ?1"
)


class Open(NamedTuple):
    """An active flow that takes people in."""

    account_id: int
    flow_id: int
    name: str
    version: int
    frequency: str | int
    test: bool = False  # it went live with a test key, so that it takes in nobody but tests


class Arrival(NamedTuple):
    """Somebody at the door of a flow, and the event that brought them; none if they are enrolled."""

    contact_id: int
    event_id: int | None = None
    depth: int = 0
    test: bool = False


class Started(NamedTuple):
    """What became of those who came: how many began, and how many were ignored for which reason."""

    number: int
    ignored: dict[str, int]


def start(flow: Open, arrivals: Sequence[Arrival]) -> Started:
    """Start a run for everybody who came, in their order, unless they are inside, were there, or come from too deep.

    One live run for each person and flow; a test stands beside what is real, and is not limited by how often.
    """
    writing()
    now = clock.now_ms()
    arrivals = [one for one in arrivals if one.test or not flow.test]
    taken, refused = _sorted(flow, arrivals, now)
    first = scalar(_FIRST, (flow.flow_id, flow.version)) if taken else None
    common = (flow.account_id, flow.flow_id, flow.version)
    here = connection()
    began = here.executemany(
        _RUN, [(*common, one.contact_id, one.event_id, one.depth, one.test, first, now) for one in taken]
    ).fetchall()
    here.executemany(
        _IGNORED,
        [(*common, one.contact_id, one.event_id, one.depth, one.test, reason, now) for one, reason in refused
         if one.event_id is not None],
    ).fetchall()  # fmt: skip
    if began:
        _tell(flow, began, now)
    ignored: dict[str, int] = {}
    for _, reason in refused:
        ignored[reason] = ignored.get(reason, 0) + 1
    return Started(len(began), ignored)


def _sorted(flow: Open, arrivals: Sequence[Arrival], now: int) -> tuple[list[Arrival], list[tuple[Arrival, str]]]:
    """Return who starts, and who does not and why; each of them stands in the way of those who come after."""
    people = json.dumps(sorted({one.contact_id for one in arrivals}))
    inside = {
        (row[0], bool(row[1]))
        for row in rows(
            "SELECT contact_id, test FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) "
            "AND flow_id = ? AND status = 'live'",
            (people, flow.flow_id),
        )
    }
    last: dict[int, int] = {}
    if flow.frequency != "every_time":
        last = dict(
            rows(
                "SELECT contact_id, max(created_at) FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) "
                "AND flow_id = ? AND status IN ('live', 'completed', 'exited') AND test = 0 GROUP BY contact_id",
                (people, flow.flow_id),
            )
        )
    taken: list[Arrival] = []
    refused: list[tuple[Arrival, str]] = []
    for one in arrivals:
        reason = _reason(flow.frequency, one, (one.contact_id, one.test) in inside, last.get(one.contact_id), now)
        if reason is not None:
            refused.append((one, reason))
            continue
        taken.append(one)
        inside.add((one.contact_id, one.test))
        if not one.test:
            last[one.contact_id] = now
    return taken, refused


def _reason(frequency: str | int, one: Arrival, is_inside: bool, last: int | None, now: int) -> str | None:
    if one.depth >= MAX_CHAIN_DEPTH:
        return DEPTH
    if is_inside:
        return INSIDE
    if one.test or last is None or frequency == "every_time":
        return None
    if frequency == "once" or now - last < int(frequency) * 1000:
        return FREQUENCY
    return None


def _tell(flow: Open, began: Sequence[tuple[int, int, int, int]], now: int) -> None:
    real = sum(1 for row in began if not row[3])
    run("UPDATE flow SET entered_count = entered_count + ? WHERE id = ?", (real, flow.flow_id))
    run(
        "UPDATE trigger SET triggered_count = triggered_count + ?, last_triggered_at = ? WHERE flow_id = ?",
        (real, now, flow.flow_id),
    )
    events_log.record_many(
        [
            Happened(
                flow.account_id, "flow_enter", contact_id, {"flow_id": flow.flow_id, "run_id": run_id},
                resource_uid=f"flow:{flow.flow_id}", resource_name=flow.name, test=bool(test), chain_depth=depth + 1,
            )
            for run_id, contact_id, depth, test in began
        ]
    )  # fmt: skip
    after_commit(lambda: wake_ups.ring("flows"))


# Which events meet a trigger: one condition over the event (`happened`) and its contact (`c`), for one or for many.

log = logging.getLogger("campanero.flows")

# What programs did that open and click by themselves is nobody's act
MACHINE = (
    "({0}.generated = 1 AND json_extract({0}.data, '$.verdict') = 'machine' "
    "AND substr({0}.event, 1, 4) IN ('emai', 'sms_'))"
)
_ENDS = "' .,;:!?\"'''"
_SAID = (
    f"folded(coalesce(json_extract({EVENT + '.data'}, '$.keyword'), json_extract({EVENT + '.data'}, '$.text'), "
    f"json_extract({EVENT + '.data'}, '$.body'), ''))"
)
_WORD = f"trim({_SAID}, {_ENDS})"


def condition(account_id: int, flow_id: int, start: Start, prefix: str = "t") -> Compiled:
    """Compile whether an event and its contact meet a trigger; raises Invalid if its filters can be read no more."""
    if start.event == MANUAL or triggers.lacks(start):
        return Compiled("0", {})
    here = triggers.scope(account_id)
    binder = Binder(f"{prefix}_", here)
    parts = [
        f"{EVENT}.account_id = {binder.add(account_id)} AND {EVENT}.event = {binder.add(start.event)}",
        f"{MACHINE.format(EVENT)} IS NOT TRUE",
        _own(flow_id, start, binder),
        *_members(start, binder),
        *_words(start, binder),
    ]
    values = binder.values
    if start.segment_id is not None and start.event != "segment_exit":
        held = people.of_segment(account_id, start.segment_id, f"{prefix}s")
        parts.append(f"({held.sql})")
        values = values | held.parameters
    asked = compile.condition(read.filters(start.data.get("where") or [], here), here, f"{prefix}w")
    return Compiled(" AND ".join([*parts, f"({asked.sql})"]), values | asked.parameters)


def _said(key: str) -> str:
    return f"json_extract({EVENT}.data, '$.{key}')"


def _own(flow_id: int, start: Start, binder: Binder) -> str:
    """Keep a flow from being started by its own messages and runs; dates are found for one flow each."""
    own = f"({EVENT}.generated = 1 AND {_said('flow_id')} = {binder.add(flow_id)})"
    return own if start.event == DATE else f"{own} IS NOT TRUE"


def _members(start: Start, binder: Binder) -> list[str]:
    """Return the conditions on the list and the segment that an event names, or on who is in the list."""
    parts = []
    if start.contact_list_id is not None:
        wanted = binder.add(start.contact_list_id)
        if start.event in LIST_EVENTS:
            parts.append(f"{_said('contact_list_id')} = {wanted}")
        else:
            parts.append(
                f"EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = {wanted} AND m.contact_id = c.id)"
            )
    if start.event in SEGMENT_EVENTS:
        parts.append(f"{_said('segment_id')} = {binder.add(start.segment_id)}")
    return parts


def _words(start: Start, binder: Binder) -> list[str]:
    """Return the conditions on a tag and on keywords: the whole message, or the word it begins with."""
    parts = []
    tag = start.data.get("tag")
    if tag:
        wanted = binder.add(fold(tag))
        if start.event in TAG_EVENTS:
            parts.append(f"folded({_said('tag')}) = {wanted}")
        else:
            parts.append(
                f"(json_type(c.data, '$.tags') = 'array' AND EXISTS (SELECT 1 FROM json_each(c.data, '$.tags') own "
                f"WHERE own.type = 'text' AND folded(own.value) = {wanted}))"
            )
    if start.data.get("keywords"):
        wanted = binder.add(json.dumps([fold(word).strip(" .,;:!?\"'") for word in start.data["keywords"]]))
        space = f"instr({_WORD} || ' ', ' ')"
        first = f"trim(substr({_WORD}, 1, {space} - 1), {_ENDS})"
        parts.append(f"EXISTS (SELECT 1 FROM json_each({wanted}) k WHERE k.value IN ({_WORD}, {first}))")
    return parts


def met(account_id: int, flow_id: int, start: Start, event_ids: Sequence[int]) -> list[int]:
    """Return which of some events meet a trigger.

    A trigger that can be asked no more starts nothing, and keeps no other from being asked.
    """
    try:
        asked = condition(account_id, flow_id, start)
        found = rows(
            f"SELECT {EVENT}.id FROM json_each(:events) one CROSS JOIN event {EVENT} ON {EVENT}.id = one.value "
            f"CROSS JOIN contact c ON c.id = {EVENT}.contact_id WHERE {asked.sql} ORDER BY {EVENT}.id",
            {**asked.parameters, "events": json.dumps(list(event_ids))},
        )
    except Exception as error:
        if storage_error(error) is not None:
            raise
        log.exception("the trigger of flow %s cannot be asked, so it starts nobody", flow_id)
        return []
    return [row[0] for row in found]
