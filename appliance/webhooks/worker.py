"""Post due events to webhooks, several at a time, so that a slow webhook does not delay the others; and send tests."""

import asyncio
import logging
import re
import secrets
import time
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core import clock
from appliance.core.errors import Invalid, Unavailable
from appliance.core.i18n import gettext, gettext_noop
from appliance.events import listing
from appliance.events import log as event_log
from appliance.sending.delivery import safe_http
from appliance.sending.delivery.safe_http import ConnectionPool, RequestFailed
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import Event, Webhook
from appliance.webhooks import queue, subscriptions
from appliance.webhooks.queue import DueDelivery, Outcome
from appliance.webhooks.request_loop import RequestLoop, commit, parse_retry_after
from appliance.webhooks.subscriptions import EncryptedSecrets

# A single attempt: the event is encoded, signed and posted, and the response is read.

TIMEOUT_SECONDS = 5.0
# How much of a response is read, in bytes, and how much of its text is stored, in characters.
_MAX_RESPONSE_BYTES, _MAX_RESPONSE_CHARACTERS = 16_384, 1_000
UNREACHABLE = gettext_noop("no answer: the address cannot be reached within 5 seconds, or is not public")
SECRET_UNREADABLE = gettext_noop(
    "its secret cannot be read: put back the secret.key that belongs to this database, or give it another secret"
)
WEBHOOK_DELETED = gettext_noop("the webhook was deleted")
EVENT_PRUNED = gettext_noop("the event is no longer stored")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Target(NamedTuple):
    """The URL of a webhook, and the encrypted secrets to sign its requests with."""

    url: str
    secrets: EncryptedSecrets


async def attempt_delivery(job: DueDelivery, pool: ConnectionPool) -> Outcome:
    """Attempt a delivery once and return the outcome; failed requests are outcomes, not exceptions.

    The outcome is cancelled if the webhook was deleted or the event pruned.
    """
    row = fetch_one(
        "SELECT w.url, d.created_at, w.account_id, w.secret, w.old_secret, w.old_secret_until FROM webhook_delivery d "
        "JOIN webhook w ON w.id = d.webhook_id WHERE d.id = ? AND w.deleted_at IS NULL",
        (job.id,),
    )
    if row is None:
        return Outcome(job, error=WEBHOOK_DELETED, is_cancelled=True)
    event = listing.fetch_event(job.event_id)
    if event is None:
        return Outcome(job, error=EVENT_PRUNED, is_cancelled=True)
    # The message id contains the creation time, because ids of rows are used again after a backup is restored.
    return await post_event(job, Target(row[0], EncryptedSecrets(*row[2:])), event, f"msg_{job.id}_{row[1]}", pool)


async def post_event(
    job: DueDelivery, target: Target, event: listing.RecordedEvent, message_id: str, pool: ConnectionPool | None = None
) -> Outcome:
    """Post an event, signed with the secrets of the target, and return the outcome; failed requests are outcomes.

    `message_id` is the value of the header `webhook-id`.
    """
    signing = subscriptions.decrypt_secrets(target.secrets)
    if not signing:
        return Outcome(job, error=SECRET_UNREADABLE)
    body, started = msgspec.json.encode(event), time.monotonic()
    try:
        response = await safe_http.request(
            "POST",
            target.url,
            headers=subscriptions.signature_headers(signing, message_id, body),
            content=body,
            max_bytes=_MAX_RESPONSE_BYTES,
            timeout_seconds=TIMEOUT_SECONDS,
            truncate=True,
            pool=pool,
        )
    except RequestFailed:
        return Outcome(job, error=UNREACHABLE)
    duration_ms = int(1000 * (time.monotonic() - started))
    return Outcome(
        job,
        response.status,
        _printable(response.body),
        duration_ms=duration_ms,
        retry_after_ms=parse_retry_after(response.headers),
    )


def _printable(body: bytes) -> str:
    return _CONTROL.sub("�", body.decode("utf-8", "replace"))[:_MAX_RESPONSE_CHARACTERS]


log = logging.getLogger("campanero.webhooks")

# A webhook counts as slow if its last response took this long, or if its last delivery failed.
_SLOW_MS = 1_000


