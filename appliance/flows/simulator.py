"""The simulator: the steps, filters and messages of a flow run for one contact in the sandbox, with a simulated clock.

A sent message counts as accepted at once. The contact does only what the script assumes, such as a click or a bounce.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from appliance.audience.segments import members
from appliance.core import clock
from appliance.core.errors import Refused
from appliance.core.i18n import gettext
from appliance.events import log
from appliance.flows import (
    engine,
    enrollment,
    simulation_events,
    simulation_sandbox,
    simulation_timeline,
    step_names,
    triggers,
    versions,
)
from appliance.flows.enrollment import MAX_CHAIN_DEPTH
from appliance.flows.simulation_events import (
    Assumption,
    ImpossibleEvent,
    PlannedEvent,
    RealEvent,
    SimulatedResponse,
    SimulatedRun,
)
from appliance.flows.simulation_sandbox import SimulatedSend
from appliance.flows.simulation_timeline import (
    RenderedMessage,
    SimulationEnd,
    SimulationEntry,
    SplitReason,
    format_moment,
)
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import NO_RULES, ActiveRun, Node, SimulationRules, StepContext, StepResult
from appliance.flows.steps.http_request import SIMULATED
from appliance.flows.triggers import MANUAL, TriggerSpec
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, scalar
from appliance.storage.models import Flow

# The maximum number of other flows that are reported because events of the simulation would start them; they are not
# simulated.

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


# A flow has at most 200 steps; only jumps back can need more moments than this.
_MAX_MOMENTS = 2_000
_MAX_ROUNDS = 50
# The time limit of a simulation, because others wait meanwhile.
_MAX_SECONDS = 10.0


class FlowSimulator:
    """The simulation of one run: call `run` once, in the open sandbox in which the run was started.

    `paths` are the paths of the steps by step id, and `until` is the latest end in Unix milliseconds. `rules` has the
    branches that were chosen for random splits. The attributes `entries` and `notes` are the result.
    """

    def __init__(
        self, flow: Flow, version: int, paths: dict[Any, str], simulated_run: SimulatedRun, until: int,
        rules: SimulationRules = NO_RULES,
    ) -> None:  # fmt: skip
        self.flow, self.version, self.paths, self.simulated_run, self.until = flow, version, paths, simulated_run, until
        self._rules = rules
        self.entries: list[SimulationEntry] = []
        self.notes: list[str] = []
        self.zone = members.build_scope(flow.account_id).zone
        self._runs_json = json.dumps([simulated_run.run_id])
        self._renderer = MessagePreparer()
        # The cache of plans is not used, because it must not contain a version that was never live.
        self._plan = versions.read_plan(flow.id, version)
        self._steps: dict[int | None, SimulationEntry] = {}  # the last entry of each step, for the message it sends
        # The names of events to which the flow's filters or its goal refer
        self._relevant_events = {str(flow.goal), *simulation_events.find_event_names(flow.steps)}
        self._other_flows = OtherFlows(flow.account_id, flow.id)
        self._planned_events: list[PlannedEvent] = []
        self._reported: set[int] = set()  # ids of skipped and held messages that were reported
        self._stuck_messages: set[int] = set()  # ids of messages that would wait without a known end
        self._deadline = time.monotonic() + _MAX_SECONDS

    def play_responses(self, responses: Sequence[SimulatedResponse]) -> None:
        """Set the responses for steps that make HTTP requests; without one, a step gets a success without values."""
        nodes = dict(self._plan.nodes)
        for response in responses:
            node = nodes.get(int(response.step))
            if node is not None:
                played = {"status": 200 if response.status is UNSET else response.status, "body": response.body}
                nodes[node.id] = node._replace(props={**node.props, SIMULATED: played})
        self._plan = self._plan._replace(nodes=nodes)

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
        else:
            self._add_note(gettext("The simulation was ended early, because the contact goes round too many times."))
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
                    engine.advance_runs, [self.simulated_run.run_id], self.flow.name, self._plan, self._observe,
                    self._rules,
                )  # fmt: skip
            self._report_skipped()
            for sent in simulation_sandbox.send_due_messages(self._runs_json, self._renderer, self._stuck_messages):
                self._report_sent(sent)
                if self._is_late():  # Hundreds of messages may be due at one moment, and rendering them takes time.
                    return
            for other_flow in self._other_flows.find_started():
                description = gettext(
                    "“%(event)s” would also start the flow “%(flow)s”",
                    event=log.name_event(other_flow.event),
                    flow=other_flow.name,
                )
                self._add_entry("starts", description, event=other_flow.event)
            if not has_processed and not due and len(self.entries) == entry_count:
                return

    def _observe(self, node: Node, run: ActiveRun, result: StepResult) -> None:
        """Add an entry for a step that the run has reached, with the result.

        A wait has an entry when it begins, and another one if it ends in a branch. Any other step that must wait first
        has one entry, when it acts.
        """
        kind = BY_TYPE[node.kind]
        if run.step_visit_id is not None and result.to == "on" if kind.waits else result.to == "wait":
            return
        context = StepContext(run.account_id, run.flow_id, self.flow.name, self.version, clock.now_ms(), Counter())
        details = kind.simulate(node, run, result, context)
        is_waiting = result.to == "wait" and result.until > context.now
        outcome = "waits" if is_waiting else result.outcome or "on"
        filters: list[SplitReason] = details.pop("filters", [])
        entry = self._add_entry(
            "step", self._describe_step(node, result, is_waiting, filters), step_id=node.id,
            path=self.paths.get(node.id), type=node.kind, outcome=outcome, reason=result.reason,
            branch=None if is_waiting else kind.list_outcomes(node.props).get(result.to),
            until=clock.iso(result.until) if is_waiting else None, filters=filters,
            checked_events=(
                sorted({*simulation_events.find_event_names([{**node.props, "type": node.kind}])})
                if filters or kind.waits else []
            ),
            data=details or None,
        )  # fmt: skip
        self._steps[node.id] = entry

    def _describe_step(self, node: Node, result: StepResult, is_waiting: bool, filters: list[SplitReason]) -> str:
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
        branch = kind.list_outcomes(node.props).get(result.to)
        if branch is not None:
            return gettext("%(step)s: %(branch)s", step=summary, branch=branch)
        if result.reason == "failed":
            return gettext("%(step)s: failed, the contact exits the flow", step=summary)
        return summary

    def _report_goal(self) -> None:
        if self._get_end_reason() == "goal" and not any(entry.kind == "goal" for entry in self.entries):
            description = gettext("Goal reached: %(goal)s", goal=log.name_event(str(self.flow.goal)))
            self._add_entry("goal", description, event=self.flow.goal)

    # -- messages --------------------------------------------------------------------------------------------------

    def _report_sent(self, sent: SimulatedSend) -> None:
        """Add a message to its step's entry; to a new entry if that one has another time or a message already."""
        entry = self._steps.get(sent.step_id)
        description = simulation_timeline.describe_message(sent.message, self.zone)
        if entry is None or entry.at != clock.iso(clock.now_ms()) or entry.message is not None:
            entry = self._add_entry("message", description, step_id=sent.step_id, path=self.paths.get(sent.step_id))
        else:
            is_skipped = sent.message.status == "skipped"
            entry.description = (
                _describe_skipped(entry.description, sent.message.skip_reason) if is_skipped else description
            )
        entry.message = sent.message
        if sent.message.status in ("queued", "held") and not sent.message.is_held(clock.now_ms()):
            self._stuck_messages.add(sent.message_id)
        if sent.note is not None:
            message_name = simulation_timeline.name_message(sent.message)
            self._add_note(gettext("%(message)s: %(note)s", message=message_name, note=sent.note))
        self._schedule_after_message(sent)

    def _report_skipped(self) -> None:
        """Add the messages that were skipped or held since the last call to the entries of their steps."""
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
                entry.description = gettext("%(step)s: held until %(time)s", step=entry.description, time=time_text)
            elif entry.outcome != "skipped":
                entry.description = _describe_skipped(entry.description, reason)

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
            description = transactions.write(simulation_events.apply_assumption, assumption, self.simulated_run)
        except (ImpossibleEvent, Refused) as reason:
            event = log.name_event(assumption.event)
            self._add_note(gettext("“%(event)s” could not happen: %(reason)s", event=event, reason=reason))
            return
        self._add_entry(
            "assumed", gettext("Assumed: %(event)s", event=description), event=assumption.event,
            data=assumption.event_data or None, step_id=step_id,
        )  # fmt: skip

    def _replay(self, real_event: RealEvent) -> None:
        """Copy a real event into the sandbox, and add an entry for it if the flow refers to its name."""
        transactions.write(simulation_events.replay_event, real_event)
        if real_event.event in self._relevant_events:
            description = gettext("Recorded event: %(event)s", event=log.name_event(real_event.event))
            self._add_entry("recorded", description, event=real_event.event)

    # -- time ------------------------------------------------------------------------------------------------------

    def _get_next_moment(self, now: int, real_events: Sequence[RealEvent]) -> int | None:
        moments = [moment.at for moment in self._planned_events if moment.at is not None]
        # Other events cause no moment; they are replayed at the next moment.
        moments += [real_event.at for real_event in real_events if real_event.event in self._relevant_events][:1]
        due = scalar("SELECT due_at FROM run WHERE id = ? AND status = 'live'", (self.simulated_run.run_id,))
        moments += [moment for moment in (due, simulation_sandbox.get_next_due(self._runs_json)) if moment is not None]
        return min((moment for moment in moments if moment > now), default=None)

    def _has_later_message(self, now: int) -> bool:
        """Return whether an unsent message of the run is due after `now`."""
        due = simulation_sandbox.get_next_due(self._runs_json)
        return due is not None and due > now

    def _has_overdue_message(self, now: int) -> bool:
        """Return whether the simulation has run out of time and a due message of the run was not sent."""
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
                names = step_names.name_steps_by_id(self.flow.account_id, self.flow.steps)
                note = gettext(
                    "“%(event)s” did not happen: %(step)s sent no message",
                    event=event,
                    step=names[step_id],
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
                description = gettext("Still in the flow at the end of the simulation, %(time)s.", time=end)
            else:
                due_text = format_moment(due, self.zone)
                description = gettext(
                    "Still in the flow at the end of the simulation, %(time)s; continues %(due)s.",
                    time=end, due=due_text,
                )  # fmt: skip
            return SimulationEnd(status, None, None, step_id, description)
        description = simulation_timeline.describe_end_at(status, reason, format_moment(ended_at, self.zone))
        return SimulationEnd(status, reason, clock.iso(ended_at), step_id, description)

    # -- texts -----------------------------------------------------------------------------------------------------

    def _add_entry(self, kind: Any, description: str, **details: Any) -> SimulationEntry:
        now = clock.now_ms()
        entry = SimulationEntry(str(clock.iso(now)), kind, description, **details)
        self.entries.append(entry)
        return entry

    def _add_note(self, note: str | None) -> None:
        if note is not None and note not in self.notes:
            self.notes.append(note)


def _describe_skipped(step: str, reason: str | None) -> str:
    """Return the text of a skipped step or message, with the reason."""
    return gettext("%(step)s: skipped (%(reason)s)", step=step, reason=simulation_timeline.describe_skip(reason))
