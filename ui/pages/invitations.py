"""The pages of invitations: the forms of the team page, and the page on which an invited person joins the team."""

import asyncio
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, invitations, rate_limits, users
from appliance.core import errors, i18n
from appliance.core.i18n import gettext
from appliance.forms import store
from appliance.sending.messages import system_emails
from appliance.storage.models import Invitation, User
from appliance.storage.transactions import commit, fetch
from ui import session, view
from ui.forms import Form
from ui.guard import ignore_double_submit, public_page, signed_in
from ui.pages.users import ROLES, render_team
from ui.session import Pages, Visit

pages = Pages("ui_invitations")
# The limits of invitations of an account in an hour, and of attempts to accept one by a client in FAILURE_WINDOW_MS.
_MAX_PER_HOUR, _MAX_ATTEMPTS = 30, 20


@pages.post("/settings/team")
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def invite(request: Request, visit: Visit) -> HTTPResponse:
    """Invite an address to the team, by email if possible; otherwise the next page shows the link once."""
    form = Form.from_request(request)
    form.require("email", gettext("Enter the email address of the person to invite."))
    if form.errors:
        return await render_team(request, visit, form, 422)
    store.check_rate(f"invite:{visit.account_id}", _MAX_PER_HOUR, store.HOUR_MS)

    def write() -> tuple[Invitation, bool]:
        row = invitations.invite(visit.actor, form["email"], form["role"])
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
    store.check_rate(f"invite:{visit.account_id}", _MAX_PER_HOUR, store.HOUR_MS)

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
        session.store_secret(visit.session.id, "invitation", {"email": row.email, "link": invitations.build_link(row)})
    return view.redirect(request, "/settings/team")


@pages.get("/invitations/<invitation_id:int>/<token:str>")
@public_page
async def show_invitation(request: Request, invitation_id: int, token: str) -> HTTPResponse:
    """Show the form for name, password and language, or an error if the link is no longer valid."""
    row = await _find(invitation_id, token)
    return _render_invitation(request, row, Form({"language": i18n.get_language()}), 200 if row else 410)


@pages.post("/invitations/<invitation_id:int>/<token:str>")
@public_page
async def accept_invitation(request: Request, invitation_id: int, token: str) -> HTTPResponse:
    """Create the user of an invitation, and sign the user in."""
    store.check_rate(
        f"invitation:{rate_limits.client_key(request.ctx.client)}", _MAX_ATTEMPTS, rate_limits.FAILURE_WINDOW_MS
    )
    row, form = await _find(invitation_id, token), Form.from_request(request)
    if row is None:
        return _render_invitation(request, None, form, 410)
    form.require("name", gettext("Enter your name."))
    language = form["language"] if form["language"] in i18n.LANGUAGES else ""
    try:
        new = await asyncio.to_thread(users.prepare_user, row.email, form.raw("password"), form["name"][:255])
        if form.errors:
            raise errors.Invalid({})
        user = await commit(_accept, invitation_id, token, new, language, request.ctx.client)
    except errors.NotFound:
        return _render_invitation(request, None, form, 410)
    except errors.Invalid as error:
        form.values["password"] = ""
        if "email" in error.fields:
            form.add_error("base", gettext(
                "%(email)s already signs in to another account of this installation. Ask for an invitation to another "
                "email address.", email=row.email,
            ))  # fmt: skip
        elif error.fields:
            form.add_errors(error)
        return _render_invitation(request, row, form, 422)
    response = view.redirect(request, "/")
    await session.sign_in(request, response, user)
    return response


def _accept(invitation_id: int, token: str, new: users.NewUser, language: str, ip: str | None) -> User:
    user = invitations.accept(invitation_id, token, new, ip)
    if language:
        users.set_preference(user.id, session.LANGUAGE_PREFERENCE, language)
    return user


async def _find(invitation_id: int, token: str) -> Any:
    # The database has no id of more than 63 bits.
    return None if invitation_id >> 63 else await fetch(invitations.find, invitation_id, token)


def _render_invitation(request: Request, row: Any, form: Form, status: int) -> HTTPResponse:
    return view.render(
        request, "login/invitation.html", status, form=form, invitation=row, languages=list(i18n.LANGUAGES.items()),
        role=ROLES[row.role] if row else None,
    )  # fmt: skip
