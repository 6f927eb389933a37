"""Current state of sending.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from campanero_client import types


class Delivery:
    """Current state of sending."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_status(self) -> types.DeliveryStatus:
        """Get the delivery status: obstacles, queue, rates and connections.

        Scope: `account:read`. Open to agents.
        """
        result: types.DeliveryStatus = self._transport.call("GET", "/v1/my/delivery/status")
        return result


class AsyncDelivery:
    """Current state of sending."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get_status(self) -> types.DeliveryStatus:
        """Get the delivery status: obstacles, queue, rates and connections.

        Scope: `account:read`. Open to agents.
        """
        result: types.DeliveryStatus = await self._transport.call("GET", "/v1/my/delivery/status")
        return result
