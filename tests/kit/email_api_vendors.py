"""The HTTP APIs of email providers as tests imitate them, written from the providers' documentation.

Each `Vendor` checks the login of a request, reads the email in it, and says how the provider accepts and rejects one.
It shares no code with `appliance/sending/transports`.
"""

import base64
import email
import email.policy
import hashlib
import hmac
import json
import mimetypes
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Response = tuple[int, Any, dict[str, str]]


class BadLogin(Exception):
    """The request has no valid login."""


@dataclass
class AcceptedEmail:
    """An email as a provider accepted it; `raw` are the bytes of providers that take MIME."""

    to: str
    sender: str
    subject: str
    text: str
    html: str
    headers: dict[str, str]
    reply_to: str = ""
    raw: bytes | None = None
    attachments: list[tuple[str, str, bytes, str]] = field(default_factory=list)  # name, type, content, Content-ID
    more: dict[str, Any] = field(default_factory=dict)  # the other fields of the request
    idempotency_key: str = ""
    id: str = ""

    def to_json(self) -> str:
        """Return the recipient and id for a log."""
        return json.dumps({"to": self.to, "id": self.id})

    def as_dict(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


class Request(NamedTuple):
    """A request; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the decoded body."""
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


class Vendor(NamedTuple):
    """An API: `settings` by name (without `base_url`), its path, and how it answers.

    `check_path` is what *Test connection* asks for, and `account` its answer. `errors` maps a kind of error (`invalid`,
    `suppressed`, `sender`, `account`, `login`, `rate`) to the documented response.
    """

    name: str
    settings: dict[str, str]
    path: str
    read: Callable[[Request], AcceptedEmail]
    accept: Callable[[AcceptedEmail], Response]
    check_path: str
    account: Any
    errors: dict[str, Response]
    takes_mime: bool = False
    is_idempotent: bool = False
    token_path: str = ""  # where an access token is requested, if the API needs one


def read_mime(raw: bytes, to: str) -> AcceptedEmail:
    """Return an email from its bytes."""
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    bodies = {kind: message.get_body((kind,)) for kind in ("plain", "html")}
    text, html = (str(body.get_content()) if body is not None else "" for body in bodies.values())
    headers = {name: str(value) for name, value in message.items()}
    return AcceptedEmail(to, headers["From"], headers["Subject"], text, html, headers, headers.get("Reply-To", ""), raw)


# What a request for the account contains.
_NOTHING = AcceptedEmail("", "", "", "", "", {})


def _require(is_right: bool) -> None:
    if not is_right:
        raise BadLogin


# Amazon SES: https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html


def _aws_error(status: int, name: str, text: str) -> Response:
    return status, {"message": text}, {"x-amzn-ErrorType": f"{name}:http://internal.amazon.com/coral/com.amazon/"}


def _check_aws(request: Request) -> None:
    """Verify the signature as AWS describes it, step by step."""
    match = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=AKIATEST/(\d{8})/eu-west-1/ses/aws4_request, SignedHeaders=([a-z0-9;-]+), "
        r"Signature=([0-9a-f]{64})",
        request.headers.get("authorization", ""),
    )
    _require(match is not None)
    assert match is not None
    day, signed, signature = match.groups()
    _require({"host", "x-amz-date"} <= {*signed.split(";")} and request.headers["x-amz-date"].startswith(day))
    lines = [request.method, urlsplit(request.target).path, ""]
    lines += [f"{name}:{request.headers[name]}" for name in signed.split(";")]
    lines += ["", signed, hashlib.sha256(request.body).hexdigest()]
    scope = f"{day}/eu-west-1/ses/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{digest}"
    key = b"AWS4" + b"aws-secret"
    for part in (day, "eu-west-1", "ses", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    _require(hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature))


def _read_ses(request: Request) -> AcceptedEmail:
    _check_aws(request)
    if request.method == "GET":
        return _NOTHING
    payload = request.json
    [to] = payload["Destination"]["ToAddresses"]
    accepted = read_mime(base64.b64decode(payload["Content"]["Raw"]["Data"], validate=True), to)
    accepted.more = {name: value for name, value in payload.items() if name not in ("Destination", "Content")}
    return accepted


