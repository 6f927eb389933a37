"""API keys of AI agents, and the switch that stops them.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from campanero_client import types


class Agents:
    """API keys of AI agents, and the switch that stops them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> types.Agents:
        """Get the agents of the account, and whether they are stopped.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Agents = self._transport.call("GET", "/v1/my/agents")
        return result

    def stop(self) -> types.Agents:
        """Stop all agents of the account: every further request of theirs gets 403.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Agents = self._transport.call("POST", "/v1/my/agents/stop")
        return result

    def resume(self) -> types.Agents:
        """Resume the agents of the account.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Agents = self._transport.call("POST", "/v1/my/agents/resume")
        return result


class AsyncAgents:
    """API keys of AI agents, and the switch that stops them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> types.Agents:
        """Get the agents of the account, and whether they are stopped.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Agents = await self._transport.call("GET", "/v1/my/agents")
        return result

    async def stop(self) -> types.Agents:
        """Stop all agents of the account: every further request of theirs gets 403.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Agents = await self._transport.call("POST", "/v1/my/agents/stop")
        return result

    async def resume(self) -> types.Agents:
        """Resume the agents of the account.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Agents = await self._transport.call("POST", "/v1/my/agents/resume")
        return result
