"""Signals: one part of the program tells that something happened, without knowing who listens.

Who listens is decided in one place, `appliance/app.py`.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


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
