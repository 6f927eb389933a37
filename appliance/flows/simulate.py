"""Rehearses a flow with one person: the real steps, filters and messages on a stage that is thrown away, in no time.

What is sent is taken at once by whoever gets it, unless the script says that it comes back; what the person does is
what the script says they do, and nothing else.
"""

from typing import Any, NamedTuple

from msgspec import UNSET

from appliance.accounts.acting import By
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts import write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.requests import ContactWrite
from appliance.audience.segments import people as segments_people
from appliance.core import addresses, clock
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import given, read
from appliance.flows import (
    document,
    draft_edits,
    recorded,
    simulated_entry,
    simulated_events,
    states,
    store,
    timeline,
    version_snapshot,
)
from appliance.flows.draft_edits import Sketch
from appliance.flows.recorded import Came
from appliance.flows.rehearsal import Rehearsal, Stage
from appliance.flows.simulated_events import Cast
from appliance.flows.simulation_request import Asked, SimulateRequest
from appliance.flows.timeline import Entry, Person, Simulated
from appliance.flows.triggers import Start
from appliance.flows.why import spoken
from appliance.storage import work
from appliance.storage.models import Contact, Flow, Trigger
from appliance.storage.open import fetch_one
from appliance.storage.sandbox import FIRST

DAY_MS = 86_400_000
# So far back a rehearsal may begin, so far ahead it may end, and so long it lasts unless it is said
_BACK_MS, _AHEAD_MS, _LONG_MS = 365 * DAY_MS, 5 * 366 * DAY_MS, 400 * DAY_MS
SAMPLE = {"first_name": "Alex", "last_name": "Sample", "email": "alex@example.org", "phone": "+12025550143"}
_BY = Evidence("rehearsal", "operator")


class Times(NamedTuple):
    """When a rehearsal begins, and when it ends at the latest (ms)."""

    start: int
    until: int


def simulate(account_id: int, flow_id: int, request: SimulateRequest, sees_people: bool = True) -> Simulated:
    """Rehearse a flow; raises NotFound, or Invalid with all faults. Nothing is written, sent or rung."""
    flow = store.get(account_id, flow_id)
    faults = Faults()
    found = rehearse(flow, request, asked_steps(flow, request.steps, faults), faults, sees_people)
    found.text = timeline.text(found, _title(flow, found))
    return found


def check(account_id: int, request: SimulateRequest, flow_id: int) -> None:
    """Raise Invalid with all that is wrong with a rehearsal beyond its types, or NotFound; nothing is played."""
    flow, faults = store.get(account_id, flow_id), Faults()
    steps = asked_steps(flow, request.steps, faults)
    _times(request, faults)
    _check(flow, request, flow.steps if steps is None else steps, faults)


def asked_steps(flow: Flow, raw: Any, faults: Faults) -> list[dict[str, Any]] | None:
    """Return the steps that are rehearsed instead of those of a flow, None for its own; notes every fault."""
    if raw is UNSET:
        return None
    return document.read(flow.account_id, raw, faults, flow.steps, flow.last_action).steps


def rehearse(
    flow: Flow, asked: Asked, steps: list[dict[str, Any]] | None, faults: Faults, sees_people: bool = True,
    start: Start | None = None,
) -> Simulated:  # fmt: skip
    """Rehearse a flow, or other steps or another start in their place; raises Invalid with all faults.

    Whoever may not see people does not learn from it that somebody's address is suppressed or opted out.
    """
    times = _times(asked, faults)
    contact_id = asked.contact_id if isinstance(asked.contact_id, int) else None
    _check(flow, asked, flow.steps if steps is None else steps, faults)
    people = [contact_id] if contact_id is not None else []
    known = _addresses(asked) if sees_people else []
    with Stage(flow, people, times.start, steps or (), known).open() as version:
        if start is not None:
            said = {**start._asdict(), "data": dict(start.data)}
            work.write(Trigger.update(**said).where(Trigger.flow == flow.id).execute)
        return _played(flow, asked, steps, times, version)


def sketched(drawn: Sketch, request: Asked, sees_people: bool = True) -> Simulated:
    """Rehearse a flow as people are changing it; raises Invalid with all faults."""
    apart = drawn.is_changed
    return rehearse(
        store.get(drawn.flow.account_id, drawn.flow.id), request, drawn.steps if apart else None, Faults(),
        sees_people, drawn.start if apart else None,
    )  # fmt: skip


def _times(asked: Asked, faults: Faults) -> Times:
    now = clock.now_ms()
    start = asked.start_at if isinstance(asked.start_at, int) else now
    until = asked.until if isinstance(asked.until, int) else start + _LONG_MS
    if not now - _BACK_MS <= start <= now + _AHEAD_MS:
        faults.add("start_at", "is invalid")
    if not start <= until <= start + _AHEAD_MS:
        faults.add("until", "is invalid")
    return Times(start, until)


