"""Campaigns: the table, and a new one."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.campaigns import requests, store, template_access
from appliance.content.templates import store as templates
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import audiences, rights, tables, view
from ui.forms import Form
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.tables import Chip, Column

pages = Pages("ui_campaigns", url_prefix="/campaigns")
# Chip: label and the phases it stands for.
CHIPS = {
    "": ("All", ()),
    "draft": ("Drafts", ("draft",)),
    "asked": ("Waits for approval", ()),
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
    table.acts = "/campaigns/acts" if rights.may(visit.user.role, "POST", "/campaigns/acts") else ""
    phase = table.state["phase"]

    def read() -> dict[int, str]:
        counted, waiting = store.phases(visit.account_id), store.asked(visit.account_id)
        for key, (label, phases) in CHIPS.items():
            many = sum(counted.get(one, 0) for one in phases) if phases else sum(counted.values())
            many = waiting if key == "asked" else many
            if many or key in ("", "draft", phase):
                table.chips = [*table.chips, Chip(key, label, many)]
        table.found = store.page(visit.account_id, _query(table.raw, phase), table.sort, sums=False)
        names = audiences.choices(visit.account_id).names
        return {row.id: audiences.name(row, names) for row in table.found.rows}

    return tables.answer(request, "campaigns/index.html", table, to=await call(read))


def _query(raw: dict[str, Any], phase: str) -> requests.CampaignQuery:
    if phase == "asked":
        return fields.read(requests.CampaignQuery, raw | {"asked": True})
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
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a draft; with a template it begins with a copy of it."""
    form = Form.of(request)
    try:
        made = await commit(_create, visit.account_id, form, visit.user.id)
    except errors.Invalid as refused:
        return await _new(request, visit, form.take(refused), 422)
    return view.go(request, f"/campaigns/{made.id}")


async def _new(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    sms = form["channel"] == "sms"
    asked = templates.TemplateQuery(limit=100, standalone=True, channel="sms" if sms else "email")
    choices = (await call(templates.page, visit.account_id, asked)).rows
    return view.page(request, "campaigns/new.html", status, form=form, templates=choices, sms=sms)


def _create(account_id: int, form: Form, user_id: int) -> Any:
    chosen = next(iter(form.ids("template")), 0 if form["template"] else None)
    source = templates.get(account_id, chosen) if chosen is not None else None
    channel = source.channel if source is not None else "sms" if form["channel"] == "sms" else "email"
    untitled = "Untitled SMS" if channel == "sms" else "Untitled email"
    name = form["name"] or (source.name if source is not None else "") or untitled
    made = store.create(account_id, fields.read(requests.CampaignCreate, {"name": name, "channel": channel}), user_id)
    return made if source is None else template_access.take_template(account_id, made.id, source.id, user_id)
