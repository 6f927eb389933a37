"""What agents propose, and what users decide about it.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Proposals:
    """What agents propose, and what users decide about it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListProposalsQuery]) -> Paginator[types.Proposal]:
        """List proposals of agents, newest first. An agent gets its own.

        Each kind needs the scope with which its subject can be read, such as `flows:read`; others are left out.
        Scope: `campaigns:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/proposals", query)

    def create(self, /, **body: Unpack[types.ProposalWrite]) -> types.Proposal:
        """Propose what only a user may decide: to send a campaign, to start a flow, or to change what is in use.

        Only API keys make proposals: those of agents, and of programs that draft. The users who may decide get
        an email. A proposal about a flow starts a replay of the last 90 days. Also requires the scope with which
        its subject can be read; `change_segment` requires `events:read` too, and `change_flow` both
        `contacts:read` and `events:read`. Scope: `campaigns:write`. Scope of agents: `proposals:write`.
        """
        result: types.Proposal = self._transport.call("POST", "/v1/my/proposals", body=body)
        return result

    def get(self, id: int) -> types.ProposalDetail:
        """Get a proposal with what it changes and whom it reaches, as it is now.

        Without the scope with which its subject can be read, the response is 404; without `contacts:read`,
        `sms_parts` is null. Scope: `campaigns:read`. Open to agents.
        """
        result: types.ProposalDetail = self._transport.call("GET", f"/v1/my/proposals/{id:d}")
        return result

    def approve(self, id: int, /, **body: Unpack[types.ApproveProposal]) -> types.Proposal:
        """Approve a proposal, which carries it out. Only a signed-in user may, never an API key.

        The response is 409 if what is proposed has changed since `version` was read. In an account that requires
        approval, the user needs the right to approve; if it requires another user, the one who created the
        agent's key may not. Scope: `campaigns:send`.
        """
        result: types.Proposal = self._transport.call("POST", f"/v1/my/proposals/{id:d}/approve", body=body)
        return result

    def return_(self, id: int, /, **body: Unpack[types.ReturnProposal]) -> types.Proposal:
        """Return a proposal to its agent with a note. Only a signed-in user may, never an API key.

        Scope: `campaigns:send`.
        """
        result: types.Proposal = self._transport.call("POST", f"/v1/my/proposals/{id:d}/return", body=body)
        return result

    def withdraw(self, id: int) -> types.Proposal:
        """Withdraw an open proposal. Only the API key that made it can.

        Scope: `campaigns:write`. Scope of agents: `proposals:write`.
        """
        result: types.Proposal = self._transport.call("POST", f"/v1/my/proposals/{id:d}/withdraw")
        return result


class AsyncProposals:
    """What agents propose, and what users decide about it."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListProposalsQuery]) -> AsyncPaginator[types.Proposal]:
        """List proposals of agents, newest first. An agent gets its own.

        Each kind needs the scope with which its subject can be read, such as `flows:read`; others are left out.
        Scope: `campaigns:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/proposals", query)

    async def create(self, /, **body: Unpack[types.ProposalWrite]) -> types.Proposal:
        """Propose what only a user may decide: to send a campaign, to start a flow, or to change what is in use.

        Only API keys make proposals: those of agents, and of programs that draft. The users who may decide get
        an email. A proposal about a flow starts a replay of the last 90 days. Also requires the scope with which
        its subject can be read; `change_segment` requires `events:read` too, and `change_flow` both
        `contacts:read` and `events:read`. Scope: `campaigns:write`. Scope of agents: `proposals:write`.
        """
        result: types.Proposal = await self._transport.call("POST", "/v1/my/proposals", body=body)
        return result

    async def get(self, id: int) -> types.ProposalDetail:
        """Get a proposal with what it changes and whom it reaches, as it is now.

        Without the scope with which its subject can be read, the response is 404; without `contacts:read`,
        `sms_parts` is null. Scope: `campaigns:read`. Open to agents.
        """
        result: types.ProposalDetail = await self._transport.call("GET", f"/v1/my/proposals/{id:d}")
        return result

    async def approve(self, id: int, /, **body: Unpack[types.ApproveProposal]) -> types.Proposal:
        """Approve a proposal, which carries it out. Only a signed-in user may, never an API key.

        The response is 409 if what is proposed has changed since `version` was read. In an account that requires
        approval, the user needs the right to approve; if it requires another user, the one who created the
        agent's key may not. Scope: `campaigns:send`.
        """
        result: types.Proposal = await self._transport.call("POST", f"/v1/my/proposals/{id:d}/approve", body=body)
        return result

    async def return_(self, id: int, /, **body: Unpack[types.ReturnProposal]) -> types.Proposal:
        """Return a proposal to its agent with a note. Only a signed-in user may, never an API key.

        Scope: `campaigns:send`.
        """
        result: types.Proposal = await self._transport.call("POST", f"/v1/my/proposals/{id:d}/return", body=body)
        return result

    async def withdraw(self, id: int) -> types.Proposal:
        """Withdraw an open proposal. Only the API key that made it can.

        Scope: `campaigns:write`. Scope of agents: `proposals:write`.
        """
        result: types.Proposal = await self._transport.call("POST", f"/v1/my/proposals/{id:d}/withdraw")
        return result
