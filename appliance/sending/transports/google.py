"""Send email over the Gmail API, which takes our MIME bytes.

Sources: Google, "Method: users.messages.send", "Resolve errors" and "Usage limits" of the Gmail API
(https://developers.google.com/workspace/gmail/api/reference/rest/v1/users.messages/send,
https://developers.google.com/workspace/gmail/api/guides/handle-errors), and "OpenID Connect" for the check: the scope
`gmail.send` allows no request but sending.
"""

import base64
import re
from typing import Any, ClassVar

import msgspec

from appliance.core.errors import ClientRejected, DeliveryError, RateLimited, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField
from appliance.sending.transports.oauth_api import OAuthApi, address_to_recipient
from appliance.settings.schema import Email

_SERVER = "https://gmail.googleapis.com"
_USER_INFO = "https://openidconnect.googleapis.com"
_RATE_REASONS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "RESOURCE_EXHAUSTED")
_QUOTA_REASONS = ("dailyLimitExceeded", "quotaExceeded")
# Errors of the mailbox or the project, which Google also reports with status 400.
_ACCOUNT_REASONS = ("failedPrecondition", "FAILED_PRECONDITION", "accessNotConfigured", "domainPolicy")
_RECIPIENT = re.compile(r"\b(?:invalid to header|recipient address required|invalid (?:recipient|to)\b)", re.IGNORECASE)
_SENDER = re.compile(r"\binvalid from header|\bdelegation denied|\bfrom address\b", re.IGNORECASE)


class Google(OAuthApi):
    """The HTTP API of Gmail and Google Workspace."""

    name: ClassVar[str] = "google"
    label: ClassVar[str] = "Gmail, Google Workspace"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField(
            "client_id",
            gettext_noop("OAuth client ID"),
            gettext_noop("Of an app that you register with Google. Save it, and then sign in."),
            "….apps.googleusercontent.com",
        ),
        SettingField("client_secret", gettext_noop("OAuth client secret")),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return a request with the raw message, which Gmail sends to the addresses in its header."""
        raw = base64.urlsafe_b64encode(address_to_recipient(email)).decode()
        url = base.join_url(settings.google.base_url, _SERVER, "/gmail/v1/users/me/messages/send")
        return HttpRequest("POST", url, base.json_headers({}), msgspec.json.encode({"raw": raw}))

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `id` in the response of acceptance."""
        if response.status != 200:
            raise _error_of(response)
        return base.require_id(response, http_client.decode_response(response).get("id"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the address of the mailbox, which sends nothing."""
        return HttpRequest("GET", base.join_url(settings.google.base_url, _USER_INFO, "/v1/userinfo"), {})

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence with the address of the mailbox."""
        address = http_client.decode_response(response).get("email")
        if response.status != 200 or not isinstance(address, str):
            raise _error_of(response)
        return gettext("It accepts the consent of %(address)s.", address=http_client.clean_text(address, 254))


def _error_of(response: HttpResponse) -> DeliveryError:
    details = http_client.decode_response(response).get("error")
    error: dict[str, Any] = details if isinstance(details, dict) else {}
    text, status = error.get("message"), str(error.get("status") or "")
    listed = error.get("errors")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    reason = str(first.get("reason") or status)
    if response.status in (403, 429) and (reason in _RATE_REASONS + _QUOTA_REASONS or status in _RATE_REASONS):
        wait = base.QUOTA_SECONDS if reason in _QUOTA_REASONS else http_client.parse_retry_after(response)
        return RateLimited(base.describe(response, reason, text), wait)
    if reason in _ACCOUNT_REASONS:
        return base.reject(ClientRejected, response, reason, text)
    if response.status in (400, 403) and _SENDER.search(str(text)):
        return base.reject(SenderRejected, response, reason, text)
    if response.status == 400 and _RECIPIENT.search(str(text)):
        return base.reject(RecipientRejected, response, reason, text, base.INVALID_ADDRESS)
    return base.build_error(response, reason, text)
