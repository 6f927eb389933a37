"""Measure the processor time of each test file, its child processes included: `packaging/test --processor FILE`.

Unlike the time on a clock, it hardly changes with what else runs on the machine. What a file starts for later ones too,
such as the browser, counts for that file; the build of the executable counts for none.
"""

import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import ROOT

_PR_SET_CHILD_SUBREAPER = 36
_SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PROPERTY = "processor_seconds"  # of the report of the last test of a file


def _read_processes() -> dict[int, tuple[int, str, int]]:
    """Return the parent, the command line and the ticks of each process, those of its ended children included."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_text()
        except OSError:  # it has just ended
            continue
        processes[int(path.name)] = int(fields[1]), command, sum(map(int, fields[11:15]))
    return processes


def measure_tree() -> float:
    """Return the seconds of a processor that this process and its descendants have used, except for a build."""
    processes = _read_processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, command, _) in processes.items():
        if "tests.kit.executable" not in command:
            children.setdefault(parent, []).append(pid)
    pids = [os.getpid()]
    for pid in pids:
        pids += children.get(pid, [])
    return sum(processes[pid][2] for pid in pids) * _SECONDS_PER_TICK


class ProcessorReport:
    """A plugin of pytest that writes a table of the test files, the most expensive first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()
        self._is_last, self._before = False, 0.0

    def pytest_sessionstart(self) -> None:
        """Become the parent of processes whose parent ends, because their time would be lost otherwise."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def pytest_runtestloop(self) -> None:
        """Begin to measure after the collection."""
        self._before = measure_tree()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Note whether the test is the last one of its file, with whose clean-up the file ends."""
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Add what the file has cost to the last report of its last test, which goes to the main process."""
        report = yield
        if self._is_last and call.when == "teardown":
            after = measure_tree()
            report.user_properties.append((_PROPERTY, after - self._before))
            self._before = after
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sum the seconds and count the tests of each file."""
        file = report.nodeid.partition("::")[0]
        self._tests[file] += report.when == "teardown"
        if report.when == "teardown":
            self._seconds[file] += sum(value for name, value in report.user_properties if name == _PROPERTY)

    def pytest_sessionfinish(self) -> None:
        """Write the table, unless this is one of several processes."""
        if "PYTEST_XDIST_WORKER" not in os.environ:
            self.write_table()

    def write_table(self) -> None:
        """Write seconds, number of tests and name of each file, and of all."""
        rows = [f"{seconds:7.1f} {self._tests[file]:6d}  {file}\n" for file, seconds in self._seconds.most_common()]
        total = f"{self._seconds.total():7.1f} {self._tests.total():6d}  all\n"
        (ROOT / self._path).write_text("".join([total, *rows]))
