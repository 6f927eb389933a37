"""Forged, old and misdirected webhook requests have no effect, and no foreign URL is requested (T28, T30)."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.hooks_world import NOTHING, SECRETS, World, world
from tests.kit import email_providers
from tests.kit.email_providers import HOST, TOPIC, Post, Sns
from tests.kit.sampling import thin_out

__all__ = ["world"]

POSTS: dict[str, Callable[..., Post]] = {
    "email": lambda w, m, **o: w.custom_relay(m, "complained", **o),
    "ses": lambda w, m, **o: w.ses("Complaint", m, complaint={
        "complainedRecipients": [{"emailAddress": m["to"]}], "feedbackId": f"f{m['id']}"}, **o),
    "mailgun": lambda w, m, **o: w.mailgun(m, "complained", **o),
    "sendgrid": lambda w, m, **o: w.sendgrid(m, "spamreport", **o),
    "resend": lambda w, m, **o: w.resend(m, "complained", **o),
    "postal": lambda w, m, **o: w.postal(m, "MessageSent", **o),
    "postmark": lambda w, m: w.postmark(m, "SpamComplaint", Type="SpamComplaint"),
    "brevo": lambda w, m: w.brevo(m, "spam"),
    "mailjet": lambda w, m: w.mailjet(m, "spam"),
}  # fmt: skip
# These have a password, which covers no body and has no time.
UNSIGNED = ("postmark", "brevo", "mailjet")
SIGNED = [name for name in POSTS if name not in UNSIGNED]
STATUS = {"postal": "delivered"}


def _with_broken_headers(post: Post) -> list[Post]:
    """Return variants of a request whose signature headers or body are missing or changed."""
    changed = []
    for name in set(post.headers) - {"Content-Type", "x-amz-sns-message-type"}:
        rest = {key: value for key, value in post.headers.items() if key != name}
        last = post.headers[name][-2:]
        other = post.headers[name][:-2] + ("Ab" if last != "Ab" else "Ba")
        scheme, space, _ = post.headers[name].rpartition(" ")
        values = ("", "x\xff", f"{scheme}{space}\xe9\xff", f"{scheme}{space}%%%", other)
        changed += [post._replace(headers=rest | extra) for extra in ({}, *({name: value} for value in values))]
    changed.append(post._replace(body=post.body.replace(b"@", b"A@", 1) if b"@" in post.body else post.body + b" "))
    return changed + [post._replace(body=body) for body in (b"", b"{}", b"[]", b"null", b"\xff", b"{" * 5000)]


def _with_broken_body(post: Post) -> list[Post]:
    """Return variants of a request whose signature in the body is missing or changed."""
    changed = []
    whole = json.loads(post.body)
    holder = whole.get("signature", whole) if post.path == "/hooks/mailgun" else whole
    for name in [key for key in holder if isinstance(holder[key], str) and key not in ("Subject",)]:
        kept = holder[name]
        for value in (None, "", "x", 7, ["x"], kept + "0", kept.swapcase()):
            if value == kept or (name == "signature" and value == kept.swapcase()):
                continue
            holder[name] = value
            changed.append(post._replace(body=json.dumps(whole).encode()))
        holder[name] = kept
    return changed


@pytest.mark.parametrize("name", POSTS)
def test_forged_requests_are_rejected(name: str, world: World) -> None:
    """A missing or wrong signature, or another body, is a 403 without effect."""
    message = world.sent()
    post = POSTS[name](world, message)
    forged = _with_broken_body(post) if name in ("ses", "mailgun") else _with_broken_headers(post)
    if name in UNSIGNED:
        forged = [forgery for forgery in forged if forgery.headers != post.headers]
    assert len(forged) >= (4 if name in UNSIGNED else 8)
    for forgery in forged:
        response = world.post(forgery)
        assert (response.status, response.json["code"]) == (403, "forbidden"), forgery
    assert list(world.state(message)) == list(NOTHING)
    assert world.post(post).status == 200 and world.state(message)[0] == STATUS.get(name, "complained")


@pytest.mark.parametrize("name", SIGNED)
def test_old_and_future_requests_are_rejected(name: str, world: World) -> None:
    """A request signed more than five minutes ago, or in the future, is a 403.

    Postal repeats a request for 36 minutes with its first signature.
    """
    message = world.sent()
    for age in (600, 301, -330):
        at = world.clock.now() - age - (36 * 60 + 30 if name == "postal" and age > 0 else 0)
        assert world.post(POSTS[name](world, message, at=at)).status == 403
    assert world.state(message)[0] == "sent"
    # Not to the second, because time goes on while it is posted
    assert world.post(POSTS[name](world, message, at=world.clock.now() - 270)).status == 200
    assert world.state(message)[0] == STATUS.get(name, "complained")


def test_a_replayed_postal_request_has_no_effect(world: World) -> None:
    """A request that is recorded and posted again within its age counts once, and not for another message."""
    message = world.sent()
    post = world.postal(message, "MessageSent", at=world.clock.now() - 30 * 60)
    assert [world.post(post).status for _ in range(2)] == [200, 200]
    assert world.state(message) == ("delivered", ["email_delivered"], None, True)


def test_a_signature_is_valid_for_one_webhook(world: World) -> None:
    """A request that is signed for one webhook is a 403 at all others."""
    message = world.sent()
    for name, build in POSTS.items():
        post = build(world, message)
        for other in set(POSTS) - {name}:
            assert world.post(post._replace(path=f"/hooks/{other}")).status == 403, (name, other)
    assert list(world.state(message)) == list(NOTHING)


def test_a_mailgun_token_is_valid_once(world: World) -> None:
    """A reused token with another event is rejected, because it signs time and token only."""
    message, other = world.sent(), world.sent()
    assert world.post(world.mailgun(message, "delivered", token="t" * 50)).status == 200
    assert world.post(world.mailgun(other, "complained", token="t" * 50)).status == 403
    assert list(world.state(other)) == list(NOTHING)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_webhooks_accept_post_only(method: str, world: World) -> None:
    """Other methods are a 405."""
    assert world.api.request(method, "/hooks/email").status == 405


def test_large_webhook_bodies_are_rejected(world: World) -> None:
    """A body over the limit is a 413."""
    post = Post("/hooks/email", {"Content-Type": "application/json"}, b"x" * 2_200_000)
    assert (world.post(post).status, world.post(post).json["code"]) == (413, "payload_too_large")


def test_signed_nonsense_is_a_422(world: World) -> None:
    """A valid signature with an invalid or unknown report is an error of the request."""
    now = world.clock.now()
    for body in ({}, {"type": "opened", "internet_message_id": "x"}, {"type": "bounced", "internet_message_id": "a@b"}):
        response = world.post(email_providers.custom_relay(SECRETS["email"], body, now))
        assert (response.status, response.json["code"]) == (422, "validation_error")
    assert world.post(world.grid.post([], now)).json == {"received": 0}


# -- SNS --------------------------------------------------------------------------------------------------------------


WEIRD: list[Any] = [None, True, -1, 2**70, 1e308, "", "\0", "x" * 5000, "\ud800", [], {}, [[[{}]]], "NaN", "<a@b>"]


def _variants(value: Any) -> Iterator[Any]:
    """Yield variants of a value with each part replaced by something unexpected."""
    yield from WEIRD
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in _variants(inner))
    elif isinstance(value, list):
        yield from ([other] for other in _variants(value[0]))


def test_signed_variants_cause_no_server_error(world: World) -> None:
    """Any signed content is processed, ignored or rejected, and never a server error."""
    message, now = world.sent(), world.clock.now()
    token = message["internet_message_id"].partition("@")[0]
    own = {"type": "delivered", "internet_message_id": message["internet_message_id"], "diagnostic": "x"}
    gun = {"event": "failed", "severity": "permanent", "reason": "bounce", "timestamp": 1.5, "recipient": message["to"],
           "message": {"headers": {"message-id": token}}, "delivery-status": {"code": 450, "message": "x"}}  # fmt: skip
    grid = {"event": "deferred", "campanero": token, "timestamp": 5, "email": message["to"], "sg_event_id": "e"}
    mark = {"RecordType": "Bounce", "Type": "Transient", "ID": 4, "Metadata": {"campanero": token}, "BouncedAt": "x"}
    brevo = {"event": "hard_bounce", "email": message["to"], "X-Mailin-custom": token, "ts_epoch": 1.5, "reason": "x"}
    jet = {"event": "bounce", "email": message["to"], "CustomID": token, "time": 5, "error": "user unknown",
           "hard_bounce": True, "comment": "550 x"}  # fmt: skip
    again = {"type": "email.bounced", "created_at": "x", "data": {
        "to": [message["to"]], "tags": {"campanero": token}, "headers": [{"name": "Message-ID", "value": token}],
        "message_id": token, "bounce": {"type": "Transient", "subType": "General", "message": "x"},
    }}  # fmt: skip
    returned = {"original_message": {"direction": "outgoing", "message_id": token, "to": message["to"]}, "output": "x"}
    ses = {"notificationType": "Bounce", "mail": world.mail(message), "bounce": {
        "bounceType": "Transient", "bounceSubType": "General", "bouncedRecipients": [{"emailAddress": "x"}],
    }}  # fmt: skip
    posts = [
        *(
            email_providers.custom_relay(SECRETS["email"], body, now)
            for body in _variants(own)
            if isinstance(body, dict)
        ),
        *(email_providers.mailgun(SECRETS["mailgun"], body, now) for body in _variants(gun) if isinstance(body, dict)),
        *(email_providers.with_password("postmark", SECRETS["postmark"], body) for body in _variants(mark)),
        *(email_providers.with_password("brevo", SECRETS["brevo"], body) for body in _variants(brevo)),
        *(email_providers.with_password("mailjet", SECRETS["mailjet"], body) for body in _variants([jet])),
        *(email_providers.resend(SECRETS["resend"], body, now) for body in _variants(again) if isinstance(body, dict)),
        *(world.postal_server.post("MessageBounced", body, now) for body in _variants(returned)),
        *(
            world.postal_server.post("MessageSent", {}, now, **{name: value})
            for name in ("timestamp", "uuid", "event")
            for value in WEIRD
        ),
        *(world.grid.post([{**grid, **body}], now) for body in _variants(grid) if isinstance(body, dict)),
        *(world.sns.notification(body, now) for body in _variants(ses)),
    ]
    assert len(posts) > 300
    statuses = {(post.path, world.post(post).status) for post in thin_out(posts, 3)}
    statuses.discard(("/hooks/mailgun", 403))  # its signature is in the body, which cannot be parsed
    statuses.discard(("/hooks/postal", 403))  # its time is in the body, and wrong
    assert {status for _, status in statuses} <= {200, 422}, statuses


def test_sns_signature_versions(world: World) -> None:
    """Signatures of version 1 (SHA-1) and 2 (SHA-256) are accepted, and the certificate is cached."""
    for version, extra in (("1", {}), ("2", {}), ("2", {"Subject": "Amazon SES notification"})):
        message = world.sent()
        body = {
            "notificationType": "Delivery",
            "mail": world.mail(message),
            "delivery": {"recipients": [message["to"]]},
        }
        post = world.sns.notification(body, world.clock.now(), version=version, **extra)
        assert world.post(post).status == 200
        assert world.state(message)[0] == "delivered"
    assert world.sns.requested_paths.count(world.sns.certificate_path) <= 1


def test_sns_subscriptions_are_confirmed(world: World) -> None:
    """A subscription of the configured topic is confirmed by one GET; if that fails, the response is a 503."""
    before = len(world.sns.requested_paths)
    assert world.post(world.sns.confirmation(world.clock.now(), version="2")).status == 200
    assert [path for path in world.sns.requested_paths[before:] if path != world.sns.certificate_path] == [
        f"/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=abc"
    ]
    assert (
        world.post(world.sns.message("UnsubscribeConfirmation", world.clock.now(), SubscribeURL="x", Token="t")).status
        == 200
    )
    world.sns.status = 500
    assert world.post(world.sns.confirmation(world.clock.now())).status == 503
    world.sns.status = 200


@pytest.mark.parametrize(
    "url",
    [
        "http://{host}/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://{host}.evil.example/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://evil.example/{host}?Action=ConfirmSubscription&TopicArn={topic}",
        "https://{host}@127.0.0.1/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://{host}:8443/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://127.0.0.1/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://s3.amazonaws.com/?Action=ConfirmSubscription&TopicArn={topic}",
        "https://{host}/?Action=DeleteTopic&TopicArn={topic}",
        "https://{host}/?Action=ConfirmSubscription&TopicArn={topic}x",
        "https://{host}/?Action=ConfirmSubscription&Action=Publish&TopicArn={topic}",
        "file:///etc/passwd", "",
    ],
)  # fmt: skip
def test_no_other_url_is_requested(url: str, world: World) -> None:
    """Even a signed confirmation is followed only to the topic's region and for this topic (T28)."""
    before = len(world.sns.requested_paths)
    post = world.sns.confirmation(world.clock.now(), url=url.format(host=HOST, topic=TOPIC) or "x")
    assert world.post(post).status == 403
    assert set(world.sns.requested_paths[before:]) <= {world.sns.certificate_path}


