"""Simulations of a flow: with one contact, saved as a test, or with all recent contacts. No message is sent."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store as contacts
from appliance.core import clock, errors, validation
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, ngettext
from appliance.events import log
from appliance.flows import (
    branches,
    document,
    drafts,
    simulation,
    simulation_bulk,
    simulation_events,
    store,
    versions,
    wait_times,
)
from appliance.flows.drafts import FlowDraft
from appliance.flows.simulation_bulk import BulkSimulateRequest, BulkSimulation, StepCount, run_in_turn
from appliance.flows.simulation_events import MAX_SCRIPTS, SCRIPTS, SimulationInput
from appliance.flows.simulation_timeline import Simulation, SimulationEntry
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.http_request import HttpRequest
from appliance.flows.store import FlowPatch
from appliance.storage.transactions import commit, fetch, render
from ui import formats, labels, view
from ui.forms import Form, flow_forms, parse_int
from ui.forms.line_fields import parse_lines
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.widgets import flow_tree
from ui.widgets.flow_tree import Card

pages = Pages("ui_flow_try", url_prefix="/flows")


_HOUR_SECONDS = 3_600
_DAY_SECONDS = 86_400
# A simulated event in the query: the id of the branch step and the name of the event.
_CHOICE = re.compile(r"(\d{1,9})\.([a-z][a-z0-9_]{0,63})")
# Instead of an event: the request of the step gets no response.
_REQUEST_FAILED = "http_request_failed"
# A chosen branch of a random split in the query: the id of the step and the key of the branch.
_WAY = re.compile(rf"(\d{{1,9}})\.({branches.BRANCH_KEY})")


class SimulationForm(NamedTuple):
    """The values of a simulation's query, its simulated events (`choices`), such as `12.email_clicked`, and `ways`.

    `ways` are the keys of the branches that were chosen for random splits, by step id.
    """

    values: dict[str, str]
    choices: tuple[str, ...]
    ways: Mapping[int, str] = {}

    def choose(self, step_id: int, key: str) -> str:
        """Return the query string with the branch of a random split chosen, or drawn again if it was chosen."""
        ways = {**self.ways, step_id: key}
        if self.ways.get(step_id) == key:
            del ways[step_id]
        return self.query(way=" ".join(f"{step}.{branch}" for step, branch in ways.items()))

    def query(self, **other: str) -> str:
        """Return the query string of this form with some values replaced."""
        return formats.query_string({**self.values, **other}) or "?"

    def toggle(self, choice: str) -> str:
        """Return the query string with a simulated event added, or removed if it was chosen."""
        remaining = [other_choice for other_choice in self.choices if other_choice != choice]
        return self.query(do=" ".join(remaining if choice in self.choices else [*remaining, choice]))


_QUERY_NAMES = ("contact", "first_name", "email", "data", "event", "response", "day", "hour", "q", "do", "way")


def read_query(text: Mapping[str, Any]) -> SimulationForm:
    """Return the values of a simulation from a query or a posted form; invalid simulated events are dropped."""
    values = {name: str(text.get(name) or "").strip()[:2_000] for name in _QUERY_NAMES}
    stored = {name: value for name, value in values.items() if value}
    ways = [match for value in values["way"].split() if (match := _WAY.fullmatch(value))]
    return SimulationForm(
        stored, tuple(value for value in values["do"].split() if _CHOICE.fullmatch(value))[:20],
        {int(match[1]): match[2] for match in ways[:20]},
    )  # fmt: skip


def build_request(draft: FlowDraft, form: SimulationForm, zone: ZoneInfo) -> SimulationInput:
    """Return the input of a simulation of the draft. Raises Invalid with errors at the fields of the form."""
    raw: dict[str, Any] = {}
    values = form.values
    if values.get("contact", "").isdecimal():
        raw["contact_id"] = int(values["contact"][:18])
    else:
        contact = {name: values[name] for name in ("first_name", "email") if values.get(name)}
        data = parse_lines(values.get("data", ""), "data")
        if contact or data:
            raw["contact"] = {**contact, **({"data": data} if data else {})}
    if event := parse_lines(values.get("event", ""), "event"):
        raw["event"] = event
    if values.get("day"):
        try:
            local = datetime.fromisoformat(f"{values['day']}T{values.get('hour') or '09:00'}").replace(tzinfo=zone)
            raw["start_at"] = clock.iso(clock.parse(local.isoformat()))
        except (ValueError, OverflowError):
            raise Invalid({"day": [gettext("Enter a valid date.")]}) from None
    failing = {int(choice.partition(".")[0]) for choice in form.choices if choice.endswith(f".{_REQUEST_FAILED}")}
    events = [choice for choice in form.choices if not choice.endswith(f".{_REQUEST_FAILED}")]
    raw["events"] = [_event_before(draft, choice) for choice in events]
    body = parse_lines(values.get("response", ""), "response")
    requests = [step["id"] for _, step in document.walk(draft.steps) if step["type"] == HttpRequest.type]
    if requests and (failing or body):
        raw["responses"] = [
            {"step": step_id, "status": 0} if step_id in failing else {"step": step_id, "body": body or None}
            for step_id in requests
        ]
    raw["branches"] = {
        str(step_id): key
        for step_id, key in form.ways.items()
        if key in _list_ways(document.find_step(draft.steps, step_id))
    }
    return validation.read(SimulationInput, raw)


def _event_before(draft: FlowDraft, choice: str) -> dict[str, Any]:
    """Return a simulated event, as the API takes it, that happens before a branch step.

    An event of a message happens an hour after the last message before the branch. Any other event happens an hour
    before the contact reaches the branch or, if the wait is too short for that, within a minute after the start. A
    step that waits for an event gets it an hour after the contact has reached the step at the latest, or after half of
    the time limit.
    """
    number, _, event = choice.partition(".")
    step_id = int(number)
    steps = document.list_predecessors(draft.steps, step_id)
    if event in simulation_events.MESSAGE_EVENTS:
        message_step_ids = [
            step["id"] for step in steps if step["type"] == ("sms" if event.startswith("sms_") else "email")
        ]
        return {"event": event, "after": _HOUR_SECONDS, **({"step": message_step_ids[-1]} if message_step_ids else {})}
    waited_seconds = wait_times.find_wait_before(draft.steps, step_id).shortest
    timeout = (document.find_step(draft.steps, step_id) or {}).get("timeout")
    if timeout:
        # A wait for an hour of the day takes up to a day, or up to a week if only some weekdays count.
        hour_waits = [step for step in steps if step.get("until") == "time"]
        waited_seconds += sum(_DAY_SECONDS * (7 if step["weekdays"] else 1) for step in hour_waits)
        return {"event": event, "after": waited_seconds + min(_HOUR_SECONDS, timeout // 2)}
    return {"event": event, "after": max(waited_seconds - _HOUR_SECONDS, min(60, waited_seconds // 2))}


def highlight_path(cards: list[Card], simulated: Simulation) -> list[Card]:
    """Return cards marked by whether the simulated contact reached them, with the branches that the contact took."""
    visited_ids = {entry.step_id for entry in simulated.timeline if entry.kind in ("step", "message")}
    outcomes = {entry.step_id: entry.outcome for entry in simulated.timeline if entry.kind == "step"}

    def mark(entry: Card) -> Card:
        outcome = outcomes.get(entry.id)
        return entry._replace(
            change="path" if entry.id in visited_ids else "off", faults=[],
            branches=[
                branch._replace(
                    cards=[mark(inner) for inner in branch.cards],
                    percent=gettext("taken") if outcome == branch.key else "",
                )
                for branch in entry.branches
            ],
        )  # fmt: skip

    return [mark(card) for card in cards]


def add_counts(draft: FlowDraft, cards: list[Card], steps: list[StepCount], entered: int) -> list[Card]:
    """Return cards with the counts of a bulk simulation, which are matched to steps by their paths.

    `entered` is the number of simulated contacts.
    """
    by_path = {step.path: step for step in steps}
    counts_by_id = {step["id"]: by_path[path] for path, step in document.walk(draft.steps) if path in by_path}

    def fill(card: Card) -> Card:
        count = counts_by_id.get(card.id)
        counts = {branch.key: branch.count for branch in count.branches} if count is not None else {}
        branches = []
        for branch in card.branches:
            percent, share = flow_tree.fill_branch(counts.get(branch.key, 0), sum(counts.values()), entered)
            cards = [fill(each) for each in branch.cards]
            branches.append(branch._replace(cards=cards, percent=percent, share=share))
        card = card._replace(branches=branches, faults=[])
        if count is None:
            return card
        is_message = card.type in ("email", "sms")
        number, label = (count.sent, gettext("sent")) if is_message else (count.entered, gettext("entered"))
        on = count.entered - count.exited - count.waiting
        unsent = ngettext("%(num)s not sent", "%(num)s not sent", count.unsent) if count.unsent else ""
        return card._replace(
            number=number, label=label, contacts_url="", left_label=unsent,
            continuing_share=on / entered if entered else 0.0,
        )  # fmt: skip

    return [fill(card) for card in cards]


def list_branch_events(simulated: Simulation, form: SimulationForm) -> dict[int, list[tuple[str, str, bool]]]:
    """Return, by the id of each branch step, the events that can be simulated before it.

    Each event is (label, query string that toggles it, whether it is chosen).
    """
    offers: dict[int, list[tuple[str, str, bool]]] = {}
    for entry in simulated.timeline:
        if entry.type == HttpRequest.type and entry.step_id is not None:
            choice = f"{entry.step_id}.{_REQUEST_FAILED}"
            offers[entry.step_id] = [(gettext("The request fails"), form.toggle(choice), choice in form.choices)]
        elif entry.checked_events and entry.step_id is not None:
            offers[entry.step_id] = [
                (labels.event(event)[2], form.toggle(choice), choice in form.choices)
                for event in entry.checked_events
                for choice in (f"{entry.step_id}.{event}",)
                if _can_simulate(event)
            ]
    return offers


def _list_ways(step: dict[str, Any] | None) -> dict[str, str]:
    """Return the labels of the branches of a random split by their keys; empty for any other step and for None."""
    if step is None or step["type"] != "random_split":
        return {}
    return BY_TYPE[step["type"]].list_branches(branches.get_props(step))


def list_random_ways(
    draft: FlowDraft, simulated: Simulation, form: SimulationForm
) -> dict[int, list[tuple[str, str, bool]]]:
    """Return, by the id of each random split, its branches as (label, query string that chooses it, whether chosen)."""
    return {
        entry.step_id: [
            (label, form.choose(entry.step_id, key), form.ways.get(entry.step_id) == key)
            for key, label in _list_ways(document.find_step(draft.steps, entry.step_id)).items()
        ]
        for entry in simulated.timeline
        if entry.step_id is not None and entry.type == "random_split"
    }


def _can_simulate(event: str) -> bool:
    return (
        event in simulation_events.MESSAGE_EVENTS
        or log.find_name_error(event) is None
        or event in simulation_events.ASSUMABLE_EVENTS
    )


def list_expectations(simulated: Simulation, titles: Mapping[int, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the expectations that a test saved from this simulation can have, as (key, label, expectation).

    `titles` are the titles of steps by id.
    """
    items: list[tuple[str, str, dict[str, Any]]] = []
    for entry in simulated.timeline:
        if entry.step_id is None or entry.kind != "step":
            continue
        title = titles.get(entry.step_id, "")
        if entry.branch is not None and branches.is_branch_key(str(entry.outcome)):
            label = gettext("%(step)s: “%(branch)s”", step=title, branch=entry.branch)
            items.append((f"s{entry.step_id}", label, {"step": entry.step_id, "outcome": entry.outcome}))
        elif entry.message is not None and entry.message.status == "sent" and entry.message.subject:
            expectation = {"step": entry.step_id, "subject": entry.message.subject[:200]}
            items.append(
                (f"s{entry.step_id}", gettext("“%(subject)s” is sent", subject=entry.message.subject), expectation)
            )
    end = {
        "completed": gettext("The contact completes the flow"), "exited": gettext("The contact exits early"),
        "live": gettext("The contact is still in the flow"),
    }  # fmt: skip
    return [*items, ("end", end[simulated.end.status], {"end": simulated.end.status})]


