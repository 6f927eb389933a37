"""Campaigns: the table, and a new one."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.campaigns import again, choosing, copying, requests, states, store
from appliance.db.work import call, commit
from appliance.templates import store as templates
from ui import audiences, view
from ui.forms import Form, listing
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_campaigns", url_prefix="/campaigns")
# Chip: label and the phases it stands for.
CHIPS = {
    "": ("All", ()),
    "draft": ("Drafts", ("draft",)),
    "scheduled": ("Scheduled", ("scheduled",)),
    "sending": ("Sending", ("sending", "holding")),
    "paused": ("Paused", ("paused",)),
    "completed": ("Done", ("completed",)),
    "cancelled": ("Stopped", ("cancelled",)),
}
MOVING = ("sending", "holding")


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table with chips for the phases; it refreshes itself while something is sending."""
    phase = request.args.get("phase") or ""
    phase = phase if phase in CHIPS else ""
    raw, search = listing(request, 50)
    raw |= {"phase": phase} if phase else {}
    found = await call(store.page, visit.account_id, fields.read(requests.CampaignQuery, raw))
    counted = await call(store.phases, visit.account_id)
    chips = [
        (key, label, sum(counted.values()) if not phases else sum(counted.get(one, 0) for one in phases))
        for key, (label, phases) in CHIPS.items()
    ]
    names = (await call(audiences.choices, visit.account_id)).names
    to = {row.id: audiences.name(row, names) for row in found.rows}
    return view.page(
        request, "campaigns/index.html", found=found, search=search, phase=phase, chips=chips, to=to,
        moving=any(row.phase in MOVING for row in found.rows), query=request.query_string,
    )  # fmt: skip


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """A name, and what to begin from."""
    channel = "sms" if request.args.get("channel") == "sms" else "email"
    form = Form({"template": request.args.get("template") or "", "channel": channel})
    return await _new(request, visit, form, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a draft; with a template it begins with a copy of it."""
    form = Form.of(request)
    try:
        made = await commit(_create, visit.account_id, form, visit.user.id)
    except errors.Invalid as refused:
        return await _new(request, visit, form.take(refused), 422)
    return view.go(request, f"/campaigns/{made.id}")


@pages.post("/<campaign_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Delete a campaign; what is still waiting will not leave."""
    gone = await commit(states.delete, visit.account_id, campaign_id)
    view.say(request, f"{gone.name} is deleted.")
    return view.go(request, "/campaigns")


@pages.post("/<campaign_id:int>/duplicate", name="duplicate")
@signed_in
async def duplicate(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Make a draft that says the same to the same people."""
    made = await commit(copying.duplicate, visit.account_id, campaign_id)
    view.say(request, "This is the copy. The first one stays as it is.")
    return view.go(request, f"/campaigns/{made.id}")


@pages.post("/<campaign_id:int>/not-opened", name="not_opened")
@signed_in
async def once_more(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Make a draft for those who did not open it, with a segment that knows who they are."""
    made = await commit(again.not_opened, visit.account_id, campaign_id)
    view.say(request, "A draft for those who did not open it. Another subject often helps.")
    return view.go(request, f"/campaigns/{made.id}?open=from")


async def _new(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    asked = templates.TemplateQuery(limit=100, standalone=True, channel=form["channel"] or "email")
    choices = (await call(templates.page, visit.account_id, asked)).rows
    return view.page(request, "campaigns/new.html", status, form=form, templates=choices, sms=form["channel"] == "sms")


def _create(account_id: int, form: Form, user_id: int) -> Any:
    source = templates.get(account_id, int(form["template"])) if form["template"].isdecimal() else None
    channel = source.channel if source is not None else "sms" if form["channel"] == "sms" else "email"
    untitled = "Untitled SMS" if channel == "sms" else "Untitled email"
    name = form["name"] or (source.name if source is not None else "") or untitled
    made = store.create(account_id, fields.read(requests.CampaignCreate, {"name": name, "channel": channel}))
    return made if source is None else choosing.take(account_id, made.id, source.id, user_id)
