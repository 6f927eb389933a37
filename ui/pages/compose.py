"""The composer of a draft: four cards that save themselves, in any order, and what follows from them beside them."""

from datetime import datetime
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.campaigns import requests, send, store
from appliance.core import clock, errors, fields
from appliance.storage.work import call, commit, render, render_for
from ui import audiences, composing, together, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_compose", url_prefix="/campaigns")
CARDS = composing.CARDS
# What a card changes beside itself
_ALSO = ("side", "saved", "title_line", "ready", "approval")


async def page(
    request: Request, visit: Visit, campaign_id: int, form: Form | None = None, card: str = ""
) -> HTTPResponse:
    """Return the composer, or the one card that saved itself with all that follows from it."""
    facts = await render_for(visit.account_id, composing.facts, visit, campaign_id, exact=False)
    forms = composing.forms(facts["campaign"], visit)
    if form is not None:
        forms[card] = form
    done = composing.done(facts)
    first = next((name for name in CARDS if not done[name]), "")
    # Of SMS the text is weighed by who gets it, so that its card tells more once the audience is known
    also = (*_ALSO, "card_content") if card == "to" else _ALSO
    return view.page(
        request, "campaigns/compose.html", 422 if form and form.errors else 409 if form and form.met else 200,
        also=also, forms=forms, done=done, opened=(card in CARDS and card) or request.args.get("open") or first,
        wrong=bool(form and card in CARDS and (form.errors or form.met)),
        **facts,
    )  # fmt: skip


@pages.post("/<campaign_id:int>/to", name="to")
@signed_in
@together.meeting
async def save_to(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep for whom it is."""
    form, have = await _met(request, visit, campaign_id, "to")
    asked = audiences.read(form, have.trigger.data)
    return await _save(request, visit, campaign_id, form, "to", {"trigger_attributes": asked})


@pages.post("/<campaign_id:int>/from", name="from")
@signed_in
@together.meeting
async def save_from(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep sender and subject."""
    form, _ = await _met(request, visit, campaign_id, "from")
    said = {name: form.text(name) for name in composing.FROM if name in form.values}
    return await _save(request, visit, campaign_id, form, "from", {"template_attributes": said})


@pages.post("/<campaign_id:int>/content", name="content")
@signed_in
@together.meeting
async def save_content(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep the content."""
    form, _ = await _met(request, visit, campaign_id, "content")
    asked: dict[str, Any] = {}
    if "body" in form.values:
        asked["template_attributes"] = {"body": form.text("body")}
    if form["asks"] == "tracking":
        # A box that is not ticked is not sent; that it was there is
        asked["tracking"] = form["tracking"] == "yes"
    return await _save(request, visit, campaign_id, form, "content", asked)


@pages.post("/<campaign_id:int>/when", name="when")
@signed_in
@together.meeting
async def save_when(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep the moment; an earlier one than now is said at once."""
    form, _ = await _met(request, visit, campaign_id, "when")
    moment = None
    if form["when"] == "later":
        if not form["day"]:
            # Chosen and not said yet: there is nothing to keep and nothing wrong
            return await page(request, visit, campaign_id, form, "when")
        moment = form.moment("day", "hour", visit.zone)
        if moment is not None and moment <= clock.now_ms():
            here = datetime.fromtimestamp(clock.now_ms() / 1000, visit.zone).strftime("%H:%M")
            form.wrong("day", f"Choose a time in the future. It is {here} now in {visit.account.time_zone}.")
        if form.errors:
            return await page(request, visit, campaign_id, form, "when")
    stamp = clock.iso(moment) if moment else None
    return await _save(request, visit, campaign_id, form, "when", {"scheduled_at": stamp})


@pages.post("/<campaign_id:int>/name", name="rename")
@signed_in
@together.meeting
async def rename(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Give it another name, which only the team sees."""
    form, _ = await _met(request, visit, campaign_id, "name")
    if not form["name"]:
        return view.go(request, f"/campaigns/{campaign_id}")
    return await _save(request, visit, campaign_id, form, "name", {"name": form["name"]})


async def _met(request: Request, visit: Visit, campaign_id: int, card: str) -> tuple[Form, Any]:
    """Return what a card says, laid beside what is kept by now, and the campaign."""
    form = Form.of(request)
    have = await call(store.get, visit.account_id, campaign_id)
    names = (await call(audiences.choices, visit.account_id)).names if card == "to" else {}
    parts = composing.PARTS[card]
    together.meet(form, parts, composing.forms(have, visit)[card], dict.fromkeys(parts.all(form), names))
    return form, have


async def _save(
    request: Request, visit: Visit, campaign_id: int, form: Form, card: str, asked: dict[str, Any]
) -> HTTPResponse:
    if form.met:
        return await page(request, visit, campaign_id, form, card)

    def kept() -> Form:
        return composing.forms(store.get(visit.account_id, campaign_id), visit)[card]

    try:
        patch = fields.read(requests.CampaignPatch, asked)
        await render(store.warm, visit.account_id, campaign_id, patch.template_attributes)
        args = (send.change, visit.account_id, campaign_id, patch, visit.by)
        await commit(together.still, form, composing.PARTS[card], kept, *args)
    except errors.Invalid as refused:
        if refused.reason == "campaign_locked":
            # It was sent meanwhile, in another window or by a colleague: its report says so
            view.say(request, "It was sent meanwhile, so what you typed last was not kept.")
            return view.go(request, f"/campaigns/{campaign_id}")
        return await page(request, visit, campaign_id, form.take(refused), card)
    if view.is_part(request):
        return await page(request, visit, campaign_id, None, card)
    return view.go(request, f"/campaigns/{campaign_id}{f'?open={card}' if card in CARDS else ''}")
