"""What is done to templates as wholes: copied, put away with a way back, deleted; one or many at once."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.content.templates import shelf, store
from appliance.content.templates.requests import TemplateQuery
from appliance.core import errors, fields
from appliance.storage.models import Template
from appliance.storage.work import call, commit
from ui import view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.tables import Selection

pages = Pages("ui_gallery_acts", url_prefix="/templates")
# Nobody has more than these in one look; who has does it in several
_MAX_IDS = 500


@pages.post("/<template_id:int>/duplicate", name="duplicate")
@signed_in
async def duplicate(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Make a copy and open it."""
    made = await commit(store.duplicate, visit.account_id, template_id, visit.user.id)
    view.say(request, "This is the copy.")
    return view.go(request, f"/templates/{made.id}/edit")


@pages.post("/<template_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Delete a template with its history; what was made from it keeps its own copy."""
    gone = await commit(audit.noting, visit.by, "template_delete", store.delete, visit.account_id, template_id)
    view.say(request, f"{_told([gone])} deleted. Campaigns keep their own copies.")
    return view.go(request, "/templates" if gone.removed_at is None else "/templates?show=away")


@pages.post("/acts", name="acts")
@signed_in
async def act(request: Request, visit: Visit) -> HTTPResponse:
    """Copy, put away, bring back or delete the chosen templates; deleting is final, and asks."""
    form = Form.of(request)
    chosen = Selection.of(request, form)
    name, back = form["act"], chosen.back("/templates")
    found = await call(_chosen, visit.account_id, chosen)
    if not found:
        view.say(request, "Choose some templates first.")
    elif name == "duplicate":
        for row in reversed(found):
            await commit(store.duplicate, visit.account_id, row.id, visit.user.id)
        view.say(request, f"{words.count(len(found), 'copy is', 'copies are')} made.")
    elif name == "archive":
        gone = [await commit(shelf.put_away, visit.account_id, row.id) for row in found if row.removed_at is None]
        ids = " ".join(str(row.id) for row in gone)
        view.say(request, f"{_told(gone)} archived.", ("/templates/bring-back", {"ids": ids}))
    elif name == "bring":
        await _bring(request, visit, [row.id for row in found])
    elif name == "delete" and form["expected"] != str(len(found)):
        sent = await call(shelf.sent, [row.id for row in found])
        return view.page(
            request, "templates/sure.html", rows=found, used=sum(sent.values()), back=back,
            fields=[("act", name), *chosen.fields],
        )  # fmt: skip
    elif name == "delete":
        told = (audit.noting, visit.by, "template_delete", store.delete, visit.account_id)
        gone = [await commit(*told, row.id) for row in found]
        view.say(request, f"{_told(gone)} deleted. Campaigns keep their own copies.")
    return view.go(request, back)


@pages.post("/bring-back", name="bring_back")
@signed_in
async def bring_back(request: Request, visit: Visit) -> HTTPResponse:
    """Bring templates back that were put away."""
    ids = [int(one) for one in Form.of(request)["ids"].split()[:_MAX_IDS] if one.isdecimal() and len(one) < 19]
    await _bring(request, visit, ids)
    return view.go(request, "/templates")


async def _bring(request: Request, visit: Visit, ids: list[int]) -> None:
    back = []
    for one in ids:
        try:
            back.append(await commit(shelf.bring_back, visit.account_id, one))
        except errors.NotFound:
            continue
    view.say(request, f"{_told(back)} back." if back else "They are gone meanwhile.")


def _told(found: list[Template]) -> str:
    if len(found) == 1:
        return f"{found[0].name or store.UNTITLED} is"
    return f"{words.number(len(found))} templates are"


def _chosen(account_id: int, chosen: Selection) -> list[Template]:
    """Return the stand-alone templates meant: those named, put away or not, or all that match."""
    search, show = chosen.state.get("search", "")[:254], chosen.state.get("show", "")
    if not chosen.is_all:
        asked: Any = Template.select().where(
            Template.account == account_id, Template.flow.is_null(), Template.id.in_(chosen.ids[:_MAX_IDS])
        )
    elif show == "away":
        asked = shelf.matching(account_id, search)
    else:
        raw: dict[str, Any] = {"standalone": True} | ({"channel": show} if show in ("email", "sms") else {})
        asked = store.matching(account_id, fields.read(TemplateQuery, raw | ({"search": search} if search else {})))
    return list(asked.order_by(Template.id.desc()).limit(_MAX_IDS))
