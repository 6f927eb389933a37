"""The queue of deliveries: create, list, replay and prune deliveries, record outcomes, and disable failing webhooks."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, json

from appliance.accounts import audit, members, users
from appliance.core import addresses, clock, i18n, signals
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import EventId, PageQuery, Short, When
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage.database import Page, fetch_one, paginate, rows, run, scalar
from appliance.storage.models import Event, Webhook, WebhookDelivery
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.webhooks import subscriptions

# A disabled webhook is announced by an event, an audit entry and an email to the owners.

DISABLED_EVENT = "webhook_disabled"
_DISABLED_TEXTS = {
    "failing": gettext_noop(
        "The webhook to %(host)s was turned off because it has failed since %(date)s. Its events are kept. "
        "Fix the endpoint, then turn the webhook on again."
    ),
    "gone": gettext_noop(
        "The webhook to %(host)s was turned off because the server responded with 410 (permanently gone). "
        "Its events are kept. Fix the endpoint, then turn the webhook on again."
    ),
}


def announce_disabled(webhook_id: int) -> None:
    """Record an event and an audit entry that a webhook was disabled, and queue an email to each active owner."""
    require_write_transaction()
    webhook = Webhook.get_by_id(webhook_id)
    host = subscriptions.webhook_host(webhook)
    since = str(clock.iso(webhook.failing_since))
    data = {"webhook_id": webhook_id, "reason": webhook.disabled_reason, "failing_since": since}
    log.record(
        NewEvent(
            webhook.account_id, DISABLED_EVENT, data=data, resource_uid=f"webhook:{webhook_id}", resource_name=host
        )
    )
    audit.insert_entry(webhook.account_id, audit.SYSTEM, DISABLED_EVENT, f"webhook:{webhook_id}", data)
    for owner in members.list_active(webhook.account_id, ("owner",)):
        with i18n.use_language(users.choose_language(owner, webhook.account)):
            email, since_date = _build_disabled_email(webhook), _format_failing_since(webhook)
        system_emails.queue_system_email(
            webhook.account, addresses.parse_email(owner.email), None, email, {"host": host, "since": since_date}
        )


def _build_disabled_email(webhook: Webhook) -> SystemEmail:
    return SystemEmail(
        subject=gettext("A webhook was turned off"),
        heading=gettext("A webhook was turned off"),
        text=gettext(_DISABLED_TEXTS[str(webhook.disabled_reason)], host="{{ data.host }}", date="{{ data.since }}"),
        button=gettext("Open webhook"),
        link=f"{config.base_url(config.current())}/settings/webhooks/{webhook.id}",
        note=gettext("Failed deliveries can be sent again from the page of the webhook."),
        language=i18n.get_language_tag(),
    )


def _format_failing_since(webhook: Webhook) -> str:
    """Return the date of the first failure in the current language and the account's time zone."""
    zone = clock.find_time_zone(webhook.account.time_zone) or UTC
    return i18n.format_full_date(datetime.fromtimestamp((webhook.failing_since or clock.now_ms()) / 1000, zone))


# 30 s, 1, 2, 5, 15 and 30 min, 1, 2, 6 and 24 h (docs/decisions.md#13)
RETRY_DELAYS_MS = tuple(1000 * seconds for seconds in (30, 60, 120, 300, 900, 1800, 3600, 7200, 21_600, 86_400))
_DISABLE_AFTER_MS = 3 * clock.DAY_MS
# Longer than any retry delay: after a gap of this length, a failure begins a new series of failures.
_MAX_FAILURE_GAP_MS = 30 * 3_600_000
_HTTP_GONE = 410


class DueDelivery(NamedTuple):
    """A delivery to attempt; `attempts` is the number of earlier attempts."""

    id: int
    webhook_id: int
    event_id: int
    attempts: int


class Outcome(NamedTuple):
    """The outcome of an attempt: HTTP status and text of the response, or the error if there was no response."""

    delivery: DueDelivery
    status: int | None = None
    text: str | None = None
    error: str | None = None
    duration_ms: int | None = None
    retry_after_ms: int = 0
    is_cancelled: bool = False  # nothing was sent, and no later attempt can succeed

    @property
    def is_delivered(self) -> bool:
        """Return whether the receiver accepted the event with a 2xx status."""
        return self.status is not None and 200 <= self.status < 300


def record_outcomes(outcomes: Sequence[Outcome], updates_webhooks: bool = True) -> None:
    """Write the outcomes of attempts to their deliveries.

    With `updates_webhooks`, also track which webhooks fail, and disable webhooks that fail for too long or respond with
    status 410.
    """
    require_write_transaction()
    now = clock.now_ms()
    for outcome in outcomes:
        status, retry_at = _next_state(outcome, now)
        # The condition leaves out a delivery that was replayed meanwhile, to which this outcome does not apply.
        changed = run(
            "UPDATE webhook_delivery SET status = ?, attempts = attempts + 1, response_status = ?, response_text = ?, "
            "error = ?, duration_ms = ?, next_attempt_at = ?, last_attempt_at = ?, updated_at = ? "
            "WHERE id = ? AND status = 'pending' AND attempts = ?",
            (
                status, outcome.status, outcome.text, outcome.error, outcome.duration_ms, retry_at, now, now,
                outcome.delivery.id, outcome.delivery.attempts,
            ),
        )  # fmt: skip
        if updates_webhooks and changed and not outcome.is_cancelled:
            _update_webhook(outcome, now)


