"""`/hooks/ses`: the notifications of Amazon SES through an SNS topic.

Sources: AWS, "Verifying the signatures of Amazon SNS messages", "Amazon SNS notification contents for Amazon SES" and
"Contents of event data that Amazon SES publishes to Amazon SNS".

The setting that enables the webhook is the ARN of the only accepted topic. The signing certificate and the URL that
confirms a subscription must be on the SNS host of that topic's region. SES replaces the Message-ID, but reports the
original one and the return path.
"""

import asyncio
import base64
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from appliance.core import clock
from appliance.core.errors import Invalid, Unavailable
from appliance.inbound.delivery_reports import DeliveryReport, ReportKind
from appliance.inbound.providers.base import (
    Fetch,
    HookPayload,
    HookRequest,
    Provider,
    decode_json,
    find_codes,
    invalid_signature,
    join_texts,
    parse_time,
    require_fresh,
)
from appliance.sending.messages import links
from appliance.settings import config

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey


log = logging.getLogger("campanero.hooks")

_TOPIC_ARN = re.compile(r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{1,40}):\d{12}:[A-Za-z0-9_-]{1,256}")
_CERTIFICATE_PATH = re.compile(r"/SimpleNotificationService-[0-9A-Za-z]{1,64}\.pem")
_VERSIONS = ("1", "2")
_NOTIFICATION_FIELDS = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION_FIELDS = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED_FIELDS = {
    "Notification": _NOTIFICATION_FIELDS,
    "SubscriptionConfirmation": _CONFIRMATION_FIELDS,
    "UnsubscribeConfirmation": _CONFIRMATION_FIELDS,
}
_MAX_KEYS = 8
# Feedback types that are not complaints (RFC 5965, section 7.3)
_IGNORED_COMPLAINTS = ("not-spam",)

_cached_keys: "dict[str, RSAPublicKey]" = {}
# Anyone can send a request that names a certificate that does not exist. So each certificate is downloaded once at a
# time, at most `_MAX_FETCHES` downloads run, and a failed one is not repeated for `_RETRY_SECONDS`. A cached key never
# waits.
_fetches: "dict[str, asyncio.Future[RSAPublicKey]]" = {}
_failed_until: dict[str, float] = {}
_MAX_FETCHES, _MAX_FAILURES, _RETRY_SECONDS = 8, 1_000, 60.0


class _Header(Struct, frozen=True):
    name: str = ""
    value: str = ""


class _Common(Struct, frozen=True, rename="camel"):
    message_id: str | None = None


class _Mail(Struct, frozen=True, rename="camel"):
    message_id: str = ""
    source: str = ""
    destination: list[str] = []
    headers: list[_Header] = []
    common_headers: _Common = _Common()


class _Recipient(Struct, frozen=True, rename="camel"):
    email_address: str | None = None
    status: str | None = None
    diagnostic_code: str | None = None


class _Bounce(Struct, frozen=True, rename="camel"):
    bounce_type: str = ""
    bounce_sub_type: str = ""
    bounced_recipients: list[_Recipient] = []
    timestamp: str = ""
    feedback_id: str = ""


class _Complaint(Struct, frozen=True, rename="camel"):
    complained_recipients: list[_Recipient] = []
    timestamp: str = ""
    feedback_id: str = ""
    complaint_feedback_type: str | None = None


class _Delivery(Struct, frozen=True, rename="camel"):
    recipients: list[str] = []
    timestamp: str = ""
    smtp_response: str | None = None


class _Reject(Struct, frozen=True):
    reason: str | None = None


class _Notification(Struct, frozen=True, rename="camel"):
    notification_type: str | None = None
    event_type: str | None = None
    mail: _Mail = _Mail()
    bounce: _Bounce = _Bounce()
    complaint: _Complaint = _Complaint()
    delivery: _Delivery = _Delivery()
    reject: _Reject = _Reject()


