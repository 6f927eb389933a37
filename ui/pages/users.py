"""The pages of users: the team, API keys, and the user's own profile."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import (
    access,
    audit,
    devices,
    invitations,
    login,
    members,
    passkeys,
    passwords,
    sessions,
    users,
)
from appliance.core import errors, i18n
from appliance.core.i18n import gettext, gettext_noop, pgettext
from appliance.sending.domains import records
from appliance.sending.messages import system_emails
from appliance.settings import config
from appliance.storage.models import User
from appliance.storage.transactions import commit, fetch
from ui import formats, forms, role_labels, session, view
from ui.forms import Form, FormPart, FormParts
from ui.guard import ignore_double_submit, signed_in
from ui.pages.identities import load_identities
from ui.session import Pages, Visit
from ui.widgets import charts

pages = Pages("ui_users", url_prefix="/settings")
T = TypeVar("T")

_LAST_OWNER_ERROR = gettext_noop("An account needs an owner. Make another user an owner first.")


@pages.get("/team")
@signed_in(access.ADMIN_SCOPE)
async def show_team(request: Request, visit: Visit) -> HTTPResponse:
    """Show the members of the team to owners and admins."""
    return await render_team(request, visit, Form({"role": "editor"}), 200)


@pages.post("/team/<user_id:int>/role")
@signed_in(access.ADMIN_SCOPE)
@forms.retry_on_change
async def change_role(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Change the role of a member of the team."""
    form, present = Form.from_request(request), await fetch(users.get, visit.account_id, user_id)
    parts = _role_parts(present)
    options = await fetch(role_labels.list_options, visit.account_id)
    names = {key: label for key, (label, _) in options.items()}
    forms.merge_form(form, parts, _build_role_form(present), dict.fromkeys(parts.all_keys(form), names))
    if form.conflicts:
        return await render_team(request, visit, Form({"role": "editor"}), 409, (user_id, form))
    try:
        args = (users.change_role, visit.actor, user_id, form["role"])
        user = await commit(
            forms.write_if_unchanged,
            form,
            parts,
            lambda: _build_role_form(users.get(visit.account_id, user_id)),
            *args,
        )
    except errors.Invalid:
        return await _render_refused(request, visit, gettext(_LAST_OWNER_ERROR))
    role = options[user.role][0]
    view.flash(request, gettext("Role of %(name)s changed to %(role)s.", name=user.name, role=role))
    return view.redirect(request, "/settings/team")


