"""Sending domains and their DNS records.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Domains:
    """Sending domains and their DNS records."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListDomainsQuery]) -> Paginator[types.SendingDomain]:
        """List sending domains, newest first.

        Scope: `domains:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/domains", query)

    def create(self, /, **body: Unpack[types.DomainCreate]) -> types.SendingDomain:
        """Add a sending domain; the response lists the DNS records it needs.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = self._transport.call("POST", "/v1/my/domains", body=body)
        return result

    def get(self, id: int) -> types.SendingDomain:
        """Get a sending domain.

        Scope: `domains:read`. Open to agents.
        """
        result: types.SendingDomain = self._transport.call("GET", f"/v1/my/domains/{id:d}")
        return result

    def delete(self, id: int) -> types.SendingDomain:
        """Delete a sending domain with its DKIM keys.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = self._transport.call("DELETE", f"/v1/my/domains/{id:d}")
        return result

    def verify(self, id: int) -> types.SendingDomain:
        """Check the DNS records of a sending domain now.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = self._transport.call("POST", f"/v1/my/domains/{id:d}/verify")
        return result

    def rotate_dkim_key(self, id: int) -> types.SendingDomain:
        """Create the next DKIM key; it signs once its record is in DNS.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = self._transport.call("POST", f"/v1/my/domains/{id:d}/rotate_key")
        return result


class AsyncDomains:
    """Sending domains and their DNS records."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListDomainsQuery]) -> AsyncPaginator[types.SendingDomain]:
        """List sending domains, newest first.

        Scope: `domains:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/domains", query)

    async def create(self, /, **body: Unpack[types.DomainCreate]) -> types.SendingDomain:
        """Add a sending domain; the response lists the DNS records it needs.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = await self._transport.call("POST", "/v1/my/domains", body=body)
        return result

    async def get(self, id: int) -> types.SendingDomain:
        """Get a sending domain.

        Scope: `domains:read`. Open to agents.
        """
        result: types.SendingDomain = await self._transport.call("GET", f"/v1/my/domains/{id:d}")
        return result

    async def delete(self, id: int) -> types.SendingDomain:
        """Delete a sending domain with its DKIM keys.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = await self._transport.call("DELETE", f"/v1/my/domains/{id:d}")
        return result

    async def verify(self, id: int) -> types.SendingDomain:
        """Check the DNS records of a sending domain now.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = await self._transport.call("POST", f"/v1/my/domains/{id:d}/verify")
        return result

    async def rotate_dkim_key(self, id: int) -> types.SendingDomain:
        """Create the next DKIM key; it signs once its record is in DNS.

        Scope: `domains:write`.
        """
        result: types.SendingDomain = await self._transport.call("POST", f"/v1/my/domains/{id:d}/rotate_key")
        return result
