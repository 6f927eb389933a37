"""The signed-in user: name, password, second factor, sessions, identities at providers.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class User:
    """The signed-in user: name, password, second factor, sessions, identities at providers."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> types.User:
        """Get the signed-in user.

        Only for a signed-in user: no API key has access.
        """
        result: types.User = self._transport.call("GET", "/v1/my/user")
        return result

    def update(self, /, **body: Unpack[types.CurrentUserPatch]) -> types.User:
        """Update the signed-in user. A new password ends all sessions, including the current one.

        Only for a signed-in user: no API key has access.
        """
        result: types.User = self._transport.call("PATCH", "/v1/my/user", body=body)
        return result

    def list_sessions(self, /, **query: Unpack[types.ListOwnSessionsQuery]) -> Paginator[types.UserSession]:
        """List sessions of the signed-in user, newest first.

        Only for a signed-in user: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/user/sessions", query)

    def rename_session(self, id: int, /, **body: Unpack[types.UserSessionPatch]) -> types.UserSession:
        """Name the device of a session of the signed-in user.

        Only for a signed-in user: no API key has access.
        """
        result: types.UserSession = self._transport.call("PATCH", f"/v1/my/user/sessions/{id:d}", body=body)
        return result

    def end_session(self, id: int) -> types.UserSession:
        """End a session of the signed-in user. Its cookie or token becomes invalid.

        Only for a signed-in user: no API key has access.
        """
        result: types.UserSession = self._transport.call("DELETE", f"/v1/my/user/sessions/{id:d}")
        return result

    def list_passkeys(self, /, **query: Unpack[types.ListOwnPasskeysQuery]) -> Paginator[types.Passkey]:
        """List passkeys of the signed-in user, newest first. They are added on the profile page.

        Only for a signed-in user: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/user/passkeys", query)

    def rename_passkey(self, id: int, /, **body: Unpack[types.PasskeyPatch]) -> types.Passkey:
        """Rename a passkey of the signed-in user.

        Only for a signed-in user: no API key has access.
        """
        result: types.Passkey = self._transport.call("PATCH", f"/v1/my/user/passkeys/{id:d}", body=body)
        return result

    def remove_passkey(self, id: int, /, **body: Unpack[types.PasskeyRemoval]) -> types.Passkey:
        """Remove a passkey of the signed-in user. All other sessions end, because it may have begun some of them.

        Only for a signed-in user: no API key has access.
        """
        result: types.Passkey = self._transport.call("DELETE", f"/v1/my/user/passkeys/{id:d}", body=body)
        return result

    def list_identities(self, /, **query: Unpack[types.ListOwnIdentitiesQuery]) -> Paginator[types.Identity]:
        """List identities at providers that are linked to the signed-in user, newest first.

        Only for a signed-in user: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/user/identities", query)

    def unlink_identity(self, id: int) -> types.Identity:
        """Unlink an identity of the signed-in user. The sessions that began with it end.

        Only for a signed-in user: no API key has access.
        """
        result: types.Identity = self._transport.call("DELETE", f"/v1/my/user/identities/{id:d}")
        return result


class AsyncUser:
    """The signed-in user: name, password, second factor, sessions, identities at providers."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> types.User:
        """Get the signed-in user.

        Only for a signed-in user: no API key has access.
        """
        result: types.User = await self._transport.call("GET", "/v1/my/user")
        return result

    async def update(self, /, **body: Unpack[types.CurrentUserPatch]) -> types.User:
        """Update the signed-in user. A new password ends all sessions, including the current one.

        Only for a signed-in user: no API key has access.
        """
        result: types.User = await self._transport.call("PATCH", "/v1/my/user", body=body)
        return result

    def list_sessions(self, /, **query: Unpack[types.ListOwnSessionsQuery]) -> AsyncPaginator[types.UserSession]:
        """List sessions of the signed-in user, newest first.

        Only for a signed-in user: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/user/sessions", query)

    async def rename_session(self, id: int, /, **body: Unpack[types.UserSessionPatch]) -> types.UserSession:
        """Name the device of a session of the signed-in user.

        Only for a signed-in user: no API key has access.
        """
        result: types.UserSession = await self._transport.call("PATCH", f"/v1/my/user/sessions/{id:d}", body=body)
        return result

    async def end_session(self, id: int) -> types.UserSession:
        """End a session of the signed-in user. Its cookie or token becomes invalid.

        Only for a signed-in user: no API key has access.
        """
        result: types.UserSession = await self._transport.call("DELETE", f"/v1/my/user/sessions/{id:d}")
        return result

    def list_passkeys(self, /, **query: Unpack[types.ListOwnPasskeysQuery]) -> AsyncPaginator[types.Passkey]:
        """List passkeys of the signed-in user, newest first. They are added on the profile page.

        Only for a signed-in user: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/user/passkeys", query)

    async def rename_passkey(self, id: int, /, **body: Unpack[types.PasskeyPatch]) -> types.Passkey:
        """Rename a passkey of the signed-in user.

        Only for a signed-in user: no API key has access.
        """
        result: types.Passkey = await self._transport.call("PATCH", f"/v1/my/user/passkeys/{id:d}", body=body)
        return result

    async def remove_passkey(self, id: int, /, **body: Unpack[types.PasskeyRemoval]) -> types.Passkey:
        """Remove a passkey of the signed-in user. All other sessions end, because it may have begun some of them.

        Only for a signed-in user: no API key has access.
        """
        result: types.Passkey = await self._transport.call("DELETE", f"/v1/my/user/passkeys/{id:d}", body=body)
        return result

    def list_identities(self, /, **query: Unpack[types.ListOwnIdentitiesQuery]) -> AsyncPaginator[types.Identity]:
        """List identities at providers that are linked to the signed-in user, newest first.

        Only for a signed-in user: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/user/identities", query)

    async def unlink_identity(self, id: int) -> types.Identity:
        """Unlink an identity of the signed-in user. The sessions that began with it end.

        Only for a signed-in user: no API key has access.
        """
        result: types.Identity = await self._transport.call("DELETE", f"/v1/my/user/identities/{id:d}")
        return result
