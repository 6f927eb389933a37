"""Addresses to which the account sends nothing.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Suppressions:
    """Addresses to which the account sends nothing."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListSuppressionsQuery]) -> Paginator[types.Suppression]:
        """List suppressions, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/suppressions", query)

    def create(self, /, **body: Unpack[types.SuppressionWrite]) -> types.Suppression:
        """Suppress an address, or update its suppression for the same reason (then 200).

        Scope: `contacts:write`.
        """
        result: types.Suppression = self._transport.call("POST", "/v1/my/suppressions", body=body)
        return result

    def lift(self, id: int, /, **body: Unpack[types.Lift]) -> types.Suppression:
        """Lift a suppression; an optional `reason` is read from the body or query.

        Scope: `contacts:write`.
        """
        result: types.Suppression = self._transport.call("DELETE", f"/v1/my/suppressions/{id:d}", body=body)
        return result


class AsyncSuppressions:
    """Addresses to which the account sends nothing."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListSuppressionsQuery]) -> AsyncPaginator[types.Suppression]:
        """List suppressions, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/suppressions", query)

    async def create(self, /, **body: Unpack[types.SuppressionWrite]) -> types.Suppression:
        """Suppress an address, or update its suppression for the same reason (then 200).

        Scope: `contacts:write`.
        """
        result: types.Suppression = await self._transport.call("POST", "/v1/my/suppressions", body=body)
        return result

    async def lift(self, id: int, /, **body: Unpack[types.Lift]) -> types.Suppression:
        """Lift a suppression; an optional `reason` is read from the body or query.

        Scope: `contacts:write`.
        """
        result: types.Suppression = await self._transport.call("DELETE", f"/v1/my/suppressions/{id:d}", body=body)
        return result
