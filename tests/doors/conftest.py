"""Fixtures of the tests of doors: a server that sends through a relay of the test."""

from collections.abc import Iterator

import pytest

from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.shared_clock import clock
from tests.kit.smtp import SmtpServer

__all__ = ["clock"]


@pytest.fixture(scope="module")
def server(relay: SmtpServer, clock: TestClock) -> Iterator[Server]:
    """Yield a server that sends through the relay."""
    with Server(relay=relay.port, clock=clock).set_up() as running:
        yield running
        running.stop()
