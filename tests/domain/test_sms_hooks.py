"""Webhook requests of SMS providers: only signed ones are accepted, and every field is read."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core import crypto
from appliance.core.errors import Invalid, NotAllowed
from appliance.sending.sms.error_codes import HookContents, HookRequest, IncomingSms, Receipt
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from tests.kit.clock import TestClock
from tests.kit.sms_signing import Post, generic, twilio_form, twilio_json, twilio_signature

TWILIO, HTTP = PROVIDERS["twilio"], PROVIDERS["http"]
TOKEN, SECRET = "the-token", "whsec_c2VjcmV0LW9mLXRoZS1raXQ="
BASE = "https://mail.example.org"
SID = "SM" + "1" * 32
DELIVERED = {"MessageSid": SID, "MessageStatus": "delivered", "To": "+15551230001", "From": "Bakery"}


@pytest.fixture(autouse=True)
def provider_secrets(tmp_path: Path) -> Iterator[None]:
    """Configure a secret for both providers."""
    crypto.create_key(tmp_path)
    options = {"base_url": BASE, "sms.twilio.auth_token": TOKEN, "sms.http.secret": SECRET}
    config.set_current(config.load(options, {}).config)
    yield
    config._current, crypto._key = None, b""


def parse_hook(post: Post, provider: Any = TWILIO, hook: str = "twilio/status", url: str | None = None) -> HookContents:
    """Parse a request as the endpoint passes it on."""
    headers = {name.lower(): value for name, value in post.headers.items()}
    contents: HookContents = provider.parse_hook(hook, HookRequest(url or post.url, headers, post.body))
    return contents


def sign_form(fields: dict[str, str], path: str = "/hooks/twilio/status", **options: Any) -> Post:
    """Return a form that is signed as Twilio signs it."""
    return twilio_form(TOKEN, BASE + path, fields, **options)


def real_time() -> float:
    """Return the time of this machine in seconds."""
    import time

    return time.time()


def test_twilio_signature_example() -> None:
    """The test kit signs the example of Twilio's documentation correctly."""
    fields = {
        "CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234", "From": "+14158675309",
        "To": "+18005551212",
    }  # fmt: skip
    signature = twilio_signature("12345", "https://mycompany.com/myapp.php?foo=1&bar=2", fields)
    assert signature == "RSOYDt4T1cUTdK1PDd93/VVr8B8="
    other_signature = twilio_signature(
        "12345", "https://mycompany.com/myapp.php?foo=1&bar=2", {**fields, "To": "+18005551213"}
    )
    assert other_signature != signature


@pytest.mark.parametrize(("twilio_status", "status"), [
    ("queued", "sent"), ("accepted", "sent"), ("sending", "sent"), ("sent", "sent"), ("delivered", "delivered"),
    ("read", "delivered"), ("undelivered", "undelivered"), ("failed", "failed"), ("canceled", "failed"),
])  # fmt: skip
def test_parse_a_twilio_receipt(twilio_status: str, status: str) -> None:
    """A receipt has a status of ours, the provider's id, our message id, and the error's code and text."""
    url = TWILIO.build_callback_url(77).removeprefix(BASE)
    contents = parse_hook(
        sign_form(
            {**DELIVERED, "MessageStatus": twilio_status, "ErrorCode": "30005", "ErrorMessage": "Unknown\n handset"},
            url,
        )
    )
    assert contents.receipts == (Receipt(SID, status, 77, "30005", "Unknown handset"),)
    assert (contents.incoming, contents.media) == ((), "text/xml")


def test_unknown_statuses_are_ignored() -> None:
    """An unknown status gives no receipt; a receipt without a message id is an error; an empty error code is None."""
    assert parse_hook(sign_form({**DELIVERED, "MessageStatus": "partially_read"})).receipts == ()
    with pytest.raises(Invalid):
        parse_hook(sign_form({"MessageStatus": "delivered"}))
    assert parse_hook(sign_form({**DELIVERED, "ErrorCode": ""})).receipts[0].code is None


@pytest.mark.parametrize("token", ["", "abc", "%00", "ä", "A" * 500])
def test_an_invalid_message_token_is_ignored(token: str) -> None:
    """An invalid token in the callback URL gives no message id, but the receipt is read."""
    assert parse_hook(sign_form(DELIVERED, f"/hooks/twilio/status?m={token}")).receipts[0].message_id is None


