"""Simulation of a flow with one contact, by a request or by a script that is saved with the flow.

`simulator.py` runs the steps in the sandbox. Simulation with many contacts is in `simulation_bulk.py`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct

from appliance.accounts.audit import Actor
from appliance.audience import time_zones
from appliance.audience.consent import Evidence
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactWrite
from appliance.audience.segments import members
from appliance.core import addresses, clock
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext, gettext_noop, pgettext
from appliance.core.validation import PageQuery, read, sent_fields
from appliance.flows import (
    document,
    drafts,
    lifecycle,
    simulation_events,
    simulation_sandbox,
    simulation_timeline,
    step_names,
    store,
    versions,
)
from appliance.flows.drafts import FlowDraft
from appliance.flows.simulation_events import (
    MAX_SCRIPTS,
    SCRIPTS,
    Expectation,
    RealEvent,
    SimulatedRun,
    SimulateRequest,
    SimulationInput,
)
from appliance.flows.simulation_sandbox import SimulationSandbox
from appliance.flows.simulation_timeline import (
    SimulatedContact,
    Simulation,
    SimulationEntry,
    format_moment,
)
from appliance.flows.simulator import FlowSimulator
from appliance.flows.steps.base import SimulationRules
from appliance.flows.steps.http_request import HttpRequest
from appliance.flows.triggers import TriggerSpec
from appliance.storage import transactions
from appliance.storage.database import Page, fetch_one
from appliance.storage.models import Contact, Flow, Trigger
from appliance.storage.sandbox import FIRST_SANDBOX_ID

# The maximum time before now at which a simulation may start, after now at which it may start or end, and its default
# duration.
_MAX_BACK_MS, _MAX_AHEAD_MS, _DEFAULT_SPAN_MS = 365 * clock.DAY_MS, 5 * 366 * clock.DAY_MS, 400 * clock.DAY_MS
_EVIDENCE = Evidence("rehearsal", "operator")


class TimeRange(NamedTuple):
    """The start of a simulation and its latest end, in Unix milliseconds."""

    start: int
    until: int


def simulate(account_id: int, flow_id: int, request: SimulateRequest, sees_people: bool = True) -> Simulation:
    """Simulate a flow, and add a description of the result as text. Nothing is saved or sent.

    No background job is woken either. `sees_people` is as in `run_simulation`. Raises NotFound, or Invalid with all
    errors.
    """
    flow = store.get(account_id, flow_id)
    faults = Faults()
    simulation = run_simulation(flow, request, parse_tried_steps(flow, request.steps, faults), faults, sees_people)
    simulation.text = simulation_timeline.format_text(simulation, _format_title(flow, simulation))
    return simulation


def check_simulation(account_id: int, request: SimulateRequest, flow_id: int) -> None:
    """Raise NotFound, or Invalid with all errors of a request; nothing is simulated."""
    flow, faults = store.get(account_id, flow_id), Faults()
    steps = parse_tried_steps(flow, request.steps, faults)
    _parse_times(request, faults)
    _check_input(flow, request, flow.steps if steps is None else steps, faults)


def parse_tried_steps(flow: Flow, raw: Any, faults: Faults) -> list[dict[str, Any]] | None:
    """Parse the steps that a request gives instead of the flow's, or return None if it gives none.

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
    addresses are ignored, because they would reveal something about real contacts.
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
    """Simulate a flow with its unpublished changes; raises NotFound, or Invalid with all errors.

    `sees_people` is as for `run_simulation`.
    """
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
    request_steps = {step["id"] for _, step in document.walk(steps) if step["type"] == HttpRequest.type}
    simulation_events.check_responses(request.responses or [], request_steps, faults)
    _check_branches(request.branches or {}, steps, faults)
    faults.check()


def _check_branches(choices: Mapping[str, str], steps: Sequence[dict[str, Any]], faults: Faults) -> None:
    """Add an error for each choice whose step is no random split or has no such branch; `steps` are the top ones."""
    splits = {str(step["id"]): step for _, step in document.walk(steps) if step["type"] == "random_split"}
    for step_id, key in choices.items():
        if key not in {branch["key"] for branch in splits.get(step_id, {}).get("branches", ())}:
            faults.add(f"branches.{step_id[:20]}", gettext("must exist"))


