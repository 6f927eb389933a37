"""The clock of the test kit."""

from pathlib import Path

from tests.kit.clock import TestClock


def test_the_clock_moves_forward_and_back(tmp_path: Path) -> None:
    """The file contains the sum of all moves as a float."""
    clock = TestClock(tmp_path / "clock")
    assert float((tmp_path / "clock").read_text()) == 0
    clock.advance(1.5, minutes=1, hours=1, days=1)
    clock.advance(-0.5)
    assert float((tmp_path / "clock").read_text()) == 1 + 60 + 3600 + 86400
    clock.set(-10)
    assert clock.offset == -10
