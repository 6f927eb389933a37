"""Flows as they are written by hand, and rehearsals of them, for tests."""

from typing import Any

from appliance.accounts.audit import Actor
from appliance.core import validation
from appliance.flows import simulation, simulation_bulk, store
from appliance.flows.simulation_bulk import BulkSimulateRequest, BulkSimulation
from appliance.flows.simulation_events import SimulateRequest
from appliance.flows.simulation_timeline import Entry, Simulation
from appliance.flows.store import FlowCreate, FlowPatch
from appliance.storage import transactions
from appliance.storage.models import Flow
from tests.domain.home import Home

START = "2031-03-03T09:00:00Z"
DAY = 86_400


def written(home: Home, steps: list[dict[str, Any]], trigger: dict[str, Any] | None = None, **body: Any) -> Flow:
    """Make a flow as the API does."""
    request = validation.read(FlowCreate, {"trigger": trigger or {"event": "cart_add"}, "steps": steps, **body})
    return transactions.write(
        store.create, home.account_id, request, store.parse_request(home.account_id, request), Actor(can_approve=True)
    )


def changed(home: Home, flow: Flow, **body: Any) -> Flow:
    """Change a flow as the API does."""
    request = validation.read(FlowPatch, body)
    draft = store.parse_request(home.account_id, request, flow.id)
    return transactions.write(store.update, home.account_id, flow.id, request, draft, Actor(can_approve=True))


def rehearsed(home: Home, flow: Flow, **body: Any) -> Simulation:
    """Rehearse a flow with one person, from a Monday in spring."""
    request = validation.read(SimulateRequest, {"start_at": START, **body})
    return simulation.simulate(home.account_id, flow.id, request)


def with_all(home: Home, flow: Flow, **body: Any) -> BulkSimulation:
    """Rehearse a flow with everybody who met its trigger."""
    return simulation_bulk.simulate_bulk(home.account_id, flow.id, validation.read(BulkSimulateRequest, body))


def told(found: Simulation, step_id: int) -> Entry:
    """Return what is told of a step."""
    return next(entry for entry in found.timeline if entry.step_id == step_id and entry.told == "step")


def ways(found: Simulation) -> list[tuple[int | None, str | None]]:
    """Return the steps that were come to, each with how it was left."""
    return [(entry.step_id, entry.outcome) for entry in found.timeline if entry.told == "step"]


def clicked(since: str = "flow_start") -> dict[str, Any]:
    """Return the filter of who clicked since they entered."""
    return {"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": since}}
