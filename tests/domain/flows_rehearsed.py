"""Flows as they are written by hand, and rehearsals of them, for tests."""

from typing import Any

from appliance.accounts.acting import By
from appliance.core import fields
from appliance.flows import bulk_simulation, simulate, store
from appliance.flows.bulk_simulation import Crowd, CrowdRequest
from appliance.flows.requests import FlowCreate, FlowPatch
from appliance.flows.simulation_request import SimulateRequest
from appliance.flows.timeline import Entry, Simulated
from appliance.storage import work
from appliance.storage.models import Flow
from tests.domain.home import Home

START = "2031-03-03T09:00:00Z"
DAY = 86_400


def written(home: Home, steps: list[dict[str, Any]], trigger: dict[str, Any] | None = None, **body: Any) -> Flow:
    """Make a flow as the API does."""
    request = fields.read(FlowCreate, {"trigger": trigger or {"event": "cart_add"}, "steps": steps, **body})
    return work.write(store.create, home.account_id, request, store.read(home.account_id, request), By(approves=True))


def changed(home: Home, flow: Flow, **body: Any) -> Flow:
    """Change a flow as the API does."""
    request = fields.read(FlowPatch, body)
    draft = store.read(home.account_id, request, flow.id)
    return work.write(store.update, home.account_id, flow.id, request, draft, By(approves=True))


def rehearsed(home: Home, flow: Flow, **body: Any) -> Simulated:
    """Rehearse a flow with one person, from a Monday in spring."""
    request = fields.read(SimulateRequest, {"start_at": START, **body})
    return simulate.simulate(home.account_id, flow.id, request)


def with_all(home: Home, flow: Flow, **body: Any) -> Crowd:
    """Rehearse a flow with everybody who met its trigger."""
    return bulk_simulation.simulate_all(home.account_id, flow.id, fields.read(CrowdRequest, body))


def told(found: Simulated, step_id: int) -> Entry:
    """Return what is told of a step."""
    return next(entry for entry in found.timeline if entry.step_id == step_id and entry.told == "step")


def ways(found: Simulated) -> list[tuple[int | None, str | None]]:
    """Return the steps that were come to, each with how it was left."""
    return [(entry.step_id, entry.outcome) for entry in found.timeline if entry.told == "step"]


def clicked(since: str = "flow_start") -> dict[str, Any]:
    """Return the filter of who clicked since they entered."""
    return {"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": since}}
