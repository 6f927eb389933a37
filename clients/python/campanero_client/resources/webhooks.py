"""URLs to which events are posted.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Webhooks:
    """URLs to which events are posted."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListWebhooksQuery]) -> Paginator[types.Webhook]:
        """List webhooks, newest first.

        Scope: `account:read`.
        """
        return Paginator(self._transport, "/v1/my/webhooks", query)

    def create(self, /, **body: Unpack[types.WebhookWrite]) -> types.WebhookWithSecret:
        """Create a webhook. Its secret is shown once.

        Also requires `events:read`. A test key may not create a webhook. Scope: `account:write`.
        """
        result: types.WebhookWithSecret = self._transport.call("POST", "/v1/my/webhooks", body=body)
        return result

    def get(self, id: int) -> types.Webhook:
        """Get a webhook.

        Scope: `account:read`.
        """
        result: types.Webhook = self._transport.call("GET", f"/v1/my/webhooks/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.WebhookPatch]) -> types.Webhook:
        """Update a webhook. A webhook that is enabled again gets only events from then on.

        Any change but `"enabled": false` also requires `events:read`, and no test key may make it. Scope:
        `account:write`.
        """
        result: types.Webhook = self._transport.call("PATCH", f"/v1/my/webhooks/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.Webhook:
        """Delete a webhook with its delivery log.

        Scope: `account:write`.
        """
        result: types.Webhook = self._transport.call("DELETE", f"/v1/my/webhooks/{id:d}")
        return result

    def rotate_secret(self, id: int) -> types.WebhookWithSecret:
        """Rotate the secret of a webhook; the previous secret also signs for 24 hours.

        Scope: `account:write`.
        """
        result: types.WebhookWithSecret = self._transport.call("POST", f"/v1/my/webhooks/{id:d}/rotate_secret")
        return result

    def test(self, id: int, /, **body: Unpack[types.WebhookTest]) -> types.WebhookTestResult:
        """Send a sample event now and return the response.

        Scope: `account:write`.
        """
        result: types.WebhookTestResult = self._transport.call("POST", f"/v1/my/webhooks/{id:d}/test", body=body)
        return result

    def replay_failed_deliveries(
        self, id: int, /, **body: Unpack[types.ReplayFailedRequest]
    ) -> types.WebhookReplayResult:
        """Send the failed deliveries again, or only those created since a time.

        Also requires `events:read`, and no test key may do it. Scope: `account:write`.
        """
        result: types.WebhookReplayResult = self._transport.call(
            "POST", f"/v1/my/webhooks/{id:d}/replay_failed", body=body
        )
        return result

    def list_deliveries(
        self, id: int, /, **query: Unpack[types.ListWebhookDeliveriesQuery]
    ) -> Paginator[types.WebhookDelivery]:
        """List deliveries of a webhook with their responses, newest events first.

        Scope: `account:read`.
        """
        return Paginator(self._transport, f"/v1/my/webhooks/{id:d}/deliveries", query)

    def get_delivery(self, id: int, delivery_id: int) -> types.WebhookDelivery:
        """Get a delivery.

        Scope: `account:read`.
        """
        result: types.WebhookDelivery = self._transport.call(
            "GET", f"/v1/my/webhooks/{id:d}/deliveries/{delivery_id:d}"
        )
        return result

    def replay_delivery(self, id: int, delivery_id: int) -> types.WebhookDelivery:
        """Send a delivery again with the same `webhook-id`.

        Also requires `events:read`, and no test key may do it. Scope: `account:write`.
        """
        result: types.WebhookDelivery = self._transport.call(
            "POST", f"/v1/my/webhooks/{id:d}/deliveries/{delivery_id:d}/replay"
        )
        return result


class AsyncWebhooks:
    """URLs to which events are posted."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListWebhooksQuery]) -> AsyncPaginator[types.Webhook]:
        """List webhooks, newest first.

        Scope: `account:read`.
        """
        return AsyncPaginator(self._transport, "/v1/my/webhooks", query)

    async def create(self, /, **body: Unpack[types.WebhookWrite]) -> types.WebhookWithSecret:
        """Create a webhook. Its secret is shown once.

        Also requires `events:read`. A test key may not create a webhook. Scope: `account:write`.
        """
        result: types.WebhookWithSecret = await self._transport.call("POST", "/v1/my/webhooks", body=body)
        return result

    async def get(self, id: int) -> types.Webhook:
        """Get a webhook.

        Scope: `account:read`.
        """
        result: types.Webhook = await self._transport.call("GET", f"/v1/my/webhooks/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.WebhookPatch]) -> types.Webhook:
        """Update a webhook. A webhook that is enabled again gets only events from then on.

        Any change but `"enabled": false` also requires `events:read`, and no test key may make it. Scope:
        `account:write`.
        """
        result: types.Webhook = await self._transport.call("PATCH", f"/v1/my/webhooks/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.Webhook:
        """Delete a webhook with its delivery log.

        Scope: `account:write`.
        """
        result: types.Webhook = await self._transport.call("DELETE", f"/v1/my/webhooks/{id:d}")
        return result

    async def rotate_secret(self, id: int) -> types.WebhookWithSecret:
        """Rotate the secret of a webhook; the previous secret also signs for 24 hours.

        Scope: `account:write`.
        """
        result: types.WebhookWithSecret = await self._transport.call("POST", f"/v1/my/webhooks/{id:d}/rotate_secret")
        return result

    async def test(self, id: int, /, **body: Unpack[types.WebhookTest]) -> types.WebhookTestResult:
        """Send a sample event now and return the response.

        Scope: `account:write`.
        """
        result: types.WebhookTestResult = await self._transport.call("POST", f"/v1/my/webhooks/{id:d}/test", body=body)
        return result

    async def replay_failed_deliveries(
        self, id: int, /, **body: Unpack[types.ReplayFailedRequest]
    ) -> types.WebhookReplayResult:
        """Send the failed deliveries again, or only those created since a time.

        Also requires `events:read`, and no test key may do it. Scope: `account:write`.
        """
        result: types.WebhookReplayResult = await self._transport.call(
            "POST", f"/v1/my/webhooks/{id:d}/replay_failed", body=body
        )
        return result

    def list_deliveries(
        self, id: int, /, **query: Unpack[types.ListWebhookDeliveriesQuery]
    ) -> AsyncPaginator[types.WebhookDelivery]:
        """List deliveries of a webhook with their responses, newest events first.

        Scope: `account:read`.
        """
        return AsyncPaginator(self._transport, f"/v1/my/webhooks/{id:d}/deliveries", query)

    async def get_delivery(self, id: int, delivery_id: int) -> types.WebhookDelivery:
        """Get a delivery.

        Scope: `account:read`.
        """
        result: types.WebhookDelivery = await self._transport.call(
            "GET", f"/v1/my/webhooks/{id:d}/deliveries/{delivery_id:d}"
        )
        return result

    async def replay_delivery(self, id: int, delivery_id: int) -> types.WebhookDelivery:
        """Send a delivery again with the same `webhook-id`.

        Also requires `events:read`, and no test key may do it. Scope: `account:write`.
        """
        result: types.WebhookDelivery = await self._transport.call(
            "POST", f"/v1/my/webhooks/{id:d}/deliveries/{delivery_id:d}/replay"
        )
        return result
