"""What moves by itself, for pages that ask again: campaigns in lists, and the queue at the foot of the sidebar."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.campaigns import store
from appliance.sending.messages import status_line
from appliance.storage.work import call
from ui import view
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_live", url_prefix="/live")
# As many as a page of a list shows
_MAX_IDS = 100


@pages.get("/campaigns", name="campaigns")
@signed_in
async def campaigns(request: Request, visit: Visit) -> HTTPResponse:
    """The cells of all campaigns that a page names; the answer asks again only for those that still move."""
    if not view.is_part(request):
        return view.go(request, "/campaigns")
    named = (request.args.get("ids") or "").split(",")[:_MAX_IDS]
    ids = [int(one) for one in named if one.isdecimal() and len(one) < 16]
    return view.page(request, "live/campaigns.html", rows=await call(store.some, visit.account_id, ids))


@pages.get("/queue", name="queue")
@signed_in
async def queue(request: Request, visit: Visit) -> HTTPResponse:
    """How sending stands, in one line."""
    if not view.is_part(request):
        return view.go(request, "/outbox")
    return view.page(request, "live/queue.html", standing=await call(status_line.of, visit.account_id))
