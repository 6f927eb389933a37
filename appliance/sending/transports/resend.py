"""Send email over the API of Resend.

Sources: Resend, "Send Email", "Errors" and "Idempotency Keys" (https://resend.com/docs/api-reference/emails/send-email,
https://resend.com/docs/api-reference/errors, https://resend.com/docs/dashboard/emails/idempotency-keys). A request with
the key of one that was accepted in the last 24 hours is not sent again.
"""

import base64
import re
from typing import Any, ClassVar

import msgspec

from appliance.core.errors import ClientRejected, Deferred, DeliveryError, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.sending.transports.mime_parts import Attachment, parse_parts
from appliance.settings.schema import Email

_SERVER = "https://api.resend.com"
_KEY_ERRORS = ("missing_api_key", "restricted_api_key", "invalid_api_key", "invalid_access", "invalid_region")
_QUOTA_ERRORS = ("monthly_quota_exceeded", "daily_quota_exceeded")
_SENDER = re.compile(r"domain is not verified|only send testing emails|`?from`? (?:field|address)", re.IGNORECASE)
_RECIPIENT = re.compile(r"`to`", re.IGNORECASE)


class Resend(Transport):
    """The HTTP API of Resend."""

    name: ClassVar[str] = "resend"
    label: ClassVar[str] = "Resend"
    idempotent_seconds: ClassVar[float] = 23 * 3600  # an hour less than documented, as clocks and queues differ
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField("api_key", gettext_noop("API key"), gettext_noop("A key with sending access is enough."), "re_…"),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the parts of the message as JSON; each attempt has the Message-ID as its idempotency key.

        Resend has a Message-ID of its own. The local part of ours is a tag, which comes back in its events.
        """
        parts = parse_parts(email.envelope.content)
        payload = {
            "from": parts.sender.format(), "to": [email.envelope.rcpt_to], "subject": parts.subject,
            "html": parts.html, "text": parts.text, "reply_to": parts.reply_to.format() if parts.reply_to else None,
            "headers": {"Message-ID": f"<{email.message_id}>", **dict(parts.headers)},
            "attachments": [_to_attachment(attachment) for attachment in parts.attachments] or None,
            "tags": [{"name": "campanero", "value": email.message_id.partition("@")[0]}],
        }  # fmt: skip
        content = msgspec.json.encode({name: value for name, value in payload.items() if value is not None})
        headers = base.json_headers({**_login(settings), "Idempotency-Key": email.message_id[:256]})
        return HttpRequest("POST", base.join_url(settings.resend.base_url, _SERVER, "/emails"), headers, content)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `id` in the response; if an earlier attempt was accepted with other content, our Message-ID."""
        details = http_client.decode_response(response)
        if response.status == 409 and details.get("name") == "invalid_idempotent_request":
            return email.message_id
        if response.status != 200:
            raise _error_of(response, details)
        return base.require_id(response, details.get("id"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the domains of the account, which sends nothing."""
        return HttpRequest("GET", base.join_url(settings.resend.base_url, _SERVER, "/domains"), _login(settings))

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence that lists the verified domains, or says that the key may only send."""
        details = http_client.decode_response(response)
        if response.status == 401 and details.get("name") == "restricted_api_key":
            return gettext("It accepts the key, which may only send.")
        domains = details.get("data")
        if response.status != 200 or not isinstance(domains, list):
            raise _error_of(response, details)
        verified = [
            http_client.clean_text(domain.get("name"), 255)
            for domain in domains
            if isinstance(domain, dict) and domain.get("status") == "verified"
        ]
        if not verified:
            return gettext("It accepts the key, but no domain is verified there yet.")
        return gettext("It accepts the key. Verified domains: %(domains)s.", domains=", ".join(verified[:10]))


def _login(settings: Email) -> dict[str, str]:
    return {"Authorization": f"Bearer {settings.resend.api_key}"}


def _to_attachment(attachment: Attachment) -> dict[str, str]:
    fields = {
        "content": base64.b64encode(attachment.content).decode(), "filename": attachment.name,
        "content_type": attachment.content_type,
    }  # fmt: skip
    return fields | ({"content_id": attachment.content_id} if attachment.content_id else {})


def _error_of(response: HttpResponse, details: dict[str, Any]) -> DeliveryError:
    name, text = details.get("name"), details.get("message")
    if name in _KEY_ERRORS or (name == "validation_error" and "api key" in str(text).lower()):
        return base.reject(ClientRejected, response, name, text)
    if name == "concurrent_idempotent_requests":
        return base.reject(Deferred, response, name, text)
    if name == "invalid_from_address" or (name == "validation_error" and _SENDER.search(str(text))):
        return base.reject(SenderRejected, response, name, text)
    if name == "validation_error" and _RECIPIENT.search(str(text)):
        return base.reject(RecipientRejected, response, name, text, base.INVALID_ADDRESS)
    return base.build_error(response, name, text, base.QUOTA_SECONDS if name in _QUOTA_ERRORS else 0)
