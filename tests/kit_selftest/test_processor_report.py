"""Self-tests of the processor seconds of test files."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processor_report import ProcessorReport, measure_tree


def test_the_time_of_child_processes_counts() -> None:
    """Half a second of a child of a child is counted after both have ended."""
    work = "import time\nwhile time.process_time() < 0.5: pass"
    before = measure_tree()
    subprocess.run(["/bin/sh", "-c", '"$0" -S -c "$1"; true', sys.executable, work], check=True)
    assert 0.4 < measure_tree() - before < 5


def test_the_table_begins_with_the_most_expensive_file(tmp_path: Path) -> None:
    """The seconds of a file are with the report of its last test; all its tests are counted."""
    report = ProcessorReport(tmp_path / "table.txt")
    for test, seconds in (("a.py::first", None), ("a.py::last", 1.5), ("b.py::only", 20.0)):
        for when in ("setup", "call", "teardown"):
            properties = [("processor_seconds", seconds)] if seconds and when == "teardown" else []
            phase = pytest.TestReport(test, ("", 0, ""), {}, "passed", None, when, (), user_properties=properties)  # type: ignore[arg-type]  # one of the three phases
            report.pytest_runtest_logreport(phase)
    report.write_table()
    assert (tmp_path / "table.txt").read_text().splitlines() == [
        "   21.5      3  all", "   20.0      1  b.py", "    1.5      2  a.py",
    ]  # fmt: skip
