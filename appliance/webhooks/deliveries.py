"""List and replay the deliveries of a webhook, and send test events to the webhook."""

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, json

from appliance.core import clock, signals
from appliance.core.errors import Invalid, NotFound
from appliance.core.validation import EventId, PageQuery, Short, When
from appliance.events import listing, log
from appliance.storage.database import Page, paginate, rows, run
from appliance.storage.models import Event, Webhook, WebhookDelivery
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.webhooks import subscriptions, worker
from appliance.webhooks.queue import DueDelivery, Outcome
from appliance.webhooks.subscriptions import EncryptedSecrets
from appliance.webhooks.worker import Target

Status = Literal["pending", "delivered", "failed", "cancelled"]
# The number of rows that one transaction changes, so few that other writers do not wait long.
REPLAY_BATCH_SIZE = 1_000
WEBHOOK_DISABLED = "the webhook is switched off"


class DeliveryQuery(PageQuery):
    """Query parameters of the list of a webhook's deliveries."""

    status: Annotated[Status, Meta(description="only those with this status")] | UnsetType = UNSET
    event: Annotated[Short, Meta(description="only deliveries of events with this name")] | UnsetType = UNSET
    event_id: Annotated[EventId, Meta(description="only deliveries of this event")] | UnsetType = UNSET


class ReplayFailed(Struct):
    """A request to replay the failed deliveries of a webhook: all of them, or only those created since a time."""

    since: Annotated[When, Meta(description="only deliveries created since then; default: all")] | None | UnsetType = (
        UNSET
    )


def list_deliveries(account_id: int, webhook_id: int, query: DeliveryQuery) -> Page:
    """Return a page of a webhook's deliveries that match the query, deliveries of the newest events first.

    Raises NotFound if the webhook does not exist.
    """
    subscriptions.get(account_id, webhook_id)
    deliveries = WebhookDelivery.select().where(WebhookDelivery.webhook == webhook_id)
    if query.status is not UNSET:
        deliveries = deliveries.where(WebhookDelivery.status == query.status)
    if query.event_id is not UNSET:
        deliveries = deliveries.where(WebhookDelivery.event_id == query.event_id)
    if query.event is not UNSET:
        deliveries = deliveries.join(Event, on=(Event.id == WebhookDelivery.event_id)).where(Event.event == query.event)
    # Ids of events follow the order of the event log.
    page = paginate(deliveries.order_by(WebhookDelivery.event_id.desc()), query.page, query.size())
    return page._replace(rows=_with_event_names(page.rows))


def get(account_id: int, webhook_id: int, delivery_id: int) -> WebhookDelivery:
    """Return a delivery of a webhook, with the name of its event. Raises NotFound if either does not exist."""
    subscriptions.get(account_id, webhook_id)
    delivery = WebhookDelivery.get_or_none(WebhookDelivery.webhook == webhook_id, WebhookDelivery.id == delivery_id)
    if delivery is None:
        raise NotFound
    return _with_event_names([delivery])[0]


def _with_event_names(deliveries: Sequence[WebhookDelivery]) -> list[WebhookDelivery]:
    """Set `event` of each delivery to the name of its event, or None if the event was pruned."""
    ids = json.encode([delivery.event_id for delivery in deliveries]).decode()
    names = dict(rows("SELECT id, event FROM event WHERE id IN (SELECT value FROM json_each(?))", (ids,)))
    for delivery in deliveries:
        delivery.event = names.get(delivery.event_id)
    return list(deliveries)


def replay(account_id: int, webhook_id: int, delivery_id: int) -> WebhookDelivery:
    """Requeue a delivery, whatever its status, as due now and not attempted yet, and return the delivery.

    Raises NotFound if the webhook or the delivery does not exist, and Invalid if the event was pruned or the webhook is
    disabled.
    """
    require_write_transaction()
    delivery = get(account_id, webhook_id, delivery_id)
    if delivery.event is None:
        raise Invalid({"base": ["the event is not kept any more"]})
    _require_enabled(webhook_id)
    now = clock.now_ms()
    run(
        "UPDATE webhook_delivery SET status = 'pending', attempts = 0, next_attempt_at = ?, updated_at = ? "
        "WHERE id = ?",
        (now, now, delivery_id),
    )
    after_commit(lambda: signals.wake("webhooks"))
    return get(account_id, webhook_id, delivery_id)


def replay_failed(account_id: int, webhook_id: int, request: ReplayFailed) -> int:
    """Requeue up to `REPLAY_BATCH_SIZE` failed deliveries, only those created since `request.since` if given.

    Return their number. Raises NotFound if the webhook does not exist, and Invalid if the webhook is disabled.
    """
    require_write_transaction()
    subscriptions.get(account_id, webhook_id)
    _require_enabled(webhook_id)
    since = request.since if isinstance(request.since, int) else 0
    now = clock.now_ms()
    count = run(
        "UPDATE webhook_delivery SET status = 'pending', attempts = 0, next_attempt_at = ?, updated_at = ? "
        "WHERE id IN (SELECT id FROM webhook_delivery WHERE webhook_id = ? AND status = 'failed' AND created_at >= ? "
        "ORDER BY event_id LIMIT ?)",
        (now, now, webhook_id, since, REPLAY_BATCH_SIZE),
    )
    after_commit(lambda: signals.wake("webhooks"))
    return count


def _require_enabled(webhook_id: int) -> None:
    if not Webhook.get_by_id(webhook_id).enabled:
        raise Invalid({"base": [WEBHOOK_DISABLED]})


# Test events show at once how the receiver responds.

_DEFAULT_EVENT = "contact_update"


class WebhookTest(Struct):
    """A request to send a test event to a webhook."""

    event: (
        Annotated[
            str,
            Meta(max_length=64),
            Meta(description="name of the event to send; default: one to which the webhook subscribes"),
        ]
        | None
        | UnsetType
    ) = UNSET


def validate_test(_: int, request: WebhookTest, __: int) -> None:
    """Raise Invalid if the requested event name is malformed; the ids of account and webhook are not used."""
    if isinstance(request.event, str) and log.find_name_error(request.event) == "is invalid":
        raise Invalid({"event": ["is invalid"]})


def prepare_test(account_id: int, webhook_id: int, request: WebhookTest) -> tuple[Webhook, listing.Event]:
    """Return a webhook and a test event with the requested name.

    Without a requested name, the test event has the name of the first event that the webhook subscribes to. Raises
    NotFound if the webhook does not exist, and Invalid if the name is malformed.
    """
    webhook = subscriptions.get(account_id, webhook_id)
    validate_test(account_id, request, webhook_id)
    name = request.event if isinstance(request.event, str) else (webhook.events or [_DEFAULT_EVENT])[0]
    now = clock.now_ms()
    values: dict[str, Any] = {
        "id": 0, "account": account_id, "event": name, "data": {"webhook_test": True}, "test": True,
        "generated": True, "created_at": now, "updated_at": now,
    }  # fmt: skip
    return webhook, listing.shape_event(Event(**values))


async def send_test(webhook: Webhook, event: listing.Event) -> Outcome:
    """Post a test event once and return the outcome; nothing is stored, and the webhook does not count as failing."""
    encrypted = EncryptedSecrets(webhook.account_id, webhook.secret, webhook.old_secret, webhook.old_secret_until)
    target = Target(webhook.url, encrypted)
    return await worker.post_event(DueDelivery(0, webhook.id, 0, 0), target, event, f"test_{secrets.token_hex(8)}")
