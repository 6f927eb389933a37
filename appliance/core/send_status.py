"""The state of sending in this process, for pages and commands; empty in a process that sends nothing.

The senders report it (`report`). Times are milliseconds since 1970 UTC.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Closed(NamedTuple):
    """A way out that cannot be reached, or that asked for less of everything; it is tried again at `until`."""

    provider: str
    text: str
    since: int
    until: int


class Spared(NamedTuple):
    """A group of recipients that gets less, because its servers asked for that; nothing goes before `until`."""

    provider: str
    group: str
    text: str
    since: int
    until: int | None
    connections: int


class Full(NamedTuple):
    """A limit of an hour that is used up: of all (`*`), `from` a domain, or to a group."""

    name: str
    per_hour: int
    until: int


class Beginning(NamedTuple):
    """A sending domain that begins with a few messages a day: its day (`messages.warm_up`), whether that is full."""

    day: Any
    is_full: bool


class SendStatus(NamedTuple):
    """All of it."""

    closed: tuple[Closed, ...] = ()
    spared: tuple[Spared, ...] = ()
    full: tuple[Full, ...] = ()
    connections: int = 0
    beginning: tuple[Beginning, ...] = ()


_reports: dict[str, Callable[[], SendStatus]] = {}


def report(channel: str, function: Callable[[], SendStatus]) -> None:
    """Let this function answer for a channel from now on, on any thread."""
    _reports[channel] = function


def now(channel: str = "email") -> SendStatus:
    """Return how the sending of a channel stands at this moment."""
    return _reports[channel]() if channel in _reports else SendStatus()
