"""Create, change, list and delete webhooks, and rotate their secrets."""

import base64
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock, crypto, signals
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import HttpUrl, PageQuery, default, sent_fields
from appliance.events import log
from appliance.sending.delivery import safe_http
from appliance.storage.database import Page, paginate, rows, run, scalar
from appliance.storage.models import Webhook
from appliance.storage.transactions import after_commit, require_write_transaction

# Secrets of webhooks and the signatures made with them (Standard Webhooks, standardwebhooks.com).

_PREFIX = "whsec_"
_SECRET_BYTES = 32
_PURPOSE = "webhook secret"
# During this time the previous secret signs too, so that receivers can change to the new secret.
SECRET_OVERLAP_MS = clock.DAY_MS


def generate_secret() -> str:
    """Return a new secret in the form shown to the user: `whsec_` and 32 random bytes in base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def encrypt_secret(account_id: int, secret: str) -> bytes:
    """Return a secret encrypted for the database; the result can be decrypted for this account only."""
    return crypto.seal(crypto.derive_key(_PURPOSE), f"account:{account_id}", secret.encode())


class EncryptedSecrets(NamedTuple):
    """The encrypted secrets of a webhook, as stored in its row.

    An old secret signs until `old_secret_until` (ms).
    """

    account_id: int
    secret: bytes
    old_secret: bytes | None = None
    old_secret_until: int | None = None


def decrypt_secrets(sealed: EncryptedSecrets) -> list[str]:
    """Return the decrypted secrets that sign now, the current secret first.

    The list is empty if the current secret cannot be decrypted with this installation's secret key.
    """
    encrypted = [sealed.secret]
    if sealed.old_secret is not None and clock.now_ms() < (sealed.old_secret_until or 0):
        encrypted.append(sealed.old_secret)
    label = f"account:{sealed.account_id}"
    decrypted = [crypto.unseal(crypto.derive_key(_PURPOSE), label, bytes(secret)) for secret in encrypted]
    return [] if decrypted[0] is None else [secret.decode() for secret in decrypted if secret is not None]


def signature_headers(signing: Sequence[str], message_id: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request: content type, message id, time, and a signature with each secret in `signing`.

    Names and signatures follow Standard Webhooks.
    """
    timestamp = str(int(clock.now()))
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(crypto.sign_webhook(secret, message_id, timestamp, body) for secret in signing),
    }


MAX_WEBHOOKS = 100
ALL_EVENTS = "*"

EventNames = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=500)]


class WebhookWrite(Struct):
    """A new webhook; it receives all events if `events` is absent, null, empty or contains `*`."""

    url: Annotated[HttpUrl, Meta(description="URL to which events are posted")]
    events: (
        Annotated[EventNames, Meta(description="names of the events to send; absent or containing `*` for all")]
        | None
        | UnsetType
    ) = UNSET
    enabled: (
        Annotated[bool, default(True), Meta(description="whether events are sent to the webhook")] | None | UnsetType
    ) = UNSET


class WebhookPatch(Struct):
    """A change of a webhook; absent fields are left unchanged.

    If `events` is null, the webhook receives all events. If `enabled` is null, the webhook is enabled.
    """

    url: Annotated[HttpUrl, Meta(description="URL to which events are posted")] | UnsetType = UNSET
    events: (
        Annotated[EventNames, Meta(description="names of the events to send; empty or containing `*` for all")]
        | None
        | UnsetType
    ) = UNSET
    enabled: Annotated[bool, Meta(description="whether events are sent to the webhook")] | None | UnsetType = UNSET


class WebhookQuery(PageQuery):
    """Query parameters of the list of an account's webhooks."""

    enabled: Annotated[bool, Meta(description="true: only enabled webhooks; false: only disabled ones")] | UnsetType = (
        UNSET
    )


def list_webhooks(account_id: int, query: WebhookQuery) -> Page:
    """Return a page of an account's webhooks that match the query, newest first, each with `pending_count` (`get`)."""
    webhooks = Webhook.select().where(Webhook.account == account_id, Webhook.deleted_at.is_null())
    if query.enabled is not UNSET:
        webhooks = webhooks.where(Webhook.enabled == query.enabled)
    page = paginate(webhooks.order_by(Webhook.created_at.desc(), Webhook.id.desc()), query.page, query.size())
    return page._replace(rows=[_with_pending_count(row) for row in page.rows])


def get(account_id: int, webhook_id: int) -> Webhook:
    """Return a webhook with `pending_count`, the number of its pending deliveries.

    Raises NotFound if the webhook does not exist.
    """
    webhook = Webhook.get_or_none(Webhook.account == account_id, Webhook.id == webhook_id, Webhook.deleted_at.is_null())
    if webhook is None:
        raise NotFound
    return _with_pending_count(webhook)


def _with_pending_count(webhook: Webhook) -> Webhook:
    webhook.pending_count = scalar(
        "SELECT count(*) FROM webhook_delivery WHERE webhook_id = ? AND status = 'pending'", (webhook.id,)
    )
    return webhook


