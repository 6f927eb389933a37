"""How the signed-in user signs in: passkeys, recovery codes, the devices that are signed in, and the open account.

`POST /login/passkey`, which the sign-in page needs for a passkey, is here too.
"""

import asyncio
from typing import Any

import msgspec
from sanic import Request
from sanic.exceptions import NotFound as NoPage
from sanic.response import HTTPResponse

from appliance.accounts import access, audit, devices, login, members, passkey_login, passkeys, sessions, users
from appliance.accounts.passkeys import PasskeyRefused
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.settings import config
from appliance.storage.transactions import commit, fetch
from ui import other_accounts, session, view
from ui.forms import Form, safe_path
from ui.guard import ignore_double_submit, public_page, signed_in
from ui.pages.users import with_proofs
from ui.session import Pages, Visit

pages = Pages("ui_own_access")
_PROFILE = "/settings/you"
_METHODS = {
    "password": gettext_noop("Password"),
    "password_code": gettext_noop("Password and code"),
    "password_passkey": gettext_noop("Password and passkey"),
    "passkey": gettext_noop("Passkey"),
    "invitation": gettext_noop("Invitation"),
}


@pages.post("/login/passkey")
@public_page
async def begin_sign_in(request: Request) -> HTTPResponse:
    """Return the options with which the browser uses a passkey, as JSON; 404 if there are no passkeys here.

    The field `pass` is the token of a sign-in whose password was right; then only the passkeys of its user are asked
    for. Without it, the response is the same for everyone, so that it reveals no user.
    """
    site, token = passkeys.find_site(config.current()), Form.from_request(request)["pass"]
    if site is None:
        raise errors.NotFound
    browser = session.read_device_token(request)
    if token:
        user = await fetch(login.find_code_user, token)
        known = await fetch(passkeys.list_by_user, user.id) if user is not None else []
        binding = passkey_login.second_factor_binding(browser, token)
        options = passkeys.build_request_options(site, "second factor", binding, known)
    else:
        options = passkeys.build_request_options(site, "sign-in", browser, [])
    response = HTTPResponse(msgspec.json.encode(options), 200, content_type="application/json")
    session.set_device_cookie(request, response, browser)
    return response


@pages.get(f"{_PROFILE}/passkeys/new")
@signed_in()
async def show_new_passkey(request: Request, visit: Visit) -> HTTPResponse:
    """Ask for the password before a passkey is added."""
    return _render_new_passkey(request, visit, Form())


@pages.post(f"{_PROFILE}/passkeys/new")
@signed_in(access.SELF_SCOPE)
async def begin_passkey(request: Request, visit: Visit) -> HTTPResponse:
    """Verify the password, and show the page on which the browser creates a passkey."""
    form = Form.from_request(request)
    if not await _is_proven(request, visit, form):
        return _render_new_passkey(request, visit, form, 422)
    form.values["name"] = devices.describe_program(request.headers.get("user-agent"))[: passkeys.MAX_NAME_CHARACTERS]
    return await _render_creation(request, visit, form)


@pages.post(f"{_PROFILE}/passkeys")
@signed_in(access.SELF_SCOPE)
@ignore_double_submit
async def add_passkey(request: Request, visit: Visit) -> HTTPResponse:
    """Store the passkey that the browser has created; the first one comes with recovery codes, shown once.

    Its challenge proves that the password was verified: only `begin_passkey` issues one for this session.
    """
    form = Form.from_request(request)
    try:
        site = passkeys.require_site(config.current())
        new = await asyncio.to_thread(passkeys.verify_registration, form.raw("credential"), site, visit.session.id)
    except PasskeyRefused as error:
        form = Form()
        form.add_error("base", error.message)
        return _render_new_passkey(request, visit, form, 422)
    try:
        codes = await commit(
            with_proofs, visit.user, passkey_login.add, visit.user.id, new, form["name"], visit.session.id, visit.actor
        )
    except login.InvalidCredentials:
        return view.redirect(request, _PROFILE)
    except errors.Invalid as error:
        return await _render_creation(request, visit, form.add_errors(error), 422)
    if codes:
        session.store_secret(visit.session.id, "codes", codes)
    view.flash(request, gettext("Passkey added."))
    return view.redirect(request, _PROFILE)


@pages.get(f"{_PROFILE}/passkeys/<passkey_id:int>")
@signed_in()
async def show_passkey(request: Request, visit: Visit, passkey_id: int) -> HTTPResponse:
    """Show the page that renames or removes a passkey of the signed-in user."""
    return await _render_passkey(request, visit, passkey_id, None)


