"""Connected apps: the page where a user lets a program in (OAuth 2.1), and the list of these programs in the settings.

A request with a mistake is not redirected automatically: the page shows a link with its target, so that this page
cannot be used to send people to another site (T52).
"""

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, app_clients, app_grants
from appliance.accounts.app_clients import Client, ClientRefused
from appliance.accounts.app_grants import AuthorizationFault, AuthorizationRequest
from appliance.api import oauth
from appliance.core.i18n import gettext, gettext_noop
from appliance.forms import store
from appliance.settings import config
from appliance.storage.transactions import commit, fetch
from ui import guard, role_labels, view
from ui.forms import Form
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit

pages = Pages("ui_apps")
_MAX_REQUESTS_PER_HOUR = 60  # of a user, for programs whose description is fetched from a stranger's server
_MAX_PARAMETERS = 30
# What a scope allows, in the order of the page. The scopes that only read come first.
_RIGHTS = (
    (("contacts:read",), gettext_noop("See contacts, lists, segments and their activity")),
    (("campaigns:read", "flows:read", "templates:read"), gettext_noop("See campaigns, flows, templates and reports")),
    (("messages:read", "events:read"), gettext_noop("See sent messages and events")),
    (("account:read", "domains:read"), gettext_noop("See account settings, brand and sending domains")),
    (("campaigns:write", "templates:write"), gettext_noop("Create and edit drafts of campaigns and templates")),
    (("flows:write",), gettext_noop("Create and edit drafts of flows")),
    (("segments:write",), gettext_noop("Create and edit segments")),
    (("proposals:write",), gettext_noop("Propose changes, which a person approves or returns")),
)
_NEVER = (
    gettext_noop("Send, schedule or start anything"),
    gettext_noop("Approve its own proposals"),
    gettext_noop("Delete or unsubscribe contacts"),
    gettext_noop("See or create API keys, or change the team and settings"),
)
_FAULTS = {
    "invalid_client": gettext_noop("Campanero cannot find out which app this is. Add it again in the app."),
    "invalid_scope": gettext_noop("The app asks for access that an app cannot get in your role."),
    "invalid_target": gettext_noop("The app asks for access to another service. Check the server URL in the app."),
    "expired": gettext_noop("This page was open for too long, or in another session. Start again in the app."),
    "too_many": gettext_noop("You have connected too many apps. Disconnect one that you no longer use."),
    "no_https": gettext_noop("Apps can be connected once Campanero is reached by https. Until then, use an API key."),
}
_OTHER_FAULT = gettext_noop("The app sent a request that Campanero cannot accept.")


def describe_rights(scopes: Any) -> list[str]:
    """Return what some scopes allow, in the language of the page."""
    granted = set(scopes)
    return [gettext(label) for names, label in _RIGHTS if granted & set(names)]


@pages.get(oauth.AUTHORIZATION_PATH)
@signed_in()
async def show_consent(request: Request, visit: Visit) -> HTTPResponse:
    """Show who asks for access to which account, and what it would be allowed; nothing is stored."""
    settings = config.current()
    if not app_grants.is_available(settings):
        return _render_fault(request, "no_https", "")
    parameters = _read_parameters(request)
    if parameters is None:
        return _render_fault(request, "invalid_request", "")
    client_id = parameters.get("client_id", "")
    if app_clients.is_document_url(client_id):
        store.check_rate(f"connect-app:{visit.user.id}", _MAX_REQUESTS_PER_HOUR, store.HOUR_MS)
    try:
        client = await app_clients.find(client_id)
    except ClientRefused as error:
        return _render_fault(request, error.error, error.description)
    pending = await fetch(app_grants.read_authorization, client, parameters, visit.user.role, settings)
    if isinstance(pending, AuthorizationFault):
        return _render_fault(request, pending.error, pending.description, _return_url(client, parameters, pending))
    if await fetch(app_grants.count_apps, visit.user.id) >= app_grants.MAX_APPS_PER_USER:
        return _render_fault(request, "too_many", "")
    role = await fetch(role_labels.describe_role, visit.user.role)
    return _render_consent(request, visit, pending, role)


@pages.post(oauth.AUTHORIZATION_PATH)
@signed_in(access.SELF_SCOPE)
@ignore_double_submit
async def answer_consent(request: Request, visit: Visit) -> HTTPResponse:
    """Send the browser back to the app: with a code if the user allows the access, else with `access_denied`.

    The rights are limited by the role that the user has now. Everything else comes from the sealed request.
    """
    form = Form.from_request(request)
    pending = app_grants.open_request(form["request"], visit.session.id, visit.account_id)
    if pending is None or not app_grants.is_available(config.current()):
        return _render_fault(request, "expired", "")
    if form["answer"] != "allow":
        return view.redirect(request, _build_return(pending.redirect_uri, pending.state, {"error": "access_denied"}))
    scopes = await fetch(app_grants.limit_scopes, set(pending.scopes), visit.user.role)
    if form["access"] != "draft":
        scopes = [scope for scope in scopes if scope.endswith(":read")]
    if not scopes:
        return _render_fault(request, "invalid_scope", "")
    code = await commit(app_grants.issue_code, visit.user, pending, scopes)
    return view.redirect(request, _build_return(pending.redirect_uri, pending.state, {"code": code}))


