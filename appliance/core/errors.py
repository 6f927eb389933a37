"""Exceptions for rejected requests and failed deliveries; only API, pages and commands turn them into responses.

Refused                    a request that was rejected, with the reason
├── NotFound               the account has no object with this id
├── Invalid                fields are invalid (422, reported all at once), or a rule forbids the action (`reason`)
├── NotAllowed             the scope or role does not allow the action
├── Conflict               the state changed after it was read, or the idempotency key was used for another payload
├── RateLimitExceeded      the request exceeds a rate limit
└── Unavailable            storage or process cannot accept the request now; nothing was written
DeliveryError              a failed attempt to send a message
├── Deferred               a temporary rejection
├── RecipientRejected      a permanent rejection of this recipient or message
│   └── SenderRejectedByMx ... by one MX because of the sender; the recipient was not checked
├── LookupUnsupported      the provider cannot be asked whether it accepted a message
├── ClientRejected         the next hop rejects this client (login, TLS, policy), not the recipient
│   ├── SenderRejected     ... because of the sender address of this message
│   └── MailUnauthenticated ... because SPF, DKIM, DMARC, reverse DNS or TLS do not prove the sender
├── ConnectionFailed       no connection, or one that broke before the final dot
├── Postponed              delayed by this service for a number of seconds; not counted as an attempt
│   └── RateLimited        ... because the receiving server or provider asked for a lower rate
└── Uncertain              the connection broke after the final dot, so acceptance is unknown

Unknown keys of requests are rejected if ignoring them would change what is sent, to whom, or when. A Struct lists such
keys in a class attribute, `REFUSED: ClassVar[RefusedKeys]`. A key that nearly matches a listed key or a field of the
Struct is rejected too. `core/validation.py` rejects them; the OpenAPI document names the listed ones. The errors of
rejected keys are in English like all texts of the API, because no page sends such a key.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar, cast

from appliance.core.i18n import format_list, gettext

T = TypeVar("T")


class Refused(Exception):
    """Base of all errors that API, pages and commands turn into a response."""

    code = "refused"

    def __init__(self, message: str = "", **extra: Any) -> None:
        super().__init__(message or self.code)
        self.message = message
        self.extra = extra


class NotFound(Refused):
    """The account has no object with this id."""

    code = "not_found"


class Invalid(Refused):
    """One or more fields are invalid, or a rule forbids the action (docs/decisions.md#3).

    `fields` maps the path of each field to its messages; `reason` is the code of the rule.
    """

    code = "validation_error"

    def __init__(
        self, fields: dict[str, list[str]], reason: str | None = None, message: str = "", **extra: Any
    ) -> None:
        super().__init__(message or summarize(fields), **extra)
        self.fields = fields
        self.reason = reason


class NotAllowed(Refused):
    """The credential is valid, but its scope or role does not allow the action."""

    code = "forbidden"


class Conflict(Refused):
    """The state changed after it was read, or an idempotency key was used for another payload."""

    code = "conflict"

    def __init__(self, message: str, code: str = "conflict", **extra: Any) -> None:
        super().__init__(message, **extra)
        self.code = code


class RateLimitExceeded(Refused):
    """A rate limit was exceeded; the request may be repeated after `retry_after` seconds."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after: int, **extra: Any) -> None:
        super().__init__(message, **extra)
        self.retry_after = retry_after


class Unavailable(Refused):
    """The request cannot be accepted now and wrote nothing; it may be repeated after `retry_after` seconds."""

    code = "storage_unavailable"

    def __init__(self, message: str, code: str = "storage_unavailable", retry_after: int = 5) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class DeliveryError(Exception):
    """An attempt to send a message that did not end in acceptance.

    `smtp` is the three-digit code of the reply, `enhanced` its enhanced status code (RFC 3463). `cause` and `help` say
    why the connection failed and what to do about it; both are empty where that is unknown
    (`appliance.sending.delivery.connection_errors`).
    """

    kind = "delivery_error"  # stored with the message, and returned by the API as the code of its last error

    def __init__(self, text: str, smtp: int | None = None, enhanced: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.smtp = smtp
        self.enhanced = enhanced
        self.cause = self.help = ""


class Deferred(DeliveryError):
    """A temporary rejection; the message may be tried again later."""

    kind = "temporary"


class RecipientRejected(DeliveryError):
    """A permanent rejection of this recipient or message."""

    kind = "permanent"


class SenderRejectedByMx(RecipientRejected):
    """A permanent rejection by one MX because of the sender; the recipient was not checked."""

    kind = "sender_rejected_by_mx"


class LookupUnsupported(DeliveryError):
    """The provider has no list of accepted messages, so an uncertain message cannot be looked up."""

    kind = "lookup_unsupported"


class ClientRejected(DeliveryError):
    """The next hop rejects this client (login, TLS, policy), not the recipient."""

    kind = "client_rejected"


class SenderRejected(ClientRejected):
    """The next hop rejects the sender address of this message."""

    kind = "sender_rejected"


class MailUnauthenticated(ClientRejected):
    """The recipient's server could not authenticate the sender of a message (SPF, DKIM, DMARC, reverse DNS, TLS).

    The error counts as an attempt of this message, because the servers of other recipients may accept mail of this
    sender.
    """

    kind = "unauthenticated"


class ConnectionFailed(DeliveryError):
    """A connection that could not be opened, or that broke before the final dot, so nothing was accepted."""

    kind = "unreachable"


class Postponed(DeliveryError):
    """A message that this service delays; it may be tried again in `seconds`, and no attempt is counted."""

    kind = "postponed"

    def __init__(self, text: str, seconds: float, smtp: int | None = None, enhanced: str | None = None) -> None:
        super().__init__(text, smtp, enhanced)
        self.seconds = seconds


class RateLimited(Postponed):
    """The receiving server or provider asked for a lower rate."""

    kind = "throttled"


class Uncertain(DeliveryError):
    """The connection broke between the final dot and the reply, so acceptance is unknown (RFC 1047)."""

    kind = "uncertain"


class OutcomeLost(Uncertain):
    """The outcome of an attempt is known but could not be recorded, so the message is not sent again by itself."""


def summarize(fields: dict[str, list[str]]) -> str:
    """Return the name and first message of each field as one text, separated by semicolons; `base` is not named."""
    parts = [f"{name} {messages[0]}" if name != "base" else messages[0] for name, messages in fields.items()]
    return "; ".join(parts)


class ConfigError(Exception):
    """The configuration cannot be used; the text names each invalid setting."""


# The longest list of a request has as many entries. A request with more errors is reported with the first ones.
MAX_FAULTY_FIELDS = 10_000


class Faults:
    """The errors of up to `MAX_FAULTY_FIELDS` fields of a request, collected so that all are reported at once."""

    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}

    def add(self, path: str, message: str) -> None:
        """Add an error to the field at a path, unless the field has the same error already, or too many have errors."""
        if len(self.fields) >= MAX_FAULTY_FIELDS and path not in self.fields:
            return
        messages = self.fields.setdefault(path, [])
        if message not in messages:
            messages.append(message)

    def merge(self, fields: dict[str, list[str]]) -> None:
        """Add the errors of a part of the request; `fields` maps complete paths to messages."""
        for path, messages in fields.items():
            for message in messages:
                self.add(path, message)

    def collect(self, reader: Callable[..., T], *args: Any) -> T | None:
        """Return the result of a function; if it raises Invalid, add the errors of that exception and return None."""
        try:
            return reader(*args)
        except Invalid as refused:
            self.merge(refused.fields)
            return None

    def check(self) -> None:
        """Raise Invalid with all collected errors, if there are any."""
        if self.fields:
            raise Invalid(self.fields)


class Transition(NamedTuple):
    """An action that changes a status from one of `sources` to `target`.

    `refusal` is the error for any other status, whose name replaces `%(status)s`; it is marked with `gettext_noop`.
    """

    refusal: str
    target: str
    sources: tuple[str, ...]


class CurrentState(NamedTuple):
    """The status of an object, and the next statuses and actions that it allows.

    `state` is a more exact word than the status, for error texts; if `state` is empty, error texts name the status.
    """

    status: str
    allowed_statuses: list[str]
    allowed_actions: list[str]
    state: str = ""


def possible_actions(actions: Mapping[str, Transition], status: str) -> list[str]:
    """Return the names of the actions that are allowed in a status, in the order of `actions`."""
    return [name for name, transition in actions.items() if status in transition.sources]


def refuse_transition(current: CurrentState, name: str, transition: Transition, instead: str = "") -> Invalid:
    """Return the error for an action that the status does not allow (docs/decisions.md#3).

    `name` is the action, `instead` a translated sentence that says what to do instead.
    """
    more = {
        "from": current.status, "to": transition.target, "allowed": current.allowed_statuses, "action": name,
        "allowed_actions": current.allowed_actions,
    }  # fmt: skip
    return Invalid(
        {"status": [gettext("must be %(statuses)s", statuses=format_list(transition.sources, "or"))]},
        reason="invalid_transition",
        message=f"{gettext(transition.refusal, status=current.state or current.status)} {instead}".strip(),
        **cast(Any, more),
    )  # fmt: skip


# These limits bound the work for a request body with very many or very long keys.
MAX_GUESSED_KEYS = 100
MAX_GUESSED_LENGTH = 64
MIN_SIMILARITY = 0.94
# Names that other products use for the time at which a campaign is sent.
SEND_TIMES = (
    "schedule", "schedule_at", "scheduled_for", "scheduled_time", "schedule_time", "send_time", "send_on", "deliver_at",
    "delivery_time", "start_at", "publish_at",
)  # fmt: skip


class RefusedKey(NamedTuple):
    """The field error of a rejected key; a key whose value is null or `neutral` is ignored instead."""

    message: str
    neutral: Any = None


RefusedKeys = Mapping[str, RefusedKey]


def use_instead(right: str, *wrong: str) -> dict[str, RefusedKey]:
    """Return the keys `wrong` with an error that names `right` as the key to use instead."""
    return dict.fromkeys(wrong, RefusedKey(f"is not a known field: use {right}"))


def use_within(path: str, *names: str) -> dict[str, RefusedKey]:
    """Return keys with an error that says to send them inside the object at `path`."""
    return {name: RefusedKey(f"is not a known field: use `{path}.{name}`") for name in names}


def content_keys(prefix: str = "") -> dict[str, RefusedKey]:
    """Return the keys that other products use for the parts of a message, with errors that name our keys.

    `prefix` is the path of our keys in the request, such as `message.`.
    """
    return {
        **use_instead(f"`{prefix}body`", "html", "html_body", "body_html", "content"),
        **use_instead(f"`{prefix}from_email`", "from", "from_address", "sender"),
        **use_instead(f"`{prefix}preheader`", "preview_text"),
        **unsupported(f"the text part is made of `{prefix}body`", "text", "plain_text", "text_body", "body_text"),
        **unsupported("a message has one recipient", "cc", "bcc"),
        **unsupported("put a link into the body", "attachments"),
    }


def unsupported(reason: str, *names: str, neutral: Any = None) -> dict[str, RefusedKey]:
    """Return keys that have no equivalent, with an error that gives `reason`, which may say what to do instead.

    A key with the value `neutral` is ignored.
    """
    return dict.fromkeys(names, RefusedKey(f"is not supported: {reason}", neutral))


def find_key_error(
    known_names: Iterable[str], refused: RefusedKeys, key: str, value: Any, guess: bool = True
) -> str | None:
    """Return the field error of an unknown key, or None if the key may be ignored.

    With `guess`, a key that is similar to a known or a rejected name is an error too; the comparison takes a fraction
    of a millisecond.
    """
    if value is None or not refused:
        return None
    listed = refused.get(key)
    if listed is not None:
        return None if value is listed.neutral else listed.message
    if not guess or len(key) > MAX_GUESSED_LENGTH:
        return None
    names = {_normalize_key(name): name for name in (*refused, *known_names)}
    match = get_close_matches(_normalize_key(key), names, 1, MIN_SIMILARITY)
    if not match:
        return None
    name = names[match[0]]
    if name in refused:
        return find_key_error((), refused, name, value)
    return f"is not a known field: use {name}"


def describe_refused_keys(refused: RefusedKeys) -> str:
    """Return rejected keys and their hints as text for the OpenAPI document, grouped by hint."""
    names: dict[str, list[str]] = {}
    for name, key in refused.items():
        names.setdefault(key.message.partition(": ")[2], []).append(f"`{name}`")
    return "; ".join(f"{', '.join(group)} ({hint})" for hint, group in names.items())


def _normalize_key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
