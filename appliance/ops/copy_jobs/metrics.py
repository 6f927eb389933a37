"""The metrics of copies on another machine. They have no samples until copies are set up."""

from collections.abc import Iterator
from typing import NamedTuple

from appliance.core import clock
from appliance.core.metrics import Gauge, Labels


class Snapshot(NamedTuple):
    """The values for the metrics, from the history and the settings. Times are in milliseconds, or None."""

    taken_at: int | None  # the moment that the last good copy has
    size: int  # of that copy, in bytes
    begun_at: int | None  # when the first copy was begun
    late_after_ms: int  # the age at which the last good copy is too old; 0: never
    failure_counts: dict[str, int]  # since the last success, by kind of run
    is_proof_ok: bool | None  # whether the last test restore succeeded
    proven_at: int | None  # when a test restore succeeded last

    def is_late(self, now: int) -> bool:
        """Return whether the last good copy is too old; without one, whether the first attempt was that long ago."""
        since = self.begun_at if self.taken_at is None else self.taken_at
        return bool(self.late_after_ms) and since is not None and now - since > self.late_after_ms


_Samples = Iterator[tuple[Labels, float]]
_snapshot: Snapshot | None = None


def show(snapshot: Snapshot | None) -> None:
    """Set the metrics to new values; None removes their samples."""
    global _snapshot
    _snapshot = snapshot


def _collect_age() -> _Samples:
    if _snapshot is not None and _snapshot.taken_at is not None:
        yield (), max(0, clock.now_ms() - _snapshot.taken_at) / 1000


def _collect_size() -> _Samples:
    if _snapshot is not None and _snapshot.taken_at is not None:
        yield (), _snapshot.size


def _collect_lateness() -> _Samples:
    if _snapshot is not None:
        yield (), int(_snapshot.is_late(clock.now_ms()))


def _collect_failures() -> _Samples:
    for kind, count in ({} if _snapshot is None else _snapshot.failure_counts).items():
        yield (kind,), count


def _collect_proof() -> _Samples:
    if _snapshot is not None and _snapshot.is_proof_ok is not None:
        yield (), int(_snapshot.is_proof_ok)


def _collect_proof_age() -> _Samples:
    if _snapshot is not None and _snapshot.proven_at is not None:
        yield (), max(0, clock.now_ms() - _snapshot.proven_at) / 1000


for _name, _words, _labels, _function in (
    ("copy_age_seconds", "Age of the data in the last good copy on another machine.", (), _collect_age),
    ("copy_bytes", "Size of the last good copy on another machine.", (), _collect_size),
    ("copy_late", "1 if the last good copy is older than twice the interval, else 0.", (), _collect_lateness),
    ("copy_failures", "Failures since the last success, of copies and test restores.", ("kind",), _collect_failures),
    ("copy_proof_ok", "1 if the last test restore of a copy succeeded, else 0.", (), _collect_proof),
    ("copy_proof_age_seconds", "Age of the last successful test restore of a copy.", (), _collect_proof_age),
):
    Gauge(_name, _words, _labels).set_function(_function)
