"""Endpoints of webhooks and their deliveries."""

import asyncio
from typing import Annotated, Any, Literal, cast

from msgspec import UNSET, Meta, Struct

from appliance.accounts.access import FULL_SCOPE
from appliance.api.auth import require_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import ApiError, page_headers
from appliance.api.schemas import Moment, RecordedEvent
from appliance.core.clock import iso
from appliance.sending.delivery import safe_http
from appliance.storage import models
from appliance.storage.transactions import commit, fetch
from appliance.webhooks import queue, subscriptions, worker
from appliance.webhooks.queue import DeliveryQuery, Outcome, ReplayFailedRequest, Status
from appliance.webhooks.subscriptions import WebhookPatch, WebhookQuery, WebhookWrite
from appliance.webhooks.worker import WebhookTest


class Webhook(Struct):
    """A URL to which events are posted. An empty `events` means all events."""

    id: int
    account_id: int
    url: Annotated[str, Meta(description="URL to which events are posted")]
    events: Annotated[list[str], Meta(description="names of the events to send; empty for all")]
    enabled: Annotated[bool, Meta(description="whether events are sent to the webhook")]
    pending_count: Annotated[int, Meta(description="number of deliveries that wait or are in progress")]
    failing_since: (
        Annotated[Moment, Meta(description="since when all deliveries have failed; null if the last one succeeded")]
        | None
    )
    disabled_at: Annotated[Moment, Meta(description="when the service disabled the webhook")] | None
    disabled_reason: Annotated[Literal["failing", "gone"], Meta(description="reason")] | None
    old_secret_until: (
        Annotated[Moment, Meta(description="until when the previous secret also signs; null if it does not")] | None
    )
    created_at: Moment
    updated_at: Moment


class WebhookWithSecret(Webhook):
    """A webhook with its new secret, which is shown once."""

    secret: Annotated[str, Meta(description="secret with which deliveries are signed, shown in this response only")]


class WebhookDelivery(Struct):
    """The delivery of one event to one webhook, with the response to the last attempt."""

    id: int
    webhook_id: Annotated[int, Meta(description="id of the webhook")]
    event_id: Annotated[int, Meta(description="id of the event")]
    event: Annotated[str, Meta(description="name of the event; null once the event is deleted")] | None
    status: Annotated[Status, Meta(description="status")]
    attempts: Annotated[int, Meta(description="number of attempts")]
    response_status: Annotated[int, Meta(description="response status; null if there was no response")] | None
    response_text: Annotated[str, Meta(description="beginning of the response body")] | None
    error: Annotated[str, Meta(description="why there was no response; null if there was one")] | None
    duration_ms: Annotated[int, Meta(description="duration in milliseconds")] | None
    next_attempt_at: Annotated[Moment, Meta(description="time of the next attempt; null if there is none")] | None
    last_attempt_at: Annotated[Moment, Meta(description="time of the last attempt; null if there was none")] | None
    created_at: Moment
    updated_at: Moment


class WebhookTestResult(Struct):
    """The response of a webhook to a sample event."""

    ok: Annotated[bool, Meta(description="true if the delivery was accepted")]
    response_status: Annotated[int, Meta(description="response status; null if there was no response")] | None
    response_text: Annotated[str, Meta(description="beginning of the response body")] | None
    error: Annotated[str, Meta(description="why there was no response; null if there was one")] | None
    duration_ms: Annotated[int, Meta(description="duration in milliseconds")] | None
    event: Annotated[RecordedEvent, Meta(description="sample event that was sent")]


class WebhookReplayResult(Struct):
    """The result of sending failed deliveries again."""

    replayed: Annotated[int, Meta(description="number of deliveries to repeat")]


def _webhook_values(row: models.Webhook) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "url": row.url, "events": row.events, "enabled": row.enabled,
        "pending_count": row.pending_count, "failing_since": iso(row.failing_since),
        "disabled_at": iso(row.disabled_at), "disabled_reason": row.disabled_reason,
        "old_secret_until": iso(row.old_secret_until), "created_at": str(iso(row.created_at)),
        "updated_at": str(iso(row.updated_at)),
    }  # fmt: skip


def serialize_webhook(row: models.Webhook) -> Webhook:
    """Return the API representation of a webhook without its secret."""
    return Webhook(**_webhook_values(row))


def serialize_webhook_with_secret(row: models.Webhook, secret: str) -> WebhookWithSecret:
    """Return the API representation of a webhook with its new secret."""
    return WebhookWithSecret(**_webhook_values(row), secret=secret)


