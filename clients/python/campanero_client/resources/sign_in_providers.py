"""OpenID Connect providers of the account, for its owner and admins.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class SignInProviders:
    """OpenID Connect providers of the account, for its owner and admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListSignInProvidersQuery]) -> Paginator[types.SignInProvider]:
        """List OpenID Connect providers, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/sign_in_providers", query)

    def create(self, /, **body: Unpack[types.ProviderWrite]) -> types.SignInProvider:
        """Add an OpenID Connect provider. Register its `redirect_uri` at the provider.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = self._transport.call("POST", "/v1/my/sign_in_providers", body=body)
        return result

    def get(self, id: int) -> types.SignInProvider:
        """Get an OpenID Connect provider.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = self._transport.call("GET", f"/v1/my/sign_in_providers/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.ProviderPatch]) -> types.SignInProvider:
        """Update an OpenID Connect provider. `enabled: false` signs out everyone who signed in with it.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = self._transport.call("PATCH", f"/v1/my/sign_in_providers/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.SignInProvider:
        """Delete an OpenID Connect provider with its linked identities and the sessions that began with it.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = self._transport.call("DELETE", f"/v1/my/sign_in_providers/{id:d}")
        return result

    def test(self, id: int) -> types.SignInProviderTest:
        """Test an OpenID Connect provider: its discovery document, its keys, and the client ID and secret.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProviderTest = self._transport.call("POST", f"/v1/my/sign_in_providers/{id:d}/test")
        return result


class AsyncSignInProviders:
    """OpenID Connect providers of the account, for its owner and admins."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListSignInProvidersQuery]) -> AsyncPaginator[types.SignInProvider]:
        """List OpenID Connect providers, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/sign_in_providers", query)

    async def create(self, /, **body: Unpack[types.ProviderWrite]) -> types.SignInProvider:
        """Add an OpenID Connect provider. Register its `redirect_uri` at the provider.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = await self._transport.call("POST", "/v1/my/sign_in_providers", body=body)
        return result

    async def get(self, id: int) -> types.SignInProvider:
        """Get an OpenID Connect provider.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = await self._transport.call("GET", f"/v1/my/sign_in_providers/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.ProviderPatch]) -> types.SignInProvider:
        """Update an OpenID Connect provider. `enabled: false` signs out everyone who signed in with it.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = await self._transport.call(
            "PATCH", f"/v1/my/sign_in_providers/{id:d}", body=body
        )
        return result

    async def delete(self, id: int) -> types.SignInProvider:
        """Delete an OpenID Connect provider with its linked identities and the sessions that began with it.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProvider = await self._transport.call("DELETE", f"/v1/my/sign_in_providers/{id:d}")
        return result

    async def test(self, id: int) -> types.SignInProviderTest:
        """Test an OpenID Connect provider: its discovery document, its keys, and the client ID and secret.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInProviderTest = await self._transport.call("POST", f"/v1/my/sign_in_providers/{id:d}/test")
        return result
