"""What may have become of a person once nothing is left to do: every order of things that nobody promised."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.model.interpreter import Flow, Person, Run, can_go, gone_on, nexts

# A world that branches wider is left to examples that do not
MOST = 5_000


class TooMany(Exception):
    """There are more orders than anybody wants to try."""


def settled(people: Iterable[Person], flows: Mapping[int, Flow], now: int) -> list[Person]:
    """Answer each person that one of these may be when nothing is left to do at this hour."""
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
        if len(seen) > MOST:
            raise TooMany
        following = [normal(one, world) for one in _following(person, world)]
        if not following:
            ends[key] = person
        todo += following
    return list(ends.values())


class World:
    """All flows at an hour: which events start or end something, and which are asked about."""

    def __init__(self, flows: Mapping[int, Flow], now: int) -> None:
        self.flows, self.now = flows, now
        self.matter = {flow.event for flow in flows.values()} | {flow.goal for flow in flows.values()}
        self.noticed = self.matter | set(_asked([flow.steps for flow in flows.values()]))


def _asked(part: Any) -> Iterator[str]:
    """Answer the names of events that filters somewhere in steps count."""
    if isinstance(part, dict):
        if part.get("name") == "event":
            yield part["value"]["event"]
        part = list(part.values())
    if isinstance(part, list | tuple):
        for one in part:
            yield from _asked(one)


def normal(person: Person, world: World) -> Person:
    """Put aside what makes no difference: events that no flow looks for, and the order of what is over."""
    return person._replace(
        unread=tuple(event for event in person.unread if event.name in world.matter),
        past=tuple(sorted(person.past, key=repr)),
        mails=tuple(sorted(person.mails, key=repr)),
    )


def key_of(person: Person) -> str:
    """Write a person so that two are alike if they are."""
    runs = [run._replace(rest=tuple(step["id"] for step in run.rest)) for run in person.runs]
    return repr((sorted(person.data.items()), sorted(person.lists), person.subscribed, person.unread, person.past,
                 runs, person.mails))  # fmt: skip


def _following(person: Person, world: World) -> Iterator[Person]:
    """Answer what may be next; what nobody else can notice or disturb goes first, for its place is no matter."""
    for index, run in enumerate(person.runs):
        if can_go(run, world.flows, world.now) and _is_alone(run, world):
            yield gone_on(person, index, world.now)
            return
    yield from nexts(person, world.flows, world.now)


def _is_alone(run: Run, world: World) -> bool:
    if not run.rest or world.flows[run.flow].goal is not None:
        return False
    step = run.rest[0]
    if step["type"] == "split":
        return all(one["name"].startswith("event.") for one in step["filters"])
    told = {"email": "email_skipped", "emit_event": step.get("event_name"), "wait": None}
    return step["type"] in told and told[step["type"]] not in world.noticed - {None}


def outline(person: Person, names: Iterable[str]) -> dict[str, Any]:
    """Answer what can be seen of a person from outside: runs with their trails, messages, events of these names."""
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
