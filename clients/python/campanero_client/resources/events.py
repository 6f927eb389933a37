"""Events recorded by the service or by clients.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Events:
    """Events recorded by the service or by clients."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListEventsQuery]) -> Paginator[types.RecordedEvent]:
        """List events, newest first.

        Scope: `events:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/events", query)

    def create(self, /, **body: Unpack[types.EventWrite]) -> types.RecordedEvent:
        """Record an event; a repeated idempotency key returns the first event.

        Scope: `events:write`.
        """
        result: types.RecordedEvent = self._transport.call("POST", "/v1/my/events", body=body)
        return result

    def create_batch(self, /, **body: Unpack[types.EventBatch]) -> types.EventBatchResult:
        """Record up to 1,000 events; invalid events are reported by index and do not affect the valid events.

        Scope: `events:write`.
        """
        result: types.EventBatchResult = self._transport.call("POST", "/v1/my/events/batch", body=body)
        return result

    def get(self, id: int) -> types.RecordedEvent:
        """Get an event.

        Scope: `events:read`. Open to agents.
        """
        result: types.RecordedEvent = self._transport.call("GET", f"/v1/my/events/{id:d}")
        return result


class AsyncEvents:
    """Events recorded by the service or by clients."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListEventsQuery]) -> AsyncPaginator[types.RecordedEvent]:
        """List events, newest first.

        Scope: `events:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/events", query)

    async def create(self, /, **body: Unpack[types.EventWrite]) -> types.RecordedEvent:
        """Record an event; a repeated idempotency key returns the first event.

        Scope: `events:write`.
        """
        result: types.RecordedEvent = await self._transport.call("POST", "/v1/my/events", body=body)
        return result

    async def create_batch(self, /, **body: Unpack[types.EventBatch]) -> types.EventBatchResult:
        """Record up to 1,000 events; invalid events are reported by index and do not affect the valid events.

        Scope: `events:write`.
        """
        result: types.EventBatchResult = await self._transport.call("POST", "/v1/my/events/batch", body=body)
        return result

    async def get(self, id: int) -> types.RecordedEvent:
        """Get an event.

        Scope: `events:read`. Open to agents.
        """
        result: types.RecordedEvent = await self._transport.call("GET", f"/v1/my/events/{id:d}")
        return result
