"""Sign-in with an OpenID Connect provider: to the provider, back from it, and the password or code that is missing."""

import asyncio
import logging

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import login, request_limits, sessions, users
from appliance.accounts.oidc import flow, identities, providers
from appliance.accounts.oidc.flow import Begun, Pending
from appliance.accounts.oidc.identities import SignedIn
from appliance.accounts.oidc.metadata import ProviderError
from appliance.accounts.oidc.tokens import Claims
from appliance.accounts.passkeys import PasskeyRefused
from appliance.accounts.users import NewUser
from appliance.core import clock, errors, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.settings import config
from appliance.storage.models import SignInProvider, User
from appliance.storage.transactions import commit, fetch
from ui import session, view
from ui.forms import Form, safe_path
from ui.guard import public_page
from ui.pages.login import (
    add_second_factors,
    find_invitation,
    list_providers,
    render_invitation,
    render_login,
    use_passkey,
)
from ui.session import Pages

pages = Pages("ui_sign_in", url_prefix=providers.LOGIN_PATH)
log = logging.getLogger("campanero")
_TOO_LATE = gettext_noop("That took too long. Sign in again.")


@pages.get("/<key:str>")
@public_page
async def begin(request: Request, key: str) -> HTTPResponse:
    """Redirect the browser to a provider."""
    provider, where = await fetch(providers.find, key), safe_path(request.args.get("next"))
    if await session.load_visit(request):
        return view.redirect(request, where)
    with request_limits.limit_attempt(_limit_key(request)) as attempt:
        try:
            begun = await flow.begin(provider, where)
        except ProviderError as error:
            attempt.fail()
            return await _render_error(request, provider, error.words)
    response = HTTPResponse("", 303, {"location": begun.url})
    session.set_oidc_cookie(request, response, session.OIDC_REQUEST, begun.cookie)
    return response


@pages.get("/<key:str>/invitation/<invitation_id:int>/<token:str>")
@public_page
async def begin_acceptance(request: Request, key: str, invitation_id: int, token: str) -> HTTPResponse:
    """Redirect an invited person without a user to a provider of the account."""
    provider = await fetch(providers.find, key)
    invitation = await find_invitation(invitation_id, token)
    path = f"/invitations/{invitation_id}/{token}"
    if invitation is None or provider not in await fetch(list_providers, invitation):
        return view.redirect(request, path)
    with request_limits.limit_attempt(_limit_key(request)) as attempt:
        try:
            begun = await flow.begin(provider, path, invitation=(invitation_id, token))
        except ProviderError as error:
            attempt.fail()
            return await _render_refused_acceptance(request, provider, (invitation_id, token), error.words)
    response = HTTPResponse("", 303, {"location": begun.url})
    session.set_oidc_cookie(request, response, session.OIDC_REQUEST, begun.cookie)
    return response


async def _render_refused_acceptance(
    request: Request, provider: SignInProvider, invitation: tuple[int, str], words: str
) -> HTTPResponse:  # fmt: skip
    row = await find_invitation(*invitation)
    form = Form({"language": i18n.get_language()})
    form.add_error("base", gettext("%(name)s: %(words)s", name=provider.name, words=words))
    path = f"/invitations/{invitation[0]}/{invitation[1]}"
    return await render_invitation(request, row, form, 422 if row is not None else 410, path)


def _limit_key(request: Request) -> str:
    return f"oidc:{request_limits.client_key(request.ctx.client)}"


@pages.get("/<key:str>/callback")
@public_page
async def finish(request: Request, key: str) -> HTTPResponse:
    """Sign in the person who comes back from a provider, or link the identity that a signed-in user asked for."""
    provider = await fetch(providers.find, key)
    begun = flow.unseal(session.read_oidc_cookie(request, session.OIDC_REQUEST), Begun, key)
    parameters = {name: values[0] for name, values in request.args.items()}
    with request_limits.limit_attempt(_limit_key(request)) as attempt:
        try:
            claims = await flow.finish(provider, begun, parameters)
            assert begun is not None  # `flow.finish` raises otherwise
            response = await _enter(request, provider, begun, claims)
        except (ProviderError, login.InvalidCredentials) as error:
            attempt.fail()
            words = error.words if isinstance(error, ProviderError) else error.message
            log.info("login: sign-in with a provider failed provider=%s: %s", provider.id, words)
            login.record_provider_failure(provider.account_id, provider.id, request.ctx.client)
            if begun is not None and begun.invitation_id:
                link = begun.invitation_id, begun.invitation_token
                response = await _render_refused_acceptance(request, provider, link, words)
            else:
                response = await _render_error(request, provider, words)
    session.set_oidc_cookie(request, response, session.OIDC_REQUEST, "")
    return response


