"""Oneself: name, password, the second factor, and where one is signed in."""

import asyncio

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import passwords, second_factor, sessions, signing_in, users
from appliance.core import errors
from appliance.events import agents
from appliance.storage.models import Session
from appliance.storage.work import call, commit
from ui import once, qr, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_you", url_prefix="/settings")
_WRONG = {
    "password": "This is not your present password.",
    "otp": "This code is not right, or was used before. Wait for the next one.",
}


@pages.get("/you", name="you")
@signed_in
async def you(request: Request, visit: Visit) -> HTTPResponse:
    """One's own name, password, second factor and sign-ins."""
    return await _page(request, visit, Form({"name": visit.user.name}))


@pages.post("/you", name="rename")
@signed_in
async def rename(request: Request, visit: Visit) -> HTTPResponse:
    """Change one's own name."""
    form = Form.of(request)
    form.need("name", "Write the name that the others see.")
    if form.errors:
        return await _page(request, visit, form, 422)
    await commit(users.rename, visit.user.id, form["name"], request.ctx.client)
    view.say(request, "Saved.")
    return view.go(request, "/settings/you")


@pages.post("/you/password", name="own_password")
@signed_in
async def own_password(request: Request, visit: Visit) -> HTTPResponse:
    """Change one's own password, knowing the old one; other browsers are signed out."""
    form = Form.of(request)
    old, new = form.exact("old_password"), form.exact("new_password")
    form.values["name"] = visit.user.name
    if await signing_in.prove(visit.user, old, None, request.ctx.client):
        form.wrong("old_password", _WRONG["password"])
    try:
        passwords.check_length(new, "new_password")
    except errors.Invalid as refused:
        form.take(refused)
    if form.errors:
        return await _page(request, visit, form, 422)
    hashed = await asyncio.to_thread(passwords.make, new)
    await commit(users.choose_password, visit.user.id, hashed, visit.session.id, request.ctx.client)
    view.say(request, "Your password is changed. Other browsers are signed out.")
    return view.go(request, "/settings/you")


@pages.get("/you/otp", name="otp")
@signed_in
async def show_otp(request: Request, visit: Visit) -> HTTPResponse:
    """Show a new key for an authenticator app; who has one goes back."""
    if second_factor.is_on(visit.user):
        return view.go(request, "/settings/you")
    return _key_page(request, visit, Form({"secret": second_factor.new_key()}))


@pages.post("/you/otp", name="otp_on")
@signed_in
async def otp_on(request: Request, visit: Visit) -> HTTPResponse:
    """Switch the second factor on, once its first code was typed."""
    form = Form.of(request)
    if not second_factor.is_key(form["secret"]):
        form.values["secret"] = second_factor.new_key()
    if wrong := await signing_in.prove(visit.user, form.exact("password"), None, request.ctx.client):
        form.wrong(wrong[0], _WRONG[wrong[0]])
        return _key_page(request, visit, form, 422)
    try:
        codes = await commit(
            second_factor.switch_on, visit.user.id, form["secret"], form["otp"], visit.session.id, visit.by
        )
    except errors.Invalid as refused:
        if "otp" not in refused.fields:
            return view.go(request, "/settings/you")
        form.wrong("otp", "This is not the code that belongs to this key. Type the one your app shows now.")
        return _key_page(request, visit, form, 422)
    once.keep(visit.session.id, "codes", codes)
    return view.go(request, "/settings/you")


@pages.post("/you/otp/off", name="otp_off")
@signed_in
async def otp_off(request: Request, visit: Visit) -> HTTPResponse:
    """Switch the second factor off, with password and code."""
    form = Form.of(request)
    form.values["name"] = visit.user.name
    wrong = await signing_in.prove(visit.user, form.exact("password"), form["otp"], request.ctx.client)
    if wrong:
        form.wrong(wrong[0], _WRONG[wrong[0]])
        return await _page(request, visit, form, 422)
    await commit(second_factor.switch_off, visit.user.id, visit.session.id, visit.by)
    view.say(request, "You sign in with your password alone now. Other browsers are signed out.")
    return view.go(request, "/settings/you")


@pages.post("/you/sessions/<session_id:int>/end", name="end_session")
@signed_in
async def end_session(request: Request, visit: Visit, session_id: int) -> HTTPResponse:
    """End one sign-in of one's own."""
    await commit(sessions.close, visit.user.id, session_id, visit.by)
    view.say(request, "Signed out there.")
    return view.go(request, "/settings/you")


@pages.post("/you/sessions/end", name="end_sessions")
@signed_in
async def end_sessions(request: Request, visit: Visit) -> HTTPResponse:
    """End every sign-in of one's own but this one."""
    await commit(sessions.close_all, visit.user.id, visit.session.id, visit.by)
    view.say(request, "Signed out everywhere else.")
    return view.go(request, "/settings/you")


@pages.post("/team/<user_id:int>/otp-off", name="take_otp")
@signed_in
async def take_otp(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Take the second factor from a member who lost it."""
    done = await commit(second_factor.take_away, visit.by, user_id)
    view.say(request, f"{done.name} signs in with the password alone now, and was signed out.")
    return view.go(request, "/settings/team")


def _key_page(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    code = qr.draw(second_factor.link(form["secret"], visit.user.email))
    key = form["secret"]
    parts = " ".join(key[at : at + 4] for at in range(0, len(key), 4))
    return view.page(request, "settings/otp.html", status, form=form, code=code, parts=parts)


def _look(one: Session) -> str:
    """Say in words what is signed in."""
    if one.kind == "token":
        return "A program"
    device = agents.device(one.user_agent)
    return " on ".join(filter(None, (device.browser or "A browser", device.os)))


async def _page(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    found = await call(sessions.of_user, visit.user.id)
    return view.page(
        request, "settings/you.html", status, form=form, found=found, has_otp=second_factor.is_on(visit.user),
        left=len(visit.user.otp_codes), codes=once.take(visit.session.id, "codes"), look=_look,
    )  # fmt: skip
