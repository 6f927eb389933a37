"""Forged, old and misdirected requests to the SMS webhooks have no effect (T30)."""

import itertools
import json
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.api.sms_world import World, world
from tests.kit.client import Client
from tests.kit.fake_sms import SECRET, SID, TOKEN, post
from tests.kit.sampling import thin_out
from tests.kit.server import Server
from tests.kit.sms_signing import Post, generic, twilio_form, twilio_json

__all__ = ["world"]
DOORS = ("twilio/status", "twilio/message", "sms")


def signed_request(world: World, door: str, message: Any, taken: Any) -> Post:
    """Return a validly signed request with the largest effect for each webhook."""
    if door == "twilio/status":
        return world.sms.receipt(taken, "undelivered", 21610)
    if door == "twilio/message":
        return world.sms.incoming_request(world.server.url, message["to"], "STOP")
    return world.sms.incoming_http_request(world.server.url, message["to"], "STOP")


def forged_variants(original: Post) -> list[Post]:
    """Return variants of a request with missing or changed signature, body or URL."""
    variants = []
    for name in ("X-Twilio-Signature", "webhook-id", "webhook-timestamp", "webhook-signature"):
        if name in original.headers:
            rest = {key: value for key, value in original.headers.items() if key != name}
            kept = original.headers[name]
            others = ("", "x", kept[:-2] + ("Ab" if kept[-2:] != "Ab" else "Ba"), kept.swapcase(), "é")
            variants += [original._replace(headers=rest)]
            variants += [original._replace(headers=rest | {name: other}) for other in others if other != kept]
    body = original.body
    changed = [body + b"&x=1", body + b" ", body.replace(b"STOP", b"START"), body.replace(b"21610", b"30003")]
    bodies = [*changed, b"", b"{}", b"\xff", b"a=" * 5000, b"[" * 5000]
    variants += [original._replace(body=changed_body) for changed_body in bodies if changed_body != body]
    if "X-Twilio-Signature" in original.headers:
        query = "?" if "?" not in original.url else "&"
        variants += [original._replace(url=original.url + query + more) for more in ("m=1", "x")]
        variants.append(original._replace(headers=original.headers | {"Content-Type": "application/json"}))
    return variants


@pytest.mark.parametrize("door", DOORS)
def test_forged_requests_are_rejected(door: str, world: World) -> None:
    """A missing or wrong signature, or another body or URL, is a 403 without effect."""
    message, taken = world.send_sms()
    right = signed_request(world, door, message, taken)
    wrong = forged_variants(right)
    assert len(wrong) >= 10
    for forgery in wrong:
        response = post(forgery)
        assert (response.status, json.loads(response.body)["code"]) == (403, "forbidden"), forgery
    assert world.state(message) == ("sent", [], None, True)
    assert post(right).status == 200 and world.state(message)[2] == "stop_keyword"


def test_host_headers_do_not_affect_signatures(world: World) -> None:
    """The signed URL is that of the settings, whatever Host or forwarded headers say."""
    message, taken = world.send_sms()
    right = world.sms.receipt(taken, "delivered")
    evil = right.url.replace(world.server.url, "https://evil.example")
    misled = twilio_form(TOKEN, right.url, dict(parse_qsl(right.body.decode())), signed=evil)
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
    assert post(misled._replace(headers=misled.headers | headers)).status == 403
    assert post(right._replace(headers=right.headers | headers)).status == 200
    assert world.state(message)[0] == "delivered"


def test_a_callback_token_is_valid_for_one_message(world: World) -> None:
    """A receipt at the callback URL of another message is applied to the message that it names."""
    (first, taken), (second, other) = world.send_sms(), world.send_sms()
    fields = dict(parse_qsl(world.sms.receipt(taken, "delivered").body.decode()))
    assert post(twilio_form(TOKEN, other.callback, fields)).status == 200
    assert (world.state(first)[0], world.state(second)[0]) == ("delivered", "sent")
    for token in ("x", "", "AAAA" * 20, urlsplit(other.callback).query.removeprefix("m=")[:-1]):
        fields = dict(parse_qsl(world.sms.receipt(other, "failed").body.decode())) | {"MessageSid": "SM" + "e" * 32}
        url = other.callback.partition("?")[0] + "?" + urlencode({"m": token})
        assert post(twilio_form(TOKEN, url, fields)).status == 200
    assert world.state(second)[0] == "sent"


