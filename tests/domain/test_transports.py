"""The requests of the transports over HTTP APIs, as the providers of the kit read them, and their errors."""

import email.message
from collections.abc import Iterator
from email.policy import SMTP
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from appliance.core.errors import (
    ClientRejected,
    ConfigError,
    Deferred,
    RateLimited,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import mime
from appliance.sending.delivery.http_client import HttpResponse
from appliance.sending.delivery.mime import Mail
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.messages import outcomes
from appliance.sending.transports import TRANSPORTS
from appliance.sending.transports.base import OutgoingEmail, Transport
from appliance.sending.transports.mime_parts import parse_parts
from appliance.sending.transports.oauth_api import OAuthApi, address_to_recipient, with_token
from appliance.settings import config, schema
from tests.kit.email_api_vendors import ACCESS_TOKEN, VENDORS, Request, Response, Vendor

LINK = "https://mail.bakery.example/u/" + "t" * 60
MAIL = Mail(
    "AbC123@bakery.example", 1_780_000_000.0, ("Bäckerei „Ana“", "ana@bakery.example"), "bob@example.net",
    "Frisches Brot für Dich 🍞", "Guten Morgen\n.\nÄpfel", "<p>Guten Morgen, <b>Äpfel</b></p>", "hallo@bakery.example",
    (
        ("List-Unsubscribe", f"<mailto:u@bounce.bakery.example>,\r\n <{LINK}>"),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"), ("Feedback-ID", "7:1:campanero"),
    ),
)  # fmt: skip
BYTES = mime.write(MAIL)


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    """Each vendor."""
    return VENDORS[request.param]


@pytest.fixture
def settings(vendor: Vendor) -> schema.Email:
    """The settings of the vendor."""
    section = msgspec.convert(vendor.settings, type(getattr(schema.Email(), vendor.name)))
    return schema.Email(**{vendor.name: section})


def build_email(content: bytes = BYTES, is_marketing: bool = True) -> OutgoingEmail:
    """Return an email to Bob."""
    envelope = Envelope("b+1@bounce.bakery.example", MAIL.recipient, content, is_stuffed=True)
    return OutgoingEmail(envelope, MAIL.message_id, is_marketing)


def to_request(transport: Transport, email_: OutgoingEmail, settings: schema.Email) -> Request:
    """Return the request of a transport as a server sees it."""
    request = transport.build_request(email_, settings)
    if isinstance(transport, OAuthApi):
        request = with_token(request, ACCESS_TOKEN)
    headers = {"host": urlsplit(request.url).netloc} | {
        name.lower(): value for name, value in request.headers.items()
    }  # fmt: skip
    assert request.url.startswith("https://") and "\n" not in str(headers)
    return Request(request.method, request.url.partition(headers["host"])[2], headers, request.content)


def test_every_transport_has_a_vendor_and_settings() -> None:
    """Registry, setting, sections and test kit name the same transports."""
    known = set(TRANSPORTS)
    assert {*VENDORS} == known
    declared = msgspec.inspect.type_info(schema.Email).fields  # type: ignore[attr-defined]  # of a struct
    [transport] = [field.type for field in declared if field.name == "transport"]
    names = transport.type.values if hasattr(transport, "type") else transport.values
    assert {*names} == known | {"capture", "relay", "direct"}
    for name, known_transport in TRANSPORTS.items():
        names = {setting for setting, _ in config.list_settings() if setting.startswith(f"email.{name}.")}
        shown = {f"email.{name}.{field.name}" for field in known_transport.fields}
        consent = {"refresh_token", "login_url"} if isinstance(known_transport, OAuthApi) else set()
        assert names - shown == {f"email.{name}.{setting}" for setting in {"base_url", *consent}}


def test_requests_have_all_parts(vendor: Vendor, settings: schema.Email) -> None:
    """Those that take MIME get the exact bytes of SMTP; the others get each part of them."""
    transport = TRANSPORTS[vendor.name]
    accepted = vendor.read(to_request(transport, build_email(), settings))

    assert accepted.to == "bob@example.net"
    assert accepted.raw == (BYTES if vendor.takes_mime else None)
    assert accepted.subject == MAIL.subject and "ana@bakery.example" in accepted.sender
    assert "Bäckerei „Ana“" in accepted.sender and "hallo@bakery.example" in accepted.reply_to
    assert accepted.html.strip() == MAIL.html and accepted.text.splitlines() == MAIL.text.splitlines()  # type: ignore[union-attr]  # texts
    headers = {name.lower(): value for name, value in accepted.headers.items()}
    assert LINK in headers["list-unsubscribe"] and "\n" not in headers["list-unsubscribe"]
    assert headers["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    assert headers["feedback-id"] == "7:1:campanero"
    assert MAIL.message_id in str((headers.get("message-id"), headers.get("x-mailin-custom"), accepted.more))
    first, second = (transport.build_request(build_email(), settings).content for _ in range(2))
    assert first == second, "a retry has the same content"


def test_an_email_that_cannot_be_a_request_is_rejected(vendor: Vendor, settings: schema.Email) -> None:
    """Nothing was sent, so it is neither in doubt nor tried again; the others get the bytes as they are."""
    nested = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(2_000))
    prepare = TRANSPORTS[vendor.name].prepare_request
    if vendor.takes_mime:
        assert prepare(build_email(nested), settings).content
        return
    with pytest.raises(RecipientRejected, match="nested too deeply") as rejection:
        prepare(build_email(nested), settings)
    assert rejection.value.enhanced == "5.6.0"


def build_with_files() -> bytes:
    """Return an email with an inline image and an attachment, as another program would write it."""
    message = email.message.EmailMessage(policy=SMTP)
    message["From"], message["To"], message["Subject"] = "ana@bakery.example", "bob@example.net", "Invoice"
    message["Message-ID"] = f"<{MAIL.message_id}>"
    message.set_content("See the invoice")
    message.add_alternative("<img src='cid:logo@bakery'>", subtype="html")
    html = message.get_payload(1)
    assert isinstance(html, email.message.EmailMessage)
    html.add_related(b"\x89PNG", "image", "png", cid="<logo@bakery>", filename="logo.png")
    message.add_attachment(b"%PDF-1.7\r\n", maintype="application", subtype="pdf", filename="Rechnung Ä.pdf")
    return message.as_bytes()


def test_attachments_are_parts() -> None:
    """An inline image keeps its Content-ID, and an attachment its name and bytes."""
    parts = parse_parts(build_with_files())

    assert (parts.text.strip(), parts.html and parts.html.strip()) == ("See the invoice", "<img src='cid:logo@bakery'>")
    assert [(file.name, file.content_type, file.content, file.content_id) for file in parts.attachments] == [
        ("logo.png", "image/png", b"\x89PNG", "logo@bakery"),
        ("Rechnung Ä.pdf", "application/pdf", b"%PDF-1.7\r\n", None),
    ]


def test_copies_go_to_their_own_recipient_only() -> None:
    """For an API that reads the header, a copy names its recipient alone, and a message to one person is unchanged."""
    head = b"DKIM-Signature: v=1;\r\n b=x\r\nTo: Bob <bob@example.net>\r\nSubject: Bread\r\n"
    single = head + b"\r\nTo: body\r\n"
    assert address_to_recipient(build_email(single)) == single
    for more in (b"Cc: Carl <carl@example.net>,\r\n dora@example.net\r\n", b"BCC: x@example.net\r\n"):
        assert address_to_recipient(build_email(head + more + b"\r\nTo: body\r\n")) == (
            b"Subject: Bread\r\nTo: bob@example.net\r\n\r\nTo: body\r\n"
        )
    other = single.replace(b"bob@", b"ann@")
    assert b"ann@" not in address_to_recipient(build_email(other)).partition(b"\r\n\r\n")[0]
    both = single.replace(b"<bob@example.net>", b"<ann@example.net>, <bob@example.net>")
    assert b"ann@" not in address_to_recipient(build_email(both)).partition(b"\r\n\r\n")[0]


def test_attachments_reach_the_provider(vendor: Vendor, settings: schema.Email) -> None:
    """Every provider gets the files."""
    content = build_with_files()
    accepted = vendor.read(to_request(TRANSPORTS[vendor.name], build_email(content, is_marketing=False), settings))
    if vendor.takes_mime:
        assert accepted.raw == content
    else:
        [image, file] = accepted.attachments
        assert file == ("Rechnung Ä.pdf", "application/pdf", b"%PDF-1.7\r\n", "")
        assert image[2] == b"\x89PNG" and (image[0] == "logo.png" or "logo@bakery" in image[3])


def to_response(response: Response) -> HttpResponse:
    """Return a response of a vendor as the client reads it."""
    status, body, headers = response
    content = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    return HttpResponse(status, {name.lower(): value for name, value in headers.items()}, content)


KINDS = {
    "invalid": RecipientRejected, "suppressed": RecipientRejected, "content": RecipientRejected,
    "sender": SenderRejected, "account": ClientRejected, "login": ClientRejected, "rate": RateLimited,
}  # fmt: skip


def list_responses() -> Iterator[tuple[str, str, Response, type[Exception]]]:
    """Yield (name, vendor, response, error): the documented errors, and those that the status decides."""
    for vendor in VENDORS.values():
        for kind, response in vendor.errors.items():
            yield f"{vendor.name}-{kind}", vendor.name, response, KINDS[kind]
        for status, body, error in (
            (503, "<h1>busy</h1>", Deferred), (500, {"message": "internal"}, Deferred), (502, "<h1>no</h1>", Uncertain),
            (504, "", Uncertain), (504, {"message": "Endpoint request timed out"}, Uncertain),
            (502, {"message": "Internal server error"}, Uncertain), (500, "\xff{", Uncertain),
            (413, "", RecipientRejected), (302, "", ClientRejected),
            (404, "", ClientRejected), (408, "", Deferred), (400, "[]", RecipientRejected), (200, "{}", Uncertain),
            (200, "[" * 5_000, Uncertain), (203, {"x": 1}, Uncertain),
        ):  # fmt: skip
            yield f"{vendor.name}-{status}-{len(str(body))}", vendor.name, (status, body, {}), error


@pytest.mark.parametrize(
    ("name", "response", "error"),
    [pytest.param(*case[1:], id=case[0]) for case in list_responses()],
)
def test_responses_are_classified(name: str, response: Response, error: type[Exception]) -> None:
    """Each response that accepts nothing raises exactly the error of its documented meaning."""
    with pytest.raises(error) as raised:
        TRANSPORTS[name].parse_response(to_response(response), build_email())
    assert type(raised.value) is error and f"(HTTP {response[0]})" in str(raised.value)
    assert raised.value.smtp is None, "an HTTP status is not an SMTP code"  # type: ignore[attr-defined]  # DeliveryError


def test_accepted_responses_have_an_id(vendor: Vendor, settings: schema.Email) -> None:
    """The id of an accepted email is that in the response."""
    accepted = vendor.read(to_request(TRANSPORTS[vendor.name], build_email(), settings))
    accepted.id = "id-1"
    assert TRANSPORTS[vendor.name].parse_response(to_response(vendor.accept(accepted)), build_email()) == "id-1"


@pytest.mark.parametrize("code", ["duplicate_request", "duplicate_parameter"])
def test_a_repeated_request_to_brevo_is_accepted(code: str) -> None:
    """Brevo rejects a request whose key it knows, because it has accepted the email before."""
    response = to_response((400, {"code": code, "message": "The key was used before"}, {}))
    assert TRANSPORTS["brevo"].parse_response(response, build_email()) == MAIL.message_id


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("brevo", {"code": "invalid_parameter", "message": "reply-to email is not valid"}),
        ("mailgun", {"message": "'h:Reply-To' parameter is not a valid address"}),
        ("mailjet", {"Messages": [{"Status": "error", "Errors": [
            {"ErrorCode": "mj-0013", "StatusCode": 400, "ErrorRelatedTo": ["ReplyTo.Email"]}
        ]}]}),
    ],
)  # fmt: skip
def test_an_invalid_reply_to_is_not_an_invalid_recipient(name: str, body: dict[str, Any]) -> None:
    """A rejected Reply-To address suppresses no recipient."""
    with pytest.raises(RecipientRejected) as raised:
        TRANSPORTS[name].parse_response(to_response((400, body, {})), build_email())
    assert outcomes.classify_error(raised.value).suppression_rule == "never"


@pytest.mark.parametrize("code", ["RequestExpired", "IncompleteSignature", "ExpiredTokenException", "NotAuthorized"])
def test_a_rejected_signature_fails_no_recipient(code: str) -> None:
    """AWS reports some errors of key, signature and clock with status 400; they are not about the message."""
    response = to_response((400, {"message": "no"}, {"x-amzn-ErrorType": f"{code}:http://internal.amazon.com/"}))
    with pytest.raises(ClientRejected):
        TRANSPORTS["ses"].parse_response(response, build_email())


@pytest.mark.parametrize(
    "name", ["resend.api_key", "ses.region", "ses.configuration_set", "mailgun.domain", "brevo.base_url"]
)
def test_settings_of_requests_have_no_line_break(name: str) -> None:
    """A value with a line break at its end is rejected when it is read: errors of HTTP would quote it."""
    value = {"ses.region": "eu-west-1", "brevo.base_url": "https://api.example"}.get(name, "abc")
    config.load({f"email.{name}": value}, {})
    with pytest.raises(ConfigError) as raised:
        config.load({f"email.{name}": f"{value}\n"}, {})
    assert value not in str(raised.value)