def create(account_id: int, request: WebhookWrite, by: Actor) -> tuple[Webhook, str]:
    """Create a webhook for future events, and return it with its secret in plain text.

    Raises Invalid if a value is invalid or the account has `MAX_WEBHOOKS` webhooks already.
    """
    require_write_transaction()
    webhook_count = scalar("SELECT count(*) FROM webhook WHERE account_id = ? AND deleted_at IS NULL", (account_id,))
    if webhook_count >= MAX_WEBHOOKS:
        raise Invalid({"base": [gettext("there are %(webhooks)s webhooks already", webhooks=MAX_WEBHOOKS)]})
    values, now, new_secret = _validated_values(request), clock.now_ms(), generate_secret()
    webhook = Webhook.create(
        account=account_id,
        secret=encrypt_secret(account_id, new_secret),
        after_event_id=_latest_event_id(),
        created_at=now,
        updated_at=now,
        **values,
    )
    audit.insert_entry(
        account_id, by.name, "webhook_add", f"webhook:{webhook.id}", {"host": webhook_host(webhook)}, by.ip
    )
    return get(account_id, webhook.id), new_secret


def update(account_id: int, webhook_id: int, request: WebhookPatch, by: Actor) -> Webhook:
    """Update a webhook and return it. Raises NotFound if it does not exist, and Invalid if a value is invalid.

    A webhook that is enabled again does not count as failing. It receives future events and its pending deliveries, but
    not the events recorded while it was disabled.
    """
    require_write_transaction()
    webhook = get(account_id, webhook_id)
    was_enabled, now = webhook.enabled, clock.now_ms()
    for name, value in _validated_values(request).items():
        setattr(webhook, name, value)
    if webhook.enabled and not was_enabled:
        webhook.after_event_id = _latest_event_id()
        webhook.failing_since = webhook.failed_at = webhook.disabled_at = webhook.disabled_reason = None
        after_commit(lambda: signals.wake("webhooks"))
    elif was_enabled and not webhook.enabled:
        webhook.disabled_at = now
    elif request.enabled is False:
        webhook.disabled_reason = None  # a user has seen the reason and leaves the webhook disabled
    webhook.updated_at = now
    webhook.save()
    changed = {"host": webhook_host(webhook), "enabled": webhook.enabled}
    audit.insert_entry(account_id, by.name, "webhook_update", f"webhook:{webhook_id}", changed, by.ip)
    return get(account_id, webhook_id)


def delete(account_id: int, webhook_id: int, by: Actor) -> Webhook:
    """Mark a webhook as deleted and return the webhook; its rows are deleted later in batches.

    Raises NotFound if the webhook does not exist.
    """
    require_write_transaction()
    webhook = get(account_id, webhook_id)
    run("UPDATE webhook SET deleted_at = ?, enabled = 0 WHERE id = ?", (clock.now_ms(), webhook_id))
    audit.insert_entry(
        account_id, by.name, "webhook_delete", f"webhook:{webhook_id}", {"host": webhook_host(webhook)}, by.ip
    )
    after_commit(lambda: signals.wake("webhooks"))
    return webhook


def rotate_secret(account_id: int, webhook_id: int, by: Actor) -> tuple[Webhook, str]:
    """Replace the secret of a webhook, and return the webhook with the new secret in plain text.

    The previous secret also signs for `SECRET_OVERLAP_MS`. Raises NotFound if the webhook does not exist.
    """
    require_write_transaction()
    webhook, now, new_secret = get(account_id, webhook_id), clock.now_ms(), generate_secret()
    webhook.old_secret, webhook.old_secret_until = webhook.secret, now + SECRET_OVERLAP_MS
    webhook.secret, webhook.updated_at = encrypt_secret(account_id, new_secret), now
    webhook.save()
    audit.insert_entry(account_id, by.name, "webhook_rotate_secret", f"webhook:{webhook_id}", None, by.ip)
    return get(account_id, webhook_id), new_secret


def webhook_host(webhook: Webhook) -> str:
    """Return the host of a webhook's URL, for logs: path and query may contain a secret."""
    return url_host(webhook.url)


def url_host(url: str) -> str:
    """Return the host of a URL in lower case, or an empty string if the URL has no host."""
    return urlsplit(url).hostname or ""


def fetch_accounts_watching_segments() -> list[int]:
    """Return the ids of accounts with an enabled webhook that names `segment_enter` or `segment_exit` in its events."""
    account_rows = rows(
        "SELECT DISTINCT account_id FROM webhook WHERE enabled AND deleted_at IS NULL "
        "AND EXISTS (SELECT 1 FROM json_each(events) WHERE value IN ('segment_enter', 'segment_exit'))"
    )
    return [row[0] for row in account_rows]


def _latest_event_id() -> int:
    return scalar("SELECT max(id) FROM event") or 0


def validate(account_id: int, request: WebhookWrite | WebhookPatch, _: int | None = None) -> None:
    """Raise Invalid with all faults in the values of a request; the ids of account and webhook are not used."""
    _validated_values(request)


def _validated_values(request: WebhookWrite | WebhookPatch) -> dict[str, Any]:
    """Return the columns that a request sets, with their values. Raises Invalid with all faults."""
    faults, values = Faults(), sent_fields(request)
    if "url" in values and safe_http.find_url_fault(values["url"]):
        faults.add("url", gettext("is invalid"))
    if "events" in values:
        values["events"] = _event_names(values["events"] or [], faults)
    if "enabled" in values:
        values["enabled"] = values["enabled"] is not False
    faults.check()
    return values


def _event_names(names: list[str], faults: Faults) -> list[str]:
    """Return the requested event names without duplicates, or [] for all events; add malformed names to `faults`."""
    for index, name in enumerate(names):
        if name != ALL_EVENTS and log.find_name_error(name) == "is invalid":
            faults.add(f"events[{index}]", gettext("is invalid"))
    return [] if ALL_EVENTS in names else list(dict.fromkeys(names))
