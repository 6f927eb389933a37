"""Webhooks over the API."""

import asyncio
from typing import Any, Literal, cast

from msgspec import Struct

from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.api.shapes import Event, Moment
from appliance.core.clock import iso
from appliance.sending.delivery import safe_http
from appliance.storage import models
from appliance.storage.work import call, commit
from appliance.webhooks import deliveries, store, trial
from appliance.webhooks.deliveries import DeliveryQuery, ReplayFailed, Status
from appliance.webhooks.outcomes import Outcome
from appliance.webhooks.store import WebhookPatch, WebhookQuery, WebhookWrite
from appliance.webhooks.trial import WebhookTest

# Shapes of webhooks.


class Webhook(Struct):
    """An address that gets events; `events` is empty where it gets all."""

    id: int
    account_id: int
    url: str
    events: list[str]
    enabled: bool
    pending_count: int
    failing_since: Moment | None
    disabled_at: Moment | None
    disabled_reason: Literal["failing", "gone"] | None
    old_secret_until: Moment | None
    created_at: Moment
    updated_at: Moment


class WebhookWithSecret(Webhook):
    """A webhook whose secret was just made; it is shown this once."""

    secret: str


class WebhookDelivery(Struct):
    """One event on its way to one webhook, and what came of the last attempt; `event` is null once it is not kept."""

    id: int
    webhook_id: int
    event_id: int
    event: str | None
    status: Status
    attempts: int
    response_status: int | None
    response_text: str | None
    error: str | None
    duration_ms: int | None
    next_attempt_at: Moment | None
    last_attempt_at: Moment | None
    created_at: Moment
    updated_at: Moment


class WebhookTested(Struct):
    """What a webhook answered to an invented event."""

    ok: bool
    response_status: int | None
    response_text: str | None
    error: str | None
    duration_ms: int | None
    event: Event


class Replayed(Struct):
    """How many deliveries are sent once more."""

    replayed: int


def _values(row: models.Webhook) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "url": row.url, "events": row.events, "enabled": row.enabled,
        "pending_count": row.pending_count, "failing_since": iso(row.failing_since),
        "disabled_at": iso(row.disabled_at), "disabled_reason": row.disabled_reason,
        "old_secret_until": iso(row.old_secret_until), "created_at": str(iso(row.created_at)),
        "updated_at": str(iso(row.updated_at)),
    }  # fmt: skip


def webhook(row: models.Webhook) -> Webhook:
    """Shape a webhook."""
    return Webhook(**_values(row))


def with_secret(row: models.Webhook, secret: str) -> WebhookWithSecret:
    """Shape a webhook with the secret that nobody will see again."""
    return WebhookWithSecret(**_values(row), secret=secret)


def delivery(row: models.WebhookDelivery) -> WebhookDelivery:
    """Shape a delivery read with the name of its event."""
    return WebhookDelivery(
        row.id, row.webhook_id, row.event_id, row.event, cast(Status, row.status), row.attempts, row.response_status,
        row.response_text, row.error, row.duration_ms, iso(row.next_attempt_at), iso(row.last_attempt_at),
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


def shape_trial(outcome: Outcome, event: Event) -> WebhookTested:
    """Shape what came of a trial."""
    return WebhookTested(outcome.good, outcome.status, outcome.text, outcome.error, outcome.duration_ms, event)


ROUTES = Routes()
_ONE = "/webhooks/{id}"
_DELIVERIES = f"{_ONE}/deliveries"


@ROUTES.add("GET", "/webhooks", scope="account:read", query=WebhookQuery, returns=Webhook, many=True)
async def index(request: Call) -> Answer:
    """List webhooks, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([webhook(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/webhooks",
    scope="account:write",
    reads=WebhookWrite,
    inside=checked(store.check),
    returns=WebhookWithSecret,
    status=201,
)
async def create(request: Call) -> Answer:
    """Create a webhook; the answer alone shows its secret."""
    made, secret = await commit(store.create, request.account_id, request.body, request.by)
    return Answer(with_secret(made, secret))


@ROUTES.add("GET", _ONE, scope="account:read", returns=Webhook)
async def show(request: Call) -> Answer:
    """Get a webhook."""
    return Answer(webhook(await call(store.get, request.account_id, request.id)))


@ROUTES.add("PATCH", _ONE, scope="account:write", reads=WebhookPatch, inside=checked(store.check), returns=Webhook)
async def update(request: Call) -> Answer:
    """Update a webhook; one that is switched on again hears of what happens from then on."""
    changed = await commit(store.update, request.account_id, request.id, request.body, request.by)
    return Answer(webhook(changed))


@ROUTES.add("DELETE", _ONE, scope="account:write", returns=Webhook)
async def delete(request: Call) -> Answer:
    """Delete a webhook with its log; nothing more is sent to it."""
    return Answer(webhook(await commit(store.delete, request.account_id, request.id, request.by)))


@ROUTES.add("POST", f"{_ONE}/rotate_secret", scope="account:write", returns=WebhookWithSecret)
async def rotate_secret(request: Call) -> Answer:
    """Give a webhook another secret; the one before signs along for 24 hours."""
    changed, secret = await commit(store.rotate_secret, request.account_id, request.id, request.by)
    return Answer(with_secret(changed, secret))


@ROUTES.add(
    "POST", f"{_ONE}/test", scope="account:write", reads=WebhookTest, body_required=False, returns=WebhookTested,
    inside=checked(trial.check),
)  # fmt: skip
async def test(request: Call) -> Answer:
    """Send an invented event now, and tell what was answered."""
    webhook, event = await call(trial.prepare, request.account_id, request.id, request.body)
    await asyncio.to_thread(safe_http.load)
    outcome = await trial.send(webhook, event)
    return Answer(shape_trial(outcome, event))


@ROUTES.add("POST", f"{_ONE}/replay_failed", scope="account:write", reads=ReplayFailed, body_required=False,
            returns=Replayed)  # fmt: skip
async def replay_failed(request: Call) -> Answer:
    """Send everything once more that was given up."""
    count = bite = await commit(deliveries.replay_failed, request.account_id, request.id, request.body)
    while bite == deliveries.BITE:
        bite = await commit(deliveries.replay_failed, request.account_id, request.id, request.body)
        count += bite
    return Answer(Replayed(count))


@ROUTES.add("GET", _DELIVERIES, scope="account:read", query=DeliveryQuery, returns=WebhookDelivery, many=True)
async def log(request: Call) -> Answer:
    """List what was sent to a webhook and what it answered, newest events first."""
    page = await call(deliveries.page, request.account_id, request.id, request.query)
    return Answer([delivery(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", f"{_DELIVERIES}/{{delivery_id}}", scope="account:read", returns=WebhookDelivery)
async def show_delivery(request: Call) -> Answer:
    """Get a delivery."""
    return Answer(delivery(await call(deliveries.get, request.account_id, request.id, request.inner)))


@ROUTES.add("POST", f"{_DELIVERIES}/{{delivery_id}}/replay", scope="account:write", returns=WebhookDelivery)
async def replay(request: Call) -> Answer:
    """Send a delivery once more, with the same `webhook-id`."""
    return Answer(delivery(await commit(deliveries.replay, request.account_id, request.id, request.inner)))
