"""Determine the effects of new events on flows: runs that start, waits that end, and goals that are reached.

`enrollment` applies these effects.
"""

import json
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from appliance.audience.segments.condition_budget import ConditionsTooSlow
from appliance.flows import event_waits, triggers
from appliance.flows.condition_limits import MAX_COSTLY_CONTACTS, Budget
from appliance.flows.event_waits import EventWait
from appliance.flows.triggers import MANUAL, TriggerSpec
from appliance.storage.database import rows

# The largest number of events that are matched at once.
MAX_EVENTS = 1_000


class Event(NamedTuple):
    """An event that may start a run or reach a goal."""

    id: int
    account_id: int
    contact_id: int
    event: str
    chain_depth: int
    test: bool
    recorded_at: int  # Unix milliseconds
    quiet: bool  # starts nothing, but may reach a goal
    happened_at: int  # Unix milliseconds
    size: int  # bytes of its data


class LiveFlow(NamedTuple):
    """An active flow with its trigger; only events with ids above `live_from` start it."""

    account_id: int
    flow_id: int
    live_from: int
    trigger: TriggerSpec


class Goal(NamedTuple):
    """The event that completes the runs of a flow."""

    account_id: int
    flow_id: int
    event: str


class EffectKind(IntEnum):
    """The kinds of effects of an event on a flow, in the order in which those of one event are applied."""

    GOAL = 1  # a contact reaches the goal
    WAIT = 2  # the wait of a run for this event ends
    START = 3  # a contact enters
    COSTLY_WAIT = 4  # the run of a contact for whom the wait costs too much ends
    COSTLY_START = 5  # a contact for whom the trigger costs too much does not enter


class Effect(NamedTuple):
    """The effect of an event on one flow."""

    event: Event
    flow_id: int
    kind: EffectKind


def load_live_flows() -> list[LiveFlow]:
    """Return the active flows that an event can start."""
    return [
        LiveFlow(row[0], row[1], row[2], TriggerSpec(row[3], row[4], row[5], msgspec.json.decode(row[6])))
        for row in rows(
            "SELECT f.account_id, f.id, f.live_from, t.event, t.segment_id, t.contact_list_id, t.data "
            f"FROM flow f CROSS JOIN trigger t ON t.flow_id = f.id "
            f"WHERE f.status = 'active' AND f.hidden = 0 AND f.deleted_at IS NULL AND t.event <> '{MANUAL}'"
        )
    ]


def load_goals() -> list[Goal]:
    """Return the goals of active flows, and of other flows with live runs, because these may still send messages."""
    return [
        Goal(*row)
        for row in rows(
            "SELECT f.account_id, f.id, f.goal FROM flow f WHERE f.goal IS NOT NULL AND f.hidden = 0 "
            "AND f.deleted_at IS NULL AND (f.status = 'active' "
            "OR EXISTS (SELECT 1 FROM run r WHERE r.flow_id = f.id AND r.status = 'live'))"
        )
    ]


def fetch_events(cursor: int, newest: int, names: set[str], late_names: Collection[str] = ()) -> list[Event]:
    """Return up to `MAX_EVENTS` events with these names after the cursor up to `newest`, in order.

    Quiet events are left out unless their name is in `late_names`.
    """
    return [
        Event(*row)
        for row in rows(
            "SELECT e.id, e.account_id, e.contact_id, e.event, e.chain_depth, e.test, e.updated_at, e.quiet, "
            "e.created_at, octet_length(e.data) FROM event e WHERE e.id > ? AND e.id <= ? "
            f"AND +e.contact_id IS NOT NULL AND +e.event IN (SELECT value FROM json_each(?)) "
            f"AND (e.quiet = 0 OR +e.event IN (SELECT value FROM json_each(?))) "
            f"AND {triggers.MACHINE_EVENT_SQL.format('e')} IS NOT TRUE ORDER BY e.id LIMIT ?",
            (cursor, newest, json.dumps(sorted(names)), json.dumps(sorted(late_names)), MAX_EVENTS),
        )
    ]


