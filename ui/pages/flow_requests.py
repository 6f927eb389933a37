"""The HTTP requests of a flow that wait or are tried again, and the button that makes them at once."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core.i18n import gettext, ngettext
from appliance.flows import drafts, request_list, store
from appliance.storage.transactions import commit, fetch
from ui import view
from ui.forms import Form, lookups, parse_int
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.widgets import flow_tree

pages = Pages("ui_flow_requests", url_prefix="/flows")


@pages.get("/<flow_id:int>/requests")
@signed_in("flows:read")
async def list_requests(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the pending requests of a flow, the next to be made first, and where to find those that failed."""
    number = max(1, parse_int(request.args.get("page"), 1))

    def read() -> dict[str, Any]:
        page = request_list.list_pending(visit.account_id, flow_id, number)
        draft = drafts.load_draft(visit.account_id, flow_id)
        titles = flow_tree.step_titles(draft)
        return {
            "flow": draft.flow, "page": page, "titles": titles, "reason_label": flow_tree.reason_label,
            "contacts_by_id": lookups.contacts_by_id({row.contact_id for row in page.rows if row.contact_id}),
            "request_steps": [(step_id, titles[step_id]) for step_id in flow_tree.list_request_steps(draft)],
            "may_send": visit.can("campaigns:send"),
        }  # fmt: skip

    return view.render(request, "flows/requests.html", **await fetch(read))


@pages.post("/<flow_id:int>/requests/retry")
@signed_in("campaigns:send")
async def retry_requests(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Make the selected requests at once."""
    await fetch(store.get, visit.account_id, flow_id)
    ids = Form.from_request(request).ids("request_ids")
    changed = await commit(request_list.retry_now, visit.account_id, flow_id, ids, visit.actor) if ids else 0
    text = ngettext("%(num)s request is made now.", "%(num)s requests are made now.", changed)
    if not ids:
        text = gettext("No requests selected.")
    elif not changed:
        text = gettext("These requests have been made already.")
    view.flash(request, text)
    return view.redirect(request, f"/flows/{flow_id}/requests")
