"""The states in which a contact may end up: all orders of changes whose order is not defined."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.model.interpreter import (
    Contact,
    Event,
    Flow,
    Run,
    Step,
    advance_run,
    can_advance,
    get_branches,
    is_triggered_by,
    next_states,
)

# Examples with more states are given up
MAX_STATES = 5_000
MAX_STATES_OF_ALL_ORDERS = 300
CONSENT = frozenset({"contact_subscribed_email"})


class TooManyStates(Exception):
    """There are more states than the limit."""


def final_states(
    contacts: Iterable[Contact], flows: Mapping[int, Flow], now: int, every: bool = False
) -> list[Contact]:
    """Return the states in which contacts may be when nothing is left to do at this hour.

    `every` tries all orders, else equivalent orders are skipped. Raises TooManyStates.
    """
    return [contact for contact, is_final in _search(contacts, FlowSet(flows, now), every) if is_final]


def states_before_event(
    contacts: Iterable[Contact], flows: Mapping[int, Flow], now: int, name: str, every: bool = False
) -> list[Contact]:
    """Return the states in which contacts may be when an event of this name is recorded at this hour.

    The service may have done none, some or all of its work by then. `every` and errors are as in `final_states`.
    """
    return [contact for contact, _ in _search(contacts, FlowSet(flows, now, (name,)), every)]


def _search(contacts: Iterable[Contact], flow_set: "FlowSet", every: bool = False) -> Iterator[tuple[Contact, bool]]:
    """Yield each state that may be reached, and whether nothing is left to do in it."""
    seen: set[str] = set()
    todo = [normalize(state, flow_set) for state in contacts]
    while todo:
        contact = todo.pop()
        key = state_key(contact)
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > (MAX_STATES_OF_ALL_ORDERS if every else MAX_STATES):
            raise TooManyStates
        successors = next_states(contact, flow_set.flows, flow_set.now) if every else _successors(contact, flow_set)
        following = [normalize(state, flow_set) for state in successors]
        yield contact, not following
        todo += following


class Effects(NamedTuple):
    """What a change reads and writes: `seen`, `list 3`, `past m_own`, and `queue`, the unread events."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def __or__(self, other: tuple[Any, ...]) -> "Effects":
        return Effects(self.reads | other[0], self.writes | other[1])

    def disturbs(self, other: "Effects") -> bool:
        """Return whether the order of the two changes matters."""
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


class FlowSet:
    """All flows at an hour, the effects of each, and the names of events that are about to be recorded."""

    def __init__(self, flows: Mapping[int, Flow], now: int, coming: Iterable[str] = ()) -> None:
        self.flows, self.now = flows, now
        self.relevant_events = {flow.event for flow in flows.values()} | {flow.goal for flow in flows.values()}
        self.goals = {flow.goal for flow in flows.values() if flow.status != "deleted"}
        self.emitted: set[str] = set()
        self.mail_effects = self.effects_of_events("email_sent", "email_skipped") | (CONSENT, frozenset())
        self.coming_effects = self.effects_of_events(*coming)
        self.flow_effects = {
            flow.id: self.effects_of_steps(flow.steps) | self.effects_of_events("flow_enter", "flow_exit", "flow_goal")
            for flow in flows.values()
        }  # fmt: skip

    def effects_of_events(self, *names: str) -> Effects:
        """Return the effects of recording events."""
        self.emitted |= set(names)
        queue = {"queue"} if self.relevant_events & set(names) else set()
        return Effects(writes=frozenset({f"past {name}" for name in names} | queue))

    def effects_of_steps(self, steps: Iterable[Step]) -> Effects:
        """Return the effects of steps and of the steps in their branches."""
        effects = Effects()
        for step in steps:
            effects |= self.effects_of_step(step)
            for nested in get_branches(step).values():
                effects |= self.effects_of_steps(nested)
        return effects

    def effects_of_step(self, step: Step) -> Effects:
        """Return the effects of one step without its branches."""
        kind = step["type"]
        if kind == "split":
            return Effects(frozenset(_filter_subject(condition) for condition in step["filters"]))
        if step.get("until") == "event":
            return Effects(frozenset({f"past {step['event_name']}"}))
        if kind == "split_value":
            return Effects(frozenset({step["field"].rpartition(".")[2]}))
        if kind in ("list_add", "list_remove"):
            group = frozenset({f"list {step['contact_list_id']}"})
            return Effects(group, group) | self.effects_of_events(kind)
        if kind in ("tag_add", "tag_remove"):
            return Effects(frozenset({"tags"}), frozenset({"tags"})) | self.effects_of_events(kind)
        if kind in ("contact_update", "http_request"):
            return Effects(writes=frozenset({"seen"}))
        if kind == "unsubscribe":
            return Effects(CONSENT, CONSENT)
        if kind == "email":
            return Effects(frozenset() if step.get("transactional") else CONSENT) | self.effects_of_events(
                "email_skipped"
            )
        return self.effects_of_events(*((step["event_name"],) if kind == "emit_event" else ()))

    def is_independent(self, run: Run, contact: Contact) -> bool:
        """Return whether a run may take its next step first without changing the outcome."""
        flow = self.flows[run.flow]
        # Other runs may have steps that their flow has no longer
        live_steps = [self.effects_of_steps(_list_coming(other)) for other in contact.runs if other.status == "live"]
        own_steps = self.effects_of_steps(_list_coming(run))
        to_come = self.emitted | {event.name for event in contact.unread}
        if flow.goal in to_come:
            return False
        if not run.rest or run.rest[0]["type"] == "exit":
            effects_of_steps = self.effects_of_events("flow_exit")
            if flow.event in to_come:
                return False
        else:
            effects_of_steps = self.effects_of_step(run.rest[0])
        live_steps.remove(own_steps)
        others = [*live_steps, *(self.flow_effects[other] for other in self.flows if other != run.flow)]
        others += [self.mail_effects, self.coming_effects]
        return not any(effects_of_steps.disturbs(other) for other in others)


