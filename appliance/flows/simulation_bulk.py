"""Simulation in bulk: a flow with all contacts that recently matched its trigger.

All contacts enter at the same moment, each with its event that matched. If there are too many contacts, a sample is
simulated, and the result says so.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.core import clock, i18n
from appliance.core.errors import Faults, RateLimitExceeded, Refused
from appliance.core.i18n import gettext, ngettext
from appliance.core.validation import When
from appliance.flows import (
    document,
    engine,
    enrollment,
    holdouts,
    jumps,
    simulation_events,
    simulation_sandbox,
    simulation_timeline,
    store,
    triggers,
    versions,
)
from appliance.flows.branches import get_props
from appliance.flows.document import StepsWrite
from appliance.flows.enrollment import Entrant, OpenFlow
from appliance.flows.simulation import (
    activate_in_sandbox,
    note_stopped_sending,
    parse_tried_steps,
)
from appliance.flows.simulation_events import (
    Assumption,
    ImpossibleEvent,
    SimulatedRun,
)
from appliance.flows.simulation_sandbox import SimulationSandbox
from appliance.flows.simulation_timeline import SimulatedVersion
from appliance.flows.steps import BY_TYPE
from appliance.flows.triggers import EVENT_ALIAS, MANUAL, TriggerSpec
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import Flow, Trigger
from appliance.storage.sandbox import FIRST_SANDBOX_ID
from appliance.storage.transactions import fetch

# The result of a bulk simulation, as Structs and as text.


class BranchCount(Struct):
    """The number of contacts that continued with one branch of a step."""

    key: Annotated[str, Meta(description="key of the branch")]
    label: Annotated[str, Meta(description="label of the branch")]
    count: int = 0


class StepCount(Struct):
    """The number of contacts and messages of one step, by what happened to them."""

    step_id: Annotated[int, Meta(description="id of the step")]
    path: Annotated[str, Meta(description="path of the step in the flow")]
    type: str
    summary: Annotated[str, Meta(description="description of the step")]
    entered: int = 0
    on: Annotated[int, Meta(description="contacts that continued, for steps without branches")] = 0
    yes: Annotated[int, Meta(description="contacts that continued with the `yes` branch")] = 0
    no: Annotated[int, Meta(description="contacts that continued with the `no` branch")] = 0
    branches: Annotated[list[BranchCount], Meta(description="contacts that continued, by branch")] = field(
        default_factory=list
    )
    skipped: Annotated[int, Meta(description="contacts for which the step was skipped")] = 0
    exited: Annotated[int, Meta(description="contacts that exited the flow at the step")] = 0
    waiting: Annotated[int, Meta(description="contacts that wait at the step")] = 0
    sent: Annotated[int, Meta(description="number of messages sent")] = 0
    unsent: Annotated[int, Meta(description="number of messages not sent")] = 0
    reasons: Annotated[
        dict[str, int],
        Meta(description="why contacts were skipped or exited and why messages were not sent, with counts"),
    ] = field(default_factory=dict)


class BulkSimulation(Struct):
    """The result of a bulk simulation: how many contacts matched the trigger, and how their simulated runs went."""

    flow_id: Annotated[int, Meta(description="id of the flow")]
    version: SimulatedVersion
    days: Annotated[int, Meta(description="number of past days whose triggers are simulated")]
    met: Annotated[int, Meta(description="number of contacts that met the trigger")]
    rehearsed: Annotated[int, Meta(description="number of contacts simulated")]
    sampled: Annotated[bool, Meta(description="whether the simulated contacts are a sample")]
    completed: Annotated[int, Meta(description="completed runs")]
    exited: Annotated[int, Meta(description="runs that ended early")]
    live: Annotated[int, Meta(description="runs that were still active at the end")]
    reasons: Annotated[dict[str, int], Meta(description="why contacts exited, with counts")]
    steps: Annotated[list[StepCount], Meta(description="results by step")]
    notes: Annotated[list[str], Meta(description="limits of the simulation")]
    text: Annotated[str, Meta(description="whole result as text")] = ""


_COUNTED_OUTCOMES = ("on", "yes", "no", "skipped", "exited", "waiting")


def count_steps(flow: Flow) -> list[StepCount]:
    """Count the visits and messages of each step in the sandbox; return the counts in document order."""
    counts = {}
    for path, step in document.walk(jumps.link_targets(flow.steps)):
        kind, props = BY_TYPE[step["type"]], get_props(step)
        branches = [BranchCount(key, label) for key, label in kind.list_outcomes(props).items()]
        summary = kind.summary(props, flow.account_id)
        counts[step["id"]] = StepCount(step["id"], path, step["type"], summary, branches=branches)
    for action_id, outcome, reason, count in rows(
        "SELECT action_id, outcome, reason, count(*) FROM step_visit WHERE flow_id = ? GROUP BY 1, 2, 3", (flow.id,)
    ):
        step_count = counts[action_id]
        step_count.entered += count
        name = outcome or "waiting"
        if name in _COUNTED_OUTCOMES:
            setattr(step_count, name, getattr(step_count, name) + count)
        for branch in step_count.branches:
            branch.count += count if branch.key == name else 0
        if reason is not None:
            step_count.reasons[reason] = step_count.reasons.get(reason, 0) + count
    for step_id, status, reason, count in rows(
        "SELECT step_id, status, skip_reason, count(*) FROM message WHERE flow_id = ? AND id > ? GROUP BY 1, 2, 3",
        (flow.id, FIRST_SANDBOX_ID),
    ):
        step_count = counts[step_id]
        if status in ("skipped", "held", "queued", "failed"):
            step_count.unsent += count
            step_count.reasons.setdefault(reason or status, count)
        else:
            step_count.sent += count
    return list(counts.values())


def format_bulk_text(flow: Flow, simulation: BulkSimulation) -> str:
    """Return the result of a bulk simulation as text, with the counts of each step."""
    version = f"live version {simulation.version}" if simulation.version else "current draft"
    lines = [
        f"Simulation of “{flow.name}” ({version}), contacts that met its trigger in the last {simulation.days} days",
        f"Contacts that met the trigger: {simulation.met}; simulated: {simulation.rehearsed}.", "",
    ]  # fmt: skip
    labels = {f"{step.path}.{branch.key}": branch.label for step in simulation.steps for branch in step.branches}
    for step in simulation.steps:
        # Steps of a branch are indented, and its first step names the branch.
        indent = "  " * step.path.count(".")
        label = labels.get(step.path.removesuffix("[0]"))
        branch = f"{label}: " if label is not None else ""
        lines += [f"{indent}{branch}{step.summary}", f"{indent}     {', '.join(_format_counts(step))}"]
    lines += [
        "",
        f"At the end: {simulation.completed} completed, {simulation.exited} exited early, "
        f"{simulation.live} still in the flow.",
    ]
    lines += [f"Note: {note}" for note in simulation.notes]
    return "\n".join(lines) + "\n"


def _format_counts(step: StepCount) -> Iterator[str]:
    yield f"{step.entered} entered"
    for branch in step.branches if step.entered else ():
        yield f"{branch.label} {branch.count} ({_format_share(branch.count, step.entered)})"
    for name in ("sent", "unsent", "skipped", "exited", "waiting"):
        if number := getattr(step, name):
            yield f"{number} {name}"
    for reason, number in step.reasons.items():
        yield f"{simulation_timeline.describe_skip(reason)}: {number}"


def _format_share(number: int, total: int) -> str:
    return f"{number / total:.0%}"


# The maximum number of contacts, and of contacts times steps; if there are more contacts, a sample is simulated.
MAX_CONTACTS, _MAX_VISITS = 1_000, 40_000
_MAX_SECONDS, _MAX_MOMENTS = 15.0, 2_000
_DEFAULT_SPAN_MS, _MINUTE_MS = 400 * clock.DAY_MS, 60_000
# Only one bulk simulation runs at a time: it takes a second or two, and other requests need the processor, too.
_bulk_lock = threading.Lock()
# The order by which a sample is taken: a hash of the id, so that the sample is evenly distributed and always the same.
_SAMPLE_ORDER = "(c.id * 2654435761 + 40503) % 4294967296"


class BulkAssumption(Assumption):
    """An event that is assumed to happen to a share of the contacts, by default to all."""

    share: (
        Annotated[
            float,
            Meta(ge=0, le=1),
            Meta(description="share of contacts to which the event happens, from 0 to 1; default: 1"),
        ]
        | UnsetType
    ) = UNSET


class BulkSimulateRequest(Struct):
    """A bulk simulation with the contacts that matched the trigger in the last `days` days (default: 90)."""

    days: (
        Annotated[int, Meta(ge=1, le=365), Meta(description="number of past days whose triggers are simulated")]
        | UnsetType
    ) = UNSET
    events: (
        Annotated[list[BulkAssumption], Meta(max_length=10), Meta(description="assumed events")] | None | UnsetType
    ) = UNSET
    start_at: Annotated[When, Meta(description="start of the simulation; default: now")] | None | UnsetType = UNSET
    until: Annotated[When, Meta(description="latest end of the simulation")] | None | UnsetType = UNSET
    steps: Annotated[StepsWrite, Meta(description="steps to simulate instead of the stored ones")] | UnsetType = UNSET


class _Audience(NamedTuple):
    """The contacts that matched the trigger, or a sample of them, each with its event.

    `number` is the number of all contacts that matched.
    """

    entrants: list[Entrant]
    number: int


def simulate_bulk(account_id: int, flow_id: int, request: BulkSimulateRequest) -> BulkSimulation:
    """Simulate a flow with the contacts that matched its trigger in the last `request.days` days, or a sample of them.

    Raises NotFound, Invalid with all errors, or RateLimitExceeded while another bulk simulation runs.
    """
    flow = store.get(account_id, flow_id)
    now = clock.now_ms()
    steps, start, until = _parse_request(flow, request, now)
    tried_steps = steps if steps is not None else flow.steps
    assumptions = list(request.events or [])
    if not _bulk_lock.acquire(blocking=False):
        raise RateLimitExceeded(gettext("Another bulk simulation is running."), 5)
    try:
        days = request.days if isinstance(request.days, int) else 90
        limit = min(MAX_CONTACTS, max(_MAX_VISITS // max(len([*document.walk(tried_steps)]), 1), 1))
        audience = _find_audience(account_id, flow, now - days * clock.DAY_MS, limit)
        contact_ids = [entrant.contact_id for entrant in audience.entrants]
        with SimulationSandbox(flow, contact_ids, start, steps or ()).open() as version:
            simulation = _BulkSimulator(flow, steps, version, assumptions, until).run(audience, days)
    finally:
        _bulk_lock.release()
    simulation.text = format_bulk_text(flow, simulation)
    return simulation


def check_bulk_simulation(account_id: int, request: BulkSimulateRequest, flow_id: int) -> None:
    """Raise NotFound, or Invalid with all errors of a request; nothing is simulated."""
    _parse_request(store.get(account_id, flow_id), request, clock.now_ms())


def _parse_request(flow: Flow, request: BulkSimulateRequest, now: int) -> tuple[list[dict[str, Any]] | None, int, int]:
    """Return the steps of a request (None: use the flow's), the start, and the latest end in Unix milliseconds.

    Raises Invalid with all errors.
    """
    faults = Faults()
    steps = parse_tried_steps(flow, request.steps, faults)
    tried_steps = steps if steps is not None else flow.steps
    simulation_events.check_assumptions(
        flow.account_id, request.events or [], {step["id"] for _, step in document.walk(tried_steps)}, faults
    )
    start = request.start_at if isinstance(request.start_at, int) else now
    until = request.until if isinstance(request.until, int) else start + _DEFAULT_SPAN_MS
    if not now - clock.DAY_MS <= start <= until <= start + 5 * _DEFAULT_SPAN_MS:
        faults.add("start_at", gettext("is invalid"))
    faults.check()
    return steps, start, until


def _find_audience(account_id: int, flow: Flow, since: int, limit: int) -> _Audience:
    """Return up to `limit` contacts that matched the trigger since a time, each with its last matching event."""
    spec: TriggerSpec = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
    if spec.event == MANUAL:
        return _Audience([], 0)
    condition = triggers.compile_condition(account_id, flow.id, spec)
    source = (
        f"FROM event {EVENT_ALIAS} JOIN contact c ON c.id = {EVENT_ALIAS}.contact_id "
        f"WHERE {EVENT_ALIAS}.created_at >= :since AND {EVENT_ALIAS}.test = 0 AND {EVENT_ALIAS}.quiet = 0 "
        f"AND {condition.sql}"
    )
    values = {**condition.parameters, "since": since}
    total = fetch_one(f"SELECT count(DISTINCT c.id) {source}", values)
    sample = rows(
        f"SELECT c.id, max({EVENT_ALIAS}.id) {source} GROUP BY c.id ORDER BY {_SAMPLE_ORDER} LIMIT :limit",
        {**values, "limit": limit},
    )
    return _Audience([Entrant(contact_id, event_id) for contact_id, event_id in sample], total[0] if total else 0)


class _BulkSimulator:
    """One bulk simulation; create it and call `run` once, in an open sandbox.

    `version` is the number for a version of the flow that was never live, and `until` the latest end in Unix
    milliseconds.
    """

    def __init__(
        self, flow: Flow, steps: list[dict[str, Any]] | None, version: int, script: list[BulkAssumption], until: int
    ) -> None:  # fmt: skip
        self.flow = Flow.get_by_id(flow.id)
        self.until, self.script = until, script
        self.notes: list[str] = note_stopped_sending(flow.account_id)
        is_live = self.flow.status == "active" and steps is None and bool(self.flow.version)
        if not is_live:
            self.notes += transactions.write(activate_in_sandbox, self.flow, steps, version)
        self.live = self.flow.version if is_live else None
        self._plan = versions.read_plan(self.flow.id, self.flow.version)

    def run(self, audience: _Audience, days: int) -> BulkSimulation:
        """Start a run for each contact, and simulate until nothing is due, the latest end, or the time limit.

        `days` is only copied into the result.
        """
        started, now = time.monotonic(), clock.now_ms()
        spec = triggers.get_spec(Trigger.get(Trigger.flow == self.flow.id))
        open_flow = OpenFlow(
            self.flow.account_id, self.flow.id, self.flow.name, self.flow.version, "every_time",
            holdout=holdouts.get_holdout(spec.data),
        )  # fmt: skip
        if audience.entrants:
            result = transactions.write(enrollment.start_runs, open_flow, audience.entrants)
            self._note_excluded(result.ignored)
        transactions.write(simulation_sandbox.close_entry, self.flow.id)
        runs = rows("SELECT id, contact_id FROM run WHERE flow_id = ? AND status = 'live'", (self.flow.id,))
        run_ids_json = json.dumps([row[0] for row in runs])
        planned = _plan_events(self.script, now)
        for _ in range(_MAX_MOMENTS):
            with clock.simulated_time(now):
                self._settle(run_ids_json)
                for at, assumption in [event for event in planned if event[0] <= now]:
                    planned.remove((at, assumption))
                    self._apply(assumption, runs)
                    self._settle(run_ids_json)
            moments = [at for at, _ in planned]
            moments += [
                due_at
                for due_at in (
                    _get_next_run_due(self.flow.id),
                    _round_up_to_minute(simulation_sandbox.get_next_due(run_ids_json)),
                )
                if due_at is not None
            ]
            next_moment = min((moment for moment in moments if moment > now), default=None)
            if next_moment is None or next_moment > self.until:
                break
            if time.monotonic() - started > _MAX_SECONDS:
                self.notes.append(
                    gettext("The simulation took too long and was ended early: some contacts have not reached the end.")
                )
                break
            now = next_moment
        return self._build_result(audience, days, len(runs))

    def _note_excluded(self, ignored: dict[str, int]) -> None:
        """Add notes on the contacts who do not enter because they are in the holdout or control group."""
        if held_out := ignored.get(triggers.HELD_OUT, 0):
            self.notes.append(
                ngettext(
                    "%(num)s contact is in the holdout group of this flow and does not enter.",
                    "%(num)s contacts are in the holdout group of this flow and do not enter.",
                    held_out,
                )
            )
        if controls := ignored.get(holdouts.CONTROL_GROUP, 0):
            self.notes.append(
                ngettext(
                    "%(num)s contact is in the control group of the account and does not enter.",
                    "%(num)s contacts are in the control group of the account and do not enter.",
                    controls,
                )
            )

    def _settle(self, run_ids_json: str) -> None:
        for _ in range(50):
            has_processed = enrollment.process_events()
            due = rows(
                "SELECT id FROM run WHERE flow_id = ? AND status = 'live' AND due_at <= ?",
                (self.flow.id, clock.now_ms()),
            )
            if due:
                transactions.write(engine.advance_runs, [row[0] for row in due], self.flow.name, self._plan)
            if not simulation_sandbox.send_due_unrendered(run_ids_json) and not due and not has_processed:
                return

    def _apply(self, assumption: BulkAssumption, runs: Sequence[tuple[int, int]]) -> None:
        share = assumption.share if isinstance(assumption.share, float | int) else 1.0
        for run_id, contact_id in runs:
            if (contact_id * 2654435761 + 97) % 10_000 >= share * 10_000:
                continue
            try:
                transactions.write(
                    simulation_events.apply_assumption,
                    assumption,
                    SimulatedRun(self.flow.account_id, contact_id, run_id),
                )
            except (ImpossibleEvent, Refused):
                continue  # For example, a message that was not sent cannot be opened.

    def _build_result(self, audience: _Audience, days: int, run_count: int) -> BulkSimulation:
        end_counts = rows("SELECT status, exit_reason, count(*) FROM run WHERE flow_id = ? AND version = ? "
                    "AND status <> 'ignored' AND id > ? GROUP BY 1, 2",
                    (self.flow.id, self.flow.version, FIRST_SANDBOX_ID))  # fmt: skip
        status_counts: dict[str, int] = {}
        for status, _, count in end_counts:
            status_counts[status] = status_counts.get(status, 0) + count
        reasons = {reason: count for _, reason, count in end_counts if reason is not None}
        if audience.number > run_count:
            self.notes.append(
                ngettext(
                    "A sample of %(num)s of the %(total)s contacts that met the trigger: percentages are estimates.",
                    "A sample of %(num)s of the %(total)s contacts that met the trigger: percentages are estimates.",
                    run_count,
                    total=i18n.format_number(audience.number),
                )
            )
        if run_count and fetch_one("SELECT 1 FROM main.run WHERE flow_id = ? AND status <> 'ignored'", (self.flow.id,)):
            self.notes.append(gettext("All of these contacts enter, even if they were in this flow before."))
        if not audience.number:
            self.notes.append(gettext("No contact met the trigger in this period."))
        return BulkSimulation(
            self.flow.id, self.live, days, audience.number, run_count, audience.number > run_count,
            status_counts.get("completed", 0), status_counts.get("exited", 0), status_counts.get("live", 0), reasons,
            count_steps(self.flow), self.notes,
        )  # fmt: skip


def _plan_events(script: Sequence[BulkAssumption], start: int) -> list[tuple[int, BulkAssumption]]:
    """Return (Unix milliseconds, assumed event) for each assumed event; `after` always counts from the start."""
    planned = []
    for assumption in script:
        delay_ms = assumption.after * 1000 if isinstance(assumption.after, int) else 0
        planned.append((max(assumption.at, start) if isinstance(assumption.at, int) else start + delay_ms, assumption))
    return planned


def _round_up_to_minute(moment: int | None) -> int | None:
    """Round Unix milliseconds up to a full minute, so that messages due within one minute are sent together."""
    return None if moment is None else -(-moment // _MINUTE_MS) * _MINUTE_MS


def _get_next_run_due(flow_id: int) -> int | None:
    row = fetch_one("SELECT min(due_at) FROM run WHERE flow_id = ? AND status = 'live'", (flow_id,))
    return row[0] if row else None


# Simulations run one at a time, because each may take seconds and there are few reader threads

T = TypeVar("T")

# If this number of simulations is waiting, further requests are rejected.
_MAX_WAITING = 20
_simulation_turn = asyncio.Semaphore(1)
_waiting_count = 0


async def run_in_turn(function: Callable[..., T], *arguments: Any, refuses: bool = True) -> T:
    """Run a simulation on a reader thread, after those that are already waiting, and return its result.

    Raises RateLimitExceeded if `_MAX_WAITING` simulations are waiting (not with `refuses=False`), and any error of the
    simulation.
    """
    global _waiting_count
    if refuses and _waiting_count >= _MAX_WAITING:
        raise RateLimitExceeded(gettext("Too many simulations are waiting."), 10)
    _waiting_count += 1
    try:
        await _simulation_turn.acquire()
    finally:
        _waiting_count -= 1
    running = asyncio.ensure_future(fetch(function, *arguments))
    running.add_done_callback(_release_turn)
    # The thread finishes its work even if the client disconnects.
    return await asyncio.shield(running)


def _release_turn(done: "asyncio.Future[Any]") -> None:
    _simulation_turn.release()
    if not done.cancelled():
        done.exception()  # Marks the error as retrieved: if the client has disconnected, nothing else reads it.
