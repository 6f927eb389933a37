"""Audit log, for the account's owner and admins.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Audit:
    """Audit log, for the account's owner and admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListAuditEntriesQuery]) -> Paginator[types.AuditEntry]:
        """List audit log entries, newest first. Entries are permanent.

        Only for a signed-in owner or admin: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/audit", query)


class AsyncAudit:
    """Audit log, for the account's owner and admins."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListAuditEntriesQuery]) -> AsyncPaginator[types.AuditEntry]:
        """List audit log entries, newest first. Entries are permanent.

        Only for a signed-in owner or admin: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/audit", query)
