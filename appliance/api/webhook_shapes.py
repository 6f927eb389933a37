"""Shapes of webhooks."""

from typing import Any, Literal, cast

from msgspec import Struct

from appliance import tables
from appliance.api.shapes import Event, Moment
from appliance.clock import iso
from appliance.webhooks.deliveries import Status
from appliance.webhooks.outcomes import Outcome


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


def _values(row: tables.Webhook) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "url": row.url, "events": row.events, "enabled": row.enabled,
        "pending_count": row.pending_count, "failing_since": iso(row.failing_since),
        "disabled_at": iso(row.disabled_at), "disabled_reason": row.disabled_reason,
        "old_secret_until": iso(row.old_secret_until), "created_at": str(iso(row.created_at)),
        "updated_at": str(iso(row.updated_at)),
    }  # fmt: skip


def webhook(row: tables.Webhook) -> Webhook:
    """Shape a webhook."""
    return Webhook(**_values(row))


def with_secret(row: tables.Webhook, secret: str) -> WebhookWithSecret:
    """Shape a webhook with the secret that nobody will see again."""
    return WebhookWithSecret(**_values(row), secret=secret)


def delivery(row: tables.WebhookDelivery) -> WebhookDelivery:
    """Shape a delivery read with the name of its event."""
    return WebhookDelivery(
        row.id, row.webhook_id, row.event_id, row.event, cast(Status, row.status), row.attempts, row.response_status,
        row.response_text, row.error, row.duration_ms, iso(row.next_attempt_at), iso(row.last_attempt_at),
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


def tested(outcome: Outcome, event: Event) -> WebhookTested:
    """Shape what came of a trial."""
    return WebhookTested(outcome.good, outcome.status, outcome.text, outcome.error, outcome.duration_ms, event)
