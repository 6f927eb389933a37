"""The composer of a draft: four cards that save themselves, a checklist, and the send with its exact number."""

from datetime import datetime
from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import clock, errors, fields
from appliance.campaigns import audience, preflight, preview, requests, send, store
from appliance.contacts import store as contacts
from appliance.db.work import call, commit
from ui import mail, people, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_compose", url_prefix="/campaigns")
HOLD_SECONDS = 15
# Above this many people the number has to be typed.
TYPE_OVER = 1000
CARDS = ("to", "from", "content", "when")
_FROM = ("subject", "preheader", "from_name", "from_email", "reply_to")
# Which card a finding of the checklist is mended on.
_PLACES = (
    ("trigger_attributes", "to"), ("confirm_send_to_all", "to"), ("template_attributes.body", "content"),
    ("template_attributes.design", "content"), ("template_attributes", "from"), ("scheduled_at", "when"),
)  # fmt: skip


async def page(
    request: Request, visit: Visit, campaign_id: int, form: Form | None = None, card: str = ""
) -> HTTPResponse:
    """Answer the composer, or the one card that saved itself with all that follows from it."""
    facts = await call(_facts, visit.account_id, campaign_id, visit.account)
    forms = {name: _form(name, facts, visit) for name in CARDS}
    if form is not None:
        forms[card] = form
    done = _done(facts)
    first = next((name for name in CARDS if not done[name]), "")
    return view.page(
        request, "campaigns/compose.html", 422 if form and form.errors else 200, also=("side", "saved", "title_line"),
        forms=forms, done=done, opened=card or request.args.get("open") or first, wrong=bool(form and form.errors),
        **facts,
    )  # fmt: skip


