"""Invitations to the account by email, for its owner and admins.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Invitations:
    """Invitations to the account by email, for its owner and admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListInvitationsQuery]) -> Paginator[types.Invitation]:
        """List open and expired invitations, newest first. An accepted invitation is a user.

        Only for a signed-in owner or admin: no API key has access.
        """
        return Paginator(self._transport, "/v1/my/invitations", query)

    def create(self, /, **body: Unpack[types.InvitationWrite]) -> types.Invitation:
        """Invite an email address. An older invitation of the address is replaced, and its link stops working.

        While the account cannot send email, the response is 409: the link of an invitation is never in a
        response. Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Invitation = self._transport.call("POST", "/v1/my/invitations", body=body)
        return result

    def resend(self, id: int) -> types.Invitation:
        """Send an invitation again, with a new link that is valid as long as the last one. The old link stops
        working.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Invitation = self._transport.call("POST", f"/v1/my/invitations/{id:d}/resend")
        return result

    def revoke(self, id: int) -> types.Invitation:
        """Revoke an invitation. Its link stops working.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Invitation = self._transport.call("DELETE", f"/v1/my/invitations/{id:d}")
        return result


class AsyncInvitations:
    """Invitations to the account by email, for its owner and admins."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListInvitationsQuery]) -> AsyncPaginator[types.Invitation]:
        """List open and expired invitations, newest first. An accepted invitation is a user.

        Only for a signed-in owner or admin: no API key has access.
        """
        return AsyncPaginator(self._transport, "/v1/my/invitations", query)

    async def create(self, /, **body: Unpack[types.InvitationWrite]) -> types.Invitation:
        """Invite an email address. An older invitation of the address is replaced, and its link stops working.

        While the account cannot send email, the response is 409: the link of an invitation is never in a
        response. Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Invitation = await self._transport.call("POST", "/v1/my/invitations", body=body)
        return result

    async def resend(self, id: int) -> types.Invitation:
        """Send an invitation again, with a new link that is valid as long as the last one. The old link stops
        working.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Invitation = await self._transport.call("POST", f"/v1/my/invitations/{id:d}/resend")
        return result

    async def revoke(self, id: int) -> types.Invitation:
        """Revoke an invitation. Its link stops working.

        Only for a signed-in owner or admin: no API key has access.
        """
        result: types.Invitation = await self._transport.call("DELETE", f"/v1/my/invitations/{id:d}")
        return result
