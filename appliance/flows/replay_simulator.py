"""Replay: one version of a flow runs against the events that really happened, with the engine of the flows.

The runs are in a sandbox, whose clock advances by intervals of a minute to a day, so that many runs advance together.
Each run has its own time (`SimulationRules.has_own_times`). Within an interval, the items of each contact keep their
order: the first item of every contact is processed together, then the second (`_split_into_layers`). Conditions that
look at the clock, such as quiet hours, see the start of the interval.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from appliance.audience.segments.condition_budget import ConditionsTooSlow
from appliance.core import clock
from appliance.events import log
from appliance.flows import drafts, engine, enrollment, simulation_sandbox, versions
from appliance.flows.replay_events import Feed, FeedItem, ItemKind
from appliance.flows.simulation import activate_in_sandbox
from appliance.flows.simulation_sandbox import SimulationSandbox
from appliance.flows.steps.base import ActiveRun, Node, SimulationRules, StepResult
from appliance.flows.triggers import TriggerSpec
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run, scalar
from appliance.storage.models import Flow, Trigger
from appliance.storage.sandbox import FIRST_SANDBOX_ID, NO_ROWS, TableRows
from appliance.storage.transactions import require_write_transaction

_MINUTE_MS = 60_000
# The length of an interval if the time of day decides, if conditions look at the clock, and if neither does. Each
# interval costs some milliseconds. The first length divides the usual quiet hours.
CLOCK_MS, RECENT_MS, FREE_MS = 30 * _MINUTE_MS, 180 * _MINUTE_MS, clock.DAY_MS
# A replay with at most this number of items has intervals of a minute.
_MAX_EXACT_ITEMS = 300
_MAX_RUNS_AT_ONCE = 1_000
# The number of SMS of a step that are rendered to count their parts; for further ones the average is used.
MAX_RENDERED_SMS = 500
# The number of items of a contact in an interval whose order is kept; further ones are processed together.
_MAX_LAYERS = 50
_MAX_ROUNDS = 500
_WORKER_ID = "replay"
_SELECT_DUE_RUNS = (
    "SELECT id, contact_id, due_at FROM run WHERE flow_id = ? AND status = 'live' AND due_at < ? ORDER BY due_at, id"
)
_SELECT_DUE_MESSAGES = (
    f"SELECT {COLUMNS}, due_at FROM message WHERE flow_id = ? AND run_id NOT NULL AND status IN ('queued', 'held') "
    "AND due_at <= ? ORDER BY due_at, id"
)

_DATE_EVENT = "UPDATE event SET created_at = ?1, updated_at = ?1 WHERE id = ?2"
# The indexes that the replay needs; all others of these tables would only slow its writes.
_INDEXES = {
    "contact": frozenset[str](),
    "event": frozenset({"event_of_contact"}),
    "message": frozenset({"message_contact_id", "message_run_step", "message_waiting"}),
    "step_visit": frozenset({"step_visit_run_id"}),
    "run": frozenset({"run_contact_id_flow_id_status_created_at_test", "run_live", "run_due"}),
}
_SELECT_HELD = (
    "SELECT id, step_id FROM message WHERE flow_id = ? AND run_id NOT NULL AND status IN ('queued', 'held') "
    "AND status = 'held'"
)


class ReplayVersion(NamedTuple):
    """A version of a flow to replay: its stored steps (None: the live ones), its trigger and its goal."""

    steps: list[dict[str, Any]] | None
    trigger: TriggerSpec
    goal: str | None


class SentMessage(NamedTuple):
    """A message of a replay: `at` is when it was sent or skipped, in Unix milliseconds; `reason` why it was skipped."""

    contact_id: int
    step_id: int
    channel: str
    at: int
    reason: str | None
    number: int  # the number of the message in the replay, in the order of creation

    @property
    def is_sent(self) -> bool:
        """Return whether the message was sent."""
        return self.reason is None


class SmsParts(Struct):
    """The SMS of a step: how many were `rendered`, the `parts` of these, and how many were `sent`."""

    rendered: int = 0
    parts: int = 0
    sent: int = 0

    @property
    def total(self) -> int:
        """Return the number of parts of all sent SMS of the step, estimated if not all were rendered."""
        return round(self.parts * self.sent / self.rendered) if self.rendered else self.sent


class ReplayOutcome(Struct):
    """The results of the replay of one version.

    `held` is the number of messages that waited for the end of quiet hours, and `sms` the parts of SMS, both by step
    id. `entered`, `ignored` (by reason) and `ends` (by status and reason) count runs. `visits` counts visits of steps
    by (step id, outcome, reason). `steps` are the steps as stored, and `notes` the problems that would prevent their
    activation.
    """

    messages: list[SentMessage] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    sms: dict[int, SmsParts] = field(default_factory=dict)
    entered: int = 0
    ignored: dict[str, int] = field(default_factory=dict)
    ends: dict[tuple[str, str | None], int] = field(default_factory=dict)
    visits: dict[tuple[int, str, str | None], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)


def choose_interval(item_count: int, resolution_ms: int) -> int:
    """Return the length of an interval in milliseconds: a minute for few items, else `resolution_ms`."""
    return _MINUTE_MS if item_count <= _MAX_EXACT_ITEMS else resolution_ms


class ReplaySandbox(SimulationSandbox):
    """The sandbox of a replay: it contains the state of the contacts at its start."""

    def _select_rows(self) -> dict[str, TableRows]:
        tables = super()._select_rows()
        contacts = {"contacts": json.dumps([*self.contact_ids])}
        of_contacts = "contact_id IN (SELECT value FROM json_each(:contacts))"
        values = {**contacts, "flow": self.flow.id, "start": self.start}
        tables["run"] = TableRows(f"{of_contacts} AND flow_id = :flow AND created_at < :start AND test = 0", values)
        message = tables["message"]
        tables["message"] = TableRows(
            f"{message.condition} AND sent_at <= :start", {**message.parameters, "start": self.start}
        )
        # A flow whose conditions cost too much is paused, with an entry in the audit log.
        tables["audit"] = NO_ROWS
        return {
            table: selection._replace(indexes=_INDEXES[table]) if table in _INDEXES else selection
            for table, selection in tables.items()
        }


class FlowReplay:
    """The replay of one version of a flow, from `start` to `end` of the feed; call `run` once.

    `report` gets the progress from 0 to 1 after each interval.
    """

    def __init__(
        self, flow: Flow, version: ReplayVersion, feed: Feed, interval_ms: int, seed: int,
        report: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._flow_row, self._version, self._feed = flow, version, feed
        self._interval, self._report = interval_ms, report
        self._rules = SimulationRules(has_own_times=True, seed=seed)
        self._outcome = ReplayOutcome()
        self._times: dict[tuple[int, int], int] = {}  # by run and step: when the run came to the step
        self._sent: dict[tuple[int, int], int] = {}  # by contact and step: when the last message was sent
        self._held: set[int] = set()
        self._contact_times: dict[int, int] = {}  # the own time of the contact's run, when it last did something
        self._last_event = 0
        self._names_json = json.dumps(sorted(feed.names))
        self._renderer = MessagePreparer()

    def run(self) -> ReplayOutcome:
        """Run the version against the feed. Raises ConditionsTooSlow if its conditions cost too much."""
        feed = self._feed
        sandbox = ReplaySandbox(self._flow_row, feed.contact_ids, feed.start, self._version.steps or ())
        # Nothing else reads the events of the sandbox, and a flow records several for each run.
        with sandbox.open() as number, log.record_only(frozenset(feed.names)):
            transactions.write(self._prepare, number)
            for start, items in self._list_intervals():
                with clock.simulated_time(start):
                    self._play(start, items)
                self._report((start - feed.start) / (feed.end - feed.start))
            self._collect()
        return self._outcome

    def _prepare(self, number: int) -> None:
        """Activate the version in the sandbox, and restore the runs that were live at the start."""
        require_write_transaction()
        version, flow_id = self._version, self._flow_row.id
        values = {**version.trigger._asdict(), "data": dict(version.trigger.data)}
        Trigger.update(**values).where(Trigger.flow == flow_id).execute()
        Flow.update(goal=version.goal, test=False, live_from=0).where(Flow.id == flow_id).execute()
        flow = Flow.get_by_id(flow_id)
        if version.steps is not None or not flow.version:
            self._outcome.notes = activate_in_sandbox(flow, version.steps, number)
        else:
            values = {"status": "active", "paused_at": None, "drop_before": None}
            Flow.update(**values).where(Flow.id == flow_id).execute()
        self.flow = Flow.get_by_id(flow_id)
        self._outcome.steps = drafts.add_contents(self.flow.steps)
        self._plan = versions.read_plan(flow_id, self.flow.version)
        run(
            "UPDATE run SET status = 'live', ended_at = NULL, due_at = NULL, step_visit_id = NULL "
            "WHERE flow_id = ? AND status IN ('live', 'completed', 'exited') AND (ended_at IS NULL OR ended_at > ?)",
            (flow_id, self._feed.start),
        )
        run("INSERT INTO cursor (name, event_id) VALUES (?, 0) ON CONFLICT DO NOTHING", (enrollment.CURSOR_NAME,))
        _skip_processed_events()
        self._feed.rewind()

    def _list_intervals(self) -> Iterator[tuple[int, Sequence[FeedItem]]]:
        """Yield the start of each interval in which anything happens, with the items of the feed in it."""
        feed, length, index = self._feed, self._interval, 0
        items = feed.items
        first = feed.start
        while True:
            moments = [items[index].at] if index < len(items) else []
            moments += [due for due in (self._get_next_run(), self._get_next_message()) if due is not None]
            if not moments:
                return
            # A past interval is not processed again: what was due in it is processed in the next one.
            start = max(first, min(moments) // length * length)
            if start >= feed.end:
                return
            until = min(start + length, feed.end)
            begin = index
            while index < len(items) and items[index].at < until:
                index += 1
            self._until = until
            yield start, items[begin:index]
            first = start + length

    def _get_next_run(self) -> int | None:
        sql = "SELECT min(due_at) FROM run WHERE flow_id = ? AND status = 'live' AND due_at IS NOT NULL"
        return rows(sql, (self.flow.id,))[0][0]  # type: ignore[no-any-return]  # a row of a statement is untyped

    def _get_next_message(self) -> int | None:
        sql = "SELECT min(due_at) FROM message WHERE flow_id = ? AND run_id NOT NULL AND status IN ('queued', 'held')"
        return rows(sql, (self.flow.id,))[0][0]  # type: ignore[no-any-return]  # a row of a statement is untyped

    # -- one interval ----------------------------------------------------------------------------------------------

    def _play(self, now: int, items: Sequence[FeedItem]) -> None:
        for layer in _split_into_layers(items):
            times = {item.contact_id: item.at for item in layer}
            self._advance(lambda contact_id, due, times=times: due < times.get(contact_id, 0))  # type: ignore[misc]  # the layer of this round
            played = [item for item in layer if self._is_played(item)]
            transactions.write(self._feed.apply, played, now)
            self._contact_times |= times
            self._last_event = int(scalar("SELECT coalesce(max(id), 0) FROM event"))
            if any(item.kind is ItemKind.EVENT for item in played):
                self._process_events(now)
        self._advance(lambda contact_id, due: True)
        # Events that the runs recorded may reach the goal, or start the flow again.
        self._process_events(now)
        self._advance(lambda contact_id, due: True)
        self._count_held()

    def _count_held(self) -> None:
        """Count the messages that wait for the end of quiet hours, each message once."""
        for message_id, step_id in rows(_SELECT_HELD, (self.flow.id,)):
            if message_id not in self._held and step_id is not None:
                self._held.add(message_id)
                self._outcome.held[step_id] = self._outcome.held.get(step_id, 0) + 1

    def _is_played(self, item: FeedItem) -> bool:
        """Return whether an item applies to this version: a reaction does only if the version has sent its message."""
        if item.kind is not ItemKind.REACTION:
            return True
        sent_at = self._sent.get((item.contact_id, item.step_id or 0))
        return sent_at is not None and sent_at <= item.at

    def _process_events(self, now: int) -> None:
        """Process the new events, which start runs, end waits and reach the goal. Raises ConditionsTooSlow."""
        if not enrollment.is_due():
            return
        last_run = int(scalar("SELECT coalesce(max(id), 0) FROM run"))
        for _ in range(_MAX_ROUNDS):
            if not enrollment.process_events():
                break
        transactions.write(_skip_processed_events)
        if scalar("SELECT status FROM flow WHERE id = ?", (self.flow.id,)) != "active":
            raise ConditionsTooSlow
        transactions.write(self._set_times, now, last_run)
        self._date_events()

    def _date_events(self) -> None:
        """Set the time of events that runs recorded to the own time of these runs, because conditions compare it."""
        new = rows(
            "SELECT id, contact_id FROM event WHERE id > ? AND event IN (SELECT value FROM json_each(?))",
            (self._last_event, self._names_json),
        )
        if new:
            dated = [(self._contact_times.get(contact_id), event_id) for event_id, contact_id in new]
            transactions.write(connection().executemany, _DATE_EVENT, [values for values in dated if values[0]])
        self._last_event = int(scalar("SELECT coalesce(max(id), 0) FROM event"))

    def _set_times(self, now: int, last_run: int) -> None:
        """Set the time of the runs that events started or woke to the own times of their contacts."""
        times = self._contact_times
        changed = rows(
            "SELECT id, contact_id, due_at FROM run WHERE flow_id = ? AND status = 'live' AND (due_at = ? OR id > ?)",
            (self.flow.id, now, last_run),
        )
        moved = [
            (times[contact_id] if due == now else due, times[contact_id] if run_id > last_run else None, run_id)
            for run_id, contact_id, due in changed
            if contact_id in times
        ]
        connection().executemany("UPDATE run SET due_at = ?, created_at = coalesce(?, created_at) WHERE id = ?", moved)

    def _advance(self, is_due: Callable[[int, int], bool]) -> None:
        """Advance the runs due in this interval if `is_due(contact id, due time)` is true, and send their messages."""
        for _ in range(_MAX_ROUNDS):
            due = [
                run_id
                for run_id, contact_id, due_at in rows(_SELECT_DUE_RUNS, (self.flow.id, self._until))
                if is_due(contact_id, due_at)
            ]
            for begin in range(0, len(due), _MAX_RUNS_AT_ONCE):
                part = due[begin : begin + _MAX_RUNS_AT_ONCE]
                transactions.write(engine.advance_runs, part, self.flow.name, self._plan, self._observe, self._rules)
            if due:
                self._date_events()
            if not self._send() and not due:
                return

    def _observe(self, node: Node, active_run: ActiveRun, result: StepResult) -> None:
        self._times[active_run.id, node.id] = active_run.due_at
        if active_run.contact_id is not None:
            self._contact_times[active_run.contact_id] = active_run.due_at

    def _send(self) -> int:
        """Send the messages that are due; return their number."""
        now = clock.now_ms()
        due = [(LedgerRow._make(row[:-1]), row[-1]) for row in rows(_SELECT_DUE_MESSAGES, (self.flow.id, now))]
        if not due:
            return 0
        claimed = transactions.write(queue.claim, [row for row, _ in due], _WORKER_ID)
        outcomes = [self._render(row) for row, _ in due if row.id in claimed]
        transactions.write(queue.record, outcomes)
        unsent = {outcome.row.id for outcome in outcomes if outcome.skip_reason is not None}
        for row, due_at in due:
            if row.contact_id is None or row.step_id is None or row.run_id is None or row.id not in claimed - unsent:
                continue
            at = max(self._times.get((row.run_id, row.step_id), now), due_at)
            self._sent[row.contact_id, row.step_id] = at
            number = row.id - FIRST_SANDBOX_ID
            self._outcome.messages.append(SentMessage(row.contact_id, row.step_id, row.channel, at, None, number))
        self._date_events()
        return len(claimed)

    def _render(self, row: LedgerRow) -> Outcome:
        """Return the outcome of a message, which counts as accepted; the first SMS of each step are rendered."""
        if row.channel != "sms" or row.step_id is None:
            return Outcome(row, sender="")
        count = self._outcome.sms.setdefault(row.step_id, SmsParts())
        if count.rendered >= MAX_RENDERED_SMS:
            count.sent += 1
            return Outcome(row, sender="")
        outcome, _ = simulation_sandbox.render_message(row, self._renderer)
        if outcome.skip_reason is None:
            count.sent += 1
            if outcome.prepared is not None:
                count.rendered += 1
                count.parts += outcome.prepared.parts or 1
        return outcome

    # -- the result ------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        outcome, flow_id = self._outcome, self.flow.id
        first = FIRST_SANDBOX_ID
        skipped = rows(
            f"SELECT {COLUMNS}, skip_reason, updated_at FROM message WHERE flow_id = ? AND id >= ? "
            "AND status = 'skipped'",
            (flow_id, first),
        )
        for *columns, reason, updated_at in skipped:
            row = LedgerRow._make(columns)
            if row.contact_id is not None and row.step_id is not None and row.run_id is not None:
                at = self._times.get((row.run_id, row.step_id), updated_at)
                number = row.id - first
                outcome.messages.append(SentMessage(row.contact_id, row.step_id, row.channel, at, reason, number))
        outcome.messages.sort(key=lambda message: (message.at, message.contact_id, message.number))
        for status, reason, count in rows(
            "SELECT status, exit_reason, count(*) FROM run WHERE flow_id = ? AND id >= ? GROUP BY 1, 2 ORDER BY 1, 2",
            (flow_id, first),
        ):
            if status == "ignored":
                outcome.ignored[reason] = count
            else:
                outcome.entered += count
                outcome.ends[status, reason] = count
        outcome.visits = {
            (step_id, result or "waiting", reason): count
            for step_id, result, reason, count in rows(
                "SELECT action_id, outcome, reason, count(*) FROM step_visit WHERE flow_id = ? GROUP BY 1, 2, 3 "
                "ORDER BY 1, 2, 3",
                (flow_id,),
            )
        }


def _skip_processed_events() -> None:
    """Mark all events of the sandbox as processed, so that later calls do not depend on how long this one took."""
    require_write_transaction()
    run(
        "UPDATE cursor SET event_id = (SELECT coalesce(max(id), 0) FROM event) WHERE name = ?",
        (enrollment.CURSOR_NAME,),
    )


def _split_into_layers(items: Sequence[FeedItem]) -> Iterator[list[FeedItem]]:
    """Yield the items in layers: the first items of all contacts, then their second ones, and so on."""
    counts: Counter[int] = Counter()
    layers: list[list[FeedItem]] = []
    for item in items:
        number = min(counts[item.contact_id], _MAX_LAYERS - 1)
        counts[item.contact_id] += 1
        if number == len(layers):
            layers.append([])
        layers[number].append(item)
    yield from layers
