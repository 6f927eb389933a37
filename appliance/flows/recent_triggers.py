"""Who would have entered a flow of late, had its trigger been as it is: the last people its event happened to."""

from typing import NamedTuple

import msgspec

from appliance.audience.segments import people as members
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.flows import simulated_entry, starting, triggers
from appliance.flows.triggers import MANUAL, Start
from appliance.storage.models import Flow
from appliance.storage.open import fetch_one, rows, scalar

DAY_MS = 86_400_000
MAX_EVENTS = 10
_LAST = (
    "SELECT contact_id, max(id) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? AND test = 0 "
    "AND contact_id IS NOT NULL GROUP BY contact_id ORDER BY 2 DESC LIMIT ?"
)


class Met(NamedTuple):
    """Somebody to whom the event happened: when, whether they would have entered, and why not."""

    contact_id: int
    at: int
    enters: bool
    why: str


class Lookback(NamedTuple):
    """The last people to whom the event happened, the newest first, and how many there were in those days."""

    days: int
    number: int
    people: list[Met]


def look(flow: Flow, start: Start, days: int = 7) -> Lookback:
    """Hold what happened in the last days against a trigger; what cannot be asked lets nobody in."""
    since = clock.now_ms() - days * DAY_MS
    if start.event == MANUAL:
        return Lookback(days, 0, [])
    number = int(scalar(
        "SELECT count(DISTINCT contact_id) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? "
        "AND test = 0", (flow.account_id, start.event, since),
    ))  # fmt: skip
    found = rows(_LAST, (flow.account_id, start.event, since, MAX_EVENTS))
    met = set() if triggers.lacks(start) else set(starting.met(flow.account_id, flow.id, start, [e for _, e in found]))
    return Lookback(days, number, [_one(flow, start, contact_id, event_id, event_id in met)
                                   for contact_id, event_id in found])  # fmt: skip


def _one(flow: Flow, start: Start, contact_id: int, event_id: int, met: bool) -> Met:
    text, at = rows("SELECT data, created_at FROM event WHERE id = ?", (event_id,))[0]
    if not met:
        told = simulated_entry.reasons(flow.account_id, start, contact_id, msgspec.json.decode(text), clock.now_ms())
        return Met(contact_id, at, False, simulated_entry.why_not(start, told, flow))
    inside = fetch_one(
        "SELECT status FROM run WHERE contact_id = ? AND flow_id = ? AND status = 'live' AND test = 0",
        (contact_id, flow.id),
    )
    if inside:
        return Met(contact_id, at, True, "they are inside now")
    return Met(contact_id, at, True, "")


def inside_segment(account_id: int, segment_id: int) -> int | None:
    """Return how many people are in a segment now, or None if it can be asked no more."""
    here = members.scope(account_id)
    try:
        found = members.nodes(account_id, [{"name": "contact_segment", "predicate": "eq", "value": segment_id}])
    except Invalid:
        return None
    return members.count(account_id, found, here)
