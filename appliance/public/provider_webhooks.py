"""Webhooks of email and SMS providers; a request is acknowledged after it is stored (docs/decisions.md#15)."""

from sanic import HTTPResponse, Request
from sanic.exceptions import MethodNotAllowed, PayloadTooLarge
from sanic.response import json

from appliance.core import crypto, validation
from appliance.core.errors import NotFound
from appliance.inbound import delivery_reports, incoming_sms, providers
from appliance.inbound.delivery_reports import MessageInFlight
from appliance.inbound.providers.base import HookPayload, HookRequest
from appliance.sending.messages import links
from appliance.sending.sms import error_codes as sms
from appliance.settings import config
from appliance.storage.transactions import commit
from appliance.tracking import unsubscribes

# Enough for delivery receipts, or for a percent-encoded SMS of 1,600 characters with metadata.
_MAX_SMS_BODY_BYTES = 65_536


def _require_open_post(request: Request, is_open: bool) -> None:
    """Raise NotFound if the webhook is not enabled (`is_open`), and MethodNotAllowed for methods other than POST."""
    if not is_open:
        raise NotFound
    if request.method != "POST":
        raise MethodNotAllowed("only POST", request.method, ["POST"])


async def receive_email_webhook(request: Request, name: str) -> HTTPResponse:
    """Receive reports from an email provider, or from an SMS provider that has only one webhook.

    Raises NotFound if the webhook is not enabled, MethodNotAllowed for other methods than POST, NotAllowed for a forged
    request, Invalid for a malformed body, PayloadTooLarge for too many values, Unavailable if the reports cannot be
    stored now, or MessageInFlight if a report arrived before its message was recorded as sent.
    """
    if providers.find_sms_provider(name) is not None:
        return await _receive_sms_webhook(request, name)
    _require_open_post(request, providers.is_enabled(name))
    body = request.body
    if validation.has_too_many_values(body):
        raise PayloadTooLarge("the request has too many values")
    payload = await providers.read_request(
        name, HookRequest({key.lower(): value for key, value in request.headers.items()}, body)
    )
    # Store all reports that can be stored now. The error response makes the provider repeat the request for the other
    # reports; reports that are stored already do not count twice.
    waiting = [await commit(_record_reports, name, part, body) for part in providers.split_payload(payload)]
    for error in filter(None, waiting):
        raise error
    return json({"received": len(payload.reports) + len(payload.opt_outs)})


def _record_reports(name: str, payload: HookPayload, body: bytes) -> MessageInFlight | None:
    written = providers.write_payload(name, payload, body)
    for opt_out in written.opt_outs:
        unsubscribes.opt_out(crypto.sign_token(links.UNSUBSCRIBE, opt_out.message_id), name, None, None)
    return written.in_flight


async def receive_provider_webhook(request: Request, provider: str, name: str) -> HTTPResponse:
    """Receive reports from an SMS provider that has several webhooks, each with its own `name`."""
    return await _receive_sms_webhook(request, f"{provider}/{name}")


async def _receive_sms_webhook(request: Request, hook: str) -> HTTPResponse:
    """Receive reports and incoming SMS from an SMS provider, and store all of a request in one transaction.

    Raises NotFound if the webhook is not enabled, MethodNotAllowed for other methods than POST, PayloadTooLarge, or the
    errors of `read_sms_hook`.
    """
    _require_open_post(request, providers.is_sms_hook_enabled(hook))
    if len(request.body) > _MAX_SMS_BODY_BYTES:
        raise PayloadTooLarge(f"at most {_MAX_SMS_BODY_BYTES} bytes")
    # The signature covers the public URL with the path and query as received. The Host header is ignored, because the
    # base URL is configured.
    target = request.raw_url.decode("latin-1")
    headers = {key.lower(): value for key, value in request.headers.items()}
    provider, contents = providers.read_sms_hook(
        hook, sms.HookRequest(config.base_url(config.current()) + target, headers, bytes(request.body))
    )
    await commit(_record_sms_reports, provider, contents)
    return HTTPResponse(contents.reply, 200, content_type=contents.media)


def _record_sms_reports(provider: str, contents: sms.HookContents) -> None:
    delivery_reports.apply_receipts(provider, contents.receipts)
    for message in contents.incoming:
        incoming_sms.receive_sms(provider, message)
