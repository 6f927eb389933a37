"""Backups of the installation, for its first account.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from campanero_client import types


class Backups:
    """Backups of the installation, for its first account."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> types.Backups:
        """Get the backups on this machine, and the state of copies on another machine.

        Only for the first account of the installation. Scope: `account:write`.
        """
        result: types.Backups = self._transport.call("GET", "/v1/my/backups")
        return result

    def create(self) -> types.Backups:
        """Create a backup on this machine, in the background. Only for the first account of the installation.

        Scope: `account:write`.
        """
        result: types.Backups = self._transport.call("POST", "/v1/my/backups")
        return result

    def create_copy(self) -> types.CopyRun:
        """Make a copy on another machine now, in the background; return the one that is already running, if there
        is one.

        Only for the first account of the installation. 409 if copies are not set up. Scope: `account:write`.
        """
        result: types.CopyRun = self._transport.call("POST", "/v1/my/backups/copies")
        return result

    def create_proof(self) -> types.CopyRun:
        """Restore the newest copy for a test, in the background; return the test that is already running, if there
        is one.

        The copy is fetched, decrypted, unpacked beside the data and checked, and then deleted again. Only for
        the first account of the installation. 409 if copies are not set up. Scope: `account:write`.
        """
        result: types.CopyRun = self._transport.call("POST", "/v1/my/backups/proofs")
        return result


class AsyncBackups:
    """Backups of the installation, for its first account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> types.Backups:
        """Get the backups on this machine, and the state of copies on another machine.

        Only for the first account of the installation. Scope: `account:write`.
        """
        result: types.Backups = await self._transport.call("GET", "/v1/my/backups")
        return result

    async def create(self) -> types.Backups:
        """Create a backup on this machine, in the background. Only for the first account of the installation.

        Scope: `account:write`.
        """
        result: types.Backups = await self._transport.call("POST", "/v1/my/backups")
        return result

    async def create_copy(self) -> types.CopyRun:
        """Make a copy on another machine now, in the background; return the one that is already running, if there
        is one.

        Only for the first account of the installation. 409 if copies are not set up. Scope: `account:write`.
        """
        result: types.CopyRun = await self._transport.call("POST", "/v1/my/backups/copies")
        return result

    async def create_proof(self) -> types.CopyRun:
        """Restore the newest copy for a test, in the background; return the test that is already running, if there
        is one.

        The copy is fetched, decrypted, unpacked beside the data and checked, and then deleted again. Only for
        the first account of the installation. 409 if copies are not set up. Scope: `account:write`.
        """
        result: types.CopyRun = await self._transport.call("POST", "/v1/my/backups/proofs")
        return result
