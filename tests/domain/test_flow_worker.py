"""The flow worker: a failing unit of work does not stop the others."""

import pytest

from appliance.core.errors import Unavailable
from appliance.flows.engine import FlowWorker


def test_a_failing_work_unit_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged once per call, and the other units run until nothing is left."""
    items = [1, 2, 3]

    def fail() -> bool:
        raise ValueError("no such zone")

    def take_item() -> bool:
        return bool(items) and bool(items.pop())

    FlowWorker((fail, take_item)).work()
    assert not items and caplog.text.count("work unit failed") == 1


def test_unavailable_storage_ends_the_work() -> None:
    """If storage is unavailable, the exception reaches the caller."""

    def raise_unavailable() -> bool:
        raise Unavailable("the disk is full")

    worker = FlowWorker((raise_unavailable, lambda: True))
    with pytest.raises(Unavailable):
        worker.work()
    with pytest.raises(Unavailable):
        worker.work()