class _Topic(NamedTuple):
    """An SNS topic: its ARN (`topic`), and the SNS host of its region."""

    topic: str
    host: str


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    envelope = await _verified_fields(received.body, _parse_topic(secret), fetch)
    match envelope["Type"]:
        case "SubscriptionConfirmation":
            await fetch(_confirmation_url(envelope, _parse_topic(secret)))
            log.info("hooks: confirmed SNS subscription topic=%s", secret)
            return HookPayload()
        case "UnsubscribeConfirmation":
            log.warning("hooks: SNS subscription was ended, no more reports arrive topic=%s", secret)
            return HookPayload()
    try:
        notification = decode_json(envelope["Message"], _Notification)
    except Invalid:
        return HookPayload()  # SNS sends a plain text when a topic is set up.
    message_id = _message_id_of(notification.mail)
    return HookPayload(tuple(_to_reports(message_id, notification))) if message_id is not None else HookPayload()


def _parse_topic(secret: str) -> _Topic:
    match = _TOPIC_ARN.fullmatch(secret)
    if match is None:
        log.error("hooks: email.hooks.ses_topic is not the ARN of an SNS topic")
        raise invalid_signature()
    return _Topic(secret, f"sns.{match[2]}.amazonaws.com{'.cn' if match[1] == 'aws-cn' else ''}")


async def _verified_fields(body: bytes, topic: _Topic, fetch: Fetch) -> dict[str, str]:
    """Verify a message of SNS, and return only its signed fields.

    Raises NotAllowed if the message is malformed, too old, for another topic, or not signed by SNS.
    """
    try:
        envelope = decode_json(body, dict[str, Any])
        names = _SIGNED_FIELDS[envelope["Type"]]
        fields = {name: envelope[name] for name in names if name != "Subject" or envelope.get("Subject") is not None}
        signature, version = base64.b64decode(envelope["Signature"], validate=True), envelope["SignatureVersion"]
        signed = "".join(f"{name}\n{value}\n" for name, value in fields.items()).encode()
        sent_at, url = parse_time(fields["Timestamp"]), envelope["SigningCertURL"]
    except (Invalid, KeyError, TypeError, ValueError, AttributeError):
        raise invalid_signature() from None
    if (
        fields["TopicArn"] != topic.topic
        or sent_at is None
        or not all(isinstance(value, str) for value in fields.values())
    ):
        raise invalid_signature()
    if version not in _VERSIONS:
        raise invalid_signature()
    require_fresh(sent_at / 1000)
    _verify(await _fetch_key(url, topic, fetch), signature, signed, version)
    return fields


