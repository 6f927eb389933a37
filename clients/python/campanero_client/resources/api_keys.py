"""API keys of the account, for its owner and admins.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class ApiKeys:
    """API keys of the account, for its owner and admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListApiKeysQuery]) -> Paginator[types.ApiKey]:
        """List active API keys, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/api_keys", query)

    def create(self, /, **body: Unpack[types.KeyWrite]) -> types.ApiKeyWithSecret:
        """Create an API key. The key is shown once.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.ApiKeyWithSecret = self._transport.call("POST", "/v1/my/api_keys", body=body)
        return result

    def revoke(self, id: int) -> types.ApiKey:
        """Revoke an API key with immediate effect.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.ApiKey = self._transport.call("DELETE", f"/v1/my/api_keys/{id:d}")
        return result


class AsyncApiKeys:
    """API keys of the account, for its owner and admins."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListApiKeysQuery]) -> AsyncPaginator[types.ApiKey]:
        """List active API keys, newest first.

        Only for a signed-in owner or admin: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/api_keys", query)

    async def create(self, /, **body: Unpack[types.KeyWrite]) -> types.ApiKeyWithSecret:
        """Create an API key. The key is shown once.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.ApiKeyWithSecret = await self._transport.call("POST", "/v1/my/api_keys", body=body)
        return result

    async def revoke(self, id: int) -> types.ApiKey:
        """Revoke an API key with immediate effect.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.ApiKey = await self._transport.call("DELETE", f"/v1/my/api_keys/{id:d}")
        return result
