"""A draft's people one by one: who gets it and who does not, and the message as each of them gets it."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, groups, preview, store
from appliance.core import fields
from appliance.storage.work import call, render, render_for
from ui import audiences, composing, mail, view, words
from ui.forms import listing, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_compose_people", url_prefix="/campaigns")


@pages.get("/<campaign_id:int>/audience", name="audience")
@signed_in
async def people(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Who gets it, and each group that does not, with the reason."""
    raw, search = listing(request, 50)
    why = (request.args.get("why") or "")[:64]
    raw |= {"why": why} if why else {}

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        sums = audience.arithmetic(campaign)
        counted = [("", "Get it", sums.sendable)]
        out = groups.left_out(campaign)
        counted += [(groups.LEFT_OUT, "Left out", out)] if out else []
        counted += [(code, words.reason(code, campaign.channel), count) for code, count in sums.reasons.items()]
        return {
            "campaign": campaign, "found": groups.page(visit.account_id, campaign_id, query), "chips": counted,
            "audience": audiences.name(campaign, audiences.choices(visit.account_id).names),
        }  # fmt: skip

    query = fields.read(groups.GroupQuery, raw)
    return view.page(request, "campaigns/audience.html", why=why, search=search, **await call(read))


@pages.get("/<campaign_id:int>/previews", name="previews")
@signed_in
async def previews(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """The message as one person of the audience after the other gets it."""
    raw, search = listing(request, 8)
    nameless = request.args.get("nameless") == "1"
    raw |= {"nameless": True} if nameless else {}
    query = fields.read(groups.GroupQuery, raw)
    asked = number(request.args.get("as"), 0, 2**62)

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        found = groups.page(visit.account_id, campaign_id, query)
        person = contacts.get(visit.account_id, asked) if asked else None
        person = person or (found.rows[0] if found.rows else None)
        shown = preview.render(visit.account_id, campaign_id, person.id if person else None)
        next_to = groups.neighbours(campaign, person.id) if person else None
        return {
            "campaign": campaign, "found": found, "person": person, "shown": shown, "next_to": next_to,
            **composing.rights(visit, campaign),
        }  # fmt: skip

    width = "phone" if request.args.get("width") == "phone" else ""
    kept = {"who": asked or "", "search": search, "nameless": "1" if nameless else "", "width": width,
            "page": query.page if query.page > 1 else ""}  # fmt: skip

    def to(**changed: Any) -> str:
        values = kept | changed
        return f"/campaigns/{campaign_id}/previews" + words.query({"as": values.pop("who"), **values})

    return view.page(
        request, "campaigns/previews.html", search=search, nameless=nameless, width=width, asked=asked, to=to,
        **await render_for(visit.account_id, read),
    )  # fmt: skip


@pages.get("/<campaign_id:int>/preview", name="preview")
@signed_in
async def show_preview(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """The message as one person would get it, by default the first of the audience."""
    person = number(request.args.get("as"), 0, 2**62) or None
    found = await render(preview.render, visit.account_id, campaign_id, person)
    if found["error"]:
        return mail.broken(found["error"])
    is_empty = found["sms"] is not None and not found["text"].strip()
    return mail.frame("" if is_empty else found["html"])


@pages.get("/<campaign_id:int>/rehearsal", name="rehearsal")
@signed_in
async def show_rehearsal(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """How far the message is made for everybody, and who lacks what."""
    facts = await render(composing.rehearsal_of, visit.account_id, campaign_id)
    # What an SMS takes is known for sure once it was made for everybody
    also = ("sms_meter",) if facts["shown"] and facts["shown"]["sms"] else ()
    return view.page(request, "campaigns/rehearsal.html", also=also, **facts)
