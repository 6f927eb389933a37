"""Read the webhook requests of email and SMS providers, and record their reports. Each email provider has one file."""

import hashlib
import logging
from collections.abc import Iterator
from typing import NamedTuple

from appliance.core import clock
from appliance.core.errors import NotAllowed, NotFound, Unavailable
from appliance.inbound import delivery_reports
from appliance.inbound.delivery_reports import MessageInFlight
from appliance.inbound.providers import brevo, mailgun, mailjet, own, postal, postmark, resend, sendgrid, ses
from appliance.inbound.providers.base import HookPayload, HookRequest, Provider, ProviderOptOut, invalid_signature
from appliance.sending.delivery import safe_http
from appliance.sending.sms.error_codes import HookContents
from appliance.sending.sms.error_codes import HookRequest as SmsHookRequest
from appliance.sending.sms.providers import PROVIDERS as SMS_PROVIDERS
from appliance.sending.sms.providers.base import Provider as SmsProvider
from appliance.storage.database import rows
from appliance.storage.transactions import require_write_transaction

# To add a provider, write a module with PROVIDER and add it here.
PROVIDERS: dict[str, Provider] = {
    module.PROVIDER.name: module.PROVIDER
    for module in (own, ses, postmark, mailgun, sendgrid, brevo, mailjet, resend, postal)
}  # fmt: skip

# The number of reports in one transaction, which then takes a few milliseconds and does not delay other writes for
# long.
_BATCH_SIZE = 50
_MAX_CERTIFICATE_BYTES = 65_536
_LOG_INTERVAL_SECONDS = 60.0
_next_log_at: dict[str, float] = {}

log = logging.getLogger("campanero.hooks")


def is_enabled(name: str) -> bool:
    """Return whether the webhook of an email provider is enabled, that is, whether its secret is configured."""
    provider = PROVIDERS.get(name)
    return provider is not None and bool(provider.secret())


async def read_request(name: str, received: HookRequest) -> HookPayload:
    """Verify a request and return its contents.

    Raises NotFound if the webhook is not enabled, NotAllowed if the signature is invalid or too old, Invalid if the
    body is malformed, and Unavailable if a signing certificate cannot be downloaded.
    """
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
    """Log a request with an invalid signature, at most once a minute for each webhook.

    Without the log, a wrong secret would look like missing reports.
    """
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
    """Yield a payload in parts of up to `_BATCH_SIZE` reports, one for each transaction.

    The first part also has the opt-outs and the token.
    """
    yield payload._replace(reports=payload.reports[:_BATCH_SIZE])
    for start in range(_BATCH_SIZE, len(payload.reports), _BATCH_SIZE):
        yield HookPayload(payload.reports[start : start + _BATCH_SIZE])


class WriteResult(NamedTuple):
    """The opt-outs that are new, and MessageInFlight if the provider must repeat one of the reports, else None."""

    opt_outs: tuple[ProviderOptOut, ...]
    in_flight: MessageInFlight | None


def write_payload(name: str, payload: HookPayload, body: bytes) -> WriteResult:
    """Record the reports of a payload, and mark its opt-outs as processed.

    A report that the provider must repeat does not prevent the recording of the others. The caller applies the returned
    opt-outs in the same transaction. Raises NotAllowed if the token was used before with another body.
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
    """Store a token with the hash of the body; raises NotAllowed if the token was used with another body.

    A repetition with the same body is a retry of the provider.
    """
    token_key = f"token:{token}:{hashlib.sha256(body).hexdigest()}"
    known_keys = rows("SELECT key FROM processed_notification WHERE source = ? AND key >= ? AND key < ?",
                 (name, f"token:{token}:", f"token:{token};"))  # fmt: skip
    if known_keys and (token_key,) not in known_keys:
        raise invalid_signature()
    delivery_reports.mark_processed(name, token_key)


def find_sms_provider(hook: str) -> SmsProvider | None:
    """Return the SMS provider to which the webhook `hook` belongs, even if it is disabled; None if there is none."""
    return next((provider for provider in SMS_PROVIDERS.values() if hook in provider.hooks), None)


def is_sms_hook_enabled(hook: str) -> bool:
    """Return whether an SMS webhook is enabled, that is, whether its provider has a secret."""
    provider = find_sms_provider(hook)
    return provider is not None and bool(provider.get_webhook_secret())


def read_sms_hook(hook: str, received: SmsHookRequest) -> tuple[str, HookContents]:
    """Verify a request of an SMS webhook and return (provider name, contents).

    Raises NotFound if the webhook is not enabled, NotAllowed if the signature is invalid, and Invalid if the body is
    malformed.
    """
    provider = find_sms_provider(hook)
    if provider is None or not provider.get_webhook_secret():
        raise NotFound
    try:
        return provider.name, provider.parse_hook(hook, received)
    except NotAllowed:
        log_refused_request(hook)
        raise
