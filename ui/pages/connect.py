"""Connect a mailbox (OAuth 2.0): the registered app, the sign-in at the provider, and the disconnection."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import settings
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery.oauth import PROVIDERS, consent
from appliance.sending.delivery.oauth.consent import DeviceCode
from appliance.sending.delivery.oauth.providers import Use, find_use
from appliance.sending.delivery.oauth.tokens import OAuthError, TokenResponse
from appliance.sending.messages import oauth_grants
from appliance.sending.transports import TRANSPORTS
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage.transactions import commit, fetch
from ui import formats, view
from ui.forms import Form
from ui.guard import signed_in
from ui.pages import sending
from ui.session import Pages, Visit

pages = Pages("ui_connect", url_prefix="/settings/sending")
# The errors that people can solve here; all others are shown in the provider's words only.
_ERRORS = {
    "state": gettext_noop("This sign-in is too old, or was begun by somebody else. Start it again."),
    "access_denied": gettext_noop("The access was not granted. Sign in again and accept it."),
    "authorization_declined": gettext_noop("The access was not granted. Sign in again and accept it."),
    "expired_token": gettext_noop("The code has expired. Get a new one."),
    "no_refresh_token": gettext_noop("The access would end within an hour. Sign in again and accept every permission."),
    "address": gettext_noop("This address does not contain the code. Copy the whole address of the last page."),
}


@pages.get("/connect/<name:str>")
@signed_in("account:write")
async def show_connection(request: Request, visit: Visit, name: str) -> HTTPResponse:
    """Show the app, the state of the consent, and the button that leads to the provider's sign-in."""
    _require_provider(visit, name)
    return await _render(request, visit, name, _build_form(name))


@pages.post("/connect/<name:str>")
@signed_in("account:write")
async def save_client(request: Request, visit: Visit, name: str) -> HTTPResponse:
    """Save the client ID and secret of the app; an empty secret leaves the stored one unchanged."""
    _require_provider(visit, name)
    form = Form.from_request(request)
    values: dict[str, Any] = {}
    for setting, _field in sending.API_FIELDS[name]:
        if settings.can_set(setting) and setting in form.values:
            value = form.raw(setting) or None
            if value is not None or setting not in sending.SECRETS:
                values[setting] = value
    try:
        loaded = await commit(_save_client, visit, values)
    except errors.Invalid as error:
        return await _render(request, visit, name, sending.add_transport_errors(form, error), 422)
    sending.apply_settings(request, loaded)
    view.flash(request, gettext("Saved. Now sign in."))
    return view.redirect(request, f"/settings/sending/connect/{name}")


def _save_client(visit: Visit, values: dict[str, Any]) -> LoadedConfig:
    return sending.record_change(visit, settings.save, values)


@pages.get("/callback")
@signed_in("account:write")
async def finish_sign_in(request: Request, visit: Visit) -> HTTPResponse:
    """Store the consent that the provider sends the browser back with (RFC 6749, section 4.1.2)."""
    return await _finish(request, visit, {name: values[0] for name, values in request.args.items()}, "")


@pages.post("/connect/<name:str>/finish")
@signed_in("account:write")
async def finish_by_hand(request: Request, visit: Visit, name: str) -> HTTPResponse:
    """Store the consent from the pasted address of the provider's last page, or ask whether a code was entered."""
    _require_provider(visit, name)
    form = Form.from_request(request)
    if "address" in form.values:
        return await _finish(request, visit, consent.read_address(form.raw("address")), name)
    begun = consent.open_state(form.raw("state"), visit.user.id)
    if begun is None or begun.provider != name or not begun.device_code:
        return await _reject(request, visit, name, OAuthError("state", ""))
    try:
        response = await consent.poll_device(begun, config.current().email)
    except OAuthError as error:
        return await _reject(request, visit, name, error)
    if response is None:
        device = consent.show_device(begun)
        words = gettext("The code was not entered yet. Enter it, accept the access, and then continue here.")
        return await _render(request, visit, name, _build_form(name), device=device, waiting=words)
    return await _save(request, visit, name, _to_use(begun.use), response)


@pages.post("/connect/<name:str>/device")
@signed_in("account:write")
async def begin_device_sign_in(request: Request, visit: Visit, name: str) -> HTTPResponse:
    """Show a code that the user enters at the provider, in any browser."""
    _require_provider(visit, name)
    email = config.current().email
    if not PROVIDERS[name].device_url(email):
        raise errors.NotFound
    try:
        device = await consent.begin_device(name, _use_of(name), visit.user.id, email)
    except OAuthError as error:
        return await _reject(request, visit, name, error)
    return await _render(request, visit, name, _build_form(name), device=device)


