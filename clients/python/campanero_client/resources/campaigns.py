"""A message to many contacts, sent now or at a given time: drafts, sends, reports.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Campaigns:
    """A message to many contacts, sent now or at a given time: drafts, sends, reports."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListCampaignsQuery]) -> Paginator[types.Campaign]:
        """List campaigns, newest first.

        Scope: `campaigns:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/campaigns", query)

    def create(self, /, **body: Unpack[types.CampaignCreate]) -> types.Campaign:
        """Create a campaign as a draft.

        The `event` of an A/B test or holdout requires `contacts:read` too, and `by_amount` requires
        `events:read`. `local_time` requires `contacts:read`. Scope: `campaigns:write`. Open to agents.
        """
        result: types.Campaign = self._transport.call("POST", "/v1/my/campaigns", body=body)
        return result

    def get(self, id: int) -> types.Campaign:
        """Get a campaign.

        Scope: `campaigns:read`. Open to agents.
        """
        result: types.Campaign = self._transport.call("GET", f"/v1/my/campaigns/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.CampaignPatch]) -> types.Campaign:
        """Update a campaign; `status` changes its state.

        A new `event` of an A/B test or holdout requires `contacts:read` too, and new `by_amount` requires
        `events:read`. So does a new `local_time` require `contacts:read`. Scope: `campaigns:write`. Open to
        agents.
        """
        result: types.Campaign = self._transport.call("PATCH", f"/v1/my/campaigns/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.Campaign:
        """Delete a campaign. Open messages are cancelled; sent messages and events are kept.

        Scope: `campaigns:write`.
        """
        result: types.Campaign = self._transport.call("DELETE", f"/v1/my/campaigns/{id:d}")
        return result

    def send(
        self, id: int, /, *, idempotency_key: str | None = None, **body: Unpack[types.SendRequest]
    ) -> types.Campaign:
        """Send a campaign: apply the attributes, create the audience snapshot and start delivery.

        A test key also needs `contacts:read`, and so does a new `local_time`. Scope: `campaigns:send`.
        """
        result: types.Campaign = self._transport.call(
            "POST", f"/v1/my/campaigns/{id:d}/send", body=body, idempotency_key=idempotency_key
        )
        return result

    def pause(self, id: int) -> types.Campaign:
        """Pause an active campaign.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/pause")
        return result

    def resume(self, id: int) -> types.Campaign:
        """Resume a paused campaign with its remaining messages.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/resume")
        return result

    def cancel(self, id: int) -> types.Campaign:
        """Cancel an active or paused campaign permanently.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/cancel")
        return result

    def ask_approval(self, id: int) -> types.Campaign:
        """Request approval of a campaign.

        Scope: `campaigns:write`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/ask_approval")
        return result

    def approve(self, id: int, /, **body: Unpack[types.ApproveRequest]) -> types.Campaign:
        """Approve a campaign in its current state, or as it was read.

        Scope: `campaigns:approve`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/approve", body=body)
        return result

    def reject(self, id: int, /, **body: Unpack[types.RejectRequest]) -> types.Campaign:
        """Reject a campaign in its current state.

        Scope: `campaigns:approve`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/reject", body=body)
        return result

    def duplicate(self, id: int, /, **body: Unpack[types.CampaignCopy]) -> types.Campaign:
        """Create a draft with the content and audience of a campaign.

        Scope: `campaigns:write`. Open to agents.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/duplicate", body=body)
        return result

    def preflight(self, id: int) -> types.Preflight:
        """Check a draft for blockers and warnings before it is sent.

        Rendering for all recipients requires `contacts:read` too; without it, `rehearsal` is left out. An agent
        gets no `links`, because checking them requests the addresses in its draft. Scope: `campaigns:read`. Open
        to agents.
        """
        result: types.Preflight = self._transport.call("GET", f"/v1/my/campaigns/{id:d}/preflight")
        return result

    def get_report(self, id: int) -> types.CampaignReport:
        """Get the report of a campaign; each number has the path of its recipients.

        Scope: `campaigns:read`. Open to agents.
        """
        result: types.CampaignReport = self._transport.call("GET", f"/v1/my/campaigns/{id:d}/report")
        return result

    def get_send_times(self, id: int) -> types.SendTimes:
        """Get the send times of a campaign with a local time, by time zone; nothing for other campaigns.

        It shows where contacts are, so it requires `contacts:read` too. Scope: `campaigns:read`. Open to agents.
        """
        result: types.SendTimes = self._transport.call("GET", f"/v1/my/campaigns/{id:d}/send_times")
        return result

    def get_experiment(self, id: int) -> types.ExperimentResult:
        """Get the figures of a campaign's A/B test or holdout, and the conclusion; 404 if it has none.

        Scope: `campaigns:read`. Open to agents.
        """
        result: types.ExperimentResult = self._transport.call("GET", f"/v1/my/campaigns/{id:d}/experiment")
        return result

    def choose_winner(self, id: int, /, **body: Unpack[types.ChooseWinner]) -> types.Campaign:
        """End the A/B test of a campaign and send a variant to all recipients who wait.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = self._transport.call("POST", f"/v1/my/campaigns/{id:d}/experiment/winner", body=body)
        return result

    def list_recipients(
        self, id: int, /, **query: Unpack[types.ListCampaignRecipientsQuery]
    ) -> Paginator[types.Message]:
        """List recipients of a campaign with the state of their messages, newest first.

        Scope: `campaigns:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/campaigns/{id:d}/recipients", query)

    def explain_recipient(
        self, id: int, /, **query: Unpack[types.ExplainCampaignRecipientQuery]
    ) -> types.AudienceExplanation:
        """Explain why a contact receives a campaign, received it or did not.

        Also requires `contacts:read`, because the answer says whether the contact is in the campaign's lists and
        segments. Scope: `campaigns:read`. Open to agents.
        """
        result: types.AudienceExplanation = self._transport.call("GET", f"/v1/my/campaigns/{id:d}/explain", query=query)
        return result

    def list_occurrences(
        self, id: int, /, **query: Unpack[types.ListCampaignOccurrencesQuery]
    ) -> Paginator[types.Occurrence]:
        """List the dates of a repeating campaign that are over, latest first.

        Scope: `campaigns:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/campaigns/{id:d}/occurrences", query)


