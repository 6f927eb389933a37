"""Webhooks over the API."""

import asyncio

from appliance.api import webhook_shapes as shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import page_headers
from appliance.db.work import call, commit
from appliance.delivery import safe_http
from appliance.webhooks import deliveries, store, trial
from appliance.webhooks.deliveries import DeliveryQuery, ReplayFailed
from appliance.webhooks.store import WebhookPatch, WebhookQuery, WebhookWrite
from appliance.webhooks.trial import WebhookTest

ROUTES = Routes()
_ONE = "/webhooks/{id}"
_DELIVERIES = f"{_ONE}/deliveries"


@ROUTES.add("GET", "/webhooks", scope="account:read", query=WebhookQuery, returns=shapes.Webhook, many=True)
async def index(request: Call) -> Answer:
    """List webhooks, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([shapes.webhook(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/webhooks",
    scope="account:write",
    reads=WebhookWrite,
    inside=checked(store.check),
    returns=shapes.WebhookWithSecret,
    status=201,
)
async def create(request: Call) -> Answer:
    """Create a webhook; the answer alone shows its secret."""
    made, secret = await commit(store.create, request.account_id, request.body, request.by)
    return Answer(shapes.with_secret(made, secret))


@ROUTES.add("GET", _ONE, scope="account:read", returns=shapes.Webhook)
async def show(request: Call) -> Answer:
    """Get a webhook."""
    return Answer(shapes.webhook(await call(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH", _ONE, scope="account:write", reads=WebhookPatch, inside=checked(store.check), returns=shapes.Webhook
)
async def update(request: Call) -> Answer:
    """Update a webhook; one that is switched on again hears of what happens from then on."""
    changed = await commit(store.update, request.account_id, request.id, request.body, request.by)
    return Answer(shapes.webhook(changed))


@ROUTES.add("DELETE", _ONE, scope="account:write", returns=shapes.Webhook)
async def delete(request: Call) -> Answer:
    """Delete a webhook with its log; nothing more is sent to it."""
    return Answer(shapes.webhook(await commit(store.delete, request.account_id, request.id, request.by)))


@ROUTES.add("POST", f"{_ONE}/rotate_secret", scope="account:write", returns=shapes.WebhookWithSecret)
async def rotate_secret(request: Call) -> Answer:
    """Give a webhook another secret; the one before signs along for 24 hours."""
    changed, secret = await commit(store.rotate_secret, request.account_id, request.id, request.by)
    return Answer(shapes.with_secret(changed, secret))


@ROUTES.add(
    "POST", f"{_ONE}/test", scope="account:write", reads=WebhookTest, body_required=False, returns=shapes.WebhookTested,
    inside=checked(trial.check),
)  # fmt: skip
async def test(request: Call) -> Answer:
    """Send an invented event now, and tell what was answered."""
    webhook, event = await call(trial.prepare, request.account_id, request.id, request.body)
    await asyncio.to_thread(safe_http.load)
    outcome = await trial.send(webhook, event)
    return Answer(shapes.tested(outcome, event))


@ROUTES.add("POST", f"{_ONE}/replay_failed", scope="account:write", reads=ReplayFailed, body_required=False,
            returns=shapes.Replayed)  # fmt: skip
async def replay_failed(request: Call) -> Answer:
    """Send everything once more that was given up."""
    count = bite = await commit(deliveries.replay_failed, request.account_id, request.id, request.body)
    while bite == deliveries.BITE:
        bite = await commit(deliveries.replay_failed, request.account_id, request.id, request.body)
        count += bite
    return Answer(shapes.Replayed(count))


@ROUTES.add("GET", _DELIVERIES, scope="account:read", query=DeliveryQuery, returns=shapes.WebhookDelivery, many=True)
async def log(request: Call) -> Answer:
    """List what was sent to a webhook and what it answered, newest events first."""
    page = await call(deliveries.page, request.account_id, request.id, request.query)
    return Answer([shapes.delivery(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", f"{_DELIVERIES}/{{delivery_id}}", scope="account:read", returns=shapes.WebhookDelivery)
async def show_delivery(request: Call) -> Answer:
    """Get a delivery."""
    return Answer(shapes.delivery(await call(deliveries.get, request.account_id, request.id, request.inner)))


@ROUTES.add("POST", f"{_DELIVERIES}/{{delivery_id}}/replay", scope="account:write", returns=shapes.WebhookDelivery)
async def replay(request: Call) -> Answer:
    """Send a delivery once more, with the same `webhook-id`."""
    return Answer(shapes.delivery(await commit(deliveries.replay, request.account_id, request.id, request.inner)))