@pytest.mark.parametrize(
    "url",
    [
        "http://{host}/SimpleNotificationService-a.pem", "https://evil.example/SimpleNotificationService-a.pem",
        "https://{host}.evil.example/SimpleNotificationService-a.pem", "https://{host}/evil.pem",
        "https://{host}/x/SimpleNotificationService-a.pem", "https://{host}/SimpleNotificationService-a.pem?x=1",
        "https://{host}/SimpleNotificationService-a.pem#x", "https://{host}:8443/SimpleNotificationService-a.pem",
        "https://a@{host}/SimpleNotificationService-a.pem", "https://127.0.0.1/SimpleNotificationService-a.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-a.pem",
        "https://{host}/../SimpleNotificationService-a.pem", "https://[::1/SimpleNotificationService-a.pem",
    ],
)  # fmt: skip
def test_no_other_certificate_is_fetched(url: str, world: World) -> None:
    """A certificate is requested only from the topic's region, over HTTPS, under the name that SNS uses."""
    before = len(world.sns.requested_paths)
    assert world.post(world.sns.notification({}, world.clock.now(), SigningCertURL=url.format(host=HOST))).status == 403
    assert world.sns.requested_paths[before:] == []


def test_invalid_certificates(world: World) -> None:
    """An invalid certificate is a 403; one that cannot be loaded is a 503."""
    now = world.clock.now()
    url = f"https://{HOST}/SimpleNotificationService-{{}}.pem"
    world.sns.files["/SimpleNotificationService-bad.pem"] = b"-----BEGIN CERTIFICATE-----\nnonsense\n"
    world.sns.files["/SimpleNotificationService-huge.pem"] = b"x" * 100_000
    other = Sns()
    world.sns.files["/SimpleNotificationService-other.pem"] = other.files[other.certificate_path]
    for name, status in (("bad", 403), ("other", 403), ("missing", 503), ("huge", 503)):
        assert world.post(world.sns.notification({}, now, SigningCertURL=url.format(name))).status == status
    assert world.post(world.sns.notification({}, now, key=other.key)).status == 403


