"""Lets one person into a flow on the stage of a rehearsal, by its own trigger, and says whether that is met."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from appliance.audience.contacts import lists
from appliance.audience.filters import read
from appliance.audience.filters.scope import Place
from appliance.audience.segments import explain, people
from appliance.core.errors import Invalid
from appliance.events import kinds, log
from appliance.events.log import Happened
from appliance.flows import enrollment, simulated_events, starting, triggers, why
from appliance.flows.starting import Arrival, Open
from appliance.flows.triggers import MANUAL, Start
from appliance.flows.why import Reason
from appliance.storage.models import Flow, Trigger
from appliance.storage.open import fetch_one, run, scalar
from appliance.storage.sandbox import FIRST
from appliance.storage.work import writing

_REFUSED = {
    starting.FREQUENCY: "they were in this flow before, and its trigger lets nobody in so often",
    starting.INSIDE: "they are inside already", starting.DEPTH: "its event comes from too deep a chain of flows",
}  # fmt: skip


class Entered(NamedTuple):
    """A run that began, and whether the trigger would have let them in."""

    run_id: int
    says: str
    event: str | None
    data: dict[str, Any] | None
    filters: list[Reason]
    notes: list[str]


def enter(flow: Flow, contact_id: int, given: Mapping[str, Any], now: int) -> Entered:
    """Start a run, whether or not the trigger is met: a rehearsal goes on, and says that."""
    writing()
    start = triggers.of(Trigger.get(Trigger.flow == flow.id))
    event_id = None if start.event == MANUAL else _happened(flow, start, contact_id, given)
    data: dict[str, Any] = {} if event_id is None else _data(event_id)
    told = [] if event_id is None else reasons(flow.account_id, start, contact_id, data, now)
    # What a draft lacks yet has been told
    met = (
        event_id is None
        or bool(triggers.lacks(start))
        or bool(starting.met(flow.account_id, flow.id, start, [event_id]))
    )
    notes = [] if met else [f"In reality {start.event} would not let them in: {why_not(start, told, flow)}."]
    opening = Open(flow.account_id, flow.id, flow.name, flow.version, triggers.frequency(start))
    arrival = Arrival(contact_id, event_id)
    began = starting.start(opening, [arrival])
    if not began.number:
        notes += [f"In reality they would not enter: {_REFUSED.get(reason, reason)}." for reason in began.ignored]
        starting.start(opening._replace(frequency="every_time"), [arrival])
    run_id = scalar(
        "SELECT id FROM run WHERE flow_id = ? AND contact_id = ? AND status = 'live'", (flow.id, contact_id)
    )
    shut(flow.id)
    says = "Enters the flow by hand" if event_id is None else f"Enters the flow: {kinds.words(start.event)}"
    if event_id is not None:
        says += f" ({start.event})"
    return Entered(int(run_id), says, None if event_id is None else start.event, data or None, told, notes)


def shut(flow_id: int) -> None:
    """Let nobody else in, nor the same person again: a rehearsal follows those who are inside.

    What happened until now has been looked at; goals are reached by what comes.
    """
    writing()
    run("INSERT INTO cursor (name, event_id) VALUES (?, 0) ON CONFLICT DO NOTHING", (enrollment.NAME,))
    run("UPDATE cursor SET event_id = (SELECT coalesce(max(id), 0) FROM event) WHERE name = ?", (enrollment.NAME,))
    run("UPDATE trigger SET event = ? WHERE flow_id = ?", (MANUAL, flow_id))


def _happened(flow: Flow, start: Start, contact_id: int, given: Mapping[str, Any]) -> int:
    """Record the event that starts the flow, with the data it would have; answers its id."""
    joins = start.event == "list_add" and start.contact_list_id is not None
    if joins and not _is_member(start.contact_list_id, contact_id):
        try:
            lists.join(flow.account_id, int(start.contact_list_id or 0), [contact_id])
        except Invalid:
            joins = False  # a view of a segment, which nobody joins by hand
    found = fetch_one("SELECT max(id) FROM event WHERE event = 'list_add' AND id > ?", (FIRST,)) if joins else None
    if found is None or found[0] is None:
        log.record(Happened(flow.account_id, start.event, contact_id, _usual(flow, start)))
    event_id = int(scalar("SELECT max(id) FROM event WHERE event = ?", (start.event,)))
    if start.event not in kinds.RESERVED:
        run("UPDATE event SET generated = 0 WHERE id = ?", (event_id,))
    if given:
        said = msgspec.json.encode({**_data(event_id), **given}).decode()
        run("UPDATE event SET data = ? WHERE id = ?", (said, event_id))
    return event_id


def _usual(flow: Flow, start: Start) -> dict[str, Any]:
    """Return the data that an event of a trigger has in any case."""
    if start.event == triggers.DATE:
        return {"flow_id": flow.id, "path": start.data.get("path")}
    if start.event in triggers.LIST_EVENTS and start.contact_list_id is not None:
        return {"contact_list_id": start.contact_list_id}
    if start.event in triggers.SEGMENT_EVENTS:
        return {"segment_id": start.segment_id}
    if start.event in triggers.TAG_EVENTS and start.data.get("tag"):
        return {"tag": start.data["tag"]}
    if start.data.get("keywords"):
        return {"keyword": start.data["keywords"][0]}
    return {}


def _is_member(list_id: int | None, contact_id: int) -> bool:
    asked = "SELECT 1 FROM membership WHERE contact_list_id = ? AND contact_id = ?"
    return fetch_one(asked, (list_id, contact_id)) is not None


def _data(event_id: int) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(scalar("SELECT data FROM event WHERE id = ?", (event_id,)), type=dict)
    return found


def reasons(account_id: int, start: Start, contact_id: int, data: Any, now: int) -> list[Reason]:
    """Explain the conditions of a trigger."""
    here = people.scope(account_id)._replace(place=Place.SPLIT)
    filters = list(start.data.get("where") or [])
    if start.segment_id is not None and start.event != "segment_exit":
        filters.append({"name": "contact_segment", "predicate": "eq", "value": start.segment_id})
    try:
        return why.reasons(read.filters(filters, here), here, contact_id, data, now)
    except Invalid:
        return []  # it asks for what is gone, and lets nobody in


def why_not(start: Start, told: list[Reason], flow: Flow) -> str:
    """Return why a trigger lets somebody not in, of whom its conditions were explained."""
    if any(not one.holds for one in told):
        return simulated_events.because(told, yes=False)
    if start.contact_list_id is not None:
        return f"it is about {explain.called(flow.account_id, 'list', start.contact_list_id)}"
    return "its event is not the one that is waited for"
