"""What starts a flow, who enters then, and who would have."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors, fields
from appliance.flows import draft_edits, recent_triggers
from appliance.flows.requests import FlowPatch
from appliance.storage.work import call, commit
from ui import flow_forms, flow_together, flow_tree, together, view
from ui import people as named
from ui.filters import Rows
from ui.flow_forms import StepForm
from ui.flow_page import START, panel, saved
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_flow_start", url_prefix="/flows")


@pages.post("/<flow_id:int>/trigger", name="trigger")
@signed_in
@together.meeting
async def trigger(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Keep what starts a flow, and its goal."""
    form = StepForm.of(request)
    drawn = await call(draft_edits.of, visit.account_id, flow_id)
    known = await call(flow_together.named_at_start, visit.account_id)
    together.meet(form, flow_together.START, flow_forms.start_shown(drawn.start, drawn.goal), known)
    if form.met:
        return await panel(request, visit, flow_id, START, form, 409)

    def now() -> Form:
        there = draft_edits.of(visit.account_id, flow_id)
        return flow_forms.start_shown(there.start, there.goal)

    try:
        kept = (_keep, visit, flow_id, form)
        await commit(together.still, form, flow_together.START, now, *kept)
    except errors.Invalid as refused:
        return await panel(request, visit, flow_id, START, flow_forms.take(form, refused), 422)
    return await saved(request, visit, flow_id, START)


@pages.post("/<flow_id:int>/conditions", name="conditions")
@signed_in
@together.meeting
async def conditions(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Keep what must hold of who enters, beside what happened to them."""
    form = StepForm.of(request)
    drawn = await call(draft_edits.of, visit.account_id, flow_id)
    start = together.opened(flow_forms.start_shown(drawn.start, drawn.goal), flow_together.START)
    rows, start.where = Rows.posted(form.lists), form
    start.rows = rows
    if rows.act(form.lists):
        return await panel(request, visit, flow_id, START, start)
    now, kept = flow_together.where(drawn.start), Rows.of(drawn.start.data.get("where") or [])
    form.values["rules"] = flow_together.rules(rows)
    said = await call(flow_together.said, visit.account_id, rows, kept)
    together.meet(form, flow_together.WHERE, now, dict.fromkeys(flow_together.WHERE.all(now), said))
    if form.met:
        return await panel(request, visit, flow_id, START, start, 409)
    rows = start.rows = kept if form["rules"] == now["rules"] else rows

    def there() -> Form:
        return flow_together.where(draft_edits.of(visit.account_id, flow_id).start)

    try:
        kept_so = (_narrow, visit, flow_id, rows.filters())
        await commit(together.still, form, flow_together.WHERE, there, *kept_so)
    except errors.Invalid as refused:
        rows.take(refused, "trigger.data.where")
        return await panel(request, visit, flow_id, START, start, 422)
    return await saved(request, visit, flow_id, START)


def _narrow(visit: Visit, flow_id: int, where: list[Any]) -> None:
    data = draft_edits.of(visit.account_id, flow_id).start.data
    draft_edits.retrigger(visit.account_id, flow_id, {"data": {**data, "where": where}}, visit.by)


def _keep(visit: Visit, flow_id: int, form: StepForm) -> None:
    goal = form.text("goal")
    raw = flow_forms.start_read(form, draft_edits.of(visit.account_id, flow_id).start)
    fields.read(FlowPatch, {"goal": goal})
    draft_edits.retrigger(visit.account_id, flow_id, raw, visit.by)
    draft_edits.aim(visit.account_id, flow_id, goal, visit.by)


@pages.get("/<flow_id:int>/met", name="met")
@signed_in
async def met(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Who would have entered in the last days, and who would not, and why."""

    def read() -> dict[str, Any]:
        drawn = draft_edits.of(visit.account_id, flow_id)
        found = recent_triggers.look(drawn.flow, drawn.start)
        inside = None
        if drawn.start.segment_id is not None:
            inside = recent_triggers.inside_segment(visit.account_id, drawn.start.segment_id)
        return {
            "flow": drawn.flow, "drawn": drawn, "met": found, "inside_segment": inside,
            "start": flow_tree.start_words(visit.account_id, drawn.start),
            "known": named.by_id({one.contact_id for one in found.people}),
        }  # fmt: skip

    return view.page(request, "flows/met.html", **await call(read))
