"""What is dear to count and may be a little old: counted again only after a rest of many times what counting took."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Rested(Generic[T]):
    """Answers by key; what is known is told again for `least` seconds, and for `rests` times what it took to find.

    What took at most `cheap` seconds of the processor is made each time, however busy the machine is.
    """

    def __init__(self, least: float = 0.0, rests: int = 20, most_kept: int = 200, cheap: float = 0.0) -> None:
        self._least, self._rests, self._most_kept, self._cheap = least, rests, most_kept, cheap
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[float, T]] = {}
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what belongs to a key, made now unless it is known from a moment ago; who asks meanwhile waits."""
        with self._lock:
            known = self._known.get(key)
            making = self._making.setdefault(key, threading.Lock())
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        with making:
            with self._lock:
                known = self._known.get(key)
            if known is not None and time.monotonic() < known[0]:
                return known[1]
            return self._made(key, make)

    def _made(self, key: Hashable, make: Callable[[], T]) -> T:
        begun, work = time.monotonic(), time.thread_time()
        made = make()
        ended = time.monotonic()
        if time.thread_time() - work < self._cheap:
            return made
        with self._lock:
            if len(self._known) >= self._most_kept:
                self._known.clear()
                self._making.clear()
            self._known[key] = ended + max(self._least, self._rests * (ended - begun)), made
        return made

    def last(self, key: Hashable) -> T | None:
        """Return what is known of a key, however old; None if nothing is."""
        with self._lock:
            known = self._known.get(key)
        return known[1] if known is not None else None

    def forget(self, key: Hashable) -> None:
        """Let what belongs to a key be made anew."""
        with self._lock:
            self._known.pop(key, None)
