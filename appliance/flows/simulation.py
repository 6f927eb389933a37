"""Simulation of a flow with one contact: its real steps, filters and messages run in a sandbox with a simulated clock.

A sent message counts as accepted at once. The contact does only what the script assumes, such as a click or a bounce.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from appliance.accounts.audit import Actor
from appliance.audience.consent import Evidence
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactWrite
from appliance.audience.segments import members
from appliance.content.designs import merge
from appliance.core import addresses, clock
from appliance.core.errors import Faults, Invalid, Refused
from appliance.core.i18n import gettext, gettext_noop, pgettext
from appliance.core.validation import read, sent_fields
from appliance.events import log
from appliance.flows import (
    document,
    drafts,
    engine,
    enrollment,
    lifecycle,
    simulation_events,
    simulation_sandbox,
    simulation_timeline,
    store,
    triggers,
    versions,
)
from appliance.flows.drafts import FlowDraft
from appliance.flows.enrollment import MAX_CHAIN_DEPTH
from appliance.flows.simulation_events import (
    Assumption,
    ImpossibleEvent,
    PlannedEvent,
    RealEvent,
    SimulatedRun,
    SimulateRequest,
    SimulationInput,
)
from appliance.flows.simulation_sandbox import SimulatedSend, SimulationSandbox
from appliance.flows.simulation_timeline import (
    Entry,
    Reason,
    RenderedMessage,
    SimulatedContact,
    Simulation,
    SimulationEnd,
    format_moment,
)
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import ActiveRun, Node, StepContext, StepResult
from appliance.flows.triggers import MANUAL, TriggerSpec
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, scalar
from appliance.storage.models import Contact, Flow, Trigger
from appliance.storage.sandbox import FIRST_SANDBOX_ID

# Other flows that events of the simulation would start; they are reported, not simulated.

_SELECT_LIVE_FLOWS = (
    "SELECT f.id, f.name, t.event, t.segment_id, t.contact_list_id, t.data FROM main.flow f "
    "JOIN main.trigger t ON t.flow_id = f.id WHERE f.account_id = ? AND f.id <> ? AND f.status = 'active' "
    f"AND f.hidden = 0 AND f.deleted_at IS NULL AND t.event <> '{MANUAL}' ORDER BY f.id"
)


class OtherFlow(NamedTuple):
    """An active flow, and the event that would start it."""

    flow_id: int
    name: str
    event: str


class OtherFlows:
    """The account's other active flows, whose triggers are matched against the events of a simulation."""

    def __init__(self, account_id: int, flow_id: int) -> None:
        self._account_id = account_id
        self._flows = [
            (row[0], row[1], TriggerSpec(row[2], row[3], row[4], msgspec.json.decode(row[5])))
            for row in rows(_SELECT_LIVE_FLOWS, (account_id, flow_id))
        ]
        self._reported = int(scalar("SELECT coalesce(max(id), 0) FROM event"))

    def find_started(self) -> Iterator[OtherFlow]:
        """Yield the flows that events recorded since the previous call would start."""
        last_seen, self._reported = self._reported, int(scalar("SELECT coalesce(max(id), 0) FROM event"))
        if not self._flows or self._reported == last_seen:
            return
        event_ids: dict[str, list[int]] = {}
        for event_id, name in rows(
            "SELECT id, event FROM event WHERE id > ? AND quiet = 0 AND chain_depth < ? ORDER BY id",
            (last_seen, MAX_CHAIN_DEPTH),
        ):
            event_ids.setdefault(name, []).append(event_id)
        for flow_id, name, start in self._flows:
            if start.event in event_ids and triggers.match_events(
                self._account_id, flow_id, start, event_ids[start.event]
            ):
                yield OtherFlow(flow_id, name, start.event)


# A flow has at most 200 steps and a run leaves each of them once, so no simulation needs more moments than this.
_MAX_MOMENTS = 2_000
_MAX_ROUNDS = 50
# The time limit of a simulation; other simulations wait meanwhile.
_MAX_SECONDS = 10.0


