"""Incoming SMS.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Incoming:
    """Incoming SMS."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListIncomingQuery]) -> Paginator[types.IncomingMessage]:
        """List incoming SMS, newest first, including those from unknown numbers.

        Scope: `messages:read`.
        """
        return Paginator(self._transport, "/v1/my/incoming", query)

    def get(self, id: int) -> types.IncomingMessage:
        """Get an incoming SMS.

        Scope: `messages:read`.
        """
        result: types.IncomingMessage = self._transport.call("GET", f"/v1/my/incoming/{id:d}")
        return result

    def mark_seen(self, id: int, /, **body: Unpack[types.OptOutReview]) -> types.IncomingMessage:
        """Mark an incoming SMS as reviewed, and opt its sender out if `opt_out` is true.

        Scope: `contacts:write`.
        """
        result: types.IncomingMessage = self._transport.call("POST", f"/v1/my/incoming/{id:d}/seen", body=body)
        return result


class AsyncIncoming:
    """Incoming SMS."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListIncomingQuery]) -> AsyncPaginator[types.IncomingMessage]:
        """List incoming SMS, newest first, including those from unknown numbers.

        Scope: `messages:read`.
        """
        return AsyncPaginator(self._transport, "/v1/my/incoming", query)

    async def get(self, id: int) -> types.IncomingMessage:
        """Get an incoming SMS.

        Scope: `messages:read`.
        """
        result: types.IncomingMessage = await self._transport.call("GET", f"/v1/my/incoming/{id:d}")
        return result

    async def mark_seen(self, id: int, /, **body: Unpack[types.OptOutReview]) -> types.IncomingMessage:
        """Mark an incoming SMS as reviewed, and opt its sender out if `opt_out` is true.

        Scope: `contacts:write`.
        """
        result: types.IncomingMessage = await self._transport.call("POST", f"/v1/my/incoming/{id:d}/seen", body=body)
        return result