@pages.post("/<campaign_id:int>/to", name="to")
@signed_in
async def save_to(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep for whom it is."""
    form = Form.of(request)
    chosen = form.ids("list")
    asked: dict[str, Any] = {"contact_list_id": chosen[0] if chosen else None, "data": {}}
    return await _save(request, visit, campaign_id, form, "to", {"trigger_attributes": asked})


@pages.post("/<campaign_id:int>/from", name="from")
@signed_in
async def save_from(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep name, sender and subject."""
    form = Form.of(request)
    asked: dict[str, Any] = {"template_attributes": {name: form.text(name) for name in _FROM if name in form.values}}
    if form["name"]:
        asked["name"] = form["name"]
    return await _save(request, visit, campaign_id, form, "from", asked)


@pages.post("/<campaign_id:int>/content", name="content")
@signed_in
async def save_content(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep the content."""
    form = Form.of(request)
    asked: dict[str, Any] = {"template_attributes": {"body": form.text("body")}}
    if form["asks"] == "tracking":
        # A box that is not ticked is not sent; that it was there is
        asked["tracking"] = form["tracking"] == "yes"
    return await _save(request, visit, campaign_id, form, "content", asked)


@pages.post("/<campaign_id:int>/when", name="when")
@signed_in
async def save_when(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep the moment; an earlier one than now is said at once."""
    form = Form.of(request)
    moment = None
    if form["when"] == "later":
        moment = form.moment("day", "hour", visit.zone)
        if moment is not None and moment <= clock.now_ms():
            here = datetime.now(visit.zone).strftime("%H:%M")
            form.wrong("day", f"Choose a time in the future. It is {here} now in {visit.account.time_zone}.")
        if form.errors:
            return await page(request, visit, campaign_id, form, "when")
    stamp = clock.iso(moment) if moment else None
    return await _save(request, visit, campaign_id, form, "when", {"scheduled_at": stamp})


@pages.get("/<campaign_id:int>/preview", name="preview")
@signed_in
async def show_preview(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """The message as one person of the audience would get it."""
    found = await call(preview.render, visit.account_id, campaign_id)
    if found["error"]:
        return mail.broken(found["error"])
    is_empty = found["sms"] is not None and not found["text"].strip()
    return mail.frame("" if is_empty else found["html"])


@pages.get("/<campaign_id:int>/rehearsal", name="rehearsal")
@signed_in
async def show_rehearsal(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """How far the message is made for everybody, and who lacks what."""
    facts = await call(_rehearsal_of, visit.account_id, campaign_id)
    return view.page(request, "campaigns/rehearsal.html", **facts)


@pages.get("/<campaign_id:int>/send", name="review")
@signed_in
async def review(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """What will happen, in numbers, before it happens."""
    return await _review(request, visit, campaign_id, Form(), 200)


@pages.post("/<campaign_id:int>/send", name="send")
@signed_in
async def send_now(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Send to exactly the number that was shown; if it changed meanwhile, ask again with the new one."""
    form = Form.of(request)
    try:
        await call(preflight.warm, visit.account_id, campaign_id, None)
        await commit(_send, visit, campaign_id, form)
    except errors.Invalid as refused:
        if not form.errors:
            form.take(refused)
        return await _review(request, visit, campaign_id, form, 422)
    return view.go(request, f"/campaigns/{campaign_id}")


def audience_name(campaign: Any, lists: dict[int, str]) -> str:
    """Say for whom a campaign is."""
    if audience.is_everyone(campaign.trigger.data):
        return "Everyone"
    chosen = [campaign.trigger.contact_list_id, *(campaign.trigger.data.get("contact_list_ids") or [])]
    return ", ".join(lists.get(one, "a deleted list") for one in dict.fromkeys(chosen) if one)


def _send(visit: Visit, campaign_id: int, form: Form) -> None:
    campaign = store.get(visit.account_id, campaign_id)
    now = audience.arithmetic(campaign).sendable
    if form["expected"] != str(now):
        form.wrong("base", f"The audience changed while this was open. It is {words.people(now)} now.")
    elif now > TYPE_OVER and "".join(filter(str.isdecimal, form["typed"])) != str(now):
        form.wrong("typed", f"Type {words.number(now)} to send to that many people.")
    if form.errors:
        raise errors.Invalid({})
    later = campaign.scheduled_at is not None and campaign.scheduled_at > clock.now_ms()
    asked = requests.SendRequest(hold_seconds=0 if later else HOLD_SECONDS)
    send.go_live(visit.account_id, campaign_id, asked, visit.actor)


async def _save(
    request: Request, visit: Visit, campaign_id: int, form: Form, card: str, asked: dict[str, Any]
) -> HTTPResponse:
    try:
        patch = fields.read(requests.CampaignPatch, asked)
        await call(store.warm, visit.account_id, campaign_id, patch.template_attributes)
        await commit(send.change, visit.account_id, campaign_id, patch, visit.actor)
    except errors.Invalid as refused:
        return await page(request, visit, campaign_id, form.take(refused), card)
    if view.is_part(request):
        return await page(request, visit, campaign_id, None, card)
    return view.go(request, f"/campaigns/{campaign_id}?open={card}")


async def _review(request: Request, visit: Visit, campaign_id: int, form: Form, status: int) -> HTTPResponse:
    facts = await call(_facts, visit.account_id, campaign_id, visit.account)
    if facts["campaign"].phase != "draft":
        return view.go(request, f"/campaigns/{campaign_id}")
    sample = await call(_sample, visit.account_id, campaign_id)
    return view.page(
        request, "campaigns/send.html", status, form=form, sample=sample, type_over=TYPE_OVER, hold=HOLD_SECONDS,
        **facts,
    )  # fmt: skip


def _sample(account_id: int, campaign_id: int) -> list[str]:
    found = contacts.by_ids(audience.sample(store.get(account_id, campaign_id)))
    return [words.name(contact) for contact in found]


# Told by the rehearsal itself, with the people whom it concerns
_REHEARSED = ("missing_value", "render_error")


def _rehearsal_of(account_id: int, campaign_id: int) -> dict[str, Any]:
    found = preflight.check(account_id, campaign_id).facts
    return {"campaign": store.get(account_id, campaign_id), **_rehearsed(found)}


def _rehearsed(facts: dict[str, Any]) -> dict[str, Any]:
    """Answer what the rehearsal found in words, with the people whom it concerns."""
    found = facts.get("rehearsal")
    if found is None:
        return {"rehearsal": None, "trouble": []}
    told = [(f"{one['name']} is empty for {words.people(one['count'])}", "", one["contact_ids"])
            for one in found["lacking"] if one["count"]]  # fmt: skip
    if found["failed"]:
        said = f"Cannot be made for {words.people(found['failed'])}, who would be skipped"
        told.insert(0, (said, found["failures"][0]["error"], [one["contact_id"] for one in found["failures"]]))
    ids = list(dict.fromkeys(number for _, _, people in told for number in people))
    named = {contact.id: words.name(contact) for contact in contacts.by_ids(ids)}
    trouble = [(said, why, [(one, named[one]) for one in people if one in named]) for said, why, people in told]
    return {"rehearsal": found, "trouble": trouble}


def _facts(account_id: int, campaign_id: int, account: Any) -> dict[str, Any]:
    campaign = store.get(account_id, campaign_id)
    lists = people.all_lists(account_id)
    flight = preflight.check(account_id, campaign_id)
    findings = [(tone, words.finding(one.code, one.message), _place(one, campaign_id))
                for tone, found in (("bad", flight.blockers), ("warn", flight.warnings)) for one in found
                if one.code not in _REHEARSED]  # fmt: skip
    sums = audience.arithmetic(campaign) if audience.is_set(campaign) else None
    return {
        "campaign": campaign,
        "sms": campaign.channel == "sms",
        "template": campaign.template,
        "lists": lists,
        "audience": audience_name(campaign, {row.id: row.name for row in lists}),
        "sums": sums,
        "less": [(words.reason(code, campaign.channel), count) for code, count in sums.reasons.items()] if sums else [],
        "flight": flight,
        **_rehearsed(flight.facts),
        "findings": findings,
        "sender": preflight.sender_of(campaign, account),
        "is_later": campaign.scheduled_at is not None and campaign.scheduled_at > clock.now_ms(),
    }


def _place(finding: Any, campaign_id: int) -> str:
    if finding.code == "postal_address" or "postal" in finding.message:
        return "/brand"
    if finding.code.startswith("domain_") or "not verified" in finding.message:
        return "/settings/domains"
    found = next((card for start, card in _PLACES if finding.field.startswith(start)), None)
    return f"/campaigns/{campaign_id}?open={found}#card-{found}" if found else ""


def _form(card: str, facts: dict[str, Any], visit: Visit) -> Form:
    campaign, template = facts["campaign"], facts["template"]
    if card == "to":
        return Form({"list": str(campaign.trigger.contact_list_id or "")})
    if card == "from":
        return Form({"name": campaign.name, **{name: getattr(template, name) or "" for name in _FROM}})
    if card == "content":
        return Form({"body": template.body or "", "tracking": "yes" if campaign.tracking else ""})
    if campaign.scheduled_at is None:
        return Form({"when": "now"})
    local = datetime.fromtimestamp(campaign.scheduled_at / 1000, visit.zone)
    return Form({"when": "later", "day": local.strftime("%Y-%m-%d"), "hour": local.strftime("%H:%M")})


def _done(facts: dict[str, Any]) -> dict[str, bool]:
    template = facts["template"]
    return {
        "to": facts["sums"] is not None,
        "from": bool(template.subject) or facts["sms"],
        "content": bool((template.body or "").strip() or (template.design.get("sections") and not facts["sms"])),
        "when": True,
    }
