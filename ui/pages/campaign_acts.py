"""What is done to campaigns besides writing and sending them: copied, sent once more, deleted, many at once."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.campaigns import edit_rights, requests, send, states, store
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.tables import Selection

pages = Pages("ui_campaign_acts", url_prefix="/campaigns")
# Nobody has more than these in one look; who has does it in several
_MAX_IDS = 1000


@pages.post("/<campaign_id:int>/duplicate", name="duplicate")
@signed_in
async def duplicate(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Make a draft that says the same to the same people."""
    made = await commit(store.duplicate, visit.account_id, campaign_id, visit.user.id)
    view.say(request, "This is the copy. The first one stays as it is.")
    return view.go(request, f"/campaigns/{made.id}")


@pages.post("/<campaign_id:int>/not-opened", name="not_opened")
@signed_in
async def once_more(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Make a draft for those who did not open it, with a segment that knows who they are."""
    made = await commit(send.not_opened, visit.account_id, campaign_id, visit.user.id)
    view.say(request, "A draft for those who did not open it. Another subject often helps.")
    return view.go(request, f"/campaigns/{made.id}?open=from")


@pages.post("/<campaign_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Delete a campaign; what is still waiting will not leave. A draft comes back with one click."""
    told = (visit.by, "campaign_delete", states.delete, visit.account_id, campaign_id)
    gone = await commit(audit.noting, *told, visit.by)
    _tell(request, [gone])
    return view.go(request, "/campaigns")


@pages.post("/restore", name="restore")
@signed_in
async def restore(request: Request, visit: Visit) -> HTTPResponse:
    """Bring back drafts that were deleted."""
    ids = [int(one) for one in Form.of(request)["back"].split(",")[:_MAX_IDS] if one.isdecimal() and len(one) < 16]
    back = [await commit(states.bring_back, visit.account_id, one) for one in ids]
    view.say(request, f"{back[0].name} is back." if len(back) == 1 else f"{len(back)} campaigns are back.")
    return view.go(request, f"/campaigns/{back[0].id}" if len(back) == 1 else "/campaigns")


@pages.post("/acts", name="acts")
@signed_in
async def act(request: Request, visit: Visit) -> HTTPResponse:
    """Copy or delete the campaigns that were chosen in the table; who would stop one on its way is asked first."""
    form = Form.of(request)
    chosen = Selection.of(request, form)
    back = chosen.back("/campaigns")
    found = await call(_chosen, visit.account_id, chosen)
    if not found:
        view.say(request, "Choose some campaigns first.")
    elif form["act"] == "duplicate":
        for row in reversed(found):
            await commit(store.duplicate, visit.account_id, row.id, visit.user.id)
        view.say(request, f"{words.count(len(found), 'copy is', 'copies are')} made, as drafts.")
        back = "/campaigns?phase=draft"
    elif form["act"] == "delete" and any(row.phase != "draft" for row in found):
        return view.page(request, "campaigns/delete.html", rows=found, chosen=chosen, back=back)
    elif form["act"] in ("delete", "delete_sure"):
        for row in found:
            edit_rights.end(row, visit.by)  # all of them or none
        told = (audit.noting, visit.by, "campaign_delete", states.delete, visit.account_id)
        _tell(request, [await commit(*told, row.id, visit.by) for row in found])
    return view.go(request, back)


def _chosen(account_id: int, chosen: Selection) -> list[Any]:
    """Return the campaigns meant: those named, or all that match; what is gone meanwhile is left out."""
    if chosen.is_all:
        raw: dict[str, Any] = {name: value for name, value in chosen.state.items() if name in ("search", "phase")}
        if raw.get("phase") == "asked":
            raw |= {"phase": "", "asked": True}
        asked = fields.read(requests.CampaignQuery, raw)
        return list(store.matching(account_id, asked).limit(_MAX_IDS))
    found = []
    for one in chosen.ids[:_MAX_IDS]:
        try:
            found.append(store.get(account_id, one))
        except errors.NotFound:
            continue
    return found


def _tell(request: Request, gone: list[Any]) -> None:
    """Return what was deleted; drafts come back with one click."""
    said = f"{gone[0].name} is deleted." if len(gone) == 1 else f"{words.number(len(gone))} campaigns are deleted."
    drafts = [str(one.id) for one in gone if not one.started_at]
    undo = ("/campaigns/restore", {"back": ",".join(drafts)}) if len(drafts) == len(gone) else None
    view.say(request, said, undo)
