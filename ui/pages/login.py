"""The pages of sign-in, sign-out, password reset by email, and invitations to the team."""

import asyncio
import logging
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import (
    access,
    invitations,
    login,
    passkey_login,
    passkeys,
    passwords,
    request_limits,
    sessions,
    users,
)
from appliance.accounts.oidc import flow, providers
from appliance.accounts.passkeys import PasskeyRefused
from appliance.core import errors, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.forms import store
from appliance.sending.messages import system_emails
from appliance.settings import config
from appliance.storage.models import Invitation, SignInProvider, User
from appliance.storage.transactions import commit, fetch, submit
from ui import forms, guard, role_labels, session, view
from ui.forms import Form, safe_path
from ui.guard import ignore_double_submit, public_page, signed_in
from ui.pages.users import render_team
from ui.session import Pages, Visit

pages = Pages("ui_login")
_WRONG_CREDENTIALS = gettext_noop("The email address or the password is wrong. Try again.")


@pages.get("/login")
@public_page
async def show_login(request: Request) -> HTTPResponse:
    """Show the sign-in form; a user who is signed in is redirected to `next`."""
    where = safe_path(request.args.get("next"))
    if await session.load_visit(request):
        return view.redirect(request, where)
    return await render_login(request, Form({"email": session.last_email(request)}), where, 200)


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
        await session.sign_in(request, response, user, _describe_method(form))
    except login.InvalidCredentials:
        form.values["pass"] = ""
        form.add_error("base", gettext(_WRONG_CREDENTIALS))
        return await _render_again(request, form, where, 422)
    return response


async def _authenticate(request: Request, form: Form) -> User | None:
    """Return the user who signs in, or None with errors in the form.

    The field `pass` is the token of `CodeRequired`: the password was right, and the form asks for the code. The field
    `credential` is the response of a passkey. Raises CodeRequired if the password is right and a code is needed, or
    RateLimitExceeded.
    """
    try:
        if form["credential"]:
            user = await use_passkey(request, form)
        elif not form["pass"]:
            return await login.sign_in(form["email"], form.raw("password"), None, request.ctx.client)
        else:
            user = await login.sign_in_with_code(form["pass"], form["otp"], request.ctx.client)
    except PasskeyRefused as error:
        form.add_error("base", error.message)
        return None
    except login.InvalidCredentials:
        if form["pass"]:
            form.add_error("otp", gettext("This code is wrong or has already been used. Wait for the next one."))
        else:
            form.add_error("base", gettext(_WRONG_CREDENTIALS))
        return None
    except login.PasswordSignInOff as error:
        form.values["pass"] = ""
        form.add_error("base", error.message)
        return None
    if user is None:
        form.values["pass"] = ""
        form.add_error("base", gettext("That took too long. Sign in again."))
    return user


async def use_passkey(request: Request, form: Form, purpose: str = login.SECOND_FACTOR_PURPOSE) -> User | None:
    """Return the user who signs in with a passkey; raises PasskeyRefused or RateLimitExceeded.

    As a second factor, `purpose` is that of the token in the field `pass`: after a password, or after a provider.
    """
    site, browser = passkeys.require_site(config.current()), session.read_device_token(request)
    text, ip = form.raw("credential"), request.ctx.client
    if form["pass"]:
        return await passkey_login.sign_in_after_password(form["pass"], text, site, browser, ip, purpose)
    return await passkey_login.sign_in(text, site, browser, ip)


def _describe_method(form: Form) -> sessions.Method:
    if form["credential"]:
        return "password_passkey" if form["pass"] else "passkey"
    return "password_code" if form["pass"] else "password"


@pages.post("/logout")
@public_page
async def log_out(request: Request) -> HTTPResponse:
    """End the session of this browser, and redirect to the sign-in page."""
    provider_key = await find_sign_out_key(request)
    response = view.redirect(request, f"/login?bye=1&provider={provider_key}" if provider_key else "/login?bye=1")
    await session.sign_out(request, response)
    return response


async def find_sign_out_key(request: Request) -> str:
    """Return the key of the provider that this browser's session began with, if it supports sign-out, else ""."""
    provider = await fetch(_find_session_provider, request.cookies.get(session.cookie_name(request)) or "")
    return provider.key if provider is not None and await flow.sign_out_url(provider, "") is not None else ""


def _find_session_provider(token: str) -> SignInProvider | None:
    current = sessions.find_by_cookie(token) if token else None
    return current.identity.provider if current is not None and current.identity is not None else None


