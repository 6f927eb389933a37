"""Run test files in several processes, which are forked from the one that has collected the tests: `-n 4`.

pytest-xdist would start processes that import and collect all tests again, which takes each of them ten seconds of a
processor. The fork server (`fork_server.py`) is prepared beside the collection and forks one for each process, too.
A file is run by one process. A process gets its next file when it is done, so that none waits behind a long file.
"""

import atexit
import os
import warnings
from collections import deque
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from tests.kit import fork_server

_fork = get_context("fork")


class ParallelFiles:
    """The plugin of the process that collects the tests: forks processes and reports what they send.

    With `has_services`, the fork server is prepared while the tests are collected.
    """

    def __init__(self, process_count: int, *, has_services: bool) -> None:
        self._process_count, self._has_services = process_count, has_services
        self._files: deque[list[int]] = deque()  # the positions in `session.items` of the tests of each file
        self._running: dict[Connection, _TestProcess] = {}
        self._is_stopping = _fork.Event()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Start the fork server."""
        if self._has_services and not session.config.option.collectonly:
            fork_server.fork_server()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests in forked processes; errors of the collection are reported as usual."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        positions = range(len(session.items))
        self._files.extend(list(group) for _, group in groupby(positions, key=lambda at: session.items[at].path))
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made once, for all processes
        try:
            for _ in range(min(self._process_count, len(self._files))):
                self._start_process(session)
            while self._running:
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)  # nothing else was given to `wait`
                    self._receive(session, connection)
        finally:
            self._is_stopping.set()
            for test_process in self._running.values():
                test_process.process.join()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _start_process(self, session: pytest.Session) -> None:
        connection, child_connection = _fork.Pipe()
        forker = fork_server.fork_server().copy() if self._has_services else None
        arguments = (session, child_connection, self._is_stopping, forker, [connection, *self._running])
        process = _fork.Process(target=_run_files, args=arguments)
        process.start()
        child_connection.close()
        if forker is not None:
            forker.disconnect()
        self._running[connection] = _TestProcess(process)

    def _receive(self, session: pytest.Session, connection: Connection) -> None:
        """Handle a message of a process: the reports of a test, or None if it asks for the next file."""
        test_process, hook = self._running[connection], session.config.hook
        try:
            message = connection.recv()
            if message is None:
                test_process.left = deque(self._files.popleft() if self._files and not session.shouldfail else ())
                connection.send(list(test_process.left))
                return
        except (EOFError, ConnectionError):
            self._end_process(session, connection)
            return
        item = session.items[test_process.left.popleft()]
        reports, messages = message
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for text in messages:
            warning = warnings.WarningMessage(UserWarning(text), UserWarning, item.location[0], item.location[1] or 0)
            hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": warning, "nodeid": item.nodeid, "when": "runtest", "location": None}
            )
        for data in reports:
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if session.shouldfail or session.shouldstop:
            self._is_stopping.set()

    def _end_process(self, session: pytest.Session, connection: Connection) -> None:
        """Report the test that a crashed process was running, and let a new process run the others of its file."""
        test_process = self._running.pop(connection)
        connection.close()
        test_process.process.join()
        code, left = test_process.process.exitcode, test_process.left
        if code == 0 or (self._is_stopping.is_set() and session.shouldfail):
            return
        # Without a test that is left, the process failed in what it does at its end
        item = session.items[left.popleft()] if left else session.items[-1]
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed", f"a test process ended with the exit code {code}", "call"
        )
        session.config.hook.pytest_runtest_logreport(report=report)
        if left:
            self._files.appendleft(list(left))
        if self._files:
            self._start_process(session)


class _TestProcess:
    """A running process, and the positions of the tests of its file that it has not reported."""

    def __init__(self, process: Any) -> None:
        self.process, self.left = process, deque[int]()


# -- what runs in a process -------------------------------------------------------------------------------------------


class _Recorder:
    """The plugin that collects the reports and warnings of a test, instead of those that print and store them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: list[dict[str, Any]] = []
        self._warnings: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect a report."""
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Collect a warning."""
        category, place = warning_message.category.__name__, f"{warning_message.filename}:{warning_message.lineno}"
        self._warnings.append(f"{place}: {category}: {warning_message.message}")

    def take(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return what was collected since the last call."""
        taken = self._reports, self._warnings
        self._reports, self._warnings = [], []
        return taken


def _run_files(
    session: pytest.Session, connection: Connection, is_stopping: Any, forker: fork_server.Forker | None,
    inherited: list[Connection],
) -> None:  # fmt: skip
    """Run one file after the other in a forked process, until there is none left or another process has failed."""
    for other in inherited:
        other.close()
    atexit._clear()  # what the parent does at its end
    if forker is not None:
        fork_server.use(forker)
    recorder = _begin(session.config)
    try:
        while not is_stopping.is_set():
            connection.send(None)
            items = [session.items[position] for position in connection.recv()]
            if not items:
                break
            # After the last one only what belongs to the session stays
            for item, following in zip(items, [*items[1:], session], strict=True):
                if is_stopping.is_set():
                    break
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                connection.send(recorder.take())
    finally:
        try:
            session._setupstate.teardown_exact(None)
        finally:
            atexit._run_exitfuncs()


def _begin(config: pytest.Config) -> _Recorder:
    """Give this process its own captured output and temporary directories, and a recorder in place of the reporter."""
    manager = config.pluginmanager
    capture: Any = manager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]  # the fixture of that name is not at hand yet
    factory._basetemp = factory.getbasetemp() / f"process-{os.getpid()}"
    factory._basetemp.mkdir(0o700)
    manager.unregister(name="terminalreporter")
    recorder = _Recorder(config)
    manager.register(recorder)
    return recorder