def list_effects(
    events: Sequence[Event],
    flows: Sequence[LiveFlow],
    goals: Sequence[Goal],
    waits: Sequence[EventWait] = (),
) -> tuple[list[Effect], set[int]]:
    """Return the effects of events, and the ids of the flows whose conditions cost too much.

    For such a flow, at least the effects on its goal are returned; its other effects may be incomplete.
    """
    effects: list[Effect] = []
    slow_flows: set[int] = set()
    matchers: dict[int, _Matcher] = {}
    by_name: dict[tuple[int, str], list[Event]] = {}
    for event in events:
        by_name.setdefault((event.account_id, event.event), []).append(event)
    for goal in goals:
        goal_events = by_name.get((goal.account_id, goal.event), ())
        effects += [Effect(event, goal.flow_id, EffectKind.GOAL) for event in goal_events]
    for wait in waits:
        awaited = by_name.get((wait.account_id, wait.event), [])
        matcher = matchers.setdefault(wait.account_id, _Matcher())
        try:
            effects += matcher.match_wait(wait, awaited) if wait.flow_id not in slow_flows else ()
        except ConditionsTooSlow:
            slow_flows.add(wait.flow_id)
    for flow in flows:
        candidates = [
            event
            for event in by_name.get((flow.account_id, flow.trigger.event), ())
            if event.id > flow.live_from and not event.quiet
        ]
        matcher = matchers.setdefault(flow.account_id, _Matcher())
        try:
            effects += matcher.match_trigger(flow, candidates) if flow.flow_id not in slow_flows else ()
        except ConditionsTooSlow:
            slow_flows.add(flow.flow_id)
    return effects, slow_flows


# The limit of a flow is divided by these for the check of all events together, and for that of one contact's events.
_PART_OF_ALL, _PART_OF_CONTACT = 2, 20


class _Matcher:
    """Matches the events of an account within its budget, and finds the contacts that cost too much.

    If a contact was costly for one flow, its events are checked separately for the next flows.
    """

    def __init__(self) -> None:
        self._budget = Budget()
        self._costly: set[int] = set()

    def match_wait(self, wait: EventWait, events: Sequence[Event]) -> list[Effect]:
        """Return the effects of events on the runs that wait for them; raises ConditionsTooSlow."""

        def match(event_ids: list[int], part: int) -> set[int]:
            return {event_id for event_id, _ in event_waits.match_events(wait, event_ids, self._budget, part)}

        return self._match(wait.flow_id, events, match, EffectKind.WAIT, EffectKind.COSTLY_WAIT)

    def match_trigger(self, flow: LiveFlow, events: Sequence[Event]) -> list[Effect]:
        """Return the effects of events that start runs of a flow; raises ConditionsTooSlow."""

        def match(event_ids: list[int], part: int) -> set[int]:
            return set(
                triggers.match_events(flow.account_id, flow.flow_id, flow.trigger, event_ids, self._budget, part)
            )

        return self._match(flow.flow_id, events, match, EffectKind.START, EffectKind.COSTLY_START)

    def _match(
        self,
        flow_id: int,
        events: Sequence[Event],
        match: Callable[[list[int], int], set[int]],
        kind: EffectKind,
        costly_kind: EffectKind,
    ) -> list[Effect]:
        """Match the events of all contacts together; if that costs too much, match those of each contact separately.

        Raises ConditionsTooSlow if `MAX_COSTLY_CONTACTS` contacts cost too much, or if the budget is used up.
        """
        together = [event for event in events if event.contact_id not in self._costly]
        alone = [event for event in events if event.contact_id in self._costly]
        matching: set[int] = set()
        try:
            matching |= match([event.id for event in together], _PART_OF_ALL) if together else set()
        except ConditionsTooSlow:
            alone = list(events)
        by_contact: dict[int, list[Event]] = {}
        for event in alone:
            by_contact.setdefault(event.contact_id, []).append(event)
        costly: set[int] = set()
        for contact_id, contact_events in by_contact.items():
            if self._budget.is_used_up(flow_id) or len(costly) >= MAX_COSTLY_CONTACTS:
                raise ConditionsTooSlow
            try:
                matching |= match([event.id for event in contact_events], _PART_OF_CONTACT)
            except ConditionsTooSlow:
                costly.add(contact_id)
        self._costly |= costly
        return [Effect(event, flow_id, kind) for event in events if event.id in matching] + [
            Effect(by_contact[contact_id][-1], flow_id, costly_kind) for contact_id in costly
        ]