def _verify(key: "RSAPublicKey", signature: bytes, signed: bytes, version: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    try:
        key.verify(signature, signed, PKCS1v15(), {"1": SHA1, "2": SHA256}[version]())
    except InvalidSignature:
        raise invalid_signature() from None


async def _fetch_key(url: Any, topic: _Topic, fetch: Fetch) -> "RSAPublicKey":
    """Return the key of the signing certificate at a URL, from the cache if possible.

    Raises NotAllowed if the URL does not name a certificate in the topic's region, or the certificate is invalid.
    """
    if not isinstance(url, str) or not _is_topic_url(url, topic) or not _CERTIFICATE_PATH.fullmatch(urlsplit(url).path):
        raise invalid_signature()
    if urlsplit(url).query:
        raise invalid_signature()
    if url in _cached_keys:
        return _cached_keys[url]
    is_full = url not in _fetches and len(_fetches) >= _MAX_FETCHES
    if is_full or clock.monotonic() < _failed_until.get(url, 0):
        raise Unavailable("The signing certificate of the provider cannot be downloaded now.", "unavailable", 30)
    if url not in _fetches:
        _fetches[url] = asyncio.ensure_future(_download_key(url, fetch))
        _fetches[url].add_done_callback(lambda _: _fetches.pop(url))
    return await asyncio.shield(_fetches[url])


async def _download_key(url: str, fetch: Fetch) -> "RSAPublicKey":
    try:
        key = _public_key(await fetch(url))
    except Exception:
        if len(_failed_until) >= _MAX_FAILURES:
            _failed_until.clear()
        _failed_until[url] = clock.monotonic() + _RETRY_SECONDS
        raise
    if len(_cached_keys) >= _MAX_KEYS:
        _cached_keys.clear()
    _cached_keys[url] = key
    return key


def _is_topic_url(url: str, topic: _Topic) -> bool:
    """Return whether a URL is https, on the SNS host of the topic's region and the default port."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and parts.netloc == topic.host and not parts.fragment and url.isascii()


def _public_key(pem: bytes) -> "RSAPublicKey":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise invalid_signature() from None
    key, now = certificate.public_key(), clock.now()
    is_valid = certificate.not_valid_before_utc.timestamp() <= now <= certificate.not_valid_after_utc.timestamp()
    if not is_valid or not isinstance(key, RSAPublicKey):
        raise invalid_signature()
    return key


def _confirmation_url(envelope: dict[str, str], topic: _Topic) -> str:
    """Return the URL that confirms a subscription to our topic; raises NotAllowed for another URL, even if signed."""
    url = envelope["SubscribeURL"]
    query = parse_qs(urlsplit(url).query) if _is_topic_url(url, topic) else {}
    if query.get("Action") != ["ConfirmSubscription"] or query.get("TopicArn") != [topic.topic]:
        raise invalid_signature()
    return url


def _message_id_of(mail: _Mail) -> int | None:
    """Return the id of our message from its original Message-ID or its return path, or None."""
    message_ids = [header.value for header in mail.headers if header.name.lower() == "message-id"]
    for value in (*message_ids, mail.common_headers.message_id or ""):
        message_id = links.read_message_id(value)
        if message_id is not None:
            return message_id
    return links.read_return_path(mail.source.strip("<> ").partition("@")[0])


def _recipient_of(notification: _Notification, reported: str | None) -> str | None:
    """Return the recipient of the message if it has only one, else the reported address.

    The recipient may have forwarded the message, and the report names the final address then.
    """
    return notification.mail.destination[0] if len(notification.mail.destination) == 1 else reported


def _to_reports(message_id: int, notification: _Notification) -> list[DeliveryReport]:
    """Return the reports in a notification. Their keys contain no address, because keys are kept after an erasure."""
    match notification.notification_type or notification.event_type:
        case "Bounce":
            return [
                report
                for recipient in notification.bounce.bounced_recipients
                if (report := _to_bounce(message_id, notification, recipient))
            ]
        case "Complaint" if notification.complaint.complaint_feedback_type not in _IGNORED_COMPLAINTS:
            complaint = notification.complaint
            return [
                DeliveryReport(message_id, "complained", "ses", complaint.complaint_feedback_type or "", None, None,
                     _recipient_of(notification, recipient.email_address),
                     complaint.feedback_id or None, parse_time(complaint.timestamp))
                for recipient in complaint.complained_recipients
            ]  # fmt: skip
        case "Delivery":
            response = notification.delivery.smtp_response or ""
            return [
                DeliveryReport(message_id, "delivered", "ses", response, *find_codes(response), recipient,
                     f"delivered:{notification.mail.message_id}", parse_time(notification.delivery.timestamp))
                for recipient in notification.delivery.recipients
            ]  # fmt: skip
        case "Reject":
            return [
                DeliveryReport(
                    message_id,
                    "bounced",
                    "ses",
                    join_texts("rejected by Amazon SES", notification.reject.reason),
                    None,
                    "5.7.1",
                    _recipient_of(notification, None),
                    f"rejected:{notification.mail.message_id}",
                )
            ]
    return []


def _to_bounce(message_id: int, notification: _Notification, recipient: _Recipient) -> DeliveryReport | None:
    """Return the report about one recipient of a bounce, or None for an automatic reply.

    According to the documentation of SES, an automatic reply is a general transient bounce without a code.
    """
    bounce = notification.bounce
    is_transient = (bounce.bounce_type, bounce.bounce_sub_type) == ("Transient", "General")
    if is_transient and not recipient.status and not recipient.diagnostic_code:
        return None
    kind: ReportKind = "bounced" if bounce.bounce_type == "Permanent" else "soft_bounced"
    smtp, enhanced = find_codes(recipient.diagnostic_code)
    text = join_texts(recipient.diagnostic_code) or f"{bounce.bounce_type} {bounce.bounce_sub_type}"
    return DeliveryReport(
        message_id, kind, "ses", text, smtp,
        recipient.status or enhanced, _recipient_of(notification, recipient.email_address), bounce.feedback_id or None,
        parse_time(bounce.timestamp),
    )  # fmt: skip


PROVIDER = Provider("ses", lambda: config.current().email.hooks.ses_topic, _read)