@pages.post("/team/<user_id:int>/close")
@signed_in(access.ADMIN_SCOPE)
async def disable_member(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Disable a member of the team, who can no longer sign in; the notice offers to undo it."""
    try:
        user = await commit(users.disable, visit.actor, user_id)
    except errors.Invalid as error:
        own = "disabled" in error.fields
        message = gettext("You cannot deactivate yourself.") if own else gettext(_LAST_OWNER_ERROR)
        return await _render_refused(request, visit, message)
    theirs = (await fetch(_keys_by_user, visit.account_id)).get(user_id)
    text = gettext("%(name)s can no longer sign in.", name=user.name)
    if theirs:
        text = gettext(
            "%(name)s can no longer sign in. API keys that still work: %(keys)s.",
            name=user.name,
            keys=formats.join_names(theirs),
        )
    view.flash(request, text, (f"/settings/team/{user_id}/reopen", {}))
    return view.redirect(request, "/settings/team")


@pages.post("/team/<user_id:int>/reopen")
@signed_in(access.ADMIN_SCOPE)
async def enable_member(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Enable a disabled member of the team."""
    user = await commit(users.enable, visit.actor, user_id)
    view.flash(request, gettext("%(name)s can sign in again with the same password.", name=user.name))
    return view.redirect(request, "/settings/team")


@pages.post("/team/<user_id:int>/password")
@signed_in(access.ADMIN_SCOPE)
async def reset_password(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Set a generated password for a member of the team, which the next page shows once."""
    secret = users.generate_password()
    user = await commit(
        users.set_password, visit.actor, user_id, await asyncio.to_thread(passwords.hash_password, secret)
    )
    session.store_secret(visit.session.id, "password", {"name": user.name, "email": user.email, "password": secret})
    return view.redirect(request, "/settings/team")


async def _render_refused(request: Request, visit: Visit, text: str) -> HTTPResponse:
    form = Form({"role": "editor"})
    form.add_error("base", text)
    return await render_team(request, visit, form, 422)


def _build_role_form(row: Any) -> Form:
    return Form({"role": row.role})


def _role_parts(row: Any) -> FormParts:
    return FormParts(FormPart(gettext("Role of %(name)s", name=row.name), ("role",)))


async def render_team(
    request: Request, visit: Visit, form: Form, status: int, conflict: tuple[int, Form] | None = None
) -> HTTPResponse:
    """Render the team and its invitations.

    `conflict` is (member id, posted form) if another user changed the member's role meanwhile.
    """
    page = await fetch(users.list_members, visit.account_id)
    return view.render(
        request,
        "settings/team.html",
        status,
        form=form,
        members=page,
        forms={member.id: forms.open_form(_build_role_form(member), _role_parts(member)) for member in page}
        | dict(filter(None, (conflict,))),
        conflict=conflict,
        roles=await fetch(role_labels.list_options, visit.account_id),
        keys=await fetch(_keys_by_user, visit.account_id),
        shared=await fetch(members.list_shared, visit.account_id),
        new_password=session.pop_secret(visit, "password"),
        invited=await fetch(invitations.list_open, visit.account_id),
        is_valid=invitations.is_valid,
        new_link=session.pop_secret(visit, "invitation"),
        can_email=await fetch(system_emails.can_email_invitation, visit.account),
        days=invitations.VALID_DAYS,
        day_choices=invitations.DAY_CHOICES,
        is_public=records.has_public_name(),
    )


def _keys_by_user(account_id: int) -> dict[int, list[str]]:
    """Return the names and last characters of active API keys, as text, by the id of the user who created them."""
    keys: dict[int, list[str]] = {}
    for key in users.list_keys(account_id):
        if key.created_by_id is not None:
            keys.setdefault(key.created_by_id, []).append(f"{key.name} (…{key.hint})")
    return keys


# API keys.

# Common scopes of a key, with label and help text; "own" means that single scopes are selected.
SCOPE_PRESETS = (
    ("full", gettext_noop("Full access"), gettext_noop("Everything the API can do, including sending.")),
    ("read", gettext_noop("Read only"), gettext_noop("Reads everything and changes nothing.")),
    (
        "send",
        gettext_noop("Transactional messages"),
        gettext_noop("Sends messages such as order confirmations, and custom events. Cannot read contacts."),
    ),
    (
        "draft",
        gettext_noop("AI agent"),
        gettext_noop("Reads, drafts and proposes. A user approves what it wants to send or change."),
    ),
    ("own", gettext_noop("Custom"), ""),
)
SCOPE_AREAS = (
    ("contacts", gettext_noop("Contacts, lists, segments")), ("templates", gettext_noop("Templates and images")),
    ("events", gettext_noop("Events")), ("campaigns", gettext_noop("Campaigns")), ("flows", gettext_noop("Flows")),
    ("messages", gettext_noop("Messages")), ("domains", gettext_noop("Sending domains")),
    ("account", gettext_noop("Account, brand, webhooks")),
)  # fmt: skip


# The areas that only agents have scopes of.
_AGENT_AREAS = (("segments", gettext_noop("Segments")), ("proposals", gettext_noop("Proposals")))


@pages.get("/keys", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
async def show_keys(request: Request, visit: Visit) -> HTTPResponse:
    """Show the API keys to owners and admins, and a key that was just created, once."""
    return await _render_keys(request, visit, Form({"scope": "full"}), 200)


@pages.post("/keys", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def create_key(request: Request, visit: Visit) -> HTTPResponse:
    """Create an API key, which the next page shows once."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name, such as Shop."))
    scope = ",".join(form.getlist("scopes")) if form["scope"] == "own" else form["scope"]
    if not scope:
        form.add_error("scope", gettext("Select at least one scope."))
    if not re.fullmatch("[0-9]{0,9}", form["smtp_hourly_limit"]):
        form.add_error("smtp_hourly_limit", gettext("Enter a number, such as 1000."))
    try:
        if form.errors:
            raise errors.Invalid({})
        limit = int(form["smtp_hourly_limit"]) if form["smtp_hourly_limit"] else UNSET
        is_agent = scope == "draft"
        body = access.KeyWrite(form["name"][:255], scope, form["test"] == "yes", is_agent, limit)
        _, created = await commit(access.create_key, visit.account_id, body, visit.actor)
    except errors.Invalid as error:
        return await _render_keys(request, visit, form.add_errors(error) if error.fields else form, 422)
    session.store_secret(visit.session.id, "key", {"key": created, "name": form["name"]})
    return view.redirect(request, "/settings/keys")


