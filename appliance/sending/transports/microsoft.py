"""Send email over Microsoft Graph, which takes our MIME bytes.

Sources: Microsoft, "user: sendMail" with MIME content, "Microsoft Graph error responses and resource types", "Exchange
error codes" and "throttling limits" (https://learn.microsoft.com/graph/api/user-sendmail,
https://learn.microsoft.com/graph/outlook-send-mime-message, https://learn.microsoft.com/graph/errors). The response of
acceptance has no body, so the id of a message is that of the request.
"""

import base64
from typing import Any, ClassVar

from appliance.core.errors import ClientRejected, DeliveryError, RateLimited, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField
from appliance.sending.transports.oauth_api import OAuthApi, address_to_recipient
from appliance.settings.schema import Email

_SERVER = "https://graph.microsoft.com"
_SENDER_ERRORS = ("ErrorSendAsDenied", "ErrorInvalidSender", "ErrorSendOnBehalfDenied")
_RECIPIENT_ERRORS = ("ErrorInvalidRecipients", "ErrorInvalidSmtpAddress")
_CONTENT_ERRORS = ("ErrorMimeContentInvalid", "ErrorMimeContentInvalidBase64String", "ErrorMimeContentConversionFailed")
_SIZE_ERRORS = ("ErrorMessageSizeExceeded", "RequestBodyTooLarge")
_QUOTA_ERRORS = ("ErrorExceededMessageLimit", "ErrorQuotaExceeded", "ErrorSubmissionQuotaExceeded")
_ACCOUNT_ERRORS = (
    "ErrorAccessDenied", "ErrorAccountSuspend", "ErrorMessageSubmissionBlocked", "MailboxNotEnabledForRESTAPI",
    "ErrorNonExistentMailbox", "Authorization_RequestDenied",
)  # fmt: skip


class Microsoft(OAuthApi):
    """The HTTP API of Microsoft 365 (Microsoft Graph)."""

    name: ClassVar[str] = "microsoft"
    label: ClassVar[str] = "Microsoft 365"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField(
            "tenant",
            gettext_noop("Tenant"),
            gettext_noop("The directory (tenant) ID of the app, or organizations for an app of several tenants."),
            "organizations",
        ),
        SettingField(
            "client_id",
            gettext_noop("Application (client) ID"),
            gettext_noop("Of an app that you register in Microsoft Entra. Save it, and then sign in."),
        ),
        SettingField(
            "client_secret",
            gettext_noop("Client secret"),
            gettext_noop("Leave it empty if the app allows public client flows."),
        ),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return a request with the message in base64, which Exchange sends to the addresses in its header."""
        content = base64.b64encode(address_to_recipient(email))
        url = base.join_url(settings.microsoft.base_url, _SERVER, "/v1.0/me/sendMail")
        return HttpRequest("POST", url, {"Content-Type": "text/plain"}, content)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the header `request-id` of the response, which serves as the id of the message."""
        if response.status != 202:
            raise _error_of(response)
        return base.require_id(response, response.headers.get("request-id"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the details of the signed-in user, which sends nothing."""
        url = base.join_url(settings.microsoft.base_url, _SERVER, "/v1.0/me")
        return HttpRequest("GET", url, {})

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence with the address of the mailbox."""
        user = http_client.decode_response(response)
        address = user.get("mail") or user.get("userPrincipalName")
        if response.status != 200 or not isinstance(address, str):
            raise _error_of(response)
        return gettext("It accepts the consent of %(address)s.", address=http_client.clean_text(address, 254))


def _error_of(response: HttpResponse) -> DeliveryError:
    details = http_client.decode_response(response).get("error")
    error: dict[str, Any] = details if isinstance(details, dict) else {}
    code, text = http_client.clean_text(error.get("code"), 100), error.get("message")
    if code in _QUOTA_ERRORS:
        return RateLimited(base.describe(response, code, text), base.QUOTA_SECONDS)
    if code in _SENDER_ERRORS:
        return base.reject(SenderRejected, response, code, text)
    if code in _ACCOUNT_ERRORS:
        return base.reject(ClientRejected, response, code, text)
    if code in _RECIPIENT_ERRORS:
        return base.reject(RecipientRejected, response, code, text, base.INVALID_ADDRESS)
    if code in _CONTENT_ERRORS:
        return base.reject(RecipientRejected, response, code, text, base.CONTENT)
    if code in _SIZE_ERRORS:
        return base.reject(RecipientRejected, response, code, text, base.TOO_LARGE)
    return base.build_error(response, code, text)
