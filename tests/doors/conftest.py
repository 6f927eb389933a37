"""Fixtures of the tests of doors: a server that sends through a relay of the test."""

from collections.abc import Iterator

import pytest

from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


@pytest.fixture(scope="module")
def relay() -> Iterator[SmtpServer]:
    """Yield the SMTP server that all tests of the module send to."""
    with SmtpServer() as smtp:
        yield smtp


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """Return the clock of the server."""
    return TestClock(tmp_path_factory.mktemp("clock") / "offset")


@pytest.fixture(scope="module")
def server(relay: SmtpServer, clock: TestClock) -> Iterator[Server]:
    """Yield a server that sends through the relay."""
    with Server(relay=relay.port, clock=clock).set_up() as running:
        yield running
        running.stop()
