"""The current state of the senders in this process, for pages and commands.

Each sender sets a function that returns its state (`set_reporter`). A process without senders has an empty state. Times
are milliseconds since 1970 UTC.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class PausedTransport(NamedTuple):
    """A transport that was unreachable or rejected every message; nothing is sent to it before `until`.

    `text` is the error, `since` the time at which it was paused.
    """

    provider: str
    text: str
    since: int
    until: int


class ThrottledGroup(NamedTuple):
    """A recipient group whose servers asked for a lower rate.

    Nothing is sent to it before `until` (None: now). `connections` is the current limit, `text` the servers' reply.
    """

    provider: str
    group: str
    text: str
    since: int
    until: int | None
    connections: int


class ExhaustedLimit(NamedTuple):
    """An hourly limit that allows no message before `until`.

    `name` is `*` for all mail, `from` and a sending domain, or a recipient group.
    """

    name: str
    per_hour: int
    until: int


class WarmingDomain(NamedTuple):
    """A sending domain in warm-up: its `senders.WarmUpDay`, and whether the quota of that day is used up."""

    day: Any
    is_full: bool


class SendStatus(NamedTuple):
    """The state of the senders of one channel; `connections` is the number of their open connections."""

    paused_transports: tuple[PausedTransport, ...] = ()
    throttled_groups: tuple[ThrottledGroup, ...] = ()
    exhausted_limits: tuple[ExhaustedLimit, ...] = ()
    connections: int = 0
    warming_domains: tuple[WarmingDomain, ...] = ()


_reports: dict[str, Callable[[], SendStatus]] = {}


def set_reporter(channel: str, function: Callable[[], SendStatus]) -> None:
    """Set the function that returns the state of a channel (`email` or `sms`) when called on any thread."""
    _reports[channel] = function


def current(channel: str = "email") -> SendStatus:
    """Return the current state of a channel; it is empty if no sender has set a reporter."""
    return _reports[channel]() if channel in _reports else SendStatus()