async def _enter(request: Request, provider: SignInProvider, begun: Begun, claims: Claims) -> HTTPResponse:
    """Link an identity, accept an invitation, or sign in, whichever the verified person began; return the response.

    A sign-in that needs a code or a password redirects to the form for it.
    """
    if begun.user_id:
        return await _link_to_visit(request, provider, begun, claims)
    if begun.invitation_id:
        return await _accept(request, provider, begun, claims)
    entry = await commit(identities.enter, provider, claims, request.ctx.client)
    if entry is None:
        entry = await _join(request, provider, claims)
    if entry is not None and not entry.needs_code:
        return await _sign_in(request, provider, entry.user, entry.identity_id, "oidc", begun.next)
    pending = Pending(provider.key, clock.now(), claims, begun.next, entry.identity_id if entry else 0)
    response = view.redirect(request, f"{providers.LOGIN_PATH}/{provider.key}/finish")
    session.set_oidc_cookie(request, response, session.OIDC_PERSON, flow.seal(pending))
    return response


async def _accept(request: Request, provider: SignInProvider, begun: Begun, claims: Claims) -> HTTPResponse:
    """Create the user of an invitation for the person who has its address, and sign the user in."""
    invitation = await find_invitation(begun.invitation_id, begun.invitation_token)
    if invitation is None:
        return await render_invitation(request, None, Form(), 410)
    new = await asyncio.to_thread(identities.prepare_acceptance, claims, invitation.email)
    if new is None:
        raise ProviderError(gettext("This account has another address, or one that was not verified."))
    link = begun.invitation_id, begun.invitation_token
    try:
        entry = await commit(_accept_invitation, provider, claims, *link, new, request.ctx.client)
    except errors.NotFound:
        return await render_invitation(request, None, Form(), 410)
    except errors.Invalid as error:
        raise ProviderError(next(iter(error.fields.values()))[0]) from None
    return await _sign_in(request, provider, entry.user, entry.identity_id, "oidc", "/")


def _accept_invitation(
    provider: SignInProvider, claims: Claims, invitation_id: int, token: str, new: NewUser, ip: str | None
) -> SignedIn:  # fmt: skip
    entry = identities.accept_invitation(provider, claims, invitation_id, token, new, ip)
    users.set_preference(entry.user.id, users.LANGUAGE_PREFERENCE, i18n.get_language())
    return entry


async def _join(request: Request, provider: SignInProvider, claims: Claims) -> SignedIn | None:
    new = await asyncio.to_thread(identities.prepare_join, provider, claims)
    return await commit(identities.join, provider, claims, new, request.ctx.client) if new is not None else None


async def _link_to_visit(request: Request, provider: SignInProvider, begun: Begun, claims: Claims) -> HTTPResponse:
    """Link an identity to the user who asked for it, if this user is still signed in with the same session."""
    visit = await session.load_visit(request)
    if visit is None or (visit.user.id, visit.session.id) != (begun.user_id, begun.session_id):
        raise ProviderError(gettext("You were signed out. Sign in, and link the account again."))
    request.ctx.visit = visit
    try:
        await commit(identities.link, provider, claims, visit.user, request.ctx.client)
    except errors.Invalid as error:
        view.flash(request, error.fields["base"][0])
    else:
        view.flash(request, gettext("%(name)s linked. You can sign in with it from now on.", name=provider.name))
    return view.redirect(request, begun.next)


async def _sign_in(
    request: Request, provider: SignInProvider, user: User, identity_id: int, method: sessions.Method, next_path: str
) -> HTTPResponse:  # fmt: skip
    response = view.redirect(request, safe_path(next_path))
    await session.sign_in(request, response, user, method, identity_id)
    session.set_oidc_cookie(request, response, session.OIDC_PERSON, "")
    if provider.account_id != sessions.FIRST_ACCOUNT:
        session.remember_provider(request, response, provider.key)
    return response


async def _render_error(request: Request, provider: SignInProvider, words: str) -> HTTPResponse:
    form = Form({"email": session.last_email(request)})
    form.add_error("base", gettext("%(name)s: %(words)s", name=provider.name, words=words))
    return await render_login(request, form, "/", 422)


@pages.get("/<key:str>/finish")
@public_page
async def show_missing(request: Request, key: str) -> HTTPResponse:
    """Ask for the code of the second factor, or for the password that links the identity to a user."""
    provider, pending = await _read_pending(request, key)
    if pending is None:
        return await _render_error(request, provider, gettext(_TOO_LATE))
    form = Form({"email": session.last_email(request)})
    if pending.identity_id:
        form.values["pass"] = await fetch(_create_code_token, provider, pending.identity_id)
    return await _render_missing(request, provider, pending, form)