@pages.post(f"{_PROFILE}/passkeys/<passkey_id:int>")
@signed_in(access.SELF_SCOPE)
async def rename_passkey(request: Request, visit: Visit, passkey_id: int) -> HTTPResponse:
    """Rename a passkey of the signed-in user."""
    form = Form.from_request(request)
    try:
        await commit(passkeys.rename, visit.user.id, passkey_id, form["name"], visit.actor)
    except errors.Invalid as error:
        return await _render_passkey(request, visit, passkey_id, form.add_errors(error), 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, _PROFILE)


@pages.post(f"{_PROFILE}/passkeys/<passkey_id:int>/remove")
@signed_in(access.SELF_SCOPE)
async def remove_passkey(request: Request, visit: Visit, passkey_id: int) -> HTTPResponse:
    """Remove a passkey of the signed-in user after verifying the password."""
    form, passkey = Form.from_request(request), await fetch(passkeys.get, visit.user.id, passkey_id)
    form.values["name"] = passkey.name
    if not await _is_proven(request, visit, form):
        return await _render_passkey(request, visit, passkey_id, form, 422)
    arguments = visit.user.id, passkey_id, visit.session.id, visit.actor
    try:
        await commit(with_proofs, visit.user, passkey_login.remove, *arguments)
    except login.InvalidCredentials:
        return view.redirect(request, _PROFILE)
    except errors.Invalid as error:
        return await _render_passkey(request, visit, passkey_id, form.add_errors(error), 422)
    view.flash(request, gettext("Passkey “%(name)s” removed. Other browsers are signed out.", name=passkey.name))
    return view.redirect(request, _PROFILE)


@pages.get(f"{_PROFILE}/codes")
@signed_in()
async def show_new_codes(request: Request, visit: Visit) -> HTTPResponse:
    """Ask for the password before the recovery codes are replaced."""
    return _render_new_codes(request, visit, Form())


@pages.post(f"{_PROFILE}/codes")
@signed_in(access.SELF_SCOPE)
async def renew_codes(request: Request, visit: Visit) -> HTTPResponse:
    """Replace the recovery codes of the signed-in user after verifying the password; the profile shows them once."""
    form = Form.from_request(request)
    if not await _is_proven(request, visit, form):
        return _render_new_codes(request, visit, form, 422)
    try:
        codes = await commit(with_proofs, visit.user, login.renew_recovery_codes, visit.user.id, visit.actor)
    except (login.InvalidCredentials, errors.Invalid):
        return view.redirect(request, _PROFILE)
    session.store_secret(visit.session.id, "codes", codes)
    return view.redirect(request, _PROFILE)


async def _is_proven(request: Request, visit: Visit, form: Form) -> bool:
    """Return whether a form has the password of the signed-in user; else it gets an error."""
    form.require("password", gettext("Enter your current password."))
    if not form.errors and await login.find_wrong_proofs(
        visit.user, form.raw("password"), None, request.ctx.client
    ):  # fmt: skip
        form.add_error("password", gettext("This is not your current password."))
    return not form.errors


