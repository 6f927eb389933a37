"""Signals between parts of the program, and wake-ups for background jobs.

A signal calls its receivers at once; `appliance/app.py` connects them. A wake-up carries no data: code that writes rows
wakes the job that works on them by its name. A lost wake-up loses no work, because `Jobs.pulse` looks for due rows
once a second (`jobs/tasks.py`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Signal(Generic[P]):
    """Calls its receivers in the order in which they were connected, on the thread and in the transaction of `send`."""

    def __init__(self) -> None:
        self._receivers: list[Callable[P, None]] = []

    def connect(self, receiver: Callable[P, None]) -> None:
        """Call a function with every signal from now on; connecting it twice changes nothing."""
        if receiver not in self._receivers:
            self._receivers.append(receiver)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every receiver; an exception of a receiver is raised here and ends the signal."""
        for receiver in self._receivers:
            receiver(*args, **kwargs)


class Provider(Generic[P, R]):
    """A function that one part calls and another one provides; `appliance/app.py` connects it."""

    def __init__(self, default: R) -> None:
        self._default = default
        self._function: Callable[P, R] | None = None

    def connect(self, function: Callable[P, R]) -> None:
        """Set the function."""
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the function returns, or the default while none is connected."""
        return self._default if self._function is None else self._function(*args, **kwargs)


_handlers: dict[str, Callable[[], None]] = {}


class _Muted(threading.local):
    """The flag of a thread whose wake-ups are dropped."""

    is_muted = False


_muted = _Muted()


@contextmanager
def muted() -> Iterator[None]:
    """Drop the wake-ups of this thread while the block runs, because a simulation writes no real rows."""
    was_muted, _muted.is_muted = _muted.is_muted, True
    try:
        yield
    finally:
        _muted.is_muted = was_muted


def register_handler(name: str, function: Callable[[], None]) -> None:
    """Set the function that a wake-up of this name calls; it must be quick and may be called on any thread."""
    _handlers[name] = function


def clear_handlers() -> None:
    """Remove all handlers, so that a process that is stopping begins no new work."""
    _handlers.clear()


def wake(name: str) -> None:
    """Wake the job of a name; without a handler (on the command line) nothing happens."""
    function = None if _muted.is_muted else _handlers.get(name)
    if function is not None:
        function()
