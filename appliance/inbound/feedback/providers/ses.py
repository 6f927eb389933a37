"""`/hooks/ses`: Amazon SES through an SNS topic (AWS, "Verifying the signatures of Amazon SNS messages", "Amazon SNS
notification contents for Amazon SES", "Contents of event data that Amazon SES publishes to Amazon SNS").

What opens the hook is the ARN of the one topic that is believed. The certificate that signed comes from that topic's
region and nowhere else, and a subscription is confirmed there only. SES replaces the Message-ID, but tells the one we
gave and the return path.
"""

import asyncio
import base64
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.inbound.feedback.providers.shared import (
    Fetch,
    Provider,
    Received,
    Told,
    codes,
    forged,
    moment,
    must_be_fresh,
    read,
    words,
)
from appliance.inbound.feedback.record import Fact, Kind
from appliance.sending.messages import links
from appliance.settings import config

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey


log = logging.getLogger("campanero.hooks")

_TOPIC = re.compile(r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{1,40}):\d{12}:[A-Za-z0-9_-]{1,256}")
_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9A-Za-z]{1,64}\.pem")
_VERSIONS = ("1", "2")
_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED = {
    "Notification": _NOTIFICATION,
    "SubscriptionConfirmation": _CONFIRMATION,
    "UnsubscribeConfirmation": _CONFIRMATION,
}
_MAX_KEYS = 8
# Complaints that are none, by their feedback type (RFC 5965, 7.3)
_NO_COMPLAINTS = ("not-spam",)

_keys: "dict[str, RSAPublicKey]" = {}
_fetching = asyncio.Lock()


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


class _Said(Struct, frozen=True, rename="camel"):
    notification_type: str | None = None
    event_type: str | None = None
    mail: _Mail = _Mail()
    bounce: _Bounce = _Bounce()
    complaint: _Complaint = _Complaint()
    delivery: _Delivery = _Delivery()
    reject: _Reject = _Reject()


class _Place(NamedTuple):
    """Where a topic lives."""

    topic: str
    host: str


async def _read(received: Received, secret: str, fetch: Fetch) -> Told:
    envelope = await _signed(received.body, _place(secret), fetch)
    match envelope["Type"]:
        case "SubscriptionConfirmation":
            await fetch(_confirmation(envelope, _place(secret)))
            log.info("confirmed the subscription of %s", secret)
            return Told()
        case "UnsubscribeConfirmation":
            log.warning("%s tells us nothing any more: its subscription was ended", secret)
            return Told()
    try:
        said = read(envelope["Message"], _Said)
    except Invalid:
        return Told()  # SNS itself says in plain words that a topic works
    number = _message_of(said.mail)
    return Told(tuple(_facts(number, said))) if number is not None else Told()


def _place(secret: str) -> _Place:
    found = _TOPIC.fullmatch(secret)
    if found is None:
        log.error("email.hooks.ses_topic is not the ARN of an SNS topic")
        raise forged()
    return _Place(secret, f"sns.{found[2]}.amazonaws.com{'.cn' if found[1] == 'aws-cn' else ''}")


async def _signed(body: bytes, place: _Place, fetch: Fetch) -> dict[str, str]:
    """Return the fields of a message that SNS has signed for our topic; what was not signed is not in it."""
    try:
        given = read(body, dict[str, Any])
        names = _SIGNED[given["Type"]]
        kept = {name: given[name] for name in names if name != "Subject" or given.get("Subject") is not None}
        signature, version = base64.b64decode(given["Signature"], validate=True), given["SignatureVersion"]
        signed = "".join(f"{name}\n{value}\n" for name, value in kept.items()).encode()
        sent, url = moment(kept["Timestamp"]), given["SigningCertURL"]
    except (Invalid, KeyError, TypeError, ValueError, AttributeError):
        raise forged() from None
    if kept["TopicArn"] != place.topic or sent is None or not all(isinstance(value, str) for value in kept.values()):
        raise forged()
    if version not in _VERSIONS:
        raise forged()
    must_be_fresh(sent / 1000)
    _verify(await _key(url, place, fetch), signature, signed, version)
    return kept


