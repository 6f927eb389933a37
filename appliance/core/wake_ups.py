"""Wake-ups: whoever writes rows wakes the job that works on such rows, by its name. A wake-up carries no data.

A lost wake-up loses no work: once a second, rows that are due are looked for (`jobs/tasks.py`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_answers: dict[str, Callable[[], None]] = {}


class _Unheard(threading.local):
    """Whether what this thread rings is heard by nobody."""

    now = False


_unheard = _Unheard()


@contextmanager
def unheard() -> Iterator[None]:
    """Let nobody hear what this thread rings: it only pretends to have written rows."""
    before, _unheard.now = _unheard.now, True
    try:
        yield
    finally:
        _unheard.now = before


def answer(name: str, function: Callable[[], None]) -> None:
    """Let a function be called, quickly and on any thread, when this name is rung."""
    _answers[name] = function


def silence() -> None:
    """Forget all answers; a process that is ending works on nothing new."""
    _answers.clear()


def ring(name: str) -> None:
    """Wake whoever works on these rows; without anybody listening (the command line) nothing happens."""
    function = None if _unheard.now else _answers.get(name)
    if function is not None:
        function()