def _read_parameters(request: Request) -> dict[str, str] | None:
    """Return the parameters of the query; None if one is repeated, or if there are too many."""
    try:
        pairs = parse_qsl(request.query_string, max_num_fields=_MAX_PARAMETERS, errors="strict")
    except ValueError:
        return None
    parameters = dict(pairs)
    return parameters if len(parameters) == len(pairs) else None


def _build_return(redirect_uri: str, state: str | None, answer: dict[str, str]) -> str:
    """Return the redirect URI with an answer, the state of the request and the issuer (RFC 9207) in its query."""
    values = {**answer, **({"state": state} if state is not None else {}), "iss": app_grants.issuer(config.current())}
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{urlencode(values, quote_via=quote)}"


def _return_url(client: Client, parameters: dict[str, str], fault: AuthorizationFault) -> str:
    """Return the URL that tells the app of a fault, or "" if it must not be told."""
    redirect_uri = parameters.get("redirect_uri") or client.redirect_uris[0]
    if not fault.is_returnable or not app_clients.allows_redirect(client, redirect_uri):
        return ""
    answer = {"error": fault.error, "error_description": fault.description}
    return _build_return(redirect_uri, parameters.get("state"), answer)


def _render_consent(request: Request, visit: Visit, pending: AuthorizationRequest, role: str) -> HTTPResponse:
    response = view.render_whole(
        request, "login/authorize.html", 200, pending=pending,
        sealed=app_grants.seal_request(pending, visit.session.id, visit.account_id),
        redirect_host=app_clients.describe_redirect(pending.redirect_uri), rights=describe_rights(pending.scopes),
        reads=describe_rights(scope for scope in pending.scopes if scope.endswith(":read")),
        never=_NEVER, can_draft=any(scope.endswith(":write") for scope in pending.scopes),
        role=role,
    )  # fmt: skip
    # Browsers check a redirect of a form against `form-action`, too, so the app's address is allowed on this page only.
    policy = guard.PAGE_POLICY.replace("form-action 'self'", f"form-action 'self' {_form_target(pending.redirect_uri)}")
    response.headers["content-security-policy"] = policy
    return response


def _form_target(redirect_uri: str) -> str:
    """Return the source expression of a redirect URI; a policy has none for an IPv6 address, so only the scheme."""
    parts = urlsplit(redirect_uri)
    return f"{parts.scheme}:" if "[" in parts.netloc else f"{parts.scheme}://{parts.netloc}"


def _render_fault(request: Request, fault: str, detail: str, return_url: str = "") -> HTTPResponse:
    return view.render_whole(
        request, "login/authorize_fault.html", 400, text=gettext(_FAULTS.get(fault, _OTHER_FAULT)), detail=detail,
        return_url=return_url, return_host=urlsplit(return_url).netloc,
    )  # fmt: skip


@pages.get("/settings/apps")
@signed_in()
async def show_apps(request: Request, visit: Visit) -> HTTPResponse:
    """Show the connected apps of the user; owners and admins see those of the whole team."""
    owner_id = _owner_filter(visit)
    settings = config.current()
    return view.render(
        request, "settings/apps.html", apps=await fetch(app_grants.list_apps, visit.account_id, owner_id),
        last_used=access.last_used_at, describe=lambda key: describe_rights(key.scope.split(",")),
        shows_users=owner_id is None, server_url=app_grants.list_resources(settings)[0],
        is_available=app_grants.is_available(settings),
    )  # fmt: skip


@pages.post("/settings/apps/<app_id:int>/disconnect")
@signed_in(access.SELF_SCOPE)
async def disconnect_app(request: Request, visit: Visit, app_id: int) -> HTTPResponse:
    """Disconnect an app of the user; owners and admins may disconnect those of the whole team."""
    name = await commit(app_grants.disconnect, visit.account_id, _owner_filter(visit), app_id, visit.actor)
    view.flash(request, gettext("“%(name)s” is disconnected.", name=name))
    return view.redirect(request, "/settings/apps")


def _owner_filter(visit: Visit) -> int | None:
    """Return the id of the user whose apps the page is about, or None for those of the whole team."""
    return None if visit.can(access.ADMIN_SCOPE) else visit.user.id