def _verify(key: "RSAPublicKey", signature: bytes, signed: bytes, version: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    try:
        key.verify(signature, signed, PKCS1v15(), {"1": SHA1, "2": SHA256}[version]())
    except InvalidSignature:
        raise forged() from None


async def _key(url: Any, place: _Place, fetch: Fetch) -> "RSAPublicKey":
    """Return the key of a certificate of the topic's own region, fetched once."""
    if not isinstance(url, str) or not _is_there(url, place) or not _CERTIFICATE.fullmatch(urlsplit(url).path):
        raise forged()
    if urlsplit(url).query:
        raise forged()
    async with _fetching:
        if url not in _keys:
            if len(_keys) >= _MAX_KEYS:
                _keys.clear()
            _keys[url] = _public_key(await fetch(url))
        return _keys[url]


def _is_there(url: str, place: _Place) -> bool:
    """Return whether an address is one of the topic's region, by https and on its usual port."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and parts.netloc == place.host and not parts.fragment and url.isascii()


def _public_key(pem: bytes) -> "RSAPublicKey":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise forged() from None
    key, now = certificate.public_key(), clock.now()
    valid = certificate.not_valid_before_utc.timestamp() <= now <= certificate.not_valid_after_utc.timestamp()
    if not valid or not isinstance(key, RSAPublicKey):
        raise forged()
    return key


def _confirmation(envelope: dict[str, str], place: _Place) -> str:
    """Return the address that confirms a subscription of our topic; the signature alone is no reason to go there."""
    url = envelope["SubscribeURL"]
    query = parse_qs(urlsplit(url).query) if _is_there(url, place) else {}
    if query.get("Action") != ["ConfirmSubscription"] or query.get("TopicArn") != [place.topic]:
        raise forged()
    return url


def _message_of(mail: _Mail) -> int | None:
    """Return whose mail it is: by the Message-ID we gave, or by our return path."""
    given = [header.value for header in mail.headers if header.name.lower() == "message-id"]
    for value in (*given, mail.common_headers.message_id or ""):
        number = links.message_of(value)
        if number is not None:
            return number
    return links.returned_to(mail.source.strip("<> ").partition("@")[0])


def _whose(said: _Said, reported: str | None) -> str | None:
    """Return whom a report is about: whom the mail was sent to, for one passed on names whom it reached last."""
    return said.mail.destination[0] if len(said.mail.destination) == 1 else reported


def _facts(number: int, said: _Said) -> list[Fact]:
    """Return what is said of our one recipient; a report's name holds no address, for it is kept longer than people."""
    match said.notification_type or said.event_type:
        case "Bounce":
            return [fact for one in said.bounce.bounced_recipients if (fact := _bounced(number, said, one))]
        case "Complaint" if said.complaint.complaint_feedback_type not in _NO_COMPLAINTS:
            told = said.complaint
            return [
                Fact(number, "complained", "ses", told.complaint_feedback_type or "", None, None,
                     _whose(said, one.email_address),
                     told.feedback_id or None, moment(told.timestamp))
                for one in told.complained_recipients
            ]  # fmt: skip
        case "Delivery":
            response = said.delivery.smtp_response or ""
            return [
                Fact(number, "delivered", "ses", response, *codes(response), one,
                     f"delivered:{said.mail.message_id}", moment(said.delivery.timestamp))
                for one in said.delivery.recipients
            ]  # fmt: skip
        case "Reject":
            return [Fact(number, "bounced", "ses", words("rejected by Amazon SES", said.reject.reason), None, "5.7.1",
                         _whose(said, None), f"rejected:{said.mail.message_id}")]  # fmt: skip
    return []


def _bounced(number: int, said: _Said, one: _Recipient) -> Fact | None:
    """Read a bounce; a passing one without any code is an answering machine, as the document of SES says itself."""
    bounce = said.bounce
    passing = (bounce.bounce_type, bounce.bounce_sub_type) == ("Transient", "General")
    if passing and not one.status and not one.diagnostic_code:
        return None
    kind: Kind = "bounced" if bounce.bounce_type == "Permanent" else "soft_bounced"
    smtp, enhanced = codes(one.diagnostic_code)
    return Fact(
        number, kind, "ses", words(one.diagnostic_code) or f"{bounce.bounce_type} {bounce.bounce_sub_type}", smtp,
        one.status or enhanced, _whose(said, one.email_address), bounce.feedback_id or None,
        moment(bounce.timestamp),
    )  # fmt: skip


PROVIDER = Provider("ses", lambda: config.current().email.hooks.ses_topic, _read)