def _render_new_passkey(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    if not session.is_passkey_page(request):
        return view.redirect(request, _PROFILE)
    texts = [
        gettext("With the passkey alone you are signed in: it is something you have, and it checks that it is you.")
    ]
    if not login.has_second_factor(visit.user):
        texts.append(
            gettext(
                "From then on your password alone no longer signs you in. You get recovery codes for the day on which "
                "the passkey is lost, and other browsers and apps are signed out."
            )
        )
    return view.render(
        request, "settings/prove.html", status, form=form, title=gettext("Add a passkey"), texts=texts,
        lead=gettext("Sign in with your fingerprint, your face or a PIN."), path=f"{_PROFILE}/passkeys/new",
        verb=gettext("Continue"),
    )  # fmt: skip


async def _render_creation(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    site = passkeys.find_site(config.current())
    if site is None:
        return view.redirect(request, _PROFILE)
    known = await fetch(passkeys.list_by_user, visit.user.id)
    options = passkeys.build_creation_options(visit.user, site, known, visit.session.id)
    return view.render_whole(
        request, "settings/passkey_new.html", status, form=form, options=msgspec.json.encode(options).decode(),
        max_name=passkeys.MAX_NAME_CHARACTERS,
    )  # fmt: skip


async def _render_passkey(
    request: Request, visit: Visit, passkey_id: int, form: Form | None, status: int = 200
) -> HTTPResponse:
    passkey = await fetch(passkeys.get, visit.user.id, passkey_id)
    last_text = gettext(
        "It is the only one, and you have no authenticator app: from then on your password alone signs you in."
    )
    return view.render(
        request, "settings/passkey.html", status, passkey=passkey, form=form or Form({"name": passkey.name}),
        max_name=passkeys.MAX_NAME_CHARACTERS, last_text=last_text,
        is_last=visit.user.passkey_count == 1 and not login.has_otp(visit.user),
    )  # fmt: skip


def _render_new_codes(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    if not login.has_second_factor(visit.user):
        return view.redirect(request, _PROFILE)
    return view.render(
        request, "settings/prove.html", status, form=form, title=gettext("New recovery codes"), lead="",
        texts=[gettext("You get ten new codes. The old ones no longer work.")], path=f"{_PROFILE}/codes",
        verb=gettext("Get new recovery codes"),
    )  # fmt: skip


# Devices that are signed in.


@pages.get(f"{_PROFILE}/sessions/<session_id:int>")
@signed_in()
async def show_session(request: Request, visit: Visit, session_id: int) -> HTTPResponse:
    """Show what is known about a device on which the user is signed in, and its name."""
    return await _render_session(request, visit, session_id, None)


@pages.post(f"{_PROFILE}/sessions/<session_id:int>")
@signed_in(access.SELF_SCOPE)
async def rename_session(request: Request, visit: Visit, session_id: int) -> HTTPResponse:
    """Name the device of a session of the signed-in user."""
    form = Form.from_request(request)
    try:
        await commit(sessions.rename, visit.user.id, session_id, form["name"], visit.actor)
    except errors.Invalid as error:
        return await _render_session(request, visit, session_id, form.add_errors(error), 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, _PROFILE)


@pages.post(f"{_PROFILE}/notices")
@signed_in(access.SELF_SCOPE)
async def set_notices(request: Request, visit: Visit) -> HTTPResponse:
    """Turn the email about sign-ins on new devices off or on again for the signed-in user."""
    is_on = Form.from_request(request)["new_device"] != "off"

    def write() -> None:
        users.set_preference(visit.user.id, users.NEW_DEVICE_EMAIL_PREFERENCE, None if is_on else "off")
        audit.record(visit.actor, visit.account_id, "user_notices", visit.actor_id, {"new_device": is_on})

    await commit(write)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, _PROFILE)


async def _render_session(
    request: Request, visit: Visit, session_id: int, form: Form | None, status: int = 200
) -> HTTPResponse:
    row: Any = await fetch(sessions.get, visit.user.id, session_id)
    name = row.device.name if row.device is not None else None
    return view.render(
        request, "settings/session.html", status, row=row, form=form or Form({"name": name or ""}),
        name=devices.describe(row), program=devices.describe_unnamed(row), is_current=row.id == visit.session.id,
        method=gettext(_METHODS[row.method]) if row.method in _METHODS else None,
        max_name=devices.MAX_NAME_CHARACTERS,
    )  # fmt: skip


@pages.post("/accounts/open")
@signed_in(access.SELF_SCOPE, any_account=True)
async def open_account(request: Request, visit: Visit) -> HTTPResponse:
    """Open another account of the person in this browser, at the same page if that account has it, else at Home.

    Without `next`, which a dialog over a page leaves out, the page stays as it is, with all that was typed.
    """
    form = Form.from_request(request)
    number = form["account"]
    if not number.isdecimal() or int(number) >> 63:
        raise errors.NotFound
    await commit(sessions.open_account, visit.session.id, int(number), visit.actor)
    # A notice of the previous account must not be shown in this one.
    view.clear_flash(request)
    session.forget_secrets(visit.session.id)
    if not form["next"] and view.is_partial(request):
        return HTTPResponse("", 200, {"hx-retarget": "#dialog", "hx-reswap": "innerHTML"}, "text/html; charset=utf-8")
    user = await fetch(members.find_active, int(number), visit.user.id)
    assert user is not None  # The account was just opened.
    where = safe_path(form["next"])
    view.flash(request, gettext("You are now in %(account)s.", account=user.account.name))
    return view.redirect(request, where if await _has_page(visit, int(number), user.role, where) else "/")


async def _has_page(visit: Visit, account_id: int, role: str, where: str) -> bool:
    """Return whether a role may open the page at a path, and the page exists in an account.

    A page of an object exists only in the account that has the object.
    """
    path = where.partition("#")[0].partition("?")[0]
    try:
        if not await fetch(visit.can_open, path, role):
            return False
    except NoPage:
        return False
    if other_accounts.is_shared_page(path):
        return True
    return await fetch(other_accounts.is_page_of, account_id, path)