@pages.post("/connect/<name:str>/remove")
@signed_in("account:write")
async def remove_connection(request: Request, visit: Visit, name: str) -> HTTPResponse:
    """Delete the consent that is stored here."""
    _require_provider(visit, name)
    sending.apply_settings(request, await commit(oauth_grants.remove, name, visit.actor))
    view.flash(request, gettext("Disconnected. Also remove the access in your account at the provider."))
    return view.redirect(request, f"/settings/sending/connect/{name}")


async def _finish(request: Request, visit: Visit, parameters: dict[str, str], pasted_for: str) -> HTTPResponse:
    """Exchange the code of the provider's answer and store the consent.

    `pasted_for` is the name of the provider whose page the answer was pasted into, "" if the browser came back.
    """
    sending.require_first_account(visit)
    begun = consent.open_state(parameters.get("state", ""), visit.user.id)
    if begun is None or not begun.redirect_url or (pasted_for and begun.provider != pasted_for):
        code = "address" if pasted_for and "state" not in parameters else "state"
        return await _reject(request, visit, pasted_for or _current_provider(), OAuthError(code, ""))
    if "error" in parameters or not parameters.get("code"):
        error = OAuthError(parameters.get("error", "address"), parameters.get("error_description", ""))
        return await _reject(request, visit, begun.provider, error)
    try:
        response = await consent.exchange(begun, parameters["code"], config.current().email)
    except OAuthError as error:
        return await _reject(request, visit, begun.provider, error)
    return await _save(request, visit, begun.provider, _to_use(begun.use), response)


async def _save(request: Request, visit: Visit, name: str, use: Use, response: TokenResponse) -> HTTPResponse:
    try:
        loaded = await commit(oauth_grants.save, name, use, response, visit.actor)
    except errors.Invalid as error:
        return await _reject(request, visit, name, OAuthError("settings", errors.summarize(error.fields)))
    sending.apply_settings(request, loaded)
    words = gettext("Connected with %(address)s.", address=response.email) if response.email else gettext("Connected.")
    view.flash(request, words)
    return view.redirect(request, "/settings/sending")


async def _reject(request: Request, visit: Visit, name: str, error: OAuthError) -> HTTPResponse:
    """Show the page of a provider with an error, in plain words if they are known, else in the provider's."""
    known = _ERRORS.get(error.code)
    words = gettext(known) if known else formats.sentence(error.words or error.code)
    result = {"good": False, "title": gettext("The mailbox is not connected"), "words": words}
    return await _render(request, visit, name, _build_form(name), 422, result=result)


def _require_provider(visit: Visit, name: str) -> None:
    sending.require_first_account(visit)
    if name not in PROVIDERS:
        raise errors.NotFound


def _to_use(text: str) -> Use:
    return "smtp" if text == "smtp" else "api"


def _use_of(name: str) -> Use:
    """Return the use of the requested consent: SMTP if the relay logs in with this provider, else the HTTP API."""
    email = config.current().email
    needed = find_use(email)
    return "smtp" if needed == (name, "smtp") or (needed is None and email.relay.login == name) else "api"


def _current_provider() -> str:
    needed = find_use(config.current().email)
    return needed[0] if needed is not None else next(iter(PROVIDERS))


def _build_form(name: str) -> Form:
    current = sending.build_transport_form()
    return Form({setting: current[setting] for setting, _ in sending.API_FIELDS[name]})


async def _render(
    request: Request, visit: Visit, name: str, form: Form, status: int = 200, *, device: DeviceCode | None = None,
    waiting: str = "", result: dict[str, Any] | None = None,
) -> HTTPResponse:  # fmt: skip
    loaded, provider, use = config.current(), PROVIDERS[name], _use_of(name)
    url, comes_back = consent.begin(name, use, visit.user.id, loaded)
    fields = [
        (setting, field, setting in sending.SECRETS, setting not in config.list_required(name))
        for setting, field in sending.API_FIELDS[name]
    ]
    return view.render(
        request, "settings/connect.html", status, form=form, name=name, provider=provider,
        api=TRANSPORTS[name].label, use=use, fields=fields, device=device, waiting=waiting, test_result=result,
        consent_url=url if provider.section(loaded.email).client_id else "", comes_back=comes_back,
        redirect_url=consent.redirect_url(name, loaded), offers_device=bool(provider.device_url(loaded.email)),
        consent=await fetch(oauth_grants.find_status, name),
        locked={
            setting: config.get_loaded().sources[setting]
            for setting, _ in sending.API_FIELDS[name] if not settings.can_set(setting)
        },
        stored={setting for setting in sending.SECRETS if config.get_value(loaded, setting)},
    )  # fmt: skip
