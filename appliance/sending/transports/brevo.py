"""Send email over the API of Brevo.

Sources: Brevo, "Send a transactional email", "Email API now supports idempotency" and "Idempotency for batch emails"
(https://developers.brevo.com/reference/sendtransacemail,
https://developers.brevo.com/changelog/email-api-now-supports-idempotency,
https://developers.brevo.com/docs/heterogenous-versions-batch-emails). A request with the key of one that was accepted
in the last 15 minutes (on the last of these pages 30) is not sent again.
"""

import base64
import mimetypes
import re
import uuid
from typing import Any, ClassVar

import msgspec

from appliance.core.errors import ClientRejected, DeliveryError, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.sending.transports.mime_parts import Attachment, Mailbox, parse_parts
from appliance.settings.schema import Email

_SERVER = "https://api.brevo.com"
_ACCOUNT_ERRORS = (
    "unauthorized", "permission_denied", "not_enough_credits", "account_under_validation", "reseller_permission_denied",
)  # fmt: skip
# The codes for a repeated request; which one, depends on the page of the documentation.
_DUPLICATE_CODES = ("duplicate_request", "duplicate_parameter")
_SENDER = re.compile(r"\bsender\b", re.IGNORECASE)
_RECIPIENT = re.compile(r"\bemail is not valid in to\b|(?<!reply.)\bto\b.{0,40}(?:not valid|invalid)", re.IGNORECASE)


class Brevo(Transport):
    """The HTTP API of Brevo."""

    name: ClassVar[str] = "brevo"
    label: ClassVar[str] = "Brevo"
    idempotent_seconds: ClassVar[float] = 14 * 60  # a minute less than documented
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField("api_key", gettext_noop("API key"), gettext_noop("An API key, not an SMTP key."), "xkeysib-…"),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the parts of the message as JSON; each attempt has the same idempotency key.

        Brevo has a Message-ID of its own. Ours comes back in its events as `X-Mailin-custom`.
        """
        parts = parse_parts(email.envelope.content)
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, f"mid:{email.message_id}"))
        headers = {**dict(parts.headers), "X-Mailin-custom": email.message_id, "idempotencyKey": key}
        payload = {
            "sender": _to_address(parts.sender), "to": [{"email": email.envelope.rcpt_to}],
            "replyTo": _to_address(parts.reply_to) if parts.reply_to else None, "subject": parts.subject,
            "htmlContent": parts.html, "textContent": parts.text, "headers": headers,
            "attachment": [_to_attachment(attachment) for attachment in parts.attachments] or None,
        }  # fmt: skip
        content = msgspec.json.encode({name: value for name, value in payload.items() if value is not None})
        url = base.join_url(settings.brevo.base_url, _SERVER, "/v3/smtp/email")
        return HttpRequest("POST", url, base.json_headers(_login(settings)), content)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `messageId` of the response without its angle brackets; for a repeated request, our Message-ID."""
        details = http_client.decode_response(response)
        if details.get("code") in _DUPLICATE_CODES:
            return email.message_id
        if response.status not in (201, 202):
            raise _error_of(response, details)
        return base.require_id(response, str(details.get("messageId") or "").strip("<>"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the details of the account, which sends nothing."""
        return HttpRequest("GET", base.join_url(settings.brevo.base_url, _SERVER, "/v3/account"), _login(settings))

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence with the name of the account that accepts the key."""
        account = http_client.decode_response(response)
        if response.status != 200 or "email" not in account:
            raise _error_of(response, account)
        name = http_client.clean_text(account.get("companyName") or account["email"], 100)
        return gettext("It accepts the key of the account %(name)s.", name=name)


def _login(settings: Email) -> dict[str, str]:
    return {"api-key": settings.brevo.api_key}


def _to_address(mailbox: Mailbox) -> dict[str, str]:
    return {"email": mailbox.address} | ({"name": mailbox.name} if mailbox.name else {})


def _to_attachment(attachment: Attachment) -> dict[str, str]:
    """Return an attachment as JSON of the API.

    Brevo has no field for a Content-ID, and finds an image of the HTML by its file name.
    """
    content_id = attachment.content_id or ""
    name = content_id if mimetypes.guess_type(content_id)[0] else attachment.name
    return {"content": base64.b64encode(attachment.content).decode(), "name": name}


def _error_of(response: HttpResponse, details: dict[str, Any]) -> DeliveryError:
    code, text = details.get("code"), details.get("message")
    if code in _ACCOUNT_ERRORS:
        return base.reject(ClientRejected, response, code, text)
    if code == "invalid_parameter" and _RECIPIENT.search(str(text)):
        return base.reject(RecipientRejected, response, code, text, base.INVALID_ADDRESS)
    if code == "invalid_parameter" and _SENDER.search(str(text)):
        return base.reject(SenderRejected, response, code, text)
    return base.build_error(response, code, text)
