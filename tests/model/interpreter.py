"""A reference interpreter of flows: one contact, in plain Python, one change at a time.

It implements docs/decisions.md#12 without versions, plans, rows, batches or cursors: a run holds its remaining steps.
Where the order of changes is not defined, `next_states` returns each possibility. Time is counted in whole hours.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.domain.filters_reference import get_path, json_matches
from tests.model.answers import SEEN, STATUSES

MAX_CHAIN_DEPTH = 5
Step = dict[str, Any]


def get_branches(step: Step) -> dict[str, Any]:
    """Return the steps of each branch of a step by its key."""
    listed = {item["key"]: item["steps"] for item in step.get("branches", ())}
    return listed | {key: step[key] for key in ("yes", "no", "else") if key in step}


def map_branches(step: Step, change: Callable[[Any], Any]) -> Step:
    """Return a step with the result of `change` in place of the steps of each branch."""
    changed = {key: change(value) if key in ("yes", "no", "else") else value for key, value in step.items()}
    if "branches" in step:
        changed["branches"] = [item | {"steps": change(item["steps"])} for item in step["branches"]]
    return changed


class Flow(NamedTuple):
    """A flow in its current state; new runs copy its steps."""

    id: int
    event: str
    steps: tuple[Step, ...]
    status: str = "active"
    list_id: int | None = None
    where: tuple[Any, ...] = ()
    frequency: str | int = "every_time"  # a number is the minimum of hours between two starts
    goal: str | None = None
    held_out: frozenset[int] = frozenset()  # the numbers of the contacts whom its holdout group keeps out


class Event(NamedTuple):
    """An event of the contact."""

    name: str
    data: dict[str, Any]
    depth: int = 0


class Mail(NamedTuple):
    """A message of a step of a run."""

    run: int
    step: int
    status: str
    reason: str | None = None
    transactional: bool = False


class Run(NamedTuple):
    """A run of a flow: its remaining steps, and its trail of (step, outcome, reason, entered, left)."""

    flow: int
    event: dict[str, Any]
    depth: int
    started: int
    rest: tuple[Step, ...] = ()
    entered: int | None = None  # when it entered the step where it waits
    heard: bool = False  # whether the event that it waits for there has happened
    trail: tuple[tuple[Any, ...], ...] = ()
    status: str = "live"
    reason: str | None = None
    steps: tuple[Step, ...] = ()  # all steps of the run, for jumps


class Contact(NamedTuple):
    """A contact with the effects of flows on it; `unread` are unprocessed events, oldest first."""

    data: dict[str, Any]
    lists: frozenset[int] = frozenset()
    subscribed: bool = True
    unread: tuple[Event, ...] = ()
    past: tuple[Event, ...] = ()
    runs: tuple[Run, ...] = ()
    mails: tuple[Mail, ...] = ()
    number: int = 0  # its number in the example


def next_states(contact: Contact, flows: Mapping[int, Flow], now: int) -> Iterator[Contact]:
    """Yield each state that may follow this one."""
    if contact.unread:
        yield process_event(contact, flows, now)
    for index in range(len(contact.runs)):
        if can_advance(contact, index, flows, now):
            yield from advance_run(contact, index, now)
    for index, mail in enumerate(contact.mails):
        flow = flows[contact.runs[mail.run].flow]
        if mail.status == "queued" and flow.status == "active":
            is_allowed = contact.subscribed or mail.transactional
            mail = (
                mail._replace(status="sent") if is_allowed else mail._replace(status="skipped", reason="unsubscribed")
            )
            settled = contact._replace(mails=(*contact.mails[:index], mail, *contact.mails[index + 1 :]))
            name = "email_sent" if is_allowed else "email_skipped"
            yield record_event(settled, name, {"flow_id": flow.id}, contact.runs[mail.run].depth + 1)


def can_advance(contact: Contact, index: int, flows: Mapping[int, Flow], now: int) -> bool:
    """Return whether a run can take a step at this hour."""
    run, waits = contact.runs[index], False
    if run.entered is not None:
        end = get_wait_end(run.rest[0], run.entered)
        waits = _has_unsent_mail(contact, index) if end is None else end > now and not run.heard
    return run.status == "live" and flows[run.flow].status == "active" and not waits


def get_wait_end(step: Step, entered: int) -> int | None:
    """Return the hour in which a wait ends if nothing happens, or None for a step that waits for something else."""
    if step["type"] == "wait":
        return int(entered + step["duration"] // 3600)
    if step.get("until") == "event":
        return int(entered + step["timeout"] // 3600)
    if step["type"] == "http_request":
        return entered  # the response comes in the same hour
    # The moment is in the middle of an hour, and hours are looked at when they begin.
    return None if "hour" not in step else int(entered + (step["hour"] - entered) % 24 + 1)


def _has_unsent_mail(contact: Contact, index: int) -> bool:
    return any(mail.run == index and mail.status == "queued" and not mail.transactional for mail in contact.mails)


def process_event(contact: Contact, flows: Mapping[int, Flow], now: int) -> Contact:
    """Process the next event: end the runs whose goal it is, then start runs."""
    event, rest = contact.unread[0], contact.unread[1:]
    contact = contact._replace(unread=rest)
    for index, run in enumerate(contact.runs):
        if run.status == "live" and flows[run.flow].goal == event.name:
            contact = end_run(record_run_event(contact, index, "flow_goal"), index, "completed", "goal", now)
            contact = cancel_mails(contact, index)
    for flow in flows.values():
        if flow.status == "active" and is_triggered_by(flow, event, contact):
            reason = ignore_reason(flow, event, contact, now)
            if reason == "held_out" and is_recorded(contact, flow):
                continue
            ignored = Run(flow.id, event.data, event.depth, now, status="ignored", reason=reason)
            contact = (
                contact._replace(runs=(*contact.runs, ignored)) if reason else start_run(contact, flow, event, now)
            )
    return contact


def cancel_mails(contact: Contact, index: int) -> Contact:
    """Cancel the marketing messages of a run that are not sent."""
    mails = tuple(
        mail._replace(status="cancelled") if (mail.run, mail.status, mail.transactional) == (index, "queued", False)
        else mail
        for mail in contact.mails
    )  # fmt: skip
    return contact._replace(mails=mails)


def start_run(contact: Contact, flow: Flow, event: Event, now: int) -> Contact:
    """Start a run."""
    contact = contact._replace(
        runs=(*contact.runs, Run(flow.id, event.data, event.depth, now, flow.steps, steps=flow.steps))
    )
    return record_run_event(contact, len(contact.runs) - 1, "flow_enter")


def is_triggered_by(flow: Flow, event: Event, contact: Contact) -> bool:
    """Return whether an event matches the trigger of a flow."""
    return (
        flow.event == event.name
        and event.data.get("flow_id") != flow.id
        and (flow.list_id is None or event.data.get("contact_list_id") == flow.list_id)
        and all(matches_filter(condition, contact, event.data) for condition in flow.where)
    )


def is_recorded(contact: Contact, flow: Flow) -> bool:
    """Return whether it is recorded already that the contact is held out of a flow, which is done once."""
    return any((run.flow, run.reason) == (flow.id, "held_out") for run in contact.runs)


def ignore_reason(flow: Flow, event: Event, contact: Contact, now: int) -> str | None:
    """Return why a matching event starts no run, or None if it does."""
    before = [run for run in contact.runs if run.flow == flow.id and run.status != "ignored"]
    if event.depth >= MAX_CHAIN_DEPTH:
        return "depth"
    if any(run.status == "live" for run in before):
        return "already_inside"
    if before and (flow.frequency == "once" or (isinstance(flow.frequency, int)
                                                and now - before[-1].started < flow.frequency)):  # fmt: skip
        return "frequency"
    return "held_out" if contact.number in flow.held_out else None


def advance_run(contact: Contact, index: int, now: int) -> Iterator[Contact]:
    """Yield the states after one step of a run that can advance: one for each branch that chance may choose."""
    step = next(iter(contact.runs[index].rest), None)
    if step is None or step["type"] != "random_split":
        yield take_step(contact, index, now)
        return
    for key in get_branches(step):
        yield take_step(contact, index, now, key)


def take_step(contact: Contact, index: int, now: int, chosen: str = "") -> Contact:
    """Take one step of a run; `chosen` is the branch that chance chooses."""
    run = contact.runs[index]
    if not run.rest:
        return end_run(contact, index, "completed", None, now)
    step, rest = run.rest[0], run.rest[1:]
    kind, outcome, reason = step["type"], "on", None
    is_wait = get_wait_end(step, now) is not None
    if run.entered is None and (is_wait or (kind == "unsubscribe" and _has_unsent_mail(contact, index))):
        return update_run(contact, index, entered=now)
    if kind == "exit":
        return end_run(contact, index, "exited", "exit_step", now)
    if kind == "split":
        outcome = "yes" if all(matches_filter(condition, contact, run.event) for condition in step["filters"]) else "no"
        rest = (*step[outcome], *rest)
    if kind in ("split_value", "random_split"):
        outcome = chosen or choose_by_value(step, contact, run.event)
        rest = (*get_branches(step)[outcome], *rest)
    if kind == "go_to" and sum(visit[:2] == (step["id"], "jumped") for visit in run.trail) < step["max_jumps"]:
        outcome, rest = "jumped", find_rest(run.steps, step["step_id"], ()) or ()
    if kind == "wait_until" and step["until"] != "time":
        # The contacts of the model have no dates.
        outcome, reason = ("yes", None) if run.heard else ("no", "timed_out" if step["until"] == "event" else "no_date")
        rest = (*step[outcome], *rest)
    if kind == "http_request":
        outcome, reason = ("yes", None) if step["answer"] == "ok" else ("no", f"http_{STATUSES[step['answer']]}")
        rest = (*step[outcome], *rest)
    if kind == "email":
        reason = None if contact.subscribed or step.get("transactional") else "unsubscribed"
        outcome = "skipped" if reason else "on"
        mail = Mail(index, step["id"], "skipped" if reason else "queued", reason, bool(step.get("transactional")))
        contact = contact._replace(mails=(*contact.mails, mail))
        contact = record_run_event(contact, index, "email_skipped") if reason else contact
    if kind == "unsubscribe" and not contact.subscribed:
        outcome, reason = "skipped", "unsubscribed"
    contact = apply_step(contact, run, step)
    entered = now if run.entered is None else run.entered
    trail = (*run.trail, (step["id"], outcome, reason, entered, now))
    return update_run(contact, index, rest=rest, entered=None, heard=False, trail=trail)


def find_rest(steps: tuple[Step, ...], step_id: int, after: tuple[Step, ...]) -> tuple[Step, ...] | None:
    """Return a step and all that follows it; `after` is what follows the steps. None if the step is not among them."""
    for index, step in enumerate(steps):
        rest = (*steps[index:], *after)
        if step["id"] == step_id:
            return rest
        for nested in get_branches(step).values():
            inner = find_rest(tuple(nested), step_id, rest[1:])
            if inner is not None:
                return inner
    return None


def choose_by_value(step: Step, contact: Contact, event: dict[str, Any]) -> str:
    """Return the key of the first branch that has the value of a field, or `else`."""
    scope, _, path = step["field"].partition(".")
    value = get_path(event if scope == "event" else contact.data, path)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    text = str(value) if is_number or isinstance(value, str) else None
    return next((str(item["key"]) for item in step["branches"] if text in item["values"]), "else")


def apply_step(contact: Contact, run: Run, step: Step) -> Contact:
    """Apply the effect of a step to the contact."""
    list_id = step.get("contact_list_id")
    if step["type"] == "emit_event":
        forwarded = run.event if step.get("forward_event_data") else {}
        return record_event(contact, step["event_name"], forwarded | step.get("event_data", {}), run.depth + 1)
    if step["type"] == "list_add" and list_id not in contact.lists:
        contact = contact._replace(lists=contact.lists | {list_id})
        return record_event(contact, "list_add", {"contact_list_id": list_id}, run.depth + 1)
    if step["type"] == "list_remove" and list_id in contact.lists:
        contact = contact._replace(lists=contact.lists - {list_id})
        return record_event(contact, "list_remove", {"contact_list_id": list_id}, run.depth + 1)
    if step["type"] in ("tag_add", "tag_remove"):
        return change_tag(contact, run, step)
    if step["type"] == "contact_update":
        contact = contact._replace(data=contact.data | step["data_merge"])
    if step["type"] == "http_request" and step["answer"] == "ok":
        contact = contact._replace(data=contact.data | {"seen": SEEN})
    if step["type"] == "unsubscribe":
        contact = contact._replace(subscribed=False)
    return contact


def change_tag(contact: Contact, run: Run, step: Step) -> Contact:
    """Add or remove a tag, which is recorded if it changes the contact; without tags the contact has no such data."""
    is_add, tags = step["type"] == "tag_add", list(contact.data.get("tags", []))
    if (step["tag"] in tags) == is_add:
        return contact
    tags = [*tags, step["tag"]] if is_add else [tag for tag in tags if tag != step["tag"]]
    data = {key: value for key, value in contact.data.items() if key != "tags"} | ({"tags": tags} if tags else {})
    return record_event(contact._replace(data=data), step["type"], {"tag": step["tag"]}, run.depth + 1)


def end_run(contact: Contact, index: int, status: str, reason: str | None, now: int) -> Contact:
    """End a run; its current step counts as left for the same reason."""
    run = contact.runs[index]
    is_in_step = bool(run.rest) and (run.entered is not None or reason == "exit_step")
    entered = now if run.entered is None else run.entered
    trail = (*run.trail, (run.rest[0]["id"], "exited", reason, entered, now)) if is_in_step else run.trail
    contact = update_run(contact, index, status=status, reason=reason, rest=(), entered=None, trail=trail)
    return record_run_event(contact, index, "flow_exit")


def update_run(contact: Contact, index: int, **values: Any) -> Contact:
    """Return the contact with one run updated."""
    runs = contact.runs
    return contact._replace(runs=(*runs[:index], runs[index]._replace(**values), *runs[index + 1 :]))


def record_run_event(contact: Contact, index: int, name: str) -> Contact:
    """Record an event about a run."""
    return record_event(contact, name, {"flow_id": contact.runs[index].flow}, contact.runs[index].depth + 1)


def record_event(contact: Contact, name: str, data: dict[str, Any], depth: int = 0) -> Contact:
    """Record an event of the contact; it ends the waits for such an event."""
    event = Event(name, data, depth)
    runs = tuple(run._replace(heard=True) if _awaits(run, name) else run for run in contact.runs)
    return contact._replace(unread=(*contact.unread, event), past=(*contact.past, event), runs=runs)


def _awaits(run: Run, name: str) -> bool:
    """Return whether a run waits for an event with this name."""
    is_waiting = run.status == "live" and run.entered is not None and run.rest[0].get("until") == "event"
    return is_waiting and run.rest[0]["event_name"] == name


def matches_filter(condition: dict[str, Any], contact: Contact, event: dict[str, Any]) -> bool:
    """Return whether the contact matches a filter now."""
    name, predicate, value = condition["name"], condition["predicate"], condition.get("value")
    if name == "event":
        return (sum(past.name == value["event"] for past in contact.past) >= 1) == (predicate == "performed")
    if name == "contact_list":
        return (value in contact.lists) == (predicate == "eq")
    if name == "contact_subscribed_email":
        return contact.subscribed == (predicate == "true")
    data = event if name.startswith("event.") else contact.data
    return json_matches(get_path(data, name.partition(".")[2]), predicate.removeprefix("not_"), value) != (
        predicate.startswith("not_")
    )