def _create_code_token(provider: SignInProvider, identity_id: int) -> str:
    """Return a token for the second factor of the user of an identity; "" if it is no longer linked."""
    identity = identities.find_by_id(provider, identity_id)
    return login.create_code_token(identity.user, login.PROVIDER_FACTOR_PURPOSE) if identity is not None else ""


@pages.post("/<key:str>/finish")
@public_page
async def finish_missing(request: Request, key: str) -> HTTPResponse:
    """Check the code or password, link the identity if it is new, and sign in."""
    provider, pending = await _read_pending(request, key)
    if pending is None:
        return await _render_error(request, provider, gettext(_TOO_LATE))
    form = Form.from_request(request)
    try:
        user = await _authenticate(request, provider, pending, form)
        if user is None:
            return await _render_missing(request, provider, pending, form, 422)
        identity_id = pending.identity_id or await commit(_link, provider, pending.claims, user, request.ctx.client)
        method: sessions.Method = "oidc_second_factor" if form["pass"] else "oidc"
        return await _sign_in(request, provider, user, identity_id, method, pending.next)
    except login.CodeRequired as error:
        form.values["pass"] = error.token
        return await _render_missing(request, provider, pending, form)
    except login.InvalidCredentials as error:
        form.values["pass"] = ""
        form.add_error("base", error.message)
    except errors.Invalid as error:
        form.values["pass"] = ""
        form.add_error("base", error.fields["base"][0])
    return await _render_missing(request, provider, pending, form, 422)


async def _read_pending(request: Request, key: str) -> tuple[SignInProvider, Pending | None]:
    provider = await fetch(providers.find, key)
    return provider, flow.unseal(session.read_oidc_cookie(request, session.OIDC_PERSON), Pending, key)


async def _authenticate(request: Request, provider: SignInProvider, pending: Pending, form: Form) -> User | None:
    """Return the user whose password, code or passkey is right, or None with errors in the form.

    Raises CodeRequired if the password is right and a code is needed, InvalidCredentials, and RateLimitExceeded.
    """
    if not form["pass"] and not pending.identity_id:
        return await login.sign_in(form["email"], form.raw("password"), None, request.ctx.client, is_linking=True)
    # A token after a provider's sign-in is not valid as one after a password, and vice versa.
    purpose = login.PROVIDER_FACTOR_PURPOSE if pending.identity_id else login.SECOND_FACTOR_PURPOSE
    try:
        if form["pass"] and form["credential"]:
            user = await use_passkey(request, form, purpose)
        else:
            user = await login.sign_in_with_code(
                form["pass"], form["otp"], request.ctx.client, is_linking=True, purpose=purpose
            )
    except PasskeyRefused as error:
        form.add_error("base", error.message)
        return None
    except login.InvalidCredentials:
        form.add_error("otp", gettext("This code is wrong or has already been used. Wait for the next one."))
        return None
    if pending.identity_id and user is not None:
        # The token in the form could be that of another user, whose code is known.
        identity = await fetch(identities.find_by_id, provider, pending.identity_id)
        user = user if identity is not None and identity.user_id == user.id else None
    if user is None:
        form.values["pass"] = ""
        form.add_error("base", gettext(_TOO_LATE))
    return user


def _link(provider: SignInProvider, claims: Claims, user: User, ip: str | None) -> int:
    login.require_unchanged(user)
    return int(identities.link(provider, claims, user, ip).id)


async def _render_missing(
    request: Request, provider: SignInProvider, pending: Pending, form: Form, status: int = 200
) -> HTTPResponse:  # fmt: skip
    claims = pending.claims
    await add_second_factors(form)
    return view.render(
        request, "login/oidc.html", status, form=form, provider=provider, address=claims.email,
        needs_code=bool(pending.identity_id or form["pass"]), is_linked=bool(pending.identity_id),
        is_unverified=bool(claims.domain) and claims.domain in provider.domains and not claims.email_is_verified,
    )  # fmt: skip


@pages.get("/<key:str>/sign-out")
@public_page
async def sign_out(request: Request, key: str) -> HTTPResponse:
    """Redirect to the sign-out page of a provider, or to the sign-in page if the provider has none."""
    provider = await fetch(providers.find, key)
    url = await flow.sign_out_url(provider, f"{config.base_url(config.current())}/login")
    return HTTPResponse("", 303, {"location": url or "/login?bye=1"})
