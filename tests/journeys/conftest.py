"""Fixtures of the journeys: a server with a crowd of contacts."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.crowd import fill
from tests.kit.server import Server

MANY, SENDABLE = 30_000, 0.002

Crowd = Callable[..., Server]


@pytest.fixture
def crowd(fresh_server: FreshServer) -> Crowd:
    """Make a server with many contacts, few of whom may be written to; `crowd(relay=..., contacts=...)`."""

    def make(contacts: int = MANY, share: float = SENDABLE, **options: Any) -> Server:
        server = fresh_server(start=False, **options)
        fill(server.data / "campanero.db", contacts, share)
        server.start()
        return server.give_address() if options.get("relay") else server

    return make
