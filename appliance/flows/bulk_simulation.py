"""Rehearses a flow with everybody who met its trigger of late: how many would come to each step, and which way they go.

All of them enter at one moment, each with the event that they met it by. Above a bound some of them are drawn, and the
answer says so.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.core import clock
from appliance.core.errors import Faults, Refused, TooMany
from appliance.core.fields import When
from appliance.flows import (
    document,
    enrollment,
    run,
    simulated_entry,
    simulated_events,
    simulated_sends,
    starting,
    store,
    timeline,
    triggers,
)
from appliance.flows.rehearsal import Stage
from appliance.flows.requests import Steps
from appliance.flows.simulate import DAY_MS, asked_steps, opened, stopped
from appliance.flows.simulated_events import Assumed, Cast, Impossible
from appliance.flows.starting import Arrival, Open
from appliance.flows.steps import BY_TYPE
from appliance.flows.triggers import EVENT, MANUAL, Start
from appliance.storage import work
from appliance.storage.models import Flow, Trigger
from appliance.storage.open import fetch_one, rows
from appliance.storage.sandbox import FIRST
from appliance.storage.work import call

# What a rehearsal with many answers: how many came to each step and how they left it, for programs and as a text.


class StepCount(Struct):
    """What became of the people at one step; `reasons` are those of who was skipped or left, and of unsent messages."""

    step_id: int
    path: str
    type: str
    summary: str
    entered: int = 0
    on: int = 0
    yes: int = 0
    no: int = 0
    skipped: int = 0
    exited: int = 0
    waiting: int = 0
    sent: int = 0
    unsent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Crowd(Struct):
    """A rehearsal with many: how many met the trigger, how many of them were taken, and where they went."""

    flow_id: int
    version: int | None
    days: int
    met: int
    rehearsed: int
    sampled: bool
    completed: int
    exited: int
    live: int
    reasons: dict[str, int]
    steps: list[StepCount]
    notes: list[str]
    text: str = ""


def count_steps(flow: Flow) -> list[StepCount]:
    """Count the passages and messages of each step, in the order of the document."""
    found = {}
    for path, step in document.walk(flow.steps):
        said = BY_TYPE[step["type"]].summary(document.kept(step), flow.account_id)
        found[step["id"]] = StepCount(step["id"], path, step["type"], said)
    for action_id, outcome, reason, count in rows(
        "SELECT action_id, outcome, reason, count(*) FROM passage WHERE flow_id = ? GROUP BY 1, 2, 3", (flow.id,)
    ):
        counted = found[action_id]
        counted.entered += count
        name = outcome or "waiting"
        setattr(counted, name, getattr(counted, name) + count)
        if reason is not None:
            counted.reasons[reason] = counted.reasons.get(reason, 0) + count
    for step_id, status, reason, count in rows(
        "SELECT step_id, status, skip_reason, count(*) FROM message WHERE flow_id = ? AND id > ? GROUP BY 1, 2, 3",
        (flow.id, FIRST),
    ):
        counted = found[step_id]
        if status in ("skipped", "held", "queued", "failed"):
            counted.unsent += count
            counted.reasons.setdefault(reason or status, count)
        else:
            counted.sent += count
    return list(found.values())


def counts_as_text(flow: Flow, found: Crowd) -> str:
    """Write the counts as a page that a person reads from the top."""
    what = f"version {found.version}, which is live" if found.version else "as it is edited"
    lines = [
        f"Rehearsal of “{flow.name}” ({what}) with those who met its trigger in the last {found.days} days",
        f"{found.met} people met it; {found.rehearsed} were taken.", "",
    ]  # fmt: skip
    for step in found.steps:
        lines += [f"{timeline.place(step.path)}. {step.summary}", f"     {', '.join(_parts(step))}"]
    lines += ["", f"In the end {found.completed} completed it, {found.exited} left before, {found.live} are inside."]
    lines += [f"Note: {note}" for note in found.notes]
    return "\n".join(lines) + "\n"


def _parts(step: StepCount) -> Iterator[str]:
    yield f"{step.entered} come"
    if step.type == "split" and step.entered:
        yield f"Yes {step.yes} ({_share(step.yes, step.entered)})"
        yield f"No {step.no} ({_share(step.no, step.entered)})"
    for name in ("sent", "unsent", "skipped", "exited", "waiting"):
        if number := getattr(step, name):
            yield f"{number} {name}"
    for reason, number in step.reasons.items():
        yield f"{simulated_events.skipped(reason)}: {number}"


def _share(number: int, of: int) -> str:
    return f"{number / of:.0%}"


# Drawn where there are more, or fewer in a flow of many steps
MAX_CONTACTS, _MAX_PASSAGES = 1_000, 40_000
_MAX_SECONDS, _MAX_MOMENTS = 15.0, 2_000
_LONG_MS, _MINUTE_MS = 400 * DAY_MS, 60_000
# One at a time: it takes a second or two, and others read meanwhile
_busy = threading.Lock()
# Spreads people evenly, always the same ones
_DRAWN = "(c.id * 2654435761 + 40503) % 4294967296"


class Supposed(Assumed):
    """Something that is assumed to happen to a share of the people (all unless it is said)."""

    share: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET


class CrowdRequest(Struct):
    """Whoever met the trigger in so many days; `steps` are rehearsed instead of those that are stored."""

    days: Annotated[int, Meta(ge=1, le=365)] | UnsetType = UNSET
    events: Annotated[list[Supposed], Meta(max_length=10)] | None | UnsetType = UNSET
    start_at: When | None | UnsetType = UNSET
    until: When | None | UnsetType = UNSET
    steps: Steps | UnsetType = UNSET


class _Met(NamedTuple):
    """Who met the trigger, as far as they are taken, with the event of each; and how many there are."""

    arrivals: list[Arrival]
    number: int


def simulate_all(account_id: int, flow_id: int, request: CrowdRequest) -> Crowd:
    """Rehearse a flow with everybody who met its trigger; raises NotFound, Invalid, or TooMany while another runs."""
    flow = store.get(account_id, flow_id)
    now = clock.now_ms()
    steps, start, until = _read(flow, request, now)
    here = steps if steps is not None else flow.steps
    script = list(request.events or [])
    if not _busy.acquire(blocking=False):
        raise TooMany("another rehearsal with many is running", 5)
    try:
        days = request.days if isinstance(request.days, int) else 90
        most = min(MAX_CONTACTS, max(_MAX_PASSAGES // max(len([*document.walk(here)]), 1), 1))
        found = _met(account_id, flow, now - days * DAY_MS, most)
        people = [one.contact_id for one in found.arrivals]
        with Stage(flow, people, start, steps or ()).open() as version:
            answer = _Play(flow, steps, version, script, until).play(found, days)
    finally:
        _busy.release()
    answer.text = counts_as_text(flow, answer)
    return answer


def check(account_id: int, request: CrowdRequest, flow_id: int) -> None:
    """Raise Invalid with all that is wrong with a rehearsal beyond its types, or NotFound; nothing is played."""
    _read(store.get(account_id, flow_id), request, clock.now_ms())


def _read(flow: Flow, request: CrowdRequest, now: int) -> tuple[list[dict[str, Any]] | None, int, int]:
    """Return the steps that are rehearsed instead of those of a flow, when it begins and ends; raises Invalid."""
    faults = Faults()
    steps = asked_steps(flow, request.steps, faults)
    here = steps if steps is not None else flow.steps
    simulated_events.check(
        flow.account_id, request.events or [], {step["id"] for _, step in document.walk(here)}, faults
    )
    start = request.start_at if isinstance(request.start_at, int) else now
    until = request.until if isinstance(request.until, int) else start + _LONG_MS
    if not now - DAY_MS <= start <= until <= start + 5 * _LONG_MS:
        faults.add("start_at", "is invalid")
    faults.check()
    return steps, start, until


def _met(account_id: int, flow: Flow, since: int, most: int) -> _Met:
    """Find who met the trigger since a moment, each by their last event that did."""
    start: Start = triggers.of(Trigger.get(Trigger.flow == flow.id))
    if start.event == MANUAL:
        return _Met([], 0)
    asked = starting.condition(account_id, flow.id, start)
    source = (
        f"FROM event {EVENT} JOIN contact c ON c.id = {EVENT}.contact_id WHERE {EVENT}.created_at >= :since "
        f"AND {EVENT}.test = 0 AND {asked.sql}"
    )
    values = {**asked.parameters, "since": since}
    number = fetch_one(f"SELECT count(DISTINCT c.id) {source}", values)
    drawn = rows(
        f"SELECT c.id, max({EVENT}.id) {source} GROUP BY c.id ORDER BY {_DRAWN} LIMIT :most", {**values, "most": most}
    )
    return _Met([Arrival(contact_id, event_id) for contact_id, event_id in drawn], number[0] if number else 0)


class _Play:
    """One rehearsal with many, on an open stage."""

    def __init__(
        self, flow: Flow, steps: list[dict[str, Any]] | None, version: int, script: list[Supposed], until: int
    ) -> None:  # fmt: skip
        self.flow = Flow.get_by_id(flow.id)
        self.until, self.script = until, script
        self.notes: list[str] = stopped(flow.account_id)
        is_live = self.flow.status == "active" and steps is None and bool(self.flow.version)
        if not is_live:
            self.notes += work.write(opened, self.flow, steps, version)
        self.live = self.flow.version if is_live else None
        self._plan = document.read_plan(self.flow.id, self.flow.version)

    def play(self, met: _Met, days: int) -> Crowd:
        """Let everybody enter, and time pass until all have ended."""
        begun, now = time.monotonic(), clock.now_ms()
        opening = Open(self.flow.account_id, self.flow.id, self.flow.name, self.flow.version, "every_time")
        if met.arrivals:
            work.write(starting.start, opening, met.arrivals)
        work.write(simulated_entry.shut, self.flow.id)
        runs = rows("SELECT id, contact_id FROM run WHERE flow_id = ? AND status = 'live'", (self.flow.id,))
        every = json.dumps([row[0] for row in runs])
        planned = _planned(self.script, now)
        for _ in range(_MAX_MOMENTS):
            with clock.imagined(now):
                self._settle(every)
                for at, what in [one for one in planned if one[0] <= now]:
                    planned.remove((at, what))
                    self._suppose(what, runs)
                    self._settle(every)
            coming = [at for at, _ in planned]
            coming += [one for one in (_due(self.flow.id), _whole(simulated_sends.waiting(every))) if one is not None]
            later = min((one for one in coming if one > now), default=None)
            if later is None or later > self.until:
                break
            if time.monotonic() - begun > _MAX_SECONDS:
                self.notes.append("It took too long and was ended early: not everybody has come to their end.")
                break
            now = later
        return self._counted(met, days, len(runs))

    def _settle(self, every: str) -> None:
        for _ in range(50):
            moved = enrollment.take_in()
            due = rows(
                "SELECT id FROM run WHERE flow_id = ? AND status = 'live' AND due_at <= ?",
                (self.flow.id, clock.now_ms()),
            )
            if due:
                work.write(run.go_on, [row[0] for row in due], self.flow.name, self._plan)
            if not simulated_sends.leave_unseen(every) and not due and not moved:
                return

    def _suppose(self, what: Supposed, runs: Sequence[tuple[int, int]]) -> None:
        share = what.share if isinstance(what.share, float | int) else 1.0
        for run_id, contact_id in runs:
            if (contact_id * 2654435761 + 97) % 10_000 >= share * 10_000:
                continue
            try:
                work.write(simulated_events.happen, what, Cast(self.flow.account_id, contact_id, run_id))
            except (Impossible, Refused):
                continue  # what nobody got is not opened by them

    def _counted(self, met: _Met, days: int, number: int) -> Crowd:
        ends = rows("SELECT status, exit_reason, count(*) FROM run WHERE flow_id = ? AND version = ? "
                    "AND status <> 'ignored' AND id > ? GROUP BY 1, 2",
                    (self.flow.id, self.flow.version, FIRST))  # fmt: skip
        states: dict[str, int] = {}
        for status, _, count in ends:
            states[status] = states.get(status, 0) + count
        reasons = {reason: count for _, reason, count in ends if reason is not None}
        if met.number > number:
            self.notes.append(
                f"{number} of the {met.number} who met the trigger were drawn: shares are close, not exact."
            )
        if number and fetch_one("SELECT 1 FROM main.run WHERE flow_id = ? AND status <> 'ignored'", (self.flow.id,)):
            self.notes.append("All of them enter, whether or not they were in this flow before.")
        if not met.number:
            self.notes.append("Nobody met the trigger in that time.")
        return Crowd(
            self.flow.id, self.live, days, met.number, number, met.number > number, states.get("completed", 0),
            states.get("exited", 0), states.get("live", 0), reasons, count_steps(self.flow), self.notes,
        )  # fmt: skip


def _planned(script: Sequence[Supposed], start: int) -> list[tuple[int, Supposed]]:
    """Return when each thing is assumed to happen; all enter at once, so what is of a message counts from the start."""
    found = []
    for one_of in script:
        after = one_of.after * 1000 if isinstance(one_of.after, int) else 0
        found.append((max(one_of.at, start) if isinstance(one_of.at, int) else start + after, one_of))
    return found


def _whole(moment: int | None) -> int | None:
    """Return the full minute by which a message has left: those of one morning leave each at a moment of its own."""
    return None if moment is None else -(-moment // _MINUTE_MS) * _MINUTE_MS


def _due(flow_id: int) -> int | None:
    found = fetch_one("SELECT min(due_at) FROM run WHERE flow_id = ? AND status = 'live'", (flow_id,))
    return found[0] if found else None


# Rehearsals one after the other: each may take seconds, and there are few threads that read.

T = TypeVar("T")

# So many may wait; who comes then is told to come back
_MAX_WAITING = 20
_turn = asyncio.Semaphore(1)
_waiting = 0


async def rehearse(function: Callable[..., T], *arguments: Any, refuses: bool = True) -> T:
    """Run a rehearsal on the reader pool, when those before it are over; raises TooMany where too many wait."""
    global _waiting
    if refuses and _waiting >= _MAX_WAITING:
        raise TooMany("many other rehearsals are waiting", 10)
    _waiting += 1
    try:
        await _turn.acquire()
    finally:
        _waiting -= 1
    running = asyncio.ensure_future(call(function, *arguments))
    running.add_done_callback(_over)
    # Who goes away meanwhile ends nothing: the thread is at work until it is done
    return await asyncio.shield(running)


def _over(done: "asyncio.Future[Any]") -> None:
    _turn.release()
    if not done.cancelled():
        done.exception()  # somebody who has gone away does not hear of it
