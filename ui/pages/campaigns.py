"""Campaigns: the table, and a new one."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.campaigns import choosing, requests, store
from appliance.db.work import call, commit
from appliance.templates import store as templates
from ui import audiences, guard, tables, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Visit
from ui.tables import Chip, Column

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
_COLUMNS = (
    Column("Campaign", "name", ""), Column("Status"), Column("Audience"), Column("Handed over", number=True),
    Column("When", "updated"), Column("Newest first", "created", shown=False),
)  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table with chips for the phases; its cells that move ask for themselves."""
    table = tables.Table(request, "/campaigns", ("campaign", "campaigns"), _COLUMNS, "-updated", ("phase",))
    table.chip_name = "phase"
    table.acts = "/campaigns/acts" if guard.may(visit.user.role, "POST", "/campaigns/acts") else ""
    phase = table.state["phase"]

    def read() -> dict[int, str]:
        counted = store.phases(visit.account_id)
        for key, (label, phases) in CHIPS.items():
            many = sum(counted.get(one, 0) for one in phases) if phases else sum(counted.values())
            if many or key in ("", "draft", phase):
                table.chips = [*table.chips, Chip(key, label, many)]
        table.found = store.page(visit.account_id, _query(table.raw, phase), table.sort, sums=False)
        names = audiences.choices(visit.account_id).names
        return {row.id: audiences.name(row, names) for row in table.found.rows}

    return tables.answer(request, "campaigns/index.html", table, to=await call(read))


def _query(raw: dict[str, Any], phase: str) -> requests.CampaignQuery:
    return fields.read(requests.CampaignQuery, raw | ({"phase": phase} if phase in CHIPS and phase else {}))


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