def _list_coming(run: Run) -> tuple[Step, ...]:
    """Return the steps that a run may still take."""
    return (*run.rest, *run.steps) if any(step["type"] == "go_to" for step in run.rest) else run.rest


def _filter_subject(condition: dict[str, Any]) -> str:
    """Return what a filter reads."""
    if condition["name"] == "event":
        return f"past {condition['value']['event']}"
    return f"list {condition['value']}" if condition["name"] == "contact_list" else condition["name"].rpartition(".")[2]


def normalize(contact: Contact, flow_set: FlowSet) -> Contact:
    """Drop unread events that no flow looks for, and sort past events and messages."""
    return contact._replace(
        unread=tuple(event for event in contact.unread if _is_relevant(event, contact, flow_set)),
        past=tuple(sorted(contact.past, key=repr)),
        mails=tuple(sorted(contact.mails, key=repr)),
    )


def _is_relevant(event: Event, contact: Contact, flow_set: FlowSet) -> bool:
    return event.name in flow_set.goals or any(
        flow.status == "active" and is_triggered_by(flow, event, contact) for flow in flow_set.flows.values()
    )


def state_key(contact: Contact) -> str:
    """Return a text that is equal for equal states."""
    runs = [run._replace(rest=tuple(step["id"] for step in run.rest), steps=()) for run in contact.runs]
    return repr((sorted(contact.data.items()), sorted(contact.lists), contact.subscribed, contact.unread, contact.past,
                 runs, contact.mails))  # fmt: skip


def _successors(contact: Contact, flow_set: FlowSet) -> Iterator[Contact]:
    """Yield the states that may follow; a step that nothing depends on is taken first, as the only one."""
    for index, run in enumerate(contact.runs):
        if can_advance(contact, index, flow_set.flows, flow_set.now) and flow_set.is_independent(run, contact):
            yield from advance_run(contact, index, flow_set.now)
            return
    yield from next_states(contact, flow_set.flows, flow_set.now)


def outline(contact: Contact, names: Iterable[str]) -> dict[str, Any]:
    """Return what is visible of a contact from outside: runs with trails, messages, and events of these names."""
    runs = [
        (run.flow, run.status, run.reason, run.trail,
         (run.rest[0]["id"], run.entered) if run.entered is not None and run.status == "live" else None)
        for run in contact.runs
    ]  # fmt: skip
    mails = [(contact.runs[mail.run].flow, mail.step, mail.status, mail.reason) for mail in contact.mails]
    past = Counter((event.name, event.depth, event.data.get("flow_id")) for event in contact.past)
    return {
        "runs": sorted(runs, key=repr),
        "mails": sorted(mails, key=repr),
        "events": sorted(((key, number) for key, number in past.items() if key[0] in names), key=repr),
        "lists": sorted(contact.lists),
        "data": contact.data,
    }
