"""Counters, gauges and histograms of this process for Prometheus, kept in memory; they start at zero with the process.

A metric is declared once, in the module that counts it. The values of its labels come from short fixed lists, never
from ids, addresses or request paths. Counters are kept by account, so that the metrics of an account show nothing of
another account. `prometheus_client` is not used because it cannot hide a label (the account) from some scrapes: its
registry would have to be copied and filtered for each scrape.
"""

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# The account id under which metrics of the whole installation are counted.
INSTALLATION = 0
_SECONDS = (0.005, 0.02, 0.1, 0.25, 1.0, 2.5, 10.0)
Labels = tuple[str, ...]


class Sample(NamedTuple):
    """One line of a metric family: the suffix of the metric name, pairs of label and label value, and the number."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """One metric with its help text and its samples; `kind` is its Prometheus type."""

    name: str
    kind: str  # counter, gauge, histogram
    help: str
    samples: list[Sample]


class _Metric(ABC):
    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        self.name, self.help, self.labels = f"campanero_{name}", help_text, labels
        self._lock = threading.Lock()
        _declared[self.name] = self

    @abstractmethod
    def family(self, account_id: int | None) -> Family:
        """Return the metric with the samples of an account, or of all accounts and the installation (None)."""

    def _label_pairs(self, values: Labels) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.labels, values, strict=True))


_declared: dict[str, _Metric] = {}


class Counter(_Metric):
    """A metric that only grows: how often something happened, by account and label values."""

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self._counts: dict[tuple[int, Labels], int] = {}

    def increment(self, *values: str, account_id: int = INSTALLATION, number: int = 1) -> None:
        """Add `number` to the count of an account and the label values `values`; may be called on any thread."""
        key = (account_id, values)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + number

    def family(self, account_id: int | None) -> Family:
        """Return the counts of an account, or the sums over all accounts (None).

        Before the first increment, a counter without labels is 0, and a counter with labels has no samples.
        """
        sums: dict[Labels, int] = {} if self.labels else {(): 0}
        with self._lock:
            for (owner_id, values), number in self._counts.items():
                if account_id is None or owner_id == account_id:
                    sums[values] = sums.get(values, 0) + number
        samples = [Sample("", self._label_pairs(values), number) for values, number in sorted(sums.items())]
        return Family(self.name, "counter", self.help, samples)


class Histogram(_Metric):
    """A metric of durations in seconds, in buckets with the upper limits `bounds`; it is not kept by account."""

    def __init__(self, name: str, help_text: str, labels: Labels = (), bounds: tuple[float, ...] = _SECONDS) -> None:
        super().__init__(name, help_text, labels)
        self._bounds = bounds
        self._histograms: dict[Labels, tuple[list[int], list[float]]] = {}

    def observe(self, seconds: float, *values: str) -> None:
        """Record a duration under the label values `values`; may be called on any thread."""
        with self._lock:
            histogram = self._histograms.get(values)
            if histogram is None:
                histogram = self._histograms[values] = ([0] * (len(self._bounds) + 1), [0.0])
            counts, total = histogram
            counts[bisect_left(self._bounds, seconds)] += 1
            total[0] += seconds

    def family(self, account_id: int | None) -> Family:
        """Return the buckets, sums and counts of the whole installation; `account_id` is ignored."""
        with self._lock:
            histograms = [(values, [*counts], total[0]) for values, (counts, total) in sorted(self._histograms.items())]
        samples: list[Sample] = []
        for values, counts, total in histograms:
            named, so_far = self._label_pairs(values), 0
            for bound, number in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                so_far += number
                samples.append(Sample("_bucket", (*named, ("le", bound)), so_far))
            samples += [Sample("_sum", named, total), Sample("_count", named, so_far)]
        return Family(self.name, "histogram", self.help, samples)


class Gauge(_Metric):
    """A metric whose current values a function returns; the function must be fast and not use the database."""

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self._function: Callable[[], Iterable[tuple[Labels, float]]] | None = None

    def set_function(self, function: Callable[[], Iterable[tuple[Labels, float]]]) -> None:
        """Set the function that returns pairs of label values and number; the function may be called on any thread."""
        self._function = function

    def family(self, account_id: int | None) -> Family:
        """Return the current values; there are none before `set_function`. `account_id` is ignored."""
        values = [] if self._function is None else sorted(self._function())
        return Family(
            self.name, "gauge", self.help, [Sample("", self._label_pairs(labels), value) for labels, value in values]
        )


def gauge_family(name: str, help_text: str, samples: Iterable[tuple[dict[str, str], Any]]) -> Family:
    """Return a gauge family from pairs of labels and value, for values that are read at each scrape."""
    family_samples = [Sample("", tuple(labels.items()), float(value)) for labels, value in samples]
    return Family(f"campanero_{name}", "gauge", help_text, family_samples)


def collect(account_id: int | None) -> list[Family]:
    """Return the metric families sorted by name: all if `account_id` is None, else only the counters of the account."""
    return [
        metric.family(account_id) for _, metric in sorted(_declared.items())
        if account_id is None or isinstance(metric, Counter)
    ]  # fmt: skip
