"""Groups of contacts by membership.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Lists:
    """Groups of contacts by membership."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListListsQuery]) -> Paginator[types.ContactList]:
        """List contact lists, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/lists", query)

    def create(self, /, **body: Unpack[types.ListCreate]) -> types.ContactList:
        """Create a list.

        Scope: `contacts:write`.
        """
        result: types.ContactList = self._transport.call("POST", "/v1/my/lists", body=body)
        return result

    def get(self, id: int) -> types.ContactList:
        """Get a list.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.ContactList = self._transport.call("GET", f"/v1/my/lists/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.ListPatch]) -> types.ContactList:
        """Update a list; `contact_ids` replaces its members.

        Scope: `contacts:write`.
        """
        result: types.ContactList = self._transport.call("PATCH", f"/v1/my/lists/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.ContactList:
        """Delete a list; its contacts are kept.

        Scope: `contacts:write`.
        """
        result: types.ContactList = self._transport.call("DELETE", f"/v1/my/lists/{id:d}")
        return result

    def change_members(self, id: int, /, **body: Unpack[types.BulkWrite]) -> types.BulkDone:
        """Add and remove many contacts by id or email address.

        Scope: `contacts:write`.
        """
        result: types.BulkDone = self._transport.call("POST", f"/v1/my/lists/{id:d}/contacts/bulk", body=body)
        return result


class AsyncLists:
    """Groups of contacts by membership."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListListsQuery]) -> AsyncPaginator[types.ContactList]:
        """List contact lists, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/lists", query)

    async def create(self, /, **body: Unpack[types.ListCreate]) -> types.ContactList:
        """Create a list.

        Scope: `contacts:write`.
        """
        result: types.ContactList = await self._transport.call("POST", "/v1/my/lists", body=body)
        return result

    async def get(self, id: int) -> types.ContactList:
        """Get a list.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.ContactList = await self._transport.call("GET", f"/v1/my/lists/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.ListPatch]) -> types.ContactList:
        """Update a list; `contact_ids` replaces its members.

        Scope: `contacts:write`.
        """
        result: types.ContactList = await self._transport.call("PATCH", f"/v1/my/lists/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.ContactList:
        """Delete a list; its contacts are kept.

        Scope: `contacts:write`.
        """
        result: types.ContactList = await self._transport.call("DELETE", f"/v1/my/lists/{id:d}")
        return result

    async def change_members(self, id: int, /, **body: Unpack[types.BulkWrite]) -> types.BulkDone:
        """Add and remove many contacts by id or email address.

        Scope: `contacts:write`.
        """
        result: types.BulkDone = await self._transport.call("POST", f"/v1/my/lists/{id:d}/contacts/bulk", body=body)
        return result
