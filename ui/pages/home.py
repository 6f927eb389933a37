"""Home: what is left to set up, then what is going on."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import brand, config
from appliance.account import accounts
from appliance.campaigns import store
from appliance.campaigns.requests import CampaignQuery
from appliance.db.work import call
from appliance.events.log import EventQuery
from appliance.sending_domains import store as domains
from ui import view
from ui.guard import signed_in
from ui.pages import activity
from ui.session import Visit

pages = Blueprint("ui_home")
_NOW = ("holding", "sending", "paused")
_FEW = 5


@pages.get("/", name="index")
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The checklist until it is done; then now, next and what happened."""
    facts = await call(_facts, visit.account_id, visit.account)
    return view.page(request, "home/index.html", **facts)


def _facts(account_id: int, account: Any) -> dict[str, Any]:
    phases = store.phases(account_id)

    def some(*names: str) -> list[Any]:
        found = [row for name in names if phases.get(name) for row in _few(account_id, name)]
        return sorted(found, key=lambda row: row.updated_at, reverse=True)

    now = some(*_NOW)
    counts = accounts.counts(account_id)
    has_sent = any(phases.get(name) for name in (*_NOW, "completed", "cancelled"))
    return {
        "steps": _steps(brand.get(account_id), account, counts, has_sent),
        "counts": counts,
        "sent": accounts.usage(account_id)["email_sent"],
        "now_rows": now,
        "moving": any(row.phase in ("holding", "sending") for row in now),
        "next_rows": sorted(some("scheduled"), key=lambda row: row.scheduled_at),
        "drafts": some("draft")[:_FEW],
        "done_rows": some("completed", "cancelled")[:_FEW],
        "events": activity.load(account_id, EventQuery(limit=8, test=False)).rows,
    }


def _few(account_id: int, phase: str) -> list[Any]:
    return list(store.page(account_id, CampaignQuery(limit=_FEW, phase=phase)).rows)


def _domain(account_id: int) -> list[tuple[str, str, str, str, bool]]:
    """Answer the step that only mail which really leaves needs."""
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return []
    done = domains.first_verified(account_id) is not None
    text = "A few lines in DNS, and receivers know that mail in your name is from you."
    return [("Show that your domain is yours", text, "/settings/domains", "zap", done)]


def _steps(look: Any, account: Any, counts: dict[str, int], has_sent: bool) -> list[dict[str, Any]]:
    lines = (
        ("Say who is writing", "Company and postal address stand at the foot of every email.", "/brand", "palette",
         bool(look.company_name and look.physical_address)),
        ("Choose the name and address people see", "They know at a glance that it is you.", "/settings", "mail",
         bool(account.email_from_email)),
        *_domain(account.id),
        ("Bring in your people", "Add one person to begin with, and put them into a list.",
         "/lists/new" if counts["contacts"] else "/contacts/new", "users",
         counts["contacts"] > 0 and counts["lists"] > 0),
        ("Send a first email", "In capture mode it goes to the inbox here, so nothing can go wrong.", "/campaigns/new",
         "send", has_sent),
    )  # fmt: skip
    return [dict(zip(("title", "text", "href", "icon", "done"), line, strict=True)) for line in lines]
