"""Imports of contacts and suppressions from files.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._requests import form_fields
from campanero_client._transport import AsyncDownload, AsyncPaginator, AsyncTransport, Download, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types
    from campanero_client._requests import File


class Imports:
    """Imports of contacts and suppressions from files."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListImportsQuery]) -> Paginator[types.Import]:
        """List imports, newest first.

        Scope: `contacts:read`.
        """
        return Paginator(self._transport, "/v1/my/imports", query)

    def create(self, file: File, /, *, dry_run: bool | None = None, **body: Unpack[types.ImportForm]) -> types.Import:
        """Import a file of contacts or suppressions (CSV or JSON lines); `dry_run` only reports the effects.

        Scope: `contacts:write`.
        """
        result: types.Import = self._transport.call(
            "POST", "/v1/my/imports", query={"dry_run": dry_run}, data=form_fields(body), files={"file": file}
        )
        return result

    def get(self, id: int) -> types.Import:
        """Get an import with its progress.

        Scope: `contacts:read`.
        """
        result: types.Import = self._transport.call("GET", f"/v1/my/imports/{id:d}")
        return result

    def export_results_csv(self, id: int) -> Download:
        """Get the result of each line of the file with its reason.

        Results are kept for 7 days. While the file is still being read, the response is 409. Scope:
        `contacts:read`.
        """
        return Download(self._transport, f"/v1/my/imports/{id:d}/results.csv", {})

    def cancel(self, id: int) -> types.Import:
        """Cancel an import; imported rows stay until the import is undone.

        Scope: `contacts:write`.
        """
        result: types.Import = self._transport.call("POST", f"/v1/my/imports/{id:d}/cancel")
        return result

    def undo(self, id: int) -> types.Import:
        """Undo an import within 24 hours; rows that have been changed since then are kept.

        Scope: `contacts:write`.
        """
        result: types.Import = self._transport.call("POST", f"/v1/my/imports/{id:d}/undo")
        return result


class AsyncImports:
    """Imports of contacts and suppressions from files."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListImportsQuery]) -> AsyncPaginator[types.Import]:
        """List imports, newest first.

        Scope: `contacts:read`.
        """
        return AsyncPaginator(self._transport, "/v1/my/imports", query)

    async def create(
        self, file: File, /, *, dry_run: bool | None = None, **body: Unpack[types.ImportForm]
    ) -> types.Import:
        """Import a file of contacts or suppressions (CSV or JSON lines); `dry_run` only reports the effects.

        Scope: `contacts:write`.
        """
        result: types.Import = await self._transport.call(
            "POST", "/v1/my/imports", query={"dry_run": dry_run}, data=form_fields(body), files={"file": file}
        )
        return result

    async def get(self, id: int) -> types.Import:
        """Get an import with its progress.

        Scope: `contacts:read`.
        """
        result: types.Import = await self._transport.call("GET", f"/v1/my/imports/{id:d}")
        return result

    def export_results_csv(self, id: int) -> AsyncDownload:
        """Get the result of each line of the file with its reason.

        Results are kept for 7 days. While the file is still being read, the response is 409. Scope:
        `contacts:read`.
        """
        return AsyncDownload(self._transport, f"/v1/my/imports/{id:d}/results.csv", {})

    async def cancel(self, id: int) -> types.Import:
        """Cancel an import; imported rows stay until the import is undone.

        Scope: `contacts:write`.
        """
        result: types.Import = await self._transport.call("POST", f"/v1/my/imports/{id:d}/cancel")
        return result

    async def undo(self, id: int) -> types.Import:
        """Undo an import within 24 hours; rows that have been changed since then are kept.

        Scope: `contacts:write`.
        """
        result: types.Import = await self._transport.call("POST", f"/v1/my/imports/{id:d}/undo")
        return result