def serialize_delivery(row: models.WebhookDelivery) -> WebhookDelivery:
    """Return the API representation of a delivery, whose row must be loaded with the name of its event."""
    return WebhookDelivery(
        row.id, row.webhook_id, row.event_id, row.event, cast(Status, row.status), row.attempts, row.response_status,
        row.response_text, row.error, row.duration_ms, iso(row.next_attempt_at), iso(row.last_attempt_at),
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


def serialize_test(test_result: Outcome, event: RecordedEvent) -> WebhookTestResult:
    """Return the API representation of a test's result; `event` is the sample event that was sent."""
    return WebhookTestResult(
        test_result.is_delivered,
        test_result.status,
        test_result.text,
        test_result.error,
        test_result.duration_ms,
        event,
    )


def _require_events_scope(request: ApiRequest) -> None:
    """Raise a 403 error for a request that has events posted, unless its credential may read all of them.

    Events say what contacts did, with its data. Whoever chooses the URL reads them (T45 in docs/threats.md). A test key
    may not, because a webhook gets the events of live messages as well.
    """
    require_scope(request.credential, "events:read")
    if request.credential.is_test:
        raise ApiError(403, "forbidden", "A test key may not have events posted, because they include live ones.")


ROUTES = Routes()
_WEBHOOK_PATH = "/webhooks/{id}"
_DELIVERIES_PATH = f"{_WEBHOOK_PATH}/deliveries"


@ROUTES.add("GET", "/webhooks", scope="account:read", query_type=WebhookQuery, response_type=Webhook, returns_list=True)
async def list_webhooks(request: ApiRequest) -> ApiResponse:
    """List webhooks, newest first."""
    page = await fetch(subscriptions.list_webhooks, request.account_id, request.query)
    return ApiResponse([serialize_webhook(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/webhooks",
    scope="account:write",
    body_type=WebhookWrite,
    validate=validator(subscriptions.validate),
    response_type=WebhookWithSecret,
    status=201,
)
async def create_webhook(request: ApiRequest) -> ApiResponse:
    """Create a webhook. Its secret is shown once.

    Also requires `events:read`. A test key may not create a webhook.
    """
    _require_events_scope(request)
    webhook, secret = await commit(subscriptions.create, request.account_id, request.body, request.caller)
    return ApiResponse(serialize_webhook_with_secret(webhook, secret))


@ROUTES.add("GET", _WEBHOOK_PATH, scope="account:read", response_type=Webhook)
async def get_webhook(request: ApiRequest) -> ApiResponse:
    """Get a webhook."""
    return ApiResponse(serialize_webhook(await fetch(subscriptions.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    _WEBHOOK_PATH,
    scope="account:write",
    body_type=WebhookPatch,
    validate=validator(subscriptions.validate),
    response_type=Webhook,
)
async def update_webhook(request: ApiRequest) -> ApiResponse:
    """Update a webhook. A webhook that is enabled again gets only events from then on.

    Any change but `"enabled": false` also requires `events:read`, and no test key may make it.
    """
    patch: WebhookPatch = request.body
    if (patch.url, patch.events) != (UNSET, UNSET) or patch.enabled not in (UNSET, False):
        _require_events_scope(request)
    webhook = await commit(subscriptions.update, request.account_id, request.id, request.body, request.caller)
    return ApiResponse(serialize_webhook(webhook))


@ROUTES.add("DELETE", _WEBHOOK_PATH, scope="account:write", response_type=Webhook)
async def delete_webhook(request: ApiRequest) -> ApiResponse:
    """Delete a webhook with its delivery log."""
    return ApiResponse(
        serialize_webhook(await commit(subscriptions.delete, request.account_id, request.id, request.caller))
    )


@ROUTES.add("POST", f"{_WEBHOOK_PATH}/rotate_secret", scope="account:write", response_type=WebhookWithSecret)
async def rotate_webhook_secret(request: ApiRequest) -> ApiResponse:
    """Rotate the secret of a webhook; the previous secret also signs for 24 hours."""
    webhook, secret = await commit(subscriptions.rotate_secret, request.account_id, request.id, request.caller)
    return ApiResponse(serialize_webhook_with_secret(webhook, secret))


@ROUTES.add(
    "POST",
    f"{_WEBHOOK_PATH}/test",
    scope="account:write",
    body_type=WebhookTest,
    body_required=False,
    response_type=WebhookTestResult,
    validate=validator(worker.validate_test),
)
async def test_webhook(request: ApiRequest) -> ApiResponse:
    """Send a sample event now and return the response."""
    webhook, event = await fetch(worker.prepare_test, request.account_id, request.id, request.body)
    await asyncio.to_thread(safe_http.preload)
    test_result = await worker.send_test(webhook, event)
    return ApiResponse(serialize_test(test_result, event))


@ROUTES.add("POST", f"{_WEBHOOK_PATH}/replay_failed", scope="account:write", body_type=ReplayFailedRequest,
            body_required=False, response_type=WebhookReplayResult)  # fmt: skip
async def replay_failed_webhook_deliveries(request: ApiRequest) -> ApiResponse:
    """Send the failed deliveries again, or only those created since a time.

    Also requires `events:read`, and no test key may do it.
    """
    _require_events_scope(request)
    count = batch_count = await commit(queue.replay_failed, request.account_id, request.id, request.body)
    while batch_count == queue.REPLAY_BATCH_SIZE:
        batch_count = await commit(queue.replay_failed, request.account_id, request.id, request.body)
        count += batch_count
    return ApiResponse(WebhookReplayResult(count))


@ROUTES.add(
    "GET",
    _DELIVERIES_PATH,
    scope="account:read",
    user_scope=FULL_SCOPE,
    query_type=DeliveryQuery,
    response_type=WebhookDelivery,
    returns_list=True,
)
async def list_webhook_deliveries(request: ApiRequest) -> ApiResponse:
    """List deliveries of a webhook with their responses, newest events first."""
    page = await fetch(queue.list_deliveries, request.account_id, request.id, request.query)
    return ApiResponse([serialize_delivery(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "GET",
    f"{_DELIVERIES_PATH}/{{delivery_id}}",
    scope="account:read",
    user_scope=FULL_SCOPE,
    response_type=WebhookDelivery,
)
async def get_webhook_delivery(request: ApiRequest) -> ApiResponse:
    """Get a delivery."""
    return ApiResponse(
        serialize_delivery(await fetch(queue.get_delivery, request.account_id, request.id, request.inner_id))
    )


@ROUTES.add("POST", f"{_DELIVERIES_PATH}/{{delivery_id}}/replay", scope="account:write", response_type=WebhookDelivery)
async def replay_webhook_delivery(request: ApiRequest) -> ApiResponse:
    """Send a delivery again with the same `webhook-id`.

    Also requires `events:read`, and no test key may do it.
    """
    _require_events_scope(request)
    return ApiResponse(serialize_delivery(await commit(queue.replay, request.account_id, request.id, request.inner_id)))
