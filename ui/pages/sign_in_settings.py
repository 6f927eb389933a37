"""The settings of sign-in: the OpenID Connect providers of the account, and whether passwords are allowed."""

import re
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access
from appliance.accounts.oidc import metadata, providers
from appliance.accounts.oidc.providers import ProviderPatch, ProviderWrite
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.settings import config
from appliance.storage.models import SignInProvider
from appliance.storage.transactions import commit, fetch
from ui import view
from ui.forms import Form
from ui.guard import ignore_double_submit, signed_in
from ui.role_labels import BUILT_IN
from ui.session import Pages, Visit

pages = Pages("ui_sign_in_settings", url_prefix="/settings/sign-in")


class _Kind(NamedTuple):
    """A kind of provider: what its form is filled with, and where to register the app."""

    name: str
    issuer: str
    placeholder: str
    help: str


_KINDS = {
    "google": _Kind(
        "Google", metadata.GOOGLE, "",
        gettext_noop("In the Google Cloud console, create an OAuth client for a web application."),
    ),
    "microsoft": _Kind(
        "Microsoft", "", "https://login.microsoftonline.com/TENANT-ID/v2.0",
        gettext_noop("In the Microsoft Entra admin center, register an app with the platform Web. TENANT-ID is your "
                     "directory (tenant) ID."),
    ),
    "keycloak": _Kind(
        "Keycloak", "", "https://sso.example.com/realms/REALM",
        gettext_noop("In your realm, create an OpenID Connect client with client authentication and standard flow."),
    ),
    "authentik": _Kind(
        "Authentik", "", "https://sso.example.com/application/o/campanero/",
        gettext_noop("Create an OAuth2/OpenID provider and an application for it. The issuer ends with a slash."),
    ),
    "other": _Kind(
        "", "", "https://sso.example.com",
        gettext_noop("Register a web application with the authorization code flow at your provider."),
    ),
}  # fmt: skip
_OTHER = "other"
_JOIN_ROLES = ("admin", "editor", "author", "viewer")
_FAULTS = {
    "name": gettext_noop("Enter the name for the button."),
    "client_id": gettext_noop("Enter the client ID that the provider shows."),
    "issuer": gettext_noop("Enter the issuer, a web address that begins with https://."),
}


