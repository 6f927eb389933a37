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
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
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


def read_mime(raw: bytes, to: str) -> AcceptedEmail:
    """Return an email from its bytes."""
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    bodies = {kind: message.get_body((kind,)) for kind in ("plain", "html")}
    text, html = (str(body.get_content()) if body is not None else "" for body in bodies.values())
    headers = {name: str(value) for name, value in message.items()}
    return AcceptedEmail(to, headers["From"], headers["Subject"], text, html, headers, headers.get("Reply-To", ""), raw)


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
        return AcceptedEmail("", "", "", "", "", {})
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
        return AcceptedEmail("", "", "", "", "", {})
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
        return AcceptedEmail("", "", "", "", "", {})
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

VENDORS = {vendor.name: vendor for vendor in (SES, MAILGUN, POSTMARK)}