SES = Vendor(
    "ses",
    {"region": "eu-west-1", "access_key_id": "AKIATEST", "secret_access_key": "aws-secret"},
    "/v2/email/outbound-emails",
    _read_ses,
    lambda accepted: (200, {"MessageId": accepted.id}, {}),
    "/v2/email/account",
    {
        "SendingEnabled": True, "ProductionAccessEnabled": True, "EnforcementStatus": "HEALTHY",
        "SendQuota": {"Max24HourSend": 50000.0, "MaxSendRate": 14.0, "SentLast24Hours": 3.0},
    },
    {
        "invalid": _aws_error(400, "BadRequestException", "Illegal address"),
        "sender": _aws_error(
            400, "MessageRejected",
            "Email address is not verified. The following identities failed the check in region EU-WEST-1: a@b.example",
        ),
        "content": _aws_error(400, "MessageRejected", "Transaction failed: Attachment name is invalid"),
        "account": _aws_error(400, "SendingPausedException", "Sending is paused for this account."),
        "login": _aws_error(403, "SignatureDoesNotMatch", "The request signature we calculated does not match"),
        "rate": _aws_error(429, "TooManyRequestsException", "Maximum sending rate exceeded."),
    },
    takes_mime=True,
)  # fmt: skip


# Mailgun: https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/messages


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _read_mailgun(request: Request) -> AcceptedEmail:
    _require(request.headers.get("authorization") == _basic("api", "mailgun-key"))
    if request.method == "GET":
        return _NOTHING
    boundary = b"--" + request.headers["content-type"].partition("boundary=")[2].encode()
    first, *parts, last = request.body.split(boundary)
    assert first == b"" and last == b"--\r\n"
    fields = {}
    for part in parts:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        match = re.search(rb'name="([^"]+)"', head)
        assert match is not None
        fields[match[1].decode()] = content.removesuffix(b"\r\n") if match[1] != b"message" else content[:-2]
    accepted = read_mime(fields.pop("message"), fields.pop("to").decode())
    accepted.more = {name: value.decode() for name, value in fields.items()}
    return accepted


MAILGUN = Vendor(
    "mailgun",
    {"domain": "mg.bakery.example", "region": "eu", "api_key": "mailgun-key"},
    "/v3/mg.bakery.example/messages.mime",
    _read_mailgun,
    lambda accepted: (200, {"id": f"<{accepted.id}>", "message": "Queued. Thank you."}, {}),
    "/v4/domains/mg.bakery.example",
    {"domain": {"name": "mg.bakery.example", "state": "active", "is_disabled": False}},
    {
        "invalid": (400, {"message": "to parameter is not a valid address. please check documentation"}, {}),
        "sender": (400, {"message": "from parameter is not a valid address. please check documentation"}, {}),
        "account": (403, {"message": "Domain mg.bakery.example is not allowed to send: Please activate it."}, {}),
        "login": (401, "Forbidden", {}),
        "rate": (429, {"message": "Domain mg.bakery.example is not allowed to send: request limit exceeded"}, {}),
    },
    takes_mime=True,
)


# Postmark: https://postmarkapp.com/developer/api/email-api


def _read_postmark(request: Request) -> AcceptedEmail:
    _require(request.headers.get("x-postmark-server-token") == "postmark-token")
    if request.method == "GET":
        return _NOTHING
    payload = request.json
    headers = {header["Name"]: header["Value"] for header in payload["Headers"]}
    attachments = [
        (file["Name"], file["ContentType"], base64.b64decode(file["Content"]), file.get("ContentID", ""))
        for file in payload.get("Attachments", ())
    ]
    return AcceptedEmail(
        payload["To"], payload["From"], payload["Subject"], payload["TextBody"], payload.get("HtmlBody", ""), headers,
        payload.get("ReplyTo", ""), attachments=attachments,
        more={name: payload.get(name) for name in ("MessageStream", "Metadata", "TrackOpens", "TrackLinks")},
    )  # fmt: skip


def _postmark_error(code: int, text: str, status: int = 422) -> Response:
    return status, {"ErrorCode": code, "Message": text}, {}


POSTMARK = Vendor(
    "postmark",
    {"server_token": "postmark-token"},
    "/email",
    _read_postmark,
    lambda accepted: (
        200,
        {"To": accepted.to, "SubmittedAt": "2026-01-01T00:00:00Z", "MessageID": accepted.id, "ErrorCode": 0,
         "Message": "OK"},
        {},
    ),
    "/server",
    {"ID": 1, "Name": "Bakery", "DeliveryType": "Live"},
    {
        "invalid": _postmark_error(300, "Invalid 'To' address: 'nobody@'."),
        "suppressed": _postmark_error(406, "You tried to send to recipient(s) that have been marked as inactive."),
        "sender": _postmark_error(400, "The 'From' address you supplied is not a Sender Signature on your account."),
        "account": _postmark_error(412, "While your account is pending approval, all recipients must share a domain."),
        "login": _postmark_error(10, "Bad or missing Server API token.", 401),
        "rate": _postmark_error(429, "Rate limit exceeded", 429),
    },
)  # fmt: skip


