"""The error codes of Twilio and compatible providers, and the contents of their webhooks.

Codes are in the response to a request, or in a receipt that may arrive hours later. A generic HTTP provider may use
these codes too, or the name of a bounce class ("hard", "unreachable", "opted_out").
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from appliance.core.errors import (
    ClientRejected,
    DeliveryError,
    RateLimited,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.core.i18n import gettext_noop
from appliance.sending.delivery import bounce_classes
from appliance.sending.delivery.bounce_classes import BounceClass

_LEADING = re.compile(r"\s*\[?([A-Za-z_]{3,20}|\d{1,6})\b")
# The bounce classes that apply to SMS.
_PHONE_CLASSES = (
    bounce_classes.HARD,
    bounce_classes.UNREACHABLE,
    bounce_classes.OPTED_OUT,
    bounce_classes.FILTERED,
    bounce_classes.UNREGISTERED,
    bounce_classes.COUNTRY,
    bounce_classes.CONTENT,
    bounce_classes.SIZE,
    bounce_classes.EXPIRED,
    bounce_classes.SETUP,
    bounce_classes.REFUSED,
)


class Meaning(NamedTuple):
    """The meaning of an error code.

    `error` is the type of the error for a response with this code, `kind` the bounce class, and `help` what the
    operator can do. `enhanced` is the status code of RFC 3463 with the same meaning, or None.
    """

    error: type[DeliveryError]
    kind: BounceClass
    help: str = ""
    enhanced: str | None = None


def _invalid_number(help: str = "") -> Meaning:
    return Meaning(RecipientRejected, bounce_classes.HARD, help or bounce_classes.HARD.help, "5.1.1")


def _account_error(help: str) -> Meaning:
    return Meaning(ClientRejected, bounce_classes.SETUP, help)


def _sender_error(help: str) -> Meaning:
    return Meaning(SenderRejected, bounce_classes.SETUP, help)


def _unregistered_sender(help: str = "") -> Meaning:
    # The sender is not registered in one country, so it may still be valid in others.
    return Meaning(SenderRejected, bounce_classes.UNREGISTERED, help or bounce_classes.UNREGISTERED.help, "5.7.1")


def _rejected(help: str = "", kind: BounceClass = bounce_classes.REFUSED) -> Meaning:
    return Meaning(RecipientRejected, kind, help or kind.help)


_LOGIN_HELP = gettext_noop(
    "The provider rejected the login: check account and token in the settings for sending "
    "(sms.twilio.account_sid, sms.twilio.auth_token)."
)
_SENDER_HELP = gettext_noop("Select a sender that belongs to your account at the provider and can send SMS there.")
_RATE_HELP = gettext_noop(
    "Send more slowly: limit SMS a second, or those of this sender (sms.rate_per_second, sms.sender_limits)."
)
_RATE_LIMITED = Meaning(RateLimited, bounce_classes.REFUSED, _RATE_HELP)

MEANING_OF_CODE: dict[int, Meaning] = {
    # Codes about the account and its login.
    **dict.fromkeys((20003, 20005, 20006, 20008, 20403, 20404), _account_error(_LOGIN_HELP)),
    30002: _account_error(gettext_noop("The account at the provider is suspended; ask its support.")),
    21609: _account_error(gettext_noop("The provider cannot reach this service: set its public address (base_url).")),
    # Codes about the sender.
    **dict.fromkeys((21212, 21603, 21606, 21607, 21616, 21659, 21660, 21661), _sender_error(_SENDER_HELP)),
    **dict.fromkeys(
        (21701, 21702, 21703, 21704, 21705),
        _sender_error(gettext_noop("Add a sender to the messaging service.")),
    ),
    # Codes about the sending rate.
    **dict.fromkeys((14107, 20429, 21611), _RATE_LIMITED),
    **dict.fromkeys((30001, 30022, 30023, 30027), _rejected(_RATE_HELP)),
    # Codes about the recipient.
    **dict.fromkeys((21201, 21211, 21214, 21217, 21604), _invalid_number()),
    **dict.fromkeys((21614, 21635, 30005, 30006, 30011), _invalid_number()),
    21608: _rejected(
        gettext_noop("A trial account can only send to verified numbers; upgrade it at the provider."),
        bounce_classes.SETUP,
    ),
    30003: Meaning(RecipientRejected, bounce_classes.UNREACHABLE, bounce_classes.UNREACHABLE.help, "5.2.1"),
    21610: Meaning(RecipientRejected, bounce_classes.OPTED_OUT, bounce_classes.OPTED_OUT.help),
    # Codes about the country.
    **dict.fromkeys((21408, 21612), Meaning(RecipientRejected, bounce_classes.COUNTRY, bounce_classes.COUNTRY.help)),
    # Codes about the content.
    **dict.fromkeys((21602, 21618, 21619), _rejected(kind=bounce_classes.CONTENT)),
    **dict.fromkeys(
        (21605, 21617, 30019, 30044), _rejected(gettext_noop("Make the text shorter."), bounce_classes.SIZE)
    ),
    **dict.fromkeys(
        (30004, 30007, 30038, 30450),
        Meaning(RecipientRejected, bounce_classes.FILTERED, bounce_classes.FILTERED.help, "5.7.1"),
    ),
    # Codes about the registration of the sender.
    **dict.fromkeys((30018, 30024, 30032, 30033, 30034, 30035, 30040), _unregistered_sender()),
    # Codes about the transmission.
    **dict.fromkeys(
        (30008, 30009, 30017, 30500),
        _rejected(gettext_noop("The network gave no reason; it may succeed another time.")),
    ),
    30010: _rejected(gettext_noop("The message costs more than the account's limit allows."), bounce_classes.SETUP),
    30036: Meaning(RecipientRejected, bounce_classes.EXPIRED, bounce_classes.EXPIRED.help, "5.4.7"),
    30039: _rejected(gettext_noop("Two systems reply to each other; stop one of them."), bounce_classes.SETUP),
}
_MEANING_OF_CLASS = {bounce_class.name: _rejected(kind=bounce_class) for bounce_class in _PHONE_CLASSES} | {
    "hard": _invalid_number(),
    "unreachable": MEANING_OF_CODE[30003],
    "opted_out": MEANING_OF_CODE[21610],
    "filtered": MEANING_OF_CODE[30007],
    "unregistered": MEANING_OF_CODE[30034],
    "country": MEANING_OF_CODE[21408],
}
_UNKNOWN = _rejected()


def find_meaning(text: str | int | None) -> Meaning:
    """Return the meaning of a code or class name, or of text that begins with one.

    An unknown code or name means a permanent rejection without a known reason (`bounce_classes.REFUSED`).
    """
    match = _LEADING.match(str(text or ""))
    if match is None:
        return _UNKNOWN
    meaning = MEANING_OF_CODE.get(int(match[1])) if match[1].isdecimal() else _MEANING_OF_CLASS.get(match[1].lower())
    return meaning or _UNKNOWN


def classify_code(text: str | int | None) -> BounceClass:
    """Return the bounce class of a code or class name, or of text that begins with one."""
    return find_meaning(text).kind


def describe_code(code: str | int | None, text: str) -> str:
    """Return a description of an error: its code and text, and what to do unless the recipient is the cause.

    If `text` is empty, the meaning of the bounce class is used.
    """
    meaning = find_meaning(code)
    description = " ".join(filter(None, (str(code or ""), text or meaning.kind.meaning)))
    return (
        f"{description} - {meaning.help}" if meaning.help and meaning.kind.suppression_rule == "never" else description
    )


def classify_failure(error: DeliveryError) -> BounceClass:
    """Return the bounce class of an SMS that failed: it was rejected permanently, or its retries expired."""
    kind = classify_code(error.text)
    if isinstance(error, RecipientRejected) or kind is not bounce_classes.REFUSED:
        return kind
    # The cause is not the phone but the provider: the connection broke, or the provider throttles or rejects us.
    return bounce_classes.SETUP


def build_response_error(status: int, code: str | int | None, text: str, retry_after: float) -> DeliveryError:
    """Return the error for a response that does not accept a message, by its code or else by its HTTP status.

    A status of 500 or more is always Uncertain. `retry_after` is in seconds and used for RateLimited.
    """
    meaning = find_meaning(code)
    description = describe_code(code, text) if code else f"{text} (HTTP {status})".strip()
    if status == 429 or (meaning.error is RateLimited and status < 500):
        return RateLimited(description, retry_after, status)
    if status >= 500:
        return Uncertain(description, status)
    if meaning is _UNKNOWN and (status < 400 or status in (401, 403, 407)):
        return ClientRejected(description, status)
    return meaning.error(description, status, meaning.enhanced)


# Webhooks of providers: receipts and incoming SMS.

# In the order in which they can follow each other, as a status never returns to an earlier one. `sent` only means that
# the provider accepted the SMS.
STATUSES = ("sent", "delivered", "undelivered", "failed")


class HookRequest(NamedTuple):
    """A webhook request from a provider.

    `url` is the requested URL under our `base_url`, with its query string. Header names are in lower case.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes


class Receipt(NamedTuple):
    """A delivery receipt of an SMS."""

    provider_id: str
    status: str  # one of `STATUSES`
    message_id: int | None = None  # of the ledger, or None if the request does not contain it
    code: str | None = None  # the provider's error code
    text: str = ""


class IncomingSms(NamedTuple):
    """An SMS to one of our numbers.

    `answered_keyword` is the keyword (STOP, START, HELP) to which the provider has replied by itself, or None.
    """

    provider_id: str | None
    sender: str
    to: str
    body: str
    answered_keyword: str | None = None


class HookContents(NamedTuple):
    """The contents of a webhook request with a valid signature, and the response that the provider expects.

    `media` is the content type of the response, `reply` its body.
    """

    receipts: tuple[Receipt, ...] = ()
    incoming: tuple[IncomingSms, ...] = ()
    media: str = "application/json"
    reply: bytes = b'{"received":1}'
