"""Send email over the API of Postmark.

Sources: Postmark, "Email API: send a single email" and "API error codes"
(https://postmarkapp.com/developer/api/email-api, https://postmarkapp.com/developer/api/overview#error-codes). Postmark
keeps our Message-ID only with the header `X-PM-KeepID`. Its metadata come back in its webhooks.
"""

import base64
import re
from typing import ClassVar

import msgspec

from appliance.core.errors import ClientRejected, Deferred, DeliveryError, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.sending.transports.mime_parts import Attachment, parse_parts
from appliance.settings.schema import Email

_SERVER = "https://api.postmarkapp.com"
_METADATA = "x-pm-metadata-"
_MAINTENANCE = 100
_INACTIVE_RECIPIENT, _INVALID_REQUEST = 406, 300
# Codes about a From address that is neither a confirmed sender signature nor on a verified domain.
_SENDER_CODES = (400, 401)
# Codes about the token, the credits, the approval or the message stream of the account.
_ACCOUNT_CODES = (10, 405, 412, 413, 1226, 1235, 1236)
_INVALID_TO = re.compile(r"'to' address|invalid 'to'", re.IGNORECASE)


class Postmark(Transport):
    """The HTTP API of Postmark."""

    name: ClassVar[str] = "postmark"
    label: ClassVar[str] = "Postmark"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField(
            "server_token", gettext_noop("Server token"), gettext_noop("Under “API Tokens” of your Postmark server.")
        ),
        SettingField(
            "broadcast_stream",
            gettext_noop("Message stream for marketing"),
            gettext_noop("The ID of a broadcast stream. Postmark requires one for campaigns."),
        ),
        SettingField("transactional_stream", gettext_noop("Message stream for transactional email")),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the parts of the message as JSON, with links and opens not tracked by Postmark."""
        postmark, parts = settings.postmark, parse_parts(email.envelope.content)
        metadata = {
            name[len(_METADATA) :]: value for name, value in parts.headers if name.lower().startswith(_METADATA)
        }
        headers = [("Message-ID", f"<{email.message_id}>"), ("X-PM-KeepID", "true")]
        headers += [header for header in parts.headers if not header[0].lower().startswith(_METADATA)]
        payload = {
            "From": parts.sender.format(), "To": email.envelope.rcpt_to, "Subject": parts.subject,
            "TextBody": parts.text, "HtmlBody": parts.html,
            "ReplyTo": parts.reply_to.format() if parts.reply_to else None,
            "Headers": [{"Name": name, "Value": value} for name, value in headers], "Metadata": metadata or None,
            "MessageStream": postmark.broadcast_stream if email.is_marketing else postmark.transactional_stream,
            "TrackOpens": False, "TrackLinks": "None",
            "Attachments": [_to_attachment(attachment) for attachment in parts.attachments] or None,
        }  # fmt: skip
        content = msgspec.json.encode({name: value for name, value in payload.items() if value is not None})
        return HttpRequest("POST", _build_url(settings, "/email"), base.json_headers(_login(settings)), content)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `MessageID` in the response of acceptance."""
        answer = http_client.decode_response(response)
        if response.status != 200 or answer.get("ErrorCode"):
            raise _error_of(response)
        return base.require_id(response, answer.get("MessageID"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the details of the Postmark server of the token, which sends nothing."""
        return HttpRequest("GET", _build_url(settings, "/server"), _login(settings))

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence with the name of the Postmark server, which says whether it is a sandbox."""
        server = http_client.decode_response(response)
        if response.status != 200 or "Name" not in server:
            raise _error_of(response)
        name = http_client.clean_text(server["Name"], 100)
        if server.get("DeliveryType") == "Sandbox":
            return gettext("The token of the server %(name)s is accepted. It is a sandbox: nothing is sent.", name=name)
        return gettext("The token of the server %(name)s is accepted.", name=name)


def _build_url(settings: Email, path: str) -> str:
    return base.join_url(settings.postmark.base_url, _SERVER, path)


def _login(settings: Email) -> dict[str, str]:
    return {"X-Postmark-Server-Token": settings.postmark.server_token}


def _to_attachment(attachment: Attachment) -> dict[str, str]:
    fields = {
        "Name": attachment.name, "Content": base64.b64encode(attachment.content).decode(),
        "ContentType": attachment.content_type,
    }  # fmt: skip
    return fields | ({"ContentID": f"cid:{attachment.content_id}"} if attachment.content_id else {})


def _error_of(response: HttpResponse) -> DeliveryError:
    details = http_client.decode_response(response)
    code, text = details.get("ErrorCode"), details.get("Message")
    if code == _INACTIVE_RECIPIENT:
        return base.reject(RecipientRejected, response, code, text, base.SUPPRESSED_BY_PROVIDER)
    if code == _INVALID_REQUEST and _INVALID_TO.search(str(text)):
        return base.reject(RecipientRejected, response, code, text, base.INVALID_ADDRESS)
    if code in _SENDER_CODES or (code == _INVALID_REQUEST and "'from'" in str(text).lower()):
        return base.reject(SenderRejected, response, code, text)
    if code in _ACCOUNT_CODES:
        return base.reject(ClientRejected, response, code, text)
    if code == _MAINTENANCE:
        return base.reject(Deferred, response, code, text)
    return base.build_error(response, code, text)
