"""All exceptions that a user or a sender can cause; only API, pages and commands turn them into responses.

Refused                    a request that was rejected, with the reason
├── NotFound               the account has no object with this id
├── Invalid                fields are wrong (422, all of them at once), or a rule forbids the action (`reason`)
├── NotAllowed             the scope or role does not allow the action
├── Conflict               the state has changed since, or the idempotency key was used for another payload
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
├── Postponed              held back by this service; names the seconds until the next attempt
│   └── RateLimited        ... because the other side asked for a lower rate
└── Uncertain              the connection broke after the final dot, so acceptance is unknown
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")


class Refused(Exception):
    """Base of all errors that API, pages and commands turn into a response."""

    code = "refused"

    def __init__(self, message: str = "", **extra: Any) -> None:
        super().__init__(message or self.code)
        self.message = message
        self.extra = extra


class NotFound(Refused):
    """This account has no object with that id."""

    code = "not_found"


class Invalid(Refused):
    """One or more fields are wrong; `fields` maps each path to its messages (docs/decisions.md#3)."""

    code = "validation_error"

    def __init__(
        self, fields: dict[str, list[str]], reason: str | None = None, message: str = "", **extra: Any
    ) -> None:
        super().__init__(message or summarize(fields), **extra)
        self.fields = fields
        self.reason = reason


class NotAllowed(Refused):
    """The credential is valid but does not allow this."""

    code = "forbidden"


class Conflict(Refused):
    """The state changed meanwhile, or an idempotency key was used for another payload."""

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
    """Nothing was written; the same request may be repeated later."""

    code = "storage_unavailable"

    def __init__(self, message: str, code: str = "storage_unavailable", retry_after: int = 5) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class DeliveryError(Exception):
    """An attempt that did not end in acceptance; `smtp` is the basic code, `enhanced` the RFC 3463 code.

    `cause` and `help` say why the connection failed and what to do about it, where that is known
    (`appliance.sending.delivery.connection_errors`).
    """

    kind = "deliveryerror"  # stored with the message, and returned by the API as the code of its last error

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

    kind = "unwelcome"


class LookupUnsupported(DeliveryError):
    """The provider keeps no list of accepted messages, so an uncertain one cannot be looked up."""

    kind = "unlisted"


class ClientRejected(DeliveryError):
    """The next hop rejects this client (login, TLS, policy), not the recipient."""

    kind = "ours"


class SenderRejected(ClientRejected):
    """The next hop rejects the sender address of this message."""

    kind = "senderrefused"


class MailUnauthenticated(ClientRejected):
    """The recipient's server could not authenticate this message; counts as an attempt, as others may accept it."""

    kind = "unauthenticated"


class ConnectionFailed(DeliveryError):
    """No connection, or one that broke before the final dot."""

    kind = "unreachable"


class Postponed(DeliveryError):
    """A message that was held back; it may be tried again in `seconds`, which does not count as an attempt."""

    kind = "later"

    def __init__(self, text: str, seconds: float, smtp: int | None = None, enhanced: str | None = None) -> None:
        super().__init__(text, smtp, enhanced)
        self.seconds = seconds


class RateLimited(Postponed):
    """The other side asked for a lower rate."""

    kind = "throttled"


class Uncertain(DeliveryError):
    """The connection died between the final dot and the reply (RFC 1047)."""

    kind = "uncertain"


def summarize(fields: dict[str, list[str]]) -> str:
    """Return all faults as one readable text."""
    parts = [f"{name} {messages[0]}" if name != "base" else messages[0] for name, messages in fields.items()]
    return "; ".join(parts)


class ConfigError(Exception):
    """The configuration cannot be used; the text names each faulty setting."""


class Faults:
    """Collects the faults of a request, so that all are reported at once."""

    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}

    def add(self, path: str, message: str) -> None:
        """Add a fault at a path, once."""
        messages = self.fields.setdefault(path, [])
        if message not in messages:
            messages.append(message)

    def merge(self, fields: dict[str, list[str]]) -> None:
        """Add the faults of a part of the request."""
        for path, messages in fields.items():
            for message in messages:
                self.add(path, message)

    def collect(self, reader: Callable[..., T], *args: Any) -> T | None:
        """Return the result of a function, or None after adding the faults of the Invalid that it raised."""
        try:
            return reader(*args)
        except Invalid as refused:
            self.merge(refused.fields)
            return None

    def check(self) -> None:
        """Raise Invalid if there are faults."""
        if self.fields:
            raise Invalid(self.fields)


class Transition(NamedTuple):
    """An action that changes a status: its participle for messages, the target status, and the source statuses."""

    participle: str
    target: str
    sources: tuple[str, ...]


class CurrentState(NamedTuple):
    """The status of an object, and the statuses and actions that it allows; `state` is a finer word for the status."""

    status: str
    allowed_statuses: list[str]
    allowed_actions: list[str]
    state: str = ""


def possible_actions(actions: Mapping[str, Transition], status: str) -> list[str]:
    """Return the names of the actions that are possible in a status."""
    return [name for name, transition in actions.items() if status in transition.sources]


def refuse_transition(
    noun: str, current: CurrentState, name: str, transition: Transition, instead: str = ""
) -> Invalid:
    """Return the error of an impossible action (docs/decisions.md#3); `instead` is a sentence that says what to do."""
    word = current.state or current.status
    article = "An" if word[0] in "aeiou" else "A"
    more = {
        "from": current.status, "to": transition.target, "allowed": current.allowed_statuses, "action": name,
        "allowed_actions": current.allowed_actions,
    }  # fmt: skip
    return Invalid(
        {"status": [f"must be {' or '.join(transition.sources)}"]}, reason="invalid_transition",
        message=f"{article} {word} {noun} cannot be {transition.participle}. {instead}".strip(), **cast(Any, more),
    )  # fmt: skip
