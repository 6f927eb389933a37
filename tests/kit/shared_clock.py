"""Fixtures of modules that move time: one clock for all tests of the module, and a server with it.

A module imports both, or the clock alone if it defines a server with more than settings of its own.
"""

from collections.abc import Iterator

import pytest

from tests.kit.clock import TestClock
from tests.kit.server import Server


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """Return the clock of the module's server."""
    return TestClock(tmp_path_factory.mktemp("clock") / "offset")


@pytest.fixture(scope="module")
def server(clock: TestClock, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server with the clock and, if the module has one, the environment `SERVER_ENV`."""
    with Server(clock=clock, env=getattr(request.module, "SERVER_ENV", None)).set_up() as running:
        yield running
        running.stop()
