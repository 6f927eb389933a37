"""Groups of contacts defined by filters.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Segments:
    """Groups of contacts defined by filters."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListSegmentsQuery]) -> Paginator[types.Segment]:
        """List segments, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/segments", query)

    def create(self, /, **body: Unpack[types.SegmentCreate]) -> types.Segment:
        """Create a segment from filters or a starter; without both it contains all contacts.

        Filters on the data of events require `events:read` too. Scope: `contacts:write`. Scope of agents:
        `segments:write`.
        """
        result: types.Segment = self._transport.call("POST", "/v1/my/segments", body=body)
        return result

    def list_starters(self) -> types.SegmentStarters:
        """Get ready-made segments, such as the contacts that engaged in the last 30 days.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.SegmentStarters = self._transport.call("GET", "/v1/my/segments/starters")
        return result

    def describe_filters(self) -> types.FilterSpec:
        """Get the fields and predicates that filters support.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.FilterSpec = self._transport.call("GET", "/v1/my/segments/spec")
        return result

    def count_contacts(self, /, **body: Unpack[types.CountWrite]) -> types.ContactCount:
        """Count the contacts that match filters without saving the filters.

        Filters on the data of events require `events:read` too. Scope: `contacts:read`. Open to agents.
        """
        result: types.ContactCount = self._transport.call("POST", "/v1/my/segments/count", body=body)
        return result

    def get(self, id: int) -> types.Segment:
        """Get a segment.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.Segment = self._transport.call("GET", f"/v1/my/segments/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.SegmentPatch]) -> types.Segment:
        """Update a segment; `filters` replaces all filters.

        New filters on the data of events require `events:read` too. Scope: `contacts:write`. Scope of agents:
        `segments:write`.
        """
        result: types.Segment = self._transport.call("PATCH", f"/v1/my/segments/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.Segment:
        """Delete a segment that is not in use.

        Scope: `contacts:write`.
        """
        result: types.Segment = self._transport.call("DELETE", f"/v1/my/segments/{id:d}")
        return result

    def explain(self, id: int, /, **query: Unpack[types.ExplainSegmentQuery]) -> types.SegmentExplanation:
        """Explain filter by filter whether a contact is in a segment.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.SegmentExplanation = self._transport.call("GET", f"/v1/my/segments/{id:d}/explain", query=query)
        return result


class AsyncSegments:
    """Groups of contacts defined by filters."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListSegmentsQuery]) -> AsyncPaginator[types.Segment]:
        """List segments, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/segments", query)

    async def create(self, /, **body: Unpack[types.SegmentCreate]) -> types.Segment:
        """Create a segment from filters or a starter; without both it contains all contacts.

        Filters on the data of events require `events:read` too. Scope: `contacts:write`. Scope of agents:
        `segments:write`.
        """
        result: types.Segment = await self._transport.call("POST", "/v1/my/segments", body=body)
        return result

    async def list_starters(self) -> types.SegmentStarters:
        """Get ready-made segments, such as the contacts that engaged in the last 30 days.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.SegmentStarters = await self._transport.call("GET", "/v1/my/segments/starters")
        return result

    async def describe_filters(self) -> types.FilterSpec:
        """Get the fields and predicates that filters support.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.FilterSpec = await self._transport.call("GET", "/v1/my/segments/spec")
        return result

    async def count_contacts(self, /, **body: Unpack[types.CountWrite]) -> types.ContactCount:
        """Count the contacts that match filters without saving the filters.

        Filters on the data of events require `events:read` too. Scope: `contacts:read`. Open to agents.
        """
        result: types.ContactCount = await self._transport.call("POST", "/v1/my/segments/count", body=body)
        return result

    async def get(self, id: int) -> types.Segment:
        """Get a segment.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.Segment = await self._transport.call("GET", f"/v1/my/segments/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.SegmentPatch]) -> types.Segment:
        """Update a segment; `filters` replaces all filters.

        New filters on the data of events require `events:read` too. Scope: `contacts:write`. Scope of agents:
        `segments:write`.
        """
        result: types.Segment = await self._transport.call("PATCH", f"/v1/my/segments/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.Segment:
        """Delete a segment that is not in use.

        Scope: `contacts:write`.
        """
        result: types.Segment = await self._transport.call("DELETE", f"/v1/my/segments/{id:d}")
        return result

    async def explain(self, id: int, /, **query: Unpack[types.ExplainSegmentQuery]) -> types.SegmentExplanation:
        """Explain filter by filter whether a contact is in a segment.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.SegmentExplanation = await self._transport.call(
            "GET", f"/v1/my/segments/{id:d}/explain", query=query
        )
        return result
