"""What happened: the stream of events."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import clock, fields
from appliance.db.work import call
from appliance.events import log
from appliance.pages import Page
from ui import people, view, words
from ui.forms import number
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_activity", url_prefix="/activity")
_MONTH_MS = 30 * 86_400_000


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Events, newest first; those of test messages only when asked for."""
    event = (request.args.get("event") or "")[:64]
    tests = request.args.get("tests") == "yes"
    contact_id = number(request.args.get("contact_id"), 0, 2**53) if request.args.get("contact_id") else None
    raw: dict[str, Any] = {"page": number(request.args.get("page")), "limit": 50}
    raw |= {"event": event} if event else {}
    raw |= {} if tests else {"test": False}
    raw |= {"contact_id": contact_id} if contact_id else {}
    found = await call(load, visit.account_id, fields.read(log.EventQuery, raw))
    counts = await call(log.counts, visit.account_id, clock.now_ms() - _MONTH_MS)
    kinds = sorted({*counts, *([event] if event else [])}, key=lambda name: words.event(name)[2])
    return view.page(
        request, "activity/index.html", found=found, event=event, tests=tests, kinds=kinds, contact_id=contact_id
    )


def load(account_id: int, query: log.EventQuery) -> Page:
    """Answer events, each with the person it is about as `who` (None if there is none)."""
    found = log.page(account_id, query)
    known = people.by_id({row.contact_id for row in found.rows if row.contact_id})
    for row in found.rows:
        row.who = known.get(row.contact_id)
    return found
