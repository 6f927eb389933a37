"""What a draft says: a template chosen for it, HTML pasted into it, and a test of it."""

import re
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import users
from appliance.audience.contacts import store as contacts
from appliance.campaigns import groups, store, template_access
from appliance.content import brand as brands
from appliance.content.templates import history, starters
from appliance.content.templates import store as templates
from appliance.core import errors, fields
from appliance.sending.messages import send_test as test_sends
from appliance.storage.models import Campaign
from appliance.storage.work import call, commit, render
from ui import composing, people, unfinished, view, words
from ui.forms import Form, listing, number
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit

pages = Pages("ui_compose_content", url_prefix="/campaigns")
_MAX_TEMPLATES = 60
# The name under which the addresses of tests are remembered, by channel
_KEPT = {"email": "test_emails", "sms": "test_phones"}


@pages.get("/<campaign_id:int>/template", name="templates")
@signed_in
async def choose(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """The templates and the designs to begin from, to take one for this campaign."""
    raw, search = listing(request, _MAX_TEMPLATES)

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        asked = templates.TemplateQuery(**raw, standalone=True, channel="sms" if campaign.channel == "sms" else "email")
        begin = starters.made(brands.look(brands.get(visit.account_id))) if campaign.channel == "email" else ()
        return {"campaign": campaign, "found": templates.page(visit.account_id, asked), "starters": begin}

    return view.page(request, "campaigns/template.html", search=search, **await call(read))


@pages.post("/<campaign_id:int>/template", name="template")
@signed_in
async def take(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Put a copy of a template into the campaign; what was there before is one click away."""
    form = Form.of(request)
    source: int | str = form["starter"] or number(form["template"], 0)
    before = (await call(store.get, visit.account_id, campaign_id)).template.revision
    try:
        done = await commit(template_access.take_template, visit.account_id, campaign_id, source, visit.user.id)
    except errors.Invalid as refused:
        view.say(request, words.sentence(next(iter(refused.fields.values()))[0]))
        return view.go(request, f"/campaigns/{campaign_id}?open=content")
    view.say(request, "It has its own copy now.", _back(done, before))
    return view.go(request, f"/campaigns/{campaign_id}?open=content#card-content")


@pages.post("/<campaign_id:int>/template/undo", name="untake")
@signed_in
async def put_back(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Bring back the content that was there before a template was chosen."""
    form = Form.of(request)
    seen, at = number(form["revision"], 0) or None, number(form["at"], 0)
    campaign = await call(store.get, visit.account_id, campaign_id)
    try:
        await render(history.warm, visit.account_id, campaign.template_id, at)
        await commit(history.restore, visit.account_id, campaign.template_id, at, visit.user.id, seen)
        view.say(request, "The content from before is back.")
    except (errors.Conflict, errors.Invalid):
        view.say(request, "It was changed since. The history of the content has every version.")
    return view.go(request, f"/campaigns/{campaign_id}?open=content")


def _back(campaign: Campaign, before: int) -> tuple[str, dict[str, str]] | None:
    """Return what brings back the revision that a campaign's content had `before`; None where nothing changed."""
    now = campaign.template.revision
    if now == before:
        return None
    return f"/campaigns/{campaign.id}/template/undo", {"revision": str(now), "at": str(before)}


@pages.get("/<campaign_id:int>/html", name="asks_html")
@signed_in
async def ask_html(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Where HTML that was made elsewhere is pasted."""
    return await _pasting(request, visit, campaign_id, Form(), 200)


@pages.post("/<campaign_id:int>/html", name="html")
@signed_in
async def paste(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Let pasted HTML take the place of what the campaign says; what was there before is one click away."""
    form = Form.of(request)
    form.need("html", "Paste the HTML of the email.")
    if form.errors:
        return await _pasting(request, visit, campaign_id, form, 422)
    before = (await call(store.get, visit.account_id, campaign_id)).template.revision
    try:
        done = await commit(template_access.paste_html, visit.account_id, campaign_id, form["html"], visit.user.id)
    except errors.Invalid as refused:
        return await _pasting(request, visit, campaign_id, form.take(refused, {"body": "html"}), 422)
    view.say(request, "It says what you pasted now.", _back(done, before))
    return view.go(request, f"/campaigns/{campaign_id}?open=content")


async def _pasting(request: Request, visit: Visit, campaign_id: int, form: Form, status: int) -> HTTPResponse:
    campaign = await call(store.get, visit.account_id, campaign_id)
    return view.page(request, "campaigns/html.html", status, form=form, campaign=campaign)


@pages.get("/<campaign_id:int>/test", name="asks_test")
@signed_in
async def ask_test(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """To whom a test goes, and whose values it shows."""
    return await _asked(request, visit, campaign_id, None, 200)


@pages.post("/<campaign_id:int>/test", name="test")
@signed_in
@one_press
async def send_test(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Send a test to some addresses, which are remembered; it is marked as one and counted nowhere."""
    form = Form.of(request)
    campaign = await call(store.get, visit.account_id, campaign_id)
    sms = campaign.channel == "sms"
    # Numbers have spaces in them
    given = [one.strip() for one in re.split(r"[,;\n]+" if sms else r"[\s,;]+", form["addresses"]) if one.strip()]
    form.need("addresses", "Say where it goes.")
    to = [people.written_phone(visit, one) for one in given] if sms else given
    raw: dict[str, Any] = {"phones" if sms else "emails": to}
    if as_whom := number(form["as"], 0):
        raw["contact_id"] = as_whom
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = fields.read(test_sends.TestRequest, raw)
        await render(test_sends.warm, visit.account_id, campaign.template_id)
        told = await commit(test_sends.send, visit.account_id, campaign.template_id, asked)
    except errors.Invalid as refused:
        if not form.errors:
            form.wrong("addresses", _why(refused, given, sms))
        return await _asked(request, visit, campaign_id, form, 422)
    await commit(users.prefer, visit.user.id, _KEPT[campaign.channel], [one.to for one in told.results])
    view.say(request, _sent(told))
    return view.go(request, f"/campaigns/{campaign_id}")


async def _asked(request: Request, visit: Visit, campaign_id: int, form: Form | None, status: int) -> HTTPResponse:
    raw, search = listing(request, 6)
    chosen = number((form["as"] if form else request.args.get("as")) or "", 0)

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        if search:
            offered = contacts.find(visit.account_id, search, 1, 6).rows
        else:
            offered = groups.page(visit.account_id, campaign_id, fields.read(groups.GroupQuery, raw)).rows
        known = contacts.get(visit.account_id, chosen) if chosen else None
        rest = [one for one in offered if known is None or one.id != known.id]
        return {"campaign": campaign, "people": ([known] if known else []) + rest[:6],
                **composing.rights(visit, campaign)}  # fmt: skip

    found = await call(read)
    kept = (visit.user.preferences or {}).get(_KEPT[found["campaign"].channel])
    sms = found["campaign"].channel == "sms"
    testers = [] if sms else list(visit.account.test_email_recipients or ())
    default = [] if sms else testers or [visit.user.email]
    form = form or Form({"addresses": ", ".join(kept or default), "as": str(chosen or "")})
    return view.page(request, "campaigns/test.html", status, form=form, search=search, testers=testers, **found)


def _why(refused: errors.Invalid, given: list[str], sms: bool) -> str:
    kind = "a phone number, like +44 7700 900123" if sms else "an address, like name@example.com"
    if {"emails", "phones"} & refused.fields.keys():
        return f"Write at most {test_sends.MAX_RECIPIENTS} of them."
    paths = (re.match(r"(?:emails|phones)\[(\d+)\]", path) for path in refused.fields)
    wrong = [given[int(found[1])] for found in paths if found]
    if wrong:
        return f"{words.listed(wrong)} {'is' if len(wrong) == 1 else 'are'} not {kind}."
    return words.sentence(next(iter(refused.fields.values()), [refused.message])[0])


def _sent(told: test_sends.TestsSent) -> str:
    good = [one.to for one in told.results if one.success]
    bad = [one.to for one in told.results if not one.success]
    parts = [f"A test is on its way to {words.listed(good)}."] if good else []
    parts += [f"{words.listed(bad)} may not be written to."] if bad else []
    return " ".join(parts) + unfinished.after_test(told.warnings)
