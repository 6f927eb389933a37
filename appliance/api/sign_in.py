"""Endpoints of sign-in with OpenID Connect: the providers of the account, passwords, and the user's own identities."""

from typing import Annotated, cast

from msgspec import Meta, Struct

from appliance.accounts.access import ADMIN_SCOPE, SELF_SCOPE
from appliance.accounts.accounts import get as get_account
from appliance.accounts.oidc import identities, providers
from appliance.accounts.oidc.providers import JoinRole, ProviderPatch, ProviderWrite
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Moment
from appliance.core.clock import iso
from appliance.core.validation import PageQuery
from appliance.storage import models
from appliance.storage.transactions import commit, fetch


class SignInProvider(Struct):
    """An OpenID Connect provider that people of the account sign in with; its client secret is never returned."""

    id: int
    account_id: int
    name: Annotated[str, Meta(description="name of the provider, as the button on the sign-in page shows it")]
    issuer: Annotated[str, Meta(description="issuer of the provider; it cannot be changed")]
    client_id: Annotated[str, Meta(description="client ID that the provider has given")]
    has_client_secret: Annotated[bool, Meta(description="whether a client secret is stored")]
    domains: Annotated[
        list[str], Meta(description="domains of verified addresses whose owners may join without an invitation")
    ]
    role: JoinRole
    trust_mfa: Annotated[
        bool, Meta(description="whether a second factor of the provider replaces the code of the user")
    ]
    enabled: Annotated[bool, Meta(description="whether people can sign in with the provider")]
    redirect_uri: Annotated[str, Meta(description="redirect URI to register at the provider")]
    sign_in_url: Annotated[str, Meta(description="URL that begins a sign-in with the provider")]
    created_at: Moment
    updated_at: Moment


class SignInProviderTest(Struct):
    """The result of a test of a provider."""

    ok: Annotated[bool, Meta(description="whether endpoints, keys, client ID and secret are right")]
    error: Annotated[str, Meta(description="what is wrong; null if nothing is")] | None


class SignInSettings(Struct):
    """How people of the account may sign in."""

    password: Annotated[bool, Meta(description="whether a password is enough to sign in")]


class Identity(Struct):
    """An account at a provider that is linked to the signed-in user."""

    id: int
    provider_id: Annotated[int, Meta(description="id of the provider")]
    provider: Annotated[str, Meta(description="name of the provider")]
    email: Annotated[str, Meta(description="address that the provider named last; empty if it named none")]
    last_used_at: Annotated[Moment, Meta(description="when the user last signed in with it; null for never")] | None
    created_at: Annotated[Moment, Meta(description="when it was linked")]


ROUTES = Routes()
_PATH = "/sign_in_providers/{id}"