def _simulate_in_sandbox(
    flow: Flow, request: SimulationInput, steps: list[dict[str, Any]] | None, times: TimeRange, version: int
) -> Simulation:
    """Enrol the contact in the flow and simulate its run, in the open sandbox."""
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
    rules = SimulationRules(branches={int(step_id): key for step_id, key in (request.branches or {}).items()})
    simulator = FlowSimulator(flow, flow.version, paths, simulated_run, times.until, rules)
    simulator.play_responses(request.responses or [])
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
    """Return (kind, key) of each address of a sample contact, because it may be opted out or suppressed in reality."""
    contact = request.contact if isinstance(request.contact, ContactWrite) else ContactWrite()
    values = {"email": contact.email, "phone": contact.phone}
    return [(kind, addresses.parse(kind, text).key) for kind, text in values.items() if isinstance(text, str)]


def build_sample_contact() -> dict[str, str]:
    """Return the fields of the default sample contact, with a name in the current language."""
    return {
        "first_name": pgettext("first name of a made-up contact", "Alex"),
        "last_name": pgettext("last name of a made-up contact", "Sample"),
        "email": "alex@example.org", "phone": "+12025550143",
    }  # fmt: skip


def _create_sample_contact(account_id: int, request: SimulationInput) -> int:
    """Create the sample contact of a request, and return its id.

    The default contact (`build_sample_contact`) is in the time zone of the account, not in that of its phone number.
    """
    contact = request.contact if isinstance(request.contact, ContactWrite) and sent_fields(request.contact) else None
    if contact is None:
        data = {"time_zone": time_zones.get_account_zone(account_id).zone.key}
        contact = read(ContactWrite, {**build_sample_contact(), "data": data})
    return int(write.upsert(account_id, contact, _EVIDENCE).contact.id)


def _prefix_contact_fields(fields: dict[str, list[str]]) -> dict[str, list[str]]:
    return {f"contact.{field}": messages for field, messages in fields.items()}


def activate_in_sandbox(flow: Flow, steps: list[dict[str, Any]] | None, version: int) -> list[str]:
    """Activate a flow in the sandbox as version `version`, with `steps` instead of its own if given.

    Return notes on blockers and unfinished content, which would matter in reality. If a step has several problems, its
    note has a line beginning with `- ` for each.
    """
    if steps is not None:
        flow.steps = versions.save_contents(flow.account_id, flow.id, steps)
    trigger = Trigger.get(Trigger.flow == flow.id)
    blockers = lifecycle.list_blockers(flow, trigger, Actor(can_approve=True))
    steps_with_content = drafts.add_contents(flow.steps)
    names = step_names.name_steps(flow.account_id, steps_with_content)
    flow.version = version - 1
    versions.publish(flow)
    flow.status, flow.paused_at, flow.drop_before = "active", None, None
    flow.save(only=[Flow.steps, Flow.version, Flow.status, Flow.paused_at, Flow.drop_before])
    unfinished: dict[str, list[str]] = {}
    for path, _, warning in lifecycle.list_unfinished(flow.account_id, steps_with_content):
        unfinished.setdefault(names[path], []).append(warning.message)
    return [
        *(
            gettext(
                "This flow cannot go live yet: %(problem)s",
                problem=_describe_problem(blocker.field, blocker.message, names),
            )
            for blocker in blockers
        ),
        *(
            gettext("%(step)s has unfinished content: %(problem)s", step=name, problem=_list_problems(messages))
            for name, messages in unfinished.items()
        ),
    ]


def _list_problems(messages: list[str]) -> str:
    """Return a single message unchanged, and several as lines of a list."""
    return messages[0] if len(messages) == 1 else "".join(f"\n- {message}" for message in messages)


_PROBLEMS = {
    "trigger.event": gettext_noop("the trigger is missing"),
    "trigger.segment_id": gettext_noop("the segment of the trigger is missing"),
    "trigger.contact_list_id": gettext_noop("the list of the trigger cannot be used"),
    "trigger.data.path": gettext_noop("the custom field with the date of the trigger is missing"),
    "steps": gettext_noop("the steps are missing"),
}


def _describe_problem(field: str, message: str, names: dict[str, str]) -> str:
    """Return the text of a problem, with the step or field that it concerns; `names` are names of steps by path."""
    if field in _PROBLEMS:
        return gettext(_PROBLEMS[field])
    name = _find_step_name(names, field)
    return message if name is None else gettext("%(step)s: %(problem)s", step=name, problem=message)


def _find_step_name(names: dict[str, str], field: str) -> str | None:
    """Return the name of the innermost step that contains a field, such as `steps[1].yes[0].subject`, or None."""
    return next(
        (names[path] for path in sorted(names, key=len, reverse=True) if f"{field}.".startswith(f"{path}.")), None
    )