def test_a_token_of_another_purpose_is_ignored() -> None:
    """A number that is signed for another purpose is not accepted as message id."""
    unsubscribe_token = crypto.sign_token("unsubscribe", 77)
    assert (
        parse_hook(sign_form(DELIVERED, f"/hooks/twilio/status?m={unsubscribe_token}")).receipts[0].message_id is None
    )


def test_parse_an_incoming_message() -> None:
    """Either endpoint keeps the text, apart from control characters, and the keyword that the provider answered."""
    fields = {"SmsStatus": "received", "MessageSid": SID, "From": "+15551230001", "To": "+15550009999",
              "Body": " Stöp \r\n 停止 😀+&%41 ", "OptOutType": "stop", "NumMedia": "0"}  # fmt: skip
    for hook in ("twilio/message", "twilio/status"):
        contents = parse_hook(sign_form(fields, "/hooks/" + hook), hook=hook)
        assert contents.incoming == (IncomingSms(SID, "+15551230001", "+15550009999", fields["Body"], "STOP"),)
        assert contents.receipts == ()
    assert parse_hook(sign_form({"From": "+1", "To": "+2", "Body": ""})).incoming[0].body == ""
    assert parse_hook(sign_form({"From": "+1", "To": "+2", "Body": "a\x00b\x07"})).incoming[0].body == "ab"
    with pytest.raises(Invalid):
        parse_hook(sign_form({"SmsStatus": "received", "Body": "x"}))


@pytest.mark.parametrize("is_left_out", [True, False], ids=["left out", "as a field"])
def test_signatures_may_leave_out_our_query(is_left_out: bool) -> None:
    """A signature of the URL without our token is accepted; one of any other change of the query is not."""
    url = TWILIO.build_callback_url(9)
    path, _, token = url.partition("?m=")
    signed_form = twilio_form(TOKEN, path, DELIVERED | ({} if is_left_out else {"m": token}))
    post = twilio_form(TOKEN, url, DELIVERED)._replace(headers=signed_form.headers)
    assert parse_hook(post).receipts == (Receipt(SID, "delivered", 9),)
    for wrong_url in (f"{path}?m=x", f"{url}&m=x", f"{url}&a=b", f"{path}?a=b", f"{path}?m={token[:-1]}"):
        with pytest.raises(NotAllowed):
            parse_hook(post, url=wrong_url)


def _remove_signature(post: Post) -> Post:
    return post._replace(headers={"Content-Type": post.headers["Content-Type"]})


