"""A new password for whoever forgot theirs: asked for by address, chosen by the link of a mail."""

import asyncio
import logging

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import passwords, rate_limits
from appliance.core import errors
from appliance.forms import store
from appliance.sending.messages import password_reset
from appliance.storage.work import call, commit, submit
from ui import view
from ui.forms import Form
from ui.guard import open_page
from ui.session import Pages

log = logging.getLogger("campanero")
pages = Pages("ui_forgot")
# Mails an hour to one address, and questions of one client
_MAILS, _ASKED = 3, 10


@pages.get("/forgot", name="forgot")
@open_page
async def show(request: Request) -> HTTPResponse:
    """Ask for the address that somebody signs in with."""
    return _page(request, Form())


@pages.post("/forgot", name="ask")
@open_page
async def ask(request: Request) -> HTTPResponse:
    """Send a link, and say the same, as soon, whether anybody signs in with the address or not."""
    form = Form.of(request)
    form.need("email", "Write the address you sign in with.")
    if form.errors:
        return _page(request, form, 422)
    store.check_rate(f"reset:{rate_limits.of_client(request.ctx.client)}", _ASKED, rate_limits.WINDOW_MS)
    if not store.count_submission(f"reset:{rate_limits.of_address(form['email'])}", _MAILS, store.HOUR_MS):
        try:
            # Nobody waits for it: how long it takes would tell who signs in here
            submit(password_reset.ask, form["email"], request.ctx.client)
        except errors.Unavailable as gone:
            log.info("a new password was asked for, and nothing can be written: %s", gone)
    return _page(request, form, is_sent=True)


@pages.get("/reset/<token:str>", name="reset")
@open_page
async def reset(request: Request, token: str) -> HTTPResponse:
    """Ask for the new password; a link that is over says so."""
    return await _choose(request, token, Form())


@pages.post("/reset/<token:str>", name="reset_save")
@open_page
async def reset_save(request: Request, token: str) -> HTTPResponse:
    """Take the new password; one signs in with it."""
    form = Form.of(request)
    word = form.exact("password")
    try:
        passwords.check_length(word)
    except errors.Invalid as refused:
        form.values["password"] = ""
        return await _choose(request, token, form.take(refused), 422)
    if await call(password_reset.holder, token) is not None:
        hashed = await asyncio.to_thread(passwords.make, word)
        if await commit(password_reset.choose, token, hashed, request.ctx.client) is not None:
            return view.go(request, "/login?chosen=1")
    return await _choose(request, token, form)


async def _choose(request: Request, token: str, form: Form, status: int = 200) -> HTTPResponse:
    user = await call(password_reset.holder, token)
    if user is None:
        return view.page(request, "login/reset.html", 410, form=form, user=None)
    return view.page(request, "login/reset.html", status, form=form, user=user)


def _page(request: Request, form: Form, status: int = 200, is_sent: bool = False) -> HTTPResponse:
    return view.page(
        request, "login/forgot.html", status, form=form, is_sent=is_sent, can_ask=password_reset.can_ask()
    )  # fmt: skip