class FlowSimulator:
    """The simulation of one run: call `run` once, in the open sandbox in which the run was started.

    `paths` are the paths of the steps by step id, and `until` is the latest end in Unix milliseconds. `entries` and
    `notes` are the result.
    """

    def __init__(
        self, flow: Flow, version: int, paths: dict[Any, str], simulated_run: SimulatedRun, until: int
    ) -> None:
        self.flow, self.version, self.paths, self.simulated_run, self.until = flow, version, paths, simulated_run, until
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        self.zone = members.build_scope(flow.account_id).zone
        self._runs_json = json.dumps([simulated_run.run_id])
        self._renderer = MessagePreparer()
        # The cache of plans is not used, because it must not contain a version that was never live.
        self._plan = versions.read_plan(flow.id, version)
        self._steps: dict[int | None, Entry] = {}  # the last entry of each step, for the message it sends
        # The names of events that the flow's filters or its goal refer to.
        self._relevant_events = {str(flow.goal), *simulation_events.find_event_names(flow.steps)}
        self._other_flows = OtherFlows(flow.account_id, flow.id)
        self._planned_events: list[PlannedEvent] = []
        self._reported: set[int] = set()  # ids of skipped and held messages that were reported
        self._stuck_messages: set[int] = set()  # ids of messages that would wait without a known end
        self._deadline = time.monotonic() + _MAX_SECONDS

    def run(self, script: list[Assumption], real_events: Sequence[RealEvent]) -> SimulationEnd:
        """Simulate until the run has ended and its messages are sent, or until the latest end; return how it ended.

        `script` are the assumed events. `real_events`, the oldest first, are replayed at their times.
        """
        start = clock.now_ms()
        self._planned_events = [
            simulation_events.plan_event(order, assumption, start) for order, assumption in enumerate(script)
        ]
        remaining = list(real_events)
        now: int | None = start
        for _ in range(_MAX_MOMENTS):
            if now is None or now > self.until:
                break
            with clock.simulated_time(now):
                while remaining and remaining[0].at <= now:
                    self._replay(remaining.pop(0))
                self._settle()
                for planned in self._pop_due(now):
                    self._apply(planned.assumption)
                    self._settle()
            if (
                self._get_end_reason() is not None
                and not self._has_later_message(now)
                and not self._has_overdue_message(now)
            ):
                break
            if self._is_late():
                time_text = format_moment(now, self.zone)
                self._add_note(
                    gettext("The simulation took too long and was ended early, at %(time)s.", time=time_text)
                )
                break
            now = self._get_next_moment(now, remaining)
        self._report_unreached()
        return self._build_end()

    # -- one moment ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Process events, steps and messages that are due at the current moment, until nothing more is due."""
        for _ in range(_MAX_ROUNDS):
            entry_count = len(self.entries)
            has_processed = enrollment.process_events()
            self._report_goal()
            due = fetch_one(
                "SELECT 1 FROM run WHERE id = ? AND status = 'live' AND due_at <= ?",
                (self.simulated_run.run_id, clock.now_ms()),
            )
            if due:
                transactions.write(
                    engine.advance_runs, [self.simulated_run.run_id], self.flow.name, self._plan, self._observe
                )
            self._report_skipped()
            for sent in simulation_sandbox.send_due_messages(self._runs_json, self._renderer, self._stuck_messages):
                self._report_sent(sent)
                if self._is_late():  # Hundreds of messages may be due at one moment, and rendering them takes time.
                    return
            for other_flow in self._other_flows.find_started():
                says = gettext(
                    "“%(event)s” would also start the flow “%(flow)s”",
                    event=log.name_event(other_flow.event),
                    flow=other_flow.name,
                )
                self._add_entry("starts", says, event=other_flow.event)
            if not has_processed and not due and len(self.entries) == entry_count:
                return

    def _observe(self, node: Node, run: ActiveRun, result: StepResult) -> None:
        """Add an entry for a step that the run has reached, with the result; the end of a wait gets no entry."""
        if run.step_visit_id is not None and node.kind == "wait":
            return  # The wait was reported when it began.
        kind = BY_TYPE[node.kind]
        context = StepContext(run.account_id, run.flow_id, self.flow.name, self.version, clock.now_ms())
        details = kind.simulate(node, run, result, context)
        is_waiting = result.to == "wait" and result.until > context.now
        outcome = "waits" if is_waiting else result.outcome or "on"
        filters: list[Reason] = details.pop("filters", [])
        entry = self._add_entry(
            "step", self._describe_step(node, result, is_waiting, filters), step_id=node.id,
            path=self.paths.get(node.id), type=node.kind, outcome=outcome, reason=result.reason,
            until=clock.iso(result.until) if is_waiting else None, filters=filters,
            asks=sorted({*simulation_events.find_event_names([node.props])}) if filters else [], data=details or None,
        )  # fmt: skip
        self._steps[node.id] = entry

    def _describe_step(self, node: Node, result: StepResult, is_waiting: bool, filters: list[Reason]) -> str:
        kind = BY_TYPE[node.kind]
        if filters:
            conditions = simulation_timeline.describe_decision(filters)
            if result.to == "yes":
                return gettext("Branch: Yes, because the contact matches: %(conditions)s", conditions=conditions)
            return gettext("Branch: No, because the contact does not match: %(conditions)s", conditions=conditions)
        summary = kind.summary(node.props, self.flow.account_id)
        if is_waiting:
            return gettext("%(step)s: until %(time)s", step=summary, time=format_moment(result.until, self.zone))
        if result.outcome == "skipped":
            return _describe_skipped(summary, result.reason)
        if result.reason == "failed":
            return gettext("%(step)s: failed, the contact exits the flow", step=summary)
        return summary

    def _report_goal(self) -> None:
        if self._get_end_reason() == "goal" and not any(entry.told == "goal" for entry in self.entries):
            says = gettext("Goal reached: %(goal)s", goal=log.name_event(str(self.flow.goal)))
            self._add_entry("goal", says, event=self.flow.goal)

    # -- messages --------------------------------------------------------------------------------------------------

    def _report_sent(self, sent: SimulatedSend) -> None:
        """Add a message to the entry of its step, or to a new one if that entry is of another time or has a message."""
        entry = self._steps.get(sent.step_id)
        says = simulation_timeline.describe_message(sent.message, self.zone)
        if entry is None or entry.at != clock.iso(clock.now_ms()) or entry.message is not None:
            entry = self._add_entry("message", says, step_id=sent.step_id, path=self.paths.get(sent.step_id))
        else:
            is_skipped = sent.message.status == "skipped"
            entry.says = _describe_skipped(entry.says, sent.message.skip_reason) if is_skipped else says
        entry.message = sent.message
        if sent.message.status in ("queued", "held") and not sent.message.is_held(clock.now_ms()):
            self._stuck_messages.add(sent.message_id)
        if sent.note is not None:
            message_name = simulation_timeline.name_message(sent.message)
            self._add_note(gettext("%(message)s: %(note)s", message=message_name, note=sent.note))
        self._schedule_after_message(sent)

    def _report_skipped(self) -> None:
        """Add messages that were skipped or held since the last call to the entries of their steps."""
        message_rows = rows(
            "SELECT id, step_id, channel, status, skip_reason, recipient, subject, due_at FROM message "
            "WHERE run_id = ? AND (status = 'skipped' OR (status = 'held' AND due_at > ?)) ORDER BY id",
            (self.simulated_run.run_id, clock.now_ms()),
        )
        for message_id, step_id, channel, status, reason, recipient, subject, due in message_rows:
            entry = self._steps.get(step_id)
            if message_id in self._reported or entry is None or entry.message is not None:
                continue
            self._reported.add(message_id)
            leaves = clock.iso(due) if status == "held" else None
            entry.message = RenderedMessage(channel, status, reason, recipient, None, subject, None, None, leaves)
            if status == "held":
                time_text = format_moment(due, self.zone)
                entry.says = gettext("%(step)s: held until %(time)s", step=entry.says, time=time_text)
            elif entry.outcome != "skipped":
                entry.says = _describe_skipped(entry.says, reason)

    def _schedule_after_message(self, sent: SimulatedSend) -> None:
        """Set the times of assumed events that count from a message that was just sent."""
        if sent.message.status != "sent":
            return
        self._planned_events = [
            planned._replace(at=clock.now_ms() + planned.assumption.after * 1000)
            if planned.at is None
            and planned.assumption.step == sent.step_id
            and isinstance(planned.assumption.after, int)
            else planned
            for planned in self._planned_events
        ]

    # -- assumed events --------------------------------------------------------------------------------------------

    def _pop_due(self, now: int) -> Iterator[PlannedEvent]:
        while True:
            due = sorted(planned for planned in self._planned_events if planned.at is not None and planned.at <= now)
            if not due:
                return
            self._planned_events.remove(due[0])
            yield due[0]

    def _apply(self, assumption: Assumption) -> None:
        step_id = assumption.step if isinstance(assumption.step, int) else None
        try:
            says = transactions.write(simulation_events.apply_assumption, assumption, self.simulated_run)
        except (ImpossibleEvent, Refused) as reason:
            event = log.name_event(assumption.event)
            self._add_note(gettext("“%(event)s” could not happen: %(reason)s", event=event, reason=reason))
            return
        self._add_entry(
            "assumed", gettext("Assumed: %(event)s", event=says), event=assumption.event,
            data=assumption.event_data or None, step_id=step_id,
        )  # fmt: skip

    def _replay(self, real_event: RealEvent) -> None:
        """Copy a real event into the sandbox, and add an entry for it if the flow refers to its name."""
        transactions.write(simulation_events.replay_event, real_event)
        if real_event.event in self._relevant_events:
            says = gettext("Recorded event: %(event)s", event=log.name_event(real_event.event))
            self._add_entry("recorded", says, event=real_event.event)

    # -- time ------------------------------------------------------------------------------------------------------

    def _get_next_moment(self, now: int, real_events: Sequence[RealEvent]) -> int | None:
        moments = [moment.at for moment in self._planned_events if moment.at is not None]
        # Other events need no moment of their own, because they are replayed at the next moment.
        moments += [real_event.at for real_event in real_events if real_event.event in self._relevant_events][:1]
        due = scalar("SELECT due_at FROM run WHERE id = ? AND status = 'live'", (self.simulated_run.run_id,))
        moments += [moment for moment in (due, simulation_sandbox.get_next_due(self._runs_json)) if moment is not None]
        return min((moment for moment in moments if moment > now), default=None)

    def _has_later_message(self, now: int) -> bool:
        """Return whether an unsent message of the run is due after `now`."""
        due = simulation_sandbox.get_next_due(self._runs_json)
        return due is not None and due > now

    def _has_overdue_message(self, now: int) -> bool:
        """Return whether the simulation is out of time and left a due message of the run unsent."""
        due = simulation_sandbox.get_next_due(self._runs_json)
        return due is not None and due <= now and self._is_late()

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _get_end_reason(self) -> str | None:
        row = fetch_one("SELECT coalesce(exit_reason, status) FROM run WHERE id = ? AND status <> 'live'",
                    (self.simulated_run.run_id,))  # fmt: skip
        return str(row[0]) if row else None

    def _report_unreached(self) -> None:
        for planned in sorted(self._planned_events, key=lambda planned: planned.order):
            assumption = planned.assumption
            event = log.name_event(assumption.event)
            if planned.at is None:
                step_id = assumption.step if isinstance(assumption.step, int) else 0
                note = gettext(
                    "“%(event)s” did not happen: step %(position)s sent no message",
                    event=event,
                    position=simulation_timeline.format_position(self.paths.get(step_id)),
                )
            else:
                time_text = format_moment(planned.at, self.zone)
                note = gettext("“%(event)s” would happen after the end, %(time)s", event=event, time=time_text)
            self._add_note(note)

    def _build_end(self) -> SimulationEnd:
        status, reason, ended_at, step_id, due = rows(
            "SELECT status, exit_reason, ended_at, action_id, due_at FROM run WHERE id = ?",
            (self.simulated_run.run_id,),
        )[0]
        if status == "live":
            end = format_moment(self.until, self.zone)
            if due is None:
                says = gettext("Still in the flow at the end of the simulation, %(time)s.", time=end)
            else:
                due_text = format_moment(due, self.zone)
                says = gettext(
                    "Still in the flow at the end of the simulation, %(time)s; continues %(due)s.",
                    time=end, due=due_text,
                )  # fmt: skip
            return SimulationEnd(status, None, None, step_id, says)
        says = simulation_timeline.describe_end_at(status, reason, format_moment(ended_at, self.zone))
        return SimulationEnd(status, reason, clock.iso(ended_at), step_id, says)

    # -- texts -----------------------------------------------------------------------------------------------------

    def _add_entry(self, kind: Any, says: str, **details: Any) -> Entry:
        now = clock.now_ms()
        entry = Entry(str(clock.iso(now)), kind, says, **details)
        self.entries.append(entry)
        return entry

    def _add_note(self, note: str | None) -> None:
        if note is not None and note not in self.notes:
            self.notes.append(note)


