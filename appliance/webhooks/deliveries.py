"""The log of deliveries: what was sent to a webhook, what was answered, and sending it once more."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, json

from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid, NotFound
from appliance.core.fields import EventId, PageQuery, Short, When
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Event, Webhook, WebhookDelivery
from appliance.storage.open import rows, run
from appliance.storage.work import after_commit, writing
from appliance.webhooks import store

Status = Literal["pending", "delivered", "failed", "cancelled"]
# So many rows are changed in one transaction, that nobody else waits for long
BITE = 1_000
OFF = "the webhook is switched off"


class DeliveryQuery(PageQuery):
    """How deliveries of a webhook are asked for."""

    status: Status | UnsetType = UNSET
    event: Short | UnsetType = UNSET
    event_id: EventId | UnsetType = UNSET


class ReplayFailed(Struct):
    """Which of the given-up deliveries are sent once more: those made since a moment, by default all."""

    since: When | None | UnsetType = UNSET


def page(account_id: int, webhook_id: int, query: DeliveryQuery) -> Page:
    """List deliveries, those of the newest events first; raises NotFound."""
    store.get(account_id, webhook_id)
    found = WebhookDelivery.select().where(WebhookDelivery.webhook == webhook_id)
    if query.status is not UNSET:
        found = found.where(WebhookDelivery.status == query.status)
    if query.event_id is not UNSET:
        found = found.where(WebhookDelivery.event_id == query.event_id)
    if query.event is not UNSET:
        found = found.join(Event, on=(Event.id == WebhookDelivery.event_id)).where(Event.event == query.event)
    # In the order of the events, which is that of the rows: they are written behind the log
    result = paginate(found.order_by(WebhookDelivery.event_id.desc()), query.page, query.size())
    return result._replace(rows=_named(result.rows))


def get(account_id: int, webhook_id: int, delivery_id: int) -> WebhookDelivery:
    """Return a delivery; raises NotFound."""
    store.get(account_id, webhook_id)
    found = WebhookDelivery.get_or_none(WebhookDelivery.webhook == webhook_id, WebhookDelivery.id == delivery_id)
    if found is None:
        raise NotFound
    return _named([found])[0]


def _named(found: Sequence[WebhookDelivery]) -> list[WebhookDelivery]:
    """Give deliveries the name of their event, for as long as that is kept."""
    ids = json.encode([one.event_id for one in found]).decode()
    names = dict(rows("SELECT id, event FROM event WHERE id IN (SELECT value FROM json_each(?))", (ids,)))
    for one in found:
        one.event = names.get(one.event_id)
    return list(found)


def replay(account_id: int, webhook_id: int, delivery_id: int) -> WebhookDelivery:
    """Send a delivery once more, now, whatever became of it; raises NotFound, or Invalid if it cannot be."""
    writing()
    found = get(account_id, webhook_id, delivery_id)
    if found.event is None:
        raise Invalid({"base": ["the event is not kept any more"]})
    _must_be_on(webhook_id)
    now = clock.now_ms()
    run(
        "UPDATE webhook_delivery SET status = 'pending', attempts = 0, next_attempt_at = ?, updated_at = ? "
        "WHERE id = ?",
        (now, now, delivery_id),
    )
    after_commit(lambda: wake_ups.ring("webhooks"))
    return get(account_id, webhook_id, delivery_id)


def replay_failed(account_id: int, webhook_id: int, request: ReplayFailed) -> int:
    """Send a bite of what was given up once more, and answer how many those are; raises NotFound, or Invalid."""
    writing()
    store.get(account_id, webhook_id)
    _must_be_on(webhook_id)
    since = request.since if isinstance(request.since, int) else 0
    now = clock.now_ms()
    count = run(
        "UPDATE webhook_delivery SET status = 'pending', attempts = 0, next_attempt_at = ?, updated_at = ? "
        "WHERE id IN (SELECT id FROM webhook_delivery WHERE webhook_id = ? AND status = 'failed' AND created_at >= ? "
        "ORDER BY event_id LIMIT ?)",
        (now, now, webhook_id, since, BITE),
    )
    after_commit(lambda: wake_ups.ring("webhooks"))
    return count


def _must_be_on(webhook_id: int) -> None:
    if not Webhook.get_by_id(webhook_id).enabled:
        raise Invalid({"base": [OFF]})