@pytest.mark.parametrize("door", ["twilio/status", "twilio/message"])
def test_json_requests_are_signed_by_digest(door: str, world: World) -> None:
    """A JSON body is accepted with its digest in the signed URL, and otherwise rejected."""
    message, taken = world.send_sms()
    fields = {"MessageSid": taken.sid, "MessageStatus": "delivered", "AccountSid": SID}
    url = f"{world.server.url}/hooks/{door}"
    right = twilio_json(TOKEN, url, fields)
    assert post(right._replace(body=right.body.replace(b"delivered", b"failed"))).status == 403
    assert post(right._replace(url=url)).status == 403
    assert post(twilio_json("other", url, fields)).status == 403
    assert world.state(message)[0] == "sent"
    assert post(right).status == 200 and world.state(message)[0] == "delivered"


@pytest.mark.parametrize("age", [600, 301, -330, 270], ids=str)  # time goes on while it is posted
def test_old_and_future_requests_are_rejected(age: int, world: World) -> None:
    """A generic request signed more than five minutes ago, or in the future, is a 403."""
    message, _ = world.send_sms()
    fields = {"type": "message", "id": f"old-{age}", "from": message["to"], "to": "+15550009999", "body": "STOP"}
    response = post(generic(SECRET, f"{world.server.url}/hooks/sms", fields, world.clock.now() - age))
    assert response.status == (200 if age == 270 else 403)
    assert world.state(message)[3] is (age != 270)


def test_one_setting_limits_the_age_of_all_signed_requests() -> None:
    """With `network.hook_max_age`, a gateway and a relay may repeat requests that they signed during an outage."""
    environment = {
        "CAMPANERO_SMS__HTTP__SECRET": SECRET, "CAMPANERO_EMAIL__FEEDBACK_SECRET": SECRET,
        "CAMPANERO_NETWORK__HOOK_MAX_AGE": "1h",
    }  # fmt: skip
    with Server(env=environment).set_up() as server:
        for hook in ("sms", "email"):
            for minutes, is_accepted in ((50, True), (70, False), (-70, False)):
                signed = generic(SECRET, f"{server.url}/hooks/{hook}", {"type": "none"}, time.time() - minutes * 60)
                # The body is invalid, which is only reported to whom the signature belongs.
                assert (post(signed).status == 422) is is_accepted, (hook, minutes)
                assert (post(signed).status == 403) is not is_accepted, (hook, minutes)
        server.stop()


def test_repeated_requests_count_once(world: World) -> None:
    """A repeated signed request is a 200 without another effect."""
    message, taken = world.send_sms()
    receipt, words = (
        world.sms.receipt(taken, "delivered"),
        world.sms.incoming_request(world.server.url, message["to"], "STOP"),
    )
    for _ in range(3):
        assert post(receipt).status == post(words).status == 200
    start = world.sms.incoming_request(world.server.url, message["to"], "START")
    assert post(start).status == post(words).status == 200
    status, events, reason, subscribed = world.state(message)
    assert (status, events.count("sms_delivered"), reason, subscribed) == ("delivered", 1, None, True)


@pytest.mark.parametrize("door", DOORS)
def test_methods_and_size_of_sms_webhooks(door: str, world: World) -> None:
    """Other methods than POST are a 405, and large bodies a 413."""
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert world.api.request(method, f"/hooks/{door}").status == 405
    for size, status in ((66_000, 413), (2_200_000, 413), (60_000, 403)):
        response = post(Post(f"{world.server.url}/hooks/{door}", {"Content-Type": "text/plain"}, b"x" * size))
        assert response.status == status


