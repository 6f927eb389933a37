"""`/u/{token}`: the way out that stands in every message."""

from sanic import HTTPResponse, Request

from appliance.core import tokens
from appliance.core.errors import Unavailable
from appliance.public import answers
from appliance.sending.messages import links
from appliance.storage.work import call, commit
from appliance.tracking import unsubscribes
from appliance.tracking.unsubscribes import Door

ONE_CLICK = "List-Unsubscribe"


async def show(request: Request, token: str) -> HTTPResponse:
    """Show whom it is about and the button; scanners may read this as often as they like."""
    try:
        door = await call(unsubscribes.door, token)
    except Unavailable:
        return answers.unavailable(answers.language_of(request))
    return answers.lost(language=answers.language_of(request)) if door is None else _page(door, done=False)


async def act(request: Request, token: str) -> HTTPResponse:
    """Opt out by the page's button or by a mailbox's one click (RFC 8058, 3.1): no cookie, no redirect."""
    form = answers.form(request)
    one_click = "One-Click" in form.get(ONE_CLICK, [])
    language = answers.language_of(request)
    if not one_click and "1" not in form.get("confirm", []):
        return answers.lost(400, language)
    try:
        door = await call(unsubscribes.door, token)
        if door is None:
            return answers.lost(language=language)
        said = f"{ONE_CLICK}=One-Click" if one_click else _words(door)
        agent = request.headers.get("user-agent")
        source = "one_click" if one_click else "link"
        await commit(unsubscribes.opt_out, token, source, request.ctx.client, agent, said)
        door = await call(unsubscribes.door, token)
    except Unavailable:
        return answers.unavailable(language)
    return answers.lost(language=language) if door is None else _page(door, done=True)


def _words(door: Door) -> str:
    of = "_sms" if door.kind == "phone" else ""
    phrases = (f"leave_heading{of}", f"leave_lead{of}", "leave_button")
    return answers.shown(door.face.language, *phrases, address=door.masked, company=door.face.company)


def _page(door: Door, done: bool) -> HTTPResponse:
    preferences = f"/p/{tokens.sign(links.PREFERENCES, door.message_id)}"
    out = done or not door.subscribed
    return answers.page("unsubscribe.html", door.face, door=door, out=out, preferences=preferences)