def _describe_skipped(step: str, reason: str | None) -> str:
    """Return the text of a skipped step or message, with the reason."""
    return gettext("%(step)s: skipped (%(reason)s)", step=step, reason=simulation_timeline.describe_skip(reason))


DAY_MS = 86_400_000
# How far back a simulation may start, how far ahead it may start and end, and its default length.
_MAX_BACK_MS, _MAX_AHEAD_MS, _DEFAULT_SPAN_MS = 365 * DAY_MS, 5 * 366 * DAY_MS, 400 * DAY_MS
_EVIDENCE = Evidence("rehearsal", "operator")


class TimeRange(NamedTuple):
    """The start of a simulation and its latest end, in Unix milliseconds."""

    start: int
    until: int


def simulate(account_id: int, flow_id: int, request: SimulateRequest, sees_people: bool = True) -> Simulation:
    """Simulate a flow and describe the result as text too; nothing is saved or sent, and no background job is woken.

    `sees_people` is as in `run_simulation`. Raises NotFound, or Invalid with all errors.
    """
    flow = store.get(account_id, flow_id)
    faults = Faults()
    simulation = run_simulation(flow, request, parse_tried_steps(flow, request.steps, faults), faults, sees_people)
    simulation.text = simulation_timeline.format_text(simulation, _format_title(flow, simulation))
    return simulation


