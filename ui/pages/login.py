"""The pages of sign-in, sign-out, and password reset by email."""

import asyncio
import logging

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import login, passwords, rate_limits, users
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.forms import store
from appliance.sending.messages import system_emails
from appliance.storage.models import User
from appliance.storage.transactions import commit, fetch, submit
from ui import guard, session, view
from ui.forms import Form, safe_path
from ui.guard import public_page
from ui.session import Pages

pages = Pages("ui_login")
_WRONG_CREDENTIALS = gettext_noop("The email address or the password is wrong. Try again.")


@pages.get("/login")
@public_page
async def show_login(request: Request) -> HTTPResponse:
    """Show the sign-in form; a user who is signed in is redirected to `next`."""
    where = safe_path(request.args.get("next"))
    if await session.load_visit(request):
        return view.redirect(request, where)
    return await _render_login(request, Form({"email": session.last_email(request)}), where, 200)


@pages.post("/login")
@public_page
async def log_in(request: Request) -> HTTPResponse:
    """Sign a user in and redirect to `next`, or show the second factor's form.

    A wrong address and a wrong password give the same error. If `guard` kept a form that the user sent after the
    session had ended, the response offers to send that form again.
    """
    form = Form.from_request(request)
    where = safe_path(form["next"])
    try:
        user = await _authenticate(request, form)
    except login.CodeRequired as error:
        form.values["pass"] = error.token
        return await _render_again(request, form, where, 200)
    if user is None:
        return await _render_again(request, form, where, 422)
    if form["again"]:
        # The sign-in dialog covers a page, which stays open.
        response = HTTPResponse("", 200, {"hx-retarget": "#dialog"}, "text/html; charset=utf-8")
    elif typed := guard.load_fields(form["typed"]):
        response = view.render_whole(
            request, "login/kept.html", return_path=safe_path(form["path"]), fields=typed, next=where
        )  # fmt: skip
    else:
        response = view.redirect(request, where)
    try:
        await session.sign_in(request, response, user)
    except login.InvalidCredentials:
        form.values["pass"] = ""
        form.add_error("base", gettext(_WRONG_CREDENTIALS))
        return await _render_again(request, form, where, 422)
    return response


async def _authenticate(request: Request, form: Form) -> User | None:
    """Return the user who signs in, or None with errors in the form.

    Raises CodeRequired if the password is right and a code is needed, or RateLimitExceeded.
    """
    try:
        if not form["pass"]:
            return await login.sign_in(form["email"], form.raw("password"), None, request.ctx.client)
        user = await login.sign_in_with_code(form["pass"], form["otp"], request.ctx.client)
    except login.InvalidCredentials:
        if form["pass"]:
            form.add_error("otp", gettext("This code is wrong or has already been used. Wait for the next one."))
        else:
            form.add_error("base", gettext(_WRONG_CREDENTIALS))
        return None
    if user is None:
        form.values["pass"] = ""
        form.add_error("base", gettext("That took too long. Sign in again."))
    return user


@pages.post("/logout")
@public_page
async def log_out(request: Request) -> HTTPResponse:
    """End the session of this browser, and redirect to the sign-in page."""
    response = view.redirect(request, "/login?bye=1")
    await session.sign_out(request, response)
    return response


async def _render_again(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    """Render the sign-in form with its errors, on its page or in the dialog."""
    if form["again"]:
        return view.render_dialog(request, "login/again.html", status, form=form)
    return await _render_login(request, form, where, status)


async def _render_login(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    return view.render(
        request, "login/login.html", status, form=form, next=where,
        is_signed_out=bool(request.args.get("bye")), chosen=bool(request.args.get("chosen")),
        is_new=not await fetch(users.has_users),
    )  # fmt: skip


# Password reset.

log = logging.getLogger("campanero")
# The limits of reset emails to one address in an hour, and of requests by one client in FAILURE_WINDOW_MS.
_MAX_EMAILS_PER_HOUR, _MAX_REQUESTS_PER_CLIENT = 3, 10


@pages.get("/forgot")
@public_page
async def show_forgot(request: Request) -> HTTPResponse:
    """Show the form that requests a password reset."""
    return _render_forgot(request, Form())


@pages.post("/forgot")
@public_page
async def request_reset(request: Request) -> HTTPResponse:
    """Send a link for a new password. Neither the response nor its time reveals whether a user has the address."""
    form = Form.from_request(request)
    form.require("email", gettext("Enter your email address."))
    if form.errors:
        return _render_forgot(request, form, 422)
    store.check_rate(
        f"reset:{rate_limits.client_key(request.ctx.client)}", _MAX_REQUESTS_PER_CLIENT, rate_limits.FAILURE_WINDOW_MS
    )
    if not store.count_submission(f"reset:{rate_limits.email_key(form['email'])}", _MAX_EMAILS_PER_HOUR, store.HOUR_MS):
        try:
            # The response does not wait for the email: its time would reveal whether the user exists.
            submit(system_emails.request_password_reset, form["email"], request.ctx.client)
        except errors.Unavailable as error:
            log.info("login: password reset not sent: %s", error)
    return _render_forgot(request, form, is_sent=True)


@pages.get("/reset/<token:str>")
@public_page
async def show_reset(request: Request, token: str) -> HTTPResponse:
    """Show the form for a new password, or an error if the link has expired."""
    return await _render_reset(request, token, Form())


@pages.post("/reset/<token:str>")
@public_page
async def reset_password(request: Request, token: str) -> HTTPResponse:
    """Set a new password with the link's token, and redirect to the sign-in page."""
    form = Form.from_request(request)
    word = form.raw("password")
    try:
        passwords.check_length(word)
    except errors.Invalid as error:
        form.values["password"] = ""
        return await _render_reset(request, token, form.add_errors(error), 422)
    if await fetch(system_emails.find_reset_user, token) is not None:
        hashed = await asyncio.to_thread(passwords.hash_password, word)
        if await commit(system_emails.reset_password, token, hashed, request.ctx.client) is not None:
            return view.redirect(request, "/login?chosen=1")
    return await _render_reset(request, token, form)


async def _render_reset(request: Request, token: str, form: Form, status: int = 200) -> HTTPResponse:
    user = await fetch(system_emails.find_reset_user, token)
    if user is None:
        return view.render(request, "login/reset.html", 410, form=form, user=None)
    return view.render(request, "login/reset.html", status, form=form, user=user)


def _render_forgot(request: Request, form: Form, status: int = 200, is_sent: bool = False) -> HTTPResponse:
    return view.render(
        request, "login/forgot.html", status, form=form, is_sent=is_sent, can_ask=system_emails.can_reset_password()
    )  # fmt: skip