# SendGrid: https://www.twilio.com/docs/sendgrid/api-reference/mail-send/mail-send


def _mailbox(fields: dict[str, str], name: str = "name", address: str = "email") -> str:
    return f"{fields.get(name, '')} <{fields[address]}>"


def _read_sendgrid(request: Request) -> AcceptedEmail:
    _require(request.headers.get("authorization") == "Bearer SG.key")
    if request.method == "GET":
        return _NOTHING
    payload = request.json
    [personalization] = payload["personalizations"]
    [to] = personalization["to"]
    bodies = {part["type"]: part["value"] for part in payload["content"]}
    assert [*bodies] in (["text/plain", "text/html"], ["text/plain"], ["text/html"]), "plain text comes first"
    reserved = {"x-sg-id", "x-sg-eid", "received", "dkim-signature", "content-type", "content-transfer-encoding", "to",
                "from", "subject", "reply-to", "cc", "bcc"}  # fmt: skip
    assert not reserved & {name.lower() for name in payload["headers"]}
    attachments = [
        (file["filename"], file["type"], base64.b64decode(file["content"]), file.get("content_id", ""))
        for file in payload.get("attachments", ())
    ]
    return AcceptedEmail(
        to["email"], _mailbox(payload["from"]), payload["subject"], bodies.get("text/plain", ""),
        bodies.get("text/html", ""), payload["headers"], _mailbox(payload["reply_to"]) if "reply_to" in payload else "",
        attachments=attachments, more={name: payload.get(name) for name in ("custom_args", "tracking_settings")},
    )  # fmt: skip


def _sendgrid_error(status: int, text: str, field_: str | None = None) -> Response:
    return status, {"errors": [{"message": text, "field": field_, "help": None}]}, {}


SENDGRID = Vendor(
    "sendgrid",
    {"api_key": "SG.key", "region": "eu"},
    "/v3/mail/send",
    _read_sendgrid,
    lambda accepted: (202, "", {"X-Message-Id": accepted.id}),
    "/v3/scopes",
    {"scopes": ["mail.send", "user.profile.read"]},
    {
        "invalid": _sendgrid_error(400, "Does not contain a valid address.", "personalizations.0.to.0.email"),
        "sender": _sendgrid_error(403, "The from address does not match a verified Sender Identity.", "from"),
        "account": _sendgrid_error(401, "Maximum credits exceeded"),
        "login": _sendgrid_error(401, "The provided authorization grant is invalid, expired, or revoked"),
        "rate": _sendgrid_error(429, "too many requests"),
    },
)


# Resend: https://resend.com/docs/api-reference/emails/send-email


def _read_resend(request: Request) -> AcceptedEmail:
    _require(request.headers.get("authorization") == "Bearer re_key")
    if request.method == "GET":
        return _NOTHING
    payload = request.json
    [to] = payload["to"]
    key = request.headers["idempotency-key"]
    assert 1 <= len(key) <= 256
    attachments = [
        (file["filename"], file["content_type"], base64.b64decode(file["content"]), file.get("content_id", ""))
        for file in payload.get("attachments", ())
    ]
    return AcceptedEmail(
        to, payload["from"], payload["subject"], payload["text"], payload.get("html", ""), payload["headers"],
        payload.get("reply_to", ""), attachments=attachments, idempotency_key=key,
    )  # fmt: skip


def _resend_error(status: int, name: str, text: str) -> Response:
    return status, {"statusCode": status, "name": name, "message": text}, {}


RESEND = Vendor(
    "resend",
    {"api_key": "re_key"},
    "/emails",
    _read_resend,
    lambda accepted: (200, {"id": accepted.id}, {}),
    "/domains",
    {"data": [{"id": "1", "name": "bakery.example", "status": "verified"}]},
    {
        "invalid": _resend_error(422, "validation_error", "Invalid `to` field. The email address needs to follow ..."),
        "sender": _resend_error(403, "validation_error", "The bakery.example domain is not verified. Please, add it."),
        "account": _resend_error(401, "restricted_api_key", "This API key is restricted to only send emails"),
        "login": _resend_error(401, "validation_error", "API key is invalid"),
        "rate": _resend_error(429, "rate_limit_exceeded", "Too many requests. You can only make 2 per second."),
    },
    is_idempotent=True,
)