@pages.get("/", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
async def show_settings(request: Request, visit: Visit) -> HTTPResponse:
    """Show the providers, and whether passwords are allowed."""
    return await _render_list(request, visit, Form(), 200)


@pages.post("/password")
@signed_in(access.ADMIN_SCOPE)
async def set_password_sign_in(request: Request, visit: Visit) -> HTTPResponse:
    """Allow or refuse passwords for the account; only owners may."""
    is_allowed = Form.from_request(request)["allow"] == "yes"
    try:
        await commit(providers.set_password_sign_in, visit.actor, is_allowed)
    except errors.Invalid:
        form = Form()
        form.add_error("base", gettext("First sign in with a provider yourself, so that you are not locked out."))
        return await _render_list(request, visit, form, 422)
    view.flash(request, gettext("Passwords are allowed.") if is_allowed else gettext("Passwords are turned off."))
    return view.redirect(request, "/settings/sign-in")


@pages.get("/new")
@signed_in(access.ADMIN_SCOPE)
async def new_provider(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new provider of the kind in the query, with its redirect URI."""
    kind = _KINDS.get(request.args.get("kind") or "", _KINDS[_OTHER])
    values = {"name": kind.name, "issuer": kind.issuer, "role": "viewer", "enabled": "yes"}
    return _render_form(request, Form(values | {"key": providers.generate_key()}), None, kind)


@pages.post("/", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def create_provider(request: Request, visit: Visit) -> HTTPResponse:
    """Add a provider, and show its page, where it can be tested."""
    form = Form.from_request(request)
    kind = _KINDS.get(form["kind"], _KINDS[_OTHER])
    try:
        body = validation.read(ProviderWrite, _read_values(form) | {"issuer": form["issuer"]})
        provider = await commit(providers.create, visit.actor, body, form["key"])
    except errors.Invalid as error:
        return _render_form(request, _add_errors(form, error), None, kind, 422)
    view.flash(request, gettext("Provider added. Test it now."))
    return view.redirect(request, f"/settings/sign-in/{provider.id}")


@pages.get("/<provider_id:int>")
@signed_in(access.ADMIN_SCOPE)
async def show_provider(request: Request, visit: Visit, provider_id: int) -> HTTPResponse:
    """Show the form of a provider."""
    provider = await fetch(providers.get, visit.account_id, provider_id)
    return _render_form(request, _build_form(provider), provider)


@pages.post("/<provider_id:int>")
@signed_in(access.ADMIN_SCOPE)
async def save_provider(request: Request, visit: Visit, provider_id: int) -> HTTPResponse:
    """Save the form of a provider; an empty secret leaves the stored one unchanged."""
    provider = await fetch(providers.get, visit.account_id, provider_id)
    form = Form.from_request(request)
    values = _read_values(form)
    if not values["client_secret"]:
        del values["client_secret"]
    try:
        body = validation.read(ProviderPatch, values | {"enabled": form["enabled"] == "yes"})
        await commit(providers.update, visit.actor, provider_id, body)
    except errors.Invalid as error:
        return _render_form(request, _add_errors(form, error), provider, status=422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/settings/sign-in/{provider_id}")


@pages.post("/<provider_id:int>/test")
@signed_in(access.ADMIN_SCOPE)
async def test_provider(request: Request, visit: Visit, provider_id: int) -> HTTPResponse:
    """Test the stored provider, and say in plain words what is wrong."""
    provider = await fetch(providers.get, visit.account_id, provider_id)
    fault = await providers.find_fault(provider)
    result = {
        "good": fault is None, "title": gettext("The test failed") if fault else gettext("The provider works"),
        "words": fault or gettext("Endpoints, keys, client ID and secret were checked. Now sign in with it once."),
    }  # fmt: skip
    return _render_form(request, _build_form(provider), provider, result=result)


@pages.post("/<provider_id:int>/delete")
@signed_in(access.ADMIN_SCOPE)
async def delete_provider(request: Request, visit: Visit, provider_id: int) -> HTTPResponse:
    """Remove a provider with the accounts that are linked to it."""
    provider = await commit(providers.delete, visit.actor, provider_id)
    view.flash(request, gettext("%(name)s removed.", name=provider.name))
    return view.redirect(request, "/settings/sign-in")


def _build_form(provider: SignInProvider) -> Form:
    return Form({
        "name": provider.name, "issuer": provider.issuer, "client_id": provider.client_id, "client_secret": "",
        "domains": ", ".join(provider.domains), "role": provider.role, "trust_mfa": "yes" if provider.trust_mfa else "",
        "enabled": "yes" if provider.enabled else "",
    })  # fmt: skip


def _read_values(form: Form) -> dict[str, Any]:
    """Return the fields of a posted form as the API has them."""
    return {
        "name": form["name"], "client_id": form["client_id"], "client_secret": form.raw("client_secret").strip(),
        "domains": [domain for domain in re.split(r"[\s,;]+", form["domains"]) if domain], "role": form["role"],
        "trust_mfa": form["trust_mfa"] == "yes",
    }  # fmt: skip


def _add_errors(form: Form, error: errors.Invalid) -> Form:
    for path in error.fields:
        name = path.partition("[")[0]
        if name in _FAULTS:
            form.add_error(name, gettext(_FAULTS[name]))
        elif name == "domains":
            form.add_error(name, gettext("Enter domains such as example.com, separated by commas."))
        else:
            form.add_error(name if name in form.values else "base", error.fields[path][0])
    return form


def _render_form(
    request: Request, form: Form, provider: SignInProvider | None, kind: _Kind | None = None, status: int = 200,
    result: dict[str, Any] | None = None,
) -> HTTPResponse:  # fmt: skip
    shown = kind or _KINDS[_OTHER]
    key = provider.key if provider else form["key"]
    return view.render(
        request, "settings/sign_in_provider.html", status, form=form, provider=provider, test_result=result, kind=shown,
        kind_key=next(name for name, value in _KINDS.items() if value is shown), key=key,
        redirect_uri=providers.build_redirect_uri(key), sign_out_uri=f"{config.base_url(config.current())}/login",
        sign_in_url=providers.sign_in_url(provider) if provider else "",
        roles=[(role, gettext(BUILT_IN[role][0])) for role in _JOIN_ROLES],
    )  # fmt: skip


async def _render_list(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    return view.render(
        request, "settings/sign_in.html", status, form=form, roles=BUILT_IN,
        providers=await fetch(providers.list_all, visit.account_id),
        kinds=[(name, kind.name or gettext("Another provider")) for name, kind in _KINDS.items()],
        allows_password=visit.account.password_sign_in,
    )  # fmt: skip
