"""The accounts of OpenID Connect providers that the signed-in user has linked: link one, and unlink it."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, login, sessions
from appliance.accounts.oidc import flow, identities, providers
from appliance.accounts.oidc.metadata import ProviderError
from appliance.core import clock, errors
from appliance.core.i18n import gettext
from appliance.storage.models import SignInProvider
from appliance.storage.transactions import commit, fetch
from ui import session, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_identities", url_prefix="/settings/you/identities")
# A user who signed in with a provider may have no password; then a recent sign-in is required instead.
_RECENT_MS = 15 * 60 * 1000


async def load_identities(visit: Visit) -> dict[str, Any]:
    """Return the values of `settings/_identities.html`: the linked identities, and the providers without one."""
    linked = await fetch(identities.list_by_user, visit.user.id)
    taken = {identity.provider_id for identity in linked}
    offered = [row for row in await fetch(providers.list_for_user, visit.user.id) if row.id not in taken]
    return {"identities": linked, "linkable": offered}


async def _find_provider(visit: Visit, key: str) -> SignInProvider:
    """Return a provider that may sign in the user; raises NotFound."""
    provider = await fetch(providers.find, key)
    if not await fetch(providers.may_sign_in, provider, visit.user.id):
        raise errors.NotFound
    return provider


@pages.get("/<key:str>")
@signed_in(access.SELF_SCOPE)
async def show_link(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """Ask for the password before an account is linked."""
    provider = await _find_provider(visit, key)
    return _render(request, provider, Form(), await fetch(_needs_password, visit, provider))


@pages.post("/<key:str>")
@signed_in(access.SELF_SCOPE)
async def begin_link(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """Check the password, and show the link to the provider.

    It is a link and no redirect, because the policy of the pages lets forms lead to this service only.
    """
    provider, form = await _find_provider(visit, key), Form.from_request(request)
    needs_password = await fetch(_needs_password, visit, provider)
    if needs_password:
        if not form.raw("password"):
            form.add_error("password", gettext("Enter your current password."))
        elif await login.find_wrong_proofs(visit.user, form.raw("password"), None, request.ctx.client):
            form.add_error("password", gettext("This is not your current password."))
    elif not _is_recent(visit):
        form.add_error("base", gettext("Your sign-in is too long ago. Sign out, sign in again, and come back."))
    if form.errors:
        return _render(request, provider, form, needs_password, 422)
    try:
        begun = await flow.begin(provider, "/settings/you", visit.user.id, visit.session.id)
    except ProviderError as error:
        form.add_error("base", error.words)
        return _render(request, provider, form, needs_password, 422)
    response = _render(request, provider, form, needs_password, continue_url=begun.url)
    session.set_oidc_cookie(request, response, session.OIDC_REQUEST, begun.cookie)
    return response


def _needs_password(visit: Visit, provider: SignInProvider) -> bool:
    """Return whether the user must enter the password before an identity at a provider is linked.

    It is not required if the session began with an identity that may open the provider's account. Otherwise a person
    who manages the provider of one account could link an own identity, at another account's provider, to its users.
    """
    identity = visit.session.identity
    return identity is None or not sessions.may_open(provider.account, visit.session.method, identity)


def _is_recent(visit: Visit) -> bool:
    return clock.now_ms() - int(visit.session.created_at) < _RECENT_MS


@pages.post("/<identity_id:int>/unlink")
@signed_in(access.SELF_SCOPE)
async def unlink(request: Request, visit: Visit, identity_id: int) -> HTTPResponse:
    """Unlink an account; the sessions that began with it end, also this one."""
    removed = await commit(identities.unlink, visit.user.id, identity_id, visit.actor)
    view.flash(request, gettext("%(name)s unlinked.", name=removed.provider.name))
    return view.redirect(request, "/settings/you")


def _render(
    request: Request, provider: SignInProvider, form: Form, needs_password: bool, status: int = 200, *,
    continue_url: str = "",
) -> HTTPResponse:  # fmt: skip
    return view.render(
        request, "settings/identity.html", status, form=form, provider=provider, continue_url=continue_url,
        needs_password=needs_password,
    )  # fmt: skip
