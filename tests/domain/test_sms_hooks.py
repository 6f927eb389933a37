"""What providers of SMS tell is believed only where it is signed, and read whole."""

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
def settings(tmp_path: Path) -> Iterator[None]:
    """Both providers have a secret."""
    crypto.create_key(tmp_path)
    options = {"base_url": BASE, "sms.twilio.auth_token": TOKEN, "sms.http.secret": SECRET}
    config.set_current(config.load(options, {}).config)
    yield
    config._current, crypto._key = None, b""


def read(post: Post, provider: Any = TWILIO, hook: str = "twilio/status", url: str | None = None) -> HookContents:
    """Read a request as the door hands it on."""
    headers = {name.lower(): value for name, value in post.headers.items()}
    told: HookContents = provider.parse_hook(hook, HookRequest(url or post.url, headers, post.body))
    return told


def form(fields: dict[str, str], path: str = "/hooks/twilio/status", **more: Any) -> Post:
    """Make a signed form of Twilio."""
    return twilio_form(TOKEN, BASE + path, fields, **more)


def now() -> float:
    """Return the time of this machine."""
    import time

    return time.time()


def test_the_signature_of_the_description() -> None:
    """The example that Twilio's own documentation gives is believed, so the kit signs as Twilio does."""
    fields = {
        "CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234", "From": "+14158675309",
        "To": "+18005551212",
    }  # fmt: skip
    made = twilio_signature("12345", "https://mycompany.com/myapp.php?foo=1&bar=2", fields)
    assert made == "RSOYDt4T1cUTdK1PDd93/VVr8B8="
    hand = twilio_signature("12345", "https://mycompany.com/myapp.php?foo=1&bar=2", {**fields, "To": "+18005551213"})
    assert hand != made


@pytest.mark.parametrize(("said", "status"), [
    ("queued", "sent"), ("accepted", "sent"), ("sending", "sent"), ("sent", "sent"), ("delivered", "delivered"),
    ("read", "delivered"), ("undelivered", "undelivered"), ("failed", "failed"), ("canceled", "failed"),
])  # fmt: skip
def test_a_receipt_is_read(said: str, status: str) -> None:
    """Each status in our words, with the provider's name, its code, and the message its address was made for."""
    url = TWILIO.build_callback_url(77).removeprefix(BASE)
    told = read(
        form({**DELIVERED, "MessageStatus": said, "ErrorCode": "30005", "ErrorMessage": "Unknown\n handset"}, url)
    )
    assert told.receipts == (Receipt(SID, status, 77, "30005", "Unknown handset"),)
    assert (told.incoming, told.media) == ((), "text/xml")


def test_what_says_nothing_of_a_message_is_passed_over() -> None:
    """A status that nobody knows is no reason for the provider to come again; a receipt of nothing is wrong."""
    assert read(form({**DELIVERED, "MessageStatus": "partially_read"})).receipts == ()
    with pytest.raises(Invalid):
        read(form({"MessageStatus": "delivered"}))
    assert read(form({**DELIVERED, "ErrorCode": ""})).receipts[0].code is None


@pytest.mark.parametrize("token", ["", "abc", "%00", "ä", "A" * 500])
def test_a_wrong_name_of_ours_is_no_name(token: str) -> None:
    """An address that was tampered with before it was signed names no message; the provider's name may."""
    assert read(form(DELIVERED, f"/hooks/twilio/status?m={token}")).receipts[0].message_id is None


def test_a_token_of_another_door_opens_none() -> None:
    """A signed number of another purpose is not the name of a message here."""
    other = crypto.sign_token("unsubscribe", 77)
    assert read(form(DELIVERED, f"/hooks/twilio/status?m={other}")).receipts[0].message_id is None


def test_what_people_write_is_read_as_they_wrote_it() -> None:
    """Blanks, line ends and every script stay; what the provider answered itself is told; at either door."""
    fields = {"SmsStatus": "received", "MessageSid": SID, "From": "+15551230001", "To": "+15550009999",
              "Body": " Stöp \r\n 停止 😀+&%41 ", "OptOutType": "stop", "NumMedia": "0"}  # fmt: skip
    for hook in ("twilio/message", "twilio/status"):
        told = read(form(fields, "/hooks/" + hook), hook=hook)
        assert told.incoming == (IncomingSms(SID, "+15551230001", "+15550009999", fields["Body"], "STOP"),)
        assert told.receipts == ()
    assert read(form({"From": "+1", "To": "+2", "Body": ""})).incoming[0].body == ""
    assert read(form({"From": "+1", "To": "+2", "Body": "a\x00b\x07"})).incoming[0].body == "ab"
    with pytest.raises(Invalid):
        read(form({"SmsStatus": "received", "Body": "x"}))