# Brevo: https://developers.brevo.com/reference/sendtransacemail


def _read_brevo(request: Request) -> AcceptedEmail:
    _require(request.headers.get("api-key") == "xkeysib-key")
    if request.method == "GET":
        return _NOTHING
    payload = request.json
    [to] = payload["to"]
    headers = dict(payload["headers"])
    key = headers.pop("idempotencyKey")
    assert str(uuid.UUID(key)) == key
    attachments = [
        (file["name"], mimetypes.guess_type(file["name"])[0] or "", base64.b64decode(file["content"]), "")
        for file in payload.get("attachment", ())
    ]
    return AcceptedEmail(
        to["email"], _mailbox(payload["sender"]), payload["subject"], payload["textContent"],
        payload.get("htmlContent", ""), headers, _mailbox(payload["replyTo"]) if "replyTo" in payload else "",
        attachments=attachments, idempotency_key=key,
    )  # fmt: skip


def _brevo_error(status: int, code: str, text: str) -> Response:
    return status, {"code": code, "message": text}, {}


BREVO = Vendor(
    "brevo",
    {"api_key": "xkeysib-key"},
    "/v3/smtp/email",
    _read_brevo,
    lambda accepted: (201, {"messageId": f"<{accepted.id}>"}, {}),
    "/v3/account",
    {"email": "ana@bakery.example", "companyName": "Bakery", "plan": []},
    {
        "invalid": _brevo_error(400, "invalid_parameter", "email is not valid in to"),
        "sender": _brevo_error(400, "invalid_parameter", "Sending has been rejected because the sender is not valid."),
        "account": _brevo_error(402, "not_enough_credits", "You do not have enough credits."),
        "login": _brevo_error(401, "unauthorized", "Key not found"),
        "rate": _brevo_error(429, "too_many_requests", "Rate limit exceeded"),
    },
    is_idempotent=True,
)


# Mailjet: https://dev.mailjet.com/email/guides/send-api-v31/


def _read_mailjet(request: Request) -> AcceptedEmail:
    _require(request.headers.get("authorization") == _basic("mj-key", "mj-secret"))
    if request.method == "GET":
        return _NOTHING
    [message] = request.json["Messages"]
    [to] = message["To"]
    headers = message.get("Headers", {})
    assert not {"list-id", "message-id", "date", "reply-to"} & {name.lower() for name in headers}, "send-0011"
    files = [*message.get("InlinedAttachments", ()), *message.get("Attachments", ())]
    attachments = [
        (file["Filename"], file["ContentType"], base64.b64decode(file["Base64Content"]), file.get("ContentID", ""))
        for file in files
    ]
    return AcceptedEmail(
        to["Email"], _mailbox(message["From"], "Name", "Email"), message["Subject"], message["TextPart"],
        message.get("HTMLPart", ""), headers,
        _mailbox(message["ReplyTo"], "Name", "Email") if "ReplyTo" in message else "", attachments=attachments,
        more={name: message.get(name) for name in ("CustomID", "TrackOpens", "TrackClicks")},
    )  # fmt: skip


def _mailjet_error(status: int, code: str, text: str, related: str) -> Response:
    error = {"ErrorIdentifier": "88b5ca9f", "ErrorCode": code, "StatusCode": status, "ErrorMessage": text,
             "ErrorRelatedTo": [related]}  # fmt: skip
    return status, {"Messages": [{"Status": "error", "Errors": [error]}]}, {}


MAILJET = Vendor(
    "mailjet",
    {"api_key": "mj-key", "secret_key": "mj-secret"},
    "/v3.1/send",
    _read_mailjet,
    lambda accepted: (
        200,
        {
            "Messages": [
                {"Status": "success", "To": [{"Email": accepted.to, "MessageUUID": accepted.id, "MessageID": 1}]}
            ]
        },
        {},
    ),
    "/v3/REST/apikey",
    {"Count": 1, "Data": [{"Name": "Bakery"}], "Total": 1},
    {
        "invalid": _mailjet_error(400, "mj-0013", "nobody@ is an invalid email address.", "To[0].Email"),
        "sender": _mailjet_error(403, "send-0008", "a@b.example is not an authorized sender.", "From"),
        "account": (403, {"ErrorIdentifier": "1", "StatusCode": 403, "ErrorMessage": "Sending is suspended"}, {}),
        "login": (
            401,
            {"ErrorIdentifier": "2", "StatusCode": 401, "ErrorMessage": "API key authentication failed"},
            {},
        ),
        "rate": (429, {"ErrorIdentifier": "3", "StatusCode": 429, "ErrorMessage": "Too many requests"}, {}),
    },
)