def _serialize(row: models.SignInProvider) -> SignInProvider:
    return SignInProvider(
        row.id, row.account_id, row.name, row.issuer, row.client_id, row.client_secret is not None, row.domains,
        cast(JoinRole, row.role), row.trust_mfa, row.enabled, providers.redirect_uri(row), providers.sign_in_url(row),
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


@ROUTES.add("GET", "/sign_in_providers", scope=ADMIN_SCOPE, query_type=PageQuery, response_type=SignInProvider,
            returns_list=True)  # fmt: skip
async def list_sign_in_providers(request: ApiRequest) -> ApiResponse:
    """List OpenID Connect providers, newest first."""
    page = await fetch(providers.fetch_page, request.account_id, request.query)
    return ApiResponse([_serialize(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("POST", "/sign_in_providers", scope=ADMIN_SCOPE, body_type=ProviderWrite, response_type=SignInProvider,
            status=201, validate=validator(providers.validate))  # fmt: skip
async def create_sign_in_provider(request: ApiRequest) -> ApiResponse:
    """Add an OpenID Connect provider. Register its `redirect_uri` at the provider."""
    return ApiResponse(_serialize(await commit(providers.create, request.caller, request.body)))


@ROUTES.add("GET", _PATH, scope=ADMIN_SCOPE, response_type=SignInProvider)
async def get_sign_in_provider(request: ApiRequest) -> ApiResponse:
    """Get an OpenID Connect provider."""
    return ApiResponse(_serialize(await fetch(providers.get, request.account_id, request.id)))


@ROUTES.add("PATCH", _PATH, scope=ADMIN_SCOPE, body_type=ProviderPatch, response_type=SignInProvider,
            validate=validator(providers.validate))  # fmt: skip
async def update_sign_in_provider(request: ApiRequest) -> ApiResponse:
    """Update an OpenID Connect provider. `enabled: false` signs out everyone who signed in with it."""
    return ApiResponse(_serialize(await commit(providers.update, request.caller, request.id, request.body)))


@ROUTES.add("DELETE", _PATH, scope=ADMIN_SCOPE, response_type=SignInProvider)
async def delete_sign_in_provider(request: ApiRequest) -> ApiResponse:
    """Delete an OpenID Connect provider with its linked identities and the sessions that began with it."""
    return ApiResponse(_serialize(await commit(providers.delete, request.caller, request.id)))


@ROUTES.add("POST", f"{_PATH}/test", scope=ADMIN_SCOPE, response_type=SignInProviderTest)
async def test_sign_in_provider(request: ApiRequest) -> ApiResponse:
    """Test an OpenID Connect provider: its discovery document, its keys, and the client ID and secret."""
    fault = await providers.find_fault(await fetch(providers.get, request.account_id, request.id))
    return ApiResponse(SignInProviderTest(fault is None, fault))


@ROUTES.add("GET", "/sign_in", scope=ADMIN_SCOPE, response_type=SignInSettings)
async def get_sign_in_settings(request: ApiRequest) -> ApiResponse:
    """Get how people of the account may sign in."""
    return ApiResponse(SignInSettings((await fetch(get_account, request.account_id)).password_sign_in))


class SignInPatch(Struct):
    """A change of how people of the account may sign in."""

    password: Annotated[
        bool,
        Meta(
            description="false: a password alone is not enough; only owners may change it, after an owner has signed "
            "in with a provider"
        ),
    ]


def _validate_sign_in(account_id: int, body: SignInPatch, _: int | None = None) -> None:
    if isinstance(body.password, bool):
        providers.validate_password_sign_in(account_id, body.password)


@ROUTES.add("PATCH", "/sign_in", scope=ADMIN_SCOPE, body_type=SignInPatch, response_type=SignInSettings,
            validate=validator(_validate_sign_in))  # fmt: skip
async def update_sign_in_settings(request: ApiRequest) -> ApiResponse:
    """Update how people of the account may sign in. Only owners may."""
    await commit(providers.set_password_sign_in, request.caller, request.body.password)
    return ApiResponse(SignInSettings(request.body.password))


def _serialize_identity(row: models.Identity) -> Identity:
    return Identity(
        row.id, row.provider_id, row.provider.name, row.email, iso(row.last_used_at), str(iso(row.created_at))
    )  # fmt: skip


def _get_own_id(request: ApiRequest) -> int:
    """Return the id of the signed-in user; no API key has the scope `SELF_SCOPE`."""
    assert request.credential.user_id is not None
    return request.credential.user_id


@ROUTES.add("GET", "/user/identities", scope=SELF_SCOPE, query_type=PageQuery, response_type=Identity,
            returns_list=True)  # fmt: skip
async def list_own_identities(request: ApiRequest) -> ApiResponse:
    """List identities at providers that are linked to the signed-in user, newest first."""
    page = await fetch(identities.fetch_page, _get_own_id(request), request.query)
    return ApiResponse([_serialize_identity(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("DELETE", "/user/identities/{id}", scope=SELF_SCOPE, response_type=Identity)
async def unlink_own_identity(request: ApiRequest) -> ApiResponse:
    """Unlink an identity of the signed-in user. The sessions that began with it end."""
    return ApiResponse(
        _serialize_identity(await commit(identities.unlink, _get_own_id(request), request.id, request.caller))
    )