def note_stopped_sending(account_id: int) -> list[str]:
    """Return a list with a note if the account's sending is stopped in reality, else an empty list."""
    if not fetch_one("SELECT 1 FROM main.account WHERE id = ? AND sending_stopped = 1", (account_id,)):
        return []
    return [gettext("All sending of the account is stopped. In reality, messages would wait until sending is resumed.")]


def _build_entry(entered: simulation_sandbox.EntryResult, at: int) -> SimulationEntry:
    return SimulationEntry(
        str(clock.iso(at)), "enter", entered.description, event=entered.event, data=entered.data,
        filters=entered.filters,
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


MAX_SCRIPTS_SECONDS = 5.0


class ScriptResult(Struct):
    """The result of a script: whether all its expectations are met, and which are not."""

    name: str
    passed: Annotated[bool, Meta(description="true if all expectations are met")]
    expected: Annotated[int, Meta(description="number of expectations")]
    failures: Annotated[list[str], Meta(description="expectations that are not met, in words")]
    end: Annotated[str, Meta(description="how the run ends")]


def list_results(account_id: int, flow_id: int, query: PageQuery, sees_people: bool = True) -> Page:
    """Run one page of a flow's scripts with its current steps; return a page of `ScriptResult`. Raises NotFound.

    `sees_people` is as in `run_scripts`.
    """
    flow = store.get(account_id, flow_id)
    size = query.size()
    offset = (query.page - 1) * size
    results = run_scripts(flow, sees_people, range(offset, offset + size))
    return Page(results, len(_get_scripts(flow)), query.page, size)


def run_scripts(
    flow: Flow, sees_people: bool = True, indexes: range = range(MAX_SCRIPTS), draft: FlowDraft | None = None
) -> list[ScriptResult]:
    """Run the scripts of a flow at these indexes, with its current steps or with its draft if given.

    Scripts with a real contact fail without `sees_people`. Users wait for the results, so scripts that do not start
    within `MAX_SCRIPTS_SECONDS` are not run, and have a failure that says so.
    """
    started, results = time.monotonic(), []
    for index, raw in enumerate(_get_scripts(flow)):
        if index not in indexes:
            continue
        if time.monotonic() - started > MAX_SCRIPTS_SECONDS:
            results.append(
                ScriptResult(
                    _get_script_name(raw, index), False, 0, [gettext("not run: the other tests took too long")], ""
                )
            )
        else:
            results.append(_run_script(flow, raw, index, sees_people, draft))
    return results


def _get_scripts(flow: Flow) -> list[Any]:
    scripts = flow.data.get(SCRIPTS) if isinstance(flow.data, dict) else None
    return scripts[:MAX_SCRIPTS] if isinstance(scripts, list) else []


def _run_script(flow: Flow, raw: Any, index: int, sees_people: bool, draft: FlowDraft | None) -> ScriptResult:
    faults = Faults()
    script = simulation_events.parse_script(raw, faults, f"{SCRIPTS}[{index}]")
    name = _get_script_name(raw, index)
    if script is None or faults.fields:
        return ScriptResult(name, False, 0, _format_faults(faults.fields), "")
    expectations = script.expect or []
    if script.contact_id and not sees_people:
        return ScriptResult(
            name,
            False,
            len(expectations),
            [gettext("needs the contacts:read scope, because it uses a real contact")],
            "",
        )
    try:
        if draft is not None:
            simulation = simulate_draft(draft, script, sees_people)
        else:
            simulation = run_simulation(flow, script, None, Faults(), sees_people)
    except Invalid as invalid:
        # The contact or a step of the script was deleted after the script was saved.
        return ScriptResult(name, False, len(expectations), _list_deleted(invalid.fields), "")
    steps = flow.steps if draft is None else draft.steps
    names = StepNames(step_names.name_steps_by_id(flow.account_id, steps), step_names.name_branches_by_id(steps))
    failures = [failure for expectation in expectations for failure in _list_failures(expectation, simulation, names)]
    return ScriptResult(name, not failures, len(expectations), failures, simulation.end.description)


def _get_script_name(raw: Any, index: int) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    return name if isinstance(name, str) else gettext("Script %(number)s", number=index + 1)


def _list_deleted(fields: dict[str, list[str]]) -> list[str]:
    """Return the errors of a script that was valid when saved; objects that were deleted since have sentences."""
    failures, other_fields = [], {}
    for name, messages in fields.items():
        if name == "contact_id":
            failures.append(gettext("the contact of this test was deleted"))
        elif (name.startswith("events[") and name.endswith("].step")) or name.startswith("branches."):
            failures.append(gettext("a step that this test needs was deleted"))
        else:
            other_fields[name] = messages
    return [*failures, *_format_faults(other_fields)]


def _format_faults(fields: dict[str, list[str]]) -> list[str]:
    return [f"{name} {message}" for name, messages in fields.items() for message in messages]


_WRONG_END = {
    "completed": gettext_noop("the contact should complete the flow: %(result)s"),
    "exited": gettext_noop("the contact should exit early: %(result)s"),
    "live": gettext_noop("the contact should still be in the flow: %(result)s"),
}
_WRONG_OUTCOME = {
    "on": gettext_noop("%(step)s should continue: %(result)s"),
    "skipped": gettext_noop("%(step)s should be skipped: %(result)s"),
    "exited": gettext_noop("the contact should exit at %(step)s: %(result)s"),
    "waits": gettext_noop("the contact should wait at %(step)s: %(result)s"),
}


class StepNames(NamedTuple):
    """The names of steps by id, and the labels of branches by step id and branch key."""

    steps: Mapping[int, str]
    branches: Mapping[int, Mapping[str, str]]


def _list_failures(expectation: Expectation, simulation: Simulation, names: StepNames) -> Iterator[str]:
    """Yield a text for each way in which a simulation differs from an expectation."""
    if isinstance(expectation.end, str):
        if simulation.end.status != expectation.end:
            yield gettext(_WRONG_END[expectation.end], result=simulation.end.description)
        elif isinstance(expectation.reason, str) and simulation.end.reason != expectation.reason:
            reason = simulation_timeline.describe_end(expectation.end, expectation.reason)
            yield gettext(
                "should end because “%(reason)s”: %(result)s", reason=reason, result=simulation.end.description
            )
        return
    step_id = expectation.step if isinstance(expectation.step, int) else 0
    step_name = names.steps.get(step_id, "")
    entries = [entry for entry in simulation.timeline if entry.step_id == step_id and entry.kind in ("step", "message")]
    if expectation.outcome == "not_reached":
        if entries:
            yield gettext("%(step)s should not be reached: %(result)s", step=step_name, result=entries[0].description)
        return
    if not entries:
        yield (gettext("%(step)s was not reached", step=step_name) if step_name else gettext("the step was deleted"))
        return
    yield from _list_step_failures(expectation, entries, step_name, names.branches.get(step_id, {}))


def _describe_wrong_outcome(outcome: str, step: str, branches: Mapping[str, str], result: str) -> str:
    if outcome in _WRONG_OUTCOME:
        return gettext(_WRONG_OUTCOME[outcome], step=step, result=result)
    branch = branches.get(outcome, gettext("removed branch"))
    return gettext("%(step)s should take “%(branch)s”: %(result)s", step=step, branch=branch, result=result)


_WRONG_SUBJECT = gettext_noop("the subject of %(step)s should contain “%(text)s”: %(result)s")
_WRONG_TEXT = gettext_noop("the text of %(step)s should contain “%(text)s”: %(result)s")


def _list_step_failures(
    expectation: Expectation, entries: Sequence[SimulationEntry], step_name: str, branches: Mapping[str, str]
) -> Iterator[str]:
    description = entries[-1].description
    if expectation.outcome is not UNSET and not any(entry.outcome == expectation.outcome for entry in entries):
        yield _describe_wrong_outcome(str(expectation.outcome), step_name, branches, description)
    messages = [entry.message for entry in entries if entry.message is not None]
    reasons = {entry.reason for entry in entries} | {message.skip_reason for message in messages}
    if expectation.reason is not UNSET and expectation.reason not in reasons:
        yield gettext(
            "the reason at %(step)s should be “%(reason)s”: %(result)s",
            step=step_name, reason=simulation_timeline.describe_skip(str(expectation.reason)), result=description,
        )  # fmt: skip
    for key, expected_text, message in (
        ("subject", expectation.subject, _WRONG_SUBJECT), ("text", expectation.text, _WRONG_TEXT),
    ):  # fmt: skip
        if isinstance(expected_text, str) and not any(
            expected_text.casefold() in (getattr(sent, key) or "").casefold() for sent in messages
        ):
            yield gettext(message, step=step_name, text=expected_text, result=description)
