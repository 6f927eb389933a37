"""Fixtures of the tests of the MCP server: one service a module, whose messages are captured."""

import pytest

from tests.kit.server import Server
from tests.mcp.assistant import Assistant


@pytest.fixture(scope="module")
def assistant(server: Server) -> Assistant:
    """Return an assistant with a key of all scopes."""
    return Assistant(server)
