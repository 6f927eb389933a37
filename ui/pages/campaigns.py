"""Campaigns: the table, and a new one."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.campaigns import requests, states, store
from appliance.db.work import call, commit
from appliance.templates import store as templates
from ui import people, view
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
    lists = {row.id: row.name for row in await call(people.all_lists, visit.account_id)}
    return view.page(
        request, "campaigns/index.html", found=found, search=search, phase=phase, chips=chips, lists=lists,
        moving=any(row.phase in MOVING for row in found.rows), query=request.query_string,
    )  # fmt: skip


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """A name, and what to begin from."""
    form = Form({"template": request.args.get("template") or ""})
    return await _new(request, visit, form, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a draft; with a template it begins with a copy of it."""
    form = Form.of(request)
    try:
        template = int(form["template"]) if form["template"].isdecimal() else None
        made = await commit(_create, visit.account_id, form["name"], template)
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


async def _new(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    asked = templates.TemplateQuery(limit=100, standalone=True)
    choices = (await call(templates.page, visit.account_id, asked)).rows
    return view.page(request, "campaigns/new.html", status, form=form, templates=choices)


def _create(account_id: int, name: str, template_id: int | None) -> Any:
    raw: dict[str, Any] = {"name": name or "Untitled email"}
    if template_id:
        source = templates.get(account_id, template_id)
        raw |= {"name": name or source.name or "Untitled email", "channel": source.channel}
        raw["template_attributes"] = {
            key: value for key in ("subject", "preheader", "body", "design") if (value := getattr(source, key))
        }
    return store.create(account_id, fields.read(requests.CampaignCreate, raw))
