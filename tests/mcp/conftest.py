"""Fixtures of the tests of the MCP server: one service a module, whose messages are captured."""

from collections.abc import Iterator

import pytest

from tests.kit.server import Server
from tests.mcp.assistant import Assistant


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Yield a running server with one account."""
    with Server().set_up() as running:
        yield running
        running.stop()


@pytest.fixture(scope="module")
def assistant(server: Server) -> Assistant:
    """Return an assistant with a key of all scopes."""
    return Assistant(server)
