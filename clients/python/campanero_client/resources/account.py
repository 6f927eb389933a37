"""The account: settings, capabilities and blockers.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Account:
    """The account: settings, capabilities and blockers."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> types.Account:
        """Get the account with its settings, capabilities and blockers.

        Scope: `account:read`. Open to agents.
        """
        result: types.Account = self._transport.call("GET", "/v1/my/account")
        return result

    def update(self, /, **body: Unpack[types.AccountWrite]) -> types.Account:
        """Update the account.

        Scope: `account:write`.
        """
        result: types.Account = self._transport.call("PATCH", "/v1/my/account", body=body)
        return result


class AsyncAccount:
    """The account: settings, capabilities and blockers."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> types.Account:
        """Get the account with its settings, capabilities and blockers.

        Scope: `account:read`. Open to agents.
        """
        result: types.Account = await self._transport.call("GET", "/v1/my/account")
        return result

    async def update(self, /, **body: Unpack[types.AccountWrite]) -> types.Account:
        """Update the account.

        Scope: `account:write`.
        """
        result: types.Account = await self._transport.call("PATCH", "/v1/my/account", body=body)
        return result
