"""Helpers that create flows through the API's functions and simulate them."""

from typing import Any

from appliance.accounts.audit import Actor
from appliance.core import validation
from appliance.flows import simulation, simulation_bulk, store
from appliance.flows.simulation_bulk import BulkSimulateRequest, BulkSimulation
from appliance.flows.simulation_events import SimulateRequest
from appliance.flows.simulation_timeline import Simulation, SimulationEntry
from appliance.flows.store import FlowCreate, FlowPatch
from appliance.storage import transactions
from appliance.storage.models import Flow
from tests.domain.home import Home

START = "2031-03-03T09:00:00Z"
DAY = 86_400


def create_flow(home: Home, steps: list[dict[str, Any]], trigger: dict[str, Any] | None = None, **body: Any) -> Flow:
    """Create a flow as the API does."""
    request = validation.read(FlowCreate, {"trigger": trigger or {"event": "cart_add"}, "steps": steps, **body})
    return transactions.write(
        store.create, home.account_id, request, store.parse_request(home.account_id, request), Actor(can_approve=True)
    )


def update_flow(home: Home, flow: Flow, **body: Any) -> Flow:
    """Update a flow as the API does."""
    request = validation.read(FlowPatch, body)
    draft = store.parse_request(home.account_id, request, flow.id)
    return transactions.write(store.update, home.account_id, flow.id, request, draft, Actor(can_approve=True))


def simulate(home: Home, flow: Flow, **body: Any) -> Simulation:
    """Simulate a flow with one contact, starting at START unless `body` says otherwise."""
    request = validation.read(SimulateRequest, {"start_at": START, **body})
    return simulation.simulate(home.account_id, flow.id, request)


def simulate_bulk(home: Home, flow: Flow, **body: Any) -> BulkSimulation:
    """Simulate a flow in bulk, with the contacts who met its trigger."""
    return simulation_bulk.simulate_bulk(home.account_id, flow.id, validation.read(BulkSimulateRequest, body))


def step_entry(simulation_result: Simulation, step_id: int) -> SimulationEntry:
    """Return the timeline entry of a step."""
    return next(entry for entry in simulation_result.timeline if entry.step_id == step_id and entry.kind == "step")


def step_outcomes(simulation_result: Simulation) -> list[tuple[int | None, str | None]]:
    """Return the (step id, outcome) of each step that the simulation reached."""
    return [(entry.step_id, entry.outcome) for entry in simulation_result.timeline if entry.kind == "step"]


def clicked_filter(since: str = "flow_start") -> dict[str, Any]:
    """Return a filter for contacts who clicked an email since `since`."""
    return {"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": since}}
