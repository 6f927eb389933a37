"""Webhooks: made, changed, listed, deleted, and given their next secret."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.acting import By
from appliance.core import clock, wake_ups
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.fields import HttpUrl, PageQuery, default, given
from appliance.core.pagination import Page, paginate
from appliance.events import kinds
from appliance.sending.delivery import safe_http
from appliance.storage.models import Webhook
from appliance.storage.open import rows, run, scalar
from appliance.storage.work import after_commit, writing
from appliance.webhooks import secret

MAX_WEBHOOKS = 100
ALL = "*"

Names = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=500)]


class WebhookWrite(Struct):
    """A new webhook; without `events`, or with `*` among them, it gets all."""

    url: HttpUrl
    events: Names | None | UnsetType = UNSET
    enabled: Annotated[bool, default(True)] | None | UnsetType = UNSET


class WebhookPatch(Struct):
    """A change of a webhook; absent keeps, null clears."""

    url: HttpUrl | UnsetType = UNSET
    events: Names | None | UnsetType = UNSET
    enabled: bool | None | UnsetType = UNSET


class WebhookQuery(PageQuery):
    """How webhooks are asked for."""

    enabled: bool | UnsetType = UNSET


def page(account_id: int, query: WebhookQuery) -> Page:
    """List webhooks, newest first."""
    found = Webhook.select().where(Webhook.account == account_id, Webhook.deleted_at.is_null())
    if query.enabled is not UNSET:
        found = found.where(Webhook.enabled == query.enabled)
    result = paginate(found.order_by(Webhook.created_at.desc(), Webhook.id.desc()), query.page, query.size())
    return result._replace(rows=[_dress(row) for row in result.rows])


def get(account_id: int, webhook_id: int) -> Webhook:
    """Return a webhook; raises NotFound."""
    found = Webhook.get_or_none(Webhook.account == account_id, Webhook.id == webhook_id, Webhook.deleted_at.is_null())
    if found is None:
        raise NotFound
    return _dress(found)


def _dress(webhook: Webhook) -> Webhook:
    webhook.pending_count = scalar(
        "SELECT count(*) FROM webhook_delivery WHERE webhook_id = ? AND status = 'pending'", (webhook.id,)
    )
    return webhook


def create(account_id: int, request: WebhookWrite, by: By) -> tuple[Webhook, str]:
    """Make a webhook that hears of what happens from now on; returns it with its secret. Raises Invalid."""
    writing()
    have = scalar("SELECT count(*) FROM webhook WHERE account_id = ? AND deleted_at IS NULL", (account_id,))
    if have >= MAX_WEBHOOKS:
        raise Invalid({"base": [f"there are {MAX_WEBHOOKS} webhooks already"]})
    values, now, plain = _checked(request), clock.now_ms(), secret.fresh()
    made = Webhook.create(
        account=account_id, secret=secret.seal(account_id, plain), after_event_id=_newest(), created_at=now,
        updated_at=now, **values,
    )  # fmt: skip
    audit.record(account_id, by.actor, "webhook_add", f"webhook:{made.id}", {"host": host(made)}, by.ip)
    return get(account_id, made.id), plain


def update(account_id: int, webhook_id: int, request: WebhookPatch, by: By) -> Webhook:
    """Change a webhook; one that is switched on again hears of what happens from now on. Raises NotFound, Invalid."""
    writing()
    webhook = get(account_id, webhook_id)
    was, now = webhook.enabled, clock.now_ms()
    for name, value in _checked(request).items():
        setattr(webhook, name, value)
    if webhook.enabled and not was:
        webhook.after_event_id = _newest()
        webhook.failing_since = webhook.failed_at = webhook.disabled_at = webhook.disabled_reason = None
        after_commit(lambda: wake_ups.ring("webhooks"))
    elif was and not webhook.enabled:
        webhook.disabled_at = now
    elif request.enabled is False:
        webhook.disabled_reason = None  # somebody has seen it, and leaves it so
    webhook.updated_at = now
    webhook.save()
    changed = {"host": host(webhook), "enabled": webhook.enabled}
    audit.record(account_id, by.actor, "webhook_update", f"webhook:{webhook_id}", changed, by.ip)
    return get(account_id, webhook_id)


def delete(account_id: int, webhook_id: int, by: By) -> Webhook:
    """Delete a webhook and answer it as it was; nothing more is sent to it. Raises NotFound."""
    writing()
    found = get(account_id, webhook_id)
    run("UPDATE webhook SET deleted_at = ?, enabled = 0 WHERE id = ?", (clock.now_ms(), webhook_id))
    audit.record(account_id, by.actor, "webhook_delete", f"webhook:{webhook_id}", {"host": host(found)}, by.ip)
    after_commit(lambda: wake_ups.ring("webhooks"))
    return found


def rotate_secret(account_id: int, webhook_id: int, by: By) -> tuple[Webhook, str]:
    """Give a webhook another secret; the one before signs along for a day. Raises NotFound."""
    writing()
    webhook, now, plain = get(account_id, webhook_id), clock.now_ms(), secret.fresh()
    webhook.old_secret, webhook.old_secret_until = webhook.secret, now + secret.OVERLAP_MS
    webhook.secret, webhook.updated_at = secret.seal(account_id, plain), now
    webhook.save()
    audit.record(account_id, by.actor, "webhook_rotate_secret", f"webhook:{webhook_id}", None, by.ip)
    return get(account_id, webhook_id), plain


def host(webhook: Webhook) -> str:
    """Return where a webhook leads without what may be secret about it: path and query."""
    return host_of(webhook.url)


def host_of(url: str) -> str:
    """Return the host of an address."""
    return urlsplit(url).hostname or ""


def watching_segments() -> list[int]:
    """Return the accounts of which a webhook asked by name for `segment_enter` or `segment_exit`."""
    found = rows(
        "SELECT DISTINCT account_id FROM webhook WHERE enabled AND deleted_at IS NULL "
        "AND EXISTS (SELECT 1 FROM json_each(events) WHERE value IN ('segment_enter', 'segment_exit'))"
    )
    return [row[0] for row in found]


def _newest() -> int:
    return scalar("SELECT max(id) FROM event") or 0


def check(account_id: int, request: WebhookWrite | WebhookPatch, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a webhook, beyond its types."""
    _checked(request)


def _checked(request: WebhookWrite | WebhookPatch) -> dict[str, Any]:
    """Return the columns that a request sets; raises Invalid with all faults."""
    faults, values = Faults(), given(request)
    if "url" in values and safe_http.fault(values["url"]):
        faults.add("url", "is invalid")
    if "events" in values:
        values["events"] = _names(values["events"] or [], faults)
    if "enabled" in values:
        values["enabled"] = values["enabled"] is not False
    faults.check()
    return values


def _names(written: list[str], faults: Faults) -> list[str]:
    """Return the names of events that are asked for, each once; empty stands for all."""
    for index, name in enumerate(written):
        if name != ALL and kinds.fault(name) == "is invalid":
            faults.add(f"events[{index}]", "is invalid")
    return [] if ALL in written else list(dict.fromkeys(written))
