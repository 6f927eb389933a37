"""Send email over the API of SendGrid.

Sources: Twilio SendGrid, "Mail Send" and its "Errors" (https://www.twilio.com/docs/sendgrid/api-reference/mail-send),
and "4XX API errors and troubleshooting" (https://support.sendgrid.com/hc/en-us/articles/18322114821403). Errors have no
codes, only the name of the field. Custom arguments come back in the webhook.
"""

import base64
from typing import Any, ClassVar

import msgspec

from appliance.core.errors import ClientRejected, DeliveryError, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.sending.transports.mime_parts import Attachment, EmailParts, Mailbox, parse_parts
from appliance.settings.schema import Email

_SERVERS = {"global": "https://api.sendgrid.com", "eu": "https://api.eu.sendgrid.com"}
_SMTP_HEADER = "x-smtpapi"
_RECIPIENT_FIELD = "personalizations.0.to.0.email"
_NO_TRACKING = {
    name: {"enable": False} for name in ("click_tracking", "open_tracking", "subscription_tracking", "ganalytics")
}


class SendGrid(Transport):
    """The HTTP API of SendGrid."""

    name: ClassVar[str] = "sendgrid"
    label: ClassVar[str] = "SendGrid"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField(
            "api_key", gettext_noop("API key"), gettext_noop("A key with the permission “Mail Send”."), "SG.…"
        ),
        SettingField(
            "region",
            gettext_noop("Region"),
            choices=(("global", gettext_noop("Global")), ("eu", gettext_noop("EU"))),
        ),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the parts of the message as JSON, with links and opens not tracked by SendGrid."""
        parts = parse_parts(email.envelope.content)
        bodies = (("text/plain", parts.text), ("text/html", parts.html))
        headers = {name: value for name, value in parts.headers if name.lower() != _SMTP_HEADER}
        payload = {
            "personalizations": [{"to": [{"email": email.envelope.rcpt_to}]}],
            "from": _to_address(parts.sender), "reply_to": _to_address(parts.reply_to) if parts.reply_to else None,
            "subject": parts.subject,
            "content": [{"type": kind, "value": text} for kind, text in bodies if text],
            "headers": {"Message-ID": f"<{email.message_id}>", **headers},
            "custom_args": _read_arguments(parts) or None,
            "attachments": [_to_attachment(attachment) for attachment in parts.attachments] or None,
            "tracking_settings": _NO_TRACKING,
        }  # fmt: skip
        content = msgspec.json.encode({name: value for name, value in payload.items() if value is not None})
        return HttpRequest("POST", _build_url(settings, "/v3/mail/send"), base.json_headers(_login(settings)), content)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the header `X-Message-Id` of a response with status 202."""
        if response.status != 202:
            raise _error_of(response)
        return base.require_id(response, response.headers.get("x-message-id"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the permissions of the key, which sends nothing."""
        return HttpRequest("GET", _build_url(settings, "/v3/scopes"), _login(settings))

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence that the key may send; raise ClientRejected if it lacks the permission."""
        scopes = http_client.decode_response(response).get("scopes")
        if response.status != 200 or not isinstance(scopes, list):
            raise _error_of(response)
        if "mail.send" not in scopes:
            raise ClientRejected(gettext_noop("The key lacks the permission “Mail Send”."))
        return gettext("It accepts the key, which may send.")


def _build_url(settings: Email, path: str) -> str:
    return base.join_url(settings.sendgrid.base_url, _SERVERS[settings.sendgrid.region], path)


def _login(settings: Email) -> dict[str, str]:
    return {"Authorization": f"Bearer {settings.sendgrid.api_key}"}


def _to_address(mailbox: Mailbox) -> dict[str, str]:
    return {"email": mailbox.address} | ({"name": mailbox.name} if mailbox.name else {})


def _read_arguments(parts: EmailParts) -> dict[str, Any]:
    """Return the arguments in the header for SendGrid's SMTP server (`links.build_provider_headers`)."""
    value = next((value for name, value in parts.headers if name.lower() == _SMTP_HEADER), None)
    arguments: dict[str, Any] = msgspec.json.decode(value)["unique_args"] if value else {}
    return arguments


def _to_attachment(attachment: Attachment) -> dict[str, str]:
    fields = {
        "content": base64.b64encode(attachment.content).decode(), "type": attachment.content_type,
        "filename": attachment.name,
    }  # fmt: skip
    if attachment.content_id:
        return fields | {"disposition": "inline", "content_id": attachment.content_id}
    return fields | {"disposition": "attachment"}


def _error_of(response: HttpResponse) -> DeliveryError:
    errors = http_client.decode_response(response).get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    field, text = str(first.get("field") or ""), first.get("message")
    if response.status == 400 and field == _RECIPIENT_FIELD:
        return base.reject(RecipientRejected, response, None, text, base.INVALID_ADDRESS)
    if response.status in (400, 403) and field.startswith("from"):
        return base.reject(SenderRejected, response, None, text)
    return base.build_error(response, None, text)
