"""Roles of the account besides the built-in ones, for its owner and admins.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Roles:
    """Roles of the account besides the built-in ones, for its owner and admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListRolesQuery]) -> Paginator[types.Role]:
        """List the own roles of the account, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/roles", query)

    def create(self, /, **body: Unpack[types.RoleWrite]) -> types.Role:
        """Create a role. It never includes managing users, API keys and roles, which only owners and admins do.

        With masked contact data, or without `contacts:read`, a role can read, and write drafts of campaigns,
        templates and flows, but neither change or export contacts nor send. Only for a signed-in owner or admin:
        no API key has access.
        """
        result: types.Role = self._transport.call("POST", "/v1/my/roles", body=body)
        return result

    def get(self, id: int) -> types.Role:
        """Get a role.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Role = self._transport.call("GET", f"/v1/my/roles/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.RolePatch]) -> types.Role:
        """Update a role. The change applies at once to signed-in users, and to the apps that they connected.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Role = self._transport.call("PATCH", f"/v1/my/roles/{id:d}", body=body)
        return result

    def delete(self, id: int, /, **query: Unpack[types.DeleteRoleQuery]) -> types.Role:
        """Delete a role. A role in use needs a `replacement`, which its users and invitations get.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Role = self._transport.call("DELETE", f"/v1/my/roles/{id:d}", query=query)
        return result


class AsyncRoles:
    """Roles of the account besides the built-in ones, for its owner and admins."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListRolesQuery]) -> AsyncPaginator[types.Role]:
        """List the own roles of the account, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/roles", query)

    async def create(self, /, **body: Unpack[types.RoleWrite]) -> types.Role:
        """Create a role. It never includes managing users, API keys and roles, which only owners and admins do.

        With masked contact data, or without `contacts:read`, a role can read, and write drafts of campaigns,
        templates and flows, but neither change or export contacts nor send. Only for a signed-in owner or admin:
        no API key has access.
        """
        result: types.Role = await self._transport.call("POST", "/v1/my/roles", body=body)
        return result

    async def get(self, id: int) -> types.Role:
        """Get a role.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Role = await self._transport.call("GET", f"/v1/my/roles/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.RolePatch]) -> types.Role:
        """Update a role. The change applies at once to signed-in users, and to the apps that they connected.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Role = await self._transport.call("PATCH", f"/v1/my/roles/{id:d}", body=body)
        return result

    async def delete(self, id: int, /, **query: Unpack[types.DeleteRoleQuery]) -> types.Role:
        """Delete a role. A role in use needs a `replacement`, which its users and invitations get.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Role = await self._transport.call("DELETE", f"/v1/my/roles/{id:d}", query=query)
        return result