async def _render_again(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    """Render the sign-in form with its errors, on its page or in the dialog."""
    await add_second_factors(form)
    if form["again"]:
        return view.render_dialog(request, "login/again.html", status, form=form)
    return await render_login(request, form, where, status)


async def add_second_factors(form: Form) -> None:
    """Set `has_otp` and `has_passkeys` of the form to "yes" if the user has this second factor, else to ""."""
    if form["pass"] and (user := await fetch(login.find_code_user, form["pass"])):
        form.values["has_otp"] = "yes" if login.has_otp(user) else ""
        form.values["has_passkeys"] = "yes" if user.passkey_count else ""


async def render_login(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    """Render the sign-in page; `where` is the path to redirect to after the sign-in."""
    signed_out_key = request.args.get("provider") or ""
    shown = await fetch(providers.list_on_sign_in_page, session.last_provider(request) or signed_out_key)
    return view.render(
        request, "login/login.html", status, form=form, next=where, providers=shown,
        left_provider=next((provider for provider in shown if provider.key == signed_out_key), None),
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
        f"reset:{request_limits.client_key(request.ctx.client)}",
        _MAX_REQUESTS_PER_CLIENT,
        request_limits.FAILURE_WINDOW_MS,
    )
    if not store.count_attempt(f"reset:{request_limits.email_key(form['email'])}", _MAX_EMAILS_PER_HOUR, store.HOUR_MS):
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


# The limits of invitations of an account in an hour, and of attempts to accept one by a client in FAILURE_WINDOW_MS.
_MAX_ATTEMPTS = 20


@pages.post("/settings/team")
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def invite(request: Request, visit: Visit) -> HTTPResponse:
    """Invite an address to the team, by email if possible; otherwise the next page shows the link once."""
    form = Form.from_request(request)
    form.require("email", gettext("Enter the email address of the person to invite."))
    if form.errors:
        return await render_team(request, visit, form, 422)
    store.check_rate(f"invite:{visit.account_id}", invitations.MAX_SENT_PER_HOUR, store.HOUR_MS)

    days = forms.parse_int(form["days"] or None, invitations.VALID_DAYS, invitations.MAX_VALID_DAYS)

    def write() -> tuple[Invitation, bool]:
        row = invitations.invite(visit.actor, form["email"], form["role"], days)
        return row, system_emails.send_invitation(row)

    try:
        row, is_sent = await commit(write)
    except errors.Invalid as error:
        if gettext("has already been taken") in error.fields.get("email", []):
            form.add_error("email", gettext("This email address already belongs to a member of your team."))
        return await render_team(request, visit, form.add_errors(error), 422)
    return _redirect_to_team(request, visit, row, is_sent)


@pages.post("/settings/team/invitations/<invitation_id:int>/resend")
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def resend(request: Request, visit: Visit, invitation_id: int) -> HTTPResponse:
    """Send an invitation again, with a new link."""
    store.check_rate(f"invite:{visit.account_id}", invitations.MAX_SENT_PER_HOUR, store.HOUR_MS)

    def write() -> tuple[Invitation, bool]:
        row = invitations.renew(visit.actor, invitation_id)
        return row, system_emails.send_invitation(row)

    return _redirect_to_team(request, visit, *await commit(write))


@pages.post("/settings/team/invitations/<invitation_id:int>/revoke")
@signed_in(access.ADMIN_SCOPE)
async def revoke(request: Request, visit: Visit, invitation_id: int) -> HTTPResponse:
    """Revoke an invitation; the notice offers to invite the address again."""
    row = await commit(invitations.revoke, visit.actor, invitation_id)
    view.flash(request, gettext("The invitation of %(email)s was revoked.", email=row.email))
    return view.redirect(request, "/settings/team")


def _redirect_to_team(request: Request, visit: Visit, row: Invitation, is_sent: bool) -> HTTPResponse:
    if is_sent:
        view.flash(request, gettext("Invitation sent to %(email)s.", email=row.email))
    else:
        session.store_secret(
            visit.session.id,
            "invitation",
            {"email": row.email, "link": invitations.build_link(row), "days": invitations.valid_days(row)},
        )
    return view.redirect(request, "/settings/team")


@pages.get("/invitations/<invitation_id:int>/<token:str>")
@public_page
async def show_invitation(request: Request, invitation_id: int, token: str) -> HTTPResponse:
    """Show the form for name, password and language, or an error if the link is no longer valid."""
    row = await find_invitation(invitation_id, token)
    form = Form({"language": i18n.get_language()})
    return await render_invitation(request, row, form, 200 if row else 410)


@pages.post("/invitations/<invitation_id:int>/<token:str>")
@public_page
async def accept_invitation(request: Request, invitation_id: int, token: str) -> HTTPResponse:
    """Create the user of an invitation, and sign the user in; a person who has a user already joins with it.

    Such a person has to be signed in: the link alone does not prove who opens it.
    """
    store.check_rate(
        f"invitation:{request_limits.client_key(request.ctx.client)}", _MAX_ATTEMPTS, request_limits.FAILURE_WINDOW_MS
    )
    row, form = await find_invitation(invitation_id, token), Form.from_request(request)
    if row is None:
        return await render_invitation(request, None, form, 410)
    if await fetch(invitations.find_person, row) is not None:
        # A request at the same time may have accepted it between the two reads, and created the person.
        row = await find_invitation(invitation_id, token)
        return await (_join(request, row, token) if row else render_invitation(request, None, form, 410))
    form.require("name", gettext("Enter your name."))
    language = form["language"] if form["language"] in i18n.LANGUAGES else ""
    try:
        new = await asyncio.to_thread(users.prepare_user, row.email, form.raw("password"), form["name"][:255])
        if form.errors:
            raise errors.Invalid({})
        user = await commit(_accept_invitation, invitation_id, token, new, language, request.ctx.client)
    except errors.NotFound:
        return await render_invitation(request, None, form, 410)
    except errors.Invalid as error:
        form.values["password"] = ""
        if error.fields:
            form.add_errors(error)
        return await render_invitation(request, row, form, 422)
    response = view.redirect(request, "/")
    await session.sign_in(request, response, user, "invitation")
    return response


async def _join(request: Request, row: Any, token: str) -> HTTPResponse:
    """Let the signed-in person join the account of an invitation, and open it.

    If the account needs another way to sign in, the person joins all the same, and the profile offers its providers.
    """
    visit = await session.load_visit(request)
    if visit is None or visit.user.email != row.email:
        return await render_invitation(request, row, Form(), 403)

    def write() -> tuple[User, str]:
        user = invitations.join(row.id, token, visit.user.id, request.ctx.client)
        try:
            sessions.open_account(visit.session.id, user.account_id, visit.actor)
        except errors.NotAllowed as error:
            return user, error.message
        return user, ""

    try:
        user, refusal = await commit(write)
    except errors.NotFound:
        return await render_invitation(request, None, Form(), 410)
    except errors.Invalid:
        form = Form()
        form.add_error("base", gettext("You are a member of this account already, or were deactivated there."))
        return await render_invitation(request, row, form, 422)
    request.ctx.visit = visit
    if refusal:
        view.flash(request, refusal)
        return view.redirect(request, "/settings/you")
    view.clear_flash(request)
    session.forget_secrets(visit.session.id)
    view.flash(request, gettext("You are now in %(account)s.", account=user.account.name))
    return view.redirect(request, "/")


def _accept_invitation(invitation_id: int, token: str, new: users.NewUser, language: str, ip: str | None) -> User:
    user = invitations.accept(invitation_id, token, new, ip)
    if language:
        users.set_preference(user.id, users.LANGUAGE_PREFERENCE, language)
    return user


async def find_invitation(invitation_id: int, token: str) -> Any:
    """Return the invitation of a link, or None if it is not valid."""
    # The database has no id of more than 63 bits.
    return None if invitation_id >> 63 else await fetch(invitations.find, invitation_id, token)


def list_providers(invitation: Invitation) -> list[SignInProvider]:
    """Return the providers with which an invitation can be accepted; none for a person who has a user already."""
    has_user = invitations.find_person(invitation) is not None
    return [] if has_user else providers.list_for_account(invitation.account_id)


async def render_invitation(request: Request, row: Any, form: Form, status: int, path: str = "") -> HTTPResponse:
    """Render the page of an invitation; a person who has a user already gets only a button, once signed in.

    `path` is that of the invitation's link, by default that of the request.
    """
    has_user = row is not None and await fetch(invitations.find_person, row) is not None
    visit = await session.load_visit(request) if has_user else None
    options = await fetch(role_labels.list_options, row.account_id) if row else {}
    return view.render(
        request, "login/invitation.html", status, form=form, invitation=row, languages=list(i18n.LANGUAGES.items()),
        role=options.get(row.role) if row else None, has_user=has_user, link=path or request.path,
        providers=await fetch(list_providers, row) if row is not None else [],
        signed_in_as=visit.user.email if visit else None,
    )  # fmt: skip
