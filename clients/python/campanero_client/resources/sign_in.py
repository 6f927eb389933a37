"""How people of the account may sign in.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class SignIn:
    """How people of the account may sign in."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_settings(self) -> types.SignInSettings:
        """Get how people of the account may sign in.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInSettings = self._transport.call("GET", "/v1/my/sign_in")
        return result

    def update_settings(self, /, **body: Unpack[types.SignInPatch]) -> types.SignInSettings:
        """Update how people of the account may sign in. Only owners may.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInSettings = self._transport.call("PATCH", "/v1/my/sign_in", body=body)
        return result


class AsyncSignIn:
    """How people of the account may sign in."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get_settings(self) -> types.SignInSettings:
        """Get how people of the account may sign in.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInSettings = await self._transport.call("GET", "/v1/my/sign_in")
        return result

    async def update_settings(self, /, **body: Unpack[types.SignInPatch]) -> types.SignInSettings:
        """Update how people of the account may sign in. Only owners may.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.SignInSettings = await self._transport.call("PATCH", "/v1/my/sign_in", body=body)
        return result
