"""The faults of the SMS provider for tests."""

import fnmatch
from dataclasses import asdict, dataclass
from typing import Any

# The HTTP statuses of Twilio's errors, as far as they are not 400
STATUS = {20003: 401, 20404: 404, 20429: 429, 20500: 500, 20503: 503, 21610: 400}


@dataclass
class Rule:
    """A fault for requests that match, at most `times` times (None: always); the first match applies."""

    to: str = "*"
    sender: str = "*"
    times: int | None = None
    look_ups: bool = False  # matches look-ups instead of sends
    accept: bool = False  # accept the message before the rest
    status: int | None = None  # HTTP status of the response
    code: int | None = None  # error code in the body
    text: str = ""
    headers: dict[str, str] | None = None
    delay: float = 0  # seconds; after the message is accepted, if it is
    reset: bool = False  # reset the connection instead of responding
    cut: bool = False  # reset the connection in the middle of the response
    gate: str = ""  # respond after this gate is released
    hidden: float = 0  # seconds until look-ups return the accepted message
    first_status: str = ""  # message status in the response
    raw: str = ""  # body of the response
    used: int = 0

    def matches(self, look_up: bool, to: str, sender: str) -> bool:
        """Return whether the rule matches a request and is not used up."""
        return (
            look_up == self.look_ups
            and (self.times is None or self.used < self.times)
            and fnmatch.fnmatchcase(to, self.to)
            and fnmatch.fnmatchcase(sender, self.sender)
        )


class RuleMethods:
    """Methods that add rules; a subclass applies them in `_set`."""

    def _set(self, rule: dict[str, Any]) -> None:
        raise NotImplementedError

    def _rule(self, rule: Rule) -> None:
        self._set(asdict(rule))

    def reject(self, code: int, to: str = "*", *, times: int | None = None, status: int = 0, text: str = "") -> None:
        """Respond with an error of Twilio (for the provider `http`: with its status)."""
        self._rule(Rule(to, times=times, status=status or STATUS.get(code, 400), code=code, text=text or f"E{code}"))

    def respond(self, status: int, to: str = "*", *, times: int | None = None, raw: str = "", **headers: str) -> None:
        """Respond with a status, a body and headers (`Location="..."`), without accepting the message."""
        self._rule(Rule(to, times=times, status=status, raw=raw, headers=headers))

    def throttle(
        self, retry_after: int | str | None = 1, to: str = "*", *, sender: str = "*", times: int | None = None
    ) -> None:
        """Respond with 429 and Retry-After (None: without the header)."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        self._rule(Rule(to, sender, times, status=429, code=20429, text="Too Many Requests", headers=headers))

    def fail(self, status: int = 500, to: str = "*", *, times: int | None = None) -> None:
        """Respond with a 5xx status without accepting the message."""
        self._rule(Rule(to, times=times, status=status, code=20500, text="Internal Server Error"))

    def accept_then_fail(self, status: int = 500, to: str = "*", *, times: int | None = None) -> None:
        """Accept the message and respond with a 5xx status."""
        self._rule(Rule(to, times=times, accept=True, status=status, code=20500, text="Internal Server Error"))

    def accept_then_reset(self, to: str = "*", *, times: int | None = None) -> None:
        """Accept the message and reset the connection without a response."""
        self._rule(Rule(to, times=times, accept=True, reset=True))

    def accept_then_cut(self, to: str = "*", *, times: int | None = None) -> None:
        """Accept the message, respond with 201, and cut the connection in the middle of the response."""
        self._rule(Rule(to, times=times, accept=True, cut=True))

    def reset(self, to: str = "*", *, times: int | None = None) -> None:
        """Reset the connection without accepting the message."""
        self._rule(Rule(to, times=times, reset=True))

    def delay(self, seconds: float, to: str = "*", *, times: int | None = None, accept: bool = True) -> None:
        """Respond after a delay; the message is accepted at once or after the delay."""
        self._rule(Rule(to, times=times, delay=seconds, accept=accept))

    def hold(self, gate: str, to: str = "*", *, times: int | None = None, accept: bool = True) -> None:
        """Respond after `release(gate)`; the message is accepted at once or then."""
        self._rule(Rule(to, times=times, gate=gate, accept=accept))

    def accept_with_status(
        self, status: str, to: str = "*", *, times: int | None = None, code: int | None = None
    ) -> None:
        """Accept the message and respond with this first status, such as `sent` or `failed`."""
        self._rule(Rule(to, times=times, accept=True, first_status=status, code=code))

    def hide(self, seconds: float, to: str = "*", *, times: int | None = None) -> None:
        """Accept the message and reset the connection; look-ups find it only after so many seconds."""
        self._rule(Rule(to, times=times, accept=True, reset=True, hidden=seconds))

    def fail_look_ups(self, status: int = 503, *, times: int | None = None) -> None:
        """Respond to look-ups with an error."""
        self._rule(Rule(times=times, look_ups=True, status=status, code=20503, text="Service Unavailable"))
