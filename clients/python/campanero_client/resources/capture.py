"""Messages captured instead of sent: all messages of a new installation, and those sent with test keys.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncDownload, AsyncPaginator, AsyncTransport, Download, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Capture:
    """Messages captured instead of sent: all messages of a new installation, and those sent with test keys."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListCapturedQuery]) -> Paginator[types.CapturedMessage]:
        """List captured messages, newest first.

        Also requires `contacts:read`. Scope: `account:read`.
        """
        return Paginator(self._transport, "/v1/my/capture", query)

    def clear(self) -> types.CaptureCleared:
        """Delete all captured messages.

        Scope: `account:write`.
        """
        result: types.CaptureCleared = self._transport.call("DELETE", "/v1/my/capture")
        return result

    def get(self, id: int) -> types.CapturedMessageDetail:
        """Get a captured message with its content.

        Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their
        preferences are replaced. Scope: `account:read`.
        """
        result: types.CapturedMessageDetail = self._transport.call("GET", f"/v1/my/capture/{id:d}")
        return result

    def get_source(self, id: int) -> Download:
        """Get the source of a captured email, or the text of a captured SMS.

        Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their
        preferences are replaced. Scope: `account:read`.
        """
        return Download(self._transport, f"/v1/my/capture/{id:d}/raw", {})

    def simulate_recipient(self, id: int, /, **body: Unpack[types.SimulateEventRequest]) -> types.CapturedMessageDetail:
        """Simulate a recipient's action on a captured message, with the effects of a real action.

        Also requires `contacts:read`. Scope: `account:write`.
        """
        result: types.CapturedMessageDetail = self._transport.call("POST", f"/v1/my/capture/{id:d}/simulate", body=body)
        return result


class AsyncCapture:
    """Messages captured instead of sent: all messages of a new installation, and those sent with test keys."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListCapturedQuery]) -> AsyncPaginator[types.CapturedMessage]:
        """List captured messages, newest first.

        Also requires `contacts:read`. Scope: `account:read`.
        """
        return AsyncPaginator(self._transport, "/v1/my/capture", query)

    async def clear(self) -> types.CaptureCleared:
        """Delete all captured messages.

        Scope: `account:write`.
        """
        result: types.CaptureCleared = await self._transport.call("DELETE", "/v1/my/capture")
        return result

    async def get(self, id: int) -> types.CapturedMessageDetail:
        """Get a captured message with its content.

        Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their
        preferences are replaced. Scope: `account:read`.
        """
        result: types.CapturedMessageDetail = await self._transport.call("GET", f"/v1/my/capture/{id:d}")
        return result

    def get_source(self, id: int) -> AsyncDownload:
        """Get the source of a captured email, or the text of a captured SMS.

        Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their
        preferences are replaced. Scope: `account:read`.
        """
        return AsyncDownload(self._transport, f"/v1/my/capture/{id:d}/raw", {})

    async def simulate_recipient(
        self, id: int, /, **body: Unpack[types.SimulateEventRequest]
    ) -> types.CapturedMessageDetail:
        """Simulate a recipient's action on a captured message, with the effects of a real action.

        Also requires `contacts:read`. Scope: `account:write`.
        """
        result: types.CapturedMessageDetail = await self._transport.call(
            "POST", f"/v1/my/capture/{id:d}/simulate", body=body
        )
        return result
