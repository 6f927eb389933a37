"""Home: what is left to set up, then what is going on."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import brand
from appliance.account import accounts
from appliance.campaigns import store
from appliance.campaigns.requests import CampaignQuery
from appliance.db.work import call
from appliance.events.log import EventQuery
from ui import view
from ui.guard import signed_in
from ui.pages import activity
from ui.session import Visit

pages = Blueprint("ui_home")
_NOW = ("holding", "sending", "paused")


@pages.get("/", name="index")
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The checklist until it is done; then now, next and what happened."""
    facts = await call(_facts, visit.account_id, visit.account)
    return view.page(request, "home/index.html", **facts)


def _facts(account_id: int, account: Any) -> dict[str, Any]:
    recent = store.page(account_id, CampaignQuery(limit=50)).rows
    counts = accounts.counts(account_id)
    now = [row for row in recent if row.phase in _NOW]
    return {
        "steps": _steps(brand.get(account_id), account, counts, any(row.started_at for row in recent)),
        "counts": counts,
        "sent": accounts.usage(account_id)["email_sent"],
        "now_rows": now,
        "moving": any(row.phase in ("holding", "sending") for row in now),
        "next_rows": sorted((row for row in recent if row.phase == "scheduled"), key=lambda row: row.scheduled_at),
        "drafts": [row for row in recent if row.phase == "draft"][:5],
        "done_rows": [row for row in recent if row.phase in ("completed", "cancelled")][:5],
        "events": activity.load(account_id, EventQuery(limit=8, test=False)).rows,
    }


def _steps(look: Any, account: Any, counts: dict[str, int], has_sent: bool) -> list[dict[str, Any]]:
    lines = (
        ("Say who is writing", "Company and postal address stand at the foot of every email.", "/brand", "palette",
         bool(look.company_name and look.physical_address)),
        ("Choose the name and address people see", "They know at a glance that it is you.", "/settings", "mail",
         bool(account.email_from_email)),
        ("Bring in your people", "Add one person to begin with, and put them into a list.", "/contacts", "users",
         counts["contacts"] > 0 and counts["lists"] > 0),
        ("Send a first email", "In capture mode it goes to the inbox here, so nothing can go wrong.", "/campaigns/new",
         "send", has_sent),
    )  # fmt: skip
    return [dict(zip(("title", "text", "href", "icon", "done"), line, strict=True)) for line in lines]