@pytest.mark.parametrize("left_out", [True, False], ids=["left out", "as a field"])
def test_our_own_query_may_be_signed_as_some_do(left_out: bool) -> None:
    """Who takes the address for its path alone is believed, for what they leave out is a token of ours."""
    url = TWILIO.build_callback_url(9)
    path, _, token = url.partition("?m=")
    right = twilio_form(TOKEN, path, DELIVERED | ({} if left_out else {"m": token}))
    post = twilio_form(TOKEN, url, DELIVERED)._replace(headers=right.headers)
    assert read(post).receipts == (Receipt(SID, "delivered", 9),)
    for wrong in (f"{path}?m=x", f"{url}&m=x", f"{url}&a=b", f"{path}?a=b", f"{path}?m={token[:-1]}"):
        with pytest.raises(NotAllowed):
            read(post, url=wrong)


def _unsigned(post: Post) -> Post:
    return post._replace(headers={"Content-Type": post.headers["Content-Type"]})


FORGED = {
    "no signature": _unsigned(form(DELIVERED)),
    "an empty one": form(DELIVERED)._replace(headers={"X-Twilio-Signature": ""}),
    "of another secret": twilio_form("other", f"{BASE}/hooks/twilio/status", DELIVERED),
    "of the empty secret": twilio_form("", f"{BASE}/hooks/twilio/status", DELIVERED),
    "of another address": form(DELIVERED, signed=f"{BASE}/hooks/twilio/message"),
    "of another host": form(DELIVERED, signed="https://evil.example.org/hooks/twilio/status"),
    "of another query": form(DELIVERED, "/hooks/twilio/status?m=a", signed=f"{BASE}/hooks/twilio/status?m=b"),
    "a field more": form(DELIVERED)._replace(body=form(DELIVERED).body + b"&ErrorCode=1"),
    "a field twice": form(DELIVERED)._replace(body=form(DELIVERED).body + b"&MessageStatus=failed"),
    "a field less": form(DELIVERED)._replace(body=b"MessageSid=" + SID.encode()),
    "no UTF-8": form(DELIVERED)._replace(body=b"MessageSid=%ff"),
    "fields without end": form(DELIVERED)._replace(body=b"&".join(b"a=1" for _ in range(1000))),
    "no letters": form(DELIVERED)._replace(headers={"X-Twilio-Signature": "é€"}),
}  # fmt: skip


@pytest.mark.parametrize("how", FORGED)
def test_what_is_not_signed_is_refused(how: str) -> None:
    """Whatever is missing, added or signed for another purpose: one refusal."""
    with pytest.raises(NotAllowed):
        read(FORGED[how])


def test_a_json_body_is_held_against_its_digest() -> None:
    """JSON of Twilio: the signed address names the digest of the body; neither may be another's."""
    post = twilio_json(TOKEN, f"{BASE}/hooks/twilio/status?m=x", DELIVERED)
    assert read(post).receipts[0].status == "delivered"
    for wrong in (
        post._replace(body=post.body.replace(b"delivered", b"failed   ")),
        post._replace(url=post.url.replace("m=x", "m=y")),
        twilio_form(TOKEN, f"{BASE}/hooks/twilio/status", {})._replace(
            headers={**twilio_form(TOKEN, f"{BASE}/hooks/twilio/status", {}).headers,
                     "Content-Type": "application/json"}, body=post.body),
    ):  # fmt: skip
        with pytest.raises(NotAllowed):
            read(wrong)
    assert hashlib.sha256(post.body).hexdigest() in post.url
    # A form cannot pass as JSON of the same address, nor JSON as a form
    with pytest.raises(NotAllowed):
        read(post._replace(headers={**post.headers, "Content-Type": "application/x-www-form-urlencoded"}))


def test_a_usual_port_may_be_said_or_not() -> None:
    """Twilio signs some addresses with the port that their scheme has anyway."""
    for there, signed in ((BASE, f"{BASE}:443"), (f"{BASE}:443", BASE)):
        post = twilio_form(TOKEN, f"{signed}/hooks/twilio/status", DELIVERED)
        assert read(post, url=f"{there}/hooks/twilio/status").receipts
    with pytest.raises(NotAllowed):
        read(twilio_form(TOKEN, f"{BASE}:444/hooks/twilio/status", DELIVERED), url=f"{BASE}/hooks/twilio/status")


def test_without_a_secret_nothing_is_believed() -> None:
    """No secret set: a signature with the empty one is none."""
    config.set_current(config.load({}, {}).config)
    assert (TWILIO.get_webhook_secret(), HTTP.get_webhook_secret()) == ("", "")
    with pytest.raises(NotAllowed):
        read(twilio_form("", f"{BASE}/hooks/twilio/status", DELIVERED))
    with pytest.raises(NotAllowed):
        read(generic("", f"{BASE}/hooks/sms", {"type": "status", "id": "1", "status": "sent"}, now()), HTTP, "sms")


# -- the generic way ---------------------------------------------------------------------------------------------------


def own(said: dict[str, Any], at: float | None = None, secret: str = SECRET, url: str = "/hooks/sms") -> Post:
    """Make a signed request of a server of one's own."""
    return generic(secret, BASE + url, said, now() if at is None else at, "name")