def check_simulation(account_id: int, request: SimulateRequest, flow_id: int) -> None:
    """Raise NotFound, or Invalid with all errors of a request, without simulating anything."""
    flow, faults = store.get(account_id, flow_id), Faults()
    steps = parse_tried_steps(flow, request.steps, faults)
    _parse_times(request, faults)
    _check_input(flow, request, flow.steps if steps is None else steps, faults)


def parse_tried_steps(flow: Flow, raw: Any, faults: Faults) -> list[dict[str, Any]] | None:
    """Parse the steps that a request gives in place of the flow's, or return None if it gives none.

    Every error is added to `faults`.
    """
    if raw is UNSET:
        return None
    return document.parse_steps(flow.account_id, raw, faults, flow.steps, flow.last_action).steps


def run_simulation(
    flow: Flow, request: SimulationInput, steps: list[dict[str, Any]] | None, faults: Faults, sees_people: bool = True,
    trigger: TriggerSpec | None = None,
) -> Simulation:  # fmt: skip
    """Simulate a flow, with `steps` or `trigger` instead of its own if given; raises Invalid with all errors.

    `faults` are errors that were found before. Without `sees_people`, suppressions and opt-outs of a sample contact's
    addresses are ignored, because a user who may not see contacts must not learn of them.
    """
    times = _parse_times(request, faults)
    contact_id = request.contact_id if isinstance(request.contact_id, int) else None
    _check_input(flow, request, flow.steps if steps is None else steps, faults)
    contact_ids = [contact_id] if contact_id is not None else []
    addresses = _get_addresses(request) if sees_people else []
    with SimulationSandbox(flow, contact_ids, times.start, steps or (), addresses).open() as version:
        if trigger is not None:
            values = {**trigger._asdict(), "data": dict(trigger.data)}
            transactions.write(Trigger.update(**values).where(Trigger.flow == flow.id).execute)
        return _simulate_in_sandbox(flow, request, steps, times, version)


