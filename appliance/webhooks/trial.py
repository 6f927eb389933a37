"""Tries a webhook with an event that never happened, so that whoever sets it up sees at once what it answers."""

import secrets
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.events import kinds, shape
from appliance.storage.models import Event, Webhook
from appliance.webhooks import post, store
from appliance.webhooks.outcomes import Job, Outcome
from appliance.webhooks.post import Target
from appliance.webhooks.secret import Sealed

_USUAL = "contact_update"


class WebhookTest(Struct):
    """What is tried: the name of an event, by default one that the webhook asked for."""

    event: Annotated[str, Meta(max_length=64)] | None | UnsetType = UNSET


def check(_: int, request: WebhookTest, __: int) -> None:
    """Raise Invalid for a name that no event has."""
    if isinstance(request.event, str) and kinds.fault(request.event) == "is invalid":
        raise Invalid({"event": ["is invalid"]})


def prepare(account_id: int, webhook_id: int, request: WebhookTest) -> tuple[Webhook, shape.Event]:
    """Return the webhook and an invented event; raises NotFound, or Invalid."""
    webhook = store.get(account_id, webhook_id)
    check(account_id, request, webhook_id)
    name = request.event if isinstance(request.event, str) else (webhook.events or [_USUAL])[0]
    now = clock.now_ms()
    values: dict[str, Any] = {
        "id": 0, "account": account_id, "event": name, "data": {"webhook_test": True}, "test": True,
        "generated": True, "created_at": now, "updated_at": now,
    }  # fmt: skip
    return webhook, shape.event(Event(**values))


async def send(webhook: Webhook, event: shape.Event) -> Outcome:
    """Post an invented event once; it is no delivery, and says nothing about whether the webhook works."""
    sealed = Sealed(webhook.account_id, webhook.secret, webhook.old_secret, webhook.old_secret_until)
    target = Target(webhook.url, sealed)
    return await post.send(Job(0, webhook.id, 0, 0), target, event, f"test_{secrets.token_hex(8)}")
