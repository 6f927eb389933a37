"""What can go wrong, as one tree; only the doors translate it.

Refused                 a request that will not be done, and says why
├── NotFound            no such thing in this account
├── Invalid             fields are wrong (422, all of them at once), or a rule says no (`reason`)
├── NotAllowed          the credential or role does not reach
├── Conflict            somebody else was first, or the key was used for something else
├── TooMany             over a rate
└── Unavailable         storage or process cannot take it now; nothing was done
DeliveryError           what a transport answered
├── Temporary           may be tried again later
├── Permanent           this recipient or message is refused for good
│   └── Unwelcome       ... because of its sender, by one server of many: blames no recipient
├── Ours                the other side refuses us (login, TLS, policy); blames no recipient
│   ├── SenderRefused   ... because of the sender address of this message
│   └── Unauthenticated ... because it cannot tell that this message is ours: SPF, DKIM, DMARC, reverse DNS, TLS
├── Unreachable         no connection, or it broke before the message was handed over
├── Later               not now, for a reason that is nobody's fault: when it may be tried again
│   └── Throttled       ... because the other side asked for less
└── Uncertain           the connection broke after the final dot: acceptance cannot be known
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Refused(Exception):
    """Base of every refusal that a door turns into an answer."""

    code = "refused"

    def __init__(self, message: str = "", **extra: Any) -> None:
        super().__init__(message or self.code)
        self.message = message
        self.extra = extra


class NotFound(Refused):
    """Nothing of that id in this account."""

    code = "not_found"


class Invalid(Refused):
    """One or more fields are wrong; `fields` maps each path to its messages (docs/decisions.md#3)."""

    code = "validation_error"

    def __init__(
        self, fields: dict[str, list[str]], reason: str | None = None, message: str = "", **extra: Any
    ) -> None:
        super().__init__(message or summary(fields), **extra)
        self.fields = fields
        self.reason = reason


class NotAllowed(Refused):
    """The credential is good but does not reach this."""

    code = "forbidden"


class Conflict(Refused):
    """The state moved on, or an idempotency key was used for another payload."""

    code = "conflict"

    def __init__(self, message: str, code: str = "conflict", **extra: Any) -> None:
        super().__init__(message, **extra)
        self.code = code


class TooMany(Refused):
    """Over a rate; `retry_after` says in how many seconds to come back."""

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
    """A transport's answer that is not acceptance; `smtp` is the basic code, `enhanced` the RFC 3463 code.

    `cause` and `help` say why there was no conversation and what to do about it, where that is known
    (`appliance.sending.delivery.causes`).
    """

    def __init__(self, text: str, smtp: int | None = None, enhanced: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.smtp = smtp
        self.enhanced = enhanced
        self.cause = self.help = ""


class Temporary(DeliveryError):
    """Refused for now."""


class Permanent(DeliveryError):
    """Refused for good."""


class Unwelcome(Permanent):
    """Refused for good by one server of many for the sake of its sender; whoever it is for was not asked about."""


class Unlisted(DeliveryError):
    """The next hop keeps no list of what it took, so it can never be asked for a message in doubt."""


class Ours(DeliveryError):
    """The next hop refuses us, not the recipient."""


class SenderRefused(Ours):
    """The next hop refuses the address that this message is from."""


class Unauthenticated(Ours):
    """The recipient's server cannot tell that this message is ours; an attempt, for it may be this server alone."""


class Unreachable(DeliveryError):
    """No conversation, or one that broke before the final dot."""


class Later(DeliveryError):
    """Kept back although it was its turn; it may be tried again in `seconds`, and that costs nobody an attempt."""

    def __init__(self, text: str, seconds: float, smtp: int | None = None, enhanced: str | None = None) -> None:
        super().__init__(text, smtp, enhanced)
        self.seconds = seconds


class Throttled(Later):
    """The other side takes no more at this rate."""


class Uncertain(DeliveryError):
    """The connection died between the final dot and the reply (RFC 1047)."""


def summary(fields: dict[str, list[str]]) -> str:
    """Make one readable sentence of a map of faults."""
    parts = [f"{name} {messages[0]}" if name != "base" else messages[0] for name, messages in fields.items()]
    return "; ".join(parts)


class ConfigError(Exception):
    """The configuration cannot be used; the text names each faulty setting."""


class Faults:
    """Collects faults so that a request learns all of them at once."""

    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}

    def add(self, path: str, message: str) -> None:
        """Note one fault at one path, once."""
        messages = self.fields.setdefault(path, [])
        if message not in messages:
            messages.append(message)

    def merge(self, fields: dict[str, list[str]]) -> None:
        """Take over the faults of a part."""
        for path, messages in fields.items():
            for message in messages:
                self.add(path, message)

    def of(self, reader: Callable[..., T], *args: Any) -> T | None:
        """Return what a reader answers, or None with all that it has found wrong noted."""
        try:
            return reader(*args)
        except Invalid as refused:
            self.merge(refused.fields)
            return None

    def check(self) -> None:
        """Raise Invalid if anything was noted."""
        if self.fields:
            raise Invalid(self.fields)
