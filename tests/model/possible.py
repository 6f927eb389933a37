"""What may have become of a person once nothing is left to do: every order of things that nobody promised."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.model.interpreter import Event, Flow, Person, Run, Step, can_go, gone_on, means, nexts

# A world that branches wider is left to examples that do not
MOST = 5_000
MAX_IN_EVERY = 300


class TooMany(Exception):
    """There are more orders than anybody wants to try."""


def settled(people: Iterable[Person], flows: Mapping[int, Flow], now: int, every: bool = False) -> list[Person]:
    """Return each person that one of these may be when nothing is left to do at this hour; `every` tries all orders."""
    world = World(flows, now)
    seen: set[str] = set()
    ends: dict[str, Person] = {}
    todo = [normal(one, world) for one in people]
    while todo:
        person = todo.pop()
        key = key_of(person)
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > (MAX_IN_EVERY if every else MOST):
            raise TooMany
        ways = nexts(person, flows, now) if every else _following(person, world)
        following = [normal(one, world) for one in ways]
        if not following:
            ends[key] = person
        todo += following
    return list(ends.values())


class Touch(NamedTuple):
    """What something looks at and what it changes: `seen`, `list 3`, `past m_own`, and `queue`, of unread events."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def __or__(self, other: tuple[Any, ...]) -> "Touch":
        return Touch(self.reads | other[0], self.writes | other[1])

    def disturbs(self, other: "Touch") -> bool:
        """Return whether it makes a difference which of two is first."""
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


class World:
    """All flows at an hour, and what each of them touches."""

    def __init__(self, flows: Mapping[int, Flow], now: int) -> None:
        self.flows, self.now = flows, now
        self.matter = {flow.event for flow in flows.values()} | {flow.goal for flow in flows.values()}
        self.goals = {flow.goal for flow in flows.values() if flow.status != "deleted"}
        self.emitted: set[str] = set()
        self.mail = self.told("email_sent")
        self.touched = {
            flow.id: self.touch(flow.steps) | self.told("flow_enter", "flow_exit", "flow_goal")
            for flow in flows.values()
        }  # fmt: skip

    def told(self, *names: str) -> Touch:
        """Return what it touches that events are told."""
        self.emitted |= set(names)
        queue = {"queue"} if self.matter & set(names) else set()
        return Touch(writes=frozenset({f"past {name}" for name in names} | queue))

    def touch(self, steps: Iterable[Step]) -> Touch:
        """Return what steps touch, with all in their branches."""
        found = Touch()
        for step in steps:
            found = found | self.single(step) | self.touch(step.get("yes", ())) | self.touch(step.get("no", ()))
        return found

    def single(self, step: Step) -> Touch:
        """Return what one step touches by itself."""
        kind = step["type"]
        if kind == "split":
            return Touch(frozenset(_asked(one) for one in step["filters"]))
        if kind in ("list_add", "list_remove"):
            group = frozenset({f"list {step['contact_list_id']}"})
            return Touch(group, group) | self.told(kind)
        if kind == "contact_update":
            return Touch(writes=frozenset({"seen"}))
        return self.told(*{"emit_event": (step.get("event_name"),), "email": ("email_skipped",)}.get(kind, ()))

    def is_alone(self, run: Run, person: Person) -> bool:
        """Return whether a run may take its next step before anything else happens without a difference."""
        flow = self.flows[run.flow]
        to_come = self.emitted | {event.name for event in person.unread}
        if flow.goal in to_come:
            return False
        if not run.rest or run.rest[0]["type"] == "exit":
            touch = self.told("flow_exit")
            if flow.event in to_come:
                return False
        else:
            touch = self.single(run.rest[0])
        others = [self.touched[other] for other in self.flows if other != run.flow]
        return not any(touch.disturbs(other) for other in [*others, self.mail])


def _asked(one: dict[str, Any]) -> str:
    """Return what a filter looks at."""
    if one["name"] == "event":
        return f"past {one['value']['event']}"
    return f"list {one['value']}" if one["name"] == "contact_list" else one["name"].rpartition(".")[2]


def normal(person: Person, world: World) -> Person:
    """Put aside what makes no difference: events that no flow looks for, and the order of what is over."""
    return person._replace(
        unread=tuple(event for event in person.unread if _means_something(event, person, world)),
        past=tuple(sorted(person.past, key=repr)),
        mails=tuple(sorted(person.mails, key=repr)),
    )


def _means_something(event: Event, person: Person, world: World) -> bool:
    return event.name in world.goals or any(
        flow.status == "active" and means(flow, event, person) for flow in world.flows.values()
    )


def key_of(person: Person) -> str:
    """Write a person so that two are alike if they are."""
    runs = [run._replace(rest=tuple(step["id"] for step in run.rest)) for run in person.runs]
    return repr((sorted(person.data.items()), sorted(person.lists), person.subscribed, person.unread, person.past,
                 runs, person.mails))  # fmt: skip


def _following(person: Person, world: World) -> Iterator[Person]:
    """Return what may be next; what nobody else can notice or disturb goes first, for its place is no matter."""
    for index, run in enumerate(person.runs):
        if can_go(run, world.flows, world.now) and world.is_alone(run, person):
            yield gone_on(person, index, world.now)
            return
    yield from nexts(person, world.flows, world.now)


def outline(person: Person, names: Iterable[str]) -> dict[str, Any]:
    """Return what can be seen of a person from outside: runs with their trails, messages, events of these names."""
    runs = [
        (run.flow, run.status, run.reason, run.trail,
         (run.rest[0]["id"], run.came) if run.came is not None and run.status == "live" else None)
        for run in person.runs
    ]  # fmt: skip
    mails = [(person.runs[mail.run].flow, mail.step, mail.status, mail.reason) for mail in person.mails]
    past = Counter((event.name, event.depth, event.data.get("flow_id")) for event in person.past)
    return {
        "runs": sorted(runs, key=repr),
        "mails": sorted(mails, key=repr),
        "events": sorted((key, number) for key, number in past.items() if key[0] in names),
        "lists": sorted(person.lists),
        "data": person.data,
    }