def _next_state(outcome: Outcome, now: int) -> tuple[str, int | None]:
    """Return the new status of a delivery, and the time of its next attempt in ms, or None for no further attempt."""
    if outcome.is_delivered:
        return "delivered", None
    if outcome.is_cancelled:
        return "cancelled", None
    if outcome.delivery.attempts >= len(RETRY_DELAYS_MS):
        return "failed", None
    delay = RETRY_DELAYS_MS[outcome.delivery.attempts]
    return "pending", now + min(max(delay, outcome.retry_after_ms), RETRY_DELAYS_MS[-1])


def _update_webhook(outcome: Outcome, now: int) -> None:
    """Record when a webhook started failing, or clear that after a success.

    A webhook is disabled once it has failed for `_DISABLE_AFTER_MS` without a success, or at once by a response with
    status 410; the owners are informed. A failure more than `_MAX_FAILURE_GAP_MS` after the previous one
    restarts the period.
    """
    webhook_id = outcome.delivery.webhook_id
    if outcome.is_delivered:
        run(
            "UPDATE webhook SET failing_since = NULL, failed_at = NULL WHERE id = ? AND failing_since IS NOT NULL",
            (webhook_id,),
        )
        return
    state = fetch_one("SELECT enabled, failing_since, failed_at FROM webhook WHERE id = ?", (webhook_id,))
    if state is None or not state[0]:
        return
    _, since, last_failed_at = state
    # A time in the future was recorded before the clock was set back.
    if since is None or since > now or now - last_failed_at > _MAX_FAILURE_GAP_MS:
        since = now
    run("UPDATE webhook SET failing_since = ?, failed_at = ? WHERE id = ?", (since, now, webhook_id))
    if outcome.status == _HTTP_GONE:
        _disable(webhook_id, "gone", now)
    elif now - since >= _DISABLE_AFTER_MS:
        _disable(webhook_id, "failing", now)


def _disable(webhook_id: int, reason: str, now: int) -> None:
    run(
        "UPDATE webhook SET enabled = 0, disabled_at = ?, disabled_reason = ?, updated_at = ? WHERE id = ?",
        (now, reason, now, webhook_id),
    )
    announce_disabled(webhook_id)


# The cursor is the id of the last event whose deliveries were created, one for each webhook that subscribes to it.

_CURSOR_NAME = "webhooks"
# The maximum number of events times webhooks in one transaction, so small that other writers do not wait long.
_MAX_PAIRS, _MIN_EVENTS = 1_000, 50

_LATEST_EVENT_ID = "SELECT coalesce(max(id), 0) FROM event"
_INSERT_DELIVERIES = """
INSERT INTO webhook_delivery (webhook_id, event_id, status, attempts, next_attempt_at, created_at, updated_at)
SELECT webhook.id, event.id, 'pending', 0, ?1, ?1, ?1 FROM event CROSS JOIN webhook
WHERE event.id > ?2 AND event.id <= ?3 AND webhook.account_id = event.account_id AND webhook.enabled
AND webhook.deleted_at IS NULL AND event.id > webhook.after_event_id
AND (webhook.events = '[]' OR EXISTS (SELECT 1 FROM json_each(webhook.events) WHERE value = event.event))
ORDER BY event.id, webhook.id ON CONFLICT (webhook_id, event_id) DO NOTHING
"""
_MOVE_CURSOR = (
    "INSERT INTO cursor (name, event_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET event_id = excluded.event_id"
)


def has_webhooks() -> bool:
    """Return whether any webhook of any account is enabled."""
    return fetch_one("SELECT 1 FROM webhook WHERE enabled LIMIT 1") is not None


def has_new_events() -> bool:
    """Return whether there are events after the cursor."""
    return bool(_cursor_position() < scalar(_LATEST_EVENT_ID))


