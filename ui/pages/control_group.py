"""The page that compares the account's control group with the contacts who got campaigns."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts
from appliance.campaigns import control_group
from appliance.storage.transactions import scan_for
from ui import view
from ui.forms import experiment_forms
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.widgets import experiment_words

pages = Pages("ui_control_group", url_prefix="/campaigns/control-group")


@pages.get("/")
@signed_in("campaigns:read")
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """Show the conversions of both groups; `event` is the name of the event that counts, by default a paid order."""
    event = (request.args.get("event") or experiment_forms.DEFAULT_EVENT)[:255]

    def read() -> dict[str, Any]:
        figures = control_group.measure(visit.account_id, event)
        return {
            "share": accounts.get(visit.account_id).control_share, "figures": figures,
            "words": experiment_words.describe_control_group(figures, event), "event": event,
            "events": experiment_forms.list_events(visit.account_id, event), "days": control_group.PERIOD_DAYS,
        }  # fmt: skip

    return view.render(request, "campaigns/control_group.html", **await scan_for(visit.account_id, read))
