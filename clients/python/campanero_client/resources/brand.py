"""Look and tone of the account's messages.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Brand:
    """Look and tone of the account's messages."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> types.Brand:
        """Get the brand.

        Scope: `account:read`. Open to agents.
        """
        result: types.Brand = self._transport.call("GET", "/v1/my/brand")
        return result

    def update(self, /, **body: Unpack[types.BrandWrite]) -> types.Brand:
        """Update the brand; absent fields stay unchanged.

        Scope: `account:write`.
        """
        result: types.Brand = self._transport.call("PUT", "/v1/my/brand", body=body)
        return result


class AsyncBrand:
    """Look and tone of the account's messages."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> types.Brand:
        """Get the brand.

        Scope: `account:read`. Open to agents.
        """
        result: types.Brand = await self._transport.call("GET", "/v1/my/brand")
        return result

    async def update(self, /, **body: Unpack[types.BrandWrite]) -> types.Brand:
        """Update the brand; absent fields stay unchanged.

        Scope: `account:write`.
        """
        result: types.Brand = await self._transport.call("PUT", "/v1/my/brand", body=body)
        return result