# `{}` stands for a number without its country code
_SPELLINGS = (
    "44{}", "0044{}", "011 44 {}", "0{}", "(0) {}", "+44 (0){}", "tel:+44{}", "whatsapp:+44{}", "sip:+44{}@gateway",
    "\u202a+44{}\u202c", "+44\u00a0{}", "\uff0b\uff14\uff14{}", "{}",
)  # fmt: skip


def test_a_stop_counts_however_its_number_is_written(world: World) -> None:
    """A provider may write the sender without plus, as dialled abroad, or as in the country of an account."""
    world.api.patch("/account", {"country_code": "GB"}).expect(200)
    ignored = []
    for count, spelling in enumerate(_SPELLINGS):
        number = f"7400{100_000 + count}"
        contact = world.api.post("/contacts", {"phone": f"+44{number}"}).expect(201)
        assert world.sms.send_incoming_http(world.server.url, spelling.format(number), "STOP").status == 200
        channel = world.api.get(f"/contacts/{contact['id']}").expect(200)["channels"][0]
        ignored += [] if channel["suppression_reason"] == "stop_keyword" else [spelling]
    assert ignored == []
    # A number that no account has stays as it is: it could be a short code
    world.sms.send_incoming_http(world.server.url, "07400 999999", "STOP")
    [incoming] = [row for row in world.api.get("/incoming").expect(200) if "999999" in row["from"]]
    assert (incoming["from"], incoming["kind"]) == ("07400 999999", "message")


def test_sms_webhooks_without_a_secret_are_404(server: Server, api: Client) -> None:
    """Without a configured provider all webhooks are a 404, however they are signed."""
    for door, token in itertools.product((*DOORS, "twilio", "twilio/other", "sms/x", "capture"), (TOKEN, "")):
        for request in (twilio_form(token, f"{server.url}/hooks/{door}", {"MessageSid": "SM1"}),
                        generic(SECRET, f"{server.url}/hooks/{door}", {"type": "status"}, 0)):  # fmt: skip
            response = post(request)
            assert (response.status, json.loads(response.body)["code"]) == (404, "not_found"), door
        assert {api.request(method, f"/hooks/{door}").status for method in ("GET", "HEAD", "PUT")} == {404}, door


WEIRD: list[Any] = [None, True, -1, 2**70, "", "\0", "x" * 5000, "\ud800", [], {}, [[{}]], "NaN", "+1", "’"]


def test_signed_variants_cause_no_server_error(world: World) -> None:
    """Any signed content is processed, ignored or rejected, and never a server error."""
    message, taken = world.send_sms()
    form = {"MessageSid": taken.sid, "MessageStatus": "undelivered", "ErrorCode": "30008", "From": "+1", "To": "+2"}
    words = {"MessageSid": "SM9", "From": message["to"], "To": "+15550009999", "Body": "x", "OptOutType": "STOP"}
    status = {"type": "status", "id": "nobody", "status": "undelivered", "error": "x"}
    heard = {"type": "message", "id": "m", "from": message["to"], "to": "+15550009999", "body": "x"}
    url, posts = f"{world.server.url}/hooks/", []
    for fields, door in ((form, "twilio/status"), (words, "twilio/message")):
        for key, value in itertools.product(fields, WEIRD):
            if isinstance(value, str) and value != "\ud800":
                posts.append(twilio_form(TOKEN, url + door, {**fields, key: value}))
            posts.append(twilio_json(TOKEN, url + door, {**fields, key: value}))
    for report in (status, heard):
        posts += [generic(SECRET, f"{url}sms", {**report, key: value}, world.clock.now())
                  for key, value in itertools.product(report, WEIRD)]  # fmt: skip
    responses = {post(request).status for request in thin_out(posts, 3)}
    assert responses <= {200, 422} and len(posts) > 200
    assert world.api.get("/account").status == 200