def simulate_draft(draft: FlowDraft, request: SimulationInput, sees_people: bool = True) -> Simulation:
    """Simulate a flow with its unpublished changes; raises NotFound, or Invalid with all errors."""
    is_changed = draft.is_changed
    return run_simulation(
        store.get(draft.flow.account_id, draft.flow.id), request, draft.steps if is_changed else None, Faults(),
        sees_people, draft.trigger if is_changed else None,
    )  # fmt: skip


def _parse_times(request: SimulationInput, faults: Faults) -> TimeRange:
    now = clock.now_ms()
    start = request.start_at if isinstance(request.start_at, int) else now
    until = request.until if isinstance(request.until, int) else start + _DEFAULT_SPAN_MS
    if not now - _MAX_BACK_MS <= start <= now + _MAX_AHEAD_MS:
        faults.add("start_at", gettext("is invalid"))
    if not start <= until <= start + _MAX_AHEAD_MS:
        faults.add("until", gettext("is invalid"))
    return TimeRange(start, until)


def _check_input(flow: Flow, request: SimulationInput, steps: list[dict[str, Any]], faults: Faults) -> None:
    contact_id = request.contact_id if isinstance(request.contact_id, int) else None
    if isinstance(request.contact, ContactWrite):
        try:
            write.check_simulated(flow.account_id, request.contact)
        except Invalid as invalid:
            faults.merge(_prefix_contact_fields(invalid.fields))
    if contact_id is not None:
        if request.contact:
            faults.add("contact", gettext("cannot be combined with contact_id"))
        if fetch_one("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (flow.account_id, contact_id)) is None:
            faults.add("contact_id", gettext("must exist"))
    ids = {step["id"] for _, step in document.walk(steps)}
    simulation_events.check_assumptions(flow.account_id, request.events or [], ids, faults)
    faults.check()


def _simulate_in_sandbox(
    flow: Flow, request: SimulationInput, steps: list[dict[str, Any]] | None, times: TimeRange, version: int
) -> Simulation:
    """Let the contact enter the flow and simulate its run, in the open sandbox."""
    contact_id = request.contact_id if isinstance(request.contact_id, int) else None
    is_made_up = contact_id is None
    if contact_id is None:
        contact_id = transactions.write(_create_sample_contact, flow.account_id, request)
    flow = Flow.get_by_id(flow.id)
    live_version = flow.version if flow.status == "active" and steps is None and flow.version else None
    notes = transactions.write(activate_in_sandbox, flow, steps, version) if live_version is None else []
    entered = transactions.write(simulation_sandbox.enter_flow, flow, contact_id, request.event or {}, times.start)
    simulated_run = SimulatedRun(flow.account_id, contact_id, entered.run_id)
    paths = {step["id"]: path for path, step in document.walk(flow.steps)}
    simulator = FlowSimulator(flow, flow.version, paths, simulated_run, times.until)
    simulator.notes = [*note_stopped_sending(flow.account_id), *notes, *entered.notes]
    real_events: list[RealEvent] = []
    if not is_made_up:
        simulator.notes += _list_contact_notes(contact_id, flow.id, times.start)
        real_events = simulation_events.list_real_events(contact_id, flow.id, times.start)
    simulator.entries.append(_build_entry(entered, times.start))
    end = simulator.run(request.events or [], real_events)
    zone = members.build_scope(flow.account_id).zone
    return Simulation(
        flow.id, live_version,
        SimulatedContact(None if is_made_up else contact_id, _get_contact_name(contact_id)), zone,
        str(clock.iso(times.start)), str(clock.iso(times.until)), end, simulator.entries, simulator.notes,
    )  # fmt: skip


def _get_addresses(request: SimulationInput) -> list[tuple[str, str]]:
    """Return (kind, key) of each address of a sample contact; one may be opted out or suppressed in reality."""
    contact = request.contact if isinstance(request.contact, ContactWrite) else ContactWrite()
    values = {"email": contact.email, "phone": contact.phone}
    return [(kind, addresses.parse(kind, text).key) for kind, text in values.items() if isinstance(text, str)]


def build_sample_contact() -> dict[str, str]:
    """Return the fields of the sample contact of a simulation, with a name in the current language."""
    return {
        "first_name": pgettext("first name of a made-up contact", "Alex"),
        "last_name": pgettext("last name of a made-up contact", "Sample"),
        "email": "alex@example.org", "phone": "+12025550143",
    }  # fmt: skip


def _create_sample_contact(account_id: int, request: SimulationInput) -> int:
    """Create the sample contact of a request, by default that of `build_sample_contact`, and return its id."""
    contact = request.contact if isinstance(request.contact, ContactWrite) and sent_fields(request.contact) else None
    return int(write.upsert(account_id, contact or read(ContactWrite, build_sample_contact()), _EVIDENCE).contact.id)


def _prefix_contact_fields(fields: dict[str, list[str]]) -> dict[str, list[str]]:
    return {f"contact.{field}": messages for field, messages in fields.items()}


def activate_in_sandbox(flow: Flow, steps: list[dict[str, Any]] | None, version: int) -> list[str]:
    """Activate a flow in the sandbox as the version `version`, with `steps` in place of its own if given.

    Return notes on blockers and unfinished content, which would matter in reality.
    """
    if steps is not None:
        flow.steps = versions.save_contents(flow.account_id, flow.id, steps)
    trigger = Trigger.get(Trigger.flow == flow.id)
    blockers = lifecycle.list_blockers(flow, trigger, Actor(can_approve=True))
    steps_with_content = drafts.add_contents(flow.steps)
    names = _name_emails(steps_with_content)
    flow.version = version - 1
    versions.publish(flow)
    flow.status, flow.paused_at, flow.drop_before = "active", None, None
    flow.save(only=[Flow.steps, Flow.version, Flow.status, Flow.paused_at, Flow.drop_before])
    unfinished = [
        gettext(
            "Unfinished content in “%(email)s”: %(problem)s",
            email=names.get(path) or gettext("step %(position)s", position=simulation_timeline.format_position(path)),
            problem=warning.message,
        )
        for path, _, warning in lifecycle.list_unfinished(flow.account_id, steps_with_content)
    ]
    return [
        *(
            gettext(
                "This flow cannot go live yet: %(problem)s",
                problem=_describe_problem(blocker.field, blocker.message, names),
            )
            for blocker in blockers
        ),
        *unfinished,
    ]


def _name_emails(steps: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the subjects of the emails that have one, by the paths of their steps."""
    subjects = {
        path: merge.make_readable(((step.get("content") or {}).get("subject") or "").strip())
        for path, step in document.walk(steps)
        if step["type"] == "email"
    }
    return {path: subject for path, subject in subjects.items() if subject}


_PROBLEMS = {
    "trigger.event": gettext_noop("the trigger is missing"),
    "trigger.segment_id": gettext_noop("the segment of the trigger is missing"),
    "trigger.contact_list_id": gettext_noop("the list of the trigger cannot be used"),
    "trigger.data.path": gettext_noop("the custom field with the date of the trigger is missing"),
    "steps": gettext_noop("the steps are missing"),
}


def _describe_problem(field: str, message: str, names: Mapping[str, str]) -> str:
    """Return a problem of a flow with the step or field that it is about; `names` are those of emails by path."""
    if field in _PROBLEMS:
        return gettext(_PROBLEMS[field])
    name = next((name for path, name in names.items() if f"{field}.".startswith(f"{path}.")), None)
    if name is not None:
        return gettext("email “%(email)s”: %(problem)s", email=name, problem=message)
    if position := simulation_timeline.format_position(field):
        return gettext("step %(position)s: %(problem)s", position=position, problem=message)
    return message


def note_stopped_sending(account_id: int) -> list[str]:
    """Return a note, in a list, if the account's sending is stopped in reality; else an empty list."""
    if not fetch_one("SELECT 1 FROM main.account WHERE id = ? AND sending_stopped = 1", (account_id,)):
        return []
    return [gettext("All sending of the account is stopped. In reality, messages would wait until sending is resumed.")]


def _build_entry(entered: simulation_sandbox.EntryResult, at: int) -> Entry:
    return Entry(
        str(clock.iso(at)), "enter", entered.says, event=entered.event, data=entered.data, filters=entered.filters
    )  # fmt: skip


def _list_contact_notes(contact_id: int, flow_id: int, start: int) -> list[str]:
    """Return notes on how a simulation with a real contact differs from reality."""
    notes = []
    if simulation_events.is_really_inside(contact_id, flow_id):
        notes.append(
            gettext(
                "The contact is in this flow now. In reality, the contact could not enter it again before leaving it."
            )
        )
    if start < clock.now_ms():
        notes.append(
            gettext(
                "Events after the simulated time are ignored; the contact’s fields, lists and counts "
                "are their current values."
            )
        )
    return notes


def _get_contact_name(contact_id: int) -> str:
    """Return a contact's name and first address, or a placeholder if the contact has neither."""
    contact = contacts.load_relations([Contact.get_by_id(contact_id)])[0]
    address = next((channel.value for channel in contact.channels), None)
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    if name and address:
        return f"{name} <{address}>"
    if contact.id >= FIRST_SANDBOX_ID:
        return name or address or gettext("Sample contact")
    return name or address or gettext("Contact %(id)s", id=contact.id)


def _format_title(flow: Flow, simulation: Simulation) -> str:
    version = f"live version {simulation.version}" if simulation.version else "current draft"
    start = format_moment(clock.parse(simulation.started_at), simulation.time_zone)
    return f"Simulation of “{flow.name}” ({version}) with {simulation.contact.name}, from {start}"
