"""Signals between parts of the program, and wake-ups for background jobs.

A signal calls its receivers at once; `appliance/app.py` connects them. A wake-up carries no data: code that writes rows
wakes the job that processes them, by the name of the job. A lost wake-up loses no work, because `Jobs.pulse` looks for
due rows once a second (`appliance.jobs`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Signal(Generic[P]):
    """A list of receivers, which `send` calls in the order of connection, on the thread and in the transaction of the
    sender.
    """

    def __init__(self) -> None:
        self._receivers: list[Callable[P, None]] = []

    def connect(self, receiver: Callable[P, None]) -> None:
        """Add a receiver, unless it is connected already."""
        if receiver not in self._receivers:
            self._receivers.append(receiver)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every receiver. An exception of a receiver is not caught, so later receivers are not called."""
        for receiver in self._receivers:
            receiver(*args, **kwargs)


class Provider(Generic[P, R]):
    """A function that one package calls and another package above it provides; `appliance/app.py` connects them."""

    def __init__(self, default: R) -> None:
        self._default = default
        self._function: Callable[P, R] | None = None

    def connect(self, function: Callable[P, R]) -> None:
        """Set the function, which replaces an earlier function."""
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and return its result, or the default if no function is connected."""
        return self._default if self._function is None else self._function(*args, **kwargs)


_handlers: dict[str, Callable[[], None]] = {}


class _Muted(threading.local):
    """Whether the wake-ups of the current thread are dropped."""

    is_muted = False


_muted = _Muted()


@contextmanager
def muted() -> Iterator[None]:
    """Drop the wake-ups of this thread while the block runs, for simulations, whose rows no job may process."""
    was_muted, _muted.is_muted = _muted.is_muted, True
    try:
        yield
    finally:
        _muted.is_muted = was_muted


def register_handler(name: str, function: Callable[[], None]) -> None:
    """Set the function that `wake(name)` calls, on any thread; the function must return fast."""
    _handlers[name] = function


def clear_handlers() -> None:
    """Remove all handlers, so that a process that is stopping starts no new work."""
    _handlers.clear()


def wake(name: str) -> None:
    """Call the handler of a job. Do nothing without a handler, as on the command line, or if this thread is muted."""
    function = None if _muted.is_muted else _handlers.get(name)
    if function is not None:
        function()
