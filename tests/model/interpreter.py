"""A reference interpreter of flows: one person, in plain Python, one thing at a time.

It says what docs/decisions.md#12, says, and knows nothing of versions, plans, rows, batches or cursors: a run holds
the steps that are still before it. Who goes first when several things can happen is nobody's promise, so `nexts`
answers each of them. Time is counted in whole hours.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.domain.filters_reference import dig, json_holds

DEEPEST = 5
Step = dict[str, Any]


class Flow(NamedTuple):
    """A flow as it stands; new runs take its steps with them."""

    id: int
    event: str
    steps: tuple[Step, ...]
    status: str = "active"
    list_id: int | None = None
    where: tuple[Any, ...] = ()
    frequency: str | int = "every_time"  # a number: hours that must lie between two runs
    goal: str | None = None


class Event(NamedTuple):
    """Something that happened to this person."""

    name: str
    data: dict[str, Any]
    depth: int = 0


class Mail(NamedTuple):
    """A message of a step of a run."""

    run: int
    step: int
    status: str
    reason: str | None = None


class Run(NamedTuple):
    """A way through a flow: what is still before it, and the trail of (step, outcome, reason, came, went)."""

    flow: int
    event: dict[str, Any]
    depth: int
    began: int
    rest: tuple[Step, ...] = ()
    came: int | None = None  # into the step where it waits
    trail: tuple[tuple[Any, ...], ...] = ()
    status: str = "live"
    reason: str | None = None


class Person(NamedTuple):
    """Somebody, with all that flows did to them; `unread` are the events that nobody has looked at, in their order."""

    data: dict[str, Any]
    lists: frozenset[int] = frozenset()
    subscribed: bool = True
    unread: tuple[Event, ...] = ()
    past: tuple[Event, ...] = ()
    runs: tuple[Run, ...] = ()
    mails: tuple[Mail, ...] = ()


def nexts(person: Person, flows: Mapping[int, Flow], now: int) -> Iterator[Person]:
    """Return each person that this one may be next."""
    if person.unread:
        yield taken_in(person, flows, now)
    for index, run in enumerate(person.runs):
        if can_go(run, flows, now):
            yield gone_on(person, index, now)
    for index, mail in enumerate(person.mails):
        flow = flows[person.runs[mail.run].flow]
        if mail.status == "queued" and flow.status == "active":
            mails = (*person.mails[:index], mail._replace(status="sent"), *person.mails[index + 1 :])
            sent = person._replace(mails=mails)
            yield told(sent, "email_sent", {"flow_id": flow.id}, person.runs[mail.run].depth + 1)


def can_go(run: Run, flows: Mapping[int, Flow], now: int) -> bool:
    """Return whether a run has a step to take at this hour."""
    waits = run.came is not None and run.came + run.rest[0]["duration"] // 3600 > now
    return run.status == "live" and flows[run.flow].status == "active" and not waits


def taken_in(person: Person, flows: Mapping[int, Flow], now: int) -> Person:
    """Look at the next event: it ends runs whose goal it is, then it starts runs."""
    event, rest = person.unread[0], person.unread[1:]
    person = person._replace(unread=rest)
    for index, run in enumerate(person.runs):
        if run.status == "live" and flows[run.flow].goal == event.name:
            person = ended(told_of(person, index, "flow_goal"), index, "completed", "goal", now)
    for flow in flows.values():
        if flow.status == "active" and means(flow, event, person):
            reason = refusal(flow, event, person, now)
            ignored = Run(flow.id, event.data, event.depth, now, status="ignored", reason=reason)
            person = person._replace(runs=(*person.runs, ignored)) if reason else begun(person, flow, event, now)
    return person


def begun(person: Person, flow: Flow, event: Event, now: int) -> Person:
    """Start a run."""
    person = person._replace(runs=(*person.runs, Run(flow.id, event.data, event.depth, now, flow.steps)))
    return told_of(person, len(person.runs) - 1, "flow_enter")


def means(flow: Flow, event: Event, person: Person) -> bool:
    """Return whether an event is what a flow begins with."""
    return (
        flow.event == event.name
        and event.data.get("flow_id") != flow.id
        and (flow.list_id is None or event.data.get("contact_list_id") == flow.list_id)
        and all(holds(one, person, event.data) for one in flow.where)
    )


def refusal(flow: Flow, event: Event, person: Person, now: int) -> str | None:
    """Return why an event that a flow begins with starts nothing."""
    before = [run for run in person.runs if run.flow == flow.id and run.status != "ignored"]
    if event.depth >= DEEPEST:
        return "depth"
    if any(run.status == "live" for run in before):
        return "already_inside"
    if before and (flow.frequency == "once" or (isinstance(flow.frequency, int)
                                                and now - before[-1].began < flow.frequency)):  # fmt: skip
        return "frequency"
    return None


def gone_on(person: Person, index: int, now: int) -> Person:
    """Take one step of a run that can go on."""
    run = person.runs[index]
    if not run.rest:
        return ended(person, index, "completed", None, now)
    step, rest = run.rest[0], run.rest[1:]
    kind, outcome, reason = step["type"], "on", None
    if kind == "wait" and run.came is None:
        return changed(person, index, came=now)
    if kind == "exit":
        return ended(person, index, "exited", "exit_step", now)
    if kind == "split":
        outcome = "yes" if all(holds(one, person, run.event) for one in step["filters"]) else "no"
        rest = (*step[outcome], *rest)
    if kind == "email":
        reason = None if person.subscribed or step.get("transactional") else "unsubscribed"
        outcome = "skipped" if reason else "on"
        mail = Mail(index, step["id"], "skipped" if reason else "queued", reason)
        person = person._replace(mails=(*person.mails, mail))
        person = told_of(person, index, "email_skipped") if reason else person
    person = acted(person, run, step)
    came = now if run.came is None else run.came
    trail = (*run.trail, (step["id"], outcome, reason, came, now))
    return changed(person, index, rest=rest, came=None, trail=trail)


def acted(person: Person, run: Run, step: Step) -> Person:
    """Do to a person what a step does."""
    list_id = step.get("contact_list_id")
    if step["type"] == "emit_event":
        forwarded = run.event if step.get("forward_event_data") else {}
        return told(person, step["event_name"], forwarded | step.get("event_data", {}), run.depth + 1)
    if step["type"] == "list_add" and list_id not in person.lists:
        person = person._replace(lists=person.lists | {list_id})
        return told(person, "list_add", {"contact_list_id": list_id}, run.depth + 1)
    if step["type"] == "list_remove" and list_id in person.lists:
        person = person._replace(lists=person.lists - {list_id})
        return told(person, "list_remove", {"contact_list_id": list_id}, run.depth + 1)
    if step["type"] == "contact_update":
        person = person._replace(data=person.data | step["data_merge"])
    return person


def ended(person: Person, index: int, status: str, reason: str | None, now: int) -> Person:
    """End a run; a step in which it stands counts as left for the reason."""
    run = person.runs[index]
    stands = bool(run.rest) and (run.came is not None or reason == "exit_step")
    came = now if run.came is None else run.came
    trail = (*run.trail, (run.rest[0]["id"], "exited", reason, came, now)) if stands else run.trail
    person = changed(person, index, status=status, reason=reason, rest=(), came=None, trail=trail)
    return told_of(person, index, "flow_exit")


def changed(person: Person, index: int, **values: Any) -> Person:
    """Return a person with one run changed."""
    runs = person.runs
    return person._replace(runs=(*runs[:index], runs[index]._replace(**values), *runs[index + 1 :]))


def told_of(person: Person, index: int, name: str) -> Person:
    """Let an event about a run happen."""
    return told(person, name, {"flow_id": person.runs[index].flow}, person.runs[index].depth + 1)


def told(person: Person, name: str, data: dict[str, Any], depth: int = 0) -> Person:
    """Let something happen to a person."""
    event = Event(name, data, depth)
    return person._replace(unread=(*person.unread, event), past=(*person.past, event))


def holds(one: dict[str, Any], person: Person, event: dict[str, Any]) -> bool:
    """Return whether a filter holds now."""
    name, predicate, value = one["name"], one["predicate"], one.get("value")
    if name == "event":
        return (sum(past.name == value["event"] for past in person.past) >= 1) == (predicate == "performed")
    if name == "contact_list":
        return (value in person.lists) == (predicate == "eq")
    if name == "contact_subscribed_email":
        return person.subscribed == (predicate == "true")
    data = event if name.startswith("event.") else person.data
    return json_holds(dig(data, name.partition(".")[2]), predicate.removeprefix("not_"), value) != (
        predicate.startswith("not_")
    )