def list_messages(simulated: Simulation) -> list[SimulationEntry]:
    """Return the timeline entries that have the content of a message, in order."""
    return [
        entry
        for entry in simulated.timeline
        if entry.message is not None and (entry.message.html or entry.message.text)
    ]


BULK_DAYS = 90
_FORM_FIELDS = ("first_name", "email", "data", "event", "response", "day", "hour", "name")


@pages.get("/<flow_id:int>/try", name="show")
@signed_in("flows:read")
async def show_simulation(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the simulated path of one contact through a flow, with its messages."""
    return await _render_simulation(request, visit, flow_id, read_query(request.args), Form(), 200)


async def _render_simulation(
    request: Request, visit: Visit, flow_id: int, query: SimulationForm, form: Form, status: int
) -> HTTPResponse:
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)
    step_form = flow_forms.StepForm(dict.fromkeys(_FORM_FIELDS, ""))
    step_form.values |= query.values | form.values
    step_form.errors = form.errors
    result: Simulation | None = None
    try:
        params = build_request(draft, query, visit.zone)
        result = await run_in_turn(simulation.simulate_draft, draft, params)
    except errors.Invalid as error:
        flow_forms.add_errors(step_form, error)
        status = 422 if status == 200 else status
    stored = await run_in_turn(simulation.run_scripts, draft.flow, True, range(MAX_SCRIPTS), draft)
    tree = await fetch(_load_tree, visit, draft, query, result)
    return view.render(
        request, "flows/try.html", status, form=step_form, query=query, simulation=result, scripts=stored,
        may_save_test=visit.can("flows:write"), sample=simulation.build_sample_contact(), **tree,
    )  # fmt: skip


def _load_tree(visit: Visit, draft: Any, query: SimulationForm, simulated: Simulation | None) -> dict[str, Any]:
    steps = drafts.add_contents(draft.steps)
    cards = flow_tree.build_cards(draft, steps, flow_tree.index_report(None), {}, {})
    titles = {step["id"]: flow_tree.describe_step(visit.account_id, step)[0] for _, step in document.walk(steps)}
    raw: dict[str, Any] = {"limit": 8} | ({"search": query.values["q"]} if query.values.get("q") else {})
    contact_options = list(contacts.fetch_page(visit.account_id, validation.read(contacts.ContactQuery, raw)).rows)
    contact_text = query.values.get("contact", "")
    if contact_text.isdecimal() and all(str(item.id) != contact_text for item in contact_options):
        contact_options = [
            id_ for id_ in contacts.fetch_by_ids([int(contact_text[:18])]) if id_.account_id == visit.account_id
        ] + contact_options
    return {
        "flow": draft.flow, "draft": draft, "contact_options": contact_options,
        "start": flow_tree.describe_trigger(visit.account_id, draft.trigger),
        "has_requests": any(step["type"] == HttpRequest.type for _, step in document.walk(steps)),
        "cards": highlight_path(cards, simulated) if simulated is not None else cards, "icons": flow_tree.step_icons(),
        "offers": list_branch_events(simulated, query) if simulated is not None else {},
        "ways": list_random_ways(draft, simulated, query) if simulated is not None else {},
        "expected": list_expectations(simulated, titles) if simulated is not None else [],
        "messages": list_messages(simulated) if simulated is not None else [],
    }  # fmt: skip


@pages.get("/<flow_id:int>/try/message", name="message")
@signed_in("flows:read")
async def show_message(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the message number `n` of a simulation, counted from 1, as a document for a frame."""
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)
    try:
        query = build_request(draft, read_query(request.args), visit.zone)
        simulated = await run_in_turn(simulation.simulate_draft, draft, query)
    except errors.Invalid:
        return view.render_email_error(gettext("the simulation cannot run"))
    entries = list_messages(simulated)
    at = parse_int(request.args.get("n"), 1)
    if at > len(entries) or (message := entries[at - 1].message) is None:
        return view.render_email_error(gettext("this message is no longer part of the simulation"))
    return view.render_email(message.html or view.sms_html(message.text or ""))