class AsyncCampaigns:
    """A message to many contacts, sent now or at a given time: drafts, sends, reports."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListCampaignsQuery]) -> AsyncPaginator[types.Campaign]:
        """List campaigns, newest first.

        Scope: `campaigns:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/campaigns", query)

    async def create(self, /, **body: Unpack[types.CampaignCreate]) -> types.Campaign:
        """Create a campaign as a draft.

        The `event` of an A/B test or holdout requires `contacts:read` too, and `by_amount` requires
        `events:read`. `local_time` requires `contacts:read`. Scope: `campaigns:write`. Open to agents.
        """
        result: types.Campaign = await self._transport.call("POST", "/v1/my/campaigns", body=body)
        return result

    async def get(self, id: int) -> types.Campaign:
        """Get a campaign.

        Scope: `campaigns:read`. Open to agents.
        """
        result: types.Campaign = await self._transport.call("GET", f"/v1/my/campaigns/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.CampaignPatch]) -> types.Campaign:
        """Update a campaign; `status` changes its state.

        A new `event` of an A/B test or holdout requires `contacts:read` too, and new `by_amount` requires
        `events:read`. So does a new `local_time` require `contacts:read`. Scope: `campaigns:write`. Open to
        agents.
        """
        result: types.Campaign = await self._transport.call("PATCH", f"/v1/my/campaigns/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.Campaign:
        """Delete a campaign. Open messages are cancelled; sent messages and events are kept.

        Scope: `campaigns:write`.
        """
        result: types.Campaign = await self._transport.call("DELETE", f"/v1/my/campaigns/{id:d}")
        return result

    async def send(
        self, id: int, /, *, idempotency_key: str | None = None, **body: Unpack[types.SendRequest]
    ) -> types.Campaign:
        """Send a campaign: apply the attributes, create the audience snapshot and start delivery.

        A test key also needs `contacts:read`, and so does a new `local_time`. Scope: `campaigns:send`.
        """
        result: types.Campaign = await self._transport.call(
            "POST", f"/v1/my/campaigns/{id:d}/send", body=body, idempotency_key=idempotency_key
        )
        return result

    async def pause(self, id: int) -> types.Campaign:
        """Pause an active campaign.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/pause")
        return result

    async def resume(self, id: int) -> types.Campaign:
        """Resume a paused campaign with its remaining messages.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/resume")
        return result

    async def cancel(self, id: int) -> types.Campaign:
        """Cancel an active or paused campaign permanently.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/cancel")
        return result

    async def ask_approval(self, id: int) -> types.Campaign:
        """Request approval of a campaign.

        Scope: `campaigns:write`.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/ask_approval")
        return result

    async def approve(self, id: int, /, **body: Unpack[types.ApproveRequest]) -> types.Campaign:
        """Approve a campaign in its current state, or as it was read.

        Scope: `campaigns:approve`.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/approve", body=body)
        return result

    async def reject(self, id: int, /, **body: Unpack[types.RejectRequest]) -> types.Campaign:
        """Reject a campaign in its current state.

        Scope: `campaigns:approve`.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/reject", body=body)
        return result

    async def duplicate(self, id: int, /, **body: Unpack[types.CampaignCopy]) -> types.Campaign:
        """Create a draft with the content and audience of a campaign.

        Scope: `campaigns:write`. Open to agents.
        """
        result: types.Campaign = await self._transport.call("POST", f"/v1/my/campaigns/{id:d}/duplicate", body=body)
        return result

    async def preflight(self, id: int) -> types.Preflight:
        """Check a draft for blockers and warnings before it is sent.

        Rendering for all recipients requires `contacts:read` too; without it, `rehearsal` is left out. An agent
        gets no `links`, because checking them requests the addresses in its draft. Scope: `campaigns:read`. Open
        to agents.
        """
        result: types.Preflight = await self._transport.call("GET", f"/v1/my/campaigns/{id:d}/preflight")
        return result

    async def get_report(self, id: int) -> types.CampaignReport:
        """Get the report of a campaign; each number has the path of its recipients.

        Scope: `campaigns:read`. Open to agents.
        """
        result: types.CampaignReport = await self._transport.call("GET", f"/v1/my/campaigns/{id:d}/report")
        return result

    async def get_send_times(self, id: int) -> types.SendTimes:
        """Get the send times of a campaign with a local time, by time zone; nothing for other campaigns.

        It shows where contacts are, so it requires `contacts:read` too. Scope: `campaigns:read`. Open to agents.
        """
        result: types.SendTimes = await self._transport.call("GET", f"/v1/my/campaigns/{id:d}/send_times")
        return result

    async def get_experiment(self, id: int) -> types.ExperimentResult:
        """Get the figures of a campaign's A/B test or holdout, and the conclusion; 404 if it has none.

        Scope: `campaigns:read`. Open to agents.
        """
        result: types.ExperimentResult = await self._transport.call("GET", f"/v1/my/campaigns/{id:d}/experiment")
        return result

    async def choose_winner(self, id: int, /, **body: Unpack[types.ChooseWinner]) -> types.Campaign:
        """End the A/B test of a campaign and send a variant to all recipients who wait.

        Scope: `campaigns:send`.
        """
        result: types.Campaign = await self._transport.call(
            "POST", f"/v1/my/campaigns/{id:d}/experiment/winner", body=body
        )
        return result

    def list_recipients(
        self, id: int, /, **query: Unpack[types.ListCampaignRecipientsQuery]
    ) -> AsyncPaginator[types.Message]:
        """List recipients of a campaign with the state of their messages, newest first.

        Scope: `campaigns:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/campaigns/{id:d}/recipients", query)

    async def explain_recipient(
        self, id: int, /, **query: Unpack[types.ExplainCampaignRecipientQuery]
    ) -> types.AudienceExplanation:
        """Explain why a contact receives a campaign, received it or did not.

        Also requires `contacts:read`, because the answer says whether the contact is in the campaign's lists and
        segments. Scope: `campaigns:read`. Open to agents.
        """
        result: types.AudienceExplanation = await self._transport.call(
            "GET", f"/v1/my/campaigns/{id:d}/explain", query=query
        )
        return result

    def list_occurrences(
        self, id: int, /, **query: Unpack[types.ListCampaignOccurrencesQuery]
    ) -> AsyncPaginator[types.Occurrence]:
        """List the dates of a repeating campaign that are over, latest first.

        Scope: `campaigns:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/campaigns/{id:d}/occurrences", query)