FORGED = {
    "no signature": _remove_signature(sign_form(DELIVERED)),
    "an empty one": sign_form(DELIVERED)._replace(headers={"X-Twilio-Signature": ""}),
    "of another secret": twilio_form("other", f"{BASE}/hooks/twilio/status", DELIVERED),
    "of the empty secret": twilio_form("", f"{BASE}/hooks/twilio/status", DELIVERED),
    "of another address": sign_form(DELIVERED, signed=f"{BASE}/hooks/twilio/message"),
    "of another host": sign_form(DELIVERED, signed="https://evil.example.org/hooks/twilio/status"),
    "of another query": sign_form(DELIVERED, "/hooks/twilio/status?m=a", signed=f"{BASE}/hooks/twilio/status?m=b"),
    "a field more": sign_form(DELIVERED)._replace(body=sign_form(DELIVERED).body + b"&ErrorCode=1"),
    "a field twice": sign_form(DELIVERED)._replace(body=sign_form(DELIVERED).body + b"&MessageStatus=failed"),
    "a field less": sign_form(DELIVERED)._replace(body=b"MessageSid=" + SID.encode()),
    "no UTF-8": sign_form(DELIVERED)._replace(body=b"MessageSid=%ff"),
    "fields without end": sign_form(DELIVERED)._replace(body=b"&".join(b"a=1" for _ in range(1000))),
    "no letters": sign_form(DELIVERED)._replace(headers={"X-Twilio-Signature": "é€"}),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_requests_are_rejected(forgery: str) -> None:
    """A request with a missing, wrong or misplaced signature raises NotAllowed."""
    with pytest.raises(NotAllowed):
        parse_hook(FORGED[forgery])


def test_json_bodies_are_checked_by_their_digest() -> None:
    """Twilio signs the URL of a JSON request, which has the body's digest: a change of either is rejected."""
    post = twilio_json(TOKEN, f"{BASE}/hooks/twilio/status?m=x", DELIVERED)
    assert parse_hook(post).receipts[0].status == "delivered"
    for forged in (
        post._replace(body=post.body.replace(b"delivered", b"failed   ")),
        post._replace(url=post.url.replace("m=x", "m=y")),
        twilio_form(TOKEN, f"{BASE}/hooks/twilio/status", {})._replace(
            headers={**twilio_form(TOKEN, f"{BASE}/hooks/twilio/status", {}).headers,
                     "Content-Type": "application/json"}, body=post.body),
    ):  # fmt: skip
        with pytest.raises(NotAllowed):
            parse_hook(forged)
    assert hashlib.sha256(post.body).hexdigest() in post.url
    # A JSON body is not accepted as a form
    with pytest.raises(NotAllowed):
        parse_hook(post._replace(headers={**post.headers, "Content-Type": "application/x-www-form-urlencoded"}))


def test_the_default_port_is_optional_in_a_signature() -> None:
    """Twilio signs some URLs with the default port of their scheme; another port is rejected."""
    for base_url, signed_base_url in ((BASE, f"{BASE}:443"), (f"{BASE}:443", BASE)):
        post = twilio_form(TOKEN, f"{signed_base_url}/hooks/twilio/status", DELIVERED)
        assert parse_hook(post, url=f"{base_url}/hooks/twilio/status").receipts
    with pytest.raises(NotAllowed):
        parse_hook(twilio_form(TOKEN, f"{BASE}:444/hooks/twilio/status", DELIVERED), url=f"{BASE}/hooks/twilio/status")


def test_requests_are_rejected_without_a_secret() -> None:
    """Without a configured secret a signature with the empty one is rejected."""
    config.set_current(config.load({}, {}).config)
    assert (TWILIO.get_webhook_secret(), HTTP.get_webhook_secret()) == ("", "")
    with pytest.raises(NotAllowed):
        parse_hook(twilio_form("", f"{BASE}/hooks/twilio/status", DELIVERED))
    with pytest.raises(NotAllowed):
        parse_hook(
            generic("", f"{BASE}/hooks/sms", {"type": "status", "id": "1", "status": "sent"}, real_time()), HTTP, "sms"
        )


# -- the HTTP gateway --------------------------------------------------------------------------------------------------


def sign_gateway_request(
    payload: dict[str, Any], sent_at: float | None = None, secret: str = SECRET, url: str = "/hooks/sms"
) -> Post:
    """Return a signed request of an HTTP gateway."""
    return generic(secret, BASE + url, payload, real_time() if sent_at is None else sent_at, "name")


@pytest.mark.parametrize(("error", "code", "text"), [
    (None, None, ""), ("30005", "30005", ""), (30005, "30005", ""), ("hard: no such number", "hard", "no such number"),
    ("the phone is off", None, "the phone is off"), ({"code": 30003, "message": "off"}, "30003", "off"),
    ([], None, "[]"),
])  # fmt: skip
def test_parse_a_gateway_receipt(error: Any, code: str | None, text: str) -> None:
    """A receipt has the message by either id; its error may be a code, a text or an object."""
    url = HTTP.build_callback_url(9).removeprefix(BASE)
    contents = parse_hook(
        sign_gateway_request({"type": "status", "id": "g-1", "status": "Undelivered", "error": error}, url=url),
        HTTP,
        "sms",
    )
    assert contents.receipts == (Receipt("g-1", "undelivered", 9, code, text),)
    contents = parse_hook(
        sign_gateway_request({"type": "status", "id": 7, "status": "delivered", "more": 1}), HTTP, "sms"
    )
    assert contents.receipts == (Receipt("7", "delivered"),)


def test_parse_a_gateway_message() -> None:
    """A message has its own id or that of the request; null fields are allowed, broken characters are replaced."""
    message = {"type": "message", "id": "in-1", "from": "+15551230001", "to": "+15550009999", "body": " Hi\n"}
    assert parse_hook(sign_gateway_request(message), HTTP, "sms").incoming == (
        IncomingSms("in-1", "+15551230001", "+15550009999", " Hi\n"),
    )
    # A gateway that always sends all fields, and no recipient
    null_fields = {"status": None, "error": None, "to": None, "answered": None}
    assert parse_hook(sign_gateway_request(message | null_fields), HTTP, "sms").incoming == (
        IncomingSms("in-1", "+15551230001", "", " Hi\n"),
    )
    incoming = parse_hook(sign_gateway_request(message | {"body": "STOP \ud83d"}), HTTP, "sms").incoming + parse_hook(
        twilio_json(TOKEN, f"{BASE}/hooks/twilio/message", {"From": "+1", "To": "+2", "Body": "STOP \ud83d"})
    ).incoming  # fmt: skip
    assert [sms.body for sms in incoming] == ["STOP ?"] * 2, "a lone surrogate must be replaced"
    nulls = dict.fromkeys(("from", "to", "body", "error"))
    contents = parse_hook(sign_gateway_request({"type": "status", "id": "g-1", "status": "sent"} | nulls), HTTP, "sms")
    assert contents.receipts == (Receipt("g-1", "sent"),)
    contents = parse_hook(sign_gateway_request({**message, "id": None, "answered": "stop"}), HTTP, "sms")
    assert contents.incoming == (IncomingSms("name", "+15551230001", "+15550009999", " Hi\n", "STOP"),)


@pytest.mark.parametrize("payload", [
    {}, {"type": "call"}, {"type": "status", "status": "sent"}, {"type": "status", "id": "a b", "status": "sent"},
    {"type": "status", "id": "1", "status": "gone"}, {"type": "message", "body": "x"}, {"type": "status", "id": [1]},
    {"type": "status", "id": True, "status": "sent"}, [], "x", 1,
])  # fmt: skip
def test_invalid_signed_requests_name_their_fields(payload: Any) -> None:
    """Invalid requests with a valid signature raise Invalid with errors by field."""
    with pytest.raises(Invalid) as error_info:
        parse_hook(sign_gateway_request(payload), HTTP, "sms")
    assert error_info.value.fields


@pytest.mark.parametrize("secret", ["plain", SECRET, "whsec_", "whsec_x", "whsec_\u00fc"])
def test_any_secret_can_sign(secret: str) -> None:
    """A secret that is not Base64 is used as text; the empty one is never accepted."""
    config.set_current(config.load({"base_url": BASE, "sms.http.secret": secret}, {}).config)
    payload = {"type": "status", "id": "1", "status": "sent"}
    post = sign_gateway_request(payload, secret="plain")
    timestamp = post.headers["webhook-timestamp"]
    digest = hmac.new(secret.encode(), f"name.{timestamp}.".encode() + post.body, hashlib.sha256).digest()
    signature = {"webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}
    assert parse_hook(post._replace(headers=post.headers | signature), HTTP, "sms").receipts
    with pytest.raises(NotAllowed):
        parse_hook(sign_gateway_request(payload, secret=""), HTTP, "sms")


def test_forged_gateway_requests_are_rejected(tmp_path: Path) -> None:
    """A wrong secret, body, id or time raises NotAllowed; one valid signature of several is enough."""
    from appliance.core import clock

    payload = {"type": "status", "id": "1", "status": "sent"}
    valid = sign_gateway_request(payload)
    early = sign_gateway_request(payload, real_time() + 299)
    assert parse_hook(early, HTTP, "sms").receipts
    forged = [
        sign_gateway_request(payload, secret="other"), sign_gateway_request(payload, secret=""),
        sign_gateway_request(payload, real_time() - 301), sign_gateway_request(payload, real_time() + 310),
        valid._replace(body=json.dumps({**payload, "status": "failed"}).encode()), valid._replace(headers={}),
        *(
            valid._replace(headers={**valid.headers, "webhook-timestamp": timestamp})
            for timestamp in ("", "1e9", "-1", "٣")
        ),
        valid._replace(headers={**valid.headers, "webhook-id": ""}),
    ]  # fmt: skip
    for post in forged:
        with pytest.raises(NotAllowed):
            parse_hook(post, HTTP, "sms")
    two_signatures = {**valid.headers, "webhook-signature": "v1,AAAA " + valid.headers["webhook-signature"]}
    assert parse_hook(valid._replace(headers=two_signatures), HTTP, "sms").receipts
    clock_file = TestClock(tmp_path / "clock")
    clock.use_offset_file(str(clock_file.path))
    try:
        clock_file.advance(minutes=10)
        with pytest.raises(NotAllowed):
            parse_hook(valid, HTTP, "sms")
    finally:
        clock.use_offset_file(None)