@pages.post("/<flow_id:int>/try", name="keep")
@signed_in("flows:write")
async def save_test(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Save a simulation as a test of the flow, with the chosen expectations."""
    form = Form.from_request(request)
    query = read_query(form.values)
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)
    form.require("name", gettext("Enter a name for the test, for example “Clicks right away”."))
    try:
        if form.errors:
            raise errors.Invalid({})
        params = build_request(draft, query, visit.zone)
        simulated = await run_in_turn(simulation.simulate_draft, draft, params)
        expectations = [
            expectation for key, _, expectation in list_expectations(simulated, {}) if key in form.getlist("expect")
        ]
        script = {**validation.sent_fields(params), "name": form["name"][:255], "expect": expectations}
        test = _serialize_test(script)
        await _change_tests(visit, flow_id, lambda stored: [*stored, test])
    except errors.Invalid as error:
        if error.fields:
            form.add_errors(error)
        return await _render_simulation(request, visit, flow_id, query, form, 422)
    view.flash(request, gettext("Test saved. It runs whenever the flow is changed."))
    return view.redirect(request, f"/flows/{flow_id}/try{query.query()}")


@pages.post("/<flow_id:int>/try/forget", name="forget")
@signed_in("flows:write")
async def delete_test(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Delete a saved test of a flow."""
    form = Form.from_request(request)
    at, name = parse_int(form["at"], 0), form["name"]

    def delete(stored: list[Any]) -> list[Any] | None:
        if not 0 < at <= len(stored) or stored[at - 1].get("name") != name:
            return None
        return [script for index, script in enumerate(stored, 1) if index != at]

    if await _change_tests(visit, flow_id, delete):
        view.flash(request, gettext("Test “%(name)s” deleted.", name=name))
    return view.redirect(request, f"/flows/{flow_id}/try")


def _stored_tests(flow: Any) -> list[Any]:
    row = flow.data.get(SCRIPTS)
    return list(row) if isinstance(row, list) else []


def _serialize_test(script: dict[str, Any]) -> dict[str, Any]:
    """Return a test in its stored form: times as text, without empty values."""
    stored = {key: value for key, value in script.items() if value not in (None, [], {})}
    if isinstance(stored.get("start_at"), int):
        stored["start_at"] = clock.iso(stored["start_at"])
    stored["events"] = [validation.sent_fields(event) for event in script.get("events") or []]
    if "contact" in stored:
        stored["contact"] = validation.sent_fields(stored["contact"])
    return stored


async def _change_tests(visit: Visit, flow_id: int, change: Callable[[list[Any]], list[Any] | None]) -> bool:
    """Replace the tests of a flow with those that `change` returns for them; return whether it returned any list.

    If the flow is changed meanwhile, `change` is called again with its tests.
    """
    while True:
        flow = await fetch(store.get, visit.account_id, flow_id)
        tests = change(_stored_tests(flow))
        if tests is None:
            return False
        raw = {"data": {**flow.data, SCRIPTS: tests}, "updated_at": clock.iso(flow.updated_at)}
        body = validation.read(FlowPatch, raw)
        draft = await render(store.parse_request, visit.account_id, body, flow_id)
        try:
            await commit(store.update, visit.account_id, flow_id, body, draft, visit.actor)
        except errors.Conflict:
            continue
        return True


@pages.get("/<flow_id:int>/crowd", name="crowd")
@signed_in("flows:read")
async def show_bulk_simulation(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show which paths the contacts of the last BULK_DAYS days would take through a flow."""
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)
    form, simulated = Form(), None
    try:
        simulated = await run_in_turn(_simulate_all, visit.account_id, draft)
    except errors.Invalid as error:
        form.add_errors(error)

    def read() -> dict[str, Any]:
        cards = flow_tree.build_cards(draft, drafts.add_contents(draft.steps), flow_tree.index_report(None), {}, {})
        if simulated is not None:
            cards = add_counts(draft, cards, simulated.steps, simulated.rehearsed)
        return {"cards": cards, "start": flow_tree.describe_trigger(visit.account_id, draft.trigger)}

    return view.render(
        request, "flows/crowd.html", flow=draft.flow, draft=draft, form=form, simulation=simulated, days=BULK_DAYS,
        **await fetch(read),
    )  # fmt: skip


def _simulate_all(account_id: int, draft: Any) -> BulkSimulation:
    body = BulkSimulateRequest(days=BULK_DAYS)
    if draft.is_changed:
        body.steps = document.dump_steps(draft.steps, versions.get_contents(versions.list_step_templates(draft.steps)))
    return simulation_bulk.simulate_bulk(account_id, draft.flow.id, body)