class WebhookWorker(RequestLoop[DueDelivery, Outcome]):
    """The worker that posts due deliveries; one thread at a time runs it."""

    def __init__(self) -> None:
        super().__init__()
        self._round = 0
        # The duration of the last delivery in ms by webhook id; None if the delivery failed.
        self._durations_ms: dict[int, int | None] = {}

    def has_work(self) -> bool:
        """Return whether there is anything to deliver or to clean up."""
        return has_work()

    async def prepare(self) -> bool:
        """Create deliveries and clean up in small transactions; return whether there may be more to do."""
        has_more = queue.has_new_events() and await commit(queue.create_deliveries)
        has_more = (queue.has_deleted_webhooks() and await commit(queue.purge_deleted_webhooks)) or has_more
        return (queue.has_delayed_deliveries() and await commit(queue.reschedule_delayed_deliveries)) or has_more

    def choose(self, in_flight: list[DueDelivery]) -> list[DueDelivery]:
        """Return the deliveries to start now."""
        return self._choose_deliveries(in_flight)

    async def attempt(self, job: DueDelivery, pool: ConnectionPool) -> Outcome:
        """Attempt a delivery once, and return its outcome."""
        return await attempt_delivery(job, pool)

    def note_finished(self, job: DueDelivery, outcome: Outcome | None) -> None:
        """Store how long the last delivery of a webhook took, or that it failed."""
        delivered = outcome is not None and outcome.is_delivered
        self._durations_ms[job.webhook_id] = outcome.duration_ms if outcome is not None and delivered else None

    async def record(self, finished: list[tuple[DueDelivery, Outcome | None]]) -> None:
        """Write the outcomes of deliveries; None is an internal error, which counts as a failed attempt."""
        await _record_outcomes([
            Outcome(job, error=gettext_noop("the request failed with an internal error")) if outcome is None
            else outcome
            for job, outcome in finished
        ])  # fmt: skip

    def _choose_deliveries(self, in_flight: list[DueDelivery]) -> list[DueDelivery]:
        """Return the deliveries to start now: for each webhook the deliveries that were due first.

        The webhook that comes first changes with each round. Webhooks that fail or are slow share half of
        `webhooks.connections`, so that any number of such webhooks does not delay the fast webhooks. A webhook gets
        more than one connection only while its last delivery succeeded.
        """
        settings, now = config.current().webhooks, clock.now_ms()
        hooks = rows("SELECT id, failing_since FROM webhook WHERE enabled AND deleted_at IS NULL ORDER BY id")
        self._durations_ms = {
            hook_id: self._durations_ms[hook_id] for hook_id, _ in hooks if hook_id in self._durations_ms
        }
        slow = {hook_id for hook_id, failing in hooks if failing or _is_slow(self._durations_ms.get(hook_id, 0))}
        chosen: list[DueDelivery] = []
        self._round += 1
        start = self._round % len(hooks) if hooks else 0
        for webhook_id, failing in hooks[start:] + hooks[:start]:
            current = [*in_flight, *chosen]
            busy = {job.id for job in current if job.webhook_id == webhook_id}
            # A failing webhook gets one delivery at a time, so that it is not overloaded while it recovers.
            max_per_webhook = 1 if failing or self._durations_ms.get(webhook_id) is None else settings.connections_each
            free = min(settings.connections - len(current), max_per_webhook - len(busy))
            if webhook_id in slow:
                free = min(free, max(settings.connections // 2, 1) - sum(job.webhook_id in slow for job in current))
            if free > 0:
                chosen += [job for job in _fetch_due(webhook_id, now, free + len(busy)) if job.id not in busy][:free]
        return chosen


def _is_slow(duration_ms: int | None) -> bool:
    return duration_ms is None or duration_ms >= _SLOW_MS


def _fetch_due(webhook_id: int, now: int, limit: int) -> list[DueDelivery]:
    return [
        DueDelivery(*row)
        for row in rows(
            "SELECT id, webhook_id, event_id, attempts FROM webhook_delivery "
            "WHERE webhook_id = ? AND status = 'pending' AND next_attempt_at <= ? ORDER BY next_attempt_at, id LIMIT ?",
            (webhook_id, now, limit),
        )
    ]


def has_work() -> bool:
    """Return whether there are new events, due deliveries, rows of deleted webhooks or delayed deliveries."""
    if queue.has_new_events() or queue.has_deleted_webhooks() or queue.has_delayed_deliveries():
        return True
    return any(
        fetch_one(
            "SELECT 1 FROM webhook_delivery WHERE webhook_id = ? AND status = 'pending' AND next_attempt_at <= ? "
            "LIMIT 1",
            (row[0], clock.now_ms()),
        )
        for row in rows("SELECT id FROM webhook WHERE enabled AND deleted_at IS NULL")
    )


async def _record_outcomes(outcomes: list[Outcome]) -> None:
    """Write outcomes in one transaction.

    Raises Unavailable if the outcomes cannot be stored; the events are then posted again later.
    """
    try:
        await asyncio.wrap_future(transactions.submit_essential(queue.record_outcomes, outcomes))
    except Unavailable:
        raise
    except Exception:
        # If no outcome were stored after an internal error, the same deliveries would be repeated endlessly.
        log.exception(
            "webhooks: outcomes could not be recorded with the state of their webhooks count=%s", len(outcomes)
        )
        await asyncio.wrap_future(transactions.submit_essential(queue.record_outcomes, outcomes, False))


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
    if isinstance(request.event, str) and event_log.find_name_error(request.event) == "is invalid":
        raise Invalid({"event": [gettext("is invalid")]})


def prepare_test(account_id: int, webhook_id: int, request: WebhookTest) -> tuple[Webhook, listing.RecordedEvent]:
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


async def send_test(webhook: Webhook, event: listing.RecordedEvent) -> Outcome:
    """Post a test event once and return the outcome; nothing is stored, and the webhook does not count as failing."""
    encrypted = EncryptedSecrets(webhook.account_id, webhook.secret, webhook.old_secret, webhook.old_secret_until)
    target = Target(webhook.url, encrypted)
    return await post_event(DueDelivery(0, webhook.id, 0, 0), target, event, f"test_{secrets.token_hex(8)}")
