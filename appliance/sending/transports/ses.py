"""Send email over the API of Amazon SES (v2), which takes our MIME bytes.

Source: AWS, "Amazon SES API v2 Reference: SendEmail" and "GetAccount"
(https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html). `core/aws_signature.py` signs the requests.
"""

import base64
import hashlib
import re
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from appliance.core import aws_signature
from appliance.core.errors import ClientRejected, DeliveryError, RateLimited, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.settings import schema
from appliance.settings.schema import Email

_SERVICE = "ses"
_INVALID_ADDRESS = re.compile(
    r"\b(?:illegal|invalid|missing|malformed)\b.{0,80}(?:address|@domain|domain)", re.IGNORECASE
)
# Errors of the account, and of key, signature and clock, which AWS also reports with status 400 ("Common Errors").
_ACCOUNT_ERRORS = (
    "AccountSuspendedException", "SendingPausedException", "NotFoundException", "AccessDeniedException",
    "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId", "NotAuthorized", "OptInRequired",
    "RequestExpired", "UnrecognizedClientException",
)  # fmt: skip
_RATE_ERRORS = ("TooManyRequestsException", "ThrottlingException", "Throttling", "LimitExceededException")


class Ses(Transport):
    """The HTTP API of Amazon SES."""

    name: ClassVar[str] = "ses"
    label: ClassVar[str] = "Amazon SES"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField(
            "region", gettext_noop("Region"), gettext_noop("The region that your domain is verified in."), "eu-west-1"
        ),
        SettingField(
            "access_key_id",
            gettext_noop("Access key ID"),
            gettext_noop("Of an IAM user that may use ses:SendEmail and ses:SendRawEmail."),
            "AKIA…",
        ),
        SettingField("secret_access_key", gettext_noop("Secret access key")),
        SettingField("configuration_set", gettext_noop("Configuration set")),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return a signed `SendEmail` with the raw message; its From header is the sender."""
        payload: dict[str, Any] = {
            "Destination": {"ToAddresses": [email.envelope.rcpt_to]},
            "Content": {"Raw": {"Data": base64.b64encode(email.envelope.content).decode()}},
        }
        if settings.ses.configuration_set:
            payload["ConfigurationSetName"] = settings.ses.configuration_set
        return _sign("POST", "/v2/email/outbound-emails", msgspec.json.encode(payload), settings.ses)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `MessageId` in the response of acceptance."""
        if response.status != 200:
            raise _error_of(response, email)
        return base.require_id(response, http_client.decode_response(response).get("MessageId"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a signed request `GetAccount`, which sends nothing."""
        return _sign("GET", "/v2/email/account", b"", settings.ses)

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence with the quota of the account, or that it is in the sandbox or cannot be read.

        Raises ClientRejected if sending is paused for the account.
        """
        account = http_client.decode_response(response)
        if response.status == 403 and _error_code(response) == "AccessDeniedException":
            # The signature is right: this key may only send.
            return gettext("The key is accepted. It may not read the account, so sending is not checked.")
        if response.status != 200 or "SendQuota" not in account:
            raise _error_of(response, None)
        if account.get("SendingEnabled") is False:
            raise ClientRejected(gettext_noop("Sending is paused for this account."))
        if account.get("ProductionAccessEnabled") is False:
            return gettext("The account is in the sandbox: it can only send to verified addresses.")
        quota = account["SendQuota"] if isinstance(account["SendQuota"], dict) else {}
        return gettext(
            "Sending is enabled: up to %(day)s emails a day and %(second)s a second.",
            day=http_client.clean_text(quota.get("Max24HourSend"), 20).removesuffix(".0"),
            second=http_client.clean_text(quota.get("MaxSendRate"), 20).removesuffix(".0"),
        )


def _error_code(response: HttpResponse) -> str:
    """Return the name of an error from the header `x-amzn-ErrorType` (NAME:URL) or the field `__type` (PREFIX#NAME)."""
    named = response.headers.get("x-amzn-errortype") or str(http_client.decode_response(response).get("__type") or "")
    return named.partition(":")[0].rpartition("#")[2]


def _error_of(response: HttpResponse, email: OutgoingEmail | None) -> DeliveryError:
    details, code = http_client.decode_response(response), _error_code(response)
    text = details.get("message") or details.get("Message")
    if code in _RATE_ERRORS:
        wait = base.QUOTA_SECONDS if "daily" in str(text).lower() else http_client.parse_retry_after(response)
        return RateLimited(base.describe(response, code, text), wait)
    if code in _ACCOUNT_ERRORS or response.status == 403:
        return base.reject(ClientRejected, response, code, text)
    if code == "MailFromDomainNotVerifiedException" or (code == "MessageRejected" and "not verified" in str(text)):
        return base.reject(SenderRejected, response, code, text)
    if code == "MessageRejected":
        return base.reject(RecipientRejected, response, code, text, base.CONTENT)
    if code == "BadRequestException" and email is not None and _INVALID_ADDRESS.search(str(text)):
        return base.reject(RecipientRejected, response, code, text, base.INVALID_ADDRESS)
    return base.build_error(response, code, text)


def _sign(method: str, path: str, content: bytes, settings: schema.Ses) -> HttpRequest:
    url = base.join_url(settings.base_url, f"https://email.{settings.region}.amazonaws.com", path)
    parts = urlsplit(url)
    moment = aws_signature.format_moment()
    signed = {"host": parts.netloc, "x-amz-date": moment}
    if content:
        signed["content-type"] = "application/json"
    credentials = aws_signature.Credentials(
        settings.access_key_id, settings.secret_access_key, settings.region, _SERVICE
    )
    content_sha256 = hashlib.sha256(content).hexdigest()
    # Our paths are in their canonical form.
    authorization = aws_signature.build_authorization(method, parts.path, "", signed, content_sha256, credentials)
    headers = {"X-Amz-Date": moment, "Authorization": authorization}
    return HttpRequest(method, url, base.json_headers(headers) if content else headers, content)
