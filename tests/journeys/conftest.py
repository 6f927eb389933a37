"""Fixtures of the journeys: a server with many contacts."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.server import Server

CONTACTS, SENDABLE_SHARE = 30_000, 0.002

StartLarge = Callable[..., Server]


@pytest.fixture
def large_server(fresh_server: FreshServer) -> StartLarge:
    """Start a server with many contacts, of whom only a share may be mailed."""

    def make(contacts: int = CONTACTS, share: float = SENDABLE_SHARE, **options: Any) -> Server:
        server = fresh_server(start=False, **options)
        insert_contacts(server.data / "campanero.db", contacts, share)
        server.start()
        return server.set_postal_address() if options.get("relay") else server

    return make
