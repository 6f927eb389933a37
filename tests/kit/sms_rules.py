"""What the provider of SMS of the kit does wrong on request."""

import fnmatch
from dataclasses import asdict, dataclass
from typing import Any

# What is known of Twilio's errors: the status they come with, where it is not 400
STATUS = {20003: 401, 20404: 404, 20429: 429, 20500: 500, 20503: 503, 21610: 400}


@dataclass
class Rule:
    """One thing to do with requests that fit, at most `times` times (None: always); the first rule that fits acts."""

    to: str = "*"
    sender: str = "*"
    times: int | None = None
    look_ups: bool = False  # for what looks up instead of what sends
    accept: bool = False  # takes the message before it does what follows
    status: int | None = None  # answers with this
    code: int | None = None  # in the body of an error
    text: str = ""
    headers: dict[str, str] | None = None
    delay: float = 0  # first of all; where it accepts, after that
    reset: bool = False  # breaks the connection instead of answering
    cut: bool = False  # breaks it in the middle of the answer
    gate: str = ""  # waits until it is released
    hidden: float = 0  # what it took is found by look-ups only after so many seconds
    said: str = ""  # the status that the answer tells
    raw: str = ""  # the answer's body, whatever it may be
    used: int = 0

    def fits(self, look_up: bool, to: str, sender: str) -> bool:
        """Return whether it is for such a request, and not used up."""
        return (
            look_up == self.look_ups
            and (self.times is None or self.used < self.times)
            and fnmatch.fnmatchcase(to, self.to)
            and fnmatch.fnmatchcase(sender, self.sender)
        )


class Scripts:
    """Words for the rules; whoever has them says in `_set` how they come into force."""

    def _set(self, rule: dict[str, Any]) -> None:
        raise NotImplementedError

    def _rule(self, rule: Rule) -> None:
        self._set(asdict(rule))

    def refuse(self, code: int, to: str = "*", *, times: int | None = None, status: int = 0, text: str = "") -> None:
        """Answer with an error of Twilio (the generic way: with its status)."""
        self._rule(Rule(to, times=times, status=status or STATUS.get(code, 400), code=code, text=text or f"E{code}"))

    def answer(self, status: int, to: str = "*", *, times: int | None = None, raw: str = "", **headers: str) -> None:
        """Answer with a bare status, a body and headers (`Location="..."`), without taking the message."""
        self._rule(Rule(to, times=times, status=status, raw=raw, headers=headers))

    def throttle(
        self, retry_after: int | str | None = 1, to: str = "*", *, sender: str = "*", times: int | None = None
    ) -> None:
        """Return 429 with Retry-After (None: without)."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        self._rule(Rule(to, sender, times, status=429, code=20429, text="Too Many Requests", headers=headers))

    def fail(self, status: int = 500, to: str = "*", *, times: int | None = None) -> None:
        """Return 5xx without taking the message."""
        self._rule(Rule(to, times=times, status=status, code=20500, text="Internal Server Error"))

    def accept_then_fail(self, status: int = 500, to: str = "*", *, times: int | None = None) -> None:
        """Take the message and answer 5xx."""
        self._rule(Rule(to, times=times, accept=True, status=status, code=20500, text="Internal Server Error"))

    def accept_then_reset(self, to: str = "*", *, times: int | None = None) -> None:
        """Take the message and break the connection without a word."""
        self._rule(Rule(to, times=times, accept=True, reset=True))

    def accept_then_cut(self, to: str = "*", *, times: int | None = None) -> None:
        """Take the message, say 201, and break the connection in the middle of the answer."""
        self._rule(Rule(to, times=times, accept=True, cut=True))

    def reset(self, to: str = "*", *, times: int | None = None) -> None:
        """Break the connection without taking the message."""
        self._rule(Rule(to, times=times, reset=True))

    def delay(self, seconds: float, to: str = "*", *, times: int | None = None, accept: bool = True) -> None:
        """Return this much later; taken at once, or after that."""
        self._rule(Rule(to, times=times, delay=seconds, accept=accept))

    def hold(self, gate: str, to: str = "*", *, times: int | None = None, accept: bool = True) -> None:
        """Return only after `release(gate)`; taken at once, or after that."""
        self._rule(Rule(to, times=times, gate=gate, accept=accept))

    def say(self, status: str, to: str = "*", *, times: int | None = None, code: int | None = None) -> None:
        """Take the message and tell this first status in the answer: sent, failed, ..."""
        self._rule(Rule(to, times=times, accept=True, said=status, code=code))

    def hide(self, seconds: float, to: str = "*", *, times: int | None = None) -> None:
        """Take the message and break the connection; look-ups find it only after so many seconds."""
        self._rule(Rule(to, times=times, accept=True, reset=True, hidden=seconds))

    def look_ups_fail(self, status: int = 503, *, times: int | None = None) -> None:
        """Return look-ups with an error."""
        self._rule(Rule(times=times, look_ups=True, status=status, code=20503, text="Service Unavailable"))
