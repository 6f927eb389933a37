"""Users of the account, for its owner and admins.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Users:
    """Users of the account, for its owner and admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListUsersQuery]) -> Paginator[types.User]:
        """List users, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/users", query)

    def create(self, /, **body: Unpack[types.UserWrite]) -> types.UserWithPassword:
        """Create a user. Without `password`, a password is generated and shown once.

        The email address must be unique in the whole installation. Only for a signed-in owner or admin: no API
        key has access.
        """
        result: types.UserWithPassword = self._transport.call("POST", "/v1/my/users", body=body)
        return result

    def get(self, id: int) -> types.User:
        """Get a user.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.User = self._transport.call("GET", f"/v1/my/users/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.UserPatch]) -> types.User:
        """Update a user. `disabled`, a new password or removing the second factor ends all sessions of the user.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.User = self._transport.call("PATCH", f"/v1/my/users/{id:d}", body=body)
        return result

    def disable(self, id: int) -> types.User:
        """Disable a user. The user is kept for the audit log and can be enabled again.

        API keys that the user created keep working; `created_by` of `/api_keys` shows which those are. Only for
        a signed-in owner or admin: no API key has access.
        """
        result: types.User = self._transport.call("DELETE", f"/v1/my/users/{id:d}")
        return result


class AsyncUsers:
    """Users of the account, for its owner and admins."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListUsersQuery]) -> AsyncPaginator[types.User]:
        """List users, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/users", query)

    async def create(self, /, **body: Unpack[types.UserWrite]) -> types.UserWithPassword:
        """Create a user. Without `password`, a password is generated and shown once.

        The email address must be unique in the whole installation. Only for a signed-in owner or admin: no API
        key has access.
        """
        result: types.UserWithPassword = await self._transport.call("POST", "/v1/my/users", body=body)
        return result

    async def get(self, id: int) -> types.User:
        """Get a user.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.User = await self._transport.call("GET", f"/v1/my/users/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.UserPatch]) -> types.User:
        """Update a user. `disabled`, a new password or removing the second factor ends all sessions of the user.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.User = await self._transport.call("PATCH", f"/v1/my/users/{id:d}", body=body)
        return result

    async def disable(self, id: int) -> types.User:
        """Disable a user. The user is kept for the audit log and can be enabled again.

        API keys that the user created keep working; `created_by` of `/api_keys` shows which those are. Only for
        a signed-in owner or admin: no API key has access.
        """
        result: types.User = await self._transport.call("DELETE", f"/v1/my/users/{id:d}")
        return result
