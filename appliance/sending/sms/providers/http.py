"""Send SMS as signed JSON to a server of the operator, and receive its signed webhooks."""

from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from appliance.core import crypto
from appliance.core.errors import DeliveryError, Invalid
from appliance.sending.sms import error_codes
from appliance.sending.sms.error_codes import HookContents, HookRequest, IncomingSms, Receipt
from appliance.sending.sms.providers import base
from appliance.sending.sms.providers.base import HttpResponse, Provider
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config, schema

_MAX_AGE_SECONDS = 300


class _HookBody(Struct, frozen=True):
    """A status of our message, or an incoming message; the fields of the other type may be null."""

    type: Literal["status", "message"]
    id: str | int | None = None
    status: str | None = None
    from_: str | int | None = field(default=None, name="from")
    to: str | int | None = None
    body: str | None = None
    error: Any = None
    answered: str | None = None  # the keyword that the provider handled and answered itself


class Http(Provider):
    """A provider that posts each SMS to the URL of the settings."""

    name: ClassVar[str] = "http"
    chooses_sender: ClassVar[bool] = True
    hooks: ClassVar[tuple[str, ...]] = ("sms",)

    def find_setting_faults(self, sms: schema.Sms | None = None) -> list[tuple[str, str]]:
        """Return the missing or invalid settings."""
        http_settings, faults = sms.http if sms else _settings(), []
        if not http_settings.url:
            faults.append(("sms.http.url", "needed when sms.transport is http"))
        elif (fault := base.find_url_fault(http_settings.url)) is not None:
            faults.append(("sms.http.url", f"{http_settings.url!r} {fault}"))
        if not http_settings.secret:
            faults.append(("sms.http.secret", "needed when sms.transport is http: it signs what is sent"))
        return faults

    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Send a message once; each attempt has the same `webhook-id`, so that the server can detect a repeat."""
        http_settings = _settings()
        payload = {
            "id": text.id, "to": text.to, "from": text.sender or None, "body": text.body,
            "callback_url": text.callback_url,
        }  # fmt: skip
        body, webhook_id, timestamp = msgspec.json.encode(payload), f"sms_{text.id}", str(int(base.signing_time()))
        headers = {
            "Content-Type": "application/json", "webhook-id": webhook_id, "webhook-timestamp": timestamp,
            "webhook-signature": crypto.sign_webhook(http_settings.secret, webhook_id, timestamp, body),
        }  # fmt: skip
        response = await base.fetch("POST", http_settings.url, headers, body)
        if not 200 <= response.status < 300:
            raise _error_of(response)
        answer = base.decode_response(response)
        # Without an id in the response, the id of our message identifies it
        return AcceptedSms(base.parse_id(answer.get("id")) or str(text.id), _first_status(answer))

    async def check_login(self) -> str:
        """Open a connection; any request would send an SMS."""
        await base.check_connection(_settings().url)
        return f"{urlsplit(_settings().url).netloc} can be reached; whether it takes SMS is seen with the first"

    def list_warnings(self) -> list[str]:
        """Return a warning if the texts are sent unencrypted."""
        return base.unencrypted_warnings("sms.http.url", _settings().url)

    def get_webhook_secret(self) -> str:
        """Return the secret that signs messages and webhooks."""
        return _settings().secret

    def build_callback_url(self, message_id: int) -> str:
        """Return the URL for receipts of a message, or an empty string."""
        return base.build_callback_url("/hooks/sms", message_id, _settings().url)

    def parse_hook(self, hook: str, received: HookRequest) -> HookContents:
        """Parse a webhook request. Raises NotAllowed or Invalid."""
        webhook_id, timestamp = received.headers.get("webhook-id", ""), received.headers.get("webhook-timestamp", "")
        signature = received.headers.get("webhook-signature", "")
        if (
            not self.get_webhook_secret()
            or not webhook_id
            or not crypto.has_valid_signature(
                self.get_webhook_secret(), webhook_id, timestamp, received.body, signature
            )
        ):
            raise base.invalid_signature()
        if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
            raise base.invalid_signature()
        if abs(base.signing_time() - int(timestamp)) > _MAX_AGE_SECONDS:
            raise base.invalid_signature()
        try:
            hook_body = base.decode_hook(received.body, _HookBody)
        except ValueError:
            raise Invalid({"base": ["is invalid"]}) from None
        if hook_body.type == "message":
            return HookContents(incoming=(_to_incoming(hook_body, webhook_id),))
        return HookContents((_to_receipt(hook_body, base.message_id_of_url(received.url)),))


def _settings() -> schema.HttpSms:
    return config.current().sms.http


def _first_status(answer: dict[str, Any]) -> str:
    status = base.STATUS_OF_PROVIDER.get(str(answer.get("status")).lower(), "sent")
    return status if status == "delivered" else "sent"


def _error_of(response: HttpResponse) -> DeliveryError:
    """Return the error of a response: its code or class and text, from its `error` or from the object itself."""
    details = base.decode_response(response)
    code, text = _parse_error(details.get("error") if details.get("error") is not None else details)
    return error_codes.build_response_error(
        response.status, code, text or base.excerpt(response), base.parse_retry_after(response)
    )


def _parse_error(error: Any) -> tuple[str | None, str]:
    """Return (code, text) of an error that is a code, a text, or an object with both."""
    if isinstance(error, dict):
        code = base.clean_text(error.get("code"), 20) or None
        return code, base.clean_text(error.get("message") or error.get("text"))
    text = base.clean_text(error)
    first = text.partition(" ")[0].strip(":,")
    if first.isdecimal() or (first and error_codes.find_meaning(first) is not error_codes.find_meaning(None)):
        return first[:20], text[len(first) :].lstrip(" :,")
    return None, text


def _to_receipt(hook_body: _HookBody, message_id: int | None) -> Receipt:
    provider_id, status = base.parse_id(hook_body.id), base.STATUS_OF_PROVIDER.get((hook_body.status or "").lower())
    errors = {}
    if provider_id is None and message_id is None:
        errors["id"] = ["can't be blank" if hook_body.id in (None, "") else "is invalid"]
    if status is None:
        errors["status"] = ["is not included in the list"]
    if errors or status is None:
        raise Invalid(errors)
    code, text = _parse_error(hook_body.error)
    return Receipt(provider_id or str(message_id), status, message_id, code, text)


def _to_incoming(hook_body: _HookBody, webhook_id: str) -> IncomingSms:
    sender, to = base.clean_text(hook_body.from_, 64), base.clean_text(hook_body.to, 64)
    if not sender:
        raise Invalid({"from": ["can't be blank"]})
    # A message without an id of its own counts once by the id of the request
    return IncomingSms(
        base.parse_id(hook_body.id) or webhook_id, sender, to, base.clean_body(hook_body.body or ""),
        base.clean_text(hook_body.answered, 20).upper() or None,
    )  # fmt: skip
