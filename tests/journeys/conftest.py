"""Fixtures of the journeys: a server with many contacts, and one whose system emails arrive."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.server import PASSWORD, Server
from tests.kit.smtp import SmtpServer

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


@pytest.fixture(scope="module")
def sink() -> Iterator[SmtpServer]:
    """The SMTP server that receives the mail."""
    with SmtpServer() as running:
        yield running


@contextmanager
def start_with_team(sink: SmtpServer, roles: dict[str, str]) -> Iterator[Server]:
    """Start a server that sends through the sink, with users of `roles`, by their names, beside the owner."""
    settings = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true"}
    with Server(relay=sink.port, env=settings).set_up() as running:
        running.set_postal_address()
        running.client().patch("/account", {"email_from_email": "team@example.com"}).expect(200)
        for name, role in roles.items():
            running.cli("user", "add", "--email", f"{name}@example.org", "--role", role, stdin=PASSWORD + "\n")
        yield running
        running.stop()