def create_deliveries() -> bool:
    """Create the deliveries of the next batch of events and move the cursor; return whether there were events.

    A batch has about `_MAX_PAIRS` pairs of event and webhook, but at least `_MIN_EVENTS` events. Without any enabled
    webhook, the cursor moves behind the last event.
    """
    require_write_transaction()
    position, webhook_count = _cursor_position(), scalar("SELECT count(*) FROM webhook WHERE enabled")
    if webhook_count:
        batch_size = max(_MIN_EVENTS, _MAX_PAIRS // webhook_count)
        last = scalar(
            "SELECT max(id) FROM (SELECT id FROM event WHERE id > ? ORDER BY id LIMIT ?)", (position, batch_size)
        )
    else:
        last = scalar(_LATEST_EVENT_ID)
    if last is None or last <= position:
        return False
    if webhook_count:
        run(_INSERT_DELIVERIES, (clock.now_ms(), position, last))
    run(_MOVE_CURSOR, (_CURSOR_NAME, last))
    return True


def _cursor_position() -> int:
    return scalar("SELECT event_id FROM cursor WHERE name = ?", (_CURSOR_NAME,)) or 0


# Cleaning up: delete the rows of deleted webhooks and expired deliveries, and reschedule deliveries that are due later
# than any retry delay allows, because the clock was ahead when they were scheduled.

_PURGE_BATCH_SIZE = 1_000
_DELAYED = (
    "SELECT d.id FROM webhook AS w CROSS JOIN webhook_delivery AS d ON d.webhook_id = w.id AND d.status = 'pending' "
    "AND d.next_attempt_at > ? WHERE w.enabled LIMIT ?"
)


def has_deleted_webhooks() -> bool:
    """Return whether the rows of any deleted webhook are still to be deleted."""
    return fetch_one("SELECT 1 FROM webhook WHERE deleted_at IS NOT NULL LIMIT 1") is not None


def purge_deleted_webhooks() -> bool:
    """Delete up to `_PURGE_BATCH_SIZE` deliveries of a deleted webhook, and with the last of them the webhook.

    Return whether there was a deleted webhook.
    """
    require_write_transaction()
    webhook_id = scalar("SELECT id FROM webhook WHERE deleted_at IS NOT NULL ORDER BY id LIMIT 1")
    if webhook_id is None:
        return False
    deleted_count = run(
        "DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery WHERE webhook_id = ? LIMIT ?)",
        (webhook_id, _PURGE_BATCH_SIZE),
    )
    if deleted_count < _PURGE_BATCH_SIZE:
        run("DELETE FROM webhook WHERE id = ?", (webhook_id,))
    return True


def prune_deliveries() -> bool:
    """Delete up to `_PURGE_BATCH_SIZE` deliveries older than `webhooks.keep`; return whether there may be more.

    Deliveries that are pending for an enabled webhook are kept.
    """
    require_write_transaction()
    expired_before = clock.now_ms() - int(1000 * config.parse_seconds(config.current().webhooks.keep))
    deleted_count = run(
        "DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery AS d "
        "WHERE id < coalesce((SELECT id FROM webhook_delivery WHERE created_at >= ?1 ORDER BY id LIMIT 1), 1 << 62) "
        "AND NOT (status = 'pending' AND EXISTS (SELECT 1 FROM webhook WHERE webhook.id = d.webhook_id AND enabled)) "
        "ORDER BY id LIMIT ?2)",
        (expired_before, _PURGE_BATCH_SIZE),
    )
    return deleted_count == _PURGE_BATCH_SIZE


def has_delayed_deliveries() -> bool:
    """Return whether a delivery is scheduled later than the longest retry delay allows, because of a wrong clock."""
    return fetch_one(_DELAYED, (clock.now_ms() + RETRY_DELAYS_MS[-1], 1)) is not None


def reschedule_delayed_deliveries() -> bool:
    """Make due up to `_PURGE_BATCH_SIZE` deliveries that a wrong clock delayed; return whether there were any."""
    require_write_transaction()
    now = clock.now_ms()
    return bool(
        run(
            f"UPDATE webhook_delivery SET next_attempt_at = ?, updated_at = ? WHERE id IN ({_DELAYED})",
            (now, now, now + RETRY_DELAYS_MS[-1], _PURGE_BATCH_SIZE),
        )
    )


# The log of deliveries, and their replay.

Status = Literal["pending", "delivered", "failed", "cancelled"]
# The number of rows that one transaction changes, so few that other writers do not wait long.
REPLAY_BATCH_SIZE = 1_000
WEBHOOK_DISABLED = gettext_noop("the webhook is turned off")


class DeliveryQuery(PageQuery):
    """Query parameters of the list of a webhook's deliveries."""

    status: Annotated[Status, Meta(description="only those with this status")] | UnsetType = UNSET
    event: Annotated[Short, Meta(description="only deliveries of events with this name")] | UnsetType = UNSET
    event_id: Annotated[EventId, Meta(description="only deliveries of this event")] | UnsetType = UNSET


class ReplayFailedRequest(Struct):
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


def get_delivery(account_id: int, webhook_id: int, delivery_id: int) -> WebhookDelivery:
    """Return a delivery of a webhook, with `event`, the name of its event (None if the event was pruned).

    Raises NotFound if the webhook or the delivery does not exist.
    """
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
    delivery = get_delivery(account_id, webhook_id, delivery_id)
    if delivery.event is None:
        raise Invalid({"base": [gettext("the event is no longer stored")]})
    _require_enabled(webhook_id)
    now = clock.now_ms()
    run(
        "UPDATE webhook_delivery SET status = 'pending', attempts = 0, next_attempt_at = ?, updated_at = ? "
        "WHERE id = ?",
        (now, now, delivery_id),
    )
    after_commit(lambda: signals.wake("webhooks"))
    return get_delivery(account_id, webhook_id, delivery_id)


def replay_failed(account_id: int, webhook_id: int, request: ReplayFailedRequest) -> int:
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
        raise Invalid({"base": [gettext(WEBHOOK_DISABLED)]})
