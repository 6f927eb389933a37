"""The send of a draft: what will happen in numbers, and the ways back from it."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, preflight, requests, send, states, store
from appliance.core import clock, errors
from appliance.storage.work import call, commit, render, render_for
from ui import composing, unfinished, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_compose_send", url_prefix="/campaigns")
HOLD_SECONDS = 15
# Above this many people the number has to be typed.
TYPE_OVER = 1000


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
    found = unfinished.among((await render(preflight.check, visit.account_id, campaign_id, visit.by)).warnings)
    try:
        await render(preflight.warm, visit.account_id, campaign_id, None)
        done = await commit(_send, visit, campaign_id, form, found)
    except errors.Invalid as refused:
        if not form.errors:
            form.take(refused)
        return await _review(request, visit, campaign_id, form, 422)
    if done.phase == "scheduled":
        said = f"It goes out {words.when(done.scheduled_at)}. The audience is counted again then."
        view.say(request, said, (f"/campaigns/{campaign_id}/undo", {}))
    return view.go(request, f"/campaigns/{campaign_id}")


@pages.post("/<campaign_id:int>/undo", name="undo")
@signed_in
async def undo(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Take a send back before anything left, or the time of one that is still to come."""
    before = await call(store.get, visit.account_id, campaign_id)
    try:
        await commit(audit.noting, visit.by, "campaign_unsend", states.to_draft, visit.account_id, campaign_id)
    except errors.Invalid as refused:
        if refused.reason != "invalid_transition":
            raise
        # The page was older than the campaign: show where it is now instead of an error.
        view.say(request, "It has moved on meanwhile. This is how it stands.")
    else:
        if before.phase == "scheduled":
            when = words.when(before.scheduled_at)
            again = (f"/campaigns/{campaign_id}/schedule", {"at": str(before.scheduled_at)})
            view.say(request, f"Not scheduled any more. It is a draft again, with {when} as its time.", again)
        else:
            view.say(request, "Nothing was sent. It is a draft again.")
    return view.go(request, f"/campaigns/{campaign_id}")


@pages.post("/<campaign_id:int>/schedule", name="schedule")
@signed_in
async def schedule(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Take back that a campaign was taken from its schedule, if its time is still the same and to come."""
    form = Form.of(request)

    def arm() -> bool:
        campaign = store.get(visit.account_id, campaign_id)
        same = str(campaign.scheduled_at) == form["at"] and campaign.scheduled_at > clock.now_ms()
        if campaign.phase != "draft" or not same:
            return False
        _go(visit, campaign_id, requests.SendRequest(hold_seconds=0))
        return True

    try:
        await render(preflight.warm, visit.account_id, campaign_id, None)
        is_armed = await commit(arm)
        said = "Scheduled as before." if is_armed else "It has moved on meanwhile. This is how it stands."
    except errors.Invalid:
        said = "It could not be scheduled again. The checklist says why."
    view.say(request, said)
    return view.go(request, f"/campaigns/{campaign_id}")


async def armed(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Return the page of a campaign whose time is still to come."""
    facts = await render_for(visit.account_id, composing.facts, visit, campaign_id)
    return view.page(request, "campaigns/scheduled.html", **facts)


def _send(visit: Visit, campaign_id: int, form: Form, unfinished_now: list[Any]) -> Any:
    campaign = store.get(visit.account_id, campaign_id)
    now = audience.arithmetic(campaign).sendable
    if form["expected"] != str(now):
        form.wrong("base", f"The audience changed while this was open. It is {words.people(now)} now.")
    elif now > TYPE_OVER and "".join(filter(str.isdecimal, form["typed"])) != str(now):
        form.wrong("typed", f"Type {words.number(now)} to send to that many people.")
    unfinished.is_confirmed(form, unfinished_now)
    if form.errors:
        raise errors.Invalid({})
    later = campaign.scheduled_at is not None and campaign.scheduled_at > clock.now_ms()
    asked = requests.SendRequest(hold_seconds=0 if later else HOLD_SECONDS)
    return _go(visit, campaign_id, asked)


def _go(visit: Visit, campaign_id: int, asked: requests.SendRequest) -> Any:
    return audit.noting(visit.by, "campaign_send", send.go_live, visit.account_id, campaign_id, asked, visit.by)


async def _review(request: Request, visit: Visit, campaign_id: int, form: Form, status: int) -> HTTPResponse:
    facts = await render_for(visit.account_id, composing.facts, visit, campaign_id)
    if facts["campaign"].phase != "draft":
        return view.go(request, f"/campaigns/{campaign_id}")
    first = await call(_first, visit.account_id, campaign_id)
    return view.page(
        request, "campaigns/send.html", status, form=form, first=first, type_over=TYPE_OVER, hold=HOLD_SECONDS, **facts
    )


def _first(account_id: int, campaign_id: int) -> list[tuple[int, str]]:
    found = contacts.by_ids(audience.sample(store.get(account_id, campaign_id)))
    return [(contact.id, words.name(contact)) for contact in found]
