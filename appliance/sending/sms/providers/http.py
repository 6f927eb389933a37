"""Send SMS as signed JSON requests to the operator's own HTTP gateway, and parse its signed webhook requests."""

from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from appliance.core import crypto
from appliance.core.errors import DeliveryError, Invalid
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpResponse
from appliance.sending.sms import error_codes
from appliance.sending.sms.error_codes import HookContents, HookRequest, IncomingSms, Receipt
from appliance.sending.sms.providers import base
from appliance.sending.sms.providers.base import Provider
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config, schema
from appliance.settings.config import parse_seconds


class _HookBody(Struct, frozen=True):
    """The body of a webhook request: the status of an SMS that we sent, or an incoming SMS (`type`).

    `id`, `status` and `error` belong to a status; `id`, `from`, `to`, `body` and `answered` to an incoming SMS.
    """

    type: Literal["status", "message"]
    id: str | int | None = None
    status: str | None = None
    from_: str | int | None = field(default=None, name="from")
    to: str | int | None = None
    body: str | None = None
    error: Any = None
    answered: str | None = None  # the keyword (STOP, START, HELP) to which the gateway has replied by itself


class Http(Provider):
    """A provider that posts each SMS to the URL in `sms.http.url`."""

    name: ClassVar[str] = "http"
    chooses_sender: ClassVar[bool] = True
    hooks: ClassVar[tuple[str, ...]] = ("sms",)

    def find_setting_faults(self, sms: schema.Sms | None = None) -> list[tuple[str, str]]:
        """Return (setting, fault) of each missing or invalid setting of `sms.http`, by default the current ones."""
        http_settings, faults = sms.http if sms else _settings(), []
        if not http_settings.url:
            faults.append(("sms.http.url", "needed when sms.transport is http"))
        elif (fault := http_client.find_url_fault(http_settings.url)) is not None:
            faults.append(("sms.http.url", f"{http_settings.url!r} {fault}"))
        if not http_settings.secret:
            faults.append(("sms.http.secret", "needed when sms.transport is http: it signs what is sent"))
        return faults

    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Post an SMS and return the id in the response or, if it has none, our own id of the message.

        Each attempt for a message has the same `webhook-id`, so that the gateway can detect a repeated request. Raises
        the errors of `Provider.send`.
        """
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
        response = await base.fetch("POST", http_settings.url, headers, body, text.check)
        if not 200 <= response.status < 300:
            raise _error_of(response)
        answer = http_client.decode_response(response)
        # If the response contains no id, receipts identify the SMS by our own id.
        return AcceptedSms(http_client.parse_id(answer.get("id")) or str(text.id), _first_status(answer))

    async def check_login(self) -> str:
        """Check that a connection to the gateway can be opened, and return the result as text.

        Raises ConnectionFailed if it cannot be opened. No request is sent, because any request would send an SMS.
        """
        await http_client.check_connection(_settings().url)
        return f"{urlsplit(_settings().url).netloc} can be reached; whether it takes SMS is seen with the first"

    def list_warnings(self) -> list[str]:
        """Return a warning if SMS are posted to a public URL without encryption."""
        return http_client.unencrypted_warnings("sms.http.url", _settings().url)

    def get_webhook_secret(self) -> str:
        """Return the secret that signs our requests and the gateway's webhook requests."""
        return _settings().secret

    def build_callback_url(self, message_id: int) -> str:
        """Return the URL where the gateway posts receipts of a message, or an empty string if it cannot reach us."""
        return base.build_callback_url("/hooks/sms", message_id, _settings().url)

    def parse_hook(self, hook: str, received: HookRequest) -> HookContents:
        """Verify and parse a webhook request.

        Raises NotAllowed if the signature is invalid or older than `network.hook_max_age`, Invalid if the body is
        invalid.
        """
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
        if abs(base.signing_time() - int(timestamp)) > parse_seconds(config.current().network.hook_max_age):
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
    """Return the error for a response that does not accept an SMS.

    Code and text are in the `error` of its JSON object, or else in the object itself.
    """
    details = http_client.decode_response(response)
    code, text = _parse_error(details.get("error") if details.get("error") is not None else details)
    return error_codes.build_response_error(
        response.status, code, text or http_client.excerpt(response), http_client.parse_retry_after(response)
    )


def _parse_error(error: Any) -> tuple[str | None, str]:
    """Return (code, text) of an error: an object with `code` and `message`, or text that may begin with a code.

    The code may also be the name of a bounce class. It is None if the error has no code.
    """
    if isinstance(error, dict):
        code = http_client.clean_text(error.get("code"), 20) or None
        return code, http_client.clean_text(error.get("message") or error.get("text"))
    text = http_client.clean_text(error)
    first = text.partition(" ")[0].strip(":,")
    if first.isdecimal() or (first and error_codes.find_meaning(first) is not error_codes.find_meaning(None)):
        return first[:20], text[len(first) :].lstrip(" :,")
    return None, text


def _to_receipt(hook_body: _HookBody, message_id: int | None) -> Receipt:
    provider_id, status = (
        http_client.parse_id(hook_body.id),
        base.STATUS_OF_PROVIDER.get((hook_body.status or "").lower()),
    )
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
    sender, to = http_client.clean_text(hook_body.from_, 64), http_client.clean_text(hook_body.to, 64)
    if not sender:
        raise Invalid({"from": ["can't be blank"]})
    # An incoming SMS without an id is identified by the id of its request, so that a repeated request counts once.
    return IncomingSms(
        http_client.parse_id(hook_body.id) or webhook_id, sender, to, base.clean_body(hook_body.body or ""),
        http_client.clean_text(hook_body.answered, 20).upper() or None,
    )  # fmt: skip
