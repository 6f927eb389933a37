"""What this process counts about itself as it goes: kept in memory, from zero at each start, for whoever scrapes it.

Nothing here asks the database or waits for anybody. Each kind is declared once, where it is counted, and its labels
come from short lists: no ids, no addresses, no paths as they were asked for. What is counted for an account is kept
apart by it, so that none learns of another.
"""

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# Whose something is: an account's, or nobody's but the installation's
ALL = 0
_SECONDS = (0.005, 0.02, 0.1, 0.25, 1.0, 2.5, 10.0)
Labels = tuple[str, ...]


class Sample(NamedTuple):
    """One number of a family: what stands behind its name, its labels with their values, and the number."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """All numbers of one name."""

    name: str
    kind: str  # counter, gauge, histogram
    words: str
    samples: list[Sample]


class _Kind(ABC):
    def __init__(self, name: str, words: str, labels: Labels = ()) -> None:
        self.name, self.words, self.labels = f"campanero_{name}", words, labels
        self._lock = threading.Lock()
        _declared[self.name] = self

    @abstractmethod
    def family(self, account_id: int | None) -> Family:
        """Return what was counted: for an account, or (None) all of it."""

    def _named(self, values: Labels) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.labels, values, strict=True))


_declared: dict[str, _Kind] = {}


class Counter(_Kind):
    """How often something happened."""

    def __init__(self, name: str, words: str, labels: Labels = ()) -> None:
        super().__init__(name, words, labels)
        self._counts: dict[tuple[int, Labels], int] = {}

    def add(self, *values: str, account_id: int = ALL, number: int = 1) -> None:
        """Count something, by the values of its labels; from any thread."""
        key = (account_id, values)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + number

    def family(self, account_id: int | None) -> Family:
        """Return what was counted; a counter without labels is there from the start."""
        sums: dict[Labels, int] = {} if self.labels else {(): 0}
        with self._lock:
            for (whose, values), number in self._counts.items():
                if account_id is None or whose == account_id:
                    sums[values] = sums.get(values, 0) + number
        found = [Sample("", self._named(values), number) for values, number in sorted(sums.items())]
        return Family(self.name, "counter", self.words, found)


class Histogram(_Kind):
    """How long something took, in seconds."""

    def __init__(self, name: str, words: str, labels: Labels = (), bounds: tuple[float, ...] = _SECONDS) -> None:
        super().__init__(name, words, labels)
        self._bounds = bounds
        self._seen: dict[Labels, tuple[list[int], list[float]]] = {}

    def observe(self, seconds: float, *values: str) -> None:
        """Note how long one took, by the values of its labels; from any thread."""
        with self._lock:
            counts, total = self._seen.setdefault(values, ([0] * (len(self._bounds) + 1), [0.0]))
            counts[bisect_left(self._bounds, seconds)] += 1
            total[0] += seconds

    def family(self, account_id: int | None) -> Family:
        """Return what was seen; it is nobody's but the installation's."""
        with self._lock:
            seen = [(values, [*counts], total[0]) for values, (counts, total) in sorted(self._seen.items())]
        found: list[Sample] = []
        for values, counts, total in seen:
            named, so_far = self._named(values), 0
            for bound, number in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                so_far += number
                found.append(Sample("_bucket", (*named, ("le", bound)), so_far))
            found += [Sample("_sum", named, total), Sample("_count", named, so_far)]
        return Family(self.name, "histogram", self.words, found)


class Gauge(_Kind):
    """How something stands at this moment, as a function says that is quick and asks no database."""

    def __init__(self, name: str, words: str, labels: Labels = ()) -> None:
        super().__init__(name, words, labels)
        self._says: Callable[[], Iterable[tuple[Labels, float]]] | None = None

    def follow(self, says: Callable[[], Iterable[tuple[Labels, float]]]) -> None:
        """Let this function answer from now on, on any thread, with the values of the labels and the number."""
        self._says = says

    def family(self, account_id: int | None) -> Family:
        """Return how it stands; where nobody says so, nothing."""
        found = [] if self._says is None else sorted(self._says())
        return Family(self.name, "gauge", self.words, [Sample("", self._named(values), one) for values, one in found])


def gauge(name: str, words: str, samples: Iterable[tuple[dict[str, str], Any]]) -> Family:
    """Make the family of something that was looked up just now."""
    found = [Sample("", tuple(labels.items()), float(one)) for labels, one in samples]
    return Family(f"campanero_{name}", "gauge", words, found)


def families(account_id: int | None) -> list[Family]:
    """Return all that was counted; for an account, only what is its own."""
    return [
        one.family(account_id) for _, one in sorted(_declared.items())
        if account_id is None or isinstance(one, Counter)
    ]  # fmt: skip
