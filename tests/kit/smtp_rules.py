"""The faults of the SMTP server for tests: rejections, delays, drops and holds, by phase and recipient."""

import asyncio
import fnmatch
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# `content` is the message itself, after the 354 reply; `body` is its end, the final dot
PHASES = ("connect", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "content", "body")
GREYLISTED = "4.2.0 Greylisted, come back later"


@dataclass
class Gate:
    """Holds sessions at a phase until `release()`; `reached` is set when the first session arrives."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def wait_reached(self, timeout: float = 30) -> None:
        """Wait until a session has reached the gate. Raises AssertionError on timeout."""
        if not self.reached.wait(timeout):
            raise AssertionError(f"no SMTP conversation reached the gate within {timeout} s")

    def release(self) -> None:
        """Open the gate for waiting and future sessions."""
        self.opened.set()

    async def wait_until_open(self) -> None:
        """Wait, on the server's event loop, until the gate is open."""
        self.reached.set()
        while not self.opened.is_set():
            await asyncio.sleep(0.005)


@dataclass
class Rule:
    """A fault at a phase, for recipients that match, at most `times` times (None: always)."""

    phase: str
    recipient: str = "*"
    times: int | None = None
    code: int | None = None
    text: str = ""
    delay: float = 0
    drop: bool = False
    store_first: bool = False
    gate: Gate | None = None
    raw: bytes | None = None
    reset_at: int | None = None
    now: Callable[[], float] | None = None
    delay_until: float = 0
    seen: dict[str, float] = field(default_factory=dict)
    used: int = 0

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise ValueError(f"phase must be one of {PHASES}, not {self.phase!r}")

    def matches(self, phase: str, addresses: Iterable[str]) -> bool:
        """Return whether the rule matches the phase and one of these addresses, and is not used up."""
        if phase != self.phase or (self.times is not None and self.used >= self.times):
            return False
        if self.now is not None and not self._is_grey(",".join(addresses), self.now()):
            return False
        return self.recipient == "*" or any(fnmatch.fnmatch(a.lower(), self.recipient.lower()) for a in addresses)

    def _is_grey(self, sender: str, now: float) -> bool:
        return now - self.seen.setdefault(sender, now) < self.delay_until


class Rules:
    """The active rules, in order; the first match applies. They may be changed while the server runs."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def reject(
        self, phase: str, recipient: str = "*", *, code: int, text: str = "refused", times: int | None = None,
        gate: Gate | None = None,
    ) -> Rule:  # fmt: skip
        """Reply with `code text` instead of success, once `gate` is released; the text may have several lines."""
        return self._add(Rule(phase, recipient, times, code=code, text=text, gate=gate))

    def delay(self, phase: str, seconds: float, recipient: str = "*", *, times: int | None = None) -> Rule:
        """Reply after a delay."""
        return self._add(Rule(phase, recipient, times, delay=seconds))

    def drop(self, phase: str, recipient: str = "*", *, times: int | None = None) -> Rule:
        """Close the connection instead of replying; at `body` the message is not stored."""
        return self._add(Rule(phase, recipient, times, drop=True))

    def store_then_close(self, recipient: str = "*", *, times: int | None = None) -> Rule:
        """Store the message, then close the connection without the 250 reply."""
        return self._add(Rule("body", recipient, times, store_first=True, drop=True))

    def store_then_hold(self, recipient: str = "*", *, times: int | None = None) -> Gate:
        """Store the message, and send the 250 reply only after `release()` of the returned gate."""
        gate = Gate()
        self._add(Rule("body", recipient, times, store_first=True, gate=gate))
        return gate

    def reset(self, at: int, recipient: str = "*", *, times: int | None = None) -> Rule:
        """Reset the connection (RST) after so many bytes of the message; nothing is stored."""
        return self._add(Rule("content", recipient, times, reset_at=at))

    def reply_raw(self, phase: str, raw: bytes, recipient: str = "*", *, times: int | None = None) -> Rule:
        """Accept the command, but send exactly these bytes instead of the usual reply."""
        return self._add(Rule(phase, recipient, times, raw=raw))

    def greylist(self, seconds: float, now: Callable[[], float], recipient: str = "*") -> Rule:
        """Reject a recipient with 450 until `seconds` after the first attempt, by the clock `now`."""
        return self._add(Rule("rcpt", recipient, None, code=450, text=GREYLISTED, now=now, delay_until=seconds))

    def hold(self, phase: str, recipient: str = "*", *, times: int | None = None) -> Gate:
        """Reply only after `release()` of the returned gate."""
        gate = Gate()
        self._add(Rule(phase, recipient, times, gate=gate))
        return gate

    def clear(self) -> None:
        """Remove all rules and open all gates."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if rule.gate:
                rule.gate.release()

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def take(self, phase: str, addresses: Iterable[str]) -> Rule | None:
        """Return the rule that applies now and count it as used, or None."""
        if not self._rules:
            return None
        with self._lock:
            for rule in self._rules:
                if rule.matches(phase, addresses):
                    rule.used += 1
                    return rule
        return None