# Gmail: https://developers.google.com/workspace/gmail/api/reference/rest/v1/users.messages/send

ACCESS_TOKEN = "ya29.access-token"


def _read_headed(request: Request, raw: Callable[[], bytes]) -> AcceptedEmail:
    """Return an email that goes to the addresses in its header, of which there must be one."""
    _require(request.headers.get("authorization") == f"Bearer {ACCESS_TOKEN}")
    if request.method == "GET":
        return _NOTHING
    content = raw()
    message = email.message_from_bytes(content, policy=email.policy.default)
    [(_, to)] = getaddresses([str(value) for name in ("To", "Cc", "Bcc") for value in message.get_all(name, [])])
    return read_mime(content, to)


def _google_error(status: int, reason: str, name: str, text: str) -> Response:
    error = {"code": status, "message": text, "errors": [{"message": text, "domain": "global", "reason": reason}],
             "status": name}  # fmt: skip
    return status, {"error": error}, {}


GOOGLE = Vendor(
    "google",
    {"client_id": "client.apps.googleusercontent.com", "client_secret": "GOCSPX-secret", "refresh_token": "1//refresh"},
    "/gmail/v1/users/me/messages/send",
    lambda request: _read_headed(request, lambda: base64.urlsafe_b64decode(request.json["raw"])),
    lambda accepted: (200, {"id": accepted.id, "threadId": accepted.id, "labelIds": ["SENT"]}, {}),
    "/v1/userinfo",
    {"sub": "1", "email": "ana@bakery.example", "email_verified": True},
    {
        "invalid": _google_error(400, "invalidArgument", "INVALID_ARGUMENT", "Invalid To header"),
        "sender": _google_error(403, "forbidden", "PERMISSION_DENIED", "Delegation denied for ana@bakery.example"),
        "account": _google_error(400, "failedPrecondition", "FAILED_PRECONDITION", "Mail service not enabled"),
        "login": _google_error(401, "authError", "UNAUTHENTICATED", "Invalid Credentials"),
        "rate": _google_error(403, "userRateLimitExceeded", "RESOURCE_EXHAUSTED", "User-rate limit exceeded."),
    },
    takes_mime=True,
    token_path="/token",
)


# Microsoft Graph: https://learn.microsoft.com/graph/outlook-send-mime-message


def _decode_graph(request: Request) -> bytes:
    assert request.headers["content-type"] == "text/plain"
    return base64.b64decode(request.body, validate=True)


def _graph_error(status: int, code: str, text: str) -> Response:
    return status, {"error": {"code": code, "message": text, "innerError": {"request-id": "r"}}}, {}


MICROSOFT = Vendor(
    "microsoft",
    {"tenant": "bakery.example", "client_id": "6731de76", "client_secret": "a~secret", "refresh_token": "0.refresh"},
    "/v1.0/me/sendMail",
    lambda request: _read_headed(request, lambda: _decode_graph(request)),
    lambda accepted: (202, "", {"request-id": accepted.id}),
    "/v1.0/me",
    {"id": "1", "mail": "ana@bakery.example", "userPrincipalName": "ana@bakery.onmicrosoft.example"},
    {
        "invalid": _graph_error(400, "ErrorInvalidRecipients", "At least one recipient is not valid."),
        "content": _graph_error(400, "ErrorMimeContentInvalid", "The MIME content is not valid."),
        "sender": _graph_error(
            403, "ErrorSendAsDenied", "The user account does not have the right to send as another."
        ),
        "account": _graph_error(403, "ErrorAccessDenied", "Access is denied. Check credentials and try again."),
        "login": _graph_error(401, "InvalidAuthenticationToken", "Access token has expired or is not yet valid."),
        "rate": _graph_error(429, "ApplicationThrottled", "Application is over its MailboxConcurrency limit."),
    },
    takes_mime=True,
    token_path="/bakery.example/oauth2/v2.0/token",
)

VENDORS = {
    vendor.name: vendor for vendor in (SES, MAILGUN, POSTMARK, SENDGRID, RESEND, BREVO, MAILJET, GOOGLE, MICROSOFT)
}
