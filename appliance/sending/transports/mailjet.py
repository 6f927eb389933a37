"""Send email over the API of Mailjet (v3.1).

Sources: Mailjet, "Send API v3.1", "Send API errors" and "Status codes"
(https://dev.mailjet.com/docs/email-api/email_api_overview/status_codes,
https://dev.mailjet.com/email/guides/send-api-v31/). The status of a message and its errors are in the body.
"""

import base64
import re
from typing import Any, ClassVar

import msgspec

from appliance.core.errors import DeliveryError, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.sending.transports.mime_parts import Attachment, Mailbox, parse_parts
from appliance.settings.schema import Email

_SERVER = "https://api.mailjet.com"
# Headers that Mailjet sets itself; with one of them it rejects the message (send-0011).
_FORBIDDEN_HEADERS = frozenset(("list-id", "user-agent", "x-mailer", "x-csa-complaints", "x-feedback-id"))
_FORBIDDEN_PREFIXES = ("x-mj-", "x-mailjet-")
_INVALID_ADDRESS, _UNVERIFIED_SENDER = "mj-0013", "send-0008"
_TO = re.compile(r"\bTo\b")  # not ReplyTo


class Mailjet(Transport):
    """The HTTP API of Mailjet."""

    name: ClassVar[str] = "mailjet"
    label: ClassVar[str] = "Mailjet"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField("api_key", gettext_noop("API key")),
        SettingField("secret_key", gettext_noop("Secret key")),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the parts of the message as JSON, with links and opens not tracked by Mailjet.

        Mailjet has a Message-ID of its own, so ours is the `CustomID`, which comes back in its events.
        """
        parts = parse_parts(email.envelope.content)
        headers = {
            name: value
            for name, value in parts.headers
            if name.lower() not in _FORBIDDEN_HEADERS and not name.lower().startswith(_FORBIDDEN_PREFIXES)
        }
        files = [(bool(attachment.content_id), _to_attachment(attachment)) for attachment in parts.attachments]
        message = {
            "From": _to_address(parts.sender), "To": [{"Email": email.envelope.rcpt_to}],
            "ReplyTo": _to_address(parts.reply_to) if parts.reply_to else None, "Subject": parts.subject,
            "TextPart": parts.text, "HTMLPart": parts.html, "Headers": headers or None,
            "CustomID": email.message_id, "TrackOpens": "disabled", "TrackClicks": "disabled",
            "Attachments": [file for is_inline, file in files if not is_inline] or None,
            "InlinedAttachments": [file for is_inline, file in files if is_inline] or None,
        }  # fmt: skip
        payload = {"Messages": [{name: value for name, value in message.items() if value is not None}]}
        url = base.join_url(settings.mailjet.base_url, _SERVER, "/v3.1/send")
        return HttpRequest("POST", url, base.json_headers(_login(settings)), msgspec.json.encode(payload))

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `MessageUUID` of the recipient, which is the id of the accepted message."""
        message = _first(http_client.decode_response(response).get("Messages"))
        if response.status != 200 or message.get("Status") == "error":
            raise _error_of(response, message)
        return base.require_id(response, _first(message.get("To")).get("MessageUUID"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the API keys of the account, which sends nothing."""
        url = base.join_url(settings.mailjet.base_url, _SERVER, "/v3/REST/apikey")
        return HttpRequest("GET", url, _login(settings))

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence that the key is accepted."""
        if response.status != 200 or "Data" not in http_client.decode_response(response):
            raise _error_of(response, {})
        return gettext("It accepts the key.")


def _login(settings: Email) -> dict[str, str]:
    login = f"{settings.mailjet.api_key}:{settings.mailjet.secret_key}"
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _first(entries: Any) -> dict[str, Any]:
    """Return the first object of a list, or an empty one."""
    return entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}


def _to_address(mailbox: Mailbox) -> dict[str, str]:
    return {"Email": mailbox.address} | ({"Name": mailbox.name} if mailbox.name else {})


def _to_attachment(attachment: Attachment) -> dict[str, str]:
    fields = {
        "ContentType": attachment.content_type, "Filename": attachment.name,
        "Base64Content": base64.b64encode(attachment.content).decode(),
    }  # fmt: skip
    return fields | ({"ContentID": attachment.content_id} if attachment.content_id else {})


def _error_of(response: HttpResponse, message: dict[str, Any]) -> DeliveryError:
    """Return the error of a message, which has a status of its own, or of the whole request."""
    details = _first(message.get("Errors")) or http_client.decode_response(response)
    code, text = details.get("ErrorCode"), details.get("ErrorMessage")
    related = str(details.get("ErrorRelatedTo") or "")
    if code == _INVALID_ADDRESS and _TO.search(related):
        return base.reject(RecipientRejected, response, code, text, base.INVALID_ADDRESS)
    if code == _UNVERIFIED_SENDER or (response.status < 500 and "From" in related):
        return base.reject(SenderRejected, response, code, text)
    status = details.get("StatusCode")
    if response.status == 200 and isinstance(status, int):
        response = response._replace(status=status)
    return base.build_error(response, code, text)
