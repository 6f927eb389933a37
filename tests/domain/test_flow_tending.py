"""Work on flows goes round: each kind gets its bite, whatever becomes of the others."""

import pytest

from appliance.core.errors import Unavailable
from appliance.flows.engine import FlowWorker


def test_a_kind_of_work_that_breaks_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be done is said in the log, once in each call; the others go on until nothing is left."""
    left = [1, 2, 3]

    def broken() -> bool:
        raise ValueError("no such zone")

    def works() -> bool:
        return bool(left) and bool(left.pop())

    FlowWorker((broken, works)).work()
    assert not left and caplog.text.count("work unit failed") == 1


def test_nothing_goes_on_while_nothing_can_be_written() -> None:
    """A full disk is everybody's trouble: the round ends, and whoever called is told."""

    def waits() -> bool:
        raise Unavailable("the disk is full")

    tender = FlowWorker((waits, lambda: True))
    with pytest.raises(Unavailable):
        tender.work()
    with pytest.raises(Unavailable):
        tender.work()