def _check(flow: Flow, asked: Asked, steps: list[dict[str, Any]], faults: Faults) -> None:
    contact_id = asked.contact_id if isinstance(asked.contact_id, int) else None
    if isinstance(asked.contact, ContactWrite):
        try:
            write.check_made_up(flow.account_id, asked.contact)
        except Invalid as invalid:
            faults.merge(_of_contact(invalid.fields))
    if contact_id is not None:
        if asked.contact:
            faults.add("contact", "stands beside contact_id: one of them")
        if fetch_one("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (flow.account_id, contact_id)) is None:
            faults.add("contact_id", "must exist")
    ids = {step["id"] for _, step in document.walk(steps)}
    simulated_events.check(flow.account_id, asked.events or [], ids, faults)
    faults.check()


def _played(flow: Flow, asked: Asked, steps: list[dict[str, Any]] | None, times: Times, version: int) -> Simulated:
    """Play on the open stage."""
    contact_id = asked.contact_id if isinstance(asked.contact_id, int) else None
    invented = contact_id is None
    if contact_id is None:
        contact_id = work.write(_invented, flow.account_id, asked)
    flow = Flow.get_by_id(flow.id)
    live = flow.version if flow.status == "active" and steps is None and flow.version else None
    notes = work.write(opened, flow, steps, version) if live is None else []
    entered = work.write(simulated_entry.enter, flow, contact_id, asked.event or {}, times.start)
    cast = Cast(flow.account_id, contact_id, entered.run_id)
    paths = {step["id"]: path for path, step in document.walk(flow.steps)}
    played = Rehearsal(flow, flow.version, paths, cast, times.until)
    played.notes = [*stopped(flow.account_id), *notes, *entered.notes]
    real: list[Came] = []
    if not invented:
        played.notes += _about(contact_id, flow.id, times.start)
        real = recorded.coming(contact_id, flow.id, times.start)
    played.entries.append(_entry(entered, times.start))
    end = played.play(asked.events or [], real)
    zone = segments_people.scope(flow.account_id).zone
    return Simulated(
        flow.id, live, Person(None if invented else contact_id, _name(contact_id)), zone,
        str(clock.iso(times.start)), str(clock.iso(times.until)), end, played.entries, played.notes,
    )  # fmt: skip


def _addresses(asked: Asked) -> list[tuple[str, str]]:
    """Return the addresses of somebody made up: whoever has them may have opted out, or be suppressed."""
    said = asked.contact if isinstance(asked.contact, ContactWrite) else ContactWrite()
    sent = {"email": said.email, "phone": said.phone}
    return [(kind, addresses.read(kind, text).key) for kind, text in sent.items() if isinstance(text, str)]


def _invented(account_id: int, asked: Asked) -> int:
    """Make somebody up; without any fields it is somebody with a name and an address."""
    said = asked.contact if isinstance(asked.contact, ContactWrite) and given(asked.contact) else None
    return int(write.upsert(account_id, said or read(ContactWrite, SAMPLE), _BY).contact.id)


def _of_contact(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {f"contact.{field}": words for field, words in found.items()}


def opened(flow: Flow, steps: list[dict[str, Any]] | None, version: int) -> list[str]:
    """Let a flow be live as it is edited, or with other steps; returns what would keep it from that in reality."""
    if steps is not None:
        flow.steps = version_snapshot.place_words(flow.account_id, flow.id, steps)
    trigger = Trigger.get(Trigger.flow == flow.id)
    found = states.blockers(flow, trigger, By(approves=True))
    flow.version = version - 1
    version_snapshot.publish(flow)
    flow.status, flow.paused_at, flow.drop_before = "active", None, None
    flow.save(only=[Flow.steps, Flow.version, Flow.status, Flow.paused_at, Flow.drop_before])
    said = draft_edits.said(flow.steps)
    left = [f"{path}.{one.field}: {one.message}" for path, _, one in states.unfinished(flow.account_id, said)]
    return [
        *(f"It could not go live as it is: {one.field}: {one.message}" for one in found),
        *(f"It is unfinished: {words}" for words in left),
    ]


def stopped(account_id: int) -> list[str]:
    """Say that in reality nothing would be sent at this time, if that is so."""
    if not fetch_one("SELECT 1 FROM main.account WHERE id = ? AND sending_stopped = 1", (account_id,)):
        return []
    return ["All sending of the account is stopped now: in reality messages would wait until it goes on."]


def _entry(entered: simulated_entry.Entered, at: int) -> Entry:
    return Entry(
        str(clock.iso(at)), "enter", entered.says, event=entered.event, data=entered.data, filters=entered.filters
    )  # fmt: skip


def _about(contact_id: int, flow_id: int, start: int) -> list[str]:
    """Return what is to be known about a rehearsal with a real person."""
    notes = []
    if recorded.inside_now(contact_id, flow_id):
        notes.append("They are in this flow now: in reality they could not enter it again before they have left.")
    if start < clock.now_ms():
        notes.append(
            "Events are those that came by then; fields, lists and counts of the person are as they are today."
        )
    return notes


def _name(contact_id: int) -> str:
    """Return who a person is: name and address, as far as there are any."""
    contact = contacts.load([Contact.get_by_id(contact_id)])[0]
    address = next((channel.value for channel in contact.channels), None)
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    return (
        f"{name} <{address}>"
        if name and address
        else name or address or ("somebody" if contact.id >= FIRST else f"contact {contact.id}")
    )


def _title(flow: Flow, found: Simulated) -> str:
    what = f"version {found.version}, which is live" if found.version else "as it is edited"
    begins = spoken(clock.parse(found.started_at), found.time_zone)
    return f"Rehearsal of “{flow.name}” ({what}) with {found.contact.name}, from {begins}"