def test_made_up_certificates_delay_nobody(world: World) -> None:
    """Each is asked for once a minute however often it is named, and a known one is served meanwhile."""
    now = world.clock.now()
    assert world.post(world.sns.message("Notification", now, Message="plain words")).status == 200
    url = f"https://{HOST}/SimpleNotificationService-{{}}.pem"
    posts = [world.sns.notification({}, now, SigningCertURL=url.format(f"made{n % 4}")) for n in range(40)]
    before = len(world.sns.requested_paths)
    with ThreadPoolExecutor(20) as crowd:
        assert set(crowd.map(lambda post: world.post(post).status, posts)) == {503}
    asked = world.sns.requested_paths[before:]
    assert 1 <= len(asked) == len(set(asked)) <= 4, asked
    assert world.post(world.sns.message("Notification", now, Message="plain words")).status == 200


def test_sns_messages_of_another_topic_are_rejected(world: World) -> None:
    """A message signed by SNS for another topic is a 403."""
    for topic in (TOPIC + "2", TOPIC.replace("123456789012", "210987654321"), "", None):
        assert world.post(world.sns.notification({}, world.clock.now(), TopicArn=topic)).status == 403
    assert world.post(world.sns.message("Notification", world.clock.now(), Message="plain words")).status == 200


def test_provider_headers_of_sent_mail(world: World) -> None:
    """Mail has the headers that the configured providers return in their reports."""
    message = world.sent()
    [mail] = world.smtp.to(message["to"])
    token = message["internet_message_id"].partition("@")[0]
    assert mail.header("X-PM-Metadata-campanero") == token
    assert mail.header("X-Mailin-custom") == mail.header("X-MJ-CustomID") == token
    assert json.loads(mail.header("X-SMTPAPI") or "") == {"unique_args": {"campanero": token}}