@pages.post("/keys/<key_id:int>/revoke")
@signed_in(access.ADMIN_SCOPE)
async def revoke_key(request: Request, visit: Visit, key_id: int) -> HTTPResponse:
    """Revoke an API key."""
    deleted = await commit(access.revoke_key, visit.account_id, key_id, visit.actor)
    view.flash(request, gettext("API key “%(name)s” revoked.", name=deleted.name))
    return view.redirect(request, "/settings/keys")


def list_scopes() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the scopes as (label of the area, [(scope, label of the action)])."""
    actions = _scope_actions()
    return [
        (
            gettext(label),
            [(scope, word) for act, word in actions.items() if (scope := f"{area}:{act}") in access.SCOPES],
        )
        for area, label in SCOPE_AREAS
    ]


def _scope_actions() -> dict[str, str]:
    """Return the label of each action of a scope."""
    return {
        "read": pgettext("scope", "read"), "write": pgettext("scope", "write"), "send": pgettext("scope", "send"),
        "approve": pgettext("scope", "approve"),
    }  # fmt: skip


def describe_scope(scope: str) -> str:
    """Return a key's scope as text: the label of a preset, or the actions by area."""
    names = next((label for name, label, _ in SCOPE_PRESETS if name == scope), None)
    if names:
        return gettext(names)
    labels = {area: gettext(label) for area, label in (*SCOPE_AREAS, *_AGENT_AREAS)}
    actions = _scope_actions()
    parts: dict[str, list[str]] = {}
    for text in scope.split(","):
        area, _, act = text.strip().partition(":")
        parts.setdefault(labels.get(area, area), []).append(actions.get(act, act))
    return "; ".join(f"{area}: {', '.join(acts)}" for area, acts in parts.items())