@pytest.mark.parametrize(("error", "code", "words"), [
    (None, None, ""), ("30005", "30005", ""), (30005, "30005", ""), ("hard: no such number", "hard", "no such number"),
    ("the phone is off", None, "the phone is off"), ({"code": 30003, "message": "off"}, "30003", "off"),
    ([], None, "[]"),
])  # fmt: skip
def test_a_receipt_the_generic_way(error: Any, code: str | None, words: str) -> None:
    """What became of a message by either name, and why, in whatever form it is said."""
    url = HTTP.build_callback_url(9).removeprefix(BASE)
    told = read(own({"type": "status", "id": "g-1", "status": "Undelivered", "error": error}, url=url), HTTP, "sms")
    assert told.receipts == (Receipt("g-1", "undelivered", 9, code, words),)
    told = read(own({"type": "status", "id": 7, "status": "delivered", "more": 1}), HTTP, "sms")
    assert told.receipts == (Receipt("7", "delivered"),)


def test_what_people_write_the_generic_way() -> None:
    """A message with its name, or with that of the request, so that it counts once."""
    said = {"type": "message", "id": "in-1", "from": "+15551230001", "to": "+15550009999", "body": " Hi\n"}
    assert read(own(said), HTTP, "sms").incoming == (IncomingSms("in-1", "+15551230001", "+15550009999", " Hi\n"),)
    # Who always tells all fields, and does not say to which number
    more = {"status": None, "error": None, "to": None, "answered": None}
    assert read(own(said | more), HTTP, "sms").incoming == (IncomingSms("in-1", "+15551230001", "", " Hi\n"),)
    cut = read(own(said | {"body": "STOP \ud83d"}), HTTP, "sms").incoming + read(
        twilio_json(TOKEN, f"{BASE}/hooks/twilio/message", {"From": "+1", "To": "+2", "Body": "STOP \ud83d"})
    ).incoming  # fmt: skip
    assert [one.body for one in cut] == ["STOP ?"] * 2, "a text that was cut in the middle of a picture"
    nulls = dict.fromkeys(("from", "to", "body", "error"))
    told = read(own({"type": "status", "id": "g-1", "status": "sent"} | nulls), HTTP, "sms")
    assert told.receipts == (Receipt("g-1", "sent"),)
    told = read(own({**said, "id": None, "answered": "stop"}), HTTP, "sms")
    assert told.incoming == (IncomingSms("name", "+15551230001", "+15550009999", " Hi\n", "STOP"),)


@pytest.mark.parametrize("said", [
    {}, {"type": "call"}, {"type": "status", "status": "sent"}, {"type": "status", "id": "a b", "status": "sent"},
    {"type": "status", "id": "1", "status": "gone"}, {"type": "message", "body": "x"}, {"type": "status", "id": [1]},
    {"type": "status", "id": True, "status": "sent"}, [], "x", 1,
])  # fmt: skip
def test_nonsense_that_is_signed_is_told_so(said: Any) -> None:
    """Whoever has the secret learns what is wrong."""
    with pytest.raises(Invalid) as found:
        read(own(said), HTTP, "sms")
    assert found.value.fields


@pytest.mark.parametrize("secret", ["plain", SECRET, "whsec_", "whsec_x", "whsec_\u00fc"])
def test_every_secret_is_a_key(secret: str) -> None:
    """Also with all its letters, and one that is no base64; nothing is signed by having no key at all."""
    config.set_current(config.load({"base_url": BASE, "sms.http.secret": secret}, {}).config)
    said = {"type": "status", "id": "1", "status": "sent"}
    post = own(said, secret="plain")
    sent = post.headers["webhook-timestamp"]
    whole = hmac.new(secret.encode(), f"name.{sent}.".encode() + post.body, hashlib.sha256).digest()
    signed = {"webhook-signature": f"v1,{base64.b64encode(whole).decode()}"}
    assert read(post._replace(headers=post.headers | signed), HTTP, "sms").receipts
    with pytest.raises(NotAllowed):
        read(own(said, secret=""), HTTP, "sms")


def test_who_is_not_believed_the_generic_way(tmp_path: Path) -> None:
    """Wrong secret, another body, too old, too far ahead, no time at all."""
    from appliance.core import clock

    said = {"type": "status", "id": "1", "status": "sent"}
    right = own(said)
    later = own(said, now() + 299)
    assert read(later, HTTP, "sms").receipts
    wrong = [
        own(said, secret="other"), own(said, now() - 301), own(said, now() + 310), own(said, secret=""),
        right._replace(body=json.dumps({**said, "status": "failed"}).encode()), right._replace(headers={}),
        *(right._replace(headers={**right.headers, "webhook-timestamp": at}) for at in ("", "1e9", "-1", "٣")),
        right._replace(headers={**right.headers, "webhook-id": ""}),
    ]  # fmt: skip
    for post in wrong:
        with pytest.raises(NotAllowed):
            read(post, HTTP, "sms")
    both = {**right.headers, "webhook-signature": "v1,AAAA " + right.headers["webhook-signature"]}
    assert read(right._replace(headers=both), HTTP, "sms").receipts
    moved = TestClock(tmp_path / "clock")
    clock.use_offset_file(str(moved.path))
    try:
        moved.advance(minutes=10)
        with pytest.raises(NotAllowed):
            read(right, HTTP, "sms")
    finally:
        clock.use_offset_file(None)
