"""The webhooks of email providers, one file each, and how requests of email and SMS providers are read and written."""

import hashlib
import logging
from collections.abc import Iterator
from typing import NamedTuple

from appliance.core import clock
from appliance.core.errors import NotAllowed, NotFound, Unavailable
from appliance.inbound import delivery_reports
from appliance.inbound.delivery_reports import MessageInFlight
from appliance.inbound.providers import mailgun, own, postmark, sendgrid, ses
from appliance.inbound.providers.base import HookPayload, HookRequest, Provider, ProviderOptOut, invalid_signature
from appliance.sending.delivery import safe_http
from appliance.sending.sms.error_codes import HookContents
from appliance.sending.sms.error_codes import HookRequest as SmsHookRequest
from appliance.sending.sms.providers import PROVIDERS as SMS_PROVIDERS
from appliance.sending.sms.providers.base import Provider as SmsProvider
from appliance.storage.database import rows
from appliance.storage.transactions import require_write_transaction

# A new provider is one file and one name here
PROVIDERS: dict[str, Provider] = {
    module.PROVIDER.name: module.PROVIDER for module in (own, ses, postmark, mailgun, sendgrid)
}  # fmt: skip

# Reports in one transaction, which takes a few milliseconds, so that a provider that posts a thousand blocks no others.
_BATCH_SIZE = 50
_MAX_CERTIFICATE_BYTES = 65_536
_LOG_INTERVAL_SECONDS = 60.0
_next_log_at: dict[str, float] = {}

log = logging.getLogger("campanero.hooks")


def is_enabled(name: str) -> bool:
    """Return whether a webhook is enabled: its secret is configured."""
    provider = PROVIDERS.get(name)
    return provider is not None and bool(provider.secret())


async def read_request(name: str, received: HookRequest) -> HookPayload:
    """Return the contents of a request. Raises NotFound, NotAllowed if it is forged, Invalid, or Unavailable."""
    provider = PROVIDERS.get(name)
    secret = provider.secret() if provider is not None else ""
    if provider is None or not secret:
        raise NotFound
    try:
        return await provider.read(received, secret, _fetch)
    except NotAllowed:
        log_refused_request(name)
        raise


def log_refused_request(name: str) -> None:
    """Log a rejected request, at most once a minute: a wrong secret would otherwise look like missing reports."""
    if clock.monotonic() >= _next_log_at.get(name, 0):
        _next_log_at[name] = clock.monotonic() + _LOG_INTERVAL_SECONDS
        log.warning("hooks: request refused, its signature is missing, wrong or too old hook=%s", name)


async def _fetch(url: str) -> bytes:
    try:
        response = await safe_http.get(url, max_bytes=_MAX_CERTIFICATE_BYTES)
    except safe_http.RequestFailed:
        raise Unavailable(
            "The signing certificate of the provider cannot be downloaded now.", "unavailable", 30
        ) from None
    if response.status != 200:
        raise Unavailable("The signing certificate of the provider cannot be downloaded now.", "unavailable", 30)
    return response.body


def split_payload(payload: HookPayload) -> Iterator[HookPayload]:
    """Yield the reports in batches of one transaction each; the token goes with the first."""
    yield payload._replace(reports=payload.reports[:_BATCH_SIZE])
    for start in range(_BATCH_SIZE, len(payload.reports), _BATCH_SIZE):
        yield HookPayload(payload.reports[start : start + _BATCH_SIZE])


class WriteResult(NamedTuple):
    """The recipients who newly opted out, and the report that must be repeated, if any."""

    opt_outs: tuple[ProviderOptOut, ...]
    in_flight: MessageInFlight | None


def write_payload(name: str, payload: HookPayload, body: bytes) -> WriteResult:
    """Write reports with their consequences; a report that must wait does not block the others.

    Raises NotAllowed if a token comes again with another body, or Unavailable.
    """
    require_write_transaction()
    if payload.token is not None:
        _check_token(name, payload.token, body)
    in_flight = None
    for report in payload.reports:
        try:
            delivery_reports.record_report(report)
        except MessageInFlight as error:
            in_flight = error
    opt_outs = (
        opt_out for opt_out in payload.opt_outs if delivery_reports.is_recipient(opt_out.message_id, opt_out.recipient)
    )
    return WriteResult(
        tuple(opt_out for opt_out in opt_outs if delivery_reports.mark_processed(name, opt_out.key)), in_flight
    )


def _check_token(name: str, token: str, body: bytes) -> None:
    """Accept a token for one body only; a repetition of both is a retry of the provider."""
    token_key = f"token:{token}:{hashlib.sha256(body).hexdigest()}"
    known_keys = rows("SELECT key FROM processed_notification WHERE source = ? AND key >= ? AND key < ?",
                 (name, f"token:{token}:", f"token:{token};"))  # fmt: skip
    if known_keys and (token_key,) not in known_keys:
        raise invalid_signature()
    delivery_reports.mark_processed(name, token_key)


def find_sms_provider(hook: str) -> SmsProvider | None:
    """Return the SMS provider of a webhook, enabled or not."""
    return next((provider for provider in SMS_PROVIDERS.values() if hook in provider.hooks), None)


def is_sms_hook_enabled(hook: str) -> bool:
    """Return whether an SMS webhook is enabled: its provider has a secret."""
    provider = find_sms_provider(hook)
    return provider is not None and bool(provider.get_webhook_secret())


def read_sms_hook(hook: str, received: SmsHookRequest) -> tuple[str, HookContents]:
    """Return the provider and the contents of a request. Raises NotFound, NotAllowed if it is forged, or Invalid."""
    provider = find_sms_provider(hook)
    if provider is None or not provider.get_webhook_secret():
        raise NotFound
    try:
        return provider.name, provider.parse_hook(hook, received)
    except NotAllowed:
        log_refused_request(hook)
        raise
