"""What the numbers mean by which Twilio, and whoever speaks its interface, says why an SMS did not go or not arrive.

They come in two ways: as the answer to a request, and in a receipt hours later. A generic provider may use them too, or
name the class itself ("hard", "unreachable", "opted_out").
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from appliance.core.errors import DeliveryError, Ours, Permanent, SenderRefused, Throttled, Uncertain
from appliance.sending.delivery import classes
from appliance.sending.delivery.classes import Class

_LEADING = re.compile(r"\s*\[?([A-Za-z_]{3,20}|\d{1,6})\b")
# What is a class of phones too
_NAMED = (
    classes.HARD, classes.UNREACHABLE, classes.LEFT, classes.FILTERED, classes.UNREGISTERED, classes.COUNTRY,
    classes.CONTENT, classes.SIZE, classes.EXPIRED, classes.SETUP, classes.REFUSED,
)  # fmt: skip


class Meaning(NamedTuple):
    """A code: what it is as an answer to a request, what it says about the message, and what helps.

    `enhanced` is the code of RFC 3463 that says the same, where there is one.
    """

    error: type[DeliveryError]
    kind: Class
    help: str = ""
    enhanced: str | None = None


def _no_phone(help: str = "") -> Meaning:
    return Meaning(Permanent, classes.HARD, help or classes.HARD.help, "5.1.1")


def _us(help: str) -> Meaning:
    return Meaning(Ours, classes.SETUP, help)


def _sender(help: str) -> Meaning:
    return Meaning(SenderRefused, classes.SETUP, help)


def _unregistered(help: str = "") -> Meaning:
    # A fault of the sender in one country, which says nothing about others
    return Meaning(SenderRefused, classes.UNREGISTERED, help or classes.UNREGISTERED.help, "5.7.1")


def _refused(help: str = "", kind: Class = classes.REFUSED) -> Meaning:
    return Meaning(Permanent, kind, help or kind.help)


_LOGIN = (
    "The provider rejected the login: check account and token in the settings for sending "
    "(sms.twilio.account_sid, sms.twilio.auth_token)."
)
_SENDER = "Choose a sender that belongs to the account at the provider and can send SMS there."
_SLOWER = "Send more slowly: limit SMS a second, or those of this sender (sms.rate_per_second, sms.sender_limits)."
_BUSY = Meaning(Throttled, classes.REFUSED, _SLOWER)

MEANINGS: dict[int, Meaning] = {
    # Who we are
    **dict.fromkeys((20003, 20005, 20006, 20008, 20403, 20404), _us(_LOGIN)),
    30002: _us("The account at the provider is suspended; ask its support."),
    21609: _us(
        "The provider cannot call us: set the address at which this service is reached from outside (base_url)."
    ),
    # From whom
    **dict.fromkeys((21212, 21603, 21606, 21607, 21616, 21659, 21660, 21661), _sender(_SENDER)),
    **dict.fromkeys((21701, 21702, 21703, 21704, 21705), _sender("Look at the messaging service: it has no sender.")),
    # How fast
    **dict.fromkeys((14107, 20429, 21611), _BUSY),
    **dict.fromkeys((30001, 30022, 30023, 30027), _refused(_SLOWER)),
    # To whom
    **dict.fromkeys((21201, 21211, 21214, 21217, 21604), _no_phone()),
    **dict.fromkeys((21614, 21635, 30005, 30006, 30011), _no_phone()),
    21608: _refused("A trial account writes to verified numbers only; upgrade it at the provider.", classes.SETUP),
    30003: Meaning(Permanent, classes.UNREACHABLE, classes.UNREACHABLE.help, "5.2.1"),
    21610: Meaning(Permanent, classes.LEFT, classes.LEFT.help),
    # Where to
    **dict.fromkeys((21408, 21612), Meaning(Permanent, classes.COUNTRY, classes.COUNTRY.help)),
    # What it says
    **dict.fromkeys((21602, 21618, 21619), _refused(kind=classes.CONTENT)),
    **dict.fromkeys((21605, 21617, 30019, 30044), _refused("Make the text shorter.", classes.SIZE)),
    **dict.fromkeys((30004, 30007, 30038, 30450), Meaning(Permanent, classes.FILTERED, classes.FILTERED.help, "5.7.1")),
    # Who may send there
    **dict.fromkeys((30018, 30024, 30032, 30033, 30034, 30035, 30040), _unregistered()),
    # What happened on the way
    **dict.fromkeys((30008, 30009, 30017, 30500), _refused("The network did not say why; it may go another time.")),
    30010: _refused("The message costs more than the account's limit allows.", classes.SETUP),
    30036: Meaning(Permanent, classes.EXPIRED, classes.EXPIRED.help, "5.4.7"),
    30039: _refused("Two systems answer each other; stop one of them.", classes.SETUP),
}
_BY_NAME = {one.name: _refused(kind=one) for one in _NAMED} | {
    "hard": _no_phone(), "unreachable": MEANINGS[30003], "opted_out": MEANINGS[21610], "filtered": MEANINGS[30007],
    "unregistered": MEANINGS[30034], "country": MEANINGS[21408],
}  # fmt: skip
_UNKNOWN = _refused()


def meaning(text: str | int | None) -> Meaning:
    """Return what a code means, or words that begin with one; one that is not known refuses without a reason."""
    found = _LEADING.match(str(text or ""))
    if found is None:
        return _UNKNOWN
    known = MEANINGS.get(int(found[1])) if found[1].isdecimal() else _BY_NAME.get(found[1].lower())
    return known or _UNKNOWN


def kind(text: str | int | None) -> Class:
    """Return what a code, or words that begin with one, say about a message."""
    return meaning(text).kind


def words(code: str | int | None, said: str) -> str:
    """Return a code and what was said with it; and what helps, where it is not about whoever gets the message."""
    found = meaning(code)
    told = " ".join(filter(None, (str(code or ""), said or found.kind.words)))
    return f"{told} - {found.help}" if found.help and found.kind.against == "nobody" else told


def judged(error: DeliveryError) -> Class:
    """Return what it means that an SMS was given up or refused for good."""
    found = kind(error.text)
    if isinstance(error, Permanent) or found is not classes.REFUSED:
        return found
    # It is nobody's phone but the way there: it broke, it is throttled, it refuses us
    return classes.SETUP


def refusal(status: int, code: str | int | None, said: str, retry_after: float) -> DeliveryError:
    """Make the error of an answer that does not accept: by its code, else by its status of HTTP."""
    found = meaning(code)
    text = words(code, said) if code else f"{said} (HTTP {status})".strip()
    if status == 429 or (found.error is Throttled and status < 500):
        return Throttled(text, retry_after, status)
    if status >= 500:
        return Uncertain(text, status)
    if found is _UNKNOWN and (status < 400 or status in (401, 403, 407)):
        return Ours(text, status)
    return found.error(text, status, found.enhanced)


# What providers tell us later: what became of an SMS, and what people write.

# In the order they can follow each other: what is told never goes back (an answer `sent` says no more than accepted)
STATUSES = ("sent", "delivered", "undelivered", "failed")


class Received(NamedTuple):
    """A request to a hook of a provider.

    `url` is the address as it was asked for under our `base_url`, with its query; header names are in lower case.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes


class Receipt(NamedTuple):
    """What became of an SMS: by what the provider calls it, or by our own name for it (`message_id`)."""

    provider_id: str
    status: str  # one of STATUSES
    message_id: int | None = None
    code: str | None = None  # the provider's own
    text: str = ""


class Incoming(NamedTuple):
    """What somebody wrote to one of our numbers.

    `answered` names the keyword that the provider has acted on and answered itself (STOP, START, HELP), if it has.
    """

    provider_id: str | None
    sender: str
    to: str
    body: str
    answered: str | None = None


class Told(NamedTuple):
    """What a request says, once its signature is believed; `reply` is what the provider wants to read as our answer."""

    receipts: tuple[Receipt, ...] = ()
    incoming: tuple[Incoming, ...] = ()
    media: str = "application/json"
    reply: bytes = b'{"received":1}'