async def _render_keys(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    rows, submission = await fetch(users.list_keys, visit.account_id), config.current().submission
    names: dict[int, Any] = {user.id: user.name for user in await fetch(users.list_members, visit.account_id)}
    return view.render(
        request, "settings/keys.html", status, form=form, api_keys=rows, names=names, describe_scope=describe_scope,
        scopes=list_scopes(),
        reaches=SCOPE_PRESETS, new_key=session.pop_secret(visit, "key"), base=config.base_url(config.current()),
        last_used=access.last_used_at, hourly_limit=access.get_hourly_limit, can_send=access.can_key_send,
        has_submission=bool(submission.listen or submission.listen_tls),
    )  # fmt: skip


# The user's own profile.

_PROOF_ERRORS = {
    "password": gettext_noop("This is not your current password."),
    "otp": gettext_noop("This code is wrong or already used. Wait for the next one."),
}
_NO_PASSWORD = gettext_noop("Enter your current password.")
_NO_CODE = gettext_noop("Enter the code from your app.")


def with_proofs(user: User, function: Callable[..., T], *args: Any) -> T:
    """Call a function in a transaction in which the verified password and code of `user` are still the user's.

    Raises login.InvalidCredentials if they are not.
    """
    login.require_unchanged(user)
    return function(*args)


@pages.get("/you")
@signed_in()
async def show_profile(request: Request, visit: Visit) -> HTTPResponse:
    """Show the user's own name, password, second factor and sessions."""
    return await _render_profile(request, visit, Form({"name": visit.user.name}))


@pages.post("/you")
@signed_in(access.SELF_SCOPE)
async def rename(request: Request, visit: Visit) -> HTTPResponse:
    """Change the name of the signed-in user."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name."))
    if form.errors:
        return await _render_profile(request, visit, form, 422)
    await commit(users.rename, visit.user.id, form["name"], request.ctx.client)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, "/settings/you")


@pages.post("/you/language")
@signed_in(access.SELF_SCOPE)
async def set_language(request: Request, visit: Visit) -> HTTPResponse:
    """Set the language of the pages for the signed-in user; an empty one follows the browser."""
    form = Form.from_request(request)
    language = form["language"]
    if language and language not in i18n.LANGUAGES:
        form.values["name"] = visit.user.name
        form.add_error("language", gettext("Select one of the languages in the list."))
        return await _render_profile(request, visit, form, 422)

    def write() -> None:
        users.set_preference(visit.user.id, users.LANGUAGE_PREFERENCE, language or None)
        audit.record(
            visit.actor, visit.account_id, "user_language", visit.actor_id, {"language": language or "browser"}
        )

    await commit(write)
    i18n.set_language(language or session.browser_language(request))
    view.flash(request, gettext("Saved."))
    return view.redirect(request, "/settings/you")


@pages.post("/you/password")
@signed_in(access.SELF_SCOPE)
async def change_password(request: Request, visit: Visit) -> HTTPResponse:
    """Change the password of the signed-in user, who must enter the old password; other browsers are signed out."""
    form = Form.from_request(request)
    old, new = form.raw("old_password"), form.raw("new_password")
    form.values["name"] = visit.user.name
    if not old:
        form.add_error("old_password", gettext(_NO_PASSWORD))
    elif await login.find_wrong_proofs(visit.user, old, None, request.ctx.client):
        form.add_error("old_password", gettext(_PROOF_ERRORS["password"]))
    try:
        passwords.check_length(new, "new_password")
    except errors.Invalid as error:
        form.add_errors(error)
    if form.errors:
        return await _render_profile(request, visit, form, 422)
    hashed = await asyncio.to_thread(passwords.hash_password, new)
    try:
        await commit(
            with_proofs, visit.user, users.change_password, visit.user.id, hashed, visit.session.id, request.ctx.client
        )
    except login.InvalidCredentials:
        form.add_error("old_password", gettext(_PROOF_ERRORS["password"]))
        return await _render_profile(request, visit, form, 422)
    view.flash(request, gettext("Password changed. Other browsers are signed out."))
    return view.redirect(request, "/settings/you")


@pages.get("/you/otp")
@signed_in()
async def show_otp(request: Request, visit: Visit) -> HTTPResponse:
    """Show a new key for an authenticator app; a user who has a second factor is redirected to the profile."""
    if login.has_otp(visit.user):
        return view.redirect(request, "/settings/you")
    return _render_otp(request, visit, Form({"secret": login.generate_otp_key()}))


@pages.post("/you/otp")
@signed_in(access.SELF_SCOPE)
async def enable_otp(request: Request, visit: Visit) -> HTTPResponse:
    """Enable the second factor of the signed-in user after verifying the password and the first code."""
    form = Form.from_request(request)
    if not login.is_otp_key(form["secret"]):
        form.values["secret"] = login.generate_otp_key()
    if not _has_proofs(form):
        return _render_otp(request, visit, form, 422)
    if wrong_proofs := await login.find_wrong_proofs(visit.user, form.raw("password"), None, request.ctx.client):
        form.add_error(wrong_proofs[0], gettext(_PROOF_ERRORS[wrong_proofs[0]]))
        return _render_otp(request, visit, form, 422)
    try:
        codes = await commit(
            with_proofs,
            visit.user,
            login.enable_second_factor,
            visit.user.id,
            form["secret"],
            form["otp"],
            visit.session.id,
            visit.actor,
        )
    except login.InvalidCredentials:
        return view.redirect(request, "/settings/you")
    except errors.Invalid as error:
        if "otp" not in error.fields:
            return view.redirect(request, "/settings/you")
        form.add_error("otp", gettext("Wrong code. Enter the one your app shows now."))
        return _render_otp(request, visit, form, 422)
    session.store_secret(visit.session.id, "codes", codes)
    return view.redirect(request, "/settings/you")


def _has_proofs(form: Form) -> bool:
    """Return whether a form has a password and a code; each that is missing gets an error."""
    for field, value, message in (("otp", form["otp"], _NO_CODE), ("password", form.raw("password"), _NO_PASSWORD)):
        if not value:
            form.add_error(field, gettext(message))
    return not form.errors


@pages.post("/you/otp/off")
@signed_in(access.SELF_SCOPE)
async def disable_otp(request: Request, visit: Visit) -> HTTPResponse:
    """Disable the second factor of the signed-in user after verifying the password and a code."""
    form = Form.from_request(request)
    form.values["name"] = visit.user.name
    if not _has_proofs(form):
        return await _render_profile(request, visit, form, 422)
    wrong_proofs = await login.find_wrong_proofs(visit.user, form.raw("password"), form["otp"], request.ctx.client)
    if wrong_proofs:
        form.add_error(wrong_proofs[0], gettext(_PROOF_ERRORS[wrong_proofs[0]]))
        return await _render_profile(request, visit, form, 422)
    try:
        await commit(with_proofs, visit.user, login.disable_otp, visit.user.id, visit.session.id, visit.actor)
    except login.InvalidCredentials:
        return view.redirect(request, "/settings/you")
    view.flash(request, gettext("Two-factor authentication turned off. Other browsers are signed out."))
    return view.redirect(request, "/settings/you")


@pages.post("/you/sessions/<session_id:int>/end")
@signed_in(access.SELF_SCOPE)
async def end_session(request: Request, visit: Visit, session_id: int) -> HTTPResponse:
    """End one session of the signed-in user."""
    await commit(sessions.revoke, visit.user.id, session_id, visit.actor)
    view.flash(request, gettext("Session signed out."))
    return view.redirect(request, "/settings/you")


@pages.post("/you/sessions/end")
@signed_in(access.SELF_SCOPE)
async def end_sessions(request: Request, visit: Visit) -> HTTPResponse:
    """End all sessions of the signed-in user except this one."""
    await commit(sessions.revoke_others, visit.user.id, visit.session.id, visit.actor)
    view.flash(request, gettext("Signed out everywhere else."))
    return view.redirect(request, "/settings/you")


@pages.post("/team/<user_id:int>/otp-off")
@signed_in(access.ADMIN_SCOPE)
async def reset_member_otp(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Remove the second factor of a member of the team who has lost it, and end the sessions of that member."""
    user = await commit(login.reset_second_factor, visit.actor, user_id)
    view.flash(
        request,
        gettext("Two-factor authentication of %(name)s turned off, and all sessions signed out.", name=user.name),
    )
    return view.redirect(request, "/settings/team")


def _render_otp(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    code = charts.draw_qr(login.otp_link(form["secret"], visit.user.email))
    key = form["secret"]
    parts = " ".join(key[at : at + 4] for at in range(0, len(key), 4))
    return view.render(request, "settings/otp.html", status, form=form, code=code, parts=parts)


async def _render_profile(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    page, preferences = await fetch(sessions.list_by_user, visit.user.id), visit.user.preferences or {}
    site = passkeys.find_site(config.current())
    form.values.setdefault("language", preferences.get(users.LANGUAGE_PREFERENCE, ""))
    return view.render(
        request, "settings/you.html", status, form=form, sessions=page, has_otp=login.has_otp(visit.user),
        recovery_code_count=len(visit.user.otp_codes), codes=session.pop_secret(visit, "codes"),
        passkeys=await fetch(passkeys.list_by_user, visit.user.id), passkey_host=site.host if site else None,
        is_at_home=session.is_passkey_page(request), base_url=config.base_url(config.current()),
        sends_notices=preferences.get(users.NEW_DEVICE_EMAIL_PREFERENCE) != "off",
        look=devices.describe, languages=[("", gettext("Browser language")), *i18n.LANGUAGES.items()],
        **await load_identities(visit),
    )  # fmt: skip
