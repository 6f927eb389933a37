"""Somebody else looks before it goes out: asked for, approved, rejected; of campaigns and of flows."""

from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import approving, audit
from appliance.campaigns import reviewing
from appliance.core import errors, fields
from appliance.flows import states, store
from appliance.storage.work import commit
from ui import view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_approvals")
_ASKED = "Asked. It stands under “Waits for approval” on Home."
_APPROVED = "Approved. It can go out as it is."
_REJECTED = "Rejected. It cannot go out until it is changed."


@pages.post("/campaigns/<campaign_id:int>/ask", name="ask")
@signed_in
async def ask(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Let a campaign wait for somebody to approve of it."""
    told = (visit.by, "campaign_ask_approval", reviewing.ask, visit.account_id, campaign_id, visit.by)
    return await _done(request, f"/campaigns/{campaign_id}", _ASKED, audit.noting, *told)


@pages.post("/campaigns/<campaign_id:int>/approve", name="approve")
@signed_in
async def approve(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Say that a campaign may be sent as it is."""
    told = (visit.by, "campaign_approve", reviewing.approve, visit.account_id, campaign_id, visit.by)
    return await _done(request, f"/campaigns/{campaign_id}", _APPROVED, audit.noting, *told)


@pages.post("/campaigns/<campaign_id:int>/reject", name="reject")
@signed_in
async def reject(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Say that a campaign may not be sent as it is, and why."""
    told = (visit.by, "campaign_reject", reviewing.reject, visit.account_id, campaign_id, _note(request))
    return await _done(request, f"/campaigns/{campaign_id}", _REJECTED, audit.noting, *told)


@pages.post("/flows/<flow_id:int>/ask", name="ask_flow")
@signed_in
async def ask_flow(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Let a flow wait for somebody to approve of it."""
    told = (visit.by, "flow_ask_approval", store.moved, visit.account_id, flow_id, states.ask, visit.by)
    return await _done(request, f"/flows/{flow_id}", _ASKED, audit.noting, *told)


@pages.post("/flows/<flow_id:int>/approve", name="approve_flow")
@signed_in
async def approve_flow(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Say that a flow may go live as it is."""
    told = (visit.by, "flow_approve", store.moved, visit.account_id, flow_id, states.approve, visit.by)
    return await _done(request, f"/flows/{flow_id}", _APPROVED, audit.noting, *told)


@pages.post("/flows/<flow_id:int>/reject", name="reject_flow")
@signed_in
async def reject_flow(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Say that a flow may not go live as it is, and why."""
    told = (visit.by, "flow_reject", store.moved, visit.account_id, flow_id, states.reject, _note(request))
    return await _done(request, f"/flows/{flow_id}", _REJECTED, audit.noting, *told)


def _note(request: Request) -> str | None:
    said = fields.read(approving.Reject, {"note": Form.of(request)["note"][:1000]})
    return said.note or None


async def _done(request: Request, here: str, said: str, verb: Callable[..., Any], *told: Any) -> HTTPResponse:
    """Do it, and come back to the page; where the page was older than its thing it shows how that stands."""
    try:
        await commit(verb, *told)
    except errors.Invalid as refused:
        if refused.reason not in ("campaign_locked", "approval_required", None):
            said = "Something else is missing. The checklist says what."
        else:
            said = "It has moved on meanwhile. This is how it stands."
    view.say(request, said)
    return view.go(request, here)
